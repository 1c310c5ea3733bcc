//! Tasks by status, for a view: [`columns`].

use std::cmp::Reverse;

use crate::config::{Config, Vocabulary};
use crate::task::Task;

/// A status and the tasks that have it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Column<'a> {
    /// The status.
    pub status: &'a str,
    /// Its tasks, the highest priority first.
    pub tasks: Vec<&'a Task>,
}

/// One column for each status that any task has, the lowest weight first.
pub fn columns<'a>(config: &'a Config, tasks: &'a [Task]) -> Vec<Column<'a>> {
    let column = |status: &'a str| {
        let mut tasks: Vec<&Task> = tasks
            .iter()
            .filter(|task| task.status.as_str() == status)
            .collect();
        // The sort is stable: tasks of one priority stay in the order of their files.
        tasks.sort_by_key(|task| Reverse(task.weight));
        Column { status, tasks }
    };
    config
        .levels(Vocabulary::Status)
        .iter()
        .map(|level| column(&level.name))
        .filter(|column| !column.tasks.is_empty())
        .collect()
}
