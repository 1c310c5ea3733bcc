//! The locks of other tools: git's lock files, cargo's target lock, and pid files.
//!
//! Such a lock says little about its holder, so the processes of this machine are asked: who has it open, who
//! has it locked, and which process of that tool works there. The verdicts are those of every store:
//!
//! | verdict | of a foreign lock |
//! |---|---|
//! | alive | a process has it open or locked, or the process that it names runs |
//! | dead | no process of its owner has it open, and none of that tool's works there; or the process that it names has exited |
//! | unknown | the holder may be a process that can't be seen or examined from here |
//! | malformed | a pid file without a pid |
//!
//! Nothing here is ever removed by tenure: the protocols of these tools have no takeover.

mod cargo;
mod git;
mod pid_file;

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use tenure::wire::ForeignProcessJson;
use tenure_host::files::look;

use crate::processes::{FileId, Processes};
use crate::scan;

/// A tool whose locks are known.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Tool {
    /// git: a lock file that exists while it is held.
    Git,
    /// cargo: a kernel lock on a file of the target folder.
    Cargo,
    /// Any tool that writes the pid of its process into a file.
    PidFile,
}

impl Tool {
    /// The word for programs and people.
    pub fn word(self) -> &'static str {
        match self {
            Self::Git => "git",
            Self::Cargo => "cargo",
            Self::PidFile => "pid file",
        }
    }
}

/// What is known of the holder of a foreign lock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ForeignVerdict {
    /// It runs.
    Alive(String),
    /// It has ended.
    Dead(String),
    /// It can't be told.
    Unknown(String),
    /// The file can't be understood.
    Malformed(String),
}

impl ForeignVerdict {
    /// The word for programs and people, the same as that of a lease.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Alive(_) => "alive",
            Self::Dead(_) => "dead",
            Self::Unknown(_) => "unknown",
            Self::Malformed(_) => "malformed",
        }
    }

    /// Why, as a sentence without a full stop.
    pub fn why(&self) -> &str {
        match self {
            Self::Alive(why) | Self::Dead(why) | Self::Unknown(why) | Self::Malformed(why) => why,
        }
    }
}

/// A lock of another tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ForeignLock {
    /// The tool.
    pub tool: Tool,
    /// The file.
    pub path: PathBuf,
    /// When it was last changed, which for most is when it was made; of a kernel lock, when its process began.
    pub since: Option<Timestamp>,
    /// What is known of its holder.
    pub verdict: ForeignVerdict,
    /// The processes that have it, or may have it.
    pub processes: Vec<ForeignProcessJson>,
}

/// A file that may be a lock.
#[derive(Debug)]
struct Candidate {
    tool: Tool,
    path: PathBuf,
    file: FileId,
    owner: u32,
    since: Option<Timestamp>,
}

impl Candidate {
    /// The file at this path, if there is one. A link is no lock of these tools.
    fn at(tool: Tool, path: PathBuf, left_out: &mut Vec<String>) -> Option<Self> {
        let at = scan::at(&path, left_out)?;
        at.is_file().then(|| Self {
            tool,
            file: (at.dev(), at.ino()),
            owner: at.uid(),
            since: Timestamp::new(at.mtime(), i32::try_from(at.mtime_nsec()).unwrap_or(0)).ok(),
            path,
        })
    }

    /// Whether the same file is still there, or may be.
    fn is_still_there(&self) -> bool {
        match look::link_at(&self.path) {
            Ok(at) => at.is_some_and(|at| (at.dev(), at.ino()) == self.file),
            Err(_) => true,
        }
    }
}

/// Finds and judges the locks of other tools in a project. What was too large to be looked at as a whole is
/// added to `left_out`.
pub fn find(root: &Path, left_out: &mut Vec<String>) -> Vec<ForeignLock> {
    let repository = git::GitFolders::of(root, left_out);
    let mut found = Vec::new();
    if let Some(repository) = &repository {
        repository.candidates(&mut found, left_out);
    }
    cargo::candidates(root, &mut found, left_out);
    pid_file::candidates(root, &mut found, left_out);
    if found.is_empty() {
        return Vec::new();
    }
    let processes = Processes::read();
    if let Some(error) = processes.locks_error()
        && found.iter().any(|candidate| candidate.tool == Tool::Cargo)
    {
        left_out.push(format!(
            "/proc/locks can't be read ({error}): locks of cargo were not looked for"
        ));
    }
    let mut locks: Vec<ForeignLock> = found
        .into_iter()
        .filter_map(|candidate| {
            let (verdict, by) = match candidate.tool {
                Tool::Git => git::judge(repository.as_ref()?, &candidate, &processes),
                Tool::Cargo => cargo::judge(&candidate, &processes)?,
                Tool::PidFile => pid_file::judge(&candidate, &processes),
            };
            let since = match candidate.tool {
                // The file stays: the lock is at most as old as its process.
                Tool::Cargo => by
                    .first()
                    .and_then(|first| processes.with_pid(first.pid)?.started),
                Tool::Git | Tool::PidFile => candidate.since,
            };
            // Its holder may have released it meanwhile.
            candidate.is_still_there().then_some(ForeignLock {
                tool: candidate.tool,
                since,
                path: candidate.path,
                verdict,
                processes: by,
            })
        })
        .collect();
    locks.sort_by(|a, b| a.path.cmp(&b.path));
    locks
}
