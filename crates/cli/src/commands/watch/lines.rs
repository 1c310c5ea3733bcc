//! Changes as lines: [`follow`].

use std::fmt::Write as _;
use std::io::{self, Write as _};

use rustix::event::{PollFd, PollFlags};
use tenure::StoreUrl;
use tenure::store::{EventKind, Moment};
use tenure::text::flat;
use tenure::wire::{LeaseJson, WatchLineJson};
use tenure_host::clock::since_boot;
use tenure_host::time_limit::TimeLimit;
use tenure_view::watch::{Alarm, Change, Feed, Index};

use super::{DISTANCE, LONGEST, SETTLE};
use crate::answer::{Answer, Failure};
use crate::args::Global;
use crate::commands::locks::{all, detail};
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
        Some(Change::Store {
            store: view.url.clone(),
            error: Some(view.error.as_ref()?.to_string()),
        })
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
    let own = feed.project().map(tenure::Project::store);
    let of = |store: &StoreUrl| match feed.project() {
        _ if Some(store) == own.as_ref() => String::new(),
        Some(_) => format!("[{}] ", all::short_url(feed.project(), store)),
        None => String::new(),
    };
    let name = |store: &StoreUrl| all::short_url(feed.project(), store);
    let (at, text) = match change {
        Change::Event { store, event } => {
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
            let detail = match detail(event) {
                detail if detail.is_empty() => detail,
                detail => format!(" ({detail})"),
            };
            let line = format!("{}{} {what}{detail}", of(store), event.key);
            (event.at, line)
        }
        other => (now.wall, told_now(now, other, of, name)),
    };
    format!("{} {text}", words::time(at))
}

/// A change that has no time of its own.
fn told_now(
    now: &Moment,
    change: &Change,
    of: impl Fn(&StoreUrl) -> String,
    name: impl Fn(&StoreUrl) -> String,
) -> String {
    match change {
        Change::Event { event, .. } => event.key.to_string(),
        Change::Gap { store, gap } => {
            let next = gap.next.map_or_else(
                || "there is none yet".to_owned(),
                |next| format!("the next one is {next}"),
            );
            let why = if gap.begun_anew {
                "the history was begun anew"
            } else {
                "the history was pruned"
            };
            let after = gap.after;
            format!(
                "{}events after {after} are missing: {why}; {next}",
                of(store)
            )
        }
        Change::Waits { store, key, waiter } => {
            let who = &waiter.holder;
            let priority = waiter.priority;
            format!(
                "{}{key} is waited for by {who}, priority {priority}",
                of(store)
            )
        }
        Change::LeftQueue { store, key, holder } => {
            format!("{}{key} is no longer waited for by {holder}", of(store))
        }
        Change::Judged {
            store,
            lease,
            verdict,
        } => {
            let (key, holder) = (&lease.key, &lease.holder.id);
            format!(
                "{}{key} of {holder}: {}",
                of(store),
                words::state(now, lease, verdict)
            )
        }
        Change::HeldByOther { store, lease } => {
            format!("{}{} is held by {}", of(store), lease.key, lease.holder)
        }
        Change::FreedByOther { store, key, holder } => {
            format!("{}{key} is no longer held by {holder}", of(store))
        }
        Change::Foreign(lock) => {
            let path = lock.path.display();
            format!(
                "{path}: lock of {}: {}",
                lock.tool.word(),
                lock.verdict.why()
            )
        }
        Change::ForeignGone(path) => format!("{}: the lock is gone", path.display()),
        Change::Task { store, task, was } => {
            let was = was.map_or_else(|| "new".to_owned(), |was| format!("was {was}"));
            let runner = task.runner.as_ref();
            let runner = runner.map_or_else(String::new, |runner| format!(", {runner}"));
            let title = words::title(task);
            format!(
                "{}task {title} is {} ({was}{runner})",
                of(store),
                task.status
            )
        }
        Change::TaskGone { store, id } => format!("{}task {id} was deleted", of(store)),
        Change::Store {
            store,
            error: Some(error),
        } => format!("{} can't be read: {error}", name(store)),
        Change::Store { store, error: None } => format!("{} can be read", name(store)),
        Change::StoreGone(store) => format!("{} is gone", name(store)),
        Change::Daemon(state) => format!("the daemon is {state}"),
        Change::LeftOut(what) => what.clone(),
    }
}

fn json(now: &Moment, change: &Change) -> WatchLineJson {
    let at = now.wall.into();
    match change.clone() {
        Change::Event { store, event } => WatchLineJson::Event {
            store: store.to_string(),
            id: event.id,
            event: Box::new((&event).into()),
        },
        Change::Gap { store, gap } => WatchLineJson::Gap {
            at,
            store: store.to_string(),
            after: gap.after,
            next: gap.next,
            cause: if gap.begun_anew {
                "begun_anew"
            } else {
                "pruned"
            }
            .to_owned(),
        },
        Change::Waits { store, key, waiter } => WatchLineJson::Waits {
            at,
            store: store.to_string(),
            key,
            waiter: Box::new((&waiter).into()),
        },
        Change::LeftQueue { store, key, holder } => WatchLineJson::LeftQueue {
            at,
            store: store.to_string(),
            key,
            holder,
        },
        Change::Judged {
            store,
            lease,
            verdict,
        } => WatchLineJson::Judged {
            at,
            store: store.to_string(),
            lease: Box::new(LeaseJson::new(now, &lease, &verdict)),
        },
        Change::HeldByOther { store, lease } => WatchLineJson::HeldByOther {
            at,
            store: store.to_string(),
            key: lease.key,
            holder: lease.holder.id,
        },
        Change::FreedByOther { store, key, holder } => WatchLineJson::FreedByOther {
            at,
            store: store.to_string(),
            key,
            holder,
        },
        Change::Foreign(lock) => WatchLineJson::Foreign {
            at,
            lock: Box::new(all::foreign_json(&lock)),
        },
        Change::ForeignGone(path) => WatchLineJson::ForeignGone {
            at,
            path: path.display().to_string(),
        },
        Change::Task { store, task, was } => WatchLineJson::Task {
            at,
            store: store.to_string(),
            id: task.id,
            title: task.title,
            status: task.status,
            was,
            runner: task.runner,
        },
        Change::TaskGone { store, id } => WatchLineJson::TaskGone {
            at,
            store: store.to_string(),
            id,
        },
        Change::Store { store, error } => WatchLineJson::Store {
            at,
            store: store.to_string(),
            error,
        },
        Change::StoreGone(store) => WatchLineJson::StoreGone {
            at,
            store: store.to_string(),
        },
        Change::Daemon(state) => WatchLineJson::Daemon { at, state },
        Change::LeftOut(what) => WatchLineJson::LeftOut { at, what },
    }
}
