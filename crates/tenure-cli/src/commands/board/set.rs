//! `tenure board set-status` and `set-priority`: one value of one task.

use std::fs;
use std::io;
use std::path::PathBuf;

use serde_json::json;
use tenure_board::load::{Sought, seek};
use tenure_board::{Board, Config, Document, Level, Section, edit, save};

use super::lock::Locked;
use super::{unsaved, unusable};
use crate::answer::{Answer, Failure};
use crate::args::Global;
use crate::args::board::Lock;
use crate::words;
use tenure::wire::ErrorCode;

pub(super) fn set(
    global: &Global,
    board: &Board,
    lock: &Lock,
    task: &str,
    section: Section,
    value: &str,
) -> Result<Answer, Failure> {
    // What was typed wrong is told before anybody waits.
    let config = Config::read(&board.config()).map_err(|error| unusable(&error))?;
    let value = meant(&config, section, value)?;
    let (id, path) = sought(board, task)?;
    let verb = format!("set-{}", section.name().to_lowercase());
    let doing = format!("tenure board {verb} {} {value}", words::quoted(&id));
    let mut locked = Locked::take(global, board, lock, &doing)?;
    let outcome = change(global, &mut locked, section, &value, &id, &path);
    locked.finish(outcome)
}

/// Reads, changes and writes, all under the lock.
fn change(
    global: &Global,
    locked: &mut Locked,
    section: Section,
    value: &str,
    id: &str,
    path: &PathBuf,
) -> Result<Answer, Failure> {
    let bytes = fs::read(path).map_err(|error| match error.kind() {
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
    if changed {
        save(path, &edited, |step| locked.go_on(step)).map_err(unsaved)?;
    }
    let name = section.name().to_lowercase();
    let data = json!({
        "task": id, "file": path, "section": name, "from": before, "to": value, "changed": changed,
    });
    let text = match (&before, changed) {
        _ if global.quiet => String::new(),
        (_, false) => format!("{id}: {name} is {value} already"),
        (Some(before), true) => format!("{id}: {name} {before} -> {value}"),
        (None, true) => format!("{id}: {name} {value}"),
    };
    Ok(Answer::new(data, text))
}

fn meant(config: &Config, section: Section, value: &str) -> Result<String, Failure> {
    let (level, all) = if section == Section::Status {
        (config.status(value), config.statuses())
    } else {
        (config.priority(value), config.priorities())
    };
    level.map(|level| level.name.clone()).ok_or_else(|| {
        let name = section.name().to_lowercase();
        let message = format!(
            "there is no {name} {value:?}: config.json knows {}",
            Level::names(all)
        );
        Failure::new(ErrorCode::UnknownValue, message)
    })
}

fn sought(board: &Board, task: &str) -> Result<(String, PathBuf), Failure> {
    match seek(board, task).map_err(|error| unusable(&error))? {
        Sought::One(id, path) => Ok((id, path)),
        Sought::Nothing => Err(not_found(task)),
        Sought::Several(ids) => {
            let message = format!(
                "several tasks begin with {task:?}: give the id of one of them\n  {}",
                ids.join("\n  ")
            );
            Err(Failure::new(ErrorCode::Ambiguous, message)
                .details(json!({ "task": task, "candidates": ids })))
        }
    }
}

fn not_found(task: &str) -> Failure {
    let message = format!("there is no task {task:?}: see tenure board list");
    Failure::new(ErrorCode::TaskNotFound, message).details(json!({ "task": task }))
}
