//! A descriptor that is ready when the process behind a lease has exited: [`ExitWatch`].
//!
//! For a process with a liveness lock this is its pipe, opened to read: the kernel reports a hang-up when
//! the last process that can write into it exits, and all that have the lock can. For any other process it
//! is a pidfd. So no thread is needed: a waiter or a daemon sleeps on it together with everything else.

use std::fs::TryLockError;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::event::{PollFd, PollFlags};
use tenure_core::{Binding, Process};

use crate::identity;
use crate::liveness_lock::{LivenessFolder, open_to_probe};
use crate::pidfd::open_pidfd;

/// Watches one process, or a process and all that inherited its liveness lock.
#[derive(Debug)]
pub struct ExitWatch {
    fd: OwnedFd,
    /// What to poll for. A hang-up is always reported; bytes in a pipe mean nothing here.
    flags: PollFlags,
}

impl ExitWatch {
    /// Watches the process behind a binding; `None` if it has exited. Fails for a process that can't be
    /// watched from here.
    pub fn on(folder: &LivenessFolder, binding: &Binding) -> io::Result<Option<Self>> {
        match binding {
            Binding::LivenessLock { lock, process } if process.boot.same(identity::boot()) => {
                let pipe = match open_to_probe(&folder.file(lock)) {
                    // A removed pipe does not mean an exit.
                    Err(error) if error.kind() == io::ErrorKind::NotFound => {
                        return Self::on_process(process);
                    }
                    opened => opened?,
                };
                // In this order: if the lock is held now, the pipe has a writer, whose exit is reported.
                match pipe.try_lock_shared() {
                    Ok(()) => Ok(None),
                    Err(TryLockError::WouldBlock) => Ok(Some(Self {
                        fd: pipe.into(),
                        flags: PollFlags::empty(),
                    })),
                    Err(TryLockError::Error(error)) => Err(error),
                }
            }
            Binding::Process { process } => Self::on_process(process),
            _ => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    fn on_process(process: &Process) -> io::Result<Option<Self>> {
        let watch = |fd| Self {
            fd,
            flags: PollFlags::IN,
        };
        Ok(open_pidfd(process)?.map(watch))
    }

    /// What to poll. It is ready once the process has exited.
    pub fn poll_fd(&self) -> PollFd<'_> {
        PollFd::new(&self.fd, self.flags)
    }

    /// What to poll for, if not for a hang-up only.
    pub(crate) fn flags(&self) -> PollFlags {
        self.flags
    }
}

impl AsFd for ExitWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use rustix::event::{Timespec, poll};

    use super::*;
    use crate::bell::ring;
    use crate::liveness_lock::LivenessLock;

    fn has_exited(watch: &ExitWatch) -> bool {
        let now = Timespec {
            tv_sec: 0,
            tv_nsec: 0,
        };
        poll(&mut [watch.poll_fd()], Some(&now)).unwrap() > 0
    }

    #[test]
    fn the_end_of_a_liveness_lock_is_reported_and_its_bell_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let folder = LivenessFolder::new(dir.path());
        let lock = LivenessLock::take(&folder).unwrap();
        let binding = Binding::LivenessLock {
            lock: lock.id().clone(),
            process: identity::this_process(),
        };
        let watch = ExitWatch::on(&folder, &binding).unwrap().unwrap();
        let inherited = lock.as_fd().try_clone_to_owned().unwrap();
        ring(&folder, lock.id());
        assert!(!has_exited(&watch));
        drop(lock);
        assert!(!has_exited(&watch), "another process has inherited it");
        drop(inherited);
        assert!(has_exited(&watch));
    }

    #[test]
    fn a_process_that_has_exited_is_not_watched() {
        let dir = tempfile::tempdir().unwrap();
        let folder = LivenessFolder::new(dir.path());
        let lock = LivenessLock::take(&folder).unwrap();
        let file = folder.file(lock.id());
        let kept = dir.path().join("kept");
        std::fs::hard_link(&file, &kept).unwrap();
        let binding = Binding::LivenessLock {
            lock: lock.id().clone(),
            process: identity::this_process(),
        };
        drop(lock);
        std::fs::rename(&kept, &file).unwrap();
        assert!(ExitWatch::on(&folder, &binding).unwrap().is_none());
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let process = identity::process(child.id()).unwrap().unwrap();
        let binding = Binding::Process { process };
        let watch = ExitWatch::on(&folder, &binding).unwrap().unwrap();
        assert!(!has_exited(&watch));
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(has_exited(&watch));
        assert!(ExitWatch::on(&folder, &binding).unwrap().is_none());
    }
}
