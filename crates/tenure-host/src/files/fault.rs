//! The system's errors in words: what is wrong, where, and the way out.

use std::io;
use std::path::Path;

use tenure_core::{ErrorKind, StoreError};

/// Puts an error of the system into words: `what` could not be done to `path`.
pub fn explain(what: &str, path: &Path, error: io::Error) -> StoreError {
    let place = path.display();
    let fault = match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            StoreError::new(ErrorKind::Full, format!("no space left for {place}"))
                .fix("free some space and try again")
        }
        io::ErrorKind::ReadOnlyFilesystem | io::ErrorKind::PermissionDenied => {
            StoreError::new(ErrorKind::ReadOnly, format!("{place} may not be {what}"))
                .fix("check the permissions of the file and its folder, and how it is mounted")
        }
        _ => StoreError::new(ErrorKind::Io, format!("{place} can't be {what}")),
    };
    fault.because(error)
}

/// The same after the lock itself may have been changed: nobody knows, until the next one looks.
pub fn unsettled(mut error: StoreError) -> StoreError {
    error.kind = ErrorKind::OutcomeUnknown;
    error.what = format!("{}, and the lock may have changed hands", error.what);
    error.fix = Some("look with tenure locks list before trying again".into());
    error
}
