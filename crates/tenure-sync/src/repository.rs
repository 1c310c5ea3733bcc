//! The repository that a project is in, and whether it may be touched just now.

use std::path::{Path, PathBuf};

use super::git::{Git, GitError, Oid, words};
use super::index::Index;
use super::running;
use super::{SyncOutcome, TASKS};

/// What git leaves in its folder during an operation, and the name of that operation.
const OPERATIONS: [(&str, &str); 7] = [
    ("rebase-merge", "a rebase"),
    ("rebase-apply", "a rebase"),
    ("MERGE_HEAD", "a merge"),
    ("CHERRY_PICK_HEAD", "a cherry-pick"),
    ("REVERT_HEAD", "a revert"),
    ("BISECT_LOG", "a bisect"),
    ("sequencer", "a series of picks"),
];

/// How often a fetch is tried that collides with another fetch in this clone.
const FETCHES: u32 = 3;

/// The remote branch that a branch follows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Upstream {
    /// The remote's name.
    pub(super) remote: String,
    /// The branch there, in full.
    pub(super) branch: String,
}

impl Upstream {
    /// The short name, for people.
    pub(super) fn name(&self) -> String {
        format!("{}/{}", self.remote, short(&self.branch))
    }

    /// The remote-tracking branch.
    pub(super) fn tracking(&self) -> String {
        format!("refs/remotes/{}", self.name())
    }
}

/// The short name of a branch.
pub(super) fn short(branch: &str) -> &str {
    branch.strip_prefix("refs/heads/").unwrap_or(branch)
}

/// A repository with a branch checked out and no operation in progress.
#[derive(Debug)]
pub(super) struct Repository {
    /// The path of the shared file in it.
    pub(super) path: String,
    /// The branch that is checked out, in full.
    pub(super) branch: String,
    pub(super) upstream: Option<Upstream>,
    folder: PathBuf,
    /// The work tree.
    top: PathBuf,
}

/// The repository that a project is in.
pub(super) enum RepositoryState {
    /// It can be synced.
    Ready(Repository),
    /// It must not be touched now.
    Busy(SyncOutcome),
    /// The project is in none.
    None,
}

/// The newest commit of the remote branch.
pub(super) enum Fetched {
    /// This one, or none if the branch is not there yet.
    Tip(Option<Oid>),
    /// The remote can't be reached.
    Offline(String),
}

impl Repository {
    /// The repository that the project is in.
    pub(super) fn find(git: &Git<'_>) -> Result<RepositoryState, GitError> {
        let put_off = |why: String| Ok(RepositoryState::Busy(SyncOutcome::PutOff(why)));
        let asked = git.run(&[
            "rev-parse",
            "--show-prefix",
            "--absolute-git-dir",
            "--show-toplevel",
        ]);
        let answer = match asked {
            Ok(answer) => answer,
            Err(GitError::Refused { words, .. }) if words.contains("not a git repository") => {
                return Ok(RepositoryState::None);
            }
            Err(other) => return Err(other),
        };
        let (prefix, folders) = answer.split_once('\n').unwrap_or(("", &answer));
        let (folder, top) = folders.split_once('\n').unwrap_or((folders, ""));
        let (folder, top) = (PathBuf::from(folder), PathBuf::from(top));
        index_of(git, &folder).recover();
        if let Some(busy) = blocked_by(&folder) {
            return Ok(RepositoryState::Busy(busy));
        }
        let path = format!("{prefix}{TASKS}");
        let Some(branch) = git.query(&["symbolic-ref", "--quiet", "HEAD"])? else {
            return put_off("no branch is checked out (detached HEAD): check one out".into());
        };
        if git
            .query(&["check-ignore", "--quiet", "--no-index", "--", TASKS])?
            .is_some()
        {
            return put_off(format!(
                "{TASKS} is ignored by git: take the rule out, or set sync.enabled to false"
            ));
        }
        let upstream = upstream(git, &branch)?;
        Ok(RepositoryState::Ready(Self {
            path,
            branch,
            upstream,
            folder,
            top,
        }))
    }

    /// Why the repository must not be touched now, if it must not.
    pub(super) fn blocked_by(&self) -> Option<SyncOutcome> {
        blocked_by(&self.folder)
    }

    /// Fetches the remote branch.
    pub(super) fn fetch(git: &Git<'_>, upstream: &Upstream) -> Result<Fetched, GitError> {
        let mut tries = 1;
        loop {
            let said = match Self::fetch_once(git, upstream)? {
                Ok(tip) => return Ok(Fetched::Tip(tip)),
                Err(said) => said,
            };
            // Another fetch runs in this clone: the user's, or one that outlived its killed sync.
            if tries >= FETCHES || !said.contains("cannot lock ref") {
                return Ok(Fetched::Offline(said));
            }
            tries += 1;
        }
    }

    /// The newest commit there, or why the fetch failed.
    fn fetch_once(
        git: &Git<'_>,
        upstream: &Upstream,
    ) -> Result<Result<Option<Oid>, String>, GitError> {
        let refspec = format!("+{}:{}", upstream.branch, upstream.tracking());
        let output = git.call_remote(&[
            "fetch",
            "--quiet",
            "--no-tags",
            "--no-write-fetch-head",
            "--no-recurse-submodules",
            "--no-auto-maintenance",
            "--end-of-options",
            &upstream.remote,
            &refspec,
        ]);
        let output = match output {
            Ok(output) => output,
            Err(GitError::TimedOut) => return Ok(Err(GitError::TimedOut.to_string())),
            Err(other) => return Err(other),
        };
        if output.status.success() {
            return Ok(Ok(git.resolve(&upstream.tracking())?));
        }
        let said = words(&output.stderr);
        if said.contains("couldn't find remote ref") {
            return Ok(Ok(None));
        }
        Ok(Err(said))
    }

    /// Whether the entry of the shared file in the user's index is this blob.
    pub(super) fn has_entry(&self, git: &Git<'_>, blob: &Oid) -> Result<bool, GitError> {
        let wanted = format!("100644 {blob} 0");
        let literal = format!(":(top,literal){}", self.path);
        let entry = git.run(&["ls-files", "--stage", "--", &literal])?;
        Ok(entry.split('\t').next() == Some(wanted.as_str()))
    }

    /// The user's index.
    pub(super) fn index<'a>(&'a self, git: &'a Git<'_>) -> Index<'a> {
        index_of(git, &self.folder)
    }

    /// What the sync would interrupt, now that it holds the index.
    pub(super) fn interrupted_by(&self) -> Option<SyncOutcome> {
        operation(&self.folder).or_else(|| {
            let (what, pid) = running::at_work(&self.top)?;
            Some(SyncOutcome::PutOff(format!(
                "git {what} is running here (pid {pid})"
            )))
        })
    }
}

fn index_of<'a>(git: &'a Git<'_>, folder: &'a Path) -> Index<'a> {
    let own = git.scratch.parent().unwrap_or(git.root);
    Index { folder, own }
}

fn blocked_by(folder: &Path) -> Option<SyncOutcome> {
    if folder.join("index.lock").exists() {
        let lock = folder.join("index.lock");
        return Some(SyncOutcome::PutOff(format!(
            "the index is locked by another git ({}); if none runs, remove that file",
            lock.display()
        )));
    }
    operation(folder)
}

fn operation(folder: &Path) -> Option<SyncOutcome> {
    OPERATIONS
        .iter()
        .find(|(name, _)| folder.join(name).exists())
        .map(|(_, what)| SyncOutcome::PutOff(format!("{what} is in progress: finish or abort it")))
}

fn upstream(git: &Git<'_>, branch: &str) -> Result<Option<Upstream>, GitError> {
    let of = |what: &str| git.query(&["config", &format!("branch.{}.{what}", short(branch))]);
    let (Some(remote), Some(branch)) = (of("remote")?, of("merge")?) else {
        return Ok(None);
    };
    // A branch may also follow a branch of the same repository, or a URL without a name.
    let named = git.run(&["remote"])?.lines().any(|name| name == remote);
    Ok(named.then_some(Upstream { remote, branch }))
}
