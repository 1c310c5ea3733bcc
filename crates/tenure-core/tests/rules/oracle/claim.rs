//! The judgement on the answer to a claim.

use tenure_core::decide::ClaimTicket;
use tenure_core::{Evidence, Lease, Reason, Ticket};

use super::Oracle;
use crate::ghost::{Asked, Kin, Place, Standing, Tenancy, reason_after};
use crate::judgement::{Guarantee, Judgement, ensure};
use crate::machine::Answer;
use crate::world::{Fate, Tie, World};

impl Oracle {
    pub(crate) fn acquired(&mut self, world: &World, asked: &Asked, answer: &Answer) -> Judgement {
        match answer {
            Answer::Granted {
                lease,
                reason,
                ended,
                claim_ticket,
            } => self.granted(world, asked, lease, *reason, ended, *claim_ticket),
            Answer::Extended {
                lease,
                claim_ticket,
            } => self.extended(world, asked, lease.token.0, *claim_ticket),
            Answer::Refused { claim_ticket } => {
                self.sight("a try is refused", true);
                ensure(
                    *claim_ticket == ClaimTicket::New,
                    Guarantee::Fairness,
                    || format!("{asked:?} left a trace: {claim_ticket:?}"),
                )?;
                let own = self
                    .own_place(asked)
                    .map(|place| ClaimTicket::Own(Ticket(place.ticket)));
                let standing = self.standing(world, asked, own.unwrap_or(ClaimTicket::New));
                self.busy(world, asked, standing)
            }
            Answer::Queued {
                ticket,
                claim_ticket,
                ahead,
            } => self.queued(world, asked, ticket.0, *claim_ticket, *ahead),
            Answer::WouldWaitForItself => {
                self.sight("a wait for itself is refused", true);
                let held = self.accounts[asked.key].held();
                ensure(
                    held.is_some_and(|held| held.stands(world) && held.waits_for(asked)),
                    Guarantee::Progress,
                    || format!("called a wait for itself: {held:?}"),
                )
            }
            Answer::Deadlock => ensure(false, Guarantee::Progress, || {
                "a cycle where no holder waits".into()
            }),
        }
    }

    fn own_place(&self, asked: &Asked) -> Option<&Place> {
        let line = &self.accounts[asked.key].line;
        let own = |place: &&Place| place.by == asked.by && place.name == asked.name;
        line.iter().find(own).filter(|_| asked.shows_its_life())
    }

    /// Where a claim stands with this seat. One's own keeps the priority that it was taken with;
    /// one that is given back has that of the claim it is given back to.
    fn standing(&self, world: &World, asked: &Asked, claim_ticket: ClaimTicket) -> Standing {
        let place = |ticket: Ticket| self.accounts[asked.key].place(ticket.0);
        let (came, priority) = match claim_ticket {
            ClaimTicket::Own(ticket) => place(ticket).map(|place| (place.came, place.priority)),
            ClaimTicket::Resumed(ticket) => place(ticket).map(|place| (place.came, asked.priority)),
            ClaimTicket::New => None,
        }
        .unwrap_or((world.now, asked.priority));
        Standing {
            came,
            priority,
            ticket: claim_ticket.ticket().map(|ticket| ticket.0),
        }
    }

    /// Whether a seat is one that this claim may have.
    fn seated(&mut self, world: &World, asked: &Asked, claim_ticket: ClaimTicket) -> Judgement {
        let own = self.own_place(asked);
        let account = &self.accounts[asked.key];
        let place = claim_ticket
            .ticket()
            .and_then(|ticket| account.place(ticket.0));
        let resumed = matches!(claim_ticket, ClaimTicket::Resumed(_));
        let left_behind = account.left_behind(world, asked);
        let fine = match claim_ticket {
            ClaimTicket::New => own.is_none() && left_behind.is_none(),
            ClaimTicket::Own(ticket) => own.is_some_and(|own| own.ticket == ticket.0),
            ClaimTicket::Resumed(_) => place.is_some_and(|place| {
                asked.named
                    && place.named
                    && place.name == asked.name
                    && own.is_none()
                    && !place.present(world)
                    && left_behind.is_none_or(|first| !first.goes_before(place))
            }),
        };
        let judgement = ensure(fine, Guarantee::Fairness, || {
            format!("{asked:?} has {claim_ticket:?}, {place:?}, not {own:?} or {left_behind:?}")
        });
        self.sight("a place is resumed", resumed);
        judgement
    }

    fn granted(
        &mut self,
        world: &World,
        asked: &Asked,
        lease: &Lease,
        reason: Reason,
        ended: &[(Lease, Evidence)],
        claim_ticket: ClaimTicket,
    ) -> Judgement {
        let held = self.accounts[asked.key].held().cloned();
        if let Some(held) = &held {
            let guarantee = if held.unknown(world) || held.orphaned(world) {
                Guarantee::UnknownStands
            } else {
                Guarantee::OneHolder
            };
            ensure(held.over(world), guarantee, || {
                format!("granted to {asked:?} while this stands: {held:?}")
            })?;
        }
        let told = match (&held, ended) {
            (None, []) => reason == Reason::AcquiredNew,
            (Some(held), [(lease, evidence)]) => {
                lease.token.0 == held.token
                    && lease.holder.id.as_str() == held.name
                    && held.is_true(world, evidence)
                    && reason == reason_after(evidence)
            }
            _ => false,
        };
        ensure(told, Guarantee::FourEnds, || {
            format!("{held:?} ended with {ended:?} and {reason:?}")
        })?;
        let token = lease.token.0;
        let account = &self.accounts[asked.key];
        ensure(
            account.given.iter().all(|tenancy| tenancy.token < token),
            Guarantee::TokensGrow,
            || format!("token {token} after {:?}", account.given),
        )?;
        self.seated(world, asked, claim_ticket)?;
        let standing = self.standing(world, asked, claim_ticket);
        self.not_passing_by(world, asked, standing)?;
        self.note_grant(world, asked, held.as_ref(), standing);

        let account = &mut self.accounts[asked.key];
        account.end();
        account.given.push(Tenancy::begin(world, asked, token));
        account.line.retain(|it| Some(it.ticket) != standing.ticket);
        Ok(())
    }

    fn note_grant(
        &mut self,
        world: &World,
        asked: &Asked,
        held: Option<&Tenancy>,
        standing: Standing,
    ) {
        let expired = |held: &Tenancy| !held.dead(world);
        let line = &self.accounts[asked.key].line;
        let others = || line.iter().filter(|it| Some(it.ticket) != standing.ticket);
        let there = |place: &&Place| place.present(world);
        let ordinary = others().any(|it| there(&it) && it.priority == asked.priority);
        let urgent = others().any(|it| there(&it) && it.came < standing.came);
        let away =
            others().any(|it| !there(&it) && !standing.may_pass(it) && it.boot == world.boot);
        let of_old = others().any(|it| it.boot != world.boot);
        for (what, seen) in [
            ("an expired lease is taken over", held.is_some_and(expired)),
            (
                "a dead lease is taken over",
                held.is_some_and(|held| held.dead(world)),
            ),
            (
                "a lease expires although the wall clock was set back",
                held.is_some_and(|held| expired(held) && !held.past_on_the_wall(world)),
            ),
            ("a waiter is served", standing.ticket.is_some()),
            ("an equal is served first", ordinary),
            ("a more urgent claim passes", urgent),
            ("one who is away is passed", away),
            ("a place of an earlier boot is passed", of_old),
            (
                "a lease of an earlier boot is taken over",
                held.is_some_and(|it| it.boot != world.boot),
            ),
            (
                "an unverifiable lease is taken over in the end",
                held.is_some_and(|it| it.unknown(world) && it.tie != Tie::Nothing),
            ),
        ] {
            self.sight(what, seen);
        }
    }

    fn not_passing_by(&self, world: &World, asked: &Asked, standing: Standing) -> Judgement {
        let first = self.accounts[asked.key].before(world, standing);
        ensure(first.is_none(), Guarantee::Fairness, || {
            format!("{asked:?} standing at {standing:?} passed {first:?}")
        })
    }

    fn extended(
        &mut self,
        world: &World,
        asked: &Asked,
        token: u64,
        claim_ticket: ClaimTicket,
    ) -> Judgement {
        let Some(held) = self.accounts[asked.key].held().cloned() else {
            return ensure(false, Guarantee::OneHolder, || "extended nothing".into());
        };
        let kin = held.kin(asked);
        ensure(kin != Kin::Other, Guarantee::OneHolder, || {
            format!("{asked:?} shares what is not its own: {held:?}")
        })?;
        ensure(!held.garbled, Guarantee::UnknownStands, || {
            format!("{asked:?} made sense of {held:?}")
        })?;
        ensure(token == held.token, Guarantee::TokensGrow, || {
            format!("extended {held:?} with token {token}")
        })?;
        ensure(!held.dead(world), Guarantee::FourEnds, || {
            format!("{asked:?} went on as if nobody had died: {held:?}")
        })?;
        self.seated(world, asked, claim_ticket)?;
        let standing = self.standing(world, asked, claim_ticket);
        if held.over(world) {
            self.not_passing_by(world, asked, standing)?;
        }
        self.sight("a holder asks again", true);
        self.sight("a holder asks again after its time", held.over(world));
        let account = &mut self.accounts[asked.key];
        account.line.retain(|it| Some(it.ticket) != standing.ticket);
        if let Some(held) = account.held_mut() {
            held.tie = asked.tie;
            held.named |= asked.named;
            held.go_on(world, asked.ttl);
        }
        Ok(())
    }

    /// A claim that was not granted: something has to stand in its way, or it is lost time.
    fn busy(&mut self, world: &World, asked: &Asked, standing: Standing) -> Judgement {
        let account = &self.accounts[asked.key];
        let held = account.held().filter(|held| held.stands(world)).cloned();
        let first = account.before(world, standing);
        ensure(
            held.is_some() || first.is_some(),
            Guarantee::Progress,
            || format!("{asked:?} waits for nobody: {account:?}"),
        )?;
        let (behind, held) = (first.is_some(), held.as_ref());
        ensure(
            held.is_none_or(|held| held.garbled || held.kin(asked) != Kin::Same),
            Guarantee::Progress,
            || format!("{asked:?} waits for its own {held:?}"),
        )?;
        ensure(
            held.is_none_or(|held| !held.waits_for(asked)),
            Guarantee::Progress,
            || format!("{asked:?} waits for itself: {held:?}"),
        )?;
        let late = held.is_some_and(|held| held.orphaned(world) && held.out_of_time(world));
        let hidden = |held: &Tenancy| {
            held.tie
                .run()
                .is_some_and(|run| world.fate(run) == Fate::Hidden)
        };
        self.sight(
            "a lease stands although the wall clock was set ahead",
            held.is_some_and(|held| !held.out_of_time(world) && held.past_on_the_wall(world)),
        );
        self.sight("an orphan outlives its time", late);
        self.sight("a hidden holder is waited for", held.is_some_and(hidden));
        self.sight(
            "a garbled lease is waited for",
            held.is_some_and(|held| held.garbled),
        );
        self.sight(
            "a free key waits for the first in line",
            held.is_none() && behind,
        );
        Ok(())
    }

    fn queued(
        &mut self,
        world: &World,
        asked: &Asked,
        ticket: u64,
        claim_ticket: ClaimTicket,
        ahead: usize,
    ) -> Judgement {
        self.seated(world, asked, claim_ticket)?;
        let standing = self.standing(world, asked, claim_ticket);
        self.busy(world, asked, standing)?;
        let first = self.accounts[asked.key].before(world, standing);
        ensure((ahead > 0) == first.is_some(), Guarantee::Fairness, || {
            format!("{asked:?} was told {ahead} go first, and {first:?} does")
        })?;
        let line = &mut self.accounts[asked.key].line;
        match line.iter_mut().find(|place| place.ticket == ticket) {
            Some(place) if standing.ticket.is_some() => {
                place.by = asked.by;
                place.priority = standing.priority;
                place.heard = world.now;
                place.boot = world.boot;
                Ok(())
            }
            None if standing.ticket.is_none() => {
                let newest = line.iter().map(|place| place.ticket).max();
                ensure(newest < Some(ticket), Guarantee::Fairness, || {
                    format!("ticket {ticket} after {newest:?}")
                })?;
                line.push(Place {
                    ticket,
                    by: asked.by,
                    name: asked.name.clone(),
                    named: asked.named,
                    priority: asked.priority,
                    came: world.now,
                    heard: world.now,
                    boot: world.boot,
                });
                Ok(())
            }
            found => ensure(false, Guarantee::Fairness, || {
                format!("{asked:?} got ticket {ticket} from {claim_ticket:?}: {found:?}")
            }),
        }
    }
}
