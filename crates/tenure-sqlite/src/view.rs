//! Reading one key inside a transaction.

use rusqlite::{Connection, OptionalExtension};
use tenure_core::decide::View;
use tenure_core::{
    Epoch, Evidence, Holder, HolderId, Key, Lease, Liveness, LivenessId, Moment, Presence,
    Snapshot, Token, Verdict, Waiter,
};
use tenure_host::{LivenessFolder, liveness};

use crate::lock_tables::{self, LockTables, Table};
use crate::rows::{self, select_lease, select_ticket};

/// Where the reader stands.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Reader<'a> {
    pub(crate) db: &'a Connection,
    pub(crate) folder: &'a LivenessFolder,
    pub(crate) now: &'a Moment,
    /// Our own life, which needs no probing.
    pub(crate) us: Option<&'a LivenessId>,
    /// Where the seed's tables are.
    pub(crate) tables: LockTables,
}

/// A view, and what was found out on the way.
pub(crate) struct Read {
    pub(crate) view: View,
    /// A lease of ours that somebody ended by writing the seed's tables.
    pub(crate) overruled: Option<(Lease, Evidence)>,
}

impl Reader<'_> {
    /// All of one key, for somebody who may have left a place behind.
    pub(crate) fn key(&self, key: &Key, asker: Option<&HolderId>) -> rusqlite::Result<Read> {
        let (lease, overruled) = self.lease(key)?;
        let view = View {
            lease,
            queue: self.queue(key, asker)?,
            newest: self.newest()?,
        };
        Ok(Read { view, overruled })
    }

    /// The lease of one key, and what the host says of it.
    #[expect(clippy::type_complexity, reason = "the two halves of one answer")]
    pub(crate) fn lease(
        &self,
        key: &Key,
    ) -> rusqlite::Result<(Option<(Lease, Liveness)>, Option<(Lease, Evidence)>)> {
        let ours = self
            .db
            .prepare_cached(select_lease!("WHERE key = ?1"))?
            .query_row([key.as_str()], rows::lease)
            .optional()?;
        let Some((table, id)) = Table::of(key) else {
            return Ok((ours.map(|lease| self.judge(lease)), None));
        };
        let lock_tables::Merged { lease, overruled } =
            lock_tables::merge(key, ours, table.read(self.tables, self.db, id)?);
        let overruled = match self.tables {
            LockTables::Own => overruled,
            LockTables::Attached => overruled.map(|ours| self.how_it_ended(ours, lease.is_none())),
        };
        Ok((
            lease.map(|(lease, known)| self.judge_unless(lease, known)),
            overruled,
        ))
    }

    /// Beside another program it is nothing unusual that a lease which is over was removed or taken
    /// over there, or that a process was killed before its row was written: if the lease is over by
    /// itself, that is the proof.
    fn how_it_ended(&self, (lease, outside): (Lease, Evidence), gone: bool) -> (Lease, Evidence) {
        let (lease, verdict) = self.verdict(self.judge(lease));
        let proof = match (verdict.over(), outside) {
            (Some(proof), _) => proof.clone(),
            (None, Evidence::Forced { by, .. }) if gone => Evidence::Forced {
                by,
                reason: Some(
                    "its row is not in the lock table: removed outside tenure, or never written by a process that was killed".into(),
                ),
            },
            (None, outside) => outside,
        };
        (lease, proof)
    }

    fn judge(&self, lease: Lease) -> (Lease, Liveness) {
        let liveness = if self.is_us(&lease.holder) {
            Liveness::Running
        } else {
            liveness::probe(self.folder, &lease.holder.binding)
        };
        (lease, liveness)
    }

    /// Whether a waiter lives, as far as anybody can tell.
    pub(crate) fn is_alive(&self, holder: &Holder) -> bool {
        if self.is_us(holder) {
            return true;
        }
        let liveness = liveness::probe(self.folder, &holder.binding);
        !matches!(liveness, Liveness::Gone(_) | Liveness::Orphaned)
    }

    fn is_us(&self, holder: &Holder) -> bool {
        self.us.is_some() && holder.liveness_lock() == self.us
    }

    fn judge_unless(&self, lease: Lease, known: Option<Liveness>) -> (Lease, Liveness) {
        match known {
            Some(liveness) => (lease, liveness),
            None => self.judge(lease),
        }
    }

    /// The queue of one key, in order.
    pub(crate) fn queue(
        &self,
        key: &Key,
        asker: Option<&HolderId>,
    ) -> rusqlite::Result<Vec<Waiter>> {
        let mut queue: Vec<Waiter> = self
            .db
            .prepare_cached(select_ticket!("WHERE key = ?1"))?
            .query_map([key.as_str()], rows::waiter)?
            .collect::<Result<_, _>>()?;
        self.settle(&mut queue, asker);
        Ok(queue)
    }

    /// Puts waiters in order and finds out who is there. Only as many are probed as it takes to
    /// know whose turn it is, and those of the asker's own name; of the others it is enough that
    /// they were heard lately.
    fn settle(&self, queue: &mut [Waiter], asker: Option<&HolderId>) {
        queue.sort_by_key(Waiter::rank);
        let mut turn_known = false;
        for waiter in queue {
            let probed = !turn_known || asker == Some(&waiter.holder.id);
            let here = waiter.presence == Presence::Here
                && waiter.heard_lately(self.now)
                && (!probed || self.is_alive(&waiter.holder));
            waiter.presence = if here { Presence::Here } else { Presence::Away };
            turn_known |= here;
        }
    }

    /// The newest token.
    fn newest(&self) -> rusqlite::Result<Token> {
        Ok(Token(self.tokens()?.0))
    }

    /// Whether no token was given in this boot yet. A machine that does not tell its boot has one.
    pub(crate) fn is_new_boot(&self) -> rusqlite::Result<bool> {
        Ok(self.tokens()?.1.differs(&self.now.epoch))
    }

    fn tokens(&self) -> rusqlite::Result<(u64, Epoch)> {
        self.db
            .prepare_cached("SELECT newest, boot FROM tokens WHERE id = 1")?
            .query_row([], |row| {
                let newest = row.get::<_, i64>(0)?;
                Ok((u64::try_from(newest).unwrap_or(0), Epoch(row.get(1)?)))
            })
    }

    /// Every key that is held or waited for.
    pub(crate) fn all(&self) -> rusqlite::Result<Vec<Snapshot>> {
        use std::collections::BTreeMap;
        let mut leases: BTreeMap<Key, Lease> = BTreeMap::new();
        let mut statement = self.db.prepare_cached(select_lease!(""))?;
        for lease in statement.query_map([], rows::lease)? {
            let lease = lease?;
            leases.insert(lease.key.clone(), lease);
        }
        let mut seeds = BTreeMap::new();
        for table in [Table::Task, Table::Section] {
            seeds.extend(table.all(self.tables, self.db)?);
        }
        let mut queues: BTreeMap<Key, Vec<Waiter>> = BTreeMap::new();
        let mut statement = self.db.prepare_cached(select_ticket!(""))?;
        for row in
            statement.query_map([], |row| Ok((row.get::<_, String>(1)?, rows::waiter(row)?)))?
        {
            let (key, waiter) = row?;
            if let Ok(key) = Key::parse(key) {
                queues.entry(key).or_default().push(waiter);
            }
        }
        let mut keys: Vec<Key> = leases
            .keys()
            .chain(seeds.keys())
            .chain(queues.keys())
            .cloned()
            .collect();
        keys.sort();
        keys.dedup();
        let snapshots = keys.into_iter().map(|key| {
            let ours = leases.remove(&key);
            let lease = match Table::of(&key) {
                Some(_) => lock_tables::merge(&key, ours, seeds.remove(&key)).lease,
                None => ours.map(|lease| (lease, None)),
            };
            let mut queue = queues.remove(&key).unwrap_or_default();
            self.settle(&mut queue, None);
            let lease = lease.map(|(lease, known)| self.verdict(self.judge_unless(lease, known)));
            Snapshot {
                key,
                lease,
                queue,
                revision: tenure_core::Revision(0),
            }
        });
        Ok(snapshots
            .filter(|snapshot| snapshot.lease.is_some() || !snapshot.queue.is_empty())
            .collect())
    }

    /// The judgement on a lease.
    pub(crate) fn verdict(&self, (lease, liveness): (Lease, Liveness)) -> (Lease, Verdict) {
        let verdict = Verdict::on(self.now, &lease, &liveness);
        (lease, verdict)
    }
}
