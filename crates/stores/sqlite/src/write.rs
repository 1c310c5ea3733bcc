//! A write transaction under way: [`WriteTransaction`], the step that the engine runs on.

use std::time::Duration;

use rusqlite::params;
use tenure_core::decide::View;
use tenure_core::engine::{
    self, Ended, KeyChange, LeaseQuery, Look, Step, Then, TicketQuery, TicketSummary, Written,
};
use tenure_core::queue::Rank;
use tenure_core::{
    Claim, Event, EventKind, Evidence, Holder, HolderId, Key, Lease, Liveness, LivenessId, Moment,
    Presence, StoreError, Ticket, Token, Waiter,
};
use tenure_tasks::TaskError;
use tenure_tasks::follow::follow;

use crate::history;
use crate::lock_tables::{self, LockTable};
use crate::query::Query as _;
use crate::reserved;
use crate::rows;
use crate::store::SqliteOptions;
use crate::view::{KeyLeases, ReadTransaction};

/// More tokens than a power cut can undo: all grants are synced before the first token of each [`BLOCK`] is minted.
const JUMP: u64 = 1 << 20;

/// So many tokens are minted between two syncs at most. A checkpoint usually syncs the log much sooner, every few
/// hundred pages; but while a reader needs the old pages, it syncs nothing.
pub(crate) const BLOCK: u64 = JUMP / 4;

/// Why a transaction was rolled back.
#[derive(Debug)]
pub enum TransactionError {
    /// SQLite failed.
    Sql(rusqlite::Error),
    /// The store can't do this, or a rule for tasks refuses it.
    Refused(Box<TaskError>),
    /// A token was needed, and this has to be done first.
    NoTokenReserve(Needed),
}

/// What [`Step::mint`] needs before it can mint the next token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Needed {
    /// The counter has to be raised: it was not yet in this epoch, or nobody knows.
    Raise,
    /// What was granted before the block of tokens with this number has to be synced.
    Sync(u64),
}

impl From<rusqlite::Error> for TransactionError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

impl From<StoreError> for TransactionError {
    fn from(error: StoreError) -> Self {
        TaskError::from(error).into()
    }
}

impl From<TaskError> for TransactionError {
    fn from(error: TaskError) -> Self {
        Self::Refused(Box::new(error))
    }
}

/// What is known of the token counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct TokenReserve {
    /// It was raised in this epoch (see `SqliteStore::begin_boot`). Otherwise [`Step::mint`] finds out.
    pub(crate) raised: bool,
    /// All grants before the block with this number have been synced.
    pub(crate) synced: Option<u64>,
}

/// A write transaction under way.
pub struct WriteTransaction<'a> {
    pub(crate) reader: ReadTransaction<'a>,
    pub(crate) options: &'a SqliteOptions,
    pub(crate) reserve: TokenReserve,
    /// The processes to wake once it is committed.
    pub(crate) rings: Vec<LivenessId>,
}

impl Look for WriteTransaction<'_> {
    type Error = TransactionError;

    fn now(&self) -> &Moment {
        self.reader.now
    }

    /// A lease that another program ended by writing the lock tables is taken off the record, so
    /// that its holder learns of it.
    fn leases(&mut self, key: &Key) -> Result<Vec<(Lease, Liveness)>, TransactionError> {
        let KeyLeases { leases, overruled } = self.reader.key(key)?;
        if let Some((lease, evidence)) = overruled {
            // The row in our own table only: the lock tables say something else by now.
            let own = "DELETE FROM leases WHERE key = ?1";
            self.reader.db.run(own, [key.as_str()])?;
            self.record_end(&lease, &evidence)?;
            self.follow(KeyChange::Ended(
                &lease,
                &Ended::Proven(evidence),
                Then::Granted,
            ))?;
            self.wake(&lease.holder);
            let queue = self.reader.queue(key)?;
            engine::wake_next(self, &queue);
        }
        Ok(leases)
    }

    fn some_leases(
        &mut self,
        key: &Key,
        query: LeaseQuery<'_>,
    ) -> Result<Vec<(Lease, Liveness)>, TransactionError> {
        match LockTable::of(key) {
            Some(_) => Ok(query.select(self.leases(key)?)),
            None => Ok(self.reader.some_leases(key, query)?),
        }
    }

    fn slots(&mut self, key: &Key) -> Result<Vec<(Token, Option<u32>)>, TransactionError> {
        Ok(self.reader.slots(key)?)
    }

    fn tickets(&mut self, key: &Key) -> Result<Vec<Waiter>, TransactionError> {
        Ok(self.reader.tickets(key)?)
    }

    fn summaries(&mut self, key: &Key) -> Result<Vec<TicketSummary>, TransactionError> {
        Ok(self.reader.summaries(key)?)
    }

    fn some_tickets(
        &mut self,
        key: &Key,
        query: TicketQuery<'_>,
    ) -> Result<Vec<Waiter>, TransactionError> {
        Ok(self.reader.some_tickets(key, query)?)
    }

    fn count_waiters(&mut self, key: &Key, rank: Rank) -> Result<(usize, usize), TransactionError> {
        Ok(self.reader.count_waiters(key, rank)?)
    }

    fn probe(&mut self, waiter: &Holder) -> Liveness {
        self.reader.probe(waiter)
    }

    fn obstacles(&mut self, claim: &Claim) -> Result<Vec<(Lease, Liveness)>, TransactionError> {
        Ok(self.reader.obstacles(claim)?)
    }

    fn problems(&mut self, key: &Key) -> Result<Vec<String>, TransactionError> {
        Ok(self.reader.problems(key)?)
    }

    fn heard(&mut self, waiter: &Waiter) -> Duration {
        self.reader.heard(waiter)
    }

    fn grace(&self) -> Duration {
        self.reader.grace
    }
}

impl Step for WriteTransaction<'_> {
    fn mint(&mut self, _key: &Key) -> Result<Token, TransactionError> {
        let (newest, epoch) = self.reader.tokens()?;
        // Where the kernel does not name its boots, every process takes it for a new one.
        if !self.reserve.raised && !epoch.same(&self.now().epoch) {
            return Err(TransactionError::NoTokenReserve(Needed::Raise));
        }
        let token = newest.next()?;
        let block = token.0 / BLOCK;
        if block != newest.0 / BLOCK && self.reserve.synced != Some(block) {
            return Err(TransactionError::NoTokenReserve(Needed::Sync(block)));
        }
        let set = "UPDATE tokens SET newest = ?1, boot = ?2 WHERE id = 1";
        let values = params![rows::number(token.0), self.now().epoch.0];
        self.reader.db.run(set, values)?;
        Ok(token)
    }

    fn write_lease(&mut self, lease: &Lease, put: Written) -> Result<(), TransactionError> {
        let (db, wall) = (self.reader.db, self.now().wall);
        let put_row = "INSERT OR REPLACE INTO leases (key, token, holder, host, command, binding, acquired_at, expires_at,
             heartbeat_at, ttl_ms, boot, expires_boot, mode, slot)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14)";
        let values = params![
            lease.key.as_str(),
            rows::number(lease.token.0),
            lease.holder.id.as_str(),
            lease.holder.host,
            lease.holder.command,
            rows::json(&lease.holder.binding)?,
            rows::time(lease.acquired_at),
            lease.expires.as_ref().map(|end| rows::time(end.wall)),
            rows::time(lease.heartbeat_at),
            rows::number(lease.ttl.as_millis()),
            lease.expires.as_ref().map(|end| &end.epoch.0),
            lease.expires.as_ref().map(|end| rows::nanos(end.ticks)),
            lease.mode.to_string(),
            lease.slot,
        ];
        db.run(put_row, values)?;
        lock_tables::write(self.reader.tables, db, lease)?;
        if lease.key.is_paths() && put != Written::Renewed {
            reserved::add(db, lease)?;
        }
        match put {
            Written::Granted { reason, waited } => {
                self.record(&Event::granted(lease, reason, waited, wall))
            }
            Written::Extended | Written::Renewed => {
                Ok(history::renewed(db, wall, lease, self.options)?)
            }
        }
    }

    fn erase_lease(
        &mut self,
        lease: &Lease,
        how: &Ended,
        then: Then,
    ) -> Result<(), TransactionError> {
        // One without a token has a row if that can't be understood.
        let row = if lease.token == Token::NONE {
            "DELETE FROM leases WHERE key = ?1 AND (typeof(token) <> 'integer' OR token <= ?2)"
        } else {
            "DELETE FROM leases WHERE key = ?1 AND token = ?2"
        };
        let token = rows::number(lease.token.0);
        self.reader
            .db
            .run(row, params![lease.key.as_str(), token])?;
        if lease.key.is_paths() {
            reserved::remove(self.reader.db, lease)?;
        }
        if then == Then::Free {
            lock_tables::remove(self.reader.tables, self.reader.db, &lease.key)?;
        }
        match how {
            Ended::Released => self.record(&Event::of(lease, EventKind::Released, self.now().wall)),
            Ended::Proven(evidence) => self.record_end(lease, evidence),
        }
    }

    fn add_ticket(&mut self, key: &Key, waiter: &Waiter) -> Result<Ticket, TransactionError> {
        let db = self.reader.db;
        let add = "INSERT INTO tickets (key, holder, host, command, binding, named, priority, boot, arrived, seen, within, mode)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)";
        let values = params![
            key.as_str(),
            waiter.holder.id.as_str(),
            waiter.holder.host,
            waiter.holder.command,
            rows::json(&waiter.holder.binding)?,
            waiter.named,
            waiter.priority.level(),
            waiter.epoch.0,
            rows::nanos(waiter.arrived),
            rows::nanos(waiter.seen),
            rows::tokens(&waiter.within),
            waiter.mode.to_string(),
        ];
        db.run(add, values)?;
        Ok(Ticket(u64::try_from(db.last_insert_rowid()).unwrap_or(0)))
    }

    fn write_ticket(&mut self, _key: &Key, waiter: &Waiter) -> Result<(), TransactionError> {
        let update = "UPDATE tickets SET host = ?1, command = ?2, binding = ?3, priority = ?4, seen = ?5, within = ?6,
             parked = ?7 WHERE ticket = ?8";
        let values = params![
            waiter.holder.host,
            waiter.holder.command,
            rows::json(&waiter.holder.binding)?,
            waiter.priority.level(),
            rows::nanos(waiter.seen),
            rows::tokens(&waiter.within),
            waiter.presence == Presence::Away,
            rows::number(waiter.ticket.0)
        ];
        self.reader.db.run(update, values)?;
        Ok(())
    }

    fn erase_ticket(&mut self, _key: &Key, ticket: Ticket) -> Result<(), TransactionError> {
        let delete = "DELETE FROM tickets WHERE ticket = ?1";
        self.reader.db.run(delete, [rows::number(ticket.0)])?;
        Ok(())
    }

    /// The tasks of another program are none of tenure's.
    fn follow(&mut self, change: KeyChange<'_>) -> Result<(), TransactionError> {
        if !self.reader.tables.are_own() {
            return Ok(());
        }
        follow(self, change)
    }

    fn waits_of(&mut self, holder: &HolderId, token: Token) -> Result<Vec<Key>, TransactionError> {
        let tokens = rows::tokens(&[token]);
        // Without a token it reads only the tickets of this name.
        let waits = "SELECT key FROM tickets WHERE holder = ?1
             UNION SELECT key FROM tickets WHERE ?3 AND instr(within, ?2)";
        let values = params![holder.as_str(), tokens, token != Token::NONE];
        let keys = self
            .reader
            .db
            .all(waits, values, |row| Ok(rows::key(row, 0)))?;
        Ok(keys.into_iter().flatten().collect())
    }

    /// There is no index for this: a claim that asks it has met a waiter for several keys, or in another mode.
    fn may_hold(
        &mut self,
        named: Option<&HolderId>,
        within: &[Token],
    ) -> Result<bool, TransactionError> {
        let (db, tables) = (self.reader.db, self.reader.tables);
        if let Some(named) = named
            && (db.any("SELECT 1 FROM leases WHERE holder = ?1", [named.as_str()])?
                || lock_tables::name(tables, db, named)?)
        {
            return Ok(true);
        }
        let any = "SELECT 1 FROM leases WHERE instr(?1, ',' || token || ',')";
        Ok(!within.is_empty() && db.any(any, [rows::tokens(within)])?)
    }

    /// Not in the database of another program: its locks have no history there.
    fn record_request(&mut self, event: &Event) -> Result<bool, TransactionError> {
        if !self.reader.tables.are_own() {
            return Ok(false);
        }
        self.record(event)?;
        Ok(true)
    }

    fn wake(&mut self, holder: &Holder) {
        self.rings.extend(holder.liveness_lock().cloned());
    }

    fn hear(&mut self, _key: &Key, _waiter: &Waiter) -> Result<(), TransactionError> {
        self.reader.presence.beat();
        Ok(())
    }
}

impl WriteTransaction<'_> {
    /// What a claim on this key would meet.
    pub(crate) fn view(&mut self, key: &Key) -> Result<View, TransactionError> {
        engine::view(self, key, None)
    }

    /// Adds an event to the history.
    pub(crate) fn record(&self, event: &Event) -> Result<(), TransactionError> {
        Ok(history::append(self.reader.db, event, self.options)?)
    }

    /// Records that a lease ended, with the evidence (G3).
    fn record_end(&self, lease: &Lease, evidence: &Evidence) -> Result<(), TransactionError> {
        self.record(&Event {
            evidence: Some(evidence.clone()),
            ..Event::of(lease, EventKind::of(evidence), self.now().wall)
        })
    }

    /// Raises the token counter by more than a power cut can undo.
    pub(crate) fn raise_tokens(&self) -> Result<(), TransactionError> {
        let (newest, _) = self.reader.tokens()?;
        let raise = "UPDATE tokens SET newest = ?1 WHERE id = 1";
        let newest = rows::number(newest.raised(JUMP)?.0);
        self.reader.db.run(raise, [newest])?;
        Ok(())
    }

    /// Takes leases off the record that another program ended by writing the lock tables.
    pub(crate) fn settle_overruled(&mut self) -> Result<(), TransactionError> {
        for key in self.reader.shared_keys()? {
            self.leases(&key)?;
        }
        Ok(())
    }
}
