//! Events: append, count, prune, list.

use jiff::{SignedDuration, Timestamp};
use rusqlite::{Connection, params};
use tenure_core::{Event, EventKind, Evidence, HistoryQuery, Key, Lease};

use crate::query::Query as _;
use crate::rows::{self, select_event};
use crate::store::SqliteOptions;

/// How often, in events, a command prunes, and how many events at most: twice as many as were added
/// since, so that pruning catches up, and few enough that one command never pays for all.
const PRUNE_EVERY: i64 = 256;
const PRUNE_AT_MOST: i64 = 512;

pub(crate) fn append(
    db: &Connection,
    event: &Event,
    limits: &SqliteOptions,
) -> rusqlite::Result<()> {
    let insert =
        "INSERT INTO history (at, key, kind, token, holder, reason, evidence, mode, waited)
         VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9)";
    let values = params![
        rows::time(event.at),
        event.key.as_str(),
        event.kind.word(),
        rows::number(event.token.0),
        event.holder.as_str(),
        event.reason,
        event.evidence.as_ref().map(rows::json).transpose()?,
        event.mode.to_string(),
        event.waited.map(rows::nanos),
    ];
    db.run(insert, values)?;
    let id = db.last_insert_rowid();
    if id % PRUNE_EVERY == 0 {
        prune(db, id, event.at, limits)
    } else {
        Ok(())
    }
}

/// Records a renewal. One event per grant counts all of its renewals, or a long lease would fill
/// the history of its key.
pub(crate) fn renewed(
    db: &Connection,
    at: Timestamp,
    lease: &Lease,
    limits: &SqliteOptions,
) -> rusqlite::Result<()> {
    let count = "UPDATE history SET times = times + 1, at = ?1
         WHERE id = (SELECT max(id) FROM history WHERE key = ?2 AND token = ?3)
         AND kind = 'renewed' AND mode = ?4";
    let (token, mode) = (rows::number(lease.token.0), lease.mode.to_string());
    if db.run(
        count,
        params![rows::time(at), lease.key.as_str(), token, mode],
    )? > 0
    {
        return Ok(());
    }
    append(db, &Event::of(lease, EventKind::Renewed, at), limits)
}

/// Removes some events that are too old or too many. `newest` itself always stays.
fn prune(
    db: &Connection,
    newest: i64,
    now: Timestamp,
    limits: &SqliteOptions,
) -> rusqlite::Result<()> {
    let oldest_allowed = SignedDuration::try_from(limits.history_age)
        .ok()
        .and_then(|age| now.checked_sub(age).ok());
    let last_too_many = newest.saturating_sub(rows::number(limits.history_events));
    let oldest_allowed = oldest_allowed.map(rows::time);
    let delete = "DELETE FROM history WHERE id IN (SELECT id FROM history ORDER BY id LIMIT ?1)
         AND (id <= ?2 OR at < ?3) AND id < ?4";
    let values = params![PRUNE_AT_MOST, last_too_many, oldest_allowed, newest];
    db.run(delete, values)?;
    Ok(())
}

/// Why the last lease of a key ended, if its last event is that the lease expired or its holder
/// died.
pub(crate) fn last_end(db: &Connection, key: &Key) -> rusqlite::Result<Option<Evidence>> {
    let query = HistoryQuery {
        key: Some(key.clone()),
        limit: Some(1),
        ..HistoryQuery::default()
    };
    let last = tell(db, &query)?.pop();
    Ok(last
        .filter(|event| matches!(event.kind, EventKind::Expired | EventKind::Dead))
        .and_then(|event| event.evidence))
}

/// The newest events that match, oldest first.
pub(crate) fn tell(db: &Connection, query: &HistoryQuery) -> rusqlite::Result<Vec<Event>> {
    let (sql, key) = match &query.key {
        Some(key) => (
            select_event!("WHERE key = ?1 AND at >= ?2 AND id > ?3 ORDER BY id DESC"),
            key.as_str(),
        ),
        None => (
            select_event!("WHERE ?1 = '' AND at >= ?2 AND id > ?3 ORDER BY id DESC"),
            "",
        ),
    };
    let since = query.since.map(rows::time).unwrap_or_default();
    let mut statement = db.prepare_cached(sql)?;
    let found = statement.query_map(params![key, since, rows::number(query.after)], |row| {
        Ok(rows::event(row).ok())
    })?;
    let found = found.filter_map(Result::transpose);
    let mut events: Vec<Event> = found
        .take(query.limit.unwrap_or(usize::MAX))
        .collect::<Result<_, _>>()?;
    events.reverse();
    Ok(events)
}

/// What can't be understood of the time of these events. Its key may be any.
pub(crate) fn damaged(db: &Connection, query: &HistoryQuery) -> rusqlite::Result<Vec<String>> {
    // What is no time may be of any.
    let mut statement = db.prepare_cached(select_event!(
        "WHERE id > ?1 AND (at >= ?2 OR at NOT GLOB '????-??-??T*') ORDER BY id DESC"
    ))?;
    let since = query.since.map(rows::time).unwrap_or_default();
    let mut found = statement.query(params![rows::number(query.after), since])?;
    let (mut damaged, mut told) = (Vec::new(), 0);
    while query.limit.is_none_or(|limit| told < limit)
        && let Some(row) = found.next()?
    {
        match rows::event(row) {
            Ok(event) => {
                told += usize::from(query.key.as_ref().is_none_or(|key| event.key == *key));
            }
            Err(problem) => damaged.push(problem),
        }
    }
    damaged.reverse();
    Ok(damaged)
}
