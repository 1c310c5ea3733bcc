//! Stores that are broken on purpose: the battery must catch each of them.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "test code fails by panicking"
)]

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tenure_core::{
    Acquired, Binding, Busy, Capabilities, Claim, Clock, ErrorKind, Event, Fenced, Forced, Grant,
    Granted, HistoryQuery, HolderId, Key, Lease, Mode, PathPattern, Reap, Reaped, Reason, Records,
    Released, Renewed, Revision, Snapshot, Store, StoreError, Token, Waited, Watched, Withdrawal,
};
use tenure_host::{HostClock, identity};
use tenure_testkit::checks::one_holder::{self, ContestResult, ContestSettings};
use tenure_testkit::{Run, Subject, worker};

/// What is wrong with a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// Every claim is granted.
    GrantsAlways,
    /// It checks whether the lock file exists, and then writes it.
    LooksThenWrites,
    /// The key has one holder at a time, but every grant has the same token.
    TokensStandStill,
    /// None: to check that the battery passes the same store without the fault.
    None,
}

/// A lock file, as many tools use it. No leases, no queue: the battery's first check needs neither.
struct LockFile {
    place: PathBuf,
    fault: Fault,
}

impl LockFile {
    fn lock(&self) -> PathBuf {
        self.place.join("lock")
    }

    fn take(&self) -> bool {
        match self.fault {
            Fault::GrantsAlways => true,
            Fault::LooksThenWrites => {
                let free = !self.lock().exists();
                if free {
                    fs::write(self.lock(), "").unwrap();
                }
                free
            }
            Fault::TokensStandStill | Fault::None => {
                match File::options()
                    .write(true)
                    .create_new(true)
                    .open(self.lock())
                {
                    Ok(_) => true,
                    Err(error) if error.kind() == io::ErrorKind::AlreadyExists => false,
                    Err(error) => panic!("{error}"),
                }
            }
        }
    }

    fn token(&self) -> Token {
        if self.fault == Fault::TokensStandStill {
            return Token(1);
        }
        Token(u64::try_from(HostClock::new().now().ticks.as_nanos()).unwrap())
    }
}

impl Records for LockFile {
    fn capabilities(&self) -> Capabilities {
        Capabilities::ALL
            .only_some_keys()
            .only_exclusive()
            .without_expiry()
    }

    fn this_process(&self) -> Result<Binding, StoreError> {
        Ok(Binding::Process {
            process: identity::this_process(),
        })
    }

    fn history(&self, _: &HistoryQuery, _: Instant) -> Result<Vec<Event>, StoreError> {
        Err(StoreError::new(ErrorKind::Unsupported, "there is none"))
    }

    fn on_record(&self, _: Instant) -> Result<Vec<Snapshot>, StoreError> {
        unreachable!("the contest lists nothing")
    }

    fn wait(&self, _: &Watched<'_>, timeout: Duration) -> Result<Waited, StoreError> {
        std::thread::sleep(timeout.min(Duration::from_micros(100)));
        Ok(Waited::Changed)
    }

    fn wake(&self) {}
}

impl Store for LockFile {
    fn acquire_all(
        &self,
        claims: &[Claim],
        _: Instant,
    ) -> Result<Acquired<Vec<Granted>>, StoreError> {
        let [claim] = claims else {
            unreachable!("the contest claims one key");
        };
        if !self.take() {
            return Ok(Acquired::Busy(Box::new(Busy {
                key: claim.key.clone(),
                leases: vec![],
                behind: None,
                position: None,
                waiting: 0,
                shortage: None,
                watch: vec![],
                look_again: None,
                revision: Revision(0),
                others: vec![],
            })));
        }
        let now = HostClock::new().now();
        let lease = Lease {
            mode: Mode::Exclusive,
            slot: None,
            key: claim.key.clone(),
            holder: claim.holder.clone(),
            token: self.token(),
            acquired_at: now.wall,
            expires: None,
            heartbeat_at: now.wall,
            ttl: claim.ttl,
        };
        Ok(Acquired::Granted(vec![Granted {
            lease,
            reason: Reason::AcquiredNew,
        }]))
    }

    fn release_all(&self, grants: &[Grant], _: Instant) -> Result<Vec<Released>, StoreError> {
        let [grant] = grants else {
            unreachable!("the contest releases one key");
        };
        let _ = fs::remove_file(self.lock());
        let holder = tenure_core::Holder {
            id: grant.holder.clone(),
            host: String::new(),
            command: None,
            binding: Binding::Detached,
        };
        let now = HostClock::new().now();
        Ok(vec![Released::Freed(Lease {
            mode: Mode::Exclusive,
            slot: None,
            key: grant.key.clone(),
            holder,
            token: grant.token,
            acquired_at: now.wall,
            expires: None,
            heartbeat_at: now.wall,
            ttl: Duration::ZERO,
        })])
    }

    fn inspect(&self, key: &Key, _: Instant) -> Result<Snapshot, StoreError> {
        Ok(Snapshot {
            key: key.clone(),
            leases: vec![],
            queue: vec![],
            forgotten: vec![],
            problems: vec![],
            revision: Revision(0),
        })
    }

    fn renew_all(&self, _: &[Grant], _: Duration, _: Instant) -> Result<Vec<Renewed>, StoreError> {
        unreachable!("the contest renews nothing")
    }

    fn release_paths(
        &self,
        _: &[(Grant, Vec<PathPattern>)],
        _: Instant,
    ) -> Result<Vec<Released>, StoreError> {
        unreachable!("the contest releases one key")
    }

    fn withdraw_all(&self, _: &[Claim], _: Withdrawal, _: Instant) -> Result<(), StoreError> {
        unreachable!("there is no queue to leave")
    }

    fn force(
        &self,
        _: &Key,
        _: Option<&HolderId>,
        _: &HolderId,
        _: Option<&str>,
        _: Instant,
    ) -> Result<Forced, StoreError> {
        unreachable!("the contest forces nothing")
    }

    fn force_one(
        &self,
        _: &Grant,
        _: &HolderId,
        _: Option<&str>,
        _: Instant,
    ) -> Result<Forced, StoreError> {
        unreachable!("the contest forces nothing")
    }

    fn ask(
        &self,
        _: &Key,
        _: Option<&[Token]>,
        _: &HolderId,
        _: Option<&str>,
        _: Instant,
    ) -> Result<Vec<Lease>, StoreError> {
        unreachable!("the contest asks nobody")
    }

    fn fence(&self, _: &Key, _: Token, _: Instant) -> Result<Fenced, StoreError> {
        unreachable!("the contest writes nothing")
    }

    fn reap(&self, _: Reap, _: Instant) -> Result<Vec<Reaped>, StoreError> {
        unreachable!("the contest reaps nothing")
    }
}

/// Opens the store with the fault that the folder's name states, so that worker processes know it too.
fn open(place: &Path) -> Box<dyn Store> {
    let fault = match fs::read_to_string(place.join("fault")).unwrap_or_default() {
        text if text == "GrantsAlways" => Fault::GrantsAlways,
        text if text == "LooksThenWrites" => Fault::LooksThenWrites,
        text if text == "TokensStandStill" => Fault::TokensStandStill,
        _ => Fault::None,
    };
    Box::new(LockFile {
        place: place.to_owned(),
        fault,
    })
}

fn subject() -> Subject {
    Subject::opened_by(open)
        .keys(&["database"])
        .tested_in(module_path!())
}

/// Not a test: what the processes of the contest run.
#[test]
fn worker() {
    worker::work(&subject());
}

fn contest(fault: Fault, times: u64) -> ContestResult {
    let subject = subject();
    let mut run = Run::begin(&subject, "a broken store");
    fs::write(run.store_place().join("fault"), format!("{fault:?}")).unwrap();
    let settings = ContestSettings {
        processes: 4,
        times,
        // A lock file can't detect dead holders.
        kills_and_stops: false,
        beside: None,
    };
    one_holder::contest(&mut run, settings)
}

#[test]
fn a_store_that_always_grants_is_caught() {
    let result = contest(Fault::GrantsAlways, 2000);
    assert!(!result.violations.is_empty(), "{} grants", result.grants);
}

#[test]
fn a_store_that_checks_before_it_writes_is_caught() {
    let result = contest(Fault::LooksThenWrites, 20_000);
    assert!(!result.violations.is_empty(), "{} grants", result.grants);
}

#[test]
fn a_store_whose_tokens_do_not_grow_is_caught() {
    let result = contest(Fault::TokensStandStill, 50);
    assert_eq!(result.violations, Vec::<String>::new());
    assert_eq!(result.out_of_order, Some((Token(1), Token(1))));
}

#[test]
fn a_store_that_is_not_broken_passes() {
    let result = contest(Fault::None, 200);
    assert_eq!(result.violations, Vec::<String>::new());
    assert_eq!(result.out_of_order, None);
    assert_eq!(result.grants, 4 * 2 * 200);
}
