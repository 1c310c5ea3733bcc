//! `tenure daemon stop`

use std::io::ErrorKind;
use std::time::Duration;

use tenure::text::duration;
use tenure::wire::{DaemonStillRunningJson, DaemonStoppedJson, ErrorCode};
use tenure_daemon::lock::folder_of;
use tenure_daemon::stop::request_stop;
use tenure_daemon::{DaemonState, DaemonStatus};
use tenure_host::time_limit::TimeLimit;

use super::{identify, project};
use crate::answer::{Answer, Failure, remark};
use crate::args::Global;
use crate::words;

/// When to print first that the daemon still runs.
const FIRST_REMARK: Duration = Duration::from_millis(500);

/// How often to print it after that.
const NEXT_REMARK: Duration = Duration::from_secs(5);

pub(super) fn stop(global: &Global, wait: Duration) -> Result<Answer, Failure> {
    let project = project()?;
    let folder = &folder_of(&project);
    let state = match DaemonStatus::read(folder)? {
        DaemonStatus::Running(state) => state,
        DaemonStatus::NotRunning(_) => return Ok(nothing_to_stop(global)),
        DaemonStatus::Unidentified => {
            let lock = folder.join(tenure_daemon::lock::FILE);
            let message = format!(
                "a daemon is running, but its process is not on record: try again, or find it with fuser {}",
                lock.display()
            );
            return Err(Failure::new(ErrorCode::DaemonUnknown, message));
        }
    };
    let pid = state.process.pid;
    let daemon = request_stop(&state.process).map_err(|error| not_stopped(&state, &error))?;
    let Some(daemon) = daemon else {
        // It has stopped since its status was read.
        return Ok(nothing_to_stop(global));
    };
    let limit = TimeLimit::after(wait);
    let mut pause = FIRST_REMARK;
    while !daemon.wait(limit.remaining().min(pause))? {
        if limit.has_passed() {
            return Err(still_running(&state, wait));
        }
        pause = NEXT_REMARK;
        let passed = words::elapsed(wait.saturating_sub(limit.remaining()));
        let message = format!("waiting for pid {pid} to finish its step ({passed})");
        remark(global, &message);
    }
    let data = DaemonStoppedJson {
        pid: Some(pid),
        stopped: true,
    };
    let text = format!("Daemon stopped (pid {pid})");
    Ok(Answer::confirmed(global, data, text))
}

fn nothing_to_stop(global: &Global) -> Answer {
    let data = DaemonStoppedJson {
        pid: None,
        stopped: false,
    };
    Answer::confirmed(global, data, "No daemon is running for this project")
}

fn still_running(state: &DaemonState, wait: Duration) -> Failure {
    let pid = state.process.pid;
    let message = format!(
        "the daemon was asked to stop and is still running after {}: {}\n  it stops after its current step: see tenure daemon logs, or wait longer with --wait 5m\n  kill -KILL {pid} ends it at once; the next daemon continues its work",
        duration::format(wait),
        identify(state)
    );
    Failure::new(ErrorCode::DaemonStillRunning, message).details(DaemonStillRunningJson { pid })
}

fn not_stopped(state: &DaemonState, error: &std::io::Error) -> Failure {
    let (code, why) = match error.kind() {
        ErrorKind::PermissionDenied => (
            ErrorCode::PermissionDenied,
            "it belongs to another user: stop it as that user".to_owned(),
        ),
        ErrorKind::Unsupported => (
            ErrorCode::OtherContainer,
            "it runs in another container: stop it there".to_owned(),
        ),
        _ => (ErrorCode::Io, error.to_string()),
    };
    let message = format!(
        "the daemon can't be stopped from here: {} ({why})",
        identify(state)
    );
    Failure::new(code, message)
}
