//! Rows to tasks and back.

use jiff::Timestamp;
use rusqlite::{Connection, Row, params};
use tenure_core::{HolderId, Priority, Token};
use tenure_tasks::check_id;
use tenure_tasks::follow::lost_after_grant;
use tenure_tasks::{Section, Status, Task};

use crate::lock_tables::instant;
use crate::query::Query as _;
use crate::rows::{number, optional_text, text, unsigned};

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

/// The task of a row. Other programs write the table, too: a value that can't be understood gets a stand-in and makes
/// the task's [problem](Task::problem), so that one bad row spoils no list.
pub(super) fn task(row: &Row<'_>) -> rusqlite::Result<Task> {
    let mut problems = Vec::new();
    let mut bad = |column: &str, value: &dyn std::fmt::Display, what: &str| {
        problems.push(format!(
            "{column} {value:?} is {what}",
            value = value.to_string()
        ));
    };
    let mut count = |column: usize, name: &str| -> rusqlite::Result<u64> {
        unsigned(row, column).or_else(|_| {
            bad(name, &text(row, column)?, "not a number of 0 or more");
            Ok(0)
        })
    };
    let (blockers, attempts) = (count(8, "blockers")?, count(11, "attempts")?);
    let token = Token(count(15, "token")?);
    let priority = text(row, 6)?;
    let level = row.get::<_, i64>(6).unwrap_or_else(|_| {
        bad("priority", &priority, "not a number");
        i64::from(Priority::default().level())
    });
    let status = text(row, 5)?;
    let status = status.parse().unwrap_or_else(|_| {
        bad("status", &status, "not a status");
        Status::Pending
    });
    let created_at = text(row, 9)?;
    let created_at = instant(&created_at).unwrap_or_else(|| {
        bad("created_at", &created_at, "not a time");
        Timestamp::UNIX_EPOCH
    });
    let id = text(row, 0)?;
    if row.get_ref(0)?.as_str().is_err() || check_id("id", &id).is_err() {
        bad("id", &id, "not an id, so other clones don't get this task");
    }
    let not_before = optional_text(row, 13)?;
    let section = optional_text(row, 3)?;
    let name = optional_text(row, 4)?;
    let depends_on = text(row, 7)?;
    Ok(Task {
        id,
        title: text(row, 1)?,
        description: optional_text(row, 2)?,
        section: section.map(|id| Section {
            name: name.unwrap_or_else(|| id.clone()),
            id,
        }),
        status,
        priority: u8::try_from(level.clamp(0, 9))
            .ok()
            .and_then(Priority::new)
            .unwrap_or_default(),
        depends_on: serde_json::from_str(&depends_on)
            .map_err(|error| crate::rows::bad(7, error.to_string()))?,
        blockers,
        created_at,
        // Another program may have left it out.
        updated_at: instant(&text(row, 10)?).unwrap_or(created_at),
        attempts,
        last_error: optional_text(row, 12)?,
        not_before: not_before.as_deref().and_then(instant),
        runner: optional_text(row, 14)?.and_then(|runner| HolderId::parse(runner).ok()),
        token,
        elsewhere: row.get(16).unwrap_or_default(),
        problem: (!problems.is_empty()).then(|| problems.join("; ")),
    })
}

/// The task with this id.
pub(super) fn by_id(db: &Connection, id: &str) -> rusqlite::Result<Option<Task>> {
    db.first(select_task!("WHERE t.id = ?1"), [id], task)
}

/// The runners that a task was taken over from.
pub(super) fn lost(db: &Connection, id: &str) -> rusqlite::Result<Vec<HolderId>> {
    let select = "SELECT lost FROM tasks WHERE id = ?1";
    let text = db.first(select, [id], |row| optional_text(row, 0))?;
    let names: Vec<String> = text
        .flatten()
        .and_then(|text| serde_json::from_str(&text).ok())
        .unwrap_or_default();
    Ok(names
        .into_iter()
        .filter_map(|name| HolderId::parse(name).ok())
        .collect())
}

/// Records the runners that a task was taken over from.
pub(super) fn set_lost(db: &Connection, id: &str, lost: &[HolderId]) -> rusqlite::Result<()> {
    let set = "UPDATE tasks SET lost = ?2 WHERE id = ?1";
    db.run(set, params![id, crate::rows::json(&lost)?])?;
    Ok(())
}

/// Records the grant of a task, and the runner that it takes the task over from.
pub(super) fn granted(
    db: &Connection,
    id: &str,
    runner: &HolderId,
    token: Token,
) -> rusqlite::Result<()> {
    let last = "SELECT status, runner FROM tasks WHERE id = ?1";
    let last = db.first(last, [id], |row| {
        Ok((text(row, 0)?, optional_text(row, 1)?))
    })?;
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
    let set = "UPDATE tasks SET runner = ?2, token = ?3 WHERE id = ?1";
    db.run(set, params![id, runner.as_str(), number(token.0)])?;
    Ok(())
}
