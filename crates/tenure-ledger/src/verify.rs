//! Whether a ledger is sound: [`Ledger::verify`].
//!
//! It reads every event anew, whatever a checkpoint says, and proves from the ledger alone that no two
//! holders overlapped, or shows where they did.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use tenure_core::StoreError;

use crate::Ledger;
use crate::dialect::{Dialect, Name};
use crate::event::Recorded;
use crate::replay::{Change, Deed, Replay};
use tenure_host::files::fault::explain;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Worth knowing.
    Note,
    /// Odd, but everything can be read and nobody overlapped.
    Warning,
    /// Something is broken.
    Error,
}

impl Severity {
    /// The word for it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// Something that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// How bad it is.
    pub severity: Severity,
    /// What sort it is, in one word for programs.
    pub code: &'static str,
    /// The event where it shows.
    pub event: Option<u64>,
    /// In words.
    pub what: String,
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.severity.word())?;
        if let Some(event) = self.event {
            write!(f, "event {event}: ")?;
        }
        f.write_str(&self.what)
    }
}

/// What came of it.
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct Verified {
    /// How many events there are.
    pub events: u64,
    /// How many claims began.
    pub claims: u64,
    /// What was found, in the order of events.
    pub findings: Vec<Finding>,
}

impl Verified {
    /// Whether nothing is broken.
    pub fn is_sound(&self) -> bool {
        !self
            .findings
            .iter()
            .any(|found| found.severity == Severity::Error)
    }

    /// Whether two never held the same node.
    pub fn no_overlap(&self) -> bool {
        !self.findings.iter().any(|found| found.code == "overlap")
    }

    fn say(&mut self, severity: Severity, code: &'static str, event: Option<u64>, what: String) {
        self.findings.push(Finding {
            severity,
            code,
            event,
            what,
        });
    }
}

impl Ledger {
    /// Looks at everything.
    pub fn verify(&self) -> Result<Verified, StoreError> {
        let mut verified = Verified::default();
        let last = self.numbers.list()?;
        self.verify_names(last, &mut verified)?;
        let mut replay = Replay::default();
        let mut newest: Option<(u64, Timestamp)> = None;
        let mut missing: Option<u64> = None;
        for seq in 1..=last {
            let Some(event) = self.read(seq)? else {
                missing.get_or_insert(seq);
                continue;
            };
            if let Some(first) = missing.take() {
                gap(&mut verified, first, seq.saturating_sub(1));
            }
            verified.events += 1;
            self.verify_event(&event, &mut newest, &mut verified);
            // What is wrong with it has been told.
            for change in replay.apply(self.dialect, &event).unwrap_or_default() {
                self.verify_claim(seq, &event, &change, &mut verified);
            }
        }
        self.verify_checkpoint(&replay, &mut verified);
        verified.findings.sort_by_key(|found| found.event);
        Ok(verified)
    }

    fn verify_names(&self, last: u64, verified: &mut Verified) -> Result<(), StoreError> {
        let fault = |error| explain("read", &self.path, error);
        let mut meant: BTreeMap<u64, Vec<String>> = BTreeMap::new();
        for entry in std::fs::read_dir(&self.path).map_err(fault)? {
            let name = entry.map_err(fault)?.file_name();
            let shown = name.to_string_lossy().into_owned();
            match self.dialect.name(&shown) {
                Name::Event(_) | Name::Lock => {}
                Name::Strange(Some(seq)) => meant.entry(seq).or_default().push(shown),
                Name::Strange(None) => verified.say(
                    Severity::Warning,
                    "strange_name",
                    None,
                    format!("{shown} is no event of this ledger (dialect {})", self.dialect),
                ),
                // Ours in a turn that is under way is gone in a moment.
                Name::Temporary => verified.say(
                    Severity::Note,
                    "temporary",
                    None,
                    format!("{shown} is an event on its way, or was left by a crash: it counts for nothing"),
                ),
                Name::Other => verified.say(
                    Severity::Note,
                    "other_file",
                    None,
                    format!("{shown} does not belong to the ledger"),
                ),
            }
        }
        for (seq, names) in meant {
            let there = self.numbers.path(seq).symlink_metadata().is_ok();
            for name in names {
                if there {
                    let what = format!(
                        "{name} has the same number as {}",
                        self.dialect.file_name(seq)
                    );
                    verified.say(Severity::Error, "duplicate", Some(seq), what);
                } else {
                    let beyond = if seq > last {
                        ", beyond the newest"
                    } else {
                        ""
                    };
                    let what = format!(
                        "{name} may be taken for event {seq}{beyond}, whose name is {}",
                        self.dialect.file_name(seq)
                    );
                    verified.say(Severity::Error, "strange_name", Some(seq), what);
                }
            }
        }
        Ok(())
    }

    fn verify_event(
        &self,
        event: &Recorded,
        newest: &mut Option<(u64, Timestamp)>,
        verified: &mut Verified,
    ) {
        let seq = Some(event.seq);
        if event.bytes.len() > super::MAX_EVENT {
            let what = "it has more than 1 MiB: the real tool can't read it".to_owned();
            verified.say(Severity::Error, "oversized", seq, what);
            return;
        }
        if let Err(why) = event.value() {
            verified.say(Severity::Error, "unreadable", seq, why);
            return;
        }
        let (kind, time) = event.head();
        if let Some(kind) = kind.filter(|kind| !self.dialect.knows(kind)) {
            let what =
                format!("the af tool knows no event of type {kind:?}: all is unreadable to it");
            verified.say(Severity::Error, "unknown_type", seq, what);
        }
        let Some(time) = time else {
            let what = "it has no timestamp that can be read".to_owned();
            verified.say(Severity::Warning, "no_time", seq, what);
            return;
        };
        if let Some((before, then)) = newest.filter(|(_, then)| *then > time) {
            let what = format!("its time {time} is before {then}, that of event {before}");
            verified.say(Severity::Warning, "time_went_back", seq, what);
        }
        if newest.is_none_or(|(_, then)| time >= then) {
            *newest = Some((event.seq, time));
        }
    }

    fn verify_claim(&self, seq: u64, event: &Recorded, change: &Change, verified: &mut Verified) {
        let Change { node, claim, what } = change;
        match what {
            Deed::Began => verified.claims += 1,
            Deed::Overlapped => {
                let (_, at) = event.head();
                let at = at.map_or_else(String::new, |at| format!(" from {at}"));
                let what = format!(
                    "node {node} was claimed{at} while {} held it (event {}) until {}",
                    claim.owner, claim.token, claim.expires
                );
                verified.say(Severity::Error, "overlap", Some(seq), what);
            }
            Deed::RanOut if self.dialect == Dialect::Af => {
                let what = format!(
                    "node {node} was claimed without a release of the claim of {} (event {}), whose time had run out",
                    claim.owner, claim.token
                );
                verified.say(Severity::Warning, "unreleased", Some(seq), what);
            }
            Deed::Missed => {
                let what = format!(
                    "it is about a claim on node {node} that does not stand: {} has it by event {}",
                    claim.owner, claim.token
                );
                verified.say(Severity::Warning, "late_end", Some(seq), what);
            }
            Deed::WentOn | Deed::Ended(_) | Deed::RanOut => {}
        }
    }

    /// A checkpoint that would count must say the same as the events.
    fn verify_checkpoint(&self, replay: &Replay, verified: &mut Verified) {
        let mut resumed = self.resume();
        if resumed.seq == 0 || resumed.seq > replay.seq {
            return;
        }
        let from = resumed.seq;
        let same = (from + 1..=replay.seq).all(|seq| match self.read(seq) {
            Ok(Some(event)) => resumed.apply(self.dialect, &event).is_ok(),
            _ => false,
        });
        if same && resumed.claims != replay.claims {
            let what = format!(
                "the checkpoint at event {from} says something else than the events: remove {}",
                self.side.path().join("checkpoint.*").display()
            );
            verified.say(Severity::Error, "checkpoint", Some(from), what);
        }
    }
}

fn gap(verified: &mut Verified, first: u64, last: u64) {
    let what = if first == last {
        "it is missing".to_owned()
    } else {
        format!("it is missing, and all up to {last}")
    };
    verified.say(Severity::Error, "gap", Some(first), what);
}
