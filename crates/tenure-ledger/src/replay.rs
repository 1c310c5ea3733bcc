//! From events to claims: [`Replay`]. Pure.
//!
//! # What an event does to the claim on a node
//!
//! | event | nobody has it | its owner has it | somebody else has it |
//! |---|---|---|---|
//! | `lock_acquired` (seed) | begins | goes on, until the new end | begins; the other is over. If its time had not run out, two overlapped |
//! | `lock_released`, `lock_reaped` | nothing | ends | nothing: it was about an earlier claim |
//! | `nodes_claimed` (af) | begins | begins anew | begins; as above |
//! | `claim_refreshed` (af) | nothing | goes on | nothing |
//! | `nodes_released` (af) | nothing | ends | ends: it names no owner |
//!
//! An event of tenure's in the seed's dialect says which claim it is about (`"tenure":{"grant":17}`,
//! the number of the event that began it), so that one of an earlier claim of the same owner does
//! nothing to a later one. The number of the event that begins a claim is its token: it only grows.
//!
//! `node_created` (af) says that a node is there.
//!
//! Events of any other type, and nodes that are none, mean nothing here.

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tenure_core::Evidence;

use crate::dialect::Dialect;
use crate::event::{MAX_EVENT, Recorded};
use crate::node::NodeId;
use tenure_host::files::rfc3339;

/// A claim on a node that nobody ended. Its time may have run out.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Claimed {
    pub(super) owner: String,
    /// The number of the event that began it.
    pub(super) token: u64,
    /// A digest of that event.
    pub(super) digest: u64,
    pub(super) since: Timestamp,
    pub(super) heard: Timestamp,
    pub(super) expires: Timestamp,
}

/// All claims after some event.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Replay {
    /// The event; 0 before the first.
    pub(super) seq: u64,
    /// A digest of it.
    pub(super) digest: u64,
    pub(super) claims: BTreeMap<NodeId, Claimed>,
    /// The nodes that there are, in an `af` ledger: the real tool can't read a claim on any other.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    pub(super) nodes: BTreeSet<NodeId>,
}

/// What an event did to one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Change {
    pub(super) node: NodeId,
    pub(super) claim: Claimed,
    pub(super) what: Deed,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Deed {
    Began,
    WentOn,
    /// It was given back, or taken away with this proof.
    Ended(Option<Evidence>),
    /// Somebody else's claim began after its time had run out.
    RanOut,
    /// Somebody else's claim began while it stood.
    Overlapped,
    /// An end that was about another claim than the one that stands.
    Missed,
}

/// What tenure adds to an event in the seed's dialect.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Extra {
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

/// A node of an `af` ledger that came into being.
#[derive(Deserialize)]
struct Created {
    node: CreatedNode,
}

#[derive(Deserialize)]
struct CreatedNode {
    id: String,
}

/// The fields of every event about claims.
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
    tenure: Option<Extra>,
}

/// What a later tenure may write there is no reason not to read the rest.
fn lenient<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Extra>, D::Error> {
    let value = serde_json::Value::deserialize(deserializer)?;
    Ok(serde_json::from_value(value).ok())
}

/// What an event about claims says.
enum Said {
    Claim { refresh: bool },
    End { reaped: bool },
}

impl Replay {
    /// Takes in the next event, whatever its number; what it did. What can't be read changes nothing,
    /// and is told.
    pub(super) fn apply(
        &mut self,
        dialect: Dialect,
        event: &Recorded,
    ) -> Result<Vec<Change>, String> {
        let changes = self.understand(dialect, event);
        self.seq = event.seq;
        self.digest = event.digest();
        changes
    }

    fn understand(&mut self, dialect: Dialect, event: &Recorded) -> Result<Vec<Change>, String> {
        if event.bytes.len() > MAX_EVENT {
            return Err("it has more than 1 MiB".into());
        }
        let flaw = |error: serde_json::Error| format!("it is no event ({error})");
        let Kind { kind } = serde_json::from_slice(&event.bytes).map_err(flaw)?;
        let said = match (dialect, &*kind) {
            (Dialect::Documented, "lock_acquired") | (Dialect::Af, "nodes_claimed") => {
                Said::Claim { refresh: false }
            }
            (Dialect::Af, "claim_refreshed") => Said::Claim { refresh: true },
            (_, "lock_reaped") => Said::End { reaped: true },
            (Dialect::Documented, "lock_released") | (Dialect::Af, "nodes_released") => {
                Said::End { reaped: false }
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
            match said {
                Said::Claim { refresh } => {
                    let (text, name) = match (dialect, refresh) {
                        (Dialect::Documented, _) => (&fields.expires_at, "expires_at"),
                        (Dialect::Af, false) => (&fields.timeout, "timeout"),
                        (Dialect::Af, true) => (&fields.new_timeout, "new_timeout"),
                    };
                    let expires = time(text.as_deref(), name)?;
                    let owner = fields.owner.clone().ok_or("it has no owner")?;
                    let claim = Claimed {
                        owner,
                        token: event.seq,
                        digest: event.digest(),
                        since: at,
                        heard: at,
                        expires,
                    };
                    let same = Same::of(dialect, refresh, fields.tenure.as_ref());
                    self.claim(node, claim, same, &mut changes);
                }
                Said::End { reaped } => {
                    let (owner, extra) = (fields.owner.as_deref(), fields.tenure.as_ref());
                    self.end(node, owner, extra, reaped, &mut changes);
                }
            }
        }
        Ok(changes)
    }

    fn claim(&mut self, node: NodeId, new: Claimed, same: Same, changes: &mut Vec<Change>) {
        let mut tell = |node: &NodeId, claim: &Claimed, what| {
            changes.push(Change {
                node: node.clone(),
                claim: claim.clone(),
                what,
            });
        };
        if let Some(stands) = self.claims.get_mut(&node) {
            let goes_on = stands.owner == new.owner
                && match same {
                    Same::Never => false,
                    Same::Always => true,
                    Same::InTime => stands.expires > new.since,
                    Same::Grant(token) => stands.token == token,
                };
            if goes_on {
                stands.heard = new.since;
                stands.expires = new.expires;
                tell(&node, stands, Deed::WentOn);
                return;
            }
            if same == Same::Always {
                tell(&node, stands, Deed::Missed);
                return;
            }
            let what = if stands.expires > new.since && stands.owner != new.owner {
                Deed::Overlapped
            } else {
                Deed::RanOut
            };
            tell(&node, stands, what);
        } else if same == Same::Always {
            tell(&node, &new, Deed::Missed);
            return;
        }
        tell(&node, &new, Deed::Began);
        self.claims.insert(node, new);
    }

    fn end(
        &mut self,
        node: NodeId,
        owner: Option<&str>,
        extra: Option<&Extra>,
        reaped: bool,
        changes: &mut Vec<Change>,
    ) {
        let meant = |claim: &Claimed| {
            owner.is_none_or(|owner| owner == claim.owner)
                && extra
                    .and_then(|extra| extra.grant)
                    .is_none_or(|grant| grant == claim.token)
        };
        let Some(claim) = self.claims.get(&node).cloned() else {
            return;
        };
        let what = if meant(&claim) {
            self.claims.remove(&node);
            // Another program reaps what ran out.
            let ran_out = reaped.then_some(Evidence::TimeRanOut {
                expired_at: claim.expires,
            });
            Deed::Ended(extra.and_then(|extra| extra.evidence.clone()).or(ran_out))
        } else {
            Deed::Missed
        };
        changes.push(Change { node, claim, what });
    }
}

/// When a claim by the same owner is the same claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Same {
    /// It is a new one.
    Never,
    /// It is no claim otherwise.
    Always,
    /// If the time of the other has not run out.
    InTime,
    /// If that one began with this event.
    Grant(u64),
}

impl Same {
    fn of(dialect: Dialect, refresh: bool, extra: Option<&Extra>) -> Self {
        match (dialect, refresh, extra.and_then(|extra| extra.grant)) {
            (Dialect::Af, false, _) => Self::Never,
            (Dialect::Af, true, _) => Self::Always,
            (Dialect::Documented, _, Some(grant)) => Self::Grant(grant),
            (Dialect::Documented, _, None) => Self::InTime,
        }
    }
}

fn time(text: Option<&str>, name: &str) -> Result<Timestamp, String> {
    let text = text.ok_or_else(|| format!("it has no {name}"))?;
    rfc3339::parse(text).ok_or_else(|| format!("its {name} {text:?} is no RFC 3339 time"))
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Told {
        replay: Replay,
        dialect: Dialect,
    }

    impl Told {
        fn new(dialect: Dialect) -> Self {
            Self {
                replay: Replay::default(),
                dialect,
            }
        }

        /// Minutes are seconds here.
        fn tell(&mut self, json: &str) -> Vec<Deed> {
            let bytes = json.replace('@', "2026-01-01T00:").into_bytes();
            let seq = self.replay.seq + 1;
            let event = Recorded { seq, bytes };
            let changes = self.replay.apply(self.dialect, &event).unwrap();
            changes.into_iter().map(|change| change.what).collect()
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
    fn a_claim_begins_goes_on_and_ends() {
        let mut told = Told::new(Dialect::Documented);
        assert_eq!(
            told.tell(&acquired("00:00", "1.2", "a", "05:00", "")),
            [Deed::Began]
        );
        assert_eq!(
            told.tell(&acquired("01:00", "1.2", "a", "06:00", "")),
            [Deed::WentOn]
        );
        assert_eq!(told.owner("1.2"), Some(("a", 1)), "the token stays");
        let ended = told
            .tell(r#"{"type":"lock_released","timestamp":"@02:00Z","node_id":"1.2","owner":"a"}"#);
        assert_eq!(ended, [Deed::Ended(None)]);
        assert_eq!(told.owner("1.2"), None);
    }

    #[test]
    fn an_end_of_an_earlier_owner_or_grant_frees_nothing() {
        for kind in ["lock_released", "lock_reaped"] {
            let mut told = Told::new(Dialect::Documented);
            told.tell(&acquired("00:00", "1", "old", "01:00", ""));
            told.tell(&acquired("02:00", "1", "new", "09:00", ""));
            let end = |owner: &str, more: &str| {
                format!(
                    r#"{{"type":"{kind}","timestamp":"@03:00Z","node_id":"1","owner":"{owner}"{more}}}"#
                )
            };
            assert_eq!(told.tell(&end("old", "")), [Deed::Missed]);
            assert_eq!(
                told.tell(&end("new", r#","tenure":{"grant":1}"#)),
                [Deed::Missed]
            );
            assert_eq!(told.owner("1"), Some(("new", 2)));
            let ended = told.tell(&end("new", r#","tenure":{"grant":2}"#));
            assert!(matches!(ended[..], [Deed::Ended(_)]), "{ended:?}");
        }
    }

    #[test]
    fn two_that_overlapped_are_told_and_two_that_followed_are_not() {
        let mut told = Told::new(Dialect::Documented);
        told.tell(&acquired("00:00", "1", "a", "05:00", ""));
        assert_eq!(
            told.tell(&acquired("05:00", "1", "b", "09:00", "")),
            [Deed::RanOut, Deed::Began]
        );
        assert_eq!(
            told.tell(&acquired("08:59", "1", "c", "20:00", "")),
            [Deed::Overlapped, Deed::Began]
        );
    }

    #[test]
    fn a_late_renewal_goes_on_only_if_it_says_of_what() {
        let mut told = Told::new(Dialect::Documented);
        told.tell(&acquired("00:00", "1", "a", "01:00", ""));
        let late = acquired("02:00", "1", "a", "09:00", r#","tenure":{"grant":1}"#);
        assert_eq!(told.tell(&late), [Deed::WentOn]);
        let stranger = acquired("10:00", "1", "a", "19:00", "");
        assert_eq!(told.tell(&stranger), [Deed::RanOut, Deed::Began]);
    }

    #[test]
    fn the_real_tools_events_are_understood() {
        let mut told = Told::new(Dialect::Af);
        let claimed = r#"{"type":"nodes_claimed","timestamp":"@00:00Z","node_ids":["1","1.2"],"owner":"a","timeout":"@05:00Z"}"#;
        assert_eq!(told.tell(claimed), [Deed::Began, Deed::Began]);
        let refreshed = |owner: &str| {
            format!(
                r#"{{"type":"claim_refreshed","timestamp":"@01:00Z","node_id":"1","owner":"{owner}","new_timeout":"@09:00Z"}}"#
            )
        };
        assert_eq!(told.tell(&refreshed("a")), [Deed::WentOn]);
        assert_eq!(told.tell(&refreshed("b")), [Deed::Missed]);
        assert_eq!(told.owner("1"), Some(("a", 1)));
        let released = r#"{"type":"nodes_released","timestamp":"@02:00Z","node_ids":["1"]}"#;
        assert_eq!(told.tell(released), [Deed::Ended(None)]);
        assert_eq!(told.owner("1"), None);
        assert_eq!(told.owner("1.2"), Some(("a", 1)));
        assert_eq!(told.tell(&acquired("00:00", "7", "x", "01:00", "")), []);
    }
}
