//! Changing one entry of the user's index so that a crash is harmless.
//!
//! Git protects the index with the file `index.lock`. A git that is killed leaves it behind, and then no
//! commit is possible until a person removes it. So the sync takes that lock itself, as a hard link to a
//! file in the `.tenure` folder: the next sync can tell that the lock was left by a sync.
//!
//! # Invariants
//!
//! 1. `index.lock` is held from before the index is read until after it is replaced. The file is written
//!    and the branch is moved in between, so no merge or commit of the user can begin meanwhile.
//! 2. Only a lock that is a hard link to our own file is ever removed, and only by the holder of
//!    `sync.lock`: no other sync can be using it.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::git::{Git, GitError, Oid};

/// The user's index.
pub(super) struct Index<'a> {
    /// The folder that holds it.
    pub(super) folder: &'a Path,
    /// The `.tenure` folder.
    pub(super) own: &'a Path,
}

impl Index<'_> {
    fn lock(&self) -> PathBuf {
        self.folder.join("index.lock")
    }

    fn token(&self) -> PathBuf {
        self.own.join("sync-index-lock")
    }

    /// Removes the lock if a killed sync left it.
    pub(super) fn recover(&self) {
        let which = |path: &Path| {
            let file = fs::symlink_metadata(path).ok()?;
            Some((file.dev(), file.ino()))
        };
        if let (Some(lock), Some(token)) = (which(&self.lock()), which(&self.token()))
            && lock == token
        {
            let _ = fs::remove_file(self.lock());
        }
    }

    /// Takes the lock; `None` if it is held.
    pub(super) fn take(&self) -> Option<IndexLock<'_>> {
        let token = self.token();
        let _ = fs::remove_file(&token);
        let linked =
            fs::write(&token, "tenure sync\n").and_then(|()| fs::hard_link(&token, self.lock()));
        match linked {
            Ok(()) => Some(IndexLock {
                index: self,
                held: true,
            }),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => None,
            // The two folders are on different file systems, or there are no hard links.
            Err(_) => Some(IndexLock {
                index: self,
                held: false,
            }),
        }
    }

    fn replace(&self, git: &Git<'_>, path: &str, blob: &Oid) -> Result<(), GitError> {
        let index = self.folder.join("index");
        git.with_scratch(|scratch| {
            match fs::copy(&index, scratch) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(GitError::Io(error));
                }
                _ => {}
            }
            git.set_scratch_entry(path, blob)?;
            fs::rename(scratch, &index).map_err(GitError::Io)
        })
    }
}

/// The lock, held until this is dropped.
#[must_use]
pub(super) struct IndexLock<'a> {
    index: &'a Index<'a>,
    /// `false` where this file system has no such lock.
    held: bool,
}

impl Drop for IndexLock<'_> {
    fn drop(&mut self) {
        if self.held {
            let _ = fs::remove_file(self.index.lock());
        }
        let _ = fs::remove_file(self.index.token());
    }
}

impl IndexLock<'_> {
    /// Sets the entry of the shared file.
    pub(super) fn set(&self, git: &Git<'_>, path: &str, blob: &Oid) -> Result<(), GitError> {
        if self.held {
            self.index.replace(git, path, blob)
        } else {
            git.set_entry(path, blob)
        }
    }
}
