//! `tenure run`: run a command while holding a key.

use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};
use rustix::process::Signal;
use tenure::wire::{ErrorCode, LostJson};
use tenure::{Ask, Guard, Loss, Tenure};
use tenure_core::{ErrorKind, Key, Lease, Moment, Released, StoreError};
use tenure_host::Tied;

use crate::answer::{Answer, Failure, complain};
use crate::args::{Global, Run};
use crate::context;
use crate::exit::Exit;
use crate::program::Program;
use crate::signals::Signals;
use crate::supervise::{Ended, supervise};
use crate::terminal::Terminal;
use crate::waiting;
use crate::words;

pub(crate) fn run(global: &Global, run: &Run) -> Result<Answer, Failure> {
    let program = Program::find(&run.command, "tenure run build -- make all")?;
    let tenure = context::open(global)?;
    let ask = waiting::prepare(global, &tenure, &run.key, &run.request)?;
    run_holding(global, &tenure, &run.key, ask, &program)
}

/// Runs a program while holding a key.
pub(crate) fn run_holding(
    global: &Global,
    tenure: &Tenure,
    key: &str,
    ask: Ask<'_>,
    program: &Program<'_>,
) -> Result<Answer, Failure> {
    // A command of a few milliseconds needs no thread that renews its lease: a loss is noticed when the
    // lease is released.
    let ask = ask.command(program.shown()).renew_later();
    let mut signals = Signals::catch()?;
    let mut guard = waiting::acquire(global, tenure, key, ask, &mut signals)?;

    let exec = program.exec(&context::environment(global, tenure, guard.lease(), &[]));
    let terminal = Terminal::find();
    let lent = terminal.filter(|terminal| terminal.is_ours_alone());
    let lent = lent.as_ref().map(Terminal::as_fd);
    let tied = exec.and_then(|exec| Tied::exec(&exec, tenure.inherited_fd(), lent));
    let tied = match tied {
        Ok(tied) => tied,
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
    let grace = tenure.config().run.kill_grace;
    let ended = supervise(global, &tied, &mut signals, terminal, &lost, grace, || {
        guard.start_renewal();
    })?;
    tied.untie();
    let exit = finish(global, tenure, guard, &signals, ended)?;
    if ended.had_terminal {
        repeat_terminal_signal(ended);
    }
    Ok(Answer::silent(exit))
}

/// Releases the key and returns the exit code.
fn finish(
    global: &Global,
    tenure: &Tenure,
    guard: Guard,
    signals: &Signals,
    ended: Ended,
) -> Result<Exit, Failure> {
    let key = guard.key().clone();
    let token = guard.token();
    let trusted = guard.is_trusted();
    let loss = guard.loss();
    let loss = match (loss, waiting::until_signal(signals, || guard.release())) {
        // The new holder says more than that the lease was not renewed.
        (Some(_), Ok(Released::AlreadyGone(leases))) if !leases.is_empty() => {
            Some(Arc::new(Loss::Taken(leases)))
        }
        (Some(loss), _) => Some(loss),
        (None, Ok(Released::AlreadyGone(leases))) => Some(Arc::new(Loss::Taken(leases))),
        (None, Ok(Released::Freed(_))) => None,
        // The command ran under its lease, and other processes will find out that this one has exited:
        // the caller needs the command's own result.
        (None, Err(error)) if trusted && !record_is_gone(&error) => {
            complain(&format!(
                "{key} could not be released: {error}\n  the lease ends with this process; the exit code is the command's"
            ));
            None
        }
        (None, Err(error)) => Some(Arc::new(Loss::NotRenewed(Some(error)))),
    };
    let Some(loss) = loss else {
        let code = ended.status.code();
        return Ok(code.map_or_else(
            || Exit::signal(ended.status.signal().unwrap_or(0)),
            Exit::Other,
        ));
    };
    let stopped = if ended.lost {
        "; its command was stopped"
    } else {
        "; its command had just ended"
    };
    let now = tenure.clock().now();
    let (why, leases) = match &*loss {
        Loss::Taken(leases) => (taken(global, &now, &key, leases), leases.as_slice()),
        Loss::NotRenewed(Some(error)) => (format!("it could not be renewed: {error}"), &[][..]),
        _ => ("it could not be renewed in time".to_owned(), &[][..]),
    };
    Err(Failure::new(
        ErrorCode::LeaseLost,
        format!("the lease on {key} (token {token}) was lost: {why}{stopped}"),
    )
    .details(LostJson::new(&now, &key, token, leases)))
}

/// Whether the store with the lease is gone, so that another process may have been granted the key.
fn record_is_gone(error: &StoreError) -> bool {
    matches!(
        error.kind,
        ErrorKind::Damaged | ErrorKind::NotAStore | ErrorKind::NotFound
    )
}

/// Who holds a key that was taken away.
fn taken(global: &Global, now: &Moment, key: &Key, leases: &[Lease]) -> String {
    if leases.is_empty() {
        let history = words::locks_command("history", key.as_str(), global.store.as_deref());
        return format!("it was taken away (to see by whom: {history})");
    }
    words::holders(now, leases)
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
