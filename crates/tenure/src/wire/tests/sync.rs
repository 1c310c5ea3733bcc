//! A cycle in the foreground.

use serde_json::json;

use super::exact;
use crate::wire::SyncJson;

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
