//! `tenure release`: give a key back.

use serde_json::json;
use tenure::Tenure;
use tenure::core::{Grant, Key, Lease, Released};

use crate::answer::{Answer, Failure};
use crate::args::{Global, Release};
use crate::context;
use crate::exit::Exit;
use crate::words;

pub(crate) fn release(global: &Global, release: &Release) -> Result<Answer, Failure> {
    let key = Key::parse(release.which.key.as_str())?;
    let tenure = context::open(global)?;
    let (grant, _) = mine(global, &tenure, &key, release.which.token)?;
    match tenure.store().release(&grant)? {
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
        Released::AlreadyGone(now) => Err(lost(&tenure, &grant, now.as_ref())),
    }
}

/// The grant that the caller means, if it is the one on record; why not, otherwise.
pub(crate) fn mine(
    global: &Global,
    tenure: &Tenure,
    key: &Key,
    token: Option<u64>,
) -> Result<(Grant, Lease), Failure> {
    let Some((lease, _)) = tenure.store().inspect(key)?.lease else {
        return Err(match token {
            Some(token) => Failure::new(
                Exit::Lost,
                "LEASE_LOST",
                format!(
                    "the grant of {key} with token {token} is over, and nobody holds {key} now: see tenure locks history {}",
                    words::quoted(key.as_str())
                ),
            ),
            None => not_held(key),
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
        Exit::NotAllowed,
        "PERMISSION_DENIED",
        format!(
            "{key} is not yours: it is held by {}, and you are {}\n  name the holder with --as, prove the grant with --token, \
             or take it away with: tenure locks release {} --force",
            words::held(&now, &lease),
            grant.holder,
            words::quoted(key.as_str())
        ),
    )
    .details(json!({ "key": key, "lockedBy": lease.holder.id, "you": grant.holder })))
}

/// Nobody holds the key.
pub(crate) fn not_held(key: &Key) -> Failure {
    Failure::new(
        Exit::NotFound,
        "LOCK_NOT_FOUND",
        format!(
            "nobody holds {key}: see tenure locks list, or tenure locks history {}",
            words::quoted(key.as_str())
        ),
    )
    .details(json!({ "key": key }))
}

/// A grant that ended before.
pub(crate) fn lost(tenure: &Tenure, grant: &Grant, by: Option<&Lease>) -> Failure {
    let now = tenure.clock().now();
    let who = by.map_or_else(
        || "nobody holds it now".to_owned(),
        |lease| {
            format!(
                "it is held by {} with token {}",
                words::held(&now, lease),
                lease.token
            )
        },
    );
    Failure::new(
        Exit::Lost,
        "LEASE_LOST",
        format!(
            "the grant of {} with token {} is over: {who}",
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
