//! `tenure board`: tasks as Markdown files.
//!
//! | file | what it holds |
//! |---|---|
//! | `board/list.rs` | `list`: the tasks, as a table or by status |
//! | `board/kanban.rs` | the layout of `list --view kanban` |
//! | `board/lock.rs` | holding the lock, and stopping on a signal |
//! | `board/set.rs` | `set-status`, `set-priority`: one value of one task |
//! | `board/index.rs` | `rebuild-index` |
//! | `board/migrate.rs` | `migrate`: sections that old files lack |

mod index;
mod kanban;
mod list;
mod lock;
mod migrate;
mod set;

use tenure::protocols::board::validate::{Validation, validate};
use tenure::protocols::board::{Board, BoardError, Problem, Section, Severity};
use tenure::text::plural::count;
use tenure::wire::{BoardProblemJson, BoardValidationJson, ErrorCode};

use crate::answer::{Answer, Failure};
use crate::args::Global;
use crate::args::board::{Board as Command, BoardDir};
use crate::context;

pub(crate) fn board(global: &Global, command: Command) -> Result<Answer, Failure> {
    let why = "tenure board uses the board's own lock and takes no --store: name the board's folder with --dir";
    context::refuse_option(global, why)?;
    match command {
        Command::List {
            view,
            filter,
            filter_value,
            dir,
        } => list::list(global, &find(&dir)?, view, filter.zip(filter_value)),
        Command::Validate { strict, dir } => report_problems(&find(&dir)?, strict),
        Command::SetStatus { task, status, lock } => {
            let board = find(&lock.dir)?;
            set::set(global, &board, &lock, &task, Section::Status, &status)
        }
        Command::SetPriority {
            task,
            priority,
            lock,
        } => {
            let board = find(&lock.dir)?;
            set::set(global, &board, &lock, &task, Section::Priority, &priority)
        }
        Command::RebuildIndex { mode, lock } => {
            index::rebuild(global, &find(&lock.dir)?, &lock, mode.dry_run)
        }
        Command::Migrate { dry_run, lock } => {
            migrate::migrate(global, &find(&lock.dir)?, &lock, dry_run)
        }
    }
}

/// The board that the command is about.
fn find(named: &BoardDir) -> Result<Board, Failure> {
    let start = context::start()?;
    if let Some(folder) = &named.folder {
        return Board::at(&start.join(folder)).map_err(|error| {
            let message = format!("--dir {}: {error}", folder.display());
            Failure::new(ErrorCode::NoBoard, message)
        });
    }
    let found = Board::find(&start).ok_or_else(|| {
        let message = format!(
            "no .bilu/board or src/board in {} or any folder above it: change to the project, or name the board's folder with --dir",
            start.display()
        );
        Failure::new(ErrorCode::NoBoard, message)
    })?;
    found.map_err(|error| Failure::new(ErrorCode::NoBoard, error.to_string()))
}

impl From<BoardError> for Failure {
    fn from(error: BoardError) -> Self {
        let code = match error {
            BoardError::Unreadable { .. } => ErrorCode::Io,
            BoardError::BadName(_) => ErrorCode::BoardInvalid,
            BoardError::TwoStorages { .. } => ErrorCode::Ambiguous,
            BoardError::BadConfig { .. } => ErrorCode::BadBoardConfig,
            BoardError::BadIndex { .. } => ErrorCode::BadIndex,
        };
        Self::new(code, error.to_string())
    }
}

/// Errors make the command fail; warnings do so only if `strict`.
fn report_problems(board: &Board, strict: bool) -> Result<Answer, Failure> {
    let Validation { tasks, problems } = validate(board)?;
    let listed = problems.iter().map(|problem| BoardProblemJson {
        file: problem.path.display().to_string(),
        line: problem.line,
        problem: problem.kind.code().to_owned(),
        severity: problem.kind.severity().name().to_owned(),
        message: problem.message.clone(),
    });
    let data = BoardValidationJson {
        board: board.folder().display().to_string(),
        tasks,
        problems: listed.collect(),
    };
    if problems.is_empty() {
        let text = format!("No problems in {}.", count(tasks, "task"));
        return Ok(Answer::new(data, text));
    }
    let start = context::start()?;
    let line = |problem: &Problem| {
        // Relative to the current folder, as the user would type it.
        let path = problem.path.strip_prefix(&start).unwrap_or(&problem.path);
        let word = match problem.kind.severity() {
            Severity::Error => "",
            Severity::Warning => "warning: ",
        };
        let (path, Problem { line, message, .. }) = (path.display(), problem);
        format!("{path}:{line}: {word}{message}\n")
    };
    let lines: String = problems.iter().map(line).collect();
    let is_error = |problem: &&Problem| problem.kind.severity() == Severity::Error;
    let errors = problems.iter().filter(is_error).count();
    let (all, warnings) = (count(errors, "error"), problems.len() - errors);
    let found = match (errors, count(warnings, "warning")) {
        (0, warnings) => warnings,
        _ if warnings == 0 => all,
        (_, warnings) => format!("{all} and {warnings}"),
    };
    let found = format!("{found} in {}", count(tasks, "task"));
    if errors == 0 && !strict {
        let text = format!("{lines}No errors, {found}.");
        return Ok(Answer::new(data, text));
    }
    let text = format!("{lines}tenure board: error: {found}");
    Err(Failure::new(ErrorCode::BoardInvalid, found)
        .verbatim(text)
        .details(data))
}
