//! Writers of one store take turns, first come, first served: [`WriteQueue`].
//!
//! SQLite has no queue for its write lock: the process that tries most often gets it, and a crowd that
//! tries again and again leaves no time for the work. So tenure's writers first queue for a `flock` on
//! a folder that they share. The kernel wakes one of them at a time.
//!
//! # Invariants
//!
//! 1. A turn protects nothing. It only says when it is worth to begin, so a process that gets none in
//!    time, or can't queue at all, goes on without: where another process was stopped during its turn,
//!    where the folder can't be opened, and beside other programs, which do not queue.
//! 2. The kernel ends the turn of a process that exits, however it exits.
//! 3. A writer that finds nobody in the queue makes one system call. `flock` can't time out, so every
//!    other one starts a thread that blocks in its place.
//! 4. A place that was given up stays in the queue, with its thread, until its turn comes and is passed on. Until then
//!    this process does not queue again: so a stuck turn costs it one wait, one thread and one descriptor.

use std::fs::{File, TryLockError};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use crate::files::beneath;
use crate::lock;

/// The stack of a thread that queues: it makes one system call.
const STACK: usize = 64 * 1024;

/// The queue of one store's writers, for one thread of this process at a time.
#[derive(Debug)]
pub struct WriteQueue {
    folder: PathBuf,
    file: OnceLock<Option<File>>,
    /// The place that was given up last.
    given_up: Mutex<Option<Arc<QueuedPlace>>>,
}

/// The answer of [`WriteQueue::try_turn`].
#[derive(Debug)]
#[must_use]
pub enum TryTurn<'a> {
    /// It is this writer's turn.
    Turn(Turn<'a>),
    /// Another process has its turn.
    Taken,
    /// There is no queue.
    NoQueue,
}

/// A writer's turn, until this is dropped.
#[derive(Debug)]
#[must_use]
pub struct Turn<'a>(LockedFile<'a>);

#[derive(Debug)]
enum LockedFile<'a> {
    Ours(&'a File),
    Queued(File),
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        // Closing the file is not enough: a child between fork and exec has a copy of the descriptor.
        let _ = match &self.0 {
            LockedFile::Ours(file) => file.unlock(),
            LockedFile::Queued(file) => file.unlock(),
        };
    }
}

/// A place in the queue, until this is dropped.
#[derive(Debug)]
#[must_use]
pub struct WriterPlace<'a> {
    queue: &'a WriteQueue,
    shared: Arc<QueuedPlace>,
}

/// What a writer and the thread that queues for it share.
#[derive(Debug, Default)]
struct QueuedPlace {
    state: Mutex<PlaceState>,
    changed: Condvar,
}

#[derive(Debug, Default)]
enum PlaceState {
    #[default]
    Queued,
    Turn(File),
    /// The lock could not be taken.
    Failed,
    /// The writer went on without.
    Left,
    /// The turn has come since then, and was passed on.
    Passed,
}

impl WriteQueue {
    /// The queue of the writers that share this folder. Nothing is opened yet.
    pub fn new(folder: impl Into<PathBuf>) -> Self {
        Self {
            folder: folder.into(),
            file: OnceLock::new(),
            given_up: Mutex::new(None),
        }
    }

    /// Takes a turn if no other process has one.
    pub fn try_turn(&self) -> TryTurn<'_> {
        let opened = self
            .file
            .get_or_init(|| beneath::open_folder(&self.folder).ok());
        let Some(file) = opened else {
            return TryTurn::NoQueue;
        };
        match file.try_lock() {
            Ok(()) => TryTurn::Turn(Turn(LockedFile::Ours(file))),
            Err(TryLockError::WouldBlock) => TryTurn::Taken,
            Err(TryLockError::Error(_)) => TryTurn::NoQueue,
        }
    }

    /// Joins the queue; `None` if there is none, or if it does not move: a place that this process gave up is still in it.
    pub fn join(&self) -> Option<WriterPlace<'_>> {
        let stuck = |place: &Arc<QueuedPlace>| matches!(*lock(&place.state), PlaceState::Left);
        if lock(&self.given_up).as_ref().is_some_and(stuck) {
            return None;
        }
        let file = beneath::open_folder(&self.folder).ok()?;
        let shared = Arc::new(QueuedPlace::default());
        let queued = Arc::clone(&shared);
        std::thread::Builder::new()
            .name("write-queue".into())
            .stack_size(STACK)
            .spawn(move || {
                let locked = file.lock();
                let mut state = lock(&queued.state);
                match (&*state, locked) {
                    (PlaceState::Left, _) => {
                        let _ = file.unlock();
                        *state = PlaceState::Passed;
                    }
                    (_, Ok(())) => *state = PlaceState::Turn(file),
                    (_, Err(_)) => *state = PlaceState::Failed,
                }
                queued.changed.notify_one();
            })
            .ok()?;
        Some(WriterPlace {
            queue: self,
            shared,
        })
    }
}

impl WriterPlace<'_> {
    /// Waits for the turn; [`TryTurn::Taken`] if it did not come in time.
    pub fn wait(&self, limit: Duration) -> TryTurn<'static> {
        let queued = |state: &mut PlaceState| matches!(state, PlaceState::Queued);
        let (mut state, _) = self
            .shared
            .changed
            .wait_timeout_while(lock(&self.shared.state), limit, queued)
            .unwrap_or_else(PoisonError::into_inner);
        match std::mem::take(&mut *state) {
            PlaceState::Queued => TryTurn::Taken,
            PlaceState::Turn(file) => {
                *state = PlaceState::Passed;
                TryTurn::Turn(Turn(LockedFile::Queued(file)))
            }
            PlaceState::Failed | PlaceState::Left | PlaceState::Passed => {
                *state = PlaceState::Passed;
                TryTurn::NoQueue
            }
        }
    }
}

impl Drop for WriterPlace<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.shared.state);
        match std::mem::replace(&mut *state, PlaceState::Passed) {
            PlaceState::Turn(file) => drop(file.unlock()),
            PlaceState::Queued => {
                *state = PlaceState::Left;
                drop(state);
                *lock(&self.queue.given_up) = Some(Arc::clone(&self.shared));
            }
            PlaceState::Failed | PlaceState::Left | PlaceState::Passed => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn is_free(queue: &WriteQueue) -> bool {
        matches!(queue.try_turn(), TryTurn::Turn(_))
    }

    #[test]
    fn one_writer_at_a_time_has_its_turn() {
        let dir = tempfile::tempdir().unwrap();
        let (one, other) = (WriteQueue::new(dir.path()), WriteQueue::new(dir.path()));
        let TryTurn::Turn(turn) = one.try_turn() else {
            panic!("nobody is in the queue");
        };
        assert!(matches!(other.try_turn(), TryTurn::Taken));
        let place = other.join().unwrap();
        assert!(matches!(
            place.wait(Duration::from_millis(5)),
            TryTurn::Taken
        ));
        drop(turn);
        let TryTurn::Turn(turn) = place.wait(LONG) else {
            panic!("the turn is over");
        };
        assert!(!is_free(&one));
        drop(turn);
        assert!(is_free(&one));
    }

    #[test]
    fn a_writer_that_went_on_without_keeps_nobody_waiting() {
        let dir = tempfile::tempdir().unwrap();
        for granted_first in [false, true] {
            let (one, other) = (WriteQueue::new(dir.path()), WriteQueue::new(dir.path()));
            let TryTurn::Turn(turn) = one.try_turn() else {
                panic!("nobody is in the queue");
            };
            let place = other.join().unwrap();
            if granted_first {
                drop(turn);
                while !matches!(*lock(&place.shared.state), PlaceState::Turn(_)) {
                    std::thread::yield_now();
                }
                drop(place);
            } else {
                drop(place);
                drop(turn);
            }
            let third = one.join().unwrap();
            assert!(matches!(third.wait(LONG), TryTurn::Turn(_)));
        }
    }

    #[test]
    fn a_stuck_turn_costs_one_wait_and_one_thread() {
        let dir = tempfile::tempdir().unwrap();
        let (stuck, writer) = (WriteQueue::new(dir.path()), WriteQueue::new(dir.path()));
        let TryTurn::Turn(turn) = stuck.try_turn() else {
            panic!("nobody is in the queue");
        };
        let opened = || {
            let open = std::fs::read_dir("/proc/self/fd").unwrap();
            let targets = open.filter_map(|fd| fd.unwrap().path().read_link().ok());
            targets.filter(|to| to == dir.path()).count()
        };
        drop(writer.join().unwrap());
        let before = opened();
        for _ in 0..100 {
            assert!(matches!(writer.try_turn(), TryTurn::Taken));
            assert!(writer.join().is_none(), "it has a place that it gave up");
        }
        // One more: the writer's own, for its tries.
        assert_eq!(opened(), before + 1);
        drop(turn);
        // The turn of the place is passed on, and the queue is in use again.
        let passed = || {
            matches!(
                *lock(&lock(&writer.given_up).as_ref().unwrap().state),
                PlaceState::Passed
            )
        };
        while !passed() {
            std::thread::yield_now();
        }
        let TryTurn::Turn(turn) = stuck.try_turn() else {
            panic!("nobody is in the queue");
        };
        let place = writer.join().unwrap();
        drop(turn);
        assert!(matches!(place.wait(LONG), TryTurn::Turn(_)));
    }

    #[test]
    fn without_a_folder_there_is_no_queue() {
        let queue = WriteQueue::new("nowhere");
        assert!(matches!(queue.try_turn(), TryTurn::NoQueue));
        assert!(queue.join().is_none());
    }
}
