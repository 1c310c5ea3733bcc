//! Reading events. It needs no lock: an event is complete as soon as it has its name.

use std::io::{self, Read};
use std::path::Path;

use rustix::fs::{Mode, OFlags};
use tenure_core::{ErrorKind, StoreError};

use crate::Ledger;
use crate::event::{MAX_EVENT, RecordedEvent};
use tenure_host::files::beneath::{self, Refused};
use tenure_host::files::fault::explain;

impl Ledger {
    /// The event with this number, if it exists.
    pub fn read(&self, seq: u64) -> Result<Option<RecordedEvent>, StoreError> {
        let path = self.numbers.path(seq);
        let file = match beneath::open(&path, OFlags::RDONLY, Mode::empty()) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) if Refused::of(&error).is_some() => return Err(not_an_event(&path)),
            Err(error) => return Err(explain("read", &path, error)),
        };
        if !file.metadata().is_ok_and(|at| at.is_file()) {
            return Err(not_an_event(&path));
        }
        let mut bytes = Vec::with_capacity(512);
        // One byte more shows that it is too large.
        let limit = u64::try_from(MAX_EVENT)
            .unwrap_or(u64::MAX)
            .saturating_add(1);
        file.take(limit)
            .read_to_end(&mut bytes)
            .map_err(|error| explain("read", &path, error))?;
        Ok(Some(RecordedEvent { seq, bytes }))
    }

    /// The events from this number up to the newest, in order. Missing numbers are skipped.
    pub fn events(&self, from: u64) -> Result<Events<'_>, StoreError> {
        self.remove_dead_lock();
        Ok(Events {
            ledger: self,
            next: from.max(1),
            last: self.last()?,
        })
    }
}

/// Something that is not a file has the name of an event.
pub(super) fn not_an_event(path: &Path) -> StoreError {
    let kind = match path.symlink_metadata() {
        Ok(at) if at.is_dir() => "a folder",
        Ok(at) if !at.is_symlink() => "not a file",
        _ if path.exists() => "a link",
        _ => "a link to nothing",
    };
    let what = format!("{} has the name of an event and is {kind}", path.display());
    StoreError::new(ErrorKind::Damaged, what)
        .fix("see what it is, and move it out of the folder by hand; nothing was changed")
}

/// See [`Ledger::events`].
#[derive(Debug)]
#[must_use]
pub struct Events<'a> {
    ledger: &'a Ledger,
    next: u64,
    last: u64,
}

impl Iterator for Events<'_> {
    type Item = Result<RecordedEvent, StoreError>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            let seq = match self.ledger.numbers.next_from(self.next, self.last) {
                Ok(seq) => seq?,
                Err(error) => {
                    self.next = self.last.saturating_add(1);
                    return Some(Err(error));
                }
            };
            self.next = seq.saturating_add(1);
            match self.ledger.read(seq).transpose() {
                None => {}
                found => return found,
            }
        }
    }
}
