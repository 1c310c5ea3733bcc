//! Why something could not be done: [`Error`].

use std::io;
use std::path::PathBuf;

use tenure::config::ConfigError;
use tenure::files::BadPath;
use tenure::project::ProjectError;
use tenure::who::NoName;
use tenure_core::{BadName, StoreError};
use tenure_git::GitError;

/// Why a change of files can't be judged, or a file can't be reserved.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Git failed.
    #[error(transparent)]
    Git(#[from] GitError),
    /// The store failed.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// A file could not be read or written.
    #[error(transparent)]
    File(#[from] io::Error),
    /// The project can't be told.
    #[error(transparent)]
    Project(#[from] ProjectError),
    /// The settings can't be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// It can't be told what a file is called in reservations.
    #[error(transparent)]
    Path(#[from] BadPath),
    /// It can't be told who the holder is.
    #[error(transparent)]
    Name(#[from] NoName),
    /// A file could not be reserved.
    #[error(transparent)]
    Reserve(#[from] tenure::Error),
    /// A file that can't be reserved.
    #[error("{path}: {why}")]
    Unreservable {
        /// The file.
        path: String,
        /// Why not.
        why: String,
    },
    /// There is neither a project nor a store that was named.
    #[error(
        "no tenure project in {} or any folder above it: run tenure init in the project's root, name a \
         store with TENURE_STORE, or remove the hooks with tenure guard uninstall",
        .0.display()
    )]
    NoProject(PathBuf),
    /// Git ran a hook that the guard does not have.
    #[error("{0} is not a hook of the guard")]
    NoHook(String),
}

impl From<BadName> for Error {
    fn from(error: BadName) -> Self {
        Self::Name(error.into())
    }
}
