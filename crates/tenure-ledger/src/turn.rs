//! Whose turn it is to write among tenure's own processes: [`Gate`], [`Turn`].
//!
//! ```text
//!   gate     flock: whoever has it has the turn. Nothing else excludes anybody.
//!   queue/   one named pipe for each that had to wait, numbered; open and flock: whoever waits
//!   desk     flock for a moment: numbers are given one after the other
//! ```
//!
//! Whoever finds the gate free and nobody in the queue goes through at once: one system call and a
//! look. Everybody else sits down behind the last and sleeps until the one before it is gone (the
//! kernel tells, however it went). So it is first come, first served, and of many that wait one is
//! woken at a time (G8, G9). Whoever has something to prepare, such as a file that has to be synced,
//! does that while it waits.
//!
//! # Invariants
//!
//! 1. Two never have the turn: that is the kernel's lock on the gate, whatever the queue says.
//! 2. Whoever came later does not go first: a free gate is left to a queue that is not empty.
//! 3. A number in the queue is larger than all that are there, and its file is locked before
//!    anybody can see a larger one. It stays until the turn is over.
//! 4. Turns come in the order of their moments: one at the gate takes its moment before it looks at
//!    the queue, one in the queue after it can be seen there.
//!
//! It gives up when nothing moves for a while: a process that was stopped in its turn must not hold
//! up the others for ever.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::mpsc::{RecvTimeoutError, sync_channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{CWD, FileType, Mode, OFlags, mknodat};
use rustix::io::Errno;
use tenure_core::{Clock, ErrorKind, Moment, StoreError};

use tenure_host::files::fault::explain;
use tenure_host::files::step_lock::{PATIENCE, StepLock};

/// To open a pipe without waiting for its other end.
const O_NONBLOCK: i32 = OFlags::NONBLOCK.bits().cast_signed();

/// The stack of a thread that waits: it makes one system call.
const STACK: usize = 64 * 1024;

/// Where turns are given.
#[derive(Debug)]
pub(super) struct Gate {
    path: PathBuf,
    queue: PathBuf,
    desk: PathBuf,
    /// The open file. One thread of this object at a time.
    file: Mutex<Option<File>>,
    patience: Duration,
}

/// Whose something is that was left behind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Who {
    /// Somebody who found the gate free.
    Gate,
    /// Somebody who waited, with this number.
    Place(u64),
}

impl std::fmt::Display for Who {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Gate => f.write_str("gate"),
            Self::Place(number) => write!(f, "{number}"),
        }
    }
}

/// What became of the time in which we waited.
#[derive(Debug)]
pub(super) enum Waited<T> {
    /// There was none: the turn is of this moment.
    NotAtAll(Moment),
    /// This was prepared.
    Meanwhile(T),
}

/// The turn, while we have it.
#[derive(Debug)]
#[must_use]
pub(super) struct Turn<'a> {
    gate: MutexGuard<'a, Option<File>>,
    place: Option<Place>,
}

impl Turn<'_> {
    pub(super) fn who(&self) -> Who {
        self.place
            .as_ref()
            .map_or(Who::Gate, |place| Who::Place(place.number))
    }

    /// Those before us who were killed, and have to be cleaned up after.
    pub(super) fn dead(&self) -> &[u64] {
        // Without a place: nobody was in the queue.
        self.place.as_ref().map_or(&[], |place| &place.dead)
    }

    /// They were.
    pub(super) fn forget(&self, dead: u64) {
        if let Some(place) = &self.place {
            let _ = fs::remove_file(place.queue.join(dead.to_string()));
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        if let Some(file) = &*self.gate {
            // Not left to closing: a command that is just being started has a copy. Before the
            // place is given up: whoever is woken by that finds the gate free.
            let _ = file.unlock();
        }
        self.place = None;
    }
}

impl Gate {
    /// The gate in this folder, which must be there once a turn is taken.
    pub(super) fn new(side: &Path) -> Self {
        Self {
            path: side.join("gate"),
            queue: side.join("queue"),
            desk: side.join("desk"),
            file: Mutex::new(None),
            patience: PATIENCE,
        }
    }

    /// Waits for the turn.
    pub(super) fn take(&self, clock: &dyn Clock) -> Result<Turn<'_>, StoreError> {
        Ok(self.take_prepared(clock, |_, _| Ok(()))?.0)
    }

    /// Waits for the turn, and prepares something meanwhile: it is told for whom, and for which moment.
    /// Whoever need not wait prepares nothing, and is told its moment.
    pub(super) fn take_prepared<T>(
        &self,
        clock: &dyn Clock,
        prepare: impl FnOnce(Who, &Moment) -> Result<T, StoreError>,
    ) -> Result<(Turn<'_>, Waited<T>), StoreError> {
        let mut turn = Turn {
            gate: self.file.lock().unwrap_or_else(PoisonError::into_inner),
            place: None,
        };
        loop {
            let open = self.open(&mut turn.gate)?;
            match open.try_lock() {
                Ok(()) if is_at(open, &self.path) => {
                    // Invariant 4.
                    let now = clock.now();
                    if self.nobody_waits()? {
                        return Ok((turn, Waited::NotAtAll(now)));
                    }
                    unlock(open);
                    break;
                }
                // Somebody removed the file: those who come now would lock another one.
                Ok(()) => *turn.gate = None,
                Err(TryLockError::WouldBlock) => break,
                Err(TryLockError::Error(error)) => {
                    return Err(explain("locked", &self.path, error));
                }
            }
        }
        let (place, now) = self.queue_up(clock)?;
        let prepared = prepare(Who::Place(place.number), &now)?;
        let place = turn.place.insert(place);
        // Nobody can come before us any more.
        self.wait_in_line(place)?;
        loop {
            let open = self.open(&mut turn.gate)?;
            if !self.wait_at_gate(open)? {
                return Err(self.stuck());
            }
            if is_at(open, &self.path) {
                return Ok((turn, Waited::Meanwhile(prepared)));
            }
            *turn.gate = None;
        }
    }

    fn open<'a>(&self, file: &'a mut Option<File>) -> Result<&'a File, StoreError> {
        if file.is_none() {
            let opened = File::options()
                .read(true)
                .write(true)
                .create(true)
                .truncate(false)
                .open(&self.path);
            *file = Some(opened.map_err(|error| explain("written", &self.path, error))?);
        }
        // Just filled in.
        file.as_ref()
            .ok_or_else(|| StoreError::new(ErrorKind::Io, "the gate is not open"))
    }

    fn nobody_waits(&self) -> Result<bool, StoreError> {
        match fs::read_dir(&self.queue) {
            Ok(mut entries) => Ok(entries.next().is_none()),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
            Err(error) => Err(explain("read", &self.queue, error)),
        }
    }

    /// Sleeps until nobody is before us.
    fn wait_in_line(&self, place: &mut Place) -> Result<(), StoreError> {
        let mut seen = None;
        while let Some(before) = place.before()? {
            if has_gone(&before, self.patience)
                .map_err(|error| explain("watched", &self.queue, error))?
            {
                continue;
            }
            // The crowd is large, or nothing moves at all.
            let first = numbers(&self.queue)?.into_iter().min();
            if seen == first {
                return Err(self.stuck());
            }
            seen = first;
        }
        Ok(())
    }

    fn wait_at_gate(&self, gate: &File) -> Result<bool, StoreError> {
        let fault = |error| explain("locked", &self.path, error);
        match gate.try_lock() {
            Ok(()) => return Ok(true),
            Err(TryLockError::WouldBlock) => {}
            Err(TryLockError::Error(error)) => return Err(fault(error)),
        }
        let copy = gate.try_clone().map_err(fault)?;
        sleep(copy, self.patience, File::lock, unlock).map_err(fault)
    }

    fn queue_up(&self, clock: &dyn Clock) -> Result<(Place, Moment), StoreError> {
        let _desk = StepLock::take(&self.desk, self.patience)?;
        let make = || {
            let all = match numbers_in(&self.queue) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    fs::create_dir_all(&self.queue)?;
                    Vec::new()
                }
                all => all?,
            };
            let number = all.into_iter().max().unwrap_or(0).saturating_add(1);
            let path = self.queue.join(number.to_string());
            let anyone = Mode::from_bits_retain(0o666);
            mknodat(CWD, &path, FileType::Fifo, anyone, 0)?;
            // Both ends: it is open for writing for as long as we are here.
            let file = File::options().read(true).write(true).open(&path)?;
            file.lock()?;
            Ok(Place {
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
        let what = format!(
            "{} was held by another tenure for over {} s",
            self.path.display(),
            self.patience.as_secs()
        );
        StoreError::new(ErrorKind::Contended, what)
            .fix("see who has it open (fuser or lsof tell) and try again; nothing was changed")
    }
}

/// A place in the queue, given up when it is dropped.
#[derive(Debug)]
struct Place {
    queue: PathBuf,
    number: u64,
    path: PathBuf,
    file: File,
    /// Those before us who were killed.
    dead: Vec<u64>,
}

impl Place {
    /// The one directly before us that is still there.
    fn before(&mut self) -> Result<Option<File>, StoreError> {
        let mut before = numbers(&self.queue)?;
        before.retain(|number| *number < self.number);
        before.sort_unstable();
        self.dead.clear();
        while let Some(number) = before.pop() {
            let path = self.queue.join(number.to_string());
            let open = File::options()
                .read(true)
                .custom_flags(O_NONBLOCK)
                .open(&path);
            let Ok(file) = open else {
                continue;
            };
            match file.try_lock_shared() {
                Err(TryLockError::WouldBlock) => return Ok(Some(file)),
                // Invariant 3: it was locked before we had our number, so it is over.
                Ok(()) => self.dead.push(number),
                Err(TryLockError::Error(error)) => return Err(explain("locked", &path, error)),
            }
        }
        Ok(None)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
        let _ = self.file.unlock();
    }
}

fn numbers(queue: &Path) -> Result<Vec<u64>, StoreError> {
    match numbers_in(queue) {
        // Somebody removed the folder: nobody waits there any more.
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        found => found.map_err(|error| explain("read", queue, error)),
    }
}

fn numbers_in(queue: &Path) -> io::Result<Vec<u64>> {
    let mut numbers = Vec::new();
    for entry in fs::read_dir(queue)? {
        let name = entry?.file_name();
        numbers.extend(name.to_str().and_then(|name| name.parse::<u64>().ok()));
    }
    Ok(numbers)
}

fn unlock(file: &File) {
    let _ = file.unlock();
}

/// Waits for up to so long until whoever has a pipe open for writing closes it, in whatever way. It had
/// it open when we opened it, so the kernel tells.
fn has_gone(pipe: &File, limit: Duration) -> io::Result<bool> {
    let timeout = Timespec {
        tv_sec: i64::try_from(limit.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: i64::from(limit.subsec_nanos()),
    };
    loop {
        // Nobody ever writes into it: only the end is heard.
        match poll(&mut [PollFd::new(pipe, PollFlags::IN)], Some(&timeout)) {
            Ok(heard) => return Ok(heard > 0),
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

/// Blocks in `lock` for up to so long; `false` if it was not to be had. The kernel has no such call
/// with a limit, so another thread makes it. What that gets after the limit it gives back.
fn sleep(
    file: File,
    limit: Duration,
    lock: fn(&File) -> io::Result<()>,
    give_back: fn(&File),
) -> io::Result<bool> {
    // Without room, so that what is sent is either taken or known not to be.
    let (tell, told) = sync_channel(0);
    std::thread::Builder::new()
        .name("turn".into())
        .stack_size(STACK)
        .spawn(move || {
            let locked = lock(&file);
            let got = locked.is_ok();
            if tell.send(locked).is_err() && got {
                give_back(&file);
            }
        })?;
    match told.recv_timeout(limit) {
        Ok(locked) => locked.map(|()| true),
        Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => Ok(false),
    }
}

fn is_at(file: &File, path: &Path) -> bool {
    match (file.metadata(), path.metadata()) {
        (Ok(ours), Ok(there)) => (ours.dev(), ours.ino()) == (there.dev(), there.ino()),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use tenure_host::HostClock;

    #[test]
    fn those_who_wait_go_in_the_order_in_which_they_came() {
        let dir = tempfile::tempdir().unwrap();
        let gate = || Gate::new(dir.path());
        let first = gate();
        let turn = first.take(&HostClock::new()).unwrap();
        let (tell, told) = mpsc::channel();
        std::thread::scope(|scope| {
            for number in 0..6 {
                let tell = tell.clone();
                let gate = gate();
                scope.spawn(move || {
                    let _turn = gate.take(&HostClock::new()).unwrap();
                    tell.send(number).unwrap();
                });
                tenure_testkit::limit::within_limit("a place to be taken", || {
                    numbers(&dir.path().join("queue")).unwrap().len() == number + 1
                });
            }
            // Somebody who comes just when the gate is free stands behind all of them.
            drop(turn);
            let _turn = first.take(&HostClock::new()).unwrap();
            let order: Vec<usize> = told.try_iter().collect();
            assert_eq!(order, [0, 1, 2, 3, 4, 5]);
        });
        assert!(numbers(&dir.path().join("queue")).unwrap().is_empty());
    }

    #[test]
    fn what_the_dead_left_in_the_queue_holds_nobody_up() {
        let dir = tempfile::tempdir().unwrap();
        let queue = dir.path().join("queue");
        fs::create_dir(&queue).unwrap();
        for number in ["1", "2", "7"] {
            fs::write(queue.join(number), "").unwrap();
        }
        let gate = Gate::new(dir.path());
        let turn = gate.take(&HostClock::new()).unwrap();
        let mut dead = turn.dead().to_vec();
        dead.sort_unstable();
        assert_eq!(dead, [1, 2, 7]);
        for number in dead {
            turn.forget(number);
        }
        drop(turn);
        assert!(numbers(&queue).unwrap().is_empty());
        assert_eq!(gate.take(&HostClock::new()).unwrap().who(), Who::Gate);
    }

    #[test]
    fn one_that_keeps_its_turn_for_too_long_is_given_up_on() {
        let dir = tempfile::tempdir().unwrap();
        let impatient = || Gate {
            patience: Duration::from_millis(30),
            ..Gate::new(dir.path())
        };
        let (first, second) = (impatient(), impatient());
        let turn = first.take(&HostClock::new()).unwrap();
        let error = second.take(&HostClock::new()).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Contended);
        drop(turn);
        // The thread that still waits gives back what it gets.
        tenure_testkit::limit::within_limit("the gate to be free", || {
            first.take(&HostClock::new()).is_ok()
        });
    }

    #[test]
    fn a_gate_whose_file_was_removed_is_taken_anew() {
        let dir = tempfile::tempdir().unwrap();
        let (old, new) = (Gate::new(dir.path()), Gate::new(dir.path()));
        drop(old.take(&HostClock::new()).unwrap());
        fs::remove_file(dir.path().join("gate")).unwrap();
        let turn = new.take(&HostClock::new()).unwrap();
        let impatient = Gate {
            patience: Duration::from_millis(20),
            file: Mutex::new(old.file.lock().unwrap().take()),
            ..Gate::new(dir.path())
        };
        assert!(
            impatient.take(&HostClock::new()).is_err(),
            "two have the turn"
        );
        drop(turn);
    }
}
