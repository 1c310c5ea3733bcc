//! One entry of the user's index, changed so that a crash is harmless.
//!
//! Git keeps others away with the file `index.lock`. A git that is killed leaves it behind, and then
//! nobody can commit until a person removes it. So we take that lock ourselves, as a second name of
//! a file in our own folder: whoever finds it after a crash can tell that it is ours.
//!
//! # Invariants
//!
//! 1. `index.lock` is held from before the index is read until after it is replaced, and meanwhile the
//!    file is written and the branch is moved: no merge or commit of the user's begins in between.
//! 2. Only a lock that is a name of our own file is ever removed, and only by whoever holds
//!    `sync.lock`: nobody of ours can be at work under it.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::git::{Git, Oid, Trouble};

/// Where the user's index is, and what stands for us in its lock.
pub(super) struct Index<'a> {
    /// Git's folder.
    pub(super) folder: &'a Path,
    /// Our own.
    pub(super) own: &'a Path,
}

impl Index<'_> {
    fn lock(&self) -> PathBuf {
        self.folder.join("index.lock")
    }

    fn token(&self) -> PathBuf {
        self.own.join("sync-index-lock")
    }

    /// Removes the lock, if we left it behind.
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

    /// Takes the lock; `None` if somebody else has it.
    pub(super) fn take(&self) -> Option<Locked<'_>> {
        let token = self.token();
        let _ = fs::remove_file(&token);
        let linked =
            fs::write(&token, "tenure sync\n").and_then(|()| fs::hard_link(&token, self.lock()));
        match linked {
            Ok(()) => Some(Locked {
                index: self,
                held: true,
            }),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => None,
            // Git's folder is on another disk than ours, or takes no second names.
            Err(_) => Some(Locked {
                index: self,
                held: false,
            }),
        }
    }

    fn replace(&self, git: &Git<'_>, path: &str, blob: &Oid) -> Result<(), Trouble> {
        let index = self.folder.join("index");
        git.with_scratch(|scratch| {
            match fs::copy(&index, scratch) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(Trouble::Io(error));
                }
                _ => {}
            }
            git.set_scratch_entry(path, blob)?;
            fs::rename(scratch, &index).map_err(Trouble::Io)
        })
    }
}

/// The lock, while we have it.
#[must_use]
pub(super) struct Locked<'a> {
    index: &'a Index<'a>,
    /// Whether it is really ours, or could not be had on this file system.
    held: bool,
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        if self.held {
            let _ = fs::remove_file(self.index.lock());
        }
        let _ = fs::remove_file(self.index.token());
    }
}

impl Locked<'_> {
    /// Makes our file's entry `blob`.
    pub(super) fn set(&self, git: &Git<'_>, path: &str, blob: &Oid) -> Result<(), Trouble> {
        if self.held {
            self.index.replace(git, path, blob)
        } else {
            git.set_entry(path, blob)
        }
    }
}
