//! What a command says: text or JSON, and its exit code.
//!
//! Text goes to stdout, errors to stderr. With `--json` both go to stdout in one envelope.

use std::io::Write;

use anstyle::{AnsiColor, Style};
use serde_json::{Value, json};
use tenure::core::{BadName, ErrorKind, StoreError, TaskError};

use crate::args::Global;
use crate::exit::Exit;
use crate::words;

/// What a command says when it did what was asked.
pub(crate) struct Answer {
    pub(crate) exit: Exit,
    pub(crate) data: Value,
    /// Ends without a newline; nothing is printed if it is empty.
    pub(crate) text: String,
    /// Whether the command's own output was all there is to say.
    pub(crate) silent: bool,
    /// What to take back if it can't be said.
    undo: Option<Box<dyn FnOnce()>>,
}

impl Answer {
    pub(crate) fn new(data: Value, text: impl Into<String>) -> Self {
        Self {
            exit: Exit::Done,
            data,
            text: text.into(),
            silent: false,
            undo: None,
        }
    }

    /// Takes something back if the answer can't be said.
    pub(crate) fn or_undo(mut self, undo: impl FnOnce() + 'static) -> Self {
        self.undo = Some(Box::new(undo));
        self
    }

    /// For a command whose output is not ours.
    pub(crate) fn silent(exit: Exit) -> Self {
        Self {
            exit,
            data: Value::Null,
            text: String::new(),
            silent: true,
            undo: None,
        }
    }
}

/// What a command says when it did not.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) exit: Exit,
    /// For programs.
    pub(crate) code: &'static str,
    /// What is wrong, where, and what to do. May have several lines.
    pub(crate) message: String,
    /// What people read instead, where a protocol has words of its own for programs.
    pub(crate) text: Option<String>,
    /// Whether those words say by themselves that it is an error.
    pub(crate) own_words: bool,
    pub(crate) details: Box<Value>,
}

impl Failure {
    pub(crate) fn new(exit: Exit, code: &'static str, message: impl Into<String>) -> Self {
        Self {
            exit,
            code,
            message: message.into(),
            text: None,
            own_words: false,
            details: Box::new(json!({})),
        }
    }

    pub(crate) fn text(mut self, text: impl Into<String>) -> Self {
        self.text = Some(text.into());
        self
    }

    /// People read just this, from its first letter on, as a protocol says.
    pub(crate) fn own_words(mut self, text: impl Into<String>) -> Self {
        self.own_words = true;
        self.text(text)
    }

    pub(crate) fn details(mut self, details: Value) -> Self {
        self.details = Box::new(details);
        self
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        let (exit, code) = match error.kind {
            ErrorKind::NotFound => (Exit::NotFound, "NOT_FOUND"),
            ErrorKind::Contended => (Exit::Runtime, "STORE_CONTENDED"),
            ErrorKind::Full => (Exit::Runtime, "STORE_FULL"),
            ErrorKind::ReadOnly => (Exit::Runtime, "STORE_READ_ONLY"),
            ErrorKind::NotAStore => (Exit::Runtime, "NOT_A_STORE"),
            ErrorKind::TooNew => (Exit::Runtime, "STORE_TOO_NEW"),
            ErrorKind::Damaged => (Exit::Runtime, "STORE_DAMAGED"),
            ErrorKind::Unsupported => (Exit::Usage, "UNSUPPORTED"),
            ErrorKind::OutcomeUnknown => (Exit::Runtime, "OUTCOME_UNKNOWN"),
            ErrorKind::Io => (Exit::Runtime, "IO"),
        };
        Self::new(exit, code, error.to_string())
    }
}

impl From<BadName> for Failure {
    fn from(error: BadName) -> Self {
        Self::new(Exit::Usage, "BAD_NAME", error.to_string())
    }
}

impl From<tenure::Error> for Failure {
    fn from(error: tenure::Error) -> Self {
        match error {
            tenure::Error::Store(error) => error.into(),
            tenure::Error::Task(error) => error.into(),
            tenure::Error::Name(error) => error.into(),
            tenure::Error::Ttl { .. } => Self::new(Exit::Usage, "BAD_TTL", error.to_string()),
            tenure::Error::NoProcess(_) => {
                Self::new(Exit::NotFound, "NO_PROCESS", error.to_string())
            }
            tenure::Error::HiddenProcess { .. } => {
                Self::new(Exit::NotAllowed, "HIDDEN_PROCESS", error.to_string())
            }
        }
    }
}

impl From<TaskError> for Failure {
    fn from(error: TaskError) -> Self {
        let message = error.to_string();
        match error {
            TaskError::Store(error) => error.into(),
            TaskError::NoTask(given) => Self::new(Exit::NotFound, "TASK_NOT_FOUND", message)
                .details(json!({ "task": given })),
            TaskError::NoSection(given) => Self::new(Exit::NotFound, "SECTION_NOT_FOUND", message)
                .details(json!({ "section": given })),
            TaskError::Ambiguous { given, candidates } => {
                let lines = candidates.iter().map(words::task_line).collect::<Vec<_>>();
                let message = format!(
                    "{message}: give the id of one of them\n{}",
                    lines.join("\n")
                );
                let ids: Vec<&str> = candidates.iter().map(|task| task.id.as_str()).collect();
                Self::new(Exit::Usage, "AMBIGUOUS", message)
                    .details(json!({ "task": given, "candidates": ids }))
            }
            TaskError::AmbiguousSection { given, candidates } => {
                Self::new(Exit::Usage, "AMBIGUOUS", message)
                    .details(json!({ "section": given, "candidates": candidates }))
            }
            TaskError::SectionExists(section) => {
                Self::new(Exit::Runtime, "SECTION_EXISTS", message).details(json!(section))
            }
            TaskError::BadText { .. } => Self::new(Exit::Usage, "BAD_TEXT", message),
            TaskError::Circle { .. } => Self::new(Exit::Usage, "CIRCULAR_DEPENDENCY", message),
            TaskError::Blocked { task, by } => {
                let by: Vec<&str> = by.iter().map(|task| task.id.as_str()).collect();
                Self::new(Exit::NotAllowed, "TASK_BLOCKED", message)
                    .details(json!({ "taskId": task.id, "waitsFor": by }))
            }
            TaskError::Locked { task, lease } => words::task_locked(&task, &lease),
            TaskError::Superseded { task, lease } => words::task_lost(&task, lease.as_deref()),
            TaskError::BadLines(lines) => {
                let details: Vec<Value> = lines
                    .iter()
                    .map(|line| json!({ "line": line.number, "message": line.what }))
                    .collect();
                let message = format!("nothing was imported:\n{message}");
                Self::new(Exit::Usage, "BAD_LINE", message).details(json!({ "lines": details }))
            }
        }
    }
}

impl From<tenure::ConfigError> for Failure {
    fn from(error: tenure::ConfigError) -> Self {
        Self::new(Exit::Usage, "BAD_CONFIG", error.to_string())
    }
}

impl From<tenure::BadUrl> for Failure {
    fn from(error: tenure::BadUrl) -> Self {
        Self::new(Exit::Usage, "BAD_STORE", error.to_string())
    }
}

/// Says it, and returns the exit code.
pub(crate) fn give(
    global: &Global,
    command: &str,
    subcommand: Option<&str>,
    outcome: Result<Answer, Failure>,
) -> i32 {
    match outcome {
        Ok(answer) => {
            let said = if answer.silent || (answer.text.is_empty() && !global.json) {
                Ok(())
            } else if global.json {
                say(&envelope(command, subcommand, answer.data, &Value::Null))
            } else {
                say(&answer.text)
            };
            let Err(error) = said else {
                return answer.exit.code();
            };
            // That nobody reads a list to its end is no failure.
            if error.kind() == std::io::ErrorKind::BrokenPipe {
                return answer.exit.code();
            }
            if let Some(undo) = answer.undo {
                undo();
            }
            complain(&format!("the answer could not be written ({error})"));
            Exit::Runtime.code()
        }
        Err(failure) => {
            if global.json {
                let error = json!({
                    "code": failure.code, "message": failure.message, "details": failure.details,
                });
                let _ = say(&envelope(command, subcommand, Value::Null, &error));
            } else if failure.own_words {
                let line = format!("{}\n", failure.text.unwrap_or_default());
                let _ = anstream::stderr().write_all(line.as_bytes());
            } else {
                complain(failure.text.as_ref().unwrap_or(&failure.message));
            }
            failure.exit.code()
        }
    }
}

fn envelope(command: &str, subcommand: Option<&str>, data: Value, error: &Value) -> String {
    // Written out, because the order of the fields is part of the contract.
    let envelope = Envelope {
        success: error.is_null(),
        command,
        subcommand,
        data,
        error,
    };
    serde_json::to_string_pretty(&envelope).unwrap_or_default()
}

#[derive(serde::Serialize)]
struct Envelope<'a> {
    success: bool,
    command: &'a str,
    subcommand: Option<&'a str>,
    data: Value,
    error: &'a Value,
}

/// Writes a line to stdout.
fn say(text: &str) -> std::io::Result<()> {
    let mut out = anstream::stdout().lock();
    writeln!(out, "{text}")?;
    out.flush()
}

/// Writes a line of progress to stderr, unless told to be quiet.
pub(crate) fn remark(global: &Global, text: &str) {
    if !global.quiet && !global.json {
        // In one piece: others write there too.
        let _ = anstream::stderr().write_all(format!("tenure: {text}\n").as_bytes());
    }
}

/// Writes an error to stderr.
pub(crate) fn complain(message: &str) {
    let red = Style::new().bold().fg_color(Some(AnsiColor::Red.into()));
    let line = format!("{red}Error:{red:#} {message}\n");
    let _ = anstream::stderr().write_all(line.as_bytes());
}

/// Words that could not be parsed. `--help` and `--version` come this way too.
pub(crate) fn bad_usage(error: &clap::Error) -> i32 {
    let json = std::env::args_os()
        .take_while(|arg| arg != "--")
        .any(|arg| arg == "--json");
    if error.use_stderr() && json {
        let text = error.render().to_string();
        let message = text.trim().trim_start_matches("error: ").to_owned();
        let error = json!({ "code": "USAGE", "message": message, "details": {} });
        let _ = say(&envelope("tenure", None, Value::Null, &error));
    } else {
        let _ = error.print();
    }
    if error.use_stderr() {
        Exit::Usage.code()
    } else {
        Exit::Done.code()
    }
}
