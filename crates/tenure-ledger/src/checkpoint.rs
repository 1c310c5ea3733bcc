//! Replaying only what is new: the checkpoint, in the side folder.
//!
//! It holds all claims after some event, names that event and has its digest. It counts only if that
//! very event is there; otherwise all is replayed from the first on. It can be deleted at any time.

use serde::{Deserialize, Serialize};
use tenure_core::{ErrorKind, StoreError};

use crate::Ledger;
use crate::dialect::Dialect;
use crate::replay::{Change, Replay};
use tenure_host::files::two_slot::TwoSlotFile;

/// How often, in events, a checkpoint is written.
pub(super) const EVERY: u64 = 64;

/// The format of the file.
const FORMAT: u32 = 2;

#[derive(Serialize, Deserialize)]
struct Checkpoint {
    format: u32,
    dialect: Dialect,
    replay: Replay,
}

impl Ledger {
    fn checkpoint(&self) -> TwoSlotFile {
        TwoSlotFile::new(&self.side.path().join("checkpoint"))
    }

    /// The newest checkpoint that counts, or the very beginning.
    pub(super) fn resume(&self) -> Replay {
        let Ok((Some((_, _, json)), _)) = self.checkpoint().read() else {
            return Replay::default();
        };
        let Ok(found) = serde_json::from_slice::<Checkpoint>(&json) else {
            return Replay::default();
        };
        let is_there = || {
            let event = self.read(found.replay.seq).ok().flatten();
            event.is_some_and(|event| event.digest() == found.replay.digest)
        };
        if found.format == FORMAT && found.dialect == self.dialect && is_there() {
            self.numbers.saw(found.replay.seq);
            found.replay
        } else {
            Replay::default()
        }
    }

    /// Writes a checkpoint. In our turn.
    pub(super) fn save(&self, replay: &Replay) -> Result<(), StoreError> {
        let halves = self.checkpoint();
        let (newest, _) = halves.read()?;
        let (revision, half) = newest.map_or((0, 0), |(revision, half, _)| (revision, half));
        let checkpoint = Checkpoint {
            format: FORMAT,
            dialect: self.dialect,
            replay: replay.clone(),
        };
        let json = serde_json::to_vec(&checkpoint).unwrap_or_default();
        halves.write(revision.wrapping_add(1), half, &json)?;
        Ok(())
    }

    /// Takes in what is new. An event that is missing or can't be read ends it: nobody may claim
    /// anything on half of the story.
    pub(super) fn catch_up(
        &self,
        replay: &mut Replay,
        mut told: impl FnMut(u64, Vec<Change>),
    ) -> Result<(), StoreError> {
        // Somebody took away what was read before: begin anew.
        if replay.seq > 0 && self.numbers.path(replay.seq).symlink_metadata().is_err() {
            *replay = Replay::default();
        }
        loop {
            let seq = replay.seq.saturating_add(1);
            let Some(event) = self.read(seq)? else { break };
            match replay.apply(self.dialect, &event) {
                Ok(changes) => told(seq, changes),
                Err(why) => return Err(self.damaged(seq, &why)),
            }
        }
        let last = self.last()?;
        if last > replay.seq {
            return match self.read(replay.seq.saturating_add(1))? {
                // It came just now.
                Some(_) => self.catch_up(replay, told),
                None => Err(self.damaged(replay.seq.saturating_add(1), "it is missing")),
            };
        }
        Ok(())
    }

    fn damaged(&self, seq: u64, why: &str) -> StoreError {
        let what = format!(
            "event {seq} of {} can't be read: {why}",
            self.path.display()
        );
        StoreError::new(ErrorKind::Damaged, what)
            .fix("see all that is wrong with tenure ledger verify, and repair it by hand: nobody can tell who holds what")
    }
}
