//! The commands for reservations of paths.

use std::ffi::OsString;
use std::time::Duration;

use tenure::store::Priority;
use tenure::text::duration;

use super::{RequestArgs, WaitArgs, priority, seconds};

#[derive(Debug, clap::Args)]
pub(crate) struct Reserve {
    /// Files, folders or patterns: * ? [a-z] {a,b}, and ** for any folders
    #[arg(value_name = "PATTERN")]
    pub(crate) patterns: Vec<OsString>,
    /// How long the reservation lasts unless it is extended [default: locking.taskTimeout, 60m]
    #[arg(long = "for", value_name = "D", value_parser = duration::parse, allow_hyphen_values = true, alias = "ttl")]
    lasts: Option<Duration>,
    /// What it is for: others see it
    #[arg(long, value_name = "TEXT", conflicts_with = "extend")]
    pub(crate) why: Option<String>,
    /// Only read the files: others may read them, too, and nobody may change them
    #[arg(short = 's', long, conflicts_with = "extend")]
    pub(crate) shared: bool,
    /// Tie the reservation to this process: it ends when the process does
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..), conflicts_with = "extend")]
    pub(crate) pid: Option<u32>,
    /// Wait at most this long [default: locking.waitTimeout, 30m]
    #[arg(long, value_name = "D", value_parser = duration::parse, allow_hyphen_values = true, conflicts_with_all = ["no_wait", "extend"])]
    wait: Option<Duration>,
    /// Do not wait: if a path is reserved, exit with 6
    #[arg(short = 'n', long, conflicts_with = "extend")]
    no_wait: bool,
    /// Wait at most so many seconds
    #[arg(short = 'w', value_name = "SECONDS", value_parser = seconds, conflicts_with_all = ["no_wait", "wait", "extend"])]
    wait_seconds: Option<Duration>,
    /// Priority, 0 (low) to 9 (high) [default: 5]. It rises by one for each minute of waiting
    #[arg(long, value_name = "N", value_parser = priority, allow_hyphen_values = true, conflicts_with = "extend")]
    priority: Option<Priority>,
    /// Restart the timer for these patterns, or for all that you have reserved
    #[arg(long)]
    pub(crate) extend: bool,
}

impl Reserve {
    /// How long it lasts.
    pub(crate) fn lasts(&self) -> Option<Duration> {
        self.lasts
    }

    /// The same as the options of `acquire`.
    pub(crate) fn request(&self) -> RequestArgs {
        RequestArgs {
            waits: WaitArgs {
                ttl: self.lasts,
                wait: self.wait,
                no_wait: self.no_wait,
                wait_seconds: self.wait_seconds,
            },
            priority: self.priority,
            exclusive: false,
            shared: false,
            slots: None,
        }
    }
}

pub(crate) const RESERVE: &str = "Examples:
  tenure reserve 'src/api/**' Cargo.toml --as agent-1 --for 30m --why 'routes'
  tenure reserve docs --shared --as agent-2    nobody changes docs meanwhile
  tenure reserve src/lib.rs --no-wait          exit 6 if another holder has it
  tenure reserve --extend --as agent-1         another 30 minutes
  tenure unreserve --as agent-1                give everything back

All patterns are granted together, or none. Two reservations conflict if some
path matches both, unless both are --shared; what you have reserved yourself is
never in your way. A folder covers everything in it. Patterns begin at the
current folder, and are the same in every worktree of the repository.

Prints the token. Exit codes: 6 another holder has a path, 5 not yours.";

#[derive(Debug, clap::Args)]
pub(crate) struct Unreserve {
    /// The patterns, as they were reserved [default: all that you have reserved]
    #[arg(value_name = "PATTERN")]
    pub(crate) patterns: Vec<OsString>,
}

pub(crate) const UNRESERVE: &str = "Examples:
  tenure unreserve Cargo.toml --as agent-1
  tenure unreserve --as agent-1             everything

Give a file back as soon as it is committed: others may wait for it.";

pub(crate) const RESERVATIONS: &str = "Examples:
  tenure reservations
  tenure reservations --json

Shows who has reserved what, until when and what for, and who waits.";

#[derive(Debug, clap::Args)]
pub(crate) struct Check {
    /// Files that you want to write
    #[arg(value_name = "PATH", required_unless_present = "stdin")]
    pub(crate) paths: Vec<OsString>,
    /// Read the paths from standard input, one in each line
    #[arg(long)]
    pub(crate) stdin: bool,
    /// The paths on standard input end with NUL instead of a newline
    #[arg(short = 'z', requires = "stdin")]
    pub(crate) nul: bool,
}

pub(crate) const CHECK: &str = "Examples:
  tenure check src/api/mod.rs --as agent-1
  git diff --name-only -z | tenure check --stdin -z

May I write these files? Exit 0: no other holder has reserved them. Exit 6: one
has; each is printed with its holder, until when and what for. Nothing is
written, and no lock is taken.";
