//! Settings of a store of lock files: [`Options`].

use std::sync::Arc;
use std::time::Duration;

use tenure_core::Clock;

use crate::HostClock;
use crate::files::atomic::Durability;

/// What a store may do with its files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Access {
    /// Everything.
    ReadWrite,
    /// Only read them: nothing is created, repaired or removed, and every verb that writes is refused.
    ReadOnly,
}

/// The settings of a store.
#[derive(Clone)]
pub struct Options {
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// How long the history keeps an event.
    pub history_age: Duration,
    /// How many events the history keeps.
    pub history_events: u64,
    /// How long a ticket of an absent waiter stays in the queue.
    pub queue_grace: Duration,
    /// The version of the holder's program, for protocols that record one.
    pub version: Option<String>,
    /// What a lock must survive. Tokens survive a power cut in any case.
    pub durability: Durability,
    /// What the store may do.
    pub access: Access,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            clock: Arc::new(HostClock::new()),
            history_age: Duration::from_secs(90 * 24 * 3600),
            history_events: 200_000,
            queue_grace: Duration::from_secs(600),
            version: None,
            durability: Durability::PowerCut,
            access: Access::ReadWrite,
        }
    }
}
