//! The grant of a task: waits for it, and gives it back where the caller can't have it.

use signal_hook::consts::SIGINT;
use tenure::ask::{Cancel, Progress};
use tenure::store::call_deadline;
use tenure::tasks::{Change, Edit, Proof, Status, TaskGuard};
use tenure::{Acquired, Busy, Tenure};

use crate::answer::Failure;
use crate::args::Global;
use crate::signals::Signals;
use crate::waiting::{self, WaitDisplay, WaitText};

/// Runs a request for a task and shows the wait. Every outcome but a grant becomes the inner failure.
pub(super) fn wait(
    global: &Global,
    tenure: &Tenure,
    signals: &mut Signals,
    (what, text): (&str, impl WaitText),
    ask: impl FnOnce(
        &Cancel,
        &mut dyn FnMut(Progress<'_>),
    ) -> Result<Acquired<TaskGuard>, tenure::Error>,
    refused: impl FnOnce(&Busy) -> Result<Failure, Failure>,
) -> Result<Result<TaskGuard, Failure>, Failure> {
    let mut display = WaitDisplay::new(global, tenure.clock(), text);
    let (outcome, signal) = waiting::watched(signals, &mut display, ask)?;
    display.finish(matches!(outcome, Acquired::Granted(_)) && signal.is_none());
    let stopped_by = signal.unwrap_or(SIGINT);
    let stopped = |then: &str| waiting::interrupted(what, &display, stopped_by, then);
    Ok(Err(match outcome {
        Acquired::Granted(task_guard) if signal.is_some() => {
            let change = put_back(&task_guard);
            task_guard.finish(&change)?;
            stopped("released it again")
        }
        Acquired::Granted(task_guard) => return Ok(Ok(task_guard)),
        Acquired::Busy(busy) => refused(&busy)?,
        Acquired::Deadlock(cycle) => waiting::deadlock(what, &cycle),
        Acquired::Cancelled => stopped(&waiting::place_after(global, tenure, stopped_by)),
    }))
}

/// What sets a task back to the status that it had before it was started.
fn put_back(task_guard: &TaskGuard) -> Change {
    match task_guard.was() {
        Status::Pending | Status::InProgress => Change::GiveBack,
        other => Change::To(other),
    }
}

/// Undoes the start of a task. For an answer that cannot be written: the caller would not know that it
/// holds the task.
pub(super) fn undo(tenure: &Tenure, task_guard: &TaskGuard) -> impl FnOnce() + use<> {
    let (id, change) = (task_guard.task().id.clone(), put_back(task_guard));
    let proof = Proof::Token(task_guard.token());
    let tasks = tenure.tasks().ok().cloned();
    move || {
        if let Some(tasks) = tasks {
            let _ = tasks.change(&id, &proof, &change, &Edit::default(), call_deadline());
        }
    }
}
