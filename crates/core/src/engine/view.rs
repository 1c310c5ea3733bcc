//! What a claim depends on, and no more: [`view_of`].
//!
//! A queue of at most [`Look::window`] tickets is read whole. Of a longer one, a claim needs the front, up to the
//! first waiter that is present; the tickets of its own name; the newest ticket, which has the latest arrival time,
//! unless the claim has a ticket; and its neighbours in the order. The others are only counted. A claim whose turn it is
//! needs only the first two. What else it needs depends on its mode:
//!
//! | mode | tickets | leases |
//! |---|---|---|
//! | exclusive | | all |
//! | shared | the first present waiter that conflicts with it, and the last ones before it | those in other modes, those of the claimant, and the two that expire first |
//! | slots | the front, up to as many present waiters as there are slots | the same while there are more slots than holders and waiters ahead, otherwise all |
//! | paths | as shared; one that waits for a reservation of the claimant does not count | those at the same [`Places`](crate::Places); those of the claimant, if a waiter conflicts with the claim |
//! | shared, slots, paths | every waiter whose mode contradicts the claim's | |
//!
//! # Invariants
//!
//! 1. If present waiters that rank before the claim keep it from the key, the view contains enough of them to (G8).
//! 2. A ticket of the claimant's name is in the view.
//!
//! A search for neighbours is bounded. If all that it finds are absent, a waiter further away is watched or
//! misses its wake-up, and notices at its next poll.

use crate::claim::Claim;
use crate::decide::{self, ClaimTicket, Claimant, View};
use crate::lease::Lease;
use crate::mode::Mode;
use crate::queue::Waiter;
use crate::verdict::Liveness;

use super::Look;
use super::cursor::{Cursor, FIRST};
use super::look::{add_leases, leases_near, standing};
use super::query::{LeaseQuery, TicketFilter, TicketQuery, TicketRange};

/// How many neighbours are read on each side, for each four tickets that are read from the front.
pub(super) fn neighbours<L: Look>(look: &L) -> usize {
    look.window() / 4 + 1
}

/// The view of a claim: every lease that conflicts with it or is in its way, and the part of the queue that it depends on.
pub fn view_of<L: Look>(look: &mut L, claim: &Claim) -> Result<View, L::Error> {
    let (key, mode, claimant) = (&claim.key, &claim.mode, Claimant::of(claim));
    let own = TicketQuery::all(TicketFilter::Of(&claim.holder.id));
    let mut leases = match mode {
        Mode::Exclusive => look.leases(key)?,
        Mode::Shared => leases_beside(look, claim)?,
        Mode::Slots(_) => match view_of_free_slot(look, claim)? {
            Some(view) => return Ok(view),
            None => look.leases(key)?,
        },
        Mode::Paths(_) => leases_near(look, key, mode)?,
    };
    leases.extend(look.obstacles(claim)?);
    let mut cursor = Cursor::new(key);
    // A key that is free is granted if no waiter goes first. Nothing depends on the waiters behind.
    if leases.is_empty() && mode.is_exclusive() {
        let first = TicketQuery::first(TicketFilter::All, FIRST);
        cursor.read_until(look, first, 1, |_| true)?;
        cursor.read(look, own)?;
        let view = View {
            queue: cursor.queue(look, Some(claimant), &[]),
            ..View::default()
        };
        let (ticket, ahead) = decide::position(look.now(), &view, claim);
        // Without a ticket, the rank of the claim depends on the newest one.
        if cursor.is_whole || ahead == 0 && ticket != ClaimTicket::New {
            return Ok(view);
        }
    }
    let front = TicketQuery::first(TicketFilter::All, look.window() + 1);
    // Among any number of holders, a claim passes the waiters that it can hold the key together with, however many.
    let selects = mode.room() == usize::MAX;
    let present = if selects { 1 } else { mode.room() };
    cursor.read_until(look, front, present, |_| true)?;
    cursor.read(look, own)?;
    if !mode.is_exclusive() {
        cursor.read(look, TicketQuery::all(TicketFilter::Contradicting(mode)))?;
    }
    let against = if selects {
        read_against(look, claim, &mut cursor, &mut leases)?;
        TicketFilter::Against(mode)
    } else {
        TicketFilter::All
    };
    let mut view = View {
        queue: cursor.queue(look, Some(claimant), &leases),
        leases,
        ..View::default()
    };
    if cursor.is_whole {
        return Ok(view);
    }
    let (ticket, _) = decide::position(look.now(), &view, claim);
    if ticket == ClaimTicket::New {
        cursor.read(look, TicketQuery::all(TicketFilter::Newest))?;
        view.queue = cursor.tickets().cloned().collect();
    }
    let rank = decide::rank(look.now(), &view, claim, ticket);
    let limit = neighbours(look);
    let ahead = TicketQuery {
        range: TicketRange::Before(rank),
        ..TicketQuery::first(against, limit)
    };
    cursor.read(look, ahead)?;
    cursor.read(
        look,
        TicketQuery::first(TicketFilter::All, limit).after(rank),
    )?;
    view.queue = cursor.queue(look, Some(claimant), &view.leases);
    view.unread = cursor.unread(look, rank)?;
    Ok(view)
}

/// Reads the tickets that conflict with a claim among any number of holders, from the front to the first waiter that goes
/// before it: one that is present, has another name, and does not wait for a reservation that the claimant has already. If
/// any conflicts, the claimant's own reservations count.
fn read_against<L: Look>(
    look: &mut L,
    claim: &Claim,
    cursor: &mut Cursor<'_>,
    leases: &mut Vec<(Lease, Liveness)>,
) -> Result<(), L::Error> {
    let claimant = Claimant::of(claim);
    let against = TicketQuery::first(TicketFilter::Against(&claim.mode), FIRST);
    let others = |waiter: &Waiter| waiter.holder.id != claim.holder.id;
    cursor.read_until(look, against, 1, others)?;
    let conflicts = |waiter: &Waiter| !waiter.mode.admits(&claim.mode);
    let any = cursor.tickets().any(conflicts);
    if claim.mode.paths().is_none() || !claim.named || !any {
        return Ok(());
    }
    let own = look.some_leases(&claim.key, LeaseQuery::Of(&claim.holder.id))?;
    if own.is_empty() {
        return Ok(());
    }
    add_leases(leases, own);
    let standing = standing(look, leases);
    cursor.read_until(look, against, 1, |waiter| {
        others(waiter) && !decide::waits_for(Claimant::waiting(waiter), claimant, &standing)
    })
}

/// The leases in other modes than a claim's, those of the claimant, and those that expire first: a holder that died or
/// that expired is found sooner or later.
fn leases_beside<L: Look>(look: &mut L, claim: &Claim) -> Result<Vec<(Lease, Liveness)>, L::Error> {
    let beside = LeaseQuery::Expiring(FIRST, Some(claim));
    let mut leases = look.some_leases(&claim.key, beside)?;
    for token in &claim.within {
        let within = look.some_leases(&claim.key, LeaseQuery::Token(*token))?;
        add_leases(&mut leases, within);
    }
    Ok(leases)
}

/// The view of a claim for a slot, if nothing is in another mode, and there is a slot for the claim even if every other
/// holder lives and every waiter ahead is present: it will be granted, and none of them is probed.
fn view_of_free_slot<L: Look>(look: &mut L, claim: &Claim) -> Result<Option<View>, L::Error> {
    let (key, mode) = (&claim.key, &claim.mode);
    let slots = look.slots(key)?;
    if slots.len() >= mode.room() {
        return Ok(None);
    }
    let mut cursor = Cursor::new(key);
    cursor.read(look, TicketQuery::first(TicketFilter::Against(mode), 1))?;
    let leases = leases_beside(look, claim)?;
    let is_other = |(lease, _): &(Lease, Liveness)| lease.mode != *mode;
    if cursor.tickets().next().is_some() || leases.iter().any(is_other) {
        return Ok(None);
    }
    cursor.read(look, TicketQuery::all(TicketFilter::Of(&claim.holder.id)))?;
    cursor.read(look, TicketQuery::all(TicketFilter::Newest))?;
    let mut view = View {
        leases,
        queue: cursor.queue(look, Some(Claimant::of(claim)), &[]),
        ..View::default()
    };
    let (ticket, ahead) = decide::position(look.now(), &view, claim);
    let rank = decide::rank(look.now(), &view, claim, ticket);
    view.unread = cursor.unread(look, rank)?;
    if slots.len() + ahead + view.unread.ahead >= mode.room() {
        return Ok(None);
    }
    let is_read = |token| view.leases.iter().any(|(lease, _)| lease.token == token);
    let others = slots.into_iter().filter(|(token, _)| !is_read(*token));
    view.unread.slots = others.filter_map(|(_, slot)| slot).collect();
    Ok(Some(view))
}
