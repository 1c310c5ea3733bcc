//! Holding the board's lock over a whole read, change and write: [`Locked`].
//!
//! Signals do not end this process while it holds the lock. They are looked at before each step of a write:
//! whoever is told to stop writes no further, removes what it had begun, gives the lock back and ends as
//! the signal says (128 and its number).

use std::time::Duration;

use serde_json::json;
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGTSTP};
use tenure::core::{Busy, Doubt, Released, Verdict};
use tenure::wire::ErrorCode;
use tenure::{Held, Outcome, Project, StoreUrl, Tenure};
use tenure_board::{Board, Step};

use crate::answer::{Answer, Failure, complain};
use crate::args::Global;
use crate::args::board::Lock;
use crate::context;
use crate::exit::Exit;
use crate::signals::{Signals, stop_here};
use crate::waiting::{self, KeyWait, WaitDisplay};
use crate::words;

/// The one key.
const KEY: &str = "board";

/// A lock that is not released by anybody who knows of waiters is looked at this often.
const POLL: Duration = Duration::from_secs(1);

/// The lock, while it is held.
#[must_use]
pub(super) struct Locked {
    held: Held,
    signals: Signals,
    path: String,
    told: Option<i32>,
}

impl Locked {
    /// Takes the lock. `doing` is what those who have to wait are told.
    pub(super) fn take(
        global: &Global,
        board: &Board,
        lock: &Lock,
        doing: &str,
    ) -> Result<Self, Failure> {
        let place = board.lock();
        let start = context::start()?;
        let project = Project::find(&start, context::home().as_deref());
        let mut config = context::config(project.as_ref())?;
        config.locking.poll_interval = config.locking.poll_interval.min(POLL);
        let path = place.display().to_string();
        let tenure = Tenure::open(&StoreUrl::Mkdir(place), config)?;
        let mut ask = tenure
            .ask(KEY)?
            .within(context::within(&tenure))
            .command(doing);
        if let Some(named) = &global.holder {
            ask = ask.named(named)?;
        }
        if lock.timeout > 0 {
            ask = waiting::wait_for(ask, Duration::from_secs(lock.timeout));
        }
        let mut signals = Signals::catch()?;
        let mut display = WaitDisplay::new(global, tenure.clock(), KeyWait { key: KEY });
        let (outcome, signal) =
            waiting::watched(&tenure, &mut signals, &mut display, |cancel, observer| {
                ask.acquire_watched(cancel, observer)
            })?;
        display.finish(matches!(outcome, Outcome::Granted(_)));
        match outcome {
            Outcome::Granted(held) => Ok(Self {
                held,
                signals,
                path,
                // It may have come together with the lock.
                told: signal,
            }),
            Outcome::Busy(busy) => Err(lock_busy(&tenure, &path, &busy)),
            Outcome::Deadlock(_) => Err(under_itself(&path)),
            Outcome::Cancelled => Err(stopped(signal.unwrap_or(SIGINT), "nothing was changed")),
        }
    }

    /// Whether to go on: nobody said stop, and before something gets its name, the lock is still ours.
    pub(super) fn go_on(&mut self, step: Step) -> Result<(), Failure> {
        self.listen();
        if let Some(signal) = self.told {
            return Err(stopped(signal, "nothing was changed"));
        }
        if step == Step::Rename && !self.held.check()? {
            return Err(self.lost("nothing was changed"));
        }
        Ok(())
    }

    /// Takes in what signals came.
    fn listen(&mut self) {
        for signal in self.signals.pending() {
            match signal {
                SIGTSTP => stop_here(),
                SIGINT | SIGTERM | SIGHUP | SIGQUIT => {
                    self.told.get_or_insert(signal);
                }
                _ => {}
            }
        }
    }

    /// Gives the lock back, and says how it all ends.
    pub(super) fn finish(mut self, outcome: Result<Answer, Failure>) -> Result<Answer, Failure> {
        let lost = self.lost("look whether what was written is what you want");
        let released = self.held.release();
        for signal in self.signals.pending() {
            if matches!(signal, SIGINT | SIGTERM | SIGHUP | SIGQUIT) {
                self.told.get_or_insert(signal);
            }
        }
        let answer = outcome?;
        match released {
            Ok(Released::Freed(_)) => {}
            Ok(Released::AlreadyGone(_)) => return Err(lost),
            // It ends with this process all the same, which others can prove.
            Err(error) => complain(&format!(
                "the lock could not be given back in order: {error}"
            )),
        }
        match self.told {
            Some(signal) => Err(stopped(signal, "it had been done already")),
            None => Ok(answer),
        }
    }

    fn lost(&self, then: &str) -> Failure {
        let url = words::quoted(&format!("mkdir:{}", self.path));
        let message = format!(
            "the lock {} was taken away while it was held; {then}\n  tenure locks history --store {url} tells what happened",
            self.path
        );
        Failure::new(ErrorCode::LeaseLost, message)
            .details(json!({ "path": self.path, "token": self.held.token() }))
    }
}

/// What a signal ended.
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

/// The command that holds the lock called us.
fn under_itself(path: &str) -> Failure {
    let message = format!(
        "the lock {path} is held by the very command that this one runs under: it would wait for itself\n  \
         let tenure board take the lock by itself, outside of tenure run"
    );
    Failure::new(ErrorCode::Deadlock, message)
        .exit(Exit::Runtime)
        .details(json!({ "path": path }))
}

/// Somebody else has it, in the words of the seed; then who, and what to do.
fn lock_busy(tenure: &Tenure, path: &str, busy: &Busy) -> Failure {
    let now = tenure.clock().now();
    let (_, mut details) = words::busy(&now, KEY, busy);
    let mut lines = vec![format!("lock busy: {path}")];
    let force = format!(
        "tenure locks release {KEY} --force --store {}",
        words::quoted(&format!("mkdir:{path}"))
    );
    let hint = match &busy.lease {
        Some((lease, verdict)) if verdict.over().is_none() => {
            lines.push(format!("held by {}: {verdict}", words::held(&now, lease)));
            if let Some(command) = &lease.holder.command {
                lines.push(format!("it runs: {command}"));
            }
            match verdict {
                Verdict::Malformed => {
                    "it is not what a lock is: look what is there, and move it away by hand"
                        .to_owned()
                }
                Verdict::Unknown(Doubt::NoProcess) => format!(
                    "if you are sure that no other program is at work there, take it away with: {force}"
                ),
                _ => format!(
                    "try again when it is done, or wait longer: --timeout 60\n  if it hangs and you are sure: {force}"
                ),
            }
        }
        _ => {
            lines.push("it is about to go to whoever waits for it".to_owned());
            "try again, or wait longer: --timeout 60".to_owned()
        }
    };
    lines.push(hint);
    if let serde_json::Value::Object(fields) = &mut details {
        fields.insert("path".into(), json!(path));
    }
    let message = lines.join("\n  ");
    Failure::new(ErrorCode::LockBusy, message.clone())
        .verbatim(format!("tenure board: error: {message}"))
        .details(details)
}
