//! Adding tenure's hooks to the file that configures an agent, and taking them out again: [`add`], [`remove`].
//!
//! 1. Bytes that are not tenure's stay as they are: comments, order, indentation, line ends.
//! 2. Adding twice changes nothing.
//! 3. Removing undoes adding, byte for byte.
//! 4. A file that can't be understood is an error, and there is no edit. What an edit gives is parsed again.

use serde_json::Value;

use crate::jsonc::{self, Bad, Kind, Member, Node, Style};
use crate::tool::Tool;

/// Why a file is left alone.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadFile {
    /// It is no JSON.
    #[error("line {line} has {what}")]
    Syntax {
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        what: &'static str,
    },
    /// It has another shape than the agent documents.
    #[error("{what} is {found}, not {wanted}")]
    Shape {
        /// Which value.
        what: String,
        /// What it is.
        found: &'static str,
        /// What it should be.
        wanted: &'static str,
    },
    /// A name is there twice, so it is not plain which one counts.
    #[error("{0} is there twice")]
    Twice(String),
    /// A file of Cursor without its version.
    #[error("\"version\" is missing: Cursor requires \"version\": 1")]
    NoVersion,
}

/// The file with tenure's hooks; the same text if it has them already. `None` is a file that does not exist.
pub fn add(tool: Tool, text: Option<&str>) -> Result<String, BadFile> {
    let Some(text) = text else {
        return Ok(new_file(tool));
    };
    if is_blank(text) {
        // Without the newline at the end, which tells that there was a file.
        return Ok(format!("{text}{}", new_file(tool).trim_end()));
    }
    let root = understood(tool, text)?;
    if is_complete(tool, &root) {
        return Ok(text.to_owned());
    }
    // Hooks of an earlier version make room for the current ones.
    let Some(mut text) = without(tool, text)? else {
        return Ok(new_file(tool));
    };
    for (event, entry) in tool.entries() {
        let root = understood(tool, &text)?;
        let style = Style::of(&text);
        let name = |name: &str, value: String| format!("\"{name}\": {value}");
        let hooks = find(&root, "hooks");
        let list = hooks.and_then(|hooks| find(hooks, event));
        text = match (hooks, list) {
            (_, Some(list)) => jsonc::insert(&text, list, &style.shown(&entry, 3), &style, 3),
            (Some(hooks), None) => {
                let list = Value::Array(vec![entry]);
                let member = name(event, style.shown(&list, 2));
                jsonc::insert(&text, hooks, &member, &style, 2)
            }
            (None, None) => {
                let list = Value::Array(vec![entry]);
                let hooks = Value::Object([(event.to_owned(), list)].into_iter().collect());
                let member = name("hooks", style.shown(&hooks, 1));
                jsonc::insert(&text, &root, &member, &style, 1)
            }
        };
    }
    understood(tool, &text)?;
    Ok(text)
}

/// The file without tenure's hooks; `None` if it should not exist any more, because tenure made it.
pub fn remove(tool: Tool, text: &str) -> Result<Option<String>, BadFile> {
    if text == new_file(tool) {
        return Ok(None);
    }
    if let Some(blank) = text
        .strip_suffix(new_file(tool).trim_end())
        .filter(|it| is_blank(it))
    {
        return Ok(Some(blank.to_owned()));
    }
    if is_blank(text) {
        return Ok(Some(text.to_owned()));
    }
    understood(tool, text)?;
    without(tool, text)
}

/// Whether a file has no value yet.
fn is_blank(text: &str) -> bool {
    text.trim_start_matches('\u{feff}').trim().is_empty()
}

fn new_file(tool: Tool) -> String {
    let style = Style::of("");
    format!("{}\n", style.shown(&tool.new_file(), 0))
}

fn without(tool: Tool, text: &str) -> Result<Option<String>, BadFile> {
    let mut text = text.to_owned();
    loop {
        let root = understood(tool, &text)?;
        match last_own(tool, &root) {
            None => return Ok(Some(text)),
            Some(place) => match take(&text, &root, &place) {
                None => return Ok(None),
                Some(shorter) => text = shorter,
            },
        }
    }
}

/// Where a hook is: the containers from the root to it, and the index in each.
type Place<'a> = Vec<(&'a Node, usize)>;

/// Takes out what is at a place, and the containers that were made for it; `None` if that is the whole file.
fn take(text: &str, root: &Node, place: &Place<'_>) -> Option<String> {
    let made = place
        .iter()
        .rev()
        .take_while(|(container, _)| jsonc::is_made(text, container))
        .count();
    if made == place.len() {
        // A file with nothing else in it, not even a comment before or after.
        let outside = text.len() - root.span.len();
        let blank = text.trim().len() == root.span.len();
        if blank && outside <= 2 {
            return None;
        }
    }
    let kept = (place.len() - made).max(1) - 1;
    let (container, index) = place.get(kept)?;
    Some(jsonc::take(text, container, *index))
}

/// The last hook of tenure in a file. The last one is taken first, so that removing is adding backwards.
fn last_own(tool: Tool, root: &Node) -> Option<Place<'_>> {
    let at_root = index_of(root, "hooks")?;
    let hooks = find(root, "hooks")?;
    for (event, member) in hooks.members()?.iter().enumerate().rev() {
        let Some(entries) = member.value.items() else {
            continue;
        };
        for (index, entry) in entries.iter().enumerate().rev() {
            let mut place = vec![(root, at_root), (hooks, event), (&member.value, index)];
            if is_own(tool, entry) {
                return Some(place);
            }
            // A group with hooks of others in it.
            let Some(group) = index_of(entry, "hooks") else {
                continue;
            };
            let handlers = find(entry, "hooks")?;
            let own = handlers.items().unwrap_or_default();
            let own = own.iter().rposition(|handler| is_own(tool, handler));
            if let Some(own) = own {
                let others = handlers.items().is_some_and(|all| all.len() > 1);
                if others {
                    place.push((entry, group));
                    place.push((handlers, own));
                }
                return Some(place);
            }
        }
    }
    None
}

/// Whether a value is a hook of tenure.
fn is_own(tool: Tool, hook: &Node) -> bool {
    let command = find(hook, "command").map(Node::value);
    matches!(command, Some(Value::String(command)) if tool.is_own_command(&command))
}

/// Whether a file has exactly the hooks that it should have.
fn is_complete(tool: Tool, root: &Node) -> bool {
    let entries = tool.entries();
    let Some(hooks) = find(root, "hooks") else {
        return false;
    };
    let has = |event: &str, entry: &Value| {
        let list = find(hooks, event).and_then(Node::items);
        list.is_some_and(|list| list.iter().any(|item| item.value() == *entry))
    };
    let own = hooks.members().unwrap_or_default().iter();
    let own = own.flat_map(|member| member.value.items().unwrap_or_default());
    let own = own.map(|entry| {
        let handlers = find(entry, "hooks").and_then(Node::items);
        let nested = handlers.unwrap_or_default().iter();
        usize::from(is_own(tool, entry)) + nested.filter(|hook| is_own(tool, hook)).count()
    });
    entries.iter().all(|(event, entry)| has(event, entry)) && own.sum::<usize>() == entries.len()
}

/// Parses a file and checks the shape of what will be edited.
fn understood(tool: Tool, text: &str) -> Result<Node, BadFile> {
    let root = jsonc::parse(text).map_err(|Bad { what, at }| BadFile::Syntax {
        line: 1 + text.bytes().take(at).filter(|byte| *byte == b'\n').count(),
        what,
    })?;
    let members = object("the file", &root)?;
    once(members, "")?;
    if tool == Tool::Cursor && find(&root, "version").is_none() {
        return Err(BadFile::NoVersion);
    }
    if let Some(hooks) = find(&root, "hooks") {
        let events = object("\"hooks\"", hooks)?;
        once(events, "hooks.")?;
        for event in events {
            let what = format!("\"hooks.{}\"", event.key);
            let known = tool.entries().iter().any(|(name, _)| *name == event.key);
            if known && event.value.items().is_none() {
                return Err(shape(&what, &event.value, "a list"));
            }
            for entry in event.value.items().unwrap_or_default() {
                once(entry.members().unwrap_or_default(), "")?;
            }
        }
    }
    Ok(root)
}

fn object<'a>(what: &str, node: &'a Node) -> Result<&'a [Member], BadFile> {
    node.members().ok_or_else(|| shape(what, node, "an object"))
}

fn shape(what: &str, node: &Node, wanted: &'static str) -> BadFile {
    let found = match &node.kind {
        Kind::Object(_) => "an object",
        Kind::Array(_) => "a list",
        Kind::Scalar(Value::String(_)) => "a text",
        Kind::Scalar(_) => "a single value",
    };
    BadFile::Shape {
        what: what.to_owned(),
        found,
        wanted,
    }
}

fn once(members: &[Member], within: &str) -> Result<(), BadFile> {
    for (index, member) in members.iter().enumerate() {
        let rest = members.get(index + 1..).unwrap_or_default();
        if rest.iter().any(|other| other.key == member.key) {
            return Err(BadFile::Twice(format!("\"{within}{}\"", member.key)));
        }
    }
    Ok(())
}

fn index_of(node: &Node, name: &str) -> Option<usize> {
    node.members()?.iter().position(|member| member.key == name)
}

fn find<'a>(node: &'a Node, name: &str) -> Option<&'a Node> {
    let member = node.members()?.iter().find(|member| member.key == name)?;
    Some(&member.value)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files as people have them, and worse ones.
    fn files() -> Vec<String> {
        let roots = [
            "{}",
            "{ }",
            "{\n}\n",
            "{ /* c */ }",
            "{\n  // c\n}",
            "{ // c\r\n}\r\n",
        ];
        let mut files: Vec<String> = roots.iter().map(|&root| root.to_owned()).collect();
        files.extend(["", "\n", "\u{feff}", " \r\n"].map(str::to_owned));
        let hooks = [
            "{}",
            "{ }",
            "{\n  }",
            "{ /* c */ }",
            "{ \"PreToolUse\": [] }",
            "{ \"PreToolUse\": [ ] , \"Stop\": [\n    ],\n}",
            "{\"PreToolUse\":[{\"matcher\":\"Bash\",\"hooks\":[{\"type\":\"command\",\"command\":\"x\"}]}]}",
            "{ \"Stop\": [ {\"hooks\": []} // c\n ] // d\n }",
            "{ \"Stop\": [ {\"hooks\": []}, // c\n ], // d\n }",
            "{ \"BeforeTool\": [/* c */], \"preToolUse\": [{\"command\": \"y\"} /* c */ , ] }",
            "{ \"Other\": {\"command\": \"tenure hook other\"} }",
        ];
        for hooks in hooks {
            for (before, after) in [
                ("", ""),
                ("\n  \"a\": 1,\n  ", "\n"),
                (
                    "\n\t\"a\": [1, {\"b\": null}], // c\n\t",
                    ",\n\t\"z\": \"\\u00e9\\\"\" /* d */\n",
                ),
                ("\u{20}", " , // trailing\n"),
            ] {
                files.push(format!("{{{before}\"hooks\": {hooks}{after}}}"));
                files.push(format!(
                    "\u{feff}// top\n{{{before}\"hooks\": {hooks}{after}}}\n// end"
                ));
            }
        }
        for before in [
            "{\"a\":1}",
            "{\n    \"a\": 1 // c\n}\n",
            "{\n  \"a\": {\"hooks\": 3},\n}",
            "{\"a\":\"hooks\"}\n\n",
        ] {
            files.push(before.to_owned());
        }
        let windows: Vec<String> = files
            .iter()
            .map(|file| file.replace('\n', "\r\n"))
            .collect();
        files.extend(windows);
        files
    }

    fn for_tool(tool: Tool, file: &str) -> String {
        match tool {
            _ if is_blank(file) => file.to_owned(),
            Tool::Cursor if file.contains('1') => file.replacen("\"a\"", "\"version\"", 1),
            Tool::Cursor => file
                .replacen('{', "{\"version\": 1,", 1)
                .replacen("1,}", "1}", 1),
            _ => file.to_owned(),
        }
    }

    #[test]
    fn removing_undoes_adding_byte_for_byte_and_adding_twice_changes_nothing() {
        let mut tried = 0;
        for tool in Tool::ALL {
            for file in files() {
                let before = for_tool(tool, &file);
                let Ok(after) = add(tool, Some(&before)) else {
                    assert_eq!(tool, Tool::Cursor, "{before}");
                    continue;
                };
                tried += 1;
                assert_ne!(after, before);
                assert_eq!(add(tool, Some(&after)).unwrap(), after, "twice: {before}");
                assert!(is_complete(tool, &jsonc::parse(&after).unwrap()), "{after}");
                let undone = remove(tool, &after).unwrap();
                assert_eq!(
                    undone.as_deref(),
                    Some(before.as_str()),
                    "{tool:?}: {after}"
                );
            }
            let made = add(tool, None).unwrap();
            assert_eq!(add(tool, Some(&made)).unwrap(), made);
            assert_eq!(remove(tool, &made).unwrap(), None);
        }
        assert!(tried > 500, "{tried}");
    }

    #[test]
    fn other_values_keep_their_order_and_comments() {
        let before = "{\n  // model\n  \"model\": \"x\", // best\n  \"hooks\": {\n    \"Stop\": [ { \"hooks\": [ ] } ] // mine\n  }\n}\n";
        let after = add(Tool::ClaudeCode, Some(before)).unwrap();
        assert!(after.starts_with("{\n  // model\n  \"model\": \"x\", // best\n  \"hooks\": {\n    \"Stop\": [ { \"hooks\": [ ] },\n      {\n        \"hooks\""), "{after}");
        assert!(after.contains("], // mine\n    \"PreToolUse\""), "{after}");
    }

    #[test]
    fn an_agent_takes_what_was_added_by_others_along() {
        let ours = add(Tool::ClaudeCode, None).unwrap();
        // Another tool adds its own hook after ours, and one into our group.
        let changed = ours.replacen(
            "\"Stop\": [",
            "\"Stop\": [{\"hooks\": [{\"type\": \"command\", \"command\": \"beep\"}]}, ",
            1,
        );
        let changed = changed.replacen(
            "\"timeout\": 10\n          }",
            "\"timeout\": 10\n          }, {\"type\": \"command\", \"command\": \"lint\"}",
            1,
        );
        let left = remove(Tool::ClaudeCode, &changed).unwrap().unwrap();
        let value = jsonc::parse(&left).unwrap().value();
        assert_eq!(
            value,
            serde_json::json!({ "hooks": {
                "PreToolUse": [{ "matcher": "Edit|MultiEdit|Write|NotebookEdit", "hooks": [{ "type": "command", "command": "lint" }] }],
                "Stop": [{ "hooks": [{ "type": "command", "command": "beep" }] }],
            } })
        );
    }

    #[test]
    fn hooks_of_an_earlier_version_are_replaced() {
        let ours = add(Tool::Gemini, None).unwrap();
        let earlier = ours
            .replace("write_file|replace", "write_file")
            .replace("tenure hook", "/opt/tenure hook");
        assert_eq!(add(Tool::Gemini, Some(&earlier)).unwrap(), ours);
        let mixed = earlier.replacen('{', "{\n  \"a\": 1,", 1);
        let after = add(Tool::Gemini, Some(&mixed)).unwrap();
        assert!(!after.contains("/opt"), "{after}");
        assert_eq!(
            remove(Tool::Gemini, &after).unwrap().unwrap(),
            "{\n  \"a\": 1\n}\n"
        );
    }

    #[test]
    fn a_file_that_can_not_be_understood_is_an_error() {
        for (text, why) in [
            ("// c", "line 1 has the end of the file"),
            ("{\n\"a\": 1", "line 2 has no comma"),
            ("{\"a\": 1,, }", "a name that is not in double quotes"),
            ("{\"a\": tru}", "something that is no value"),
            ("{\"a\": \"\\q\"}", "an escape that does not exist"),
            ("{\"a\": \"x\n\"}", "without a closing quote"),
            ("{} {}", "text after the end"),
            ("{ /* ", "a comment without an end"),
            ("[]", "the file is a list, not an object"),
            ("{\"hooks\": []}", "\"hooks\" is a list, not an object"),
            (
                "{\"hooks\": {\"Stop\": {}}}",
                "\"hooks.Stop\" is an object, not a list",
            ),
            ("{\"hooks\": {}, \"hooks\": {}}", "\"hooks\" is there twice"),
            (
                "{\"hooks\": {\"Stop\": [], \"Stop\": []}}",
                "\"hooks.Stop\" is there twice",
            ),
        ] {
            for error in [
                add(Tool::ClaudeCode, Some(text)).unwrap_err(),
                remove(Tool::ClaudeCode, text).unwrap_err(),
            ] {
                assert!(error.to_string().contains(why), "{text}: {error}");
            }
        }
        let deep = "[".repeat(100_000);
        assert!(add(Tool::Codex, Some(&deep)).is_err());
        assert_eq!(add(Tool::Cursor, Some("{}")), Err(BadFile::NoVersion));
    }
}
