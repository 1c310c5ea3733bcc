//! What a task file says: [`Task`].

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use crate::config::Config;
use crate::document::{Document, Section};
use crate::place::Board;

/// A task, with names as the board's settings write them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Task {
    /// The name of its file without `.md`.
    pub id: String,
    /// Its first line.
    pub title: String,
    /// The first line of its description.
    pub description: String,
    /// How far it is.
    pub status: Value,
    /// How important it is.
    pub priority: Value,
    /// The weight of that; 0 if it is not known.
    pub weight: i64,
    /// Of what kind it is.
    pub kind: Value,
    /// Its labels.
    pub tags: Vec<String>,
    /// The ids of what has to be done before.
    pub depends_on: Vec<String>,
    /// Its file.
    pub path: PathBuf,
}

/// A value that the settings may or may not know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// It is known, and this is how it is written.
    Known(String),
    /// It is not known; what counts instead.
    Unknown {
        /// What the file says.
        said: String,
        /// What counts.
        instead: String,
    },
    /// The file says nothing; what counts instead.
    Missing(String),
}

impl Value {
    fn of(said: Option<Cow<'_, str>>, known: Option<String>, instead: &str) -> Self {
        match (said, known) {
            (_, Some(known)) => Self::Known(known),
            (Some(said), None) => Self::Unknown {
                said: said.into_owned(),
                instead: instead.to_owned(),
            },
            (None, None) => Self::Missing(instead.to_owned()),
        }
    }

    /// What counts.
    pub fn as_str(&self) -> &str {
        match self {
            Self::Known(value) | Self::Unknown { instead: value, .. } | Self::Missing(value) => {
                value
            }
        }
    }
}

impl Task {
    /// What the file of this name says.
    pub fn read(path: &Path, id: &str, document: &Document<'_>, config: &Config) -> Self {
        let said = |section| document.value(section);
        let status = said(Section::Status);
        let known_status = status.as_deref().and_then(|said| config.status(said));
        let priority = said(Section::Priority);
        let known_priority = priority.as_deref().and_then(|said| config.priority(said));
        let kind = said(Section::Kind);
        let known_kind = kind.as_deref().and_then(|said| config.kind(said));
        let owned = |items: Vec<Cow<'_, str>>| items.into_iter().map(Cow::into_owned).collect();
        let weight = known_priority
            .or_else(|| config.priority(config.usual_priority()))
            .map_or(0, |level| level.weight);
        Self {
            id: id.to_owned(),
            title: document.title().into_owned(),
            description: said(Section::Description)
                .map(Cow::into_owned)
                .unwrap_or_default(),
            weight,
            status: Value::of(
                status.clone(),
                known_status.map(|level| level.name.clone()),
                config.first_status(),
            ),
            priority: Value::of(
                priority.clone(),
                known_priority.map(|level| level.name.clone()),
                config.usual_priority(),
            ),
            kind: Value::of(
                kind.clone(),
                known_kind.map(str::to_owned),
                config.usual_kind(),
            ),
            tags: owned(document.items(Section::Tags)),
            depends_on: owned(document.items(Section::DependsOn)),
            path: path.to_owned(),
        }
    }

    /// Its link, as the index has it.
    pub fn link(&self) -> String {
        Board::link(&format!("{}.md", self.id))
    }

    /// The internal record: ten fields with tabs between them, and nothing that would break them.
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

/// The id that a dependency names: by itself, with `.md`, or as a link.
pub fn id_of(dependency: &str) -> &str {
    let name = dependency.rsplit('/').next().unwrap_or(dependency);
    name.strip_suffix(".md").unwrap_or(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_has_ten_fields_whatever_is_in_them() {
        let config = br#"{"statuses":{"TODO":1},"priorities":{"HIGH":8},"kind":{"bug":""}}"#;
        let config = Config::parse(Path::new("c"), config).unwrap();
        let file =
            b"# A\ttitle\n# Status\nodd\n# Priority\nhigh\n# Tags\n- a\n- b\n# depends_on\n- x";
        let task = Task::read(Path::new("/t/1.md"), "1", &Document::parse(file), &config);
        assert_eq!(
            task.record(),
            "1\tTODO\t8\tHIGH\tbug\tA title\t/t/1.md\ta,b\tx\tboard/tasks/1.md"
        );
        let odd = Value::Unknown {
            said: "odd".into(),
            instead: "TODO".into(),
        };
        assert_eq!(task.status, odd);
        assert_eq!(task.kind, Value::Missing("bug".into()));
    }

    #[test]
    fn a_dependency_may_be_an_id_a_file_or_a_link() {
        for text in ["01-a", "01-a.md", "board/tasks/01-a.md"] {
            assert_eq!(id_of(text), "01-a");
        }
    }
}
