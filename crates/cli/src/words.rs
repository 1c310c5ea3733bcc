//! Sentences about leases and tasks, the same in every command.

use std::ffi::OsStr;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tenure::store::{Doubt, HolderId, Key, Lease, Moment, Verdict, Waiter};
use tenure::tasks::{Section, Task};
use tenure::text::{duration, flat};
pub(crate) use tenure::text::{quoted, quoted_bytes};
use tenure::wire::{ErrorCode, TaskLockedJson, TaskLostJson, TimeJson};
use tenure::{Busy, Mode};

use crate::answer::Failure;
use crate::args::Global;

/// Where the end of a lease would be, if it has none.
const NO_END: &str = "no end";

/// In place of a time that the record of another program does not tell.
const UNKNOWN: &str = "an unknown time";

/// A time for programs and people alike.
pub(crate) fn time(at: Timestamp) -> String {
    TimeJson(at).to_string()
}

/// How long ago.
pub(crate) fn ago(now: &Moment, at: Timestamp) -> String {
    format!("{} ago", age(now, at))
}

/// How much time has passed since then.
pub(crate) fn age(now: &Moment, at: Timestamp) -> String {
    elapsed(passed(now, at))
}

/// The time since then.
pub(crate) fn passed(now: &Moment, at: Timestamp) -> Duration {
    Duration::try_from(now.wall.duration_since(at)).unwrap_or_default()
}

/// How long ago, if the record tells.
pub(crate) fn ago_if_known(now: &Moment, at: Option<Timestamp>) -> String {
    at.map_or_else(|| "unknown".to_owned(), |at| ago(now, at))
}

/// The epoch of a cluster, whose machines share no clock but the wall clock: it is counted from 1970 on.
const OF_CLUSTER: &str = "etcd";

/// When a waiter arrived, by the wall clock.
pub(crate) fn arrived(now: &Moment, waiter: &Waiter) -> Timestamp {
    if waiter.epoch.0 == OF_CLUSTER {
        let since = SignedDuration::try_from(waiter.arrived).unwrap_or_default();
        let at = Timestamp::UNIX_EPOCH.checked_add(since).unwrap_or(now.wall);
        return at.min(now.wall);
    }
    let waited = if waiter.epoch.same(&now.epoch) {
        now.ticks.saturating_sub(waiter.arrived)
    } else {
        Duration::ZERO
    };
    let waited = SignedDuration::try_from(waited).unwrap_or_default();
    now.wall.checked_sub(waited).unwrap_or(now.wall)
}

/// Rounded down to whole seconds, or to milliseconds below one second.
fn whole(duration: Duration) -> Duration {
    if duration < Duration::from_secs(1) {
        Duration::from_millis(u64::try_from(duration.as_millis()).unwrap_or(0))
    } else {
        Duration::from_secs(duration.as_secs())
    }
}

/// A duration in one unit.
pub(crate) fn coarse(duration: Duration) -> String {
    let whole = duration.as_secs();
    match whole {
        0..60 => format!("{whole}s"),
        60..3600 => format!("{}m", whole / 60),
        3600..86_400 => format!("{}h", whole / 3600),
        _ => format!("{}d", whole / 86_400),
    }
}

/// A duration in words.
pub(crate) fn elapsed(duration: Duration) -> String {
    duration::format(whole(duration))
}

/// A `tenure locks` command about a key, in the store that is named, or in the project's own.
pub(crate) fn locks_command(subcommand: &str, key: &str, store: Option<&OsStr>) -> String {
    format!(
        "tenure locks {subcommand} {}{}",
        quoted(key),
        in_store(store)
    )
}

/// The command that takes a key from its holder, or only the lease of one holder. `store` is the option that names
/// the store, or nothing.
pub(crate) fn force_command(key: &str, of: Option<&HolderId>, store: &str) -> String {
    let of = of.map_or_else(String::new, |of| {
        format!(" --holder {}", quoted(of.as_str()))
    });
    format!("tenure force {}{of}{store}", quoted(key))
}

/// The option that names a store, after a command.
pub(crate) fn in_store(store: Option<&OsStr>) -> String {
    store.map_or_else(String::new, |url| format!(" --store {}", quoted_bytes(url)))
}

/// The option that names the holder, if this command line names it: a copied command needs it, too.
pub(crate) fn named(global: &Global) -> String {
    let set = tenure::who::given_in_environment().ok().flatten();
    let here = global
        .holder
        .as_ref()
        .filter(|holder| set.as_ref() != Some(holder));
    here.map_or_else(String::new, |holder| format!(" --as {}", quoted(holder)))
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

/// How a key is held, in a word or two.
pub(crate) fn mode(lease: &Lease) -> String {
    match (&lease.mode, lease.slot) {
        (Mode::Exclusive, _) => "held".to_owned(),
        (Mode::Slots(slots), Some(slot)) => format!("slot {slot} of {slots}"),
        (mode, _) => asked_mode(mode),
    }
}

/// What a lease or a waiter is about: a key, or paths.
pub(crate) fn subject(key: &Key, mode: &Mode) -> String {
    match mode.paths() {
        Some(_) => asked_mode(mode),
        None => key.to_string(),
    }
}

/// What is held, and how, if others may hold it, too.
pub(crate) fn held_subject(lease: &Lease) -> String {
    match lease.mode {
        Mode::Shared | Mode::Slots(_) => format!("{} ({})", lease.key, mode(lease)),
        Mode::Exclusive | Mode::Paths(_) => subject(&lease.key, &lease.mode),
    }
}

/// The verdict on a lease in a word or two.
pub(crate) fn verdict(verdict: &Verdict) -> &'static str {
    match verdict {
        Verdict::Unknown(Doubt::Detached) => "no process",
        other => other.word(),
    }
}

/// How a waiter is to hold a key: its mode, or its paths.
pub(crate) fn asked_mode(mode: &Mode) -> String {
    match mode.paths() {
        Some(paths) if paths.is_shared() => format!("{paths} (shared)"),
        Some(paths) => paths.to_string(),
        None => mode.to_string(),
    }
}

/// The holder, and since when it holds the lease.
pub(crate) fn held(now: &Moment, lease: &Lease) -> String {
    let holder = if lease.holder.id == HolderId::unreadable() {
        "a lock that names no holder".to_owned()
    } else {
        lease.holder.to_string()
    };
    format!("{holder} since {}", since(now, lease))
}

/// Since when a lease is held, and for how long that is.
pub(crate) fn since(now: &Moment, lease: &Lease) -> String {
    match lease.since() {
        Some(at) => format!("{}, {}", time(at), ago(now, at)),
        None => UNKNOWN.to_owned(),
    }
}

/// What a malformed lock tells, after the key that it is on.
pub(crate) fn malformed(now: &Moment, lease: &Lease) -> String {
    let names = if lease.holder.id == HolderId::unreadable() {
        "names no holder".to_owned()
    } else {
        format!("names {} as its holder", lease.holder.id)
    };
    format!(
        "has a malformed lock, which {names}, since {}",
        since(now, lease)
    )
}

/// Who holds a key, with which token; or that it is free.
pub(crate) fn holders<'a>(now: &Moment, leases: impl IntoIterator<Item = &'a Lease>) -> String {
    let holders: Vec<String> = leases
        .into_iter()
        .map(|lease| format!("{}, with token {}", held(now, lease), lease.token))
        .collect();
    if holders.is_empty() {
        return "the key is free now".to_owned();
    }
    format!("it is held by {}", holders.join(" and by "))
}

/// The time a lease has left, or how it ended.
pub(crate) fn until(now: &Moment, lease: &Lease, verdict: &Verdict) -> String {
    match (verdict, &lease.expires) {
        (Verdict::Dead(_) | Verdict::Expired(_) | Verdict::Malformed, _) => verdict.to_string(),
        (Verdict::Alive | Verdict::Unknown(_), None) => NO_END.to_owned(),
        (Verdict::Alive | Verdict::Unknown(_), Some(end)) => end
            .remaining(now)
            .map_or_else(|| "its command still runs".to_owned(), elapsed),
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
            format!("held until {} ({})", expiry(now, lease), evidence(verdict))
        }
        Verdict::Alive | Verdict::Unknown(_) => format!("held ({})", evidence(verdict)),
        Verdict::Dead(_) | Verdict::Expired(_) | Verdict::Malformed => verdict.to_string(),
    }
}

/// When a lease ends.
pub(crate) fn expiry(now: &Moment, lease: &Lease) -> String {
    match (lease.end(now), &lease.expires) {
        (Some(end), _) => time(end),
        (None, Some(_)) => "unknown".to_owned(),
        (None, None) => NO_END.to_owned(),
    }
}

/// When a lease ends, in a sentence: "until ...".
pub(crate) fn lasts(now: &Moment, lease: &Lease) -> String {
    match &lease.expires {
        Some(end) => format!("until {}", time(end.shown(now))),
        None if lease.holder.process().is_some() => {
            "with no end (until its process exits)".to_owned()
        }
        None => "with no end".to_owned(),
    }
}

/// Who has reserved something, until when and what for.
pub(crate) fn reserved(now: &Moment, what: &str, lease: &Lease) -> Vec<String> {
    let mut lines = vec![format!("{what} is reserved by {}", held(now, lease))];
    if let Some(why) = &lease.holder.command {
        lines.push(format!("  what for: {}", flat(why)));
    }
    lines.push(format!("  {}", lasts(now, lease)));
    lines
}

/// A list of keys: `a`, or `a, b and c`.
pub(crate) fn all_of<'a>(keys: impl IntoIterator<Item = &'a Key>) -> String {
    let mut keys: Vec<String> = keys.into_iter().map(ToString::to_string).collect();
    let last = keys.pop().unwrap_or_default();
    if keys.is_empty() {
        return last;
    }
    format!("{} and {last}", keys.join(", "))
}

/// Why a key is busy.
pub(crate) fn busy(now: &Moment, key: &str, busy: &Busy) -> String {
    let mut lines = Vec::new();
    let held = busy
        .leases
        .iter()
        .filter(|(_, verdict)| verdict.ended().is_none());
    for (lease, verdict) in held {
        if lease.mode.paths().is_some() {
            lines.extend(reserved(now, &asked_mode(&lease.mode), lease));
            continue;
        }
        // The lock of a task's section keeps other runners out of the task, too.
        let what = if lease.key.as_str() == key || lease.key == Key::paths() {
            quoted(key)
        } else {
            format!("{} (the section of {key})", lease.key)
        };
        if *verdict == Verdict::Malformed {
            lines.push(format!("{what} {}", malformed(now, lease)));
            lines.push(match lease.expires {
                Some(_) => format!("  Lock expires at: {}", expiry(now, lease)),
                None => "  waiting does not end it".to_owned(),
            });
            continue;
        }
        let mode = match lease.mode {
            Mode::Exclusive => String::new(),
            _ => format!(" ({})", mode(lease)),
        };
        let held = self::held(now, lease);
        lines.push(format!("{what} is locked by {held}{mode}"));
        if let Some(command) = &lease.holder.command {
            lines.push(format!("  it runs: {}", flat(command)));
        }
        let renewed = if lease.holder.liveness_lock().is_some() && lease.expires.is_some() {
            " (renewed while its command runs)"
        } else {
            ""
        };
        lines.push(format!(
            "  Lock expires at: {}{renewed}",
            expiry(now, lease)
        ));
    }
    if lines.is_empty() {
        let next = busy
            .behind
            .as_ref()
            .map_or_else(|| "the first in the queue".to_owned(), ToString::to_string);
        lines.push(format!("{} is about to be granted to {next}", quoted(key)));
    }
    if busy.waiting > 0 {
        lines.push(format!("  {} in the queue", busy.waiting));
    }
    for other in &busy.others {
        lines.push(self::busy(now, other.key.as_str(), other));
    }
    lines.join("\n")
}

/// Why a key was granted, from the word that stands for it in the history.
pub(crate) fn reason(word: &str) -> &str {
    match word {
        "acquired_new" => "the key was free",
        "already_owned" => "extended by its holder",
        "claimed_expired" => "taken over after it had expired",
        "claimed_dead" => "taken over from a dead holder",
        "upgraded" => "its holder had it in another mode",
        other => other,
    }
}

/// An id as lists show it: the first group of a UUID.
pub(crate) fn short(id: &str) -> &str {
    match id.split_once('-') {
        Some((first, _)) if id.len() == 36 && first.len() == 8 => first,
        _ => id,
    }
}

/// A task's title in quotes; its id if another program left the title empty.
pub(crate) fn title(task: &Task) -> String {
    titled(&task.id, &task.title)
}

/// The same for a task of which only the id and the title are known.
pub(crate) fn titled(id: &str, title: &str) -> String {
    if title.trim().is_empty() {
        return id.to_owned();
    }
    format!("\"{}\"", flat(title))
}

/// A task in one line.
pub(crate) fn task_line(task: &Task) -> String {
    let section = task.section.as_ref();
    let section = section.map_or_else(String::new, |section| {
        format!(", in {}", flat(&section.name))
    });
    format!(
        "  {}  \"{}\" ({}{section})",
        task.id,
        flat(&task.title),
        task.status
    )
}

/// A task that another runner holds, in the words of the protocol.
pub(crate) fn task_locked(task: &Task, lease: &Lease) -> Failure {
    let what = format!("Task {}", title(task));
    held_by_runner(&what, Some(task.id.clone()), None, lease)
}

/// A task whose section another runner holds, in the words of the protocol.
pub(crate) fn section_locked(task: &Task, lease: &Lease) -> Failure {
    let (id, name) = match &task.section {
        Some(section) => (section.id.as_str(), section.name.as_str()),
        None => (lease.key.id(), lease.key.id()),
    };
    let what = format!("Section \"{}\" of task {}", flat(name), title(task));
    held_by_runner(&what, Some(task.id.clone()), Some(id.to_owned()), lease)
}

/// A section that can't be deleted because another runner holds it.
pub(crate) fn section_in_use(section: &Section, lease: &Lease) -> Failure {
    let what = format!("Section \"{}\"", flat(&section.name));
    held_by_runner(&what, None, Some(section.id.clone()), lease)
}

/// A task or its section that another runner holds, in the words of the protocol. `task_id` is the task that was wanted,
/// `section_id` the section, if that is what is held.
pub(crate) fn held_by_runner(
    what: &str,
    task_id: Option<String>,
    section_id: Option<String>,
    lease: &Lease,
) -> Failure {
    let (code, kind) = match section_id {
        Some(_) => (ErrorCode::SectionLocked, "Section"),
        None => (ErrorCode::TaskLocked, "Task"),
    };
    let (locked_by, expires_at) = (lease.holder.id.clone(), wall_end(lease));
    let until = expires_at.map_or_else(|| NO_END.to_owned(), |end| end.to_string());
    // The protocol prescribes these lines, the capital letter included.
    let text = format!("Error: {what} is locked by runner {locked_by}\nLock expires at: {until}");
    let details = TaskLockedJson {
        task_id,
        section_id,
        locked_by,
        expires_at,
    };
    Failure::new(code, format!("{kind} is locked by another runner"))
        .verbatim(text)
        .details(details)
}

/// A lease's end by the wall clock, for an error that knows no other clock.
fn wall_end(lease: &Lease) -> Option<TimeJson> {
    lease.expires.as_ref().map(|end| end.wall.into())
}

/// A task that another runner took over from the caller.
pub(crate) fn task_lost(task: &Task, lease: Option<&Lease>) -> Failure {
    let who = match lease {
        Some(lease) => {
            let end = wall_end(lease);
            let end = end.map_or_else(|| "with no end".to_owned(), |end| format!("until {end}"));
            format!(
                "it is held by {} now, with token {}, {end}",
                lease.holder, lease.token
            )
        }
        None => match &task.runner {
            Some(runner) => format!(
                "{runner} got it with token {}, and it is {} now",
                task.token, task.status
            ),
            None => format!("it is {} now", task.status),
        },
    };
    let message = format!(
        "the lease on task {} was lost: {who}\n  nothing was changed; to see what happened: {}",
        title(task),
        locks_command("history", &format!("task:{}", task.id), None)
    );
    Failure::new(ErrorCode::LeaseLost, message).details(TaskLostJson {
        task_id: task.id.clone(),
        holder: lease.map(|lease| lease.holder.id.clone()),
        expires_at: lease.and_then(wall_end),
        newest_token: lease.map_or(task.token, |lease| lease.token),
        status: task.status,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

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
