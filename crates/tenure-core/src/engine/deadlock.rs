//! The cycle that a wait would close.
//!
//! Most cycles are closed by a claim, which is refused. A grant closes one if the same name waits for another key
//! in another process: A waits for x and for y, B holds y and waits for x, and A is granted x. Then A's
//! other process is woken, asks again, and is refused.

use crate::claim::Claim;
use crate::cycle::{self, Cycle, Holding};
use crate::decide::{self, Claimant, View};
use crate::lease::{Lease, Token};
use crate::mode::Mode;
use crate::queue::{Presence, Rank};

use super::look::{is_alive, is_here, standing, view as view_of};
use super::several::whole_view;
use super::{Part, Step};

/// The cycle that this wait would close, if it would. A lease that has ended conflicts with no claim.
pub fn cycle_of<S: Step>(
    step: &mut S,
    claim: &Claim,
    view: &View,
) -> Result<Option<Cycle>, S::Error> {
    // For these, not all leases were read. A wait that leads through one of the others can end at the claimant only if the
    // claimant holds something.
    let whole;
    let view = if matches!(claim.mode, Mode::Shared | Mode::Paths(_)) {
        if !step.may_hold(Some(&claim.holder.id), &claim.within)? {
            return Ok(None);
        }
        whole = whole_view(step, claim)?;
        &whole
    } else {
        view
    };
    let rank = decide::position(step.now(), view, claim).0;
    let rank = decide::rank(step.now(), view, claim, rank);
    let wanted: Vec<Holding> = waited_for(step, view, Claimant::of(claim), rank)
        .into_iter()
        .map(Holding::from)
        .collect();
    let ours =
        |held: &Holding| held.holder == claim.holder.id || claim.within.contains(&held.token);
    let mut find = |wanted: &[Holding]| {
        cycle::find(&claim.holder.id, wanted, ours, |held| waits_of(step, held))
    };
    if !waits_for_any(&claim.mode, &wanted) {
        return find(&wanted);
    }
    // Each of the holders could end the wait, so each of them must be part of a cycle.
    let mut first = None;
    for holder in &wanted {
        let Some(cycle) = find(std::slice::from_ref(holder))? else {
            return Ok(None);
        };
        first.get_or_insert(cycle);
    }
    Ok(first)
}

/// The leases that a claimant with this rank waits for. For paths, these are the leases that conflict with it, and what a
/// waiter ahead that conflicts with it waits for.
fn waited_for<'a, S: Step>(
    step: &mut S,
    view: &'a View,
    claimant: Claimant<'a>,
    rank: Rank,
) -> Vec<&'a Lease> {
    let mut standing = standing(step, &view.leases);
    if claimant.mode.paths().is_none() {
        return standing;
    }
    let mut asking = vec![(claimant, rank)];
    let mut seen = Vec::new();
    let mut next = 0;
    // The leases that no waiter so far waits for. Without one, the waiters further ahead change nothing.
    let mut others = standing.clone();
    while let Some((claimant, rank)) = asking.get(next).copied() {
        next += 1;
        others.retain(|lease| decide::fits(lease, claimant));
        if others.is_empty() {
            break;
        }
        for waiter in &view.queue {
            let goes_first = waiter.rank() < rank
                && !seen.contains(&waiter.ticket)
                && !claimant.fits(Claimant::waiting(waiter))
                && !decide::waits_for(Claimant::waiting(waiter), claimant, &standing);
            if goes_first && is_here(step, waiter) {
                seen.push(waiter.ticket);
                asking.push((Claimant::waiting(waiter), waiter.rank()));
            }
        }
    }
    let is_other = |lease: &Lease| others.iter().any(|other| other.token == lease.token);
    standing.retain(|lease| !is_other(lease));
    standing
}

/// Whether the end of any of several leases lets a claim proceed.
fn waits_for_any(mode: &Mode, held: &[Holding]) -> bool {
    matches!(mode, Mode::Slots(_)) && held.len() > 1
}

/// Wakes the other processes of a name that was granted a key, if they wait: the grant may have closed a cycle.
pub(super) fn wake_waits_of<S: Step>(step: &mut S, claim: &Claim) -> Result<(), S::Error> {
    let name = &claim.holder.id;
    for key in step.waits_of(name, Token::NONE)? {
        for waiter in step.some_tickets(&key, Part::Of(name))? {
            step.wake(&waiter.holder);
        }
    }
    Ok(())
}

/// What the holder of a grant waits for, by its name or in a command that runs under the grant, and
/// who holds that.
fn waits_of<S: Step>(step: &mut S, held: &Holding) -> Result<Vec<Holding>, S::Error> {
    let mut waits = Vec::new();
    for key in step.waits_of(&held.holder, held.token)? {
        let view = view_of(step, &key, None)?;
        for waiter in &view.queue {
            let waits_here = (waiter.holder.id == held.holder
                || waiter.within.contains(&held.token))
                && waiter.presence == Presence::Here;
            // A waiter that has exited waits for nothing.
            if !waits_here || !is_alive(step, &waiter.holder) {
                continue;
            }
            let claimant = Claimant::waiting(waiter);
            let wanted: Vec<Holding> = waited_for(step, &view, claimant, waiter.rank())
                .into_iter()
                // A waiter for several keys has a ticket for each of them, also for those that are free.
                .filter(|lease| waiter.with.is_empty() || !decide::fits(lease, claimant))
                .map(Holding::from)
                .filter(|wanted| wanted.holder != held.holder)
                .collect();
            // A wait for any of several slots is not followed: it may end without the others.
            if !waits_for_any(&waiter.mode, &wanted) {
                waits.extend(wanted);
            }
        }
    }
    Ok(waits)
}
