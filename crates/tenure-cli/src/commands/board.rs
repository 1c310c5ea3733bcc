//! `tenure board`: tasks that are Markdown files.
//!
//! | file | what it holds |
//! |---|---|
//! | `board/list.rs` | the tasks, as a table or by status |
//! | `board/kanban.rs` | what the latter looks like |
//! | `board/lock.rs` | holding the lock, and being told to stop under it |
//! | `board/set.rs` | one value of one task |
//! | `board/index.rs` | the index, made anew |
//! | `board/migrate.rs` | sections that old files lack |

mod index;
mod kanban;
mod list;
mod lock;
mod migrate;
mod set;

use serde_json::{Value, json};
use tenure::plural::count;
use tenure::wire::ErrorCode;
use tenure_board::validate::{Report, validate};
use tenure_board::{Board as Place, BoardError, Problem, SaveError, Section};

use crate::answer::{Answer, Failure};
use crate::args::Global;
use crate::args::board::{Board, Place as Named};
use crate::context;

pub(crate) fn board(global: &Global, board: Board) -> Result<Answer, Failure> {
    if global.store.is_some() {
        let message =
            "tenure board has its own store, the board's lock: name its folder with --dir";
        return Err(Failure::new(ErrorCode::Usage, message));
    }
    match board {
        Board::List {
            view,
            filter,
            filter_value,
            place,
        } => list::list(global, &find(&place)?, view, filter.zip(filter_value)),
        Board::Validate { place } => look_for_problems(&find(&place)?),
        Board::SetStatus { task, status, lock } => {
            let board = find(&lock.place)?;
            set::set(global, &board, &lock, &task, Section::Status, &status)
        }
        Board::SetPriority {
            task,
            priority,
            lock,
        } => {
            let board = find(&lock.place)?;
            set::set(global, &board, &lock, &task, Section::Priority, &priority)
        }
        Board::RebuildIndex { how, lock } => {
            index::rebuild(global, &find(&lock.place)?, &lock, how.dry_run)
        }
        Board::Migrate { dry_run, lock } => {
            migrate::migrate(global, &find(&lock.place)?, &lock, dry_run)
        }
    }
}

/// The board that is meant.
fn find(named: &Named) -> Result<Place, Failure> {
    let start = context::start()?;
    if let Some(folder) = &named.folder {
        return Place::at(&start.join(folder)).map_err(|error| {
            let message = format!("--dir {}: {error}", folder.display());
            Failure::new(ErrorCode::NoBoard, message)
        });
    }
    Place::find(&start).ok_or_else(|| {
        let message = format!(
            "no .bilu/board and no src/board in {} or any folder above it: go to the project, or name the board's folder with --dir",
            start.display()
        );
        Failure::new(ErrorCode::NoBoard, message)
    })
}

/// A board that can't be worked with.
fn unusable(error: &BoardError) -> Failure {
    let code = match error {
        BoardError::Unreadable { .. } => ErrorCode::Io,
        BoardError::BadConfig { .. } => ErrorCode::BadBoardConfig,
        BoardError::BadIndex { .. } => ErrorCode::BadIndex,
    };
    Failure::new(code, error.to_string())
}

/// A file that was not written.
fn unsaved(error: SaveError<Failure>) -> Failure {
    match error {
        SaveError::Stopped(failure) => failure,
        SaveError::Io { .. } => Failure::new(ErrorCode::Io, error.to_string()),
    }
}

fn look_for_problems(board: &Place) -> Result<Answer, Failure> {
    let Report { tasks, problems } = validate(board).map_err(|error| unusable(&error))?;
    if problems.is_empty() {
        let data = json!({ "board": board.folder(), "tasks": tasks, "problems": [] });
        return Ok(Answer::new(
            data,
            format!("The board is fine: {}.", count(tasks, "task")),
        ));
    }
    let start = context::start()?;
    let line = |problem: &Problem| {
        // As it has to be typed here.
        let path = problem.path.strip_prefix(&start).unwrap_or(&problem.path);
        format!("{}:{}: {}", path.display(), problem.line, problem.what)
    };
    let lines: Vec<String> = problems.iter().map(line).collect();
    let told: Vec<Value> = problems
        .iter()
        .map(|problem| {
            json!({
                "file": problem.path, "line": problem.line,
                "problem": problem.flaw.word(), "message": problem.what,
            })
        })
        .collect();
    let found = format!(
        "{} in {}",
        count(problems.len(), "problem"),
        count(tasks, "task")
    );
    let text = format!("{}\ntenure board: error: {found}", lines.join("\n"));
    Err(Failure::new(ErrorCode::BoardInvalid, found)
        .verbatim(text)
        .details(json!({ "board": board.folder(), "tasks": tasks, "problems": told })))
}
