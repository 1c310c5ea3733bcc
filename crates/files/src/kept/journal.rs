//! Which bytes were kept when: [`Journal`], lines of JSON in two files.
//!
//! A line is appended with one write, under a lock. Half a line, which a killed process leaves, is skipped, and so is one
//! that a later version of tenure wrote otherwise.

use std::collections::{HashMap, HashSet};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rustix::fs::{OFlags, renameat};
use tenure_host::files::beneath::{self, Place};
use tenure_host::files::look;
use tenure_host::files::permissions::open_or_create;
use tenure_host::files::step_lock::StepLock;

use super::{KeptError, PATIENCE, Version};

/// The size at which a new file is begun.
const MAX_FILE: u64 = 1 << 20;

/// The largest file that is read: one call adds less than the rest.
const LARGEST: u64 = 64 << 20;

const FILE: &str = "journal.jsonl";
const EARLIER: &str = "journal.1.jsonl";
const LOCK: &str = "journal.lock";

pub(super) struct Journal {
    folder: PathBuf,
}

/// The lines as they were read.
pub(super) struct Lines(Vec<u8>);

impl Journal {
    pub(super) fn in_folder(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
        }
    }

    pub(super) fn read(&self) -> io::Result<Lines> {
        let mut text = Vec::new();
        for name in [EARLIER, FILE] {
            let path = self.folder.join(name);
            match beneath::read(&path, LARGEST) {
                Ok(mut more) => text.append(&mut more),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(look::unreadable(&path, &error)),
            }
            text.push(b'\n');
        }
        Ok(Lines(text))
    }

    /// Adds lines, without those that another process has added meanwhile. Returns those that are new.
    pub(super) fn append(
        &self,
        mut versions: Vec<Version>,
        now: Timestamp,
    ) -> Result<Vec<Version>, KeptError> {
        let Some(root) = versions.first().map(|version| version.worktree.clone()) else {
            return Ok(versions);
        };
        let _lock = StepLock::take(&self.folder.join(LOCK), PATIENCE)?;
        let paths = versions.iter().map(|version| version.path.as_path());
        let newest = self.read()?.newest(&root, paths);
        versions.retain(|version| {
            let last = newest.get(&version.path);
            !last.is_some_and(|last| last.stands_for(version.stamp, now) && last.is_like(version))
        });
        let mut text = Vec::new();
        for version in &versions {
            serde_json::to_writer(&mut text, version).map_err(io::Error::from)?;
            text.push(b'\n');
        }
        if !text.is_empty() {
            self.write(text)?;
        }
        Ok(versions)
    }

    fn write(&self, mut text: Vec<u8>) -> io::Result<()> {
        let path = self.folder.join(FILE);
        let how = OFlags::RDWR | OFlags::APPEND;
        let mut file = open_or_create(&path, how)?;
        let mut size = file.metadata()?.len();
        if size > MAX_FILE {
            let (from, to) = (Place::of(&path)?, self.folder.join(EARLIER));
            let to = Place::of(&to)?;
            renameat(&from.folder, from.name, &to.folder, to.name)?;
            file = open_or_create(&path, how)?;
            size = 0;
        }
        if size > 0 {
            let mut last = [0];
            file.seek(SeekFrom::End(-1))?;
            file.read_exact(&mut last)?;
            if last != *b"\n" {
                text.insert(0, b'\n');
            }
        }
        file.write_all(&text)
    }
}

impl Lines {
    fn parsed(&self) -> impl DoubleEndedIterator<Item = Version> + '_ {
        let lines = self.0.split(|byte| *byte == b'\n');
        lines.filter_map(|line| serde_json::from_slice(line).ok())
    }

    /// All versions, the oldest first.
    pub(super) fn versions(&self) -> Vec<Version> {
        self.parsed().collect()
    }

    /// The newest version of each of these files of a work tree.
    pub(super) fn newest<'a>(
        &self,
        root: &Path,
        paths: impl Iterator<Item = &'a Path>,
    ) -> HashMap<PathBuf, Version> {
        let mut left: HashSet<&Path> = paths.collect();
        let mut newest = HashMap::new();
        for version in self.parsed().rev() {
            if left.is_empty() {
                break;
            }
            if version.worktree == root && left.remove(version.path.as_path()) {
                newest.insert(version.path.clone(), version);
            }
        }
        newest
    }
}
