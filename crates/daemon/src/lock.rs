//! The lock that makes sure of one daemon per project: a kernel lock on `daemon.lock` in the folder of its state.
//!
//! The daemon holds it from start to end. Everything about such a lock, and why its file means nothing
//! by itself, is in [`tenure_host::flock`].

use std::io;
use std::path::{Path, PathBuf};

use tenure::Project;
use tenure_host::flock::{self, FileLock, TryLock};

/// The file's name.
pub const FILE: &str = "daemon.lock";

/// Tries once to become the daemon of the project whose state is in this folder.
pub(crate) fn try_lock(folder: &Path) -> io::Result<TryLock> {
    FileLock::try_lock(&folder.join(FILE))
}

/// Whether a daemon runs for the project whose state is in this folder. Takes a few microseconds and
/// writes nothing.
pub fn is_held(folder: &Path) -> io::Result<bool> {
    flock::is_locked(&folder.join(FILE))
}

/// The folder with the files of a project's daemon. A daemon that runs since before the state was moved to its place keeps
/// them in `.tenure`: it is the daemon until it is stopped. That it can't be told is told by reading them there.
pub fn folder_of(project: &Project) -> PathBuf {
    let earlier = project.folder();
    if earlier != project.state() && is_held(&earlier).unwrap_or(true) {
        earlier
    } else {
        project.state().to_owned()
    }
}
