//! A project in its own folder, and the `tenure` command run in it as a person would run it.
//!
//! 1. Nothing of the machine leaks in: `HOME` is a folder of the test, no `TENURE_` variable is
//!    inherited, and no signal is ignored or blocked because the test was started that way.
//! 2. Nothing is left behind: a command that still runs at the end of its test is killed, and all
//!    processes that it started end with it or by themselves.
//! 3. No output ever shows a panic; every call is checked for one.
//!
//! Tests wait for conditions, never for a time. The limit turns a hang into a failure; it is far above
//! what a busy machine needs and far below every long time to live.

pub(crate) mod call;
pub(crate) mod daemon;
pub(crate) mod process;

use std::ffi::OsStr;
use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use tenure_testkit::default_signals;
use tenure_testkit::limit::Stopwatch;

pub(crate) use call::{Call, Running, Said};

/// The pause between two polls of a condition.
const PAUSE: Duration = Duration::from_millis(10);

/// How long a condition is polled: longer than anything here takes.
const LIMIT: Duration = Duration::from_secs(180);

/// The command under test.
pub(crate) const TENURE: &str = env!("CARGO_BIN_EXE_tenure");

/// Writes a program that is executed afterwards.
///
/// Another process writes it: a process that another thread starts meanwhile would inherit the open file, and the
/// kernel executes no file that is open for writing.
#[track_caller]
pub(crate) fn write_program(path: &Path, content: &[u8]) {
    let mut install = Command::new("install")
        .args(["-m", "755", "/dev/stdin"])
        .arg(path)
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    install.stdin.take().unwrap().write_all(content).unwrap();
    assert!(install.wait().unwrap().success());
}

/// Waits until a condition holds.
#[track_caller]
pub(crate) fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let waiting = Stopwatch::start();
    while !holds() {
        assert!(waiting.elapsed() < LIMIT, "timed out waiting until {what}");
        std::thread::sleep(PAUSE);
    }
}

/// A folder with a project and a home in it.
pub(crate) struct Project {
    dir: TempDir,
    calls: AtomicUsize,
}

impl Project {
    /// A project after `tenure init`.
    pub(crate) fn new() -> Self {
        let project = Self::uninitialised();
        project.tenure("init --quiet").exits(0);
        project
    }

    /// A folder before `tenure init`.
    pub(crate) fn uninitialised() -> Self {
        let project = Self {
            dir: TempDir::new().unwrap(),
            calls: AtomicUsize::new(0),
        };
        fs::create_dir(project.root()).unwrap();
        fs::create_dir(project.home()).unwrap();
        fs::create_dir(project.dir.path().join("said")).unwrap();
        project
    }

    /// A folder with a ledger and no project.
    pub(crate) fn with_ledger() -> Self {
        let project = Self::uninitialised();
        project.tenure("ledger init").exits(0);
        project
    }

    /// The folder that commands are run in.
    pub(crate) fn root(&self) -> PathBuf {
        self.dir.path().join("work")
    }

    /// The person's home.
    pub(crate) fn home(&self) -> PathBuf {
        self.dir.path().join("home")
    }

    /// A file in the project.
    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.root().join(name)
    }

    /// The project's database.
    pub(crate) fn database(&self) -> PathBuf {
        self.state().join("tenure.db")
    }

    /// The folder with all that belongs to this machine.
    pub(crate) fn state(&self) -> PathBuf {
        let in_git = self.path(".git/tenure");
        if in_git.is_dir() {
            in_git
        } else {
            self.path(".tenure")
        }
    }

    /// The content of a file in the project; empty if it does not exist yet.
    pub(crate) fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// Writes a file in the project.
    pub(crate) fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    /// Any program, in the project's folder, with a clean environment and default signals.
    pub(crate) fn program(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        default_signals(&mut command);
        for (name, _) in std::env::vars_os() {
            if name.as_encoded_bytes().starts_with(b"TENURE_") {
                command.env_remove(name);
            }
        }
        command
            .current_dir(self.root())
            .env("HOME", self.home())
            .env("USER", "tester")
            .env("TENURE", TENURE)
            .env_remove("GITHUB_RUN_ID")
            .env_remove("CI_JOB_ID")
            .env_remove("BUILD_TAG")
            .env_remove("BUILDKITE_JOB_ID")
            .env_remove("CIRCLE_WORKFLOW_JOB_ID")
            .env_remove("SYSTEM_JOBID")
            .env_remove("CLAUDE_CODE_SESSION_ID")
            .env_remove("CODEX_THREAD_ID")
            .env_remove("XDG_STATE_HOME")
            .env_remove("NO_COLOR")
            // The lock of the cargo that builds this is none of the project's.
            .env_remove("CARGO_TARGET_DIR")
            .env_remove("RUST_BACKTRACE");
        command
    }

    /// Runs a script in its own mount namespace, if this machine allows that.
    pub(crate) fn with_mounts(&self, script: &str) -> Option<Said> {
        let unshare = |script: &str| {
            let mut command = self.program("unshare");
            command.args(["--map-root-user", "--mount", "sh", "-c", script]);
            self.prepare(command).end()
        };
        let try_out = unshare("mount -t tmpfs none /mnt");
        if try_out.code != 0 {
            tenure_testkit::left_out(&format!("no mounts here ({})", try_out.err.trim()));
            return None;
        }
        Some(unshare(script))
    }

    /// A call of `tenure` with these arguments, split at spaces and not seen by a shell.
    pub(crate) fn call(&self, words: &str) -> Call {
        let mut command = self.program(TENURE);
        command.args(words.split_whitespace());
        self.prepare(command)
    }

    /// A call of a shell with this script; `$TENURE` is the command under test.
    pub(crate) fn shell(&self, script: &str) -> Call {
        let mut command = self.program("sh");
        command.args(["-c", script]);
        self.prepare(command)
    }

    /// A call of any program.
    pub(crate) fn prepare(&self, command: Command) -> Call {
        let number = self.calls.fetch_add(1, Ordering::Relaxed);
        Call::new(
            command,
            self.dir.path().join("said").join(number.to_string()),
        )
    }

    /// Runs `tenure` with these arguments to its end.
    #[track_caller]
    pub(crate) fn tenure(&self, words: &str) -> Said {
        self.call(words).end()
    }

    /// Starts `tenure` with these arguments.
    #[track_caller]
    pub(crate) fn start(&self, words: &str) -> Running {
        self.call(words).start()
    }

    /// Starts `tenure run` with these arguments and a command that runs until [`Running::let_go`].
    /// Returns when the command runs.
    #[track_caller]
    pub(crate) fn hold(&self, words: &str) -> Running {
        let running = self.call(words).input().sh("echo $$; exec cat").start();
        until("the command runs", || running.out().ends_with('\n'));
        running
    }

    /// Starts `tenure` with these arguments and returns when it waits for the key.
    #[track_caller]
    pub(crate) fn queue(&self, key: &str, words: &str) -> Running {
        let before = self.waiting(key).len();
        let running = self.start(words);
        self.until_waiting(key, before + 1);
        running
    }

    /// Waits until this many processes wait for a key.
    #[track_caller]
    pub(crate) fn until_waiting(&self, key: &str, many: usize) {
        until(&format!("{many} wait for {key}"), || {
            self.waiting(key).len() == many
        });
    }

    /// The waiters for a key that are present, the next one first.
    #[track_caller]
    pub(crate) fn waiting(&self, key: &str) -> Vec<String> {
        let shown = self.tenure(&format!("locks show {key} --json")).json();
        let empty = Vec::new();
        shown["data"]["queue"]
            .as_array()
            .unwrap_or(&empty)
            .iter()
            .filter(|waiter| waiter["here"] == true)
            .map(|waiter| waiter["holder"].as_str().unwrap().to_owned())
            .collect()
    }

    /// The verdict on a key's lease: `alive`, `dead`, `expired`, `unknown`, or `free`.
    #[track_caller]
    pub(crate) fn verdict(&self, key: &str) -> String {
        let said = self.tenure(&format!("locks show {key} --json"));
        if said.code == 4 {
            return "free".into();
        }
        let verdict = &said.json()["data"]["leases"][0]["verdict"];
        verdict.as_str().unwrap_or("free").to_owned()
    }

    /// Acquires a key without a process, and returns the token.
    #[track_caller]
    pub(crate) fn acquire(&self, words: &str) -> u64 {
        let said = self.tenure(&format!("acquire {words}")).exits(0);
        said.out.trim().parse().unwrap()
    }

    /// The history of a key: for each event its kind, its token, and all of it.
    #[track_caller]
    pub(crate) fn history(&self, key: &str) -> Vec<(String, u64, Value)> {
        let said = self.tenure(&format!("locks history {key} --json")).exits(0);
        let json = said.json();
        json["data"]["events"]
            .as_array()
            .unwrap()
            .iter()
            .map(|event| {
                (
                    event["event"].as_str().unwrap().to_owned(),
                    event["token"].as_u64().unwrap(),
                    event.clone(),
                )
            })
            .collect()
    }

    /// The history of a key as text: `granted 1, released 1`.
    #[track_caller]
    pub(crate) fn story(&self, key: &str) -> String {
        let events = self.history(key);
        let words = events
            .iter()
            .map(|(kind, token, _)| format!("{kind} {token}"));
        words.collect::<Vec<_>>().join(", ")
    }
}
