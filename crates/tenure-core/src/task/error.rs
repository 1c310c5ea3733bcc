//! Why something could not be done: [`TaskError`].

use super::{Section, Task};
use crate::error::StoreError;
use crate::lease::Lease;

/// A line of an import that can't be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadLine {
    /// Its number, from 1.
    pub number: usize,
    /// What is wrong with it.
    pub what: String,
}

/// Why something could not be done with a task or section. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TaskError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// No such task.
    #[error("there is no task {0:?}: see tenure tasks list")]
    NoTask(String),
    /// No such section.
    #[error(
        "there is no section {0:?}: see tenure sections list, or add it with tenure sections add"
    )]
    NoSection(String),
    /// Several could be meant.
    #[error("{given:?} could be any of {} tasks", candidates.len())]
    Ambiguous {
        /// What was given.
        given: String,
        /// Some of those that match.
        candidates: Vec<Task>,
    },
    /// Several sections could be meant.
    #[error("{given:?} could be any of several sections: {}", names(candidates))]
    AmbiguousSection {
        /// What was given.
        given: String,
        /// Those that match.
        candidates: Vec<Section>,
    },
    /// There is one of that name.
    #[error("there is a section {:?} already, with the id {}", .0.name, .0.id)]
    SectionExists(Section),
    /// A text that can't be used.
    #[error("the {what} {problem}")]
    BadText {
        /// Which text.
        what: &'static str,
        /// What is wrong and what to do.
        problem: String,
    },
    /// It would have to be done before itself.
    #[error("{task:?} can't depend on {on:?}: that one depends on it already")]
    Circle {
        /// The title of the one.
        task: String,
        /// The title of the other.
        on: String,
    },
    /// Something has to be done before.
    #[error("task {:?} can't be started: it waits for {}", task.title, titles(by))]
    Blocked {
        /// Which.
        task: Box<Task>,
        /// For what.
        by: Vec<Task>,
    },
    /// Somebody else holds it.
    #[error("task {:?} is locked by {}", task.title, lease.holder)]
    Locked {
        /// Which.
        task: Box<Task>,
        /// By whom.
        lease: Box<Lease>,
    },
    /// It was taken over from whoever asks.
    #[error("task {:?} was taken over", task.title)]
    Superseded {
        /// Which.
        task: Box<Task>,
        /// Who holds it now, if anybody.
        lease: Option<Box<Lease>>,
    },
    /// Lines of an import.
    #[error("{}", .0.iter().map(|line| format!("line {}: {}", line.number, line.what)).collect::<Vec<_>>().join("\n"))]
    BadLines(Vec<BadLine>),
}

fn names(sections: &[Section]) -> String {
    let names = sections.iter().map(|section| section.name.as_str());
    names.collect::<Vec<_>>().join(", ")
}

fn titles(tasks: &[Task]) -> String {
    let titles = tasks
        .iter()
        .map(|task| format!("{:?} ({})", task.title, task.status));
    titles.collect::<Vec<_>>().join(", ")
}
