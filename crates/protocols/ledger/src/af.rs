//! What the `af` tool makes of a ledger: [`AfProof`].
//!
//! It replays every event before it does anything else, and stops at the first one that it does not
//! know, can't parse or can't apply: the whole proof is unreadable from then on. So tenure follows the
//! same replay, appends nothing that would stop it, and reports what does.
//!
//! | module | what it holds |
//! |---|---|
//! | this one | the types, by version, and the rules by which events are applied |
//! | `fields` | the fields of each type, and the order in which they are written |

pub(super) mod fields;

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::node::NodeId;
use tenure_host::files::go_json::{Json, JsonKind};

/// Which versions of the tool apply a type of event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum KnownTo {
    /// All of them.
    Every,
    /// This one and later ones. An earlier one can't read a ledger with such an event.
    Since(&'static str),
    /// None up to [`NEWEST`].
    None,
}

/// The newest version whose types are known here.
pub(super) const NEWEST: &str = "0.1.9";

/// The types that every version applies.
const EVERY: [&str; 20] = [
    "proof_initialized",
    "node_created",
    "nodes_claimed",
    "claim_refreshed",
    "nodes_released",
    "node_validated",
    "node_admitted",
    "node_refuted",
    "node_archived",
    "taint_recomputed",
    "def_added",
    "lemma_extracted",
    "challenge_raised",
    "challenge_resolved",
    "challenge_withdrawn",
    "challenge_superseded",
    "node_amended",
    "scope_opened",
    "scope_closed",
    "refinement_requested",
];

/// The types that came later, by the first version that is certain to apply them. (Earlier versions
/// know the name `lock_reaped` and fail when they apply it.)
const LATER: [(&str, &str); 17] = [
    ("node_submitted", "0.1.1"),
    ("node_unvalidated", "0.1.1"),
    ("node_vetoed", "0.1.1"),
    ("approach_tried", "0.1.1"),
    ("strategy_proposed", "0.1.1"),
    ("evidence_attached", "0.1.1"),
    ("hint_added", "0.1.1"),
    ("pattern_added", "0.1.1"),
    ("outline_set", "0.1.1"),
    ("outline_stage_linked", "0.1.1"),
    ("node_unadmitted", "0.1.3"),
    ("node_proof_authored", "0.1.6"),
    ("claim_tested", "0.1.6"),
    ("def_checked", "0.1.6"),
    ("node_deps_amended", "0.1.9"),
    ("node_amended_reopened", "0.1.9"),
    ("lock_reaped", "0.1.9"),
];

/// Which versions apply events of this type.
pub(super) fn known_to(kind: &str) -> KnownTo {
    if EVERY.contains(&kind) {
        return KnownTo::Every;
    }
    match LATER.iter().find(|(name, _)| *name == kind) {
        Some((_, version)) => KnownTo::Since(version),
        None => KnownTo::None,
    }
}

/// The type of an event as the tool finds it: after the first `"type"` in the bytes, wherever that is,
/// and without decoding escapes.
pub(super) fn kind_in(bytes: &[u8]) -> Result<String, &'static str> {
    const KEY: &[u8] = b"\"type\"";
    let found = bytes.windows(KEY.len()).position(|part| part == KEY);
    let found = found.ok_or("it has no \"type\"")?;
    let rest = bytes
        .get(found.saturating_add(KEY.len())..)
        .unwrap_or_default();
    let rest = rest.trim_ascii_start();
    let rest = rest.strip_prefix(b":");
    let rest = rest.ok_or("the first \"type\" in it is not a key")?;
    let rest = rest.trim_ascii_start().strip_prefix(b"\"");
    let rest = rest.ok_or("the first \"type\" in it is not a text")?;
    let mut end = 0;
    loop {
        match rest.get(end) {
            Some(b'"') => break,
            Some(b'\\') => end = end.saturating_add(2),
            Some(_) => end = end.saturating_add(1),
            None => return Err("the first \"type\" in it does not end"),
        }
    }
    let kind = rest.get(..end).unwrap_or_default();
    Ok(String::from_utf8_lossy(kind).into_owned())
}

const AVAILABLE: &str = "available";
const CLAIMED: &str = "claimed";
const BLOCKED: &str = "blocked";

const PENDING: &str = "pending";
const VALIDATED: &str = "validated";
const NEEDS_REFINEMENT: &str = "needs_refinement";
const DRAFT: &str = "draft";

/// A node of a proof.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct AfNode {
    #[serde(skip_serializing_if = "AfNode::is_available")]
    workflow: String,
    #[serde(skip_serializing_if = "AfNode::is_pending")]
    epistemic: String,
    /// The owner of its claim.
    #[serde(skip_serializing_if = "String::is_empty")]
    owner: String,
    /// The number of the event that claimed it.
    #[serde(skip_serializing_if = "AfNode::is_zero")]
    claim: u64,
}

impl AfNode {
    fn is_available(state: &String) -> bool {
        state == AVAILABLE
    }

    fn is_pending(state: &String) -> bool {
        state == PENDING
    }

    #[allow(clippy::trivially_copy_pass_by_ref, reason = "serde passes it so")]
    fn is_zero(number: &u64) -> bool {
        *number == 0
    }

    fn release(&mut self) {
        self.workflow = AVAILABLE.into();
        self.owner = String::new();
        self.claim = 0;
    }
}

impl Default for AfNode {
    fn default() -> Self {
        Self {
            workflow: AVAILABLE.into(),
            epistemic: PENDING.into(),
            owner: String::new(),
            claim: 0,
        }
    }
}

/// The state of a proof after some event, as far as it decides which events can follow.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct AfProof {
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    nodes: BTreeMap<String, AfNode>,
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    challenges: BTreeSet<String>,
    /// The scopes by node, and whether they are open.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    scopes: BTreeMap<String, bool>,
}

/// Why a node can't be claimed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Unclaimable {
    /// There is no such node.
    NotThere,
    /// Its workflow state.
    State(String),
}

impl AfProof {
    /// Whether the tool would accept a claim on this node. If it is claimed, that claim may be about to
    /// end.
    pub(super) fn check_claimable(
        &self,
        node: &NodeId,
        claim_will_end: bool,
    ) -> Result<(), Unclaimable> {
        let node = self.nodes.get(&node.to_string());
        match node.map(|node| node.workflow.as_str()) {
            None => Err(Unclaimable::NotThere),
            Some(AVAILABLE) => Ok(()),
            Some(CLAIMED) if claim_will_end => Ok(()),
            Some(state) => Err(Unclaimable::State(state.to_owned())),
        }
    }

    /// Applies an event of a type that some version knows, whose fields have been checked, or says why
    /// the tool can't.
    pub(super) fn apply(&mut self, kind: &str, seq: u64, event: Json<'_>) -> Result<(), String> {
        match kind {
            "node_created" => self.create(event),
            "nodes_claimed" => {
                let owner = text(event, &["owner"]);
                for id in ids(event) {
                    let node = self.node(&id)?;
                    if node.workflow != AVAILABLE {
                        return Err(format!("node {id} is {}", described(&node.workflow)));
                    }
                    node.workflow = CLAIMED.into();
                    node.owner.clone_from(&owner);
                    node.claim = seq;
                }
            }
            "claim_refreshed" => {
                let (id, owner) = (id(event), text(event, &["owner"]));
                let node = self.node(&id)?;
                if node.workflow != CLAIMED {
                    return Err(format!("node {id} is not claimed"));
                }
                if node.owner != owner {
                    return Err(format!(
                        "node {id} is claimed by {:?}, not {owner:?}",
                        node.owner
                    ));
                }
            }
            "nodes_released" => {
                let claims: Vec<u64> = claim_numbers(event).collect();
                for (index, id) in ids(event).into_iter().enumerate() {
                    let node = self.node(&id)?;
                    let claim = claims.get(index).filter(|claim| **claim != 0);
                    if claim.is_some_and(|claim| *claim != node.claim) {
                        // About an earlier claim.
                        continue;
                    }
                    if node.workflow != CLAIMED && node.workflow != BLOCKED {
                        return Err(format!("node {id} is not claimed"));
                    }
                    node.release();
                }
            }
            "node_validated" => self.judge(event, VALIDATED)?,
            "node_admitted" => self.judge(event, "admitted")?,
            "node_refuted" => self.judge(event, "refuted")?,
            "node_archived" => self.judge(event, "archived")?,
            "refinement_requested" => self.judge(event, NEEDS_REFINEMENT)?,
            "node_submitted" | "node_unvalidated" | "node_unadmitted" | "node_amended_reopened" => {
                self.node(&id(event))?.epistemic = PENDING.into();
            }
            "node_vetoed" => self.node(&id(event))?.epistemic = "refuted".into(),
            "node_deps_amended" => {
                let node = self.node(&id(event))?;
                if event
                    .field(&["reopened"])
                    .is_some_and(|json| json.bytes() == b"true")
                {
                    node.epistemic = PENDING.into();
                }
            }
            "taint_recomputed"
            | "node_amended"
            | "approach_tried"
            | "strategy_proposed"
            | "evidence_attached"
            | "hint_added"
            | "claim_tested"
            | "node_proof_authored" => {
                self.node(&id(event))?;
            }
            "challenge_raised" => {
                let severity = text(event, &["severity"]);
                if !["", "critical", "major", "minor", "note"].contains(&severity.as_str()) {
                    return Err(format!("there is no severity {severity:?}"));
                }
                self.challenges.insert(text(event, &["challenge_id"]));
            }
            "challenge_resolved" | "challenge_withdrawn" | "challenge_superseded" => {
                let challenge = text(event, &["challenge_id"]);
                if !self.challenges.contains(&challenge) {
                    return Err(format!("there is no challenge {challenge:?}"));
                }
            }
            "scope_opened" => {
                let id = id(event);
                if id.is_empty() {
                    return Err("it names no node".into());
                }
                if text(event, &["statement"]).trim().is_empty() {
                    return Err("its statement is empty".into());
                }
                if self.scopes.contains_key(&id) {
                    return Err(format!("node {id} has a scope already"));
                }
                self.scopes.insert(id, true);
            }
            "scope_closed" => {
                let id = id(event);
                match self.scopes.get_mut(&id) {
                    None => return Err(format!("node {id} has no scope")),
                    Some(false) => return Err(format!("the scope of node {id} is closed already")),
                    Some(open) => *open = false,
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn node(&mut self, id: &str) -> Result<&mut AfNode, String> {
        let node = self.nodes.get_mut(id);
        node.ok_or_else(|| {
            if id.is_empty() {
                "it names no node".into()
            } else {
                format!("there is no node {id}")
            }
        })
    }

    fn create(&mut self, event: Json<'_>) {
        let node = AfNode {
            workflow: text(event, &["node", "workflow_state"]),
            epistemic: text(event, &["node", "epistemic_state"]),
            owner: text(event, &["node", "claimed_by"]),
            claim: 0,
        };
        self.nodes.insert(node_text(event, &["node", "id"]), node);
    }

    /// Changes what is thought of a node. Later versions may end its claim with the same event.
    fn judge(&mut self, event: Json<'_>, to: &str) -> Result<(), String> {
        let id = id(event);
        let node = self.node(&id)?;
        let allowed = match node.epistemic.as_str() {
            PENDING | NEEDS_REFINEMENT => to != NEEDS_REFINEMENT,
            VALIDATED => to == NEEDS_REFINEMENT,
            DRAFT => to == "archived",
            _ => false,
        };
        if !allowed {
            return Err(format!(
                "node {id} is {} and can't become {to}",
                described(&node.epistemic)
            ));
        }
        node.epistemic = to.into();
        if node.claim != 0 && released_claim(event) == Some(node.claim) {
            node.release();
        }
        Ok(())
    }
}

/// The claim that a judgement on a node ends: the number of the event that began it.
pub(super) fn released_claim(event: Json<'_>) -> Option<u64> {
    let released = event.field(&["release_claim"])?;
    (released.bytes() == b"true").then(|| event.field(&["claim_seq"]).and_then(whole))?
}

/// The claims that a release is about, in the order of its nodes; 0 for any.
pub(super) fn claim_numbers(event: Json<'_>) -> impl Iterator<Item = u64> {
    let numbers = event.field(&["claim_seqs"]).into_iter();
    numbers.flat_map(|list| list.elements().map(|json| whole(json).unwrap_or(0)))
}

fn whole(json: Json<'_>) -> Option<u64> {
    std::str::from_utf8(json.bytes()).ok()?.parse().ok()
}

/// The nodes in `node_ids`.
pub(super) fn ids(event: Json<'_>) -> Vec<String> {
    let list = event.field(&["node_ids"]);
    let ids = list.into_iter().flat_map(|list| list.elements());
    ids.map(|id| raw(id).unwrap_or_default()).collect()
}

/// The node in `node_id`.
pub(super) fn id(event: Json<'_>) -> String {
    node_text(event, &["node_id"])
}

/// The node in this field.
pub(super) fn node_text(event: Json<'_>, path: &[&str]) -> String {
    event.field(path).and_then(raw).unwrap_or_default()
}

/// A text whose escapes the tool does not decode.
fn raw(json: Json<'_>) -> Option<String> {
    let raw = (json.kind() == JsonKind::Text).then(|| json.raw_text())?;
    Some(String::from_utf8_lossy(raw?).into_owned())
}

pub(super) fn text(event: Json<'_>, path: &[&str]) -> String {
    event.field(path).and_then(Json::text).unwrap_or_default()
}

fn described(state: &str) -> String {
    match state {
        "" => "in no state".into(),
        AVAILABLE | CLAIMED | BLOCKED => state.into(),
        _ => format!("{state:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_type_in_the_bytes_counts() {
        for (bytes, kind) in [
            (r#"{"type":"a"}"#, Ok("a")),
            (r#"{"claim":{"type" : "b"},"type":"a"}"#, Ok("b")),
            (r#"{"text":"\"type\"","type":"a"}"#, Ok("a")),
            (r#"{"type":"a\u0062\"c"}"#, Ok(r#"a\u0062\"c"#)),
            (r#"{"\u0074ype":"a"}"#, Err("no \"type\"")),
            (r#"{"x":["type"],"type":"a"}"#, Err("not a key")),
            (r#"{"type":7}"#, Err("not a text")),
        ] {
            match (kind_in(bytes.as_bytes()), kind) {
                (Ok(found), Ok(kind)) => assert_eq!(found, kind, "{bytes}"),
                (Err(why), Err(words)) => assert!(why.contains(words), "{bytes}: {why}"),
                other => panic!("{bytes}: {other:?}"),
            }
        }
    }

    /// Applies events, and returns what each is refused for.
    fn replay(events: &[&str]) -> Vec<Option<String>> {
        let mut proof = AfProof::default();
        let numbered = (1..).zip(events);
        let apply = |(seq, text): (u64, &&str)| {
            let json = Json::parse(text.as_bytes()).unwrap();
            let kind = kind_in(text.as_bytes()).unwrap();
            fields::check(&kind, json)
                .and_then(|()| proof.apply(&kind, seq, json))
                .err()
        };
        numbered.map(apply).collect()
    }

    fn node(id: &str, more: &str) -> String {
        format!(
            r#"{{"type":"node_created","node":{{"id":"{id}","workflow_state":"available","epistemic_state":"pending"{more}}}}}"#
        )
    }

    #[test]
    fn what_the_tool_can_not_apply_is_refused() {
        let (one, draft) = (node("1", ""), node("1.1", r#","epistemic_state":"draft""#));
        let bare = r#"{"type":"node_created","node":{"id":"1.2"}}"#;
        let claim = r#"{"type":"nodes_claimed","node_ids":["1"],"owner":"a"}"#;
        let free = r#"{"type":"nodes_released","node_ids":["1"]}"#;
        for (before, event, words) in [
            (vec![], claim, Some("no node 1")),
            (vec![one.as_str()], claim, None),
            (vec![&one, claim], claim, Some("node 1 is claimed")),
            (vec![&one, claim, free], claim, None),
            (
                vec![bare],
                r#"{"type":"nodes_claimed","node_ids":["1.2"]}"#,
                Some("in no state"),
            ),
            (
                vec![&one],
                r#"{"type":"nodes_claimed","node_ids":["1","1"]}"#,
                Some("node 1 is claimed"),
            ),
            (vec![&one], free, Some("node 1 is not claimed")),
            (vec![&one, claim], free, None),
            // A later version names the claim.
            (
                vec![&one, claim],
                r#"{"type":"nodes_released","node_ids":["1"],"claim_seqs":[2]}"#,
                None,
            ),
            (
                vec![
                    &one,
                    claim,
                    r#"{"type":"nodes_released","node_ids":["1"],"claim_seqs":[1]}"#,
                ],
                claim,
                Some("node 1 is claimed"),
            ),
            (
                vec![
                    &one,
                    claim,
                    r#"{"type":"node_validated","node_id":"1","claim_seq":2,"release_claim":true}"#,
                ],
                claim,
                None,
            ),
            (
                vec![&one],
                r#"{"type":"claim_refreshed","node_id":"1","owner":"a"}"#,
                Some("not claimed"),
            ),
            (
                vec![&one, claim],
                r#"{"type":"claim_refreshed","node_id":"1","owner":"b"}"#,
                Some("claimed by \"a\""),
            ),
            (
                vec![&one],
                r#"{"type":"node_validated","node_id":"1"}"#,
                None,
            ),
            (
                vec![&one, r#"{"type":"node_refuted","node_id":"1"}"#],
                r#"{"type":"node_validated","node_id":"1"}"#,
                Some("\"refuted\" and can't become validated"),
            ),
            (
                vec![&one],
                r#"{"type":"refinement_requested","node_id":"1"}"#,
                Some("can't become needs_refinement"),
            ),
            (
                vec![&draft],
                r#"{"type":"node_archived","node_id":"1.1"}"#,
                None,
            ),
            (
                vec![&one],
                r#"{"type":"node_amended"}"#,
                Some("names no node"),
            ),
            (
                vec![],
                r#"{"type":"challenge_raised","challenge_id":"c","severity":"huge"}"#,
                Some("severity"),
            ),
            (
                vec![],
                r#"{"type":"challenge_resolved","challenge_id":"c"}"#,
                Some("no challenge \"c\""),
            ),
            (
                vec![r#"{"type":"challenge_raised","challenge_id":"c"}"#],
                r#"{"type":"challenge_withdrawn","challenge_id":"c"}"#,
                None,
            ),
            (
                vec![],
                r#"{"type":"scope_closed","node_id":"1"}"#,
                Some("no scope"),
            ),
            (
                vec![r#"{"type":"scope_opened","node_id":"1","statement":"x"}"#],
                r#"{"type":"scope_opened","node_id":"1","statement":"x"}"#,
                Some("a scope already"),
            ),
            (
                vec![],
                r#"{"type":"scope_opened","node_id":"1","statement":" "}"#,
                Some("statement is empty"),
            ),
        ] {
            let mut events = before.clone();
            events.push(event);
            let found = replay(&events);
            let (last, earlier) = found.split_last().unwrap();
            assert!(
                earlier.iter().all(Option::is_none),
                "{before:?}: {earlier:?}"
            );
            match (last, words) {
                (None, None) => {}
                (Some(why), Some(words)) => assert!(why.contains(words), "{event}: {why}"),
                other => panic!("{before:?} {event}: {other:?}"),
            }
        }
    }
}
