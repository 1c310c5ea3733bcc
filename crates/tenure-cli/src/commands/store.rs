//! `tenure store`: examine the store itself, and copy its tasks.

mod copy;

use std::ffi::OsString;

use tenure::wire::{ErrorCode, StoreCheckJson, StoreMemberJson};
use tenure::{HistoryQuery, StoreUrl, Tenure, call_deadline};
use tenure_core::TaskError;
use tenure_core::task::TaskQuery;

use crate::answer::{Answer, Failure};
use crate::args::{Global, Store};
use crate::context;
use crate::table::Table;

pub(crate) fn store(global: &Global, store: Store) -> Result<Answer, Failure> {
    match store {
        Store::Check { url } => check(global, url),
        Store::Copy(both) => copy::copy(global, &both),
    }
}

/// Examines a store. What is wrong with it is the error.
fn check(global: &Global, url: Option<OsString>) -> Result<Answer, Failure> {
    let global = Global {
        store: url.or_else(|| global.store.clone()),
        ..global.clone()
    };
    let url = match context::chosen_store(&global) {
        Some(url) => StoreUrl::parse(&url)?,
        None => context::project(&context::start()?)?.store(),
    };
    let mut found = StoreCheckJson {
        store: url.to_string(),
        ..StoreCheckJson::default()
    };
    // Before the cluster is asked, so that a password on the command line is refused.
    let tenure = context::open_existing(&global)?;
    if let StoreUrl::Etcd(url) = &url {
        Tenure::check_etcd(url, &mut found)?;
    }
    // A cluster none of whose members answers says nothing of its contents.
    let is_reachable =
        found.members.is_empty() || found.members.iter().any(|member| member.error.is_none());
    if is_reachable && let Err(error) = look_inside(&tenure, &mut found) {
        found.problems.push(error.to_string());
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
    let events = tenure
        .store()
        .history(&HistoryQuery::default(), call_deadline());
    found.events = events.ok().and_then(|events| count(events.len()));
    // Not every store keeps tasks.
    if let Ok(tasks) = tenure.tasks() {
        let all = tasks.tasks(&TaskQuery::default(), call_deadline())?;
        found.tasks = count(all.len());
        found.sections = count(tasks.sections(call_deadline())?.len());
    }
    Ok(())
}

fn shown(found: &StoreCheckJson) -> String {
    let mut lines = vec![format!("Store:    {}", found.store)];
    if !found.members.is_empty() {
        let mut table = Table::new(&["MEMBER", "STATE", "VERSION", "SIZE", "IN USE", "DETAIL"]);
        for member in &found.members {
            table.row(cells(member));
        }
        lines.push(table.text().trim_end().to_owned());
    }
    if let (Some(p50), Some(p99)) = (found.p50_micros, found.p99_micros) {
        lines.push(format!(
            "Reads:    p50 {}, p99 {}",
            millis(p50),
            millis(p99)
        ));
    }
    if let (Some(held), Some(waiting)) = (found.held, found.waiting) {
        let counts = [
            (Some(held), "held"),
            (Some(waiting), "waiting"),
            (found.events, "events"),
            (found.tasks, "tasks"),
            (found.sections, "sections"),
        ];
        let counts = counts
            .iter()
            .filter_map(|(count, what)| count.map(|count| format!("{count} {what}")));
        let counts: Vec<String> = counts.collect();
        lines.push(format!("Contents: {}", counts.join(", ")));
    }
    for problem in &found.problems {
        lines.push(format!("Problem:  {problem}"));
    }
    lines.join("\n")
}

fn cells(member: &StoreMemberJson) -> [String; 6] {
    let state = match (&member.error, member.leader) {
        (Some(_), _) => "unreachable",
        (None, true) => "leader",
        (None, false) => "follower",
    };
    let size = |bytes: Option<u64>| {
        bytes.map_or(String::from("-"), |bytes| {
            format!("{} KiB", bytes.div_ceil(1024))
        })
    };
    [
        member.endpoint.clone(),
        state.to_owned(),
        member.version.clone().unwrap_or_else(|| "-".to_owned()),
        size(member.size),
        size(member.size_in_use),
        member.error.clone().unwrap_or_default(),
    ]
}

fn millis(micros: u64) -> String {
    format!("{}.{} ms", micros / 1000, micros % 1000 / 100)
}
