//! The [`Store`] trait: what every store implements, and the outcomes it answers with.
//!
//! The trait is small and synchronous. Busy, lost and gone are outcomes; an error means that the
//! store itself failed (G11).

use std::os::fd::BorrowedFd;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::claim::Claim;
use crate::cycle::Cycle;
use crate::error::StoreError;
use crate::event::Event;
use crate::holder::{Binding, Holder, HolderId};
use crate::key::Key;
use crate::lease::{Grant, Lease, Token};
use crate::queue::{Ticket, Waiter};
use crate::verdict::{Evidence, Verdict};

/// A point in a store's life. Only equality means anything.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Revision(pub u64);

/// Whose clock ends a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClockOwner {
    /// This machine's.
    Host,
    /// The store's own server.
    Server,
}

/// How waiters learn of a change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wakeup {
    /// They are told.
    Push,
    /// They look again.
    Poll,
}

/// What a store can do beyond the least.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is an independent yes or no"
)]
pub struct Capabilities {
    /// Any key, or only a fixed one.
    pub any_key: bool,
    /// Leases end by themselves.
    pub leases: bool,
    /// Tokens strictly grow.
    pub fencing: bool,
    /// Tickets are kept in order.
    pub queue: bool,
    /// Ends are recorded with their evidence.
    pub history: bool,
    /// Reachable from several machines.
    pub shared: bool,
    /// Whose clock counts.
    pub clock: ClockOwner,
    /// How waiters are woken.
    pub wakeup: Wakeup,
}

/// Why a key was granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reason {
    /// It was free.
    AcquiredNew,
    /// The same holder had it; it was extended, under the same token.
    AlreadyOwned,
    /// The time of the last holder had run out.
    ClaimedExpired,
    /// The last holder was proven dead.
    ClaimedDead,
}

impl Reason {
    /// The one word for it, as stored and shown.
    pub fn word(self) -> &'static str {
        match self {
            Self::AcquiredNew => "acquired_new",
            Self::AlreadyOwned => "already_owned",
            Self::ClaimedExpired => "claimed_expired",
            Self::ClaimedDead => "claimed_dead",
        }
    }
}

/// A place in the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// The ticket.
    pub ticket: Ticket,
    /// How many go first.
    pub ahead: usize,
    /// Whether the ticket is an earlier one of the same holder, who was cut off.
    pub resumed: bool,
}

/// Who stands in the way.
#[derive(Debug, Clone)]
pub struct Busy {
    /// The lease that stands, and the judgement on it. `None` when the key is free but somebody
    /// else is first in the queue.
    pub lease: Option<(Lease, Verdict)>,
    /// Who comes directly before us in the queue.
    pub behind: Option<Holder>,
    /// Our place in the queue, if we took one.
    pub place: Option<Place>,
    /// How many wait, ourselves not counted.
    pub waiting: usize,
    /// The state that was seen, for [`Store::wait`].
    pub revision: Revision,
}

/// The answer to a claim.
#[derive(Debug, Clone)]
#[must_use]
pub enum Acquired {
    /// The key is ours.
    Granted {
        /// The lease.
        lease: Lease,
        /// Why.
        reason: Reason,
    },
    /// It is not.
    Busy(Box<Busy>),
    /// Waiting for it would never end, so no ticket was taken.
    Deadlock(Cycle),
}

/// The answer to a renewal.
#[derive(Debug, Clone)]
#[must_use]
pub enum Renewed {
    /// The lease goes on.
    Extended(Lease),
    /// It is over; who has the key now, if anybody.
    Lost(Option<Lease>),
}

/// The answer to a release.
#[derive(Debug, Clone)]
#[must_use]
pub enum Released {
    /// The key is free.
    Freed(Lease),
    /// The grant had ended before; who has the key now, if anybody.
    AlreadyGone(Option<Lease>),
}

/// The answer to a release by force.
#[derive(Debug, Clone)]
#[must_use]
pub enum Forced {
    /// The key is free.
    Freed(Lease),
    /// Nobody held it.
    NotHeld,
}

/// Whether a grant may still write.
#[derive(Debug, Clone)]
#[must_use]
pub enum Fenced {
    /// It is the newest grant of its key, and it stands.
    Current(Lease),
    /// It is not; the lease on record, with the judgement on it.
    Stale(Option<(Lease, Verdict)>),
}

/// Whether to free what is over, or only to tell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reap {
    /// Free it and record why.
    Free,
    /// Change nothing.
    DryRun,
}

/// A lease that was over.
#[derive(Debug, Clone)]
pub struct Reaped {
    /// The lease.
    pub lease: Lease,
    /// Why it was over.
    pub evidence: Evidence,
}

/// What a wait ended with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waited {
    /// Something happened: look again.
    Changed,
    /// Nothing was heard in time.
    TimedOut,
}

/// All that a store knows of one key.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The key.
    pub key: Key,
    /// The lease on record and the judgement on it.
    pub lease: Option<(Lease, Verdict)>,
    /// Who waits, in order.
    pub queue: Vec<Waiter>,
    /// The state that was seen.
    pub revision: Revision,
}

/// Which events to tell.
#[derive(Debug, Clone, Default)]
pub struct HistoryQuery {
    /// Of one key only.
    pub key: Option<Key>,
    /// Since then only.
    pub since: Option<Timestamp>,
    /// The newest so many; all of them if `None`.
    pub limit: Option<usize>,
}

/// Where locks live.
///
/// # What every implementation must do
///
/// - Each verb is atomic: another process sees all of it or nothing, also if this process is
///   killed in the middle (G5, G10).
/// - `acquire`, `renew`, `release` and `fence` follow [`crate::decide`]. A store never invents a
///   rule of its own.
/// - A verb that ends a lease other than by release records the evidence (G3).
/// - After a change that lets somebody go on, that waiter is woken (G9).
/// - An error means that nothing was changed, unless its kind is `OutcomeUnknown` (G11).
pub trait Store: Send + Sync {
    /// What this store can do.
    fn capabilities(&self) -> Capabilities;

    /// What ties a lease or a ticket to this process, so that its end can be proven. The same for
    /// as long as this store object lives.
    fn this_process(&self) -> Result<Binding, StoreError>;

    /// What a command must inherit so that a lease lasts until the command is gone too.
    fn inherited_fd(&self) -> Option<BorrowedFd<'_>>;

    /// Asks for a key. With [`crate::Patience::Queue`], busy leaves a ticket.
    fn acquire(&self, claim: &Claim) -> Result<Acquired, StoreError>;

    /// Moves the end of a lease to `ttl` from now. A lease whose time ran out goes on if nobody
    /// took the key meanwhile.
    fn renew(&self, grant: &Grant, ttl: Duration) -> Result<Renewed, StoreError>;

    /// Gives a key back.
    fn release(&self, grant: &Grant) -> Result<Released, StoreError>;

    /// Gives up a ticket.
    fn leave(&self, key: &Key, ticket: Ticket) -> Result<(), StoreError>;

    /// Stops waiting, but keeps the place for a grace time, for the same holder to come back to.
    /// The turn passes to the next at once. A store that keeps no places gives the ticket up.
    fn park(&self, key: &Key, ticket: Ticket) -> Result<(), StoreError> {
        self.leave(key, ticket)
    }

    /// Takes a key away from whoever holds it, and records who did.
    fn force(&self, key: &Key, by: &HolderId, reason: Option<&str>) -> Result<Forced, StoreError>;

    /// Whether the grant with this token may still write (G7).
    fn fence(&self, key: &Key, token: Token) -> Result<Fenced, StoreError>;

    /// All that is known of one key.
    fn inspect(&self, key: &Key) -> Result<Snapshot, StoreError>;

    /// Every key that is held or waited for, by name.
    fn list(&self) -> Result<Vec<Snapshot>, StoreError>;

    /// Ends every lease that is over, with the evidence.
    fn reap(&self, reap: Reap) -> Result<Vec<Reaped>, StoreError>;

    /// What happened, oldest first.
    fn history(&self, query: &HistoryQuery) -> Result<Vec<Event>, StoreError>;

    /// Blocks until something happened after `seen`, or `timeout` has passed: the one verb that
    /// may block. It may return early; it must not return late because of a change it missed.
    fn wait(&self, watched: &Watched<'_>, timeout: Duration) -> Result<Waited, StoreError>;

    /// Makes every `wait` of this store object return, from any thread: those under way, and those
    /// that begin with a revision seen before this call.
    fn wake(&self);
}

/// What [`Store::wait`] looks out for.
#[derive(Debug, Clone)]
pub struct Watched<'a> {
    /// The key.
    pub key: &'a Key,
    /// The state that was seen last.
    pub seen: Revision,
    /// Whose end, however it comes, is worth waking up for: the holder for the first in the
    /// queue, the one before us for everybody else.
    pub ahead: Vec<&'a Holder>,
}

impl Busy {
    /// What to wait for after this answer.
    pub fn watch<'a>(&'a self, key: &'a Key) -> Watched<'a> {
        let holder = self.lease.as_ref().map(|(lease, _)| &lease.holder);
        Watched {
            key,
            seen: self.revision,
            ahead: self.behind.as_ref().or(holder).into_iter().collect(),
        }
    }
}
