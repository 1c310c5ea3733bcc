//! The events that claims consist of, in either form: [`ClaimEvent`].

use jiff::Timestamp;
use serde_json::{Value, json};
use tenure_core::{ErrorKind, Evidence, StoreError};

use crate::dialect::Dialect;
use crate::event::NewEvent;
use crate::node::NodeId;
use crate::replay::{ClaimForm, NodeClaim};

/// An event about the claim on a node.
#[derive(Debug, Clone)]
pub(super) enum ClaimEvent<'a> {
    /// A claim begins.
    Begin {
        form: ClaimForm,
        owner: &'a str,
        expires: Timestamp,
    },
    /// Its owner renews it.
    Renew {
        claim: &'a NodeClaim,
        expires: Timestamp,
    },
    /// Its owner releases it.
    Release(&'a NodeClaim),
    /// It is taken away.
    Reap(&'a NodeClaim, &'a Evidence),
}

impl ClaimEvent<'_> {
    /// The bytes of the event.
    pub(super) fn bytes(&self, node: &NodeId, now: Timestamp) -> Result<Vec<u8>, StoreError> {
        let form = match self {
            Self::Begin { form, .. } => *form,
            // An event about a claim has the form of the claim: the programs that write one form do not
            // read the other.
            Self::Renew { claim, .. } | Self::Release(claim) | Self::Reap(claim, _) => claim.form,
        };
        let fields = match form {
            ClaimForm::Lock => self.lock_form(node, now),
            ClaimForm::Nodes => self.nodes_form(node, now),
        };
        bytes(&fields, now)
    }

    fn lock_form(&self, node: &NodeId, now: Timestamp) -> Value {
        let now = now.to_string();
        match self {
            Self::Begin { owner, expires, .. } => json!({
                "type": "lock_acquired", "timestamp": now, "node_id": node, "owner": owner,
                "expires_at": expires.to_string(),
            }),
            Self::Renew { claim, expires } => json!({
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
        }
    }

    /// Exactly the fields that the `af` tool writes.
    fn nodes_form(&self, node: &NodeId, now: Timestamp) -> Value {
        let now = now.to_string();
        match self {
            Self::Begin { owner, expires, .. } => json!({
                "type": "nodes_claimed", "timestamp": now, "node_ids": [node], "owner": owner,
                "timeout": expires.to_string(),
            }),
            Self::Renew { claim, expires } => json!({
                "type": "claim_refreshed", "timestamp": now, "node_id": node, "owner": claim.owner,
                "new_timeout": expires.to_string(),
            }),
            Self::Release(_) | Self::Reap(..) => json!({
                "type": "nodes_released", "timestamp": now, "node_ids": [node],
            }),
        }
    }
}

/// The event that reports the end of a claim in a file; `None` in an `af` ledger, which has none.
pub(super) fn file_reaped(
    dialect: Dialect,
    node: &NodeId,
    owner: &str,
    now: Timestamp,
) -> Result<Option<Vec<u8>>, StoreError> {
    match dialect {
        Dialect::Documented => {
            let fields = json!({
                "type": "lock_reaped", "timestamp": now.to_string(), "node_id": node, "owner": owner,
            });
            bytes(&fields, now).map(Some)
        }
        Dialect::Af => Ok(None),
    }
}

fn bytes(fields: &Value, now: Timestamp) -> Result<Vec<u8>, StoreError> {
    let event = NewEvent::of(fields)
        .map_err(|error| StoreError::new(ErrorKind::Unsupported, error.to_string()))?;
    Ok(event.bytes(Dialect::Documented, now))
}
