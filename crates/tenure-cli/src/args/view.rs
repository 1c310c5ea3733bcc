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
