//! What can be typed about the daemon.

use std::path::PathBuf;
use std::time::Duration;

use clap::Subcommand;
use tenure::duration;

#[derive(Debug, Subcommand)]
pub(crate) enum Daemon {
    /// Run in the foreground, until Ctrl+C
    #[command(after_help = "Examples:
  tenure daemon run                     watch it work
  tenure daemon run --interval 5s

Every cycle it looks for .tenure/.exclusive-lock and .beads/.exclusive-lock. While somebody holds one
of them, nothing is done. Otherwise leases that are over are freed, and the tasks are synced. A lock
that appears or goes wakes it at once. There is one daemon for a project: a second one says which
runs (exit 6).")]
    Run(Run),
    /// Run in the background; returns when it really runs
    #[command(after_help = "Examples:
  tenure daemon start
  tenure daemon start --interval 30s --log /var/log/tenure.log
  tenure daemon start --foreground      the same as tenure daemon run

It survives the terminal it was started on. If one runs already, that is said (exit 6). To start it
by itself when tasks change: daemon.autostart (see tenure config show).")]
    Start(Start),
    /// Stop it, and wait until it is gone
    #[command(after_help = "Example: tenure daemon stop --wait 1m

It ends the step it is at first. Exit codes: 4 none runs, 1 it still runs when the wait is over.")]
    Stop {
        /// Wait at most this long for its end
        #[arg(long, value_name = "D", value_parser = duration::parse, default_value = "30s")]
        wait: Duration,
    },
    /// Whether it runs, what it did last, when it goes on, and for whom it stands aside
    #[command(after_help = "Examples:
  tenure daemon status
  tenure daemon status --json | jq .data.running

Exit code 0, whether it runs or not.")]
    Status,
    /// Show the end of its log
    #[command(after_help = "Examples:
  tenure daemon logs -n 100
  tenure daemon logs -f                 and what is added, until Ctrl+C
  tenure daemon logs -f --json          one object a line

Old logs (daemon.log.1 to .3) are read where needed, and a log that is begun anew is followed.")]
    Logs(Logs),
}

impl Daemon {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Run(_) => "run",
            Self::Start(_) => "start",
            Self::Stop { .. } => "stop",
            Self::Status => "status",
            Self::Logs(_) => "logs",
        }
    }
}

/// How it is to work.
#[derive(Debug, Clone, clap::Args)]
pub(crate) struct Work {
    /// How long to rest between two cycles, 1s to 1d [default: daemon.interval, 1m]
    #[arg(long, value_name = "D", value_parser = interval)]
    pub(crate) interval: Option<Duration>,
    /// The log [default: .tenure/daemon.log]
    #[arg(long, value_name = "FILE")]
    pub(crate) log: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) work: Work,
    /// For tenure daemon start: leave the terminal behind
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
    /// Go on with what is added
    #[arg(short, long)]
    pub(crate) follow: bool,
    /// The log [default: that of the daemon that runs, or of the last one]
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
