//! `tenure locks`: list locks, show their history, and end expired and dead ones.

use jiff::SignedDuration;
use serde_json::json;
use tenure::Tenure;
use tenure::core::{
    Event, Forced, HistoryQuery, HolderId, Key, KeyKind, Moment, Presence, Reap, Snapshot, Verdict,
};
use tenure::wire::ErrorCode;

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
        Locks::Show { id } => show(&tenure, &id),
        Locks::Release { id, force, reason } => {
            release(global, &tenure, &id, force, reason.as_deref())
        }
        Locks::Cleanup { dry_run } => cleanup(&tenure, dry_run),
        Locks::History { id, limit, since } => {
            let key = id.map(|id| with_history(&tenure, &id)).transpose()?;
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
    let snapshots = tenure.store().list(tenure::call_deadline())?;
    if snapshots.is_empty() {
        return Ok(Answer::new(json!({ "locks": [] }), "No locks."));
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
        match snapshot.lease() {
            Some((lease, verdict)) => rows.row([
                lease.key.to_string(),
                lease.holder.to_string(),
                lease.token.to_string(),
                state_word(verdict).to_owned(),
                words::ago(&now, lease.acquired_at),
                words::until(&now, lease, verdict),
                waiting,
            ]),
            None => rows.row([snapshot.key.as_str(), "-", "-", "free", "-", "-", &waiting]),
        }
    }
    let data = snapshots
        .iter()
        .map(|snapshot| words::snapshot_json(&now, snapshot))
        .collect::<Vec<_>>();
    Ok(Answer::new(json!({ "locks": data }), rows.text()))
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

fn show(tenure: &Tenure, id: &str) -> Result<Answer, Failure> {
    let now = tenure.clock().now();
    let snapshot = tenure
        .store()
        .inspect(&find(tenure, id)?, tenure::call_deadline())?;
    Ok(Answer::new(
        words::snapshot_json(&now, &snapshot),
        describe(&now, &snapshot),
    ))
}

fn describe(now: &Moment, snapshot: &Snapshot) -> String {
    let mut lines = vec![format!("Key:        {}", snapshot.key)];
    let mut line =
        |name: &str, value: String| lines.push(format!("{:<11} {value}", format!("{name}:")));
    if let Some((lease, verdict)) = snapshot.lease() {
        line("Holder", lease.holder.to_string());
        line("Token", lease.token.to_string());
        line("State", words::state(now, lease, verdict));
        line(
            "Acquired",
            format!(
                "{} ({})",
                words::time(lease.acquired_at),
                words::ago(now, lease.acquired_at)
            ),
        );
        line(
            "Heartbeat",
            format!(
                "{} ({})",
                words::time(lease.heartbeat_at),
                words::ago(now, lease.heartbeat_at)
            ),
        );
        let expires = match (words::expires_at(now, lease), lease.remaining(now)) {
            (None, _) => "no end".to_owned(),
            (Some(end), Some(left)) => {
                let left = tenure::duration::format(words::whole(left));
                format!("{end} (in {left})")
            }
            (Some(end), None) => format!("{end} (expired)"),
        };
        line("Expires", expires);
        if let Some(command) = &lease.holder.command {
            line("Runs", command.clone());
        }
    } else {
        line("Holder", "none (the key is free)".into());
    }
    for (index, waiter) in snapshot.queue.iter().enumerate() {
        let name = if index == 0 { "Waiting" } else { "" };
        let away = if waiter.presence == Presence::Here {
            ""
        } else {
            ", away (its place is kept)"
        };
        let text = format!(
            "{}. {}, priority {}{away}",
            index + 1,
            waiter.holder,
            waiter.priority
        );
        if name.is_empty() {
            lines.push(format!("{:<11} {text}", ""));
        } else {
            lines.push(format!("{name}:    {text}"));
        }
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
    let key = find(tenure, id)?;
    let now = tenure.clock().now();
    if !force {
        let Some((lease, verdict)) = tenure
            .store()
            .inspect(&key, tenure::call_deadline())?
            .leases
            .into_iter()
            .next()
        else {
            return Err(not_held(&key, global.store.as_deref()));
        };
        return Err(Failure::new(
            ErrorCode::PermissionDenied,
            format!(
                "{key} is held by {} ({})\n  to take it away anyway, which is recorded: {} --force",
                words::held(&now, &lease),
                words::evidence(&verdict),
                words::locks_command("release", key.as_str(), global.store.as_deref())
            ),
        )
        .details(json!({ "key": key, "lockedBy": lease.holder.id, "verdict": verdict.word() })));
    }
    let by: HolderId = context::caller(global)?;
    match tenure
        .store()
        .force(&key, &by, reason, tenure::call_deadline())?
    {
        Forced::NotHeld => Err(not_held(&key, global.store.as_deref())),
        Forced::Freed(leases) => {
            let holders: Vec<String> = leases
                .iter()
                .map(|lease| lease.holder.to_string())
                .collect();
            let first = leases.first();
            Ok(Answer::new(
                json!({
                    "key": key,
                    "token": first.map(|lease| lease.token),
                    "takenFrom": first.map(|lease| &lease.holder.id),
                    "by": by,
                }),
                format!(
                    "Took {key} from {}; recorded as forced by {by}.",
                    holders.join(", ")
                ),
            ))
        }
    }
}

fn cleanup(tenure: &Tenure, dry_run: bool) -> Result<Answer, Failure> {
    let now = tenure.clock().now();
    let reaped = tenure.store().reap(
        if dry_run { Reap::DryRun } else { Reap::Free },
        tenure::call_deadline(),
    )?;
    let verb = if dry_run { "Would free" } else { "Freed" };
    let mut lines: Vec<String> = reaped
        .iter()
        .map(|reaped| {
            format!(
                "{verb} {} of {}: {}",
                reaped.lease.key, reaped.lease.holder.id, reaped.evidence
            )
        })
        .collect();
    if lines.is_empty() {
        lines.push("No lease has expired, and no holder is dead.".into());
    }
    let data = reaped
        .iter()
        .map(|reaped| {
            json!({
                "key": reaped.lease.key,
                "holder": reaped.lease.holder.id,
                "token": reaped.lease.token,
                "acquiredAt": words::time(reaped.lease.acquired_at),
                "expiresAt": words::expires_at(&now, &reaped.lease),
                "evidence": reaped.evidence,
                "why": reaped.evidence.to_string(),
            })
        })
        .collect::<Vec<_>>();
    Ok(Answer::new(
        json!({ "dryRun": dry_run, "freed": data }),
        lines.join("\n"),
    ))
}

fn history(tenure: &Tenure, query: &HistoryQuery) -> Result<Answer, Failure> {
    let events = tenure.store().history(query, tenure::call_deadline())?;
    if events.is_empty() {
        return Ok(Answer::new(json!({ "events": [] }), "No events yet."));
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
    let data = events
        .iter()
        .map(|event| {
            json!({
                "at": words::time(event.at),
                "key": event.key,
                "event": event.kind,
                "token": event.token,
                "holder": event.holder,
                "times": event.times,
                "reason": event.reason,
                "evidence": event.evidence,
            })
        })
        .collect::<Vec<_>>();
    Ok(Answer::new(json!({ "events": data }), rows.text()))
}

fn detail(event: &Event) -> String {
    match (&event.evidence, &event.reason) {
        (Some(evidence), _) => evidence.to_string(),
        (None, Some(reason)) => reason.clone(),
        (None, None) if event.times > 1 => format!("{} times", event.times),
        (None, None) => String::new(),
    }
}

/// Finds a key by its name, its id, or a unique prefix of either, among the keys that are held or
/// waited for.
fn find(tenure: &Tenure, id: &str) -> Result<Key, Failure> {
    let keys: Vec<Key> = tenure
        .store()
        .list(tenure::call_deadline())?
        .into_iter()
        .map(|snapshot| snapshot.key)
        .collect();
    choose(id, &keys)?.ok_or_else(|| {
        Failure::new(
            ErrorCode::LockNotFound,
            format!("no lock matches {id}: see tenure locks list"),
        )
        .details(json!({ "id": id }))
    })
}

/// The same among the keys that have a history.
fn with_history(tenure: &Tenure, id: &str) -> Result<Key, Failure> {
    if let Ok(exact) = Key::parse(id) {
        let query = HistoryQuery {
            key: Some(exact.clone()),
            since: None,
            limit: Some(1),
        };
        if !tenure
            .store()
            .history(&query, tenure::call_deadline())?
            .is_empty()
        {
            return Ok(exact);
        }
    }
    let mut keys: Vec<Key> = tenure
        .store()
        .history(&HistoryQuery::default(), tenure::call_deadline())?
        .into_iter()
        .map(|event| event.key)
        .collect();
    keys.sort();
    keys.dedup();
    choose(id, &keys)?.ok_or_else(|| {
        Failure::new(
            ErrorCode::LockNotFound,
            format!("{id} has no history: see tenure locks history"),
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
