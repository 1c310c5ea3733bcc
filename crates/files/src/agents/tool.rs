//! The agents that have hooks: [`Tool`].
//!
//! | agent | checked against | how |
//! |---|---|---|
//! | Claude Code | 2.1.197 | run against a local stand-in for its API |
//! | Codex | 0.169.0 | run against a local stand-in for its API |
//! | Gemini CLI | 0.61.0 | run against a local stand-in for its API |
//! | Cursor | its documentation of 2026 | not run: it needs an account |

use serde_json::{Value, json};

/// How long an agent lets the hook run, in seconds. The hook's own limit is shorter.
const TIMEOUT: u64 = 10;

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

impl Tool {
    /// All of them.
    pub const ALL: [Self; 4] = [Self::ClaudeCode, Self::Cursor, Self::Codex, Self::Gemini];

    /// The word for it on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::ClaudeCode => "claude-code",
            Self::Cursor => "cursor",
            Self::Codex => "codex",
            Self::Gemini => "gemini",
        }
    }

    /// What people call it.
    pub fn title(self) -> &'static str {
        match self {
            Self::ClaudeCode => "Claude Code",
            Self::Cursor => "Cursor",
            Self::Codex => "Codex",
            Self::Gemini => "Gemini CLI",
        }
    }

    /// The folder of its configuration, in a repository and in the user's home.
    pub fn folder(self) -> &'static str {
        match self {
            Self::ClaudeCode => ".claude",
            Self::Cursor => ".cursor",
            Self::Codex => ".codex",
            Self::Gemini => ".gemini",
        }
    }

    /// The file with its hooks, in that folder.
    pub fn file(self) -> &'static str {
        match self {
            Self::ClaudeCode | Self::Gemini => "settings.json",
            Self::Cursor | Self::Codex => "hooks.json",
        }
    }

    /// The environment variable that names the user's folder instead of the one in the home.
    pub fn folder_variable(self) -> Option<&'static str> {
        match self {
            Self::ClaudeCode => Some("CLAUDE_CONFIG_DIR"),
            Self::Codex => Some("CODEX_HOME"),
            Self::Cursor | Self::Gemini => None,
        }
    }

    /// What is still to be done by hand after the hooks were added.
    pub fn afterwards(self) -> &'static str {
        match self {
            Self::ClaudeCode => "Sessions that are open already read it when they start again.",
            Self::Cursor => {
                "Cursor runs the hooks of a project only in a workspace that you trust."
            }
            Self::Codex => {
                "Codex runs a new hook only after you have trusted it: open /hooks in Codex."
            }
            Self::Gemini => {
                "Gemini CLI runs the hooks of a project only in a folder that you trust."
            }
        }
    }

    /// The command of the hooks.
    pub(crate) fn command(self) -> String {
        format!("tenure hook {}", self.name())
    }

    /// Whether a command is one of tenure's hooks for this agent, wherever tenure is installed.
    pub(crate) fn is_own_command(self, command: &str) -> bool {
        let words: Vec<&str> = command.split_whitespace().collect();
        let [program, "hook", tool, ..] = words.as_slice() else {
            return false;
        };
        let program = program.trim_matches(['"', '\'']);
        program.rsplit('/').next() == Some("tenure") && *tool == self.name()
    }

    /// The events and, for each, the entry that tenure adds.
    pub(crate) fn entries(self) -> Vec<(&'static str, Value)> {
        let command = self.command();
        // The documented shape of Claude Code, which Codex and Gemini CLI have taken over.
        let group = |matcher: Option<&str>, timeout: u64| {
            let hook = json!({ "type": "command", "command": command, "timeout": timeout });
            match matcher {
                Some(matcher) => json!({ "matcher": matcher, "hooks": [hook] }),
                None => json!({ "hooks": [hook] }),
            }
        };
        match self {
            Self::ClaudeCode => vec![
                (
                    "PreToolUse",
                    group(Some("Edit|MultiEdit|Write|NotebookEdit"), TIMEOUT),
                ),
                ("PostToolUse", group(Some("*"), TIMEOUT)),
                ("Stop", group(None, TIMEOUT)),
                ("SessionEnd", group(None, TIMEOUT)),
            ],
            Self::Codex => vec![
                (
                    "PreToolUse",
                    group(Some("apply_patch|Edit|Write|Bash"), TIMEOUT),
                ),
                ("PostToolUse", group(Some("*"), TIMEOUT)),
                ("Stop", group(None, TIMEOUT)),
                // Codex allows no more for this event.
                ("SessionEnd", group(None, 3)),
            ],
            // Milliseconds.
            Self::Gemini => vec![
                (
                    "BeforeTool",
                    group(Some("write_file|replace"), 1000 * TIMEOUT),
                ),
                ("AfterTool", group(Some("*"), 1000 * TIMEOUT)),
                ("AfterAgent", group(None, 1000 * TIMEOUT)),
                ("SessionEnd", group(None, 1000 * TIMEOUT)),
            ],
            Self::Cursor => {
                let hook = json!({ "command": command, "timeout": TIMEOUT });
                let before = json!({
                    "command": command,
                    "matcher": "Write|StrReplace|Edit|MultiEdit|ApplyPatch|Delete|EditNotebook|NotebookEdit",
                    "timeout": TIMEOUT,
                });
                vec![
                    ("preToolUse", before),
                    ("postToolUse", hook.clone()),
                    ("afterFileEdit", hook.clone()),
                    ("stop", hook.clone()),
                    ("sessionEnd", hook),
                ]
            }
        }
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
