//! The two dialects of a ledger: how its files are named, and which events it may hold.
//!
//! | | documented | af |
//! |---|---|---|
//! | event 7 | `event-000007.json` | `000007.json` |
//! | events | any | only the types that the `af` tool knows: it can't read a ledger with any other |
//! | `lock_timeout` in `meta.json` | text, `"5m"` | nanoseconds |

use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};
use tenure_core::{ErrorKind, StoreError};

use crate::af::{self, KnownTo};
use crate::meta::Meta;
use crate::number;

/// A dialect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dialect {
    /// The documented one: the default for a new ledger.
    Documented,
    /// The one of the `af` tool.
    Af,
}

/// What a name in the ledger's folder stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryName {
    /// An event with this number.
    Event(u64),
    /// A JSON file that is not named as an event is. Other programs may take it for the event with this
    /// number; no event has the number 0.
    Misnamed(Option<u64>),
    /// An event that is being written, or was left behind by a crash.
    Temporary,
    /// The ledger lock.
    Lock,
    /// The folder of what tenure needs beyond the protocol.
    Sidecar,
    /// Anything else.
    Other,
}

/// The largest number that the `af` tool can count to.
const MAX_NUMBER: u64 = i64::MAX.unsigned_abs();

impl Dialect {
    /// The file name of an event.
    pub fn file_name(self, seq: u64) -> String {
        match self {
            Self::Documented => format!("event-{seq:06}.json"),
            Self::Af => format!("{seq:06}.json"),
        }
    }

    /// What a name stands for. Only the exact name that an event is written under is an event.
    pub fn entry(self, name: &str) -> EntryName {
        if name == crate::lock::FILE {
            return EntryName::Lock;
        }
        if name == crate::SIDECAR {
            return EntryName::Sidecar;
        }
        let temporary = name.strip_prefix(".event-");
        if temporary.is_some_and(|rest| rest.strip_suffix(".tmp").is_some()) {
            return EntryName::Temporary;
        }
        let Some(stem) = name.strip_suffix(".json") else {
            return EntryName::Other;
        };
        let number = |digits: &str| {
            let (plain, most) = match digits.strip_prefix('-') {
                Some(plain) => (plain, 0),
                None => (digits.strip_prefix('+').unwrap_or(digits), MAX_NUMBER),
            };
            let is_plain = plain.bytes().all(|byte| byte.is_ascii_digit());
            let number = is_plain.then(|| plain.parse::<u64>().ok()).flatten();
            number.filter(|seq| *seq <= most)
        };
        let ours = match self {
            Self::Documented => stem.strip_prefix("event-"),
            Self::Af => Some(stem),
        };
        match ours.and_then(number) {
            Some(seq) if seq > 0 && self.file_name(seq) == name => EntryName::Event(seq),
            found => EntryName::Misnamed(found),
        }
    }

    /// Whether events of this type may be written. The `af` tool can't read a ledger with a type that it
    /// does not know.
    pub fn knows(self, kind: &str) -> bool {
        match self {
            Self::Documented => true,
            Self::Af => af::known_to(kind) == KnownTo::Every,
        }
    }

    /// Its name.
    pub fn word(self) -> &'static str {
        match self {
            Self::Documented => "documented",
            Self::Af => "af",
        }
    }

    /// Detects the dialect of a ledger: by its first event, by any event, by the timeout in
    /// `meta.json`; the documented one if there is none of these.
    pub(super) fn detect(root: &Path, ledger: &Path) -> Result<Self, StoreError> {
        let has = |dialect: Self, seq| ledger.join(dialect.file_name(seq)).exists();
        match (has(Self::Documented, 1), has(Self::Af, 1)) {
            (true, false) => return Ok(Self::Documented),
            (false, true) => return Ok(Self::Af),
            (true, true) => return Err(mixed(ledger, 1, 1)),
            (false, false) => {}
        }
        // Rare: the ledger is empty, or its first event is missing.
        let documented = number::list(ledger, Self::Documented)?.sequence();
        let af = number::list(ledger, Self::Af)?.sequence();
        match (documented, af) {
            (Some(_), None) => Ok(Self::Documented),
            (None, Some(_)) => Ok(Self::Af),
            (Some(documented), Some(af)) => Err(mixed(ledger, *documented.start(), *af.start())),
            (None, None) => Ok(Meta::read(root)?.dialect().unwrap_or(Self::Documented)),
        }
    }
}

fn mixed(ledger: &Path, documented: u64, af: u64) -> StoreError {
    let what = format!(
        "{} holds events under two kinds of name, {} and {}: it is not clear which of them count",
        ledger.display(),
        Dialect::Documented.file_name(documented),
        Dialect::Af.file_name(af)
    );
    StoreError::new(ErrorKind::NotAStore, what)
        .fix("move the events of one kind to another folder, and try again")
}

impl fmt::Display for Dialect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_exact_name_of_an_event_is_an_event() {
        for (dialect, name, is) in [
            (
                Dialect::Documented,
                "event-000003.json",
                EntryName::Event(3),
            ),
            (
                Dialect::Documented,
                "event-1000000.json",
                EntryName::Event(1_000_000),
            ),
            (
                Dialect::Documented,
                "event-3.json",
                EntryName::Misnamed(Some(3)),
            ),
            (
                Dialect::Documented,
                "event-0000003.json",
                EntryName::Misnamed(Some(3)),
            ),
            (
                Dialect::Documented,
                "event-000000.json",
                EntryName::Misnamed(Some(0)),
            ),
            (
                Dialect::Documented,
                "000003.json",
                EntryName::Misnamed(None),
            ),
            (Dialect::Documented, ".event-x1.tmp", EntryName::Temporary),
            (Dialect::Documented, "ledger.lock", EntryName::Lock),
            (Dialect::Documented, "notes.txt", EntryName::Other),
            (Dialect::Af, "000003.json", EntryName::Event(3)),
            (Dialect::Af, "3.json", EntryName::Misnamed(Some(3))),
            (Dialect::Af, "+3.json", EntryName::Misnamed(Some(3))),
            (Dialect::Af, "0000003.json", EntryName::Misnamed(Some(3))),
            (Dialect::Af, "-3.json", EntryName::Misnamed(None)),
            (Dialect::Af, "0.json", EntryName::Misnamed(Some(0))),
            (Dialect::Af, "-0.json", EntryName::Misnamed(Some(0))),
            (Dialect::Af, "++3.json", EntryName::Misnamed(None)),
            (
                Dialect::Af,
                "9223372036854775807.json",
                EntryName::Event(MAX_NUMBER),
            ),
            (
                Dialect::Af,
                "18446744073709551615.json",
                EntryName::Misnamed(None),
            ),
            (Dialect::Af, "event-000003.json", EntryName::Misnamed(None)),
            (Dialect::Af, "x.json", EntryName::Misnamed(None)),
        ] {
            assert_eq!(dialect.entry(name), is, "{dialect} {name}");
        }
    }
}
