//! Which tickets and leases of a key are read: [`TicketQuery`] and [`LeaseQuery`].
//!
//! A store that can read some without the others implements [`Look::some_tickets`](super::Look::some_tickets) and
//! [`Look::some_leases`](super::Look::some_leases). The others read all of a key, and `select` leaves out the rest.

use crate::claim::Claim;
use crate::holder::HolderId;
use crate::lease::{Lease, Token};
use crate::mode::Mode;
use crate::places::Places;
use crate::queue::{Rank, Ticket, Waiter};

/// Some of the tickets for a key: those that a filter lets through, from a rank on.
#[derive(Debug, Clone, Copy)]
pub struct TicketQuery<'a> {
    /// Which of them.
    pub filter: TicketFilter<'a>,
    /// Where to begin, and in which direction to go.
    pub range: TicketRange,
    /// At most so many.
    pub limit: usize,
}

/// Which tickets for a key are meant.
#[derive(Debug, Clone, Copy)]
pub enum TicketFilter<'a> {
    /// All.
    All,
    /// Those of this holder.
    Of(&'a HolderId),
    /// This one.
    Ticket(Ticket),
    /// The one with the largest number.
    Newest,
    /// Those that can't hold the key together with this mode.
    Against(&'a Mode),
    /// Those whose mode contradicts this one.
    Contradicting(&'a Mode),
}

/// A direction in a queue.
#[derive(Debug, Clone, Copy)]
pub enum TicketRange {
    /// Back from this rank: those directly behind it.
    After(Rank),
    /// Forward from this rank: those directly ahead of it.
    Before(Rank),
}

impl<'a> TicketQuery<'a> {
    /// All that the filter lets through.
    pub fn all(filter: TicketFilter<'a>) -> Self {
        Self::first(filter, usize::MAX)
    }

    /// At most so many of them, from the front.
    pub fn first(filter: TicketFilter<'a>, limit: usize) -> Self {
        Self {
            filter,
            range: TicketRange::After(Rank::FIRST),
            limit,
        }
    }

    /// The same, directly behind this rank.
    #[must_use]
    pub fn after(self, rank: Rank) -> Self {
        Self {
            range: TicketRange::After(rank),
            ..self
        }
    }

    /// These of all the tickets for a key, in order.
    pub fn select(&self, mut tickets: Vec<Waiter>) -> Vec<Waiter> {
        let newest = tickets.iter().map(|waiter| waiter.ticket).max();
        tickets.retain(|waiter| match self.filter {
            TicketFilter::All => true,
            TicketFilter::Of(holder) => waiter.holder.id == *holder,
            TicketFilter::Ticket(ticket) => waiter.ticket == ticket,
            TicketFilter::Newest => Some(waiter.ticket) == newest,
            TicketFilter::Against(mode) => !waiter.mode.admits(mode),
            TicketFilter::Contradicting(mode) => waiter.mode.contradicts(mode),
        });
        tickets.sort_by_key(Waiter::rank);
        match self.range {
            TicketRange::After(rank) => {
                tickets.retain(|waiter| waiter.rank() > rank);
                tickets.truncate(self.limit);
            }
            TicketRange::Before(rank) => {
                tickets.retain(|waiter| waiter.rank() < rank);
                tickets.drain(..tickets.len().saturating_sub(self.limit));
            }
        }
        tickets
    }
}

/// Some of the leases of a key.
#[derive(Debug, Clone, Copy)]
pub enum LeaseQuery<'a> {
    /// The one with this token.
    Token(Token),
    /// Those of this holder.
    Of(&'a HolderId),
    /// Those whose paths are at these places.
    Near(&'a Places),
    /// At most so many, the oldest.
    First(usize),
    /// At most so many, those that expire first. With a claim in a mode for several holders, also those in other modes and
    /// those of the claimant's name.
    Expiring(usize, Option<&'a Claim>),
}

impl LeaseQuery<'_> {
    /// These of all the leases of a key, by token.
    pub fn select<T>(self, mut leases: Vec<(Lease, T)>) -> Vec<(Lease, T)> {
        leases.sort_by_key(|(lease, _)| lease.token);
        match self {
            Self::Token(token) => leases.retain(|(lease, _)| lease.token == token),
            Self::Of(holder) => leases.retain(|(lease, _)| lease.holder.id == *holder),
            Self::Near(places) => leases.retain(|(lease, _)| places.meet(&lease.mode)),
            Self::First(limit) => leases.truncate(limit),
            Self::Expiring(limit, beside) => {
                let end = |lease: &Lease| lease.expires.as_ref().map(|end| end.wall);
                let ends = leases
                    .iter()
                    .map(|(lease, _)| (end(lease).is_none(), end(lease), lease.token));
                let mut ends: Vec<_> = ends.collect();
                ends.sort_unstable();
                ends.truncate(limit);
                leases.retain(|(lease, _)| {
                    let is_first = ends.iter().any(|(.., token)| *token == lease.token);
                    is_first
                        || beside.is_some_and(|claim| {
                            lease.holder.id == claim.holder.id || lease.mode != claim.mode
                        })
                });
            }
        }
        leases
    }
}
