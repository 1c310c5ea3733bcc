//! `tenure status`: the project at a glance.

use tenure::Mode;
use tenure::store::{Lease, Presence, Snapshot};
use tenure::text::plural;
use tenure::wire::{GrantJson, StatusJson, StoreCountJson};
use tenure_daemon::DaemonStatus;
use tenure_daemon::lock::folder_of;
use tenure_view::doctor::{self, Extent, Severity};
use tenure_view::watch::daemon_in_words;
use tenure_view::{Overview, StoreView};

use crate::answer::{Answer, Failure};
use crate::args::Global;
use crate::commands::locks::all;
use crate::context;
use crate::table::Table;
use crate::words;

/// How many leases are listed, those with the most waiters first.
const LEASES: usize = 10;

/// How many problems are listed.
const PROBLEMS: usize = 3;

/// What is held, as a table with an empty line below it; nothing if nothing is held.
fn held_by_all(overview: &Overview) -> Vec<String> {
    let locks = overview.stores.iter().flat_map(|store| &store.locks);
    let leases =
        locks.flat_map(|lock| lock.leases.iter().map(move |(lease, of)| (lock, lease, of)));
    let mut held: Vec<_> = leases
        .filter(|(.., verdict)| verdict.ended().is_none())
        .map(|(lock, lease, _)| (lease, waiters(lock, lease)))
        .collect();
    held.sort_by_key(|(_, waiters)| std::cmp::Reverse(*waiters));
    let mut table = Table::new(&["KEY", "HOLDER", "SINCE", "WAITING"]);
    for (lease, waiters) in held.iter().take(LEASES) {
        table.row([
            words::held_subject(lease),
            lease.holder.id.to_string(),
            all::age(&overview.now, lease.since()),
            waiters.to_string(),
        ]);
    }
    match held.len() {
        0 => Vec::new(),
        many if many > LEASES => vec![
            table.text(),
            format!("and {} more: tenure locks", many - LEASES),
            String::new(),
        ],
        _ => vec![table.text(), String::new()],
    }
}

/// How many waiters a lease keeps waiting.
fn waiters(lock: &Snapshot, lease: &Lease) -> usize {
    let here = lock
        .queue
        .iter()
        .filter(|waiter| waiter.presence == Presence::Here);
    let is_kept = |mode: &Mode| mode.paths().is_none() || !lease.mode.admits(mode);
    here.filter(|waiter| is_kept(&waiter.mode)).count()
}

pub(crate) fn status(global: &Global) -> Result<Answer, Failure> {
    let (place, overview) = all::look_anyway(global)?;
    let now = &overview.now;
    let me = context::caller(global)?;
    let found = doctor::examine(place.project.as_ref(), &overview, Extent::Glance);
    let problems = found
        .iter()
        .filter(|one| one.severity == Severity::Problem)
        .count();
    let notes = found.len() - problems;
    let daemon = match &place.project {
        Some(project) => DaemonStatus::read(&folder_of(project)),
        None => Ok(DaemonStatus::NotRunning(None)),
    };
    let daemon = match daemon {
        Err(error) => format!("unknown ({error})"),
        Ok(status) => daemon_in_words(Some(&status)),
    };
    let mut held = Vec::new();
    let mut wanted = Vec::new();
    let mut stores = Vec::new();
    for store in &overview.stores {
        let mut count = StoreCountJson {
            store: store.url.to_string(),
            held: 0,
            waiting: 0,
            error: store.error.as_ref().map(ToString::to_string),
        };
        for lock in &store.locks {
            count.waiting += lock.queue.len();
            for (lease, verdict) in &lock.leases {
                count.held += usize::from(verdict.ended().is_none());
                if lease.holder.id == me && verdict.ended().is_none() {
                    held.push(GrantJson::new(now, lease));
                }
            }
            if lock.queue.iter().any(|waiter| waiter.holder.id == me) {
                wanted.push(lock.key.clone());
            }
        }
        stores.push(count);
    }
    let line = |name: &str, value: String| format!("{name:<10} {value}");
    let root = place.project.as_ref();
    let root = root.map(|project| project.root().display().to_string());
    let mut lines = held_by_all(&overview);
    lines.push(line(
        "Project:",
        root.clone().unwrap_or_else(|| "none".to_owned()),
    ));
    let is_used = |store: &StoreView| Some(&store.url) == place.store();
    let mut shown: Vec<_> = overview
        .stores
        .iter()
        .zip(&stores)
        .filter(|(store, count)| {
            is_used(store) || store.error.is_some() || count.held + count.waiting > 0
        })
        .collect();
    shown.sort_by_key(|(store, _)| !is_used(store));
    if shown.is_empty() {
        lines.push(line(
            "Store:",
            "none yet; the first command creates it".into(),
        ));
    }
    for (number, (store, count)) in shown.into_iter().enumerate() {
        let state = match &store.error {
            Some(_) => "can't be read".to_owned(),
            None => format!("{} held, {} waiting", count.held, count.waiting),
        };
        let name = if number == 0 { "Store:" } else { "" };
        let url = place.short_url(&store.url);
        lines.push(line(name, format!("{url}: {state}")));
    }
    if !overview.foreign.is_empty() {
        let count = plural::count(overview.foreign.len(), "lock");
        let text = format!("{count} of other tools; see tenure locks list --all");
        lines.push(line("", text));
    }
    let left_out = overview.left_out.iter().cloned();
    lines.extend(left_out.map(|what| line("Left out:", what)));
    if place.project.is_some() {
        lines.push(line("Daemon:", daemon.clone()));
    }
    let keys: Vec<String> = held
        .iter()
        .map(|grant| match grant.remaining_seconds {
            Some(left) => format!(
                "{} ({} left)",
                grant.key,
                words::elapsed(std::time::Duration::from_secs(left))
            ),
            None => grant.key.to_string(),
        })
        .collect();
    let unread = overview.stores.iter().filter(|store| store.error.is_some());
    let unread: Vec<String> = unread.map(|store| place.short_url(&store.url)).collect();
    let mut mine = match (keys.is_empty(), unread.is_empty()) {
        (true, true) => format!("nothing, as {me}"),
        (true, false) => "unknown".to_owned(),
        (false, _) => format!("{}, as {me}", keys.join(", ")),
    };
    if !unread.is_empty() {
        mine = format!("{mine}; {} can't be read", unread.join(" and "));
    }
    lines.push(line("You hold:", mine));
    if !wanted.is_empty() {
        let keys: Vec<&str> = wanted.iter().map(|key| key.as_str()).collect();
        lines.push(line("You want:", keys.join(", ")));
    }
    lines.push(line(
        "Problems:",
        match (problems, notes) {
            (0, 0) => "none".to_owned(),
            (0, notes) => format!("none; {}: tenure doctor", plural::count(notes, "note")),
            (problems, _) => format!("{problems}: tenure doctor"),
        },
    ));
    let wrong = found.iter().filter(|one| one.severity == Severity::Problem);
    lines.extend(wrong.take(PROBLEMS).map(|one| line("", one.what.clone())));
    lines.push(line(
        "Try:",
        "tenure run KEY -- CMD, tenure locks, tenure why KEY, tenure help".into(),
    ));
    let data = StatusJson {
        project: root,
        daemon,
        holder: me,
        held,
        waiting_for: wanted,
        stores,
        foreign: overview.foreign.len(),
        left_out: overview.left_out.clone(),
        problems,
        notes,
    };
    let text = lines.join("\n");
    let mut used = overview
        .stores
        .into_iter()
        .filter(|store| Some(&store.url) == place.store());
    match used.find_map(|store| store.error) {
        // Without the store that commands use, nothing is known.
        Some(error) => {
            let text = format!("{text}\n\n{error}");
            Err(Failure::from(error).verbatim(text).details(data))
        }
        None => Ok(Answer::new(data, text)),
    }
}
