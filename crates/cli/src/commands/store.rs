//! `tenure store`: examine and repair the store itself, and copy its tasks.

mod copy;
mod repair;

use std::ffi::OsString;

use tenure::store::{HistoryQuery, call_deadline};
use tenure::tasks::{TaskError, TaskQuery};
use tenure::text::plural;
use tenure::wire::{ErrorCode, StoreCheckJson, StoreMemberJson};
use tenure::{StoreUrl, Tenure};

use crate::answer::{Answer, Failure};
use crate::args::{Global, Store};
use crate::context;
use crate::table::Table;

pub(crate) fn store(global: &Global, store: Store) -> Result<Answer, Failure> {
    match store {
        Store::Check { url } => check(global, url),
        Store::Repair(what) => repair::repair(global, &what),
        Store::Copy(both) => copy::copy(global, &both),
    }
}

/// Examines a store. What is wrong with it is the error.
fn check(global: &Global, url: Option<OsString>) -> Result<Answer, Failure> {
    let global = Global {
        store: url.or_else(|| global.store.clone()),
        ..global.clone()
    };
    // Before the cluster is asked, so that a password on the command line is refused.
    let tenure = context::open_existing(&global)?;
    let url = match context::chosen_url(&global)? {
        Some(url) => url,
        None => context::project(&context::start()?)?.store(),
    };
    let mut found = StoreCheckJson {
        store: url.to_string(),
        ..StoreCheckJson::default()
    };
    if let StoreUrl::Etcd(url) = &url {
        Tenure::check_etcd(url, &mut found)?;
    }
    // A cluster none of whose members answers and has a leader says nothing of its contents.
    let mut members = found.members.iter();
    let is_reachable =
        found.members.is_empty() || members.any(|member| member.has_leader == Some(true));
    if is_reachable && let Err(error) = look_inside(&tenure, &mut found) {
        let error = error.to_string();
        let is_known = |problem: &String| error.contains(problem.as_str());
        if !found.problems.iter().any(is_known) {
            found.problems.push(error);
        }
    }
    let text = shown(&found);
    if found.problems.is_empty() {
        return Ok(Answer::new(found, text));
    }
    let message = format!("{}: {}", found.store, found.problems.join("; "));
    Err(Failure::new(ErrorCode::Io, message)
        .verbatim(text)
        .details(found))
}

fn look_inside(tenure: &Tenure, found: &mut StoreCheckJson) -> Result<(), TaskError> {
    let count = |length: usize| Some(u64::try_from(length).unwrap_or(u64::MAX));
    let keys = tenure.store().list(call_deadline())?;
    found.held = count(keys.iter().filter(|key| !key.leases.is_empty()).count());
    found.waiting = count(keys.iter().map(|key| key.queue.len()).sum());
    // Not every store keeps tasks.
    if let Ok(tasks) = tenure.tasks() {
        let all = tasks.tasks(&TaskQuery::default(), call_deadline())?;
        found.tasks = count(all.len());
        found.sections = count(tasks.sections(call_deadline())?.len());
    }
    let query = HistoryQuery::default();
    let events = tenure.store().history(&query, call_deadline())?;
    found.events = count(events.len());
    Ok(())
}

fn shown(found: &StoreCheckJson) -> String {
    let mut lines = vec![format!("Store:    {}", found.store)];
    if !found.members.is_empty() {
        let mut table = Table::new(&[
            "MEMBER", "STATE", "VERSION", "SIZE", "IN USE", "QUOTA", "CLOCK", "DETAIL",
        ]);
        for member in &found.members {
            table.row(cells(member));
        }
        lines.push(table.text().trim_end().to_owned());
    }
    lines.extend(match (found.login_required, &found.user) {
        (None, _) => None,
        (Some(false), _) => Some("Login:    not required".to_owned()),
        (Some(true), Some(user)) => Some(format!("Login:    {user}")),
        (Some(true), None) => Some("Login:    required, but refused".to_owned()),
    });
    if let (Some(p50), Some(p99)) = (found.p50_micros, found.p99_micros) {
        let (p50, p99) = (millis(p50), millis(p99));
        lines.push(format!("Reads:    p50 {p50}, p99 {p99}"));
    }
    if let (Some(held), Some(waiting)) = (found.held, found.waiting) {
        let mut counts = vec![format!("{held} held"), format!("{waiting} waiting")];
        for (count, what) in [
            (found.events, "event"),
            (found.tasks, "task"),
            (found.sections, "section"),
        ] {
            counts.extend(count.map(|count| plural::count(count, what)));
        }
        lines.push(format!("Contents: {}", counts.join(", ")));
    }
    let named = u64::try_from(found.members.len()).unwrap_or(u64::MAX);
    if let Some(size) = found.cluster_size.filter(|size| *size > named) {
        lines.push(format!(
            "Note:     the cluster has {size} members, the address names {named}: name all, so that each may fail"
        ));
    }
    for problem in &found.problems {
        lines.push(format!("Problem:  {problem}"));
    }
    lines.join("\n")
}

fn cells(member: &StoreMemberJson) -> [String; 8] {
    let state = match (&member.error, member.leader, member.has_leader) {
        (Some(_), ..) => "unreachable",
        (None, true, _) => "leader",
        (None, false, Some(false)) => "no leader",
        (None, false, _) => "follower",
    };
    let unknown = || "-".to_owned();
    let size = |bytes: Option<u64>| {
        bytes.map_or_else(unknown, |bytes| match bytes.div_ceil(1024) {
            small @ ..10_000 => format!("{small} KiB"),
            large => format!("{} MiB", large.div_ceil(1024)),
        })
    };
    [
        member.endpoint.clone(),
        state.to_owned(),
        member.version.clone().unwrap_or_else(unknown),
        size(member.size),
        size(member.size_in_use),
        size(member.quota),
        match member.clock_ahead_seconds {
            None => unknown(),
            Some(0) => "same".to_owned(),
            Some(ahead) => format!("{ahead:+} s"),
        },
        member.error.clone().unwrap_or_default(),
    ]
}

fn millis(micros: u64) -> String {
    format!("{}.{} ms", micros / 1000, micros % 1000 / 100)
}
