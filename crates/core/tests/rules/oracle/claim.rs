//! Checks the answer to a claim.

use tenure_core::decide::ClaimTicket;
use tenure_core::{Evidence, Lease, Mode, Reason, Ticket};

use super::Oracle;
use crate::guarantee::{Checked, Guarantee, ensure};
use crate::model::{
    HolderMatch, ModelClaim, ModelLease, ModelTicket, ModelWait, Party, QueueRank, disagree,
    is_another_reservation, reason_for,
};
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
                replaced,
                claim_ticket,
            } => {
                self.ends_are_proven(world, claim, ended, *replaced)?;
                self.reason_is_true(world, claim, *reason, ended, *replaced)?;
                self.granted(world, claim, lease, *replaced, *claim_ticket)?;
                self.record(world, claim, lease, ended, *replaced, *claim_ticket);
                Ok(())
            }
            Answer::Extended {
                lease,
                claim_ticket,
            } => self.extended(world, claim, lease, *claim_ticket),
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
                let model = &self.keys[claim.key];
                let live = model.live(world);
                let conflicting = live.iter().any(|it| {
                    !Party::of(it).fits(Party::claiming(claim)) && it.would_wait_for_itself(claim)
                });
                let all = live.iter().all(|it| it.would_wait_for_itself(claim));
                let full =
                    matches!(claim.mode, Mode::Slots(slots) if live.len() == slots.get() as usize);
                let waits_for_itself = conflicting || full && all;
                if claim.patient {
                    let own = self.own_ticket(claim).map(|entry| entry.ticket);
                    let queue = &mut self.keys[claim.key].queue;
                    queue.retain(|entry| Some(entry.ticket) != own);
                }
                ensure(waits_for_itself, Guarantee::Progress, || {
                    format!("{claim:?} is refused as a wait for itself")
                })
            }
            Answer::OtherMode => {
                self.count("a claim in a contradicting mode is refused", true);
                let own = self.own_ticket(claim).map(|entry| entry.ticket);
                let found = self.contradiction(world, claim, own);
                let queue = &mut self.keys[claim.key].queue;
                queue.retain(|entry| Some(entry.ticket) != own);
                ensure(found, Guarantee::Progress, || {
                    format!("{claim:?} contradicts neither a holder nor a waiter")
                })
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

    /// Whether a claim disagrees with a holder, other than the claimant itself, or with another present waiter.
    fn contradiction(&self, world: &World, claim: &ModelClaim, ticket: Option<u64>) -> bool {
        let model = &self.keys[claim.key];
        let (own, others): (Vec<_>, Vec<_>) = model
            .live(world)
            .into_iter()
            .filter(|it| disagree(&it.mode, &claim.mode))
            .partition(|it| it.holder_match(claim) == HolderMatch::Same && !it.garbled);
        // A holder changes the mode of one lease.
        let held = !others.is_empty() || own.len() > 1;
        let waited = model.queue.iter().any(|entry| {
            Some(entry.ticket) != ticket
                && entry.is_present(world)
                && disagree(&entry.mode, &claim.mode)
        });
        held || waited
    }

    /// Whether the claimant would wait for a lease that can't end before one that the claimant holds or runs under.
    fn closes_cycle(
        &self,
        world: &World,
        claim: &ModelClaim,
        waits: fn(&ModelTicket, &World) -> bool,
    ) -> bool {
        let ours =
            |held: &ModelLease| held.name == claim.name || claim.within.contains(&held.token);
        let model = &self.keys[claim.key];
        let ticket = match (self.own_ticket(claim), model.resumable_ticket(world, claim)) {
            (Some(own), _) => ClaimTicket::Own(Ticket(own.ticket)),
            (None, Some(resumed)) => ClaimTicket::Resumed(Ticket(resumed.ticket)),
            (None, None) => ClaimTicket::New,
        };
        let rank = self.rank(world, claim, ticket);
        let left = self.left_in_the_end(world, &ours, waits);
        let wait = model.wanted(world, Party::claiming(claim), rank, waits);
        // Another process of the name may end a lease of its own.
        let is_left =
            |it: &ModelLease| !ours(it) && left.iter().any(|(token, _)| *token == it.token);
        let leads_to_us = |it: &&ModelLease| left.contains(&(it.token, true)) && !ours(it);
        let each = wait.each.iter().any(&leads_to_us);
        let slots = !wait.one_of.is_empty() && wait.one_of.iter().all(|it| is_left(it));
        each || slots && wait.one_of.iter().any(leads_to_us)
    }

    /// The tokens of the leases that never end while those that are `ours` do not, and whether the chain of waits of each
    /// leads to one of ours. Every holder that waits for nothing that is left releases all it has, again and again. All
    /// leases of a name are released together.
    fn left_in_the_end(
        &self,
        world: &World,
        ours: &dyn Fn(&ModelLease) -> bool,
        waits: fn(&ModelTicket, &World) -> bool,
    ) -> Vec<(u64, bool)> {
        let waits_of = |held: &ModelLease| -> Vec<ModelWait<'_>> {
            let is_its = |entry: &&ModelTicket| {
                let its = entry.name == held.name || entry.within.contains(&held.token);
                its && waits(entry, world)
            };
            let mut all = Vec::new();
            for model in &self.keys {
                for entry in model.queue.iter().filter(is_its) {
                    let party = Party::waiting(entry);
                    let mut wait = model.wanted(world, party, entry.rank(), waits);
                    wait.each.retain(|it| it.name != held.name);
                    wait.one_of.retain(|it| it.name != held.name);
                    all.push(wait);
                }
            }
            all
        };
        let live = self.keys.iter().flat_map(|model| model.live(world));
        let mut left: Vec<(&ModelLease, Vec<ModelWait<'_>>)> =
            live.map(|held| (held, waits_of(held))).collect();
        loop {
            let tokens: Vec<u64> = left.iter().map(|(held, _)| held.token).collect();
            let is_left = |it: &ModelLease| tokens.contains(&it.token);
            left.retain(|(held, waits)| {
                ours(held) || waits.iter().any(|wait| wait.is_held_up(is_left))
            });
            if left.len() == tokens.len() {
                break;
            }
        }
        let tokens: Vec<u64> = left.iter().map(|(held, _)| held.token).collect();
        let mut to_us: Vec<u64> = Vec::new();
        for _ in &tokens {
            for (held, waits) in &left {
                let leads = waits.iter().any(|wait| {
                    let slots = wait.one_of.iter().all(|it| tokens.contains(&it.token));
                    let slots = wait.one_of.iter().filter(|_| slots);
                    let mut held_up_by = wait.each.iter().chain(slots);
                    held_up_by.any(|it| to_us.contains(&it.token))
                });
                if ours(held) || leads {
                    to_us.push(held.token);
                }
            }
        }
        let with_end = |token: u64| (token, to_us.contains(&token));
        tokens.into_iter().map(with_end).collect()
    }

    fn own_ticket(&self, claim: &ModelClaim) -> Option<&ModelTicket> {
        let queue = &self.keys[claim.key].queue;
        let own = |entry: &&ModelTicket| {
            entry.by == claim.by && entry.name == claim.name && entry.mode == claim.mode
        };
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
                    && entry.mode == claim.mode
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

    /// Checks that every lease that conflicts with a granted claim has ended, with proof, and no other but those.
    fn ends_are_proven(
        &self,
        world: &World,
        claim: &ModelClaim,
        ended: &[(Lease, Evidence)],
        replaced: Option<u64>,
    ) -> Checked {
        let model = &self.keys[claim.key];
        let proof = |token: u64| ended.iter().find(|(lease, _)| lease.token.0 == token);
        for held in model
            .on_record()
            .filter(|held| Some(held.token) != replaced)
        {
            let unknown = held.is_unverifiable(world) || held.is_orphaned(world);
            let guarantee = if unknown {
                Guarantee::UnverifiableStays
            } else {
                Guarantee::OneHolder
            };
            let conflicts = !Party::of(held).fits(Party::claiming(claim));
            ensure(!conflicts || held.is_stale(world), guarantee, || {
                format!("granted to {claim:?} while this lease is live: {held:?}")
            })?;
            let proven = match proof(held.token) {
                Some((lease, evidence)) => {
                    lease.holder.id.as_str() == held.name && held.is_proven_by(world, evidence)
                }
                None => !conflicts,
            };
            ensure(proven, Guarantee::ProvenEnds, || {
                format!("{held:?} ended with {:?}", proof(held.token))
            })?;
        }
        let unknown = ended
            .iter()
            .find(|(lease, _)| model.lease(lease.token.0).is_none());
        ensure(unknown.is_none(), Guarantee::ProvenEnds, || {
            format!("{unknown:?} ended, which was not on record")
        })
    }

    /// Checks why a claim is said to have been granted.
    fn reason_is_true(
        &self,
        world: &World,
        claim: &ModelClaim,
        reason: Reason,
        ended: &[(Lease, Evidence)],
        replaced: Option<u64>,
    ) -> Checked {
        let reasons: Vec<Reason> = ended.iter().map(|(_, it)| reason_for(it)).collect();
        let expected = match replaced {
            Some(_) => reason == Reason::Upgraded,
            None if reasons.is_empty() => reason == Reason::AcquiredNew,
            // One of several holders may have died beside the others.
            None if claim.mode != Mode::Exclusive => {
                reason == Reason::AcquiredNew || reasons.contains(&reason)
            }
            None if reasons.contains(&Reason::ClaimedDead) => reason == Reason::ClaimedDead,
            None => reason == Reason::ClaimedExpired,
        };
        ensure(expected, Guarantee::ProvenEnds, || {
            format!("granted as {reason:?} after {ended:?}, replacing {replaced:?}")
        })?;
        let Some(own) = replaced.map(|token| self.keys[claim.key].lease(token)) else {
            return Ok(());
        };
        let may = own.is_some_and(|own| {
            // Alone, its token is larger than that of any other holder: it keeps it to admit others.
            own.holder_match(claim) != HolderMatch::Other
                && own.mode != claim.mode
                && !own.mode.is_exclusive()
                && !own.garbled
                && !own.is_dead(world)
        });
        ensure(may, Guarantee::OneHolder, || {
            format!("{claim:?} replaced {own:?}")
        })
    }

    fn granted(
        &mut self,
        world: &World,
        claim: &ModelClaim,
        lease: &Lease,
        replaced: Option<u64>,
        claim_ticket: ClaimTicket,
    ) -> Checked {
        let held: Vec<ModelLease> = self.keys[claim.key].on_record().cloned().collect();
        let token = lease.token.0;
        let model = &self.keys[claim.key];
        ensure(
            model.leases.iter().all(|lease| lease.token < token),
            Guarantee::TokensGrow,
            || format!("token {token} after {:?}", model.leases),
        )?;
        self.ensure_ticket(world, claim, claim_ticket)?;
        let rank = self.rank(world, claim, claim_ticket);
        let held_already = self.keys[claim.key].is_held_already(world, claim);
        if replaced.is_none() && !held_already {
            self.ensure_nobody_is_passed(world, claim, rank)?;
        }
        let waited_for = !self.keys[claim.key].ahead(world, rank).is_empty();
        self.count("a holder changes to another mode", replaced.is_some());
        self.count(
            "a nested shared claim passes a waiter",
            held_already && waited_for,
        );
        self.count(
            "a waiter is granted the key beside another",
            waited_for && replaced.is_none() && !held_already,
        );
        let claimant = Party::claiming(claim);
        let model = &self.keys[claim.key];
        let live = model.live(world);
        let others = live.iter().any(|it| it.name != claim.name);
        let own = live.iter().any(|it| it.name == claim.name);
        let waits_for_us = |entry: &&ModelTicket| !claimant.fits(Party::waiting(entry));
        let passes = model.ahead(world, rank).iter().any(waits_for_us);
        let files = claimant.has_files();
        self.count(
            "paths are reserved beside another holder's",
            files && others,
        );
        self.count("a holder reserves more paths", files && own);
        self.count(
            "a holder reserves more paths before a waiter for its own",
            files && own && replaced.is_none() && passes,
        );
        self.count_grant_cases(world, claim, &held, rank);
        Ok(())
    }

    /// Ends leases in the model, as the store did, and adds the new one.
    fn record(
        &mut self,
        world: &World,
        claim: &ModelClaim,
        lease: &Lease,
        ended: &[(Lease, Evidence)],
        replaced: Option<u64>,
        claim_ticket: ClaimTicket,
    ) {
        let model = &mut self.keys[claim.key];
        let ended = ended.iter().map(|(lease, _)| lease.token.0);
        ended.chain(replaced).for_each(|token| model.end(token));
        model.leases.push(ModelLease::new(world, claim, lease));
        let used = claim_ticket.ticket().map(|ticket| ticket.0);
        model.queue.retain(|it| Some(it.ticket) != used);
    }

    fn count_grant_cases(
        &mut self,
        world: &World,
        claim: &ModelClaim,
        held: &[ModelLease],
        rank: QueueRank,
    ) {
        let expired = |held: &ModelLease| !held.is_dead(world);
        let taken_over = |held: &&ModelLease| {
            held.is_stale(world) && !Party::of(held).fits(Party::claiming(claim))
        };
        let stale = || held.iter().filter(taken_over);
        let queue = &self.keys[claim.key].queue;
        let others = || queue.iter().filter(|it| Some(it.ticket) != rank.ticket);
        let present = |entry: &&ModelTicket| entry.is_present(world);
        let before_equal = others().any(|it| present(&it) && it.priority == claim.priority);
        let passes = others().any(|it| present(&it) && it.arrived < rank.arrived);
        let away = others().any(|it| !present(&it) && !rank.may_pass(it) && it.boot == world.boot);
        let earlier_boot = others().any(|it| it.boot != world.boot);
        for (what, occurred) in [
            ("an expired lease is taken over", stale().any(expired)),
            (
                "a dead lease is taken over",
                stale().any(|held| held.is_dead(world)),
            ),
            (
                "a lease expires although the wall clock was set back",
                stale().any(|held| expired(held) && !held.has_expired_by_wall(world)),
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
                stale().any(|it| it.boot != world.boot),
            ),
            (
                "an unverifiable lease is taken over once it expires",
                stale().any(|it| it.is_unverifiable(world) && it.binding != ModelBinding::Detached),
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
        let model = &self.keys[claim.key];
        ensure(
            !model.passes(world, claim, rank),
            Guarantee::Fairness,
            || {
                format!(
                    "{claim:?} with {rank:?} passed {:?}",
                    model.ahead(world, rank)
                )
            },
        )
    }

    fn extended(
        &mut self,
        world: &World,
        claim: &ModelClaim,
        lease: &Lease,
        claim_ticket: ClaimTicket,
    ) -> Checked {
        let token = lease.token.0;
        let Some(held) = self.keys[claim.key].lease(token).cloned() else {
            return ensure(false, Guarantee::TokensGrow, || {
                format!("extended a lease that is not on record: {lease:?}")
            });
        };
        ensure(
            held.mode == claim.mode || held.mode == Mode::Exclusive,
            Guarantee::OneHolder,
            || format!("{claim:?} extended {held:?}"),
        )?;
        let holder_match = held.holder_match(claim);
        ensure(
            holder_match != HolderMatch::Other,
            Guarantee::OneHolder,
            || format!("{claim:?} extended a lease of another holder: {held:?}"),
        )?;
        ensure(!held.garbled, Guarantee::UnverifiableStays, || {
            format!("{claim:?} extended an unreadable lease: {held:?}")
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
        self.count("a holder admits others", held.mode != claim.mode);
        self.count(
            "a holder claims again after its lease expired",
            held.is_stale(world),
        );
        let model = &mut self.keys[claim.key];
        model.queue.retain(|it| Some(it.ticket) != rank.ticket);
        if let Some(held) = model.lease_mut(token) {
            held.mode = claim.mode.clone();
            held.slot = lease.slot;
            held.binding = claim.binding;
            held.named |= claim.named;
            held.extend(world, claim.ttl);
        }
        Ok(())
    }

    /// Checks that something conflicts with a claim that was not granted.
    fn busy(&mut self, world: &World, claim: &ModelClaim, rank: QueueRank) -> Checked {
        let model = &self.keys[claim.key];
        let live = model.live(world);
        let own = |it: &&&ModelLease| it.holder_match(claim) == HolderMatch::Same && !it.garbled;
        let changeable = live
            .iter()
            .filter(own)
            .filter(|it| it.mode != claim.mode && !is_another_reservation(&it.mode, &claim.mode));
        // The claimant can change the mode of one lease. If its name has several, the others must end first.
        let (changes, changes_all) = match changeable.count() {
            0 => (false, false),
            one => (true, one == 1),
        };
        let conflicting: Vec<ModelLease> = live
            .iter()
            .filter(|it| !Party::of(it).fits(Party::claiming(claim)))
            .filter(|it| !changes_all || !own(it))
            .map(|it| (*it).clone())
            .collect();
        let goes_first = changes || model.is_held_already(world, claim);
        let behind = !goes_first && model.passes(world, claim, rank);
        ensure(
            !conflicting.is_empty() || behind,
            Guarantee::Progress,
            || format!("nothing conflicts with {claim:?}: {model:?}"),
        )?;
        let same = live.iter().find(|it| own(it) && it.mode == claim.mode);
        ensure(same.is_none(), Guarantee::Progress, || {
            format!("{claim:?} waits for its own lease: {same:?}")
        })?;
        let itself = conflicting.iter().find(|it| {
            it.would_wait_for_itself(claim) && it.holder_match(claim) == HolderMatch::Other
        });
        ensure(itself.is_none(), Guarantee::Progress, || {
            format!("{claim:?} waits for itself: {itself:?}")
        })?;
        let ticket = self.own_ticket(claim).map(|entry| entry.ticket);
        ensure(
            !self.contradiction(world, claim, ticket),
            Guarantee::Progress,
            || format!("{claim:?} waits, but contradicts {model:?}"),
        )?;
        let beside = live
            .iter()
            .any(|it| Party::of(it).fits(Party::claiming(claim)));
        let held = || conflicting.iter();
        let late = held().any(|held| held.is_orphaned(world) && held.has_expired(world));
        let hidden = |held: &ModelLease| {
            held.binding
                .run()
                .is_some_and(|run| world.state(run) == ProcessState::Hidden)
        };
        self.count(
            "a lease stays although the wall clock was set ahead",
            held().any(|held| !held.has_expired(world) && held.has_expired_by_wall(world)),
        );
        self.count("an orphan keeps its lease after it expired", late);
        self.count(
            "a holder that can't be probed is waited for",
            held().any(hidden),
        );
        self.count(
            "a garbled lease is waited for",
            held().any(|held| held.garbled),
        );
        self.count(
            "a free key waits for the first waiter",
            conflicting.is_empty() && !beside && behind,
        );
        self.count(
            "a claim that could be admitted waits for an earlier one",
            conflicting.is_empty() && beside && behind,
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
        let others = self.keys[claim.key].ahead(world, rank);
        let told = (ahead > 0) != others.is_empty();
        // Waiters that could hold the key together are not probed.
        ensure(
            told || claim.mode == Mode::Shared || Party::claiming(claim).has_files(),
            Guarantee::Fairness,
            || format!("{claim:?} is told that {ahead} are ahead, but {others:?} are"),
        )?;
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
                    mode: claim.mode.clone(),
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
