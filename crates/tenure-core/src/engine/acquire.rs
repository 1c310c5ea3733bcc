//! Claiming a key: decide, then grant or refuse.

use std::time::Duration;

use crate::claim::{Claim, Patience};
use crate::cycle::{Cycle, Wait};
use crate::decide::{self, ClaimTicket, Decision, View};
use crate::lease::Lease;
use crate::mode::Mode;
use crate::path_pattern::Budget;
use crate::store::{Acquired, Granted, QueuePosition, Reason};
use crate::verdict::Liveness;

use super::deadlock::{cycle_of, wake_waits_of};
use super::look::busy;
use super::several::view_past_blocked;
use super::tickets::{drop_ticket, leave, take_ticket, wake_after, wake_others, wake_second};
use super::{Ended, LeasePart, Put, Step, Then};

/// Why a claim is an error, and not only refused for now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// The key is held or waited for in this mode, which contradicts the claim's.
    OtherMode(Mode),
    /// The claim's patterns can't be compared with those of the others in reasonable time.
    TooComplex,
}

/// Claims a key.
pub fn acquire<S: Step>(
    step: &mut S,
    claim: &Claim,
) -> Result<Result<Acquired, Refused>, S::Error> {
    let _budget = Budget::begin();
    let view = view_past_blocked(step, claim)?;
    let decision = (step.rules().acquire)(step.now(), &view, claim);
    let refused = match &decision {
        Decision::OtherMode { mode } => Some(Refused::OtherMode(mode.clone())),
        _ if Budget::is_used_up() => Some(Refused::TooComplex),
        _ => None,
    };
    if let Some(refused) = refused {
        if let (ClaimTicket::Own(ticket), _) = decide::position(step.now(), &view, claim) {
            leave(step, &claim.key, ticket)?;
        }
        return Ok(Err(refused));
    }
    let waited = decide::waited(step.now(), &view, &decision);
    match grant(step, claim, &decision, waited)? {
        Some(granted) => {
            end_expired_beside(step, claim, &view)?;
            Ok(Ok(Acquired::Granted(granted)))
        }
        None => refuse(step, claim, &view, &decision).map(Ok),
    }
}

/// How many expired leases of a key stay although claims in modes for several holders are granted: they are in nobody's
/// way, and may still be renewed.
const EXPIRED_THAT_STAY: usize = 3;

/// How many of them one claim ends at most.
const EXPIRED_THAT_END: usize = 8;

/// Ends some expired leases that a claim was granted beside, if there are many: each of them costs every later claim.
fn end_expired_beside<S: Step>(step: &mut S, claim: &Claim, view: &View) -> Result<(), S::Error> {
    let ended = step.rules().ended;
    let beside = |(lease, liveness): &(Lease, Liveness)| {
        lease.has_expired(step.now()) && ended(step.now(), lease, liveness).is_some()
    };
    if claim.mode.is_exclusive() || !view.leases.iter().any(beside) {
        return Ok(());
    }
    let limit = EXPIRED_THAT_STAY + EXPIRED_THAT_END;
    let mut over = Vec::new();
    for (lease, liveness) in step.some_leases(&claim.key, LeasePart::FirstToExpire(limit))? {
        if lease.key == claim.key && lease.has_expired(step.now()) {
            over.extend(ended(step.now(), &lease, &liveness).map(|proof| (lease, proof)));
        }
    }
    let many = over.len().saturating_sub(EXPIRED_THAT_STAY);
    for (lease, proof) in over.into_iter().take(many) {
        step.end_lease(&lease, &Ended::Proven(proof), Then::Granted)?;
        step.wake(&lease.holder);
    }
    Ok(())
}

/// Carries out a decision that grants the key, after a wait of this length; `None` if it does not.
pub fn grant<S: Step>(
    step: &mut S,
    claim: &Claim,
    decision: &Decision,
    waited: Option<Duration>,
) -> Result<Option<Granted>, S::Error> {
    // The leases of the key that end or become others, which may have been in the way of waiters.
    let mut replaced: Vec<Lease> = Vec::new();
    let (lease, put, reason) = match decision {
        Decision::Grant {
            reason,
            ended,
            instead_of,
            slot,
            ticket,
        } => {
            for (lease, proof) in ended {
                step.end_lease(lease, &Ended::Proven(proof.clone()), Then::Granted)?;
                step.wake(&lease.holder);
                replaced.push(lease.clone());
            }
            if let Some(lease) = instead_of {
                step.end_lease(lease, &Ended::Released, Then::Granted)?;
                replaced.push((**lease).clone());
            }
            drop_ticket(step, &claim.key, *ticket)?;
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
            (lease, Put::Granted { reason, waited }, reason)
        }
        Decision::Extend { lease, ticket } => {
            drop_ticket(step, &claim.key, *ticket)?;
            let extended = Lease {
                holder: claim.holder.clone(),
                expires: step.expiry(claim.ttl),
                heartbeat_at: step.now().wall,
                ttl: claim.ttl,
                ..(**lease).clone()
            };
            (extended, Put::Extended, Reason::AlreadyOwned)
        }
        Decision::Wait { .. } | Decision::WaitForSelf { .. } | Decision::OtherMode { .. } => {
            return Ok(None);
        }
    };
    step.put_lease(&lease, put)?;
    if lease.mode.paths().is_some() {
        // Any number of waiters for paths can proceed; without an end, no other one can than before.
        if !replaced.is_empty() {
            wake_after(step, &lease.key, &replaced)?;
        }
    } else if !lease.mode.is_exclusive() {
        wake_second(step, &lease, &replaced)?;
    }
    if claim.named {
        wake_waits_of(step, claim)?;
    }
    Ok(Some(Granted { lease, reason }))
}

/// Carries out a decision that does not grant the key: takes a ticket, or reports why not.
pub fn refuse<S: Step, T>(
    step: &mut S,
    claim: &Claim,
    view: &View,
    decision: &Decision,
) -> Result<Acquired<T>, S::Error> {
    let queues = claim.patience == Patience::Queue;
    let (ticket, ahead) = match decision {
        Decision::WaitForSelf { lease } if queues => {
            let wait = Wait::on(&claim.holder.id, lease);
            return Ok(Acquired::Deadlock(Cycle(vec![wait])));
        }
        Decision::Wait { ticket, ahead } => (*ticket, *ahead),
        Decision::WaitForSelf { .. }
        | Decision::OtherMode { .. }
        | Decision::Grant { .. }
        | Decision::Extend { .. } => {
            let busy = busy(step, claim, view, None, None);
            return Ok(Acquired::Busy(Box::new(busy)));
        }
    };
    // Another waiter may be first, and may have missed its wake-up.
    wake_others(step, claim, view)?;
    if !queues {
        let busy = busy(step, claim, view, None, None);
        return Ok(Acquired::Busy(Box::new(busy)));
    }
    if (step.rules().may_close_cycle)(claim, ticket)
        && let Some(cycle) = cycle_of(step, claim, view)?
    {
        if let ClaimTicket::Own(ticket) = ticket {
            leave(step, &claim.key, ticket)?;
        }
        return Ok(Acquired::Deadlock(cycle));
    }
    let (taken, rank) = take_ticket(step, claim, view, ticket)?;
    let position = QueuePosition {
        ticket: taken,
        ahead,
        resumed: matches!(ticket, ClaimTicket::Resumed(_)),
    };
    let busy = busy(step, claim, view, Some(position), Some(rank));
    Ok(Acquired::Busy(Box::new(busy)))
}
