//! `tenure why`: what keeps a key from the caller, and what can be done.

use std::collections::HashSet;

use tenure::wire::{LeaseJson, WaiterJson, WhyJson, WhyLinkJson};
use tenure::{Project, StoreUrl, call_deadline};
use tenure_core::{HolderId, Key, KeyKind, Mode, Snapshot, Task, TaskError, Verdict, Waiter};
use tenure_view::{ForeignLock, Overview, StoreView};

use crate::answer::{Answer, Failure};
use crate::args::Global;
use crate::commands::ask::reserved_path;
use crate::commands::doctor::in_store;
use crate::commands::locks::all;
use crate::commands::reserve::in_the_way;
use crate::context;
use crate::words;

/// How long a chain of holders that wait is followed.
const LONGEST: usize = 32;

/// The answer while it is made.
struct Chain<'a> {
    project: &'a Project,
    overview: &'a Overview,
    me: HolderId,
    lines: Vec<String>,
    links: Vec<WhyLinkJson>,
    commands: Vec<String>,
    seen: HashSet<(String, Key)>,
}

pub(crate) fn why(global: &Global, what: &str) -> Result<Answer, Failure> {
    let (project, overview) = all::look(global)?;
    let mut chain = Chain {
        project: &project,
        overview: &overview,
        me: context::caller(global)?,
        lines: Vec::new(),
        links: Vec::new(),
        commands: Vec::new(),
        seen: HashSet::new(),
    };
    let task = task(&overview, what)?;
    let mut keys = Vec::new();
    if let Some(task) = &task {
        chain.about(task);
        keys.push(Key::parse(format!("task:{}", task.id))?);
        if let Some(section) = &task.section {
            keys.push(Key::parse(format!("section:{}", section.id))?);
        }
    } else {
        keys.extend(Key::parse(what));
    }
    for key in &keys {
        for store in &overview.stores {
            if let Some(lock) = store.locks.iter().find(|lock| lock.key == *key) {
                chain.follow(store, lock, 0);
            }
        }
    }
    let path = reserved_path(what);
    if let Some(path) = &path {
        chain.reserved(path);
    }
    let named = std::path::absolute(what).ok();
    let is_it = |lock: &&ForeignLock| {
        named.as_ref() == Some(&lock.path) || all::short_path(&project, &lock.path) == what
    };
    for lock in overview.foreign.iter().filter(is_it) {
        chain.foreign(lock);
    }
    let is_free = chain.links.is_empty();
    let is_blocked = task.as_ref().is_some_and(|task| task.blockers > 0);
    let is_file = path.filter(|_| named.is_some_and(|named| named.exists()));
    if let Some(path) = is_file.filter(|_| is_free && task.is_none()) {
        chain
            .lines
            .push(format!("{path} is free: no holder has reserved it."));
        chain
            .commands
            .push(format!("tenure reserve {}", words::quoted(what)));
    } else if is_free && !is_blocked {
        // A name that is neither a key nor anything else is refused as everywhere.
        let key = match keys.into_iter().next() {
            Some(key) => key,
            None => Key::parse(what)?,
        };
        chain
            .lines
            .push(format!("{key} is free: nobody holds it or waits for it."));
        chain.commands.push(match key.kind() {
            KeyKind::Task(id) => format!(
                "tenure tasks update {} --status in_progress",
                words::quoted(id)
            ),
            _ => format!("tenure run {} -- CMD", words::quoted(key.as_str())),
        });
    }
    let mut lines = chain.lines;
    if !chain.commands.is_empty() {
        lines.push(String::new());
        lines.push("What you can do:".to_owned());
        let mut shown: Vec<String> = Vec::new();
        for command in &chain.commands {
            if !shown.contains(command) {
                shown.push(command.clone());
                lines.push(format!("  {command}"));
            }
        }
        chain.commands = shown;
    }
    let data = WhyJson {
        asked: what.to_owned(),
        free: is_free,
        chain: chain.links,
        commands: chain.commands,
    };
    Ok(Answer::new(data, lines.join("\n")))
}

/// The task of this name in the project's own store, if there is one.
fn task(overview: &Overview, what: &str) -> Result<Option<Task>, Failure> {
    let named = what.strip_prefix("task:").unwrap_or(what);
    let own = overview
        .stores
        .iter()
        .filter_map(|store| store.tenure.as_ref());
    for tenure in own {
        let Ok(tasks) = tenure.tasks() else { continue };
        match tasks.find_task(named, call_deadline()) {
            Ok(task) => return Ok(Some(task)),
            // The name of a key may be the beginning of many titles.
            Err(TaskError::NoTask(_) | TaskError::Store(_)) => {}
            Err(TaskError::Ambiguous { .. }) if named == what => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(None)
}

impl Chain<'_> {
    fn about(&mut self, task: &Task) {
        let (title, id) = (words::title(task), words::short(&task.id));
        self.lines
            .push(format!("Task {title} ({id}) is {}.", task.status));
        if task.blockers > 0 {
            self.lines.push(format!(
                "It waits for {} of the tasks that it depends on.",
                task.blockers
            ));
            self.commands
                .push(format!("tenure tasks show {}", words::quoted(&task.id)));
        }
    }

    /// The reservations that cover a path, and who waits for it.
    fn reserved(&mut self, path: &str) {
        let (now, paths) = (&self.overview.now, Key::paths());
        for store in &self.overview.stores {
            let Some(lock) = store.locks.iter().find(|lock| lock.key == paths) else {
                continue;
            };
            let covers = |mode: &Mode| mode.paths().is_none_or(|it| it.covers(path).is_some());
            let mut is_reserved = false;
            for (lease, verdict) in &lock.leases {
                if verdict.ended().is_some() || !covers(&lease.mode) {
                    continue;
                }
                is_reserved = true;
                self.lines.push(in_the_way(now, path, lease));
                self.links.push(WhyLinkJson {
                    depth: 0,
                    store: store.url.to_string(),
                    lease: Some(LeaseJson::new(now, lease, verdict)),
                    path: Some(path.to_owned()),
                    queue: lock.queue.iter().map(WaiterJson::from).collect(),
                });
                let (option, name) = (in_store(self.project, &store.url), words::quoted(path));
                if lease.holder.id == self.me {
                    let command = format!("tenure reserve --release{option}");
                    self.commands.push(command);
                    continue;
                }
                let wait = format!("tenure reserve {name} --wait 30m{option}");
                let ask = format!("tenure ask {name} --note 'WHY'{option}");
                self.commands.extend([wait, ask]);
            }
            let waits = |waiter: &&Waiter| is_reserved && covers(&waiter.mode);
            for waiter in lock.queue.iter().filter(waits) {
                let wanted = words::asked_mode(&waiter.mode);
                self.lines
                    .push(format!("  {} waits for {wanted}", waiter.holder));
            }
        }
    }

    /// A lock, its holders and its queue; then what each holder waits for.
    fn follow(&mut self, store: &StoreView, lock: &Snapshot, depth: usize) {
        let place = (store.url.to_string(), lock.key.clone());
        let indent = "  ".repeat(depth);
        if depth >= LONGEST || !self.seen.insert(place) {
            self.lines
                .push(format!("{indent}{}: a circle, see above", lock.key));
            return;
        }
        let now = &self.overview.now;
        let of = all::short_url(self.project, &store.url);
        for (lease, verdict) in &lock.leases {
            let held = match verdict.ended() {
                Some(_) => "on record as held",
                None => "held",
            };
            let (key, holder) = (&lock.key, &lease.holder);
            self.lines
                .push(format!("{indent}{key} is {held} by {holder}"));
            let since = lease.since();
            let since = since.map_or_else(
                || "an unknown time".to_owned(),
                |at| format!("{}, {}", words::time(at), words::ago(now, at)),
            );
            self.lines.push(format!("{indent}  since {since}, in {of}"));
            if let Some(command) = &lease.holder.command {
                self.lines.push(format!("{indent}  it runs: {command}"));
            }
            self.lines
                .push(format!("{indent}  {}", words::state(now, lease, verdict)));
            self.lines.push(format!(
                "{indent}  {}",
                ends(lease, verdict, &words::expiry(now, lease))
            ));
            self.links.push(WhyLinkJson {
                depth,
                store: store.url.to_string(),
                lease: Some(LeaseJson::new(now, lease, verdict)),
                path: None,
                queue: lock.queue.iter().map(WaiterJson::from).collect(),
            });
            if depth == 0 {
                self.advise(store, &lock.key, &lease.holder.id, verdict);
            }
            let waits: Vec<(&StoreView, &Snapshot)> = self
                .overview
                .stores
                .iter()
                .flat_map(|store| store.locks.iter().map(move |lock| (store, lock)))
                .filter(|(_, other)| {
                    other
                        .queue
                        .iter()
                        .any(|waiter| waiter.holder.id == lease.holder.id)
                })
                .collect();
            for (store, other) in waits {
                self.lines
                    .push(format!("{indent}  and waits for {} in turn:", other.key));
                self.follow(store, other, depth + 2);
            }
        }
        if lock.leases.is_empty() && depth == 0 {
            self.lines.push(format!(
                "{} is about to be granted to the first in its queue ({of})",
                lock.key
            ));
            self.links.push(WhyLinkJson {
                depth,
                store: store.url.to_string(),
                lease: None,
                path: None,
                queue: lock.queue.iter().map(WaiterJson::from).collect(),
            });
        }
        for (number, waiter) in lock.queue.iter().enumerate() {
            let mine = if waiter.holder.id == self.me {
                " (you)"
            } else {
                ""
            };
            self.lines.push(format!(
                "{indent}  {} in the queue: {}{mine}",
                words::ordinal(number + 1),
                waiter.holder
            ));
        }
    }

    fn advise(&mut self, store: &StoreView, key: &Key, holder: &HolderId, verdict: &Verdict) {
        let (option, name) = (
            in_store(self.project, &store.url),
            words::quoted(key.as_str()),
        );
        if *holder == self.me {
            self.commands.push(format!("tenure release {name}{option}"));
            return;
        }
        if verdict.ended().is_some() {
            self.commands.push(format!("tenure locks cleanup{option}"));
            self.commands
                .push(format!("tenure run {name}{option} -- CMD"));
            return;
        }
        if !matches!(verdict, Verdict::Malformed) && !matches!(store.url, StoreUrl::Ledger(_)) {
            self.commands
                .push(format!("tenure run {name} --wait 30m{option} -- CMD"));
        }
        self.commands.push(format!(
            "tenure locks release {name} --force --reason 'WHY'{option}"
        ));
    }

    fn foreign(&mut self, lock: &ForeignLock) {
        let path = all::short_path(self.project, &lock.path);
        self.lines.push(format!(
            "{path} is a lock of {}, made {}",
            lock.tool.word(),
            words::ago_if_known(&self.overview.now, lock.since)
        ));
        self.lines
            .push(format!("  {}: {}", lock.verdict.word(), lock.verdict.why()));
        for process in &lock.processes {
            let command = process.command.as_deref().unwrap_or("(exited)");
            self.lines.push(format!("  pid {}: {command}", process.pid));
        }
        self.links.push(WhyLinkJson {
            depth: 0,
            store: String::new(),
            lease: None,
            path: Some(lock.path.display().to_string()),
            queue: Vec::new(),
        });
        if lock.processes.is_empty() {
            let quoted = words::quoted_bytes(lock.path.as_os_str());
            self.commands.push(format!("rm -- {quoted}"));
        }
    }
}

/// When a lease ends by itself, at the latest.
fn ends(lease: &tenure_core::Lease, verdict: &Verdict, expiry: &str) -> String {
    let renewed = lease.holder.liveness_lock().is_some();
    match (verdict, &lease.expires) {
        (Verdict::Dead(_) | Verdict::Expired(_), _) => "the next claim takes it over".to_owned(),
        (Verdict::Malformed, _) => "it never ends by itself".to_owned(),
        (_, None) if lease.holder.process().is_some() => {
            "it ends when its process exits".to_owned()
        }
        (_, None) => "it never ends by itself".to_owned(),
        (_, Some(_)) if renewed => {
            format!("it ends when its command exits, or at {expiry} if it hangs")
        }
        (_, Some(_)) => format!("it ends at {expiry} at the latest, unless it is renewed"),
    }
}
