//! Why a verb on a task or section failed: [`TaskError`].

use tenure_core::error::StoreError;
use tenure_core::lease::Lease;

use super::{Section, Task};

/// A line of an import that can't be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BadLine {
    /// Its number, from 1.
    pub number: usize,
    /// What is wrong with it.
    pub what: String,
}

/// Why a verb on a task or section failed. Nothing was changed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TaskError {
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// No such task.
    #[error("there is no task {0:?}: see tenure tasks list")]
    NoTask(String),
    /// The name may stand for a task that was deleted.
    #[error(
        "there is no task {given:?}: {title:?} ({id}) was deleted; name another task by its whole id or title"
    )]
    Deleted {
        /// The text that was given.
        given: String,
        /// The id of the deleted task.
        id: String,
        /// Its title.
        title: String,
    },
    /// No such section.
    #[error(
        "there is no section {0:?}: see tenure sections list, or add it with tenure sections add"
    )]
    NoSection(String),
    /// Several tasks match.
    #[error("{given:?} could be any of {} tasks", candidates.len())]
    Ambiguous {
        /// The text that was given.
        given: String,
        /// Some of the tasks that match.
        candidates: Vec<Task>,
    },
    /// Several sections match.
    #[error("{given:?} could be any of several sections: {}", names(candidates))]
    AmbiguousSection {
        /// The text that was given.
        given: String,
        /// The sections that match.
        candidates: Vec<Section>,
    },
    /// A section with that name exists.
    #[error("there is a section {:?} already, with the id {}", .0.name, .0.id)]
    SectionExists(Section),
    /// The section to delete has tasks.
    #[error("section {:?} has {}", section.name, tasks_of(*tasks, *open))]
    SectionInUse {
        /// Which.
        section: Section,
        /// How many tasks it has.
        tasks: u64,
        /// How many of them are open.
        open: u64,
    },
    /// Another runner holds the section to delete.
    #[error("section {:?} is locked by {}", section.name, lease.holder)]
    SectionLocked {
        /// Which.
        section: Section,
        /// The holder.
        lease: Box<Lease>,
    },
    /// An invalid text.
    #[error("the {what} {problem}")]
    BadText {
        /// Which text.
        what: &'static str,
        /// What is wrong and what to do.
        problem: String,
    },
    /// The dependency would close a cycle.
    #[error("{task:?} can't depend on {on:?}: that one depends on it already")]
    Circle {
        /// The title of the task that would depend on the other.
        task: String,
        /// The title of the task that already depends on it.
        on: String,
    },
    /// The task depends on one that is not done.
    #[error("task {:?} can't be started: it waits for {}", task.title, titles(by))]
    Blocked {
        /// Which.
        task: Box<Task>,
        /// The task that depends on it.
        by: Vec<Task>,
    },
    /// Another runner finished it, and the caller did not mean to begin it again.
    #[error("task {:?} is {} by now", task.title, task.status)]
    Done {
        /// Which.
        task: Box<Task>,
    },
    /// Another holder has it.
    #[error("task {:?} is locked by {}", task.title, lease.holder)]
    Locked {
        /// Which.
        task: Box<Task>,
        /// The holder.
        lease: Box<Lease>,
    },
    /// Another holder has a task that a line of an import changes.
    #[error("line {number}: task {:?} is locked by {}", task.title, lease.holder)]
    LockedLine {
        /// The number of the line, from 1.
        number: usize,
        /// Which.
        task: Box<Task>,
        /// The holder.
        lease: Box<Lease>,
    },
    /// Another holder took it over from the caller.
    #[error("task {:?} was taken over", task.title)]
    Superseded {
        /// Which.
        task: Box<Task>,
        /// Who holds it now, if it is held.
        lease: Option<Box<Lease>>,
    },
    /// Lines of an import that can't be read.
    #[error("{}", .0.iter().map(|line| format!("line {}: {}", line.number, line.what)).collect::<Vec<_>>().join("\n"))]
    BadLines(Vec<BadLine>),
}

impl TaskError {
    pub(crate) fn bad_text(what: &'static str, problem: impl Into<String>) -> Self {
        let problem = problem.into();
        Self::BadText { what, problem }
    }
}

fn tasks_of(tasks: u64, open: u64) -> String {
    let noun = if tasks == 1 { "task" } else { "tasks" };
    match open {
        0 => format!("{tasks} {noun}, none of them open"),
        open if open == tasks => format!("{tasks} open {noun}"),
        open => format!("{tasks} {noun}, {open} of them open"),
    }
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
