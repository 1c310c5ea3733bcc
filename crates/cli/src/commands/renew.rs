//! `tenure renew`: extend a lease.

use std::time::Duration;

use tenure::Tenure;
use tenure::ask::{MAX_TTL, MIN_TTL};
use tenure::store::{Grant, Key, Lease, Moment, Renewed, call_deadline};
use tenure::text::duration;
use tenure::wire::{LeasesJson, RenewedJson};

use crate::answer::{Answer, Failure};
use crate::args::{Global, Renew};
use crate::commands::ask::{requests_afterwards, told};
use crate::commands::release::{all_mine, lost, mine};
use crate::context;
use crate::words;

pub(crate) fn renew(global: &Global, renew: &Renew) -> Result<Answer, Failure> {
    let tenure = context::open_existing_for_locks(global)?;
    let token = renew.lease.token;
    if let [key] = renew.lease.keys.as_slice() {
        let key = Key::parse(key.as_str())?;
        return renew_key(global, &tenure, &key, token, renew.ttl);
    }
    check_ttl(&tenure, renew.ttl)?;
    let held = all_mine(global, &tenure, &renew.lease.keys, token)?;
    // They were granted together, most often: for the same time.
    let ttls: Vec<Duration> = held.iter().map(|(_, lease)| lease.ttl).collect();
    let longest = ttls.into_iter().max().unwrap_or_default();
    let grants: Vec<Grant> = held.iter().map(|(grant, _)| grant.clone()).collect();
    let ttl = renew.ttl.unwrap_or(longest);
    let renewed = tenure.store().renew_all(&grants, ttl, call_deadline())?;
    let now = tenure.clock().now();
    let requests = requests_afterwards(&tenure, held.iter().map(|(_, lease)| lease));
    let (mut leases, mut lines) = (Vec::new(), Vec::new());
    for (grant, renewed) in grants.iter().zip(renewed) {
        match renewed {
            Renewed::Extended(lease) => {
                lines.push(yours(&now, &lease));
                leases.push(RenewedJson::new(&now, &lease).asked(&requests));
            }
            Renewed::Lost(on_record) => return Err(lost(&tenure, grant, &on_record)),
        }
    }
    lines.extend(requests.iter().map(told));
    Ok(Answer::confirmed(
        global,
        LeasesJson { leases },
        lines.join("\n"),
    ))
}

fn yours(now: &Moment, lease: &Lease) -> String {
    format!("{} is yours {}", lease.key, words::lasts(now, lease))
}

/// Refuses a time to live that this store can't give.
fn check_ttl(tenure: &Tenure, ttl: Option<Duration>) -> Result<(), Failure> {
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
    Ok(())
}

/// Extends the caller's lease on a key.
pub(crate) fn renew_key(
    global: &Global,
    tenure: &Tenure,
    key: &Key,
    token: Option<u64>,
    ttl: Option<Duration>,
) -> Result<Answer, Failure> {
    check_ttl(tenure, ttl)?;
    let (grant, lease) = mine(global, tenure, key, token)?;
    let ttl = ttl.unwrap_or(lease.ttl);
    let lease = renew_grant(tenure, &grant, ttl)?;
    let now = tenure.clock().now();
    let requests = requests_afterwards(tenure, [&lease]);
    let told = requests.iter().map(told);
    let lines: Vec<String> = std::iter::once(yours(&now, &lease)).chain(told).collect();
    let renewed = RenewedJson::new(&now, &lease).asked(&requests);
    Ok(Answer::confirmed(global, renewed, lines.join("\n")))
}

/// Extends one lease, for this command and for those of the protocols, which have words of their own for it.
pub(crate) fn renew_grant(tenure: &Tenure, grant: &Grant, ttl: Duration) -> Result<Lease, Failure> {
    match tenure.store().renew(grant, ttl, call_deadline())? {
        Renewed::Extended(lease) => Ok(lease),
        Renewed::Lost(leases) => Err(lost(tenure, grant, &leases)),
    }
}
