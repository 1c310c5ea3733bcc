//! `tenure daemon stop`

use std::io::ErrorKind;
use std::time::Duration;

use serde_json::json;
use tenure::core::Clock;
use tenure::duration;
use tenure::host::HostClock;
use tenure_daemon::{Standing, State, look, stop};

use super::{project, which};
use crate::answer::{Answer, Failure, remark};
use crate::args::Global;
use crate::words;
use tenure::wire::ErrorCode;

/// After this, whoever waits is told what for.
const MOMENT: Duration = Duration::from_millis(500);

/// How often to say that it still runs.
const OFTEN: Duration = Duration::from_secs(5);

pub(super) fn stop(global: &Global, wait: Duration) -> Result<Answer, Failure> {
    let folder = project()?.folder();
    let state = match look(&folder)? {
        Standing::Running(state) => state,
        Standing::NotRunning(_) => return Err(none_runs()),
        Standing::Nameless => {
            let lock = folder.join(tenure_daemon::lock::FILE);
            let message = format!(
                "a daemon runs and does not say which process it is: try again, or find it with fuser {}",
                lock.display()
            );
            return Err(Failure::new(ErrorCode::DaemonUnknown, message));
        }
    };
    let pid = state.process.pid;
    let told = stop::tell(&state.process).map_err(|error| not_told(&state, &error))?;
    let Some(told) = told else {
        // It has ended since we looked.
        return Err(none_runs());
    };
    let clock = HostClock::new();
    let since = clock.now().ticks;
    let passed = || clock.now().ticks.saturating_sub(since);
    let mut said = Duration::ZERO;
    loop {
        let left = wait.saturating_sub(passed());
        let pause = if said.is_zero() { MOMENT } else { OFTEN };
        if told.wait(left.min(pause))? {
            break;
        }
        if wait <= passed() {
            return Err(still_runs(&state, wait));
        }
        if passed() >= said + pause {
            said = passed();
            let passed = words::elapsed(said);
            remark(
                global,
                &format!("waiting for pid {pid} to end its step ({passed})"),
            );
        }
    }
    let text = if global.quiet {
        String::new()
    } else {
        format!("The daemon (pid {pid}) has stopped.")
    };
    Ok(Answer::new(json!({ "pid": pid, "stopped": true }), text))
}

fn none_runs() -> Failure {
    Failure::new(
        ErrorCode::DaemonNotRunning,
        "no daemon runs for this project: start one with tenure daemon start",
    )
}

fn still_runs(state: &State, wait: Duration) -> Failure {
    let pid = state.process.pid;
    let message = format!(
        "the daemon was told to stop and still runs after {}: {}\n  it ends with its step: see tenure daemon logs, or wait longer with --wait 5m\n  kill -KILL {pid} ends it at once; the next one goes on from there",
        duration::format(wait),
        which(state)
    );
    Failure::new(ErrorCode::DaemonStillRunning, message).details(json!({ "pid": pid }))
}

fn not_told(state: &State, error: &std::io::Error) -> Failure {
    let (code, why) = match error.kind() {
        ErrorKind::PermissionDenied => (
            ErrorCode::PermissionDenied,
            "it is another user's: stop it as that user".to_owned(),
        ),
        ErrorKind::Unsupported => (
            ErrorCode::OtherContainer,
            "it runs in another container: stop it there".to_owned(),
        ),
        _ => (ErrorCode::Io, error.to_string()),
    };
    let message = format!(
        "the daemon can't be stopped from here: {} ({why})",
        which(state)
    );
    Failure::new(code, message)
}
