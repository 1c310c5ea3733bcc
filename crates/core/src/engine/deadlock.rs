//! The cycle that a wait would close.
//!
//! Most cycles are closed by a claim, which is refused. A grant closes one if the same name waits for another key
//! in another process: A waits for x and for y, B holds y and waits for x, and A is granted x. Then A's
//! other process is woken, asks again, and is refused.

use crate::claim::Claim;
use crate::cycle::{self, Cycle};
use crate::decide::{self, Claimant, View};
use crate::lease::Grant;
use crate::mode::Mode;
use crate::queue::{Presence, Waiter};
use crate::waits::Wanted;

use super::look::{is_alive, is_here, resolve_presence, standing, view as view_of};
use super::{Step, TicketFilter, TicketQuery};

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
            whole = View {
                leases: step.leases(&claim.key)?,
                queue: step.tickets(&claim.key)?,
                ..View::default()
            };
            let claimant = Some(Claimant::of(claim));
            resolve_presence(step, &mut whole.queue, claimant, &whole.leases);
            &whole
        }
        // Not all waiters ahead were read. An exclusive one among them waits for every slot.
        mode @ Mode::Slots(_) => {
            whole = view.clone();
            if view.unread.ahead > 0 {
                let against = TicketQuery::all(TicketFilter::Against(mode));
                whole.queue.extend(step.some_tickets(&claim.key, against)?);
            }
            &whole
        }
    };
    let rank = decide::position(step.now(), view, claim).0;
    let rank = decide::rank(step.now(), view, claim, rank);
    let ahead: Vec<&Waiter> = view.queue.iter().collect();
    let standing = standing(step, &view.leases);
    let wanted = Wanted::by(Claimant::of(claim), rank, &standing, &ahead, |waiter| {
        is_here(step, waiter)
    });
    let ours = |held: &Grant| held.holder == claim.holder.id || claim.within.contains(&held.token);
    cycle::find(&claim.holder.id, &wanted.grants(), ours, |held| {
        waits_of(step, held)
    })
}

/// What the holder of a grant waits for, by its name or in a command that runs under the grant, and
/// who holds that.
fn waits_of<S: Step>(step: &mut S, held: &Grant) -> Result<Vec<Wanted>, S::Error> {
    let mut waits = Vec::new();
    for key in step.waits_of(&held.holder, held.token)? {
        let view = view_of(step, &key, None)?;
        let standing = standing(step, &view.leases);
        let queue: Vec<&Waiter> = view.queue.iter().collect();
        for waiter in &view.queue {
            let waits_here =
                waiter.is_of(&held.holder, held.token) && waiter.presence == Presence::Here;
            // A waiter that has exited waits for nothing.
            if !waits_here || !is_alive(step, &waiter.holder) {
                continue;
            }
            let mut wanted =
                Wanted::by_waiter(waiter, &standing, &queue, |ahead| is_here(step, ahead));
            wanted.retain(|lease| lease.holder.id != held.holder);
            if !wanted.is_empty() {
                waits.push(wanted.grants());
            }
        }
    }
    Ok(waits)
}
