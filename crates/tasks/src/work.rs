//! A runner's request for a task, and the answers.

use std::time::Duration;

use tenure_core::claim::{Claim, Patience, Priority};
use tenure_core::holder::{Binding, Holder};
use tenure_core::key::{Key, KeyKind};
use tenure_core::lease::{Lease, Token};
use tenure_core::mode::Mode;
use tenure_core::store::Reason;

use super::{Status, Task};

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
