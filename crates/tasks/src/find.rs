//! Which task or section a caller means.
//!
//! 1. A whole id or a whole title always means the task that has it.
//! 2. A title in another case of letters, and a prefix of an id, are accepted only where no deleted task could have
//!    been meant. A command that is repeated after a deletion therefore never reaches another task.

use super::{Section, Task, TaskError};

/// How many candidates an ambiguous name lists at most.
pub const CANDIDATES: usize = 20;

/// The shortest prefix of an id that is accepted.
pub const SHORTEST_PREFIX: usize = 4;

/// The names of a store's tasks. Each list has [`CANDIDATES`] entries at most.
pub trait TaskNames {
    /// Why the store can't be read.
    type Error: From<TaskError>;

    /// The task with this whole id.
    fn with_id(&mut self, id: &str) -> Result<Option<Task>, Self::Error>;

    /// The tasks with this title, in any case of ASCII letters, the oldest first.
    fn titled(&mut self, title: &str) -> Result<Vec<Task>, Self::Error>;

    /// The tasks whose id begins so.
    fn beginning(&mut self, prefix: &str) -> Result<Vec<Task>, Self::Error>;

    /// A deleted task whose id begins with `id`, or that had this title, in any case of ASCII letters.
    fn deleted(&mut self, id: &str, title: &str) -> Result<Option<DeletedName>, Self::Error>;
}

/// The names of a task that was deleted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeletedName {
    /// Its id.
    pub id: String,
    /// Its title.
    pub title: String,
}

/// The task that a caller means by an id, a title, or a unique prefix of an id.
pub fn find_task<N: TaskNames>(names: &mut N, given: &str) -> Result<Task, N::Error> {
    let id = given.strip_prefix("task:").unwrap_or(given);
    for id in [given, id] {
        if let Some(task) = names.with_id(id)? {
            return Ok(task);
        }
    }
    let ambiguous = |candidates| TaskError::Ambiguous {
        given: given.to_owned(),
        candidates,
    };
    let titled = names.titled(given)?;
    let titled = only(titled, |task| task.title == given).map_err(ambiguous)?;
    let found = match titled {
        Some(task) if task.title == given => return Ok(task),
        None if id.len() >= SHORTEST_PREFIX => {
            let begun = names.beginning(id)?;
            only(begun, |_| false).map_err(ambiguous)?
        }
        titled => titled,
    };
    if (found.is_some() || id.len() >= SHORTEST_PREFIX)
        && let Some(DeletedName { id, title }) = names.deleted(id, given)?
    {
        let given = given.to_owned();
        return Err(TaskError::Deleted { given, id, title }.into());
    }
    Ok(found.ok_or_else(|| TaskError::NoTask(given.to_owned()))?)
}

/// The names of a store's sections. Each list has [`CANDIDATES`] entries at most.
pub trait SectionNames {
    /// Why the store can't be read.
    type Error: From<TaskError>;

    /// The section with this whole id.
    fn with_id(&mut self, id: &str) -> Result<Option<Section>, Self::Error>;

    /// The sections with this name, in any case of ASCII letters.
    fn named(&mut self, name: &str) -> Result<Vec<Section>, Self::Error>;

    /// The sections whose id begins so.
    fn beginning(&mut self, prefix: &str) -> Result<Vec<Section>, Self::Error>;
}

/// The section that a caller means by an id, a name, or a unique prefix of an id.
pub fn find_section<N: SectionNames>(names: &mut N, given: &str) -> Result<Section, N::Error> {
    let id = given.strip_prefix("section:").unwrap_or(given);
    if let Some(section) = names.with_id(id)? {
        return Ok(section);
    }
    let ambiguous = |candidates| TaskError::AmbiguousSection {
        given: given.to_owned(),
        candidates,
    };
    let named = names.named(given)?;
    let named = only(named, |section| section.name == given).map_err(ambiguous)?;
    let found = match named {
        None if id.len() >= SHORTEST_PREFIX => {
            let begun = names.beginning(id)?;
            only(begun, |_| false).map_err(ambiguous)?
        }
        named => named,
    };
    Ok(found.ok_or_else(|| TaskError::NoSection(given.to_owned()))?)
}

/// Whether a task was found by a part of its id.
pub fn is_by_prefix(task: &Task, given: &str) -> bool {
    let id = given.strip_prefix("task:").unwrap_or(given);
    task.id.len() > id.len() && task.id.starts_with(id) && !task.title.eq_ignore_ascii_case(given)
}

/// The only match among several: an exact match goes before matches that differ in the case of
/// letters. Fails with the best matches, if there are several.
pub fn only<T>(found: Vec<T>, exactly: impl Fn(&T) -> bool) -> Result<Option<T>, Vec<T>> {
    let (exact, other): (Vec<T>, Vec<T>) = found.into_iter().partition(exactly);
    let mut best = if exact.is_empty() { other } else { exact };
    match best.len() {
        0 | 1 => Ok(best.pop()),
        _ => Err(best),
    }
}
