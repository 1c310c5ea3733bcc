//! Every type as JSON: what programs rely on.

mod board;
mod config;
mod daemon;
mod ledger;
mod project;
mod sync;

use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use tenure_core::{
    Binding, Busy, Cycle, Epoch, Event, EventKind, Evidence, Grant, Holder, HolderId, Key, Lease,
    Mode, Moment, Presence, Priority, Process, QueuePosition, Reaped, Reason, Revision, SessionId,
    Snapshot, Ticket, Token, Verdict, Waiter, cycle,
};
use tenure_tasks::{Cause, Changed, DeletedSection, Past, Section, Status, Task};

use super::*;

/// The same value again after it was written and read.
#[track_caller]
fn check<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(
    value: &T,
    expected: Value,
) {
    let written = serde_json::to_value(value).unwrap();
    assert_eq!(written, expected);
    assert_eq!(&serde_json::from_value::<T>(expected).unwrap(), value);
}

/// The same as [`check`], and the fields are in the expected order.
#[track_caller]
fn exact<T: Serialize + DeserializeOwned + PartialEq + std::fmt::Debug>(
    value: &T,
    expected: Value,
) {
    assert_eq!(serde_json::to_string(value).unwrap(), expected.to_string());
    check(value, expected);
}

fn time(text: &str) -> TimeJson {
    TimeJson(text.parse().unwrap())
}

fn now() -> Moment {
    Moment {
        wall: "2026-11-16T05:00:00Z".parse().unwrap(),
        ticks: Duration::from_secs(1000),
        epoch: Epoch("boot".into()),
    }
}

fn key() -> Key {
    Key::parse("build").unwrap()
}

fn id(name: &str) -> HolderId {
    HolderId::parse(name).unwrap()
}

fn holder(name: &str) -> Holder {
    Holder {
        id: id(name),
        host: "laptop".into(),
        binding: Binding::Process {
            process: Process {
                pid: 42,
                started: 7,
                boot: Epoch("boot".into()),
                namespace: "pid:[1]".into(),
                host: "laptop".into(),
            },
        },
        command: Some("make all".into()),
    }
}

fn lease() -> Lease {
    Lease {
        mode: Mode::Exclusive,
        slot: None,
        key: key(),
        holder: holder("agent-1"),
        token: Token(12),
        acquired_at: "2026-11-16T04:59:55.5Z".parse().unwrap(),
        expires: Some(now().deadline(Duration::from_secs(295))),
        heartbeat_at: "2026-11-16T04:59:58Z".parse().unwrap(),
        ttl: Duration::from_secs(300),
    }
}

fn without_end() -> Lease {
    Lease {
        mode: Mode::Exclusive,
        slot: None,
        expires: None,
        ..lease()
    }
}

fn grant_json() -> Value {
    json!({
        "key": "build",
        "holder": "agent-1",
        "token": 12,
        "acquiredAt": "2026-11-16T04:59:55.500Z",
        "expiresAt": "2026-11-16T05:04:55.000Z",
        "heartbeatAt": "2026-11-16T04:59:58.000Z",
        "remainingSeconds": 295,
        "host": "laptop",
        "pid": 42,
        "command": "make all",
    })
}

/// An object with more fields.
fn with(mut object: Value, more: Value) -> Value {
    let (Value::Object(fields), Value::Object(more)) = (&mut object, more) else {
        panic!("two objects");
    };
    fields.extend(more);
    object
}

fn lease_json() -> Value {
    with(
        grant_json(),
        json!({ "verdict": "alive", "why": "alive", "evidence": null }),
    )
}

#[test]
fn a_lease() {
    check(
        &LeaseJson::new(&now(), &lease(), &Verdict::Alive),
        lease_json(),
    );
}

#[test]
fn a_lease_without_an_end_has_null() {
    let no_end = json!({ "expiresAt": null, "remainingSeconds": null });
    check(
        &GrantJson::new(&now(), &without_end()),
        with(grant_json(), no_end),
    );
    check(
        &RenewedJson::new(&now(), &without_end()),
        json!({ "key": "build", "token": 12, "expiresAt": null }),
    );
    check(
        &FencedJson::new(&now(), &without_end()),
        json!({ "key": "build", "token": 12, "holder": "agent-1", "expiresAt": null }),
    );
}

#[test]
fn a_lease_that_ended() {
    let verdict = Verdict::Dead(Evidence::ProcessGone { pid: 42 });
    let expected = json!({
        "verdict": "dead",
        "why": verdict.to_string(),
        "evidence": { "proof": "process_gone", "pid": 42 },
    });
    check(
        &LeaseJson::new(&now(), &lease(), &verdict),
        with(grant_json(), expected),
    );
}

#[test]
fn every_kind_of_evidence() {
    let cases = [
        (
            Evidence::LivenessLockFree { pid: 42 },
            json!({ "proof": "liveness_lock_free", "pid": 42 }),
        ),
        (
            Evidence::PidReused {
                pid: 42,
                recorded: 1,
                found: 2,
            },
            json!({ "proof": "pid_reused", "pid": 42, "recorded": 1, "found": 2 }),
        ),
        (
            Evidence::Rebooted {
                recorded: "a".into(),
                found: "b".into(),
            },
            json!({ "proof": "rebooted", "recorded": "a", "found": "b" }),
        ),
        (
            Evidence::SessionEnded {
                session: SessionId("s".into()),
            },
            json!({ "proof": "session_ended", "session": "s" }),
        ),
        (
            Evidence::TimeRanOut {
                expired_at: now().wall,
            },
            json!({ "proof": "time_ran_out", "expiredAt": "2026-11-16T05:00:00.000Z" }),
        ),
        (
            Evidence::Forced {
                by: id("boss"),
                reason: None,
            },
            json!({ "proof": "forced", "by": "boss", "reason": null }),
        ),
    ];
    for (evidence, expected) in cases {
        check(&EvidenceJson::from(&evidence), expected);
    }
}

fn waiter() -> Waiter {
    Waiter {
        mode: Mode::Exclusive,
        ticket: Ticket(3),
        holder: holder("agent-2"),
        named: true,
        priority: Priority::new(8).unwrap(),
        arrived: Duration::from_secs(990),
        seen: Duration::from_secs(999),
        epoch: Epoch("boot".into()),
        presence: Presence::Away,
        within: Vec::new(),
        with: Vec::new(),
    }
}

#[test]
fn a_lock_with_its_queue() {
    let snapshot = Snapshot {
        key: key(),
        leases: vec![(lease(), Verdict::Alive)],
        queue: vec![waiter()],
        forgotten: vec![waiter()],
        problems: vec!["acquired_at is NULL, not a time".to_owned()],
        revision: Revision(1),
    };
    let lock = json!({
        "key": "build",
        "leases": [lease_json()],
        "queue": [{
            "holder": "agent-2", "ticket": 3, "priority": 8, "here": false,
            "pid": 42, "host": "laptop",
        }],
        "problems": ["acquired_at is NULL, not a time"],
    });
    let value = LockJson::new(&now(), &snapshot);
    check(&value, lock.clone());
    check(
        &LocksJson { locks: vec![value] },
        json!({ "locks": [lock] }),
    );
    let free = Snapshot {
        leases: Vec::new(),
        queue: Vec::new(),
        problems: Vec::new(),
        ..snapshot
    };
    check(
        &LockJson::new(&now(), &free),
        json!({ "key": "build", "leases": [], "queue": [] }),
    );
}

#[test]
fn answers_to_acquire_release_and_force() {
    check(
        &AcquiredJson::new(&now(), &lease(), Reason::ClaimedDead),
        with(grant_json(), json!({ "reason": "claimed_dead" })),
    );
    check(
        &ReleasedJson::from(&lease()),
        json!({ "key": "build", "token": 12, "released": true }),
    );
    check(
        &ForcedJson::new(&now(), &key(), &id("boss"), [&lease()]),
        json!({ "key": "build", "ended": [grant_json()], "by": "boss" }),
    );
}

fn busy() -> Busy {
    Busy {
        key: key(),
        leases: vec![(lease(), Verdict::Alive)],
        behind: None,
        position: Some(QueuePosition {
            ticket: Ticket(3),
            ahead: 1,
            resumed: false,
        }),
        waiting: 2,
        shortage: None,
        watch: Vec::new(),
        look_again: None,
        revision: Revision(1),
        others: Vec::new(),
    }
}

fn busy_json() -> Value {
    json!({ "key": "build", "leases": [lease_json()], "waiting": 2, "position": 2 })
}

#[test]
fn a_busy_key() {
    check(&BusyJson::new(&now(), &busy()), busy_json());
}

#[test]
fn a_deadlock() {
    let cycle = Cycle(vec![cycle::Wait {
        waiter: id("a"),
        key: key(),
        holder: id("b"),
    }]);
    check(
        &DeadlockJson { cycle },
        json!({ "cycle": [{ "waiter": "a", "key": "build", "holder": "b" }] }),
    );
}

#[test]
fn a_lost_lease_and_one_of_another_holder() {
    check(
        &LostJson::new(&now(), &key(), Token(11), [&lease()]),
        json!({ "key": "build", "token": 11, "leases": [grant_json()] }),
    );
    let claimed = Grant {
        key: key(),
        holder: id("me"),
        token: Token(12),
    };
    check(
        &NotHolderJson::new(&now(), &claimed, [&lease()]),
        json!({ "key": "build", "leases": [grant_json()], "caller": "me" }),
    );
}

#[test]
fn a_cleanup_and_a_history() {
    let evidence = Evidence::ProcessGone { pid: 42 };
    let reaped = Reaped {
        lease: lease(),
        evidence: evidence.clone(),
    };
    let why = json!({
        "evidence": { "proof": "process_gone", "pid": 42 }, "why": evidence.to_string(),
    });
    check(
        &CleanupJson::new(&now(), true, &[reaped]),
        json!({ "dryRun": true, "ended": [with(grant_json(), why)] }),
    );
    let event = Event {
        mode: Mode::Exclusive,
        id: 1,
        at: now().wall,
        key: key(),
        kind: EventKind::Dead,
        token: Token(12),
        holder: id("agent-1"),
        times: 1,
        reason: None,
        evidence: Some(evidence),
        waited: None,
    };
    let waited = std::time::Duration::from_millis(61_500);
    let granted = Event::granted(&lease(), Reason::AcquiredNew, Some(waited), now().wall);
    check(
        &HistoryJson {
            events: vec![(&event).into(), (&granted).into()],
            problems: Vec::new(),
        },
        json!({ "events": [{
            "at": "2026-11-16T05:00:00.000Z", "key": "build", "event": "dead", "token": 12,
            "holder": "agent-1", "times": 1, "reason": null,
            "evidence": { "proof": "process_gone", "pid": 42 }, "waitedSince": null,
        }, {
            "at": "2026-11-16T05:00:00.000Z", "key": "build", "event": "granted", "token": 12,
            "holder": "agent-1", "times": 1, "reason": "acquired_new", "evidence": null,
            "waitedSince": "2026-11-16T04:58:58.500Z",
        }] }),
    );
}

fn task() -> Task {
    Task {
        id: "t1".into(),
        title: "Fix bug".into(),
        description: None,
        section: Some(Section {
            id: "s1".into(),
            name: "Backend".into(),
        }),
        status: Status::InProgress,
        priority: Priority::new(5).unwrap(),
        depends_on: vec!["t0".into()],
        blockers: 1,
        created_at: now().wall,
        updated_at: now().wall,
        attempts: 0,
        last_error: None,
        not_before: None,
        runner: Some(id("agent-1")),
        token: Token(12),
        elsewhere: false,
        problem: None,
    }
}

fn task_json() -> Value {
    json!({
        "id": "t1", "title": "Fix bug", "description": null, "section": "Backend",
        "sectionId": "s1", "status": "in_progress", "priority": 5, "dependsOn": ["t0"],
        "blockers": 1, "attempts": 0, "lastError": null, "notBefore": null, "holder": "agent-1",
        "elsewhere": false, "createdAt": "2026-11-16T05:00:00.000Z",
        "updatedAt": "2026-11-16T05:00:00.000Z", "problem": null,
    })
}

#[test]
fn a_task_in_every_answer() {
    check(&TaskJson::from(&task()), task_json());
    check(
        &TasksJson {
            tasks: vec![(&task()).into()],
            more: true,
        },
        json!({ "tasks": [task_json()], "more": true }),
    );
    check(
        &DeletedTasksJson {
            deleted: vec![(&task()).into()],
        },
        json!({ "deleted": [task_json()] }),
    );
    let started = StartedTaskJson::new(
        &now(),
        &task(),
        Status::Pending,
        &lease(),
        Reason::AcquiredNew,
    );
    let more = json!({
        "was": "pending", "token": 12, "reason": "acquired_new",
        "expiresAt": "2026-11-16T05:04:55.000Z",
    });
    check(&started, with(task_json(), more));
    let changed = Changed {
        task: task(),
        was: Status::Pending,
        freed: vec![key()],
    };
    check(
        &ChangedTaskJson::from(&changed),
        with(task_json(), json!({ "was": "pending", "freed": ["build"] })),
    );
    let past = Past {
        field: "title".into(),
        value: "Bug".into(),
        at: now().wall,
        until: now().wall,
        cause: Cause::Merged,
    };
    let more = json!({
        "history": [{
            "field": "title", "value": "Bug", "at": "2026-11-16T05:00:00.000Z",
            "until": "2026-11-16T05:00:00.000Z", "cause": "merged",
        }],
        "dependents": ["t2"],
        "lock": null,
    });
    let shown = ShownTaskJson {
        task: (&task()).into(),
        history: vec![(&past).into()],
        dependents: vec!["t2".into()],
        lock: None,
    };
    check(&shown, with(task_json(), more));
}

#[test]
fn a_task_on_standard_input() {
    let input = TaskInputJson {
        task: (&task()).into(),
        token: Token(12),
    };
    check(&input, with(task_json(), json!({ "token": 12 })));
}

#[test]
fn claims_on_nodes() {
    let claim = Lease {
        mode: Mode::Exclusive,
        slot: None,
        key: Key::parse("node:1.2").unwrap(),
        ..lease()
    };
    check(
        &NodeClaimedJson::new(&now(), &claim, Reason::AcquiredNew),
        json!({
            "node": "1.2", "holder": "agent-1", "token": 12,
            "acquiredAt": "2026-11-16T04:59:55.500Z", "expiresAt": "2026-11-16T05:04:55.000Z",
            "reason": "acquired_new",
        }),
    );
    check(
        &NodeRefreshedJson::new(&now(), &claim),
        json!({ "node": "1.2", "token": 12, "expiresAt": "2026-11-16T05:04:55.000Z" }),
    );
    check(
        &NodeReleasedJson::from(&claim),
        json!({ "node": "1.2", "token": 12, "released": true }),
    );
    check(
        &NodeClaimsJson {
            claims: vec![NodeClaimJson::new(&now(), &claim, &Verdict::Alive, None)],
            expired: 1,
            malformed: vec![MalformedClaimJson {
                file: "locks/7.lock".into(),
                node: Some("7".into()),
                message: "torn".into(),
            }],
        },
        json!({
            "claims": [{
                "node": "1.2", "holder": "agent-1", "token": 12, "verdict": "alive",
                "acquiredAt": "2026-11-16T04:59:55.500Z",
                "expiresAt": "2026-11-16T05:04:55.000Z", "remainingSeconds": 295, "file": null,
            }],
            "expired": 1,
            "malformed": [{ "file": "locks/7.lock", "node": "7", "message": "torn" }],
        }),
    );
    let evidence = Evidence::ProcessGone { pid: 42 };
    let why = evidence.to_string();
    let reaped = Reaped {
        lease: claim,
        evidence,
    };
    check(
        &NodesReapedJson::new(false, &[reaped]),
        json!({
            "dryRun": false,
            "ended": [{
                "node": "1.2", "holder": "agent-1", "token": 12,
                "evidence": { "proof": "process_gone", "pid": 42 }, "why": why,
            }],
        }),
    );
}

#[test]
fn locks_of_other_programs() {
    check(
        &ExclusiveAcquiredJson::new(&lease(), 42),
        json!({
            "holder": "agent-1", "pid": 42, "hostname": "laptop", "token": 12,
            "startedAt": "2026-11-16T04:59:55.500Z",
        }),
    );
    check(
        &ExclusiveReleasedJson {
            holder: id("agent-1"),
            released: true,
        },
        json!({ "holder": "agent-1", "released": true }),
    );
    check(
        &BoardBusyJson::new(&now(), &busy(), "storage/lock"),
        with(busy_json(), json!({ "path": "storage/lock" })),
    );
}

#[test]
fn sections() {
    let listed = ListedSectionJson {
        section: Section {
            id: "s1".into(),
            name: "Backend".into(),
        },
        tasks: 3,
        open: 2,
        holder: None,
        expires_at: None,
    };
    check(
        &SectionsJson {
            sections: vec![listed],
        },
        json!({ "sections": [{
            "id": "s1", "name": "Backend", "tasks": 3, "open": 2, "holder": null,
            "expiresAt": null,
        }] }),
    );
    let section = |id: &str, name: &str| Section {
        id: id.into(),
        name: name.into(),
    };
    let deleted = DeletedSection {
        section: section("s1", "Backend"),
        moved: 3,
        moved_to: Some(section("s2", "Server")),
    };
    check(
        &DeletedSectionJson::from(&deleted),
        json!({
            "id": "s1", "name": "Backend", "moved": 3,
            "movedTo": { "id": "s2", "name": "Server" },
        }),
    );
}

#[test]
fn errors_about_tasks() {
    // The fields that the protocol prescribes, and no others.
    let locked = TaskLockedJson {
        task_id: Some("t1".into()),
        section_id: None,
        locked_by: id("agent-2"),
        expires_at: Some(now().wall.into()),
    };
    check(
        &locked,
        json!({ "taskId": "t1", "lockedBy": "agent-2", "expiresAt": "2026-11-16T05:00:00.000Z" }),
    );
    check(
        &TaskLostJson {
            task_id: "t1".into(),
            holder: None,
            expires_at: None,
            newest_token: Token(13),
            status: Status::Completed,
        },
        json!({
            "taskId": "t1", "holder": null, "expiresAt": null, "newestToken": 13,
            "status": "completed",
        }),
    );
    check(
        &TaskBlockedJson {
            task_id: "t1".into(),
            blocked_by: vec!["t0".into()],
        },
        json!({ "taskId": "t1", "blockedBy": ["t0"] }),
    );
}

#[test]
fn the_end_of_a_runner() {
    let ended = TaskEndedJson {
        id: "t1".into(),
        title: "Fix bug".into(),
        error: "exit code 1".into(),
    };
    check(
        &WorkJson {
            completed: 2,
            failed: vec![ended],
            ended: Some(ErrorCode::NoTaskLeft),
            ..WorkJson::default()
        },
        json!({
            "completed": 2,
            "failed": [{ "id": "t1", "title": "Fix bug", "error": "exit code 1" }],
            "lost": [], "retried": 0, "other": 0, "ended": "NO_TASK_LEFT",
        }),
    );
}

#[test]
fn the_envelope_has_its_fields_in_order() {
    let answer: Envelope<ReleasedJson, Value> = Envelope {
        success: true,
        command: "release".into(),
        subcommand: None,
        data: Some((&lease()).into()),
        error: None,
    };
    assert_eq!(
        serde_json::to_string(&answer).unwrap(),
        r#"{"success":true,"command":"release","subcommand":null,"data":{"key":"build","token":12,"released":true},"error":null}"#
    );
    let failure: Envelope<Value, Value> = Envelope {
        success: false,
        command: "tasks".into(),
        subcommand: Some("update".into()),
        data: None,
        error: Some(ErrorJson {
            code: ErrorCode::TaskLocked,
            message: "Task is locked by another runner".into(),
            details: json!({}),
        }),
    };
    assert_eq!(
        serde_json::to_string(&failure).unwrap(),
        r#"{"success":false,"command":"tasks","subcommand":"update","data":null,"error":{"code":"TASK_LOCKED","message":"Task is locked by another runner","details":{}}}"#
    );
}
