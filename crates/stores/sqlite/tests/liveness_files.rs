//! The liveness files beside the database, when another program removes them.

use std::fs;
use std::path::Path;
use std::time::Duration;

use tenure_core::{Acquired, Busy, Key, Records, Store, Verdict, Waited};
use tenure_sqlite::{SqliteOptions, SqliteStore};
use tenure_testkit::soon;
use tenure_testkit::{Ask, Process, process};

fn open(path: &Path) -> SqliteStore {
    SqliteStore::open(path, SqliteOptions::default()).unwrap()
}

fn key() -> Key {
    Key::parse("build").unwrap()
}

fn queued(store: &SqliteStore) -> Box<Busy> {
    match Ask::new(&key(), "waiter").waiting().once(store) {
        Acquired::Busy(busy) => busy,
        other => panic!("{other:?}"),
    }
}

fn remove_liveness_files(path: &Path) {
    fs::remove_dir_all(format!("{}-live", path.display())).unwrap();
}

/// Not a test: a process that holds the key until it is killed.
#[test]
fn worker() {
    let Some(path) = process::job() else { return };
    let store = open(Path::new(&path));
    Ask::new(&key(), "holder").granted(&store);
    process::report("granted");
    std::io::stdin().read_line(&mut String::new()).unwrap();
}

#[test]
fn a_removed_liveness_file_neither_proves_a_death_nor_hides_one() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tenure.db");
    let store = open(&path);
    let mut holder = Process::start("liveness_files::worker", path.to_str().unwrap());
    assert_eq!(holder.report(), "granted");
    remove_liveness_files(&path);
    let (_, verdict) = store
        .inspect(&key(), soon())
        .unwrap()
        .lease()
        .cloned()
        .unwrap();
    assert_eq!(verdict, Verdict::Alive);
    assert!(queued(&store).lease().is_some());
    holder.kill();
    let (_, verdict) = store
        .inspect(&key(), soon())
        .unwrap()
        .lease()
        .cloned()
        .unwrap();
    assert!(matches!(verdict, Verdict::Dead(_)), "{verdict:?}");
    Ask::new(&key(), "waiter").granted(&store);
}

#[test]
fn a_waiter_sleeps_although_the_liveness_file_of_the_holder_was_removed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tenure.db");
    let (holder, waiter) = (open(&path), open(&path));
    Ask::new(&key(), "holder").granted(&holder);
    remove_liveness_files(&path);
    let busy = queued(&waiter);
    let waited = waiter
        .wait(&busy.watched(), Duration::from_millis(500))
        .unwrap();
    assert_eq!(waited, Waited::TimedOut, "nothing happened");
}

#[test]
fn a_waiter_is_woken_by_the_death_of_a_holder_whose_liveness_file_was_removed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tenure.db");
    let store = open(&path);
    let mut holder = Process::start("liveness_files::worker", path.to_str().unwrap());
    assert_eq!(holder.report(), "granted");
    let remove = |entry: fs::DirEntry| fs::remove_file(entry.path()).unwrap();
    for entry in fs::read_dir(format!("{}-live", path.display())).unwrap() {
        remove(entry.unwrap());
    }
    let busy = queued(&store);
    std::thread::scope(|scope| {
        let wait = scope.spawn(|| store.wait(&busy.watched(), Duration::from_secs(600)));
        holder.kill();
        assert_eq!(wait.join().unwrap().unwrap(), Waited::Changed);
    });
    Ask::new(&key(), "waiter").granted(&store);
}
