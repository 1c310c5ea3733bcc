//! What can be typed about tasks and sections.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Subcommand};
use tenure::core::{Priority, Status};
use tenure::duration;

use super::priority;

#[derive(Debug, Subcommand)]
pub(crate) enum Sections {
    /// Add a section
    #[command(after_help = "Example: tenure sections add Backend")]
    Add {
        /// What it is called; no other section may be
        name: String,
    },
    /// Every section, what is left to do in it, and who has it
    List,
}

impl Sections {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Add { .. } => "add",
            Self::List => "list",
        }
    }
}

#[derive(Debug, Subcommand)]
pub(crate) enum Tasks {
    /// Add a task
    #[command(after_help = "Examples:
  tenure tasks add 'Fix the login bug' --section Backend --priority 8
  tenure tasks add 'Release it' --depends-on 'Fix the login bug' --depends-on 3f2a9c01")]
    Add(Add),
    /// Tasks: those in progress first, then pending, review, failed, completed, skipped
    #[command(after_help = "Examples:
  tenure tasks list --status pending --limit 50
  tenure tasks list --section Backend --ready
  tenure tasks list --search login --json")]
    List(List),
    /// All about one task
    Show {
        /// Its id, its title, or a unique beginning of its id
        #[arg(value_name = "ID_OR_TITLE")]
        task: String,
    },
    /// Change a task: its status (which takes or gives back its locks) or anything else
    #[command(after_help = "Examples:
  tenure tasks update 'Fix bug' --status in_progress --as agent-1     begin it, waiting for its locks
  tenure tasks update 'Fix bug' --status in_progress --no-wait        or say at once who has it (exit 6)
  tenure tasks update 'Fix bug' --status completed --as agent-1       end it, and give the locks back
  tenure tasks update 3f2a9c01 --priority 9 --depends-on 'Write the test'

Beginning a task takes its section's and its own lock, together or not at all. Ending it gives its
own back, and the section's when nothing is left to be done in it. If it was taken over meanwhile,
nothing changes and tenure exits with 7.")]
    Update(Box<Update>),
    /// Begin the best task that is ready, and print it
    #[command(after_help = "Examples:
  tenure tasks next --as agent-1
  ID=$(tenure tasks next --as agent-1 --quiet --wait 10m)

The best is the most urgent, then the oldest, whose dependencies are done, which nobody holds, and
whose section is free or yours. Exit codes: 6 all that is ready is held by others, 4 nothing is left
(or what is left waits for something that nobody works on).")]
    Next(Next),
    /// Be a runner: begin one task after another, run a command for each, until none is left
    #[command(after_help = "Examples:
  tenure tasks work --as agent-1 -- ./agent.sh
  tenure tasks work --as agent-1 --retries 2 -- sh -c 'echo $TENURE_TASK_ID $TENURE_TASK_TITLE $TENURE_TOKEN'

The task is on the command's standard input too, as JSON. Exit code 0: completed; any other: failed.
A command that sets the status itself (tenure tasks update $TENURE_TASK_ID --status review) is
believed. tenure exits with 0 when none is left, with 1 if a task stayed failed, with 7 if one was
taken away.")]
    Work(Work),
    /// Delete tasks, for good: here, and in every clone that syncs
    #[command(after_help = "Example: tenure tasks delete 'Fix bug'

A task that somebody works on is not deleted (exit 6). Tasks that waited for it no longer do. To keep
a task that is not to be done, use tenure tasks update ... --status skipped instead.")]
    Delete {
        /// Its id, its title, or a unique beginning of its id
        #[arg(value_name = "ID_OR_TITLE", required = true)]
        tasks: Vec<String>,
    },
    /// Add or change many at once, from a file with one JSON object a line
    #[command(after_help = "Examples:
  tenure tasks import tasks.jsonl
  echo '{\"title\": \"Fix bug\", \"section\": \"Backend\", \"priority\": 8}' | tenure tasks import -

Fields of a task: title, id, section (a name; made if there is none), status, priority, description,
dependsOn (a list of ids), createdAt, updatedAt, attempts, lastError. A section: {\"kind\": \"section\",
\"name\": ...}. A task with an id that is there is changed. If a line is bad, nothing is imported.")]
    Import {
        /// The file, or - for standard input
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Print all as lines that `import` reads, in an order that diffs well
    #[command(after_help = "Example: tenure tasks export > tasks.jsonl")]
    Export,
}

impl Tasks {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::Add(_) => "add",
            Self::List(_) => "list",
            Self::Show { .. } => "show",
            Self::Update(_) => "update",
            Self::Next(_) => "next",
            Self::Work(_) => "work",
            Self::Delete { .. } => "delete",
            Self::Import { .. } => "import",
            Self::Export => "export",
        }
    }
}

#[derive(Debug, clap::Args)]
pub(crate) struct Add {
    /// What is to be done, in a line
    pub(crate) title: String,
    /// The section it belongs to, by name or id
    #[arg(long, value_name = "S")]
    pub(crate) section: Option<String>,
    /// 0 low to 9 high [default: 5]
    #[arg(long, value_name = "N", value_parser = priority, allow_hyphen_values = true)]
    pub(crate) priority: Option<Priority>,
    /// A task that has to be done before, by id or title; may be given several times
    #[arg(long, value_name = "ID")]
    pub(crate) depends_on: Vec<String>,
    /// What is to be done, at length
    #[arg(long, value_name = "TEXT")]
    pub(crate) description: Option<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct List {
    /// Only those with this status
    #[arg(long, value_name = "S", value_parser = status)]
    pub(crate) status: Option<Status>,
    /// Only those of this section, by name or id
    #[arg(long, value_name = "S")]
    pub(crate) section: Option<String>,
    /// Only those that can be begun: pending, with their dependencies done
    #[arg(long, conflicts_with = "status")]
    pub(crate) ready: bool,
    /// Only those with this in their title
    #[arg(long, value_name = "TEXT")]
    pub(crate) search: Option<String>,
    /// At most so many; 0 for all
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub(crate) limit: usize,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Update {
    /// Its id, its title, or a unique beginning of its id
    #[arg(value_name = "ID_OR_TITLE")]
    pub(crate) task: String,
    /// pending, in_progress, review, completed, failed or skipped
    #[arg(long, value_name = "S", value_parser = status)]
    pub(crate) status: Option<Status>,
    /// Why it failed
    #[arg(long, value_name = "TEXT")]
    pub(crate) error: Option<String>,
    #[command(flatten)]
    pub(crate) waits: super::Waits,
    /// The grant's token: proves it without a name
    #[arg(long, value_name = "N")]
    pub(crate) token: Option<u64>,
    /// Tie the locks to this process: they end when the process does
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) pid: Option<u32>,
    /// Another title
    #[arg(long, value_name = "TEXT")]
    pub(crate) title: Option<String>,
    /// Another description; an empty one removes it
    #[arg(long, value_name = "TEXT")]
    pub(crate) description: Option<String>,
    /// Another section, by name or id; an empty one takes it out of its section
    #[arg(long, value_name = "S")]
    pub(crate) section: Option<String>,
    /// Another priority, 0 low to 9 high
    #[arg(long, value_name = "N", value_parser = priority, allow_hyphen_values = true)]
    pub(crate) priority: Option<Priority>,
    /// A task that has to be done before, by id or title; may be given several times
    #[arg(long, value_name = "ID")]
    pub(crate) depends_on: Vec<String>,
    /// One that no longer has to be
    #[arg(long, value_name = "ID")]
    pub(crate) no_depends_on: Vec<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Next {
    /// How long the lease lasts unless it is renewed
    #[arg(long, value_name = "D", value_parser = duration::parse, allow_hyphen_values = true)]
    pub(crate) ttl: Option<Duration>,
    /// Wait for one to become ready, at most this long [default: locking.waitTimeout, 30m]
    #[arg(long, value_name = "D", value_parser = limit, num_args = 0..=1, default_missing_value = "")]
    pub(crate) wait: Option<Limit>,
    /// Do not wait, which is the default
    #[arg(long, conflicts_with = "wait")]
    pub(crate) no_wait: bool,
    /// Tie the locks to this process: they end when the process does
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) pid: Option<u32>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Work {
    /// How often a task that failed is tried again, after 1s, 2s, 4s and so on up to 1m
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) retries: u64,
    /// How long the leases last unless they are renewed, which they are [default: locking.runTimeout, 5m]
    #[arg(long, value_name = "D", value_parser = duration::parse, allow_hyphen_values = true)]
    pub(crate) ttl: Option<Duration>,
    /// When none is left, wait this long for new ones before it ends
    #[arg(long, value_name = "D", value_parser = duration::parse)]
    pub(crate) wait: Option<Duration>,
    /// Do not wait for what others hold: stop when there is none to be had
    #[arg(long, conflicts_with = "wait")]
    pub(crate) no_wait: bool,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD", action = ArgAction::Append)]
    pub(crate) command: Vec<OsString>,
}

/// How long to wait.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Limit {
    /// As the settings say.
    Usual,
    /// This long.
    At(Duration),
}

fn limit(text: &str) -> Result<Limit, duration::BadDuration> {
    match text {
        "" => Ok(Limit::Usual),
        text => duration::parse(text).map(Limit::At),
    }
}

fn status(text: &str) -> Result<Status, String> {
    text.parse()
        .map_err(|error: tenure::core::task::BadStatus| error.to_string())
}
