//! The statuses, priorities and kinds that `config.json` defines: [`Config`].

use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value};

use crate::document::Section;
use crate::{BoardError, unreadable};

/// What `config.json` defines the values of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Vocabulary {
    /// The statuses.
    Status,
    /// The priorities.
    Priority,
    /// The kinds.
    Kind,
}

impl Vocabulary {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Status, Self::Priority, Self::Kind];

    /// The section of a task file that has such a value.
    pub fn section(self) -> Section {
        match self {
            Self::Status => Section::Status,
            Self::Priority => Section::Priority,
            Self::Kind => Section::Kind,
        }
    }

    /// The value of a task without one, if the board defines it.
    fn default_name(self) -> &'static str {
        match self {
            Self::Status => "TODO",
            Self::Priority => "MEDIUM",
            Self::Kind => "task",
        }
    }
}

/// A status, a priority or a kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Level {
    /// The name, as it is written into files.
    pub name: String,
    /// The weight, which orders statuses and priorities; 0 for a kind.
    pub weight: i64,
}

impl Level {
    /// The names, separated by commas.
    pub fn names(levels: &[Self]) -> String {
        let names: Vec<&str> = levels.iter().map(|level| level.name.as_str()).collect();
        names.join(", ")
    }
}

/// The configuration of a board.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Config {
    /// By weight, the lowest first.
    statuses: Vec<Level>,
    /// By weight, the highest first.
    priorities: Vec<Level>,
    kinds: Vec<Level>,
}

#[derive(Deserialize)]
struct Raw {
    #[serde(default)]
    statuses: Option<Map<String, Value>>,
    #[serde(default)]
    priorities: Option<Map<String, Value>>,
    #[serde(default)]
    kind: Option<Map<String, Value>>,
}

impl Config {
    /// Reads the configuration. The error is the first problem in the file.
    pub fn read(path: &Path) -> Result<Self, BoardError> {
        let bytes = crate::read_file(path).map_err(unreadable(path))?;
        Self::parse(path, &bytes)
    }

    /// Parses the content of the file; `path` is for error messages.
    pub fn parse(path: &Path, bytes: &[u8]) -> Result<Self, BoardError> {
        let bad = |line: usize, what: String| BoardError::BadConfig {
            path: path.to_owned(),
            line,
            what,
        };
        let raw: Raw = serde_json::from_slice(bytes).map_err(|error| {
            let what = format!("not a valid board configuration: {error}");
            bad(error.line().max(1), what)
        })?;
        let mut levels = [Vec::new(), Vec::new()];
        let maps = [("statuses", raw.statuses), ("priorities", raw.priorities)];
        for ((key, map), levels) in maps.into_iter().zip(&mut levels) {
            let map = map.filter(|map| !map.is_empty()).ok_or_else(|| {
                let example = format!("add \"{key}\": {{ \"NAME\": 1 }}");
                bad(1, format!("no {key}: {example}"))
            })?;
            for (name, weight) in map {
                let line = line_of(bytes, &name);
                let weight = weight.as_i64().ok_or_else(|| {
                    bad(
                        line,
                        format!("the weight of {name:?} in {key} is not a whole number"),
                    )
                })?;
                let taken = levels.iter().find(|level: &&Level| {
                    level.weight == weight || key_of(&level.name) == key_of(&name)
                });
                if let Some(level) = taken {
                    let what = format!(
                        "{name:?} and {:?} in {key} have the same weight or the same name: each needs its own",
                        level.name
                    );
                    return Err(bad(line, what));
                }
                levels.push(Level { name, weight });
            }
        }
        let [mut statuses, mut priorities] = levels;
        statuses.sort_by_key(|level| level.weight);
        priorities.sort_by_key(|level| std::cmp::Reverse(level.weight));
        let kinds = raw.kind.unwrap_or_default().into_iter();
        let kinds: Vec<Level> = kinds.map(|(name, _)| Level { name, weight: 0 }).collect();
        if kinds.is_empty() {
            let what = "no kind: add \"kind\": { \"task\": \"Task\" }";
            return Err(bad(1, what.into()));
        }
        Ok(Self {
            statuses,
            priorities,
            kinds,
        })
    }

    /// The values: statuses with the lowest weight first, priorities with the highest.
    pub fn levels(&self, of: Vocabulary) -> &[Level] {
        match of {
            Vocabulary::Status => &self.statuses,
            Vocabulary::Priority => &self.priorities,
            Vocabulary::Kind => &self.kinds,
        }
    }

    /// The value that a person means: the statuses `in progress` and `In_Progress` are `INPROGRESS`.
    pub fn typed(&self, of: Vocabulary, text: &str) -> Option<&Level> {
        let wanted = key_of(text);
        let mut levels = self.levels(of).iter();
        levels.find(|level| key_of(&level.name) == wanted)
    }

    /// The value that a line of a task file names.
    pub fn written(&self, of: Vocabulary, line: &str) -> Option<&Level> {
        let mut levels = self.levels(of).iter();
        levels.find(|level| is_written_as(&level.name, line))
    }

    /// The value of a task whose value is missing or not defined.
    pub fn default(&self, of: Vocabulary) -> &str {
        let preferred = of.default_name();
        let found = self.typed(of, preferred);
        let found = found.or_else(|| self.levels(of).first());
        found.map_or(preferred, |level| level.name.as_str())
    }
}

/// Whether a line of a task file is this name. Files are read as strictly as the bilu tool reads them: in any
/// letter case and its three other spellings, and with nothing around them.
fn is_written_as(name: &str, line: &str) -> bool {
    let line = line.to_ascii_lowercase();
    let spelled = match line.as_str() {
        "in progress" | "in-progress" => "inprogress",
        "to do" => "todo",
        "canceled" => "cancelled",
        other => other,
    };
    let name = name.to_ascii_lowercase();
    name == line || name == spelled
}

/// The form in which typed names are compared: without letter case, spaces, `-` and `_`, and with one spelling
/// of "cancelled".
fn key_of(name: &str) -> String {
    let letters = name
        .chars()
        .filter(|c| !c.is_whitespace() && !"-_".contains(*c));
    let key: String = letters.flat_map(char::to_uppercase).collect();
    if key == "CANCELED" {
        "CANCELLED".into()
    } else {
        key
    }
}

/// The line on which a key first occurs.
fn line_of(bytes: &[u8], name: &str) -> usize {
    let quoted = format!("\"{name}\"");
    let text = String::from_utf8_lossy(bytes);
    text.find(&quoted)
        .and_then(|at| text.get(..at))
        .map_or(1, |before| before.matches('\n').count() + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Config, String> {
        let config = Config::parse(Path::new("config.json"), text.as_bytes());
        config.map_err(|error| error.to_string())
    }

    const SMALL: &str = r#"{"statuses": {"DONE": 4, "IN PROGRESS": 2, "CANCELLED": 9},
        "priorities": {"LOW": 1, "HIGH": 8}, "kind": {"bug": "Bug"}}"#;

    #[test]
    fn a_name_is_recognised_in_any_spelling_and_written_in_one() {
        let config = parse(SMALL).unwrap();
        for text in ["in progress", "INPROGRESS", "In-Progress", " in_progress "] {
            assert_eq!(
                config.typed(Vocabulary::Status, text).unwrap().name,
                "IN PROGRESS",
                "{text}"
            );
        }
        assert_eq!(
            config.typed(Vocabulary::Status, "canceled").unwrap().weight,
            9
        );
        assert_eq!(config.typed(Vocabulary::Status, "TODO"), None);
        assert_eq!(config.typed(Vocabulary::Kind, "BUG").unwrap().name, "bug");
        let names: Vec<_> = config
            .levels(Vocabulary::Priority)
            .iter()
            .map(|p| p.name.as_str())
            .collect();
        assert_eq!(names, ["HIGH", "LOW"]);
        assert_eq!(config.default(Vocabulary::Status), "IN PROGRESS");
        assert_eq!(config.default(Vocabulary::Kind), "bug");
    }

    #[test]
    fn a_line_of_a_file_is_recognised_as_the_bilu_tool_does() {
        let text = r#"{"statuses": {"INPROGRESS": 2, "TODO": 1, "CANCELLED": 9, "Wartet": 3},
            "priorities": {"HIGH": 8}, "kind": {"bug": "Bug"}}"#;
        let config = parse(text).unwrap();
        for (line, name) in [
            ("In Progress", Some("INPROGRESS")),
            ("in-progress", Some("INPROGRESS")),
            ("to do", Some("TODO")),
            ("Canceled", Some("CANCELLED")),
            ("WARTET", Some("Wartet")),
            ("in_progress", None),
            ("- TODO", None),
            ("TODO ", None),
            ("TODO\u{a0}", None),
            ("", None),
        ] {
            let found = config
                .written(Vocabulary::Status, line)
                .map(|level| level.name.as_str());
            assert_eq!(found, name, "{line:?}");
        }
        assert_eq!(
            config.written(Vocabulary::Priority, "high").unwrap().weight,
            8
        );
        assert_eq!(config.written(Vocabulary::Kind, "Bug").unwrap().name, "bug");
        assert_eq!(config.written(Vocabulary::Kind, " bug"), None);
    }

    #[test]
    fn every_problem_is_reported_with_its_line() {
        for (text, words) in [
            ("", "config.json:1: not a valid board configuration"),
            ("{\n\n}x", "config.json:3: not a valid"),
            ("{}", "no statuses"),
            ("{\"statuses\":{\"A\":1}}", "no priorities"),
            (
                "{\"statuses\":{\n\"A\":\"x\"}}",
                "config.json:2: the weight of \"A\"",
            ),
            (
                "{\"statuses\":{\"A\":1,\n\"B\":1}}",
                "config.json:2: \"B\" and \"A\"",
            ),
            (
                "{\"statuses\":{\"A\":1},\"priorities\":{\"A\":1}}",
                "no kind",
            ),
        ] {
            let error = parse(text).unwrap_err();
            assert!(error.contains(words), "{text:?}: {error}");
        }
    }
}
