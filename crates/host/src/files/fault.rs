//! Turns I/O errors into store errors that name the file and the way out.

use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use tenure_core::{ErrorKind, StoreError};

use crate::files::beneath::Refused;

/// Explains an I/O error: `path` could not be `what` ("written", "read", "opened").
pub fn explain(what: &str, path: &Path, error: io::Error) -> StoreError {
    if let Some(refused) = Refused::of(&error) {
        return StoreError::new(ErrorKind::NotAStore, refused.to_string()).fix(refused.fix());
    }
    let place = path.display();
    let fault = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            StoreError::new(ErrorKind::Full, format!("no space left for {place}"))
                .fix("free some space and try again")
        }
        io::ErrorKind::PermissionDenied if is_kept_by_sticky_bit(path) => StoreError::new(
            ErrorKind::ReadOnly,
            format!("{place} belongs to another user, and its folder has the sticky bit"),
        )
        .fix("let that user or root run the same command, or use a folder without the sticky bit"),
        io::ErrorKind::PermissionDenied if what == "written" => StoreError::new(
            ErrorKind::ReadOnly,
            format!("no permission to write to {place}"),
        )
        .fix("check the permissions of the file and its folder"),
        io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => {
            StoreError::new(ErrorKind::ReadOnly, format!("{place} may not be {what}"))
                .fix("check the permissions of the file and its folder, and how it is mounted")
        }
        _ => StoreError::new(ErrorKind::Io, format!("{place} can't be {what}")),
    };
    fault.because(error)
}

/// Whether only another user may remove or rename this: its folder has the sticky bit.
fn is_kept_by_sticky_bit(path: &Path) -> bool {
    let us = rustix::process::geteuid().as_raw();
    let folder = path.parent().and_then(|folder| folder.metadata().ok());
    folder.is_some_and(|folder| folder.mode() & 0o1000 != 0 && folder.uid() != us)
        && path.symlink_metadata().is_ok_and(|there| there.uid() != us)
}

/// Marks an error that came after the lock may have changed: whether the verb happened is unknown
/// until the next step looks.
pub fn unsettled(mut error: StoreError) -> StoreError {
    error.kind = ErrorKind::OutcomeUnknown;
    error.what = format!("{}, and the lock may have changed hands", error.what);
    error.fix = Some("look with tenure locks list before trying again".into());
    error
}
