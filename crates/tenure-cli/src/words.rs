//! Sentences about leases and tasks, the same in every command.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use tenure::core::{Busy, Lease, Moment, Presence, Snapshot, Task, Verdict, Waiter};
use tenure::duration;
use tenure::wire::ErrorCode;

use crate::answer::Failure;

/// A time for programs and people alike.
pub(crate) fn time(at: Timestamp) -> String {
    format!("{at:.3}")
}

/// How long ago.
pub(crate) fn ago(now: &Moment, at: Timestamp) -> String {
    let age = Duration::try_from(now.wall.duration_since(at)).unwrap_or_default();
    format!("{} ago", duration::format(whole(age)))
}

/// Rounded down to whole seconds, or to milliseconds below one second.
pub(crate) fn whole(duration: Duration) -> Duration {
    if duration < Duration::from_secs(1) {
        Duration::from_millis(u64::try_from(duration.as_millis()).unwrap_or(0))
    } else {
        Duration::from_secs(duration.as_secs())
    }
}

/// A duration in words.
pub(crate) fn elapsed(duration: Duration) -> String {
    duration::format(whole(duration))
}

/// A word quoted for a shell.
pub(crate) fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || "-_./:=@%+,".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        return word.to_owned();
    }
    format!("'{}'", word.replace('\'', "'\\''"))
}

/// A `tenure locks` command about a key, in the store that is named, or in the project's own.
pub(crate) fn locks_command(subcommand: &str, key: &str, store: Option<&str>) -> String {
    let store = store.map_or_else(String::new, |url| format!(" --store {}", quoted(url)));
    format!("tenure locks {subcommand} {}{store}", quoted(key))
}

/// 1st, 2nd, 3rd, 4th.
pub(crate) fn ordinal(number: usize) -> String {
    let suffix = match (number % 10, number % 100) {
        (1, rest) if rest != 11 => "st",
        (2, rest) if rest != 12 => "nd",
        (3, rest) if rest != 13 => "rd",
        _ => "th",
    };
    format!("{number}{suffix}")
}

/// The holder, and since when it holds the lease.
pub(crate) fn held(now: &Moment, lease: &Lease) -> String {
    format!(
        "{} since {}, {}",
        lease.holder,
        time(lease.acquired_at),
        ago(now, lease.acquired_at)
    )
}

/// The time a lease has left, or how it ended.
pub(crate) fn until(now: &Moment, lease: &Lease, verdict: &Verdict) -> String {
    match verdict {
        Verdict::Dead(_) | Verdict::Expired(_) | Verdict::Malformed => verdict.to_string(),
        Verdict::Alive | Verdict::Unknown(_) => match (&lease.expires, lease.remaining(now)) {
            (None, _) => "no end".into(),
            (_, Some(left)) => duration::format(whole(left)),
            (_, None) => "its command still runs".into(),
        },
    }
}

/// What is known of a holder, in parentheses.
pub(crate) fn evidence(verdict: &Verdict) -> String {
    match verdict {
        Verdict::Alive => "the holder is alive".to_owned(),
        Verdict::Unknown(doubt) => doubt.to_string(),
        Verdict::Dead(_) | Verdict::Expired(_) | Verdict::Malformed => verdict.to_string(),
    }
}

/// The state of a lease in one line.
pub(crate) fn state(now: &Moment, lease: &Lease, verdict: &Verdict) -> String {
    match verdict {
        Verdict::Unknown(_) if lease.expires.is_some() => {
            format!("held until {} ({})", end(now, lease), evidence(verdict))
        }
        Verdict::Alive | Verdict::Unknown(_) => format!("held ({})", evidence(verdict)),
        Verdict::Dead(_) | Verdict::Expired(_) | Verdict::Malformed => verdict.to_string(),
    }
}

/// When a lease ends, after the word "until".
pub(crate) fn end(now: &Moment, lease: &Lease) -> String {
    expires_at(now, lease).unwrap_or_else(|| "its process ends".to_owned())
}

/// When a lease expires; `None` for one that has no end.
pub(crate) fn expires_at(now: &Moment, lease: &Lease) -> Option<String> {
    let end = lease.expires.as_ref()?;
    Some(time(end.shown(now)))
}

/// The same as it was written down, for messages that a protocol prescribes.
pub(crate) fn recorded_end(lease: &Lease) -> String {
    let end = lease.expires.as_ref();
    end.map_or_else(|| "no end".to_owned(), |end| time(end.wall))
}

/// The message and details of a busy key.
pub(crate) fn busy(now: &Moment, key: &str, busy: &Busy) -> (String, Value) {
    let mut lines = Vec::new();
    match busy.lease() {
        Some((lease, verdict)) if verdict.ended().is_none() => {
            lines.push(format!("{key} is locked by {}", held(now, lease)));
            if let Some(command) = &lease.holder.command {
                lines.push(format!("  it runs: {command}"));
            }
            let renewed = if lease.holder.liveness_lock().is_some() {
                " (renewed while its command runs)"
            } else {
                ""
            };
            // A lock without an end has no line about it.
            if let Some(end) = expires_at(now, lease) {
                lines.push(format!("  Lock expires at: {end}{renewed}"));
            }
        }
        _ => {
            let next = busy
                .behind
                .as_ref()
                .map_or_else(|| "the first in the queue".to_owned(), ToString::to_string);
            lines.push(format!("{key} is about to be granted to {next}"));
        }
    }
    if busy.waiting > 0 {
        lines.push(format!("  {} in the queue", busy.waiting));
    }
    let lease = busy.lease();
    let details = json!({
        "key": key,
        "lockedBy": lease.map(|(lease, _)| lease.holder.id.as_str()),
        "pid": lease.and_then(|(lease, _)| lease.holder.process()).map(|process| process.pid),
        "host": lease.map(|(lease, _)| lease.holder.host.as_str()),
        "command": lease.and_then(|(lease, _)| lease.holder.command.as_deref()),
        "token": lease.map(|(lease, _)| lease.token),
        "acquiredAt": lease.map(|(lease, _)| time(lease.acquired_at)),
        "expiresAt": lease.and_then(|(lease, _)| expires_at(now, lease)),
        "verdict": lease.map(|(_, verdict)| verdict.word()),
        "waiting": busy.waiting,
        "place": busy.position.map(|place| place.ahead + 1),
    });
    (lines.join("\n"), details)
}

/// A lease for programs.
pub(crate) fn lease_json(now: &Moment, lease: &Lease, verdict: &Verdict) -> Value {
    json!({
        "key": lease.key,
        "holder": lease.holder.id,
        "token": lease.token,
        "verdict": verdict.word(),
        "why": verdict.to_string(),
        "evidence": verdict.ended(),
        "acquiredAt": time(lease.acquired_at),
        "expiresAt": expires_at(now, lease),
        "heartbeatAt": time(lease.heartbeat_at),
        "remainingSeconds": remaining_seconds(now, lease),
        "host": lease.holder.host,
        "pid": lease.holder.process().map(|process| process.pid),
        "command": lease.holder.command,
    })
}

/// The whole seconds a lease has left; `None` for one that has no end.
pub(crate) fn remaining_seconds(now: &Moment, lease: &Lease) -> Option<u64> {
    lease.expires.as_ref()?;
    Some(lease.remaining(now).map_or(0, |left| left.as_secs()))
}

/// A snapshot for programs.
pub(crate) fn snapshot_json(now: &Moment, snapshot: &Snapshot) -> Value {
    let mut value = match snapshot.lease() {
        Some((lease, verdict)) => lease_json(now, lease, verdict),
        None => json!({ "key": snapshot.key, "holder": null, "verdict": "free" }),
    };
    if let Value::Object(fields) = &mut value {
        let waiters = snapshot.queue.iter().map(waiter_json).collect::<Vec<_>>();
        fields.insert("queue".into(), Value::Array(waiters));
    }
    value
}

fn waiter_json(waiter: &Waiter) -> Value {
    json!({
        "holder": waiter.holder.id,
        "ticket": waiter.ticket,
        "priority": waiter.priority,
        "here": waiter.presence == Presence::Here,
        "pid": waiter.holder.process().map(|process| process.pid),
        "host": waiter.holder.host,
    })
}

/// An id as lists show it: the first group of a UUID.
pub(crate) fn short(id: &str) -> &str {
    match id.split_once('-') {
        Some((first, _)) if id.len() == 36 && first.len() == 8 => first,
        _ => id,
    }
}

/// A task in one line.
pub(crate) fn task_line(task: &Task) -> String {
    let section = task.section.as_ref();
    let section = section.map_or_else(String::new, |section| format!(", in {}", section.name));
    format!(
        "  {}  \"{}\" ({}{section})",
        task.id, task.title, task.status
    )
}

/// A task for programs.
pub(crate) fn task_json(task: &Task) -> Value {
    json!({
        "id": task.id,
        "title": task.title,
        "description": task.description,
        "section": task.section.as_ref().map(|section| &section.name),
        "sectionId": task.section.as_ref().map(|section| &section.id),
        "status": task.status,
        "priority": task.priority,
        "dependsOn": task.depends_on,
        "waitsFor": task.blockers,
        "attempts": task.attempts,
        "lastError": task.last_error,
        "notBefore": task.not_before.map(time),
        "runner": task.runner,
        "elsewhere": task.elsewhere,
        "createdAt": time(task.created_at),
        "updatedAt": time(task.updated_at),
    })
}

/// A task that another runner holds, in the words of the protocol.
pub(crate) fn task_locked(task: &Task, lease: &Lease) -> Failure {
    let until = recorded_end(lease);
    let text = format!(
        "Task \"{}\" is locked by runner {}\nLock expires at: {until}",
        task.title, lease.holder.id
    );
    let details = json!({
        "taskId": task.id, "lockedBy": lease.holder.id, "expiresAt": until,
    });
    Failure::new(ErrorCode::TaskLocked, "Task is locked by another runner")
        .text(text)
        .details(details)
}

/// A task whose section another runner holds, in the words of the protocol.
pub(crate) fn section_locked(task: &Task, lease: &Lease) -> Failure {
    let until = recorded_end(lease);
    let (id, name) = match &task.section {
        Some(section) => (section.id.as_str(), section.name.as_str()),
        None => (lease.key.id(), lease.key.id()),
    };
    let text = format!(
        "Section \"{name}\" of task \"{}\" is locked by runner {}\nLock expires at: {until}",
        task.title, lease.holder.id
    );
    let details = json!({
        "taskId": task.id, "sectionId": id, "lockedBy": lease.holder.id, "expiresAt": until,
    });
    Failure::new(
        ErrorCode::SectionLocked,
        "Section is locked by another runner",
    )
    .text(text)
    .details(details)
}

/// A task that another runner took over from the caller.
pub(crate) fn task_lost(task: &Task, lease: Option<&Lease>) -> Failure {
    let who = match lease {
        Some(lease) => format!(
            "it is held by {} now, with token {}, until {}",
            lease.holder,
            lease.token,
            recorded_end(lease)
        ),
        None => match &task.runner {
            Some(runner) => format!(
                "{runner} got it with token {}, and it is {} now",
                task.token, task.status
            ),
            None => format!("it is {} now", task.status),
        },
    };
    let message = format!(
        "the lease on task \"{}\" was lost: {who}\n  nothing was changed; to see what happened: tenure locks history {}",
        task.title,
        quoted(&format!("task:{}", task.id))
    );
    let newest = lease.map_or(task.token, |lease| lease.token);
    let by = lease.map(|lease| &lease.holder.id);
    Failure::new(ErrorCode::LeaseLost, message).details(json!({
        "taskId": task.id,
        "lockedBy": by,
        "expiresAt": lease.map(recorded_end),
        "newestToken": newest,
        "status": task.status,
    }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_quoted_word_is_one_word_to_a_shell() {
        assert_eq!(quoted("task:1.2"), "task:1.2");
        assert_eq!(quoted(""), "''");
        assert_eq!(quoted("it's $(bad)"), "'it'\\''s $(bad)'");
    }

    #[test]
    fn ordinals_follow_english_rules() {
        let words: Vec<String> = [1, 2, 3, 4, 11, 12, 13, 21, 22, 103, 111]
            .into_iter()
            .map(ordinal)
            .collect();
        assert_eq!(
            words.join(" "),
            "1st 2nd 3rd 4th 11th 12th 13th 21st 22nd 103rd 111th"
        );
    }
}
