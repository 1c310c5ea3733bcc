//! `task_locks` and `section_locks`: two tables that other programs read and write too.
//!
//! For `task:` and `section:` keys the row in these tables is the lock. The row in `leases` holds
//! what tenure knows beyond it: token, process, boot clock. Both are written in one transaction. When
//! they disagree, another program wrote the lock table, and the lock table counts.
//!
//! The two tables are in tenure's own database, or in another program's that is attached to it: see
//! [`LockTables`].
//!
//! # Values that make no sense
//!
//! Other programs may write any value into any column. A row is always read, and one row never keeps
//! another from being read.
//!
//! 1. The end counts: a row whose `expires_at` is a time that has passed has expired, whatever the other
//!    columns hold.
//! 2. A time without a zone is UTC, as SQLite's `datetime('now')` is. A local time written west of UTC then
//!    looks like the past, so an `expires_at` without a zone that is earlier than `acquired_at` is no end.
//! 3. A row without an end that can be understood is malformed: it never expires (G4).
//! 4. A row whose id can't be part of a key is malformed too. Its key names the row: `task:rowid=17`.

use std::fmt;
use std::path::Path;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use rusqlite::types::{FromSql, FromSqlResult, ValueRef};
use rusqlite::{Connection, Row, params};
use tenure_core::{
    Binding, Deadline, Doubt, Epoch, ErrorKind, Evidence, Holder, HolderId, Key, KeyKind, Lease,
    Liveness, Mode, StoreError, Token, Verdict,
};

use crate::query::Query as _;
use crate::rows::{self, LeaseRow};
use crate::steroids::PolledRows;
use crate::write::TransactionError;
use crate::{read_only, schema};

/// The database that the two tables are in. By default, tenure's own.
pub(crate) trait LockTables: fmt::Debug + Send + Sync {
    /// Whether that is tenure's own database. Otherwise a commit writes two files, only tasks and sections can be locked,
    /// and tasks and their events are the other program's.
    fn are_own(&self) -> bool {
        true
    }

    /// The name of the database in SQL.
    fn schema(&self) -> &'static str {
        "main"
    }

    /// Whether the two tables are there.
    fn exist(&self, db: &Connection) -> rusqlite::Result<bool>;

    /// Which rows of `held` count, as SQL.
    fn counted(&self, _kind: &str) -> String {
        String::from("true")
    }

    /// Called when a transaction that writes has begun.
    fn begin(&self, _db: &Connection) -> rusqlite::Result<()> {
        Ok(())
    }

    /// Called before the row of a lease is written, with its end as it will be there.
    fn before_write(&self, _db: &Connection, _lease: &Lease, _end: &str) -> rusqlite::Result<()> {
        Ok(())
    }

    /// Called before the row of a key is removed.
    fn before_removal(&self, _db: &Connection, _key: &Key) -> rusqlite::Result<()> {
        Ok(())
    }

    /// The key of the section that a task is in, if another runner in it keeps a claim on the task out.
    fn section_of(&self, _db: &Connection, _key: &Key) -> rusqlite::Result<Option<Key>> {
        Ok(None)
    }

    /// What another program calls a task or a section.
    fn name_of(&self, _db: &Connection, _key: &Key) -> rusqlite::Result<Option<String>> {
        Ok(None)
    }

    /// How a lease ended that the tables say something else about (`outside`); `gone`: they say nothing.
    fn evidence(&self, outside: Evidence, _verdict: &Verdict, _gone: bool) -> Evidence {
        outside
    }

    /// Changes whenever another connection has committed something to a database that is not tenure's.
    fn version(&self, _db: &Connection) -> rusqlite::Result<u32> {
        Ok(0)
    }

    /// Fails if a file that is not tenure's was replaced.
    fn still_there(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Opens what a verb of a read-only store reads.
    fn connect(&self, named: &Path, real: &Path) -> Result<Connection, StoreError> {
        read_only::connect(named, real)
    }

    /// What a process that waits for this key, or holds it, has to poll: the rows that another program may
    /// change. Call it before the revision is compared, so that no change is missed.
    fn polled(&self, _db: &Connection, _key: &Key) -> rusqlite::Result<Option<PolledRows>> {
        Ok(None)
    }
}

/// The two tables in tenure's own database.
#[derive(Debug)]
pub(crate) struct OwnTables {
    /// They may be missing: it was opened for locks, or it is only read.
    pub(crate) maybe: bool,
}

impl LockTables for OwnTables {
    fn exist(&self, db: &Connection) -> rusqlite::Result<bool> {
        Ok(!self.maybe || schema::has_tasks(db)?)
    }
}

/// Whether a row of the two tables names this runner.
pub(crate) fn name(
    tables: &dyn LockTables,
    db: &Connection,
    runner: &HolderId,
) -> rusqlite::Result<bool> {
    let schema = tables.schema();
    let any = format!(
        "SELECT 1 FROM {schema}.task_locks WHERE runner_id = ?1
         UNION ALL SELECT 1 FROM {schema}.section_locks WHERE runner_id = ?1"
    );
    Ok(tables.exist(db)? && db.any(&any, [runner.as_str()])?)
}

/// Whether a database has both, each with its id as the primary key.
pub(crate) fn has_lock_tables(db: &Connection, schema: &str) -> rusqlite::Result<bool> {
    let columns = "SELECT name FROM pragma_table_info(?1, ?2) WHERE pk = (name = ?3)";
    for table in [LockTable::Task, LockTable::Section] {
        let [name, id] = ["locks", "id"].map(|end| format!("{}_{end}", table.kind()));
        let found = db.all(columns, params![name, schema, id], |row| row.get(0))?;
        let has = |column: &&str| found.iter().any(|name: &String| name == column);
        if !table.columns().iter().all(has) {
            return Ok(false);
        }
    }
    Ok(true)
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
    id: Column,
    runner: Column,
    acquired_at: Column,
    expires_at: Column,
    heartbeat_at: Column,
}

/// A value of a row: text, unless another program wrote something else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Column {
    Text(String),
    /// As SQL writes it: `NULL`, `42`, `x'00FF'`.
    Other(String),
}

/// How many bytes of a value that is no text are shown.
const SHOWN_BYTES: usize = 32;

/// How many characters of a text are shown.
const SHOWN_CHARACTERS: usize = 300;

/// In place of an id that can't be part of a key: the number of its row follows.
const ROW: &str = "rowid=";

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
    fn columns(self) -> &'static [&'static str] {
        match self {
            Self::Task => &[
                "task_id",
                "runner_id",
                "acquired_at",
                "expires_at",
                "heartbeat_at",
            ],
            Self::Section => &["section_id", "runner_id", "acquired_at", "expires_at"],
        }
    }

    /// Selects its rows, those that count.
    fn select(self, tables: &dyn LockTables) -> String {
        let (kind, schema) = (self.kind(), tables.schema());
        let heard = match self {
            Self::Task => "heartbeat_at",
            Self::Section => "acquired_at",
        };
        let counted = tables.counted(kind);
        format!(
            "SELECT {kind}_id, runner_id, acquired_at, expires_at, {heard}
             FROM {schema}.{kind}_locks AS held WHERE {counted}"
        )
    }

    /// The row of one id.
    pub(crate) fn read(
        self,
        tables: &dyn LockTables,
        db: &Connection,
        id: &str,
    ) -> rusqlite::Result<Option<LockRow>> {
        if !tables.exist(db)? {
            return Ok(None);
        }
        let sql = format!("{} AND {}_id = ?1", self.select(tables), self.kind());
        let found = db.first(&sql, [id], row)?;
        if found.is_some() || row_number(id).is_none() {
            return Ok(found);
        }
        let mut unnamed = self.all_unnamed(tables, db)?.into_iter();
        let found = unnamed.find(|(key, _)| key.id() == id);
        Ok(found.map(|(_, row)| row))
    }

    /// The key of a row, if its id can be part of one.
    fn key(self, row: &LockRow) -> Option<Key> {
        Key::parse(format!("{}:{}", self.kind(), row.id.text()?)).ok()
    }

    /// Every row, with its key.
    pub(crate) fn all(
        self,
        tables: &dyn LockTables,
        db: &Connection,
    ) -> rusqlite::Result<Vec<(Key, LockRow)>> {
        if !tables.exist(db)? {
            return Ok(Vec::new());
        }
        let rows = db.all(&self.select(tables), [], row)?;
        let read = rows.len();
        let mut all: Vec<(Key, LockRow)> = rows
            .into_iter()
            .filter_map(|row| Some((self.key(&row)?, row)))
            .collect();
        if all.len() < read {
            all.extend(self.all_unnamed(tables, db)?);
        }
        Ok(all)
    }

    /// The rows whose id can't be part of a key, under a key that names the row.
    fn all_unnamed(
        self,
        tables: &dyn LockTables,
        db: &Connection,
    ) -> rusqlite::Result<Vec<(Key, LockRow)>> {
        let select = self.select(tables);
        let select = select.replacen(" FROM", ", held.rowid FROM", 1);
        let rows = db.all(&select, [], |found| Ok((row(found)?, found.get(5)?)))?;
        let key = |number: i64| Key::parse(format!("{}:{ROW}{number}", self.kind())).ok();
        let unnamed = rows.into_iter().filter(|(row, _)| self.key(row).is_none());
        Ok(unnamed
            .filter_map(|(row, number)| Some((key(number)?, row)))
            .collect())
    }
}

/// The number of the row that an id stands for, if it is no id of a task or section.
fn row_number(id: &str) -> Option<i64> {
    id.strip_prefix(ROW)?.parse().ok()
}

impl LockRow {
    /// Who has it.
    pub(crate) fn runner(&self) -> String {
        self.runner.name()
    }

    /// When it ends, if that can be told.
    fn deadline(&self) -> Option<Deadline> {
        let wall = self.expires_at.time()?;
        if self.ends_before_it_begins() {
            return None;
        }
        Some(Deadline {
            wall,
            ticks: std::time::Duration::ZERO,
            epoch: Epoch::unknown(),
        })
    }

    /// Whether its end, without a zone, is earlier than its beginning.
    fn ends_before_it_begins(&self) -> bool {
        let zoned = |text: &str| text.parse::<Timestamp>().is_ok();
        let end = self.expires_at.time();
        let begins = self.acquired_at.time();
        end.zip(begins).is_some_and(|(end, begins)| end < begins)
            && !self.expires_at.text().is_some_and(zoned)
    }

    /// What can't be understood in it, as sentences that quote it.
    pub(crate) fn problems(&self, kind: &str, key: &Key) -> Vec<String> {
        let mut problems = Vec::new();
        if self.id.text() != Some(key.id()) {
            problems.push(format!(
                "{kind}_id is {}, which no key can name",
                self.id.quoted()
            ));
        }
        if self.runner.text().is_none() {
            problems.push(format!("runner_id is {}, not text", self.runner.quoted()));
        }
        let times = [
            ("acquired_at", &self.acquired_at),
            ("expires_at", &self.expires_at),
            ("heartbeat_at", &self.heartbeat_at),
        ];
        // A section has no heartbeat; there it is a second look at `acquired_at`.
        let times = times.iter().take(if kind == "task" { 3 } else { 2 });
        for (name, time) in times.filter(|(_, time)| time.time().is_none()) {
            problems.push(format!("{name} is {}, not a time", time.quoted()));
        }
        if self.ends_before_it_begins() {
            problems.push(format!(
                "expires_at ({}) is before acquired_at ({}): it seems to be a local time, and has no zone",
                self.expires_at.quoted(),
                self.acquired_at.quoted()
            ));
        }
        problems
    }
}

impl Column {
    fn text(&self) -> Option<&str> {
        match self {
            Self::Text(text) => Some(text),
            Self::Other(_) => None,
        }
    }

    fn time(&self) -> Option<Timestamp> {
        instant(self.text()?)
    }

    fn name(&self) -> String {
        match self {
            Self::Text(text) | Self::Other(text) => text.clone(),
        }
    }

    /// As it is shown in a message, without the end of a very long text.
    pub(crate) fn quoted(&self) -> String {
        match self {
            Self::Text(text) => match text.char_indices().nth(SHOWN_CHARACTERS) {
                Some((end, _)) => format!("{:?}...", text.get(..end).unwrap_or_default()),
                None => format!("{text:?}"),
            },
            Self::Other(literal) => literal.clone(),
        }
    }
}

impl FromSql for Column {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let literal = |bytes: &[u8]| {
            let digits = bytes
                .iter()
                .take(SHOWN_BYTES)
                .map(|byte| format!("{byte:02X}"));
            let more = if bytes.len() > SHOWN_BYTES { "..." } else { "" };
            Self::Other(format!("x'{}{more}'", digits.collect::<String>()))
        };
        Ok(match value {
            ValueRef::Null => Self::Other("NULL".to_owned()),
            ValueRef::Integer(number) => Self::Other(number.to_string()),
            ValueRef::Real(number) => Self::Other(number.to_string()),
            ValueRef::Text(bytes) => match std::str::from_utf8(bytes) {
                Ok(text) => Self::Text(text.to_owned()),
                Err(_) => literal(bytes),
            },
            ValueRef::Blob(bytes) => literal(bytes),
        })
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
    tables: &dyn LockTables,
    db: &Connection,
    lease: &Lease,
) -> Result<(), TransactionError> {
    let Some((table, id)) = LockTable::of(&lease.key) else {
        return Ok(());
    };
    if !tables.exist(db)? {
        return Err(not_found(tables, table, id).into());
    }
    let Some(end) = &lease.expires else {
        return Ok(());
    };
    let expires_at = rows::time(end.wall);
    tables.before_write(db, lease, &expires_at)?;
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
    let values = params![
        id,
        lease.holder.id.as_str(),
        rows::time(lease.acquired_at),
        expires_at,
        rows::time(lease.heartbeat_at),
    ];
    let written = db.run(&sql, values);
    match written {
        Err(rusqlite::Error::SqliteFailure(failure, _))
            if failure.extended_code == rusqlite::ffi::SQLITE_CONSTRAINT_FOREIGNKEY =>
        {
            Err(not_found(tables, table, id).into())
        }
        other => Ok(other.map(|_| ())?),
    }
}

/// There is no such task or section.
fn not_found(tables: &dyn LockTables, table: LockTable, id: &str) -> StoreError {
    let kind = table.kind();
    let fix = if tables.are_own() {
        format!("lock an existing {kind}, or use a key without the prefix {kind}:")
    } else {
        format!("lock a {kind} that the other program knows, by its whole id")
    };
    StoreError::new(ErrorKind::NotFound, format!("there is no {kind} {id}")).fix(fix)
}

/// Removes the lock table's row of a key, if it has one.
pub(crate) fn remove(tables: &dyn LockTables, db: &Connection, key: &Key) -> rusqlite::Result<()> {
    let Some((table, id)) = LockTable::of(key) else {
        return Ok(());
    };
    tables.before_removal(db, key)?;
    if !tables.exist(db)? {
        return Ok(());
    }
    let (kind, schema) = (table.kind(), tables.schema());
    let sql = format!("DELETE FROM {schema}.{kind}_locks WHERE {kind}_id = ?1");
    let removed = db.run(&sql, [id])?;
    if let (0, Some(number)) = (removed, row_number(id))
        && table.read(tables, db, id)?.is_some()
    {
        let sql = format!("DELETE FROM {schema}.{kind}_locks WHERE rowid = ?1");
        db.execute(&sql, [number])?;
    }
    Ok(())
}

/// Combines tenure's lease with the lock table's row.
///
/// If tenure's row can't be understood, the lock table's row still tells who has the lock, and until when.
pub(crate) fn merge(key: &Key, mut ours: Vec<LeaseRow>, tables: Option<LockRow>) -> CombinedLock {
    let outside = |runner: &str| Evidence::Forced {
        by: HolderId::parse(runner).unwrap_or_else(|_| HolderId::unreadable()),
        reason: Some("by writing the lock table outside tenure".into()),
    };
    ours.sort_by_key(|row| row.problem.is_none());
    let ours = match (ours.pop(), &tables) {
        (Some(row), Some(tables)) if row.problem.is_some() => {
            let (lease, known) = foreign(key, tables);
            let token = row.lease.token;
            return CombinedLock {
                lease: Some((Lease { token, ..lease }, known)),
                overruled: None,
            };
        }
        (ours, _) => ours.map(|row| row.lease),
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
        (Some(mut lease), Some(tables))
            if tables.runner.text() == Some(lease.holder.id.as_str()) =>
        {
            let known = lease.expires.as_ref().map(|end| rows::time(end.wall));
            let mut malformed = None;
            if known.as_deref() != tables.expires_at.text() {
                // The same runner renewed it with another program.
                match tables.deadline() {
                    Some(expires) => lease.expires = Some(expires),
                    None => malformed = Some(Liveness::Unverifiable(Doubt::Malformed)),
                }
            }
            CombinedLock {
                lease: Some((lease, malformed)),
                overruled: None,
            }
        }
        (ours, Some(tables)) => CombinedLock {
            lease: Some(foreign(key, &tables)),
            overruled: ours.map(|lease| (lease, outside(&tables.runner()))),
        },
    }
}

/// A lease that another program wrote: no token, no process. It has an end only if that can be told.
fn foreign(key: &Key, tables: &LockRow) -> (Lease, Option<Liveness>) {
    let time = |column: &Column| column.time().unwrap_or(Lease::UNKNOWN_TIME);
    let named = tables.id.text() == Some(key.id());
    let expires = tables.deadline().filter(|_| named);
    let malformed = expires
        .is_none()
        .then_some(Liveness::Unverifiable(Doubt::Malformed));
    let lease = Lease {
        mode: Mode::Exclusive,
        slot: None,
        key: key.clone(),
        token: Token::NONE,
        holder: Holder {
            id: HolderId::parse(tables.runner()).unwrap_or_else(|_| HolderId::unreadable()),
            host: Holder::UNKNOWN_HOST.into(),
            command: None,
            binding: Binding::Detached,
        },
        acquired_at: time(&tables.acquired_at),
        heartbeat_at: time(&tables.heartbeat_at),
        expires,
        ttl: std::time::Duration::ZERO,
    };
    (lease, malformed)
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
