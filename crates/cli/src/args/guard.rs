//! The arguments of `tenure guard`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::Subcommand;

pub(crate) const HELP: &str = "Examples:
  tenure guard install
  tenure guard status && echo 'commits are checked'
  tenure guard uninstall

Once installed, a commit or a merge is refused if it changes a path that another
holder has reserved (exit code 6), or, with guard.require, one that you have not
reserved (5). A push is refused if another holder was granted a path of it since
the commit (7). You are the holder that TENURE_HOLDER names; without it, the
shell or agent that git was started from.

Settings: guard.strict, guard.require.";

#[derive(Debug, Subcommand)]
pub(crate) enum GuardCommand {
    /// Put the guard's hooks into this git repository
    #[command(after_help = "Example: tenure guard install

Hooks that exist are left as they are, and run as before: those of husky,
lefthook and pre-commit, your own, and those in the folder that core.hooksPath
names. All worktrees share the hooks. In a bare repository, the guard is its
pre-receive hook. Run it again after guard.strict was changed; otherwise,
running it again changes nothing.")]
    Install,
    /// Remove them again
    #[command(after_help = "Example: tenure guard uninstall

Every other hook, and git's configuration, is as it was before.")]
    Uninstall,
    /// Show which hooks are installed, and the commits made in spite of the guard
    #[command(after_help = "Example: tenure guard status

Exit codes: 0 git runs every hook of the guard, 4 it does not.")]
    Status,
    /// Check a push, as the pre-receive hook of a server
    #[command(after_help = "Example, in hooks/pre-receive of a bare repository:
  exec env TENURE_STORE=etcd://10.0.0.1:2379/team tenure guard receive

Reads what git passes to pre-receive, and refuses branches whose new commits
change what other holders have reserved. The pusher is the holder that --as or
TENURE_HOLDER names on the server, or else the one in the push option
tenure-holder (git push -o tenure-holder=agent-1).")]
    Receive,
    /// Run one of the hooks
    #[command(hide = true)]
    Hook {
        /// Refuse if nothing can be checked
        #[arg(long)]
        strict: bool,
        /// The folder that git ran it from
        #[arg(long)]
        folder: Option<PathBuf>,
        /// Its name, as git calls it
        name: String,
        /// What git passes to it
        #[arg(last = true)]
        args: Vec<OsString>,
    },
}
