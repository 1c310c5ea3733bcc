//! Finding, checking and attaching the other program's database.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, MAIN_DB, OpenFlags};
use tenure_core::{ErrorKind, StoreError};

use super::Steroids;
use crate::connection::{self, OpenFile, beside};
use crate::fault::explain;
use crate::lock_tables::has_lock_tables;
use crate::read_only;
use crate::schema::{self, Purpose};
use crate::store::{Access, SqliteOptions, SqliteStore};

impl SqliteStore {
    /// Opens a live database of another program that has the two documented lock tables. Tenure
    /// keeps everything else in `PATH-tenure` beside it, which is made if it is not there.
    pub fn open_foreign(path: &Path, options: SqliteOptions) -> Result<Self, StoreError> {
        let (steroids, side) = find_both(path)?;
        let other = steroids.file.path();
        if !side.exists() {
            // Make nothing beside a file that is then refused.
            look_first(path, other)?;
        }
        // As a URI, because only a URI (`mode=rw`) can say that the file must exist.
        let boot = options.clock.now().epoch;
        let flags = OpenFlags::SQLITE_OPEN_URI;
        let (db, side) = connection::open(&side, &boot, flags, Purpose::Locks)?;
        attach(&db, other).map_err(|error| refuse(path, error))?;
        check(path, &db, "other")?;
        steroids.file.still_there()?;
        let file = OpenFile::at(&side)?;
        let tables = Box::new(steroids);
        let access = Access::ReadWrite;
        Ok(Self::assemble(
            db, path, &side, file, tables, access, options,
        ))
    }

    /// Opens a live database of another program to look at it, as [`Self::open_read_only`] does. If tenure has
    /// no database beside it, every lock is the other program's.
    pub fn open_foreign_read_only(path: &Path, options: SqliteOptions) -> Result<Self, StoreError> {
        let (steroids, side) = find_both(path)?;
        let db = {
            let _nothing_is_opened = connection::keep_others_from_opening();
            connect_both(path, steroids.file.path(), &side)?
        };
        check(path, &db, "other")?;
        let file = OpenFile::at(path)?;
        let tables = Box::new(steroids);
        let access = Access::ReadOnly;
        Ok(Self::assemble(
            db, path, &side, file, tables, access, options,
        ))
    }
}

/// The other program's database, and the path of tenure's beside it, which need not exist.
fn find_both(path: &Path) -> Result<(Steroids, PathBuf), StoreError> {
    let place = path.display();
    let real = connection::find(path)?;
    real.symlink_metadata().map_err(|error| {
        let missing = matches!(
            error.kind(),
            std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory
        );
        if missing {
            StoreError::new(ErrorKind::NotAStore, format!("there is no database {place}")).fix(
                "name the other program's database, for example steroids:.steroids/steroids.db; nothing was created",
            )
        } else {
            StoreError::new(ErrorKind::Io, format!("{place} can't be looked at")).because(error)
        }
    })?;
    if !real.is_file() {
        let what = format!("{place} is not a file, so not a database");
        return Err(StoreError::new(ErrorKind::NotAStore, what)
            .fix("name the database file, for example steroids:.steroids/steroids.db"));
    }
    connection::refuse_planted(path, &real)?;
    let file = OpenFile::at(&real)?;
    Ok((Steroids { file }, beside(&real, "-tenure")))
}

/// Checks the other program's database alone, and leaves everything as it was.
fn look_first(path: &Path, real: &Path) -> Result<(), StoreError> {
    let db = connection::open_existing(real, connection::PATIENCE);
    let db = db.map_err(|error| refuse(path, error))?;
    let checked = check(path, &db, "main");
    connection::leave_no_log(&db, real);
    checked
}

fn attach(db: &Connection, other: &Path) -> rusqlite::Result<()> {
    db.execute("ATTACH ?1 AS other", [connection::uri(other, "mode=rw")])?;
    let journal: String = db.query_row("PRAGMA other.journal_mode", [], |row| row.get(0))?;
    if journal == "wal" {
        // As the other program does. The setting ends with this connection.
        db.execute_batch("PRAGMA other.synchronous = NORMAL")?;
    }
    Ok(())
}

/// Checks that a database has both lock tables, with the columns that tenure reads and writes.
fn check(path: &Path, db: &Connection, schema: &str) -> Result<(), StoreError> {
    let place = path.display();
    let sql = |error| refuse(path, error);
    let application = format!("PRAGMA {schema}.application_id");
    let application: i32 = db
        .query_row(&application, [], |row| row.get(0))
        .map_err(sql)?;
    let refused = if application == schema::APPLICATION {
        let what = format!("{place} is a database of tenure itself");
        StoreError::new(ErrorKind::NotAStore, what).fix(format!("write sqlite:{place}"))
    } else if !has_lock_tables(db, schema).map_err(sql)? {
        let what =
            format!("{place} has no tables task_locks and section_locks with the known columns");
        StoreError::new(ErrorKind::NotAStore, what)
            .fix("name a database of a program that keeps its locks there; nothing was changed")
    } else if db.is_readonly(schema).map_err(sql)? {
        let what = format!("no permission to write to {place}");
        StoreError::new(ErrorKind::ReadOnly, what)
            .fix("check the permissions of the file and its folder, and how it is mounted")
    } else {
        return Ok(());
    };
    Err(refused)
}

/// Why the other program's database can't be used, and what to do: it is not tenure's to move away
/// or to repair.
fn refuse(path: &Path, error: rusqlite::Error) -> StoreError {
    let fault = explain(path, error);
    match fault.kind {
        ErrorKind::NotAStore => fault.fix("name a database of the other program"),
        ErrorKind::Damaged => fault.fix("look at it with the program that it belongs to"),
        _ => fault,
    }
}

/// Copies tenure's database `side`, or an empty one if there is none, and the other program's, attached to it as
/// `other`, into memory.
///
/// Two files are not committed in one step: tenure's comes first. So the copies count only if tenure's was the
/// same before and after the other was copied. What a process has committed to one of them only is in `leaving`,
/// or is a grant that was not reported yet.
pub(super) fn connect_both(
    path: &Path,
    other: &Path,
    side: &Path,
) -> Result<Connection, StoreError> {
    let refused = |error| explain(path, error);
    let copy_ours = || -> Result<Option<Vec<u8>>, StoreError> {
        if !side.exists() {
            return Ok(None);
        }
        let db = read_only::connect(side, side)?;
        read_only::check(side, side, &db)?;
        Ok(Some(bytes_of(db).map_err(refused)?))
    };
    for _ in 0..read_only::ATTEMPTS {
        let ours = copy_ours()?;
        let theirs = bytes_of(read_only::connect(path, other)?).map_err(refused)?;
        if copy_ours()? != ours {
            std::thread::sleep(read_only::PAUSE);
            continue;
        }
        let combine = || -> rusqlite::Result<Connection> {
            let mut db = Connection::open_in_memory()?;
            match ours {
                Some(bytes) => {
                    db.deserialize_read_exact(MAIN_DB, &*bytes, bytes.len(), true)?;
                }
                None => db.execute_batch(schema::LOCKS)?,
            }
            db.execute_batch("ATTACH ':memory:' AS other")?;
            db.deserialize_read_exact(c"other", &*theirs, theirs.len(), true)?;
            read_only::set_up(db)
        };
        return combine().map_err(refused);
    }
    Err(read_only::changes_all_the_time(path))
}

/// The whole database as the connection sees it, with what is in its log.
fn bytes_of(mut db: Connection) -> rusqlite::Result<Vec<u8>> {
    read_only::begin(&db)?;
    let mut bytes = db.serialize(MAIN_DB)?.to_vec();
    read_only::forget_log(&mut bytes);
    Ok(bytes)
}
