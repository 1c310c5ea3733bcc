//! Checks every answer of the store, and reports which guarantee it violates.
//!
//! The oracle keeps its own [`crate::model`] and compares it with the store's records after every step.
//! Where the guarantees allow two answers, it accepts both.

mod claim;

use std::collections::BTreeMap;

use tenure_core::{Evidence, Grant, Lease};

use crate::guarantee::{Checked, Guarantee, ensure};
use crate::model::{KeyModel, ModelTicket};
use crate::store::TestStore;
use crate::world::{Run, World};

#[derive(Debug, Default)]
pub(crate) struct Oracle {
    keys: [KeyModel; 2],
    /// How often each case occurred.
    pub(crate) cases: BTreeMap<&'static str, u32>,
}

impl Oracle {
    pub(crate) fn count(&mut self, what: &'static str, occurred: bool) {
        *self.cases.entry(what).or_default() += u32::from(occurred);
    }

    /// The first ticket of a waiting process, and the name under which it waits.
    pub(crate) fn ticket_of(&self, key: usize, by: Run) -> Option<(u64, String)> {
        let entry = self.keys[key].queue.iter().find(|it| it.by == by)?;
        Some((entry.ticket, entry.name.clone()))
    }

    pub(crate) fn renewed(
        &mut self,
        world: &World,
        key: usize,
        grant: &Grant,
        ttl: i64,
        extended: bool,
    ) -> Checked {
        let model = &mut self.keys[key];
        let dead = model
            .lease()
            .is_some_and(|held| !held.garbled && held.is_dead(world));
        let current = model.is_held_by(grant) && !dead;
        ensure(extended == current, Guarantee::StaleGrantsRefused, || {
            format!("renewing {grant:?}: {extended}, held: {:?}", model.lease())
        })?;
        let mut late = false;
        if let Some(held) = model.lease_mut().filter(|_| extended) {
            late = held.is_stale(world);
            held.extend(world, ttl);
        }
        self.count("an expired lease is renewed", late);
        self.count("a stale renewal is refused", !extended);
        Ok(())
    }

    pub(crate) fn released(&mut self, key: usize, grant: &Grant, freed: bool) -> Checked {
        let model = &mut self.keys[key];
        let current = model.is_held_by(grant);
        ensure(freed == current, Guarantee::OnlyHolderReleases, || {
            format!("releasing {grant:?}: {freed}, held: {:?}", model.lease())
        })?;
        let was_held = model.lease().is_some();
        if freed {
            model.end();
        }
        self.count("a lease is released", freed);
        self.count("a release by another holder is refused", !freed && was_held);
        Ok(())
    }

    pub(crate) fn forced(&mut self, key: usize, freed: Option<&Lease>) -> Checked {
        let model = &mut self.keys[key];
        let held = model.lease().map(|held| held.token);
        model.end();
        ensure(
            held == freed.map(|lease| lease.token.0),
            Guarantee::ProvenEnds,
            || format!("force ended {freed:?}, not {held:?}"),
        )
    }

    pub(crate) fn reaped(
        &mut self,
        world: &World,
        key: usize,
        proof: Option<&Evidence>,
    ) -> Checked {
        let model = &mut self.keys[key];
        let held = model.lease().cloned();
        match (&held, proof) {
            (Some(held), Some(proof)) => {
                let guarantee = if held.is_unverifiable(world) || held.is_orphaned(world) {
                    Guarantee::UnverifiableStays
                } else {
                    Guarantee::ProvenEnds
                };
                ensure(
                    held.is_stale(world) && held.is_proven_by(world, proof),
                    guarantee,
                    || format!("reaped {held:?} by {proof:?}"),
                )?;
            }
            (Some(held), None) => ensure(!held.is_stale(world), Guarantee::Progress, || {
                format!("not reaped: {held:?}")
            })?,
            (None, _) => ensure(proof.is_none(), Guarantee::ProvenEnds, || {
                format!("reaped nothing by {proof:?}")
            })?,
        }
        if proof.is_some() {
            model.end();
        }
        self.count("a lease is reaped", proof.is_some());
        Ok(())
    }

    pub(crate) fn fenced(&mut self, world: &World, key: usize, token: u64, may: bool) -> Checked {
        let held = self.keys[key].lease().cloned();
        let newest = held.as_ref().is_some_and(|held| held.token == token);
        let current = newest && held.as_ref().is_some_and(|held| held.is_live(world));
        self.count("a stale token is refused", !current);
        self.count(
            "the newest token is refused once its lease has ended",
            newest && !current,
        );
        self.count("a current token is accepted", current);
        ensure(may == current, Guarantee::StaleGrantsRefused, || {
            format!("a write with {token} is allowed: {may}, held: {held:?}")
        })
    }

    pub(crate) fn left(&mut self, key: usize, ticket: u64) {
        self.keys[key].queue.retain(|it| it.ticket != ticket);
    }

    pub(crate) fn parked(&mut self, world: &World, key: usize, ticket: u64) {
        let queue = &mut self.keys[key].queue;
        for entry in queue.iter_mut().filter(|it| it.ticket == ticket) {
            entry.park(world);
        }
    }

    pub(crate) fn garbled(&mut self, key: usize) {
        if let Some(held) = self.keys[key].lease_mut() {
            held.garbled = true;
        }
    }

    /// Checks that the store's records agree with the model.
    pub(crate) fn audit(&mut self, world: &World, store: &TestStore) -> Checked {
        for (key, model) in self.keys.iter_mut().enumerate() {
            let live = model.leases.iter().filter(|it| it.is_live(world)).count();
            ensure(live <= 1, Guarantee::OneHolder, || {
                format!("{live} live leases: {:?}", model.leases)
            })?;
            let lease = store.lease(key);
            let matches = match (model.lease(), lease) {
                (None, None) => true,
                (Some(held), Some(lease)) => {
                    lease.token.0 == held.token
                        && lease.holder.id.as_str() == held.name
                        && lease.holder.binding == world.binding(held.binding)
                        && lease.expires.as_ref().map(|end| end.wall.as_millisecond())
                            == Some(held.until_wall)
                }
                (None, Some(_)) | (Some(_), None) => false,
            };
            ensure(matches, Guarantee::ProvenEnds, || {
                format!("the store records {:?} as {lease:?}", model.lease())
            })?;
            let kept = |entry: &ModelTicket| {
                store
                    .queue(key)
                    .iter()
                    .any(|it| it.ticket.0 == entry.ticket)
            };
            let lost = model
                .queue
                .iter()
                .find(|entry| !kept(entry) && !entry.may_be_dropped(world));
            ensure(lost.is_none(), Guarantee::Fairness, || {
                format!("a ticket was lost: {lost:?}")
            })?;
            model.queue.retain(kept);
            ensure(
                model.queue.len() == store.queue(key).len(),
                Guarantee::Fairness,
                || {
                    format!(
                        "the store records the queue {:?} as {:?}",
                        model.queue,
                        store.queue(key)
                    )
                },
            )?;
        }
        Ok(())
    }
}
