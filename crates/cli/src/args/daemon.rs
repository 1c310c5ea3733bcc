//! The command line of `tenure daemon`.

use std::path::PathBuf;
use std::time::Duration;

use clap::Subcommand;
use tenure::text::duration;

#[derive(Debug, Subcommand)]
pub(crate) enum Daemon {
    /// Run in the foreground, until Ctrl+C
    #[command(after_help = "Examples:
  tenure daemon run                     run in this terminal
  tenure daemon run --interval 5s

In every cycle it checks .tenure/.exclusive-lock and .beads/.exclusive-lock.
While another program holds one of them, the daemon does nothing. Otherwise it
ends expired and dead leases and syncs the tasks. It wakes up when one of these
locks appears or disappears. A project has one daemon: a second one prints which
one runs (exit 6).")]
    Run(Run),
    /// Run in the background; returns when the daemon is ready
    #[command(after_help = "Examples:
  tenure daemon start
  tenure daemon start --interval 30s --log /var/log/tenure.log
  tenure daemon start --foreground      the same as tenure daemon run

It keeps running when the terminal closes. If one runs already, start says so
and changes nothing. The setting daemon.autostart starts it whenever tasks
change (see tenure config show).")]
    Start(Start),
    /// Stop the daemon and wait until it has exited
    #[command(after_help = "Example: tenure daemon stop --wait 1m

The daemon finishes its current step first. If none runs, there is nothing to
do. If it still runs when the wait times out, the exit code is 1.")]
    Stop {
        /// Wait at most this long
        #[arg(long, value_name = "D", value_parser = duration::parse, default_value = "30s")]
        wait: Duration,
    },
    /// Show whether it runs, its last cycle, its next one, and which lock pauses it
    #[command(after_help = "Examples:
  tenure daemon status
  tenure daemon status --quiet || tenure daemon start

Exit codes: 0 it runs, 3 it does not.")]
    Status,
    /// Show the end of the log
    #[command(after_help = "Examples:
  tenure daemon logs -n 100
  tenure daemon logs -f                 follow the log until Ctrl+C
  tenure daemon logs -f --json          one object per line

Older logs (daemon.log.1 to .3) are read where needed. A log that is rotated is
followed.")]
    Logs(Logs),
}

/// How the daemon works.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Work {
    /// The pause between two cycles, 1s to 1d [default: daemon.interval, 1m]
    #[arg(long, value_name = "D", value_parser = interval)]
    pub(crate) interval: Option<Duration>,
    /// The log file [default: daemon.log in .git/tenure, or in .tenure without git]
    #[arg(long, value_name = "FILE")]
    pub(crate) log: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) work: Work,
    /// For tenure daemon start: detach from the terminal
    #[arg(long, hide = true)]
    pub(crate) detached: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Start {
    #[command(flatten)]
    pub(crate) work: Work,
    /// Stay in the foreground, as tenure daemon run does
    #[arg(long)]
    pub(crate) foreground: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Logs {
    /// How many lines
    #[arg(short = 'n', long = "lines", value_name = "N", default_value_t = 20)]
    pub(crate) lines: usize,
    /// Print lines as they are added
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// The log file [default: that of the running daemon, or of the last one]
    #[arg(long, value_name = "FILE")]
    pub(crate) log: Option<PathBuf>,
}

fn interval(text: &str) -> Result<Duration, String> {
    let (least, most) = (Duration::from_secs(1), Duration::from_secs(24 * 3600));
    let given = duration::parse(text).map_err(|error| error.to_string())?;
    if (least..=most).contains(&given) {
        Ok(given)
    } else {
        Err("give a duration from 1s to 1d".to_owned())
    }
}
