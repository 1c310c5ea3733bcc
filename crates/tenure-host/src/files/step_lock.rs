//! The kernel lock that serialises tenure's own processes: [`StepLock`] (G5).
//!
//! It is `flock` on a side file that is never removed while anybody needs it. The kernel gives it up
//! when its process ends, however that comes. It is only ever tried, with pauses, and given up on
//! after a while: a process that was stopped under it must not hold up the others for ever.
//!
//! Programs that know nothing of tenure do not take it.

use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use tenure_core::{ErrorKind, StoreError};

use crate::files::fault::explain;

/// How long to try before giving up.
pub const PATIENCE: Duration = Duration::from_secs(10);

/// The longest single pause. A verb takes some hundred microseconds.
const LONGEST_PAUSE: Duration = Duration::from_millis(2);

/// The guard, while it is held.
#[derive(Debug)]
#[must_use]
pub struct StepLock(File);

impl StepLock {
    /// Takes the guard at this path, making its file if need be.
    pub fn take(path: &Path, patience: Duration) -> Result<Self, StoreError> {
        let mut waited = Duration::ZERO;
        let mut pause = Duration::from_micros(50);
        let again = || open(path).map_err(|error| explain("opened", path, error));
        let mut file = again()?;
        loop {
            match file.try_lock() {
                Ok(()) if is_at(&file, path) => return Ok(Self(file)),
                // Somebody removed the file: those who come now would lock another one.
                Ok(()) => file = again()?,
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => return Err(explain("locked", path, error)),
            }
            if waited >= patience {
                return Err(StoreError::new(
                    ErrorKind::Contended,
                    format!(
                        "{} was held by another tenure for over {} s",
                        path.display(),
                        patience.as_secs()
                    ),
                )
                .fix(
                    "see who has it open (fuser or lsof tell) and try again; nothing was changed",
                ));
            }
            std::thread::sleep(pause);
            waited = waited.saturating_add(pause);
            pause = (pause * 3 / 2).min(LONGEST_PAUSE);
        }
    }
}

impl Drop for StepLock {
    fn drop(&mut self) {
        // Not left to the closing of the file: a command that is just being started has a copy.
        let _ = self.0.unlock();
    }
}

/// Whoever may not write the folder may still look, and to lock needs no writing.
fn open(path: &Path) -> io::Result<File> {
    match File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
    {
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
            ) =>
        {
            File::open(path)
        }
        opened => opened,
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

    const SHORT: Duration = Duration::from_millis(20);

    #[test]
    fn the_second_one_gives_up_and_changes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("guard");
        let first = StepLock::take(&path, SHORT).unwrap();
        let error = StepLock::take(&path, SHORT).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Contended);
        drop(first);
        let _ = StepLock::take(&path, SHORT).unwrap();
    }

    #[test]
    fn a_guard_whose_file_was_removed_guards_nothing_and_is_taken_anew() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("guard");
        let old = StepLock::take(&path, SHORT).unwrap();
        std::fs::remove_file(&path).unwrap();
        let new = StepLock::take(&path, SHORT).unwrap();
        assert!(!is_at(&old.0, &path));
        assert!(is_at(&new.0, &path));
    }

    #[test]
    fn whoever_waited_at_a_file_that_was_removed_meanwhile_waits_at_the_new_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("guard");
        let old = StepLock::take(&path, SHORT).unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let _guard = StepLock::take(&path, PATIENCE).unwrap();
                tell.send(()).unwrap();
            });
            std::thread::sleep(SHORT);
            std::fs::remove_file(&path).unwrap();
            let new = StepLock::take(&path, SHORT).unwrap();
            drop(old);
            assert!(told.recv_timeout(SHORT * 5).is_err(), "two have the guard");
            drop(new);
            told.recv_timeout(PATIENCE).unwrap();
        });
    }
}
