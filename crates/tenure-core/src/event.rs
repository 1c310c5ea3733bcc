//! One line of a key's history: [`Event`].

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::holder::HolderId;
use crate::key::Key;
use crate::lease::{Lease, Token};
use crate::verdict::Evidence;

/// What happened to a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum EventKind {
    /// It began.
    Granted,
    /// Its holder renewed it; one event counts them all.
    Renewed,
    /// Its holder gave it back.
    Released,
    /// It expired and was ended.
    Expired,
    /// Its holder was proven dead, and it was ended.
    Dead,
    /// It was ended by force.
    Forced,
}

impl EventKind {
    /// The one word for it, as stored and shown.
    pub fn word(self) -> &'static str {
        match self {
            Self::Granted => "granted",
            Self::Renewed => "renewed",
            Self::Released => "released",
            Self::Expired => "expired",
            Self::Dead => "dead",
            Self::Forced => "forced",
        }
    }

    /// The kind that goes by this word.
    pub fn from_word(word: &str) -> Option<Self> {
        [
            Self::Granted,
            Self::Renewed,
            Self::Released,
            Self::Expired,
            Self::Dead,
            Self::Forced,
        ]
        .into_iter()
        .find(|kind| kind.word() == word)
    }

    /// How a lease that ended with this evidence is recorded.
    pub fn of(evidence: &Evidence) -> Self {
        match evidence {
            Evidence::TimeRanOut { .. } => Self::Expired,
            Evidence::Forced { .. } => Self::Forced,
            Evidence::LivenessLockFree { .. }
            | Evidence::SessionEnded { .. }
            | Evidence::ProcessGone { .. }
            | Evidence::PidReused { .. }
            | Evidence::Rebooted { .. } => Self::Dead,
        }
    }
}

impl fmt::Display for EventKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

/// One line of a key's history.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// Its number in the store. Later events have larger ones.
    pub id: u64,
    /// When.
    pub at: Timestamp,
    /// Of which key.
    pub key: Key,
    /// What.
    pub kind: EventKind,
    /// To which grant.
    pub token: Token,
    /// Whose grant it was.
    pub holder: HolderId,
    /// How often, for events that are counted.
    pub times: u64,
    /// The reason of a grant, in one word.
    pub reason: Option<String>,
    /// The evidence, for an end that was no release.
    pub evidence: Option<Evidence>,
}

impl Event {
    /// An event of this lease, without a number, a reason or evidence yet.
    pub fn of(lease: &Lease, kind: EventKind, at: Timestamp) -> Self {
        Self {
            id: 0,
            at,
            key: lease.key.clone(),
            kind,
            token: lease.token,
            holder: lease.holder.id.clone(),
            times: 1,
            reason: None,
            evidence: None,
        }
    }
}
