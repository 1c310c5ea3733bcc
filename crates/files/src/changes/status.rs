//! What git says of paths: [`Status`].

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::ffi::OsStrExt;

use tenure_git::{Environment, Git, GitError};
use tenure_host::files::look::if_there;

use super::start::Tree;
use crate::guard::touched::{self, is_commit};

/// How many paths are named to one git, and how many bytes they may have. To look at all files is faster than to compare
/// each with more paths than this.
const MOST_PATHS: usize = 100;
const MOST_BYTES: usize = 64 << 10;

/// The longest part of git's list of the places of `HEAD` that is read.
const MOST_REFLOG: u64 = 1 << 20;

/// What git shows of a path: how the index differs from the last commit, and the file from the index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Shown {
    pub(super) staged: u8,
    pub(super) file: u8,
}

impl Shown {
    /// Whether git does not track it.
    pub(super) fn is_new(self) -> bool {
        self.file == b'?' || self.staged == b'A'
    }

    /// Whether the file is as it is staged.
    pub(super) fn is_staged(self) -> bool {
        self.file == b' ' && self.staged != b'U'
    }

    pub(super) fn is_deleted(self) -> bool {
        self.file == b'D' || (self.file == b' ' && self.staged == b'D')
    }
}

/// Which files git is asked about that it does not track.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Untracked {
    /// Each of them.
    Files,
    /// A folder of which git tracks nothing is one.
    Folders,
    No,
}

/// What `git status` shows, by path.
#[derive(Debug, Default)]
pub(super) struct Status {
    pub(super) shown: BTreeMap<Vec<u8>, Shown>,
}

impl Status {
    /// Adds what git shows of these paths, and perhaps of others.
    pub(super) fn ask_about(
        &mut self,
        git: &Git,
        untracked: Untracked,
        paths: &BTreeSet<Vec<u8>>,
    ) -> Result<(), GitError> {
        let bytes: usize = paths.iter().map(Vec::len).sum();
        if paths.is_empty() {
            return Ok(());
        }
        let is_few = paths.len() <= MOST_PATHS && bytes <= MOST_BYTES;
        self.ask(git, untracked, paths.iter().filter(|_| is_few))
    }

    /// Adds what git shows of these paths; of all if there are none.
    pub(super) fn ask<'a>(
        &mut self,
        git: &Git,
        untracked: Untracked,
        paths: impl Iterator<Item = &'a Vec<u8>>,
    ) -> Result<(), GitError> {
        let untracked = match untracked {
            Untracked::Files => "--untracked-files=all",
            Untracked::Folders => "--untracked-files=normal",
            Untracked::No => "--untracked-files=no",
        };
        let options = [
            "status",
            "--porcelain=v1",
            "-z",
            "--no-renames",
            "--ignore-submodules=none",
            untracked,
            "--",
        ];
        let options = options.iter().map(OsStr::new);
        let paths = paths.map(|path| OsStr::from_bytes(path));
        let answer = git.run(&options.chain(paths).collect::<Vec<_>>())?;
        for line in answer.split(|byte| *byte == 0) {
            if let [staged, file, b' ', path @ ..] = line {
                let shown = Shown {
                    staged: *staged,
                    file: *file,
                };
                // A file that git forgot and that is still there is shown twice: as deleted, and as new.
                self.shown.insert(path.to_vec(), shown);
            }
        }
        Ok(())
    }
}

/// Git in a work tree.
pub(super) fn git(tree: &Tree) -> Git<'static> {
    Git::at(&tree.root, Environment::Alone)
}

/// The files that the next commit deletes.
pub(super) fn staged_deletions(tree: &Tree) -> Result<BTreeSet<Vec<u8>>, GitError> {
    let git = git(tree);
    let options = [
        "diff-index",
        "--cached",
        "-z",
        "--name-only",
        "--no-renames",
        "--diff-filter=D",
        "HEAD",
    ];
    match git.run(&options) {
        Err(_) if touched::has_no_commit(&git)? => Ok(BTreeSet::new()),
        answer => Ok(names(&answer?)),
    }
}

/// Paths with a NUL after each.
fn names(answer: &[u8]) -> BTreeSet<Vec<u8>> {
    let names = answer.split(|byte| *byte == 0);
    let names = names.filter(|name| !name.is_empty());
    names.map(<[u8]>::to_vec).collect()
}

/// The paths that commits have changed which were made here, as git's list of the places of `HEAD` tells from this byte on.
/// A checkout, a reset, a pull and a rebase make none.
pub(super) fn committed(tree: &Tree, from: u64) -> Result<BTreeSet<Vec<u8>>, super::CantTell> {
    let mut found = BTreeSet::new();
    let mut text = Vec::new();
    if let Some(mut file) = if_there(File::open(tree.git.join("logs/HEAD")))? {
        file.seek(SeekFrom::Start(from))?;
        io::copy(&mut file.take(MOST_REFLOG), &mut text)?;
    }
    for line in text.split(|byte| *byte == b'\n') {
        let line = String::from_utf8_lossy(line);
        let Some((head, why)) = line.split_once('\t') else {
            continue;
        };
        // The commit before, and the new one.
        let new = head.split(' ').nth(1).filter(|id| is_commit(id));
        let Some(new) = new.filter(|_| why.starts_with("commit")) else {
            continue;
        };
        // Of a merge, what differs from both sides: that was written here.
        let options = [
            "diff-tree",
            "-r",
            "-c",
            "-z",
            "--root",
            "--name-only",
            "--no-commit-id",
            "--no-renames",
            new,
        ];
        found.extend(names(&git(tree).run(&options)?));
    }
    Ok(found)
}
