//! `tenure board rebuild-index`: the index, derived from the tasks.

use tenure::protocols::board::save::sweep;
use tenure::protocols::board::{
    Board, Config, FieldValue, Replaces, Saved, Task, index, load, read_file,
};
use tenure::wire::{BoardIndexJson, ErrorCode};

use super::count;
use super::lock::BoardLock;
use crate::answer::{Answer, Failure, remark};
use crate::args::Global;
use crate::args::board::LockOptions;

pub(super) fn rebuild(
    global: &Global,
    board: &Board,
    lock: &LockOptions,
    dry_run: bool,
) -> Result<Answer, Failure> {
    if dry_run {
        return Ok(answer(global, rendered(board)?.1, "would change"));
    }
    let command = "tenure board rebuild-index --write";
    // Reads under the lock, too: an edit in between would be missing from the index.
    BoardLock::hold(global, board, lock, command, |locked| {
        for folder in [board.tasks(), board.folder().to_owned()] {
            // Leftovers do no harm, so a failure is no reason to stop.
            let _ = sweep(&folder);
        }
        let (text, index) = rendered(board)?;
        if index.changed {
            // It is derived from the tasks alone.
            let (Saved::Done | Saved::Changed) =
                locked.save(&board.index(), text.as_bytes(), Replaces::Anything)?;
        }
        Ok(answer(global, index, "was written"))
    })
}

/// The index as the tasks define it, and what there is to say of it.
fn rendered(board: &Board) -> Result<(String, BoardIndexJson), Failure> {
    let config = Config::read(&board.config())?;
    let tasks = load::tasks(board, &config)?;
    if let Some(untitled) = tasks.iter().find(|task| task.title.is_empty()) {
        let message = format!(
            "{}:1: the first line is not a title: write \"# Title\" there; the index is unchanged",
            untitled.path.display()
        );
        return Err(Failure::new(ErrorCode::BoardInvalid, message));
    }
    let text = index::render(&tasks);
    let old = read_file(&board.index()).ok();
    let data = BoardIndexJson {
        index: board.index().display().to_string(),
        tasks: tasks.len(),
        changed: old.as_deref() != Some(text.as_bytes()),
        warnings: tasks.iter().flat_map(warnings).collect(),
    };
    Ok((text, data))
}

fn answer(global: &Global, index: BoardIndexJson, done: &str) -> Answer {
    for warning in &index.warnings {
        remark(global, warning);
    }
    let done = if index.changed { done } else { "is up to date" };
    let text = format!("{} {done}: {}", index.index, count(index.tasks, "task"));
    Answer::confirmed(global, index, text)
}

/// Where the index differs from the file: values that are missing or not defined.
fn warnings(task: &Task) -> Vec<String> {
    let fields = [
        ("status", &task.status),
        ("priority", &task.priority),
        ("kind", &task.kind),
    ];
    let link = task.link();
    let untitled = (!task.has_title_heading).then(|| {
        format!(
            "{link}: the first line has no \"# \": the index has all of it as the title, {:?}",
            task.title
        )
    });
    let values = fields.into_iter().filter_map(|(name, value)| match value {
        FieldValue::Known(_) => None,
        FieldValue::Unknown { text, default } => Some(format!(
            "{link}: unknown {name} {text:?}: the index says {default}"
        )),
        FieldValue::Missing(default) => {
            Some(format!("{link}: no {name}: the index says {default}"))
        }
    });
    untitled.into_iter().chain(values).collect()
}
