//! `make bench`: every number is a ratio to something else measured in the same run. Words on the command line choose
//! what is measured, by any part of its name: `cargo bench -p tenure-cli --bench ratios -- etcd`.
//!
//! | module | what is measured | against what |
//! |---|---|---|
//! | `command` | wall time and instructions of `tenure run k -- true`, start-up, many commands in a row, memory | `flock f true`, `true` |
//! | `pairs` | acquire and release in one process | a bare INSERT and DELETE with the same pragmas |
//! | `handoff` | release in one process to held in another | `flock(2)` |
//! | `crowd` | 200 and 1,000 waiters for one key: served, idle, handed over | flock(1), 1 % of a core, 10 waiters |
//! | `scale` | the same pair beside 100,000 other locks and a million events | beside ten |
//! | `reservations` | `check` and `reserve` with 10,000 reservations | start-up, and with ten |
//! | `ledger` | append, 32 writers, replay, claim and release | the bare system calls, and the documented algorithm |
//! | `tasks` | begin, end and list tasks of a million | of ten thousand |
//! | `sync` | share one changed task of 100,000 | of a hundred |
//! | `etcd` (five parts: `etcd-locks`, `etcd-often`, `etcd-runs`, `etcd-next`, `etcd-leader`) | pairs, hand-overs and commands on an etcd cluster, a killed holder, a lost leader; a key used 20,000 times; tasks of 100,000 | `etcdctl lock`, and etcd's own lock call; used once; of a hundred |
//! | `board` | list, check and index a board of 5,000 tasks | reading its files once |
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::cast_precision_loss,
    missing_docs,
    reason = "a benchmark: whatever goes wrong ends it"
)]

mod board;
mod command;
mod crowd;
#[cfg(feature = "etcd")]
mod etcd;
mod handoff;
mod ledger;
mod pairs;
mod reservations;
mod scale;
mod stopwatch;
mod sync;
mod tasks;

/// One line of the table.
pub(crate) struct Line {
    pub(crate) what: &'static str,
    pub(crate) ours: String,
    pub(crate) theirs: String,
    pub(crate) ratio: f64,
    pub(crate) aim: &'static str,
}

pub(crate) type Measure = fn() -> Vec<Line>;

fn main() {
    // A second process of a measurement is this program again.
    #[cfg(feature = "etcd")]
    if etcd::is_partner() {
        return;
    }
    if handoff::is_partner() || crowd::is_partner() || ledger::is_partner() {
        return;
    }
    let only: Vec<String> = std::env::args()
        .skip(1)
        .filter(|arg| !arg.starts_with('-'))
        .collect();
    let wanted =
        |name: &str| only.is_empty() || only.iter().any(|only| name.contains(only.as_str()));
    println!(
        "{:<44} {:>16} {:>16} {:>8}  aim",
        "what", "tenure", "against", "ratio"
    );
    let measures: &[(&str, Measure)] = &[
        ("command", command::measure),
        ("pairs", pairs::measure),
        ("handoff", handoff::measure),
        ("crowd", crowd::measure),
        ("scale", scale::measure),
        ("reservations", reservations::measure),
        ("ledger", ledger::measure),
        ("tasks", tasks::measure),
        ("sync", sync::measure),
        ("board", board::measure),
    ];
    #[cfg(feature = "etcd")]
    let measures = [measures, &etcd::MEASURES].concat();
    for (name, measure) in measures {
        if wanted(name) {
            for line in measure() {
                println!(
                    "{:<44} {:>16} {:>16} {:>7.2}x  {}",
                    line.what, line.ours, line.theirs, line.ratio, line.aim
                );
            }
        }
    }
}
