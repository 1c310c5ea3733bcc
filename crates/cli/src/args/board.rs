//! The arguments of `tenure board`.

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{Subcommand, ValueEnum};
use tenure::text::duration;

/// How long to wait for the lock by default, in seconds.
const TIMEOUT: u64 = 10;

/// The end of the help text. The protocol requires it to say which commands take the lock, where the lock
/// is, and what to do when it is busy.
pub(crate) const HELP: &str = "Examples:
  tenure board list --view kanban
  tenure board list --filter status --filter-value todo
  tenure board set-status 01-hold-one-lock DONE
  tenure board rebuild-index --write

The board is .bilu/board or src/board, here or in the nearest folder above.

The lock: set-status, set-priority, rebuild-index --write and migrate hold it
from before they read until after they have written. list, validate and every
--dry-run do not take it. It is the folder
.bilu/storage/lock (or src/storage/lock), which shell scripts take with mkdir:
see tenure shell-lib.
If only board/storage exists beside the tasks, the lock is in there. A source
tree that has both src/storage and src/board/storage is refused: remove the one
that no program uses.

\"lock busy\" (exit 1) means that another program is writing. The message names
the holder, since when it has held the lock, and whether it is alive. Wait
longer with --timeout S (0 does not wait). A lock whose process is proven dead
is taken over automatically. A lock that names no process is never taken over:
if you are sure that no program is using it, remove it with
  tenure force board --store mkdir:PATH

Signals: SIGINT, SIGTERM, SIGHUP and SIGQUIT stop an edit before its next step,
release the lock and exit with 128 plus the signal number. A signal that was
ignored when tenure started stays ignored: SIGHUP under nohup, SIGINT and
SIGQUIT in the background of a script.

The spellings --list, --validate, --rebuild-index and --migrate work too.";

#[derive(Debug, Subcommand)]
pub(crate) enum Board {
    /// List the tasks, as a table or by status
    #[command(after_help = "Examples:
  tenure board list --view kanban
  tenure board list --filter tag --filter-value backend")]
    List {
        /// How to show the tasks
        #[arg(long, value_enum, default_value_t = View::Table)]
        view: View,
        /// Only tasks in which this field has the value of --filter-value
        #[arg(
            short,
            long,
            value_enum,
            value_name = "FIELD",
            requires = "filter_value"
        )]
        filter: Option<Field>,
        /// The value to filter by, in any letter case
        #[arg(long, value_name = "VALUE", requires = "filter")]
        filter_value: Option<String>,
        #[command(flatten)]
        dir: BoardDir,
    },
    /// Find every problem; exit 1 if there is an error
    #[command(after_help = "Example: tenure board validate --strict

An error is what makes bilu refuse the file or the board, or read it
differently. A warning is what both programs read with a default in its place: a
missing section, an unknown status, a dependency on a task that does not exist.")]
    Validate {
        /// Exit 1 if there is a warning, too
        #[arg(long)]
        strict: bool,
        #[command(flatten)]
        dir: BoardDir,
    },
    /// Change the status of a task, and nothing else in its file
    #[command(after_help = "Example: tenure board set-status 01-hold-one-lock done")]
    SetStatus {
        /// The task: its id, its file, or the first words of its id, such as 01
        task: String,
        /// A status from config.json, in any letter case
        status: String,
        #[command(flatten)]
        lock: LockOptions,
    },
    /// Change the priority of a task, and nothing else in its file
    #[command(after_help = "Example: tenure board set-priority 01-hold-one-lock high")]
    SetPriority {
        /// The task: its id, its file, or the first words of its id, such as 01
        task: String,
        /// A priority from config.json, in any letter case
        priority: String,
        #[command(flatten)]
        lock: LockOptions,
    },
    /// Rebuild the index default.json from the tasks
    #[command(after_help = "Examples:
  tenure board rebuild-index --dry-run
  tenure board rebuild-index --write")]
    RebuildIndex {
        #[command(flatten)]
        mode: WriteMode,
        #[command(flatten)]
        lock: LockOptions,
    },
    /// Add the sections that old task files lack, with the values of the index
    #[command(after_help = "Examples:
  tenure board migrate --dry-run
  tenure board migrate")]
    Migrate {
        /// Only print what would be added
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        lock: LockOptions,
    },
}

/// How `list` shows the tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum View {
    /// One line for each task
    Table,
    /// One column for each status
    Kanban,
    /// Ten fields separated by tabs, for scripts
    Tsv,
}

/// A field that `list` can filter by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Field {
    Status,
    Priority,
    Kind,
    Tag,
}

/// Whether to write the index.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
pub(crate) struct WriteMode {
    /// Write the index
    #[arg(long)]
    pub(crate) write: bool,
    /// Only print whether the index would change
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// The option that names the board.
#[derive(Debug, clap::Args)]
pub(crate) struct BoardDir {
    /// The folder of the board [default: .bilu/board or src/board, here or above]
    #[arg(long = "dir", value_name = "DIR", id = "folder")]
    pub(crate) folder: Option<PathBuf>,
}

/// The options of every command that takes the lock.
#[derive(Debug, clap::Args)]
pub(crate) struct LockOptions {
    /// How many seconds to wait for the lock; 0 does not wait
    #[arg(long, value_name = "S", default_value_t = TIMEOUT)]
    pub(crate) timeout: u64,
    /// Wait at most this long; if the lock is still held, exit with 6 instead of the protocol's 1
    #[arg(long, value_name = "D", value_parser = duration::parse, conflicts_with_all = ["timeout", "no_wait"])]
    pub(crate) wait: Option<Duration>,
    /// Do not wait; if the lock is held, exit with 6 instead of the protocol's 1
    #[arg(short = 'n', long, conflicts_with = "timeout")]
    pub(crate) no_wait: bool,
    #[command(flatten)]
    pub(crate) dir: BoardDir,
}

/// The spellings of the bilu tool, and ours.
const SPELLINGS: [(&str, &str); 6] = [
    ("--list", "list"),
    ("-l", "list"),
    ("--validate", "validate"),
    ("--rebuild-index", "rebuild-index"),
    ("--migrate", "migrate"),
    ("-fv", "--filter-value"),
];

/// Translates the spellings of the bilu tool in what follows `board`: `--list` becomes `list`.
pub(super) fn spelled(typed: Vec<OsString>) -> Vec<OsString> {
    let is_named = typed
        .first()
        .is_some_and(|word| !word.as_encoded_bytes().starts_with(b"-"));
    let mut action = None;
    let mut others = Vec::new();
    for word in typed {
        let ours = SPELLINGS.iter().find(|(theirs, _)| word == **theirs);
        match ours {
            Some((_, ours)) if ours.starts_with('-') => others.push(OsString::from(ours)),
            // The parser refuses a second one.
            Some((_, ours)) if !is_named && action.is_none() => action = Some(OsString::from(ours)),
            _ => others.push(word),
        }
    }
    action.into_iter().chain(others).collect()
}
