//! `tenure daemon start`: our own program once more, which leaves the terminal behind.

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
use tenure::core::Clock;
use tenure::host::HostClock;
use tenure::{Project, duration};
use tenure_daemon::lock::is_held;
use tenure_daemon::{Standing, look};

use super::run::READY;
use super::{absolute, already_running, now, project, status};
use crate::answer::{Answer, Failure, remark};
use crate::args::Global;
use crate::args::daemon::Work;
use crate::context;
use crate::exit::Exit;
use tenure::wire::ErrorCode;

/// How long it may take to come up.
const PATIENCE: Duration = Duration::from_secs(20);

/// What belongs to whoever starts it, not to the daemon.
const THEIRS: [&str; 9] = [
    "TENURE_HOLDER",
    "TENURE_KEY",
    "TENURE_TOKEN",
    "TENURE_WITHIN",
    "TENURE_MADE_UP",
    "TENURE_TASK_ID",
    "TENURE_TASK_TITLE",
    "TENURE_TASK_TOKEN",
    "TENURE_TASK_ATTEMPT",
];

pub(super) fn start(global: &Global, work: &Work) -> Result<Answer, Failure> {
    let project = project()?;
    // Quick, and in better words; the daemon's own lock decides.
    if let Ok(true) = is_held(&project.folder())
        && let Ok(Standing::Running(state)) = look(&project.folder())
    {
        return Err(already_running(&state));
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
    // It has our ends of the pipe, too.
    drop(command);
    await_ready(child, File::from(read))?;
    let Ok(Standing::Running(state)) = look(&project.folder()) else {
        // It ran, and was ended since.
        return Err(Failure::new(
            ErrorCode::DaemonEnded,
            "the daemon was started and has ended again: see tenure daemon logs",
        ));
    };
    if let Some(why) = &state.log_error {
        remark(
            global,
            &format!("nothing can be written to its log {} ({why})", state.log),
        );
    }
    let text = if global.quiet {
        state.process.pid.to_string()
    } else {
        format!(
            "The daemon runs: pid {}, a cycle every {}, log in {}",
            state.process.pid,
            duration::format(state.interval()),
            state.log
        )
    };
    Ok(Answer::new(status::json(&now(), &state), text))
}

/// Starts the daemon if none runs, and says nothing, whatever comes of it: a command that has something
/// else to do is not held up.
pub(crate) fn autostart(global: &Global) {
    let forbidden = std::env::var_os("TENURE_NO_DAEMON")
        .is_some_and(|value| !matches!(value.to_str(), Some("" | "0" | "false")));
    if global.no_daemon || forbidden {
        return;
    }
    let Ok(start) = context::start() else { return };
    let Some(project) = Project::find(&start, context::home().as_deref()) else {
        return;
    };
    if !is_held(&project.folder()).is_ok_and(|held| !held) {
        return;
    }
    // Of many who start one at once, all but one find the lock taken and end.
    let _ = command(&project)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn();
}

/// Our own program, as the daemon of a project.
fn command(project: &Project) -> Command {
    let program = std::env::current_exe().ok().filter(|path| path.exists());
    // Replaced by a newer one while we run: what runs is still to be had.
    let mut command = Command::new(program.unwrap_or_else(|| PathBuf::from("/proc/self/exe")));
    command
        .arg0("tenure")
        .args(["--json", "daemon", "run", "--detached"])
        .current_dir(project.root());
    for name in THEIRS {
        command.env_remove(name);
    }
    command
}

/// Waits until it says that it runs, or until it ends.
fn await_ready(mut child: Child, mut said: File) -> Result<(), Failure> {
    let clock = HostClock::new();
    let since = clock.now().ticks;
    let mut text = Vec::new();
    let mut chunk = [0; 4096];
    let ready = |text: &[u8]| {
        text.split(|byte| *byte == b'\n')
            .any(|line| line == READY.as_bytes())
    };
    loop {
        let left = PATIENCE.saturating_sub(clock.now().ticks.saturating_sub(since));
        if left.is_zero() {
            // Ours, and not waited for: no other process can have its pid.
            let _ = child.kill();
            let _ = child.wait();
            let message = format!(
                "the daemon did not come up within {}, and was ended: see tenure daemon logs",
                duration::format(PATIENCE)
            );
            return Err(Failure::new(ErrorCode::DaemonFailed, message));
        }
        let timeout = Timespec::try_from(left).ok();
        match poll(&mut [PollFd::new(&said, PollFlags::IN)], timeout.as_ref()) {
            Ok(0) | Err(rustix::io::Errno::INTR) => continue,
            Ok(_) => {}
            Err(error) => return Err(error.into()),
        }
        let count = said.read(&mut chunk)?;
        text.extend_from_slice(chunk.get(..count).unwrap_or_default());
        if ready(&text) {
            return Ok(());
        }
        if count == 0 {
            let ended = child.wait()?;
            return Err(why(&text, ended.code()));
        }
    }
}

/// Why it does not run, in its own words.
fn why(said: &[u8], code: Option<i32>) -> Failure {
    let text = String::from_utf8_lossy(said);
    let error = |value: &Value| {
        value
            .get("error")
            .filter(|error| error.is_object())
            .cloned()
    };
    let told = serde_json::from_str::<Value>(&text)
        .ok()
        .and_then(|value| error(&value));
    let exit = code.map_or(Exit::Runtime, Exit::Other);
    let Some(told) = told else {
        let message = format!("the daemon could not be started: {}", text.trim());
        return Failure::new(ErrorCode::DaemonFailed, message);
    };
    let code = told
        .get("code")
        .and_then(|code| ErrorCode::deserialize(code).ok())
        .unwrap_or(ErrorCode::DaemonFailed);
    let message = told
        .get("message")
        .and_then(Value::as_str)
        .unwrap_or_default();
    let details = told.get("details").cloned().unwrap_or_else(|| json!({}));
    Failure::new(code, message).exit(exit).details(details)
}
