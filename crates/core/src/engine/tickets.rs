//! Takes, renews, parks and withdraws tickets, and wakes the waiter that can proceed.

use std::time::Duration;

use crate::claim::Claim;
use crate::decide::{self, ClaimTicket, Claimant, View, fits};
use crate::holder::Holder;
use crate::key::Key;
use crate::lease::Lease;
use crate::mode::Mode;
use crate::path_pattern::Budget;
use crate::queue::{self, Presence, Rank, Ticket, Waiter};
use crate::store::Withdrawal;

use super::look::{is_forgotten, is_here, standing};
use super::path_waits::WaitsForPaths;
use super::window::{behind, first_waiter, first_waiters, others};
use super::{Part, Step};

/// Wakes the first of these waiters that can be woken.
pub fn wake_next<S: Step>(step: &mut S, queue: &[Waiter]) {
    let next = queue.iter().find(|waiter| is_here(step, waiter));
    if let Some(next) = next {
        step.wake(&next.holder);
    }
}

/// Wakes the waiters that can proceed beside these leases of so many holders: one that holds the key already, wherever it is
/// in the queue; otherwise the first that can be woken, and those behind it that can hold the key together with it. Of the
/// waiters for paths, every one that conflicts neither with a lease nor with a waiter ahead.
pub(super) fn wake_beside<S: Step>(
    step: &mut S,
    queue: &[Waiter],
    standing: &[&Lease],
    mut holders: usize,
) {
    let changes = |waiter: &&Waiter| {
        let (own, others): (Vec<&Lease>, Vec<&Lease>) = standing
            .iter()
            .partition(|lease| waiter.named && lease.holder.id == waiter.holder.id);
        !own.is_empty() && others.iter().all(|lease| lease.mode.admits(&waiter.mode))
    };
    let changing: Vec<&Waiter> = queue.iter().filter(changes).collect();
    for waiter in changing {
        if is_here(step, waiter) {
            step.wake(&waiter.holder);
            if waiter.mode.paths().is_none() {
                return;
            }
        }
    }
    let mut is_exclusive = standing.iter().any(|lease| lease.mode.is_exclusive());
    let mut ahead: Vec<&Waiter> = Vec::new();
    for waiter in queue {
        if is_exclusive {
            return;
        }
        let claimant = Claimant::waiting(waiter);
        let fits = holders < waiter.mode.room()
            && standing.iter().all(|lease| fits(lease, claimant))
            && ahead
                .iter()
                .all(|other| claimant.fits(Claimant::waiting(other)));
        if is_here(step, waiter) {
            if fits {
                step.wake(&waiter.holder);
                holders += 1;
                is_exclusive |= waiter.mode.is_exclusive();
            } else if waiter.mode.paths().is_none() {
                return;
            }
            ahead.push(waiter);
        }
    }
}

/// Wakes the waiters for a key that can proceed, now that these leases have ended.
pub(super) fn wake_after<S: Step>(
    step: &mut S,
    key: &Key,
    ended: &[Lease],
) -> Result<(), S::Error> {
    let _budget = Budget::begin();
    let front = first_waiter(step, key)?;
    if front.0.is_empty() {
        return Ok(());
    }
    let ended_paths = ended.iter().any(|lease| lease.mode.paths().is_some());
    if ended_paths || front.0.iter().any(|waiter| waiter.mode.paths().is_some()) {
        let waited = |waiter: Claimant<'_>| ended.iter().any(|lease| !fits(lease, waiter));
        return wake_unblocked(step, key, waited);
    }
    let others = others(step, key, &front.0, ended)?;
    let queue = first_waiters(step, key, front, &others)?;
    wake_beside(
        step,
        &queue,
        &standing(step, &others.leases),
        others.holders,
    );
    Ok(())
}

/// Wakes the next waiter for a key that was granted just now, if it can hold the key as well: it may not know that
/// it is first, because it watches the process of the waiter ahead. It wakes the next one in turn. `ended` are the leases
/// that the grant ended.
pub(super) fn wake_second<S: Step>(
    step: &mut S,
    granted: &Lease,
    ended: &[Lease],
) -> Result<(), S::Error> {
    let key = &granted.key;
    let (mut queue, _) = first_waiter(step, key)?;
    let Some(next) = queue.iter().position(|waiter| is_here(step, waiter)) else {
        return Ok(());
    };
    queue.truncate(next + 1);
    let is_shared = |waiter: &&Waiter| waiter.mode == Mode::Shared && granted.mode == Mode::Shared;
    if let Some(next) = queue.last().filter(is_shared) {
        step.wake(&next.holder);
        return Ok(());
    }
    let others = others(step, key, &queue, ended)?;
    wake_beside(
        step,
        &queue,
        &standing(step, &others.leases),
        others.holders,
    );
    Ok(())
}

/// Wakes waiters that could proceed before a claim that was refused: they may have missed their wake-up. Of the waiters for
/// paths, only the first that the claim waits for.
pub(super) fn wake_others<S: Step>(
    step: &mut S,
    claim: &Claim,
    view: &View,
) -> Result<(), S::Error> {
    if claim.mode.paths().is_none() {
        let standing = standing(step, &view.leases);
        let holders = standing.len() + view.other_slots.len();
        wake_beside(step, &view.queue, &standing, holders);
        return Ok(());
    }
    let (ticket, _) = decide::position(step.now(), view, claim);
    let rank = decide::rank(step.now(), view, claim, ticket);
    let goes_first = |waiter: &&Waiter| {
        waiter.rank() < rank && !Claimant::of(claim).fits(Claimant::waiting(waiter))
    };
    let mut ahead = view.queue.iter().filter(goes_first);
    let Some(first) = ahead.find(|waiter| is_here(step, waiter)) else {
        return Ok(());
    };
    let mut paths = WaitsForPaths::read(step, &claim.key)?;
    let at = paths.queue.iter().position(|it| it.ticket == first.ticket);
    if let Some(at) = at
        && paths.can_proceed(step, at)?
    {
        step.wake(&first.holder);
    }
    Ok(())
}

/// Wakes the waiters for paths that can proceed, of those that waited for something that has ended.
fn wake_unblocked<S: Step>(
    step: &mut S,
    key: &Key,
    waited: impl Fn(Claimant<'_>) -> bool,
) -> Result<(), S::Error> {
    let mut paths = WaitsForPaths::read(step, key)?;
    for at in 0..paths.queue.len() {
        let waiter = paths.queue.get(at);
        if waiter.is_some_and(|waiter| waited(waiter.claimant())) && paths.can_proceed(step, at)? {
            paths.wake(step, at)?;
        }
    }
    Ok(())
}

/// Removes the ticket of a claim, if it has one.
pub fn drop_ticket<S: Step>(step: &mut S, key: &Key, ticket: ClaimTicket) -> Result<(), S::Error> {
    match ticket.ticket() {
        Some(ticket) => step.remove_ticket(key, ticket),
        None => Ok(()),
    }
}

/// Withdraws the tickets of claims, or parks them.
pub fn withdraw<S: Step>(step: &mut S, claims: &[Claim], then: Withdrawal) -> Result<(), S::Error> {
    for claim in claims {
        let view = View {
            queue: step.some_tickets(&claim.key, Part::Of(&claim.holder.id))?,
            ..View::default()
        };
        withdraw_in(step, claim, &view, then)?;
    }
    Ok(())
}

/// The same for one claim, in a view of its key.
pub fn withdraw_in<S: Step>(
    step: &mut S,
    claim: &Claim,
    view: &View,
    then: Withdrawal,
) -> Result<(), S::Error> {
    match decide::position(step.now(), view, claim) {
        (ClaimTicket::Own(ticket), _) => withdraw_ticket(step, &claim.key, view, ticket, then),
        _ => Ok(()),
    }
}

/// Withdraws or parks a ticket of this view, and wakes the waiter behind it: that waiter may be first now, or has another
/// process to watch.
pub(super) fn withdraw_ticket<S: Step>(
    step: &mut S,
    key: &Key,
    view: &View,
    ticket: Ticket,
    then: Withdrawal,
) -> Result<(), S::Error> {
    let _budget = Budget::begin();
    let Some(waiter) = view.queue.iter().find(|waiter| waiter.ticket == ticket) else {
        return Ok(());
    };
    let behind = behind(step, key, waiter.rank())?;
    match then {
        Withdrawal::Leave => step.remove_ticket(key, ticket)?,
        Withdrawal::Park => {
            let parked = Waiter {
                seen: step.now().ticks,
                presence: Presence::Away,
                ..waiter.clone()
            };
            step.update_ticket(key, &parked)?;
        }
    }
    if waiter.mode.paths().is_none() {
        wake_next(step, &behind);
        return Ok(());
    }
    wake_unblocked(step, key, |other| !other.fits(Claimant::waiting(waiter)))?;
    WaitsForPaths::read(step, key)?.wake_watchers(step, waiter)
}

/// Writes or renews the ticket of a claim that has to wait.
pub fn take_ticket<S: Step>(
    step: &mut S,
    claim: &Claim,
    view: &View,
    ticket: ClaimTicket,
) -> Result<(Ticket, Rank), S::Error> {
    let arrived = (step.rules().arrival)(step.now(), &view.queue);
    take_ticket_with(step, claim, view, ticket, arrived, &[])
}

/// The same for a claim that also waits for other keys. A new ticket gets this arrival time.
pub(super) fn take_ticket_with<S: Step>(
    step: &mut S,
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
            drop_forgotten(step, &claim.key, &view.queue)?;
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
        wake_next(step, view.queue.get(first_behind..).unwrap_or_default());
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
