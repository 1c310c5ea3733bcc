//! Reads the part of a key's queue that a verb needs, so that a hand-over costs the same with ten waiters and
//! with a thousand.
//!
//! A queue of at most [`Look::window`] tickets is read whole. Of a longer one, a claim needs the front, up to the
//! first waiter that is present; the tickets of its own name; the newest ticket, which has the latest arrival time,
//! unless the claim has a ticket; and its neighbours in the order. The others are only counted. A claim whose turn it is
//! needs only the first two.
//!
//! What else a claim needs depends on its mode:
//!
//! | mode | what it needs |
//! |---|---|
//! | shared | the first waiter in another mode that is present, and the last one before the claim |
//! | slots | the front, up to as many present waiters as there are slots |
//! | shared, slots | every waiter whose mode contradicts the claim's |
//! | paths | the whole queue |
//!
//! # Invariants
//!
//! 1. If present waiters that rank before the claim keep it from the key, the window contains enough of them to (G8).
//! 2. A ticket of the claimant's name is in the window.
//!
//! A neighbour search is bounded. If all that it finds are absent, a waiter further away is watched or
//! misses its wake-up, and notices at its next poll.

use crate::claim::Claim;
use crate::decide::{self, ClaimTicket, LeftOut, View};
use crate::key::Key;
use crate::lease::Lease;
use crate::mode::Mode;
use crate::queue::{Rank, Ticket, Waiter};
use crate::verdict::Liveness;

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
    let mode = &claim.mode;
    let (mut queue, whole) = match mode {
        Mode::Exclusive | Mode::Shared => front(look, key, look.window() + 1, 1)?,
        Mode::Slots(_) => front(look, key, look.window() + 1, mode.room())?,
        Mode::Paths(_) => (look.tickets(key)?, true),
    };
    if !whole {
        queue.extend(look.some_tickets(key, Part::Of(asker))?);
        if *mode == Mode::Shared {
            let unlike = |limit| Part::FirstUnlike(mode, limit);
            queue.extend(until_present(look, key, FIRST, 1, unlike)?.0);
        }
        if !mode.is_exclusive() {
            queue.extend(look.some_tickets(key, Part::Contradicting(mode))?);
        }
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
        if *mode == Mode::Shared {
            let unlike = Part::UnlikeBefore(mode, rank, limit);
            view.queue.extend(look.some_tickets(key, unlike)?);
        }
        settle(look, &mut view.queue, Some(asker), &claim.mode);
        view.left_out = left_out(look, key, &view.queue, rank)?;
    }
    Ok(view)
}

/// The view of a claim on a key that is free, if no waiter goes first: it will be granted, so nothing depends on the
/// waiters behind. A hand-over reads no more than this.
fn view_of_turn<L: Look>(look: &mut L, claim: &Claim) -> Result<Option<View>, L::Error> {
    let asker = &claim.holder.id;
    let (mut queue, whole) = front(look, &claim.key, FIRST, 1)?;
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

/// The waiters that may proceed beside these leases, in order: from the front of the queue to the first one that is
/// present; if that one can hold the key together with others, some more, and each that is granted the key wakes the next
/// one. All of them, if they wait for paths. And those of the leases' holders, which may change their modes.
pub(super) fn first_waiters<L: Look>(
    look: &mut L,
    key: &Key,
    beside: &[(Lease, Liveness)],
) -> Result<Vec<Waiter>, L::Error> {
    let (mut tickets, mut whole) = front(look, key, FIRST, 1)?;
    if !whole {
        let has = |of: fn(&Mode) -> bool| tickets.iter().any(|waiter| of(&waiter.mode));
        if has(|mode| mode.paths().is_some()) {
            (tickets, whole) = (look.tickets(key)?, true);
        } else if has(|mode| !mode.is_exclusive()) {
            (tickets, whole) = front(look, key, look.window(), look.window())?;
        }
    }
    for (lease, _) in beside.iter().filter(|_| !whole) {
        tickets.extend(look.some_tickets(key, Part::Of(&lease.holder.id))?);
    }
    settle(look, &mut tickets, None, &Mode::Exclusive);
    Ok(tickets)
}

/// The waiters from the front of the queue to the first one that is present, in order.
pub(super) fn first_waiter<L: Look>(look: &mut L, key: &Key) -> Result<Vec<Waiter>, L::Error> {
    let (mut tickets, _) = front(look, key, FIRST, 1)?;
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

/// The first tickets of a queue, and whether these are all. At least `present` of them are present, if so many are:
/// `limit` rises until then.
fn front<L: Look>(
    look: &mut L,
    key: &Key,
    limit: usize,
    present: usize,
) -> Result<(Vec<Waiter>, bool), L::Error> {
    until_present(look, key, limit, present, Part::First)
}

/// The same for another part of the queue.
fn until_present<'a, L: Look>(
    look: &mut L,
    key: &Key,
    mut limit: usize,
    present: usize,
    part: impl Fn(usize) -> Part<'a>,
) -> Result<(Vec<Waiter>, bool), L::Error> {
    loop {
        let tickets = look.some_tickets(key, part(limit))?;
        let whole = tickets.len() < limit;
        let mut here = tickets.iter().filter(|waiter| is_here(look, waiter));
        if whole || here.by_ref().take(present).count() == present {
            drop(here);
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
