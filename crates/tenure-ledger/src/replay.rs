//! From events to claims: [`Replay`]. Pure.
//!
//! # What an event does to the claim on a node
//!
//! | event | the node is free | its owner holds it | another owner holds it |
//! |---|---|---|---|
//! | `lock_acquired` (documented) | a claim begins | it is renewed | a claim begins, the other ends. If that one had not expired, two holders overlapped |
//! | `lock_released`, `lock_reaped` | nothing | it ends | nothing: the event is about an earlier claim |
//! | `nodes_claimed` (af) | a claim begins | a new claim begins | a claim begins; as above |
//! | `claim_refreshed` (af) | nothing | it is renewed | nothing |
//! | `nodes_released` (af) | nothing | it ends | it ends: the event names no owner |
//!
//! An event that tenure writes in the documented dialect names the claim that it is about
//! (`"tenure":{"grant":17}`, the number of the event that began the claim), so that an event about an
//! earlier claim of the same owner does nothing to a later one. The number of the event that begins a
//! claim is its token: it only grows.
//!
//! `node_created` (af) creates a node.
//!
//! Events of any other type, and node ids that are not valid, change nothing.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tenure_core::Evidence;

use crate::dialect::Dialect;
use crate::event::{MAX_EVENT, RecordedEvent};
use crate::node::NodeId;
use tenure_host::files::rfc3339;

/// A claim on a node that no event has ended. It may have expired.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct NodeClaim {
    pub(super) owner: String,
    /// The number of the event that began it.
    pub(super) token: u64,
    /// A digest of that event.
    pub(super) digest: u64,
    pub(super) since: Timestamp,
    pub(super) heard: Timestamp,
    pub(super) expires: Timestamp,
}

/// All claims after one event.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Replay {
    /// The event; 0 before the first.
    pub(super) seq: u64,
    /// A digest of it.
    pub(super) digest: u64,
    pub(super) claims: BTreeMap<NodeId, NodeClaim>,
    /// The nodes of an `af` ledger: the `af` tool can't read a ledger with a claim on any other.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) nodes: BTreeSet<NodeId>,
}

/// What an event changed about one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ClaimChange {
    pub(super) node: NodeId,
    pub(super) claim: NodeClaim,
    pub(super) kind: ChangeKind,
}

/// What happened to a claim.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum ChangeKind {
    Began,
    Renewed,
    /// It was released, or taken away with this evidence.
    Ended(Option<Evidence>),
    /// Another claim began after it had expired.
    Expired,
    /// Another owner's claim began before it had expired.
    Overlapped,
    /// Nothing: the event was about an earlier claim.
    Unmatched,
}

/// What tenure adds to an event in the documented dialect.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct TenureFields {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) grant: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) evidence: Option<Evidence>,
}

#[derive(Deserialize)]
struct Kind<'a> {
    #[serde(rename = "type", borrow)]
    kind: std::borrow::Cow<'a, str>,
}

/// A `node_created` event of an `af` ledger.
#[derive(Deserialize)]
struct Created {
    node: CreatedNode,
}

#[derive(Deserialize)]
struct CreatedNode {
    id: String,
}

/// The fields of events about claims.
#[derive(Deserialize)]
struct Fields {
    timestamp: Option<String>,
    node_id: Option<String>,
    node_ids: Option<Vec<String>>,
    owner: Option<String>,
    expires_at: Option<String>,
    timeout: Option<String>,
    new_timeout: Option<String>,
    #[serde(default, deserialize_with = "lenient")]
    tenure: Option<TenureFields>,
}

/// A later version may write fields that this one can't read. The rest of the event still counts.
fn lenient<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<TenureFields>, D::Error> {
    let value = serde_json::Value::deserialize(deserializer)?;
    Ok(serde_json::from_value(value).ok())
}

/// The kinds of events about claims.
enum ClaimEventKind {
    Claim { refresh: bool },
    End { reaped: bool },
}

impl Replay {
    /// Applies the next event, whatever its number, and returns what it changed. An event that can't be
    /// read changes nothing, and is an error.
    pub(super) fn apply(
        &mut self,
        dialect: Dialect,
        event: &RecordedEvent,
    ) -> Result<Vec<ClaimChange>, String> {
        let changes = self.interpret(dialect, event);
        self.seq = event.seq;
        self.digest = event.digest();
        changes
    }

    fn interpret(
        &mut self,
        dialect: Dialect,
        event: &RecordedEvent,
    ) -> Result<Vec<ClaimChange>, String> {
        if event.bytes.len() > MAX_EVENT {
            return Err("it is larger than 1 MiB".into());
        }
        let flaw = |error: serde_json::Error| format!("it is not an event ({error})");
        let Kind { kind } = serde_json::from_slice(&event.bytes).map_err(flaw)?;
        let kind = match (dialect, &*kind) {
            (Dialect::Documented, "lock_acquired") | (Dialect::Af, "nodes_claimed") => {
                ClaimEventKind::Claim { refresh: false }
            }
            (Dialect::Af, "claim_refreshed") => ClaimEventKind::Claim { refresh: true },
            (_, "lock_reaped") => ClaimEventKind::End { reaped: true },
            (Dialect::Documented, "lock_released") | (Dialect::Af, "nodes_released") => {
                ClaimEventKind::End { reaped: false }
            }
            (Dialect::Af, "node_created") => {
                let Created { node } = serde_json::from_slice(&event.bytes).map_err(flaw)?;
                self.nodes.extend(NodeId::parse(&node.id).ok());
                return Ok(Vec::new());
            }
            _ => return Ok(Vec::new()),
        };
        let fields: Fields = serde_json::from_slice(&event.bytes).map_err(flaw)?;
        let at = time(fields.timestamp.as_deref(), "timestamp")?;
        let ids = fields.node_ids.iter().flatten().chain(&fields.node_id);
        let nodes: Vec<NodeId> = ids.filter_map(|id| NodeId::parse(id).ok()).collect();
        let mut changes = Vec::new();
        for node in nodes {
            match kind {
                ClaimEventKind::Claim { refresh } => {
                    let (text, name) = match (dialect, refresh) {
                        (Dialect::Documented, _) => (&fields.expires_at, "expires_at"),
                        (Dialect::Af, false) => (&fields.timeout, "timeout"),
                        (Dialect::Af, true) => (&fields.new_timeout, "new_timeout"),
                    };
                    let expires = time(text.as_deref(), name)?;
                    let owner = fields.owner.clone().ok_or("it has no owner")?;
                    let claim = NodeClaim {
                        owner,
                        token: event.seq,
                        digest: event.digest(),
                        since: at,
                        heard: at,
                        expires,
                    };
                    let rule = RenewalRule::of(dialect, refresh, fields.tenure.as_ref());
                    self.claim(node, claim, rule, &mut changes);
                }
                ClaimEventKind::End { reaped } => {
                    let (owner, tenure) = (fields.owner.as_deref(), fields.tenure.as_ref());
                    self.end(node, owner, tenure, reaped, &mut changes);
                }
            }
        }
        Ok(changes)
    }

    fn claim(
        &mut self,
        node: NodeId,
        new: NodeClaim,
        rule: RenewalRule,
        changes: &mut Vec<ClaimChange>,
    ) {
        let mut report = |node: &NodeId, claim: &NodeClaim, kind| {
            changes.push(ClaimChange {
                node: node.clone(),
                claim: claim.clone(),
                kind,
            });
        };
        if let Some(current) = self.claims.get_mut(&node) {
            let renewed = current.owner == new.owner
                && match rule {
                    RenewalRule::Never => false,
                    RenewalRule::Only => true,
                    RenewalRule::UnlessExpired => current.expires > new.since,
                    RenewalRule::OfGrant(token) => current.token == token,
                };
            if renewed {
                current.heard = new.since;
                current.expires = new.expires;
                report(&node, current, ChangeKind::Renewed);
                return;
            }
            if rule == RenewalRule::Only {
                report(&node, current, ChangeKind::Unmatched);
                return;
            }
            let kind = if current.expires > new.since && current.owner != new.owner {
                ChangeKind::Overlapped
            } else {
                ChangeKind::Expired
            };
            report(&node, current, kind);
        } else if rule == RenewalRule::Only {
            report(&node, &new, ChangeKind::Unmatched);
            return;
        }
        report(&node, &new, ChangeKind::Began);
        self.claims.insert(node, new);
    }

    fn end(
        &mut self,
        node: NodeId,
        owner: Option<&str>,
        fields: Option<&TenureFields>,
        reaped: bool,
        changes: &mut Vec<ClaimChange>,
    ) {
        let is_about = |claim: &NodeClaim| {
            owner.is_none_or(|owner| owner == claim.owner)
                && fields
                    .and_then(|fields| fields.grant)
                    .is_none_or(|grant| grant == claim.token)
        };
        let Some(claim) = self.claims.get(&node).cloned() else {
            return;
        };
        let kind = if is_about(&claim) {
            self.claims.remove(&node);
            // Other programs reap only expired claims.
            let expired = reaped.then_some(Evidence::TimeRanOut {
                expired_at: claim.expires,
            });
            ChangeKind::Ended(
                fields
                    .and_then(|fields| fields.evidence.clone())
                    .or(expired),
            )
        } else {
            ChangeKind::Unmatched
        };
        changes.push(ClaimChange { node, claim, kind });
    }
}

/// When an event renews the current claim of the same owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum RenewalRule {
    /// Never: it begins a new claim.
    Never,
    /// Always: it does nothing else.
    Only,
    /// If the current claim has not expired.
    UnlessExpired,
    /// If the current claim began with this event.
    OfGrant(u64),
}

impl RenewalRule {
    fn of(dialect: Dialect, refresh: bool, fields: Option<&TenureFields>) -> Self {
        match (dialect, refresh, fields.and_then(|fields| fields.grant)) {
            (Dialect::Af, false, _) => Self::Never,
            (Dialect::Af, true, _) => Self::Only,
            (Dialect::Documented, _, Some(grant)) => Self::OfGrant(grant),
            (Dialect::Documented, _, None) => Self::UnlessExpired,
        }
    }
}

fn time(text: Option<&str>, name: &str) -> Result<Timestamp, String> {
    let text = text.ok_or_else(|| format!("it has no {name}"))?;
    rfc3339::parse(text).ok_or_else(|| format!("its {name} {text:?} is not an RFC 3339 time"))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct TestLedger {
        replay: Replay,
        dialect: Dialect,
    }

    impl TestLedger {
        fn new(dialect: Dialect) -> Self {
            Self {
                replay: Replay::default(),
                dialect,
            }
        }

        /// `@` stands for the date and hour.
        fn append(&mut self, json: &str) -> Vec<ChangeKind> {
            let bytes = json.replace('@', "2026-01-01T00:").into_bytes();
            let seq = self.replay.seq + 1;
            let event = RecordedEvent { seq, bytes };
            let changes = self.replay.apply(self.dialect, &event).unwrap();
            changes.into_iter().map(|change| change.kind).collect()
        }

        fn owner(&self, node: &str) -> Option<(&str, u64)> {
            let claim = self.replay.claims.get(&NodeId::parse(node).unwrap())?;
            Some((&claim.owner, claim.token))
        }
    }

    fn acquired(at: &str, node: &str, owner: &str, until: &str, more: &str) -> String {
        format!(
            r#"{{"type":"lock_acquired","timestamp":"@{at}Z","node_id":"{node}","owner":"{owner}","expires_at":"@{until}Z"{more}}}"#
        )
    }

    #[test]
    fn a_claim_begins_is_renewed_and_ends() {
        let mut ledger = TestLedger::new(Dialect::Documented);
        assert_eq!(
            ledger.append(&acquired("00:00", "1.2", "a", "05:00", "")),
            [ChangeKind::Began]
        );
        assert_eq!(
            ledger.append(&acquired("01:00", "1.2", "a", "06:00", "")),
            [ChangeKind::Renewed]
        );
        assert_eq!(ledger.owner("1.2"), Some(("a", 1)), "the token stays");
        let ended = ledger.append(
            r#"{"type":"lock_released","timestamp":"@02:00Z","node_id":"1.2","owner":"a"}"#,
        );
        assert_eq!(ended, [ChangeKind::Ended(None)]);
        assert_eq!(ledger.owner("1.2"), None);
    }

    #[test]
    fn an_end_of_an_earlier_owner_or_grant_frees_nothing() {
        for kind in ["lock_released", "lock_reaped"] {
            let mut ledger = TestLedger::new(Dialect::Documented);
            ledger.append(&acquired("00:00", "1", "old", "01:00", ""));
            ledger.append(&acquired("02:00", "1", "new", "09:00", ""));
            let end = |owner: &str, more: &str| {
                format!(
                    r#"{{"type":"{kind}","timestamp":"@03:00Z","node_id":"1","owner":"{owner}"{more}}}"#
                )
            };
            assert_eq!(ledger.append(&end("old", "")), [ChangeKind::Unmatched]);
            assert_eq!(
                ledger.append(&end("new", r#","tenure":{"grant":1}"#)),
                [ChangeKind::Unmatched]
            );
            assert_eq!(ledger.owner("1"), Some(("new", 2)));
            let ended = ledger.append(&end("new", r#","tenure":{"grant":2}"#));
            assert!(matches!(ended[..], [ChangeKind::Ended(_)]), "{ended:?}");
        }
    }

    #[test]
    fn overlapping_claims_are_reported_and_consecutive_ones_are_not() {
        let mut ledger = TestLedger::new(Dialect::Documented);
        ledger.append(&acquired("00:00", "1", "a", "05:00", ""));
        assert_eq!(
            ledger.append(&acquired("05:00", "1", "b", "09:00", "")),
            [ChangeKind::Expired, ChangeKind::Began]
        );
        assert_eq!(
            ledger.append(&acquired("08:59", "1", "c", "20:00", "")),
            [ChangeKind::Overlapped, ChangeKind::Began]
        );
    }

    #[test]
    fn a_late_renewal_counts_only_if_it_names_its_grant() {
        let mut ledger = TestLedger::new(Dialect::Documented);
        ledger.append(&acquired("00:00", "1", "a", "01:00", ""));
        let late = acquired("02:00", "1", "a", "09:00", r#","tenure":{"grant":1}"#);
        assert_eq!(ledger.append(&late), [ChangeKind::Renewed]);
        let stranger = acquired("10:00", "1", "a", "19:00", "");
        assert_eq!(
            ledger.append(&stranger),
            [ChangeKind::Expired, ChangeKind::Began]
        );
    }

    #[test]
    fn events_of_the_af_tool_are_applied() {
        let mut ledger = TestLedger::new(Dialect::Af);
        let claimed = r#"{"type":"nodes_claimed","timestamp":"@00:00Z","node_ids":["1","1.2"],"owner":"a","timeout":"@05:00Z"}"#;
        assert_eq!(
            ledger.append(claimed),
            [ChangeKind::Began, ChangeKind::Began]
        );
        let refreshed = |owner: &str| {
            format!(
                r#"{{"type":"claim_refreshed","timestamp":"@01:00Z","node_id":"1","owner":"{owner}","new_timeout":"@09:00Z"}}"#
            )
        };
        assert_eq!(ledger.append(&refreshed("a")), [ChangeKind::Renewed]);
        assert_eq!(ledger.append(&refreshed("b")), [ChangeKind::Unmatched]);
        assert_eq!(ledger.owner("1"), Some(("a", 1)));
        let released = r#"{"type":"nodes_released","timestamp":"@02:00Z","node_ids":["1"]}"#;
        assert_eq!(ledger.append(released), [ChangeKind::Ended(None)]);
        assert_eq!(ledger.owner("1"), None);
        assert_eq!(ledger.owner("1.2"), Some(("a", 1)));
        assert_eq!(ledger.append(&acquired("00:00", "7", "x", "01:00", "")), []);
    }
}
