//! The rules for a claim on several keys: all of them are granted in one step, or none.
//!
//! A claim that has to wait takes a ticket for each of its keys and holds none of them. All its tickets have one
//! arrival time and one priority, so two claims are in the same order in every queue that they share. Therefore
//!
//! - the first of all waiters is first in each of its queues. It waits for holders only, never for a waiter;
//! - no claim is overtaken on any of its keys, unless a claim on that key alone could be overtaken in the same way
//!   (G8). While it waits for one key, later claims on its other keys wait behind it, even if those keys are free.
//!
//! There is one exception to the order, also for a claim on one key. A claimant that already holds a key may stand behind a waiter that needs that
//! very key: each would wait for the other. The waiter holds nothing and can't proceed before the claimant, so the
//! claimant goes first. [`crate::engine::view_past_blocked`] finds these waiters, also through other holders and waiters.

use std::time::Duration;

use crate::decide::Decision;

/// The rules that the engine follows for a claim on several keys. Each is a field, so that a test can replace one with a
/// broken rule.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// Whether a claim is granted, given the decision on each of its keys.
    pub is_granted: fn(&[&Decision]) -> bool,
    /// The arrival time of the ticket for each key, given the time at which the claim would arrive in each queue.
    pub arrivals: fn(&[Duration]) -> Vec<Duration>,
    /// Whether a claim goes before a waiter ahead that waits for the claimant.
    pub passes_blocked: bool,
}

impl Rules {
    /// The rules of this module.
    pub const STANDARD: Self = Self {
        is_granted,
        arrivals,
        passes_blocked: true,
    };
}

/// Whether a claim is granted: if each of its keys is.
pub fn is_granted(decisions: &[&Decision]) -> bool {
    decisions.iter().all(|decision| grants(decision))
}

/// Whether a decision grants its key.
pub fn grants(decision: &Decision) -> bool {
    matches!(decision, Decision::Grant { .. } | Decision::Extend { .. })
}

/// One arrival time for all tickets: the latest, so that it is not before that of a waiter in any of the queues.
pub fn arrivals(each: &[Duration]) -> Vec<Duration> {
    let latest = each.iter().max().copied().unwrap_or_default();
    vec![latest; each.len()]
}
