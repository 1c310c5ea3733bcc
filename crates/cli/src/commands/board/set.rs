//! `tenure board set-status` and `set-priority`: one value of one task.

use std::io;
use std::path::{Path, PathBuf};

use serde_json::json;
use tenure::protocols::board::load::{Lookup, find_task};
use tenure::protocols::board::{
    Board, Config, Document, Level, Replaces, Saved, Section, Vocabulary, edit, read_file,
};
use tenure::wire::{BoardSetJson, ErrorCode};

use super::lock::{ATTEMPTS, BoardLock};
use super::unusable;
use crate::answer::{Answer, Failure};
use crate::args::Global;
use crate::args::board::LockOptions;
use crate::words;

pub(super) fn set(
    global: &Global,
    board: &Board,
    lock: &LockOptions,
    task: &str,
    section: Section,
    value: &str,
) -> Result<Answer, Failure> {
    // Typing errors are reported before the command waits for the lock.
    let config = Config::read(&board.config()).map_err(|error| unusable(&error))?;
    let value = resolve_value(&config, section, value)?;
    let (id, path) = resolve_task(board, task)?;
    let verb = format!("set-{}", section.name().to_lowercase());
    let command = format!("tenure board {verb} {} {value}", words::quoted(&id));
    let mut locked = BoardLock::take(global, board, lock, &command)?;
    let outcome = change(global, &mut locked, section, &value, &id, &path);
    locked.finish(outcome)
}

/// Reads, edits and writes under the lock.
fn change(
    global: &Global,
    locked: &mut BoardLock,
    section: Section,
    value: &str,
    id: &str,
    path: &Path,
) -> Result<Answer, Failure> {
    for _ in 0..ATTEMPTS {
        if let Some(answer) = attempt(global, locked, section, value, id, path)? {
            return Ok(answer);
        }
    }
    Err(locked.keeps_changing(path))
}

/// One attempt; `None` if another program saved the file meanwhile.
fn attempt(
    global: &Global,
    locked: &mut BoardLock,
    section: Section,
    value: &str,
    id: &str,
    path: &Path,
) -> Result<Option<Answer>, Failure> {
    let bytes = read_file(path).map_err(|error| match error.kind() {
        io::ErrorKind::NotFound => not_found(id),
        _ => Failure::new(
            ErrorCode::Io,
            format!("{} can't be read ({error})", path.display()),
        ),
    })?;
    let document = Document::parse(&bytes);
    let edited = edit::set(&document, section, value).map_err(|error| {
        let message = format!("{}: {error}", path.display());
        Failure::new(ErrorCode::NoSection, message)
    })?;
    let before = document.value(section);
    let changed = edited != bytes;
    if changed && locked.save(path, &edited, Replaces::Exactly(&bytes))? == Saved::Changed {
        return Ok(None);
    }
    let name = section.name().to_lowercase();
    let data = BoardSetJson {
        task: id.to_owned(),
        file: path.display().to_string(),
        section: name.clone(),
        from: before.as_deref().map(str::to_owned),
        to: value.to_owned(),
        changed,
    };
    let text = match (&before, changed) {
        _ if global.quiet => String::new(),
        (_, false) => format!("{id}: {name} is already {value}"),
        (Some(before), true) => format!("{id}: {name} {} -> {value}", before.trim()),
        (None, true) => format!("{id}: {name} {value}"),
    };
    Ok(Some(Answer::new(data, text)))
}

fn resolve_value(config: &Config, section: Section, value: &str) -> Result<String, Failure> {
    let of = if section == Section::Status {
        Vocabulary::Status
    } else {
        Vocabulary::Priority
    };
    let level = config.typed(of, value);
    level.map(|level| level.name.clone()).ok_or_else(|| {
        let name = section.name().to_lowercase();
        let message = format!(
            "unknown {name} {value:?}: config.json defines {}",
            Level::names(config.levels(of))
        );
        Failure::new(ErrorCode::UnknownValue, message)
    })
}

fn resolve_task(board: &Board, task: &str) -> Result<(String, PathBuf), Failure> {
    match find_task(board, task).map_err(|error| unusable(&error))? {
        Lookup::One(id, path) => Ok((id, path)),
        Lookup::NotFound => Err(not_found(task)),
        Lookup::Ambiguous(ids) => {
            let message = format!(
                "several task ids begin with {task:?}: name one of them\n  {}",
                ids.join("\n  ")
            );
            Err(Failure::new(ErrorCode::Ambiguous, message)
                .details(json!({ "task": task, "candidates": ids })))
        }
    }
}

fn not_found(task: &str) -> Failure {
    let message = format!("no task {task:?}: tenure board list shows all of them");
    Failure::new(ErrorCode::TaskNotFound, message).details(json!({ "task": task }))
}
