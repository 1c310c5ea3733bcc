//! A task follows its lease: what the engine's changes of a key mean for the tasks of a store.
//!
//! A store's step passes what [`Step::follow`](tenure_core::engine::Step::follow) is told to [`follow`], so every verb does
//! it, also those that know nothing of tasks.

use tenure_core::engine::{Ended, KeyChange, Then, Written};
use tenure_core::event::EventKind;
use tenure_core::holder::HolderId;
use tenure_core::key::{Key, KeyKind};
use tenure_core::verdict::Evidence;

use super::flow::wake_seekers;
use super::sections::renew_section;
use super::{ANY, TaskStep};

/// Records a grant in its task, renews the section of a renewed task, records that a task was taken over by force, and wakes
/// the runners that look for any task if a task or a section may be free.
pub fn follow<S: TaskStep>(step: &mut S, change: KeyChange<'_>) -> Result<(), S::Error> {
    match change {
        KeyChange::Written(lease, put) => match (put, task_of(&lease.key)) {
            (Written::Granted { .. }, Some(id)) => step.set_granted(id, lease),
            (Written::Renewed, Some(id)) => renew_section(step, id, lease),
            _ => Ok(()),
        },
        KeyChange::Ended(lease, how, then) => {
            if let Some(id) = task_of(&lease.key) {
                lease_ended(step, id, &lease.holder.id, how)?;
            }
            match then {
                Then::Free => left(step, &lease.key),
                Then::Granted => Ok(()),
            }
        }
        KeyChange::Left(key) => left(step, key),
    }
}

/// The id of the task whose key this is.
fn task_of(key: &Key) -> Option<&str> {
    match key.kind() {
        KeyKind::Task(id) if id != ANY => Some(id),
        _ => None,
    }
}

fn lease_ended<S: TaskStep>(
    step: &mut S,
    id: &str,
    holder: &HolderId,
    how: &Ended,
) -> Result<(), S::Error> {
    let evidence = match how {
        Ended::Released => None,
        Ended::Proven(evidence) => Some(evidence),
    };
    if matches!(evidence, Some(Evidence::Forced { .. })) {
        superseded(step, id, holder)?;
    }
    let ends_section =
        |one: &&Evidence| matches!(EventKind::of(one), EventKind::Expired | EventKind::Dead);
    step.set_last_end(id, evidence.filter(ends_section))
}

/// A key may be free for the runners that look for any task.
fn left<S: TaskStep>(step: &mut S, key: &Key) -> Result<(), S::Error> {
    match key.kind() {
        KeyKind::Task(_) | KeyKind::Section(_) => wake_seekers(step),
        KeyKind::Node(_) | KeyKind::Named(_) => Ok(()),
    }
}

/// The runners that a task was taken over from, after it was granted to `runner`. `unfinished` is the runner that had it
/// in progress.
pub fn lost_after_grant(
    unfinished: Option<&HolderId>,
    mut lost: Vec<HolderId>,
    runner: &HolderId,
) -> Vec<HolderId> {
    lost.retain(|name| name != runner);
    let before = unfinished.filter(|before| *before != runner && !lost.contains(before));
    let before = before.cloned();
    lost.extend(before);
    lost
}

/// Records that a task was taken over from a runner.
pub fn superseded<S: TaskStep>(step: &mut S, id: &str, runner: &HolderId) -> Result<(), S::Error> {
    let mut lost = step.lost(id)?;
    if !lost.contains(runner) {
        lost.push(runner.clone());
        step.set_lost(id, &lost)?;
    }
    Ok(())
}
