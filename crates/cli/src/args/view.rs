//! The commands that look at every lock in a project.

#[derive(Debug, clap::Args)]
pub(crate) struct Doctor {
    /// End what is proven to have ended: expired leases and those of dead holders
    #[arg(long)]
    pub(crate) fix: bool,
    /// With --fix: only print what it would do
    #[arg(long, requires = "fix")]
    pub(crate) dry_run: bool,
}

pub(crate) const DOCTOR: &str = "Examples:
  tenure doctor
  tenure doctor --fix --dry-run
  tenure doctor --fix

Each problem is shown with what was seen, what it means, and the command that
puts it right. --fix runs the commands that are safe: each store ends what it
proves to have ended, and records that. Everything else is left to you, and
nothing is changed without --fix.

Exit codes: 0 no problem, 1 problems (with --fix: problems that are left).";

#[derive(Debug, clap::Args)]
pub(crate) struct Why {
    /// A key, a task (its id or title), a file, a folder or a pattern, or the path of a lock file
    #[arg(value_name = "KEY|TASK|PATH")]
    pub(crate) what: String,
}

pub(crate) const WHY: &str = "Examples:
  tenure why build
  tenure why 'Fix bug'
  tenure why .git/index.lock

Shows who holds it, since when, what that holder waits for in turn, when it ends
by itself, who waits before you, and what you can do, as commands to copy.";

pub(crate) const STATUS: &str = "Example: tenure status

The same as tenure alone, in a project: what is held, the leases with the most
waiters first; the stores, the daemon, what you hold, and the first problems
(see tenure doctor).";

#[derive(Debug, clap::Args)]
pub(crate) struct Timeline {
    /// Only these keys
    #[arg(value_name = "KEY")]
    pub(crate) keys: Vec<String>,
    /// Only what was held in this period
    #[arg(long, value_name = "D", value_parser = tenure::text::duration::parse, default_value = "24h")]
    pub(crate) since: std::time::Duration,
    /// Write a picture instead, which any browser shows
    #[arg(long, value_name = "FILE")]
    pub(crate) svg: Option<std::path::PathBuf>,
}

pub(crate) const TIMELINE: &str = "Examples:
  tenure timeline
  tenure timeline build deploy --since 2h
  tenure timeline --svg timeline.svg

Made from the history of every store of the project: each grant with the wait
before it, takeovers, and leases that were lost. Below them are the waits that
go on now. Abandoned waits are not recorded.";

#[derive(Debug, clap::Args)]
pub(crate) struct Watch {
    /// Print lines, from after this event on: its number in the project's store, or STORE#NUMBER
    /// (0: all that is kept)
    #[arg(long, value_name = "EVENT")]
    pub(crate) since: Vec<String>,
}

pub(crate) const WATCH: &str = "Examples:
  tenure watch                              live; ? lists the keys
  tenure watch | grep deploy                changes as lines
  tenure watch --json | jq -c .             the same for programs
  tenure watch --json --since 1234          go on where a script stopped

On a terminal, tenure watch shows holders, queues, reservations, tasks, recent
history and a timeline, and changes them as they change. r releases a key of
your own, f takes one by force after a question.

Elsewhere it prints each change as a line. Every event of a history is printed
once, in order. --since goes on after an event; if events after it were pruned,
a line says so. Give --since once for each store that you follow.";
