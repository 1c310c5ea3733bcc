//! A database of version 1 becomes one of today's: with all that is in it, at once or not at all.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::Connection;
use tempfile::TempDir;
use tenure_core::{Acquired, HistoryQuery, HolderId, Key, Records, Renewed, Store, Verdict};
use tenure_sqlite::{SCHEMA_VERSION, SqliteOptions, SqliteStore};
use tenure_tasks::{Change, Edit, Proof, Status, TaskError, TaskStore as _};
use tenure_testkit::soon;
use tenure_testkit::{Ask, Chance, Process, limit, process};

const APPLICATION: i32 = 0x7465_6e72;

fn open(path: &Path) -> SqliteStore {
    SqliteStore::open(path, SqliteOptions::default()).unwrap()
}

/// A database as version 1 left it, with so many tasks, and who holds something in it.
struct Old {
    dir: TempDir,
    /// Holds `build` and a task, tied to this process, and a section by itself.
    holder: SqliteStore,
}

impl Old {
    fn new(tasks: usize) -> Self {
        let dir = tempfile::tempdir().unwrap();
        // What is held is written by the code of today into a database of its own, and copied: the
        // tables of version 1 are those of today, as far as they go.
        let today = dir.path().join("today.db");
        let holder = open(&today);
        let db = Connection::open(&today).unwrap();
        db.execute_batch(
            "INSERT INTO sections (id, name) VALUES ('s1', 'Backend'), ('s2', 'Frontend');
             INSERT INTO tasks (id, title, section_id, status) VALUES ('t1', 'One', 's1', 'in_progress'),
             ('t2', 'Two', 's1', 'pending'), ('t3', 'Three', NULL, 'completed');",
        )
        .unwrap();
        let key = |text: &str| Key::parse(text).unwrap();
        Ask::new(&key("build"), "a").granted(&holder);
        Ask::new(&key("task:t1"), "a").granted(&holder);
        Ask::new(&key("section:s1"), "a")
            .detached()
            .granted(&holder);
        let waits = Ask::new(&key("build"), "b").waiting();
        assert!(matches!(waits.once(&holder), Acquired::Busy(_)));
        let old = Self { dir, holder };
        let db = Connection::open(old.path()).unwrap();
        db.execute_batch(include_str!("fixtures/schema/1.sql"))
            .unwrap();
        db.execute_batch(&format!(
            "PRAGMA journal_mode = WAL; ATTACH '{}' AS today;
             DELETE FROM tokens; INSERT INTO tokens SELECT * FROM today.tokens;
             INSERT INTO leases SELECT key, token, holder, host, command, binding, acquired_at, expires_at, heartbeat_at,
                 ttl_ms, boot, expires_boot FROM today.leases;
             INSERT INTO tickets
             SELECT ticket, key, holder, host, command, binding, named, priority, boot, arrived, seen, within, parked
             FROM today.tickets;
             INSERT INTO history SELECT id, at, key, kind, token, holder, times, reason, evidence FROM today.history;
             INSERT INTO sections SELECT id, name FROM today.sections;
             INSERT INTO tasks SELECT id, title, section_id, status FROM today.tasks;
             INSERT INTO task_locks SELECT * FROM today.task_locks;
             INSERT INTO section_locks SELECT * FROM today.section_locks;
             WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {tasks})
             INSERT INTO tasks (id, title, section_id) SELECT 'x' || i, 'Task ' || i, 's2' FROM n;
             PRAGMA application_id = {APPLICATION}; PRAGMA user_version = 1;",
            today.display()
        ))
        .unwrap();
        // The liveness lock of the holder is kept beside the database.
        std::fs::rename(
            old.dir.path().join("today.db-live"),
            old.dir.path().join("tenure.db-live"),
        )
        .unwrap();
        old
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("tenure.db")
    }

    /// All that version 1 knew, as it stands now.
    fn picture(&self) -> Vec<String> {
        let db = Connection::open(self.path()).unwrap();
        let mut lines = Vec::new();
        for (table, columns) in [
            ("tokens", "id, newest, boot"),
            (
                "leases",
                "key, token, holder, host, command, binding, acquired_at, expires_at, heartbeat_at, ttl_ms, boot, expires_boot",
            ),
            (
                "tickets",
                "ticket, key, holder, host, binding, named, priority, boot, arrived, seen, within, parked",
            ),
            (
                "history",
                "id, at, key, kind, token, holder, times, reason, evidence",
            ),
            ("sections", "id, name"),
            ("tasks", "id, title, section_id, status"),
            (
                "task_locks",
                "task_id, runner_id, acquired_at, expires_at, heartbeat_at",
            ),
            (
                "section_locks",
                "section_id, runner_id, acquired_at, expires_at",
            ),
        ] {
            let sql = format!("SELECT concat_ws('|', {columns}) FROM {table} ORDER BY 1");
            let mut statement = db.prepare(&sql).unwrap();
            let rows = statement
                .query_map([], |row| row.get::<_, String>(0))
                .unwrap();
            lines.extend(rows.map(|row| format!("{table}: {}", row.unwrap())));
        }
        lines
    }

    fn version(&self) -> i32 {
        let db = Connection::open(self.path()).unwrap();
        let whole: String = db
            .query_row("PRAGMA integrity_check", [], |row| row.get(0))
            .unwrap();
        assert_eq!(whole, "ok");
        db.query_row("PRAGMA user_version", [], |row| row.get(0))
            .unwrap()
    }

    /// Everything of today's version is there.
    fn is_new(&self) {
        assert_eq!(self.version(), SCHEMA_VERSION);
        let db = Connection::open(self.path()).unwrap();
        let count = |sql: &str| db.query_row(sql, [], |row| row.get::<_, i64>(0)).unwrap();
        let fresh = tempfile::tempdir().unwrap();
        open(&fresh.path().join("tenure.db"));
        let made = Connection::open(fresh.path().join("tenure.db")).unwrap();
        let names = |db: &Connection| -> Vec<String> {
            let mut statement = db
                .prepare("SELECT type || ' ' || name || ' ' || coalesce(sql, '') FROM sqlite_schema ORDER BY 1")
                .unwrap();
            let rows = statement.query_map([], |row| row.get(0)).unwrap();
            rows.map(Result::unwrap).collect()
        };
        assert_eq!(names(&db), names(&made), "as a new one has it");
        assert_eq!(
            count(
                "SELECT count(*) FROM tasks WHERE created_at = '' OR updated_at = '' OR blockers != 0"
            ),
            0
        );
        assert_eq!(
            count("SELECT count(*) FROM sections WHERE created_at = ''"),
            0
        );
    }
}

/// Not a test: a process that opens a database once it is told to.
#[test]
fn worker() {
    let Some(path) = process::job() else { return };
    process::report("ready");
    std::io::stdin().read_line(&mut String::new()).unwrap();
    open(Path::new(&path));
    process::report("opened");
}

#[test]
fn an_upgrade_from_version_1_keeps_every_row() {
    let old = Old::new(10);
    let before = old.picture();
    let store = open(&old.path());
    assert_eq!(old.picture(), before);
    old.is_new();
    let task = store.find_task("One", soon()).unwrap();
    assert_eq!(task.status, Status::InProgress);
    assert_eq!(task.section.unwrap().name, "Backend");
    let events = store.history(&HistoryQuery::default(), soon()).unwrap();
    assert!(!events.is_empty());
    open(&old.path());
    assert_eq!(old.picture(), before);
}

#[test]
fn a_holder_keeps_its_leases_over_the_upgrade() {
    let old = Old::new(10);
    let store = open(&old.path());
    for key in ["build", "task:t1", "section:s1"] {
        let key = Key::parse(key).unwrap();
        let asked = Ask::new(&key, "other").once(&store);
        let Acquired::Busy(busy) = asked else {
            panic!("{key}: {asked:?}");
        };
        let (lease, verdict) = busy.lease().cloned().unwrap();
        assert_eq!(lease.holder.id.as_str(), "a");
        assert!(verdict.ended().is_none(), "{verdict:?}");
        assert!(key.as_str() == "section:s1" || verdict == Verdict::Alive);
        let renewed = store
            .renew(&lease.grant(), Duration::from_secs(60), soon())
            .unwrap();
        assert!(matches!(renewed, Renewed::Extended(_)), "{renewed:?}");
    }
    let known = store
        .inspect(&Key::parse("build").unwrap(), soon())
        .unwrap();
    assert_eq!(known.queue.len(), 1, "and the waiter waits");
    drop(old.holder);
}

#[test]
fn a_runner_ends_its_task_after_the_upgrade_by_name_and_by_token() {
    for by_token in [false, true] {
        let old = Old::new(1);
        let store = open(&old.path());
        let known = store
            .inspect(&Key::parse("task:t1").unwrap(), soon())
            .unwrap();
        let (lease, _) = known.lease().cloned().unwrap();
        let stranger = Proof::Name(HolderId::parse("stranger").unwrap());
        let done = Change::To(Status::Completed);
        let error = store
            .change("t1", &stranger, &done, &Edit::default(), soon())
            .unwrap_err();
        assert!(matches!(error, TaskError::Locked { .. }), "{error}");
        let proof = if by_token {
            Proof::Token(lease.token)
        } else {
            Proof::Name(lease.holder.id)
        };
        let changed = store
            .change("t1", &proof, &done, &Edit::default(), soon())
            .unwrap();
        assert_eq!(changed.task.status, Status::Completed);
    }
}

#[test]
fn eight_processes_that_open_an_old_database_at_once_all_succeed() {
    for _ in 0..3 {
        let old = Old::new(300);
        let before = old.picture();
        let mut processes: Vec<Process> = (0..8)
            .map(|_| Process::start("upgrade::worker", old.path().to_str().unwrap()))
            .collect();
        for process in &processes {
            assert_eq!(process.report(), "ready");
        }
        for process in &mut processes {
            process.tell("go");
        }
        for process in &processes {
            assert_eq!(process.report(), "opened");
        }
        old.is_new();
        assert_eq!(old.picture(), before);
    }
}

#[test]
fn a_process_that_is_killed_in_an_upgrade_leaves_either_version_whole() {
    let seed = Chance::seed();
    println!("seed {seed}");
    let mut chance = Chance::from_seed(seed);
    let old = Old::new(5000);
    // Folded into the file, so that a copy of the file is a copy of all.
    let db = Connection::open(old.path()).unwrap();
    db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
        .unwrap();
    drop(db);
    let before = old.picture();
    let saved = std::fs::read(old.path()).unwrap();
    let mut versions = [0, 0];
    for _ in 0..40 {
        for left in ["-wal", "-shm"] {
            let _ = std::fs::remove_file(format!("{}{left}", old.path().display()));
        }
        std::fs::write(old.path(), &saved).unwrap();
        let log = PathBuf::from(format!("{}-wal", old.path().display()));
        let mut process = Process::start("upgrade::worker", old.path().to_str().unwrap());
        assert_eq!(process.report(), "ready");
        process.tell("go");
        limit::within_limit("the log to appear", || log.exists());
        std::thread::sleep(chance.time(Duration::from_millis(50)));
        process.kill();
        let version = old.version();
        assert!(
            [1, SCHEMA_VERSION].contains(&version),
            "in between: {version}"
        );
        versions[usize::from(version > 1)] += 1;
        assert_eq!(old.picture(), before, "version {version}");
        if version == 1 {
            let db = Connection::open(old.path()).unwrap();
            let new: i64 = db
                .query_row(
                    "SELECT count(*) FROM pragma_table_info('tasks')",
                    [],
                    |row| row.get(0),
                )
                .unwrap();
            assert_eq!(new, 4, "nothing of a later version in version 1");
        }
        open(&old.path());
        old.is_new();
        assert_eq!(old.picture(), before);
    }
    println!(
        "{} were still of version 1, {} of version 2",
        versions[0], versions[1]
    );
}
