//! Serialises tenure's own writers of one ledger: [`WriterLock`], [`WriterGuard`].
//!
//! ```text
//!   gate     flock: its owner is the writer; names the last writer that did not queue
//!   queue/   one named pipe for each waiting writer, NUMBER-WRITER; the writer keeps it open and locked
//!   desk     flock for a moment: queue numbers are handed out one at a time
//! ```
//!
//! These are in the sidecar folder. The writer also locks the folder of the events itself: the sidecar
//! folder may be deleted while a process uses it, and an older tenure has its own elsewhere.
//!
//! A writer that finds the lock free and the queue empty proceeds at once: two system calls and a
//! directory read. Every other writer joins the queue and sleeps until the writer directly before it
//! has gone; the kernel reports that, however the writer ended. So writers go first come, first
//! served, and one of them is woken at a time (G8, G9). A writer that has something to prepare, such
//! as a file that must be synced, prepares it while it waits.
//!
//! # Invariants
//!
//! 1. Two writers never hold the lock: the kernel's locks on `gate` and on the folder of the events
//!    decide, whatever the queue says.
//! 2. Each attempt opens `gate` for itself. An attempt that timed out has nothing left that could
//!    take or release the lock of a later one.
//! 3. A writer that arrives later does not go first: a free lock is left to a queue that is not empty.
//! 4. A queue number is larger than every number in the queue, and its pipe is locked before
//!    another process can see a larger one. It stays until the guard is dropped.
//! 5. Writers proceed in the order of their moments: a writer that does not queue takes its moment
//!    before it reads the queue, a queued one after its pipe is visible there.
//!
//! # Limits
//!
//! A waiter gives up at its caller's deadline, when its caller no longer waits, and when the queue has not moved for
//! [`PATIENCE`], so that a writer that was stopped while it held the lock does not block the others for ever. Every limit
//! is a deadline by the clock ([`TimeLimit`]): a signal or a slow system call does not extend it.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use tenure_core::{Clock, ErrorKind, Moment, StoreError};

use tenure_host::files::fault::explain;
use tenure_host::files::look::if_there;
use tenure_host::files::permissions::{OFlags, create_folder, create_pipe, open_or_create};
use tenure_host::files::step_lock::{PATIENCE, StepLock};
use tenure_host::files::{atomic, beneath};
use tenure_host::interrupt::is_interrupted;
use tenure_host::time_limit::{Polled, TimeLimit};

/// The longest pause between two attempts to lock. Only the first waiter in the queue ever pauses, and only for a
/// writer that did not queue.
const LONGEST_PAUSE: Duration = Duration::from_millis(1);

/// How often a waiter in the queue looks whether it should give up.
const LOOK_UP: Duration = Duration::from_millis(50);

/// The lock of one ledger's writers.
#[derive(Debug)]
pub(super) struct WriterLock {
    path: PathBuf,
    queue: PathBuf,
    desk: PathBuf,
    /// The folder of the events.
    folder: PathBuf,
    patience: Duration,
}

/// Names a writer, and with it the temporary files that it may leave behind. No other writer of any
/// process ever has the same name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct WriterId(String);

impl WriterId {
    fn new(now: &Moment) -> Self {
        static WRITERS: AtomicU64 = AtomicU64::new(0);
        let nanos = now.wall.as_nanosecond();
        let (pid, nth) = (std::process::id(), WRITERS.fetch_add(1, Ordering::Relaxed));
        Self(format!("{pid}-{nanos:x}-{nth}"))
    }

    /// Reads a name; `None` if this can't be one.
    fn parse(text: &str) -> Option<Self> {
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        let is_one = !text.is_empty() && text.len() <= 100 && text.bytes().all(plain);
        is_one.then(|| Self(text.to_owned()))
    }
}

impl std::fmt::Display for WriterId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// Whether there was time to prepare something while waiting.
#[derive(Debug)]
pub(super) enum Preparation<T> {
    /// There was no wait. The writer proceeds as of this moment.
    NotStarted(Moment),
    /// This was prepared during the wait.
    Done(T),
}

/// The lock while this process holds it.
#[derive(Debug)]
#[must_use]
pub(super) struct WriterGuard {
    file: File,
    /// The folder of the events; `None` if its file system can't lock folders.
    folder: Option<File>,
    place: Option<QueuePlace>,
    id: WriterId,
    /// The last writer that did not queue.
    last_direct: Option<WriterId>,
}

impl WriterGuard {
    fn of(file: File, id: WriterId, place: Option<QueuePlace>) -> Self {
        let mut text = [0; 128];
        let read = file.read_at(&mut text, 0).unwrap_or(0);
        let text = text.get(..read).unwrap_or_default();
        let line = text.split(|byte| *byte == b'\n').next();
        let line = line.and_then(|line| std::str::from_utf8(line).ok());
        Self {
            last_direct: line.and_then(WriterId::parse),
            file,
            folder: None,
            place,
            id,
        }
    }

    /// Leaves the name of a writer that did not queue, before it makes a file and after it removed those of
    /// the one before it. Best effort: without the name, its files stay if it is killed.
    pub(super) fn sign(&self) {
        if self.place.is_some() {
            return;
        }
        let _ = self
            .file
            .write_all_at(format!("{}\n", self.id).as_bytes(), 0);
    }

    pub(super) fn id(&self) -> &WriterId {
        &self.id
    }

    /// Earlier writers that may have been killed while they waited or wrote.
    pub(super) fn earlier(&self) -> impl Iterator<Item = &WriterId> {
        let queued = self.place.iter().flat_map(|place| &place.dead);
        queued.map(|dead| &dead.id).chain(&self.last_direct)
    }

    /// Removes the dead writers from the queue, once their files are cleaned up.
    pub(super) fn forget_dead(&self) {
        let dead = self.place.iter().flat_map(|place| &place.dead);
        for entry in dead {
            let _ = atomic::unlink(&entry.path);
        }
    }
}

impl Drop for WriterGuard {
    fn drop(&mut self) {
        // Explicitly: a child that is just being started still has a copy of the descriptor. Before
        // the place is dropped: the waiter that wakes up then finds the lock free.
        if let Some(folder) = &self.folder {
            unlock(folder);
        }
        unlock(&self.file);
    }
}

impl WriterLock {
    /// The lock of the writers to `folder`, in this sidecar folder, which must exist when the lock is
    /// taken.
    pub(super) fn new(sidecar: &Path, folder: &Path) -> Self {
        Self {
            path: sidecar.join("gate"),
            queue: sidecar.join("queue"),
            desk: sidecar.join("desk"),
            folder: folder.to_owned(),
            patience: PATIENCE,
        }
    }

    /// Waits for the lock, at most until the limit.
    pub(super) fn take(
        &self,
        clock: &dyn Clock,
        limit: TimeLimit,
    ) -> Result<WriterGuard, StoreError> {
        Ok(self.take_prepared(clock, limit, |_, _| Ok(()))?.0)
    }

    /// Waits for the lock, and calls `prepare` with the writer and its moment in the meantime. If
    /// there is no wait, `prepare` is not called.
    pub(super) fn take_prepared<T>(
        &self,
        clock: &dyn Clock,
        limit: TimeLimit,
        prepare: impl FnOnce(&WriterId, &Moment) -> Result<T, StoreError>,
    ) -> Result<(WriterGuard, Preparation<T>), StoreError> {
        let id = WriterId::new(&clock.now());
        if let Some(file) = self.lock_before(TimeLimit::after(Duration::ZERO))? {
            let mut guard = WriterGuard::of(file, id.clone(), None);
            // Invariant 5.
            let now = clock.now();
            if self.queue_is_empty()? {
                guard.folder = self.lock_folder(limit)?;
                return Ok((guard, Preparation::NotStarted(now)));
            }
        }
        let (mut place, now) = self.join_queue(clock, &id, limit)?;
        // Dropped before the place if anything fails: the place names its files.
        let prepared = prepare(&id, &now)?;
        self.wait_in_queue(&mut place, limit)?;
        let file = self.lock_before(self.patience(limit))?;
        let file = file.ok_or_else(|| self.stuck())?;
        let mut guard = WriterGuard::of(file, id, Some(place));
        guard.folder = self.lock_folder(limit)?;
        Ok((guard, Preparation::Done(prepared)))
    }

    /// When to give up if nothing moves from now on.
    fn patience(&self, limit: TimeLimit) -> TimeLimit {
        TimeLimit::after(self.patience).or_earlier(limit)
    }

    /// Locks the folder of the events. Only a writer that came through another root holds that lock.
    fn lock_folder(&self, limit: TimeLimit) -> Result<Option<File>, StoreError> {
        let folder = beneath::open_folder(&self.folder);
        let folder = folder.map_err(|error| explain("read", &self.folder, error))?;
        let attempt = || match folder.try_lock() {
            Ok(()) => Ok(Some(true)),
            Err(TryLockError::WouldBlock) => Ok(None),
            // Some network file systems can't lock a folder.
            Err(TryLockError::Error(_)) => Ok(Some(false)),
        };
        match self.poll(self.patience(limit), attempt)? {
            Some(is_locked) => Ok(is_locked.then_some(folder)),
            None => Err(self.stuck()),
        }
    }

    /// Tries to lock until the limit has passed, at least once.
    fn lock_before(&self, limit: TimeLimit) -> Result<Option<File>, StoreError> {
        let mut file = self.open()?;
        let attempt = || loop {
            match file.try_lock() {
                Ok(()) if is_at(&file, &self.path) => return Ok(Some(())),
                // The file was removed: new writers would lock another one.
                Ok(()) => {
                    unlock(&file);
                    file = self.open()?;
                }
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(error)) => {
                    return Err(explain("locked", &self.path, error));
                }
            }
        };
        Ok(self.poll(limit, attempt)?.map(|()| file))
    }

    /// Tries until the limit has passed, at least once. Fails if the caller no longer waits.
    fn poll<T>(
        &self,
        limit: TimeLimit,
        attempt: impl FnMut() -> Result<Option<T>, StoreError>,
    ) -> Result<Option<T>, StoreError> {
        match limit.poll(LONGEST_PAUSE, attempt)? {
            Polled::Done(answer) => Ok(Some(answer)),
            Polled::TimedOut => Ok(None),
            Polled::Interrupted => Err(self.held("when a signal came")),
        }
    }

    fn open(&self) -> Result<File, StoreError> {
        open_or_create(&self.path, OFlags::RDWR)
            .map_err(|error| explain("written", &self.path, error))
    }

    fn queue_is_empty(&self) -> Result<bool, StoreError> {
        let entries = if_there(fs::read_dir(&self.queue));
        let entries = entries.map_err(|error| explain("read", &self.queue, error))?;
        Ok(entries.is_none_or(|mut entries| entries.next().is_none()))
    }

    /// Sleeps until this writer is the first in the queue.
    fn wait_in_queue(&self, place: &mut QueuePlace, limit: TimeLimit) -> Result<(), StoreError> {
        let mut first = None;
        let mut patience = self.patience(limit);
        while let Some(before) = place.before()? {
            let now_first = entries(&self.queue)?
                .into_iter()
                .map(|entry| entry.number)
                .min();
            if first != now_first {
                first = now_first;
                patience = self.patience(limit);
            }
            if patience.has_passed() {
                return Err(self.stuck());
            }
            while !wait_for_exit(&before, TimeLimit::after(LOOK_UP).or_earlier(patience))
                .map_err(|error| explain("watched", &self.queue, error))?
                && !patience.has_passed()
            {
                if is_interrupted() {
                    return Err(self.held("when a signal came"));
                }
            }
        }
        Ok(())
    }

    fn join_queue(
        &self,
        clock: &dyn Clock,
        id: &WriterId,
        limit: TimeLimit,
    ) -> Result<(QueuePlace, Moment), StoreError> {
        let _desk = StepLock::take(&self.desk, self.patience(limit).remaining())?;
        let make = || {
            let all = if_there(entries_in(&self.queue))?;
            if all.is_none() {
                create_folder(&self.queue)?;
            }
            let last = all.into_iter().flatten().map(|entry| entry.number).max();
            let number = last.unwrap_or(0).saturating_add(1);
            let path = self.queue.join(format!("{number}-{id}"));
            // Both ends: the pipe has a writer for as long as this process keeps it open.
            let file = create_pipe(&path)?;
            file.lock()?;
            Ok(QueuePlace {
                queue: self.queue.clone(),
                number,
                path,
                file,
                dead: Vec::new(),
            })
        };
        let place = make().map_err(|error| explain("written", &self.queue, error))?;
        Ok((place, clock.now()))
    }

    fn stuck(&self) -> StoreError {
        self.held("for too long")
    }

    fn held(&self, when: &str) -> StoreError {
        let what = format!(
            "{} was held by another tenure process {when}",
            self.path.display()
        );
        StoreError::new(ErrorKind::Contended, what)
            .fix("find the process with fuser or lsof, and try again; nothing was changed")
    }
}

/// A place in the queue, given up when it is dropped.
#[derive(Debug)]
struct QueuePlace {
    queue: PathBuf,
    number: u64,
    path: PathBuf,
    file: File,
    /// The writers before this one that were killed.
    dead: Vec<QueueEntry>,
}

/// A writer in the queue.
#[derive(Debug)]
struct QueueEntry {
    number: u64,
    id: WriterId,
    path: PathBuf,
}

impl QueuePlace {
    /// The pipe of the live writer directly before this one.
    fn before(&mut self) -> Result<Option<File>, StoreError> {
        let mut before = entries(&self.queue)?;
        before.retain(|entry| entry.number < self.number);
        before.sort_by_key(|entry| entry.number);
        self.dead.clear();
        while let Some(entry) = before.pop() {
            let Ok(file) = beneath::open_pipe(&entry.path, OFlags::RDONLY) else {
                continue;
            };
            match file.try_lock_shared() {
                Err(TryLockError::WouldBlock) => return Ok(Some(file)),
                // Invariant 4: it was locked before this writer got its number, so its writer is dead.
                Ok(()) => self.dead.push(entry),
                Err(TryLockError::Error(error)) => {
                    return Err(explain("locked", &entry.path, error));
                }
            }
        }
        Ok(None)
    }
}

impl Drop for QueuePlace {
    fn drop(&mut self) {
        let _ = atomic::unlink(&self.path);
        unlock(&self.file);
    }
}

fn entries(queue: &Path) -> Result<Vec<QueueEntry>, StoreError> {
    let found = if_there(entries_in(queue)).map_err(|error| explain("read", queue, error))?;
    // If the folder was removed, the queue was, too.
    Ok(found.unwrap_or_default())
}

fn entries_in(queue: &Path) -> io::Result<Vec<QueueEntry>> {
    let mut entries = Vec::new();
    for entry in fs::read_dir(queue)? {
        let entry = entry?;
        let name = entry.file_name();
        let parsed = name.to_str().and_then(|name| {
            let (number, id) = name.split_once('-')?;
            Some((number.parse().ok()?, WriterId::parse(id)?))
        });
        entries.extend(parsed.map(|(number, id)| QueueEntry {
            number,
            id,
            path: entry.path(),
        }));
    }
    Ok(entries)
}

fn unlock(file: &File) {
    let _ = file.unlock();
}

/// Waits until every process that has the pipe open for writing has closed it (`true`), or the limit has
/// passed. Nothing is ever written into the pipe, so only its end is reported.
fn wait_for_exit(pipe: &File, limit: TimeLimit) -> io::Result<bool> {
    loop {
        let mut fds = [PollFd::new(pipe, PollFlags::IN)];
        match poll(&mut fds, Some(&limit.timespec())) {
            Ok(ended) => return Ok(ended > 0),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

fn is_at(file: &File, path: &Path) -> bool {
    match (file.metadata(), path.symlink_metadata()) {
        (Ok(ours), Ok(there)) => (ours.dev(), ours.ino()) == (there.dev(), there.ino()),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use tenure_host::HostClock;
    use tenure_host::files::permissions::create_pipe;
    use tenure_testkit::limit::within_limit;

    fn take(lock: &WriterLock) -> Result<WriterGuard, StoreError> {
        lock.take(&HostClock::new(), TimeLimit::never())
    }

    fn impatient(dir: &Path, millis: u64) -> WriterLock {
        WriterLock {
            patience: Duration::from_millis(millis),
            ..WriterLock::new(dir, dir)
        }
    }

    #[test]
    fn waiting_writers_go_in_the_order_of_their_arrival() {
        let dir = tempfile::tempdir().unwrap();
        let queued = || entries(&dir.path().join("queue")).unwrap().len();
        let lock = WriterLock::new(dir.path(), dir.path());
        let guard = take(&lock).unwrap();
        let (send, received) = mpsc::channel();
        std::thread::scope(|scope| {
            for number in 0..6 {
                let send = send.clone();
                let lock = WriterLock::new(dir.path(), dir.path());
                scope.spawn(move || {
                    let _guard = take(&lock).unwrap();
                    send.send(number).unwrap();
                });
                within_limit("a writer to queue", || queued() == number + 1);
            }
            // A writer that arrives just as the lock is released goes behind all of them.
            drop(guard);
            let _guard = take(&lock).unwrap();
            let order: Vec<usize> = received.try_iter().collect();
            assert_eq!(order, [0, 1, 2, 3, 4, 5]);
        });
        assert_eq!(queued(), 0);
    }

    #[test]
    fn dead_writers_in_the_queue_do_not_block() {
        let dir = tempfile::tempdir().unwrap();
        let queue = dir.path().join("queue");
        fs::create_dir(&queue).unwrap();
        for name in ["1-a", "2-b", "7-c"] {
            create_pipe(&queue.join(name)).unwrap();
        }
        let lock = WriterLock::new(dir.path(), dir.path());
        let guard = take(&lock).unwrap();
        let mut dead: Vec<String> = guard.earlier().map(ToString::to_string).collect();
        dead.sort_unstable();
        assert_eq!(dead, ["a", "b", "c"]);
        guard.forget_dead();
        drop(guard);
        assert!(entries(&queue).unwrap().is_empty());
        let guard = take(&lock).unwrap();
        guard.sign();
        let first = guard.id().clone();
        drop(guard);
        // A process that makes no file does not sign.
        drop(take(&lock).unwrap());
        let second = take(&lock).unwrap();
        assert_eq!(second.earlier().collect::<Vec<_>>(), [&first]);
        assert_ne!(*second.id(), first);
    }

    #[test]
    fn a_waiter_gives_up_on_a_writer_that_never_finishes() {
        let dir = tempfile::tempdir().unwrap();
        let (first, second) = (impatient(dir.path(), 30), impatient(dir.path(), 30));
        let guard = take(&first).unwrap();
        let limit = TimeLimit::after(Duration::from_millis(30));
        let error = take(&second).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Contended);
        assert!(limit.has_passed());
        drop(guard);
        assert!(take(&first).is_ok());
    }

    #[test]
    fn a_waiter_gives_up_at_its_callers_deadline() {
        let dir = tempfile::tempdir().unwrap();
        let lock = WriterLock::new(dir.path(), dir.path());
        let _guard = take(&lock).unwrap();
        let (soon, later) = (Duration::from_millis(20), TimeLimit::after(PATIENCE));
        let error = lock.take(&HostClock::new(), TimeLimit::after(soon));
        assert_eq!(error.unwrap_err().kind, ErrorKind::Contended);
        assert!(!later.has_passed());
    }

    #[test]
    fn an_attempt_that_timed_out_never_unlocks_a_later_one() {
        let dir = tempfile::tempdir().unwrap();
        let lock = || impatient(dir.path(), 2);
        let (first, retries, third) = (lock(), lock(), lock());
        for round in 0..50 {
            let guard = take(&first).unwrap();
            for _ in 0..3 {
                assert!(take(&retries).is_err());
            }
            drop(guard);
            let _guard = take(&retries).unwrap();
            assert!(take(&third).is_err(), "two writers in round {round}");
        }
    }

    #[test]
    fn threads_of_one_process_exclude_each_other() {
        let dir = tempfile::tempdir().unwrap();
        let lock = WriterLock::new(dir.path(), dir.path());
        let inside = std::sync::atomic::AtomicUsize::new(0);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        let _guard = take(&lock).unwrap();
                        let before = inside.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
                        assert_eq!(before, 0, "two writers");
                        inside.fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
                    }
                });
            }
        });
    }

    #[test]
    fn writers_through_two_roots_exclude_each_other() {
        let (one, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let guard = take(&WriterLock::new(one.path(), one.path())).unwrap();
        let second = WriterLock {
            patience: Duration::from_millis(20),
            ..WriterLock::new(other.path(), one.path())
        };
        assert!(take(&second).is_err(), "two writers");
        drop(guard);
        assert!(take(&second).is_ok());
    }

    #[test]
    fn a_lock_file_that_was_removed_is_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let old = take(&WriterLock::new(dir.path(), dir.path())).unwrap();
        fs::remove_file(dir.path().join("gate")).unwrap();
        assert!(take(&impatient(dir.path(), 20)).is_err(), "two writers");
        drop(old);
        let new = take(&WriterLock::new(dir.path(), dir.path())).unwrap();
        assert!(take(&impatient(dir.path(), 20)).is_err(), "two writers");
        drop(new);
        assert!(take(&impatient(dir.path(), 20)).is_ok());
    }
}
