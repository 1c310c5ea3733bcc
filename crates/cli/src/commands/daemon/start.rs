//! `tenure daemon start`: runs this program again, detached from the terminal.

use std::fs::File;
use std::io::Read;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use serde::Deserialize;
use serde_json::{Value, json};
use tenure::Project;
use tenure::store::Clock;
use tenure::text::duration;
use tenure::wire::{DaemonStartedJson, ErrorCode};
use tenure_daemon::lock::{folder_of, is_held};
use tenure_daemon::{DaemonState, DaemonStatus};
use tenure_host::HostClock;

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
    let (read, write) = pipe_with(PipeFlags::CLOEXEC)?;
    let child = command
        .stdin(Stdio::null())
        .stdout(Stdio::from(write.try_clone()?))
        .stderr(Stdio::from(write))
        .spawn()?;
    // The command holds the writing end of the pipe, too.
    drop(command);
    let ready = await_ready(child, File::from(read));
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
        return Err(Failure::new(
            ErrorCode::DaemonEnded,
            "the daemon started and has stopped again: see tenure daemon logs",
        ));
    };
    if let Some(why) = &state.log_error {
        remark(
            global,
            &format!("its log {} can't be written ({why})", state.log),
        );
    }
    Ok(answer(global, &project, &state, true))
}

/// The daemon that runs now, and what it will share, and where.
fn answer(global: &Global, project: &Project, state: &DaemonState, started: bool) -> Answer {
    let pid = state.process.pid;
    let config = project.background_config(context::home().as_deref());
    let config = config.unwrap_or_default();
    let remotes = tenure_sync::destination(project.root(), &config);
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
            "Daemon {} (pid {pid}, every {})\n  ends expired and dead leases\n  {shares}\n  log: {}",
            if started {
                "started"
            } else {
                "already running"
            },
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

/// Starts the daemon if none runs. Does not wait for it and reports no failure: the command that calls
/// this has something else to do.
pub(crate) fn autostart(global: &Global) {
    let forbidden = std::env::var_os("TENURE_NO_DAEMON")
        .is_some_and(|value| !matches!(value.to_str(), Some("" | "0" | "false")));
    if global.no_daemon || forbidden {
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
fn await_ready(mut child: Child, mut output: File) -> Result<(), Failure> {
    let clock = HostClock::new();
    let since = clock.now().ticks;
    let mut text = Vec::new();
    let mut chunk = [0; 4096];
    let ready = |text: &[u8]| {
        text.split(|byte| *byte == b'\n')
            .any(|line| line == READY.as_bytes())
    };
    loop {
        let left = START_TIMEOUT.saturating_sub(clock.now().ticks.saturating_sub(since));
        if left.is_zero() {
            // It is a child that has not been waited for, so its pid is not reused.
            let _ = child.kill();
            let _ = child.wait();
            let message = format!(
                "the daemon did not start within {} and was killed: see tenure daemon logs",
                duration::format(START_TIMEOUT)
            );
            return Err(Failure::new(ErrorCode::DaemonFailed, message));
        }
        let timeout = Timespec::try_from(left).ok();
        match poll(&mut [PollFd::new(&output, PollFlags::IN)], timeout.as_ref()) {
            Ok(0) | Err(rustix::io::Errno::INTR) => continue,
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        let count = output.read(&mut chunk)?;
        text.extend_from_slice(chunk.get(..count).unwrap_or_default());
        if ready(&text) {
            return Ok(());
        }
        if count == 0 {
            let ended = child.wait()?;
            return Err(child_failure(&text, ended.code()));
        }
    }
}

/// The failure that the daemon reported before it ended.
fn child_failure(output: &[u8], code: Option<i32>) -> Failure {
    let text = String::from_utf8_lossy(output);
    let error = |value: &Value| {
        value
            .get("error")
            .filter(|error| error.is_object())
            .cloned()
    };
    let reported = serde_json::from_str::<Value>(&text)
        .ok()
        .and_then(|value| error(&value));
    let exit = code.map_or(Exit::Runtime, Exit::Other);
    let Some(reported) = reported else {
        let message = format!("the daemon could not be started: {}", text.trim());
        return Failure::new(ErrorCode::DaemonFailed, message);
    };
    let code = reported
        .get("code")
        .and_then(|code| ErrorCode::deserialize(code).ok())
        .unwrap_or(ErrorCode::DaemonFailed);
    let message = reported
        .get("message")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let details = reported
        .get("details")
        .cloned()
        .unwrap_or_else(|| json!({}));
    Failure::new(code, message).exit(exit).details(details)
}
