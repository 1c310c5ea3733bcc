//! The checkpoint in the sidecar folder, so that only new events are replayed.
//!
//! It holds all claims after one event, with the number and digest of that event. It is used only if
//! that event exists with that digest; otherwise all events are replayed. It can be deleted at any
//! time.

use serde::{Deserialize, Serialize};
use tenure_core::{ErrorKind, StoreError};

use crate::Ledger;
use crate::dialect::Dialect;
use crate::replay::Replay;
use tenure_host::files::two_slot::TwoSlotFile;

/// How often, in events, a checkpoint is written.
pub(super) const EVERY: u64 = 64;

/// The format of the file.
const FORMAT: u32 = 3;

#[derive(Serialize, Deserialize)]
struct Checkpoint {
    format: u32,
    dialect: Dialect,
    replay: Replay,
}

impl Ledger {
    fn checkpoint(&self) -> TwoSlotFile {
        TwoSlotFile::new(&self.sidecar.path().join("checkpoint"))
    }

    /// The checkpoint if it can be used, or else the state before the first event.
    pub(super) fn resume(&self) -> Replay {
        let Ok((Some((_, _, json)), _)) = self.checkpoint().read() else {
            return Replay::default();
        };
        let Ok(found) = serde_json::from_slice::<Checkpoint>(&json) else {
            return Replay::default();
        };
        let exists = || {
            let event = self.read(found.replay.seq).ok().flatten();
            event.is_some_and(|event| event.digest() == found.replay.digest)
        };
        if found.format == FORMAT && found.dialect == self.dialect && exists() {
            self.numbers.saw(found.replay.seq);
            found.replay
        } else {
            Replay::default()
        }
    }

    /// Writes a checkpoint. The caller has the writer lock.
    pub(super) fn save(&self, replay: &Replay) -> Result<(), StoreError> {
        let slots = self.checkpoint();
        let (newest, _) = slots.read()?;
        let (revision, slot) = newest.map_or((0, 0), |(revision, slot, _)| (revision, slot));
        let checkpoint = Checkpoint {
            format: FORMAT,
            dialect: self.dialect,
            replay: replay.clone(),
        };
        let json = serde_json::to_vec(&checkpoint).unwrap_or_default();
        slots.write(revision.wrapping_add(1), slot, &json)?;
        Ok(())
    }

    /// Applies the new events. Fails if an event is missing or can't be read: nothing may be claimed on
    /// an incomplete ledger.
    pub(super) fn catch_up(&self, replay: &mut Replay) -> Result<(), StoreError> {
        // Events that were read before have been removed: start again.
        if replay.seq > 0 && self.numbers.path(replay.seq).symlink_metadata().is_err() {
            *replay = Replay::default();
        }
        loop {
            let seq = replay.seq.saturating_add(1);
            let Some(event) = self.read(seq)? else { break };
            match replay.apply(self.dialect, &event) {
                Ok(_) => {}
                Err(why) => return Err(self.damaged(seq, &why)),
            }
        }
        let last = self.last()?;
        if last > replay.seq {
            let seq = replay.seq.saturating_add(1);
            if self.read(seq)?.is_some() {
                // It was appended just now.
                return self.catch_up(replay);
            }
            return Err(self.damaged(seq, self.why_missing(seq)));
        }
        Ok(())
    }

    /// Why an event that should be there can't be found.
    pub(super) fn why_missing(&self, seq: u64) -> &'static str {
        if self.numbers.exists(seq) {
            "it is a link to nothing"
        } else {
            "it is missing"
        }
    }

    fn damaged(&self, seq: u64, why: &str) -> StoreError {
        let what = format!(
            "event {seq} of {} can't be read: {why}",
            self.path.display()
        );
        StoreError::new(ErrorKind::Damaged, what)
            .fix(format!(
                "list all damage with {}, and repair the ledger by hand: until then it is not known who holds what",
                crate::command(&self.root, "verify")
            ))
    }
}
