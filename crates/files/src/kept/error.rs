//! Why something could not be kept or restored: [`KeptError`].

use std::io;
use std::path::PathBuf;

use tenure_core::StoreError;
use tenure_git::GitError;

use super::Version;

/// Why something could not be kept or restored. A hook can go on without.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum KeptError {
    /// Git failed.
    #[error(transparent)]
    Git(#[from] GitError),
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] io::Error),
    /// Another process has a lock for too long.
    #[error(transparent)]
    Lock(#[from] StoreError),
    /// A path that is not in the work tree, or git's own.
    #[error(
        "{} is not a file of the work tree: give its path from the top, without .. and not in .git",
        .0.display()
    )]
    Outside(PathBuf),
    /// There is no such version.
    #[error("nothing was kept of {0}: see tenure files list")]
    NotKept(String),
    /// A shortened id that several versions have.
    #[error("{id} is the beginning of several versions: give more of it")]
    Ambiguous {
        /// As it was given.
        id: String,
        /// The versions.
        versions: Vec<Version>,
    },
    /// What is there can't be kept, so it is not replaced.
    #[error(
        "{} is in the way: {why}\n  move it away, or write the version somewhere else with --to FILE",
        path.display()
    )]
    InTheWay {
        /// The file.
        path: PathBuf,
        /// Why it can't be kept.
        why: String,
    },
    /// The bytes are not those that were kept.
    #[error("version {0} is damaged: restore another one, see tenure files list")]
    Damaged(String),
}
