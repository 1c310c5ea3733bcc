//! What a hook answers: [`Reply`].

use serde_json::{Value, json};

use super::event::What;
use super::tool::Tool;

/// The answer to one call of a hook.
#[derive(Debug, Clone, PartialEq, Eq)]
#[must_use]
pub struct Reply {
    /// For standard output: one JSON value, or nothing.
    pub out: Option<Value>,
    /// For standard error.
    pub err: Option<String>,
    /// The exit code.
    pub code: i32,
}

impl Reply {
    /// The agent goes on. `note` is for its model, where the agent passes it on.
    pub fn go_on(tool: Tool, name: &str, what: &What, note: Option<&str>) -> Self {
        let is_before = what.is_pause() && name == tool.facts().before;
        // A prompt is heard, too: of a command that a person interrupted, no other event tells.
        let others = ["PostToolUseFailure", "UserPromptSubmit", "BeforeAgent"];
        let after = name == tool.facts().after || others.contains(&name);
        let out = match (tool, note) {
            // Cursor takes an empty answer to this event for a refusal.
            (Tool::Cursor, _) if name == tool.facts().before => {
                Some(json!({ "permission": "allow" }))
            }
            (Tool::Cursor, Some(note)) if after => Some(json!({ "additional_context": note })),
            (Tool::ClaudeCode | Tool::Codex, Some(note)) if after || is_before => Some(json!({
                "hookSpecificOutput": { "hookEventName": name, "additionalContext": note }
            })),
            (Tool::Gemini, Some(note)) if after => {
                Some(json!({ "hookSpecificOutput": { "additionalContext": note } }))
            }
            _ => None,
        };
        Self {
            out,
            err: None,
            code: 0,
        }
    }

    /// The edit must not happen, for this reason. Only [`What::BeforeEdit`] can be refused.
    pub fn refuse(tool: Tool, reason: &str) -> Self {
        let out = match tool {
            Tool::ClaudeCode | Tool::Codex => json!({
                "hookSpecificOutput": {
                    "hookEventName": "PreToolUse",
                    "permissionDecision": "deny",
                    "permissionDecisionReason": reason,
                }
            }),
            Tool::Gemini => json!({ "decision": "deny", "reason": reason }),
            Tool::Cursor => json!({
                "permission": "deny",
                "user_message": reason.lines().next().unwrap_or_default(),
                "agent_message": reason,
            }),
        };
        // Cursor's documentation has both ways to refuse, and not every version heeds the first one.
        let (err, code) = match tool {
            Tool::Cursor => (Some(reason.to_owned()), 2),
            Tool::ClaudeCode | Tool::Codex | Tool::Gemini => (None, 0),
        };
        Self {
            out: Some(out),
            err,
            code,
        }
    }

    /// The hook itself failed, and the agent goes on.
    pub fn failed(tool: Tool, name: &str, what: &What, why: &str) -> Self {
        Self {
            err: Some(why.to_owned()),
            // The others show the message of such an exit code, and go on.
            code: i32::from(tool != Tool::Cursor),
            ..Self::go_on(tool, name, what, None)
        }
    }
}
