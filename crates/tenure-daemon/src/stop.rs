//! Ending exactly that process: [`tell`].

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal, pidfd_send_signal};
use tenure::core::Process;

use crate::process::hold_fast;

/// A daemon that was told to stop.
#[derive(Debug)]
pub struct Told(OwnedFd);

/// Tells a daemon to stop: this very process, never another that has its pid. `None` if it has ended.
pub fn tell(process: &Process) -> io::Result<Option<Told>> {
    let Some(pidfd) = hold_fast(process)? else {
        return Ok(None);
    };
    match pidfd_send_signal(&pidfd, Signal::TERM) {
        Ok(()) => Ok(Some(Told(pidfd))),
        Err(rustix::io::Errno::SRCH) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

impl Told {
    /// Waits for its end, at most this long; whether it has ended.
    pub fn wait(&self, limit: Duration) -> io::Result<bool> {
        let timeout = Timespec::try_from(limit).map_err(|_| io::ErrorKind::InvalidInput)?;
        match poll(&mut [PollFd::new(&self.0, PollFlags::IN)], Some(&timeout)) {
            Ok(ready) => Ok(ready > 0),
            // Whoever waits looks again.
            Err(rustix::io::Errno::INTR) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }
}
