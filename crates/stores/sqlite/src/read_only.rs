//! Opening a database that is only read. Nothing is created, upgraded, recovered, checkpointed or
//! written.
//!
//! SQLite can read a database with a write-ahead log only if `-wal` and `-shm` are there, or if it may
//! make them. Tenure leaves both behind, but another program that was the last to close the database
//! removes them.
//!
//! | beside the database | how it is read |
//! |---|---|
//! | `-wal` and `-shm` | from the files, as every other process does, with `-shm` mapped read-only |
//! | no `-wal`, or an empty one | from a copy in memory |
//! | a log in `-wal`, but no `-shm` | not at all: the log has to be recovered first, which writes |
//!
//! A database without a log is whole in its file, and a writer makes `-wal` before it changes that file.
//! So a copy is good if the file did not change while it was read and there is no log afterwards.
//!
//! # Invariants
//!
//! 1. A connection lasts for one verb, and no store of this process is opened for writing meanwhile
//!    ([`connection::keep_others_from_opening`]). All connections of a process share one mapping of `-shm`. If the first
//!    of them mapped it read-only, none could write.
//! 2. Only SQLite opens the database file. If this process opened and closed it otherwise, the kernel
//!    would drop the locks that other connections of this process have on it.
//!
//! # What SQLite touches
//!
//! While a verb reads, SQLite holds shared locks on the database and on `-shm`. They keep a checkpoint
//! from the pages that are being read, as those of every other reader do. In a process that has the
//! same database open for writing, the mapping of `-shm` is that store's, and SQLite may note in it
//! which part of the log is being read. If another program removes `-wal` between the moment it was seen
//! and the moment SQLite opens it, SQLite makes an empty one. For root, SQLite gives `-wal` the owner of the
//! database, which it has already.

use std::fs::Metadata;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::serialize::Data;
use rusqlite::{Connection, MAIN_DB, OpenFlags, ffi};
use tenure_core::{ErrorKind, StoreError};

use crate::connection::beside;
use crate::fault::explain;
use crate::{connection, schema};

/// How often a copy is made again because the file changed meanwhile.
pub(crate) const ATTEMPTS: usize = 64;

/// The errors of a reader while a writer is just changing `-shm`, how often it tries again, and how long apart.
const MOMENTARY: [i32; 2] = [ffi::SQLITE_READONLY_RECOVERY, ffi::SQLITE_READONLY_CANTINIT];
const RETRIES: usize = 400;
pub(crate) const PAUSE: Duration = Duration::from_millis(5);

/// The bytes of the file's first page that say whether it has a write-ahead log: 2 if it has, else 1.
const FORMAT_VERSIONS: std::ops::Range<usize> = 18..20;
const WITH_LOG: u8 = 2;
const WITHOUT_LOG: u8 = 1;

/// What changes when a file is written or replaced.
#[derive(Debug, PartialEq, Eq)]
struct FileState {
    file: (u64, u64),
    size: u64,
    modified: (i64, i64),
    changed: (i64, i64),
}

impl From<&Metadata> for FileState {
    fn from(file: &Metadata) -> Self {
        Self {
            file: (file.dev(), file.ino()),
            size: file.size(),
            modified: (file.mtime(), file.mtime_nsec()),
            changed: (file.ctime(), file.ctime_nsec()),
        }
    }
}

/// Checks that there is a database at this path that can be read, and returns its real path.
pub(crate) fn find(path: &Path) -> Result<PathBuf, StoreError> {
    let real = find_file(path)?;
    let _nothing_is_opened = connection::keep_others_from_opening();
    let db = connect(path, &real)?;
    // In one transaction: another process may be making the database at this moment.
    let tx = db.unchecked_transaction();
    let tx = tx.map_err(|error| explain(path, error))?;
    begin(&tx).map_err(|error| explain(path, error))?;
    check(path, &real, &tx)?;
    Ok(real)
}

/// Refuses a database that can't be read as it is.
pub(crate) fn check(path: &Path, real: &Path, tx: &Connection) -> Result<(), StoreError> {
    let owner = schema::owner(tx).map_err(|error| explain(path, error))?;
    schema::check(path, real, tx, &owner)
}

/// The real path of a database, which is not opened.
pub(crate) fn find_file(path: &Path) -> Result<PathBuf, StoreError> {
    let real = connection::find(path)?;
    if let Err(error) = real.symlink_metadata() {
        return Err(match error.kind() {
            std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory => {
                not_found(path, "there is no such file")
            }
            _ => unreadable(path, error),
        });
    }
    connection::refuse_planted(path, &real)?;
    Ok(real)
}

/// Opens the files, or copies the database, whichever writes nothing.
pub(crate) fn connect(path: &Path, real: &Path) -> Result<Connection, StoreError> {
    let refused = |error| explain(path, error);
    for _ in 0..ATTEMPTS {
        connection::refuse_planted(path, real)?;
        rustix::fs::access(real, rustix::fs::Access::READ_OK)
            .map_err(|error| unreadable(path, error.into()))?;
        let file = std::fs::metadata(real).map_err(|error| unreadable(path, error))?;
        let before = FileState::from(&file);
        if beside(real, "-wal").exists() && beside(real, "-shm").exists() {
            return open_files(real).map_err(refused);
        }
        if has_log(real) {
            let what = format!(
                "{} has a log that must be recovered first, which writes",
                path.display()
            );
            return Err(StoreError::new(ErrorKind::ReadOnly, what).fix(WRITE_ONCE));
        }
        if before.size == 0 {
            return Err(if schema::liveness_folder_of(real).exists() {
                schema::emptied(path)
            } else {
                not_found(path, "the file is empty")
            });
        }
        let copy = open_copy(real);
        let after = std::fs::metadata(real).map_err(|error| unreadable(path, error))?;
        if has_log(real) || FileState::from(&after) != before {
            continue;
        }
        return match copy.map_err(refused)? {
            Some(copy) => Ok(copy),
            None => open_files(real).map_err(refused),
        };
    }
    Err(changes_all_the_time(path))
}

/// Makes a copy one of a database without a log, which is all that a database in memory can be; `false` if it is one.
pub(crate) fn forget_log(copy: &mut [u8]) -> bool {
    let versions = copy.get_mut(FORMAT_VERSIONS);
    let versions = versions.filter(|versions| versions.contains(&WITH_LOG));
    versions
        .map(|versions| versions.fill(WITHOUT_LOG))
        .is_some()
}

pub(crate) fn changes_all_the_time(path: &Path) -> StoreError {
    let what = format!("{} changed each time it was read", path.display());
    StoreError::new(ErrorKind::Contended, what).fix("try again; nothing was changed")
}

/// How a database becomes readable that has to be written first.
pub(crate) const WRITE_ONCE: &str = "open it once with a command that writes, for example tenure locks cleanup, as a user who may; nothing was changed";

fn open_files(real: &Path) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
        | OpenFlags::SQLITE_OPEN_URI
        | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    // By default SQLite writes to `-shm` also for a connection that only reads.
    let address = connection::uri(real, "mode=ro&readonly_shm=1");
    set_up(Connection::open_with_flags(address, flags)?)
}

/// A copy in memory of a database that has no log at this moment; `None` if it is of the kind that
/// never has one.
///
/// The copy is made by a connection that takes no locks (`immutable`), so it means nothing unless the
/// file is seen to be unchanged afterwards.
fn open_copy(real: &Path) -> rusqlite::Result<Option<Connection>> {
    let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI;
    let address = connection::uri(real, "mode=ro&immutable=1");
    let mut file = Connection::open_with_flags(address, flags)?;
    // A file that is no database is refused here: what follows would not say why it fails.
    file.query_row("PRAGMA schema_version", [], |_| Ok(()))?;
    let Data::Owned(mut bytes) = file.serialize(MAIN_DB)? else {
        return Ok(None);
    };
    if !forget_log(&mut bytes) {
        return Ok(None);
    }
    let mut copy = Connection::open_in_memory()?;
    copy.deserialize(MAIN_DB, bytes, true)?;
    Ok(Some(set_up(copy)?))
}

pub(crate) fn set_up(mut db: Connection) -> rusqlite::Result<Connection> {
    connection::wait_for_others(&mut db)?;
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    // Sorting a long list must not make a temporary file.
    db.execute_batch("PRAGMA query_only = ON; PRAGMA temp_store = MEMORY;")?;
    Ok(db)
}

/// Makes a transaction see one state of the database from now on. A reader that can't write to `-shm`
/// is refused at times while a writer changes it, and then tries again.
pub(crate) fn begin(tx: &Connection) -> rusqlite::Result<()> {
    let mut tries = 0;
    loop {
        match tx.query_row("PRAGMA schema_version", [], |_| Ok(())) {
            Err(rusqlite::Error::SqliteFailure(failure, _))
                if MOMENTARY.contains(&failure.extended_code) && tries < RETRIES =>
            {
                tries += 1;
                std::thread::sleep(PAUSE);
            }
            other => return other,
        }
    }
}

/// Whether there may be changes that are not in the file yet.
fn has_log(real: &Path) -> bool {
    match std::fs::metadata(beside(real, "-wal")) {
        Ok(log) => log.len() > 0,
        Err(error) => error.kind() != std::io::ErrorKind::NotFound,
    }
}

fn not_found(path: &Path, why: &str) -> StoreError {
    let what = format!("there is no store at {}: {why}", path.display());
    StoreError::new(ErrorKind::NotFound, what)
        .fix("make it with tenure init, or name another file; nothing was created")
}

fn unreadable(path: &Path, error: std::io::Error) -> StoreError {
    StoreError::new(ErrorKind::Io, format!("{} can't be read", path.display()))
        .because(error)
        .fix("check the permissions of the file and its folder")
}
