//! The commands for coding agents.

use std::time::Duration;

use clap::builder::{PossibleValuesParser, TypedValueParser};
use tenure::text::duration;
use tenure_files::agents::tool::Tool;

#[derive(Debug, clap::Args)]
pub(crate) struct Hook {
    /// The agent that calls it, if its input and its environment don't tell
    #[arg(value_name = "AGENT", value_parser = named(Tool::ALL.map(Tool::name), Tool::named))]
    pub(crate) tool: Option<Tool>,
    /// How long a reservation lasts unless the session goes on working [default: 10m]
    #[arg(long, value_name = "D", value_parser = duration::parse, allow_hyphen_values = true)]
    pub(crate) ttl: Option<Duration>,
}

pub(crate) const HOOK: &str = "Example, as a hook of an agent; tenure setup configures it:
  {\"type\": \"command\", \"command\": \"tenure hook\", \"timeout\": 10}

Reads the agent's JSON on standard input, which tells which agent it is; AGENT
is used if it does not. Before an edit, it reserves that file for the session,
or refuses the edit and says who has the file. At the end of a turn or of the
session, it gives the files back; see guard.release for when it does so earlier.
They are free at once when the agent's process ends.

The holder is named after the agent and its session, or by TENURE_HOLDER if that
is set in the agent's environment. Outside a project, nothing is checked. If
tenure itself fails, the agent goes on, unless guard.strict is set.

Exit codes: 0 answered, 1 tenure failed and the agent goes on, 2 refused
(cursor; the others refuse with the JSON that is printed).";

/// Accepts these names, and what each of them means.
fn named<T: Clone + Send + Sync + 'static>(
    names: impl IntoIterator<Item = &'static str>,
    meaning: fn(&str) -> Option<T>,
) -> impl TypedValueParser<Value = T> {
    PossibleValuesParser::new(names).try_map(move |name| meaning(&name).ok_or("no such name"))
}

#[derive(Debug, clap::Args)]
pub(crate) struct Setup {
    /// The agent; git for the hooks of tenure guard; agents-md for a section in AGENTS.md
    #[arg(value_name = "WHAT", value_parser = named(SetupTarget::names(), SetupTarget::named))]
    pub(crate) what: SetupTarget,
    /// Take away what setup added, and nothing else
    #[arg(long)]
    pub(crate) remove: bool,
    /// Change the configuration of your user instead of the repository's
    #[arg(long)]
    pub(crate) user: bool,
    /// Do not ask before the file is written
    #[arg(short, long)]
    pub(crate) yes: bool,
}

pub(crate) const SETUP: &str = "Examples:
  tenure setup claude-code                  shows the change, then asks
  tenure setup gemini --yes
  tenure setup agents-md --remove --yes     as if it had never been there

Adds the hooks that call tenure hook to the agent's configuration:

  claude-code  .claude/settings.json    codex   .codex/hooks.json
  cursor       .cursor/hooks.json       gemini  .gemini/settings.json

git installs the hooks of the guard, as tenure guard install does.

agents-md adds a section to AGENTS.md (to CLAUDE.md, if only that exists), which
tells an agent how to use tenure. Everything else in these files stays as it is,
with comments and order. Setting up twice changes nothing.

Exit codes: 0 done, or nothing to do; 2 the file can't be understood; 5 not
confirmed: without a terminal, --yes is needed.";

/// What can be set up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum SetupTarget {
    Agent(Tool),
    Git,
    AgentsMd,
}

impl SetupTarget {
    fn all() -> impl Iterator<Item = Self> {
        let agents = Tool::ALL.into_iter().map(Self::Agent);
        agents.chain([Self::Git, Self::AgentsMd])
    }

    fn names() -> impl Iterator<Item = &'static str> {
        Self::all().map(Self::name)
    }

    fn named(name: &str) -> Option<Self> {
        Self::all().find(|target| target.name() == name)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Agent(tool) => tool.name(),
            Self::Git => "git",
            Self::AgentsMd => "agents-md",
        }
    }
}
