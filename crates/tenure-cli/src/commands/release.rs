//! `tenure release`: release a key.

use serde_json::json;
use tenure::Tenure;
use tenure::core::{Grant, Key, Lease, Released};
use tenure::wire::ErrorCode;

use crate::answer::{Answer, Failure};
use crate::args::{Global, Release};
use crate::context;
use crate::words;

pub(crate) fn release(global: &Global, release: &Release) -> Result<Answer, Failure> {
    let key = Key::parse(release.lease.key.as_str())?;
    let tenure = context::open(global)?;
    let (grant, _) = mine(global, &tenure, &key, release.lease.token)?;
    match tenure.store().release(&grant, tenure::call_deadline())? {
        Released::Freed(lease) => {
            let text = if global.quiet {
                String::new()
            } else {
                format!("{key} is free")
            };
            Ok(Answer::new(
                json!({ "key": key, "token": lease.token, "released": true }),
                text,
            ))
        }
        Released::AlreadyGone(now) => Err(lost(&tenure, &grant, now.first())),
    }
}

/// The caller's grant, if it is the one on record; otherwise why it is not.
pub(crate) fn mine(
    global: &Global,
    tenure: &Tenure,
    key: &Key,
    token: Option<u64>,
) -> Result<(Grant, Lease), Failure> {
    let store = global.store.as_deref();
    let Some((lease, _)) = tenure
        .store()
        .inspect(key, tenure::call_deadline())?
        .leases
        .into_iter()
        .next()
    else {
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
    let grant = context::grant(global, key, token, &lease)?;
    if lease.is(&grant) {
        return Ok((grant, lease));
    }
    if token.is_some_and(|token| token != lease.token.0) {
        return Err(lost(tenure, &grant, Some(&lease)));
    }
    let now = tenure.clock().now();
    Err(Failure::new(
        ErrorCode::PermissionDenied,
        format!(
            "{key} is not yours: it is held by {}, and you are {}\n  name the holder with --as, prove the lease with --token, \
             or take it away with: {} --force",
            words::held(&now, &lease),
            grant.holder,
            words::locks_command("release", key.as_str(), store)
        ),
    )
    .details(json!({ "key": key, "lockedBy": lease.holder.id, "you": grant.holder })))
}

/// The key is free.
pub(crate) fn not_held(key: &Key, store: Option<&str>) -> Failure {
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
pub(crate) fn lost(tenure: &Tenure, grant: &Grant, by: Option<&Lease>) -> Failure {
    let now = tenure.clock().now();
    let who = by.map_or_else(
        || "the key is free now".to_owned(),
        |lease| {
            format!(
                "it is held by {} with token {}",
                words::held(&now, lease),
                lease.token
            )
        },
    );
    Failure::new(
        ErrorCode::LeaseLost,
        format!(
            "the lease on {} with token {} has ended: {who}",
            grant.key, grant.token
        ),
    )
    .details(json!({
        "key": grant.key,
        "token": grant.token,
        "lockedBy": by.map(|lease| lease.holder.id.as_str()),
        "newestToken": by.map(|lease| lease.token),
    }))
}
