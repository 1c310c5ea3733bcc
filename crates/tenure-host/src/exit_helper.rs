//! A helper process that makes a lock folder writable after its holder has exited: [`ExitHelper`].
//!
//! A lock folder is read-only while its holder runs, so that other programs can't remove it by mistake. A
//! holder that is killed with SIGKILL can't undo that itself, and no signal or timer of the kernel changes
//! a mode. So a small process waits for the holder's exit and does it then. It is a fork of the holder
//! without its descriptors, in a session of its own: a signal to the holder's process group or session does
//! not reach it.
//!
//! # Invariants
//!
//! 1. The mode is changed after the holder and every process that inherited its liveness lock have exited.
//! 2. It is changed through a descriptor that was opened before the lock got its path. Whatever has that
//!    path by then, another lock is never changed.
//! 3. The helper holds no liveness lock and no descriptor of the holder but its own two.
//! 4. It has left the holder's process group before [`ExitHelper::start`] returns, and so before the lock
//!    gets its path.
//! 5. It ends when the holder ends it ([`ExitHelper::end`]), or soon after the lock was taken apart. (It
//!    polls for that. Inotify is no choice here: the kernel needs about ten milliseconds to close its
//!    descriptor, at every release.)
//!
//! If the helper itself is killed, the folder stays read-only until a tenure process removes it.
#![expect(
    unsafe_code,
    reason = "a process without exec is made with clone, and may only make system calls"
)]

use std::ffi::CString;
use std::fs::File;
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};

use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Signal, pidfd_send_signal};

use crate::exit_watch::ExitWatch;
use crate::signal::with_signals_blocked;

/// How often the helper looks whether its lock still exists, in milliseconds.
const POLL: libc::c_int = 1_000;

/// A running helper. Dropping this leaves it running.
#[derive(Debug)]
pub struct ExitHelper {
    pid: libc::pid_t,
    pidfd: OwnedFd,
}

impl ExitHelper {
    /// Starts a process that gives `folder` this mode once `exit` is reported. It ends early if `file`, a
    /// name in the folder, is removed.
    pub fn start(exit: &ExitWatch, folder: &File, file: &str, mode: u32) -> io::Result<Self> {
        let file = CString::new(file)?;
        let waits = Waits {
            exit: exit.as_fd().as_raw_fd(),
            exit_flags: exit.flags().bits().cast_signed(),
            folder: folder.as_raw_fd(),
            file: &file,
            mode,
        };
        let (ready, not_ready) = pipe_with(PipeFlags::CLOEXEC)?;
        let helper = with_signals_blocked(|| {
            let mut pidfd: libc::c_int = -1;
            // No exit signal: the program must not hear of a child that it did not start. And no debugger
            // that is attached to the program has to deal with it, or would kill it.
            let flags = libc::c_long::from(libc::CLONE_PIDFD | libc::CLONE_UNTRACED);
            // SAFETY: without CLONE_VM this is a fork. The child only makes system calls.
            let pid = unsafe { libc::syscall(libc::SYS_clone, flags, 0, &raw mut pidfd, 0, 0) };
            match pid {
                -1 => Err(io::Error::last_os_error()),
                0 => waits.run(),
                pid => Ok(Self {
                    pid: libc::pid_t::try_from(pid).map_err(io::Error::other)?,
                    // SAFETY: the kernel has just opened it for this process.
                    pidfd: unsafe { OwnedFd::from_raw_fd(pidfd) },
                }),
            }
        })?;
        drop(not_ready);
        // The helper closes its copy once it has left the process group of this process.
        let _ = File::from(ready).read(&mut [0]);
        Ok(helper)
    }

    /// Ends it.
    pub fn end(self) {
        let _ = pidfd_send_signal(&self.pidfd, Signal::KILL);
        // SAFETY: waits for a child of this process. If another part of the program has waited for it
        // already, this fails.
        while unsafe { libc::waitpid(self.pid, std::ptr::null_mut(), libc::__WALL) } == -1
            && Errno::from_io_error(&io::Error::last_os_error()) == Some(Errno::INTR)
        {}
    }
}

/// What the helper waits for. Its methods run in the child, so they make system calls and nothing else.
struct Waits<'a> {
    exit: RawFd,
    exit_flags: libc::c_short,
    folder: RawFd,
    file: &'a CString,
    mode: u32,
}

impl Waits<'_> {
    fn run(&self) -> ! {
        // SAFETY: system calls on descriptors and memory that this process has a copy of.
        unsafe {
            libc::setsid();
            self.close_others();
            libc::chdir(c"/".as_ptr());
            libc::prctl(libc::PR_SET_NAME, c"tenure-helper".as_ptr());
            if self.wait() {
                libc::fchmod(self.folder, self.mode);
            }
            libc::_exit(0)
        }
    }

    /// Closes every descriptor but the two (invariant 3).
    unsafe fn close_others(&self) {
        let mut keep = [self.exit, self.folder];
        keep.sort_unstable();
        let mut first: RawFd = 0;
        for kept in keep {
            // SAFETY: the child owns no descriptor but these.
            unsafe { close_range(first, kept - 1) };
            first = kept + 1;
        }
        // SAFETY: as above.
        unsafe { close_range(first, RawFd::MAX) };
    }

    /// Blocks until the holder has exited; `false` if the lock was taken apart before.
    unsafe fn wait(&self) -> bool {
        let pipe = self.exit_flags == 0;
        loop {
            let mut exit = libc::pollfd {
                fd: self.exit,
                events: self.exit_flags,
                revents: 0,
            };
            // SAFETY: pointers to memory on the stack, and descriptors that are open.
            unsafe {
                libc::poll(&raw mut exit, 1, POLL);
                if libc::faccessat(self.folder, self.file.as_ptr(), libc::F_OK, 0) != 0 {
                    return false;
                }
                // Of a pipe the lock decides, also without a hang-up: if no process had the pipe open when the
                // watch began, because the holder had exited and another process was sweeping its lock,
                // none is reported.
                let exited = if pipe {
                    libc::flock(self.exit, libc::LOCK_SH | libc::LOCK_NB) == 0
                } else {
                    exit.revents != 0
                };
                if exited {
                    return true;
                }
                if exit.revents != 0 {
                    // A process that tests the lock has it for a moment.
                    libc::poll(std::ptr::null_mut(), 0, 1);
                }
            }
        }
    }
}

/// Closes the descriptors from `first` to `last`.
unsafe fn close_range(first: RawFd, last: RawFd) {
    if first > last {
        return;
    }
    // SAFETY: the caller owns none of them.
    unsafe {
        if libc::syscall(libc::SYS_close_range, first, last, 0) == -1 {
            // Before Linux 5.9.
            let mut limit: libc::rlimit = std::mem::zeroed();
            libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit);
            let most = RawFd::try_from(limit.rlim_cur.min(1 << 16)).unwrap_or(1 << 16);
            for fd in first..=last.min(most) {
                libc::close(fd);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;
    use std::time::Duration;

    use tenure_core::Binding;

    use super::*;
    use crate::identity;
    use crate::liveness_lock::{LivenessFolder, LivenessLock, open_to_probe};

    struct Place {
        dir: tempfile::TempDir,
        live: LivenessFolder,
        lock: LivenessLock,
    }

    impl Place {
        fn new() -> Self {
            let dir = tempfile::tempdir().unwrap();
            let live = LivenessFolder::new(dir.path().join("live"));
            let lock = LivenessLock::take(&live).unwrap();
            fs::create_dir(dir.path().join("lock")).unwrap();
            fs::write(dir.path().join("lock/tenure"), "").unwrap();
            fs::set_permissions(dir.path().join("lock"), Permissions::from_mode(0o555)).unwrap();
            Self { dir, live, lock }
        }

        fn helper(&self) -> ExitHelper {
            let binding = Binding::LivenessLock {
                lock: self.lock.id().clone(),
                process: identity::this_process(),
            };
            let exit = ExitWatch::on(&self.live, &binding).unwrap().unwrap();
            let folder = File::open(self.dir.path().join("lock")).unwrap();
            ExitHelper::start(&exit, &folder, "tenure", 0o750).unwrap()
        }
    }

    fn until(holds: impl Fn() -> bool) {
        for _ in 0..3_000 {
            if holds() {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        panic!("timed out");
    }

    fn has_ended(helper: &ExitHelper) -> bool {
        identity::start_time(helper.pid.cast_unsigned())
            .unwrap()
            .is_none()
    }

    #[test]
    fn the_folder_is_writable_after_the_holder_and_only_then() {
        let place = Place::new();
        let helper = place.helper();
        let moved = place.dir.path().join("moved");
        fs::rename(place.dir.path().join("lock"), &moved).unwrap();
        let inherited = place.lock.as_fd().try_clone_to_owned().unwrap();
        let Place {
            dir: _dir, lock, ..
        } = place;
        drop(lock);
        std::thread::sleep(Duration::from_millis(20));
        let mode = || moved.metadata().unwrap().permissions().mode() & 0o7777;
        assert_eq!(mode(), 0o555);
        drop(inherited);
        until(|| mode() == 0o750);
        until(|| has_ended(&helper));
        helper.end();
    }

    #[test]
    fn a_holder_that_had_exited_when_its_lock_was_swept_is_noticed() {
        let place = Place::new();
        // The pipe as a killed holder leaves it: no process has it open.
        let pipe = place.live.file(place.lock.id());
        let kept = place.dir.path().join("kept");
        fs::hard_link(&pipe, &kept).unwrap();
        let Place { dir, live, lock } = place;
        let binding = Binding::LivenessLock {
            lock: lock.id().clone(),
            process: identity::this_process(),
        };
        drop(lock);
        fs::rename(&kept, &pipe).unwrap();
        let sweeper = open_to_probe(&pipe).unwrap();
        sweeper.lock().unwrap();
        let exit = ExitWatch::on(&live, &binding).unwrap().unwrap();
        let folder = File::open(dir.path().join("lock")).unwrap();
        let helper = ExitHelper::start(&exit, &folder, "tenure", 0o750).unwrap();
        drop(sweeper);
        let mode = || folder.metadata().unwrap().permissions().mode() & 0o7777;
        until(|| mode() == 0o750);
        helper.end();
    }

    #[test]
    fn a_signal_to_the_group_or_session_of_the_holder_does_not_reach_the_helper() {
        let place = Place::new();
        let helper = place.helper();
        let stat = fs::read_to_string(format!("/proc/{}/stat", helper.pid)).unwrap();
        let (_, fields) = stat.rsplit_once(')').unwrap();
        let fields: Vec<&str> = fields.split_ascii_whitespace().collect();
        let own = helper.pid.to_string();
        assert_eq!((fields[2], fields[3]), (own.as_str(), own.as_str()));
        helper.end();
    }

    #[test]
    fn the_helper_ends_with_the_lock() {
        let place = Place::new();
        let helper = place.helper();
        let lock = place.dir.path().join("lock");
        fs::set_permissions(&lock, Permissions::from_mode(0o755)).unwrap();
        fs::remove_dir_all(&lock).unwrap();
        until(|| has_ended(&helper));
        helper.end();
        let helper = Place::new().helper();
        helper.end();
    }
}
