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
//! | shared, paths | the first waiter that conflicts with it and is present, and the last one before the claim |
//! | paths of a holder that has others | every waiter that conflicts with it |
//! | slots | the front, up to as many present waiters as there are slots |
//! | shared, slots, paths | every waiter whose mode contradicts the claim's |
//!
//! The leases are read in part as well, so that holders which do not matter are not probed:
//!
//! | mode | what it needs |
//! |---|---|
//! | shared, or slots while there are more than holders and waiters ahead | leases in other modes, those of the claimant, and the two that expire first |
//! | paths | those at the same [`Places`](crate::Places); those of the claimant, if a waiter conflicts with the claim |
//! | exclusive, or slots that are all taken | every lease |
//!
//! # Invariants
//!
//! 1. If present waiters that rank before the claim keep it from the key, the window contains enough of them to (G8).
//! 2. A ticket of the claimant's name is in the window.
//!
//! A neighbour search is bounded. If all that it finds are absent, a waiter further away is watched or
//! misses its wake-up, and notices at its next poll.

use std::collections::BTreeSet;

use crate::claim::Claim;
use crate::decide::{self, ClaimTicket, LeftOut, View};
use crate::key::Key;
use crate::lease::Lease;
use crate::mode::Mode;
use crate::queue::{Presence, Rank, Waiter};
use crate::verdict::Liveness;

use super::look::{Probe, add_leases, is_here, leases_near, resolve_presence};
use super::{LeasePart, Look, Part};

/// How many tickets are read to find the first waiter that is present, who usually is the first one.
pub(super) const FIRST: usize = 2;

/// How many neighbours are read on each side, for each four tickets that are read from the front.
pub(super) fn neighbours<L: Look>(look: &L) -> usize {
    look.window() / 4 + 1
}

/// The view of a claim: every lease that conflicts with it or is in its way, and the part of the queue that it depends on.
pub fn view_of<L: Look>(look: &mut L, claim: &Claim) -> Result<View, L::Error> {
    let key = &claim.key;
    let mode = &claim.mode;
    let mut leases = match mode {
        Mode::Exclusive => look.leases(key)?,
        Mode::Shared => leases_beside(look, claim)?,
        Mode::Slots(_) => {
            if let Some(view) = view_of_free_slot(look, claim)? {
                return Ok(view);
            }
            look.leases(key)?
        }
        Mode::Paths(_) => leases_near(look, key, mode)?,
    };
    leases.extend(look.obstacles(claim)?);
    if leases.is_empty()
        && mode.is_exclusive()
        && let Some(view) = view_of_turn(look, claim)?
    {
        return Ok(view);
    }
    let asker = &claim.holder.id;
    let present = if matches!(mode, Mode::Slots(_)) {
        mode.room()
    } else {
        1
    };
    let (mut queue, whole) = front(look, key, look.window() + 1, present)?;
    let mut in_line = InLine::default();
    if !whole {
        queue.extend(look.some_tickets(key, Part::Of(asker))?);
        if selects(mode) {
            queue.extend(first_against(look, claim)?);
        }
        if !mode.is_exclusive() {
            queue.extend(look.some_tickets(key, Part::Contradicting(mode))?);
        }
    }
    let probe = if mode.paths().is_some() && claim.named {
        add_own_leases(look, claim, &mut leases, &mut queue, whole)?
    } else {
        Probe::First
    };
    in_line.add(&queue);
    resolve_presence(look, &mut queue, Some(asker), mode, probe);
    let mut view = View {
        leases,
        queue,
        ..View::default()
    };
    if !whole {
        let (ticket, _) = decide::position(look.now(), &view, claim);
        if ticket == ClaimTicket::New {
            let newest = look.some_tickets(key, Part::Newest)?;
            in_line.add(&newest);
            view.queue.extend(newest);
        }
        let rank = decide::rank(look.now(), &view, claim, ticket);
        let limit = neighbours(look);
        let mut near = look.some_tickets(key, Part::Before(rank, limit))?;
        near.extend(look.some_tickets(key, Part::After(rank, limit))?);
        if selects(mode) {
            let against = Part::AgainstBefore(mode, rank, limit);
            near.extend(look.some_tickets(key, against)?);
        }
        in_line.add(&near);
        view.queue.extend(near);
        resolve_presence(look, &mut view.queue, Some(asker), mode, probe);
        view.left_out = in_line.left_out(look, key, rank)?;
    }
    Ok(view)
}

/// Whether a claim in this mode passes the waiters that it can hold the key together with, however many they are.
fn selects(mode: &Mode) -> bool {
    mode.room() == usize::MAX
}

/// The tickets that conflict with a claim's mode, from the front to the first waiter of another name that is present: one
/// of the same name need not go first.
fn first_against<L: Look>(look: &mut L, claim: &Claim) -> Result<Vec<Waiter>, L::Error> {
    let against = |limit| Part::FirstAgainst(&claim.mode, limit);
    let others = |waiter: &Waiter| waiter.holder.id != claim.holder.id;
    Ok(until_present(look, &claim.key, FIRST, 1, against, others)?.0)
}

/// The leases in other modes than a claim's, those of the claimant, and those that expire first: a holder that died or
/// that expired is found sooner or later.
fn leases_beside<L: Look>(look: &mut L, claim: &Claim) -> Result<Vec<(Lease, Liveness)>, L::Error> {
    let key = &claim.key;
    let mut leases = look.some_leases(key, LeasePart::Beside(claim, FIRST))?;
    for token in &claim.within {
        add_leases(
            &mut leases,
            look.some_leases(key, LeasePart::Token(*token))?,
        );
    }
    Ok(leases)
}

/// Adds the claimant's own reservations if a waiter conflicts with the claim: a waiter that waits for one of them does not
/// go first. Then the next waiter may, so all of them count.
fn add_own_leases<L: Look>(
    look: &mut L,
    claim: &Claim,
    leases: &mut Vec<(Lease, Liveness)>,
    queue: &mut Vec<Waiter>,
    whole: bool,
) -> Result<Probe, L::Error> {
    let conflicts = |waiter: &Waiter| !waiter.mode.admits(&claim.mode);
    if !queue.iter().any(conflicts) {
        return Ok(Probe::First);
    }
    let own = look.some_leases(&claim.key, LeasePart::Of(&claim.holder.id))?;
    if own.is_empty() {
        return Ok(Probe::First);
    }
    add_leases(leases, own);
    if !whole {
        let all = Part::FirstAgainst(&claim.mode, usize::MAX);
        queue.extend(look.some_tickets(&claim.key, all)?);
    }
    Ok(Probe::All)
}

/// The view of a claim for a slot, if nothing is in another mode, and there is a slot for the claim even if every other
/// holder lives and every waiter ahead is present: it will be granted, and none of them is probed.
fn view_of_free_slot<L: Look>(look: &mut L, claim: &Claim) -> Result<Option<View>, L::Error> {
    let (key, mode, asker) = (&claim.key, &claim.mode, &claim.holder.id);
    let slots = look.slots(key)?;
    if slots.len() >= mode.room() {
        return Ok(None);
    }
    let mut queue = look.some_tickets(key, Part::FirstAgainst(mode, 1))?;
    let leases = leases_beside(look, claim)?;
    if !queue.is_empty() || leases.iter().any(|(lease, _)| lease.mode != *mode) {
        return Ok(None);
    }
    queue.extend(look.some_tickets(key, Part::Of(asker))?);
    queue.extend(look.some_tickets(key, Part::Newest)?);
    let mut in_line = InLine::default();
    in_line.add(&queue);
    resolve_presence(look, &mut queue, Some(asker), mode, Probe::First);
    let mut view = View {
        leases,
        queue,
        ..View::default()
    };
    let (ticket, _) = decide::position(look.now(), &view, claim);
    let rank = decide::rank(look.now(), &view, claim, ticket);
    let (before, _) = look.count_waiters(key, rank)?;
    if slots.len() + before >= mode.room() {
        return Ok(None);
    }
    view.left_out = in_line.left_out(look, key, rank)?;
    let is_read = |token| view.leases.iter().any(|(lease, _)| lease.token == token);
    let others = slots.into_iter().filter(|(token, _)| !is_read(*token));
    view.other_slots = others.filter_map(|(_, slot)| slot).collect();
    Ok(Some(view))
}

/// The view of a claim on a key that is free, if no waiter goes first: it will be granted, so nothing depends on the
/// waiters behind. A hand-over reads no more than this.
fn view_of_turn<L: Look>(look: &mut L, claim: &Claim) -> Result<Option<View>, L::Error> {
    let asker = &claim.holder.id;
    let (mut queue, whole) = front(look, &claim.key, FIRST, 1)?;
    if !whole {
        queue.extend(look.some_tickets(&claim.key, Part::Of(asker))?);
    }
    resolve_presence(look, &mut queue, Some(asker), &claim.mode, Probe::First);
    let view = View {
        queue,
        ..View::default()
    };
    let (ticket, ahead) = decide::position(look.now(), &view, claim);
    // Without a ticket, the rank of the claim depends on the newest one.
    let has_turn = ahead == 0 && ticket != ClaimTicket::New;
    Ok((whole || has_turn).then_some(view))
}

/// The first tickets of a queue, and whether these are all. At least `present` of them are present, if so many are:
/// `limit` rises until then.
pub(super) fn front<L: Look>(
    look: &mut L,
    key: &Key,
    limit: usize,
    present: usize,
) -> Result<(Vec<Waiter>, bool), L::Error> {
    until_present(look, key, limit, present, Part::First, |_| true)
}

/// The same for another part of the queue, and for some of its waiters.
fn until_present<'a, L: Look>(
    look: &mut L,
    key: &Key,
    mut limit: usize,
    present: usize,
    part: impl Fn(usize) -> Part<'a>,
    counts: impl Fn(&Waiter) -> bool,
) -> Result<(Vec<Waiter>, bool), L::Error> {
    loop {
        let tickets = look.some_tickets(key, part(limit))?;
        let whole = tickets.len() < limit;
        let counted = tickets.iter().filter(|waiter| counts(waiter));
        let mut here = counted.filter(|waiter| is_here(look, waiter));
        if whole || here.by_ref().take(present).count() == present {
            drop(here);
            return Ok((tickets, whole));
        }
        limit = limit.saturating_mul(8);
    }
}

/// The waiters that a window contains, as far as [`Look::count_waiters`] counts them. They are noted before [`resolve_presence`]
/// overwrites what is stored.
#[derive(Default)]
struct InLine(BTreeSet<Rank>);

impl InLine {
    fn add(&mut self, read: &[Waiter]) {
        let here = |waiter: &&Waiter| waiter.presence == Presence::Here;
        self.0.extend(read.iter().filter(here).map(Waiter::rank));
    }

    /// How many waiters are not in the window, on each side of a rank.
    fn left_out<L: Look>(&self, look: &mut L, key: &Key, rank: Rank) -> Result<LeftOut, L::Error> {
        let (before, all) = look.count_waiters(key, rank)?;
        let ahead = before.saturating_sub(self.0.range(..rank).count());
        Ok(LeftOut {
            ahead,
            behind: all.saturating_sub(self.0.len()).saturating_sub(ahead),
        })
    }
}
