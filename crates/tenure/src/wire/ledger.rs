//! Claims on the nodes of a ledger. A claim is a lease; the ledger's protocol calls its holder the
//! owner and its key the node.

use serde::{Deserialize, Serialize};
use tenure_core::{HolderId, Lease, Moment, Reaped, Reason, Token, Verdict};

use super::{EvidenceJson, TimeJson, VerdictWord};

/// A node that was claimed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeClaimedJson {
    /// The node.
    pub node: String,
    /// The owner of the claim.
    pub owner: HolderId,
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
            owner: lease.holder.id.clone(),
            token: lease.token,
            acquired_at: lease.acquired_at.into(),
            expires_at: lease.expires.as_ref().map(|end| end.shown(now).into()),
            reason,
        }
    }
}

/// A claim that was refreshed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeClaimsJson {
    /// The claims that have not expired.
    pub claims: Vec<NodeClaimJson>,
    /// How many more have expired but not been ended.
    pub expired: usize,
}

/// A claim in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeClaimJson {
    /// The node.
    pub node: String,
    /// The owner of the claim.
    pub owner: HolderId,
    /// The fencing token.
    pub token: Token,
    /// What is known of the owner.
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
            owner: lease.holder.id.clone(),
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodesReapedJson {
    /// Whether they were only looked for.
    pub dry_run: bool,
    /// The claims that were ended, or would be.
    pub ended: Vec<NodeReapedJson>,
}

/// An expired or dead claim.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct NodeReapedJson {
    /// The node.
    pub node: String,
    /// The owner of the claim.
    pub owner: HolderId,
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
            owner: reaped.lease.holder.id.clone(),
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
