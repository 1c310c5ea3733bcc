//! What is asked for: [`Claim`].

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::holder::{Binding, Holder};
use crate::key::Key;
use crate::lease::Token;

/// How urgent a claim is: 0 low to 9 high.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Priority(u8);

impl Priority {
    /// The highest.
    pub const MAX: Self = Self(9);

    /// A priority from 0 to 9; `None` above that.
    pub fn new(level: u8) -> Option<Self> {
        (level <= Self::MAX.0).then_some(Self(level))
    }

    /// The level as a number.
    pub fn level(self) -> u8 {
        self.0
    }
}

impl Default for Priority {
    fn default() -> Self {
        Self(5)
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// What to do when the key is busy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// Say so and leave no trace.
    Try,
    /// Take a ticket, or keep the one that is there.
    Queue,
}

/// A request for a key.
#[derive(Debug, Clone)]
pub struct Claim {
    /// What is wanted.
    pub key: Key,
    /// By whom.
    pub holder: Holder,
    /// The process that asks and, if need be, waits. The lease may be tied to another, or to none.
    pub asker: Binding,
    /// Whether the holder's name was chosen on purpose. Only then does the same name mean the
    /// same holder: a made-up name that happens to repeat must not share a lease or a ticket.
    pub named: bool,
    /// For how long, unless renewed.
    pub ttl: Duration,
    /// How urgently.
    pub priority: Priority,
    /// What to do when it is busy.
    pub patience: Patience,
    /// The grants of this store under which the asking process runs: waiting for one of them would
    /// be waiting for oneself, and their holders wait with it. Tokens are unique across all keys.
    pub within: Vec<Token>,
}
