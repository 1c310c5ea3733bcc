//! The daemon: what `tenure daemon` prints.

use serde::{Deserialize, Serialize};

use super::TimeJson;

/// Whether a project's daemon runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(untagged)]
pub enum DaemonStatusJson {
    /// It runs.
    Running(Box<DaemonRunningJson>),
    /// It holds its lock, but its process is not on record.
    Unidentified(DaemonUnidentifiedJson),
    /// It does not run.
    NotRunning(DaemonNotRunningJson),
}

/// A daemon that runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DaemonRunningJson {
    /// Always `true`.
    pub running: bool,
    /// The daemon.
    #[serde(flatten)]
    pub daemon: DaemonJson,
    /// The seconds until the next cycle begins at the latest; `null` if no time is set.
    pub next_in_seconds: Option<i64>,
}

/// A daemon that runs and whose process is not on record: it is probably starting or stopping.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DaemonUnidentifiedJson {
    /// Always `true`.
    pub running: bool,
    /// Always `null`.
    // Not an `Option`: the field is required, which tells this type from `DaemonNotRunningJson`.
    pub pid: (),
}

/// No daemon runs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DaemonNotRunningJson {
    /// Always `false`.
    pub running: bool,
    /// The daemon that ran last; `null` if none has run.
    pub last: Option<DaemonJson>,
}

/// A daemon, running or not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DaemonJson {
    /// Its process.
    pub pid: u32,
    /// The machine of that process.
    pub host: String,
    /// Its version of tenure.
    pub version: String,
    /// When it started.
    pub started_at: TimeJson,
    /// The seconds between two cycles.
    pub interval_seconds: u64,
    /// The path of its log.
    pub log: String,
    /// Why the log can't be written, if it can't.
    pub log_error: Option<String>,
    /// When the current cycle began, if one is running.
    pub cycle_since: Option<TimeJson>,
    /// The last cycle that ended.
    pub last_cycle: Option<CycleJson>,
    /// When the next cycle begins at the latest.
    pub next_at: Option<TimeJson>,
    /// Why cycles are being skipped, if they are.
    pub skipped: Option<SkippedJson>,
    /// When and why it stopped; `null` if it still runs, or was killed.
    pub ended: Option<DaemonEndJson>,
}

/// A cycle that ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CycleJson {
    /// When it began.
    pub started_at: TimeJson,
    /// When it ended.
    pub ended_at: TimeJson,
    /// How it ended, in one word.
    pub outcome: String,
    /// Its summary, as in the log.
    pub line: String,
}

/// Cycles that are skipped because of an exclusive lock.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SkippedJson {
    /// When the first of them was skipped.
    pub since: TimeJson,
    /// The holder of the exclusive lock, if it is known.
    pub holder: Option<String>,
    /// The reason, as in the log.
    pub line: String,
}

/// When and why a daemon stopped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DaemonEndJson {
    /// When it stopped.
    pub at: TimeJson,
    /// Why, for people.
    pub why: String,
}

/// A daemon after `tenure daemon start`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DaemonStartedJson {
    /// Whether this command started it; `false` if it was running already.
    pub started: bool,
    /// The remotes that it shares tasks with; `null` if it shares none.
    pub remotes: Option<Vec<String>>,
    /// The ref on the remotes that holds the tasks.
    pub r#ref: String,
    /// The daemon.
    #[serde(flatten)]
    pub daemon: DaemonRunningJson,
}

/// What `tenure daemon stop` did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DaemonStoppedJson {
    /// The process that was stopped; `null` if no daemon was running.
    pub pid: Option<u32>,
    /// Whether this command stopped a daemon.
    pub stopped: bool,
}

/// A daemon that still runs after it was asked to stop.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DaemonStillRunningJson {
    /// Its process.
    pub pid: u32,
}

/// A daemon that ran in the foreground and ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DaemonEndedJson {
    /// Its process.
    pub pid: u32,
    /// Why it ended, for people.
    pub ended: String,
}

/// The newest lines of a daemon's log.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DaemonLogJson {
    /// The path of the log.
    pub log: String,
    /// The lines, the oldest first.
    pub lines: Vec<LogLineJson>,
}

/// A line of a daemon's log. `tenure daemon logs --follow` prints one per line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct LogLineJson {
    /// When it was written, as the log says it; `null` if the line begins with no time.
    pub at: Option<String>,
    /// The rest of the line.
    pub text: String,
}
