//! Claiming a key: decide, then grant or refuse.

use std::time::Duration;

use crate::claim::{Claim, Patience};
use crate::cycle::{Cycle, Wait};
use crate::decide::{self, ClaimTicket, Decision, View};
use crate::lease::Lease;
use crate::mode::Mode;
use crate::store::{Acquired, Granted, QueuePosition, Reason};

use super::deadlock::{cycle_of, wake_waits_of};
use super::look::busy;
use super::several::view_past_blocked;
use super::tickets::{drop_ticket, leave, take_ticket, wake_others, wake_second};
use super::{Ended, Put, Step, Then};

/// Claims a key. If the answer is a mode, the key is held or waited for in that mode, which contradicts the claim's.
pub fn acquire<S: Step>(step: &mut S, claim: &Claim) -> Result<Result<Acquired, Mode>, S::Error> {
    let view = view_past_blocked(step, claim)?;
    let decision = (step.rules().acquire)(step.now(), &view, claim);
    if let Decision::OtherMode { mode } = decision {
        if let (ClaimTicket::Own(ticket), _) = decide::position(step.now(), &view, claim) {
            leave(step, &claim.key, ticket)?;
        }
        return Ok(Err(mode));
    }
    let waited = decide::waited(step.now(), &view, &decision);
    match grant(step, claim, &decision, waited)? {
        Some(granted) => Ok(Ok(Acquired::Granted(granted))),
        None => refuse(step, claim, &view, &decision).map(Ok),
    }
}

/// Carries out a decision that grants the key, after a wait of this length; `None` if it does not.
pub fn grant<S: Step>(
    step: &mut S,
    claim: &Claim,
    decision: &Decision,
    waited: Option<Duration>,
) -> Result<Option<Granted>, S::Error> {
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
            }
            if let Some(lease) = instead_of {
                step.end_lease(lease, &Ended::Released, Then::Granted)?;
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
    // The end of a lease wakes every waiter for paths that can proceed.
    if !lease.mode.is_exclusive() && lease.mode.paths().is_none() {
        wake_second(step, &lease)?;
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
