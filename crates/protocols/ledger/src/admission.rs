//! Which events may be appended to an `af` ledger: those that the `af` tool's own replay accepts.
//!
//! The tool stops at the first event that it can't apply, and can't read its proof from then on. So a
//! writer replays up to the newest event, applies the new ones to a copy, and appends only if none was
//! refused. It looks twice: before it writes anything, and again under the ledger lock, where the newest
//! event stays the newest.

use tenure_core::{ErrorKind, StoreError};
use tenure_host::lock;

use crate::checkpoint;
use crate::event::{NewEvent, RecordedEvent};
use crate::replay::{AfProblem, Applied, ChangeKind, Replay};
use crate::{Ledger, event};

/// The replay that appends are checked against.
#[derive(Debug, Default)]
pub(super) struct AdmissionReplay {
    replay: Option<Replay>,
    /// The event of the checkpoint.
    saved: u64,
}

impl Ledger {
    /// Checks events against the ledger as it is now, unless they were checked after the same event
    /// before. Returns the newest event. Nothing is decided if the caller expects another one: that is a
    /// mismatch.
    pub(super) fn admit(
        &self,
        expected: Option<u64>,
        events: &[NewEvent],
        checked_after: Option<u64>,
    ) -> Result<u64, StoreError> {
        let mut admission = lock(&self.admission);
        let replay = self.current(&mut admission)?;
        let newest = replay.seq;
        if checked_after == Some(newest) || expected.is_some_and(|expected| expected != newest) {
            return Ok(newest);
        }
        let now = self.options.clock.now().wall;
        let mut after = replay.clone();
        for (index, event) in events.iter().enumerate() {
            let event = RecordedEvent {
                seq: after.seq.saturating_add(1),
                bytes: event.bytes(self.dialect, now),
            };
            let applied = after.apply(self.dialect, &event);
            if let Some(why) = refusal(&applied) {
                let which = match events.len() {
                    1 => "this event".to_owned(),
                    all => format!("event {} of {all}", index + 1),
                };
                let what = format!("the af tool would refuse {which}: {why}");
                return Err(StoreError::new(ErrorKind::Unsupported, what)
                    .fix("nothing was written; see what is there with tenure ledger log"));
            }
        }
        Ok(newest)
    }

    /// Leaves a checkpoint from time to time, so that the next check replays only a few events. The
    /// caller has the writer lock.
    pub(super) fn admitted(&self) {
        let mut admission = lock(&self.admission);
        let Ok(seq) = self.current(&mut admission).map(|replay| replay.seq) else {
            return;
        };
        if seq.saturating_sub(admission.saved) < checkpoint::EVERY {
            return;
        }
        // Best effort: without it the next check takes longer.
        if let Some(replay) = &admission.replay
            && self.save(replay).is_ok()
        {
            admission.saved = seq;
        }
    }

    /// The replay, up to the newest event.
    fn current<'a>(
        &self,
        admission: &'a mut AdmissionReplay,
    ) -> Result<&'a mut Replay, StoreError> {
        let replay = admission.replay.get_or_insert_with(|| {
            let resumed = self.resume();
            admission.saved = resumed.seq;
            resumed
        });
        self.catch_up(replay)?;
        Ok(replay)
    }
}

/// Why an event may not be appended.
fn refusal(applied: &Result<Applied, String>) -> Option<String> {
    match applied {
        Err(why) => Some(why.clone()),
        Ok(Applied {
            af: Some(problem), ..
        }) => Some(problem_words(problem)),
        Ok(Applied { changes, .. }) => {
            let held = changes.iter();
            let mut held = held.filter(|change| change.kind == ChangeKind::Overlapped);
            held.next().map(|change| {
                let (node, claim) = (&change.node, &change.claim);
                format!("{} holds node {node} until {}", claim.owner, claim.expires)
            })
        }
    }
}

/// What the `af` tool makes of an event, in words.
pub(super) fn problem_words(problem: &AfProblem) -> String {
    use crate::af::KnownTo;
    match problem {
        AfProblem::Since(kind, version) => event::unknown_to_af(kind, KnownTo::Since(version)),
        AfProblem::UnknownType(kind) => event::unknown_to_af(kind, KnownTo::None),
        AfProblem::Refused(why) => why.clone(),
    }
}
