//! Finding a task or section by id, name or prefix, and lists of them.

use rusqlite::{Connection, OptionalExtension, Row, params, params_from_iter};
use tenure_core::task::find::{CANDIDATES, SHORTEST_PREFIX, only};
use tenure_core::task::{SectionSummary, TaskQuery};
use tenure_core::{Moment, Section, Status, Task, TaskError};

use super::rows::{self, select_task};
use crate::write::TransactionError;

/// Why nothing was found.
pub(super) enum NotFound {
    Sql(rusqlite::Error),
    Task(Box<TaskError>),
}

impl From<rusqlite::Error> for NotFound {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

impl From<TaskError> for NotFound {
    fn from(error: TaskError) -> Self {
        Self::Task(Box::new(error))
    }
}

impl From<NotFound> for TransactionError {
    fn from(error: NotFound) -> Self {
        match error {
            NotFound::Sql(error) => Self::Sql(error),
            NotFound::Task(error) => Self::Task(error),
        }
    }
}

/// The task with this id, this title, or this unique prefix of its id.
pub(super) fn task(db: &Connection, given: &str) -> Result<Task, NotFound> {
    let id = given.strip_prefix("task:").unwrap_or(given);
    for id in [given, id] {
        if let Some(task) = rows::by_id(db, id)? {
            return Ok(task);
        }
    }
    let ambiguous = |candidates| TaskError::Ambiguous {
        given: given.to_owned(),
        candidates,
    };
    let most = i64::try_from(CANDIDATES).unwrap_or(i64::MAX);
    let query = |sql: &str, text: &str| -> rusqlite::Result<Vec<Task>> {
        db.prepare_cached(sql)?
            .query_map(params![text, most], rows::task)?
            .collect()
    };
    let titled = query(
        select_task!("WHERE t.title = ?1 COLLATE NOCASE ORDER BY t.created_at LIMIT ?2"),
        given,
    )?;
    if let Some(task) = only(titled, |task| task.title == given).map_err(ambiguous)? {
        return Ok(task);
    }
    if id.len() >= SHORTEST_PREFIX {
        let begun = query(
            select_task!("WHERE t.id >= ?1 AND t.id < ?1 || char(1114111) ORDER BY t.id LIMIT ?2"),
            id,
        )?;
        if let Some(task) = only(begun, |_| false).map_err(ambiguous)? {
            return Ok(task);
        }
    }
    Err(TaskError::NoTask(given.to_owned()).into())
}

/// The section with this id, this name, or this unique prefix of its id.
pub(super) fn section(db: &Connection, given: &str) -> Result<Section, NotFound> {
    let id = given.strip_prefix("section:").unwrap_or(given);
    let most = i64::try_from(CANDIDATES).unwrap_or(i64::MAX);
    let query = |sql: &str, text: &str| -> rusqlite::Result<Vec<Section>> {
        db.prepare_cached(sql)?
            .query_map(params![text, most], to_section)?
            .collect()
    };
    let ambiguous = |candidates| TaskError::AmbiguousSection {
        given: given.to_owned(),
        candidates,
    };
    let by_id = query("SELECT id, name FROM sections WHERE id = ?1 LIMIT ?2", id)?;
    let named = query(
        "SELECT id, name FROM sections WHERE name = ?1 COLLATE NOCASE LIMIT ?2",
        given,
    )?;
    let begun = if id.len() >= SHORTEST_PREFIX {
        query(
            "SELECT id, name FROM sections WHERE id >= ?1 AND id < ?1 || char(1114111) LIMIT ?2",
            id,
        )?
    } else {
        Vec::new()
    };
    for found in [by_id, named, begun] {
        if let Some(section) = only(found, |section| section.name == given).map_err(ambiguous)? {
            return Ok(section);
        }
    }
    Err(TaskError::NoSection(given.to_owned()).into())
}

/// The section of this whole name, in any case of letters.
pub(super) fn section_named(db: &Connection, name: &str) -> rusqlite::Result<Option<Section>> {
    db.prepare_cached(
        "SELECT id, name FROM sections WHERE name = ?1 COLLATE NOCASE ORDER BY name <> ?1 LIMIT 1",
    )?
    .query_row([name], to_section)
    .optional()
}

/// The section with this id, which has to exist.
pub(super) fn section_by_id(db: &Connection, id: &str) -> Result<Section, NotFound> {
    db.prepare_cached("SELECT id, name FROM sections WHERE id = ?1")?
        .query_row([id], to_section)
        .optional()?
        .ok_or_else(|| TaskError::NoSection(id.to_owned()).into())
}

pub(super) fn to_section(row: &Row<'_>) -> rusqlite::Result<Section> {
    Ok(Section {
        id: row.get(0)?,
        name: row.get(1)?,
    })
}

/// Every section with the number of its tasks and of its open tasks, by name.
pub(super) fn sections(db: &Connection) -> rusqlite::Result<Vec<SectionSummary>> {
    db.prepare_cached(
        "SELECT s.id, s.name, (SELECT count(*) FROM tasks WHERE section_id = s.id),
         (SELECT count(*) FROM tasks WHERE section_id = s.id AND status IN ('pending', 'in_progress'))
         FROM sections s ORDER BY s.name",
    )?
    .query_map([], |row| {
        Ok(SectionSummary {
            section: to_section(row)?,
            tasks: crate::rows::unsigned(row, 2)?,
            open: crate::rows::unsigned(row, 3)?,
        })
    })?
    .collect()
}

/// Every section, in the order in which they were added.
pub(super) fn sections_by_age(db: &Connection) -> rusqlite::Result<Vec<Section>> {
    db.prepare_cached("SELECT id, name FROM sections ORDER BY created_at, rowid")?
        .query_map([], to_section)?
        .collect()
}

/// The tasks that depend on this one.
pub(super) fn dependents(db: &Connection, id: &str) -> rusqlite::Result<Vec<Task>> {
    db.prepare_cached(select_task!(
        "WHERE t.id IN (SELECT task_id FROM task_dependencies WHERE depends_on = ?1) ORDER BY t.created_at, t.id"
    ))?
    .query_map([id], rows::task)?
    .collect()
}

/// The unfinished tasks that this one depends on.
pub(super) fn blockers(db: &Connection, id: &str) -> rusqlite::Result<Vec<Task>> {
    db.prepare_cached(select_task!(
        "WHERE t.id IN (SELECT depends_on FROM task_dependencies WHERE task_id = ?1)
         AND t.status NOT IN ('completed', 'skipped') ORDER BY t.created_at, t.id LIMIT 10"
    ))?
    .query_map([id], rows::task)?
    .collect()
}

/// Lists tasks, status by status, so that each status is read from its index in order.
pub(super) fn list(
    db: &Connection,
    now: &Moment,
    query: &TaskQuery,
) -> rusqlite::Result<Vec<Task>> {
    let statuses = match query.status {
        Some(status) => vec![status],
        None if query.ready => vec![Status::Pending],
        None => Status::ALL.to_vec(),
    };
    let mut tasks = Vec::new();
    for status in statuses {
        let left = query.limit.map(|limit| limit.saturating_sub(tasks.len()));
        if left == Some(0) {
            break;
        }
        tasks.extend(of_status(db, now, query, status, left)?);
    }
    Ok(tasks)
}

fn of_status(
    db: &Connection,
    now: &Moment,
    query: &TaskQuery,
    status: Status,
    limit: Option<usize>,
) -> rusqlite::Result<Vec<Task>> {
    let mut sql = String::from(select_task!("WHERE t.status = ?1"));
    let mut values = vec![status.word().to_owned()];
    let mut filter = |clause: &str, value: Option<String>| {
        sql.push_str(clause);
        values.extend(value);
        if clause.contains('?') {
            sql.push_str(&values.len().to_string());
        }
    };
    if let Some(section) = &query.section {
        filter(" AND t.section_id = ?", Some(section.clone()));
    }
    if let Some(text) = &query.search {
        let text = text
            .replace('\\', "\\\\")
            .replace('%', "\\%")
            .replace('_', "\\_");
        filter(" AND t.title LIKE ?", Some(format!("%{text}%")));
        filter(" ESCAPE '\\'", None);
    }
    if query.ready {
        let now = crate::rows::time(now.wall);
        filter(
            " AND t.blockers = 0 AND coalesce(t.not_before, '') <= ?",
            Some(now),
        );
    }
    filter(" ORDER BY t.priority DESC, t.created_at", None);
    if let Some(limit) = limit {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        filter(&format!(" LIMIT {limit}"), None);
    }
    db.prepare_cached(&sql)?
        .query_map(params_from_iter(values), rows::task)?
        .collect()
}
