//! `tenure release`: release a key.

use std::ffi::OsStr;

use serde_json::json;
use tenure::Tenure;
use tenure::store::{Grant, HolderId, Key, Lease, Released, call_deadline};
use tenure::text::plural;
use tenure::wire::{ErrorCode, LostJson, NotHolderJson, ReleasedJson, ReleasedSeveralJson};

use crate::answer::{Answer, Failure};
use crate::args::{Global, Release};
use crate::context;
use crate::progress::Progress;
use crate::words;

pub(crate) fn release(global: &Global, release: &Release) -> Result<Answer, Failure> {
    let key = match release.keys.as_slice() {
        [] => return release_all(global),
        [key] => Key::parse(key.as_str())?,
        keys => return release_several(global, keys, release.token),
    };
    let tenure = context::open_existing_for_locks(global)?;
    let (grant, _) = mine(global, &tenure, &key, release.token)?;
    let lease = release_grant(&tenure, &grant)?;
    Ok(Answer::confirmed(
        global,
        ReleasedJson::from(&lease),
        freed(&lease),
    ))
}

/// Releases one lease, for this command and for those of the protocols, which have words of their own for it.
pub(crate) fn release_grant(tenure: &Tenure, grant: &Grant) -> Result<Lease, Failure> {
    match tenure.store().release(grant, call_deadline())? {
        Released::Freed(lease) => Ok(lease),
        Released::AlreadyGone(leases) => Err(lost(tenure, grant, &leases)),
    }
}

/// Releases several keys in one step, if all of them are the caller's.
fn release_several(
    global: &Global,
    keys: &[String],
    token: Option<u64>,
) -> Result<Answer, Failure> {
    let tenure = context::open_existing_for_locks(global)?;
    let grants = all_mine(global, &tenure, keys, token)?;
    let grants: Vec<Grant> = grants.into_iter().map(|(grant, _)| grant).collect();
    let answers = tenure.store().release_all(&grants, call_deadline())?;
    let (mut released, mut failure) = (Vec::new(), None);
    for (grant, answer) in grants.iter().zip(answers) {
        match answer {
            Released::Freed(lease) => released.push(lease),
            Released::AlreadyGone(leases) => {
                failure.get_or_insert(lost(&tenure, grant, &leases));
            }
        }
    }
    if let Some(failure) = failure {
        return Err(failure);
    }
    let (data, text) = several(None, &released);
    Ok(Answer::confirmed(global, data, text))
}

/// What was released, for programs and for people.
fn several(holder: Option<HolderId>, released: &[Lease]) -> (ReleasedSeveralJson, String) {
    let lines: Vec<String> = released.iter().map(freed).collect();
    let released = released.iter().map(ReleasedJson::from).collect();
    (ReleasedSeveralJson { holder, released }, lines.join("\n"))
}

/// The caller's leases on several keys, if all of them are on record.
pub(crate) fn all_mine(
    global: &Global,
    tenure: &Tenure,
    keys: &[String],
    token: Option<u64>,
) -> Result<Vec<(Grant, Lease)>, Failure> {
    if token.is_some() {
        let message = "--token is for one key: name the holder of several with --as";
        return Err(Failure::new(ErrorCode::Usage, message));
    }
    if !tenure.store().capabilities().several {
        let message = "this store changes one key at a time: name one key in each command";
        return Err(Failure::new(ErrorCode::Usage, message));
    }
    let mut grants: Vec<(Grant, Lease)> = Vec::new();
    for key in keys {
        let key = Key::parse(key.as_str())?;
        if grants.iter().all(|(grant, _)| grant.key != key) {
            grants.push(mine(global, tenure, &key, None)?);
        }
    }
    Ok(grants)
}

/// Releases every lease of the caller that no running command keeps.
fn release_all(global: &Global) -> Result<Answer, Failure> {
    let tenure = context::open_existing_for_locks(global)?;
    let caller = context::caller(global)?;
    let held = tenure.store().list(call_deadline())?.into_iter();
    let held = held
        .flat_map(|snapshot| snapshot.leases)
        .map(|(lease, _)| lease)
        .filter(|lease| lease.holder.id == caller && !lease.holder.binding.is_kept());
    let held: Vec<Lease> = held.collect();
    let mut released = Vec::new();
    let mut progress = Progress::new(global, "released", held.len());
    let mut failed = None;
    for lease in held {
        match tenure.store().release(&lease.grant(), call_deadline()) {
            Ok(Released::Freed(lease)) => released.push(lease),
            // One that ended meanwhile needs no release.
            Ok(Released::AlreadyGone(_)) => {}
            Err(error) => {
                failed.get_or_insert((lease.key, error));
            }
        }
        progress.one_more();
    }
    if let Some((key, mut error)) = failed {
        let others = plural::count(released.len(), "lease");
        error.what = format!(
            "{key} is not released: {} (others were: {others})",
            error.what
        );
        let (data, _) = several(Some(caller), &released);
        return Err(Failure::from(error).details(data));
    }
    let (data, mut text) = several(Some(caller.clone()), &released);
    if released.is_empty() {
        text = format!("{caller} holds no key without a running command.");
    }
    Ok(Answer::confirmed(global, data, text))
}

/// What a release did. Other holders may be left of a key that has several.
fn freed(lease: &Lease) -> String {
    if lease.mode.is_exclusive() {
        format!("{} is free", lease.key)
    } else {
        format!("{} no longer holds {}", lease.holder.id, lease.key)
    }
}

/// The caller's lease, if it is on record; otherwise why it is not.
pub(crate) fn mine(
    global: &Global,
    tenure: &Tenure,
    key: &Key,
    token: Option<u64>,
) -> Result<(Grant, Lease), Failure> {
    let store = global.store.as_deref();
    let snapshot = tenure.store().inspect(key, call_deadline())?;
    let leases: Vec<Lease> = snapshot
        .leases
        .into_iter()
        .map(|(lease, _)| lease)
        .collect();
    let Some(first) = leases.first() else {
        return Err(match token {
            Some(token) => Failure::new(
                ErrorCode::LeaseLost,
                format!(
                    "the lease on {key} with token {token} has ended, and {key} is free now: see {}",
                    words::locks_command("history", key.as_str(), store)
                ),
            ),
            None => not_held(key, store),
        });
    };
    for lease in &leases {
        let grant = context::grant(global, key, token, lease)?;
        if lease.is(&grant) {
            return Ok((grant, lease.clone()));
        }
    }
    let grant = context::grant(global, key, token, first)?;
    if token.is_some_and(|token| leases.iter().all(|lease| lease.token.0 != token)) {
        return Err(lost(tenure, &grant, &leases));
    }
    let now = tenure.clock().now();
    let holders: Vec<String> = leases
        .iter()
        .map(|lease| words::held(&now, lease))
        .collect();
    Err(Failure::new(
        ErrorCode::PermissionDenied,
        format!(
            "{key} is not yours: it is held by {}, and you are {}\n  name the holder with --as, prove the lease with --token, \
             or take it away with: {}",
            holders.join(" and by "),
            grant.holder,
            words::force_command(key.as_str(), None, &words::in_store(store))
        ),
    )
    .details(NotHolderJson::new(&now, &grant, &leases)))
}

/// The key is free.
pub(crate) fn not_held(key: &Key, store: Option<&OsStr>) -> Failure {
    Failure::new(
        ErrorCode::LockNotFound,
        format!(
            "{key} is free: to see what happened to it: {}",
            words::locks_command("history", key.as_str(), store)
        ),
    )
    .details(json!({ "key": key }))
}

/// A lease that ended before the caller asked.
pub(crate) fn lost(tenure: &Tenure, grant: &Grant, leases: &[Lease]) -> Failure {
    let now = tenure.clock().now();
    Failure::new(
        ErrorCode::LeaseLost,
        format!(
            "the lease on {} with token {} has ended: {}",
            grant.key,
            grant.token,
            words::holders(&now, leases)
        ),
    )
    .details(LostJson::new(&now, &grant.key, grant.token, leases))
}
