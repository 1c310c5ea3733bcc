//! Reservations of paths.

use serde::{Deserialize, Serialize};
use tenure_core::{HolderId, Lease, Moment, Token};

use super::{RequestJson, TimeJson, WaiterJson};

/// A reservation.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReservationJson {
    /// The patterns, from the top of the work tree. None if its holder has everything.
    pub paths: Vec<String>,
    /// Whether its holder only reads them.
    pub shared: bool,
    /// The holder's name.
    pub holder: HolderId,
    /// The fencing token.
    pub token: Token,
    /// What it is for, if its holder says.
    pub why: Option<String>,
    /// The holder's machine.
    pub host: String,
    /// When it was granted; `null` if the record does not tell.
    pub reserved_at: Option<TimeJson>,
    /// When it ends unless it is extended; `null` if it has no end.
    pub expires_at: Option<TimeJson>,
    /// The seconds until it ends, 0 if they have passed; `null` if it has no end.
    pub remaining_seconds: Option<u64>,
}

impl ReservationJson {
    /// A reservation, as it is now.
    pub fn new(now: &Moment, lease: &Lease) -> Self {
        let end = lease.expires.as_ref();
        let paths = lease.mode.paths();
        let patterns = paths.map(|paths| paths.patterns()).unwrap_or_default();
        Self {
            paths: patterns.iter().map(ToString::to_string).collect(),
            shared: paths.is_some_and(tenure_core::PathSet::is_shared),
            holder: lease.holder.id.clone(),
            token: lease.token,
            why: lease.holder.command.clone(),
            host: lease.holder.host.clone(),
            reserved_at: lease.since().map(Into::into),
            expires_at: lease.end(now).map(Into::into),
            remaining_seconds: end.map(|end| end.remaining(now).map_or(0, |left| left.as_secs())),
        }
    }
}

/// A path that may not be written, and why.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
pub struct CheckedPathJson {
    /// The path, from the top of the work tree.
    pub path: String,
    /// The reservation of another holder that covers it.
    #[serde(flatten)]
    pub reservation: ReservationJson,
}

/// The reservations of a project.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReservationsJson {
    /// The reservations that have not ended.
    pub reservations: Vec<ReservationJson>,
    /// Who waits for paths.
    pub waiting: Vec<WaiterJson>,
    /// What their holders are asked.
    pub asked: Vec<RequestJson>,
}

/// Reservations that were extended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ExtendedJson {
    /// The reservations.
    pub extended: Vec<ReservationJson>,
    /// What their holder is asked.
    pub asked: Vec<RequestJson>,
}

/// Reservations that were given back.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct UnreservedJson {
    /// The holder that had them.
    pub holder: HolderId,
    /// Their patterns.
    pub released: Vec<String>,
}

/// Whether paths may be written.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CheckJson {
    /// The caller.
    pub holder: HolderId,
    /// How many paths were checked.
    pub checked: usize,
    /// The paths that other holders have reserved.
    pub refused: Vec<CheckedPathJson>,
    /// The paths that the caller would have to reserve first, because of `guard.require`.
    pub unreserved: Vec<String>,
}
