//! What another program can do to a lock folder that tenure protects: [`unprotect`], [`remove`].
//!
//! Tenure's lock folder is read-only while its holder runs. Root removes it all the same; any other user has to
//! make it writable first. A test that plays the other program does so here, and so passes as any user.

use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Makes a lock folder writable for its owner.
pub fn unprotect(lock: &Path) -> io::Result<()> {
    fs::set_permissions(lock, Permissions::from_mode(0o755))
}

/// Removes a lock folder, even if it is protected.
pub fn remove(lock: &Path) -> io::Result<()> {
    unprotect(lock)?;
    fs::remove_dir_all(lock)
}
