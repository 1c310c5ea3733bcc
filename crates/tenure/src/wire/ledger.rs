//! The ledger, and the claims on its nodes. A claim is a lease; the events of the ledger
//! call its holder the owner, and its key the node.

use serde::{Deserialize, Serialize};
use tenure_core::{HolderId, Lease, Moment, Reaped, Reason, Token, Verdict};

use super::{EvidenceJson, TimeJson, VerdictWord};

/// A node that was claimed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeClaimedJson {
    /// The node.
    pub node: String,
    /// The holder of the claim.
    pub holder: HolderId,
    /// The fencing token.
    pub token: Token,
    /// When it was claimed.
    pub acquired_at: TimeJson,
    /// When the claim ends; `null` if it has no end.
    pub expires_at: Option<TimeJson>,
    /// Why it was granted.
    pub reason: Reason,
}

impl NodeClaimedJson {
    /// A claim and why it was granted.
    pub fn new(now: &Moment, lease: &Lease, reason: Reason) -> Self {
        Self {
            node: lease.key.id().to_owned(),
            holder: lease.holder.id.clone(),
            token: lease.token,
            acquired_at: lease.acquired_at.into(),
            expires_at: lease.expires.as_ref().map(|end| end.shown(now).into()),
            reason,
        }
    }
}

/// A claim that was refreshed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeRefreshedJson {
    /// The node.
    pub node: String,
    /// The fencing token.
    pub token: Token,
    /// The new end; `null` if it has none.
    pub expires_at: Option<TimeJson>,
}

impl NodeRefreshedJson {
    /// A claim, as it is now.
    pub fn new(now: &Moment, lease: &Lease) -> Self {
        Self {
            node: lease.key.id().to_owned(),
            token: lease.token,
            expires_at: lease.expires.as_ref().map(|end| end.shown(now).into()),
        }
    }
}

/// A claim that was released.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeReleasedJson {
    /// The node.
    pub node: String,
    /// The fencing token.
    pub token: Token,
    /// Always `true`.
    pub released: bool,
}

impl From<&Lease> for NodeReleasedJson {
    fn from(lease: &Lease) -> Self {
        Self {
            node: lease.key.id().to_owned(),
            token: lease.token,
            released: true,
        }
    }
}

/// The claims of a ledger.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeClaimsJson {
    /// The claims that have not expired.
    pub claims: Vec<NodeClaimJson>,
    /// How many more have expired but not been ended.
    pub expired: usize,
    /// The files of claims that can't be read.
    pub malformed: Vec<MalformedClaimJson>,
}

/// The file of a claim that can't be read.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MalformedClaimJson {
    /// The file.
    pub file: String,
    /// The node that it is named after, which counts as claimed.
    pub node: Option<String>,
    /// Why it can't be read.
    pub message: String,
}

/// A claim in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeClaimJson {
    /// The node.
    pub node: String,
    /// The holder of the claim.
    pub holder: HolderId,
    /// The fencing token.
    pub token: Token,
    /// What is known of the holder.
    pub verdict: VerdictWord,
    /// When it was claimed.
    pub acquired_at: TimeJson,
    /// When the claim ends; `null` if it has no end.
    pub expires_at: Option<TimeJson>,
    /// The seconds until it ends; `null` if it has no end.
    pub remaining_seconds: Option<u64>,
    /// The file of a claim that is a file.
    pub file: Option<String>,
}

impl NodeClaimJson {
    /// A claim, as it is now.
    pub fn new(now: &Moment, lease: &Lease, verdict: &Verdict, file: Option<String>) -> Self {
        let end = lease.expires.as_ref();
        Self {
            node: lease.key.id().to_owned(),
            holder: lease.holder.id.clone(),
            token: lease.token,
            verdict: verdict.into(),
            acquired_at: lease.acquired_at.into(),
            expires_at: end.map(|end| end.shown(now).into()),
            remaining_seconds: end.map(|end| end.remaining(now).map_or(0, |left| left.as_secs())),
            file,
        }
    }
}

/// Expired and dead claims.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodesReapedJson {
    /// Whether they were only looked for.
    pub dry_run: bool,
    /// The claims that were ended, or would be.
    pub ended: Vec<NodeReapedJson>,
}

/// An expired or dead claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NodeReapedJson {
    /// The node.
    pub node: String,
    /// The holder of the claim.
    pub holder: HolderId,
    /// The fencing token.
    pub token: Token,
    /// The proof that it has ended.
    pub evidence: EvidenceJson,
    /// The same, for people.
    pub why: String,
}

impl NodesReapedJson {
    /// The claims that were ended, or would be.
    pub fn new(dry_run: bool, reaped: &[Reaped]) -> Self {
        let ended = reaped.iter().map(|reaped| NodeReapedJson {
            node: reaped.lease.key.id().to_owned(),
            holder: reaped.lease.holder.id.clone(),
            token: reaped.lease.token,
            evidence: (&reaped.evidence).into(),
            why: reaped.evidence.to_string(),
        });
        Self {
            dry_run,
            ended: ended.collect(),
        }
    }
}

/// A ledger that was created, or existed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LedgerJson {
    /// The folder that contains `ledger/`.
    pub folder: String,
    /// Whether it was created.
    pub created: bool,
    /// The dialect of its events.
    pub dialect: String,
}

/// Events that were appended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AppendedJson {
    /// The number of the first.
    pub first: u64,
    /// The number of the last.
    pub last: u64,
    /// How many there are.
    pub count: u64,
}

/// Another newest event than the caller expected: nothing was appended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SequenceMismatchJson {
    /// The number that was expected.
    pub expected: u64,
    /// The number of the newest event.
    pub found: u64,
}

/// The lock of a ledger, held by another program.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LedgerLockJson {
    /// The lock file.
    pub lock: String,
    /// The holder, if it is recorded.
    pub holder: Option<String>,
    /// The holder's process, if it is recorded.
    pub pid: Option<u32>,
    /// When it was taken.
    pub since: TimeJson,
    /// How many seconds ago that was.
    pub age_seconds: u64,
    /// Whether its holder is proven dead.
    pub dead: bool,
}

/// The result of `tenure ledger break-lock`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LedgerLockBrokenJson {
    /// The lock that was removed. Its fields are left out if the lock was not held.
    #[serde(flatten)]
    pub lock: Option<LedgerLockJson>,
    /// Whether a lock was removed.
    pub broken: bool,
}

/// The result of `tenure ledger verify`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LedgerVerifiedJson {
    /// How many events there are.
    pub events: u64,
    /// How many claims began.
    pub claims: u64,
    /// Whether there is no error.
    pub sound: bool,
    /// Whether two holders of a node overlapped.
    pub overlapped: bool,
    /// The findings, in the order of events.
    pub findings: Vec<LedgerFindingJson>,
}

/// What is wrong with a ledger, or notable.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LedgerFindingJson {
    /// How serious it is, in one word.
    pub severity: String,
    /// What it is, for programs.
    pub code: String,
    /// The number of the event that it is about; `null` if it is about none.
    pub event: Option<u64>,
    /// What it is, for people.
    pub message: String,
}

/// An event of a ledger. `tenure ledger log` prints one per line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[schemars(rename = "LedgerEventJson")]
#[serde(rename_all = "camelCase")]
pub struct LedgerEventJson<E> {
    /// Its number.
    pub seq: u64,
    /// The event; `null` if it is not a JSON object. Numbers, keys and their order are as they were written.
    pub event: Option<E>,
    /// Why it can't be read, so that no node can be claimed. The field is left out if it can.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub flaw: Option<String>,
}
