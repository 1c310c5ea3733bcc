//! The two dialects of a ledger: how its files are called, and which events it knows.
//!
//! | | documented | af |
//! |---|---|---|
//! | event 7 | `event-000007.json` | `000007.json` |
//! | events | any | only those that the real tool knows: one that it does not makes all unreadable to it |
//! | `lock_timeout` in `meta.json` | text, `"5m"` | nanoseconds |

use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};
use tenure_core::{ErrorKind, StoreError};

use crate::meta::Meta;
use tenure_host::files::fault::explain;

/// Which of the two.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dialect {
    /// The one that is documented: the default for a new ledger.
    Documented,
    /// The one of the `af` tool.
    Af,
}

/// What a name in the ledger's folder stands for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Name {
    /// An event with this number.
    Event(u64),
    /// Not quite an event: others may take it for the one with this number.
    Strange(Option<u64>),
    /// An event on its way to its name, or the rest of a crash.
    Temporary,
    /// The ledger lock.
    Lock,
    /// Something else.
    Other,
}

/// The events that every version of the real tool knows, as its replay has them. (`lock_reaped` is read by
/// all, but applied by the newest only.)
const KNOWN_TO_AF: [&str; 17] = [
    "proof_initialized",
    "node_created",
    "nodes_claimed",
    "nodes_released",
    "challenge_raised",
    "challenge_resolved",
    "challenge_withdrawn",
    "challenge_superseded",
    "node_validated",
    "node_admitted",
    "node_refuted",
    "node_archived",
    "node_amended",
    "taint_recomputed",
    "def_added",
    "lemma_extracted",
    "claim_refreshed",
];

impl Dialect {
    /// The file name of an event.
    pub fn file_name(self, seq: u64) -> String {
        match self {
            Self::Documented => format!("event-{seq:06}.json"),
            Self::Af => format!("{seq:06}.json"),
        }
    }

    /// What a name stands for. Only the very name that an event is written under counts as one.
    pub fn name(self, name: &str) -> Name {
        if name == crate::lock::FILE {
            return Name::Lock;
        }
        let temporary = name.strip_prefix(".event-");
        if temporary.is_some_and(|rest| rest.strip_suffix(".tmp").is_some()) {
            return Name::Temporary;
        }
        let Some(stem) = name.strip_suffix(".json") else {
            return Name::Other;
        };
        let number = |digits: &str| {
            let plain = digits.strip_prefix('+').unwrap_or(digits);
            plain.parse::<u64>().ok().filter(|seq| *seq > 0)
        };
        let ours = match self {
            Self::Documented => stem.strip_prefix("event-"),
            Self::Af => Some(stem),
        };
        match ours.and_then(number) {
            Some(seq) if self.file_name(seq) == name => Name::Event(seq),
            found => Name::Strange(found),
        }
    }

    /// Whether an event of this type may be written.
    pub fn knows(self, kind: &str) -> bool {
        match self {
            Self::Documented => true,
            Self::Af => KNOWN_TO_AF.contains(&kind),
        }
    }

    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Documented => "documented",
            Self::Af => "af",
        }
    }

    /// Finds out which one a ledger is written in: by its first event, by any event, by the
    /// timeout in `meta.json`; the documented one if nothing tells.
    pub(super) fn of(root: &Path, ledger: &Path) -> Result<Self, StoreError> {
        let has = |dialect: Self, seq| ledger.join(dialect.file_name(seq)).exists();
        match (has(Self::Documented, 1), has(Self::Af, 1)) {
            (true, false) => return Ok(Self::Documented),
            (false, true) => return Ok(Self::Af),
            (true, true) => return Err(mixed(ledger, 1, 1)),
            (false, false) => {}
        }
        // Rare: nothing is there yet, or the first one is missing.
        let (mut documented, mut af) = (None, None);
        let entries = std::fs::read_dir(ledger).map_err(|error| explain("read", ledger, error))?;
        for entry in entries {
            let entry = entry.map_err(|error| explain("read", ledger, error))?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            for (dialect, found) in [(Self::Documented, &mut documented), (Self::Af, &mut af)] {
                if let Name::Event(seq) = dialect.name(&name) {
                    *found = Some(found.map_or(seq, |least: u64| least.min(seq)));
                }
            }
        }
        match (documented, af) {
            (Some(_), None) => Ok(Self::Documented),
            (None, Some(_)) => Ok(Self::Af),
            (Some(documented), Some(af)) => Err(mixed(ledger, documented, af)),
            (None, None) => Ok(Meta::read(root)?.dialect().unwrap_or(Self::Documented)),
        }
    }
}

fn mixed(ledger: &Path, documented: u64, af: u64) -> StoreError {
    let what = format!(
        "{} holds events under two kinds of name, {} and {}: nobody can tell which of them count",
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
    fn only_the_very_name_of_an_event_is_an_event() {
        for (dialect, name, is) in [
            (Dialect::Documented, "event-000003.json", Name::Event(3)),
            (
                Dialect::Documented,
                "event-1000000.json",
                Name::Event(1_000_000),
            ),
            (Dialect::Documented, "event-3.json", Name::Strange(Some(3))),
            (
                Dialect::Documented,
                "event-0000003.json",
                Name::Strange(Some(3)),
            ),
            (
                Dialect::Documented,
                "event-000000.json",
                Name::Strange(None),
            ),
            (Dialect::Documented, "000003.json", Name::Strange(None)),
            (Dialect::Documented, ".event-x1.tmp", Name::Temporary),
            (Dialect::Documented, "ledger.lock", Name::Lock),
            (Dialect::Documented, "notes.txt", Name::Other),
            (Dialect::Af, "000003.json", Name::Event(3)),
            (Dialect::Af, "3.json", Name::Strange(Some(3))),
            (Dialect::Af, "+3.json", Name::Strange(Some(3))),
            (Dialect::Af, "0000003.json", Name::Strange(Some(3))),
            (Dialect::Af, "-3.json", Name::Strange(None)),
            (Dialect::Af, "event-000003.json", Name::Strange(None)),
            (Dialect::Af, "x.json", Name::Strange(None)),
        ] {
            assert_eq!(dialect.name(name), is, "{dialect} {name}");
        }
    }
}
