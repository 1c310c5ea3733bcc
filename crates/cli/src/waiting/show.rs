//! What a wait looks like: [`WaitDisplay`].
//!
//! On a terminal: who holds the key, and a bar with the place in the queue. Without one: a line at
//! the start and one every half minute, so that a log shows that tenure is still waiting.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde_json::{Value, json};
use tenure::Tenure;
use tenure::ask::Progress;
use tenure::store::{Clock, Moment, Verdict};
use tenure::text::{duration, visible};
use tenure::wire::BusyJson;

use crate::answer::{remark, report_event};
use crate::args::Global;
use crate::fit;
use crate::waiting::shared_locks;
use crate::words;

/// The time between two lines without a terminal.
pub(super) const REMINDER: Duration = Duration::from_secs(30);

/// The cells of the bar: as many as the protocol of the task locks shows, and fewer where the line has no room for them.
const CELLS: (usize, usize) = (26, 12);

/// The terminal from which on the long bar leaves room for the elapsed time and the place in the queue, in columns.
const ROOM: usize = 64;

/// The columns of the brackets and the elapsed time.
const BESIDE_BAR: usize = 20;

/// How many cells the bar has on this terminal.
fn cells() -> usize {
    let (long, short) = CELLS;
    if terminal_width() >= ROOM {
        long
    } else {
        short
    }
}

/// The text of one kind of wait.
pub(crate) trait WaitText {
    /// The lines when the wait starts.
    fn started(&self, now: &Moment, progress: &Progress<'_>) -> Vec<String>;

    /// The line after every [`REMINDER`].
    fn reminder(&self, now: &Moment, progress: &Progress<'_>) -> String;

    /// The line when the request is granted.
    fn granted(&self, waited: Duration) -> String;

    /// The text after the progress bar.
    fn beside_bar(&self, progress: &Progress<'_>) -> String {
        format!("{}{}", place(progress), held(progress))
    }

    /// The line for programs when the wait starts, if they are told.
    fn event(&self, _: &Moment, _: &Progress<'_>) -> Option<Value> {
        None
    }
}

/// Waiting for a key.
pub(crate) struct KeyWait<'a> {
    tenure: &'a Tenure,
    key: &'a str,
    several: bool,
    /// The command that tells more, where no terminal shows the wait.
    more: Option<String>,
}

impl<'a> KeyWait<'a> {
    /// Whether `key` names several keys is in `several`.
    pub(crate) fn new(tenure: &'a Tenure, key: &'a str, several: bool) -> Self {
        Self {
            tenure,
            key,
            several,
            more: None,
        }
    }

    /// Adds the command that tells more, with the option that names the store.
    pub(super) fn with_more(mut self, what: &str, store: &str) -> Self {
        self.more = Some(format!("; more: tenure why {}{store}", words::quoted(what)));
        self
    }

    /// Who holds what, and the place in the queue.
    fn situation(&self, now: &Moment, progress: &Progress<'_>) -> String {
        let all = std::iter::once(progress.busy).chain(&progress.busy.others);
        let one = |busy| {
            let busy = Progress { busy, ..*progress };
            let (key, situation) = (&busy.busy.key, situation(now, &busy));
            if self.several {
                format!("{key} is {situation}")
            } else {
                situation
            }
        };
        all.map(one).collect::<Vec<_>>().join("; ")
    }
}

impl WaitText for KeyWait<'_> {
    fn started(&self, now: &Moment, progress: &Progress<'_>) -> Vec<String> {
        let (key, limit) = (self.key, limit(progress));
        if let Some(what) = shared_locks::locked(self.tenure, progress.busy) {
            return locked(&what, &limit, &self.situation(now, progress));
        }
        if std::io::stderr().is_terminal() {
            // The bar shows the place in the queue.
            let holder = if self.several {
                self.situation(now, progress)
            } else {
                holder(now, progress)
            };
            return vec![
                format!("tenure: waiting for {key}: {holder}"),
                format!("  {limit}"),
            ];
        }
        let situation = self.situation(now, progress);
        let more = self.more.as_deref().unwrap_or_default();
        vec![format!(
            "tenure: waiting for {key}, {limit}: {situation}{more}"
        )]
    }

    fn event(&self, now: &Moment, progress: &Progress<'_>) -> Option<Value> {
        Some(json!({
            "event": "waiting",
            "limitSeconds": progress.limit.as_secs_f64(),
            "busy": BusyJson::new(now, progress.busy),
        }))
    }

    fn reminder(&self, now: &Moment, progress: &Progress<'_>) -> String {
        let elapsed = words::elapsed(progress.elapsed);
        format!(
            "tenure: still waiting for {} after {elapsed}: {}",
            self.key,
            self.situation(now, progress)
        )
    }

    fn beside_bar(&self, progress: &Progress<'_>) -> String {
        if self.several {
            let key = &progress.busy.key;
            return format!("{} for {key}{}", place(progress), held(progress));
        }
        format!("{}{}", place(progress), held(progress))
    }

    fn granted(&self, waited: Duration) -> String {
        if self.tenure.is_foreign() {
            return RELEASED.to_owned();
        }
        let waited = words::elapsed(waited);
        format!("tenure: got {} after {waited}", self.key)
    }
}

/// The line that the protocol of the task locks prescribes when a wait for one of them ends with a grant.
pub(crate) const RELEASED: &str = "Lock released!";

/// The lines that it prescribes when the wait begins, and what is known beyond that.
pub(crate) fn locked(what: &str, limit: &str, situation: &str) -> Vec<String> {
    vec![
        format!("{what} is locked by another runner."),
        "Waiting for lock... (Ctrl+C to cancel)".to_owned(),
        format!("  {limit}: {situation}"),
    ]
}

/// The place in the queue, short enough for the bar's line.
fn place(progress: &Progress<'_>) -> String {
    let place = progress.busy.position.map_or(0, |position| position.ahead) + 1;
    format!("{} in the queue", words::ordinal(place))
}

/// The width of the terminal that shows the wait.
fn terminal_width() -> usize {
    fit::width_of(std::io::stderr())
}

/// A line in as many lines as the terminal needs, broken between words.
fn folded(line: &str) -> Vec<String> {
    let text = line.trim_start();
    let indent = line.len() - text.len();
    let most = terminal_width().saturating_sub(indent + 2).max(20);
    let mut lines = fit::wrapped(text, most, usize::MAX);
    for (number, line) in lines.iter_mut().enumerate() {
        let indent = if number == 0 { indent } else { indent + 2 };
        line.insert_str(0, &" ".repeat(indent));
    }
    lines
}

/// The holder, short enough for the bar's line. It comes last, because a long line is cut there.
fn held(progress: &Progress<'_>) -> String {
    match progress.busy.lease() {
        Some((_, Verdict::Malformed)) => ", its lock is malformed".to_owned(),
        Some((lease, _)) => format!(", held by {}", lease.holder.id),
        None => String::new(),
    }
}

/// How long a wait may last; and for a person, how to change or end it.
pub(crate) fn limit(progress: &Progress<'_>) -> String {
    let limit = duration::format(progress.limit);
    let change = if std::io::stderr().is_terminal() {
        " (--wait sets the limit, --no-wait ends at once, Ctrl+C to cancel)"
    } else {
        ""
    };
    format!("up to {limit}{change}")
}

/// The holder, and the place in the queue.
pub(crate) fn situation(now: &Moment, progress: &Progress<'_>) -> String {
    let place = progress.busy.position.map_or_else(String::new, |position| {
        format!(", {} in the queue", words::ordinal(position.ahead + 1))
    });
    format!("{}{place}", holder(now, progress))
}

/// The holder.
fn holder(now: &Moment, progress: &Progress<'_>) -> String {
    match progress.busy.lease() {
        Some((lease, Verdict::Malformed)) => {
            format!(
                "it {}, and only a person ends it",
                words::malformed(now, lease)
            )
        }
        Some((lease, verdict)) if verdict.ended().is_none() => {
            let what = if lease.key == progress.busy.key {
                ""
            } else {
                "its section is "
            };
            let age = lease.since().map(|at| words::age(now, at));
            let age = age.map_or_else(String::new, |age| format!(" for {age}"));
            format!("{what}held by {}{age}", lease.holder)
        }
        _ => "about to be granted to the first in the queue".to_owned(),
    }
}

/// Displays a wait on stderr.
pub(crate) struct WaitDisplay<'a, W> {
    global: &'a Global,
    clock: &'a dyn Clock,
    text: W,
    bar: Option<ProgressBar>,
    began: Option<Duration>,
    next_line: Duration,
    /// Whether the store could not be reached when it was asked last.
    is_unreachable: bool,
}

impl<'a, W: WaitText> WaitDisplay<'a, W> {
    pub(crate) fn new(global: &'a Global, clock: &'a dyn Clock, text: W) -> Self {
        Self {
            global,
            clock,
            text,
            bar: None,
            began: None,
            next_line: Duration::ZERO,
            is_unreachable: false,
        }
    }

    /// How long the wait has lasted.
    pub(crate) fn elapsed(&self) -> Duration {
        let now = self.clock.now().ticks;
        self.began
            .map_or(Duration::ZERO, |began| now.saturating_sub(began))
    }

    pub(super) fn update(&mut self, progress: &Progress<'_>) {
        let now = self.clock.now();
        if let Some(error) = progress.unreachable {
            self.is_unreachable = true;
            self.say(&format!("{}: the wait goes on until its limit", error.what));
            return;
        }
        if std::mem::take(&mut self.is_unreachable) {
            self.say("the store answers again");
        }
        if self.began.is_none() {
            self.began = Some(now.ticks.saturating_sub(progress.elapsed));
            self.next_line = REMINDER;
            self.begin(&now, progress);
        } else if progress.elapsed >= self.next_line && self.bar.is_none() {
            self.next_line += REMINDER;
            self.print(&self.text.reminder(&now, progress));
        }
        if let Some(bar) = &self.bar {
            let most = terminal_width().saturating_sub(BESIDE_BAR + cells());
            // The message first, so that the bar is never drawn without it.
            bar.set_message(fit::cut(&visible(&self.text.beside_bar(progress)), most));
            bar.set_position(progress.elapsed.as_secs());
        }
    }

    fn begin(&mut self, now: &Moment, progress: &Progress<'_>) {
        if progress
            .busy
            .position
            .is_some_and(|position| position.resumed)
        {
            remark(self.global, "your place in the queue was kept");
        }
        if self.global.json
            && let Some(event) = self.text.event(now, progress)
        {
            report_event(&event);
        }
        let is_terminal = std::io::stderr().is_terminal();
        for line in self.text.started(now, progress) {
            let lines = if is_terminal {
                folded(&line)
            } else {
                vec![line]
            };
            for line in &lines {
                self.print(line);
            }
        }
        let watched = is_terminal && !self.global.quiet && !self.global.json;
        if watched {
            let bar = ProgressBar::with_draw_target(
                Some(progress.limit.as_secs().max(1)),
                ProgressDrawTarget::stderr(),
            );
            if let Ok(style) = ProgressStyle::with_template(&format!(
                "[{{bar:{}}}] {{elapsed}} elapsed, {{wide_msg}}",
                cells()
            )) {
                bar.set_style(style.progress_chars("=> "));
            }
            self.bar = Some(bar);
        }
    }

    /// Prints a line above the bar, if there is one.
    fn say(&self, line: &str) {
        match &self.bar {
            Some(bar) => bar.suspend(|| self.print(line)),
            None => self.print(line),
        }
    }

    fn print(&self, line: &str) {
        if !self.global.quiet && !self.global.json {
            let _ = writeln!(anstream::stderr(), "{}", visible(line));
        }
    }

    /// Ends the display, with a last line if the request was granted.
    pub(crate) fn finish(&mut self, granted: bool) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
        if granted && self.began.is_some() {
            self.print(&self.text.granted(self.elapsed()));
        }
        let _ = std::io::stderr().flush();
    }
}
