//! `tenure daemon status`

use tenure::store::Moment;
use tenure::text::duration;
use tenure::wire::{
    CycleJson, DaemonEndJson, DaemonJson, DaemonNotRunningJson, DaemonRunningJson,
    DaemonStatusJson, DaemonUnidentifiedJson, SkippedJson, TimeJson,
};
use tenure_daemon::lock::folder_of;
use tenure_daemon::state::CycleRecord;
use tenure_daemon::{DaemonState, DaemonStatus};

use super::{identify, now, project};
use crate::answer::{Answer, Failure};
use crate::args::Global;
use crate::exit::Exit;
use crate::words;

/// What `tenure daemon status` exits with when no daemon runs.
const NOT_RUNNING: Exit = Exit::Other(3);

pub(super) fn status(global: &Global) -> Result<Answer, Failure> {
    let project = project()?;
    let now = now();
    let mut exit = Exit::Done;
    let (data, text) = match DaemonStatus::read(&folder_of(&project))? {
        DaemonStatus::Running(state) => (
            DaemonStatusJson::Running(Box::new(json(&now, &state))),
            running(&now, &state),
        ),
        DaemonStatus::Unidentified => (
            DaemonStatusJson::Unidentified(DaemonUnidentifiedJson {
                running: true,
                pid: (),
            }),
            "Running, but its process is not on record: it is probably starting or stopping"
                .to_owned(),
        ),
        DaemonStatus::NotRunning(last) => {
            exit = NOT_RUNNING;
            let data = DaemonNotRunningJson {
                running: false,
                last: last.as_ref().map(|last| details(last)),
            };
            let text = last.map_or_else(
                || "Not running; start it with: tenure daemon start".to_owned(),
                |last| not_running(&now, &last),
            );
            (DaemonStatusJson::NotRunning(data), text)
        }
    };
    let mut answer = Answer::confirmed(global, data, text);
    answer.exit = exit;
    Ok(answer)
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
        let why = match &skipped.holder {
            Some(holder) => format!("locked by {holder}"),
            None => skipped.line.clone(),
        };
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
            let left = at.duration_since(now.wall).try_into().unwrap_or_default();
            let left = words::elapsed(left);
            format!(
                "  Next cycle: in {left} (every {every}), or when an exclusive lock appears or is removed"
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
    let mut lines = vec![match &state.ended {
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
    }];
    if let Some(cycle) = &state.last_cycle {
        lines.push(format!("  Its last cycle: {}", last(now, cycle)));
    }
    lines.push(format!("  Its log: {}", state.log));
    lines.push("  Start it with: tenure daemon start".to_owned());
    lines.join("\n")
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
pub(super) fn json(now: &Moment, state: &DaemonState) -> DaemonRunningJson {
    let left = state
        .next_at
        .map(|at| at.duration_since(now.wall).as_secs());
    DaemonRunningJson {
        running: true,
        daemon: details(state),
        next_in_seconds: left.map(|left| left.max(0)),
    }
}

fn details(state: &DaemonState) -> DaemonJson {
    DaemonJson {
        pid: state.process.pid,
        host: state.process.host.clone(),
        version: state.version.clone(),
        started_at: state.started_at.into(),
        interval_seconds: state.interval().as_secs(),
        log: state.log.clone(),
        log_error: state.log_error.clone(),
        cycle_since: state.cycle_since.map(TimeJson),
        last_cycle: state.last_cycle.as_ref().map(|cycle| CycleJson {
            started_at: cycle.started_at.into(),
            ended_at: cycle.ended_at.into(),
            outcome: cycle.outcome.name().to_owned(),
            line: cycle.line.clone(),
        }),
        next_at: state.next_at.map(TimeJson),
        skipped: state.skipped.as_ref().map(|skipped| SkippedJson {
            since: skipped.since.into(),
            holder: skipped.holder.clone(),
            line: skipped.line.clone(),
        }),
        ended: state.ended.as_ref().map(|end| DaemonEndJson {
            at: end.at.into(),
            why: end.why.clone(),
        }),
    }
}
