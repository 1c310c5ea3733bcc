//! Leases, locks and queues.

use serde::{Deserialize, Serialize};
use tenure_core::queue::Presence;
use tenure_core::{
    Busy, Cycle, Event, EventKind, Evidence, Grant, HolderId, Key, Lease, Mode, Moment, Priority,
    Reaped, Reason, Snapshot, Ticket, Token, Verdict, Waiter,
};

use super::TimeJson;

/// A lease as it was granted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GrantJson {
    /// The key.
    pub key: Key,
    /// The holder's name.
    pub holder: HolderId,
    /// The fencing token.
    pub token: Token,
    /// When it was granted; `null` if the record does not tell.
    pub acquired_at: Option<TimeJson>,
    /// When it ends unless it is renewed; `null` if it has no end.
    pub expires_at: Option<TimeJson>,
    /// When it was last renewed; `null` if the record does not tell.
    pub heartbeat_at: Option<TimeJson>,
    /// The seconds until it ends, 0 if they have passed; `null` if it has no end.
    pub remaining_seconds: Option<u64>,
    /// The holder's machine.
    pub host: String,
    /// The process that the lease is tied to.
    pub pid: Option<u32>,
    /// The command that the holder runs.
    pub command: Option<String>,
    /// How the key is held: `shared`, `slots:4`, `paths:src/**` or `shared-paths:src/**`; left out if it has one holder only.
    #[serde(default, skip_serializing_if = "is_exclusive")]
    pub mode: Mode,
    /// Which of the slots, from 0; left out if there are none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub slot: Option<u32>,
}

fn is_exclusive(mode: &Mode) -> bool {
    mode.is_exclusive()
}

impl GrantJson {
    /// A lease, as it is now.
    pub fn new(now: &Moment, lease: &Lease) -> Self {
        let end = lease.expires.as_ref();
        Self {
            key: lease.key.clone(),
            holder: lease.holder.id.clone(),
            token: lease.token,
            acquired_at: lease.since().map(Into::into),
            expires_at: lease.end(now).map(Into::into),
            heartbeat_at: lease.heard().map(Into::into),
            remaining_seconds: end.map(|end| end.remaining(now).map_or(0, |left| left.as_secs())),
            host: lease.holder.host.clone(),
            pid: lease.holder.process().map(|process| process.pid),
            command: lease.holder.command.clone(),
            mode: lease.mode.shown(),
            slot: lease.slot,
        }
    }

    fn list<'a>(now: &Moment, leases: impl IntoIterator<Item = &'a Lease>) -> Vec<Self> {
        let leases = leases.into_iter();
        leases.map(|lease| Self::new(now, lease)).collect()
    }
}

/// What is known of a holder.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum VerdictWord {
    /// It runs, and its lease has not expired.
    Alive,
    /// It has ended.
    Dead,
    /// Its lease has expired.
    Expired,
    /// It cannot be checked, and its lease has not expired.
    Unknown,
    /// Its record cannot be read.
    Malformed,
}

impl From<&Verdict> for VerdictWord {
    fn from(verdict: &Verdict) -> Self {
        match verdict {
            Verdict::Alive => Self::Alive,
            Verdict::Dead(_) => Self::Dead,
            Verdict::Expired(_) => Self::Expired,
            Verdict::Unknown(_) => Self::Unknown,
            Verdict::Malformed => Self::Malformed,
        }
    }
}

/// A lease and what is known of its holder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LeaseJson {
    /// The lease.
    #[serde(flatten)]
    pub grant: GrantJson,
    /// What is known of its holder.
    pub verdict: VerdictWord,
    /// The same, for people.
    pub why: String,
    /// The proof that the lease has ended, if it has.
    pub evidence: Option<EvidenceJson>,
}

impl LeaseJson {
    /// A lease, as it is now.
    pub fn new(now: &Moment, lease: &Lease, verdict: &Verdict) -> Self {
        Self {
            grant: GrantJson::new(now, lease),
            verdict: verdict.into(),
            why: verdict.to_string(),
            evidence: verdict.ended().map(Into::into),
        }
    }

    fn list(now: &Moment, leases: &[(Lease, Verdict)]) -> Vec<Self> {
        let leases = leases.iter();
        leases
            .map(|(lease, verdict)| Self::new(now, lease, verdict))
            .collect()
    }
}

/// The proof that a lease has ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(
    tag = "proof",
    rename_all = "snake_case",
    rename_all_fields = "camelCase"
)]
#[non_exhaustive]
pub enum EvidenceJson {
    /// The kernel released the liveness lock: every process that held it has exited.
    LivenessLockFree {
        /// The process that took it.
        pid: u32,
    },
    /// No process has this pid.
    ProcessGone {
        /// The pid.
        pid: u32,
    },
    /// Another process has this pid.
    PidReused {
        /// The pid.
        pid: u32,
        /// The start time on record, in clock ticks.
        recorded: u64,
        /// The start time of the process that has the pid now.
        found: u64,
    },
    /// The machine has restarted.
    Rebooted {
        /// The boot on record.
        recorded: String,
        /// The boot of now.
        found: String,
    },
    /// The server ended the holder's session.
    SessionEnded {
        /// The session.
        session: String,
    },
    /// The lease expired.
    TimeRanOut {
        /// When; `null` if that is not known.
        expired_at: Option<TimeJson>,
    },
    /// The lease was ended by force.
    Forced {
        /// Who used force.
        by: HolderId,
        /// Why, if a reason was given.
        reason: Option<String>,
    },
    /// A proof that this version cannot describe.
    Other,
}

impl From<&Evidence> for EvidenceJson {
    fn from(evidence: &Evidence) -> Self {
        match evidence.clone() {
            Evidence::LivenessLockFree { pid } => Self::LivenessLockFree { pid },
            Evidence::ProcessGone { pid } => Self::ProcessGone { pid },
            Evidence::PidReused {
                pid,
                recorded,
                found,
            } => Self::PidReused {
                pid,
                recorded,
                found,
            },
            Evidence::Rebooted { recorded, found } => Self::Rebooted { recorded, found },
            Evidence::SessionEnded { session } => Self::SessionEnded { session: session.0 },
            ended @ Evidence::TimeRanOut { .. } => Self::TimeRanOut {
                expired_at: ended.expired_at().map(Into::into),
            },
            Evidence::Forced { by, reason } => Self::Forced { by, reason },
            _ => Self::Other,
        }
    }
}

/// A key, its leases and its queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LockJson {
    /// The key.
    pub key: Key,
    /// Its leases; empty if the key is free.
    pub leases: Vec<LeaseJson>,
    /// Its waiters, the first one first.
    pub queue: Vec<WaiterJson>,
    /// What cannot be understood in its records, for people; left out if there is nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
    /// What its holders are asked; left out if they are asked nothing, and in lists.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub asked: Vec<RequestJson>,
}

impl LockJson {
    /// What a store knows of a key.
    pub fn new(now: &Moment, snapshot: &Snapshot) -> Self {
        Self {
            key: snapshot.key.clone(),
            leases: LeaseJson::list(now, &snapshot.leases),
            queue: snapshot.queue.iter().map(Into::into).collect(),
            problems: snapshot.problems.clone(),
            asked: Vec::new(),
        }
    }
}

/// The keys that are held or waited for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LocksJson {
    /// The keys.
    pub locks: Vec<LockJson>,
}

/// A ticket in a queue.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WaiterJson {
    /// The waiter's name.
    pub holder: HolderId,
    /// Its ticket.
    pub ticket: Ticket,
    /// Its priority, 0 to 9.
    pub priority: Priority,
    /// Whether it waits right now; otherwise its place is kept for a while.
    pub here: bool,
    /// Its process.
    pub pid: Option<u32>,
    /// Its machine.
    pub host: String,
    /// How it is to hold the key; left out if alone.
    #[serde(default, skip_serializing_if = "is_exclusive")]
    pub mode: Mode,
    /// The other keys that it waits for, to get all of them together; left out if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub with: Vec<Key>,
}

impl From<&Waiter> for WaiterJson {
    fn from(waiter: &Waiter) -> Self {
        Self {
            holder: waiter.holder.id.clone(),
            ticket: waiter.ticket,
            priority: waiter.priority,
            here: waiter.presence == Presence::Here,
            pid: waiter.holder.process().map(|process| process.pid),
            host: waiter.holder.host.clone(),
            mode: waiter.mode.shown(),
            with: waiter.with.clone(),
        }
    }
}

/// A lease that was just granted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AcquiredJson {
    /// The lease.
    #[serde(flatten)]
    pub grant: GrantJson,
    /// Why it was granted.
    pub reason: Reason,
}

impl AcquiredJson {
    /// A lease and why it was granted.
    pub fn new(now: &Moment, lease: &Lease, reason: Reason) -> Self {
        Self {
            grant: GrantJson::new(now, lease),
            reason,
        }
    }
}

/// A key that was not granted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BusyJson {
    /// The key.
    pub key: Key,
    /// The leases in the way; empty if another waiter is about to get the key.
    pub leases: Vec<LeaseJson>,
    /// How many wait, not counting the caller.
    pub waiting: usize,
    /// The caller's place in the queue, from 1 on; `null` if it did not wait.
    pub position: Option<usize>,
    /// The other keys that are busy, if several were asked for; left out if there are none.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub others: Vec<BusyJson>,
}

impl BusyJson {
    /// Why a key was not granted.
    pub fn new(now: &Moment, busy: &Busy) -> Self {
        Self {
            key: busy.key.clone(),
            leases: LeaseJson::list(now, &busy.leases),
            waiting: busy.waiting,
            position: busy.position.map(|position| position.ahead + 1),
            others: busy
                .others
                .iter()
                .map(|other| Self::new(now, other))
                .collect(),
        }
    }
}

/// A wait that would never end.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeadlockJson {
    /// The waits that lead back to the first one.
    pub cycle: Cycle,
}

/// A lease that was extended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RenewedJson {
    /// The key.
    pub key: Key,
    /// The token.
    pub token: Token,
    /// The new end; `null` if it has none.
    pub expires_at: Option<TimeJson>,
    /// What its holder is asked; left out if it is asked nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub asked: Vec<RequestJson>,
}

impl RenewedJson {
    /// A lease, as it is now.
    pub fn new(now: &Moment, lease: &Lease) -> Self {
        Self {
            key: lease.key.clone(),
            token: lease.token,
            expires_at: lease.expires.as_ref().map(|end| end.shown(now).into()),
            asked: Vec::new(),
        }
    }

    /// The same, with those of these requests that are for this lease.
    #[must_use]
    pub fn asked(mut self, requests: &[Event]) -> Self {
        let ours = |event: &&Event| event.key == self.key && event.token == self.token;
        self.asked = requests.iter().filter(ours).map(Into::into).collect();
        self
    }
}

/// A request to release a key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RequestJson {
    /// The key.
    pub key: Key,
    /// The token of the lease whose holder is asked.
    pub token: Token,
    /// Who asks.
    pub by: HolderId,
    /// When.
    pub at: TimeJson,
    /// Why, if a note was given.
    pub note: Option<String>,
}

impl From<&Event> for RequestJson {
    /// That of an event of kind [`EventKind::Asked`].
    fn from(event: &Event) -> Self {
        Self {
            key: event.key.clone(),
            token: event.token,
            by: event.holder.clone(),
            at: event.at.into(),
            note: event.reason.clone(),
        }
    }
}

/// A lease that was released.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReleasedJson {
    /// The key.
    pub key: Key,
    /// The token.
    pub token: Token,
    /// Always `true`.
    pub released: bool,
}

impl From<&Lease> for ReleasedJson {
    fn from(lease: &Lease) -> Self {
        Self {
            key: lease.key.clone(),
            token: lease.token,
            released: true,
        }
    }
}

/// A token that is still valid.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct FencedJson {
    /// The key.
    pub key: Key,
    /// The token.
    pub token: Token,
    /// The holder.
    pub holder: HolderId,
    /// When the lease ends; `null` if it has no end.
    pub expires_at: Option<TimeJson>,
    /// On etcd: what a transaction must compare to be carried out only while the token is valid, as `etcdctl txn`
    /// reads it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub comparisons: Vec<String>,
}

impl FencedJson {
    /// A lease, as it is now.
    pub fn new(now: &Moment, lease: &Lease) -> Self {
        Self {
            key: lease.key.clone(),
            token: lease.token,
            holder: lease.holder.id.clone(),
            expires_at: lease.expires.as_ref().map(|end| end.shown(now).into()),
            comparisons: Vec::new(),
        }
    }
}

/// A lease that had ended when its holder wanted to use it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LostJson {
    /// The key.
    pub key: Key,
    /// The token that is no longer valid.
    pub token: Token,
    /// The leases on the key now.
    pub leases: Vec<GrantJson>,
}

impl LostJson {
    /// A lost lease, and the leases that are there now.
    pub fn new<'a>(
        now: &Moment,
        key: &Key,
        token: Token,
        leases: impl IntoIterator<Item = &'a Lease>,
    ) -> Self {
        Self {
            key: key.clone(),
            token,
            leases: GrantJson::list(now, leases),
        }
    }
}

/// A lease of another holder than the caller.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NotHolderJson {
    /// The key.
    pub key: Key,
    /// The leases on it.
    pub leases: Vec<GrantJson>,
    /// The caller's name.
    pub caller: HolderId,
}

impl NotHolderJson {
    /// The caller's claim to a lease, and the leases that are there.
    pub fn new<'a>(
        now: &Moment,
        claimed: &Grant,
        leases: impl IntoIterator<Item = &'a Lease>,
    ) -> Self {
        Self {
            key: claimed.key.clone(),
            leases: GrantJson::list(now, leases),
            caller: claimed.holder.clone(),
        }
    }
}

/// Leases that were ended by force.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ForcedJson {
    /// The key.
    pub key: Key,
    /// The leases that were ended.
    pub ended: Vec<GrantJson>,
    /// Who used force.
    pub by: HolderId,
}

impl ForcedJson {
    /// The leases that were ended.
    pub fn new<'a>(
        now: &Moment,
        key: &Key,
        by: &HolderId,
        ended: impl IntoIterator<Item = &'a Lease>,
    ) -> Self {
        Self {
            key: key.clone(),
            ended: GrantJson::list(now, ended),
            by: by.clone(),
        }
    }
}

/// Expired and dead leases.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CleanupJson {
    /// Whether they were only looked for.
    pub dry_run: bool,
    /// The leases that were ended, or would be.
    pub ended: Vec<ReapedJson>,
}

/// An expired or dead lease.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReapedJson {
    /// The lease.
    #[serde(flatten)]
    pub grant: GrantJson,
    /// The proof that it has ended.
    pub evidence: EvidenceJson,
    /// The same, for people.
    pub why: String,
}

impl CleanupJson {
    /// The leases that were ended, or would be.
    pub fn new(now: &Moment, dry_run: bool, reaped: &[Reaped]) -> Self {
        let ended = reaped.iter().map(|reaped| ReapedJson {
            grant: GrantJson::new(now, &reaped.lease),
            evidence: (&reaped.evidence).into(),
            why: reaped.evidence.to_string(),
        });
        Self {
            dry_run,
            ended: ended.collect(),
        }
    }
}

/// The events of a key, or of all keys.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HistoryJson {
    /// The events, the oldest first.
    pub events: Vec<EventJson>,
    /// What is recorded but cannot be understood, of any key, for people; left out if there is nothing.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub problems: Vec<String>,
}

/// Something that happened to a key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct EventJson {
    /// When.
    pub at: TimeJson,
    /// The key.
    pub key: Key,
    /// What happened.
    pub event: EventKind,
    /// The lease's token.
    pub token: Token,
    /// The lease's holder.
    pub holder: HolderId,
    /// How often in a row, for renewals.
    pub times: u64,
    /// Why it was granted, or why force was used.
    pub reason: Option<String>,
    /// The proof that the lease had ended.
    pub evidence: Option<EvidenceJson>,
    /// How the key was held; left out if alone.
    #[serde(default, skip_serializing_if = "is_exclusive")]
    pub mode: Mode,
    /// Since when the holder waited for this grant; `null` if it did not.
    #[serde(default)]
    pub waited_since: Option<TimeJson>,
}

impl From<&Event> for EventJson {
    fn from(event: &Event) -> Self {
        Self {
            at: event.at.into(),
            key: event.key.clone(),
            event: event.kind,
            token: event.token,
            holder: event.holder.clone(),
            times: event.times,
            reason: event.reason.clone(),
            evidence: event.evidence.as_ref().map(Into::into),
            mode: event.mode.shown(),
            waited_since: event.waited_since().map(Into::into),
        }
    }
}

/// The leases on several keys: what `acquire` and `renew` print if several were named.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LeasesJson<T> {
    /// One for each key, in the order in which they were named.
    pub leases: Vec<T>,
}

/// Several leases that were released.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ReleasedSeveralJson {
    /// The holder whose leases were all released; left out if keys were named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<HolderId>,
    /// The leases.
    pub released: Vec<ReleasedJson>,
}

/// Holders that were asked to release what they hold.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AskedJson {
    /// The key.
    pub key: Key,
    /// Who asks.
    pub by: HolderId,
    /// Why, if a note was given.
    pub note: Option<String>,
    /// The leases whose holders were asked.
    pub asked: Vec<GrantJson>,
}
