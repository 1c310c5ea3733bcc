//! `tenure board rebuild-index`: the index, derived from the tasks.

use tenure::protocols::board::save::sweep;
use tenure::protocols::board::{
    Board, Config, FieldValue, Replaces, Saved, Task, index, load, read_file,
};
use tenure::wire::{BoardIndexJson, ErrorCode};

use super::lock::BoardLock;
use super::{count, unusable};
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
        let rebuilt = RebuiltIndex::of(board)?;
        return Ok(rebuilt.answer(global, board, "would change"));
    }
    let command = "tenure board rebuild-index --write";
    let mut locked = BoardLock::take(global, board, lock, command)?;
    let outcome = write(global, board, &mut locked);
    locked.finish(outcome)
}

/// Reads and writes under the lock: an edit in between would be missing from the index.
fn write(global: &Global, board: &Board, locked: &mut BoardLock) -> Result<Answer, Failure> {
    for folder in [board.tasks(), board.folder().to_owned()] {
        // Leftovers do no harm, so a failure is no reason to stop.
        let _ = sweep(&folder);
    }
    let rebuilt = RebuiltIndex::of(board)?;
    if rebuilt.changed {
        // It is derived from the tasks alone.
        let (Saved::Done | Saved::Changed) =
            locked.save(&board.index(), rebuilt.text.as_bytes(), Replaces::Anything)?;
    }
    Ok(rebuilt.answer(global, board, "was written"))
}

/// The index as the tasks define it.
struct RebuiltIndex {
    text: String,
    tasks: usize,
    changed: bool,
    warnings: Vec<String>,
}

impl RebuiltIndex {
    fn of(board: &Board) -> Result<Self, Failure> {
        let config = Config::read(&board.config()).map_err(|error| unusable(&error))?;
        let tasks = load::tasks(board, &config).map_err(|error| unusable(&error))?;
        if let Some(untitled) = tasks.iter().find(|task| task.title.is_empty()) {
            let message = format!(
                "{}:1: the first line is not a title: write \"# Title\" there; the index is unchanged",
                untitled.path.display()
            );
            return Err(Failure::new(ErrorCode::BoardInvalid, message));
        }
        let text = index::render(&tasks);
        let old = read_file(&board.index()).ok();
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
        let data = BoardIndexJson {
            index: path.display().to_string(),
            tasks: self.tasks,
            changed: self.changed,
            warnings: self.warnings,
        };
        Answer::new(data, text)
    }
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
