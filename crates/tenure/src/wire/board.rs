//! The board: what `tenure board` prints.

use serde::{Deserialize, Serialize};

/// The tasks of a board.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BoardJson {
    /// The folder of the board.
    pub board: String,
    /// The tasks.
    pub tasks: Vec<BoardTaskJson>,
}

/// A task of a board.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BoardTaskJson {
    /// The name of its file, without `.md`.
    pub id: String,
    /// The first line of the file, without the `#`.
    pub title: String,
    /// The first line of the description.
    pub description: String,
    /// The status.
    pub status: String,
    /// The priority.
    pub priority: String,
    /// The weight of the priority.
    pub weight: i64,
    /// The kind.
    pub kind: String,
    /// Labels.
    pub tags: Vec<String>,
    /// The tasks that have to be done first, as the file names them.
    pub depends_on: Vec<String>,
    /// The file.
    pub path: String,
    /// The file, as the index names it.
    pub link: String,
}

/// The result of `tenure board validate`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BoardValidationJson {
    /// The folder of the board.
    pub board: String,
    /// The number of task files that could be read.
    pub tasks: usize,
    /// The problems, by file and line.
    pub problems: Vec<BoardProblemJson>,
}

/// A problem of a board.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BoardProblemJson {
    /// The file.
    pub file: String,
    /// The line, from 1.
    pub line: usize,
    /// The kind of problem, for programs.
    pub problem: String,
    /// `error` or `warning`.
    pub severity: String,
    /// What is wrong and how to fix it, for people.
    pub message: String,
}

/// A value of a task that was set.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BoardSetJson {
    /// The task.
    pub task: String,
    /// Its file.
    pub file: String,
    /// The section: `status` or `priority`.
    pub section: String,
    /// The value before; `null` if there was none.
    pub from: Option<String>,
    /// The value now.
    pub to: String,
    /// Whether the file was changed.
    pub changed: bool,
}

/// The index of a board that was rebuilt, or would be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BoardIndexJson {
    /// The file.
    pub index: String,
    /// The number of tasks in it.
    pub tasks: usize,
    /// Whether it was changed, or would be.
    pub changed: bool,
    /// Where the index differs from the task files, for people.
    pub warnings: Vec<String>,
}

/// The task files that were migrated, or would be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct BoardMigrationJson {
    /// How many there are.
    pub changed: usize,
    /// The files.
    pub files: Vec<MigratedFileJson>,
}

/// A task file that was migrated, or would be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct MigratedFileJson {
    /// The file.
    pub file: String,
    /// The names of the sections that were added.
    pub added: Vec<String>,
}
