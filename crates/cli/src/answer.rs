//! What a command prints, [`Answer`] or [`Failure`], and its exit code.
//!
//! 1. Text goes to stdout, errors go to stderr. With `--json` both go to stdout in one envelope.
//! 2. A command prints its answer last, so that nothing is reported that did not happen.

use std::ffi::OsString;
use std::io::{ErrorKind, Write};

use anstyle::{AnsiColor, Style};
use clap::builder::StyledStr;
use clap::error::ErrorKind as UsageError;
use serde::Serialize;
use serde_json::{Value, json};
use tenure::project::ProjectError;
use tenure::store::{BadName, ErrorKind as StoreErrorKind, StoreError};
use tenure::tasks::TaskError;
use tenure::text::visible;
use tenure::who::NoName;
use tenure::wire::{Envelope, ErrorCode, ErrorJson, TaskBlockedJson};

use crate::args::Global;
use crate::exit::Exit;
use crate::help;
use crate::words;

/// What a command prints when it succeeded.
pub(crate) struct Answer {
    pub(crate) exit: Exit,
    data: Value,
    /// Without a newline at the end; nothing is printed if it is empty.
    pub(crate) text: String,
    /// Whether the text has colours, and was escaped before it got them.
    is_styled: bool,
    /// Whether nothing is printed, not even with `--json`.
    silent: bool,
    /// Runs if the answer cannot be written.
    undo: Option<Box<dyn FnOnce()>>,
}

impl Answer {
    pub(crate) fn new(data: impl Serialize, text: impl Into<String>) -> Self {
        Self {
            exit: Exit::Done,
            data: to_value(&data),
            text: text.into(),
            is_styled: false,
            silent: false,
            undo: None,
        }
    }

    /// The text only confirms what was done: `--quiet` leaves it out.
    pub(crate) fn confirmed(
        global: &Global,
        data: impl Serialize,
        text: impl Into<String>,
    ) -> Self {
        let text = if global.quiet {
            String::new()
        } else {
            text.into()
        };
        Self::new(data, text)
    }

    /// The text has colours: the command has escaped what came from others ([`flat`](tenure::text::flat)).
    pub(crate) fn styled(mut self) -> Self {
        self.is_styled = true;
        self
    }

    /// Undoes the command if the answer cannot be written: the caller would never learn its token.
    pub(crate) fn or_undo(mut self, undo: impl FnOnce() + 'static) -> Self {
        self.undo = Some(Box::new(undo));
        self
    }

    /// For a command whose output is not written by tenure.
    pub(crate) fn silent(exit: Exit) -> Self {
        Self {
            exit,
            silent: true,
            ..Self::new((), "")
        }
    }
}

/// What a command says when it failed.
#[derive(Debug)]
pub(crate) struct Failure {
    /// For programs.
    pub(crate) code: ErrorCode,
    exit: Exit,
    /// What is wrong, where, and what to do. May have several lines.
    message: String,
    /// What people read instead of `message`, where a protocol prescribes a message for programs.
    text: Option<String>,
    /// Whether `text` is printed as it is, without `error:` before it.
    verbatim: bool,
    /// Lines for people only, below the message.
    hints: Vec<String>,
    details: Box<Value>,
}

impl Failure {
    pub(crate) fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code,
            exit: code.into(),
            message: message.into(),
            text: None,
            verbatim: false,
            hints: Vec::new(),
            details: Box::new(json!({})),
        }
    }

    /// Ends with another exit code than the error code's own.
    pub(crate) fn exit(mut self, exit: Exit) -> Self {
        self.exit = exit;
        self
    }

    /// People read this instead of the message.
    pub(crate) fn text(mut self, text: impl Into<String>) -> Self {
        self.text = Some(text.into());
        self.verbatim = false;
        self
    }

    /// People read exactly this, as a protocol prescribes, without `error:` before it.
    pub(crate) fn verbatim(self, text: impl Into<String>) -> Self {
        Self {
            verbatim: true,
            ..self.text(text)
        }
    }

    /// Whether people read exactly what a protocol prescribes.
    pub(crate) fn is_verbatim(&self) -> bool {
        self.verbatim
    }

    /// Adds a line for people, below the message.
    pub(crate) fn hint(mut self, hint: impl Into<String>) -> Self {
        self.hints.push(hint.into());
        self
    }

    pub(crate) fn details(mut self, details: impl Serialize) -> Self {
        self.details = Box::new(to_value(&details));
        self
    }

    /// What is wrong, without hints.
    pub(crate) fn message(&self) -> &str {
        &self.message
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        // One message and one code, whichever command met the lock.
        if let Some(lock) = error.cause().and_then(|cause| cause.downcast_ref()) {
            return crate::commands::ledger::locked(lock);
        }
        let code = match error.kind {
            StoreErrorKind::NotFound => ErrorCode::NotFound,
            StoreErrorKind::Contended => ErrorCode::StoreContended,
            StoreErrorKind::Full => ErrorCode::StoreFull,
            StoreErrorKind::ReadOnly => ErrorCode::StoreReadOnly,
            StoreErrorKind::NotAStore => ErrorCode::NotAStore,
            StoreErrorKind::TooNew => ErrorCode::StoreTooNew,
            StoreErrorKind::Damaged | StoreErrorKind::Gone => ErrorCode::StoreDamaged,
            StoreErrorKind::Unsupported => ErrorCode::Unsupported,
            StoreErrorKind::OtherMode => ErrorCode::OtherMode,
            StoreErrorKind::OutcomeUnknown => ErrorCode::OutcomeUnknown,
            // `Io`, `Unreachable`, and kinds that a later version of the library adds.
            _ => ErrorCode::Io,
        };
        Self::new(code, error.to_string())
    }
}

impl From<std::io::Error> for Failure {
    fn from(error: std::io::Error) -> Self {
        let message = if error.get_ref().is_some() {
            // It says what failed, and where.
            error.to_string()
        } else {
            format!("a system call failed ({error})")
        };
        Self::new(ErrorCode::Io, message)
    }
}

impl From<rustix::io::Errno> for Failure {
    fn from(error: rustix::io::Errno) -> Self {
        std::io::Error::from(error).into()
    }
}

impl From<BadName> for Failure {
    fn from(error: BadName) -> Self {
        Self::new(ErrorCode::BadName, error.to_string())
    }
}

impl From<tenure::files::BadPath> for Failure {
    fn from(error: tenure::files::BadPath) -> Self {
        let code = match error {
            tenure::files::BadPath::Io { .. } => ErrorCode::Io,
            _ => ErrorCode::BadName,
        };
        Self::new(code, error.to_string())
    }
}

impl From<tenure::files::BadPathSet> for Failure {
    fn from(error: tenure::files::BadPathSet) -> Self {
        Self::new(ErrorCode::BadName, error.to_string())
    }
}

impl From<tenure::Error> for Failure {
    fn from(error: tenure::Error) -> Self {
        match error {
            tenure::Error::Store(error) => error.into(),
            tenure::Error::Task(error) => error.into(),
            tenure::Error::Name(error) => error.into(),
            tenure::Error::Ttl { .. } | tenure::Error::NoExpiry => {
                Self::new(ErrorCode::BadTtl, error.to_string())
            }
            tenure::Error::NoProcess(_) => Self::new(ErrorCode::NoProcess, error.to_string()),
            tenure::Error::HiddenProcess { .. } => {
                Self::new(ErrorCode::HiddenProcess, error.to_string())
            }
            // Errors that a later version of the library adds.
            _ => Self::new(ErrorCode::Io, error.to_string()),
        }
    }
}

impl From<TaskError> for Failure {
    fn from(error: TaskError) -> Self {
        let message = error.to_string();
        match error {
            TaskError::Store(error) => error.into(),
            TaskError::NoTask(given) | TaskError::Deleted { given, .. } => {
                Self::new(ErrorCode::TaskNotFound, message).details(json!({ "task": given }))
            }
            TaskError::NoSection(given) => {
                Self::new(ErrorCode::SectionNotFound, message).details(json!({ "section": given }))
            }
            TaskError::Ambiguous { given, candidates } => {
                let lines = candidates.iter().map(words::task_line).collect::<Vec<_>>();
                let message = format!(
                    "{message}: give the id of one of them\n{}",
                    lines.join("\n")
                );
                let ids: Vec<&str> = candidates.iter().map(|task| task.id.as_str()).collect();
                Self::new(ErrorCode::Ambiguous, message)
                    .details(json!({ "task": given, "candidates": ids }))
            }
            TaskError::AmbiguousSection { given, candidates } => {
                Self::new(ErrorCode::Ambiguous, message)
                    .details(json!({ "section": given, "candidates": candidates }))
            }
            TaskError::SectionExists(section) => {
                Self::new(ErrorCode::SectionExists, message).details(section)
            }
            TaskError::SectionInUse {
                section,
                tasks,
                open,
            } => Self::new(ErrorCode::SectionNotEmpty, message)
                .details(json!({ "sectionId": section.id, "tasks": tasks, "open": open }))
                .hint("to move them to another section: --move-to SECTION")
                .hint("to leave them without a section: --move-to ''"),
            TaskError::SectionLocked { section, lease } => words::section_in_use(&section, &lease),
            TaskError::BadText { .. } => Self::new(ErrorCode::BadText, message),
            TaskError::Circle { .. } => Self::new(ErrorCode::CircularDependency, message),
            TaskError::Blocked { task, by } => {
                Self::new(ErrorCode::TaskBlocked, message).details(TaskBlockedJson {
                    task_id: task.id,
                    blocked_by: by.into_iter().map(|task| task.id).collect(),
                })
            }
            TaskError::Done { task } => {
                let message = format!(
                    "task \"{}\" was set to {} while this command waited, so it was not started\n  \
                     start another with tenure tasks next, or repeat the command to start it anyway",
                    task.title, task.status
                );
                Self::new(ErrorCode::TaskDone, message)
                    .details(json!({ "taskId": task.id, "status": task.status }))
            }
            TaskError::Locked { task, lease } => words::task_locked(&task, &lease),
            TaskError::LockedLine {
                number,
                task,
                lease,
            } => words::task_locked(&task, &lease).hint(format!(
                "line {number}: a runner works on this task, so nothing was imported"
            )),
            TaskError::Superseded { task, lease } => words::task_lost(&task, lease.as_deref()),
            TaskError::BadLines(lines) => {
                let details: Vec<Value> = lines
                    .iter()
                    .map(|line| json!({ "line": line.number, "message": line.what }))
                    .collect();
                let message = format!("nothing was imported:\n{message}");
                Self::new(ErrorCode::BadLine, message).details(json!({ "lines": details }))
            }
            // Errors that a later version of the library adds.
            _ => Self::new(ErrorCode::Io, message),
        }
    }
}

impl From<tenure::config::ConfigError> for Failure {
    fn from(error: tenure::config::ConfigError) -> Self {
        Self::new(ErrorCode::BadConfig, error.to_string())
    }
}

impl From<ProjectError> for Failure {
    fn from(error: ProjectError) -> Self {
        let code = match error {
            ProjectError::Unreadable(_) => ErrorCode::Io,
            _ => ErrorCode::NotInitialised,
        };
        Self::new(code, error.to_string())
    }
}

impl From<NoName> for Failure {
    fn from(error: NoName) -> Self {
        let code = match error {
            NoName::Bad(_) | NoName::NotText(_) => ErrorCode::BadName,
            // Errors that a later version of the library adds, too.
            _ => ErrorCode::Io,
        };
        Self::new(code, error.to_string())
    }
}

impl From<tenure_files::Error> for Failure {
    fn from(error: tenure_files::Error) -> Self {
        use tenure_files::Error;
        match error {
            Error::Git(error) => error.into(),
            Error::Store(error) => error.into(),
            Error::File(error) => error.into(),
            Error::Project(error) => error.into(),
            Error::Config(error) => error.into(),
            Error::Path(error) => error.into(),
            Error::Name(error) => error.into(),
            Error::Reserve(error) => error.into(),
            Error::NoProject(_) => Self::new(ErrorCode::NotInitialised, error.to_string()),
            Error::NoHook(_) => Self::new(ErrorCode::Usage, error.to_string()),
            Error::Unreservable { .. } => Self::new(ErrorCode::BadName, error.to_string()),
            // Errors that a later version of the library adds.
            _ => Self::new(ErrorCode::Io, error.to_string()),
        }
    }
}

impl From<tenure::store::BadUrl> for Failure {
    fn from(error: tenure::store::BadUrl) -> Self {
        Self::new(ErrorCode::BadStore, error.to_string())
    }
}

/// Prints the outcome of a command and returns the exit code.
pub(crate) fn print_outcome(
    global: &Global,
    command: &str,
    subcommand: Option<&str>,
    outcome: Result<Answer, Failure>,
) -> i32 {
    match outcome {
        Ok(answer) => {
            let written = if answer.silent || (answer.text.is_empty() && !global.json) {
                Ok(())
            } else if global.json {
                write_line(&envelope(command, subcommand, Some(answer.data), None))
            } else if answer.is_styled {
                write_line(&answer.text)
            } else {
                write_line(&visible(&answer.text))
            };
            match written {
                // A reader that closes the pipe early is no failure.
                Err(error) if error.kind() != ErrorKind::BrokenPipe => {
                    if let Some(undo) = answer.undo {
                        undo();
                    }
                    complain(&format!("the answer could not be written ({error})"));
                    Exit::Runtime.code()
                }
                _ => answer.exit.code(),
            }
        }
        Err(failure) => {
            if global.json {
                let error = ErrorJson {
                    code: failure.code,
                    message: without_numbers(&failure.message),
                    details: *failure.details,
                };
                let _ = write_line(&envelope(command, subcommand, None, Some(error)));
            } else {
                let mut text = failure.text.unwrap_or(failure.message);
                for hint in failure.hints {
                    text.push_str("\n  ");
                    text.push_str(&hint);
                }
                if failure.verbatim {
                    let _ =
                        anstream::stderr().write_all(format!("{}\n", visible(&text)).as_bytes());
                } else {
                    complain(&text);
                }
            }
            failure.exit.code()
        }
    }
}

fn envelope(
    command: &str,
    subcommand: Option<&str>,
    data: Option<Value>,
    error: Option<ErrorJson<Value>>,
) -> String {
    let envelope = Envelope {
        success: error.is_none(),
        command: command.to_owned(),
        subcommand: subcommand.map(str::to_owned),
        data,
        error,
    };
    serde_json::to_string_pretty(&envelope).unwrap_or_default()
}

/// The JSON of a wire type. These types always have one: their keys are text.
pub(crate) fn to_value(data: &impl Serialize) -> Value {
    serde_json::to_value(data).unwrap_or_default()
}

/// Writes a line to stdout.
fn write_line(text: &str) -> std::io::Result<()> {
    let mut out = anstream::stdout().lock();
    writeln!(out, "{text}")?;
    out.flush()
}

/// The outcome of a command that prints its lines itself. A reader that closes the pipe early (`head`) is no failure.
pub(crate) fn printed(written: std::io::Result<()>, problem: &str) -> Result<Answer, Failure> {
    match written {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            Err(Failure::new(ErrorCode::Io, format!("{problem} ({error})")))
        }
        _ => Ok(Answer::silent(Exit::Done)),
    }
}

/// Writes a line of progress to stderr, unless `--quiet` or `--json` is given.
pub(crate) fn remark(global: &Global, text: &str) {
    if !global.quiet && !global.json {
        // In one piece, because other processes write to the same stderr.
        let line = format!("tenure: {}\n", visible(text));
        let _ = anstream::stderr().write_all(line.as_bytes());
    }
}

/// The text without the numbers of errors of the operating system, which stand beside its words.
fn without_numbers(text: &str) -> String {
    const BEFORE: &str = " (os error ";
    let mut parts = text.split(BEFORE);
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |out, part| match part.split_once(')') {
        Some((number, rest)) if number.bytes().all(|byte| byte.is_ascii_digit()) => out + rest,
        _ => out + BEFORE + part,
    })
}

/// Writes a JSON line about a running command to stderr: its output is not interrupted.
pub(crate) fn report_event(event: &Value) {
    let _ = std::io::stderr().write_all(format!("{event}\n").as_bytes());
}

/// Writes an error to stderr.
pub(crate) fn complain(message: &str) {
    let message = without_numbers(message);
    let red = Style::new().bold().fg_color(Some(AnsiColor::Red.into()));
    let line = format!("{red}error:{red:#} {}\n", visible(&message));
    let _ = anstream::stderr().write_all(line.as_bytes());
}

/// A page of help, or why there is none.
pub(crate) fn print_page(page: Result<StyledStr, String>) -> i32 {
    match page {
        Ok(page) => {
            let _ = write_page(anstream::stdout().lock(), &page);
            Exit::Done.code()
        }
        Err(message) => {
            complain(&message);
            Exit::Usage.code()
        }
    }
}

/// A command line that cannot be parsed. clap reports `--help` and `--version` this way too.
pub(crate) fn bad_usage(error: clap::Error, words: &[OsString]) -> i32 {
    let json = words
        .iter()
        .take_while(|word| *word != "--")
        .any(|word| word == "--json");
    let is_visible = |word: &OsString| {
        let word = word.to_string_lossy();
        visible(&word) == word
    };
    let kind = error.kind();
    match kind {
        UsageError::DisplayHelp => print_page(Ok(help::page_for(words))),
        UsageError::DisplayVersion => print_page(Ok(error.render())),
        _ => {
            let text = match kind {
                UsageError::DisplayHelpOnMissingArgumentOrSubcommand => help::page_for(words),
                _ => help::complaint(error, words),
            };
            if json {
                let text = text.to_string();
                let message = text.trim().trim_start_matches("error: ").to_owned();
                let error = ErrorJson {
                    code: ErrorCode::Usage,
                    message,
                    details: json!({}),
                };
                let _ = write_line(&envelope("tenure", None, None, Some(error)));
            } else if words.iter().all(is_visible) {
                let _ = write_page(anstream::stderr().lock(), &text);
            } else {
                // It repeats the words, so it has no colours.
                let text = text.to_string();
                let line = format!("{}\n", visible(text.trim_end()));
                let _ = anstream::stderr().write_all(line.as_bytes());
            }
            Exit::Usage.code()
        }
    }
}

/// Writes a text of several lines, coloured on a terminal.
fn write_page(mut out: impl Write, page: &StyledStr) -> std::io::Result<()> {
    writeln!(out, "{}", page.ansi().to_string().trim_end())?;
    out.flush()
}
