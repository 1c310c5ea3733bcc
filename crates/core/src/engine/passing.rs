//! The waiters ahead of a claim that wait for the claimant itself: it goes before them.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use crate::claim::Claim;
use crate::decide::{self, LeftOut, View};
use crate::holder::{Holder, HolderId};
use crate::key::Key;
use crate::lease::Lease;
use crate::mode::Mode;
use crate::queue::{Presence, Waiter};

use super::Step;
use super::look::{Probe, is_here, resolve_presence, standing, view};
use super::window::view_of;

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
        queue: whole_queue(step, claim)?,
        left_out: LeftOut::default(),
        ..view
    };
    let (ticket, ahead) = decide::position(step.now(), &whole, claim);
    if ahead == 0 {
        return Ok(whole);
    }
    let rank = decide::rank(step.now(), &whole, claim, ticket);
    let blocked = Blocked::by(step, claim)?;
    let mut passed: Vec<Mode> = Vec::new();
    let ahead = whole.queue.iter_mut().filter(|waiter| waiter.rank() < rank);
    for waiter in ahead.filter(|waiter| blocked.contains(waiter)) {
        let first = may_be_blocked(waiter) && waiter.holder.id != claim.holder.id;
        if first || passed.iter().any(|before| !before.admits(&waiter.mode)) {
            waiter.presence = Presence::Away;
            if !passed.contains(&waiter.mode) {
                passed.push(waiter.mode.clone());
            }
        }
    }
    // Waiters were probed up to the first that is present, which may be one of those that are passed.
    resolve_for(step, claim, &mut whole.queue);
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

/// Every lease of the key, and the whole queue as a claim sees it.
pub(super) fn whole_view<S: Step>(step: &mut S, claim: &Claim) -> Result<View, S::Error> {
    Ok(View {
        leases: step.leases(&claim.key)?,
        queue: whole_queue(step, claim)?,
        ..View::default()
    })
}

fn whole_queue<S: Step>(step: &mut S, claim: &Claim) -> Result<Vec<Waiter>, S::Error> {
    let mut queue = step.tickets(&claim.key)?;
    resolve_for(step, claim, &mut queue);
    Ok(queue)
}

/// Puts the whole queue in order, and finds out which waiters are present, as far as a claim depends on it.
fn resolve_for<S: Step>(step: &mut S, claim: &Claim, queue: &mut Vec<Waiter>) {
    let probe = match claim.mode {
        Mode::Paths(_) => Probe::All,
        _ => Probe::First,
    };
    resolve_presence(step, queue, Some(&claim.holder.id), &claim.mode, probe);
}

/// The claims that wait for a claimant: for a lease of it, or for a holder or a waiter that does.
///
/// Every key that the waits lead to is read once, however long its queue is. Then the answer is passed on from the
/// claimant's own leases to the waiters behind them, until nothing changes.
struct Blocked {
    claims: Vec<WaitingClaim>,
    of: HashMap<HolderId, Vec<usize>>,
}

/// A waiter, with its tickets for all of its keys.
struct WaitingClaim {
    holder: Holder,
    arrived: Duration,
    is_blocked: bool,
}

/// A key that waits lead to.
struct WaitedFor {
    leases: Vec<HeldLease>,
    /// The present waiters in order, each with its claim.
    queue: Vec<(Waiter, usize)>,
}

/// A lease that has not ended.
struct HeldLease {
    lease: Lease,
    /// For which keys its holder waits.
    waits: Vec<Key>,
    /// The claims with which it does.
    claims: Vec<usize>,
}

impl Blocked {
    fn by<S: Step>(step: &mut S, claim: &Claim) -> Result<Self, S::Error> {
        let ours = |lease: &Lease| {
            claim.named && lease.holder.id == claim.holder.id || claim.within.contains(&lease.token)
        };
        let mut blocked = Self {
            claims: Vec::new(),
            of: HashMap::new(),
        };
        let mut keys: BTreeMap<Key, WaitedFor> = BTreeMap::new();
        let mut open = vec![claim.key.clone()];
        while let Some(key) = open.pop() {
            if keys.contains_key(&key) {
                continue;
            }
            let read = blocked.read(step, &key, ours)?;
            open.extend(read.leases.iter().flat_map(|held| held.waits.clone()));
            open.extend(read.queue.iter().flat_map(|(it, _)| it.with.clone()));
            keys.insert(key, read);
        }
        let waiting: Vec<_> = keys.values().map(|read| read.queue.clone()).collect();
        for held in keys.values_mut().flat_map(|read| &mut read.leases) {
            if !held.waits.is_empty() {
                let of = |(waiter, _): &&(Waiter, usize)| is_of(waiter, &held.lease);
                let found = waiting.iter().flatten().filter(of);
                held.claims = found.map(|(_, claim)| *claim).collect();
            }
        }
        while keys.values().any(|key| blocked.pass_on(key, ours)) {}
        Ok(blocked)
    }

    fn read<S: Step>(
        &mut self,
        step: &mut S,
        key: &Key,
        ours: impl Fn(&Lease) -> bool,
    ) -> Result<WaitedFor, S::Error> {
        let view = view(step, key, None)?;
        let mut leases = Vec::new();
        for lease in standing(step, &view.leases) {
            leases.push(HeldLease {
                lease: lease.clone(),
                waits: if ours(lease) {
                    Vec::new()
                } else {
                    step.waits_of(&lease.holder.id, lease.token)?
                },
                claims: Vec::new(),
            });
        }
        let mut queue = Vec::new();
        for waiter in view.queue {
            if is_here(step, &waiter) {
                let claim = self.claim_of(&waiter);
                queue.push((waiter, claim));
            }
        }
        Ok(WaitedFor { leases, queue })
    }

    /// The claim of a ticket.
    fn claim_of(&mut self, waiter: &Waiter) -> usize {
        self.find(waiter).unwrap_or_else(|| {
            self.claims.push(WaitingClaim {
                holder: waiter.holder.clone(),
                arrived: waiter.arrived,
                is_blocked: false,
            });
            let new = self.claims.len() - 1;
            self.of
                .entry(waiter.holder.id.clone())
                .or_default()
                .push(new);
            new
        })
    }

    fn find(&self, waiter: &Waiter) -> Option<usize> {
        let of_holder = self.of.get(&waiter.holder.id)?;
        of_holder.iter().copied().find(|claim| {
            self.claims.get(*claim).is_some_and(|claim| {
                claim.arrived == waiter.arrived && claim.holder.binding == waiter.holder.binding
            })
        })
    }

    fn is_blocked(&self, claim: usize) -> bool {
        self.claims.get(claim).is_some_and(|claim| claim.is_blocked)
    }

    /// Whether the claim of this ticket waits for the claimant.
    fn contains(&self, waiter: &Waiter) -> bool {
        self.find(waiter)
            .is_some_and(|claim| self.is_blocked(claim))
    }

    /// Finds more waiters for a key that wait for the claimant; `false` if there are none.
    fn pass_on(&mut self, key: &WaitedFor, ours: impl Fn(&Lease) -> bool) -> bool {
        let mut changed = false;
        // The modes of the waiters that wait for the claimant, up to here.
        let mut ahead: Vec<&Mode> = Vec::new();
        for (waiter, claim) in &key.queue {
            let leads_on = |held: &HeldLease| {
                held.lease.holder.id != waiter.holder.id
                    && (ours(&held.lease) || held.claims.iter().any(|it| self.is_blocked(*it)))
            };
            let conflicts = |held: &&HeldLease| !held.lease.mode.admits(&waiter.mode);
            // Any holder of a slot could end the wait for one.
            let is_full = key.leases.len() >= waiter.mode.room();
            let is_blocked = self.is_blocked(*claim)
                || ahead.iter().any(|before| !before.admits(&waiter.mode))
                || key.leases.iter().filter(conflicts).any(leads_on)
                || is_full && key.leases.iter().all(leads_on);
            if !is_blocked {
                continue;
            }
            if let Some(claim) = self.claims.get_mut(*claim) {
                changed |= !claim.is_blocked;
                claim.is_blocked = true;
            }
            if !ahead.contains(&&waiter.mode) {
                ahead.push(&waiter.mode);
            }
        }
        changed
    }
}

/// Whether a waiter is the holder of a lease, or runs under it.
pub(super) fn is_of(waiter: &Waiter, lease: &Lease) -> bool {
    waiter.holder.id == lease.holder.id || waiter.within.contains(&lease.token)
}
