//! One cycle: check the exclusive locks, end expired and dead leases, sync.
//!
//! | step | what is done | what is reported |
//! |---|---|---|
//! | 1 | every exclusive lock is checked; the first that is held, or can't be checked, ends the cycle | the protocol's log lines |
//! | 2 | expired and dead leases are ended, in every store of the project | each lease, with the evidence |
//! | 3 | the tasks are synced, unless `sync.enabled` is false | what the sync merged |
//!
//! A step that fails does not prevent the next one.

use std::fmt;
use std::os::fd::OwnedFd;

use tenure::{Config, Project, Tenure};
use tenure_core::{HolderId, Key, Reaped, Store, StoreError};
use tenure_host::pidfd::open_pidfd;
use tenure_lockfile::exclusive::{Check, ExclusiveStore, KEY, check};
use tenure_sync::{Direction, SyncEvent, SyncOutcome, sync};

use crate::lock_locations::LockLocations;
use crate::reap::{ReapSummary, reap};
use crate::state::CycleOutcome;

/// Something that happened during a cycle. Its text is the line in the log.
#[derive(Debug)]
pub enum CycleEvent {
    /// An exclusive lock was found, and the cycle is skipped or the stale lock was removed.
    ExclusiveLock(Check),
    /// An expired or dead lease was ended.
    LeaseEnded(Reaped),
    /// The sync reports something.
    Sync(SyncEvent),
}

impl fmt::Display for CycleEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ExclusiveLock(check) => check.fmt(f),
            Self::LeaseEnded(Reaped { lease, evidence }) => {
                let (holder, key) = (&lease.holder.id, &lease.key);
                write!(f, "Ended the lease of {holder} on {key}: {evidence}")
            }
            Self::Sync(event) => event.fmt(f),
        }
    }
}

/// What a cycle did. Its text is the summary in the log.
#[derive(Debug)]
pub enum CycleResult {
    /// Nothing: an exclusive lock is held, or could not be checked.
    Skipped(Check),
    /// Nothing: the project's store could not be opened.
    StoreFailed(StoreError),
    /// The daemon was asked to stop before the sync.
    Interrupted(ReapSummary),
    /// Both steps were tried.
    Finished {
        /// The expired and dead leases.
        reaped: ReapSummary,
        /// The sync.
        sync: SyncOutcome,
    },
}

impl CycleResult {
    /// The result in one word.
    pub fn outcome(&self) -> CycleOutcome {
        match self {
            Self::Skipped(_) => CycleOutcome::Skipped,
            Self::StoreFailed(_) => CycleOutcome::Failed,
            Self::Interrupted(_) => CycleOutcome::CutShort,
            Self::Finished { reaped, .. } if !reaped.failures.is_empty() => CycleOutcome::Failed,
            Self::Finished { sync, .. } => match sync {
                SyncOutcome::Off | SyncOutcome::UpToDate | SyncOutcome::Synced(_) => {
                    CycleOutcome::Done
                }
                SyncOutcome::PutOff(_) => CycleOutcome::PutOff,
                SyncOutcome::Failed(_) => CycleOutcome::Failed,
            },
        }
    }

    /// The holder of the exclusive lock for which the cycle was skipped, if it is known.
    pub fn skipped_for(&self) -> Option<&HolderId> {
        match self {
            Self::Skipped(check) => check.holder(),
            _ => None,
        }
    }

    /// Whether tasks were exchanged with other clones.
    pub(crate) fn shared_tasks(&self) -> bool {
        let Self::Finished { sync, .. } = self else {
            return false;
        };
        matches!(sync, SyncOutcome::Synced(_))
    }

    /// Whether the log tells nothing new if this follows `previous`.
    pub(crate) fn repeats(&self, previous: &Self) -> bool {
        match (self, previous) {
            (Self::Finished { reaped, sync }, Self::Finished { reaped: a, sync: b }) => {
                self.outcome() == previous.outcome() && reaped.ended == a.ended && sync == b
            }
            _ => false,
        }
    }
}

impl fmt::Display for CycleResult {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Skipped(check) => check.fmt(f),
            Self::StoreFailed(error) => write!(f, "Cycle failed: {error}"),
            Self::Interrupted(reaped) => write!(f, "Cycle cut short: {reaped}."),
            Self::Finished { reaped, sync } => {
                let how = match self.outcome() {
                    CycleOutcome::Failed => "failed",
                    _ => "done",
                };
                write!(f, "Cycle {how}: {reaped}. {sync}.")
            }
        }
    }
}

/// What a cycle did, and what the daemon has to know for the next one.
#[derive(Debug)]
pub(crate) struct CycleReport {
    pub(crate) result: CycleResult,
    /// Whether any event was reported.
    pub(crate) eventful: bool,
    /// Becomes readable when the holder of the exclusive lock ends.
    pub(crate) holder: Option<OwnedFd>,
}

/// Runs one cycle outside of a daemon, under the same rules.
pub fn run_once(
    project: &Project,
    config: &Config,
    stop: &dyn Fn() -> bool,
    report: &mut dyn FnMut(CycleEvent),
) -> CycleResult {
    cycle(project, &LockLocations::of(project), config, stop, report).result
}

/// Runs one cycle. `stop` is asked between the steps, and during the sync; `report` gets each event as it
/// happens.
pub(crate) fn cycle(
    project: &Project,
    locations: &LockLocations,
    config: &Config,
    stop: &dyn Fn() -> bool,
    report: &mut dyn FnMut(CycleEvent),
) -> CycleReport {
    let mut eventful = false;
    let mut report = |event| {
        eventful = true;
        report(event);
    };
    for folder in locations.folders() {
        let (check, holder) = check_lock(&folder, config);
        if check != Check::Free {
            report(CycleEvent::ExclusiveLock(check.clone()));
        }
        if check.skips() {
            return CycleReport {
                result: CycleResult::Skipped(check),
                eventful,
                holder,
            };
        }
    }
    let result = work(project, config, stop, &mut report);
    CycleReport {
        result,
        eventful,
        holder: None,
    }
}

/// Step 1 for one folder. The descriptor becomes readable when the holder ends; a holder that can't be
/// watched is checked again in the next cycle.
fn check_lock(folder: &std::path::Path, config: &Config) -> (Check, Option<OwnedFd>) {
    let options = tenure_lockfile::Options {
        history_age: config.history.max_age,
        history_events: config.history.max_events,
        queue_grace: config.locking.queue_grace,
        ..tenure_lockfile::Options::default()
    };
    match ExclusiveStore::open(folder, options) {
        Ok(store) => {
            let check = check(&store);
            let holder = matches!(check, Check::Skip { .. }).then(|| watch_holder(&store));
            (check, holder.flatten())
        }
        Err(error) => {
            let reason = error.to_string();
            (Check::CheckFailed { reason }, None)
        }
    }
}

fn watch_holder(store: &ExclusiveStore) -> Option<OwnedFd> {
    let snapshot = store.inspect(&Key::parse(KEY).ok()?, tenure::store::call_deadline());
    let (lease, _) = snapshot.ok()?.leases.into_iter().next()?;
    open_pidfd(lease.holder.process()?).ok().flatten()
}

/// Steps 2 and 3.
fn work(
    project: &Project,
    config: &Config,
    stop: &dyn Fn() -> bool,
    report: &mut dyn FnMut(CycleEvent),
) -> CycleResult {
    let tenure = match project.open_store(config.clone(), Tenure::open_with) {
        Ok(tenure) => tenure,
        Err(error) => return CycleResult::StoreFailed(error),
    };
    let reaped = reap(project, &tenure, config, report);
    if stop() {
        return CycleResult::Interrupted(reaped);
    }
    let sync = sync(project, &tenure, Direction::Both, stop, &mut |event| {
        report(CycleEvent::Sync(event));
    });
    CycleResult::Finished { reaped, sync }
}
