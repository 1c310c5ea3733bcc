//! `tenure locks list --all`: every lock in the project, whichever program made it.

use std::path::Path;

use tenure::wire::{
    AllLocksJson, ForeignLockJson, ForeignProcessJson, LockJson, StoreLocksJson, VerdictWord,
};
use tenure::{Project, StoreRole, StoreUrl};
use tenure_core::{Holder, Mode, Moment, Snapshot, Verdict};
use tenure_host::identity;
use tenure_view::foreign::ForeignVerdict;
use tenure_view::{ForeignLock, Overview, Role, StoreView};

use super::waiting;
use crate::answer::{Answer, Failure};
use crate::args::Global;
use crate::context;
use crate::table::Table;
use crate::words;

/// In place of what does not exist.
const NONE: &str = "-";

pub(super) fn list(global: &Global) -> Result<Answer, Failure> {
    let (project, overview) = look(global)?;
    let data = json(&overview);
    let mut table = Table::new(&[
        "KEY", "HOLDER", "PROCESS", "SINCE", "LEFT", "WAITING", "VERDICT",
    ]);
    let mut below = Vec::new();
    let mut is_empty = true;
    for store in &overview.stores {
        if let Some(error) = &store.error {
            below.push(format!("{} can't be read: {error}", store.url));
        }
        if store.locks.is_empty() {
            continue;
        }
        is_empty = false;
        table.group(&title(&project, store));
        for lock in &store.locks {
            rows(&mut table, &overview.now, lock);
            let problems = lock.problems.iter();
            below.extend(problems.map(|problem| format!("{}: {problem}", lock.key)));
        }
    }
    if !overview.foreign.is_empty() {
        is_empty = false;
        table.group("Other tools");
        for lock in &overview.foreign {
            table.row(foreign_row(&project, &overview.now, lock));
        }
    }
    below.extend(overview.left_out.iter().cloned());
    let mut text = if is_empty {
        "No locks.".to_owned()
    } else {
        table.text()
    };
    if !below.is_empty() {
        text.push_str("\n\n");
        text.push_str(&below.join("\n"));
    }
    Ok(Answer::new(data, text))
}

/// The project of the current folder, and every lock in it.
pub(crate) fn look(global: &Global) -> Result<(Project, Overview), Failure> {
    let project = context::existing_project(&context::start()?)?;
    let config = context::config(Some(&project))?;
    let chosen = context::chosen_url(global)?;
    let overview = Overview::of(&project, chosen.as_ref(), &config);
    Ok((project, overview))
}

/// A store, in words.
pub(crate) fn title(project: &Project, store: &StoreView) -> String {
    let what = match (store.role, &store.url) {
        (Role::Project(StoreRole::Own), _) => "locks of this project",
        (Role::Project(StoreRole::ExclusiveLock), _) => "exclusive lock",
        (Role::Project(StoreRole::BoardLock), _) => "lock of the board",
        (Role::Project(StoreRole::Ledger), _) => "claims of the ledger",
        (_, StoreUrl::Steroids(_)) => "locks of steroids",
        _ => "the chosen store",
    };
    format!("{} ({what})", short_url(project, &store.url))
}

/// The address of a store, with its path as seen from the project.
pub(crate) fn short_url(project: &Project, url: &StoreUrl) -> String {
    let path = match url {
        StoreUrl::Sqlite(path)
        | StoreUrl::Steroids(path)
        | StoreUrl::Exclusive(path)
        | StoreUrl::Mkdir(path)
        | StoreUrl::Ledger(path) => path,
        StoreUrl::Etcd(_) | StoreUrl::Memory => return url.to_string(),
    };
    let shown = url.to_string();
    let scheme = shown.split(':').next().unwrap_or_default();
    format!("{scheme}:{}", short_path(project, path))
}

/// A path as seen from the project, if it is in it.
pub(crate) fn short_path(project: &Project, path: &Path) -> String {
    let roots = [
        Some(project.root().to_owned()),
        project.root().canonicalize().ok(),
    ];
    let inner = roots
        .iter()
        .flatten()
        .find_map(|root| path.strip_prefix(root).ok());
    match inner {
        Some(inner) if inner.as_os_str().is_empty() => ".".to_owned(),
        Some(inner) => inner.display().to_string(),
        None => path.display().to_string(),
    }
}

fn rows(table: &mut Table, now: &Moment, lock: &Snapshot) {
    let waiting = waiting(lock);
    for (lease, verdict) in &lock.leases {
        let left = lease.expires.as_ref().map(|end| end.remaining(now));
        let key = match lease.mode {
            Mode::Exclusive => lease.key.to_string(),
            _ => format!("{} ({})", lease.key, words::mode(lease)),
        };
        table.row([
            key,
            lease.holder.id.to_string(),
            process(&lease.holder, verdict),
            words::ago_if_known(now, lease.since()),
            match left {
                None => "no end".to_owned(),
                Some(None) => "passed".to_owned(),
                Some(Some(left)) => words::elapsed(left),
            },
            waiting.clone(),
            verdict.word().to_owned(),
        ]);
    }
    if lock.leases.is_empty() {
        table.row([lock.key.as_str(), NONE, NONE, NONE, NONE, &waiting, "free"]);
    }
}

/// The process of a holder: its pid, its machine if that is another one, and its command.
pub(crate) fn process(holder: &Holder, verdict: &Verdict) -> String {
    let Some(process) = holder.process() else {
        return if holder.host == identity::host() {
            NONE.to_owned()
        } else {
            format!("on {}", holder.host)
        };
    };
    let mut text = process.pid.to_string();
    if holder.host != identity::host() {
        text = format!("{text} on {}", holder.host);
    }
    if let Some(command) = &holder.command {
        text = format!("{text} {command}");
    }
    if matches!(verdict, Verdict::Dead(_)) {
        text.push_str(" (exited)");
    }
    text
}

fn foreign_row(project: &Project, now: &Moment, lock: &ForeignLock) -> [String; 7] {
    let process = match lock.processes.as_slice() {
        [] => NONE.to_owned(),
        [first, rest @ ..] => {
            let command = first.command.as_deref().unwrap_or("(exited)");
            let more = match rest.len() {
                0 => String::new(),
                more => format!(", {more} more"),
            };
            format!("{} {command}{more}", first.pid)
        }
    };
    [
        short_path(project, &lock.path),
        lock.tool.word().to_owned(),
        process,
        words::ago_if_known(now, lock.since),
        "no end".to_owned(),
        NONE.to_owned(),
        lock.verdict.word().to_owned(),
    ]
}

fn json(overview: &Overview) -> AllLocksJson {
    let stores = overview.stores.iter().map(|store| StoreLocksJson {
        store: store.url.to_string(),
        role: store.role.word().to_owned(),
        locks: store
            .locks
            .iter()
            .map(|lock| LockJson::new(&overview.now, lock))
            .collect(),
        error: store.error.as_ref().map(ToString::to_string),
    });
    AllLocksJson {
        stores: stores.collect(),
        foreign: overview.foreign.iter().map(foreign_json).collect(),
        left_out: overview.left_out.clone(),
    }
}

pub(crate) fn foreign_json(lock: &ForeignLock) -> ForeignLockJson {
    let processes = lock.processes.iter().map(|process| ForeignProcessJson {
        pid: process.pid,
        command: process.command.clone(),
        how: process.how.word().to_owned(),
    });
    ForeignLockJson {
        tool: lock.tool.word().to_owned(),
        path: lock.path.display().to_string(),
        since: lock.since.map(Into::into),
        verdict: match lock.verdict {
            ForeignVerdict::Alive(_) => VerdictWord::Alive,
            ForeignVerdict::Dead(_) => VerdictWord::Dead,
            ForeignVerdict::Unknown(_) => VerdictWord::Unknown,
            ForeignVerdict::Malformed(_) => VerdictWord::Malformed,
        },
        why: lock.verdict.why().to_owned(),
        processes: processes.collect(),
    }
}
