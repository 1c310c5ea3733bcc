//! `tenure locks`: list locks, show their history, and end expired and dead ones.

use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use tenure::wire::{CleanupJson, ErrorCode, ForcedJson, HistoryJson, LockJson, LocksJson};
use tenure::{Tenure, call_deadline};
use tenure_core::{
    Event, EventKind, Forced, HistoryQuery, HolderId, Key, KeyKind, Moment, Presence, Reap,
    Snapshot, Verdict,
};

use crate::answer::{Answer, Failure};
use crate::args::{Global, Locks};
use crate::commands::release::not_held;
use crate::context;
use crate::table::Table;
use crate::words;

pub(crate) fn locks(global: &Global, locks: Locks) -> Result<Answer, Failure> {
    let tenure = context::open(global)?;
    match locks {
        Locks::List => list(&tenure),
        Locks::Show { id } => show(global, &tenure, &id),
        Locks::Release { id, force, reason } => {
            release(global, &tenure, &id, force, reason.as_deref())
        }
        Locks::Cleanup { dry_run } => cleanup(&tenure, dry_run),
        Locks::History { id, limit, since } => {
            let key = id
                .map(|id| with_history(global, &tenure, &id))
                .transpose()?;
            let since = since.and_then(|age| {
                tenure
                    .clock()
                    .now()
                    .wall
                    .checked_sub(SignedDuration::try_from(age).ok()?)
                    .ok()
            });
            history(
                &tenure,
                &HistoryQuery {
                    key,
                    since,
                    limit: Some(limit),
                },
            )
        }
    }
}

fn list(tenure: &Tenure) -> Result<Answer, Failure> {
    let now = tenure.clock().now();
    let snapshots = tenure.store().list(call_deadline())?;
    let locks = snapshots
        .iter()
        .map(|snapshot| LockJson::new(&now, snapshot))
        .collect();
    let data = LocksJson { locks };
    if snapshots.is_empty() {
        return Ok(Answer::new(data, "No locks."));
    }
    let mut rows = Table::new(&[
        "KEY",
        "HOLDER",
        "TOKEN",
        "STATE",
        "SINCE",
        "REMAINING",
        "WAITING",
    ]);
    for snapshot in &snapshots {
        let waiting = waiting(snapshot);
        for (lease, verdict) in &snapshot.leases {
            rows.row([
                lease.key.to_string(),
                lease.holder.to_string(),
                lease.token.to_string(),
                state_word(verdict).to_owned(),
                words::ago_if_known(&now, lease.since()),
                words::until(&now, lease, verdict),
                waiting.clone(),
            ]);
        }
        if snapshot.leases.is_empty() {
            rows.row([snapshot.key.as_str(), "-", "-", "free", "-", "-", &waiting]);
        }
    }
    let mut lines = vec![rows.text()];
    for Snapshot { key, problems, .. } in &snapshots {
        lines.extend(problems.iter().map(|problem| format!("{key}: {problem}")));
    }
    Ok(Answer::new(data, lines.join("\n")))
}

/// The state of a lease in one word.
fn state_word(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Alive | Verdict::Unknown(_) => "held",
        Verdict::Dead(_) => "DEAD",
        Verdict::Expired(_) => "EXPIRED",
        Verdict::Malformed => "MALFORMED",
    }
}

/// How many processes wait, and how many more have a place but do not wait right now.
fn waiting(snapshot: &Snapshot) -> String {
    let here = snapshot
        .queue
        .iter()
        .filter(|waiter| waiter.presence == Presence::Here)
        .count();
    match snapshot.queue.len() - here {
        0 => here.to_string(),
        away => format!("{here}, {away} away"),
    }
}

fn show(global: &Global, tenure: &Tenure, id: &str) -> Result<Answer, Failure> {
    let now = tenure.clock().now();
    let snapshot = tenure
        .store()
        .inspect(&find(global, tenure, id)?, call_deadline())?;
    Ok(Answer::new(
        LockJson::new(&now, &snapshot),
        describe(&now, &snapshot),
    ))
}

fn describe(now: &Moment, snapshot: &Snapshot) -> String {
    let line = |name: &str, value: String| format!("{name:<11} {value}");
    let mut lines = vec![line("Key:", snapshot.key.to_string())];
    if snapshot.leases.is_empty() {
        lines.push(line("Holder:", "none (the key is free)".into()));
    }
    for (lease, verdict) in &snapshot.leases {
        let at = |at: Option<Timestamp>| {
            at.map_or_else(
                || "unknown".to_owned(),
                |at| format!("{} ({})", words::time(at), words::ago(now, at)),
            )
        };
        let left = match &lease.expires {
            None => String::new(),
            Some(end) => end.remaining(now).map_or_else(
                || " (passed)".to_owned(),
                |left| format!(" (in {})", words::elapsed(left)),
            ),
        };
        lines.extend([
            line("Holder:", lease.holder.to_string()),
            line("Token:", lease.token.to_string()),
            line("State:", words::state(now, lease, verdict)),
            line("Acquired:", at(lease.since())),
            line("Heartbeat:", at(lease.heard())),
            line("Expires:", format!("{}{left}", words::expiry(now, lease))),
        ]);
        if let Some(command) = &lease.holder.command {
            lines.push(line("Runs:", command.clone()));
        }
    }
    for (index, problem) in snapshot.problems.iter().enumerate() {
        let name = if index == 0 { "Problem:" } else { "" };
        lines.push(line(name, problem.clone()));
    }
    for (index, waiter) in snapshot.queue.iter().enumerate() {
        let name = if index == 0 { "Waiting:" } else { "" };
        let away = if waiter.presence == Presence::Here {
            ""
        } else {
            ", away (its place is kept)"
        };
        let (holder, priority) = (&waiter.holder, waiter.priority);
        let place = index + 1;
        lines.push(line(
            name,
            format!("{place}. {holder}, priority {priority}{away}"),
        ));
    }
    lines.join("\n")
}

fn release(
    global: &Global,
    tenure: &Tenure,
    id: &str,
    force: bool,
    reason: Option<&str>,
) -> Result<Answer, Failure> {
    let key = find(global, tenure, id)?;
    let now = tenure.clock().now();
    if !force {
        let snapshot = tenure.store().inspect(&key, call_deadline())?;
        if snapshot.leases.is_empty() {
            return Err(not_held(&key, global.store.as_deref()));
        }
        let holders = snapshot.leases.iter().map(|(lease, verdict)| {
            let held = words::held(&now, lease);
            format!("{held} ({})", words::evidence(verdict))
        });
        let message = format!(
            "{key} is held by {}\n  to take it away anyway, which is recorded: {} --force",
            holders.collect::<Vec<_>>().join(" and by "),
            words::locks_command("release", key.as_str(), global.store.as_deref())
        );
        return Err(Failure::new(ErrorCode::PermissionDenied, message)
            .details(LockJson::new(&now, &snapshot)));
    }
    let by: HolderId = context::caller(global)?;
    let forced = tenure.store().force(&key, &by, reason, call_deadline())?;
    match forced {
        Forced::NotHeld => Err(not_held(&key, global.store.as_deref())),
        Forced::Freed(leases) => {
            let holders: Vec<String> = leases
                .iter()
                .map(|lease| lease.holder.to_string())
                .collect();
            Ok(Answer::new(
                ForcedJson::new(&now, &key, &by, &leases),
                format!(
                    "Took {key} from {}; recorded as forced by {by}.",
                    holders.join(" and ")
                ),
            ))
        }
    }
}

fn cleanup(tenure: &Tenure, dry_run: bool) -> Result<Answer, Failure> {
    let now = tenure.clock().now();
    let reap = if dry_run { Reap::DryRun } else { Reap::Free };
    let reaped = tenure.store().reap(reap, call_deadline())?;
    let verb = if dry_run { "Would end" } else { "Ended" };
    let mut lines: Vec<String> = reaped
        .iter()
        .map(|reaped| {
            format!(
                "{verb} the lease of {} on {}: {}",
                reaped.lease.holder.id, reaped.lease.key, reaped.evidence
            )
        })
        .collect();
    if lines.is_empty() {
        lines.push("No lease has expired, and no holder is dead.".into());
    }
    Ok(Answer::new(
        CleanupJson::new(&now, dry_run, &reaped),
        lines.join("\n"),
    ))
}

fn history(tenure: &Tenure, query: &HistoryQuery) -> Result<Answer, Failure> {
    let events = tenure.store().history(query, call_deadline())?;
    let data = HistoryJson {
        events: events.iter().map(Into::into).collect(),
    };
    if events.is_empty() {
        return Ok(Answer::new(data, "No events yet."));
    }
    let mut rows = Table::new(&["WHEN", "KEY", "EVENT", "TOKEN", "HOLDER", "DETAIL"]);
    for event in &events {
        rows.row([
            words::time(event.at),
            event.key.to_string(),
            event.kind.to_string(),
            event.token.to_string(),
            event.holder.to_string(),
            detail(event),
        ]);
    }
    Ok(Answer::new(data, rows.text()))
}

fn detail(event: &Event) -> String {
    match (&event.evidence, &event.reason) {
        (Some(evidence), _) => evidence.to_string(),
        (None, Some(reason)) if event.kind == EventKind::Granted => {
            words::reason(reason).to_owned()
        }
        (None, Some(reason)) => reason.clone(),
        (None, None) if event.times > 1 => format!("{} times", event.times),
        (None, None) => String::new(),
    }
}

/// Finds a key by its name, its id, or a unique prefix of either, among the keys that are held or
/// waited for.
fn find(global: &Global, tenure: &Tenure, id: &str) -> Result<Key, Failure> {
    let keys: Vec<Key> = tenure
        .store()
        .list(call_deadline())?
        .into_iter()
        .map(|snapshot| snapshot.key)
        .collect();
    choose(id, &keys)?.ok_or_else(|| {
        Failure::new(
            ErrorCode::LockNotFound,
            format!(
                "no lock matches {id}: see tenure locks list{}",
                words::in_store(global.store.as_deref())
            ),
        )
        .details(json!({ "id": id }))
    })
}

/// The same among the keys that have a history.
fn with_history(global: &Global, tenure: &Tenure, id: &str) -> Result<Key, Failure> {
    if let Ok(exact) = Key::parse(id) {
        let query = HistoryQuery {
            key: Some(exact.clone()),
            since: None,
            limit: Some(1),
        };
        if !tenure.store().history(&query, call_deadline())?.is_empty() {
            return Ok(exact);
        }
    }
    let mut keys: Vec<Key> = tenure
        .store()
        .history(&HistoryQuery::default(), call_deadline())?
        .into_iter()
        .map(|event| event.key)
        .collect();
    keys.sort();
    keys.dedup();
    choose(id, &keys)?.ok_or_else(|| {
        Failure::new(
            ErrorCode::LockNotFound,
            format!(
                "{id} has no history: see tenure locks history{}",
                words::in_store(global.store.as_deref())
            ),
        )
        .details(json!({ "id": id }))
    })
}

fn choose(id: &str, keys: &[Key]) -> Result<Option<Key>, Failure> {
    if let Some(exact) = keys.iter().find(|key| key.as_str() == id) {
        return Ok(Some(exact.clone()));
    }
    let exact_id = |key: &&Key| !matches!(key.kind(), KeyKind::Named(_)) && key.id() == id;
    let begins =
        |key: &&Key| !id.is_empty() && (key.as_str().starts_with(id) || key.id().starts_with(id));
    for found in [
        keys.iter().filter(exact_id).collect::<Vec<_>>(),
        keys.iter().filter(begins).collect(),
    ] {
        match found.as_slice() {
            [] => {}
            [one] => return Ok(Some((*one).clone())),
            several => {
                let names = several.iter().map(|key| key.as_str()).collect::<Vec<_>>();
                return Err(Failure::new(
                    ErrorCode::Ambiguous,
                    format!("{id} matches {}: give a longer prefix", names.join(", ")),
                )
                .details(json!({ "id": id, "candidates": names })));
            }
        }
    }
    Ok(None)
}
