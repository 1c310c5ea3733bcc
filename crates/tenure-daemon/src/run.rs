//! The daemon's life: [`run`] begins, goes through one cycle after another, and ends.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use tenure::core::{Clock, Moment};
use tenure::host::{HostClock, identity};
use tenure::{Config, ConfigError, Project, duration};

use crate::cycle::{Done, cycle};
use crate::lock::Lock;
use crate::log::Log;
use crate::places::Places;
use crate::rest::rest;
use crate::signals::{HangUp, Signals};
use crate::standing::of_the_living;
use crate::state::{Cycle, End, Outcome, Skipped, State};

/// Between two tries for the lock.
const PAUSE: Duration = Duration::from_millis(5);

/// How often to try while nobody says that it is theirs: two seconds.
const TRIES: usize = 400;

/// As often it is tried in any case: whoever only looks whether a daemon runs has the lock for a moment.
const AT_LEAST: usize = 4;

/// How a daemon is to run.
#[derive(Debug, Clone)]
pub struct Options {
    /// For which project.
    pub project: Project,
    /// Where the settings of its owner are.
    pub home: Option<PathBuf>,
    /// How long to rest between two cycles, whatever the settings say.
    pub interval: Option<Duration>,
    /// Where to log, if not in the project's folder.
    pub log: Option<PathBuf>,
    /// Whether it has left its terminal.
    pub detached: bool,
}

impl Options {
    /// Where the log is.
    pub fn log(&self) -> PathBuf {
        let usual = || self.project.folder().join(crate::log::FILE);
        self.log.clone().unwrap_or_else(usual)
    }
}

/// What is told when it runs.
#[derive(Debug)]
pub struct Begun<'a> {
    /// What it tells of itself.
    pub state: &'a State,
}

/// Why a daemon does not run.
#[derive(Debug, thiserror::Error)]
pub enum NotRun {
    /// Another one does.
    #[error("the daemon of this project runs already")]
    AlreadyRunning(Box<State>),
    /// Another one does, and does not say which.
    #[error(
        "somebody holds {0} and does not say who: a daemon that is just starting or ending? Try again, or find it with fuser {0}"
    )]
    Nameless(String),
    /// The settings make no sense.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Something could not be opened or written.
    #[error("{what} ({error})")]
    Io {
        /// What.
        what: String,
        /// Why.
        error: io::Error,
    },
}

/// Why a daemon has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// It was told to.
    Signal(&'static str),
    /// The project's folder is gone.
    FolderGone,
    /// Its lock was removed, and another daemon has taken it.
    Superseded,
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Signal(name) => write!(f, "told to by {name}"),
            Self::FolderGone => f.write_str("the project's folder is gone"),
            Self::Superseded => f.write_str("another daemon runs for this project"),
        }
    }
}

/// Runs the daemon of a project until it is told to stop. `begun` is called once it really runs; `echo` is
/// told every line of the log.
pub fn run(
    options: Options,
    begun: impl FnOnce(&Begun<'_>),
    echo: &mut dyn FnMut(Timestamp, &str),
) -> Result<Ended, NotRun> {
    let hang_up = if options.detached {
        HangUp::Reopens
    } else {
        HangUp::Stops
    };
    let failed = |what: &str| {
        let what = what.to_owned();
        move |error| NotRun::Io { what, error }
    };
    let mut signals = Signals::catch(hang_up).map_err(failed("signals can't be heard"))?;
    let mut daemon = Daemon::begin(options)?;
    begun(&Begun {
        state: &daemon.state,
    });
    let ended = daemon.live(&mut signals, echo);
    let ended = ended.map_err(failed("the daemon can't go on"))?;
    daemon.end(ended, echo);
    Ok(ended)
}

/// A daemon that runs.
struct Daemon {
    options: Options,
    folder: PathBuf,
    lock: Lock,
    log: Log,
    config: Config,
    state: State,
    clock: HostClock,
    /// What went wrong beside the cycles, told once until it changes.
    troubles: Vec<String>,
    /// What to say first.
    news: Vec<String>,
}

impl Daemon {
    fn begin(options: Options) -> Result<Self, NotRun> {
        let folder = options.project.folder();
        let lock = take(&folder)?;
        let config = Config::load(options.home.as_deref(), Some(&folder))?;
        let mut log = Log::new(options.log(), config.daemon.log_max_size);
        if let Err(error) = log.open()
            // The usual one may be missing; one that somebody named is a typing error.
            && options.log.is_some()
        {
            let what = format!(
                "the log {} can't be opened: name another with --log",
                log.path().display()
            );
            return Err(NotRun::Io { what, error });
        }
        let before = State::read(&folder).ok().flatten();
        let killed = before.filter(|before| before.ended.is_none());
        let clock = HostClock::new();
        let interval = options.interval.unwrap_or(config.daemon.interval);
        let state = State {
            process: identity::this_process(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            started_at: clock.now().wall,
            interval_ms: millis(interval),
            log: log.path().to_string_lossy().into_owned(),
            log_error: log.error().map(str::to_owned),
            cycle_since: None,
            last_cycle: None,
            next_at: None,
            skipped: None,
            ended: None,
        };
        state.write(&folder).map_err(|error| NotRun::Io {
            what: format!(
                "{} can't be written, and without it nobody could stop the daemon",
                folder.join(crate::state::FILE).display()
            ),
            error,
        })?;
        let mut news = vec![format!(
            "Started: pid {}, tenure {}, a cycle every {}.",
            state.process.pid,
            state.version,
            duration::format(interval)
        )];
        if let Some(before) = killed {
            news.push(format!(
                "The daemon before, pid {}, did not end by itself; this one goes on from there.",
                before.process.pid
            ));
        }
        if options.detached {
            log_panics(log.path().to_owned());
        }
        Ok(Self {
            options,
            folder,
            lock,
            log,
            config,
            state,
            clock,
            troubles: Vec::new(),
            news,
        })
    }

    /// One cycle after another.
    fn live(
        &mut self,
        signals: &mut Signals,
        echo: &mut dyn FnMut(Timestamp, &str),
    ) -> io::Result<Ended> {
        for line in std::mem::take(&mut self.news) {
            self.say(echo, &line);
        }
        let mut places = Places::of(&self.options.project);
        let mut last: Option<Done> = None;
        loop {
            if signals.stop() {
                return Ok(Ended::Signal(signals.stopped_by()));
            }
            if signals.take_reopen() {
                self.log.reopen();
                self.say(echo, "The log was opened anew (SIGHUP).");
            }
            if let Some(ended) = self.displaced(echo)? {
                return Ok(ended);
            }
            self.refresh(&mut places, echo);
            let began = self.clock.now();
            self.state.cycle_since = Some(began.wall);
            self.record(echo);
            let done = {
                let stop = || signals.stop();
                let mut say = |line: &str| {
                    let at = self.clock.now().wall;
                    self.log.say(at, line);
                    echo(at, line);
                };
                cycle(
                    &self.options.project,
                    &places,
                    &self.config,
                    &stop,
                    &mut say,
                )
            };
            if is_worth_a_line(&done, last.as_ref()) {
                self.say(echo, &done.line);
            }
            let ended = self.clock.now();
            self.note(&began, &ended, &done);
            self.record(echo);
            let took = ended.ticks.saturating_sub(began.ticks);
            if signals.stop() {
                continue;
            }
            rest(
                self.state.interval(),
                took,
                signals,
                &mut places,
                done.watched.as_ref(),
                || self.lock.stands(),
            )?;
            last = Some(Done {
                watched: None,
                ..done
            });
        }
    }

    fn say(&mut self, echo: &mut dyn FnMut(Timestamp, &str), line: &str) {
        let at = self.clock.now().wall;
        self.log.say(at, line);
        echo(at, line);
    }

    /// Whether the project or its lock is no longer ours.
    fn displaced(&mut self, echo: &mut dyn FnMut(Timestamp, &str)) -> io::Result<Option<Ended>> {
        if self.lock.stands() {
            return Ok(None);
        }
        if !self.folder.is_dir() {
            return Ok(Some(Ended::FolderGone));
        }
        match Lock::take(&self.folder) {
            Ok(Some(lock)) => {
                self.lock = lock;
                self.say(echo, "The daemon's lock was removed; it is taken again.");
                Ok(None)
            }
            Ok(None) => Ok(Some(Ended::Superseded)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Some(Ended::FolderGone)),
            Err(error) => Err(error),
        }
    }

    /// The settings and the places as they are now.
    fn refresh(&mut self, places: &mut Places, echo: &mut dyn FnMut(Timestamp, &str)) {
        let mut troubles = Vec::new();
        match Config::load(self.options.home.as_deref(), Some(&self.folder)) {
            Ok(config) => self.config = config,
            Err(error) => troubles.push(format!(
                "The settings can't be used, the earlier ones stay: {error}"
            )),
        }
        self.log.limit(self.config.daemon.log_max_size);
        let interval = self.options.interval.unwrap_or(self.config.daemon.interval);
        self.state.interval_ms = millis(interval);
        places.renew();
        if let Some(why) = places.deaf() {
            troubles.push(format!(
                "{why}; locks are looked at every {} instead",
                duration::format(interval)
            ));
        }
        for trouble in &troubles {
            if !self.troubles.contains(trouble) {
                self.say(echo, trouble);
            }
        }
        self.troubles = troubles;
    }

    /// Puts the end of a cycle into the state.
    fn note(&mut self, began: &Moment, ended: &Moment, done: &Done) {
        self.state.cycle_since = None;
        self.state.last_cycle = Some(Cycle {
            started_at: began.wall,
            ended_at: ended.wall,
            outcome: done.outcome,
            line: done.line.clone(),
        });
        let interval = SignedDuration::try_from(self.state.interval()).unwrap_or_default();
        self.state.next_at = ended.wall.checked_add(interval).ok();
        self.state.skipped = match done.outcome {
            Outcome::Skipped => {
                let since = self.state.skipped.as_ref().map(|skipped| skipped.since);
                Some(Skipped {
                    since: since.unwrap_or(began.wall),
                    holder: done.holder.clone(),
                    line: done.line.clone(),
                })
            }
            _ => None,
        };
    }

    /// Puts the state on record. That it can't be is said once, and tried again with the next cycle.
    fn record(&mut self, echo: &mut dyn FnMut(Timestamp, &str)) {
        // Somebody removed our lock, and perhaps another daemon has it: what is there may be its word.
        if !self.lock.stands() {
            return;
        }
        self.state.log_error = self.log.error().map(str::to_owned);
        let Err(error) = self.state.write(&self.folder) else {
            return;
        };
        let trouble = format!("{} can't be written: {error}", crate::state::FILE);
        if !self.troubles.contains(&trouble) {
            self.say(echo, &trouble);
            self.troubles.push(trouble);
        }
    }

    fn end(&mut self, ended: Ended, echo: &mut dyn FnMut(Timestamp, &str)) {
        let line = format!("Stopped: {ended}.");
        if ended == Ended::FolderGone {
            // Nothing is made anew where there is nothing any more.
            echo(self.clock.now().wall, &line);
            return;
        }
        self.say(echo, &line);
        self.state.cycle_since = None;
        self.state.next_at = None;
        self.state.ended = Some(End {
            at: self.clock.now().wall,
            why: ended.to_string(),
        });
        self.record(echo);
    }
}

/// Whether the end of a cycle is told. One that did nothing, as the one before it did nothing, is not; one
/// that was skipped has said so.
fn is_worth_a_line(done: &Done, last: Option<&Done>) -> bool {
    match done.outcome {
        Outcome::Skipped => false,
        Outcome::Failed => true,
        Outcome::Done | Outcome::PutOff | Outcome::CutShort => {
            let shared = matches!(done.synced, Some(tenure_sync::Outcome::Done(_)));
            done.eventful || shared || last.is_none_or(|last| last.line != done.line)
        }
    }
}

/// Takes the daemon's lock, or finds out who has it.
fn take(folder: &Path) -> Result<Lock, NotRun> {
    let path = folder.join(crate::lock::FILE);
    let failed = |error| NotRun::Io {
        what: format!("{} can't be locked", path.display()),
        error,
    };
    for number in 0..TRIES {
        if let Some(lock) = Lock::take(folder).map_err(failed)? {
            return Ok(lock);
        }
        if number >= AT_LEAST
            && let Some(state) = of_the_living(folder).map_err(failed)?
        {
            return Err(NotRun::AlreadyRunning(Box::new(state)));
        }
        std::thread::sleep(PAUSE);
    }
    Err(NotRun::Nameless(path.display().to_string()))
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Nobody sees what a detached process says when it breaks.
fn log_panics(path: PathBuf) {
    std::panic::set_hook(Box::new(move |info| {
        let at = HostClock::new().now().wall;
        Log::new(path.clone(), u64::MAX).say(at, &format!("Broken: {info}"));
    }));
}
