//! The format of the lock file: [`ExclusiveLock`].
//!
//! It is a JSON object with the keys `holder`, `pid`, `hostname`, `started_at` and, optionally,
//! `version`; two spaces of indent, no newline at the end. Tenure adds the key `tenure`, which other
//! readers ignore: it distinguishes the process from every other that ever had its pid.
//!
//! Reading follows the protocol's own tool: key names in any letter case, the last of duplicate keys
//! counts, unknown keys are ignored, and `null` is the same as a missing key. A lock that the tool calls
//! malformed is malformed here, too, and so never stale.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tenure_core::{Binding, Clock, Epoch, Lease, LivenessId, Process, Token};
use tenure_host::{HostClock, identity};

use crate::foreign_holder::recorded_binding;

use tenure_host::files::go_json::{Json, JsonKind, is_same_key};
use tenure_host::files::go_time;

/// The first second of the year 2. A time in the year 1 is Go's zero time and means "not given".
const YEAR_TWO: i64 = -62_104_060_800;

/// The contents of the lock file.
///
/// ```
/// use tenure_lockfile::ExclusiveLock;
///
/// let lock = ExclusiveLock::for_this_process("my-tool", Some("1.0.0")).unwrap();
/// assert_eq!(lock.pid, i64::from(std::process::id()));
/// assert!(lock.validate().is_ok());
/// assert!(lock.to_json().starts_with("{\n  \"holder\": \"my-tool\",\n  \"pid\": "));
///
/// let read = ExclusiveLock::parse(lock.to_json().as_bytes()).unwrap();
/// assert_eq!(read, lock);
/// ```
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ExclusiveLock {
    /// The name of the tool that holds it.
    pub holder: String,
    /// The pid of its process.
    pub pid: i64,
    /// The machine that the process runs on.
    pub hostname: String,
    /// When it took the lock; `None` if the key is missing or the year is 1.
    pub started_at: Option<Timestamp>,
    /// The version of the tool.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// The fields that tenure adds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tenure: Option<TenureFields>,
}

/// The fields that tenure adds, to identify the process even after its pid is reused.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TenureFields {
    /// The fencing token, if a store granted the lock.
    #[serde(skip_serializing_if = "Option::is_none", default)]
    pub token: Option<Token>,
    /// The start time of the process, in ticks since boot.
    pub started: u64,
    /// The boot that the process runs in.
    pub boot: Epoch,
    /// Its pid namespace.
    pub namespace: String,
    /// Its liveness lock, in `live/` of the sidecar.
    #[serde(rename = "life", skip_serializing_if = "Option::is_none", default)]
    pub liveness_lock: Option<LivenessId>,
}

/// An invalid value. The variants are in the order of the checks.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LockFlaw {
    /// `holder` is empty.
    #[error("holder is required")]
    Holder,
    /// `pid` is not positive.
    #[error("pid must be positive (got {0})")]
    Pid(i64),
    /// `hostname` is empty.
    #[error("hostname is required")]
    Hostname,
    /// `started_at` is missing.
    #[error("started_at is required")]
    StartedAt,
}

/// Why a lock file is malformed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LockError {
    /// The file can't be read.
    #[error("failed to read lock file: {0}")]
    Unreadable(String),
    /// The file is not a JSON object with the right types.
    #[error("malformed lock file: {0}")]
    Malformed(String),
    /// A value is invalid.
    #[error("invalid lock file: {0}")]
    Invalid(#[from] LockFlaw),
}

impl ExclusiveLock {
    /// The contents of a lock for this process, taken now. This does not take the lock: open an
    /// [`crate::ExclusiveStore`] for that.
    pub fn for_this_process(holder: &str, version: Option<&str>) -> Result<Self, LockFlaw> {
        let process = identity::this_process();
        let lock = Self {
            holder: holder.to_owned(),
            pid: i64::from(process.pid),
            hostname: process.host,
            started_at: Some(HostClock::new().now().wall),
            version: version.map(str::to_owned),
            tenure: Some(TenureFields {
                token: None,
                started: process.started,
                boot: process.boot,
                namespace: process.namespace,
                liveness_lock: None,
            }),
        };
        lock.validate()?;
        Ok(lock)
    }

    /// The lock of a lease; `None` if no process is attached to the lease.
    pub(crate) fn of(lease: &Lease, version: Option<&str>) -> Option<Self> {
        let process = lease.holder.process()?;
        Some(Self {
            holder: lease.holder.id.to_string(),
            pid: i64::from(process.pid),
            hostname: process.host.clone(),
            started_at: Some(lease.acquired_at),
            version: version.map(str::to_owned),
            tenure: Some(TenureFields {
                token: Some(lease.token),
                started: process.started,
                boot: process.boot.clone(),
                namespace: process.namespace.clone(),
                liveness_lock: lease.holder.liveness_lock().cloned(),
            }),
        })
    }

    /// Checks the values.
    pub fn validate(&self) -> Result<(), LockFlaw> {
        if self.holder.is_empty() {
            return Err(LockFlaw::Holder);
        }
        if self.pid <= 0 {
            return Err(LockFlaw::Pid(self.pid));
        }
        if self.hostname.is_empty() {
            return Err(LockFlaw::Hostname);
        }
        if self.started_at.is_none() {
            return Err(LockFlaw::StartedAt);
        }
        Ok(())
    }

    /// Parses and checks the contents of a lock file.
    pub fn parse(bytes: &[u8]) -> Result<Self, LockError> {
        let lock = Self::parse_unchecked(bytes)?;
        lock.validate()?;
        Ok(lock)
    }

    pub(crate) fn parse_unchecked(bytes: &[u8]) -> Result<Self, LockError> {
        let json = Json::parse(bytes).map_err(|error| {
            // The document's words for an empty file and for one that is cut off.
            let what = error.is_end().then(|| "unexpected EOF".to_owned());
            LockError::Malformed(what.unwrap_or_else(|| error.to_string()))
        })?;
        Self::of_json(json).map_err(LockError::Malformed)
    }

    fn of_json(json: Json<'_>) -> Result<Self, String> {
        if json.kind() != JsonKind::Object {
            return Err(format!("it is {}, not an object", json.kind().words()));
        }
        let mut lock = Self {
            holder: String::new(),
            pid: 0,
            hostname: String::new(),
            started_at: None,
            version: None,
            tenure: None,
        };
        for (key, value) in json.members() {
            let is = |name| is_same_key(&key, name);
            let wrong = |wanted| format!("{key:?} is {}, not {wanted}", value.kind().words());
            let text = || value.text().ok_or_else(|| wrong("a text"));
            if value.kind() == JsonKind::Null {
                // The same as a missing key.
            } else if is("holder") {
                lock.holder = text()?;
            } else if is("pid") {
                let pid = std::str::from_utf8(value.bytes()).ok();
                let pid = pid.and_then(|pid| pid.parse().ok());
                lock.pid = pid.ok_or_else(|| wrong("a whole number"))?;
            } else if is("hostname") {
                lock.hostname = text()?;
            } else if is("started_at") {
                // The protocol's own tool parses times without resolving escape sequences.
                let written = value.raw_text().ok_or_else(|| wrong("a text"))?;
                let at = go_time::parse(written).ok_or_else(|| {
                    let text = String::from_utf8_lossy(written);
                    format!("started_at {text:?} is not an RFC 3339 time")
                })?;
                let is_given = !(go_time::ZERO.as_second()..YEAR_TWO).contains(&at.as_second());
                lock.started_at = is_given.then_some(at);
            } else if is("version") {
                lock.version = Some(text()?);
            } else if is("tenure") {
                // A later tenure may write other fields: that must not make the lock malformed. No tenure
                // grants an absurd token: then it is another program's lock.
                let fields = serde_json::from_str::<TenureFields>(&value.tidy()).ok();
                lock.tenure = fields.filter(|fields| fields.token <= Some(Token::MAX));
            }
        }
        Ok(lock)
    }

    /// The contents of the lock file.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default()
    }

    /// The binding of the lease, if tenure wrote the lock.
    pub(crate) fn binding(&self) -> Option<Binding> {
        let fields = self.tenure.clone()?;
        let process = Process {
            pid: u32::try_from(self.pid).ok()?,
            started: fields.started,
            boot: fields.boot,
            namespace: fields.namespace,
            host: self.hostname.clone(),
        };
        Some(recorded_binding(process, fields.liveness_lock))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn flaw(json: &str) -> String {
        ExclusiveLock::parse(json.as_bytes())
            .unwrap_err()
            .to_string()
    }

    /// A good lock with an unknown key whose value has this many levels.
    fn nested(levels: usize) -> String {
        let value = format!("{}{}", "[".repeat(levels), "]".repeat(levels));
        GOOD.replace("{\"holder", &format!("{{\"extra\":{value},\"holder"))
    }

    const GOOD: &str =
        r#"{"holder":"x","pid":1,"hostname":"h","started_at":"2025-10-25T12:00:00Z"}"#;

    #[test]
    fn the_json_is_the_same_as_the_real_tools() {
        let mut lock = ExclusiveLock::parse(GOOD.as_bytes()).unwrap();
        assert_eq!(
            lock.to_json(),
            "{\n  \"holder\": \"x\",\n  \"pid\": 1,\n  \"hostname\": \"h\",\n  \"started_at\": \"2025-10-25T12:00:00Z\"\n}"
        );
        lock.version = Some("1.0.0".into());
        assert!(lock.to_json().ends_with("  \"version\": \"1.0.0\"\n}"));
    }

    #[test]
    fn values_are_checked_in_the_order_of_the_real_tool() {
        for (json, words) in [
            ("{}", "invalid lock file: holder is required"),
            (
                r#"{"holder":null}"#,
                "invalid lock file: holder is required",
            ),
            (
                r#"{"holder":"x"}"#,
                "invalid lock file: pid must be positive (got 0)",
            ),
            (
                r#"{"holder":"x","pid":-5}"#,
                "invalid lock file: pid must be positive (got -5)",
            ),
            (
                r#"{"holder":"x","pid":5}"#,
                "invalid lock file: hostname is required",
            ),
            (
                r#"{"holder":"x","pid":5,"hostname":"h"}"#,
                "invalid lock file: started_at is required",
            ),
            (
                r#"{"holder":"x","pid":5,"hostname":"h","started_at":"0001-01-01T00:00:00Z"}"#,
                "invalid lock file: started_at is required",
            ),
        ] {
            assert_eq!(flaw(json), words, "{json}");
        }
    }

    #[test]
    fn anything_else_is_malformed() {
        for json in [
            "",
            "{",
            "[]",
            "7",
            r#"{"holder":7}"#,
            r#"{"pid":"1"}"#,
            r#"{"pid":1.5}"#,
            &format!("{GOOD} x"),
            &format!("{GOOD}{{}}"),
            &GOOD.replace("12:00:00Z", "12:00:00"),
            &GOOD.replace("12:00:00Z", "12:00Z"),
            &GOOD.replace("12:00:00Z", "12:00:00+02"),
            &GOOD.replace("12:00:00Z", "12:00:00.Z"),
            &GOOD.replace("T12", " 12"),
            &GOOD.replace("2025", "yesterday"),
            &GOOD.replace("12:00:00Z", "23:59:60Z"),
            &GOOD.replace("12:00:00Z", "12:00:00+25:00"),
            &GOOD.replace("12:00:00Z", "12:00:00\\u005a"),
            &nested(10_000),
        ] {
            let words = flaw(json);
            assert!(
                words.starts_with("malformed lock file: "),
                "{json}: {words}"
            );
        }
        for cut in 0..GOOD.len() {
            assert_eq!(flaw(&GOOD[..cut]), "malformed lock file: unexpected EOF");
        }
        let binary = [b"{\"holder\":\"".as_slice(), &[0xff, 0xfe], b"\"}"].concat();
        assert!(ExclusiveLock::parse(&binary).is_err());
    }

    #[test]
    fn locks_that_the_real_tool_accepts_are_read() {
        for json in [
            GOOD.to_owned(),
            format!("\n {GOOD}\n\n"),
            GOOD.replace("holder", "HOLDER").replace("pid", "Pid"),
            GOOD.replace("started_at", "Started_At"),
            GOOD.replace("12:00:00Z", "12:00:00.123456789-07:00"),
            GOOD.replace("12:00:00Z", "12:00:00.1234567891Z"),
            GOOD.replace("12:00:00Z", "12:00:00,5Z"),
            GOOD.replace("T12:00:00Z", "T9:00:00Z"),
            GOOD.replace("12:00:00Z", "12:00:00+24:00"),
            GOOD.replace("2025-10-25", "0000-01-01"),
            GOOD.replace("2025-10-25T12:00:00Z", "9999-12-31T23:59:59Z"),
            GOOD.replace("{\"holder", "{\"extra\":{\"a\":[1,null]},\"holder"),
            GOOD.replace("{\"holder", "{\"tenure\":7,\"holder"),
            GOOD.replace("{\"holder", "{\"a]}{[\\\"\":\"[[[\",\"holder"),
            nested(9_999),
            GOOD.replace("{\"holder", "{\"holder\":\"first\",\"Holder"),
        ] {
            let lock = ExclusiveLock::parse(json.as_bytes()).unwrap();
            assert_eq!((lock.holder.as_str(), lock.tenure), ("x", None), "{json}");
        }
    }
}
