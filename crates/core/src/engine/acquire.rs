//! Claims keys: decide on each, then grant all of them or none.
//!
//! # Invariants
//!
//! 1. A claim that is not granted holds none of its keys because of this step.
//! 2. It has a ticket for each key or for none. All its tickets have one arrival time (see [`crate::several`]).
//! 3. A claim passes a waiter ahead only if that waiter waits for the claimant.

use std::time::Duration;

use crate::claim::{Claim, Patience};
use crate::cycle::{Cycle, Wait};
use crate::decide::{self, ClaimTicket, Decision, View};
use crate::key::Key;
use crate::lease::Lease;
use crate::mode::Mode;
use crate::path_pattern::Budget;
use crate::queue::{self, Rank};
use crate::several;
use crate::store::{Acquired, Busy, Granted, QueuePosition, Reason, Withdrawal};
use crate::verdict::Liveness;

use super::deadlock::cycle_of;
use super::look::busy;
use super::passing::view_past_blocked;
use super::settle::{Settling, settled};
use super::tickets::{drop_ticket, take_ticket_with, withdraw_in, withdraw_ticket};
use super::{Ended, LeaseQuery, Step, Then, Written};

/// Why a claim is an error, and not only refused for now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// The key is held or waited for in this mode, which contradicts the claim's.
    OtherMode(Key, Mode),
    /// The claim's patterns can't be compared with those of the others in reasonable time.
    TooComplex,
}

/// One of the keys of a claim, and the decision on it.
#[derive(Debug)]
pub struct KeyDecision {
    /// The claim on this key.
    pub claim: Claim,
    /// What the decision depends on.
    pub view: View,
    /// The decision.
    pub decision: Decision,
}

impl KeyDecision {
    /// Whether the decision grants the key.
    pub fn is_granted(&self) -> bool {
        several::grants(&self.decision)
    }

    /// The ticket that the decision names.
    fn ticket(&self) -> ClaimTicket {
        match self.decision {
            Decision::Grant { ticket, .. }
            | Decision::Extend { ticket, .. }
            | Decision::Wait { ticket, .. } => ticket,
            Decision::WaitForSelf { .. } | Decision::OtherMode { .. } => ClaimTicket::New,
        }
    }
}

/// Claims keys: all of them are granted, or none.
pub fn acquire<S: Step>(
    step: &mut S,
    claims: &[Claim],
) -> Result<Result<Acquired<Vec<Granted>>, Refused>, S::Error> {
    settled(step, |step| acquire_each(step, claims))
}

fn acquire_each<S: Step>(
    step: &mut Settling<'_, S>,
    claims: &[Claim],
) -> Result<Result<Acquired<Vec<Granted>>, Refused>, S::Error> {
    let mut wanted = Vec::with_capacity(claims.len());
    for claim in claims {
        let view = view_past_blocked(step.inner, claim)?;
        let decision = (step.rules().acquire)(step.now(), &view, claim);
        wanted.push(KeyDecision {
            claim: claim.clone(),
            view,
            decision,
        });
    }
    let other_mode = wanted.iter().find_map(|one| match &one.decision {
        Decision::OtherMode { mode } => Some((one.claim.key.clone(), mode.clone())),
        _ => None,
    });
    let refused = match other_mode {
        Some((key, mode)) => Some(Refused::OtherMode(key, mode)),
        None => Budget::is_used_up().then_some(Refused::TooComplex),
    };
    if let Some(refused) = refused {
        leave_all(step, &wanted)?;
        return Ok(Err(refused));
    }
    let decisions: Vec<&Decision> = wanted.iter().map(|one| &one.decision).collect();
    if !(step.rules().several.is_granted)(&decisions) {
        return refuse(step, wanted).map(Ok);
    }
    let mut granted = Vec::with_capacity(wanted.len());
    for one in &wanted {
        let waited = decide::waited(step.now(), &one.view, &one.decision);
        granted.extend(grant(step, &one.claim, &one.decision, waited)?);
        end_expired_beside(step, &one.claim, &one.view)?;
    }
    Ok(Ok(Acquired::Granted(granted)))
}

/// How many expired leases of a key stay although claims in modes for several holders are granted: they are in nobody's
/// way, and may still be renewed.
const EXPIRED_THAT_STAY: usize = 3;

/// How many of them one claim ends at most.
const EXPIRED_THAT_END: usize = 8;

/// Ends some expired leases that a claim was granted beside, if there are many: each of them costs every later claim.
fn end_expired_beside<S: Step>(
    step: &mut Settling<'_, S>,
    claim: &Claim,
    view: &View,
) -> Result<(), S::Error> {
    let ended = step.rules().ended;
    let beside = |(lease, liveness): &(Lease, Liveness)| {
        lease.has_expired(step.now()) && ended(step.now(), lease, liveness).is_some()
    };
    if claim.mode.is_exclusive() || !view.leases.iter().any(beside) {
        return Ok(());
    }
    let limit = EXPIRED_THAT_STAY + EXPIRED_THAT_END;
    let mut over = Vec::new();
    for (lease, liveness) in step.some_leases(&claim.key, LeaseQuery::Expiring(limit, None))? {
        if lease.key == claim.key && lease.has_expired(step.now()) {
            over.extend(ended(step.now(), &lease, &liveness).map(|proof| (lease, proof)));
        }
    }
    let many = over.len().saturating_sub(EXPIRED_THAT_STAY);
    for (lease, proof) in over.into_iter().take(many) {
        step.end_lease(&lease, &Ended::Proven(proof), Then::Granted)?;
    }
    Ok(())
}

/// Carries out a decision that grants the key, after a wait of this length; `None` if it does not.
pub fn grant<S: Step>(
    step: &mut Settling<'_, S>,
    claim: &Claim,
    decision: &Decision,
    waited: Option<Duration>,
) -> Result<Option<Granted>, S::Error> {
    let (lease, how, reason) = match decision {
        Decision::Grant {
            reason,
            ended,
            instead_of,
            slot,
            ticket,
        } => {
            for (lease, proof) in ended {
                step.end_lease(lease, &Ended::Proven(proof.clone()), Then::Granted)?;
            }
            if let Some(lease) = instead_of {
                step.end_lease(lease, &Ended::Released, Then::Granted)?;
            }
            drop_ticket(step.inner, &claim.key, *ticket)?;
            let token = step.mint(&claim.key)?;
            let now = step.now();
            let lease = Lease {
                key: claim.key.clone(),
                holder: claim.holder.clone(),
                mode: claim.mode.clone(),
                slot: *slot,
                token,
                acquired_at: now.wall,
                expires: step.expiry(claim.ttl),
                heartbeat_at: now.wall,
                ttl: claim.ttl,
            };
            let reason = *reason;
            (lease, Written::Granted { reason, waited }, reason)
        }
        Decision::Extend { lease, ticket } => {
            drop_ticket(step.inner, &claim.key, *ticket)?;
            let extended = Lease {
                holder: claim.holder.clone(),
                expires: step.expiry(claim.ttl),
                heartbeat_at: step.now().wall,
                ttl: claim.ttl,
                ..(**lease).clone()
            };
            (extended, Written::Extended, Reason::AlreadyOwned)
        }
        Decision::Wait { .. } | Decision::WaitForSelf { .. } | Decision::OtherMode { .. } => {
            return Ok(None);
        }
    };
    step.put_lease(&lease, how)?;
    if claim.named {
        step.note_granted_to(&claim.holder.id);
    }
    Ok(Some(Granted { lease, reason }))
}

/// Carries out decisions that do not grant every key: takes a ticket for each, or reports why not.
pub fn refuse<S: Step, T>(
    step: &mut Settling<'_, S>,
    wanted: Vec<KeyDecision>,
) -> Result<Acquired<T>, S::Error> {
    let queues = |one: &KeyDecision| one.claim.patience == Patience::Queue;
    let answer = if wanted.iter().all(queues) {
        queue_for(step, &wanted)?
    } else {
        busy_with(step.inner, &wanted, &[])
    };
    step.note_refused(wanted);
    Ok(answer)
}

/// Takes a ticket for each key, unless the claim would wait for ever.
fn queue_for<S: Step, T>(
    step: &mut Settling<'_, S>,
    wanted: &[KeyDecision],
) -> Result<Acquired<T>, S::Error> {
    for one in wanted {
        let cycle = match &one.decision {
            Decision::WaitForSelf { lease } => {
                Some(Cycle(vec![Wait::on(&one.claim.holder.id, lease)]))
            }
            Decision::Wait { ticket, .. }
                if (step.rules().may_close_cycle)(&one.claim, *ticket) =>
            {
                cycle_of(step.inner, &one.claim, &one.view)?
            }
            _ => None,
        };
        if let Some(cycle) = cycle {
            leave_all(step, wanted)?;
            return Ok(Acquired::Deadlock(cycle));
        }
    }
    let places = take_tickets(step, wanted)?;
    Ok(busy_with(step.inner, wanted, &places))
}

/// A claim's place in the queue of one of its keys.
type Place = (QueuePosition, Rank);

/// Writes or renews the tickets. They are kept only if there is one for each key and all of them arrived together:
/// otherwise the claim queues anew, so that its order is the same in every queue.
fn take_tickets<S: Step>(
    step: &mut Settling<'_, S>,
    wanted: &[KeyDecision],
) -> Result<Vec<Place>, S::Error> {
    let arrived = |one: &KeyDecision| {
        let mut queue = one.view.queue.iter();
        let there = queue.find(|waiter| Some(waiter.ticket) == one.ticket().ticket());
        there.map(|waiter| waiter.arrived)
    };
    let mut arrivals = wanted.iter().map(arrived);
    let first = arrivals.next().flatten();
    let together = first.is_some() && arrivals.all(|at| at == first);
    let now = step.now();
    let each: Vec<Duration> = wanted
        .iter()
        .map(|one| (step.rules().arrival)(now, &one.view.queue))
        .collect();
    let arrived = (step.rules().several.arrivals)(&each);
    let mut places = Vec::with_capacity(wanted.len());
    for (one, arrived) in wanted.iter().zip(arrived) {
        let key = &one.claim.key;
        let kept = match one.ticket().ticket() {
            Some(outdated) if !together => {
                withdraw_ticket(step, key, &one.view, outdated, Withdrawal::Leave)?;
                ClaimTicket::New
            }
            _ => one.ticket(),
        };
        let keys = wanted.iter().map(|one| &one.claim.key);
        let with: Vec<Key> = keys.filter(|other| *other != key).cloned().collect();
        let (taken, rank) = take_ticket_with(step, &one.claim, &one.view, kept, arrived, &with)?;
        let position = QueuePosition {
            ticket: taken,
            ahead: queue::ahead(&one.view.queue, rank) + one.view.unread.ahead,
            resumed: matches!(kept, ClaimTicket::Resumed(_)),
        };
        places.push((position, rank));
    }
    Ok(places)
}

/// The answer to a claim that was not granted: the first key that is busy, and with it the others.
fn busy_with<S: Step, T>(step: &mut S, wanted: &[KeyDecision], places: &[Place]) -> Acquired<T> {
    let mut all: Vec<Busy> = Vec::new();
    for (number, one) in wanted.iter().enumerate() {
        if !one.is_granted() {
            let (position, rank) = places.get(number).copied().unzip();
            all.push(busy(step, &one.claim, &one.view, position, rank));
        }
    }
    let now = step.now();
    let ends = all.iter().filter_map(|busy| busy.look_again.clone());
    let look_again = ends.min_by_key(|end| end.remaining(now));
    let mut all = all.into_iter();
    let Some(mut first) = all.next() else {
        // Only a broken rule refuses a claim whose keys are all free.
        return Acquired::Cancelled;
    };
    first.look_again = look_again;
    first.others = all.collect();
    for holder in first.others.iter().flat_map(|busy| &busy.watch) {
        if !first.watch.contains(holder) {
            first.watch.push(holder.clone());
        }
    }
    Acquired::Busy(Box::new(first))
}

/// Removes the claim's own tickets.
fn leave_all<S: Step>(step: &mut Settling<'_, S>, wanted: &[KeyDecision]) -> Result<(), S::Error> {
    for one in wanted {
        withdraw_in(step, &one.claim, &one.view, Withdrawal::Leave)?;
    }
    Ok(())
}
