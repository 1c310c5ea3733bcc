//! A command that does not outlive this process: [`Tied`].
//!
//! A process that is killed with SIGKILL can't clean up, and its command must not run on beside the next
//! holder. Three mechanisms of the kernel prevent that:
//!
//! 1. The command leads a process group of its own and has a parent-death signal.
//! 2. The *kill pipe* kills the rest of the group. The group inherits its read end, which is set to send
//!    the same signal to the group (`F_SETOWN`, `F_SETSIG`, `O_ASYNC`) when the write end closes. Only this
//!    process has the write end, so the kernel closes it when this process dies.
//! 3. The command and every process it starts inherit this process's
//!    [`LivenessLock`](crate::LivenessLock). A process that escapes the first two, because it left the
//!    group, keeps the lease until it exits.
//!
//! All three are set up between fork and exec, so the command never runs without them. The last step before exec looks
//! at the clock: a command is not started under a lease that can't be trusted any more (G7), however long this process
//! was held up on the way.
#![expect(
    unsafe_code,
    reason = "fcntl's signal-driven I/O and work between fork and exec have no safe form"
)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};
use std::time::Duration;

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    Pid, Signal, getpid, getppid, kill_process_group, set_parent_process_death_signal, setpgid,
};
use rustix::termios::tcsetpgrp;

use crate::clock::BootTime;
use crate::signal::without_stopping;
use crate::vfork::Exec;

/// `O_ASYNC`, in the type of rustix's flags.
const ASYNC: u32 = libc::O_ASYNC.cast_unsigned();

/// `F_SETSIG` of Linux, which the libc crate does not name on every target.
const F_SETSIG: libc::c_int = 10;

/// A command that is killed when this process dies.
#[derive(Debug)]
pub struct Tied {
    /// The command's first process, which leads the group.
    group: Option<Pid>,
    /// The read end of the kill pipe, which the group shares.
    kill_pipe: OwnedFd,
    /// The write end. Closing it kills the group, unless [`Tied::untie`] has disarmed the pipe.
    _kill_on_close: OwnedFd,
}

/// The same, with the pipes that the standard library made for it.
#[derive(Debug)]
pub struct TiedChild {
    /// The command.
    pub tied: Tied,
    /// Its first process.
    pub child: Child,
}

/// What happens in the child, between fork and exec.
struct SetUp {
    kill_pipe: (OwnedFd, OwnedFd),
    inherited: [Option<RawFd>; 2],
    terminal: Option<RawFd>,
    parent: Pid,
    end: Signal,
    start_by: Option<BootTime>,
}

impl SetUp {
    fn new(
        inherited: [Option<BorrowedFd<'_>>; 2],
        terminal: Option<BorrowedFd<'_>>,
        end: Signal,
        start_by: Option<Duration>,
    ) -> io::Result<Self> {
        Ok(Self {
            kill_pipe: pipe_with(PipeFlags::CLOEXEC)?,
            inherited: inherited.map(|fd| fd.map(|fd| fd.as_raw_fd())),
            terminal: terminal.map(|fd| fd.as_raw_fd()),
            parent: getpid(),
            end,
            start_by: start_by.map(BootTime::at),
        })
    }

    /// The steps, each a system call that is safe between fork and exec, also in a child that shares memory
    /// with this process.
    fn steps(&self) -> impl Fn() -> io::Result<()> + Send + Sync + use<> {
        let read_end = self.kill_pipe.0.as_raw_fd();
        let [first, second] = self.inherited;
        let inherited = [Some(read_end), first, second];
        let (terminal, parent, end) = (self.terminal, self.parent, self.end);
        let start_by = self.start_by;
        move || {
            for fd in inherited.into_iter().flatten() {
                // SAFETY: open in the child, which has a copy of this process's descriptors.
                let_inherit(unsafe { BorrowedFd::borrow_raw(fd) })?;
            }
            setpgid(None, None)?;
            set_parent_process_death_signal(Some(end))?;
            arm_kill_pipe(read_end, end)?;
            if let Some(terminal) = terminal {
                // SAFETY: as above.
                let terminal = unsafe { BorrowedFd::borrow_raw(terminal) };
                without_stopping(|| {
                    let _ = tcsetpgrp(terminal, getpid());
                });
            }
            // The parent died before the signal was armed.
            if getppid() != Some(parent) {
                return Err(io::ErrorKind::BrokenPipe.into());
            }
            if start_by.is_some_and(BootTime::has_passed) {
                return Err(io::Error::from_raw_os_error(libc::ETIME));
            }
            Ok(())
        }
    }

    fn tied(self, group: Option<Pid>) -> Tied {
        let (kill_pipe, kill_on_close) = self.kill_pipe;
        Tied {
            group,
            kill_pipe,
            _kill_on_close: kill_on_close,
        }
    }
}

impl Tied {
    /// Starts a command, which inherits `inherited_fd` and becomes the foreground group of `terminal`. Call it
    /// from a thread that runs as long as the command should: the kernel sends the parent-death signal
    /// when that thread ends. It fails if the command can't be started before `start_by`, which is counted
    /// [since boot](crate::clock::since_boot).
    pub fn spawn(
        command: &mut Command,
        inherited_fd: Option<BorrowedFd<'_>>,
        terminal: Option<BorrowedFd<'_>>,
        start_by: Option<Duration>,
    ) -> io::Result<Self> {
        let set_up = SetUp::new([inherited_fd, None], terminal, Signal::KILL, start_by)?;
        Ok(fork(command, set_up)?.tied)
    }

    /// The same for a program that inherits standard input, output and error: this process is not copied for it.
    pub fn exec(
        program: &Exec,
        inherited_fds: [Option<BorrowedFd<'_>>; 2],
        terminal: Option<BorrowedFd<'_>>,
        start_by: Option<Duration>,
    ) -> io::Result<Self> {
        let set_up = SetUp::new(inherited_fds, terminal, Signal::KILL, start_by)?;
        // SAFETY: the steps only make system calls.
        let pid = unsafe { program.start(&set_up.steps()) }?;
        Ok(set_up.tied(Some(pid)))
    }

    /// Starts a command that gets SIGTERM when this process dies, for one that has to clean up: git
    /// removes its lock files.
    pub fn spawn_to_terminate(command: &mut Command) -> io::Result<TiedChild> {
        fork(command, SetUp::new([None, None], None, Signal::TERM, None)?)
    }

    /// The command's process group.
    pub fn group(&self) -> Option<Pid> {
        self.group
    }

    /// Sends a signal to the whole group. It is no error if the group is empty.
    pub fn signal(&self, signal: Signal) {
        if let Some(group) = self.group() {
            let _ = kill_process_group(group, signal);
        }
    }

    /// Disarms the kill pipe, so that background processes of the command survive this process. For a
    /// command that ended normally.
    pub fn untie(self) {
        let without = |flags| flags - OFlags::from_bits_retain(ASYNC);
        let _ = fcntl_getfl(&self.kill_pipe)
            .and_then(|flags| fcntl_setfl(&self.kill_pipe, without(flags)));
    }
}

fn fork(command: &mut Command, set_up: SetUp) -> io::Result<TiedChild> {
    // SAFETY: the steps only make system calls.
    unsafe { command.pre_exec(set_up.steps()) };
    let child = command.spawn()?;
    let group = i32::try_from(child.id()).ok().and_then(Pid::from_raw);
    Ok(TiedChild {
        tied: set_up.tied(group),
        child,
    })
}

/// The lowest number of an inherited descriptor. Scripts use low numbers themselves (`exec 9> lock`), which
/// would close ours.
const FIRST_INHERITED: i32 = 100;

/// Lets the command inherit a descriptor, under a number that it is unlikely to use itself.
fn let_inherit(fd: BorrowedFd<'_>) -> io::Result<()> {
    match fcntl_dupfd_cloexec(fd, FIRST_INHERITED) {
        Ok(high) => {
            fcntl_setfd(&high, FdFlags::empty())?;
            // Dropping it would close it before the command starts.
            std::mem::forget(high);
            Ok(())
        }
        // The limit on open files is too low for that number: a low number is better than none.
        Err(_) => Ok(fcntl_setfd(fd, FdFlags::empty())?),
    }
}

/// Arms the kill pipe, from inside the new process group.
fn arm_kill_pipe(read_end: libc::c_int, end: Signal) -> io::Result<()> {
    let group = getpid().as_raw_nonzero().get();
    // SAFETY: plain fcntl calls on a descriptor that is open.
    let armed = unsafe {
        libc::fcntl(read_end, libc::F_SETOWN, -group) != -1
            && libc::fcntl(read_end, F_SETSIG, end.as_raw()) != -1
            && libc::fcntl(read_end, libc::F_SETFL, libc::O_ASYNC | libc::O_NONBLOCK) != -1
    };
    if armed {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;
    use std::path::Path;

    use rustix::process::{WaitOptions, waitpid};

    use super::*;
    use crate::clock::since_boot;

    #[test]
    fn a_command_that_comes_too_late_is_not_started() {
        let dir = tempfile::tempdir().unwrap();
        let witness = dir.path().join("ran");
        let arguments = [OsStr::new("touch"), witness.as_os_str()];
        let exec = Exec::new(Path::new("touch"), arguments, &[]).unwrap();
        let mut command = Command::new("touch");
        command.arg(&witness);
        let now = Some(since_boot());
        for late in [
            Tied::exec(&exec, [None, None], None, now),
            Tied::spawn(&mut command, None, None, now),
        ] {
            assert_eq!(late.unwrap_err().raw_os_error(), Some(libc::ETIME));
        }
        assert!(!witness.exists());
        let later = now.map(|now| now + Duration::from_secs(600));
        let tied = Tied::exec(&exec, [None, None], None, later).unwrap();
        waitpid(tied.group(), WaitOptions::empty()).unwrap();
        assert!(witness.exists());
    }
}
