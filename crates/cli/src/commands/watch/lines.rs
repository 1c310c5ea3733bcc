//! Changes as lines: [`follow`].

use std::fmt::Write as _;
use std::io::{self, Write as _};

use rustix::event::{PollFd, PollFlags};
use tenure::StoreUrl;
use tenure::store::{Event, EventKind, Moment};
use tenure::text::flat;
use tenure::wire::{LeaseJson, WatchLineJson};
use tenure_host::clock::since_boot;
use tenure_host::time_limit::TimeLimit;
use tenure_view::watch::{Alarm, Change, Feed, Index, StoreChange};

use super::rows::beside_subject;
use super::{DISTANCE, LONGEST, SETTLE};
use crate::answer::{Answer, Failure};
use crate::args::Global;
use crate::commands::locks::all;
use crate::exit::Exit;
use crate::words;

/// Prints each change as a line, until the reader is gone or this process is ended.
pub(super) fn follow(
    global: &Global,
    mut feed: Feed,
    since: &[(StoreUrl, u64)],
) -> Result<Answer, Failure> {
    let mut alarm = Alarm::default();
    let mut began = since_boot();
    let mut changes = alarm.look(&mut feed);
    let mut lines: Vec<WatchLineJson> = Vec::new();
    for log in feed.logs() {
        let named = since.iter().find(|(url, _)| *url == log.url);
        lines.push(WatchLineJson::Start {
            at: feed.now().wall.into(),
            store: log.url.to_string(),
            last_event: named.map_or(log.last, |(_, since)| *since),
        });
    }
    // What can't be read is no change, but has to be said.
    let views = feed.overview().stores.iter();
    changes.extend(views.filter_map(|view| {
        let error = Some(view.error.as_ref()?.to_string());
        Some(Change::In(view.url.clone(), StoreChange::Readable(error)))
    }));
    let left_out = feed.overview().left_out.iter();
    changes.extend(left_out.cloned().map(Change::LeftOut));
    let mut index = Index::of(&feed);
    loop {
        lines.extend(changes.iter().map(|change| json(feed.now(), change)));
        if !print(global, &feed, &lines, &changes)? {
            return Ok(Answer::silent(Exit::Done));
        }
        lines.clear();
        let pause = (since_boot().saturating_sub(began) * DISTANCE).clamp(SETTLE, LONGEST);
        if !wait(&mut alarm, &feed)? || poll_for(TimeLimit::after(pause), &[])?.reader_gone {
            return Ok(Answer::silent(Exit::Done));
        }
        began = since_boot();
        alarm.take();
        changes = alarm.look(&mut feed);
        let (others, next) = index.changes_to(&feed);
        changes.extend(others);
        index = next;
    }
}

/// Waits for a reason to look; `false` if the reader is gone.
fn wait(alarm: &mut Alarm, feed: &Feed) -> Result<bool, Failure> {
    let limit = TimeLimit::after(alarm.look_by(feed));
    loop {
        let woken = {
            let fds: Vec<_> = alarm.fds().collect();
            let fds: Vec<_> = fds
                .iter()
                .map(|fd| PollFd::new(fd, PollFlags::IN))
                .collect();
            poll_for(limit, &fds)?
        };
        if woken.reader_gone {
            return Ok(false);
        }
        if limit.has_passed() || woken.by_alarm && alarm.take() {
            return Ok(true);
        }
    }
}

struct Woken {
    reader_gone: bool,
    by_alarm: bool,
}

/// Waits for one of these descriptors, or until the reader of standard output is gone.
fn poll_for(limit: TimeLimit, fds: &[PollFd<'_>]) -> Result<Woken, Failure> {
    let out = io::stdout();
    // Without events to wait for: an error is always reported.
    let mut all = vec![PollFd::new(&out, PollFlags::empty())];
    all.extend(fds.iter().cloned());
    match rustix::event::poll(&mut all, Some(&limit.timespec())) {
        Ok(_) | Err(rustix::io::Errno::INTR) => {}
        Err(error) => return Err(error.into()),
    }
    let mut ready = all.iter().map(|fd| fd.revents());
    let reader = ready.next().unwrap_or(PollFlags::empty());
    Ok(Woken {
        reader_gone: reader.intersects(PollFlags::ERR | PollFlags::HUP | PollFlags::NVAL),
        by_alarm: ready.any(|events| !events.is_empty()),
    })
}

/// Prints lines; `false` if nobody reads them any more.
fn print(
    global: &Global,
    feed: &Feed,
    lines: &[WatchLineJson],
    changes: &[Change],
) -> Result<bool, Failure> {
    let mut text = String::new();
    if global.json {
        for line in lines {
            text.push_str(&serde_json::to_string(line).map_err(io::Error::from)?);
            text.push('\n');
        }
    } else {
        let starts = lines.len().saturating_sub(changes.len());
        for line in lines.iter().take(starts).filter(|_| !global.quiet) {
            if let WatchLineJson::Start {
                at,
                store,
                last_event,
            } = line
            {
                let _ = writeln!(
                    text,
                    "{at} watching {} after event {last_event}",
                    flat(store)
                );
            }
        }
        for change in changes {
            text.push_str(&flat(&told(feed, change)));
            text.push('\n');
        }
    }
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// A change in one line.
fn told(feed: &Feed, change: &Change) -> String {
    let now = feed.now();
    let (at, text) = match change {
        Change::In(store, change) => {
            let name = all::short_url(feed.project(), store);
            let own = feed.project().map(tenure::Project::store);
            let of = match feed.project() {
                Some(_) if Some(store) != own.as_ref() => format!("[{name}] "),
                _ => String::new(),
            };
            match change {
                StoreChange::Event(event) => (event.at, of + &told_event(event)),
                StoreChange::Readable(Some(error)) => {
                    (now.wall, format!("{name} can't be read: {error}"))
                }
                StoreChange::Readable(None) => (now.wall, format!("{name} can be read")),
                StoreChange::Gone => (now.wall, format!("{name} is gone")),
                other => (now.wall, of + &told_now(now, other)),
            }
        }
        Change::Foreign(lock) => {
            let (path, tool) = (lock.path.display(), lock.tool.word());
            let text = format!("{path}: lock of {tool}: {}", lock.verdict.why());
            (now.wall, text)
        }
        Change::ForeignGone(path) => (now.wall, format!("{}: the lock is gone", path.display())),
        Change::Daemon(state) => (now.wall, format!("the daemon is {state}")),
        Change::LeftOut(what) => (now.wall, what.clone()),
    };
    format!("{} {text}", words::time(at))
}

fn told_event(event: &Event) -> String {
    let (holder, token) = (&event.holder, event.token);
    let what = match event.kind {
        EventKind::Granted => format!("granted to {holder}, token {token}"),
        EventKind::Renewed => format!("renewed by {holder}, token {token}"),
        EventKind::Released => format!("released by {holder}, token {token}"),
        EventKind::Expired => format!("of {holder} has expired, token {token}"),
        EventKind::Dead => format!("ended: {holder} is dead, token {token}"),
        EventKind::Forced => format!("taken from {holder} by force, token {token}"),
        EventKind::Asked => format!("is asked for by {holder}"),
        kind => kind.to_string(),
    };
    let detail = match beside_subject(event) {
        detail if detail.is_empty() => detail,
        detail => format!(" ({detail})"),
    };
    let subject = words::subject(&event.key, &event.mode);
    format!("{subject} {what}{detail}")
}

/// A change in a store that has no time of its own.
fn told_now(now: &Moment, change: &StoreChange) -> String {
    match change {
        StoreChange::Gap(gap) => {
            let next = gap.next.map_or_else(
                || "there is none yet".to_owned(),
                |next| format!("the next one is {next}"),
            );
            let why = if gap.begun_anew {
                "the store was recreated"
            } else {
                "the history was pruned"
            };
            format!("events after {} are missing: {why}; {next}", gap.after)
        }
        StoreChange::Waits(key, waiter) => {
            let (who, priority) = (&waiter.holder, waiter.priority);
            let subject = words::subject(key, &waiter.mode);
            format!("{subject} is waited for by {who}, priority {priority}")
        }
        StoreChange::LeftQueue(key, waiter) => {
            let subject = words::subject(key, &waiter.mode);
            format!("{subject} is no longer waited for by {}", waiter.holder.id)
        }
        StoreChange::Judged(lease, verdict) => {
            let subject = words::subject(&lease.key, &lease.mode);
            let state = words::state(now, lease, verdict);
            format!("{subject} of {}: {state}", lease.holder.id)
        }
        StoreChange::HeldByOther(lease) => {
            let subject = words::subject(&lease.key, &lease.mode);
            format!("{subject} is held by {}", lease.holder)
        }
        StoreChange::FreedByOther(key, holder) => format!("{key} is no longer held by {holder}"),
        StoreChange::Task { task, was } => {
            let was = was.map_or_else(|| "new".to_owned(), |was| format!("was {was}"));
            let runner = task.runner.as_ref();
            let runner = runner.map_or_else(String::new, |runner| format!(", {runner}"));
            let title = words::title(task);
            format!("task {title} is {} ({was}{runner})", task.status)
        }
        StoreChange::TaskGone(id) => format!("task {id} was deleted"),
        StoreChange::Event(_) | StoreChange::Readable(_) | StoreChange::Gone => String::new(),
    }
}

fn json(now: &Moment, change: &Change) -> WatchLineJson {
    let at = now.wall.into();
    let (store, change) = match change.clone() {
        Change::In(store, change) => (store.to_string(), change),
        Change::Foreign(lock) => {
            let lock = Box::new(all::foreign_json(&lock));
            return WatchLineJson::Foreign { at, lock };
        }
        Change::ForeignGone(path) => {
            let path = path.display().to_string();
            return WatchLineJson::ForeignGone { at, path };
        }
        Change::Daemon(state) => return WatchLineJson::Daemon { at, state },
        Change::LeftOut(what) => return WatchLineJson::LeftOut { at, what },
    };
    match change {
        StoreChange::Event(event) => WatchLineJson::Event {
            store,
            id: event.id,
            event: Box::new((&event).into()),
        },
        StoreChange::Gap(gap) => WatchLineJson::Gap {
            at,
            store,
            after: gap.after,
            next: gap.next,
            cause: if gap.begun_anew {
                "begun_anew"
            } else {
                "pruned"
            }
            .to_owned(),
        },
        StoreChange::Waits(key, waiter) => WatchLineJson::Waits {
            at,
            store,
            key,
            waiter: Box::new((&waiter).into()),
        },
        StoreChange::LeftQueue(key, waiter) => WatchLineJson::LeftQueue {
            at,
            store,
            key,
            holder: waiter.holder.id,
        },
        StoreChange::Judged(lease, verdict) => WatchLineJson::Judged {
            at,
            store,
            lease: Box::new(LeaseJson::new(now, &lease, &verdict)),
        },
        StoreChange::HeldByOther(lease) => WatchLineJson::HeldByOther {
            at,
            store,
            key: lease.key,
            holder: lease.holder.id,
        },
        StoreChange::FreedByOther(key, holder) => WatchLineJson::FreedByOther {
            at,
            store,
            key,
            holder,
        },
        StoreChange::Task { task, was } => WatchLineJson::Task {
            at,
            store,
            id: task.id,
            title: task.title,
            status: task.status,
            was,
            runner: task.runner,
        },
        StoreChange::TaskGone(id) => WatchLineJson::TaskGone { at, store, id },
        StoreChange::Readable(error) => WatchLineJson::Store { at, store, error },
        StoreChange::Gone => WatchLineJson::StoreGone { at, store },
    }
}
