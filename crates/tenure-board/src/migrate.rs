//! Sections that old task files lack, with what the index says.
//!
//! Only what is missing is added. A section that is there is newer than the index, whatever the index says.

use std::path::PathBuf;

use crate::config::Config;
use crate::document::{Document, Section};
use crate::edit::{Missing, add};
use crate::index::Entry;

/// The file that an entry of the index is about, if it is one of `tasks/`.
pub fn file_of(entry: &Entry) -> Option<&str> {
    let name = entry.link.strip_prefix("board/tasks/")?;
    let id = name.strip_suffix(".md")?;
    (!id.is_empty() && !id.contains('/')).then_some(id)
}

/// A file with what it lacked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Migrated {
    /// The file.
    pub path: PathBuf,
    /// The sections that are new.
    pub added: Vec<Section>,
    /// All of its bytes.
    pub bytes: Vec<u8>,
}

/// The file with the sections that it lacks; `None` if it lacks none.
pub fn migrate(
    path: PathBuf,
    document: &Document<'_>,
    entry: &Entry,
    config: &Config,
) -> Option<Migrated> {
    let missing: Vec<Missing> = Section::ALL
        .into_iter()
        .filter(|section| document.section(*section).is_none())
        .map(|section| Missing {
            section,
            lines: lines(section, entry, config),
        })
        .collect();
    if missing.is_empty() {
        return None;
    }
    Some(Migrated {
        path,
        added: missing.iter().map(|missing| missing.section).collect(),
        bytes: add(document, &missing),
    })
}

fn lines(section: Section, entry: &Entry, config: &Config) -> Vec<String> {
    // A value is one line, whatever the index says.
    let flat = |text: &str| text.replace(['\r', '\n'], " ").trim().to_owned();
    let known = |known: Option<&str>, usual: &str| vec![known.unwrap_or(usual).to_owned()];
    let list = |items: &[String]| {
        let items = items.iter().map(|item| flat(item));
        let items = items.filter(|item| !item.is_empty());
        items.map(|item| format!("- {item}")).collect()
    };
    match section {
        Section::Description => vec![flat(&entry.description)],
        Section::Status => known(
            config
                .status(&entry.status)
                .map(|level| level.name.as_str()),
            config.first_status(),
        ),
        Section::Priority => known(
            config
                .priority(&entry.priority)
                .map(|level| level.name.as_str()),
            config.usual_priority(),
        ),
        Section::Kind => known(config.kind(&entry.kind), config.usual_kind()),
        Section::Tags => list(&entry.tags),
        Section::DependsOn => list(&entry.depends_on),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn only_what_is_missing_is_added_and_once() {
        let config =
            br#"{"statuses":{"TODO":1,"DONE":4},"priorities":{"HIGH":8},"kind":{"task":""}}"#;
        let config = Config::parse(Path::new("c"), config).unwrap();
        let entry = Entry {
            status: "done".into(),
            description: "Two\nlines".into(),
            tags: vec!["a".into()],
            link: "board/tasks/1.md".into(),
            ..Entry::default()
        };
        assert_eq!(file_of(&entry), Some("1"));
        let file = b"# T\n# Priority\nodd\nthe author's\n";
        let migrated = migrate("1.md".into(), &Document::parse(file), &entry, &config).unwrap();
        assert_eq!(
            String::from_utf8(migrated.bytes.clone()).unwrap(),
            "# T\n# Priority\nodd\nthe author's\n\n# Description\nTwo lines\n\n# Status\nDONE\n\n# Kind\ntask\n\n# Tags\n- a\n\n# depends_on\n"
        );
        let again = Document::parse(&migrated.bytes);
        assert_eq!(migrate("1.md".into(), &again, &entry, &config), None);
        for link in ["board/tasks/../x.md", "tasks/1.md", "board/tasks/1.txt", ""] {
            let entry = Entry {
                link: link.into(),
                ..Entry::default()
            };
            assert_eq!(file_of(&entry), None, "{link}");
        }
    }
}
