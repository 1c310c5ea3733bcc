//! A request for a key: [`Claim`].

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::holder::{Binding, Holder};
use crate::key::Key;
use crate::lease::Token;
use crate::mode::Mode;

/// How urgent a claim is: 0 low to 9 high.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(transparent)]
pub struct Priority(u8);

impl Priority {
    /// The highest priority.
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
    /// Return, and leave no ticket.
    Try,
    /// Take a ticket, or keep the one that the claim has.
    Queue,
}

/// A request for a key.
#[derive(Debug, Clone)]
pub struct Claim {
    /// The key.
    pub key: Key,
    /// How it is to be held.
    pub mode: Mode,
    /// The holder of the lease, if it is granted.
    pub holder: Holder,
    /// The process that makes the claim and may wait. The lease may be tied to another process, or to none.
    pub asker: Binding,
    /// Whether the caller chose the holder's name. Only then does the same name mean the same holder:
    /// two holders with the same generated name must not share a lease or a ticket.
    pub named: bool,
    /// How long the lease lasts unless it is renewed.
    pub ttl: Duration,
    /// The priority.
    pub priority: Priority,
    /// What to do when the key is busy.
    pub patience: Patience,
    /// The grants of this store under which the claiming process runs. A claim that waits for one of them
    /// would wait for itself, and their holders wait with it. Tokens are unique across all keys.
    pub within: Vec<Token>,
}
