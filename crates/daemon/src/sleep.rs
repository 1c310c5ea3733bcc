//! Between two cycles: [`sleep`] until the interval ends, an exclusive lock changes, the holder of a board's
//! lock dies or a signal arrives.
//!
//! 1. Time counts while the machine is suspended, and never jumps: the timer is one of the kernel's boot
//!    clock.
//! 2. A storm of changes near the locks costs next to nothing: they are looked at no more than every
//!    [`SETTLE`], and a cycle that they cause keeps a distance from the last one.
//! 3. A signal ends the sleep at once.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use tenure_host::bell::alarm;

use crate::board_locks::BoardLocks;
use crate::lock_locations::LockLocations;
use crate::signals::Signals;
use crate::stop::await_end;

/// The pause after the first change: other programs often create a lock first and write it then.
const SETTLE: Duration = Duration::from_millis(30);

/// The shortest time between two cycles.
const SHORTEST: Duration = Duration::from_millis(100);

/// A cycle caused by a change begins no sooner than after this many times the duration of the last one.
const DISTANCE: u32 = 10;

/// Sleeps for `interval`, or until there is a reason for the next cycle. `took` is the duration of the last
/// one, and `holder` becomes readable when the holder of an exclusive lock ends. After every change near
/// the locks, `has_lock` is asked whether the daemon still has its own lock: the kernel does not report the
/// removal of a folder in which a process has a file open, and the daemon has one open there.
pub(crate) fn sleep(
    interval: Duration,
    took: Duration,
    signals: &mut Signals,
    locations: &mut LockLocations,
    boards: &mut BoardLocks,
    holder: Option<&OwnedFd>,
    has_lock: impl Fn() -> bool,
) -> io::Result<()> {
    let due = alarm(interval)?;
    let distance = alarm(SHORTEST.max(took * DISTANCE).min(interval))?;
    loop {
        let woken_by = {
            let changes = locations.fds().chain(holder.map(AsFd::as_fd));
            let changes: Vec<BorrowedFd<'_>> = changes.collect();
            let changes = changes.iter().map(|fd| PollFd::new(fd, PollFlags::IN));
            wait(signals, &due, changes.chain(boards.poll_fds()))?
        };
        match woken_by {
            WokenBy::Signal => return signals.drain(),
            WokenBy::Timer => return Ok(()),
            WokenBy::Change => {}
        }
        let settled = alarm(SETTLE)?;
        if let WokenBy::Signal = wait(signals, &settled, [])? {
            return signals.drain();
        }
        let holder_ended = holder.is_some_and(|it| await_end(it, Duration::ZERO).unwrap_or(false));
        let dead = boards.has_dead_holder();
        if locations.take_changes() || holder_ended || dead || !has_lock() {
            return match wait(signals, &distance, [])? {
                WokenBy::Signal => signals.drain(),
                WokenBy::Timer | WokenBy::Change => Ok(()),
            };
        }
    }
}

enum WokenBy {
    Signal,
    Timer,
    Change,
}

/// Blocks until a signal, the timer or one of `changes` is ready.
fn wait<'a>(
    signals: &'a Signals,
    timer: &'a OwnedFd,
    changes: impl IntoIterator<Item = PollFd<'a>>,
) -> io::Result<WokenBy> {
    let mut fds = vec![
        PollFd::new(signals, PollFlags::IN),
        PollFd::new(timer, PollFlags::IN),
    ];
    fds.extend(changes);
    loop {
        match poll(&mut fds, None) {
            Ok(_) => break,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let ready = |at: usize| fds.get(at).is_some_and(|fd| !fd.revents().is_empty());
    Ok(if ready(0) {
        WokenBy::Signal
    } else if ready(1) {
        WokenBy::Timer
    } else {
        WokenBy::Change
    })
}
