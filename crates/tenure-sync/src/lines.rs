//! A replica as text: one JSON object per line, in a stable order, so that it diffs and merges well.
//!
//! Sections come first, then tasks, then deletions, each by age. A field with its default value is left
//! out, and so is the time of a field that has not changed since its task was created.
//!
//! Reading merges all lines: if git or a person left two versions of one line, with or without conflict
//! markers, both count.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tenure_core::task::{self, Progress, Replica, SectionCopy, Stamped, Status, TaskCopy, check};

/// The version of the format that this code reads and writes.
const FORMAT: u32 = 1;

/// A line that can't be read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("line {number}: {what}")]
pub(super) struct BadLine {
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
    #[serde(default, skip_serializing_if = "Changed::is_empty")]
    changed: Changed,
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
struct Changed {
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

impl Changed {
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

/// Writes a replica as lines.
pub(super) fn print(replica: &Replica) -> Result<String, serde_json::Error> {
    let mut text = String::new();
    let mut say = |line: &Line| -> Result<(), serde_json::Error> {
        text.push_str(&serde_json::to_string(line)?);
        text.push('\n');
        Ok(())
    };
    say(&Line::Tenure { format: FORMAT })?;
    let mut sections: Vec<&SectionCopy> = replica.sections.values().collect();
    sections.sort();
    for section in sections {
        say(&Line::Section {
            name: section.name.clone(),
            created_at: section.created_at,
        })?;
    }
    let mut tasks: Vec<(&String, &TaskCopy)> = replica.tasks.iter().collect();
    tasks.sort_by_key(|(id, task)| (task.created_at, *id));
    for (id, task) in tasks {
        say(&Line::Task(Box::new(TaskLine::of(id, task))))?;
    }
    let mut deleted: Vec<(&String, &Timestamp)> = replica.deleted.iter().collect();
    deleted.sort_by_key(|(id, at)| (**at, *id));
    for (id, at) in deleted {
        say(&Line::Deleted {
            id: id.clone(),
            at: *at,
        })?;
    }
    Ok(text)
}

/// Reads a replica from lines.
pub(super) fn parse(text: &str) -> Result<Replica, BadLine> {
    let mut replica = Replica::default();
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || is_marker(line) {
            continue;
        }
        take(&mut replica, line).map_err(|what| BadLine {
            number: index + 1,
            what,
        })?;
    }
    replica.tidy();
    Ok(replica)
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
        Line::Section { name, created_at } => {
            task::check_title(&name).map_err(|_| format!("{name:?} can't be a section's name"))?;
            replica.add_section(SectionCopy {
                name,
                created_at: stored(created_at),
            });
            Ok(())
        }
        Line::Deleted { id, at } => {
            task::check_id("id", &id).map_err(|error| error.to_string())?;
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
            changed: Changed {
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
        let say = |error: task::TaskError| error.to_string();
        task::check_id("id", &self.id).map_err(say)?;
        task::check_title(&self.title).map_err(say)?;
        self.description
            .as_deref()
            .map_or(Ok(()), task::check_description)
            .map_err(say)?;
        if let Some(name) = &self.section {
            task::check_title(name).map_err(|_| format!("{name:?} can't be a section's name"))?;
        }
        if self.priority > 9 {
            return Err("the priority is a number from 0 (low) to 9 (high)".into());
        }
        let created_at = stored(self.created_at);
        let at = |changed: Option<Timestamp>| changed.map_or(created_at, stored);
        let mut depends_on = BTreeMap::new();
        for (edges, present) in [(self.depends_on, true), (self.dropped, false)] {
            for (on, at) in edges {
                task::check_id("id", &on).map_err(say)?;
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
"#;

    #[test]
    fn reading_and_writing_gives_the_same_bytes() {
        assert_eq!(print(&parse(LINES).unwrap()).unwrap(), LINES);
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
