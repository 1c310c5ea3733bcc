//! Watches one lock: [`LockWatch`] reports when it appears, changes or goes.
//!
//! It watches the lock's folder for one name. A store's waiters need to hear only other programs:
//! a tenure process wakes exactly the waiter that can proceed, and the others may sleep on. The two
//! can be told apart by how they change the name. Tenure links a new lock file (and never writes into
//! it) and renames an old one away (and never unlinks it); a lock that is a folder it renames both
//! ways, where other programs make and remove theirs. A program that renames a lock away, too, is
//! heard by [`Listen::Everything`] only; other waiters find out when they poll.

use std::ffi::OsString;
use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::Path;
use std::time::Duration;

use crate::inotify::{FolderEvent, FolderWatch, ReadFlags, WatchFlags};

pub use crate::inotify::Listener;

/// What happened to the lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// A lock is there that was not there before, or another one than before.
    Appeared,
    /// A program wrote into the lock.
    Written,
    /// The lock is gone.
    Gone,
    /// The kernel dropped events: the caller must look.
    Missed,
    /// The folder itself is gone, and nothing more will be reported.
    FolderGone,
}

/// Which changes to report.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listen {
    /// All of them, for a holder and for the daemon.
    Everything,
    /// The changes that other programs make to a lock file, and takeovers by tenure.
    Others,
    /// The same for a lock that is a folder: other programs make and remove it, tenure moves it.
    OtherFolders,
}

/// Watches one name in a folder.
///
/// ```
/// use tenure_host::files::lock_watch::{Change, Listen, LockWatch};
///
/// let dir = tempfile::tempdir().unwrap();
/// let lock = dir.path().join(".exclusive-lock");
/// let watch = LockWatch::on(&lock, Listen::Everything).unwrap();
/// std::fs::write(&lock, "{}").unwrap();
/// std::fs::remove_file(&lock).unwrap();
/// let changes = watch.take().unwrap();
/// assert_eq!(changes.first(), Some(&Change::Appeared));
/// assert_eq!(changes.last(), Some(&Change::Gone));
/// ```
#[derive(Debug)]
pub struct LockWatch {
    folder: FolderWatch,
    name: OsString,
}

impl LockWatch {
    /// Starts to watch. The folder must exist; the lock need not.
    pub fn on(lock: &Path, listen: Listen) -> io::Result<Self> {
        let (Some(parent), Some(name)) = (lock.parent(), lock.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let always = WatchFlags::DELETE | WatchFlags::DELETE_SELF | WatchFlags::MOVE_SELF;
        let others = always | WatchFlags::CLOSE_WRITE | WatchFlags::MOVED_TO;
        let flags = match listen {
            Listen::Others => others,
            Listen::OtherFolders => always | WatchFlags::CREATE,
            Listen::Everything => others | WatchFlags::CREATE | WatchFlags::MOVED_FROM,
        };
        let folder = FolderWatch::new()?;
        folder.add(parent, flags)?;
        Ok(Self {
            folder,
            name: name.to_owned(),
        })
    }

    /// The changes since the last call. Does not block.
    pub fn take(&self) -> io::Result<Vec<Change>> {
        Ok(changes(&self.folder.take()?, &self.name))
    }

    /// Blocks until something happened in the lock's folder, or `limit` has passed.
    pub fn wait(&self, limit: Duration) -> io::Result<()> {
        self.folder.wait(limit)
    }

    /// Calls `react` from another thread whenever the lock changed, until the listener is dropped
    /// or the folder is gone.
    pub fn listen(self, react: impl Fn() + Send + 'static) -> io::Result<Listener> {
        let Self { folder, name } = self;
        Listener::start(folder, move |events| {
            let changes = changes(events, &name);
            if changes.contains(&Change::FolderGone) {
                return ControlFlow::Break(());
            }
            if !changes.is_empty() {
                react();
            }
            ControlFlow::Continue(())
        })
    }
}

impl AsFd for LockWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.folder.as_fd()
    }
}

fn changes(events: &[FolderEvent], name: &OsString) -> Vec<Change> {
    let change = |event: &FolderEvent| {
        if event.overflowed() {
            return Some(Change::Missed);
        }
        if event.folder_gone() {
            return Some(Change::FolderGone);
        }
        if event.name.as_ref() != Some(name) {
            return None;
        }
        let is = |flags| event.flags.intersects(flags);
        if is(ReadFlags::CREATE | ReadFlags::MOVED_TO) {
            Some(Change::Appeared)
        } else if is(ReadFlags::DELETE | ReadFlags::MOVED_FROM) {
            Some(Change::Gone)
        } else if is(ReadFlags::CLOSE_WRITE) {
            Some(Change::Written)
        } else {
            None
        }
    };
    events.iter().filter_map(change).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_waiter_that_listens_to_other_programs_sleeps_through_what_tenure_does() {
        let dir = tempfile::tempdir().unwrap();
        let (lock, private) = (dir.path().join("lock"), dir.path().join("private"));
        let others = LockWatch::on(&lock, Listen::Others).unwrap();
        let all = LockWatch::on(&lock, Listen::Everything).unwrap();
        std::fs::write(&private, "x").unwrap();
        std::fs::hard_link(&private, &lock).unwrap();
        std::fs::remove_file(&private).unwrap();
        std::fs::rename(&lock, &private).unwrap();
        assert_eq!(others.take().unwrap(), []);
        assert_eq!(all.take().unwrap(), [Change::Appeared, Change::Gone]);
        std::fs::write(&lock, "y").unwrap();
        std::fs::rename(&private, &lock).unwrap();
        std::fs::remove_file(&lock).unwrap();
        assert_eq!(
            others.take().unwrap(),
            [Change::Written, Change::Appeared, Change::Gone]
        );
    }

    #[test]
    fn a_listener_reports_the_lock_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let lock = dir.path().join("lock");
        let (send, received) = std::sync::mpsc::channel();
        let watch = LockWatch::on(&lock, Listen::Others).unwrap();
        let _listener = watch.listen(move || send.send(()).unwrap()).unwrap();
        std::fs::write(dir.path().join("other"), "x").unwrap();
        std::fs::write(&lock, "x").unwrap();
        let limit = std::time::Duration::from_secs(20);
        received.recv_timeout(limit).unwrap();
        assert!(received.try_recv().is_err());
    }
}
