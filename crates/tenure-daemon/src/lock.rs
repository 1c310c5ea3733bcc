//! The lock that makes sure of one daemon per project: a kernel lock on `.tenure/daemon.lock`.
//!
//! The daemon holds it from start to end. Everything about such a lock, and why its file means nothing
//! by itself, is in [`tenure_host::flock`].

use std::io;
use std::path::Path;

use tenure_host::flock::{self, FileLock, TryLock};

/// The file's name, in the `.tenure` folder.
pub const FILE: &str = "daemon.lock";

/// Tries once to become the daemon of the project with this `.tenure` folder.
pub(crate) fn try_lock(folder: &Path) -> io::Result<TryLock> {
    FileLock::try_lock(&folder.join(FILE))
}

/// Whether a daemon runs for the project with this `.tenure` folder. Takes a few microseconds and
/// writes nothing.
pub fn is_held(folder: &Path) -> io::Result<bool> {
    flock::is_locked(&folder.join(FILE))
}
