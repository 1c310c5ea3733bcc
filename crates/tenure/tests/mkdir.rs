//! The mkdir lock through the library.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "test code fails by panicking"
)]

use std::fs;
use std::path::Path;
use std::sync::{Arc, mpsc};
use std::time::Duration;

use tenure::guard::Loss;
use tenure::{Acquired, Config, Error, Guard, StoreUrl, Tenure};
use tenure_testkit::lock_folder;

/// Polling once an hour: only a wake-up can end a test in time.
const HOUR: Duration = Duration::from_secs(3600);
const LONG: Duration = Duration::from_secs(60);

fn open(dir: &Path) -> Tenure {
    let url = StoreUrl::parse(&format!("mkdir:{}", dir.join("lock").display())).unwrap();
    let mut config = Config::default();
    config.locking.poll_interval = HOUR;
    Tenure::open_with(&url, config).unwrap()
}

fn granted(tenure: &Tenure) -> Guard {
    match tenure.ask("board").unwrap().acquire().unwrap() {
        Acquired::Granted(guard) => guard,
        _ => panic!("it is free"),
    }
}

/// The loss that the guard reports after another program did `action` to the lock.
fn loss_after(action: impl Fn(&Path)) -> Option<Arc<Loss>> {
    let dir = tempfile::tempdir().unwrap();
    let tenure = open(dir.path());
    let guard = granted(&tenure);
    assert!(guard.check().unwrap() && guard.is_trusted());
    let (tell, told) = mpsc::channel();
    guard.on_lost(move || tell.send(()).unwrap());
    // Most likely the guard sleeps by now.
    std::thread::sleep(Duration::from_millis(20));
    action(&dir.path().join("lock"));
    told.recv_timeout(LONG).unwrap();
    assert!(!guard.is_trusted());
    assert!(!guard.check().unwrap());
    guard.loss()
}

#[test]
fn a_lock_that_is_removed_moved_or_replaced_is_lost_at_once() {
    let loss = loss_after(|lock| lock_folder::remove(lock).unwrap());
    // The guard may look when the files are gone and the folder is still there: it is no process's lock then.
    let nameless = |by: &tenure::store::Lease| by.holder.process().is_none();
    assert!(
        matches!(loss.as_deref(), Some(Loss::Taken(now)) if now.iter().all(nameless)),
        "{loss:?}"
    );
    let loss = loss_after(|lock| fs::rename(lock, lock.with_extension("x")).unwrap());
    assert!(
        matches!(loss.as_deref(), Some(Loss::Taken(now)) if now.is_empty()),
        "{loss:?}"
    );
    let loss = loss_after(|lock| {
        let other = lock.with_extension("x");
        fs::create_dir(&other).unwrap();
        fs::write(other.join("pid"), "1\n").unwrap();
        lock_folder::remove(lock).unwrap();
        fs::rename(other, lock).unwrap();
    });
    // The guard may look between the removal and the rename.
    let by = |by: &tenure::store::Lease| by.holder.process().is_none_or(|process| process.pid == 1);
    assert!(
        matches!(loss.as_deref(), Some(Loss::Taken(now)) if now.first().is_none_or(by)),
        "{loss:?}"
    );
}

#[test]
fn the_identity_of_the_store_does_not_depend_on_the_lock() {
    let dir = tempfile::tempdir().unwrap();
    let deep = dir.path().join("not/yet");
    let before = open(&deep).identity().to_owned();
    let tenure = open(&deep);
    let guard = granted(&tenure);
    assert_eq!(open(&deep).identity(), before);
    let _ = guard.release().unwrap();
    assert_ne!(open(dir.path()).identity(), before);
    assert!(StoreUrl::parse("mkdir:").is_err());
    assert_eq!(
        StoreUrl::parse("mkdir:a/b").unwrap().to_string(),
        "mkdir:a/b"
    );
}

#[test]
fn a_lock_has_no_end_and_a_time_to_live_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let tenure = open(dir.path());
    let asked = tenure.ask("board").unwrap().ttl(HOUR).acquire();
    assert!(matches!(asked, Err(Error::NoExpiry)));
    assert_eq!(granted(&tenure).lease().expires, None);
}
