//! `tenure board migrate`: adds the sections that old task files lack.

use tenure::protocols::board::migrate::{MigratedFile, file_of, migrate as add_missing};
use tenure::protocols::board::save::sweep;
use tenure::protocols::board::{
    Board, BoardError, Config, Document, Replaces, Saved, index, load, read_file,
};
use tenure::wire::{BoardMigrationJson, ErrorCode, MigratedFileJson};

use super::lock::{ATTEMPTS, BoardLock};
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
    BoardLock::hold(global, board, lock, "tenure board migrate", |locked| {
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
    })
}

/// Every file that lacks a section, with its sections added.
fn find(global: &Global, board: &Board) -> Result<Vec<MigratedFile>, Failure> {
    let config = Config::read(&board.config())?;
    let entries = index::read(&board.index())?;
    let entries = entries.ok_or_else(|| {
        let message = format!(
            "there is no index {}: migrate takes the missing values from it",
            board.index().display()
        );
        Failure::new(ErrorCode::NoIndex, message)
    })?;
    // The index can't name such a file, so it would be left out.
    let names = load::names(board)?;
    if let Some(path) = names.badly_named.into_iter().next() {
        return Err(BoardError::BadName(path).into());
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
    let mut lines = Vec::new();
    let mut data = BoardMigrationJson {
        changed: all.len(),
        files: Vec::new(),
    };
    for MigratedFile { path, added, .. } in all {
        let (file, added) = (path.display(), added.iter());
        let added: Vec<String> = added.map(|section| section.name().to_owned()).collect();
        lines.push(format!("{file} {done} {}", added.join(", ")));
        let file = file.to_string();
        data.files.push(MigratedFileJson { file, added });
    }
    if lines.is_empty() {
        lines.push("No task file lacks a section.".to_owned());
    }
    Answer::confirmed(global, data, lines.join("\n"))
}
