//! What can be typed.

pub(crate) mod exclusive;
pub(crate) mod ledger;
pub(crate) mod tasks;

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Parser, Subcommand};
use tenure::core::Priority;
use tenure::duration;

/// Decide who may work on what, right now.
#[derive(Debug, Parser)]
#[command(
    name = "tenure",
    version,
    about = "Decide who may work on what, right now: locks for agents, runners and CI jobs that share one project",
    after_help = "Examples:
  tenure init                               make this folder a project
  tenure run build -- make all              run a command while holding the key 'build'
  tenure run deploy --no-wait -- ./deploy   or say at once who has it (exit 6)
  TOKEN=$(tenure acquire build --as me)     hold a key without a running command
  tenure fence build --token $TOKEN         is it still mine? (exit 7 if not)
  tenure tasks add 'Fix bug'                something to do
  tenure tasks work --as me -- ./agent.sh   do all there is to do, one after another
  tenure locks list                         who holds what, who waits
  tenure locks history build                and how it came to that

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

/// What every command takes.
#[derive(Debug, Clone, clap::Args)]
#[command(next_help_heading = "Everywhere")]
pub(crate) struct Global {
    /// Work as if started in this folder
    #[arg(short = 'C', value_name = "DIR", global = true)]
    pub(crate) dir: Option<PathBuf>,
    /// The store, instead of the project's own: sqlite:PATH, steroids:PATH, exclusive:DIR or ledger:DIR
    #[arg(long, value_name = "URL", global = true)]
    pub(crate) store: Option<String>,
    /// Who is asking. The same name is taken for the same holder [env: TENURE_HOLDER]
    #[arg(long = "as", value_name = "ID", global = true)]
    pub(crate) holder: Option<String>,
    /// Answer in JSON
    #[arg(long, global = true)]
    pub(crate) json: bool,
    /// Say no more than a script needs: ids, tokens, errors
    #[arg(short, long, global = true)]
    pub(crate) quiet: bool,
    /// No colour (NO_COLOR does the same)
    #[arg(long, global = true)]
    pub(crate) no_color: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Make this folder a project
    #[command(
        after_help = "Makes .tenure/ with its database and a .gitignore. Running it again changes nothing."
    )]
    Init,
    /// Run a command while holding a key
    #[command(after_help = "Examples:
  tenure run build -- make all
  tenure run deploy --wait 10m --priority 8 -- ./deploy.sh production
  tenure run gpu --as agent-7 -- sh -c 'echo $TENURE_KEY $TENURE_TOKEN $TENURE_HOLDER'

The command's input, output and exit code are passed through (128+n if signal n ended it).
If the lease is lost, the command is stopped and tenure exits with 7. If the wait runs out: 6.
A waiter that is cut off and asks again with the same --as keeps its place for a while.")]
    Run(Run),
    /// Hold a key without a running command; prints the token
    #[command(after_help = "Examples:
  TOKEN=$(tenure acquire build --as agent-1 --ttl 10m)
  tenure acquire build --pid $$             the lease ends with this shell
  tenure renew build --as agent-1           before the 10 minutes are over
  tenure release build --as agent-1

Without --as, the name is made up from your user, host and shell, and nobody else shares it.")]
    Acquire(Acquire),
    /// Move the end of a lease
    Renew(Renew),
    /// Give a key back
    Release(Release),
    /// Ask whether a grant is still the newest and stands: exit 0 if so, 7 if not
    #[command(after_help = "Example, as a script's last step before it pushes:
  tenure fence \"$TENURE_KEY\" --token \"$TENURE_TOKEN\" && git push")]
    Fence(Fence),
    /// Look at locks and clean up after the dead
    #[command(subcommand)]
    Locks(Locks),
    /// What there is to do: add, list, begin, end; or be a runner
    #[command(subcommand)]
    Tasks(tasks::Tasks),
    /// Parts of the project that one runner works on at a time
    #[command(subcommand)]
    Sections(tasks::Sections),
    /// The lock file that makes a background process stand aside
    #[command(subcommand)]
    Exclusive(exclusive::Exclusive),
    /// The append-only log of events, and claims on its nodes
    #[command(subcommand)]
    Ledger(ledger::Ledger),
    /// Show the settings in effect and where they come from
    #[command(subcommand)]
    Config(Config),
    /// Print completions for a shell
    #[command(
        after_help = "Example: tenure completions bash > ~/.local/share/bash-completion/completions/tenure"
    )]
    Completions {
        /// For which shell
        shell: clap_complete::Shell,
    },
    /// Print the manual page
    #[command(
        after_help = "Example: tenure man | man -l -\n         tenure man run > tenure-run.1"
    )]
    Man {
        /// Of one command only
        command: Option<String>,
    },
}

impl Command {
    /// The words for the JSON envelope.
    pub(crate) fn names(&self) -> (&'static str, Option<&'static str>) {
        match self {
            Self::Init => ("init", None),
            Self::Run(_) => ("run", None),
            Self::Acquire(_) => ("acquire", None),
            Self::Renew(_) => ("renew", None),
            Self::Release(_) => ("release", None),
            Self::Fence(_) => ("fence", None),
            Self::Locks(locks) => ("locks", Some(locks.name())),
            Self::Tasks(tasks) => ("tasks", Some(tasks.name())),
            Self::Sections(sections) => ("sections", Some(sections.name())),
            Self::Exclusive(exclusive) => ("exclusive", Some(exclusive.name())),
            Self::Ledger(ledger) => ("ledger", Some(ledger.name())),
            Self::Config(Config::Show) => ("config", Some("show")),
            Self::Config(Config::Path) => ("config", Some("path")),
            Self::Completions { .. } => ("completions", None),
            Self::Man { .. } => ("man", None),
        }
    }
}

/// How long to hold and to wait.
#[derive(Debug, clap::Args)]
pub(crate) struct Waits {
    /// How long the lease lasts unless it is renewed
    #[arg(long, value_name = "D", value_parser = duration::parse, allow_hyphen_values = true)]
    pub(crate) ttl: Option<Duration>,
    /// Wait at most this long [default: locking.waitTimeout, 30m]
    #[arg(long, value_name = "D", value_parser = duration::parse, allow_hyphen_values = true, conflicts_with = "no_wait")]
    pub(crate) wait: Option<Duration>,
    /// Do not wait: say who has it and exit with 6
    #[arg(long)]
    pub(crate) no_wait: bool,
}

/// How to ask, the same for `run` and `acquire`.
#[derive(Debug, clap::Args)]
pub(crate) struct Asking {
    #[command(flatten)]
    pub(crate) waits: Waits,
    /// 0 low to 9 high [default: 5]. A minute of waiting is worth one
    #[arg(long, value_name = "N", value_parser = priority, allow_hyphen_values = true)]
    pub(crate) priority: Option<Priority>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Run {
    /// What to hold: any name, or task:ID, section:ID
    #[arg(value_name = "KEY")]
    pub(crate) key: String,
    #[command(flatten)]
    pub(crate) asking: Asking,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD", action = ArgAction::Append)]
    pub(crate) command: Vec<OsString>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Acquire {
    /// What to hold: any name, or task:ID, section:ID
    #[arg(value_name = "KEY")]
    pub(crate) key: String,
    #[command(flatten)]
    pub(crate) asking: Asking,
    /// Tie the lease to this process: it ends when the process does
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) pid: Option<u32>,
}

/// Which grant is meant, the same for `renew` and `release`.
#[derive(Debug, clap::Args)]
pub(crate) struct Which {
    /// What is held
    #[arg(value_name = "KEY")]
    pub(crate) key: String,
    /// The grant's token: proves it without a name
    #[arg(long, value_name = "N")]
    pub(crate) token: Option<u64>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Renew {
    #[command(flatten)]
    pub(crate) which: Which,
    /// How long from now [default: as long as it was granted for]
    #[arg(long, value_name = "D", value_parser = duration::parse, allow_hyphen_values = true)]
    pub(crate) ttl: Option<Duration>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Release {
    #[command(flatten)]
    pub(crate) which: Which,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Fence {
    /// What is held
    #[arg(value_name = "KEY")]
    pub(crate) key: String,
    /// The grant's token
    #[arg(long, value_name = "N")]
    pub(crate) token: u64,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Locks {
    /// Who holds what, how long still, who waits
    List,
    /// All about one lock and its queue
    Show {
        /// A key, an id, or a unique beginning of one
        id: String,
    },
    /// Take a lock away from its holder (needs --force, and is recorded)
    Release {
        /// A key, an id, or a unique beginning of one
        id: String,
        /// Really do it
        #[arg(long)]
        force: bool,
        /// Why, for the history
        #[arg(long, value_name = "TEXT")]
        reason: Option<String>,
    },
    /// Free what has expired or is proven dead, and say why
    Cleanup {
        /// Only say what would be freed
        #[arg(long)]
        dry_run: bool,
    },
    /// The story of a key: granted, renewed, released, expired, dead, forced
    History {
        /// A key, an id, or a unique beginning of one [default: all keys]
        id: Option<String>,
        /// The newest so many
        #[arg(long, value_name = "N", default_value_t = 50)]
        limit: usize,
        /// Not older than this, for example 2h
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
    /// Every setting, its value and where that comes from
    Show,
    /// Where settings are looked for
    Path,
}

fn priority(text: &str) -> Result<Priority, String> {
    text.parse()
        .ok()
        .and_then(Priority::new)
        .ok_or_else(|| "give a number from 0 (low) to 9 (high)".to_owned())
}
