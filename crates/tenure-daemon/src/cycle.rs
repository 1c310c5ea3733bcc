//! One cycle: check the exclusive locks, free what is over, sync.
//!
//! | step | what is done | what is said |
//! |---|---|---|
//! | 1 | each place of an exclusive lock is checked; the first that is held, or may be, ends the cycle | the seed's lines |
//! | 2 | leases that are over are freed, in every store of the project | a line each, with the evidence |
//! | 3 | the tasks are synced, unless `sync.enabled` says no | what the sync says |
//!
//! A step that fails says so and does not keep the others from being done.

use std::os::fd::OwnedFd;

use tenure::core::{Key, Store};
use tenure::file::exclusive::{Check, ExclusiveStore, KEY, check};
use tenure::{Config, Project, Tenure};

use crate::places::Places;
use crate::process::hold_fast;
use crate::reap::reap;
use crate::state::Outcome;
use tenure_sync as sync;

/// What came of a cycle.
#[derive(Debug)]
pub struct Done {
    /// How it ended.
    pub outcome: Outcome,
    /// All of it in a line.
    pub line: String,
    /// What came of the sync, if it came to that.
    pub synced: Option<sync::Outcome>,
    /// Whether anything was said on the way.
    pub(crate) eventful: bool,
    /// For whom it was skipped, if that is known.
    pub holder: Option<String>,
    /// That process, to be told of its end.
    pub(crate) watched: Option<OwnedFd>,
}

/// Does by hand what the daemon does in a cycle, under the same rules.
pub fn once(
    project: &Project,
    config: &Config,
    stop: &dyn Fn() -> bool,
    say: &mut dyn FnMut(&str),
) -> Done {
    cycle(project, &Places::of(project), config, stop, say)
}

/// Goes through one cycle. `stop` is asked between the steps; `say` is told a line at a time.
pub(crate) fn cycle(
    project: &Project,
    places: &Places,
    config: &Config,
    stop: &dyn Fn() -> bool,
    say: &mut dyn FnMut(&str),
) -> Done {
    let mut eventful = false;
    let mut say = |line: &str| {
        eventful = true;
        say(line);
    };
    for folder in places.folders() {
        let options = options(config);
        let (check, watched) = match ExclusiveStore::open(&folder, options) {
            Ok(store) => {
                let check = check(&store);
                let watched = matches!(check, Check::Skip { .. }).then(|| watch(&store));
                (check, watched.flatten())
            }
            Err(error) => {
                let reason = error.to_string();
                (Check::CheckFailed { reason }, None)
            }
        };
        let line = check.to_string();
        if !line.is_empty() {
            say(&line);
        }
        if check.skips() {
            return Done {
                outcome: Outcome::Skipped,
                line,
                synced: None,
                eventful: true,
                holder: check.holder().map(ToString::to_string),
                watched,
            };
        }
    }
    let (outcome, line, synced) = work(project, config, stop, &mut say);
    Done {
        outcome,
        line,
        synced,
        eventful,
        holder: None,
        watched: None,
    }
}

fn options(config: &Config) -> tenure::file::Options {
    tenure::file::Options {
        history_age: config.history.max_age,
        history_events: config.history.max_events,
        queue_grace: config.locking.queue_grace,
        ..tenure::file::Options::default()
    }
}

/// The process that holds the lock, to be told of its end. What can't be watched is looked at in the
/// next cycle.
fn watch(store: &ExclusiveStore) -> Option<OwnedFd> {
    let (lease, _) = store.inspect(&Key::parse(KEY).ok()?).ok()?.lease?;
    hold_fast(lease.holder.process()?).ok().flatten()
}

/// Steps 2 and 3.
fn work(
    project: &Project,
    config: &Config,
    stop: &dyn Fn() -> bool,
    say: &mut dyn FnMut(&str),
) -> (Outcome, String, Option<sync::Outcome>) {
    let tenure = match Tenure::open(&project.store(), config.clone()) {
        Ok(tenure) => tenure,
        Err(error) => {
            let line = format!("Cycle failed: {error}");
            return (Outcome::Failed, line, None);
        }
    };
    let freed = reap(project, &tenure, config, say);
    if stop() {
        return (
            Outcome::CutShort,
            format!("Cycle cut short: {freed}."),
            None,
        );
    }
    let synced = sync::sync(project, &tenure, stop, &mut *say);
    let outcome = match &synced {
        sync::Outcome::Off | sync::Outcome::Nothing | sync::Outcome::Done(_) => Outcome::Done,
        sync::Outcome::PutOff(_) => Outcome::PutOff,
        sync::Outcome::Failed(_) => Outcome::Failed,
    };
    let outcome = if freed.failed() {
        Outcome::Failed
    } else {
        outcome
    };
    let word = match outcome {
        Outcome::Failed => "Cycle failed",
        _ => "Cycle done",
    };
    let line = format!("{word}: {freed}. {synced}.");
    (outcome, line, Some(synced))
}
