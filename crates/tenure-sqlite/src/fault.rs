//! SQLite's errors as messages: what is wrong, where, and what to do.

use std::path::Path;

use rusqlite::ffi;
use tenure_core::{ErrorKind, StoreError};

use crate::connection::PATIENCE;
use crate::lock_tables::LockTables;
use crate::read_only::WRITE_ONCE;

/// The message for an error of SQLite.
pub(crate) fn explain(path: &Path, error: rusqlite::Error) -> StoreError {
    let place = path.display();
    if let rusqlite::Error::FromSqlConversionFailure(..)
    | rusqlite::Error::InvalidColumnType(..)
    | rusqlite::Error::IntegralValueOutOfRange(..) = error
    {
        return StoreError::new(ErrorKind::Damaged, format!("{place}: a row can't be read"))
            .because(error)
            .fix("another program wrote it; correct or remove it with sqlite3");
    }
    let code = match &error {
        rusqlite::Error::SqliteFailure(failure, _) => failure.extended_code,
        _ => ffi::SQLITE_ERROR,
    };
    let fault = match code & 0xff {
        ffi::SQLITE_BUSY | ffi::SQLITE_LOCKED => {
            return StoreError::new(
                ErrorKind::Contended,
                format!(
                    "{place} was held by another program for over {} s",
                    PATIENCE.as_secs()
                ),
            )
            .fix("see who has it open (fuser or lsof tell) and try again; nothing was changed");
        }
        ffi::SQLITE_FULL => StoreError::new(ErrorKind::Full, format!("no space left for {place}"))
            .fix("free some space and try again; nothing was changed"),
        // The shared-memory file could not grow: SQLite reports a full disk this way.
        ffi::SQLITE_IOERR if code == ffi::SQLITE_IOERR_SHMSIZE => {
            StoreError::new(ErrorKind::Full, format!("no space left beside {place}"))
                .fix("free some space and try again; nothing was changed")
        }
        ffi::SQLITE_READONLY
            if [
                ffi::SQLITE_READONLY_RECOVERY,
                ffi::SQLITE_READONLY_CANTINIT,
                ffi::SQLITE_READONLY_ROLLBACK,
            ]
            .contains(&code) =>
        {
            let what = format!("{place} must be recovered first, which writes");
            StoreError::new(ErrorKind::ReadOnly, what).fix(WRITE_ONCE)
        }
        ffi::SQLITE_READONLY => StoreError::new(
            ErrorKind::ReadOnly,
            format!("no permission to write to {place}"),
        )
        .fix("check the permissions of the file and its folder"),
        ffi::SQLITE_CANTOPEN if may_not_write(path) => StoreError::new(
            ErrorKind::ReadOnly,
            format!("no permission to write to {place}"),
        )
        .fix("check the permissions of the file and its folder, and how it is mounted"),
        ffi::SQLITE_CANTOPEN => StoreError::new(ErrorKind::Io, format!("{place} can't be opened"))
            .fix("check that its folder exists and may be written"),
        ffi::SQLITE_NOTADB => {
            StoreError::new(ErrorKind::NotAStore, format!("{place} is not a database"))
                .fix("move it away and run tenure init to make a new one")
        }
        ffi::SQLITE_CORRUPT => StoreError::new(ErrorKind::Damaged, format!("{place} is damaged"))
            .fix("move it away and run tenure init, or try: sqlite3 FILE .recover"),
        _ => StoreError::new(ErrorKind::Io, format!("{place} could not be used")),
    };
    fault.because(error)
}

/// Whether this process may not write the file or its folder.
fn may_not_write(path: &Path) -> bool {
    use rustix::fs::{Access, access};
    let refuses = |path: &Path| {
        matches!(
            access(path, Access::WRITE_OK),
            Err(rustix::io::Errno::ROFS | rustix::io::Errno::ACCESS)
        )
    };
    refuses(path) || path.parent().is_some_and(refuses)
}

/// The message for an error of a commit. Some errors leave open whether the commit happened. A commit
/// to two files may have happened in the first when it fails in the second, unless it never began.
pub(crate) fn explain_commit(
    path: &Path,
    tables: LockTables,
    error: rusqlite::Error,
) -> StoreError {
    let mut fault = explain(path, error);
    let unknown = match tables {
        LockTables::Own => fault.kind == ErrorKind::Io,
        LockTables::Attached => fault.kind != ErrorKind::Contended,
    };
    if unknown {
        fault.kind = ErrorKind::OutcomeUnknown;
        fault.what = format!(
            "writing {} failed, and it is not known whether the change was written",
            path.display()
        );
        fault.fix = Some("look with tenure locks show before trying again".into());
    }
    fault
}
