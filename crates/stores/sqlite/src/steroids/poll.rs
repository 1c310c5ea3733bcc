//! Waiting for what the other program does.

use std::time::Duration;

use rusqlite::Connection;
use tenure_core::{ErrorKind, Key, StoreError};
use tenure_host::bell::Exits;

use crate::lock_tables::{LockTable, LockTables};
use crate::store::SqliteStore;

/// How often a waiter or a holder polls the lock rows that it depends on: another program that writes them
/// wakes nobody.
const INTERVAL: Duration = Duration::from_millis(50);

/// Lock rows that a process polls: that of a key and, for a task, that of its section.
#[derive(Debug)]
pub(crate) struct PolledRows {
    /// Each with the runner that has it.
    rows: Vec<(Key, Option<String>)>,
    version: u32,
}

impl PolledRows {
    /// `None` if no runner has any of them.
    pub(super) fn read(
        tables: &dyn LockTables,
        db: &Connection,
        key: &Key,
    ) -> rusqlite::Result<Option<Self>> {
        let mut rows = Vec::new();
        for key in std::iter::once(key.clone()).chain(tables.section_of(db, key)?) {
            let runner = runner(tables, db, &key)?;
            rows.push((key, runner));
        }
        let version = tables.version(db)?;
        let held = rows.iter().any(|(_, runner)| runner.is_some());
        Ok(held.then_some(Self { rows, version }))
    }

    /// Whether a runner released its lock or lost it to another one. A renewal does not count: the
    /// process looks again at the end that it saw anyway.
    fn changed_hands(
        &mut self,
        tables: &dyn LockTables,
        db: &Connection,
    ) -> rusqlite::Result<bool> {
        let version = tables.version(db)?;
        if version == self.version {
            return Ok(false);
        }
        self.version = version;
        for (key, had) in &self.rows {
            if runner(tables, db, key)? != *had {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

fn runner(tables: &dyn LockTables, db: &Connection, key: &Key) -> rusqlite::Result<Option<String>> {
    let Some((table, id)) = LockTable::of(key) else {
        return Ok(None);
    };
    Ok(table.read(tables, db, id)?.map(|row| row.runner()))
}

impl SqliteStore {
    /// Blocks until the waiter is woken or one of these rows changes hands; `false` if neither happened in time.
    pub(crate) fn listen(
        &self,
        generation: u32,
        exits: &Exits,
        polled: Option<PolledRows>,
        timeout: Duration,
    ) -> Result<bool, StoreError> {
        let wait_for_bell = |timeout| {
            let woken = self.presence.wait(generation, exits, timeout);
            woken.map_err(|error| {
                StoreError::new(ErrorKind::Io, "waiting to be woken failed").because(error)
            })
        };
        let Some(mut polled) = polled else {
            return wait_for_bell(timeout);
        };
        let mut left = timeout;
        loop {
            let pause = left.min(INTERVAL);
            if wait_for_bell(pause)? {
                return Ok(true);
            }
            left = left.saturating_sub(pause);
            if left.is_zero() {
                return Ok(false);
            }
            self.still_there()?;
            if self.look_once(|db| polled.changed_hands(&*self.tables, db))? {
                return Ok(true);
            }
        }
    }
}
