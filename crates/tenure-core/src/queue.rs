//! Who is next: [`Waiter`] and the order of waiting (G8).
//!
//! Waiters are ordered by one number that never changes while they wait: the time they came,
//! minus [`AGEING`] for every level of priority. So
//!
//! - among equal priorities it is first come, first served;
//! - a claim of priority `p` can be overtaken only by claims of priority `q > p` that come less
//!   than `(q - p) x AGEING` after it. The bound is nine times [`AGEING`]: nine minutes. After
//!   that, no later claim goes first, however urgent. A claim that resumes an earlier ticket counts
//!   from when that ticket was taken, with the priority it now asks with.
//!
//! Tickets mean something within one epoch only. In a clock domain that does not name its epochs no
//! waiter ever counts as present: keys are still held by one at a time, but served in no order.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::claim::Priority;
use crate::holder::Holder;
use crate::lease::Token;
use crate::time::{Epoch, Moment};

/// How much waiting one level of priority is worth.
pub const AGEING: Duration = Duration::from_secs(60);

/// How long a waiter may stay silent before its turn passes to the next. It keeps its ticket, so it
/// is served as soon as it is heard again.
pub const TURN_LAPSE: Duration = Duration::from_secs(15);

/// A place in a key's queue. Later tickets have larger numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Ticket(pub u64);

/// Whether a waiter is there to take its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// It waits.
    Here,
    /// It was interrupted or does not answer: its turn passes, its ticket is kept for a grace time.
    Away,
}

/// One ticket and who has it.
///
/// Its JSON form is stored beside lock files; the names in it are part of that format.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Waiter {
    /// The ticket.
    pub ticket: Ticket,
    /// Who waits. The binding is that of the process that waits.
    pub holder: Holder,
    /// See [`crate::Claim::named`].
    pub named: bool,
    /// How urgently.
    pub priority: Priority,
    /// When it came, in ticks.
    pub arrived: Duration,
    /// When it was last heard, in ticks.
    pub seen: Duration,
    /// The epoch of both.
    #[serde(rename = "boot")]
    pub epoch: Epoch,
    /// As stored: [`Presence::Away`] if it gave up its turn. As read by the engine: whether it is
    /// there now.
    #[serde(rename = "parked", with = "parked")]
    pub presence: Presence,
    /// See [`crate::Claim::within`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub within: Vec<Token>,
}

/// [`Presence`] as a yes or no.
mod parked {
    use serde::{Deserialize, Deserializer, Serializer};

    use super::Presence;

    #[expect(
        clippy::trivially_copy_pass_by_ref,
        reason = "serde asks for this signature"
    )]
    pub(super) fn serialize<S: Serializer>(
        presence: &Presence,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.serialize_bool(*presence == Presence::Away)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Presence, D::Error> {
        Ok(if bool::deserialize(deserializer)? {
            Presence::Away
        } else {
            Presence::Here
        })
    }
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

    /// Whether a ticket kept for a waiter that is away has been kept long enough.
    pub fn forgotten(&self, now: &Moment, grace: Duration) -> bool {
        !self.epoch.same(&now.epoch) || now.ticks.saturating_sub(self.seen) >= grace.max(TURN_LAPSE)
    }
}

/// How many waiters that are present go before `rank`.
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
