//! Another program holds the database itself, and its log stays short whatever processes do.

use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::Connection;
use tempfile::TempDir;
use tenure_core::{ErrorKind, HistoryQuery, Key, Records, Released, Renewed, Store};
use tenure_sqlite::{SqliteOptions, SqliteStore};
use tenure_testkit::soon;
use tenure_testkit::{Ask, Process, history, process};

fn new() -> (TempDir, PathBuf, SqliteStore) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tenure.db");
    let store = SqliteStore::open(&path, SqliteOptions::default()).unwrap();
    (dir, path, store)
}

/// A program that writes for so long, or until it is told to stop. Returns once it has begun.
fn writer(path: &Path, at_most: Duration) -> (mpsc::Sender<()>, JoinHandle<()>) {
    let db = Connection::open(path).unwrap();
    db.execute_batch("BEGIN IMMEDIATE").unwrap();
    let (stop, told) = mpsc::channel();
    let writer = std::thread::spawn(move || {
        let _ = told.recv_timeout(at_most);
        db.execute_batch("COMMIT").unwrap();
    });
    (stop, writer)
}

#[test]
fn a_program_that_writes_for_a_second_only_delays_a_claim() {
    let (_dir, path, store) = new();
    let key = Key::parse("build").unwrap();
    let (_stop, writer) = writer(&path, Duration::from_secs(1));
    let lease = Ask::new(&key, "holder").granted(&store);
    writer.join().unwrap();
    let (_stop, writer) = self::writer(&path, Duration::from_secs(1));
    let renewed = store.renew(&lease.grant(), lease.ttl, soon()).unwrap();
    assert!(matches!(renewed, Renewed::Extended(_)), "{renewed:?}");
    writer.join().unwrap();
}

#[test]
fn a_program_that_reads_for_long_delays_no_claim() {
    let (_dir, path, store) = new();
    let db = Connection::open(&path).unwrap();
    db.execute_batch("BEGIN; SELECT count(*) FROM leases;")
        .unwrap();
    let key = Key::parse("build").unwrap();
    for _ in 0..500 {
        let lease = Ask::new(&key, "holder").granted(&store);
        let _ = store.release(&lease.grant(), soon()).unwrap();
    }
    db.execute_batch("COMMIT").unwrap();
}

#[test]
fn a_program_that_writes_for_too_long_is_reported_and_nothing_changes() {
    let (_dir, path, store) = new();
    let (build, docs) = (Key::parse("build").unwrap(), Key::parse("docs").unwrap());
    let lease = Ask::new(&build, "holder").granted(&store);
    let before = store.history(&HistoryQuery::default(), soon()).unwrap();
    let (stop, writer) = writer(&path, Duration::from_secs(60));
    // All at once: each of them has the same patience.
    std::thread::scope(|scope| {
        let other = |key: Key| {
            let path = path.clone();
            move || {
                let store = SqliteStore::open(&path, SqliteOptions::default()).unwrap();
                store
                    .acquire(&Ask::new(&key, "other").waiting().claim(&store), soon())
                    .unwrap_err()
            }
        };
        let asked = [
            scope.spawn(other(build.clone())),
            scope.spawn(other(docs.clone())),
        ];
        let released = store.release(&lease.grant(), soon()).unwrap_err();
        assert_eq!(released.kind, ErrorKind::Contended, "{released}");
        for asked in asked {
            let error = asked.join().unwrap();
            assert_eq!(error.kind, ErrorKind::Contended, "{error}");
        }
    });
    // Reading goes on meanwhile.
    let (found, _) = store
        .inspect(&build, soon())
        .unwrap()
        .lease()
        .cloned()
        .unwrap();
    assert_eq!(found.grant(), lease.grant());
    stop.send(()).unwrap();
    writer.join().unwrap();
    assert_eq!(
        store.history(&HistoryQuery::default(), soon()).unwrap(),
        before
    );
    let known = store.list(soon()).unwrap();
    assert_eq!(known.len(), 1, "{known:?}");
    assert!(
        known.iter().all(|known| known.queue.is_empty()),
        "{known:?}"
    );
    let released = store.release(&lease.grant(), soon()).unwrap();
    assert!(matches!(released, Released::Freed(_)), "{released:?}");
}

/// More bytes than the log of a database has that no process is using, and far fewer than a few hundred
/// commands write.
const SHORT_LOG: u64 = 600 * 1048;

fn log_of(path: &Path) -> u64 {
    let log = path.with_extension("db-wal");
    std::fs::metadata(log).map_or(0, |log| log.len())
}

/// What two commands do: each opens the database, writes once, and closes it.
fn two_commands(path: &Path, key: &Key) {
    let open = || SqliteStore::open(path, SqliteOptions::default()).unwrap();
    let lease = Ask::new(key, "holder").granted(&open());
    let released = open().release(&lease.grant(), soon()).unwrap();
    assert!(matches!(released, Released::Freed(_)), "{released:?}");
}

fn build() -> Key {
    Key::parse("build").unwrap()
}

fn is_sound(path: &Path) {
    let store = SqliteStore::open(path, SqliteOptions::default()).unwrap();
    let events = store.history(&HistoryQuery::default(), soon()).unwrap();
    let flaws = history::contradictions(&events);
    assert!(flaws.is_empty(), "{flaws:?}");
    let words: String = Connection::open(path)
        .unwrap()
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .unwrap();
    assert_eq!(words, "ok");
}

#[test]
fn the_log_stays_short_although_every_command_is_alone() {
    let (_dir, path, store) = new();
    drop(store);
    for number in 0..300 {
        two_commands(&path, &build());
        assert!(log_of(&path) < SHORT_LOG, "after {number} times two");
    }
    is_sound(&path);
}

#[test]
fn a_reader_delays_only_the_shortening_of_the_log() {
    let (_dir, path, store) = new();
    drop(store);
    let db = Connection::open(&path).unwrap();
    db.execute_batch("BEGIN; SELECT count(*) FROM leases;")
        .unwrap();
    for _ in 0..200 {
        two_commands(&path, &build());
    }
    assert!(log_of(&path) > SHORT_LOG, "the reader needs the old pages");
    db.execute_batch("COMMIT").unwrap();
    two_commands(&path, &build());
    assert!(log_of(&path) < SHORT_LOG);
    is_sound(&path);
}

/// Not a test: commands one after another, without an end.
#[test]
fn worker() {
    let Some(job) = process::job() else { return };
    let (number, path) = job.split_once(' ').unwrap();
    let key = Key::parse(format!("key-{number}")).unwrap();
    for round in 0_u64.. {
        two_commands(Path::new(path), &key);
        if round == 100 {
            process::report("done");
        }
    }
}

#[test]
fn eight_processes_shorten_the_log_under_each_other_and_any_of_them_may_be_killed() {
    let (_dir, path, store) = new();
    drop(store);
    let start = |number: usize| {
        Process::start(
            "contention::worker",
            &format!("{number} {}", path.display()),
        )
    };
    let mut processes: Vec<Process> = (0..8).map(start).collect();
    for process in &mut processes {
        assert_eq!(process.report(), "done");
        process.kill();
    }
    // What they left in the log, the next commands copy.
    two_commands(&path, &build());
    assert!(log_of(&path) < SHORT_LOG);
    is_sound(&path);
}

#[test]
fn a_lease_is_renewed_among_processes_that_write_all_the_time() {
    let (_dir, path, store) = new();
    let lease = Ask::new(&build(), "holder").granted(&store);
    let start = |number: usize| {
        Process::start(
            "contention::worker",
            &format!("{number} {}", path.display()),
        )
    };
    let mut processes: Vec<Process> = (0..8).map(start).collect();
    for process in &mut processes {
        assert_eq!(process.report(), "done");
    }
    for _ in 0..20 {
        let renewed = store.renew(&lease.grant(), lease.ttl, soon()).unwrap();
        assert!(matches!(renewed, Renewed::Extended(_)), "{renewed:?}");
    }
    for process in &mut processes {
        process.kill();
    }
    is_sound(&path);
}
