//! Tasks and sections: what there is to do, and who works on it.
//!
//! | module | what it holds |
//! |---|---|
//! | `rows` | rows to tasks and back |
//! | `find` | the task or section that somebody means |
//! | `edit` | adding and changing, without the locks |
//! | `flow` | beginning and ending work, with the locks |
//! | `sections` | keeping a section between two tasks |
//! | `next` | the best task that is ready |
//! | `exchange` | import and export, a line each |
//! | `share` | what is shared with other clones |
//! | `merge` | what other clones have, taken in |
//! | `cycle` | tasks that depend on themselves |
//!
//! # Invariants
//!
//! 1. A task is begun in the transaction that takes its section's and its own lease, and ended in
//!    the one that gives them back: status and locks never disagree, whenever somebody is killed.
//! 2. Nothing looks at all tasks to find one: the number of a task's unfinished dependencies is
//!    kept beside it (by triggers, so that other programs keep it too), and the ready ones have
//!    their own index.

mod cycle;
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

use tenure_core::task::{
    Change, Changed, Edit, NewTask, Past, Proof, Replica, Runner, Sought, Starting, TaskQuery,
};
use tenure_core::{Holder, Lease, Section, StoreError, Task, TaskError, Token};

use crate::store::SqliteStore;

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
        Ok(self.read(|reader| find::sections(reader.db))?.0)
    }

    /// The section that somebody means by its id, its name, or a unique beginning of its id.
    pub fn find_section(&self, given: &str) -> Result<Section, TaskError> {
        self.look(|db| find::section(db, given))
    }

    /// Adds a task.
    pub fn add_task(&self, task: &NewTask) -> Result<Task, TaskError> {
        Ok(self.transact(|write| write.add_task(task))?.0)
    }

    /// The task that somebody means by its id, its title, or a unique beginning of its id.
    pub fn find_task(&self, given: &str) -> Result<Task, TaskError> {
        self.look(|db| find::task(db, given))
    }

    /// Tasks: those in progress first, then the pending ones and so on; in each, the most urgent
    /// first, then the oldest.
    pub fn tasks(&self, query: &TaskQuery) -> Result<Vec<Task>, TaskError> {
        Ok(self
            .read(|reader| find::list(reader.db, reader.now, query))?
            .0)
    }

    /// The tasks that wait for this one.
    pub fn dependents(&self, id: &str) -> Result<Vec<Task>, TaskError> {
        Ok(self.read(|reader| find::dependents(reader.db, id))?.0)
    }

    /// Changes a task, but not its status.
    pub fn edit_task(&self, id: &str, edit: &Edit) -> Result<Task, TaskError> {
        Ok(self.transact(|write| write.edit_task(id, edit))?.0)
    }

    /// Begins a task: takes its section's and its own lease, or neither. With
    /// [`tenure_core::Patience::Queue`], busy leaves a ticket.
    pub fn start(&self, id: &str, runner: &Runner) -> Result<Starting, TaskError> {
        let grace = self.options.queue_grace;
        self.with_room(|room| {
            let (mut answer, revision) =
                self.transact(|write| write.start(id, runner, room, grace))?;
            if let Some(Starting::Busy { busy, .. }) = &mut answer {
                busy.revision = revision;
            }
            Ok(answer)
        })
    }

    /// Changes a task's status otherwise, and gives back what was held for it.
    pub fn change(&self, id: &str, proof: &Proof, change: &Change) -> Result<Changed, TaskError> {
        self.change_and_edit(id, proof, change, &Edit::default())
    }

    /// The same, and what else is to be changed; all or nothing.
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

    /// Gives a task's lease back without a word on its status, so that anybody may take it, and
    /// the sections in which its holder works on nothing else.
    pub fn abandon(&self, lease: &Lease) -> Result<(), TaskError> {
        self.transact(|write| write.abandon(lease))?;
        Ok(())
    }

    /// Gives back the sections in which somebody works on nothing.
    pub fn leave_idle_sections(&self, holder: &Holder) -> Result<(), TaskError> {
        self.transact(|write| write.leave_idle_sections(holder))?;
        Ok(())
    }

    /// The task as it is now, if whoever was granted it with this token has ended it. Not if
    /// somebody else has, or it is to be done again.
    pub fn ended_by(&self, id: &str, token: Token) -> Result<Option<Task>, TaskError> {
        let (task, _) = self.read(|reader| {
            let task = rows::by_id(reader.db, id)?;
            let lost = rows::lost(reader.db, id)?;
            Ok(task.filter(|task| {
                let forced = task.runner.as_ref().is_some_and(|name| lost.contains(name));
                task.token == token && !task.status.is_open() && !forced
            }))
        })?;
        Ok(task)
    }

    /// Begins the best task that is ready. With [`tenure_core::Patience::Queue`], none leaves a
    /// ticket.
    pub fn next(&self, runner: &Runner) -> Result<Sought, TaskError> {
        let grace = self.options.queue_grace;
        self.with_room(|room| {
            let (mut answer, revision) = self.transact(|write| write.next(runner, room, grace))?;
            if let Some(Sought::None(want)) = &mut answer {
                want.busy.revision = revision;
            }
            Ok(answer)
        })
    }

    /// Gives up, or keeps for a while, every place that the runner took while it waited for a task
    /// (`None`: for any).
    pub fn stop_waiting(
        &self,
        id: Option<&str>,
        runner: &Runner,
        places: Places,
    ) -> Result<(), TaskError> {
        self.transact(|write| write.stop_waiting(id, runner, places))?;
        Ok(())
    }

    /// Adds or changes sections and tasks, one for each line; all or none.
    pub fn import(&self, lines: &str) -> Result<Imported, TaskError> {
        Ok(self.transact(|write| write.import(lines))?.0)
    }

    /// Hands every section and task to `line`, as the line that [`Self::import`] reads.
    pub fn export(&self, line: impl FnMut(&str)) -> Result<(), TaskError> {
        self.read(|reader| exchange::export(reader.db, line))?;
        Ok(())
    }

    /// Deletes a task, for good and in every clone. Not while somebody works on it.
    pub fn delete_task(&self, id: &str) -> Result<Task, TaskError> {
        Ok(self.transact(|write| write.delete_task(id))?.0)
    }

    /// Deletes several, all of them or none. Each with the number of those that waited for it.
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

    /// What the fields of a task were before, the newest first.
    pub fn past(&self, id: &str) -> Result<Vec<Past>, TaskError> {
        Ok(self.read(|reader| share::past(reader.db, id))?.0)
    }

    /// All that is shared with other clones.
    pub fn replica(&self) -> Result<Replica, TaskError> {
        Ok(self.read(|reader| share::replica(reader.db))?.0)
    }

    /// Takes in what others have. Hands back what everybody should have now, and what that changed
    /// here.
    pub fn merge(&self, other: &Replica) -> Result<(Replica, Merged), TaskError> {
        Ok(self.transact(|write| write.merge(other))?.0)
    }

    /// A number that grows with every change of what is shared, and what [`Self::settle`] was last
    /// told.
    pub fn settled(&self) -> Result<(u64, String), TaskError> {
        let (both, _) =
            self.read(|reader| Ok((share::changes(reader.db)?, share::settled(reader.db)?)))?;
        Ok(both)
    }

    /// Keeps a word for the next one who shares.
    pub fn settle(&self, word: &str) -> Result<(), TaskError> {
        self.transact(|write| write.settle(word))?;
        Ok(())
    }

    /// Something that only looks, and may refuse.
    fn look<T>(
        &self,
        verb: impl FnOnce(&rusqlite::Connection) -> Result<T, find::NotFound>,
    ) -> Result<T, TaskError> {
        let (found, _) = self.read(|reader| match verb(reader.db) {
            Ok(found) => Ok(Ok(found)),
            Err(find::NotFound::Sql(error)) => Err(error),
            Err(find::NotFound::Task(error)) => Ok(Err(*error)),
        })?;
        found
    }
}

/// A name that can't be a key's: it came from the database, so somebody wrote it there by hand.
fn bad_id(id: &str, error: &tenure_core::BadName) -> StoreError {
    StoreError::new(
        tenure_core::ErrorKind::Damaged,
        format!("the id {id:?} can't be locked: {error}"),
    )
    .fix("somebody wrote it by hand; correct it with sqlite3")
}
