//! One event: [`NewEvent`] before it has a number, [`Recorded`] after.
//!
//! It is written as the real tool writes: compact JSON without a newline at the end, `<`, `>` and `&`
//! escaped, times in UTC without trailing zeros. What somebody hands in is made compact without being
//! taken apart: numbers of any length, the order of the keys and every string stay as they were.

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

use crate::dialect::Dialect;
use tenure_host::files::protocol::digest;
use tenure_host::files::rfc3339;

/// The largest event: what is larger is unreadable to the real tool.
pub const MAX_EVENT: usize = 1 << 20;

/// Why something can't be an event.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadEvent {
    /// Not JSON.
    #[error("the event is no JSON ({0}): write an object such as {{\"type\":\"note\"}}")]
    NotJson(String),
    /// JSON, but no object.
    #[error("the event is no JSON object: write one such as {{\"type\":\"note\"}}")]
    NotObject,
    /// No type.
    #[error(
        "the event has no type: give it one, for example {{\"type\":\"note\"}} (a text that is not empty)"
    )]
    NoType,
    /// Its time is none.
    #[error(
        "the event's timestamp {0} is no RFC 3339 time: write one such as \"2026-11-15T18:49:40Z\", or leave it out"
    )]
    BadTime(String),
    /// Too large.
    #[error("the event has {0} bytes: at most {MAX_EVENT} (1 MiB) are allowed")]
    TooLarge(usize),
    /// The real tool does not know it.
    #[error(
        "the af tool knows no event of type {0:?}, and one that it does not know makes the whole ledger unreadable to it: \
         write one of its own types, or use a ledger of the seed's dialect (tenure ledger init)"
    )]
    UnknownToAf(String),
}

/// An event that has no number yet.
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
    /// Compact.
    json: String,
    timed: bool,
}

/// What all events have.
#[derive(Deserialize)]
struct Head {
    #[serde(rename = "type")]
    kind: Option<Value>,
    timestamp: Option<Value>,
}

impl NewEvent {
    /// Takes a text as an event, if it is one.
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

    /// The event that these fields make.
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

    /// What is written. Without a time of its own it gets this one.
    pub fn bytes(&self, now: Timestamp) -> Vec<u8> {
        if self.timed {
            return self.json.clone().into_bytes();
        }
        let open = self.json.strip_suffix('}').unwrap_or(&self.json);
        format!("{open},\"timestamp\":\"{now}\"}}").into_bytes()
    }
}

/// Valid JSON without white space, and with what Go escapes escaped.
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

/// An event that has a number, as it is on disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recorded {
    /// Its number.
    pub seq: u64,
    /// All of it.
    pub bytes: Vec<u8>,
}

impl Recorded {
    /// A digest of all of it.
    pub fn digest(&self) -> u64 {
        digest(&self.bytes)
    }

    /// It, if it is what an event has to be; what is wrong with it otherwise.
    pub fn value(&self) -> Result<Value, String> {
        if self.bytes.len() > MAX_EVENT {
            return Err(format!(
                "it has {} bytes, more than 1 MiB",
                self.bytes.len()
            ));
        }
        let value: Value = serde_json::from_slice(&self.bytes)
            .map_err(|error| format!("it is no JSON ({error})"))?;
        match value.get("type") {
            _ if !value.is_object() => Err("it is no JSON object".into()),
            Some(Value::String(_)) => Ok(value),
            _ => Err("it has no type".into()),
        }
    }

    /// Its type and its time, as far as they can be read.
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
    fn what_is_handed_in_is_made_compact_and_nothing_else() {
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
    fn what_can_be_no_event_is_refused_in_words() {
        for (text, words) in [
            ("", "no JSON"),
            ("{", "no JSON"),
            ("{\"type\":\"a\"} x", "no JSON"),
            ("[]", "no JSON object"),
            ("7", "no JSON object"),
            ("{}", "no type"),
            ("{\"type\":7}", "no type"),
            ("{\"type\":\" \"}", "no type"),
            ("{\"type\":\"a\",\"timestamp\":7}", "no RFC 3339"),
            ("{\"type\":\"a\",\"timestamp\":\"today\"}", "no RFC 3339"),
            (
                "{\"type\":\"a\",\"timestamp\":\"2026-11-15 20:49:40Z\"}",
                "no RFC 3339",
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
    fn in_an_af_ledger_only_what_the_tool_knows_may_be_written() {
        let event = |kind: &str| NewEvent::parse(&format!(r#"{{"type":"{kind}"}}"#)).unwrap();
        assert!(event("lock_acquired").check(Dialect::Af).is_err());
        assert!(event("lock_acquired").check(Dialect::Documented).is_ok());
        assert!(event("nodes_claimed").check(Dialect::Af).is_ok());
    }
}
