//! Reads the part of a key's queue that a verb needs, so that a hand-over costs the same with ten waiters and
//! with a thousand.
//!
//! A queue of at most [`Look::window`] tickets is read whole. Of a longer one, a claim needs the front, up to the
//! first waiter that is present; the tickets of its own name; the newest ticket, which has the latest arrival time,
//! unless the claim has a ticket; and its neighbours in the order. The others are only counted. A claim whose turn it is
//! needs only the first two.
//!
//! A claim that is not exclusive depends on every waiter ahead, and reads the whole queue.
//!
//! # Invariants
//!
//! 1. If a present waiter ranks before the claim, the window contains the first one (G8).
//! 2. A ticket of the claimant's name is in the window.
//!
//! A neighbour search is bounded. If all that it finds are absent, a waiter further away is watched or
//! misses its wake-up, and notices at its next poll.

use crate::claim::Claim;
use crate::decide::{self, ClaimTicket, LeftOut, View};
use crate::key::Key;
use crate::mode::Mode;
use crate::queue::{Rank, Ticket, Waiter};

use super::look::{is_here, settle};
use super::{Look, Part};

/// How many tickets are read to find the first waiter that is present, who usually is the first one.
const FIRST: usize = 2;

/// How many neighbours are read on each side, for each four tickets that are read from the front.
fn neighbours<L: Look>(look: &L) -> usize {
    look.window() / 4 + 1
}

/// The view of a claim: every lease that conflicts with it or is in its way, and the part of the queue that it depends on.
pub fn view_of<L: Look>(look: &mut L, claim: &Claim) -> Result<View, L::Error> {
    let mut leases = look.leases(&claim.key)?;
    leases.extend(look.obstacles(claim)?);
    if leases.is_empty()
        && claim.mode.is_exclusive()
        && let Some(view) = view_of_turn(look, claim)?
    {
        return Ok(view);
    }
    let key = &claim.key;
    let asker = &claim.holder.id;
    let (mut queue, whole) = if claim.mode.is_exclusive() {
        front(look, key, look.window() + 1)?
    } else {
        (look.tickets(key)?, true)
    };
    if !whole {
        queue.extend(look.some_tickets(key, Part::Of(asker))?);
    }
    settle(look, &mut queue, Some(asker), &claim.mode);
    let mut view = View {
        leases,
        queue,
        left_out: LeftOut::default(),
    };
    if !whole {
        let (ticket, _) = decide::position(look.now(), &view, claim);
        if ticket == ClaimTicket::New {
            view.queue.extend(look.some_tickets(key, Part::Newest)?);
        }
        let rank = decide::rank(look.now(), &view, claim, ticket);
        let limit = neighbours(look);
        let before = look.some_tickets(key, Part::Before(rank, limit))?;
        let after = look.some_tickets(key, Part::After(rank, limit))?;
        view.queue.extend(before.into_iter().chain(after));
        settle(look, &mut view.queue, Some(asker), &claim.mode);
        view.left_out = left_out(look, key, &view.queue, rank)?;
    }
    Ok(view)
}

/// The view of a claim on a key that is free, if no waiter goes first: it will be granted, so nothing depends on the
/// waiters behind. A hand-over reads no more than this.
fn view_of_turn<L: Look>(look: &mut L, claim: &Claim) -> Result<Option<View>, L::Error> {
    let asker = &claim.holder.id;
    let (mut queue, whole) = front(look, &claim.key, FIRST)?;
    if !whole {
        queue.extend(look.some_tickets(&claim.key, Part::Of(asker))?);
    }
    settle(look, &mut queue, Some(asker), &claim.mode);
    let view = View {
        queue,
        ..View::default()
    };
    let (ticket, ahead) = decide::position(look.now(), &view, claim);
    // Without a ticket, the rank of the claim depends on the newest one.
    let has_turn = ahead == 0 && ticket != ClaimTicket::New;
    Ok((whole || has_turn).then_some(view))
}

/// The waiters from the front of the queue to the first one that is present, in order; all of them if some can hold
/// the key together.
pub(super) fn first_waiters<L: Look>(look: &mut L, key: &Key) -> Result<Vec<Waiter>, L::Error> {
    let (mut tickets, whole) = front(look, key, FIRST)?;
    if !whole && tickets.iter().any(|waiter| !waiter.mode.is_exclusive()) {
        tickets = look.tickets(key)?;
    }
    settle(look, &mut tickets, None, &Mode::Exclusive);
    Ok(tickets)
}

/// A ticket and the waiters behind it, in order, up to the first one that is present if the queue is long.
pub(super) fn from_ticket<L: Look>(
    look: &mut L,
    key: &Key,
    ticket: Ticket,
) -> Result<Vec<Waiter>, L::Error> {
    let Some(own) = look.some_tickets(key, Part::Ticket(ticket))?.pop() else {
        return Ok(Vec::new());
    };
    let rank = own.rank();
    let mut limit = neighbours(look);
    loop {
        let behind = look.some_tickets(key, Part::After(rank, limit))?;
        let complete = behind.len() < limit;
        if complete || behind.iter().any(|waiter| is_here(look, waiter)) {
            let mut tickets = vec![own];
            tickets.extend(behind);
            return Ok(tickets);
        }
        limit = limit.saturating_mul(8);
    }
}

/// The first tickets of a queue, and whether these are all. At least one of them is present, if any is: `limit` rises
/// until then.
fn front<L: Look>(
    look: &mut L,
    key: &Key,
    mut limit: usize,
) -> Result<(Vec<Waiter>, bool), L::Error> {
    loop {
        let tickets = look.some_tickets(key, Part::First(limit))?;
        let whole = tickets.len() < limit;
        if whole || tickets.iter().any(|waiter| is_here(look, waiter)) {
            return Ok((tickets, whole));
        }
        limit = limit.saturating_mul(8);
    }
}

/// How many tickets are not in the window, on each side of a rank.
fn left_out<L: Look>(
    look: &mut L,
    key: &Key,
    window: &[Waiter],
    rank: Rank,
) -> Result<LeftOut, L::Error> {
    let (before, all) = look.count_tickets(key, rank)?;
    let read = window.iter().filter(|waiter| waiter.rank() < rank).count();
    let ahead = before.saturating_sub(read);
    Ok(LeftOut {
        ahead,
        behind: all.saturating_sub(window.len()).saturating_sub(ahead),
    })
}
