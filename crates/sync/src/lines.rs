//! Tasks as files: which file a task is in, and what it says.
//!
//! | file | what it holds |
//! |---|---|
//! | `tenure.json` | the version of the format |
//! | `sections.jsonl` | the sections by age, one per line, also those that were deleted |
//! | `section_changes.jsonl` | when sections were deleted or added again; a file of its own, which an earlier tenure does not read |
//! | `AB/ID.json` | a task, or that it was deleted; AB are two digits of a hash of the id |
//!
//! A field with its default value is left out, and so is the time of a field that has not changed since
//! its task was created. Reading merges: if a file holds two versions of one line, with or without git's
//! conflict markers, both count. `.tenure/tasks.jsonl`, in which clones shared tasks earlier, holds the
//! same objects, each on a line.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tenure_tasks::{Progress, Replica, SectionCopy, Stamped, Status, TaskCopy, check};

/// The version of the format that this code reads and writes.
const FORMAT: u32 = 1;

/// A line that can't be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {number}: {what}")]
pub(super) struct BadTaskLine {
    /// Its number, from 1.
    pub(super) number: usize,
    /// What is wrong with it.
    pub(super) what: String,
}

/// One line.
#[derive(Debug, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
enum Line {
    /// The header: the version of the format.
    Tenure { format: u32 },
    /// A section.
    #[serde(rename_all = "camelCase")]
    Section { name: String, created_at: Timestamp },
    /// A task.
    Task(Box<TaskLine>),
    /// A task that was deleted.
    Deleted { id: String, at: Timestamp },
    /// A section that was deleted.
    SectionDeleted { name: String, at: Timestamp },
    /// A section that was added again.
    SectionAdded { name: String, at: Timestamp },
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct TaskLine {
    id: String,
    title: String,
    status: Status,
    priority: u8,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    section: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    description: Option<String>,
    #[serde(default, skip_serializing_if = "is_zero")]
    attempts: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    last_error: Option<String>,
    created_at: Timestamp,
    #[serde(default, skip_serializing_if = "ChangedAt::is_empty")]
    changed: ChangedAt,
    /// The tasks that this one depends on, and since when.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    depends_on: BTreeMap<String, Timestamp>,
    /// The tasks that it no longer depends on, and since when.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    dropped: BTreeMap<String, Timestamp>,
}

/// When each field was last changed.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct ChangedAt {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    title: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    description: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    section: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    priority: Option<Timestamp>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    status: Option<Timestamp>,
}

impl ChangedAt {
    fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

#[expect(
    clippy::trivially_copy_pass_by_ref,
    reason = "serde passes a reference"
)]
fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// The file that names the format, and its content.
pub(super) const MARKER: (&str, &str) = ("tenure.json", "{\"kind\":\"tenure\",\"format\":1}\n");

/// The file with the sections.
pub(super) const SECTIONS: &str = "sections.jsonl";

/// The file with the changes of sections.
pub(super) const SECTION_CHANGES: &str = "section_changes.jsonl";

/// The files of a replica, by path.
pub(super) fn files(replica: &Replica) -> Result<BTreeMap<String, String>, serde_json::Error> {
    let mut files = BTreeMap::new();
    let mut sections: Vec<&SectionCopy> = replica.sections.values().collect();
    sections.sort_by_key(|section| (section.created_at, &section.name));
    let mut put_lines = |path: &str, lines: Vec<Line>| -> Result<(), serde_json::Error> {
        let mut text = String::new();
        for line in &lines {
            text.push_str(&serde_json::to_string(line)?);
            text.push('\n');
        }
        if !lines.is_empty() {
            files.insert(path.to_owned(), text);
        }
        Ok(())
    };
    let added = sections.iter().map(|section| Line::Section {
        name: section.name.clone(),
        created_at: section.created_at,
    });
    put_lines(SECTIONS, added.collect())?;
    let changed = sections.iter().filter(|section| !section.is_unchanged());
    let changed = changed.map(|section| {
        let (name, at) = (section.name.clone(), section.deleted.at);
        if section.deleted.value {
            Line::SectionDeleted { name, at }
        } else {
            Line::SectionAdded { name, at }
        }
    });
    put_lines(SECTION_CHANGES, changed.collect())?;
    let mut put = |id: &str, line: &Line| -> Result<(), serde_json::Error> {
        files.insert(path_of(id), serde_json::to_string_pretty(line)? + "\n");
        Ok(())
    };
    for (id, task) in &replica.tasks {
        put(id, &Line::Task(Box::new(TaskLine::of(id, task))))?;
    }
    for (id, at) in &replica.deleted {
        let (id, at) = (id.clone(), *at);
        put(&id.clone(), &Line::Deleted { id, at })?;
    }
    Ok(files)
}

/// The file of a task. Its folder depends on a hash of all of the id, because ids of other programs
/// often begin alike.
pub(super) fn path_of(id: &str) -> String {
    let hash = id.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    let folder = hash.to_be_bytes().iter().fold(0, |all, byte| all ^ byte);
    format!("{folder:02x}/{}.json", escaped(id.as_bytes()))
}

/// A name for a file: every byte that is not plain becomes `%` and two digits.
pub(super) fn escaped(name: &[u8]) -> String {
    let mut escaped = String::new();
    for (at, byte) in name.iter().enumerate() {
        match char::from(*byte) {
            c @ ('a'..='z' | 'A'..='Z' | '0'..='9' | '-' | '_') => escaped.push(c),
            '.' if at > 0 => escaped.push('.'),
            _ => {
                let _ = write!(escaped, "%{byte:02X}");
            }
        }
    }
    escaped
}

/// Adds the content of the file of a task to a replica. Call [`Replica::tidy`] after the last one.
pub(super) fn add_file(replica: &mut Replica, text: &str) -> Result<(), BadTaskLine> {
    if take(replica, text).is_ok() {
        return Ok(());
    }
    // Several objects, or versions of one.
    add_lines(replica, text)
}

/// Reads a replica from lines.
pub(super) fn add_lines(replica: &mut Replica, text: &str) -> Result<(), BadTaskLine> {
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || is_marker(line) {
            continue;
        }
        take(replica, line).map_err(|what| BadTaskLine {
            number: index + 1,
            what,
        })?;
    }
    Ok(())
}

/// Whether this is a conflict marker of git.
fn is_marker(line: &str) -> bool {
    ["<<<<<<<", "|||||||", "=======", ">>>>>>>"]
        .iter()
        .any(|marker| line.starts_with(marker))
}

fn take(replica: &mut Replica, line: &str) -> Result<(), String> {
    match serde_json::from_str(line).map_err(|error| words(&error))? {
        Line::Tenure { format } if format > FORMAT => Err(format!(
            "it was written by a newer tenure (format {format}, this one knows {FORMAT}): use that one"
        )),
        Line::Tenure { .. } => Ok(()),
        Line::Section { name, created_at } => add_section(replica, name, stored(created_at), false),
        Line::SectionDeleted { name, at } => add_section(replica, name, stored(at), true),
        Line::SectionAdded { name, at } => add_section(replica, name, stored(at), false),
        Line::Deleted { id, at } => {
            tenure_tasks::check_id("id", &id).map_err(|error| error.to_string())?;
            replica.delete(id, stored(at));
            Ok(())
        }
        Line::Task(line) => {
            let (id, copy) = line.copy()?;
            replica.add_task(id, copy);
            Ok(())
        }
    }
}

fn add_section(
    replica: &mut Replica,
    name: String,
    at: Timestamp,
    deleted: bool,
) -> Result<(), String> {
    tenure_tasks::check_title(&name).map_err(|_| format!("{name:?} can't be a section's name"))?;
    replica.add_section(SectionCopy {
        deleted: Stamped::new(deleted, at),
        ..SectionCopy::added(name, at)
    });
    Ok(())
}

impl TaskLine {
    fn of(id: &str, task: &TaskCopy) -> Self {
        let changed = |at: Timestamp| (at != task.created_at).then_some(at);
        let edges = |present: bool| {
            let edges = task.depends_on.iter();
            edges
                .filter(|(_, edge)| edge.value == present)
                .map(|(on, edge)| (on.clone(), edge.at))
                .collect()
        };
        Self {
            id: id.to_owned(),
            title: task.title.value.clone(),
            status: task.progress.value.status(),
            priority: task.priority.value,
            section: task.section.value.clone(),
            description: task.description.value.clone(),
            attempts: task.progress.value.attempts,
            last_error: task.progress.value.last_error.clone(),
            created_at: task.created_at,
            changed: ChangedAt {
                title: changed(task.title.at),
                description: changed(task.description.at),
                section: changed(task.section.at),
                priority: changed(task.priority.at),
                status: changed(task.progress.at),
            },
            depends_on: edges(true),
            dropped: edges(false),
        }
    }

    fn copy(self) -> Result<(String, TaskCopy), String> {
        let say = |error: tenure_tasks::TaskError| error.to_string();
        tenure_tasks::check_id("id", &self.id).map_err(say)?;
        tenure_tasks::check_title(&self.title).map_err(say)?;
        self.description
            .as_deref()
            .map_or(Ok(()), tenure_tasks::check_description)
            .map_err(say)?;
        if let Some(name) = &self.section {
            tenure_tasks::check_title(name)
                .map_err(|_| format!("{name:?} can't be a section's name"))?;
        }
        if self.priority > 9 {
            return Err("the priority is a number from 0 (low) to 9 (high)".into());
        }
        let created_at = stored(self.created_at);
        let at = |changed: Option<Timestamp>| changed.map_or(created_at, stored);
        let mut depends_on = BTreeMap::new();
        for (edges, present) in [(self.depends_on, true), (self.dropped, false)] {
            for (on, at) in edges {
                tenure_tasks::check_id("id", &on).map_err(say)?;
                depends_on.insert(on, Stamped::new(present, stored(at)));
            }
        }
        let last_error = self.last_error.map(|text| check::tidy(&text));
        let progress = Progress::new(self.status, self.attempts, last_error);
        let copy = TaskCopy {
            created_at,
            title: Stamped::new(self.title, at(self.changed.title)),
            description: Stamped::new(self.description, at(self.changed.description)),
            section: Stamped::new(self.section, at(self.changed.section)),
            priority: Stamped::new(self.priority, at(self.changed.priority)),
            progress: Stamped::new(progress, at(self.changed.status)),
            depends_on,
        };
        Ok((self.id, copy))
    }
}

/// The beginning of December 9999, in seconds since 1970.
const LAST_MONTH: i64 = 253_399_622_400;

/// The beginning of that year.
const LAST_YEAR: i64 = 253_370_764_800;

/// A time as the database stores it: to the millisecond. A later change needs a later time, so a time in
/// the last month that can be written is read as the beginning of that year, by every clone alike.
fn stored(at: Timestamp) -> Timestamp {
    let latest = at.as_second() >= LAST_MONTH;
    let millis = if latest {
        LAST_YEAR * 1000
    } else {
        at.as_millisecond()
    };
    Timestamp::from_millisecond(millis).unwrap_or(at)
}

/// The parser's message, without the line number, which is always 1.
fn words(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rsplit_once(" at line 1 column ") {
        Some((what, column)) => format!("{what} (at character {column})"),
        None => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LINES: &str = r#"{"kind":"tenure","format":1}
{"kind":"section","name":"Backend","createdAt":"2026-11-16T10:00:00Z"}
{"kind":"task","id":"a","title":"Fix bug","status":"pending","priority":5,"section":"Backend","createdAt":"2026-11-16T10:00:01Z"}
{"kind":"task","id":"b","title":"Ship it","status":"completed","priority":9,"attempts":1,"lastError":"oops","createdAt":"2026-11-16T10:00:02Z","changed":{"status":"2026-11-16T11:00:00.123Z"},"dependsOn":{"a":"2026-11-16T10:00:02Z"},"dropped":{"c":"2026-11-16T10:00:03Z"}}
{"kind":"deleted","id":"d","at":"2026-11-16T10:00:00Z"}
{"kind":"section_deleted","name":"Docs","at":"2026-11-16T11:00:00Z"}
{"kind":"section","name":"Docs","createdAt":"2026-11-16T10:00:00Z"}
{"kind":"section_added","name":"Server","at":"2026-11-16T11:00:00Z"}
{"kind":"section","name":"Server","createdAt":"2026-11-16T10:00:00Z"}
"#;

    fn parse(text: &str) -> Result<Replica, BadTaskLine> {
        let mut replica = Replica::default();
        add_lines(&mut replica, text)?;
        replica.tidy();
        Ok(replica)
    }

    #[test]
    fn what_is_written_to_files_is_read_from_them() {
        let replica = parse(LINES).unwrap();
        let files = files(&replica).unwrap();
        assert_eq!(files.len(), 5);
        assert!(replica.sections["docs"].deleted.value);
        assert!(!replica.sections["server"].deleted.value);
        assert_eq!(files[SECTIONS].lines().count(), 3);
        assert_eq!(files[SECTION_CHANGES].lines().count(), 2);
        assert!(files[&path_of("a")].contains("\n  \"title\": \"Fix bug\",\n"));
        let mut read = Replica::default();
        for text in files.values() {
            add_file(&mut read, text).unwrap();
        }
        read.tidy();
        assert_eq!(read, replica);
    }

    #[test]
    fn every_id_has_a_plain_path_of_its_own() {
        assert_eq!(
            path_of("a b/../ä"),
            format!("{}/a%20b%2F..%2F%C3%A4.json", &path_of("a b/../ä")[..2])
        );
        assert_eq!(escaped(b".git"), "%2Egit");
        // Ids that begin alike are spread over all folders.
        let folders: std::collections::BTreeSet<String> = (0..5000)
            .map(|n| path_of(&format!("task-{n}"))[..2].to_owned())
            .collect();
        assert_eq!(folders.len(), 256);
    }

    #[test]
    fn both_sides_of_a_conflict_count() {
        let theirs = r#"{"kind":"task","id":"a","title":"Fix bug","status":"pending","priority":8,"section":"Backend","createdAt":"2026-11-16T10:00:01Z","changed":{"priority":"2026-11-16T10:30:00Z"}}"#;
        let conflict = format!("<<<<<<< HEAD\n{LINES}=======\n{theirs}\n>>>>>>> origin/main\n");
        let replica = parse(&conflict).unwrap();
        assert_eq!(replica.tasks["a"].priority.value, 8);
        assert_eq!(replica.tasks.len(), 2);
    }

    #[test]
    fn a_bad_line_is_an_error_that_names_it() {
        for (line, words) in [
            ("{", "line 2: EOF while parsing an object"),
            ("7", "line 2:"),
            (r#"{"kind":"tenure","format":2}"#, "newer tenure"),
            (r#"{"kind":"lock"}"#, "unknown variant `lock`"),
            (r#"{"kind":"task","id":"x"}"#, "missing field"),
            (
                r#"{"kind":"task","id":"x","title":"t","status":"pending","priority":12,"createdAt":"2026-11-16T10:00:01Z"}"#,
                "from 0 (low) to 9",
            ),
            (
                r#"{"kind":"task","id":"*","title":"t","status":"pending","priority":1,"createdAt":"2026-11-16T10:00:01Z"}"#,
                "the id",
            ),
            (
                r#"{"kind":"task","id":"x","title":"t","status":"pending","priority":1,"createdAt":"2026-11-16T10:00:01Z","lock":1}"#,
                "unknown field `lock`",
            ),
        ] {
            let text = format!("{{\"kind\":\"tenure\",\"format\":1}}\n{line}\n");
            let error = parse(&text).unwrap_err().to_string();
            assert!(error.contains(words), "{line}: {error}");
        }
    }
}
