//! Removes the ledger lock that a killed tenure left behind, as soon as it dies: [`LedgerLockWatch`]. Every ledger
//! of the project is watched: the one in its root, and those in folders of the root.
//!
//! The other program that shares a ledger waits for its lock and knows no way to tell that the holder is
//! dead. So a thread of its own watches each lock, between the cycles and during them: it sleeps while no
//! lock is there, and until the holder of one releases it or exits. A lock that is not proven dead is left
//! alone; every tenure command that looks at the ledger checks it, too.

use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::mpsc::{self, Receiver, Sender};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use tenure::Project;
use tenure::project::is_ledger;
use tenure_host::files::lock_watch::{Change, Listen, LockWatch};
use tenure_host::pidfd::open_pidfd;
use tenure_ledger::{BlockingLock, Ledger};

/// The pause after a change: while programs append, locks come and go hundreds of times a second.
const SETTLE: Duration = Duration::from_millis(50);

/// How often to look again at a lock whose holder's exit the kernel can't report.
const LOOK_AGAIN: Duration = Duration::from_secs(1);

/// How many entries of the root are looked at.
const MOST_ENTRIES: usize = 4096;

/// How many ledgers are watched: each takes a thread.
const MOST_LEDGERS: usize = 64;

/// Watches the lock of one ledger until it is dropped.
#[derive(Debug)]
pub(crate) struct LedgerLockWatch {
    thread: Option<JoinHandle<()>>,
    /// Closing it ends the thread.
    stop: Option<OwnedFd>,
    removed: Receiver<BlockingLock>,
    /// The folder of the events. It may be replaced, and its removal is not reported while it is open.
    folder: (u64, u64),
}

impl LedgerLockWatch {
    /// Watches the ledgers that the project has now. Returns a line for the log for each lock that was removed
    /// since the last call.
    pub(crate) fn refresh(watches: &mut Vec<Self>, project: &Project) -> Vec<String> {
        let removed: Vec<String> = watches
            .iter()
            .flat_map(|watch| watch.removed.try_iter())
            .map(|lock| format!("Removed the ledger lock of {lock}: its process had exited."))
            .collect();
        let ledgers = ledgers_of(project);
        watches.retain(|watch| {
            let runs = watch.thread.as_ref().is_some_and(|it| !it.is_finished());
            runs && ledgers.iter().any(|(_, folder)| watch.folder == *folder)
        });
        for (root, folder) in ledgers {
            if !watches.iter().any(|watch| watch.folder == folder) {
                watches.extend(Self::start(&root));
            }
        }
        removed
    }

    /// `None` if the ledger can't be opened or watched: the next cycle tries again.
    fn start(root: &Path) -> Option<Self> {
        let ledger = Ledger::open(root, tenure_ledger::Options::default()).ok()?;
        let folder = id(ledger.path())?;
        let watch = LockWatch::on(&ledger.path().join("ledger.lock"), Listen::Everything).ok()?;
        let (stopped, stop) = pipe_with(PipeFlags::CLOEXEC).ok()?;
        let (send, removed) = mpsc::channel();
        let thread = std::thread::Builder::new()
            .name("ledger-lock".into())
            .spawn(move || keep_watch(&ledger, &watch, &stopped, &send));
        Some(Self {
            thread: Some(thread.ok()?),
            stop: Some(stop),
            removed,
            folder,
        })
    }
}

impl Drop for LedgerLockWatch {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn id(folder: &Path) -> Option<(u64, u64)> {
    let at = folder.metadata().ok()?;
    Some((at.dev(), at.ino()))
}

/// The roots of a project's ledgers, with the folders of their events.
fn ledgers_of(project: &Project) -> Vec<(PathBuf, (u64, u64))> {
    let root = project.root();
    let inside = fs::read_dir(root).into_iter().flatten().flatten();
    let inside = inside
        .take(MOST_ENTRIES)
        // As everywhere: a link to a folder is not followed.
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path());
    [root.to_owned()]
        .into_iter()
        .chain(inside)
        // One that can't be looked at is found by the commands that list it.
        .filter(|root| is_ledger(root).unwrap_or(false))
        .filter_map(|root| Some((id(&root.join("ledger"))?, root)))
        .map(|(folder, root)| (root, folder))
        .take(MOST_LEDGERS)
        .collect()
}

/// Watches until the other end of `stopped` is closed, or the folder is gone.
fn keep_watch(
    ledger: &Ledger,
    watch: &LockWatch,
    stopped: &OwnedFd,
    removed: &Sender<BlockingLock>,
) {
    loop {
        // Before the look: a change after it is reported.
        match watch.take() {
            Ok(changes) if !changes.contains(&Change::FolderGone) => {}
            _ => return,
        }
        if let Some(lock) = ledger.remove_dead_lock() {
            let _ = removed.send(lock);
            continue;
        }
        let holder = ledger.locked_by().and_then(|lock| lock.process);
        let process = holder.as_ref().map(open_pidfd);
        let (process, limit) = match process {
            Some(Ok(Some(process))) => (Some(process), None),
            // It exited just now, or is in another container.
            Some(_) => (None, Some(LOOK_AGAIN)),
            None => (None, None),
        };
        let mut fds = vec![
            PollFd::new(stopped, PollFlags::IN),
            PollFd::from_borrowed_fd(watch.as_fd(), PollFlags::IN),
        ];
        fds.extend(
            process
                .iter()
                .map(|process| PollFd::new(process, PollFlags::IN)),
        );
        if is_stopped(&mut fds, limit) {
            return;
        }
        fds.truncate(1);
        if is_stopped(&mut fds, Some(SETTLE)) {
            return;
        }
    }
}

/// Waits for one of these, the first of which says that the watch ends.
fn is_stopped(fds: &mut [PollFd<'_>], limit: Option<Duration>) -> bool {
    let limit = limit.and_then(|limit| Timespec::try_from(limit).ok());
    let _ = poll(fds, limit.as_ref());
    fds.first().is_some_and(|fd| !fd.revents().is_empty())
}
