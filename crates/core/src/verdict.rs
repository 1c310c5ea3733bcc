//! Whether a lease has ended: [`Verdict`], and the proof: [`Evidence`].

use std::fmt;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::holder::{HolderId, SessionId};
use crate::lease::Lease;
use crate::text::flat;
use crate::time::Moment;

/// The state of the process or session that a lease is tied to, as far as the store can find out.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Liveness {
    /// It runs.
    Running,
    /// The process that took the lease has exited, but its command still runs. No process renews such
    /// a lease, but it must not be granted again either, so it does not expire.
    Orphaned,
    /// It has ended, and this proves it.
    Gone(Evidence),
    /// It can't be verified.
    Unverifiable(Doubt),
}

/// Why a holder can't be verified.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Doubt {
    /// The lease is tied to no process.
    Detached,
    /// It runs on another machine.
    OtherHost,
    /// It runs in another container of this machine.
    OtherNamespace,
    /// This machine can't answer (no `/proc`, no permission, no boot id).
    Unreadable,
    /// The lock names no process: it is just being taken, or a crash left it behind.
    NoProcess,
    /// The record can't be parsed, not even its end. The lease stays until a person removes it.
    Malformed,
}

impl fmt::Display for Doubt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Detached => "no process attached",
            Self::OtherHost => "its process runs on another machine",
            Self::OtherNamespace => "its process runs in another container",
            Self::Unreadable => "its process can't be examined on this machine",
            Self::NoProcess => {
                "it names no process: it is just being taken, or a crash left it behind"
            }
            Self::Malformed => "its record can't be understood",
        })
    }
}

/// Why a lease ended other than by release (G3).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "proof", rename_all = "snake_case")]
#[non_exhaustive]
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
    /// The machine has restarted since.
    Rebooted {
        /// The boot on record.
        recorded: String,
        /// The current boot.
        found: String,
    },
    /// The server ended its session.
    SessionEnded {
        /// The session.
        session: SessionId,
    },
    /// Its time to live has passed.
    TimeRanOut {
        /// When it expired; [`Lease::UNKNOWN_TIME`] if the record does not tell. [`Evidence::expired_at`] is for output.
        expired_at: Timestamp,
    },
    /// It was ended by force.
    Forced {
        /// Who forced it.
        by: HolderId,
        /// The reason that was given.
        reason: Option<String>,
    },
}

impl Evidence {
    /// When the time of the lease ran out, if it did and the record tells.
    pub fn expired_at(&self) -> Option<Timestamp> {
        match self {
            Self::TimeRanOut { expired_at } => {
                Some(*expired_at).filter(|at| *at != Lease::UNKNOWN_TIME)
            }
            _ => None,
        }
    }
}

impl fmt::Display for Evidence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LivenessLockFree { pid } => {
                write!(
                    f,
                    "pid {pid} and every process it started have exited (the kernel released their lock)"
                )
            }
            Self::ProcessGone { pid } => write!(f, "pid {pid} has exited"),
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
            Self::Rebooted { .. } => write!(f, "the machine has restarted since"),
            Self::SessionEnded { session } => write!(f, "its session {} ended", flat(&session.0)),
            Self::TimeRanOut { .. } => match self.expired_at() {
                Some(at) => write!(f, "it expired at {at:.3}"),
                None => write!(f, "it expired; when is not known"),
            },
            Self::Forced {
                by,
                reason: Some(reason),
            } => write!(f, "forced by {by}: {}", flat(reason)),
            Self::Forced { by, reason: None } => write!(f, "forced by {by}"),
        }
    }
}

/// The verdict on the holder of a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It runs, and its lease has not expired.
    Alive,
    /// Its process has exited, or its session ended.
    Dead(Evidence),
    /// Its lease expired.
    Expired(Evidence),
    /// It can't be verified, and its lease has not expired.
    Unknown(Doubt),
    /// The record can't be parsed.
    Malformed,
}

impl Verdict {
    /// The verdict on one lease. A dead holder is reported before expiry, because it says more.
    pub fn on(now: &Moment, lease: &Lease, liveness: &Liveness) -> Self {
        match liveness {
            Liveness::Gone(evidence) => Self::Dead(evidence.clone()),
            Liveness::Unverifiable(Doubt::Malformed) => Self::Malformed,
            Liveness::Orphaned => Self::Alive,
            Liveness::Running | Liveness::Unverifiable(_) => {
                match lease.expires.as_ref().filter(|end| end.passed(now)) {
                    Some(end) => Self::Expired(Evidence::TimeRanOut {
                        expired_at: end.shown(now),
                    }),
                    None => match liveness {
                        Liveness::Unverifiable(doubt) => Self::Unknown(*doubt),
                        _ => Self::Alive,
                    },
                }
            }
        }
    }

    /// The proof that the lease has ended; `None` while it has not (G4: an unverifiable
    /// holder proves nothing).
    pub fn ended(&self) -> Option<&Evidence> {
        match self {
            Self::Dead(evidence) | Self::Expired(evidence) => Some(evidence),
            Self::Alive | Self::Unknown(_) | Self::Malformed => None,
        }
    }

    /// The word that stands for it in output.
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
