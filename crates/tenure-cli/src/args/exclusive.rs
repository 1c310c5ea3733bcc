//! What can be typed about the exclusive lock.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Subcommand};
use tenure::duration;

#[derive(Debug, Subcommand)]
pub(crate) enum Exclusive {
    /// Take the lock for the process that called this, and leave it standing
    #[command(after_help = "Example, in a script:
  tenure exclusive acquire --holder my-tool --version 1.0.0 || exit
  bd create 'My issue' -p 1
  tenure exclusive release

The lock is this shell's (or --pid's): it ends with that process, by release, or when somebody removes
the file. Of many who ask at once, exactly one gets it; the others hear who has it (exit 6).")]
    Acquire(Acquire),
    /// Give the lock back
    Release {
        /// Who holds it, if it is not the process that called this
        #[arg(long, value_name = "NAME")]
        holder: Option<String>,
        #[command(flatten)]
        place: Place,
    },
    /// Whether the lock is held, by whom, and why: exit 0 free or stale, 6 held, 1 malformed
    Status {
        #[command(flatten)]
        place: Place,
    },
    /// Run a command while holding the lock
    #[command(
        after_help = "Example: tenure exclusive run --holder nightly -- ./import.sh

If somebody removes the lock file while the command runs, it is put back at once if its place is still
free; otherwise the command is stopped and tenure exits with 7."
    )]
    Run(Run),
}

impl Exclusive {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Acquire(_) => "acquire",
            Self::Release { .. } => "release",
            Self::Status { .. } => "status",
            Self::Run(_) => "run",
        }
    }
}

/// Where the lock is.
#[derive(Debug, clap::Args)]
pub(crate) struct Place {
    /// The folder of the lock file [default: .tenure, or .beads where only that exists]
    #[arg(long = "dir", value_name = "DIR", id = "folder")]
    pub(crate) folder: Option<PathBuf>,
}

/// Who takes it.
#[derive(Debug, clap::Args)]
pub(crate) struct Who {
    /// The name of the tool that holds it
    #[arg(long, value_name = "NAME")]
    pub(crate) holder: String,
    /// The tool's version
    #[arg(long, value_name = "V")]
    pub(crate) version: Option<String>,
    #[command(flatten)]
    pub(crate) place: Place,
    /// Wait at most this long [default: not at all]
    #[arg(long, value_name = "D", value_parser = duration::parse, allow_hyphen_values = true)]
    pub(crate) wait: Option<Duration>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Acquire {
    #[command(flatten)]
    pub(crate) who: Who,
    /// The process that holds it [default: the one that called this]
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) pid: Option<u32>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) who: Who,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD", action = ArgAction::Append)]
    pub(crate) command: Vec<OsString>,
}
