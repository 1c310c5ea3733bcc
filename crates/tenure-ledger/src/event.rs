//! One event: [`NewEvent`] before it has a number, [`RecordedEvent`] after.
//!
//! Events are written as the `af` tool writes them: compact JSON without a newline at the end, `<`,
//! `>` and `&` escaped, times in UTC without trailing zeros. An event that a caller passes in is made
//! compact without being parsed into values: numbers of any length, the order of the keys and every
//! string stay as they were.

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use crate::dialect::Dialect;
use tenure_host::files::protocol::digest;
use tenure_host::files::rfc3339;

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
    /// Its timestamp is not a time.
    #[error(
        "the event's timestamp {0} is not an RFC 3339 time: write one such as \"2026-11-15T18:49:40Z\", or leave it out"
    )]
    BadTime(String),
    /// Too large.
    #[error("the event has {0} bytes: the limit is {MAX_EVENT} (1 MiB)")]
    TooLarge(usize),
    /// The `af` tool does not know its type.
    #[error(
        "the af tool does not know the event type {0:?}, and can't read a ledger that contains it: \
         use one of its own types, or a ledger of the documented dialect (tenure ledger init)"
    )]
    UnknownToAf(String),
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

/// The fields that every event has.
#[derive(Deserialize)]
struct Head {
    #[serde(rename = "type")]
    kind: Option<Value>,
    timestamp: Option<Value>,
}

impl NewEvent {
    /// Parses a text.
    pub fn parse(text: &str) -> Result<Self, BadEvent> {
        let value: Value =
            serde_json::from_str(text).map_err(|error| BadEvent::NotJson(error.to_string()))?;
        let Value::Object(fields) = &value else {
            return Err(BadEvent::NotObject);
        };
        let kind = match fields.get("type") {
            Some(Value::String(kind)) if !kind.trim().is_empty() => kind.clone(),
            _ => return Err(BadEvent::NoType),
        };
        let timed = match fields.get("timestamp") {
            None => false,
            Some(Value::String(text)) if rfc3339::parse(text).is_some() => true,
            Some(other) => return Err(BadEvent::BadTime(other.to_string())),
        };
        let event = Self {
            kind,
            json: compact(text),
            timed,
        };
        let length = event.bytes(Timestamp::UNIX_EPOCH).len();
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

    /// Whether it may be written in this dialect.
    pub fn check(&self, dialect: Dialect) -> Result<(), BadEvent> {
        if dialect.knows(&self.kind) {
            Ok(())
        } else {
            Err(BadEvent::UnknownToAf(self.kind.clone()))
        }
    }

    /// The bytes of the event. If it has no timestamp, it gets this one.
    pub fn bytes(&self, now: Timestamp) -> Vec<u8> {
        if self.timed {
            return self.json.clone().into_bytes();
        }
        let open = self.json.strip_suffix('}').unwrap_or(&self.json);
        format!("{open},\"timestamp\":\"{now}\"}}").into_bytes()
    }
}

/// Removes white space from valid JSON, and escapes the characters that Go's encoder escapes.
fn compact(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut in_string = false;
    let mut escaped = false;
    for c in text.chars() {
        if !in_string {
            if !c.is_ascii_whitespace() {
                out.push(c);
            }
            in_string = c == '"';
            continue;
        }
        match c {
            '<' => out.push_str("\\u003c"),
            '>' => out.push_str("\\u003e"),
            '&' => out.push_str("\\u0026"),
            '\u{2028}' => out.push_str("\\u2028"),
            '\u{2029}' => out.push_str("\\u2029"),
            c => out.push(c),
        }
        in_string = escaped || c != '"';
        escaped = !escaped && c == '\\';
    }
    out
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

    /// Its JSON object, or what is wrong with it.
    pub fn value(&self) -> Result<Value, String> {
        if self.bytes.len() > MAX_EVENT {
            return Err(format!(
                "it has {} bytes; the limit is 1 MiB",
                self.bytes.len()
            ));
        }
        let value: Value = serde_json::from_slice(&self.bytes)
            .map_err(|error| format!("it is not valid JSON ({error})"))?;
        match value.get("type") {
            _ if !value.is_object() => Err("it is not a JSON object".into()),
            Some(Value::String(_)) => Ok(value),
            _ => Err("it has no type".into()),
        }
    }

    /// Its type and its time, where they can be read.
    pub fn head(&self) -> (Option<String>, Option<Timestamp>) {
        let Ok(head) = serde_json::from_slice::<Head>(&self.bytes) else {
            return (None, None);
        };
        let text = |value: Option<Value>| match value {
            Some(Value::String(text)) => Some(text),
            _ => None,
        };
        let time = text(head.timestamp);
        (text(head.kind), time.and_then(|time| rfc3339::parse(&time)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(text: &str) -> String {
        let event = NewEvent::parse(text).unwrap();
        String::from_utf8(event.bytes("2026-11-15T18:49:40.500Z".parse().unwrap())).unwrap()
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
        ] {
            let error = NewEvent::parse(text).unwrap_err().to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
        let frame = r#"{"type":"a","timestamp":"2026-11-15T20:49:40Z","x":""}"#.len();
        let sized = |bytes: usize| {
            let fill = "x".repeat(bytes - frame);
            NewEvent::parse(&format!(
                r#"{{"type":"a","timestamp":"2026-11-15T20:49:40Z","x":"{fill}"}}"#
            ))
        };
        assert!(sized(MAX_EVENT).is_ok());
        assert_eq!(sized(MAX_EVENT + 1), Err(BadEvent::TooLarge(MAX_EVENT + 1)));
    }

    #[test]
    fn an_af_ledger_takes_only_types_that_the_tool_knows() {
        let event = |kind: &str| NewEvent::parse(&format!(r#"{{"type":"{kind}"}}"#)).unwrap();
        assert!(event("lock_acquired").check(Dialect::Af).is_err());
        assert!(event("lock_acquired").check(Dialect::Documented).is_ok());
        assert!(event("nodes_claimed").check(Dialect::Af).is_ok());
    }
}
