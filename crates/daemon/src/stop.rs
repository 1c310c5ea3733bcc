//! Stopping a daemon from another process: [`request_stop`].

use std::io;
use std::os::fd::OwnedFd;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Signal, pidfd_send_signal};
use tenure_core::Process;
use tenure_host::pidfd::open_pidfd;

/// A daemon that was asked to stop and may still be running.
#[derive(Debug)]
#[must_use]
pub struct StoppingDaemon(OwnedFd);

/// Sends SIGTERM to this exact process, never to another one that reuses its pid. `None` if the process
/// has ended.
pub fn request_stop(process: &Process) -> io::Result<Option<StoppingDaemon>> {
    let Some(pidfd) = open_pidfd(process)? else {
        return Ok(None);
    };
    match pidfd_send_signal(&pidfd, Signal::TERM) {
        Ok(()) => Ok(Some(StoppingDaemon(pidfd))),
        Err(rustix::io::Errno::SRCH) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

impl StoppingDaemon {
    /// Waits at most `limit` for the process to end, and tells whether it has. May return early.
    pub fn wait(&self, limit: Duration) -> io::Result<bool> {
        await_end(&self.0, limit)
    }
}

/// Waits at most `limit` for a process to end, and tells whether it has. May return early.
pub(crate) fn await_end(process: &OwnedFd, limit: Duration) -> io::Result<bool> {
    let timeout = Timespec::try_from(limit).map_err(|_| io::ErrorKind::InvalidInput)?;
    match poll(&mut [PollFd::new(process, PollFlags::IN)], Some(&timeout)) {
        Ok(ready) => Ok(ready > 0),
        Err(rustix::io::Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
