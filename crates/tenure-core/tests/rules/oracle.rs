//! The judge: hears every question and every answer, and says which guarantee an answer breaks.
//!
//! It keeps its own account ([`crate::ghost`]) and compares it with the record after every step.
//! What a store may decide either way it leaves open.

mod claim;

use std::collections::BTreeMap;

use tenure_core::{Evidence, Grant, Lease};

use crate::ghost::{Account, Place};
use crate::judgement::{Guarantee, Judgement, ensure};
use crate::machine::Machine;
use crate::world::{Run, World};

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

    /// The first ticket of a process that waits, and the name it waits in.
    pub(crate) fn ticket_of(&self, key: usize, by: Run) -> Option<(u64, String)> {
        let place = self.accounts[key].line.iter().find(|it| it.by == by)?;
        Some((place.ticket, place.name.clone()))
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
        let dead = account
            .held()
            .is_some_and(|held| !held.garbled && held.dead(world));
        let current = account.is_held_by(grant) && !dead;
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

    pub(crate) fn reaped(
        &mut self,
        world: &World,
        key: usize,
        proof: Option<&Evidence>,
    ) -> Judgement {
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
        self.sight(
            "the newest grant is refused once it is over",
            newest && !current,
        );
        self.sight("a writer is let through", current);
        ensure(may == current, Guarantee::LateWriters, || {
            format!("a write with {token} may happen: {may}, held: {held:?}")
        })
    }

    pub(crate) fn left(&mut self, key: usize, ticket: u64) {
        self.accounts[key].line.retain(|it| it.ticket != ticket);
    }

    pub(crate) fn parked(&mut self, world: &World, key: usize, ticket: u64) {
        let line = &mut self.accounts[key].line;
        for place in line.iter_mut().filter(|it| it.ticket == ticket) {
            place.park(world);
        }
    }

    pub(crate) fn garbled(&mut self, key: usize) {
        if let Some(held) = self.accounts[key].held_mut() {
            held.garbled = true;
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
                        && lease.expires.as_ref().map(|end| end.wall.as_millisecond())
                            == Some(held.until_wall)
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
