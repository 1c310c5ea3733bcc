//! Waiting for something, and how signals end it.

mod show;

use std::io::IsTerminal;
use std::sync::Arc;
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use signal_hook::consts::{SIGCHLD, SIGINT, SIGQUIT, SIGTSTP};
use tenure::core::{Busy, Cycle};
use tenure::{Ask, Cancel, Outcome, Progress, Tenure, duration};

pub(crate) use self::show::{KeyStory, Show, Story, situation};

use crate::answer::Failure;
use crate::args::{Asking, Global, Waits};
use crate::context;
use crate::exit::Exit;
use crate::signals::{Signals, stop_here};
use crate::words;
use tenure::wire::ErrorCode;

/// Between two looks at the clock on a terminal.
const TICK: Duration = Duration::from_secs(1);

/// Fills in how to ask for a key.
pub(crate) fn prepare<'a>(
    global: &Global,
    tenure: &'a Tenure,
    key: &str,
    asking: &Asking,
) -> Result<Ask<'a>, Failure> {
    let mut ask = with_name(global, tenure, tenure.ask(key)?)?;
    if let Some(priority) = asking.priority {
        ask = ask.priority(priority);
    }
    Ok(with_patience(tenure, ask, &asking.waits))
}

/// Fills in who asks.
pub(crate) fn with_name<'a, W>(
    global: &Global,
    tenure: &Tenure,
    ask: Ask<'a, W>,
) -> Result<Ask<'a, W>, Failure> {
    let ask = ask.within(context::within(tenure));
    Ok(match &global.holder {
        Some(named) => ask.named(named)?.keep_place(),
        None => ask,
    })
}

/// Fills in how long to hold and to wait.
pub(crate) fn with_patience<'a, W>(
    tenure: &Tenure,
    mut ask: Ask<'a, W>,
    waits: &Waits,
) -> Ask<'a, W> {
    if let Some(ttl) = waits.ttl {
        ask = ask.ttl(ttl);
    }
    let limit = waits.wait.unwrap_or(tenure.config().locking.wait_timeout);
    if waits.no_wait || limit.is_zero() {
        return ask;
    }
    wait_for(ask, limit)
}

/// Makes it wait, for somebody to watch.
pub(crate) fn wait_for<W>(ask: Ask<'_, W>, limit: Duration) -> Ask<'_, W> {
    ask.wait(limit).tick(if std::io::stderr().is_terminal() {
        TICK
    } else {
        show::REMIND
    })
}

/// Asks and waits for a key, and shows the wait. Every outcome but a grant becomes a failure.
pub(crate) fn acquire(
    global: &Global,
    tenure: &Tenure,
    key: &str,
    ask: Ask<'_>,
    signals: &mut Signals,
) -> Result<tenure::Held, Failure> {
    acquire_or(global, tenure, key, ask, signals, |busy| {
        let (message, details) = busy_report(global, tenure, key, busy, &look(global, tenure, key));
        Failure::new(ErrorCode::Locked, message).details(details)
    })
}

/// The same for a protocol that has its own report of a busy key.
pub(crate) fn acquire_or(
    global: &Global,
    tenure: &Tenure,
    key: &str,
    ask: Ask<'_>,
    signals: &mut Signals,
    report: impl FnOnce(&Busy) -> Failure,
) -> Result<tenure::Held, Failure> {
    let mut show = Show::new(global, tenure.clock(), KeyStory { key });
    let (outcome, signal) = watched(tenure, signals, &mut show, |cancel, observer| {
        ask.acquire_watched(cancel, observer)
    })?;
    show.done(matches!(outcome, Outcome::Granted(_)));
    match outcome {
        // It came together with a signal that told us to stop.
        Outcome::Granted(held) if signal.is_some() => {
            let _freed = held.release()?;
            let signal = signal.unwrap_or(SIGINT);
            Err(interrupted(key, &show, signal, "gave it back"))
        }
        Outcome::Granted(held) => Ok(held),
        Outcome::Busy(busy) => Err(report(&busy)),
        Outcome::Deadlock(cycle) => Err(deadlock(key, &cycle)),
        Outcome::Cancelled => {
            let signal = signal.unwrap_or(SIGINT);
            Err(interrupted(
                key,
                &show,
                signal,
                &place_after(global, tenure, signal),
            ))
        }
    }
}

/// Does something that may wait, shows how that goes, and ends it on a signal, which it tells.
pub(crate) fn watched<T, S: Story>(
    tenure: &Tenure,
    signals: &mut Signals,
    show: &mut Show<'_, S>,
    ask: impl FnOnce(&Cancel, &mut dyn FnMut(Progress<'_>)) -> Result<T, tenure::Error>,
) -> Result<(T, Option<i32>), Failure> {
    let cancel = Arc::new(Cancel::default());
    let mut watch = None;
    let outcome = ask(&cancel, &mut |progress| {
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
            return Err(Failure::new(ErrorCode::Io, message));
        }
    };
    if outcome.is_err() {
        show.done(false);
    }
    Ok((outcome?, signal))
}

/// A wait that would never end.
pub(crate) fn deadlock(what: &str, cycle: &Cycle) -> Failure {
    let message =
        format!("waiting for {what} would never end: {cycle}\n  release one of these keys first");
    Failure::new(ErrorCode::Deadlock, message)
        .details(serde_json::json!({ "key": what, "cycle": cycle }))
}

/// What became of the place of somebody whom this signal made stop waiting.
pub(crate) fn place_after(global: &Global, tenure: &Tenure, signal: i32) -> String {
    match kept_place(global, tenure) {
        Some(kept) if !leaves(signal) => kept,
        _ => "left the queue".to_owned(),
    }
}

/// Whether a signal means that whoever waited will not come back.
fn leaves(signal: i32) -> bool {
    matches!(signal, SIGINT | SIGQUIT)
}

/// A wait that a signal ended.
pub(crate) fn interrupted<S: Story>(
    what: &str,
    show: &Show<'_, S>,
    signal: i32,
    then: &str,
) -> Failure {
    let waited = duration::format(words::whole(show.elapsed()));
    let message = format!("stopped waiting for {what} after {waited}; {then}");
    Failure::new(ErrorCode::Interrupted, message).exit(Exit::signal(signal))
}

/// How long the place of whoever stops waiting is kept, in words, if it is kept.
pub(crate) fn kept_place(global: &Global, tenure: &Tenure) -> Option<String> {
    let grace = tenure.config().locking.queue_grace;
    (global.holder.is_some() && !grace.is_zero()).then(|| {
        let grace = duration::format(grace);
        format!("the place in the queue is kept for {grace}: ask again with the same --as")
    })
}

/// How to look at a key.
fn look(global: &Global, tenure: &Tenure, key: &str) -> String {
    if tenure.store().capabilities().any_key || key.contains(':') || global.store.is_some() {
        return words::locks_command("show", key, global.store.as_deref());
    }
    "tenure exclusive status".to_owned()
}

/// The message and details of a busy key. `look` is the command that shows more.
pub(crate) fn busy_report(
    global: &Global,
    tenure: &Tenure,
    key: &str,
    busy: &Busy,
    look: &str,
) -> (String, serde_json::Value) {
    let (mut message, details) = words::busy(&tenure.clock().now(), key, busy);
    match busy.place {
        Some(place) => {
            let place = words::ordinal(place.ahead + 1);
            message = format!("the wait timed out: {message}\n  we were {place} in the queue");
            if let Some(kept) = kept_place(global, tenure) {
                message = format!("{message}; {kept}");
            }
        }
        None => {
            message = format!("{message}\n  to wait for it: --wait 10m; to look: {look}");
        }
    }
    (message, details)
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
