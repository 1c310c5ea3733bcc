//! The part of `docs/reference/cli.md` that is made from the sources: the types behind `--json`, and the
//! error codes with their exit codes.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

/// The tables of all types, in the order of the sources.
pub(super) fn types(crates: &Path) -> String {
    let mut out = String::new();
    for name in [
        "lease",
        "reservation",
        "task",
        "sync",
        "daemon",
        "foreign",
        "ledger",
        "board",
        "store",
        "config",
        "project",
        "view",
        "guard",
    ] {
        let text = source(crates, &format!("tenure/src/wire/{name}.rs"));
        let mut docs: Vec<&str> = Vec::new();
        let mut flatten = false;
        let mut attribute = false;
        // The type whose body these lines are.
        let mut within = false;
        for line in text.lines() {
            let bare = line.trim();
            if attribute || (bare.starts_with("#[") && !bare.ends_with(']')) {
                attribute = !bare.ends_with(']');
                continue;
            }
            if let Some(doc) = bare.strip_prefix("/// ") {
                docs.push(doc);
            } else if bare == "#[serde(flatten)]" {
                flatten = true;
            } else if let Some(name) = declared(line) {
                let _ = write!(
                    out,
                    "#### {name}\n\n{}\n\n| | type | |\n|---|---|---|\n",
                    docs.join(" ")
                );
                (within, docs) = (true, Vec::new());
            } else if line == "}" {
                if within {
                    out.push('\n');
                }
                (within, docs) = (false, Vec::new());
            } else if within && !bare.is_empty() && !bare.starts_with(['#', '/', '}', ')']) {
                if let Some(row) = row(line, &docs.join(" "), flatten) {
                    out.push_str(&row);
                }
                (docs, flatten) = (Vec::new(), false);
            } else if !bare.starts_with("#[") {
                docs.clear();
            }
        }
    }
    out.trim_end().to_owned()
}

/// The name of a type that begins on this line.
fn declared(line: &str) -> Option<&str> {
    let rest = line
        .strip_prefix("pub struct ")
        .or_else(|| line.strip_prefix("pub enum "))?;
    let name = rest.split(['<', ' ']).next()?;
    Some(name.strip_suffix("Json").unwrap_or(name))
}

/// A field of a struct or a variant of an enum.
fn row(line: &str, docs: &str, flatten: bool) -> Option<String> {
    let bare = line.trim().trim_end_matches(',');
    let field = bare.strip_prefix("pub ");
    let indent = line.len() - line.trim_start().len();
    if let Some((name, kind)) = field.unwrap_or(bare).split_once(": ") {
        let (name, kind) = (camel(name.trim_start_matches("r#")), shown(kind));
        let within = if indent > 4 { "&nbsp;&nbsp;" } else { "" };
        return Some(if flatten {
            format!("| | {kind} | {docs} All its fields are here. |\n")
        } else {
            format!("| {within}`{name}` | {kind} | {docs} |\n")
        });
    }
    // A variant: its word, or the type that stands for it.
    let name = bare.trim_end_matches(" {");
    match name.split_once('(') {
        Some((_, kind)) => Some(format!(
            "| | {} | {docs} |\n",
            shown(kind.trim_end_matches(')'))
        )),
        None if name.chars().all(char::is_alphanumeric) => {
            Some(format!("| | `\"{}\"` | {docs} |\n", snake(name)))
        }
        None => None,
    }
}

/// A type of Rust as a reader of JSON sees it.
fn shown(kind: &str) -> String {
    let inner = |outer: &str| kind.strip_prefix(outer)?.strip_suffix('>');
    if let Some(inner) = inner("Option<") {
        return format!("{} or null", shown(inner));
    }
    if let Some(inner) = inner("Vec<") {
        return format!("list of {}", shown(inner));
    }
    if let Some(inner) = inner("Box<") {
        return shown(inner);
    }
    match kind {
        "bool" => "boolean".into(),
        "String" | "Key" | "HolderId" | "Mode" => "string".into(),
        "u8" | "u32" | "u64" | "usize" | "i32" | "i64" | "Token" | "Ticket" | "Priority" => {
            "number".into()
        }
        "()" => "null".into(),
        "E" | "Value" => "any".into(),
        "TimeJson" => "time".into(),
        "ErrorCode" | "super::ErrorCode" => "[error code](#error-codes)".into(),
        "Status" | "Reason" | "EventKind" | "Cause" => {
            format!("[{}](#words)", kind.to_lowercase().replace("kind", ""))
        }
        other => {
            let name = other.strip_suffix("Json").unwrap_or(other);
            format!("[{name}](#{})", name.to_lowercase())
        }
    }
}

/// The table of all error codes.
pub(super) fn codes(crates: &Path) -> String {
    let exits = source(crates, "cli/src/exit.rs");
    let (_, exits) = exits.split_once("use ErrorCode as E;").unwrap();
    let exit = |name: &str| -> &str {
        let arm = exits.split("=>").position(|arm| {
            arm.split(['|', ' ', '\n', ','])
                .any(|word| word == format!("E::{name}"))
        });
        let result = exits.split("=>").nth(arm.map_or(usize::MAX, |at| at + 1));
        let result = result
            .unwrap_or("Self::Runtime")
            .split("Self::")
            .nth(1)
            .unwrap();
        match result.split(|c: char| !c.is_alphanumeric()).next().unwrap() {
            "Runtime" => "1",
            "Usage" => "2",
            "NotInitialised" => "3",
            "NotFound" => "4",
            "NotAllowed" => "5",
            "Locked" => "6",
            "Lost" => "7",
            "Mismatch" => "8",
            "Other" if name == "CommandNotExecutable" => "126",
            "Other" => "127",
            other => panic!("{name}: {other}"),
        }
    };
    let text = source(crates, "tenure/src/wire/code.rs");
    let (_, text) = text.split_once("pub enum ErrorCode {").unwrap();
    let (text, _) = text.split_once("\n}").unwrap();
    let mut out = String::from("| code | exit | meaning |\n|---|---|---|\n");
    let mut docs = Vec::new();
    for line in text.lines().map(str::trim) {
        if let Some(doc) = line.strip_prefix("/// ") {
            docs.push(doc);
        } else if let Some(name) = line.strip_suffix(',') {
            let code = snake(name).to_uppercase();
            let _ = writeln!(out, "| `{code}` | {} | {} |", exit(name), docs.join(" "));
            docs.clear();
        }
    }
    out.trim_end().to_owned()
}

fn source(crates: &Path, name: &str) -> String {
    fs::read_to_string(crates.join(name)).unwrap()
}

fn camel(name: &str) -> String {
    let mut words = name.split('_');
    let first = words.next().unwrap_or_default().to_owned();
    words.fold(first, |name, word| {
        let (initial, rest) = word.split_at(1);
        name + &initial.to_uppercase() + rest
    })
}

fn snake(name: &str) -> String {
    let mut out = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && !out.is_empty() {
            out.push('_');
        }
        out.push(letter.to_ascii_lowercase());
    }
    out
}
