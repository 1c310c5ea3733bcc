//! Another program holds the database itself.
#![allow(clippy::unwrap_used, reason = "test code fails by panicking")]

use std::path::{Path, PathBuf};
use std::sync::mpsc;
use std::thread::JoinHandle;
use std::time::Duration;

use rusqlite::Connection;
use tempfile::TempDir;
use tenure_core::{ErrorKind, HistoryQuery, Key, Released, Renewed, Store};
use tenure_sqlite::{SqliteOptions, SqliteStore};
use tenure_testkit::Ask;
use tenure_testkit::soon;

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
