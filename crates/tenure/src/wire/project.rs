//! What the commands print that set up a project or a shell: `init`, `setup`, `completions`, `man` and
//! `shell-lib`.

use serde::{Deserialize, Serialize};

/// A project that was created, or existed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ProjectJson {
    /// The project's `.tenure` folder.
    pub folder: String,
    /// Whether it was created.
    pub created: bool,
    /// How many tasks were fetched from a remote.
    pub tasks: u64,
    /// That remote.
    pub from: Option<String>,
}

/// A configuration file that `setup` changed, or would change.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SetupJson {
    /// The file.
    pub file: String,
    /// Whether its content changes.
    pub changed: bool,
    /// Whether it is new.
    pub created: bool,
    /// Whether it does not exist any more.
    pub deleted: bool,
    /// The change, in the form of `diff -u`.
    pub diff: String,
}

/// Completions for a shell.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CompletionsJson {
    /// The shell.
    pub shell: String,
    /// The script that defines them.
    pub script: String,
}

/// A manual page.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ManualJson {
    /// The page, in roff.
    pub page: String,
}

/// Functions for shell scripts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ShellLibraryJson {
    /// The script that defines them, in POSIX `sh`.
    pub script: String,
}
