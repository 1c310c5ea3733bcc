//! The fields of the `af` tool's events: which values it accepts, and the order it writes them in.
//!
//! It accepts `null` for every field, skips fields that it does not have, and refuses the whole event
//! if one field has a value of another kind.

use jiff::Timestamp;

use super::EVERY;
use tenure_host::files::go_json::{Json, JsonKind, is_same_key};
use tenure_host::files::go_time;

/// The fields of an object, in the order in which they are written.
type Fields = &'static [(&'static str, FieldKind)];

/// What a field holds.
#[derive(Debug, Clone, Copy)]
enum FieldKind {
    Text,
    Bool,
    Whole,
    Time,
    Node,
    Texts,
    Wholes,
    Nodes,
    Object(Fields),
}

use FieldKind::{Bool, Node, Nodes, Object, Text, Texts, Time, Whole, Wholes};

/// The fields that every event begins with.
const HEAD: Fields = &[("type", Text), ("timestamp", Time), ("operation_id", Text)];

const NODE: Fields = &[
    ("id", Node),
    ("type", Text),
    ("statement", Text),
    ("latex", Text),
    ("inference", Text),
    ("context", Texts),
    ("dependencies", Nodes),
    ("validation_deps", Nodes),
    ("workflow_state", Text),
    ("epistemic_state", Text),
    ("taint_state", Text),
    ("content_hash", Text),
    ("created", Time),
    ("scope", Texts),
    ("claimed_by", Text),
    ("claimed_at", Time),
    ("crux", Bool),
    ("author", Text),
    ("validated_by", Text),
    ("validation_batch_id", Text),
    ("proof_author", Text),
];

const DEFINITION: Fields = &[
    ("id", Text),
    ("name", Text),
    ("definition", Text),
    ("created", Time),
];

const LEMMA: Fields = &[
    ("id", Text),
    ("statement", Text),
    ("node_id", Node),
    ("created", Time),
];

/// The fields of an event after [`HEAD`]. Of a type that came later only the node is known.
fn fields_of(kind: &str) -> Fields {
    match kind {
        "proof_initialized" => &[("conjecture", Text), ("author", Text)],
        "node_created" => &[("node", Object(NODE))],
        "nodes_claimed" => &[("node_ids", Nodes), ("owner", Text), ("timeout", Time)],
        "nodes_released" => &[("node_ids", Nodes), ("claim_seqs", Wholes)],
        "claim_refreshed" => &[("node_id", Node), ("owner", Text), ("new_timeout", Time)],
        "challenge_raised" => &[
            ("challenge_id", Text),
            ("node_id", Node),
            ("target", Text),
            ("reason", Text),
            ("severity", Text),
            ("raised_by", Text),
            ("category", Text),
            ("batch_id", Text),
        ],
        "challenge_resolved" | "challenge_withdrawn" => &[("challenge_id", Text)],
        "challenge_superseded" => &[("challenge_id", Text), ("node_id", Node)],
        "node_validated" => &[
            ("node_id", Node),
            ("note", Text),
            ("verified_by", Text),
            ("batch_id", Text),
            ("content_hash", Text),
            ("expected_hash_checked", Bool),
            ("claim_seq", Whole),
            ("release_claim", Bool),
            ("self_accepted", Bool),
        ],
        "node_admitted" | "node_refuted" => &[
            ("node_id", Node),
            ("by", Text),
            ("claim_seq", Whole),
            ("release_claim", Bool),
        ],
        "node_archived" => &[
            ("node_id", Node),
            ("reason", Text),
            ("forced", Bool),
            ("by", Text),
            ("claim_seq", Whole),
            ("release_claim", Bool),
            ("abandoned_obligations", Texts),
        ],
        "taint_recomputed" => &[("node_id", Node), ("new_taint", Text)],
        "def_added" => &[("definition", Object(DEFINITION))],
        "lemma_extracted" => &[("lemma", Object(LEMMA))],
        "lock_reaped" => &[("node_id", Node), ("owner", Text)],
        "node_amended" | "node_amended_reopened" => &[
            ("node_id", Node),
            ("previous_statement", Text),
            ("new_statement", Text),
            ("owner", Text),
        ],
        "scope_opened" => &[("node_id", Node), ("statement", Text)],
        "scope_closed" => &[("node_id", Node), ("discharge_node_id", Node)],
        "refinement_requested" => &[("node_id", Node), ("reason", Text), ("requested_by", Text)],
        _ => &[("node_id", Node)],
    }
}

fn find(fields: Fields, key: &str) -> Option<&'static (&'static str, FieldKind)> {
    fields.iter().find(|(name, _)| is_same_key(name, key))
}

/// Checks that the tool can parse an event of this type.
pub(crate) fn check(kind: &str, event: Json<'_>) -> Result<(), String> {
    if event.kind() != JsonKind::Object {
        return Err("it is not a JSON object".into());
    }
    for (key, value) in event.members() {
        let field = find(HEAD, &key).or_else(|| find(fields_of(kind), &key));
        if let Some((name, wanted)) = field {
            check_value(name, *wanted, value)?;
        }
    }
    Ok(())
}

fn check_value(name: &str, wanted: FieldKind, value: Json<'_>) -> Result<(), String> {
    let kind = value.kind();
    if kind == JsonKind::Null {
        return Ok(());
    }
    let shown = || {
        let text = value.tidy();
        match text.char_indices().nth(40) {
            None => text,
            Some((at, _)) => format!("{}…", text.get(..at).unwrap_or_default()),
        }
    };
    let is_not = |what: &str| Err(format!("its {name} is {}, not {what}", kind.words()));
    let elements = |wanted: FieldKind| {
        let mut elements = value.elements();
        elements.try_for_each(|value| check_value(name, wanted, value))
    };
    match wanted {
        Text if kind != JsonKind::Text => is_not("a text"),
        Bool if kind != JsonKind::Bool => is_not("true or false"),
        Whole if kind != JsonKind::Number => is_not("a number"),
        Object(_) if kind != JsonKind::Object => is_not("an object"),
        Texts | Wholes | Nodes if kind != JsonKind::List => is_not("a list"),
        Text | Bool => Ok(()),
        Whole => {
            let number = std::str::from_utf8(value.bytes()).ok();
            match number.and_then(|number| number.parse::<i64>().ok()) {
                Some(_) => Ok(()),
                None => Err(format!("its {name} {} is not a whole number", shown())),
            }
        }
        Time => match value.raw_text().map(go_time::parse) {
            Some(Some(_)) => Ok(()),
            _ => Err(format!("its {name} {} is not an RFC 3339 time", shown())),
        },
        Node => match value.raw_text() {
            Some(raw) if is_node(raw) => Ok(()),
            _ => Err(format!(
                "its {name} {} is not a node such as \"1.2\"",
                shown()
            )),
        },
        Texts => elements(Text),
        Wholes => elements(Whole),
        Nodes => elements(Node),
        Object(fields) => {
            let mut members = value.members();
            members.try_for_each(|(key, value)| match find(fields, &key) {
                Some((inner, wanted)) => check_value(&format!("{name}.{inner}"), *wanted, value),
                None => Ok(()),
            })
        }
    }
}

/// Whether the tool accepts a node: positive numbers with dots between them, of which the first is 1.
/// Nothing at all stands for no node.
fn is_node(raw: &[u8]) -> bool {
    let part = |part: &[u8]| {
        let digits = part.strip_prefix(b"+").unwrap_or(part);
        let plain = digits.iter().all(u8::is_ascii_digit);
        let number = plain.then(|| std::str::from_utf8(digits).ok()).flatten();
        number?.parse::<i64>().ok().filter(|number| *number > 0)
    };
    let mut parts = raw.split(|byte| *byte == b'.').map(part);
    raw.is_empty() || (parts.next() == Some(Some(1)) && parts.all(|part| part.is_some()))
}

/// An event as the tool writes it: its keys in their order, then those that the tool skips. A key that
/// occurs twice is returned as the error.
pub(crate) fn written(kind: &str, event: Json<'_>, now: Timestamp) -> Result<String, String> {
    debug_assert!(EVERY.contains(&kind), "{kind}");
    let fields = [HEAD, fields_of(kind)].concat();
    let mut members = ordered(&fields, event)?;
    if event.field(&["timestamp"]).is_none() {
        let at = members.len().min(1);
        members.insert(at, format!("\"timestamp\":\"{now}\""));
    }
    Ok(format!("{{{}}}", members.join(",")))
}

fn ordered(fields: &[(&'static str, FieldKind)], object: Json<'_>) -> Result<Vec<String>, String> {
    let mut known: Vec<Option<String>> = vec![None; fields.len()];
    let mut others: Vec<(String, String)> = Vec::new();
    for (key, value) in object.members() {
        let index = fields.iter().position(|(name, _)| is_same_key(name, &key));
        let field = index.and_then(|index| Some((fields.get(index)?, known.get_mut(index)?)));
        match field {
            Some((_, Some(_))) => return Err(key),
            Some(((name, wanted), slot)) => {
                let value = match wanted {
                    Object(inner) if value.kind() == JsonKind::Object => {
                        format!("{{{}}}", ordered(inner, value)?.join(","))
                    }
                    _ => value.compact(),
                };
                *slot = Some(format!("\"{name}\":{value}"));
            }
            None if others.iter().any(|(other, _)| *other == key) => return Err(key),
            None => {
                let name = serde_json::Value::from(key.as_str()).to_string();
                let name = Json::parse(name.as_bytes()).map(Json::compact);
                let text = format!("{}:{}", name.unwrap_or_default(), value.compact());
                others.push((key, text));
            }
        }
    }
    let known = known.into_iter().flatten();
    Ok(known
        .chain(others.into_iter().map(|(_, text)| text))
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_of_another_kind_is_refused() {
        for (kind, event, words) in [
            (
                "nodes_claimed",
                r#"{"node_ids":"1"}"#,
                "node_ids is a text, not a list",
            ),
            (
                "nodes_claimed",
                r#"{"node_ids":["1",7]}"#,
                "7 is not a node",
            ),
            (
                "nodes_claimed",
                r#"{"node_ids":["2"]}"#,
                "\"2\" is not a node",
            ),
            ("nodes_claimed", r#"{"node_ids":["1.0"]}"#, "is not a node"),
            (
                "nodes_claimed",
                r#"{"node_ids":["\u0031"]}"#,
                "is not a node",
            ),
            (
                "nodes_claimed",
                r#"{"timeout":"soon"}"#,
                "timeout \"soon\" is not",
            ),
            ("nodes_claimed", r#"{"timeout":7}"#, "timeout 7 is not"),
            ("nodes_claimed", r#"{"Owner":7}"#, "owner is a number"),
            ("nodes_claimed", r#"{"type":7}"#, "type is a number"),
            (
                "nodes_claimed",
                r#"{"timestamp":"2026-11-15T23:59:60Z"}"#,
                "timestamp",
            ),
            (
                "node_created",
                r#"{"node":[]}"#,
                "node is a list, not an object",
            ),
            (
                "node_created",
                r#"{"node":{"statement":7}}"#,
                "node.statement is a number",
            ),
            (
                "node_created",
                r#"{"node":{"created":"x"}}"#,
                "node.created",
            ),
            (
                "node_created",
                r#"{"node":{"context":[7]}}"#,
                "context is a number",
            ),
            ("node_validated", r#"{"claim_seq":1.5}"#, "whole number"),
            ("node_validated", r#"{"release_claim":1}"#, "true or false"),
            ("def_added", "[]", "not a JSON object"),
        ] {
            let json = Json::parse(event.as_bytes()).unwrap();
            let why = check(kind, json).unwrap_err();
            assert!(why.contains(words), "{event}: {why}");
        }
        for (kind, event) in [
            (
                "nodes_claimed",
                r#"{"node_ids":null,"owner":null,"timeout":null}"#,
            ),
            (
                "nodes_claimed",
                r#"{"node_ids":["1","1.2.10","",null],"extra":1e999}"#,
            ),
            ("def_added", "{}"),
        ] {
            let json = Json::parse(event.as_bytes()).unwrap();
            assert_eq!(check(kind, json), Ok(()), "{event}");
        }
    }

    #[test]
    fn keys_are_written_in_the_order_of_the_tool() {
        let now = "2026-11-15T18:49:40.5Z".parse().unwrap();
        let write = |kind: &str, text: &str| {
            written(kind, Json::parse(text.as_bytes()).unwrap(), now)
                .map_err(|key| format!("!{key}"))
        };
        assert_eq!(
            write(
                "node_created",
                r#"{ "extra" : 1e999, "node" : {"type":"claim","x":"<","id":"1"}, "\u0074ype":"node_created" }"#
            )
            .unwrap(),
            r#"{"type":"node_created","timestamp":"2026-11-15T18:49:40.5Z","node":{"id":"1","type":"claim","x":"\u003c"},"extra":1e999}"#
        );
        assert_eq!(
            write(
                "nodes_claimed",
                r#"{"Timeout":"b","owner":"a","node_ids":["1"],"timestamp":"c","type":"nodes_claimed"}"#
            )
            .unwrap(),
            r#"{"type":"nodes_claimed","timestamp":"c","node_ids":["1"],"owner":"a","timeout":"b"}"#
        );
        for (text, key) in [
            (r#"{"type":"def_added","Type":"x"}"#, "!Type"),
            (r#"{"type":"def_added","x":1,"\u0078":2}"#, "!x"),
            (
                r#"{"type":"def_added","definition":{"id":"a","ID":"b"}}"#,
                "!ID",
            ),
        ] {
            assert_eq!(write("def_added", text).unwrap_err(), key);
        }
    }
}
