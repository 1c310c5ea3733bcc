//! Opening the database: pragmas, waiting for other writers, and the files that are refused.

use std::fmt::Write as _;
use std::fs::{File, TryLockError};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags};
use tenure_core::{Epoch, ErrorKind, StoreError};
use tenure_host::LivenessFolder;
use tenure_host::files::beneath::{self, Refused};
use tenure_host::files::fault as files;
use tenure_host::files::permissions::{OFlags, create_new, follow_group};
use tenure_host::time_limit::TimeLimit;

use crate::call_deadline;
use crate::fault::{explain, refuse_long_path};
use crate::log;
use crate::schema::{self, Purpose};

/// How long to wait for another writer before giving up.
pub(crate) const PATIENCE: Duration = Duration::from_secs(10);

/// The pause between two attempts to lock the folder of a new database.
const PAUSE: Duration = Duration::from_millis(5);

/// Held shared while a store is opened for writing, and exclusively while a verb of a read-only store
/// looks (see [`crate::read_only`]) or the file of a new one is created. It comes before every other lock but that of the
/// folder of a new one.
static OPENING: RwLock<()> = RwLock::new(());

/// No verb of a read-only store looks until this is dropped.
pub(crate) fn opening() -> RwLockReadGuard<'static, ()> {
    OPENING.read().unwrap_or_else(PoisonError::into_inner)
}

/// No store of this process is opened for writing until this is dropped.
pub(crate) fn keep_others_from_opening() -> RwLockWriteGuard<'static, ()> {
    OPENING.write().unwrap_or_else(PoisonError::into_inner)
}

/// Opens the database, making it if it is not there, and returns its real path: processes that open
/// it by a link must use the same log and liveness folder. `also` adds to SQLite's open flags.
pub(crate) fn open(
    path: &Path,
    boot: &Epoch,
    also: OpenFlags,
    purpose: Purpose,
) -> Result<(Connection, PathBuf), StoreError> {
    // Before it is created.
    refuse_long_path(path, &std::path::absolute(path).unwrap_or_default())?;
    let real = find(path)?;
    make_file(&real, || ())?;
    refuse_planted(path, &real)?;
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_CREATE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_NOFOLLOW
        | also;
    let open = || -> rusqlite::Result<Connection> {
        let mut db = Connection::open_with_flags(&real, flags)?;
        wait_for_others(&mut db)?;
        // By default the last connection to close runs a checkpoint, which syncs twice: too slow
        // for a short command. A commit does it when the log is long.
        db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        log::keep_short(&mut db)?;
        db.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_FKEY, true)?;
        // Without this, a statement with a bound LIMIT is prepared again each time that a value is bound.
        db.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_QPSG, true)?;
        db.execute_batch("PRAGMA synchronous = NORMAL")?;
        Ok(db)
    };
    let _no_read_only_verb = opening();
    let mut db = open().map_err(|error| explain(path, error))?;
    if let Err(error) = schema::prepare(&real, &mut db, boot, purpose) {
        leave_no_log(&db, &real);
        return Err(error);
    }
    for log in [beside(&real, "-wal"), beside(&real, "-shm")] {
        follow_group(&log, &real);
    }
    Ok((db, real))
}

/// Opens a database that is there, and leaves its log as it is when it is closed.
pub(crate) fn open_existing(real: &Path, patience: Duration) -> rusqlite::Result<Connection> {
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
        | OpenFlags::SQLITE_OPEN_NO_MUTEX
        | OpenFlags::SQLITE_OPEN_NOFOLLOW;
    let db = Connection::open_with_flags(real, flags)?;
    db.busy_timeout(patience)?;
    db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
    Ok(db)
}

/// A file of SQLite's beside the database.
pub(crate) fn beside(path: &Path, end: &str) -> PathBuf {
    let mut file = path.as_os_str().to_owned();
    file.push(end);
    file.into()
}

/// The path as a URI, with these parameters of SQLite's.
pub(crate) fn uri(path: &Path, parameters: &str) -> String {
    let mut uri = String::from("file:");
    for byte in path.as_os_str().as_bytes() {
        if byte.is_ascii_alphanumeric() || b"/-._".contains(byte) {
            uri.push(char::from(*byte));
        } else {
            let _ = write!(uri, "%{byte:02X}");
        }
    }
    uri + "?" + parameters
}

/// The real path of a database, which need not exist: processes that open it by a link must agree on one.
pub(crate) fn find(path: &Path) -> Result<PathBuf, StoreError> {
    match beneath::resolve_file(path) {
        Err(error) if Refused::of(&error).is_some() => Err(files::explain("opened", path, error)),
        // SQLite says what is wrong with it.
        found => Ok(found.unwrap_or_else(|_| path.to_owned())),
    }
}

/// SQLite would write through a link that another user put in the place of one of its files, and a named
/// pipe there would block it for ever.
pub(crate) fn refuse_planted(path: &Path, real: &Path) -> Result<(), StoreError> {
    if let Ok(known) = real.symlink_metadata() {
        if known.is_dir() {
            let what = format!("{} is a folder, not a database", path.display());
            return Err(StoreError::new(ErrorKind::NotAStore, what)
                .fix("name the database file, for example .tenure/tenure.db"));
        }
        let is_file = beneath::must_be_file(real, &known);
        is_file.map_err(|error| files::explain("opened", real, error))?;
        refuse_names(real, known.nlink())?;
    }
    for end in ["-wal", "-shm", "-journal"] {
        let file = beside(real, end);
        beneath::must_be_file_or_missing(&file)
            .map_err(|error| files::explain("opened", &file, error))?;
    }
    Ok(())
}

/// SQLite keeps its log beside the name by which a file was opened, and so do we the liveness locks. Processes that
/// open one file by two names would not see each other.
fn refuse_names(path: &Path, names: u64) -> Result<(), StoreError> {
    if names <= 1 {
        return Ok(());
    }
    let place = path.display();
    let what = format!(
        "{place} has {names} names (hard links), and processes that open it by different names would be granted the same keys"
    );
    Err(StoreError::new(ErrorKind::NotAStore, what)
        .fix("find the others with find -samefile and remove them, or copy the file"))
}

/// Sets how a connection waits for other processes, and how many statements it keeps.
pub(crate) fn wait_for_others(db: &mut Connection) -> rusqlite::Result<()> {
    db.set_prepared_statement_cache_capacity(128);
    db.busy_handler(Some(call_deadline::pause))
}

/// Makes an empty file for a database that is not there, and removes the liveness folder that an
/// earlier database of that name left behind.
///
/// Both happen under `flock` on the folder of the database. A process can keep a liveness lock in
/// that folder only once the file exists, so the folder that is removed never holds the lock of a
/// process that uses the new database. `before_clearing` runs in between, for a test of that.
fn make_file(path: &Path, before_clearing: impl FnOnce()) -> Result<(), StoreError> {
    let is_there = || path.symlink_metadata().is_ok();
    if is_there() {
        return Ok(());
    }
    let Some(_lock) = lock_folder_of(path)? else {
        // SQLite says what is wrong with it.
        return Ok(());
    };
    if is_there() {
        return Ok(());
    }
    before_clearing();
    let _ = LivenessFolder::new(schema::liveness_folder_of(path)).clear();
    // Closing a file ends all locks that this process has on it, so no other thread may have opened it by then.
    let _nothing_is_opened = keep_others_from_opening();
    // SQLite gives the log the mode of the database. An error is SQLite's to report: it is about to open
    // the same file.
    drop(create_new(path, OFlags::RDWR));
    Ok(())
}

/// Takes the lock of the folder that a file is in; `None` if that folder can't be opened.
fn lock_folder_of(path: &Path) -> Result<Option<File>, StoreError> {
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    let Ok(folder) = beneath::open_folder(parent) else {
        return Ok(None);
    };
    let limit = TimeLimit::after(PATIENCE);
    loop {
        match folder.try_lock() {
            Ok(()) => return Ok(Some(folder)),
            Err(TryLockError::WouldBlock) if !limit.has_passed() => std::thread::sleep(PAUSE),
            Err(TryLockError::WouldBlock) => {
                let (folder, limit) = (parent.display(), PATIENCE.as_secs());
                let what = format!("another process locked the folder {folder} for over {limit} s");
                return Err(StoreError::new(ErrorKind::Contended, what).fix(
                    "see who has it open (fuser or lsof tell) and try again; nothing was changed",
                ));
            }
            Err(TryLockError::Error(error)) => {
                let what = format!("the folder {} can't be locked", parent.display());
                return Err(StoreError::new(ErrorKind::Io, what).because(error));
            }
        }
    }
}

/// Before a refused database is closed: removes the log if reading made it, and leaves a log that
/// another program wrote as it is.
pub(crate) fn leave_no_log(db: &Connection, path: &Path) {
    let written = std::fs::metadata(beside(path, "-wal")).is_ok_and(|log| log.len() > 0);
    let _ = db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, written);
}

/// A file that is in use.
#[derive(Debug)]
pub(crate) struct OpenFile {
    path: PathBuf,
    /// Its device and inode.
    id: (u64, u64),
}

impl OpenFile {
    /// The file at this path.
    pub(crate) fn at(path: &Path) -> Result<Self, StoreError> {
        let (path, id) = (path.to_owned(), which_file(path)?);
        Ok(Self { path, id })
    }

    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Fails if the path leads to another file by now: other processes would lock that one.
    pub(crate) fn still_there(&self) -> Result<(), StoreError> {
        if which_file(&self.path)? == self.id {
            return Ok(());
        }
        Err(replaced(&self.path))
    }
}

/// The device and inode of the file at this path.
fn which_file(path: &Path) -> Result<(u64, u64), StoreError> {
    match std::fs::metadata(path) {
        Ok(file) => Ok((file.dev(), file.ino())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Err(replaced(path)),
        Err(error) => {
            let what = format!("{} can't be looked at", path.display());
            Err(StoreError::new(ErrorKind::Io, what).because(error))
        }
    }
}

/// The database was removed, or another one put in its place, while it was in use.
fn replaced(path: &Path) -> StoreError {
    let place = path.display();
    let what = format!("{place} was removed or replaced while it was in use");
    StoreError::new(ErrorKind::Gone, what)
        .fix("what was held in it is lost; nothing more is written to the old file")
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use tenure_core::Records;

    use super::*;
    use crate::store::{SqliteOptions, SqliteStore};

    /// The names in the liveness folder of a database.
    fn liveness_locks(path: &Path) -> Vec<String> {
        std::fs::read_dir(schema::liveness_folder_of(path))
            .into_iter()
            .flatten()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    }

    #[test]
    fn a_process_that_finds_no_database_leaves_the_liveness_lock_of_a_faster_one_alone() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tenure.db");
        std::thread::scope(|scope| {
            let (opened, wait) = mpsc::channel();
            let path = &path;
            // The slow one has found no database and is about to clear its folder. The faster one
            // now makes the database and takes its liveness lock, unless it has to wait.
            make_file(path, || {
                scope.spawn(move || {
                    let store = SqliteStore::open(path, SqliteOptions::default()).unwrap();
                    store.this_process().unwrap();
                    opened.send(store).unwrap();
                });
                while !waits_for_lock_of(folder.path()) && liveness_locks(path).is_empty() {
                    std::thread::yield_now();
                }
            })
            .unwrap();
            let store = wait.recv().unwrap();
            assert_eq!(liveness_locks(path).len(), 1, "the lock was removed");
            drop(store);
        });
    }

    /// Whether a thread of this process has this folder open besides the one that locked it.
    fn waits_for_lock_of(folder: &Path) -> bool {
        let open = std::fs::read_dir("/proc/self/fd").unwrap();
        open.filter(|entry| {
            let target = entry
                .as_ref()
                .ok()
                .and_then(|fd| fd.path().read_link().ok());
            target.as_deref() == Some(folder)
        })
        .count()
            > 1
    }

    #[test]
    fn a_removed_database_is_made_anew_without_the_liveness_locks_of_the_old_one() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("tenure.db");
        let link = folder.path().join("link.db");
        std::os::unix::fs::symlink(&path, &link).unwrap();
        for open_by in [&path, &link] {
            let old = SqliteStore::open(&path, SqliteOptions::default()).unwrap();
            old.this_process().unwrap();
            for end in ["", "-wal", "-shm"] {
                std::fs::remove_file(format!("{}{end}", path.display())).unwrap();
            }
            SqliteStore::open(open_by, SqliteOptions::default()).unwrap();
            assert!(liveness_locks(&path).is_empty());
        }
    }
}
