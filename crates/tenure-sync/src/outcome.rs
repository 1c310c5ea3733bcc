//! What a sync reports on the way, [`SyncEvent`], and how it ends, [`SyncOutcome`].

use std::fmt;
use std::io;

use tenure::plural;
use tenure_core::TaskError;
use tenure_core::task::MergeSummary;

use super::TASKS;
use super::git::GitError;

/// Something that happened during a sync. Its text is a line for people.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SyncEvent {
    /// Another sync of this project runs, and this one waits for it.
    Waiting,
    /// Changes of other clones were merged into the database.
    Merged {
        /// The remote branch they came from.
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

/// Why a sync could not be finished.
pub(super) enum Failure {
    Git(GitError),
    Task(TaskError),
    /// What could not be done to the shared file, and why.
    File(&'static str, io::Error),
    /// Which copy of the shared file can't be parsed, and why.
    Unreadable(String, String),
}

impl From<GitError> for Failure {
    fn from(error: GitError) -> Self {
        Self::Git(error)
    }
}

impl From<TaskError> for Failure {
    fn from(error: TaskError) -> Self {
        Self::Task(error)
    }
}

impl From<Failure> for SyncOutcome {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Git(error @ (GitError::Missing | GitError::Stopped | GitError::TimedOut)) => {
                Self::PutOff(error.to_string())
            }
            Failure::Git(GitError::Refused { words, .. }) if is_nameless(&words) => Self::PutOff(
                "git does not know your name: git config user.name NAME; git config user.email ADDRESS"
                    .into(),
            ),
            Failure::Git(error) => Self::Failed(error.to_string()),
            Failure::Task(error) => Self::Failed(error.to_string()),
            Failure::File(what, error) => {
                Self::Failed(format!("{TASKS} can't be {what} ({error})"))
            }
            Failure::Unreadable(place, why) => Self::PutOff(format!(
                "{place} can't be read: {why}. Correct it, or remove the file; nothing was changed"
            )),
        }
    }
}

/// Whether git complains that it does not know the user's name.
fn is_nameless(words: &str) -> bool {
    let known = [
        "tell me who you are",
        "ident name",
        "auto-detect email",
        "auto-detection is disabled",
    ];
    known.iter().any(|known| words.contains(known))
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
        let from = "origin/main".to_owned();
        let event = SyncEvent::Merged { from, changes };
        assert_eq!(
            event.to_string(),
            "Merged with origin/main: 2 tasks added, 1 section added, 2 dependencies dropped that closed a cycle"
        );
        let one = SyncEvent::Deferred { tasks: 1 }.to_string();
        assert!(one.starts_with("1 task is being worked on here"), "{one}");
    }
}
