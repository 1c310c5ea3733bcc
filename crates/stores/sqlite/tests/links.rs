//! One database that goes by two names.

use std::time::Duration;

use tenure_core::{Acquired, Key, Records, Store, Waited};
use tenure_sqlite::{SqliteOptions, SqliteStore};
use tenure_testkit::Ask;
use tenure_testkit::soon;

#[test]
fn processes_that_open_a_database_by_a_link_and_by_its_path_wake_one_another() {
    let dir = tempfile::tempdir().unwrap();
    let (path, link) = (dir.path().join("tenure.db"), dir.path().join("link.db"));
    let open = |path| SqliteStore::open(path, SqliteOptions::default()).unwrap();
    let (holder, waiter) = (open(&path), open(&path));
    std::os::unix::fs::symlink(&path, &link).unwrap();
    let by_link = open(&link);
    let key = Key::parse("build").unwrap();
    let lease = Ask::new(&key, "holder").granted(&holder);
    let Acquired::Busy(busy) = Ask::new(&key, "waiter").waiting().once(&waiter) else {
        panic!("the second one need not wait");
    };
    std::thread::scope(|scope| {
        let wait = scope.spawn(|| waiter.wait(&busy.watched(), Duration::from_secs(5)));
        // Until it sleeps: before that, it would notice by itself.
        std::thread::sleep(Duration::from_millis(60));
        let _ = by_link.release(&lease.grant(), soon()).unwrap();
        assert_eq!(wait.join().unwrap().unwrap(), Waited::Changed);
    });
}
