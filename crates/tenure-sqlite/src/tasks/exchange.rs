//! Import and export: one JSON object a line, in a stable order, so that it diffs well.
//!
//! Sections come first, then tasks, both in the order in which they were added. A field that has
//! its default value is left out.

use std::collections::HashMap;

use jiff::Timestamp;
use rusqlite::{Connection, params};
use serde::{Deserialize, Serialize};
use tenure_core::engine::{Look as _, Step as _};
use tenure_core::task::{self, BadLine, ImportSummary};
use tenure_core::{Priority, Section, Status, Task, TaskError};
use uuid::Uuid;

use super::cycle::first_on_cycle;
use super::rows::{self, by_id, select_task, superseded};
use super::{bad_id, find};
use crate::rows::time;
use crate::write::{TransactionError, WriteTransaction};

/// How many failed attempts a line may give.
const MOST_ATTEMPTS: u64 = 1_000_000;

/// How many bad lines an error lists.
const BAD_LINES: usize = 10;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum LineKind {
    Section,
    #[default]
    Task,
}

/// One line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ExchangeLine {
    #[serde(default)]
    kind: LineKind,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    title: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    section: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    status: Option<Status>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    priority: Option<u8>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    depends_on: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    created_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    updated_at: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    attempts: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    last_error: Option<String>,
}

impl ExchangeLine {
    fn empty(kind: LineKind) -> Self {
        Self {
            kind,
            id: None,
            name: None,
            title: None,
            section: None,
            status: None,
            priority: None,
            description: None,
            depends_on: Vec::new(),
            created_at: None,
            updated_at: None,
            attempts: None,
            last_error: None,
        }
    }

    fn of_section(section: &Section) -> Self {
        Self {
            id: Some(section.id.clone()),
            name: Some(section.name.clone()),
            ..Self::empty(LineKind::Section)
        }
    }

    fn of_task(task: Task) -> Self {
        let mut depends_on = task.depends_on;
        depends_on.sort();
        Self {
            id: Some(task.id),
            title: Some(task.title),
            section: task.section.map(|section| section.name),
            status: Some(task.status),
            priority: Some(task.priority.level()),
            description: task.description,
            depends_on,
            created_at: Some(task.created_at),
            updated_at: Some(task.updated_at),
            attempts: Some(task.attempts).filter(|attempts| *attempts > 0),
            last_error: task.last_error,
            ..Self::empty(LineKind::Task)
        }
    }
}

/// Hands every section and task to `hand`, a line each.
pub(super) fn export(db: &Connection, mut hand: impl FnMut(&str)) -> rusqlite::Result<()> {
    let mut say = |line: &ExchangeLine| -> rusqlite::Result<()> {
        hand(&crate::rows::json(line)?);
        Ok(())
    };
    for section in find::sections_by_age(db)? {
        say(&ExchangeLine::of_section(&section))?;
    }
    let mut statement = db.prepare(select_task!("ORDER BY t.created_at, t.rowid"))?;
    let mut tasks = statement.query_map([], rows::task)?;
    tasks.try_for_each(|task| say(&ExchangeLine::of_task(task?)))
}

/// The state of an import.
struct ImportState {
    done: ImportSummary,
    bad: Vec<BadLine>,
    /// The first line that changes a task which a runner works on: not wrong, but not now.
    locked: Option<TaskError>,
    /// Dependencies: the line, its task, and the task that it depends on.
    waits: Vec<(usize, String, String)>,
    /// The ids that were read so far, with their lines.
    seen: HashMap<String, usize>,
}

impl ImportState {
    fn is_bad(&mut self, number: usize, what: impl Into<String>) {
        let what = what.into();
        self.bad.push(BadLine { number, what });
    }
}

impl WriteTransaction<'_> {
    /// Adds or changes sections and tasks, one for each line; all or none.
    pub(super) fn import(&mut self, text: &str) -> Result<ImportSummary, TransactionError> {
        let mut import = ImportState {
            done: ImportSummary::default(),
            bad: Vec::new(),
            locked: None,
            waits: Vec::new(),
            seen: HashMap::new(),
        };
        // Some editors put a byte order mark before the first line.
        let text = text.strip_prefix('\u{feff}').unwrap_or(text);
        for (index, line) in text.lines().enumerate() {
            if line.trim().is_empty() {
                continue;
            }
            if !line.trim_start().starts_with('{') {
                import.is_bad(
                    index + 1,
                    "expected a JSON object, {\"title\": \"...\"} at the least",
                );
                if import.bad.len() >= BAD_LINES {
                    break;
                }
                continue;
            }
            let read = match serde_json::from_str::<ExchangeLine>(line) {
                Ok(line) => self.take_line(&mut import, index + 1, line),
                Err(error) => {
                    import.is_bad(index + 1, message(&error));
                    Ok(())
                }
            };
            match read {
                Ok(()) => {}
                Err(TransactionError::Task(error)) => match *error {
                    TaskError::Locked { task, lease } => {
                        let number = index + 1;
                        let locked = TaskError::LockedLine {
                            number,
                            task,
                            lease,
                        };
                        import.locked.get_or_insert(locked);
                    }
                    error => import.is_bad(index + 1, error.to_string()),
                },
                Err(other) => return Err(other),
            }
            if import.bad.len() >= BAD_LINES {
                break;
            }
        }
        if import.bad.is_empty() {
            self.import_dependencies(&mut import)?;
        }
        if !import.bad.is_empty() {
            return Err(TaskError::BadLines(import.bad).into());
        }
        if let Some(locked) = import.locked {
            return Err(locked.into());
        }
        self.ring_all_seekers()?;
        Ok(import.done)
    }

    fn take_line(
        &mut self,
        import: &mut ImportState,
        number: usize,
        line: ExchangeLine,
    ) -> Result<(), TransactionError> {
        if let Some(id) = &line.id {
            task::check_id("id", id)?;
            if let Some(first) = import.seen.insert(id.clone(), number) {
                import.is_bad(number, format!("the id {id:?} is that of line {first} too"));
                return Ok(());
            }
        }
        match line.kind {
            LineKind::Section => self.take_section(import, number, line),
            LineKind::Task => self.take_task(import, number, line),
        }
    }

    fn take_section(
        &mut self,
        import: &mut ImportState,
        number: usize,
        line: ExchangeLine,
    ) -> Result<(), TransactionError> {
        let Some(name) = line.name else {
            import.is_bad(number, "a section needs a \"name\"");
            return Ok(());
        };
        if line.title.is_some() || line.section.is_some() || line.status.is_some() {
            import.is_bad(number, "a section has a \"name\" and an \"id\" only");
            return Ok(());
        }
        let id = line.id.unwrap_or_else(|| Uuid::new_v4().to_string());
        match self.insert_section(&id, &name) {
            Ok(_) => {
                import.done.sections += 1;
                Ok(())
            }
            // Sections are known by their names: one with another id is left as it is.
            Err(TransactionError::Task(error)) => match *error {
                TaskError::SectionExists(taken) if taken.name == name => Ok(()),
                error => Err(error.into()),
            },
            Err(other) => Err(other),
        }
    }

    fn take_task(
        &mut self,
        import: &mut ImportState,
        number: usize,
        line: ExchangeLine,
    ) -> Result<(), TransactionError> {
        if line.name.is_some() {
            import.is_bad(
                number,
                "a task has a \"title\", not a \"name\" (or it is a section: \"kind\":\"section\")",
            );
            return Ok(());
        }
        let Some(title) = line.title else {
            import.is_bad(number, "a task needs a \"title\"");
            return Ok(());
        };
        // A title that another program wrote with white space around it is exported with it.
        task::check_title(title.trim())?;
        line.description
            .as_deref()
            .map_or(Ok(()), task::check_description)?;
        if line
            .attempts
            .is_some_and(|attempts| attempts > MOST_ATTEMPTS)
        {
            import.is_bad(number, format!("attempts are {MOST_ATTEMPTS} at most"));
            return Ok(());
        }
        let now = self.now().wall;
        let id = line.id.unwrap_or_else(|| Uuid::new_v4().to_string());
        let before = by_id(self.reader.db, &id)?;
        let usual = before
            .as_ref()
            .map(|task| task.priority)
            .unwrap_or_default();
        let Some(priority) = line.priority.map_or(Some(usual), Priority::new) else {
            import.is_bad(number, "the priority is a number from 0 (low) to 9 (high)");
            return Ok(());
        };
        let section = match &line.section {
            Some(name) => Some(self.section_of_line(import, name)?),
            None => None,
        };
        let mut depends_on: Vec<String> = line.depends_on;
        depends_on.sort();
        depends_on.dedup();
        let after = Task {
            id: id.clone(),
            title,
            description: line.description,
            section,
            status: line
                .status
                .or(before.as_ref().map(|task| task.status))
                .unwrap_or(Status::Pending),
            priority,
            depends_on: Vec::new(),
            blockers: 0,
            created_at: as_stored(
                line.created_at
                    .or(before.as_ref().map(|task| task.created_at))
                    .unwrap_or(now),
            ),
            updated_at: as_stored(line.updated_at.unwrap_or(now)),
            attempts: line.attempts.unwrap_or(0),
            last_error: line.last_error.as_deref().map(task::tidy),
            not_before: None,
            runner: None,
            token: tenure_core::Token::NONE,
            elsewhere: false,
        };
        match &before {
            Some(before) if is_same(before, &after, &depends_on) => {
                import.done.unchanged += 1;
                return Ok(());
            }
            Some(before) => {
                // Not while a runner works on it.
                self.may_move(before)?;
                if let Some(runner) = &before.runner
                    && before.status == Status::InProgress
                    && after.status != Status::InProgress
                {
                    superseded(self.reader.db, &id, runner)?;
                }
                import.done.changed += 1;
            }
            None => {
                self.not_deleted(&id)?;
                import.done.added += 1;
            }
        }
        self.put_task(&after, before.is_some())?;
        self.reader
            .db
            .prepare_cached("DELETE FROM task_dependencies WHERE task_id = ?1")?
            .execute([&id])?;
        let waits = depends_on.into_iter().map(|on| (number, id.clone(), on));
        import.waits.extend(waits);
        Ok(())
    }

    fn put_task(&self, task: &Task, exists: bool) -> Result<(), TransactionError> {
        let sql = if exists {
            "UPDATE tasks SET title = ?2, description = ?3, section_id = ?4, status = ?5, priority = ?6,
             created_at = ?7, updated_at = ?8, attempts = ?9, last_error = ?10, not_before = NULL WHERE id = ?1"
        } else {
            "INSERT INTO tasks (id, title, description, section_id, status, priority, created_at, updated_at,
             attempts, last_error) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)"
        };
        self.reader.db.prepare_cached(sql)?.execute(params![
            task.id,
            task.title,
            task.description,
            task.section.as_ref().map(|section| &section.id),
            task.status.word(),
            task.priority.level(),
            time(task.created_at),
            time(task.updated_at),
            crate::rows::number(task.attempts),
            task.last_error,
        ])?;
        Ok(())
    }

    /// The section that a line names, made if there is none.
    fn section_of_line(
        &mut self,
        import: &mut ImportState,
        name: &str,
    ) -> Result<Section, TransactionError> {
        if let Some(section) = find::section_named(self.reader.db, name)? {
            return Ok(section);
        }
        let section = self.add_section(name)?;
        import.done.sections += 1;
        Ok(section)
    }

    /// Writes all dependencies after all tasks: a line may depend on a later one.
    fn import_dependencies(&mut self, import: &mut ImportState) -> Result<(), TransactionError> {
        let db = self.reader.db;
        let mut depend = db.prepare_cached(
            "INSERT OR IGNORE INTO task_dependencies (task_id, depends_on) VALUES (?1, ?2)",
        )?;
        let waits = std::mem::take(&mut import.waits);
        let changed: Vec<(usize, String)> = waits
            .iter()
            .map(|(number, id, _)| (*number, id.clone()))
            .collect();
        for (number, id, on) in waits {
            if import.bad.len() >= BAD_LINES {
                return Ok(());
            }
            match by_id(db, &on)? {
                None => import.is_bad(
                    number,
                    format!("it depends on {on:?}, which is no task's id"),
                ),
                Some(_) => {
                    depend.execute([&id, &on])?;
                }
            }
        }
        if let Some((number, id)) = first_on_cycle(db, &changed)? {
            let task = self.task(&id)?;
            import.is_bad(
                number,
                format!("{:?} would have to be done before itself", task.title),
            );
        }
        Ok(())
    }

    /// Wakes every runner that looks for any task: many may have become ready.
    pub(super) fn ring_all_seekers(&mut self) -> Result<(), TransactionError> {
        let any = task::key_of(task::ANY).map_err(|error| bad_id(task::ANY, &error))?;
        for waiter in self.reader.queue(&any)? {
            self.wake(&waiter.holder);
        }
        Ok(())
    }
}

/// Whether an import would leave a task as it is. A different `updated_at` alone is no change.
fn is_same(before: &Task, after: &Task, depends_on: &[String]) -> bool {
    let mut waits = before.depends_on.clone();
    waits.sort();
    let after = Task {
        depends_on: before.depends_on.clone(),
        blockers: before.blockers,
        updated_at: before.updated_at,
        not_before: before.not_before,
        runner: before.runner.clone(),
        token: before.token,
        elsewhere: before.elsewhere,
        ..after.clone()
    };
    *before == after && waits == depends_on
}

/// A time with the precision of the database.
fn as_stored(at: Timestamp) -> Timestamp {
    time(at).parse().unwrap_or(at)
}

/// Serde's message, without the line number, which is always 1.
fn message(error: &serde_json::Error) -> String {
    let text = error
        .to_string()
        .replace("struct ExchangeLine", "an object")
        .replace("expected u8", "expected a number from 0 to 9")
        .replace("expected u64", "expected a number")
        .replace("unknown variant", "unknown word")
        .replace("expected a sequence", "expected a list of ids");
    match text.rsplit_once(" at line 1 column ") {
        Some((what, column)) => format!("{what} (at character {column})"),
        None => text,
    }
}
