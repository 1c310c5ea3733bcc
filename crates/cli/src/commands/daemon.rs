//! `tenure daemon`: the background process of a project.

mod logs;
mod run;
mod start;
mod status;
mod stop;

use std::path::{Path, PathBuf};

use tenure::Project;
use tenure::store::{Clock, Moment};
use tenure::text::flat;
use tenure::wire::ErrorCode;
use tenure_daemon::{DaemonState, StartError};
use tenure_host::HostClock;

use crate::answer::{Answer, Failure};
use crate::args::Global;
use crate::args::daemon::Daemon;
use crate::context;
use crate::words;

pub(crate) use start::autostart;

pub(crate) fn daemon(global: &Global, daemon: Daemon) -> Result<Answer, Failure> {
    context::refuse_store(global, "the daemon works on the project's own store")?;
    match daemon {
        Daemon::Run(run) => run::run(global, &run.work, run.detached),
        Daemon::Start(start) if start.foreground => run::run(global, &start.work, false),
        Daemon::Start(start) => start::start(global, &start.work),
        Daemon::Stop { wait } => stop::stop(global, wait),
        Daemon::Status => status::status(global),
        Daemon::Logs(logs) => logs::logs(global, &logs),
    }
}

/// The project of the current folder.
fn project() -> Result<Project, Failure> {
    context::project(&context::start()?)
}

fn now() -> Moment {
    HostClock::new().now()
}

/// A path of a log as given, made absolute.
fn absolute(log: Option<&Path>) -> Result<Option<PathBuf>, Failure> {
    let start = context::start()?;
    Ok(log.map(|log| start.join(log)))
}

/// Identifies a running daemon in a few words.
fn identify(state: &DaemonState) -> String {
    let process = &state.process;
    let elsewhere = if process.namespace == tenure_host::identity::namespace() {
        String::new()
    } else {
        format!(" in the container {}", flat(&process.host))
    };
    format!(
        "pid {}{elsewhere} since {}, {}",
        process.pid,
        words::time(state.started_at),
        words::ago(&now(), state.started_at)
    )
}

/// Why a daemon could not run.
fn start_failure(error: StartError) -> Failure {
    let message = error.to_string();
    match error {
        StartError::AlreadyRunning(state) => already_running(&state),
        StartError::UnidentifiedHolder(_) => Failure::new(ErrorCode::DaemonRunning, message),
        StartError::Config(error) => error.into(),
        StartError::Io { .. } => Failure::new(ErrorCode::Io, message),
    }
}

fn already_running(state: &DaemonState) -> Failure {
    let message = format!(
        "a daemon is already running for this project: {}\n  to see what it does: tenure daemon status; to stop it: tenure daemon stop",
        identify(state)
    );
    Failure::new(ErrorCode::DaemonRunning, message).details(status::json(&now(), state))
}
