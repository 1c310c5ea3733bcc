//! The arguments of `tenure allow`.

use std::time::Duration;

use tenure::text::duration;

#[derive(Debug, clap::Args)]
pub(crate) struct Allow {
    /// The code of the command, as the refusal names it. Without one, the commands that wait are listed
    #[arg(value_name = "CODE")]
    pub(crate) code: Option<String>,
    /// How long the command may be started, once
    #[arg(long = "for", value_name = "D", value_parser = duration::parse, default_value = "10m", id = "time", allow_hyphen_values = true)]
    pub(crate) time: Duration,
    /// List the commands that wait, as without a code
    #[arg(long, conflicts_with_all = ["code", "yes"])]
    pub(crate) list: bool,
    /// Allow it although there is no terminal
    #[arg(short, long, requires = "code")]
    pub(crate) yes: bool,
}

pub(crate) const ALLOW: &str = "Examples:
  tenure allow                              the commands that wait
  tenure allow k7qa-m9xd
  tenure allow k7qa-m9xd --for 1h

An agent's command that would destroy uncommitted work of another session, such
as git stash or git reset --hard, is refused (see agents.destructive). If you
allow it, the session may run exactly this command, in this folder, once.

A person has to do this in a terminal of their own: inside the session of a
coding agent it is refused, and without a terminal --yes is needed.

Exit codes: 0 allowed, or listed; 4 no such command waits; 5 not allowed: this
is a session of an agent, or there is no terminal.";
