//! Proof of life: [`LivenessLock`], a kernel lock that a process keeps for as long as it lives.
//!
//! A life is a named pipe in a [`LivenessFolder`], locked with `flock`. The kernel gives the lock up when
//! the last process that has the open file is gone: no pid can be mistaken for another, and it
//! works across containers that share the folder on one machine. Commands inherit the open file,
//! so a lease lasts until the whole command is gone, even if the process that took it is killed.
//!
//! The same pipe is the process's doorbell, see [`crate::bell`]. (Inotify on a plain file was
//! tried: closing its descriptor takes the kernel some ten milliseconds, at every hand-over.)
//!
//! # Invariants
//!
//! 1. A life's name is told to others only after its lock is held, so a free lock means an end,
//!    never a beginning.
//! 2. A file is removed only by its owner or by someone who holds its lock.

use std::fs::{self, File, TryLockError};
use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, mknodat};
use tenure_core::LivenessId;

/// Where the lives of one store are kept.
#[derive(Debug, Clone)]
pub struct LivenessFolder(PathBuf);

/// What the kernel says of a life.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LockState {
    /// Somebody holds the lock.
    Held,
    /// The file is there and nobody holds the lock.
    Free,
    /// There is no such file.
    Missing,
}

impl LivenessFolder {
    /// The folder at this path. It is made when the first life begins.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self(path.into())
    }

    /// The file of one life. A name that is not plain can't lead out of the folder.
    pub(crate) fn file(&self, life: &LivenessId) -> PathBuf {
        let plain = !life.0.is_empty()
            && life
                .0
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b == b'-');
        self.0
            .join(if plain { life.0.as_str() } else { "not-a-life" })
    }

    /// The folder itself.
    pub fn path(&self) -> &Path {
        &self.0
    }

    /// Feels for a pulse.
    pub fn state_of(&self, life: &LivenessId) -> io::Result<LockState> {
        let file = match look_at(&self.file(life)) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(LockState::Missing),
            Err(error) => return Err(error),
        };
        match file.try_lock_shared() {
            Ok(()) => Ok(LockState::Free),
            Err(TryLockError::WouldBlock) => Ok(LockState::Held),
            Err(TryLockError::Error(error)) => Err(error),
        }
    }

    /// Removes the folder with every life in it, whoever lives it: what they held is gone. Whatever
    /// else somebody keeps there stays, and the folder with it.
    pub fn clear(&self) -> io::Result<()> {
        let entries = match fs::read_dir(&self.0) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(error) => return Err(error),
        };
        for entry in entries {
            let entry = entry?;
            if entry.file_type()?.is_fifo() {
                fs::remove_file(entry.path())?;
            }
        }
        fs::remove_dir(&self.0)
    }

    /// Removes what dead processes left behind, except what `keep` still needs. Returns how many.
    pub fn sweep(&self, mut keep: impl FnMut(&LivenessId) -> bool) -> io::Result<usize> {
        let entries = match fs::read_dir(&self.0) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
            Err(error) => return Err(error),
        };
        let mut swept = 0;
        for entry in entries {
            let entry = entry?;
            // Whatever else somebody keeps here is not ours to remove.
            if !entry.file_type()?.is_fifo() {
                continue;
            }
            let life = LivenessId(entry.file_name().to_string_lossy().into_owned());
            if keep(&life) {
                continue;
            }
            let Ok(file) = look_at(&entry.path()) else {
                continue;
            };
            // Invariant 2. A life that is just beginning waits for this lock, then sees that its
            // file is gone and begins anew.
            if file.try_lock().is_ok() && fs::remove_file(entry.path()).is_ok() {
                swept += 1;
            }
        }
        Ok(swept)
    }
}

/// Opens a life to feel its pulse. Opening a pipe would wait for its other end if it were allowed to.
pub(crate) fn look_at(path: &Path) -> io::Result<File> {
    File::options()
        .read(true)
        .custom_flags(libc::O_NONBLOCK)
        .open(path)
}

fn make_pipe(path: &Path) -> io::Result<()> {
    let anyone = Mode::from_bits_retain(0o666);
    Ok(mknodat(CWD, path, FileType::Fifo, anyone, 0)?)
}

/// The life of this process. Ends when it is dropped, or with the process and all that inherited it.
#[derive(Debug)]
pub struct LivenessLock {
    id: LivenessId,
    file: File,
    path: PathBuf,
}

impl LivenessLock {
    /// Begins a life.
    pub fn begin(folder: &LivenessFolder) -> io::Result<Self> {
        loop {
            let id = LivenessId(uuid::Uuid::new_v4().simple().to_string());
            let path = folder.file(&id);
            match make_pipe(&path) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    fs::create_dir_all(folder.path())?;
                    make_pipe(&path)?;
                }
                made => made?,
            }
            let open = File::options()
                .read(true)
                .write(true)
                .custom_flags(libc::O_NONBLOCK)
                .open(&path);
            let file = match open {
                // Swept before it could even be opened.
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                opened => opened?,
            };
            file.lock()?;
            // Swept between its creation and its lock: nobody could ever see this one.
            if file.metadata()?.nlink() > 0 {
                return Ok(Self { id, file, path });
            }
        }
    }

    /// Rings its own bell, also if somebody removed its file.
    pub fn ring(&self) {
        let _ = rustix::io::write(&self.file, b"!");
    }

    /// Its name.
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
        // Best effort: a file that stays is swept later.
        let _ = fs::remove_file(&self.path);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_life_beats_until_it_is_dropped() {
        let dir = tempfile::tempdir().unwrap();
        let folder = LivenessFolder::new(dir.path().join("live"));
        let life = LivenessLock::begin(&folder).unwrap();
        let id = life.id().clone();
        assert_eq!(folder.state_of(&id).unwrap(), LockState::Held);
        drop(life);
        assert_eq!(folder.state_of(&id).unwrap(), LockState::Missing);
    }

    #[test]
    fn sweeping_removes_only_what_nobody_holds_or_needs() {
        let dir = tempfile::tempdir().unwrap();
        let folder = LivenessFolder::new(dir.path());
        let life = LivenessLock::begin(&folder).unwrap();
        for name in ["dead", "needed"] {
            make_pipe(&dir.path().join(name)).unwrap();
        }
        let theirs = dir.path().join("notes");
        fs::write(&theirs, "not ours").unwrap();
        assert_eq!(folder.sweep(|life| life.0 == "needed").unwrap(), 1);
        assert_eq!(folder.state_of(life.id()).unwrap(), LockState::Held);
        assert_eq!(
            folder.state_of(&LivenessId("needed".into())).unwrap(),
            LockState::Free
        );
        assert_eq!(
            folder.state_of(&LivenessId("dead".into())).unwrap(),
            LockState::Missing
        );
        assert!(folder.clear().is_err(), "the folder is not empty");
        assert!(theirs.exists());
    }

    #[test]
    fn a_sweeper_never_ends_a_life_that_is_just_beginning() {
        let dir = tempfile::tempdir().unwrap();
        let folder = LivenessFolder::new(dir.path());
        std::thread::scope(|scope| {
            let sweeper = scope.spawn(|| {
                (0..20_000)
                    .map(|_| folder.sweep(|_| false).unwrap())
                    .sum::<usize>()
            });
            while !sweeper.is_finished() {
                let life = LivenessLock::begin(&folder).unwrap();
                assert_eq!(folder.state_of(life.id()).unwrap(), LockState::Held);
            }
        });
    }

    #[test]
    fn a_strange_name_does_not_lead_out_of_the_folder() {
        let folder = LivenessFolder::new("here");
        assert_eq!(
            folder.file(&LivenessId("../../etc/passwd".into())),
            Path::new("here/not-a-life")
        );
    }
}
