//! A cycle in the foreground: what `tenure sync` prints.

use serde::{Deserialize, Serialize};

/// A cycle that was run in the foreground. It is also the details of a cycle that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct SyncJson {
    /// How it ended, in one word.
    pub outcome: String,
    /// Its summary, for people.
    pub message: String,
    /// What it did, for people.
    pub lines: Vec<String>,
    /// The holder of the exclusive lock for which it was skipped, if it was.
    pub holder: Option<String>,
}
