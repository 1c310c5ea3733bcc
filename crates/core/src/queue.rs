//! The order of a key's queue: [`Waiter`] (G8).
//!
//! Waiters are ordered by one number that does not change while they wait: their arrival time, minus
//! [`AGEING`] for every level of priority. Therefore
//!
//! - among equal priorities, the first to arrive is served first;
//! - a claim of priority `p` can be overtaken only by claims of priority `q > p` that arrive less
//!   than `(q - p) x AGEING` after it. The bound is nine times [`AGEING`]: nine minutes. After
//!   that, no later claim is served first, however urgent. A claim that resumes an earlier ticket counts
//!   from when that ticket was taken, with the priority it now asks with.
//!
//! Tickets mean something within one epoch only. In a clock domain that does not name its epochs no
//! waiter ever counts as present: a key still has one holder at a time, but waiters are served in no order.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::claim::Priority;
use crate::holder::{Holder, HolderId};
use crate::key::Key;
use crate::lease::Token;
use crate::mode::Mode;
use crate::time::{Epoch, Moment};

/// How much waiting one level of priority is worth.
pub const AGEING: Duration = Duration::from_secs(60);

/// How long a waiter may stay silent before its turn passes to the next. It keeps its ticket, so it
/// is served as soon as it asks again.
pub const TURN_LAPSE: Duration = Duration::from_secs(15);

/// How often a waiting process is heard: several times before its turn would lapse.
pub const HEARTBEAT: Duration = Duration::from_secs(5);

/// The number of a ticket in a key's queue. Later tickets have larger numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Ticket(pub u64);

/// Whether a waiter is present to take its turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Presence {
    /// It waits.
    Here,
    /// It was interrupted or is silent: its turn passes, and its ticket is kept for a grace period.
    Away,
}

/// One ticket and its owner.
///
/// Its JSON form is stored beside lock files; the names in it are part of that format.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Waiter {
    /// The ticket.
    pub ticket: Ticket,
    /// The waiter. The binding is that of the waiting process.
    pub holder: Holder,
    /// How the waiter is to hold the key.
    #[serde(default, skip_serializing_if = "is_exclusive")]
    pub mode: Mode,
    /// See [`crate::Claim::named`].
    pub named: bool,
    /// The priority.
    pub priority: Priority,
    /// When it arrived, in ticks.
    pub arrived: Duration,
    /// When the waiter was last heard, in ticks. As stored: when it took or resumed the ticket, if the store
    /// has another way to hear it; see [`crate::engine::Look::heard`].
    pub seen: Duration,
    /// The epoch of both.
    #[serde(rename = "boot")]
    pub epoch: Epoch,
    /// As stored: [`Presence::Away`] if it gave up its turn. As read by the engine: whether it is
    /// present now.
    #[serde(rename = "parked", with = "parked")]
    pub presence: Presence,
    /// See [`crate::Claim::within`].
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub within: Vec<Token>,
    /// The other keys that it waits for: it is granted all of them together, or none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub with: Vec<Key>,
}

fn is_exclusive(mode: &Mode) -> bool {
    mode.is_exclusive()
}

/// Stores [`Presence`] as a boolean.
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

/// The number by which waiters are ordered. The smallest is served first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Rank(i128, u64);

/// The rank of a claim that arrived at `arrived`.
pub fn rank(arrived: Duration, priority: Priority, ticket: Ticket) -> Rank {
    let came = i128::try_from(arrived.as_nanos()).unwrap_or(i128::MAX);
    let head_start = i128::try_from(AGEING.as_nanos())
        .unwrap_or(0)
        .saturating_mul(i128::from(priority.level()));
    Rank(came.saturating_sub(head_start), ticket.0)
}

impl Rank {
    /// Before that of every ticket.
    pub const FIRST: Self = Self(i128::MIN, 0);

    /// The arrival time in nanoseconds, minus what the priority is worth.
    pub fn order(self) -> i128 {
        self.0
    }

    /// The ticket, which decides between equals.
    pub fn ticket(self) -> Ticket {
        Ticket(self.1)
    }
}

impl Waiter {
    /// Its rank.
    pub fn rank(&self) -> Rank {
        rank(self.arrived, self.priority, self.ticket)
    }

    /// Whether the holder of this grant waits here: by its name, or in a command that runs under the grant.
    pub fn is_of(&self, holder: &HolderId, token: Token) -> bool {
        self.holder.id == *holder || self.within.contains(&token)
    }

    /// Whether it asked recently enough to be given a turn. Silence does not prove that it exited.
    pub fn heard_lately(&self, now: &Moment) -> bool {
        self.epoch.same(&now.epoch) && now.ticks.saturating_sub(self.seen) < TURN_LAPSE
    }

    /// Whether the grace period of an absent waiter's ticket has ended.
    pub fn forgotten(&self, now: &Moment, grace: Duration) -> bool {
        !self.epoch.same(&now.epoch) || now.ticks.saturating_sub(self.seen) >= grace.max(TURN_LAPSE)
    }
}

/// How many present waiters are ahead of `rank`.
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
