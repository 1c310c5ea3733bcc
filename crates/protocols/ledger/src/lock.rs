//! The ledger lock `ledger.lock`, which excludes other programs: [`LedgerLock`], [`LedgerLockGuard`].
//!
//! ```json
//! {"agent_id":"tenure","acquired_at":"2026-11-15T18:49:40.407123456Z","pid":12345,"hostname":"dev-machine","tenure":{"started":1611857,"boot":"4bc46893-…","namespace":"pid:[4026531836]"}}
//! ```
//!
//! Tenure's own processes serialise on [`crate::writer_lock`] first, and only the writer takes this
//! lock.
//!
//! | what is there | what happens |
//! |---|---|
//! | nothing | the lock is linked there as a complete file: it is never empty |
//! | a lock that tenure wrote (it is also linked in the sidecar folder) | its writer no longer has the writer lock, so it is dead: taken over |
//! | a lock that names a tenure process which is proven dead | taken over by a swap ([`tenure_host::files::takeover`]) |
//! | another program's file, an empty file, a folder | the writer waits for its removal, and reports it after [`TIMEOUT`] with the same lock, counted from the beginning of its call: writers that queue wait together, not one after another |
//!
//! # Invariants
//!
//! 1. The path is never free while the lock is taken over (G5).
//! 2. A lock whose holder is not proven dead is left alone (G4), except by [`LedgerLock::break_it`].
//! 3. Dropping the guard removes only this process's own lock.
//!
//! Each user has one lock file, an inode that is written in place and linked: creating and unlinking
//! a file for every append would cost more than the rest of the append. After a power cut the file
//! may be empty, and is still known by its inode.

use std::fs::{self, File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock};
use std::time::Duration;

use jiff::Timestamp;
use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use tenure_core::{Binding, Clock, Doubt, Liveness, Moment, Process, StoreError};
use tenure_host::{identity, liveness, lock};

use crate::blocking_lock::{BlockingLock, LockContent};
use tenure_host::files::atomic::{self, PutResult};
use tenure_host::files::beneath;
use tenure_host::files::fault::explain;
use tenure_host::files::go_time;
use tenure_host::files::lock_watch::{Listen, LockWatch};
use tenure_host::files::protocol::{Fingerprint, LockAtPath, digest};
use tenure_host::files::sidecar::Sidecar;
use tenure_host::files::takeover::{self, Taken};
use tenure_host::interrupt::is_interrupted;
use tenure_host::time_limit::TimeLimit;

/// The largest lock file that is read, in bytes.
const MAX_RECORD: u64 = 1 << 16;

/// The lock's name in the ledger's folder.
pub(super) const FILE: &str = "ledger.lock";

/// How long to wait for a lock of another program: the protocol's timeout.
pub const TIMEOUT: Duration = Duration::from_secs(5);

/// How often to look if the folder can't be watched: the protocol's interval.
const POLL: Duration = Duration::from_millis(10);

/// How often to look although the folder is watched, and whether the caller still waits.
const SAFETY_NET: Duration = Duration::from_millis(100);

/// The content of the lock file.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct LockRecord {
    agent_id: String,
    #[serde(default)]
    acquired_at: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hostname: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tenure: Option<ProcessDetails>,
}

/// What distinguishes a process from every other one that ever had its pid.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct ProcessDetails {
    started: u64,
    boot: tenure_core::Epoch,
    namespace: String,
}

impl LockRecord {
    /// The process that wrote it, if that was tenure.
    fn process(&self) -> Option<Process> {
        let details = self.tenure.clone()?;
        Some(Process {
            pid: self.pid?,
            started: details.started,
            boot: details.boot,
            namespace: details.namespace,
            host: self.hostname.clone()?,
        })
    }
}

/// What is at a path where a lock may be.
struct SeenLock {
    at: Metadata,
    /// Its content; nothing if it can't be read.
    bytes: Vec<u8>,
    record: Option<LockRecord>,
}

impl SeenLock {
    fn at(path: &Path) -> Option<Self> {
        let at = path.symlink_metadata().ok()?;
        let bytes = if at.is_file() {
            beneath::read_linked(path, MAX_RECORD).unwrap_or_default()
        } else {
            Vec::new()
        };
        Some(Self {
            record: serde_json::from_slice(&bytes).ok(),
            at,
            bytes,
        })
    }

    fn fingerprint(&self) -> Fingerprint {
        Fingerprint {
            file: (self.at.dev(), self.at.ino()),
            digest: digest(&self.bytes),
        }
    }

    /// What is known of its holder's process.
    fn liveness(&self, sidecar: &Sidecar) -> Liveness {
        match self.record.as_ref().and_then(LockRecord::process) {
            Some(process) => {
                liveness::probe(&sidecar.liveness_folder(), &Binding::Process { process })
            }
            None => Liveness::Unverifiable(Doubt::Unreadable),
        }
    }
}

/// The lock of one ledger.
#[derive(Debug)]
pub(super) struct LedgerLock {
    path: PathBuf,
    sidecar: Sidecar,
    /// Reports when the lock is removed; `None` if the folder can't be watched. Made once: closing one
    /// takes the kernel ten milliseconds.
    watch: OnceLock<Option<LockWatch>>,
    /// The lock that blocks this process, and when to give up on it.
    blocked_by: Mutex<Option<(BlockingLockId, TimeLimit)>>,
}

/// Distinguishes a blocking lock from a later one. The time counts because a folder has no content and
/// its inode may be used again at once.
type BlockingLockId = (Fingerprint, Timestamp);

/// The outcome of an attempt to take the lock.
#[derive(Debug)]
#[must_use]
pub(super) enum LockAttempt<'a> {
    Taken(LedgerLockGuard<'a>),
    Blocked(BlockingLock),
}

/// The lock while this process holds it. Dropping it releases the lock.
#[derive(Debug)]
#[must_use]
pub(super) struct LedgerLockGuard<'a> {
    lock: &'a LedgerLock,
    inode: (u64, u64),
}

impl Drop for LedgerLockGuard<'_> {
    fn drop(&mut self) {
        // Invariant 3.
        if inode(&self.lock.path) == Some(self.inode) {
            let _ = atomic::unlink(&self.lock.path);
        }
    }
}

/// The outcome of breaking the lock.
#[derive(Debug, Clone)]
#[must_use]
pub enum BreakOutcome {
    /// There was no lock.
    NotHeld,
    /// The lock was removed.
    Removed(BlockingLock),
    /// The lock was left alone: it is too young, or its holder is not proven dead and the caller did
    /// not use force.
    Refused(BlockingLock),
}

impl LedgerLock {
    pub(super) fn new(ledger: &Path, sidecar: &Sidecar) -> Self {
        Self {
            path: ledger.join(FILE),
            sidecar: sidecar.clone(),
            watch: OnceLock::new(),
            blocked_by: Mutex::new(None),
        }
    }

    /// This user's lock file. Other users can't read or write it.
    fn own_file(&self) -> PathBuf {
        let user = rustix::process::getuid().as_raw();
        self.sidecar.path().join(format!("lock.{user}"))
    }

    /// Takes the lock, waiting for other programs at most until the limit. The caller has the writer
    /// lock.
    pub(super) fn take(
        &self,
        clock: &dyn Clock,
        agent: &str,
        limit: TimeLimit,
    ) -> Result<LockAttempt<'_>, StoreError> {
        loop {
            let now = clock.now();
            if let Some(inode) = self.try_take(&now, agent)? {
                *lock(&self.blocked_by) = None;
                return Ok(LockAttempt::Taken(LedgerLockGuard { lock: self, inode }));
            }
            let Some(blocking) = self.blocking(&now) else {
                continue;
            };
            let patience = self.patience_with(&blocking).or_earlier(limit);
            if patience.has_passed() || is_interrupted() {
                return Ok(LockAttempt::Blocked(blocking));
            }
            self.wait(patience.remaining());
        }
    }

    /// Looks at the lock before the caller waits for anything else: that wait counts too.
    pub(super) fn notice(&self, now: &Moment) {
        match self.blocking(now) {
            Some(blocking) => {
                self.patience_with(&blocking);
            }
            None => *lock(&self.blocked_by) = None,
        }
    }

    /// When to give up on this lock. A new one means that other programs make progress.
    fn patience_with(&self, blocking: &BlockingLock) -> TimeLimit {
        let id = (blocking.fingerprint.clone(), blocking.since);
        let mut blocked_by = lock(&self.blocked_by);
        match &*blocked_by {
            Some((known, until)) if *known == id => *until,
            _ => {
                let until = TimeLimit::after(TIMEOUT);
                *blocked_by = Some((id, until));
                until
            }
        }
    }

    /// Tries once; the inode of the lock if it was taken.
    fn try_take(&self, now: &Moment, agent: &str) -> Result<Option<(u64, u64)>, StoreError> {
        let (own, at) = (self.own_file(), &self.path);
        let fault = |error| explain("written", at, error);
        let record = record(now, agent);
        let file = open_own(&own).map_err(|error| explain("written", &own, error))?;
        let metadata = file.metadata().map_err(fault)?;
        let own_inode = (metadata.dev(), metadata.ino());
        if metadata.nlink() > 1 {
            // With a third name, it may be any file of this user that another user linked here.
            if metadata.nlink() == 2 && inode(at) == Some(own_inode) {
                // This process has the writer lock, so the process that linked it here is dead.
                overwrite(&file, &record).map_err(fault)?;
                return Ok(Some(own_inode));
            }
            // Another program linked it under a third name: leave that file alone.
            atomic::unlink(&own).map_err(fault)?;
            return Ok(None);
        }
        overwrite(&file, &record).map_err(|error| explain("written", &own, error))?;
        match atomic::put(&own, at).map_err(fault)? {
            PutResult::Done => return Ok(Some(own_inode)),
            PutResult::Occupied => {}
        }
        let Some(judged) = self.proven_dead() else {
            return Ok(None);
        };
        // Another user's lock, or one whose sidecar folder was removed. After the swap, the old lock
        // has the name of the own file.
        match takeover::swap(self, &own, &judged).map_err(fault)? {
            Taken::Done => {
                atomic::unlink(&own).map_err(fault)?;
                let (PutResult::Done | PutResult::Occupied) =
                    atomic::put(at, &own).map_err(fault)?;
                Ok(Some(own_inode))
            }
            Taken::Different | Taken::Missing => Ok(None),
        }
    }

    /// The fingerprint of the lock if its holder is proven dead: its process has exited, or it is a
    /// tenure process that no longer has the writer lock, which the caller has.
    fn proven_dead(&self) -> Option<Fingerprint> {
        let seen = SeenLock::at(&self.path)?;
        let found = seen.fingerprint();
        let is_dead = self.is_from_tenure(found.file)
            || matches!(seen.liveness(&self.sidecar), Liveness::Gone(_));
        is_dead.then_some(found)
    }

    /// Whether a lock is there that a killed tenure may have left: its process is not alive, and either
    /// has exited or can't be judged, as after a power cut or in another container. Only a process that has
    /// the writer lock can tell for sure.
    pub(super) fn may_be_dead(&self) -> bool {
        let Some(seen) = SeenLock::at(&self.path) else {
            return false;
        };
        match seen.liveness(&self.sidecar) {
            Liveness::Gone(_) => true,
            Liveness::Unverifiable(_) => self.is_from_tenure(seen.fingerprint().file),
            Liveness::Running | Liveness::Orphaned => false,
        }
    }

    /// Whether the same file is also linked in the sidecar folder.
    fn is_from_tenure(&self, file: (u64, u64)) -> bool {
        let names = fs::read_dir(self.sidecar.path())
            .into_iter()
            .flatten()
            .flatten();
        names
            .filter(|entry| entry.file_name().to_string_lossy().starts_with("lock."))
            .any(|entry| inode(&entry.path()) == Some(file))
    }

    /// Describes the lock; `None` if there is none.
    pub(super) fn blocking(&self, now: &Moment) -> Option<BlockingLock> {
        let seen = SeenLock::at(&self.path)?;
        let (at, record) = (&seen.at, seen.record.as_ref());
        let content = match record {
            _ if at.is_dir() => LockContent::Folder,
            _ if !at.is_file() => LockContent::OtherType,
            _ if seen.bytes.is_empty() => LockContent::Empty,
            None => LockContent::Malformed,
            Some(_) => LockContent::Record,
        };
        let written =
            record.and_then(|record| go_time::parse(record.acquired_at.as_deref()?.as_bytes()));
        let nanos = i32::try_from(at.mtime_nsec()).unwrap_or(0);
        let changed = Timestamp::new(at.mtime(), nanos).unwrap_or(Timestamp::UNIX_EPOCH);
        let since = written.unwrap_or(changed);
        Some(BlockingLock {
            path: self.path.clone(),
            content,
            agent: record.map(|record| record.agent_id.clone()),
            process: record.and_then(LockRecord::process),
            since,
            age: Duration::try_from(now.wall.duration_since(since)).unwrap_or_default(),
            dead: matches!(seen.liveness(&self.sidecar), Liveness::Gone(_)),
            fingerprint: seen.fingerprint(),
        })
    }

    /// Sleeps until the lock is removed, at most for `limit`.
    fn wait(&self, limit: Duration) {
        let start = || LockWatch::on(&self.path, Listen::Everything).ok();
        let watch = self.watch.get_or_init(start);
        let Some(watch) = watch else {
            std::thread::sleep(POLL.min(limit));
            return;
        };
        // The lock may have been removed before the watch began; older changes are reported first.
        if !watch.take().is_ok_and(|heard| heard.is_empty())
            || self.path.symlink_metadata().is_err()
        {
            return;
        }
        let _ = watch.wait(limit.min(SAFETY_NET));
    }

    /// Removes a lock whose holder can't be proven dead, on the caller's word. The caller has the
    /// writer lock.
    pub(super) fn break_it(
        &self,
        now: &Moment,
        older_than: Option<Duration>,
        force: bool,
    ) -> Result<BreakOutcome, StoreError> {
        let Some(mut blocking) = self.blocking(now) else {
            return Ok(BreakOutcome::NotHeld);
        };
        blocking.dead |= self.proven_dead().as_ref() == Some(&blocking.fingerprint);
        let old_enough = older_than.is_none_or(|limit| blocking.age >= limit);
        if !(blocking.dead || force && old_enough) {
            return Ok(BreakOutcome::Refused(blocking));
        }
        if blocking.content == LockContent::Folder
            && fs::read_dir(&self.path).is_ok_and(|mut inside| inside.next().is_some())
        {
            let what = format!("{} is a folder that is not empty", self.path.display());
            return Err(StoreError::new(tenure_core::ErrorKind::NotAStore, what)
                .fix("see what is in it, and move it away by hand"));
        }
        let aside = self.sidecar.aside();
        let fault = |error| explain("removed", &self.path, error);
        match takeover::remove(self, &aside, &blocking.fingerprint).map_err(fault)? {
            Taken::Done => Ok(BreakOutcome::Removed(blocking)),
            Taken::Missing => Ok(BreakOutcome::NotHeld),
            Taken::Different => Ok(self
                .blocking(now)
                .map_or(BreakOutcome::NotHeld, BreakOutcome::Refused)),
        }
    }

    /// Puts back a lock that a killed process had moved aside: its holder may be alive.
    pub(super) fn restore_aside(&self) -> Result<(), StoreError> {
        let aside = self.sidecar.aside();
        if aside.symlink_metadata().is_err() {
            return Ok(());
        }
        let put = if aside.is_dir() {
            atomic::take_aside(&aside, &self.path).map(|_| ())
        } else {
            self.put(&aside).map(|_| ())
        };
        // There is a newer lock, which counts.
        let occupied = |error: &io::Error| error.kind() == io::ErrorKind::AlreadyExists;
        match put {
            Err(error) if !occupied(&error) => Err(explain("changed", &self.path, error)),
            _ => self
                .discard(&aside)
                .map_err(|error| explain("removed", &aside, error)),
        }
    }
}

/// Taking over and removing are the same as for every other lock.
impl LockAtPath for LedgerLock {
    fn path(&self) -> &Path {
        &self.path
    }

    fn fingerprint(&self, path: &Path) -> Option<Fingerprint> {
        Some(SeenLock::at(path)?.fingerprint())
    }

    fn put(&self, from: &Path) -> io::Result<PutResult> {
        atomic::put(from, &self.path)
    }

    fn discard(&self, path: &Path) -> io::Result<()> {
        // A script's lock folder is empty. A folder with content is not removed.
        match path.symlink_metadata() {
            Ok(at) if at.is_dir() => atomic::remove_folder(path),
            Ok(_) => atomic::unlink(path),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// The content of the lock while this process holds it.
fn record(now: &Moment, agent: &str) -> Vec<u8> {
    let process = identity::this_process();
    let record = LockRecord {
        agent_id: agent.to_owned(),
        acquired_at: Some(now.wall.to_string()),
        pid: Some(process.pid),
        hostname: Some(process.host),
        tenure: Some(ProcessDetails {
            started: process.started,
            boot: process.boot,
            namespace: process.namespace,
        }),
    };
    let mut bytes = serde_json::to_vec(&record).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}

fn open_own(path: &Path) -> io::Result<File> {
    let how = OFlags::RDWR | OFlags::CREATE;
    let file = beneath::open(path, how, rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR)?;
    beneath::must_be_file(path, &file.metadata()?)?;
    Ok(file)
}

fn overwrite(file: &File, bytes: &[u8]) -> io::Result<()> {
    file.write_all_at(bytes, 0)?;
    let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    if file.metadata()?.len() != length {
        file.set_len(length)?;
    }
    Ok(())
}

fn inode(path: &Path) -> Option<(u64, u64)> {
    let at = path.symlink_metadata().ok()?;
    Some((at.dev(), at.ino()))
}
