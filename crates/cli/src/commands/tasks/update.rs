//! `tenure tasks update`: start a task, finish it, or edit it.

use std::time::Duration;

use serde::Serialize;
use tenure::ask::{Progress, Tie};
use tenure::store::{KeyKind, Lease, Moment, Reason, Token, call_deadline};
use tenure::tasks::{Change, Edit, Proof, Status, Task, TaskGuard};
use tenure::text::{duration, flat};
use tenure::wire::{BusyJson, ChangedTaskJson, ErrorCode, StartedTaskJson, TaskJson};
use tenure::{Busy, Tenure};

use super::{grant, ids, section_to_change, to_change};
use crate::answer::{Answer, Failure, remark};
use crate::args::Global;
use crate::args::tasks::{HeldTask, Update};
use crate::commands::renew::renew_key;
use crate::context;
use crate::signals::Signals;
use crate::waiting::{self, RELEASED, WaitText, limit, locked, situation};
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
        None => {
            let tasks = tenure.tasks()?;
            let task = tasks.edit_task(&task.id, &edit, call_deadline())?;
            let text = format!("Task {} updated.", words::title(&task));
            Ok(Answer::confirmed(global, TaskJson::from(&task), text))
        }
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

/// The token of the lease that this command runs under, if it is a lease of this task.
fn own_token(task: &Task) -> Option<Token> {
    let id = std::env::var("TENURE_TASK_ID").ok()?;
    let token = std::env::var("TENURE_TASK_TOKEN").ok()?.parse().ok()?;
    (id == task.id).then_some(Token(token))
}

/// Extends the leases of a task and its section.
pub(crate) fn renew(
    global: &Global,
    held: &HeldTask,
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
    let proof = match update.token.map(Token).or_else(|| own_token(task)) {
        Some(token) => Proof::Token(token),
        None => Proof::Name(context::caller(global)?),
    };
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
    let (title, status) = (words::title(&changed.task), changed.task.status);
    let text = format!("Task {title} status updated to {status}.");
    let data = ChangedTaskJson::from(&changed);
    Ok(Answer::confirmed(global, data, text))
}

fn start(
    global: &Global,
    tenure: &Tenure,
    task: &Task,
    update: &Update,
) -> Result<Answer, Failure> {
    if own_token(task) == Some(task.token) && task.status == Status::InProgress {
        // tenure started this command for this task.
        return Ok(in_progress(global, task, TaskJson::from(task)));
    }
    let mut ask = waiting::with_name(global, tenure, tenure.ask_for_task()?)?
        .tied_to(update.pid.map_or(Tie::Nothing, Tie::Process))
        .priority(task.priority);
    if global.holder.is_none() {
        // No other shell has this name, so it may resume its queue position.
        ask = ask.named(context::caller(global)?.as_str())?;
    }
    // A caller that asks for a finished task wants to begin it again; any other wants it only if it is
    // not finished meanwhile.
    if !task.status.is_finished() {
        ask = ask.unless_done();
    }
    let ask = waiting::with_patience(tenure, ask, &update.waits);
    let mut signals = Signals::catch()?;
    let what = format!("task {}", words::title(task));
    let text = TaskWait { tenure, task };
    let granted = grant::wait(
        global,
        tenure,
        &mut signals,
        (&what, text),
        |cancel, observer| ask.start_watched(&task.id, cancel, observer),
        |busy| Ok(missed(global, tenure, task, busy)),
    );
    let task_guard = granted??;
    let was = task_guard.was();
    if was != task.status && !was.is_open() {
        remark(
            global,
            &format!("it was set to {was} while this command waited"),
        );
    }
    Ok(started(global, tenure, task_guard))
}

fn started(global: &Global, tenure: &Tenure, task_guard: TaskGuard) -> Answer {
    let now = tenure.clock().now();
    let (task, was) = (task_guard.task(), task_guard.was());
    let (lease, reason) = (task_guard.lease(), task_guard.reason());
    let data = StartedTaskJson::new(&now, task, was, lease, reason);
    let answer = in_progress(global, task, data);
    let undo = grant::undo(tenure, &task_guard);
    task_guard.leave_standing();
    if reason == Reason::AlreadyOwned {
        return answer;
    }
    answer.or_undo(undo)
}

fn in_progress(global: &Global, task: &Task, data: impl Serialize) -> Answer {
    let text = format!("Task {} status updated to in_progress.", words::title(task));
    Answer::confirmed(global, data, text)
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
