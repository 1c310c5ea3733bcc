//! One line of a key's history: [`Event`].

use std::fmt;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use serde::de::IntoDeserializer;
use serde::de::value::{self, StrDeserializer};
use serde::{Deserialize, Serialize};

use crate::holder::HolderId;
use crate::key::Key;
use crate::lease::{Lease, Token};
use crate::mode::Mode;
use crate::store::Reason;
use crate::verdict::Evidence;

/// What happened to a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum EventKind {
    /// It was granted.
    Granted,
    /// Its holder renewed it. One event counts all renewals.
    Renewed,
    /// Its holder released it.
    Released,
    /// It expired and was ended.
    Expired,
    /// Its holder was proven dead, and it was ended.
    Dead,
    /// It was ended by force.
    Forced,
    /// Not a lease: the section that the key names was deleted.
    Deleted,
    /// Another holder asked for it to be released. The event's holder is the one that asked; the reason is its note.
    Asked,
}

impl EventKind {
    /// The word that stands for it in stores and output.
    pub fn word(self) -> &'static str {
        match self {
            Self::Granted => "granted",
            Self::Renewed => "renewed",
            Self::Released => "released",
            Self::Expired => "expired",
            Self::Dead => "dead",
            Self::Forced => "forced",
            Self::Deleted => "deleted",
            Self::Asked => "asked",
        }
    }

    /// The kind with this word.
    pub fn from_word(word: &str) -> Option<Self> {
        let word: StrDeserializer<'_, value::Error> = word.into_deserializer();
        Self::deserialize(word).ok()
    }

    /// The kind that records an end with this evidence.
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
    /// Its number in the store. Later events have larger numbers.
    pub id: u64,
    /// When it happened.
    pub at: Timestamp,
    /// The key.
    pub key: Key,
    /// What happened.
    pub kind: EventKind,
    /// How the key was held.
    pub mode: Mode,
    /// The token of the grant.
    pub token: Token,
    /// The holder of the grant.
    pub holder: HolderId,
    /// The number of occurrences, for events that are counted.
    pub times: u64,
    /// The reason of a grant, in one word.
    pub reason: Option<String>,
    /// The evidence, if the lease ended without a release.
    pub evidence: Option<Evidence>,
    /// How long the holder had a ticket for the key before this grant; `None` if it had none.
    pub waited: Option<Duration>,
}

impl Event {
    /// An event of this lease, without a number, a reason or evidence yet.
    pub fn of(lease: &Lease, kind: EventKind, at: Timestamp) -> Self {
        Self {
            id: 0,
            at,
            key: lease.key.clone(),
            kind,
            mode: lease.mode.clone(),
            token: lease.token,
            holder: lease.holder.id.clone(),
            times: 1,
            reason: None,
            evidence: None,
            waited: None,
        }
    }

    /// The grant of this lease.
    pub fn granted(lease: &Lease, reason: Reason, waited: Option<Duration>, at: Timestamp) -> Self {
        Self {
            reason: Some(reason.word().to_owned()),
            waited,
            ..Self::of(lease, EventKind::Granted, at)
        }
    }

    /// When the wait for this grant began; `None` if there was none.
    pub fn waited_since(&self) -> Option<Timestamp> {
        let waited = SignedDuration::try_from(self.waited?).ok()?;
        self.at.checked_sub(waited).ok()
    }
}
