//! The locks in the way, who waits for them, and what their holders wait for in turn: [`Chain`].

use std::collections::HashSet;

use tenure::store::{
    HolderId, Key, KeyKind, Lease, Presence, Snapshot, Verdict, Waiter, call_deadline,
};
use tenure::tasks::{Task, TaskStore};
use tenure::text::flat;
use tenure::wire::{LeaseJson, WaiterJson, WhyLinkJson};
use tenure::{Mode, StoreUrl};
use tenure_view::waits::Waits;
use tenure_view::{ForeignLock, Overview, StoreView};

use super::{EVERYTHING, WantedPaths};
use crate::commands::locks::all::Place;
use crate::commands::reserve::in_the_way;
use crate::words;

/// How long a chain of holders that wait is followed.
const LONGEST: usize = 32;

/// How many tasks that are not done yet are named.
const BLOCKERS: usize = 10;

/// The answer while it is made.
pub(super) struct Chain<'a> {
    pub(super) place: &'a Place,
    pub(super) overview: &'a Overview,
    pub(super) waits: Waits<'a>,
    pub(super) me: HolderId,
    /// The option that makes the caller of a copied command the same holder.
    pub(super) named: String,
    pub(super) lines: Vec<String>,
    pub(super) links: Vec<WhyLinkJson>,
    pub(super) commands: Vec<String>,
    pub(super) seen: HashSet<(String, Key)>,
}

/// Whether a request to release a key reaches its holder.
fn keeps_requests(url: &StoreUrl) -> bool {
    matches!(url, StoreUrl::Sqlite(_) | StoreUrl::Etcd(_))
}

impl Chain<'_> {
    fn say(&mut self, line: impl Into<String>) {
        self.lines.push(line.into());
    }

    pub(super) fn about(&mut self, tasks: &dyn TaskStore, task: &Task) {
        let (title, id) = (words::title(task), words::short(&task.id));
        self.say(format!("Task {title} ({id}) is {}.", task.status));
        if let Some(at) = task.not_before.filter(|at| *at > self.overview.now.wall) {
            let at = words::time(at);
            self.say(format!("It is not tried again before {at}."));
        }
        if task.elsewhere
            && let Some(runner) = &task.runner
        {
            self.say(format!("{runner} works on it in another clone."));
        }
        if task.blockers == 0 {
            return;
        }
        self.say(format!(
            "It waits for {} of the tasks that it depends on:",
            task.blockers
        ));
        let before = task.depends_on.iter();
        let before = before.filter_map(|id| tasks.find_task(id, call_deadline()).ok());
        for blocker in before.filter(|task| !task.status.is_done()).take(BLOCKERS) {
            let (title, id) = (words::title(&blocker), words::short(&blocker.id));
            let runner = blocker.runner.as_ref();
            let runner = runner.map_or_else(String::new, |runner| format!(", {runner}"));
            self.say(format!("  {title} ({id}) is {}{runner}", blocker.status));
            self.commands
                .push(format!("tenure why {}", words::quoted(id)));
        }
        self.commands
            .push(format!("tenure tasks show {}", words::quoted(&task.id)));
    }

    /// A key that is neither held nor waited for.
    pub(super) fn free(&mut self, key: &Key) {
        self.say(format!("{key} is free: nobody holds it or waits for it."));
        match key.kind() {
            KeyKind::Task(id) => {
                self.offer("tenure tasks update", id, " --status in_progress");
            }
            _ => self.offer("tenure run", key.as_str(), " -- CMD"),
        }
    }

    /// A command about a name, for the holder that the caller is.
    pub(super) fn offer(&mut self, command: &str, name: &str, rest: &str) {
        let name = words::quoted(name);
        // The options of `run` end where its command begins.
        let (options, end) = match rest.split_once("-- ") {
            Some((options, _)) => (options.trim_end(), " -- CMD"),
            None => (rest, ""),
        };
        let named = &self.named;
        self.commands
            .push(format!("{command} {name}{options}{named}{end}"));
    }

    /// The reservations that are in the way of these paths, and who waits for one of them.
    pub(super) fn reserved(&mut self, what: &str, wanted: &WantedPaths) {
        let (now, paths) = (&self.overview.now, Key::paths());
        let shown = wanted.mode.paths().map(ToString::to_string);
        let shown = shown.unwrap_or_default();
        for store in &self.overview.stores {
            let Some(lock) = store.locks.iter().find(|lock| lock.key == paths) else {
                continue;
            };
            let option = self.place.in_store(&store.url);
            let mut is_reserved = false;
            for (lease, verdict) in &lock.leases {
                if verdict.ended().is_some() || lease.mode.admits(&wanted.mode) {
                    continue;
                }
                is_reserved = true;
                let name = if shown == EVERYTHING {
                    words::asked_mode(&lease.mode)
                } else {
                    shown.clone()
                };
                self.say(in_the_way(now, &name, lease));
                self.links.push(WhyLinkJson {
                    depth: 0,
                    store: store.url.to_string(),
                    lease: Some(LeaseJson::new(now, lease, verdict)),
                    path: Some(shown.clone()),
                    queue: lock.queue.iter().map(WaiterJson::from).collect(),
                });
                self.waits_in_turn(store, lease, 0);
                if lease.holder.id == self.me {
                    let named = &self.named;
                    self.commands
                        .push(format!("tenure unreserve{named}{option}"));
                    continue;
                }
                if shown == EVERYTHING {
                    self.commands.push(format!("tenure reservations{option}"));
                    continue;
                }
                self.offer("tenure reserve", what, &format!(" --wait 30m{option}"));
                if lease
                    .mode
                    .paths()
                    .is_none_or(|it| it.covers(&shown).is_some())
                {
                    self.offer("tenure ask", what, &format!(" --note 'WHY'{option}"));
                }
            }
            for (number, waiter) in lock.queue.iter().enumerate() {
                if is_reserved && !waiter.mode.admits(&wanted.mode) {
                    self.queued(number, waiter, "");
                }
            }
        }
    }

    /// A place in a queue.
    fn queued(&mut self, number: usize, waiter: &Waiter, indent: &str) {
        let now = &self.overview.now;
        let mut line = format!(
            "{indent}  {} in the queue: {}, for {}",
            words::ordinal(number + 1),
            waiter.holder,
            words::age(now, words::arrived(now, waiter))
        );
        match &waiter.mode {
            Mode::Exclusive => {}
            Mode::Paths(_) => {
                line.push_str(", to reserve ");
                line.push_str(&words::asked_mode(&waiter.mode));
            }
            mode => {
                line.push_str(", ");
                line.push_str(&mode.to_string());
            }
        }
        if !waiter.with.is_empty() {
            line.push_str(", together with ");
            line.push_str(&words::all_of(&waiter.with));
        }
        if waiter.presence == Presence::Away {
            line.push_str(" (away: its place is kept for a while)");
        }
        if waiter.holder.id == self.me {
            line.push_str(" (you)");
        }
        self.say(line);
    }

    /// What the holder of a lease waits for.
    fn waits_in_turn(&mut self, store: &StoreView, lease: &Lease, depth: usize) {
        let indent = "  ".repeat(depth);
        for wait in self.waits.by(store, lease) {
            let leases = wait.leases();
            if leases.is_empty() {
                continue;
            }
            let who = if wait.waiter.holder.id == lease.holder.id {
                String::new()
            } else {
                format!(" (as {})", wait.waiter.holder)
            };
            let key = match wait.waiter.mode.paths() {
                Some(paths) => paths.to_string(),
                None => wait.lock.key.to_string(),
            };
            self.say(format!("{indent}  and waits for {key} in turn{who}:"));
            if wait.lock.key == Key::paths() {
                for lease in leases {
                    let line = in_the_way(&self.overview.now, &key, lease);
                    let lines = line.lines().map(|line| format!("{indent}    {line}"));
                    self.lines.extend(lines);
                }
            } else {
                self.follow(wait.store, wait.lock, depth + 2);
            }
        }
    }

    /// A lock, its holders and its queue; then what each holder waits for.
    pub(super) fn follow(&mut self, store: &StoreView, lock: &Snapshot, depth: usize) {
        let place = (store.url.to_string(), lock.key.clone());
        let indent = "  ".repeat(depth);
        if depth >= LONGEST || !self.seen.insert(place) {
            self.say(format!("{indent}{}: a circle, see above", lock.key));
            return;
        }
        let now = &self.overview.now;
        let of = self.place.short_url(&store.url);
        for (lease, verdict) in &lock.leases {
            let held = match verdict.ended() {
                Some(_) => "still listed as held",
                None => "held",
            };
            let (key, holder) = (&lock.key, &lease.holder);
            let mode = match &lease.mode {
                Mode::Exclusive => String::new(),
                _ => format!(", {}", words::mode(lease)),
            };
            self.say(format!("{indent}{key} is {held} by {holder}{mode}"));
            let since = words::since(now, lease);
            self.say(format!("{indent}  since {since}, in {of}"));
            if let Some(command) = &lease.holder.command {
                self.say(format!("{indent}  it runs: {}", flat(command)));
            }
            self.say(format!("{indent}  {}", words::state(now, lease, verdict)));
            self.say(format!(
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
            self.waits_in_turn(store, lease, depth);
        }
        if lock.leases.is_empty() && depth == 0 {
            self.passed_over(store, lock, &of);
        }
        for (number, waiter) in lock.queue.iter().enumerate() {
            self.queued(number, waiter, &indent);
        }
        if depth == 0 {
            self.advise(store, lock);
        }
    }

    /// A key without a holder that has a queue.
    fn passed_over(&mut self, store: &StoreView, lock: &Snapshot, of: &str) {
        let key = &lock.key;
        let here = |waiter: &&Waiter| waiter.presence == Presence::Here;
        let first = lock.queue.iter().find(here);
        self.say(match first {
            Some(first) if !first.with.is_empty() => format!(
                "{key} is kept for {}, which waits for {} as well ({of})",
                first.holder,
                words::all_of(&first.with)
            ),
            Some(first) => format!("{key} is about to be granted to {} ({of})", first.holder),
            None => format!("{key} is free; a waiter that is away has a place in its queue ({of})"),
        });
        self.links.push(WhyLinkJson {
            depth: 0,
            store: store.url.to_string(),
            lease: None,
            path: None,
            queue: lock.queue.iter().map(WaiterJson::from).collect(),
        });
        for other in first.into_iter().flat_map(|first| &first.with) {
            if let Some(other) = store.locks.iter().find(|lock| lock.key == *other)
                && !other.leases.is_empty()
            {
                self.follow(store, other, 2);
            }
        }
    }

    /// What can be done about a lock.
    fn advise(&mut self, store: &StoreView, lock: &Snapshot) {
        let option = self.place.in_store(&store.url);
        let (key, me) = (lock.key.as_str(), self.me.clone());
        let name = words::quoted(key);
        let standing: Vec<&(Lease, Verdict)> = lock
            .leases
            .iter()
            .filter(|(_, verdict)| verdict.ended().is_none())
            .collect();
        if standing.iter().any(|(lease, _)| lease.holder.id == me) {
            let named = &self.named;
            self.commands
                .push(format!("tenure release {name}{named}{option}"));
        }
        if standing.len() < lock.leases.len() {
            self.commands.push(format!("tenure locks cleanup{option}"));
        }
        let others = || standing.iter().filter(|(lease, _)| lease.holder.id != me);
        let room = standing.first().map(|(lease, _)| &lease.mode);
        let room = room.filter(|mode| standing.len() < mode.room() && lock.queue.is_empty());
        match room {
            Some(Mode::Shared) => {
                self.offer("tenure run", key, &format!(" --shared{option} -- CMD"));
            }
            Some(Mode::Slots(slots)) => {
                let free = room.map_or(0, |mode| mode.room() - standing.len());
                self.say(format!("  free slots: {free} of {slots}"));
                self.offer(
                    "tenure run",
                    key,
                    &format!(" --slots {slots}{option} -- CMD"),
                );
            }
            _ => {}
        }
        let is_readable = others().all(|(_, verdict)| !matches!(verdict, Verdict::Malformed));
        let waits = lock.queue.iter().any(|waiter| waiter.holder.id == me);
        if standing.is_empty() && lock.queue.is_empty() {
            self.offer("tenure run", key, &format!("{option} -- CMD"));
        } else if is_readable && !waits && !matches!(store.url, StoreUrl::Ledger(_)) {
            // The number of slots belongs to the key.
            let slots = match standing.first().map(|(lease, _)| &lease.mode) {
                Some(Mode::Slots(slots)) => format!(" --slots {slots}"),
                _ => String::new(),
            };
            self.offer(
                "tenure run",
                key,
                &format!("{slots} --wait 30m{option} -- CMD"),
            );
            if self.named.is_empty() {
                self.say("  With --as NAME, a waiter that is cut off keeps its place.".to_owned());
            }
        }
        if is_readable && others().next().is_some() && keeps_requests(&store.url) {
            self.offer("tenure ask", key, &format!(" --note 'WHY'{option}"));
        }
        for (lease, _) in others() {
            let of = (standing.len() > 1).then_some(&lease.holder.id);
            let force = words::force_command(key, of, " --reason 'WHY'");
            self.commands.push(format!("{force}{option}"));
        }
    }

    pub(super) fn foreign(&mut self, lock: &ForeignLock) {
        let path = self.place.short_path(&lock.path);
        self.say(format!(
            "{path} is a lock of {}, taken {}",
            lock.tool.word(),
            words::ago_if_known(&self.overview.now, lock.since)
        ));
        self.say(format!("  {}: {}", lock.verdict.word(), lock.verdict.why()));
        for process in &lock.processes {
            let command = flat(process.command.as_deref().unwrap_or("(exited)"));
            self.say(format!("  pid {}: {command}", process.pid));
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

/// When a lease ends by itself.
fn ends(lease: &tenure::store::Lease, verdict: &Verdict, expiry: &str) -> String {
    let renewed = lease.holder.liveness_lock().is_some();
    match (verdict, &lease.expires) {
        (Verdict::Dead(_) | Verdict::Expired(_), _) => "the next claim takes it over".to_owned(),
        (Verdict::Malformed, _) => "whether it ends by itself is not known".to_owned(),
        (_, None) if lease.holder.process().is_some() => {
            "it ends when its process exits".to_owned()
        }
        (_, None) => "it never ends by itself".to_owned(),
        (_, Some(_)) if renewed => {
            format!("it ends when its command exits, or at {expiry} if tenure can't renew it")
        }
        (_, Some(_)) => format!("it expires at {expiry} unless renewed"),
    }
}
