//! The daemon.

use serde_json::json;

use super::{exact, time};
use crate::wire::{
    CycleJson, DaemonEndJson, DaemonEndedJson, DaemonJson, DaemonLogJson, DaemonNotRunningJson,
    DaemonRunningJson, DaemonStatusJson, DaemonStillRunningJson, DaemonStoppedJson,
    DaemonUnidentifiedJson, LogLineJson, SkippedJson,
};

fn daemon() -> DaemonJson {
    DaemonJson {
        pid: 42,
        host: "laptop".into(),
        version: "1.0.0".into(),
        started_at: time("2026-11-16T05:00:00Z"),
        interval_seconds: 60,
        log: "/p/.tenure/daemon.log".into(),
        log_error: None,
        cycle_since: None,
        last_cycle: Some(CycleJson {
            started_at: time("2026-11-16T05:01:00Z"),
            ended_at: time("2026-11-16T05:01:00.25Z"),
            outcome: "done".into(),
            line: "nothing to do".into(),
        }),
        next_at: Some(time("2026-11-16T05:02:00Z")),
        skipped: None,
        ended: None,
    }
}

#[test]
fn a_running_daemon() {
    let running = DaemonRunningJson {
        running: true,
        daemon: daemon(),
        next_in_seconds: Some(30),
    };
    exact(
        &DaemonStatusJson::Running(Box::new(running)),
        json!({
            "running": true,
            "pid": 42,
            "host": "laptop",
            "version": "1.0.0",
            "startedAt": "2026-11-16T05:00:00.000Z",
            "intervalSeconds": 60,
            "log": "/p/.tenure/daemon.log",
            "logError": null,
            "cycleSince": null,
            "lastCycle": {
                "startedAt": "2026-11-16T05:01:00.000Z",
                "endedAt": "2026-11-16T05:01:00.250Z",
                "outcome": "done",
                "line": "nothing to do",
            },
            "nextAt": "2026-11-16T05:02:00.000Z",
            "skipped": null,
            "ended": null,
            "nextInSeconds": 30,
        }),
    );
}

#[test]
fn a_daemon_that_does_not_run() {
    let status = |last| {
        DaemonStatusJson::NotRunning(DaemonNotRunningJson {
            running: false,
            last,
        })
    };
    exact(&status(None), json!({ "running": false, "last": null }));
    let last = DaemonJson {
        log_error: Some("disk full".into()),
        cycle_since: Some(time("2026-11-16T05:03:00Z")),
        last_cycle: None,
        next_at: None,
        skipped: Some(SkippedJson {
            since: time("2026-11-16T05:02:00Z"),
            holder: Some("agent-1".into()),
            line: "locked".into(),
        }),
        ended: Some(DaemonEndJson {
            at: time("2026-11-16T05:04:00Z"),
            why: "stopped by a signal".into(),
        }),
        ..daemon()
    };
    exact(
        &status(Some(last)),
        json!({
            "running": false,
            "last": {
                "pid": 42,
                "host": "laptop",
                "version": "1.0.0",
                "startedAt": "2026-11-16T05:00:00.000Z",
                "intervalSeconds": 60,
                "log": "/p/.tenure/daemon.log",
                "logError": "disk full",
                "cycleSince": "2026-11-16T05:03:00.000Z",
                "lastCycle": null,
                "nextAt": null,
                "skipped": {
                    "since": "2026-11-16T05:02:00.000Z",
                    "holder": "agent-1",
                    "line": "locked",
                },
                "ended": { "at": "2026-11-16T05:04:00.000Z", "why": "stopped by a signal" },
            },
        }),
    );
}

#[test]
fn a_daemon_whose_process_is_not_on_record() {
    let unidentified = DaemonUnidentifiedJson {
        running: true,
        pid: (),
    };
    exact(
        &DaemonStatusJson::Unidentified(unidentified),
        json!({ "running": true, "pid": null }),
    );
}

#[test]
fn a_daemon_that_stops() {
    exact(
        &DaemonStoppedJson {
            pid: Some(42),
            stopped: true,
        },
        json!({ "pid": 42, "stopped": true }),
    );
    exact(&DaemonStillRunningJson { pid: 42 }, json!({ "pid": 42 }));
    exact(
        &DaemonEndedJson {
            pid: 42,
            ended: "stopped by a signal".into(),
        },
        json!({ "pid": 42, "ended": "stopped by a signal" }),
    );
}

#[test]
fn a_daemon_log() {
    let timed = LogLineJson {
        at: Some("2026-11-16T05:00:00.000Z".into()),
        text: "started".into(),
    };
    let untimed = LogLineJson {
        at: None,
        text: "no time".into(),
    };
    exact(
        &DaemonLogJson {
            log: "/p/.tenure/daemon.log".into(),
            lines: vec![timed, untimed],
        },
        json!({
            "log": "/p/.tenure/daemon.log",
            "lines": [
                { "at": "2026-11-16T05:00:00.000Z", "text": "started" },
                { "at": null, "text": "no time" },
            ],
        }),
    );
}
