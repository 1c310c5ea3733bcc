//! Checks the answer to a claim.

use tenure_core::decide::ClaimTicket;
use tenure_core::{Evidence, Lease, Reason, Ticket};

use super::Oracle;
use crate::guarantee::{Checked, Guarantee, ensure};
use crate::model::{HolderMatch, ModelClaim, ModelLease, ModelTicket, QueueRank, reason_for};
use crate::store::Answer;
use crate::world::{ModelBinding, ProcessState, World};

impl Oracle {
    pub(crate) fn acquired(
        &mut self,
        world: &World,
        claim: &ModelClaim,
        answer: &Answer,
    ) -> Checked {
        match answer {
            Answer::Granted {
                lease,
                reason,
                ended,
                claim_ticket,
            } => self.granted(world, claim, lease, *reason, ended, *claim_ticket),
            Answer::Extended {
                lease,
                claim_ticket,
            } => self.extended(world, claim, lease.token.0, *claim_ticket),
            Answer::Refused { claim_ticket } => {
                self.count("a claim that does not wait is refused", true);
                ensure(
                    *claim_ticket == ClaimTicket::New,
                    Guarantee::Fairness,
                    || format!("{claim:?} does not wait, but has a ticket: {claim_ticket:?}"),
                )?;
                let own = self
                    .own_ticket(claim)
                    .map(|entry| ClaimTicket::Own(Ticket(entry.ticket)));
                let rank = self.rank(world, claim, own.unwrap_or(ClaimTicket::New));
                self.busy(world, claim, rank)
            }
            Answer::Queued {
                ticket,
                claim_ticket,
                ahead,
            } => self.queued(world, claim, ticket.0, *claim_ticket, *ahead),
            Answer::WouldWaitForItself => {
                self.count("a claim that would wait for itself is refused", true);
                let held = self.keys[claim.key].lease();
                ensure(
                    held.is_some_and(|held| {
                        held.is_live(world) && held.would_wait_for_itself(claim)
                    }),
                    Guarantee::Progress,
                    || format!("refused as a wait for itself: {held:?}"),
                )
            }
            Answer::Deadlock => {
                let own = self.own_ticket(claim).map(|entry| entry.ticket);
                self.count("a claim that would close a cycle is refused", own.is_none());
                self.count("a wait that a grant put into a cycle ends", own.is_some());
                let possible = self.closes_cycle(world, claim, ModelTicket::may_wait);
                let queue = &mut self.keys[claim.key].queue;
                queue.retain(|entry| Some(entry.ticket) != own);
                ensure(claim.patient && possible, Guarantee::Progress, || {
                    format!("{claim:?} is refused for a cycle that does not exist")
                })
            }
        }
    }

    /// Whether the holder of the key waits, directly or in a command that it runs, for the other key, which the
    /// claimant holds or runs under. With two keys there is no longer cycle.
    fn closes_cycle(
        &self,
        world: &World,
        claim: &ModelClaim,
        waits: fn(&ModelTicket, &World) -> bool,
    ) -> bool {
        let live = |key: usize| self.keys[key].lease().filter(|held| held.is_live(world));
        let ours =
            |held: &ModelLease| held.name == claim.name || claim.within.contains(&held.token);
        let other = 1 - claim.key;
        let (Some(wanted), Some(held)) = (live(claim.key), live(other)) else {
            return false;
        };
        let holder_waits = self.keys[other].queue.iter().any(|entry| {
            (entry.name == wanted.name || entry.within.contains(&wanted.token))
                && waits(entry, world)
        });
        !ours(wanted) && ours(held) && held.name != wanted.name && holder_waits
    }

    fn own_ticket(&self, claim: &ModelClaim) -> Option<&ModelTicket> {
        let queue = &self.keys[claim.key].queue;
        let own = |entry: &&ModelTicket| entry.by == claim.by && entry.name == claim.name;
        queue
            .iter()
            .find(own)
            .filter(|_| claim.identifies_process())
    }

    /// The rank of a claim with this ticket. The claimant's own ticket keeps its first priority; a resumed
    /// ticket gets the priority of the claim that resumes it.
    fn rank(&self, world: &World, claim: &ModelClaim, claim_ticket: ClaimTicket) -> QueueRank {
        let entry = |ticket: Ticket| self.keys[claim.key].ticket(ticket.0);
        let (arrived, priority) = match claim_ticket {
            ClaimTicket::Own(ticket) => entry(ticket).map(|entry| (entry.arrived, entry.priority)),
            ClaimTicket::Resumed(ticket) => {
                entry(ticket).map(|entry| (entry.arrived, claim.priority))
            }
            ClaimTicket::New => None,
        }
        .unwrap_or((world.now, claim.priority));
        QueueRank {
            arrived,
            priority,
            ticket: claim_ticket.ticket().map(|ticket| ticket.0),
        }
    }

    /// Checks that this claim may have this ticket.
    fn ensure_ticket(
        &mut self,
        world: &World,
        claim: &ModelClaim,
        claim_ticket: ClaimTicket,
    ) -> Checked {
        let own = self.own_ticket(claim);
        let model = &self.keys[claim.key];
        let entry = claim_ticket
            .ticket()
            .and_then(|ticket| model.ticket(ticket.0));
        let resumed = matches!(claim_ticket, ClaimTicket::Resumed(_));
        let resumable_ticket = model.resumable_ticket(world, claim);
        let allowed = match claim_ticket {
            ClaimTicket::New => own.is_none() && resumable_ticket.is_none(),
            ClaimTicket::Own(ticket) => own.is_some_and(|own| own.ticket == ticket.0),
            ClaimTicket::Resumed(_) => entry.is_some_and(|entry| {
                claim.named
                    && entry.named
                    && entry.name == claim.name
                    && own.is_none()
                    && !entry.is_present(world)
                    && resumable_ticket.is_none_or(|first| !first.ranks_before(entry))
            }),
        };
        let checked = ensure(allowed, Guarantee::Fairness, || {
            format!(
                "{claim:?} has {claim_ticket:?}, {entry:?}, not {own:?} or {resumable_ticket:?}"
            )
        });
        self.count("a ticket is resumed", resumed);
        checked
    }

    fn granted(
        &mut self,
        world: &World,
        claim: &ModelClaim,
        lease: &Lease,
        reason: Reason,
        ended: &[(Lease, Evidence)],
        claim_ticket: ClaimTicket,
    ) -> Checked {
        let held = self.keys[claim.key].lease().cloned();
        if let Some(held) = &held {
            let guarantee = if held.is_unverifiable(world) || held.is_orphaned(world) {
                Guarantee::UnverifiableStays
            } else {
                Guarantee::OneHolder
            };
            ensure(held.is_stale(world), guarantee, || {
                format!("granted to {claim:?} while this lease is live: {held:?}")
            })?;
        }
        let proven = match (&held, ended) {
            (None, []) => reason == Reason::AcquiredNew,
            (Some(held), [(lease, evidence)]) => {
                lease.token.0 == held.token
                    && lease.holder.id.as_str() == held.name
                    && held.is_proven_by(world, evidence)
                    && reason == reason_for(evidence)
            }
            _ => false,
        };
        ensure(proven, Guarantee::ProvenEnds, || {
            format!("{held:?} ended with {ended:?} and {reason:?}")
        })?;
        let token = lease.token.0;
        let model = &self.keys[claim.key];
        ensure(
            model.leases.iter().all(|lease| lease.token < token),
            Guarantee::TokensGrow,
            || format!("token {token} after {:?}", model.leases),
        )?;
        self.ensure_ticket(world, claim, claim_ticket)?;
        let rank = self.rank(world, claim, claim_ticket);
        self.ensure_nobody_is_passed(world, claim, rank)?;
        self.count_grant_cases(world, claim, held.as_ref(), rank);

        let model = &mut self.keys[claim.key];
        model.end();
        model.leases.push(ModelLease::new(world, claim, token));
        model.queue.retain(|it| Some(it.ticket) != rank.ticket);
        Ok(())
    }

    fn count_grant_cases(
        &mut self,
        world: &World,
        claim: &ModelClaim,
        held: Option<&ModelLease>,
        rank: QueueRank,
    ) {
        let expired = |held: &ModelLease| !held.is_dead(world);
        let queue = &self.keys[claim.key].queue;
        let others = || queue.iter().filter(|it| Some(it.ticket) != rank.ticket);
        let present = |entry: &&ModelTicket| entry.is_present(world);
        let before_equal = others().any(|it| present(&it) && it.priority == claim.priority);
        let passes = others().any(|it| present(&it) && it.arrived < rank.arrived);
        let away = others().any(|it| !present(&it) && !rank.may_pass(it) && it.boot == world.boot);
        let earlier_boot = others().any(|it| it.boot != world.boot);
        for (what, occurred) in [
            ("an expired lease is taken over", held.is_some_and(expired)),
            (
                "a dead lease is taken over",
                held.is_some_and(|held| held.is_dead(world)),
            ),
            (
                "a lease expires although the wall clock was set back",
                held.is_some_and(|held| expired(held) && !held.has_expired_by_wall(world)),
            ),
            ("a waiter is served", rank.ticket.is_some()),
            (
                "a claim is granted before another of the same priority",
                before_equal,
            ),
            ("a more urgent claim passes an earlier one", passes),
            ("an absent waiter is passed", away),
            ("a ticket of an earlier boot is passed", earlier_boot),
            (
                "a lease of an earlier boot is taken over",
                held.is_some_and(|it| it.boot != world.boot),
            ),
            (
                "an unverifiable lease is taken over once it expires",
                held.is_some_and(|it| {
                    it.is_unverifiable(world) && it.binding != ModelBinding::Detached
                }),
            ),
        ] {
            self.count(what, occurred);
        }
    }

    fn ensure_nobody_is_passed(
        &self,
        world: &World,
        claim: &ModelClaim,
        rank: QueueRank,
    ) -> Checked {
        let first = self.keys[claim.key].first_ahead(world, rank);
        ensure(first.is_none(), Guarantee::Fairness, || {
            format!("{claim:?} with {rank:?} passed {first:?}")
        })
    }

    fn extended(
        &mut self,
        world: &World,
        claim: &ModelClaim,
        token: u64,
        claim_ticket: ClaimTicket,
    ) -> Checked {
        let Some(held) = self.keys[claim.key].lease().cloned() else {
            return ensure(false, Guarantee::OneHolder, || "extended nothing".into());
        };
        let holder_match = held.holder_match(claim);
        ensure(
            holder_match != HolderMatch::Other,
            Guarantee::OneHolder,
            || format!("{claim:?} extended a lease of another holder: {held:?}"),
        )?;
        ensure(!held.garbled, Guarantee::UnverifiableStays, || {
            format!("{claim:?} extended an unreadable lease: {held:?}")
        })?;
        ensure(token == held.token, Guarantee::TokensGrow, || {
            format!("extended {held:?} with token {token}")
        })?;
        ensure(!held.is_dead(world), Guarantee::ProvenEnds, || {
            format!("{claim:?} extended a lease whose process died: {held:?}")
        })?;
        self.ensure_ticket(world, claim, claim_ticket)?;
        let rank = self.rank(world, claim, claim_ticket);
        if held.is_stale(world) {
            self.ensure_nobody_is_passed(world, claim, rank)?;
        }
        self.count("a holder claims again", true);
        self.count(
            "a holder claims again after its lease expired",
            held.is_stale(world),
        );
        let model = &mut self.keys[claim.key];
        model.queue.retain(|it| Some(it.ticket) != rank.ticket);
        if let Some(held) = model.lease_mut() {
            held.binding = claim.binding;
            held.named |= claim.named;
            held.extend(world, claim.ttl);
        }
        Ok(())
    }

    /// Checks that something conflicts with a claim that was not granted.
    fn busy(&mut self, world: &World, claim: &ModelClaim, rank: QueueRank) -> Checked {
        let model = &self.keys[claim.key];
        let held = model.lease().filter(|held| held.is_live(world)).cloned();
        let first = model.first_ahead(world, rank);
        ensure(
            held.is_some() || first.is_some(),
            Guarantee::Progress,
            || format!("nothing conflicts with {claim:?}: {model:?}"),
        )?;
        let (behind, held) = (first.is_some(), held.as_ref());
        ensure(
            held.is_none_or(|held| held.garbled || held.holder_match(claim) != HolderMatch::Same),
            Guarantee::Progress,
            || format!("{claim:?} waits for its own lease: {held:?}"),
        )?;
        ensure(
            held.is_none_or(|held| !held.would_wait_for_itself(claim)),
            Guarantee::Progress,
            || format!("{claim:?} waits for itself: {held:?}"),
        )?;
        let late = held.is_some_and(|held| held.is_orphaned(world) && held.has_expired(world));
        let hidden = |held: &ModelLease| {
            held.binding
                .run()
                .is_some_and(|run| world.state(run) == ProcessState::Hidden)
        };
        self.count(
            "a lease stays although the wall clock was set ahead",
            held.is_some_and(|held| !held.has_expired(world) && held.has_expired_by_wall(world)),
        );
        self.count("an orphan keeps its lease after it expired", late);
        self.count(
            "a holder that can't be probed is waited for",
            held.is_some_and(hidden),
        );
        self.count(
            "a garbled lease is waited for",
            held.is_some_and(|held| held.garbled),
        );
        self.count(
            "a free key waits for the first waiter",
            held.is_none() && behind,
        );
        Ok(())
    }

    fn queued(
        &mut self,
        world: &World,
        claim: &ModelClaim,
        ticket: u64,
        claim_ticket: ClaimTicket,
        ahead: usize,
    ) -> Checked {
        self.ensure_ticket(world, claim, claim_ticket)?;
        let rank = self.rank(world, claim, claim_ticket);
        self.busy(world, claim, rank)?;
        let first = self.keys[claim.key].first_ahead(world, rank);
        ensure((ahead > 0) == first.is_some(), Guarantee::Fairness, || {
            format!("{claim:?} is told that {ahead} are ahead, but {first:?} is")
        })?;
        // A name that its process made up has one process: nothing is granted to it meanwhile.
        let checked = claim.named || !matches!(claim_ticket, ClaimTicket::Own(_));
        let cycle = checked && self.closes_cycle(world, claim, ModelTicket::is_present);
        ensure(!cycle, Guarantee::Progress, || {
            format!("{claim:?} waits in a cycle")
        })?;
        let queue = &mut self.keys[claim.key].queue;
        match queue.iter_mut().find(|entry| entry.ticket == ticket) {
            Some(entry) if rank.ticket.is_some() => {
                if matches!(claim_ticket, ClaimTicket::Resumed(_)) {
                    entry.within.clone_from(&claim.within);
                }
                entry.by = claim.by;
                entry.priority = rank.priority;
                entry.last_asked = world.now;
                entry.boot = world.boot;
                Ok(())
            }
            None if rank.ticket.is_none() => {
                let newest = queue.iter().map(|entry| entry.ticket).max();
                ensure(newest < Some(ticket), Guarantee::Fairness, || {
                    format!("ticket {ticket} after {newest:?}")
                })?;
                queue.push(ModelTicket {
                    ticket,
                    by: claim.by,
                    name: claim.name.clone(),
                    named: claim.named,
                    priority: claim.priority,
                    arrived: world.now,
                    last_asked: world.now,
                    boot: world.boot,
                    within: claim.within.clone(),
                });
                Ok(())
            }
            found => ensure(false, Guarantee::Fairness, || {
                format!("{claim:?} got ticket {ticket} from {claim_ticket:?}: {found:?}")
            }),
        }
    }
}
