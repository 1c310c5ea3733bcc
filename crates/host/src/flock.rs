//! A kernel lock on a named file: [`FileLock`].
//!
//! # Invariants
//!
//! 1. The kernel releases the lock when its process ends, however it ends. The file stays behind and
//!    means nothing by itself.
//! 2. A lock counts only while its file still has its name. A process that locked a file which was
//!    removed or replaced in the meantime excludes nobody, so [`FileLock::try_lock`] starts again with
//!    the file that has the name now; [`FileLock::is_current`] tells a holder whether it still does.
//! 3. No call blocks. A caller that wants to wait tries again.
//! 4. An observer ([`is_locked`]) takes a shared lock for a moment. An attempt that meets it gets
//!    [`TryLock::Observed`], never [`TryLock::Held`].
//!
//! It does not queue and it wakes nobody.

use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;

use crate::files::beneath;
use crate::files::look::if_there;
use crate::files::permissions::open_or_create;

/// An exclusive lock, held until this is dropped.
///
/// ```
/// use tenure_host::flock::{FileLock, TryLock, is_locked};
///
/// let dir = tempfile::tempdir().unwrap();
/// let path = dir.path().join("sync.lock");
/// let TryLock::Locked(lock) = FileLock::try_lock(&path).unwrap() else { panic!() };
/// assert!(is_locked(&path).unwrap());
/// assert!(matches!(FileLock::try_lock(&path).unwrap(), TryLock::Held));
/// drop(lock);
/// assert!(!is_locked(&path).unwrap());
/// ```
#[derive(Debug)]
#[must_use]
pub struct FileLock {
    file: File,
    path: PathBuf,
}

/// The result of one attempt.
#[derive(Debug)]
#[must_use]
pub enum TryLock {
    /// The caller has the lock.
    Locked(FileLock),
    /// Another process has it.
    Held,
    /// No process has it, but an observer was looking at it. The next attempt will usually succeed.
    Observed,
}

impl FileLock {
    /// Tries once to take the lock, creating its file if it is missing.
    pub fn try_lock(path: &Path) -> io::Result<TryLock> {
        loop {
            let file = open(path)?;
            match file.try_lock() {
                Ok(()) => {}
                // It met an observer.
                Err(TryLockError::WouldBlock) if !is_held(&file)? => return Ok(TryLock::Observed),
                Err(TryLockError::WouldBlock) => return Ok(TryLock::Held),
                Err(TryLockError::Error(error)) => return Err(error),
            }
            let path = path.to_owned();
            let lock = Self { file, path };
            if lock.is_current() {
                return Ok(TryLock::Locked(lock));
            }
        }
    }

    /// Whether the locked file still has its name, so that other processes meet this lock.
    pub fn is_current(&self) -> bool {
        has_name(&self.file, &self.path)
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        // Closing the file is not enough: a child between fork and exec has a copy of the descriptor.
        let _ = self.file.unlock();
    }
}

/// A shared lock, held until this is dropped: it keeps exclusive ones away. Nothing is created or
/// written, and permission to read is enough.
#[derive(Debug)]
#[must_use]
pub struct SharedLock {
    file: File,
}

impl SharedLock {
    /// Tries once to take the lock of a file that exists; `None` if a process has it exclusively.
    pub fn try_lock(path: &Path) -> io::Result<Option<Self>> {
        loop {
            let file = beneath::open_file(path, OFlags::RDONLY)?;
            match file.try_lock_shared() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(error)) => return Err(error),
            }
            let lock = Self { file };
            if has_name(&lock.file, path) {
                return Ok(Some(lock));
            }
        }
    }
}

impl Drop for SharedLock {
    fn drop(&mut self) {
        let _ = self.file.unlock();
    }
}

fn has_name(file: &File, path: &Path) -> bool {
    let id = |file: std::fs::Metadata| (file.dev(), file.ino());
    match (file.metadata(), path.symlink_metadata()) {
        (Ok(ours), Ok(there)) => id(ours) == id(there),
        _ => false,
    }
}

/// Whether a process has the lock. Nothing is created or written.
pub fn is_locked(path: &Path) -> io::Result<bool> {
    let file = if_there(beneath::open_file(path, OFlags::RDONLY))?;
    file.map_or(Ok(false), |file| is_held(&file))
}

/// Only an exclusive lock keeps a shared one away.
fn is_held(file: &File) -> io::Result<bool> {
    match file.try_lock_shared() {
        Ok(()) => {
            let _ = file.unlock();
            Ok(false)
        }
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

fn open(path: &Path) -> io::Result<File> {
    // Network file systems grant an exclusive lock only on a descriptor that can write.
    match open_or_create(path, OFlags::RDWR) {
        // Elsewhere reading is enough, also for a user who may not write the file or its folder.
        Err(error)
            if matches!(
                error.kind(),
                io::ErrorKind::PermissionDenied | io::ErrorKind::ReadOnlyFilesystem
            ) =>
        {
            beneath::open_file(path, OFlags::RDONLY)
        }
        opened => opened,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lock(path: &Path) -> FileLock {
        match FileLock::try_lock(path).unwrap() {
            TryLock::Locked(lock) => lock,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn one_process_holds_it_and_the_next_can_once_it_is_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        assert!(!is_locked(&path).unwrap());
        assert!(!path.exists(), "an observer creates nothing");
        let first = lock(&path);
        assert!(matches!(FileLock::try_lock(&path).unwrap(), TryLock::Held));
        assert!(is_locked(&path).unwrap());
        drop(first);
        assert!(!is_locked(&path).unwrap());
        let _second = lock(&path);
    }

    #[test]
    fn an_observer_is_not_mistaken_for_a_holder() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let observer = File::create(&path).unwrap();
        observer.lock_shared().unwrap();
        assert!(matches!(
            FileLock::try_lock(&path).unwrap(),
            TryLock::Observed
        ));
        assert!(!is_locked(&path).unwrap());
        drop(observer);
        let _lock = lock(&path);
    }

    #[test]
    fn a_lock_is_current_only_while_its_file_has_its_name() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("lock");
        let removed = lock(&path);
        assert!(removed.is_current());
        std::fs::remove_file(&path).unwrap();
        assert!(!removed.is_current());
        let replacement = lock(&path);
        assert!(replacement.is_current());
        assert!(!removed.is_current());
    }

    #[test]
    fn a_link_is_never_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (path, target) = (dir.path().join("lock"), dir.path().join("target"));
        std::os::unix::fs::symlink(&target, &path).unwrap();
        assert!(FileLock::try_lock(&path).is_err());
        assert!(!target.exists());
    }
}
