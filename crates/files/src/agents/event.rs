//! What an agent tells a hook: [`Event`].
//!
//! 1. A field that is not needed is not looked at, so an agent may send more than is known here.
//! 2. What can't be understood is an error, never an event that means something else.

use std::path::PathBuf;

use serde::Deserialize;
use serde_json::Value;

use super::patch;
use super::tool::{AFTER_FILE_EDIT, Tool};

/// Why an input is no event.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BadEvent {
    /// It is no JSON object with the fields that are needed.
    #[error("its input can't be understood ({0})")]
    Json(#[from] serde_json::Error),
    /// It does not say what happens.
    #[error("its input has no hook_event_name")]
    NoName,
    /// It names no session.
    #[error("its input has no {0}, so there is no holder")]
    NoSession(&'static str),
    /// An edit that names no file.
    #[error("its input names no file for the tool {0}")]
    NoFile(String),
}

/// One call of a hook.
///
/// The default is what may be any edit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The id of the session.
    pub session: String,
    /// The agent's name for the event.
    pub name: String,
    /// The folder that relative paths begin at.
    pub folder: Option<PathBuf>,
    /// The sub-agent of the session that it happens in.
    pub child: Option<Child>,
    /// The call of a tool that it is about, where the agent gives it an id.
    pub call: Option<String>,
    /// Where the agent writes down what is said in the session.
    pub transcript: Option<PathBuf>,
    /// What happens.
    pub what: What,
}

/// A sub-agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Child {
    /// Its id, in its session.
    pub id: String,
    /// What kind of sub-agent it is.
    pub kind: Option<String>,
}

/// What happens in a session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum What {
    /// These files are about to be written. The answer can prevent it.
    BeforeEdit(Vec<PathBuf>),
    /// These files were written. The answer can't change that any more.
    AfterEdit(Vec<PathBuf>),
    /// This shell command is about to run. The answer can prevent it.
    BeforeCommand(String),
    /// A shell command has ended.
    AfterCommand,
    /// Another tool is about to run, or a person is asked to allow one. Nothing may be heard for as long as that takes.
    Pause,
    /// The session goes on working.
    Work,
    /// The user has asked for something, or the session begins.
    TurnBegin,
    /// The agent has finished its answer, or was interrupted, and waits for the user.
    TurnEnd,
    /// A sub-agent is over.
    ChildEnd,
    /// The session is over.
    SessionEnd,
}

impl What {
    /// Whether nothing may be heard of the session for as long as a tool takes, or a person.
    pub fn is_pause(&self) -> bool {
        matches!(
            self,
            Self::BeforeEdit(_) | Self::BeforeCommand(_) | Self::Pause
        )
    }
}

#[derive(Deserialize)]
struct Sent {
    hook_event_name: Option<String>,
    session_id: Option<String>,
    conversation_id: Option<String>,
    cwd: Option<PathBuf>,
    #[serde(default)]
    workspace_roots: Vec<PathBuf>,
    tool_name: Option<String>,
    tool_input: Option<Value>,
    tool_use_id: Option<String>,
    transcript_path: Option<PathBuf>,
    file_path: Option<PathBuf>,
    agent_id: Option<String>,
    agent_type: Option<String>,
    notification_type: Option<String>,
    #[serde(default)]
    is_interrupt: bool,
    #[serde(default)]
    background_tasks: Vec<BackgroundTask>,
}

/// What Claude Code runs in the background at the end of a turn.
#[derive(Deserialize)]
struct BackgroundTask {
    #[serde(rename = "type")]
    kind: Option<String>,
}

impl BackgroundTask {
    /// Whether it edits files with the tools of the session. A shell command may run for days, and does not.
    fn is_agent(&self) -> bool {
        let kind = self.kind.as_deref();
        !matches!(kind, None | Some("shell" | "monitor"))
    }
}

impl Default for Event {
    fn default() -> Self {
        Self {
            session: String::new(),
            name: String::new(),
            folder: None,
            child: None,
            call: None,
            transcript: None,
            what: What::BeforeEdit(Vec::new()),
        }
    }
}

impl Event {
    /// What an agent means by its input.
    pub fn parse(tool: Tool, input: &Value) -> Result<Self, BadEvent> {
        let input = Sent::deserialize(input)?;
        let name = input.hook_event_name.ok_or(BadEvent::NoName)?;
        let facts = tool.facts();
        let other = input.conversation_id.filter(|_| tool == Tool::Cursor);
        let session = other.or(input.session_id);
        let session = session
            .filter(|session| !session.is_empty())
            .ok_or(BadEvent::NoSession(facts.session))?;
        let edit = || edited(tool, input.tool_name.as_deref(), input.tool_input.as_ref());
        let command = || {
            let is_shell = input
                .tool_name
                .as_deref()
                .is_none_or(|name| facts.shells.contains(&name));
            input
                .tool_input
                .as_ref()
                .filter(|_| is_shell)
                .and_then(command_of)
        };
        let child = input.agent_id.clone().filter(|id| !id.is_empty());
        let is_main = child.is_none();
        let what = match name.as_str() {
            name if name == facts.before => match edit() {
                None => command().map_or(What::Pause, What::BeforeCommand),
                Some(files) if files.is_empty() => {
                    return Err(BadEvent::NoFile(input.tool_name.unwrap_or_default()));
                }
                Some(files) => What::BeforeEdit(files),
            },
            name if name == facts.after => match edit() {
                Some(files) if !files.is_empty() => What::AfterEdit(files),
                _ if command().is_some() => What::AfterCommand,
                _ => What::Work,
            },
            // Claude Code tells of a command that failed in another event.
            "PostToolUseFailure" if command().is_some() => What::AfterCommand,
            AFTER_FILE_EDIT if tool == Tool::Cursor => match input.file_path {
                Some(file) => What::AfterEdit(vec![file]),
                None => What::Work,
            },
            // Its sub-agents go on.
            name if name == facts.turn_end
                && input.background_tasks.iter().any(BackgroundTask::is_agent) =>
            {
                What::Work
            }
            // Some send the end of a sub-agent's turn under this name, too.
            name if name == facts.turn_end && !is_main => What::ChildEnd,
            name if name == facts.turn_end => What::TurnEnd,
            name if name == facts.session_end => What::SessionEnd,
            // No other event follows when a person interrupts a tool.
            _ if input.is_interrupt && is_main => What::TurnEnd,
            "StopFailure" | "Interrupt" if is_main => What::TurnEnd,
            "SubagentStop" | "subagentStop" => What::ChildEnd,
            "PermissionRequest" => What::Pause,
            "UserPromptSubmit" | "BeforeAgent" | "beforeSubmitPrompt" | "SessionStart"
                if is_main =>
            {
                What::TurnBegin
            }
            "Notification" => notified(input.notification_type.as_deref()),
            _ => What::Work,
        };
        Ok(Self {
            session,
            name,
            child: child.map(|id| Child {
                id,
                kind: input.agent_type,
            }),
            call: input.tool_use_id,
            transcript: input.transcript_path,
            folder: input
                .cwd
                .or_else(|| input.workspace_roots.into_iter().next()),
            what,
        })
    }

    /// What can be told of an input that is no event: the files of an edit, unless it says that it is something else.
    pub fn guess(tool: Tool, input: &Value) -> Self {
        let text = |name: &str| input.get(name).and_then(Value::as_str);
        let name = text("hook_event_name");
        let is_before = name.is_none_or(|name| tool.facts().before == name);
        let files = edited(tool, text("tool_name"), input.get("tool_input"));
        let may_be_edit = is_before && (files.is_some() || text("tool_name").is_none());
        Self {
            name: name.unwrap_or_default().to_owned(),
            folder: text("cwd").map(PathBuf::from),
            what: if may_be_edit {
                What::BeforeEdit(files.unwrap_or_default())
            } else {
                What::Work
            },
            ..Self::default()
        }
    }
}

/// What an agent tells its user: that it waits for leave, or for the next prompt.
fn notified(kind: Option<&str>) -> What {
    match kind {
        Some("idle_prompt") => What::TurnEnd,
        Some("permission_prompt" | "elicitation_dialog" | "ToolPermission") => What::Pause,
        _ => What::Work,
    }
}

/// The files that a call of a tool writes; `None` if that tool writes none.
fn edited(tool: Tool, name: Option<&str>, input: Option<&Value>) -> Option<Vec<PathBuf>> {
    let is_edit = match name {
        Some(name) => tool.facts().edits.contains(&name),
        // Some versions of Cursor leave the name out.
        None => tool == Tool::Cursor && input.is_some_and(|input| command_of(input).is_none()),
    };
    let facts = tool.facts();
    let is_shell = name.is_some_and(|name| facts.shells.contains(&name));
    let may_be_patch = is_shell && facts.has_patching_shell;
    if !is_edit && !may_be_patch {
        return None;
    }
    let mut files = Vec::new();
    if let Some(input) = input {
        collect(input, &mut files);
    }
    Some(files).filter(|files| is_edit || !files.is_empty())
}

/// The shell command in the input of a tool.
fn command_of(input: &Value) -> Option<String> {
    match input {
        // Some versions of Cursor send the fields as text.
        Value::String(text) => command_of(&serde_json::from_str::<Value>(text).ok()?),
        fields => Some(fields.get("command")?.as_str()?.to_owned()),
    }
}

/// The fields that name a file, in the tools of all agents.
const FIELDS: [&str; 5] = [
    "file_path",
    "notebook_path",
    "path",
    "target_file",
    "target_notebook",
];

fn collect(input: &Value, files: &mut Vec<PathBuf>) {
    let mut add = |file: &str| {
        let file = PathBuf::from(file);
        if !files.contains(&file) {
            files.push(file);
        }
    };
    match input {
        Value::Object(fields) => {
            for name in FIELDS {
                if let Some(Value::String(file)) = fields.get(name)
                    && !file.is_empty()
                {
                    add(file);
                }
            }
            // A patch is one text, in a field whose name has changed between versions.
            let texts = fields.values().flat_map(|value| match value {
                Value::Array(values) => values.as_slice(),
                value => std::slice::from_ref(value),
            });
            for text in texts.filter_map(Value::as_str) {
                if text.contains(patch::BEGIN) {
                    patch::files(text).into_iter().for_each(&mut add);
                }
            }
        }
        Value::String(text) if text.contains(patch::BEGIN) => {
            patch::files(text).into_iter().for_each(add);
        }
        // Some versions of Cursor send the fields as text.
        Value::String(text) => {
            if let Ok(inner @ Value::Object(_)) = serde_json::from_str(text) {
                collect(&inner, files);
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn what(tool: Tool, input: &Value) -> What {
        Event::parse(tool, input).unwrap().what
    }

    fn before(files: &[&str]) -> What {
        What::BeforeEdit(files.iter().map(PathBuf::from).collect())
    }

    #[test]
    fn every_edit_of_every_agent_names_its_file() {
        let claude = |tool: &str, field: &str| {
            json!({ "session_id": "s", "cwd": "/w", "hook_event_name": "PreToolUse", "tool_name": tool,
                    "tool_input": { field: "/w/a.rs", "old_string": "file_path" } })
        };
        for tool in ["Edit", "MultiEdit", "Write"] {
            assert_eq!(
                what(Tool::ClaudeCode, &claude(tool, "file_path")),
                before(&["/w/a.rs"])
            );
        }
        let notebook = claude("NotebookEdit", "notebook_path");
        assert_eq!(what(Tool::ClaudeCode, &notebook), before(&["/w/a.rs"]));
        assert_eq!(
            what(Tool::ClaudeCode, &claude("Read", "file_path")),
            What::Pause
        );
        let patch = "*** Begin Patch\n*** Add File: a\n+x\n*** Delete File: b\n*** End Patch";
        for input in [
            json!({ "command": patch }),
            json!({ "input": patch }),
            json!({ "command": ["apply_patch", patch] }),
        ] {
            let input = json!({ "session_id": "s", "hook_event_name": "PreToolUse", "tool_name": "apply_patch", "tool_input": input });
            assert_eq!(what(Tool::Codex, &input), before(&["a", "b"]));
        }
        let bash = |command: &str| json!({ "session_id": "s", "hook_event_name": "PreToolUse", "tool_name": "Bash", "tool_input": { "command": command } });
        let heredoc = format!("apply_patch <<'EOF'\n{patch}\nEOF\n");
        assert_eq!(what(Tool::Codex, &bash(&heredoc)), before(&["a", "b"]));
        let command = |line: &str| What::BeforeCommand(line.to_owned());
        assert_eq!(what(Tool::Codex, &bash("rm -rf a")), command("rm -rf a"));
        assert_eq!(what(Tool::ClaudeCode, &bash(&heredoc)), command(&heredoc));
        let gemini = json!({ "session_id": "s", "hook_event_name": "BeforeTool", "tool_name": "replace",
                             "tool_input": { "file_path": "a" } });
        assert_eq!(what(Tool::Gemini, &gemini), before(&["a"]));
        for (name, input) in [
            (json!("Write"), json!({ "path": "a" })),
            (json!("StrReplace"), json!({ "file_path": "a" })),
            (Value::Null, json!("{\"path\":\"a\"}")),
            (
                json!("ApplyPatch"),
                json!("*** Begin Patch\n*** Update File: a\n*** End Patch"),
            ),
        ] {
            let cursor = json!({ "conversation_id": "c", "hook_event_name": "preToolUse", "tool_name": name, "tool_input": input });
            assert_eq!(what(Tool::Cursor, &cursor), before(&["a"]), "{cursor}");
        }
    }

    #[test]
    fn the_ends_of_turns_and_sessions_are_told_apart() {
        for (tool, turn, session) in [
            (Tool::ClaudeCode, "Stop", "SessionEnd"),
            (Tool::Codex, "Stop", "SessionEnd"),
            (Tool::Gemini, "AfterAgent", "SessionEnd"),
            (Tool::Cursor, "stop", "sessionEnd"),
        ] {
            let event = |name: &str| json!({ "session_id": "s", "hook_event_name": name });
            assert_eq!(what(tool, &event(turn)), What::TurnEnd);
            assert_eq!(what(tool, &event(session)), What::SessionEnd);
            assert_eq!(what(tool, &event("SubagentStop")), What::ChildEnd);
            // Of a sub-agent, it is no end of the session's turn.
            let of_child =
                json!({ "session_id": "s", "hook_event_name": turn, "agent_id": "child" });
            assert_eq!(what(tool, &of_child), What::ChildEnd);
        }
    }

    #[test]
    fn a_turn_goes_on_while_sub_agents_work_in_the_background() {
        let stop = |kinds: &[&str]| {
            let tasks = kinds
                .iter()
                .map(|kind| json!({ "id": "1", "type": kind, "status": "running" }));
            let tasks: Vec<Value> = tasks.collect();
            let event =
                json!({ "session_id": "s", "hook_event_name": "Stop", "background_tasks": tasks });
            what(Tool::ClaudeCode, &event)
        };
        assert_eq!(stop(&[]), What::TurnEnd);
        assert_eq!(stop(&["shell", "monitor"]), What::TurnEnd);
        assert_eq!(stop(&["shell", "subagent"]), What::Work);
    }

    #[test]
    fn what_can_not_be_understood_is_an_error() {
        for input in [
            json!([]),
            json!(null),
            json!({}),
            json!({ "hook_event_name": "Stop" }),
            json!({ "hook_event_name": "Stop", "session_id": "" }),
            json!({ "hook_event_name": 7, "session_id": "s" }),
            json!({ "hook_event_name": "PreToolUse", "session_id": "s", "tool_name": "Write" }),
            json!({ "hook_event_name": "PreToolUse", "session_id": "s", "tool_name": "Write", "tool_input": { "file_path": 3 } }),
        ] {
            let read = Event::parse(Tool::ClaudeCode, &input);
            assert!(read.is_err(), "{input}");
        }
    }

    #[test]
    fn the_folder_is_the_one_that_the_agent_works_in() {
        let event = |input: Value| Event::parse(Tool::Cursor, &input).unwrap();
        let input = json!({ "conversation_id": "c", "hook_event_name": "stop", "workspace_roots": ["/w", "/v"] });
        assert_eq!(event(input).folder, Some(PathBuf::from("/w")));
        let input = json!({ "conversation_id": "c", "hook_event_name": "stop" });
        assert_eq!(event(input).folder, None);
    }
}
