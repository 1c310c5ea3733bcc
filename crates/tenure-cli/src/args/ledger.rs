//! What can be typed about the event ledger.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Subcommand, ValueEnum};
use tenure::duration;

use super::WaitArgs;

#[derive(Debug, Subcommand)]
pub(crate) enum Ledger {
    /// Make a ledger: DIR/ledger/ and DIR/meta.json
    #[command(after_help = "Examples:
  tenure ledger init proof
  tenure ledger init proof --dialect af      names and events as the af tool has them

Running it again changes nothing.")]
    Init {
        /// The folder [default: this one]
        #[arg(value_name = "DIR")]
        folder: Option<PathBuf>,
        /// How its files are called and which events it knows
        #[arg(long, value_enum, value_name = "DIALECT", default_value_t = DialectArg::Documented)]
        dialect: DialectArg,
    },
    /// Append events; prints their numbers
    #[command(after_help = "Examples:
  tenure ledger append '{\"type\":\"note\",\"text\":\"hello\"}'
  tenure ledger append - < events.jsonl       one or several, one after another in the input
  tenure ledger append --expect 41 '{\"type\":\"note\"}'

An event is a JSON object with a type, at most 1 MiB; a missing timestamp is filled in. Several get
consecutive numbers, all of them or none. With --expect they are written only if the newest event
has that number (0: if there is none); otherwise exit 8, and the message names both numbers.")]
    Append(Append),
    /// Print events
    #[command(after_help = "Examples:
  tenure ledger log --limit 20
  tenure ledger log --node 1.2 --json         one JSON object a line: {\"seq\":7,\"event\":{...}}
  tenure ledger log -f --type lock_acquired   wait for more, until Ctrl+C")]
    Log(Log),
    /// Check everything, and prove that no two holders overlapped: exit 1 if not
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

A claim lasts as long as lock_timeout in meta.json says (5m if it says nothing), unless it is refreshed.")]
    Claim {
        /// The node, for example 1.2.3
        #[arg(value_name = "NODE")]
        node: String,
        #[command(flatten)]
        waits: WaitArgs,
        #[command(flatten)]
        place: Place,
    },
    /// Move the end of a claim
    Refresh {
        #[command(flatten)]
        which: WhichNode,
        /// How long from now [default: lock_timeout in meta.json, 5m]
        #[arg(long, value_name = "D", value_parser = duration::parse, allow_hyphen_values = true)]
        ttl: Option<Duration>,
        #[command(flatten)]
        place: Place,
    },
    /// Give a node back
    Release {
        #[command(flatten)]
        which: WhichNode,
        #[command(flatten)]
        place: Place,
    },
    /// Who has claimed what, and until when
    Claims {
        #[command(flatten)]
        place: Place,
    },
    /// Free claims whose time ran out or whose holder is proven dead, and say why
    Reap {
        /// Only say what would be freed
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        place: Place,
    },
    /// Remove a ledger lock whose holder is gone (needs --force, and is recorded)
    #[command(
        after_help = "Example: tenure ledger break-lock --older-than 30s --force

A lock that tenure can prove dead is taken over by itself, and needs no force here. What can't be
proven (a folder of a shell script, an empty file, another program's lock) is for you to judge: make
sure that whoever made it is gone. To remove a live one can cost events."
    )]
    BreakLock {
        /// Only if it has stood for so long
        #[arg(long, value_name = "D", value_parser = duration::parse)]
        older_than: Option<Duration>,
        /// Really do it
        #[arg(long)]
        force: bool,
        #[command(flatten)]
        place: Place,
    },
}

impl Ledger {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Init { .. } => "init",
            Self::Append(_) => "append",
            Self::Log(_) => "log",
            Self::Verify { .. } => "verify",
            Self::Claim { .. } => "claim",
            Self::Refresh { .. } => "refresh",
            Self::Release { .. } => "release",
            Self::Claims { .. } => "claims",
            Self::Reap { .. } => "reap",
            Self::BreakLock { .. } => "break-lock",
        }
    }
}

/// How a ledger is written.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub(crate) enum DialectArg {
    /// As it is documented: event-000001.json, lock_acquired
    Documented,
    /// As the af tool has it: 000001.json, nodes_claimed
    Af,
}

/// Where the ledger is.
#[derive(Debug, clap::Args)]
pub(crate) struct Place {
    /// The folder that holds ledger/ [default: this one, or the nearest above that has one]
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
    /// From this number on
    #[arg(long, value_name = "N")]
    pub(crate) from: Option<u64>,
    /// Of this type only; may be given several times
    #[arg(long = "type", value_name = "TYPE")]
    pub(crate) kinds: Vec<String>,
    /// About this node only
    #[arg(long, value_name = "NODE")]
    pub(crate) node: Option<String>,
    /// Of this owner only
    #[arg(long, value_name = "ID")]
    pub(crate) owner: Option<String>,
    /// Not older than this, for example 2h
    #[arg(long, value_name = "D", value_parser = duration::parse)]
    pub(crate) since: Option<Duration>,
    /// The newest so many
    #[arg(long, value_name = "N")]
    pub(crate) limit: Option<usize>,
    /// Wait for more as they come
    #[arg(short, long)]
    pub(crate) follow: bool,
    #[command(flatten)]
    pub(crate) place: Place,
}

/// Which claim is meant.
#[derive(Debug, clap::Args)]
pub(crate) struct WhichNode {
    /// The node, for example 1.2.3
    #[arg(value_name = "NODE")]
    pub(crate) node: String,
    /// The claim's token: proves it without a name
    #[arg(long, value_name = "N")]
    pub(crate) token: Option<u64>,
}
