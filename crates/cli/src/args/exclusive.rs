//! The arguments of `tenure exclusive`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Subcommand};
use tenure::text::duration;

#[derive(Debug, Subcommand)]
pub(crate) enum Exclusive {
    /// Take the lock for the calling process and keep it after this command ends
    #[command(after_help = "Example, in a script:
  tenure exclusive acquire --holder my-tool --version 1.0.0 || exit
  bd create 'My issue' -p 1
  tenure exclusive release

The lock belongs to the calling shell (or to --pid). It ends when that process
ends, when it is released, or when the file is removed. Of several callers at
once exactly one gets the lock; the others are told the holder (exit 6).")]
    Acquire(Acquire),
    /// Release the lock
    #[command(after_help = "Example: tenure exclusive release")]
    Release {
        /// The holder, if it is not the calling process
        #[arg(long, value_name = "NAME")]
        holder: Option<String>,
        #[command(flatten)]
        place: Place,
    },
    /// Show whether the lock is held, and by which holder
    #[command(after_help = "Example: tenure exclusive status

Exit codes: 0 free or stale, 6 held, 1 malformed.")]
    Status {
        #[command(flatten)]
        place: Place,
    },
    /// Run a command while holding the lock
    #[command(
        after_help = "Example: tenure exclusive run --holder nightly -- ./import.sh

If another program removes the lock file while the command runs, tenure puts it
back at once. If another program has written its own lock there, tenure stops
the command and exits with 7."
    )]
    Run(Run),
}

/// The folder of the lock.
#[derive(Debug, clap::Args)]
pub(crate) struct Place {
    /// The folder of the lock file [default: .beads if the project has it, otherwise .tenure]
    #[arg(long = "dir", value_name = "DIR", id = "folder")]
    pub(crate) folder: Option<PathBuf>,
}

/// The holder that takes the lock.
#[derive(Debug, clap::Args)]
pub(crate) struct Who {
    /// The name of the tool that holds it, like --as
    #[arg(long = "holder", value_name = "NAME")]
    pub(crate) tool: Option<String>,
    /// The tool's version
    #[arg(long, value_name = "V")]
    pub(crate) version: Option<String>,
    #[command(flatten)]
    pub(crate) place: Place,
    /// Wait at most this long [default: not at all]
    #[arg(long, value_name = "D", value_parser = duration::parse, allow_hyphen_values = true)]
    pub(crate) wait: Option<Duration>,
    /// Do not wait, which is the default
    #[arg(short = 'n', long, conflicts_with = "wait")]
    pub(crate) no_wait: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Acquire {
    #[command(flatten)]
    pub(crate) who: Who,
    /// The process that holds the lock [default: the calling process]
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) pid: Option<u32>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) who: Who,
    #[command(flatten)]
    pub(crate) running: super::RunArgs,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD", action = ArgAction::Append)]
    pub(crate) command: Vec<OsString>,
}
