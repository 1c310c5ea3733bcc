//! Waiting for a key or a task, and how signals end it.

mod shared_locks;
mod show;

use std::io::IsTerminal;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rustix::event::{EventfdFlags, PollFd, PollFlags, eventfd, poll};
use serde_json::json;
use signal_hook::consts::{SIGCHLD, SIGINT, SIGQUIT, SIGTSTP};
use tenure::ask::{Cancel, Progress};
use tenure::store::{Cycle, Key, Lease, Verdict, call_deadline};
use tenure::text::duration;
use tenure::wire::{BusyJson, DeadlockJson, ErrorCode};
use tenure::{Acquired, Ask, Busy, Guard, Tenure};

pub(crate) use self::show::{KeyWait, RELEASED, WaitDisplay, WaitText, limit, locked, situation};

use crate::answer::Failure;
use crate::args::{Global, RequestArgs, WaitArgs};
use crate::context;
use crate::exit::Exit;
use crate::signals::{Signals, stop_here};
use crate::words;

/// How often a terminal is updated.
const TICK: Duration = Duration::from_secs(1);

/// Builds a request for a key, or for several.
pub(crate) fn prepare<'a>(
    global: &Global,
    tenure: &'a Tenure,
    keys: &[&str],
    options: &RequestArgs,
) -> Result<Ask<'a>, Failure> {
    let (first, others) = keys.split_first().unwrap_or((&"", &[]));
    let mut ask = tenure.ask(first)?.mode(options.mode());
    for other in others {
        ask = ask.and(other)?;
    }
    complete(global, tenure, ask, options)
}

/// Adds the holder, the rank and the wait limit to a request.
pub(crate) fn complete<'a>(
    global: &Global,
    tenure: &Tenure,
    ask: Ask<'a>,
    options: &RequestArgs,
) -> Result<Ask<'a>, Failure> {
    let mut ask = with_name(global, tenure, ask)?;
    if options.is_slot() && ask.keys().count() > 1 {
        let message = "--slots is for one key: hold several keys alone or --shared, or hold the slot in a tenure run of \
                       its own around this one";
        return Err(Failure::new(ErrorCode::Usage, message));
    }
    if let Some(priority) = options.priority {
        ask = ask.priority(priority);
    }
    Ok(with_patience(tenure, ask, &options.waits))
}

/// Adds the holder to a request.
pub(crate) fn with_name<'a, W>(
    global: &Global,
    tenure: &Tenure,
    ask: Ask<'a, W>,
) -> Result<Ask<'a, W>, Failure> {
    let ask = ask.within(tenure.parent_leases());
    Ok(match &global.holder {
        Some(named) => ask.named(named)?.keep_place(),
        None => ask,
    })
}

/// Adds the time to live and the wait limit to a request.
pub(crate) fn with_patience<'a, W>(
    tenure: &Tenure,
    mut ask: Ask<'a, W>,
    waits: &WaitArgs,
) -> Ask<'a, W> {
    if let Some(ttl) = waits.ttl {
        ask = ask.ttl(ttl);
    }
    let given = waits.wait.or(waits.wait_seconds);
    let limit = given.unwrap_or(tenure.config().locking.wait_timeout);
    if waits.no_wait || limit.is_zero() {
        return ask;
    }
    wait_for(ask, limit)
}

/// Makes a request wait, with progress reports for [`WaitDisplay`].
pub(crate) fn wait_for<W>(ask: Ask<'_, W>, limit: Duration) -> Ask<'_, W> {
    ask.wait(limit).tick(if std::io::stderr().is_terminal() {
        TICK
    } else {
        show::REMINDER
    })
}

/// Asks and waits for a key, and shows the wait. Every outcome but a grant becomes a failure.
pub(crate) fn acquire(
    global: &Global,
    tenure: &Tenure,
    key: &str,
    ask: Ask<'_>,
    signals: &mut Signals,
) -> Result<Guard, Failure> {
    let several = ask.keys().count() > 1;
    acquire_or(global, tenure, key, ask, signals, |busy| {
        let key = if several { busy.key.as_str() } else { key };
        refused(global, tenure, key, busy)
    })
}

/// Why a key was not granted.
fn refused(global: &Global, tenure: &Tenure, key: &str, busy: &Busy) -> Failure {
    let report = busy_report(global, tenure, key, busy, &look(global, tenure, key, busy));
    let Some(refusal) = shared_locks::refusal(tenure, busy, &report) else {
        return Failure::new(ErrorCode::Locked, report.0).details(report.1);
    };
    if busy
        .lease()
        .is_some_and(|(lease, _)| context::is_held_by_caller(global, lease))
    {
        return refusal.text(report.0);
    }
    if refusal.is_verbatim() {
        return timed_out(global, tenure, busy, refusal);
    }
    refusal
}

/// The same for a protocol that has its own report of a busy key.
pub(crate) fn acquire_or(
    global: &Global,
    tenure: &Tenure,
    key: &str,
    ask: Ask<'_>,
    signals: &mut Signals,
    report: impl FnOnce(&Busy) -> Failure,
) -> Result<Guard, Failure> {
    let several = ask.keys().count() > 1;
    let mut wait = KeyWait::new(tenure, key, several);
    // The lock of another program is asked for under that program's rules.
    if let Some(first) = ask.keys().next()
        && tenure.store().capabilities().any_key
    {
        // Only one name or path can be asked about.
        let is_several = several || *first == Key::paths() && key.contains(' ');
        let what = if is_several { first.as_str() } else { key };
        wait = wait.with_more(what, &words::in_store(global.store.as_deref()));
    }
    let mut display = WaitDisplay::new(global, tenure.clock(), wait);
    let mut own = None;
    let (outcome, signal) = watched(signals, &mut display, |cancel, observer| {
        ask.acquire_watched(cancel, &mut |progress| {
            let busy = std::iter::once(progress.busy).chain(&progress.busy.others);
            let mut held = busy.flat_map(|busy| &busy.leases).map(|(lease, _)| lease);
            match held.find(|lease| context::is_held_by_caller(global, lease)) {
                Some(lease) => {
                    own = Some(lease.clone());
                    cancel.leave();
                }
                None => observer(progress),
            }
        })
    })?;
    if let (Acquired::Cancelled, Some(lease)) = (&outcome, &own) {
        let details = json!({ "key": lease.key, "token": lease.token });
        let message = own_lease(global, tenure, lease);
        return Err(Failure::new(ErrorCode::Deadlock, message).details(details));
    }
    display.finish(matches!(outcome, Acquired::Granted(_)));
    match outcome {
        // A signal to stop arrived together with the grant.
        Acquired::Granted(guard) if signal.is_some() => {
            let _freed = guard.release()?;
            let signal = signal.unwrap_or(SIGINT);
            let again = if several {
                "released them again"
            } else {
                "released it again"
            };
            Err(interrupted(key, &display, signal, again))
        }
        Acquired::Granted(guard) => Ok(guard),
        Acquired::Busy(busy) => Err(report(&busy)),
        Acquired::Deadlock(cycle) => Err(deadlock(key, &cycle)),
        Acquired::Cancelled => {
            let signal = signal.unwrap_or(SIGINT);
            Err(interrupted(
                key,
                &display,
                signal,
                &place_after(global, tenure, signal),
            ))
        }
    }
}

/// Runs a request that may wait and displays the wait. A signal ends it and is returned.
pub(crate) fn watched<T, W: WaitText>(
    signals: &mut Signals,
    display: &mut WaitDisplay<'_, W>,
    ask: impl FnOnce(&Cancel, &mut dyn FnMut(Progress<'_>)) -> Result<T, tenure::Error>,
) -> Result<(T, Option<i32>), Failure> {
    let cancel = Arc::new(Cancel::default());
    let watch = SignalWatch::on_wait(signals, &cancel);
    let outcome = ask(&cancel, &mut |progress| display.update(&progress));
    let signal = match SignalWatch::stop(&watch) {
        Ok(signal) => signal,
        Err(error) => {
            let message = format!("cannot wait for signals ({error})");
            return Err(Failure::new(ErrorCode::Io, message));
        }
    };
    if outcome.is_err() {
        display.finish(false);
    }
    Ok((outcome?, signal))
}

/// Makes a call of the store, and gives it up if a signal arrives while the store is busy. Returns that signal, too.
pub(crate) fn until_signal<T>(signals: &Signals, call: impl FnOnce() -> T) -> (T, Option<i32>) {
    let cancel = Arc::new(Cancel::default());
    let watch = SignalWatch::on_wait(signals, &cancel);
    let answer = cancel.during(call);
    (answer, SignalWatch::stop(&watch).ok().flatten())
}

/// A wait that would never end, because the holders wait for one another.
pub(crate) fn deadlock(what: &str, cycle: &Cycle) -> Failure {
    let message =
        format!("waiting for {what} would never end: {cycle}\n  release one of these keys first");
    Failure::new(ErrorCode::Deadlock, message).details(DeadlockJson {
        cycle: cycle.clone(),
    })
}

/// A wait for a lease of the calling shell itself.
fn own_lease(global: &Global, tenure: &Tenure, lease: &Lease) -> String {
    let now = tenure.clock().now();
    format!(
        "you hold {} yourself, as {}, with token {}: waiting for it would never end\n  release it first: tenure \
         release {} --token {}{}",
        lease.key,
        words::held(&now, lease),
        lease.token,
        words::quoted(lease.key.as_str()),
        lease.token,
        words::in_store(global.store.as_deref())
    )
}

/// What happens to the queue position of a waiter that this signal ended.
pub(crate) fn place_after(global: &Global, tenure: &Tenure, signal: i32) -> String {
    match kept_place(global, tenure) {
        Some(kept) if !leaves(signal) => kept,
        _ => "left the queue".to_owned(),
    }
}

/// Whether a signal means that the waiter gives up its queue position.
fn leaves(signal: i32) -> bool {
    matches!(signal, SIGINT | SIGQUIT)
}

/// A wait that a signal ended.
pub(crate) fn interrupted<W: WaitText>(
    what: &str,
    display: &WaitDisplay<'_, W>,
    signal: i32,
    then: &str,
) -> Failure {
    let waited = words::elapsed(display.elapsed());
    let message = format!("stopped waiting for {what} after {waited}; {then}");
    Failure::new(ErrorCode::Interrupted, message).exit(Exit::signal(signal))
}

/// A sentence that says how long the queue position is kept, if it is kept.
pub(crate) fn kept_place(global: &Global, tenure: &Tenure) -> Option<String> {
    let grace = tenure.config().locking.queue_grace;
    (global.holder.is_some() && !grace.is_zero()).then(|| {
        let grace = duration::format(grace);
        format!(
            "your place is kept for {grace}: ask again with the same --as\n  if the key frees while you are away, \
             the next caller gets it"
        )
    })
}

/// Whether the lock on a busy key can't be understood, so that it stays until a person mends or removes it.
fn is_malformed(busy: &Busy) -> bool {
    busy.lease()
        .is_some_and(|(_, verdict)| *verdict == Verdict::Malformed)
}

/// The command that shows a key, or what is wrong with its lock.
fn look(global: &Global, tenure: &Tenure, key: &str, busy: &Busy) -> String {
    if key == Key::paths().as_str() {
        return format!(
            "tenure reservations{}",
            words::in_store(global.store.as_deref())
        );
    }
    if tenure.store().capabilities().any_key || key.contains(':') || global.store.is_some() {
        if is_malformed(busy) {
            let store = words::in_store(global.store.as_deref());
            return format!("tenure doctor{store}");
        }
        return words::locks_command("show", key, global.store.as_deref());
    }
    "tenure exclusive status".to_owned()
}

/// What can't be understood in the record of a lease, as far as the store tells, and how a person ends it.
fn mended(global: &Global, tenure: &Tenure, lease: &Lease) -> String {
    let snapshot = tenure.store().inspect(&lease.key, call_deadline());
    let problems = snapshot.map_or_else(|_| Vec::new(), |snapshot| snapshot.problems);
    if problems.is_empty() {
        return String::new();
    }
    let store = words::in_store(global.store.as_deref());
    let end = words::force_command(lease.key.as_str(), Some(&lease.holder.id), &store);
    format!("\n  {}\n  to end it by force: {end}", problems.join("\n  "))
}

/// The message and details of a busy key. `look` is the command that shows more.
pub(crate) fn busy_report(
    global: &Global,
    tenure: &Tenure,
    key: &str,
    busy: &Busy,
    look: &str,
) -> (String, BusyJson) {
    let now = tenure.clock().now();
    let mut message = words::busy(&now, key, busy);
    match busy.position {
        Some(position) => {
            let place = words::ordinal(position.ahead + 1);
            message =
                format!("the wait timed out: {message}\n  this command was {place} in the queue");
            if let Some(kept) = kept_place(global, tenure) {
                message = format!("{message}; {kept}");
            }
        }
        None if is_malformed(busy) => {}
        None => {
            message = format!("{message}\n  to wait for it: --wait 10m; to look: {look}");
        }
    }
    if is_malformed(busy) {
        message = format!("{message}\n  to see what is wrong with it: {look}");
        if let Some((lease, _)) = busy.lease() {
            message = format!("{message}{}", mended(global, tenure, lease));
        }
    }
    if let Some((lease, _)) = busy.lease()
        && context::is_held_by_caller(global, lease)
    {
        message = own_lease(global, tenure, lease);
    }
    (message, BusyJson::new(&now, busy))
}

/// Adds what became of the place in the queue to a refusal in the words of a protocol, which has none for it.
pub(crate) fn timed_out(
    global: &Global,
    tenure: &Tenure,
    busy: &Busy,
    refusal: Failure,
) -> Failure {
    let Some(position) = busy.position else {
        return refusal;
    };
    let place = words::ordinal(position.ahead + 1);
    let kept = kept_place(global, tenure);
    let kept = kept.map_or_else(String::new, |kept| format!("; {kept}"));
    refusal.hint(format!(
        "the wait timed out; this command was {place} in the queue{kept}"
    ))
}

/// A thread that ends the wait when a signal arrives.
struct SignalWatch {
    stop: Arc<std::os::fd::OwnedFd>,
    thread: std::thread::JoinHandle<Option<i32>>,
}

/// A watch that is started when it is needed.
type LateWatch = Arc<Mutex<Option<std::io::Result<SignalWatch>>>>;

impl SignalWatch {
    /// Starts to watch as soon as there is something to cancel: a free key needs no thread.
    fn on_wait(signals: &Signals, cancel: &Arc<Cancel>) -> LateWatch {
        let watch = LateWatch::default();
        let (late, signals, canceller) =
            (Arc::clone(&watch), signals.share(), Arc::downgrade(cancel));
        cancel.on_wait(move || {
            let Some(cancel) = canceller.upgrade() else {
                return;
            };
            let started = Self::start(signals, &cancel);
            if started.is_err() {
                cancel.leave();
            }
            *late.lock().unwrap_or_else(PoisonError::into_inner) = Some(started);
        });
        watch
    }

    fn start(mut signals: Signals, cancel: &Arc<Cancel>) -> std::io::Result<Self> {
        let stop = Arc::new(eventfd(0, EventfdFlags::CLOEXEC)?);
        let (stopped, cancel) = (Arc::clone(&stop), Arc::clone(cancel));
        let thread = std::thread::Builder::new()
            .name("signals".into())
            .spawn(move || {
                let mut first = None;
                loop {
                    let mut fds = [
                        PollFd::new(&signals, PollFlags::IN),
                        PollFd::new(&*stopped, PollFlags::IN),
                    ];
                    if poll(&mut fds, None).is_err_and(|error| error != rustix::io::Errno::INTR) {
                        return first;
                    }
                    let stopping = fds.last().is_some_and(|fd| !fd.revents().is_empty());
                    for signal in signals.pending() {
                        match signal {
                            SIGCHLD => continue,
                            SIGTSTP => {
                                stop_here();
                                continue;
                            }
                            // Leaving the queue takes a moment, longer where the store is busy. A
                            // second signal does not wait for that: other processes can prove that a
                            // waiter has exited.
                            signal if first.is_some() => {
                                let _ = signal_hook::low_level::emulate_default_handler(signal);
                            }
                            signal if leaves(signal) => cancel.leave(),
                            _ => cancel.interrupt(),
                        }
                        first.get_or_insert(signal);
                    }
                    if stopping {
                        return first;
                    }
                }
            })?;
        Ok(Self { stop, thread })
    }

    /// Stops to watch, and returns the signal that ended the wait, if one did.
    fn stop(watch: &LateWatch) -> std::io::Result<Option<i32>> {
        let watch = watch.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(watch) = watch.transpose()? else {
            return Ok(None);
        };
        let _ = rustix::io::write(&*watch.stop, &1u64.to_ne_bytes());
        Ok(watch.thread.join().ok().flatten())
    }
}
