//! What a process of the battery does: its [`Task`].

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::checks::crash::Crash;
use crate::checks::one_holder::Contest;
use crate::checks::reaper::Reaping;
use crate::process;
use crate::puppet;
use crate::subject::Subject;

/// What a process is told when it starts.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Job {
    /// Where the store is.
    pub place: PathBuf,
    /// What to do with it.
    pub task: Task,
}

/// What there is to do.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub enum Task {
    /// Whatever it is told, verb by verb.
    Puppet,
    /// Acquire and release, many times.
    Contend(Contest),
    /// End expired and dead leases again and again.
    Reap(Reaping),
    /// Every verb, until it is killed.
    Crash(Crash),
}

/// Does the job that this process was started for; nothing if there is none.
pub fn work(subject: &Subject) {
    let Some(job) = process::job() else { return };
    let Job { place, task } = serde_json::from_str(&job).unwrap();
    match task {
        Task::Puppet => puppet::follow_orders(&*subject.open(&place)),
        Task::Contend(contest) => contest.contend(subject, &place),
        Task::Reap(reaping) => reaping.reap(&*subject.open(&place)),
        Task::Crash(crash) => crash.go_on_until_killed(subject, &place),
    }
}
