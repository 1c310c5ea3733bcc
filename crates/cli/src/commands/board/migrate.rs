//! `tenure board migrate`: adds the sections that old task files lack.

use tenure::protocols::board::migrate::{MigratedFile, file_of, migrate as add_missing};
use tenure::protocols::board::save::sweep;
use tenure::protocols::board::{
    Board, BoardError, Config, Document, Replaces, Saved, index, load, read_file,
};
use tenure::wire::{BoardMigrationJson, ErrorCode, MigratedFileJson};

use super::lock::{ATTEMPTS, BoardLock};
use super::unusable;
use crate::answer::{Answer, Failure, remark};
use crate::args::Global;
use crate::args::board::LockOptions;

pub(super) fn migrate(
    global: &Global,
    board: &Board,
    lock: &LockOptions,
    dry_run: bool,
) -> Result<Answer, Failure> {
    if dry_run {
        let all = find(global, board)?;
        return Ok(answer(global, &all, "would get"));
    }
    let mut locked = BoardLock::take(global, board, lock, "tenure board migrate")?;
    let outcome = write(global, board, &mut locked);
    locked.finish(outcome)
}

fn write(global: &Global, board: &Board, locked: &mut BoardLock) -> Result<Answer, Failure> {
    let _ = sweep(&board.tasks());
    let mut done: Vec<MigratedFile> = Vec::new();
    let mut left = find(global, board)?;
    for _ in 0..ATTEMPTS {
        for file in left {
            match locked.save(&file.path, &file.bytes, Replaces::Exactly(&file.old))? {
                Saved::Done => done.push(file),
                Saved::Changed => {}
            }
        }
        // What another program saved meanwhile.
        left = find(global, board)?;
        if left.is_empty() {
            return Ok(answer(global, &done, "got"));
        }
    }
    Err(locked.keeps_changing(&board.tasks()))
}

/// Every file that lacks a section, with its sections added.
fn find(global: &Global, board: &Board) -> Result<Vec<MigratedFile>, Failure> {
    let config = Config::read(&board.config()).map_err(|error| unusable(&error))?;
    let entries = index::read(&board.index()).map_err(|error| unusable(&error))?;
    let entries = entries.ok_or_else(|| {
        let message = format!(
            "there is no index {}: migrate takes the missing values from it",
            board.index().display()
        );
        Failure::new(ErrorCode::NoIndex, message)
    })?;
    // The index can't name such a file, so it would be left out.
    let names = load::names(board).map_err(|error| unusable(&error))?;
    if let Some(path) = names.badly_named.into_iter().next() {
        return Err(unusable(&BoardError::BadName(path)));
    }
    let mut all: Vec<MigratedFile> = Vec::new();
    for entry in &entries {
        let path = file_of(entry).map(|id| board.tasks().join(format!("{id}.md")));
        let read = path.map(|path| (read_file(&path), path));
        let Some((Ok(bytes), path)) = read else {
            remark(
                global,
                &format!("{:?} in the index is not a task file: skipped", entry.link),
            );
            continue;
        };
        if all.iter().any(|other| other.path == path) {
            continue;
        }
        all.extend(add_missing(path, &Document::parse(&bytes), entry, &config));
    }
    Ok(all)
}

fn answer(global: &Global, all: &[MigratedFile], done: &str) -> Answer {
    let sections = |file: &MigratedFile| -> Vec<&str> {
        file.added.iter().map(|section| section.name()).collect()
    };
    let files = all.iter().map(|file| MigratedFileJson {
        file: file.path.display().to_string(),
        added: sections(file).into_iter().map(str::to_owned).collect(),
    });
    let data = BoardMigrationJson {
        changed: all.len(),
        files: files.collect(),
    };
    let line = |file: &MigratedFile| {
        format!(
            "{} {done} {}",
            file.path.display(),
            sections(file).join(", ")
        )
    };
    let text = match (global.quiet, all.is_empty()) {
        (true, _) => String::new(),
        (false, true) => "No task file lacks a section.".to_owned(),
        (false, false) => all.iter().map(line).collect::<Vec<_>>().join("\n"),
    };
    Answer::new(data, text)
}
