//! How long a call waits for SQLite's write lock: until its deadline.
//!
//! SQLite asks a plain function whether to go on waiting, so the deadline is kept for the thread.

use std::cell::Cell;
use std::time::Instant;

thread_local! {
    static DEADLINE: Cell<Option<Instant>> = const { Cell::new(None) };
}

/// The deadline of this thread's call, while this is kept.
pub(crate) struct Patience(Option<Instant>);

impl Patience {
    /// Waits for the write lock until `by`, and no longer.
    pub(crate) fn until(by: Instant) -> Self {
        Self(DEADLINE.replace(Some(by)))
    }
}

impl Drop for Patience {
    fn drop(&mut self) {
        DEADLINE.set(self.0);
    }
}

/// Whether the deadline of this thread's call has passed.
pub(crate) fn is_over() -> bool {
    DEADLINE.get().is_some_and(|by| Instant::now() >= by)
}
