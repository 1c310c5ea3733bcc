//! Under which tokens each commit was made, and against whose reservations: [`Records`], a file beside the store.
//!
//! A commit belongs to this clone, whichever store its reservations are in, so its record is a line of JSON beside the
//! store, not in it. A line is appended after each commit, with one write under a lock; half a line, which a power cut may
//! leave, is skipped. A commit without a record is judged when it is pushed, by its date and the history. A whole line that
//! can't be understood is an error wherever its commit counts. The two files together hold at least the newest `MAX_FILE`
//! bytes.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rustix::fs::{FlockOperation, OFlags, flock, renameat};
use serde::{Deserialize, Serialize};
use tenure_core::{HolderId, Lease, Mode};
use tenure_host::files::beneath::{self, Place};
use tenure_host::files::permissions::open_or_create;
use tenure_host::files::{atomic, look};

use super::{here, touched};
use crate::Error;
use crate::ruling::writes;
use tenure::Project;
use tenure_git::{Git, GitError};

/// The size at which a new file is begun.
const MAX_FILE: u64 = 1024 * 1024;

/// The largest file that is read, in bytes: one record more than that, of any size that there is.
const LARGEST: u64 = 64 << 20;

const FILE: &str = "guard-commits.jsonl";
const EARLIER: &str = "guard-commits.1.jsonl";

/// What every line begins with.
const BEGIN: &[u8] = b"{\"commit\":\"";

/// How a record was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum How {
    /// The commit was there when the guard was installed.
    Before,
    /// By the hook that git runs after a commit.
    Commit,
    /// Later: no hook ran when the commit was made.
    Late,
}

/// A reservation at the time of a commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holding {
    /// Its token.
    pub token: u64,
    /// Its holder.
    pub holder: HolderId,
    /// Its paths.
    pub mode: Mode,
}

impl Holding {
    pub(crate) fn covers(&self, path: &str) -> bool {
        self.mode
            .paths()
            .is_none_or(|paths| paths.covers(path).is_some())
    }

    pub(crate) fn writes(&self) -> bool {
        writes(&self.mode)
    }
}

impl From<&Lease> for Holding {
    fn from(lease: &Lease) -> Self {
        Self {
            token: lease.token.0,
            holder: lease.holder.id.clone(),
            mode: lease.mode.clone(),
        }
    }
}

/// What is known of a commit.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct CommitRecord {
    /// Its id.
    pub commit: String,
    /// When it was made. If no hook saw it, its date, or when it was found if that can't be its date.
    pub at: Timestamp,
    /// How.
    pub how: How,
    /// The names of the holder that made it.
    pub by: Vec<HolderId>,
    /// The holder's own reservations of paths that the commit changes.
    pub own: Vec<Holding>,
    /// Those of other holders.
    pub against: Vec<Holding>,
}

impl CommitRecord {
    /// A commit that was there before the guard.
    pub fn before(commit: String, at: Timestamp) -> Self {
        Self {
            commit,
            at,
            how: How::Before,
            by: Vec::new(),
            own: Vec::new(),
            against: Vec::new(),
        }
    }
}

/// The records of a project.
#[derive(Debug, Clone)]
pub struct Records {
    folder: PathBuf,
}

/// The records as they were read.
#[derive(Debug, Default)]
pub struct Known {
    folder: PathBuf,
    text: Vec<u8>,
    /// Where the newest line of each commit is.
    lines: HashMap<String, (usize, usize)>,
}

impl Records {
    /// Those in this folder.
    pub fn in_folder(folder: &Path) -> Self {
        Self {
            folder: folder.to_owned(),
        }
    }

    /// Those of the commits of the repository that a folder is in: beside the project's store or, without a project, in the
    /// repository's common directory.
    pub fn of(folder: &Path, project: Option<&Project>) -> Result<Self, GitError> {
        if let Some(project) = project {
            let _ = project.create_state();
            return Ok(Self::in_folder(project.state()));
        }
        let folder =
            here(folder).run(&["rev-parse", "--path-format=absolute", "--git-common-dir"])?;
        let folder = folder.strip_suffix(b"\n").unwrap_or(&folder);
        Ok(Self::in_folder(Path::new(OsStr::from_bytes(folder))))
    }

    /// Whether there are any: the guard was installed.
    pub fn exist(&self) -> io::Result<bool> {
        Ok(look::link_at(&self.folder.join(FILE))?.is_some())
    }

    /// Removes them.
    pub fn remove(&self) -> io::Result<()> {
        for name in [FILE, EARLIER] {
            atomic::unlink(&self.folder.join(name))?;
        }
        Ok(())
    }

    /// Reads them.
    pub fn read(&self) -> io::Result<Known> {
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
        let mut lines = HashMap::new();
        let mut begin = 0;
        for line in text.split(|byte| *byte == b'\n') {
            let end = begin + line.len();
            if let Some(rest) = line.strip_prefix(BEGIN) {
                let id = rest.split(|byte| *byte == b'"').next().unwrap_or_default();
                if line.last() == Some(&b'}') {
                    lines.insert(String::from_utf8_lossy(id).into_owned(), (begin, end));
                }
            }
            begin = end + 1;
        }
        Ok(Known {
            folder: self.folder.clone(),
            text,
            lines,
        })
    }

    /// Records the newest commits of a repository in which the guard is being installed: they were there before it.
    pub fn begin(&self, git: &Git, at: Timestamp) -> Result<(), Error> {
        let known = self.read()?;
        let new = touched::tips(git)?.into_iter();
        let new = new.filter(|commit| !known.has(commit));
        let new: Vec<CommitRecord> = new.map(|commit| CommitRecord::before(commit, at)).collect();
        Ok(self.append(&new)?)
    }

    /// Adds records.
    pub(super) fn append(&self, records: &[CommitRecord]) -> io::Result<()> {
        if records.is_empty() {
            return Ok(());
        }
        let mut text = Vec::new();
        for record in records {
            serde_json::to_writer(&mut text, record)?;
            text.push(b'\n');
        }
        let path = self.folder.join(FILE);
        let mut file = Self::lock(&path)?;
        let mut size = file.metadata()?.len();
        if size > MAX_FILE {
            let (from, to) = (Place::of(&path)?, self.folder.join(EARLIER));
            let to = Place::of(&to)?;
            renameat(&from.folder, from.name, &to.folder, to.name)?;
            file = Self::lock(&path)?;
            size = file.metadata()?.len();
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

    /// Opens the file and locks it. The lock ends when it is closed.
    fn lock(path: &Path) -> io::Result<File> {
        loop {
            let file = open_or_create(path, OFlags::RDWR | OFlags::APPEND)?;
            flock(&file, FlockOperation::LockExclusive)?;
            // Another process may have begun a new one meanwhile.
            if fs::symlink_metadata(path)
                .is_ok_and(|now| file.metadata().is_ok_and(|file| file.ino() == now.ino()))
            {
                return Ok(file);
            }
        }
    }
}

impl Known {
    /// Whether there are none: the guard was never installed here.
    pub fn is_empty(&self) -> bool {
        self.lines.is_empty()
    }

    /// Whether there is one of this commit.
    pub fn has(&self, commit: &str) -> bool {
        self.lines.contains_key(commit)
    }

    /// The record of a commit.
    pub fn get(&self, commit: &str) -> io::Result<Option<CommitRecord>> {
        let Some((begin, end)) = self.lines.get(commit) else {
            return Ok(None);
        };
        let line = self.text.get(*begin..*end).unwrap_or_default();
        let damaged = |error| {
            let what = format!(
                "what {} says of commit {commit} can't be understood ({error})\n  remove that line: the commit is then \
                 judged by its date and the history of reservations",
                self.folder.join("guard-commits*.jsonl").display()
            );
            io::Error::new(io::ErrorKind::InvalidData, what)
        };
        serde_json::from_slice(line).map(Some).map_err(damaged)
    }

    /// The commits that have one.
    pub fn ids(&self) -> impl Iterator<Item = &str> {
        self.lines.keys().map(String::as_str)
    }

    /// The commits that were made without the guard, or against a reservation: the newest last.
    pub fn bypasses(&self) -> io::Result<Vec<CommitRecord>> {
        let mut lines: Vec<(&String, &(usize, usize))> = self.lines.iter().collect();
        lines.sort_unstable_by_key(|(_, place)| **place);
        let mut found = Vec::new();
        for (commit, _) in lines {
            let is_bypass =
                |record: &CommitRecord| record.how == How::Late || !record.against.is_empty();
            found.extend(self.get(commit)?.filter(is_bypass));
        }
        Ok(found)
    }

    /// The commits without a record that were not there before the guard. `commits` are in topological order, children
    /// before parents, each with its parents.
    pub fn missing(&self, commits: &[Vec<String>]) -> io::Result<Vec<String>> {
        let mut before = HashSet::new();
        let mut missing = Vec::new();
        for family in commits {
            let Some((commit, parents)) = family.split_first() else {
                continue;
            };
            let record = self.get(commit)?;
            let is_before = |record: &CommitRecord| record.how == How::Before;
            if before.contains(commit) || record.as_ref().is_some_and(is_before) {
                before.extend(parents);
            } else if record.is_none() {
                missing.push(commit.clone());
            }
        }
        Ok(missing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(commit: &str) -> CommitRecord {
        CommitRecord::before(commit.to_owned(), Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn half_a_line_is_skipped_and_the_next_one_is_whole() {
        let dir = tempfile::tempdir().unwrap();
        let records = Records::in_folder(dir.path());
        assert!(records.read().unwrap().is_empty());
        records.append(&[record("aa"), record("bb")]).unwrap();
        let path = dir.path().join(FILE);
        let text = fs::read(&path).unwrap();
        fs::write(&path, &text[..text.len() - 7]).unwrap();
        records.append(&[record("cc")]).unwrap();
        let known = records.read().unwrap();
        assert_eq!(
            known
                .get("aa")
                .unwrap()
                .map(|record| record.commit)
                .as_deref(),
            Some("aa")
        );
        assert!(!known.has("bb"));
        assert!(known.get("cc").unwrap().is_some());
    }

    #[test]
    fn a_whole_line_that_cannot_be_understood_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let records = Records::in_folder(dir.path());
        records.append(&[record("aa"), record("bb")]).unwrap();
        let path = dir.path().join(FILE);
        let text = fs::read_to_string(&path).unwrap();
        fs::write(&path, text.replacen("before", "after", 1)).unwrap();
        let known = records.read().unwrap();
        let says = known.get("aa").unwrap_err().to_string();
        assert!(
            says.contains("commit aa") && says.contains("guard-commits"),
            "{says}"
        );
        assert!(known.get("bb").unwrap().is_some());
        assert!(known.bypasses().is_err());
        assert!(known.missing(&[vec!["aa".to_owned()]]).is_err());
        assert_eq!(
            known.missing(&[vec!["cc".to_owned()]]).unwrap(),
            ["cc".to_owned()]
        );
    }

    #[test]
    fn the_files_stay_small_and_the_newest_records_stay() {
        let dir = tempfile::tempdir().unwrap();
        let records = Records::in_folder(dir.path());
        let many: Vec<CommitRecord> = (0..3000).map(|n| record(&format!("{n:040}"))).collect();
        for _ in 0..8 {
            records.append(&many).unwrap();
        }
        records.append(&[record("last")]).unwrap();
        let size = |name: &str| fs::metadata(dir.path().join(name)).map_or(0, |file| file.len());
        assert!(size(FILE) + size(EARLIER) < 4 * MAX_FILE);
        let known = records.read().unwrap();
        assert!(known.has("last"));
        assert!(known.has(&format!("{:040}", 2999)));
    }

    #[test]
    fn only_what_was_there_before_the_guard_needs_no_record() {
        let dir = tempfile::tempdir().unwrap();
        let records = Records::in_folder(dir.path());
        let seen = CommitRecord {
            how: How::Commit,
            ..record("d")
        };
        records.append(&[record("b"), seen]).unwrap();
        let known = records.read().unwrap();
        let families = [["e", "d"], ["d", "c"], ["c", "b"], ["b", "a"], ["a", "z"]];
        let families: Vec<Vec<String>> = families
            .iter()
            .map(|family| family.map(str::to_owned).to_vec())
            .collect();
        assert_eq!(known.missing(&families).unwrap(), ["e", "c"]);
    }
}
