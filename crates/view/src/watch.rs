//! What changes in a project: [`Feed`] reads it, [`Alarm`] tells when to look again.
//!
//! # Invariants
//!
//! 1. Nothing is written: stores are opened read-only.
//! 2. Every event of a history is reported once, in its order, from the first look on or from a given event on.
//!    Where events are missing, because the history was pruned or begun anew, that is reported instead
//!    ([`Gap`]).
//! 3. A store that can't be read is reported, and read again as soon as it can be. What was known of it does not
//!    count as changed meanwhile.
//!
//! # What this does not do
//!
//! Only events are without a gap. A waiter that came and went between two looks, or a lock of another program, is
//! not recorded, and is not reported.

mod alarm;
mod change;
mod feed;

pub use alarm::Alarm;
pub use change::{Change, Index, StoreChange};
pub use feed::{Feed, Gap, Log, daemon_in_words};
