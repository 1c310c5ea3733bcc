//! What the verbs of `tenure-core` on tasks need of a write transaction.

use std::cmp::Reverse;

use jiff::Timestamp;
use rusqlite::{Row, params};
use tenure_core::{Evidence, HolderId, Key, Lease};
use tenure_host::random_uuid;
use tenure_tasks::lines::ImportStep;
use tenure_tasks::step::{Candidate, ReadyPart};
use tenure_tasks::{Task, TaskError, TaskStep};

use super::{find, rows};
use crate::history;
use crate::lock_tables::instant;
use crate::query::Query as _;
use crate::rows::{key, number, optional_text, text, time};
use crate::write::{TransactionError, WriteTransaction};

fn candidate(row: &Row<'_>) -> rusqlite::Result<Candidate> {
    Ok(Candidate {
        id: text(row, 0)?,
        section: optional_text(row, 1)?,
        priority: row.get(2)?,
        created_at: Reverse(text(row, 3)?),
    })
}

/// Selects ready tasks.
macro_rules! select_ready {
    ($index:literal, $rest:literal) => {
        concat!(
            "SELECT id, section_id, priority, created_at FROM tasks INDEXED BY ",
            $index,
            " WHERE status IN ('pending', 'in_progress') AND blockers = 0 AND not_before IS NULL AND elsewhere = 0
             AND typeof(priority) = 'integer' ",
            $rest,
            " ORDER BY priority DESC, created_at LIMIT ?1 OFFSET ?2"
        )
    };
}

impl TaskStep for WriteTransaction<'_> {
    fn task(&mut self, id: &str) -> Result<Option<Task>, TransactionError> {
        Ok(rows::by_id(self.reader.db, id)?)
    }

    fn blockers(&mut self, id: &str) -> Result<Vec<Task>, TransactionError> {
        Ok(find::blockers(self.reader.db, id)?)
    }

    fn set_progress(&mut self, task: &Task) -> Result<(), TransactionError> {
        let sql = "UPDATE tasks SET status = ?2, attempts = ?3, last_error = ?4, not_before = ?5, updated_at = ?6
                   WHERE id = ?1";
        let values = params![
            task.id,
            task.status.word(),
            number(task.attempts),
            task.last_error,
            task.not_before.map(time),
            time(task.updated_at),
        ];
        self.reader.db.run(sql, values)?;
        Ok(())
    }

    fn lost(&mut self, id: &str) -> Result<Vec<HolderId>, TransactionError> {
        Ok(rows::lost(self.reader.db, id)?)
    }

    fn set_lost(&mut self, id: &str, lost: &[HolderId]) -> Result<(), TransactionError> {
        Ok(rows::set_lost(self.reader.db, id, lost)?)
    }

    fn set_granted(&mut self, id: &str, lease: &Lease) -> Result<(), TransactionError> {
        let db = self.reader.db;
        Ok(rows::granted(db, id, &lease.holder.id, lease.token)?)
    }

    fn in_progress(
        &mut self,
        section: &str,
        runner: &HolderId,
    ) -> Result<Vec<String>, TransactionError> {
        let sql =
            "SELECT id FROM tasks WHERE section_id = ?1 AND status = 'in_progress' AND runner = ?2";
        let values = [section, runner.as_str()];
        Ok(self.reader.db.all(sql, values, |row| row.get(0))?)
    }

    fn has_open(&mut self, section: &str) -> Result<bool, TransactionError> {
        let sql = "SELECT 1 FROM tasks WHERE section_id = ?1 AND status IN ('pending', 'in_progress') LIMIT 1";
        Ok(self.reader.db.any(sql, [section])?)
    }

    fn last_end(&mut self, key: &Key) -> Result<Option<Evidence>, TransactionError> {
        Ok(history::last_end(self.reader.db, key)?)
    }

    fn held_sections(&mut self) -> Result<Vec<(Key, HolderId)>, TransactionError> {
        let sql = "SELECT key, holder FROM leases WHERE key >= 'section:' AND key < 'section;'";
        let held = self.reader.db.all(sql, [], |row| {
            let holder = HolderId::parse(text(row, 1)?);
            let holder = holder.unwrap_or_else(|_| HolderId::unreadable());
            Ok(key(row, 0).map(|key| (key, holder)))
        })?;
        Ok(held.into_iter().flatten().collect())
    }

    fn end_pauses(&mut self, now: Timestamp, horizon: Timestamp) -> Result<(), TransactionError> {
        let sql = "UPDATE tasks SET not_before = NULL
                   WHERE not_before IS NOT NULL AND (not_before <= ?1 OR not_before > ?2)";
        self.reader.db.run(sql, [time(now), time(horizon)])?;
        Ok(())
    }

    fn first_pause(&mut self) -> Result<Option<Timestamp>, TransactionError> {
        let sql = "SELECT min(not_before) FROM tasks WHERE not_before IS NOT NULL
                   AND status IN ('pending', 'in_progress') AND blockers = 0";
        let first: Option<Option<String>> = self.reader.db.first(sql, [], |row| row.get(0))?;
        Ok(first.flatten().as_deref().and_then(instant))
    }

    fn ready(&mut self, part: ReadyPart<'_>) -> Result<Vec<Candidate>, TransactionError> {
        let (limit, skip) = (number(part.limit), number(part.skip));
        let db = self.reader.db;
        Ok(match part.section {
            None => {
                let ready = select_ready!("tasks_ready", "");
                db.all(ready, [limit, skip], candidate)?
            }
            Some(section) => {
                let ready = select_ready!("tasks_ready_in", "AND section_id IS ?3");
                db.all(ready, params![limit, skip, section], candidate)?
            }
        })
    }

    /// A few steps in the index for each section, however many tasks there are.
    fn best_of_each_section(&mut self) -> Result<Vec<Candidate>, TransactionError> {
        let sql = "WITH RECURSIVE section(id) AS (
                SELECT (SELECT section_id FROM tasks INDEXED BY tasks_ready_in
                    WHERE status IN ('pending', 'in_progress') AND blockers = 0 AND not_before IS NULL AND elsewhere = 0
                    AND section_id > '' ORDER BY section_id LIMIT 1)
                UNION ALL
                SELECT (SELECT section_id FROM tasks INDEXED BY tasks_ready_in
                    WHERE status IN ('pending', 'in_progress') AND blockers = 0 AND not_before IS NULL AND elsewhere = 0
                    AND section_id > section.id ORDER BY section_id LIMIT 1)
                FROM section WHERE section.id IS NOT NULL
            )
            SELECT id, section_id, priority, created_at FROM tasks WHERE rowid IN (
                SELECT (SELECT rowid FROM tasks INDEXED BY tasks_ready_in
                    WHERE status IN ('pending', 'in_progress') AND blockers = 0 AND not_before IS NULL AND elsewhere = 0
                    AND section_id = section.id AND typeof(priority) = 'integer'
                    ORDER BY priority DESC, created_at LIMIT 1)
                FROM section WHERE section.id IS NOT NULL
            )";
        Ok(self.reader.db.all(sql, [], candidate)?)
    }

    fn any_open(&mut self) -> Result<bool, TransactionError> {
        let sql = "SELECT 1 FROM tasks WHERE status IN ('pending', 'in_progress') AND elsewhere = 0 LIMIT 1";
        Ok(self.reader.db.any(sql, [])?)
    }
}

impl ImportStep for WriteTransaction<'_> {
    fn new_id(&mut self) -> String {
        random_uuid().to_string()
    }

    fn dependencies(&mut self) -> Result<Vec<(String, String)>, TransactionError> {
        let sql = "SELECT task_id, depends_on FROM task_dependencies";
        Ok(self.reader.db.all(sql, [], |row| row.try_into())?)
    }

    fn was_deleted(&mut self, id: &str) -> Result<bool, TransactionError> {
        let sql = "SELECT 1 FROM deleted_tasks WHERE id = ?1";
        Ok(self.reader.db.any(sql, [id])?)
    }

    fn task_error(error: TransactionError) -> Result<TaskError, TransactionError> {
        match error {
            TransactionError::Refused(error) => Ok(*error),
            other => Err(other),
        }
    }
}
