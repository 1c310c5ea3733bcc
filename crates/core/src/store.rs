//! The [`Store`] trait that every store implements, and the outcomes of its verbs.
//!
//! The trait is small and synchronous. Busy, lost and gone are outcomes; an error means that the
//! store itself failed (G11). Every call has a deadline, so that no store can block forever.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::slice;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::claim::Claim;
use crate::cycle::Cycle;
use crate::engine::LeaseQuery;
use crate::error::{ErrorKind, StoreError};
use crate::event::{Event, EventKind};
use crate::holder::{Binding, Holder, HolderId};
use crate::key::Key;
use crate::lease::{Grant, Lease, Token};
use crate::path_pattern::PathPattern;
use crate::queue::{Ticket, Waiter};
use crate::time::Deadline;
use crate::verdict::{Evidence, Verdict};

/// A state of a store. Revisions can only be compared for equality.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct Revision(pub u64);

/// What a store can do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[expect(clippy::struct_excessive_bools, reason = "each is a capability")]
pub struct Capabilities {
    /// It holds any key, not only those of its protocol.
    pub any_key: bool,
    /// Its leases expire. Without this a lease ends only by release, force, or the proven death of
    /// its holder, and a time to live is refused.
    pub expiry: bool,
    /// A key can have several holders: [`crate::Mode::Shared`] and [`crate::Mode::Slots`].
    pub modes: bool,
    /// Several keys can be granted in one step: [`Store::acquire_all`].
    pub several: bool,
}

impl Capabilities {
    /// A store that can do everything.
    pub const ALL: Self = Self {
        any_key: true,
        expiry: true,
        modes: true,
        several: true,
    };

    /// The same, for the keys of a protocol only, one at a time.
    #[must_use]
    pub fn only_some_keys(mut self) -> Self {
        self.any_key = false;
        self.several = false;
        self
    }

    /// The same, with one holder for each key.
    #[must_use]
    pub fn only_exclusive(mut self) -> Self {
        self.modes = false;
        self
    }

    /// The same, without expiry: a lease needs a process that it ends with.
    #[must_use]
    pub fn without_expiry(mut self) -> Self {
        self.expiry = false;
        self
    }
}

/// Why a key was granted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Reason {
    /// It was free.
    AcquiredNew,
    /// The same holder had it; it was extended, under the same token.
    AlreadyOwned,
    /// The lease of the last holder had expired.
    ClaimedExpired,
    /// The last holder was proven dead.
    ClaimedDead,
    /// The same holder had it in another mode, and has a new token now.
    Upgraded,
}

impl Reason {
    /// The word that stands for it in stores and output.
    pub fn word(self) -> &'static str {
        match self {
            Self::AcquiredNew => "acquired_new",
            Self::AlreadyOwned => "already_owned",
            Self::ClaimedExpired => "claimed_expired",
            Self::ClaimedDead => "claimed_dead",
            Self::Upgraded => "upgraded",
        }
    }
}

/// A waiter's position in a queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueuePosition {
    /// The ticket.
    pub ticket: Ticket,
    /// How many waiters are ahead.
    pub ahead: usize,
    /// Whether the ticket is from an earlier, interrupted wait of the same holder.
    pub resumed: bool,
}

/// Why there is no task to take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shortage {
    /// Some are ready, but other runners hold them or their sections, or are first in the queue.
    Locked,
    /// Some failed and will be retried.
    Later {
        /// When the first of them will be.
        at: Timestamp,
    },
    /// The remaining tasks depend on tasks that no runner works on.
    Blocked,
    /// The only ready tasks are ones that the runner leaves to others.
    LeftToOthers,
    /// No open task is left.
    NothingLeft,
}

/// Why a key was not granted, and what to wait for.
#[derive(Debug, Clone)]
pub struct Busy {
    /// The key that is busy. For a claim on several keys, the first one that is.
    pub key: Key,
    /// The conflicting leases, with a verdict on each holder. Empty when the key is free but another
    /// waiter is first in the queue.
    pub leases: Vec<(Lease, Verdict)>,
    /// The waiter directly before the caller in the queue.
    pub behind: Option<Holder>,
    /// The caller's position in the queue, if it took a ticket.
    pub position: Option<QueuePosition>,
    /// The number of waiters, not counting the caller.
    pub waiting: usize,
    /// Why there is no task, for a claim on any task.
    pub shortage: Option<Shortage>,
    /// The holders and waiters whose exit should wake the caller.
    pub watch: Vec<Holder>,
    /// When to poll even without a wake-up: a lease expires then, which wakes no waiter.
    pub look_again: Option<Deadline>,
    /// The state that was seen, for [`Records::wait`].
    pub revision: Revision,
    /// The other keys that are busy, for a claim on several. `watch` and `look_again` are about all of them.
    pub others: Vec<Busy>,
}

impl Busy {
    /// The first conflicting lease, with the verdict on its holder: one that lasts, if there is one.
    pub fn lease(&self) -> Option<&(Lease, Verdict)> {
        let lasts = |(_, verdict): &&(Lease, Verdict)| verdict.ended().is_none();
        let lasting = self.leases.iter().find(lasts);
        lasting.or_else(|| self.leases.first())
    }

    /// What to wait for after this answer.
    pub fn watched(&self) -> Watched<'_> {
        Watched {
            key: &self.key,
            seen: self.revision,
            held: self.shortage.is_none().then(|| self.tokens()),
            others: self
                .others
                .iter()
                .map(|other| (&other.key, other.tokens()))
                .collect(),
            ahead: self.watch.iter().collect(),
        }
    }

    fn tokens(&self) -> Vec<Token> {
        self.leases.iter().map(|(lease, _)| lease.token).collect()
    }
}

/// A lease that was granted.
#[derive(Debug, Clone)]
pub struct Granted {
    /// The lease.
    pub lease: Lease,
    /// Why it was granted.
    pub reason: Reason,
}

/// The answer to a claim, all the way from the store to the caller.
#[derive(Debug, Clone)]
#[must_use]
pub enum Acquired<T = Granted> {
    /// The claim was granted.
    Granted(T),
    /// The key is busy.
    Busy(Box<Busy>),
    /// The wait would never end, so no ticket was taken.
    Deadlock(Cycle),
    /// The caller cancelled the wait. Stores never return this.
    Cancelled,
}

impl<T> Acquired<T> {
    /// The same answer with another kind of grant.
    pub fn map<U>(self, with: impl FnOnce(T) -> U) -> Acquired<U> {
        let Ok(answer) = self.try_map(|granted| Ok::<U, Infallible>(with(granted)));
        answer
    }

    /// The same answer with another kind of grant, unless that fails.
    pub fn try_map<U, E>(self, with: impl FnOnce(T) -> Result<U, E>) -> Result<Acquired<U>, E> {
        Ok(match self {
            Self::Granted(granted) => Acquired::Granted(with(granted)?),
            Self::Busy(busy) => Acquired::Busy(busy),
            Self::Deadlock(cycle) => Acquired::Deadlock(cycle),
            Self::Cancelled => Acquired::Cancelled,
        })
    }

    /// The same answer, given at this revision.
    pub fn seen_at(mut self, revision: Revision) -> Self {
        if let Self::Busy(busy) = &mut self {
            busy.revision = revision;
        }
        self
    }
}

/// The answer to a renewal.
#[derive(Debug, Clone)]
#[must_use]
pub enum Renewed {
    /// The lease was extended.
    Extended(Lease),
    /// It has ended. These are the leases on record now.
    Lost(Vec<Lease>),
}

/// The answer to a release.
#[derive(Debug, Clone)]
#[must_use]
pub enum Released {
    /// The key is free.
    Freed(Lease),
    /// The grant had ended before. These are the leases on record now.
    AlreadyGone(Vec<Lease>),
}

/// The answer to a release by force.
#[derive(Debug, Clone)]
#[must_use]
pub enum Forced {
    /// These leases were ended.
    Freed(Vec<Lease>),
    /// There was none.
    NotHeld,
}

/// Whether a grant may still write.
#[derive(Debug, Clone)]
#[must_use]
pub enum Fenced {
    /// It has not ended.
    Current(Lease),
    /// It has ended. These are the leases on record, with a verdict on each holder.
    Stale(Vec<(Lease, Verdict)>),
}

/// Whether to end leases, or only to report them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reap {
    /// End them and record why.
    Free,
    /// Change nothing.
    DryRun,
}

/// A lease that had expired, or whose holder was dead.
#[derive(Debug, Clone)]
pub struct Reaped {
    /// The lease.
    pub lease: Lease,
    /// Why it ended.
    pub evidence: Evidence,
}

/// What happens to the tickets of a claim that no longer waits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Withdrawal {
    /// They are removed.
    Leave,
    /// They are kept for a grace period, so that the same holder can resume them. The turn passes to the next waiter at
    /// once.
    Park,
}

/// Why a wait returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waited {
    /// Something changed: ask again.
    Changed,
    /// No wake-up came in time.
    TimedOut,
}

/// A store's records of one key.
#[derive(Debug, Clone)]
pub struct Snapshot {
    /// The key.
    pub key: Key,
    /// The leases on record, with a verdict on each holder.
    pub leases: Vec<(Lease, Verdict)>,
    /// The waiters, in order.
    pub queue: Vec<Waiter>,
    /// Tickets that no longer count: their waiters were away for longer than the grace period. The next claim that queues
    /// drops them, and so does [`Store::reap`].
    pub forgotten: Vec<Waiter>,
    /// What can't be understood in these records, as sentences that quote it.
    pub problems: Vec<String>,
    /// The state that was seen.
    pub revision: Revision,
}

impl Snapshot {
    /// The first lease on record, with the verdict on its holder.
    pub fn lease(&self) -> Option<&(Lease, Verdict)> {
        self.leases.first()
    }

    /// Whether the key is neither held nor waited for.
    pub fn is_idle(&self) -> bool {
        self.leases.is_empty() && self.queue.is_empty()
    }

    /// Whether the store has a lease or a ticket of this key, even one that no longer counts.
    pub fn is_on_record(&self) -> bool {
        !self.is_idle() || !self.forgotten.is_empty()
    }

    /// The leases that have ended, with the proof.
    pub fn ended(&self) -> impl Iterator<Item = Reaped> {
        self.leases.iter().filter_map(|(lease, verdict)| {
            Some(Reaped {
                lease: lease.clone(),
                evidence: verdict.ended()?.clone(),
            })
        })
    }
}

/// Which events to return.
#[derive(Debug, Clone, Default)]
pub struct HistoryQuery {
    /// Only of this key.
    pub key: Option<Key>,
    /// Only since this time.
    pub since: Option<Timestamp>,
    /// Only events with a larger number than this. Numbers begin at 1.
    pub after: u64,
    /// At most this many, the newest; all of them if `None`.
    pub limit: Option<usize>,
}

impl HistoryQuery {
    /// The newest matching events. `events` and the result are ordered from the oldest to the newest.
    pub fn select(&self, events: impl IntoIterator<Item = Event>) -> Vec<Event> {
        let matches = |event: &Event| {
            self.key.as_ref().is_none_or(|key| event.key == *key)
                && self.since.is_none_or(|since| event.at >= since)
                && event.id > self.after
        };
        let mut events: Vec<Event> = events.into_iter().filter(matches).collect();
        let too_many = events
            .len()
            .saturating_sub(self.limit.unwrap_or(usize::MAX));
        events.split_off(too_many)
    }
}

/// What the holders of these leases are asked: the events of kind [`EventKind::Asked`] that name one of their tokens,
/// oldest first. They count until the lease ends.
pub fn requests<'a>(
    store: &dyn Store,
    leases: impl IntoIterator<Item = &'a Lease>,
    by: Instant,
) -> Result<Vec<Event>, StoreError> {
    let mut keys: BTreeMap<&Key, (Option<Timestamp>, Vec<Token>)> = BTreeMap::new();
    for lease in leases {
        let (since, tokens) = keys
            .entry(&lease.key)
            .or_insert_with(|| (lease.since(), Vec::new()));
        *since = (*since).min(lease.since());
        tokens.push(lease.token);
    }
    let mut requests = Vec::new();
    for (key, (since, tokens)) in keys {
        let query = HistoryQuery {
            key: Some(key.clone()),
            since,
            ..HistoryQuery::default()
        };
        let events = store.history(&query, by)?;
        let asked = |event: &Event| event.kind == EventKind::Asked && tokens.contains(&event.token);
        requests.extend(events.into_iter().filter(asked));
    }
    requests.sort_by_key(|event| event.id);
    Ok(requests)
}

/// What a store tells without a decision, and how it waits.
pub trait Records: Send + Sync {
    /// What this store can do.
    fn capabilities(&self) -> Capabilities;

    /// What ties a lease or a ticket to this process, so that its exit can be proven. The same for the
    /// lifetime of this store object.
    fn this_process(&self) -> Result<Binding, StoreError>;

    /// Every key that has a lease or a ticket, by name; see [`Snapshot::is_on_record`].
    fn on_record(&self, by: Instant) -> Result<Vec<Snapshot>, StoreError>;

    /// These keys and every key that is waited for, by name: what a chain of waits that begins at these keys can reach. A
    /// store that can't read them without the others returns all.
    fn list_with(&self, _keys: &[Key], by: Instant) -> Result<Vec<Snapshot>, StoreError> {
        self.on_record(by)
    }

    /// The names that begin with one of these texts, of the keys that are held or waited for, in order. A store that can
    /// read them without the records does. Then the name of a key whose waiters no longer count may be among them.
    fn list_names(&self, beginnings: &[&str], by: Instant) -> Result<Vec<Key>, StoreError> {
        let snapshots = listed(self.on_record(by)?);
        let keys = snapshots.into_iter().map(|snapshot| snapshot.key);
        let begins = |key: &Key| beginnings.iter().any(|it| key.as_str().starts_with(it));
        Ok(keys.filter(begins).collect())
    }

    /// The recorded events, oldest first.
    fn history(&self, query: &HistoryQuery, by: Instant) -> Result<Vec<Event>, StoreError>;

    /// What is recorded in the time of this query, but can't be understood, and is left out of [`Records::history`]: a
    /// sentence for each event. Its key is not known, so it may be any. A store that fails at such an event instead has none.
    fn damaged_events(
        &self,
        _query: &HistoryQuery,
        _by: Instant,
    ) -> Result<Vec<String>, StoreError> {
        Ok(Vec::new())
    }

    /// Blocks until something changes after `seen`, or `timeout` has passed: the only verb that blocks on
    /// purpose. It may return early. It must not miss a change and therefore return late. Refused by a store that was opened
    /// read-only: a process that can be woken has a liveness lock.
    fn wait(&self, watched: &Watched<'_>, timeout: Duration) -> Result<Waited, StoreError>;

    /// Makes every `wait` of this store object return, from any thread: those under way, and those
    /// that begin with a revision seen before this call.
    fn wake(&self);
}

/// A store of leases.
///
/// # What every implementation must do
///
/// - Each verb is atomic: another process sees all of it or nothing, even if this process is killed
///   halfway (G5, G10).
/// - Verbs that decide run the [`engine`](crate::engine). A store has no rules of its own.
/// - A verb that ends a lease other than by release records the evidence (G3).
/// - After a change that lets a waiter proceed, the store wakes that waiter (G9).
/// - A verb returns when `by` has passed, with [`crate::ErrorKind::Contended`] if it could not begin.
/// - An error means that nothing was changed, unless its kind is `OutcomeUnknown` (G11).
///
/// A claim, a renewal and a release are about any number of keys. One key is a list of one: [`Store::acquire`],
/// [`Store::renew`], [`Store::release`] and [`Store::withdraw`] only spare the list.
pub trait Store: Records {
    /// Claims keys: all of them are granted in one step, or none. The claims differ in nothing but their keys,
    /// and no key is named twice. With [`crate::Patience::Queue`], a busy answer leaves a ticket for each key.
    /// More than one is refused by a store without [`Capabilities::several`].
    fn acquire_all(
        &self,
        claims: &[Claim],
        by: Instant,
    ) -> Result<Acquired<Vec<Granted>>, StoreError>;

    /// Moves the end of leases to `ttl` from now, in one step. An expired lease is extended if no other holder has taken the
    /// key. Those that have ended do not keep the others from being extended.
    fn renew_all(
        &self,
        grants: &[Grant],
        ttl: Duration,
        by: Instant,
    ) -> Result<Vec<Renewed>, StoreError>;

    /// Releases keys in one step. Those whose lease has ended do not keep the others from being released.
    fn release_all(&self, grants: &[Grant], by: Instant) -> Result<Vec<Released>, StoreError>;

    /// Withdraws the tickets of claims in one step, or parks them.
    fn withdraw_all(
        &self,
        claims: &[Claim],
        then: Withdrawal,
        by: Instant,
    ) -> Result<(), StoreError>;

    /// [`Store::acquire_all`] of one key.
    fn acquire(&self, claim: &Claim, by: Instant) -> Result<Acquired, StoreError> {
        let answer = self.acquire_all(slice::from_ref(claim), by)?;
        answer.try_map(only)
    }

    /// [`Store::renew_all`] of one key.
    fn renew(&self, grant: &Grant, ttl: Duration, by: Instant) -> Result<Renewed, StoreError> {
        only(self.renew_all(slice::from_ref(grant), ttl, by)?)
    }

    /// [`Store::release_all`] of one key.
    fn release(&self, grant: &Grant, by: Instant) -> Result<Released, StoreError> {
        only(self.release_all(slice::from_ref(grant), by)?)
    }

    /// [`Store::withdraw_all`] of one key.
    fn withdraw(&self, claim: &Claim, then: Withdrawal, by: Instant) -> Result<(), StoreError> {
        self.withdraw_all(slice::from_ref(claim), then, by)
    }

    /// Gives back some patterns of each of these reservations, and keeps the rest of each under a new token, in one step.
    /// Those that have ended do not keep the others from being given back. On etcd one step ends at most 12 and keeps the
    /// rest of one; more take several, and an error after the first says how many were given back.
    fn release_paths(
        &self,
        parts: &[(Grant, Vec<PathPattern>)],
        by: Instant,
    ) -> Result<Vec<Released>, StoreError>;

    /// Ends the leases of a key by force, all of them or those of one holder, and records who did it.
    fn force(
        &self,
        key: &Key,
        of: Option<&HolderId>,
        forced_by: &HolderId,
        reason: Option<&str>,
        by: Instant,
    ) -> Result<Forced, StoreError>;

    /// Ends one lease by force, and records who did it.
    fn force_one(
        &self,
        grant: &Grant,
        forced_by: &HolderId,
        reason: Option<&str>,
        by: Instant,
    ) -> Result<Forced, StoreError>;

    /// Asks the holders of a key to release it, and records that: all of them but the one that asks, or only those with
    /// these tokens. Returns their leases. Nothing is taken from them. [`requests`] finds what was asked.
    fn ask(
        &self,
        key: &Key,
        only: Option<&[Token]>,
        asker: &HolderId,
        note: Option<&str>,
        by: Instant,
    ) -> Result<Vec<Lease>, StoreError>;

    /// Whether the grant with this token may still write (G7).
    fn fence(&self, key: &Key, token: Token, by: Instant) -> Result<Fenced, StoreError>;

    /// The store's records of one key.
    fn inspect(&self, key: &Key, by: Instant) -> Result<Snapshot, StoreError>;

    /// Some of the leases of one key, by token. A store that can read these without the others does.
    fn some_leases(
        &self,
        key: &Key,
        query: LeaseQuery<'_>,
        by: Instant,
    ) -> Result<Vec<(Lease, Verdict)>, StoreError> {
        Ok(query.select(self.inspect(key, by)?.leases))
    }

    /// Every key that is held or waited for, or whose records can't be understood, by name.
    fn list(&self, by: Instant) -> Result<Vec<Snapshot>, StoreError> {
        Ok(listed(self.on_record(by)?))
    }

    /// Ends expired leases and those of dead holders, and records why.
    fn reap(&self, reap: Reap, by: Instant) -> Result<Vec<Reaped>, StoreError>;

    /// The same for one key.
    fn reap_key(&self, key: &Key, by: Instant) -> Result<Vec<Reaped>, StoreError> {
        let mut reaped = self.reap(Reap::Free, by)?;
        reaped.retain(|one| one.lease.key == *key);
        Ok(reaped)
    }
}

/// Those that are held or waited for, or whose records can't be understood.
fn listed(mut snapshots: Vec<Snapshot>) -> Vec<Snapshot> {
    snapshots.retain(|snapshot| !snapshot.is_idle() || !snapshot.problems.is_empty());
    snapshots
}

/// The answer of a store that was asked about one key.
fn only<T>(answers: Vec<T>) -> Result<T, StoreError> {
    let no_answer = || StoreError::new(ErrorKind::Damaged, "the store gave no answer for the key");
    answers.into_iter().next().ok_or_else(no_answer)
}

/// What [`Records::wait`] waits for.
#[derive(Debug, Clone)]
pub struct Watched<'a> {
    /// The key.
    pub key: &'a Key,
    /// The state that was seen last.
    pub seen: Revision,
    /// The tokens of the leases that were seen, if the caller waits for their end only: a store need not
    /// return because something else changed.
    pub held: Option<Vec<Token>>,
    /// The other keys, each with the tokens of the leases that were seen: the end of any of these leases ends the wait.
    pub others: Vec<(&'a Key, Vec<Token>)>,
    /// The holders and waiters whose exit should wake the caller: the holder if the caller is first in the
    /// queue, otherwise the waiter directly ahead.
    pub ahead: Vec<&'a Holder>,
}
