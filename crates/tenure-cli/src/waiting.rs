//! What a wait looks like, and how signals end it.
//!
//! On a terminal: who holds the key, and a bar with the place in the queue. Without one: a line at
//! the start and one every half minute, so that a log shows that something is alive.

use std::io::{IsTerminal, Write};
use std::sync::Arc;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use signal_hook::consts::{SIGCHLD, SIGINT, SIGQUIT, SIGTSTP};
use tenure::core::{Busy, Clock, Moment};
use tenure::{Ask, Cancel, Outcome, Progress, Tenure, duration};

use crate::answer::{Failure, remark};
use crate::args::{Asking, Global};
use crate::context;
use crate::exit::Exit;
use crate::signals::{Signals, stop_here};
use crate::words;

/// Between two lines of a wait that nobody watches.
const REMIND: Duration = Duration::from_secs(30);

/// Between two looks at the clock on a terminal.
const TICK: Duration = Duration::from_secs(1);

/// Fills in how to ask.
pub(crate) fn prepare<'a>(
    global: &Global,
    tenure: &'a Tenure,
    key: &str,
    asking: &Asking,
) -> Result<Ask<'a>, Failure> {
    let mut ask = tenure.ask(key)?.within(context::within(tenure));
    if let Some(named) = &global.holder {
        ask = ask.named(named)?.keep_place();
    }
    if let Some(ttl) = asking.ttl {
        ask = ask.ttl(ttl);
    }
    if let Some(priority) = asking.priority {
        ask = ask.priority(priority);
    }
    let limit = asking.wait.unwrap_or(tenure.config().locking.wait_timeout);
    if !asking.no_wait && !limit.is_zero() {
        ask = ask.wait(limit).tick(if std::io::stderr().is_terminal() {
            TICK
        } else {
            REMIND
        });
    }
    Ok(ask)
}

/// Asks and waits, for people to watch. Anything but a grant is a failure in words.
pub(crate) fn acquire(
    global: &Global,
    tenure: &Tenure,
    key: &str,
    ask: Ask<'_>,
    signals: &mut Signals,
) -> Result<tenure::Held, Failure> {
    let cancel = Arc::new(Cancel::default());
    let mut watch = None;
    let mut show = Show::new(global, key, tenure.clock());
    let outcome = ask.acquire_watched(&cancel, &mut |progress| {
        // Only now is there anything to wait for: the way of a free key needs no thread.
        if watch.is_none() {
            watch = Some(SignalWatch::start(signals, &cancel, tenure));
        }
        if matches!(watch, Some(Err(_))) {
            cancel.leave();
        }
        show.update(&progress);
    });
    let signal = match watch.transpose() {
        Ok(watch) => watch.and_then(SignalWatch::stop),
        Err(error) => {
            let message = format!("waiting is not possible, the system refused ({error})");
            return Err(Failure::new(Exit::Runtime, "IO", message));
        }
    };
    let outcome = outcome?;
    show.done(matches!(outcome, Outcome::Granted(_)));
    let now = tenure.clock().now();
    match outcome {
        // It came together with a signal that told us to stop.
        Outcome::Granted(held) if signal.is_some() => {
            let _freed = held.release()?;
            Err(interrupted(
                &show,
                &now,
                signal.unwrap_or(SIGINT),
                "gave it back",
            ))
        }
        Outcome::Granted(held) => Ok(held),
        Outcome::Busy(busy) => Err(locked(global, tenure, key, &busy)),
        Outcome::Deadlock(cycle) => Err(Failure::new(
            Exit::Locked,
            "DEADLOCK",
            format!(
                "waiting for {key} would never end: {cycle}\n  release one of these keys first"
            ),
        )
        .details(serde_json::json!({ "key": key, "cycle": cycle }))),
        Outcome::Cancelled => {
            let signal = signal.unwrap_or(SIGINT);
            let place = match kept_place(global, tenure) {
                Some(kept) if !leaves(signal) => kept,
                _ => "left the queue".to_owned(),
            };
            Err(interrupted(&show, &now, signal, &place))
        }
    }
}

/// Whether a signal means that whoever waited will not come back.
fn leaves(signal: i32) -> bool {
    matches!(signal, SIGINT | SIGQUIT)
}

fn interrupted(show: &Show<'_>, now: &Moment, signal: i32, then: &str) -> Failure {
    let waited = duration::format(words::whole(show.elapsed(now)));
    let message = format!("stopped waiting for {} after {waited}; {then}", show.key);
    Failure::new(Exit::signal(signal), "INTERRUPTED", message)
}

/// How long the place of whoever stops waiting is kept, in words, if it is kept.
fn kept_place(global: &Global, tenure: &Tenure) -> Option<String> {
    let grace = tenure.config().locking.queue_grace;
    (global.holder.is_some() && !grace.is_zero()).then(|| {
        let grace = duration::format(grace);
        format!("the place in the queue is kept for {grace}: ask again with the same --as")
    })
}

fn locked(global: &Global, tenure: &Tenure, key: &str, busy: &Busy) -> Failure {
    let (mut message, details) = words::busy(&tenure.clock().now(), key, busy);
    match busy.place {
        Some(place) => {
            let place = words::ordinal(place.ahead + 1);
            message = format!("the wait ran out: {message}\n  we were {place} in the queue");
            if let Some(kept) = kept_place(global, tenure) {
                message = format!("{message}; {kept}");
            }
        }
        None => {
            message = format!(
                "{message}\n  to wait for it: --wait 10m; to look: tenure locks show {}",
                words::quoted(key)
            );
        }
    }
    Failure::new(Exit::Locked, "LOCKED", message).details(details)
}

/// A thread that turns signals into an end of the wait.
struct SignalWatch {
    stop: Arc<std::os::fd::OwnedFd>,
    thread: std::thread::JoinHandle<Option<i32>>,
}

impl SignalWatch {
    fn start(
        signals: &mut Signals,
        cancel: &Arc<Cancel>,
        tenure: &Tenure,
    ) -> std::io::Result<Self> {
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let mut signals = signals.share()?;
        let (stopped, cancel, store) = (
            Arc::clone(&stop),
            Arc::clone(cancel),
            Arc::clone(tenure.store()),
        );
        let thread = std::thread::Builder::new()
            .name("signals".into())
            .spawn(move || {
                loop {
                    let mut fds = [
                        PollFd::new(&signals, PollFlags::IN),
                        PollFd::new(&*stopped, PollFlags::IN),
                    ];
                    if poll(&mut fds, None).is_err_and(|error| error != rustix::io::Errno::INTR) {
                        return None;
                    }
                    let over = fds.last().is_some_and(|fd| !fd.revents().is_empty());
                    for signal in signals.pending() {
                        match signal {
                            SIGCHLD => continue,
                            SIGTSTP => {
                                stop_here();
                                continue;
                            }
                            signal if leaves(signal) => cancel.leave(),
                            _ => cancel.cut_off(),
                        }
                        store.wake();
                        return Some(signal);
                    }
                    if over {
                        return None;
                    }
                }
            })?;
        Ok(Self { stop, thread })
    }

    /// The signal that ended the wait, if one did.
    fn stop(self) -> Option<i32> {
        let _ = rustix::io::write(&*self.stop, &1u64.to_ne_bytes());
        self.thread.join().ok().flatten()
    }
}

/// What is shown of a wait.
struct Show<'a> {
    global: &'a Global,
    key: &'a str,
    clock: &'a dyn Clock,
    bar: Option<ProgressBar>,
    began: Option<Duration>,
    next_line: Duration,
}

impl<'a> Show<'a> {
    fn new(global: &'a Global, key: &'a str, clock: &'a dyn Clock) -> Self {
        Self {
            global,
            key,
            clock,
            bar: None,
            began: None,
            next_line: Duration::ZERO,
        }
    }

    fn elapsed(&self, now: &Moment) -> Duration {
        self.began
            .map_or(Duration::ZERO, |began| now.since_boot.saturating_sub(began))
    }

    fn update(&mut self, progress: &Progress<'_>) {
        let first = self.began.is_none();
        if first {
            let now = self.clock.now();
            self.began = Some(now.since_boot.saturating_sub(progress.elapsed));
            self.next_line = REMIND;
            self.begin(progress);
        } else if progress.elapsed >= self.next_line && self.bar.is_none() {
            self.next_line += REMIND;
            let elapsed = duration::format(words::whole(progress.elapsed));
            remark(
                self.global,
                &format!(
                    "still waiting for {} after {elapsed}: {}",
                    self.key,
                    self.situation(progress)
                ),
            );
        }
        if let Some(bar) = &self.bar {
            bar.set_position(progress.elapsed.as_secs());
            bar.set_message(Self::briefly(progress));
        }
    }

    fn begin(&mut self, progress: &Progress<'_>) {
        let limit = duration::format(progress.limit);
        if progress.busy.place.is_some_and(|place| place.resumed) {
            remark(self.global, "your place in the queue was kept");
        }
        remark(
            self.global,
            &format!(
                "waiting for {} (up to {limit}): {}",
                self.key,
                self.situation(progress)
            ),
        );
        let watched = std::io::stderr().is_terminal() && !self.global.quiet && !self.global.json;
        if watched {
            let bar = ProgressBar::with_draw_target(
                Some(progress.limit.as_secs().max(1)),
                ProgressDrawTarget::stderr(),
            );
            if let Ok(style) = ProgressStyle::with_template(
                "[{bar:26}] {elapsed} elapsed, {msg} (Ctrl+C to cancel)",
            ) {
                bar.set_style(style.progress_chars("=> "));
            }
            self.bar = Some(bar);
        }
    }

    /// The same for a bar that has to fit a line.
    fn briefly(progress: &Progress<'_>) -> String {
        let holder = progress
            .busy
            .lease
            .as_ref()
            .map(|(lease, _)| &lease.holder.id);
        let holder = holder.map_or_else(String::new, |id| format!(", held by {id}"));
        let place = progress.busy.place.map_or(0, |place| place.ahead) + 1;
        format!("{} in the queue{holder}", words::ordinal(place))
    }

    /// Who has it and how many go first.
    fn situation(&self, progress: &Progress<'_>) -> String {
        let now = self.clock.now();
        let place = progress.busy.place.map_or_else(String::new, |place| {
            format!(", {} in the queue", words::ordinal(place.ahead + 1))
        });
        let holder = match &progress.busy.lease {
            Some((lease, verdict)) if verdict.over().is_none() => {
                format!("held by {}", words::held(&now, lease))
            }
            _ => "about to go to the first in the queue".to_owned(),
        };
        format!("{holder}{place}")
    }

    fn done(&mut self, granted: bool) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
        if granted && self.began.is_some() {
            let waited = duration::format(words::whole(self.elapsed(&self.clock.now())));
            remark(self.global, &format!("got {} after {waited}", self.key));
        }
        let _ = std::io::stderr().flush();
    }
}
