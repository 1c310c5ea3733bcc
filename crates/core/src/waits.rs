//! What a waiter waits for: [`Wanted`]. The search for a cycle, `tenure why` and `tenure doctor` follow this one definition.

use crate::decide::{self, Claimant};
use crate::lease::{Grant, Lease};
use crate::queue::{Rank, Waiter};

/// What one wait is for: all of some leases have to end, and any one of some others.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted<T = Grant> {
    /// Each of these has to end.
    pub all: Vec<T>,
    /// One of these has to end, if there are any: each of them has a slot.
    pub any: Vec<T>,
}

impl<T> Wanted<T> {
    /// Whether nothing has to end.
    pub fn is_empty(&self) -> bool {
        self.all.is_empty() && self.any.is_empty()
    }

    /// Leaves out some.
    pub fn retain(&mut self, keep: impl Fn(&T) -> bool) {
        self.all.retain(&keep);
        self.any.retain(&keep);
    }
}

impl<'a> Wanted<&'a Lease> {
    /// What a claimant with this rank waits for, in any mode: the leases that conflict with it, and with every present
    /// waiter ahead that conflicts with it, because that one goes first; and if there is no slot left, any of those that are
    /// taken. A waiter that is not present holds nobody up.
    pub fn by(
        claimant: Claimant<'_>,
        rank: Rank,
        standing: &[&'a Lease],
        queue: &[&Waiter],
        mut is_present: impl FnMut(&Waiter) -> bool,
    ) -> Self {
        let is_full = standing.len() >= claimant.mode.room();
        let mut asking = vec![(claimant, rank)];
        let mut seen = Vec::new();
        let mut next = 0;
        // The leases that no waiter so far waits for. Without one, the waiters further ahead change nothing.
        let mut others = standing.to_vec();
        while let Some((claimant, rank)) = asking.get(next).copied() {
            next += 1;
            others.retain(|lease| decide::compatible_with(lease, claimant));
            if others.is_empty() {
                break;
            }
            for waiter in queue {
                let goes_first = waiter.rank() < rank
                    && !seen.contains(&waiter.ticket)
                    && !claimant.compatible_with(Claimant::waiting(waiter))
                    && !decide::waits_for(Claimant::waiting(waiter), claimant, standing);
                if goes_first && is_present(waiter) {
                    seen.push(waiter.ticket);
                    asking.push((Claimant::waiting(waiter), waiter.rank()));
                }
            }
        }
        let is_other = |lease: &&Lease| others.iter().any(|other| other.token == lease.token);
        let (beside, all) = standing.iter().copied().partition(is_other);
        Self {
            all,
            any: if is_full { beside } else { Vec::new() },
        }
    }

    /// The same for a waiter in this queue. One that waits for several keys passes a waiter ahead that waits for it: only
    /// leases keep it waiting for ever.
    pub fn by_waiter(
        waiter: &Waiter,
        standing: &[&'a Lease],
        queue: &[&Waiter],
        is_present: impl FnMut(&Waiter) -> bool,
    ) -> Self {
        let ahead = if waiter.with.is_empty() { queue } else { &[] };
        let claimant = Claimant::waiting(waiter);
        Self::by(claimant, waiter.rank(), standing, ahead, is_present)
    }

    /// The same without the rest of each lease.
    pub fn grants(self) -> Wanted {
        let grants = |leases: Vec<&Lease>| leases.into_iter().map(Lease::grant).collect();
        Wanted {
            all: grants(self.all),
            any: grants(self.any),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;
    use std::time::Duration;

    use jiff::Timestamp;

    use super::*;
    use crate::claim::Priority;
    use crate::holder::{Binding, Holder, HolderId};
    use crate::key::Key;
    use crate::lease::Token;
    use crate::mode::Mode;
    use crate::queue::{Presence, Ticket};
    use crate::time::Epoch;

    fn holder(name: &str) -> Holder {
        Holder {
            id: HolderId::parse(name).unwrap(),
            host: "here".into(),
            command: None,
            binding: Binding::Detached,
        }
    }

    fn lease(name: &str, token: u64, mode: Mode) -> Lease {
        Lease {
            key: Key::parse("k").unwrap(),
            holder: holder(name),
            mode,
            slot: None,
            token: Token(token),
            acquired_at: Timestamp::UNIX_EPOCH,
            expires: None,
            heartbeat_at: Timestamp::UNIX_EPOCH,
            ttl: Duration::ZERO,
        }
    }

    fn waiter(name: &str, ticket: u64, mode: Mode) -> Waiter {
        Waiter {
            ticket: Ticket(ticket),
            holder: holder(name),
            mode,
            named: true,
            priority: Priority::default(),
            arrived: Duration::from_secs(ticket),
            seen: Duration::ZERO,
            epoch: Epoch("boot".into()),
            presence: Presence::Here,
            within: Vec::new(),
            with: Vec::new(),
        }
    }

    /// The tokens that the last waiter of a queue waits for: all of the first, and any of the second.
    fn wanted(leases: &[Lease], queue: &[Waiter]) -> (Vec<u64>, Vec<u64>) {
        let standing: Vec<&Lease> = leases.iter().collect();
        let queue: Vec<&Waiter> = queue.iter().collect();
        let is_present = |waiter: &Waiter| waiter.presence == Presence::Here;
        let last = queue.last().unwrap();
        let wanted = Wanted::by_waiter(last, &standing, &queue, is_present);
        let tokens = |leases: Vec<&Lease>| leases.iter().map(|lease| lease.token.0).collect();
        (tokens(wanted.all), tokens(wanted.any))
    }

    #[test]
    fn a_shared_waiter_waits_for_what_the_exclusive_one_ahead_waits_for() {
        let leases = [lease("a", 1, Mode::Shared)];
        let mut queue = [
            waiter("b", 1, Mode::Exclusive),
            waiter("c", 2, Mode::Shared),
        ];
        assert_eq!(wanted(&leases, &queue), (vec![1], vec![]));
        queue[0].presence = Presence::Away;
        assert_eq!(wanted(&leases, &queue), (vec![], vec![]));
    }

    #[test]
    fn a_waiter_for_a_slot_waits_for_any_holder_once_all_are_taken() {
        let slots = Mode::Slots(NonZeroU32::new(2).unwrap());
        let leases = [lease("a", 1, slots.clone()), lease("b", 2, slots.clone())];
        let queue = [waiter("c", 1, slots)];
        assert_eq!(wanted(&leases, &queue), (vec![], vec![1, 2]));
        assert_eq!(wanted(&leases[..1], &queue), (vec![], vec![]));
    }
}
