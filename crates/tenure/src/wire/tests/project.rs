//! The project and the shell.

use serde_json::json;

use super::exact;
use crate::wire::{CompletionsJson, ManualJson, ProjectJson, SetupJson, ShellLibraryJson};

#[test]
fn a_project_that_was_created() {
    exact(
        &ProjectJson {
            folder: "/p/.tenure".into(),
            created: true,
            tasks: 42,
            from: Some("origin".into()),
        },
        json!({ "folder": "/p/.tenure", "created": true, "tasks": 42, "from": "origin" }),
    );
}

#[test]
fn a_file_that_setup_changed() {
    exact(
        &SetupJson {
            file: "/p/.claude/settings.json".into(),
            changed: true,
            created: false,
            deleted: false,
            diff: "+x".into(),
        },
        json!({
            "file": "/p/.claude/settings.json", "changed": true, "created": false, "deleted": false,
            "diff": "+x",
        }),
    );
}

#[test]
fn scripts_and_pages() {
    exact(
        &CompletionsJson {
            shell: "bash".into(),
            script: "complete".into(),
        },
        json!({ "shell": "bash", "script": "complete" }),
    );
    exact(&ManualJson { page: ".TH".into() }, json!({ "page": ".TH" }));
    exact(
        &ShellLibraryJson {
            script: "f() {".into(),
        },
        json!({ "script": "f() {" }),
    );
}
