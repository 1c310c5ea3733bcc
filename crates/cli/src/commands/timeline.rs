//! `tenure timeline`: who held what when, as lanes.

use std::collections::HashMap;
use std::fmt::Write as _;
use std::path::Path;

use jiff::{SignedDuration, Timestamp};
use tenure::Mode;
use tenure::store::{
    Event, EventKind, HistoryQuery, HolderId, Key, Moment, Presence, Snapshot, Token, Verdict,
    call_deadline,
};
use tenure::text::flat;
use tenure::wire::{ErrorCode, SpanJson, TimelineJson, WaitSpanJson};
use tenure_view::StoreView;
use tenure_view::history::{self, Span};

use crate::answer::{Answer, Failure};
use crate::args::Global;
use crate::args::view::Timeline;
use crate::commands::locks::all;
use crate::fit;
use crate::words;

/// The widest name of a lane.
const WIDEST: usize = 24;

/// How many columns the lanes have at least.
const NARROWEST: usize = 20;

/// Grants of one key in one store that do not overlap, each with the wait before it; and below its last lane the waiters
/// that the key has now. Abandoned waits are not recorded.
pub(crate) struct Lane {
    pub(crate) store: String,
    pub(crate) key: Key,
    /// The key, or the paths that are reserved.
    pub(crate) subject: String,
    /// Which one of the lanes of its key, from 0 on: holders at the same time are in several.
    pub(crate) number: usize,
    pub(crate) spans: Vec<Span>,
    /// Who waits, and since when.
    pub(crate) waits: Vec<(HolderId, Timestamp)>,
}

/// The lanes of one store, in the order in which their keys were first granted: what was held since then, and
/// only of these keys, unless there are none.
pub(crate) fn lanes(
    store: &str,
    events: &[Event],
    view: &StoreView,
    now: &Moment,
    since: Timestamp,
    wanted: &[Key],
) -> Vec<Lane> {
    let mut lanes: Vec<Lane> = Vec::new();
    let mut places: HashMap<String, usize> = HashMap::new();
    let is_wanted = |key: &Key| wanted.is_empty() || wanted.contains(key);
    let mut lane_of = |lanes: &mut Vec<Lane>, key: &Key, mode: &Mode| {
        let subject = words::subject(key, mode);
        *places.entry(subject.clone()).or_insert_with(|| {
            lanes.push(Lane {
                store: store.to_owned(),
                key: key.clone(),
                subject,
                number: 0,
                spans: Vec::new(),
                waits: Vec::new(),
            });
            lanes.len() - 1
        })
    };
    let ends = unrecorded_ends(&view.locks);
    for mut span in history::spans(events) {
        if !is_wanted(&span.key) {
            continue;
        }
        settle(&mut span, &ends);
        if span.to.is_some_and(|to| to < since) {
            continue;
        }
        let at = lane_of(&mut lanes, &span.key, &span.mode);
        if let Some(lane) = lanes.get_mut(at) {
            lane.spans.push(span);
        }
    }
    for lock in view.locks.iter().filter(|lock| is_wanted(&lock.key)) {
        let here = lock.queue.iter();
        for waiter in here.filter(|waiter| waiter.presence == Presence::Here) {
            let at = lane_of(&mut lanes, &lock.key, &waiter.mode);
            if let Some(lane) = lanes.get_mut(at) {
                let arrived = words::arrived(now, waiter);
                lane.waits.push((waiter.holder.id.clone(), arrived));
            }
        }
    }
    lanes.into_iter().flat_map(Lane::split).collect()
}

impl Lane {
    /// Lanes in which no grants and waits overlap.
    fn split(self) -> Vec<Self> {
        let rows = history::rows(self.spans);
        let mut lanes: Vec<Self> = rows
            .into_iter()
            .enumerate()
            .map(|(number, spans)| Self {
                store: self.store.clone(),
                key: self.key.clone(),
                subject: self.subject.clone(),
                number,
                spans,
                waits: Vec::new(),
            })
            .collect();
        match lanes.last_mut() {
            Some(last) => last.waits = self.waits,
            None => lanes.push(Self {
                spans: Vec::new(),
                ..self
            }),
        }
        lanes
    }

    /// Its name, in the first one.
    fn name(&self) -> &str {
        if self.number == 0 { &self.subject } else { "" }
    }
}

pub(crate) fn timeline(global: &Global, asked: &Timeline) -> Result<Answer, Failure> {
    let (place, overview) = all::look(global)?;
    let now = overview.now.wall;
    let wanted = asked
        .keys
        .iter()
        .map(|key| Key::parse(key.as_str()))
        .collect::<Result<Vec<Key>, _>>()?;
    let since = SignedDuration::try_from(asked.since)
        .ok()
        .and_then(|age| now.checked_sub(age).ok())
        .unwrap_or(Timestamp::UNIX_EPOCH);
    let mut lanes: Vec<Lane> = Vec::new();
    let mut left_out = overview.left_out.clone();
    for store in &overview.stores {
        // The whole history: a grant of long ago may not have ended.
        let Some(tenure) = store.tenure.as_ref().filter(|_| store.error.is_none()) else {
            let error = store.error.iter().map(ToString::to_string);
            left_out.push(format!(
                "{} can't be read: {}",
                store.url,
                error.collect::<String>()
            ));
            continue;
        };
        let events = match tenure
            .store()
            .history(&HistoryQuery::default(), call_deadline())
        {
            Ok(events) => events,
            Err(error) => {
                left_out.push(format!(
                    "the history of {} can't be read: {error}",
                    store.url
                ));
                continue;
            }
        };
        let query = HistoryQuery {
            since: Some(since),
            ..HistoryQuery::default()
        };
        let damaged = tenure.store().damaged_events(&query, call_deadline());
        left_out.extend(damaged.unwrap_or_else(|error| vec![error.to_string()]));
        let url = place.short_url(&store.url);
        lanes.extend(self::lanes(
            &url,
            &events,
            store,
            &overview.now,
            since,
            &wanted,
        ));
    }
    let from = first(&lanes).map_or(since, |first| first.max(since));
    let data = TimelineJson {
        from: from.into(),
        to: now.into(),
        spans: lanes
            .iter()
            .flat_map(|lane| lane.spans.iter().map(|span| json(&lane.store, span)))
            .collect(),
        waits: lanes.iter().flat_map(waits_json).collect(),
        left_out: left_out.clone(),
    };
    let mut text = if lanes.is_empty() {
        "Nothing was held in this period.".to_owned()
    } else {
        drawn(&lanes, from, now, fit::terminal_width())
    };
    if let Some(path) = &asked.svg {
        write_svg(path, &svg(&lanes, from, now))?;
        text = format!("Wrote {}.", path.display());
    }
    for line in left_out {
        let _ = write!(text, "\n{line}");
    }
    Ok(Answer::new(data, text))
}

/// When the first grant of these lanes began, or the wait for it, so that no empty time is shown before it.
pub(crate) fn first(lanes: &[Lane]) -> Option<Timestamp> {
    let spans = lanes.iter().flat_map(|lane| &lane.spans);
    spans.filter_map(|span| span.begin().or(span.to)).min()
}

/// The leases that have ended, although no process has recorded that yet.
fn unrecorded_ends(locks: &[Snapshot]) -> HashMap<(&Key, Token), &Verdict> {
    let leases = locks.iter().flat_map(|lock| &lock.leases);
    let ended = leases.filter(|(_, verdict)| verdict.ended().is_some());
    ended
        .map(|(lease, verdict)| ((&lease.key, lease.token), verdict))
        .collect()
}

fn settle(span: &mut Span, ends: &HashMap<(&Key, Token), &Verdict>) {
    if span.end.is_some() {
        return;
    }
    match ends.get(&(&span.key, span.token)) {
        Some(Verdict::Expired(evidence)) => {
            span.to = evidence.expired_at();
            span.end = Some(EventKind::Expired);
        }
        Some(Verdict::Dead(_)) => span.end = Some(EventKind::Dead),
        _ => {}
    }
}

/// How far a time is from the beginning, as a part of the whole period.
fn part(from: Timestamp, to: Timestamp, at: Timestamp) -> f64 {
    let whole = to.duration_since(from).as_secs_f64().max(0.001);
    (at.duration_since(from).as_secs_f64() / whole).clamp(0.0, 1.0)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    clippy::cast_precision_loss,
    reason = "a column of a terminal"
)]
fn column(part: f64, columns: usize) -> usize {
    ((part * columns as f64) as usize).min(columns.saturating_sub(1))
}

/// The lanes in block characters: neighbours differ, and an end that was no release is marked.
fn drawn(lanes: &[Lane], from: Timestamp, to: Timestamp, width: usize) -> String {
    let waiters = lanes.iter().flat_map(|lane| &lane.waits);
    let waiters = waiters.map(|(waiter, _)| fit::width(waiter.as_str()) + 1);
    let names = lanes.iter().map(|lane| fit::width(&lane.subject));
    let name = names.chain(waiters).max().unwrap_or(0).min(WIDEST);
    let columns = width.saturating_sub(name + 2).max(NARROWEST);
    let mut lines = Vec::new();
    let (begin, end) = (clock(from), clock(to));
    let gap = columns.saturating_sub(begin.len() + end.len());
    lines.push(format!(
        "{}{begin}{}{end}",
        " ".repeat(name + 2),
        " ".repeat(gap)
    ));
    let mut store = "";
    for lane in lanes {
        if lane.store != store {
            store = &lane.store;
            lines.push(store.to_owned());
        }
        let shown = fit::filled(&fit::middle(lane.name(), name), name);
        lines.push(format!("{shown}  {}", bar(lane, from, to, columns)));
        for (waiter, since) in &lane.waits {
            let shown = fit::filled(&fit::middle(&format!(" {waiter}"), name), name);
            lines.push(format!("{shown}  {}", wait_bar(*since, from, to, columns)));
        }
    }
    lines.push(String::new());
    lines.push(LEGEND.to_owned());
    for of_key in
        lanes.chunk_by(|one, two| (&one.store, &one.subject) == (&two.store, &two.subject))
    {
        let mut spans: Vec<&Span> = of_key.iter().flat_map(|lane| &lane.spans).collect();
        spans.sort_by_key(|span| span.from);
        for span in spans.iter().rev().take(3).rev() {
            let subject = words::subject(&span.key, &span.mode);
            let line = format!("{subject}: {}", told(span, clock));
            lines.push(fit::cut(&line, width));
        }
    }
    lines.join("\n")
}

/// What the characters of a lane mean.
pub(crate) const LEGEND: &str =
    "█ ▒ held (each grant in turn)   ✗ lost: dead, expired, forced   ░ waits   · free";

/// The grants of a lane and the waits before them in so many characters.
pub(crate) fn bar(lane: &Lane, from: Timestamp, to: Timestamp, columns: usize) -> String {
    let mut cells = vec!['·'; columns];
    for span in &lane.spans {
        if let (Some(waited_since), Some(granted)) = (span.waited_since, span.from) {
            let begin = column(part(from, to, waited_since), columns);
            let end = column(part(from, to, granted), columns);
            let cells = cells.iter_mut().take(end).skip(begin);
            cells.for_each(|cell| *cell = '░');
        }
    }
    for (number, span) in lane.spans.iter().enumerate() {
        let begin = column(part(from, to, span.from.unwrap_or(from)), columns);
        let end = column(part(from, to, span.to.unwrap_or(to)), columns);
        let shade = if number % 2 == 0 { '█' } else { '▒' };
        for cell in cells.iter_mut().take(end + 1).skip(begin) {
            *cell = shade;
        }
        if span.was_lost()
            && let Some(cell) = cells.get_mut(end)
        {
            *cell = '✗';
        }
    }
    cells.into_iter().collect()
}

/// A wait that goes on.
pub(crate) fn wait_bar(since: Timestamp, from: Timestamp, to: Timestamp, columns: usize) -> String {
    let begin = column(part(from, to, since), columns);
    format!(
        "{}{}",
        " ".repeat(begin),
        "░".repeat(columns.saturating_sub(begin))
    )
}

fn waits_json(lane: &Lane) -> Vec<WaitSpanJson> {
    let waits = lane.waits.iter();
    waits
        .map(|(holder, since)| WaitSpanJson {
            store: lane.store.clone(),
            key: lane.key.clone(),
            holder: holder.clone(),
            from: (*since).into(),
        })
        .collect()
}

/// A time of day, in UTC.
pub(crate) fn clock(at: Timestamp) -> String {
    at.strftime("%m-%d %H:%M:%SZ").to_string()
}

/// A grant in words, with its times as `time` writes them.
pub(crate) fn told(span: &Span, time: fn(Timestamp) -> String) -> String {
    let from = span
        .from
        .map_or_else(|| "before the history".to_owned(), time);
    let how = match span.end {
        None => "held until now".to_owned(),
        Some(kind) => {
            let at = span
                .to
                .map_or_else(|| "at an unknown time".to_owned(), time);
            format!("{} {at}", kind.word())
        }
    };
    let taken = if span.taken_over { ", taken over" } else { "" };
    let waited = span.waited().map_or_else(String::new, |waited| {
        format!(" after a wait of {}", words::elapsed(waited))
    });
    let mode = match &span.mode {
        Mode::Exclusive | Mode::Paths(_) => String::new(),
        mode => format!(", {}", words::asked_mode(mode)),
    };
    format!(
        "{} (token {}{mode}) from {from}{waited}{taken}, {how}",
        span.holder, span.token
    )
}

fn json(store: &str, span: &Span) -> SpanJson {
    SpanJson {
        store: store.to_owned(),
        key: span.key.clone(),
        holder: span.holder.clone(),
        token: span.token,
        waited_since: span.waited_since.map(Into::into),
        from: span.from.map(Into::into),
        to: span.to.map(Into::into),
        end: span.end,
        taken_over: span.taken_over,
    }
}

/// Text for XML.
fn escaped(text: &str) -> String {
    let text = flat(text);
    let text = text
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;");
    text.replace('"', "&quot;")
}

/// A wait in a picture: a bar that is lower than that of a grant.
fn wait_rect(x: f64, y: f64, width: f64, title: &str) -> String {
    format!(
        "<rect x=\"{x:.1}\" y=\"{:.0}\" width=\"{:.1}\" height=\"8\" fill=\"#f1c40f\"><title>{}</title></rect>\n",
        y + 5.0,
        width.max(2.0),
        escaped(title)
    )
}

/// The lanes as a picture, with a title on every bar.
fn svg(lanes: &[Lane], from: Timestamp, to: Timestamp) -> String {
    const LEFT: f64 = 220.0;
    const WIDE: f64 = 960.0;
    const HIGH: f64 = 22.0;
    const TOP: f64 = 40.0;
    const LETTER: f64 = 7.0;
    const PARTS: u32 = 4;
    let mut y = TOP;
    let mut body = String::new();
    let mut store = "";
    for lane in lanes {
        if lane.store != store {
            store = &lane.store;
            y += 8.0;
            let _ = writeln!(
                body,
                "<text x=\"8\" y=\"{:.0}\" font-weight=\"bold\">{}</text>",
                y + 14.0,
                escaped(store)
            );
            y += HIGH;
        }
        let _ = writeln!(
            body,
            "<text x=\"16\" y=\"{:.0}\">{}</text>",
            y + 14.0,
            escaped(&fit::middle(lane.name(), 24))
        );
        for (number, span) in lane.spans.iter().enumerate() {
            let begin = part(from, to, span.from.unwrap_or(from)) * WIDE;
            let end = part(from, to, span.to.unwrap_or(to)) * WIDE;
            let colour = match span.end {
                Some(EventKind::Dead | EventKind::Expired) => "#c0392b",
                Some(EventKind::Forced) => "#8e44ad",
                _ if number % 2 == 0 => "#2e86c1",
                _ => "#5dade2",
            };
            let stroke = if span.taken_over {
                " stroke=\"#e67e22\" stroke-width=\"2\""
            } else {
                ""
            };
            if let (Some(since), Some(waited)) = (span.waited_since, span.waited()) {
                let wait = part(from, to, since) * WIDE;
                let waited = words::elapsed(waited);
                let title = format!(
                    "{}: {} waited {waited}, from {}, for token {}",
                    lane.subject,
                    span.holder,
                    words::time(since),
                    span.token
                );
                body.push_str(&wait_rect(LEFT + wait, y, begin - wait, &title));
            }
            let _ = writeln!(
                body,
                "<rect x=\"{:.1}\" y=\"{y:.0}\" width=\"{:.1}\" height=\"18\" fill=\"{colour}\"{stroke}><title>{}</title></rect>",
                LEFT + begin,
                (end - begin).max(2.0),
                escaped(&format!("{}: {}", lane.subject, told(span, words::time)))
            );
            // Where there is room, the bar names its holder. The title of the bar is shown there, too.
            #[expect(clippy::cast_precision_loss, reason = "the width of a name")]
            let needed = fit::width(span.holder.as_str()) as f64 * LETTER + 8.0;
            if end - begin >= needed {
                let _ = writeln!(
                    body,
                    "<text x=\"{:.1}\" y=\"{:.0}\" fill=\"white\" font-size=\"11\" pointer-events=\"none\">{}</text>",
                    LEFT + begin + 4.0,
                    y + 13.0,
                    escaped(span.holder.as_str())
                );
            }
        }
        y += HIGH;
        for (waiter, since) in &lane.waits {
            let begin = part(from, to, *since) * WIDE;
            let since_then = words::time(*since);
            let title = format!("{}: {waiter} waits since {since_then}", lane.subject);
            let _ = writeln!(
                body,
                "<text x=\"28\" y=\"{:.0}\" fill=\"#555\">{}</text>",
                y + 14.0,
                escaped(&fit::middle(waiter.as_str(), 26)),
            );
            body.push_str(&wait_rect(LEFT + begin, y, WIDE - begin, &title));
            y += HIGH;
        }
    }
    let right = LEFT + WIDE;
    // Lines at equal distances, below the bars, with their times above.
    let mut axis = String::new();
    for number in 0..=PARTS {
        let part = f64::from(number) / f64::from(PARTS);
        let x = LEFT + part * WIDE;
        let anchor = match number {
            0 => "start",
            PARTS => "end",
            _ => "middle",
        };
        let passed = to.duration_since(from).as_secs_f64() * part;
        let at = SignedDuration::try_from_secs_f64(passed).unwrap_or_default();
        let at = from.checked_add(at).unwrap_or(to);
        let _ = writeln!(
            axis,
            "<line x1=\"{x:.0}\" y1=\"30\" x2=\"{x:.0}\" y2=\"{y:.0}\" stroke=\"#ddd\"/>\n\
             <text x=\"{x:.0}\" y=\"24\" text-anchor=\"{anchor}\">{}</text>",
            clock(at)
        );
    }
    let height = y + 40.0;
    let legend = "blue: released or held; red: its holder died or it expired; violet: forced; orange border: taken over; yellow: waited";
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{:.0}\" height=\"{height:.0}\" font-family=\"sans-serif\" font-size=\"13\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         {axis}{body}<text x=\"8\" y=\"{:.0}\" fill=\"#555\">{legend}</text>\n</svg>\n",
        right + 20.0,
        height - 12.0
    )
}

fn write_svg(path: &Path, svg: &str) -> Result<(), Failure> {
    std::fs::write(path, svg).map_err(|error| {
        let message = format!(
            "{} can't be written ({error}): name another file",
            path.display()
        );
        Failure::new(ErrorCode::Io, message)
    })
}
