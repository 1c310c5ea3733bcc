//! Locks that are shared with other programs: the exclusive lock and the board's lock.

use serde::{Deserialize, Serialize};
use tenure_core::{Busy, HolderId, Lease, Moment, Token};

use super::{BusyJson, TimeJson};

/// An exclusive lock that was taken. The names are those of the lock file, in camelCase.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExclusiveAcquiredJson {
    /// The holder.
    pub holder: HolderId,
    /// The process that the lock names.
    pub pid: u32,
    /// The machine of that process.
    pub hostname: String,
    /// The fencing token.
    pub token: Token,
    /// When it was taken.
    pub started_at: TimeJson,
}

impl ExclusiveAcquiredJson {
    /// A lease and the process that the lock file names.
    pub fn new(lease: &Lease, pid: u32) -> Self {
        Self {
            holder: lease.holder.id.clone(),
            pid,
            hostname: lease.holder.host.clone(),
            token: lease.token,
            started_at: lease.acquired_at.into(),
        }
    }
}

/// An exclusive lock that was released.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExclusiveReleasedJson {
    /// The holder.
    pub holder: HolderId,
    /// Always `true`.
    pub released: bool,
}

/// A board whose lock another program holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BoardBusyJson {
    /// Why the lock is busy.
    #[serde(flatten)]
    pub busy: BusyJson,
    /// The lock folder.
    pub path: String,
}

impl BoardBusyJson {
    /// Why a board's lock was not granted.
    pub fn new(now: &Moment, busy: &Busy, path: &str) -> Self {
        Self {
            busy: BusyJson::new(now, busy),
            path: path.to_owned(),
        }
    }
}
