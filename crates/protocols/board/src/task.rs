//! The task that a file describes: [`Task`].

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use crate::config::{Config, Vocabulary};
use crate::document::{Document, Section};
use crate::location::Board;

/// A task. Status, priority and kind are spelled as in `config.json`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// The name of its file, without `.md`.
    pub id: String,
    /// The first line of the file, without `#` and a blank.
    pub title: String,
    /// Whether the first line is a heading, as it should be.
    pub has_title_heading: bool,
    /// The first line of the description, as it stands.
    pub description: String,
    /// The status.
    pub status: FieldValue,
    /// The priority.
    pub priority: FieldValue,
    /// The weight of the priority that counts.
    pub weight: i64,
    /// The kind.
    pub kind: FieldValue,
    /// Labels.
    pub tags: Vec<String>,
    /// The tasks that have to be done first, as the file names them.
    pub depends_on: Vec<String>,
    /// The file.
    pub path: PathBuf,
}

/// A status, priority or kind, which `config.json` may or may not define.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FieldValue {
    /// Defined, in the spelling of `config.json`.
    Known(String),
    /// Not defined: the default counts.
    Unknown {
        /// The text in the file.
        text: String,
        /// The value that counts.
        default: String,
    },
    /// The file has no value: this default counts.
    Missing(String),
}

impl FieldValue {
    fn read(document: &Document<'_>, config: &Config, of: Vocabulary) -> Self {
        let default = config.default(of).to_owned();
        let Some(text) = document.value(of.section()) else {
            return Self::Missing(default);
        };
        match config.written(of, &text) {
            Some(level) => Self::Known(level.name.clone()),
            None => Self::Unknown {
                text: text.into_owned(),
                default,
            },
        }
    }

    /// The value that counts.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Known(value) | Self::Unknown { default: value, .. } | Self::Missing(value) => {
                value
            }
        }
    }
}

impl Task {
    /// The task that a parsed file describes.
    pub fn read(path: &Path, id: &str, document: &Document<'_>, config: &Config) -> Self {
        let field = |of| FieldValue::read(document, config, of);
        let priority = field(Vocabulary::Priority);
        let weight = config.typed(Vocabulary::Priority, priority.as_str());
        let owned = |items: Vec<Cow<'_, str>>| items.into_iter().map(Cow::into_owned).collect();
        Self {
            id: id.to_owned(),
            title: document.title().into_owned(),
            has_title_heading: document.has_title_heading(),
            description: document
                .value(Section::Description)
                .map(Cow::into_owned)
                .unwrap_or_default(),
            weight: weight.map_or(0, |level| level.weight),
            status: field(Vocabulary::Status),
            priority,
            kind: field(Vocabulary::Kind),
            tags: owned(document.items(Section::Tags)),
            depends_on: owned(document.items(Section::DependsOn)),
            path: path.to_owned(),
        }
    }

    /// The link to its file, as it is written in the index.
    pub fn link(&self) -> String {
        Board::link(&format!("{}.md", self.id))
    }

    /// The protocol's record: ten fields separated by tabs. Tabs and line breaks in a field become spaces.
    pub fn record(&self) -> String {
        let flat = |text: &str| text.replace(['\t', '\r', '\n'], " ");
        let fields = [
            self.id.clone(),
            self.status.as_str().to_owned(),
            self.weight.to_string(),
            self.priority.as_str().to_owned(),
            self.kind.as_str().to_owned(),
            self.title.clone(),
            self.path.display().to_string(),
            self.tags.join(","),
            self.depends_on.join(","),
            self.link(),
        ];
        fields.map(|field| flat(&field)).join("\t")
    }
}

/// The id that a dependency names, which may be written as an id, a file name or a link.
pub fn id_of(dependency: &str) -> &str {
    let name = dependency.rsplit('/').next().unwrap_or(dependency);
    name.strip_suffix(".md").unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_always_has_ten_fields() {
        let config = br#"{"statuses":{"TODO":1},"priorities":{"HIGH":8},"kind":{"bug":""}}"#;
        let config = Config::parse(Path::new("c"), config).unwrap();
        let file =
            b"# A\ttitle\n# Status\nodd\n# Priority\nhigh\n# Tags\n- a\n- b\n# depends_on\n- x";
        let task = Task::read(Path::new("/t/1.md"), "1", &Document::parse(file), &config);
        assert_eq!(
            task.record(),
            "1\tTODO\t8\tHIGH\tbug\tA title\t/t/1.md\ta,b\tx\tboard/tasks/1.md"
        );
        let odd = FieldValue::Unknown {
            text: "odd".into(),
            default: "TODO".into(),
        };
        assert_eq!(task.status, odd);
        assert_eq!(task.kind, FieldValue::Missing("bug".into()));
    }

    #[test]
    fn a_dependency_may_be_an_id_a_file_or_a_link() {
        for text in ["01-a", "01-a.md", "board/tasks/01-a.md"] {
            assert_eq!(id_of(text), "01-a");
        }
    }
}
