//! Takes, renews, parks and withdraws tickets.

use std::time::Duration;

use crate::claim::Claim;
use crate::decide::{self, ClaimTicket, View};
use crate::holder::Holder;
use crate::key::Key;
use crate::queue::{self, Presence, Rank, Ticket, Waiter};
use crate::store::Withdrawal;

use super::look::is_forgotten;
use super::settle::{Settling, settled};
use super::{Step, TicketFilter, TicketQuery};

/// Removes the ticket of a claim, if it has one.
pub fn drop_ticket<S: Step>(step: &mut S, key: &Key, ticket: ClaimTicket) -> Result<(), S::Error> {
    match ticket.ticket() {
        Some(ticket) => step.remove_ticket(key, ticket),
        None => Ok(()),
    }
}

/// Withdraws the tickets of claims, or parks them.
pub fn withdraw<S: Step>(step: &mut S, claims: &[Claim], then: Withdrawal) -> Result<(), S::Error> {
    settled(step, |step| {
        for claim in claims {
            let own = TicketQuery::all(TicketFilter::Of(&claim.holder.id));
            let view = View {
                queue: step.some_tickets(&claim.key, own)?,
                ..View::default()
            };
            withdraw_in(step, claim, &view, then)?;
        }
        Ok(())
    })
}

/// The same for one claim, in a view of its key.
pub fn withdraw_in<S: Step>(
    step: &mut Settling<'_, S>,
    claim: &Claim,
    view: &View,
    then: Withdrawal,
) -> Result<(), S::Error> {
    match decide::position(step.now(), view, claim) {
        (ClaimTicket::Own(ticket), _) => withdraw_ticket(step, &claim.key, view, ticket, then),
        _ => Ok(()),
    }
}

/// Withdraws or parks a ticket of this view.
pub(super) fn withdraw_ticket<S: Step>(
    step: &mut Settling<'_, S>,
    key: &Key,
    view: &View,
    ticket: Ticket,
    then: Withdrawal,
) -> Result<(), S::Error> {
    let Some(waiter) = view.queue.iter().find(|waiter| waiter.ticket == ticket) else {
        return Ok(());
    };
    step.note_left(key, waiter)?;
    match then {
        Withdrawal::Leave => step.remove_ticket(key, ticket),
        Withdrawal::Park => {
            let parked = Waiter {
                seen: step.now().ticks,
                presence: Presence::Away,
                ..waiter.clone()
            };
            step.update_ticket(key, &parked)
        }
    }
}

/// Writes or renews the ticket of a claim that has to wait.
pub fn take_ticket<S: Step>(
    step: &mut Settling<'_, S>,
    claim: &Claim,
    view: &View,
    ticket: ClaimTicket,
) -> Result<(Ticket, Rank), S::Error> {
    let arrived = (step.rules().arrival)(step.now(), &view.queue);
    take_ticket_with(step, claim, view, ticket, arrived, &[])
}

/// The same for a claim that also waits for other keys. A new ticket gets this arrival time.
pub(super) fn take_ticket_with<S: Step>(
    step: &mut Settling<'_, S>,
    claim: &Claim,
    view: &View,
    ticket: ClaimTicket,
    arrived: Duration,
    with: &[Key],
) -> Result<(Ticket, Rank), S::Error> {
    let rank = match ticket {
        ClaimTicket::New => queue::rank(arrived, claim.priority, Ticket(u64::MAX)),
        _ => decide::rank(step.now(), view, claim, ticket),
    };
    let there = ticket
        .ticket()
        .and_then(|ticket| view.queue.iter().find(|waiter| waiter.ticket == ticket));
    let waiting = Holder {
        binding: claim.asker.clone(),
        ..claim.holder.clone()
    };
    let seen = step.now().ticks;
    let taken = match (ticket, there) {
        (ClaimTicket::Own(ticket), Some(own)) => {
            let renewed = Waiter {
                seen,
                presence: Presence::Here,
                ..own.clone()
            };
            match own.presence {
                Presence::Here => step.hear(&claim.key, &renewed)?,
                Presence::Away => step.update_ticket(&claim.key, &renewed)?,
            }
            ticket
        }
        (ClaimTicket::Resumed(ticket), Some(left_behind)) => {
            let resumed = Waiter {
                holder: waiting,
                priority: claim.priority,
                seen,
                presence: Presence::Here,
                within: claim.within.clone(),
                with: with.to_vec(),
                ..left_behind.clone()
            };
            step.update_ticket(&claim.key, &resumed)?;
            ticket
        }
        _ => {
            drop_forgotten(step.inner, &claim.key, &view.queue)?;
            let new = Waiter {
                ticket: Ticket(0),
                holder: waiting,
                mode: claim.mode.clone(),
                named: claim.named,
                priority: claim.priority,
                arrived,
                seen,
                epoch: step.now().epoch.clone(),
                presence: Presence::Here,
                within: claim.within.clone(),
                with: with.to_vec(),
            };
            step.add_ticket(&claim.key, &new)?
        }
    };
    // The waiter behind a ticket whose owner was absent until now has another process to watch.
    if there.is_none_or(|waiter| waiter.presence == Presence::Away) {
        let first_behind = view.queue.partition_point(|waiter| waiter.rank() <= rank);
        let behind = view.queue.get(first_behind..).unwrap_or_default();
        step.note_came(&claim.key, behind);
    }
    Ok((taken, rank))
}

/// Drops the tickets that no longer count.
pub(super) fn drop_forgotten<S: Step>(
    step: &mut S,
    key: &Key,
    queue: &[Waiter],
) -> Result<(), S::Error> {
    for waiter in queue {
        if is_forgotten(step, waiter) {
            step.remove_ticket(key, waiter.ticket)?;
        }
    }
    Ok(())
}
