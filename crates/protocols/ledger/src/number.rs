//! The number of the newest event, found without listing the folder: [`Numbers`].
//!
//! A hint says where to start: the number that this object saw last, or the one in the file `last` in
//! the sidecar folder. The hint is only a start: its event and the one before must exist, and the search
//! then walks on until a number is free. The folder is listed only if there is no hint, if it is wrong,
//! or if there is an event after a gap. So the cost of an append does not grow with the ledger.
//!
//! # Stray names
//!
//! A file such as `20261115183000.json` has the name of an event, but is none: a backup, an export. It
//! neither gives the next event its number nor makes a reader walk to it. A name is stray if its number
//! comes after a gap of more than [`FAR`] numbers. If no event is near number 1 because the oldest ones
//! were removed, the ledger is the longest part without such a gap.

use std::fs::File;
use std::io;
use std::ops::RangeInclusive;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use tenure_core::StoreError;

use crate::dialect::{Dialect, EntryName};
use tenure_host::files::beneath;
use tenure_host::files::fault::explain;
use tenure_host::files::permissions::{OFlags, open_or_create};
use tenure_host::lock;

/// How far to walk: listing is cheaper beyond this.
const WALK: u64 = 4096;

/// No ledger loses so many events in a row.
pub(super) const FAR: u64 = 4096;

/// How far to look beyond the first free number: an event must not be put into a gap.
const BEYOND: u64 = 4;

#[derive(Debug)]
pub(super) struct Numbers {
    ledger: PathBuf,
    hint: PathBuf,
    dialect: Dialect,
    /// The newest number that this object saw; 0 if none.
    seen: AtomicU64,
    file: Mutex<Option<File>>,
}

impl Numbers {
    pub(super) fn new(ledger: &Path, side: &Path, dialect: Dialect) -> Self {
        Self {
            ledger: ledger.to_owned(),
            hint: side.join("last"),
            dialect,
            seen: AtomicU64::new(0),
            file: Mutex::new(None),
        }
    }

    /// The path of an event.
    pub(super) fn path(&self, seq: u64) -> PathBuf {
        self.ledger.join(self.dialect.file_name(seq))
    }

    /// Whether the name of this event is taken, be it by a link to nothing or a folder.
    pub(super) fn exists(&self, seq: u64) -> bool {
        self.path(seq).symlink_metadata().is_ok()
    }

    /// The number of the newest event; 0 if there is none.
    pub(super) fn last(&self) -> Result<u64, StoreError> {
        let hint = match self.seen.load(Ordering::Relaxed) {
            0 => self.read_hint(),
            seen => Some(seen),
        };
        let last = match hint {
            Some(0) => self.walk(0),
            // A stray name has no event before it.
            Some(hint) if self.exists(hint) && (hint == 1 || self.exists(hint - 1)) => {
                self.walk(hint)
            }
            Some(_) | None => None,
        };
        let last = if let Some(last) = last {
            last
        } else {
            let listed = self.list()?.sequence();
            listed.map_or(0, |sequence| *sequence.end())
        };
        self.seen.store(last, Ordering::Relaxed);
        Ok(last)
    }

    /// The last number without a gap; `None` if it is far away, or events follow after a gap.
    fn walk(&self, from: u64) -> Option<u64> {
        let mut row = from..from.saturating_add(WALK);
        let last = row.find(|seq| !self.exists(seq.saturating_add(1)))?;
        let beyond = |more: u64| self.exists(last.saturating_add(more));
        (!(2..=BEYOND).any(beyond)).then_some(last)
    }

    /// All numbers that are taken, by listing the folder.
    pub(super) fn list(&self) -> Result<Listed, StoreError> {
        list(&self.ledger, self.dialect)
    }

    /// The first number from `from` to `last` that is taken. It walks over the gaps that a ledger can
    /// have, and lists the folder for a larger one.
    pub(super) fn next_from(&self, from: u64, last: u64) -> Result<Option<u64>, StoreError> {
        let near = from..=last.min(from.saturating_add(FAR));
        if let Some(seq) = near.into_iter().find(|seq| self.exists(*seq)) {
            return Ok(Some(seq));
        }
        if last.saturating_sub(from) <= FAR {
            return Ok(None);
        }
        let numbers = self.list()?.0.into_iter();
        Ok(numbers.filter(|seq| (from..=last).contains(seq)).min())
    }

    fn read_hint(&self) -> Option<u64> {
        let text = beneath::read_text(&self.hint, 64).ok()?;
        text.strip_suffix('\n')?
            .trim_start_matches('0')
            .parse()
            .ok()
    }

    /// Takes a number as a hint.
    pub(super) fn saw(&self, seq: u64) {
        self.seen.fetch_max(seq, Ordering::Relaxed);
    }

    /// Records that an event was written. The caller has the writer lock.
    pub(super) fn written(&self, seq: u64) {
        self.seen.store(seq, Ordering::Relaxed);
        // Only a hint: without it the next search takes longer.
        let _ = self.write_hint(seq);
    }

    fn write_hint(&self, seq: u64) -> io::Result<()> {
        let mut file = lock(&self.file);
        if file.is_none() {
            *file = Some(open_or_create(&self.hint, OFlags::WRONLY)?);
        }
        match &*file {
            Some(file) => file.write_all_at(format!("{seq:020}\n").as_bytes(), 0),
            None => Ok(()),
        }
    }

    /// Drops the hints: they are wrong.
    pub(super) fn forget(&self) {
        self.seen.store(0, Ordering::Relaxed);
        let _ = tenure_host::files::atomic::unlink(&self.hint);
        *lock(&self.file) = None;
    }
}

/// All numbers that are taken, in order.
#[derive(Debug, Default)]
pub(super) struct Listed(pub(super) Vec<u64>);

/// Lists the numbers that are taken in the folder of a ledger.
pub(super) fn list(ledger: &Path, dialect: Dialect) -> Result<Listed, StoreError> {
    let fault = |error: io::Error| explain("read", ledger, error);
    let mut numbers = Vec::new();
    for entry in std::fs::read_dir(ledger).map_err(fault)? {
        let name = entry.map_err(fault)?.file_name();
        if let Some(EntryName::Event(seq)) = name.to_str().map(|name| dialect.entry(name)) {
            numbers.push(seq);
        }
    }
    numbers.sort_unstable();
    Ok(Listed(numbers))
}

impl Listed {
    /// The numbers that belong to the ledger, from the first to the last. There may be gaps.
    pub(super) fn sequence(&self) -> Option<RangeInclusive<u64>> {
        let parts = self.0.chunk_by(|a, b| b.saturating_sub(*a) <= FAR);
        let mut longest: &[u64] = &[];
        for part in parts {
            if part.first().is_some_and(|first| *first <= FAR) {
                longest = part;
                break;
            }
            // A single event far from any other is none.
            if part.len() > longest.len().max(1) {
                longest = part;
            }
        }
        Some(*longest.first()?..=*longest.last()?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stray_numbers_do_not_belong_to_a_ledger() {
        const STRAY: u64 = 20_261_115_183_000;
        for (numbers, sequence) in [
            (vec![], None),
            (vec![1], Some(1..=1)),
            (vec![1, 2, 4], Some(1..=4)),
            (vec![1, 2, FAR + 2], Some(1..=FAR + 2)),
            (vec![1, 2, FAR + 3], Some(1..=2)),
            (vec![3, STRAY], Some(3..=3)),
            (vec![STRAY], None),
            (vec![1, STRAY, STRAY + 1, STRAY + 2], Some(1..=1)),
            (vec![5001, 5002, STRAY], Some(5001..=5002)),
            (vec![5001, STRAY, STRAY + 1], Some(STRAY..=STRAY + 1)),
        ] {
            assert_eq!(Listed(numbers.clone()).sequence(), sequence, "{numbers:?}");
        }
    }
}
