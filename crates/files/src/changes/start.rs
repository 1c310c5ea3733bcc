//! When a call began: [`Start`].

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, Mode, OFlags, Timestamps, fstat, futimens, openat};
use rustix::time::{ClockId, clock_gettime};
use serde::{Deserialize, Serialize};
use tenure_git::folder::{self, GitEntry};
use tenure_host::files::look;
use tenure_host::files::permissions::open_or_create;

use super::stamp::FileTime;
use super::{CantTell, Stamp};

/// The file that tells the time where files without a name can't be made.
const CLOCK: &str = "tenure-clock";

/// How far two clocks may be apart until one of them was set.
const DRIFT: i64 = 50_000_000;

/// How far a change may be in the future: what a program in the background writes while this looks.
const SLACK: i64 = 10_000_000_000;

/// What git leaves in its folder while a merge, a rebase or the like is not finished.
const UNFINISHED: [&str; 5] = [
    "MERGE_HEAD",
    "CHERRY_PICK_HEAD",
    "REVERT_HEAD",
    "rebase-merge",
    "rebase-apply",
];

/// A work tree and its own folder of git.
pub(super) struct Tree {
    pub(super) root: PathBuf,
    pub(super) git: PathBuf,
}

impl Tree {
    pub(super) fn at(root: &Path) -> Result<Self, CantTell> {
        let entry = folder::entry(root)?;
        let git = match entry {
            GitEntry::Missing | GitEntry::Other => None,
            GitEntry::Folder(git) | GitEntry::Link(git) => Some(git),
        };
        let git = git.filter(|git| look::is_folder(git).unwrap_or(true));
        Ok(Self {
            root: root.to_owned(),
            git: git.ok_or_else(|| CantTell::NoWorkTree(root.to_owned()))?,
        })
    }

    /// How long the list of the places of `HEAD` is; nothing if git keeps none.
    pub(super) fn reflog(&self) -> u64 {
        let stamp = Stamp::of(&self.git.join("logs/HEAD")).ok().flatten();
        stamp.map_or(0, |stamp| stamp.size)
    }

    /// Whether a merge, a rebase or the like has stopped for the user.
    pub(super) fn is_unfinished(&self) -> bool {
        let mut signs = UNFINISHED.iter().map(|name| self.git.join(name));
        signs.any(|sign| look::may_be_there(&sign))
    }

    /// What the clock of the file system says, which another machine may have. Where nothing can be written the clock of
    /// this machine has to do.
    fn now(&self) -> FileTime {
        let unnamed = || -> io::Result<OwnedFd> {
            let how = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
            Ok(openat(CWD, &self.root, how, Mode::RUSR | Mode::WUSR)?)
        };
        let named = || -> io::Result<OwnedFd> {
            let file = open_or_create(&self.git.join(CLOCK), OFlags::WRONLY)?;
            let now = rustix::fs::Timespec {
                tv_sec: 0,
                tv_nsec: rustix::fs::UTIME_NOW,
            };
            let now = Timestamps {
                last_access: now,
                last_modification: now,
            };
            futimens(&file, &now)?;
            Ok(file.into())
        };
        let file = unnamed().or_else(|_| named());
        if let Ok(known) = file.and_then(|file| Ok(fstat(&file)?)) {
            return FileTime::changed(&known);
        }
        let now = clock_gettime(ClockId::RealtimeCoarse);
        FileTime::new(now.tv_sec, now.tv_nsec)
    }
}

/// A clock that is never set.
fn uptime() -> i64 {
    let now = clock_gettime(ClockId::Boottime);
    FileTime::new(now.tv_sec, now.tv_nsec).0
}

/// When a call began, for the process that looks at what it changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// By the clock of the file system.
    pub(super) at: FileTime,
    /// By a clock that is never set.
    pub(super) uptime: i64,
    /// How long git's list of the places of `HEAD` was.
    pub(super) reflog: u64,
    /// Whether a merge, a rebase or the like was not finished.
    pub(super) unfinished: bool,
}

impl Start {
    /// Now, in the work tree with this top. It takes the same time however many files there are.
    pub fn now(root: &Path) -> Result<Self, CantTell> {
        let tree = Tree::at(root)?;
        Ok(Self {
            uptime: uptime(),
            reflog: tree.reflog(),
            unfinished: tree.is_unfinished(),
            // Last: what is changed from here on counts.
            at: tree.now(),
        })
    }

    /// The times that are after it.
    pub(super) fn window(&self, tree: &Tree) -> Window {
        let (now, passed) = (tree.now(), uptime().saturating_sub(self.uptime));
        let expected = FileTime(now.0.saturating_sub(passed));
        let was_set = passed >= 0 && expected.0.abs_diff(self.at.0) > DRIFT.unsigned_abs();
        if was_set || passed < 0 {
            return Window {
                since: self.at.min(expected),
                until: FileTime(i64::MAX),
            };
        }
        Window {
            since: self.at,
            until: FileTime(now.0.saturating_add(SLACK)),
        }
    }
}

/// The times from the start of a call on. A time far in the future is from before the clock was set back.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window {
    since: FileTime,
    until: FileTime,
}

impl Window {
    pub(super) fn has(self, at: FileTime) -> bool {
        self.since <= at && at <= self.until
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_file_in_the_folder_of_git_tells_the_time_if_need_be() {
        let git = tempfile::tempdir().unwrap();
        let tree = |git: PathBuf| Tree {
            root: "/nowhere".into(),
            git,
        };
        let there = tree(git.path().to_owned());
        let first = there.now();
        assert!(git.path().join(CLOCK).exists());
        while there.now() == first {}
        let written = git.path().join("after");
        fs::write(&written, "").unwrap();
        let stamp = Stamp::of(&written).unwrap().unwrap();
        assert!(first < stamp.changed && stamp.changed <= there.now());
        // Where nothing can be written, this machine's clock has to do, which is late by at most one tick.
        let nowhere = tree("/nowhere".into()).now();
        assert!(nowhere.0 + 20_000_000 > first.0);
    }
}
