//! Calls a function when another process exits: [`Watches`].
//!
//! The kernel reports an exit only to a thread that blocks, on the process's liveness lock or on its
//! pidfd. There is one small thread for each watched process, however many waits ask for it. The thread
//! ends when the process does.

use std::collections::HashSet;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::event::{PollFd, PollFlags, poll};
use tenure_core::{Binding, LivenessId, Process};

use crate::identity;
use crate::liveness_lock::{LivenessFolder, open_to_probe};
use crate::pidfd::open_pidfd;

/// The stack of a watching thread: it makes one system call.
const STACK: usize = 64 * 1024;

/// What a thread watches.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Subject {
    LivenessLock(LivenessId),
    Pid(u32, u64),
}

/// The processes that are being watched.
#[derive(Debug, Default)]
pub struct Watches(Arc<Mutex<HashSet<Subject>>>);

impl Watches {
    /// Calls `ended` from another thread once the process behind `binding` has exited. A process that
    /// can't be watched is not reported, so the caller must also poll.
    pub fn add(
        &self,
        folder: &LivenessFolder,
        binding: &Binding,
        ended: impl FnOnce() + Send + 'static,
    ) {
        let subject = match binding {
            Binding::LivenessLock { lock, process } if process.boot.same(identity::boot()) => {
                Subject::LivenessLock(lock.clone())
            }
            Binding::Process { process } => Subject::Pid(process.pid, process.started),
            _ => return,
        };
        if !self
            .0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .insert(subject.clone())
        {
            return;
        }
        let watched = Arc::clone(&self.0);
        let block_until_exit = blocker(folder, binding);
        let watch = move || {
            let exited = block_until_exit();
            watched
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .remove(&subject);
            if exited.is_ok() {
                ended();
            }
        };
        // If no thread can be started, the caller finds out when it polls.
        let _ = std::thread::Builder::new()
            .name("watch".into())
            .stack_size(STACK)
            .spawn(watch);
    }
}

/// A function that blocks until the process has exited.
fn blocker(
    folder: &LivenessFolder,
    binding: &Binding,
) -> Box<dyn FnOnce() -> io::Result<()> + Send> {
    match binding.clone() {
        Binding::LivenessLock { lock, process } => {
            let path = folder.file(&lock);
            Box::new(move || match open_to_probe(&path) {
                Ok(file) => file.lock_shared(),
                // A removed file does not mean an exit, so wait for the process itself.
                Err(error) if error.kind() == io::ErrorKind::NotFound => wait_for_exit(&process),
                Err(error) => Err(error),
            })
        }
        Binding::Process { process } => Box::new(move || wait_for_exit(&process)),
        _ => Box::new(|| Err(io::ErrorKind::Unsupported.into())),
    }
}

fn wait_for_exit(process: &Process) -> io::Result<()> {
    let Some(pidfd) = open_pidfd(process)? else {
        return Ok(());
    };
    loop {
        match poll(&mut [PollFd::new(&pidfd, PollFlags::IN)], None) {
            Ok(_) => return Ok(()),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::liveness_lock::LivenessLock;
    use std::sync::mpsc;
    use std::time::Duration;

    #[test]
    fn a_released_liveness_lock_is_reported_once() {
        let dir = tempfile::tempdir().unwrap();
        let folder = LivenessFolder::new(dir.path());
        let lock = LivenessLock::take(&folder).unwrap();
        let binding = Binding::LivenessLock {
            lock: lock.id().clone(),
            process: identity::this_process(),
        };
        let watches = Watches::default();
        let (report, reported) = mpsc::channel();
        for _ in 0..3 {
            let report = report.clone();
            watches.add(&folder, &binding, move || report.send(()).unwrap());
        }
        assert!(reported.recv_timeout(Duration::from_millis(50)).is_err());
        drop(lock);
        reported.recv_timeout(Duration::from_secs(20)).unwrap();
        assert!(reported.recv_timeout(Duration::from_millis(50)).is_err());
    }

    #[test]
    fn the_exit_of_a_process_without_a_liveness_lock_is_reported() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let process = identity::process(child.id()).unwrap().unwrap();
        let (report, reported) = mpsc::channel();
        let watches = Watches::default();
        watches.add(
            &LivenessFolder::new("nowhere"),
            &Binding::Process { process },
            move || report.send(()).unwrap(),
        );
        assert!(reported.recv_timeout(Duration::from_millis(50)).is_err());
        child.kill().unwrap();
        reported.recv_timeout(Duration::from_secs(20)).unwrap();
        child.wait().unwrap();
    }
}
