//! A helper process that clears up a lock after its holder has exited: [`ExitHelper`].
//!
//! Other programs can't tell that the holder of a lock of tenure's is dead, or can't remove its lock: a lock
//! folder is read-only while its holder runs. A holder that is killed with SIGKILL can't clear up itself, and
//! no signal or timer of the kernel does. So a small process waits for the holder's exit and does it then
//! ([`Duty`]). It is a fork of the holder without its descriptors, in a session of its own: a signal to the
//! holder's process group or session does not reach it.
//!
//! # Invariants
//!
//! 1. Nothing is changed before the holder and every process that inherited its liveness lock have exited.
//! 2. Another lock is never changed, whatever has the path by then. A folder is changed through a descriptor
//!    that was opened before the lock got its path. A file is removed under the step lock and only if it has the
//!    content of the holder's lock, as in [`crate::files::takeover`].
//! 3. The helper holds no liveness lock and no descriptor of the holder but its own.
//! 4. It has left the holder's process group before [`ExitHelper::start`] returns, and so before the lock
//!    gets its path.
//! 5. It ends when the holder ends it ([`ExitHelper::end`]), or soon after the lock of a process that does not
//!    use tenure is gone. (It polls for that. Inotify is no choice here: the kernel needs about ten milliseconds
//!    to close its descriptor, at every release.)
//!
//! If the helper itself is killed, the lock stays as it is until a tenure process removes it.
#![expect(
    unsafe_code,
    reason = "a process without exec is made with clone, and may only make system calls"
)]

use std::ffi::{CStr, CString};
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

/// How long a lock file stays after its holder has exited, in milliseconds: a waiter of tenure's takes it over
/// without ever leaving its path free.
const WAITERS_FIRST: libc::c_int = 200;

/// The name of the step lock in the sidecar folder.
const STEP_LOCK: &CStr = c"guard";

/// The name in the sidecar folder under which a lock file is removed.
const GONE: &CStr = c"gone";

/// What to do once the holder has exited.
#[derive(Debug, Clone, Copy)]
pub enum Duty<'a> {
    /// Give a lock folder this mode, so that other programs can remove it.
    MakeWritable {
        /// The lock folder.
        folder: &'a File,
        /// A name in it. The helper ends early once it is gone.
        file: &'a str,
        /// The mode.
        mode: u32,
    },
    /// Remove a lock file.
    Remove {
        /// The folder that it is in.
        folder: &'a File,
        /// Its name.
        file: &'a str,
        /// Its content.
        content: &'a [u8],
        /// The sidecar folder.
        sidecar: &'a File,
    },
}

/// A running helper. Dropping this leaves it running.
#[derive(Debug)]
pub struct ExitHelper {
    pid: libc::pid_t,
    pidfd: OwnedFd,
}

impl ExitHelper {
    /// Starts a process that does its duty once `exit` is reported.
    pub fn start(exit: &ExitWatch, duty: Duty<'_>) -> io::Result<Self> {
        let (folder, file) = match duty {
            Duty::MakeWritable { folder, file, .. } | Duty::Remove { folder, file, .. } => {
                (folder, CString::new(file)?)
            }
        };
        let waits = HelperWait {
            exit: exit.as_fd().as_raw_fd(),
            exit_flags: exit.flags().bits().cast_signed(),
            folder: folder.as_raw_fd(),
            file: &file,
            duty,
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

/// What the helper waits for and does. Its methods run in the child, so they make system calls and nothing else.
struct HelperWait<'a> {
    exit: RawFd,
    exit_flags: libc::c_short,
    folder: RawFd,
    file: &'a CStr,
    duty: Duty<'a>,
}

impl HelperWait<'_> {
    fn run(&self) -> ! {
        // SAFETY: system calls on descriptors and memory that this process has a copy of.
        unsafe {
            libc::setsid();
            self.close_others();
            libc::chdir(c"/".as_ptr());
            libc::prctl(libc::PR_SET_NAME, c"tenure-helper".as_ptr());
            if self.wait() {
                match self.duty {
                    Duty::MakeWritable { mode, .. } => {
                        libc::fchmod(self.folder, mode);
                    }
                    Duty::Remove {
                        content, sidecar, ..
                    } => self.remove(content, sidecar.as_raw_fd()),
                }
            }
            libc::_exit(0)
        }
    }

    /// Closes every descriptor but its own (invariant 3).
    unsafe fn close_others(&self) {
        let third = match self.duty {
            Duty::MakeWritable { .. } => self.folder,
            Duty::Remove { sidecar, .. } => sidecar.as_raw_fd(),
        };
        let mut keep = [self.exit, self.folder, third];
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

    /// Blocks until the holder has exited; `false` if the lock is gone before.
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
                let is_there = match self.duty {
                    Duty::MakeWritable { .. } => {
                        libc::faccessat(self.folder, self.file.as_ptr(), libc::F_OK, 0) == 0
                    }
                    // A holder that uses tenure puts its lock back, and ends the helper with its lease.
                    Duty::Remove { content, .. } => pipe || has(self.folder, self.file, content),
                };
                if !is_there {
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

    /// Removes the lock file if it is still the holder's. Killed in between, it leaves at most a file in the
    /// sidecar folder.
    unsafe fn remove(&self, content: &[u8], sidecar: RawFd) {
        let (folder, file) = (self.folder, self.file.as_ptr());
        // SAFETY: descriptors that are open, and names that end with a NUL.
        unsafe {
            libc::flock(self.exit, libc::LOCK_UN);
            libc::poll(std::ptr::null_mut(), 0, WAITERS_FIRST);
            if !has(folder, self.file, content) || !take_step_lock(sidecar) {
                return;
            }
            // Another program may replace it at any time. What is moved is therefore compared once more.
            if !has(folder, self.file, content)
                || libc::renameat(folder, file, sidecar, GONE.as_ptr()) != 0
            {
                return;
            }
            if !has(sidecar, GONE, content) {
                libc::linkat(sidecar, GONE.as_ptr(), folder, file, 0);
            }
            libc::unlinkat(sidecar, GONE.as_ptr(), 0);
        }
    }
}

/// Takes the step lock until this process exits; `false` if there is none.
unsafe fn take_step_lock(sidecar: RawFd) -> bool {
    loop {
        let flags = libc::O_RDWR | libc::O_CLOEXEC | libc::O_NOFOLLOW | libc::O_NONBLOCK;
        // SAFETY: descriptors that are open, and pointers to memory on the stack.
        unsafe {
            let lock = libc::openat(sidecar, STEP_LOCK.as_ptr(), flags);
            if lock < 0 || libc::flock(lock, libc::LOCK_EX) != 0 {
                return false;
            }
            let (mut open, mut there) = (std::mem::zeroed::<libc::stat>(), std::mem::zeroed());
            let known = libc::fstat(lock, &raw mut open) == 0
                && libc::fstatat(
                    sidecar,
                    STEP_LOCK.as_ptr(),
                    &raw mut there,
                    libc::AT_SYMLINK_NOFOLLOW,
                ) == 0;
            if !known {
                return false;
            }
            // As in `FileLock`: a lock whose file was removed excludes no process.
            if (open.st_dev, open.st_ino) == (there.st_dev, there.st_ino) {
                return true;
            }
            libc::close(lock);
        }
    }
}

/// Whether a file has exactly this content.
unsafe fn has(folder: RawFd, file: &CStr, content: &[u8]) -> bool {
    let flags = libc::O_RDONLY | libc::O_CLOEXEC | libc::O_NOFOLLOW | libc::O_NONBLOCK;
    let mut buffer = [0_u8; 512];
    let mut rest = content;
    // SAFETY: descriptors that are open, and pointers to memory on the stack.
    unsafe {
        let open = libc::openat(folder, file.as_ptr(), flags);
        if open < 0 {
            return false;
        }
        let same = loop {
            let read = libc::read(open, buffer.as_mut_ptr().cast(), buffer.len());
            let read = usize::try_from(read)
                .ok()
                .and_then(|read| buffer.get(..read));
            match read {
                Some([]) => break rest.is_empty(),
                Some(read) => match rest.strip_prefix(read) {
                    Some(after) => rest = after,
                    None => break false,
                },
                None => break false,
            }
        };
        libc::close(open);
        same
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
            ExitHelper::start(&exit, writable(&folder)).unwrap()
        }
    }

    fn writable(folder: &File) -> Duty<'_> {
        Duty::MakeWritable {
            folder,
            file: "tenure",
            mode: 0o750,
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
        let helper = ExitHelper::start(&exit, writable(&folder)).unwrap();
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

    /// A lock file, its sidecar, and a helper that is to remove it.
    fn remover(place: &Place, content: &[u8]) -> ExitHelper {
        let dir = place.dir.path();
        fs::write(dir.join("file"), content).unwrap();
        fs::write(dir.join("live/guard"), "").unwrap();
        let binding = Binding::LivenessLock {
            lock: place.lock.id().clone(),
            process: identity::this_process(),
        };
        let exit = ExitWatch::on(&place.live, &binding).unwrap().unwrap();
        let duty = Duty::Remove {
            folder: &File::open(dir).unwrap(),
            file: "file",
            content,
            sidecar: &File::open(dir.join("live")).unwrap(),
        };
        ExitHelper::start(&exit, duty).unwrap()
    }

    #[test]
    fn a_lock_file_goes_with_its_holder_and_not_before() {
        for content in [vec![b'x'; 10], vec![b'x'; 512], vec![b'x'; 3_000]] {
            let place = Place::new();
            let helper = remover(&place, &content);
            assert!(place.dir.path().join("file").exists());
            let Place { dir, lock, .. } = place;
            drop(lock);
            until(|| has_ended(&helper));
            assert!(!dir.path().join("file").exists());
            assert!(!dir.path().join("live/gone").exists());
            helper.end();
        }
    }

    #[test]
    fn a_lock_file_of_another_holder_stays_also_one_that_appears_while_the_helper_waits() {
        let place = Place::new();
        let helper = remover(&place, b"ours");
        let Place { dir, lock, .. } = place;
        let step = File::options()
            .write(true)
            .open(dir.path().join("live/guard"))
            .unwrap();
        step.lock().unwrap();
        drop(lock);
        // It waits for the step lock, in which another process takes the lock over.
        until(|| {
            let waits = fs::read_to_string(format!("/proc/{}/syscall", helper.pid)).unwrap();
            waits.starts_with(&format!("{} ", libc::SYS_flock))
        });
        for same_length in ["theirs", "OURS"] {
            fs::write(dir.path().join("new"), same_length).unwrap();
            fs::rename(dir.path().join("new"), dir.path().join("file")).unwrap();
        }
        drop(step);
        until(|| has_ended(&helper));
        assert_eq!(fs::read(dir.path().join("file")).unwrap(), b"OURS");
        helper.end();
    }
}
