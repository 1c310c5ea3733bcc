//! Reading inside a transaction: [`ReadTransaction`].

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use rusqlite::{Connection, ToSql};
use tenure_core::engine::{
    self, LeaseQuery, Look, TicketFilter, TicketQuery, TicketRange, TicketSummary,
};
use tenure_core::queue::Rank;
use tenure_core::{
    Claim, Doubt, Epoch, Evidence, Holder, HolderId, Key, Lease, Liveness, Mode, Moment, Snapshot,
    Token, Verdict, Waiter,
};
use tenure_host::LocalPresence;

use crate::lock_tables::{self, LockTable, LockTables};
use crate::query::Query as _;
use crate::reserved;
use crate::rows::{self, LeaseRow, select_lease, select_ticket};

/// One ticket.
const TICKET: &str = select_ticket!("WHERE ticket = ?2 AND key = ?1");

/// A transaction that reads.
#[derive(Debug, Clone, Copy)]
pub struct ReadTransaction<'a> {
    pub(crate) db: &'a Connection,
    pub(crate) presence: &'a LocalPresence,
    pub(crate) now: &'a Moment,
    pub(crate) grace: Duration,
    /// Where the lock tables are.
    pub(crate) tables: &'a dyn LockTables,
    pub(crate) damage: &'a Damage,
}

/// What could not be understood of the rows that a transaction has read, by key.
pub(crate) type Damage = RefCell<BTreeMap<Key, BTreeSet<String>>>;

/// The leases of one key, as the store's own table and the lock tables say together.
pub(crate) struct KeyLeases {
    pub(crate) leases: Vec<(Lease, Liveness)>,
    /// A lease of ours that another program ended by writing the lock tables.
    pub(crate) overruled: Option<(Lease, Evidence)>,
}

/// Selects the tickets for a key in one direction, with the rank that they begin at as two values.
fn along(range: TicketRange, select: &str, and: &str) -> (String, i64, i64) {
    let (rank, compared, order) = match range {
        TicketRange::After(rank) => (rank, '>', "rank, ticket"),
        TicketRange::Before(rank) => (rank, '<', "rank DESC, ticket DESC"),
    };
    let (rank, ticket) = rows::rank(rank);
    let select = format!(
        "{select}WHERE key = ?1 AND (rank, ticket) {compared} (?2, ?3) {and} ORDER BY {order}"
    );
    (select, rank, ticket)
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
        query: LeaseQuery<'_>,
    ) -> rusqlite::Result<Vec<(Lease, Liveness)>> {
        if LockTable::of(key).is_some() {
            return Ok(query.select(self.leases(key)?));
        }
        let found = match query {
            LeaseQuery::Token(token) => self.lease_with(key, token.0)?.into_iter().collect(),
            LeaseQuery::Near(places) if key.is_paths() => {
                match self.leases_with(key, reserved::near(self.db, places)?)? {
                    Some(found) => found,
                    None => return Ok(query.select(self.leases(key)?)),
                }
            }
            LeaseQuery::Near(_) => return Ok(query.select(self.leases(key)?)),
            LeaseQuery::Of(holder) if *holder == HolderId::unreadable() => {
                return Ok(query.select(self.leases(key)?));
            }
            LeaseQuery::Of(holder) if key.is_paths() => {
                match self.leases_with(key, reserved::of(self.db, holder)?)? {
                    Some(found) => found,
                    None => return Ok(query.select(self.leases(key)?)),
                }
            }
            LeaseQuery::Of(holder) => self.select_leases(
                key,
                select_lease!("WHERE key = ?1 AND holder = ?2 ORDER BY token"),
                &[&key.as_str(), &holder.as_str()],
            )?,
            LeaseQuery::First(limit) => self.leases_from(key, i64::MIN, limit)?,
            LeaseQuery::Expiring(limit, Some(claim)) => self.select_leases(
                key,
                // In no mode is one whose slot can't be understood.
                select_lease!(
                    "WHERE key = ?1 AND (mode <> ?2 OR holder = ?3 OR typeof(slot) NOT IN ('integer', 'null')
                         OR slot NOT BETWEEN 0 AND 4294967295 OR token IN
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
            LeaseQuery::Expiring(limit, None) => self.select_leases(
                key,
                select_lease!(
                    "WHERE key = ?1 AND token IN
                         (SELECT token FROM leases WHERE key = ?1
                          ORDER BY expires_at IS NULL, expires_at, token LIMIT ?2)
                     ORDER BY token"
                ),
                &[&key.as_str(), &rows::limit(limit)],
            )?,
        };
        Ok(found.into_iter().map(|row| self.judge_row(row)).collect())
    }

    fn slots(&mut self, key: &Key) -> rusqlite::Result<Vec<(Token, Option<u32>)>> {
        self.db
            .prepare_cached("SELECT token, slot FROM leases WHERE key = ?1 ORDER BY token")?
            .query_map([key.as_str()], |row| {
                let token = rows::unsigned(row, 0).map_or(Token::NONE, Token);
                Ok((token, row.get(1).unwrap_or_default()))
            })?
            .collect()
    }

    fn summaries(&mut self, key: &Key) -> rusqlite::Result<Vec<TicketSummary>> {
        let select = "SELECT arrived, priority, ticket, holder, named, mode, parked FROM tickets WHERE key = ?1
              ORDER BY rank, ticket";
        let found = self
            .db
            .all(select, [key.as_str()], |row| Ok(rows::summary(row)))?;
        Ok(found.into_iter().flatten().collect())
    }

    fn tickets(&mut self, key: &Key) -> rusqlite::Result<Vec<Waiter>> {
        let all = select_ticket!("WHERE key = ?1");
        self.select_tickets(key, all, &[&key.as_str()], usize::MAX)
    }

    fn some_tickets(&mut self, key: &Key, query: TicketQuery<'_>) -> rusqlite::Result<Vec<Waiter>> {
        let name = key.as_str();
        let few = |select: &str, values: &[&dyn ToSql]| {
            self.select_tickets(key, select, values, usize::MAX)
        };
        let found = match query.filter {
            TicketFilter::All => {
                let (select, order, ticket) = along(query.range, select_ticket!(""), "");
                let values: [&dyn ToSql; 3] = [&name, &order, &ticket];
                return self.select_tickets(key, &select, &values, query.limit);
            }
            TicketFilter::Of(holder) => few(
                select_ticket!("WHERE holder = ?2 AND key = ?1"),
                &[&name, &holder.as_str()],
            )?,
            TicketFilter::Ticket(ticket) => few(TICKET, &[&name, &rows::number(ticket.0)])?,
            TicketFilter::Newest => few(
                select_ticket!("WHERE ticket = (SELECT max(ticket) FROM tickets WHERE key = ?1)"),
                &[&name],
            )?,
            TicketFilter::Against(mode) => {
                // Equal modes either admit each other, or are those of exclusive holders.
                let equal = Some(mode).filter(|mode| mode.admits(mode));
                self.tickets_for(key, query, equal, |waits| {
                    waits.parse().is_ok_and(|waits: Mode| !waits.admits(mode))
                })?
            }
            // Only the exclusive mode contradicts no other one; paths do not contradict each other.
            TicketFilter::Contradicting(mode) => {
                self.tickets_for(key, query, Some(mode), |waits| {
                    !(mode.paths().is_some() && waits.contains("paths:"))
                        && waits
                            .parse()
                            .is_ok_and(|waits: Mode| waits.contradicts(mode))
                })?
            }
        };
        Ok(query.select(found))
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
        let mut problems = Vec::new();
        if let Some((table, id)) = LockTable::of(key)
            && let Some(row) = table.read(self.tables, self.db, id)?
        {
            problems = row.problems(table.kind(), key);
        }
        // The leases and tickets of the key have been read by now.
        problems.extend(self.damage.borrow_mut().remove(key).unwrap_or_default());
        Ok(problems)
    }

    fn heard(&mut self, waiter: &Waiter) -> Duration {
        self.presence.heard(waiter, self.now)
    }

    fn grace(&self) -> Duration {
        self.grace
    }
}

impl ReadTransaction<'_> {
    /// The lease of a task's section, if it keeps this claim out: another runner works in the section.
    pub(crate) fn obstacles(&self, claim: &Claim) -> rusqlite::Result<Vec<(Lease, Liveness)>> {
        let Some(section) = self.tables.section_of(self.db, &claim.key)? else {
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

    fn select_leases(
        &self,
        key: &Key,
        select: &str,
        values: &[&dyn ToSql],
    ) -> rusqlite::Result<Vec<LeaseRow>> {
        let mut statement = self.db.prepare_cached(select)?;
        let mut found = statement.query(values)?;
        let mut leases = Vec::new();
        while let Some(row) = found.next()? {
            leases.extend(self.noted(key, rows::lease(row)));
        }
        Ok(leases)
    }

    /// Notes what can't be understood of a lease, and returns the lease unless that is its key.
    fn noted(&self, key: &Key, row: Result<LeaseRow, String>) -> Option<LeaseRow> {
        match row {
            Ok(row) => {
                if let Some(problem) = &row.problem {
                    self.note(key, problem.clone());
                }
                Some(row)
            }
            Err(problem) => {
                self.note(key, problem);
                None
            }
        }
    }

    fn note(&self, key: &Key, problem: String) {
        let mut damage = self.damage.borrow_mut();
        damage.entry(key.clone()).or_default().insert(problem);
    }

    /// At most this many of the tickets that can be understood.
    fn select_tickets(
        &self,
        key: &Key,
        select: &str,
        values: &[&dyn ToSql],
        limit: usize,
    ) -> rusqlite::Result<Vec<Waiter>> {
        let mut statement = self.db.prepare_cached(select)?;
        let mut found = statement.query(values)?;
        let mut tickets = Vec::new();
        while tickets.len() < limit
            && let Some(row) = found.next()?
        {
            match rows::waiter(row) {
                Ok(waiter) => tickets.push(waiter),
                Err(problem) => self.note(key, problem),
            }
        }
        Ok(tickets)
    }

    /// The lease of a key with this token, if there is one.
    fn lease_with(&self, key: &Key, token: u64) -> rusqlite::Result<Option<LeaseRow>> {
        let mut found = self.leases_from(key, rows::number(token), 1)?;
        found.retain(|row| row.lease.token.0 == token);
        Ok(found.pop())
    }

    /// The leases of a key with these tokens; `None` if there is no such lease: its token may be damaged.
    fn leases_with(&self, key: &Key, tokens: Vec<i64>) -> rusqlite::Result<Option<Vec<LeaseRow>>> {
        let token = |token| u64::try_from(token).unwrap_or_default();
        let tokens = tokens.into_iter().map(token);
        tokens.map(|token| self.lease_with(key, token)).collect()
    }

    /// At most this many leases of a key, from this token on. One statement for most reads: a process that acquires and
    /// releases one key spends more on the preparation of a statement than on what it reads.
    fn leases_from(&self, key: &Key, token: i64, limit: usize) -> rusqlite::Result<Vec<LeaseRow>> {
        self.select_leases(
            key,
            select_lease!("WHERE key = ?1 AND token >= ?2 ORDER BY token LIMIT ?3"),
            &[&key.as_str(), &token, &rows::limit(limit)],
        )
    }

    /// The tickets of a query that are for a mode which counts, and not for one that is left out. Only the modes of the others
    /// are read.
    fn tickets_for(
        &self,
        key: &Key,
        query: TicketQuery<'_>,
        left_out: Option<&Mode>,
        counts: impl Fn(&str) -> bool,
    ) -> rusqlite::Result<Vec<Waiter>> {
        let select = "SELECT ticket, mode FROM tickets ";
        let (select, order, ticket) = along(query.range, select, "AND mode <> ?4");
        let left_out = left_out.map_or_else(String::new, ToString::to_string);
        let mut modes = self.db.prepare_cached(&select)?;
        let mut found = modes.query((key.as_str(), order, ticket, left_out))?;
        let mut tickets = Vec::new();
        while tickets.len() < query.limit
            && let Some(row) = found.next()?
        {
            if counts(&rows::text(row, 1)?) {
                let ticket: i64 = row.get(0)?;
                let values: [&dyn ToSql; 2] = [&key.as_str(), &ticket];
                tickets.extend(self.select_tickets(key, TICKET, &values, 1)?);
            }
        }
        Ok(tickets)
    }

    /// The leases of one key, and what is known of their holders.
    pub(crate) fn key(&self, key: &Key) -> rusqlite::Result<KeyLeases> {
        let ours = self.leases_from(key, i64::MIN, usize::MAX)?;
        let Some((table, id)) = LockTable::of(key) else {
            return Ok(KeyLeases {
                leases: ours.into_iter().map(|row| self.judge_row(row)).collect(),
                overruled: None,
            });
        };
        let lock_tables::CombinedLock { lease, overruled } =
            lock_tables::merge(key, ours, table.read(self.tables, self.db, id)?);
        let overruled = overruled.map(|(ours, outside)| {
            let (ours, verdict) = self.verdict(self.judge(ours, None));
            let evidence = self.tables.evidence(outside, &verdict, lease.is_none());
            (ours, evidence)
        });
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
        let one = "SELECT 1 FROM leases WHERE key = ?1 AND token = ?2";
        for token in tokens {
            if !self.db.any(one, (key.as_str(), rows::number(token.0)))? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// A lease whose row can't be understood is held until the end on record, or until a person ends it.
    fn judge_row(&self, LeaseRow { lease, problem }: LeaseRow) -> (Lease, Liveness) {
        let malformed = problem.filter(|_| !lease.has_expired(self.now));
        let malformed = malformed.map(|_| Liveness::Unverifiable(Doubt::Malformed));
        self.judge(lease, malformed)
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
        let keys = self.db.all(select, [], |row| Ok(rows::key(row, 0)))?;
        Ok(keys.into_iter().flatten().collect())
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

    /// The names that begin with one of these texts.
    pub(crate) fn names(&self, beginnings: &[&str]) -> rusqlite::Result<BTreeSet<Key>> {
        let mut names = BTreeSet::new();
        let ours = "SELECT key FROM leases WHERE key >= ?1 AND key < ?1 || char(1114111)
             UNION SELECT key FROM tickets WHERE key >= ?1 AND key < ?1 || char(1114111)";
        for beginning in beginnings {
            let keys = self
                .db
                .all(ours, [beginning], |row| Ok(rows::key(row, 0)))?;
            names.extend(keys.into_iter().flatten());
        }
        for table in [LockTable::Task, LockTable::Section] {
            let theirs = table.all(self.tables, self.db)?.into_iter();
            let begins =
                |(key, _): &(Key, _)| beginnings.iter().any(|it| key.as_str().starts_with(it));
            names.extend(theirs.filter(begins).map(|(key, _)| key));
        }
        Ok(names)
    }

    /// Every key that has a lease or a ticket.
    pub(crate) fn all(&self) -> rusqlite::Result<Vec<Snapshot>> {
        let mut whole = WholeStore {
            reader: *self,
            leases: BTreeMap::new(),
            tickets: BTreeMap::new(),
            problems: BTreeMap::new(),
        };
        let mut ours: BTreeMap<Key, Vec<LeaseRow>> = BTreeMap::new();
        let mut statement = self
            .db
            .prepare_cached(select_lease!("ORDER BY key, token"))?;
        let mut found = statement.query([])?;
        while let Some(row) = found.next()? {
            let key = rows::key_or_row(row, 0, "leases", 14)?;
            if let Some(row) = self.noted(&key, rows::lease(row)) {
                ours.entry(key).or_default().push(row);
            }
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
        let mut found = statement.query([])?;
        while let Some(row) = found.next()? {
            let key = rows::key_or_row(row, 1, "tickets", 0)?;
            match rows::waiter(row) {
                Ok(waiter) => whole.tickets.entry(key).or_default().push(waiter),
                Err(problem) => self.note(&key, problem),
            }
        }
        for (key, problems) in self.damage.take() {
            whole.problems.entry(key).or_default().extend(problems);
        }
        let held = ours.keys().chain(theirs.keys());
        let damaged = whole.problems.keys();
        let keys: BTreeSet<Key> = held
            .chain(whole.tickets.keys())
            .chain(damaged)
            .cloned()
            .collect();
        for key in &keys {
            let ours = ours.remove(key).unwrap_or_default();
            let leases: Vec<_> = match LockTable::of(key) {
                Some(_) => lock_tables::merge(key, ours, theirs.remove(key))
                    .lease
                    .map(|(lease, known)| self.judge(lease, known))
                    .into_iter()
                    .collect(),
                None => ours.into_iter().map(|row| self.judge_row(row)).collect(),
            };
            whole.leases.insert(key.clone(), leases);
        }
        let mut snapshots = Vec::new();
        for key in keys {
            let snapshot = engine::inspect(&mut whole, &key)?;
            if snapshot.is_on_record() || !snapshot.problems.is_empty() {
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
