//! Finding a task or section by id, name or prefix, and lists of them.

use rusqlite::types::Value;
use rusqlite::{Connection, OptionalExtension, Row, params, params_from_iter};
use tenure_core::Moment;
use tenure_tasks::find::{CANDIDATES, DeletedName, SHORTEST_PREFIX, TaskNames, find_task, only};
use tenure_tasks::{Section, SectionSummary, Status, Task, TaskError, TaskQuery};

use super::rows::{self, select_task};
use crate::rows::text;
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
    find_task(&mut Names { db }, given)
}

struct Names<'a> {
    db: &'a Connection,
}

impl Names<'_> {
    fn query(&self, sql: &str, text: &str) -> Result<Vec<Task>, NotFound> {
        let most = i64::try_from(CANDIDATES).unwrap_or(i64::MAX);
        let mut statement = self.db.prepare_cached(sql)?;
        let found = statement.query_map(params![text, most], rows::task)?;
        Ok(found.collect::<Result<_, _>>()?)
    }
}

impl TaskNames for Names<'_> {
    type Error = NotFound;

    fn with_id(&mut self, id: &str) -> Result<Option<Task>, NotFound> {
        Ok(rows::by_id(self.db, id)?)
    }

    fn titled(&mut self, title: &str) -> Result<Vec<Task>, NotFound> {
        let sql = select_task!("WHERE t.title = ?1 COLLATE NOCASE ORDER BY t.created_at LIMIT ?2");
        self.query(sql, title)
    }

    fn beginning(&mut self, prefix: &str) -> Result<Vec<Task>, NotFound> {
        let sql =
            select_task!("WHERE t.id >= ?1 AND t.id < ?1 || char(1114111) ORDER BY t.id LIMIT ?2");
        self.query(sql, prefix)
    }

    fn deleted(&mut self, id: &str, title: &str) -> Result<Option<DeletedName>, NotFound> {
        let sql = "SELECT id, title FROM deleted_tasks WHERE id >= ?1 AND id < ?1 || char(1114111)
                   UNION ALL SELECT id, title FROM deleted_tasks WHERE title = ?2 COLLATE NOCASE LIMIT 1";
        let mut statement = self.db.prepare_cached(sql)?;
        let name = |row: &Row<'_>| {
            Ok(DeletedName {
                id: row.get(0)?,
                title: row.get(1)?,
            })
        };
        Ok(statement.query_row([id, title], name).optional()?)
    }
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

/// Another program may have written anything: one bad row spoils no list.
pub(super) fn to_section(row: &Row<'_>) -> rusqlite::Result<Section> {
    Ok(Section {
        id: text(row, 0)?,
        name: text(row, 1)?,
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
        Some(status) => vec![Value::from(status.word().to_owned())],
        None if query.ready => vec![Value::from(Status::Pending.word().to_owned())],
        None => statuses(db)?,
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

/// Every status, in the order of lists, then those that tasks have and that are none.
fn statuses(db: &Connection) -> rusqlite::Result<Vec<Value>> {
    let mut all = Status::ALL
        .map(|status| Value::from(status.word().to_owned()))
        .to_vec();
    // From one to the next in the index, so that not every task is looked at.
    let sql = "WITH RECURSIVE present(status) AS (SELECT min(status) FROM tasks UNION ALL
                   SELECT (SELECT min(status) FROM tasks WHERE status > present.status) FROM present
                   WHERE present.status IS NOT NULL)
               SELECT status FROM present WHERE status IS NOT NULL";
    let mut statement = db.prepare_cached(sql)?;
    let present: Vec<Value> = statement
        .query_map([], |row| row.get(0))?
        .collect::<Result<_, _>>()?;
    let unknown = present.into_iter().filter(|status| !all.contains(status));
    all.extend(unknown.collect::<Vec<_>>());
    Ok(all)
}

fn of_status(
    db: &Connection,
    now: &Moment,
    query: &TaskQuery,
    status: Value,
    limit: Option<usize>,
) -> rusqlite::Result<Vec<Task>> {
    let mut sql = String::from(select_task!("WHERE t.status = ?1"));
    let mut values = vec![status];
    let mut filter = |clause: &str, value: Option<String>| {
        sql.push_str(clause);
        values.extend(value.map(Value::from));
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
