//! One database that goes by two names.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "test code fails by panicking"
)]

use tenure_core::{Acquired, Key, Store, Waited};
use tenure_sqlite::{Options, SqliteStore};
use tenure_testkit::Ask;
use tenure_testkit::limit::{LIMIT, spawn_until_asleep};

#[test]
fn those_who_come_by_a_link_and_those_who_do_not_wake_one_another() {
    let dir = tempfile::tempdir().unwrap();
    let (path, link) = (dir.path().join("tenure.db"), dir.path().join("link.db"));
    let open = |path| SqliteStore::open(path, Options::default()).unwrap();
    let (holder, waiter) = (open(&path), open(&path));
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let by_link = open(&link);
    let key = Key::parse("build").unwrap();
    let lease = Ask::new(&key, "holder").granted(&holder);
    let Acquired::Busy(busy) = Ask::new(&key, "waiter").waiting().once(&waiter) else {
        panic!("the second one need not wait");
    };
    std::thread::scope(|scope| {
        let wait = spawn_until_asleep(scope, || waiter.wait(&busy.watch(&key), LIMIT));
        let _ = by_link.release(&lease.grant()).unwrap();
        assert_eq!(wait.join().unwrap().unwrap(), Waited::Changed);
    });
}
