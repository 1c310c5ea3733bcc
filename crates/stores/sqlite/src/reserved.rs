//! The index of reservations: the table `reserved`.
//!
//! A reservation is found by the places of its patterns ([`tenure_core::Places`]) and by the name of its holder, so that a
//! claim, a check of some paths and an agent's hook read the few reservations that matter to them, among many thousands.
//!
//! # Invariants
//!
//! 1. Every lease of the key `paths` has a row for each of its places and one for its holder, or the table is missing and
//!    there is no such lease. They are written in the lease's own transaction.
//! 2. If a row has no lease, the lease's token may be damaged: all leases of the key are read then.
//!
//! SQLite parses the schema whenever a process opens a database, so the table is made with the first reservation: a
//! project without reservations does not pay for it. An upgrade makes it anew from the leases.

use rusqlite::{Connection, params};
use tenure_core::places::TOP;
use tenure_core::{HolderId, Key, Lease, Mode, Places};

use crate::query::Query as _;
use crate::rows;

/// A place is a path without a slash at its beginning, or empty; `/` and a name is that holder.
const TABLE: &str = "CREATE TABLE reserved (
    place TEXT NOT NULL,
    token INTEGER NOT NULL,
    PRIMARY KEY (place, token)
) WITHOUT ROWID";

const INSERT: &str = "INSERT OR IGNORE INTO reserved (place, token) VALUES (?1, ?2)";
const DELETE: &str = "DELETE FROM reserved WHERE place = ?1 AND token = ?2";
const AT: &str = "SELECT token FROM reserved WHERE place = ?1";

fn holder_row(holder: &HolderId) -> String {
    format!("/{holder}")
}

/// Whether there is an index.
fn exists(db: &Connection) -> rusqlite::Result<bool> {
    let any = "SELECT 1 FROM main.sqlite_schema WHERE type = 'table' AND name = 'reserved'";
    db.any(any, [])
}

/// Adds a lease that was granted, or extended in perhaps another mode.
pub(crate) fn add(db: &Connection, lease: &Lease) -> rusqlite::Result<()> {
    if !exists(db)? {
        db.execute_batch(TABLE)?;
    }
    let token = rows::number(lease.token.0);
    if lease.mode.paths().is_some() {
        // Where it was if it had no paths until now.
        db.run(DELETE, params![TOP, token])?;
    }
    insert(db, token, &lease.mode, &lease.holder.id)
}

/// The places of a lease, and the row of its holder.
fn places(mode: &Mode, holder: &HolderId) -> impl Iterator<Item = String> {
    let places = mode.places().map(str::to_owned);
    std::iter::once(holder_row(holder)).chain(places)
}

fn insert(db: &Connection, token: i64, mode: &Mode, holder: &HolderId) -> rusqlite::Result<()> {
    for place in places(mode, holder) {
        db.run(INSERT, params![place, token])?;
    }
    Ok(())
}

/// Removes a lease that has ended.
pub(crate) fn remove(db: &Connection, lease: &Lease) -> rusqlite::Result<()> {
    if !exists(db)? {
        return Ok(());
    }
    if lease.mode.paths().is_none() || lease.holder.id == HolderId::unreadable() {
        // If its row can't be understood, it is not known where it was.
        let rest =
            "DELETE FROM reserved WHERE token NOT IN (SELECT token FROM leases WHERE key = ?1)";
        db.execute(rest, [Key::paths().as_str()])?;
        return Ok(());
    }
    let token = rows::number(lease.token.0);
    for place in places(&lease.mode, &lease.holder.id) {
        db.run(DELETE, params![place, token])?;
    }
    Ok(())
}

/// The tokens of the leases at these places, in order.
pub(crate) fn near(db: &Connection, places: &Places) -> rusqlite::Result<Vec<i64>> {
    if !exists(db)? {
        return Ok(Vec::new());
    }
    let mut tokens: Vec<i64> = Vec::new();
    for place in places.at() {
        tokens.extend(db.all(AT, [place], |row| row.get::<_, i64>(0))?);
    }
    let below = "SELECT token FROM reserved WHERE place > ?1 AND place < ?2";
    for folder in places.below() {
        // What begins with the folder and a slash; `0` comes after the slash. At the top, the holders: that is all.
        let ends = [format!("{folder}/"), format!("{folder}0")];
        tokens.extend(db.all(below, ends, |row| row.get::<_, i64>(0))?);
    }
    tokens.sort_unstable();
    tokens.dedup();
    Ok(tokens)
}

/// The tokens of the leases of this holder, in order.
pub(crate) fn of(db: &Connection, holder: &HolderId) -> rusqlite::Result<Vec<i64>> {
    if !exists(db)? {
        return Ok(Vec::new());
    }
    db.all(AT, [holder_row(holder)], |row| row.get(0))
}

/// Makes the index anew, if there are reservations. A lease that can't be read is everywhere, so that it is met and named.
pub(crate) fn rebuild(db: &Connection) -> rusqlite::Result<()> {
    db.execute_batch("DROP TABLE IF EXISTS reserved")?;
    let leases = "SELECT CAST(token AS INTEGER), mode, holder FROM leases WHERE key = ?1";
    let mut leases = db.prepare(leases)?;
    let mut found = leases.query([Key::paths().as_str()])?;
    let mut is_new = true;
    while let Some(row) = found.next()? {
        if std::mem::take(&mut is_new) {
            db.execute_batch(TABLE)?;
        }
        let mode = rows::text(row, 1)?.parse().unwrap_or_default();
        if let Ok(holder) = HolderId::parse(rows::text(row, 2)?) {
            insert(db, row.get(0)?, &mode, &holder)?;
        } else {
            db.run(INSERT, params![TOP, row.get::<_, i64>(0)?])?;
        }
    }
    Ok(())
}
