//! Waking one process: [`ring`] and [`Bell`].
//!
//! A process's life file is its doorbell. Whoever has news for it touches the file; it hears that
//! through inotify. So exactly the one that can go on is woken, and nobody polls (G9).

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use inotify::{Inotify, WatchMask};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, CWD, Timestamps, UTIME_NOW, utimensat};
use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime,
};
use tenure_core::LifeId;

use crate::life::LifeFolder;

/// How often to look when the machine has no more inotify instances to give.
const DEAF: Duration = Duration::from_millis(100);

/// Rings the bell of a life. Nobody at home is no error: the dead need no waking.
pub fn ring(folder: &LifeFolder, life: &LifeId) {
    let now = Timespec {
        tv_sec: 0,
        tv_nsec: UTIME_NOW,
    };
    let times = Timestamps {
        last_access: now,
        last_modification: now,
    };
    // Best effort: whoever is not reached looks again by itself after its poll interval.
    let _ = utimensat(CWD, folder.file(life), &times, AtFlags::empty());
}

/// Hears rings from the moment it is made.
#[derive(Debug)]
pub struct Bell(Option<Inotify>);

impl Bell {
    /// Listens at the door of a life.
    pub fn listen(folder: &LifeFolder, life: &LifeId) -> Self {
        let listen = || -> io::Result<Inotify> {
            let inotify = Inotify::init()?;
            inotify.watches().add(
                folder.file(life),
                WatchMask::ATTRIB | WatchMask::DELETE_SELF,
            )?;
            Ok(inotify)
        };
        Self(listen().ok())
    }

    /// Waits for a ring; `false` if none came in time. Time spent asleep counts.
    pub fn wait(&self, timeout: Duration) -> io::Result<bool> {
        let Some(inotify) = &self.0 else {
            std::thread::sleep(timeout.min(DEAF));
            return Ok(timeout > DEAF);
        };
        if timeout.is_zero() {
            return Ok(false);
        }
        let timer = alarm(timeout)?;
        let mut fds = [
            PollFd::new(inotify, PollFlags::IN),
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
        Ok(!rung.revents().is_empty())
    }
}

/// A timer that also runs while the machine sleeps, so that a holder wakes up to a lease that is
/// due, not a third of its time later.
pub fn alarm(after: Duration) -> io::Result<OwnedFd> {
    let timer = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC)?;
    let value = Timespec {
        tv_sec: i64::try_from(after.as_secs()).unwrap_or(i64::MAX / 2),
        // Zero would disarm it.
        tv_nsec: i64::from(after.subsec_nanos()).max(1),
    };
    let interval = Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    timerfd_settime(
        timer.as_fd(),
        TimerfdTimerFlags::empty(),
        &Itimerspec {
            it_interval: interval,
            it_value: value,
        },
    )?;
    Ok(timer)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::life::Life;

    #[test]
    fn a_ring_is_heard_even_if_it_comes_before_the_wait() {
        let dir = tempfile::tempdir().unwrap();
        let folder = LifeFolder::new(dir.path());
        let life = Life::begin(&folder).unwrap();
        let bell = Bell::listen(&folder, life.id());
        assert!(!bell.wait(Duration::from_millis(5)).unwrap());
        ring(&folder, life.id());
        assert!(bell.wait(Duration::from_secs(20)).unwrap());
    }

    #[test]
    fn ringing_at_an_empty_house_does_nothing() {
        let dir = tempfile::tempdir().unwrap();
        ring(&LifeFolder::new(dir.path()), &LifeId("nobody".into()));
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }

    #[test]
    fn without_inotify_it_looks_again_now_and_then() {
        assert!(Bell(None).wait(Duration::from_secs(20)).unwrap());
        assert!(!Bell(None).wait(Duration::from_millis(1)).unwrap());
    }
}
