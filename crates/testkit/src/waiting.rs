//! The minimal loop of a waiting process: try, queue, wait.
//!
//! It relies on wake-ups as much as it can: it polls once an hour, so a missed wake-up shows as a test that
//! hangs.

use std::time::Duration;

use tenure_core::{
    Acquired, Busy, Clock, Cycle, Granted, Lease, QueuePosition, Reason, Store, Withdrawal,
};
use tenure_host::HostClock;

use crate::ask::Ask;
use crate::limit::{Stopwatch, soon};

/// How long after the expiry of a lease to ask again.
const AFTER_EXPIRY: Duration = Duration::from_millis(1);

/// How a wait ended.
#[derive(Debug)]
#[must_use]
pub enum Outcome {
    /// The key was granted.
    Granted {
        /// The lease.
        lease: Lease,
        /// The leases of the other keys, if several were claimed.
        others: Vec<Lease>,
        /// The reason.
        reason: Reason,
        /// How often the store was asked.
        rounds: u64,
    },
    /// It was not granted in time, and the ticket is withdrawn.
    Busy(Box<Busy>),
    /// The wait would never have ended.
    Deadlock(Cycle),
}

impl Outcome {
    /// The lease, which must have been granted.
    pub fn lease(self) -> Lease {
        match self {
            Self::Granted { lease, .. } => lease,
            other => panic!("it must be granted: {other:?}"),
        }
    }
}

/// Claims a key, and waits if necessary. Calls `queued` with the position once there is a ticket.
pub fn acquire(store: &dyn Store, ask: &Ask, mut queued: impl FnMut(&QueuePosition)) -> Outcome {
    let clock = HostClock::new();
    let (watch, limit) = (Stopwatch::start(), ask.limit.unwrap_or_default());
    let claims = ask.claims(store);
    let mut reported = false;
    for rounds in 1.. {
        // Read before the store reads its own clock: a lease that it reports as live ends after this.
        let asked = clock.now();
        let busy = match store.acquire_all(&claims, soon()).unwrap() {
            Acquired::Granted(granted) => {
                assert_eq!(granted.len(), claims.len(), "only some were granted");
                let mut granted = granted.into_iter();
                let Granted { lease, reason } = granted.next().unwrap();
                return Outcome::Granted {
                    lease,
                    others: granted.map(|granted| granted.lease).collect(),
                    reason,
                    rounds,
                };
            }
            Acquired::Deadlock(cycle) => return Outcome::Deadlock(cycle),
            Acquired::Cancelled => unreachable!("a store cancels nothing"),
            Acquired::Busy(busy) => busy,
        };
        if let Some(position) = busy.position.as_ref().filter(|_| !reported) {
            queued(position);
            reported = true;
        }
        let left = limit.saturating_sub(watch.elapsed());
        if left.is_zero() {
            ask.withdraw(store, Withdrawal::Leave);
            return Outcome::Busy(busy);
        }
        // No process wakes a waiter when a lease expires.
        let look_again = busy
            .look_again
            .as_ref()
            .and_then(|end| end.remaining(&asked))
            .map_or(ask.poll, |left| (left + AFTER_EXPIRY).min(ask.poll));
        let _ = store.wait(&busy.watched(), look_again.min(left)).unwrap();
    }
    unreachable!("the rounds do not end by themselves")
}
