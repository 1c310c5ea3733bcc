//! Tasks and sections, and the runners that work on them.
//!
//! | module | what it holds |
//! |---|---|
//! | `rows` | rows to tasks and back |
//! | `find` | a task or section by id, name or prefix; lists |
//! | `edit` | adding and changing, without locks |
//! | `flow` | beginning and ending work, with locks |
//! | `sections` | a section's lease between two tasks of its runner |
//! | `next` | the best ready task |
//! | `exchange` | import and export, one line for each task |
//! | `share` | what clones share, and the history of a task |
//! | `merge` | merging another clone's tasks |
//! | `circle` | tasks that depend on themselves |
//!
//! # Invariants
//!
//! 1. One transaction takes the section's and the task's lease and sets the status; one transaction
//!    releases them and sets it again. A runner that is killed never leaves the two in disagreement.
//! 2. No verb reads all tasks to find one. Triggers count the unfinished dependencies of each task,
//!    also when another program writes, and the ready tasks have an index of their own.

mod circle;
mod edit;
mod exchange;
mod find;
mod flow;
mod merge;
mod next;
mod rows;
mod sections;
mod share;

pub use exchange::Imported;
pub use merge::Merged;
pub(crate) use rows::{granted, superseded};

use std::time::Instant;

use tenure_core::task::{
    Change, Changed, Edit, NewTask, Past, Proof, Replica, Runner, Started, TaskQuery,
};
use tenure_core::{Acquired, Holder, Lease, Revision, Section, StoreError, Task, TaskError, Token};

use crate::patience;
use crate::store::SqliteStore;
use crate::view::Reader;

/// What becomes of the places of somebody who stops waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Places {
    /// They are given up.
    Leave,
    /// They are kept for a grace time.
    Keep,
}

impl SqliteStore {
    /// Adds a section.
    pub fn add_section(&self, name: &str) -> Result<Section, TaskError> {
        Ok(self.transact(|write| write.add_section(name))?.0)
    }

    /// Every section with the number of its tasks and of those that are open, by name.
    pub fn sections(&self) -> Result<Vec<(Section, u64, u64)>, TaskError> {
        Ok(self.look_at(|reader| find::sections(reader.db))?.0)
    }

    /// Finds a section by its id, its name, or a unique prefix of its id.
    pub fn find_section(&self, given: &str) -> Result<Section, TaskError> {
        self.look(|db| find::section(db, given))
    }

    /// Adds a task.
    pub fn add_task(&self, task: &NewTask) -> Result<Task, TaskError> {
        Ok(self.transact(|write| write.add_task(task))?.0)
    }

    /// Finds a task by its id, its title, or a unique prefix of its id.
    pub fn find_task(&self, given: &str) -> Result<Task, TaskError> {
        self.look(|db| find::task(db, given))
    }

    /// Lists tasks by status, the ones in progress first; within a status the most urgent first, then
    /// the oldest.
    pub fn tasks(&self, query: &TaskQuery) -> Result<Vec<Task>, TaskError> {
        Ok(self
            .look_at(|reader| find::list(reader.db, reader.now, query))?
            .0)
    }

    /// The tasks that depend on this one.
    pub fn dependents(&self, id: &str) -> Result<Vec<Task>, TaskError> {
        Ok(self.look_at(|reader| find::dependents(reader.db, id))?.0)
    }

    /// Changes the fields of a task, but not its status.
    pub fn edit_task(&self, id: &str, edit: &Edit) -> Result<Task, TaskError> {
        Ok(self.transact(|write| write.edit_task(id, edit))?.0)
    }

    /// Begins a task: takes the leases of its section and of itself, or neither. A busy answer to
    /// [`tenure_core::Patience::Queue`] leaves a ticket.
    pub fn start(&self, id: &str, runner: &Runner) -> Result<Acquired<Started>, TaskError> {
        let (answer, revision) = self.transact(|write| write.start(id, runner))?;
        Ok(answer.seen_at(revision))
    }

    /// Ends work on a task, or sets its status by hand, and releases its leases.
    pub fn change(&self, id: &str, proof: &Proof, change: &Change) -> Result<Changed, TaskError> {
        self.change_and_edit(id, proof, change, &Edit::default())
    }

    /// The same, with changes of its fields, all or nothing.
    pub fn change_and_edit(
        &self,
        id: &str,
        proof: &Proof,
        change: &Change,
        edit: &Edit,
    ) -> Result<Changed, TaskError> {
        let (changed, _) = self.transact(|write| {
            let mut changed = write.change(id, proof, change)?;
            if !edit.is_empty() {
                changed.task = write.edit_task(id, edit)?;
            }
            Ok(changed)
        })?;
        Ok(changed)
    }

    /// Releases a task's lease and leaves its status alone, so that any runner may take it; also
    /// releases the sections in which its holder works on nothing else.
    pub fn abandon(&self, lease: &Lease) -> Result<(), TaskError> {
        self.transact(|write| write.abandon(lease))?;
        Ok(())
    }

    /// Releases the sections in which a holder works on nothing.
    pub fn leave_idle_sections(&self, holder: &Holder) -> Result<(), TaskError> {
        self.transact(|write| write.leave_idle_sections(holder))?;
        Ok(())
    }

    /// The task as it is now, if the runner that was granted it with this token has ended it. `None` if
    /// another runner ended it, or it is open again.
    pub fn ended_by(&self, id: &str, token: Token) -> Result<Option<Task>, TaskError> {
        let (task, _) = self.look_at(|reader| {
            let task = rows::by_id(reader.db, id)?;
            let lost = rows::lost(reader.db, id)?;
            Ok(task.filter(|task| {
                let forced = task.runner.as_ref().is_some_and(|name| lost.contains(name));
                task.token == token && !task.status.is_open() && !forced
            }))
        })?;
        Ok(task)
    }

    /// Begins the best ready task. If there is none, [`tenure_core::Patience::Queue`] leaves a
    /// ticket.
    pub fn next(&self, runner: &Runner) -> Result<Acquired<Started>, TaskError> {
        let (answer, revision) = self.transact(|write| write.next(runner))?;
        Ok(answer.seen_at(revision))
    }

    /// Drops or parks every ticket that the runner took while it waited for a task (`None`: for any
    /// task).
    pub fn stop_waiting(
        &self,
        id: Option<&str>,
        runner: &Runner,
        places: Places,
    ) -> Result<(), TaskError> {
        self.transact(|write| write.stop_waiting(id, runner, places))?;
        Ok(())
    }

    /// Adds or changes sections and tasks, one for each line, all or none.
    pub fn import(&self, lines: &str) -> Result<Imported, TaskError> {
        Ok(self.transact(|write| write.import(lines))?.0)
    }

    /// Passes every section and task to `line`, as a line that [`Self::import`] reads.
    pub fn export(&self, line: impl FnMut(&str)) -> Result<(), TaskError> {
        self.look_at(|reader| exchange::export(reader.db, line))?;
        Ok(())
    }

    /// Deletes a task permanently, in every clone. Refused while a runner works on it.
    pub fn delete_task(&self, id: &str) -> Result<Task, TaskError> {
        Ok(self.transact(|write| write.delete_task(id))?.0)
    }

    /// Deletes several tasks, all or none. Returns each with the number of tasks that depended on it.
    pub fn delete_tasks(&self, ids: &[String]) -> Result<Vec<(Task, usize)>, TaskError> {
        let (deleted, _) = self.transact(|write| {
            let mut deleted = Vec::new();
            for id in ids {
                let waited = find::dependents(write.reader.db, id)?.len();
                deleted.push((write.delete_task(id)?, waited));
            }
            Ok(deleted)
        })?;
        Ok(deleted)
    }

    /// The earlier values of a task's fields, the newest first.
    pub fn past(&self, id: &str) -> Result<Vec<Past>, TaskError> {
        Ok(self.look_at(|reader| share::past(reader.db, id))?.0)
    }

    /// All that clones share.
    pub fn replica(&self) -> Result<Replica, TaskError> {
        Ok(self.look_at(|reader| share::replica(reader.db))?.0)
    }

    /// Merges another clone's tasks into this one. Returns the merged state, which every clone
    /// should have, and what changed here.
    pub fn merge(&self, other: &Replica) -> Result<(Replica, Merged), TaskError> {
        Ok(self.transact(|write| write.merge(other))?.0)
    }

    /// A number that grows with every change of what clones share, and the note that
    /// [`Self::settle`] last wrote.
    pub fn settled(&self) -> Result<(u64, String), TaskError> {
        let (both, _) =
            self.look_at(|reader| Ok((share::changes(reader.db)?, share::settled(reader.db)?)))?;
        Ok(both)
    }

    /// Leaves a note for the next sync.
    pub fn settle(&self, note: &str) -> Result<(), TaskError> {
        self.transact(|write| write.settle(note))?;
        Ok(())
    }

    /// One read transaction.
    fn look_at<T>(
        &self,
        verb: impl FnOnce(Reader<'_>) -> rusqlite::Result<T>,
    ) -> Result<(T, Revision), StoreError> {
        self.read(Instant::now() + patience::USUAL, verb)
    }

    /// A verb that only reads, and may refuse.
    fn look<T>(
        &self,
        verb: impl FnOnce(&rusqlite::Connection) -> Result<T, find::NotFound>,
    ) -> Result<T, TaskError> {
        let (found, _) = self.look_at(|reader| match verb(reader.db) {
            Ok(found) => Ok(Ok(found)),
            Err(find::NotFound::Sql(error)) => Err(error),
            Err(find::NotFound::Task(error)) => Ok(Err(*error)),
        })?;
        found
    }
}

/// An id that can't be part of a key. It came from the database, so another program wrote it.
fn bad_id(id: &str, error: &tenure_core::BadName) -> StoreError {
    StoreError::new(
        tenure_core::ErrorKind::Damaged,
        format!("the id {id:?} can't be locked: {error}"),
    )
    .fix("another program wrote it; correct it with sqlite3")
}
