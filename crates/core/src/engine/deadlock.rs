//! The cycle that a wait would close.
//!
//! Most cycles are closed by a claim, which is refused. A grant closes one if the same name waits for another key
//! in another process: A waits for x and for y, B holds y and waits for x, and A is granted x. Then A's
//! other process is woken, asks again, and is refused.

use crate::claim::Claim;
use crate::cycle::{self, Cycle, Wanted};
use crate::decide::{self, Claimant, View};
use crate::lease::{Grant, Lease};
use crate::mode::Mode;
use crate::queue::{Presence, Rank, Waiter};
use crate::verdict::Liveness;

use super::look::{is_alive, is_here, standing, view as view_of};
use super::passing::whole_view;
use super::{Part, Step};

/// The cycle that this wait would close, if it would. A lease that has ended conflicts with no claim.
pub fn cycle_of<S: Step>(
    step: &mut S,
    claim: &Claim,
    view: &View,
) -> Result<Option<Cycle>, S::Error> {
    let mut whole;
    let view = match &claim.mode {
        Mode::Exclusive => view,
        // Not all leases were read. A wait that leads through one of the others can end at the claimant only if the
        // claimant holds something.
        Mode::Shared | Mode::Paths(_) => {
            if !step.may_hold(Some(&claim.holder.id), &claim.within)? {
                return Ok(None);
            }
            whole = whole_view(step, claim)?;
            &whole
        }
        // Not all waiters ahead were read. An exclusive one among them waits for every slot.
        mode @ Mode::Slots(_) => {
            whole = view.clone();
            if view.left_out.ahead > 0 {
                let against = Part::FirstAgainst(mode, usize::MAX);
                whole.queue.extend(step.some_tickets(&claim.key, against)?);
            }
            &whole
        }
    };
    let rank = decide::position(step.now(), view, claim).0;
    let rank = decide::rank(step.now(), view, claim, rank);
    let ahead: Vec<&Waiter> = view.queue.iter().collect();
    let wanted = waited_for(step, &view.leases, &ahead, Claimant::of(claim), rank);
    let ours = |held: &Grant| held.holder == claim.holder.id || claim.within.contains(&held.token);
    cycle::find(&claim.holder.id, &wanted, ours, |held| waits_of(step, held))
}

/// What a claimant with this rank waits for, in any mode: the leases that conflict with it, and with every present waiter
/// ahead that conflicts with it, because that one goes first; and if there is no slot left, any of those that are taken.
/// A waiter that is not present holds nobody up.
fn waited_for<S: Step>(
    step: &mut S,
    leases: &[(Lease, Liveness)],
    queue: &[&Waiter],
    claimant: Claimant<'_>,
    rank: Rank,
) -> Wanted {
    let standing = standing(step, leases);
    let is_full = standing.len() >= claimant.mode.room();
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
        for waiter in queue {
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
    let is_other = |lease: &&Lease| others.iter().any(|other| other.token == lease.token);
    let (beside, all): (Vec<&Lease>, Vec<&Lease>) = standing.into_iter().partition(is_other);
    Wanted {
        all: all.into_iter().map(Lease::grant).collect(),
        any: beside
            .into_iter()
            .filter(|_| is_full)
            .map(Lease::grant)
            .collect(),
    }
}

/// What the holder of a grant waits for, by its name or in a command that runs under the grant, and
/// who holds that.
fn waits_of<S: Step>(step: &mut S, held: &Grant) -> Result<Vec<Wanted>, S::Error> {
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
            // A waiter for several keys passes a waiter ahead that waits for it: only leases keep it waiting for ever.
            let ahead = view.queue.iter().filter(|_| waiter.with.is_empty());
            let ahead: Vec<&Waiter> = ahead.collect();
            let mut wanted = waited_for(step, &view.leases, &ahead, claimant, waiter.rank());
            wanted.all.retain(|it| it.holder != held.holder);
            wanted.any.retain(|it| it.holder != held.holder);
            if wanted != Wanted::default() {
                waits.push(wanted);
            }
        }
    }
    Ok(waits)
}
