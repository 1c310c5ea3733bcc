//! The number of the newest event, found without listing the folder: [`Numbers`].
//!
//! A hint says where to start: the number that this object saw last, or the one in the file `last` in
//! the sidecar folder. The hint is only a start: its event must exist, and the search then walks on
//! until a number is free. The folder is listed only if there is no hint, if its event does not exist,
//! or if there is an event after a gap. So the cost of an append does not grow with the ledger.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};

use tenure_core::StoreError;

use crate::dialect::{Dialect, EntryName};
use tenure_host::files::fault::explain;

/// How far to walk: listing is cheaper beyond this.
const WALK: u64 = 4096;

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

    fn exists(&self, seq: u64) -> bool {
        self.path(seq).symlink_metadata().is_ok()
    }

    /// The number of the newest event; 0 if there is none.
    pub(super) fn last(&self) -> Result<u64, StoreError> {
        let hint = match self.seen.load(Ordering::Relaxed) {
            0 => self.read_hint(),
            seen => Some(seen),
        };
        let last = match hint {
            Some(hint) if hint == 0 || self.exists(hint) => self.walk(hint),
            Some(_) | None => None,
        };
        let last = match last {
            Some(last) => last,
            None => self.list()?,
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

    /// Finds the number by listing the folder.
    pub(super) fn list(&self) -> Result<u64, StoreError> {
        let fault = |error: io::Error| explain("read", &self.ledger, error);
        let mut last = 0;
        for entry in std::fs::read_dir(&self.ledger).map_err(fault)? {
            let name = entry.map_err(fault)?.file_name();
            if let Some(EntryName::Event(seq)) = name.to_str().map(|name| self.dialect.entry(name))
            {
                last = last.max(seq);
            }
        }
        Ok(last)
    }

    fn read_hint(&self) -> Option<u64> {
        let text = std::fs::read_to_string(&self.hint).ok()?;
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
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if file.is_none() {
            let open = File::options()
                .write(true)
                .create(true)
                .truncate(false)
                .open(&self.hint)?;
            *file = Some(open);
        }
        match &*file {
            Some(file) => file.write_all_at(format!("{seq:020}\n").as_bytes(), 0),
            None => Ok(()),
        }
    }

    /// Drops the hints: another program wrote to a number that was free.
    pub(super) fn forget(&self) {
        self.seen.store(0, Ordering::Relaxed);
        let _ = tenure_host::files::atomic::unlink(&self.hint);
        *self.file.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
}
