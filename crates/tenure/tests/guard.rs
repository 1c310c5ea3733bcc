//! Tests what the library guarantees to programs that embed it, against a real store on disk.
#![allow(clippy::unwrap_used, clippy::panic, reason = "test code")]

use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tenure::ask::Cancel;
use tenure::guard::Loss;
use tenure::{Acquired, Config, Guard, StoreUrl, Tenure};
use tenure_core::{EventKind, Forced, HistoryQuery, HolderId, Key, Reason};
use tenure_testkit::soon;

/// Longer than any test should take: a guard against hanging, not a measure.
const LONG: Duration = Duration::from_secs(60);

fn open(dir: &Path) -> Tenure {
    let url = StoreUrl::parse(&format!("sqlite:{}", dir.join("tenure.db").display())).unwrap();
    Tenure::open_with(&url, Config::default()).unwrap()
}

fn granted(outcome: Acquired<Guard>) -> Guard {
    match outcome {
        Acquired::Granted(held) => held,
        Acquired::Busy(busy) => panic!("busy: {busy:?}"),
        Acquired::Deadlock(cycle) => panic!("{cycle}"),
        Acquired::Cancelled => panic!("cancelled"),
    }
}

fn is_busy(outcome: &Acquired<Guard>) -> bool {
    matches!(outcome, Acquired::Busy(_))
}

fn queue(tenure: &Tenure, key: &str) -> usize {
    tenure
        .store()
        .inspect(&Key::parse(key).unwrap(), soon())
        .unwrap()
        .queue
        .len()
}

fn until(what: &str, mut done: impl FnMut() -> bool) {
    for _ in 0..6000 {
        if done() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{what} did not come about");
}

#[test]
fn a_lease_is_renewed_for_as_long_as_it_is_held() {
    let dir = tempfile::tempdir().unwrap();
    let tenure = open(dir.path());
    // Long enough for a renewal on a machine that does a lot else.
    let ttl = Duration::from_secs(5);
    let held = granted(tenure.ask("build").unwrap().ttl(ttl).acquire().unwrap());
    held.on_lost(|| panic!("nobody takes it"));
    let other = open(dir.path());
    for _ in 0..60 {
        std::thread::sleep(ttl / 50);
        assert!(is_busy(&other.ask("build").unwrap().acquire().unwrap()));
    }
    assert!(held.is_trusted() && held.check().unwrap());
    let _freed = held.release().unwrap();
    granted(other.ask("build").unwrap().acquire().unwrap())
        .release()
        .map(|_| ())
        .unwrap();
}

#[test]
fn dropping_it_gives_the_key_back() {
    let dir = tempfile::tempdir().unwrap();
    let tenure = open(dir.path());
    drop(granted(tenure.ask("build").unwrap().acquire().unwrap()));
    let again = granted(open(dir.path()).ask("build").unwrap().acquire().unwrap());
    assert_eq!(again.reason(), Reason::AcquiredNew);
}

#[test]
fn a_lease_taken_away_by_force_is_noticed_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let tenure = open(dir.path());
    let hour = Duration::from_secs(3600);
    let held = granted(tenure.ask("build").unwrap().ttl(hour).acquire().unwrap());
    let (tell, told) = mpsc::channel();
    held.on_lost(move || tell.send(()).unwrap());
    let by = HolderId::parse("admin").unwrap();
    let forced = open(dir.path())
        .store()
        .force(held.key(), None, &by, None, soon())
        .unwrap();
    assert!(matches!(forced, Forced::Freed(_)));
    told.recv_timeout(LONG).unwrap();
    for _ in 0..2 {
        let loss = held.loss().unwrap();
        assert!(
            matches!(&*loss, Loss::Taken(now) if now.is_empty()),
            "{loss:?}"
        );
        assert!(!held.is_trusted(), "looking at the loss does not mend it");
    }
    assert!(!held.check().unwrap());
    let (tell, told) = mpsc::channel();
    held.on_lost(move || tell.send(()).unwrap());
    told.try_recv().unwrap();
}

#[test]
fn a_database_that_is_replaced_costs_the_lease_long_before_it_ends() {
    let dir = tempfile::tempdir().unwrap();
    let tenure = open(dir.path());
    let hour = Duration::from_secs(3600);
    let held = granted(tenure.ask("build").unwrap().ttl(hour).acquire().unwrap());
    let (tell, told) = mpsc::channel();
    held.on_lost(move || tell.send(()).unwrap());
    let path = dir.path().join("tenure.db");
    std::fs::rename(&path, dir.path().join("old.db")).unwrap();
    std::fs::write(&path, "").unwrap();
    told.recv_timeout(LONG).unwrap();
    let loss = held.loss().unwrap();
    assert!(
        matches!(&*loss, Loss::NotRenewed(Some(error)) if error.to_string().contains("replaced")),
        "{loss:?}"
    );
}

#[test]
fn a_guard_may_be_released_by_what_is_told_of_its_loss() {
    let dir = tempfile::tempdir().unwrap();
    let tenure = open(dir.path());
    let hour = Duration::from_secs(3600);
    let held = granted(tenure.ask("build").unwrap().ttl(hour).acquire().unwrap());
    let key = held.key().clone();
    let (tell, told) = mpsc::channel();
    let slot = Arc::new(Mutex::new(None::<Guard>));
    let in_callback = Arc::clone(&slot);
    held.on_lost(move || {
        let guard = in_callback.lock().unwrap().take().unwrap();
        tell.send(guard.release().is_ok()).unwrap();
    });
    *slot.lock().unwrap() = Some(held);
    let by = HolderId::parse("admin").unwrap();
    let other = open(dir.path());
    let forced = other.store().force(&key, None, &by, None, soon()).unwrap();
    assert!(matches!(forced, Forced::Freed(_)));
    assert!(told.recv_timeout(LONG).unwrap());
}

#[test]
fn a_store_that_vanishes_costs_the_lease_when_it_can_no_longer_be_trusted() {
    let dir = tempfile::tempdir().unwrap();
    let tenure = open(dir.path());
    let held = granted(
        tenure
            .ask("build")
            .unwrap()
            .ttl(Duration::from_secs(3))
            .acquire()
            .unwrap(),
    );
    let (tell, told) = mpsc::channel();
    held.on_lost(move || tell.send(()).unwrap());
    std::fs::remove_file(dir.path().join("tenure.db")).unwrap();
    told.recv_timeout(LONG).unwrap();
    assert!(!held.is_trusted());
    let loss = held.loss().unwrap();
    match &*loss {
        Loss::NotRenewed(Some(error)) => {
            assert!(error.to_string().contains("removed or replaced"), "{error}");
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn threads_of_one_process_never_hold_a_key_together() {
    let dir = tempfile::tempdir().unwrap();
    let tenure = open(dir.path());
    let inside = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for number in 0..4 {
            let (tenure, inside) = (&tenure, &inside);
            scope.spawn(move || {
                for _ in 0..50 {
                    let mut ask = tenure.ask("build").unwrap().wait(LONG);
                    // Two of them have a name, and even the same one.
                    if number % 2 == 0 {
                        ask = ask.named("worker").unwrap();
                    }
                    let held = granted(ask.acquire().unwrap());
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two are inside");
                    std::thread::yield_now();
                    inside.fetch_sub(1, Ordering::SeqCst);
                    let _freed = held.release().unwrap();
                }
            });
        }
    });
    let all = HistoryQuery::default();
    let events = tenure.store().history(&all, soon()).unwrap();
    assert_eq!(
        events
            .iter()
            .filter(|event| event.kind == EventKind::Granted)
            .count(),
        200
    );
}

#[test]
fn a_cancelled_wait_leaves_the_queue() {
    let dir = tempfile::tempdir().unwrap();
    let (tenure, other) = (open(dir.path()), open(dir.path()));
    let held = granted(tenure.ask("build").unwrap().acquire().unwrap());
    let cancel = Arc::new(Cancel::default());
    let wait = std::thread::spawn({
        let cancel = Arc::clone(&cancel);
        move || {
            other
                .ask("build")
                .unwrap()
                .wait(LONG)
                .acquire_watched(&cancel, &mut |_| {})
                .unwrap()
        }
    });
    until("a ticket", || queue(&tenure, "build") == 1);
    cancel.leave();
    assert!(matches!(wait.join().unwrap(), Acquired::Cancelled));
    assert_eq!(queue(&tenure, "build"), 0);
    drop(held);
}

#[test]
fn a_wait_that_runs_out_leaves_the_queue_unless_its_place_is_to_be_kept() {
    let dir = tempfile::tempdir().unwrap();
    let tenure = open(dir.path());
    let held = granted(tenure.ask("build").unwrap().acquire().unwrap());
    let other = open(dir.path());
    let short = Duration::from_millis(20);
    assert!(is_busy(
        &other.ask("build").unwrap().wait(short).acquire().unwrap()
    ));
    assert_eq!(queue(&tenure, "build"), 0);
    let ask = other
        .ask("build")
        .unwrap()
        .named("b")
        .unwrap()
        .wait(short)
        .keep_place();
    assert!(is_busy(&ask.acquire().unwrap()));
    assert_eq!(queue(&tenure, "build"), 1);
    // The process that waited is gone; its name comes back.
    drop(other);
    let back = open(dir.path());
    let resumed = AtomicBool::new(false);
    let ask = back.ask("build").unwrap().named("b").unwrap().wait(short);
    let outcome = ask.acquire_watched(&Cancel::default(), &mut |progress| {
        let place = progress.busy.position.unwrap();
        resumed.fetch_or(place.resumed, Ordering::SeqCst);
    });
    assert!(is_busy(&outcome.unwrap()) && resumed.into_inner());
    drop(held);
}

#[test]
fn renewing_and_giving_back_at_once_never_hangs() {
    let dir = tempfile::tempdir().unwrap();
    let tenure = open(dir.path());
    for _ in 0..200 {
        let held = granted(tenure.ask("build").unwrap().acquire().unwrap());
        held.on_lost(|| panic!("nobody takes it"));
        let _freed = held.release().unwrap();
    }
}

#[test]
fn a_time_to_live_that_makes_no_sense_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let tenure = open(dir.path());
    for ttl in [Duration::ZERO, Duration::from_millis(1), Duration::MAX] {
        let error = tenure
            .ask("build")
            .unwrap()
            .ttl(ttl)
            .acquire()
            .err()
            .unwrap()
            .to_string();
        assert!(error.contains("between 100ms and 30d"), "{error}");
    }
}

#[test]
fn renewal_that_was_put_off_starts_when_it_is_told_to() {
    let dir = tempfile::tempdir().unwrap();
    let (tenure, other) = (open(dir.path()), open(dir.path()));
    let ttl = Duration::from_secs(5);
    let ask = tenure.ask("build").unwrap().ttl(ttl).renew_later();
    let mut held = granted(ask.acquire().unwrap());
    held.start_renewal();
    // Longer than the lease would last without renewal.
    for _ in 0..60 {
        assert!(is_busy(&other.ask("build").unwrap().acquire().unwrap()));
        std::thread::sleep(ttl / 50);
    }
    assert!(held.is_trusted());
}
