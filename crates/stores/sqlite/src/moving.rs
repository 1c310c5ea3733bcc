//! Moving a database to another folder: [`move_database`].
//!
//! # Invariants
//!
//! 1. No process uses the database while it is moved, or has it open: the mover has SQLite's exclusive lock on the file.
//!    A process that comes meanwhile waits for the lock and then finds that the database was moved.
//! 2. At every moment the database is at one place. It is at the old one until the transaction commits that empties the
//!    old file and gives it the version [`MOVED`], which every version refuses. From then on the complete copy under its
//!    private name is the database, and the mover, or the next process that writes, gives it its name.
//! 3. A copy is on disk before that transaction commits, so a power cut leaves one or the other.
//!
//! Leases, tickets, tokens, tasks and history are copied as they are. What can't be copied is a liveness lock: it is a pipe
//! beside the old file. A lease or a ticket whose lock a process holds is a reason to wait.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, MAIN_DB};
use tenure_core::{Binding, ErrorKind, StoreError};
use tenure_host::LivenessFolder;
use tenure_host::files::atomic::{self, PutResult};
use tenure_host::files::permissions::create_folder;
use tenure_host::liveness_lock::LockState;

use crate::connection::{self, beside};
use crate::fault::explain;
use crate::rows;
use crate::schema::{self, APPLICATION, MOVED, Owner, VERSION};

/// What became of a database that was to be moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Moved {
    /// It is at its new place.
    Done,
    /// It is still at the old one: a process uses it, or it is not a database of this version.
    NotNow,
}

/// Moves a database to another path, unless a process uses it. A move that a killed process left unfinished is finished.
pub fn move_database(from: &Path, to: &Path) -> Result<Moved, StoreError> {
    let explained = |error| explain(from, error);
    let failed = |error: io::Error| {
        let what = format!("{} can't be moved to {}", from.display(), to.display());
        StoreError::new(ErrorKind::Io, what).because(error)
    };
    let is_own = fs::symlink_metadata(from).is_ok_and(|file| file.is_file() && file.nlink() == 1);
    if !is_own {
        // Another name leads to it, too, and processes that use that one would go on with the old file.
        return Ok(Moved::NotNow);
    }
    connection::refuse_planted(from, from)?;
    let _no_read_only_verb = connection::opening();
    let Some(mut db) = open_alone(from).map_err(explained)? else {
        return Ok(Moved::NotNow);
    };
    let copy = beside(to, "-moving");
    match schema::owner(&db).map_err(explained)? {
        Owner::Tenure(VERSION) => {}
        Owner::Tenure(MOVED) => {
            db.execute_batch("ROLLBACK").map_err(explained)?;
            finish(db, from, to, &copy).map_err(failed)?;
            return Ok(Moved::Done);
        }
        // To open it tells what it is, and upgrades an older one.
        Owner::Tenure(_) | Owner::Nobody | Owner::AnotherProgram => return Ok(Moved::NotNow),
    }
    if is_in_use(&db, from).map_err(explained)? {
        return Ok(Moved::NotNow);
    }
    let bytes = db.serialize(MAIN_DB).map_err(explained)?.to_vec();
    write_copy(&copy, &bytes).map_err(failed)?;
    empty(&db).map_err(explained)?;
    finish(db, from, to, &copy).map_err(failed)?;
    Ok(Moved::Done)
}

/// Opens a database with an exclusive lock and begins to write; `None` if another process has it open.
fn open_alone(path: &Path) -> rusqlite::Result<Option<Connection>> {
    let db = connection::open_existing(path, Duration::ZERO)?;
    let begin = "PRAGMA locking_mode = EXCLUSIVE; PRAGMA synchronous = FULL; PRAGMA foreign_keys = OFF; BEGIN IMMEDIATE;";
    match db.execute_batch(begin) {
        Ok(()) => Ok(Some(db)),
        Err(error) if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Whether a process holds the liveness lock of a lease or a ticket, or may.
fn is_in_use(db: &Connection, path: &Path) -> rusqlite::Result<bool> {
    let folder = LivenessFolder::new(schema::liveness_folder_of(path));
    let mut bindings =
        db.prepare("SELECT binding FROM leases UNION SELECT binding FROM tickets")?;
    let mut rows = bindings.query([])?;
    while let Some(row) = rows.next()? {
        let text = rows::text(row, 0)?;
        let binding = serde_json::from_str::<Binding>(&text);
        let lock = match &binding {
            Ok(binding) => binding.liveness_lock(),
            Err(_) => return Ok(true),
        };
        let is_gone = |lock| {
            matches!(
                folder.state_of(lock),
                Ok(LockState::Free | LockState::Missing)
            )
        };
        if lock.is_some_and(|lock| !is_gone(lock)) {
            return Ok(true);
        }
    }
    Ok(false)
}

fn write_copy(copy: &Path, bytes: &[u8]) -> io::Result<()> {
    atomic::replace(
        copy,
        &beside(copy, "-part"),
        bytes,
        atomic::Durability::PowerCut,
    )
}

/// Removes all tables, so that a program that goes on with the old file is refused, and commits.
fn empty(db: &Connection) -> rusqlite::Result<()> {
    for table in schema::of_kind(db, "table")? {
        let quoted = table.replace('"', "\"\"");
        db.execute_batch(&format!("DROP TABLE \"{quoted}\""))?;
    }
    db.execute_batch(&format!("PRAGMA user_version = {MOVED}; COMMIT;"))
}

/// Gives the copy its name and puts the placeholder at the old path. Each part may be done already.
fn finish(db: Connection, from: &Path, to: &Path, copy: &Path) -> io::Result<()> {
    if copy.exists() {
        // Left by a database that was removed: SQLite would apply them to this one.
        for end in ["-wal", "-shm", "-journal"] {
            atomic::unlink(&beside(to, end))?;
        }
        let (PutResult::Done | PutResult::Occupied) = atomic::move_in(copy, to)?;
        sync_folder_of(to)?;
        create_folder(&schema::liveness_folder_of(to))?;
    }
    // From here on nothing depends on the old file: what fails leaves some bytes behind.
    // Removes the log, and a process that waits for the file makes no new one.
    let _ = db.query_row("PRAGMA journal_mode = DELETE", [], |_| Ok(()));
    drop(db);
    let temp = beside(from, &format!("-moved.{}", std::process::id()));
    let _ = atomic::replace(from, &temp, &placeholder(), atomic::Durability::Crash);
    let _ = fs::remove_file(beside(from, "-shm"));
    let _ = LivenessFolder::new(schema::liveness_folder_of(from)).clear();
    Ok(())
}

fn sync_folder_of(path: &Path) -> io::Result<()> {
    path.parent()
        .map_or(Ok(()), |folder| File::open(folder)?.sync_all())
}

/// The size of the smallest database, which no other database of tenure has: their pages are larger.
const SMALLEST: usize = 512;

/// The file for the place of a database that is somewhere else: one without tables, which every version of tenure refuses.
pub fn placeholder() -> [u8; SMALLEST] {
    let mut page = [0; SMALLEST];
    let mut put = |at: usize, bytes: &[u8]| {
        for (place, byte) in page.iter_mut().skip(at).zip(bytes) {
            *place = *byte;
        }
    };
    put(0, b"SQLite format 3\0");
    // The size of a page, no log, and three fractions that never vary.
    put(16, &[2, 0, 1, 1, 0, 64, 32, 32]);
    // The number of changes, and of pages.
    put(24, &[0, 0, 0, 1, 0, 0, 0, 1]);
    // The format of the schema, and after the sizes, UTF-8.
    put(44, &[0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    put(60, &MOVED.to_be_bytes());
    put(68, &APPLICATION.to_be_bytes());
    // The number of changes again, and the version of SQLite that made it.
    put(92, &[0, 0, 0, 1]);
    put(96, &3_045_000_u32.to_be_bytes());
    // An empty leaf, whose content would begin at the end of the page.
    put(100, &[13, 0, 0, 0, 0, 2, 0, 0]);
    page
}

#[cfg(test)]
mod tests {
    use tenure_core::{Key, Store};
    use tenure_testkit::soon;

    use super::*;
    use crate::store::{SqliteOptions, SqliteStore};

    #[test]
    fn the_placeholder_is_a_whole_database_that_every_version_refuses() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tenure.db");
        fs::write(&path, placeholder()).unwrap();
        let db = Connection::open(&path).unwrap();
        let whole: String = db
            .query_row("PRAGMA integrity_check", [], |row| row.get(0))
            .unwrap();
        assert_eq!(whole, "ok");
        assert_eq!(schema::owner(&db).unwrap(), Owner::Tenure(MOVED));
        drop(db);
        for opened in [
            SqliteStore::open(&path, SqliteOptions::default()),
            SqliteStore::open_read_only(&path, SqliteOptions::default()),
        ] {
            assert_eq!(opened.err().unwrap().kind, ErrorKind::TooNew);
        }
        assert_eq!(fs::read(&path).unwrap(), placeholder());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn a_database_that_is_open_is_not_moved() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("old.db"), dir.path().join("new.db"));
        let store = SqliteStore::open(&from, SqliteOptions::default()).unwrap();
        assert_eq!(move_database(&from, &to).unwrap(), Moved::NotNow);
        assert!(!to.exists());
        drop(store);
        assert_eq!(move_database(&from, &to).unwrap(), Moved::Done);
        let moved = SqliteStore::open(&to, SqliteOptions::default()).unwrap();
        let build = Key::parse("build").unwrap();
        assert!(moved.inspect(&build, soon()).unwrap().is_idle());
        assert_eq!(fs::read(&from).unwrap(), placeholder());
        assert!(!beside(&from, "-wal").exists() && !beside(&from, "-shm").exists());
        assert_eq!(move_database(&from, &to).unwrap(), Moved::Done, "again");
    }

    #[test]
    fn a_database_with_a_second_name_is_not_moved() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("old.db"), dir.path().join("new.db"));
        drop(SqliteStore::open(&from, SqliteOptions::default()).unwrap());
        let link = dir.path().join("link.db");
        std::os::unix::fs::symlink(&from, &link).unwrap();
        assert_eq!(move_database(&link, &to).unwrap(), Moved::NotNow);
        fs::hard_link(&from, dir.path().join("second.db")).unwrap();
        assert_eq!(move_database(&from, &to).unwrap(), Moved::NotNow);
        assert!(!to.exists());
    }

    #[test]
    fn a_move_that_was_killed_is_finished_or_begun_again() {
        for step in 0..4 {
            let dir = tempfile::tempdir().unwrap();
            let (from, to) = (dir.path().join("old.db"), dir.path().join("new.db"));
            let copy = beside(&to, "-moving");
            drop(SqliteStore::open(&from, SqliteOptions::default()).unwrap());
            let mut db = open_alone(&from).unwrap().unwrap();
            db.execute_batch("UPDATE tokens SET newest = 7").unwrap();
            let bytes = db.serialize(MAIN_DB).unwrap().to_vec();
            match step {
                // Half of a copy.
                0 => {
                    db.execute_batch("COMMIT").unwrap();
                    fs::write(&copy, &bytes[..700]).unwrap();
                }
                // A copy that is older than what was committed since.
                1 => {
                    write_copy(&copy, &bytes).unwrap();
                    db.execute_batch("UPDATE tokens SET newest = 8; COMMIT")
                        .unwrap();
                }
                2 => {
                    write_copy(&copy, &bytes).unwrap();
                    empty(&db).unwrap();
                    // What a database that was removed left behind.
                    fs::write(beside(&to, "-wal"), "stale").unwrap();
                }
                _ => {
                    write_copy(&copy, &bytes).unwrap();
                    empty(&db).unwrap();
                    fs::rename(&copy, &to).unwrap();
                }
            }
            drop(db);
            assert_eq!(move_database(&from, &to).unwrap(), Moved::Done);
            let moved = Connection::open(&to).unwrap();
            let newest: i64 = moved
                .query_row("SELECT newest FROM tokens", [], |row| row.get(0))
                .unwrap();
            assert_eq!(newest, if step == 1 { 8 } else { 7 });
            assert_eq!(fs::read(&from).unwrap(), placeholder());
            assert!(!copy.exists());
        }
    }
}
