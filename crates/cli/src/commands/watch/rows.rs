//! What the tables of the screen hold: [`Table`], made from what was read.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tenure::StoreUrl;
use tenure::store::{
    Deadline, Event, EventKind, HolderId, Key, Lease, Moment, Presence, Snapshot, Verdict,
};
use tenure::tasks::Status;
use tenure_view::StoreView;
use tenure_view::foreign::ForeignVerdict;
use tenure_view::watch::Feed;

use crate::commands::locks::{all, detail, waiting};
use crate::commands::timeline::{self, Lane};
use crate::words;

/// How much of the past the timeline shows at most, and at least: a period that grew from nothing would have to be drawn
/// again all the time.
const LONGEST: SignedDuration = SignedDuration::from_hours(1);
const SHORTEST: SignedDuration = SignedDuration::from_mins(10);

/// How many events the history shows.
const EVENTS: usize = 1000;

/// In place of what does not exist.
const NONE: &str = "-";

/// How something stands out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Tone {
    #[default]
    Plain,
    Mine,
    Waiting,
    Good,
    Doubtful,
    Bad,
    Faint,
}

/// A value in a table. Times are written when they are drawn.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Cell {
    Text(String),
    Age(Option<Timestamp>),
    Left(Option<Deadline>),
}

impl Cell {
    /// The value at this moment.
    pub(super) fn at(&self, now: &Moment) -> String {
        match self {
            Self::Text(text) => text.clone(),
            Self::Age(None) => NONE.to_owned(),
            Self::Age(Some(at)) => words::coarse(words::passed(now, *at)),
            Self::Left(None) => "no end".to_owned(),
            Self::Left(Some(end)) => end.remaining(now).map_or_else(
                || "passed".to_owned(),
                // Rounded up: what has time left is not shown with none.
                |left| words::coarse(left + Duration::from_millis(999)),
            ),
        }
    }

    /// How long until it reads differently.
    pub(super) fn changes_in(&self, now: &Moment) -> Option<Duration> {
        match self {
            Self::Text(_) | Self::Age(None) | Self::Left(None) => None,
            Self::Age(Some(at)) => {
                let age = words::passed(now, *at);
                Some(unit(age).saturating_sub(rest(age)))
            }
            Self::Left(Some(end)) => {
                let left = end.remaining(now)?;
                let of = rest(left + Duration::from_millis(999));
                Some(of + Duration::from_millis(1))
            }
        }
    }
}

/// The unit in which a duration is shown, so that most of them rarely change.
fn unit(duration: Duration) -> Duration {
    Duration::from_secs(match duration.as_secs() {
        0..60 => 1,
        60..3600 => 60,
        3600..86_400 => 3600,
        _ => 86_400,
    })
}

/// The part of a duration that is not shown.
fn rest(duration: Duration) -> Duration {
    let nanos = duration.as_nanos() % unit(duration).as_nanos();
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(0))
}

/// A lease that can be released, or taken by force.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Target {
    pub(super) store: StoreUrl,
    pub(super) lease: Lease,
    pub(super) is_mine: bool,
}

/// A line of a table.
#[derive(Debug, Clone, Default)]
pub(super) struct Row {
    /// What it is about, so that it is found again after the next look.
    pub(super) id: String,
    /// A title stands above its rows, and can't be selected.
    pub(super) is_title: bool,
    pub(super) cells: Vec<Cell>,
    pub(super) tone: Tone,
    /// The key that it is about, to jump to its lock.
    pub(super) key: Option<(StoreUrl, Key)>,
    pub(super) target: Option<Target>,
    /// More about it, in sentences.
    pub(super) detail: Vec<String>,
    pub(super) is_problem: bool,
    pub(super) is_waited_for: bool,
    /// What the timeline shows beside it.
    pub(super) bar: Option<Bar>,
}

/// What a row of the timeline shows.
#[derive(Debug, Clone, Copy)]
pub(super) enum Bar {
    /// The grants of the lane with this number.
    Grants(usize),
    /// A wait since then.
    Wait(Timestamp),
}

impl Row {
    pub(super) fn new(id: String, cells: Vec<Cell>) -> Self {
        Self {
            id,
            cells,
            ..Self::default()
        }
    }

    /// The row is about this lease.
    fn is_about(
        &mut self,
        view: &StoreView,
        lease: &Lease,
        verdict: &Verdict,
        now: &Moment,
        me: &HolderId,
    ) {
        let is_mine = lease.holder.id == *me;
        self.tone = tone(verdict, is_mine && verdict.ended().is_none());
        self.is_problem = self.tone == Tone::Bad;
        self.detail = lease_detail(now, lease, verdict);
        self.target = Some(Target {
            store: view.url.clone(),
            lease: lease.clone(),
            is_mine,
        });
    }

    pub(super) fn title(text: String) -> Self {
        Self {
            is_title: true,
            tone: Tone::Faint,
            ..Self::new(format!("title {text}"), vec![Cell::Text(text)])
        }
    }
}

/// A table of the screen.
#[derive(Debug, Default)]
pub(super) struct Table {
    pub(super) header: &'static [&'static str],
    pub(super) rows: Vec<Row>,
    /// How many entries it has, for its title.
    pub(super) count: usize,
}

/// In which order locks are listed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Sort {
    #[default]
    Key,
    Oldest,
    EndsSoonest,
    MostWaiters,
}

impl Sort {
    pub(super) fn next(self) -> Self {
        match self {
            Self::Key => Self::Oldest,
            Self::Oldest => Self::EndsSoonest,
            Self::EndsSoonest => Self::MostWaiters,
            Self::MostWaiters => Self::Key,
        }
    }

    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::Oldest => "oldest first",
            Self::EndsSoonest => "ends soonest",
            Self::MostWaiters => "most waiters",
        }
    }
}

/// The name of a store, as short as it can be.
fn name(feed: &Feed, url: &StoreUrl) -> String {
    all::short_url(feed.project(), url)
}

fn text(text: impl Into<String>) -> Cell {
    Cell::Text(text.into())
}

fn tone(verdict: &Verdict, is_mine: bool) -> Tone {
    match verdict {
        _ if is_mine => Tone::Mine,
        Verdict::Alive => Tone::Good,
        Verdict::Unknown(tenure::store::Doubt::Detached) => Tone::Plain,
        Verdict::Unknown(_) => Tone::Doubtful,
        Verdict::Dead(_) | Verdict::Expired(_) | Verdict::Malformed => Tone::Bad,
    }
}

/// Every lock, with its queue below it.
pub(super) fn locks(feed: &Feed, me: &HolderId, sort: Sort) -> Table {
    let overview = feed.overview();
    let now = &overview.now;
    let mut table = Table {
        header: &[
            "KEY", "HOLDER", "PROCESS", "SINCE", "LEFT", "WAITING", "STATE",
        ],
        ..Table::default()
    };
    let shown = |view: &&StoreView| {
        view.error.is_some() || view.locks.iter().any(|lock| !all::is_reservations(lock))
    };
    let many = overview.stores.iter().filter(shown).count()
        + usize::from(!overview.foreign.is_empty())
        > 1;
    for view in overview.stores.iter().filter(shown) {
        let store = name(feed, &view.url);
        if many || view.error.is_some() {
            table.rows.push(Row::title(store.clone()));
        }
        if let Some(error) = &view.error {
            let mut row = Row::new(
                format!("{store} error"),
                vec![text(format!("can't be read: {error}"))],
            );
            row.tone = Tone::Bad;
            row.is_problem = true;
            table.rows.push(row);
        }
        let mut locks: Vec<&Snapshot> = view
            .locks
            .iter()
            .filter(|lock| !all::is_reservations(lock))
            .collect();
        order(&mut locks, now, sort);
        for lock in locks {
            table.count += 1;
            lock_rows(&mut table.rows, &store, view, lock, now, me);
        }
    }
    if !overview.foreign.is_empty() {
        table.rows.push(Row::title("other tools".to_owned()));
    }
    for lock in &overview.foreign {
        table.count += 1;
        let path = all::short_path(feed.project(), &lock.path);
        let mut row = Row::new(
            format!("foreign {path}"),
            vec![
                text(path),
                text(lock.tool.word()),
                text(all::foreign_process(lock)),
                Cell::Age(lock.since),
                text("no end"),
                text(NONE),
                text(lock.verdict.word()),
            ],
        );
        row.tone = match lock.verdict {
            ForeignVerdict::Alive(_) => Tone::Good,
            ForeignVerdict::Unknown(_) => Tone::Doubtful,
            ForeignVerdict::Dead(_) | ForeignVerdict::Malformed(_) => Tone::Bad,
        };
        row.is_problem = row.tone == Tone::Bad;
        row.detail = vec![
            lock.path.display().to_string(),
            lock.verdict.why().to_owned(),
        ];
        table.rows.push(row);
    }
    table
}

fn leases(lock: &Snapshot) -> impl Iterator<Item = &Lease> {
    lock.leases.iter().map(|(lease, _)| lease)
}

fn order(locks: &mut [&Snapshot], now: &Moment, sort: Sort) {
    match sort {
        // The store lists them so.
        Sort::Key => {}
        Sort::Oldest => locks.sort_by_cached_key(|lock| {
            let since = leases(lock).filter_map(Lease::since).min();
            since.unwrap_or(Timestamp::MAX)
        }),
        Sort::EndsSoonest => locks.sort_by_cached_key(|lock| {
            let left = leases(lock).filter_map(|lease| lease.remaining(now)).min();
            left.unwrap_or(Duration::MAX)
        }),
        Sort::MostWaiters => locks.sort_by_key(|lock| std::cmp::Reverse(lock.queue.len())),
    }
}

/// The leases of a key, and its queue.
fn lock_rows(
    rows: &mut Vec<Row>,
    store: &str,
    view: &StoreView,
    lock: &Snapshot,
    now: &Moment,
    me: &HolderId,
) {
    let waiters = waiting(lock);
    let key = Some((view.url.clone(), lock.key.clone()));
    for (lease, verdict) in &lock.leases {
        let mut row = Row::new(
            format!("{store} {} {} {}", lease.key, lease.token, lease.holder.id),
            vec![
                text(words::held_subject(lease)),
                text(lease.holder.id.to_string()),
                text(all::process(&lease.holder, verdict)),
                Cell::Age(lease.since()),
                Cell::Left(lease.expires.clone()),
                text(&*waiters),
                text(words::verdict(verdict)),
            ],
        );
        row.is_about(view, lease, verdict, now, me);
        row.key.clone_from(&key);
        row.is_waited_for = !lock.queue.is_empty();
        row.detail.extend(lock.problems.iter().cloned());
        rows.push(row);
    }
    if lock.leases.is_empty() {
        let free = [NONE, NONE, NONE, NONE, &waiters, "free"].map(text);
        let cells = std::iter::once(text(lock.key.to_string()))
            .chain(free)
            .collect();
        let mut row = Row::new(format!("{store} {} free", lock.key), cells);
        row.key.clone_from(&key);
        row.is_waited_for = true;
        rows.push(row);
    }
    for (place, waiter) in lock.queue.iter().enumerate() {
        let arrived = words::arrived(now, waiter);
        let process = waiter.holder.process();
        let state = match waiter.presence {
            Presence::Here => "waits".to_owned(),
            Presence::Away => "away".to_owned(),
        };
        let mut row = Row::new(
            format!("{store} {} ticket {}", lock.key, waiter.ticket.0),
            vec![
                text(format!("  {}.", place + 1)),
                text(waiter.holder.id.to_string()),
                text(process.map_or_else(|| NONE.to_owned(), |process| process.pid.to_string())),
                Cell::Age(Some(arrived)),
                text(NONE),
                text(format!("prio {}", waiter.priority)),
                text(state),
            ],
        );
        row.tone = if waiter.holder.id == *me {
            Tone::Mine
        } else {
            Tone::Waiting
        };
        row.key.clone_from(&key);
        row.detail = vec![
            format!("{} waits for {}", waiter.holder, lock.key),
            format!("since {}", words::time(arrived)),
        ];
        rows.push(row);
    }
}

fn lease_detail(now: &Moment, lease: &Lease, verdict: &Verdict) -> Vec<String> {
    let mut lines = vec![
        words::held_subject(lease),
        format!("held by {}", words::held(now, lease)),
        format!("token {}", lease.token),
        words::state(now, lease, verdict),
    ];
    if let Some(command) = &lease.holder.command {
        lines.push(match lease.mode.paths() {
            Some(_) => format!("for: {command}"),
            None => format!("it runs: {command}"),
        });
    }
    lines
}

/// Every reservation of paths.
pub(super) fn reservations(feed: &Feed, me: &HolderId) -> Table {
    let overview = feed.overview();
    let mut table = Table {
        header: &["PATHS", "HOLDER", "SINCE", "LEFT", "STATE", "WHY"],
        ..Table::default()
    };
    for view in &overview.stores {
        let store = name(feed, &view.url);
        for lock in view.locks.iter().filter(|lock| all::is_reservations(lock)) {
            for (lease, verdict) in &lock.leases {
                table.count += 1;
                let mut row = Row::new(
                    format!("{store} {} {}", lease.key, lease.token),
                    vec![
                        text(words::asked_mode(&lease.mode)),
                        text(lease.holder.id.to_string()),
                        Cell::Age(lease.since()),
                        Cell::Left(lease.expires.clone()),
                        text(words::verdict(verdict)),
                        text(lease.holder.command.as_deref().unwrap_or(NONE)),
                    ],
                );
                row.is_about(view, lease, verdict, &overview.now, me);
                table.rows.push(row);
            }
            for waiter in &lock.queue {
                let arrived = words::arrived(&overview.now, waiter);
                let mut row = Row::new(
                    format!("{store} {} ticket {}", lock.key, waiter.ticket.0),
                    vec![
                        text(words::asked_mode(&waiter.mode)),
                        text(waiter.holder.id.to_string()),
                        Cell::Age(Some(arrived)),
                        text(NONE),
                        text("waits"),
                        text(waiter.holder.command.as_deref().unwrap_or(NONE)),
                    ],
                );
                row.tone = Tone::Waiting;
                table.rows.push(row);
            }
        }
    }
    table
}

/// Tasks by status.
pub(super) fn tasks(feed: &Feed) -> Table {
    let mut table = Table {
        header: &["TASK", "RUNNER", "SECTION", "CHANGED", "NOTE"],
        ..Table::default()
    };
    for (url, tasks) in feed.tasks() {
        let store = name(feed, url);
        table.count += tasks.len();
        for status in Status::ALL {
            let of_status: Vec<_> = tasks.iter().filter(|task| task.status == status).collect();
            if of_status.is_empty() {
                continue;
            }
            table
                .rows
                .push(Row::title(format!("{status} ({})", of_status.len())));
            for task in of_status {
                let note = match (&task.last_error, task.blockers) {
                    (Some(error), _) => error.clone(),
                    (None, 0) => String::new(),
                    (None, 1) => "waits for 1 task".to_owned(),
                    (None, many) => format!("waits for {many} tasks"),
                };
                let runner = task.runner.as_ref().filter(|_| status != Status::Pending);
                let section = task.section.as_ref();
                let mut row = Row::new(
                    format!("{store} task {}", task.id),
                    vec![
                        text(words::title(task).trim_matches('"')),
                        text(runner.map_or_else(|| NONE.to_owned(), ToString::to_string)),
                        text(section.map_or(NONE, |section| section.name.as_str())),
                        Cell::Age(Some(task.updated_at)),
                        text(note),
                    ],
                );
                row.tone = match status {
                    Status::InProgress => Tone::Good,
                    Status::Failed => Tone::Bad,
                    Status::Completed | Status::Skipped => Tone::Faint,
                    _ => Tone::Plain,
                };
                row.is_problem = status == Status::Failed;
                row.key = Key::parse(format!("task:{}", task.id))
                    .ok()
                    .map(|key| (url.clone(), key));
                row.detail = vec![
                    format!("{} {}", task.id, words::title(task)),
                    format!("{}, priority {}", task.status, task.priority),
                ];
                row.detail.extend(task.description.clone());
                row.detail.extend(task.last_error.clone());
                table.rows.push(row);
            }
        }
    }
    table
}

/// What is known of an event besides its kind and its paths.
pub(super) fn beside_subject(event: &Event) -> String {
    let known = detail(event);
    let paths = event.mode.paths().map(|_| words::asked_mode(&event.mode));
    let rest = paths.and_then(|paths| Some(known.strip_prefix(&paths)?.to_owned()));
    rest.map_or(known, |rest| rest.trim_start_matches(", ").to_owned())
}

/// The newest events, the newest first.
pub(super) fn history(feed: &Feed) -> Table {
    let mut table = Table {
        header: &["TIME", "EVENT", "KEY", "HOLDER", "TOKEN", "DETAIL"],
        ..Table::default()
    };
    let mut events: Vec<_> = feed
        .logs()
        .iter()
        .flat_map(|log| {
            log.events
                .iter()
                .rev()
                .take(EVENTS)
                .map(|event| (&log.url, event))
        })
        .collect();
    events.sort_by_key(|(_, event)| std::cmp::Reverse((event.at, event.id)));
    events.truncate(EVENTS);
    table.count = events.len();
    for (url, event) in events {
        let mut row = Row::new(
            format!("{} event {}", name(feed, url), event.id),
            vec![
                text(event.at.strftime("%H:%M:%SZ").to_string()),
                text(event.kind.word()),
                text(words::subject(&event.key, &event.mode)),
                text(event.holder.to_string()),
                text(event.token.to_string()),
                text(beside_subject(event)),
            ],
        );
        row.tone = match event.kind {
            EventKind::Granted => Tone::Good,
            EventKind::Expired | EventKind::Dead | EventKind::Forced => Tone::Bad,
            EventKind::Renewed => Tone::Faint,
            _ => Tone::Plain,
        };
        row.is_problem = row.tone == Tone::Bad;
        row.key = Some((url.clone(), event.key.clone()));
        row.detail = vec![
            format!("event {} of {}", event.id, name(feed, url)),
            format!(
                "{} {} {}",
                words::time(event.at),
                words::subject(&event.key, &event.mode),
                event.kind
            ),
            format!("holder {}, token {}", event.holder, event.token),
            beside_subject(event),
        ];
        table.rows.push(row);
    }
    table
}

/// Where the timeline begins.
pub(super) fn timeline_begin(lanes: &[Lane], now: Timestamp) -> Timestamp {
    let back = |by: SignedDuration| now.checked_sub(by).unwrap_or(Timestamp::MIN);
    let first = timeline::first(lanes).unwrap_or(now);
    first.clamp(back(LONGEST), back(SHORTEST))
}

/// Who held what when, in the last hour.
pub(super) fn timeline(feed: &Feed) -> Vec<Lane> {
    let overview = feed.overview();
    let since = overview
        .now
        .wall
        .checked_sub(LONGEST)
        .unwrap_or(Timestamp::MIN);
    let mut lanes = Vec::new();
    for view in &overview.stores {
        let Some(log) = feed.logs().iter().find(|log| log.url == view.url) else {
            continue;
        };
        let events: Vec<_> = log.events.iter().cloned().collect();
        let store = name(feed, &view.url);
        lanes.extend(timeline::lanes(
            &store,
            &events,
            view,
            &overview.now,
            since,
            &[],
        ));
    }
    lanes
}

/// The names of the lanes, each followed by those of its waiters.
pub(super) fn lane_rows(lanes: &[Lane]) -> Table {
    let mut table = Table {
        header: &["KEY"],
        count: lanes.len(),
        ..Table::default()
    };
    for (at, lane) in lanes.iter().enumerate() {
        let mut row = Row::new(
            format!("{} {} {}", lane.store, lane.subject, lane.number),
            vec![text(&*lane.subject)],
        );
        row.bar = Some(Bar::Grants(at));
        row.is_problem = lane.spans.iter().any(tenure_view::history::Span::was_lost);
        row.is_waited_for = !lane.waits.is_empty();
        let newest = lane.spans.iter().rev().take(10);
        row.detail = newest
            .map(|span| timeline::told(span, words::time))
            .collect();
        table.rows.push(row);
        for (waiter, since) in &lane.waits {
            let id = format!("{} {} {waiter}", lane.store, lane.subject);
            let mut row = Row::new(id, vec![text(format!(" {waiter}"))]);
            row.bar = Some(Bar::Wait(*since));
            table.rows.push(row);
        }
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;
    use tenure::store::Epoch;

    fn moment(millis: u64) -> Moment {
        Moment {
            wall: Timestamp::from_millisecond(i64::try_from(millis).unwrap()).unwrap(),
            ticks: Duration::from_millis(millis),
            epoch: Epoch("here".into()),
        }
    }

    #[test]
    fn an_age_is_shown_in_one_unit_and_changes_when_it_reads_differently() {
        let age = Cell::Age(Some(Timestamp::UNIX_EPOCH));
        for (millis, shown, changes) in [
            (0, "0s", 1000),
            (1_200, "1s", 800),
            (59_999, "59s", 1),
            (60_000, "1m", 60_000),
            (150_000, "2m", 30_000),
            (3_600_000, "1h", 3_600_000),
            (90_000_000, "1d", 82_800_000),
        ] {
            let now = moment(millis);
            assert_eq!(age.at(&now), shown);
            let changes = Duration::from_millis(changes);
            assert_eq!(age.changes_in(&now), Some(changes), "{shown}");
        }
    }

    #[test]
    fn time_that_is_left_is_rounded_up_and_shown_until_it_has_passed() {
        let end = moment(0).deadline(Duration::from_secs(61));
        let left = Cell::Left(Some(end));
        let shown: Vec<String> = [0, 1000, 1001, 60_500, 61_000]
            .into_iter()
            .map(|millis| left.at(&moment(millis)))
            .collect();
        assert_eq!(shown, ["1m", "1m", "1m", "1s", "passed"]);
        for millis in (0..61_000).step_by(250) {
            let now = moment(millis);
            let next = left.changes_in(&now).unwrap();
            let later = moment(millis + u64::try_from(next.as_millis()).unwrap());
            assert_ne!(left.at(&now), left.at(&later), "after {millis} ms");
        }
        assert_eq!(left.changes_in(&moment(61_000)), None);
        assert_eq!(Cell::Left(None).changes_in(&moment(0)), None);
    }
}
