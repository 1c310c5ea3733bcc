//! Following a ledger: events as they are appended ([`Follow`]).

use std::time::Duration;

use tenure_core::StoreError;
use tenure_host::files::fault::explain;
use tenure_host::inotify::{FolderWatch, WatchFlags};

use crate::Ledger;
use crate::event::RecordedEvent;

/// How often to look if the kernel reports nothing.
const POLL: Duration = Duration::from_secs(1);

/// Returns one event after another, and waits for those that are not there yet.
///
/// ```
/// use std::time::Duration;
/// use tenure_ledger::{Dialect, Ledger, NewEvent};
/// # let dir = tempfile::tempdir().unwrap();
/// # let dir = dir.path();
///
/// let ledger = Ledger::init(dir, Dialect::Documented, Default::default())?;
/// let mut follow = ledger.follow(1)?;
/// assert!(follow.next(Duration::ZERO)?.is_none(), "nothing yet");
/// let _ = ledger.append(&NewEvent::parse(r#"{"type":"note"}"#)?)?;
/// assert_eq!(follow.next(Duration::from_secs(5))?.unwrap().seq, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Follow<'a> {
    ledger: &'a Ledger,
    next: u64,
    watch: FolderWatch,
}

impl Ledger {
    /// Follows the events from this number on.
    pub fn follow(&self, from: u64) -> Result<Follow<'_>, StoreError> {
        self.remove_dead_lock();
        let fault = |error| explain("watched", &self.path, error);
        let watch = FolderWatch::new().map_err(fault)?;
        // Tenure links its events; other programs rename them.
        let flags = WatchFlags::CREATE | WatchFlags::MOVED_TO;
        watch.add(&self.path, flags).map_err(fault)?;
        Ok(Follow {
            ledger: self,
            next: from.max(1),
            watch,
        })
    }
}

impl Follow<'_> {
    /// Continues from this number.
    pub fn skip_to(&mut self, seq: u64) {
        self.next = seq.max(1);
    }

    /// The next event; `None` if none was appended within `timeout`. A missing number is skipped
    /// if later events exist.
    pub fn next(&mut self, timeout: Duration) -> Result<Option<RecordedEvent>, StoreError> {
        let clock = &self.ledger.options.clock;
        let fault = |error| explain("watched", &self.ledger.path, error);
        let began = clock.now().ticks;
        loop {
            // Before looking: an event that is appended after the look is reported again.
            self.watch.take().map_err(fault)?;
            let last = self.ledger.last()?;
            while let Some(seq) = self.ledger.numbers.next_from(self.next, last)? {
                self.next = seq.saturating_add(1);
                if let Some(found) = self.ledger.read(seq)? {
                    return Ok(Some(found));
                }
            }
            let left = timeout.saturating_sub(clock.now().ticks.saturating_sub(began));
            if left.is_zero() {
                return Ok(None);
            }
            self.watch.wait(left.min(POLL)).map_err(fault)?;
        }
    }
}
