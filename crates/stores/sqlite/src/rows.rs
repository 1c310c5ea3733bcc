//! Rows to types and back.
//!
//! Wall-clock times are text, `2026-11-15T18:49:40.407Z`, so that people and other programs'
//! SQL can read them. Times since boot are nanoseconds.
//!
//! # Values that can't be understood
//!
//! SQL can write any value into any column. A row is always read, and one row never keeps another from being read.
//!
//! 1. A lease counts as held, by a holder that can't be read. Its end counts if it can be understood. If its mode can't be,
//!    it is exclusive.
//! 2. A ticket or an event is left out.
//! 3. Each is named in a sentence: its table, its row and its values.

use std::time::Duration;

use jiff::Timestamp;
use rusqlite::Row;
use rusqlite::types::{FromSql, Type, ValueRef};
use serde::Serialize;
use tenure_core::engine::TicketSummary;
use tenure_core::queue::{self, Rank};
use tenure_core::{
    Deadline, Epoch, Event, EventKind, Holder, HolderId, Key, Lease, Mode, Presence, Priority,
    Ticket, Token, Waiter,
};

use crate::lock_tables::Column;

/// Selects leases, with the columns in the order that [`lease`] reads them.
macro_rules! select_lease {
    ($rest:literal) => {
        concat!(
            "SELECT key, token, holder, host, command, binding, acquired_at, expires_at, heartbeat_at, ",
            "ttl_ms, boot, expires_boot, mode, slot, rowid FROM leases ",
            $rest
        )
    };
}

/// Selects tickets, with the columns in the order that [`waiter`] reads them.
macro_rules! select_ticket {
    ($rest:literal) => {
        concat!(
            "SELECT ticket, key, holder, host, command, binding, named, priority, boot, arrived, seen, parked, within, mode, ",
            // The other keys of the same claim: one process took the tickets for all of them at one moment.
            "(SELECT json_group_array(other.key) FROM tickets AS other WHERE other.holder = tickets.holder ",
            "AND other.arrived = tickets.arrived AND other.binding = tickets.binding AND other.key <> tickets.key ",
            "AND typeof(other.key) = 'text') AS others ",
            "FROM tickets ",
            $rest
        )
    };
}

/// Selects events, with the columns in the order that [`event`] reads them.
macro_rules! select_event {
    ($rest:literal) => {
        concat!(
            "SELECT id, at, key, kind, token, holder, times, reason, evidence, mode, waited FROM history ",
            $rest
        )
    };
}

pub(crate) use {select_event, select_lease, select_ticket};

/// A wall-clock time as it is stored.
pub(crate) fn time(at: Timestamp) -> String {
    format!("{at:.3}")
}

/// A number as it is stored, which is never above `i64::MAX`.
pub(crate) fn number(value: impl TryInto<i64>) -> i64 {
    value.try_into().unwrap_or(i64::MAX)
}

/// A time since boot as it is stored.
pub(crate) fn nanos(ticks: Duration) -> i64 {
    number(ticks.as_nanos())
}

/// A rank as two columns, `rank` and `ticket`.
pub(crate) fn rank(rank: Rank) -> (i64, i64) {
    let order = rank.order().clamp(i64::MIN.into(), i64::MAX.into());
    (i64::try_from(order).unwrap_or(0), number(rank.ticket().0))
}

/// A number of rows.
pub(crate) fn limit(rows: usize) -> i64 {
    number(rows)
}

/// Tokens as they are stored, so that one can be found among them: `,5,7,`.
pub(crate) fn tokens(tokens: &[Token]) -> String {
    tokens.iter().fold(String::from(","), |text, token| {
        text + &token.to_string() + ","
    })
}

/// A value as JSON text.
pub(crate) fn json(value: &impl Serialize) -> rusqlite::Result<String> {
    serde_json::to_string(value)
        .map_err(|error| rusqlite::Error::ToSqlConversionFailure(error.into()))
}

pub(crate) fn bad(column: usize, words: String) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, Type::Text, words.into())
}

/// A number that must not be negative.
pub(crate) fn unsigned(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    let number = row.get(column)?;
    u64::try_from(number).map_err(|_| rusqlite::Error::IntegralValueOutOfRange(column, number))
}

/// A value as text, whatever its type.
pub(crate) fn text(row: &Row<'_>, column: usize) -> rusqlite::Result<String> {
    Ok(optional_text(row, column)?.unwrap_or_default())
}

/// The same; `None` for NULL.
pub(crate) fn optional_text(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<String>> {
    Ok(match row.get_ref(column)? {
        ValueRef::Null => None,
        ValueRef::Integer(number) => Some(number.to_string()),
        ValueRef::Real(number) => Some(number.to_string()),
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => {
            Some(String::from_utf8_lossy(bytes).into_owned())
        }
    })
}

/// A row that is read value by value.
struct Reading<'a, 'row> {
    row: &'a Row<'row>,
    /// The values that can't be understood.
    bad: Vec<String>,
}

impl<'a, 'row> Reading<'a, 'row> {
    fn new(row: &'a Row<'row>) -> Self {
        let bad = Vec::new();
        Self { row, bad }
    }

    /// A value, if it can be understood.
    fn value<R: FromSql, T>(
        &mut self,
        column: usize,
        understand: impl FnOnce(R) -> Option<T>,
    ) -> Option<T> {
        let value = self.row.get(column).ok().and_then(understand);
        self.note(column, value)
    }

    /// The same for text.
    fn text<T>(&mut self, column: usize, understand: impl FnOnce(&str) -> Option<T>) -> Option<T> {
        let text = self.row.get_ref(column).ok();
        let value = text.and_then(|text| understand(text.as_str().ok()?));
        self.note(column, value)
    }

    fn note<T>(&mut self, column: usize, value: Option<T>) -> Option<T> {
        if value.is_none() {
            let name = self.row.as_ref().column_name(column).unwrap_or("?");
            self.bad.push(format!("{name} is {}", self.quoted(column)));
        }
        value
    }

    fn quoted(&self, column: usize) -> String {
        let value = self.row.get::<_, Column>(column);
        value.map_or_else(|error| error.to_string(), |value| value.quoted())
    }

    fn parsed<T: std::str::FromStr>(&mut self, column: usize) -> Option<T> {
        self.text(column, |text| text.parse().ok())
    }

    fn unsigned(&mut self, column: usize) -> Option<u64> {
        self.value(column, |number: i64| u64::try_from(number).ok())
    }

    fn nanos(&mut self, column: usize) -> Option<Duration> {
        self.unsigned(column).map(Duration::from_nanos)
    }

    fn holder_id(&mut self, column: usize) -> Option<HolderId> {
        self.text(column, |text| HolderId::parse(text).ok())
    }

    fn presence(&mut self, column: usize) -> Option<Presence> {
        self.value(column, |is_parked: bool| {
            Some(if is_parked {
                Presence::Away
            } else {
                Presence::Here
            })
        })
    }

    /// The holder of a lease or a ticket, in columns 2 to 5.
    fn holder(&mut self) -> Option<Holder> {
        let id = self.holder_id(2);
        let host = self.value(3, Some);
        let command = self.value(4, Some);
        let binding = self.text(5, |text| serde_json::from_str(text).ok());
        Some(Holder {
            id: id?,
            host: host?,
            command: command?,
            binding: binding?,
        })
    }

    /// What can't be understood in this row, if anything. Its number and its key are in these columns.
    fn problem(self, table: &str, number: usize, key: usize) -> Option<String> {
        if self.bad.is_empty() {
            return None;
        }
        let (number, key) = (self.quoted(number), self.quoted(key));
        let bad = self.bad.join(", ");
        Some(format!(
            "row {number} of {table} (key {key}) can't be understood: {bad}"
        ))
    }
}

/// A row of a table, whose number and key are in these columns, or what can't be understood in it.
fn understood<T>(
    row: &Row<'_>,
    (table, number, key): (&str, usize, usize),
    understand: impl FnOnce(&mut Reading<'_, '_>) -> Option<T>,
) -> Result<T, String> {
    let mut read = Reading::new(row);
    let understood = understand(&mut read);
    understood.ok_or_else(|| read.problem(table, number, key).unwrap_or_default())
}

/// The values of a row that is removed, for a person.
pub(crate) fn said(row: &Row<'_>) -> String {
    let read = Reading::new(row);
    let names = row.as_ref().column_names().enumerate();
    let values = names.map(|(column, name)| format!("{name} {}", read.quoted(column)));
    values.collect::<Vec<_>>().join(", ")
}

/// A lease, as far as its row can be understood.
#[derive(Debug, Clone)]
pub(crate) struct LeaseRow {
    pub(crate) lease: Lease,
    /// What can't be understood of it.
    pub(crate) problem: Option<String>,
}

/// A key that can be understood.
pub(crate) fn key(row: &Row<'_>, column: usize) -> Option<Key> {
    row.get_ref(column).ok()?.as_str().ok()?.parse().ok()
}

/// The key of a lease or a ticket. One that can't be understood names the row: `leases:rowid=17`.
pub(crate) fn key_or_row(
    row: &Row<'_>,
    column: usize,
    table: &str,
    number: usize,
) -> rusqlite::Result<Key> {
    if let Some(key) = key(row, column) {
        return Ok(key);
    }
    let name = format!("{table}:rowid={}", row.get::<_, i64>(number)?);
    Key::parse(name).map_err(|error| bad(number, error.to_string()))
}

/// The row of a lease; an error if its key can't be understood.
pub(crate) fn lease(row: &Row<'_>) -> Result<LeaseRow, String> {
    let mut read = Reading::new(row);
    let key = read.parsed(0);
    let token = read.value(1, |token: i64| {
        u64::try_from(token).ok().filter(|it| *it > 0)
    });
    let mode: Option<Mode> = read.parsed(12);
    let slot = read.value(13, Some);
    let holder = read.holder();
    let acquired_at = read.parsed(6);
    let heartbeat_at = read.parsed(8);
    let ttl = read.unsigned(9).map(Duration::from_millis);
    let end = read.parsed(7);
    let ticks = read.nanos(11);
    let boot = read.value(10, Some).map(Epoch);
    let (ticks, epoch) = ticks
        .zip(boot)
        .unwrap_or_else(|| (Duration::ZERO, Epoch::unknown()));
    let problem = read.problem("leases", 14, 0);
    let Some(key) = key else {
        return Err(problem.unwrap_or_default());
    };
    let (mode, slot) = mode.zip(slot).unwrap_or((Mode::Exclusive, None));
    let lease = Lease {
        key,
        mode,
        slot,
        token: token.map_or(Token::NONE, Token),
        holder: holder
            .filter(|_| problem.is_none())
            .unwrap_or_else(Holder::unreadable),
        acquired_at: acquired_at.unwrap_or(Lease::UNKNOWN_TIME),
        expires: end.map(|wall| Deadline { wall, ticks, epoch }),
        heartbeat_at: heartbeat_at.unwrap_or(Lease::UNKNOWN_TIME),
        ttl: ttl.unwrap_or_default(),
    };
    Ok(LeaseRow { lease, problem })
}

/// The row of a ticket. A parked waiter is away. Whether any other one is present is for the reader to find out.
pub(crate) fn waiter(row: &Row<'_>) -> Result<Waiter, String> {
    understood(row, ("tickets", 0, 1), |read| {
        read.parsed::<Key>(1)?;
        Some(Waiter {
            ticket: Ticket(read.unsigned(0)?),
            holder: read.holder()?,
            mode: read.parsed(13)?,
            named: read.value(6, Some)?,
            priority: read.value(7, Priority::new)?,
            epoch: Epoch(read.value(8, Some)?),
            arrived: read.nanos(9)?,
            seen: read.nanos(10)?,
            presence: read.presence(11)?,
            within: read.text(12, |tokens| {
                let tokens = tokens.split(',');
                let tokens = tokens.filter_map(|token| token.parse().ok().map(Token));
                Some(tokens.collect())
            })?,
            with: read.text(14, |keys| {
                let keys: Vec<String> = serde_json::from_str(keys).ok()?;
                let keys = keys.into_iter().filter_map(|key| Key::parse(key).ok());
                Some(keys.collect())
            })?,
        })
    })
}

/// What a ticket is for, if its row can be understood.
pub(crate) fn summary(row: &Row<'_>) -> Option<TicketSummary> {
    let mut read = Reading::new(row);
    Some(TicketSummary {
        rank: queue::rank(
            read.nanos(0)?,
            read.value(1, Priority::new)?,
            Ticket(read.unsigned(2)?),
        ),
        holder: read.holder_id(3)?,
        named: read.value(4, Some)?,
        mode: read.parsed(5)?,
        presence: read.presence(6)?,
    })
}

/// The row of an event.
pub(crate) fn event(row: &Row<'_>) -> Result<Event, String> {
    understood(row, ("history", 0, 2), |read| {
        Some(Event {
            id: read.unsigned(0)?,
            at: read.parsed(1)?,
            key: read.parsed(2)?,
            kind: read.text(3, EventKind::from_word)?,
            mode: read.parsed(9)?,
            token: Token(read.unsigned(4)?),
            holder: read.holder_id(5)?,
            times: read.unsigned(6)?,
            reason: read.value(7, Some)?,
            evidence: read.value(8, |json: Option<String>| match json {
                Some(json) => serde_json::from_str(&json).ok().map(Some),
                None => Some(None),
            })?,
            waited: read.value(10, |nanos: Option<i64>| {
                Some(nanos.map(|nanos| Duration::from_nanos(u64::try_from(nanos).unwrap_or(0))))
            })?,
        })
    })
}
