//! Runs the user's own git, one plumbing command at a time.
//!
//! # Invariants
//!
//! 1. No hook runs, nothing is signed, and nothing is asked: no terminal, no askpass, no editor.
//! 2. Every git has a time limit. If this process is killed, its git gets SIGTERM, which lets git remove
//!    its lock files.
//! 3. A git that did not read all of its input has failed, whatever its exit code.

use std::ffi::OsStr;
use std::fmt;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{PidfdFlags, Signal, pidfd_open};
use tenure_core::text::flat;
use tenure_host::tied::{Tied, TiedChild};
use tenure_host::time_limit::TimeLimit;

/// How long a command may take that stays on this machine, and one that talks to a remote.
const LOCAL: Duration = Duration::from_secs(60);
pub(super) const REMOTE: Duration = Duration::from_secs(120);

/// How long git may take to end after SIGTERM.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// How often a running git's caller is asked whether to stop.
const POLL: Timespec = Timespec {
    tv_sec: 0,
    tv_nsec: 20_000_000,
};

/// Variables that a git hook passes on, and that would lead git to another repository.
const MISLEADING: [&str; 13] = [
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_CEILING_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_CONFIG",
    "GIT_DIR",
    "GIT_GRAFT_FILE",
    "GIT_IMPLICIT_WORK_TREE",
    "GIT_NAMESPACE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_PREFIX",
    "GIT_QUARANTINE_PATH",
    "GIT_SHALLOW_FILE",
    "GIT_WORK_TREE",
];

/// What git is told about itself and about the programs that it may start.
const ENVIRONMENT: [(&str, &str); 9] = [
    ("LC_ALL", "C"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_ASKPASS", ""),
    ("SSH_ASKPASS_REQUIRE", "never"),
    ("GCM_INTERACTIVE", "never"),
    ("GIT_EDITOR", ":"),
    ("GIT_OPTIONAL_LOCKS", "0"),
    ("GIT_NO_REPLACE_OBJECTS", "1"),
    ("GIT_LITERAL_PATHSPECS", "1"),
];

/// Settings that would run something, or lock or write something that is not ours.
const SETTINGS: [&str; 9] = [
    "core.hooksPath=/dev/null",
    "core.fsmonitor=false",
    // After a power cut, a ref to an object that is lost would stop every gc and fetch of the user.
    "core.fsync=committed,loose-object,reference",
    "core.fsyncMethod=batch",
    "core.logAllRefUpdates=false",
    "fastimport.unpackLimit=100",
    "fetch.writeCommitGraph=false",
    "gc.auto=0",
    "maintenance.auto=false",
];

/// Why a git command failed.
#[derive(Debug)]
pub(super) enum GitError {
    /// It is not installed.
    Missing,
    /// The caller asked to stop.
    Stopped,
    /// It took too long.
    TimedOut(Duration),
    /// It failed: the command, and what it printed.
    Refused { what: String, stderr: String },
    /// It could not be run.
    Io(io::Error),
}

impl fmt::Display for GitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("git is not installed"),
            Self::Stopped => f.write_str("it was stopped"),
            Self::TimedOut(limit) => write!(f, "git took longer than {} s", limit.as_secs()),
            Self::Refused { what, stderr } => match words(stderr) {
                words if words.is_empty() => write!(f, "git {what} failed"),
                words => write!(f, "git {what}: {words}"),
            },
            Self::Io(error) => write!(f, "git can't be run ({error})"),
        }
    }
}

impl GitError {
    /// Whether git printed one of these.
    pub(super) fn says(&self, known: &[&str]) -> bool {
        matches!(self, Self::Refused { stderr, .. } if known.iter().any(|known| stderr.contains(known)))
    }
}

/// Git in one folder.
pub(super) struct Git<'a> {
    pub(super) root: PathBuf,
    pub(super) stop: &'a dyn Fn() -> bool,
}

impl Git<'_> {
    /// The output of a command that has to succeed.
    pub(super) fn run<S: AsRef<OsStr>>(&self, args: &[S]) -> Result<Vec<u8>, GitError> {
        self.run_with(args, Vec::new(), LOCAL)
    }

    /// The same as lines of text.
    pub(super) fn lines<S: AsRef<OsStr>>(&self, args: &[S]) -> Result<Vec<String>, GitError> {
        let text = String::from_utf8_lossy(&self.run(args)?).into_owned();
        Ok(text.lines().map(str::to_owned).collect())
    }

    /// The output of a command that reads this input.
    pub(super) fn feed<S: AsRef<OsStr>>(
        &self,
        args: &[S],
        input: Vec<u8>,
    ) -> Result<Vec<u8>, GitError> {
        self.run_with(args, input, LOCAL)
    }

    /// Runs a command that talks to a remote, which may take long or never answer.
    pub(super) fn call_remote(&self, args: &[&str], limit: Duration) -> Result<Vec<u8>, GitError> {
        self.run_with(args, Vec::new(), limit)
    }

    fn run_with<S: AsRef<OsStr>>(
        &self,
        args: &[S],
        input: Vec<u8>,
        limit: Duration,
    ) -> Result<Vec<u8>, GitError> {
        let output = self.output(args, input, limit)?;
        if output.status.success() {
            return Ok(output.stdout);
        }
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        let mut words = args.iter().map(|arg| arg.as_ref().to_string_lossy());
        let what = words.find(|word| !word.starts_with('-') && !word.contains('='));
        let what = what.unwrap_or_default().into_owned();
        Err(GitError::Refused { what, stderr })
    }

    fn output<S: AsRef<OsStr>>(
        &self,
        args: &[S],
        input: Vec<u8>,
        limit: Duration,
    ) -> Result<Output, GitError> {
        if (self.stop)() {
            return Err(GitError::Stopped);
        }
        // Not a pipe: an ssh that stays in the background would keep it open.
        let stderr = memfd_create("stderr", MemfdFlags::CLOEXEC).map(File::from);
        let mut stderr = stderr.map_err(|error| GitError::Io(error.into()))?;
        let mut git = Command::new("git");
        git.args(SETTINGS.iter().flat_map(|setting| ["-c", setting]))
            .args(args)
            .current_dir(&self.root)
            .envs(ENVIRONMENT)
            // Some commands read the index although they do not need it. This one does not exist.
            .env("GIT_INDEX_FILE", self.root.join(".tenure/no-index"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(stderr.try_clone().map_err(GitError::Io)?);
        for name in MISLEADING {
            git.env_remove(name);
        }
        let mut tied = Tied::spawn_to_terminate(&mut git).map_err(|error| match error.kind() {
            io::ErrorKind::NotFound => GitError::Missing,
            _ => GitError::Io(error),
        })?;
        let stdin = tied.child.stdin.take();
        // Threads, because git may write before it has read everything.
        let writer = std::thread::spawn(move || stdin.map(|mut pipe| pipe.write_all(&input)));
        let stdout = drain(tied.child.stdout.take());
        let status = self.wait(&mut tied, limit)?;
        let written = writer.join().ok().flatten();
        let mut said = Vec::new();
        let read = stderr
            .seek(SeekFrom::Start(0))
            .and_then(|_| stderr.read_to_end(&mut said));
        read.map_err(GitError::Io)?;
        let output = Output {
            status,
            stdout: stdout.join().unwrap_or_default(),
            stderr: said,
        };
        tied.tied.untie();
        match written {
            Some(Err(error)) if output.status.success() => Err(GitError::Io(error)),
            _ => Ok(output),
        }
    }

    fn wait(
        &self,
        tied: &mut TiedChild,
        limit: Duration,
    ) -> Result<std::process::ExitStatus, GitError> {
        let end = TimeLimit::after(limit);
        let pidfd = tied
            .tied
            .group()
            .and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
        loop {
            if let Some(status) = tied.child.try_wait().map_err(GitError::Io)? {
                return Ok(status);
            }
            let error = if (self.stop)() {
                GitError::Stopped
            } else if end.has_passed() {
                GitError::TimedOut(limit)
            } else {
                match &pidfd {
                    Some(pidfd) => {
                        let _ = poll(
                            &mut [PollFd::new(&pidfd.as_fd(), PollFlags::IN)],
                            Some(&POLL),
                        );
                    }
                    None => std::thread::sleep(Duration::from_millis(2)),
                }
                continue;
            };
            end_group(tied);
            return Err(error);
        }
    }
}

/// Ends git and everything it started. SIGTERM lets it clean up; a git that is stopped, because it asked
/// for a password in the background, needs SIGCONT for that.
fn end_group(tied: &mut TiedChild) {
    for signal in [Signal::TERM, Signal::CONT] {
        tied.tied.signal(signal);
    }
    let limit = TimeLimit::after(STOP_TIMEOUT);
    while matches!(tied.child.try_wait(), Ok(None)) && !limit.has_passed() {
        std::thread::sleep(Duration::from_millis(5));
    }
    // For processes that ignored SIGTERM.
    tied.tied.signal(Signal::KILL);
    let _ = tied.child.wait();
}

/// The most telling part of what git printed, fit for the log: what the host said and why git failed.
pub(super) fn words(stderr: &str) -> String {
    let lines = stderr.lines().map(str::trim);
    let lines = lines.filter(|line| !line.is_empty() && !line.starts_with("hint:"));
    let host = lines
        .clone()
        .filter_map(|line| line.strip_prefix("remote:"));
    let host = host.map(str::trim).filter(|line| !line.is_empty()).take(3);
    let with = |known: &[&str]| {
        let mut lines = lines.clone();
        lines.find(|line| known.iter().any(|known| line.contains(known)))
    };
    let git = with(&["[remote rejected]"])
        .or_else(|| with(&["fatal:", "error:"]))
        .or_else(|| lines.clone().next())
        .unwrap_or_default();
    let git = git
        .trim_start_matches("fatal: ")
        .trim_start_matches("error: ");
    // Git's own advice for a repository of another user.
    let advice = with(&["git config --global --add safe.directory"]);
    let all: Vec<&str> = host.chain([git]).chain(advice).collect();
    flat(&all.join("; ")).chars().take(400).collect()
}

/// Reads a pipe to its end in a thread, so that its writer never blocks.
fn drain(pipe: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            let _ = pipe.read_to_end(&mut bytes);
        }
        bytes
    })
}
