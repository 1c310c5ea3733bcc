//! The board: tasks as Markdown files in one folder, an index derived from them, and edits that change one
//! value and nothing else.
//!
//! # Contents
//!
//! | module | what it holds |
//! |---|---|
//! | [`location`] | [`Board`]: where the files of a board are, and its lock |
//! | [`config`] | [`Config`]: the statuses, priorities and kinds of `config.json` |
//! | [`document`] | [`Document`]: the sections of a task file, as ranges of its bytes |
//! | [`task`] | [`Task`]: the task that a file describes; its record of ten fields |
//! | [`load`] | finding and reading task files |
//! | [`edit`] | replacing the value of a section; adding sections |
//! | [`mod@save`] | replacing a file atomically, unless the caller stops it |
//! | [`index`] | `default.json`: rendered and read |
//! | [`validate`] | every problem, with its file and line |
//! | [`migrate`] | completing old task files from the index |
//! | [`mod@columns`] | tasks by status |
//!
//! # Invariants
//!
//! 1. The task files are the truth; the index is derived from them.
//! 2. An edit changes the bytes of one value. Every other byte, the line endings and the mode of the file
//!    are preserved.
//! 3. A file is replaced by a rename within its folder: a reader sees the old file or the new one, never a
//!    mixture.
//!
//! # What it does not do
//!
//! It takes no lock and writes to no terminal. The caller holds [`Board::lock`] from before it reads until
//! after it has written, and [`save()`] asks it before each step whether to go on.

pub mod columns;
pub mod config;
pub mod document;
pub mod edit;
pub mod index;
pub mod load;
pub mod location;
pub mod migrate;
pub mod save;
pub mod task;
pub mod validate;

pub use columns::{Column, columns};
pub use config::{Config, Level, Vocabulary};
pub use document::{Document, Section};
pub use load::{TaskFile, TaskFiles};
pub use location::Board;
pub use save::{Replaces, SaveError, SaveStep, Saved, save};
pub use task::{FieldValue, Task};
pub use validate::{Problem, ProblemKind, Severity};

use std::io;
use std::path::{Path, PathBuf};

use tenure_host::files::beneath;

/// Why a board can't be used.
#[derive(Debug, thiserror::Error)]
pub enum BoardError {
    /// A file or folder can't be read.
    #[error("{path} can't be read ({error}): check that it exists and its permissions")]
    Unreadable {
        /// The file or folder.
        path: PathBuf,
        /// The error.
        error: io::Error,
    },
    /// A task file whose name is not UTF-8 and so is no id.
    #[error("{0:?}: the file name is not UTF-8: rename the file")]
    BadName(PathBuf),
    /// The board has two folders for its lock.
    #[error(
        "two folders may hold the lock of this board: {root} and {board}\n  \
         Programs that use different ones don't exclude each other. Remove the one that no program uses"
    )]
    TwoStorages {
        /// The one beside the board's folder.
        root: PathBuf,
        /// The one in the board's folder.
        board: PathBuf,
    },
    /// `config.json` is not valid.
    #[error("{path}:{line}: {what}")]
    BadConfig {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong and how to fix it.
        what: String,
    },
    /// `default.json` is not valid.
    #[error("{path}:{line}: {what}")]
    BadIndex {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong and how to fix it.
        what: String,
    },
}

/// The largest file of a board that is read, in bytes.
const LARGEST: u64 = 64 << 20;

/// Reads a file of a board. What is not a file of its own, such as a link or a pipe that another user put there, is
/// refused.
pub fn read_file(path: &Path) -> io::Result<Vec<u8>> {
    beneath::read(path, LARGEST)
}

pub(crate) fn unreadable(path: &Path) -> impl FnOnce(io::Error) -> BoardError {
    let path = path.to_owned();
    move |error| BoardError::Unreadable { path, error }
}
