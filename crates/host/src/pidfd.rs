//! A descriptor for one exact process, which stays valid when its pid is reused: [`open_pidfd`].
//! Also whether that process is about to end: [`is_being_killed`].

use std::io;
use std::os::fd::OwnedFd;

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open};
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

/// Whether SIGKILL was sent to this process, and it has not ended yet: it keeps what it has locked for a moment, and
/// never runs its own code again. Where that can't be seen, it counts as not killed.
pub fn is_being_killed(process: &Process) -> bool {
    // Pending signals of the whole process stay on record until it is reaped.
    let Ok(status) = std::fs::read_to_string(format!("/proc/{}/status", process.pid)) else {
        return false;
    };
    let pending = status.lines().filter_map(|line| {
        let (name, set) = line.split_once(':')?;
        matches!(name, "SigPnd" | "ShdPnd").then_some(set.trim())
    });
    let kill = 1 << (Signal::KILL.as_raw() - 1);
    pending
        .filter_map(|set| u64::from_str_radix(set, 16).ok())
        .any(|set| set & kill != 0)
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
