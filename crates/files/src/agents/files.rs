//! The files of the work tree that an agent edits: [`Files`].

use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use tenure::Project;
use tenure::files::{BadPath, PathPattern, WorkTree};
use tenure_git::folder::{self, GitEntry};
use tenure_git::{Environment, Git};
use tenure_host::files::look;

use crate::Error;

/// The kernel's clock for files is late by at most one tick.
const COARSE: Duration = Duration::from_millis(20);

/// The work tree that an agent works in.
pub(super) struct Files {
    tree: WorkTree,
    /// Whether the agent works at the top of it.
    at_top: bool,
    /// Where git keeps the state of this work tree, if there is git.
    git: Option<PathBuf>,
}

impl Files {
    pub(super) fn find(folder: &Path, project: &Project) -> Result<Option<Self>, Error> {
        let tree = WorkTree::find(folder, Some(project))?;
        Ok(tree.map(|tree| Self {
            at_top: folder
                .canonicalize()
                .is_ok_and(|folder| folder == tree.root()),
            git: folder::entry(tree.root()).ok().and_then(GitEntry::folder),
            tree,
        }))
    }

    /// Whether it is a linked worktree, whose files the other agents don't see.
    pub(super) fn are_linked(&self) -> bool {
        let git = self.git.as_ref();
        git.is_some_and(|git| git.join("commondir").is_file())
    }

    /// What a file is called in reservations; `None` if it is outside of the repository, or git's own.
    pub(super) fn path(&self, file: &Path) -> Result<Option<String>, Error> {
        match self.tree.path(file) {
            Ok(path) => {
                let is_ours = path.is_empty() || path == ".git" || path.starts_with(".git/");
                Ok(Some(path).filter(|_| !is_ours))
            }
            Err(BadPath::Outside { .. }) => Ok(None),
            Err(error) => Err(error.into()),
        }
    }

    /// The top of the work tree.
    pub(super) fn root(&self) -> &Path {
        self.tree.root()
    }

    /// What a file is called in a command that reserves it: in the agent's folder, or at the top of the work tree. In a
    /// pattern, brackets and the like are escaped.
    pub(super) fn typed(&self, path: &str, is_at_top: bool) -> String {
        let pattern = PathPattern::escaped(path);
        let root = self.tree.root();
        match root.to_str().filter(|_| !self.at_top && !is_at_top) {
            Some(root) => format!("{root}/{pattern}"),
            None => pattern,
        }
    }

    /// When a file was written last.
    pub(super) fn written(&self, path: &str) -> Result<Option<Timestamp>, Error> {
        Ok(match look::at(&self.tree.root().join(path))? {
            Some(file) => Timestamp::try_from(file.modified()?).ok(),
            None => None,
        })
    }

    /// Whether a commit was made since, and the file was written before it. It costs no process.
    pub(super) fn may_be_committed(&self, path: &str, since: Timestamp) -> bool {
        let head = self
            .git
            .as_ref()
            .and_then(|git| written(&git.join("logs/HEAD")));
        // What can't be looked at is not taken for committed.
        let (Ok(Some(file)), Some(head)) = (self.written(path), head) else {
            return false;
        };
        // A file that was reserved and not yet written is not committed, even if it was just before.
        let is_written = since
            .saturating_sub(COARSE)
            .is_ok_and(|since| since <= file);
        is_written && file <= head && since <= head
    }

    /// Which of these files are as they are in the last commit.
    pub(super) fn committed(&self, paths: &[&str]) -> Vec<String> {
        if paths.is_empty() {
            return Vec::new();
        }
        let options = [
            "status",
            "--porcelain",
            "-z",
            "--untracked-files=all",
            "--ignored=matching",
            "--no-renames",
            "--",
        ];
        let git = Git::at(self.tree.root(), Environment::Alone);
        let Ok(status) = git.run(&[&options[..], paths].concat()) else {
            return Vec::new();
        };
        let lines = status.split(|byte| *byte == 0);
        let changed: Vec<&[u8]> = lines.filter_map(|line| line.get(3..)).collect();
        let clean = paths
            .iter()
            .filter(|path| !changed.contains(&path.as_bytes()));
        clean.map(|path| (*path).to_owned()).collect()
    }
}

fn written(file: &Path) -> Option<Timestamp> {
    Timestamp::try_from(file.metadata().ok()?.modified().ok()?).ok()
}
