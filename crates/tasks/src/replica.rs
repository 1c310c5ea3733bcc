//! The state of a project's tasks that its clones share, and how two such states are merged.
//!
//! Every field carries the time of its last change. A merge takes the later value, field by field. It
//! needs no common ancestor, and the order of merges does not matter.
//!
//! # Invariants
//!
//! 1. [`Replica::merge`] is commutative, associative and idempotent: clones that
//!    have seen the same changes have the same replica, in whichever order the changes arrived.
//! 2. A deletion of a task is final: no later change restores it. A section is deleted or added again by whichever was
//!    later, and stays as long as a task is in it.
//! 3. No task depends on itself through others, or on a missing task. After a merge,
//!    [`Replica::untangle_among`] drops the dependency that was added last; every clone drops the same one.
//!
//! # Limitations
//!
//! "Later" means later by the clocks of the machines. The writer of a change stamps it later than the
//! value that it replaces; between two independent changes, the clocks decide.

use std::collections::{BTreeMap, HashMap, HashSet};

use jiff::{SignedDuration, Timestamp};
use tenure_core::graph::Graph;

use super::Status;

/// A value, and when it was set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stamped<T> {
    /// The value.
    pub value: T,
    /// When it was set.
    pub at: Timestamp,
}

impl<T> Stamped<T> {
    /// A value that was set at this time.
    pub fn new(value: T, at: Timestamp) -> Self {
        Self { value, at }
    }
}

impl<T: Ord> Stamped<T> {
    /// Whether this value wins over the other: it was set later or, of two that were set at the same
    /// instant, it is the larger one.
    pub fn wins_over(&self, other: &Self) -> bool {
        (self.at, &self.value) > (other.at, &other.value)
    }

    fn merge(&mut self, other: Self) {
        if other.wins_over(self) {
            *self = other;
        }
    }
}

/// The status of a task and its failed attempts, which change together.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Progress {
    /// The word for its status, which also orders two values that were set at the same instant.
    word: &'static str,
    /// How many attempts failed.
    pub attempts: u64,
    /// The error of the last failed attempt.
    pub last_error: Option<String>,
}

impl Progress {
    /// The progress of a task.
    pub fn new(status: Status, attempts: u64, last_error: Option<String>) -> Self {
        Self {
            word: status.word(),
            attempts,
            last_error,
        }
    }

    /// Its status.
    pub fn status(&self) -> Status {
        self.word.parse().unwrap_or(Status::Pending)
    }
}

/// The shared state of one task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TaskCopy {
    /// When it was added.
    pub created_at: Timestamp,
    /// The title.
    pub title: Stamped<String>,
    /// The description.
    pub description: Stamped<Option<String>>,
    /// The name of its section.
    pub section: Stamped<Option<String>>,
    /// How urgent it is, from 0 to 9.
    pub priority: Stamped<u8>,
    /// Its status and attempts.
    pub progress: Stamped<Progress>,
    /// Whether it depends on a task, by that task's id. `false` records a dependency that was removed.
    pub depends_on: BTreeMap<String, Stamped<bool>>,
}

impl TaskCopy {
    /// When one of its fields was last changed.
    pub fn updated_at(&self) -> Timestamp {
        let fields = [
            self.created_at,
            self.title.at,
            self.description.at,
            self.section.at,
            self.priority.at,
            self.progress.at,
        ];
        let edges = self.depends_on.values().map(|edge| edge.at);
        fields
            .into_iter()
            .chain(edges)
            .max()
            .unwrap_or(self.created_at)
    }

    fn merge(&mut self, other: Self) {
        self.created_at = self.created_at.min(other.created_at);
        self.title.merge(other.title);
        self.description.merge(other.description);
        self.section.merge(other.section);
        self.priority.merge(other.priority);
        self.progress.merge(other.progress);
        for (on, edge) in other.depends_on {
            let known = self.depends_on.entry(on).or_insert_with(|| edge.clone());
            known.merge(edge);
        }
    }
}

/// A section, identified by its name. Of two that differ only in case, the older spelling wins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SectionCopy {
    /// When it was first added.
    pub created_at: Timestamp,
    /// Its name.
    pub name: String,
    /// Whether it was deleted, and when it was last deleted or added.
    pub deleted: Stamped<bool>,
}

impl SectionCopy {
    /// A section that was added at this time.
    pub fn added(name: String, at: Timestamp) -> Self {
        Self {
            created_at: at,
            name,
            deleted: Stamped::new(false, at),
        }
    }

    /// Whether it was neither deleted nor added again since it was first added.
    pub fn is_unchanged(&self) -> bool {
        self.deleted == Stamped::new(false, self.created_at)
    }

    fn merge(&mut self, other: Self) {
        if (other.created_at, &other.name) < (self.created_at, &self.name) {
            self.created_at = other.created_at;
            self.name = other.name;
        }
        self.deleted.merge(other.deleted);
    }
}

/// The shared state of a project's tasks.
///
/// ```
/// use tenure_tasks::{Progress, Replica, Stamped, Status, TaskCopy};
///
/// let at = |second| jiff::Timestamp::from_second(second).unwrap();
/// let task = TaskCopy {
///     created_at: at(0),
///     title: Stamped::new("Fix bug".into(), at(0)),
///     description: Stamped::new(None, at(0)),
///     section: Stamped::new(None, at(0)),
///     priority: Stamped::new(5, at(0)),
///     progress: Stamped::new(Progress::new(Status::Pending, 0, None), at(0)),
///     depends_on: Default::default(),
/// };
/// let mut here = Replica::default();
/// here.tasks.insert("1".into(), task);
/// let mut there = here.clone();
/// here.tasks.get_mut("1").unwrap().title = Stamped::new("Fix the bug".into(), at(10));
/// there.tasks.get_mut("1").unwrap().priority = Stamped::new(9, at(5));
/// here.merge(there);
/// assert_eq!(here.tasks["1"].title.value, "Fix the bug");
/// assert_eq!(here.tasks["1"].priority.value, 9);
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Replica {
    /// Sections, by name in lower case, also those that were deleted.
    pub sections: BTreeMap<String, SectionCopy>,
    /// Tasks, by id.
    pub tasks: BTreeMap<String, TaskCopy>,
    /// When each deleted task was deleted, by id.
    pub deleted: BTreeMap<String, Timestamp>,
}

impl Replica {
    /// Adds a section, or merges it with the one of the same name.
    pub fn add_section(&mut self, section: SectionCopy) {
        let known = self.sections.entry(section.name.to_ascii_lowercase());
        known.or_insert_with(|| section.clone()).merge(section);
    }

    /// Adds a task, or merges it with the one of the same id.
    pub fn add_task(&mut self, id: String, task: TaskCopy) {
        match self.tasks.get_mut(&id) {
            Some(known) => known.merge(task),
            None => {
                self.tasks.insert(id, task);
            }
        }
    }

    /// Records that a task was deleted.
    pub fn delete(&mut self, id: String, at: Timestamp) {
        let first = self.deleted.entry(id).or_insert(at);
        *first = (*first).min(at);
    }

    /// Merges another replica into this one.
    pub fn merge(&mut self, other: Self) {
        for section in other.sections.into_values() {
            self.add_section(section);
        }
        for (id, task) in other.tasks {
            self.add_task(id, task);
        }
        for (id, at) in other.deleted {
            self.delete(id, at);
        }
        self.tidy();
    }

    /// Removes deleted tasks, and spells the name of every section in one way.
    pub fn tidy(&mut self) {
        let Self {
            sections,
            tasks,
            deleted,
        } = self;
        tasks.retain(|id, _| !deleted.contains_key(id));
        for task in tasks.values_mut() {
            task.depends_on.retain(|on, _| !deleted.contains_key(on));
            let Some(name) = &mut task.section.value else {
                continue;
            };
            let section = sections
                .entry(name.to_ascii_lowercase())
                .or_insert_with(|| SectionCopy::added(name.clone(), task.created_at));
            if *name != section.name {
                name.clone_from(&section.name);
            }
        }
    }

    /// Drops dependencies on tasks that do not exist, and those that close a cycle: of the dependencies
    /// on a cycle, the ones that were added last. Returns the latter. If this is a part of a replica, `others` are the
    /// tasks outside of it that exist; none of them is on a cycle with one of these.
    pub fn untangle_among(&mut self, others: &HashSet<String>) -> Vec<(String, String)> {
        let ids: HashSet<String> = self.tasks.keys().cloned().collect();
        for task in self.tasks.values_mut() {
            task.depends_on
                .retain(|on, _| ids.contains(on) || others.contains(on));
        }
        let mut edges: Vec<(Timestamp, &String, &String)> = Vec::new();
        for (id, task) in &self.tasks {
            let present = task.depends_on.iter().filter(|(_, edge)| edge.value);
            edges.extend(present.map(|(on, edge)| (edge.at, id, on)));
        }
        let on_cycles = Graph::new(edges.iter().map(|(_, id, on)| (*id, *on))).nodes_on_cycles();
        edges.retain(|(_, id, _)| on_cycles.binary_search(id).is_ok());
        // In the order in which they were added: drop each one that closes a cycle with earlier ones.
        edges.sort();
        let mut waits: HashMap<&str, Vec<&str>> = HashMap::new();
        let mut dropped = Vec::new();
        for (_, id, on) in edges {
            if reaches(&waits, on, id) {
                dropped.push((id.clone(), on.clone()));
            } else {
                waits.entry(id).or_default().push(on);
            }
        }
        for (id, on) in &dropped {
            if let Some(edge) = self
                .tasks
                .get_mut(id)
                .and_then(|task| task.depends_on.get_mut(on))
            {
                *edge = Stamped::new(false, just_after(edge.at));
            }
        }
        dropped
    }
}

/// Whether one task depends on another, directly or through others.
fn reaches(waits: &HashMap<&str, Vec<&str>>, from: &str, to: &str) -> bool {
    let mut seen = HashSet::new();
    let mut open = vec![from];
    while let Some(id) = open.pop() {
        if id == to {
            return true;
        }
        if seen.insert(id) {
            open.extend(waits.get(id).into_iter().flatten());
        }
    }
    false
}

/// The next instant that a stamp can express.
fn just_after(at: Timestamp) -> Timestamp {
    at.checked_add(SignedDuration::from_millis(1)).unwrap_or(at)
}

#[cfg(test)]
mod tests;
