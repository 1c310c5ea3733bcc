//! A project in a folder of its own, and the `tenure` command run in it as a person would.
//!
//! 1. Nothing of the machine leaks in: `HOME` is a folder of the test, no `TENURE_` variable is
//!    inherited, and no signal is ignored or blocked because the test was started that way.
//! 2. Nothing is left behind: a command that still runs at the end of its test is killed, and all
//!    that the tests let it start ends with it or by itself.
//! 3. No output ever shows a panic; every answer is looked at for one.
//!
//! Tests wait for events, never for a time. The limit is there so that a hang is a failure and
//! not a silence; it is far above what a busy machine needs and far below every long time to live.
#![allow(
    dead_code,
    unreachable_pub,
    reason = "each test file is a crate of its own and uses its own part of this"
)]
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

pub mod call;
pub mod daemon;
pub mod process;

use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use serde_json::Value;
use tempfile::TempDir;
use tenure_testkit::default_signals;

pub use call::{Call, Running, Said};

/// Between two looks at something that should happen.
const PAUSE: Duration = Duration::from_millis(10);

/// How many looks are enough: half a minute of pauses, and of what the looks take.
const LOOKS: usize = 3_000;

/// The command under test.
pub const TENURE: &str = env!("CARGO_BIN_EXE_tenure");

/// Waits until something holds.
#[track_caller]
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    for _ in 0..LOOKS {
        if holds() {
            return;
        }
        std::thread::sleep(PAUSE);
    }
    panic!("it took too long until {what}");
}

/// A folder with a project in it, and a home.
pub struct Project {
    dir: TempDir,
    calls: AtomicUsize,
}

impl Project {
    /// A project after `tenure init`.
    pub fn new() -> Self {
        let project = Self::uninitialised();
        project.tenure("init --quiet").exits(0);
        project
    }

    /// A folder before `tenure init`.
    pub fn uninitialised() -> Self {
        let project = Self {
            dir: TempDir::new().unwrap(),
            calls: AtomicUsize::new(0),
        };
        fs::create_dir(project.root()).unwrap();
        fs::create_dir(project.home()).unwrap();
        fs::create_dir(project.dir.path().join("said")).unwrap();
        project
    }

    /// The folder that commands are run in.
    pub fn root(&self) -> PathBuf {
        self.dir.path().join("work")
    }

    /// The person's home.
    pub fn home(&self) -> PathBuf {
        self.dir.path().join("home")
    }

    /// A file in the project.
    pub fn path(&self, name: &str) -> PathBuf {
        self.root().join(name)
    }

    /// The project's database.
    pub fn database(&self) -> PathBuf {
        self.path(".tenure/tenure.db")
    }

    /// What a file in the project says; nothing if it is not there yet.
    pub fn read(&self, name: &str) -> String {
        fs::read_to_string(self.path(name)).unwrap_or_default()
    }

    /// Writes a file in the project.
    pub fn write(&self, name: &str, text: &str) {
        fs::write(self.path(name), text).unwrap();
    }

    /// Any program, in the project's folder, with a clean environment and default signals.
    pub fn program(&self, program: impl AsRef<OsStr>) -> Command {
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
            .env_remove("NO_COLOR")
            .env_remove("RUST_BACKTRACE");
        command
    }

    /// A call of `tenure` with these words, which no shell looks at.
    pub fn call(&self, words: &str) -> Call {
        let mut command = self.program(TENURE);
        command.args(words.split_whitespace());
        self.prepare(command)
    }

    /// A call of a shell with this script; `$TENURE` is the command under test.
    pub fn shell(&self, script: &str) -> Call {
        let mut command = self.program("sh");
        command.args(["-c", script]);
        self.prepare(command)
    }

    /// A call of any program.
    pub fn prepare(&self, command: Command) -> Call {
        let number = self.calls.fetch_add(1, Ordering::Relaxed);
        Call::new(
            command,
            self.dir.path().join("said").join(number.to_string()),
        )
    }

    /// Calls `tenure` with these words and waits for its end.
    #[track_caller]
    pub fn tenure(&self, words: &str) -> Said {
        self.call(words).end()
    }

    /// Starts `tenure` with these words.
    #[track_caller]
    pub fn start(&self, words: &str) -> Running {
        self.call(words).start()
    }

    /// Starts `tenure run` with these words and a command that stays until it is let go. Returns
    /// when the command runs.
    #[track_caller]
    pub fn hold(&self, words: &str) -> Running {
        let running = self.call(words).input().sh("echo $$; exec cat").start();
        until("the command runs", || running.out().ends_with('\n'));
        running
    }

    /// Starts `tenure` with these words and returns when it waits for the key.
    #[track_caller]
    pub fn queue(&self, key: &str, words: &str) -> Running {
        let before = self.waiting(key).len();
        let running = self.start(words);
        self.until_waiting(key, before + 1);
        running
    }

    /// Waits until so many wait for a key.
    #[track_caller]
    pub fn until_waiting(&self, key: &str, many: usize) {
        until(&format!("{many} wait for {key}"), || {
            self.waiting(key).len() == many
        });
    }

    /// Who waits for a key, the next one first. Those who are away do not wait.
    #[track_caller]
    pub fn waiting(&self, key: &str) -> Vec<String> {
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
    pub fn verdict(&self, key: &str) -> String {
        let said = self.tenure(&format!("locks show {key} --json"));
        if said.code == 4 {
            return "free".into();
        }
        said.json()["data"]["verdict"].as_str().unwrap().to_owned()
    }

    /// Takes a key for a name without a process, and returns the token.
    #[track_caller]
    pub fn acquire(&self, words: &str) -> u64 {
        let said = self.tenure(&format!("acquire {words}")).exits(0);
        said.out.trim().parse().unwrap()
    }

    /// The story of a key: what happened, to which token, and the whole event.
    #[track_caller]
    pub fn history(&self, key: &str) -> Vec<(String, u64, Value)> {
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

    /// The same as words: `granted 1, released 1`.
    #[track_caller]
    pub fn story(&self, key: &str) -> String {
        let events = self.history(key);
        let words = events
            .iter()
            .map(|(kind, token, _)| format!("{kind} {token}"));
        words.collect::<Vec<_>>().join(", ")
    }
}
