//! One daemon for a project: [`Lock`], a kernel lock on `.tenure/daemon.lock`.
//!
//! 1. The kernel gives the lock back when its process ends. The file stays and means nothing.
//! 2. A lock counts only while its file has its name: whoever finds another file there, or none,
//!    holds nothing that others could see.

use std::fs::{File, TryLockError};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Mode, OFlags};

/// The file's name, in the project's folder.
pub const FILE: &str = "daemon.lock";

/// The lock, for as long as this lives.
#[derive(Debug)]
pub struct Lock {
    file: File,
    path: PathBuf,
}

impl Lock {
    /// Takes the lock of the project whose `.tenure` folder this is; `None` if somebody has it.
    pub fn take(folder: &Path) -> io::Result<Option<Self>> {
        let mut path = folder.join(FILE);
        loop {
            // Reading is enough to lock, so that the next may be another user's.
            let flags = OFlags::RDONLY | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
            let file = File::from(rustix::fs::open(
                &path,
                flags,
                Mode::from_bits_retain(0o644),
            )?);
            match file.try_lock() {
                Ok(()) => {}
                Err(TryLockError::WouldBlock) => return Ok(None),
                Err(TryLockError::Error(error)) => return Err(error),
            }
            let lock = Self { file, path };
            if lock.stands() {
                return Ok(Some(lock));
            }
            // Removed between the two steps: nobody could ever see this one.
            path = lock.path;
        }
    }

    /// Whether others can see it: its file still has its name.
    pub fn stands(&self) -> bool {
        let id = |file: std::fs::Metadata| (file.dev(), file.ino());
        match (self.file.metadata(), self.path.symlink_metadata()) {
            (Ok(ours), Ok(there)) => id(ours) == id(there),
            _ => false,
        }
    }
}

/// Whether a daemon runs: a few microseconds, and nothing is written.
pub fn is_held(folder: &Path) -> io::Result<bool> {
    let file = match File::open(folder.join(FILE)) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(false),
        Err(error) => return Err(error),
    };
    match file.try_lock_shared() {
        Ok(()) => Ok(false),
        Err(TryLockError::WouldBlock) => Ok(true),
        Err(TryLockError::Error(error)) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_has_it_and_the_next_has_it_when_the_first_is_gone() {
        let dir = tempfile::tempdir().unwrap();
        assert!(!is_held(dir.path()).unwrap());
        let first = Lock::take(dir.path()).unwrap().unwrap();
        assert!(Lock::take(dir.path()).unwrap().is_none());
        assert!(is_held(dir.path()).unwrap());
        drop(first);
        assert!(!is_held(dir.path()).unwrap());
        assert!(Lock::take(dir.path()).unwrap().is_some());
    }

    #[test]
    fn a_lock_whose_file_was_removed_or_replaced_does_not_stand() {
        let dir = tempfile::tempdir().unwrap();
        let lock = Lock::take(dir.path()).unwrap().unwrap();
        assert!(lock.stands());
        std::fs::remove_file(dir.path().join(FILE)).unwrap();
        assert!(!lock.stands());
        let other = Lock::take(dir.path()).unwrap().unwrap();
        assert!(other.stands());
        assert!(!lock.stands());
    }
}
