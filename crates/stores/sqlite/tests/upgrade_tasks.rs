//! Databases of schema 2 to 6 become today's: with every task in them, at once or not at all.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clones::{CloneDb, check_blockers, new_task, open, times};
use rusqlite::Connection;
use tempfile::TempDir;
use tenure_core::{Acquired, ErrorKind, HistoryQuery, Key, Mode, Reap, Records, Store as _};
use tenure_sqlite::{Purpose, SCHEMA_VERSION, SqliteOptions, SqliteStore};
use tenure_tasks::{Edit, TaskQuery, TaskStore as _};
use tenure_testkit::soon;
use tenure_testkit::{Ask, Chance, Process, limit, process};

use crate::clones;

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

/// The tables of a database, in the order of their names.
fn tables(path: &Path) -> Vec<String> {
    let named = |(table, _): (String, Vec<String>)| table;
    columns(path).into_iter().map(named).collect()
}

/// All that a database has which was made for locks.
const FOR_LOCKS: [&str; 6] = [
    "history",
    "leases",
    "leaving",
    "sqlite_sequence",
    "tickets",
    "tokens",
];

fn open_for_locks(path: &Path) -> SqliteStore {
    let options = SqliteOptions {
        purpose: Purpose::Locks,
        ..SqliteOptions::default()
    };
    SqliteStore::open(path, options).unwrap()
}

/// What this store says of tasks, and of the locks on them.
fn says_there_are_no_tasks(store: &SqliteStore) {
    assert!(
        store
            .tasks(&TaskQuery::default(), soon())
            .unwrap()
            .is_empty()
    );
    assert!(store.sections(soon()).unwrap().is_empty());
    assert!(store.find_task("x1", soon()).is_err());
    assert!(store.find_section("Backend", soon()).is_err());
    assert!(store.task_history("x1", soon()).unwrap().is_empty());
    assert!(store.replica(soon()).unwrap().tasks.is_empty());
    assert!(store.sync_state(soon()).unwrap().unshared.is_empty());
    store
        .export(&mut |line| assert!(line.starts_with('#'), "{line}"), soon())
        .unwrap();
    let task = Key::parse("task:x1").unwrap();
    assert!(store.inspect(&task, soon()).unwrap().is_idle());
    let held = store.list(soon()).unwrap();
    assert_eq!(held.len(), 1, "{held:?}");
}

#[test]
fn a_database_that_was_made_for_locks_gets_the_tables_of_tasks_with_the_first_one() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tenure.db");
    let locks = open_for_locks(&path);
    let build = Key::parse("build").unwrap();
    let lease = Ask::new(&build, "holder").granted(&locks);
    says_there_are_no_tasks(&locks);
    says_there_are_no_tasks(&SqliteStore::open_read_only(&path, SqliteOptions::default()).unwrap());
    let _ = locks.reap(Reap::Free, soon()).unwrap();
    for key in ["task:x1", "section:s1"] {
        let key = Key::parse(key).unwrap();
        let claim = Ask::new(&key, "holder").claim(&locks);
        let refused = locks.acquire(&claim, soon()).unwrap_err();
        assert_eq!(refused.kind, ErrorKind::NotFound, "{refused}");
    }
    assert_eq!(tables(&path), FOR_LOCKS);
    // Two objects that were opened before write the first tasks.
    let other = open_for_locks(&path);
    for (store, title) in [(&locks, "One"), (&other, "Two")] {
        store.add_task(&new_task(title), soon()).unwrap();
    }
    let task = locks.find_task("Two", soon()).unwrap();
    let key = Key::parse(format!("task:{}", task.id)).unwrap();
    let held = Ask::new(&key, "runner").granted(&other);
    assert_eq!(locks.list(soon()).unwrap().len(), 2);
    let _ = other.release(&held.grant(), soon()).unwrap();
    let _ = locks.release(&lease.grant(), soon()).unwrap();
    is_as_new(&CloneDb { store: other, dir });
}

#[test]
fn an_upgrade_for_locks_makes_the_tables_of_tasks_only_if_something_is_in_them() {
    for (row, kept) in [
        ("", false),
        (
            "INSERT INTO sections (id, name) VALUES ('s1', 'Backend')",
            true,
        ),
        ("UPDATE exchange SET settled = 'note'", true),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tenure.db");
        let db = Connection::open(&path).unwrap();
        db.execute_batch("PRAGMA page_size = 1024; PRAGMA journal_mode = WAL;")
            .unwrap();
        db.execute_batch(include_str!("fixtures/schema/5.sql"))
            .unwrap();
        db.execute_batch(&format!(
            "UPDATE tokens SET newest = 7; {row};
             PRAGMA application_id = 0x74656e72; PRAGMA user_version = 5;"
        ))
        .unwrap();
        drop(db);
        let mut before = columns(&path);
        if !kept {
            before.retain(|(table, _)| FOR_LOCKS.contains(&table.as_str()));
        }
        let rows = picture(&path, &before);
        let store = open_for_locks(&path);
        assert_eq!(picture(&path, &before), rows);
        assert_eq!(tables(&path) == FOR_LOCKS, !kept, "{row}");
        drop(store);
        let store = open(&path);
        is_as_new(&CloneDb { dir, store });
    }
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
fn an_upgrade_from_version_6_keeps_every_lease_and_ticket_as_exclusive() {
    let here = upgrade_from(
        6,
        include_str!("fixtures/schema/6.sql"),
        "INSERT INTO leases VALUES
             ('build', 7, 'a', 'here', NULL, '{\"kind\":\"detached\"}', '2026-01-01T00:00:00.000Z', '2099-01-01T00:00:00.000Z',
              '2026-01-01T00:00:00.000Z', 60000, 'earlier', 1);
         UPDATE tokens SET newest = 7;
         INSERT INTO tickets (key, holder, host, binding, named, priority, boot, arrived, seen, within) VALUES
             ('build', 'b', 'here', '{\"kind\":\"detached\"}', 1, 5, 'earlier', 1000000000, 1, ',');
         INSERT INTO history (at, key, kind, token, holder, reason)
             VALUES ('2026-01-01T00:00:00.000Z', 'build', 'granted', 7, 'a', 'acquired_new');",
    );
    let key = Key::parse("build").unwrap();
    let known = here.store.inspect(&key, soon()).unwrap();
    assert_eq!(known.leases[0].0.mode, Mode::Exclusive);
    assert_eq!(known.forgotten[0].mode, Mode::Exclusive);
    let query = HistoryQuery::default();
    assert_eq!(
        here.store.history(&query, soon()).unwrap()[0].mode,
        Mode::Exclusive
    );
    // The lease still keeps every other claim out.
    for mode in [Mode::Exclusive, Mode::Shared] {
        let busy = Ask::new(&key, "c").mode(mode).once(&here.store);
        assert!(matches!(busy, Acquired::Busy(_)), "{busy:?}");
    }
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
            let mut process = Process::start("upgrade_tasks::upgrader", path.to_str().unwrap());
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
