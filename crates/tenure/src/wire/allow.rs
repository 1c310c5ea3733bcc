//! Commands of agents that a person may allow.

use serde::{Deserialize, Serialize};
use tenure_core::HolderId;

use super::TimeJson;

/// A command that was refused, and that a person may allow once.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AllowableJson {
    /// What `tenure allow` takes.
    pub code: String,
    /// The holder that wants to run it.
    pub holder: HolderId,
    /// What people call the holder's session.
    pub session: String,
    /// The folder that it is to run in.
    pub folder: String,
    /// The whole command line.
    pub command: String,
    /// Why it was refused.
    pub why: String,
    /// When it was refused.
    pub refused_at: TimeJson,
    /// Until when it may run, once; `null` if it may not.
    pub allowed_until: Option<TimeJson>,
}

/// The commands that wait for a person.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AllowablesJson {
    /// The commands, the one that was refused first at the front.
    pub waiting: Vec<AllowableJson>,
}
