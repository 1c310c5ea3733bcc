//! `tenure fence`: check that a token is still valid.

use tenure::Tenure;
use tenure::store::{Fenced, Key, StoreError, Token, call_deadline};
use tenure::wire::{ErrorCode, FencedJson, LostJson};

use crate::answer::{Answer, Failure};
use crate::args::{Fence, Global};
use crate::context;
use crate::words;

pub(crate) fn fence(global: &Global, fence: &Fence) -> Result<Answer, Failure> {
    let key = Key::parse(fence.key.as_str())?;
    let token = Token(fence.token);
    let tenure = context::open_existing_for_locks(global)?;
    let now = tenure.clock().now();
    match tenure.store().fence(&key, token, call_deadline())? {
        Fenced::Current(lease) => {
            let text = if global.quiet {
                String::new()
            } else {
                let lasts = words::lasts(&now, &lease);
                format!("token {token} of {key} is valid {lasts}")
            };
            let mut fenced = FencedJson::new(&now, &lease);
            if global.json {
                fenced.comparisons = comparisons(&tenure, &key, token)?;
            }
            Ok(Answer::new(fenced, text))
        }
        Fenced::Stale(found) => {
            let why = match found.iter().find(|(lease, _)| lease.token == token) {
                Some((_, verdict)) => format!("its lease is {verdict}"),
                None => words::holders(&now, found.iter().map(|(lease, _)| lease)),
            };
            let leases = found.iter().map(|(lease, _)| lease);
            Err(Failure::new(
                ErrorCode::LeaseLost,
                format!("token {token} of {key} is no longer valid: {why}"),
            )
            .details(LostJson::new(&now, &key, token, leases)))
        }
    }
}

/// What an etcd transaction must compare.
#[cfg(feature = "etcd")]
fn comparisons(tenure: &Tenure, key: &Key, token: Token) -> Result<Vec<String>, StoreError> {
    let Some(etcd) = tenure.etcd() else {
        return Ok(Vec::new());
    };
    let found = etcd.comparisons(key, token, call_deadline())?;
    Ok(found.iter().flatten().map(ToString::to_string).collect())
}

#[cfg(not(feature = "etcd"))]
fn comparisons(_: &Tenure, _: &Key, _: Token) -> Result<Vec<String>, StoreError> {
    Ok(Vec::new())
}
