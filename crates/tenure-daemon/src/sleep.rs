//! Between two cycles: [`rest`] sleeps until the time, a lock or a signal says so.
//!
//! 1. Time counts while the machine sleeps, and never jumps: a timer of the kernel's boot clock.
//! 2. However much happens to the locks, or beside them in their folders, it is looked at no more than
//!    every [`SETTLE`], and a cycle that is woken by it waits until the last one has been over for a
//!    while, so that a storm costs next to nothing.
//! 3. A signal is heard at once.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use tenure::host::bell::alarm;

use crate::places::Places;
use crate::signals::Signals;

/// How long to let things settle after the first of them: a lock is often made first and written then.
const SETTLE: Duration = Duration::from_millis(30);

/// The least time between two cycles.
const LEAST: Duration = Duration::from_millis(100);

/// A cycle that was woken comes no sooner than this many times what the last one took.
const SHARE: u32 = 10;

/// Rests for `interval`, or until something happens. `took` is how long the last cycle was. Whenever
/// something happens near the locks, `stands` is asked whether the daemon's own lock is still there: the
/// kernel does not tell of the end of a folder in which somebody has a file open, and we have.
pub(crate) fn rest(
    interval: Duration,
    took: Duration,
    signals: &mut Signals,
    places: &mut Places,
    watched: Option<&OwnedFd>,
    stands: impl Fn() -> bool,
) -> io::Result<()> {
    let due = alarm(interval)?;
    // Counted from now, the end of the last cycle.
    let rested = alarm(LEAST.max(took * SHARE).min(interval))?;
    loop {
        let heard = {
            let news = places.fds().chain(watched.map(AsFd::as_fd));
            listen(signals, &due, news)?
        };
        match heard {
            Heard::Signal => return signals.drain(),
            Heard::Time => return Ok(()),
            Heard::News => {}
        }
        let settled = alarm(SETTLE)?;
        if let Heard::Signal = listen(signals, &settled, [])? {
            return signals.drain();
        }
        let ended = watched.is_some_and(|process| is_ready(process.as_fd()));
        if places.take() || ended || !stands() {
            return match listen(signals, &rested, [])? {
                Heard::Signal => signals.drain(),
                Heard::Time | Heard::News => Ok(()),
            };
        }
    }
}

enum Heard {
    Signal,
    Time,
    News,
}

/// Blocks until the first of them.
fn listen<'a>(
    signals: &Signals,
    timer: &OwnedFd,
    news: impl IntoIterator<Item = BorrowedFd<'a>>,
) -> io::Result<Heard> {
    let news: Vec<BorrowedFd<'_>> = news.into_iter().collect();
    let mut fds = vec![
        PollFd::new(signals, PollFlags::IN),
        PollFd::new(timer, PollFlags::IN),
    ];
    fds.extend(news.iter().map(|fd| PollFd::new(fd, PollFlags::IN)));
    loop {
        match poll(&mut fds, None) {
            Ok(_) => break,
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let ready = |at: usize| fds.get(at).is_some_and(|fd| !fd.revents().is_empty());
    Ok(if ready(0) {
        Heard::Signal
    } else if ready(1) {
        Heard::Time
    } else {
        Heard::News
    })
}

fn is_ready(fd: BorrowedFd<'_>) -> bool {
    let now = rustix::event::Timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    poll(&mut [PollFd::new(&fd, PollFlags::IN)], Some(&now)).is_ok_and(|ready| ready > 0)
}
