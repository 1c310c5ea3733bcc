//! Watches folders for changes that other programs make: [`FolderWatch`], [`Listener`].
//!
//! This is inotify, the only place that uses it. A watch reports names inside its folders, not the
//! folders' subfolders. The kernel drops events when its queue is full and reports that as
//! [`FolderEvent::overflowed`]; a caller must then look at everything again. A caller must also poll
//! as a safety net: network file systems report nothing.

use std::ffi::{OsStr, OsString};
use std::io;
use std::mem::MaybeUninit;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::inotify::{self, CreateFlags, Reader};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};

use crate::time_limit::TimeLimit;

pub use rustix::fs::inotify::{ReadFlags, WatchFlags};

/// The stack of a listener's thread, which makes a few system calls.
const STACK: usize = 64 * 1024;

/// One change in a watched folder.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FolderEvent {
    /// The name inside the folder; `None` if the event is about the folder itself.
    pub name: Option<OsString>,
    /// What happened.
    pub flags: ReadFlags,
}

impl FolderEvent {
    /// Whether the kernel dropped events.
    pub fn overflowed(&self) -> bool {
        self.flags.intersects(ReadFlags::QUEUE_OVERFLOW)
    }

    /// Whether the folder itself was removed or renamed, so that its path is no longer watched.
    pub fn folder_gone(&self) -> bool {
        let gone = ReadFlags::IGNORED | ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF;
        self.flags.intersects(gone)
    }
}

/// A set of watched folders.
///
/// ```
/// use tenure_host::inotify::{FolderWatch, WatchFlags};
///
/// let dir = tempfile::tempdir().unwrap();
/// let watch = FolderWatch::new().unwrap();
/// watch.add(dir.path(), WatchFlags::CREATE).unwrap();
/// std::fs::write(dir.path().join("lock"), "").unwrap();
/// let events = watch.take().unwrap();
/// assert_eq!(events[0].name.as_deref(), Some("lock".as_ref()));
/// assert!(watch.take().unwrap().is_empty());
/// ```
#[derive(Debug)]
pub struct FolderWatch(OwnedFd);

impl FolderWatch {
    /// An empty set.
    pub fn new() -> io::Result<Self> {
        Ok(Self(inotify::init(
            CreateFlags::CLOEXEC | CreateFlags::NONBLOCK,
        )?))
    }

    /// Adds a folder, which must exist.
    pub fn add(&self, folder: &Path, flags: WatchFlags) -> io::Result<()> {
        inotify::add_watch(&self.0, folder, flags | WatchFlags::ONLYDIR)?;
        Ok(())
    }

    /// The changes since the last call. Does not block.
    pub fn take(&self) -> io::Result<Vec<FolderEvent>> {
        let mut buffer = [MaybeUninit::<u8>::uninit(); 4096];
        let mut reader = Reader::new(&self.0, &mut buffer);
        let mut events = Vec::new();
        loop {
            match reader.next() {
                Ok(event) => events.push(FolderEvent {
                    name: event
                        .file_name()
                        .map(|name| OsStr::from_bytes(name.to_bytes()).to_owned()),
                    flags: event.events(),
                }),
                Err(Errno::AGAIN) => return Ok(events),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Blocks until a change can be taken, or `limit` has passed.
    pub fn wait(&self, limit: Duration) -> io::Result<()> {
        let limit = TimeLimit::after(limit);
        loop {
            let mut fds = [PollFd::new(&self.0, PollFlags::IN)];
            match poll(&mut fds, Some(&limit.timespec())) {
                Ok(_) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl AsFd for FolderWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

/// A thread that reacts to changes. It ends when this is dropped.
#[derive(Debug)]
pub struct Listener {
    /// The thread polls the other end of this pipe.
    _alive: OwnedFd,
}

impl Listener {
    /// Calls `react` with each group of changes, until it breaks.
    pub fn start(
        watch: FolderWatch,
        mut react: impl FnMut(&[FolderEvent]) -> ControlFlow<()> + Send + 'static,
    ) -> io::Result<Self> {
        let (end, alive) = pipe_with(PipeFlags::CLOEXEC)?;
        std::thread::Builder::new()
            .name("listen".into())
            .stack_size(STACK)
            .spawn(move || {
                while let Ok(Some(events)) = next(&watch, &end) {
                    if react(&events).is_break() {
                        return;
                    }
                }
            })?;
        Ok(Self { _alive: alive })
    }
}

/// Blocks until there are changes; `None` once the listener was dropped.
fn next(watch: &FolderWatch, end: &OwnedFd) -> io::Result<Option<Vec<FolderEvent>>> {
    loop {
        let mut fds = [
            PollFd::new(watch, PollFlags::IN),
            PollFd::new(end, PollFlags::IN),
        ];
        match poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let [_, end] = fds;
        if !end.revents().is_empty() {
            return Ok(None);
        }
        let events = watch.take()?;
        if !events.is_empty() {
            return Ok(Some(events));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_is_removed_is_reported() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("folder");
        std::fs::create_dir(&folder).unwrap();
        let watch = FolderWatch::new().unwrap();
        watch.add(&folder, WatchFlags::DELETE_SELF).unwrap();
        assert!(watch.take().unwrap().is_empty());
        std::fs::remove_dir(&folder).unwrap();
        watch.wait(Duration::from_secs(20)).unwrap();
        assert!(watch.take().unwrap().iter().any(FolderEvent::folder_gone));
        let file = dir.path().join("file");
        std::fs::write(&file, "").unwrap();
        assert!(watch.add(&file, WatchFlags::CREATE).is_err());
    }

    #[test]
    fn a_wait_ends_at_its_limit() {
        let watch = FolderWatch::new().unwrap();
        let limit = TimeLimit::after(Duration::from_millis(10));
        watch.wait(Duration::from_millis(10)).unwrap();
        assert!(limit.has_passed());
    }

    #[test]
    fn a_listener_reports_changes_and_ends_when_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let watch = FolderWatch::new().unwrap();
        watch.add(dir.path(), WatchFlags::CLOSE_WRITE).unwrap();
        let (send, received) = std::sync::mpsc::channel();
        let listener = Listener::start(watch, move |events| {
            let names = events.iter().map(|event| event.name.clone());
            send.send(names.collect::<Vec<_>>()).unwrap();
            ControlFlow::Continue(())
        })
        .unwrap();
        std::fs::write(dir.path().join("lock"), "x").unwrap();
        let limit = Duration::from_secs(20);
        assert_eq!(received.recv_timeout(limit).unwrap(), [Some("lock".into())]);
        drop(listener);
        // The channel closes with the thread.
        let ended = received.recv_timeout(limit).unwrap_err();
        assert_eq!(ended, std::sync::mpsc::RecvTimeoutError::Disconnected);
    }
}
