//! `tenure tasks update`: start a task, finish it, or edit it.

use std::time::Duration;

use serde::Serialize;
use signal_hook::consts::SIGINT;
use tenure::ask::{Progress, Tie};
use tenure::store::{KeyKind, Lease, Moment, Reason, Token, call_deadline};
use tenure::tasks::{Change, Edit, Proof, Status, Task, TaskGuard};
use tenure::text::{duration, flat};
use tenure::wire::{BusyJson, ChangedTaskJson, ErrorCode, StartedTaskJson, TaskJson};
use tenure::{Acquired, Busy, Tenure};

use super::{ids, section_to_change, to_change};
use crate::answer::{Answer, Failure, remark};
use crate::args::Global;
use crate::args::tasks::{Held, Update};
use crate::commands::renew::renew_key;
use crate::context;
use crate::signals::Signals;
use crate::waiting::{self, RELEASED, WaitDisplay, WaitText, limit, locked, situation};
use crate::words;

pub(crate) fn update(global: &Global, update: &Update) -> Result<Answer, Failure> {
    let tenure = context::open_to_change(global)?;
    let task = to_change(global, &tenure, &update.task)?;
    let edit = edit(global, &tenure, update)?;
    let usage = |message: &str| Err(Failure::new(ErrorCode::Usage, message));
    if update.error.is_some() && update.status != Some(Status::Failed) {
        return usage("--error says why a task failed: give it with --status failed");
    }
    match update.status {
        None if edit.is_empty() => usage(
            "nothing to change: give --status, --title, --description, --section, --priority or --depends-on",
        ),
        None => Ok(edited(
            global,
            &tenure
                .tasks()?
                .edit_task(&task.id, &edit, call_deadline())?,
        )),
        Some(Status::InProgress) if edit.is_empty() => start(global, &tenure, &task, update),
        Some(Status::InProgress) => usage(
            "--status in_progress takes no other changes: make them with another command, before or after",
        ),
        Some(status) => finish(global, &tenure, &task, update, &edit, status),
    }
}

fn edit(global: &Global, tenure: &Tenure, update: &Update) -> Result<Edit, Failure> {
    let section = match update.section.as_deref() {
        None => None,
        Some("") => Some(String::new()),
        Some(given) => Some(section_to_change(tenure, given)?),
    };
    Ok(Edit {
        title: update.title.clone(),
        description: update.description.clone(),
        section,
        priority: update.priority,
        add_dependencies: ids(global, tenure, &update.depends_on)?,
        drop_dependencies: ids(global, tenure, &update.no_depends_on)?,
    })
}

fn edited(global: &Global, task: &Task) -> Answer {
    let text = if global.quiet {
        String::new()
    } else {
        format!("Task {} updated.", words::title(task))
    };
    Answer::new(TaskJson::from(task), text)
}

/// The token of the lease that this command runs under, if it is a lease of this task.
fn own_token(task: &Task) -> Option<Token> {
    let id = std::env::var("TENURE_TASK_ID").ok()?;
    let token = std::env::var("TENURE_TASK_TOKEN").ok()?.parse().ok()?;
    (id == task.id).then_some(Token(token))
}

/// How the caller proves that it holds the task.
fn proof(global: &Global, task: &Task, update: &Update) -> Result<Proof, Failure> {
    if let Some(token) = update.token.map(Token).or_else(|| own_token(task)) {
        return Ok(Proof::Token(token));
    }
    Ok(Proof::Name(context::caller(global)?))
}

/// Extends the leases of a task and its section.
pub(crate) fn renew(
    global: &Global,
    held: &Held,
    ttl: Option<Duration>,
) -> Result<Answer, Failure> {
    let tenure = context::open_existing(global)?;
    let task = to_change(global, &tenure, &held.task)?;
    let token = held.token.or(own_token(&task).map(|token| token.0));
    renew_key(global, &tenure, &task.key()?, token, ttl)
}

fn finish(
    global: &Global,
    tenure: &Tenure,
    task: &Task,
    update: &Update,
    edit: &Edit,
    status: Status,
) -> Result<Answer, Failure> {
    let tasks = tenure.tasks()?;
    let change = match &update.error {
        Some(error) => Change::Failed {
            error: error.clone(),
        },
        None => Change::To(status),
    };
    let proof = proof(global, task, update)?;
    let changed = tasks.change(&task.id, &proof, &change, edit, call_deadline());
    let changed = changed.map_err(|error| {
        let failure = Failure::from(error);
        // A shell that runs only this command is not the runner that started the task.
        match &proof {
            Proof::Name(name) if failure.code == ErrorCode::TaskLocked && global.holder.is_none() => {
                failure.hint(format!(
                    "you are {name}: name the runner with --as or TENURE_HOLDER, or prove the lease with --token"
                ))
            }
            _ => failure,
        }
    })?;
    let text = if global.quiet {
        String::new()
    } else {
        let task = &changed.task;
        format!(
            "Task {} status updated to {}.",
            words::title(task),
            task.status
        )
    };
    Ok(Answer::new(ChangedTaskJson::from(&changed), text))
}

fn start(
    global: &Global,
    tenure: &Tenure,
    task: &Task,
    update: &Update,
) -> Result<Answer, Failure> {
    if own_token(task) == Some(task.token) && task.status == Status::InProgress {
        // tenure started this command for this task.
        return Ok(started_text(global, task, TaskJson::from(task)));
    }
    let ask = waiting::with_name(global, tenure, tenure.ask_for_task()?)?
        .tied_to(update.pid.map_or(Tie::Nothing, Tie::Process))
        .priority(task.priority);
    let ask = match &global.holder {
        Some(_) => ask,
        // No other shell has this name, so it may resume its queue position.
        None => ask.named(context::caller(global)?.as_str())?,
    };
    // A caller that asks for a finished task wants to begin it again; any other wants it only if it is
    // not finished meanwhile.
    let ask = if task.status.is_finished() {
        ask
    } else {
        ask.unless_done()
    };
    let ask = waiting::with_patience(tenure, ask, &update.waits);
    let mut signals = Signals::catch()?;
    let mut display = WaitDisplay::new(global, tenure.clock(), TaskWait { tenure, task });
    let (outcome, signal) = waiting::watched(&mut signals, &mut display, |cancel, observer| {
        ask.start_watched(&task.id, cancel, observer)
    })?;
    display.finish(matches!(outcome, Acquired::Granted(_)) && signal.is_none());
    let what = format!("task {}", words::title(task));
    match outcome {
        Acquired::Granted(task_guard) if signal.is_some() => {
            let signal = signal.unwrap_or(SIGINT);
            put_back(task_guard)?;
            Err(waiting::interrupted(
                &what,
                &display,
                signal,
                "released it again",
            ))
        }
        Acquired::Granted(task_guard) => {
            if task_guard.was() != task.status && !task_guard.was().is_open() {
                let note = format!(
                    "it was set to {} while this command waited",
                    task_guard.was()
                );
                remark(global, &note);
            }
            Ok(started_answer(global, tenure, task_guard))
        }
        Acquired::Busy(busy) => Err(missed(global, tenure, task, &busy)),
        Acquired::Deadlock(cycle) => Err(waiting::deadlock(&what, &cycle)),
        Acquired::Cancelled => {
            let signal = signal.unwrap_or(SIGINT);
            let place = waiting::place_after(global, tenure, signal);
            Err(waiting::interrupted(&what, &display, signal, &place))
        }
    }
}

/// Sets a task back to the status that it had before it was started.
fn put_back(task_guard: TaskGuard) -> Result<(), Failure> {
    let change = put_back_to(task_guard.was());
    task_guard.finish(&change)?;
    Ok(())
}

fn put_back_to(was: Status) -> Change {
    match was {
        Status::Pending | Status::InProgress => Change::GiveBack,
        other => Change::To(other),
    }
}

fn started_answer(global: &Global, tenure: &Tenure, task_guard: TaskGuard) -> Answer {
    let now = tenure.clock().now();
    let (lease, reason) = (task_guard.lease(), task_guard.reason());
    let data = StartedTaskJson::new(&now, task_guard.task(), task_guard.was(), lease, reason);
    let task = task_guard.task().clone();
    let undo = undo(tenure, &task_guard);
    task_guard.leave_standing();
    let answer = started_text(global, &task, data);
    if reason == Reason::AlreadyOwned {
        return answer;
    }
    answer.or_undo(undo)
}

/// Undoes the start of a task. For an answer that cannot be written: the caller would not know that it
/// holds the task.
pub(super) fn undo(tenure: &Tenure, task_guard: &TaskGuard) -> impl FnOnce() + use<> {
    let (id, proof) = (
        task_guard.task().id.clone(),
        Proof::Token(task_guard.token()),
    );
    let change = put_back_to(task_guard.was());
    let tasks = tenure.tasks().ok().cloned();
    move || {
        if let Some(tasks) = tasks {
            let _ = tasks.change(&id, &proof, &change, &Edit::default(), call_deadline());
        }
    }
}

fn started_text(global: &Global, task: &Task, data: impl Serialize) -> Answer {
    let text = if global.quiet {
        String::new()
    } else {
        format!("Task {} status updated to in_progress.", words::title(task))
    };
    Answer::new(data, text)
}

/// A task that could not be started, in the words of the protocol.
fn missed(global: &Global, tenure: &Tenure, task: &Task, busy: &Busy) -> Failure {
    let own = task_lease(tenure, task);
    let held = busy
        .leases
        .iter()
        .find(|(_, verdict)| verdict.ended().is_none());
    let failure = match (held, busy.key.kind(), own) {
        // The holder of the section works on this task.
        (Some((lease, _)), KeyKind::Section(_), Some(own)) if own.holder.id == lease.holder.id => {
            words::task_locked(task, &own)
        }
        (Some((lease, _)), KeyKind::Section(_), _) => words::section_locked(task, lease),
        (Some((lease, _)), _, _) => words::task_locked(task, lease),
        (None, _, _) => {
            let now = tenure.clock().now();
            let message = words::busy(&now, busy.key.as_str(), busy);
            Failure::new(ErrorCode::TaskLocked, message).details(BusyJson::new(&now, busy))
        }
    };
    waiting::timed_out(global, tenure, busy, failure)
}

/// The lease on the task itself, if it is held.
fn task_lease(tenure: &Tenure, task: &Task) -> Option<Lease> {
    let snapshot = tenure
        .store()
        .inspect(&task.key().ok()?, call_deadline())
        .ok()?;
    let mut held = snapshot.leases.into_iter();
    held.find(|(_, verdict)| verdict.ended().is_none())
        .map(|(lease, _)| lease)
}

/// Waiting for a task.
struct TaskWait<'a> {
    tenure: &'a Tenure,
    task: &'a Task,
}

impl TaskWait<'_> {
    fn what(&self, progress: &Progress<'_>) -> String {
        let own = task_lease(self.tenure, self.task);
        match (progress.busy.key.kind(), &self.task.section) {
            (KeyKind::Section(_), Some(section)) if own.is_none() => {
                format!("Section \"{}\"", flat(&section.name))
            }
            _ => format!("Task {}", words::title(self.task)),
        }
    }
}

impl WaitText for TaskWait<'_> {
    fn started(&self, now: &Moment, progress: &Progress<'_>) -> Vec<String> {
        locked(
            &self.what(progress),
            &limit(progress),
            &situation(now, progress),
        )
    }

    fn reminder(&self, now: &Moment, progress: &Progress<'_>) -> String {
        format!(
            "{} of {} still waiting: {}",
            words::elapsed(progress.elapsed),
            duration::format(progress.limit),
            situation(now, progress)
        )
    }

    fn granted(&self, _: Duration) -> String {
        RELEASED.to_owned()
    }
}
