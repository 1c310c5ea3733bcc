//! What a wait looks like.
//!
//! On a terminal: who holds the key, and a bar with the place in the queue. Without one: a line at
//! the start and one every half minute, so that a log shows that something is alive.

use std::io::{IsTerminal, Write};
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use tenure::core::{Clock, Moment};
use tenure::{Progress, duration};

use crate::answer::remark;
use crate::args::Global;
use crate::words;

/// Between two lines of a wait that nobody watches.
pub(super) const REMIND: Duration = Duration::from_secs(30);

/// The words of one kind of wait.
pub(crate) trait Story {
    /// When it begins.
    fn begins(&self, now: &Moment, progress: &Progress<'_>) -> Vec<String>;

    /// Every now and then.
    fn goes_on(&self, now: &Moment, progress: &Progress<'_>) -> String;

    /// When what was waited for has come.
    fn ends_well(&self, waited: Duration) -> String;

    /// Behind the bar.
    fn briefly(&self, progress: &Progress<'_>) -> String {
        format!("{}{}", place(progress), held(progress))
    }
}

/// Waiting for a key.
pub(crate) struct KeyStory<'a> {
    pub(crate) key: &'a str,
}

impl Story for KeyStory<'_> {
    fn begins(&self, now: &Moment, progress: &Progress<'_>) -> Vec<String> {
        let limit = duration::format(progress.limit);
        vec![format!(
            "tenure: waiting for {} (up to {limit}): {}",
            self.key,
            situation(now, progress)
        )]
    }

    fn goes_on(&self, now: &Moment, progress: &Progress<'_>) -> String {
        let elapsed = duration::format(words::whole(progress.elapsed));
        format!(
            "tenure: still waiting for {} after {elapsed}: {}",
            self.key,
            situation(now, progress)
        )
    }

    fn ends_well(&self, waited: Duration) -> String {
        let waited = duration::format(words::whole(waited));
        format!("tenure: got {} after {waited}", self.key)
    }

    fn briefly(&self, progress: &Progress<'_>) -> String {
        format!("{} (Ctrl+C to cancel){}", place(progress), held(progress))
    }
}

/// The place in the queue, for a bar that has to fit a line.
fn place(progress: &Progress<'_>) -> String {
    let place = progress.busy.place.map_or(0, |place| place.ahead) + 1;
    format!("{} in the queue", words::ordinal(place))
}

/// The same for the holder, which comes last: it is what is cut off.
fn held(progress: &Progress<'_>) -> String {
    let lease = progress.busy.lease.as_ref();
    lease.map_or_else(String::new, |(lease, _)| {
        format!(", held by {}", lease.holder.id)
    })
}

/// Who has it and how many go first.
pub(crate) fn situation(now: &Moment, progress: &Progress<'_>) -> String {
    let place = progress.busy.place.map_or_else(String::new, |place| {
        format!(", {} in the queue", words::ordinal(place.ahead + 1))
    });
    let holder = match &progress.busy.lease {
        Some((lease, verdict)) if verdict.over().is_none() => {
            format!("held by {}", words::held(now, lease))
        }
        _ => "about to go to the first in the queue".to_owned(),
    };
    format!("{holder}{place}")
}

/// What is shown of a wait.
pub(crate) struct Show<'a, S> {
    global: &'a Global,
    clock: &'a dyn Clock,
    story: S,
    bar: Option<ProgressBar>,
    began: Option<Duration>,
    next_line: Duration,
}

impl<'a, S: Story> Show<'a, S> {
    pub(crate) fn new(global: &'a Global, clock: &'a dyn Clock, story: S) -> Self {
        Self {
            global,
            clock,
            story,
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
            self.next_line = REMIND;
            self.begin(&now, progress);
        } else if progress.elapsed >= self.next_line && self.bar.is_none() {
            self.next_line += REMIND;
            self.say(&self.story.goes_on(&now, progress));
        }
        if let Some(bar) = &self.bar {
            bar.set_position(progress.elapsed.as_secs());
            bar.set_message(self.story.briefly(progress));
        }
    }

    fn begin(&mut self, now: &Moment, progress: &Progress<'_>) {
        if progress.busy.place.is_some_and(|place| place.resumed) {
            remark(self.global, "your place in the queue was kept");
        }
        for line in self.story.begins(now, progress) {
            self.say(&line);
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

    fn say(&self, line: &str) {
        if !self.global.quiet && !self.global.json {
            let _ = writeln!(anstream::stderr(), "{line}");
        }
    }

    /// Ends it.
    pub(crate) fn done(&mut self, had: bool) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
        if had && self.began.is_some() {
            self.say(&self.story.ends_well(self.elapsed()));
        }
        let _ = std::io::stderr().flush();
    }
}
