//! The arguments of `tenure ledger`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Subcommand, ValueEnum};
use tenure::text::duration;

use super::WaitArgs;

#[derive(Debug, Subcommand)]
pub(crate) enum Ledger {
    /// Create a ledger: DIR/ledger/ and DIR/meta.json
    #[command(after_help = "Examples:
  tenure ledger init proof
  tenure ledger init proof --dialect af       as the af tool writes it

Running it again changes nothing.")]
    Init {
        /// The folder [default: this one]
        #[arg(value_name = "DIR")]
        folder: Option<PathBuf>,
        /// How its files are named and which events it may hold
        #[arg(long, value_enum, value_name = "DIALECT", default_value_t = DialectArg::Documented)]
        dialect: DialectArg,
    },
    /// Append events; prints their numbers
    #[command(after_help = "Examples:
  tenure ledger append '{\"type\":\"note\",\"text\":\"hello\"}'
  tenure ledger append - < events.jsonl       one or more events
  tenure ledger append --expect 41 '{\"type\":\"note\"}'

An event is a JSON object with a type, of at most 1 MiB. A missing timestamp is
filled in. In a ledger of the af tool, an event that the tool could not read is
refused. Several events get consecutive numbers, and either all of them or none
are written. With --expect they are written only if the newest event has that
number (0: if the ledger is empty); otherwise the exit code is 8 and the message
names both numbers.")]
    Append(Append),
    /// Print events
    #[command(after_help = "Examples:
  tenure ledger log --limit 20
  tenure ledger log --node 1.2 --json         {\"seq\":7,\"event\":{...}} a line
  tenure ledger log -f --type lock_acquired   follow it, until Ctrl+C")]
    Log(Log),
    /// Check every event, and that no two holders overlapped; exit 1 if not
    #[command(after_help = "Example: tenure ledger verify --dir proof")]
    Verify {
        #[command(flatten)]
        place: Place,
    },
    /// Claim a node; prints the token
    #[command(after_help = "Examples:
  tenure ledger claim 1.2.3 --as agent-1 --no-wait
  tenure ledger claim 1.2.3 --as agent-1 --ttl 10m --wait 1h
  tenure ledger refresh 1.2.3 --as agent-1
  tenure ledger release 1.2.3 --as agent-1

A claim lasts for the lock_timeout in meta.json (5m if there is none), unless it
is refreshed. The protocol allows from 1s to 1h.", mut_arg("ttl", |arg| arg.help(
        "How long the claim lasts unless it is refreshed [default: lock_timeout in meta.json, 5m]"
    )))]
    Claim {
        /// The node, for example 1.2.3
        #[arg(value_name = "NODE")]
        node: String,
        #[command(flatten)]
        waits: WaitArgs,
        #[command(flatten)]
        place: Place,
    },
    /// Extend a claim
    #[command(after_help = "Example: tenure ledger refresh 1.2.3 --as agent-1 --ttl 10m")]
    Refresh {
        #[command(flatten)]
        which: WhichNode,
        /// How long from now [default: lock_timeout in meta.json, 5m]
        #[arg(long, value_name = "D", value_parser = duration::parse, allow_hyphen_values = true)]
        ttl: Option<Duration>,
        #[command(flatten)]
        place: Place,
    },
    /// Release a claim
    #[command(after_help = "Example: tenure ledger release 1.2.3 --as agent-1")]
    Release {
        #[command(flatten)]
        which: WhichNode,
        #[command(flatten)]
        place: Place,
    },
    /// List the claims: who holds which node, and until when
    #[command(after_help = "Example: tenure ledger claims")]
    Claims {
        #[command(flatten)]
        place: Place,
    },
    /// End expired claims and claims of dead holders, and say why
    #[command(after_help = "Examples:
  tenure ledger reap --dry-run
  tenure ledger reap")]
    Reap {
        /// Only list the claims that would be ended
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        place: Place,
    },
    /// Remove a ledger lock whose holder has exited (needs --force, and is recorded)
    #[command(
        after_help = "Example: tenure ledger break-lock --older-than 30s --force

A lock whose holder tenure can prove dead is taken over automatically, and needs
no --force here. A holder that can't be proven dead (a shell script's folder, an
empty file, another program's lock) is for you to judge: make sure that the
program has exited. Removing a lock in use can lose events."
    )]
    BreakLock {
        /// Only if it is at least this old
        #[arg(long, value_name = "D", value_parser = duration::parse)]
        older_than: Option<Duration>,
        /// Remove it although its holder is not proven dead
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        place: Place,
    },
}

/// The dialect of a ledger.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum DialectArg {
    /// As documented: event-000001.json, lock_acquired
    Documented,
    /// As the af tool writes it: 000001.json, nodes_claimed
    Af,
}

/// Where the ledger is.
#[derive(Debug, clap::Args)]
pub(crate) struct Place {
    /// The folder that contains ledger/ [default: this one, or the nearest one above]
    #[arg(long = "dir", value_name = "DIR", id = "folder")]
    pub(crate) folder: Option<PathBuf>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Append {
    /// The event as JSON, or - to read it from standard input
    #[arg(value_name = "JSON", required = true)]
    pub(crate) events: Vec<String>,
    /// Only if the newest event has this number
    #[arg(long, value_name = "N")]
    pub(crate) expect: Option<u64>,
    #[command(flatten)]
    pub(crate) place: Place,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Log {
    /// Start at this number [default: 1]
    #[arg(long, value_name = "N")]
    pub(crate) from: Option<u64>,
    /// Only events of this type; may be repeated
    #[arg(long = "type", value_name = "TYPE")]
    pub(crate) kinds: Vec<String>,
    /// Only events about this node
    #[arg(long, value_name = "NODE")]
    pub(crate) node: Option<String>,
    /// Only events of this holder
    #[arg(long, value_name = "ID")]
    pub(crate) owner: Option<String>,
    /// Only events of the last D, for example 2h
    #[arg(long, value_name = "D", value_parser = duration::parse)]
    pub(crate) since: Option<Duration>,
    /// Only the newest N; 0 for all [default: all]
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<usize>,
    /// Wait for new events
    #[arg(short, long)]
    pub(crate) follow: bool,
    #[command(flatten)]
    pub(crate) place: Place,
}

/// Which claim.
#[derive(Debug, clap::Args)]
pub(crate) struct WhichNode {
    /// The node, for example 1.2.3
    #[arg(value_name = "NODE")]
    pub(crate) node: String,
    /// The token of the claim, instead of the holder's name
    #[arg(long, value_name = "N")]
    pub(crate) token: Option<u64>,
}
