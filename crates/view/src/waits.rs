//! Who waits for whom, across every store of a project: [`Waits`].
//!
//! A holder waits if a ticket has its name, if the ticket was taken under its lease, or if its process or one that
//! this started has the ticket. The last one is how a wait in another store is found: a store knows only its own waits, and
//! refuses only the cycles that it sees.

use std::collections::HashSet;

use tenure_core::waits::Wanted;
use tenure_core::{Lease, Presence, Process, Snapshot, Waiter};
use tenure_host::{ancestors, identity};

use crate::overview::{Overview, StoreView};

/// How many processes above a waiter are looked at.
const HIGHEST: usize = 32;

/// A place in a queue.
#[derive(Clone, Copy)]
pub struct Wait<'a> {
    /// The store.
    pub store: &'a StoreView,
    /// The lock that is waited for.
    pub lock: &'a Snapshot,
    /// The waiter.
    pub waiter: &'a Waiter,
}

impl<'a> Wait<'a> {
    /// The leases that it waits for.
    pub fn leases(&self) -> Vec<&'a Lease> {
        let Wanted { all, any } = self.wanted();
        all.into_iter().chain(any).collect()
    }

    fn wanted(&self) -> Wanted<&'a Lease> {
        let standing = self.lock.leases.iter();
        let standing = standing.filter(|(_, verdict)| verdict.ended().is_none());
        let standing: Vec<&Lease> = standing.map(|(lease, _)| lease).collect();
        let queue: Vec<&Waiter> = self.lock.queue.iter().collect();
        let is_present = |waiter: &Waiter| waiter.presence == Presence::Here;
        let mut wanted = Wanted::by_waiter(self.waiter, &standing, &queue, is_present);
        wanted.retain(|lease| lease.holder.id != self.waiter.holder.id);
        wanted
    }

    fn is(&self, other: &Self) -> bool {
        std::ptr::eq(self.waiter, other.waiter)
    }
}

/// One step of a circle: a wait, and the lease that it is for.
pub type WaitStep<'a> = (Wait<'a>, &'a Lease);

/// The waits of a project.
pub struct Waits<'a> {
    /// Each with the pids of its process and of those above it, if they can be seen from here.
    all: Vec<(Wait<'a>, Vec<u32>)>,
}

impl<'a> Waits<'a> {
    /// The waits that were seen, of waiters that are there.
    pub fn of(overview: &'a Overview) -> Self {
        let mut all = Vec::new();
        for store in &overview.stores {
            for lock in &store.locks {
                for waiter in &lock.queue {
                    if waiter.presence == Presence::Here {
                        let wait = Wait {
                            store,
                            lock,
                            waiter,
                        };
                        all.push((wait, above(waiter)));
                    }
                }
            }
        }
        Self { all }
    }

    /// What the holder of a lease waits for.
    pub fn by(&self, store: &StoreView, lease: &Lease) -> Vec<Wait<'a>> {
        let pid = lease.holder.process().filter(|process| is_here(process));
        let pid = pid.map(|process| process.pid);
        let is_its = |(wait, above): &&(Wait<'a>, Vec<u32>)| {
            wait.waiter.holder.id == lease.holder.id
                || std::ptr::eq(wait.store, store) && wait.waiter.within.contains(&lease.token)
                || pid.is_some_and(|pid| above.contains(&pid))
        };
        let its = self.all.iter().filter(is_its);
        its.map(|(wait, _)| *wait).collect()
    }

    /// The circles of waits that never end, each once.
    pub fn circles(&self) -> Vec<Vec<WaitStep<'a>>> {
        let mut known = HashSet::new();
        let mut circles = Vec::new();
        for (wait, _) in &self.all {
            let Wanted { all, any } = wait.wanted();
            let back = |lease| self.back(*wait, lease);
            // If any of several leases ends the wait, each of them must be part of a circle.
            let through_any: Option<Vec<_>> = any.into_iter().map(back).collect();
            let found = all.into_iter().filter_map(back);
            for circle in found.chain(through_any.into_iter().flatten()).take(1) {
                let mut names: Vec<usize> = circle
                    .iter()
                    .map(|(wait, _)| std::ptr::from_ref(wait.waiter).addr())
                    .collect();
                names.sort_unstable();
                if known.insert(names) {
                    circles.push(circle);
                }
            }
        }
        circles
    }

    /// The way from a lease that is waited for back to the wait.
    fn back(&self, wait: Wait<'a>, lease: &'a Lease) -> Option<Vec<WaitStep<'a>>> {
        let mut seen = HashSet::from([std::ptr::from_ref(lease).addr()]);
        let mut open = vec![vec![(wait, lease)]];
        while let Some(way) = open.pop() {
            let (at, lease) = way.last()?;
            for next in self.by(at.store, lease) {
                if next.is(&wait) {
                    return Some(way);
                }
                let Wanted { mut all, any } = next.wanted();
                // One of several may end without the others.
                if any.len() == 1 {
                    all.extend(any);
                }
                for lease in all {
                    if seen.insert(std::ptr::from_ref(lease).addr()) {
                        let mut longer = way.clone();
                        longer.push((next, lease));
                        open.push(longer);
                    }
                }
            }
        }
        None
    }
}

/// Whether a process would be seen from here.
fn is_here(process: &Process) -> bool {
    process.namespace == identity::namespace() && !process.boot.differs(identity::boot())
}

/// The pids of a waiter's process and of those that started it.
fn above(waiter: &Waiter) -> Vec<u32> {
    let Some(process) = waiter.holder.process().filter(|process| is_here(process)) else {
        return Vec::new();
    };
    let first = Some(process.pid);
    let above = std::iter::successors(first, |pid| ancestors::parent(*pid));
    // Every process is below the first one.
    above.take(HIGHEST).filter(|pid| *pid > 1).collect()
}
