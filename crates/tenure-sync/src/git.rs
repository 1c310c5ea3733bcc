//! The user's own git, asked in small steps.
//!
//! # Invariants
//!
//! 1. No hook runs, nothing is signed, nobody is asked for a password: what can't be done without a
//!    person is put off.
//! 2. A branch is moved only from where it was seen to be, in one step (`update-ref` with the old
//!    value), so what the user commits meanwhile is never lost.
//! 3. Trees are built in an index of our own; of the user's, only our file's entry is written (see
//!    [`index`](super::index)). Other files, in the index and in the work tree, are never touched.

use std::ffi::OsStr;
use std::fmt;
use std::io::{self, Read, Write};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tenure::core::Clock;

/// How long a remote may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// How long a git that is to end may take.
const GRACE: Duration = Duration::from_secs(1);

/// How often a running git is looked at.
const GLANCE: Duration = Duration::from_millis(20);

/// What would lead git somewhere else, where we were started by a hook of it.
const ASTRAY: [&str; 18] = [
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

/// Why git could not be asked.
#[derive(Debug)]
pub(super) enum Trouble {
    /// It is not installed.
    Missing,
    /// Somebody wants us to stop.
    Stopped,
    /// It took too long.
    TimedOut,
    /// It said no: what was asked, and its words.
    Refused { what: String, words: String },
    /// It could not be run.
    Io(io::Error),
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing => f.write_str("git is not installed"),
            Self::Stopped => f.write_str("it was stopped"),
            Self::TimedOut => write!(f, "git took longer than {} s", PATIENCE.as_secs()),
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

/// What the name of an index of our own begins with.
const SCRATCH: &[u8] = b"sync-scratch-";

/// An index of our own, with a name that no other sync ever uses: a git of one that was killed may
/// go on without it, and must not write into what we make our trees of.
pub(super) fn scratch_in(folder: &Path, clock: &dyn Clock) -> PathBuf {
    let (pid, since) = (std::process::id(), clock.now().ticks.as_nanos());
    let begin = String::from_utf8_lossy(SCRATCH);
    folder.join(format!("{begin}{pid}-{since}"))
}

/// Git in one folder.
pub(super) struct Git<'a> {
    pub(super) root: &'a Path,
    /// Where the index of our own is.
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
        for name in ASTRAY {
            git.env_remove(name);
        }
        git
    }

    fn finish(&self, mut git: Command, input: Option<&[u8]>) -> Result<Output, Trouble> {
        if (self.stop)() {
            return Err(Trouble::Stopped);
        }
        if input.is_some() {
            git.stdin(Stdio::piped());
        }
        let mut child = git.spawn().map_err(missing)?;
        if let (Some(input), Some(mut stdin)) = (input, child.stdin.take()) {
            // One that does not want it says why.
            let _ = stdin.write_all(input);
        }
        child.wait_with_output().map_err(Trouble::Io)
    }

    /// Asks something, and gives the answer if there is one: git exits with 1 for "no".
    pub(super) fn ask(&self, args: &[&str]) -> Result<Option<String>, Trouble> {
        let output = self.finish(self.command(args), None)?;
        match output.status.code() {
            Some(0) => Ok(Some(line(&output.stdout))),
            Some(1) => Ok(None),
            _ => Err(refused(args, &output)),
        }
    }

    /// Tells it to do something that has to work.
    pub(super) fn tell(&self, args: &[&str]) -> Result<String, Trouble> {
        self.told(args, self.command(args), None)
    }

    fn told(
        &self,
        args: &[&str],
        command: Command,
        input: Option<&[u8]>,
    ) -> Result<String, Trouble> {
        let output = self.finish(command, input)?;
        if !output.status.success() {
            return Err(refused(args, &output));
        }
        Ok(line(&output.stdout))
    }

    /// Asks a remote, which may take long or never answer.
    pub(super) fn call(&self, args: &[&str]) -> Result<Output, Trouble> {
        if (self.stop)() {
            return Err(Trouble::Stopped);
        }
        let mut git = self.command(args);
        let chosen = ["GIT_SSH_COMMAND", "GIT_SSH"]
            .iter()
            .any(|name| std::env::var_os(name).is_some());
        if !chosen && self.ask(&["config", "core.sshCommand"])?.is_none() {
            git.env("GIT_SSH_COMMAND", "ssh -oBatchMode=yes");
        }
        // Whatever it starts ends with it.
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

    fn wait(&self, child: &mut Child) -> Result<std::process::ExitStatus, Trouble> {
        let start = self.clock.now().ticks;
        loop {
            if let Some(status) = child.try_wait().map_err(Trouble::Io)? {
                return Ok(status);
            }
            let trouble = if (self.stop)() {
                Trouble::Stopped
            } else if self.clock.now().ticks.saturating_sub(start) > PATIENCE {
                Trouble::TimedOut
            } else {
                std::thread::sleep(GLANCE);
                continue;
            };
            self.end(child);
            return Err(trouble);
        }
    }

    /// Ends a git with all that it started. It may clean up after itself first; one that is stopped
    /// (it asked for a password on a terminal that is not its own) has to be woken for that.
    fn end(&self, child: &mut Child) {
        let Some(group) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) else {
            return;
        };
        for signal in [Signal::TERM, Signal::CONT] {
            let _ = kill_process_group(group, signal);
        }
        let start = self.clock.now().ticks;
        while matches!(child.try_wait(), Ok(None))
            && self.clock.now().ticks.saturating_sub(start) < GRACE
        {
            std::thread::sleep(GLANCE);
        }
        // Also what did not listen.
        let _ = kill_process_group(group, Signal::KILL);
        let _ = child.wait();
    }

    /// The content of a file in a commit.
    pub(super) fn content(&self, blob: &Oid) -> Result<Vec<u8>, Trouble> {
        let args = ["cat-file", "blob", &blob.0];
        let output = self.finish(self.command(&args), None)?;
        if !output.status.success() {
            return Err(refused(&args, &output));
        }
        Ok(output.stdout)
    }

    /// What a name stands for, if it stands for something.
    pub(super) fn resolve(&self, name: &str) -> Result<Option<Oid>, Trouble> {
        let found = self.ask(&["rev-parse", "--verify", "--quiet", "--end-of-options", name])?;
        Ok(found.map(Oid))
    }

    /// The file of a commit.
    pub(super) fn blob(&self, commit: Option<&Oid>, path: &str) -> Result<Option<Oid>, Trouble> {
        match commit {
            Some(commit) => self.resolve(&format!("{commit}:{path}")),
            None => Ok(None),
        }
    }

    /// Keeps content as an object.
    pub(super) fn keep(&self, content: &[u8]) -> Result<Oid, Trouble> {
        let args = ["hash-object", "-w", "--no-filters", "--stdin"];
        Ok(Oid(self.told(&args, self.command(&args), Some(content))?))
    }

    /// Something with an index of our own, which is empty before and gone after.
    pub(super) fn with_scratch<T>(
        &self,
        work: impl FnOnce(&Path) -> Result<T, Trouble>,
    ) -> Result<T, Trouble> {
        // Nobody else needs theirs: one sync runs at a time.
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

    fn own(&self, args: &[&str]) -> Result<String, Trouble> {
        let mut command = self.command(args);
        command.env("GIT_INDEX_FILE", &self.scratch);
        self.told(args, command, None)
    }

    /// Puts a file into our own index.
    pub(super) fn set_scratch_entry(&self, path: &str, blob: &Oid) -> Result<(), Trouble> {
        let entry = format!("100644,{blob},{path}");
        self.own(&["update-index", "--add", "--cacheinfo", &entry])?;
        Ok(())
    }

    /// Puts a file into the user's index.
    pub(super) fn set_entry(&self, path: &str, blob: &Oid) -> Result<(), Trouble> {
        let entry = format!("100644,{blob},{path}");
        self.tell(&["update-index", "--add", "--cacheinfo", &entry])?;
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
    ) -> Result<Oid, Trouble> {
        let tree = self.with_scratch(|_| {
            match tree {
                Some(tree) => self.own(&["read-tree", &tree.0])?,
                None => self.own(&["read-tree", "--empty"])?,
            };
            self.set_scratch_entry(path, blob)?;
            self.own(&["write-tree"])
        })?;
        let mut args = vec!["commit-tree", &tree, "-m", message];
        for parent in parents {
            args.extend(["-p", &parent.0]);
        }
        Ok(Oid(self.tell(&args)?))
    }

    /// Moves a branch from where it was seen to be; `false` if it is not there any more.
    pub(super) fn advance(
        &self,
        branch: &str,
        from: Option<&Oid>,
        to: &Oid,
    ) -> Result<bool, Trouble> {
        let from = from.map_or("", |oid| &oid.0);
        let args = [
            "update-ref",
            "-m",
            "tenure: sync tasks",
            branch,
            &to.0,
            from,
        ];
        // Not in our group: what kills that would leave the branch locked, also for the user.
        let mut command = self.command(&args);
        command.process_group(0);
        let output = self.finish(command, None)?;
        if output.status.success() {
            return Ok(true);
        }
        // Told apart from a lock that somebody left: git's words go on with "but expected".
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

    /// Where two branches parted; `None` if they never met.
    pub(super) fn base(&self, one: &Oid, other: &Oid) -> Result<Option<Oid>, Trouble> {
        Ok(self.ask(&["merge-base", &one.0, &other.0])?.map(Oid))
    }

    /// How many commits between two touch anything but the file.
    pub(super) fn others(&self, base: Option<&Oid>, tip: &Oid, path: &str) -> Result<u64, Trouble> {
        let range = range(base, tip);
        let rest = format!(":(top,exclude,literal){path}");
        let count = self.tell(&["rev-list", "--count", &range, "--", ":(top)", &rest])?;
        Ok(count.parse().unwrap_or(u64::MAX))
    }

    /// How many commits between two were not made by a sync.
    pub(super) fn by_hand(
        &self,
        base: Option<&Oid>,
        tip: &Oid,
        subject: &str,
    ) -> Result<u64, Trouble> {
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
        Ok(self.tell(&args)?.parse().unwrap_or(u64::MAX))
    }
}

fn range(base: Option<&Oid>, tip: &Oid) -> String {
    match base {
        Some(base) => format!("{base}..{tip}"),
        None => tip.to_string(),
    }
}

fn missing(error: io::Error) -> Trouble {
    match error.kind() {
        io::ErrorKind::NotFound => Trouble::Missing,
        _ => Trouble::Io(error),
    }
}

fn refused(args: &[&str], output: &Output) -> Trouble {
    Trouble::Refused {
        what: args.first().copied().unwrap_or_default().to_owned(),
        words: words(&output.stderr),
    }
}

/// What git said, in one line that can be logged.
pub(super) fn words(stderr: &[u8]) -> String {
    let text = String::from_utf8_lossy(stderr);
    let mut lines = text
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with("hint:"));
    let told = lines
        .clone()
        .find(|line| line.starts_with("fatal:") || line.starts_with("error:"));
    let line = told.or_else(|| lines.next()).unwrap_or_default();
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

/// Reads a pipe to its end, so that whoever writes into it never has to wait.
fn drain(pipe: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut pipe) = pipe {
            let _ = pipe.read_to_end(&mut bytes);
        }
        bytes
    })
}
