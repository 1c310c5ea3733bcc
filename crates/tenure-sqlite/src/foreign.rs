//! A live database of another program, whose two lock tables are ours to share.
//!
//! The store itself (leases, queue, tokens, history) is a database of ours beside it, `PATH-tenure`,
//! and the other program's database is attached to it as `seed`. Of that one only `task_locks` and
//! `section_locks` are ever written: no table, no index, no pragma that stays.
//!
//! # Two files, two commits
//!
//! `BEGIN IMMEDIATE` locks both files, ours first, and both stay locked until both are committed. A
//! commit writes ours first, then theirs. Whoever is killed between the two leaves our half:
//!
//! | killed in a | ours says | theirs says | what counts |
//! |---|---|---|---|
//! | grant | a lease | no row | no lease: nobody was told of it |
//! | takeover | the new lease | the old row | no lease: the old row is known to be `leaving` |
//! | renewal | the new end | the old end | the old end |
//! | release, end | no lease | the old row | no lease: the old row is known to be `leaving` |
//!
//! # Invariants
//!
//! 1. A row of theirs that a transaction of ours removes, or gives to another runner, is written
//!    into `leaving` in the same transaction. A row that is there to the letter (runner and end)
//!    counts as gone.
//! 2. An entry of `leaving` is dropped only by a transaction that finds its row gone, or changed, as
//!    it begins; never by the one that removes the row.
//! 3. Looking takes the write locks too: nobody sees one half of a commit and not the other.
//!
//! # What this does not do
//!
//! It does not make the two files one. A power cut may undo the last commits of either: a row that
//! only theirs still has is honoured as somebody else's until it expires.

use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::config::DbConfig;
use rusqlite::{Connection, OpenFlags, OptionalExtension, params};
use tenure_core::{Epoch, ErrorKind, Key, Lease, StoreError};

use crate::connection;
use crate::fault::explain;
use crate::lock_tables::{LockTables, Table};
use crate::schema;
use crate::store::{Options, SqliteStore};

/// How often a waiter looks whether another program has let go: nobody rings for those.
const GLANCE: Duration = Duration::from_millis(50);

/// The other program's database.
#[derive(Debug)]
pub(crate) struct Foreign {
    /// Where it is, whatever link leads there.
    path: PathBuf,
    /// Which file it is: device and inode.
    file: (u64, u64),
}

impl SqliteStore {
    /// Opens a live database of another program that has the seed's two lock tables. What tenure
    /// knows beyond them is kept beside it, in `PATH-tenure`, which is made if it is not there.
    pub fn open_foreign(path: &Path, options: Options) -> Result<Self, StoreError> {
        let real = find(path)?;
        let side = beside(&real);
        if !side.exists() {
            // Nothing is made beside a file that is then refused.
            look_first(path, &real)?;
        }
        let foreign = Foreign {
            file: connection::which_file(&real)?,
            path: real,
        };
        let (connection, side) = attach(path, &foreign, &side, &options.clock.now().epoch)?;
        Self::assemble(connection, path, &side, Some(foreign), options)
    }

    /// Refuses a key that the other program has no table for.
    pub(crate) fn check_key(&self, key: &Key) -> Result<(), StoreError> {
        if self.foreign.is_none() || Table::of(key).is_some() {
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

    /// What a waiter for this key has to look at by itself: the runner of another program that has
    /// it. To be called before the revision is compared, so that no change is missed.
    pub(crate) fn lookout(&self, key: &Key) -> Result<Option<Lookout>, StoreError> {
        if self.foreign.is_none() {
            return Ok(None);
        }
        self.glance(|db| {
            let ours = db
                .prepare_cached("SELECT 1 FROM leases WHERE key = ?1")?
                .exists([key.as_str()])?;
            let runner = if ours { None } else { runner(db, key)? };
            let version = version(db)?;
            Ok(runner.map(|runner| Lookout {
                key: key.clone(),
                runner,
                version,
            }))
        })
    }

    /// Blocks until the bell rings, or what is looked out for has happened; `false` if neither did
    /// in time.
    pub(crate) fn listen(
        &self,
        generation: u32,
        lookout: Option<Lookout>,
        timeout: Duration,
    ) -> Result<bool, StoreError> {
        let hear = |timeout| {
            self.presence.wait(generation, timeout).map_err(|error| {
                StoreError::new(ErrorKind::Io, "waiting to be woken failed").because(error)
            })
        };
        let Some(mut lookout) = lookout else {
            return hear(timeout);
        };
        let mut left = timeout;
        loop {
            let pause = left.min(GLANCE);
            if hear(pause)? {
                return Ok(true);
            }
            left = left.saturating_sub(pause);
            if left.is_zero() {
                return Ok(false);
            }
            if self.glance(|db| lookout.happened(db))? {
                return Ok(true);
            }
        }
    }

    fn glance<T>(
        &self,
        look: impl FnOnce(&Connection) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        self.with_connection(look)
            .map_err(|error| explain(self.path(), error))
    }
}

impl Foreign {
    /// Whether the file of this name is still the one that is in use.
    pub(crate) fn still_there(&self) -> Result<(), StoreError> {
        if connection::which_file(&self.path)? == self.file {
            return Ok(());
        }
        Err(connection::replaced(&self.path))
    }
}

/// A lock of another program that a waiter looks at.
#[derive(Debug)]
pub(crate) struct Lookout {
    key: Key,
    runner: String,
    version: u32,
}

impl Lookout {
    /// Whether the runner has let go, or lost it to another. Its end may move: whoever waits looks
    /// again at the end that was seen anyway.
    fn happened(&mut self, db: &Connection) -> rusqlite::Result<bool> {
        let version = version(db)?;
        if version == self.version {
            return Ok(false);
        }
        self.version = version;
        Ok(runner(db, &self.key)?.as_deref() != Some(&self.runner))
    }
}

fn runner(db: &Connection, key: &Key) -> rusqlite::Result<Option<String>> {
    let Some((table, id)) = Table::of(key) else {
        return Ok(None);
    };
    let row = table.read(LockTables::Attached, db, id)?;
    Ok(row.map(|row| row.runner().to_owned()))
}

/// Changes whenever another connection has committed something to the other program's database.
pub(crate) fn version(db: &Connection) -> rusqlite::Result<u32> {
    db.prepare_cached("PRAGMA other.data_version")?
        .query_row([], |row| row.get(0))
}

/// Goes through the rows that were taken out before: those that are still there, because whoever
/// took them out was killed between its two commits, are taken out now (invariant 2).
pub(crate) fn settle(db: &Connection) -> rusqlite::Result<()> {
    let mut statement = db.prepare_cached("SELECT key, runner, expires_at FROM main.leaving")?;
    let leaving = statement
        .query_map([], |row| {
            Ok((
                row.get::<_, String>(0)?,
                row.get::<_, String>(1)?,
                row.get::<_, String>(2)?,
            ))
        })?
        .collect::<Result<Vec<_>, _>>()?;
    for (name, runner, expires_at) in leaving {
        let key = Key::parse(name.as_str()).ok();
        let removed = match key.as_ref().and_then(Table::of) {
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

/// Notes the row of a key that is about to be removed (invariant 1).
pub(crate) fn note_removal(db: &Connection, key: &Key) -> rusqlite::Result<()> {
    note(db, key, "")
}

/// Notes the row that a lease is about to replace, if it is another runner's (invariant 1). One of
/// the same runner is not noted: should we be killed between the two commits, that row still stands
/// for its holder, who may be the other program.
pub(crate) fn note_replacement(db: &Connection, lease: &Lease) -> rusqlite::Result<()> {
    note(db, &lease.key, lease.holder.id.as_str())
}

fn note(db: &Connection, key: &Key, unless: &str) -> rusqlite::Result<()> {
    let Some((table, id)) = Table::of(key) else {
        return Ok(());
    };
    let kind = table.kind();
    db.prepare_cached(&format!(
        "INSERT OR REPLACE INTO main.leaving SELECT ?1, runner_id, expires_at
         FROM other.{kind}_locks WHERE {kind}_id = ?2 AND runner_id <> ?3"
    ))?
    .execute(params![key.as_str(), id, unless])?;
    Ok(())
}

/// Forgets the note on a row that is written anew, to the letter.
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

/// Where the file really is.
fn find(path: &Path) -> Result<PathBuf, StoreError> {
    let place = path.display();
    let real = path.canonicalize().map_err(|error| {
        let missing = matches!(
            error.kind(),
            std::io::ErrorKind::NotFound | std::io::ErrorKind::NotADirectory
        );
        if missing {
            StoreError::new(ErrorKind::NotAStore, format!("there is no database {place}")).fix(
                "name the other program's database, for example steroids:.steroids/steroids.db; nothing was made",
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

/// Our database beside theirs.
fn beside(real: &Path) -> PathBuf {
    let mut side = real.as_os_str().to_owned();
    side.push("-tenure");
    PathBuf::from(side)
}

/// Looks at the other program's database by itself, and leaves everything as it was.
fn look_first(path: &Path, real: &Path) -> Result<(), StoreError> {
    let open = || -> rusqlite::Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
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

/// Opens our database with theirs attached.
fn attach(
    path: &Path,
    foreign: &Foreign,
    side: &Path,
    boot: &Epoch,
) -> Result<(Connection, PathBuf), StoreError> {
    // An address, because only that can say: never make it.
    let (db, side) = connection::open(side, boot, OpenFlags::SQLITE_OPEN_URI)?;
    let attach = || -> rusqlite::Result<()> {
        db.execute("ATTACH ?1 AS other", [address(&foreign.path)])?;
        let journal: String = db.query_row("PRAGMA other.journal_mode", [], |row| row.get(0))?;
        if journal == "wal" {
            // As the other program does. It is this connection's, and does not stay.
            db.execute_batch("PRAGMA other.synchronous = NORMAL")?;
        }
        Ok(())
    };
    attach().map_err(|error| refuse(path, error))?;
    check(path, &db, "other")?;
    foreign.still_there()?;
    Ok((db, side))
}

/// The path as an address that SQLite opens for writing, but never makes.
fn address(path: &Path) -> String {
    let mut address = String::from("file:");
    for byte in path.as_os_str().as_bytes() {
        if byte.is_ascii_alphanumeric() || b"/-._".contains(byte) {
            address.push(char::from(*byte));
        } else {
            let _ = write!(address, "%{byte:02X}");
        }
    }
    address + "?mode=rw"
}

/// Whether a database has both lock tables, with the columns that we read and write.
fn check(path: &Path, db: &Connection, schema: &str) -> Result<(), StoreError> {
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
        return Err(
            StoreError::new(ErrorKind::ReadOnly, format!("{place} may not be written"))
                .fix("check the permissions of the file and its folder, and how it is mounted"),
        );
    }
    Ok(())
}

/// Whether a database has the seed's two tables, each with its id as the key.
pub(crate) fn has_lock_tables(db: &Connection, schema: &str) -> rusqlite::Result<bool> {
    for table in [Table::Task, Table::Section] {
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

/// Why the other program's database can't be used, with what to do about it: it is not ours to
/// move away or to mend.
fn refuse(path: &Path, error: rusqlite::Error) -> StoreError {
    let fault = explain(path, error);
    match fault.kind {
        ErrorKind::NotAStore => fault.fix("name a database of the other program"),
        ErrorKind::Damaged => fault.fix("look at it with the program that it belongs to"),
        _ => fault,
    }
}
