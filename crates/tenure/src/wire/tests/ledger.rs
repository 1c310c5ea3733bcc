//! The ledger and its lock. The claims on its nodes are tested with the leases.

use serde_json::{Value, json};

use super::{exact, time};
use crate::wire::{
    AppendedJson, LedgerEventJson, LedgerFindingJson, LedgerJson, LedgerLockBrokenJson,
    LedgerLockJson, LedgerVerifiedJson, SequenceMismatchJson,
};

fn lock() -> LedgerLockJson {
    LedgerLockJson {
        lock: "/p/ledger/ledger.lock".into(),
        holder: Some("agent-1".into()),
        pid: None,
        since: time("2026-11-16T05:00:00Z"),
        age_seconds: 30,
        dead: true,
    }
}

#[test]
fn a_ledger_that_was_created() {
    exact(
        &LedgerJson {
            folder: "/p".into(),
            created: true,
            dialect: "af".into(),
        },
        json!({ "folder": "/p", "created": true, "dialect": "af" }),
    );
}

#[test]
fn events_that_were_appended() {
    exact(
        &AppendedJson {
            first: 3,
            last: 5,
            count: 3,
        },
        json!({ "first": 3, "last": 5, "count": 3 }),
    );
    exact(
        &SequenceMismatchJson {
            expected: 3,
            found: 5,
        },
        json!({ "expected": 3, "found": 5 }),
    );
}

#[test]
fn a_ledger_lock() {
    let expected = json!({
        "lock": "/p/ledger/ledger.lock",
        "holder": "agent-1",
        "pid": null,
        "since": "2026-11-16T05:00:00.000Z",
        "ageSeconds": 30,
        "dead": true,
    });
    exact(&lock(), expected.clone());
    let mut removed = expected;
    removed["broken"] = json!(true);
    exact(
        &LedgerLockBrokenJson {
            lock: Some(lock()),
            broken: true,
        },
        removed,
    );
    exact(
        &LedgerLockBrokenJson {
            lock: None,
            broken: false,
        },
        json!({ "broken": false }),
    );
}

#[test]
fn a_ledger_that_was_verified() {
    let finding = LedgerFindingJson {
        severity: "error".into(),
        code: "gap".into(),
        event: Some(4),
        message: "event 4 is missing".into(),
    };
    exact(
        &LedgerVerifiedJson {
            events: 5,
            claims: 2,
            sound: false,
            overlapped: false,
            findings: vec![finding],
        },
        json!({
            "events": 5,
            "claims": 2,
            "sound": false,
            "overlapped": false,
            "findings": [{
                "severity": "error",
                "code": "gap",
                "event": 4,
                "message": "event 4 is missing",
            }],
        }),
    );
}

#[test]
fn an_event_of_a_ledger() {
    exact(
        &LedgerEventJson {
            seq: 1,
            event: Some(json!({ "type": "note" })),
            flaw: None,
        },
        json!({ "seq": 1, "event": { "type": "note" } }),
    );
    exact(
        &LedgerEventJson::<Value> {
            seq: 2,
            event: None,
            flaw: Some("it is not JSON".into()),
        },
        json!({ "seq": 2, "event": null, "flaw": "it is not JSON" }),
    );
}
