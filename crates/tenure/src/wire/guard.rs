//! What `tenure guard` prints, and why its hooks refuse.

use serde::{Deserialize, Serialize};

use super::TimeJson;

/// The hooks of the guard in a git repository.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
#[expect(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct GuardJson {
    /// Whether git runs all of them.
    pub installed: bool,
    /// Whether this command changed any.
    pub changed: bool,
    /// The folder that git takes hooks from.
    pub folder: String,
    /// Each hook that belongs to the guard.
    pub hooks: Vec<GuardHookJson>,
    /// The folder whose hooks they run, too.
    pub runs_also: Option<String>,
    /// The setting `guard.strict`.
    pub strict: bool,
    /// The setting `guard.require`.
    pub require: bool,
    /// Commits that were made without the guard, or against a reservation.
    pub bypasses: Vec<GuardBypassJson>,
}

/// One hook.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GuardHookJson {
    /// Its name, as git calls it.
    pub name: String,
    /// Its file; `null` if git does not run it.
    pub path: Option<String>,
}

/// A commit that the guard did not let pass, or did not see.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GuardBypassJson {
    /// Its id.
    pub commit: String,
    /// When it was recorded.
    pub at: TimeJson,
    /// Whether a hook saw it when it was made.
    pub seen_at_commit: bool,
    /// The holders of the reservations that it was made against.
    pub against: Vec<String>,
}

/// Why a commit or a push is refused.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GuardRefusedJson {
    /// One for each path.
    pub problems: Vec<GuardProblemJson>,
}

/// A path that may not be changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GuardProblemJson {
    /// The path.
    pub path: String,
    /// The commit that changes it, in a push.
    pub commit: Option<String>,
    /// The holder that has reserved it, or had later; `null` if it must be reserved and is not.
    pub holder: Option<String>,
    /// The pattern of that reservation.
    pub pattern: Option<String>,
    /// The token of that reservation.
    pub token: Option<u64>,
    /// When that reservation ends.
    pub expires_at: Option<TimeJson>,
}
