//! git, for everything in tenure that has to do with it.
//!
//! - [`folder`] reads git's own files: which repository a folder belongs to. No process is started.
//! - [`index`] reads which files git tracks. No process is started.
//! - [`Git`] runs the user's git, one command at a time.

pub mod folder;
pub mod index;
mod run;

pub use run::{Environment, Git, GitError, LIMIT, lines, words};
