//! A cycle in the foreground.

use serde_json::json;

use super::{exact, time};
use crate::wire::{
    SyncChangeJson, SyncCommitJson, SyncJson, SyncLogJson, SyncRemoteJson, SyncRestoreJson,
    SyncStatusJson,
};

#[test]
fn a_cycle() {
    exact(
        &SyncJson {
            outcome: "skipped".into(),
            message: "locked by agent-1".into(),
            lines: vec!["one".into()],
            holder: Some("agent-1".into()),
        },
        json!({
            "outcome": "skipped",
            "message": "locked by agent-1",
            "lines": ["one"],
            "holder": "agent-1",
        }),
    );
}

#[test]
fn a_status() {
    exact(
        &SyncStatusJson {
            r#ref: "refs/tenure/tasks".into(),
            unshared: 2,
            remotes: vec![SyncRemoteJson {
                name: "origin".into(),
                ahead: 1,
                behind: 0,
                error: None,
            }],
            last_sync: Some(time("2026-11-16T05:00:00.000Z")),
            last_error: Some("origin can't be reached".into()),
            failed_at: None,
        },
        json!({
            "ref": "refs/tenure/tasks",
            "unshared": 2,
            "remotes": [{"name": "origin", "ahead": 1, "behind": 0, "error": null}],
            "lastSync": "2026-11-16T05:00:00.000Z",
            "lastError": "origin can't be reached",
            "failedAt": null,
        }),
    );
}

#[test]
fn a_log_and_a_restore() {
    exact(
        &SyncLogJson {
            commits: vec![SyncCommitJson {
                commit: "abc".into(),
                at: time("2026-11-16T05:00:00.000Z"),
                author: "me".into(),
                changes: vec![SyncChangeJson {
                    id: "1".into(),
                    title: "Fix bug".into(),
                    what: vec!["title".into()],
                }],
            }],
        },
        json!({"commits": [{
            "commit": "abc",
            "at": "2026-11-16T05:00:00.000Z",
            "author": "me",
            "changes": [{"id": "1", "title": "Fix bug", "what": ["title"]}],
        }]}),
    );
    exact(
        &SyncRestoreJson {
            commit: "abc".into(),
            changed: 1,
            added: 2,
            newer: 3,
        },
        json!({"commit": "abc", "changed": 1, "added": 2, "newer": 3}),
    );
}
