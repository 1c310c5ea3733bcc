//! The battery can fail: stores that are broken on purpose, each in its own way, are found out.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "test code fails by panicking"
)]

use std::fs::{self, File};
use std::io;
use std::os::fd::BorrowedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tenure_core::{
    Acquired, Binding, Busy, Capabilities, Claim, Clock, ClockOwner, Event, Fenced, Forced, Grant,
    HistoryQuery, HolderId, Key, Lease, Reap, Reaped, Reason, Released, Renewed, Revision,
    Snapshot, Store, StoreError, Ticket, Token, Waited, Wakeup, Watched,
};
use tenure_host::{HostClock, identity};
use tenure_testkit::checks::one_holder::{self, Found, Plan};
use tenure_testkit::{Run, Subject, worker};

/// What is wrong with a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    /// Whoever asks gets the key.
    GrantsAlways,
    /// It looks whether the lock file is there, and then writes it.
    LooksThenWrites,
    /// Only one gets the key, but always with the same number.
    TokensStandStill,
    /// Nothing: to see that this very store is not found out for something else.
    None,
}

/// A lock file, as many tools have it. No leases, no queue: the battery's first check needs none.
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

impl Store for LockFile {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            any_key: false,
            leases: false,
            fencing: true,
            queue: false,
            history: false,
            shared: false,
            clock: ClockOwner::Host,
            wakeup: Wakeup::Poll,
        }
    }

    fn this_process(&self) -> Result<Binding, StoreError> {
        Ok(Binding::Process {
            process: identity::this_process(),
        })
    }

    fn inherited_fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }

    fn acquire(&self, claim: &Claim) -> Result<Acquired, StoreError> {
        if !self.take() {
            return Ok(Acquired::Busy(Box::new(Busy {
                lease: None,
                behind: None,
                place: None,
                waiting: 0,
                revision: Revision(0),
            })));
        }
        let now = HostClock::new().now();
        let lease = Lease {
            key: claim.key.clone(),
            holder: claim.holder.clone(),
            token: self.token(),
            acquired_at: now.wall,
            expires: now.deadline(claim.ttl),
            heartbeat_at: now.wall,
            ttl: claim.ttl,
        };
        Ok(Acquired::Granted {
            lease,
            reason: Reason::AcquiredNew,
        })
    }

    fn release(&self, grant: &Grant) -> Result<Released, StoreError> {
        let _ = fs::remove_file(self.lock());
        let holder = tenure_core::Holder {
            id: grant.holder.clone(),
            host: String::new(),
            command: None,
            binding: Binding::Detached,
        };
        let now = HostClock::new().now();
        Ok(Released::Freed(Lease {
            key: grant.key.clone(),
            holder,
            token: grant.token,
            acquired_at: now.wall,
            expires: now.deadline(Duration::ZERO),
            heartbeat_at: now.wall,
            ttl: Duration::ZERO,
        }))
    }

    fn wait(&self, _: &Watched<'_>, timeout: Duration) -> Result<Waited, StoreError> {
        std::thread::sleep(timeout.min(Duration::from_micros(100)));
        Ok(Waited::Changed)
    }

    fn wake(&self) {}

    fn inspect(&self, key: &Key) -> Result<Snapshot, StoreError> {
        Ok(Snapshot {
            key: key.clone(),
            lease: None,
            queue: vec![],
            revision: Revision(0),
        })
    }

    fn renew(&self, _: &Grant, _: Duration) -> Result<Renewed, StoreError> {
        unreachable!("the contest renews nothing")
    }

    fn leave(&self, _: &Key, _: Ticket) -> Result<(), StoreError> {
        unreachable!("there is no queue to leave")
    }

    fn force(&self, _: &Key, _: &HolderId, _: Option<&str>) -> Result<Forced, StoreError> {
        unreachable!("the contest forces nothing")
    }

    fn fence(&self, _: &Key, _: Token) -> Result<Fenced, StoreError> {
        unreachable!("the contest writes nothing")
    }

    fn list(&self) -> Result<Vec<Snapshot>, StoreError> {
        unreachable!("the contest lists nothing")
    }

    fn reap(&self, _: Reap) -> Result<Vec<Reaped>, StoreError> {
        unreachable!("the contest reaps nothing")
    }

    fn history(&self, _: &HistoryQuery) -> Result<Vec<Event>, StoreError> {
        unreachable!("the store keeps none")
    }
}

/// Opens the store that is broken as the folder says: that way, its processes know it as well.
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

fn contest(fault: Fault, times: u64) -> Found {
    let subject = subject();
    let mut run = Run::begin(&subject, "a broken store");
    fs::write(run.store_place().join("fault"), format!("{fault:?}")).unwrap();
    let plan = Plan {
        processes: 4,
        times,
        // A lock file knows nothing of the dead.
        violence: false,
    };
    one_holder::contest(&mut run, plan)
}

#[test]
fn a_store_that_always_grants_is_found_out() {
    let found = contest(Fault::GrantsAlways, 2000);
    assert!(!found.violations.is_empty(), "{} grants", found.grants);
}

#[test]
fn a_store_that_looks_before_it_writes_is_found_out() {
    let found = contest(Fault::LooksThenWrites, 20_000);
    assert!(!found.violations.is_empty(), "{} grants", found.grants);
}

#[test]
fn a_store_whose_tokens_stand_still_is_found_out() {
    let found = contest(Fault::TokensStandStill, 50);
    assert_eq!(found.violations, Vec::<String>::new());
    assert_eq!(found.out_of_order, Some((Token(1), Token(1))));
}

#[test]
fn a_store_that_is_not_broken_passes() {
    let found = contest(Fault::None, 200);
    assert_eq!(found.violations, Vec::<String>::new());
    assert_eq!(found.out_of_order, None);
    assert_eq!(found.grants, 4 * 2 * 200);
}
