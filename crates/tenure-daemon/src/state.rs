//! What the daemon tells of itself: [`State`], the file `.tenure/daemon.json`.
//!
//! 1. Only the holder of the [`lock`](crate::lock) writes it, and whole: a reader sees all of it or the
//!    one before.
//! 2. It is believed only while the lock is held; see [`standing`](crate::standing).

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tenure::core::Process;
use tenure::host::files::atomic::{self, Sync};

/// The file's name, in the project's folder.
pub const FILE: &str = "daemon.json";

/// What a daemon tells of itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// Which process it is.
    #[serde(flatten)]
    pub process: Process,
    /// The version of tenure.
    pub version: String,
    /// Since when.
    pub started_at: Timestamp,
    /// How long it rests between two cycles, in milliseconds.
    pub interval_ms: u64,
    /// Where its log is.
    pub log: String,
    /// Why nothing can be written there, if so.
    pub log_error: Option<String>,
    /// Since when a cycle is under way.
    pub cycle_since: Option<Timestamp>,
    /// The last cycle that ended.
    pub last_cycle: Option<Cycle>,
    /// When the next one begins, unless something wakes it before.
    pub next_at: Option<Timestamp>,
    /// Since when and for whom cycles are skipped.
    pub skipped: Option<Skipped>,
    /// That it ended by itself. One that was killed could not say so.
    pub ended: Option<End>,
}

/// A cycle that ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cycle {
    /// When it began.
    pub started_at: Timestamp,
    /// When it ended.
    pub ended_at: Timestamp,
    /// How.
    pub outcome: Outcome,
    /// The same in words.
    pub line: String,
}

/// How a cycle ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// All was done.
    Done,
    /// Nothing was done: somebody holds an exclusive lock, or may.
    Skipped,
    /// The sync could not be done now.
    PutOff,
    /// Something failed.
    Failed,
    /// The daemon was told to stop.
    CutShort,
}

impl Outcome {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Skipped => "skipped",
            Self::PutOff => "put_off",
            Self::Failed => "failed",
            Self::CutShort => "cut_short",
        }
    }
}

/// Since when and for whom cycles are skipped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Skipped {
    /// The first cycle that was skipped.
    pub since: Timestamp,
    /// Who holds the lock, if that is known.
    pub holder: Option<String>,
    /// The line in the log.
    pub line: String,
}

/// The end of a daemon that was not killed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct End {
    /// When.
    pub at: Timestamp,
    /// Why, in words.
    pub why: String,
}

impl State {
    /// What is on record; `None` if nothing is.
    pub fn read(folder: &Path) -> io::Result<Option<Self>> {
        let bytes = match std::fs::read(folder.join(FILE)) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        Ok(Some(serde_json::from_slice(&bytes)?))
    }

    /// Puts it on record. For the holder of the lock alone.
    pub fn write(&self, folder: &Path) -> io::Result<()> {
        let mut bytes = serde_json::to_vec_pretty(self)?;
        bytes.push(b'\n');
        let (path, temp) = (folder.join(FILE), folder.join("daemon.json.new"));
        atomic::replace(&path, &temp, &bytes, Sync::Later)
    }

    /// How long it rests between two cycles.
    pub fn interval(&self) -> Duration {
        Duration::from_millis(self.interval_ms)
    }

    /// Where its log is; `usual` is where it is if nothing else was said.
    pub fn log(&self, usual: &Path) -> PathBuf {
        // A path that is no text is not on record as it is.
        if self.log == usual.to_string_lossy() {
            usual.to_owned()
        } else {
            PathBuf::from(&self.log)
        }
    }
}
