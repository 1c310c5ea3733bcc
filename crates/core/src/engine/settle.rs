//! The settling pass: who looks again because of what a verb has changed (G9).
//!
//! A verb writes through [`Settling`], which notes what may concern a waiter. When the verb is done, one pass over the
//! notes wakes these waiters and no others:
//!
//! | noted | woken |
//! |---|---|
//! | leases of a key ended | the first waiters that can hold the key beside the leases that are left |
//! | a lease was granted that others can be granted beside | the next waiter, if it can; its own grant wakes the next one in turn |
//! | a waiter left, or came back or came in between | the waiter behind it: it is first, or has another process to watch |
//! | the same for a key with reservations of paths | every waiter that conflicted with what ended, and with nothing else; and those that watched a waiter that left |
//! | a claim was refused | the waiters that go first: they may have missed their wake-up; and the holders that the claim waits for, where they wait for its free keys |
//! | a name was granted a key | its other processes that wait: the grant may have closed a cycle |
//!
//! The pass reads the front of the queue and a few leases. A store may go on showing leases that the step has ended: they
//! are noted, and do not count.

use std::collections::BTreeMap;
use std::ops::{Deref, DerefMut};

use crate::claim::{Claim, Patience};
use crate::decide::{self, Claimant, Decision, View, compatible_with};
use crate::holder::HolderId;
use crate::key::Key;
use crate::lease::{Lease, Token};
use crate::mode::Mode;
use crate::path_pattern::Budget;
use crate::queue::{Ticket, Waiter};
use crate::verdict::Liveness;

use super::acquire::KeyDecision;
use super::cursor::{Cursor, FIRST};
use super::look::{is_here, standing};
use super::path_waits::WaitsForPaths;
use super::view::neighbours;
use super::{Ended, LeaseQuery, Look, Step, Then, TicketFilter, TicketQuery, Written};

/// A step under way, and what its verb has changed so far. It reads as the step does.
pub struct Settling<'a, S> {
    pub(super) inner: &'a mut S,
    keys: BTreeMap<Key, Changes>,
    refused: Vec<KeyDecision>,
    granted_to: Vec<HolderId>,
}

/// What a verb has changed of one key.
#[derive(Default)]
struct Changes {
    /// The leases that ended or were replaced.
    ended: Vec<Lease>,
    /// The lease that was granted last.
    granted: Option<Lease>,
    /// The waiters for paths that left.
    left: Vec<Waiter>,
    /// The waiters behind each ticket whose waiter left or came.
    behind: Vec<Vec<Waiter>>,
}

/// Runs a verb, or a part of one, and wakes the waiters that its changes concern.
pub fn settled<S: Step, T>(
    step: &mut S,
    verb: impl FnOnce(&mut Settling<'_, S>) -> Result<T, S::Error>,
) -> Result<T, S::Error> {
    let _budget = Budget::begin();
    let mut settling = Settling {
        inner: step,
        keys: BTreeMap::new(),
        refused: Vec::new(),
        granted_to: Vec::new(),
    };
    let answer = verb(&mut settling)?;
    let Settling {
        inner: step,
        keys,
        refused,
        granted_to,
    } = settling;
    for (key, changes) in keys {
        changes.settle(step, &key)?;
    }
    settle_refused(step, &refused)?;
    for name in granted_to {
        for key in step.waits_of(&name, Token::NONE)? {
            let own = TicketQuery::all(TicketFilter::Of(&name));
            for waiter in step.some_tickets(&key, own)? {
                step.wake(&waiter.holder);
            }
        }
    }
    Ok(answer)
}

impl<S> Deref for Settling<'_, S> {
    type Target = S;

    fn deref(&self) -> &S {
        self.inner
    }
}

impl<S> DerefMut for Settling<'_, S> {
    fn deref_mut(&mut self) -> &mut S {
        self.inner
    }
}

impl<S: Step> Settling<'_, S> {
    fn changes(&mut self, key: &Key) -> &mut Changes {
        self.keys.entry(key.clone()).or_default()
    }

    /// Ends a lease. A holder that did not release it itself is woken.
    pub fn end_lease(&mut self, lease: &Lease, how: &Ended, then: Then) -> Result<(), S::Error> {
        self.inner.end_lease(lease, how, then)?;
        if let Ended::Proven(_) = how {
            self.inner.wake(&lease.holder);
        }
        self.changes(&lease.key).ended.push(lease.clone());
        Ok(())
    }

    /// Writes a lease.
    pub(super) fn put_lease(&mut self, lease: &Lease, how: Written) -> Result<(), S::Error> {
        self.inner.put_lease(lease, how)?;
        if how != Written::Renewed {
            self.changes(&lease.key).granted = Some(lease.clone());
        }
        Ok(())
    }

    /// Notes that a waiter gave up its turn.
    pub(super) fn note_left(&mut self, key: &Key, waiter: &Waiter) -> Result<(), S::Error> {
        if waiter.mode.paths().is_some() {
            self.changes(key).left.push(waiter.clone());
        } else {
            let behind = behind(self.inner, key, waiter)?;
            self.changes(key).behind.push(behind);
        }
        Ok(())
    }

    /// Notes that a waiter has taken its place before these.
    pub(super) fn note_came(&mut self, key: &Key, behind: &[Waiter]) {
        if !behind.is_empty() {
            self.changes(key).behind.push(behind.to_vec());
        }
    }

    /// Notes that a claim was refused.
    pub(super) fn note_refused(&mut self, wanted: Vec<KeyDecision>) {
        self.refused.extend(wanted);
    }

    /// Notes that a chosen name was granted a key.
    pub(super) fn note_granted_to(&mut self, name: &HolderId) {
        if !self.granted_to.contains(name) {
            self.granted_to.push(name.clone());
        }
    }
}

impl Changes {
    fn settle<S: Step>(&self, step: &mut S, key: &Key) -> Result<(), S::Error> {
        for behind in &self.behind {
            wake_next(step, behind);
        }
        let has_paths = |lease: &Lease| lease.mode.paths().is_some();
        let granted = self.granted.as_ref();
        if !self.left.is_empty() {
            return self.settle_paths(step, key);
        }
        let is_over = match granted {
            // Beside an exclusive lease there is no other, and beside one more reservation not more of them than before.
            Some(lease) => lease.mode.is_exclusive() || has_paths(lease) && self.ended.is_empty(),
            None => self.ended.is_empty(),
        };
        if is_over {
            return Ok(());
        }
        let mut cursor = Cursor::new(key);
        let first = TicketQuery::first(TicketFilter::All, FIRST);
        cursor.read_until(step, first, 1, |_| true)?;
        let mut queue = cursor.queue(step, None, &[]);
        let mut leases = self.ended.iter().chain(granted);
        if queue.is_empty() {
            return Ok(());
        }
        if leases.any(has_paths) || queue.iter().any(|waiter| waiter.mode.paths().is_some()) {
            return self.settle_paths(step, key);
        }
        if let Some(granted) = granted {
            let Some(next) = queue.iter().position(|waiter| is_here(step, waiter)) else {
                return Ok(());
            };
            queue.truncate(next + 1);
            let both_shared =
                |waiter: &&Waiter| waiter.mode == Mode::Shared && granted.mode == Mode::Shared;
            if let Some(next) = queue.last().filter(both_shared) {
                step.wake(&next.holder);
                return Ok(());
            }
        }
        let beside = Remaining::read(step, key, &queue, &self.ended)?;
        if granted.is_none() {
            queue = more_waiters(step, cursor, &beside)?;
        }
        let standing = standing(step, &beside.leases);
        wake_beside(step, &queue, &standing, beside.holders);
        Ok(())
    }

    /// Wakes the waiters for paths that can proceed, of those that waited for what has ended or left.
    fn settle_paths<S: Step>(&self, step: &mut S, key: &Key) -> Result<(), S::Error> {
        let mut paths = WaitsForPaths::read(step, key)?;
        for at in 0..paths.queue.len() {
            let waited = paths.queue.get(at).is_some_and(|waiter| {
                let claimant = waiter.claimant();
                let ended = self
                    .ended
                    .iter()
                    .any(|lease| !compatible_with(lease, claimant));
                let conflicts = |gone| !claimant.compatible_with(Claimant::waiting(gone));
                ended || self.left.iter().any(conflicts)
            });
            if waited && paths.can_proceed(step, at)? {
                paths.wake(step, at)?;
            }
        }
        for gone in &self.left {
            paths.wake_watchers(step, gone)?;
        }
        Ok(())
    }
}

fn settle_refused<S: Step>(step: &mut S, refused: &[KeyDecision]) -> Result<(), S::Error> {
    for one in refused {
        if let Decision::Wait { .. } = one.decision {
            one.wake_first(step)?;
        }
    }
    let (free, busy): (Vec<_>, Vec<_>) = refused.iter().partition(|one| one.is_granted());
    let waits = |one: &&KeyDecision| one.claim.patience == Patience::Queue;
    for one in free.into_iter().filter(waits) {
        let leases = busy.iter().map(|one| &one.view.leases);
        let leases: Vec<&Lease> = leases.flat_map(|leases| standing(step, leases)).collect();
        if leases.is_empty() {
            break;
        }
        for waiter in step.tickets(&one.claim.key)? {
            let is_of = |lease: &&Lease| waiter.is_of(&lease.holder.id, lease.token);
            if leases.iter().any(is_of) {
                step.wake(&waiter.holder);
            }
        }
    }
    Ok(())
}

impl KeyDecision {
    /// Wakes the waiters that could proceed before this claim. Of the waiters for paths, only the first that the claim waits
    /// for.
    fn wake_first<S: Step>(&self, step: &mut S) -> Result<(), S::Error> {
        let Self { claim, view, .. } = self;
        if claim.mode.paths().is_none() {
            let standing = standing(step, &view.leases);
            let holders = standing.len() + view.unread.slots.len();
            wake_beside(step, &view.queue, &standing, holders);
            return Ok(());
        }
        let Some(first) = first_ahead(step, claim, view) else {
            return Ok(());
        };
        let mut paths = WaitsForPaths::read(step, &claim.key)?;
        let at = paths.queue.iter().position(|it| it.rank.ticket() == first);
        if let Some(at) = at
            && paths.can_proceed(step, at)?
        {
            paths.wake(step, at)?;
        }
        Ok(())
    }
}

/// The first present waiter that goes before a claim and conflicts with it.
fn first_ahead<L: Look>(look: &mut L, claim: &Claim, view: &View) -> Option<Ticket> {
    let (ticket, _) = decide::position(look.now(), view, claim);
    let rank = decide::rank(look.now(), view, claim, ticket);
    let goes_first = |waiter: &&Waiter| {
        waiter.rank() < rank && !Claimant::of(claim).compatible_with(Claimant::waiting(waiter))
    };
    let mut ahead = view.queue.iter().filter(goes_first);
    let first = ahead.find(|waiter| is_here(look, waiter));
    first.map(|waiter| waiter.ticket)
}

/// Wakes the first of these waiters that is present.
pub fn wake_next<S: Step>(step: &mut S, queue: &[Waiter]) {
    let next = queue.iter().find(|waiter| is_here(step, waiter));
    if let Some(next) = next {
        step.wake(&next.holder);
    }
}

/// Wakes the waiters that can proceed beside these leases of so many holders: one that holds the key already, wherever it is
/// in the queue; otherwise the first that is present, and those behind it that can hold the key together with it.
fn wake_beside<S: Step>(step: &mut S, queue: &[Waiter], standing: &[&Lease], mut holders: usize) {
    let changes_mode = |waiter: &Waiter| {
        let (own, others): (Vec<&Lease>, Vec<&Lease>) = standing
            .iter()
            .partition(|lease| waiter.named && lease.holder.id == waiter.holder.id);
        !own.is_empty() && others.iter().all(|lease| lease.mode.admits(&waiter.mode))
    };
    let mut changing = queue.iter().filter(|waiter| changes_mode(waiter));
    if let Some(waiter) = changing.find(|waiter| is_here(step, waiter)) {
        step.wake(&waiter.holder);
        return;
    }
    let mut is_exclusive = standing.iter().any(|lease| lease.mode.is_exclusive());
    let mut ahead: Vec<&Waiter> = Vec::new();
    for waiter in queue {
        if is_exclusive {
            return;
        }
        if !is_here(step, waiter) {
            continue;
        }
        let claimant = Claimant::waiting(waiter);
        let can_proceed = holders < waiter.mode.room()
            && standing
                .iter()
                .all(|lease| compatible_with(lease, claimant))
            && ahead
                .iter()
                .all(|other| claimant.compatible_with(Claimant::waiting(other)));
        if !can_proceed {
            return;
        }
        step.wake(&waiter.holder);
        holders += 1;
        is_exclusive = waiter.mode.is_exclusive();
        ahead.push(waiter);
    }
}

/// Some of the leases that a key has left, enough to tell who can proceed beside them.
struct Remaining {
    leases: Vec<(Lease, Liveness)>,
    /// How many holders there are.
    holders: usize,
    whole: bool,
}

impl Remaining {
    /// The leases that a key has besides those that ended in this step, up to two holders that are alive: then nobody can
    /// have it alone, and the mode of these two is that of all others. All of them, if they have all the slots that there
    /// are for one of these waiters.
    fn read<L: Look>(
        look: &mut L,
        key: &Key,
        waiters: &[Waiter],
        ended: &[Lease],
    ) -> Result<Self, L::Error> {
        let mut limit = FIRST;
        loop {
            let mut leases = look.some_leases(key, LeaseQuery::First(limit))?;
            let whole = leases.len() < limit;
            leases.retain(|(lease, _)| !ended.contains(lease));
            let standing = standing(look, &leases);
            let mut ids = standing.iter().map(|lease| &lease.holder.id);
            let first = ids.next();
            if whole || ids.any(|id| Some(id) != first) {
                let holders = if whole {
                    standing.len()
                } else {
                    look.slots(key)?.len()
                };
                let counted = waiters.iter().map(|waiter| waiter.mode.room());
                if whole || counted.filter(|room| *room > 1).all(|room| holders < room) {
                    return Ok(Self {
                        leases,
                        holders,
                        whole,
                    });
                }
                limit = usize::MAX;
            }
            limit = limit.saturating_mul(8);
        }
    }
}

/// The waiters that may proceed beside these leases, in order: the first; if one of them can hold the key together with
/// others, some more, and each that is granted the key wakes the next one. And those of the leases' holders, which may
/// change their modes.
fn more_waiters<L: Look>(
    look: &mut L,
    mut cursor: Cursor<'_>,
    beside: &Remaining,
) -> Result<Vec<Waiter>, L::Error> {
    let window = look.window();
    if cursor.tickets().any(|waiter| !waiter.mode.is_exclusive()) {
        let front = TicketQuery::first(TicketFilter::All, window);
        cursor.read_until(look, front, window, |_| true)?;
    }
    for (lease, _) in beside.leases.iter().filter(|_| beside.whole) {
        cursor.read(look, TicketQuery::all(TicketFilter::Of(&lease.holder.id)))?;
    }
    Ok(cursor.queue(look, None, &[]))
}

/// The waiters behind one, in order, up to the first one that is present if the queue is long.
fn behind<L: Look>(look: &mut L, key: &Key, waiter: &Waiter) -> Result<Vec<Waiter>, L::Error> {
    let mut cursor = Cursor::new(key);
    let behind = TicketQuery::first(TicketFilter::All, neighbours(look)).after(waiter.rank());
    cursor.read_until(look, behind, 1, |_| true)?;
    Ok(cursor.tickets().cloned().collect())
}
