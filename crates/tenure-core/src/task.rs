//! What there is to do: [`Task`] and [`Section`], and the rules for working on them.
//!
//! A task is worked on under two leases, its section's and its own, which are taken together or
//! not at all. Whoever has the section may take its tasks one after another; everybody else waits
//! for the section.
//!
//! | module | what it holds |
//! |---|---|
//! | [`rules`] | who may change a task, which one is next, when to try again |
//! | [`work`] | who asks for a task, and what the answers are |
//! | [`check`] | which texts and ids can be used |
//! | [`store`] | [`TaskStore`]: where tasks live |
//! | [`replica`] | what several clones share, and how two of them become one |
//! | [`error`] | [`TaskError`]: why something could not be done |

pub mod check;
pub mod error;
pub mod replica;
pub mod rules;
pub mod store;
pub mod work;

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

pub use self::check::{check_description, check_id, check_title, tidy};
pub use self::error::{BadLine, TaskError};
pub use self::replica::{Progress, Replica, SectionCopy, Stamped, TaskCopy};
pub use self::rules::{
    LONGEST_BACKOFF, Offer, Permission, Picker, Proof, Standing, backoff, may_change,
};
pub use self::store::{
    DeletedTask, ImportSummary, MergeSummary, SectionSummary, SyncState, TaskStore, Withdrawal,
};
pub use self::work::{Change, Changed, Runner, Shortage, Started};
use crate::claim::Priority;
use crate::holder::HolderId;
use crate::key::{BadName, Key};
use crate::lease::Token;

/// Where a task stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// To be done.
    Pending,
    /// Somebody works on it, or did until it crashed.
    InProgress,
    /// Done, and to be looked at by somebody else.
    Review,
    /// Done.
    Completed,
    /// Tried, and given up.
    Failed,
    /// Not to be done.
    Skipped,
}

impl Status {
    /// All of them, in the order in which lists show them.
    pub const ALL: [Self; 6] = [
        Self::InProgress,
        Self::Pending,
        Self::Review,
        Self::Failed,
        Self::Completed,
        Self::Skipped,
    ];

    /// The one word for it.
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

    /// Whether those that depend on it may begin.
    pub fn is_done(self) -> bool {
        matches!(self, Self::Completed | Self::Skipped)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// Not a status.
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

/// Something to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// Its id.
    pub id: String,
    /// What it is, in a line.
    pub title: String,
    /// What it is, at length.
    pub description: Option<String>,
    /// The section it belongs to.
    pub section: Option<Section>,
    /// Where it stands.
    pub status: Status,
    /// How urgent it is.
    pub priority: Priority,
    /// The ids of those that have to be done before.
    pub depends_on: Vec<String>,
    /// How many of those are not done.
    pub blockers: u64,
    /// When it was added.
    pub created_at: Timestamp,
    /// When it was last changed.
    pub updated_at: Timestamp,
    /// How many attempts failed.
    pub attempts: u64,
    /// What the last of them ended with.
    pub last_error: Option<String>,
    /// When it is to be tried again.
    pub not_before: Option<Timestamp>,
    /// Who was granted it last.
    pub runner: Option<HolderId>,
    /// With which token; [`Token::NONE`] if nobody ever was.
    pub token: Token,
    /// Whether somebody works on it in another clone, as far as is known here.
    pub elsewhere: bool,
}

/// A value that a field of a task had, or that was refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Past {
    /// Which field.
    pub field: String,
    /// What it was; empty for none.
    pub value: String,
    /// When it was set.
    pub at: Timestamp,
    /// When the value that took its place was set.
    pub until: Timestamp,
    /// How it came to that.
    pub cause: Cause,
}

/// How a value came to be in the past.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Cause {
    /// Somebody changed it here.
    Changed,
    /// A change in another clone took its place.
    Merged,
    /// It came from another clone, and a later change stood against it.
    Overruled,
}

impl Task {
    /// The key of its lock.
    pub fn key(&self) -> Result<Key, BadName> {
        key_of(&self.id)
    }
}

/// The key of the task with this id.
pub fn key_of(id: &str) -> Result<Key, BadName> {
    Key::parse(format!("task:{id}"))
}

/// The id that stands for any task: those who wait for one to become ready queue for this key,
/// which nobody ever holds.
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
    /// Only those that can be begun.
    pub ready: bool,
    /// At most so many.
    pub limit: Option<usize>,
}

/// A task that is to be added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewTask {
    /// What it is, in a line.
    pub title: String,
    /// What it is, at length.
    pub description: Option<String>,
    /// The id of its section.
    pub section: Option<String>,
    /// How urgent it is.
    pub priority: Priority,
    /// The ids of those that have to be done before.
    pub depends_on: Vec<String>,
}

/// What is to be changed of a task, besides its status.
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
    /// Ids that have to be done before, in addition.
    pub add_dependencies: Vec<String>,
    /// Ids that no longer have to be.
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
