//! Wakes one process: [`ring`] and [`Bell`].
//!
//! The pipe of a process's liveness lock is also its doorbell. Another process wakes it by writing a byte
//! into the pipe. So a change wakes exactly the waiter that can proceed, without polling (G9).
//!
//! # Invariants
//!
//! 1. A ring before the wait is not lost: the byte stays in the pipe.
//! 2. The threads of a process share one bell. One of them listens at the pipe and wakes the others.
//!    Every ring starts a new generation, so no thread misses it.
//!
//! A ring is not guaranteed to arrive. A waiter that misses it notices the change at its next poll.

use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};
use tenure_core::LivenessId;
use tenure_core::queue::HEARTBEAT;

use crate::clock::since_boot;
use crate::files::beneath::open_pipe;
use crate::liveness_lock::LivenessFolder;

/// Wakes the process with this liveness lock. It is no error if that process has exited. A waiter that
/// misses the wake-up polls.
pub fn ring(folder: &LivenessFolder, lock: &LivenessId) {
    // Another user may have put something else there.
    if let Ok(mut pipe) = open_pipe(&folder.file(lock), OFlags::WRONLY) {
        // A full pipe holds earlier rings that will wake the process.
        let _ = pipe.write(b"!");
    }
}

/// Receives the rings of this process's liveness lock, for all of its threads.
#[derive(Debug, Default)]
pub struct Bell {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    generation: u32,
    /// Whether a thread listens at the pipe.
    listening: bool,
}

impl Bell {
    /// Changes with every ring that was received.
    pub fn generation(&self) -> u32 {
        self.lock().generation
    }

    /// Makes every wait that began with an earlier generation return, except the one that listens at
    /// the pipe: the caller must ring for that one.
    pub fn wake_threads(&self) {
        let mut state = self.lock();
        state.generation = state.generation.wrapping_add(1);
        self.changed.notify_all();
    }

    /// Waits for a ring after generation `seen`; `false` if none came in time. `pipe` is the
    /// pipe of the liveness lock. Time during which the machine sleeps counts. The thread that listens
    /// calls `beat` every few seconds.
    pub fn wait(
        &self,
        pipe: BorrowedFd<'_>,
        seen: u32,
        timeout: Duration,
        beat: impl Fn(),
    ) -> io::Result<bool> {
        let began = since_boot();
        let left = || timeout.saturating_sub(since_boot().saturating_sub(began));
        let mut state = self.lock();
        while state.listening && state.generation == seen {
            let (next, waited) = self
                .changed
                .wait_timeout(state, left())
                .unwrap_or_else(PoisonError::into_inner);
            state = next;
            if waited.timed_out() {
                break;
            }
        }
        if state.generation != seen {
            return Ok(true);
        }
        if state.listening || left().is_zero() {
            return Ok(false);
        }
        state.listening = true;
        drop(state);
        let rung = listen(pipe, left(), beat);
        let mut state = self.lock();
        state.listening = false;
        if matches!(rung, Ok(true)) {
            state.generation = state.generation.wrapping_add(1);
        }
        // Also without a ring: another thread has to listen now.
        self.changed.notify_all();
        Ok(rung? || state.generation != seen)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits for a byte in the pipe, then empties the pipe.
fn listen(pipe: BorrowedFd<'_>, timeout: Duration, beat: impl Fn()) -> io::Result<bool> {
    let timer = alarm(timeout)?;
    let heartbeat = Timespec::try_from(HEARTBEAT).ok();
    let mut fds = [
        PollFd::new(&pipe, PollFlags::IN),
        PollFd::new(&timer, PollFlags::IN),
    ];
    loop {
        beat();
        match poll(&mut fds, heartbeat.as_ref()) {
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => break,
            Err(error) => return Err(error.into()),
        }
    }
    let [rung, _] = fds;
    if rung.revents().is_empty() {
        return Ok(false);
    }
    let mut bytes = [0; 512];
    while rustix::io::read(pipe, &mut bytes).is_ok_and(|read| read == bytes.len()) {}
    // Reading has set the access time of the pipe.
    beat();
    Ok(true)
}

/// A timer that also runs while the machine sleeps, so that a holder renews as soon as the machine is
/// awake again if its lease is due by then.
pub fn alarm(after: Duration) -> io::Result<OwnedFd> {
    let timer = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC)?;
    let value = Timespec {
        // The kernel refuses larger values.
        tv_sec: i64::try_from(after.as_secs())
            .unwrap_or(i64::MAX)
            .min(i64::from(u32::MAX)),
        // Zero would disarm it.
        tv_nsec: i64::from(after.subsec_nanos()).max(1),
    };
    let interval = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let when = Itimerspec {
        it_interval: interval,
        it_value: value,
    };
    timerfd_settime(timer.as_fd(), TimerfdTimerFlags::empty(), &when)?;
    Ok(timer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::liveness_lock::LivenessLock;

    const LONG: Duration = Duration::from_secs(20);

    #[test]
    fn a_ring_before_the_wait_is_not_lost() {
        let dir = tempfile::tempdir().unwrap();
        let folder = LivenessFolder::new(dir.path());
        let lock = LivenessLock::take(&folder).unwrap();
        let bell = Bell::default();
        let seen = bell.generation();
        assert!(
            !bell
                .wait(lock.as_fd(), seen, Duration::from_millis(5), || ())
                .unwrap()
        );
        ring(&folder, lock.id());
        assert!(bell.wait(lock.as_fd(), seen, LONG, || ()).unwrap());
        let seen = bell.generation();
        assert!(
            !bell
                .wait(lock.as_fd(), seen, Duration::from_millis(5), || ())
                .unwrap(),
            "one ring must end only one wait"
        );
    }

    #[test]
    fn one_ring_wakes_every_thread() {
        let dir = tempfile::tempdir().unwrap();
        let folder = LivenessFolder::new(dir.path());
        let lock = LivenessLock::take(&folder).unwrap();
        let bell = Bell::default();
        let seen = bell.generation();
        std::thread::scope(|scope| {
            let waits: Vec<_> = (0..4)
                .map(|_| scope.spawn(|| bell.wait(lock.as_fd(), seen, LONG, || ()).unwrap()))
                .collect();
            std::thread::sleep(Duration::from_millis(20));
            ring(&folder, lock.id());
            assert!(waits.into_iter().all(|wait| wait.join().unwrap()));
        });
    }

    #[test]
    fn another_thread_listens_when_the_listener_times_out() {
        let dir = tempfile::tempdir().unwrap();
        let folder = LivenessFolder::new(dir.path());
        let lock = LivenessLock::take(&folder).unwrap();
        let bell = Bell::default();
        let seen = bell.generation();
        std::thread::scope(|scope| {
            let short = scope.spawn(|| {
                bell.wait(lock.as_fd(), seen, Duration::from_millis(30), || ())
                    .unwrap()
            });
            std::thread::sleep(Duration::from_millis(10));
            let long = scope.spawn(|| bell.wait(lock.as_fd(), seen, LONG, || ()).unwrap());
            assert!(!short.join().unwrap());
            ring(&folder, lock.id());
            assert!(long.join().unwrap());
        });
    }

    #[test]
    fn ringing_writes_into_nothing_but_a_pipe() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file");
        std::fs::write(&file, "mine").unwrap();
        std::os::unix::fs::symlink(&file, dir.path().join("link")).unwrap();
        for id in ["file", "link"] {
            ring(&LivenessFolder::new(dir.path()), &LivenessId(id.into()));
        }
        assert_eq!(std::fs::read(&file).unwrap(), b"mine");
    }

    #[test]
    fn ringing_for_a_process_that_has_exited_does_nothing() {
        let dir = tempfile::tempdir().unwrap();
        ring(
            &LivenessFolder::new(dir.path()),
            &LivenessId("exited".into()),
        );
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
