//! The board: tasks that are Markdown files in one folder, the index made from them, and edits that
//! change one value and nothing else.
//!
//! # Contents
//!
//! | module | what it holds |
//! |---|---|
//! | [`place`] | [`Board`]: where a board is, and its lock |
//! | [`config`] | [`Config`]: statuses, priorities and kinds, as `config.json` names them |
//! | [`document`] | [`Document`]: the sections of a task file, as ranges of its bytes |
//! | [`task`] | [`Task`]: what a task file says; its record of ten fields |
//! | [`load`] | reading all task files, in order |
//! | [`edit`] | putting another value into a section; adding sections |
//! | [`mod@save`] | writing a file whole or not at all, with somebody who may say stop |
//! | [`index`] | `default.json`: made from the tasks, and read |
//! | [`validate`] | every problem, with its file and line |
//! | `circle` | tasks that wait for one another in a circle |
//! | [`migrate`] | sections that old task files lack, from the index |
//! | [`mod@columns`] | tasks by status, for a view |
//!
//! # Invariants
//!
//! 1. The task files are the truth; the index is derived from them.
//! 2. An edit changes the bytes of one value. Every other byte, the line endings and the mode of the
//!    file stay as they were.
//! 3. A file is replaced by a rename within its folder: whoever reads, whenever, reads the old one or
//!    the new one.
//! 4. Nothing here takes a lock or writes to a terminal: the caller holds [`Board::lock`] from before
//!    it reads until after it wrote, and is asked before each step of a write whether to go on.

mod circle;
pub mod columns;
pub mod config;
pub mod document;
pub mod edit;
pub mod index;
pub mod load;
pub mod migrate;
pub mod place;
pub mod save;
pub mod task;
pub mod validate;

pub use columns::{Column, columns};
pub use config::{Config, Level};
pub use document::{Document, Section};
pub use load::{Loaded, Tasks};
pub use place::Board;
pub use save::{SaveError, Step, save};
pub use task::Task;
pub use validate::{Flaw, Problem};

use std::io;
use std::path::{Path, PathBuf};

/// Why something could not be done with a board.
#[derive(Debug, thiserror::Error)]
pub enum BoardError {
    /// A file or folder can't be read.
    #[error("{path} can't be read ({error}): check that it is there and its permissions")]
    Unreadable {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// `config.json` is not what it has to be.
    #[error("{path}:{line}: {what}")]
    BadConfig {
        /// The file.
        path: PathBuf,
        /// Where in it.
        line: usize,
        /// What is wrong and how to mend it.
        what: String,
    },
    /// `default.json` is not what it has to be.
    #[error("{path}:{line}: {what}")]
    BadIndex {
        /// The file.
        path: PathBuf,
        /// Where in it.
        line: usize,
        /// What is wrong and how to mend it.
        what: String,
    },
}

pub(crate) fn unreadable(path: &Path) -> impl FnOnce(io::Error) -> BoardError {
    let path = path.to_owned();
    move |error| BoardError::Unreadable { path, error }
}
