//! Adding and changing tasks and sections, without locks.

use rusqlite::{OptionalExtension, params};
use tenure_core::engine::Look as _;
use tenure_core::{Event, EventKind, HolderId, Mode, Token};
use tenure_host::random_uuid;
use tenure_tasks::step::{section_key, task_key};
use tenure_tasks::{
    DeletedSection, Edit, NewTask, Section, Task, TaskError, flow, lines, sections,
};

use super::find;
use crate::history;
use crate::rows::{time, unsigned};
use crate::write::{TransactionError, WriteTransaction};

impl WriteTransaction<'_> {
    pub(super) fn add_section(&mut self, name: &str) -> Result<Section, TransactionError> {
        self.new_section(&random_uuid().to_string(), name)
    }

    pub(super) fn new_section(
        &mut self,
        id: &str,
        name: &str,
    ) -> Result<Section, TransactionError> {
        lines::check_name(name)?;
        tenure_tasks::check_id("id of the section", id)?;
        let db = self.reader.db;
        let taken = db
            .prepare_cached(
                "SELECT id, name FROM sections WHERE name = ?1 COLLATE NOCASE OR id = ?2",
            )?
            .query_row([name, id], |row| {
                Ok(Section {
                    id: row.get(0)?,
                    name: row.get(1)?,
                })
            })
            .optional()?;
        if let Some(taken) = taken {
            return Err(TaskError::SectionExists(taken).into());
        }
        db.prepare_cached("INSERT INTO sections (id, name, created_at) VALUES (?1, ?2, ?3)")?
            .execute(params![id, name, time(self.now().wall)])?;
        Ok(Section {
            id: id.to_owned(),
            name: name.to_owned(),
        })
    }

    pub(super) fn add_task(&mut self, new: &NewTask) -> Result<Task, TransactionError> {
        tenure_tasks::check_title(&new.title)?;
        new.description
            .as_deref()
            .map_or(Ok(()), tenure_tasks::check_description)?;
        if let Some(section) = &new.section {
            find::section_by_id(self.reader.db, section)?;
        }
        let id = random_uuid().to_string();
        let now = time(self.now().wall);
        self.reader
            .db
            .prepare_cached(
                "INSERT INTO tasks (id, title, description, section_id, priority, created_at, updated_at)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?6)",
            )?
            .execute(params![
                id,
                new.title,
                new.description,
                new.section,
                new.priority.level(),
                now
            ])?;
        for on in &new.depends_on {
            self.depend(&id, on)?;
        }
        self.wake_seekers()?;
        self.task(&id)
    }

    /// Adds a task, if none has its title.
    pub(super) fn add_task_once(
        &mut self,
        new: &NewTask,
    ) -> Result<(Task, bool), TransactionError> {
        let sql = "SELECT id FROM tasks WHERE title = ?1 ORDER BY created_at, id LIMIT 1";
        let found: Option<String> = self
            .reader
            .db
            .prepare_cached(sql)?
            .query_row([&new.title], |row| row.get(0))
            .optional()?;
        match found {
            Some(id) => Ok((self.task(&id)?, false)),
            None => Ok((self.add_task(new)?, true)),
        }
    }

    pub(super) fn edit_task(&mut self, id: &str, edit: &Edit) -> Result<Task, TransactionError> {
        let before = self.task(id)?;
        if let Some(title) = &edit.title {
            tenure_tasks::check_title(title)?;
            self.set(id, "UPDATE tasks SET title = ?2 WHERE id = ?1", title)?;
        }
        if let Some(description) = &edit.description {
            tenure_tasks::check_description(description)?;
            let sql = "UPDATE tasks SET description = nullif(?2, '') WHERE id = ?1";
            self.set(id, sql, description)?;
        }
        if let Some(priority) = edit.priority {
            let sql = "UPDATE tasks SET priority = ?2 WHERE id = ?1";
            self.set(id, sql, priority.level())?;
        }
        if let Some(section) = &edit.section {
            flow::may_move(self, &before)?;
            if !section.is_empty() {
                find::section_by_id(self.reader.db, section)?;
            }
            let sql = "UPDATE tasks SET section_id = nullif(?2, '') WHERE id = ?1";
            self.set(id, sql, section)?;
            flow::ring_waiters(self, &before)?;
        }
        for on in &edit.drop_dependencies {
            let sql = "DELETE FROM task_dependencies WHERE task_id = ?1 AND depends_on = ?2";
            self.set(id, sql, on)?;
        }
        for on in &edit.add_dependencies {
            self.depend(id, on)?;
        }
        if !edit.is_empty() {
            self.touch(id)?;
            self.wake_seekers()?;
        }
        self.task(id)
    }

    fn set(
        &self,
        id: &str,
        sql: &str,
        value: impl rusqlite::ToSql,
    ) -> Result<(), TransactionError> {
        self.reader
            .db
            .prepare_cached(sql)?
            .execute(params![id, value])?;
        Ok(())
    }

    fn touch(&self, id: &str) -> Result<(), TransactionError> {
        let sql = "UPDATE tasks SET updated_at = ?2 WHERE id = ?1";
        self.set(id, sql, time(self.now().wall))
    }

    /// Deletes a task that no runner works on.
    pub(super) fn delete_task(&mut self, id: &str) -> Result<Task, TransactionError> {
        let task = self.task(id)?;
        flow::may_move(self, &task)?;
        self.remove_task(&task)?;
        flow::ring_all_seekers(self)?;
        Ok(task)
    }

    /// Removes a task, its lease, and the tickets of its waiters.
    pub(super) fn remove_task(&mut self, task: &Task) -> Result<(), TransactionError> {
        flow::vacate(self, &task_key(&task.id)?)?;
        let sql = "DELETE FROM tasks WHERE id = ?1";
        self.reader.db.prepare_cached(sql)?.execute([&task.id])?;
        Ok(())
    }

    /// Removes a section that has no tasks, its lease, and the tickets of its waiters.
    pub(super) fn remove_section(&mut self, section: &Section) -> Result<(), TransactionError> {
        flow::vacate(self, &section_key(section)?)?;
        let sql = "DELETE FROM sections WHERE id = ?1";
        self.reader.db.prepare_cached(sql)?.execute([&section.id])?;
        Ok(())
    }

    /// Deletes a section that no other runner holds. Its tasks move to another section first, or (if `move_to` is
    /// empty) to none.
    pub(super) fn delete_section(
        &mut self,
        id: &str,
        move_to: Option<&str>,
        caller: &HolderId,
    ) -> Result<DeletedSection, TransactionError> {
        let db = self.reader.db;
        let section = find::section_by_id(db, id)?;
        sections::may_delete(self, &section, caller)?;
        let count = "SELECT count(*), count(*) FILTER (WHERE status IN ('pending', 'in_progress')) FROM tasks
                     WHERE section_id = ?1";
        let (tasks, open) = db
            .prepare_cached(count)?
            .query_row([id], |row| Ok((unsigned(row, 0)?, unsigned(row, 1)?)))?;
        let moved_to = match move_to {
            None if tasks > 0 => {
                return Err(TaskError::SectionInUse {
                    section,
                    tasks,
                    open,
                }
                .into());
            }
            None | Some("") => None,
            Some(other) if other == id => {
                return Err(TaskError::BadText {
                    what: "section to move the tasks to",
                    problem: "is the one to delete: name another one".into(),
                }
                .into());
            }
            Some(other) => Some(find::section_by_id(db, other)?),
        };
        self.move_all(&section, moved_to.as_ref())?;
        self.remove_section(&section)?;
        flow::ring_all_seekers(self)?;
        let deleted = DeletedSection {
            section,
            moved: tasks,
            moved_to,
        };
        self.record_deletion(&deleted, caller)?;
        Ok(deleted)
    }

    fn record_deletion(
        &self,
        deleted: &DeletedSection,
        caller: &HolderId,
    ) -> Result<(), TransactionError> {
        let event = Event {
            id: 0,
            at: self.now().wall,
            key: section_key(&deleted.section)?,
            kind: EventKind::Deleted,
            mode: Mode::Exclusive,
            token: Token::NONE,
            holder: caller.clone(),
            times: 1,
            reason: Some(deleted.to_string()),
            evidence: None,
            waited: None,
        };
        Ok(history::append(
            self.reader.db,
            &event,
            self.history_limits,
        )?)
    }

    /// Moves all tasks of a section, none of which a runner works on.
    fn move_all(&mut self, from: &Section, to: Option<&Section>) -> Result<(), TransactionError> {
        let db = self.reader.db;
        let locked = "SELECT id FROM tasks WHERE section_id = ?1 AND (
                          EXISTS (SELECT 1 FROM leases WHERE key = 'task:' || tasks.id)
                          OR EXISTS (SELECT 1 FROM tickets WHERE key = 'task:' || tasks.id)
                          OR EXISTS (SELECT 1 FROM task_locks WHERE task_id = tasks.id))";
        let ids = db
            .prepare_cached(locked)?
            .query_map([&from.id], |row| row.get(0))?
            .collect::<Result<Vec<String>, _>>()?;
        for id in ids {
            let task = self.task(&id)?;
            flow::may_move(self, &task)?;
            flow::ring_waiters(self, &task)?;
        }
        db.prepare_cached(
            "UPDATE tasks SET section_id = ?2, updated_at = ?3 WHERE section_id = ?1",
        )?
        .execute(params![
            from.id,
            to.map(|section| &section.id),
            time(self.now().wall)
        ])?;
        Ok(())
    }

    /// Makes a task depend on another.
    pub(super) fn depend(&self, id: &str, on: &str) -> Result<(), TransactionError> {
        let db = self.reader.db;
        let (task, on) = (self.task(id)?, self.task(on)?);
        let circle = db
            .prepare_cached(
                "WITH RECURSIVE before(id) AS (
                     SELECT ?1 UNION SELECT depends_on FROM task_dependencies, before WHERE task_id = before.id
                 ) SELECT 1 FROM before WHERE id = ?2 LIMIT 1",
            )?
            .exists([&on.id, &task.id])?;
        if circle {
            return Err(TaskError::Circle {
                task: task.title,
                on: on.title,
            }
            .into());
        }
        db.prepare_cached(
            "INSERT OR IGNORE INTO task_dependencies (task_id, depends_on) VALUES (?1, ?2)",
        )?
        .execute([&task.id, &on.id])?;
        Ok(())
    }
}
