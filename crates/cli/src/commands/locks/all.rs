//! `tenure locks list --all`: every lock in the project, whichever program made it.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use tenure::project::StoreRole;
use tenure::store::{Holder, Key, Moment, Snapshot, Verdict};
use tenure::text::plural;
use tenure::wire::{AllLocksJson, ForeignLockJson, LockJson, StoreLocksJson, VerdictWord};
use tenure::{Config, Mode, Project, StoreUrl};
use tenure_host::identity;
use tenure_view::foreign::ForeignVerdict;
use tenure_view::{ForeignLock, Overview, StoreView};

use super::waiting;
use crate::answer::{Answer, Failure};
use crate::args::Global;
use crate::context;
use crate::table::Table;
use crate::words;

/// In place of what does not exist.
const NONE: &str = "-";

pub(super) fn list(global: &Global) -> Result<Answer, Failure> {
    let (place, overview) = look(global)?;
    let data = json(&overview);
    let header = [
        "KEY", "MODE", "HOLDER", "PROCESS", "SINCE", "LEFT", "WAIT", "STATE",
    ];
    let mut table = Table::new(&header).first_to_go("STATE");
    let mut has_modes = false;
    let mut below = Vec::new();
    let mut hints = Vec::new();
    let mut is_empty = true;
    for store in &overview.stores {
        if let Some(error) = &store.error {
            below.push(format!("{} can't be read: {error}", store.url));
        }
        let locks = || store.locks.iter().filter(|lock| !is_reservations(lock));
        if locks().next().is_some() {
            is_empty = false;
            table.group(&title(place.project.as_ref(), store));
        }
        for lock in locks() {
            rows(&mut table, &overview.now, lock);
            let mut leases = lock.leases.iter();
            has_modes |= leases.any(|(lease, _)| !lease.mode.is_exclusive());
        }
        for lock in &store.locks {
            let problems = lock.problems.iter();
            below.extend(problems.map(|problem| format!("{}: {problem}", lock.key)));
        }
        hints.extend(reserved(&store.locks, &place.in_store(&store.url)));
    }
    // Most projects need no modes.
    if !has_modes {
        table.leave_out("MODE");
    }
    if !overview.foreign.is_empty() {
        is_empty = false;
        table.group("Other tools");
        for lock in &overview.foreign {
            table.row(foreign_row(&place, &overview.now, lock));
        }
    }
    below.extend(overview.left_out.iter().cloned());
    let mut text = match (is_empty, below.is_empty()) {
        (true, true) => "No locks.".to_owned(),
        (true, false) => "No locks in what could be looked at.".to_owned(),
        (false, _) => table.text(),
    };
    below.extend(hints);
    if !below.is_empty() {
        text.push_str("\n\n");
        text.push_str(&below.join("\n"));
    }
    Ok(Answer::new(data, text))
}

/// What a command that looks at every lock has looked at.
pub(crate) struct Place {
    /// The project of the current folder. A store that was chosen needs none.
    pub(crate) project: Option<Project>,
    /// The store that commands without `--store` use.
    usual: Option<StoreUrl>,
    /// The store of `--store`, and its address as it was written.
    named: Option<(StoreUrl, OsString)>,
    /// The folder of `-C`.
    dir: Option<PathBuf>,
}

impl Place {
    /// The store that this command works on: the named one, or the usual one.
    pub(crate) fn store(&self) -> Option<&StoreUrl> {
        let named = self.named.as_ref().map(|(url, _)| url);
        named.or(self.usual.as_ref())
    }

    /// The option that names a store, for a command that is suggested. The usual one needs none.
    pub(crate) fn in_store(&self, url: &StoreUrl) -> String {
        if self.usual.as_ref() == Some(url) {
            return String::new();
        }
        if let Some((_, text)) = self.named.as_ref().filter(|(named, _)| named == url) {
            return words::in_store(Some(text));
        }
        let mut url = url.clone();
        if let StoreUrl::Sqlite(path)
        | StoreUrl::Steroids(path)
        | StoreUrl::Exclusive(path)
        | StoreUrl::Mkdir(path)
        | StoreUrl::Ledger(path) = &mut url
        {
            *path = from_here(path);
        }
        words::in_store(Some(&url.to_os_string()))
    }

    /// A command as it has to be copied: for the folder that this command line names.
    pub(crate) fn copied(&self, command: String) -> String {
        match &self.dir {
            Some(dir) => format!("(cd {} && {command})", words::quoted_bytes(dir.as_os_str())),
            None => command,
        }
    }

    pub(crate) fn short_url(&self, url: &StoreUrl) -> String {
        short_url(self.project.as_ref(), url)
    }

    pub(crate) fn short_path(&self, path: &Path) -> String {
        short_path(self.project.as_ref(), path)
    }
}

/// A path as short as it can be from the current folder.
pub(crate) fn from_here(path: &Path) -> PathBuf {
    let here = std::env::current_dir().ok();
    match here.and_then(|here| path.strip_prefix(here).ok().map(Path::to_owned)) {
        Some(inner) if inner.as_os_str().is_empty() => ".".into(),
        Some(inner) => inner,
        None => path.to_owned(),
    }
}

/// Every lock in the project of the current folder, and in the store that was chosen.
pub(crate) fn look(global: &Global) -> Result<(Place, Overview), Failure> {
    look_with(global, None, context::config)
}

/// The same; a store that is far away shows these keys and those that are waited for only.
pub(crate) fn look_for(global: &Global, keys: &[Key]) -> Result<(Place, Overview), Failure> {
    look_with(global, Some(keys), context::config)
}

/// The same, with the defaults if the settings can't be used. The overview says so.
pub(crate) fn look_anyway(global: &Global) -> Result<(Place, Overview), Failure> {
    let mut unusable = None;
    let (place, mut overview) = look_with(global, None, |project| {
        Ok(context::config(project).unwrap_or_else(|failure| {
            unusable = Some(failure.message().to_owned());
            Config::default()
        }))
    })?;
    overview.settings = unusable;
    Ok((place, overview))
}

fn look_with(
    global: &Global,
    keys: Option<&[Key]>,
    config: impl FnOnce(Option<&Project>) -> Result<Config, Failure>,
) -> Result<(Place, Overview), Failure> {
    let project = context::project_of(global)?;
    let config = config(project.as_ref())?;
    let chosen = context::chosen_by(global, &config)?;
    let project = match (project, &chosen) {
        (None, None) => Some(context::existing_project(&context::start()?)?),
        (project, _) => project,
    };
    let mut overview = Overview::empty();
    overview.look_for(keys, project.as_ref(), chosen.as_ref(), &config);
    let usual = context::chosen_by(&Global::default(), &config)?;
    let place = Place {
        usual: usual.or_else(|| project.as_ref().map(Project::store)),
        named: chosen.zip(global.store.clone()),
        dir: global.dir.clone(),
        project,
    };
    Ok((place, overview))
}

/// A store, in words.
pub(crate) fn title(project: Option<&Project>, store: &StoreView) -> String {
    let what = match (store.role, &store.url) {
        (StoreRole::Own, _) => "locks of this project",
        (StoreRole::ExclusiveLock, _) => "exclusive lock",
        (StoreRole::BoardLock, _) => "lock of the board",
        (StoreRole::Ledger, _) => "claims of the ledger",
        (_, StoreUrl::Steroids(_)) => "locks of steroids",
        _ => "the chosen store",
    };
    format!("{} ({what})", short_url(project, &store.url))
}

/// The address of a store, with its path as seen from the project.
pub(crate) fn short_url(project: Option<&Project>, url: &StoreUrl) -> String {
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

/// A path as seen from the project, if it is in it; without a project, from the current folder.
pub(crate) fn short_path(project: Option<&Project>, path: &Path) -> String {
    let Some(root) = project.map(Project::root) else {
        return from_here(path).display().to_string();
    };
    let roots = [Some(root.to_owned()), root.canonicalize().ok()];
    let mut roots = roots.iter().flatten();
    let inner = roots.find_map(|root| path.strip_prefix(root).ok());
    match inner {
        Some(inner) if inner.as_os_str().is_empty() => ".".to_owned(),
        Some(inner) => inner.display().to_string(),
        None => path.display().to_string(),
    }
}

/// Whether this is the key that all reservations of paths are on.
pub(crate) fn is_reservations(lock: &Snapshot) -> bool {
    let held = lock.leases.iter().map(|(lease, _)| &lease.mode);
    let wanted = lock.queue.iter().map(|waiter| &waiter.mode);
    lock.key == Key::paths() && held.chain(wanted).any(|mode| mode.paths().is_some())
}

/// How many reservations are among these locks, and the command that lists them.
pub(super) fn reserved(locks: &[Snapshot], store: &str) -> Option<String> {
    let lock = locks.iter().find(|lock| is_reservations(lock))?;
    let held = plural::count(lock.leases.len(), "reservation");
    let waiting = waiting(lock);
    Some(format!(
        "{held}, {waiting} waiting: tenure reservations{store}"
    ))
}

fn rows(table: &mut Table, now: &Moment, lock: &Snapshot) {
    let waiting = waiting(lock);
    for (lease, verdict) in &lock.leases {
        let left = lease.expires.as_ref().map(|end| end.remaining(now));
        let mode = match (&lease.mode, lease.slot) {
            (Mode::Slots(slots), Some(slot)) => format!("slot {slot}/{slots}"),
            (mode, _) => words::asked_mode(mode),
        };
        table.row([
            lease.key.to_string(),
            mode,
            lease.holder.id.to_string(),
            process(&lease.holder, verdict),
            age(now, lease.since()),
            match left {
                None => "no end".to_owned(),
                Some(None) => "passed".to_owned(),
                Some(Some(left)) => words::coarse(left),
            },
            waiting.clone(),
            words::verdict(verdict).to_owned(),
        ]);
    }
    if lock.leases.is_empty() {
        let key = lock.key.as_str();
        table.row([key, NONE, NONE, NONE, NONE, NONE, &waiting, "free"]);
    }
}

/// How long ago, in one unit.
pub(crate) fn age(now: &Moment, since: Option<Timestamp>) -> String {
    since.map_or_else(
        || NONE.to_owned(),
        |at| words::coarse(words::passed(now, at)),
    )
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
    if matches!(verdict, Verdict::Dead(_)) {
        text.push_str(" (exited)");
    }
    if let Some(command) = &holder.command {
        text = format!("{text} {command}");
    }
    text
}

/// The processes that have the lock of another tool open.
pub(crate) fn foreign_process(lock: &ForeignLock) -> String {
    let [first, rest @ ..] = lock.processes.as_slice() else {
        return NONE.to_owned();
    };
    let command = first.command.as_deref().unwrap_or("(exited)");
    match rest.len() {
        0 => format!("{} {command}", first.pid),
        more => format!("{} {command}, {more} more", first.pid),
    }
}

fn foreign_row(place: &Place, now: &Moment, lock: &ForeignLock) -> [String; 8] {
    [
        place.short_path(&lock.path),
        NONE.to_owned(),
        lock.tool.word().to_owned(),
        foreign_process(lock),
        age(now, lock.since),
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
        processes: lock.processes.clone(),
    }
}
