//! Hears what other programs do to the ledger and to claims that are files: [`Listener`].
//!
//! Tenure links its events, others rename them, and only that is listened to: tenure's own processes
//! ring the one that can go on, and all the others sleep.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::inotify::{self, CreateFlags, Reader, WatchFlags};
use rustix::io::Errno;
use rustix::pipe::{PipeFlags, pipe_with};

/// The stack of the listening thread: it makes a few system calls.
const STACK: usize = 64 * 1024;

/// A thread that listens until this is dropped.
#[derive(Debug)]
pub(super) struct Listener {
    _until: OwnedFd,
}

impl Listener {
    pub(super) fn start(
        ledger: &Path,
        locks: &Path,
        heard: impl Fn() + Send + 'static,
    ) -> io::Result<Self> {
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let renamed = WatchFlags::MOVED_TO | WatchFlags::ONLYDIR;
        inotify::add_watch(&inotify, ledger, renamed)?;
        let any = WatchFlags::MOVED_TO
            | WatchFlags::DELETE
            | WatchFlags::CLOSE_WRITE
            | WatchFlags::ONLYDIR;
        // Most ledgers have none.
        let _ = inotify::add_watch(&inotify, locks, any);
        let (ended, until) = pipe_with(PipeFlags::CLOEXEC)?;
        std::thread::Builder::new()
            .name("listen".into())
            .stack_size(STACK)
            .spawn(move || {
                while hear(&inotify, &ended).is_ok_and(|go_on| go_on) {
                    heard();
                }
            })?;
        Ok(Self { _until: until })
    }
}

/// Blocks until there is something to look at; `false` once nobody wants to know.
fn hear(inotify: &OwnedFd, ended: &OwnedFd) -> io::Result<bool> {
    let mut fds = [
        PollFd::new(inotify, PollFlags::IN),
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
    let mut buffer = [MaybeUninit::<u8>::uninit(); 4096];
    let mut reader = Reader::new(inotify, &mut buffer);
    loop {
        match reader.next() {
            Ok(_) | Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Ok(true),
            Err(error) => return Err(error.into()),
        }
    }
}
