//! Ends expired and dead leases in the stores of a project, and records why.
//!
//! The exclusive locks are not handled here: a cycle checks them first. The database of another program
//! (`steroids:PATH`) is left alone, because nobody asked tenure to write there.

use std::fmt;

use tenure::project::StoreRole;
use tenure::text::plural;
use tenure::{Config, Project, StoreUrl, Tenure};
use tenure_core::{Reap, StoreError};
use tenure_host::files::look;

use crate::cycle::CycleEvent;

/// What was done.
#[derive(Debug, Default)]
pub struct ReapSummary {
    /// How many leases were ended.
    pub ended: usize,
    /// The stores in which it failed, and why.
    pub failures: Vec<(StoreUrl, StoreError)>,
}

impl fmt::Display for ReapSummary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.ended {
            0 if self.failures.is_empty() => f.write_str("no leases to end")?,
            0 => f.write_str("no leases ended")?,
            some => write!(f, "{} ended", plural::count(some, "lease"))?,
        }
        for (url, error) in &self.failures {
            write!(f, ", {url} failed ({error})")?;
        }
        Ok(())
    }
}

/// Ends the expired and dead leases of every store; `own` is the project's own store.
pub(crate) fn reap(
    project: &Project,
    own: &Tenure,
    config: &Config,
    report: &mut dyn FnMut(CycleEvent),
) -> ReapSummary {
    let mut reaped = ReapSummary::default();
    reaped.add(project.store(), reap_store(own, report));
    for url in others(project) {
        let result = Tenure::open_with(&url, config.clone());
        let result = result.and_then(|store| reap_store(&store, report));
        reaped.add(url, result);
    }
    reaped
}

impl ReapSummary {
    fn add(&mut self, url: StoreUrl, result: Result<usize, StoreError>) {
        match result {
            Ok(count) => self.ended += count,
            Err(error) => self.failures.push((url, error)),
        }
    }
}

/// The stores beside the project's own in which there may be something to end.
fn others(project: &Project) -> Vec<StoreUrl> {
    let stores = project.stores().into_iter().filter(|store| {
        match (store.role, &store.url) {
            // Opening the lock of a board writes beside it: not done for a lock that nobody holds.
            (StoreRole::BoardLock, StoreUrl::Mkdir(lock)) => look::may_be_there(lock),
            (StoreRole::Ledger, _) => true,
            _ => false,
        }
    });
    stores.map(|store| store.url).collect()
}

fn reap_store(store: &Tenure, report: &mut dyn FnMut(CycleEvent)) -> Result<usize, StoreError> {
    let reaped = store
        .store()
        .reap(Reap::Free, tenure::store::call_deadline())?;
    let count = reaped.len();
    for lease in reaped {
        report(CycleEvent::LeaseEnded(lease));
    }
    Ok(count)
}
