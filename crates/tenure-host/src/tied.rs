//! A command that does not outlive us: [`Tied`].
//!
//! If this process is killed with SIGKILL it can't clean up, and its command must not go on alone
//! beside the next holder. Three things the kernel does by itself see to that:
//!
//! 1. The command leads a process group of its own and has a parent-death signal.
//! 2. All of the group is killed when we die, not only its leader: the group holds the read end
//!    of a pipe that is set to send SIGKILL to the group (`F_SETOWN`, `F_SETSIG`, `O_ASYNC`) when
//!    its other end closes, and only we have that end.
//! 3. The command and all that it starts inherit our [`crate::Life`], so whatever escapes the first two
//!    (a process that left the group) still keeps the lease until it is gone.
//!
//! All three are armed between fork and exec, so there is no moment at which the command runs
//! without them.
#![expect(
    unsafe_code,
    reason = "fcntl's signal-driven I/O and work between fork and exec have no safe form"
)]

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{Child, Command};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{
    Pid, Signal, getpid, getppid, kill_process_group, set_parent_process_death_signal, setpgid,
};
use rustix::termios::tcsetpgrp;

use crate::signal::without_stopping;

/// `O_ASYNC`, as rustix counts flags.
const ASYNC: u32 = libc::O_ASYNC.cast_unsigned();

/// `F_SETSIG` of Linux, which the libc crate does not name on every target.
const F_SETSIG: libc::c_int = 10;

/// A command that ends with us.
#[derive(Debug)]
pub struct Tied {
    /// The command's first process.
    pub child: Child,
    /// The read end of the pipe that kills the group; the group shares it.
    fuse: OwnedFd,
    /// The write end. Closing it kills the group unless the fuse was taken out.
    _hand: OwnedFd,
}

impl Tied {
    /// Starts a command, which inherits `inherited_fd` and is lent `terminal` before it runs. Call it
    /// from a thread that lives as long as the command should: the parent-death signal comes when
    /// that thread ends.
    pub fn spawn(
        command: &mut Command,
        inherited_fd: Option<BorrowedFd<'_>>,
        terminal: Option<BorrowedFd<'_>>,
    ) -> io::Result<Self> {
        let (fuse, hand) = pipe_with(PipeFlags::CLOEXEC)?;
        let lit = fuse.as_raw_fd();
        let inherited = [Some(lit), inherited_fd.map(|fd| fd.as_raw_fd())];
        let terminal = terminal.map(|fd| fd.as_raw_fd());
        let parent = getpid();
        // SAFETY: the closure only makes system calls that are safe between fork and exec, and
        // the descriptors it borrows are open in the child, which is a copy of us.
        unsafe {
            command.pre_exec(move || {
                for fd in inherited.into_iter().flatten() {
                    hand_down(BorrowedFd::borrow_raw(fd))?;
                }
                setpgid(None, None)?;
                set_parent_process_death_signal(Some(Signal::KILL))?;
                light(lit)?;
                if let Some(terminal) = terminal {
                    let terminal = BorrowedFd::borrow_raw(terminal);
                    without_stopping(|| {
                        let _ = tcsetpgrp(terminal, getpid());
                    });
                }
                // We died before the signal was armed.
                if getppid() != Some(parent) {
                    return Err(io::ErrorKind::BrokenPipe.into());
                }
                Ok(())
            });
        }
        let child = command.spawn()?;
        Ok(Self {
            child,
            fuse,
            _hand: hand,
        })
    }

    /// The command's process group.
    pub fn group(&self) -> Option<Pid> {
        i32::try_from(self.child.id()).ok().and_then(Pid::from_raw)
    }

    /// Sends a signal to all of the group. That nobody is left is no error.
    pub fn signal(&self, signal: Signal) {
        if let Some(group) = self.group() {
            let _ = kill_process_group(group, signal);
        }
    }

    /// Lets what the command left in the background live on: for an end that is not a crash.
    pub fn untie(self) {
        let without = |flags| flags - OFlags::from_bits_retain(ASYNC);
        let _ = fcntl_getfl(&self.fuse).and_then(|flags| fcntl_setfl(&self.fuse, without(flags)));
    }
}

/// Where inherited descriptors begin: scripts take the low numbers for themselves (`exec 9> lock`),
/// which would close ours.
const OUT_OF_THE_WAY: i32 = 100;

/// Lets the command inherit a descriptor, under a number that it will not take for itself.
fn hand_down(fd: BorrowedFd<'_>) -> io::Result<()> {
    match fcntl_dupfd_cloexec(fd, OUT_OF_THE_WAY) {
        Ok(high) => {
            fcntl_setfd(&high, FdFlags::empty())?;
            // It stays open for the command.
            std::mem::forget(high);
            Ok(())
        }
        // No such number to be had: better a low one than none.
        Err(_) => Ok(fcntl_setfd(fd, FdFlags::empty())?),
    }
}

/// Arms the fuse, from inside the new process group.
fn light(fuse: libc::c_int) -> io::Result<()> {
    let group = getpid().as_raw_nonzero().get();
    // SAFETY: plain fcntl calls on a descriptor that is open.
    let armed = unsafe {
        libc::fcntl(fuse, libc::F_SETOWN, -group) != -1
            && libc::fcntl(fuse, F_SETSIG, libc::SIGKILL) != -1
            && libc::fcntl(fuse, libc::F_SETFL, libc::O_ASYNC | libc::O_NONBLOCK) != -1
    };
    if armed {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
