//! Rows to types and back.
//!
//! Wall-clock times are text, `2026-11-15T18:49:40.407Z`, so that people and other programs'
//! SQL can read them. Times since boot are nanoseconds.

use std::time::Duration;

use jiff::Timestamp;
use rusqlite::Row;
use rusqlite::types::{FromSql, FromSqlError, FromSqlResult, Type, ValueRef};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tenure_core::engine::Waiting;
use tenure_core::queue::Rank;
use tenure_core::{
    Deadline, Epoch, Event, EventKind, Holder, HolderId, Key, Lease, Presence, Priority, Ticket,
    Token, Waiter,
};

/// Selects leases, with the columns in the order that [`lease`] reads them.
macro_rules! select_lease {
    ($rest:literal) => {
        concat!(
            "SELECT key, token, holder, host, command, binding, acquired_at, expires_at, heartbeat_at, ",
            "ttl_ms, boot, expires_boot, mode, slot FROM leases ",
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
            "AND other.arrived = tickets.arrived AND other.binding = tickets.binding AND other.key <> tickets.key) ",
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

/// A time since boot as it is stored.
pub(crate) fn nanos(ticks: Duration) -> i64 {
    i64::try_from(ticks.as_nanos()).unwrap_or(i64::MAX)
}

/// A time to live as it is stored.
pub(crate) fn millis(ttl: Duration) -> i64 {
    i64::try_from(ttl.as_millis()).unwrap_or(i64::MAX)
}

/// A number that is never negative in memory and never above `i64::MAX` on disk.
pub(crate) fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// A rank as two columns, `rank` and `ticket`.
pub(crate) fn rank(rank: Rank) -> (i64, i64) {
    let order = rank.order().clamp(i64::MIN.into(), i64::MAX.into());
    (i64::try_from(order).unwrap_or(0), number(rank.ticket().0))
}

/// A number of rows.
pub(crate) fn limit(rows: usize) -> i64 {
    i64::try_from(rows).unwrap_or(i64::MAX)
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

/// A column of JSON text.
struct Json<T>(T);

impl<T: DeserializeOwned> FromSql for Json<T> {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        serde_json::from_str(value.as_str()?)
            .map(Json)
            .map_err(|error| FromSqlError::Other(error.into()))
    }
}

/// A column that some type can be parsed from.
struct Parsed<T>(T);

impl<T> FromSql for Parsed<T>
where
    T: std::str::FromStr,
    T::Err: std::error::Error + Send + Sync + 'static,
{
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        value
            .as_str()?
            .parse()
            .map(Parsed)
            .map_err(|error: T::Err| FromSqlError::Other(error.into()))
    }
}

/// A column that must not be negative.
struct Unsigned(u64);

impl FromSql for Unsigned {
    fn column_result(value: ValueRef<'_>) -> FromSqlResult<Self> {
        let number = value.as_i64()?;
        u64::try_from(number)
            .map(Unsigned)
            .map_err(|_| FromSqlError::OutOfRange(number))
    }
}

pub(crate) fn bad(column: usize, words: String) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, Type::Text, words.into())
}

fn holder_id(row: &Row<'_>, column: usize) -> rusqlite::Result<HolderId> {
    HolderId::parse(row.get::<_, String>(column)?).map_err(|error| bad(column, error.to_string()))
}

pub(crate) fn parsed<T>(row: &Row<'_>, column: usize) -> rusqlite::Result<T>
where
    T: std::str::FromStr,
    T::Err: std::error::Error + Send + Sync + 'static,
{
    Ok(row.get::<_, Parsed<T>>(column)?.0)
}

pub(crate) fn unsigned(row: &Row<'_>, column: usize) -> rusqlite::Result<u64> {
    Ok(row.get::<_, Unsigned>(column)?.0)
}

pub(crate) fn lease(row: &Row<'_>) -> rusqlite::Result<Lease> {
    Ok(Lease {
        key: parsed::<Key>(row, 0)?,
        mode: parsed(row, 12)?,
        slot: row.get(13)?,
        token: Token(unsigned(row, 1)?),
        holder: Holder {
            id: holder_id(row, 2)?,
            host: row.get(3)?,
            command: row.get(4)?,
            binding: row.get::<_, Json<_>>(5)?.0,
        },
        acquired_at: parsed(row, 6)?,
        expires: Some(Deadline {
            wall: parsed(row, 7)?,
            ticks: Duration::from_nanos(unsigned(row, 11)?),
            epoch: Epoch(row.get(10)?),
        }),
        heartbeat_at: parsed(row, 8)?,
        ttl: Duration::from_millis(unsigned(row, 9)?),
    })
}

/// A parked waiter is away. Whether any other one is present is for the reader to find out.
pub(crate) fn waiter(row: &Row<'_>) -> rusqlite::Result<Waiter> {
    let level = row.get::<_, u8>(7)?;
    Ok(Waiter {
        ticket: Ticket(unsigned(row, 0)?),
        holder: Holder {
            id: holder_id(row, 2)?,
            host: row.get(3)?,
            command: row.get(4)?,
            binding: row.get::<_, Json<_>>(5)?.0,
        },
        mode: parsed(row, 13)?,
        named: row.get(6)?,
        priority: Priority::new(level).ok_or_else(|| bad(7, format!("priority {level}")))?,
        epoch: Epoch(row.get(8)?),
        arrived: Duration::from_nanos(unsigned(row, 9)?),
        seen: Duration::from_nanos(unsigned(row, 10)?),
        presence: presence(row, 11)?,
        within: row
            .get::<_, String>(12)?
            .split(',')
            .filter_map(|token| token.parse().ok().map(Token))
            .collect(),
        with: row.get::<_, Json<_>>(14)?.0,
    })
}

pub(crate) fn waiting(row: &Row<'_>) -> rusqlite::Result<Waiting> {
    Ok(Waiting {
        ticket: Ticket(unsigned(row, 0)?),
        holder: holder_id(row, 1)?,
        named: row.get(2)?,
        mode: parsed(row, 3)?,
        presence: presence(row, 4)?,
    })
}

fn presence(row: &Row<'_>, column: usize) -> rusqlite::Result<Presence> {
    let is_parked: bool = row.get(column)?;
    Ok(if is_parked {
        Presence::Away
    } else {
        Presence::Here
    })
}

pub(crate) fn event(row: &Row<'_>) -> rusqlite::Result<Event> {
    let kind = row.get::<_, String>(3)?;
    Ok(Event {
        id: unsigned(row, 0)?,
        at: parsed(row, 1)?,
        key: parsed::<Key>(row, 2)?,
        kind: EventKind::from_word(&kind)
            .ok_or_else(|| bad(3, format!("unknown kind of event {kind}")))?,
        mode: parsed(row, 9)?,
        token: Token(unsigned(row, 4)?),
        holder: holder_id(row, 5)?,
        times: unsigned(row, 6)?,
        reason: row.get(7)?,
        evidence: row.get::<_, Option<Json<_>>>(8)?.map(|json| json.0),
        waited: row
            .get::<_, Option<i64>>(10)?
            .map(|nanos| Duration::from_nanos(u64::try_from(nanos).unwrap_or(0))),
    })
}
