//! The process that called this one: [`calling_process`].
//!
//! A process whose parent exits is adopted by another process: pid 1 of its container, or a nearer ancestor
//! that asked for orphans (`PR_SET_CHILD_SUBREAPER`, as `systemd --user` does). From then on its parent is
//! not its caller, and the kernel does not record which of the two a parent is. Another process can't be
//! asked whether it adopts orphans either. So this module finds out: it makes an orphan and looks which
//! process adopts it. A parent that adopts orphans may be a caller or not, so it is not taken for one.
#![expect(
    unsafe_code,
    reason = "an orphan is made with two forks, which have no safe form"
)]

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::AsRawFd;

use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{Pid, WaitOptions, getppid, waitpid};

/// What is known about the process that called this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Caller {
    /// It runs, and has this pid.
    Running(u32),
    /// The parent is this process, which adopts orphans: the caller may have exited.
    Adopted(u32),
    /// The caller is outside of this container, where its pid means nothing.
    OutsideContainer,
}

/// The process that called this one.
pub fn calling_process() -> io::Result<Caller> {
    let Some(parent) = parent() else {
        return Ok(Caller::OutsideContainer);
    };
    if parent == 1 || parent == adopter_of_orphans()? {
        return Ok(Caller::Adopted(parent));
    }
    // It exited in the meantime.
    Ok(match self::parent() {
        Some(still) if still == parent => Caller::Running(parent),
        now => Caller::Adopted(now.unwrap_or(1)),
    })
}

/// The pid of the parent; `None` if it is outside of this pid namespace.
pub fn parent() -> Option<u32> {
    u32::try_from(getppid()?.as_raw_nonzero().get()).ok()
}

/// The process that adopts the orphans of this one.
fn adopter_of_orphans() -> io::Result<u32> {
    let (read_end, write_end) = pipe_with(PipeFlags::CLOEXEC)?;
    let report = write_end.as_raw_fd();
    // SAFETY: the child only makes system calls that are safe after a fork.
    let middle = match unsafe { libc::fork() } {
        -1 => return Err(io::Error::last_os_error()),
        0 => make_orphan(report),
        middle => Pid::from_raw(middle),
    };
    drop(write_end);
    let mut adopter = [0; 4];
    let reported = File::from(read_end).read_exact(&mut adopter);
    while let Err(rustix::io::Errno::INTR) = waitpid(middle, WaitOptions::empty()) {}
    reported?;
    u32::try_from(i32::from_ne_bytes(adopter)).map_err(io::Error::other)
}

/// In the child: starts a process, and exits before it. That process reports its new parent.
fn make_orphan(report: libc::c_int) -> ! {
    // SAFETY: system calls only, all of them safe after a fork.
    unsafe {
        let middle = libc::getpid();
        if libc::fork() == 0 {
            while libc::getppid() == middle {
                libc::sched_yield();
            }
            let adopter = libc::getppid().to_ne_bytes();
            libc::write(report, adopter.as_ptr().cast(), adopter.len());
        }
        libc::_exit(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_that_adopts_orphans_is_an_ancestor() {
        let adopter = adopter_of_orphans().unwrap();
        assert_ne!(adopter, std::process::id());
        let mut ancestor = std::process::id();
        while ancestor != adopter {
            let stat = std::fs::read_to_string(format!("/proc/{ancestor}/stat")).unwrap();
            let (_, rest) = stat.rsplit_once(')').unwrap();
            ancestor = rest
                .split_ascii_whitespace()
                .nth(1)
                .unwrap()
                .parse()
                .unwrap();
            assert_ne!(ancestor, 0, "{adopter} is no ancestor");
        }
    }
}
