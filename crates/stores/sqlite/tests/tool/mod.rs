//! The other program: a copy of its database, and the SQL that it runs there.
//!
//! Nothing here is tenure's: what the tool thinks of a row is the judgement on tenure's rows.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};
use tempfile::TempDir;
use tenure_core::{Acquired, Event, HistoryQuery, Key, Records};
use tenure_sqlite::{SqliteOptions, SqliteStore};
use tenure_testkit::soon;

/// Tasks and a section that every copy has besides its own, all free.
const CHANGED: &str = "
    DELETE FROM task_locks;
    DELETE FROM section_locks;
    INSERT INTO sections (id, name, position) VALUES ('s1', 'Tests', 2);
    INSERT INTO tasks (id, title, section_id) VALUES ('t1', 'One', 's1'), ('t2', 'Two', 's1'), ('t3', 'Three', 's1');";

/// A copy of the tool's database in this folder, made by the first process.
pub(crate) fn database(folder: &Path) -> PathBuf {
    let path = folder.join("steroids.db");
    if !path.exists() {
        let sample = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/steroids.db");
        let own = folder.join(format!("{}.db", std::process::id()));
        fs::copy(sample, &own).unwrap();
        Connection::open(&own)
            .unwrap()
            .execute_batch(CHANGED)
            .unwrap();
        // Another process made one meanwhile.
        let _ = fs::hard_link(&own, &path);
        fs::remove_file(&own).unwrap();
    }
    path
}

/// Tenure on that database.
pub(crate) fn tenure(path: &Path) -> SqliteStore {
    SqliteStore::open_foreign(path, SqliteOptions::default()).unwrap()
}

/// A key.
pub(crate) fn key(name: &str) -> Key {
    Key::parse(name).unwrap()
}

/// One runner of the tool.
pub(crate) struct Tool {
    pub(crate) db: Connection,
    pub(crate) runner: String,
}

impl Tool {
    /// As the tool opens its database.
    pub(crate) fn at(path: &Path, runner: &str) -> Self {
        let db = Connection::open(path).unwrap();
        db.busy_timeout(Duration::from_secs(5)).unwrap();
        db.execute_batch("PRAGMA foreign_keys = ON; PRAGMA synchronous = NORMAL")
            .unwrap();
        Self {
            db,
            runner: runner.into(),
        }
    }

    /// Takes a task's lock for so long: inserts it, or takes over one that has expired.
    pub(crate) fn acquire(&mut self, task: &str, ttl: Duration) -> bool {
        let tx = self
            .db
            .transaction_with_behavior(TransactionBehavior::Immediate)
            .unwrap();
        let end = tx
            .query_row(
                "SELECT strftime('%Y-%m-%dT%H:%M:%fZ', 'now', ?1)",
                [seconds(ttl)],
                |row| row.get::<_, String>(0),
            )
            .unwrap();
        let inserted = tx.execute(
            "INSERT INTO task_locks (task_id, runner_id, expires_at) VALUES (?1, ?2, ?3)",
            params![task, self.runner, end],
        );
        let changed = match inserted {
            Ok(changed) => changed,
            Err(rusqlite::Error::SqliteFailure(failure, _))
                if failure.extended_code == rusqlite::ffi::SQLITE_CONSTRAINT_PRIMARYKEY =>
            {
                tx.execute(
                    "UPDATE task_locks SET runner_id = ?1, acquired_at = datetime('now'), expires_at = ?2,
                     heartbeat_at = datetime('now')
                     WHERE task_id = ?3 AND expires_at < strftime('%Y-%m-%dT%H:%M:%fZ', 'now')",
                    params![self.runner, end, task],
                )
                .unwrap()
            }
            Err(error) => panic!("the tool could not lock {task}: {error}"),
        };
        tx.commit().unwrap();
        changed == 1
    }

    /// Moves the end of its lock; all times are of the second form afterwards.
    pub(crate) fn heartbeat(&self, task: &str, ttl: Duration) -> bool {
        let changed = self.db.execute(
            "UPDATE task_locks SET acquired_at = strftime('%Y-%m-%dT%H:%M:%fZ', acquired_at),
             heartbeat_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now'), expires_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now', ?1)
             WHERE task_id = ?2 AND runner_id = ?3",
            params![seconds(ttl), task, self.runner],
        );
        changed.unwrap() == 1
    }

    /// Gives its lock back.
    pub(crate) fn release(&self, task: &str) -> bool {
        let sql = "DELETE FROM task_locks WHERE task_id = ?1 AND runner_id = ?2";
        self.db.execute(sql, params![task, self.runner]).unwrap() == 1
    }

    /// Removes what has expired.
    pub(crate) fn cleanup(&self) -> usize {
        let sql = "DELETE FROM task_locks WHERE expires_at < strftime('%Y-%m-%dT%H:%M:%fZ', 'now')";
        self.db.execute(sql, []).unwrap()
    }

    /// The holder of a lock, as the tool sees it: an expired lock has none.
    pub(crate) fn holder(&self, task: &str) -> Option<String> {
        self.db
            .query_row(
                "SELECT runner_id FROM task_locks
                 WHERE task_id = ?1 AND expires_at >= strftime('%Y-%m-%dT%H:%M:%fZ', 'now')",
                [task],
                |row| row.get(0),
            )
            .optional()
            .unwrap()
    }

    /// Any SQL at all.
    pub(crate) fn sql(&self, text: &str) {
        self.db.execute_batch(text).unwrap();
    }

    /// One value.
    pub(crate) fn ask<T: rusqlite::types::FromSql>(&self, text: &str) -> T {
        self.db.query_row(text, [], |row| row.get(0)).unwrap()
    }
}

fn seconds(time: Duration) -> String {
    format!("+{:.3} seconds", time.as_secs_f64())
}

/// The tool's database, a runner of the tool, and tenure.
pub(crate) struct Both {
    pub(crate) dir: TempDir,
    pub(crate) path: PathBuf,
    pub(crate) tool: Tool,
    pub(crate) store: SqliteStore,
}

impl Both {
    /// A runner called `coder`, and tenure.
    pub(crate) fn new() -> Self {
        Self::with_journal("WAL")
    }

    /// The same where the tool keeps another kind of journal.
    pub(crate) fn with_journal(mode: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = database(dir.path());
        Connection::open(&path)
            .unwrap()
            .query_row(&format!("PRAGMA journal_mode = {mode}"), [], |_| Ok(()))
            .unwrap();
        Self::in_folder(dir)
    }

    /// The same in a folder that may have the tool's database already.
    pub(crate) fn in_folder(dir: TempDir) -> Self {
        let path = database(dir.path());
        Self {
            tool: Tool::at(&path, "coder"),
            store: tenure(&path),
            path,
            dir,
        }
    }

    /// The database of ours that is beside the tool's.
    pub(crate) fn side(&self) -> Connection {
        Connection::open(self.dir.path().join("steroids.db-tenure")).unwrap()
    }

    /// What tenure tells of the past.
    pub(crate) fn events(&self) -> Vec<Event> {
        self.store
            .history(&HistoryQuery::default(), soon())
            .unwrap()
    }

    /// How many tasks are locked, as the tool sees it.
    pub(crate) fn rows(&self) -> i64 {
        self.tool.ask("SELECT count(*) FROM task_locks")
    }
}

/// The task that most tests are about.
pub(crate) fn task() -> Key {
    key("task:t1")
}

/// Whether a claim was refused.
pub(crate) fn is_busy(asked: &Acquired) -> bool {
    matches!(asked, Acquired::Busy(_))
}
