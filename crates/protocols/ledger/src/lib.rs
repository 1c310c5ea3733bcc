//! The event ledger: an append-only log of one file for each event, shared with other programs.
//!
//! ```
//! use tenure_ledger::{Appended, Dialect, Ledger, NewEvent};
//! # let dir = tempfile::tempdir().unwrap();
//! # let dir = dir.path();
//!
//! let ledger = Ledger::init(dir, Dialect::Documented, Default::default())?;
//! let event = NewEvent::parse(r#"{"type":"note","text":"hello"}"#)?;
//! let Appended::Done { last, .. } = ledger.append(&event)? else {
//!     panic!("no other program is here");
//! };
//! assert_eq!(last, 1);
//!
//! // Only if no event was appended since.
//! let outcome = ledger.append_if(0, &event)?;
//! assert!(matches!(outcome, Appended::Mismatch { expected: 0, found: 1 }));
//!
//! for event in ledger.events(1)? {
//!     println!("{}", event?.value()?);
//! }
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Contents
//!
//! | module | what it holds |
//! |---|---|
//! | `dialect` | [`Dialect`]: names and events as documented, and as the `af` tool has them |
//! | `event` | [`NewEvent`], [`RecordedEvent`] |
//! | `af` | the `af` tool's event types and its rules |
//! | `admission` | which events may be appended to an `af` ledger |
//! | `append` | writing events and batches; cleaning up after a crash |
//! | `acknowledged` | the digests of acknowledged events, for `verify` |
//! | `read`, `follow` | reading events, and waiting for new ones |
//! | `number` | the newest number, without listing the folder |
//! | `writer_lock` | serialises tenure's own writers, first come, first served |
//! | `lock`, `blocking_lock` | the ledger lock, which other programs take too |
//! | `meta` | `meta.json`: how long a claim lasts |
//! | `node` | [`NodeId`]: `1.2.3` |
//! | `replay` | from events to claims, pure |
//! | `checkpoint` | replaying only new events |
//! | `claim_files` | claims in files, `locks/*.lock` |
//! | `verify` | checks a ledger, and whether two holders overlapped |
//! | [`claims`] | [`LedgerStore`]: claims as a [`tenure_core::Store`] |
//!
//! # Invariants
//!
//! 1. An event that has its name is complete, and is never changed or removed (G10).
//! 2. An append is reported only when the event is on disk.
//! 3. Numbers have no gap: an event gets the number after the newest one, under the ledger lock.
//! 4. Into an `af` ledger tenure writes only events that the `af` tool's own replay accepts, in its own
//!    order. (Where its lock library has written, its replay fails anyway, and tenure writes that form.)
//! 5. Everything that tenure needs beyond the protocol is in `ledger/.ledger-tenure/`, which other
//!    programs skip, and can be deleted while no tenure process uses the ledger.
//! 6. Two tenure processes never write at the same time, through whichever path they reach the ledger.
//!
//! # Lock order
//!
//! The writer lock, then the ledger lock.
//!
//! # Limitations
//!
//! A program that writes without the ledger lock, or breaks it while its holder is alive, can overwrite
//! an event; tenure never does. The next number is derived from the events that exist: removing the
//! newest event makes its number free.

mod acknowledged;
mod admission;
mod af;
mod append;
mod blocking_lock;
mod checkpoint;
mod claim_files;
pub mod claims;
mod dialect;
mod event;
mod follow;
mod lock;
mod meta;
mod node;
mod number;
mod read;
mod replay;
mod verify;
mod writer_lock;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::time::Duration;

use tenure_core::text::quoted_bytes;
use tenure_core::{ErrorKind, StoreError};

pub use self::blocking_lock::{BlockingLock, LockContent};
pub use self::claim_files::MalformedClaimFile;
pub use self::claims::LedgerStore;
pub use self::dialect::{Dialect, EntryName};
pub use self::event::{BadEvent, MAX_EVENT, NewEvent, RecordedEvent};
pub use self::follow::Follow;
pub use self::lock::{BreakOutcome, TIMEOUT};
pub use self::meta::{DEFAULT_TIMEOUT, MAX_TIMEOUT, MIN_TIMEOUT};
pub use self::node::{BadNode, NodeId};
pub use self::read::Events;
pub use tenure_host::files::{Access, Durability, Options};

pub use self::verify::{Finding, Severity, Verified};

use self::admission::AdmissionReplay;
use self::lock::{LedgerLock, LockAttempt};
use self::meta::Meta;
use self::number::Numbers;
use self::writer_lock::WriterLock;
use tenure_host::files::atomic;
use tenure_host::files::beneath::{self, Refused};
use tenure_host::files::fault::explain;
use tenure_host::files::permissions::create_folder;
use tenure_host::files::sidecar::Sidecar;
use tenure_host::time_limit::TimeLimit;

/// The name of the events' folder.
const FOLDER: &str = "ledger";

/// The name of the sidecar folder. It is inside the folder of the events, so that it is found however
/// that folder is reached: through a link, a bind mount, or a mount of its own.
pub(crate) const SIDECAR: &str = ".ledger-tenure";

/// The folder of the claims' queues, in the sidecar folder.
pub(crate) const CLAIMS: &str = "keys";

/// The folders in which something changes when a node of the ledger in `root` is claimed, released or waited for.
pub fn folders_of_claims(root: &Path) -> [PathBuf; 4] {
    let ledger = root.join(FOLDER);
    let sidecar = ledger.join(SIDECAR);
    let claims = sidecar.join(CLAIMS);
    [ledger, root.join("locks"), sidecar, claims]
}

/// A command on the ledger in this folder, for a hint that works as it is.
fn command(root: &Path, words: &str) -> String {
    let quoted = quoted_bytes(root.as_os_str());
    format!("tenure ledger {words} --dir {quoted}")
}

/// The outcome of an append.
#[derive(Debug, Clone)]
#[must_use]
pub enum Appended {
    /// The events are appended and on disk.
    Done {
        /// The number of the first event.
        first: u64,
        /// The number of the last event: the same for a single event.
        last: u64,
    },
    /// The newest event is not the expected one. Nothing was written.
    Mismatch {
        /// The number that was expected; 0 for an empty ledger.
        expected: u64,
        /// The number of the newest event.
        found: u64,
    },
    /// Another program holds the ledger lock. Nothing was written.
    Locked(BlockingLock),
}

/// A ledger.
pub struct Ledger {
    root: PathBuf,
    path: PathBuf,
    dialect: Dialect,
    sidecar: Sidecar,
    writers: WriterLock,
    lock: LedgerLock,
    numbers: Numbers,
    /// The folder of the events, for syncing.
    folder: File,
    agent: String,
    options: Options,
    /// Only for an `af` ledger.
    admission: Mutex<AdmissionReplay>,
}

/// The folder of the events, with links resolved, whether or not it exists.
fn folder_of(root: &Path) -> Result<PathBuf, StoreError> {
    let path = root.join(FOLDER);
    match beneath::resolve(&path) {
        Err(error) if Refused::of(&error).is_some() => Err(explain("read", &path, error)),
        found => Ok(found.unwrap_or(path)),
    }
}

impl Ledger {
    /// Opens the ledger in this folder, which holds `ledger/` and perhaps `meta.json`.
    pub fn open(root: &Path, options: Options) -> Result<Self, StoreError> {
        Self::open_with(root, &folder_of(root)?.join(SIDECAR), options)
    }

    fn open_with(root: &Path, sidecar: &Path, options: Options) -> Result<Self, StoreError> {
        let path = folder_of(root)?;
        let not_there = |what: &str| {
            StoreError::new(
                ErrorKind::NotFound,
                format!("there is no ledger in {}: {what}", root.display()),
            )
            .fix("create one with tenure ledger init, or name the folder that contains ledger/")
        };
        let folder = match beneath::open_folder(&path) {
            Ok(folder) => folder,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(not_there("it has no folder named ledger"));
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => {
                return Err(not_there("it is not a folder"));
            }
            Err(error) => return Err(explain("read", &path, error)),
        };
        if !folder.metadata().is_ok_and(|at| at.is_dir()) {
            return Err(not_there("ledger is not a folder"));
        }
        let dialect = Dialect::detect(root, &path)?;
        let sidecar = Sidecar::new(sidecar);
        Ok(Self {
            root: root.to_owned(),
            dialect,
            writers: WriterLock::new(sidecar.path(), &path),
            lock: LedgerLock::new(&path, &sidecar),
            numbers: Numbers::new(&path, sidecar.path(), dialect),
            sidecar,
            folder,
            path,
            agent: "tenure".into(),
            options,
            admission: Mutex::default(),
        })
    }

    /// Creates a ledger in this folder. An existing one is opened if it has the same dialect.
    pub fn init(root: &Path, dialect: Dialect, options: Options) -> Result<Self, StoreError> {
        let path = folder_of(root)?;
        create_folder(&path).map_err(|error| explain("made", &path, error))?;
        let meta = root.join(meta::FILE);
        // Atomically: other programs may read or create it at the same time.
        let temp = root.join(format!(".meta-{}.tmp", std::process::id()));
        let make = || {
            atomic::write(&temp, meta::first(dialect).as_bytes(), Durability::Crash)?;
            let put = atomic::put(&temp, &meta);
            atomic::unlink(&temp)?;
            put.map(|_| ())
        };
        if meta.symlink_metadata().is_err() {
            make().map_err(|error| explain("made", &meta, error))?;
        }
        let ledger = Self::open(root, options)?;
        if ledger.dialect != dialect {
            let what = format!(
                "{} is already a ledger of the dialect {}",
                root.display(),
                ledger.dialect
            );
            return Err(StoreError::new(ErrorKind::NotAStore, what)
                .fix("use that dialect, or create the ledger in another folder"));
        }
        Ok(ledger)
    }

    /// Sets the name that other programs see in the ledger lock.
    #[must_use]
    pub fn written_by(mut self, agent: impl Into<String>) -> Self {
        self.agent = agent.into();
        self
    }

    /// The folder that contains `ledger/`.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The folder of the events.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its dialect.
    pub fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// The number of the newest event; 0 if there is none.
    pub fn last(&self) -> Result<u64, StoreError> {
        self.numbers.last()
    }

    /// How long a claim lasts if the claimant does not say.
    pub fn claim_timeout(&self) -> Result<Duration, StoreError> {
        Meta::read(&self.root)?.timeout(self.dialect)
    }

    /// Appends an event.
    pub fn append(&self, event: &NewEvent) -> Result<Appended, StoreError> {
        self.append_all(None, std::slice::from_ref(event))
    }

    /// Appends an event if the newest one has this number (0: if there is none).
    pub fn append_if(&self, expected: u64, event: &NewEvent) -> Result<Appended, StoreError> {
        self.append_all(Some(expected), std::slice::from_ref(event))
    }

    /// Appends several events with consecutive numbers, all of them or none.
    pub fn append_all(
        &self,
        expected: Option<u64>,
        events: &[NewEvent],
    ) -> Result<Appended, StoreError> {
        for event in events {
            let checked = event.check(self.dialect);
            checked.map_err(|error| StoreError::new(ErrorKind::Unsupported, error.to_string()))?;
        }
        let is_af = self.dialect == Dialect::Af;
        let checked_after = is_af.then(|| self.admit(expected, events, None));
        let checked_after = checked_after.transpose()?;
        // Writers proceed in the order of their moments, so the times of events never go back.
        let (writer, prepared) = self.writer_prepared(|now| {
            let bytes = |event: &NewEvent| event.bytes(self.dialect, now);
            events.iter().map(bytes).collect()
        })?;
        let never = TimeLimit::never();
        let appended = if is_af {
            let taken = self.lock.take(&*self.options.clock, &self.agent, never)?;
            let lock = match taken {
                LockAttempt::Taken(lock) => lock,
                LockAttempt::Blocked(by) => return Ok(Appended::Locked(by)),
            };
            self.admit(expected, events, checked_after)?;
            writer.link(expected, &prepared, never, Some(&lock))?
        } else {
            writer.link(expected, &prepared, never, None)?
        };
        let digests = prepared.digests();
        drop(prepared);
        if is_af {
            self.admitted();
        }
        drop(writer);
        if let Appended::Done { first, .. } = appended {
            self.sync()?;
            self.acknowledge(first, &digests);
        }
        Ok(appended)
    }

    /// Refuses to write if the ledger was opened read-only.
    fn check_access(&self) -> Result<(), StoreError> {
        match self.options.access {
            Access::ReadWrite => Ok(()),
            Access::ReadOnly => Err(StoreError::opened_read_only(self.root.display())),
        }
    }

    /// The ledger lock that is there now, if any.
    pub fn locked_by(&self) -> Option<BlockingLock> {
        self.lock.blocking(&self.options.clock.now())
    }

    /// Removes a ledger lock that a killed tenure process left behind, so that it does not block other
    /// programs until tenure writes again. Every command does this. Best effort: a reader may lack the
    /// permission, and a tenure process that writes takes the lock over anyway.
    pub fn remove_dead_lock(&self) -> Option<BlockingLock> {
        self.check_access().ok()?;
        if !self.lock.may_be_dead() {
            return None;
        }
        self.sidecar.make().ok()?;
        let at_once = TimeLimit::after(Duration::ZERO);
        let _guard = self.writers.take(&*self.options.clock, at_once).ok()?;
        self.remove_dead_lock_as_writer()
    }

    /// The same for a caller that has the writer lock.
    fn remove_dead_lock_as_writer(&self) -> Option<BlockingLock> {
        let now = self.options.clock.now();
        match self.lock.break_it(&now, None, false).ok()? {
            BreakOutcome::Removed(lock) => {
                let words = format!("removed the ledger lock of {lock}: its process has exited");
                let _ = self.sidecar.note(now.wall, &words);
                Some(lock)
            }
            BreakOutcome::NotHeld | BreakOutcome::Refused(_) => None,
        }
    }

    /// Removes the ledger lock for a caller that knows that its holder has exited, and records that. A
    /// lock whose holder is proven dead needs no force.
    pub fn break_lock(
        &self,
        by: &str,
        older_than: Option<Duration>,
        force: bool,
    ) -> Result<BreakOutcome, StoreError> {
        self.check_access()?;
        self.sidecar.make()?;
        let guard = self
            .writers
            .take(&*self.options.clock, TimeLimit::never())?;
        let now = self.options.clock.now();
        let broken = self.lock.break_it(&now, older_than, force)?;
        if let BreakOutcome::Removed(lock) = &broken {
            let why = if lock.dead {
                "its holder was proven dead"
            } else {
                "by force"
            };
            let words = format!("{by} broke the ledger lock of {lock}: {why}");
            self.sidecar.note(now.wall, &words)?;
        }
        drop(guard);
        Ok(broken)
    }
}

impl std::fmt::Debug for Ledger {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Ledger")
            .field("root", &self.root)
            .field("dialect", &self.dialect)
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As after the sidecar folder was deleted, and beside an older tenure, which has its own elsewhere.
    #[test]
    fn appends_with_two_sidecar_folders_lose_no_event() {
        const EACH: u64 = 100;
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path();
        let options = || Options {
            durability: Durability::Crash,
            ..Options::default()
        };
        Ledger::init(root, Dialect::Documented, options()).unwrap();
        std::thread::scope(|scope| {
            for writer in 0..4 {
                let open = move || {
                    let sidecar = root.join(format!("sidecar-{}", writer % 2));
                    Ledger::open_with(root, &sidecar, options()).unwrap()
                };
                scope.spawn(move || {
                    let ledger = open();
                    for n in 0..EACH {
                        let text = format!(r#"{{"type":"note","writer":{writer},"n":{n}}}"#);
                        let appended = ledger.append(&NewEvent::parse(&text).unwrap()).unwrap();
                        let Appended::Done { last, .. } = appended else {
                            panic!("{appended:?}");
                        };
                        let written = ledger.read(last).unwrap().unwrap().value().unwrap();
                        assert_eq!(
                            (&written["writer"], &written["n"]),
                            (&writer.into(), &n.into())
                        );
                    }
                });
            }
        });
        let ledger = Ledger::open(root, options()).unwrap();
        assert_eq!(ledger.verify().unwrap().events, 4 * EACH);
    }
}
