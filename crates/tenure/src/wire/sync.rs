//! What `tenure sync` prints: a cycle in the foreground, the status, the log and a restore.

use serde::{Deserialize, Serialize};

use super::TimeJson;

/// A cycle that was run in the foreground. It is also the details of a cycle that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
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

/// How far this clone is shared: `tenure sync status`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SyncStatusJson {
    /// The ref on the remotes that holds the tasks.
    pub r#ref: String,
    /// How many tasks changed here since the last sync.
    pub unshared: u64,
    /// The remotes.
    pub remotes: Vec<SyncRemoteJson>,
    /// When a sync last succeeded.
    pub last_sync: Option<TimeJson>,
    /// Why the last sync failed or was put off, if it was.
    pub last_error: Option<String>,
    /// When that was.
    pub failed_at: Option<TimeJson>,
}

/// How this clone and a remote differ.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SyncRemoteJson {
    /// The remote's name.
    pub name: String,
    /// How many commits of this clone it does not have.
    pub ahead: u64,
    /// How many of its commits are not merged here.
    pub behind: u64,
    /// Why it could not be asked: the numbers are those of the last time.
    pub error: Option<String>,
}

/// The history of the shared tasks: `tenure sync log`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SyncLogJson {
    /// The commits, the newest first.
    pub commits: Vec<SyncCommitJson>,
}

/// What one commit changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SyncCommitJson {
    /// Its id.
    pub commit: String,
    /// When it was made.
    pub at: TimeJson,
    /// Who made it.
    pub author: String,
    /// What it changed.
    pub changes: Vec<SyncChangeJson>,
}

/// A change of one task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SyncChangeJson {
    /// The task's id.
    pub id: String,
    /// Its title.
    pub title: String,
    /// `added`, `deleted`, or the names of the fields that changed.
    pub what: Vec<String>,
}

/// Tasks that were set back to an earlier commit: `tenure sync restore`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SyncRestoreJson {
    /// The commit.
    pub commit: String,
    /// How many tasks got their earlier values.
    pub changed: u64,
    /// How many deleted tasks were added again, under new ids.
    pub added: u64,
    /// How many newer tasks stayed as they are.
    pub newer: u64,
}
