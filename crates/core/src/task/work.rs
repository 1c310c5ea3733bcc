//! A runner's request for a task, and the answers.

use std::time::Duration;

use jiff::Timestamp;

use super::{Status, Task};
use crate::claim::{Claim, Patience, Priority};
use crate::holder::{Binding, Holder};
use crate::key::{Key, KeyKind};
use crate::lease::{Lease, Token};
use crate::mode::Mode;
use crate::store::Reason;

/// Why there is no task to take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shortage {
    /// Some are ready, but other runners hold them or their sections, or are first in the queue.
    Locked,
    /// Some failed and will be retried.
    Later {
        /// When the first of them will be.
        at: Timestamp,
    },
    /// The remaining tasks depend on tasks that no runner works on.
    Blocked,
    /// The only ready tasks are ones that the runner leaves to others ([`Runner::leaves`]).
    LeftToOthers,
    /// No open task is left.
    NothingLeft,
}

/// A program that works on tasks.
#[derive(Debug, Clone)]
pub struct Runner {
    /// The holder of its leases.
    pub holder: Holder,
    /// See [`Claim::asker`].
    pub asker: Binding,
    /// See [`Claim::named`].
    pub named: bool,
    /// How long a task's lease lasts unless it is renewed.
    pub task_ttl: Duration,
    /// How long a section's lease lasts.
    pub section_ttl: Duration,
    /// The priority of its claims.
    pub priority: Priority,
    /// What to do when no task is available.
    pub patience: Patience,
    /// See [`Claim::within`].
    pub within: Vec<Token>,
    /// The ids of tasks that it does not take when it asks for any task.
    pub leaves: Vec<String>,
    /// Whether it also begins a certain task that is done by now. Otherwise
    /// [`TaskError::Done`](super::TaskError::Done) is the answer, and nothing is written.
    pub reopens: bool,
}

impl Runner {
    /// Its claim on this key.
    pub fn claim(&self, key: Key) -> Claim {
        let ttl = match key.kind() {
            KeyKind::Section(_) => self.section_ttl,
            KeyKind::Task(_) | KeyKind::Node(_) | KeyKind::Named(_) => self.task_ttl,
        };
        Claim {
            key,
            mode: Mode::Exclusive,
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

/// A task that was begun, and its leases.
#[derive(Debug, Clone)]
pub struct Started {
    /// The task, as it is now.
    pub task: Task,
    /// The status that it had before.
    pub was: Status,
    /// Its own lease.
    pub lease: Lease,
    /// Why the lease was granted.
    pub reason: Reason,
    /// Its section's lease.
    pub section: Option<Lease>,
}

/// How work on a task ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// The caller sets this status.
    To(Status),
    /// It failed, and is not retried.
    Failed {
        /// The error.
        error: String,
    },
    /// It failed, and will be retried.
    Retry {
        /// The error.
        error: String,
    },
    /// The holder stops working on it.
    GiveBack,
}

impl Change {
    /// The resulting status.
    pub fn status(&self) -> Status {
        match self {
            Self::To(status) => *status,
            Self::Failed { .. } => Status::Failed,
            Self::Retry { .. } | Self::GiveBack => Status::Pending,
        }
    }
}

/// A task that was changed, and the keys that were released with it.
#[derive(Debug, Clone)]
pub struct Changed {
    /// The task, as it is now.
    pub task: Task,
    /// The status that it had before.
    pub was: Status,
    /// The keys that were released.
    pub freed: Vec<Key>,
}
