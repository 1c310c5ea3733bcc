//! `tenure daemon run`: the daemon itself, in the foreground or detached.

use std::io::Write;

use anstyle::Style;
use jiff::Timestamp;
use tenure::text::visible;
use tenure::wire::DaemonEndedJson;
use tenure_daemon::DaemonOptions;
use tenure_host::inherit;

use super::{absolute, project, start_failure};
use crate::answer::{Answer, Failure};
use crate::args::Global;
use crate::args::daemon::Work;
use crate::words;

/// The line that a detached daemon prints for `tenure daemon start` once it runs.
pub(super) const READY: &str = "ready";

pub(super) fn run(global: &Global, work: &Work, detached: bool) -> Result<Answer, Failure> {
    if detached {
        detach()?;
    }
    let options = DaemonOptions {
        project: project()?,
        home: std::env::home_dir(),
        interval: work.interval,
        log: absolute(work.log.as_deref())?,
        detached,
    };
    if detached {
        // It was started in a worktree that may be removed.
        std::env::set_current_dir(options.project.root())?;
    }
    let silent = detached || global.json || global.quiet;
    let started = || {
        if detached {
            let _ = writeln!(std::io::stdout(), "{READY}");
            close_output();
        }
    };
    let mut echo = |at: Timestamp, line: &str| {
        if !silent {
            print(at, line);
        }
    };
    let reason = tenure_daemon::run(options, started, &mut echo).map_err(start_failure)?;
    let data = DaemonEndedJson {
        pid: std::process::id(),
        ended: reason.to_string(),
    };
    // The reason has been printed as the last line of the log.
    Ok(Answer::new(data, ""))
}

/// Leaves the terminal, the process group and the open files of the starter.
fn detach() -> std::io::Result<()> {
    inherit::close_all()?;
    match rustix::process::setsid() {
        // This process leads its group already, because a shell started it directly.
        Ok(_) | Err(rustix::io::Errno::PERM) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Points the standard streams to /dev/null.
fn close_output() {
    let mut options = std::fs::File::options();
    if let Ok(null) = options.read(true).write(true).open("/dev/null") {
        let _ = rustix::stdio::dup2_stdin(&null);
        let _ = rustix::stdio::dup2_stdout(&null);
        let _ = rustix::stdio::dup2_stderr(&null);
    }
}

/// Prints a line of the log.
fn print(at: Timestamp, line: &str) {
    let dim = Style::new().dimmed();
    let text = format!("{dim}{}{dim:#} {}\n", words::time(at), visible(line));
    let mut out = anstream::stdout().lock();
    // If the output is closed, the line is still in the log.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
