//! Beginning and ending work on a task: its status and its locks in one transaction.

use jiff::SignedDuration;
use rusqlite::params;
use tenure_core::decide::{self, ClaimTicket, Decision, View};
use tenure_core::engine::{self, Ended, Look as _, Step as _, Then};
use tenure_core::task::{
    self, Change, Changed, Permission, Proof, Runner, Started, TaskState, Withdrawal,
};
use tenure_core::{
    Acquired, Claim, ErrorKind, Granted, Key, KeyKind, Lease, Patience, Presence, Reason, Section,
    Status, StoreError, Task, TaskError, Ticket,
};

use super::bad_id;
use super::rows::{lost, superseded};
use crate::rows::time;
use crate::write::{TransactionError, WriteTransaction};

/// One of the keys that a task needs, and the decision on it.
pub(super) struct KeyDecision {
    pub(super) claim: Claim,
    pub(super) view: View,
    pub(super) decision: Decision,
}

/// The key of a section.
pub(super) fn section_key(section: &Section) -> Result<Key, TransactionError> {
    Ok(section.key().map_err(|error| bad_id(&section.id, &error))?)
}

/// The key of a task.
pub(super) fn task_key(task: &Task) -> Result<Key, TransactionError> {
    Ok(task.key().map_err(|error| bad_id(&task.id, &error))?)
}

impl KeyDecision {
    fn is_granted(&self) -> bool {
        matches!(
            self.decision,
            Decision::Grant { .. } | Decision::Extend { .. }
        )
    }
}

impl WriteTransaction<'_> {
    /// Decides on one key. A section that the runner holds is free for all of its work.
    pub(super) fn decide_key(
        &mut self,
        runner: &Runner,
        key: Key,
    ) -> Result<KeyDecision, TransactionError> {
        let claim = runner.claim(key);
        let mut view = engine::view(self, &claim.key, Some(&claim.holder.id))?;
        let decision = if let KeyKind::Section(id) = claim.key.kind() {
            if let Some(lease) = self.ended_with_its_task(id, &view)? {
                view.leases = vec![lease];
            }
            decide::acquire_shared(self.now(), &view, &claim)
        } else {
            decide::acquire(self.now(), &view, &claim)
        };
        Ok(KeyDecision {
            claim,
            view,
            decision,
        })
    }

    /// Begins a task.
    pub(super) fn start(
        &mut self,
        id: &str,
        runner: &Runner,
    ) -> Result<Acquired<Started>, TransactionError> {
        let task = self.task(id)?;
        if task.status.is_finished() && !runner.reopens {
            let task = Box::new(task);
            return Err(TaskError::Done { task }.into());
        }
        if task.blockers > 0 {
            return Err(self.blocked(task)?.into());
        }
        let keys = keys_of(&task)?;
        if runner.patience == Patience::Queue {
            self.leave_other_queues(runner, &keys)?;
        }
        let mut needed = Vec::new();
        for key in &keys {
            needed.push(self.decide_key(runner, key.clone())?);
        }
        let Some(missing) = needed.iter().position(|needed| !needed.is_granted()) else {
            return Ok(Acquired::Granted(self.begin(&task, runner)?));
        };
        let missing = needed.swap_remove(missing);
        // A runner that waits for one key holds nothing up for those that wait for the other.
        if runner.patience == Patience::Queue {
            for other in &needed {
                let present =
                    |ticket: Ticket| {
                        other.view.queue.iter().any(|waiter| {
                            waiter.ticket == ticket && waiter.presence == Presence::Here
                        })
                    };
                if let (ClaimTicket::Own(ticket), _) =
                    decide::position(self.now(), &other.view, &other.claim)
                    && present(ticket)
                {
                    engine::park(self, &other.claim.key, ticket)?;
                }
            }
        }
        engine::refuse(self, &missing.claim, &missing.view, &missing.decision)
    }

    /// Takes a task's leases, which must be free, and sets its status.
    pub(super) fn begin(
        &mut self,
        task: &Task,
        runner: &Runner,
    ) -> Result<Started, TransactionError> {
        let mut leases = Vec::new();
        for key in keys_of(task)? {
            // Decide again: granting the first key may have changed what is known of the second.
            let KeyDecision {
                claim, decision, ..
            } = self.decide_key(runner, key)?;
            let granted = match &decision {
                // The end of a section's lease is never moved back: its runner may be at other tasks
                // in it.
                Decision::Extend { lease, ticket }
                    if matches!(claim.key.kind(), KeyKind::Section(_)) =>
                {
                    engine::drop_ticket(self, &claim.key, *ticket)?;
                    Some(Granted {
                        lease: self.prolong(lease, &claim)?,
                        reason: Reason::AlreadyOwned,
                    })
                }
                _ => engine::grant(self, &claim, &decision)?,
            };
            leases.push(granted.ok_or_else(|| impossible("a key that is free is not granted"))?);
        }
        let Granted { lease, reason } = leases
            .pop()
            .ok_or_else(|| impossible("a task without a key"))?;
        // A closed task that is begun again starts with no failed attempts.
        self.reader
            .db
            .prepare_cached(
                "UPDATE tasks SET attempts = iif(status IN ('pending', 'in_progress'), attempts, 0),
                 status = 'in_progress', not_before = NULL, updated_at = ?2 WHERE id = ?1",
            )?
            .execute(params![task.id, time(self.now().wall)])?;
        Ok(Started {
            task: self.task(&task.id)?,
            was: task.status,
            lease,
            reason,
            section: leases.pop().map(|granted| granted.lease),
        })
    }

    /// Drops the tickets of a runner in other queues for tasks and sections: the task that it waits
    /// for was moved.
    fn leave_other_queues(
        &mut self,
        runner: &Runner,
        keys: &[Key],
    ) -> Result<(), TransactionError> {
        let sql = "SELECT DISTINCT key FROM tickets WHERE holder = ?1 AND (key LIKE 'section:%' OR key LIKE 'task:%')";
        let others = self
            .reader
            .db
            .prepare_cached(sql)?
            .query_map([runner.holder.id.as_str()], |row| row.get::<_, String>(0))?
            .collect::<Result<Vec<_>, _>>()?;
        let others = others.into_iter().filter_map(|key| Key::parse(key).ok());
        let is_other = |key: &Key| !keys.contains(key) && key.id() != task::ANY;
        for key in others.filter(is_other).collect::<Vec<_>>() {
            self.stop_waiting_for(runner, key, Withdrawal::Leave)?;
        }
        Ok(())
    }

    /// Drops or parks the ticket of a runner in one queue.
    fn stop_waiting_for(
        &mut self,
        runner: &Runner,
        key: Key,
        tickets: Withdrawal,
    ) -> Result<(), TransactionError> {
        let claim = runner.claim(key);
        let view = engine::view(self, &claim.key, Some(&claim.holder.id))?;
        match (decide::position(self.now(), &view, &claim), tickets) {
            ((ClaimTicket::Own(ticket), _), Withdrawal::Leave) => {
                engine::leave(self, &claim.key, ticket)
            }
            ((ClaimTicket::Own(ticket), _), Withdrawal::Park) => {
                engine::park(self, &claim.key, ticket)
            }
            _ => Ok(()),
        }
    }

    /// Ends work on a task, or sets its status by hand.
    pub(super) fn change(
        &mut self,
        id: &str,
        proof: &Proof,
        change: &Change,
    ) -> Result<Changed, TransactionError> {
        if change.status() == Status::InProgress {
            return Err(TaskError::BadText {
                what: "status",
                problem: "in_progress is not written but begun: its locks belong to it".into(),
            }
            .into());
        }
        let task = self.task(id)?;
        let key = task_key(&task)?;
        let view = self.view(&key)?;
        let held = view.leases.first().cloned();
        let held = held.map(|lease| self.reader.verdict(lease));
        let lost = lost(self.reader.db, id)?;
        let permission = task::may_change(
            &TaskState {
                lease: held.as_ref().map(|(lease, verdict)| (lease, verdict)),
                newest: task.token,
                runner: task.runner.as_ref(),
                lost: &lost,
            },
            proof,
        );
        let standing = held
            .clone()
            .filter(|(_, verdict)| verdict.ended().is_none())
            .map(|(lease, _)| Box::new(lease));
        match (permission, standing) {
            (Permission::Granted, _) => {}
            (Permission::Locked, Some(lease)) => {
                let task = Box::new(task);
                return Err(TaskError::Locked { task, lease }.into());
            }
            (Permission::Locked | Permission::Superseded, lease) => {
                let task = Box::new(task);
                return Err(TaskError::Superseded { task, lease }.into());
            }
        }
        let by = match (proof, &held) {
            (Proof::Name(name), _) => Some(name.clone()),
            (Proof::Token(_), Some((lease, _))) => Some(lease.holder.id.clone()),
            (Proof::Token(_), None) => task.runner.clone(),
        };
        // Another runner decides about a task that its runner did not finish. That runner is late now.
        if let Some(before) = &task.runner
            && task.status == Status::InProgress
            && Some(before) != by.as_ref()
        {
            superseded(self.reader.db, id, before)?;
        }
        self.write_change(id, change)?;
        let mut freed = Vec::new();
        if let Some((lease, verdict)) = &held {
            match verdict.ended() {
                Some(evidence) if Some(&lease.holder.id) != by.as_ref() => {
                    self.end(lease, evidence)?;
                }
                _ => self.set_free(lease)?,
            }
            engine::wake_next(self, &view.queue);
            freed.push(key);
            freed.extend(self.leave_section(&task, &lease.holder, change)?);
        } else if let Some(by) = by {
            freed.extend(self.leave_section_by_name(&task, &by, change)?);
        }
        self.wake_seekers()?;
        Ok(Changed {
            was: task.status,
            task: self.task(id)?,
            freed,
        })
    }

    fn write_change(&self, id: &str, change: &Change) -> Result<(), TransactionError> {
        let now = self.now().wall;
        let (sql, error) = match change {
            Change::To(Status::Failed) => (
                "UPDATE tasks SET status = ?2, updated_at = ?3, not_before = NULL, attempts = min(attempts, 1000000) + 1,
                 last_error = coalesce(?4, last_error) WHERE id = ?1",
                None,
            ),
            Change::To(status) if status.is_open() => (
                "UPDATE tasks SET status = ?2, updated_at = ?3, not_before = NULL, attempts = 0,
                 last_error = coalesce(?4, last_error) WHERE id = ?1",
                None,
            ),
            Change::To(_) => (
                "UPDATE tasks SET status = ?2, updated_at = ?3, not_before = NULL, last_error = ?4 WHERE id = ?1",
                None,
            ),
            Change::Failed { error } => (
                "UPDATE tasks SET status = ?2, updated_at = ?3, not_before = NULL, attempts = min(attempts, 1000000) + 1,
                 last_error = ?4 WHERE id = ?1",
                Some(error),
            ),
            Change::Retry { error } => (
                "UPDATE tasks SET status = ?2, updated_at = ?3, attempts = min(attempts, 1000000) + 1, last_error = ?4
                 WHERE id = ?1",
                Some(error),
            ),
            Change::GiveBack => (
                "UPDATE tasks SET status = ?2, updated_at = ?3, last_error = coalesce(?4, last_error)
                 WHERE id = ?1",
                None,
            ),
        };
        let db = self.reader.db;
        let error = error.map(|error| task::tidy(error));
        db.prepare_cached(sql)?
            .execute(params![id, change.status().word(), time(now), error])?;
        if matches!(change, Change::Retry { .. }) {
            let after = task::backoff(self.task(id)?.attempts);
            let at = SignedDuration::try_from(after)
                .ok()
                .and_then(|after| now.checked_add(after).ok());
            db.prepare_cached("UPDATE tasks SET not_before = ?2 WHERE id = ?1")?
                .execute(params![id, at.map(time)])?;
        }
        Ok(())
    }

    /// Releases a lease, as its holder would.
    pub(super) fn set_free(&mut self, lease: &Lease) -> Result<(), TransactionError> {
        self.end_lease(lease, &Ended::Released, Then::Free)
    }

    /// Drops or parks the tickets of a runner.
    pub(super) fn stop_waiting(
        &mut self,
        id: Option<&str>,
        runner: &Runner,
        tickets: Withdrawal,
    ) -> Result<(), TransactionError> {
        let keys = match id {
            Some(id) => keys_of(&self.task(id)?)?,
            None => vec![any_task()?],
        };
        if id.is_some() {
            self.leave_other_queues(runner, &keys)?;
        }
        for key in keys {
            self.stop_waiting_for(runner, key, tickets)?;
        }
        Ok(())
    }
}

/// The keys that a task needs, in the order in which they are taken.
pub(super) fn keys_of(task: &Task) -> Result<Vec<Key>, TransactionError> {
    let mut keys = Vec::new();
    if let Some(section) = &task.section {
        keys.push(section_key(section)?);
    }
    keys.push(task_key(task)?);
    Ok(keys)
}

/// The key that runners queue for when they look for any task.
pub(super) fn any_task() -> Result<Key, TransactionError> {
    Ok(task::key_of(task::ANY).map_err(|error| bad_id(task::ANY, &error))?)
}

fn impossible(what: &str) -> TransactionError {
    StoreError::new(ErrorKind::Damaged, what).into()
}
