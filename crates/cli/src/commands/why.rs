//! `tenure why`: what keeps a key, a task or a path from the caller, and what can be done.

mod chain;

use std::collections::HashSet;
use std::sync::Arc;

use tenure::files::{BadPath, PathPattern, PathSet, WorkTree};
use tenure::store::{Key, KeyKind, call_deadline};
use tenure::tasks::{Task, TaskError, TaskStore};
use tenure::wire::WhyJson;
use tenure::{Mode, StoreUrl};
use tenure_view::overview::lock_path;
use tenure_view::waits::Waits;
use tenure_view::{ForeignLock, Overview};

use self::chain::Chain;
use crate::answer::{Answer, Failure};
use crate::args::Global;
use crate::commands::locks::all;
use crate::context;
use crate::words;

pub(crate) fn why(global: &Global, what: &str) -> Result<Answer, Failure> {
    let named = Key::parse(what).ok();
    let first: Vec<Key> = named.into_iter().chain([Key::paths()]).collect();
    let (place, mut overview) = all::look_for(global, &first)?;
    // Without the store that commands use, nothing is known.
    let mut stores = overview.stores.iter_mut();
    let used = stores.find(|store| Some(&store.url) == place.store());
    if let Some(error) = used.and_then(|store| store.error.take()) {
        return Err(error.into());
    }
    let found = task(&overview, what)?;
    let mut keys = Vec::new();
    if let Some((_, task)) = &found {
        keys.push(Key::parse(format!("task:{}", task.id))?);
        if let Some(section) = &task.section {
            keys.push(Key::parse(format!("section:{}", section.id))?);
        }
        for store in &mut overview.stores {
            if matches!(store.url, StoreUrl::Etcd(_)) {
                store.add(&keys)?;
            }
        }
    } else {
        keys.extend(Key::parse(what).ok().filter(|key| *key != Key::paths()));
    }
    let mut chain = Chain {
        place: &place,
        overview: &overview,
        waits: Waits::of(&overview),
        me: context::caller(global)?,
        named: words::named(global),
        lines: Vec::new(),
        links: Vec::new(),
        commands: Vec::new(),
        seen: HashSet::new(),
    };
    let unread = unread(&overview, &keys);
    chain.lines.extend(unread.iter().cloned());
    if let Some((tasks, task)) = &found {
        chain.about(&**tasks, task);
    }
    let named = std::path::absolute(what).ok();
    for store in &overview.stores {
        let is_its_file = named.is_some() && lock_path(&store.url) == named;
        for lock in &store.locks {
            if is_its_file || keys.contains(&lock.key) {
                chain.follow(store, lock, 0);
            }
        }
    }
    let wanted = if found.is_some() {
        None
    } else {
        wanted_paths(what)?
    };
    if let Some(wanted) = &wanted {
        chain.reserved(what, wanted);
    }
    let is_it = |lock: &&ForeignLock| {
        named.as_ref() == Some(&lock.path) || place.short_path(&lock.path) == what
    };
    for lock in overview.foreign.iter().filter(is_it) {
        chain.foreign(lock);
    }
    let is_free = chain.links.is_empty() && unread.is_empty();
    let is_blocked = found.as_ref().is_some_and(|(_, task)| task.blockers > 0);
    if chain.links.is_empty() && !is_blocked {
        match (
            wanted.filter(|paths| paths.is_meant),
            keys.into_iter().next(),
        ) {
            // A name that is neither a key nor anything else is refused as everywhere.
            (None, None) => {
                Key::parse(what)?;
            }
            _ if !is_free => chain.lines.push(format!(
                "Nobody is seen to hold {what}, but it may be held there."
            )),
            (Some(paths), _) => {
                let shown = paths.mode.paths().map(ToString::to_string);
                let shown = shown.filter(|paths| *paths != EVERYTHING);
                let shown = shown.unwrap_or_else(|| "every path".to_owned());
                chain
                    .lines
                    .push(format!("{shown} is free: no holder has reserved it."));
                chain.offer("tenure reserve", what, "");
            }
            (None, Some(key)) => chain.free(&key),
        }
    }
    let mut lines = chain.lines;
    let mut commands: Vec<String> = Vec::new();
    for command in chain.commands {
        let command = place.copied(command);
        if !commands.contains(&command) {
            commands.push(command);
        }
    }
    if !commands.is_empty() {
        lines.push(String::new());
        lines.push("What you can do:".to_owned());
        lines.extend(commands.iter().map(|command| format!("  {command}")));
    }
    let data = WhyJson {
        asked: what.to_owned(),
        free: is_free,
        unread,
        chain: chain.links,
        commands,
    };
    Ok(Answer::new(data, lines.join("\n")))
}

/// What could not be looked at where these keys may be held, as sentences.
fn unread(overview: &Overview, keys: &[Key]) -> Vec<String> {
    let stores = overview.stores.iter();
    let stores = stores.filter_map(|store| {
        let error = store.error.as_ref()?;
        Some(format!("{} can't be read: {error}", store.url))
    });
    // In what is left out there may be ledgers, but no other store.
    let is_of_ledger = |key: &Key| matches!(key.kind(), KeyKind::Node(_));
    let left_out = overview.left_out.iter().cloned();
    let left_out = left_out.filter(|_| keys.iter().any(is_of_ledger));
    stores.chain(left_out).collect()
}

/// A task, and the tasks that it is one of.
type Found = (Arc<dyn TaskStore>, Task);

/// The task of this name.
fn task(overview: &Overview, what: &str) -> Result<Option<Found>, Failure> {
    let named = what.strip_prefix("task:").unwrap_or(what);
    let own = overview
        .stores
        .iter()
        .filter_map(|store| store.tenure.as_ref());
    for tenure in own {
        let Ok(tasks) = tenure.tasks() else { continue };
        match tasks.find_task(named, call_deadline()) {
            Ok(task) => return Ok(Some((Arc::clone(tasks), task))),
            // The name of a key may be the beginning of many titles.
            Err(TaskError::NoTask(_)) => {}
            Err(TaskError::Ambiguous { .. } | TaskError::Deleted { .. }) if named == what => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(None)
}

/// How all paths are written.
const EVERYTHING: &str = "**";

/// Paths that the caller asks about.
struct WantedPaths {
    /// A reservation of them, to write.
    mode: Mode,
    /// Whether nothing else can be meant.
    is_meant: bool,
}

/// The paths that a text stands for: an existing file or folder, or a pattern. Any other text may be meant as the name
/// of a new file, if it looks like one.
///
/// An error on the way is an error of the command: it must not answer that a path is free because it could not look.
fn wanted_paths(what: &str) -> Result<Option<WantedPaths>, Failure> {
    let is_everything = what == Key::paths().as_str();
    let exists = std::fs::symlink_metadata(what).is_ok();
    let has_wildcard = what.contains(['*', '?', '[', '{']);
    if !is_everything && !exists && !has_wildcard && !what.contains(['/', '.']) {
        return Ok(None);
    }
    let is_meant = is_everything || exists || has_wildcard;
    let pattern = if is_everything && !exists {
        PathPattern::parse(EVERYTHING).ok()
    } else {
        let project = context::find_project()?;
        match WorkTree::find(&context::start()?, project.as_ref())? {
            None => None,
            Some(tree) => match tree.pattern(what.as_ref()) {
                Ok(pattern) => Some(pattern),
                Err(error @ BadPath::Io { .. }) => return Err(error.into()),
                // It is no path of this work tree: it may be the name of a key.
                Err(_) => None,
            },
        }
    };
    let set = pattern.and_then(|pattern| PathSet::new([pattern]).ok());
    Ok(set.map(|paths| WantedPaths {
        mode: paths.into(),
        is_meant,
    }))
}
