//! How much work the comparisons of patterns in one step of a store may take: [`Budget`].
//!
//! A comparison of two patterns is bounded by the product of their sizes, but a step makes many, and holds the store's lock
//! meanwhile. So a step has a budget. It belongs to the thread, because patterns are compared deep inside pure rules.
//!
//! Once the budget is used up, every pattern counts as one that overlaps. That is always safe: a claim waits that need
//! not, and a waiter polls that could be woken. A claim that depends on it is refused, see [`crate::engine::Refused`].

use std::cell::Cell;

/// The steps of automata that may be looked at: about a tenth of a second.
const LIMIT: u64 = 10_000_000;

thread_local! {
    static LEFT: Cell<Option<u64>> = const { Cell::new(None) };
}

/// The budget of a step of a store, until this is dropped. A verb that another verb calls has a part in its budget.
#[derive(Debug)]
pub(crate) struct Budget {
    is_outermost: bool,
}

impl Budget {
    pub(crate) fn begin() -> Self {
        let is_outermost = LEFT.get().is_none();
        if is_outermost {
            LEFT.set(Some(LIMIT));
        }
        Self { is_outermost }
    }

    /// Whether a comparison of this step may have been cut short.
    pub(crate) fn is_used_up() -> bool {
        LEFT.get() == Some(0)
    }
}

impl Drop for Budget {
    fn drop(&mut self) {
        if self.is_outermost {
            LEFT.set(None);
        }
    }
}

/// Takes some work from the budget of this thread; `false` if it is used up. Outside of a step there is no limit.
pub(super) fn spend(work: usize) -> bool {
    let Some(left) = LEFT.get() else {
        return true;
    };
    let left = left.saturating_sub(u64::try_from(work).unwrap_or(u64::MAX));
    LEFT.set(Some(left));
    left > 0
}
