//! What adding, changing and deleting need of a write transaction: [`EditStep`].

use rusqlite::{ToSql, params};
use tenure_core::Event;
use tenure_core::engine::Look as _;
use tenure_tasks::edit::EditStep;
use tenure_tasks::{Edit, Section, Task};

use super::{find, rows};
use crate::query::Query as _;
use crate::rows::{number, time, unsigned};
use crate::write::{TransactionError, WriteTransaction};

impl EditStep for WriteTransaction<'_> {
    fn section(&mut self, id: &str) -> Result<Option<Section>, TransactionError> {
        let sql = "SELECT id, name FROM sections WHERE id = ?1";
        Ok(self.reader.db.first(sql, [id], find::to_section)?)
    }

    fn section_named(&mut self, name: &str) -> Result<Option<Section>, TransactionError> {
        Ok(find::section_named(self.reader.db, name)?)
    }

    fn insert_section(&mut self, section: &Section) -> Result<(), TransactionError> {
        let sql = "INSERT INTO sections (id, name, created_at) VALUES (?1, ?2, ?3)";
        let row = params![section.id, section.name, time(self.now().wall)];
        self.reader.db.run(sql, row)?;
        Ok(())
    }

    fn erase_section(&mut self, section: &Section) -> Result<(), TransactionError> {
        let sql = "DELETE FROM sections WHERE id = ?1";
        self.reader.db.run(sql, [&section.id])?;
        Ok(())
    }

    fn count_tasks(&mut self, section: &str) -> Result<(u64, u64), TransactionError> {
        let sql = "SELECT count(*), count(*) FILTER (WHERE status IN ('pending', 'in_progress')) FROM tasks
                   WHERE section_id = ?1";
        let mut statement = self.reader.db.prepare_cached(sql)?;
        Ok(statement.query_row([section], |row| Ok((unsigned(row, 0)?, unsigned(row, 1)?)))?)
    }

    fn maybe_locked(&mut self, section: &str) -> Result<Vec<String>, TransactionError> {
        let sql = "SELECT id FROM tasks WHERE section_id = ?1 AND (
                       EXISTS (SELECT 1 FROM leases WHERE key = 'task:' || tasks.id)
                       OR EXISTS (SELECT 1 FROM tickets WHERE key = 'task:' || tasks.id)
                       OR EXISTS (SELECT 1 FROM task_locks WHERE task_id = tasks.id))";
        Ok(self.reader.db.all(sql, [section], |row| row.get(0))?)
    }

    fn move_tasks(&mut self, from: &Section, to: Option<&Section>) -> Result<(), TransactionError> {
        let sql = "UPDATE tasks SET section_id = ?2, updated_at = ?3 WHERE section_id = ?1";
        let to = to.map(|section| &section.id);
        let row = params![from.id, to, time(self.now().wall)];
        self.reader.db.run(sql, row)?;
        Ok(())
    }

    fn put_task(&mut self, task: &Task, before: Option<&Task>) -> Result<(), TransactionError> {
        let sql = if before.is_some() {
            "UPDATE tasks SET title = ?2, description = ?3, section_id = ?4, status = ?5, priority = ?6,
             created_at = ?7, updated_at = ?8, attempts = ?9, last_error = ?10, not_before = NULL WHERE id = ?1"
        } else {
            "INSERT INTO tasks (id, title, description, section_id, status, priority, created_at, updated_at,
             attempts, last_error) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10)"
        };
        let db = self.reader.db;
        let values = params![
            task.id,
            task.title,
            task.description,
            task.section.as_ref().map(|section| &section.id),
            task.status.word(),
            task.priority.level(),
            time(task.created_at),
            time(task.updated_at),
            number(task.attempts),
            task.last_error,
        ];
        db.run(sql, values)?;
        let dependencies = "DELETE FROM task_dependencies WHERE task_id = ?1";
        db.run(dependencies, [&task.id])?;
        Ok(())
    }

    fn titled(&mut self, title: &str) -> Result<Option<Task>, TransactionError> {
        let sql = "SELECT id FROM tasks WHERE title = ?1 ORDER BY created_at, id LIMIT 1";
        let db = self.reader.db;
        let id: Option<String> = db.first(sql, [title], |row| row.get(0))?;
        let task = id.map(|id| rows::by_id(db, &id)).transpose()?;
        Ok(task.flatten())
    }

    fn set_fields(&mut self, id: &str, edit: &Edit) -> Result<(), TransactionError> {
        let db = self.reader.db;
        let set = |sql: &str, value: &dyn ToSql| db.run(sql, params![id, value]);
        if let Some(title) = &edit.title {
            set("UPDATE tasks SET title = ?2 WHERE id = ?1", title)?;
        }
        if let Some(description) = &edit.description {
            let sql = "UPDATE tasks SET description = nullif(?2, '') WHERE id = ?1";
            set(sql, description)?;
        }
        if let Some(priority) = edit.priority {
            let sql = "UPDATE tasks SET priority = ?2 WHERE id = ?1";
            set(sql, &priority.level())?;
        }
        if let Some(section) = &edit.section {
            let sql = "UPDATE tasks SET section_id = nullif(?2, '') WHERE id = ?1";
            set(sql, section)?;
        }
        for on in &edit.drop_dependencies {
            let sql = "DELETE FROM task_dependencies WHERE task_id = ?1 AND depends_on = ?2";
            set(sql, on)?;
        }
        let sql = "UPDATE tasks SET updated_at = ?2 WHERE id = ?1";
        set(sql, &time(self.now().wall))?;
        Ok(())
    }

    fn add_dependency(&mut self, id: &str, on: &str) -> Result<(), TransactionError> {
        let sql = "INSERT OR IGNORE INTO task_dependencies (task_id, depends_on) VALUES (?1, ?2)";
        self.reader.db.run(sql, [id, on])?;
        Ok(())
    }

    fn reaches(&mut self, id: &str, on: &str) -> Result<bool, TransactionError> {
        let sql = "WITH RECURSIVE before(id) AS (
                       SELECT ?1 UNION SELECT depends_on FROM task_dependencies, before WHERE task_id = before.id
                   ) SELECT 1 FROM before WHERE id = ?2 LIMIT 1";
        Ok(self.reader.db.any(sql, [id, on])?)
    }

    fn erase_task(&mut self, task: &Task) -> Result<usize, TransactionError> {
        let db = self.reader.db;
        let dependents = find::dependents(db, &task.id)?.len();
        db.run("DELETE FROM tasks WHERE id = ?1", [&task.id])?;
        Ok(dependents)
    }

    fn record_event(&mut self, event: &Event) -> Result<(), TransactionError> {
        self.record(event)
    }
}
