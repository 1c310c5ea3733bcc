//! `tenure fence`: check that a token is still valid.

use serde_json::json;
use tenure::core::{Fenced, Key, Token};
use tenure::wire::ErrorCode;

use crate::answer::{Answer, Failure};
use crate::args::{Fence, Global};
use crate::context;
use crate::words;

pub(crate) fn fence(global: &Global, fence: &Fence) -> Result<Answer, Failure> {
    let key = Key::parse(fence.key.as_str())?;
    let token = Token(fence.token);
    let tenure = context::open(global)?;
    let now = tenure.clock().now();
    match tenure.store().fence(&key, token, tenure::call_deadline())? {
        Fenced::Current(lease) => {
            let until = words::expires_at(&now, &lease);
            let text = if global.quiet {
                String::new()
            } else {
                match &until {
                    Some(until) => format!("token {token} of {key} is valid until {until}"),
                    None => format!("token {token} of {key} is valid (no end)"),
                }
            };
            Ok(Answer::new(
                json!({ "key": key, "token": token, "holder": lease.holder.id, "expiresAt": until }),
                text,
            ))
        }
        Fenced::Stale(found) => {
            let found = found.first();
            let why = match found {
                None => "the key is free now".to_owned(),
                Some((lease, verdict)) if lease.token == token => format!("its lease is {verdict}"),
                Some((lease, _)) => format!(
                    "it is held by {} with token {}",
                    words::held(&now, lease),
                    lease.token
                ),
            };
            Err(Failure::new(
                ErrorCode::LeaseLost,
                format!("token {token} of {key} is no longer valid: {why}"),
            )
            .details(json!({
                "key": key,
                "token": token,
                "lockedBy": found.map(|(lease, _)| lease.holder.id.as_str()),
                "newestToken": found.map(|(lease, _)| lease.token),
            })))
        }
    }
}
