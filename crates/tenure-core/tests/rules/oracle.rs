//! The judge: hears every question and every answer, and says which guarantee an answer breaks.
//!
//! It keeps its own account ([`crate::ghost`]) and compares it with the record after every step.
//! What a store may decide either way it leaves open.

use std::collections::BTreeMap;
use std::fmt;

use tenure_core::decide::Seat;
use tenure_core::{Evidence, Grant, Lease, Reason};

use crate::ghost::{Asked, Kin, Place, Standing, Tenancy, reason_after};
use crate::machine::{Answer, Machine};
use crate::world::{Fate, Tie, World};

/// A guarantee that did not hold.
#[derive(Debug)]
pub(crate) struct Broken {
    pub(crate) guarantee: Guarantee,
    pub(crate) how: String,
}

/// The guarantees of `docs/guarantees.md` that the rules decide on, and that a free key is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Guarantee {
    OneHolder,
    TokensGrow,
    FourEnds,
    UnknownStands,
    OnlyTheHolder,
    LateWriters,
    Fairness,
    Progress,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.guarantee, self.how)
    }
}

type Judgement = Result<(), Broken>;

fn ensure(holds: bool, guarantee: Guarantee, how: impl FnOnce() -> String) -> Judgement {
    if holds {
        return Ok(());
    }
    Err(Broken {
        guarantee,
        how: how(),
    })
}

/// What is true of one key.
#[derive(Debug, Default)]
struct Account {
    given: Vec<Tenancy>,
    line: Vec<Place>,
}

impl Account {
    fn held(&self) -> Option<&Tenancy> {
        self.given.last().filter(|tenancy| !tenancy.ended)
    }

    fn held_mut(&mut self) -> Option<&mut Tenancy> {
        self.given.last_mut().filter(|tenancy| !tenancy.ended)
    }

    fn end(&mut self) {
        if let Some(tenancy) = self.held_mut() {
            tenancy.ended = true;
        }
    }

    fn place(&self, ticket: u64) -> Option<&Place> {
        self.line.iter().find(|place| place.ticket == ticket)
    }

    fn is_held_by(&self, grant: &Grant) -> bool {
        self.held().is_some_and(|tenancy| {
            tenancy.token == grant.token.0 && tenancy.name == grant.holder.as_str()
        })
    }

    /// Somebody who is there, goes before this standing, and is not the one that stands so.
    fn before(&self, world: &World, asked: &Asked, standing: Standing) -> Option<&Place> {
        self.line.iter().find(|place| {
            Some(place.ticket) != standing.ticket
                && place.present(world, asked.by)
                && !standing.may_pass(place)
        })
    }
}

#[derive(Debug, Default)]
pub(crate) struct Oracle {
    accounts: [Account; 2],
    /// How often each corner of the rules was reached.
    pub(crate) sights: BTreeMap<&'static str, u32>,
}

impl Oracle {
    pub(crate) fn sight(&mut self, what: &'static str, seen: bool) {
        *self.sights.entry(what).or_default() += u32::from(seen);
    }

    /// The priority that a process has been waiting with.
    pub(crate) fn waits_with(&self, key: usize, by: crate::world::Run) -> Option<(u64, u8)> {
        let place = self.accounts[key].line.iter().find(|it| it.by == by)?;
        Some((place.ticket, place.priority))
    }

    pub(crate) fn acquired(&mut self, world: &World, asked: &Asked, answer: &Answer) -> Judgement {
        match answer {
            Answer::Granted {
                lease,
                reason,
                ended,
                seat,
            } => self.granted(world, asked, lease, *reason, ended.as_ref(), *seat),
            Answer::Extended { token, seat, .. } => self.extended(world, asked, token.0, *seat),
            Answer::Refused => {
                let own = self.waits_with(asked.key, asked.by);
                let standing = self.standing(world, asked, own.map(|(ticket, _)| ticket));
                self.sight("a try is refused", true);
                self.busy(world, asked, standing)
            }
            Answer::Queued {
                ticket,
                seat,
                ahead,
            } => self.queued(world, asked, ticket.0, *seat, *ahead),
            Answer::WouldWaitForItself => {
                let held = self.accounts[asked.key].held();
                self.sights
                    .entry("a wait for itself is refused")
                    .and_modify(|n| *n += 1)
                    .or_insert(1);
                ensure(
                    held.is_some_and(|held| held.stands(world) && held.waits_for(asked)),
                    Guarantee::Progress,
                    || format!("called a wait for itself: {held:?}"),
                )
            }
            Answer::Nonsense => ensure(false, Guarantee::OneHolder, || {
                "extended a lease that is not there".into()
            }),
        }
    }

    fn standing(&self, world: &World, asked: &Asked, ticket: Option<u64>) -> Standing {
        let place = ticket.and_then(|ticket| self.accounts[asked.key].place(ticket));
        Standing {
            came: place.map_or(world.now, |place| place.came),
            priority: asked.priority,
            ticket: place.map(|place| place.ticket),
        }
    }

    /// Whether a seat is one that this claim may have.
    fn seated(&mut self, world: &World, asked: &Asked, seat: Seat) -> Judgement {
        let account = &self.accounts[asked.key];
        let own = account.line.iter().find(|place| place.by == asked.by);
        let place = seat.ticket().and_then(|ticket| account.place(ticket.0));
        let resumed = matches!(seat, Seat::Resumed(_));
        let fine = match seat {
            Seat::New => own.is_none(),
            Seat::Own(_) => place.is_some_and(|place| place.by == asked.by),
            Seat::Resumed(_) => place.is_some_and(|place| {
                asked.named
                    && place.named
                    && place.name == asked.name
                    && own.is_none()
                    && !place.present(world, asked.by)
            }),
        };
        let judgement = ensure(fine, Guarantee::Fairness, || {
            format!("{asked:?} was seated at {place:?}, its own being {own:?}")
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
        ended: Option<&(Lease, Evidence)>,
        seat: Seat,
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
            (None, None) => reason == Reason::AcquiredNew,
            (Some(held), Some((lease, evidence))) => {
                lease.token.0 == held.token
                    && lease.holder.id.as_str() == held.name
                    && held.is_true(world, evidence)
                    && reason == reason_after(evidence)
            }
            (None, Some(_)) | (Some(_), None) => false,
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
        self.seated(world, asked, seat)?;
        let standing = self.standing(world, asked, seat.ticket().map(|ticket| ticket.0));
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
        let there = |place: &&Place| place.present(world, asked.by);
        let ordinary = others().any(|it| there(&it) && it.priority == asked.priority);
        let urgent = others().any(|it| there(&it) && it.came < standing.came);
        let away = others().any(|it| {
            !there(&it) && !standing.may_pass(it) && it.boot == world.boot
        });
        let of_old = others().any(|it| it.boot != world.boot);
        for (what, seen) in [
            ("an expired lease is taken over", held.is_some_and(expired)),
            ("a dead lease is taken over", held.is_some_and(|held| held.dead(world))),
            ("a waiter is served", standing.ticket.is_some()),
            ("an equal is served first", ordinary),
            ("a more urgent claim passes", urgent),
            ("one who is away is passed", away),
            ("a place of an earlier boot is passed", of_old),
            ("a lease of an earlier boot is taken over", held.is_some_and(|it| it.boot != world.boot)),
            ("an unverifiable lease is taken over in the end", held.is_some_and(|it| it.unknown(world) && it.tie != Tie::Nothing)),
        ] {
            self.sight(what, seen);
        }
    }

    fn not_passing_by(&self, world: &World, asked: &Asked, standing: Standing) -> Judgement {
        let first = self.accounts[asked.key].before(world, asked, standing);
        ensure(first.is_none(), Guarantee::Fairness, || {
            format!("{asked:?} standing at {standing:?} passed {first:?}")
        })
    }

    fn extended(&mut self, world: &World, asked: &Asked, token: u64, seat: Seat) -> Judgement {
        let Some(held) = self.accounts[asked.key].held().cloned() else {
            return ensure(false, Guarantee::OneHolder, || "extended nothing".into());
        };
        let kin = held.kin(asked);
        ensure(kin != Kin::Other, Guarantee::OneHolder, || {
            format!("{asked:?} shares what is not its own: {held:?}")
        })?;
        ensure(held.name == asked.name, Guarantee::OnlyTheHolder, || {
            format!("{asked:?} took the grant from its own process: {held:?}")
        })?;
        ensure(token == held.token, Guarantee::TokensGrow, || {
            format!("extended {held:?} with token {token}")
        })?;
        ensure(!held.dead(world), Guarantee::FourEnds, || {
            format!("{asked:?} went on as if nobody had died: {held:?}")
        })?;
        self.seated(world, asked, seat)?;
        let standing = self.standing(world, asked, seat.ticket().map(|ticket| ticket.0));
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
        let first = account.before(world, asked, standing);
        ensure(
            held.is_some() || first.is_some(),
            Guarantee::Progress,
            || format!("{asked:?} waits for nobody: {account:?}"),
        )?;
        let (behind, held) = (first.is_some(), held.as_ref());
        ensure(
            held.is_none_or(|held| held.kin(asked) != Kin::Same),
            Guarantee::Progress,
            || format!("{asked:?} waits for its own {held:?}"),
        )?;
        ensure(
            held.is_none_or(|held| !held.waits_for(asked)),
            Guarantee::Progress,
            || format!("{asked:?} waits for itself: {held:?}"),
        )?;
        let late = held.is_some_and(|held| {
            held.orphaned(world) && Tenancy { tie: Tie::Nothing, ..held.clone() }.over(world)
        });
        let hidden = |held: &Tenancy| {
            held.tie.run().is_some_and(|run| world.fate(run) == Fate::Hidden)
        };
        self.sight("an orphan outlives its time", late);
        self.sight("a hidden holder is waited for", held.is_some_and(hidden));
        self.sight("a garbled lease is waited for", held.is_some_and(|held| held.garbled));
        self.sight("a free key waits for the first in line", held.is_none() && behind);
        Ok(())
    }

    fn queued(
        &mut self,
        world: &World,
        asked: &Asked,
        ticket: u64,
        seat: Seat,
        ahead: usize,
    ) -> Judgement {
        self.seated(world, asked, seat)?;
        let standing = self.standing(world, asked, seat.ticket().map(|ticket| ticket.0));
        self.busy(world, asked, standing)?;
        let first = self.accounts[asked.key].before(world, asked, standing);
        ensure((ahead > 0) == first.is_some(), Guarantee::Fairness, || {
            format!("{asked:?} was told {ahead} go first, and {first:?} does")
        })?;
        let line = &mut self.accounts[asked.key].line;
        match line.iter_mut().find(|place| place.ticket == ticket) {
            Some(place) if standing.ticket.is_some() => {
                place.by = asked.by;
                place.priority = asked.priority;
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
                format!("{asked:?} got ticket {ticket} from {seat:?}: {found:?}")
            }),
        }
    }

    pub(crate) fn renewed(
        &mut self,
        world: &World,
        key: usize,
        grant: &Grant,
        ttl: i64,
        extended: bool,
    ) -> Judgement {
        let account = &mut self.accounts[key];
        let current = account.is_held_by(grant);
        ensure(extended == current, Guarantee::LateWriters, || {
            format!("renewing {grant:?}: {extended}, held: {:?}", account.held())
        })?;
        let mut late = false;
        if let Some(held) = account.held_mut().filter(|_| extended) {
            late = held.over(world);
            held.go_on(world, ttl);
        }
        self.sight("a renewal is late", late);
        self.sight("a stale renewal is refused", !extended);
        Ok(())
    }

    pub(crate) fn released(&mut self, key: usize, grant: &Grant, freed: bool) -> Judgement {
        let account = &mut self.accounts[key];
        let current = account.is_held_by(grant);
        ensure(freed == current, Guarantee::OnlyTheHolder, || {
            format!("releasing {grant:?}: {freed}, held: {:?}", account.held())
        })?;
        let stood = account.held().is_some();
        if freed {
            account.end();
        }
        self.sight("a lease is released", freed);
        self.sight("a stranger's release is refused", !freed && stood);
        Ok(())
    }

    pub(crate) fn forced(&mut self, key: usize, freed: Option<&Lease>) -> Judgement {
        let account = &mut self.accounts[key];
        let held = account.held().map(|held| held.token);
        account.end();
        ensure(
            held == freed.map(|lease| lease.token.0),
            Guarantee::FourEnds,
            || format!("force freed {freed:?}, not {held:?}"),
        )
    }

    pub(crate) fn reaped(&mut self, world: &World, key: usize, proof: Option<&Evidence>) -> Judgement {
        let account = &mut self.accounts[key];
        let held = account.held().cloned();
        match (&held, proof) {
            (Some(held), Some(proof)) => {
                let guarantee = if held.unknown(world) || held.orphaned(world) {
                    Guarantee::UnknownStands
                } else {
                    Guarantee::FourEnds
                };
                ensure(
                    held.over(world) && held.is_true(world, proof),
                    guarantee,
                    || format!("reaped {held:?} by {proof:?}"),
                )?;
            }
            (Some(held), None) => ensure(!held.over(world), Guarantee::Progress, || {
                format!("not reaped: {held:?}")
            })?,
            (None, _) => ensure(proof.is_none(), Guarantee::FourEnds, || {
                format!("reaped nothing by {proof:?}")
            })?,
        }
        if proof.is_some() {
            account.end();
        }
        self.sight("a lease is reaped", proof.is_some());
        Ok(())
    }

    pub(crate) fn fenced(&mut self, world: &World, key: usize, token: u64, may: bool) -> Judgement {
        let held = self.accounts[key].held().cloned();
        let newest = held.as_ref().is_some_and(|held| held.token == token);
        let current = newest && held.as_ref().is_some_and(|held| held.stands(world));
        self.sight("a late writer is refused", !current);
        self.sight("the newest grant is refused once it is over", newest && !current);
        self.sight("a writer is let through", current);
        ensure(may == current, Guarantee::LateWriters, || {
            format!("a write with {token} may happen: {may}, held: {held:?}")
        })
    }

    pub(crate) fn left(&mut self, key: usize, ticket: u64) {
        self.accounts[key].line.retain(|it| it.ticket != ticket);
    }

    pub(crate) fn garbled(&mut self, key: usize) {
        if let Some(held) = self.accounts[key].held_mut() {
            held.garbled = true;
        }
    }

    pub(crate) fn places_abandoned(&mut self) {
        for place in self.accounts.iter_mut().flat_map(|it| &mut it.line) {
            place.named = false;
        }
    }

    /// Whether the record says what everybody was told, and no more.
    pub(crate) fn audit(&mut self, world: &World, machine: &Machine) -> Judgement {
        for (key, account) in self.accounts.iter_mut().enumerate() {
            let live = account.given.iter().filter(|it| it.stands(world)).count();
            ensure(live <= 1, Guarantee::OneHolder, || {
                format!("{live} hold at once: {:?}", account.given)
            })?;
            let lease = machine.lease(key);
            let as_told = match (account.held(), lease) {
                (None, None) => true,
                (Some(held), Some(lease)) => {
                    lease.token.0 == held.token
                        && lease.holder.id.as_str() == held.name
                        && lease.holder.binding == world.binding(held.tie)
                        && lease.expires.wall.as_millisecond() == held.until_wall
                }
                (None, Some(_)) | (Some(_), None) => false,
            };
            ensure(as_told, Guarantee::FourEnds, || {
                format!("{:?} is on record as {lease:?}", account.held())
            })?;
            let kept = |place: &Place| {
                machine
                    .queue(key)
                    .iter()
                    .any(|it| it.ticket.0 == place.ticket)
            };
            let lost = account
                .line
                .iter()
                .find(|place| !kept(place) && !place.may_be_forgotten(world));
            ensure(lost.is_none(), Guarantee::Fairness, || {
                format!("a place was lost: {lost:?}")
            })?;
            account.line.retain(kept);
            ensure(
                account.line.len() == machine.queue(key).len(),
                Guarantee::Fairness,
                || format!("{:?} are {:?}", account.line, machine.queue(key)),
            )?;
        }
        Ok(())
    }
}
