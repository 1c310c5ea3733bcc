//! What a configuration file's YAML says.
//!
//! A setting is written in one of two forms, which may be mixed:
//!
//! ```yaml
//! locking:
//!   _description: "Task locking settings"
//!   waitTimeout: 10m
//!   taskTimeout:
//!     _description: "Default task lock expiry"
//!     _default: "60m"
//!     value: "60m"
//! ```
//!
//! `_description` and `_default` are for the reader of the file and have no effect. A setting in
//! the second form without `value` is not set.
//!
//! [`node`] reads the text into a tree of positions and values; this module gives them meaning.

mod node;

use std::borrow::Cow;
use std::path::Path;

use super::super::settings::Definition;
use super::error::{ConfigError, ConfigProblem, Location};
use super::unknown;
use super::{Assignment, of_section, sections};
use node::{Content, Node, Pair, Position};

const DESCRIPTION: &str = "_description";
const DEFAULT: &str = "_default";
const VALUE: &str = "value";

/// The section that another program's file shares with ours, and its settings there, as the protocol of the task locks
/// documents them.
const SHARED: &str = "locking";
const DOCUMENTED: [&str; 4] = [
    "taskTimeout",
    "sectionTimeout",
    "waitTimeout",
    "pollInterval",
];

/// The settings that the `text` of the file at `path` makes.
pub(super) fn assignments(path: &Path, text: &str) -> Result<Vec<Assignment>, ConfigError> {
    let reader = Reader { path };
    let top = reader.top(text)?;
    let mut found = Vec::new();
    for entry in reader.entries("the file", &top)? {
        let key = name(entry);
        let Some(section) = sections().into_iter().find(|section| *section == key) else {
            let location = reader.location(entry.key.position);
            return Err(unknown::section(location, &key));
        };
        reader.section(section, &entry.value, &mut found)?;
    }
    Ok(found)
}

/// The settings that another program's file makes: those of its section `locking` that its protocol documents. Other
/// sections and keys are that program's own, and so is a setting that is left empty.
pub(super) fn documented(path: &Path, text: &str) -> Result<Vec<Assignment>, ConfigError> {
    let reader = Reader { path };
    let top = reader.top(text)?;
    let named = |key: &'static str| move |entry: &&Pair| name(entry) == key;
    let mut sections = reader.entries("the file", &top)?.iter();
    let Some(section) = sections.find(named(SHARED)) else {
        return Ok(Vec::new());
    };
    let entries = reader.entries(SHARED, &section.value)?;
    let mut found = Vec::new();
    for definition in of_section(SHARED).filter(|d| DOCUMENTED.contains(&d.name)) {
        let Some(entry) = entries.iter().find(named(definition.name)) else {
            continue;
        };
        let value = match &entry.value.content {
            Content::Mapping(parts) => parts.iter().find(named(VALUE)).map(|part| &part.value),
            _ => Some(&entry.value),
        };
        let is_set =
            |value: &&Node| !matches!(value.content, Content::Empty) && value.text() != Some("");
        if let Some(value) = value.filter(is_set) {
            found.push(reader.assignment(definition, value)?);
        }
    }
    Ok(found)
}

struct Reader<'a> {
    path: &'a Path,
}

impl Reader<'_> {
    fn top(&self, text: &str) -> Result<Node, ConfigError> {
        node::read(text).map_err(|fault| ConfigError {
            location: self.location(fault.position),
            problem: fault.problem,
        })
    }

    fn section(
        &self,
        section: &'static str,
        node: &Node,
        found: &mut Vec<Assignment>,
    ) -> Result<(), ConfigError> {
        for entry in self.entries(section, node)? {
            let key = name(entry);
            if key == DESCRIPTION {
                continue;
            }
            let Some(definition) = of_section(section).find(|d| d.name == key) else {
                let location = self.location(entry.key.position);
                return Err(unknown::setting(location, section, &key));
            };
            if let Some(value) = self.value(definition, &entry.value)? {
                found.push(self.assignment(definition, value)?);
            }
        }
        Ok(())
    }

    /// The node that holds the setting's value, in either form.
    fn value<'n>(
        &self,
        definition: &Definition,
        node: &'n Node,
    ) -> Result<Option<&'n Node>, ConfigError> {
        if !matches!(node.content, Content::Mapping(_)) {
            return Ok(Some(node));
        }
        let mut value = None;
        for entry in self.entries(definition.key, node)? {
            let key = name(entry);
            match &*key {
                VALUE => value = Some(&entry.value),
                DESCRIPTION | DEFAULT => {}
                _ => {
                    let location = self.location(entry.key.position);
                    let parts = [VALUE, DESCRIPTION, DEFAULT];
                    return Err(unknown::part(location, definition, &key, parts));
                }
            }
        }
        Ok(value)
    }

    fn assignment(
        &self,
        definition: &'static Definition,
        node: &Node,
    ) -> Result<Assignment, ConfigError> {
        let Some(text) = node.text() else {
            return Err(self.wrong_shape(definition.key, definition.accepted(), node));
        };
        Ok(Assignment {
            definition,
            text: text.to_owned(),
            location: self.location(node.position),
        })
    }

    /// The entries of a mapping. An empty value counts as an empty mapping, so that all lines of a
    /// section can be commented out.
    fn entries<'n>(&self, subject: &str, node: &'n Node) -> Result<&'n [Pair], ConfigError> {
        match &node.content {
            Content::Mapping(entries) => Ok(entries),
            Content::Empty => Ok(&[]),
            _ => {
                let expected = "a mapping of keys to values".to_owned();
                Err(self.wrong_shape(subject, expected, node))
            }
        }
    }

    fn wrong_shape(&self, subject: &str, expected: String, node: &Node) -> ConfigError {
        ConfigError {
            location: self.location(node.position),
            problem: ConfigProblem::WrongShape {
                subject: subject.to_owned(),
                expected,
                found: node.shape(),
            },
        }
    }

    fn location(&self, position: Position) -> Location {
        Location::Position {
            path: self.path.to_owned(),
            line: position.line,
            column: position.column,
        }
    }
}

/// An entry's key, or a description of a key that is not text and so is never known.
fn name(entry: &Pair) -> Cow<'_, str> {
    match entry.key.text() {
        Some(text) => text.into(),
        None => format!("({})", entry.key.shape()).into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Vec<(&'static str, String)>, String> {
        assignments(Path::new("c.yaml"), text)
            .map(|found| {
                found
                    .into_iter()
                    .map(|a| (a.definition.key, a.text))
                    .collect()
            })
            .map_err(|error| error.to_string())
    }

    fn refusal(text: &str) -> String {
        read(text).unwrap_err()
    }

    #[test]
    fn a_plain_value_is_read() {
        let found = read("locking:\n  taskTimeout: 45m\nhistory:\n  maxEvents: 500\n");
        assert_eq!(
            found.unwrap(),
            [
                ("locking.taskTimeout", "45m".to_owned()),
                ("history.maxEvents", "500".to_owned()),
            ]
        );
    }

    #[test]
    fn the_long_form_is_read_and_its_default_has_no_effect() {
        let text = "
locking:
  _description: \"Task locking settings\"

  taskTimeout:
    _description: \"Default task lock expiry\"
    _default: \"60m\"
    value: \"45m\"

  pollInterval:
    _description: \"How often to check for lock release\"
    _default: \"7s\"
";
        assert_eq!(
            read(text).unwrap(),
            [("locking.taskTimeout", "45m".to_owned())]
        );
    }

    #[test]
    fn of_another_programs_file_only_the_documented_settings_count() {
        let read = |text: &str| {
            let found = documented(Path::new("c.yaml"), text);
            let pairs =
                |found: Vec<Assignment>| found.into_iter().map(|a| (a.definition.key, a.text));
            found.map(|found| pairs(found).collect::<Vec<_>>())
        };
        let text = "
ai:
  coder: {provider: claude, model: [a, b]}
locking:
  _description: \"Task locking settings\"
  _type: object
  taskTimeout:
    _type: string
    _default: \"60m\"
    value: \"45m\"
  sectionTimeout:
    _default: \"7s\"
  waitTimeout: 10m
  pollInterval: ''
  runTimeout: soon
  retries: 5
guard:
  strict: perhaps
";
        assert_eq!(
            read(text).unwrap(),
            [
                ("locking.taskTimeout", "45m".to_owned()),
                ("locking.waitTimeout", "10m".to_owned()),
            ]
        );
        for empty in ["", "locking:\n", "locking:\n  taskTimeout:\n", "ai: {}\n"] {
            assert_eq!(read(empty).unwrap(), [], "{empty:?}");
        }
        for (bad, place) in [
            ("locking: 60m\n", "c.yaml:1:10: locking must be"),
            (
                "locking:\n  taskTimeout: [60m]\n",
                "c.yaml:2:16: locking.taskTimeout must be",
            ),
            ("- locking\n", "c.yaml:1:1: the file must be"),
            ("ai: a: b\n", "c.yaml:1:6: this is not valid YAML"),
        ] {
            let error = read(bad).unwrap_err().to_string();
            assert!(error.starts_with(place), "{error}");
        }
    }

    #[test]
    fn a_file_without_settings_is_accepted() {
        for text in [
            "",
            "\n\n",
            "# only a comment\n",
            "---\n",
            "~",
            "{}",
            "locking:\n",
            "locking:\n  # taskTimeout: 5m\n",
            "locking: {}\nhistory:\n  maxAge: {}\n",
        ] {
            assert_eq!(read(text).unwrap(), [], "{text:?}");
        }
    }

    #[test]
    fn a_byte_order_mark_is_skipped() {
        assert_eq!(read("\u{feff}run:\n  killGrace: 1s\n").unwrap().len(), 1);
    }

    #[test]
    fn anything_but_a_mapping_at_the_top_is_refused() {
        for (text, column, found) in [
            ("- locking\n", 1, "a list"),
            ("60m\n", 1, "a single value"),
            ("!x {}\n", 4, "a value with a tag"),
        ] {
            let expected = format!(
                "c.yaml:1:{column}: the file must be a mapping of keys to values, but it is {found}"
            );
            assert_eq!(refusal(text), expected);
        }
    }

    #[test]
    fn a_section_that_is_not_a_mapping_is_refused() {
        let error = refusal("locking: 60m\n");
        assert_eq!(
            error,
            "c.yaml:1:10: locking must be a mapping of keys to values, but it is a single value"
        );
    }

    #[test]
    fn a_value_of_the_wrong_shape_is_refused_with_what_is_accepted() {
        for (value, found) in [
            ("[60m]", "a list"),
            ("", "empty"),
            ("~", "empty"),
            ("{value: [60m]}", "a list"),
            ("{value: }", "empty"),
            ("{value: {value: 60m}}", "a mapping"),
            ("!x 60m", "a value with a tag"),
        ] {
            let error = refusal(&format!("locking:\n  taskTimeout: {value}\n"));
            assert!(error.starts_with("c.yaml:2:"), "{error}");
            let expected = format!(
                "locking.taskTimeout must be a duration from 100ms to 30d, but it is {found}"
            );
            assert!(error.ends_with(&expected), "{error}");
        }
    }

    #[test]
    fn bad_yaml_is_refused_with_line_column_and_the_words_of_the_parser() {
        assert_eq!(
            refusal("locking: a: b\n"),
            "c.yaml:1:11: this is not valid YAML: mapping values are not allowed in this context"
        );
        assert!(refusal("locking:\n  taskTimeout: [60m\nrun:\n").starts_with("c.yaml:3:"));
        assert_eq!(
            refusal("run: *nobody\n"),
            "c.yaml:1:6: this is not valid YAML: this alias refers to an unknown anchor"
        );
        assert_eq!(
            refusal("locking:\n  taskTimeout: !!int soon\n"),
            "c.yaml:2:22: this is not valid YAML: this value contradicts its tag"
        );
    }

    #[test]
    fn a_key_given_twice_is_refused() {
        for text in [
            "run: {}\nrun: {}\n",
            "run:\n  killGrace: 1s\n  killGrace: 2s\n",
            "run:\n  killGrace: {value: 1s, value: 2s}\n",
            "run:\n  killGrace: 1s\n  \"killGrace\": 2s\n",
        ] {
            assert!(refusal(text).contains("duplicate key"), "{text}");
        }
    }

    #[test]
    fn a_second_document_is_refused() {
        let error = refusal("run: {}\n---\nrun: {}\n");
        assert!(error.starts_with("c.yaml:3:1"), "{error}");
        assert!(error.contains("second document"), "{error}");
    }

    #[test]
    fn an_unknown_section_is_refused_with_the_closest_and_all_known() {
        assert_eq!(
            refusal("lockng:\n  taskTimeout: 60m\n"),
            "c.yaml:1:1: unknown key lockng: did you mean locking? \
             Known here: store, locking, history, run, daemon, sync, guard, agents"
        );
    }

    #[test]
    fn an_unknown_setting_is_refused_with_the_closest_and_all_of_its_section() {
        assert_eq!(
            refusal("history:\n  maxEvent: 60\n"),
            "c.yaml:2:3: unknown key history.maxEvent: did you mean maxEvents? \
             Known here: maxAge, maxEvents"
        );
        assert!(refusal("run:\n  kill_grace: 1s\n").contains("did you mean killGrace?"));
        assert_eq!(
            refusal("run:\n  colour: red\n"),
            "c.yaml:2:3: unknown key run.colour. Known here: killGrace"
        );
    }

    #[test]
    fn a_setting_in_the_wrong_section_is_reported_with_the_right_one() {
        let hint = "did you mean taskTimeout under locking?";
        assert!(refusal("taskTimeout: 60m\n").contains(hint));
        assert!(refusal("run:\n  taskTimeout: 60m\n").contains(hint));
        assert!(refusal("locking.taskTimeout: 60m\n").contains(hint));
    }

    #[test]
    fn an_unknown_key_of_the_long_form_is_refused() {
        let error = refusal("run:\n  killGrace:\n    valeu: 1s\n");
        assert!(error.starts_with("c.yaml:3:5: unknown key run.killGrace.valeu"));
        assert!(error.ends_with("Known here: value, _description, _default"));
    }

    #[test]
    fn an_underscore_makes_no_key_known() {
        for text in [
            "_description: x\n",
            "locking:\n  _note: x\n",
            "locking:\n  _default: x\n",
            "locking:\n  taskTimeout:\n    _note: x\n",
        ] {
            assert!(refusal(text).contains("unknown key"), "{text}");
        }
    }

    #[test]
    fn a_key_that_is_not_text_is_unknown() {
        assert!(refusal("5: x\n").contains("unknown key 5"));
        assert!(refusal("? [a]\n: x\n").contains("unknown key (a list)"));
        assert!(refusal("\"a\\eb\": x\n").contains("unknown key a\\u{1b}b"));
        assert!(refusal("<<: {run: {}}\n").contains("unknown key <<"));
    }

    #[test]
    fn an_alias_stands_for_its_anchor() {
        let found = read("locking:\n  taskTimeout: &t 45m\n  runTimeout: *t\n").unwrap();
        assert_eq!(found.len(), 2);
        assert!(found.iter().all(|(_, text)| text == "45m"));
    }

    #[test]
    fn nesting_deeper_than_any_configuration_is_refused_with_line_and_column() {
        assert_eq!(
            refusal("run:\n  killGrace: [[[[[[[x]]]]]]]\n"),
            "c.yaml:2:20: this is nested more than 8 levels deep, which no configuration needs"
        );
        let fits = refusal("run:\n  killGrace: [[[[[[x]]]]]]\n");
        assert!(fits.ends_with("but it is a list"), "{fits}");
    }
}
