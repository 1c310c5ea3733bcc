//! `task_locks` and `section_locks`: two tables that other programs read and write too.
//!
//! For `task:` and `section:` keys the row in these tables is the lock. The row in `leases` holds
//! what tenure knows beyond it: token, process, boot clock. Both are written in one transaction. When
//! they disagree, another program wrote the lock table, and the lock table counts.
//!
//! The two tables are in tenure's own database, or in another program's that is attached to it: see
//! [`crate::foreign`].

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use rusqlite::{Connection, OptionalExtension, Row, params};
use tenure_core::{
    Binding, Deadline, Doubt, Epoch, ErrorKind, Evidence, Holder, HolderId, Key, KeyKind, Lease,
    Liveness, StoreError, Token,
};

use crate::foreign;
use crate::rows;
use crate::write::TransactionError;

/// In which database the two tables are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LockTables {
    /// In tenure's own.
    Own,
    /// In another program's, attached to it.
    Attached,
}

impl LockTables {
    fn schema(self) -> &'static str {
        match self {
            Self::Own => "main",
            Self::Attached => "other",
        }
    }
}

/// The lock table of a key.
#[derive(Debug, Clone, Copy)]
pub(crate) enum LockTable {
    Task,
    Section,
}

/// A row of either table.
#[derive(Debug, Clone)]
pub(crate) struct LockRow {
    id: String,
    runner: String,
    acquired_at: String,
    expires_at: String,
    heartbeat_at: String,
}

/// A lock table's row and tenure's lease, combined.
#[derive(Debug)]
pub(crate) struct CombinedLock {
    /// The lease that counts.
    pub(crate) lease: Option<(Lease, Option<Liveness>)>,
    /// Tenure's lease, if another program ended it by writing the lock table.
    pub(crate) overruled: Option<(Lease, Evidence)>,
}

impl LockTable {
    /// The table of a key, if it has one.
    pub(crate) fn of(key: &Key) -> Option<(Self, &str)> {
        match key.kind() {
            KeyKind::Task(id) => Some((Self::Task, id)),
            KeyKind::Section(id) => Some((Self::Section, id)),
            KeyKind::Node(_) | KeyKind::Named(_) => None,
        }
    }

    pub(crate) fn kind(self) -> &'static str {
        match self {
            Self::Task => "task",
            Self::Section => "section",
        }
    }

    /// Its columns; a section has no heartbeat.
    pub(crate) fn columns(self) -> Vec<String> {
        let id = format!("{}_id", self.kind());
        let heard = match self {
            Self::Task => Some("heartbeat_at"),
            Self::Section => None,
        };
        let others = ["runner_id", "acquired_at", "expires_at"];
        std::iter::once(id)
            .chain(others.into_iter().chain(heard).map(str::to_owned))
            .collect()
    }

    /// Selects its rows, without those that `leaving` names.
    fn select(self, tables: LockTables) -> String {
        let (kind, schema) = (self.kind(), tables.schema());
        let heard = match self {
            Self::Task => "heartbeat_at",
            Self::Section => "acquired_at",
        };
        let stays = match tables {
            LockTables::Own => String::from("true"),
            LockTables::Attached => format!(
                "NOT EXISTS (SELECT 1 FROM main.leaving WHERE leaving.key = '{kind}:' || held.{kind}_id
                 AND leaving.runner = held.runner_id AND leaving.expires_at = held.expires_at)"
            ),
        };
        format!(
            "SELECT {kind}_id, runner_id, acquired_at, expires_at, {heard}
             FROM {schema}.{kind}_locks AS held WHERE {stays}"
        )
    }

    /// The row of one id.
    pub(crate) fn read(
        self,
        tables: LockTables,
        db: &Connection,
        id: &str,
    ) -> rusqlite::Result<Option<LockRow>> {
        let sql = format!("{} AND {}_id = ?1", self.select(tables), self.kind());
        db.prepare_cached(&sql)?.query_row([id], row).optional()
    }

    /// Every row, with its key. A row whose id can't be part of a key is left out.
    pub(crate) fn all(
        self,
        tables: LockTables,
        db: &Connection,
    ) -> rusqlite::Result<Vec<(Key, LockRow)>> {
        let mut statement = db.prepare_cached(&self.select(tables))?;
        let rows = statement
            .query_map([], row)?
            .collect::<Result<Vec<_>, _>>()?;
        Ok(rows
            .into_iter()
            .filter_map(|row| Some((Key::parse(format!("{}:{}", self.kind(), row.id)).ok()?, row)))
            .collect())
    }
}

impl LockRow {
    /// Who has it.
    pub(crate) fn runner(&self) -> &str {
        &self.runner
    }
}

fn row(row: &Row<'_>) -> rusqlite::Result<LockRow> {
    Ok(LockRow {
        id: row.get(0)?,
        runner: row.get(1)?,
        acquired_at: row.get(2)?,
        expires_at: row.get(3)?,
        heartbeat_at: row.get(4)?,
    })
}

/// Writes the lock table's row of a lease, if its key has a lock table.
pub(crate) fn write(
    tables: LockTables,
    db: &Connection,
    lease: &Lease,
) -> Result<(), TransactionError> {
    let Some((table, id)) = LockTable::of(&lease.key) else {
        return Ok(());
    };
    let Some(end) = &lease.expires else {
        return Ok(());
    };
    let expires_at = rows::time(end.wall);
    if tables == LockTables::Attached {
        foreign::note_replacement(db, lease)?;
        foreign::forget(db, lease, &expires_at)?;
    }
    let schema = tables.schema();
    let sql = match table {
        LockTable::Task => format!(
            "INSERT INTO {schema}.task_locks (task_id, runner_id, acquired_at, expires_at, heartbeat_at)
             VALUES (?1, ?2, ?3, ?4, ?5) ON CONFLICT (task_id) DO UPDATE SET
             runner_id = ?2, acquired_at = ?3, expires_at = ?4, heartbeat_at = ?5"
        ),
        // No heartbeat in this table: ?5 is there so that both statements take the same parameters.
        LockTable::Section => format!(
            "INSERT INTO {schema}.section_locks (section_id, runner_id, acquired_at, expires_at)
             SELECT ?1, ?2, ?3, ?4 WHERE ?5 IS NOT NULL ON CONFLICT (section_id) DO UPDATE SET
             runner_id = ?2, acquired_at = ?3, expires_at = ?4"
        ),
    };
    let written = db.prepare_cached(&sql)?.execute(params![
        id,
        lease.holder.id.as_str(),
        rows::time(lease.acquired_at),
        expires_at,
        rows::time(lease.heartbeat_at),
    ]);
    match written {
        Err(rusqlite::Error::SqliteFailure(failure, _))
            if failure.extended_code == rusqlite::ffi::SQLITE_CONSTRAINT_FOREIGNKEY =>
        {
            let kind = table.kind();
            let fix = match tables {
                LockTables::Own => {
                    format!("lock an existing {kind}, or use a key without the prefix {kind}:")
                }
                LockTables::Attached => {
                    format!("lock a {kind} that the other program knows, by its whole id")
                }
            };
            let missing =
                StoreError::new(ErrorKind::NotFound, format!("there is no {kind} {id}")).fix(fix);
            Err(missing.into())
        }
        other => Ok(other.map(|_| ())?),
    }
}

/// Removes the lock table's row of a key, if it has one.
pub(crate) fn remove(tables: LockTables, db: &Connection, key: &Key) -> rusqlite::Result<()> {
    let Some((table, id)) = LockTable::of(key) else {
        return Ok(());
    };
    if tables == LockTables::Attached {
        foreign::note_removal(db, key)?;
    }
    let (kind, schema) = (table.kind(), tables.schema());
    let sql = format!("DELETE FROM {schema}.{kind}_locks WHERE {kind}_id = ?1");
    db.prepare_cached(&sql)?.execute([id])?;
    Ok(())
}

/// Combines tenure's lease with the lock table's row.
pub(crate) fn merge(key: &Key, ours: Option<Lease>, tables: Option<LockRow>) -> CombinedLock {
    let outside = |runner: &str| Evidence::Forced {
        by: HolderId::parse(runner).unwrap_or_else(|_| HolderId::unreadable()),
        reason: Some("by writing the lock table outside tenure".into()),
    };
    match (ours, tables) {
        (None, None) => CombinedLock {
            lease: None,
            overruled: None,
        },
        (Some(lease), None) => CombinedLock {
            lease: None,
            overruled: Some((lease, outside("sql"))),
        },
        (Some(mut lease), Some(tables)) if tables.runner == lease.holder.id.as_str() => {
            let known = lease.expires.as_ref().map(|end| rows::time(end.wall));
            if known.as_ref() != Some(&tables.expires_at) {
                // The same runner renewed it with another program.
                let Some(expires) = deadline(&tables.expires_at) else {
                    let spoiled = Liveness::Unverifiable(Doubt::Malformed);
                    return CombinedLock {
                        lease: Some((lease, Some(spoiled))),
                        overruled: None,
                    };
                };
                lease.expires = Some(expires);
            }
            CombinedLock {
                lease: Some((lease, None)),
                overruled: None,
            }
        }
        (ours, Some(tables)) => {
            let overruled = ours.map(|lease| (lease, outside(&tables.runner)));
            foreign(key, &tables, overruled)
        }
    }
}

fn foreign(key: &Key, tables: &LockRow, overruled: Option<(Lease, Evidence)>) -> CombinedLock {
    let times = (
        instant(&tables.acquired_at),
        instant(&tables.heartbeat_at),
        deadline(&tables.expires_at),
    );
    let (Some(acquired_at), Some(heartbeat_at), Some(expires)) = times else {
        return malformed(key, tables, overruled);
    };
    let lease = Lease {
        acquired_at,
        heartbeat_at,
        expires: Some(expires),
        ..unknown(key, tables)
    };
    CombinedLock {
        lease: Some((lease, None)),
        overruled,
    }
}

/// A row whose times can't be read: its runner holds it, with no known end.
fn malformed(key: &Key, tables: &LockRow, overruled: Option<(Lease, Evidence)>) -> CombinedLock {
    CombinedLock {
        lease: Some((
            unknown(key, tables),
            Some(Liveness::Unverifiable(Doubt::Malformed)),
        )),
        overruled,
    }
}

/// A lease that another program wrote: no token, no process, no known end.
fn unknown(key: &Key, tables: &LockRow) -> Lease {
    let id = HolderId::parse(tables.runner.clone()).unwrap_or_else(|_| HolderId::unreadable());
    Lease {
        key: key.clone(),
        token: Token::NONE,
        holder: Holder {
            id,
            host: "an unknown host".into(),
            command: None,
            binding: Binding::Detached,
        },
        acquired_at: Timestamp::UNIX_EPOCH,
        heartbeat_at: Timestamp::UNIX_EPOCH,
        expires: None,
        ttl: std::time::Duration::ZERO,
    }
}

/// A time in either of the formats that are found in these tables. Without an offset it is UTC,
/// as SQLite's `datetime('now')` is.
pub(crate) fn instant(text: &str) -> Option<Timestamp> {
    text.parse::<Timestamp>().ok().or_else(|| {
        text.parse::<DateTime>()
            .ok()?
            .to_zoned(TimeZone::UTC)
            .ok()
            .map(|zoned| zoned.timestamp())
    })
}

fn deadline(text: &str) -> Option<Deadline> {
    Some(Deadline {
        wall: instant(text)?,
        ticks: std::time::Duration::ZERO,
        epoch: Epoch::unknown(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_time_formats_are_read_as_utc() {
        let wanted: Timestamp = "2026-11-15T17:49:40Z".parse().unwrap();
        for text in [
            "2026-11-15 17:49:40",
            "2026-11-15T17:49:40",
            "2026-11-15T17:49:40.000Z",
            "2026-11-15T18:49:40+01:00",
        ] {
            assert_eq!(instant(text), Some(wanted), "{text}");
        }
        assert_eq!(instant("tomorrow"), None);
    }
}
