//! Tasks and sections, and the rules for working on them. Pure, as the core: no I/O, no threads, no clock.
//!
//! A runner works on a task under two leases, one for the task and one for its section. It takes both
//! or neither. The holder of a section may take its tasks one after another; other runners wait for
//! the section.
//!
//! | module | contents |
//! |---|---|
//! | [`rules`] | who may change a task, which task is next, when to retry |
//! | [`work`] | a runner's request for a task, and the answers |
//! | [`check`] | which texts and ids are valid |
//! | [`store`] | [`TaskStore`]: the trait of a store that holds tasks |
//! | [`step`] | [`TaskStep`]: what the verbs below need of a store's atomic step |
//! | [`flow`] | beginning and ending work, with locks |
//! | [`edit`] | adding, changing and deleting |
//! | [`mod@follow`] | what a change of a lease means for its task: the hook of the engine |
//! | [`sections`] | a section's lease between two tasks of its runner |
//! | [`mod@next`] | the best ready task |
//! | [`mod@find`] | which task or section a caller means |
//! | [`lines`] | the lines of an import and an export |
//! | [`replica`] | the state that clones share, and how it is merged |
//! | [`error`] | [`TaskError`]: why a verb failed |

pub mod check;
pub mod edit;
pub mod error;
pub mod find;
pub mod flow;
pub mod follow;
pub mod lines;
pub mod next;
pub mod replica;
pub mod rules;
pub mod sections;
pub mod step;
pub mod store;
pub mod work;

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tenure_core::claim::Priority;
use tenure_core::holder::HolderId;
use tenure_core::key::{BadName, Key};
use tenure_core::lease::Token;
pub use tenure_core::store::{Shortage, Withdrawal};

pub use self::check::{check_description, check_id, check_title, tidy};
pub use self::error::{BadLine, TaskError};
pub use self::replica::{Progress, Replica, SectionCopy, Stamped, TaskCopy};
pub use self::rules::{
    LONGEST_BACKOFF, Offer, Permission, Picker, Proof, TaskState, backoff, may_change,
};
pub use self::step::TaskStep;
pub use self::store::{
    DeletedSection, DeletedTask, ImportSummary, MergeSummary, SectionSummary, SyncState, TaskStore,
};
pub use self::work::{Change, Changed, Runner, Started};

/// The status of a task.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// Not started.
    Pending,
    /// A runner works on it, or did until it crashed.
    InProgress,
    /// Done, and waiting for a review.
    Review,
    /// Done.
    Completed,
    /// All attempts failed.
    Failed,
    /// Will not be done.
    Skipped,
}

impl Status {
    /// Every status, in the order in which lists show them.
    pub const ALL: [Self; 6] = [
        Self::InProgress,
        Self::Pending,
        Self::Review,
        Self::Failed,
        Self::Completed,
        Self::Skipped,
    ];

    /// The word that stands for it in output and in stores.
    pub fn word(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::InProgress => "in_progress",
            Self::Review => "review",
            Self::Completed => "completed",
            Self::Failed => "failed",
            Self::Skipped => "skipped",
        }
    }

    /// Whether a runner may still take it.
    pub fn is_open(self) -> bool {
        matches!(self, Self::Pending | Self::InProgress)
    }

    /// Whether the work is done. A failed task is not: another runner may try it.
    pub fn is_finished(self) -> bool {
        matches!(self, Self::Review | Self::Completed | Self::Skipped)
    }

    /// Whether tasks that depend on it may begin.
    pub fn is_done(self) -> bool {
        matches!(self, Self::Completed | Self::Skipped)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// The text is not a status.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not a status: write pending, in_progress, review, completed, failed or skipped")]
pub struct BadStatus(String);

impl std::str::FromStr for Status {
    type Err = BadStatus;

    fn from_str(text: &str) -> Result<Self, BadStatus> {
        Self::ALL
            .into_iter()
            .find(|status| status.word() == text)
            .ok_or_else(|| BadStatus(text.to_owned()))
    }
}

/// A part of the project that one runner works on at a time.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub struct Section {
    /// Its id.
    pub id: String,
    /// Its name, which no other section has.
    pub name: String,
}

impl Section {
    /// The key of its lock.
    pub fn key(&self) -> Result<Key, BadName> {
        Key::parse(format!("section:{}", self.id))
    }
}

/// A unit of work.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// Its id.
    pub id: String,
    /// The title: one line.
    pub title: String,
    /// The description.
    pub description: Option<String>,
    /// The section it belongs to.
    pub section: Option<Section>,
    /// Its status.
    pub status: Status,
    /// How urgent it is.
    pub priority: Priority,
    /// The ids of the tasks that it depends on.
    pub depends_on: Vec<String>,
    /// How many of those are not done yet.
    pub blockers: u64,
    /// When it was added.
    pub created_at: Timestamp,
    /// When it was last changed.
    pub updated_at: Timestamp,
    /// How many attempts failed.
    pub attempts: u64,
    /// The error of the last failed attempt.
    pub last_error: Option<String>,
    /// When to retry it.
    pub not_before: Option<Timestamp>,
    /// The last holder.
    pub runner: Option<HolderId>,
    /// The token of that grant; [`Token::NONE`] if it was never granted.
    pub token: Token,
    /// Whether a runner works on it in another clone, as of the last sync.
    pub elsewhere: bool,
    /// What another program wrote into it that can't be understood. Those fields have stand-ins here, and `next`
    /// passes over the task if they decide its place.
    pub problem: Option<String>,
}

/// An earlier or rejected value of a task's field.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Past {
    /// The field.
    pub field: String,
    /// The value; empty for none.
    pub value: String,
    /// When it was set.
    pub at: Timestamp,
    /// When the value that replaced it was set.
    pub until: Timestamp,
    /// Why it is not the current value.
    pub cause: Cause,
}

/// Why a value is not the current one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// It was changed in this clone.
    Changed,
    /// A change from another clone replaced it.
    Merged,
    /// It came from another clone, and a later change wins over it.
    Overruled,
}

impl Task {
    /// A pending task, of which nothing more is known.
    pub fn new(id: String, title: String, added: Timestamp) -> Self {
        Self {
            id,
            title,
            description: None,
            section: None,
            status: Status::Pending,
            priority: Priority::default(),
            depends_on: Vec::new(),
            blockers: 0,
            created_at: added,
            updated_at: added,
            attempts: 0,
            last_error: None,
            not_before: None,
            runner: None,
            token: Token::NONE,
            elsewhere: false,
            problem: None,
        }
    }

    /// The key of its lock.
    pub fn key(&self) -> Result<Key, BadName> {
        key_of(&self.id)
    }
}

/// The key of the task with this id.
pub fn key_of(id: &str) -> Result<Key, BadName> {
    Key::parse(format!("task:{id}"))
}

/// The id that stands for any task. Runners that wait for a task to become ready queue for this key,
/// which is never granted.
pub const ANY: &str = "*";

/// Which tasks to list.
#[derive(Debug, Clone, Default)]
pub struct TaskQuery {
    /// With this status.
    pub status: Option<Status>,
    /// In the section with this id.
    pub section: Option<String>,
    /// With this in the title, in any case of letters.
    pub search: Option<String>,
    /// Only tasks that can be begun.
    pub ready: bool,
    /// At most this many.
    pub limit: Option<usize>,
}

/// A new task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewTask {
    /// The title: one line.
    pub title: String,
    /// The description.
    pub description: Option<String>,
    /// The id of its section.
    pub section: Option<String>,
    /// How urgent it is.
    pub priority: Priority,
    /// The ids of the tasks that it depends on.
    pub depends_on: Vec<String>,
}

/// Changes to a task's fields other than its status.
#[derive(Debug, Clone, Default)]
pub struct Edit {
    /// A new title.
    pub title: Option<String>,
    /// A new description; an empty one removes it.
    pub description: Option<String>,
    /// The id of another section; an empty one removes it from its section.
    pub section: Option<String>,
    /// Another priority.
    pub priority: Option<Priority>,
    /// Ids of tasks that it depends on from now on.
    pub add_dependencies: Vec<String>,
    /// Ids of tasks that it no longer depends on.
    pub drop_dependencies: Vec<String>,
}

impl Edit {
    /// Whether it changes nothing.
    pub fn is_empty(&self) -> bool {
        self.title.is_none()
            && self.description.is_none()
            && self.section.is_none()
            && self.priority.is_none()
            && self.add_dependencies.is_empty()
            && self.drop_dependencies.is_empty()
    }
}
