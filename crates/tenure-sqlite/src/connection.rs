//! Opening the database: pragmas, patience with other writers, and what is refused.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use tenure_core::{Epoch, ErrorKind, StoreError};
use tenure_host::LivenessFolder;

use crate::fault::explain;
use crate::schema;

/// How long to wait for another writer before giving up.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// The longest single pause while waiting for another writer. Our own transactions take tens of
/// microseconds, so SQLite's own pauses (up to 100 ms) would be most of the waiting.
const LONGEST_PAUSE: Duration = Duration::from_millis(5);

/// Pages in the write-ahead log before it is folded into the database. Not more, because a process
/// that comes when nobody else has the database open reads the whole log first; not fewer, because
/// folding it syncs twice.
const LOG_PAGES: u32 = 400;

/// Opens the database, making it if it is not there. Tells also where it really is: whoever comes
/// by a link must meet the others at the same place. `also` is added to how SQLite opens it.
pub(crate) fn open(
    path: &Path,
    boot: &Epoch,
    also: OpenFlags,
) -> Result<(Connection, PathBuf), StoreError> {
    if path.is_dir() {
        return Err(StoreError::new(
            ErrorKind::NotAStore,
            format!("{} is a folder, not a database", path.display()),
        )
        .fix("name the database file, for example .tenure/tenure.db"));
    }
    if !path.exists() {
        // Somebody removed the database, and means to begin anew.
        let _ = LivenessFolder::new(schema::liveness_folder_of(path)).clear();
    }
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | also;
    let open = || -> rusqlite::Result<Connection> {
        let mut db = Connection::open_with_flags(path, flags)?;
        db.busy_handler(Some(pause))?;
        // The last one to leave would fold the log into the database and sync both: that is what
        // a short command can't afford. Whoever passes LOG_PAGES does it instead.
        db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        db.execute_batch(&format!(
            "PRAGMA synchronous = NORMAL; PRAGMA foreign_keys = ON; PRAGMA wal_autocheckpoint = {LOG_PAGES};"
        ))?;
        db.set_prepared_statement_cache_capacity(128);
        Ok(db)
    };
    let mut db = open().map_err(|error| explain(path, error))?;
    let real = path.canonicalize().unwrap_or_else(|_| path.to_owned());
    if let Err(error) = schema::prepare(&real, &mut db, boot) {
        leave_no_log(&db, &real);
        return Err(error);
    }
    Ok((db, real))
}

/// Before a database is closed that is refused: the log that only looking at it has made goes, one
/// that somebody else has written stays as it is.
pub(crate) fn leave_no_log(db: &Connection, path: &Path) {
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    let written = std::fs::metadata(log).is_ok_and(|log| log.len() > 0);
    let _ = db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, written);
}

/// Which file has this name: its device and inode.
pub(crate) fn which_file(path: &Path) -> Result<(u64, u64), StoreError> {
    match std::fs::metadata(path) {
        Ok(file) => Ok((file.dev(), file.ino())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(replaced(path)),
        Err(error) => Err(StoreError::new(
            ErrorKind::Io,
            format!("{} can't be looked at", path.display()),
        )
        .because(error)),
    }
}

/// The database was removed, or another one put in its place, while it was in use.
pub(crate) fn replaced(path: &Path) -> StoreError {
    StoreError::new(
        ErrorKind::Damaged,
        format!(
            "{} was removed or replaced while it was in use",
            path.display()
        ),
    )
    .fix("what was held in it is lost; nothing more is written to the old file")
}

/// Called by SQLite when somebody else is writing, with the number of calls so far. The pauses
/// add up to [`PATIENCE`], and a little more.
///
/// SQLite keeps no queue of writers: whoever looks most often gets the turn. So whoever has waited
/// long looks more often again, or the newcomers of a large crowd would always be faster.
fn pause(calls: i32) -> bool {
    let calls = u64::try_from(calls).unwrap_or(u64::MAX);
    let pause = match calls {
        // They grow to 5 ms and take a quarter of a second, then up to one.
        0..250 => Duration::from_micros(50 * (calls + 1)).min(LONGEST_PAUSE),
        // Up to three seconds.
        250..1250 => Duration::from_millis(2),
        // Up to ten.
        1250..8250 => Duration::from_millis(1),
        _ => return false,
    };
    std::thread::sleep(pause);
    true
}
