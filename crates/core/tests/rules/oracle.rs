//! Checks every answer of the store, and reports which guarantee it violates.
//!
//! The oracle keeps its own [`crate::model`] and compares it with the store's records after every step.
//! Where the guarantees allow two answers, it accepts both.

mod claim;

use std::collections::BTreeMap;

use tenure_core::{Evidence, Grant, Lease, Mode};

use crate::guarantee::{Checked, Guarantee, ensure};
use crate::model::{KeyModel, ModelLease, ModelTicket, Party};
use crate::store::TestStore;
use crate::world::{Run, World};

#[derive(Debug, Default)]
pub(crate) struct Oracle {
    keys: [KeyModel; 3],
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
        let held = model.held_by(grant).cloned();
        let current = held
            .as_ref()
            .is_some_and(|held| held.garbled || !held.is_dead(world));
        ensure(extended == current, Guarantee::StaleGrantsRefused, || {
            format!("renewing {grant:?}: {extended}, held: {held:?}")
        })?;
        let mut late = false;
        if let Some(held) = model.lease_mut(grant.token.0).filter(|_| extended) {
            late = held.is_stale(world);
            held.extend(world, ttl);
        }
        self.count("an expired lease is renewed", late);
        self.count("a stale renewal is refused", !extended);
        Ok(())
    }

    pub(crate) fn released(&mut self, key: usize, grant: &Grant, freed: bool) -> Checked {
        let model = &mut self.keys[key];
        let current = model.held_by(grant).is_some();
        ensure(freed == current, Guarantee::OnlyHolderReleases, || {
            format!("releasing {grant:?}: {freed}, held: {:?}", model.leases)
        })?;
        let was_held = model.on_record().next().is_some();
        if freed {
            model.end(grant.token.0);
        }
        let still_held = model.on_record().next().is_some();
        self.count("a lease is released", freed);
        self.count("one of several leases is released", freed && still_held);
        self.count("a release by another holder is refused", !freed && was_held);
        Ok(())
    }

    pub(crate) fn forced(&mut self, key: usize, of: Option<&str>, freed: &[u64]) -> Checked {
        let model = &mut self.keys[key];
        let theirs = |it: &&ModelLease| of.is_none_or(|name| it.name == name);
        let mut held: Vec<u64> = model
            .on_record()
            .filter(theirs)
            .map(|it| it.token)
            .collect();
        for token in &held {
            model.end(*token);
        }
        held.sort_unstable();
        let mut freed = freed.to_vec();
        freed.sort_unstable();
        ensure(held == freed, Guarantee::ProvenEnds, || {
            format!("force ended {freed:?}, not {held:?}")
        })
    }

    pub(crate) fn reaped(
        &mut self,
        world: &World,
        key: usize,
        proofs: &[(u64, Evidence)],
    ) -> Checked {
        let model = &mut self.keys[key];
        for (token, proof) in proofs {
            let held = model.lease(*token);
            let unknown = held.is_some_and(|it| it.is_unverifiable(world) || it.is_orphaned(world));
            let guarantee = if unknown {
                Guarantee::UnverifiableStays
            } else {
                Guarantee::ProvenEnds
            };
            let proven = held.is_some_and(|it| it.is_stale(world) && it.is_proven_by(world, proof));
            ensure(proven, guarantee, || {
                format!("reaped {held:?} by {proof:?}")
            })?;
            model.end(*token);
        }
        let left = model.on_record().find(|held| held.is_stale(world));
        ensure(left.is_none(), Guarantee::Progress, || {
            format!("not reaped: {left:?}")
        })?;
        self.count("a lease is reaped", !proofs.is_empty());
        Ok(())
    }

    pub(crate) fn fenced(&mut self, world: &World, key: usize, token: u64, may: bool) -> Checked {
        let held = self.keys[key].lease(token).cloned();
        let current = held.as_ref().is_some_and(|held| held.is_live(world));
        self.count("a stale token is refused", !current);
        self.count(
            "the newest token is refused once its lease has ended",
            held.is_some() && !current,
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
        let model = &mut self.keys[key];
        let newest = model.on_record().map(|lease| lease.token).max();
        if let Some(held) = newest.and_then(|token| model.lease_mut(token)) {
            held.garbled = true;
        }
    }

    /// Checks that the store's records agree with the model.
    pub(crate) fn audit(&mut self, world: &World, store: &TestStore) -> Checked {
        for (key, model) in self.keys.iter_mut().enumerate() {
            let live = model.live(world);
            for (index, one) in live.iter().enumerate() {
                for other in live.iter().skip(index + 1) {
                    let apart = one.slot.is_none() || one.slot != other.slot;
                    ensure(
                        Party::of(one).fits(Party::of(other)) && apart,
                        Guarantee::OneHolder,
                        || format!("both are live: {one:?}, {other:?}"),
                    )?;
                }
                let slots = match one.mode {
                    Mode::Slots(slots) => Some(slots.get()),
                    _ => None,
                };
                let valid = one.slot.is_some() == slots.is_some() && one.slot < slots.or(Some(1));
                ensure(valid, Guarantee::OneHolder, || {
                    format!("no such slot: {one:?}")
                })?;
            }
            let together = live.len() > 1;
            let mut leases: Vec<&Lease> = store.leases(key).iter().collect();
            leases.sort_by_key(|lease| lease.token);
            let matches = model.on_record().count() == leases.len()
                && model.on_record().zip(&leases).all(|(held, lease)| {
                    lease.token.0 == held.token
                        && lease.mode == held.mode
                        && lease.slot == held.slot
                        && lease.holder.id.as_str() == held.name
                        && lease.holder.binding == world.binding(held.binding)
                        && lease.expires.as_ref().map(|end| end.wall.as_millisecond())
                            == Some(held.until_wall)
                });
            ensure(matches, Guarantee::ProvenEnds, || {
                format!("the store records {:?} as {leases:?}", model.leases)
            })?;
            *self.cases.entry("a key has several holders").or_default() += u32::from(together);
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
