//! A kernel lock that a process holds until it exits: [`LivenessLock`].
//!
//! The lock is a `flock` on a named pipe in a [`LivenessFolder`]. The kernel releases it when the last
//! process that has the pipe open exits. No pid can be mistaken for another, and the lock works across
//! containers that share the folder on one machine. Commands inherit the open pipe, so a lease lasts
//! until the whole command has exited, even if the process that took the lease is killed.
//!
//! The same pipe is the process's doorbell, see [`crate::bell`]. (Inotify on a regular file is too slow:
//! the kernel needs about ten milliseconds to close its descriptor, at every handover.)
//!
//! A process that waits is also *heard*: it may be stopped, which the lock does not tell. The access
//! time of its pipe says when it was last heard, in ticks since boot, so that no clock change and no other
//! process's ring moves it; see [`LivenessLock::beat`]. It costs no write to the store.
//!
//! # Invariants
//!
//! 1. A process publishes the lock's id only after it holds the lock. A free lock therefore means that
//!    the process has exited, never that it is still starting.
//! 2. Only the owner removes the pipe, or a process that holds its lock.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rustix::fs::{
    AtFlags, Dir, FileType, OFlags, Timespec, Timestamps, UTIME_OMIT, futimens, unlinkat,
};
use tenure_core::{LivenessId, Moment};

use crate::files::atomic;
use crate::files::beneath::{Place, open_folder, open_pipe};
use crate::files::look::if_there;
use crate::files::permissions::{create_folder, create_pipe_at};

/// Ticks since boot are below this, and times of the wall clock are above.
const LONGEST_UPTIME: Duration = Duration::from_secs(1 << 30);

/// The end of the name of a file beside a lock; see [`LivenessFolder::asked_file`].
const ASKED: &str = ".asked";

/// The folder with the liveness locks of one store.
#[derive(Debug, Clone)]
pub struct LivenessFolder(PathBuf);

/// What the kernel reports about a liveness lock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockState {
    /// A process holds the lock.
    Held,
    /// The pipe exists and no process holds its lock.
    Free,
    /// The pipe does not exist.
    Missing,
}

impl LivenessFolder {
    /// The folder at this path. Taking the first lock creates it.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// The path of one lock. An id with other characters than ours can't lead out of the folder.
    pub(crate) fn file(&self, lock: &LivenessId) -> PathBuf {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        let valid = !lock.0.is_empty() && lock.0.bytes().all(allowed);
        self.0
            .join(if valid { lock.0.as_str() } else { "invalid-id" })
    }

    /// The folder itself.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Whether a process holds this lock.
    pub fn state_of(&self, lock: &LivenessId) -> io::Result<LockState> {
        let Some(file) = if_there(open_to_probe(&self.file(lock)))? else {
            return Ok(LockState::Missing);
        };
        match file.try_lock_shared() {
            Ok(()) => Ok(LockState::Free),
            Err(TryLockError::WouldBlock) => Ok(LockState::Held),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// When the process with this lock was last heard, in ticks; `None` if its pipe does not tell.
    pub(crate) fn heard(&self, lock: &LivenessId, now: &Moment) -> Option<Duration> {
        let file = fs::symlink_metadata(self.file(lock)).ok()?;
        let accessed = Duration::new(
            u64::try_from(file.atime()).ok()?,
            u32::try_from(file.atime_nsec()).ok()?,
        );
        if accessed < LONGEST_UPTIME {
            return Some(accessed);
        }
        // The kernel's own stamp, by the wall clock: the process has just been woken.
        let wall = Duration::try_from(now.wall.as_duration()).ok()?;
        let ago = wall.saturating_sub(accessed);
        Some(now.ticks.saturating_sub(ago))
    }

    /// Removes every lock, held or not, and the folder: for a store whose leases are gone. Files that
    /// are not locks stay, and then the folder stays too and the call fails.
    pub fn clear(&self) -> io::Result<()> {
        let Some(folder) = if_there(open_folder(&self.0))? else {
            return Ok(());
        };
        for entry in Dir::read_from(&folder)? {
            let entry = entry?;
            let is_asked = entry.file_name().to_bytes().ends_with(ASKED.as_bytes());
            if entry.file_type() == FileType::Fifo || is_asked {
                unlinkat(&folder, entry.file_name(), AtFlags::empty())?;
            }
        }
        atomic::remove_folder(&self.0)
    }

    /// The locks that no process holds, among at most `limit` locks of other processes.
    pub fn dead(&self, limit: usize) -> io::Result<Vec<LivenessId>> {
        let entries = if_there(fs::read_dir(&self.0))?;
        let mut dead = Vec::new();
        for entry in entries.into_iter().flatten().take(limit) {
            let entry = entry?;
            // Not a liveness lock, so not ours to remove.
            if !entry.file_type()?.is_fifo() {
                continue;
            }
            let lock = LivenessId(entry.file_name().to_string_lossy().into_owned());
            if matches!(self.state_of(&lock), Ok(LockState::Free)) {
                dead.push(lock);
            }
        }
        Ok(dead)
    }

    /// Removes a lock, unless a process holds it. Returns whether it was removed.
    pub fn remove_dead(&self, lock: &LivenessId) -> bool {
        let path = self.file(lock);
        // Invariant 2. A process that is just taking this lock waits for us, sees that its pipe is
        // gone, and starts again with a new one.
        open_to_probe(&path).is_ok_and(|file| {
            file.try_lock().is_ok()
                && atomic::unlink(&self.asked_file(lock)).is_ok()
                && atomic::unlink(&path).is_ok()
        })
    }

    /// The file in which the command of the process with this lock finds what it is asked. It is removed with
    /// the lock.
    pub(crate) fn asked_file(&self, lock: &LivenessId) -> PathBuf {
        let mut file = self.file(lock).into_os_string();
        file.push(ASKED);
        file.into()
    }
}

/// Opens a pipe to test its lock.
pub(crate) fn open_to_probe(path: &Path) -> io::Result<File> {
    open_pipe(path, OFlags::RDONLY)
}

/// The liveness lock of this process. Dropping it releases it, and so does the end of this process and of
/// every process that inherited it.
#[derive(Debug)]
pub struct LivenessLock {
    id: LivenessId,
    file: File,
    /// The folder of the pipe, whatever takes its path meanwhile.
    folder: OwnedFd,
    /// Whether the pipe stays in its folder.
    stays: AtomicBool,
}

impl LivenessLock {
    /// Takes a new lock, with an id of its own.
    pub fn take(folder: &LivenessFolder) -> io::Result<Self> {
        loop {
            let id = LivenessId(crate::random_uuid().simple().to_string());
            let path = folder.file(&id);
            let created = Place::of(&path).and_then(|at| Ok((create_pipe_at(&at)?, at.folder)));
            let (file, folder) = match created {
                // There is no folder yet, or another process swept the pipe before we opened it.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    create_folder(folder.path())?;
                    continue;
                }
                created => created?,
            };
            file.lock()?;
            // Another process may have swept it before we locked it; then no process can find it.
            if file.metadata()?.nlink() > 0 {
                return Ok(Self {
                    id,
                    file,
                    folder,
                    stays: AtomicBool::new(false),
                });
            }
        }
    }

    /// Rings this process's own bell, even if its pipe was removed from the folder.
    pub fn ring(&self) {
        let _ = rustix::io::write(&self.file, b"!");
    }

    /// Leaves the pipe in its folder after this process: another process has to know whether one that
    /// inherited the lock still runs.
    pub fn leave_pipe(&self) {
        self.stays.store(true, Ordering::Relaxed);
    }

    /// Says that this process was heard, at this time in ticks. A process that waits says so every few
    /// seconds.
    pub fn beat(&self, ticks: Duration) {
        let accessed = Timespec {
            tv_sec: i64::try_from(ticks.as_secs()).unwrap_or(0),
            tv_nsec: i64::from(ticks.subsec_nanos()),
        };
        let unchanged = Timespec {
            tv_sec: 0,
            tv_nsec: UTIME_OMIT,
        };
        // A file system without access times: the pipe keeps the time at which it was made.
        let _ = futimens(
            &self.file,
            &Timestamps {
                last_access: accessed,
                last_modification: unchanged,
            },
        );
    }

    /// The lock's id.
    pub fn id(&self) -> &LivenessId {
        &self.id
    }
}

impl AsFd for LivenessLock {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.file.as_fd()
    }
}

impl Drop for LivenessLock {
    fn drop(&mut self) {
        // Best effort: a later sweep removes a pipe that stays.
        if !self.stays.load(Ordering::Relaxed) {
            let _ = unlinkat(&self.folder, self.id.0.as_str(), AtFlags::empty());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::files::permissions::create_pipe;

    #[test]
    fn a_lock_is_held_until_it_is_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let folder = LivenessFolder::new(dir.path().join("live"));
        let lock = LivenessLock::take(&folder).unwrap();
        let id = lock.id().clone();
        assert_eq!(folder.state_of(&id).unwrap(), LockState::Held);
        drop(lock);
        assert_eq!(folder.state_of(&id).unwrap(), LockState::Missing);
    }

    #[test]
    fn only_locks_that_no_process_holds_are_dead() {
        let dir = tempfile::tempdir().unwrap();
        let folder = LivenessFolder::new(dir.path());
        let lock = LivenessLock::take(&folder).unwrap();
        let dead = LivenessId("dead".into());
        create_pipe(&folder.file(&dead)).unwrap();
        let notes = dir.path().join("notes");
        fs::write(&notes, "not ours").unwrap();
        assert_eq!(
            folder.dead(usize::MAX).unwrap(),
            std::slice::from_ref(&dead)
        );
        assert_eq!(folder.dead(0).unwrap(), []);
        assert!(folder.remove_dead(&dead));
        assert!(!folder.remove_dead(lock.id()));
        assert_eq!(folder.state_of(lock.id()).unwrap(), LockState::Held);
        assert_eq!(folder.state_of(&dead).unwrap(), LockState::Missing);
        assert!(folder.clear().is_err(), "the folder is not empty");
        assert!(notes.exists());
    }

    #[test]
    fn a_sweep_never_removes_a_lock_that_is_being_taken() {
        let dir = tempfile::tempdir().unwrap();
        let folder = LivenessFolder::new(dir.path());
        std::thread::scope(|scope| {
            let sweeper = scope.spawn(|| {
                for _ in 0..20_000 {
                    for lock in folder.dead(usize::MAX).unwrap() {
                        folder.remove_dead(&lock);
                    }
                }
            });
            while !sweeper.is_finished() {
                let lock = LivenessLock::take(&folder).unwrap();
                assert_eq!(folder.state_of(lock.id()).unwrap(), LockState::Held);
            }
        });
    }

    #[test]
    fn an_id_with_slashes_does_not_lead_out_of_the_folder() {
        let folder = LivenessFolder::new("here");
        assert_eq!(
            folder.file(&LivenessId("../../etc/passwd".into())),
            Path::new("here/invalid-id")
        );
    }
}
