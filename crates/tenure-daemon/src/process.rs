//! A process held fast, whatever becomes of its pid: [`hold_fast`].

use std::io;
use std::os::fd::OwnedFd;

use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tenure::core::Process;
use tenure::host::identity;

/// A descriptor of exactly this process, which becomes readable when it ends; `None` if it has ended.
/// An error if it can't be told, in another container for one.
pub(crate) fn hold_fast(process: &Process) -> io::Result<Option<OwnedFd>> {
    if !process.boot.same(identity::boot()) || process.namespace != identity::namespace() {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let pid = i32::try_from(process.pid).ok().and_then(Pid::from_raw);
    let pid = pid.ok_or(io::ErrorKind::InvalidInput)?;
    let pidfd = match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(pidfd) => pidfd,
        Err(rustix::io::Errno::SRCH) => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    // Only now is the pid pinned: if it changed hands before, its process has ended.
    if identity::start_time(process.pid)? == Some(process.started) {
        Ok(Some(pidfd))
    } else {
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pid_that_changed_hands_is_not_the_process() {
        let us = identity::this_process();
        assert!(hold_fast(&us).unwrap().is_some());
        let earlier = Process {
            started: us.started - 1,
            ..us.clone()
        };
        assert!(hold_fast(&earlier).unwrap().is_none());
        let elsewhere = Process {
            namespace: "pid:[1]".into(),
            ..us
        };
        assert!(hold_fast(&elsewhere).is_err());
    }
}
