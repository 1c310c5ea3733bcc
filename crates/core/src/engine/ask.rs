//! Asks the holders of a key to release it. Nothing is taken from them.

use crate::event::{Event, EventKind};
use crate::holder::HolderId;
use crate::key::Key;
use crate::lease::{Lease, Token};

use super::Step;
use super::look::standing;

/// Records that the holders of a key are asked to release it: all of them but the one that asks, or only those of these
/// leases. Their processes are woken. Returns the leases, or `None` if the store keeps no such records.
pub fn ask<S: Step>(
    step: &mut S,
    key: &Key,
    only: Option<&[Token]>,
    asker: &HolderId,
    note: Option<&str>,
) -> Result<Option<Vec<Lease>>, S::Error> {
    let leases = step.leases(key)?;
    let asked: Vec<Lease> = standing(step, &leases)
        .into_iter()
        .filter(|lease| lease.holder.id != *asker)
        .filter(|lease| only.is_none_or(|only| only.contains(&lease.token)))
        .cloned()
        .collect();
    for lease in &asked {
        let event = Event {
            holder: asker.clone(),
            reason: note.map(str::to_owned),
            ..Event::of(lease, EventKind::Asked, step.now().wall)
        };
        if !step.record_request(&event)? {
            return Ok(None);
        }
        step.wake(&lease.holder);
    }
    Ok(Some(asked))
}
