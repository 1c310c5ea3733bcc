//! Adding tenure's hooks to the file that configures an agent, and taking them out again: [`add`], [`remove`].
//!
//! 1. Bytes that are not tenure's stay as they are: comments, order, indentation, line ends.
//! 2. Adding twice changes nothing.
//! 3. Removing undoes adding, byte for byte.
//! 4. A file that can't be understood is an error, and there is no edit. What an edit gives is parsed again.

use std::collections::HashSet;

use jsonc_parser::ast::{Object, Value as Node};
use jsonc_parser::common::Ranged;
use serde_json::Value;

use super::jsonc::{self, Style};
use crate::agents::tool::Tool;

/// Why a file is left alone.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum BadFile {
    /// It is no JSON.
    #[error("line {line}: {what}")]
    Syntax {
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        what: String,
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
    let new = new_file(tool);
    let Some(text) = text else {
        return Ok(new);
    };
    if is_blank(text) {
        // Without the newline at the end, which tells that there was a file.
        return Ok(format!("{text}{}", new.trim_end()));
    }
    let (mark, text) = marked(text);
    if is_complete(tool, &understood(tool, text)?) {
        return Ok(format!("{mark}{text}"));
    }
    // Hooks of an earlier version make room for the current ones.
    let Some(mut text) = without(tool, text)? else {
        return Ok(format!("{mark}{new}"));
    };
    for (event, entry) in tool.entries() {
        let root = understood(tool, &text)?;
        let style = Style::of(&text);
        let name = |name: &str, value: String| format!("\"{name}\": {value}");
        let hooks = member(&root, "hooks").map(|(_, hooks)| hooks);
        let list = hooks.and_then(|hooks| member(hooks, event));
        text = match (hooks, list) {
            (_, Some((_, list))) => jsonc::insert(&text, list, &style.shown(&entry, 3), &style, 3),
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
    Ok(format!("{mark}{text}"))
}

/// The file without tenure's hooks; `None` if it should not exist any more, because tenure made it.
pub fn remove(tool: Tool, text: &str) -> Result<Option<String>, BadFile> {
    let new = new_file(tool);
    if text == new {
        return Ok(None);
    }
    let blank = text.strip_suffix(new.trim_end()).unwrap_or(text);
    if is_blank(blank) {
        return Ok(Some(blank.to_owned()));
    }
    let (mark, text) = marked(text);
    Ok(without(tool, text)?.map(|text| format!("{mark}{text}")))
}

/// What some editors write before a text, and the text.
fn marked(text: &str) -> (&str, &str) {
    text.split_at(text.len() - text.strip_prefix('\u{feff}').unwrap_or(text).len())
}

/// Whether a file has no value yet.
fn is_blank(text: &str) -> bool {
    marked(text).1.trim_matches(jsonc::BLANK).is_empty()
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
type HookPlace<'a> = Vec<(&'a Node<'a>, usize)>;

/// Takes out what is at a place, and the containers that were made for it; `None` if that is the whole file.
fn take(text: &str, root: &Node<'_>, place: &HookPlace<'_>) -> Option<String> {
    let made = place
        .iter()
        .rev()
        .take_while(|(container, _)| jsonc::is_made(text, container))
        .count();
    if made == place.len() {
        // A file with nothing else in it, not even a comment before or after.
        let outside = text.len() - root.width();
        let blank = text.trim().len() == root.width();
        if blank && outside <= 2 {
            return None;
        }
    }
    let kept = (place.len() - made).max(1) - 1;
    let (container, index) = place.get(kept)?;
    Some(jsonc::take(text, container, *index))
}

/// The last hook of tenure in a file. The last one is taken first, so that removing is adding backwards.
fn last_own<'a>(tool: Tool, root: &'a Node<'a>) -> Option<HookPlace<'a>> {
    let (at_root, hooks) = member(root, "hooks")?;
    for (event, list) in hooks.as_object()?.properties.iter().enumerate().rev() {
        for (index, entry) in items(&list.value).iter().enumerate().rev() {
            let mut place = vec![(root, at_root), (hooks, event), (&list.value, index)];
            if is_own(tool, entry) {
                return Some(place);
            }
            let Some((group, handlers)) = member(entry, "hooks") else {
                continue;
            };
            let own = items(handlers).iter().rposition(|it| is_own(tool, it));
            if let Some(own) = own {
                // A group with hooks of others in it stays.
                if items(handlers).len() > 1 {
                    place.extend([(entry, group), (handlers, own)]);
                }
                return Some(place);
            }
        }
    }
    None
}

/// Whether a value is a hook of tenure.
fn is_own(tool: Tool, hook: &Node<'_>) -> bool {
    let command = hook.as_object().and_then(|hook| hook.get_string("command"));
    command.is_some_and(|command| tool.is_own_command(&command.value))
}

/// Whether a file has exactly the hooks that it should have.
fn is_complete(tool: Tool, root: &Node<'_>) -> bool {
    let entries = tool.entries();
    let Some((_, hooks)) = member(root, "hooks") else {
        return false;
    };
    let has = |event: &str, entry: &Value| {
        let list = member(hooks, event).map_or(&[][..], |(_, list)| items(list));
        list.iter().any(|item| Value::from(item.clone()) == *entry)
    };
    let events = hooks.as_object().map_or(&[][..], |it| &it.properties);
    let own = events.iter().flat_map(|event| items(&event.value));
    let own = own.map(|entry| {
        let nested = member(entry, "hooks").map_or(&[][..], |(_, list)| items(list));
        usize::from(is_own(tool, entry)) + nested.iter().filter(|it| is_own(tool, it)).count()
    });
    entries.iter().all(|(event, entry)| has(event, entry)) && own.sum::<usize>() == entries.len()
}

/// Parses a file and checks the shape of what will be edited.
fn understood(tool: Tool, text: &str) -> Result<Node<'_>, BadFile> {
    let root = jsonc::parse(text)?;
    let members = object("the file", &root)?;
    once(members, "")?;
    if tool == Tool::Cursor && members.get("version").is_none() {
        return Err(BadFile::NoVersion);
    }
    if let Some(hooks) = members.get("hooks") {
        let events = object("\"hooks\"", &hooks.value)?;
        once(events, "hooks.")?;
        for event in &events.properties {
            let name = event.name.as_str();
            let known = tool.entries().iter().any(|(known, _)| *known == name);
            if known && event.value.as_array().is_none() {
                return Err(shape(&format!("\"hooks.{name}\""), &event.value, "a list"));
            }
            for entry in items(&event.value).iter().filter_map(Node::as_object) {
                once(entry, "")?;
            }
        }
    }
    Ok(root)
}

fn object<'a>(what: &str, node: &'a Node<'a>) -> Result<&'a Object<'a>, BadFile> {
    let wrong = || shape(what, node, "an object");
    node.as_object().ok_or_else(wrong)
}

fn shape(what: &str, node: &Node<'_>, wanted: &'static str) -> BadFile {
    let found = match node {
        Node::Object(_) => "an object",
        Node::Array(_) => "a list",
        Node::StringLit(_) => "a text",
        Node::NumberLit(_) | Node::BooleanLit(_) | Node::NullKeyword(_) => "a single value",
    };
    BadFile::Shape {
        what: what.to_owned(),
        found,
        wanted,
    }
}

fn once(object: &Object<'_>, within: &str) -> Result<(), BadFile> {
    let mut names = HashSet::new();
    let mut all = object.properties.iter().map(|member| member.name.as_str());
    all.find(|name| !names.insert(*name))
        .map_or(Ok(()), |name| {
            Err(BadFile::Twice(format!("\"{within}{name}\"")))
        })
}

/// A member of an object, and its index.
fn member<'a>(node: &'a Node<'a>, name: &str) -> Option<(usize, &'a Node<'a>)> {
    let mut members = node.as_object()?.properties.iter().enumerate();
    let (index, member) = members.find(|(_, member)| member.name.as_str() == name)?;
    Some((index, &member.value))
}

/// The items of a list; none if it is none.
fn items<'a>(node: &'a Node<'a>) -> &'a [Node<'a>] {
    node.as_array().map_or(&[], |list| &list.elements)
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;
    use proptest::sample;

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
            "{ // c\r\"a\": 1\r}",
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
                assert!(
                    is_complete(tool, &jsonc::parse(marked(&after).1).unwrap()),
                    "{after}"
                );
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
    fn values_may_be_nested_deeply() {
        let deep = ["[".repeat(500), "]".repeat(500)].concat();
        let before = format!("{{\"hooks\": {{\"Stop\": [{deep}]}}}}");
        let after = add(Tool::Codex, Some(&before)).unwrap();
        assert_eq!(remove(Tool::Codex, &after).unwrap(), Some(before));
    }

    /// Pieces that mean something to a parser, or to another one.
    const PIECES: [&str; 32] = [
        "{",
        "}",
        "[",
        "]",
        ",",
        ":",
        "\"",
        "'",
        "\\",
        "\\u",
        "\\ud800",
        "/",
        "//",
        "/*",
        "*/",
        "\n",
        "\r\n",
        "\r",
        " ",
        "\t",
        "\u{feff}",
        "\u{a0}",
        "\u{b}",
        "\u{2028}",
        "é",
        "\0",
        "null",
        "-1.5e",
        "0x1",
        "\"a\"",
        "\"hooks\"",
        "\"Stop\"",
    ];

    proptest! {
        #[test]
        fn a_mangled_file_is_refused_or_edited_so_that_removing_undoes_it(
            file in sample::select(files()),
            tool in sample::select(Tool::ALL.to_vec()),
            edits in vec((any::<sample::Index>(), 0..9_usize, sample::select(PIECES.to_vec())), 0..4),
        ) {
            let mut file: Vec<char> = for_tool(tool, &file).chars().collect();
            for (at, length, piece) in edits {
                let at = at.index(file.len() + 1);
                let end = (at + length).min(file.len());
                file.splice(at..end, piece.chars());
            }
            let before: String = file.into_iter().collect();
            if let Ok(after) = add(tool, Some(&before)) {
                prop_assert_eq!(add(tool, Some(&after)), Ok(after.clone()));
                prop_assert_eq!(remove(tool, &after), Ok(Some(before)));
            } else {
                prop_assert!(remove(tool, &before).is_err());
            }
        }
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
        let value = Value::from(jsonc::parse(&left).unwrap());
        assert_eq!(
            value,
            serde_json::json!({ "hooks": {
                "PreToolUse": [{ "matcher": "Edit|MultiEdit|Write|NotebookEdit|Bash|mcp__.*", "hooks": [{ "type": "command", "command": "lint" }] }],
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
            ("\n// c", "line 2: Unexpected end of the file"),
            ("{\"a\":\n{", "line 2: Unterminated object"),
            ("{\n\"a\": [", "line 2: Unterminated array"),
            ("{\"a\": 1,, }", "Unexpected token in object"),
            ("{\"a\": tru }", "Unexpected word"),
            ("{\"a\": \"\\q\"}", "Invalid escape"),
            ("{} {}", "more than one JSON value"),
            ("{ /* ", "Unterminated comment block"),
            // What the parser would let pass.
            ("{\n\"a\": \"x\ny\"}", "line 2: Control character"),
            ("{\"a\t\": 1}", "Control character"),
            ("{}\u{a0}", "Unexpected blank"),
            ("{\n\u{b}\"a\": 1}", "Unexpected blank"),
            ("{\"a\": .5}", "decimal points on numbers"),
            ("{a: 1}", "Expected string for object property"),
            ("{'a': 1}", "Single-quoted"),
            ("{\"a\": 1 \"b\": 2}", "Expected comma"),
            ("{\"a\": 0x1}", "Hexadecimal"),
            ("{\"a\": +1}", "Unary plus"),
            ("{\"a\": NaN }", "Unexpected word"),
            ("{\"a\": \"\\x41\"}", "Invalid escape"),
            ("\u{feff}\u{feff}", "Unexpected token"),
            ("\u{a0}", "Unexpected blank"),
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
        for deep in ["[", "{\"a\":", "{\"hooks\":{\"Stop\":["] {
            assert!(add(Tool::Codex, Some(&deep.repeat(100_000))).is_err());
        }
        assert_eq!(add(Tool::Cursor, Some("{}")), Err(BadFile::NoVersion));
    }
}
