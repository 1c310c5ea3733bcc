//! Rows to tasks and back.

use rusqlite::{Connection, OptionalExtension, Row, params};
use tenure_core::task::flow::lost_after_grant;
use tenure_core::{HolderId, Priority, Section, Status, Task, Token};

use crate::lock_tables::instant;
use crate::rows::{bad, number, unsigned};

/// Selects tasks `t` with their section `s`, with the columns in the order that [`task`] reads
/// them.
macro_rules! select_task {
    ($rest:literal) => {
        concat!(
            "SELECT t.id, t.title, t.description, t.section_id, s.name, t.status, t.priority, ",
            "(SELECT json_group_array(depends_on) FROM task_dependencies d WHERE d.task_id = t.id), ",
            "t.blockers, t.created_at, t.updated_at, t.attempts, t.last_error, t.not_before, t.runner, t.token, t.elsewhere ",
            "FROM tasks t LEFT JOIN sections s ON s.id = t.section_id ",
            $rest
        )
    };
}

pub(super) use select_task;

pub(super) fn task(row: &Row<'_>) -> rusqlite::Result<Task> {
    let time = |column: usize| {
        let text: String = row.get(column)?;
        instant(&text).ok_or_else(|| bad(column, format!("{text:?} is not a time")))
    };
    let section: Option<String> = row.get(3)?;
    let name: Option<String> = row.get(4)?;
    let status: String = row.get(5)?;
    let depends_on: String = row.get(7)?;
    let not_before: Option<String> = row.get(13)?;
    let level = row.get::<_, i64>(6)?.clamp(0, 9);
    Ok(Task {
        id: row.get(0)?,
        title: row.get(1)?,
        description: row.get(2)?,
        section: section.map(|id| Section {
            name: name.unwrap_or_else(|| id.clone()),
            id,
        }),
        status: status
            .parse()
            .map_err(|error: tenure_core::task::BadStatus| bad(5, error.to_string()))?,
        priority: u8::try_from(level)
            .ok()
            .and_then(Priority::new)
            .unwrap_or_default(),
        depends_on: serde_json::from_str(&depends_on).map_err(|error| bad(7, error.to_string()))?,
        blockers: unsigned(row, 8)?,
        created_at: time(9)?,
        // Another program may have left it out.
        updated_at: time(10).or_else(|_| time(9))?,
        attempts: unsigned(row, 11)?,
        last_error: row.get(12)?,
        not_before: not_before.as_deref().and_then(instant),
        runner: row
            .get::<_, Option<String>>(14)?
            .and_then(|runner| HolderId::parse(runner).ok()),
        token: Token(unsigned(row, 15)?),
        elsewhere: row.get(16)?,
    })
}

/// The task with this id.
pub(super) fn by_id(db: &Connection, id: &str) -> rusqlite::Result<Option<Task>> {
    db.prepare_cached(select_task!("WHERE t.id = ?1"))?
        .query_row([id], task)
        .optional()
}

/// The runners that a task was taken over from.
pub(super) fn lost(db: &Connection, id: &str) -> rusqlite::Result<Vec<HolderId>> {
    let text: Option<String> = db
        .prepare_cached("SELECT lost FROM tasks WHERE id = ?1")?
        .query_row([id], |row| row.get(0))
        .optional()?;
    let names: Vec<String> = text
        .and_then(|text| serde_json::from_str(&text).ok())
        .unwrap_or_default();
    Ok(names
        .into_iter()
        .filter_map(|name| HolderId::parse(name).ok())
        .collect())
}

/// Records the runners that a task was taken over from.
pub(super) fn set_lost(db: &Connection, id: &str, lost: &[HolderId]) -> rusqlite::Result<()> {
    db.prepare_cached("UPDATE tasks SET lost = ?2 WHERE id = ?1")?
        .execute(params![id, crate::rows::json(&lost)?])?;
    Ok(())
}

/// Records the grant of a task, and the runner that it takes the task over from.
pub(crate) fn granted(
    db: &Connection,
    id: &str,
    runner: &HolderId,
    token: Token,
) -> rusqlite::Result<()> {
    let last: Option<(String, Option<String>)> = db
        .prepare_cached("SELECT status, runner FROM tasks WHERE id = ?1")?
        .query_row([id], |row| Ok((row.get(0)?, row.get(1)?)))
        .optional()?;
    let Some((status, last)) = last else {
        return Ok(());
    };
    let last = last.and_then(|name| HolderId::parse(name).ok());
    let unfinished = last.filter(|_| status == Status::InProgress.word());
    let before = lost(db, id)?;
    let after = lost_after_grant(unfinished.as_ref(), before.clone(), runner);
    if after != before {
        set_lost(db, id, &after)?;
    }
    db.prepare_cached("UPDATE tasks SET runner = ?2, token = ?3 WHERE id = ?1")?
        .execute(params![id, runner.as_str(), number(token.0)])?;
    Ok(())
}
