//! How a store of lock files is set up: [`Options`].

use std::sync::Arc;
use std::time::Duration;

use tenure_core::Clock;

use crate::HostClock;

/// What a lock has to survive besides the end of every process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Disk {
    /// A power cut, too: the lock is on disk before it is put in its place, so that no torn one is
    /// found there. Costs a sync for each grant.
    PowerCut,
    /// Nothing more. Tokens survive a power cut even so.
    Crash,
}

/// How a store is set up.
#[derive(Clone)]
pub struct Options {
    /// Where time comes from.
    pub clock: Arc<dyn Clock>,
    /// How long events are kept.
    pub history_age: Duration,
    /// How many events are kept.
    pub history_events: u64,
    /// How long the place of a waiter that was cut off is kept.
    pub queue_grace: Duration,
    /// The version of the holder, for protocols that write one down.
    pub version: Option<String>,
    /// What the lock has to survive.
    pub disk: Disk,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            clock: Arc::new(HostClock::new()),
            history_age: Duration::from_secs(90 * 24 * 3600),
            history_events: 200_000,
            queue_grace: Duration::from_secs(600),
            version: None,
            disk: Disk::PowerCut,
        }
    }
}
