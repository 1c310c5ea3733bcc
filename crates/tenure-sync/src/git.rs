//! Runs the user's own git, one plumbing command at a time.
//!
//! # Invariants
//!
//! 1. No hook runs, nothing is signed and no password is asked for: what needs a person is put off.
//! 2. A branch is moved only from the commit where it was last seen, in one step (`update-ref` with the
//!    old value), so a commit that the user makes at the same time is never lost.
//! 3. Trees are built in a scratch index. In the user's index only the entry of the shared file is
//!    written (see [`index`](super::index)); no other file is touched.

use std::ffi::OsStr;
use std::fmt;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tenure_core::Clock;

/// How long a command that talks to a remote may take.
const REMOTE_TIMEOUT: Duration = Duration::from_secs(120);

/// How long git may take to end after SIGTERM.
const STOP_TIMEOUT: Duration = Duration::from_secs(1);

/// The pause between two looks at a running git.
const POLL: Duration = Duration::from_millis(20);

/// Variables that a git hook passes on, and that would lead git to another repository or index.
const MISLEADING: [&str; 18] = [
    "GIT_CONFIG",
    "GIT_GLOB_PATHSPECS",
    "GIT_GRAFT_FILE",
    "GIT_ICASE_PATHSPECS",
    "GIT_IMPLICIT_WORK_TREE",
    "GIT_LITERAL_PATHSPECS",
    "GIT_NOGLOB_PATHSPECS",
    "GIT_QUARANTINE_PATH",
    "GIT_SHALLOW_FILE",
    "GIT_DIR",
    "GIT_WORK_TREE",
    "GIT_INDEX_FILE",
    "GIT_PREFIX",
    "GIT_OBJECT_DIRECTORY",
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_NAMESPACE",
    "GIT_CEILING_DIRECTORIES",
];

/// Why a git command failed.
#[derive(Debug)]
pub(super) enum GitError {
    /// It is not installed.
    Missing,
    /// The caller asked to stop.
    Stopped,
    /// It took too long.
    TimedOut,
    /// It failed: the command, and what it printed.
    Refused { what: String, words: String },
    /// It could not be run.
    Io(io::Error),
}

impl fmt::Display for GitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("git is not installed"),
            Self::Stopped => f.write_str("it was stopped"),
            Self::TimedOut => write!(f, "git took longer than {} s", REMOTE_TIMEOUT.as_secs()),
            Self::Refused { what, words } if words.is_empty() => write!(f, "git {what} failed"),
            Self::Refused { what, words } => write!(f, "git {what}: {words}"),
            Self::Io(error) => write!(f, "git can't be run ({error})"),
        }
    }
}

/// The id of an object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Oid(String);

impl fmt::Display for Oid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// How the name of a scratch index begins.
const SCRATCH: &[u8] = b"sync-scratch-";

/// A path for a scratch index that no other sync ever uses: a git that outlives its killed sync must not
/// write into the index of the next one.
pub(super) fn scratch_in(folder: &Path, clock: &dyn Clock) -> PathBuf {
    let (pid, since) = (std::process::id(), clock.now().ticks.as_nanos());
    let begin = String::from_utf8_lossy(SCRATCH);
    folder.join(format!("{begin}{pid}-{since}"))
}

/// Git in one folder.
pub(super) struct Git<'a> {
    pub(super) root: &'a Path,
    /// The scratch index.
    pub(super) scratch: PathBuf,
    pub(super) clock: &'a dyn Clock,
    pub(super) stop: &'a dyn Fn() -> bool,
}

impl Git<'_> {
    fn command<S: AsRef<OsStr>>(&self, args: &[S]) -> Command {
        let mut git = Command::new("git");
        for setting in [
            "core.hooksPath=/dev/null",
            "core.fsmonitor=false",
            "core.quotePath=false",
            "gc.auto=0",
            "maintenance.auto=false",
        ] {
            git.args(["-c", setting]);
        }
        git.args(args)
            .current_dir(self.root)
            .env("LC_ALL", "C")
            .env("GIT_TERMINAL_PROMPT", "0")
            .env("SSH_ASKPASS_REQUIRE", "never")
            .env("GIT_ASKPASS", "")
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        for name in MISLEADING {
            git.env_remove(name);
        }
        git
    }

    fn finish(&self, mut git: Command, input: Option<&[u8]>) -> Result<Output, GitError> {
        if (self.stop)() {
            return Err(GitError::Stopped);
        }
        if input.is_some() {
            git.stdin(Stdio::piped());
        }
        let mut child = git.spawn().map_err(missing)?;
        if let (Some(input), Some(mut stdin)) = (input, child.stdin.take()) {
            // A git that does not read its input prints why.
            let _ = stdin.write_all(input);
        }
        child.wait_with_output().map_err(GitError::Io)
    }

    /// The output of a command, or `None` if it exits with 1, which means "no".
    pub(super) fn query(&self, args: &[&str]) -> Result<Option<String>, GitError> {
        let output = self.finish(self.command(args), None)?;
        match output.status.code() {
            Some(0) => Ok(Some(line(&output.stdout))),
            Some(1) => Ok(None),
            _ => Err(refused(args, &output)),
        }
    }

    /// The output of a command that has to succeed.
    pub(super) fn run(&self, args: &[&str]) -> Result<String, GitError> {
        self.run_command(args, self.command(args), None)
    }

    fn run_command(
        &self,
        args: &[&str],
        command: Command,
        input: Option<&[u8]>,
    ) -> Result<String, GitError> {
        let output = self.finish(command, input)?;
        if !output.status.success() {
            return Err(refused(args, &output));
        }
        Ok(line(&output.stdout))
    }

    /// Runs a command that talks to a remote, which may take long or never answer.
    pub(super) fn call_remote(&self, args: &[&str]) -> Result<Output, GitError> {
        if (self.stop)() {
            return Err(GitError::Stopped);
        }
        let mut git = self.command(args);
        let chosen = ["GIT_SSH_COMMAND", "GIT_SSH"]
            .iter()
            .any(|name| std::env::var_os(name).is_some());
        if !chosen && self.query(&["config", "core.sshCommand"])?.is_none() {
            git.env("GIT_SSH_COMMAND", "ssh -oBatchMode=yes");
        }
        // A group of its own, so that everything it starts can be ended with it.
        git.process_group(0);
        let mut child = git.spawn().map_err(missing)?;
        let out = drain(child.stdout.take());
        let err = drain(child.stderr.take());
        let status = self.wait(&mut child)?;
        let read = |pipe: std::thread::JoinHandle<Vec<u8>>| pipe.join().unwrap_or_default();
        Ok(Output {
            status,
            stdout: read(out),
            stderr: read(err),
        })
    }

    fn wait(&self, child: &mut Child) -> Result<std::process::ExitStatus, GitError> {
        let start = self.clock.now().ticks;
        loop {
            if let Some(status) = child.try_wait().map_err(GitError::Io)? {
                return Ok(status);
            }
            let error = if (self.stop)() {
                GitError::Stopped
            } else if self.clock.now().ticks.saturating_sub(start) > REMOTE_TIMEOUT {
                GitError::TimedOut
            } else {
                std::thread::sleep(POLL);
                continue;
            };
            self.end(child);
            return Err(error);
        }
    }

    /// Ends git and everything it started. SIGTERM lets it clean up; a git that is stopped, because it
    /// asked for a password in the background, needs SIGCONT for that.
    fn end(&self, child: &mut Child) {
        let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) else {
            return;
        };
        for signal in [Signal::TERM, Signal::CONT] {
            let _ = kill_process_group(group, signal);
        }
        let start = self.clock.now().ticks;
        while matches!(child.try_wait(), Ok(None))
            && self.clock.now().ticks.saturating_sub(start) < STOP_TIMEOUT
        {
            std::thread::sleep(POLL);
        }
        // For processes that ignored SIGTERM.
        let _ = kill_process_group(group, Signal::KILL);
        let _ = child.wait();
    }

    /// The content of a blob.
    pub(super) fn content(&self, blob: &Oid) -> Result<Vec<u8>, GitError> {
        let args = ["cat-file", "blob", &blob.0];
        let output = self.finish(self.command(&args), None)?;
        if !output.status.success() {
            return Err(refused(&args, &output));
        }
        Ok(output.stdout)
    }

    /// The object that a name stands for, if there is one.
    pub(super) fn resolve(&self, name: &str) -> Result<Option<Oid>, GitError> {
        let found = self.query(&["rev-parse", "--verify", "--quiet", "--end-of-options", name])?;
        Ok(found.map(Oid))
    }

    /// The blob at `path` in a commit.
    pub(super) fn blob(&self, commit: Option<&Oid>, path: &str) -> Result<Option<Oid>, GitError> {
        match commit {
            Some(commit) => self.resolve(&format!("{commit}:{path}")),
            None => Ok(None),
        }
    }

    /// Writes content as a blob.
    pub(super) fn write_blob(&self, content: &[u8]) -> Result<Oid, GitError> {
        let args = ["hash-object", "-w", "--no-filters", "--stdin"];
        Ok(Oid(self.run_command(
            &args,
            self.command(&args),
            Some(content),
        )?))
    }

    /// Does `work` with a scratch index, which is missing before and removed afterwards.
    pub(super) fn with_scratch<T>(
        &self,
        work: impl FnOnce(&Path) -> Result<T, GitError>,
    ) -> Result<T, GitError> {
        // All of them: only one sync runs at a time, so the others were left by killed syncs.
        let clear = || {
            let folder = self.scratch.parent().unwrap_or(self.root);
            for file in std::fs::read_dir(folder).into_iter().flatten().flatten() {
                if file.file_name().as_encoded_bytes().starts_with(SCRATCH) {
                    let _ = std::fs::remove_file(file.path());
                }
            }
        };
        clear();
        let done = work(&self.scratch);
        clear();
        done
    }

    fn run_in_scratch(&self, args: &[&str]) -> Result<String, GitError> {
        let mut command = self.command(args);
        command.env("GIT_INDEX_FILE", &self.scratch);
        self.run_command(args, command, None)
    }

    /// Sets the entry of a file in the scratch index.
    pub(super) fn set_scratch_entry(&self, path: &str, blob: &Oid) -> Result<(), GitError> {
        let entry = format!("100644,{blob},{path}");
        self.run_in_scratch(&["update-index", "--add", "--cacheinfo", &entry])?;
        Ok(())
    }

    /// Sets the entry of a file in the user's index.
    pub(super) fn set_entry(&self, path: &str, blob: &Oid) -> Result<(), GitError> {
        let entry = format!("100644,{blob},{path}");
        self.run(&["update-index", "--add", "--cacheinfo", &entry])?;
        Ok(())
    }

    /// Makes a commit: the tree of `tree` with `blob` at `path`.
    pub(super) fn commit(
        &self,
        tree: Option<&Oid>,
        path: &str,
        blob: &Oid,
        parents: &[&Oid],
        message: &str,
    ) -> Result<Oid, GitError> {
        let tree = self.with_scratch(|_| {
            match tree {
                Some(tree) => self.run_in_scratch(&["read-tree", &tree.0])?,
                None => self.run_in_scratch(&["read-tree", "--empty"])?,
            };
            self.set_scratch_entry(path, blob)?;
            self.run_in_scratch(&["write-tree"])
        })?;
        let mut args = vec!["commit-tree", &tree, "-m", message];
        for parent in parents {
            args.extend(["-p", &parent.0]);
        }
        Ok(Oid(self.run(&args)?))
    }

    /// Moves a branch from one commit to another; `false` if it is not at `from` any more.
    pub(super) fn advance(
        &self,
        branch: &str,
        from: Option<&Oid>,
        to: &Oid,
    ) -> Result<bool, GitError> {
        let from = from.map_or("", |oid| &oid.0);
        let args = [
            "update-ref",
            "-m",
            "tenure: sync tasks",
            branch,
            &to.0,
            from,
        ];
        // In a group of its own: a signal to ours would kill it and leave the branch locked.
        let mut command = self.command(&args);
        command.process_group(0);
        let output = self.finish(command, None)?;
        if output.status.success() {
            return Ok(true);
        }
        // A stale lock file fails, too; only a branch that moved is reported in one of these ways.
        let said = String::from_utf8_lossy(&output.stderr);
        let moved = [
            "but expected",
            "reference already exists",
            "unable to resolve reference",
        ];
        if moved.iter().any(|words| said.contains(words)) {
            return Ok(false);
        }
        Err(refused(&args, &output))
    }

    /// The merge base of two commits, if they have one.
    pub(super) fn base(&self, one: &Oid, other: &Oid) -> Result<Option<Oid>, GitError> {
        Ok(self.query(&["merge-base", &one.0, &other.0])?.map(Oid))
    }

    /// How many commits between two touch any other file.
    pub(super) fn others(
        &self,
        base: Option<&Oid>,
        tip: &Oid,
        path: &str,
    ) -> Result<u64, GitError> {
        let range = range(base, tip);
        let rest = format!(":(top,exclude,literal){path}");
        let count = self.run(&["rev-list", "--count", &range, "--", ":(top)", &rest])?;
        Ok(count.parse().unwrap_or(u64::MAX))
    }

    /// How many commits between two were not made by a sync.
    pub(super) fn by_hand(
        &self,
        base: Option<&Oid>,
        tip: &Oid,
        subject: &str,
    ) -> Result<u64, GitError> {
        let range = range(base, tip);
        let ours = format!("--grep=^{subject}$");
        let args = [
            "rev-list",
            "--count",
            "--no-merges",
            "--invert-grep",
            &ours,
            &range,
        ];
        Ok(self.run(&args)?.parse().unwrap_or(u64::MAX))
    }
}

fn range(base: Option<&Oid>, tip: &Oid) -> String {
    match base {
        Some(base) => format!("{base}..{tip}"),
        None => tip.to_string(),
    }
}

fn missing(error: io::Error) -> GitError {
    match error.kind() {
        io::ErrorKind::NotFound => GitError::Missing,
        _ => GitError::Io(error),
    }
}

fn refused(args: &[&str], output: &Output) -> GitError {
    GitError::Refused {
        what: args.first().copied().unwrap_or_default().to_owned(),
        words: words(&output.stderr),
    }
}

/// The most telling line of what git printed, fit for the log.
pub(super) fn words(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    let mut lines = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with("hint:"));
    let error = lines
        .clone()
        .find(|line| line.starts_with("fatal:") || line.starts_with("error:"));
    let line = error.or_else(|| lines.next()).unwrap_or_default();
    let visible: String = line.chars().filter(|c| !c.is_control()).collect();
    let plain = visible
        .trim_start_matches("fatal: ")
        .trim_start_matches("error: ");
    plain.chars().take(300).collect()
}

fn line(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes)
        .trim_end_matches('\n')
        .to_owned()
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
