//! `meta.json`: how long a claim lasts.
//!
//! `lock_timeout` is a duration as text (`"5m"`, `"1h30m"`, `"90s"`) or whole nanoseconds; five minutes
//! if there is none, or if it is the number 0, as for the `af` tool. Everything else in the file belongs
//! to other programs.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::Value;
use tenure_core::{ErrorKind, StoreError};

use crate::dialect::Dialect;
use tenure_host::files::beneath;
use tenure_host::files::fault::explain;

/// The largest `meta.json` that is read, in bytes.
const LARGEST: u64 = 1 << 20;

/// The name of the file.
pub(super) const FILE: &str = "meta.json";

/// How long a claim lasts if nothing is configured.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(300);

/// The shortest time to live of a claim.
pub const MIN_TIMEOUT: Duration = Duration::from_secs(1);

/// The longest time to live of a claim.
pub const MAX_TIMEOUT: Duration = Duration::from_secs(3600);

/// The part of the file that tenure reads.
#[derive(Debug)]
pub(super) struct Meta {
    path: PathBuf,
    timeout: Option<Value>,
}

impl Meta {
    /// Reads the file, which need not exist.
    pub(super) fn read(root: &Path) -> Result<Self, StoreError> {
        let path = root.join(FILE);
        let timeout = match beneath::read(&path, LARGEST) {
            Ok(bytes) => match serde_json::from_slice::<Value>(&bytes) {
                Ok(Value::Object(mut fields)) => fields.remove("lock_timeout"),
                Ok(_) => return Err(damaged(&path, "is not a JSON object")),
                Err(error) => return Err(damaged(&path, &format!("is not valid JSON ({error})"))),
            },
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => None,
            Err(error) => return Err(explain("read", &path, error)),
        };
        Ok(Self {
            path,
            timeout: timeout.filter(|timeout| !timeout.is_null()),
        })
    }

    /// The dialect that the timeout is written in, if there is one.
    pub(super) fn dialect(&self) -> Option<Dialect> {
        match self.timeout.as_ref()? {
            Value::String(_) => Some(Dialect::Documented),
            Value::Number(_) => Some(Dialect::Af),
            _ => None,
        }
    }

    /// How long a claim lasts.
    pub(super) fn timeout(&self, dialect: Dialect) -> Result<Duration, StoreError> {
        let Some(value) = &self.timeout else {
            return Ok(DEFAULT_TIMEOUT);
        };
        let timeout = match value {
            Value::String(text) => go_duration(text),
            Value::Number(number) if number.as_u64() == Some(0) => Some(DEFAULT_TIMEOUT),
            Value::Number(number) => number.as_u64().map(Duration::from_nanos),
            _ => None,
        };
        // The af tool can't read a timeout that is text.
        let how = match dialect {
            Dialect::Documented => "write a duration from 1s to 1h, for example \"5m\"",
            Dialect::Af => "write nanoseconds from 1000000000 (1s) to 3600000000000 (1h)",
        };
        let words = |why: &str| format!("has a lock_timeout of {value}, {why}: {how}");
        match timeout {
            Some(timeout) if (MIN_TIMEOUT..=MAX_TIMEOUT).contains(&timeout) => Ok(timeout),
            Some(_) => Err(damaged(&self.path, &words("which is out of range"))),
            None => Err(damaged(&self.path, &words("which is not a duration"))),
        }
    }
}

fn damaged(path: &Path, what: &str) -> StoreError {
    StoreError::new(ErrorKind::Damaged, format!("{} {what}", path.display()))
}

/// The content of a new file. The `af` tool keeps it if it begins its own work in the same folder, and
/// can't read a timeout that is text, so a documented ledger has none.
pub(super) fn first(dialect: Dialect) -> String {
    match dialect {
        Dialect::Documented => "{\n  \"version\": \"1.0\"\n}\n".into(),
        Dialect::Af => format!(
            "{{\n  \"version\": \"1.0\",\n  \"lock_timeout\": {}\n}}\n",
            DEFAULT_TIMEOUT.as_nanos()
        ),
    }
}

/// A duration as Go writes it: numbers with units, `1h2m3.5s`.
fn go_duration(text: &str) -> Option<Duration> {
    let mut rest = text.trim();
    if rest == "0" {
        return Some(Duration::ZERO);
    }
    let mut nanos = 0.0_f64;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.')?;
        let (number, after) = rest.split_at_checked(digits)?;
        let end = after
            .find(|c: char| c.is_ascii_digit() || c == '.')
            .unwrap_or(after.len());
        let (unit, left) = after.split_at_checked(end)?;
        let scale = match unit {
            "ns" => 1.0,
            "us" | "µs" | "μs" => 1e3,
            "ms" => 1e6,
            "s" => 1e9,
            "m" => 60e9,
            "h" => 3600e9,
            _ => return None,
        };
        nanos += number.parse::<f64>().ok()? * scale;
        rest = left;
    }
    (nanos > 0.0).then(|| Duration::try_from_secs_f64(nanos / 1e9).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_timeout_is_text_or_nanoseconds_and_is_held_to_its_range() {
        let dir = tempfile::tempdir().unwrap();
        let timeout = |json: &str| {
            std::fs::write(dir.path().join(FILE), json).unwrap();
            Meta::read(dir.path()).and_then(|meta| meta.timeout(Dialect::Documented))
        };
        for (json, seconds) in [
            ("{}", 300.0),
            (r#"{"lock_timeout":null}"#, 300.0),
            (r#"{"lock_timeout":0}"#, 300.0),
            (r#"{"lock_timeout":"5m"}"#, 300.0),
            (r#"{"lock_timeout":"1s"}"#, 1.0),
            (r#"{"lock_timeout":"1h"}"#, 3600.0),
            (r#"{"lock_timeout":"1m1.5s"}"#, 61.5),
            (r#"{"lock_timeout":"1500ms"}"#, 1.5),
            (r#"{"lock_timeout":60000000000}"#, 60.0),
        ] {
            assert!(
                (timeout(json).unwrap().as_secs_f64() - seconds).abs() < 1e-6,
                "{json}"
            );
        }
        for json in [
            r#"{"lock_timeout":"999ms"}"#,
            r#"{"lock_timeout":"1h1s"}"#,
            r#"{"lock_timeout":300}"#,
            r#"{"lock_timeout":-1}"#,
            r#"{"lock_timeout":"five"}"#,
            r#"{"lock_timeout":"5"}"#,
            r#"{"lock_timeout":true}"#,
            "[]",
            "{",
        ] {
            let error = timeout(json).unwrap_err().to_string();
            assert!(error.contains("meta.json"), "{json}: {error}");
        }
        std::fs::remove_file(dir.path().join(FILE)).unwrap();
        assert_eq!(
            Meta::read(dir.path())
                .unwrap()
                .timeout(Dialect::Af)
                .unwrap(),
            DEFAULT_TIMEOUT
        );
    }
}
