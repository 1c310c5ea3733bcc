//! `tenure locks`: list locks, show their history, and end expired and dead ones.

pub(crate) mod all;
mod verify;

use std::collections::BTreeSet;

use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use tenure::store::{
    Event, EventKind, HistoryQuery, Holder, Key, KeyKind, Lease, Moment, Presence, Reap, Reason,
    Snapshot, Verdict, call_deadline,
};
use tenure::text::{flat, plural};
use tenure::wire::{CleanupJson, ErrorCode, HistoryJson, LockJson, LocksJson};
use tenure::{Mode, Tenure};
use tenure_host::identity;

use crate::answer::{Answer, Failure};
use crate::args::{Global, Locks};
use crate::commands::ask::{requests, told};
use crate::context;
use crate::exit::Exit;
use crate::progress::Progress;
use crate::table::Table;
use crate::words;

pub(crate) fn locks(global: &Global, locks: Locks) -> Result<Answer, Failure> {
    let open = || context::open_existing_for_locks(global);
    match locks {
        Locks::List { all: true } => all::list(global),
        Locks::List { all: false } => list(global, &open()?),
        Locks::Verify => verify::verify(global),
        Locks::Show { id } => show(global, &open()?, &id),
        Locks::Cleanup { dry_run } => cleanup(global, &open()?, dry_run),
        Locks::History { id, limit, since } => {
            let tenure = open()?;
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
                    limit: (limit > 0).then_some(limit),
                    ..HistoryQuery::default()
                },
            )
        }
    }
}

fn list(global: &Global, tenure: &Tenure) -> Result<Answer, Failure> {
    let now = tenure.clock().now();
    let snapshots = tenure.store().list(call_deadline())?;
    let locks = snapshots
        .iter()
        .map(|snapshot| LockJson::new(&now, snapshot))
        .collect();
    let data = LocksJson { locks };
    let reserved = all::reserved(&snapshots, &words::in_store(global.store.as_deref()));
    let problems = snapshots.iter().flat_map(|Snapshot { key, problems, .. }| {
        let problems = problems.iter();
        problems.map(move |problem| format!("{key}: {problem}"))
    });
    let below = problems.chain(reserved).collect::<Vec<_>>();
    let shown: Vec<&Snapshot> = snapshots
        .iter()
        .filter(|lock| !all::is_reservations(lock))
        .collect();
    if shown.is_empty() {
        let lines = [vec!["No locks.".to_owned()], below].concat();
        return Ok(Answer::new(data, lines.join("\n")));
    }
    let mut columns = vec![
        "KEY",
        "HOLDER",
        "TOKEN",
        "STATE",
        "SINCE",
        "REMAINING",
        "WAITING",
    ];
    let titles: Vec<Option<String>> = shown
        .iter()
        .map(|snapshot| title(tenure, &snapshot.key))
        .collect();
    let has_titles = titles.iter().any(Option::is_some);
    if has_titles {
        columns.push("TITLE");
    }
    let mut rows = Table::new(&columns);
    let mut leases = shown.iter().flat_map(|lock| &lock.leases);
    if leases.all(|(lease, _)| lease.mode.is_exclusive()) {
        rows = rows.first_to_go("STATE");
    }
    for (snapshot, title) in shown.into_iter().zip(titles) {
        let waiting = waiting(snapshot);
        let title = has_titles.then(|| title.unwrap_or_else(|| "-".to_owned()));
        for (lease, verdict) in &snapshot.leases {
            let row = [
                lease.key.to_string(),
                in_row(&lease.holder),
                lease.token.to_string(),
                state_word(lease, verdict),
                words::ago_if_known(&now, lease.since()),
                words::until(&now, lease, verdict),
                waiting.clone(),
            ];
            rows.row(row.into_iter().chain(title.clone()).collect::<Vec<_>>());
        }
        if snapshot.leases.is_empty() {
            let row = [snapshot.key.as_str(), "-", "-", "free", "-", "-", &waiting];
            let row = row.map(str::to_owned).into_iter().chain(title);
            rows.row(row.collect::<Vec<_>>());
        }
    }
    let lines = [vec![rows.text()], below].concat();
    Ok(Answer::new(data, lines.join("\n")))
}

/// A holder, without the name of this machine: there is no room for what most rows have in common.
fn in_row(holder: &Holder) -> String {
    match holder.process() {
        _ if holder.host != identity::host() => holder.to_string(),
        Some(process) => format!("{} (pid {})", holder.id, process.pid),
        None => holder.id.to_string(),
    }
}

/// The title of the task, or the name of the section, that a key belongs to.
fn title(tenure: &Tenure, key: &Key) -> Option<String> {
    let tasks = match key.kind() {
        KeyKind::Task(_) | KeyKind::Section(_) => tenure.tasks().ok()?,
        KeyKind::Node(_) | KeyKind::Named(_) => return None,
    };
    match key.kind() {
        KeyKind::Task(id) => Some(tasks.find_task(id, call_deadline()).ok()?.title),
        KeyKind::Section(id) => Some(tasks.find_section(id, call_deadline()).ok()?.name),
        KeyKind::Node(_) | KeyKind::Named(_) => None,
    }
}

/// The state of a lease, as short as can be.
fn state_word(lease: &Lease, verdict: &Verdict) -> String {
    match verdict {
        Verdict::Alive | Verdict::Unknown(_) => words::mode(lease),
        Verdict::Dead(_) => "DEAD".to_owned(),
        Verdict::Expired(_) => "EXPIRED".to_owned(),
        Verdict::Malformed => "MALFORMED".to_owned(),
    }
}

/// How many processes wait, and how many more have a place but do not wait right now.
pub(crate) fn waiting(snapshot: &Snapshot) -> String {
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
    if global.quiet && !global.json {
        return is_held(tenure, id);
    }
    let snapshot = tenure
        .store()
        .inspect(&find(global, tenure, id)?, call_deadline())?;
    let requests = requests(tenure, snapshot.leases.iter().map(|(lease, _)| lease))?;
    let mut text = describe(&now, &snapshot);
    for (index, request) in requests.iter().enumerate() {
        let name = if index == 0 { "Asked:" } else { "" };
        let ago = words::ago(&now, request.at);
        text = format!("{text}\n{name:<11} {} ({ago})", told(request));
    }
    let mut data = LockJson::new(&now, &snapshot);
    data.asked = requests.iter().map(Into::into).collect();
    Ok(Answer::new(data, text))
}

/// Whether exactly this key is held, for a script: the exit code, and the holder's name.
fn is_held(tenure: &Tenure, key: &str) -> Result<Answer, Failure> {
    let snapshot = tenure.store().inspect(&Key::parse(key)?, call_deadline())?;
    let mut held = snapshot.leases.iter();
    let held = held.find(|(_, verdict)| verdict.ended().is_none());
    Ok(match held {
        Some((lease, _)) => Answer::new((), lease.holder.id.to_string()),
        None => Answer::silent(Exit::NotFound),
    })
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
        if !lease.mode.is_exclusive() {
            lines.push(line("Mode:", words::mode(lease)));
        }
        if let Some(command) = &lease.holder.command {
            lines.push(line("Runs:", flat(command)));
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
        let mode = match &waiter.mode {
            Mode::Exclusive => String::new(),
            mode => format!(", {}", words::asked_mode(mode)),
        };
        let place = index + 1;
        lines.push(line(
            name,
            format!("{place}. {holder}, priority {priority}{mode}{away}"),
        ));
    }
    lines.join("\n")
}

fn cleanup(global: &Global, tenure: &Tenure, dry_run: bool) -> Result<Answer, Failure> {
    let now = tenure.clock().now();
    let mut reaped = tenure.store().reap(Reap::DryRun, call_deadline())?;
    let mut failed = None;
    if !dry_run {
        let keys: BTreeSet<Key> = reaped.drain(..).map(|one| one.lease.key).collect();
        let mut progress = Progress::new(global, "cleaned up", keys.len());
        for key in keys {
            match tenure.store().reap_key(&key, call_deadline()) {
                Ok(some) => reaped.extend(some),
                Err(error) => {
                    failed.get_or_insert((key, error));
                }
            }
            progress.one_more();
        }
        // What is left: tickets that nobody needs any more, and what killed processes left behind.
        if failed.is_none() {
            reaped.extend(tenure.store().reap(Reap::Free, call_deadline())?);
        }
    }
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
    let data = CleanupJson::new(&now, dry_run, &reaped);
    if let Some((key, mut error)) = failed {
        error.what = format!(
            "{key} can't be cleaned up: {} (others were: {})",
            error.what,
            plural::count(reaped.len(), "lease")
        );
        return Err(Failure::from(error).details(data));
    }
    if lines.is_empty() {
        lines.push("No lease has expired, and no holder is dead.".into());
    }
    Ok(Answer::new(data, lines.join("\n")))
}

fn history(tenure: &Tenure, query: &HistoryQuery) -> Result<Answer, Failure> {
    let events = tenure.store().history(query, call_deadline())?;
    let problems = tenure.store().damaged_events(query, call_deadline())?;
    let below = if problems.is_empty() {
        String::new()
    } else {
        let problems = problems.join("\n");
        format!("\n{problems}\n  put it right: tenure store repair")
    };
    let data = HistoryJson {
        events: events.iter().map(Into::into).collect(),
        problems,
    };
    if events.is_empty() {
        return Ok(Answer::new(data, format!("No events yet.{below}")));
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
    Ok(Answer::new(data, rows.text() + &below))
}

/// What is known of an event besides its kind.
pub(crate) fn detail(event: &Event) -> String {
    let known = reason_or_count(event);
    let Some(waited) = event.waited else {
        return known;
    };
    let waited = format!("after a wait of {}", words::elapsed(waited));
    let is_new = event.reason.as_deref() == Some(Reason::AcquiredNew.word());
    // It was not free before.
    if is_new && event.mode.is_exclusive() {
        waited
    } else {
        format!("{known}, {waited}")
    }
}

fn reason_or_count(event: &Event) -> String {
    match (&event.evidence, &event.reason) {
        (Some(evidence), _) => evidence.to_string(),
        (None, Some(reason)) if event.kind == EventKind::Granted => {
            match (&event.mode, reason.as_str()) {
                (Mode::Exclusive, reason) => words::reason(reason).to_owned(),
                // It need not have been free.
                (mode, "acquired_new") => words::asked_mode(mode),
                (mode, reason) => {
                    format!("{}, {}", words::asked_mode(mode), words::reason(reason))
                }
            }
        }
        (None, Some(reason)) => reason.clone(),
        (None, None) => {
            // A holder that admits others keeps its lease.
            let is_new = event.kind == EventKind::Renewed && !event.mode.is_exclusive();
            let mode = is_new.then(|| words::asked_mode(&event.mode));
            let times = (event.times > 1).then(|| format!("{} times", event.times));
            let known: Vec<String> = mode.into_iter().chain(times).collect();
            known.join(", ")
        }
    }
}

/// Finds a key by its name, its id, or a unique prefix of either, among the keys that are held or
/// waited for.
fn find(global: &Global, tenure: &Tenure, id: &str) -> Result<Key, Failure> {
    if let Some(key) = used(tenure, id)? {
        return Ok(key);
    }
    choose(id, &like(tenure, id)?)?.ok_or_else(|| {
        let message = format!("no lock matches {id}: see tenure locks list");
        not_found(global, message, id)
    })
}

fn not_found(global: &Global, message: String, id: &str) -> Failure {
    let store = words::in_store(global.store.as_deref());
    Failure::new(ErrorCode::LockNotFound, message + &store).details(json!({ "id": id }))
}

/// The key of exactly this name, if it is held or waited for. The other keys of a large store need not be read for it.
fn used(tenure: &Tenure, name: &str) -> Result<Option<Key>, Failure> {
    let Ok(key) = Key::parse(name) else {
        return Ok(None);
    };
    let capabilities = tenure.store().capabilities();
    if !capabilities.any_key {
        return Ok(None);
    }
    let snapshot = tenure.store().inspect(&key, call_deadline())?;
    Ok((!snapshot.is_idle()).then_some(key))
}

/// The keys that are held or waited for whose name or id begins with this.
fn like(tenure: &Tenure, id: &str) -> Result<Vec<Key>, Failure> {
    if id.is_empty() {
        return Ok(Vec::new());
    }
    let names = ["", "task:", "section:", "node:"].map(|kind| [kind, id].concat());
    let names = names.each_ref().map(String::as_str);
    Ok(tenure.store().list_names(&names, call_deadline())?)
}

/// Finds a key by its name or its whole id. A prefix is not enough to take a lease away: it might match another
/// key than the one that was meant.
pub(crate) fn exactly(global: &Global, tenure: &Tenure, id: &str) -> Result<Key, Failure> {
    if let Some(key) = used(tenure, id)? {
        return Ok(key);
    }
    if let Some(key) = whole(id, &like(tenure, id)?) {
        return Ok(key.clone());
    }
    // For the advice.
    let keys = tenure.store().list_names(&[""], call_deadline())?;
    let near = |key: &&Key| !id.is_empty() && (key.as_str().contains(id) || id.contains(key.id()));
    let near: Vec<&str> = keys.iter().filter(near).map(|key| key.as_str()).collect();
    let advice = if near.is_empty() {
        let store = words::in_store(global.store.as_deref());
        format!(": see tenure locks list{store}")
    } else {
        let near: Vec<String> = near.iter().take(5).map(|key| words::quoted(key)).collect();
        let near = near.join(" ");
        format!("\n  give the whole key of the one you mean: {near}")
    };
    let message = format!("no lock is named {id}, and nothing was released{advice}");
    Err(Failure::new(ErrorCode::LockNotFound, message)
        .details(json!({ "id": id, "candidates": near })))
}

/// The same among the keys that have a history.
fn with_history(global: &Global, tenure: &Tenure, id: &str) -> Result<Key, Failure> {
    if let Ok(exact) = Key::parse(id) {
        let query = HistoryQuery {
            key: Some(exact.clone()),
            limit: Some(1),
            ..HistoryQuery::default()
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
        let message = format!("{id} has no history: see tenure locks history");
        not_found(global, message, id)
    })
}

/// The key of this name, or the only one with this id.
fn whole<'a>(id: &str, keys: &'a [Key]) -> Option<&'a Key> {
    let has_id = |key: &&Key| !matches!(key.kind(), KeyKind::Named(_)) && key.id() == id;
    let named = keys.iter().find(|key| key.as_str() == id);
    named.or_else(|| {
        let mut keys = keys.iter().filter(has_id);
        keys.next().filter(|_| keys.next().is_none())
    })
}

fn choose(id: &str, keys: &[Key]) -> Result<Option<Key>, Failure> {
    if let Some(key) = whole(id, keys) {
        return Ok(Some(key.clone()));
    }
    let begins = |key: &Key| key.as_str().starts_with(id) || key.id().starts_with(id);
    let begin = keys.iter().filter(|key| !id.is_empty() && begins(key));
    match begin.collect::<Vec<_>>().as_slice() {
        [] => Ok(None),
        [one] => Ok(Some((*one).clone())),
        several => {
            let names: Vec<&str> = several.iter().map(|key| key.as_str()).collect();
            let message = format!("{id} matches {}: give a longer prefix", names.join(", "));
            Err(Failure::new(ErrorCode::Ambiguous, message)
                .details(json!({ "id": id, "candidates": names })))
        }
    }
}
