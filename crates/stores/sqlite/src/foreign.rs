//! A live database of another program that has the two documented lock tables.
//!
//! Leases, queue, tokens and history are in tenure's own database beside it, `PATH-tenure`. The other
//! program's database is attached to that one as `other`. Tenure writes rows of its `task_locks` and
//! `section_locks` and nothing else: no table, no index, no pragma that stays.
//!
//! # Two files, two commits
//!
//! `BEGIN IMMEDIATE` locks both files, tenure's first, and both stay locked until both are committed.
//! A commit writes tenure's file first. A process that is killed between the two leaves this:
//!
//! | killed in a | tenure's file | the other file | what counts |
//! |---|---|---|---|
//! | grant | a lease | no row | no lease: the call never returned |
//! | takeover | the new lease | the old row | no lease: the old row is in `leaving` |
//! | renewal | the new end | the old end | the old end |
//! | release, end | no lease | the old row | no lease: the old row is in `leaving` |
//!
//! # Invariants
//!
//! 1. A transaction that removes a row of the other program's, or gives it to another runner, also
//!    writes that row into `leaving`. A lock row with the same runner and end as an entry of `leaving`
//!    counts as removed.
//! 2. An entry of `leaving` is dropped only by a transaction that finds its row gone, or changed, as
//!    it begins; never by the one that removes the row.
//! 3. Reading takes the write locks too, so a reader never sees half of a commit.
//!
//! # What this does not do
//!
//! It does not make the two files one. A power cut may undo the last commits of either. A row that
//! is then only in the other program's file counts as that program's until it expires.

use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::types::Value;
use rusqlite::{Connection, OpenFlags, OptionalExtension, params};
use tenure_core::{Epoch, ErrorKind, Key, Lease, StoreError};
use tenure_host::bell::Exits;

use crate::connection;
use crate::fault::explain;
use crate::lock_tables::{LockTable, LockTables};
use crate::schema::{self, Purpose};
use crate::store::{SqliteOptions, SqliteStore};

/// How often a waiter or a holder polls the lock rows that it depends on: another program that writes them
/// wakes nobody.
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// The other program's database.
#[derive(Debug)]
pub(crate) struct ForeignDatabase {
    /// Its real path, with links resolved.
    path: PathBuf,
    /// Its device and inode.
    file: (u64, u64),
}

impl SqliteStore {
    /// Opens a live database of another program that has the two documented lock tables. Tenure
    /// keeps everything else in `PATH-tenure` beside it, which is made if it is not there.
    pub fn open_foreign(path: &Path, options: SqliteOptions) -> Result<Self, StoreError> {
        let (foreign, side) = find_both(path)?;
        if !side.exists() {
            // Make nothing beside a file that is then refused.
            look_first(path, &foreign.path)?;
        }
        let (connection, side) = attach(path, &foreign, &side, &options.clock.now().epoch)?;
        Self::assemble(connection, path, &side, Some(foreign), options)
    }

    /// Refuses a key that has no lock table in the other program's database.
    pub(crate) fn check_key(&self, key: &Key) -> Result<(), StoreError> {
        if self.foreign.is_none() || LockTable::of(key).is_some() {
            return Ok(());
        }
        Err(StoreError::new(
            ErrorKind::Unsupported,
            format!(
                "{} holds tasks and sections only, not {key}",
                self.path().display()
            ),
        )
        .fix("name task:ID or section:ID, or use the project's own store for other keys"))
    }

    /// Whether it is another program's database.
    pub fn is_foreign(&self) -> bool {
        self.foreign.is_some()
    }

    /// What the other program calls a task or a section: its title, or its name. `None` if its database does not tell,
    /// or if this is a database of tenure's own.
    pub fn foreign_name(&self, key: &Key) -> Result<Option<String>, StoreError> {
        let column = match LockTable::of(key) {
            Some((LockTable::Task, id)) => Some(("tasks", "title", id)),
            Some((LockTable::Section, id)) => Some(("sections", "name", id)),
            None => None,
        };
        let Some((table, column, id)) = column.filter(|_| self.foreign.is_some()) else {
            return Ok(None);
        };
        self.poll(|db| text_of(db, table, column, id))
    }

    /// What a process that waits for this key, or holds it, has to poll: the rows that another program may
    /// change. Call it before the revision is compared, so that no change is missed.
    pub(crate) fn foreign_lock(&self, key: &Key) -> Result<Option<ForeignLock>, StoreError> {
        if self.foreign.is_none() {
            return Ok(None);
        }
        self.poll(|db| {
            let keys = std::iter::once(key.clone()).chain(section_of(db, key)?);
            let mut rows = Vec::new();
            for key in keys {
                let runner = runner(db, &key)?;
                rows.push((key, runner));
            }
            let version = version(db)?;
            let held = rows.iter().any(|(_, runner)| runner.is_some());
            Ok(held.then_some(ForeignLock { rows, version }))
        })
    }

    /// Blocks until the waiter is woken or the other program's lock changes hands; `false` if
    /// neither happened in time.
    pub(crate) fn listen(
        &self,
        generation: u32,
        exits: &Exits,
        foreign_lock: Option<ForeignLock>,
        timeout: Duration,
    ) -> Result<bool, StoreError> {
        let wait_for_bell = |timeout| {
            let woken = self.presence.wait(generation, exits, timeout);
            woken.map_err(|error| {
                StoreError::new(ErrorKind::Io, "waiting to be woken failed").because(error)
            })
        };
        let Some(mut foreign_lock) = foreign_lock else {
            return wait_for_bell(timeout);
        };
        let mut left = timeout;
        loop {
            let pause = left.min(POLL_INTERVAL);
            if wait_for_bell(pause)? {
                return Ok(true);
            }
            left = left.saturating_sub(pause);
            if left.is_zero() {
                return Ok(false);
            }
            self.still_there()?;
            if self.poll(|db| foreign_lock.changed_hands(db))? {
                return Ok(true);
            }
        }
    }

    fn poll<T>(
        &self,
        read: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        self.with_connection(read)
            .map_err(|error| explain(self.path(), error))
    }
}

impl ForeignDatabase {
    /// Its real path.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Fails if the file at the path is no longer the one that is open.
    pub(crate) fn still_there(&self) -> Result<(), StoreError> {
        if connection::which_file(&self.path)? == self.file {
            return Ok(());
        }
        Err(connection::replaced(&self.path))
    }
}

/// Lock rows that a process polls: that of a key and, for a task, that of its section.
#[derive(Debug)]
pub(crate) struct ForeignLock {
    /// Each with the runner that has it.
    rows: Vec<(Key, Option<String>)>,
    version: u32,
}

impl ForeignLock {
    /// Whether a runner released its lock or lost it to another one. A renewal does not count: the
    /// process looks again at the end that it saw anyway.
    fn changed_hands(&mut self, db: &Connection) -> rusqlite::Result<bool> {
        let version = version(db)?;
        if version == self.version {
            return Ok(false);
        }
        self.version = version;
        for (key, had) in &self.rows {
            if runner(db, key)? != *had {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

fn runner(db: &Connection, key: &Key) -> rusqlite::Result<Option<String>> {
    let Some((table, id)) = LockTable::of(key) else {
        return Ok(None);
    };
    let row = table.read(LockTables::Attached, db, id)?;
    Ok(row.map(|row| row.runner()))
}

/// The key of the section that a task of the other program is in. `None` also if its tasks have no such
/// column: then they are in no section.
pub(crate) fn section_of(db: &Connection, key: &Key) -> rusqlite::Result<Option<Key>> {
    let Some((LockTable::Task, id)) = LockTable::of(key) else {
        return Ok(None);
    };
    let section = text_of(db, "tasks", "section_id", id)?;
    Ok(section.and_then(|id| Key::parse(format!("section:{id}")).ok()))
}

/// A text in the other program's table. `None` also if the value is no text, or if there is no such table or column.
fn text_of(
    db: &Connection,
    table: &str,
    column: &str,
    id: &str,
) -> rusqlite::Result<Option<String>> {
    let sql =
        format!("SELECT {column} FROM other.{table} WHERE id = ?1 AND typeof({column}) = 'text'");
    match db.prepare_cached(&sql) {
        Ok(mut statement) => statement.query_row([id], |row| row.get(0)).optional(),
        Err(rusqlite::Error::SqliteFailure(failure, _))
            if failure.extended_code == rusqlite::ffi::SQLITE_ERROR =>
        {
            Ok(None)
        }
        Err(error) => Err(error),
    }
}

/// Changes whenever another connection has committed something to the other program's database.
pub(crate) fn version(db: &Connection) -> rusqlite::Result<u32> {
    db.prepare_cached("PRAGMA other.data_version")?
        .query_row([], |row| row.get(0))
}

/// Goes through the entries of `leaving`. A row that is still there, because the process that removed
/// it was killed between its two commits, is removed now (invariant 2).
pub(crate) fn settle(db: &Connection) -> rusqlite::Result<()> {
    let mut statement = db.prepare_cached("SELECT key, runner, expires_at FROM main.leaving")?;
    let leaving = statement
        .query_map([], |row| {
            Ok((
                row.get::<_, String>(0)?,
                row.get::<_, Value>(1)?,
                row.get::<_, Value>(2)?,
            ))
        })?
        .collect::<Result<Vec<_>, _>>()?;
    for (name, runner, expires_at) in leaving {
        let key = Key::parse(name.as_str()).ok();
        let removed = match key.as_ref().and_then(LockTable::of) {
            Some((table, id)) => {
                let kind = table.kind();
                db.prepare_cached(&format!(
                    "DELETE FROM other.{kind}_locks WHERE {kind}_id = ?1 AND runner_id = ?2 AND expires_at = ?3"
                ))?
                .execute(params![id, runner, expires_at])?
            }
            None => 0,
        };
        if removed == 0 {
            db.prepare_cached("DELETE FROM main.leaving WHERE key = ?1")?
                .execute([name])?;
        }
    }
    Ok(())
}

/// Writes the row of a key that is about to be removed into `leaving` (invariant 1).
pub(crate) fn note_removal(db: &Connection, key: &Key) -> rusqlite::Result<()> {
    note(db, key, "")
}

/// Writes the row that a lease is about to replace into `leaving`, if it is another runner's
/// (invariant 1). A row of the same runner stays out: if this process is killed between the two
/// commits, that row is still its holder's, which may be the other program.
pub(crate) fn note_replacement(db: &Connection, lease: &Lease) -> rusqlite::Result<()> {
    note(db, &lease.key, lease.holder.id.as_str())
}

fn note(db: &Connection, key: &Key, unless: &str) -> rusqlite::Result<()> {
    let Some((table, id)) = LockTable::of(key) else {
        return Ok(());
    };
    let kind = table.kind();
    // A row with NULL in it can't be noted. It is malformed: if this process is killed between the two
    // commits, that row still counts as held, as it did before.
    db.prepare_cached(&format!(
        "INSERT OR REPLACE INTO main.leaving SELECT ?1, runner_id, expires_at
         FROM other.{kind}_locks WHERE {kind}_id = ?2 AND runner_id <> ?3 AND expires_at IS NOT NULL"
    ))?
    .execute(params![key.as_str(), id, unless])?;
    Ok(())
}

/// Drops the entry of `leaving` for a row that is written again with the same runner and end.
pub(crate) fn forget(db: &Connection, lease: &Lease, expires_at: &str) -> rusqlite::Result<()> {
    db.prepare_cached(
        "DELETE FROM main.leaving WHERE key = ?1 AND runner = ?2 AND expires_at = ?3",
    )?
    .execute(params![
        lease.key.as_str(),
        lease.holder.id.as_str(),
        expires_at
    ])?;
    Ok(())
}

/// The real path of the file.
fn find(path: &Path) -> Result<PathBuf, StoreError> {
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
    if real.is_file() {
        return Ok(real);
    }
    Err(StoreError::new(
        ErrorKind::NotAStore,
        format!("{place} is not a file, so not a database"),
    )
    .fix("name the database file, for example steroids:.steroids/steroids.db"))
}

/// The other program's database, and the path of tenure's beside it, which need not exist.
pub(crate) fn find_both(path: &Path) -> Result<(ForeignDatabase, PathBuf), StoreError> {
    let real = find(path)?;
    connection::refuse_planted(path, &real)?;
    let side = beside(&real);
    let foreign = ForeignDatabase {
        file: connection::which_file(&real)?,
        path: real,
    };
    Ok((foreign, side))
}

/// Tenure's database beside the other program's.
fn beside(real: &Path) -> PathBuf {
    let mut side = real.as_os_str().to_owned();
    side.push("-tenure");
    PathBuf::from(side)
}

/// Checks the other program's database alone, and leaves everything as it was.
fn look_first(path: &Path, real: &Path) -> Result<(), StoreError> {
    let open = || -> rusqlite::Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE
            | OpenFlags::SQLITE_OPEN_NO_MUTEX
            | OpenFlags::SQLITE_OPEN_NOFOLLOW;
        let db = Connection::open_with_flags(real, flags)?;
        db.busy_timeout(connection::PATIENCE)?;
        db.set_db_config(DbConfig::SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, true)?;
        Ok(db)
    };
    let db = open().map_err(|error| refuse(path, error))?;
    let checked = check(path, &db, "main");
    connection::leave_no_log(&db, real);
    checked
}

/// Opens tenure's database with the other program's attached.
fn attach(
    path: &Path,
    foreign: &ForeignDatabase,
    side: &Path,
    boot: &Epoch,
) -> Result<(Connection, PathBuf), StoreError> {
    // As a URI, because only a URI (`mode=rw`) can say that the file must exist.
    let (db, side) = connection::open(side, boot, OpenFlags::SQLITE_OPEN_URI, Purpose::Locks)?;
    let attach = || -> rusqlite::Result<()> {
        db.execute("ATTACH ?1 AS other", [address(&foreign.path, "mode=rw")])?;
        let journal: String = db.query_row("PRAGMA other.journal_mode", [], |row| row.get(0))?;
        if journal == "wal" {
            // As the other program does. The setting ends with this connection.
            db.execute_batch("PRAGMA other.synchronous = NORMAL")?;
        }
        Ok(())
    };
    attach().map_err(|error| refuse(path, error))?;
    check(path, &db, "other")?;
    foreign.still_there()?;
    Ok((db, side))
}

/// The path as a URI, with these parameters of SQLite's.
pub(crate) fn address(path: &Path, parameters: &str) -> String {
    let mut address = String::from("file:");
    for byte in path.as_os_str().as_bytes() {
        if byte.is_ascii_alphanumeric() || b"/-._".contains(byte) {
            address.push(char::from(*byte));
        } else {
            let _ = write!(address, "%{byte:02X}");
        }
    }
    address + "?" + parameters
}

/// Checks that a database has both lock tables, with the columns that tenure reads and writes.
pub(crate) fn check(path: &Path, db: &Connection, schema: &str) -> Result<(), StoreError> {
    let place = path.display();
    let sql = |error| refuse(path, error);
    let application: i32 = db
        .query_row(&format!("PRAGMA {schema}.application_id"), [], |row| {
            row.get(0)
        })
        .map_err(sql)?;
    if application == schema::APPLICATION {
        return Err(StoreError::new(
            ErrorKind::NotAStore,
            format!("{place} is a database of tenure itself"),
        )
        .fix(format!("write sqlite:{place}")));
    }
    if !has_lock_tables(db, schema).map_err(sql)? {
        return Err(StoreError::new(
            ErrorKind::NotAStore,
            format!("{place} has no tables task_locks and section_locks with the known columns"),
        )
        .fix("name a database of a program that keeps its locks there; nothing was changed"));
    }
    if db.is_readonly(schema).map_err(sql)? {
        return Err(StoreError::new(
            ErrorKind::ReadOnly,
            format!("no permission to write to {place}"),
        )
        .fix("check the permissions of the file and its folder, and how it is mounted"));
    }
    Ok(())
}

/// Whether a database has the two documented lock tables, each with its id as the primary key.
pub(crate) fn has_lock_tables(db: &Connection, schema: &str) -> rusqlite::Result<bool> {
    for table in [LockTable::Task, LockTable::Section] {
        let kind = table.kind();
        let is_table = db
            .query_row(
                &format!("SELECT type = 'table' FROM {schema}.sqlite_schema WHERE name = ?1"),
                [format!("{kind}_locks")],
                |row| row.get::<_, bool>(0),
            )
            .optional()?;
        let mut statement =
            db.prepare("SELECT name FROM pragma_table_info(?1, ?2) WHERE pk = (name = ?3)")?;
        let columns = statement
            .query_map(
                params![format!("{kind}_locks"), schema, format!("{kind}_id")],
                |row| row.get::<_, String>(0),
            )?
            .collect::<Result<Vec<_>, _>>()?;
        let has = |wanted: &&str| columns.iter().any(|column| column == wanted);
        if is_table != Some(true) || !table.columns().iter().all(|wanted| has(&wanted.as_str())) {
            return Ok(false);
        }
    }
    Ok(true)
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
