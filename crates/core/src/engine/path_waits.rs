//! The waiters for paths, and which of them can proceed: [`WaitsForPaths`].
//!
//! All reservations have one queue, and any number of its waiters can proceed at once. A waiter can if it conflicts
//! neither with a lease nor with a present waiter ahead; a waiter ahead that waits for one of its own leases does not count.
//! Patterns are compared first. Only what is left is read from the store: the tickets of waiters that decide, to probe
//! them, and the leases at the places of a waiter.

use std::collections::HashMap;

use crate::decide::{Claimant, compatible_with, waits_for};
use crate::key::Key;
use crate::lease::Lease;
use crate::queue::{Presence, Ticket, Waiter};

use super::look::{is_here, leases_near, standing};
use super::{Step, TicketFilter, TicketQuery, TicketSummary};

/// The waiters for paths, in order, and what was found out about them.
pub(super) struct WaitsForPaths<'a> {
    key: &'a Key,
    pub(super) queue: Vec<TicketSummary>,
    /// The waiters that were probed; `None` if one is not present.
    present: HashMap<Ticket, Option<Waiter>>,
    /// The leases at the places of a waiter that have not ended.
    leases: HashMap<Ticket, Vec<Lease>>,
}

impl<'a> WaitsForPaths<'a> {
    pub(super) fn read<S: Step>(step: &mut S, key: &'a Key) -> Result<Self, S::Error> {
        Ok(Self {
            key,
            queue: step.summaries(key)?,
            present: HashMap::new(),
            leases: HashMap::new(),
        })
    }

    /// Whether the waiter with this number in the queue is present, and neither a lease nor a waiter ahead is in its way.
    pub(super) fn can_proceed<S: Step>(
        &mut self,
        step: &mut S,
        at: usize,
    ) -> Result<bool, S::Error> {
        let Some(waiter) = self.queue.get(at).cloned() else {
            return Ok(false);
        };
        let claimant = waiter.claimant();
        for number in 0..at {
            let ahead = self.queue.get(number);
            let Some(ahead) = ahead.filter(|ahead| !claimant.compatible_with(ahead.claimant()))
            else {
                continue;
            };
            let ahead = ahead.clone();
            if self.present(step, &ahead)?.is_none() {
                continue;
            }
            let leases: Vec<&Lease> = self.leases_of(step, &ahead)?.iter().collect();
            if !waits_for(ahead.claimant(), claimant, &leases) {
                return Ok(false);
            }
        }
        if self.present(step, &waiter)?.is_none() {
            return Ok(false);
        }
        let leases = self.leases_of(step, &waiter)?;
        Ok(leases.iter().all(|lease| compatible_with(lease, claimant)))
    }

    /// Wakes the waiter with this number in the queue, if it is present.
    pub(super) fn wake<S: Step>(&mut self, step: &mut S, at: usize) -> Result<(), S::Error> {
        if let Some(waiter) = self.queue.get(at).cloned()
            && let Some(waiter) = self.present(step, &waiter)?
        {
            step.wake(&waiter.holder.clone());
        }
        Ok(())
    }

    /// Wakes the waiters that watched the process of one that waits no more: they have another one to watch. Each watches
    /// the last waiter ahead that conflicts with it.
    pub(super) fn wake_watchers<S: Step>(
        &mut self,
        step: &mut S,
        gone: &Waiter,
    ) -> Result<(), S::Error> {
        let first = self.queue.partition_point(|it| it.rank <= gone.rank());
        for at in first..self.queue.len() {
            let Some(waiter) = self.queue.get(at) else {
                continue;
            };
            let claimant = waiter.claimant();
            let between = self.queue.get(first..at).unwrap_or_default().iter();
            let mut between = between.filter(|other| other.presence == Presence::Here);
            if !claimant.compatible_with(Claimant::waiting(gone))
                && between.all(|other| claimant.compatible_with(other.claimant()))
            {
                self.wake(step, at)?;
            }
        }
        Ok(())
    }

    fn present<S: Step>(
        &mut self,
        step: &mut S,
        summary: &TicketSummary,
    ) -> Result<&Option<Waiter>, S::Error> {
        if !self.present.contains_key(&summary.rank.ticket()) {
            let one = TicketQuery::all(TicketFilter::Ticket(summary.rank.ticket()));
            let ticket = step.some_tickets(self.key, one)?;
            let here = ticket.into_iter().find(|waiter| is_here(step, waiter));
            self.present.insert(summary.rank.ticket(), here);
        }
        Ok(self.present.get(&summary.rank.ticket()).unwrap_or(&None))
    }

    fn leases_of<S: Step>(
        &mut self,
        step: &mut S,
        summary: &TicketSummary,
    ) -> Result<&[Lease], S::Error> {
        if !self.leases.contains_key(&summary.rank.ticket()) {
            let leases = leases_near(step, self.key, &summary.mode)?;
            let leases = standing(step, &leases).into_iter().cloned().collect();
            self.leases.insert(summary.rank.ticket(), leases);
        }
        let leases = self.leases.get(&summary.rank.ticket());
        Ok(leases.map(Vec::as_slice).unwrap_or_default())
    }
}
