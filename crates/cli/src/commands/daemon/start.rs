//! `tenure daemon start`: runs this program again, detached from the terminal.

use std::io::{BufRead, BufReader, PipeReader};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use serde_json::Value;
use tenure::text::duration;
use tenure::wire::{DaemonStartedJson, Envelope, ErrorCode};
use tenure::{Project, Tenure};
use tenure_daemon::lock::{folder_of, is_held};
use tenure_daemon::{DaemonState, DaemonStatus};
use tenure_host::time_limit::TimeLimit;

use super::run::READY;
use super::{absolute, now, project, status};
use crate::answer::{Answer, Failure, remark};
use crate::args::Global;
use crate::args::daemon::Work;
use crate::context;
use crate::exit::Exit;

/// How long the daemon may take to start.
const START_TIMEOUT: Duration = Duration::from_secs(20);

/// Variables that describe a lease of the starter, and mean nothing to the daemon.
const LEASE_VARIABLES: [&str; 13] = [
    "TENURE_HOLDER",
    "TENURE_KEY",
    "TENURE_TOKEN",
    "TENURE_KEYS",
    "TENURE_TOKENS",
    "TENURE_ASKED",
    "TENURE_SLOT",
    "TENURE_PARENT_LEASES",
    "TENURE_GENERATED_HOLDER",
    "TENURE_TASK_ID",
    "TENURE_TASK_TITLE",
    "TENURE_TASK_TOKEN",
    "TENURE_TASK_ATTEMPT",
];

pub(super) fn start(global: &Global, work: &Work) -> Result<Answer, Failure> {
    let project = project()?;
    // Only for a quick answer with a better message: the daemon's lock decides.
    let folder = folder_of(&project);
    if let Ok(true) = is_held(&folder)
        && let Ok(DaemonStatus::Running(state)) = DaemonStatus::read(&folder)
    {
        return Ok(answer(global, &project, &state, false));
    }
    let mut command = command(&project);
    if let Some(interval) = work.interval {
        command.arg(format!("--interval={}ms", interval.as_millis()));
    }
    if let Some(log) = absolute(work.log.as_deref())? {
        command.arg("--log").arg(log);
    }
    let (read, write) = std::io::pipe()?;
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::from(write.try_clone()?))
        .stderr(Stdio::from(write))
        .spawn()?;
    // The command holds the writing end of the pipe, too.
    drop(command);
    let ready = await_ready(child, read);
    let status = DaemonStatus::read(project.state());
    if let Err(failure) = ready {
        return match status {
            // Another `start` was faster.
            Ok(DaemonStatus::Running(state)) if failure.code == ErrorCode::DaemonRunning => {
                Ok(answer(global, &project, &state, false))
            }
            _ => Err(failure),
        };
    }
    let Ok(DaemonStatus::Running(state)) = status else {
        // It started, and has stopped since.
        let message = "the daemon started and has stopped again: see tenure daemon logs";
        return Err(Failure::new(ErrorCode::DaemonEnded, message));
    };
    if let Some(why) = &state.log_error {
        let message = format!("its log {} can't be written ({why})", state.log);
        remark(global, &message);
    }
    Ok(answer(global, &project, &state, true))
}

/// The daemon that runs now, and what it will share, and where.
fn answer(global: &Global, project: &Project, state: &DaemonState, started: bool) -> Answer {
    let pid = state.process.pid;
    let config = project.background_config(std::env::home_dir().as_deref());
    let config = config.unwrap_or_default();
    let remotes = tenure_sync::destination(project.root(), &config);
    let what = if started {
        "started"
    } else {
        "already running"
    };
    let text = if global.quiet {
        pid.to_string()
    } else {
        let shares = match &remotes {
            Ok(names) if names.is_empty() => {
                "records the tasks in this repository (it has no remote)".to_owned()
            }
            Ok(names) => format!(
                "shares the tasks with {} ({})",
                names.join(", "),
                config.sync.reference
            ),
            Err(why) => format!("does not share the tasks: {why}"),
        };
        format!(
            "Daemon {what} (pid {pid}, every {})\n  ends expired and dead leases\n  {shares}\n  log: {}",
            duration::format(state.interval()),
            state.log
        )
    };
    let data = DaemonStartedJson {
        started,
        remotes: remotes.ok(),
        r#ref: config.sync.reference.clone(),
        daemon: status::json(&now(), state),
    };
    Answer::new(data, text)
}

/// Starts the daemon if the settings of the project's own store say so and none runs. Does not wait for it and
/// reports no failure: the command that calls this has something else to do.
pub(crate) fn autostart(global: &Global, tenure: &Tenure) {
    let is_own = context::named_store(global).is_none() && tenure.config().store_url().is_none();
    let forbidden = std::env::var_os("TENURE_NO_DAEMON")
        .is_some_and(|value| !matches!(value.to_str(), Some("" | "0" | "false")));
    if !tenure.config().daemon.autostart || !is_own || global.no_daemon || forbidden {
        return;
    }
    let Ok(Some(project)) = context::find_project() else {
        return;
    };
    if !is_held(&folder_of(&project)).is_ok_and(|held| !held) {
        return;
    }
    // If several commands do this at once, one daemon gets the lock and the others end.
    let _ = command(&project)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
}

/// The command line of a project's daemon.
fn command(project: &Project) -> Command {
    let program = std::env::current_exe().ok().filter(|path| path.exists());
    // If the program was replaced while it runs, the kernel still has the running version.
    let mut command = Command::new(program.unwrap_or_else(|| PathBuf::from("/proc/self/exe")));
    command
        .arg0("tenure")
        .args(["--json", "daemon", "run", "--detached"])
        // Where it finds the same settings.
        .current_dir(project.found_in());
    for name in LEASE_VARIABLES {
        command.env_remove(name);
    }
    command
}

/// Waits until the daemon reports that it runs, or until it ends.
fn await_ready(mut child: Child, output: PipeReader) -> Result<(), Failure> {
    let (sender, lines) = mpsc::channel();
    std::thread::spawn(move || {
        let mut lines = BufReader::new(output).split(b'\n').map_while(Result::ok);
        lines.try_for_each(|line| sender.send(line))
    });
    let limit = TimeLimit::after(START_TIMEOUT);
    let mut text = Vec::new();
    loop {
        match lines.recv_timeout(limit.remaining()) {
            Ok(line) if line == READY.as_bytes() => return Ok(()),
            Ok(line) => text.extend([line.as_slice(), b"\n"].concat()),
            Err(RecvTimeoutError::Disconnected) => {
                let ended = child.wait()?;
                return Err(child_failure(&String::from_utf8_lossy(&text), ended.code()));
            }
            Err(RecvTimeoutError::Timeout) => {
                // It is a child that has not been waited for, so its pid is not reused.
                let _ = child.kill();
                let _ = child.wait();
                let message = format!(
                    "the daemon did not start within {} and was killed: see tenure daemon logs",
                    duration::format(START_TIMEOUT)
                );
                return Err(Failure::new(ErrorCode::DaemonFailed, message));
            }
        }
    }
}

/// The failure that the daemon reported before it ended.
fn child_failure(output: &str, exit: Option<i32>) -> Failure {
    let reported: Option<Envelope<Value, Value>> = serde_json::from_str(output).ok();
    let Some(error) = reported.and_then(|it| it.error) else {
        let message = format!("the daemon could not be started: {}", output.trim());
        return Failure::new(ErrorCode::DaemonFailed, message);
    };
    let exit = exit.map_or(Exit::Runtime, Exit::Other);
    let failure = Failure::new(error.code, error.message);
    failure.exit(exit).details(error.details)
}
