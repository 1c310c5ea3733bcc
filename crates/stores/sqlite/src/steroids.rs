//! A live database of another program that has the two documented lock tables: [`Steroids`].
//!
//! Leases, queue, tokens and history are in tenure's own database beside it, `PATH-tenure`. The other
//! program's database is attached to that one as `other`. Tenure writes rows of its `task_locks` and
//! `section_locks` and nothing else: no table, no index, no pragma that stays.
//!
//! | module | what it holds |
//! |---|---|
//! | `open` | finding, checking and attaching the other program's database |
//! | `poll` | waiting for what the other program does, which wakes nobody |
//!
//! The rest of the store knows of it only what [`LockTables`] says of any database that the two tables can be in.
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

mod open;
mod poll;

use std::path::Path;

use rusqlite::types::Value;
use rusqlite::{Connection, params};
use tenure_core::{Evidence, Key, Lease, StoreError, Verdict};

use crate::connection::OpenFile;
use crate::lock_tables::{LockTable, LockTables};
use crate::query::Query as _;

pub(crate) use poll::PolledRows;

/// The lock tables in the other program's database, which is attached to tenure's.
#[derive(Debug)]
struct Steroids {
    /// The other program's file.
    file: OpenFile,
}

impl LockTables for Steroids {
    fn are_own(&self) -> bool {
        false
    }

    fn schema(&self) -> &'static str {
        "other"
    }

    fn exist(&self, _db: &Connection) -> rusqlite::Result<bool> {
        Ok(true)
    }

    /// Not those that `leaving` names.
    fn counted(&self, kind: &str) -> String {
        format!(
            "NOT EXISTS (SELECT 1 FROM main.leaving WHERE leaving.key = '{kind}:' || held.{kind}_id
             AND leaving.runner = held.runner_id AND leaving.expires_at = held.expires_at)"
        )
    }

    /// Goes through the entries of `leaving`. A row that is still there, because the process that removed
    /// it was killed between its two commits, is removed now (invariant 2).
    fn begin(&self, db: &Connection) -> rusqlite::Result<()> {
        let leaving = "SELECT key, runner, expires_at FROM main.leaving";
        let leaving: Vec<(String, Value, Value)> = db.all(leaving, [], |row| row.try_into())?;
        for (name, runner, expires_at) in leaving {
            let key = Key::parse(name.as_str()).ok();
            let removed = match key.as_ref().and_then(LockTable::of) {
                Some((table, id)) => {
                    let kind = table.kind();
                    let delete = format!(
                        "DELETE FROM other.{kind}_locks WHERE {kind}_id = ?1 AND runner_id = ?2 AND expires_at = ?3"
                    );
                    db.run(&delete, params![id, runner, expires_at])?
                }
                None => 0,
            };
            if removed == 0 {
                db.run("DELETE FROM main.leaving WHERE key = ?1", [name])?;
            }
        }
        Ok(())
    }

    /// Writes the row that the lease replaces into `leaving`, if it is another runner's (invariant 1). A row of
    /// the same runner stays out: if this process is killed between the two commits, that row is still its holder's, which
    /// may be the other program. An entry for the row that is about to be written, with the same runner and end, is dropped.
    fn before_write(&self, db: &Connection, lease: &Lease, end: &str) -> rusqlite::Result<()> {
        let (key, runner) = (lease.key.as_str(), lease.holder.id.as_str());
        note(db, &lease.key, runner)?;
        let forget = "DELETE FROM main.leaving WHERE key = ?1 AND runner = ?2 AND expires_at = ?3";
        db.run(forget, [key, runner, end])?;
        Ok(())
    }

    /// Writes the row into `leaving` (invariant 1).
    fn before_removal(&self, db: &Connection, key: &Key) -> rusqlite::Result<()> {
        note(db, key, "")
    }

    /// `None` also if the other program's tasks have no such column: then they are in no section.
    fn section_of(&self, db: &Connection, key: &Key) -> rusqlite::Result<Option<Key>> {
        let Some((LockTable::Task, id)) = LockTable::of(key) else {
            return Ok(None);
        };
        let section = text_of(db, "tasks", "section_id", id)?;
        Ok(section.and_then(|id| Key::parse(format!("section:{id}")).ok()))
    }

    fn name_of(&self, db: &Connection, key: &Key) -> rusqlite::Result<Option<String>> {
        match LockTable::of(key) {
            Some((LockTable::Task, id)) => text_of(db, "tasks", "title", id),
            Some((LockTable::Section, id)) => text_of(db, "sections", "name", id),
            None => Ok(None),
        }
    }

    /// Beside another program it is nothing unusual that a lease which has ended was removed or taken
    /// over there, or that a process was killed before its row was written: if the lease has ended by
    /// itself, that is the evidence.
    fn evidence(&self, outside: Evidence, verdict: &Verdict, gone: bool) -> Evidence {
        match (verdict.ended(), outside) {
            (Some(evidence), _) => evidence.clone(),
            (None, Evidence::Forced { by, .. }) if gone => Evidence::Forced {
                by,
                reason: Some(
                    "its row is not in the lock table: removed outside tenure, or never written by a process that was killed".into(),
                ),
            },
            (None, outside) => outside,
        }
    }

    fn version(&self, db: &Connection) -> rusqlite::Result<u32> {
        db.prepare_cached("PRAGMA other.data_version")?
            .query_row([], |row| row.get(0))
    }

    fn still_there(&self) -> Result<(), StoreError> {
        self.file.still_there()
    }

    fn connect(&self, named: &Path, real: &Path) -> Result<Connection, StoreError> {
        open::connect_both(named, self.file.path(), real)
    }

    fn polled(&self, db: &Connection, key: &Key) -> rusqlite::Result<Option<PolledRows>> {
        PolledRows::read(self, db, key)
    }
}

fn note(db: &Connection, key: &Key, unless: &str) -> rusqlite::Result<()> {
    let Some((table, id)) = LockTable::of(key) else {
        return Ok(());
    };
    let kind = table.kind();
    // A row with NULL in it can't be noted. It is malformed: if this process is killed between the two
    // commits, that row still counts as held, as it did before.
    let note = format!(
        "INSERT OR REPLACE INTO main.leaving SELECT ?1, runner_id, expires_at
         FROM other.{kind}_locks WHERE {kind}_id = ?2 AND runner_id <> ?3 AND expires_at IS NOT NULL"
    );
    db.run(&note, params![key.as_str(), id, unless])?;
    Ok(())
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
    match db.first(&sql, [id], |row| row.get(0)) {
        Err(rusqlite::Error::SqliteFailure(failure, _))
            if failure.extended_code == rusqlite::ffi::SQLITE_ERROR =>
        {
            Ok(None)
        }
        found => found,
    }
}
