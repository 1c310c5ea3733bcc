//! Making a database: at once with others, on top of nothing, and killed in the middle.

use std::path::Path;
use std::sync::Barrier;
use std::time::Duration;

use rusqlite::Connection;
use tenure_core::{Key, Store};
use tenure_sqlite::{SCHEMA_VERSION, SqliteOptions, SqliteStore};
use tenure_testkit::soon;
use tenure_testkit::{Ask, Chance, Process, limit, process};

fn open(path: &Path) -> SqliteStore {
    SqliteStore::open(path, SqliteOptions::default()).unwrap()
}

fn works(path: &Path) {
    let store = open(path);
    let key = Key::parse("build").unwrap();
    let lease = Ask::new(&key, "holder").granted(&store);
    assert!(store.release(&lease.grant(), soon()).is_ok());
    let db = Connection::open(path).unwrap();
    let number = |pragma: &str| -> i32 { db.query_row(pragma, [], |row| row.get(0)).unwrap() };
    assert_eq!(number("PRAGMA user_version"), SCHEMA_VERSION);
    let words: String = db
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .unwrap();
    assert_eq!(words, "ok");
}

/// Not a test: a process that opens a database once it is told to; or, in a folder, one new database after the other, each
/// by several threads at once.
#[test]
fn worker() {
    let Some(path) = process::job() else { return };
    let path = Path::new(&path);
    process::report("ready");
    std::io::stdin().read_line(&mut String::new()).unwrap();
    if path.is_dir() {
        for number in 0..DATABASES {
            let path = path.join(format!("{number}.db"));
            std::thread::scope(|threads| {
                for _ in 0..3 {
                    threads.spawn(|| open(&path));
                }
            });
        }
    } else {
        open(path);
    }
    process::report("opened");
}

/// How many databases a worker opens in a folder.
const DATABASES: usize = 60;

#[test]
fn an_empty_file_becomes_a_database() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tenure.db");
    std::fs::write(&path, "").unwrap();
    works(&path);
}

#[test]
fn a_database_that_is_there_is_used_and_not_made_anew() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tenure.db");
    let key = Key::parse("build").unwrap();
    let store = open(&path);
    let first = Ask::new(&key, "holder").granted(&store);
    assert!(store.release(&first.grant(), soon()).is_ok());
    drop(store);
    let second = Ask::new(&key, "next").granted(&open(&path));
    assert!(second.token > first.token);
}

#[test]
fn many_threads_that_open_a_new_database_at_once_all_succeed() {
    let seed = Chance::seed();
    println!("seed {seed}");
    for round in 0..150 {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tenure.db");
        let start = Barrier::new(8);
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8)
                .map(|thread| {
                    let (start, path) = (&start, &path);
                    scope.spawn(move || {
                        let mut chance = Chance::apart(seed, &format!("{round} {thread}"));
                        start.wait();
                        // Half come together, half while those are at it.
                        if thread % 2 == 0 {
                            std::thread::sleep(chance.time(Duration::from_millis(8)));
                        }
                        SqliteStore::open(path, SqliteOptions::default()).map(|_| ())
                    })
                })
                .collect();
            for thread in threads {
                thread
                    .join()
                    .unwrap()
                    .unwrap_or_else(|error| panic!("round {round}: {error}"));
            }
        });
        works(&path);
    }
}

#[test]
fn many_processes_that_open_a_new_database_at_once_all_succeed() {
    for _ in 0..5 {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tenure.db");
        let mut processes: Vec<Process> = (0..8)
            .map(|_| Process::start("creation::worker", path.to_str().unwrap()))
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
        works(&path);
    }
}

/// A thread that made the file and closes it must not end the locks of another thread of its process, which has opened it
/// meanwhile.
#[test]
fn threads_of_several_processes_that_open_new_databases_at_once_all_succeed() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().to_str().unwrap();
    let mut processes: Vec<Process> = (0..3)
        .map(|_| Process::start("creation::worker", folder))
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
    for number in 0..DATABASES {
        works(&dir.path().join(format!("{number}.db")));
    }
}

#[test]
fn a_process_that_is_killed_while_it_makes_a_database_leaves_a_usable_one() {
    let seed = Chance::seed();
    println!("seed {seed}");
    let mut chance = Chance::from_seed(seed);
    let mut in_the_middle = 0;
    for _ in 0..40 {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tenure.db");
        let mut process = Process::start("creation::worker", path.to_str().unwrap());
        assert_eq!(process.report(), "ready");
        process.tell("go");
        // The first file appears within a millisecond, and the whole takes some.
        limit::within_limit("the file to appear", || path.exists());
        std::thread::sleep(chance.time(Duration::from_millis(15)));
        process.kill();
        in_the_middle += u32::from(process.try_report().is_none());
        works(&path);
    }
    println!("{in_the_middle} of 40 were killed before they had opened it");
}
