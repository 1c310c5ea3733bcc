//! The cycle that a wait would close.

use crate::claim::Claim;
use crate::cycle::{self, Cycle, Holding};
use crate::decide::View;
use crate::queue::Presence;

use super::Step;
use super::look::{is_alive, standing, view as view_of};

/// The cycle that this wait would close, if it would. A lease that has ended conflicts with no claim.
pub fn cycle_of<S: Step>(
    step: &mut S,
    claim: &Claim,
    view: &View,
) -> Result<Option<Cycle>, S::Error> {
    let wanted = standing(step, view);
    let ours =
        |held: &Holding| held.holder == claim.holder.id || claim.within.contains(&held.token);
    cycle::find(&claim.holder.id, &wanted, ours, |held| waits_of(step, held))
}

/// What the holder of a grant waits for, by its name or in a command that runs under the grant, and
/// who holds that.
fn waits_of<S: Step>(step: &mut S, held: &Holding) -> Result<Vec<Holding>, S::Error> {
    let mut waits = Vec::new();
    for key in step.waits_of(&held.holder, held.token)? {
        let view = view_of(step, &key, None)?;
        // A waiter that has exited waits for nothing.
        let waits_here = view.queue.iter().any(|waiter| {
            (waiter.holder.id == held.holder || waiter.within.contains(&held.token))
                && waiter.presence == Presence::Here
                && is_alive(step, &waiter.holder)
        });
        if waits_here {
            let standing = standing(step, &view);
            waits.extend(
                standing
                    .into_iter()
                    .filter(|wanted| wanted.holder != held.holder),
            );
        }
    }
    Ok(waits)
}
