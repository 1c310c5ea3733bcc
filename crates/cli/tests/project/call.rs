//! One call of a program: [`Call`] before it, [`Running`] during it, [`Said`] after it.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::{PipeReader, Write as _};
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, ExitStatus, Stdio};

use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::process::Signal;
use serde_json::Value;

use super::{process, until};

/// A call that has not started.
#[must_use]
pub(crate) struct Call {
    command: Command,
    said: PathBuf,
    stdin: Stdio,
    stderr: Option<Stdio>,
}

impl Call {
    pub(super) fn new(command: Command, said: PathBuf) -> Self {
        Self {
            command,
            said,
            stdin: Stdio::null(),
            stderr: None,
        }
    }

    /// Adds an argument.
    pub(crate) fn arg(mut self, arg: impl AsRef<OsStr>) -> Self {
        self.command.arg(arg);
        self
    }

    /// Adds arguments.
    pub(crate) fn args<const N: usize>(mut self, args: [&str; N]) -> Self {
        self.command.args(args);
        self
    }

    /// The command after `--`: a shell script.
    pub(crate) fn sh(mut self, script: &str) -> Self {
        self.command.args(["--", "sh", "-c", script]);
        self
    }

    /// A variable of the environment.
    pub(crate) fn env(mut self, name: &str, value: impl AsRef<OsStr>) -> Self {
        self.command.env(name, value);
        self
    }

    /// Another folder to start in.
    pub(crate) fn within(mut self, folder: impl AsRef<Path>) -> Self {
        self.command.current_dir(folder);
        self
    }

    /// Makes its input a pipe.
    pub(crate) fn input(mut self) -> Self {
        self.stdin = Stdio::piped();
        self
    }

    /// Blocks it as soon as it writes to its standard error, which is a full pipe, until that is read.
    pub(crate) fn held_up(mut self) -> (Self, PipeReader) {
        let (read, mut write) = std::io::pipe().unwrap();
        let blocking = fcntl_getfl(&write).unwrap();
        fcntl_setfl(&write, blocking | OFlags::NONBLOCK).unwrap();
        while write.write(&[b'\n'; 4096]).is_ok() {}
        fcntl_setfl(&write, blocking).unwrap();
        self.stderr = Some(write.into());
        (self, read)
    }

    /// Starts it.
    #[track_caller]
    pub(crate) fn start(mut self) -> Running {
        let (out, err) = (
            self.said.with_extension("out"),
            self.said.with_extension("err"),
        );
        let mut child = self
            .command
            .stdin(self.stdin)
            .stdout(File::create(&out).unwrap())
            .stderr(
                self.stderr
                    .unwrap_or_else(|| File::create(&err).unwrap().into()),
            )
            .spawn()
            .unwrap();
        Running {
            stdin: child.stdin.take(),
            child,
            out,
            err,
        }
    }

    /// Starts it and waits until it has ended.
    #[track_caller]
    pub(crate) fn end(self) -> Said {
        self.start().ended()
    }
}

/// A running call. Dropping it kills the program.
#[must_use]
pub(crate) struct Running {
    child: Child,
    /// Its input, if it is a pipe.
    pub(crate) stdin: Option<ChildStdin>,
    out: PathBuf,
    err: PathBuf,
}

impl Running {
    /// The pid of the program that was called.
    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The pid in the first line of its output: that of the command, see `Project::hold`.
    #[track_caller]
    pub(crate) fn command(&self) -> u32 {
        self.out().lines().next().unwrap().parse().unwrap()
    }

    /// What it has written so far.
    pub(crate) fn out(&self) -> String {
        text(&self.out)
    }

    /// What it has written to its standard error so far.
    pub(crate) fn err(&self) -> String {
        text(&self.err)
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, signal: Signal) {
        process::signal(self.pid(), signal);
    }

    /// Whether it has not ended.
    pub(crate) fn runs(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Ends its input, which ends the command of `Project::hold`.
    pub(crate) fn let_go(&mut self) {
        self.stdin = None;
    }

    /// Sends it SIGKILL.
    #[track_caller]
    pub(crate) fn killed(self) -> Said {
        self.signal(Signal::KILL);
        self.ended()
    }

    /// Waits until it has ended.
    #[track_caller]
    pub(crate) fn ended(mut self) -> Said {
        let mut status = None;
        until("the call has ended", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        let said = Said {
            code: code(status.unwrap()),
            out: self.out(),
            err: self.err(),
        };
        let panicked = ["panicked", "RUST_BACKTRACE", "stack backtrace"]
            .iter()
            .any(|word| said.err.contains(word) || said.out.contains(word));
        assert!(!panicked, "it panicked: {said:?}");
        said
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if self.runs() {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn text(path: &Path) -> String {
    String::from_utf8_lossy(&fs::read(path).unwrap_or_default()).into_owned()
}

/// The exit code as a shell reports it: 128 plus the signal, if one ended it.
fn code(status: ExitStatus) -> i32 {
    status
        .code()
        .unwrap_or_else(|| 128 + status.signal().unwrap_or(0))
}

/// The result of a call.
#[derive(Debug)]
pub(crate) struct Said {
    /// The exit code; 128 plus the signal if one ended it.
    pub(crate) code: i32,
    /// Its output.
    pub(crate) out: String,
    /// Its standard error.
    pub(crate) err: String,
}

impl Said {
    /// Asserts its exit code.
    #[track_caller]
    pub(crate) fn exits(self, code: i32) -> Self {
        assert_eq!(self.code, code, "{self:?}");
        self
    }

    /// Asserts its exit code and texts in its standard error.
    #[track_caller]
    pub(crate) fn fails(self, code: i32, words: &[&str]) -> Self {
        let said = self.exits(code);
        for word in words {
            assert!(said.err.contains(word), "no {word:?} in {said:?}");
        }
        said
    }

    /// Its output as JSON, which `tenure schema` has to allow.
    #[track_caller]
    pub(crate) fn json(&self) -> Value {
        let json = serde_json::from_str(&self.out);
        let json = json.unwrap_or_else(|error| panic!("{error}: {self:?}"));
        crate::schema::allows(&json);
        json
    }

    /// The code in its JSON error.
    #[track_caller]
    pub(crate) fn error(&self) -> String {
        let json = self.json();
        assert_eq!(json["success"], false, "{json}");
        assert_eq!(json["data"], Value::Null, "{json}");
        json["error"]["code"].as_str().unwrap().to_owned()
    }
}
