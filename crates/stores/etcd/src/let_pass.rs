//! Waiters that let their turn pass: [`LetPass`].
//!
//! The session of a process that died on another machine stays until the cluster ends it, and the cluster begins to count anew
//! whenever it elects a leader. But a waiter that could have a free key takes it at once: it is woken, and it asks every few
//! seconds in any case. So a process that sees, by its own clock, that a waiter could have had the key for [`LAPSE`] and did not
//! take it, does not wait for it any longer. The waiter keeps its ticket: if it is only slow, it is the next.

use std::collections::HashMap;
use std::time::Duration;

use tenure_core::decide::{Claimant, compatible_with};
use tenure_core::queue::{HEARTBEAT, TURN_LAPSE};
use tenure_core::{Key, Presence, Ticket, Waiter};

use crate::step::{EtcdStep, is_of_tasks};
use tenure_host::lock;

/// How long a waiter may let a free key lie. Another waiter sees that it is free after [`HEARTBEAT`] at the latest, so both
/// together are [`TURN_LAPSE`].
pub(crate) const LAPSE: Duration = TURN_LAPSE.saturating_sub(HEARTBEAT);

/// What is remembered of a waiter for longer is not worth it.
const OLD: Duration = Duration::from_secs(600);

/// Since when this process has seen that waiters could have a key, on the boot clock.
#[derive(Debug, Default)]
pub(crate) struct LetPass {
    since: HashMap<(Key, Ticket), Duration>,
}

impl LetPass {
    /// How long it takes until the next waiter for a key has let its turn pass.
    pub(crate) fn next(&self, key: &Key, now: Duration) -> Option<Duration> {
        let of_key = self.since.iter().filter(|((of, _), _)| of == key);
        let left = of_key.map(|(_, since)| (*since + LAPSE).saturating_sub(now));
        left.filter(|left| !left.is_zero()).min()
    }

    /// This process sees now that a waiter could have its key, or has seen it before.
    fn note(&mut self, key: &Key, ticket: Ticket, now: Duration) {
        self.since
            .retain(|_, since| now.saturating_sub(*since) < OLD);
        self.since.entry((key.clone(), ticket)).or_insert(now);
    }

    /// Whether a waiter has let its turn pass.
    fn has(&self, key: &Key, ticket: Ticket, now: Duration) -> bool {
        let since = self.since.get(&(key.clone(), ticket));
        since.is_some_and(|since| now.saturating_sub(*since) >= LAPSE)
    }
}

impl EtcdStep<'_> {
    /// Whether a waiter could have had its key for too long.
    pub(crate) fn lets_pass(&self, waiter: &Waiter) -> bool {
        if self.store.presence.is_us(&waiter.holder) || !waiter.with.is_empty() {
            return false;
        }
        let keys = self.seen.keys.iter();
        let mut keys = keys.filter(|(_, records)| {
            let mut tickets = records.tickets.iter();
            tickets.any(|one| one.waiter.ticket == waiter.ticket)
        });
        let Some((key, records)) = keys.next() else {
            return false;
        };
        // A task may be kept from a waiter by its section.
        if is_of_tasks(Some(key)) {
            return false;
        }
        let claimant = Claimant::waiting(waiter);
        let goes_first = |other: &&Waiter| {
            other.rank() < waiter.rank() && !Claimant::waiting(other).compatible_with(claimant)
        };
        let tickets = records.tickets.iter().map(|one| &one.waiter);
        let mut let_pass = lock(&self.store.let_pass);
        let is_absent = |other: &Waiter| {
            let session = other.holder.liveness_lock();
            let session = session.and_then(|lock| self.seen.sessions.get(&lock.0));
            other.presence == Presence::Away
                || session == Some(&false)
                || let_pass.has(key, other.ticket, self.began)
        };
        let standing = records.leases.iter();
        let standing = standing.filter(|one| records.alive.contains_key(&one.name));
        let standing: Vec<_> = standing
            .map(|one| one.lease(key, &self.now, false))
            .collect();
        let could = standing.len() < waiter.mode.room()
            && standing
                .iter()
                .all(|lease| compatible_with(lease, claimant))
            && tickets.filter(goes_first).all(is_absent);
        if could {
            let_pass.note(key, waiter.ticket, self.began);
        } else {
            let_pass.since.remove(&(key.clone(), waiter.ticket));
        }
        let_pass.has(key, waiter.ticket, self.began)
    }
}
