//! Trust in a lease ends by the holder's own clock, whatever the store is doing.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code"
)]

use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tenure::guard::Loss;
use tenure::store::MemoryStore;
use tenure::{Acquired, Config, Guard, Tenure};
use tenure_core::{
    Binding, Capabilities, Claim, Event, Fenced, Forced, Grant, Granted, HistoryQuery, HolderId,
    Key, Lease, PathPattern, Reap, Reaped, Records, Released, Renewed, Snapshot, Store, StoreError,
    Token, Waited, Watched, Withdrawal,
};

/// Longer than any test should take: a guard against hanging, not a measure.
const LONG: Duration = Duration::from_secs(60);

/// A store whose renewals hang until the test ends them, as those of a network store can.
struct Hangs {
    inner: MemoryStore,
    renewing: Mutex<mpsc::Sender<()>>,
    go_on: Mutex<mpsc::Receiver<()>>,
}

impl Records for Hangs {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn this_process(&self) -> Result<Binding, StoreError> {
        self.inner.this_process()
    }

    fn on_record(&self, by: Instant) -> Result<Vec<Snapshot>, StoreError> {
        self.inner.on_record(by)
    }

    fn history(&self, query: &HistoryQuery, by: Instant) -> Result<Vec<Event>, StoreError> {
        self.inner.history(query, by)
    }

    fn wait(&self, watched: &Watched<'_>, timeout: Duration) -> Result<Waited, StoreError> {
        self.inner.wait(watched, timeout)
    }

    fn wake(&self) {
        self.inner.wake();
    }
}

impl Store for Hangs {
    fn renew_all(
        &self,
        grants: &[Grant],
        ttl: Duration,
        by: Instant,
    ) -> Result<Vec<Renewed>, StoreError> {
        let _ = self.renewing.lock().unwrap().send(());
        let _ = self.go_on.lock().unwrap().recv_timeout(LONG);
        self.inner.renew_all(grants, ttl, by)
    }

    fn acquire_all(
        &self,
        claims: &[Claim],
        by: Instant,
    ) -> Result<Acquired<Vec<Granted>>, StoreError> {
        self.inner.acquire_all(claims, by)
    }

    fn release_all(&self, grants: &[Grant], by: Instant) -> Result<Vec<Released>, StoreError> {
        self.inner.release_all(grants, by)
    }

    fn release_paths(
        &self,
        parts: &[(Grant, Vec<PathPattern>)],
        by: Instant,
    ) -> Result<Vec<Released>, StoreError> {
        self.inner.release_paths(parts, by)
    }

    fn withdraw_all(
        &self,
        claims: &[Claim],
        then: Withdrawal,
        by: Instant,
    ) -> Result<(), StoreError> {
        self.inner.withdraw_all(claims, then, by)
    }

    fn ask(
        &self,
        key: &Key,
        only: Option<&[Token]>,
        asker: &HolderId,
        note: Option<&str>,
        by: Instant,
    ) -> Result<Vec<Lease>, StoreError> {
        self.inner.ask(key, only, asker, note, by)
    }

    fn force(
        &self,
        key: &Key,
        of: Option<&HolderId>,
        forced_by: &HolderId,
        reason: Option<&str>,
        by: Instant,
    ) -> Result<Forced, StoreError> {
        self.inner.force(key, of, forced_by, reason, by)
    }

    fn force_one(
        &self,
        grant: &Grant,
        forced_by: &HolderId,
        reason: Option<&str>,
        by: Instant,
    ) -> Result<Forced, StoreError> {
        self.inner.force_one(grant, forced_by, reason, by)
    }

    fn fence(&self, key: &Key, token: Token, by: Instant) -> Result<Fenced, StoreError> {
        self.inner.fence(key, token, by)
    }

    fn inspect(&self, key: &Key, by: Instant) -> Result<Snapshot, StoreError> {
        self.inner.inspect(key, by)
    }

    fn reap(&self, reap: Reap, by: Instant) -> Result<Vec<Reaped>, StoreError> {
        self.inner.reap(reap, by)
    }
}

fn granted(outcome: Acquired<Guard>) -> Guard {
    match outcome {
        Acquired::Granted(guard) => guard,
        _ => panic!("it is not granted"),
    }
}

#[test]
fn the_loss_is_reported_while_a_renewal_hangs() {
    let (renewing, is_renewing) = mpsc::channel();
    let (end, go_on) = mpsc::channel();
    let store = Hangs {
        inner: MemoryStore::default(),
        renewing: Mutex::new(renewing),
        go_on: Mutex::new(go_on),
    };
    let tenure = Tenure::with_store(Arc::new(store), Config::default());
    let ask = tenure.ask("build").unwrap().ttl(Duration::from_secs(1));
    let guard = granted(ask.acquire().unwrap());
    let (tell, told) = mpsc::channel();
    guard.on_lost(move || tell.send(()).unwrap());
    is_renewing.recv_timeout(LONG).unwrap();
    assert!(guard.is_trusted(), "the lease has time left");
    told.recv_timeout(LONG).unwrap();
    assert!(!guard.is_trusted());
    let loss = guard.loss().unwrap();
    assert!(matches!(&*loss, Loss::NotRenewed(None)), "{loss:?}");
    // Only now does the store answer, and says that the lease goes on: too late.
    end.send(()).unwrap();
    std::thread::yield_now();
    assert!(!guard.is_trusted(), "a lease that was lost stays lost");
    drop(guard);
}

#[test]
fn a_guard_whose_renewal_hangs_can_be_dropped_once_the_lease_is_lost() {
    let (renewing, _is_renewing) = mpsc::channel();
    let (end, go_on) = mpsc::channel();
    let store = Hangs {
        inner: MemoryStore::default(),
        renewing: Mutex::new(renewing),
        go_on: Mutex::new(go_on),
    };
    let tenure = Tenure::with_store(Arc::new(store), Config::default());
    let ask = tenure.ask("build").unwrap().ttl(Duration::from_millis(300));
    let guard = granted(ask.acquire().unwrap());
    let (tell, told) = mpsc::channel();
    guard.on_lost(move || tell.send(()).unwrap());
    told.recv_timeout(LONG).unwrap();
    let (dropped, is_dropped) = mpsc::channel();
    std::thread::spawn(move || {
        drop(guard);
        dropped.send(()).unwrap();
    });
    is_dropped
        .recv_timeout(LONG / 2)
        .expect("dropping the guard must not wait for the keeper");
    drop(end);
}
