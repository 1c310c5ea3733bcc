//! Writing events: [`Writer`], the process that has the writer lock.
//!
//! ```text
//!   .event-tenure-*.tmp   written and synced, while the process waits for the writer lock
//!   writer lock           taken: tenure's own processes write one after another
//!     ledger.lock         taken
//!       the number        is it the expected one?  link the file to its name, which must be free
//!     ledger.lock         released
//!   the folder            synced: only now is the append reported
//! ```
//!
//! An event is linked to its name, never renamed, so no event is ever replaced. Other programs rename
//! theirs, so a waiter that listens for renames sleeps through tenure's own appends.
//!
//! # Batches
//!
//! Several events get consecutive numbers. Before the first is linked, the file `batch` in the sidecar
//! folder lists them. The next writer that finds it there completes the batch if its first event was
//! linked, and drops it otherwise: no reader can have seen it. A full disk stops a batch before its first
//! event: after it, a file that can't be linked is renamed, and if that fails, too, the next writer
//! completes the batch.
//!
//! # Killed at any point
//!
//! Temporary files are named after the writer ([`crate::writer_lock`]), whose name stays in the sidecar
//! folder until the files are removed. So the next writer knows which files a killed writer left behind
//! without listing the folder. No two writers ever have the same name, so none takes another's file for
//! its own.

use std::cell::Cell;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tenure_core::{ErrorKind, Moment, StoreError, Token};

use super::{Appended, Ledger, command};
use crate::blocking_lock::BlockingLock;
use crate::lock::{LedgerLockGuard, LockAttempt};
use crate::read::not_an_event;
use crate::writer_lock::{Preparation, WriterGuard, WriterId};
use tenure_host::files::atomic::{self, Durability, PutResult};
use tenure_host::files::beneath;
use tenure_host::files::fault::explain;
use tenure_host::files::look::if_there;
use tenure_host::files::permissions::{OFlags, create_new};
use tenure_host::files::protocol::digest;
use tenure_host::time_limit::TimeLimit;

/// The largest list of a batch that is read, in bytes.
const MAX_BATCH: u64 = 64 << 20;

/// How often to try again when other programs write without the ledger lock.
const TRIES: usize = 64;

/// A batch that is about to be linked.
#[derive(Debug, Serialize, Deserialize)]
struct Batch {
    first: u64,
    /// The names of the temporary files.
    files: Vec<String>,
    digests: Vec<u64>,
}

/// The one tenure process that may write.
#[derive(Debug)]
#[must_use]
pub(super) struct Writer<'a> {
    ledger: &'a Ledger,
    guard: WriterGuard,
}

/// Events that are on disk and have no number yet. Their temporary files are removed when this is
/// dropped, which must happen before the writer lock is released: the names are reused then.
#[derive(Debug)]
#[must_use]
pub(super) struct PreparedEvents {
    files: Vec<PathBuf>,
    digests: Vec<u64>,
    /// Whether the files stay, for the next writer.
    left: Cell<bool>,
}

impl PreparedEvents {
    /// The digests of the events.
    pub(super) fn digests(&self) -> Vec<u64> {
        self.digests.clone()
    }

    /// Leaves the files, because a batch is on record that needs them.
    fn leave_to_next_writer(&self) {
        self.left.set(true);
    }
}

impl Drop for PreparedEvents {
    fn drop(&mut self) {
        if self.left.get() {
            return;
        }
        // The last first: the next writer looks for files that are left from the first on.
        for path in self.files.iter().rev() {
            if atomic::unlink(path).is_err() {
                return;
            }
        }
    }
}

impl Ledger {
    /// Waits for the writer lock, at most until the limit.
    pub(super) fn writer(&self, limit: TimeLimit) -> Result<Writer<'_>, StoreError> {
        self.check_access()?;
        self.sidecar.make()?;
        self.lock.notice(&self.options.clock.now());
        let guard = self.writers.take(&*self.options.clock, limit)?;
        let writer = Writer {
            ledger: self,
            guard,
        };
        writer.begin()?;
        Ok(writer)
    }

    /// Waits for the writer lock, and writes these events to disk meanwhile.
    pub(super) fn writer_prepared(
        &self,
        events: impl FnOnce(Timestamp) -> Vec<Vec<u8>>,
    ) -> Result<(Writer<'_>, PreparedEvents), StoreError> {
        self.check_access()?;
        self.sidecar.make()?;
        self.lock.notice(&self.options.clock.now());
        let mut events = Some(events);
        let mut bytes = |now: &Moment| {
            let events = events.take();
            events.map_or_else(Vec::new, |events| events(now.wall))
        };
        let (guard, preparation) = self.writers.take_prepared(
            &*self.options.clock,
            TimeLimit::never(),
            |writer, now| self.prepare(writer, &bytes(now)),
        )?;
        let writer = Writer {
            ledger: self,
            guard,
        };
        // Moved, so that it is dropped before the writer on every path.
        let preparation = preparation;
        writer.begin()?;
        let prepared = match preparation {
            Preparation::Done(prepared) => prepared,
            Preparation::NotStarted(now) => self.prepare(writer.guard.id(), &bytes(&now))?,
        };
        Ok((writer, prepared))
    }

    /// Removes the temporary files that a dead writer left behind.
    fn clear(&self, writer: &WriterId) {
        let is_left = |number: usize| self.temporary(writer, number).symlink_metadata().is_ok();
        let mut left = 0_usize;
        while is_left(left.saturating_add(1)) {
            left = left.saturating_add(1);
        }
        for number in (1..=left).rev() {
            if atomic::unlink(&self.temporary(writer, number)).is_err() {
                return;
            }
        }
    }

    fn prepare(&self, writer: &WriterId, events: &[Vec<u8>]) -> Result<PreparedEvents, StoreError> {
        let mut prepared = PreparedEvents {
            files: Vec::new(),
            digests: Vec::new(),
            left: Cell::new(false),
        };
        for (index, bytes) in events.iter().enumerate() {
            let path = self.temporary(writer, index + 1);
            prepared.files.push(path.clone());
            prepared.digests.push(digest(bytes));
            self.write_temporary(&path, bytes)
                .map_err(|error| explain("written", &path, error))?;
        }
        Ok(prepared)
    }

    fn write_temporary(&self, path: &Path, bytes: &[u8]) -> io::Result<()> {
        let mut file = create_new(path, OFlags::WRONLY)?;
        file.write_all(bytes)?;
        if self.options.durability == Durability::PowerCut {
            file.sync_all()?;
        }
        Ok(())
    }

    /// Syncs the folder, so that linked events survive a power cut. Needs no lock.
    pub(super) fn sync(&self) -> Result<(), StoreError> {
        if self.options.durability == Durability::Crash {
            return Ok(());
        }
        let synced = self.folder.sync_all();
        synced.map_err(|error| {
            let mut fault = explain("synced", &self.path, error);
            fault.kind = ErrorKind::OutcomeUnknown;
            fault.fix = Some(format!(
                "the event was appended, but may not survive a power cut: check with {}",
                command(&self.root, "log")
            ));
            fault
        })
    }

    fn temporary(&self, writer: &WriterId, number: usize) -> PathBuf {
        self.path
            .join(format!(".event-tenure-{writer}-{number}.tmp"))
    }

    fn batch(&self) -> PathBuf {
        self.sidecar.path().join("batch")
    }
}

impl Writer<'_> {
    pub(super) fn ledger(&self) -> &Ledger {
        self.ledger
    }

    /// Completes or drops what killed writers had begun, and removes their files.
    fn begin(&self) -> Result<(), StoreError> {
        let ledger = self.ledger;
        ledger.lock.restore_aside()?;
        // A verb that appends nothing must not leave it.
        if ledger.lock.may_be_dead() {
            ledger.remove_dead_lock_as_writer();
        }
        self.finish_batch()?;
        self.finish_reaping()?;
        for earlier in self.guard.earlier() {
            ledger.clear(earlier);
        }
        self.guard.forget_dead();
        self.guard.sign();
        Ok(())
    }

    /// Takes the ledger lock, for several steps that must not be interrupted by other programs.
    pub(super) fn lock_ledger(&self, limit: TimeLimit) -> Result<LedgerLockGuard<'_>, StoreError> {
        let ledger = self.ledger;
        let clock = &*ledger.options.clock;
        match ledger.lock.take(clock, &ledger.agent, limit)? {
            LockAttempt::Taken(lock) => Ok(lock),
            LockAttempt::Blocked(by) => Err(blocked(by)),
        }
    }

    /// Appends events if the newest event is the expected one. They are visible when this returns,
    /// and survive a power cut after [`Ledger::sync`]. The caller may have the ledger lock already.
    pub(super) fn append(
        &self,
        expected: u64,
        events: &[Vec<u8>],
        limit: TimeLimit,
        lock: Option<&LedgerLockGuard<'_>>,
    ) -> Result<Appended, StoreError> {
        let prepared = self.ledger.prepare(self.guard.id(), events)?;
        self.link(Some(expected), &prepared, limit, lock)
    }

    /// Links prepared events to their names, under the ledger lock.
    pub(super) fn link(
        &self,
        expected: Option<u64>,
        prepared: &PreparedEvents,
        limit: TimeLimit,
        lock: Option<&LedgerLockGuard<'_>>,
    ) -> Result<Appended, StoreError> {
        let ledger = self.ledger;
        let count = prepared.files.len();
        if count == 0 {
            return Err(StoreError::new(
                ErrorKind::Unsupported,
                "there is no event to append",
            ));
        }
        let clock = &*ledger.options.clock;
        let taken = match lock {
            Some(_) => None,
            None => match ledger.lock.take(clock, &ledger.agent, limit)? {
                LockAttempt::Taken(lock) => Some(lock),
                LockAttempt::Blocked(by) => return Ok(Appended::Locked(by)),
            },
        };
        for _ in 0..TRIES {
            let last = ledger.numbers.last()?;
            if let Some(expected) = expected.filter(|expected| *expected != last) {
                return Ok(Appended::Mismatch {
                    expected,
                    found: last,
                });
            }
            let newest = ledger.numbers.path(last);
            if last > 0 && !newest.symlink_metadata().is_ok_and(|at| at.is_file()) {
                return Err(not_an_event(&newest));
            }
            // The number of an event is the token of its claim, so it has the same bound.
            Token(last).raised(u64::try_from(count).unwrap_or(u64::MAX))?;
            let first = last.saturating_add(1);
            if count > 1 {
                self.announce(first, prepared)?;
            }
            let linked = match self.link_from(first, prepared) {
                Ok(linked) => linked,
                Err(failed) if failed.linked == 0 => {
                    self.drop_batch()?;
                    return Err(explain("written", &failed.path, failed.error));
                }
                Err(failed) => {
                    ledger.numbers.forget();
                    prepared.leave_to_next_writer();
                    return Err(self.incomplete(first, count, failed));
                }
            };
            match linked {
                0 => {
                    // Another program wrote without the lock.
                    ledger.numbers.forget();
                    self.drop_batch()?;
                }
                linked => {
                    let many = u64::try_from(linked).unwrap_or(u64::MAX);
                    let seq = last.saturating_add(many);
                    ledger.numbers.written(seq);
                    if linked < count {
                        return Err(self.interrupted(first, seq));
                    }
                    if count > 1 {
                        self.drop_batch()?;
                    }
                    drop(taken);
                    return Ok(Appended::Done { first, last: seq });
                }
            }
        }
        let what = format!(
            "another program keeps writing to {} without the ledger lock",
            ledger.path.display()
        );
        Err(StoreError::new(ErrorKind::Contended, what)
            .fix("find that program, and try again; nothing was changed"))
    }

    /// Links the events one after another until a name is taken; how many were linked.
    fn link_from(&self, first: u64, prepared: &PreparedEvents) -> Result<usize, LinkFailure> {
        for (linked, from) in prepared.files.iter().enumerate() {
            let seq = first.saturating_add(u64::try_from(linked).unwrap_or(u64::MAX));
            let path = self.ledger.numbers.path(seq);
            match give_number(from, &path, linked) {
                Ok(PutResult::Done) => {}
                Ok(PutResult::Occupied) => return Ok(linked),
                Err(error) => {
                    return Err(LinkFailure {
                        linked,
                        path,
                        error,
                    });
                }
            }
        }
        Ok(prepared.files.len())
    }

    /// Reports a batch of which the last events could not be linked. Its list and its files stay, and
    /// the next writer completes it.
    fn incomplete(&self, first: u64, count: usize, failed: LinkFailure) -> StoreError {
        let linked = u64::try_from(failed.linked).unwrap_or(u64::MAX);
        let last = first.saturating_add(linked).saturating_sub(1);
        let mut fault = explain("written", &failed.path, failed.error);
        fault.kind = ErrorKind::OutcomeUnknown;
        fault.what = format!(
            "{linked} of {count} events were appended, up to event {last}: {}",
            fault.what
        );
        fault.fix = Some(format!(
            "free some space; the next tenure command that writes to {} appends the others, unless another program writes first. Look with {}",
            self.ledger.path.display(),
            command(&self.ledger.root, "log")
        ));
        fault
    }

    /// Reports a program that wrote between the events of a batch without the ledger lock. The events
    /// that are linked stay. The others are dropped: they may no longer be true.
    fn interrupted(&self, first: u64, last: u64) -> StoreError {
        let ledger = self.ledger;
        let words = format!(
            "a batch from event {first} on was cut off after event {last}: another program wrote without the lock"
        );
        let now = ledger.options.clock.now().wall;
        let _ = ledger.sidecar.note(now, &words);
        let _ = self.drop_batch();
        StoreError::new(
            ErrorKind::OutcomeUnknown,
            format!("{}: {words}", ledger.path.display()),
        )
        .fix(format!(
            "see what was written with {} before trying again",
            command(&ledger.root, "log")
        ))
    }

    fn announce(&self, first: u64, prepared: &PreparedEvents) -> Result<(), StoreError> {
        let path = self.ledger.batch();
        let name = |path: &PathBuf| Some(path.file_name()?.to_string_lossy().into_owned());
        let batch = Batch {
            first,
            files: prepared.files.iter().filter_map(name).collect(),
            digests: prepared.digests.clone(),
        };
        let durability = self.ledger.options.durability;
        let temp = self.ledger.sidecar.path().join("batch.new");
        let bytes = serde_json::to_vec(&batch).unwrap_or_default();
        atomic::replace(&path, &temp, &bytes, durability)
            .map_err(|error| explain("written", &path, error))
    }

    fn drop_batch(&self) -> Result<(), StoreError> {
        let path = self.ledger.batch();
        atomic::unlink(&path).map_err(|error| explain("removed", &path, error))
    }

    /// Completes or drops the batch of a killed writer.
    fn finish_batch(&self) -> Result<(), StoreError> {
        let ledger = self.ledger;
        let path = ledger.batch();
        let bytes = if_there(beneath::read(&path, MAX_BATCH));
        let Some(bytes) = bytes.map_err(|error| explain("read", &path, error))? else {
            return Ok(());
        };
        let Ok(batch) = serde_json::from_slice::<Batch>(&bytes) else {
            // Torn by a power cut: no event is linked before the list is on disk.
            return self.drop_batch();
        };
        let _lock = self.lock_ledger(TimeLimit::never())?;
        let all = batch.digests.iter().zip(&batch.files);
        for (index, (wanted, name)) in all.enumerate() {
            let seq = batch
                .first
                .saturating_add(u64::try_from(index).unwrap_or(u64::MAX));
            let (from, to) = (ledger.path.join(name), ledger.numbers.path(seq));
            let is = |path: &Path| {
                beneath::read_linked(path, MAX_BATCH).is_ok_and(|bytes| digest(&bytes) == *wanted)
            };
            if is(&to) {
                continue;
            }
            let complete = index > 0 && is(&from);
            if !complete
                || give_number(&from, &to, index).map_err(|error| explain("written", &to, error))?
                    == PutResult::Occupied
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
        self.drop_batch()?;
        ledger.sync()
    }
}

/// An event of a batch that could not be linked.
struct LinkFailure {
    /// How many events before it were linked.
    linked: usize,
    path: PathBuf,
    error: io::Error,
}

/// Links an event to its name, if that is free. After the first event of a batch the others must follow:
/// where no link can be made because the disk is full, the file is renamed, which takes no space.
fn give_number(from: &Path, to: &Path, linked_before: usize) -> io::Result<PutResult> {
    match atomic::put(from, to) {
        Err(_) if linked_before > 0 => atomic::move_in(from, to),
        put => put,
    }
}

/// Another program holds the ledger lock. The first words are the protocol's.
pub(super) fn blocked(by: BlockingLock) -> StoreError {
    let what = format!("timeout waiting for lock: {} is held", by.path.display());
    let fix = format!(
        "nothing was changed; if that program has exited, remove its lock with {}",
        command(by.root(), "break-lock --force")
    );
    StoreError::new(ErrorKind::Contended, what)
        .because(by)
        .fix(fix)
}
