//! A store in memory that runs the engine, and nothing else.
//!
//! It has two keys that share one token counter.

use std::convert::Infallible;
use std::slice;
use std::time::Duration;

use tenure_core::decide::{self, ClaimTicket, Decision};
use tenure_core::engine::{self, Ended, KeyDecision, LeaseQuery, Look, Step, Then, Written};
use tenure_core::{
    Acquired, Claim, Doubt, Epoch, Evidence, Fenced, Grant, Granted, Holder, HolderId, Key, Lease,
    Liveness, LivenessId, Moment, Patience, Reaped, Reason, Released, Renewed, Ticket, Token,
    Waiter, Withdrawal,
};

use crate::simulation::KEYS;
use crate::world::World;

/// How long the ticket of a waiter that was cut off is kept.
const GRACE: Duration = Duration::from_secs(600);

/// How far tokens jump with each boot.
const JUMP: u64 = 1 << 20;

/// The rules that the store follows. The tests replace one of them with a broken one.
#[derive(Clone, Copy)]
pub(crate) struct Rules {
    pub(crate) decide: decide::Rules,
    /// The token after the newest one.
    pub(crate) mint: fn(Token) -> Token,
    /// How many tickets are read at once.
    pub(crate) window: usize,
    /// Whether the verbs on one lease see all leases of its key, so that a rule can take the wrong one.
    pub(crate) shows_all: bool,
}

impl Rules {
    /// The rules of `tenure_core`.
    pub(crate) const STANDARD: Self = Self {
        decide: decide::Rules::STANDARD,
        mint: |token| token.next().unwrap(),
        window: 32,
        shows_all: false,
    };

    /// The same, reading every queue in parts.
    pub(crate) const IN_PARTS: Self = Self {
        window: 1,
        ..Self::STANDARD
    };
}

/// The answer to a claim.
#[derive(Debug)]
pub(crate) enum Answer {
    Granted {
        lease: Lease,
        reason: Reason,
        ended: Vec<(Lease, Evidence)>,
        /// The token of the claimant's lease that it replaces.
        replaced: Option<u64>,
        claim_ticket: ClaimTicket,
    },
    Extended {
        lease: Lease,
        claim_ticket: ClaimTicket,
    },
    /// Busy, and the claim does not wait.
    Refused { claim_ticket: ClaimTicket },
    /// Busy, with a ticket.
    Queued {
        ticket: Ticket,
        claim_ticket: ClaimTicket,
        ahead: usize,
    },
    /// Busy, and waiting would never end.
    WouldWaitForItself,
    /// The wait would close a cycle.
    Deadlock,
    /// The key is held or waited for in a mode that contradicts the claim's.
    OtherMode,
}

/// The store's record of one key.
#[derive(Debug, Default)]
struct Record {
    leases: Vec<Lease>,
    /// The leases that another program made unreadable.
    garbled: Vec<Token>,
    queue: Vec<Waiter>,
}

impl Record {
    fn remove(&mut self, token: Token) {
        self.leases.retain(|lease| lease.token != token);
        self.garbled.retain(|garbled| *garbled != token);
    }
}

pub(crate) struct TestStore {
    rules: Rules,
    records: [Record; 3],
    newest: Token,
    newest_in: Epoch,
    tickets: u64,
}

/// One step of the store.
struct TestStep<'a> {
    store: &'a mut TestStore,
    world: &'a World,
    now: Moment,
    /// The liveness lock of the claiming process, which needs no probe.
    us: Option<&'a LivenessId>,
    ended: Vec<(Lease, Evidence)>,
}

fn index(key: &Key) -> usize {
    KEYS.iter().position(|name| *name == key.as_str()).unwrap()
}

fn key(index: usize) -> Key {
    Key::parse(KEYS[index]).unwrap()
}

impl TestStep<'_> {
    fn record(&mut self, key: &Key) -> &mut Record {
        &mut self.store.records[index(key)]
    }

    fn is_us(&self, holder: &Holder) -> bool {
        self.us.is_some() && holder.liveness_lock() == self.us
    }
}

impl Look for TestStep<'_> {
    type Error = Infallible;

    fn now(&self) -> &Moment {
        &self.now
    }

    fn leases(&mut self, key: &Key) -> Result<Vec<(Lease, Liveness)>, Infallible> {
        let record = self.record(key);
        let (leases, garbled) = (record.leases.clone(), record.garbled.clone());
        let judge = |lease: Lease| {
            let liveness = if garbled.contains(&lease.token) {
                Liveness::Unverifiable(Doubt::Malformed)
            } else {
                self.probe(&lease.holder)
            };
            (lease, liveness)
        };
        Ok(leases.into_iter().map(judge).collect())
    }

    fn some_leases(
        &mut self,
        key: &Key,
        query: LeaseQuery<'_>,
    ) -> Result<Vec<(Lease, Liveness)>, Infallible> {
        let all = self.leases(key)?;
        Ok(match query {
            LeaseQuery::Token(_) if self.store.rules.shows_all => all,
            query => query.select(all),
        })
    }

    fn tickets(&mut self, key: &Key) -> Result<Vec<Waiter>, Infallible> {
        Ok(self.record(key).queue.clone())
    }

    fn probe(&mut self, waiter: &Holder) -> Liveness {
        if self.is_us(waiter) {
            Liveness::Running
        } else {
            self.world.probe(&waiter.binding)
        }
    }

    fn grace(&self) -> Duration {
        GRACE
    }

    fn window(&self) -> usize {
        self.store.rules.window
    }

    fn rules(&self) -> &decide::Rules {
        &self.store.rules.decide
    }
}

impl Step for TestStep<'_> {
    fn mint(&mut self, _key: &Key) -> Result<Token, Infallible> {
        let store = &mut *self.store;
        if store.newest_in.differs(&self.now.epoch) {
            store.newest = Token(store.newest.0 + JUMP);
        }
        store.newest = (store.rules.mint)(store.newest);
        store.newest_in = self.now.epoch.clone();
        Ok(store.newest)
    }

    fn write_lease(&mut self, lease: &Lease, _put: Written) -> Result<(), Infallible> {
        let record = self.record(&lease.key);
        record.remove(lease.token);
        record.leases.push(lease.clone());
        Ok(())
    }

    fn erase_lease(&mut self, lease: &Lease, how: &Ended, _then: Then) -> Result<(), Infallible> {
        self.record(&lease.key).remove(lease.token);
        if let Ended::Proven(evidence) = how {
            self.ended.push((lease.clone(), evidence.clone()));
        }
        Ok(())
    }

    fn add_ticket(&mut self, key: &Key, waiter: &Waiter) -> Result<Ticket, Infallible> {
        self.store.tickets += 1;
        let ticket = Ticket(self.store.tickets);
        self.record(key).queue.push(Waiter {
            ticket,
            ..waiter.clone()
        });
        Ok(ticket)
    }

    fn write_ticket(&mut self, key: &Key, waiter: &Waiter) -> Result<(), Infallible> {
        for entry in &mut self.record(key).queue {
            if entry.ticket == waiter.ticket {
                *entry = waiter.clone();
            }
        }
        Ok(())
    }

    fn erase_ticket(&mut self, key: &Key, ticket: Ticket) -> Result<(), Infallible> {
        let queue = &mut self.record(key).queue;
        queue.retain(|waiter| waiter.ticket != ticket);
        Ok(())
    }

    fn waits_of(&mut self, holder: &HolderId, token: Token) -> Result<Vec<Key>, Infallible> {
        let waits = |waiter: &Waiter| waiter.holder.id == *holder || waiter.within.contains(&token);
        let records = self.store.records.iter().enumerate();
        let waited = records.filter(|(_, record)| record.queue.iter().any(waits));
        Ok(waited.map(|(at, _)| key(at)).collect())
    }

    fn wake(&mut self, _holder: &Holder) {}
}

fn infallible<T>(result: Result<T, Infallible>) -> T {
    match result {
        Ok(value) => value,
        Err(never) => match never {},
    }
}

impl TestStore {
    pub(crate) fn new(rules: Rules) -> Self {
        Self {
            rules,
            records: Default::default(),
            newest: Token(0),
            newest_in: Epoch::unknown(),
            tickets: 0,
        }
    }

    pub(crate) fn leases(&self, key: usize) -> &[Lease] {
        &self.records[key].leases
    }

    pub(crate) fn queue(&self, key: usize) -> &[Waiter] {
        &self.records[key].queue
    }

    fn step<'a>(&'a mut self, world: &'a World, us: Option<&'a LivenessId>) -> TestStep<'a> {
        TestStep {
            now: world.moment(),
            store: self,
            world,
            us,
            ended: vec![],
        }
    }

    /// Claims a key as [`engine::acquire`] does, and keeps what was decided for the oracle. `us` is the
    /// liveness lock of the claiming process, if it has one.
    pub(crate) fn acquire(
        &mut self,
        world: &World,
        claim: &Claim,
        us: Option<&LivenessId>,
    ) -> Answer {
        let mut step = self.step(world, us);
        let view = infallible(engine::view_of(&mut step, claim));
        let decision = (step.rules().acquire)(step.now(), &view, claim);
        if let Some(Granted { lease, reason }) = infallible(engine::settled(&mut step, |step| {
            engine::grant(step, claim, &decision, None)
        })) {
            let ended = step.ended;
            return match decision {
                Decision::Extend { ticket, .. } => Answer::Extended {
                    lease,
                    claim_ticket: ticket,
                },
                Decision::Grant {
                    ticket, instead_of, ..
                } => Answer::Granted {
                    lease,
                    reason,
                    ended,
                    replaced: instead_of.map(|lease| lease.token.0),
                    claim_ticket: ticket,
                },
                other => panic!("{other:?} grants nothing"),
            };
        }
        if matches!(decision, Decision::OtherMode { .. }) {
            let answer = infallible(engine::acquire(&mut step, slice::from_ref(claim)));
            assert!(answer.is_err(), "{answer:?} is no refusal");
            return Answer::OtherMode;
        }
        let wanted = vec![KeyDecision {
            claim: claim.clone(),
            view,
            decision: decision.clone(),
        }];
        let answer: Acquired = infallible(engine::settled(&mut step, |step| {
            engine::refuse(step, wanted)
        }));
        match (decision, answer) {
            (Decision::WaitForSelf { .. }, _) => Answer::WouldWaitForItself,
            (Decision::Wait { ticket, .. }, Acquired::Busy(busy)) => match busy.position {
                None => Answer::Refused {
                    claim_ticket: ticket,
                },
                Some(position) => Answer::Queued {
                    ticket: position.ticket,
                    claim_ticket: ticket,
                    ahead: position.ahead,
                },
            },
            _ => Answer::Deadlock,
        }
    }

    pub(crate) fn renew(&mut self, world: &World, grant: &Grant, ttl: Duration) -> bool {
        let grants = slice::from_ref(grant);
        let renewed = infallible(engine::renew(&mut self.step(world, None), grants, ttl));
        matches!(renewed[..], [Renewed::Extended(_)])
    }

    pub(crate) fn release(&mut self, world: &World, grant: &Grant) -> bool {
        let grants = slice::from_ref(grant);
        let released = infallible(engine::release(&mut self.step(world, None), grants));
        matches!(released[..], [Released::Freed(_)])
    }

    /// Takes a key away by force.
    pub(crate) fn force(&mut self, world: &World, at: usize, of: Option<&str>) -> Vec<u64> {
        let by = HolderId::parse("force").unwrap();
        let of = of.map(|name| HolderId::parse(name).unwrap());
        let mut step = self.step(world, None);
        let _ = infallible(engine::force(&mut step, &key(at), of.as_ref(), &by, None));
        step.ended.iter().map(|(lease, _)| lease.token.0).collect()
    }

    /// Withdraws or parks a ticket by the claim that took it.
    pub(crate) fn withdraw(&mut self, world: &World, at: usize, ticket: Ticket, then: Withdrawal) {
        let mut queue = self.records[at].queue.iter();
        let Some(waiter) = queue.find(|waiter| waiter.ticket == ticket).cloned() else {
            return;
        };
        let claim = Claim {
            key: key(at),
            mode: waiter.mode,
            asker: waiter.holder.binding.clone(),
            holder: waiter.holder,
            named: waiter.named,
            ttl: Duration::ZERO,
            priority: waiter.priority,
            patience: Patience::Queue,
            within: waiter.within,
        };
        infallible(engine::withdraw(
            &mut self.step(world, None),
            &[claim],
            then,
        ));
    }

    pub(crate) fn fence(&mut self, world: &World, at: usize, token: Token) -> bool {
        let fenced = infallible(engine::fence(&mut self.step(world, None), &key(at), token));
        matches!(fenced, Fenced::Current(_))
    }

    /// Ends the leases that have expired or whose holders are dead, with the proofs.
    pub(crate) fn reap(&mut self, world: &World, at: usize) -> Vec<(u64, Evidence)> {
        let reaped = infallible(engine::reap(&mut self.step(world, None), &key(at))).reaped;
        let proof = |reaped: Reaped| (reaped.lease.token.0, reaped.evidence);
        reaped.into_iter().map(proof).collect()
    }

    /// Makes the newest lease unreadable.
    pub(crate) fn garble(&mut self, key: usize) {
        let record = &mut self.records[key];
        record
            .garbled
            .extend(record.leases.iter().map(|lease| lease.token).max());
    }
}
