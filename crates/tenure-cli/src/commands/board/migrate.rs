//! `tenure board migrate`: sections that old task files lack.

use std::fs;

use serde_json::{Value, json};
use tenure_board::migrate::{Migrated, file_of, migrate as lacking};
use tenure_board::save::sweep;
use tenure_board::{Board, Config, Document, index, save};

use super::lock::Locked;
use super::{unsaved, unusable};
use crate::answer::{Answer, Failure, remark};
use crate::args::Global;
use crate::args::board::Lock;
use tenure::wire::ErrorCode;

pub(super) fn migrate(
    global: &Global,
    board: &Board,
    lock: &Lock,
    dry_run: bool,
) -> Result<Answer, Failure> {
    if dry_run {
        let all = find(global, board)?;
        return Ok(answer(global, &all, "would get"));
    }
    let mut locked = Locked::take(global, board, lock, "tenure board migrate")?;
    let outcome = write(global, board, &mut locked);
    locked.finish(outcome)
}

fn write(global: &Global, board: &Board, locked: &mut Locked) -> Result<Answer, Failure> {
    let _ = sweep(&board.tasks());
    let all = find(global, board)?;
    for (done, file) in all.iter().enumerate() {
        save(&file.path, &file.bytes, |step| locked.go_on(step)).map_err(|error| {
            let failure = unsaved(error);
            if done == 0 {
                return failure;
            }
            failure.also(&format!(
                "{done} of {} files had been written before",
                all.len()
            ))
        })?;
    }
    Ok(answer(global, &all, "got"))
}

/// Every file that lacks something, as it should be.
fn find(global: &Global, board: &Board) -> Result<Vec<Migrated>, Failure> {
    let config = Config::read(&board.config()).map_err(|error| unusable(&error))?;
    let entries = index::read(&board.index()).map_err(|error| unusable(&error))?;
    let entries = entries.ok_or_else(|| {
        let message = format!(
            "there is no index {}: it is what old task files are completed from",
            board.index().display()
        );
        Failure::new(ErrorCode::NoIndex, message)
    })?;
    let mut all: Vec<Migrated> = Vec::new();
    for entry in &entries {
        let path = file_of(entry).map(|id| board.tasks().join(format!("{id}.md")));
        let read = path.map(|path| (fs::read(&path), path));
        let Some((Ok(bytes), path)) = read else {
            remark(
                global,
                &format!("{:?} is no task file: left out", entry.link),
            );
            continue;
        };
        if all.iter().any(|other| other.path == path) {
            continue;
        }
        all.extend(lacking(path, &Document::parse(&bytes), entry, &config));
    }
    Ok(all)
}

fn answer(global: &Global, all: &[Migrated], done: &str) -> Answer {
    let sections = |file: &Migrated| -> Vec<&str> {
        file.added.iter().map(|section| section.name()).collect()
    };
    let data: Vec<Value> = all
        .iter()
        .map(|file| json!({ "file": file.path, "added": sections(file) }))
        .collect();
    let line = |file: &Migrated| {
        format!(
            "{} {done} {}",
            file.path.display(),
            sections(file).join(", ")
        )
    };
    let text = match (global.quiet, all.is_empty()) {
        (true, _) => String::new(),
        (false, true) => "No task file lacks anything.".to_owned(),
        (false, false) => all.iter().map(line).collect::<Vec<_>>().join("\n"),
    };
    Answer::new(json!({ "changed": all.len(), "files": data }), text)
}
