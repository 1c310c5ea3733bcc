//! How a sync ends: [`Outcome`], and why it may not come to its end.

use std::fmt;
use std::io;

use tenure::core::TaskError;

use super::TASKS;
use super::git::Trouble;

/// How a sync ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The settings say that there is to be none.
    Off,
    /// There was nothing to do.
    Nothing,
    /// Everything is as the others have it, and they can have what is here.
    Done(String),
    /// Something stands in the way that goes away by itself or by somebody's hand; what is here is
    /// kept, and the next time tries again.
    PutOff(String),
    /// It went wrong.
    Failed(String),
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Off => f.write_str("Sync is off (sync.enabled)"),
            Self::Nothing => f.write_str("Nothing to sync"),
            Self::Done(what) => f.write_str(what),
            Self::PutOff(why) => write!(f, "Sync put off: {why}"),
            Self::Failed(why) => write!(f, "Sync failed: {why}"),
        }
    }
}

/// Why a sync did not come to its end.
pub(super) enum Failure {
    Git(Trouble),
    Task(TaskError),
    /// Something with the file: what, and the system's words.
    File(&'static str, io::Error),
    /// A copy of the file that can't be read: where, and why.
    Bad(String, String),
}

impl From<Trouble> for Failure {
    fn from(trouble: Trouble) -> Self {
        Self::Git(trouble)
    }
}

impl From<TaskError> for Failure {
    fn from(error: TaskError) -> Self {
        Self::Task(error)
    }
}

impl From<Failure> for Outcome {
    fn from(failure: Failure) -> Self {
        match failure {
            Failure::Git(trouble @ (Trouble::Missing | Trouble::Stopped | Trouble::TimedOut)) => {
                Self::PutOff(trouble.to_string())
            }
            Failure::Git(Trouble::Refused { words, .. }) if is_nameless(&words) => Self::PutOff(
                "git knows no name for your commits: git config user.name NAME; git config user.email ADDRESS"
                    .into(),
            ),
            Failure::Git(trouble) => Self::Failed(trouble.to_string()),
            Failure::Task(error) => Self::Failed(error.to_string()),
            Failure::File(what, error) => {
                Self::Failed(format!("{TASKS} can't be {what} ({error})"))
            }
            Failure::Bad(place, why) => Self::PutOff(format!(
                "{place} can't be read: {why}. Correct it, or remove the file; nothing was changed"
            )),
        }
    }
}

/// What git says when it does not know who commits.
fn is_nameless(words: &str) -> bool {
    let known = [
        "tell me who you are",
        "ident name",
        "auto-detect email",
        "auto-detection is disabled",
    ];
    known.iter().any(|known| words.contains(known))
}
