//! Waking one process: [`ring`] and [`Bell`].
//!
//! A process's life is also its doorbell. Whoever has news for it writes a byte into the pipe; it
//! hears that by polling the pipe. So exactly the one that can go on is woken, nobody polls (G9),
//! and a ring that comes before the wait is not lost: the byte stays.
//!
//! Several threads of a process share one bell. One of them listens at the pipe and tells the
//! others; every ring makes a new generation, so that none of them misses it.

use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::OpenOptionsExt;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};
use tenure_core::LivenessId;

use crate::clock::since_boot;
use crate::liveness_lock::LivenessFolder;

/// Rings the bell of a life. Nobody at home is no error: the dead need no waking. Whoever is not
/// reached looks again by itself after its poll interval.
pub fn ring(folder: &LivenessFolder, life: &LivenessId) {
    let pipe = std::fs::File::options()
        .write(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(folder.file(life));
    if let Ok(mut pipe) = pipe {
        // Full means that it has been rung and not yet heard.
        let _ = pipe.write(b"!");
    }
}

/// Hears the rings of one life, for all threads of this process.
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
    /// Changes with every ring that was heard.
    pub fn generation(&self) -> u32 {
        self.lock().generation
    }

    /// Makes every wait that began with an earlier generation return. The one that listens at the
    /// pipe has to be rung as well.
    pub fn stir(&self) {
        let mut state = self.lock();
        state.generation = state.generation.wrapping_add(1);
        self.changed.notify_all();
    }

    /// Waits for a ring after generation `seen`; `false` if none came in time. `pipe` is the life.
    /// Time spent asleep counts.
    pub fn wait(&self, pipe: BorrowedFd<'_>, seen: u32, timeout: Duration) -> io::Result<bool> {
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
        let heard = listen(pipe, left());
        let mut state = self.lock();
        state.listening = false;
        if matches!(heard, Ok(true)) {
            state.generation = state.generation.wrapping_add(1);
        }
        // Also when nothing was heard: somebody else has to listen now.
        self.changed.notify_all();
        Ok(heard? || state.generation != seen)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Waits for a byte in the pipe and takes all that are there.
fn listen(pipe: BorrowedFd<'_>, timeout: Duration) -> io::Result<bool> {
    let timer = alarm(timeout)?;
    let mut fds = [
        PollFd::new(&pipe, PollFlags::IN),
        PollFd::new(&timer, PollFlags::IN),
    ];
    loop {
        match poll(&mut fds, None) {
            Ok(_) => break,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let [rung, _] = fds;
    if rung.revents().is_empty() {
        return Ok(false);
    }
    let mut bytes = [0; 512];
    while rustix::io::read(pipe, &mut bytes).is_ok_and(|read| read == bytes.len()) {}
    Ok(true)
}

/// A timer that also runs while the machine sleeps, so that a holder wakes up to a lease that is
/// due, not a third of its time later.
pub fn alarm(after: Duration) -> io::Result<OwnedFd> {
    let timer = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC)?;
    let value = Timespec {
        // The kernel takes no larger ones.
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
    fn a_ring_is_heard_even_if_it_comes_before_the_wait() {
        let dir = tempfile::tempdir().unwrap();
        let folder = LivenessFolder::new(dir.path());
        let life = LivenessLock::begin(&folder).unwrap();
        let bell = Bell::default();
        let seen = bell.generation();
        assert!(
            !bell
                .wait(life.as_fd(), seen, Duration::from_millis(5))
                .unwrap()
        );
        ring(&folder, life.id());
        assert!(bell.wait(life.as_fd(), seen, LONG).unwrap());
        let seen = bell.generation();
        assert!(
            !bell
                .wait(life.as_fd(), seen, Duration::from_millis(5))
                .unwrap(),
            "it was heard once"
        );
    }

    #[test]
    fn one_ring_is_heard_by_every_thread() {
        let dir = tempfile::tempdir().unwrap();
        let folder = LivenessFolder::new(dir.path());
        let life = LivenessLock::begin(&folder).unwrap();
        let bell = Bell::default();
        let seen = bell.generation();
        std::thread::scope(|scope| {
            let waits: Vec<_> = (0..4)
                .map(|_| scope.spawn(|| bell.wait(life.as_fd(), seen, LONG).unwrap()))
                .collect();
            std::thread::sleep(Duration::from_millis(20));
            ring(&folder, life.id());
            assert!(waits.into_iter().all(|wait| wait.join().unwrap()));
        });
    }

    #[test]
    fn when_the_listener_gives_up_another_one_listens() {
        let dir = tempfile::tempdir().unwrap();
        let folder = LivenessFolder::new(dir.path());
        let life = LivenessLock::begin(&folder).unwrap();
        let bell = Bell::default();
        let seen = bell.generation();
        std::thread::scope(|scope| {
            let short = scope.spawn(|| {
                bell.wait(life.as_fd(), seen, Duration::from_millis(30))
                    .unwrap()
            });
            std::thread::sleep(Duration::from_millis(10));
            let long = scope.spawn(|| bell.wait(life.as_fd(), seen, LONG).unwrap());
            assert!(!short.join().unwrap());
            ring(&folder, life.id());
            assert!(long.join().unwrap());
        });
    }

    #[test]
    fn ringing_at_an_empty_house_does_nothing() {
        let dir = tempfile::tempdir().unwrap();
        ring(
            &LivenessFolder::new(dir.path()),
            &LivenessId("nobody".into()),
        );
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
