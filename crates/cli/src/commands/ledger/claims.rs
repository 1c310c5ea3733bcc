//! `tenure ledger claim`, `refresh`, `release`, `claims`, `reap`.

use std::time::Duration;

use tenure::ask::Tie;
use tenure::protocols::ledger::{LedgerStore, NodeId};
use tenure::store::{Clock, Key, Reap, Reaped, Verdict, call_deadline};
use tenure::wire::{
    ErrorCode, MalformedClaimJson, NodeClaimJson, NodeClaimedJson, NodeClaimsJson,
    NodeRefreshedJson, NodeReleasedJson, NodesReapedJson,
};
use tenure::{StoreUrl, Tenure};
use tenure_host::HostClock;

use super::{folder, in_folder};
use crate::answer::{Answer, Failure, remark};
use crate::args::ledger::{Place, WhichNode};
use crate::args::{Global, WaitArgs};
use crate::commands::acquire::{hand_over, proof};
use crate::commands::release::{mine, release_grant};
use crate::commands::renew::renew_grant;
use crate::context;
use crate::signals::Signals;
use crate::table::Table;
use crate::waiting;
use crate::words;

fn open(global: &Global, place: &Place) -> Result<Tenure, Failure> {
    let config = context::config(context::project_if_found().as_ref())?;
    let agent = context::named(global)?;
    let agent = agent.as_ref().map(|agent| agent.as_str());
    Ok(Tenure::open_ledger(&folder(place)?, agent, config)?)
}

/// The key of a node, typed with or without `node:`.
fn key(node: &str) -> Result<Key, Failure> {
    let id = node.strip_prefix("node:").unwrap_or(node);
    let node =
        NodeId::parse(id).map_err(|error| Failure::new(ErrorCode::BadNode, error.to_string()))?;
    Ok(node.key().clone())
}

pub(super) fn claim(
    global: &Global,
    node: &str,
    waits: &WaitArgs,
    place: &Place,
) -> Result<Answer, Failure> {
    let key = key(node)?;
    let tenure = open(global, place)?;
    let ask = waiting::with_name(global, &tenure, tenure.ask(key.as_str())?)?;
    let mut ask = waiting::with_patience(&tenure, ask, waits).tied_to(Tie::Nothing);
    if global.holder.is_none() {
        ask = ask.named(context::caller(global)?.as_str())?;
    }
    let mut signals = Signals::catch()?;
    let held = waiting::acquire_or(global, &tenure, key.as_str(), ask, &mut signals, |busy| {
        let look = format!("tenure ledger claims{}", in_folder(place));
        let (message, details) = waiting::busy_report(global, &tenure, key.as_str(), busy, &look);
        // The protocol's message comes first.
        let message = format!("node already locked: {message}");
        Failure::new(ErrorCode::NodeLocked, message).details(details)
    })?;
    let now = tenure.clock().now();
    let lease = held.lease();
    remark(
        global,
        &format!(
            "{} holds node {} {}; to release it: tenure ledger release {} {}{}",
            lease.holder.id,
            key.id(),
            words::lasts(&now, lease),
            key.id(),
            proof(global, lease),
            in_folder(place)
        ),
    );
    let data = NodeClaimedJson::new(&now, lease, held.reason());
    Ok(hand_over(&tenure, held, data))
}

/// The arguments of a command on this ledger, so that messages name its store.
fn in_this_store(global: &Global, place: &Place) -> Result<Global, Failure> {
    Ok(Global {
        store: Some(StoreUrl::Ledger(folder(place)?).to_os_string()),
        ..global.clone()
    })
}

pub(super) fn refresh(
    global: &Global,
    which: &WhichNode,
    ttl: Option<Duration>,
    place: &Place,
) -> Result<Answer, Failure> {
    let key = key(&which.node)?;
    let tenure = open(global, place)?;
    let (grant, _) = mine(&in_this_store(global, place)?, &tenure, &key, which.token)?;
    let ttl = ttl.unwrap_or(tenure.config().locking.task_timeout);
    let lease = renew_grant(&tenure, &grant, ttl)?;
    let now = tenure.clock().now();
    let (node, lasts) = (key.id(), words::lasts(&now, &lease));
    let data = NodeRefreshedJson::new(&now, &lease);
    Ok(Answer::confirmed(
        global,
        data,
        format!("Node {node} is claimed {lasts}."),
    ))
}

pub(super) fn release(
    global: &Global,
    which: &WhichNode,
    place: &Place,
) -> Result<Answer, Failure> {
    let key = key(&which.node)?;
    let tenure = open(global, place)?;
    let (grant, _) = mine(&in_this_store(global, place)?, &tenure, &key, which.token)?;
    let lease = release_grant(&tenure, &grant)?;
    let text = format!("Node {} is free.", key.id());
    let data = NodeReleasedJson::from(&lease);
    Ok(Answer::confirmed(global, data, text))
}

pub(super) fn claims(global: &Global, place: &Place) -> Result<Answer, Failure> {
    let store = LedgerStore::of(super::open(global, place)?);
    let now = HostClock::new().now();
    let listed = store.claims()?;
    let (active, expired): (Vec<_>, Vec<_>) = listed
        .into_iter()
        .partition(|claim| !claim.lease.has_expired(&now));
    let listed = active.iter().map(|claim| {
        let file = claim.file.as_ref().map(|file| file.display().to_string());
        NodeClaimJson::new(&now, &claim.lease, &claim.verdict, file)
    });
    let malformed = store.ledger().malformed_claim_files()?;
    let data = NodeClaimsJson {
        claims: listed.collect(),
        expired: expired.len(),
        malformed: malformed
            .iter()
            .map(|file| MalformedClaimJson {
                file: file.path.display().to_string(),
                node: file.node.as_ref().map(ToString::to_string),
                message: file.why.clone(),
            })
            .collect(),
    };
    let mut table = Table::new(&[
        "NODE",
        "HOLDER",
        "TOKEN",
        "STATE",
        "SINCE",
        "UNTIL",
        "REMAINING",
    ]);
    for claim in &active {
        let lease = &claim.lease;
        let state = match (&claim.verdict, &claim.file) {
            (Verdict::Malformed, _) => "malformed".to_owned(),
            (Verdict::Dead(evidence), _) => format!("dead: {evidence}"),
            (_, Some(_)) => "held (file)".to_owned(),
            _ => "held".to_owned(),
        };
        table.row([
            claim.node.to_string(),
            lease.holder.id.to_string(),
            lease.token.to_string(),
            state,
            words::ago(&now, lease.acquired_at),
            words::expiry(&now, lease),
            words::until(&now, lease, &claim.verdict),
        ]);
    }
    let mut lines = vec![match active.as_slice() {
        [] => "No node is claimed.".to_owned(),
        _ => table.text(),
    }];
    lines.extend(malformed.iter().map(ToString::to_string));
    if !expired.is_empty() && !global.quiet {
        lines.push(format!(
            "{} more expired and can be claimed; end them with: tenure ledger reap{}",
            expired.len(),
            in_folder(place)
        ));
    }
    Ok(Answer::new(data, lines.join("\n")))
}

pub(super) fn reap(global: &Global, dry_run: bool, place: &Place) -> Result<Answer, Failure> {
    let tenure = open(global, place)?;
    let (how, verb) = if dry_run {
        (Reap::DryRun, "Would end")
    } else {
        (Reap::Free, "Ended")
    };
    let reaped = tenure.store().reap(how, call_deadline())?;
    let mut lines = Vec::new();
    for Reaped {
        lease, evidence, ..
    } in &reaped
    {
        let (holder, node) = (&lease.holder.id, lease.key.id());
        lines.push(format!(
            "{verb} the claim of {holder} on node {node}: {evidence}"
        ));
    }
    if lines.is_empty() {
        lines.push("No claim has expired, and no holder is proven dead.".into());
    }
    let data = NodesReapedJson::new(dry_run, &reaped);
    Ok(Answer::confirmed(global, data, lines.join("\n")))
}
