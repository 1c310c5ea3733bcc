//! `tenure renew`: extend a lease.

use std::time::Duration;

use tenure::ask::{MAX_TTL, MIN_TTL};
use tenure::wire::RenewedJson;
use tenure::{Tenure, call_deadline, duration};
use tenure_core::{Key, Renewed};

use crate::answer::{Answer, Failure};
use crate::args::{Global, Renew};
use crate::commands::release::{lost, mine};
use crate::context;
use crate::words;

pub(crate) fn renew(global: &Global, renew: &Renew) -> Result<Answer, Failure> {
    let key = Key::parse(renew.lease.key.as_str())?;
    let tenure = context::open_existing_for_locks(global)?;
    renew_key(global, &tenure, &key, renew.lease.token, renew.ttl)
}

/// Extends the caller's lease on a key.
pub(crate) fn renew_key(
    global: &Global,
    tenure: &Tenure,
    key: &Key,
    token: Option<u64>,
    ttl: Option<Duration>,
) -> Result<Answer, Failure> {
    if let Some(ttl) = ttl.filter(|ttl| !(MIN_TTL..=MAX_TTL).contains(ttl)) {
        let (given, min, max) = (
            duration::format(ttl),
            duration::format(MIN_TTL),
            duration::format(MAX_TTL),
        );
        return Err(tenure::Error::Ttl { given, min, max }.into());
    }
    if ttl.is_some() && !tenure.store().capabilities().expiry {
        return Err(tenure::Error::NoExpiry.into());
    }
    let (grant, lease) = mine(global, tenure, key, token)?;
    let ttl = ttl.unwrap_or(lease.ttl);
    match tenure.store().renew(&grant, ttl, call_deadline())? {
        Renewed::Extended(lease) => {
            let now = tenure.clock().now();
            let text = if global.quiet {
                String::new()
            } else {
                format!("{key} is yours {}", words::lasts(&now, &lease))
            };
            Ok(Answer::new(RenewedJson::new(&now, &lease), text))
        }
        Renewed::Lost(leases) => Err(lost(tenure, &grant, &leases)),
    }
}
