//! Being told when another process ends: [`Watches`].
//!
//! The kernel can tell (a blocking lock on its life, or a pidfd), but only to a thread that
//! blocks. There is one small thread for each process that is watched, however many waits ask for
//! it; it ends with that process.

use std::collections::HashSet;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, PoisonError};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use tenure_core::{Binding, LivenessId, Process};

use crate::identity;
use crate::liveness_lock::{LivenessFolder, look_at};

/// The stack of a watching thread: it makes one system call.
const STACK: usize = 64 * 1024;

/// Whom a thread watches.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Subject {
    LivenessLock(LivenessId),
    Pid(u32, u64),
}

/// The processes that are being watched.
#[derive(Debug, Default)]
pub struct Watches(Arc<Mutex<HashSet<Subject>>>);

impl Watches {
    /// Calls `ended` once the process behind `binding` is gone, from another thread. Whatever
    /// can't be watched is left to the caller's own looking.
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
        let block = blocker(folder, binding);
        let watch = move || {
            let told = block();
            watched
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .remove(&subject);
            if told.is_ok() {
                ended();
            }
        };
        // No thread to be had: the caller looks again by itself.
        let _ = std::thread::Builder::new()
            .name("watch".into())
            .stack_size(STACK)
            .spawn(watch);
    }
}

/// What to do to block until the process is gone.
fn blocker(
    folder: &LivenessFolder,
    binding: &Binding,
) -> Box<dyn FnOnce() -> io::Result<()> + Send> {
    match binding.clone() {
        Binding::LivenessLock { lock, process } => {
            let path = folder.file(&lock);
            Box::new(move || match look_at(&path) {
                Ok(file) => file.lock_shared(),
                // Somebody removed it, which is no end: the process itself has to tell.
                Err(error) if error.kind() == io::ErrorKind::NotFound => wait_for_exit(&process),
                Err(error) => Err(error),
            })
        }
        Binding::Process { process } => Box::new(move || wait_for_exit(&process)),
        _ => Box::new(|| Err(io::ErrorKind::Unsupported.into())),
    }
}

fn wait_for_exit(process: &Process) -> io::Result<()> {
    if !process.boot.same(identity::boot()) || process.namespace != identity::namespace() {
        return Err(io::ErrorKind::Unsupported.into());
    }
    let pid = i32::try_from(process.pid)
        .ok()
        .and_then(Pid::from_raw)
        .ok_or(io::ErrorKind::InvalidInput)?;
    let pidfd: OwnedFd = match pidfd_open(pid, PidfdFlags::empty()) {
        Ok(pidfd) => pidfd,
        Err(rustix::io::Errno::SRCH) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    // Only now is the pid pinned: if it changed hands before, its process has ended.
    if identity::start_time(process.pid)? != Some(process.started) {
        return Ok(());
    }
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
    fn the_end_of_a_life_is_told_once() {
        let dir = tempfile::tempdir().unwrap();
        let folder = LivenessFolder::new(dir.path());
        let life = LivenessLock::begin(&folder).unwrap();
        let binding = Binding::LivenessLock {
            lock: life.id().clone(),
            process: identity::this_process(),
        };
        let watches = Watches::default();
        let (tell, told) = mpsc::channel();
        for _ in 0..3 {
            let tell = tell.clone();
            watches.add(&folder, &binding, move || tell.send(()).unwrap());
        }
        assert!(told.recv_timeout(Duration::from_millis(50)).is_err());
        drop(life);
        told.recv_timeout(Duration::from_secs(20)).unwrap();
        assert!(told.recv_timeout(Duration::from_millis(50)).is_err());
    }

    #[test]
    fn the_end_of_a_process_that_knows_nothing_of_us_is_told() {
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let process = identity::process(child.id()).unwrap().unwrap();
        let (tell, told) = mpsc::channel();
        let watches = Watches::default();
        watches.add(
            &LivenessFolder::new("nowhere"),
            &Binding::Process { process },
            move || tell.send(()).unwrap(),
        );
        assert!(told.recv_timeout(Duration::from_millis(50)).is_err());
        child.kill().unwrap();
        told.recv_timeout(Duration::from_secs(20)).unwrap();
        child.wait().unwrap();
    }
}
