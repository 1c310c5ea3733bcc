//! Where tasks live: [`TaskStore`], and the types of its answers.

use std::fmt;
use std::time::Instant;

use serde::Serialize;
use tenure_core::holder::{Holder, HolderId};
use tenure_core::lease::{Lease, Token};
use tenure_core::store::{Acquired, Store, Withdrawal};

use super::{
    Change, Changed, Edit, NewTask, Past, Proof, Replica, Runner, Section, Started, Task,
    TaskError, TaskQuery,
};

/// A store that holds tasks as well as leases.
///
/// A runner works on a task under two leases of the same store: the section's and the task's.
///
/// # What every implementation must do
///
/// - Each verb is one atomic step, with the leases that it takes or releases: a runner that is killed
///   never leaves a task's status and its leases in disagreement (G5, G10).
/// - [`start`](Self::start) and [`next`](Self::next) take both leases or neither.
/// - [`change`](Self::change) refuses a runner whose task was granted to another one since, also if
///   the other one has ended its work meanwhile (G7).
/// - [`next`](Self::next) gives ready tasks to waiters in the order in which they came (G8), and a
///   waiter is woken when a task becomes ready (G9).
/// - A verb returns when `by` has passed, as those of [`Store`] do.
pub trait TaskStore: Store {
    /// Adds a section.
    fn add_section(&self, name: &str, by: Instant) -> Result<Section, TaskError>;

    /// Every section, by name.
    fn sections(&self, by: Instant) -> Result<Vec<SectionSummary>, TaskError>;

    /// Finds a section by its id, its name, or a unique prefix of its id.
    fn find_section(&self, given: &str, by: Instant) -> Result<Section, TaskError>;

    /// Deletes a section, in every clone: there it stays as long as a task is in it. Its tasks move to the section with
    /// the id `move_to`, or to none if that is empty. Without it, a section that has tasks is refused. So is one that
    /// a runner other than `caller` holds.
    fn delete_section(
        &self,
        id: &str,
        move_to: Option<&str>,
        caller: &HolderId,
        by: Instant,
    ) -> Result<DeletedSection, TaskError>;

    /// Adds a task.
    fn add_task(&self, task: &NewTask, by: Instant) -> Result<Task, TaskError>;

    /// Adds a task unless one has the same title, whatever its status: then that one, the oldest of several.
    /// Tells whether it was added. Of several callers at once, one adds it.
    fn add_task_once(&self, task: &NewTask, by: Instant) -> Result<(Task, bool), TaskError>;

    /// Finds a task by its id, its title, or a unique prefix of its id.
    fn find_task(&self, given: &str, by: Instant) -> Result<Task, TaskError>;

    /// Lists tasks by status, the ones in progress first; within a status the most urgent first, then
    /// the oldest.
    fn tasks(&self, query: &TaskQuery, by: Instant) -> Result<Vec<Task>, TaskError>;

    /// The tasks that depend on this one.
    fn dependents(&self, id: &str, by: Instant) -> Result<Vec<Task>, TaskError>;

    /// Changes the fields of a task, but not its status.
    fn edit_task(&self, id: &str, edit: &Edit, by: Instant) -> Result<Task, TaskError>;

    /// Deletes tasks permanently, in every clone, all or none. Refused while a runner works on one.
    fn delete_tasks(&self, ids: &[String], by: Instant) -> Result<Vec<DeletedTask>, TaskError>;

    /// The earlier values of a task's fields, the newest first.
    fn task_history(&self, id: &str, by: Instant) -> Result<Vec<Past>, TaskError>;

    /// Begins a task: takes the leases of its section and of itself, or neither. A busy answer to
    /// [`tenure_core::Patience::Queue`] leaves a ticket.
    fn start(&self, id: &str, runner: &Runner, by: Instant)
    -> Result<Acquired<Started>, TaskError>;

    /// Begins the best ready task. If there is none, [`tenure_core::Patience::Queue`] leaves a ticket.
    fn next(&self, runner: &Runner, by: Instant) -> Result<Acquired<Started>, TaskError>;

    /// Drops or parks every ticket that the runner took while it waited for a task (`None`: for any
    /// task).
    fn stop_waiting(
        &self,
        id: Option<&str>,
        runner: &Runner,
        tickets: Withdrawal,
        by: Instant,
    ) -> Result<(), TaskError>;

    /// Ends work on a task, or sets its status by hand, and releases its leases. Changes the fields
    /// in `edit` in the same step.
    fn change(
        &self,
        id: &str,
        proof: &Proof,
        change: &Change,
        edit: &Edit,
        by: Instant,
    ) -> Result<Changed, TaskError>;

    /// Releases a task's lease and leaves its status alone, so that any runner may take it; also
    /// releases the sections in which its holder works on nothing else.
    fn abandon(&self, lease: &Lease, by: Instant) -> Result<(), TaskError>;

    /// Releases the sections in which a holder works on nothing.
    fn leave_idle_sections(&self, holder: &Holder, by: Instant) -> Result<(), TaskError>;

    /// The task as it is now, if the runner that was granted it with this token has ended it. `None`
    /// if another runner ended it, or it is open again.
    fn ended_by(&self, id: &str, token: Token, by: Instant) -> Result<Option<Task>, TaskError>;

    /// Adds or changes sections and tasks, one for each line, all or none.
    fn import(&self, lines: &str, by: Instant) -> Result<ImportSummary, TaskError>;

    /// Passes every section and task to `line`, as a line that [`import`](Self::import) reads.
    fn export(&self, line: &mut dyn FnMut(&str), by: Instant) -> Result<(), TaskError>;

    /// All that clones share.
    fn replica(&self, by: Instant) -> Result<Replica, TaskError>;

    /// Merges another clone's tasks into this one. Returns what changed here, and the merged state,
    /// which every clone should have: all sections, the tasks in `other`, and those that are
    /// [unshared](SyncState::unshared) here.
    fn merge(&self, other: &Replica, by: Instant) -> Result<(Replica, MergeSummary), TaskError>;

    /// How far this clone is shared with others.
    fn sync_state(&self, by: Instant) -> Result<SyncState, TaskError>;

    /// Records that all changes up to this one are shared, and leaves a note for the next sync.
    fn settle(&self, note: &str, changes: u64, by: Instant) -> Result<(), TaskError>;

    /// Records that nothing is shared yet.
    fn unsettle(&self, by: Instant) -> Result<(), TaskError>;
}

/// A section and the number of its tasks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SectionSummary {
    /// The section.
    pub section: Section,
    /// How many tasks it has.
    pub tasks: u64,
    /// How many of them are open.
    pub open: u64,
}

/// A section that was deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeletedSection {
    /// The section as it was.
    pub section: Section,
    /// How many tasks were in it.
    pub moved: u64,
    /// Where they are now; `None` if they have no section.
    pub moved_to: Option<Section>,
}

impl fmt::Display for DeletedSection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "section \"{}\"", self.section.name)?;
        let tasks = match self.moved {
            0 => return Ok(()),
            1 => "1 task".to_owned(),
            many => format!("{many} tasks"),
        };
        match &self.moved_to {
            Some(section) => write!(f, "; {tasks} moved to \"{}\"", section.name),
            None => write!(f, "; {tasks} left without a section"),
        }
    }
}

/// A task that was deleted.
#[derive(Debug, Clone)]
pub struct DeletedTask {
    /// The task as it was.
    pub task: Task,
    /// How many tasks depended on it.
    pub dependents: usize,
}

/// What an import did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct ImportSummary {
    /// Sections that are new.
    pub sections: u64,
    /// Tasks that are new.
    pub added: u64,
    /// Tasks that were there and changed.
    pub changed: u64,
    /// Tasks that were there and are as they were.
    pub unchanged: u64,
}

/// What a merge did here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct MergeSummary {
    /// Sections that are new.
    pub sections: u64,
    /// Sections that were deleted.
    pub deleted_sections: u64,
    /// Tasks that are new.
    pub added: u64,
    /// Tasks that changed.
    pub changed: u64,
    /// Tasks that were deleted.
    pub deleted: u64,
    /// Tasks that a runner works on here, so that the other clones' change does not apply yet.
    pub held: u64,
    /// Dependencies that were dropped because they closed a cycle.
    pub circles: u64,
}

impl MergeSummary {
    /// Whether nothing changed here.
    pub fn is_nothing(&self) -> bool {
        let sections = self.sections + self.deleted_sections;
        sections + self.added + self.changed + self.deleted + self.circles == 0
    }
}

/// How far a clone is shared with others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SyncState {
    /// Grows with every change of what clones share.
    pub changes: u64,
    /// The note that [`TaskStore::settle`] left last.
    pub note: String,
    /// The ids of the tasks that have to be shared: they changed here or were deleted here, or a change
    /// of another clone could not be applied yet. An empty id stands for the sections.
    pub unshared: Vec<String>,
}
