//! `tenure force`: take a key from its holder.

use tenure::Tenure;
use tenure::store::{Forced, HolderId, Key, call_deadline};
use tenure::wire::{ErrorCode, ForcedJson, LockJson};

use crate::answer::{Answer, Failure};
use crate::args::{Force, Global};
use crate::commands::locks::exactly;
use crate::commands::release::not_held;
use crate::context;
use crate::words;

pub(crate) fn force(global: &Global, force: &Force) -> Result<Answer, Failure> {
    let tenure = context::open_existing_for_locks(global)?;
    let of = force.of.clone().map(HolderId::parse).transpose()?;
    let key = exactly(global, &tenure, &force.id)?;
    let by = context::caller(global)?;
    let now = tenure.clock().now();
    let reason = force.reason.as_deref();
    let forced = tenure
        .store()
        .force(&key, of.as_ref(), &by, reason, call_deadline())?;
    match forced {
        Forced::NotHeld if of.is_some() => Err(of_other_holders(global, &tenure, &key)?),
        Forced::NotHeld => Err(not_held(&key, global.store.as_deref())),
        Forced::Freed(leases) => {
            let holders: Vec<String> = leases
                .iter()
                .map(|lease| lease.holder.to_string())
                .collect();
            Ok(Answer::new(
                ForcedJson::new(&now, &key, &by, &leases),
                format!(
                    "Took {key} from {}; recorded as forced by {by}.",
                    holders.join(" and ")
                ),
            ))
        }
    }
}

/// The named holder does not hold the key.
fn of_other_holders(global: &Global, tenure: &Tenure, key: &Key) -> Result<Failure, Failure> {
    let now = tenure.clock().now();
    let snapshot = tenure.store().inspect(key, call_deadline())?;
    if snapshot.leases.is_empty() {
        return Ok(not_held(key, global.store.as_deref()));
    }
    let held = words::holders(&now, snapshot.leases.iter().map(|(lease, _)| lease));
    let message = format!("that holder does not hold {key}, and nothing was released: {held}");
    Ok(Failure::new(ErrorCode::LockNotFound, message).details(LockJson::new(&now, &snapshot)))
}
