//! A section's lease: its runner keeps it from one task to the next, and no longer.

use std::time::Duration;

use tenure_core::claim::Claim;
use tenure_core::decide::{self, View};
use tenure_core::engine::{self, Written};
use tenure_core::holder::{Binding, Holder, HolderId, LivenessId};
use tenure_core::key::Key;
use tenure_core::lease::{Lease, Token};
use tenure_core::verdict::{Doubt, Evidence, Liveness, Verdict};

use super::flow::{lease_of, set_free};
use super::step::{TaskStep, section_key, task_key};
use super::{Change, Section, Status, Task, TaskError};

/// A section's lease ends with the work in it. If the leases of all tasks that its holder had in
/// progress there have expired, or their holder is dead, this returns the section's lease as one
/// that ended for the same reason. A section has a longer time to live than a task only so that
/// its runner keeps it from one task to the next.
pub(super) fn ended_with_its_task<S: TaskStep>(
    step: &mut S,
    section: &str,
    view: &View,
) -> Result<Option<(Lease, Liveness)>, S::Error> {
    let Some((lease, _)) = view.leases.first() else {
        return Ok(None);
    };
    if lease.holder.liveness_lock().is_some() || has_ended(step, view) {
        return Ok(None);
    }
    let mut proof = None;
    for id in step.in_progress(section, &lease.holder.id)? {
        let key = task_key(&id)?;
        match lease_of(step, &key)? {
            Some((task, verdict)) if task.holder.id == lease.holder.id => match verdict.ended() {
                Some(ended) => proof = Some(ended.clone()),
                None => return Ok(None),
            },
            Some(_) => {}
            None => proof = step.last_end(&key)?.or(proof),
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
pub(super) fn prolong<S: TaskStep>(
    step: &mut S,
    lease: &Lease,
    claim: &Claim,
) -> Result<Lease, S::Error> {
    let left = lease.remaining(step.now());
    let ttl = left.map_or(claim.ttl, |left| left.max(claim.ttl));
    let mut holder = lease.holder.clone();
    if holder.binding != claim.holder.binding {
        holder.binding = Binding::Detached;
    }
    extend(step, lease, holder, ttl)
}

fn extend<S: TaskStep>(
    step: &mut S,
    lease: &Lease,
    holder: Holder,
    ttl: Duration,
) -> Result<Lease, S::Error> {
    let extended = Lease {
        holder,
        expires: step.expiry(ttl),
        heartbeat_at: step.now().wall,
        ttl,
        ..lease.clone()
    };
    step.put_lease(&extended, Written::Extended)?;
    Ok(extended)
}

/// Whether the lease of a view has ended.
pub(super) fn has_ended<S: TaskStep>(step: &S, view: &View) -> bool {
    let lease = view.leases.first();
    lease.is_some_and(|(lease, liveness)| decide::ended(step.now(), lease, liveness).is_some())
}

/// Renewing a task's lease renews the lease of its section.
pub fn renew_section<S: TaskStep>(step: &mut S, id: &str, task: &Lease) -> Result<(), S::Error> {
    let Some(section) = step.task(id)?.and_then(|task| task.section) else {
        return Ok(());
    };
    let key = section_key(&section)?;
    let Some((lease, _)) = step.leases(&key)?.into_iter().next() else {
        return Ok(());
    };
    let same = lease.holder.id == task.holder.id
        && lease.holder.liveness_lock() == task.holder.liveness_lock();
    let left = lease.remaining(step.now()).unwrap_or_default();
    if same && left < task.ttl && lease.token != Token::NONE {
        let holder = lease.holder.clone();
        extend(step, &lease, holder, task.ttl)?;
    }
    Ok(())
}

/// Releases the section if its runner has nothing left to do in it. `with` is the liveness lock of the runner, if its task's
/// lease is still on record.
pub(super) fn leave_section<S: TaskStep>(
    step: &mut S,
    task: &Task,
    by: &HolderId,
    with: Option<&LivenessId>,
    change: &Change,
) -> Result<Option<Key>, S::Error> {
    let Some(section) = &task.section else {
        return Ok(None);
    };
    // A task that is put back is not its runner's work any more.
    let done_here = if change.status() == Status::Pending && !matches!(change, Change::Retry { .. })
    {
        !works_in(step, &section.id, by)?
    } else {
        !step.has_open(&section.id)?
    };
    if !done_here {
        return Ok(None);
    }
    let key = section_key(section)?;
    match step.leases(&key)?.into_iter().next() {
        Some((lease, _))
            if lease.holder.id == *by
                && lease
                    .holder
                    .liveness_lock()
                    .is_none_or(|lock| Some(lock) == with) =>
        {
            set_free(step, &lease)?;
            Ok(Some(key))
        }
        _ => Ok(None),
    }
}

/// Whether a runner holds a task of this section that is in progress.
fn works_in<S: TaskStep>(step: &mut S, section: &str, runner: &HolderId) -> Result<bool, S::Error> {
    for id in step.in_progress(section, runner)? {
        let leases = step.leases(&task_key(&id)?)?;
        if leases.iter().any(|(lease, _)| lease.holder.id == *runner) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Releases a task's lease and leaves its status alone; also releases the sections that are idle then.
pub fn abandon<S: TaskStep>(step: &mut S, lease: &Lease) -> Result<(), S::Error> {
    let view = engine::view(step, &lease.key, None)?;
    if decide::release(&view, &lease.grant()).is_some() {
        set_free(step, lease)?;
    }
    leave_idle_sections(step, &lease.holder)
}

/// Releases every section that a holder has without working in it: it works elsewhere, or found
/// nothing to do, and would only keep others out.
pub fn leave_idle_sections<S: TaskStep>(step: &mut S, holder: &Holder) -> Result<(), S::Error> {
    let held = step.held_sections()?.into_iter();
    for (key, _) in held.filter(|(_, id)| *id == holder.id) {
        if let Some((lease, _)) = step.leases(&key)?.into_iter().next()
            && lease.holder.id == holder.id
            && lease.holder.liveness_lock() == holder.liveness_lock()
            && !works_in(step, key.id(), &holder.id)?
        {
            set_free(step, &lease)?;
        }
    }
    Ok(())
}

/// Fails while a runner holds the section, unless it is the caller's own lease that is tied to no process.
pub fn may_delete<S: TaskStep>(
    step: &mut S,
    section: &Section,
    caller: &HolderId,
) -> Result<(), S::Error> {
    let view = engine::view(step, &section_key(section)?, None)?;
    if ended_with_its_task(step, &section.id, &view)?.is_some() {
        return Ok(());
    }
    let Some((lease, liveness)) = view.leases.into_iter().next() else {
        return Ok(());
    };
    let ended = Verdict::on(step.now(), &lease, &liveness).ended().is_some();
    if !ended && (lease.holder.id != *caller || lease.holder.liveness_lock().is_some()) {
        let (section, lease) = (section.clone(), Box::new(lease));
        return Err(TaskError::SectionLocked { section, lease }.into());
    }
    Ok(())
}
