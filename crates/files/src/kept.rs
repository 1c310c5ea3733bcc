//! Uncommitted bytes, kept before another command can wipe them: [`Kept`].
//!
//! Before a shell command of an agent, the files are kept that others have edited and not committed. What the command
//! overwrites or deletes can then be [restored](Kept::restore).
//!
//! | file | contents |
//! |---|---|
//! | `journal` | which bytes were kept when: one line of JSON each |
//! | `objects` | the bytes, as git's blobs |
//! | `restore` | writes a version back, and keeps what was there |
//!
//! # Where
//!
//! The folder `kept` beside the store has the journal and a folder of objects of its own: loose objects in git's format, which
//! `git hash-object` writes and `git cat-file` reads with `GIT_OBJECT_DIRECTORY`. They are not in the repository's own folder
//! of objects, because there they would need a ref each, or `git gc --prune=now` would delete them. A ref is worse:
//!
//! - `git push --mirror` would push it, and with it bytes that nobody meant to share: passwords, half a thought.
//! - `git clone --mirror` and `git fetch` of all refs would copy it, `git log --all` would show it if it is a commit, and every
//!   command that lists refs would get slower with each version.
//! - Without a ref, `git fsck` reports each object as dangling.
//! - An object that is deleted after 14 days could by then be part of a commit: git does not write one again that it has.
//!
//! Here git knows nothing of them, and what is too old is simply deleted. `refs/tenure/tasks` is a ref because tasks are meant
//! to travel.
//!
//! # Invariants
//!
//! 1. A line is written after its bytes, so each line that is read back has them. A process that is killed leaves bytes
//!    without a line, half an object that git ignores, or half a line that is skipped.
//! 2. Objects are deleted only while no process keeps any: each holds a shared lock on `swept` meanwhile.
//! 3. Bytes are deleted once they are older than [`DAYS`] days and no younger line names them; and the oldest first if all
//!    take more than 1 GiB. The journal has two files of at most 1 MiB, and the older one is dropped for a new one.
//! 4. No link is followed below the top of the work tree.
//! 5. `restore` deletes nothing that it has not kept.
//!
//! A version survives the end of every process. After a power cut, one of the last half minute may be damaged, which
//! `restore` notices: waiting for the disk before each command would cost more than it saves.
//!
//! Others can read what was kept only if they may write the project.

mod error;
mod journal;
mod objects;
mod restore;

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use rustix::fs::{MemfdFlags, OFlags, memfd_create};
use serde::{Deserialize, Serialize};
use tenure_core::HolderId;
use tenure_host::files::beneath;
use tenure_host::files::step_lock::ObservedStepLock;

use self::journal::Journal;
use self::objects::Objects;
use crate::changes::{Stamp, path_json};

pub use self::error::KeptError;
pub use self::restore::{Restored, Source};

/// How many days a version is kept.
pub const DAYS: i64 = 14;

/// The largest file that is kept, in bytes.
pub const LARGEST: u64 = 20 << 20;

/// How long a hook waits for another one.
const PATIENCE: Duration = Duration::from_secs(2);

/// How many files are open at once.
const AT_ONCE: usize = 128;

/// The folder beside the store.
const FOLDER: &str = "kept";

/// The kind and the permissions of a file, as in `st_mode`.
const LINK: u32 = 0o120_000;
const KIND: u32 = 0o170_000;

/// A version of a file.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// When it was kept.
    pub at: Timestamp,
    /// The path from the top of the work tree.
    #[serde(with = "path_json")]
    pub path: PathBuf,
    /// The top of the work tree.
    #[serde(with = "path_json")]
    pub worktree: PathBuf,
    /// Whose it was.
    pub owner: HolderId,
    /// Its kind and its permissions, as the system has them in `st_mode`.
    pub mode: u32,
    /// Its size in bytes; of a link, that of the path in it.
    pub size: u64,
    /// The id of its bytes, which is that of git's blob; `None` if it is larger than [`LARGEST`], so not kept.
    pub blob: Option<String>,
    /// What tells that it was not written since.
    pub stamp: Stamp,
}

impl Version {
    /// Whether it is a link.
    pub fn is_link(&self) -> bool {
        self.mode & KIND == LINK
    }

    /// Whether a file with this stamp need not be kept again: it was, not long ago.
    fn stands_for(&self, stamp: Stamp, now: Timestamp) -> bool {
        self.stamp == stamp && now.duration_since(self.at).as_hours() < DAYS * 12
    }

    /// Whether it has the same bytes as another one, and is the same kind of file.
    fn is_like(&self, other: &Self) -> bool {
        let executable = |it: &Self| it.mode & 0o100;
        self.blob == other.blob
            && self.is_link() == other.is_link()
            && executable(self) == executable(other)
    }
}

/// Why a file was not kept.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum NotKept {
    /// It has so many bytes, more than [`LARGEST`].
    #[error("it has {0} bytes, and at most {LARGEST} are kept")]
    TooLarge(u64),
    /// It is neither a file nor a link.
    #[error("it is neither a file nor a link")]
    NoFile,
    /// It is not in the work tree.
    #[error("it is not in the work tree")]
    Outside,
    /// It can't be read.
    #[error("it can't be read ({0})")]
    Unreadable(String),
}

/// What a call of [`Kept::keep`] did.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[must_use]
pub struct Keeping {
    /// The versions that are new.
    pub kept: Vec<Version>,
    /// The files that were not kept.
    pub left_out: Vec<(PathBuf, NotKept)>,
}

/// The kept versions of a project's files.
#[derive(Debug, Clone)]
pub struct Kept {
    folder: PathBuf,
}

/// A file that is to be kept.
struct Wanted<'a> {
    path: &'a Path,
    /// Where it is.
    place: PathBuf,
    owner: &'a HolderId,
    stamp: Stamp,
    mode: u32,
}

impl Kept {
    /// Those beside the store in this folder.
    pub fn beside(state: &Path) -> Self {
        Self {
            folder: state.join(FOLDER),
        }
    }

    /// Keeps what has changed since it was kept last, of these files of a work tree: each a path from its top, and whose it
    /// is. A file that does not exist has nothing to keep.
    pub fn keep(
        &self,
        root: &Path,
        files: &[(PathBuf, HolderId)],
        now: Timestamp,
    ) -> Result<Keeping, KeptError> {
        let mut keeping = Keeping::default();
        let root = &root.canonicalize()?;
        let paths = files.iter().map(|(path, _)| path.as_path());
        let newest = Journal::in_folder(&self.folder).read()?.newest(root, paths);
        let mut wanted = Vec::new();
        for (path, owner) in files {
            let place = root.join(path);
            match look(place, path, owner) {
                Ok(file) => wanted.extend(file),
                Err(why) => keeping.left_out.push((path.clone(), why)),
            }
        }
        wanted.retain(|file| {
            let last = newest.get(file.path);
            !last.is_some_and(|last| last.stands_for(file.stamp, now))
        });
        self.keep_these(root, &wanted, now, &mut keeping)?;
        Ok(keeping)
    }

    fn keep_these(
        &self,
        root: &Path,
        wanted: &[Wanted<'_>],
        now: Timestamp,
        keeping: &mut Keeping,
    ) -> Result<(), KeptError> {
        if wanted.is_empty() {
            return Ok(());
        }
        let objects = Objects::create(&self.folder, now)?;
        let _lock = ObservedStepLock::observe(&objects.swept(), PATIENCE)?;
        for some in wanted.chunks(AT_ONCE) {
            store(&objects, root, some, now, keeping)?;
        }
        let journal = Journal::in_folder(&self.folder);
        keeping.kept = journal.append(std::mem::take(&mut keeping.kept), now)?;
        // Of a file that is too large there is only a line.
        keeping.kept.retain(|version| version.blob.is_some());
        Ok(())
    }

    /// All versions of the last [`DAYS`] days, the newest first.
    pub fn versions(&self, now: Timestamp) -> Result<Vec<Version>, KeptError> {
        let mut versions = Journal::in_folder(&self.folder).read()?.versions();
        let objects = Objects::in_folder(&self.folder);
        versions.retain(|version| {
            let is_there = |id: &String| objects.has(id);
            is_young(version.at, now) && version.blob.as_ref().is_none_or(is_there)
        });
        versions.reverse();
        Ok(versions)
    }
}

/// Whether something of this time is kept.
fn is_young(at: Timestamp, now: Timestamp) -> bool {
    now.duration_since(at).as_hours() < DAYS * 24
}

/// A path that leads into the work tree, and not into git's own folder.
fn is_inside(path: &Path) -> bool {
    let is_fine = |part: Component<'_>| match part {
        Component::Normal(name) => !name.eq_ignore_ascii_case(".git"),
        _ => false,
    };
    path.file_name().is_some() && path.components().all(is_fine)
}

/// Writes the bytes of these files.
fn store(
    objects: &Objects,
    root: &Path,
    files: &[Wanted<'_>],
    now: Timestamp,
    keeping: &mut Keeping,
) -> Result<(), KeptError> {
    let mut versions = Vec::new();
    let mut opened = Vec::new();
    for file in files {
        let mut version = Version {
            at: now,
            path: file.path.to_owned(),
            worktree: root.to_owned(),
            owner: file.owner.clone(),
            mode: file.mode,
            size: file.stamp.size,
            blob: None,
            stamp: file.stamp,
        };
        if version.size > LARGEST {
            let why = NotKept::TooLarge(version.size);
            keeping.left_out.push((version.path.clone(), why));
            keeping.kept.push(version);
            continue;
        }
        match open(&file.place, version.is_link()) {
            Ok((bytes, size)) => {
                version.size = size;
                versions.push(version);
                opened.push(bytes);
            }
            // It is gone by now.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                let why = NotKept::Unreadable(error.to_string());
                keeping.left_out.push((version.path, why));
            }
        }
    }
    for (mut version, blob) in versions.into_iter().zip(objects.write(root, &opened)?) {
        match blob {
            Ok(id) => {
                version.blob = Some(id);
                keeping.kept.push(version);
            }
            Err(why) => keeping
                .left_out
                .push((version.path, NotKept::Unreadable(why))),
        }
    }
    Ok(())
}

/// Looks at a file, or a link. Nothing if it is not there.
fn look<'a>(
    place: PathBuf,
    path: &'a Path,
    owner: &'a HolderId,
) -> Result<Option<Wanted<'a>>, NotKept> {
    if !is_inside(path) {
        return Err(NotKept::Outside);
    }
    let unreadable = |error: io::Error| NotKept::Unreadable(error.to_string());
    let Some(stamp) = Stamp::of(&place).map_err(unreadable)? else {
        return Ok(None);
    };
    let mode = match place.symlink_metadata() {
        Ok(known) if known.is_file() || known.is_symlink() => known.mode(),
        Ok(_) => return Err(NotKept::NoFile),
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unreadable(error)),
    };
    Ok(Some(Wanted {
        path,
        place,
        owner,
        stamp,
        mode,
    }))
}

/// Opens a file, or the path in a link, for git to read; with the number of bytes.
fn open(place: &Path, is_link: bool) -> io::Result<(File, u64)> {
    if !is_link {
        let file = beneath::open(place, OFlags::RDONLY, rustix::fs::Mode::empty())?;
        let known = file.metadata()?;
        // Something else may have its name by now.
        beneath::must_be_file(place, &known)?;
        if known.len() > LARGEST {
            return Err(io::Error::other("it grew meanwhile"));
        }
        return Ok((file, known.len()));
    }
    let place = beneath::Place::of(place)?;
    let target = rustix::fs::readlinkat(&place.folder, place.name, Vec::new())?;
    let mut file = File::from(memfd_create("link", MemfdFlags::CLOEXEC)?);
    io::Write::write_all(&mut file, target.as_bytes())?;
    Ok((file, target.as_bytes().len() as u64))
}
