//! Checks a ledger: [`Ledger::verify`].
//!
//! It reads every event, whatever a checkpoint says, and proves from the ledger alone that no two
//! holders of a node overlapped, or shows where they did. A ledger is sound if `claim` and, in its own
//! ledgers, the `af` tool can read it: an event that stops one of them is an error. It reads by the list of
//! names, so a stray one far away costs nothing. Other programs may append meanwhile: a number that the
//! list lacks is a gap only if its event is still missing when the list is complete.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::RangeInclusive;

use jiff::Timestamp;
use tenure_core::{ErrorKind, StoreError};

use crate::Ledger;
use crate::admission::problem_words;
use crate::dialect::{Dialect, EntryName};
use crate::event::RecordedEvent;
use crate::number::{self, Listed};
use crate::replay::{AfProblem, ChangeKind, ClaimChange, Replay};
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

/// What is in the folder.
#[derive(Debug, Default)]
struct FolderNames {
    /// The numbers of events, in order.
    events: Listed,
    /// Files that may be taken for events.
    misnamed: BTreeMap<u64, Vec<String>>,
}

/// Findings of which one line tells: there may be as many as events.
#[derive(Debug, Default)]
struct Folded {
    newest: Option<(u64, Timestamp)>,
    /// The events whose time goes back: a clock that was set back affects many.
    back: Option<Fold>,
    /// The types that only later versions of the `af` tool know.
    newer: BTreeMap<String, Fold>,
}

/// A finding about several events.
#[derive(Debug)]
struct Fold {
    first: u64,
    what: String,
    last: u64,
    more: u64,
}

impl Fold {
    /// Counts a finding about an event. The words are those about the first.
    fn add(fold: &mut Option<Self>, event: u64, what: impl FnOnce() -> String) {
        match fold {
            Some(fold) => {
                fold.last = event;
                fold.more += 1;
            }
            None => {
                *fold = Some(Self {
                    first: event,
                    what: what(),
                    last: event,
                    more: 0,
                });
            }
        }
    }

    fn report(self, code: &'static str, verified: &mut Verified) {
        let what = match self.more {
            0 => self.what,
            more => format!("{}; and {more} more up to event {}", self.what, self.last),
        };
        verified.report(Severity::Warning, code, Some(self.first), what);
    }
}

impl Ledger {
    /// Checks names, events and claims.
    pub fn verify(&self) -> Result<Verified, StoreError> {
        let mut verified = Verified::default();
        if let Some(lock) = self.remove_dead_lock() {
            let what = format!("removed the ledger lock of {lock}: its process has exited");
            verified.report(Severity::Note, "dead_lock", None, what);
        } else if let Some(lock) = self.locked_by().filter(|lock| lock.dead) {
            let what = format!(
                "the ledger lock of {lock} stands, and its process has exited: no other program can write until a tenure that may write removes it"
            );
            verified.report(Severity::Warning, "dead_lock", None, what);
        }
        let acknowledged = self.read_acknowledged()?;
        let names = self.list_names(&mut verified)?;
        let sequence = names.events.sequence();
        self.verify_names(&names, sequence.as_ref(), &mut verified);
        let mut replay = Replay::default();
        let mut folded = Folded::default();
        let mut next = 1;
        for seq in self.settled(&names.events, sequence.as_ref()) {
            if seq > next {
                gap(&mut verified, next, seq.saturating_sub(1));
            }
            next = seq.saturating_add(1);
            match self.read(seq) {
                Ok(Some(event)) => {
                    verified.events += 1;
                    acknowledged.check(&event, &mut verified);
                    self.verify_event(&event, &mut replay, &mut folded, &mut verified);
                }
                Ok(None) => {
                    let why = self.why_missing(seq).to_owned();
                    verified.report(Severity::Error, "unreadable", Some(seq), why);
                }
                Err(error) if error.kind == ErrorKind::Damaged => {
                    verified.report(Severity::Error, "not_a_file", Some(seq), error.what);
                }
                Err(error) => return Err(error),
            }
        }
        folded.report(&mut verified);
        let last = sequence.as_ref().map_or(0, |sequence| *sequence.end());
        acknowledged.check_end(last, &mut verified);
        for file in self.malformed_claim_files()? {
            verified.report(Severity::Warning, "malformed_claim", None, file.to_string());
        }
        self.verify_checkpoint(&replay, &mut verified);
        verified.findings.sort_by_key(|found| found.event);
        Ok(verified)
    }

    /// The numbers of the events in this part of a list, with those that the list lacks because they were
    /// added while the folder was listed.
    fn settled(&self, listed: &Listed, sequence: Option<&RangeInclusive<u64>>) -> Vec<u64> {
        let mut settled = Vec::with_capacity(listed.0.len());
        let mut next = 1;
        let belongs = |seq: &&u64| sequence.is_some_and(|sequence| sequence.contains(*seq));
        for seq in listed.0.iter().filter(belongs) {
            if seq.saturating_sub(next) <= number::FAR {
                settled.extend((next..*seq).filter(|seq| self.numbers.exists(*seq)));
            }
            settled.push(*seq);
            next = seq.saturating_add(1);
        }
        settled
    }

    /// Lists the folder, and reports what does not belong there.
    fn list_names(&self, verified: &mut Verified) -> Result<FolderNames, StoreError> {
        let fault = |error| explain("read", &self.path, error);
        let mut names = FolderNames::default();
        for entry in std::fs::read_dir(&self.path).map_err(fault)? {
            let entry = entry.map_err(fault)?;
            let shown = entry.file_name().to_string_lossy().into_owned();
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            let (severity, code, what) = match self.dialect.entry(&shown) {
                EntryName::Event(seq) => {
                    names.events.0.push(seq);
                    continue;
                }
                EntryName::Lock | EntryName::Sidecar => continue,
                EntryName::Misnamed(Some(seq)) if !is_folder => {
                    names.misnamed.entry(seq).or_default().push(shown);
                    continue;
                }
                EntryName::Misnamed(None) if !is_folder => {
                    let dialect = self.dialect;
                    let what =
                        format!("is not named as an event of this ledger (dialect {dialect})");
                    (Severity::Warning, "misnamed", what)
                }
                EntryName::Temporary => {
                    let what =
                        "is an event that is being written, or was left by a crash; it is ignored";
                    (Severity::Note, "temporary", what.to_owned())
                }
                EntryName::Misnamed(_) | EntryName::Other => (
                    Severity::Note,
                    "other_file",
                    "is not part of the ledger".to_owned(),
                ),
            };
            verified.report(severity, code, None, format!("{shown} {what}"));
        }
        names.events.0.sort_unstable();
        Ok(names)
    }

    /// Reports the names that other programs may take for events.
    fn verify_names(
        &self,
        names: &FolderNames,
        sequence: Option<&RangeInclusive<u64>>,
        verified: &mut Verified,
    ) {
        let last = sequence.map_or(0, |sequence| *sequence.end());
        let is_stray = |seq: &&u64| sequence.is_none_or(|sequence| !sequence.contains(*seq));
        for seq in names.events.0.iter().filter(is_stray) {
            let what = format!(
                "{} has the name of an event, but its number is far from {last}, the newest one: \
                 other programs take it for an event, and tenure does not; move it to another folder",
                self.dialect.file_name(*seq)
            );
            verified.report(Severity::Error, "stray", Some(*seq), what);
        }
        for (seq, misnamed) in &names.misnamed {
            for name in misnamed {
                if names.events.0.binary_search(seq).is_ok() {
                    let what = format!(
                        "{name} has the same number as {}",
                        self.dialect.file_name(*seq)
                    );
                    verified.report(Severity::Error, "duplicate", Some(*seq), what);
                    continue;
                }
                let what = match *seq {
                    0 => format!(
                        "{name} may be taken for event 0, and there is none: events begin with 1"
                    ),
                    seq => {
                        let beyond = if seq > last {
                            ", after the newest one"
                        } else {
                            ""
                        };
                        let right = self.dialect.file_name(seq);
                        format!(
                            "{name} may be taken for event {seq}{beyond}, whose name is {right}"
                        )
                    }
                };
                verified.report(Severity::Error, "misnamed", Some(*seq), what);
            }
        }
    }

    fn verify_event(
        &self,
        event: &RecordedEvent,
        replay: &mut Replay,
        folded: &mut Folded,
        verified: &mut Verified,
    ) {
        let seq = Some(event.seq);
        let applied = match replay.apply(self.dialect, event) {
            Ok(applied) => applied,
            Err(why) => {
                let code = if event.bytes.len() > super::MAX_EVENT {
                    "oversized"
                } else {
                    "unreadable"
                };
                verified.report(Severity::Error, code, seq, why);
                return;
            }
        };
        if let Some(problem) = &applied.af {
            let words = problem_words(problem);
            match problem {
                AfProblem::Since(kind, _) => {
                    let mut fold = folded.newer.remove(kind);
                    Fold::add(&mut fold, event.seq, || {
                        format!(
                            "{words}, and can't read the ledger; that version and later ones can"
                        )
                    });
                    folded.newer.extend(fold.map(|fold| (kind.clone(), fold)));
                }
                AfProblem::UnknownType(_) => {
                    let what = format!("{words}, and can't read the ledger");
                    verified.report(Severity::Error, "unknown_type", seq, what);
                }
                AfProblem::Refused(_) => {
                    let what =
                        format!("the af tool refuses it, and can't read the ledger: {words}");
                    verified.report(Severity::Error, "refused", seq, what);
                }
            }
        }
        folded.check_time(event, verified);
        for change in &applied.changes {
            self.verify_claim(event, change, verified);
        }
    }

    fn verify_claim(&self, event: &RecordedEvent, change: &ClaimChange, verified: &mut Verified) {
        let seq = event.seq;
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
        if same && (&resumed.claims, &resumed.proof) != (&replay.claims, &replay.proof) {
            let what = format!(
                "the checkpoint at event {from} does not agree with the events: remove {}",
                self.sidecar.path().join("checkpoint.*").display()
            );
            verified.report(Severity::Error, "checkpoint", Some(from), what);
        }
    }
}

impl Folded {
    fn check_time(&mut self, event: &RecordedEvent, verified: &mut Verified) {
        let (_, Some(time)) = event.head() else {
            let what = "it has no valid timestamp".to_owned();
            verified.report(Severity::Warning, "no_time", Some(event.seq), what);
            return;
        };
        match self.newest {
            Some((before, then)) if then > time => Fold::add(&mut self.back, event.seq, || {
                format!("its time {time} is before the time of event {before}, {then}")
            }),
            _ => self.newest = Some((event.seq, time)),
        }
    }

    fn report(self, verified: &mut Verified) {
        for fold in self.newer.into_values() {
            fold.report("newer_type", verified);
        }
        if let Some(fold) = self.back {
            fold.report("time_went_back", verified);
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
