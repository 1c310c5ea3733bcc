//! What is known of a holder: [`Verdict`], and the proof: [`Evidence`].

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::holder::{HolderId, SessionId};
use crate::lease::Lease;
use crate::time::Moment;

/// What the host could find out about the process a lease is tied to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Liveness {
    /// It runs.
    Running,
    /// The process that took the lease is gone, but its command still runs. Nobody renews such a
    /// lease, and still it must not be granted on: it does not expire.
    Orphaned,
    /// It is gone, and this proves it.
    Gone(Evidence),
    /// Nothing can be said.
    Unverifiable(Doubt),
}

/// Why nothing can be said of a holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Doubt {
    /// The lease is tied to no process.
    Detached,
    /// It runs on another machine.
    OtherHost,
    /// It runs in another container of this machine.
    OtherNamespace,
    /// This machine does not tell (no `/proc`, no permission, no boot id).
    Unreadable,
    /// No process is written down: the lock is just being taken, or a crash left it behind.
    NoProcess,
    /// The lease on record can't be understood, not even its end: it stands until someone looks.
    Malformed,
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Detached => "tied to no process, it lives by its time to live",
            Self::OtherHost => "it runs on another machine",
            Self::OtherNamespace => "it runs in another container",
            Self::Unreadable => "this machine does not tell",
            Self::NoProcess => {
                "it names no process: it is just being taken, or was left behind by a crash"
            }
            Self::Malformed => "what is on record can't be understood",
        })
    }
}

/// Why a lease ended other than by release (G3).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "proof", rename_all = "snake_case")]
pub enum Evidence {
    /// The liveness lock is free: the kernel reports that every process holding it has exited.
    #[serde(rename = "life_lock_free")]
    LivenessLockFree {
        /// The process that had taken it.
        pid: u32,
    },
    /// No process has this pid.
    ProcessGone {
        /// The pid.
        pid: u32,
    },
    /// Another process has this pid now.
    PidReused {
        /// The pid.
        pid: u32,
        /// The start time on record.
        recorded: u64,
        /// The start time of the process that has it now.
        found: u64,
    },
    /// The machine was started anew since.
    Rebooted {
        /// The boot on record.
        recorded: String,
        /// The boot of now.
        found: String,
    },
    /// The server ended its session.
    SessionEnded {
        /// The session.
        session: SessionId,
    },
    /// Its time ran out.
    TimeRanOut {
        /// When.
        expired_at: Timestamp,
    },
    /// Somebody used force.
    Forced {
        /// Who.
        by: HolderId,
        /// Why, in their words.
        reason: Option<String>,
    },
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LivenessLockFree { pid } => {
                write!(
                    f,
                    "pid {pid} and all that it started are gone (the kernel released their lock)"
                )
            }
            Self::ProcessGone { pid } => write!(f, "pid {pid} is gone"),
            Self::PidReused {
                pid,
                recorded,
                found,
            } => {
                write!(
                    f,
                    "pid {pid} is another process now (started at tick {found}, not {recorded})"
                )
            }
            Self::Rebooted { .. } => write!(f, "the machine was restarted since"),
            Self::SessionEnded { session } => write!(f, "its session {} ended", session.0),
            Self::TimeRanOut { expired_at } => write!(f, "its time ran out at {expired_at:.3}"),
            Self::Forced {
                by,
                reason: Some(reason),
            } => write!(f, "forced by {by}: {reason}"),
            Self::Forced { by, reason: None } => write!(f, "forced by {by}"),
        }
    }
}

/// What is known of a holder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It runs and its time has not run out.
    Alive,
    /// Its process is gone.
    Dead(Evidence),
    /// Its time ran out.
    Expired(Evidence),
    /// It can't be verified, and its time has not run out.
    Unknown(Doubt),
    /// What the store holds can't be read.
    Malformed,
}

impl Verdict {
    /// The judgement on one lease. Death comes before expiry, for it says more.
    pub fn on(now: &Moment, lease: &Lease, liveness: &Liveness) -> Self {
        match liveness {
            Liveness::Gone(evidence) => Self::Dead(evidence.clone()),
            Liveness::Unverifiable(Doubt::Malformed) => Self::Malformed,
            Liveness::Running | Liveness::Unverifiable(_) if lease.expires.passed(now) => {
                Self::Expired(Evidence::TimeRanOut {
                    expired_at: lease.expires.shown(now),
                })
            }
            Liveness::Running | Liveness::Orphaned => Self::Alive,
            Liveness::Unverifiable(doubt) => Self::Unknown(*doubt),
        }
    }

    /// The proof that the lease is over; `None` while it stands (G4: doubt is no proof).
    pub fn over(&self) -> Option<&Evidence> {
        match self {
            Self::Dead(evidence) | Self::Expired(evidence) => Some(evidence),
            Self::Alive | Self::Unknown(_) | Self::Malformed => None,
        }
    }

    /// The one word for it.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Alive => "alive",
            Self::Dead(_) => "dead",
            Self::Expired(_) => "expired",
            Self::Unknown(_) => "unknown",
            Self::Malformed => "malformed",
        }
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Alive => f.write_str("alive"),
            Self::Dead(evidence) => write!(f, "dead: {evidence}"),
            Self::Expired(evidence) => write!(f, "expired: {evidence}"),
            Self::Unknown(doubt) => write!(f, "unknown: {doubt}"),
            Self::Malformed => write!(f, "malformed: {}", Doubt::Malformed),
        }
    }
}
