//! Tasks and sections, and the runners that work on them.
//!
//! | module | what it holds |
//! |---|---|
//! | `rows` | rows to tasks and back |
//! | `find` | a task or section by id, name or prefix; lists |
//! | `edit` | what adding, changing and deleting need of a write transaction |
//! | `step` | what the verbs of `tenure_tasks` need: beginning and ending work, `next`, import |
//! | `exchange` | import and export, one line for each task |
//! | `share` | what clones share, and the history of a task |
//! | `merge` | merging another clone's tasks |
//!
//! # Invariants
//!
//! 1. One transaction takes the section's and the task's lease and sets the status; one transaction
//!    releases them and sets it again. A runner that is killed never leaves the two in disagreement.
//! 2. No verb reads all tasks to find one. Triggers count the unfinished dependencies of each task,
//!    also when another program writes, and the ready tasks have an index of their own.

mod edit;
mod exchange;
mod find;
mod merge;
mod rows;
mod share;
mod step;

use std::time::Instant;

use tenure_core::engine::EngineStore;
use tenure_core::{Acquired, Holder, HolderId, Lease, Token};
use tenure_host::random_uuid;
use tenure_tasks::edit::{
    add_section, add_task, add_task_once, change_task, delete_section, delete_tasks, edit_task,
};
use tenure_tasks::find::{find_section, find_task};
use tenure_tasks::{
    Change, Changed, DeletedSection, DeletedTask, Edit, ImportSummary, MergeSummary, NewTask, Past,
    Proof, Replica, Runner, Section, SectionSummary, Started, SyncState, Task, TaskError,
    TaskQuery, TaskStore, Withdrawal, flow, next, sections,
};

use crate::schema;
use crate::store::SqliteStore;
use crate::view::ReadTransaction;
use crate::write::{TransactionError, WriteTransaction};

impl TaskStore for SqliteStore {
    fn add_section(&self, name: &str, by: Instant) -> Result<Section, TaskError> {
        let id = random_uuid().to_string();
        self.change_tasks(by, |write| add_section(write, &id, name))
    }

    fn sections(&self, by: Instant) -> Result<Vec<SectionSummary>, TaskError> {
        self.read_tasks(by, |reader| find::sections(reader.db))
    }

    fn find_section(&self, given: &str, by: Instant) -> Result<Section, TaskError> {
        let mut sections = self.read_tasks(by, |reader| find::sections_by_age(reader.db))?;
        sections.sort_by(|one, other| one.id.cmp(&other.id));
        find_section(&sections, given)
    }

    fn delete_section(
        &self,
        id: &str,
        move_to: Option<&str>,
        caller: &HolderId,
        by: Instant,
    ) -> Result<DeletedSection, TaskError> {
        self.change_tasks(by, |write| delete_section(write, id, move_to, caller))
    }

    fn add_task(&self, task: &NewTask, by: Instant) -> Result<Task, TaskError> {
        let id = random_uuid().to_string();
        self.change_tasks(by, |write| add_task(write, &id, task))
    }

    fn add_task_once(&self, task: &NewTask, by: Instant) -> Result<(Task, bool), TaskError> {
        let id = random_uuid().to_string();
        self.change_tasks(by, |write| add_task_once(write, &id, task))
    }

    fn find_task(&self, given: &str, by: Instant) -> Result<Task, TaskError> {
        self.read_tasks(by, |mut reader| match find_task(&mut reader, given) {
            Err(TransactionError::Sql(error)) => Err(error),
            found => Ok(found.map_err(|refused| self.explain(refused))),
        })?
    }

    fn tasks(&self, query: &TaskQuery, by: Instant) -> Result<Vec<Task>, TaskError> {
        self.read_tasks(by, |reader| find::list(reader.db, reader.now, query))
    }

    fn dependents(&self, id: &str, by: Instant) -> Result<Vec<Task>, TaskError> {
        self.read_tasks(by, |reader| find::dependents(reader.db, id))
    }

    fn edit_task(&self, id: &str, edit: &Edit, by: Instant) -> Result<Task, TaskError> {
        self.change_tasks(by, |write| edit_task(write, id, edit))
    }

    fn delete_tasks(&self, ids: &[String], by: Instant) -> Result<Vec<DeletedTask>, TaskError> {
        self.change_tasks(by, |write| delete_tasks(write, ids))
    }

    fn task_history(&self, id: &str, by: Instant) -> Result<Vec<Past>, TaskError> {
        self.read_tasks(by, |reader| share::past(reader.db, id))
    }

    fn start(
        &self,
        id: &str,
        runner: &Runner,
        by: Instant,
    ) -> Result<Acquired<Started>, TaskError> {
        let (answer, revision) = self.run(by, |write| flow::start(write, id, runner))?;
        Ok(answer.seen_at(revision))
    }

    fn next(&self, runner: &Runner, by: Instant) -> Result<Acquired<Started>, TaskError> {
        let (answer, revision) = self.run(by, |write| next::next(write, runner))?;
        Ok(answer.seen_at(revision))
    }

    fn stop_waiting(
        &self,
        id: Option<&str>,
        runner: &Runner,
        tickets: Withdrawal,
        by: Instant,
    ) -> Result<(), TaskError> {
        self.change_tasks(by, |write| flow::stop_waiting(write, id, runner, tickets))
    }

    fn change(
        &self,
        id: &str,
        proof: &Proof,
        change: &Change,
        edit: &Edit,
        by: Instant,
    ) -> Result<Changed, TaskError> {
        let changed = self.change_tasks(by, |write| change_task(write, id, proof, change, edit))?;
        self.sweep_in_passing(by);
        Ok(changed)
    }

    fn abandon(&self, lease: &Lease, by: Instant) -> Result<(), TaskError> {
        self.change_tasks(by, |write| sections::abandon(write, lease))
    }

    fn leave_idle_sections(&self, holder: &Holder, by: Instant) -> Result<(), TaskError> {
        self.change_tasks(by, |write| sections::leave_idle_sections(write, holder))
    }

    fn ended_by(&self, id: &str, token: Token, by: Instant) -> Result<Option<Task>, TaskError> {
        self.read_tasks(by, |reader| {
            let task = rows::by_id(reader.db, id)?;
            let lost = rows::lost(reader.db, id)?;
            Ok(task.filter(|task| flow::was_ended_by(task, &lost, token)))
        })
    }

    fn import(&self, lines: &str, by: Instant) -> Result<ImportSummary, TaskError> {
        self.change_tasks(by, |write| exchange::import(write, lines))
    }

    fn export(&self, line: &mut dyn FnMut(&str), by: Instant) -> Result<(), TaskError> {
        self.read_tasks(by, |reader| exchange::export(reader.db, line))
    }

    fn replica(&self, by: Instant) -> Result<Replica, TaskError> {
        self.read_tasks(by, |reader| share::replica(reader.db))
    }

    fn merge(&self, other: &Replica, by: Instant) -> Result<(Replica, MergeSummary), TaskError> {
        self.change_tasks(by, |write| write.merge(other))
    }

    fn sync_state(&self, by: Instant) -> Result<SyncState, TaskError> {
        self.read_tasks(by, |reader| share::sync_state(reader.db))
    }

    fn settle(&self, note: &str, changes: u64, by: Instant) -> Result<(), TaskError> {
        self.change_tasks(by, |write| write.settle(note, changes))
    }

    fn unsettle(&self, by: Instant) -> Result<(), TaskError> {
        self.change_tasks(by, |write| write.unsettle())
    }
}

impl SqliteStore {
    /// One write transaction about tasks. All or nothing.
    fn change_tasks<T>(
        &self,
        by: Instant,
        verb: impl FnMut(&mut WriteTransaction<'_>) -> Result<T, TransactionError>,
    ) -> Result<T, TaskError> {
        Ok(self.run(by, verb)?.0)
    }

    /// One read transaction about tasks.
    fn read_tasks<T>(
        &self,
        by: Instant,
        verb: impl FnOnce(ReadTransaction<'_>) -> rusqlite::Result<T>,
    ) -> Result<T, TaskError> {
        let look = |reader: ReadTransaction<'_>| {
            if schema::has_tasks(reader.db)? {
                return verb(reader);
            }
            let nothing = schema::without_tasks()?;
            verb(ReadTransaction {
                db: &nothing,
                ..reader
            })
        };
        Ok(self.read(by, look)?.0)
    }
}
