//! How long a call waits for SQLite's write lock: [`CallDeadline`].
//!
//! SQLite's busy handler ([`pause`]) is a plain function, so what it needs to know is kept in thread-local
//! variables. Every limit is a time by the clock: on a busy machine, a number of attempts takes any time.

use std::cell::Cell;
use std::time::{Duration, Instant};

use tenure_host::interrupt::is_interrupted;
use tenure_host::time_limit::TimeLimit;

use crate::connection::PATIENCE;

/// The longest pause between two attempts, of which there may be hundreds. Our own transactions take tens of microseconds, so
/// SQLite's own pauses (up to 100 ms) would be most of the waiting.
const LONGEST_PAUSE: Duration = Duration::from_millis(25);

thread_local! {
    static DEADLINE: Cell<Option<Instant>> = const { Cell::new(None) };
    static BUSY_UNTIL: Cell<Option<TimeLimit>> = const { Cell::new(None) };
}

/// The deadline of this thread's call, until this is dropped.
pub(crate) struct CallDeadline(Option<Instant>);

impl CallDeadline {
    /// Waits for the write lock until `by`, and no longer.
    pub(crate) fn until(by: Instant) -> Self {
        Self(DEADLINE.replace(Some(by)))
    }
}

impl Drop for CallDeadline {
    fn drop(&mut self) {
        DEADLINE.set(self.0);
    }
}

/// Whether this thread's call should give up: its deadline has passed, or its caller no longer waits.
pub(crate) fn is_over() -> bool {
    is_interrupted() || DEADLINE.get().is_some_and(is_past)
}

/// SQLite's busy handler, called with the number of calls so far. It gives up after [`PATIENCE`].
pub(crate) fn pause(calls: i32) -> bool {
    if calls == 0 {
        BUSY_UNTIL.set(Some(TimeLimit::after(PATIENCE)));
    }
    let limit = BUSY_UNTIL.get();
    if limit.is_none_or(|limit| limit.has_passed()) || is_over() {
        return false;
    }
    let calls = u64::try_from(calls).unwrap_or(u64::MAX);
    let pause = Duration::from_micros(calls.saturating_add(1).saturating_mul(50));
    std::thread::sleep(pause.min(LONGEST_PAUSE));
    true
}

/// The deadline of a read that is not part of a call with a deadline. A read waits for no writer.
#[expect(
    clippy::disallowed_methods,
    reason = "a limit for one read; no lease depends on it"
)]
pub(crate) fn soon() -> Instant {
    Instant::now() + PATIENCE
}

#[expect(
    clippy::disallowed_methods,
    reason = "a caller's deadline is an Instant; no lease depends on it"
)]
fn is_past(by: Instant) -> bool {
    Instant::now() >= by
}
