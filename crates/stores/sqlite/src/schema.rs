//! The schema, its version, and the upgrade of older databases.
//!
//! `application_id` says that the file is tenure's, `user_version` holds the schema's version.
//! `schema.sql`, `tasks.sql` and `triggers.sql` are the whole schema of [`VERSION`]; there is no chain of migrations. An
//! older database is rebuilt: its tables are set aside, the files make new ones, and each new table
//! takes the columns that the old one had.
//!
//! SQLite parses all of it whenever a process opens the database, which takes longer than to acquire and
//! release a key, and most of it is for tasks. So a database that is made for locks ([`Purpose::Locks`]) has the tables
//! of `schema.sql` only, until it is opened for tasks or a task is written. Until then, reading tasks finds none
//! ([`without_tasks`]). In the same way, the index of reservations ([`crate::reserved`]) is made with the first one.
//!
//! # Invariants
//!
//! 1. A database is made or upgraded in one transaction, together with both numbers. A process that
//!    is killed on the way leaves the old version whole.
//! 2. The tables of tasks are there with all of their indexes and triggers, or not at all.
//! 3. The liveness folder beside a database is made after its schema is on disk. So an empty
//!    database with such a folder was emptied by another program.
//!
//! # What this does not do
//!
//! An upgrade keeps no index and no trigger that another program put on one of tenure's tables.

use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, ErrorCode, TransactionBehavior};
use tenure_core::{Epoch, ErrorKind, StoreError};
use tenure_host::files::permissions::create_folder;
use tenure_host::time_limit::TimeLimit;

use crate::connection::{PATIENCE, beside};
use crate::fault::explain;
use crate::lock_tables::has_lock_tables;
use crate::query::Query as _;
use crate::read_only;
use crate::reserved;

/// The version this code reads and writes.
pub const VERSION: i32 = 8;

/// The version of a file whose database was moved; see [`crate::moving`].
pub(crate) const MOVED: i32 = 1000;

/// "tenr" in ASCII.
pub(crate) const APPLICATION: i32 = 0x7465_6e72;

/// The tables and indexes that locks need.
pub(crate) const LOCKS: &str = include_str!("schema.sql");

/// The tables and indexes of tasks.
const TASKS: &str = include_str!("tasks.sql");

/// The triggers of those.
const TRIGGERS: &str = include_str!("triggers.sql");

/// Records that no task is shared with other clones.
pub(crate) const UNSETTLE: &str = "
    UPDATE exchange SET settled = '';
    INSERT OR IGNORE INTO unshared SELECT id, 0 FROM tasks UNION SELECT id, 0 FROM deleted_tasks;
    INSERT OR IGNORE INTO unshared SELECT '', 0 WHERE EXISTS (SELECT 1 FROM sections);";

/// Whose database a file is.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Owner {
    /// It has no tables yet.
    Nobody,
    /// Tenure's, with the version of its schema.
    Tenure(i32),
    AnotherProgram,
}

/// What a database is opened for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Purpose {
    /// Locks above all. A database that is made for them has no tables for tasks until one is written, so it is
    /// opened faster.
    Locks,
    /// Tasks, too. The database has their tables from now on, also for other programs.
    Tasks,
}

/// Makes sure that the database is tenure's and of this version, and has what its purpose needs.
pub(crate) fn prepare(
    path: &Path,
    db: &mut Connection,
    boot: &Epoch,
    purpose: Purpose,
) -> Result<(), StoreError> {
    let mut was_complete = false;
    let owner = owner(db).and_then(|found| match found {
        Owner::Tenure(_) => Ok(found),
        // Another process may be making it at this moment, so read all of it in one transaction. If
        // the database was complete before that transaction began, the transaction sees it.
        Owner::Nobody | Owner::AnotherProgram => {
            was_complete = liveness_folder_of(path).exists();
            owner(&*db.unchecked_transaction()?)
        }
    });
    let sql = |error| explain(path, error);
    let owner = owner.map_err(sql)?;
    let is_older = matches!(owner, Owner::Tenure(version) if version < VERSION);
    if !is_older && (owner != Owner::Nobody || was_complete) {
        check(path, path, db, &owner)?;
        return match purpose {
            Purpose::Locks => Ok(()),
            Purpose::Tasks => add_tasks(db).map_err(sql),
        };
    }
    if !migrate(db, boot, purpose).map_err(sql)? {
        return Err(of_another_program(path, db));
    }
    // A power cut that undid all of this would bring back tokens that were granted by then.
    sync(path, db)?;
    let folder = liveness_folder_of(path);
    create_folder(&folder).map(drop).map_err(|error| {
        let what = format!("{} can't be made", folder.display());
        StoreError::new(ErrorKind::Io, what).because(error)
    })
}

/// Refuses a database that can't be read as it is. `named` is the path for messages.
pub(crate) fn check(
    named: &Path,
    real: &Path,
    db: &Connection,
    owner: &Owner,
) -> Result<(), StoreError> {
    let place = named.display();
    Err(match owner {
        Owner::Tenure(VERSION) => return Ok(()),
        Owner::Tenure(version) if *version > VERSION => too_new(named, *version),
        Owner::Tenure(version) => {
            let what = format!(
                "{place} was written by an older tenure (schema {version}, this one reads {VERSION}) and must be upgraded first, which writes"
            );
            StoreError::new(ErrorKind::ReadOnly, what).fix(read_only::WRITE_ONCE)
        }
        Owner::AnotherProgram => of_another_program(named, db),
        Owner::Nobody if liveness_folder_of(real).exists() => emptied(named),
        Owner::Nobody => {
            let what = format!("there is no store at {place}: the database has no tables");
            StoreError::new(ErrorKind::NotFound, what)
                .fix("make it with tenure init, or name another file; nothing was created")
        }
    })
}

fn too_new(path: &Path, version: i32) -> StoreError {
    if version == MOVED {
        let what = format!(
            "the database {} was moved into git's own directory",
            path.display()
        );
        return StoreError::new(ErrorKind::TooNew, what).fix(
            "leave --store out, and tenure finds it; if a command was killed while it moved it, the next one that writes, \
             such as tenure locks cleanup, finishes that; if the repository is gone, remove the file and run tenure init",
        );
    }
    let what = format!(
        "{} was written by a newer tenure (schema {version}, this one knows up to {VERSION})",
        path.display()
    );
    StoreError::new(ErrorKind::TooNew, what).fix("use the newer tenure; nothing was changed")
}

pub(crate) fn emptied(path: &Path) -> StoreError {
    let what = format!("{} has been emptied", path.display());
    StoreError::new(ErrorKind::Damaged, what)
        .fix("what was held in it is lost; to begin anew, remove it and run tenure init")
}

fn of_another_program(path: &Path, db: &Connection) -> StoreError {
    let place = path.display();
    let what = format!("{place} is a database of another program");
    let fix = match has_lock_tables(db, "main") {
        Ok(true) => format!("to share its locks, write steroids:{place}; nothing was changed"),
        Ok(false) | Err(_) => "name another file; nothing was changed".into(),
    };
    StoreError::new(ErrorKind::NotAStore, what).fix(fix)
}

/// Where the processes that use a database keep their liveness locks: beside it.
pub(crate) fn liveness_folder_of(path: &Path) -> PathBuf {
    beside(path, "-live")
}

pub(crate) fn owner(db: &Connection) -> rusqlite::Result<Owner> {
    let number = |pragma: &str| db.query_row(pragma, [], |row| row.get::<_, i32>(0));
    // One commit writes both numbers, so a reader that sees the first then sees the second.
    if number("PRAGMA application_id")? == APPLICATION {
        return Ok(Owner::Tenure(number("PRAGMA user_version")?));
    }
    let version = number("PRAGMA user_version")?;
    let tables = number("SELECT count(*) FROM sqlite_schema")?;
    Ok(if version == 0 && tables == 0 {
        Owner::Nobody
    } else {
        Owner::AnotherProgram
    })
}

/// Makes the tables of this version; `false` if another program made its own meanwhile.
fn migrate(db: &mut Connection, boot: &Epoch, purpose: Purpose) -> rusqlite::Result<bool> {
    // Each commit writes a handful of pages, most of them for one small row.
    db.execute_batch("PRAGMA page_size = 1024")?;
    switch_to_wal(db)?;
    // None of these three can be changed inside a transaction. Old tables change their names, which
    // must not reach the foreign keys of other tables, and copying a row is not a change of it.
    let rebuilding = |db: &Connection, yes: bool| {
        let (off, on) = if yes { ("OFF", "ON") } else { ("ON", "OFF") };
        db.execute_batch(&format!(
            "PRAGMA foreign_keys = {off}; PRAGMA legacy_alter_table = {on};"
        ))?;
        db.set_db_config(DbConfig::SQLITE_DBCONFIG_ENABLE_TRIGGER, !yes)
    };
    rebuilding(db, true)?;
    let migrated = write_schema(db, boot, purpose);
    rebuilding(db, false)?;
    migrated
}

fn write_schema(db: &mut Connection, boot: &Epoch, purpose: Purpose) -> rusqlite::Result<bool> {
    let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    // Another process may have done it while this one waited for the transaction.
    match owner(&tx)? {
        Owner::AnotherProgram => return Ok(false),
        Owner::Tenure(version) if version >= VERSION => return Ok(true),
        Owner::Tenure(version) => rebuild(&tx, version, purpose)?,
        Owner::Nobody => {
            tx.execute_batch(LOCKS)?;
            if purpose == Purpose::Tasks {
                tx.execute_batch(TASKS)?;
            }
            // Tokens that are granted from now on, and lost in a power cut, are of this boot.
            tx.execute("UPDATE tokens SET boot = ?1", [&boot.0])?;
        }
    }
    if has_tasks(&tx)? {
        tx.execute_batch(TRIGGERS)?;
    }
    tx.execute_batch(&format!(
        "PRAGMA application_id = {APPLICATION}; PRAGMA user_version = {VERSION};"
    ))?;
    tx.commit()?;
    Ok(true)
}

/// Adds the tables of tasks to a database that was made for locks.
pub(crate) fn add_tasks(db: &mut Connection) -> rusqlite::Result<()> {
    if has_tasks(db)? {
        return Ok(());
    }
    let tx = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    if !has_tasks(&tx)? {
        tx.execute_batch(TASKS)?;
        tx.execute_batch(TRIGGERS)?;
    }
    tx.commit()
}

/// Whether a database of this version has the tables of tasks.
pub(crate) fn has_tasks(db: &Connection) -> rusqlite::Result<bool> {
    let any = "SELECT 1 FROM main.sqlite_schema WHERE type = 'table' AND name = 'tasks'";
    db.any(any, [])
}

/// What a reader of tasks sees in place of a database that has no tables for them.
pub(crate) fn without_tasks() -> rusqlite::Result<Connection> {
    let nothing = Connection::open_in_memory()?;
    nothing.execute_batch(LOCKS)?;
    nothing.execute_batch(TASKS)?;
    Ok(nothing)
}

/// The names of the tables, indexes or triggers of a database.
pub(crate) fn of_kind(db: &Connection, kind: &str) -> rusqlite::Result<Vec<String>> {
    db.prepare("SELECT name FROM sqlite_schema WHERE type = ?1 AND name NOT LIKE 'sqlite_%'")?
        .query_map([kind], |row| row.get(0))?
        .collect()
}

/// Gives the tables of an older version the schema of this one, without its triggers. The tables of tasks are left out
/// if there is nothing in them and the purpose does not need them.
fn rebuild(db: &Connection, version: i32, purpose: Purpose) -> rusqlite::Result<()> {
    let fresh = Connection::open_in_memory()?;
    fresh.execute_batch(LOCKS)?;
    let of_locks = of_kind(&fresh, "table")?;
    fresh.execute_batch(TASKS)?;
    fresh.execute_batch(TRIGGERS)?;
    for kind in ["trigger", "index"] {
        for name in of_kind(&fresh, kind)? {
            db.execute_batch(&format!("DROP {kind} IF EXISTS {name}"))?;
        }
    }
    let mut tables = of_kind(&fresh, "table")?;
    tables.retain(|table| !columns(db, table).is_ok_and(|columns| columns.is_empty()));
    let mut keeps_tasks = purpose == Purpose::Tasks;
    for table in tables.iter().filter(|table| !of_locks.contains(table)) {
        // This table always has one row.
        let unchanged = if table == "exchange" {
            "WHERE changes <> 0 OR settled <> ''"
        } else {
            ""
        };
        let any = format!("SELECT EXISTS (SELECT 1 FROM {table} {unchanged})");
        keeps_tasks |= db.query_row(&any, [], |row| row.get::<_, bool>(0))?;
    }
    for table in &tables {
        db.execute_batch(&format!("ALTER TABLE {table} RENAME TO old_{table}"))?;
    }
    db.execute_batch(LOCKS)?;
    if keeps_tasks {
        db.execute_batch(TASKS)?;
    }
    for table in &tables {
        if !keeps_tasks && !of_locks.contains(table) {
            continue;
        }
        let old = columns(db, &format!("old_{table}"))?;
        let mut shared = columns(db, table)?;
        shared.retain(|column| old.contains(column));
        let shared = shared.join(", ");
        db.execute_batch(&format!(
            "INSERT OR REPLACE INTO {table} ({shared}) SELECT {shared} FROM old_{table}"
        ))?;
    }
    // The numbers of tickets that are gone are not given again.
    db.execute_batch(
        "DELETE FROM sqlite_sequence WHERE name = 'tickets';
         UPDATE sqlite_sequence SET name = 'tickets' WHERE name = 'old_tickets';",
    )?;
    for table in &tables {
        db.execute_batch(&format!("DROP TABLE old_{table}"))?;
    }
    if keeps_tasks && version < 2 {
        // Tasks had no times and no record of their grants: the holder was granted its task last.
        db.execute_batch(
            "UPDATE tasks SET runner = (SELECT holder FROM leases WHERE key = 'task:' || tasks.id),
                 token = coalesce((SELECT token FROM leases WHERE key = 'task:' || tasks.id), 0),
                 created_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now'),
                 updated_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now');
             UPDATE sections SET created_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now');",
        )?;
    }
    if keeps_tasks && version < 5 {
        db.execute_batch(UNSETTLE)?;
    }
    reserved::rebuild(db)
}

/// The columns of a table; none if there is no such table.
fn columns(db: &Connection, table: &str) -> rusqlite::Result<Vec<String>> {
    db.prepare("SELECT name FROM pragma_table_info(?1)")?
        .query_map([table], |row| row.get(0))?
        .collect()
}

/// What [`sync`] made durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Synced {
    /// The whole log is in the database file, which SQLite synced.
    Database,
    /// The log itself.
    Log,
}

/// Makes all that was committed survive a power cut.
///
/// A passive checkpoint syncs the log before it copies pages, and the database file once it has
/// copied all of them. If a reader still needs the old pages it may copy nothing and sync nothing,
/// and it does not call that busy. Only the last two columns of its answer, the frames in the log
/// and those that are in the database file, tell whether it did all of its work.
pub(crate) fn sync(path: &Path, db: &Connection) -> Result<Synced, StoreError> {
    // Only tenure's own database: without the name, SQLite would do it to every attached one.
    let checkpoint = "PRAGMA main.wal_checkpoint(PASSIVE)";
    let copied_all = db
        .query_row(checkpoint, [], |row| {
            let (busy, frames, copied): (bool, i64, i64) = row.try_into()?;
            Ok(!busy && frames == copied)
        })
        .map_err(|error| explain(path, error))?;
    if copied_all {
        return Ok(Synced::Database);
    }
    let log = beside(path, "-wal");
    let folder = path
        .parent()
        .filter(|parent| !parent.as_os_str().is_empty());
    let synced = std::fs::File::open(log)
        .and_then(|log| log.sync_data())
        .and_then(|()| {
            // The log may be new, and then so is its name in the folder.
            folder.map_or(Ok(()), |folder| std::fs::File::open(folder)?.sync_all())
        });
    synced.map_err(|error| {
        let what = format!("the log of {} can't be synced", path.display());
        StoreError::new(ErrorKind::OutcomeUnknown, what).because(error)
    })?;
    Ok(Synced::Log)
}

/// Turns the write-ahead log on. SQLite does not call the busy handler for this, so several
/// processes that make a new database at once have to try again by themselves.
fn switch_to_wal(db: &Connection) -> rusqlite::Result<()> {
    let limit = TimeLimit::after(PATIENCE);
    loop {
        match db.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(())) {
            Err(error)
                if error.sqlite_error_code() == Some(ErrorCode::DatabaseBusy)
                    && !limit.has_passed() =>
            {
                std::thread::sleep(Duration::from_millis(5));
            }
            switched => return switched,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn database(folder: &Path) -> (PathBuf, Connection) {
        let path = folder.join("tenure.db");
        let boot = Epoch("boot".into());
        let flags = rusqlite::OpenFlags::empty();
        let db = crate::connection::open(&path, &boot, flags, Purpose::Locks);
        (path, db.unwrap().0)
    }

    #[test]
    fn the_log_is_synced_while_a_reader_keeps_the_checkpoint_from_it() {
        let folder = tempfile::tempdir().unwrap();
        let (path, db) = database(folder.path());
        let raise = "UPDATE tokens SET newest = newest + 1";
        db.execute_batch(raise).unwrap();
        assert_eq!(sync(&path, &db).unwrap(), Synced::Database);
        // The reader's snapshot ends where the log has been copied to, so a checkpoint finds nothing
        // to do and syncs nothing. It does not say that it is busy.
        let reader = Connection::open(&path).unwrap();
        reader.execute_batch("BEGIN").unwrap();
        reader
            .query_row("SELECT newest FROM tokens", [], |_| Ok(()))
            .unwrap();
        db.execute_batch(raise).unwrap();
        let answer: (i64, i64, i64) = db
            .query_row("PRAGMA main.wal_checkpoint(PASSIVE)", [], |row| {
                Ok((row.get(0)?, row.get(1)?, row.get(2)?))
            })
            .unwrap();
        assert_eq!(answer.0, 0, "not busy");
        assert!(answer.1 > answer.2, "{answer:?}");
        assert_eq!(sync(&path, &db).unwrap(), Synced::Log);
        reader.execute_batch("COMMIT").unwrap();
        assert_eq!(sync(&path, &db).unwrap(), Synced::Database);
    }
}
