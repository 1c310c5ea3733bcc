//! A section's lease: its runner keeps it from one task to the next, and no longer.

use std::time::Duration;

use tenure_core::decide::{self, View};
use tenure_core::engine::{self, Look as _, Put, Step as _};
use tenure_core::task::{self, Change};
use tenure_core::{
    Binding, Claim, Doubt, Evidence, Holder, HolderId, Key, Lease, Liveness, Section, Status, Task,
    Token,
};

use super::bad_id;
use super::flow::section_key;
use crate::write::{TransactionError, WriteTransaction};

impl WriteTransaction<'_> {
    /// A section's lease ends with the work in it. If the leases of all tasks that its holder had in
    /// progress there have expired, or their holder is dead, this returns the section's lease as one
    /// that ended for the same reason. A section has a longer time to live than a task only so that
    /// its runner keeps it from one task to the next.
    pub(super) fn ended_with_its_task(
        &mut self,
        section: &str,
        view: &View,
    ) -> Result<Option<(Lease, Liveness)>, TransactionError> {
        let Some((lease, _)) = view.leases.first() else {
            return Ok(None);
        };
        if lease.holder.liveness_lock().is_some() || self.has_ended(view) {
            return Ok(None);
        }
        let sql =
            "SELECT id FROM tasks WHERE section_id = ?1 AND status = 'in_progress' AND runner = ?2";
        let ids = self
            .reader
            .db
            .prepare_cached(sql)?
            .query_map([section, lease.holder.id.as_str()], |row| row.get(0))?
            .collect::<Result<Vec<String>, _>>()?;
        let mut proof = None;
        for id in ids {
            let key = task::key_of(&id).map_err(|error| bad_id(&id, &error))?;
            match self.leases(&key)?.into_iter().next() {
                Some(task) => match self.reader.verdict(task) {
                    (task, verdict) if task.holder.id == lease.holder.id => match verdict.ended() {
                        Some(ended) => proof = Some(ended.clone()),
                        None => return Ok(None),
                    },
                    _ => {}
                },
                None => proof = crate::history::last_end(self.reader.db, &key)?.or(proof),
            }
        }
        Ok(proof.map(|proof| match proof {
            Evidence::TimeRanOut { expired_at } => {
                let mut lease = lease.clone();
                if let Some(end) = &mut lease.expires {
                    end.wall = expired_at;
                    end.ticks = Duration::ZERO;
                }
                (lease, Liveness::Unverifiable(Doubt::Detached))
            }
            other => (lease.clone(), Liveness::Gone(other)),
        }))
    }

    /// Extends a section's lease that several tasks of one runner use, and never shortens it. If they
    /// are tied to different processes, the lease is tied to none.
    pub(super) fn prolong(
        &mut self,
        lease: &Lease,
        claim: &Claim,
    ) -> Result<Lease, TransactionError> {
        let left = lease.remaining(self.now());
        let ttl = left.map_or(claim.ttl, |left| left.max(claim.ttl));
        let mut holder = lease.holder.clone();
        if holder.binding != claim.holder.binding {
            holder.binding = Binding::Detached;
        }
        self.extend(lease, holder, ttl)
    }

    fn extend(
        &mut self,
        lease: &Lease,
        holder: Holder,
        ttl: Duration,
    ) -> Result<Lease, TransactionError> {
        let extended = Lease {
            holder,
            expires: self.expiry(ttl),
            heartbeat_at: self.now().wall,
            ttl,
            ..lease.clone()
        };
        self.put_lease(&extended, Put::Extended)?;
        Ok(extended)
    }

    /// Whether the lease of a view has ended.
    pub(super) fn has_ended(&self, view: &View) -> bool {
        let lease = view.leases.first();
        lease.is_some_and(|(lease, liveness)| decide::ended(self.now(), lease, liveness).is_some())
    }

    /// Renewing a task's lease renews the lease of its section.
    pub(crate) fn renew_section(&mut self, task: &Lease) -> Result<(), TransactionError> {
        let Some(id) = self.own_task(&task.key) else {
            return Ok(());
        };
        let Some(section) = super::rows::by_id(self.reader.db, id)?.and_then(|task| task.section)
        else {
            return Ok(());
        };
        let key = section_key(&section)?;
        let Some((lease, _)) = self.leases(&key)?.into_iter().next() else {
            return Ok(());
        };
        let same = lease.holder.id == task.holder.id
            && lease.holder.liveness_lock() == task.holder.liveness_lock();
        let left = lease.remaining(self.now()).unwrap_or_default();
        if same && left < task.ttl && lease.token != Token::NONE {
            let holder = lease.holder.clone();
            self.extend(&lease, holder, task.ttl)?;
        }
        Ok(())
    }

    /// Releases the section if its holder has nothing left to do in it.
    pub(super) fn leave_section(
        &mut self,
        task: &Task,
        holder: &Holder,
        change: &Change,
    ) -> Result<Option<Key>, TransactionError> {
        let same = |lease: &Lease| {
            lease.holder.id == holder.id
                && (lease.holder.liveness_lock() == holder.liveness_lock()
                    || lease.holder.liveness_lock().is_none())
        };
        self.leave_section_if(task, &holder.id, change, same)
    }

    /// The same for a runner whose task's lease has ended already.
    pub(super) fn leave_section_by_name(
        &mut self,
        task: &Task,
        by: &HolderId,
        change: &Change,
    ) -> Result<Option<Key>, TransactionError> {
        let same = |lease: &Lease| lease.holder.id == *by && lease.holder.liveness_lock().is_none();
        self.leave_section_if(task, by, change, same)
    }

    fn leave_section_if(
        &mut self,
        task: &Task,
        by: &HolderId,
        change: &Change,
        is_theirs: impl Fn(&Lease) -> bool,
    ) -> Result<Option<Key>, TransactionError> {
        let Some(section) = &task.section else {
            return Ok(None);
        };
        // A task that is put back is not its runner's work any more.
        let done_here =
            if change.status() == Status::Pending && !matches!(change, Change::Retry { .. }) {
                !self.works_in(section, by)?
            } else {
                !self.has_open(section)?
            };
        if !done_here {
            return Ok(None);
        }
        let key = section_key(section)?;
        let view = self.view(&key)?;
        match view.leases.first() {
            Some((lease, _)) if is_theirs(lease) => {
                self.set_free(lease)?;
                engine::wake_next(self, &view.queue);
                Ok(Some(key))
            }
            _ => Ok(None),
        }
    }

    /// Whether a section has an open task.
    fn has_open(&self, section: &Section) -> Result<bool, TransactionError> {
        let sql = "SELECT 1 FROM tasks WHERE section_id = ?1 AND status IN ('pending', 'in_progress') LIMIT 1";
        Ok(self.reader.db.prepare_cached(sql)?.exists([&section.id])?)
    }

    /// Whether a runner holds a task of this section that is in progress.
    fn works_in(&self, section: &Section, runner: &HolderId) -> Result<bool, TransactionError> {
        let sql = "SELECT 1 FROM tasks t JOIN leases l ON l.key = 'task:' || t.id AND l.holder = ?2
                   WHERE t.section_id = ?1 AND t.status = 'in_progress' LIMIT 1";
        Ok(self
            .reader
            .db
            .prepare_cached(sql)?
            .exists([section.id.as_str(), runner.as_str()])?)
    }

    /// Releases a task's lease and leaves its status alone; also releases the sections that are idle then.
    pub(super) fn abandon(&mut self, lease: &Lease) -> Result<(), TransactionError> {
        let view = self.view(&lease.key)?;
        if decide::release(&view, &lease.grant()).is_some() {
            self.set_free(lease)?;
            engine::wake_next(self, &view.queue);
        }
        self.leave_idle_sections(&lease.holder)
    }

    /// Releases every section that a holder has without working in it: it works elsewhere, or found
    /// nothing to do, and would only keep others out.
    pub(super) fn leave_idle_sections(&mut self, holder: &Holder) -> Result<(), TransactionError> {
        let keys = self
            .reader
            .db
            .prepare_cached(
                "SELECT key FROM leases WHERE key >= 'section:' AND key < 'section;' AND holder = ?1",
            )?
            .query_map([holder.id.as_str()], |row| row.get::<_, String>(0))?
            .collect::<Result<Vec<_>, _>>()?;
        for key in keys.into_iter().filter_map(|key| Key::parse(key).ok()) {
            let section = Section {
                id: key.id().to_owned(),
                name: String::new(),
            };
            let view = self.view(&key)?;
            if let Some((lease, _)) = view.leases.first()
                && lease.holder.id == holder.id
                && lease.holder.liveness_lock() == holder.liveness_lock()
                && !self.works_in(&section, &holder.id)?
            {
                self.set_free(lease)?;
                engine::wake_next(self, &view.queue);
            }
        }
        Ok(())
    }
}
