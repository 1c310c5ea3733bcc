//! Wakes one process: [`ring`] and [`Bell`].
//!
//! The pipe of a process's liveness lock is also its doorbell. Another process wakes it by writing a byte
//! into the pipe. So a change wakes exactly the waiter that can proceed, without polling (G9). The exit of
//! another process wakes it, too: its descriptor is in the same `poll`.
//!
//! # Invariants
//!
//! 1. A ring before the wait is not lost: the byte stays in the pipe. An exit is not lost either: its
//!    descriptor stays ready.
//! 2. The threads of a process share one bell. One of them listens at the pipe, and for the exits that any of
//!    them waits for, and wakes the others. Every ring and every exit starts a new generation, so no thread
//!    misses it.
//!
//! A ring is not guaranteed to arrive. A waiter that misses it notices the change at its next poll.

use std::io::{self, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::OFlags;
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};
use tenure_core::queue::HEARTBEAT;
use tenure_core::{Binding, LivenessId};

use crate::clock::since_boot;
use crate::exit_watch::ExitWatch;
use crate::files::beneath::open_pipe;
use crate::liveness_lock::LivenessFolder;
use crate::lock;

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
    state: Mutex<BellState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct BellState {
    generation: u32,
    /// The timer of the thread that listens at the pipe.
    listener: Option<Arc<OwnedFd>>,
    /// The exits that end a wait of any thread.
    exits: Vec<(Binding, Weak<ExitWatch>)>,
}

/// The exits that end a wait, as long as this is kept.
#[derive(Debug, Default)]
#[must_use]
pub struct Exits {
    watched: Vec<Arc<ExitWatch>>,
    /// Whether one of the processes has exited already.
    has_exited: bool,
}

impl Bell {
    /// Changes with every ring and every exit that was received.
    pub fn generation(&self) -> u32 {
        lock(&self.state).generation
    }

    /// Watches for the exit of the processes behind these bindings. One that can't be watched is left out,
    /// so the caller must also poll.
    pub fn watch<'a>(
        &self,
        folder: &LivenessFolder,
        bindings: impl IntoIterator<Item = &'a Binding>,
    ) -> Exits {
        let mut exits = Exits::default();
        let mut state = lock(&self.state);
        state.exits.retain(|(_, watch)| watch.strong_count() > 0);
        for binding in bindings {
            let mut known = state.exits.iter();
            let known = known.find(|(watched, _)| watched == binding);
            if let Some(watch) = known.and_then(|(_, watch)| watch.upgrade()) {
                exits.watched.push(watch);
                continue;
            }
            match ExitWatch::on(folder, binding) {
                Ok(Some(watch)) => {
                    let watch = Arc::new(watch);
                    let watched = (binding.clone(), Arc::downgrade(&watch));
                    state.exits.push(watched);
                    exits.watched.push(watch);
                    // Another thread listens already, and has to listen for this one, too.
                    if let Some(timer) = &state.listener {
                        let _ = set_alarm(timer, Duration::ZERO);
                    }
                }
                Ok(None) => exits.has_exited = true,
                Err(_) => {}
            }
        }
        exits
    }

    /// Makes every wait that began with an earlier generation return, except the one that listens at
    /// the pipe: the caller must ring for that one.
    pub fn wake_threads(&self) {
        let mut state = lock(&self.state);
        state.generation = state.generation.wrapping_add(1);
        self.changed.notify_all();
    }

    /// Waits for a ring after generation `seen`, or for one of these exits; `false` if none came in time. `pipe`
    /// is the pipe of the liveness lock. Time during which the machine sleeps counts. The thread that listens
    /// calls `beat` every few seconds.
    pub fn wait(
        &self,
        pipe: BorrowedFd<'_>,
        seen: u32,
        exits: &Exits,
        timeout: Duration,
        beat: impl Fn(),
    ) -> io::Result<bool> {
        let began = since_boot();
        let left = || timeout.saturating_sub(since_boot().saturating_sub(began));
        let mut state = lock(&self.state);
        while state.listener.is_some() && state.generation == seen {
            let (next, waited) = self
                .changed
                .wait_timeout(state, left())
                .unwrap_or_else(PoisonError::into_inner);
            state = next;
            if waited.timed_out() {
                break;
            }
        }
        if state.generation != seen || exits.has_exited {
            return Ok(true);
        }
        if state.listener.is_some() || left().is_zero() {
            return Ok(false);
        }
        let timer = Arc::new(boot_timer()?);
        state.listener = Some(Arc::clone(&timer));
        drop(state);
        let woken = self.listen(pipe, &timer, left, beat);
        let mut state = lock(&self.state);
        state.listener = None;
        if matches!(woken, Ok(true)) {
            state.generation = state.generation.wrapping_add(1);
        }
        // Also without a ring: another thread has to listen now.
        self.changed.notify_all();
        Ok(woken? || state.generation != seen)
    }

    /// Waits for a byte in the pipe, then empties the pipe; or for an exit.
    fn listen(
        &self,
        pipe: BorrowedFd<'_>,
        timer: &OwnedFd,
        left: impl Fn() -> Duration,
        beat: impl Fn(),
    ) -> io::Result<bool> {
        let heartbeat = Timespec::try_from(HEARTBEAT).ok();
        loop {
            let exits: Vec<_> = {
                let state = lock(&self.state);
                set_alarm(timer, left())?;
                let watches = state.exits.iter();
                watches.filter_map(|(_, watch)| watch.upgrade()).collect()
            };
            let mut fds = vec![
                PollFd::new(&pipe, PollFlags::IN),
                PollFd::new(timer, PollFlags::IN),
            ];
            fds.extend(exits.iter().map(|exit| exit.poll_fd()));
            loop {
                beat();
                match poll(&mut fds, heartbeat.as_ref()) {
                    Ok(0) | Err(rustix::io::Errno::INTR) => {}
                    Ok(_) => break,
                    Err(error) => return Err(error.into()),
                }
            }
            let mut ready = fds.iter().map(|fd| !fd.revents().is_empty());
            let is_rung = ready.next() == Some(true);
            let is_over = ready.next() == Some(true) && left().is_zero();
            if is_rung {
                let mut bytes = [0; 512];
                while rustix::io::read(pipe, &mut bytes).is_ok_and(|read| read == bytes.len()) {}
                // Reading has set the access time of the pipe.
                beat();
                return Ok(true);
            }
            let has_exited = ready.any(|ready| ready);
            if has_exited || is_over {
                return Ok(has_exited);
            }
            // Another thread waits for one more exit.
        }
    }
}

/// A timer that also runs while the machine sleeps, so that a holder renews as soon as the machine is
/// awake again if its lease is due by then.
pub fn alarm(after: Duration) -> io::Result<OwnedFd> {
    let timer = boot_timer()?;
    set_alarm(&timer, after)?;
    Ok(timer)
}

fn boot_timer() -> io::Result<OwnedFd> {
    Ok(timerfd_create(
        TimerfdClockId::Boottime,
        TimerfdFlags::CLOEXEC,
    )?)
}

fn set_alarm(timer: &OwnedFd, after: Duration) -> io::Result<()> {
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
    Ok(())
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
                .wait(
                    lock.as_fd(),
                    seen,
                    &Exits::default(),
                    Duration::from_millis(5),
                    || ()
                )
                .unwrap()
        );
        ring(&folder, lock.id());
        assert!(
            bell.wait(lock.as_fd(), seen, &Exits::default(), LONG, || ())
                .unwrap()
        );
        let seen = bell.generation();
        assert!(
            !bell
                .wait(
                    lock.as_fd(),
                    seen,
                    &Exits::default(),
                    Duration::from_millis(5),
                    || ()
                )
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
                .map(|_| {
                    scope.spawn(|| {
                        bell.wait(lock.as_fd(), seen, &Exits::default(), LONG, || ())
                            .unwrap()
                    })
                })
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
                bell.wait(
                    lock.as_fd(),
                    seen,
                    &Exits::default(),
                    Duration::from_millis(30),
                    || (),
                )
                .unwrap()
            });
            std::thread::sleep(Duration::from_millis(10));
            let long = scope.spawn(|| {
                bell.wait(lock.as_fd(), seen, &Exits::default(), LONG, || ())
                    .unwrap()
            });
            assert!(!short.join().unwrap());
            ring(&folder, lock.id());
            assert!(long.join().unwrap());
        });
    }

    /// Another process at the store: its binding, and what must be dropped to end it.
    fn another(folder: &LivenessFolder) -> (Binding, LivenessLock) {
        let lock = LivenessLock::take(folder).unwrap();
        let binding = Binding::LivenessLock {
            lock: lock.id().clone(),
            process: crate::identity::this_process(),
        };
        (binding, lock)
    }

    #[test]
    fn an_exit_ends_the_wait_and_starts_a_generation() {
        let dir = tempfile::tempdir().unwrap();
        let folder = LivenessFolder::new(dir.path());
        let lock = LivenessLock::take(&folder).unwrap();
        let (binding, other) = another(&folder);
        let inherited = other.as_fd().try_clone_to_owned().unwrap();
        let bell = Bell::default();
        let exits = bell.watch(&folder, [&binding]);
        let wait = |limit| {
            let seen = bell.generation();
            bell.wait(lock.as_fd(), seen, &exits, limit, || ()).unwrap()
        };
        drop(other);
        assert!(!wait(Duration::from_millis(5)), "a child has inherited it");
        let seen = bell.generation();
        drop(inherited);
        assert!(wait(LONG));
        assert_ne!(bell.generation(), seen);
    }

    #[test]
    fn a_process_that_has_exited_already_ends_the_wait() {
        let dir = tempfile::tempdir().unwrap();
        let folder = LivenessFolder::new(dir.path());
        let lock = LivenessLock::take(&folder).unwrap();
        let mut child = std::process::Command::new("sleep")
            .arg("60")
            .spawn()
            .unwrap();
        let process = crate::identity::process(child.id()).unwrap().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
        let bell = Bell::default();
        let exits = bell.watch(&folder, [&Binding::Process { process }]);
        let seen = bell.generation();
        assert!(bell.wait(lock.as_fd(), seen, &exits, LONG, || ()).unwrap());
    }

    #[test]
    fn a_thread_that_listens_hears_the_exit_that_another_waits_for() {
        let dir = tempfile::tempdir().unwrap();
        let folder = LivenessFolder::new(dir.path());
        let lock = LivenessLock::take(&folder).unwrap();
        let (binding, other) = another(&folder);
        let bell = Bell::default();
        let seen = bell.generation();
        std::thread::scope(|scope| {
            let listens = scope.spawn(|| {
                let none = Exits::default();
                bell.wait(lock.as_fd(), seen, &none, LONG, || ()).unwrap()
            });
            while crate::lock(&bell.state).listener.is_none() {
                std::thread::yield_now();
            }
            let exits = bell.watch(&folder, [&binding]);
            let again = bell.watch(&folder, [&binding]);
            assert!(Arc::ptr_eq(&exits.watched[0], &again.watched[0]));
            let waits = scope.spawn(|| {
                let exits = exits;
                bell.wait(lock.as_fd(), seen, &exits, LONG, || ()).unwrap()
            });
            drop((again, other));
            assert!(listens.join().unwrap());
            assert!(waits.join().unwrap());
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
