//! What a wait looks like: [`WaitDisplay`].
//!
//! On a terminal: who holds the key, and a bar with the place in the queue. Without one: a line at
//! the start and one every half minute, so that a log shows that tenure is still waiting.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tenure::{Progress, duration};
use tenure_core::{Clock, Moment};

use crate::answer::remark;
use crate::args::Global;
use crate::fit::visible;
use crate::words;

/// The time between two lines without a terminal.
pub(super) const REMINDER: Duration = Duration::from_secs(30);

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
}

/// Waiting for a key.
pub(crate) struct KeyWait<'a> {
    pub(crate) key: &'a str,
}

impl WaitText for KeyWait<'_> {
    fn started(&self, now: &Moment, progress: &Progress<'_>) -> Vec<String> {
        let limit = duration::format(progress.limit);
        vec![format!(
            "tenure: waiting for {} (up to {limit}): {}",
            self.key,
            situation(now, progress)
        )]
    }

    fn reminder(&self, now: &Moment, progress: &Progress<'_>) -> String {
        let elapsed = words::elapsed(progress.elapsed);
        format!(
            "tenure: still waiting for {} after {elapsed}: {}",
            self.key,
            situation(now, progress)
        )
    }

    fn granted(&self, waited: Duration) -> String {
        let waited = words::elapsed(waited);
        format!("tenure: got {} after {waited}", self.key)
    }

    fn beside_bar(&self, progress: &Progress<'_>) -> String {
        format!("{} (Ctrl+C to cancel){}", place(progress), held(progress))
    }
}

/// The place in the queue, short enough for the bar's line.
fn place(progress: &Progress<'_>) -> String {
    let place = progress.busy.position.map_or(0, |position| position.ahead) + 1;
    format!("{} in the queue", words::ordinal(place))
}

/// The holder, short enough for the bar's line. It comes last, because a long line is cut there.
fn held(progress: &Progress<'_>) -> String {
    let lease = progress.busy.lease();
    lease.map_or_else(String::new, |(lease, _)| {
        format!(", held by {}", lease.holder.id)
    })
}

/// How long a wait may last, and the options that change that.
pub(crate) fn limit(progress: &Progress<'_>) -> String {
    let limit = duration::format(progress.limit);
    format!("up to {limit} (--wait sets the limit, --no-wait ends at once)")
}

/// The holder, and the place in the queue.
pub(crate) fn situation(now: &Moment, progress: &Progress<'_>) -> String {
    let place = progress.busy.position.map_or_else(String::new, |position| {
        format!(", {} in the queue", words::ordinal(position.ahead + 1))
    });
    let holder = match progress.busy.lease() {
        Some((lease, verdict)) if verdict.ended().is_none() => {
            let what = if lease.key == progress.busy.key {
                ""
            } else {
                "its section is "
            };
            format!("{what}held by {}", words::held(now, lease))
        }
        _ => "about to be granted to the first in the queue".to_owned(),
    };
    format!("{holder}{place}")
}

/// Displays a wait on stderr.
pub(crate) struct WaitDisplay<'a, W> {
    global: &'a Global,
    clock: &'a dyn Clock,
    text: W,
    bar: Option<ProgressBar>,
    began: Option<Duration>,
    next_line: Duration,
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
        if self.began.is_none() {
            self.began = Some(now.ticks.saturating_sub(progress.elapsed));
            self.next_line = REMINDER;
            self.begin(&now, progress);
        } else if progress.elapsed >= self.next_line && self.bar.is_none() {
            self.next_line += REMINDER;
            self.print(&self.text.reminder(&now, progress));
        }
        if let Some(bar) = &self.bar {
            bar.set_position(progress.elapsed.as_secs());
            bar.set_message(visible(&self.text.beside_bar(progress)).into_owned());
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
        for line in self.text.started(now, progress) {
            self.print(&line);
        }
        let watched = std::io::stderr().is_terminal() && !self.global.quiet && !self.global.json;
        if watched {
            let bar = ProgressBar::with_draw_target(
                Some(progress.limit.as_secs().max(1)),
                ProgressDrawTarget::stderr(),
            );
            if let Ok(style) =
                ProgressStyle::with_template("[{bar:26}] {elapsed} elapsed, {wide_msg}")
            {
                bar.set_style(style.progress_chars("=> "));
            }
            self.bar = Some(bar);
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
