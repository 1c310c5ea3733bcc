//! Runs the user's own git, one command at a time: [`Git`].
//!
//! # Invariants
//!
//! 1. Every git has a time limit. If this process is killed, its git gets SIGTERM, which lets git remove
//!    its lock files.
//! 2. A git that did not read all of its input has failed, whatever its exit code.
//! 3. What git is told about its surroundings is an [`Environment`]. In all but that of the caller, no hook runs, nothing is
//!    signed, and nothing is asked: no terminal, no askpass, no editor.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{MemfdFlags, memfd_create};
use rustix::process::{PidfdFlags, Signal, pidfd_open};
use tenure_core::text::flat;
use tenure_host::tied::{Tied, TiedChild};
use tenure_host::time_limit::TimeLimit;

/// How long a command may take.
pub const LIMIT: Duration = Duration::from_secs(120);

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

/// What git is told in every environment. A replacement would show other paths than those that are pushed.
const ALWAYS: [(&str, &str); 3] = [
    ("GIT_OPTIONAL_LOCKS", "0"),
    ("GIT_NO_REPLACE_OBJECTS", "1"),
    ("GIT_LITERAL_PATHSPECS", "1"),
];

/// What git is told about the programs that it may start.
const ALONE: [(&str, &str); 6] = [
    ("LC_ALL", "C"),
    ("GIT_TERMINAL_PROMPT", "0"),
    ("GIT_ASKPASS", ""),
    ("SSH_ASKPASS_REQUIRE", "never"),
    ("GCM_INTERACTIVE", "never"),
    ("GIT_EDITOR", ":"),
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

/// What git is told about its surroundings.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Environment {
    /// Those of this process: a hook looks at the index and the objects of the command that runs it.
    Caller,
    /// None: the repository is that of the folder.
    Alone,
    /// None, and there is no index: some commands read it although they do not need it.
    WithoutIndex,
}

/// Why a git command failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum GitError {
    /// It is not installed.
    #[error("git is not installed, or not in PATH")]
    Missing,
    /// The caller asked to stop.
    #[error("it was stopped")]
    Stopped,
    /// It took too long.
    #[error("git took longer than {} s", .0.as_secs())]
    TimedOut(Duration),
    /// It failed.
    #[error("git {what} failed{}", after_colon(stderr))]
    Refused {
        /// The command.
        what: String,
        /// What it printed.
        stderr: String,
    },
    /// It could not be run.
    #[error("git can't be run ({0})")]
    Io(io::Error),
}

fn after_colon(stderr: &str) -> String {
    match words(stderr) {
        words if words.is_empty() => words,
        words => format!(": {words}"),
    }
}

impl GitError {
    /// Whether git printed one of these.
    pub fn says(&self, known: &[&str]) -> bool {
        matches!(self, Self::Refused { stderr, .. } if known.iter().any(|known| stderr.contains(known)))
    }
}

/// Git in one folder.
#[derive(Clone)]
pub struct Git<'a> {
    folder: PathBuf,
    environment: Environment,
    /// Where objects are written and read, if not in the repository.
    objects: Option<PathBuf>,
    stop: &'a dyn Fn() -> bool,
}

impl std::fmt::Debug for Git<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut git = f.debug_struct("Git");
        git.field("folder", &self.folder)
            .field("environment", &self.environment)
            .finish_non_exhaustive()
    }
}

impl Git<'_> {
    /// Git, run in this folder.
    pub fn at(folder: &Path, environment: Environment) -> Self {
        Self {
            folder: folder.to_owned(),
            environment,
            objects: None,
            stop: &|| false,
        }
    }
}

impl<'a> Git<'a> {
    /// The same, ended as soon as `stop` says so.
    pub fn until<'b>(self, stop: &'b dyn Fn() -> bool) -> Git<'b>
    where
        'a: 'b,
    {
        Git { stop, ..self }
    }

    /// The folder that it runs in.
    pub fn folder(&self) -> &Path {
        &self.folder
    }

    /// The same in another folder, given by its path from here.
    #[must_use]
    pub fn inside(mut self, folder: &OsStr) -> Self {
        self.folder.push(folder);
        self
    }

    /// The same, which writes and reads objects in this folder and sees no others.
    #[must_use]
    pub fn with_objects(mut self, folder: &Path) -> Self {
        self.objects = Some(folder.to_owned());
        self
    }

    /// The top of the work tree; `None` in a bare repository.
    pub fn top(&self) -> Result<Option<PathBuf>, GitError> {
        if self.run(&["rev-parse", "--is-inside-work-tree"])? != b"true\n" {
            return Ok(None);
        }
        let mut top = self.run(&["rev-parse", "--show-toplevel"])?;
        top.pop_if(|byte| *byte == b'\n');
        Ok(Some(PathBuf::from(OsString::from_vec(top))))
    }

    /// The output of a command that has to succeed.
    pub fn run<S: AsRef<OsStr>>(&self, args: &[S]) -> Result<Vec<u8>, GitError> {
        self.run_for(args, LIMIT)
    }

    /// The same as lines of text.
    pub fn lines<S: AsRef<OsStr>>(&self, args: &[S]) -> Result<Vec<String>, GitError> {
        Ok(lines(&self.run(args)?))
    }

    /// The same of a command that may take this long.
    pub fn run_for<S: AsRef<OsStr>>(
        &self,
        args: &[S],
        limit: Duration,
    ) -> Result<Vec<u8>, GitError> {
        let output = self.output(args, Vec::new(), limit)?;
        succeeded(args, output)
    }

    /// The output of a command, or `None` if there is no such setting or name, which git tells by the exit code 1.
    pub fn ask<S: AsRef<OsStr>>(&self, args: &[S]) -> Result<Option<Vec<u8>>, GitError> {
        let output = self.output(args, Vec::new(), LIMIT)?;
        if output.status.code() == Some(1) {
            return Ok(None);
        }
        succeeded(args, output).map(Some)
    }

    /// The output of a command that reads this input and has to succeed.
    pub fn feed<S: AsRef<OsStr>>(&self, args: &[S], input: Vec<u8>) -> Result<Vec<u8>, GitError> {
        succeeded(args, self.output(args, input, LIMIT)?)
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
        let mut git = self.command(args);
        git.stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(stderr.try_clone().map_err(GitError::Io)?);
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

    fn command<S: AsRef<OsStr>>(&self, args: &[S]) -> Command {
        let mut git = Command::new("git");
        git.current_dir(&self.folder).envs(ALWAYS);
        if self.environment != Environment::Caller {
            git.args(SETTINGS.iter().flat_map(|setting| ["-c", setting]))
                .envs(ALONE)
                .env_remove("GIT_INDEX_FILE");
            for name in MISLEADING {
                git.env_remove(name);
            }
        }
        if self.environment == Environment::WithoutIndex {
            git.env("GIT_INDEX_FILE", self.folder.join(".tenure/no-index"));
        }
        if let Some(objects) = &self.objects {
            git.env("GIT_OBJECT_DIRECTORY", objects)
                .env_remove("GIT_ALTERNATE_OBJECT_DIRECTORIES");
        }
        git.args(args);
        git
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

fn succeeded<S: AsRef<OsStr>>(args: &[S], output: Output) -> Result<Vec<u8>, GitError> {
    if output.status.success() {
        return Ok(output.stdout);
    }
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    let mut words = args.iter().map(|arg| arg.as_ref().to_string_lossy());
    let what = words.find(|word| !word.starts_with('-') && !word.contains('='));
    let what = what.unwrap_or_default().into_owned();
    Err(GitError::Refused { what, stderr })
}

/// The lines of an answer, with a mark for what is not UTF-8.
pub fn lines(answer: &[u8]) -> Vec<String> {
    let text = String::from_utf8_lossy(answer);
    text.lines().map(str::to_owned).collect()
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
pub fn words(stderr: &str) -> String {
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
