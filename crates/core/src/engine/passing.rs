//! The waiters ahead of a claim that wait for the claimant itself: it goes before them.

use std::collections::{BTreeMap, HashSet};
use std::time::Duration;

use crate::claim::Claim;
use crate::decide::{self, Claimant, Unread, View};
use crate::holder::{Binding, HolderId};
use crate::key::Key;
use crate::lease::{Lease, Token};
use crate::mode::Mode;
use crate::queue::{Presence, Waiter};

use super::Step;
use super::look::{is_here, resolve_presence, standing, view};
use super::view::view_of;

/// The view of a claim, in which waiters that wait for the claimant itself are absent: they can't proceed before it does.
/// With such a waiter, those behind it that conflict with it are absent, too.
///
/// Two kinds of waiters can wait for a claimant that is behind them in the queue and does not conflict with a lease: one
/// that waits for other keys as well, and one that conflicts with leases which admit the claimant. Otherwise, the claimant
/// waits for the same leases as the waiter, and [`cycle_of`](super::cycle_of) finds the cycle.
pub fn view_past_blocked<S: Step>(step: &mut S, claim: &Claim) -> Result<View, S::Error> {
    let view = view_of(step, claim)?;
    let may_be_blocked = |waiter: &Waiter| {
        let beside = matches!(claim.mode, Mode::Shared | Mode::Slots(_));
        !waiter.with.is_empty() || beside && !waiter.mode.admits(&claim.mode)
    };
    let any = view.queue.iter().any(may_be_blocked);
    // Such a claim is refused, whatever its place.
    let contradicts = |waiter: &Waiter| waiter.mode.contradicts(&claim.mode);
    let refused = view.queue.iter().any(contradicts);
    if !step.rules().several.passes_blocked || !any || refused || !may_hold(step, claim)? {
        return Ok(view);
    }
    // Not only a part of the queue: the order of all waiters counts.
    let mut whole = View {
        queue: step.tickets(&claim.key)?,
        unread: Unread {
            slots: view.unread.slots,
            ..Unread::default()
        },
        leases: view.leases,
    };
    let claimant = Some(Claimant::of(claim));
    resolve_presence(step, &mut whole.queue, claimant, &whole.leases);
    let (ticket, ahead) = decide::position(step.now(), &whole, claim);
    if ahead == 0 {
        return Ok(whole);
    }
    let rank = decide::rank(step.now(), &whole, claim, ticket);
    let ours = |lease: &Lease| {
        claim.named && lease.holder.id == claim.holder.id || claim.within.contains(&lease.token)
    };
    let keys = keys_reached(step, &claim.key, ours)?;
    let blocked = Blocked::by(&keys, ours);
    let mut passed: Vec<Mode> = Vec::new();
    let ahead = whole.queue.iter_mut().filter(|waiter| waiter.rank() < rank);
    for waiter in ahead.filter(|waiter| blocked.claims.contains(&claim_of(waiter))) {
        let first = may_be_blocked(waiter) && waiter.holder.id != claim.holder.id;
        if first || passed.iter().any(|before| !before.admits(&waiter.mode)) {
            waiter.presence = Presence::Away;
            if !passed.contains(&waiter.mode) {
                passed.push(waiter.mode.clone());
            }
        }
    }
    // Waiters were probed up to the first that is present, which may be one of those that are passed.
    resolve_presence(step, &mut whole.queue, claimant, &whole.leases);
    Ok(whole)
}

/// Whether the claimant may hold a lease: otherwise, nobody waits for it.
fn may_hold<S: Step>(step: &mut S, claim: &Claim) -> Result<bool, S::Error> {
    let name = claim.named.then_some(&claim.holder.id);
    if name.is_none() && claim.within.is_empty() {
        return Ok(false);
    }
    step.may_hold(name, &claim.within)
}

/// A key that waits lead to.
struct KeyReached {
    /// The leases that have not ended.
    leases: Vec<Lease>,
    /// The waiters that are present, in order.
    queue: Vec<Waiter>,
}

/// The keys that the waits for a key lead to, each read once, however long its queue is.
fn keys_reached<S: Step>(
    step: &mut S,
    key: &Key,
    ours: impl Fn(&Lease) -> bool,
) -> Result<BTreeMap<Key, KeyReached>, S::Error> {
    let mut keys = BTreeMap::new();
    let mut open = vec![key.clone()];
    while let Some(key) = open.pop() {
        if keys.contains_key(&key) {
            continue;
        }
        let View {
            leases, mut queue, ..
        } = view(step, &key, None)?;
        let leases: Vec<Lease> = standing(step, &leases).into_iter().cloned().collect();
        for lease in leases.iter().filter(|lease| !ours(lease)) {
            open.extend(step.waits_of(&lease.holder.id, lease.token)?);
        }
        queue.retain(|waiter| is_here(step, waiter));
        open.extend(queue.iter().flat_map(|waiter| waiter.with.clone()));
        keys.insert(key, KeyReached { leases, queue });
    }
    Ok(keys)
}

/// What the tickets of one claim have in common: the name, the process and the arrival time.
type ClaimId<'a> = (&'a HolderId, Option<&'a str>, Duration);

fn claim_of(waiter: &Waiter) -> ClaimId<'_> {
    let process = match &waiter.holder.binding {
        Binding::LivenessLock { lock, .. } => Some(lock.0.as_str()),
        Binding::Session { session } => Some(session.0.as_str()),
        Binding::Detached | Binding::Process { .. } => None,
    };
    (&waiter.holder.id, process, waiter.arrived)
}

/// The claims that wait for a claimant: for a lease of it, or for a holder or a waiter that does.
#[derive(Default)]
struct Blocked<'a> {
    claims: HashSet<ClaimId<'a>>,
    /// The names of these waiters. A lease in one of them does not end before the claimant's.
    names: HashSet<&'a HolderId>,
    /// The grants under which they run.
    within: HashSet<Token>,
}

impl<'a> Blocked<'a> {
    /// The answer is passed on from the claimant's own leases to the waiters behind them, until nothing changes.
    fn by(keys: &'a BTreeMap<Key, KeyReached>, ours: impl Fn(&Lease) -> bool) -> Self {
        let mut blocked = Self::default();
        while keys.values().any(|key| blocked.pass_on(key, &ours)) {}
        blocked
    }

    /// Finds more waiters for a key that wait for the claimant; `false` if there are none.
    fn pass_on(&mut self, key: &'a KeyReached, ours: impl Fn(&Lease) -> bool) -> bool {
        let mut changed = false;
        // The modes of the waiters that wait for the claimant, up to here.
        let mut ahead: Vec<&Mode> = Vec::new();
        for waiter in &key.queue {
            let leads_on = |lease: &Lease| {
                let waits =
                    self.names.contains(&lease.holder.id) || self.within.contains(&lease.token);
                lease.holder.id != waiter.holder.id && (ours(lease) || waits)
            };
            let conflicts = |lease: &&Lease| !lease.mode.admits(&waiter.mode);
            // Any holder of a slot could end the wait for one.
            let is_full = key.leases.len() >= waiter.mode.room();
            let is_blocked = self.claims.contains(&claim_of(waiter))
                || ahead.iter().any(|before| !before.admits(&waiter.mode))
                || key.leases.iter().filter(conflicts).any(leads_on)
                || is_full && key.leases.iter().all(leads_on);
            if !is_blocked {
                continue;
            }
            changed |= self.claims.insert(claim_of(waiter));
            self.names.insert(&waiter.holder.id);
            self.within.extend(&waiter.within);
            if !ahead.contains(&&waiter.mode) {
                ahead.push(&waiter.mode);
            }
        }
        changed
    }
}
