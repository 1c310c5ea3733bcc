//! What a command changed in a git work tree: [`Start::now`] before it, [`Start::changed`] after it.
//!
//! An agent's shell command changes files that no hook of an edit tool sees. Before it, only the time is taken; after it, the
//! files are found that changed since, and git is asked about these alone.
//!
//! | file | contents |
//! |---|---|
//! | `start` | the time before the call, by the clock of the file system |
//! | `pass` | every tracked file and its folder, looked at with a few threads |
//! | `fresh` | new files, in folders that have changed |
//! | `status` | what git says of the candidates |
//! | [`Stamp`] | what tells that a file was not written since |
//!
//! # What counts
//!
//! 1. A file counts that `git status` shows as modified, new or deleted **and** that changed since the start: its content, its
//!    name, or its mode. What git ignores never counts.
//! 2. What a checkout, pull, merge, reset or rebase brought does not count: git shows it as unchanged. While a merge or a
//!    rebase that began in the call waits for the user, what it has staged does not count either; a conflict does.
//! 3. A file that was changed and committed in the same call counts as [`What::Committed`].
//! 4. Of the paths that the caller [watches](Watched), everything counts that changed a stamp: also that a file has the
//!    committed bytes again ([`What::Undone`]), and that an untracked file is gone.
//! 5. Of a submodule, its folder counts: if git shows it as changed, and its folder, its commit or its index changed since.
//!
//! # What is missed
//!
//! - A new file in a folder that git did not track before, and in-place edits of files in it, unless the caller watches a file
//!   in that folder. A caller that watches what earlier calls reported misses none that agents made.
//! - An edit deep in a submodule that is not staged there.
//! - A deleted file is told from one that was missing before by the time of its folder alone, unless it is watched.
//! - What git is told not to look at (`--assume-unchanged`), and files whose times a program can set back to before the
//!   start, which local file systems do not allow.
//!
//! A file that another program wrote at most one tick of the clock (4 ms) before the start counts, unless its stamp is
//! watched.
//!
//! Nothing is written but a file without a name; on file systems without those, `tenure-clock` in git's folder. Nothing waits
//! for a lock of git.

mod fresh;
mod pass;
pub(crate) mod path_json;
mod stamp;
mod start;
mod status;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tenure_git::GitError;
use tenure_git::folder;
use tenure_git::index::{Index, Kind};

use self::fresh::Fresh;
use self::pass::Pass;
use self::stamp::path_of;
use self::start::{Tree, Window};
use self::status::{Shown, Status, Untracked, committed, git, staged_deletions};

pub use self::stamp::{FileTime, Stamp};
pub use self::start::Start;

/// Why it can't be told what a command changed. It is no reason to bother an agent.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CantTell {
    /// There is no git here, or a repository without a work tree.
    #[error("{} is not the top of a git work tree", .0.display())]
    NoWorkTree(PathBuf),
    /// Git refused: the repository of another user, for example.
    #[error(transparent)]
    Git(#[from] GitError),
    /// A file can't be looked at.
    #[error(transparent)]
    File(#[from] io::Error),
}

/// A file and its stamp before the call. It need not exist.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Watched {
    /// The path from the top of the work tree.
    #[serde(with = "path_json")]
    pub path: PathBuf,
    /// `None` if there was nothing.
    pub stamp: Option<Stamp>,
}

impl Watched {
    /// A file as it is now.
    pub fn now(root: &Path, path: &Path) -> io::Result<Self> {
        Ok(Self {
            path: path.to_owned(),
            stamp: Stamp::of(&root.join(path))?,
        })
    }
}

/// What became of a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// A tracked file has other bytes or another mode. Of a submodule: something in it.
    Modified,
    /// A file that git does not track, or that is only staged.
    New,
    /// A new folder with too many files to name, or with a repository of its own.
    NewFolder,
    /// A file is gone.
    Deleted,
    /// It was changed and committed in the call.
    Committed,
    /// A watched file has the committed bytes: what was not committed is gone.
    Undone,
}

/// A file that a call changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// The path from the top of the work tree.
    #[serde(with = "path_json")]
    pub path: PathBuf,
    /// What became of it.
    pub what: What,
    /// Its stamp now.
    pub stamp: Option<Stamp>,
}

/// What a call changed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Changed {
    /// The files, in the order of their paths.
    pub files: Vec<Change>,
    /// Folders that have too many names to be looked at.
    pub left_out: Vec<PathBuf>,
}

/// The paths that may have changed.
#[derive(Default)]
struct Candidates {
    /// Those that git tracks.
    tracked: BTreeSet<Vec<u8>>,
    fresh: Fresh,
}

impl Start {
    /// What changed since in the work tree with this top. `watched` are files whose stamps from before the call are known.
    pub fn changed(&self, root: &Path, watched: &[Watched]) -> Result<Changed, CantTell> {
        let tree = Tree::at(root)?;
        let window = self.window(&tree);
        let mut touched: BTreeMap<&[u8], &Watched> = BTreeMap::new();
        let mut same: BTreeSet<&[u8]> = BTreeSet::new();
        for file in watched {
            let path = file.path.as_os_str().as_bytes();
            if Stamp::of(&root.join(&file.path))? == file.stamp {
                same.insert(path);
            } else {
                touched.insert(path, file);
            }
        }
        let index = Index::read(&tree.git)?;
        let (candidates, status) = match &index {
            Some(index) => {
                let found = Candidates::find(&tree, index, window, watched, &same)?;
                let status = found.ask(&tree, index, touched.keys().copied())?;
                (found, status)
            }
            // Only git can read this index.
            None => Candidates::ask_for_all(&tree, window, &same)?,
        };
        let mut changed = Changed::default();
        // Not while a merge that began in the call waits for the user.
        let staged_counts = self.unfinished || !tree.is_unfinished();
        let commits = if tree.reflog() > self.reflog {
            committed(&tree, self.reflog)?
        } else {
            BTreeSet::new()
        };
        let names = candidates.tracked.iter().chain(&candidates.fresh.files);
        let mut names: BTreeSet<&[u8]> = names
            .map(Vec::as_slice)
            .chain(touched.keys().copied())
            .collect();
        for name in commits.iter().map(Vec::as_slice) {
            if !same.contains(name) && has_gone(&tree, name, window)? {
                names.insert(name);
            }
        }
        for name in names {
            let shown = status.shown.get(name).copied();
            let path = path_of(name);
            let stamp = Stamp::of(&root.join(&path))?;
            let is_watched = touched.contains_key(name);
            let what = match shown {
                Some(shown) if shown.is_staged() && !staged_counts && !is_watched => continue,
                Some(shown) => what(shown, stamp.as_ref()),
                None if commits.contains(name) => What::Committed,
                None if !is_watched => continue,
                None => {
                    let is_tracked = index.as_ref().map(|index| index.kind(name).is_some());
                    match (is_tracked.unwrap_or(true), &stamp) {
                        (true, _) => What::Undone,
                        (false, None) => What::Deleted,
                        // It is ignored now.
                        (false, Some(_)) => continue,
                    }
                }
            };
            changed.files.push(Change { path, what, stamp });
        }
        for name in &candidates.fresh.folders {
            // Git shows a folder with a slash at its end.
            if status.shown.contains_key(&[name, &b"/"[..]].concat()) {
                let path = path_of(name);
                changed.files.push(Change {
                    stamp: Stamp::of(&root.join(&path))?,
                    what: What::NewFolder,
                    path,
                });
            }
        }
        changed.files.sort_unstable_by(|a, b| a.path.cmp(&b.path));
        let left_out = candidates.fresh.left_out.iter();
        changed.left_out = left_out.map(|folder| path_of(folder)).collect();
        Ok(changed)
    }
}

fn what(shown: Shown, stamp: Option<&Stamp>) -> What {
    match stamp {
        Some(_) if shown.is_new() => What::New,
        // A folder may have the name of a file that is gone.
        Some(_) if !shown.is_deleted() => What::Modified,
        _ => What::Deleted,
    }
}

impl Candidates {
    /// All paths that changed, by what the file system says. What the caller knows to be the same is left out.
    fn find(
        tree: &Tree,
        index: &Index,
        window: Window,
        watched: &[Watched],
        same: &BTreeSet<&[u8]>,
    ) -> Result<Self, CantTell> {
        let pass = Pass::over(tree, index, window).map_err(io::Error::from)?;
        let numbers = pass.touched.iter().chain(&pass.missing).copied();
        let submodules = pass.submodules.iter().copied();
        let submodules =
            submodules.filter(|number| has_moved(tree, index, *number, window).unwrap_or(true));
        let tracked = numbers.chain(submodules).filter_map(|number| {
            let entry = index.get(number)?;
            (!same.contains(entry.path)).then(|| entry.path.to_vec())
        });
        let mut tracked: BTreeSet<Vec<u8>> = tracked.collect();
        let written = Stamp::of(&tree.git.join("index"))?;
        if written.is_some_and(|written| window.has(written.changed)) {
            // What git deleted is not in the index any more.
            for path in staged_deletions(tree)? {
                if !same.contains(path.as_slice()) && has_gone(tree, &path, window)? {
                    tracked.insert(path);
                }
            }
        }
        let mut folders: BTreeSet<Vec<u8>> = pass.folders.into_iter().collect();
        for file in watched {
            // Folders that git does not track are known only by what is watched in them.
            for folder in file.path.ancestors().skip(1) {
                let name = folder.as_os_str().as_bytes();
                if name.is_empty() || folders.contains(name) || index.has_folder(name) {
                    break;
                }
                let stamp = Stamp::of(&tree.root.join(folder))?;
                if stamp.is_some_and(|stamp| window.has(stamp.changed)) {
                    folders.insert(name.to_vec());
                }
            }
        }
        let mut fresh = Fresh::look(tree, index, &folders, window)?;
        fresh.files.retain(|name| !same.contains(name.as_slice()));
        Ok(Self { tracked, fresh })
    }

    /// What git shows of them, and of these paths.
    fn ask<'a>(
        &self,
        tree: &Tree,
        index: &Index,
        watched: impl Iterator<Item = &'a [u8]>,
    ) -> Result<Status, CantTell> {
        let (mut tracked, mut new) = (self.tracked.clone(), self.fresh.tops.clone());
        for path in watched {
            let known = if index.kind(path).is_some() {
                &mut tracked
            } else {
                &mut new
            };
            known.insert(path.to_vec());
        }
        let (mut status, git) = (Status::default(), git(tree));
        status.ask_about(&git, Untracked::No, &tracked)?;
        status.ask_about(&git, Untracked::Files, &new)?;
        status.ask_about(&git, Untracked::Folders, &self.fresh.folders)?;
        Ok(status)
    }

    /// Everything that git shows, of which the file system says that it changed.
    fn ask_for_all(
        tree: &Tree,
        window: Window,
        same: &BTreeSet<&[u8]>,
    ) -> Result<(Self, Status), CantTell> {
        let (mut status, git) = (Status::default(), git(tree));
        status.ask(&git, Untracked::Files, std::iter::empty())?;
        let mut found = Self::default();
        for (path, shown) in &status.shown {
            let stamp = Stamp::of(&tree.root.join(path_of(path)))?;
            let is_changed = match stamp {
                Some(stamp) => window.has(stamp.changed),
                None => has_gone(tree, path, window)?,
            };
            if !is_changed || same.contains(path.as_slice()) {
                continue;
            }
            match path.strip_suffix(b"/") {
                Some(folder) => found.fresh.folders.insert(folder.to_vec()),
                None if shown.is_new() => found.fresh.files.insert(path.clone()),
                None => found.tracked.insert(path.clone()),
            };
        }
        Ok((found, status))
    }
}

/// Whether a file is not there, and its folder has changed.
fn has_gone(tree: &Tree, path: &[u8], window: Window) -> io::Result<bool> {
    let place = tree.root.join(path_of(path));
    if Stamp::of(&place)?.is_some() {
        return Ok(false);
    }
    for folder in place.ancestors().skip(1) {
        if let Some(stamp) = Stamp::of(folder)? {
            return Ok(window.has(stamp.changed));
        }
    }
    Ok(false)
}

/// Whether the folder, the commit or the index of a submodule changed.
fn has_moved(tree: &Tree, index: &Index, number: usize, window: Window) -> io::Result<bool> {
    let Some(entry) = index
        .get(number)
        .filter(|entry| entry.kind == Kind::Submodule)
    else {
        return Ok(false);
    };
    let folder = tree.root.join(path_of(entry.path));
    let mut places = vec![folder.clone()];
    if let Some(git) = folder::entry(&folder)?.folder() {
        places.extend(["HEAD", "index", "logs/HEAD"].map(|name| git.join(name)));
    }
    for place in places {
        let stamp = Stamp::of(&place)?;
        if stamp.is_some_and(|stamp| window.has(stamp.changed)) {
            return Ok(true);
        }
    }
    Ok(false)
}
