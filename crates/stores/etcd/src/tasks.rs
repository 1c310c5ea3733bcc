//! Tasks and sections on etcd.
//!
//! | module | what it holds |
//! |---|---|
//! | `records` | the values of the keys, and the indexes of a task |
//! | `guard` | the guard of all tasks, and changes that are too large for one transaction |
//! | `entries` | reads and writes of a step |
//! | `step` | what the verbs of `tenure_tasks` need: beginning and ending work, `next`, import |
//! | `edit` | what adding, changing and deleting need of a step |
//! | `repair` | puts right what was removed or damaged |
//! | `find` | a task or section by id, name or prefix; lists |
//!
//! # Invariants
//!
//! 1. One transaction takes the section's and the task's lease and sets the status; one transaction
//!    releases them and sets it again.
//! 2. Every step that writes a task, or a lock of a task or a section, compares and writes the guard of the tasks. So
//!    what such a step has read is still true when it writes.
//! 3. No verb reads all tasks to find one. The indexes of a task are written in the transaction that writes the task,
//!    and those of the tasks that depend on it, too.
//! 4. A change that is too large for one transaction happens whole or not at all (`guard`).

mod edit;
mod entries;
mod find;
mod guard;
mod records;
mod repair;
mod step;

pub(crate) use guard::{SeenTasks, TaskTurn, all_parts};

use std::time::Instant;

use tenure_core::engine::EngineStore;
use tenure_core::{Acquired, ErrorKind, Holder, HolderId, Lease, StoreError, Token};
use tenure_tasks::edit::{
    add_section, add_task, add_task_once, change_task, delete_section, delete_tasks, edit_task,
};
use tenure_tasks::find::find_task;
use tenure_tasks::flow::{self, was_ended_by};
use tenure_tasks::{
    Change, Changed, DeletedSection, DeletedTask, Edit, ImportSummary, MergeSummary, NewTask, Past,
    Proof, Replica, Runner, Section, SectionSummary, Started, SyncState, Task, TaskError,
    TaskQuery, TaskStep as _, TaskStore, Withdrawal, lines, next, sections,
};

use crate::step::{EtcdStep, Seen};
use crate::store::EtcdStore;

fn new_id() -> String {
    tenure_host::random_uuid().to_string()
}

impl TaskStore for EtcdStore {
    fn add_section(&self, name: &str, by: Instant) -> Result<Section, TaskError> {
        let id = new_id();
        self.change_tasks(by, |step| add_section(step, &id, name))
    }

    fn sections(&self, by: Instant) -> Result<Vec<SectionSummary>, TaskError> {
        self.read_tasks(by, |step| step.section_summaries())
    }

    fn find_section(&self, given: &str, by: Instant) -> Result<Section, TaskError> {
        self.read_tasks(by, |step| step.find_section(given))
    }

    fn delete_section(
        &self,
        id: &str,
        move_to: Option<&str>,
        caller: &HolderId,
        by: Instant,
    ) -> Result<DeletedSection, TaskError> {
        self.change_tasks(by, |step| delete_section(step, id, move_to, caller))
    }

    fn add_task(&self, task: &NewTask, by: Instant) -> Result<Task, TaskError> {
        let id = new_id();
        self.change_tasks(by, |step| add_task(step, &id, task))
    }

    fn add_task_once(&self, task: &NewTask, by: Instant) -> Result<(Task, bool), TaskError> {
        let id = new_id();
        self.change_tasks(by, |step| add_task_once(step, &id, task))
    }

    fn find_task(&self, given: &str, by: Instant) -> Result<Task, TaskError> {
        self.read_tasks(by, |step| find_task(step, given))
    }

    fn tasks(&self, query: &TaskQuery, by: Instant) -> Result<Vec<Task>, TaskError> {
        self.read_tasks(by, |step| step.list_tasks(query))
    }

    fn dependents(&self, id: &str, by: Instant) -> Result<Vec<Task>, TaskError> {
        self.read_tasks(by, |step| {
            let ids = step.dependents_of(id)?;
            let mut tasks = step.tasks_with_ids(&ids)?;
            tasks.sort_by_key(|task| (task.created_at, task.id.clone()));
            Ok(tasks)
        })
    }

    fn edit_task(&self, id: &str, edit: &Edit, by: Instant) -> Result<Task, TaskError> {
        self.change_tasks(by, |step| edit_task(step, id, edit))
    }

    fn delete_tasks(&self, ids: &[String], by: Instant) -> Result<Vec<DeletedTask>, TaskError> {
        self.change_tasks(by, |step| delete_tasks(step, ids))
    }

    fn task_history(&self, id: &str, by: Instant) -> Result<Vec<Past>, TaskError> {
        self.read_tasks(by, |step| {
            let prefix = step.store.layout.entry('h', &[id]) + "/";
            let list = step.list(&prefix, entries::ALL)?;
            let read = |value: &Vec<u8>| serde_json::from_slice(value).ok();
            let mut past: Vec<Past> = list.values().filter_map(read).collect();
            past.sort_by(|one, other| {
                let newest = (other.until, other.at).cmp(&(one.until, one.at));
                newest.then_with(|| one.field.cmp(&other.field))
            });
            Ok(past)
        })
    }

    fn start(
        &self,
        id: &str,
        runner: &Runner,
        by: Instant,
    ) -> Result<Acquired<Started>, TaskError> {
        self.admit_change()?;
        let (answer, revision) = self.stepped(None, Seen::default(), by, |step| {
            flow::start(step, id, runner)
        })?;
        Ok(answer.seen_at(revision))
    }

    fn next(&self, runner: &Runner, by: Instant) -> Result<Acquired<Started>, TaskError> {
        self.admit_change()?;
        let (answer, revision) = self.stepped(None, Seen::default(), by, |step| {
            step.read_for_next()?;
            next::next(step, runner)
        })?;
        Ok(answer.seen_at(revision))
    }

    fn stop_waiting(
        &self,
        id: Option<&str>,
        runner: &Runner,
        tickets: Withdrawal,
        by: Instant,
    ) -> Result<(), TaskError> {
        self.change_tasks(by, |step| flow::stop_waiting(step, id, runner, tickets))
    }

    fn change(
        &self,
        id: &str,
        proof: &Proof,
        change: &Change,
        edit: &Edit,
        by: Instant,
    ) -> Result<Changed, TaskError> {
        let changed = self.change_tasks(by, |step| change_task(step, id, proof, change, edit))?;
        self.sweep_in_passing(by);
        Ok(changed)
    }

    fn abandon(&self, lease: &Lease, by: Instant) -> Result<(), TaskError> {
        self.change_tasks(by, |step| sections::abandon(step, lease))
    }

    fn leave_idle_sections(&self, holder: &Holder, by: Instant) -> Result<(), TaskError> {
        self.change_tasks(by, |step| sections::leave_idle_sections(step, holder))
    }

    fn ended_by(&self, id: &str, token: Token, by: Instant) -> Result<Option<Task>, TaskError> {
        self.read_tasks(by, |step| {
            let (task, lost) = (step.task(id)?, step.lost(id)?);
            Ok(task.filter(|task| was_ended_by(task, &lost, token)))
        })
    }

    fn import(&self, lines: &str, by: Instant) -> Result<ImportSummary, TaskError> {
        self.change_tasks(by, |step| {
            lines::import(step, lines, |line| {
                serde_json::from_str(line).map_err(|error| error.to_string())
            })
        })
    }

    fn export(&self, line: &mut dyn FnMut(&str), by: Instant) -> Result<(), TaskError> {
        let lines = self.read_tasks(by, |step| Ok(step.export_lines()?))?;
        for text in &lines {
            line(text);
        }
        Ok(())
    }

    fn replica(&self, _by: Instant) -> Result<Replica, TaskError> {
        Err(self.no_clones())
    }

    fn merge(&self, _other: &Replica, _by: Instant) -> Result<(Replica, MergeSummary), TaskError> {
        Err(self.no_clones())
    }

    fn sync_state(&self, _by: Instant) -> Result<SyncState, TaskError> {
        Err(self.no_clones())
    }

    fn settle(&self, _note: &str, _changes: u64, _by: Instant) -> Result<(), TaskError> {
        Err(self.no_clones())
    }

    fn unsettle(&self, _by: Instant) -> Result<(), TaskError> {
        Err(self.no_clones())
    }
}

impl EtcdStore {
    /// One change of tasks. All or nothing.
    fn change_tasks<T>(
        &self,
        by: Instant,
        verb: impl FnMut(&mut EtcdStep<'_>) -> Result<T, TaskError>,
    ) -> Result<T, TaskError> {
        self.admit_change()?;
        Ok(self.stepped(None, Seen::default(), by, verb)?.0)
    }

    /// What is there at one revision.
    fn read_tasks<T>(
        &self,
        by: Instant,
        verb: impl FnMut(&mut EtcdStep<'_>) -> Result<T, TaskError>,
    ) -> Result<T, TaskError> {
        Ok(self.looked(by, verb)?.0)
    }

    /// All machines use the same tasks.
    fn no_clones(&self) -> TaskError {
        let what = format!(
            "the tasks on {} are not synced: every machine that uses the cluster has them",
            self.address()
        );
        StoreError::new(ErrorKind::Unsupported, what)
            .fix("to move them, use tenure store copy")
            .into()
    }
}
