//! A descriptor for one exact process, which stays valid when its pid is reused: [`open_pidfd`].

use std::io;
use std::os::fd::OwnedFd;

use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tenure_core::Process;

use crate::identity;

/// Opens a descriptor for this process, which becomes readable when the process ends. `None` if it has
/// ended already. Fails with [`io::ErrorKind::Unsupported`] for a process of another boot or container,
/// whose pid means something else here.
pub fn open_pidfd(process: &Process) -> io::Result<Option<OwnedFd>> {
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
    // The start time is compared after the pid is pinned: a pid that was reused earlier shows here.
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
    fn a_pidfd_is_opened_only_for_the_process_with_that_start_time() {
        let us = identity::this_process();
        assert!(open_pidfd(&us).unwrap().is_some());
        let earlier = Process {
            started: us.started - 1,
            ..us.clone()
        };
        assert!(open_pidfd(&earlier).unwrap().is_none());
        let elsewhere = Process {
            namespace: "pid:[1]".into(),
            ..us
        };
        assert!(open_pidfd(&elsewhere).is_err());
    }
}
