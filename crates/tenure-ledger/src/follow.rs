//! Being told of new events as they come: [`Follow`].

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, Reader, WatchFlags};
use rustix::io::Errno;
use tenure_core::StoreError;

use crate::Ledger;
use crate::event::Recorded;
use tenure_host::files::fault::explain;

/// How often to look, should the kernel not tell.
const SAFETY_NET: Duration = Duration::from_secs(1);

/// Gives one event after the other, and waits for those that are not there yet.
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
    inotify: OwnedFd,
}

impl Ledger {
    /// Follows the events from this number on.
    pub fn follow(&self, from: u64) -> Result<Follow<'_>, StoreError> {
        let inotify = listen(&self.path).map_err(|error| explain("watched", &self.path, error))?;
        Ok(Follow {
            ledger: self,
            next: from.max(1),
            inotify,
        })
    }
}

impl Follow<'_> {
    /// Goes on from this number.
    pub fn skip_to(&mut self, seq: u64) {
        self.next = seq.max(1);
    }

    /// The next event; `None` if it did not come in time. A number that is missing while later ones
    /// are there is passed over.
    pub fn next(&mut self, timeout: Duration) -> Result<Option<Recorded>, StoreError> {
        let clock = &self.ledger.options.clock;
        let began = clock.now().ticks;
        loop {
            // Heard before we look: whatever comes after the look is heard again.
            self.drain();
            let last = self.ledger.last()?;
            while self.next <= last {
                let seq = self.next;
                self.next = seq.saturating_add(1);
                if let Some(found) = self.ledger.read(seq)? {
                    return Ok(Some(found));
                }
            }
            let left = timeout.saturating_sub(clock.now().ticks.saturating_sub(began));
            if left.is_zero() {
                return Ok(None);
            }
            self.wait(left.min(SAFETY_NET));
        }
    }

    fn drain(&self) {
        let mut buffer = [MaybeUninit::<u8>::uninit(); 4096];
        let mut reader = Reader::new(&self.inotify, &mut buffer);
        while matches!(reader.next(), Ok(_) | Err(Errno::INTR)) {}
    }

    fn wait(&self, timeout: Duration) {
        let timeout = Timespec {
            tv_sec: i64::try_from(timeout.as_secs()).unwrap_or(1),
            tv_nsec: i64::from(timeout.subsec_nanos()),
        };
        let _ = poll(
            &mut [PollFd::new(&self.inotify, PollFlags::IN)],
            Some(&timeout),
        );
    }
}

fn listen(folder: &Path) -> io::Result<OwnedFd> {
    let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
    // Tenure links its events, others rename them.
    let flags = WatchFlags::CREATE | WatchFlags::MOVED_TO | WatchFlags::ONLYDIR;
    inotify::add_watch(&inotify, folder, flags)?;
    Ok(inotify)
}
