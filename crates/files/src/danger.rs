//! Destructive commands: which uncommitted work a command line would destroy, and how a person allows it once.
//!
//! An agent is about to run a line in its shell. [`losses`] tells what the line may destroy, [`lost`] which of the
//! uncommitted files that the caller knows this would be, [`refusal`] says so, and [`Permissions`] keeps what a person
//! allows in spite of it.
//!
//! | module | contents |
//! |---|---|
//! | `shell` | the grammar: the tree of a line |
//! | `calls` | which programs the line runs, in which folders |
//! | `git` | what a git command destroys |
//! | `folders` | what `rm -r` and `mv` destroy |
//! | `lost` | which files these are, as git says |
//! | `refusal` | the words |
//! | `permission` | what waits for a person, and what a person allowed |
//!
//! # Invariants
//!
//! 1. What can't be understood is let through: it is no loss, and no error.
//! 2. What git itself refuses is no loss: `git checkout BRANCH` overwrites nothing, and `git rm` removes nothing that was
//!    changed.
//! 3. Nothing is changed, and git is run only for a command that may destroy something, for an alias, and to read a setting
//!    that decides.

mod calls;
mod folders;
mod git;
mod lost;
mod permission;
mod refusal;
mod shell;

use std::fmt;
use std::path::{Path, PathBuf};

use tenure_core::HolderId;

use git::Repository;

pub use lost::lost;
pub use permission::{Allowed, Permissions, Request};
pub use refusal::{Victim, refusal, victims};

/// Where a line runs.
#[derive(Clone, Copy)]
pub struct Place<'a> {
    /// The folder.
    pub folder: &'a Path,
    /// The value of an environment variable, if it is known.
    pub variable: &'a dyn Fn(&str) -> Option<String>,
}

impl<'a> Place<'a> {
    /// A folder, and the environment of this process.
    pub fn here(folder: &'a Path) -> Self {
        Self {
            folder,
            variable: &|name| std::env::var(name).ok(),
        }
    }
}

impl fmt::Debug for Place<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut place = f.debug_struct("Place");
        place.field("folder", &self.folder).finish_non_exhaustive()
    }
}

/// Something that a line may destroy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loss {
    /// The top of the work tree; of [`Losing::Folder`], the folder.
    pub root: PathBuf,
    /// The command, as it is understood: `git reset --hard`.
    pub command: String,
    /// What becomes of the work.
    pub how: How,
    /// Which work it is.
    pub what: Losing,
    repository: Repository,
}

/// What becomes of uncommitted work.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum How {
    /// It is overwritten with what git has.
    Overwrites,
    /// It is deleted.
    Deletes,
    /// It is put away into a stash.
    PutsAway,
    /// It is put away, and put back afterwards if that works.
    PutsAwayForAWhile,
    /// It gets another path.
    Moves,
}

/// Which work a command destroys.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Losing {
    /// Files of the work tree, by their state in git.
    Files(Files),
    /// What `git clean` with these arguments deletes.
    Cleaned {
        /// The arguments but for the paths.
        options: Vec<String>,
        /// The paths; none are all below the folder.
        paths: Vec<String>,
    },
    /// Everything in a folder that holds at least one whole work tree. A session that works in one loses it, also without any
    /// uncommitted file.
    Folder {
        /// Whether this is `git worktree remove` without `--force`, which git refuses if anything but ignored files is
        /// there.
        git_checks: bool,
    },
    /// The changed files in submodules.
    Submodules {
        /// Whether new files are deleted, too.
        and_new: bool,
    },
    /// Stashes, which may be anyone's: these, or all of them.
    Stashes(Vec<String>),
    /// The branch that is checked out in the work tree, which is another one than that of the command: it is moved or
    /// deleted, so its commits may be lost, and its files seem to be changed.
    Branch(String),
    /// Objects that nothing refers to: dropped stashes, and the uncommitted work that tenure keeps.
    Unreferenced,
}

/// Files of the work tree.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Files {
    /// The pathspecs, as seen from the folder of the command; none are all files.
    pub paths: Vec<String>,
    /// Which tracked files.
    pub tracked: Tracked,
    /// Which other files.
    pub untracked: Untracked,
    /// The tree whose files are written.
    pub tree: Option<String>,
}

/// Which tracked files lose their changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tracked {
    /// Those that differ from the last commit.
    Changed,
    /// Those of them that the tree has.
    InTree,
    /// Those that differ from the index.
    Unstaged,
    /// Those that are staged.
    Staged,
    /// Those that are staged and not changed since, and conflicts. If one is changed since, git does nothing.
    StagedOnly,
}

/// Which files are lost that git does not track.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Untracked {
    /// None.
    None,
    /// Those that are in the way of a file of the tree.
    InTree,
    /// None: one that is in the way of a file of the tree keeps git from doing anything.
    Refused,
    /// Those that are not ignored.
    New,
    /// All.
    AndIgnored,
}

/// A file with uncommitted changes that the caller knows of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DirtyFile {
    /// The top of its work tree.
    pub root: PathBuf,
    /// Its path from there.
    pub path: PathBuf,
    /// Whose changes they are.
    pub owner: HolderId,
    /// What people call the owner.
    pub session: String,
}

/// What a line may destroy. It is asked before the line runs.
pub fn losses(line: &str, place: &Place<'_>) -> Vec<Loss> {
    if !may_matter(line) {
        return Vec::new();
    }
    let calls = calls::calls(line, place);
    let losses = calls.iter().flat_map(|call| match call.program.as_str() {
        "git" => git::losses(call, place),
        _ => folders::losses(call),
    });
    losses.collect()
}

/// Whether a program can destroy the work of others, as far as this module knows.
fn is_of_interest(program: &str) -> bool {
    ["git", "rm", "mv"].contains(&program)
}

/// Whether a line can run such a program at all, without parsing it. The name may be in quotes, or in pieces: `g"i"t`.
fn may_matter(line: &str) -> bool {
    if line.len() > shell::LONGEST {
        return false;
    }
    let mut last = [0_u8; 3];
    let letters = line.bytes().filter(|byte| !b"'\"\\".contains(byte));
    for byte in letters {
        last = match last {
            [_, b, c] => [b, c, byte],
        };
        if last == *b"git" || last.ends_with(b"rm") || last.ends_with(b"mv") {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests;
