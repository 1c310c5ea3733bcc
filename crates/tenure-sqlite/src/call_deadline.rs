//! How long a call waits for SQLite's write lock: [`CallDeadline`].
//!
//! SQLite's busy handler is a plain function, so the deadline is kept in a thread-local variable.

use std::cell::Cell;
use std::time::Instant;

thread_local! {
    static DEADLINE: Cell<Option<Instant>> = const { Cell::new(None) };
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

/// Whether the deadline of this thread's call has passed.
pub(crate) fn has_passed() -> bool {
    DEADLINE.get().is_some_and(is_past)
}

/// The deadline of a read that is not part of a call with a deadline. A read waits for no writer.
#[expect(
    clippy::disallowed_methods,
    reason = "a limit for one read; no lease depends on it"
)]
pub(crate) fn soon() -> Instant {
    Instant::now() + crate::connection::PATIENCE
}

#[expect(
    clippy::disallowed_methods,
    reason = "a caller's deadline is an Instant; no lease depends on it"
)]
fn is_past(by: Instant) -> bool {
    Instant::now() >= by
}
