//! `tenure run`: run a command while holding a key.

use std::os::fd::AsFd;
use std::os::unix::process::ExitStatusExt;
use std::sync::Arc;

use rustix::event::{EventfdFlags, eventfd};
use rustix::process::Signal;
use tenure::core::Released;
use tenure::host::Tied;
use tenure::wire::ErrorCode;
use tenure::{Ask, Guard, Loss, Tenure};

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
    // A command of a few milliseconds needs no thread that renews its lease: a loss is noticed when
    // the lease is released.
    let ask = ask.command(program.shown()).renew_later();
    let mut signals = Signals::catch()?;
    let mut held = waiting::acquire(global, tenure, key, ask, &mut signals)?;

    let mut command = program.command();
    command.envs(context::environment(global, tenure, held.lease(), &[]));
    let terminal = Terminal::find();
    let lent = terminal.filter(|terminal| terminal.is_ours_alone());
    let lent = lent.as_ref().map(Terminal::as_fd);
    let tied = match Tied::spawn(&mut command, tenure.inherited_fd(), lent) {
        Ok(tied) => tied,
        Err(error) => {
            let failure = program.not_started(error);
            let _freed = held.release()?;
            return Err(failure);
        }
    };
    let lost = eventfd(0, EventfdFlags::CLOEXEC)?;
    let report_loss = lost.try_clone()?;
    let start_renewal = || {
        held.on_lost(move || {
            let _ = rustix::io::write(&report_loss, &1u64.to_ne_bytes());
        });
        held.start_renewal();
    };
    let grace = tenure.config().run.kill_grace;
    let ended = supervise(&tied, &mut signals, terminal, &lost, grace, start_renewal)?;
    tied.untie();
    let exit = finish(global, tenure, held, ended)?;
    if ended.had_terminal {
        repeat_terminal_signal(ended);
    }
    Ok(Answer::silent(exit))
}

/// Releases the key and returns the exit code.
fn finish(global: &Global, tenure: &Tenure, held: Guard, ended: Ended) -> Result<Exit, Failure> {
    let key = held.key().clone();
    let token = held.token();
    let loss = match (held.loss(), held.release()) {
        (Some(loss), _) => Some(loss),
        (None, Ok(Released::AlreadyGone(now))) => Some(Arc::new(Loss::Taken(now))),
        (None, Ok(Released::Freed(_))) => None,
        (None, Err(error)) => {
            // The lease ends with this process in any case; other processes can prove that.
            complain(&format!("{key} could not be released: {error}"));
            None
        }
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
    let taken_by = match &*loss {
        Loss::Taken(now) => now.first(),
        _ => None,
    };
    let why = match (&*loss, taken_by) {
        (_, Some(lease)) => format!(
            "it is held by {} with token {}",
            words::held(&tenure.clock().now(), lease),
            lease.token
        ),
        (Loss::NotRenewed(Some(error)), _) => format!("it could not be renewed: {error}"),
        (Loss::NotRenewed(None), _) => {
            "it could not be renewed in time: the store did not answer".to_owned()
        }
        _ => format!(
            "it was taken away (to see by whom: {})",
            words::locks_command("history", key.as_str(), global.store.as_deref())
        ),
    };
    let by = taken_by.map(|lease| lease.holder.id.as_str().to_owned());
    Err(Failure::new(
        ErrorCode::LeaseLost,
        format!("the lease on {key} (token {token}) was lost: {why}{stopped}"),
    )
    .details(serde_json::json!({ "key": key, "token": token, "lockedBy": by })))
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
