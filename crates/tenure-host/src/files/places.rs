//! Places in the queue, inside a step: taking one, keeping it, giving it up.
//!
//! [`Places`] is what a step of any store of files has: some tickets, the time, and bells to ring.

use std::time::Duration;

use tenure_core::decide::{self, ClaimTicket, View};
use tenure_core::queue::Rank;
use tenure_core::{Busy, Claim, Holder, Moment, Place, Presence, Revision, Ticket, Waiter};

use crate::files::reader::Reader;
use crate::files::sidecar::TicketRecord;

/// How often a waiting process renews its ticket, at most.
const TICKET_HEARTBEAT: Duration = Duration::from_secs(1);

/// The tickets of a key.
#[derive(Debug)]
pub struct Desk<'a> {
    pub tickets: &'a mut Vec<TicketRecord>,
    pub last_ticket: &'a mut u64,
}

/// A step under way in which places are taken.
pub trait Places {
    /// When the step began.
    fn now(&self) -> &Moment;

    /// Who looks.
    fn reader(&self) -> Reader<'_>;

    /// The tickets, in no order.
    fn tickets(&self) -> &[TicketRecord];

    /// The same to be changed, and saved at the end of the step.
    fn desk(&mut self) -> Desk<'_>;

    /// How long the place of a waiter that was cut off is kept.
    fn grace(&self) -> Duration;

    /// Wakes somebody at the end of the step.
    fn ring(&mut self, holder: &Holder);

    /// Wakes the first of these that can hear it.
    fn ring_next(&mut self, queue: &[Waiter]) {
        let next = queue.iter().find(|waiter| {
            waiter.presence == Presence::Here && self.reader().is_alive(&waiter.holder)
        });
        if let Some(next) = next {
            self.ring(&next.holder.clone());
        }
    }

    fn drop_ticket(&mut self, ticket: Option<Ticket>) {
        if self
            .tickets()
            .iter()
            .any(|mine| Some(mine.ticket) == ticket)
        {
            let desk = self.desk();
            desk.tickets.retain(|mine| Some(mine.ticket) != ticket);
        }
    }

    /// Changes one ticket.
    fn change_ticket(&mut self, ticket: Ticket, change: impl FnOnce(&mut TicketRecord)) {
        let mut all = self.desk().tickets.iter_mut();
        if let Some(mine) = all.find(|mine| mine.ticket == ticket) {
            change(mine);
        }
    }

    /// Makes a waiter one that is away: its turn passes, its place stays.
    fn park_ticket(&mut self, ticket: Ticket) {
        let seen = self.now().ticks;
        self.change_ticket(ticket, |mine| {
            mine.parked = true;
            mine.seen = seen;
        });
    }

    /// Does `act` to a ticket that is given up or parked, and wakes whoever stood behind it: it
    /// has to look anew whom to watch, or may be the first now.
    fn withdraw(&mut self, ticket: Ticket, act: impl FnOnce(&mut Self)) {
        let queue = self.reader().queue(self.tickets(), None);
        if let Some(index) = queue.iter().position(|waiter| waiter.ticket == ticket) {
            act(self);
            self.ring_next(queue.get(index + 1..).unwrap_or_default());
        }
    }

    /// Takes a place for a claim that has to wait. Whoever stands behind a place that was empty
    /// until now has to look anew whom to watch.
    fn queue_up(
        &mut self,
        claim: &Claim,
        view: &View,
        claim_ticket: ClaimTicket,
    ) -> (Ticket, Rank) {
        let rank = decide::rank(self.now(), view, claim, claim_ticket);
        let ticket = self.take_ticket(claim, view, claim_ticket);
        let was_here =
            |waiter: &Waiter| waiter.ticket == ticket && waiter.presence == Presence::Here;
        if !view.queue.iter().any(was_here) {
            let first_behind = view.queue.partition_point(|waiter| waiter.rank() <= rank);
            self.ring_next(view.queue.get(first_behind..).unwrap_or_default());
        }
        (ticket, rank)
    }

    /// Writes or renews the ticket of a claim that has to wait.
    fn take_ticket(&mut self, claim: &Claim, view: &View, claim_ticket: ClaimTicket) -> Ticket {
        let seen = self.now().ticks;
        let waiting = Holder {
            binding: claim.asker.clone(),
            ..claim.holder.clone()
        };
        match claim_ticket {
            ClaimTicket::Own(ticket) => {
                let mine = view.queue.iter().find(|waiter| waiter.ticket == ticket);
                let due = |mine: &Waiter| {
                    mine.presence == Presence::Away
                        || seen.saturating_sub(mine.seen) >= TICKET_HEARTBEAT
                };
                if mine.is_some_and(due) {
                    self.change_ticket(ticket, |mine| {
                        mine.seen = seen;
                        mine.parked = false;
                    });
                }
                ticket
            }
            ClaimTicket::Resumed(ticket) => {
                self.change_ticket(ticket, |mine| {
                    mine.holder = waiting;
                    mine.priority = claim.priority;
                    mine.seen = seen;
                    mine.parked = false;
                });
                ticket
            }
            ClaimTicket::New => {
                self.drop_forgotten(&view.queue);
                let (arrived, boot) = (
                    decide::arrival(self.now(), &view.queue),
                    self.now().epoch.clone(),
                );
                let desk = self.desk();
                *desk.last_ticket = desk.last_ticket.saturating_add(1);
                let ticket = Ticket(*desk.last_ticket);
                desk.tickets.push(TicketRecord {
                    ticket,
                    holder: waiting,
                    named: claim.named,
                    priority: claim.priority,
                    arrived,
                    seen,
                    boot,
                    parked: false,
                });
                ticket
            }
        }
    }

    /// Drops places that were kept long enough, and those that nobody can come back to: of the
    /// dead whose name was made up.
    fn drop_forgotten(&mut self, queue: &[Waiter]) {
        let grace = self.grace();
        for waiter in queue {
            let never_again = waiter.presence == Presence::Away
                && !waiter.named
                && !self.reader().is_alive(&waiter.holder);
            if never_again || waiter.forgotten(self.now(), grace) {
                self.drop_ticket(Some(waiter.ticket));
            }
        }
    }

    /// The answer to a claim that was not granted. Its revision is filled in at the end.
    fn busy(&self, view: &View, place: Option<Place>, rank: Option<Rank>) -> Busy {
        let own = place.map(|place| place.ticket);
        let here = || {
            view.queue
                .iter()
                .filter(|w| w.presence == Presence::Here && Some(w.ticket) != own)
        };
        let before = |waiter: &&Waiter| rank.is_none_or(|rank| waiter.rank() < rank);
        Busy {
            lease: view.lease.clone().map(|lease| self.reader().verdict(lease)),
            // Watching a dead one would wake us again and again.
            behind: here()
                .filter(before)
                .rfind(|waiter| self.reader().is_alive(&waiter.holder))
                .map(|waiter| waiter.holder.clone()),
            place,
            waiting: here().count(),
            revision: Revision(0),
        }
    }
}
