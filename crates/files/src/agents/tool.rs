//! The agents that have hooks: [`Tool`].
//!
//! | agent | checked against | how |
//! |---|---|---|
//! | Claude Code | 2.1.328 | run against a local stand-in for its API |
//! | Codex | 0.169.0 | run against a local stand-in for its API |
//! | Gemini CLI | 0.61.0 | run against a local stand-in for its API |
//! | Cursor | its documentation of 2026 | not run: it needs an account |

use serde_json::{Value, json};

/// How long an agent lets the hook run, in seconds. The hook's own limit is shorter.
const TIMEOUT: u64 = 10;

/// Another event of Cursor, after an edit.
pub(crate) const AFTER_FILE_EDIT: &str = "afterFileEdit";

/// A coding agent whose hooks call `tenure hook`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tool {
    /// Claude Code.
    ClaudeCode,
    /// Cursor: the editor and its command line.
    Cursor,
    /// Codex CLI.
    Codex,
    /// Gemini CLI.
    Gemini,
}

/// What is known of an agent.
pub(crate) struct Facts {
    name: &'static str,
    title: &'static str,
    folder: &'static str,
    file: &'static str,
    folder_variable: Option<&'static str>,
    afterwards: &'static str,
    /// The events: before and after a tool, at the end of a turn and of the session.
    pub(crate) before: &'static str,
    pub(crate) after: &'static str,
    pub(crate) turn_end: &'static str,
    pub(crate) session_end: &'static str,
    /// The tools that edit files.
    pub(crate) edits: &'static [&'static str],
    /// The tools that run shell commands.
    pub(crate) shells: &'static [&'static str],
    /// Whether it takes patches out of shell commands and applies them without another event.
    pub(crate) has_patching_shell: bool,
    /// What the tools of MCP servers are called.
    mcp: &'static str,
    /// The other events that tell when a session works, waits for a person, or has ended its turn.
    others: &'static [&'static str],
    /// The field with the session's id.
    pub(crate) session: &'static str,
    /// The unit of its time limits: how many are a second.
    second: u64,
    /// How long it lets the hook for the end of the session run, in seconds.
    session_end_timeout: u64,
}

const CLAUDE_CODE: Facts = Facts {
    name: "claude-code",
    title: "Claude Code",
    folder: ".claude",
    file: "settings.json",
    folder_variable: Some("CLAUDE_CONFIG_DIR"),
    afterwards: "Sessions that are open already read it when they start again.",
    before: "PreToolUse",
    after: "PostToolUse",
    turn_end: "Stop",
    session_end: "SessionEnd",
    edits: &["Edit", "MultiEdit", "Write", "NotebookEdit"],
    shells: &["Bash"],
    has_patching_shell: false,
    mcp: "mcp__.*",
    others: &[
        "SessionStart",
        "UserPromptSubmit",
        "PermissionRequest",
        "PostToolUseFailure",
        "Notification",
        "SubagentStop",
        "StopFailure",
    ],
    session: "session_id",
    second: 1,
    session_end_timeout: TIMEOUT,
};

const CODEX: Facts = Facts {
    name: "codex",
    title: "Codex",
    folder: ".codex",
    file: "hooks.json",
    folder_variable: Some("CODEX_HOME"),
    afterwards: "Codex runs a new hook only after you have trusted it: open /hooks in Codex.",
    edits: &["apply_patch", "Edit", "Write"],
    has_patching_shell: true,
    others: &[
        "SessionStart",
        "UserPromptSubmit",
        "PermissionRequest",
        "SubagentStop",
        "Interrupt",
    ],
    // It allows no more for this event.
    session_end_timeout: 3,
    ..CLAUDE_CODE
};

const GEMINI: Facts = Facts {
    name: "gemini",
    title: "Gemini CLI",
    folder: ".gemini",
    folder_variable: None,
    afterwards: "Gemini CLI runs the hooks of a project only in a folder that you trust.",
    before: "BeforeTool",
    after: "AfterTool",
    turn_end: "AfterAgent",
    edits: &["write_file", "replace"],
    shells: &["run_shell_command"],
    mcp: "mcp_.*",
    others: &["SessionStart", "BeforeAgent", "Notification"],
    second: 1000,
    ..CLAUDE_CODE
};

const CURSOR: Facts = Facts {
    name: "cursor",
    title: "Cursor",
    folder: ".cursor",
    file: "hooks.json",
    folder_variable: None,
    afterwards: "Cursor runs the hooks of a project only in a workspace that you trust.",
    before: "preToolUse",
    after: "postToolUse",
    turn_end: "stop",
    session_end: "sessionEnd",
    edits: &[
        "Write",
        "StrReplace",
        "Edit",
        "MultiEdit",
        "ApplyPatch",
        "Delete",
        "EditNotebook",
        "NotebookEdit",
    ],
    shells: &["Shell"],
    mcp: "MCP:.*",
    others: &[AFTER_FILE_EDIT, "beforeSubmitPrompt", "subagentStop"],
    session: "conversation_id",
    ..CLAUDE_CODE
};

impl Tool {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::ClaudeCode, Self::Cursor, Self::Codex, Self::Gemini];

    pub(crate) fn facts(self) -> &'static Facts {
        match self {
            Self::ClaudeCode => &CLAUDE_CODE,
            Self::Cursor => &CURSOR,
            Self::Codex => &CODEX,
            Self::Gemini => &GEMINI,
        }
    }

    /// The word for it on the command line.
    pub fn name(self) -> &'static str {
        self.facts().name
    }

    /// The agent with this name.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|tool| tool.name() == name)
    }

    /// The agent that sent this input to its hook. Cursor runs the hooks of Claude Code, too, and Gemini CLI takes them
    /// over: so what the input says counts before what the command line says.
    pub fn of_input(input: &Value) -> Option<Self> {
        let has = |name: &str| input.get(name).is_some_and(|value| !value.is_null());
        let event = input.get("hook_event_name").and_then(Value::as_str);
        let event = event.unwrap_or_default();
        if has("cursor_version") || has("conversation_id") {
            return Some(Self::Cursor);
        }
        let of_gemini = ["BeforeTool", "AfterTool", "BeforeAgent", "AfterAgent"];
        if of_gemini.contains(&event) {
            return Some(Self::Gemini);
        }
        // Codex has no id of a prompt, but one of a turn.
        has("turn_id").then_some(Self::Codex)
    }

    /// The agent that this process was started by, as far as its environment tells.
    pub fn of_environment() -> Option<Self> {
        let is_set = |name: &str| std::env::var_os(name).is_some_and(|value| !value.is_empty());
        let known = [
            (Self::Cursor, "CURSOR_VERSION"),
            (Self::Gemini, "GEMINI_SESSION_ID"),
            (Self::ClaudeCode, "CLAUDE_CODE_SESSION_ID"),
            (Self::ClaudeCode, "CLAUDE_PROJECT_DIR"),
            (Self::Codex, "CODEX_THREAD_ID"),
        ];
        let mut known = known.into_iter();
        known.find_map(|(tool, name)| is_set(name).then_some(tool))
    }

    /// What people call it.
    pub fn title(self) -> &'static str {
        self.facts().title
    }

    /// The folder of its configuration, in a repository and in the user's home.
    pub fn folder(self) -> &'static str {
        self.facts().folder
    }

    /// The file with its hooks, in that folder.
    pub fn file(self) -> &'static str {
        self.facts().file
    }

    /// The environment variable that names the user's folder instead of the one in the home.
    pub fn folder_variable(self) -> Option<&'static str> {
        self.facts().folder_variable
    }

    /// What is still to be done by hand after the hooks were added.
    pub fn afterwards(self) -> &'static str {
        self.facts().afterwards
    }

    /// The command of the hooks. The file may be shared with people who do not have tenure: there it does nothing, without
    /// a word.
    pub(crate) fn command(self) -> String {
        let without = match self {
            // Cursor takes no answer for a refusal.
            Self::Cursor => r#"{ echo '{"permission":"allow"}'; exit 0; }"#,
            Self::ClaudeCode | Self::Codex | Self::Gemini => "exit 0",
        };
        let name = self.name();
        format!("command -v tenure >/dev/null 2>&1 || {without}; exec tenure hook {name}")
    }

    /// Whether a command is one of tenure's hooks for this agent, wherever tenure is installed.
    pub(crate) fn is_own_command(self, command: &str) -> bool {
        let run = command.rsplit_once("exec ").map_or(command, |(_, run)| run);
        let words: Vec<&str> = run.split_whitespace().collect();
        let [program, "hook", tool, ..] = words.as_slice() else {
            return false;
        };
        let program = program.trim_matches(['"', '\'']);
        program.rsplit('/').next() == Some("tenure") && *tool == self.name()
    }

    /// The events and, for each, the entry that tenure adds.
    pub(crate) fn entries(self) -> Vec<(&'static str, Value)> {
        let (command, facts) = (self.command(), self.facts());
        // What may change a file, and what a person may be asked about.
        let tools = facts.edits.iter().chain(facts.shells).chain([&facts.mcp]);
        let tools = tools.copied().collect::<Vec<_>>().join("|");
        if self == Self::Cursor {
            let hook = json!({ "command": command, "timeout": TIMEOUT });
            let before = json!({ "command": command, "matcher": tools, "timeout": TIMEOUT });
            let more = [facts.after, facts.turn_end, facts.session_end];
            let more = more.into_iter().chain(facts.others.iter().copied());
            return std::iter::once((facts.before, before))
                .chain(more.map(|event| (event, hook.clone())))
                .collect();
        }
        // The documented shape of Claude Code, which Codex and Gemini CLI have taken over.
        let hook = |timeout: u64| json!([{ "type": "command", "command": command, "timeout": facts.second * timeout }]);
        let matching = |matcher: &str| json!({ "matcher": matcher, "hooks": hook(TIMEOUT) });
        let always = |event: &&'static str| (*event, json!({ "hooks": hook(TIMEOUT) }));
        let ends = hook(facts.session_end_timeout);
        [
            (facts.before, matching(&tools)),
            (facts.after, matching("*")),
        ]
        .into_iter()
        .chain(facts.others.iter().map(always))
        .chain([always(&facts.turn_end)])
        .chain([(facts.session_end, json!({ "hooks": ends }))])
        .collect()
    }

    /// A file with these hooks and nothing else.
    pub(crate) fn new_file(self) -> Value {
        let mut hooks = serde_json::Map::new();
        for (event, entry) in self.entries() {
            hooks.insert(event.to_owned(), json!([entry]));
        }
        match self {
            Self::Cursor => json!({ "version": 1, "hooks": hooks }),
            Self::ClaudeCode | Self::Codex | Self::Gemini => json!({ "hooks": hooks }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn its_own_command_is_known_wherever_tenure_is_installed() {
        for command in [
            "tenure hook codex",
            "/opt/bin/tenure hook codex --as me",
            "\"/opt/bin/tenure\" hook codex",
            &Tool::Codex.command(),
        ] {
            assert!(Tool::Codex.is_own_command(command), "{command}");
            assert!(!Tool::Gemini.is_own_command(command), "{command}");
        }
        for command in [
            "tenure",
            "tenure hook",
            "my-tenure hook codex",
            "echo tenure hook codex",
        ] {
            assert!(!Tool::Codex.is_own_command(command), "{command}");
        }
    }
}
