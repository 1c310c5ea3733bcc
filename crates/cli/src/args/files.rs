//! The arguments of `tenure files`.

use std::path::PathBuf;

use clap::Subcommand;

pub(crate) const HELP: &str = "Examples:
  tenure files                              the same as tenure files list
  tenure files restore src/lib.rs
  tenure files restore src/lib.rs --to old.rs";

#[derive(Debug, Subcommand)]
pub(crate) enum Files {
    /// List what was kept: when, whose, and which version
    #[command(after_help = "Examples:
  tenure files list
  tenure files list src/lib.rs
  tenure files list --json | jq -r '.data.files[].path'

Before an agent runs a shell command, its hook keeps the files that others have
edited and not committed: their bytes, for 14 days, and not in a commit or ref
of git, so no push shares them. Files of more than 20 MB are listed, not kept.")]
    List {
        /// Only the versions of this file
        path: Option<PathBuf>,
    },
    /// Write a version back to its file, or to another one
    #[command(after_help = "Examples:
  tenure files restore src/lib.rs           the newest that is not there now
  tenure files restore src/lib.rs --from 3f9a2c
  tenure files restore --from 3f9a2c --to /tmp/old.rs

What is in the file is kept first, so restoring again undoes it. A file that
--to names must not exist. --from takes the beginning of an id of tenure files.")]
    Restore {
        /// The file
        #[arg(required_unless_present = "from")]
        path: Option<PathBuf>,
        /// The version, by the beginning of its id [default: the newest that is not there now]
        #[arg(long, value_name = "ID", value_parser = clap::builder::NonEmptyStringValueParser::new())]
        from: Option<String>,
        /// Write it to this new file instead
        #[arg(long, value_name = "FILE")]
        to: Option<PathBuf>,
    },
}
