//! The bytes that are kept: [`Objects`], a folder of git's loose objects.

use std::collections::HashSet;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rustix::fs::{OFlags, Timestamps, futimens};
use tenure_git::{Environment, Git, GitError, lines, words};
use tenure_host::files::beneath;
use tenure_host::files::look::if_there;
use tenure_host::files::permissions::{create_folder, hand_over, open_or_create};
use tenure_host::files::{atomic, look};
use tenure_host::flock::{FileLock, TryLock};

use super::journal::Journal;
use super::{KeptError, is_young};

/// How many bytes all objects may take.
const MOST_BYTES: u64 = 1 << 30;

/// How often old objects are looked for.
const SWEEP_EVERY: i64 = 3600;

/// The settings of the git that writes: see the header of [`kept`](super).
const SETTINGS: [&str; 4] = ["-c", "core.fsync=none", "-c", "core.bigFileThreshold=1g"];

pub(super) struct Objects {
    folder: PathBuf,
}

/// An object, as its file tells.
struct Object {
    path: PathBuf,
    id: String,
    written: Timestamp,
    size: u64,
}

impl Objects {
    pub(super) fn in_folder(kept: &Path) -> Self {
        Self {
            folder: kept.join("objects"),
        }
    }

    /// The same, made if it does not exist. Deletes what is too old, if that was not done within the hour.
    pub(super) fn create(kept: &Path, now: Timestamp) -> Result<Self, KeptError> {
        let objects = Self::in_folder(kept);
        if !look::is_folder(&objects.folder)? {
            create_folder(kept)?;
            make_private(kept)?;
            create_folder(&objects.folder)?;
        }
        let swept = open_or_create(&objects.swept(), OFlags::RDWR)?;
        let age = now.as_second().saturating_sub(swept.metadata()?.mtime());
        if age.abs() > SWEEP_EVERY {
            objects.sweep(kept, &swept, now)?;
        }
        Ok(objects)
    }

    /// The file whose time is that of the last sweep. Locked by a sweep, and shared by those who keep something.
    pub(super) fn swept(&self) -> PathBuf {
        self.folder.with_file_name("swept")
    }

    /// Whether an object is there.
    pub(super) fn has(&self, id: &str) -> bool {
        let place = id.split_at_checked(2);
        place.is_some_and(|(folder, name)| look::may_be_there(&self.folder.join(folder).join(name)))
    }

    /// Writes the bytes of each of these files, and returns their ids, or why there is none. Git reads them through this
    /// process: what takes the path of a file meanwhile is not read.
    pub(super) fn write(
        &self,
        root: &Path,
        files: &[File],
    ) -> Result<Vec<Result<String, String>>, KeptError> {
        let ids = match self.write_all(root, files) {
            Ok(ids) => return Ok(ids.into_iter().map(Ok).collect()),
            Err(error @ GitError::Refused { .. }) if files.len() > 1 => {
                // One of them may have become shorter while git read it.
                let each = files.iter().map(|file| {
                    let ids = self.write_all(root, std::slice::from_ref(file));
                    ids.map(|ids| ids.concat())
                });
                let each: Vec<Result<String, GitError>> = each.collect();
                if !each.iter().any(Result::is_ok) {
                    return Err(error.into());
                }
                each
            }
            Err(error) => return Err(error.into()),
        };
        let why = |error: GitError| words(&error.to_string());
        Ok(ids.into_iter().map(|id| id.map_err(why)).collect())
    }

    fn write_all(&self, root: &Path, files: &[File]) -> Result<Vec<String>, GitError> {
        if files.is_empty() {
            return Ok(Vec::new());
        }
        let mut paths = String::new();
        let me = std::process::id();
        for file in files {
            let _ = writeln!(paths, "/proc/{me}/fd/{}", file.as_raw_fd());
        }
        let known = self.folder.metadata().map_err(GitError::Io)?;
        let shared = format!("core.sharedRepository={}", shared(known.mode()));
        let options = ["hash-object", "-w", "--no-filters", "--stdin-paths"];
        let args = [&SETTINGS[..], &["-c", &shared], &options].concat();
        let answer = self.git(root).feed(&args, paths.into_bytes())?;
        let ids = lines(&answer);
        if ids.len() == files.len() {
            return Ok(ids);
        }
        Err(GitError::Io(io::Error::other(
            "git hash-object did not answer for every file",
        )))
    }

    /// The bytes of an object.
    pub(super) fn read(&self, root: &Path, id: &str) -> Result<Vec<u8>, KeptError> {
        let is_id = !id.is_empty() && id.bytes().all(|byte| byte.is_ascii_hexdigit());
        let read = is_id.then(|| self.git(root).run(&["cat-file", "blob", id]));
        match read {
            Some(Ok(bytes)) => Ok(bytes),
            Some(Err(error)) if !matches!(error, GitError::Refused { .. }) => Err(error.into()),
            _ => Err(KeptError::Damaged(id.to_owned())),
        }
    }

    fn git(&self, root: &Path) -> Git<'static> {
        Git::at(root, Environment::Alone).with_objects(&self.folder)
    }

    /// Deletes what is too old. If a process keeps something right now, another call does it.
    fn sweep(&self, kept: &Path, swept: &File, now: Timestamp) -> Result<(), KeptError> {
        let TryLock::Locked(_lock) = FileLock::try_lock(&self.swept())? else {
            return Ok(());
        };
        let versions = Journal::in_folder(kept).read()?.versions();
        let young = versions.into_iter().filter(|it| is_young(it.at, now));
        let named: HashSet<String> = young.filter_map(|version| version.blob).collect();
        let mut objects = self.list()?;
        objects.sort_by_key(|object| object.written);
        let mut bytes: u64 = objects.iter().map(|object| object.size).sum();
        for object in objects {
            // One that git has begun to write and not finished is not named either.
            let is_old = !is_young(object.written, now) && !named.contains(&object.id);
            if is_old || bytes > MOST_BYTES {
                atomic::unlink(&object.path)?;
                bytes = bytes.saturating_sub(object.size);
            }
        }
        let now = rustix::fs::Timespec {
            tv_sec: now.as_second(),
            tv_nsec: 0,
        };
        let times = Timestamps {
            last_access: now,
            last_modification: now,
        };
        Ok(futimens(swept, &times).map_err(io::Error::from)?)
    }

    fn list(&self) -> io::Result<Vec<Object>> {
        let mut objects = Vec::new();
        for folder in fs::read_dir(&self.folder)? {
            let folder = folder?;
            if !folder.file_type()?.is_dir() {
                continue;
            }
            for file in fs::read_dir(folder.path())? {
                let file = file?;
                let Some(known) = if_there(file.metadata())?.filter(fs::Metadata::is_file) else {
                    continue;
                };
                let parts = [folder.file_name(), file.file_name()];
                let id = parts
                    .map(|part| part.to_string_lossy().into_owned())
                    .concat();
                objects.push(Object {
                    path: file.path(),
                    id,
                    written: Timestamp::from_second(known.mtime()).unwrap_or_default(),
                    size: known.len(),
                });
            }
        }
        Ok(objects)
    }
}

/// Closes a new folder to those who may not write the one around it: a file that only its owner may read is in it as well as
/// one that all may read.
fn make_private(folder: &Path) -> io::Result<()> {
    let open = beneath::open_folder(folder)?;
    let known = open.metadata()?;
    if known.uid() != rustix::process::geteuid().as_raw() {
        return Ok(());
    }
    let mode = known.mode() & 0o7777;
    let mut kept = 0o2700;
    for bits in [0o070, 0o007] {
        if mode & 0o022 & bits != 0 {
            kept |= bits;
        }
    }
    hand_over(&open, folder, mode & kept)
}

/// Git's word for who may use the files in a folder of this mode.
fn shared(mode: u32) -> &'static str {
    match mode & 0o022 {
        0 => "umask",
        0o020 => "group",
        _ => "0666",
    }
}
