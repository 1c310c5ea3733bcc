//! The index `default.json`: rendered from the tasks, and read.
//!
//! [`render`] writes the bytes that the bilu tool writes for the same tasks: an indent of two spaces, every
//! item on its own line, an empty list on two lines. So neither tool changes a file that the other wrote.

use std::fmt::Write;
use std::path::Path;

use serde::Deserialize;
use tenure_host::files::look::if_there;

use crate::task::Task;
use crate::{BoardError, unreadable};

/// The text of the index for these tasks.
pub fn render(tasks: &[Task]) -> String {
    let mut out = String::from("[\n");
    for (number, task) in tasks.iter().enumerate() {
        // Writing to a string can't fail.
        let _ = entry(&mut out, task);
        out.push_str(if number + 1 < tasks.len() {
            ",\n"
        } else {
            "\n"
        });
    }
    out.push_str("]\n");
    out
}

fn entry(out: &mut String, task: &Task) -> std::fmt::Result {
    writeln!(out, "  {{")?;
    for (name, value) in [
        ("title", task.title.as_str()),
        ("description", task.description.as_str()),
        ("priority", task.priority.as_str()),
        ("kind", task.kind.as_str()),
        ("status", task.status.as_str()),
    ] {
        writeln!(out, "    \"{name}\": {},", quoted(value))?;
    }
    for (name, items) in [("depends_on", &task.depends_on), ("tags", &task.tags)] {
        writeln!(out, "    \"{name}\": [")?;
        for (number, item) in items.iter().enumerate() {
            let comma = if number + 1 < items.len() { "," } else { "" };
            writeln!(out, "      {}{comma}", quoted(item))?;
        }
        writeln!(out, "    ],")?;
    }
    write!(out, "    \"link\": {}\n  }}", quoted(&task.link()))
}

/// A JSON string, without the carriage returns that the bilu tool leaves out too.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text.replace('\r', "")).to_string()
}

/// What the index says about a task. Missing fields are empty.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(default)]
pub struct IndexEntry {
    /// The title.
    pub title: String,
    /// The first line of the description.
    pub description: String,
    /// The name of the priority.
    pub priority: String,
    /// The name of the kind.
    pub kind: String,
    /// The name of the status.
    pub status: String,
    /// The ids of the tasks that have to be done first.
    pub depends_on: Vec<String>,
    /// Labels.
    pub tags: Vec<String>,
    /// The path of the task file, relative to the folder that holds `board/`.
    pub link: String,
}

/// Reads the index; `None` if the file does not exist.
pub fn read(path: &Path) -> Result<Option<Vec<IndexEntry>>, BoardError> {
    let Some(bytes) = if_there(crate::read_file(path)).map_err(unreadable(path))? else {
        return Ok(None);
    };
    match serde_json::from_slice(&bytes) {
        Ok(entries) => Ok(Some(entries)),
        Err(error) => Err(BoardError::BadIndex {
            path: path.to_owned(),
            line: error.line().max(1),
            what: format!("not a valid index ({error}): run tenure board rebuild-index --write"),
        }),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::config::Config;
    use crate::document::Document;

    #[test]
    fn the_index_has_the_bytes_of_the_bilu_tool_and_can_be_read_back() {
        let config =
            br#"{"statuses":{"TODO":1,"INPROGRESS":2},"priorities":{"HIGH":8},"kind":{"task":""}}"#;
        let config = Config::parse(Path::new("c"), config).unwrap();
        let task = |id: &str, file: &str| {
            let document = Document::parse(file.as_bytes());
            Task::read(Path::new("x"), id, &document, &config)
        };
        let tasks = [
            task(
                "1",
                "# Say \"hi\" \\ to all\n# Description\nOne\n# Status\nin progress\n# Priority\nHIGH\n# Kind\ntask\n# Tags\n- a\n- b\n",
            ),
            task("2", "# Ünï\n# depends_on\n- 1\n"),
        ];
        let text = render(&tasks);
        let wanted = r#"[
  {
    "title": "Say \"hi\" \\ to all",
    "description": "One",
    "priority": "HIGH",
    "kind": "task",
    "status": "INPROGRESS",
    "depends_on": [
    ],
    "tags": [
      "a",
      "b"
    ],
    "link": "board/tasks/1.md"
  },
  {
    "title": "Ünï",
    "description": "",
    "priority": "HIGH",
    "kind": "task",
    "status": "TODO",
    "depends_on": [
      "1"
    ],
    "tags": [
    ],
    "link": "board/tasks/2.md"
  }
]
"#;
        assert_eq!(text, wanted);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("default.json");
        assert_eq!(read(&path).unwrap(), None);
        fs::write(&path, text).unwrap();
        let entries = read(&path).unwrap().unwrap();
        assert_eq!(entries[0].tags, ["a", "b"]);
        assert_eq!(entries[1].link, "board/tasks/2.md");
        fs::write(&path, "[\n{]").unwrap();
        let error = read(&path).unwrap_err().to_string();
        assert!(error.contains("default.json:2:"), "{error}");
        assert_eq!(render(&[]), "[\n]\n");
    }
}
