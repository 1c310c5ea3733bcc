//! Verbs on a granted lease: renew, release, force, reap.

use std::collections::HashSet;
use std::time::Duration;

use crate::decide::View;
use crate::holder::{HolderId, LivenessId};
use crate::key::Key;
use crate::lease::{Grant, Lease};
use crate::path_pattern::PathPattern;
use crate::store::{Forced, Reaped, Reason, Released, Renewed};
use crate::verdict::{Evidence, Liveness};

use super::look::{lease_or_all, view};
use super::settle::{Settling, settled};
use super::tickets::drop_forgotten;
use super::{Ended, LeaseQuery, Step, Then, Written};

/// Moves the end of each of these leases that has not ended to `ttl` from now.
pub fn renew<S: Step>(
    step: &mut S,
    grants: &[Grant],
    ttl: Duration,
) -> Result<Vec<Renewed>, S::Error> {
    let renew = |grant| renew_one(step, grant, ttl);
    grants.iter().map(renew).collect()
}

fn renew_one<S: Step>(step: &mut S, grant: &Grant, ttl: Duration) -> Result<Renewed, S::Error> {
    let lease = match find(step, grant, step.rules().renew)? {
        Ok(lease) => lease,
        Err(on_record) => return Ok(Renewed::Lost(on_record)),
    };
    let renewed = Lease {
        expires: step.expiry(ttl),
        heartbeat_at: step.now().wall,
        ttl,
        ..lease
    };
    step.put_lease(&renewed, Written::Renewed)?;
    Ok(Renewed::Extended(renewed))
}

/// Releases each of these keys whose lease has not ended.
pub fn release<S: Step>(step: &mut S, grants: &[Grant]) -> Result<Vec<Released>, S::Error> {
    settled(step, |step| {
        let release = |grant| release_one(step, grant);
        grants.iter().map(release).collect()
    })
}

fn release_one<S: Step>(step: &mut Settling<'_, S>, grant: &Grant) -> Result<Released, S::Error> {
    let may = step.rules().release;
    let lease = match find(step.inner, grant, may)? {
        Ok(lease) => lease,
        Err(on_record) => return Ok(Released::AlreadyGone(on_record)),
    };
    step.end_lease(&lease, &Ended::Released, Then::Free)?;
    Ok(Released::Freed(lease))
}

/// Gives back some patterns of each of these reservations. The rest of each stays reserved until the same time, under a
/// new token; if there is none, the reservation ends. Returns fewer answers than there are parts if a step can't end more
/// leases, or has no other token for a second rest.
pub fn release_paths<S: Step>(
    step: &mut S,
    parts: &[(Grant, Vec<PathPattern>)],
) -> Result<Vec<Released>, S::Error> {
    settled(step, |step| release_parts(step, parts))
}

fn release_parts<S: Step>(
    step: &mut Settling<'_, S>,
    parts: &[(Grant, Vec<PathPattern>)],
) -> Result<Vec<Released>, S::Error> {
    // A reservation that keeps a rest ends and begins again.
    let most = (step.most_ends() / 2).max(1);
    let may = step.rules().release;
    let mut released = Vec::new();
    let mut newest = None;
    for (grant, given_back) in parts.iter().take(most) {
        let lease = match find(step.inner, grant, may)? {
            Ok(lease) => lease,
            Err(on_record) => {
                released.push(Released::AlreadyGone(on_record));
                continue;
            }
        };
        let rest = lease.mode.paths();
        let Some(rest) = rest.and_then(|paths| paths.without(given_back)) else {
            released.push(release_one(step, grant)?);
            continue;
        };
        let token = step.mint(&lease.key)?;
        if newest.replace(token) == Some(token) {
            break;
        }
        step.end_lease(&lease, &Ended::Released, Then::Granted)?;
        let rest = Lease {
            mode: rest.into(),
            token,
            acquired_at: step.now().wall,
            ..lease.clone()
        };
        let (reason, waited) = (Reason::Upgraded, None);
        step.put_lease(&rest, Written::Granted { reason, waited })?;
        released.push(Released::Freed(lease));
    }
    Ok(released)
}

type MayChange = for<'a> fn(&'a View, &Grant) -> Option<&'a Lease>;

/// The lease that this grant may change by a rule; otherwise all leases on record.
fn find<S: Step>(
    step: &mut S,
    grant: &Grant,
    may: MayChange,
) -> Result<Result<Lease, Vec<Lease>>, S::Error> {
    let found = lease_or_all(step, &grant.key, grant.token, |_, view| {
        may(view, grant).cloned()
    })?;
    Ok(found.map_err(|all| all.into_iter().map(|(lease, _)| lease).collect()))
}

/// Ends the leases of a key by force: all of them, or those of one holder, but not more than a step can end. Also returns
/// whether some are left.
pub fn force<S: Step>(
    step: &mut S,
    key: &Key,
    of: Option<&HolderId>,
    by: &HolderId,
    reason: Option<&str>,
) -> Result<(Forced, bool), S::Error> {
    let ending = match of {
        Some(of) => step.some_leases(key, LeaseQuery::Of(of))?,
        None => step.leases(key)?,
    };
    end_by_force(step, ending, by, reason)
}

/// Ends one lease by force. The holder may have others of the same key: reservations are.
pub fn force_one<S: Step>(
    step: &mut S,
    grant: &Grant,
    by: &HolderId,
    reason: Option<&str>,
) -> Result<Forced, S::Error> {
    let mut ending = step.some_leases(&grant.key, LeaseQuery::Of(&grant.holder))?;
    ending.retain(|(lease, _)| lease.token == grant.token);
    let (forced, _) = end_by_force(step, ending, by, reason)?;
    Ok(forced)
}

fn end_by_force<S: Step>(
    step: &mut S,
    ending: Vec<(Lease, Liveness)>,
    by: &HolderId,
    reason: Option<&str>,
) -> Result<(Forced, bool), S::Error> {
    if ending.is_empty() {
        return Ok((Forced::NotHeld, false));
    }
    let (all, most) = (ending.len(), step.most_ends());
    let how = Ended::Proven(Evidence::Forced {
        by: by.clone(),
        reason: reason.map(str::to_owned),
    });
    let freed: Vec<Lease> = ending
        .into_iter()
        .take(most)
        .map(|(lease, _)| lease)
        .collect();
    settled(step, |step| {
        let mut each = freed.iter();
        each.try_for_each(|lease| step.end_lease(lease, &how, Then::Free))
    })?;
    Ok((Forced::Freed(freed), all > most))
}

/// What was reaped of one key.
#[derive(Debug, Default)]
pub struct ReapedKey {
    /// The leases that had ended.
    pub reaped: Vec<Reaped>,
    /// Whether more have ended than one step could end.
    pub left: bool,
    /// The liveness locks of the holders and waiters that are left.
    pub needed: HashSet<LivenessId>,
}

/// Ends the leases of a key that have expired or whose holders are dead, and drops tickets
/// whose grace period has ended.
pub fn reap<S: Step>(step: &mut S, key: &Key) -> Result<ReapedKey, S::Error> {
    settled(step, |step| reap_key(step, key))
}

fn reap_key<S: Step>(step: &mut Settling<'_, S>, key: &Key) -> Result<ReapedKey, S::Error> {
    let view = view(step.inner, key, None)?;
    let ended = step.rules().ended;
    let mut outcome = ReapedKey::default();
    for (lease, liveness) in view.leases {
        let evidence = ended(step.now(), &lease, &liveness);
        if evidence.is_some() && outcome.reaped.len() >= step.most_ends() {
            outcome.left = true;
        } else if let Some(evidence) = evidence {
            step.end_lease(&lease, &Ended::Proven(evidence.clone()), Then::Free)?;
            outcome.reaped.push(Reaped { lease, evidence });
        } else {
            outcome.needed.extend(lease.holder.liveness_lock().cloned());
        }
    }
    drop_forgotten(step.inner, key, &view.queue)?;
    let waiting = view
        .queue
        .iter()
        .filter_map(|waiter| waiter.holder.liveness_lock());
    outcome.needed.extend(waiting.cloned());
    Ok(outcome)
}
