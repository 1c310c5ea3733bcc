//! `tenure board set-status` and `set-priority`: one value of one task.

use std::io;
use std::path::PathBuf;

use serde_json::json;
use tenure::protocols::board::load::{Lookup, find_task};
use tenure::protocols::board::{
    Board, Config, Document, Level, Replaces, Saved, Section, Vocabulary, edit, read_file,
};
use tenure::wire::{BoardSetJson, ErrorCode};

use super::lock::{ATTEMPTS, BoardLock};
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
    let config = Config::read(&board.config())?;
    let value = resolve_value(&config, section, value)?;
    let (id, path) = resolve_task(board, task)?;
    let verb = format!("set-{}", section.name().to_lowercase());
    let command = format!("tenure board {verb} {} {value}", words::quoted(&id));
    let name = section.name().to_lowercase();
    BoardLock::hold(global, board, lock, &command, |locked| {
        for _ in 0..ATTEMPTS {
            let bytes = read_file(&path).map_err(|error| {
                if error.kind() == io::ErrorKind::NotFound {
                    return not_found(&id);
                }
                let message = format!("{} can't be read ({error})", path.display());
                Failure::new(ErrorCode::Io, message)
            })?;
            let document = Document::parse(&bytes);
            let edited = edit::set(&document, section, &value).map_err(|error| {
                let message = format!("{}: {error}", path.display());
                Failure::new(ErrorCode::NoSection, message)
            })?;
            let changed = edited != bytes;
            if changed && locked.save(&path, &edited, Replaces::Exactly(&bytes))? == Saved::Changed
            {
                continue;
            }
            let before = document.value(section);
            let text = match &before {
                _ if !changed => format!("{id}: {name} is already {value}"),
                Some(before) => format!("{id}: {name} {} -> {value}", before.trim()),
                None => format!("{id}: {name} {value}"),
            };
            let data = BoardSetJson {
                task: id.clone(),
                file: path.display().to_string(),
                section: name.clone(),
                from: before.as_deref().map(str::to_owned),
                to: value.clone(),
                changed,
            };
            return Ok(Answer::confirmed(global, data, text));
        }
        Err(locked.keeps_changing(&path))
    })
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
    match find_task(board, task)? {
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
