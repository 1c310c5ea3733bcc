//! Reads a queue as far as a verb needs it: [`Cursor`].
//!
//! A cursor keeps what it has read, so a verb asks it for one part of the queue after the other. Once it has read the whole
//! queue, it reads nothing more. So a hand-over costs the same with ten waiters and with a thousand.

use std::collections::BTreeMap;

use crate::decide::{Claimant, Unread};
use crate::key::Key;
use crate::lease::Lease;
use crate::queue::{Presence, Rank, Waiter};
use crate::verdict::Liveness;

use super::Look;
use super::look::{is_here, resolve_presence};
use super::query::{TicketFilter, TicketQuery, TicketRange};

/// How many tickets are read to find the first waiter that is present, who usually is the first one.
pub(super) const FIRST: usize = 2;

/// The tickets for a key that a verb has read so far.
pub(super) struct Cursor<'a> {
    key: &'a Key,
    /// As stored.
    tickets: BTreeMap<Rank, Waiter>,
    /// Whether these are all.
    pub(super) is_whole: bool,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(key: &'a Key) -> Self {
        Self {
            key,
            tickets: BTreeMap::new(),
            is_whole: false,
        }
    }

    /// Reads these tickets, unless all have been read.
    pub(super) fn read<L: Look>(
        &mut self,
        look: &mut L,
        query: TicketQuery<'_>,
    ) -> Result<(), L::Error> {
        self.read_until(look, query, 0, |_| true)
    }

    /// Reads on from these tickets until so many waiters that count are present, each time more tickets at once.
    pub(super) fn read_until<L: Look>(
        &mut self,
        look: &mut L,
        mut query: TicketQuery<'_>,
        present: usize,
        counts: impl Fn(&Waiter) -> bool,
    ) -> Result<(), L::Error> {
        let is_from_front = matches!(
            (query.filter, query.range),
            (TicketFilter::All, TicketRange::After(Rank::FIRST))
        );
        let mut here = 0;
        while !self.is_whole {
            let tickets = look.some_tickets(self.key, query)?;
            let is_last = tickets.len() < query.limit;
            for waiter in tickets.iter().filter(|waiter| counts(waiter)) {
                here += usize::from(here < present && is_here(look, waiter));
            }
            if let Some(last) = tickets.last() {
                query = query.after(last.rank());
            }
            let ranked = tickets.into_iter().map(|waiter| (waiter.rank(), waiter));
            self.tickets.extend(ranked);
            self.is_whole = is_last && is_from_front;
            if is_last || here >= present {
                break;
            }
            query.limit = query.limit.saturating_mul(8);
        }
        Ok(())
    }

    /// The tickets, in order, as stored.
    pub(super) fn tickets(&self) -> impl Iterator<Item = &Waiter> + Clone {
        self.tickets.values()
    }

    /// The tickets, in order, with each waiter's presence as far as a claimant depends on it; see [`resolve_presence`].
    pub(super) fn queue<L: Look>(
        &self,
        look: &mut L,
        claimant: Option<Claimant<'_>>,
        leases: &[(Lease, Liveness)],
    ) -> Vec<Waiter> {
        let mut queue = self.tickets().cloned().collect();
        resolve_presence(look, &mut queue, claimant, leases);
        queue
    }

    /// How many waiters were not read, on each side of a rank.
    pub(super) fn unread<L: Look>(&self, look: &mut L, rank: Rank) -> Result<Unread, L::Error> {
        if self.is_whole {
            return Ok(Unread::default());
        }
        let (before, all) = look.count_waiters(self.key, rank)?;
        let here = self.tickets().filter(|it| it.presence == Presence::Here);
        let read_before = here.clone().filter(|waiter| waiter.rank() < rank).count();
        let ahead = before.saturating_sub(read_before);
        Ok(Unread {
            ahead,
            behind: all.saturating_sub(here.count()).saturating_sub(ahead),
            slots: Vec::new(),
        })
    }
}
