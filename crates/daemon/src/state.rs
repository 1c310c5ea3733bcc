//! What a daemon records about itself: [`DaemonState`], the file `daemon.json` in the project's state.
//!
//! 1. Only the holder of the daemon's [`lock`](crate::lock) writes the file, and always replaces it
//!    whole: a reader sees one complete version.
//! 2. A reader believes it only while the lock is held; see [`status`](crate::status).

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tenure_core::Process;
use tenure_host::files::atomic::{self, Durability};
use tenure_host::files::beneath;

/// The largest file that is read, in bytes.
const LARGEST: u64 = 1 << 20;

/// The file's name, in the `.tenure` folder.
pub const FILE: &str = "daemon.json";

/// What a daemon records about itself.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct DaemonState {
    /// Its process.
    #[serde(flatten)]
    pub process: Process,
    /// Its version of tenure.
    pub version: String,
    /// When it started.
    pub started_at: Timestamp,
    /// The time between two cycles, in milliseconds.
    pub interval_ms: u64,
    /// The path of its log, for people.
    pub log: String,
    /// The bytes of that path, if they are not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub log_bytes: Option<Vec<u8>>,
    /// Why the log can't be written, if it can't.
    pub log_error: Option<String>,
    /// When the current cycle began, if one is running.
    pub cycle_since: Option<Timestamp>,
    /// The last cycle that ended.
    pub last_cycle: Option<CycleRecord>,
    /// When the next cycle begins at the latest.
    pub next_at: Option<Timestamp>,
    /// The exclusive lock for which cycles are being skipped, if they are.
    pub skipped: Option<SkipRecord>,
    /// When and why it stopped. Missing if it still runs, or was killed.
    pub ended: Option<StopRecord>,
}

/// A cycle that ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CycleRecord {
    /// When it began.
    pub started_at: Timestamp,
    /// When it ended.
    pub ended_at: Timestamp,
    /// How it ended.
    pub outcome: CycleOutcome,
    /// Its summary, as in the log.
    pub line: String,
}

/// How a cycle ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CycleOutcome {
    /// Every step was done.
    Done,
    /// No step was done: an exclusive lock is held, or could not be checked.
    Skipped,
    /// The sync could not be done now; a later cycle tries again.
    PutOff,
    /// A step failed.
    Failed,
    /// The daemon was asked to stop during the cycle.
    CutShort,
}

impl CycleOutcome {
    /// The name in JSON.
    pub fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Skipped => "skipped",
            Self::PutOff => "put_off",
            Self::Failed => "failed",
            Self::CutShort => "cut_short",
        }
    }
}

/// The exclusive lock for which cycles are being skipped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SkipRecord {
    /// When the first of these cycles began.
    pub since: Timestamp,
    /// The holder of the lock, if it is known.
    pub holder: Option<String>,
    /// The line in the log.
    pub line: String,
}

/// When and why a daemon stopped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StopRecord {
    /// When.
    pub at: Timestamp,
    /// Why, for people.
    pub why: String,
}

impl DaemonState {
    /// Reads the file; `None` if there is none.
    pub fn read(folder: &Path) -> io::Result<Option<Self>> {
        let bytes = match beneath::read(&folder.join(FILE), LARGEST) {
            Ok(bytes) => bytes,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        Ok(Some(serde_json::from_slice(&bytes)?))
    }

    /// Replaces the file. Only the holder of the daemon's lock may call this.
    pub(crate) fn write(&self, folder: &Path) -> io::Result<()> {
        let mut bytes = serde_json::to_vec_pretty(self)?;
        bytes.push(b'\n');
        let (path, temp) = (folder.join(FILE), folder.join("daemon.json.new"));
        atomic::replace(&path, &temp, &bytes, Durability::Crash)
    }

    /// The time between two cycles.
    pub fn interval(&self) -> Duration {
        Duration::from_millis(self.interval_ms)
    }

    /// The path of its log.
    pub fn log(&self) -> PathBuf {
        match &self.log_bytes {
            Some(bytes) => PathBuf::from(OsStr::from_bytes(bytes)),
            None => PathBuf::from(&self.log),
        }
    }
}
