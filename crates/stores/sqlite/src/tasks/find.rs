//! Finding a task or section by id, name or prefix, and lists of them.

use rusqlite::types::Value;
use rusqlite::{Connection, Row, params, params_from_iter};
use tenure_core::Moment;
use tenure_tasks::find::{CANDIDATES, DeletedName, TaskNames};
use tenure_tasks::{Section, SectionSummary, Status, Task, TaskQuery};

use super::rows::{self, select_task};
use crate::query::Query as _;
use crate::rows::{number, text, time, unsigned};
use crate::view::ReadTransaction;
use crate::write::TransactionError;

impl ReadTransaction<'_> {
    fn candidates(&self, sql: &str, text: &str) -> Result<Vec<Task>, TransactionError> {
        let values = params![text, number(CANDIDATES)];
        Ok(self.db.all(sql, values, rows::task)?)
    }
}

impl TaskNames for ReadTransaction<'_> {
    type Error = TransactionError;

    fn with_id(&mut self, id: &str) -> Result<Option<Task>, TransactionError> {
        Ok(rows::by_id(self.db, id)?)
    }

    fn titled(&mut self, title: &str) -> Result<Vec<Task>, TransactionError> {
        let sql = select_task!("WHERE t.title = ?1 COLLATE NOCASE ORDER BY t.created_at LIMIT ?2");
        self.candidates(sql, title)
    }

    fn beginning(&mut self, prefix: &str) -> Result<Vec<Task>, TransactionError> {
        let sql =
            select_task!("WHERE t.id >= ?1 AND t.id < ?1 || char(1114111) ORDER BY t.id LIMIT ?2");
        self.candidates(sql, prefix)
    }

    fn deleted(&mut self, id: &str, title: &str) -> Result<Option<DeletedName>, TransactionError> {
        let sql = "SELECT id, title FROM deleted_tasks WHERE id >= ?1 AND id < ?1 || char(1114111)
                   UNION ALL SELECT id, title FROM deleted_tasks WHERE title = ?2 COLLATE NOCASE LIMIT 1";
        let name = |row: &Row<'_>| {
            let (id, title) = row.try_into()?;
            Ok(DeletedName { id, title })
        };
        Ok(self.db.first(sql, [id, title], name)?)
    }
}

/// The section of this whole name, in any case of letters.
pub(super) fn section_named(db: &Connection, name: &str) -> rusqlite::Result<Option<Section>> {
    let named =
        "SELECT id, name FROM sections WHERE name = ?1 COLLATE NOCASE ORDER BY name <> ?1 LIMIT 1";
    db.first(named, [name], to_section)
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
    let all = "SELECT s.id, s.name, (SELECT count(*) FROM tasks WHERE section_id = s.id),
         (SELECT count(*) FROM tasks WHERE section_id = s.id AND status IN ('pending', 'in_progress'))
         FROM sections s ORDER BY s.name";
    db.all(all, [], |row| {
        Ok(SectionSummary {
            section: to_section(row)?,
            tasks: unsigned(row, 2)?,
            open: unsigned(row, 3)?,
        })
    })
}

/// Every section, in the order in which they were added.
pub(super) fn sections_by_age(db: &Connection) -> rusqlite::Result<Vec<Section>> {
    let all = "SELECT id, name FROM sections ORDER BY created_at, rowid";
    db.all(all, [], to_section)
}

/// The tasks that depend on this one.
pub(super) fn dependents(db: &Connection, id: &str) -> rusqlite::Result<Vec<Task>> {
    let dependents = select_task!(
        "WHERE t.id IN (SELECT task_id FROM task_dependencies WHERE depends_on = ?1) ORDER BY t.created_at, t.id"
    );
    db.all(dependents, [id], rows::task)
}

/// The unfinished tasks that this one depends on.
pub(super) fn blockers(db: &Connection, id: &str) -> rusqlite::Result<Vec<Task>> {
    let blockers = select_task!(
        "WHERE t.id IN (SELECT depends_on FROM task_dependencies WHERE task_id = ?1)
         AND t.status NOT IN ('completed', 'skipped') ORDER BY t.created_at, t.id LIMIT 10"
    );
    db.all(blockers, [id], rows::task)
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
    let mut present: Vec<Value> = db.all(sql, [], |row| row.get(0))?;
    present.retain(|status| !all.contains(status));
    all.extend(present);
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
        let ready = " AND t.blockers = 0 AND coalesce(t.not_before, '') <= ?";
        filter(ready, Some(time(now.wall)));
    }
    filter(" ORDER BY t.priority DESC, t.created_at", None);
    if let Some(limit) = limit {
        filter(&format!(" LIMIT {}", number(limit)), None);
    }
    db.all(&sql, params_from_iter(values), rows::task)
}
