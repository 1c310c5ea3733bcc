//! The kernel lock that serialises tenure's own processes: [`StepLock`] (G5).
//!
//! It is a [`FileLock`] in the sidecar folder, held for one step of a store. A process that waits for
//! it polls and gives up after a while: a process that was stopped while it held the lock must not
//! block the others for ever. It gives up at once if its caller no longer waits ([`crate::interrupt`]).
//!
//! Programs that know nothing of tenure do not take it.

use std::io;
use std::path::Path;
use std::time::Duration;

use tenure_core::{ErrorKind, StoreError};

use crate::files::fault::explain;
use crate::flock::{FileLock, SharedLock, TryLock};
use crate::time_limit::{Polled, TimeLimit};

/// How long to try before giving up.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// The longest pause. A step takes some hundred microseconds.
const LONGEST_PAUSE: Duration = Duration::from_millis(2);

/// The lock, held until this is dropped.
#[derive(Debug)]
#[must_use]
pub struct StepLock {
    _lock: FileLock,
}

impl StepLock {
    /// Takes the lock at this path, creating its file if it is missing. Fails with
    /// [`ErrorKind::Contended`] once it has been held by others for `patience`.
    pub fn take(path: &Path, patience: Duration) -> Result<Self, StoreError> {
        let lock = poll(path, patience, || {
            Ok(match FileLock::try_lock(path)? {
                TryLock::Locked(lock) => Some(lock),
                TryLock::Held | TryLock::Observed => None,
            })
        })?;
        Ok(Self { _lock: lock })
    }
}

/// Keeps every process from taking the lock at a path, until this is dropped.
#[derive(Debug)]
#[must_use]
pub struct ObservedStepLock {
    /// `None` if there is no file to lock: no process has taken a step yet.
    _lock: Option<SharedLock>,
}

impl ObservedStepLock {
    /// Waits until no step is under way. Creates nothing, needs no permission but to read, and several
    /// processes can do it at once.
    pub fn observe(path: &Path, patience: Duration) -> Result<Self, StoreError> {
        let lock = poll(path, patience, || match SharedLock::try_lock(path) {
            Ok(lock) => Ok(lock.map(Some)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Some(None)),
            Err(error) => Err(error),
        })?;
        Ok(Self { _lock: lock })
    }
}

/// Tries until there is a lock.
fn poll<T>(
    path: &Path,
    patience: Duration,
    attempt: impl FnMut() -> io::Result<Option<T>>,
) -> Result<T, StoreError> {
    let polled = TimeLimit::after(patience).poll(LONGEST_PAUSE, attempt);
    let when = match polled.map_err(|error| explain("locked", path, error))? {
        Polled::Done(lock) => return Ok(lock),
        Polled::TimedOut => format!("for more than {} s", patience.as_secs()),
        Polled::Interrupted => "when a signal came".to_owned(),
    };
    let what = format!(
        "{} was held by another tenure process {when}",
        path.display()
    );
    Err(StoreError::new(ErrorKind::Contended, what).fix(
        "find the process that has it open (fuser or lsof) and try again; nothing was changed",
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHORT: Duration = Duration::from_millis(20);

    #[test]
    fn a_process_that_waits_too_long_gives_up() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("guard");
        let first = StepLock::take(&path, SHORT).unwrap();
        let error = StepLock::take(&path, SHORT).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Contended);
        drop(first);
        let _ = StepLock::take(&path, SHORT).unwrap();
    }

    #[test]
    fn an_observer_waits_for_a_step_and_creates_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("guard");
        let _ = ObservedStepLock::observe(&path, SHORT).unwrap();
        assert!(!path.exists());
        let step = StepLock::take(&path, SHORT).unwrap();
        let error = ObservedStepLock::observe(&path, SHORT).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Contended);
        drop(step);
        let _one = ObservedStepLock::observe(&path, SHORT).unwrap();
        let other = ObservedStepLock::observe(&path, SHORT).unwrap();
        drop(other);
        let error = StepLock::take(&path, SHORT).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Contended, "no step while one reads");
    }

    #[test]
    fn a_lock_whose_file_was_removed_excludes_nobody_and_is_taken_anew() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("guard");
        let _old = StepLock::take(&path, SHORT).unwrap();
        std::fs::remove_file(&path).unwrap();
        let _new = StepLock::take(&path, SHORT).unwrap();
        let error = StepLock::take(&path, SHORT).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Contended, "the new lock excludes");
    }

    #[test]
    fn a_process_that_waits_for_a_removed_file_goes_on_to_wait_for_the_new_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("guard");
        let old = StepLock::take(&path, SHORT).unwrap();
        let (send, locked) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _guard = StepLock::take(&path, PATIENCE).unwrap();
                send.send(()).unwrap();
            });
            std::thread::sleep(SHORT);
            // In one step: the waiter could lock a missing file first.
            let other = dir.path().join("other");
            let new = StepLock::take(&other, SHORT).unwrap();
            std::fs::rename(&other, &path).unwrap();
            drop(old);
            assert!(locked.recv_timeout(SHORT * 5).is_err(), "two have the lock");
            drop(new);
            locked.recv_timeout(PATIENCE).unwrap();
        });
    }
}
