//! The daemon itself: [`run`] starts it, runs one cycle after another, and stops it.

use std::fmt;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tenure::config::ConfigError;
use tenure::text::duration;
use tenure::{Config, Project};
use tenure_core::{Clock, Moment};
use tenure_host::flock::{FileLock, TryLock};
use tenure_host::{HostClock, identity};

use crate::board_locks::BoardLocks;
use crate::cycle::{CycleReport, CycleResult, cycle};
use crate::ledger_lock::LedgerLockWatch;
use crate::lock;
use crate::lock_locations::LockLocations;
use crate::log::Log;
use crate::signals::{HangUp, Signals};
use crate::sleep::sleep;
use crate::state::{CycleOutcome, CycleRecord, DaemonState, SkipRecord, StopRecord};
use crate::status::live_state;

/// The pause between two attempts to take the lock.
const PAUSE: Duration = Duration::from_millis(5);

/// How many attempts a daemon makes that can't find out who has the lock: two seconds in all.
const ATTEMPTS: usize = 400;

/// How to run a daemon.
#[derive(Debug, Clone)]
pub struct DaemonOptions {
    /// The project it works for.
    pub project: Project,
    /// The home folder with the user's settings.
    pub home: Option<PathBuf>,
    /// The time between two cycles, if it is not to come from the settings.
    pub interval: Option<Duration>,
    /// The log, if it is not to be beside the project's other state.
    pub log: Option<PathBuf>,
    /// Whether it runs without a terminal.
    pub detached: bool,
}

impl DaemonOptions {
    /// The path of the log.
    pub fn log(&self) -> PathBuf {
        let default = || self.project.state().join(crate::log::FILE);
        self.log.clone().unwrap_or_else(default)
    }
}

/// Why a daemon could not run.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// Another daemon runs for this project.
    #[error("a daemon is already running for this project")]
    AlreadyRunning(Box<DaemonState>),
    /// Another process has the lock, and no live daemon is on record.
    #[error(
        "another process holds {0}, and no daemon is on record: one may be starting or stopping. Try again, or find the process with fuser {0}"
    )]
    UnidentifiedHolder(String),
    /// The settings are invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A file could not be opened or written.
    #[error("{what} ({error})")]
    Io {
        /// What could not be done.
        what: String,
        /// Why.
        error: io::Error,
    },
}

impl StartError {
    fn io(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |error| Self::Io { what, error }
    }
}

/// Why a daemon stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StopReason {
    /// It received this signal.
    Signal(&'static str),
    /// The folder of the project's state was removed.
    FolderGone,
    /// The state of the project is somewhere else now: git came.
    Moved,
    /// Its lock file was removed, and another daemon has the lock now.
    Superseded,
}

impl fmt::Display for StopReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Signal(name) => write!(f, "received {name}"),
            Self::FolderGone => f.write_str("the project's folder is gone"),
            Self::Moved => f.write_str("the project's state was moved: start it again"),
            Self::Superseded => f.write_str("another daemon runs for this project"),
        }
    }
}

/// Runs the daemon of a project until it is asked to stop. `started` is called once the daemon has its lock
/// and is on record; `echo` gets every line of the log.
pub fn run(
    options: DaemonOptions,
    started: impl FnOnce(),
    echo: &mut dyn FnMut(Timestamp, &str),
) -> Result<StopReason, StartError> {
    let hang_up = if options.detached {
        HangUp::Reopens
    } else {
        HangUp::Stops
    };
    let signals = Signals::catch(hang_up);
    let mut signals = signals.map_err(StartError::io("signals can't be handled"))?;
    let mut daemon = Daemon::start(options, echo)?;
    started();
    let reason = daemon.run(&mut signals);
    let reason = reason.map_err(StartError::io("the daemon can't continue"))?;
    daemon.stop(reason);
    Ok(reason)
}

/// A running daemon.
struct Daemon<'a> {
    options: DaemonOptions,
    folder: PathBuf,
    lock: FileLock,
    output: Output<'a>,
    config: Config,
    state: DaemonState,
    /// Problems outside of the cycles. Each is logged once, until it changes.
    problems: Vec<StandingProblem>,
    ledger_locks: Vec<LedgerLockWatch>,
}

/// The log and its echo.
struct Output<'a> {
    log: Log,
    echo: &'a mut dyn FnMut(Timestamp, &str),
    clock: HostClock,
}

impl Output<'_> {
    fn line(&mut self, line: &str) {
        let at = self.clock.now().wall;
        self.log.write(at, line);
        (self.echo)(at, line);
    }
}

/// A problem outside of the cycles. Its text is the line in the log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
enum StandingProblem {
    /// The settings are invalid.
    #[error("Invalid settings, keeping the previous ones: {0}")]
    Settings(String),
    /// A location of an exclusive lock can't be watched; it is checked once in this time.
    #[error("{what}; checking for locks every {} instead", duration::format(*.interval))]
    Watch { what: String, interval: Duration },
    /// The state can't be written.
    #[error("Can't write {file}: {0}", file = crate::state::FILE)]
    State(String),
}

impl<'a> Daemon<'a> {
    fn start(
        options: DaemonOptions,
        echo: &'a mut dyn FnMut(Timestamp, &str),
    ) -> Result<Self, StartError> {
        let folder = options.project.state().to_owned();
        // What is wrong with it, taking the lock tells.
        let _ = options.project.create_state();
        let lock = take_lock(&folder)?;
        let config = options.project.background_config(options.home.as_deref())?;
        let mut log = Log::new(options.log(), config.daemon.log_max_size);
        if let Err(error) = log.check()
            // The daemon works without its default log, but a path that was given may be a typing error.
            && options.log.is_some()
        {
            let path = log.path().display();
            let what = format!("the log {path} can't be opened: choose another with --log");
            return Err(StartError::Io { what, error });
        }
        let previous = DaemonState::read(&folder).ok().flatten();
        let killed = previous.filter(|previous| previous.ended.is_none());
        let clock = HostClock::new();
        let interval = options.interval.unwrap_or(config.daemon.interval);
        let state = DaemonState {
            process: identity::this_process(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started_at: clock.now().wall,
            interval_ms: millis(interval),
            log: log.path().display().to_string(),
            log_bytes: match log.path().to_str() {
                Some(_) => None,
                None => Some(log.path().as_os_str().as_bytes().to_vec()),
            },
            log_error: log.error().map(str::to_owned),
            cycle_since: None,
            last_cycle: None,
            next_at: None,
            skipped: None,
            ended: None,
        };
        state.write(&folder).map_err(StartError::io(format!(
            "{} can't be written, and without it the daemon could not be stopped",
            folder.join(crate::state::FILE).display()
        )))?;
        if options.detached {
            log_panics(log.path().to_owned());
        }
        let mut daemon = Self {
            options,
            folder,
            lock,
            output: Output { log, echo, clock },
            config,
            state,
            problems: Vec::new(),
            ledger_locks: Vec::new(),
        };
        daemon.output.line(&format!(
            "Started: pid {}, tenure {}, a cycle every {}.",
            daemon.state.process.pid,
            daemon.state.version,
            duration::format(interval)
        ));
        if let Some(killed) = killed {
            daemon.output.line(&format!(
                "The previous daemon, pid {}, was killed; this one continues its work.",
                killed.process.pid
            ));
        }
        Ok(daemon)
    }

    /// Runs cycles until there is a reason to stop.
    fn run(&mut self, signals: &mut Signals) -> io::Result<StopReason> {
        let mut locations = LockLocations::of(&self.options.project);
        let mut previous: Option<CycleResult> = None;
        loop {
            if signals.stop() {
                return Ok(StopReason::Signal(signals.stopped_by()));
            }
            if signals.take_reopen() {
                // The log is opened for every line: this one goes to the new file.
                self.output.line("Reopened the log (SIGHUP).");
            }
            let project = Project::at(self.options.project.root());
            if project.is_ok_and(|now| now.state() != self.folder) {
                return Ok(StopReason::Moved);
            }
            match self.keep_lock(signals)? {
                Some(reason) => return Ok(reason),
                None if signals.stop() => continue,
                None => {}
            }
            self.refresh(&mut locations);
            let mut boards = BoardLocks::of(&self.options.project);
            let began = self.output.clock.now();
            self.state.cycle_since = Some(began.wall);
            self.write_state();
            let output = &mut self.output;
            let report = cycle(
                &self.options.project,
                &locations,
                &self.config,
                &|| signals.stop(),
                &mut |event| output.line(&event.to_string()),
            );
            if is_worth_a_line(&report, previous.as_ref()) {
                self.output.line(&report.result.to_string());
            }
            let ended = self.output.clock.now();
            self.record_cycle(&began, &ended, &report.result);
            self.write_state();
            if signals.stop() {
                continue;
            }
            sleep(
                self.state.interval(),
                ended.ticks.saturating_sub(began.ticks),
                signals,
                &mut locations,
                &mut boards,
                report.holder.as_ref(),
                || self.lock.is_current(),
            )?;
            previous = Some(report.result);
        }
    }

    /// Makes sure that this is still the project's daemon. Takes the lock again if its file was removed or
    /// replaced; returns early, without it, on a signal.
    fn keep_lock(&mut self, signals: &Signals) -> io::Result<Option<StopReason>> {
        while !self.lock.is_current() && !signals.stop() {
            if !self.folder.is_dir() {
                return Ok(Some(StopReason::FolderGone));
            }
            match lock::try_lock(&self.folder) {
                Ok(TryLock::Locked(lock)) => {
                    self.lock = lock;
                    self.output
                        .line("The daemon's lock file was removed or replaced; locked it again.");
                }
                Ok(TryLock::Held) => return Ok(Some(StopReason::Superseded)),
                // An observer such as `tenure daemon status` is no daemon: it is gone in a moment.
                Ok(TryLock::Observed) => std::thread::sleep(PAUSE),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    return Ok(Some(StopReason::FolderGone));
                }
                Err(error) => return Err(error),
            }
        }
        Ok(None)
    }

    /// Reads the settings again, and watches the locations of the exclusive locks as they are now.
    fn refresh(&mut self, locations: &mut LockLocations) {
        let mut problems = Vec::new();
        let home = self.options.home.as_deref();
        match self.options.project.background_config(home) {
            Ok(config) => self.config = config,
            Err(error) => problems.push(StandingProblem::Settings(error.to_string())),
        }
        self.output
            .log
            .set_max_size(self.config.daemon.log_max_size);
        let interval = self.options.interval.unwrap_or(self.config.daemon.interval);
        self.state.interval_ms = millis(interval);
        locations.refresh();
        for line in LedgerLockWatch::refresh(&mut self.ledger_locks, &self.options.project) {
            self.output.line(&line);
        }
        if let Some(error) = locations.watch_error() {
            problems.push(StandingProblem::Watch {
                what: error.to_owned(),
                interval,
            });
        }
        for problem in &problems {
            if !self.problems.contains(problem) {
                self.output.line(&problem.to_string());
            }
        }
        self.problems = problems;
    }

    /// Puts a finished cycle into the state.
    fn record_cycle(&mut self, began: &Moment, ended: &Moment, result: &CycleResult) {
        self.state.cycle_since = None;
        self.state.last_cycle = Some(CycleRecord {
            started_at: began.wall,
            ended_at: ended.wall,
            outcome: result.outcome(),
            line: result.to_string(),
        });
        let interval = SignedDuration::try_from(self.state.interval()).unwrap_or_default();
        self.state.next_at = ended.wall.checked_add(interval).ok();
        let skipped = self.state.skipped.take();
        if let CycleResult::Skipped(_) = result {
            self.state.skipped = Some(SkipRecord {
                since: skipped.map_or(began.wall, |skipped| skipped.since),
                holder: result.skipped_for().map(ToString::to_string),
                line: result.to_string(),
            });
        }
    }

    /// Writes the state. A failure is logged once; the next cycle tries again.
    fn write_state(&mut self) {
        // Without its lock, the file may already be another daemon's.
        if !self.lock.is_current() {
            return;
        }
        self.state.log_error = self.output.log.error().map(str::to_owned);
        let Err(error) = self.state.write(&self.folder) else {
            return;
        };
        let problem = StandingProblem::State(error.to_string());
        if !self.problems.contains(&problem) {
            self.output.line(&problem.to_string());
            self.problems.push(problem);
        }
    }

    fn stop(&mut self, reason: StopReason) {
        let line = format!("Stopped: {reason}.");
        let at = self.output.clock.now().wall;
        if reason == StopReason::FolderGone {
            // Writing the log would create a file where the project was removed.
            (self.output.echo)(at, &line);
            return;
        }
        self.output.line(&line);
        self.state.cycle_since = None;
        self.state.next_at = None;
        self.state.ended = Some(StopRecord {
            at,
            why: reason.to_string(),
        });
        self.write_state();
    }
}

/// Whether the summary of a cycle is logged. A skipped cycle has reported its lock already, and one that did
/// nothing is not logged again and again.
fn is_worth_a_line(report: &CycleReport, previous: Option<&CycleResult>) -> bool {
    let result = &report.result;
    match result.outcome() {
        CycleOutcome::Skipped => false,
        CycleOutcome::Failed | CycleOutcome::CutShort => true,
        CycleOutcome::Done | CycleOutcome::PutOff => {
            report.eventful
                || result.shared_tasks()
                || !previous.is_some_and(|previous| result.repeats(previous))
        }
    }
}

/// Takes the daemon's lock, or finds out which daemon has it.
fn take_lock(folder: &Path) -> Result<FileLock, StartError> {
    let path = folder.join(lock::FILE).display().to_string();
    let may_write = rustix::fs::access(folder, rustix::fs::Access::WRITE_OK).is_ok();
    let failed = |error| {
        let what = if may_write {
            format!("{path} can't be locked")
        } else {
            format!("no permission to write to {}", folder.display())
        };
        StartError::io(what)(error)
    };
    for _ in 0..ATTEMPTS {
        match lock::try_lock(folder).map_err(failed)? {
            TryLock::Locked(lock) => return Ok(lock),
            TryLock::Held => {
                if let Some(state) = live_state(folder).map_err(failed)? {
                    return Err(StartError::AlreadyRunning(Box::new(state)));
                }
            }
            TryLock::Observed => {}
        }
        std::thread::sleep(PAUSE);
    }
    Err(StartError::UnidentifiedHolder(path))
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Logs panics: a detached process has no other output.
fn log_panics(path: PathBuf) {
    std::panic::set_hook(Box::new(move |info| {
        let at = HostClock::new().now().wall;
        Log::new(path.clone(), u64::MAX).write(at, &format!("Panicked: {info}"));
    }));
}
