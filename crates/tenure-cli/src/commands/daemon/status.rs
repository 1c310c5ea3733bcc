//! `tenure daemon status`

use serde_json::{Value, json};
use tenure::duration;
use tenure_core::Moment;
use tenure_daemon::state::CycleRecord;
use tenure_daemon::{DaemonState, DaemonStatus};

use super::{identify, now, project};
use crate::answer::{Answer, Failure};
use crate::words;

pub(super) fn status() -> Result<Answer, Failure> {
    let folder = project()?.folder();
    let now = now();
    Ok(match DaemonStatus::read(&folder)? {
        DaemonStatus::Running(state) => Answer::new(json(&now, &state), running(&now, &state)),
        DaemonStatus::Unidentified => Answer::new(
            json!({ "running": true, "pid": null }),
            "Running, but its process is not on record: it is probably starting or stopping",
        ),
        DaemonStatus::NotRunning(None) => Answer::new(
            json!({ "running": false, "last": null }),
            "Not running; start it with: tenure daemon start",
        ),
        DaemonStatus::NotRunning(Some(last)) => Answer::new(
            json!({ "running": false, "last": details(&last) }),
            not_running(&now, &last),
        ),
    })
}

fn running(now: &Moment, state: &DaemonState) -> String {
    let mut lines = vec![format!(
        "Running: {} (tenure {})",
        identify(state),
        state.version
    )];
    if let Some(cycle) = &state.last_cycle {
        lines.push(format!("  Last cycle: {}", last(now, cycle)));
    }
    if let Some(skipped) = &state.skipped {
        let holder = skipped.holder.as_deref();
        let why = holder.map_or_else(
            || skipped.line.clone(),
            |holder| format!("locked by {holder}"),
        );
        lines.push(format!(
            "  Skipping cycles since {}, {}: {why}",
            words::time(skipped.since),
            words::ago(now, skipped.since)
        ));
    }
    let every = duration::format(state.interval());
    lines.push(match (state.cycle_since, state.next_at) {
        (Some(since), _) => format!("  A cycle has been running since {}", words::time(since)),
        (None, Some(at)) => {
            let left = at.duration_since(now.wall);
            let left = std::time::Duration::try_from(left).unwrap_or_default();
            format!(
                "  Next cycle: in {} (every {every}), or when an exclusive lock appears or is removed",
                words::elapsed(left)
            )
        }
        (None, None) => format!("  No cycle yet (every {every})"),
    });
    lines.push(format!("  Log: {}", state.log));
    if let Some(why) = &state.log_error {
        lines.push(format!("  The log can't be written: {why}"));
    }
    lines.join("\n")
}

fn not_running(now: &Moment, state: &DaemonState) -> String {
    let pid = state.process.pid;
    let mut text = match &state.ended {
        Some(end) => format!(
            "Not running; the last daemon, pid {pid}, stopped at {}, {}: {}",
            words::time(end.at),
            words::ago(now, end.at),
            end.why
        ),
        None => format!(
            "Not running; the last daemon, pid {pid}, started at {} and was killed",
            words::time(state.started_at)
        ),
    };
    if let Some(cycle) = &state.last_cycle {
        text.push_str("\n  Its last cycle: ");
        text.push_str(&last(now, cycle));
    }
    text.push_str("\n  Start it with: tenure daemon start");
    text
}

fn last(now: &Moment, cycle: &CycleRecord) -> String {
    format!(
        "{}, {}: {}",
        words::time(cycle.ended_at),
        words::ago(now, cycle.ended_at),
        cycle.line
    )
}

/// The state of a running daemon in JSON.
pub(super) fn json(now: &Moment, state: &DaemonState) -> Value {
    let mut value = details(state);
    if let Value::Object(fields) = &mut value {
        let left = state
            .next_at
            .map(|at| at.duration_since(now.wall).as_secs());
        fields.insert("nextInSeconds".into(), json!(left.map(|left| left.max(0))));
        fields.shift_insert(0, "running".into(), json!(true));
    }
    value
}

fn details(state: &DaemonState) -> Value {
    json!({
        "pid": state.process.pid,
        "host": state.process.host,
        "version": state.version,
        "startedAt": words::time(state.started_at),
        "intervalSeconds": state.interval().as_secs(),
        "log": state.log,
        "logError": state.log_error,
        "cycleSince": state.cycle_since.map(words::time),
        "lastCycle": state.last_cycle.as_ref().map(|cycle| json!({
            "startedAt": words::time(cycle.started_at),
            "endedAt": words::time(cycle.ended_at),
            "outcome": cycle.outcome.name(),
            "line": cycle.line,
        })),
        "nextAt": state.next_at.map(words::time),
        "skipped": state.skipped.as_ref().map(|skipped| json!({
            "since": words::time(skipped.since),
            "holder": skipped.holder,
            "line": skipped.line,
        })),
        "ended": state.ended.as_ref().map(|end| json!({
            "at": words::time(end.at),
            "why": end.why,
        })),
    })
}
