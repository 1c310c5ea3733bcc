//! `tenure run`: run a command while holding a key.

use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::Signal;
use serde::Serialize;
use serde_json::{Value, json};
use signal_hook::consts::SIGINT;
use tenure::guard::Loss;
use tenure::store::{
    CALL_LIMIT, ErrorKind, Event, EventKind, HistoryQuery, LEAVE_LIMIT, Lease, Moment, Released,
    StoreError, call_deadline,
};
use tenure::wire::{AcquiredJson, ErrorCode, ErrorJson, LostJson};
use tenure::{Ask, Guard, Tenure};
use tenure_host::Tied;

use crate::answer::{Answer, Failure, complain, report_event, to_value};
use crate::args::{Global, Run, RunArgs, typed};
use crate::commands::ask::AskedFile;
use crate::context;
use crate::exit::Exit;
use crate::help;
use crate::program::Program;
use crate::signals::Signals;
use crate::supervise::{Ended, Supervised, supervise};
use crate::terminal::Terminal;
use crate::waiting;
use crate::words;

pub(crate) fn run(global: &Global, run: &Run) -> Result<Answer, Failure> {
    let script = run.script.as_ref().map(|script| {
        let script = script.clone();
        ["sh".into(), "-c".into(), script]
    });
    let keys = run.keys.all();
    if keys.len() > 1 && run.command.is_empty() && script.is_none() {
        let words = typed::typed(std::env::args_os());
        let tip = help::with_dashes(&words).unwrap_or_default();
        let message = format!("put -- before the command\n\n  tip: {tip}");
        return Err(Failure::new(ErrorCode::Usage, message));
    }
    let command = script
        .as_ref()
        .map_or(run.command.as_slice(), |script| script.as_slice());
    let program = Program::find(command, "tenure run build -- make all")?;
    let tenure = context::open_for_locks(global)?;
    let ask = waiting::prepare(global, &tenure, &keys, &run.request)?;
    let what = words::all_of(ask.keys());
    run_holding(global, &tenure, &what, ask, &program, &run.running)
}

/// Runs a program while holding a key, or several.
pub(crate) fn run_holding(
    global: &Global,
    tenure: &Tenure,
    what: &str,
    ask: Ask<'_>,
    program: &Program<'_>,
    running: &RunArgs,
) -> Result<Answer, Failure> {
    // A command of a few milliseconds needs no thread that renews its lease: a loss is noticed when the
    // lease is released.
    let ask = ask.command(program.shown()).renew_later();
    let mut signals = Signals::catch()?;
    let mut guard = waiting::acquire(global, tenure, what, ask, &mut signals).map_err(
        |failure| match running.conflict_exit_code {
            Some(code) if Exit::from(failure.code) == Exit::Locked => {
                failure.exit(Exit::Other(i32::from(code)))
            }
            _ => failure,
        },
    )?;
    if global.json {
        let now = tenure.clock().now();
        report("granted", &granted(&now, &guard));
    }

    let leases: Vec<&Lease> = guard.leases().collect();
    let asked = AskedFile::new(tenure);
    guard.on_asked(asked.writer(global));
    let mut environment = context::environment(global, tenure, &leases, &[]);
    environment.extend(asked.variable());
    let exec = program.exec(&environment);
    let terminal = Terminal::find();
    let lent = terminal.filter(|terminal| terminal.is_ours_alone());
    let lent = lent.as_ref().map(Terminal::as_fd);
    // Every process of the command inherits the writing end, so the reading end tells when the last one exits.
    let rest = running.all_processes.then(|| pipe_with(PipeFlags::CLOEXEC));
    let (rest, writing_end) = rest.transpose()?.unzip();
    let inherited = [tenure.inherited_fd(), writing_end.as_ref().map(AsFd::as_fd)];
    let tied = exec.and_then(|exec| Tied::exec(&exec, inherited, lent, guard.trusted_until()));
    drop(writing_end);
    let tied = match tied {
        Ok(tied) => tied,
        Err(_) if guard.lost_by_now().is_some() => {
            let exit = finish(global, tenure, guard, &signals, None, running)?;
            return Ok(Answer::silent(exit));
        }
        Err(error) => {
            let failure = program.not_started(error);
            let _freed = guard.release()?;
            return Err(failure);
        }
    };
    let lost = eventfd(0, EventfdFlags::CLOEXEC)?;
    let report_loss = lost.try_clone()?;
    guard.on_lost(move || {
        let _ = rustix::io::write(&report_loss, &1u64.to_ne_bytes());
    });
    let command = Supervised {
        tied: &tied,
        terminal,
        lost: &lost,
        rest: rest.as_ref(),
        grace: tenure.config().run.kill_grace,
    };
    let ended = supervise(global, &mut signals, &command, || guard.start_renewal())?;
    tied.untie();
    let exit = finish(global, tenure, guard, &signals, Some(ended), running)?;
    if ended.had_terminal {
        repeat_terminal_signal(ended);
    }
    Ok(Answer::silent(exit))
}

/// What was granted, as JSON: one lease, or a list of them.
pub(crate) fn granted(now: &Moment, guard: &Guard) -> Value {
    let json = |(lease, reason)| AcquiredJson::new(now, lease, reason);
    let mut all: Vec<AcquiredJson> = guard.granted().map(json).collect();
    match all.pop() {
        Some(only) if all.is_empty() => to_value(&only),
        last => {
            all.extend(last);
            json!({ "leases": all })
        }
    }
}

/// Reports what happened to the lease of a running command, as a JSON line.
fn report(event: &str, data: &impl Serialize) {
    let mut line = json!({ "event": event });
    if let (Some(line), Value::Object(data)) = (line.as_object_mut(), to_value(data)) {
        line.extend(data);
    }
    report_event(&line);
}

/// Releases the key and returns the exit code. `ended` is `None` if the lease was lost before the command was started.
fn finish(
    global: &Global,
    tenure: &Tenure,
    guard: Guard,
    signals: &Signals,
    ended: Option<Ended>,
    running: &RunArgs,
) -> Result<Exit, Failure> {
    let leases: Vec<Lease> = guard.leases().cloned().collect();
    let trusted = guard.is_trusted();
    let loss = guard.loss();
    let lost_key = guard.lost_key();
    // A person who pressed Ctrl+C does not wait for a store that does not answer: the lease ends with this process.
    let signal = ended.and_then(|ended| ended.stop_signal.or(ended.status.signal()));
    let limit = match signal {
        Some(SIGINT) => LEAVE_LIMIT,
        _ => CALL_LIMIT,
    };
    let (released, signal) = waiting::until_signal(signals, || guard.release_all_within(limit));
    let given_up = signal.filter(|_| released.is_err()).map(Exit::signal);
    // The lease that was lost first, or else one that had ended before its release.
    let gone = released.as_ref().ok().and_then(|released| {
        let gone = released
            .iter()
            .filter_map(|(lease, released)| match released {
                Released::AlreadyGone(now) => Some((lease, now)),
                Released::Freed(_) => None,
            });
        let first = lost_key.as_ref();
        gone.min_by_key(|(lease, _)| first.is_some_and(|key| *key != lease.key))
    });
    let lost = gone.map(|(lease, _)| lease.key.clone()).or(lost_key);
    let Some(lease) = leases
        .iter()
        .find(|lease| lost.as_ref() == Some(&lease.key))
        .or(leases.first())
    else {
        return Ok(Exit::Lost);
    };
    let (key, token) = (lease.key.clone(), lease.token);
    let loss = match (loss, gone, &released) {
        // The new holder says more than that the lease was not renewed.
        (Some(_), Some((_, now)), _) if !now.is_empty() => Some(Arc::new(Loss::Taken(now.clone()))),
        (Some(loss), ..) => Some(loss),
        (None, Some((_, now)), _) => Some(Arc::new(Loss::Taken(now.clone()))),
        (None, None, Ok(_)) => None,
        // The command ran under its lease, and other processes will find out that this one has exited:
        // the caller needs the command's own result.
        (None, _, Err(error)) if trusted && !record_is_gone(error) => {
            let what = words::all_of(leases.iter().map(|lease| &lease.key));
            let code = match given_up {
                Some(_) => "",
                None => "; the exit code is the command's",
            };
            let message = format!(
                "{what} could not be released: {error}\n  the lease ends with this process{code}"
            );
            if global.json {
                report("error", &json!({ "key": key, "message": message }));
            } else {
                complain(&message);
            }
            None
        }
        (None, _, Err(_)) => Some(Arc::new(Loss::NotRenewed(released.err()))),
    };
    let Some(loss) = loss else {
        let Some(ended) = ended else {
            return Ok(Exit::Lost);
        };
        let code = ended.status.code();
        let exit = code.map_or_else(
            || Exit::signal(ended.status.signal().unwrap_or(0)),
            Exit::Other,
        );
        let exit = given_up.unwrap_or(exit);
        if global.json {
            let one = |lease: &Lease| json!({ "key": lease.key, "token": lease.token });
            let mut released = match leases.as_slice() {
                [only] => one(only),
                several => json!({ "leases": several.iter().map(one).collect::<Vec<_>>() }),
            };
            if let Some(released) = released.as_object_mut() {
                released.insert("exitCode".to_owned(), json!(exit.code()));
            }
            report("released", &released);
        }
        return Ok(exit);
    };
    let stopped = match ended {
        None => "; its command was not started",
        Some(ended) if ended.lost => "; its command was stopped",
        Some(_) => "; its command had just ended",
    };
    let now = tenure.clock().now();
    let (why, leases) = match &*loss {
        Loss::Taken(leases) => (taken(global, tenure, lease, leases), leases.as_slice()),
        Loss::NotRenewed(Some(error)) => (format!("it could not be renewed: {error}"), &[][..]),
        _ if ended.is_none() => ("its time to live passed first".to_owned(), &[][..]),
        _ => ("it could not be renewed in time".to_owned(), &[][..]),
    };
    let exit = running
        .lost_exit_code
        .map_or(Exit::Lost, |code| Exit::Other(i32::from(code)));
    let message = format!("the lease on {key} (token {token}) was lost: {why}{stopped}");
    let details = LostJson::new(&now, &key, token, leases);
    if global.json {
        // Standard output is the command's.
        let error = ErrorJson {
            code: ErrorCode::LeaseLost,
            message,
            details,
        };
        report(
            "lost",
            &json!({ "key": key, "token": token, "error": error }),
        );
        return Ok(exit);
    }
    Err(Failure::new(ErrorCode::LeaseLost, message)
        .exit(exit)
        .details(details))
}

/// Whether the store with the lease is gone, so that another process may have been granted the key.
fn record_is_gone(error: &StoreError) -> bool {
    matches!(
        error.kind,
        ErrorKind::Damaged | ErrorKind::Gone | ErrorKind::NotAStore | ErrorKind::NotFound
    )
}

/// What became of a lease that is no longer on record: who holds the key now, or else how it ended.
pub(crate) fn taken(global: &Global, tenure: &Tenure, lease: &Lease, leases: &[Lease]) -> String {
    if !leases.is_empty() {
        return words::holders(&tenure.clock().now(), leases);
    }
    let query = HistoryQuery {
        key: Some(lease.key.clone()),
        limit: Some(20),
        ..HistoryQuery::default()
    };
    // Only for the words: without the history, it says where to look.
    let events = tenure.store().history(&query, call_deadline());
    let expired = |event: &Event| event.token == lease.token && event.kind == EventKind::Expired;
    if events.is_ok_and(|events| events.iter().any(expired)) {
        return "it expired before it was renewed".to_owned();
    }
    let history = words::locks_command("history", lease.key.as_str(), global.store.as_deref());
    format!("it was taken away (to see by whom: {history})")
}

/// If Ctrl+C or Ctrl+\ ended a command that had the terminal, sends the same signal to our own group
/// and to ourselves. Otherwise the calling script would continue with its next line.
pub(crate) fn repeat_terminal_signal(ended: Ended) {
    let Some(signal) = ended.status.signal() else {
        return;
    };
    let Some(named) = Signal::from_named_raw(signal) else {
        return;
    };
    if !ended.lost && (named == Signal::INT || named == Signal::QUIT) {
        Terminal::pass_on(named);
        let _ = signal_hook::low_level::emulate_default_handler(signal);
    }
}
