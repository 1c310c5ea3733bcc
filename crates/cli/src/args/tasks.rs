//! The command line of `tenure tasks` and `tenure sections`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgAction, Subcommand};
use tenure::store::Priority;
use tenure::tasks::Status;
use tenure::text::duration;

use super::priority;

#[derive(Debug, Subcommand)]
pub(crate) enum Sections {
    /// Add a section
    #[command(after_help = "Example: tenure sections add Backend")]
    Add {
        /// Its name, which no other section may have
        name: String,
    },
    /// List sections: open tasks, runner, time left
    #[command(after_help = "Example: tenure sections list")]
    List,
    /// Delete a section, here and in every clone that syncs
    #[command(
        alias = "delete",
        after_help = "Examples:
  tenure sections rm Backend
  tenure sections rm Backend --move-to Server

A section that has tasks is deleted only with --move-to (otherwise exit 5), and
not while another runner holds it (exit 6). In another clone it stays as long as
a task is in it."
    )]
    Rm {
        /// Its name or its whole id
        #[arg(value_name = "NAME")]
        section: String,
        /// Move its tasks to this section, by name or id; '' leaves them without one
        #[arg(long, value_name = "S")]
        move_to: Option<String>,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum Tasks {
    /// Add a task
    #[command(after_help = "Examples:
  tenure tasks add 'Fix the login bug' --section Backend --priority 8
  tenure tasks add 'Release it' --depends-on 'Fix the login bug'")]
    Add(Add),
    /// List tasks: in progress first, then pending, review, failed, completed, skipped
    #[command(after_help = "Examples:
  tenure tasks list --status pending --limit 50
  tenure tasks list --section Backend --ready
  tenure tasks list --search login --json")]
    List(List),
    /// Show one task
    #[command(after_help = "Examples:
  tenure tasks show 3f2a9c01
  tenure tasks show 'Fix bug' --json")]
    Show {
        /// Its id, its title, or a unique prefix of its id
        #[arg(value_name = "ID_OR_TITLE")]
        task: String,
    },
    /// Change a task: its status (which takes or releases its locks) or anything else
    #[command(after_help = "Examples:
  tenure tasks update 'Fix bug' --status in_progress --as agent-1
  tenure tasks update 'Fix bug' --status in_progress --no-wait
  tenure tasks update 'Fix bug' --status completed --as agent-1
  tenure tasks update 3f2a9c01 --priority 9 --depends-on 'Write the test'

Starting a task takes the lock of its section and its own, both or neither. If
another runner holds one, tenure waits (with --no-wait it exits with 6).
Finishing it releases its own lock, and the section's when no open task is left
in the section. If another runner took the task over in the meantime, nothing
changes and tenure exits with 7.")]
    Update(Box<Update>),
    /// Start the best ready task and print it
    #[command(after_help = "Examples:
  tenure tasks next --as agent-1
  ID=$(tenure tasks next --as agent-1 --quiet --wait 10m)
  tenure tasks next --as agent-1 --resume

A runner that works on a task already gets a second one. With --resume it gets
the one that it has, under a lease that lasts anew, as after a restart.

A task is ready when its dependencies are done, it is not locked, and its
section is free or yours. The best is the one with the highest priority, then
the oldest. Exit codes: 6 other runners hold every ready task, 4 no task is left
(or every task that is left waits for one that no runner works on).")]
    Next(Next),
    /// Run a command for one task after another until none is left
    #[command(after_help = "Examples:
  tenure tasks work --as agent-1 -- ./agent.sh
  tenure tasks work --retries 2 -- sh -c 'echo $TENURE_TASK_ID $TENURE_TOKEN'

The command reads the task as JSON on its standard input. If it exits with 0 the
task is completed, otherwise it failed; unless the command set another status
itself (tenure tasks update $TENURE_TASK_ID --status review). Exit codes: 0 no
task is left; 1 a task failed for good; 7 a task's lease was lost; 6 other
runners still hold what is left, after the wait or with --no-wait; 4 what is
left waits for tasks that no runner works on, or is left to other runners.")]
    Work(Work),
    /// Finish a task and release its locks
    #[command(after_help = "Example: tenure tasks done 3f2a9c01 --as agent-1

The same as tenure tasks update ... --status completed.")]
    Done(HeldTask),
    /// Set a task to failed and release its locks
    #[command(after_help = "Example: tenure tasks fail 3f2a9c01 --as agent-1 --error 'no network'")]
    Fail {
        #[command(flatten)]
        held: HeldTask,
        /// Why it failed
        #[arg(long, value_name = "TEXT")]
        error: Option<String>,
    },
    /// Put a task back and release its locks, so that another runner may start it
    #[command(after_help = "Example: tenure tasks release 3f2a9c01 --as agent-1")]
    Release(HeldTask),
    /// Extend the locks of a task
    #[command(after_help = "Example: tenure tasks renew 3f2a9c01 --as agent-1 --ttl 30m")]
    Renew {
        #[command(flatten)]
        held: HeldTask,
        /// How long from now [default: as long as it was granted for]
        #[arg(long, value_name = "D", value_parser = duration::parse, allow_hyphen_values = true)]
        ttl: Option<Duration>,
    },
    /// Delete tasks for good, here and in every clone that syncs
    #[command(
        alias = "rm",
        after_help = "Example: tenure tasks delete 'Fix bug'

A task that a runner works on is not deleted (exit 6). Tasks that depend on it
no longer wait for it. To keep a task without doing it, set its status instead:
tenure tasks update 'Fix bug' --status skipped"
    )]
    Delete {
        /// Its id, its title, or a unique prefix of its id
        #[arg(value_name = "ID_OR_TITLE", required = true)]
        tasks: Vec<String>,
    },
    /// Add or change many tasks, from a file with one JSON object per line
    #[command(after_help = "Examples:
  tenure tasks import tasks.jsonl
  echo '{\"title\": \"Fix bug\", \"section\": \"Backend\"}' | tenure tasks import -

Fields of a task: title, id, section (a name; created if it does not exist),
status, priority, description, dependsOn (a list of ids), createdAt, updatedAt,
attempts, lastError. A section: {\"kind\": \"section\", \"name\": ...}. A line with
the id of an existing task changes that task. If any line is wrong, nothing is
imported.")]
    Import {
        /// The file, or - for standard input
        #[arg(value_name = "FILE")]
        file: PathBuf,
    },
    /// Print all tasks as lines that `import` reads, in a stable order
    #[command(after_help = "Example: tenure tasks export > tasks.jsonl")]
    Export,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Add {
    /// What to do, in one line
    pub(crate) title: String,
    /// Its section, by name or id
    #[arg(long, value_name = "S")]
    pub(crate) section: Option<String>,
    /// Priority, 0 (low) to 9 (high) [default: 5]
    #[arg(long, value_name = "N", value_parser = priority, allow_hyphen_values = true)]
    pub(crate) priority: Option<Priority>,
    /// A task that must be done first, by id or title; may be repeated
    #[arg(long, value_name = "ID")]
    pub(crate) depends_on: Vec<String>,
    /// What to do, in detail
    #[arg(long, value_name = "TEXT")]
    pub(crate) description: Option<String>,
    /// Add it only if no task has this title, whatever its status; otherwise print that one
    #[arg(long)]
    pub(crate) once: bool,
}

/// A task that the caller holds.
#[derive(Debug, clap::Args)]
pub(crate) struct HeldTask {
    /// Its id, its title, or a unique prefix of its id
    #[arg(value_name = "ID_OR_TITLE")]
    pub(crate) task: String,
    /// The lease's token; then --as is not needed
    #[arg(long, value_name = "N")]
    pub(crate) token: Option<u64>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct List {
    /// Only tasks with this status
    #[arg(long, value_name = "S", value_parser = status)]
    pub(crate) status: Option<Status>,
    /// Only tasks of this section, by name or id
    #[arg(long, value_name = "S")]
    pub(crate) section: Option<String>,
    /// Only tasks that can be started: pending, with their dependencies done
    #[arg(long, conflicts_with = "status")]
    pub(crate) ready: bool,
    /// Only tasks with this text in the title
    #[arg(long, value_name = "TEXT")]
    pub(crate) search: Option<String>,
    /// At most this many; 0 for all
    #[arg(long, value_name = "N", default_value_t = 50)]
    pub(crate) limit: usize,
}

#[derive(Debug, Default, clap::Args)]
pub(crate) struct Update {
    /// Its id, its title, or a unique prefix of its id
    #[arg(value_name = "ID_OR_TITLE")]
    pub(crate) task: String,
    /// pending, in_progress, review, completed, failed or skipped
    #[arg(long, value_name = "S", value_parser = status)]
    pub(crate) status: Option<Status>,
    /// Why it failed, with --status failed
    #[arg(long, value_name = "TEXT")]
    pub(crate) error: Option<String>,
    #[command(flatten)]
    pub(crate) waits: super::WaitArgs,
    /// The lease's token; then --as is not needed
    #[arg(long, value_name = "N")]
    pub(crate) token: Option<u64>,
    /// Tie the locks to this process: they end when the process does
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) pid: Option<u32>,
    /// The new title
    #[arg(long, value_name = "TEXT")]
    pub(crate) title: Option<String>,
    /// The new description; an empty one removes it
    #[arg(long, value_name = "TEXT")]
    pub(crate) description: Option<String>,
    /// The new section, by name or id; an empty one removes the task from its section
    #[arg(long, value_name = "S")]
    pub(crate) section: Option<String>,
    /// The new priority, 0 (low) to 9 (high)
    #[arg(long, value_name = "N", value_parser = priority, allow_hyphen_values = true)]
    pub(crate) priority: Option<Priority>,
    /// A task that must be done first, by id or title; may be repeated
    #[arg(long, value_name = "ID")]
    pub(crate) depends_on: Vec<String>,
    /// A dependency to remove, by id or title; may be repeated
    #[arg(long, value_name = "ID")]
    pub(crate) no_depends_on: Vec<String>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Next {
    /// Print the task that this runner works on already, if there is one, and renew its locks
    #[arg(long)]
    pub(crate) resume: bool,
    /// How long the lease lasts unless it is renewed [default: locking.taskTimeout, 60m]
    #[arg(long, value_name = "D", value_parser = duration::parse, allow_hyphen_values = true)]
    pub(crate) ttl: Option<Duration>,
    /// Wait until a task is ready, at most this long [default: locking.waitTimeout, 30m]
    #[arg(long, value_name = "D", value_parser = duration::parse, num_args = 0..=1)]
    #[expect(clippy::option_option, reason = "the option has an optional value")]
    pub(crate) wait: Option<Option<Duration>>,
    /// Do not wait, which is the default
    #[arg(long, conflicts_with = "wait")]
    pub(crate) no_wait: bool,
    /// Tie the locks to this process: they end when the process does
    #[arg(long, value_name = "PID", value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) pid: Option<u32>,
}

#[derive(Debug, clap::Args)]
pub(crate) struct Work {
    /// How often a failed task is retried, after 1s, 2s, 4s and so on up to 1m
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub(crate) retries: u64,
    /// How long the leases last; tenure renews them while the command runs [default: locking.runTimeout, 5m]
    #[arg(long, value_name = "D", value_parser = duration::parse, allow_hyphen_values = true)]
    pub(crate) ttl: Option<Duration>,
    /// Wait at most this long for a task to become ready, also for a new one when none is left
    /// [default: locking.waitTimeout, 30m, and not for new ones]
    #[arg(long, value_name = "D", value_parser = duration::parse)]
    pub(crate) wait: Option<Duration>,
    /// Do not wait: end when no task is ready
    #[arg(long, conflicts_with = "wait")]
    pub(crate) no_wait: bool,
    /// The command and its arguments
    #[arg(last = true, required = true, value_name = "CMD", action = ArgAction::Append)]
    pub(crate) command: Vec<OsString>,
}

/// A status, also in words that people and agents use for it.
fn status(text: &str) -> Result<Status, String> {
    let word = text.replace('-', "_");
    let word = match word.as_str() {
        "done" | "complete" | "finished" => Status::Completed.word(),
        "todo" => Status::Pending.word(),
        "doing" | "started" => Status::InProgress.word(),
        _ => word.as_str(),
    };
    word.parse()
        .map_err(|error: tenure::tasks::BadStatus| error.to_string())
}
