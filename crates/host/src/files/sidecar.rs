//! [`Sidecar`]: the folder beside a lock that holds what the lock's protocol has no room for.
//!
//! It lays out the names and keeps the history file whole. What the files mean is up to the store.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rustix::fs::OFlags;
use serde_json::json;
use tenure_core::StoreError;

use crate::LivenessFolder;
use crate::files::fault::explain;
use crate::files::permissions::{create_folder, open_or_create};

/// The sidecar folder of one lock.
#[derive(Debug, Clone)]
pub struct Sidecar {
    path: PathBuf,
    /// What stands between this path and the private names `next` and `aside`: they are in the folder, or beside it.
    before_private_names: &'static str,
}

impl Sidecar {
    /// The sidecar at this path. It is created by the first write.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            before_private_names: "/",
        }
    }

    /// The sidecar of a lock that is a folder. The lock is prepared and moved away under names beside
    /// the sidecar (`SIDECAR-next`, `SIDECAR-aside`): a read-only folder can be renamed only within its
    /// parent.
    pub fn for_folder(path: impl Into<PathBuf>) -> Self {
        Self {
            path: path.into(),
            before_private_names: "-",
        }
    }

    fn private_name(&self, name: &str) -> PathBuf {
        let mut path = self.path.clone().into_os_string();
        path.push(self.before_private_names);
        path.push(name);
        path.into()
    }

    /// The folder itself.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Creates the folder if it does not exist.
    pub fn make(&self) -> Result<(), StoreError> {
        let ignore = self.path.join(".gitignore");
        let is_made = ignore.symlink_metadata();
        if is_made.is_ok_and(|there| there.is_file() && there.len() > 0) {
            return Ok(());
        }
        let create = || {
            create_folder(&self.path)?;
            open_or_create(&ignore, OFlags::WRONLY)?.write_all(b"*\n")
        };
        create().map_err(|error| explain("written", &self.path, error))
    }

    /// The file of the [`crate::files::step_lock::StepLock`].
    pub fn step_lock(&self) -> PathBuf {
        self.path.join("guard")
    }

    /// A lock that was prepared for its path, or swapped out of it.
    pub fn next(&self) -> PathBuf {
        self.private_name("next")
    }

    /// A lock that was moved away from its path to be removed.
    pub fn aside(&self) -> PathBuf {
        self.private_name("aside")
    }

    /// The liveness locks of holders and waiters.
    pub fn liveness_folder(&self) -> LivenessFolder {
        LivenessFolder::new(self.path.join("live"))
    }

    /// The history file: one JSON object per line.
    pub fn history(&self) -> PathBuf {
        self.path.join("history")
    }

    /// Appends a note to the history: not an event of a lease, but something that happened to the
    /// records themselves.
    pub fn note(&self, at: Timestamp, words: &str) -> Result<(), StoreError> {
        let path = self.history();
        let write = || {
            let mut file = open_history(&path)?;
            cut_torn_line(&mut file)?;
            let line = json!({ "at": at, "note": words });
            file.write_all(format!("{line}\n").as_bytes())
        };
        write().map_err(|error| explain("written", &path, error))
    }
}

/// How many bytes at the end of the history are read to find the last line.
const TAIL: u64 = 64 * 1024;

/// Opens a history file to append to it, and creates it if it does not exist.
pub fn open_history(path: &Path) -> io::Result<File> {
    open_or_create(path, OFlags::RDWR | OFlags::APPEND)
}

/// Cuts off an incomplete last line, and returns the complete lines at the end of the file.
pub fn cut_torn_line(file: &mut File) -> io::Result<Vec<u8>> {
    let length = file.metadata()?.len();
    let from = length.saturating_sub(TAIL);
    file.seek(SeekFrom::Start(from))?;
    let mut tail = Vec::new();
    file.read_to_end(&mut tail)?;
    let whole = tail
        .iter()
        .rposition(|byte| *byte == b'\n')
        .map_or(0, |at| at + 1);
    if whole < tail.len() {
        let kept = u64::try_from(whole).unwrap_or(0);
        file.set_len(from.saturating_add(kept))?;
        tail.truncate(whole);
    }
    Ok(tail)
}
