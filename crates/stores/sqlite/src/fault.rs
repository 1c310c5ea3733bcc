//! SQLite's errors as messages: what is wrong, where, and what to do.

use std::path::Path;

use rusqlite::ffi;
use rustix::fs::{Mode, OFlags, open};
use rustix::io::{Errno, pwrite};
use rustix::process::{Resource, getrlimit};
use tenure_core::{ErrorKind, StoreError};
use tenure_host::interrupt::is_interrupted;

use crate::connection::PATIENCE;
use crate::lock_tables::LockTables;
use crate::read_only::WRITE_ONCE;

/// The longest path that SQLite opens, in bytes: it adds `-journal` and has room for 512.
const LONGEST_PATH: usize = 504;

/// How much room the files of a small change need.
const ROOM: usize = 64 * 1024;

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
    // A file could not be opened or grow, and SQLite does not tell why.
    let unclear = matches!(code & 0xff, ffi::SQLITE_CANTOPEN | ffi::SQLITE_READONLY)
        || matches!(
            code,
            ffi::SQLITE_IOERR_SHMOPEN
                | ffi::SQLITE_IOERR_SHMSIZE
                | ffi::SQLITE_IOERR_SHMMAP
                | ffi::SQLITE_IOERR_WRITE
        );
    if unclear {
        let real = path.canonicalize();
        let long = real.map_or(Ok(()), |real| refuse_long_path(path, &real));
        if let Some(fault) = long.err().or_else(|| no_room_beside(path)) {
            return fault.because(error);
        }
    }
    // Elsewhere it may be any file, which a typing error named.
    let is_own = path.ends_with(".tenure/tenure.db") || is_in_git(path);
    let try_again = "try again; nothing was changed";
    let (kind, what, fix) = match code & 0xff {
        ffi::SQLITE_BUSY | ffi::SQLITE_LOCKED if is_interrupted() => {
            let what = format!("{place} was held by another program when a signal came");
            return StoreError::new(ErrorKind::Contended, what).fix(try_again);
        }
        ffi::SQLITE_BUSY | ffi::SQLITE_LOCKED => {
            let limit = PATIENCE.as_secs();
            let what = format!("{place} was held by another program for over {limit} s");
            return StoreError::new(ErrorKind::Contended, what).fix(
                "see who has it open (fuser or lsof tell) and try again; nothing was changed",
            );
        }
        ffi::SQLITE_FULL => (
            ErrorKind::Full,
            format!("no space left for {place}"),
            "free some space and try again; nothing was changed",
        ),
        ffi::SQLITE_READONLY
            if [
                ffi::SQLITE_READONLY_RECOVERY,
                ffi::SQLITE_READONLY_CANTINIT,
                ffi::SQLITE_READONLY_ROLLBACK,
            ]
            .contains(&code) =>
        {
            let what = format!("{place} must be recovered first, which writes");
            (ErrorKind::ReadOnly, what, WRITE_ONCE)
        }
        ffi::SQLITE_READONLY | ffi::SQLITE_CANTOPEN if may_not_write(path) => {
            let fix = if is_in_git(path) {
                IN_GIT
            } else {
                "check the permissions of the file and its folder, and how it is mounted"
            };
            let what = format!("no permission to write to {place}");
            (ErrorKind::ReadOnly, what, fix)
        }
        ffi::SQLITE_READONLY => {
            let what = format!("{place} could not be written");
            (ErrorKind::Io, what, try_again)
        }
        ffi::SQLITE_CANTOPEN => {
            let what = format!("{place} can't be opened");
            let fix = "check that its folder exists and may be written";
            (ErrorKind::Io, what, fix)
        }
        ffi::SQLITE_NOTADB => {
            let fix = if is_own {
                "move it away and run tenure init to make a new one"
            } else {
                "check the path"
            };
            let what = format!("{place} is not a database");
            (ErrorKind::NotAStore, what, fix)
        }
        ffi::SQLITE_CORRUPT => {
            let fix = if is_own {
                "move it away and run tenure init, or try: sqlite3 FILE .recover"
            } else {
                "restore it from a copy, or try: sqlite3 FILE .recover"
            };
            (ErrorKind::Damaged, format!("{place} is damaged"), fix)
        }
        _ => {
            let what = format!("{place} could not be used");
            return StoreError::new(ErrorKind::Io, what).because(error);
        }
    };
    StoreError::new(kind, what).fix(fix).because(error)
}

/// What to do if git's own directory can't be written.
pub(crate) const IN_GIT: &str = "check the permissions of the file and its folder; in a sandbox that protects .git, allow its \
     folder to be written (tenure setup says how)";

/// Whether it is the database of a project in a git repository, which is in git's own directory.
pub(crate) fn is_in_git(path: &Path) -> bool {
    let mut around = path.ancestors().skip(1);
    path.ends_with("tenure.db")
        && around.any(|folder| folder.ends_with("tenure") && folder.with_file_name("HEAD").exists())
}

/// Refuses a database whose path, without links, is too long for SQLite.
pub(crate) fn refuse_long_path(path: &Path, real: &Path) -> Result<(), StoreError> {
    let length = real.as_os_str().len();
    if length <= LONGEST_PATH {
        return Ok(());
    }
    let what = format!(
        "{} has a path of {length} bytes, and SQLite opens only paths of up to {LONGEST_PATH}",
        path.display()
    );
    Err(StoreError::new(ErrorKind::Unsupported, what)
        .fix("move it to a folder with a shorter path"))
}

/// Why files beside the database can't grow now, if they can't.
fn no_room_beside(path: &Path) -> Option<StoreError> {
    let place = path.display();
    let largest = ["", "-wal", "-shm"].map(|end| {
        let file = crate::connection::beside(path, end);
        file.metadata().map_or(0, |file| file.len())
    });
    let needed = largest.into_iter().max().unwrap_or(0) + ROOM as u64;
    if let Some(limit) = getrlimit(Resource::Fsize)
        .current
        .filter(|limit| *limit < needed)
    {
        let what = format!("{place} may not grow: files are limited to {limit} bytes (ulimit -f)");
        return Some(
            StoreError::new(ErrorKind::Full, what)
                .fix("raise the limit and try again; nothing was changed"),
        );
    }
    let folder = path.parent().filter(|parent| *parent != Path::new(""));
    let flags = OFlags::TMPFILE | OFlags::WRONLY | OFlags::CLOEXEC;
    let file = open(
        folder.unwrap_or(Path::new(".")),
        flags,
        Mode::RUSR | Mode::WUSR,
    );
    let written = file.and_then(|file| pwrite(&file, &vec![0; ROOM], 0));
    let full = match written {
        Ok(written) => written < ROOM,
        Err(error) => matches!(error, Errno::NOSPC | Errno::DQUOT),
    };
    full.then(|| {
        StoreError::new(ErrorKind::Full, format!("no space left beside {place}"))
            .fix("free some space and try again; nothing was changed")
    })
}

/// Whether this process may not write the file or its folder.
fn may_not_write(path: &Path) -> bool {
    use rustix::fs::{Access, access};
    let refuses = |path: &Path| {
        matches!(
            access(path, Access::WRITE_OK),
            Err(Errno::ROFS | Errno::ACCESS | Errno::PERM)
        )
    };
    refuses(path) || path.parent().is_some_and(refuses)
}

/// The message for an error of a commit. Some errors leave open whether the commit happened. A commit
/// to two files may have happened in the first when it fails in the second, unless it never began.
pub(crate) fn explain_commit(
    path: &Path,
    tables: &dyn LockTables,
    error: rusqlite::Error,
) -> StoreError {
    let mut fault = explain(path, error);
    let unknown = if tables.are_own() {
        fault.kind == ErrorKind::Io
    } else {
        fault.kind != ErrorKind::Contended
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_that_is_not_about_space_does_not_blame_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tenure.db");
        std::fs::write(&path, "").unwrap();
        for (code, words) in [
            (ffi::SQLITE_IOERR_SHMSIZE, "could not be used"),
            (ffi::SQLITE_IOERR_WRITE, "could not be used"),
            (ffi::SQLITE_READONLY, "could not be written"),
            (ffi::SQLITE_CANTOPEN, "can't be opened"),
        ] {
            let error = rusqlite::Error::SqliteFailure(ffi::Error::new(code), None);
            let explained = explain(&path, error);
            assert_eq!(explained.kind, ErrorKind::Io, "{explained}");
            assert!(explained.what.contains(words), "{explained}");
        }
    }
}
