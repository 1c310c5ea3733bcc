//! The board.

use serde_json::json;

use super::exact;
use crate::wire::{
    BoardIndexJson, BoardJson, BoardMigrationJson, BoardProblemJson, BoardSetJson, BoardTaskJson,
    BoardValidationJson, MigratedFileJson,
};

#[test]
fn the_tasks_of_a_board() {
    let task = BoardTaskJson {
        id: "T-1".into(),
        title: "Build".into(),
        description: "Build it".into(),
        status: "Todo".into(),
        priority: "High".into(),
        weight: 3,
        kind: "Task".into(),
        tags: vec!["ci".into()],
        depends_on: vec!["T-0".into()],
        path: "/p/board/tasks/T-1.md".into(),
        link: "board/tasks/T-1.md".into(),
    };
    exact(
        &BoardJson {
            board: "/p/board".into(),
            tasks: vec![task],
        },
        json!({
            "board": "/p/board",
            "tasks": [{
                "id": "T-1",
                "title": "Build",
                "description": "Build it",
                "status": "Todo",
                "priority": "High",
                "weight": 3,
                "kind": "Task",
                "tags": ["ci"],
                "dependsOn": ["T-0"],
                "path": "/p/board/tasks/T-1.md",
                "link": "board/tasks/T-1.md",
            }],
        }),
    );
}

#[test]
fn the_problems_of_a_board() {
    let problem = BoardProblemJson {
        file: "/p/board/tasks/T-1.md".into(),
        line: 4,
        problem: "unknown-status".into(),
        severity: "warning".into(),
        message: "unknown status".into(),
    };
    exact(
        &BoardValidationJson {
            board: "/p/board".into(),
            tasks: 2,
            problems: vec![problem],
        },
        json!({
            "board": "/p/board",
            "tasks": 2,
            "problems": [{
                "file": "/p/board/tasks/T-1.md",
                "line": 4,
                "problem": "unknown-status",
                "severity": "warning",
                "message": "unknown status",
            }],
        }),
    );
}

#[test]
fn a_value_that_was_set() {
    exact(
        &BoardSetJson {
            task: "T-1".into(),
            file: "/p/board/tasks/T-1.md".into(),
            section: "status".into(),
            from: None,
            to: "Done".into(),
            changed: true,
        },
        json!({
            "task": "T-1",
            "file": "/p/board/tasks/T-1.md",
            "section": "status",
            "from": null,
            "to": "Done",
            "changed": true,
        }),
    );
}

#[test]
fn an_index_that_was_rebuilt() {
    exact(
        &BoardIndexJson {
            index: "/p/board/index.md".into(),
            tasks: 2,
            changed: true,
            warnings: vec!["no kind".into()],
        },
        json!({
            "index": "/p/board/index.md",
            "tasks": 2,
            "changed": true,
            "warnings": ["no kind"],
        }),
    );
}

#[test]
fn files_that_were_migrated() {
    let file = MigratedFileJson {
        file: "/p/board/tasks/T-1.md".into(),
        added: vec!["Status".into()],
    };
    exact(
        &BoardMigrationJson {
            changed: 1,
            files: vec![file],
        },
        json!({
            "changed": 1,
            "files": [{ "file": "/p/board/tasks/T-1.md", "added": ["Status"] }],
        }),
    );
}
