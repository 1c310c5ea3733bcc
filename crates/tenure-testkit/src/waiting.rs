//! Try, queue, wait: the least loop that a waiting process needs.
//!
//! It leans on the store as hard as it may: with an hour between two looks, only a call ends the
//! wait, so a call that is missed shows as a test that hangs.

use std::time::Duration;

use tenure_core::{Acquired, Busy, Clock, Cycle, Granted, Lease, QueuePosition, Reason, Store};
use tenure_host::HostClock;

use crate::ask::Ask;
use crate::limit::{Stopwatch, soon};

/// How soon to look again after a lease should have run out.
const AFTER_EXPIRY: Duration = Duration::from_millis(1);

/// What came of waiting.
#[derive(Debug)]
#[must_use]
pub enum Outcome {
    /// The key is ours.
    Granted {
        /// The lease.
        lease: Lease,
        /// Why.
        reason: Reason,
        /// How often the store was asked.
        rounds: u64,
    },
    /// It was not to be had in time; the place is given up.
    Busy(Box<Busy>),
    /// Waiting would never have ended.
    Deadlock(Cycle),
}

impl Outcome {
    /// The lease, which must have been granted.
    pub fn lease(self) -> Lease {
        match self {
            Self::Granted { lease, .. } => lease,
            other => panic!("it should be granted: {other:?}"),
        }
    }
}

/// Asks, and waits if need be. `queued` is told of the place as soon as there is one.
pub fn acquire(store: &dyn Store, ask: &Ask, mut queued: impl FnMut(&QueuePosition)) -> Outcome {
    let clock = HostClock::new();
    let (watch, limit) = (Stopwatch::start(), ask.limit.unwrap_or_default());
    let claim = ask.claim(store);
    let mut told = false;
    for rounds in 1.. {
        // Before the store looks at its own clock: a lease that it calls good ends after this.
        let asked = clock.now();
        let busy = match store.acquire(&claim, soon()).unwrap() {
            Acquired::Granted(Granted { lease, reason }) => {
                return Outcome::Granted {
                    lease,
                    reason,
                    rounds,
                };
            }
            Acquired::Deadlock(cycle) => return Outcome::Deadlock(cycle),
            Acquired::Cancelled => unreachable!("a store cancels nothing"),
            Acquired::Busy(busy) => busy,
        };
        if let Some(position) = busy.position.as_ref().filter(|_| !told) {
            queued(position);
            told = true;
        }
        let left = limit.saturating_sub(watch.elapsed());
        if left.is_zero() {
            if let Some(position) = busy.position {
                store.leave(&ask.key, position.ticket, soon()).unwrap();
            }
            return Outcome::Busy(busy);
        }
        // Nobody calls when a lease runs out.
        let look_again = busy
            .look_again
            .as_ref()
            .and_then(|end| end.remaining(&asked))
            .map_or(ask.poll, |left| (left + AFTER_EXPIRY).min(ask.poll));
        let _ = store.wait(&busy.watched(), look_again.min(left)).unwrap();
    }
    unreachable!("the rounds do not end by themselves")
}
