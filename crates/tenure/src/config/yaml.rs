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
//! `_description` and `_default` are for the reader and have no effect. A setting of the second
//! form without `value` is not set.

use std::io;
use std::path::Path;
use std::thread;

use saphyr::{LoadableYamlNode, MarkedYaml, Scalar, YamlData};

use super::Assignment;
use super::error::{ConfigError, Place, Problem};
use super::settings::{Definition, of_section, sections};
use super::unknown;

const DESCRIPTION: &str = "_description";
const DEFAULT: &str = "_default";
const VALUE: &str = "value";

/// Enough for the deepest nesting that fits into `file::LARGEST`, twice over in a debug build.
const STACK: usize = 64 * 1024 * 1024;

/// Read what the `text` of the file at `path` assigns.
pub(super) fn assignments(path: &Path, text: &str) -> Result<Vec<Assignment>, ConfigError> {
    // The parser calls itself for every level of nesting, and a line of dashes nests as deep as
    // it is long. On the stack of an ordinary thread a hostile file of a few kilobytes would end
    // the process. Memory is taken only as far as a file really nests.
    thread::scope(|scope| {
        thread::Builder::new()
            .stack_size(STACK)
            .spawn_scoped(scope, || Reader { path }.file(text))?
            .join()
            .map_err(|_| io::Error::other("the YAML parser failed"))
    })
    .unwrap_or_else(|error| {
        Err(ConfigError {
            place: Place::File(path.to_owned()),
            problem: Problem::Unreadable(error),
        })
    })
}

struct Reader<'a> {
    path: &'a Path,
}

/// One line of a mapping: the key as text, where it stands, and what it is mapped to.
struct Entry<'a> {
    key: String,
    place: Place,
    node: &'a MarkedYaml<'a>,
}

impl Reader<'_> {
    fn file(&self, text: &str) -> Result<Vec<Assignment>, ConfigError> {
        let documents = MarkedYaml::load_from_str(text).map_err(|error| ConfigError {
            place: self.at(error.marker().line(), error.marker().col()),
            problem: Problem::BadYaml(error.info().to_owned()),
        })?;
        let mut documents = documents.iter();
        let Some(top) = documents.next() else {
            return Ok(Vec::new());
        };
        if let Some(second) = documents.next() {
            return Err(ConfigError {
                place: self.place(second),
                problem: Problem::BadYaml("a second document begins here".to_owned()),
            });
        }
        let mut found = Vec::new();
        for entry in self.entries("the file", top)? {
            let Some(section) = sections().into_iter().find(|name| *name == entry.key) else {
                return Err(unknown::section(entry.place, &entry.key));
            };
            self.section(section, entry.node, &mut found)?;
        }
        Ok(found)
    }

    fn section(
        &self,
        section: &'static str,
        node: &MarkedYaml<'_>,
        found: &mut Vec<Assignment>,
    ) -> Result<(), ConfigError> {
        for entry in self.entries(section, node)? {
            if entry.key == DESCRIPTION {
                continue;
            }
            let Some(definition) = of_section(section).find(|d| d.name() == entry.key) else {
                return Err(unknown::setting(entry.place, section, &entry.key));
            };
            if let Some(value) = self.value(definition, entry.node)? {
                found.push(self.assignment(definition, value)?);
            }
        }
        Ok(())
    }

    /// The node that holds the setting's value, in either form.
    fn value<'a>(
        &self,
        definition: &Definition,
        node: &'a MarkedYaml<'a>,
    ) -> Result<Option<&'a MarkedYaml<'a>>, ConfigError> {
        if !node.data.is_mapping() {
            return Ok(Some(node));
        }
        let mut value = None;
        for entry in self.entries(definition.key, node)? {
            match entry.key.as_str() {
                VALUE => value = Some(entry.node),
                DESCRIPTION | DEFAULT => {}
                _ => {
                    let parts = [VALUE, DESCRIPTION, DEFAULT];
                    return Err(unknown::part(entry.place, definition, &entry.key, parts));
                }
            }
        }
        Ok(value)
    }

    fn assignment(
        &self,
        definition: &'static Definition,
        node: &MarkedYaml<'_>,
    ) -> Result<Assignment, ConfigError> {
        let text = scalar(node).ok_or_else(|| ConfigError {
            place: self.place(node),
            problem: Problem::WrongShape {
                subject: definition.key.to_owned(),
                expected: definition.accepted(),
                found: shape(node),
            },
        })?;
        Ok(Assignment {
            definition,
            text,
            place: self.place(node),
        })
    }

    /// The entries of a mapping. Nothing at all counts as an empty one, so that a section can be
    /// left with all of its lines commented out.
    fn entries<'a>(
        &self,
        subject: &str,
        node: &'a MarkedYaml<'a>,
    ) -> Result<Vec<Entry<'a>>, ConfigError> {
        match &node.data {
            YamlData::Mapping(mapping) => Ok(mapping
                .iter()
                .map(|(key, node)| Entry {
                    key: scalar(key).unwrap_or_else(|| format!("({})", shape(key))),
                    place: self.place(key),
                    node,
                })
                .collect()),
            YamlData::Value(Scalar::Null) => Ok(Vec::new()),
            _ => Err(ConfigError {
                place: self.place(node),
                problem: Problem::WrongShape {
                    subject: subject.to_owned(),
                    expected: "a mapping of keys to values".to_owned(),
                    found: shape(node),
                },
            }),
        }
    }

    fn place(&self, node: &MarkedYaml<'_>) -> Place {
        self.at(node.span.start.line(), node.span.start.col())
    }

    /// The parser counts columns from zero, people and editors from one.
    fn at(&self, line: usize, column: usize) -> Place {
        Place::Position {
            path: self.path.to_owned(),
            line,
            column: column + 1,
        }
    }
}

/// The text of a single value, or `None` where there is no value or more than one.
fn scalar(node: &MarkedYaml<'_>) -> Option<String> {
    match &node.data {
        YamlData::Value(Scalar::String(text)) => Some(text.to_string()),
        YamlData::Value(Scalar::Integer(number)) => Some(number.to_string()),
        // `200000.0` keeps its point, and so is not mistaken for a whole number.
        YamlData::Value(Scalar::FloatingPoint(number)) => Some(format!("{:?}", number.0)),
        YamlData::Value(Scalar::Boolean(truth)) => Some(truth.to_string()),
        _ => None,
    }
}

fn shape(node: &MarkedYaml<'_>) -> &'static str {
    match &node.data {
        YamlData::Value(Scalar::Null) => "empty",
        YamlData::Value(_) | YamlData::Representation(..) => "a single value",
        YamlData::Sequence(_) => "a list",
        YamlData::Mapping(_) => "a mapping",
        YamlData::Tagged(..) => "a value with a tag",
        YamlData::Alias(_) | YamlData::BadValue => "a value that contradicts its tag",
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
    fn nothing_to_read_is_fine() {
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
        for (text, found) in [
            ("- locking\n", "a list"),
            ("60m\n", "a single value"),
            ("!x {}\n", "a value with a tag"),
        ] {
            let error = refusal(text);
            assert!(
                error.starts_with("c.yaml:1:1: the file must be a mapping"),
                "{error}"
            );
            assert!(error.ends_with(found), "{error}");
        }
    }

    #[test]
    fn a_section_that_is_no_mapping_is_refused() {
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
            ("!!int soon", "a value that contradicts its tag"),
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
        assert!(refusal("run: *nobody\n").contains("unknown anchor"));
    }

    #[test]
    fn a_key_given_twice_is_refused() {
        for text in [
            "run: {}\nrun: {}\n",
            "run:\n  killGrace: 1s\n  killGrace: 2s\n",
            "run:\n  killGrace: {value: 1s, value: 2s}\n",
            "run:\n  killGrace: 1s\n  \"killGrace\": 2s\n",
        ] {
            assert!(refusal(text).contains("duplicated key"), "{text}");
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
             Known here: locking, history, run"
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
    fn a_setting_in_the_wrong_place_is_told_its_place() {
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
    fn a_key_that_is_no_text_is_unknown() {
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
    fn the_deepest_nesting_that_a_file_can_hold_is_refused_and_not_fatal() {
        let largest = usize::try_from(super::super::file::LARGEST).unwrap();
        let aliases: Vec<String> = (1..31)
            .map(|i| {
                let (open, close) = ("[".repeat(250), "]".repeat(250));
                format!("a{i}: &a{i} {open}*a{} {close}\n", i - 1)
            })
            .collect();
        for text in [
            "- ".repeat(largest / 2),
            "? ".repeat(largest / 2),
            "[".repeat(largest),
            "{a: ".repeat(largest / 4),
            "a0: &a0 x\n".to_owned() + &aliases.concat(),
        ] {
            assert!(text.len() <= largest);
            assert!(read(&text).is_err());
        }
    }
}
