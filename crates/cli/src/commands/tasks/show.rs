//! `tenure tasks show`: show one task.

use tenure::store::{Moment, call_deadline};
use tenure::tasks::{Cause, Past, Task};
use tenure::text::flat;
use tenure::wire::{LockJson, ShownTaskJson};

use super::state;
use crate::answer::{Answer, Failure};
use crate::args::Global;
use crate::context;
use crate::words;

/// How many former values are shown.
const PAST: usize = 10;

pub(super) fn show(global: &Global, given: &str) -> Result<Answer, Failure> {
    let tenure = context::open_existing(global)?;
    let tasks = tenure.tasks()?;
    let task = tasks.find_task(given, call_deadline())?;
    let now = tenure.clock().now();
    let snapshot = match task.key() {
        Ok(key) => Some(tenure.store().inspect(&key, call_deadline())?),
        Err(_) => None,
    };
    let dependents = tasks.dependents(&task.id, call_deadline())?;
    let mut before = Vec::new();
    for id in &task.depends_on {
        before.push(tasks.find_task(id, call_deadline())?);
    }
    let mut lines = describe(&now, &task);
    for (name, others) in [("Waits for", &before), ("Blocks", &dependents)] {
        lines.extend(listed(
            name,
            others.iter().map(|other| {
                let (title, status) = (flat(&other.title), other.status);
                format!("\"{title}\" ({status})")
            }),
        ));
    }
    for (lease, verdict) in snapshot.iter().flat_map(|snapshot| &snapshot.leases) {
        lines.push(line("Locked by", &words::held(&now, lease)));
        lines.push(line("Lock", &words::state(&now, lease, verdict)));
        lines.push(line("Expires", &words::expiry(&now, lease)));
        lines.push(line("Token", &lease.token.to_string()));
    }
    let past = tasks.task_history(&task.id, call_deadline())?;
    lines.extend(listed("History", past.iter().take(PAST).map(was)));
    if past.len() > PAST {
        let more = format!("({} more; --json shows all)", past.len() - PAST);
        lines.push(line("", &more));
    }
    let data = ShownTaskJson {
        task: (&task).into(),
        history: past.iter().map(Into::into).collect(),
        dependents: dependents.into_iter().map(|task| task.id).collect(),
        lock: snapshot
            .filter(|snapshot| !snapshot.leases.is_empty())
            .map(|snapshot| LockJson::new(&now, &snapshot)),
    };
    Ok(Answer::new(data, lines.join("\n")))
}

pub(super) fn line(name: &str, value: &str) -> String {
    if name.is_empty() {
        return format!("{:<13}{value}", "");
    }
    format!("{:<13}{value}", format!("{name}:"))
}

/// A line for each value, of which the first one has the name.
fn listed(
    name: &str,
    values: impl Iterator<Item = impl AsRef<str>>,
) -> impl Iterator<Item = String> {
    let names = std::iter::once(name).chain(std::iter::repeat(""));
    names
        .zip(values)
        .map(|(name, value)| line(name, value.as_ref()))
}

/// A task for people.
pub(super) fn describe(now: &Moment, task: &Task) -> Vec<String> {
    let mut lines = vec![
        line("Task", &flat(&task.title)),
        line("Id", &task.id),
        line("Status", &state(now, task)),
        line("Priority", &task.priority.to_string()),
    ];
    if let Some(section) = &task.section {
        lines.push(line("Section", &flat(&section.name)));
    }
    if let Some(description) = &task.description {
        lines.extend(listed("Description", description.lines()));
    }
    let (at, ago) = (
        words::time(task.created_at),
        words::ago(now, task.created_at),
    );
    lines.push(line("Added", &format!("{at} ({ago})")));
    if let Some(runner) = &task.runner {
        lines.push(line("Holder", runner.as_str()));
    }
    if task.attempts > 0 {
        let times = match task.attempts {
            1 => "once".to_owned(),
            count => format!("{count} times"),
        };
        lines.push(line("Failed", &times));
    }
    let error = task.last_error.as_deref().unwrap_or_default();
    lines.extend(listed("Last error", error.lines()));
    if let Some(at) = task.not_before.filter(|at| *at > now.wall) {
        lines.push(line("Retried at", &words::time(at)));
    }
    lines
}

/// A former value of a field, for people.
fn was(past: &Past) -> String {
    let Past {
        field, value, at, ..
    } = past;
    let first = value.lines().next().unwrap_or_default();
    let value = match first.char_indices().nth(60) {
        _ if value.is_empty() => "none".to_owned(),
        Some((end, _)) => format!("\"{}...\"", first.get(..end).unwrap_or(first)),
        None if first.len() < value.len() => format!("\"{first}...\""),
        None => format!("\"{first}\""),
    };
    let (at, until) = (words::time(*at), words::time(past.until));
    match past.cause {
        Cause::Changed => format!("{field} was {value} until {until}"),
        Cause::Merged => format!("{field} was {value} until {until} (changed in another clone)"),
        Cause::Overruled => {
            format!(
                "{field} {value}, set in another clone at {at}, was discarded at {until} (a later change won)"
            )
        }
    }
}
