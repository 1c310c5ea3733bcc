//! The command line: commands, options and their help texts.

pub(crate) mod board;
pub(crate) mod daemon;
pub(crate) mod exclusive;
pub(crate) mod ledger;
pub(crate) mod sync;
pub(crate) mod tasks;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Parser, Subcommand};
use tenure::duration;
use tenure_core::Priority;

/// Decide who may work on what, right now.
#[derive(Debug, Parser)]
#[command(
    name = "tenure",
    version,
    about = "Decide who may work on what, right now: locks for agents, runners and CI jobs that share a project",
    after_help = "Examples:
  tenure init                               make this folder a project
  tenure run build -- make all              run a command while holding the key 'build'
  tenure run deploy --no-wait -- ./deploy   fail at once if it is held (exit 6)
  TOKEN=$(tenure acquire build --as me)     hold a key without a running command
  tenure fence build --token $TOKEN         check that the token is still valid (exit 7 if not)
  tenure tasks add 'Fix bug'                add a task
  tenure tasks work --as me -- ./agent.sh   run a command for each task until none is left
  tenure locks list                         list locks, their holders and waiters
  tenure locks history build                show what happened to a key

Exit codes: 0 done, 1 error, 2 usage, 3 no project, 4 not found, 5 not allowed, 6 locked, 7 lease lost,
8 sequence mismatch.",
    disable_help_subcommand = true,
    propagate_version = false,
    max_term_width = 100
)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Options that every command takes.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Global options")]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
pub(crate) struct Global {
    /// Run as if tenure was started in this folder
    #[arg(short = 'C', value_name = "DIR", global = true)]
    pub(crate) dir: Option<PathBuf>,
    /// Use this store instead of the project's own: sqlite:PATH, steroids:PATH, exclusive:DIR,
    /// mkdir:DIR or ledger:DIR [env: TENURE_STORE]
    #[arg(long, value_name = "URL", global = true)]
    pub(crate) store: Option<OsString>,
    /// The name of the holder. Commands with the same name act for the same holder [env: TENURE_HOLDER]
    #[arg(long = "as", value_name = "ID", global = true)]
    pub(crate) holder: Option<String>,
    /// Print JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Print only what a script needs: ids, tokens, errors
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
    /// Print without colour [env: NO_COLOR]
    #[arg(long, global = true)]
    pub(crate) no_color: bool,
    /// Do not start the daemon, even if daemon.autostart is on [env: TENURE_NO_DAEMON=1]
    #[arg(long, global = true)]
    pub(crate) no_daemon: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make this folder a project
    #[command(after_help = "\
Creates .tenure/ with a database and a .gitignore, and fetches the tasks that a git remote has (see tenure
sync). Running it again changes nothing. All worktrees of a git repository share one project: in a linked
worktree, .tenure/ is created in the main one; if the repository is bare, in the repository.")]
    Init {
        /// Make a project although this folder is in another one
        #[arg(long)]
        here: bool,
    },
    /// Run a command while holding a key
    #[command(after_help = "Examples:
  tenure run build -- make all
  tenure run deploy --wait 10m --priority 8 -- ./deploy.sh production
  tenure run gpu --as agent-7 -- sh -c 'echo $TENURE_KEY $TENURE_TOKEN $TENURE_HOLDER'

The command's input, output and exit code are passed through (128+n if signal
n ended it). If the lease is lost, tenure stops the command and exits with 7.
If the wait times out, it exits with 6. A waiter that is interrupted and asks
again with the same --as keeps its place in the queue for locking.queueGrace.
A signal that was ignored when tenure started (SIGHUP under nohup) is ignored
by tenure and the command.")]
    Run(Run),
    /// Hold a key without running a command; prints the token
    #[command(after_help = "Examples:
  TOKEN=$(tenure acquire build --as agent-1 --ttl 10m)
  tenure acquire build --pid $$             the lease ends with this shell
  tenure renew build --as agent-1           before the 10 minutes have passed
  tenure release build --as agent-1

Without --as, the holder is named after your user, host and shell.")]
    Acquire(Acquire),
    /// Extend a lease
    Renew(Renew),
    /// Release a key
    Release(Release),
    /// Check that a token is still valid: exit 0 if it is, 7 if not
    #[command(after_help = "Example, before a script pushes:
  tenure fence \"$TENURE_KEY\" --token \"$TENURE_TOKEN\" && git push")]
    Fence(Fence),
    /// List locks, show their history, and end expired and dead ones
    #[command(subcommand)]
    Locks(Locks),
    /// Add, list, start and finish tasks, or work through them
    #[command(subcommand)]
    Tasks(tasks::Tasks),
    /// Group tasks into sections; one runner works on a section at a time
    #[command(subcommand)]
    Sections(tasks::Sections),
    /// Hold the lock file that pauses background processes
    #[command(subcommand)]
    Exclusive(exclusive::Exclusive),
    /// Run the background process: it ends expired and dead leases and syncs tasks
    #[command(subcommand)]
    Daemon(daemon::Daemon),
    /// End expired and dead leases and share tasks through git: one cycle of the daemon
    #[command(after_help = sync::HELP)]
    Sync(sync::Sync),
    /// Work with tasks that are Markdown files: list, check, change one value
    #[command(subcommand, after_help = board::HELP)]
    Board(board::Board),
    /// Print functions for shell scripts: board_lock_acquire, board_lock_release
    #[command(after_help = "Example, in a script:
  eval \"$(tenure shell-lib)\"
  board_lock_trap .bilu/storage/lock
  board_lock_acquire .bilu/storage/lock 10 || exit 1
  ...
  board_lock_release .bilu/storage/lock

Or save it: tenure shell-lib > lock.sh. Where tenure is not installed, the functions create and remove
the lock folder themselves, and never take over a lock.")]
    ShellLib,
    /// Append events to a ledger and claim its nodes
    #[command(subcommand)]
    Ledger(ledger::Ledger),
    /// Show the settings in effect and where they come from
    #[command(subcommand)]
    Config(Config),
    /// Print shell completions
    #[command(
        after_help = "Example: tenure completions bash > ~/.local/share/bash-completion/completions/tenure"
    )]
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page
    #[command(
        after_help = "Example: tenure man | man -l -\n         tenure man run > tenure-run.1"
    )]
    Man {
        /// A command [default: all of them, in one page]
        command: Option<String>,
    },
}

impl Command {
    /// The names in the JSON envelope.
    pub(crate) fn names(&self) -> (&'static str, Option<&'static str>) {
        match self {
            Self::Init { .. } => ("init", None),
            Self::Run(_) => ("run", None),
            Self::Acquire(_) => ("acquire", None),
            Self::Renew(_) => ("renew", None),
            Self::Release(_) => ("release", None),
            Self::Fence(_) => ("fence", None),
            Self::Locks(locks) => ("locks", Some(locks.name())),
            Self::Tasks(tasks) => ("tasks", Some(tasks.name())),
            Self::Sections(sections) => ("sections", Some(sections.name())),
            Self::Exclusive(exclusive) => ("exclusive", Some(exclusive.name())),
            Self::Daemon(daemon) => ("daemon", Some(daemon.name())),
            Self::Sync(sync) => ("sync", sync.name()),
            Self::Board(board) => ("board", Some(board.name())),
            Self::ShellLib => ("shell-lib", None),
            Self::Ledger(ledger) => ("ledger", Some(ledger.name())),
            Self::Config(Config::Show) => ("config", Some("show")),
            Self::Config(Config::Path) => ("config", Some("path")),
            Self::Completions { .. } => ("completions", None),
            Self::Man { .. } => ("man", None),
        }
    }
}

/// How long to hold a key and to wait for it.
#[derive(Debug, clap::Args)]
pub(crate) struct WaitArgs {
    /// How long the lease lasts unless it is renewed
    #[arg(long, value_name = "D", value_parser = duration::parse, allow_hyphen_values = true)]
    pub(crate) ttl: Option<Duration>,
    /// Wait at most this long [default: locking.waitTimeout, 30m]
    #[arg(long, value_name = "D", value_parser = duration::parse, allow_hyphen_values = true, conflicts_with = "no_wait")]
    pub(crate) wait: Option<Duration>,
    /// Do not wait: if the key is held, exit with 6
    #[arg(long)]
    pub(crate) no_wait: bool,
}

/// The options of a request, for `run` and `acquire`.
#[derive(Debug, clap::Args)]
pub(crate) struct RequestArgs {
    #[command(flatten)]
    pub(crate) waits: WaitArgs,
    /// Priority, 0 (low) to 9 (high) [default: 5]. It rises by one for each minute of waiting
    #[arg(long, value_name = "N", value_parser = priority, allow_hyphen_values = true)]
    pub(crate) priority: Option<Priority>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Run {
    /// The key to hold: any name, or task:ID, section:ID
    #[arg(value_name = "KEY")]
    pub(crate) key: String,
    #[command(flatten)]
    pub(crate) request: RequestArgs,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD", action = ArgAction::Append)]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Acquire {
    /// The key to hold: any name, or task:ID, section:ID
    #[arg(value_name = "KEY")]
    pub(crate) key: String,
    #[command(flatten)]
    pub(crate) request: RequestArgs,
    /// Tie the lease to this process: it ends when the process does
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) pid: Option<u32>,
}

/// The lease to act on, for `renew` and `release`.
#[derive(Debug, clap::Args)]
pub(crate) struct LeaseArgs {
    /// The key
    #[arg(value_name = "KEY")]
    pub(crate) key: String,
    /// The lease's token; then --as is not needed
    #[arg(long, value_name = "N")]
    pub(crate) token: Option<u64>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Renew {
    #[command(flatten)]
    pub(crate) lease: LeaseArgs,
    /// How long from now [default: as long as it was granted for]
    #[arg(long, value_name = "D", value_parser = duration::parse, allow_hyphen_values = true)]
    pub(crate) ttl: Option<Duration>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Release {
    #[command(flatten)]
    pub(crate) lease: LeaseArgs,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Fence {
    /// The key
    #[arg(value_name = "KEY")]
    pub(crate) key: String,
    /// The lease's token
    #[arg(long, value_name = "N")]
    pub(crate) token: u64,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Locks {
    /// List locks: holder, time left, waiters
    List,
    /// Show one lock and its queue
    Show {
        /// A key, an id, or a unique prefix of one
        id: String,
    },
    /// Take a lock from its holder (needs --force, and is recorded)
    Release {
        /// A key, an id, or a unique prefix of one
        id: String,
        /// Confirm that the holder loses the lock
        #[arg(long)]
        force: bool,
        /// The reason, for the history
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// End expired and dead leases and record why
    Cleanup {
        /// Only print what would be ended
        #[arg(long)]
        dry_run: bool,
    },
    /// Show what happened to a key: granted, renewed, released, expired, dead, forced
    History {
        /// A key, an id, or a unique prefix of one [default: all keys]
        id: Option<String>,
        /// At most this many, the newest
        #[arg(long, value_name = "N", default_value_t = 50)]
        limit: usize,
        /// Only events of this period, for example 2h
        #[arg(long, value_name = "D", value_parser = duration::parse)]
        since: Option<Duration>,
    },
}

impl Locks {
    fn name(&self) -> &'static str {
        match self {
            Self::List => "list",
            Self::Show { .. } => "show",
            Self::Release { .. } => "release",
            Self::Cleanup { .. } => "cleanup",
            Self::History { .. } => "history",
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Config {
    /// Show every setting, its value and its source
    Show,
    /// Show where settings are read from
    Path,
}

fn priority(text: &str) -> Result<Priority, String> {
    text.parse()
        .ok()
        .and_then(Priority::new)
        .ok_or_else(|| "give a number from 0 (low) to 9 (high)".to_owned())
}
