//! `tenure tasks next`: start the best ready task.

use std::time::Duration;

use serde_json::json;
use tenure::ask::{Progress, Tie};
use tenure::store::{Key, KeyKind, Moment, call_deadline};
use tenure::tasks::{AnyTask, Shortage, Status, Task, TaskError, TaskGuard, TaskQuery};
use tenure::text::duration;
use tenure::wire::{BusyJson, ErrorCode, StartedTaskJson, TimeJson};
use tenure::{Acquired, Ask, Busy, Tenure};

use super::grant;
use super::show::{describe, line};
use crate::answer::{Answer, Failure};
use crate::args::Global;
use crate::args::tasks::Next;
use crate::commands::acquire::proof;
use crate::context;
use crate::signals::Signals;
use crate::waiting::{self, WaitText, limit};
use crate::words;

pub(crate) fn next(global: &Global, next: &Next) -> Result<Answer, Failure> {
    let tenure = context::open_to_change(global)?;
    let mut ask = waiting::with_name(global, &tenure, tenure.ask_for_task()?)?
        .tied_to(next.pid.map_or(Tie::Nothing, Tie::Process));
    if global.holder.is_none() {
        ask = ask.named(context::caller(global)?.as_str())?;
    }
    if let Some(ttl) = next.ttl {
        ask = ask.ttl(ttl);
    }
    if next.resume {
        ask = ask.unless_done();
        if let Some(task_guard) = resumed(global, &tenure, &ask)? {
            return Ok(taken(global, &tenure, task_guard));
        }
    }
    if let Some(limit) = next.wait {
        let usual = tenure.config().locking.wait_timeout;
        ask = waiting::wait_for(ask, limit.unwrap_or(usual));
    }
    let task_guard = wait(global, &tenure, &mut Signals::catch()?, &ask)??;
    Ok(taken(global, &tenure, task_guard))
}

/// Waits for any task. Every outcome but a grant becomes the inner failure.
pub(super) fn wait(
    global: &Global,
    tenure: &Tenure,
    signals: &mut Signals,
    ask: &Ask<'_, AnyTask>,
) -> Result<Result<TaskGuard, Failure>, Failure> {
    grant::wait(
        global,
        tenure,
        signals,
        ("a task", NextTaskWait { tenure }),
        |cancel, observer| ask.next_watched(cancel, observer),
        |busy| none(global, tenure, busy),
    )
}

/// The task that the runner works on already, the most urgent of several, under a lease that lasts anew.
fn resumed(
    global: &Global,
    tenure: &Tenure,
    ask: &Ask<'_, AnyTask>,
) -> Result<Option<TaskGuard>, Failure> {
    let me = context::caller(global)?;
    let query = TaskQuery {
        status: Some(Status::InProgress),
        ..TaskQuery::default()
    };
    let found = tenure.tasks()?.tasks(&query, call_deadline())?;
    let mine = |task: &&Task| task.runner.as_ref() == Some(&me) && !task.elsewhere;
    for task in found.iter().filter(mine) {
        match ask.start(&task.id) {
            Ok(Acquired::Granted(task_guard)) => return Ok(Some(task_guard)),
            // Another runner took it over, finished it or deleted it since.
            Ok(_) | Err(tenure::Error::Task(_)) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(None)
}

fn taken(global: &Global, tenure: &Tenure, task_guard: TaskGuard) -> Answer {
    let now = tenure.clock().now();
    let lease = task_guard.lease();
    let (task, reason) = (task_guard.task(), task_guard.reason());
    let data = StartedTaskJson::new(&now, task, task_guard.was(), lease, reason);
    let text = if global.quiet {
        task.id.clone()
    } else {
        let mut lines = describe(&now, task);
        lines.push(line("Token", &lease.token.to_string()));
        lines.push(line("Expires", &words::expiry(&now, lease)));
        let rest = format!(
            "{} {}{}",
            words::short(&task.id),
            proof(global, lease),
            words::in_store(global.store.as_deref())
        );
        let longest = "release".len();
        for (name, verb, when) in [
            ("Next", "done", "when it is finished"),
            ("", "renew", "before it expires"),
            ("", "fail", "if it can't be done"),
            ("", "release", "to leave it to another runner"),
        ] {
            let gap = " ".repeat(3 + longest - verb.len());
            lines.push(line(
                name,
                &format!("tenure tasks {verb} {rest}{gap}{when}"),
            ));
        }
        lines.join("\n")
    };
    let undo = grant::undo(tenure, &task_guard);
    task_guard.leave_standing();
    Answer::new(data, text).or_undo(undo)
}

/// Why no task was started.
fn none(global: &Global, tenure: &Tenure, busy: &Busy) -> Result<Failure, Failure> {
    let me = context::caller(global)?;
    let now = tenure.clock().now();
    let (code, message) = match busy.shortage {
        Some(Shortage::NothingLeft) | None => (
            ErrorCode::NoTaskLeft,
            "no task is left: add one with tenure tasks add".to_owned(),
        ),
        Some(Shortage::Blocked) => {
            let example = blocked_example(tenure)?;
            let message = format!(
                "no task is ready: the tasks that are left wait for tasks that no runner works on{example}"
            );
            (ErrorCode::TasksBlocked, message)
        }
        Some(Shortage::LeftToOthers) => (
            ErrorCode::TasksLeft,
            "no other task is ready: the tasks that are left were put back or taken away, so this runner leaves them to others".to_owned(),
        ),
        Some(Shortage::Later { at }) => {
            let message = format!("no task is ready yet: a failed one is retried at {}", words::time(at));
            let details = json!({ "notBefore": TimeJson(at) });
            return Ok(Failure::new(ErrorCode::TasksLater, message).details(details));
        }
        Some(Shortage::Locked) => {
            let message = match busy.lease() {
                None => "every ready task is about to be granted to a waiting runner".to_owned(),
                Some((lease, _)) if lease.holder.id == me => format!(
                    "no other task is ready: you already hold {}, {}",
                    named(tenure, &lease.key),
                    words::lasts(&now, lease)
                ),
                Some((lease, _)) => format!(
                    "other runners hold every ready task: {} is held by {}, {}",
                    named(tenure, &lease.key),
                    lease.holder,
                    words::lasts(&now, lease)
                ),
            };
            let (timed_out, what) = match busy.position {
                Some(_) => ("the wait timed out: ", "to wait longer: --wait 2h"),
                None => ("", "to wait for one: --wait 10m"),
            };
            let message = format!("{timed_out}{message}\n  {what}; to look: tenure locks list");
            let details = BusyJson::new(&now, busy);
            return Ok(Failure::new(ErrorCode::TasksLocked, message).details(details));
        }
    };
    Ok(Failure::new(code, message))
}

/// The title of a task or the name of a section.
fn named(tenure: &Tenure, key: &Key) -> String {
    let found = match (tenure.tasks(), key.kind()) {
        (Ok(tasks), KeyKind::Task(id)) => {
            let task = tasks.find_task(id, call_deadline()).ok();
            task.map(|task| format!("task {}", words::title(&task)))
        }
        (Ok(tasks), KeyKind::Section(id)) => {
            let section = tasks.find_section(id, call_deadline()).ok();
            section.map(|section| format!("section \"{}\"", section.name))
        }
        _ => None,
    };
    found.unwrap_or_else(|| key.to_string())
}

/// One of the blocked tasks, and what it waits for; empty if there is none any more.
fn blocked_example(tenure: &Tenure) -> Result<String, Failure> {
    let tasks = tenure.tasks()?;
    for status in [Status::Pending, Status::InProgress] {
        let query = TaskQuery {
            status: Some(status),
            ..TaskQuery::default()
        };
        let found = tasks.tasks(&query, call_deadline())?;
        let Some(task) = found.into_iter().find(|task| task.blockers > 0) else {
            continue;
        };
        let mut before = Vec::new();
        for id in &task.depends_on {
            match tasks.find_task(id, call_deadline()) {
                Ok(other) if other.status.is_done() => {}
                Ok(other) => before.push(format!("{} ({})", words::title(&other), other.status)),
                // It was deleted, or another program removed it.
                Err(TaskError::Store(error)) => return Err(error.into()),
                Err(_) => before.push(format!("{id} (not found)")),
            }
        }
        if !before.is_empty() {
            let title = words::title(&task);
            let before = before.join(", ");
            return Ok(format!("\n  for example {title} waits for {before}"));
        }
    }
    Ok(String::new())
}

/// Waiting for any task.
struct NextTaskWait<'a> {
    tenure: &'a Tenure,
}

impl NextTaskWait<'_> {
    fn why(&self, progress: &Progress<'_>) -> String {
        let place = progress.busy.position.map_or_else(String::new, |position| {
            format!("{} in the queue: ", words::ordinal(position.ahead + 1))
        });
        let why = match progress.busy.shortage {
            Some(Shortage::NothingLeft) | None => "no task is left".to_owned(),
            Some(Shortage::Blocked) => {
                "the tasks that are left wait for tasks that no runner works on".to_owned()
            }
            Some(Shortage::LeftToOthers) => {
                "the tasks that are left are left to other runners".to_owned()
            }
            Some(Shortage::Later { at }) => {
                format!("a failed one is retried at {}", words::time(at))
            }
            Some(Shortage::Locked) => match progress.busy.lease() {
                Some((lease, _)) => {
                    let what = named(self.tenure, &lease.key);
                    format!("{what} is held by {}", lease.holder)
                }
                None => "other runners are first in the queue".to_owned(),
            },
        };
        format!("{place}{why}")
    }
}

impl WaitText for NextTaskWait<'_> {
    fn started(&self, _: &Moment, progress: &Progress<'_>) -> Vec<String> {
        vec![format!(
            "tenure: waiting for a task to become ready, {}: {}",
            limit(progress),
            self.why(progress)
        )]
    }

    fn reminder(&self, _: &Moment, progress: &Progress<'_>) -> String {
        format!(
            "tenure: still waiting for a task after {} of {}: {}",
            words::elapsed(progress.elapsed),
            duration::format(progress.limit),
            self.why(progress)
        )
    }

    fn granted(&self, waited: Duration) -> String {
        format!("tenure: got a task after {}", words::elapsed(waited))
    }

    fn beside_bar(&self, progress: &Progress<'_>) -> String {
        self.why(progress)
    }
}
