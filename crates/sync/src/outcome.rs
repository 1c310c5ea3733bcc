//! What a sync reports on the way, [`SyncEvent`], and how it ends, [`SyncOutcome`] or [`SyncError`].

use std::fmt;
use std::io;

use tenure::text::plural;
use tenure_core::StoreError;
use tenure_tasks::{MergeSummary, TaskError};

use super::LEGACY;
use super::repository::LOCAL;
use tenure_git::GitError;

/// Something that happened during a sync. Its text is a line for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SyncEvent {
    /// Another sync of this project runs, and this one waits for it.
    Waiting,
    /// Changes of other clones were merged into the database.
    Merged {
        /// Where they came from.
        from: String,
        /// What changed.
        changes: MergeSummary,
    },
    /// Changes of other clones to this many tasks are not applied yet, because the tasks are being worked on
    /// here.
    Deferred {
        /// How many tasks.
        tasks: u64,
    },
    /// The file in which clones shared tasks earlier was read for the last time.
    Moved,
}

impl fmt::Display for SyncEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Waiting => f.write_str("Waiting for another sync of this project..."),
            Self::Merged { from, changes } => {
                let parts = [
                    (changes.added, "task", "added"),
                    (changes.changed, "task", "changed"),
                    (changes.deleted, "task", "deleted"),
                    (changes.sections, "section", "added"),
                    (changes.deleted_sections, "section", "deleted"),
                    (changes.circles, "dependency", "dropped that closed a cycle"),
                ];
                let parts: Vec<String> = parts
                    .iter()
                    .filter(|(count, ..)| *count > 0)
                    .map(|(count, noun, what)| format!("{} {what}", plural::count(*count, noun)))
                    .collect();
                write!(f, "Merged with {from}: {}", parts.join(", "))
            }
            Self::Deferred { tasks } => {
                let are = if *tasks == 1 { "is" } else { "are" };
                write!(
                    f,
                    "{} {are} being worked on here: changes from other clones wait until that is done",
                    plural::count(*tasks, "task")
                )
            }
            Self::Moved => write!(
                f,
                "Read {LEGACY}: tasks travel on {LOCAL} now, and the file can be removed from the branch: git rm {LEGACY}"
            ),
        }
    }
}

/// How a sync ended.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub enum SyncOutcome {
    /// Sync is disabled in the settings.
    Off,
    /// There was nothing to sync.
    UpToDate,
    /// Tasks were exchanged; with whom.
    Synced(String),
    /// It can't be done now, and why. Local changes are safe, and the next sync tries again.
    PutOff(String),
    /// It failed, and why.
    Failed(String),
}

impl fmt::Display for SyncOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("Sync is off (sync.enabled)"),
            Self::UpToDate => f.write_str("Nothing to sync"),
            Self::Synced(what) => f.write_str(what),
            Self::PutOff(why) => write!(f, "Sync put off: {why}"),
            Self::Failed(why) => write!(f, "Sync failed: {why}"),
        }
    }
}

/// Why the tasks can't be shared, or their history not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SyncError {
    /// Git failed.
    #[error(transparent)]
    Git(#[from] GitError),
    /// The store failed.
    #[error(transparent)]
    Task(#[from] TaskError),
    /// The project's folder can't be written.
    #[error("the project's folder can't be written ({0})")]
    Folder(io::Error),
    /// Which file can't be parsed, and why.
    #[error("{0} can't be read: {1}. Correct it; nothing was changed")]
    Unreadable(String, String),
    /// The commit holds something else than tasks.
    #[error(
        "commit {0} holds something else than tenure's tasks: set sync.ref to a ref of its own"
    )]
    Foreign(String),
    /// Anything else.
    #[error("{0}")]
    Other(String),
}

impl From<StoreError> for SyncError {
    fn from(error: StoreError) -> Self {
        Self::Task(error.into())
    }
}

impl From<SyncError> for SyncOutcome {
    fn from(error: SyncError) -> Self {
        let text = error.to_string();
        match error {
            SyncError::Git(GitError::Refused { .. } | GitError::Io(_))
            | SyncError::Task(_)
            | SyncError::Folder(_) => Self::Failed(text),
            _ => Self::PutOff(text),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_count_in_the_singular_and_the_plural() {
        let changes = MergeSummary {
            sections: 1,
            added: 2,
            circles: 2,
            ..MergeSummary::default()
        };
        let from = "origin".to_owned();
        let event = SyncEvent::Merged { from, changes };
        assert_eq!(
            event.to_string(),
            "Merged with origin: 2 tasks added, 1 section added, 2 dependencies dropped that closed a cycle"
        );
        let one = SyncEvent::Deferred { tasks: 1 }.to_string();
        assert!(one.starts_with("1 task is being worked on here"), "{one}");
    }
}
