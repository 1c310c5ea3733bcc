//! One event: [`NewEvent`] before it has a number, [`RecordedEvent`] after.
//!
//! Events are written as the `af` tool writes them: compact JSON without a newline at the end, `<`,
//! `>` and `&` escaped, times in UTC without trailing zeros. An event that a caller passes in is made
//! compact without being parsed into values: numbers of any length and every string stay as they were.
//! The order of the keys stays, too, except in an `af` ledger, where they get the tool's order.

use jiff::Timestamp;
use serde_json::Value;

use crate::af::{self, KnownTo, fields};
use crate::dialect::Dialect;
use crate::replay::Replay;
use tenure_host::files::go_json::{Json, JsonKind};
use tenure_host::files::go_time;
use tenure_host::files::protocol::digest;

/// The size limit of an event: the `af` tool can't read a larger one.
pub const MAX_EVENT: usize = 1 << 20;

/// Why a text is not an event.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadEvent {
    /// Not JSON.
    #[error("the event is not valid JSON ({0}): write an object such as {{\"type\":\"note\"}}")]
    NotJson(String),
    /// JSON, but not an object.
    #[error("the event is not a JSON object: write one such as {{\"type\":\"note\"}}")]
    NotObject,
    /// No type.
    #[error(
        "the event has no type: add one that is a text and not empty, for example {{\"type\":\"note\"}}"
    )]
    NoType,
    /// A key occurs twice.
    #[error(
        "the event has the key {0:?} twice, and programs differ in which one they read: leave one out"
    )]
    DuplicateKey(String),
    /// Its timestamp is not a time.
    #[error(
        "the event's timestamp {0} is not an RFC 3339 time: write one such as \"2026-11-15T18:49:40Z\", or leave it out"
    )]
    BadTime(String),
    /// Too large.
    #[error("the event has {0} bytes with its timestamp: the limit is {MAX_EVENT} (1 MiB)")]
    TooLarge(usize),
    /// The `af` tool does not know its type.
    #[error(
        "{0}, and can't read a ledger that contains it: \
         use one of its own types, or a ledger of the documented dialect (tenure ledger init)"
    )]
    UnknownToAf(String),
    /// It is about a claim, and no program could read it.
    #[error("the event can't be read as a claim: {0}")]
    NotAClaim(String),
    /// The `af` tool can't parse it.
    #[error("the af tool can't read this event: {0}")]
    UnreadableToAf(String),
}

/// An event without a number.
///
/// ```
/// use tenure_ledger::NewEvent;
///
/// let event = NewEvent::parse(r#"{ "type": "note", "text": "a < b" }"#).unwrap();
/// assert_eq!(event.kind(), "note");
/// assert!(NewEvent::parse(r#"{"text": "no type"}"#).is_err());
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewEvent {
    kind: String,
    /// Compact JSON.
    json: String,
    timed: bool,
}

impl NewEvent {
    /// Parses a text.
    pub fn parse(text: &str) -> Result<Self, BadEvent> {
        let json =
            Json::parse(text.as_bytes()).map_err(|error| BadEvent::NotJson(error.to_string()))?;
        if json.kind() != JsonKind::Object {
            return Err(BadEvent::NotObject);
        }
        let (mut kind, mut time, mut keys) = (None, None, Vec::new());
        for (key, value) in json.members() {
            match key.as_str() {
                "type" => kind = value.text().filter(|kind| !kind.trim().is_empty()),
                "timestamp" => time = Some(value),
                _ => {}
            }
            keys.push(key);
        }
        keys.sort_unstable();
        let twice = keys.iter().zip(keys.iter().skip(1)).find(|(a, b)| a == b);
        if let Some((key, _)) = twice {
            return Err(BadEvent::DuplicateKey(key.clone()));
        }
        let kind = kind.ok_or(BadEvent::NoType)?;
        let is_time = |value: &Json<'_>| {
            let raw = value.raw_text();
            raw.is_some_and(|raw| go_time::parse(raw).is_some())
        };
        if let Some(value) = time.filter(|value| !is_time(value)) {
            return Err(BadEvent::BadTime(value.tidy()));
        }
        let event = Self {
            kind,
            json: json.compact(),
            timed: time.is_some(),
        };
        // With the longest timestamp that may be added.
        let length = event.bytes(Dialect::Documented, LONGEST).len();
        if length > MAX_EVENT {
            return Err(BadEvent::TooLarge(length));
        }
        Ok(event)
    }

    /// The event with these fields.
    pub(super) fn of(fields: &Value) -> Result<Self, BadEvent> {
        Self::parse(&fields.to_string())
    }

    /// Its type.
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// Whether it may be written in this dialect, as far as the event alone decides that.
    pub fn check(&self, dialect: Dialect) -> Result<(), BadEvent> {
        let bytes = self.bytes(dialect, LONGEST);
        let Ok(json) = Json::parse(&bytes) else {
            return Err(BadEvent::NotObject);
        };
        match dialect {
            Dialect::Documented => {
                let event = RecordedEvent { seq: 1, bytes };
                let read = Replay::default().apply(dialect, &event);
                read.map(|_| ()).map_err(BadEvent::NotAClaim)
            }
            Dialect::Af => {
                match af::known_to(&self.kind) {
                    KnownTo::Every => {}
                    known => return Err(BadEvent::UnknownToAf(unknown_to_af(&self.kind, known))),
                }
                fields::written(&self.kind, self.read(), LONGEST)
                    .map_err(BadEvent::DuplicateKey)?;
                fields::check(&self.kind, json).map_err(BadEvent::UnreadableToAf)
            }
        }
    }

    fn read(&self) -> Json<'_> {
        Json::parse(self.json.as_bytes()).unwrap_or(Json::NULL)
    }

    /// The bytes of the event in this dialect. If it has no timestamp, it gets this one.
    pub fn bytes(&self, dialect: Dialect, now: Timestamp) -> Vec<u8> {
        if dialect == Dialect::Af
            && dialect.knows(&self.kind)
            && let Ok(text) = fields::written(&self.kind, self.read(), now)
        {
            return text.into_bytes();
        }
        if self.timed {
            return self.json.clone().into_bytes();
        }
        let open = self.json.strip_suffix('}').unwrap_or(&self.json);
        format!("{open},\"timestamp\":\"{now}\"}}").into_bytes()
    }
}

/// A time whose text is as long as any.
const LONGEST: Timestamp = Timestamp::constant(1_111_111_111, 111_111_111);

/// Which versions of the `af` tool do not know a type.
pub(super) fn unknown_to_af(kind: &str, known: KnownTo) -> String {
    match known {
        KnownTo::Since(version) => {
            format!(
                "the af tool before version {version} does not apply events of the type {kind:?}"
            )
        }
        KnownTo::Every | KnownTo::None => format!(
            "the af tool, up to version {}, does not know the event type {kind:?}",
            af::NEWEST
        ),
    }
}

/// An event with a number, as it is on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecordedEvent {
    /// Its number.
    pub seq: u64,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

impl RecordedEvent {
    /// A digest of its bytes.
    pub fn digest(&self) -> u64 {
        digest(&self.bytes)
    }

    /// Its JSON object, checked, or what is wrong with it.
    pub(super) fn read(&self) -> Result<Json<'_>, String> {
        if self.bytes.len() > MAX_EVENT {
            return Err("it is larger than 1 MiB".into());
        }
        let json =
            Json::parse(&self.bytes).map_err(|error| format!("it is not valid JSON ({error})"))?;
        match json.kind() {
            JsonKind::Object => Ok(json),
            _ => Err("it is not a JSON object".into()),
        }
    }

    /// Its JSON object as compact text in valid UTF-8, or what is wrong with it.
    pub fn text(&self) -> Result<String, String> {
        Ok(self.read()?.tidy())
    }

    /// The same without these fields; nothing if no other is left.
    pub fn text_without(&self, names: &[&str]) -> String {
        let Ok(json) = self.read() else {
            return String::new();
        };
        let others = json.members();
        let others = others.filter(|(key, _)| !names.contains(&key.as_str()));
        let texts = others.map(|(key, value)| format!("{}:{}", Value::from(key), value.tidy()));
        let texts: Vec<String> = texts.collect();
        if texts.is_empty() {
            return String::new();
        }
        format!("{{{}}}", texts.join(","))
    }

    /// Why no claim can be made while this event is in a ledger, if that is so: it can't be read.
    pub fn flaw(&self, dialect: Dialect) -> Option<String> {
        Replay::default().apply(dialect, self).err()
    }

    /// Its JSON object, or what is wrong with it. A [`Value`] can't hold numbers beyond `f64`, and is
    /// not nested more than 128 levels deep: [`text`](Self::text) has no such limits.
    pub fn value(&self) -> Result<Value, String> {
        let text = self.text()?;
        serde_json::from_str(&text)
            .map_err(|error| format!("it can't be held as a value ({error})"))
    }

    /// Its type and its time, where they can be read.
    pub fn head(&self) -> (Option<String>, Option<Timestamp>) {
        let Ok(json) = self.read() else {
            return (None, None);
        };
        let time = json.field(&["timestamp"]);
        (
            json.field(&["type"]).and_then(Json::text),
            time.and_then(Json::raw_text).and_then(go_time::parse),
        )
    }

    /// The text in a field, if it is there.
    pub fn field(&self, name: &str) -> Option<String> {
        self.read().ok()?.field(&[name])?.text()
    }

    /// The nodes that it is about.
    pub fn nodes(&self) -> Vec<String> {
        let Ok(json) = self.read() else {
            return Vec::new();
        };
        let several = json.field(&["node_ids"]);
        let several = several.into_iter().flat_map(Json::elements);
        let one = [json.field(&["node_id"]), json.field(&["node", "id"])];
        let all = several.chain(one.into_iter().flatten());
        all.filter_map(Json::text).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(text: &str) -> String {
        let event = NewEvent::parse(text).unwrap();
        String::from_utf8(event.bytes(
            Dialect::Documented,
            "2026-11-15T18:49:40.500Z".parse().unwrap(),
        ))
        .unwrap()
    }

    #[test]
    fn an_event_is_made_compact_and_otherwise_unchanged() {
        for (text, bytes) in [
            (
                "{ \"type\" : \"a\" }\n",
                r#"{"type":"a","timestamp":"2026-11-15T18:49:40.5Z"}"#,
            ),
            (
                r#"{"type":"a","timestamp":"2026-11-15T20:49:40+02:00"}"#,
                r#"{"type":"a","timestamp":"2026-11-15T20:49:40+02:00"}"#,
            ),
            (
                r#"{"type":"a","timestamp":"2026-11-15T20:49:40Z", "n": 123456789012345678901234567890.10, "s": " \" < > & \\", "t" : "x\\\"  y" }"#,
                r#"{"type":"a","timestamp":"2026-11-15T20:49:40Z","n":123456789012345678901234567890.10,"s":" \" \u003c \u003e \u0026 \\","t":"x\\\"  y"}"#,
            ),
        ] {
            assert_eq!(written(text), bytes);
        }
    }

    #[test]
    fn a_text_that_is_no_event_is_refused_with_a_reason() {
        for (text, words) in [
            ("", "not valid JSON"),
            ("{", "not valid JSON"),
            ("{\"type\":\"a\"} x", "not valid JSON"),
            ("[]", "not a JSON object"),
            ("7", "not a JSON object"),
            ("{}", "no type"),
            ("{\"type\":7}", "no type"),
            ("{\"type\":\" \"}", "no type"),
            ("{\"type\":\"a\",\"timestamp\":7}", "not an RFC 3339"),
            (
                "{\"type\":\"a\",\"timestamp\":\"today\"}",
                "not an RFC 3339",
            ),
            (
                "{\"type\":\"a\",\"timestamp\":\"2026-11-15 20:49:40Z\"}",
                "not an RFC 3339",
            ),
            (
                "{\"type\":\"a\",\"timestamp\":\"2026-11-15T23:59:60Z\"}",
                "not an RFC 3339",
            ),
            ("{\"type\":\"a\",\"x\":1,\"\\u0078\":2}", "\"x\" twice"),
        ] {
            let error = NewEvent::parse(text).unwrap_err().to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
    }

    #[test]
    fn the_size_limit_counts_the_timestamp_that_is_filled_in() {
        let (given, filled) = (
            r#","timestamp":"2026-11-15T20:49:40Z""#,
            r#","timestamp":"2026-11-15T20:49:40.123456789Z""#,
        );
        for (timestamp, counted) in [(given, given), ("", filled)] {
            let frame = r#"{"type":"def_added","x":""}"#.len() + counted.len();
            let sized = |bytes: usize| {
                let fill = "x".repeat(bytes - frame);
                NewEvent::parse(&format!(
                    r#"{{"type":"def_added"{timestamp},"x":"{fill}"}}"#
                ))
            };
            let largest = sized(MAX_EVENT).unwrap();
            for dialect in [Dialect::Documented, Dialect::Af] {
                let now = "2026-11-15T20:49:40.123456789Z".parse().unwrap();
                assert_eq!(largest.bytes(dialect, now).len(), MAX_EVENT);
            }
            assert_eq!(sized(MAX_EVENT + 1), Err(BadEvent::TooLarge(MAX_EVENT + 1)));
        }
    }

    #[test]
    fn an_af_ledger_takes_only_events_that_the_tool_can_read() {
        let check = |text: &str| NewEvent::parse(text).unwrap().check(Dialect::Af);
        for (text, words) in [
            (r#"{"type":"lock_acquired"}"#, "up to version 0.1.9"),
            (r#"{"type":"node_submitted"}"#, "before version 0.1.1"),
            (r#"{"type":"lock_reaped"}"#, "before version 0.1.9"),
            (r#"{"type":"def_added","Type":"x"}"#, "\"Type\" twice"),
            (r#"{"type":"nodes_claimed","node_ids":"1"}"#, "not a list"),
            (r#"{"type":"nodes_claimed","timeout":"soon"}"#, "RFC 3339"),
        ] {
            let error = check(text).unwrap_err().to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
        assert!(check(r#"{"type":"nodes_claimed","node_ids":["1"]}"#).is_ok());
        assert!(check(r#"{"type":"refinement_requested"}"#).is_ok());
    }

    #[test]
    fn a_claim_that_no_program_can_read_is_refused() {
        let check = |text: &str| NewEvent::parse(text).unwrap().check(Dialect::Documented);
        for text in [
            r#"{"type":"lock_acquired","node_id":"1","owner":"a"}"#,
            r#"{"type":"lock_acquired","node_id":"1","owner":"a","expires_at":"soon"}"#,
        ] {
            let error = check(text).unwrap_err().to_string();
            assert!(error.contains("expires_at"), "{text}: {error}");
        }
        let whole = r#"{"type":"lock_acquired","node_id":"1","owner":"a","expires_at":"2026-11-15T20:49:40Z"}"#;
        assert_eq!(check(whole), Ok(()));
        assert_eq!(check(r#"{"type":"anything"}"#), Ok(()));
    }

    #[test]
    fn what_go_reads_is_an_event() {
        let deep = format!(
            r#"{{"type":"a","x":{}1{}}}"#,
            "[".repeat(300),
            "]".repeat(300)
        );
        for bytes in [
            deep.as_bytes(),
            br#"{"type":"a","x":1e999}"#,
            br#"{"type":"a","x":"\ud800"}"#,
            b"{\"type\":\"a\",\"x\":\"\xff\"}",
            br#"{"type":"b","type":"a"}"#,
        ] {
            let bytes = bytes.to_vec();
            let event = RecordedEvent { seq: 1, bytes };
            let text = event.text().unwrap();
            assert!(text.contains("\"type\":\"a\""), "{text}");
            assert_eq!(event.head().0.as_deref(), Some("a"));
        }
    }
}
