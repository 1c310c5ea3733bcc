//! What can be typed about the board.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Subcommand, ValueEnum};

/// How long to wait for the lock, in seconds.
const TIMEOUT: u64 = 10;

/// What everybody has to know about the lock.
pub(crate) const HELP: &str = "Examples:
  tenure board list --view kanban
  tenure board list --filter status --filter-value todo
  tenure board set-status 01-hold-one-lock DONE
  tenure board rebuild-index --write

The board is .bilu/board or src/board, here or in the nearest folder above.

The lock: set-status, set-priority, rebuild-index --write and migrate take it, from before they
read until after they wrote. list, validate and every --dry-run do not. It is the folder
.bilu/storage/lock (or src/board/storage/lock), which shell scripts take with mkdir: see
tenure shell-lib.

\"lock busy\" (exit 1) means that somebody else is writing: the message says who, since when, and
whether it still lives. Wait longer with --timeout S (0 does not wait). A lock whose process is
proven dead is taken over by itself. One that names no process is left alone: if you are sure that
nobody is at work, take it away with
  tenure locks release board --force --store mkdir:PATH

The spellings --list, --validate, --rebuild-index and --migrate work too.";

#[derive(Debug, Subcommand)]
pub(crate) enum Board {
    /// The tasks, as a table or by status
    List {
        /// How to show them
        #[arg(long, value_enum, default_value_t = View::Table)]
        view: View,
        /// Only those whose field has the value of --filter-value
        #[arg(
            short,
            long,
            value_enum,
            value_name = "FIELD",
            requires = "filter_value"
        )]
        filter: Option<Field>,
        /// The value, in any letter case
        #[arg(long, value_name = "VALUE", requires = "filter")]
        filter_value: Option<String>,
        #[command(flatten)]
        place: Place,
    },
    /// Look for every problem: exit 0 if there is none, 1 otherwise
    Validate {
        #[command(flatten)]
        place: Place,
    },
    /// Change the status of a task, and nothing else in its file
    SetStatus {
        /// Its id, its file, or a beginning that only one has
        task: String,
        /// One of those in config.json, in any letter case
        status: String,
        #[command(flatten)]
        lock: Lock,
    },
    /// Change the priority of a task, and nothing else in its file
    SetPriority {
        /// Its id, its file, or a beginning that only one has
        task: String,
        /// One of those in config.json, in any letter case
        priority: String,
        #[command(flatten)]
        lock: Lock,
    },
    /// Make the index default.json from the tasks
    RebuildIndex {
        #[command(flatten)]
        how: How,
        #[command(flatten)]
        lock: Lock,
    },
    /// Add the sections that old task files lack, with what the index says
    Migrate {
        /// Only say what would be added
        #[arg(long)]
        dry_run: bool,
        #[command(flatten)]
        lock: Lock,
    },
}

impl Board {
    pub(super) fn name(&self) -> &'static str {
        match self {
            Self::List { .. } => "list",
            Self::Validate { .. } => "validate",
            Self::SetStatus { .. } => "set-status",
            Self::SetPriority { .. } => "set-priority",
            Self::RebuildIndex { .. } => "rebuild-index",
            Self::Migrate { .. } => "migrate",
        }
    }
}

/// How to show tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum View {
    /// One line for each
    Table,
    /// One column for each status
    Kanban,
    /// Ten fields with tabs between them, for scripts
    Tsv,
}

/// By what to choose tasks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Field {
    Status,
    Priority,
    Kind,
    Tag,
}

/// Whether to write.
#[derive(Debug, clap::Args)]
#[group(required = true, multiple = false)]
pub(crate) struct How {
    /// Do it
    #[arg(long)]
    pub(crate) write: bool,
    /// Only say whether it would change
    #[arg(long)]
    pub(crate) dry_run: bool,
}

/// Where the board is.
#[derive(Debug, clap::Args)]
pub(crate) struct Place {
    /// The folder of the board [default: .bilu/board or src/board, here or above]
    #[arg(long = "dir", value_name = "DIR", id = "folder")]
    pub(crate) folder: Option<PathBuf>,
}

/// How to get the lock.
#[derive(Debug, clap::Args)]
pub(crate) struct Lock {
    /// Wait for the lock at most so many seconds; 0 does not wait
    #[arg(long, value_name = "S", default_value_t = TIMEOUT)]
    pub(crate) timeout: u64,
    #[command(flatten)]
    pub(crate) place: Place,
}

/// Options of the whole command that are followed by a value.
const WITH_VALUE: [&str; 3] = ["-C", "--store", "--as"];

/// The other tool's spellings of what is to be done.
const ACTIONS: [(&str, &str); 6] = [
    ("--list", "list"),
    ("-l", "list"),
    ("--validate", "validate"),
    ("--rebuild-index", "rebuild-index"),
    ("--migrate", "migrate"),
    ("-fv", "--filter-value"),
];

/// What was typed, with the spellings of the other tool turned into ours: `board --list` is `board list`.
pub(crate) fn spelled(typed: impl Iterator<Item = OsString>) -> Vec<OsString> {
    let mut typed: Vec<OsString> = typed.collect();
    let mut at = 1;
    let command = loop {
        match typed.get(at).and_then(|word| word.to_str()) {
            Some(word) if WITH_VALUE.contains(&word) => at += 2,
            Some(word) if word.starts_with('-') => at += 1,
            Some("board") => break at,
            _ => return typed,
        }
    };
    let is_named = typed
        .get(command + 1)
        .is_some_and(|word| !word.as_encoded_bytes().starts_with(b"-"));
    let mut action = None;
    let mut kept = Vec::new();
    for word in typed.split_off(command + 1) {
        let ours = ACTIONS.iter().find(|(theirs, _)| word == **theirs);
        match ours {
            Some((_, ours)) if ours.starts_with('-') => kept.push(OsString::from(ours)),
            // A second one is left for the parser to refuse.
            Some((_, ours)) if !is_named && action.is_none() => action = Some(OsString::from(ours)),
            _ => kept.push(word),
        }
    }
    typed.extend(action);
    typed.extend(kept);
    typed
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(words: &str) -> String {
        let typed = words.split(' ').map(OsString::from);
        let words = spelled(typed)
            .into_iter()
            .map(|word| word.into_string().unwrap());
        words.collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn the_other_tools_spellings_become_ours_and_nothing_else_does() {
        for (typed, meant) in [
            ("t board --list", "t board list"),
            (
                "t -C x board --json --list -f status -fv todo",
                "t -C x board list --json -f status --filter-value todo",
            ),
            (
                "t board --rebuild-index --write",
                "t board rebuild-index --write",
            ),
            ("t board --validate --list", "t board validate --list"),
            ("t board list --list", "t board list --list"),
            ("t board", "t board"),
            (
                "t --as board run board -- x --list",
                "t --as board run board -- x --list",
            ),
            ("t run k -- board --list", "t run k -- board --list"),
            ("t", "t"),
        ] {
            assert_eq!(said(typed), meant);
        }
    }
}
