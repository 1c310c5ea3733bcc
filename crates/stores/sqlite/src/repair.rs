//! Puts right what was damaged: `tenure store repair`.
//!
//! # Invariants
//!
//! 1. A lease is never removed here: one that can't be understood may be in use. It is ended when the end on record has
//!    passed. Only a row whose key is none is removed, because no claim can meet it.
//! 2. All of it is one transaction.

use std::collections::BTreeSet;
use std::time::Instant;

use rusqlite::{Connection, Row};
use tenure_core::repaired::Ends;
use tenure_core::{HolderId, Key, Repaired, StoreError, engine};

use crate::rows::{self, select_event, select_lease, select_ticket};
use crate::store::SqliteStore;
use crate::write::{TransactionError, WriteTransaction};

impl SqliteStore {
    /// Puts right what can't be understood of one key, or of all keys and the history.
    pub fn repair(&self, key: Option<&Key>, by: Instant) -> Result<Repaired, StoreError> {
        Ok(self.write(by, |write| write.repair(key))?.0)
    }
}

/// A row that can't be understood.
struct DamagedRow {
    key: Key,
    number: i64,
    problem: String,
    /// Its values, for a person.
    said: String,
    /// Whether no key can name it.
    is_unnamed: bool,
}

impl WriteTransaction<'_> {
    fn repair(&mut self, only: Option<&Key>) -> Result<Repaired, TransactionError> {
        let db = self.reader.db;
        let concerns = |row: &DamagedRow| only.is_none_or(|key| row.key == *key);
        let mut repaired = Repaired::default();
        let remove = |delete: &str, row: &DamagedRow, repaired: &mut Repaired| {
            let done = format!("removed: {}: {}", row.problem, row.said);
            repaired.done.push(done);
            db.execute(delete, [row.number])
        };
        let mut named = BTreeSet::new();
        let problem = |row: &Row<'_>| rows::lease(row).map_or_else(Some, |row| row.problem);
        let leases = damaged(db, select_lease!(""), ["leases", "key", "rowid"], problem)?;
        for row in leases.into_iter().filter(concerns) {
            if row.is_unnamed {
                remove("DELETE FROM leases WHERE rowid = ?1", &row, &mut repaired)?;
            } else {
                named.insert(row.key);
            }
        }
        for key in named {
            self.repair_leases(&key, &mut repaired)?;
        }
        let problem = |row: &Row<'_>| rows::waiter(row).err();
        let tickets = damaged(
            db,
            select_ticket!(""),
            ["tickets", "key", "ticket"],
            problem,
        )?;
        for row in tickets.iter().filter(|row| concerns(row)) {
            remove("DELETE FROM tickets WHERE ticket = ?1", row, &mut repaired)?;
        }
        if only.is_none() {
            let problem = |row: &Row<'_>| rows::event(row).err();
            for row in damaged(db, select_event!(""), ["history", "key", "id"], problem)? {
                remove("DELETE FROM history WHERE id = ?1", &row, &mut repaired)?;
            }
        }
        Ok(repaired)
    }

    fn repair_leases(
        &mut self,
        key: &Key,
        repaired: &mut Repaired,
    ) -> Result<(), TransactionError> {
        let is_damaged = |holder: &HolderId| *holder == HolderId::unreadable();
        for one in engine::reap(self, key)?.reaped {
            if is_damaged(&one.lease.holder.id) {
                repaired.ended(key);
            }
        }
        for (lease, _) in self.reader.key(key)?.leases {
            if is_damaged(&lease.holder.id) {
                let ends = match lease.expires {
                    Some(_) => Ends::ByItself,
                    None => Ends::ByForce,
                };
                repaired.left_lease(key, lease.token, ends);
            }
        }
        Ok(())
    }
}

/// The rows of a table that can't be understood. Its name is followed by the columns of the key and of the row's number.
fn damaged(
    db: &Connection,
    select: &str,
    [table, key, number]: [&str; 3],
    problem: impl Fn(&Row<'_>) -> Option<String>,
) -> rusqlite::Result<Vec<DamagedRow>> {
    let mut statement = db.prepare(select)?;
    let (key, number) = (
        statement.column_index(key)?,
        statement.column_index(number)?,
    );
    let mut found = statement.query([])?;
    let mut damaged = Vec::new();
    while let Some(row) = found.next()? {
        if let Some(problem) = problem(row) {
            damaged.push(DamagedRow {
                key: rows::key_or_row(row, key, table, number)?,
                number: row.get(number)?,
                problem,
                said: rows::said(row),
                is_unnamed: rows::key(row, key).is_none(),
            });
        }
    }
    Ok(damaged)
}
