//! Databases of schema 2, 3, 4 and 5 become today's: with every task in them, at once or not at all.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "test code fails by panicking"
)]

mod clones;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clones::{CloneDb, check_blockers, open, times};
use rusqlite::Connection;
use tempfile::TempDir;
use tenure_core::task::{Edit, TaskStore as _};
use tenure_core::{Key, Store as _};
use tenure_sqlite::{Purpose, SCHEMA_VERSION, SqliteOptions, SqliteStore};
use tenure_testkit::soon;
use tenure_testkit::{Ask, Chance, Process, limit, process};

const SCHEMAS: [&str; 3] = [
    include_str!("fixtures/schema/1.sql"),
    include_str!("fixtures/schema/2.sql"),
    include_str!("fixtures/schema/3.sql"),
];

/// A database as tenure left it when its schema had this version, with so many tasks.
fn of_version(version: i32, tasks: usize) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let db = Connection::open(dir.path().join("tenure.db")).unwrap();
    db.execute_batch("PRAGMA page_size = 1024; PRAGMA journal_mode = WAL;")
        .unwrap();
    for schema in &SCHEMAS[..usize::try_from(version).unwrap()] {
        db.execute_batch(schema).unwrap();
    }
    db.execute_batch(&format!(
        "INSERT INTO sections (id, name) VALUES ('s1', 'Backend'), ('s2', 'Frontend');
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {tasks})
         INSERT INTO tasks (id, title, section_id, status, description, priority, attempts, last_error, runner, token)
         SELECT 'x' || i, 'Task ' || i, iif(i % 2, 's1', 's2'), iif(i % 3, 'pending', 'completed'), 'About ' || i, i % 10,
             i % 4, iif(i % 4, 'oops', NULL), iif(i % 3, NULL, 'agent'), i FROM n;
         INSERT INTO task_dependencies SELECT id, 'x1' FROM tasks WHERE id <> 'x1';
         UPDATE tokens SET newest = 4711, boot = 'earlier';
         INSERT INTO tickets (key, holder, host, binding, named, priority, boot, arrived, seen, within)
             SELECT 'build', 'b', 'here', '\"detached\"', 1, 5, 'earlier', 1, 1, ',' FROM tasks;
         DELETE FROM tickets WHERE ticket > 1;
         INSERT INTO task_locks (task_id, runner_id, expires_at) VALUES ('x1', 'other', '2099-01-01 00:00:00');
         PRAGMA application_id = 0x74656e72; PRAGMA user_version = {version};
         PRAGMA wal_checkpoint(TRUNCATE);"
    ))
    .unwrap();
    dir
}

/// Every row of these columns.
type Columns = Vec<(String, Vec<String>)>;

/// The tables of a database, each with its columns.
fn columns(path: &Path) -> Columns {
    let db = Connection::open(path).unwrap();
    let names = |sql: &str, of: &str| -> Vec<String> {
        let mut statement = db.prepare(sql).unwrap();
        let rows = statement.query_map([of], |row| row.get(0)).unwrap();
        rows.map(Result::unwrap).collect()
    };
    names(
        "SELECT name FROM sqlite_schema WHERE type = ?1 ORDER BY 1",
        "table",
    )
    .into_iter()
    .map(|table| {
        let columns = names("SELECT name FROM pragma_table_info(?1)", &table);
        (table, columns)
    })
    .collect()
}

/// All that is in these columns.
fn picture(path: &Path, columns: &Columns) -> Vec<String> {
    let db = Connection::open(path).unwrap();
    let mut lines = Vec::new();
    for (table, columns) in columns {
        let sql = format!(
            "SELECT concat_ws('|', '{table}', {}) FROM {table} ORDER BY 1",
            columns.join(", ")
        );
        let mut statement = db.prepare(&sql).unwrap();
        let rows = statement
            .query_map([], |row| row.get::<_, String>(0))
            .unwrap();
        lines.extend(rows.map(Result::unwrap));
    }
    lines
}

/// Not a test: a process that opens a database when the test says so.
#[test]
fn upgrader() {
    let Some(path) = process::job() else { return };
    process::report("ready");
    std::io::stdin().read_line(&mut String::new()).unwrap();
    open(Path::new(&path));
    process::report("opened");
}

#[test]
fn an_upgrade_from_version_2_keeps_every_row_and_shares_the_tasks() {
    let dir = of_version(2, 20);
    let path = dir.path().join("tenure.db");
    let columns = columns(&path);
    let before = picture(&path, &columns);
    let here = CloneDb {
        store: open(&path),
        dir,
    };
    assert_eq!(picture(&path, &columns), before);
    assert_eq!(here.count("PRAGMA user_version"), i64::from(SCHEMA_VERSION));
    let replica = here.store.replica(soon()).unwrap();
    assert_eq!((replica.tasks.len(), replica.sections.len()), (20, 2));
    for copy in replica.tasks.values() {
        assert!(times(copy).iter().all(|time| *time == copy.created_at));
    }
    // A dependency of before can be dropped, and that stands.
    let there = CloneDb::new();
    there.store.merge(&replica, soon()).unwrap();
    here.sql("DELETE FROM task_dependencies WHERE task_id = 'x2'");
    there.exchange(&here);
    assert_eq!(
        there.count("SELECT count(*) FROM task_dependencies WHERE task_id = 'x2'"),
        0
    );
    assert_eq!(there.count("SELECT count(*) FROM task_dependencies"), 18);
    check_blockers(&there);
    // A new section leaves the tasks alone, as it did not in version 2.
    here.sql("UPDATE tasks SET runner = 'kept', token = 7");
    here.sql("INSERT INTO sections (id, name) VALUES ('s3', 'New')");
    assert_eq!(
        here.count("SELECT count(*) FROM tasks WHERE runner = 'kept' AND token = 7"),
        20
    );
    assert!(
        !here
            .text("SELECT created_at FROM sections WHERE id = 's3'")
            .is_empty()
    );
    is_as_new(&here);
}

/// The schema is that of a new database, to the letter.
fn is_as_new(here: &CloneDb) {
    let schema = "SELECT type || name || coalesce(sql, '') FROM sqlite_schema ORDER BY 1";
    assert_eq!(here.rows(schema), CloneDb::new().rows(schema));
    assert_eq!(here.text("PRAGMA integrity_check"), "ok");
    assert!(here.rows("PRAGMA foreign_key_check").is_empty());
}

#[test]
fn an_upgrade_from_version_3_keeps_every_row() {
    let dir = of_version(3, 20);
    let path = dir.path().join("tenure.db");
    let db = Connection::open(&path).unwrap();
    // Every kind of row that version 3 added: times, history, a deletion.
    db.execute_batch(
        "UPDATE tasks SET title = 'New', description = NULL, section_id = 's1', priority = 1, status = 'review'
             WHERE id IN ('x2', 'x3');
         DELETE FROM task_dependencies WHERE task_id = 'x4';
         DELETE FROM tasks WHERE id = 'x5';
         UPDATE tasks SET elsewhere = 1 WHERE id = 'x6';
         CREATE TABLE of_another_program (task TEXT REFERENCES tasks(id));
         INSERT INTO of_another_program VALUES ('x7');
         CREATE VIEW titles AS SELECT title FROM tasks;",
    )
    .unwrap();
    drop(db);
    let columns = columns(&path);
    let before = picture(&path, &columns);
    for table in [
        "task_history",
        "deleted_tasks",
        "dependency_times",
        "sqlite_sequence",
    ] {
        assert!(before.iter().any(|line| line.starts_with(table)), "{table}");
    }
    let here = CloneDb {
        store: open(&path),
        dir,
    };
    assert_eq!(picture(&path, &columns), before);
    assert_eq!(here.count("PRAGMA user_version"), i64::from(SCHEMA_VERSION));
    // What another program made beside tenure's tables still refers to them.
    assert_eq!(here.rows("SELECT title FROM titles").len(), 19);
    here.sql("PRAGMA foreign_keys = ON; INSERT INTO of_another_program VALUES ('x8')");
    here.sql("DROP VIEW titles; DROP TABLE of_another_program");
    is_as_new(&here);
    // Triggers and foreign keys are on again for the connection that upgraded.
    let edit = Edit {
        title: Some("Newer".into()),
        ..Edit::default()
    };
    here.store.edit_task("x2", &edit, soon()).unwrap();
    assert_eq!(
        here.store.task_history("x2", soon()).unwrap()[0].value,
        "New"
    );
}

/// An upgrade of a database with a few tasks from a version whose schema is one whole file.
fn upgrade_from(version: i32, schema: &str, rows: &str) -> CloneDb {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tenure.db");
    let db = Connection::open(&path).unwrap();
    db.execute_batch("PRAGMA page_size = 1024; PRAGMA journal_mode = WAL;")
        .unwrap();
    db.execute_batch(schema).unwrap();
    db.execute_batch(&format!(
        "INSERT INTO sections (id, name) VALUES ('s1', 'Backend');
         INSERT INTO tasks (id, title, section_id) VALUES ('x1', 'One', 's1'), ('x2', 'Two', NULL), ('x3', 'Gone', NULL);
         UPDATE tasks SET title = 'Uno' WHERE id = 'x1';
         DELETE FROM tasks WHERE id = 'x3';
         {rows}
         PRAGMA application_id = 0x74656e72; PRAGMA user_version = {version};"
    ))
    .unwrap();
    drop(db);
    let columns = columns(&path);
    let before = picture(&path, &columns);
    let here = CloneDb {
        store: open(&path),
        dir,
    };
    assert_eq!(picture(&path, &columns), before);
    is_as_new(&here);
    here
}

#[test]
fn an_upgrade_from_version_4_keeps_every_row_and_shares_all_tasks_anew() {
    let here = upgrade_from(4, include_str!("fixtures/schema/4.sql"), "");
    // Also in a clone that was never synced.
    let state = here.store.sync_state(soon()).unwrap();
    assert_eq!(state.unshared, ["", "x1", "x2", "x3"]);
    assert_eq!(state.note, "");
}

#[test]
fn a_database_that_was_made_for_locks_serves_tasks_from_the_first_one_on() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tenure.db");
    let open = |purpose| {
        let options = SqliteOptions {
            purpose,
            ..SqliteOptions::default()
        };
        SqliteStore::open(&path, options).unwrap()
    };
    let triggers = || -> i64 {
        let count = "SELECT count(*) FROM sqlite_schema WHERE type = 'trigger'";
        let db = Connection::open(&path).unwrap();
        db.query_row(count, [], |row| row.get(0)).unwrap()
    };
    let locks = open(Purpose::Locks);
    let key = Key::parse("build").unwrap();
    let lease = Ask::new(&key, "holder").granted(&locks);
    assert_eq!(triggers(), 0);
    // Another program adds tasks that nothing counts yet.
    Connection::open(&path)
        .unwrap()
        .execute_batch(
            "INSERT INTO sections (id, name) VALUES ('s1', 'Backend');
             INSERT INTO tasks (id, title, section_id) VALUES ('x1', 'One', 's1'), ('x2', 'Two', NULL);
             INSERT INTO task_dependencies VALUES ('x2', 'x1');",
        )
        .unwrap();
    // The first change of a task, by an object that is open for locks, and an object that is open for tasks:
    // either finds them as if the triggers had been there.
    let edit = Edit {
        title: Some("Uno".into()),
        ..Edit::default()
    };
    locks.edit_task("x1", &edit, soon()).unwrap();
    assert!(triggers() > 15);
    let here = CloneDb {
        store: open(Purpose::Tasks),
        dir,
    };
    assert_eq!(here.count("SELECT blockers FROM tasks WHERE id = 'x2'"), 1);
    assert_eq!(
        here.count("SELECT count(*) FROM tasks WHERE created_at = '' OR updated_at = ''"),
        0
    );
    assert_eq!(here.count("SELECT count(*) FROM task_history"), 1);
    let state = here.store.sync_state(soon()).unwrap();
    assert_eq!(state.unshared, ["", "x1", "x2"]);
    is_as_new(&here);
    let _ = locks.release(&lease.grant(), soon()).unwrap();
}

#[test]
fn an_upgrade_from_version_5_keeps_every_row_and_orders_the_queue() {
    let here = upgrade_from(
        5,
        include_str!("fixtures/schema/5.sql"),
        "UPDATE exchange SET settled = 'note'; DELETE FROM unshared WHERE id <> 'x1';
         INSERT INTO tickets (key, holder, host, binding, named, priority, boot, arrived, seen, within) VALUES
             ('build', 'first', 'here', '\"detached\"', 1, 5, 'earlier', 1000000000, 1, ','),
             ('build', 'urgent', 'here', '\"detached\"', 1, 6, 'earlier', 2000000000, 1, ','),
             ('build', 'gone', 'here', '\"detached\"', 1, 5, 'earlier', 3000000000, 1, ',');
         DELETE FROM tickets WHERE holder = 'gone';",
    );
    let state = here.store.sync_state(soon()).unwrap();
    assert_eq!(
        (state.unshared, state.note.as_str()),
        (vec!["x1".into()], "note")
    );
    assert_eq!(
        here.rows("SELECT holder || ' ' || rank FROM tickets ORDER BY rank"),
        ["urgent -358000000000", "first -299000000000"]
    );
    assert_eq!(
        here.count("SELECT seq FROM sqlite_sequence WHERE name = 'tickets'"),
        3
    );
}

#[test]
fn a_process_that_is_killed_in_an_upgrade_leaves_either_version_whole() {
    let seed = Chance::seed();
    println!("seed {seed}");
    let mut chance = Chance::from_seed(seed);
    for (version, tasks_columns) in [(2, 15), (3, 21)] {
        let dir = of_version(version, 5000);
        let path = dir.path().join("tenure.db");
        let columns = columns(&path);
        let (before, saved) = (picture(&path, &columns), std::fs::read(&path).unwrap());
        let mut seen = BTreeSet::new();
        for round in 0..15 {
            for left in ["-wal", "-shm"] {
                let _ = std::fs::remove_file(format!("{}{left}", path.display()));
            }
            let _ = std::fs::remove_dir_all(format!("{}-live", path.display()));
            std::fs::write(&path, &saved).unwrap();
            let mut process = Process::start("upgrader", path.to_str().unwrap());
            assert_eq!(process.report(), "ready");
            process.tell("go");
            let log = PathBuf::from(format!("{}-wal", path.display()));
            limit::within_limit("the log to appear", || log.exists());
            std::thread::sleep(chance.time(Duration::from_millis(80)));
            process.kill();
            assert_eq!(picture(&path, &columns), before, "round {round}");
            let db = Connection::open(&path).unwrap();
            let number = |sql: &str| -> i32 { db.query_row(sql, [], |row| row.get(0)).unwrap() };
            let found = number("PRAGMA user_version");
            assert!(
                [version, SCHEMA_VERSION].contains(&found),
                "version {found}"
            );
            assert_eq!(
                number("SELECT count(*) FROM pragma_table_info('tasks')"),
                if found == version { tasks_columns } else { 21 },
                "version {found}"
            );
            assert_eq!(
                number("SELECT count(*) FROM sqlite_schema WHERE name LIKE 'old_%'"),
                0
            );
            seen.insert(found);
            drop(db);
            open(&path).replica(soon()).unwrap();
            assert_eq!(picture(&path, &columns), before);
        }
        println!("from version {version}, these were left: {seen:?}");
    }
}

#[test]
fn a_dependency_of_version_2_that_is_dropped_gets_a_later_time_than_its_task() {
    let dir = of_version(2, 3);
    let path = dir.path().join("tenure.db");
    let db = Connection::open(&path).unwrap();
    db.execute_batch("UPDATE tasks SET created_at = '2099-01-01T00:00:00.000Z'")
        .unwrap();
    drop(db);
    let here = CloneDb {
        store: open(&path),
        dir,
    };
    let before = here.store.replica(soon()).unwrap();
    here.sql("DELETE FROM task_dependencies WHERE task_id = 'x2'");
    here.store.merge(&before, soon()).unwrap();
    assert_eq!(
        here.count("SELECT count(*) FROM task_dependencies WHERE task_id = 'x2'"),
        0
    );
}
