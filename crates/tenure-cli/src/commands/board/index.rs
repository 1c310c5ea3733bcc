//! `tenure board rebuild-index`: the index, made anew from the tasks.

use std::fs;

use serde_json::json;
use tenure_board::save::sweep;
use tenure_board::task::Value;
use tenure_board::{Board, Config, Task, index, load, save};

use super::lock::Locked;
use super::{count, unsaved, unusable};
use crate::answer::{Answer, Failure, remark};
use crate::args::Global;
use crate::args::board::Lock;
use tenure::wire::ErrorCode;

pub(super) fn rebuild(
    global: &Global,
    board: &Board,
    lock: &Lock,
    dry_run: bool,
) -> Result<Answer, Failure> {
    if dry_run {
        let made = Made::of(board)?;
        return Ok(made.answer(global, board, "would change"));
    }
    let doing = "tenure board rebuild-index --write";
    let mut locked = Locked::take(global, board, lock, doing)?;
    let outcome = write(global, board, &mut locked);
    locked.finish(outcome)
}

/// Reads and writes, all under the lock: an edit made in between would be missing from the index.
fn write(global: &Global, board: &Board, locked: &mut Locked) -> Result<Answer, Failure> {
    for folder in [board.tasks(), board.folder().to_owned()] {
        // What is left there does no harm.
        let _ = sweep(&folder);
    }
    let made = Made::of(board)?;
    if made.changed {
        let path = board.index();
        save(&path, made.text.as_bytes(), |step| locked.go_on(step)).map_err(unsaved)?;
    }
    Ok(made.answer(global, board, "was written"))
}

/// The index as it should be.
struct Made {
    text: String,
    tasks: usize,
    changed: bool,
    warnings: Vec<String>,
}

impl Made {
    fn of(board: &Board) -> Result<Self, Failure> {
        let config = Config::read(&board.config()).map_err(|error| unusable(&error))?;
        let tasks = load::tasks(board, &config).map_err(|error| unusable(&error))?;
        if let Some(nameless) = tasks.iter().find(|task| task.title.is_empty()) {
            let message = format!(
                "{}:1: the first line is no title: write \"# Title\" there; the index is as it was",
                nameless.path.display()
            );
            return Err(Failure::new(ErrorCode::BoardInvalid, message));
        }
        let text = index::render(&tasks);
        let old = fs::read(board.index()).ok();
        Ok(Self {
            changed: old.as_deref() != Some(text.as_bytes()),
            text,
            tasks: tasks.len(),
            warnings: tasks.iter().flat_map(warnings).collect(),
        })
    }

    fn answer(self, global: &Global, board: &Board, done: &str) -> Answer {
        for warning in &self.warnings {
            remark(global, warning);
        }
        let path = board.index();
        let text = match (global.quiet, self.changed) {
            (true, _) => String::new(),
            (false, true) => format!("{} {done}: {}", path.display(), count(self.tasks, "task")),
            (false, false) => format!(
                "{} is up to date: {}",
                path.display(),
                count(self.tasks, "task")
            ),
        };
        let data = json!({
            "index": path, "tasks": self.tasks, "changed": self.changed, "warnings": self.warnings,
        });
        Answer::new(data, text)
    }
}

/// What the index says other than the file.
fn warnings(task: &Task) -> Vec<String> {
    let fields = [
        ("status", &task.status),
        ("priority", &task.priority),
        ("kind", &task.kind),
    ];
    let link = task.link();
    fields
        .into_iter()
        .filter_map(|(name, value)| match value {
            Value::Known(_) => None,
            Value::Unknown { said, instead } => Some(format!(
                "{link}: unknown {name} {said:?}: the index says {instead}"
            )),
            Value::Missing(instead) => Some(format!("{link}: no {name}: the index says {instead}")),
        })
        .collect()
}
