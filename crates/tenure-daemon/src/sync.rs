//! The project's tasks, shared through git.

use std::fmt;

use tenure::{Project, Tenure};

/// How a sync ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
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
            Self::Done(what) => f.write_str(what),
            Self::PutOff(why) => write!(f, "Sync put off: {why}"),
            Self::Failed(why) => write!(f, "Sync failed: {why}"),
        }
    }
}

/// Shares the tasks of a project. `stop` is asked between the steps (and while git runs) and ends
/// the sync early when it says so; `say` is told, a line each, what was done on the way.
pub fn sync(
    _project: &Project,
    _tenure: &Tenure,
    _stop: &dyn Fn() -> bool,
    _say: &mut dyn FnMut(&str),
) -> Outcome {
    Outcome::Done("Nothing to sync.".into())
}
