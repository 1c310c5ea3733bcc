//! Every verb of a store, written once over one atomic step of it.
//!
//! A store implements [`Look`] (what it holds) and [`Step`] (what may be changed), and says how a step
//! begins, commits and is retried; the verbs here do the rest. They contain every policy that is not
//! a pure rule of [`crate::decide`]: which ticket is written, who is woken, what a refusal reports, when
//! a wait would close a cycle, when the ticket of an absent waiter is dropped.
//!
//! | module | verbs |
//! |---|---|
//! | `acquire` | [`acquire()`], and its parts: [`grant`], [`refuse`] |
//! | `ask` | [`ask()`] |
//! | `lease` | [`renew()`], [`release()`], [`release_paths()`], [`force()`], [`reap()`] |
//! | `tickets` | [`withdraw()`], [`take_ticket`] |
//! | `settle` | [`settled`]: who is woken after a verb |
//! | `look` | [`fence()`], [`inspect()`], [`queue()`], [`view()`], [`busy()`] |
//! | `passing` | [`view_past_blocked`]: a claim passes the waiters that wait for the claimant |
//! | `view` | [`view_of`]: the leases and the tickets that a claim depends on |
//! | `query`, `cursor` | [`TicketQuery`], [`LeaseQuery`]: some tickets or leases of a key, and how a verb reads on |
//! | `path_waits` | which waiters for paths can proceed |
//! | `deadlock` | [`cycle_of`]: the cycle that a wait would close |
//! | [`Step::follow`] | the hook: what follows the leases of a store, as its tasks do |
//! | `store` | [`EngineStore`]: how a store runs them, which makes it a [`Store`](crate::Store) |
//!
//! # How a store runs a verb
//!
//! 1. Begin: take the lock or open the transaction, read the clock.
//! 2. Run the verb. It reads through [`Look`] and writes through [`Step`]. A store that can't write in
//!    place collects the writes.
//! 3. Commit. If another program changed what was read, drop the writes, look again and go to 2.
//! 4. After the commit, deliver the wake-ups.
//!
//! # Invariants
//!
//! 1. A verb reads a key before it writes it, in the same step.
//! 2. `end_lease` comes before the `put_lease` that takes the lease over, and `mint` directly before
//!    that `put_lease`: a store may derive the token from what the step has written so far.
//! 3. A verb whose answer is a refusal writes at most tickets.
//!
//! The engine does not block, has no clock and starts no thread.

mod acquire;
mod ask;
mod cursor;
mod deadlock;
mod lease;
mod look;
mod passing;
mod path_waits;
mod query;
mod settle;
mod store;
mod tickets;
mod view;

pub use acquire::{KeyDecision, Refused, acquire, grant, refuse};
pub use ask::ask;
pub use deadlock::cycle_of;
pub use lease::{ReapedKey, force, force_one, reap, release, release_paths, renew};
pub use look::{busy, fence, inspect, is_alive, queue, some_leases, view};
pub use passing::view_past_blocked;
pub use query::{LeaseQuery, TicketFilter, TicketQuery, TicketRange};
pub use settle::{Settling, settled, wake_next};
pub use store::{EngineStore, Sweep};
pub use tickets::{drop_ticket, take_ticket, withdraw, withdraw_in};
pub use view::view_of;

use std::time::Duration;

use crate::claim::Claim;
use crate::decide::{Claimant, Rules};
use crate::event::Event;
use crate::holder::{Holder, HolderId};
use crate::key::Key;
use crate::lease::{Lease, Token};
use crate::mode::Mode;
use crate::queue::{Presence, Rank, Ticket, Waiter};
use crate::store::Reason;
use crate::time::{Deadline, Moment};
use crate::verdict::{Evidence, Liveness};

/// What a step can read from its store.
pub trait Look {
    /// Why a step fails.
    type Error;

    /// The time, in the store's clock domain. The same for the whole step.
    fn now(&self) -> &Moment;

    /// Every lease that conflicts with a claim on this key, and whether its holder is alive.
    fn leases(&mut self, key: &Key) -> Result<Vec<(Lease, Liveness)>, Self::Error>;

    /// Some of them, by token. A store that can read these without the others does, and probes no other holder.
    fn some_leases(
        &mut self,
        key: &Key,
        query: LeaseQuery<'_>,
    ) -> Result<Vec<(Lease, Liveness)>, Self::Error> {
        Ok(query.select(self.leases(key)?))
    }

    /// The token and the slot of every lease of this key. A store that can tell without a probe does.
    fn slots(&mut self, key: &Key) -> Result<Vec<(Token, Option<u32>)>, Self::Error> {
        let leases = self.leases(key)?.into_iter();
        Ok(leases.map(|(lease, _)| (lease.token, lease.slot)).collect())
    }

    /// Every ticket for this key, in any order, with [`Waiter::presence`] as stored.
    fn tickets(&mut self, key: &Key) -> Result<Vec<Waiter>, Self::Error>;

    /// Some of the tickets for this key, in order. A store that can read these without the others does.
    fn some_tickets(
        &mut self,
        key: &Key,
        query: TicketQuery<'_>,
    ) -> Result<Vec<Waiter>, Self::Error> {
        Ok(query.select(self.tickets(key)?))
    }

    /// What each ticket for this key is for, in order. A store that can tell without the rest of the tickets does.
    fn summaries(&mut self, key: &Key) -> Result<Vec<TicketSummary>, Self::Error> {
        let mut tickets = self.tickets(key)?;
        tickets.sort_by_key(Waiter::rank);
        Ok(tickets.into_iter().map(TicketSummary::from).collect())
    }

    /// How many tickets are read at once. A longer queue is read in parts.
    fn window(&self) -> usize {
        16
    }

    /// How many waiters for this key rank before `rank`, and how many there are: those that have not given up their turn,
    /// as stored.
    fn count_waiters(&mut self, key: &Key, rank: Rank) -> Result<(usize, usize), Self::Error> {
        let mut tickets = self.tickets(key)?;
        tickets.retain(|waiter| waiter.presence == Presence::Here);
        let before = tickets.iter().filter(|waiter| waiter.rank() < rank);
        Ok((before.count(), tickets.len()))
    }

    /// Probes the process or session of a waiter.
    fn probe(&mut self, waiter: &Holder) -> Liveness;

    /// The leases of other keys that keep this claim from being granted: the lease of a task's section,
    /// in a store whose other programs work on a task only while they hold its section. None of them has
    /// ended.
    fn obstacles(&mut self, _claim: &Claim) -> Result<Vec<(Lease, Liveness)>, Self::Error> {
        Ok(Vec::new())
    }

    /// What can't be understood in the records of this key, as sentences that quote it.
    fn problems(&mut self, _key: &Key) -> Result<Vec<String>, Self::Error> {
        Ok(Vec::new())
    }

    /// When this waiter was last heard, in ticks. A store that can tell without a write to the ticket
    /// says so here: waiters that sleep then cost it nothing.
    fn heard(&mut self, waiter: &Waiter) -> Duration {
        waiter.seen
    }

    /// How long the ticket of a waiter that is away is kept; see [`Waiter::forgotten`].
    fn grace(&self) -> Duration;

    /// The rules to decide by.
    fn rules(&self) -> &Rules {
        &Rules::STANDARD
    }
}

/// What a ticket is for.
#[derive(Debug, Clone)]
pub struct TicketSummary {
    /// Its rank, with its number.
    pub rank: Rank,
    /// The waiter's name.
    pub holder: HolderId,
    /// Whether the name was chosen.
    pub named: bool,
    /// How it is to hold the key.
    pub mode: Mode,
    /// As stored: [`Presence::Away`] if it gave up its turn.
    pub presence: Presence,
}

impl TicketSummary {
    pub(super) fn claimant(&self) -> Claimant<'_> {
        Claimant {
            mode: &self.mode,
            holder: &self.holder,
            named: self.named,
        }
    }
}

impl From<Waiter> for TicketSummary {
    fn from(waiter: Waiter) -> Self {
        Self {
            rank: waiter.rank(),
            holder: waiter.holder.id,
            named: waiter.named,
            mode: waiter.mode,
            presence: waiter.presence,
        }
    }
}

/// How a lease is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Written {
    /// It is granted.
    Granted {
        /// The reason.
        reason: Reason,
        /// How long the claim had a ticket.
        waited: Option<Duration>,
    },
    /// The same holder claimed the key again: the lease is extended.
    Extended,
    /// Its holder renewed it.
    Renewed,
}

/// How a lease ends.
#[derive(Debug, Clone, PartialEq)]
pub enum Ended {
    /// Its holder released it.
    Released,
    /// Otherwise, with the evidence (G3).
    Proven(Evidence),
}

/// What happens to a key whose lease ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Then {
    /// It is free.
    Free,
    /// The same step grants it again: it must never appear free in between (G5).
    Granted,
}

/// What a step has just written about a key, as [`Step::follow`] is told of it.
#[derive(Debug, Clone, Copy)]
pub enum KeyChange<'a> {
    /// A lease was written.
    Written(&'a Lease, Written),
    /// A lease ended.
    Ended(&'a Lease, &'a Ended, Then),
    /// A waiter for this key left its queue or gave up its turn.
    Left(&'a Key),
}

/// One atomic step of a store: what the engine may change.
///
/// The verbs call `put_lease`, `end_lease`, `update_ticket` and `remove_ticket`. A store implements what these write, and
/// [`follow`](Self::follow) if it holds more than locks.
pub trait Step: Look {
    /// A new token for this key, larger than every earlier token of the key (G2).
    fn mint(&mut self, key: &Key) -> Result<Token, Self::Error>;

    /// When a lease that is granted or renewed now expires; `None` if it does not.
    fn expiry(&self, ttl: Duration) -> Option<Deadline> {
        Some(self.now().deadline(ttl))
    }

    /// Writes a lease, in the place of the one with the same key and token if there is one, and
    /// records the event.
    fn write_lease(&mut self, lease: &Lease, how: Written) -> Result<(), Self::Error>;

    /// Writes a lease, and what follows from it.
    fn put_lease(&mut self, lease: &Lease, how: Written) -> Result<(), Self::Error> {
        self.write_lease(lease, how)?;
        self.follow(KeyChange::Written(lease, how))
    }

    /// How many leases one step can end. A verb that ends more of a key takes several steps.
    fn most_ends(&self) -> usize {
        usize::MAX
    }

    /// Removes a lease and records how it ended. A store may go on showing it until the step is committed.
    fn erase_lease(&mut self, lease: &Lease, how: &Ended, then: Then) -> Result<(), Self::Error>;

    /// Ends a lease, and writes what follows from it.
    fn end_lease(&mut self, lease: &Lease, how: &Ended, then: Then) -> Result<(), Self::Error> {
        self.erase_lease(lease, how, then)?;
        self.follow(KeyChange::Ended(lease, how, then))
    }

    /// Writes a new ticket, ignoring [`Waiter::ticket`], and returns its number, which is larger than that
    /// of every earlier ticket for this key.
    fn add_ticket(&mut self, key: &Key, waiter: &Waiter) -> Result<Ticket, Self::Error>;

    /// Overwrites an existing ticket.
    fn write_ticket(&mut self, key: &Key, waiter: &Waiter) -> Result<(), Self::Error>;

    /// Overwrites a ticket, and writes what follows if its waiter gives up its turn.
    fn update_ticket(&mut self, key: &Key, waiter: &Waiter) -> Result<(), Self::Error> {
        self.write_ticket(key, waiter)?;
        match waiter.presence {
            Presence::Away => self.follow(KeyChange::Left(key)),
            Presence::Here => Ok(()),
        }
    }

    /// Removes a ticket, which need not exist.
    fn erase_ticket(&mut self, key: &Key, ticket: Ticket) -> Result<(), Self::Error>;

    /// Removes a ticket, and writes what follows from it.
    fn remove_ticket(&mut self, key: &Key, ticket: Ticket) -> Result<(), Self::Error> {
        self.erase_ticket(key, ticket)?;
        self.follow(KeyChange::Left(key))
    }

    /// What a store that holds more than locks writes when a key changes: the task room reacts to the leases of its keys.
    fn follow(&mut self, _change: KeyChange<'_>) -> Result<(), Self::Error> {
        Ok(())
    }

    /// The keys for which this holder waits by name, or for which a command waits that runs under
    /// this grant; with [`Token::NONE`], by name only.
    fn waits_of(&mut self, holder: &HolderId, token: Token) -> Result<Vec<Key>, Self::Error>;

    /// Whether a holder with this chosen name, or a grant with one of these tokens, may have a lease. A store that
    /// can't tell without reading every key says `true`.
    fn may_hold(
        &mut self,
        _named: Option<&HolderId>,
        _within: &[Token],
    ) -> Result<bool, Self::Error> {
        Ok(true)
    }

    /// Records that the holder of a lease is asked to release it. `false` if this store keeps no such records.
    fn record_request(&mut self, _event: &Event) -> Result<bool, Self::Error> {
        Ok(false)
    }

    /// Wakes a process once the step is committed, if it can be woken.
    fn wake(&mut self, holder: &Holder);

    /// Records that the claimant was heard now: what [`Look::heard`] answers from here on.
    fn hear(&mut self, key: &Key, waiter: &Waiter) -> Result<(), Self::Error> {
        self.update_ticket(key, waiter)
    }
}
