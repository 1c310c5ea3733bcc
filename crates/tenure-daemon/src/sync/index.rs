//! One entry of the user's index, changed so that a crash is harmless.
//!
//! Git keeps others away with the file `index.lock`. A git that is killed leaves it behind, and then
//! nobody can commit until a person removes it. So we take that lock ourselves, as a second name of
//! a file in our own folder: whoever finds it after a crash can tell that it is ours.
//!
//! # Invariants
//!
//! 1. `index.lock` is held from before the index is read until after it is replaced.
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

    /// Makes our file's entry `blob`; `false` if somebody else has the index.
    pub(super) fn set(&self, git: &Git<'_>, path: &str, blob: &Oid) -> Result<bool, Trouble> {
        match self.take() {
            Ok(true) => {}
            Ok(false) => return Ok(false),
            // Git's folder is on another disk than ours, or takes no second names.
            Err(_) => return git.set_entry(path, blob).map(|()| true),
        }
        let set = self.replace(git, path, blob);
        let _ = fs::remove_file(self.lock());
        let _ = fs::remove_file(self.token());
        set.map(|()| true)
    }

    fn take(&self) -> io::Result<bool> {
        let token = self.token();
        let _ = fs::remove_file(&token);
        fs::write(&token, "tenure sync\n")?;
        match fs::hard_link(&token, self.lock()) {
            Ok(()) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(false),
            Err(error) => Err(error),
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
