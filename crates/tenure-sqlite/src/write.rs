//! A write transaction under way: what the verbs of the store do inside it.

use std::time::Duration;

use rusqlite::params;
use tenure_core::cycle::{self, Held};
use tenure_core::decide::{self, ClaimTicket, View};
use tenure_core::queue::Rank;
use tenure_core::task;
use tenure_core::{
    Busy, Claim, Cycle, Evidence, Holder, HolderId, Key, KeyKind, Lease, LivenessId, Moment, Place,
    Presence, Reaped, Reason, Revision, Snapshot, StoreError, TaskError, Ticket, Token, Waiter,
};

use crate::history::{self, Keep};
use crate::lock_tables;
use crate::rows;
use crate::tasks;
use crate::view::{Read, Reader};

/// More than a power cut can undo: the log is folded and synced every few hundred pages, and each
/// grant takes at least one.
const JUMP: i64 = 1 << 20;

/// How often a waiting process renews its ticket, at most.
const TICKET_HEARTBEAT: Duration = Duration::from_secs(1);

/// Why a transaction was given up.
pub(crate) enum Failure {
    Sql(rusqlite::Error),
    Store(StoreError),
    Task(Box<TaskError>),
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sql(error)
    }
}

impl From<StoreError> for Failure {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<TaskError> for Failure {
    fn from(error: TaskError) -> Self {
        Self::Task(Box::new(error))
    }
}

/// A write transaction under way.
pub(crate) struct Write<'a> {
    pub(crate) reader: Reader<'a>,
    pub(crate) keep: Keep,
    /// Whom to wake once it is committed.
    pub(crate) rings: Vec<LivenessId>,
}

impl Write<'_> {
    pub(crate) fn now(&self) -> &Moment {
        self.reader.now
    }

    /// Reads a key. A lease that somebody ended by writing the seed's tables is taken off the
    /// record, so that its holder learns of it.
    pub(crate) fn read(&mut self, key: &Key, asker: Option<&HolderId>) -> Result<View, Failure> {
        let Read { view, overruled } = self.reader.key(key, asker)?;
        if let Some((lease, proof)) = overruled {
            self.remove_ours(key)?;
            if let KeyKind::Task(id) = key.kind() {
                tasks::superseded(self.reader.db, id, &lease.holder.id)?;
            }
            self.record_end(&lease, &proof)?;
            self.ring_next(&view.queue);
        }
        Ok(view)
    }

    pub(crate) fn record_end(&mut self, lease: &Lease, proof: &Evidence) -> Result<(), Failure> {
        history::ended(self.reader.db, self.now().wall, lease, proof, self.keep)?;
        self.ring(&lease.holder);
        Ok(())
    }

    /// Takes a lease off the record, with the proof of its end.
    pub(crate) fn end(&mut self, lease: &Lease, proof: &Evidence) -> Result<(), Failure> {
        self.remove(&lease.key)?;
        self.record_end(lease, proof)
    }

    pub(crate) fn remove(&mut self, key: &Key) -> Result<(), Failure> {
        self.remove_ours(key)?;
        lock_tables::remove(self.reader.tables, self.reader.db, key)?;
        self.ring_seekers_of(key)
    }

    /// The row in our own table only: the seed's says something else by now.
    fn remove_ours(&self, key: &Key) -> Result<(), Failure> {
        self.reader
            .db
            .prepare_cached("DELETE FROM leases WHERE key = ?1")?
            .execute([key.as_str()])?;
        Ok(())
    }

    pub(crate) fn ring(&mut self, holder: &Holder) {
        if let Some(life) = holder.liveness_lock() {
            self.rings.push(life.clone());
        }
    }

    /// Wakes the first of these that can hear it.
    pub(crate) fn ring_next(&mut self, queue: &[Waiter]) {
        let next = queue.iter().find(|waiter| {
            waiter.presence == Presence::Here && self.reader.is_alive(&waiter.holder)
        });
        if let Some(next) = next {
            self.ring(&next.holder.clone());
        }
    }

    /// Wakes the first of those who look for any task, and those of them who have a section: the
    /// first could not take what is in it.
    pub(crate) fn ring_seekers(&mut self) -> Result<(), Failure> {
        let Ok(any) = task::key_of(task::ANY) else {
            return Ok(());
        };
        let queue = self.reader.queue(&any, None)?;
        if queue.is_empty() {
            return Ok(());
        }
        self.ring_next(&queue);
        let sections =
            "SELECT DISTINCT holder FROM leases WHERE key >= 'section:' AND key < 'section;'";
        let holders = self
            .reader
            .db
            .prepare_cached(sections)?
            .query_map([], |row| row.get::<_, String>(0))?
            .collect::<Result<Vec<_>, _>>()?;
        let has_one = |waiter: &&Waiter| holders.iter().any(|id| id == waiter.holder.id.as_str());
        let lives = queue.iter().filter(has_one);
        self.rings
            .extend(lives.filter_map(|waiter| waiter.holder.liveness_lock().cloned()));
        Ok(())
    }

    /// The same if this key stands between somebody and a task.
    fn ring_seekers_of(&mut self, key: &Key) -> Result<(), Failure> {
        match key.kind() {
            KeyKind::Task(_) | KeyKind::Section(_) => self.ring_seekers(),
            KeyKind::Node(_) | KeyKind::Named(_) => Ok(()),
        }
    }

    pub(crate) fn put(&self, lease: &Lease) -> Result<(), Failure> {
        self.reader
            .db
            .prepare_cached(
                "INSERT OR REPLACE INTO leases (key, token, holder, host, command, binding, acquired_at, expires_at,
                 heartbeat_at, ttl_ms, boot, expires_boot) VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)",
            )?
            .execute(params![
                lease.key.as_str(),
                rows::number(lease.token.0),
                lease.holder.id.as_str(),
                lease.holder.host,
                lease.holder.command,
                rows::json(&lease.holder.binding)?,
                rows::time(lease.acquired_at),
                rows::time(lease.expires.wall),
                rows::time(lease.heartbeat_at),
                rows::millis(lease.ttl),
                lease.expires.epoch.0,
                rows::nanos(lease.expires.ticks),
            ])?;
        lock_tables::write(self.reader.tables, self.reader.db, lease)
    }

    /// Raises the counter by more than a power cut can undo.
    pub(crate) fn raise_tokens(&self) -> Result<(), Failure> {
        let raise = "UPDATE tokens SET newest = newest + ?1 WHERE id = 1";
        self.reader.db.prepare_cached(raise)?.execute([JUMP])?;
        Ok(())
    }

    pub(crate) fn grant(
        &mut self,
        claim: &Claim,
        token: Token,
        reason: Reason,
    ) -> Result<Lease, Failure> {
        let now = self.now().clone();
        let lease = Lease {
            key: claim.key.clone(),
            holder: claim.holder.clone(),
            token,
            acquired_at: now.wall,
            expires: now.deadline(claim.ttl),
            heartbeat_at: now.wall,
            ttl: claim.ttl,
        };
        self.reader
            .db
            .prepare_cached("UPDATE tokens SET newest = ?1, boot = ?2 WHERE id = 1")?
            .execute(params![rows::number(token.0), now.epoch.0])?;
        self.put(&lease)?;
        if let KeyKind::Task(id) = lease.key.kind() {
            tasks::granted(self.reader.db, id, &lease.holder.id, token)?;
        }
        history::granted(self.reader.db, now.wall, &lease, reason, self.keep)?;
        Ok(lease)
    }

    pub(crate) fn extend(
        &mut self,
        lease: &Lease,
        holder: &Holder,
        ttl: Duration,
    ) -> Result<Lease, Failure> {
        let now = self.now().clone();
        let lease = Lease {
            holder: holder.clone(),
            expires: now.deadline(ttl),
            heartbeat_at: now.wall,
            ttl,
            ..lease.clone()
        };
        self.put(&lease)?;
        history::renewed(self.reader.db, now.wall, &lease, self.keep)?;
        Ok(lease)
    }

    pub(crate) fn drop_ticket(&self, claim_ticket: ClaimTicket) -> Result<(), Failure> {
        if let Some(ticket) = claim_ticket.ticket() {
            self.reader
                .db
                .prepare_cached("DELETE FROM tickets WHERE ticket = ?1")?
                .execute([rows::number(ticket.0)])?;
        }
        Ok(())
    }

    /// Makes a waiter one that is away: its turn passes, its place stays.
    pub(crate) fn park_ticket(&self, ticket: Ticket) -> Result<(), Failure> {
        self.reader
            .db
            .prepare_cached("UPDATE tickets SET parked = 1, seen = ?1 WHERE ticket = ?2")?
            .execute(params![
                rows::nanos(self.now().ticks),
                rows::number(ticket.0)
            ])?;
        Ok(())
    }

    /// Does `act` to a ticket that is given up or parked, and wakes whoever stood behind it: it
    /// has to look anew whom to watch, or may be the first now.
    pub(crate) fn withdraw(
        &mut self,
        key: &Key,
        ticket: Ticket,
        act: impl FnOnce(&Self) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let queue = self.reader.queue(key, None)?;
        if let Some(index) = queue.iter().position(|waiter| waiter.ticket == ticket) {
            act(self)?;
            self.ring_next(queue.get(index + 1..).unwrap_or_default());
            self.ring_seekers_of(key)?;
        }
        Ok(())
    }

    /// Takes a place for a claim that has to wait. Whoever stands behind a place that was empty
    /// until now has to look anew whom to watch.
    pub(crate) fn queue_up(
        &mut self,
        claim: &Claim,
        view: &View,
        claim_ticket: ClaimTicket,
        grace: Duration,
    ) -> Result<(Ticket, Rank), Failure> {
        let rank = decide::rank(self.now(), view, claim, claim_ticket);
        let ticket = self.take_ticket(claim, view, claim_ticket, grace)?;
        let was_here =
            |waiter: &Waiter| waiter.ticket == ticket && waiter.presence == Presence::Here;
        if !view.queue.iter().any(was_here) {
            let first_behind = view.queue.partition_point(|waiter| waiter.rank() <= rank);
            self.ring_next(view.queue.get(first_behind..).unwrap_or_default());
        }
        Ok((ticket, rank))
    }

    /// Writes or renews the ticket of a claim that has to wait.
    fn take_ticket(
        &self,
        claim: &Claim,
        view: &View,
        claim_ticket: ClaimTicket,
        grace: Duration,
    ) -> Result<Ticket, Failure> {
        let (db, now) = (self.reader.db, self.now());
        let seen = rows::nanos(now.ticks);
        if let ClaimTicket::Own(ticket) = claim_ticket {
            let mine = view.queue.iter().find(|waiter| waiter.ticket == ticket);
            let due = |mine: &Waiter| {
                mine.presence == Presence::Away
                    || now.ticks.saturating_sub(mine.seen) >= TICKET_HEARTBEAT
            };
            if mine.is_some_and(due) {
                db.prepare_cached("UPDATE tickets SET seen = ?1, parked = 0 WHERE ticket = ?2")?
                    .execute(params![seen, rows::number(ticket.0)])?;
            }
            return Ok(ticket);
        }
        let binding = rows::json(&claim.asker)?;
        let within = rows::tokens(&claim.within);
        if let ClaimTicket::Resumed(ticket) = claim_ticket {
            db.prepare_cached(
                "UPDATE tickets SET host = ?1, command = ?2, binding = ?3, priority = ?4, seen = ?5, within = ?6, parked = 0
                 WHERE ticket = ?7",
            )?
            .execute(params![
                claim.holder.host,
                claim.holder.command,
                binding,
                claim.priority.level(),
                seen,
                within,
                rows::number(ticket.0)
            ])?;
            return Ok(ticket);
        }
        for waiter in view
            .queue
            .iter()
            .filter(|waiter| waiter.forgotten(now, grace))
        {
            self.drop_ticket(ClaimTicket::Own(waiter.ticket))?;
        }
        db.prepare_cached(
            "INSERT INTO tickets (key, holder, host, command, binding, named, priority, boot, arrived, seen, within)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)",
        )?
        .execute(params![
            claim.key.as_str(),
            claim.holder.id.as_str(),
            claim.holder.host,
            claim.holder.command,
            binding,
            claim.named,
            claim.priority.level(),
            now.epoch.0,
            rows::nanos(decide::arrival(now, &view.queue)),
            seen,
            within,
        ])?;
        Ok(Ticket(u64::try_from(db.last_insert_rowid()).unwrap_or(0)))
    }

    /// The cycle that this wait would close. A lease that is over stands in nobody's way.
    pub(crate) fn cycle(&self, claim: &Claim, view: &View) -> Result<Option<Cycle>, Failure> {
        let Some((lease, _)) = &view.lease else {
            return Ok(None);
        };
        if decide::reap(self.now(), view).is_some() {
            return Ok(None);
        }
        let holder = (lease.holder.id.clone(), lease.token);
        let ours =
            |(holder, token): &Held| *holder == claim.holder.id || claim.within.contains(token);
        cycle::find(&claim.holder.id, &claim.key, &holder, ours, |held| {
            self.waits_of(held)
        })
    }

    /// What the holder of a grant waits for, by its name or in a command that runs under the
    /// grant, and who holds that.
    fn waits_of(&self, (holder, token): &Held) -> Result<Vec<(Key, Held)>, Failure> {
        let tickets = self
            .reader
            .db
            .prepare_cached(
                "SELECT key, ticket FROM tickets WHERE holder = ?1 OR instr(within, ?2)",
            )?
            .query_map(params![holder.as_str(), rows::tokens(&[*token])], |row| {
                Ok((row.get::<_, String>(0)?, row.get::<_, i64>(1)?))
            })?
            .collect::<Result<Vec<_>, _>>()?;
        let mut waits = Vec::new();
        for (key, ticket) in tickets {
            let Ok(key) = Key::parse(key) else { continue };
            // One that is gone waits for nothing.
            let waits_here = |waiter: &Waiter| {
                rows::number(waiter.ticket.0) == ticket
                    && waiter.presence == Presence::Here
                    && self.reader.is_alive(&waiter.holder)
            };
            if !self.reader.queue(&key, None)?.iter().any(waits_here) {
                continue;
            }
            if let (Some(lease), _) = self.reader.lease(&key)? {
                let (lease, verdict) = self.reader.verdict(lease);
                if verdict.over().is_none() && lease.holder.id != *holder {
                    waits.push((key, (lease.holder.id, lease.token)));
                }
            }
        }
        Ok(waits)
    }

    /// The answer to a claim that was not granted. Its revision is filled in after the commit.
    pub(crate) fn busy(&self, view: &View, place: Option<Place>, rank: Option<Rank>) -> Busy {
        let own = place.map(|place| place.ticket);
        let here = || {
            view.queue
                .iter()
                .filter(|w| w.presence == Presence::Here && Some(w.ticket) != own)
        };
        let before = |waiter: &&Waiter| rank.is_none_or(|rank| waiter.rank() < rank);
        Busy {
            lease: view.lease.clone().map(|lease| self.reader.verdict(lease)),
            // Watching a dead one would wake us again and again.
            behind: here()
                .filter(before)
                .rfind(|waiter| self.reader.is_alive(&waiter.holder))
                .map(|waiter| waiter.holder.clone()),
            place,
            waiting: here().count(),
            revision: Revision(0),
        }
    }

    /// Takes off the record what somebody ended by writing the seed's tables.
    fn settle_overruled(&mut self) -> Result<(), Failure> {
        let select = "SELECT key FROM leases WHERE key LIKE 'task:%' OR key LIKE 'section:%'";
        let keys = self
            .reader
            .db
            .prepare_cached(select)?
            .query_map([], |row| row.get::<_, String>(0))?
            .collect::<Result<Vec<_>, _>>()?;
        for key in keys.into_iter().filter_map(|key| Key::parse(key).ok()) {
            self.read(&key, None)?;
        }
        Ok(())
    }

    /// Ends every lease that is over.
    pub(crate) fn reap(&mut self) -> Result<Vec<Reaped>, Failure> {
        self.settle_overruled()?;
        let mut reaped = Vec::new();
        for Snapshot { lease, queue, .. } in self.reader.all()? {
            let Some((lease, verdict)) = lease else {
                continue;
            };
            let Some(evidence) = verdict.over().cloned() else {
                continue;
            };
            self.end(&lease, &evidence)?;
            self.ring_next(&queue);
            reaped.push(Reaped { lease, evidence });
        }
        Ok(reaped)
    }
}
