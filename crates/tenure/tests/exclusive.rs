//! The exclusive lock through the library.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "test code fails by panicking"
)]

use std::fs;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use tenure::guard::Loss;
use tenure::{Acquired, Config, Error, Guard, StoreUrl, Tenure};

const LONG: Duration = Duration::from_secs(60);

fn open(dir: &Path) -> Tenure {
    let url = StoreUrl::parse(&format!("exclusive:{}", dir.display())).unwrap();
    Tenure::open_with(&url, Config::default()).unwrap()
}

fn granted(tenure: &Tenure) -> Guard {
    match tenure.ask("database").unwrap().acquire().unwrap() {
        Acquired::Granted(guard) => guard,
        _ => panic!("it is free"),
    }
}

fn wait_until(what: &str, mut done: impl FnMut() -> bool) {
    for _ in 0..6000 {
        if done() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{what}: not in a minute");
}

#[test]
fn a_lock_file_that_is_removed_while_it_is_held_is_put_back() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(".exclusive-lock");
    let tenure = open(dir.path());
    let guard = granted(&tenure);
    let (tell, told) = mpsc::channel();
    guard.on_lost(move || tell.send(()).unwrap());
    let text = fs::read(&path).unwrap();
    for _ in 0..5 {
        fs::remove_file(&path).unwrap();
        wait_until("the lock to be put back", || {
            fs::read(&path).is_ok_and(|found| found == text)
        });
    }
    assert!(guard.check().unwrap());
    assert!(told.try_recv().is_err(), "it was never lost");
    let _ = guard.release().unwrap();
    assert!(!path.exists());
}

#[test]
fn a_lock_file_that_is_overwritten_is_lost_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join(".exclusive-lock");
    let tenure = open(dir.path());
    let guard = granted(&tenure);
    let (tell, told) = mpsc::channel();
    guard.on_lost(move || tell.send(()).unwrap());
    let other =
        r#"{"holder":"rude","pid":1,"hostname":"elsewhere","started_at":"2025-10-25T12:00:00Z"}"#;
    fs::write(&path, other).unwrap();
    told.recv_timeout(LONG).unwrap();
    let loss = guard.loss();
    assert!(
        matches!(loss.as_deref(), Some(Loss::Taken(by)) if by[0].holder.id.as_str() == "rude"),
        "{loss:?}"
    );
    drop(guard);
    assert_eq!(
        fs::read_to_string(&path).unwrap(),
        other,
        "the other program's lock stays"
    );
}

#[test]
fn the_store_has_no_tasks_and_its_folder_must_exist() {
    let dir = tempfile::tempdir().unwrap();
    let tenure = open(dir.path());
    assert!(tenure.tasks().is_err());
    assert!(!tenure.identity().is_empty());
    let nowhere = StoreUrl::Exclusive(dir.path().join("nowhere"));
    assert!(Tenure::open_with(&nowhere, Config::default()).is_err());
    assert!(StoreUrl::parse("exclusive:").is_err());
    assert_eq!(
        StoreUrl::parse("exclusive:a/b").unwrap().to_string(),
        "exclusive:a/b"
    );
}

#[test]
fn a_lock_has_no_end_and_a_time_to_live_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let tenure = open(dir.path());
    let asked = tenure.ask("database").unwrap().ttl(LONG).acquire();
    let Err(error @ Error::NoExpiry) = asked else {
        panic!("a time to live was accepted");
    };
    assert!(error.to_string().contains("does not expire"), "{error}");
    let guard = granted(&tenure);
    assert_eq!(guard.lease().expires, None);
    assert!(guard.is_trusted());
}
