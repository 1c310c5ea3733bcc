//! The repository that a project is in, and whether it may be touched just now.

use std::path::{Path, PathBuf};

use super::git::{Git, Oid, Trouble, words};
use super::index::Index;
use super::running;
use super::{Outcome, TASKS};

/// What git leaves in its folder while something is under way, and what that is.
const UNDER_WAY: [(&str, &str); 7] = [
    ("rebase-merge", "a rebase"),
    ("rebase-apply", "a rebase"),
    ("MERGE_HEAD", "a merge"),
    ("CHERRY_PICK_HEAD", "a cherry-pick"),
    ("REVERT_HEAD", "a revert"),
    ("BISECT_LOG", "a bisect"),
    ("sequencer", "a series of picks"),
];

/// How often a fetch is tried that another one of this clone was faster with.
const FETCHES: u32 = 3;

/// Where a branch comes from and goes to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Upstream {
    /// The remote's name.
    pub(super) remote: String,
    /// The branch there, in full.
    pub(super) branch: String,
}

impl Upstream {
    /// For people.
    pub(super) fn name(&self) -> String {
        format!("{}/{}", self.remote, short(&self.branch))
    }

    /// Where git keeps what it knows of it.
    pub(super) fn tracking(&self) -> String {
        format!("refs/remotes/{}", self.name())
    }
}

/// A branch without its folder.
pub(super) fn short(branch: &str) -> &str {
    branch.strip_prefix("refs/heads/").unwrap_or(branch)
}

/// A repository with a branch checked out, in which nothing is under way.
#[derive(Debug)]
pub(super) struct Repository {
    /// The file's path in it.
    pub(super) path: String,
    /// The branch that is checked out, in full.
    pub(super) branch: String,
    pub(super) upstream: Option<Upstream>,
    folder: PathBuf,
    /// The work tree.
    top: PathBuf,
}

/// What there is around a project.
pub(super) enum Around {
    /// A repository in which something may be done.
    Repository(Repository),
    /// A repository in which nothing may be done now.
    Busy(Outcome),
    /// None.
    Nothing,
}

/// The other side's newest commit.
pub(super) enum Fetched {
    /// This one, or none if the branch is not there yet.
    Tip(Option<Oid>),
    /// It could not be asked.
    Offline(String),
}

impl Repository {
    /// The repository around a project.
    pub(super) fn find(git: &Git<'_>) -> Result<Around, Trouble> {
        let put_off = |why: String| Ok(Around::Busy(Outcome::PutOff(why)));
        let asked = git.tell(&[
            "rev-parse",
            "--show-prefix",
            "--absolute-git-dir",
            "--show-toplevel",
        ]);
        let answer = match asked {
            Ok(answer) => answer,
            Err(Trouble::Refused { words, .. }) if words.contains("not a git repository") => {
                return Ok(Around::Nothing);
            }
            Err(other) => return Err(other),
        };
        let (prefix, folders) = answer.split_once('\n').unwrap_or(("", &answer));
        let (folder, top) = folders.split_once('\n').unwrap_or((folders, ""));
        let (folder, top) = (PathBuf::from(folder), PathBuf::from(top));
        index_of(git, &folder).recover();
        if let Some(busy) = in_the_way(&folder) {
            return Ok(Around::Busy(busy));
        }
        let path = format!("{prefix}{TASKS}");
        let Some(branch) = git.ask(&["symbolic-ref", "--quiet", "HEAD"])? else {
            return put_off("no branch is checked out (detached HEAD): check one out".into());
        };
        if git
            .ask(&["check-ignore", "--quiet", "--no-index", "--", TASKS])?
            .is_some()
        {
            return put_off(format!(
                "{TASKS} is ignored by git: take the rule out, or set sync.enabled to false"
            ));
        }
        let upstream = upstream(git, &branch)?;
        Ok(Around::Repository(Self {
            path,
            branch,
            upstream,
            folder,
            top,
        }))
    }

    /// Whether something came up since.
    pub(super) fn in_the_way(&self) -> Option<Outcome> {
        in_the_way(&self.folder)
    }

    /// Gets what the others have.
    pub(super) fn fetch(git: &Git<'_>, upstream: &Upstream) -> Result<Fetched, Trouble> {
        let mut tries = 1;
        loop {
            let said = match Self::fetch_once(git, upstream)? {
                Ok(tip) => return Ok(Fetched::Tip(tip)),
                Err(said) => said,
            };
            // Another fetch of this clone was faster: the user's, or one that outlived its sync.
            if tries >= FETCHES || !said.contains("cannot lock ref") {
                return Ok(Fetched::Offline(said));
            }
            tries += 1;
        }
    }

    /// The newest commit there, or why it is not known.
    fn fetch_once(
        git: &Git<'_>,
        upstream: &Upstream,
    ) -> Result<Result<Option<Oid>, String>, Trouble> {
        let refspec = format!("+{}:{}", upstream.branch, upstream.tracking());
        let output = git.call(&[
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
            Err(Trouble::TimedOut) => return Ok(Err(Trouble::TimedOut.to_string())),
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

    /// Whether the entry of our file in the user's index is this one.
    pub(super) fn has_entry(&self, git: &Git<'_>, blob: &Oid) -> Result<bool, Trouble> {
        let wanted = format!("100644 {blob} 0");
        let literal = format!(":(top,literal){}", self.path);
        let entry = git.tell(&["ls-files", "--stage", "--", &literal])?;
        Ok(entry.split('\t').next() == Some(wanted.as_str()))
    }

    /// The user's index.
    pub(super) fn index<'a>(&'a self, git: &'a Git<'_>) -> Index<'a> {
        index_of(git, &self.folder)
    }

    /// What of the user's would be disturbed, now that the index is ours.
    pub(super) fn under_way(&self) -> Option<Outcome> {
        under_way(&self.folder).or_else(|| {
            let (what, pid) = running::at_work(&self.top)?;
            Some(Outcome::PutOff(format!(
                "git {what} is at work here (pid {pid})"
            )))
        })
    }
}

fn index_of<'a>(git: &'a Git<'_>, folder: &'a Path) -> Index<'a> {
    let own = git.scratch.parent().unwrap_or(git.root);
    Index { folder, own }
}

fn in_the_way(folder: &Path) -> Option<Outcome> {
    if folder.join("index.lock").exists() {
        let lock = folder.join("index.lock");
        return Some(Outcome::PutOff(format!(
            "the index is locked by another git ({}); if none runs, remove that file",
            lock.display()
        )));
    }
    under_way(folder)
}

fn under_way(folder: &Path) -> Option<Outcome> {
    UNDER_WAY
        .iter()
        .find(|(name, _)| folder.join(name).exists())
        .map(|(_, what)| Outcome::PutOff(format!("{what} is under way: finish or abort it")))
}

fn upstream(git: &Git<'_>, branch: &str) -> Result<Option<Upstream>, Trouble> {
    let of = |what: &str| git.ask(&["config", &format!("branch.{}.{what}", short(branch))]);
    let (Some(remote), Some(branch)) = (of("remote")?, of("merge")?) else {
        return Ok(None);
    };
    // A branch may follow another one in the same repository, or an address without a name.
    let named = git.tell(&["remote"])?.lines().any(|name| name == remote);
    Ok(named.then_some(Upstream { remote, branch }))
}
