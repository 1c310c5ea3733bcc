//! What a file system says of a file without reading it: [`Stamp`].

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Stat, statat};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

/// A time of a file system's own clock: nanoseconds since 1970.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct FileTime(pub i64);

impl FileTime {
    pub(super) fn new(seconds: i64, nanoseconds: impl TryInto<i64>) -> Self {
        let nanoseconds = nanoseconds.try_into().unwrap_or(0);
        Self(
            seconds
                .saturating_mul(1_000_000_000)
                .saturating_add(nanoseconds),
        )
    }

    /// When what is known of the file changed last: its content, its name, its mode. A program can't set this time.
    pub(super) fn changed(known: &Stat) -> Self {
        Self::new(known.st_ctime, known.st_ctime_nsec)
    }

    pub(super) fn modified(known: &Stat) -> Self {
        Self::new(known.st_mtime, known.st_mtime_nsec)
    }
}

/// What tells that a file was not written since. Whoever writes it changes at least [`changed`](Self::changed).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Stamp {
    /// Its size in bytes.
    pub size: u64,
    /// When its content was written.
    pub modified: FileTime,
    /// When anything about it was changed.
    pub changed: FileTime,
    /// Its number in the file system.
    pub inode: u64,
}

impl Stamp {
    /// The stamp of a file, of a link itself, or of a folder; `None` if there is nothing.
    pub fn of(path: &Path) -> io::Result<Option<Self>> {
        Ok(known(path)?.as_ref().map(Self::from))
    }
}

impl From<&Stat> for Stamp {
    fn from(known: &Stat) -> Self {
        Self {
            size: u64::try_from(known.st_size).unwrap_or(0),
            modified: FileTime::modified(known),
            changed: FileTime::changed(known),
            inode: known.st_ino,
        }
    }
}

/// What the file system knows of a path; `None` if there is nothing.
pub(super) fn known(path: &Path) -> io::Result<Option<Stat>> {
    match statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(known) => Ok(Some(known)),
        Err(Errno::NOENT | Errno::NOTDIR) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// A path of bytes.
pub(super) fn path_of(bytes: &[u8]) -> PathBuf {
    OsString::from_vec(bytes.to_vec()).into()
}
