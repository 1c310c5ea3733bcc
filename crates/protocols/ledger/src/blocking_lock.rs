//! A ledger lock that blocks a writer: [`BlockingLock`].

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use tenure_core::Process;
use tenure_core::text::flat;

use tenure_host::files::protocol::Fingerprint;

/// What is in a lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockContent {
    /// A record that names the holder.
    Record,
    /// Nothing: its writer was killed between creating and writing it, or is about to write it.
    Empty,
    /// Something that is no record.
    Malformed,
    /// It is a folder, as the documented shell example makes it.
    Folder,
    /// It is a link, a pipe or a device.
    OtherType,
}

/// A lock whose holder is not proven dead.
#[derive(Debug, Clone)]
pub struct BlockingLock {
    /// Where it is.
    pub path: PathBuf,
    /// What is in it.
    pub content: LockContent,
    /// The holder's name, if it is recorded.
    pub agent: Option<String>,
    /// The holder's process, if it is recorded.
    pub process: Option<Process>,
    /// When it was taken: as recorded, or else when the file last changed.
    pub since: Timestamp,
    /// How long ago that was.
    pub age: Duration,
    /// Whether its holder is proven dead.
    pub dead: bool,
    pub(super) fingerprint: Fingerprint,
}

impl BlockingLock {
    /// The folder that contains `ledger/`.
    pub fn root(&self) -> &Path {
        let root = self.path.parent().and_then(Path::parent);
        root.unwrap_or(&self.path)
    }
}

/// As the cause of a [`tenure_core::StoreError`].
impl std::error::Error for BlockingLock {}

impl fmt::Display for BlockingLock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.agent, self.content) {
            (Some(agent), _) => write!(f, "{}", flat(agent))?,
            (None, LockContent::Folder) => write!(f, "an unknown program (the lock is a folder)")?,
            (None, LockContent::Empty) => write!(f, "an unknown program (the lock file is empty)")?,
            (None, _) => write!(f, "an unknown program (the lock can't be read)")?,
        }
        if let Some(process) = &self.process {
            write!(f, " (pid {} on {})", process.pid, flat(&process.host))?;
        }
        write!(f, " since {:.3}", self.since)
    }
}
