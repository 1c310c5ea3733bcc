//! `tenure renew`: extend a lease.

use serde_json::json;
use tenure::ask::{MAX_TTL, MIN_TTL};
use tenure::core::{Key, Renewed};
use tenure::duration;

use crate::answer::{Answer, Failure};
use crate::args::{Global, Renew};
use crate::commands::release::{lost, mine};
use crate::context;
use crate::words;

pub(crate) fn renew(global: &Global, renew: &Renew) -> Result<Answer, Failure> {
    let key = Key::parse(renew.lease.key.as_str())?;
    if let Some(ttl) = renew.ttl.filter(|ttl| !(MIN_TTL..=MAX_TTL).contains(ttl)) {
        let (given, min, max) = (
            duration::format(ttl),
            duration::format(MIN_TTL),
            duration::format(MAX_TTL),
        );
        return Err(tenure::Error::Ttl { given, min, max }.into());
    }
    let tenure = context::open(global)?;
    let (grant, lease) = mine(global, &tenure, &key, renew.lease.token)?;
    match tenure.store().renew(
        &grant,
        renew.ttl.unwrap_or(lease.ttl),
        tenure::call_deadline(),
    )? {
        Renewed::Extended(lease) => {
            let now = tenure.clock().now();
            let until = words::expires_at(&now, &lease);
            let text = if global.quiet {
                String::new()
            } else {
                match &until {
                    Some(until) => format!("{key} is yours until {until}"),
                    None => format!("{key} is yours (no end)"),
                }
            };
            Ok(Answer::new(
                json!({ "key": key, "token": lease.token, "expiresAt": until }),
                text,
            ))
        }
        Renewed::Lost(now) => Err(lost(&tenure, &grant, now.first())),
    }
}
