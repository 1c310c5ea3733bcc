//! `tenure daemon logs`

use std::io::{self, ErrorKind, Write};
use std::path::{Path, PathBuf};

use anstyle::Style;
use tenure_daemon::DaemonState;
use tenure_daemon::lock::folder_of;
use tenure_daemon::tail::LogTail;

use super::{absolute, project};
use crate::answer::{Answer, Failure, printed, to_value};
use crate::args::Global;
use crate::args::daemon::Logs;
use tenure::text::flat;
use tenure::wire::{DaemonLogJson, ErrorCode, LogLineJson};

pub(super) fn logs(global: &Global, asked: &Logs) -> Result<Answer, Failure> {
    let path = path(asked)?;
    let (lines, tail) =
        LogTail::open(&path, asked.lines).map_err(|error| unreadable(&path, &error))?;
    if asked.follow {
        return follow(global, &path, lines, tail);
    }
    let data = DaemonLogJson {
        log: path.display().to_string(),
        lines: lines.iter().map(|line| object(line)).collect(),
    };
    let shown: Vec<String> = lines.iter().map(|line| shown(line)).collect();
    Ok(Answer::new(data, shown.join("\n")).styled())
}

/// The log that was given, or that of the daemon that runs or ran last.
fn path(asked: &Logs) -> Result<PathBuf, Failure> {
    if let Some(named) = absolute(asked.log.as_deref())? {
        return Ok(named);
    }
    let project = project()?;
    let folder = &folder_of(&project);
    let default = folder.join(tenure_daemon::log::FILE);
    let state = DaemonState::read(folder).ok().flatten();
    Ok(state.map_or(default, |state| state.log()))
}

fn follow(
    global: &Global,
    path: &Path,
    mut lines: Vec<String>,
    mut tail: LogTail,
) -> Result<Answer, Failure> {
    loop {
        let written = print(global, &lines);
        if written.is_err() {
            return printed(written, "the log could not be printed");
        }
        LogTail::pause();
        lines = tail.read_new().map_err(|error| unreadable(path, &error))?;
    }
}

fn print(global: &Global, lines: &[String]) -> io::Result<()> {
    let mut out = anstream::stdout().lock();
    for line in lines {
        if global.json {
            writeln!(out, "{}", to_value(&object(line)))?;
        } else {
            writeln!(out, "{}", shown(line))?;
        }
    }
    out.flush()
}

/// Splits a line into its time and its text.
fn parts(line: &str) -> Option<(&str, &str)> {
    let (at, text) = line.split_once(' ')?;
    at.parse::<jiff::Timestamp>().ok().map(|_| (at, text))
}

fn object(line: &str) -> LogLineJson {
    let parts = parts(line);
    LogLineJson {
        at: parts.map(|(at, _)| at.to_owned()),
        text: parts.map_or(line, |(_, text)| text).to_owned(),
    }
}

fn shown(line: &str) -> String {
    let dim = Style::new().dimmed();
    match parts(line) {
        Some((at, text)) => format!("{dim}{at}{dim:#} {}", flat(text)),
        None => flat(line),
    }
}

fn unreadable(path: &Path, error: &io::Error) -> Failure {
    let path = path.display();
    if error.kind() == ErrorKind::NotFound {
        let message = format!(
            "there is no log {path}: the daemon has not run yet, or was started with --log"
        );
        return Failure::new(ErrorCode::NoLog, message);
    }
    let message = format!("the log {path} can't be read ({error})");
    Failure::new(ErrorCode::Io, message)
}
