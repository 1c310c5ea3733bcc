//! Beginning and ending work on a task: its status and its locks in one step.

use std::time::Duration;

use jiff::SignedDuration;
use tenure_core::claim::Patience;
use tenure_core::decide::{self, ClaimTicket, Decision};
use tenure_core::engine::{self, Ended, KeyDecision, Then};
use tenure_core::error::{ErrorKind, StoreError};
use tenure_core::holder::HolderId;
use tenure_core::key::{Key, KeyKind};
use tenure_core::lease::{Lease, Token};
use tenure_core::queue::{Presence, Ticket};
use tenure_core::store::{Acquired, Granted, Reason};
use tenure_core::verdict::{Evidence, Verdict};

use super::follow::superseded;
use super::sections::{ended_with_its_task, leave_section, prolong};
use super::step::{TaskStep, any_task, keys_of, task_key};
use super::{
    ANY, Change, Changed, Permission, Proof, Runner, Started, Status, Task, TaskError, TaskState,
    Withdrawal, backoff, may_change, tidy,
};

/// More failed attempts are not counted.
pub const MOST_ATTEMPTS: u64 = 1_000_000;

/// The task with this id, which has to exist.
pub fn existing<S: TaskStep>(step: &mut S, id: &str) -> Result<Task, S::Error> {
    Ok(step
        .task(id)?
        .ok_or_else(|| TaskError::NoTask(id.to_owned()))?)
}

/// The lease on record of a key, and the verdict on it.
pub fn lease_of<S: TaskStep>(
    step: &mut S,
    key: &Key,
) -> Result<Option<(Lease, Verdict)>, S::Error> {
    let first = step.leases(key)?.into_iter().next();
    Ok(first.map(|(lease, liveness)| {
        let verdict = Verdict::on(step.now(), &lease, &liveness);
        (lease, verdict)
    }))
}

/// Fails if a runner works on the task: it holds the lock of the task's section as well.
pub fn may_move<S: TaskStep>(step: &mut S, task: &Task) -> Result<(), S::Error> {
    match lease_of(step, &task_key(&task.id)?)? {
        Some((lease, verdict)) if verdict.ended().is_none() => Err(TaskError::Locked {
            task: Box::new(task.clone()),
            lease: Box::new(lease),
        }
        .into()),
        _ => Ok(()),
    }
}

/// Ends the lease of a key that will not exist any more, and sends its waiters away.
pub fn vacate<S: TaskStep>(step: &mut S, key: &Key) -> Result<(), S::Error> {
    if let Some((lease, verdict)) = lease_of(step, key)? {
        match verdict.ended() {
            Some(proof) => end(step, &lease, proof)?,
            None => set_free(step, &lease)?,
        }
    }
    for waiter in engine::queue(step, key, None)? {
        step.wake(&waiter.holder);
        step.remove_ticket(key, waiter.ticket)?;
    }
    Ok(())
}

/// Wakes every waiter for a task or its section, because the task has moved.
pub fn ring_waiters<S: TaskStep>(step: &mut S, task: &Task) -> Result<(), S::Error> {
    for key in keys_of(task)? {
        for waiter in engine::queue(step, &key, None)? {
            step.wake(&waiter.holder);
        }
    }
    Ok(())
}

/// Wakes every runner that looks for any task: many may have become ready.
pub fn ring_all_seekers<S: TaskStep>(step: &mut S) -> Result<(), S::Error> {
    for waiter in engine::queue(step, &any_task()?, None)? {
        step.wake(&waiter.holder);
    }
    Ok(())
}

/// Wakes the first runner that looks for any task, and those of them that have a section: the
/// first could not take what is in it.
pub fn wake_seekers<S: TaskStep>(step: &mut S) -> Result<(), S::Error> {
    let queue = engine::queue(step, &any_task()?, None)?;
    if queue.is_empty() {
        return Ok(());
    }
    engine::wake_next(step, &queue);
    let held = step.held_sections()?;
    for waiter in &queue {
        if held.iter().any(|(_, id)| *id == waiter.holder.id) {
            step.wake(&waiter.holder);
        }
    }
    Ok(())
}

/// Whether the runner with this token has ended the task.
pub fn was_ended_by(task: &Task, lost: &[HolderId], token: Token) -> bool {
    let forced = task.runner.as_ref().is_some_and(|name| lost.contains(name));
    task.token == token && !task.status.is_open() && !forced
}

/// Decides on one key. A section that the runner holds is free for all of its work.
pub(super) fn decide_key<S: TaskStep>(
    step: &mut S,
    runner: &Runner,
    key: Key,
) -> Result<KeyDecision, S::Error> {
    let claim = runner.claim(key);
    let mut view = engine::view(step, &claim.key, Some(&claim.holder.id))?;
    let decision = if let KeyKind::Section(id) = claim.key.kind() {
        if let Some(lease) = ended_with_its_task(step, id, &view)? {
            view.leases = vec![lease];
        }
        decide::acquire_once(step.now(), &view, &claim)
    } else {
        decide::acquire(step.now(), &view, &claim)
    };
    Ok(KeyDecision {
        claim,
        view,
        decision,
    })
}

/// Begins a task.
pub fn start<S: TaskStep>(
    step: &mut S,
    id: &str,
    runner: &Runner,
) -> Result<Acquired<Started>, S::Error> {
    let task = existing(step, id)?;
    if task.status.is_finished() && !runner.reopens {
        let task = Box::new(task);
        return Err(TaskError::Done { task }.into());
    }
    if task.blockers > 0 {
        let by = step.blockers(&task.id)?;
        let task = Box::new(task);
        return Err(TaskError::Blocked { task, by }.into());
    }
    let keys = keys_of(&task)?;
    if runner.patience == Patience::Queue {
        leave_other_queues(step, runner, &keys)?;
    }
    let mut needed = Vec::new();
    for key in &keys {
        needed.push(decide_key(step, runner, key.clone())?);
    }
    let Some(missing) = needed.iter().position(|needed| !needed.is_granted()) else {
        return Ok(Acquired::Granted(begin(step, &task, runner, None)?));
    };
    let missing = needed.swap_remove(missing);
    // A runner that waits for one key holds nothing up for those that wait for the other.
    if runner.patience == Patience::Queue {
        for other in &needed {
            let present = |ticket: Ticket| {
                other
                    .view
                    .queue
                    .iter()
                    .any(|waiter| waiter.ticket == ticket && waiter.presence == Presence::Here)
            };
            if let (ClaimTicket::Own(ticket), _) =
                decide::position(step.now(), &other.view, &other.claim)
                && present(ticket)
            {
                engine::settled(step, |step| {
                    engine::withdraw_in(step, &other.claim, &other.view, Withdrawal::Park)
                })?;
            }
        }
    }
    engine::settled(step, |step| engine::refuse(step, vec![missing]))
}

/// Takes a task's leases, which must be free, and sets its status. `sought` is how long the runner waited for any task.
pub(super) fn begin<S: TaskStep>(
    step: &mut S,
    task: &Task,
    runner: &Runner,
    sought: Option<Duration>,
) -> Result<Started, S::Error> {
    let mut leases = Vec::new();
    for key in keys_of(task)? {
        // Decide again: granting the first key may have changed what is known of the second.
        let KeyDecision {
            claim,
            view,
            decision,
        } = decide_key(step, runner, key)?;
        let granted = match &decision {
            // The end of a section's lease is never moved back: its runner may be at other tasks
            // in it.
            Decision::Extend { lease, ticket }
                if matches!(claim.key.kind(), KeyKind::Section(_)) =>
            {
                engine::drop_ticket(step, &claim.key, *ticket)?;
                Some(Granted {
                    lease: prolong(step, lease, &claim)?,
                    reason: Reason::AlreadyOwned,
                })
            }
            _ => {
                let waited = decide::waited(step.now(), &view, &decision);
                let is_task = matches!(claim.key.kind(), KeyKind::Task(_));
                let waited = waited.max(sought.filter(|_| is_task));
                engine::settled(step, |step| engine::grant(step, &claim, &decision, waited))?
            }
        };
        leases.push(granted.ok_or_else(|| impossible("a key that is free is not granted"))?);
    }
    let Granted { lease, reason } = leases
        .pop()
        .ok_or_else(|| impossible("a task without a key"))?;
    // A closed task that is begun again starts with no failed attempts.
    let attempts = if task.status.is_open() {
        task.attempts
    } else {
        0
    };
    let begun = Task {
        status: Status::InProgress,
        attempts,
        not_before: None,
        updated_at: step.now().wall,
        ..task.clone()
    };
    step.set_progress(&begun)?;
    Ok(Started {
        task: existing(step, &task.id)?,
        was: task.status,
        lease,
        reason,
        section: leases.pop().map(|granted| granted.lease),
    })
}

/// Drops the tickets of a runner in other queues for tasks and sections: the task that it waits
/// for was moved.
fn leave_other_queues<S: TaskStep>(
    step: &mut S,
    runner: &Runner,
    keys: &[Key],
) -> Result<(), S::Error> {
    let is_other = |key: &Key| {
        matches!(key.kind(), KeyKind::Task(_) | KeyKind::Section(_))
            && !keys.contains(key)
            && key.id() != ANY
    };
    let waits = step.waits_of(&runner.holder.id, Token::NONE)?;
    for key in waits.into_iter().filter(is_other) {
        stop_waiting_for(step, runner, key, Withdrawal::Leave)?;
    }
    Ok(())
}

/// Drops or parks the ticket of a runner in one queue.
fn stop_waiting_for<S: TaskStep>(
    step: &mut S,
    runner: &Runner,
    key: Key,
    tickets: Withdrawal,
) -> Result<(), S::Error> {
    let claim = runner.claim(key);
    let view = engine::view(step, &claim.key, Some(&claim.holder.id))?;
    engine::settled(step, |step| {
        engine::withdraw_in(step, &claim, &view, tickets)
    })
}

/// Drops or parks the tickets of a runner.
pub fn stop_waiting<S: TaskStep>(
    step: &mut S,
    id: Option<&str>,
    runner: &Runner,
    tickets: Withdrawal,
) -> Result<(), S::Error> {
    let keys = match id {
        Some(id) => keys_of(&existing(step, id)?)?,
        None => vec![any_task()?],
    };
    if id.is_some() {
        leave_other_queues(step, runner, &keys)?;
    }
    for key in keys {
        stop_waiting_for(step, runner, key, tickets)?;
    }
    Ok(())
}

/// Ends work on a task, or sets its status by hand.
pub fn change<S: TaskStep>(
    step: &mut S,
    id: &str,
    proof: &Proof,
    change: &Change,
) -> Result<Changed, S::Error> {
    if change.status() == Status::InProgress {
        let problem = "in_progress is not written but begun: its locks belong to it";
        return Err(TaskError::bad_text("status", problem).into());
    }
    let task = existing(step, id)?;
    let key = task_key(&task.id)?;
    let held = lease_of(step, &key)?;
    let lost = step.lost(id)?;
    let permission = may_change(
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
        superseded(step, id, before)?;
    }
    let after = after_change(&task, change, step.now().wall);
    step.set_progress(&after)?;
    let mut freed = Vec::new();
    if let Some((lease, verdict)) = &held {
        match verdict.ended() {
            Some(evidence) if Some(&lease.holder.id) != by.as_ref() => {
                end(step, lease, evidence)?;
            }
            _ => set_free(step, lease)?,
        }
        freed.push(key);
        let holder = &lease.holder;
        let with = holder.liveness_lock();
        freed.extend(leave_section(step, &task, &holder.id, with, change)?);
    } else if let Some(by) = by {
        freed.extend(leave_section(step, &task, &by, None, change)?);
    }
    wake_seekers(step)?;
    Ok(Changed {
        was: task.status,
        task: existing(step, id)?,
        freed,
    })
}

/// The task after a change of its status.
fn after_change(task: &Task, change: &Change, now: jiff::Timestamp) -> Task {
    let failed = task.attempts.min(MOST_ATTEMPTS) + 1;
    let mut after = Task {
        status: change.status(),
        updated_at: now,
        not_before: None,
        ..task.clone()
    };
    match change {
        Change::To(Status::Failed) => after.attempts = failed,
        Change::To(status) if status.is_open() => after.attempts = 0,
        Change::To(_) => after.last_error = None,
        Change::Failed { error } => {
            after.attempts = failed;
            after.last_error = Some(tidy(error));
        }
        Change::Retry { error } => {
            after.attempts = failed;
            after.last_error = Some(tidy(error));
            after.not_before = SignedDuration::try_from(backoff(failed))
                .ok()
                .and_then(|pause| now.checked_add(pause).ok());
        }
        Change::GiveBack => after.not_before = task.not_before,
    }
    after
}

/// Releases a lease, as its holder would.
pub fn set_free<S: TaskStep>(step: &mut S, lease: &Lease) -> Result<(), S::Error> {
    engine::settled(step, |step| {
        step.end_lease(lease, &Ended::Released, Then::Free)
    })
}

/// Ends a lease, with the evidence.
pub fn end<S: TaskStep>(step: &mut S, lease: &Lease, evidence: &Evidence) -> Result<(), S::Error> {
    let how = Ended::Proven(evidence.clone());
    engine::settled(step, |step| step.end_lease(lease, &how, Then::Free))
}

fn impossible(what: &str) -> StoreError {
    StoreError::new(ErrorKind::Damaged, what)
}
