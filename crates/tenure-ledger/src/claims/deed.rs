//! The events that claims are made of, in either dialect.

use jiff::Timestamp;
use serde_json::{Value, json};
use tenure_core::{Evidence, StoreError};

use crate::dialect::Dialect;
use crate::event::NewEvent;
use crate::node::NodeId;
use crate::replay::Claimed;

/// Something that happens to the claim on a node.
#[derive(Debug, Clone)]
pub(super) enum Deed<'a> {
    /// It begins.
    Claim { owner: &'a str, expires: Timestamp },
    /// It goes on.
    Refresh {
        claim: &'a Claimed,
        expires: Timestamp,
    },
    /// Its owner gives it back.
    Release(&'a Claimed),
    /// It is taken away.
    Reap(&'a Claimed, &'a Evidence),
    /// A file was, that claimed the node for this owner. No event of the real tool's tells of that.
    ReapFile(&'a str),
}

impl Deed<'_> {
    /// The bytes of the event.
    pub(super) fn bytes(
        &self,
        dialect: Dialect,
        node: &NodeId,
        now: Timestamp,
    ) -> Result<Vec<u8>, StoreError> {
        let fields = match dialect {
            Dialect::Documented => self.documented(node, now),
            Dialect::Af => self.af(node, now),
        };
        let event = NewEvent::of(&fields).map_err(|error| {
            StoreError::new(tenure_core::ErrorKind::Unsupported, error.to_string())
        })?;
        Ok(event.bytes(now))
    }

    fn documented(&self, node: &NodeId, now: Timestamp) -> Value {
        let now = now.to_string();
        match self {
            Self::Claim { owner, expires } => json!({
                "type": "lock_acquired", "timestamp": now, "node_id": node, "owner": owner,
                "expires_at": expires.to_string(),
            }),
            Self::Refresh { claim, expires } => json!({
                "type": "lock_acquired", "timestamp": now, "node_id": node, "owner": claim.owner,
                "expires_at": expires.to_string(), "tenure": { "grant": claim.token },
            }),
            Self::Release(claim) => json!({
                "type": "lock_released", "timestamp": now, "node_id": node, "owner": claim.owner,
                "tenure": { "grant": claim.token },
            }),
            Self::Reap(claim, evidence) => json!({
                "type": "lock_reaped", "timestamp": now, "node_id": node, "owner": claim.owner,
                "tenure": { "grant": claim.token, "evidence": evidence },
            }),
            Self::ReapFile(owner) => json!({
                "type": "lock_reaped", "timestamp": now, "node_id": node, "owner": owner,
            }),
        }
    }

    /// Only what the real tool has, field for field.
    fn af(&self, node: &NodeId, now: Timestamp) -> Value {
        let now = now.to_string();
        match self {
            Self::Claim { owner, expires } => json!({
                "type": "nodes_claimed", "timestamp": now, "node_ids": [node], "owner": owner,
                "timeout": expires.to_string(),
            }),
            Self::Refresh { claim, expires } => json!({
                "type": "claim_refreshed", "timestamp": now, "node_id": node, "owner": claim.owner,
                "new_timeout": expires.to_string(),
            }),
            Self::Release(_) | Self::Reap(..) => json!({
                "type": "nodes_released", "timestamp": now, "node_ids": [node],
            }),
            Self::ReapFile(owner) => json!({
                "type": "lock_reaped", "timestamp": now, "node_id": node, "owner": owner,
            }),
        }
    }
}
