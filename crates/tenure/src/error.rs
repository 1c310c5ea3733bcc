//! Why something could not be done: [`Error`].

use std::path::PathBuf;

use jiff::Timestamp;
use tenure_core::{BadName, Busy, Cycle, Lease, StoreError};
use tenure_tasks::TaskError;

#[cfg(feature = "config")]
use crate::config::ConfigError;
use crate::open::BadUrl;
use crate::project::ProjectError;

/// Why something could not be done.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Another holder has the key. [`Busy::lease`] tells which one, since when, and until when.
    #[error("{}", held(.0))]
    Busy(Box<Busy>),
    /// To wait would never end: the holder of the key waits for a lease of the caller.
    #[error("waiting would never end: {0}")]
    Deadlock(Cycle),
    /// The wait was cancelled.
    #[error("the wait was cancelled")]
    Cancelled,
    /// The folder is in no project.
    #[error(
        "no tenure project in {} or any folder above it: run tenure init in the project's root",
        .0.display()
    )]
    NoProject(PathBuf),
    /// It can't be told which project the folder is in.
    #[error(transparent)]
    Project(#[from] ProjectError),
    /// The current folder can't be told.
    #[error("the current folder can't be read ({0}): change to one that exists")]
    Folder(std::io::Error),
    /// The settings can't be used.
    #[cfg(feature = "config")]
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The text is not the address of a store.
    #[error(transparent)]
    Url(#[from] BadUrl),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// Something about a task could not be done.
    #[error(transparent)]
    Task(TaskError),
    /// A key or holder can't be called that.
    #[error(transparent)]
    Name(#[from] BadName),
    /// A time to live that makes no sense.
    #[error("a lease of {given} can't be kept: give a time to live between {min} and {max}")]
    Ttl {
        /// What was asked for.
        given: String,
        /// The shortest.
        min: String,
        /// The longest.
        max: String,
    },
    /// A time to live, in a store whose leases do not expire.
    #[error(
        "a lock of this store does not expire, so it takes no time to live: it ends when it is released or when its process ends. Leave the time to live out"
    )]
    NoExpiry,
    /// The process a lease should be tied to is not there.
    #[error("there is no process {0} to tie the lease to: give the pid of a process that runs")]
    NoProcess(u32),
    /// The process a lease should be tied to can't be looked at.
    #[error("process {pid} can't be looked at ({error}): give the pid of a process of yours")]
    HiddenProcess {
        /// The pid.
        pid: u32,
        /// Why.
        error: std::io::Error,
    },
}

impl From<TaskError> for Error {
    fn from(error: TaskError) -> Self {
        match error {
            TaskError::Store(error) => Self::Store(error),
            other => Self::Task(other),
        }
    }
}

/// Who has the key that is busy, since when and until when.
fn held(busy: &Busy) -> String {
    let key = &busy.key;
    let Some((lease, _)) = busy.lease() else {
        let before = busy.behind.as_ref().map(ToString::to_string);
        let before = before.unwrap_or_else(|| "another waiter".to_owned());
        return format!("{key} is free, but {before} is before you in its queue");
    };
    let second = |at: Timestamp| at.strftime("%Y-%m-%dT%H:%M:%SZ");
    let since = lease.since().map(|at| format!(" since {}", second(at)));
    let end = lease.expires.as_ref().map(|end| end.wall);
    let end = end.filter(|at| *at != Lease::UNKNOWN_TIME);
    let until = end.map(|at| format!(", until {} unless it is renewed", second(at)));
    let (since, until) = (since.unwrap_or_default(), until.unwrap_or_default());
    format!("{key} is held by {}{since}{until}", lease.holder)
}
