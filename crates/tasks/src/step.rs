//! What the verbs on tasks need of a store's atomic step: [`TaskStep`].

use std::cmp::Reverse;

use jiff::Timestamp;
use tenure_core::engine::Step;
use tenure_core::error::{ErrorKind, StoreError};
use tenure_core::holder::HolderId;
use tenure_core::key::{BadName, Key};
use tenure_core::lease::Lease;
use tenure_core::verdict::Evidence;

use super::{ANY, Section, Task, TaskError, key_of};

/// One atomic step of a store that holds tasks as well as leases.
///
/// Its [`Step::follow`] is [`follow`](super::follow::follow): a task follows its lease, whatever the verb.
pub trait TaskStep: Step<Error: From<TaskError> + From<StoreError>> {
    /// The task with this id.
    fn task(&mut self, id: &str) -> Result<Option<Task>, Self::Error>;

    /// A ready task that a runner would take; `None` if it is not there after all, so that the runner takes the next one.
    fn candidate(&mut self, id: &str) -> Result<Option<Task>, Self::Error> {
        self.task(id)
    }

    /// The first unfinished tasks that a task depends on.
    fn blockers(&mut self, id: &str) -> Result<Vec<Task>, Self::Error>;

    /// Writes the status, the attempts, the last error, the pause and the time of the last change of a task.
    fn set_progress(&mut self, task: &Task) -> Result<(), Self::Error>;

    /// The runners that a task was taken over from.
    fn lost(&mut self, id: &str) -> Result<Vec<HolderId>, Self::Error>;

    /// Records the runners that a task was taken over from.
    fn set_lost(&mut self, id: &str, lost: &[HolderId]) -> Result<(), Self::Error>;

    /// Records the grant of a task's lease: the runner, its token, and the runners that it was taken over from
    /// ([`lost_after_grant`](super::follow::lost_after_grant)).
    fn set_granted(&mut self, id: &str, lease: &Lease) -> Result<(), Self::Error>;

    /// Records why the last lease of a task ended, for [`last_end`](Self::last_end). A store that finds it in its history
    /// records nothing.
    fn set_last_end(&mut self, _id: &str, _end: Option<&Evidence>) -> Result<(), Self::Error> {
        Ok(())
    }

    /// The tasks of a section that are in progress and were last granted to this runner.
    fn in_progress(&mut self, section: &str, runner: &HolderId)
    -> Result<Vec<String>, Self::Error>;

    /// Whether a section has an open task.
    fn has_open(&mut self, section: &str) -> Result<bool, Self::Error>;

    /// Why the last lease of a key ended, if the last that is known of it is that the lease expired or its holder
    /// died.
    fn last_end(&mut self, key: &Key) -> Result<Option<Evidence>, Self::Error>;

    /// The sections on which there is a lease, and the name of its holder.
    fn held_sections(&mut self) -> Result<Vec<(Key, HolderId)>, Self::Error>;

    /// Makes tasks ready whose pause ended before `now`, or ends after `horizon`.
    fn end_pauses(&mut self, now: Timestamp, horizon: Timestamp) -> Result<(), Self::Error>;

    /// When the first pause of a task ends that waits for nothing else.
    fn first_pause(&mut self) -> Result<Option<Timestamp>, Self::Error>;

    /// Some of the ready tasks, the best first.
    fn ready(&mut self, part: ReadyPart<'_>) -> Result<Vec<Candidate>, Self::Error>;

    /// The best ready task of each section.
    fn best_of_each_section(&mut self) -> Result<Vec<Candidate>, Self::Error>;

    /// Whether a task is open that no runner of another clone works on.
    fn any_open(&mut self) -> Result<bool, Self::Error>;
}

/// A part of the list of ready tasks.
#[derive(Debug, Clone, Copy)]
pub struct ReadyPart<'a> {
    /// Those of one section (`Some(None)`: those without a section), or of all.
    pub section: Option<Option<&'a str>>,
    /// How many to leave out, from the front.
    pub skip: usize,
    /// How many at most.
    pub limit: usize,
}

/// A ready task. The larger one goes first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Candidate {
    /// How urgent it is, from 0 to 9.
    pub priority: i64,
    /// When it was added, as a text that sorts by time.
    pub created_at: Reverse<String>,
    /// Its id.
    pub id: String,
    /// The id of its section.
    pub section: Option<String>,
}

/// The key of a section.
pub fn section_key(section: &Section) -> Result<Key, StoreError> {
    section.key().map_err(|error| bad_id(&section.id, &error))
}

/// The key of a task.
pub fn task_key(id: &str) -> Result<Key, StoreError> {
    key_of(id).map_err(|error| bad_id(id, &error))
}

/// The key that runners queue for when they look for any task.
pub fn any_task() -> Result<Key, StoreError> {
    task_key(ANY)
}

/// The keys that a task needs, in the order in which they are taken.
pub fn keys_of(task: &Task) -> Result<Vec<Key>, StoreError> {
    let mut keys = Vec::new();
    if let Some(section) = &task.section {
        keys.push(section_key(section)?);
    }
    keys.push(task_key(&task.id)?);
    Ok(keys)
}

/// An id that can't be part of a key. It came from the store, so another program wrote it.
pub(super) fn bad_id(id: &str, error: &BadName) -> StoreError {
    StoreError::new(
        ErrorKind::Damaged,
        format!("the id {id:?} can't be locked: {error}"),
    )
    .fix("another program wrote it; correct it in the store (sqlite3)")
}
