//! What this machine remembers of a cluster between two commands: [`Memory`].
//!
//! One small file for each topic, in the first of some folders that can be written, as
//! `$XDG_STATE_HOME/tenure/etcd-ID/TOPIC.json`.
//!
//! # Invariants
//!
//! 1. Nothing depends on it: a memory that is missing, damaged or can't be written is no error. A reader learns less, and
//!    asks the cluster.
//! 2. Below the folder that the caller trusts no link is followed, and every folder is this user's own and private.
//! 3. A file is replaced as a whole. A reader sees the old one or the new one.
//! 4. A change of what is kept loses no change of another process, unless that process was stopped in the middle of its own.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use rustix::fs::{Access, AtFlags, FileType, FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use serde::Serialize;
use serde::de::DeserializeOwned;

/// The largest file that is read.
const LARGEST: u64 = 64 * 1024;

/// Where a memory may be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemoryFolder {
    /// A folder that is trusted as it is, made if it is not there.
    pub trusted: PathBuf,
    /// The folder below it. Each of its parts must be this user's own and private.
    pub below: PathBuf,
}

/// What this machine remembers of a cluster.
#[derive(Debug, Clone, Default)]
pub(crate) struct Memory {
    /// In order of preference. Without any, nothing is remembered.
    folders: Vec<MemoryFolder>,
}

impl Memory {
    pub(crate) fn new(folders: Vec<MemoryFolder>) -> Self {
        Self { folders }
    }

    /// What was kept of a topic.
    pub(crate) fn recall<T: DeserializeOwned>(&self, topic: &str) -> Option<T> {
        let folders = self.folders.iter().filter_map(|folder| folder.open().ok());
        let mut folders: Vec<OwnedFd> = folders.collect();
        // Where it would be kept now. A folder that can only be read may have what is long outdated.
        let written = folders.iter().position(is_writable).unwrap_or(0);
        let folder = (written < folders.len()).then(|| folders.swap_remove(written))?;
        read(&folder, topic)
    }

    /// Keeps this of a topic, instead of what was kept before. Best effort.
    pub(crate) fn keep<T: Serialize>(&self, topic: &str, value: &T) {
        let Ok(text) = serde_json::to_vec(value) else {
            return;
        };
        let kept = |folder: &MemoryFolder| folder.make().and_then(|it| write(&it, topic, &text));
        let _ = self.folders.iter().any(|folder| kept(folder).is_ok());
    }

    /// Makes of what is kept of a topic what it should be; `None` leaves it. Best effort.
    pub(crate) fn change<T: DeserializeOwned + Serialize>(
        &self,
        topic: &str,
        change: impl FnOnce(Option<T>) -> Option<T>,
    ) {
        let folders = self.folders.iter();
        let mut folders =
            folders.filter_map(|folder| folder.open().or_else(|_| folder.make()).ok());
        let Some(folder) = folders.find(is_writable) else {
            return;
        };
        // Until the folder is closed.
        let _ = lock_briefly(&folder);
        let text = change(read(&folder, topic)).map(|value| serde_json::to_vec(&value));
        if let Some(Ok(text)) = text {
            let _ = write(&folder, topic, &text);
        }
    }
}

impl MemoryFolder {
    fn open(&self) -> Result<OwnedFd, Errno> {
        let mut folder = rustix::fs::open(&self.trusted, FOLDER, Mode::empty())?;
        for part in parts(&self.below) {
            folder = private(&folder, part)?;
        }
        Ok(folder)
    }

    fn make(&self) -> Result<OwnedFd, Errno> {
        let mut builder = std::fs::DirBuilder::new();
        let _ = builder.recursive(true).mode(0o700).create(&self.trusted);
        let mut folder = rustix::fs::open(&self.trusted, FOLDER, Mode::empty())?;
        for part in parts(&self.below) {
            match rustix::fs::mkdirat(&folder, part, Mode::RWXU) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error),
            }
            folder = private(&folder, part)?;
        }
        Ok(folder)
    }
}

const FOLDER: OFlags = OFlags::RDONLY
    .union(OFlags::DIRECTORY)
    .union(OFlags::CLOEXEC);

fn parts(path: &Path) -> impl Iterator<Item = &Path> {
    path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(Path::new(name)),
        _ => None,
    })
}

/// A folder of this user that no other may write.
fn private(parent: &OwnedFd, name: &Path) -> Result<OwnedFd, Errno> {
    let folder = rustix::fs::openat(parent, name, FOLDER | OFlags::NOFOLLOW, Mode::empty())?;
    let found = rustix::fs::fstat(&folder)?;
    let is_ours = found.st_uid == rustix::process::geteuid().as_raw();
    if is_ours && found.st_mode & 0o022 == 0 {
        Ok(folder)
    } else {
        Err(Errno::PERM)
    }
}

fn is_writable(folder: &OwnedFd) -> bool {
    rustix::fs::accessat(folder, ".", Access::WRITE_OK, AtFlags::EACCESS).is_ok()
}

/// How often a lock is tried that another process has, once a millisecond. It has it for a fraction of that, unless it was
/// stopped. On a busy machine, many may have it one after the other, and each may have to wait for a processor meanwhile.
const TRIES: u32 = 500;

/// Keeps other processes from changing what is kept here.
fn lock_briefly(folder: &OwnedFd) -> Result<(), Errno> {
    let mut result = Ok(());
    for _ in 0..TRIES {
        result = rustix::fs::flock(folder, FlockOperation::NonBlockingLockExclusive);
        if result != Err(Errno::WOULDBLOCK) {
            break;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    result
}

fn read<T: DeserializeOwned>(folder: impl AsFd, topic: &str) -> Option<T> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = rustix::fs::openat(folder, name(topic), flags, Mode::empty()).ok()?;
    let found = rustix::fs::fstat(&file).ok()?;
    if FileType::from_raw_mode(found.st_mode) != FileType::RegularFile {
        return None;
    }
    let mut text = Vec::new();
    File::from(file).take(LARGEST).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

fn name(topic: &str) -> String {
    format!("{topic}.json")
}

/// Not synced: after a power cut, the old file or none is as good.
fn write(folder: impl AsFd, topic: &str, text: &[u8]) -> Result<(), Errno> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let new = format!("{topic}.{}-{count}.new", std::process::id());
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    // One that a killed process left behind.
    let _ = rustix::fs::unlinkat(&folder, &new, AtFlags::empty());
    let file = rustix::fs::openat(&folder, &new, flags, Mode::RUSR | Mode::WUSR)?;
    let written = File::from(file).write_all(text).map_err(|_| Errno::IO);
    let written = written.and_then(|()| rustix::fs::renameat(&folder, &new, &folder, name(topic)));
    if written.is_err() {
        let _ = rustix::fs::unlinkat(&folder, &new, AtFlags::empty());
    }
    written
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    fn memory(trusted: &Path) -> Memory {
        Memory::new(vec![MemoryFolder {
            trusted: trusted.to_owned(),
            below: "tenure/etcd-1".into(),
        }])
    }

    #[test]
    fn what_is_kept_is_recalled() {
        let place = tempfile::tempdir().unwrap();
        let memory = memory(&place.path().join("state"));
        assert_eq!(memory.recall::<u32>("a"), None);
        memory.keep("a", &1);
        memory.keep("a", &2);
        memory.keep("b", &3);
        assert_eq!((memory.recall("a"), memory.recall("b")), (Some(2), Some(3)));
        let folder = place.path().join("state/tenure/etcd-1");
        let names: Vec<_> = std::fs::read_dir(&folder).unwrap().collect();
        assert_eq!(names.len(), 2, "{names:?}");
        let mode = std::fs::metadata(folder.join("b.json")).unwrap();
        assert_eq!(mode.permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn changes_at_the_same_time_lose_nothing() {
        let place = tempfile::tempdir().unwrap();
        let memory = memory(place.path());
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        memory.change("a", |old: Option<u32>| Some(old.unwrap_or_default() + 1));
                    }
                });
            }
        });
        assert_eq!(memory.recall("a"), Some(200));
        memory.change::<u32>("a", |_| None);
        assert_eq!(memory.recall("a"), Some(200));
    }

    #[test]
    fn links_and_folders_that_others_may_write_are_not_used() {
        let place = tempfile::tempdir().unwrap();
        let (state, other) = (place.path().join("state"), place.path().join("other"));
        std::fs::create_dir_all(&state).unwrap();
        std::fs::create_dir_all(other.join("etcd-1")).unwrap();
        let memory = memory(&state);
        symlink(&other, state.join("tenure")).unwrap();
        memory.keep("a", &1);
        assert_eq!(std::fs::read_dir(other.join("etcd-1")).unwrap().count(), 0);
        std::fs::remove_file(state.join("tenure")).unwrap();
        memory.keep("a", &1);
        let file = state.join("tenure/etcd-1/a.json");
        std::fs::write(other.join("a"), "7").unwrap();
        std::fs::remove_file(&file).unwrap();
        symlink(other.join("a"), &file).unwrap();
        assert_eq!(memory.recall::<u32>("a"), None);
        memory.keep("a", &2);
        assert_eq!(memory.recall("a"), Some(2));
        assert_eq!(std::fs::read_to_string(other.join("a")).unwrap(), "7");
        let shared = std::fs::Permissions::from_mode(0o777);
        std::fs::set_permissions(state.join("tenure"), shared).unwrap();
        assert_eq!(memory.recall::<u32>("a"), None);
    }

    #[test]
    fn a_folder_that_can_not_be_made_is_passed_over() {
        let place = tempfile::tempdir().unwrap();
        std::fs::write(place.path().join("file"), "").unwrap();
        let both = ["file", "second"].map(|name| MemoryFolder {
            trusted: place.path().join(name),
            below: "tenure".into(),
        });
        let memory = Memory::new(both.into());
        memory.keep("a", &1);
        assert_eq!(memory.recall("a"), Some(1));
    }
}
