//! Being told when the lock appears, changes or goes: [`LockWatch`].
//!
//! It is inotify on the folder, for one name in it. A store listens only to what other programs do:
//! tenure's own processes ring the one that can go on, and all the others may sleep. What tenure
//! does can be told apart: it links a new lock (never writes into it), and renames an old one away
//! (never unlinks it); a lock that is a folder it renames both ways, where others make and remove
//! theirs. A program that renames the lock away, too, is heard only by those who listen to
//! everything, as holders do; the others find out when they look again.

use std::ffi::OsString;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};

/// The stack of the listening thread: it makes a few system calls.
const STACK: usize = 64 * 1024;

/// What happened at the place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Something is there that was not, or something else than before.
    Appeared,
    /// Somebody wrote into what is there.
    Written,
    /// Nothing is there any more.
    Gone,
    /// The kernel lost count: look.
    Missed,
    /// The folder itself is gone, and nothing more will be told.
    FolderGone,
}

/// To what to listen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Listen {
    /// All that happens, for a daemon that has to stand aside and come back.
    Everything,
    /// What other programs do. A takeover by tenure is heard as well.
    Others,
    /// The same where the lock is a folder: it is made and removed by others, and moved by tenure.
    OtherFolders,
}

/// Hears what happens to one name in a folder.
///
/// ```
/// use tenure_host::files::lock_watch::{Change, Listen, LockWatch};
///
/// let dir = tempfile::tempdir().unwrap();
/// let place = dir.path().join(".exclusive-lock");
/// let watch = LockWatch::on(&place, Listen::Everything).unwrap();
/// std::fs::write(&place, "{}").unwrap();
/// std::fs::remove_file(&place).unwrap();
/// let heard = watch.take().unwrap();
/// assert_eq!(heard.first(), Some(&Change::Appeared));
/// assert_eq!(heard.last(), Some(&Change::Gone));
/// ```
#[derive(Debug)]
pub struct LockWatch {
    inotify: OwnedFd,
    name: OsString,
}

impl LockWatch {
    /// Begins to listen. The folder must be there; what is watched in it need not be.
    pub fn on(place: &Path, listen: Listen) -> io::Result<Self> {
        let (Some(folder), Some(name)) = (place.parent(), place.file_name()) else {
            return Err(io::ErrorKind::InvalidInput.into());
        };
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let always = WatchFlags::DELETE
            | WatchFlags::DELETE_SELF
            | WatchFlags::MOVE_SELF
            | WatchFlags::ONLYDIR;
        let others = always | WatchFlags::CLOSE_WRITE | WatchFlags::MOVED_TO;
        let flags = match listen {
            Listen::Others => others,
            Listen::OtherFolders => always | WatchFlags::CREATE,
            Listen::Everything => others | WatchFlags::CREATE | WatchFlags::MOVED_FROM,
        };
        inotify::add_watch(&inotify, folder, flags)?;
        Ok(Self {
            inotify,
            name: name.to_owned(),
        })
    }

    /// What happened since the last call. Does not block: poll the descriptor for that.
    pub fn take(&self) -> io::Result<Vec<Change>> {
        let mut buffer = [MaybeUninit::<u8>::uninit(); 4096];
        let mut reader = Reader::new(&self.inotify, &mut buffer);
        let mut changes = Vec::new();
        loop {
            let event = match reader.next() {
                Ok(event) => event,
                Err(Errno::AGAIN) => return Ok(changes),
                Err(Errno::INTR) => continue,
                Err(error) => return Err(error.into()),
            };
            let flags = event.events();
            let ours = event
                .file_name()
                .is_some_and(|name| name.to_bytes() == self.name.as_bytes());
            let gone = ReadFlags::IGNORED | ReadFlags::DELETE_SELF | ReadFlags::MOVE_SELF;
            if flags.intersects(ReadFlags::QUEUE_OVERFLOW) {
                changes.push(Change::Missed);
            } else if flags.intersects(gone) {
                changes.push(Change::FolderGone);
            } else if !ours {
                // Something else in the same folder.
            } else if flags.intersects(ReadFlags::CREATE | ReadFlags::MOVED_TO) {
                changes.push(Change::Appeared);
            } else if flags.intersects(ReadFlags::DELETE | ReadFlags::MOVED_FROM) {
                changes.push(Change::Gone);
            } else if flags.intersects(ReadFlags::CLOSE_WRITE) {
                changes.push(Change::Written);
            }
        }
    }
}

impl AsFd for LockWatch {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.inotify.as_fd()
    }
}

/// A thread that listens until this is dropped.
#[derive(Debug)]
pub struct Listener {
    _until: OwnedFd,
}

impl Listener {
    /// Calls `heard` whenever something happened to the place that is listened to.
    pub fn start(
        place: &Path,
        listen: Listen,
        heard: impl Fn() + Send + 'static,
    ) -> io::Result<Self> {
        let watch = LockWatch::on(place, listen)?;
        let (ended, until) = pipe_with(PipeFlags::CLOEXEC)?;
        std::thread::Builder::new()
            .name("listen".into())
            .stack_size(STACK)
            .spawn(move || {
                while hear(&watch, &ended).is_ok_and(|go_on| go_on) {
                    heard();
                }
            })?;
        Ok(Self { _until: until })
    }
}

/// Blocks until there is something to look at; `false` once there never will be.
fn hear(watch: &LockWatch, ended: &OwnedFd) -> io::Result<bool> {
    loop {
        let mut fds = [
            PollFd::new(&watch.inotify, PollFlags::IN),
            PollFd::new(ended, PollFlags::IN),
        ];
        match poll(&mut fds, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let [_, end] = fds;
        if !end.revents().is_empty() {
            return Ok(false);
        }
        let changes = watch.take()?;
        if changes.contains(&Change::FolderGone) {
            return Ok(false);
        }
        if !changes.is_empty() {
            return Ok(true);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_tenure_does_is_not_heard_by_those_who_listen_to_others() {
        let dir = tempfile::tempdir().unwrap();
        let (place, private) = (dir.path().join("lock"), dir.path().join("private"));
        let others = LockWatch::on(&place, Listen::Others).unwrap();
        let all = LockWatch::on(&place, Listen::Everything).unwrap();
        std::fs::write(&private, "x").unwrap();
        std::fs::hard_link(&private, &place).unwrap();
        std::fs::remove_file(&private).unwrap();
        std::fs::rename(&place, &private).unwrap();
        assert_eq!(others.take().unwrap(), []);
        assert_eq!(all.take().unwrap(), [Change::Appeared, Change::Gone]);
        std::fs::write(&place, "y").unwrap();
        std::fs::rename(&private, &place).unwrap();
        std::fs::remove_file(&place).unwrap();
        assert_eq!(
            others.take().unwrap(),
            [Change::Written, Change::Appeared, Change::Gone]
        );
    }

    #[test]
    fn a_listener_hears_and_ends() {
        let dir = tempfile::tempdir().unwrap();
        let place = dir.path().join("lock");
        let (tell, told) = std::sync::mpsc::channel();
        let listener =
            Listener::start(&place, Listen::Others, move || tell.send(()).unwrap()).unwrap();
        std::fs::write(&place, "x").unwrap();
        told.recv_timeout(std::time::Duration::from_secs(20))
            .unwrap();
        drop(listener);
        // The channel closes with the thread.
        while told
            .recv_timeout(std::time::Duration::from_secs(20))
            .is_ok()
        {}
    }
}
