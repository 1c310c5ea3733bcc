//! The tables, their version, and the way from older versions to this one.
//!
//! `user_version` holds the version, `application_id` says that the file is tenure's. A migration
//! is one transaction: killed in the middle, the old version is still there, whole.

use std::path::{Path, PathBuf};

use rusqlite::{Connection, TransactionBehavior};
use tenure_core::{Epoch, ErrorKind, StoreError};

use crate::fault::explain;
use crate::foreign;

/// The version this code reads and writes.
pub const VERSION: i32 = 3;

/// "tenr" in ASCII.
pub(crate) const APPLICATION: i32 = 0x7465_6e72;

/// What turns version `n` into `n + 1`, by index.
const MIGRATIONS: [&str; VERSION as usize] = [
    include_str!("schema/1.sql"),
    include_str!("schema/2.sql"),
    include_str!("schema/3.sql"),
];

/// What a database says of itself.
#[derive(Debug, PartialEq, Eq)]
enum Found {
    Empty,
    Ours(i32),
    Foreign,
}

/// Makes sure that the database is ours and of this version.
pub(crate) fn prepare(path: &Path, db: &mut Connection, boot: &Epoch) -> Result<(), StoreError> {
    let mut was_complete = false;
    let found = look(db).and_then(|found| match found {
        Found::Ours(_) => Ok(found),
        // Somebody may be making it at this moment: look again, at one state of it. If it was
        // complete before that look, the look must show it.
        Found::Empty | Found::Foreign => {
            was_complete = liveness_folder_of(path).exists();
            look(&*db.unchecked_transaction()?)
        }
    });
    match found.map_err(|error| explain(path, error))? {
        Found::Ours(VERSION) => Ok(()),
        Found::Ours(version) if version > VERSION => Err(StoreError::new(
            ErrorKind::TooNew,
            format!(
                "{} was written by a newer tenure (schema {version}, this one knows up to {VERSION})",
                path.display()
            ),
        )
        .fix("use the newer tenure; nothing was changed")),
        Found::Foreign => Err(of_another_program(path, db)),
        Found::Empty if was_complete => Err(StoreError::new(
            ErrorKind::Damaged,
            format!("{} has been emptied", path.display()),
        )
        .fix("what was held in it is lost; to begin anew, remove it and run tenure init")),
        Found::Empty | Found::Ours(_) => {
            if !migrate(db, boot).map_err(|error| explain(path, error))? {
                return Err(of_another_program(path, db));
            }
            // A power cut that undid all of this would bring back tokens that were given by then.
            sync(path, db)?;
            // Made last, it says that the database was once complete.
            std::fs::create_dir_all(liveness_folder_of(path)).map_err(|error| {
                StoreError::new(ErrorKind::Io, format!("{} can't be made", liveness_folder_of(path).display()))
                    .because(error)
            })
        }
    }
}

fn of_another_program(path: &Path, db: &Connection) -> StoreError {
    let place = path.display();
    let what = format!("{place} is a database of another program");
    let fix = match foreign::has_lock_tables(db, "main") {
        Ok(true) => format!("to share its locks, write steroids:{place}; nothing was changed"),
        Ok(false) | Err(_) => "name another file; nothing was changed".into(),
    };
    StoreError::new(ErrorKind::NotAStore, what).fix(fix)
}

/// Where the lives of those who use a database are kept: beside it.
pub(crate) fn liveness_folder_of(path: &Path) -> PathBuf {
    let mut lives = path.as_os_str().to_owned();
    lives.push("-live");
    PathBuf::from(lives)
}

fn look(db: &Connection) -> rusqlite::Result<Found> {
    let number = |pragma: &str| db.query_row(pragma, [], |row| row.get::<_, i32>(0));
    // Both are written by one commit: whoever sees the first, then sees the second.
    if number("PRAGMA application_id")? == APPLICATION {
        return Ok(Found::Ours(number("PRAGMA user_version")?));
    }
    let version = number("PRAGMA user_version")?;
    let tables = number("SELECT count(*) FROM sqlite_schema")?;
    Ok(if version == 0 && tables == 0 {
        Found::Empty
    } else {
        Found::Foreign
    })
}

/// Makes the tables of this version; `false` if another program was faster.
fn migrate(db: &mut Connection, boot: &Epoch) -> rusqlite::Result<bool> {
    // Each commit writes a handful of pages, most of them for one small row.
    db.execute_batch("PRAGMA page_size = 1024")?;
    switch_to_wal(db)?;
    let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Somebody else may have done it while we waited.
    let from = match look(&tx)? {
        Found::Ours(version) => version,
        Found::Empty => 0,
        Found::Foreign => return Ok(false),
    };
    for migration in MIGRATIONS
        .iter()
        .skip(usize::try_from(from).unwrap_or(usize::MAX))
    {
        tx.execute_batch(migration)?;
    }
    tx.execute_batch(&format!(
        "PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {VERSION};"
    ))?;
    if from == 0 {
        // Tokens that are given from now on, and lost in a power cut, are of this boot.
        tx.execute("UPDATE tokens SET boot = ?1", [&boot.0])?;
    }
    tx.commit()?;
    Ok(true)
}

/// Makes all that was committed survive a power cut.
pub(crate) fn sync(path: &Path, db: &Connection) -> Result<(), StoreError> {
    // Ours only: without the name, it would be every database that is attached.
    let fold = "PRAGMA main.wal_checkpoint(PASSIVE)";
    let busy = db
        .query_row(fold, [], |row| row.get::<_, bool>(0))
        .map_err(|error| explain(path, error))?;
    if !busy {
        return Ok(());
    }
    // Somebody else is folding the log, perhaps an earlier part of it.
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    std::fs::File::open(log)
        .and_then(|log| log.sync_data())
        .map_err(|error| {
            StoreError::new(
                ErrorKind::OutcomeUnknown,
                format!("the log of {} can't be synced", path.display()),
            )
            .because(error)
        })
}

/// Turns the write-ahead log on. SQLite does not call the busy handler for this, so several
/// processes that make a new database at once have to try again by themselves.
fn switch_to_wal(db: &Connection) -> rusqlite::Result<()> {
    let mut tries = 0;
    loop {
        match db.query_row("PRAGMA journal_mode = WAL", [], |row| {
            row.get::<_, String>(0)
        }) {
            Err(rusqlite::Error::SqliteFailure(failure, _))
                if failure.code == rusqlite::ErrorCode::DatabaseBusy && tries < 1000 =>
            {
                tries += 1;
                std::thread::sleep(std::time::Duration::from_millis(5));
            }
            other => return other.map(|_| ()),
        }
    }
}
