//! What each hook of git does: [`Event::read`], [`Scene::judge`].

use std::ffi::OsString;
use std::io::Read;

use super::judge::Objection;
use super::push::{self, Refused};
use super::records::{CommitRecord, How};
use super::scene::Scene;
use super::touched::{self, RefChange, Side};
use crate::Error;

/// What a hook is about to let happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GitChange {
    /// A commit.
    Commit,
    /// The commit of a merge.
    Merge,
    /// A branch of this repository gets another commit.
    Branch,
    /// A branch of this server gets another commit.
    Push,
}

/// What git tells a hook.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// What is staged will be committed.
    Staged(GitChange),
    /// These refs will change.
    Branches(GitChange, Vec<RefChange>),
    /// A commit was made; if it was a merge, there may be none.
    Made(GitChange),
    /// Commits will be pushed.
    Push {
        /// The name of the remote.
        remote: String,
        /// What git says of the refs.
        input: Vec<u8>,
    },
}

impl Event {
    /// Reads what git tells the hook of this name; `None` if the guard has nothing to do.
    pub fn read(name: &str, args: &[OsString], mut from: impl Read) -> Result<Option<Self>, Error> {
        let first = args.first().map(|arg| arg.to_string_lossy().into_owned());
        let first = first.unwrap_or_default();
        let mut input = || {
            let mut input = Vec::new();
            from.read_to_end(&mut input).map(|_| input)
        };
        let branches = |change, input: &[u8]| {
            let changes = RefChange::parse(input);
            let is_branch = changes.iter().any(RefChange::is_branch);
            is_branch.then_some(Self::Branches(change, changes))
        };
        Ok(match name {
            "pre-commit" => Some(Self::Staged(GitChange::Commit)),
            "pre-merge-commit" => Some(Self::Staged(GitChange::Merge)),
            "post-commit" => Some(Self::Made(GitChange::Commit)),
            "post-merge" => Some(Self::Made(GitChange::Merge)),
            "pre-receive" => branches(GitChange::Push, &input()?),
            "reference-transaction" if first != "prepared" => None,
            "reference-transaction" => branches(GitChange::Branch, &input()?),
            "pre-push" => Some(Self::Push {
                remote: first,
                input: input()?,
            }),
            other => return Err(Error::NoHook(other.to_owned())),
        })
    }
}

/// What a hook found out.
#[derive(Debug, Default)]
#[must_use]
pub struct Judged {
    /// Why git may not go on, if it may not.
    pub refusal: Option<Refusal>,
    /// A commit that was made all the same, against reservations.
    pub against: Option<CommitRecord>,
    /// Commits of a push that no hook saw.
    pub unseen: Vec<String>,
}

/// Why git may not go on.
#[derive(Debug)]
pub enum Refusal {
    /// Paths that may not be changed: at least one.
    Paths(GitChange, Vec<(String, Objection)>),
    /// Commits that were made against reservations.
    Commits {
        /// At least one, in the order of the commits, the newest first.
        refused: Vec<Refused>,
        /// Whether a merge is among the commits of the push.
        has_merges: bool,
        /// What `git rebase` begins after to make the oldest of them again.
        parent: String,
    },
}

impl Scene {
    /// Judges what git is about to do, or records what it did.
    pub fn judge(&self, event: &Event) -> Result<Judged, Error> {
        match event {
            Event::Staged(change) => {
                let paths = self.reserved.names(touched::staged(&self.git)?);
                Ok(self.refused(*change, paths))
            }
            Event::Branches(change, refs) => self.branches(*change, refs),
            Event::Made(change) => self.made(*change),
            Event::Push { remote, input } => self.pushed(remote, input),
        }
    }

    fn refused(&self, change: GitChange, paths: Vec<String>) -> Judged {
        let objection = |path: String| {
            let objection = self.reserved.judge(&self.me, self.require, &path)?;
            Some((path, objection))
        };
        let objections: Vec<_> = paths.into_iter().filter_map(objection).collect();
        let is_refused = !objections.is_empty();
        Judged {
            refusal: is_refused.then_some(Refusal::Paths(change, objections)),
            ..Judged::default()
        }
    }

    fn branches(&self, change: GitChange, refs: &[RefChange]) -> Result<Judged, Error> {
        let sides = match change {
            GitChange::Push => &[Side::Server][..],
            _ => &[Side::Local, Side::LocalWithReflogs],
        };
        let mut judged = Judged::default();
        // The next side is asked only if this one would refuse.
        for side in sides {
            let new = touched::new_on_branches(&self.git, *side, refs)?;
            let new = self.reserved.named(new).into_iter();
            let mut judgements = new.map(|commit| self.refused(change, commit.paths));
            judged = judgements
                .find(|it| it.refusal.is_some())
                .unwrap_or_default();
            if judged.refusal.is_none() {
                break;
            }
        }
        Ok(judged)
    }

    /// Records the newest commit, and those before it that no hook saw. One that was just made is recorded again: the same
    /// content, amended in the same second, has the same id.
    fn made(&self, change: GitChange) -> Result<Judged, Error> {
        let (known, mut missing) = self.missing()?;
        let newest = touched::own_commits(&self.git, 1)?;
        let Some(commit) = newest.into_iter().flatten().next() else {
            return Ok(Judged::default());
        };
        if known.has(&commit) && change != GitChange::Commit {
            return Ok(Judged::default());
        }
        missing.retain(|missing| *missing != commit);
        let known = self.record(known, &missing, How::Late)?;
        let known = self.record(known, std::slice::from_ref(&commit), How::Commit)?;
        let record = known.get(&commit)?;
        Ok(Judged {
            against: record.filter(|record| !record.against.is_empty()),
            ..Judged::default()
        })
    }

    /// Judges a push by what was reserved when its commits were made.
    fn pushed(&self, remote: &str, input: &[u8]) -> Result<Judged, Error> {
        let families = touched::pushed(&self.git, remote, input)?;
        if families.is_empty() {
            return Ok(Judged::default());
        }
        let known = self.records.read()?;
        // What came from a remote was not made here.
        let unseen = touched::not_on_remotes(&self.git, known.missing(&families)?)?;
        let known = self.record(known, &unseen, How::Late)?;
        let has_merges = families.iter().any(|family| family.len() > 2);
        let commits = families.into_iter().filter_map(|it| it.into_iter().next());
        let commits: Vec<String> = commits.collect();
        let refused = push::refused(&self.git, &self.reserved, &known, &commits)?;
        let oldest = refused.last().map(|it| it.record.commit.as_str());
        let parent = oldest.map(|commit| push::parent(&self.git, commit));
        Ok(Judged {
            refusal: parent.map(|parent| Refusal::Commits {
                refused,
                has_merges,
                parent,
            }),
            unseen,
            against: None,
        })
    }
}
