//! Versions of files that were kept: what `tenure files` prints.

use serde::{Deserialize, Serialize};
use tenure_core::HolderId;

use super::TimeJson;

/// The versions that were kept.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KeptFilesJson {
    /// The versions, the newest first.
    pub files: Vec<KeptFileJson>,
}

/// A version of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct KeptFileJson {
    /// Its id, which is that of git's blob; `null` if the file was too large to be kept.
    pub id: Option<String>,
    /// The path from the top of the work tree.
    pub path: String,
    /// The top of the work tree.
    pub worktree: String,
    /// Whose it was.
    pub owner: HolderId,
    /// When it was kept.
    pub at: TimeJson,
    /// Its size in bytes.
    pub size: u64,
    /// Whether it is a symbolic link: its bytes are the path that it leads to.
    pub link: bool,
}

/// A version that was written back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RestoredFileJson {
    /// The version.
    pub version: KeptFileJson,
    /// The file that has it now.
    pub file: String,
    /// Whether it had to be written; the file may have had it already.
    pub written: bool,
    /// What was in the file before, which is kept; `null` if it did not exist.
    pub before: Option<KeptFileJson>,
}
