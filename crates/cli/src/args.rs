//! The command line: commands, options and their help texts.

pub(crate) mod agents;
pub(crate) mod allow;
pub(crate) mod board;
pub(crate) mod daemon;
pub(crate) mod exclusive;
pub(crate) mod files;
pub(crate) mod guard;
pub(crate) mod habits;
pub(crate) mod ledger;
mod parse;
pub(crate) mod paths;
pub(crate) mod sync;
pub(crate) mod tasks;
pub(crate) mod typed;
pub(crate) mod view;

use std::ffi::OsString;
use std::num::NonZeroU32;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Parser, Subcommand};
pub(crate) use parse::parse;
use tenure::Mode;
use tenure::store::Priority;
use tenure::text::duration;

/// Decide who may work on what, right now.
#[derive(Debug, Parser)]
#[command(
    name = "tenure",
    version,
    about = "Decide who may work on what, right now: locks and tasks for agents, runners and\nCI jobs that share a project",
    after_help = "Examples:
  tenure run build -- make all             run a command while holding a key
  tenure run deploy --no-wait -- ./deploy  fail at once if it is held (exit 6)
  TOKEN=$(tenure acquire build --as me)    hold a key without a command
  tenure fence build --token $TOKEN        check the token (exit 7: lost)
  tenure tasks add 'Fix bug'               add a task
  tenure tasks work --as me -- ./agent.sh  run a command for each task
  tenure locks                             list locks, holders and waiters
  tenure locks history build               show what happened to a key

Exit codes: 0 done, 1 error, 2 usage, 3 no project, 4 not found, 5 not allowed,
6 locked, 7 lease lost, 8 sequence mismatch. More on a command: tenure help run
More commands, for scripts and settings: tenure help --all",
    disable_help_subcommand = true,
    propagate_version = false,
    max_term_width = 80
)]
pub(crate) struct Args {
    #[command(flatten)]
    pub(crate) global: Global,
    #[command(subcommand)]
    pub(crate) command: Command,
    /// What the JSON envelope calls the command, and the one below it.
    #[arg(skip)]
    pub(crate) names: (String, Option<String>),
}

/// Options that every command takes.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "Global options")]
#[expect(clippy::struct_excessive_bools, reason = "each is a flag")]
pub(crate) struct Global {
    /// Run as if tenure was started in this folder
    #[arg(short = 'C', value_name = "DIR", global = true)]
    pub(crate) dir: Option<PathBuf>,
    /// Use this store instead of the project's own: sqlite:PATH, steroids:PATH, exclusive:DIR,
    /// mkdir:DIR, ledger:DIR or etcd://HOST:PORT/PREFIX [env: TENURE_STORE]
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
    #[command(after_help = "Example: tenure init

Creates .tenure/ and a database, and fetches the tasks that a git remote has
(see tenure sync). Running it again changes nothing.

In a git repository the database is in .git/tenure/, where git clean can't
delete it, and all worktrees share one project: in a linked worktree, .tenure/
is created in the main one; if the repository is bare, in the repository.")]
    Init {
        /// Make a project although this folder is in another one
        #[arg(long)]
        here: bool,
    },
    /// Run a command while holding a key
    #[command(
        after_help = "Examples:
  tenure run build -- make all
  tenure run deploy --wait 10m --priority 8 -- ./deploy.sh production
  tenure run env -- sh -c 'echo $TENURE_KEY $TENURE_TOKEN $TENURE_HOLDER'
  tenure run db --shared -- ./report.sh     any number of these, or one without
  tenure run gpu --slots 4 -- sh -c 'CUDA_VISIBLE_DEVICES=$TENURE_SLOT ./train'
  tenure run db cache web -- ./migrate.sh   all three together, or wait for them

Several keys are granted in one step. Until then the command waits and holds
none of them, so two commands never wait for each other's keys.

The key is released when the command exits; processes that it left in the
background do not keep it, unless --all-processes is given.

Exit codes: the command's own, or 128+n if signal n ended it. From tenure: 6
(-E) the key is held, 7 (--lost-exit-code) the lease was lost and the command
was stopped, 126 the command can't be executed, 127 it does not exist, and 1,
2, 3 as everywhere.

With --json, tenure reports what it does as JSON lines on standard error
(waiting, granted, lost, released); standard output is the command's.

A waiter that is interrupted and asks again with the same --as keeps its place
in the queue for locking.queueGrace. A signal that was ignored when tenure
started (SIGHUP under nohup) is ignored by tenure and the command.",
        override_usage = "tenure run [OPTIONS] <KEY>... -- <CMD>...\n       tenure run [OPTIONS] <KEY>... -c <STRING>"
    )]
    Run(Run),
    /// Hold a key without running a command; prints the token
    #[command(after_help = "Examples:
  TOKEN=$(tenure acquire build --as agent-1 --ttl 10m)
  tenure acquire build --pid $$             the lease ends with this shell
  tenure renew build --as agent-1           before the 10 minutes have passed
  tenure release build --as agent-1
  tenure acquire db --shared --as agent-1   together with other shared holders
  tenure acquire db --as agent-1            wait for the others: agent-1 alone
  tenure acquire db cache --as agent-1      both together; prints two tokens

Without --as, the holder is named after your user, host and shell.")]
    Acquire(Acquire),
    /// Extend a lease
    #[command(after_help = "Examples:
  tenure renew build --as agent-1           for as long as it was granted for
  tenure renew build --token 7 --ttl 30m

If the lease was lost, tenure exits with 7.")]
    Renew(Renew),
    /// Release a key
    #[command(after_help = "Examples:
  tenure release build --as agent-1
  tenure release build --token 7            needs no name
  tenure release --all --as agent-1

To take a key from another holder: tenure force KEY")]
    Release(Release),
    /// Ask the holder of a key, or of a reserved path, to release it
    #[command(after_help = "Examples:
  tenure ask build --note 'need it for the hotfix'
  tenure ask src/api/mod.rs --as agent-2

Nothing is taken from the holder. A command under tenure run finds the request
on standard error and in the file that TENURE_ASKED names; every holder finds it
in the answer of tenure renew, and everyone in tenure locks show. To have the
key once it is released, wait for it: tenure run, tenure acquire.")]
    Ask(Request),
    /// Take a key from its holder, which is recorded
    #[command(after_help = "Examples:
  tenure force build --reason 'agent-1 hangs'
  tenure force gpu --holder agent-1         only this holder's lease

The holder is told that its lease is lost; a command under tenure run is
stopped. Ask first if you can wait: tenure ask. What keeps the key from you:
tenure why.")]
    Force(Force),
    /// Check that a token is still valid: exit 0 if it is, 7 if not
    #[command(after_help = "Example, before a script pushes:
  tenure fence \"$TENURE_KEY\" --token \"$TENURE_TOKEN\" && git push")]
    Fence(Fence),
    /// Reserve files and folders
    #[command(after_help = paths::RESERVE)]
    Reserve(paths::Reserve),
    /// Give reserved files and folders back
    #[command(after_help = paths::UNRESERVE)]
    Unreserve(paths::Unreserve),
    /// Show who has reserved which files
    #[command(after_help = paths::RESERVATIONS)]
    Reservations,
    /// Ask whether files may be written; changes nothing
    #[command(after_help = paths::CHECK)]
    Check(paths::Check),
    /// List locks, show their history, end expired and dead ones
    #[command(
        subcommand,
        after_help = "Examples:
  tenure locks                              the same as tenure locks list
  tenure locks history build --since 2h
  tenure locks cleanup --dry-run"
    )]
    Locks(Locks),
    /// Show the project at a glance: what is held, and what is wrong
    #[command(after_help = view::STATUS)]
    Status,
    /// Show what keeps a key from you, and what you can do
    #[command(after_help = view::WHY)]
    Why(view::Why),
    /// Show who held what when
    #[command(after_help = view::TIMELINE)]
    Timeline(view::Timeline),
    /// Watch holders, queues and tasks change, live or as lines
    #[command(after_help = view::WATCH)]
    Watch(view::Watch),
    /// Find what is wrong with locks, and fix what is safe
    #[command(after_help = view::DOCTOR)]
    Doctor(view::Doctor),
    /// List and restore uncommitted work that was kept
    #[command(subcommand, after_help = files::HELP)]
    Files(files::Files),
    /// Refuse commits that change what other holders have reserved
    #[command(subcommand, after_help = guard::HELP)]
    Guard(guard::GuardCommand),
    /// Add, list, start and finish tasks, or work through them
    #[command(
        subcommand,
        after_help = "Examples:
  tenure tasks                              the same as tenure tasks list
  tenure tasks add 'Fix bug' --section Backend
  tenure tasks next --as agent-1
  tenure tasks work --as agent-1 -- ./agent.sh"
    )]
    Tasks(tasks::Tasks),
    /// Group tasks; one runner works on a section at a time
    #[command(
        subcommand,
        after_help = "Examples:
  tenure sections add Backend
  tenure sections                           the same as tenure sections list
  tenure sections rm Backend --move-to Server"
    )]
    Sections(tasks::Sections),
    /// Pause bd's daemon while you work
    #[command(
        subcommand,
        after_help = "Examples:
  tenure exclusive run --holder nightly -- ./import.sh
  tenure exclusive status"
    )]
    Exclusive(exclusive::Exclusive),
    /// Run the background process that ends leases and syncs tasks
    #[command(
        subcommand,
        after_help = "Examples:
  tenure daemon start
  tenure daemon status && echo 'it runs'"
    )]
    Daemon(daemon::Daemon),
    /// Share tasks through git, and end expired and dead leases
    #[command(after_help = sync::HELP)]
    Sync(sync::Sync),
    /// Work with tasks that are Markdown files (bilu)
    #[command(subcommand, after_help = board::HELP)]
    Board(board::Board),
    /// Print lock functions for shell scripts
    #[command(after_help = "Example, in a script:
  eval \"$(tenure shell-lib)\"
  board_lock_trap .bilu/storage/lock
  board_lock_acquire .bilu/storage/lock 10 || exit 1
  ...
  board_lock_release .bilu/storage/lock

Or save it: tenure shell-lib > lock.sh. Where tenure is not installed, the
functions create and remove the lock folder themselves, and never take over a
lock.")]
    ShellLib,
    /// Append events to a ledger and claim its nodes (af)
    #[command(
        subcommand,
        after_help = "Examples:
  tenure ledger append '{\"type\":\"note\",\"text\":\"hello\"}'
  tenure ledger claim 1.2.3 --as agent-1
  tenure ledger verify"
    )]
    Ledger(ledger::Ledger),
    /// Examine the store, and copy its tasks to another one
    #[command(
        subcommand,
        after_help = "Examples:
  tenure store check
  tenure store check etcd://10.0.0.1:2379,10.0.0.2:2379/team
  tenure store copy sqlite:.git/tenure/tenure.db etcd://10.0.0.1:2379/team"
    )]
    Store(Store),
    /// Reserve files for a coding agent, as its hook
    #[command(after_help = agents::HOOK)]
    Hook(agents::Hook),
    /// Allow a command of a coding agent that was refused, once
    #[command(after_help = allow::ALLOW)]
    Allow(allow::Allow),
    /// Configure a coding agent so that it uses tenure
    #[command(after_help = agents::SETUP)]
    Setup(agents::Setup),
    /// Show the settings in effect and where they come from
    #[command(
        subcommand,
        after_help = "Examples:
  tenure config show
  TENURE_LOCKING_WAIT_TIMEOUT=5m tenure config show"
    )]
    Config(Config),
    /// Print shell completions
    #[command(after_help = "Examples:
  . <(tenure completions bash)              for this shell
  tenure completions zsh > ~/.zfunc/_tenure
  tenure completions fish > ~/.config/fish/completions/tenure.fish

They complete commands, options, keys, tasks, sections, statuses and holders;
after -- the commands of the system.")]
    Completions {
        /// The shell
        shell: crate::commands::completions::Shell,
    },
    /// Print the JSON Schema of what every command prints with --json
    #[command(
        hide = true,
        after_help = "Example: tenure schema | jq '.[\"$defs\"].GrantJson'"
    )]
    Schema,
    /// Print what may come next, for the scripts of `completions`
    #[command(hide = true)]
    Complete {
        /// The words typed so far; the last one is to be completed
        #[arg(last = true)]
        words: Vec<OsString>,
    },
    /// Print a manual page, or write all of them
    #[command(after_help = "Examples:
  tenure man | man -l -
  tenure man locks list > tenure-locks-list.1
  tenure man --dir ~/.local/share/man/man1  write a page for each command")]
    Man {
        /// The command, for example locks list [default: tenure itself]
        command: Vec<String>,
        /// Write the pages of all commands into this folder
        #[arg(
            long = "dir",
            value_name = "DIR",
            conflicts_with = "command",
            id = "folder"
        )]
        folder: Option<PathBuf>,
    },
}

/// How long to hold a key and to wait for it.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct WaitArgs {
    /// How long the lease lasts unless it is renewed [default: 5m with a command, 60m without]
    #[arg(long, value_name = "D", value_parser = duration::parse, allow_hyphen_values = true)]
    pub(crate) ttl: Option<Duration>,
    /// Wait at most this long [default: locking.waitTimeout, 30m]
    #[arg(long, value_name = "D", value_parser = duration::parse, allow_hyphen_values = true, conflicts_with = "no_wait")]
    pub(crate) wait: Option<Duration>,
    /// Do not wait: if the key is held, exit with 6
    #[arg(short = 'n', long)]
    pub(crate) no_wait: bool,
    /// Wait at most so many seconds, as flock does
    #[arg(short = 'w', value_name = "SECONDS", value_parser = seconds, conflicts_with_all = ["no_wait", "wait"])]
    pub(crate) wait_seconds: Option<Duration>,
}

/// The options of a request, for `run` and `acquire`.
#[derive(Debug, clap::Args)]
pub(crate) struct RequestArgs {
    #[command(flatten)]
    pub(crate) waits: WaitArgs,
    /// Priority, 0 (low) to 9 (high) [default: 5]. It rises by one for each minute of waiting
    #[arg(long, value_name = "N", value_parser = priority, allow_hyphen_values = true)]
    pub(crate) priority: Option<Priority>,
    /// Hold the key alone, which is the default
    #[arg(short = 'x', long, hide = true, conflicts_with_all = ["shared", "slots"])]
    exclusive: bool,
    /// Hold the key together with other shared holders
    #[arg(short = 's', long, conflicts_with = "slots")]
    shared: bool,
    /// Hold one of N slots: at most N holders at a time
    #[arg(long, value_name = "N", value_parser = slots, allow_hyphen_values = true)]
    slots: Option<NonZeroU32>,
}

impl RequestArgs {
    /// Whether one of several slots is asked for.
    pub(crate) fn is_slot(&self) -> bool {
        self.slots.is_some()
    }

    /// How the key is to be held.
    pub(crate) fn mode(&self) -> Mode {
        match self.slots {
            Some(slots) => Mode::Slots(slots),
            None if self.shared => Mode::Shared,
            None => Mode::Exclusive,
        }
    }
}

/// The keys of a request, for `run` and `acquire`.
#[derive(Debug, clap::Args)]
pub(crate) struct KeysArgs {
    /// The key to hold: any name, or task:ID, section:ID. Several are held together, or none of them
    #[arg(value_name = "KEY", required_unless_present = "more")]
    pub(crate) keys: Vec<String>,
    /// Another key to hold, as if it was among the others
    #[arg(long = "key", value_name = "KEY", id = "more")]
    pub(crate) more: Vec<String>,
}

impl KeysArgs {
    /// All of them. There is at least one.
    pub(crate) fn all(&self) -> Vec<&str> {
        let all = self.keys.iter().chain(&self.more);
        all.map(String::as_str).collect()
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct Run {
    #[command(flatten)]
    pub(crate) keys: KeysArgs,
    #[command(flatten)]
    pub(crate) request: RequestArgs,
    /// Run this line with sh -c instead of a command after --
    #[arg(short = 'c', value_name = "STRING", conflicts_with = "command")]
    pub(crate) script: Option<OsString>,
    #[command(flatten)]
    pub(crate) running: RunArgs,
    /// The command and its arguments
    #[arg(last = true, value_name = "CMD", action = ArgAction::Append)]
    pub(crate) command: Vec<OsString>,
}

/// How a command runs while its key is held.
#[derive(Debug, Default, clap::Args)]
pub(crate) struct RunArgs {
    /// Exit with N instead of 6 if the key is not granted
    #[arg(short = 'E', long, value_name = "N", value_parser = clap::value_parser!(u8))]
    pub(crate) conflict_exit_code: Option<u8>,
    /// Exit with N instead of 7 if the lease is lost
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8))]
    pub(crate) lost_exit_code: Option<u8>,
    /// Hold the key until every process that the command started has exited, not only the first one
    #[arg(long)]
    pub(crate) all_processes: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Acquire {
    #[command(flatten)]
    pub(crate) keys: KeysArgs,
    #[command(flatten)]
    pub(crate) request: RequestArgs,
    /// Tie the lease to this process: it ends when the process does
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) pid: Option<u32>,
}

/// The lease to act on, for `renew` and `release`.
#[derive(Debug, clap::Args)]
pub(crate) struct LeaseArgs {
    /// The key, or several keys
    #[arg(value_name = "KEY", required = true)]
    pub(crate) keys: Vec<String>,
    /// The lease's token, if it is one key; then --as is not needed
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
    /// The key, or several keys
    #[arg(value_name = "KEY", required_unless_present = "all")]
    pub(crate) keys: Vec<String>,
    /// The lease's token, if it is one key; then --as is not needed
    #[arg(long, value_name = "N")]
    pub(crate) token: Option<u64>,
    /// Release every key that the holder has, except those of running commands
    #[arg(long, conflicts_with_all = ["keys", "token"])]
    pub(crate) all: bool,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Request {
    /// The key, or a path that is reserved
    #[arg(value_name = "KEY|PATH")]
    pub(crate) what: String,
    /// Why, for the holder to read
    #[arg(long, value_name = "TEXT")]
    pub(crate) note: Option<String>,
    /// Ask only this holder, if there are several
    #[arg(long = "holder", value_name = "ID", id = "of")]
    pub(crate) of: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Force {
    /// The key, or its whole id
    #[arg(value_name = "KEY")]
    pub(crate) id: String,
    /// The reason, for the history
    #[arg(long, value_name = "TEXT")]
    pub(crate) reason: Option<String>,
    /// Only the lease of this holder, if the key has several
    #[arg(long = "holder", value_name = "ID")]
    pub(crate) of: Option<String>,
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
    #[command(after_help = "Examples:
  tenure locks list
  tenure locks list --all                   and those of bd, bilu, git, cargo
  tenure locks list --json | jq -r '.data.locks[].key'

--all shows every store of the project and the locks of other tools, without
changing any of them: who holds it, in which process, since when, and whether
that process is alive.")]
    List {
        /// Show the locks of every store of the project, and of git, cargo and other tools
        #[arg(long)]
        all: bool,
    },
    /// Show one lock and its queue
    #[command(after_help = "Examples:
  tenure locks show build
  if tenure locks show build --quiet; then echo busy; fi

With --quiet, the exit code tells whether exactly this key is held: 0 yes (its
holder is printed), 4 no.")]
    Show {
        /// A key, an id, or a unique prefix of one
        id: String,
    },
    /// Free expired locks and locks of dead holders, and record why
    #[command(after_help = "Examples:
  tenure locks cleanup --dry-run
  tenure locks cleanup")]
    Cleanup {
        /// Only print what would be ended
        #[arg(long)]
        dry_run: bool,
    },
    /// Prove from the history that no two holders overlapped and that tokens grew
    #[command(after_help = "Example: tenure locks verify

Checks the history of every store of the project, and says what it can't prove:
events that were pruned, and locks that other programs took.

Exit codes: 0 no violation, 1 holders overlapped or a token did not grow.")]
    Verify,
    /// Show what happened to a key: granted, renewed, released, expired, forced
    #[command(after_help = "Examples:
  tenure locks history build
  tenure locks history --since 2h --limit 200")]
    History {
        /// A key, an id, or a unique prefix of one [default: all keys]
        id: Option<String>,
        /// At most this many, the newest; 0 for all
        #[arg(long, value_name = "N", default_value_t = 50)]
        limit: usize,
        /// Only events of this period, for example 2h
        #[arg(long, value_name = "D", value_parser = duration::parse)]
        since: Option<Duration>,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Store {
    /// Ask each member of a cluster for its state, and count what is stored
    #[command(after_help = "Example: tenure store check etcd://10.0.0.1:2379/team

Exit codes: 0 nothing is wrong, 1 a member does not answer, an alarm is raised,
or the store can't be read.")]
    Check {
        /// The store; without it, the one that every command uses
        #[arg(value_name = "URL")]
        url: Option<OsString>,
    },
    /// Put right records that were removed or damaged by hand, and the tokens of
    /// a cluster that was restored from a backup
    #[command(after_help = "Examples:
  tenure store repair              everything that can be put right
  tenure store repair build        the records of one key
  tenure store repair task:4f2a    a task, and its lock
  tenure store repair --restored   after etcdctl snapshot restore

A cluster that was restored from a backup would give tokens out again that other
holders had before, so nothing is granted there until this command has raised
them. Make sure first that no holder from before the restoration still works.

A lease whose record can't be understood is not removed while it may be in use.

Exit codes: 0 nothing is wrong any more, 1 something is left to do.")]
    Repair(StoreRepair),
    /// Copy all tasks and sections to another store, and compare both
    #[command(after_help = "Example:
  tenure store copy sqlite:.git/tenure/tenure.db etcd://10.0.0.1:2379/team

Copied are sections and tasks with their ids, times, status, dependencies,
attempts and last error: what tenure tasks export shows. Not copied are locks,
histories, and the pause before a failed task is retried.

All of it is copied or nothing. What the other store has already is left alone
if it is equal. If it is not, the copy is refused; so it is while a runner works
on a task. Afterwards both are compared.

Exit codes: 0 everything is there, 1 the other store has other values of the
same tasks, 6 a runner works on a task.")]
    Copy(StoreCopy),
}

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct StoreRepair {
    /// The key, task:ID or section:ID; without it, everything
    #[arg(value_name = "KEY")]
    pub(crate) key: Option<String>,
    /// Raise the tokens even if nothing shows that the cluster was restored
    #[arg(long, conflicts_with = "key")]
    pub(crate) restored: bool,
}

#[derive(Debug, Clone, clap::Args)]
pub(crate) struct StoreCopy {
    /// The store to copy from
    #[arg(value_name = "FROM")]
    pub(crate) from: OsString,
    /// The store to copy to
    #[arg(value_name = "TO")]
    pub(crate) to: OsString,
    /// Copy tasks in progress as pending ones, even while a runner works on them
    #[arg(long)]
    pub(crate) as_pending: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Config {
    /// Show every setting, its value and its source
    #[command(after_help = "Example: tenure config show --json | jq .data.settings")]
    Show,
    /// Show where settings are read from
    #[command(after_help = "Example: tenure config path")]
    Path,
}

/// Seconds as flock takes them, or a duration.
fn seconds(text: &str) -> Result<Duration, String> {
    match text.parse().map(Duration::try_from_secs_f64) {
        Ok(Ok(seconds)) => Ok(seconds),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => duration::parse(text).map_err(|error| error.to_string()),
    }
}

fn slots(text: &str) -> Result<NonZeroU32, String> {
    text.parse()
        .map_err(|_| "give the number of slots, 1 or more".to_owned())
}

fn priority(text: &str) -> Result<Priority, String> {
    text.parse()
        .ok()
        .and_then(Priority::new)
        .ok_or_else(|| "give a number from 0 (low) to 9 (high)".to_owned())
}
