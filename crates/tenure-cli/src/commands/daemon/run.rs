//! `tenure daemon run`: the daemon itself, in the foreground or detached.

use std::io::Write;

use anstyle::Style;
use jiff::Timestamp;
use serde_json::json;
use tenure::host::inherit;
use tenure_daemon::{Begun, Options};

use super::{absolute, not_run, project};
use crate::answer::{Answer, Failure};
use crate::args::Global;
use crate::args::daemon::Work;
use crate::context;
use crate::words;

/// What a detached daemon says to its starter once it really runs.
pub(super) const READY: &str = "ready";

pub(super) fn run(global: &Global, work: &Work, detached: bool) -> Result<Answer, Failure> {
    if detached {
        leave()?;
    }
    let options = Options {
        project: project()?,
        home: context::home(),
        interval: work.interval,
        log: absolute(work.log.as_deref())?,
        detached,
    };
    let silent = detached || global.json || global.quiet;
    let begun = |_: &Begun<'_>| {
        if detached {
            let _ = writeln!(std::io::stdout(), "{READY}");
            silence();
        }
    };
    let mut echo = |at: Timestamp, line: &str| {
        if !silent {
            show(at, line);
        }
    };
    let ended = tenure_daemon::run(options, begun, &mut echo).map_err(not_run)?;
    let pid = std::process::id();
    let data = json!({ "pid": pid, "ended": ended.to_string() });
    // What there is to say was said.
    Ok(Answer::new(data, ""))
}

/// Leaves behind whoever started us: its terminal, its group, and what it had open.
fn leave() -> std::io::Result<()> {
    inherit::close_all()?;
    match rustix::process::setsid() {
        // We lead a group, because somebody typed this by hand: that is left behind already.
        Ok(_) | Err(rustix::io::Errno::PERM) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// From here on, nobody listens.
fn silence() {
    let Ok(null) = std::fs::File::options()
        .read(true)
        .write(true)
        .open("/dev/null")
    else {
        return;
    };
    let _ = rustix::stdio::dup2_stdin(&null);
    let _ = rustix::stdio::dup2_stdout(&null);
    let _ = rustix::stdio::dup2_stderr(&null);
}

/// A line for whoever watches.
pub(super) fn show(at: Timestamp, line: &str) {
    let dim = Style::new().dimmed();
    let text = format!("{dim}{}{dim:#} {line}\n", words::time(at));
    let mut out = anstream::stdout().lock();
    // Whoever does not listen any more is told nothing; the log has it.
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}
