//! Every lock in a project: what `tenure locks list --all` and `tenure doctor` print.

use serde::{Deserialize, Serialize};

use super::{LockJson, ReapedJson, TimeJson, VerdictWord};

/// Every lock in a project.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct AllLocksJson {
    /// The stores of the project, its own first.
    pub stores: Vec<StoreLocksJson>,
    /// The locks of other tools.
    pub foreign: Vec<ForeignLockJson>,
    /// What was too large to be looked at as a whole, for people.
    pub left_out: Vec<String>,
}

/// The locks of one store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct StoreLocksJson {
    /// The store, as `--store` takes it.
    pub store: String,
    /// What it is to the project: `own`, `exclusive_lock`, `board_lock`, `ledger`, `other_program`, or `chosen` if
    /// the caller named it.
    pub role: String,
    /// The keys that are held or waited for.
    pub locks: Vec<LockJson>,
    /// Why it can't be read, if it can't.
    pub error: Option<String>,
}

/// A lock of another tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ForeignLockJson {
    /// The tool: `git`, `cargo`, or `pid file`.
    pub tool: String,
    /// The lock file.
    pub path: String,
    /// When it was last changed.
    pub since: Option<TimeJson>,
    /// What is known of its holder.
    pub verdict: VerdictWord,
    /// The same, for people.
    pub why: String,
    /// The processes that have it, or may have it.
    pub processes: Vec<ForeignProcessJson>,
}

/// A process and a lock of another tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct ForeignProcessJson {
    /// The process.
    pub pid: u32,
    /// Its command line; `null` if it has exited.
    pub command: Option<String>,
    /// What connects it with the lock: `open`, `locked`, `named`, or `likely`.
    pub how: String,
}

/// What is wrong in a project.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct DoctorJson {
    /// Whether there is no problem, after what was fixed.
    pub healthy: bool,
    /// Whether what can be fixed safely was only shown.
    pub dry_run: bool,
    /// What should be put right.
    pub problems: Vec<FindingJson>,
    /// What is worth knowing.
    pub notes: Vec<FindingJson>,
    /// What was done; empty without `--fix`.
    pub fixed: Vec<FixedJson>,
}

/// Something that the doctor found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FindingJson {
    /// What it is, for programs.
    pub code: String,
    /// The store that it is in.
    pub store: Option<String>,
    /// The key that it is about.
    pub key: Option<String>,
    /// What it is, for people.
    pub message: String,
    /// What was seen.
    pub evidence: Vec<String>,
    /// What it means.
    pub meaning: String,
    /// The command that puts it right, or words if no command does.
    pub fix: Option<String>,
    /// Whether `tenure doctor --fix` does it.
    pub safe: bool,
}

/// What `tenure doctor --fix` did with one store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct FixedJson {
    /// The command that does the same.
    pub command: String,
    /// The leases that were ended.
    pub ended: Vec<ReapedJson>,
    /// The lock file that was removed, if that was to be done.
    pub removed: Option<String>,
    /// Why it failed, if it did.
    pub error: Option<String>,
}
