//! Under which tokens each commit was made: [`Records`], a file in the project's `.tenure`.
//!
//! A commit belongs to this clone, whichever store its reservations are in, so its record is a line of JSON beside the
//! store, not in it. A line is appended after each commit, with one write under a lock; half a line, which a power cut may
//! leave, is skipped. A commit without a record is judged when it is pushed as if it were made then, so a lost line lets
//! nothing pass that is reserved. The two files together hold at least the newest `MAX_FILE` bytes.

use std::collections::{HashMap, HashSet};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rustix::fs::{FlockOperation, OFlags, flock};
use serde::{Deserialize, Serialize};
use tenure_core::{HolderId, Lease, Mode, Token};
use tenure_host::files::permissions::open_or_create;

use crate::git::{Git, GitError};
use crate::judge::Reserved;
use crate::me::Me;

/// The size at which a new file is begun.
const MAX_FILE: u64 = 1024 * 1024;

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
    fn covers(&self, path: &str) -> bool {
        self.mode
            .paths()
            .is_none_or(|paths| paths.covers(path).is_some())
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
pub struct Record {
    /// Its id.
    pub commit: String,
    /// When the record was made.
    pub at: Timestamp,
    /// How.
    pub how: How,
    /// The names of the holder that made it.
    pub by: Vec<HolderId>,
    /// The newest token at that time.
    pub newest: u64,
    /// The holder's own reservations of paths that the commit changes.
    pub own: Vec<Holding>,
    /// Those of other holders.
    pub against: Vec<Holding>,
}

impl Record {
    /// A commit that was there before the guard.
    pub fn before(commit: String, at: Timestamp) -> Self {
        Self {
            commit,
            at,
            how: How::Before,
            by: Vec::new(),
            newest: 0,
            own: Vec::new(),
            against: Vec::new(),
        }
    }

    /// The same for a commit that changes these paths, with the reservations in effect.
    #[must_use]
    pub fn under(
        self,
        how: How,
        me: &Me,
        newest: Token,
        reserved: &Reserved,
        paths: &[String],
    ) -> Self {
        let each = |found: &dyn Fn(&str) -> Option<Holding>| {
            let mut all: Vec<Holding> = Vec::new();
            for holding in paths.iter().filter_map(|path| found(path)) {
                if !all.contains(&holding) {
                    all.push(holding);
                }
            }
            all
        };
        Self {
            own: each(&|path| reserved.own(me, path).map(Holding::from)),
            against: each(&|path| reserved.against(me, path).map(Holding::from)),
            by: me.names().to_vec(),
            newest: newest.0,
            how,
            ..self
        }
    }

    /// The token that a later grant of the path overtakes.
    pub(crate) fn token(&self, path: &str) -> Token {
        let own = self.own.iter().find(|holding| holding.covers(path));
        let against = self.against.iter().filter(|holding| holding.covers(path));
        let before = against.map(|holding| holding.token.saturating_sub(1)).min();
        // A commit against a reservation is overtaken by that one.
        Token(before.or(own.map(|own| own.token)).unwrap_or(self.newest))
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

    /// Those of a repository without a project, in its common directory.
    pub fn in_repository(git: &Git) -> Result<Self, GitError> {
        let folder = git.run(&["rev-parse", "--path-format=absolute", "--git-common-dir"])?;
        let folder = folder.strip_suffix(b"\n").unwrap_or(&folder);
        Ok(Self::in_folder(Path::new(OsStr::from_bytes(folder))))
    }

    /// Whether there are any: the guard was installed.
    pub fn exist(&self) -> bool {
        self.folder.join(FILE).exists()
    }

    /// Removes them.
    pub fn remove(&self) -> io::Result<()> {
        for name in [FILE, EARLIER] {
            match fs::remove_file(self.folder.join(name)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        Ok(())
    }

    /// Reads them.
    pub fn read(&self) -> io::Result<Known> {
        let mut text = Vec::new();
        for name in [EARLIER, FILE] {
            match fs::read(self.folder.join(name)) {
                Ok(mut more) => text.append(&mut more),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
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
        Ok(Known { text, lines })
    }

    /// Adds records.
    pub fn append(&self, records: &[Record]) -> io::Result<()> {
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
            fs::rename(&path, self.folder.join(EARLIER))?;
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
            if fs::metadata(path)
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
    pub fn get(&self, commit: &str) -> Option<Record> {
        let (begin, end) = self.lines.get(commit)?;
        serde_json::from_slice(self.text.get(*begin..*end)?).ok()
    }

    /// The commits that were made without the guard, or against a reservation: the newest last.
    pub fn bypasses(&self) -> Vec<Record> {
        let mut places: Vec<&(usize, usize)> = self.lines.values().collect();
        places.sort_unstable();
        let record = |place: &&(usize, usize)| {
            let line = self.text.get(place.0..place.1)?;
            serde_json::from_slice::<Record>(line).ok()
        };
        let records = places.iter().filter_map(record);
        records
            .filter(|record| record.how == How::Late || !record.against.is_empty())
            .collect()
    }

    /// The commits without a record that are not below one with a record. `commits` are in topological order, children
    /// before parents, each with its parents.
    pub fn missing(&self, commits: &[Vec<String>]) -> Vec<String> {
        let mut below = HashSet::new();
        let mut missing = Vec::new();
        for family in commits {
            let Some((commit, parents)) = family.split_first() else {
                continue;
            };
            if self.has(commit) || below.contains(commit) {
                below.extend(parents);
            } else {
                missing.push(commit.clone());
            }
        }
        missing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(commit: &str) -> Record {
        Record::before(commit.to_owned(), Timestamp::UNIX_EPOCH)
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
            known.get("aa").map(|record| record.commit).as_deref(),
            Some("aa")
        );
        assert!(!known.has("bb"));
        assert!(known.get("cc").is_some());
    }

    #[test]
    fn the_files_stay_small_and_the_newest_records_stay() {
        let dir = tempfile::tempdir().unwrap();
        let records = Records::in_folder(dir.path());
        let many: Vec<Record> = (0..3000).map(|n| record(&format!("{n:040}"))).collect();
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
    fn a_commit_below_a_record_is_not_missing() {
        let dir = tempfile::tempdir().unwrap();
        let records = Records::in_folder(dir.path());
        records.append(&[record("b")]).unwrap();
        let known = records.read().unwrap();
        let families = [["d", "c"], ["c", "b"], ["b", "a"], ["a", "z"]];
        let families: Vec<Vec<String>> = families
            .iter()
            .map(|family| family.map(str::to_owned).to_vec())
            .collect();
        assert_eq!(known.missing(&families), ["d", "c"]);
    }

    #[test]
    fn a_commit_against_a_reservation_is_overtaken_by_it() {
        let holding = |token, mode: &str| Holding {
            token,
            holder: HolderId::parse("other").unwrap(),
            mode: mode.parse().unwrap(),
        };
        let record = Record {
            newest: 12,
            own: vec![holding(7, "paths:src/a")],
            against: vec![holding(9, "paths:src/b")],
            ..record("a")
        };
        assert_eq!(record.token("src/a"), Token(7));
        assert_eq!(record.token("src/b"), Token(8));
        assert_eq!(record.token("docs/x"), Token(12));
    }
}
