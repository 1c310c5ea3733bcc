//! Who is next: [`Waiter`] and the order of waiting (G8).
//!
//! Waiters are ordered by one number that never changes while they wait: the time they came,
//! minus [`AGEING`] for every level of priority. So
//!
//! - among equal priorities it is first come, first served;
//! - a claim of priority `p` can be overtaken only by claims of priority `q > p` that come less
//!   than `(q - p) x AGEING` after it. The bound is nine times [`AGEING`]: nine minutes. After
//!   that, nobody who comes later goes first, however urgent. A claim that resumes an earlier
//!   place counts from when that place was taken, with the priority it now asks with.
//!
//! Places mean something within one boot only. On a machine that does not tell its boot id nobody
//! is ever taken to be waiting: keys are still held by one at a time, but served in no order.

use std::time::Duration;

use crate::claim::Priority;
use crate::holder::Holder;
use crate::time::{Epoch, Moment};

/// How much waiting one level of priority is worth.
pub const AGEING: Duration = Duration::from_secs(60);

/// How long a waiter may stay silent before its turn passes to the next. It keeps its place, so
/// it is served as soon as it is heard again.
pub const TURN_LAPSE: Duration = Duration::from_secs(15);

/// A place in a key's queue. Later tickets have larger numbers.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(transparent)]
pub struct Ticket(pub u64);

/// Whether a waiter is there to take its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// It waits.
    Here,
    /// It was cut off or does not answer: its turn passes, its place is kept for a grace time.
    Away,
}

/// One ticket and who has it.
#[derive(Debug, Clone, PartialEq)]
pub struct Waiter {
    /// The place.
    pub ticket: Ticket,
    /// Who waits.
    pub holder: Holder,
    /// See [`crate::Claim::named`].
    pub named: bool,
    /// How urgently.
    pub priority: Priority,
    /// When it came, on the boot clock.
    pub arrived: Duration,
    /// When it was last heard, on the boot clock.
    pub seen: Duration,
    /// The boot of both.
    pub epoch: Epoch,
    /// Whether it is there now.
    pub presence: Presence,
}

/// The number waiters are ordered by. Smaller goes first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank(i128, u64);

/// The rank of a claim that came at `arrived`.
pub fn rank(arrived: Duration, priority: Priority, ticket: Ticket) -> Rank {
    let came = i128::try_from(arrived.as_nanos()).unwrap_or(i128::MAX);
    let head_start = i128::try_from(AGEING.as_nanos())
        .unwrap_or(0)
        .saturating_mul(i128::from(priority.level()));
    Rank(came.saturating_sub(head_start), ticket.0)
}

impl Waiter {
    /// Its place in the order.
    pub fn rank(&self) -> Rank {
        rank(self.arrived, self.priority, self.ticket)
    }

    /// Whether it was heard lately enough to be given a turn. Silence is no proof of death.
    pub fn heard_lately(&self, now: &Moment) -> bool {
        self.epoch.same(&now.epoch) && now.ticks.saturating_sub(self.seen) < TURN_LAPSE
    }

    /// Whether a place kept for someone who is away has been kept long enough.
    pub fn forgotten(&self, now: &Moment, grace: Duration) -> bool {
        !self.epoch.same(&now.epoch) || now.ticks.saturating_sub(self.seen) >= grace.max(TURN_LAPSE)
    }
}

/// How many that are here go before `rank`.
pub fn ahead(queue: &[Waiter], rank: Rank) -> usize {
    queue
        .iter()
        .filter(|waiter| waiter.presence == Presence::Here && waiter.rank() < rank)
        .count()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64, level: u8, ticket: u64) -> Rank {
        rank(
            Duration::from_secs(seconds),
            Priority::new(level).unwrap(),
            Ticket(ticket),
        )
    }

    #[test]
    fn equal_priority_is_first_come_first_served() {
        assert!(at(10, 5, 1) < at(10, 5, 2));
        assert!(at(10, 5, 1) < at(11, 5, 2));
    }

    #[test]
    fn a_higher_priority_overtakes_only_within_the_bound() {
        assert!(
            at(100, 9, 2) < at(0, 5, 1),
            "four levels are worth four minutes"
        );
        assert!(
            at(240, 9, 2) > at(0, 5, 1),
            "after that the older claim goes first"
        );
        assert!(at(539, 9, 2) < at(0, 0, 1));
        assert!(at(540, 9, 2) > at(0, 0, 1), "nine minutes at the most");
    }
}
