//! From events to claims: [`Replay`]. Pure.
//!
//! One replay decides for every command: what stops it stops `claim`, and `verify` and `log` report it in
//! the same words.
//!
//! # What an event does to the claim on a node
//!
//! There are two forms of claims. Each dialect writes one of them, and both are read in both dialects.
//!
//! | event | the node is free | its owner holds it | another owner holds it |
//! |---|---|---|---|
//! | `lock_acquired` (lock form) | a claim begins | it is renewed | a claim begins, the other ends. If that one had not expired, two holders overlapped |
//! | `lock_released`, `lock_reaped` | nothing | it ends | nothing: the event is about an earlier claim |
//! | `nodes_claimed` (nodes form) | a claim begins | a new claim begins | a claim begins; as above |
//! | `claim_refreshed` | nothing | it is renewed | nothing |
//! | `nodes_released` | nothing | it ends | it ends: the event names no owner |
//!
//! An event about one form does nothing to a claim of the other: the programs that write one form do not
//! read the other.
//!
//! An event that tenure writes in the lock form names the claim that it is about
//! (`"tenure":{"grant":17}`, the number of the event that began the claim), so that an event about an
//! earlier claim of the same owner does nothing to a later one. The number of the event that begins a
//! claim is its token: it only grows.
//!
//! In an `af` ledger, `node_created` makes a node, and a node that exists begins anew, without a claim.
//! Later versions of the `af` tool end a claim together with a judgement (`"release_claim":true`), and
//! name the claims that they release (`claim_seqs`).
//!
//! Events of any other type, and node ids that are not valid, change nothing.
//!
//! # What the `af` tool makes of it
//!
//! Beside the claims, the replay of an `af` ledger follows the tool's own rules ([`AfProof`]). An event
//! that the tool refuses makes its proof unreadable to it, but not to tenure: it is known who holds what.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tenure_core::Evidence;

use crate::af::{self, AfProof, KnownTo, Unclaimable, fields};
use crate::dialect::Dialect;
use crate::event::RecordedEvent;
use crate::node::NodeId;
use tenure_host::files::go_json::Json;
use tenure_host::files::go_time;

/// The form of the events about a claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum ClaimForm {
    /// `lock_acquired`: documented, and written by the `af` tool's lock library.
    Lock,
    /// `nodes_claimed`: the `af` tool's own.
    Nodes,
}

/// A claim on a node that no event has ended. It may have expired.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct NodeClaim {
    pub(super) owner: String,
    /// The number of the event that began it.
    pub(super) token: u64,
    /// A digest of that event.
    pub(super) digest: u64,
    pub(super) form: ClaimForm,
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
    /// The proof in an `af` ledger.
    #[serde(default)]
    pub(super) proof: AfProof,
    /// Whether the `af` tool's lock library has written to this `af` ledger: see [`Replay::form`].
    #[serde(default)]
    has_lock_events: bool,
}

/// What an event did.
#[derive(Debug, Clone, Default)]
#[must_use]
pub(super) struct Applied {
    pub(super) changes: Vec<ClaimChange>,
    /// What the `af` tool makes of the event; `None` if it applies it, or in the documented dialect.
    pub(super) af: Option<AfProblem>,
}

/// Why the `af` tool can't read a ledger beyond some event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum AfProblem {
    /// Only versions from this one on can.
    Since(String, &'static str),
    /// It does not know the type.
    UnknownType(String),
    /// It can't parse or apply the event.
    Refused(String),
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

/// What tenure adds to an event in the lock form.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct TenureEventFields {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) grant: Option<u64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(super) evidence: Option<Evidence>,
}

impl TenureEventFields {
    /// A later version may write fields that this one can't read. The rest of the event still counts.
    fn of(event: Json<'_>) -> Self {
        let fields = event.field(&["tenure"]);
        let fields = fields.and_then(|fields| serde_json::from_slice(fields.bytes()).ok());
        fields.unwrap_or_default()
    }
}

/// Which claims an event ends.
struct ClaimEnd<'a> {
    form: ClaimForm,
    /// Only this owner's.
    owner: Option<&'a str>,
    /// Only the one that began with this event.
    token: Option<u64>,
    evidence: EndEvidence,
}

enum EndEvidence {
    None,
    /// It was reaped, which other programs do to expired claims only.
    Reaped,
    Given(Evidence),
}

impl Replay {
    /// Applies the next event, whatever its number, and returns what it changed. An event that can't be
    /// read changes nothing, and is an error.
    pub(super) fn apply(
        &mut self,
        dialect: Dialect,
        event: &RecordedEvent,
    ) -> Result<Applied, String> {
        let applied = self.interpret(dialect, event);
        self.seq = event.seq;
        self.digest = event.digest();
        applied
    }

    /// The form in which a claim begins. The `af` tool can't read a ledger with events of its own lock
    /// library, and that library reads only its own form: where it has written, tenure writes that form.
    pub(super) fn form(&self, dialect: Dialect) -> ClaimForm {
        match dialect {
            Dialect::Af if !self.has_lock_events => ClaimForm::Nodes,
            Dialect::Af | Dialect::Documented => ClaimForm::Lock,
        }
    }

    /// Whether a claim on this node can begin once its present claim has ended.
    pub(super) fn check_claimable(
        &self,
        dialect: Dialect,
        node: &NodeId,
    ) -> Result<(), Unclaimable> {
        if self.form(dialect) == ClaimForm::Lock {
            return Ok(());
        }
        let claim = self.claims.get(node);
        let will_end = claim.is_some_and(|claim| claim.form == ClaimForm::Nodes);
        self.proof.check_claimable(node, will_end)
    }

    fn interpret(&mut self, dialect: Dialect, event: &RecordedEvent) -> Result<Applied, String> {
        let json = event.read()?;
        let kind = json.field(&["type"]).and_then(Json::text);
        let (kind, af) = match dialect {
            Dialect::Documented => (kind.ok_or("it has no type")?, None),
            Dialect::Af => {
                let found = af::kind_in(&event.bytes);
                let known = found.clone().ok();
                let known = known.filter(|kind| af::known_to(kind) != KnownTo::None);
                let meant = known.or(kind).ok_or("it has no type")?;
                let problem = match found {
                    Ok(found) => self.follow_af(&found, event.seq, json),
                    Err(why) => Some(AfProblem::Refused(why.into())),
                };
                (meant, problem)
            }
        };
        let mut changes = Vec::new();
        match kind.as_str() {
            "lock_acquired" => self.lock_acquired(dialect, event, json, &mut changes)?,
            "lock_released" | "lock_reaped" => {
                self.has_lock_events |= dialect == Dialect::Af && kind == "lock_released";
                let fields = TenureEventFields::of(json);
                let owner = json.field(&["owner"]).and_then(Json::text);
                let end = ClaimEnd {
                    form: ClaimForm::Lock,
                    owner: owner.as_deref(),
                    token: fields.grant,
                    evidence: match fields.evidence {
                        Some(evidence) => EndEvidence::Given(evidence),
                        None if kind == "lock_reaped" => EndEvidence::Reaped,
                        None => EndEvidence::None,
                    },
                };
                if let Some(node) = node(&af::id(json)) {
                    self.end(node, end, &mut changes);
                }
            }
            "nodes_claimed" | "claim_refreshed" | "nodes_released" => {
                if dialect == Dialect::Af {
                    fields::check(&kind, json)?;
                }
                self.nodes_form(dialect, &kind, event, json, &mut changes)?;
            }
            "node_created" if dialect == Dialect::Af => {
                fields::check(&kind, json)?;
                self.end_nodes(&[af::node_text(json, &["node", "id"])], None, &mut changes);
            }
            "node_validated" | "node_admitted" | "node_refuted" | "node_archived"
                if dialect == Dialect::Af && af.is_none() =>
            {
                let id = af::id(json);
                let claim = node(&id).and_then(|node| self.claims.get(&node));
                let released = af::released_claim(json);
                if claim.is_some_and(|claim| Some(claim.token) == released) {
                    self.end_nodes(&[id], released, &mut changes);
                }
            }
            _ => {}
        }
        Ok(Applied { changes, af })
    }

    /// Applies an event by the rules of the `af` tool.
    fn follow_af(&mut self, kind: &str, seq: u64, event: Json<'_>) -> Option<AfProblem> {
        let known = af::known_to(kind);
        if known == KnownTo::None {
            return Some(AfProblem::UnknownType(kind.to_owned()));
        }
        let applied = fields::check(kind, event).and_then(|()| self.proof.apply(kind, seq, event));
        match (applied, known) {
            (Err(why), _) => Some(AfProblem::Refused(why)),
            (Ok(()), KnownTo::Since(version)) => Some(AfProblem::Since(kind.to_owned(), version)),
            (Ok(()), _) => None,
        }
    }

    fn lock_acquired(
        &mut self,
        dialect: Dialect,
        event: &RecordedEvent,
        json: Json<'_>,
        changes: &mut Vec<ClaimChange>,
    ) -> Result<(), String> {
        let (since, expires) = (time(json, "timestamp")?, time(json, "expires_at")?);
        let owner = json.field(&["owner"]).and_then(Json::text);
        let owner = owner.ok_or("it has no owner")?;
        self.has_lock_events |= dialect == Dialect::Af;
        let rule = match TenureEventFields::of(json).grant {
            Some(grant) => RenewalRule::OfGrant(grant),
            None => RenewalRule::UnlessExpired,
        };
        let claim = NodeClaim {
            owner,
            token: event.seq,
            digest: event.digest(),
            form: ClaimForm::Lock,
            since,
            heard: since,
            expires,
        };
        if let Some(node) = node(&af::id(json)) {
            self.claim(node, claim, rule, changes);
        }
        Ok(())
    }

    /// An event of the nodes form. In an `af` ledger its fields have been checked, and a missing time is
    /// one long ago, as the tool reads it.
    fn nodes_form(
        &mut self,
        dialect: Dialect,
        kind: &str,
        event: &RecordedEvent,
        json: Json<'_>,
        changes: &mut Vec<ClaimChange>,
    ) -> Result<(), String> {
        let (nodes, end, rule) = match kind {
            "nodes_released" => {
                let claims: Vec<u64> = af::claim_numbers(json).collect();
                for (index, id) in af::ids(json).into_iter().enumerate() {
                    let token = claims.get(index).copied().filter(|token| *token != 0);
                    self.end_nodes(&[id], token, changes);
                }
                return Ok(());
            }
            "claim_refreshed" => (vec![af::id(json)], "new_timeout", RenewalRule::Only),
            _ => (af::ids(json), "timeout", RenewalRule::Never),
        };
        let time = |name: &str| {
            let is_missing = json.field(&[name]).is_none();
            match dialect {
                Dialect::Af if is_missing => Ok(go_time::ZERO),
                Dialect::Af | Dialect::Documented => time(json, name),
            }
        };
        let (since, expires) = (time("timestamp")?, time(end)?);
        for node in nodes.iter().filter_map(|id| node(id)) {
            let claim = NodeClaim {
                owner: af::text(json, &["owner"]),
                token: event.seq,
                digest: event.digest(),
                form: ClaimForm::Nodes,
                since,
                heard: since,
                expires,
            };
            self.claim(node, claim, rule, changes);
        }
        Ok(())
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
                && current.form == new.form
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

    fn end_nodes(&mut self, ids: &[String], token: Option<u64>, changes: &mut Vec<ClaimChange>) {
        for node in ids.iter().filter_map(|id| node(id)) {
            let end = ClaimEnd {
                form: ClaimForm::Nodes,
                owner: None,
                token,
                evidence: EndEvidence::None,
            };
            self.end(node, end, changes);
        }
    }

    fn end(&mut self, node: NodeId, end: ClaimEnd<'_>, changes: &mut Vec<ClaimChange>) {
        let Some(claim) = self.claims.get(&node).cloned() else {
            return;
        };
        let is_about = end.form == claim.form
            && end.owner.is_none_or(|owner| owner == claim.owner)
            && end.token.is_none_or(|token| token == claim.token);
        let kind = if is_about {
            self.claims.remove(&node);
            ChangeKind::Ended(match end.evidence {
                EndEvidence::None => None,
                EndEvidence::Given(evidence) => Some(evidence),
                EndEvidence::Reaped => Some(Evidence::TimeRanOut {
                    expired_at: claim.expires,
                }),
            })
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

fn node(id: &str) -> Option<NodeId> {
    NodeId::parse(id).ok()
}

fn time(event: Json<'_>, name: &str) -> Result<Timestamp, String> {
    let found = event.field(&[name]);
    let found = found.ok_or_else(|| format!("it has no {name}"))?;
    let time = found.raw_text().and_then(go_time::parse);
    time.ok_or_else(|| format!("its {name} {} is not an RFC 3339 time", found.tidy()))
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
            let applied = self.replay.apply(self.dialect, &event).unwrap();
            applied
                .changes
                .into_iter()
                .map(|change| change.kind)
                .collect()
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
    }

    #[test]
    fn both_forms_are_read_in_both_dialects_and_kept_apart() {
        for dialect in [Dialect::Documented, Dialect::Af] {
            let mut ledger = TestLedger::new(dialect);
            let locked = acquired("00:00", "1", "a", "09:00", "");
            assert_eq!(ledger.append(&locked), [ChangeKind::Began], "{dialect}");
            // The programs that write one form do not read the other.
            let released = r#"{"type":"nodes_released","timestamp":"@01:00Z","node_ids":["1"]}"#;
            assert_eq!(ledger.append(released), [ChangeKind::Unmatched]);
            assert_eq!(ledger.owner("1"), Some(("a", 1)));
            let claimed = r#"{"type":"nodes_claimed","timestamp":"@02:00Z","node_ids":["1"],"owner":"b","timeout":"@08:00Z"}"#;
            assert_eq!(
                ledger.append(claimed),
                [ChangeKind::Overlapped, ChangeKind::Began]
            );
            let reaped =
                r#"{"type":"lock_reaped","timestamp":"@03:00Z","node_id":"1","owner":"b"}"#;
            assert_eq!(ledger.append(reaped), [ChangeKind::Unmatched]);
            assert_eq!(ledger.append(released), [ChangeKind::Ended(None)]);
            // Where the lock library has written, its form is the one that excludes it.
            assert_eq!(ledger.replay.form(dialect), ClaimForm::Lock);
        }
        let empty = Replay::default();
        assert_eq!(empty.form(Dialect::Af), ClaimForm::Nodes);
        assert_eq!(empty.form(Dialect::Documented), ClaimForm::Lock);
    }

    #[test]
    fn a_claim_of_the_af_tool_is_read_as_the_tool_reads_it() {
        let mut ledger = TestLedger::new(Dialect::Af);
        ledger.append(r#"{"type":"node_created","node":{"id":"1","workflow_state":"available","epistemic_state":"pending"}}"#);
        // No times, keys twice and in other letter cases: the tool does not mind.
        let claimed = r#"{"type":"nodes_claimed","node_ids":["1.7"],"Node_Ids":["1"],"owner":"x","OWNER":"a"}"#;
        assert_eq!(ledger.append(claimed), [ChangeKind::Began]);
        assert_eq!(ledger.owner("1"), Some(("a", 2)));
        // A later version ends the claim with the judgement, if it is about this claim.
        let judged = |claim: u64| {
            format!(
                r#"{{"type":"node_validated","node_id":"1","claim_seq":{claim},"release_claim":true}}"#
            )
        };
        assert_eq!(ledger.append(&judged(1)), []);
        ledger.append(r#"{"type":"refinement_requested","node_id":"1"}"#);
        assert_eq!(ledger.append(&judged(2)), [ChangeKind::Ended(None)]);
        let again = |seq: u64| {
            format!(r#"{{"type":"nodes_released","node_ids":["1"],"claim_seqs":[{seq}]}}"#)
        };
        assert_eq!(
            ledger.append(r#"{"type":"nodes_claimed","node_ids":["1"],"owner":"b"}"#),
            [ChangeKind::Began]
        );
        assert_eq!(ledger.append(&again(2)), [ChangeKind::Unmatched]);
        assert_eq!(ledger.append(&again(6)), [ChangeKind::Ended(None)]);
    }

    #[test]
    fn only_a_node_that_the_af_tool_would_let_be_claimed_can_be_claimed() {
        for (state, then, claimable) in [
            ("available", None, true),
            ("blocked", None, false),
            ("claimed", None, false),
            ("", None, false),
            (
                "available",
                Some(r#"{"type":"nodes_claimed","node_ids":["1"]}"#),
                true,
            ),
        ] {
            let mut ledger = TestLedger::new(Dialect::Af);
            ledger.append(&format!(
                r#"{{"type":"node_created","node":{{"id":"1","workflow_state":"{state}"}}}}"#
            ));
            if let Some(event) = then {
                ledger.append(event);
            }
            let found = ledger
                .replay
                .check_claimable(Dialect::Af, &node("1").unwrap());
            assert_eq!(found.is_ok(), claimable, "{state} {then:?}");
        }
        let nowhere = Replay::default().check_claimable(Dialect::Af, &node("1").unwrap());
        assert_eq!(nowhere, Err(Unclaimable::NotThere));
    }

    #[test]
    fn what_the_af_tool_makes_of_an_event_is_reported() {
        let mut replay = Replay::default();
        let mut apply = |text: &str| {
            let seq = replay.seq + 1;
            let bytes = text.as_bytes().to_vec();
            replay.apply(Dialect::Af, &RecordedEvent { seq, bytes })
        };
        let mut problem = |text: &str| apply(text).unwrap().af;
        assert_eq!(problem(r#"{"type":"def_added"}"#), None);
        assert_eq!(
            problem(r#"{"type":"hint_added","node_id":"1"}"#),
            Some(AfProblem::Refused("there is no node 1".into()))
        );
        assert_eq!(
            problem(r#"{"type":"pattern_added"}"#),
            Some(AfProblem::Since("pattern_added".into(), "0.1.1"))
        );
        assert_eq!(
            problem(r#"{"claim":{"type":"x"},"type":"def_added"}"#),
            Some(AfProblem::UnknownType("x".into()))
        );
        assert!(matches!(
            problem(r#"{"type":"def_added","definition":7}"#),
            Some(AfProblem::Refused(_))
        ));
        // A claim that the tool can't parse: it is not known who holds what.
        for text in [
            r#"{"type":"nodes_claimed","node_ids":"1"}"#,
            r#"{"type":"nodes_claimed","timeout":"soon"}"#,
            r#"{"type":"lock_acquired","node_id":"1","owner":"a","timestamp":"2026-01-01T00:00:00Z"}"#,
            r#"{"x":1}"#,
            "[]",
            "{",
        ] {
            assert!(apply(text).is_err(), "{text}");
        }
    }
}
