//! Checks a ledger: [`Ledger::verify`].
//!
//! It reads every event, whatever a checkpoint says, and proves from the ledger alone that no two
//! holders of a node overlapped, or shows where they did.

use std::collections::BTreeMap;
use std::fmt;

use jiff::Timestamp;
use tenure_core::StoreError;

use crate::Ledger;
use crate::dialect::{Dialect, EntryName};
use crate::event::RecordedEvent;
use crate::replay::{ChangeKind, ClaimChange, Replay};
use tenure_host::files::fault::explain;

/// How serious a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Severity {
    /// Worth knowing.
    Note,
    /// Unusual, but every event can be read and no two holders overlapped.
    Warning,
    /// The ledger is damaged.
    Error,
}

impl Severity {
    /// Its name.
    pub fn word(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warning => "warning",
            Self::Error => "error",
        }
    }
}

/// One result of a check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// How serious it is.
    pub severity: Severity,
    /// What it is, for programs.
    pub code: &'static str,
    /// The event that it is about.
    pub event: Option<u64>,
    /// What it is, for people.
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

/// The result of a check.
#[derive(Debug, Clone, Default)]
#[must_use]
pub struct Verified {
    /// How many events there are.
    pub events: u64,
    /// How many claims began.
    pub claims: u64,
    /// The findings, in the order of events.
    pub findings: Vec<Finding>,
}

impl Verified {
    /// Whether there is no error.
    pub fn is_sound(&self) -> bool {
        !self
            .findings
            .iter()
            .any(|found| found.severity == Severity::Error)
    }

    /// Whether no two holders of a node overlapped.
    pub fn no_overlap(&self) -> bool {
        !self.findings.iter().any(|found| found.code == "overlap")
    }

    pub(super) fn report(
        &mut self,
        severity: Severity,
        code: &'static str,
        event: Option<u64>,
        what: String,
    ) {
        self.findings.push(Finding {
            severity,
            code,
            event,
            what,
        });
    }
}

impl Ledger {
    /// Checks names, events and claims.
    pub fn verify(&self) -> Result<Verified, StoreError> {
        let mut verified = Verified::default();
        if let Some(lock) = self.remove_dead_lock() {
            let what = format!("removed the ledger lock of {lock}: its process has exited");
            verified.report(Severity::Note, "dead_lock", None, what);
        }
        let acknowledged = self.read_acknowledged();
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
            acknowledged.check(&event, &mut verified);
            self.verify_event(&event, &mut newest, &mut verified);
            // A flaw has been reported by `verify_event`.
            for change in replay.apply(self.dialect, &event).unwrap_or_default() {
                self.verify_claim(seq, &event, &change, &mut verified);
            }
        }
        acknowledged.check_end(last, &mut verified);
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
            match self.dialect.entry(&shown) {
                EntryName::Event(_) | EntryName::Lock | EntryName::Sidecar => {}
                EntryName::Misnamed(Some(seq)) => meant.entry(seq).or_default().push(shown),
                EntryName::Misnamed(None) => verified.report(
                    Severity::Warning,
                    "misnamed",
                    None,
                    format!("{shown} is not named as an event of this ledger (dialect {})", self.dialect),
                ),
                EntryName::Temporary => verified.report(
                    Severity::Note,
                    "temporary",
                    None,
                    format!("{shown} is an event that is being written, or was left by a crash; it is ignored"),
                ),
                EntryName::Other => verified.report(
                    Severity::Note,
                    "other_file",
                    None,
                    format!("{shown} is not part of the ledger"),
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
                    verified.report(Severity::Error, "duplicate", Some(seq), what);
                } else {
                    let beyond = if seq > last {
                        ", after the newest one"
                    } else {
                        ""
                    };
                    let what = format!(
                        "{name} may be taken for event {seq}{beyond}, whose name is {}",
                        self.dialect.file_name(seq)
                    );
                    verified.report(Severity::Error, "misnamed", Some(seq), what);
                }
            }
        }
        Ok(())
    }

    fn verify_event(
        &self,
        event: &RecordedEvent,
        newest: &mut Option<(u64, Timestamp)>,
        verified: &mut Verified,
    ) {
        let seq = Some(event.seq);
        if event.bytes.len() > super::MAX_EVENT {
            let what = "it is larger than 1 MiB: the af tool can't read it".to_owned();
            verified.report(Severity::Error, "oversized", seq, what);
            return;
        }
        if let Err(why) = event.value() {
            verified.report(Severity::Error, "unreadable", seq, why);
            return;
        }
        let (kind, time) = event.head();
        if let Some(kind) = kind.filter(|kind| !self.dialect.knows(kind)) {
            let what = format!(
                "the af tool does not know the event type {kind:?}, and can't read the ledger"
            );
            verified.report(Severity::Error, "unknown_type", seq, what);
        }
        let Some(time) = time else {
            let what = "it has no valid timestamp".to_owned();
            verified.report(Severity::Warning, "no_time", seq, what);
            return;
        };
        if let Some((before, then)) = newest.filter(|(_, then)| *then > time) {
            let what = format!("its time {time} is before the time of event {before}, {then}");
            verified.report(Severity::Warning, "time_went_back", seq, what);
        }
        if newest.is_none_or(|(_, then)| time >= then) {
            *newest = Some((event.seq, time));
        }
    }

    fn verify_claim(
        &self,
        seq: u64,
        event: &RecordedEvent,
        change: &ClaimChange,
        verified: &mut Verified,
    ) {
        let ClaimChange { node, claim, kind } = change;
        match kind {
            ChangeKind::Began => verified.claims += 1,
            ChangeKind::Overlapped => {
                let (_, at) = event.head();
                let at = at.map_or_else(String::new, |at| format!(" from {at}"));
                let what = format!(
                    "node {node} was claimed{at} while {} held it (event {}) until {}",
                    claim.owner, claim.token, claim.expires
                );
                verified.report(Severity::Error, "overlap", Some(seq), what);
            }
            ChangeKind::Expired if self.dialect == Dialect::Af => {
                let what = format!(
                    "node {node} was claimed although the expired claim of {} (event {}) was not released",
                    claim.owner, claim.token
                );
                verified.report(Severity::Warning, "unreleased", Some(seq), what);
            }
            ChangeKind::Unmatched => {
                let what = format!(
                    "it is about an earlier claim on node {node}, which {} holds by event {}",
                    claim.owner, claim.token
                );
                verified.report(Severity::Warning, "late_end", Some(seq), what);
            }
            ChangeKind::Renewed | ChangeKind::Ended(_) | ChangeKind::Expired => {}
        }
    }

    /// A checkpoint that would be used must agree with the events.
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
                "the checkpoint at event {from} does not agree with the events: remove {}",
                self.sidecar.path().join("checkpoint.*").display()
            );
            verified.report(Severity::Error, "checkpoint", Some(from), what);
        }
    }
}

fn gap(verified: &mut Verified, first: u64, last: u64) {
    let what = if first == last {
        "it is missing".to_owned()
    } else {
        format!("it is missing, and so are all up to event {last}")
    };
    verified.report(Severity::Error, "gap", Some(first), what);
}
