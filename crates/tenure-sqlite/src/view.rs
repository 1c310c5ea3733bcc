//! Reading inside a transaction: [`ReadTransaction`].

use std::collections::BTreeMap;
use std::time::Duration;

use rusqlite::{Connection, ToSql};
use tenure_core::engine::{self, LeasePart, Look, Part, Waiting};
use tenure_core::queue::Rank;
use tenure_core::{
    Claim, Epoch, Evidence, Holder, Key, Lease, Liveness, Mode, Moment, Snapshot, Token, Verdict,
    Waiter,
};
use tenure_host::LocalPresence;

use crate::foreign;
use crate::lock_tables::{self, LockTable, LockTables};
use crate::reserved;
use crate::rows::{self, select_lease, select_ticket};

/// A transaction that reads.
#[derive(Debug, Clone, Copy)]
pub struct ReadTransaction<'a> {
    pub(crate) db: &'a Connection,
    pub(crate) presence: &'a LocalPresence,
    pub(crate) now: &'a Moment,
    pub(crate) grace: Duration,
    /// Where the lock tables are.
    pub(crate) tables: LockTables,
}

/// The leases of one key, as the store's own table and the lock tables say together.
pub(crate) struct KeyLeases {
    pub(crate) leases: Vec<(Lease, Liveness)>,
    /// A lease of ours that another program ended by writing the lock tables.
    pub(crate) overruled: Option<(Lease, Evidence)>,
}

impl Look for ReadTransaction<'_> {
    type Error = rusqlite::Error;

    fn now(&self) -> &Moment {
        self.now
    }

    fn leases(&mut self, key: &Key) -> rusqlite::Result<Vec<(Lease, Liveness)>> {
        Ok(self.key(key)?.leases)
    }

    fn some_leases(
        &mut self,
        key: &Key,
        part: LeasePart<'_>,
    ) -> rusqlite::Result<Vec<(Lease, Liveness)>> {
        if LockTable::of(key).is_some() {
            return Ok(part.of(self.leases(key)?));
        }
        let found = match part {
            LeasePart::Token(token) => self.leases_with(key, [rows::number(token.0)])?,
            LeasePart::Near(places) if key.is_paths() => {
                self.leases_with(key, reserved::near(self.db, places)?)?
            }
            LeasePart::Near(_) => return Ok(part.of(self.leases(key)?)),
            LeasePart::Of(holder) if key.is_paths() => {
                self.leases_with(key, reserved::of(self.db, holder)?)?
            }
            LeasePart::Of(holder) => self.select_leases(
                select_lease!("WHERE key = ?1 AND holder = ?2 ORDER BY token"),
                &[&key.as_str(), &holder.as_str()],
            )?,
            LeasePart::First(limit) => self.leases_from(key, i64::MIN, limit)?,
            LeasePart::Beside(claim, limit) => self.select_leases(
                select_lease!(
                    "WHERE key = ?1 AND (mode <> ?2 OR holder = ?3 OR token IN
                         (SELECT token FROM leases WHERE key = ?1
                          ORDER BY expires_at IS NULL, expires_at, token LIMIT ?4))
                     ORDER BY token"
                ),
                &[
                    &key.as_str(),
                    &claim.mode.to_string(),
                    &claim.holder.id.as_str(),
                    &rows::limit(limit),
                ],
            )?,
            LeasePart::FirstToExpire(limit) => self.select_leases(
                select_lease!(
                    "WHERE key = ?1 AND token IN
                         (SELECT token FROM leases WHERE key = ?1
                          ORDER BY expires_at IS NULL, expires_at, token LIMIT ?2)
                     ORDER BY token"
                ),
                &[&key.as_str(), &rows::limit(limit)],
            )?,
        };
        let judge = |lease| self.judge(lease, None);
        Ok(found.into_iter().map(judge).collect())
    }

    fn slots(&mut self, key: &Key) -> rusqlite::Result<Vec<(Token, Option<u32>)>> {
        self.db
            .prepare_cached("SELECT token, slot FROM leases WHERE key = ?1 ORDER BY token")?
            .query_map([key.as_str()], |row| {
                Ok((Token(rows::unsigned(row, 0)?), row.get(1)?))
            })?
            .collect()
    }

    fn waiting(&mut self, key: &Key) -> rusqlite::Result<Vec<Waiting>> {
        self.db
            .prepare_cached(
                "SELECT ticket, holder, named, mode, parked FROM tickets WHERE key = ?1 ORDER BY rank, ticket",
            )?
            .query_map([key.as_str()], rows::waiting)?
            .collect()
    }

    fn tickets(&mut self, key: &Key) -> rusqlite::Result<Vec<Waiter>> {
        self.db
            .prepare_cached(select_ticket!("WHERE key = ?1"))?
            .query_map([key.as_str()], rows::waiter)?
            .collect()
    }

    fn some_tickets(&mut self, key: &Key, part: Part<'_>) -> rusqlite::Result<Vec<Waiter>> {
        let key = key.as_str();
        let tickets = |select: &str, values: &[&dyn ToSql]| -> rusqlite::Result<Vec<Waiter>> {
            self.db
                .prepare_cached(select)?
                .query_map(values, rows::waiter)?
                .collect()
        };
        match part {
            Part::First(limit) => tickets(
                select_ticket!("WHERE key = ?1 ORDER BY rank, ticket LIMIT ?2"),
                &[&key, &rows::limit(limit)],
            ),
            Part::Before(rank, limit) => {
                let (order, ticket) = rows::rank(rank);
                tickets(
                    select_ticket!(
                        "WHERE key = ?1 AND (rank, ticket) < (?2, ?3)
                         ORDER BY rank DESC, ticket DESC LIMIT ?4"
                    ),
                    &[&key, &order, &ticket, &rows::limit(limit)],
                )
            }
            Part::After(rank, limit) => {
                let (order, ticket) = rows::rank(rank);
                tickets(
                    select_ticket!(
                        "WHERE key = ?1 AND (rank, ticket) > (?2, ?3)
                         ORDER BY rank, ticket LIMIT ?4"
                    ),
                    &[&key, &order, &ticket, &rows::limit(limit)],
                )
            }
            Part::Of(holder) => tickets(
                select_ticket!("WHERE holder = ?2 AND key = ?1"),
                &[&key, &holder.as_str()],
            ),
            Part::Ticket(ticket) => tickets(
                select_ticket!("WHERE ticket = ?2 AND key = ?1"),
                &[&key, &rows::number(ticket.0)],
            ),
            Part::Newest => tickets(
                select_ticket!("WHERE ticket = (SELECT max(ticket) FROM tickets WHERE key = ?1)"),
                &[&key],
            ),
            Part::FirstAgainst(mode @ Mode::Paths(_), limit) => {
                let against = self.against(key, mode, None, limit)?;
                self.tickets_with(key, &against)
            }
            Part::AgainstBefore(mode @ Mode::Paths(_), rank, limit) => {
                let mut against = self.against(key, mode, Some(rank), usize::MAX)?;
                against.drain(..against.len().saturating_sub(limit));
                self.tickets_with(key, &against)
            }
            Part::FirstAgainst(mode, limit) => tickets(
                select_ticket!("WHERE key = ?1 AND mode <> ?2 ORDER BY rank, ticket LIMIT ?3"),
                &[&key, &mode.to_string(), &rows::limit(limit)],
            ),
            Part::AgainstBefore(mode, rank, limit) => {
                let (order, ticket) = rows::rank(rank);
                tickets(
                    select_ticket!(
                        "WHERE key = ?1 AND (rank, ticket) < (?2, ?3) AND mode <> ?4
                         ORDER BY rank DESC, ticket DESC LIMIT ?5"
                    ),
                    &[
                        &key,
                        &order,
                        &ticket,
                        &mode.to_string(),
                        &rows::limit(limit),
                    ],
                )
            }
            // Only the exclusive mode contradicts no other one; paths do not contradict each other.
            Part::Contradicting(mode) => {
                let mut tickets: Vec<Waiter> = tickets(
                    select_ticket!(
                        "WHERE key = ?1 AND mode NOT IN ('exclusive', ?2)
                         AND NOT (?3 AND (mode LIKE 'paths:%' OR mode LIKE 'shared-paths:%'))"
                    ),
                    &[&key, &mode.to_string(), &mode.paths().is_some()],
                )?;
                tickets.retain(|waiter| waiter.mode.contradicts(mode));
                Ok(tickets)
            }
        }
    }

    fn count_waiters(&mut self, key: &Key, rank: Rank) -> rusqlite::Result<(usize, usize)> {
        let (order, ticket) = rows::rank(rank);
        let count = "SELECT count(*) FILTER (WHERE (rank, ticket) < (?2, ?3)), count(*)
            FROM tickets WHERE key = ?1 AND NOT parked";
        self.db
            .prepare_cached(count)?
            .query_row((key.as_str(), order, ticket), |row| {
                let number = |column| row.get(column).map(|number: u32| number as usize);
                Ok((number(0)?, number(1)?))
            })
    }

    fn probe(&mut self, waiter: &Holder) -> Liveness {
        self.presence.probe(waiter)
    }

    fn problems(&mut self, key: &Key) -> rusqlite::Result<Vec<String>> {
        let Some((table, id)) = LockTable::of(key) else {
            return Ok(Vec::new());
        };
        let row = table.read(self.tables, self.db, id)?;
        Ok(row.map_or_else(Vec::new, |row| row.problems(table.kind(), key)))
    }

    fn heard(&mut self, waiter: &Waiter) -> Duration {
        self.presence.heard(waiter, self.now)
    }

    fn grace(&self) -> Duration {
        self.grace
    }
}

impl ReadTransaction<'_> {
    /// The lease of a task's section in another program's database, if it keeps this claim out: another
    /// runner works in the section.
    pub(crate) fn obstacles(&self, claim: &Claim) -> rusqlite::Result<Vec<(Lease, Liveness)>> {
        let Some(section) = self.section_of(&claim.key)? else {
            return Ok(Vec::new());
        };
        let in_the_way = |(lease, liveness): &(Lease, Liveness)| {
            lease.holder.id != claim.holder.id
                && !claim.within.contains(&lease.token)
                && Verdict::on(self.now, lease, liveness).ended().is_none()
        };
        let leases = self.key(&section)?.leases;
        Ok(leases.into_iter().filter(in_the_way).collect())
    }

    /// The key of the section that a task is in, in another program's database.
    pub(crate) fn section_of(&self, key: &Key) -> rusqlite::Result<Option<Key>> {
        match self.tables {
            LockTables::Own | LockTables::OwnIfAny => Ok(None),
            LockTables::Attached => foreign::section_of(self.db, key),
        }
    }

    fn select_leases(&self, select: &str, values: &[&dyn ToSql]) -> rusqlite::Result<Vec<Lease>> {
        self.db
            .prepare_cached(select)?
            .query_map(values, rows::lease)?
            .collect()
    }

    /// The leases of a key with these tokens, as far as there are such.
    fn leases_with(
        &self,
        key: &Key,
        tokens: impl IntoIterator<Item = i64>,
    ) -> rusqlite::Result<Vec<Lease>> {
        let mut leases = Vec::new();
        for token in tokens {
            let mut found = self.leases_from(key, token, 1)?;
            found.retain(|lease| rows::number(lease.token.0) == token);
            leases.append(&mut found);
        }
        Ok(leases)
    }

    /// At most this many leases of a key, from this token on. One statement for most reads: a process that acquires and
    /// releases one key spends more on the preparation of a statement than on what it reads.
    fn leases_from(&self, key: &Key, token: i64, limit: usize) -> rusqlite::Result<Vec<Lease>> {
        self.select_leases(
            select_lease!("WHERE key = ?1 AND token >= ?2 ORDER BY token LIMIT ?3"),
            &[&key.as_str(), &token, &rows::limit(limit)],
        )
    }

    /// The first tickets for a key that conflict with these paths and rank before this one, in order. Only modes are read.
    fn against(
        &self,
        key: &str,
        mode: &Mode,
        before: Option<Rank>,
        limit: usize,
    ) -> rusqlite::Result<Vec<i64>> {
        let (order, ticket) = before.map_or((i64::MAX, i64::MAX), rows::rank);
        let mut modes = self.db.prepare_cached(
            "SELECT ticket, mode FROM tickets WHERE key = ?1 AND (rank, ticket) < (?2, ?3) ORDER BY rank, ticket",
        )?;
        let mut found = modes.query((key, order, ticket))?;
        let mut against = Vec::new();
        while let Some(row) = found.next()?.filter(|_| against.len() < limit) {
            if !rows::parsed::<Mode>(row, 1)?.admits(mode) {
                against.push(row.get(0)?);
            }
        }
        Ok(against)
    }

    fn tickets_with(&self, key: &str, tickets: &[i64]) -> rusqlite::Result<Vec<Waiter>> {
        let mut one = self
            .db
            .prepare_cached(select_ticket!("WHERE ticket = ?2 AND key = ?1"))?;
        let read = |ticket: &i64| one.query_row((key, ticket), rows::waiter);
        tickets.iter().map(read).collect()
    }

    /// The leases of one key, and what is known of their holders.
    pub(crate) fn key(&self, key: &Key) -> rusqlite::Result<KeyLeases> {
        let mut ours = self.leases_from(key, i64::MIN, usize::MAX)?;
        let Some((table, id)) = LockTable::of(key) else {
            let judged = ours.into_iter().map(|lease| self.judge(lease, None));
            return Ok(KeyLeases {
                leases: judged.collect(),
                overruled: None,
            });
        };
        let lock_tables::CombinedLock { lease, overruled } =
            lock_tables::merge(key, ours.pop(), table.read(self.tables, self.db, id)?);
        let overruled = match self.tables {
            LockTables::Own | LockTables::OwnIfAny => overruled,
            LockTables::Attached => overruled.map(|ours| self.how_it_ended(ours, lease.is_none())),
        };
        Ok(KeyLeases {
            leases: lease
                .map(|(lease, known)| self.judge(lease, known))
                .into_iter()
                .collect(),
            overruled,
        })
    }

    /// Whether leases with all of these tokens are on record. Unlike [`Self::key`], it probes no holder.
    pub(crate) fn has_all(&self, key: &Key, tokens: &[Token]) -> rusqlite::Result<bool> {
        if LockTable::of(key).is_some() {
            let leases = self.key(key)?.leases;
            let has = |token: &Token| leases.iter().any(|(lease, _)| lease.token == *token);
            return Ok(tokens.iter().all(has));
        }
        let mut one = self
            .db
            .prepare_cached("SELECT 1 FROM leases WHERE key = ?1 AND token = ?2")?;
        for token in tokens {
            if !one.exists((key.as_str(), rows::number(token.0)))? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Beside another program it is nothing unusual that a lease which has ended was removed or taken
    /// over there, or that a process was killed before its row was written: if the lease has ended by
    /// itself, that is the evidence.
    fn how_it_ended(&self, (lease, outside): (Lease, Evidence), gone: bool) -> (Lease, Evidence) {
        let (lease, verdict) = self.verdict(self.judge(lease, None));
        let evidence = match (verdict.ended(), outside) {
            (Some(evidence), _) => evidence.clone(),
            (None, Evidence::Forced { by, .. }) if gone => Evidence::Forced {
                by,
                reason: Some(
                    "its row is not in the lock table: removed outside tenure, or never written by a process that was killed".into(),
                ),
            },
            (None, outside) => outside,
        };
        (lease, evidence)
    }

    fn judge(&self, lease: Lease, known: Option<Liveness>) -> (Lease, Liveness) {
        let liveness = known.unwrap_or_else(|| self.presence.probe_lease(&lease));
        (lease, liveness)
    }

    /// The verdict on a lease.
    pub(crate) fn verdict(&self, (lease, liveness): (Lease, Liveness)) -> (Lease, Verdict) {
        let verdict = Verdict::on(self.now, &lease, &liveness);
        (lease, verdict)
    }

    /// The queue of one key, in order.
    pub(crate) fn queue(mut self, key: &Key) -> rusqlite::Result<Vec<Waiter>> {
        engine::queue(&mut self, key, None)
    }

    /// The token counter, and the epoch in which it was last raised.
    pub(crate) fn tokens(&self) -> rusqlite::Result<(Token, Epoch)> {
        self.db
            .prepare_cached("SELECT newest, boot FROM tokens WHERE id = 1")?
            .query_row([], |row| {
                let newest = Token(rows::unsigned(row, 0)?);
                Ok((newest, Epoch(row.get(1)?)))
            })
    }

    /// The keys of our leases that have a row in a lock table.
    pub(crate) fn shared_keys(&self) -> rusqlite::Result<Vec<Key>> {
        let select = "SELECT key FROM leases WHERE key LIKE 'task:%' OR key LIKE 'section:%'";
        let mut statement = self.db.prepare_cached(select)?;
        let keys = statement
            .query_map([], |row| row.get::<_, String>(0))?
            .collect::<Result<Vec<_>, _>>()?;
        Ok(keys
            .into_iter()
            .filter_map(|key| Key::parse(key).ok())
            .collect())
    }

    /// Whether another program ended a lease of ours, and that is not on record yet.
    pub(crate) fn any_overruled(&self) -> rusqlite::Result<bool> {
        for key in self.shared_keys()? {
            if self.key(&key)?.overruled.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Every key that has a lease or a ticket.
    pub(crate) fn all(&self) -> rusqlite::Result<Vec<Snapshot>> {
        let mut whole = WholeStore {
            reader: *self,
            leases: BTreeMap::new(),
            tickets: BTreeMap::new(),
            problems: BTreeMap::new(),
        };
        let mut ours: BTreeMap<Key, Vec<Lease>> = BTreeMap::new();
        let mut statement = self
            .db
            .prepare_cached(select_lease!("ORDER BY key, token"))?;
        for lease in statement.query_map([], rows::lease)? {
            let lease = lease?;
            ours.entry(lease.key.clone()).or_default().push(lease);
        }
        let mut theirs = BTreeMap::new();
        for table in [LockTable::Task, LockTable::Section] {
            for (key, row) in table.all(self.tables, self.db)? {
                let problems = row.problems(table.kind(), &key);
                whole.problems.insert(key.clone(), problems);
                theirs.insert(key, row);
            }
        }
        let mut statement = self.db.prepare_cached(select_ticket!(""))?;
        for row in
            statement.query_map([], |row| Ok((row.get::<_, String>(1)?, rows::waiter(row)?)))?
        {
            let (key, waiter) = row?;
            if let Ok(key) = Key::parse(key) {
                whole.tickets.entry(key).or_default().push(waiter);
            }
        }
        let held = ours.keys().chain(theirs.keys());
        let mut keys: Vec<Key> = held.chain(whole.tickets.keys()).cloned().collect();
        keys.sort();
        keys.dedup();
        for key in &keys {
            let mut ours = ours.remove(key).unwrap_or_default();
            let leases: Vec<_> = match LockTable::of(key) {
                Some(_) => lock_tables::merge(key, ours.pop(), theirs.remove(key))
                    .lease
                    .map(|(lease, known)| self.judge(lease, known))
                    .into_iter()
                    .collect(),
                None => ours
                    .into_iter()
                    .map(|lease| self.judge(lease, None))
                    .collect(),
            };
            whole.leases.insert(key.clone(), leases);
        }
        let mut snapshots = Vec::new();
        for key in keys {
            let snapshot = engine::inspect(&mut whole, &key)?;
            if snapshot.is_on_record() {
                snapshots.push(snapshot);
            }
        }
        Ok(snapshots)
    }
}

/// Every key at once, read with one query for each table.
struct WholeStore<'a> {
    reader: ReadTransaction<'a>,
    leases: BTreeMap<Key, Vec<(Lease, Liveness)>>,
    tickets: BTreeMap<Key, Vec<Waiter>>,
    problems: BTreeMap<Key, Vec<String>>,
}

impl Look for WholeStore<'_> {
    type Error = rusqlite::Error;

    fn now(&self) -> &Moment {
        self.reader.now
    }

    fn leases(&mut self, key: &Key) -> rusqlite::Result<Vec<(Lease, Liveness)>> {
        Ok(self.leases.remove(key).unwrap_or_default())
    }

    fn tickets(&mut self, key: &Key) -> rusqlite::Result<Vec<Waiter>> {
        Ok(self.tickets.remove(key).unwrap_or_default())
    }

    fn probe(&mut self, waiter: &Holder) -> Liveness {
        self.reader.presence.probe(waiter)
    }

    fn problems(&mut self, key: &Key) -> rusqlite::Result<Vec<String>> {
        Ok(self.problems.remove(key).unwrap_or_default())
    }

    fn heard(&mut self, waiter: &Waiter) -> Duration {
        self.reader.presence.heard(waiter, self.reader.now)
    }

    fn grace(&self) -> Duration {
        self.reader.grace
    }
}
