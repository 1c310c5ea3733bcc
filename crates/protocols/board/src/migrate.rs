//! Completing old task files: sections that a file lacks are added with the values of the index.
//!
//! A section that the file has is never changed, whatever the index says: the task files are the truth.

use std::path::PathBuf;

use crate::config::{Config, Vocabulary};
use crate::document::{Document, Section};
use crate::edit::{NewSection, add};
use crate::index::IndexEntry;

/// The id of the task that an entry is about, if its link names a file directly in `tasks/`.
pub fn file_of(entry: &IndexEntry) -> Option<&str> {
    let name = entry.link.strip_prefix("board/tasks/")?;
    let id = name.strip_suffix(".md")?;
    (!id.is_empty() && !id.contains('/')).then_some(id)
}

/// A task file with its missing sections added.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MigratedFile {
    /// The file.
    pub path: PathBuf,
    /// The sections that were added.
    pub added: Vec<Section>,
    /// The content that it had.
    pub old: Vec<u8>,
    /// The new content.
    pub bytes: Vec<u8>,
}

/// Adds the sections that a file lacks; `None` if it lacks none.
pub fn migrate(
    path: PathBuf,
    document: &Document<'_>,
    entry: &IndexEntry,
    config: &Config,
) -> Option<MigratedFile> {
    let missing: Vec<NewSection> = Section::ALL
        .into_iter()
        .filter(|section| document.section(*section).is_none())
        .map(|section| NewSection {
            section,
            lines: lines(section, entry, config),
        })
        .collect();
    if missing.is_empty() {
        return None;
    }
    Some(MigratedFile {
        path,
        added: missing.iter().map(|missing| missing.section).collect(),
        old: document.bytes().to_vec(),
        bytes: add(document, &missing),
    })
}

fn lines(section: Section, entry: &IndexEntry, config: &Config) -> Vec<String> {
    // A value is one line, even if the text in the index has several.
    let flat = |text: &str| text.replace(['\r', '\n'], " ").trim().to_owned();
    let known = |of: Vocabulary, text: &str| {
        let level = config.written(of, text);
        vec![
            level
                .map_or(config.default(of), |level| &level.name)
                .to_owned(),
        ]
    };
    let list = |items: &[String]| {
        let items = items.iter().map(|item| flat(item));
        let items = items.filter(|item| !item.is_empty());
        items.map(|item| format!("- {item}")).collect()
    };
    match section {
        Section::Description => vec![flat(&entry.description)],
        Section::Status => known(Vocabulary::Status, &entry.status),
        Section::Priority => known(Vocabulary::Priority, &entry.priority),
        Section::Kind => known(Vocabulary::Kind, &entry.kind),
        Section::Tags => list(&entry.tags),
        Section::DependsOn => list(&entry.depends_on),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn only_missing_sections_are_added_and_only_once() {
        let config =
            br#"{"statuses":{"TODO":1,"DONE":4},"priorities":{"HIGH":8},"kind":{"task":""}}"#;
        let config = Config::parse(Path::new("c"), config).unwrap();
        let entry = IndexEntry {
            status: "done".into(),
            description: "Two\nlines".into(),
            tags: vec!["a".into()],
            link: "board/tasks/1.md".into(),
            ..IndexEntry::default()
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
            let entry = IndexEntry {
                link: link.into(),
                ..IndexEntry::default()
            };
            assert_eq!(file_of(&entry), None, "{link}");
        }
    }
}
