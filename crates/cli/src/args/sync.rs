//! The arguments of `tenure sync`.

use clap::Subcommand;

pub(crate) const HELP: &str = "Examples:
  tenure sync
  tenure sync status                    what is not shared yet
  tenure sync log                       who changed what, and when
  tenure sync restore 3f2a91c           set tasks back to a commit of the log

Shares the project's tasks, sections and dependencies with other clones: on a
ref of their own, refs/tenure/tasks, that git fetches and pushes but never
checks out. Your files, your index, your branches and your commits are not
touched. If two clones changed the same field, the later change wins and the
other one stays in the task's history (tenure tasks show). Locks are never
shared. It is one cycle of tenure daemon.

Exit codes: 6 another program holds the exclusive lock, 1 the sync failed or was
put off (the message says why; nothing is lost). Settings: sync.enabled,
sync.remote, sync.ref.";

#[derive(Debug, clap::Args)]
pub(crate) struct Sync {
    #[command(subcommand)]
    pub(crate) command: Option<SyncCommand>,
}

#[derive(Debug, Subcommand)]
pub(crate) enum SyncCommand {
    /// Show what is not shared yet, and how the last sync went
    #[command(after_help = "Example: tenure sync status")]
    Status,
    /// Show who changed which task, and when
    #[command(after_help = "Example: tenure sync log -n 50")]
    Log {
        /// Show at most this many commits; 0 for all
        #[arg(short = 'n', long, value_name = "N", default_value = "20")]
        limit: usize,
    },
    /// Set tasks back to a commit of the log; newer tasks stay
    #[command(after_help = "Example: tenure sync restore 3f2a91c")]
    Restore {
        /// A commit of the log
        commit: String,
        /// Restore without a question
        #[arg(long)]
        yes: bool,
    },
}
