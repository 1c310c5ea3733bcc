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
//!     panic!("nobody else is here");
//! };
//! assert_eq!(last, 1);
//!
//! // Only if nobody wrote anything since.
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
//! | `dialect` | [`Dialect`]: names and events of the seed and of the `af` tool |
//! | `event` | [`NewEvent`], [`Recorded`] |
//! | `append` | writing, in our turn; batches; what a crash left behind |
//! | `read`, `follow` | reading, and being told of what is new |
//! | `number` | the newest number, without listing the folder |
//! | `writer_lock` | serialises tenure's own writers, first come, first served |
//! | `lock`, `standing` | the ledger lock, which other programs know |
//! | `meta` | `meta.json`: how long a claim lasts |
//! | `node` | [`NodeId`]: `1.2.3` |
//! | `replay` | from events to claims, pure |
//! | `checkpoint` | replaying only what is new |
//! | `verify` | whether a ledger is sound, and whether two holders overlapped |
//! | [`claims`] | [`LedgerStore`]: claims as a [`tenure_core::Store`] |
//!
//! # Invariants
//!
//! 1. An event that has its name is whole, and never changes or goes (G10).
//! 2. An event is told of as written only when it is on disk.
//! 3. Numbers have no gap: an event gets the number after the newest, under the ledger lock.
//! 4. In an `af` ledger only events are written that the real tool knows, and only names and
//!    fields that it has.
//! 5. All that tenure needs beyond the protocol is in `.ledger-tenure/` beside the ledger's folder,
//!    and can be deleted at any time when nobody is at work.
//!
//! # Lock order
//!
//! The turn, then the ledger lock. Nothing is synced under the ledger lock.
//!
//! # Limitations
//!
//! A program that writes without the ledger lock, or breaks it while its holder lives, can overwrite
//! an event; tenure never does. Numbers are found by looking: whoever removes the newest event makes
//! its number free.

mod append;
mod checkpoint;
pub mod claims;
mod dialect;
mod event;
mod files;
mod follow;
mod lock;
mod meta;
mod node;
mod number;
mod read;
mod replay;
mod standing;
mod verify;
mod writer_lock;

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tenure_core::{ErrorKind, StoreError};

pub use self::claims::LedgerStore;
pub use self::dialect::{Dialect, Name};
pub use self::event::{BadEvent, MAX_EVENT, NewEvent, Recorded};
pub use self::follow::Follow;
pub use self::lock::{Broken, TIMEOUT};
pub use self::meta::{DEFAULT_TIMEOUT, MAX_TIMEOUT, MIN_TIMEOUT};
pub use self::node::{BadNode, NodeId};
pub use self::read::Events;
pub use self::standing::{Standing, What};
pub use tenure_host::files::{Disk, Options};

pub use self::verify::{Finding, Severity, Verified};

use self::lock::LedgerLock;
use self::meta::Meta;
use self::number::Numbers;
use self::writer_lock::WriterLock;
use tenure_host::files::atomic::{self, Sync};
use tenure_host::files::fault::explain;
use tenure_host::files::sidecar::Sidecar;

/// The name of the events' folder.
const FOLDER: &str = "ledger";

/// The name of the side folder.
pub(crate) const SIDE: &str = ".ledger-tenure";

/// What came of an append.
#[derive(Debug, Clone)]
#[must_use]
pub enum Appended {
    /// It is there, and on disk.
    Done {
        /// The number of the first event.
        first: u64,
        /// The number of the last: the same, unless it was a batch.
        last: u64,
    },
    /// The newest event is another than was expected. Nothing was written.
    Mismatch {
        /// Which one was expected to be the newest; 0 for none.
        expected: u64,
        /// Which one is.
        found: u64,
    },
    /// Another program keeps the ledger lock. Nothing was written.
    Locked(Standing),
}

/// A ledger.
pub struct Ledger {
    root: PathBuf,
    path: PathBuf,
    dialect: Dialect,
    side: Sidecar,
    writers: WriterLock,
    lock: LedgerLock,
    numbers: Numbers,
    /// The events' folder, to be synced.
    folder: File,
    agent: String,
    options: Options,
}

impl Ledger {
    /// Opens the ledger in this folder, which holds `ledger/` and perhaps `meta.json`.
    pub fn open(root: &Path, options: Options) -> Result<Self, StoreError> {
        let path = root.join(FOLDER);
        let not_there = |what: &str| {
            StoreError::new(
                ErrorKind::NotFound,
                format!("there is no ledger in {}: {what}", root.display()),
            )
            .fix("make one with tenure ledger init, or name the folder that holds ledger/")
        };
        let folder = match File::open(&path) {
            Ok(folder) => folder,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                return Err(not_there("it has no folder called ledger"));
            }
            Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => {
                return Err(not_there("that is no folder"));
            }
            Err(error) => return Err(explain("read", &path, error)),
        };
        if !folder.metadata().is_ok_and(|at| at.is_dir()) {
            return Err(not_there("ledger is no folder"));
        }
        let dialect = Dialect::of(root, &path)?;
        let side = Sidecar::new(root.join(SIDE));
        Ok(Self {
            root: root.to_owned(),
            dialect,
            writers: WriterLock::new(side.path()),
            lock: LedgerLock::new(&path, &side)?,
            numbers: Numbers::new(&path, side.path(), dialect),
            side,
            folder,
            path,
            agent: "tenure".into(),
            options,
        })
    }

    /// Makes a ledger in this folder, in this dialect. One that is there is opened, if it is of the
    /// same dialect.
    pub fn init(root: &Path, dialect: Dialect, options: Options) -> Result<Self, StoreError> {
        let path = root.join(FOLDER);
        std::fs::create_dir_all(&path).map_err(|error| explain("made", &path, error))?;
        let meta = root.join(meta::FILE);
        // Whole or not at all: others may read it, or make one, at the same time.
        let temp = root.join(format!(".meta-{}.tmp", std::process::id()));
        let make = || {
            atomic::write(&temp, meta::first(dialect).as_bytes(), Sync::Later)?;
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
                "{} is a ledger of the dialect {} already",
                root.display(),
                ledger.dialect
            );
            return Err(StoreError::new(ErrorKind::NotAStore, what)
                .fix("go on with that one, or make the new one in another folder"));
        }
        Ok(ledger)
    }

    /// Says who writes: what other programs read in the ledger lock.
    #[must_use]
    pub fn written_by(mut self, agent: impl Into<String>) -> Self {
        self.agent = agent.into();
        self
    }

    /// The folder that holds `ledger/`.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The folder of the events.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// How it is written.
    pub fn dialect(&self) -> Dialect {
        self.dialect
    }

    /// The number of the newest event; 0 if there is none.
    pub fn last(&self) -> Result<u64, StoreError> {
        self.numbers.last()
    }

    /// How long a claim lasts unless somebody says otherwise.
    pub fn claim_timeout(&self) -> Result<Duration, StoreError> {
        Meta::read(&self.root)?.timeout()
    }

    /// Appends an event.
    pub fn append(&self, event: &NewEvent) -> Result<Appended, StoreError> {
        self.write(None, std::slice::from_ref(event))
    }

    /// Appends an event if the newest one has this number (0: if there is none).
    pub fn append_if(&self, expected: u64, event: &NewEvent) -> Result<Appended, StoreError> {
        self.write(Some(expected), std::slice::from_ref(event))
    }

    /// Appends several events with consecutive numbers, all of them or none.
    pub fn append_all(
        &self,
        expected: Option<u64>,
        events: &[NewEvent],
    ) -> Result<Appended, StoreError> {
        self.write(expected, events)
    }

    fn write(&self, expected: Option<u64>, events: &[NewEvent]) -> Result<Appended, StoreError> {
        for event in events {
            event
                .check(self.dialect)
                .map_err(|error| StoreError::new(ErrorKind::Unsupported, error.to_string()))?;
        }
        // Turns come in the order of their moments, and so do the times of events.
        let (writing, prepared) =
            self.writing_prepared(|now| events.iter().map(|event| event.bytes(now)).collect())?;
        let appended = writing.link(expected, &prepared)?;
        // Before the turn is over: see `append`.
        drop(prepared);
        drop(writing);
        if matches!(appended, Appended::Done { .. }) {
            self.sync()?;
        }
        Ok(appended)
    }

    /// What keeps the ledger lock right now, if anything.
    pub fn locked_by(&self) -> Option<Standing> {
        self.lock.standing(&self.options.clock.now())
    }

    /// Removes the ledger lock, for somebody who knows that its holder is gone. One that is proven
    /// dead needs no force. It is recorded.
    pub fn break_lock(
        &self,
        by: &str,
        older_than: Option<Duration>,
        force: bool,
    ) -> Result<Broken, StoreError> {
        self.side.make()?;
        let turn = self.writers.take(&*self.options.clock)?;
        let now = self.options.clock.now();
        let broken = self.lock.break_it(&now, older_than, force)?;
        if let Broken::Removed(standing) = &broken {
            let why = if standing.dead {
                "it was proven dead"
            } else {
                "by force"
            };
            let words = format!("{by} broke the ledger lock of {standing}: {why}");
            self.side.note(now.wall, &words)?;
        }
        drop(turn);
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
