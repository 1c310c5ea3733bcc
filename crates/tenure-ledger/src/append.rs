//! Writing events, in our turn: [`Writing`].
//!
//! ```text
//!   .event-tenure-*.tmp   written and synced, while we wait for our turn
//!   the turn              tenure's own go one after the other
//!     ledger.lock         taken
//!       the number        what is expected?  link the file to its name, which must be free
//!     ledger.lock         given back
//!   the folder            synced: only now is it told
//! ```
//!
//! An event is linked to its name, never renamed: nothing is ever replaced, and those who listen to
//! other programs, which rename, sleep through it.
//!
//! # A batch
//!
//! Several events get consecutive numbers. Before the first is linked, the file `batch` in the side
//! folder says which they are. Whoever has the turn next and finds it there completes the batch if
//! its first event was linked, and drops it otherwise: nobody can have seen it.
//!
//! # Killed at any point
//!
//! Temporary files are named after a place in the queue ([`crate::writer_lock`]), and that is given up after
//! them. So whoever has the turn next knows what was left behind without looking for it.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tenure_core::{ErrorKind, Moment, StoreError};

use super::{Appended, Ledger};
use crate::lock::Asked;
use crate::standing::Standing;
use crate::writer_lock::{Preparation, WriterGuard, WriterId};
use tenure_host::files::Disk;
use tenure_host::files::atomic::{self, Put, Sync};
use tenure_host::files::fault::explain;
use tenure_host::files::protocol::digest;

/// How often to look anew when other programs write without asking for the lock.
const TRIES: usize = 64;

/// What a batch is going to be.
#[derive(Debug, Serialize, Deserialize)]
struct Batch {
    first: u64,
    /// The names of the temporary files.
    files: Vec<String>,
    digests: Vec<u64>,
}

/// Our turn to write.
#[derive(Debug)]
#[must_use]
pub(super) struct Writing<'a> {
    ledger: &'a Ledger,
    turn: WriterGuard,
}

/// Events that are on disk, and have no number yet. What is left of them is removed in the end.
#[derive(Debug)]
#[must_use]
pub(super) struct Prepared {
    files: Vec<PathBuf>,
    digests: Vec<u64>,
}

impl Drop for Prepared {
    fn drop(&mut self) {
        for path in &self.files {
            // What stays is removed by the next one to write.
            let _ = atomic::unlink(path);
        }
    }
}

impl Ledger {
    /// Waits for our turn.
    pub(super) fn writing(&self) -> Result<Writing<'_>, StoreError> {
        self.side.make()?;
        let turn = self.writers.take(&*self.options.clock)?;
        let writing = Writing { ledger: self, turn };
        writing.begin()?;
        Ok(writing)
    }

    /// Waits for our turn, and writes these events to disk meanwhile. What is prepared has to be
    /// dropped before the turn: after it, the names of its files may be somebody else's.
    pub(super) fn writing_prepared(
        &self,
        events: impl FnOnce(Timestamp) -> Vec<Vec<u8>>,
    ) -> Result<(Writing<'_>, Prepared), StoreError> {
        self.side.make()?;
        let mut events = Some(events);
        let mut bytes = |now: &Moment| {
            let events = events.take();
            events.map_or_else(Vec::new, |events| events(now.wall))
        };
        let (turn, waited) = self
            .writers
            .take_prepared(&*self.options.clock, |who, now| {
                self.prepare(who, &bytes(now))
            })?;
        let writing = Writing { ledger: self, turn };
        // Named apart, so that it is dropped before the turn, whatever happens.
        let waited = waited;
        writing.begin()?;
        let prepared = match waited {
            Preparation::Done(prepared) => prepared,
            // Only now: somebody who was killed may have left files of the same names, of a batch.
            Preparation::NotStarted(now) => self.prepare(WriterId::Direct, &bytes(&now))?,
        };
        Ok((writing, prepared))
    }

    /// Removes the temporary files that somebody left behind.
    fn clear(&self, who: WriterId) {
        for number in 1.. {
            let path = self.temporary(who, number);
            if path.symlink_metadata().is_err() || atomic::unlink(&path).is_err() {
                return;
            }
        }
    }

    fn prepare(&self, who: WriterId, events: &[Vec<u8>]) -> Result<Prepared, StoreError> {
        let mut prepared = Prepared {
            files: Vec::new(),
            digests: Vec::new(),
        };
        for (index, bytes) in events.iter().enumerate() {
            let path = self.temporary(who, index + 1);
            prepared.files.push(path.clone());
            prepared.digests.push(digest(bytes));
            self.write_temporary(&path, bytes)
                .map_err(|error| explain("written", &path, error))?;
        }
        Ok(prepared)
    }

    fn write_temporary(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let create = || {
            File::options()
                .write(true)
                .create_new(true)
                .mode(0o644)
                .open(path)
        };
        let mut file = match create() {
            // Left behind. Never written into: it may have become an event.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {
                fs::remove_file(path)?;
                create()?
            }
            created => created?,
        };
        file.write_all(bytes)?;
        if self.options.disk == Disk::PowerCut {
            file.sync_all()?;
        }
        Ok(())
    }

    /// Makes sure that what was written is on disk. Needs no turn.
    pub(super) fn sync(&self) -> Result<(), StoreError> {
        if self.options.disk == Disk::Crash {
            return Ok(());
        }
        let synced = self.folder.sync_all();
        synced.map_err(|error| {
            let mut fault = explain("synced", &self.path, error);
            fault.kind = ErrorKind::OutcomeUnknown;
            fault.fix = Some(
                "the event is there, but may not survive a power cut: look with tenure ledger log"
                    .into(),
            );
            fault
        })
    }

    fn temporary(&self, who: WriterId, number: usize) -> PathBuf {
        self.path.join(format!(".event-tenure-{who}-{number}.tmp"))
    }

    fn batch(&self) -> PathBuf {
        self.side.path().join("batch")
    }
}

impl Writing<'_> {
    pub(super) fn ledger(&self) -> &Ledger {
        self.ledger
    }

    /// Brings to an end what those were at who were killed, and cleans up after them.
    fn begin(&self) -> Result<(), StoreError> {
        let ledger = self.ledger;
        ledger.lock.put_back_what_was_aside()?;
        self.finish_batch()?;
        self.finish_reaping()?;
        for dead in self.turn.dead() {
            ledger.clear(WriterId::Queued(*dead));
            self.turn.forget(*dead);
        }
        ledger.clear(WriterId::Direct);
        Ok(())
    }

    /// Appends these, if the newest event is the one that is expected. They are visible when this
    /// returns, and on disk after [`Ledger::sync`].
    pub(super) fn append(
        &self,
        expected: Option<u64>,
        events: &[Vec<u8>],
    ) -> Result<Appended, StoreError> {
        let prepared = self.ledger.prepare(self.turn.id(), events)?;
        self.link(expected, &prepared)
    }

    /// Gives events that are on disk their names, under the ledger lock.
    pub(super) fn link(
        &self,
        expected: Option<u64>,
        prepared: &Prepared,
    ) -> Result<Appended, StoreError> {
        let ledger = self.ledger;
        let count = prepared.files.len();
        if count == 0 {
            return Err(StoreError::new(
                ErrorKind::Unsupported,
                "there is nothing to append",
            ));
        }
        let clock = &*ledger.options.clock;
        let held = match ledger.lock.take(clock, &ledger.agent)? {
            Asked::Taken(held) => held,
            Asked::Busy(standing) => return Ok(Appended::Locked(standing)),
        };
        for _ in 0..TRIES {
            let last = ledger.numbers.last()?;
            if let Some(expected) = expected.filter(|expected| *expected != last) {
                return Ok(Appended::Mismatch {
                    expected,
                    found: last,
                });
            }
            let first = last.saturating_add(1);
            if count > 1 {
                self.announce(first, prepared)?;
            }
            match self.link_from(first, prepared)? {
                0 => {
                    // Somebody wrote without the lock.
                    ledger.numbers.forget();
                    self.call_off()?;
                }
                linked => {
                    let many = u64::try_from(linked).unwrap_or(u64::MAX);
                    let seq = last.saturating_add(many);
                    ledger.numbers.written(seq);
                    if linked < count {
                        return Err(self.interrupted(first, seq));
                    }
                    if count > 1 {
                        self.call_off()?;
                    }
                    drop(held);
                    return Ok(Appended::Done { first, last: seq });
                }
            }
        }
        let what = format!(
            "{} is written by another program all the time, without the lock",
            ledger.path.display()
        );
        Err(StoreError::new(ErrorKind::Contended, what)
            .fix("see which one it is, and try again; nothing was changed"))
    }

    /// How many could be linked, one after the other.
    fn link_from(&self, first: u64, prepared: &Prepared) -> Result<usize, StoreError> {
        for (index, from) in prepared.files.iter().enumerate() {
            let seq = first.saturating_add(u64::try_from(index).unwrap_or(u64::MAX));
            let to = self.ledger.numbers.path(seq);
            match atomic::put(from, &to).map_err(|error| explain("written", &to, error))? {
                Put::Done => {}
                Put::Occupied => return Ok(index),
            }
        }
        Ok(prepared.files.len())
    }

    /// A program that does not ask for the lock came between the events of a batch. What is there
    /// stays; the rest is dropped, for it may no longer be true.
    fn interrupted(&self, first: u64, last: u64) -> StoreError {
        let ledger = self.ledger;
        let words = format!(
            "a batch that begins at event {first} was cut off after event {last}: another program wrote without the lock"
        );
        let now = ledger.options.clock.now().wall;
        let _ = ledger.side.note(now, &words);
        let _ = self.call_off();
        StoreError::new(
            ErrorKind::OutcomeUnknown,
            format!("{}: {words}", ledger.path.display()),
        )
        .fix("look with tenure ledger log before trying again")
    }

    fn announce(&self, first: u64, prepared: &Prepared) -> Result<(), StoreError> {
        let path = self.ledger.batch();
        let name = |path: &PathBuf| Some(path.file_name()?.to_string_lossy().into_owned());
        let batch = Batch {
            first,
            files: prepared.files.iter().filter_map(name).collect(),
            digests: prepared.digests.clone(),
        };
        let sync = match self.ledger.options.disk {
            Disk::PowerCut => Sync::ToDisk,
            Disk::Crash => Sync::Later,
        };
        let temp = self.ledger.side.path().join("batch.new");
        let bytes = serde_json::to_vec(&batch).unwrap_or_default();
        atomic::replace(&path, &temp, &bytes, sync)
            .map_err(|error| explain("written", &path, error))
    }

    fn call_off(&self) -> Result<(), StoreError> {
        let path = self.ledger.batch();
        atomic::unlink(&path).map_err(|error| explain("removed", &path, error))
    }

    /// Brings a batch to an end in which somebody was killed.
    fn finish_batch(&self) -> Result<(), StoreError> {
        let ledger = self.ledger;
        let path = ledger.batch();
        let bytes = match fs::read(&path) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(explain("read", &path, error)),
        };
        let Ok(batch) = serde_json::from_slice::<Batch>(&bytes) else {
            // Torn by a power cut: nothing was linked before it was on disk.
            return self.call_off();
        };
        let clock = &*ledger.options.clock;
        let _held = match ledger.lock.take(clock, &ledger.agent)? {
            Asked::Taken(held) => held,
            Asked::Busy(standing) => return Err(busy(&standing)),
        };
        let all = batch.digests.iter().zip(&batch.files);
        for (index, (wanted, name)) in all.enumerate() {
            let seq = batch
                .first
                .saturating_add(u64::try_from(index).unwrap_or(u64::MAX));
            let (from, to) = (ledger.path.join(name), ledger.numbers.path(seq));
            let is = |path: &Path| fs::read(path).is_ok_and(|b| digest(&b) == *wanted);
            if is(&to) {
                continue;
            }
            let complete = index > 0 && is(&from);
            if !complete
                || atomic::put(&from, &to).map_err(|error| explain("written", &to, error))?
                    == Put::Occupied
            {
                if index > 0 {
                    let _ = self.interrupted(batch.first, seq.saturating_sub(1));
                }
                break;
            }
        }
        for name in &batch.files {
            let _ = atomic::unlink(&ledger.path.join(name));
        }
        ledger.numbers.forget();
        self.call_off()?;
        ledger.sync()
    }
}

/// The ledger lock is kept by somebody else.
pub(super) fn busy(standing: &Standing) -> StoreError {
    let what = format!(
        "timeout waiting for lock: {} is held by {standing}",
        standing.place.display()
    );
    StoreError::new(ErrorKind::Contended, what).fix(
        "see whether that program still runs; if it does not: tenure ledger break-lock --force (nothing was changed)",
    )
}
