//! Holding the board's lock over a whole read, edit and write: [`BoardLock`].
//!
//! 1. A signal never ends this process while it holds the lock. It is noticed before the next step of a
//!    write: the command writes no further, removes its temporary file, releases the lock and exits with 128
//!    plus the signal number.
//! 2. A signal that was ignored when tenure started stays ignored, as under nohup.
//! 3. A file is renamed into place only after the store has confirmed that the lock is still ours.

use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP};
use tenure::protocols::board::{Board, Replaces, SaveError, SaveStep, Saved, save};
use tenure::store::{Doubt, Released, Verdict};
use tenure::text::flat;
use tenure::wire::{BoardBusyJson, ErrorCode};
use tenure::{Acquired, Busy, Guard, StoreUrl, Tenure};

use crate::answer::{Answer, Failure, complain};
use crate::args::Global;
use crate::args::board::LockOptions;
use crate::context;
use crate::exit::Exit;
use crate::signals::{Signals, stop_here};
use crate::waiting::{self, KeyWait, WaitDisplay};
use crate::words;

/// The only key of the lock.
const KEY: &str = "board";

/// How often a waiter polls at least: a shell script that releases the lock wakes no waiter.
const POLL: Duration = Duration::from_secs(1);

/// How often an edit begins again because another program saved the file without the lock.
pub(super) const ATTEMPTS: usize = 64;

/// The board's lock, held.
#[must_use]
pub(super) struct BoardLock {
    held: Guard,
    signals: Signals,
    /// Where it is.
    path: PathBuf,
    /// The first signal that came.
    signal: Option<i32>,
    /// How many files were written.
    saved: usize,
}

impl BoardLock {
    /// Does something under the lock. `command` is what waiters are shown.
    pub(super) fn hold(
        global: &Global,
        board: &Board,
        lock: &LockOptions,
        command: &str,
        work: impl FnOnce(&mut Self) -> Result<Answer, Failure>,
    ) -> Result<Answer, Failure> {
        let mut locked = Self::take(global, board, lock, command)?;
        let outcome = work(&mut locked);
        locked.finish(outcome)
    }

    fn take(
        global: &Global,
        board: &Board,
        lock: &LockOptions,
        command: &str,
    ) -> Result<Self, Failure> {
        let path = board.lock()?;
        let mut config = context::config(context::project_if_found().as_ref())?;
        config.locking.poll_interval = config.locking.poll_interval.min(POLL);
        let tenure = Tenure::open_with(&StoreUrl::Mkdir(path.clone()), config)?;
        let mut ask = tenure
            .ask(KEY)?
            .within(tenure.parent_leases())
            .command(command);
        if let Some(named) = &global.holder {
            ask = ask.named(named)?;
        }
        let limit = match lock.wait {
            _ if lock.no_wait => Duration::ZERO,
            given => given.unwrap_or(Duration::from_secs(lock.timeout)),
        };
        if !limit.is_zero() {
            ask = waiting::wait_for(ask, limit);
        }
        let mut signals = Signals::catch()?;
        let mut display =
            WaitDisplay::new(global, tenure.clock(), KeyWait::new(&tenure, KEY, false));
        let (outcome, signal) =
            waiting::watched(&mut signals, &mut display, |cancel, observer| {
                ask.acquire_watched(cancel, observer)
            })?;
        display.finish(matches!(outcome, Acquired::Granted(_)));
        match outcome {
            Acquired::Granted(held) => Ok(Self {
                held,
                signals,
                path,
                // It may have come together with the lock.
                signal,
                saved: 0,
            }),
            Acquired::Busy(busy) => {
                let failure = lock_busy(&tenure, &path, &busy);
                // The code of every other command, for a caller that uses the options of every other command.
                Err(if lock.no_wait || lock.wait.is_some() {
                    failure.exit(Exit::Locked)
                } else {
                    failure
                })
            }
            Acquired::Deadlock(_) => Err(under_itself(&path)),
            Acquired::Cancelled => Err(stopped(signal.unwrap_or(SIGINT), "nothing was changed")),
        }
    }

    /// Replaces a file, unless a signal comes or the lock is lost.
    pub(super) fn save(
        &mut self,
        path: &Path,
        bytes: &[u8],
        replaces: Replaces<'_>,
    ) -> Result<Saved, Failure> {
        match save(path, bytes, replaces, |step| self.go_on(step)) {
            Ok(saved) => {
                self.saved += usize::from(saved == Saved::Done);
                Ok(saved)
            }
            Err(SaveError::Stopped(failure)) => Err(failure),
            Err(error @ SaveError::Io { .. }) => {
                let message = match self.saved {
                    0 => error.to_string(),
                    _ => format!("{error}; {}", self.progress()),
                };
                Err(Failure::new(ErrorCode::Io, message))
            }
        }
    }

    /// The failure for a file that another program saves again and again.
    pub(super) fn keeps_changing(&self, path: &Path) -> Failure {
        let message = format!(
            "another program keeps saving {} without the lock; {}\n  stop that program, and try again",
            path.display(),
            self.progress()
        );
        Failure::new(ErrorCode::StoreContended, message)
    }

    /// What was written so far.
    fn progress(&self) -> String {
        match self.saved {
            0 => "nothing was changed".to_owned(),
            1 => "1 file was already changed".to_owned(),
            more => format!("{more} files were already changed"),
        }
    }

    /// Whether a save may go on: no signal came, and before the rename, the lock is still ours.
    fn go_on(&mut self, step: SaveStep) -> Result<(), Failure> {
        self.note_signals();
        if let Some(signal) = self.signal {
            return Err(stopped(signal, &self.progress()));
        }
        if step == SaveStep::Rename && !self.held.check()? {
            return Err(self.lost(&self.progress()));
        }
        Ok(())
    }

    /// Notes the signals that came, and stops this process on Ctrl+Z.
    fn note_signals(&mut self) {
        for signal in self.signals.pending() {
            match signal {
                SIGTSTP => stop_here(),
                SIGINT | SIGTERM | SIGHUP | SIGQUIT => {
                    self.signal.get_or_insert(signal);
                }
                _ => {}
            }
        }
    }

    /// Releases the lock, and returns the outcome of the whole command.
    fn finish(mut self, outcome: Result<Answer, Failure>) -> Result<Answer, Failure> {
        let lost = self.lost("check what was written");
        let released = self.held.release();
        for signal in self.signals.pending() {
            if matches!(signal, SIGINT | SIGTERM | SIGHUP | SIGQUIT) {
                self.signal.get_or_insert(signal);
            }
        }
        let answer = outcome?;
        match released {
            Ok(Released::Freed(_)) => {}
            Ok(Released::AlreadyGone(_)) => return Err(lost),
            // The lock names this process, so it can be taken over once the process has ended.
            Err(error) => complain(&format!("the lock could not be released: {error}")),
        }
        match self.signal {
            Some(signal) => Err(stopped(signal, "the change was already complete")),
            None => Ok(answer),
        }
    }

    fn lost(&self, then: &str) -> Failure {
        let (path, url) = (self.path.display().to_string(), quoted(&self.path));
        let message = format!(
            "the lock {path} was taken away while this command held it; {then}\n  tenure locks history --store {url} shows what happened"
        );
        Failure::new(ErrorCode::LeaseLost, message)
            .details(json!({ "path": path, "token": self.held.token() }))
    }
}

/// The address of a lock, as an argument in a shell.
fn quoted(lock: &Path) -> String {
    words::quoted_bytes(&StoreUrl::Mkdir(lock.to_owned()).to_os_string())
}

/// The failure for a command that a signal stopped.
fn stopped(signal: i32, then: &str) -> Failure {
    let name = match signal {
        SIGINT => "Ctrl+C",
        SIGTERM => "SIGTERM",
        SIGHUP => "SIGHUP",
        _ => "a signal",
    };
    let message = format!("stopped by {name}; {then}");
    Failure::new(ErrorCode::Interrupted, message).exit(Exit::signal(signal))
}

/// The failure for a lock that is held by the command that started this one.
fn under_itself(lock: &Path) -> Failure {
    let path = lock.display().to_string();
    let message = format!(
        "the lock {path} is held by the command that started this one, which would wait for itself\n  \
         tenure board takes the lock itself: run it outside of tenure run"
    );
    Failure::new(ErrorCode::Deadlock, message)
        .exit(Exit::Runtime)
        .details(json!({ "path": path }))
}

/// The folder in which the bilu tool is installed in a project, and its own words for a busy lock there.
const BILU: (&str, &str, &str) = (
    ".bilu",
    "bilu board",
    "If you are sure no bilu process is running, remove the lock directory.",
);

/// The failure for a lock that another program holds. The protocol prescribes the first line and, in the folder of
/// the bilu tool, a hint; beside them are the holder and what to do.
fn lock_busy(tenure: &Tenure, lock: &Path, busy: &Busy) -> Failure {
    let now = tenure.clock().now();
    let path = lock.display().to_string();
    let mut lines = vec![format!("lock busy: {path}")];
    let store = format!(" --store {}", quoted(lock));
    let force = words::force_command(KEY, None, &store);
    let hint = match busy.lease() {
        Some((lease, verdict)) if verdict.ended().is_none() => {
            lines.push(format!("held by {}: {verdict}", words::held(&now, lease)));
            if let Some(command) = &lease.holder.command {
                lines.push(format!("it runs: {}", flat(command)));
            }
            match verdict {
                Verdict::Malformed => {
                    "it is not a lock folder: look at what is there, and move it away by hand"
                        .to_owned()
                }
                Verdict::Unknown(Doubt::NoProcess) => format!(
                    "if you are sure that no other program is using it, remove it with: {force}"
                ),
                _ => format!(
                    "try again later, or wait longer: --timeout 60\n  if you are sure that it hangs: {force}"
                ),
            }
        }
        _ => {
            lines.push("a waiter is about to get it".to_owned());
            "try again, or wait longer: --timeout 60".to_owned()
        }
    };
    let (folder, bilu, words) = BILU;
    let is_bilus = lock.iter().any(|name| name == folder);
    if is_bilus {
        lines.push(words.to_owned());
    }
    lines.push(hint);
    let program = if is_bilus { bilu } else { "tenure board" };
    let message = lines.join("\n  ");
    Failure::new(ErrorCode::LockBusy, message.clone())
        .verbatim(format!("{program}: error: {message}"))
        .details(BoardBusyJson::new(&now, busy, &path))
}
