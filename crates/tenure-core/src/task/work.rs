//! Working on tasks: who asks, and what the answers are.

use std::time::Duration;

use jiff::Timestamp;

use super::{Status, Task};
use crate::claim::{Claim, Patience, Priority};
use crate::holder::{Binding, Holder};
use crate::key::{Key, KeyKind};
use crate::lease::{Lease, Token};
use crate::store::Reason;

/// Why there is no task to take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shortage {
    /// Some could be taken, but others hold them or their sections, or come first.
    Locked,
    /// Some failed and are to be tried again.
    Later {
        /// When the first of them is.
        at: Timestamp,
    },
    /// What is left waits for tasks that nobody works on.
    Blocked,
    /// Nothing is left to be done.
    NothingLeft,
}

/// Somebody who works on tasks.
#[derive(Debug, Clone)]
pub struct Runner {
    /// Who.
    pub holder: Holder,
    /// See [`Claim::asker`].
    pub asker: Binding,
    /// See [`Claim::named`].
    pub named: bool,
    /// How long a task's lease lasts unless it is renewed.
    pub task_ttl: Duration,
    /// How long a section's does.
    pub section_ttl: Duration,
    /// How urgently it asks.
    pub priority: Priority,
    /// What to do when there is nothing to be had.
    pub patience: Patience,
    /// See [`Claim::within`].
    pub within: Vec<Token>,
    /// The ids of tasks that it leaves to others, when it looks for any.
    pub leaves: Vec<String>,
}

impl Runner {
    /// What it asks for when it asks for this key.
    pub fn claim(&self, key: Key) -> Claim {
        let ttl = match key.kind() {
            KeyKind::Section(_) => self.section_ttl,
            KeyKind::Task(_) | KeyKind::Node(_) | KeyKind::Named(_) => self.task_ttl,
        };
        Claim {
            key,
            holder: self.holder.clone(),
            asker: self.asker.clone(),
            named: self.named,
            ttl,
            priority: self.priority,
            patience: self.patience,
            within: self.within.clone(),
        }
    }
}

/// A task that was begun, and the leases it is worked on under.
#[derive(Debug, Clone)]
pub struct Started {
    /// The task, as it is now.
    pub task: Task,
    /// The status it had.
    pub was: Status,
    /// Its own lease.
    pub lease: Lease,
    /// Why that was granted.
    pub reason: Reason,
    /// Its section's lease.
    pub section: Option<Lease>,
}

/// What becomes of a task.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// It gets this status, by hand.
    To(Status),
    /// It failed, for good.
    Failed {
        /// Of what.
        error: String,
    },
    /// It failed, and is to be tried again.
    Retry {
        /// Of what.
        error: String,
    },
    /// Whoever had it stops working on it.
    GiveBack,
}

impl Change {
    /// The status it has then.
    pub fn status(&self) -> Status {
        match self {
            Self::To(status) => *status,
            Self::Failed { .. } => Status::Failed,
            Self::Retry { .. } | Self::GiveBack => Status::Pending,
        }
    }
}

/// A task that was changed, and what was given back with that.
#[derive(Debug, Clone)]
pub struct Changed {
    /// The task, as it is now.
    pub task: Task,
    /// The status it had.
    pub was: Status,
    /// The keys that were freed.
    pub freed: Vec<Key>,
}
