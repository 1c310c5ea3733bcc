//! Which events tenure acknowledged, so that `verify` notices when one is gone or was replaced.
//!
//! The file `acknowledged` in the sidecar folder has eight bytes for each number: a digest of 32 bits of the
//! event that tenure appended and synced under it, and the same bits inverted, so that a torn entry is
//! known as one. They are zero if another program wrote the event, or if it is not known. An entry is
//! written after the append can no longer be lost and before it is reported, each in its own place, so
//! writers need no lock here.
//!
//! It is a record for `verify` alone. Nothing else reads it, and an entry that can't be written is left
//! out.

use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use tenure_core::StoreError;
use tenure_host::files::beneath;
use tenure_host::files::fault::explain;
use tenure_host::files::look::if_there;
use tenure_host::files::permissions::{OFlags, open_or_create};

use crate::Ledger;
use crate::event::RecordedEvent;
use crate::verify::{Severity, Verified};

/// The largest file that is read, in bytes: 32 million events.
const LARGEST: u64 = 256 << 20;

/// The size of an entry.
const ENTRY: u64 = 8;

/// The lower half of an entry.
const LOW: u64 = u32::MAX as u64;

/// Larger numbers are not recorded: the file would seem to be larger than most file systems allow.
const MAX_NUMBER: u64 = u32::MAX as u64;

impl Ledger {
    fn acknowledged(&self) -> PathBuf {
        self.sidecar.path().join("acknowledged")
    }

    /// Records events that are appended and synced, from this number on.
    pub(super) fn acknowledge(&self, first: u64, digests: &[u64]) {
        let last = first.saturating_add(u64::try_from(digests.len()).unwrap_or(u64::MAX));
        if first == 0 || last > MAX_NUMBER {
            return;
        }
        let bytes: Vec<u8> = digests
            .iter()
            .flat_map(|d| entry(*d).to_le_bytes())
            .collect();
        let write = || -> io::Result<()> {
            open_or_create(&self.acknowledged(), OFlags::WRONLY)?
                .write_all_at(&bytes, (first - 1) * ENTRY)
        };
        // Best effort: `verify` then knows less.
        let _ = write();
    }

    /// What was acknowledged until now.
    pub(super) fn read_acknowledged(&self) -> Result<Acknowledged, StoreError> {
        let path = self.acknowledged();
        let bytes = if_there(beneath::read(&path, LARGEST));
        let bytes = bytes.map_err(|error| explain("read", &path, error))?;
        let bytes = bytes.unwrap_or_default();
        Ok(Acknowledged { bytes, path })
    }
}

/// The entry of an event with this digest.
fn entry(digest: u64) -> u64 {
    let folded = (digest ^ (digest >> 32)) & LOW;
    folded | (!folded << 32)
}

/// Whether an entry is complete.
fn is_whole(entry: u64) -> bool {
    entry >> 32 == !entry & LOW
}

/// The acknowledged events. It must be read before the ledger is listed: an event that is appended
/// meanwhile is then not missed.
#[derive(Debug)]
pub(super) struct Acknowledged {
    bytes: Vec<u8>,
    path: PathBuf,
}

impl Acknowledged {
    fn get(&self, seq: u64) -> Option<u64> {
        let at = usize::try_from(seq.checked_sub(1)?.checked_mul(ENTRY)?).ok()?;
        let bytes = self.bytes.get(at..)?.first_chunk()?;
        Some(u64::from_le_bytes(*bytes)).filter(|entry| is_whole(*entry))
    }

    /// Reports an event that is not the one that was acknowledged.
    pub(super) fn check(&self, event: &RecordedEvent, verified: &mut Verified) {
        if self
            .get(event.seq)
            .is_some_and(|known| known != entry(event.digest()))
        {
            let what = format!(
                "it is not the event that tenure acknowledged under this number: another program replaced it{}",
                self.unless_restored()
            );
            verified.report(Severity::Error, "replaced", Some(event.seq), what);
        }
    }

    /// Reports acknowledged events that are gone after the newest one. (An event that is gone before it
    /// is a gap.)
    pub(super) fn check_end(&self, last: u64, verified: &mut Verified) {
        let end = u64::try_from(self.bytes.len()).unwrap_or(0) / ENTRY;
        let gone: Vec<u64> = (last.saturating_add(1)..=end)
            .filter(|seq| self.get(*seq).is_some())
            .collect();
        let (Some(first), Some(newest)) = (gone.first(), gone.last()) else {
            return;
        };
        let up_to = if first == newest {
            String::new()
        } else {
            format!(", and so are later ones up to event {newest}")
        };
        let what = format!(
            "tenure acknowledged it, and it is gone{up_to}{}",
            self.unless_restored()
        );
        verified.report(Severity::Error, "lost", Some(*first), what);
    }

    fn unless_restored(&self) -> String {
        format!(
            " (if an older state of the ledger was restored on purpose, remove {})",
            self.path.display()
        )
    }
}
