//! Claims on several keys: random simulations against a store in memory that runs the engine, and an oracle that shares
//! no code with the rules.
//!
//! The oracle knows who holds what, who waits since when, and what each waiter waits for. It checks that
//!
//! - a claim is granted all of its keys or none (G1 for each key);
//! - no claim passes a present waiter ahead that conflicts with it, except one that waits for the claimant (G8);
//! - a claim waits only if it is served in the end although nobody gives up, and is refused only if it waits for a holder
//!   that waits for it (progress). Between the two are waits that end because a waiter in the chain passes the one ahead
//!   of it: there, both answers are right;
//! - in the end, every waiter is served, although holders ask for more before they release (progress).

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::test_runner::{TestCaseError, TestRunner};
use tenure_core::engine::{
    self, Ended, LeaseQuery, Look, Step, Then, TicketFilter, TicketQuery, TicketSummary, Written,
};
use tenure_core::queue::{Presence, Rank};
use tenure_core::{
    Acquired, Binding, Claim, Epoch, Evidence, Grant, Granted, Holder, HolderId, Key, Lease,
    Liveness, LivenessId, Mode, Moment, Patience, Priority, Process, Released, Ticket, Token,
    Waiter, Withdrawal, decide, several,
};

use crate::{config, fixed_rng};

const KEYS: usize = 4;
const ACTORS: usize = 5;

fn key(index: usize) -> Key {
    Key::parse(format!("key-{index}")).unwrap()
}

fn name(actor: usize) -> HolderId {
    HolderId::parse(format!("actor-{actor}")).unwrap()
}

fn epoch() -> Epoch {
    Epoch("boot".into())
}

#[derive(Clone, Default)]
struct Record {
    leases: Vec<Lease>,
    queue: Vec<Waiter>,
}

#[derive(Clone)]
struct TestStore {
    rules: decide::Rules,
    records: BTreeMap<Key, Record>,
    newest: u64,
    now: Moment,
    /// The actors whose processes have exited.
    dead: BTreeSet<HolderId>,
    /// How many tickets were read.
    read: usize,
    /// How many leases were read, each with a probe of its holder.
    looked: usize,
    woken: BTreeSet<HolderId>,
    /// Whether the store can tell that a claimant holds nothing.
    knows_holders: bool,
}

impl TestStore {
    fn record(&mut self, key: &Key) -> &mut Record {
        self.records.entry(key.clone()).or_default()
    }
}

impl Look for TestStore {
    type Error = Infallible;

    fn now(&self) -> &Moment {
        &self.now
    }

    fn leases(&mut self, key: &Key) -> Result<Vec<(Lease, Liveness)>, Infallible> {
        self.some_leases(key, LeaseQuery::First(usize::MAX))
    }

    fn some_leases(
        &mut self,
        key: &Key,
        query: LeaseQuery<'_>,
    ) -> Result<Vec<(Lease, Liveness)>, Infallible> {
        let leases = self.record(key).leases.clone();
        let leases = query.select(leases.into_iter().map(|lease| (lease, ())).collect());
        self.looked += leases.len();
        let judge = |(lease, ()): (Lease, ())| {
            let liveness = self.probe(&lease.holder);
            (lease, liveness)
        };
        Ok(leases.into_iter().map(judge).collect())
    }

    fn slots(&mut self, key: &Key) -> Result<Vec<(Token, Option<u32>)>, Infallible> {
        let leases = self.record(key).leases.iter();
        Ok(leases.map(|lease| (lease.token, lease.slot)).collect())
    }

    fn summaries(&mut self, key: &Key) -> Result<Vec<TicketSummary>, Infallible> {
        let queue = self.record(key).queue.clone();
        let queue = TicketQuery::all(TicketFilter::All).select(queue);
        Ok(queue.into_iter().map(TicketSummary::from).collect())
    }

    fn tickets(&mut self, key: &Key) -> Result<Vec<Waiter>, Infallible> {
        let tickets = self.record(key).queue.clone();
        self.read += tickets.len();
        Ok(tickets)
    }

    fn some_tickets(
        &mut self,
        key: &Key,
        query: TicketQuery<'_>,
    ) -> Result<Vec<Waiter>, Infallible> {
        let tickets = query.select(self.record(key).queue.clone());
        self.read += tickets.len();
        Ok(tickets)
    }

    fn count_waiters(&mut self, key: &Key, rank: Rank) -> Result<(usize, usize), Infallible> {
        let queue = self.record(key).queue.iter();
        let here = queue.filter(|waiter| waiter.presence == Presence::Here);
        let before = here.clone().filter(|waiter| waiter.rank() < rank);
        Ok((before.count(), here.count()))
    }

    fn probe(&mut self, holder: &Holder) -> Liveness {
        if self.dead.contains(&holder.id) {
            Liveness::Gone(Evidence::LivenessLockFree { pid: 1 })
        } else {
            Liveness::Running
        }
    }

    fn heard(&mut self, _waiter: &Waiter) -> Duration {
        self.now.ticks
    }

    fn grace(&self) -> Duration {
        Duration::from_secs(600)
    }

    fn window(&self) -> usize {
        2
    }

    fn rules(&self) -> &decide::Rules {
        &self.rules
    }
}

impl Step for TestStore {
    fn mint(&mut self, _key: &Key) -> Result<Token, Infallible> {
        self.newest += 1;
        Ok(Token(self.newest))
    }

    fn write_lease(&mut self, lease: &Lease, _put: Written) -> Result<(), Infallible> {
        let leases = &mut self.record(&lease.key).leases;
        leases.retain(|other| other.token != lease.token);
        leases.push(lease.clone());
        Ok(())
    }

    fn erase_lease(&mut self, lease: &Lease, _how: &Ended, _then: Then) -> Result<(), Infallible> {
        let leases = &mut self.record(&lease.key).leases;
        leases.retain(|other| other.token != lease.token);
        Ok(())
    }

    fn add_ticket(&mut self, key: &Key, waiter: &Waiter) -> Result<Ticket, Infallible> {
        self.newest += 1;
        let ticket = Ticket(self.newest);
        let waiter = waiter.clone();
        self.record(key).queue.push(Waiter { ticket, ..waiter });
        Ok(ticket)
    }

    fn write_ticket(&mut self, key: &Key, waiter: &Waiter) -> Result<(), Infallible> {
        self.erase_ticket(key, waiter.ticket)?;
        self.record(key).queue.push(waiter.clone());
        Ok(())
    }

    fn erase_ticket(&mut self, key: &Key, ticket: Ticket) -> Result<(), Infallible> {
        let queue = &mut self.record(key).queue;
        queue.retain(|waiter| waiter.ticket != ticket);
        Ok(())
    }

    fn waits_of(&mut self, holder: &HolderId, token: Token) -> Result<Vec<Key>, Infallible> {
        let waits = |waiter: &Waiter| waiter.holder.id == *holder || waiter.within.contains(&token);
        let waited = self
            .records
            .iter()
            .filter(|(_, record)| record.queue.iter().any(waits));
        Ok(waited.map(|(key, _)| key.clone()).collect())
    }

    fn may_hold(&mut self, named: Option<&HolderId>, within: &[Token]) -> Result<bool, Infallible> {
        let has = |lease: &Lease| {
            named == Some(&lease.holder.id) || within.contains(&lease.token) || !self.knows_holders
        };
        let mut leases = self.records.values().flat_map(|record| &record.leases);
        Ok(leases.any(has))
    }

    fn wake(&mut self, holder: &Holder) {
        self.woken.insert(holder.id.clone());
    }
}

/// What an actor does. It asks for more only while it does not wait.
#[derive(Debug, Clone)]
enum Action {
    Ask {
        actor: usize,
        keys: BTreeSet<usize>,
        shared: bool,
        patient: bool,
        priority: u8,
    },
    Again(usize),
    GiveUp(usize),
    ReleaseAll(usize),
    Die(usize),
    Pass,
}

fn scripts() -> impl Strategy<Value = Vec<Action>> {
    let ask = (
        0..ACTORS,
        prop::collection::btree_set(0..KEYS, 1..4),
        prop::bool::weighted(0.2),
        prop::bool::weighted(0.85),
        prop_oneof![6 => Just(5_u8), 1 => Just(7_u8)],
    )
        .prop_map(|(actor, keys, shared, patient, priority)| Action::Ask {
            actor,
            keys,
            shared,
            patient,
            priority,
        });
    let action = prop_oneof![
        12 => ask,
        6 => (0..ACTORS).prop_map(Action::Again),
        1 => (0..ACTORS).prop_map(Action::GiveUp),
        3 => (0..ACTORS).prop_map(Action::ReleaseAll),
        1 => (0..ACTORS).prop_map(Action::Die),
        4 => Just(Action::Pass),
    ];
    vec(action, 1..60)
}

/// A claim that waits, as the oracle knows it.
#[derive(Debug, Clone)]
struct Wait {
    keys: BTreeSet<usize>,
    mode: Mode,
    priority: u8,
    arrived: u64,
    /// Decides between waiters that arrived at one moment.
    number: u64,
}

impl Wait {
    /// In milliseconds: a level of priority is worth a minute.
    fn rank(&self) -> (i64, u64) {
        let head_start = i64::from(self.priority) * 60_000;
        (
            i64::try_from(self.arrived).unwrap() - head_start,
            self.number,
        )
    }
}

/// The cases that must occur.
const REQUIRED: [&str; 6] = [
    "a dead waiter is passed",
    "a free key waits for a waiter of several",
    "a holder passes a waiter that waits for it",
    "a wait that would never end is refused",
    "several keys are granted together",
    "several keys are waited for and granted",
];

struct Simulation {
    store: TestStore,
    time: u64,
    number: u64,
    /// The leases of each actor.
    held: Vec<Vec<(usize, Mode, Grant)>>,
    waits: Vec<Option<Wait>>,
    cases: BTreeMap<&'static str, u32>,
}

type Checked = Result<(), String>;

impl Simulation {
    fn new(rules: decide::Rules) -> Self {
        let now = Moment {
            ticks: Duration::from_secs(1000),
            wall: jiff::Timestamp::UNIX_EPOCH,
            epoch: epoch(),
        };
        Self {
            store: TestStore {
                rules,
                records: BTreeMap::new(),
                newest: 0,
                now,
                dead: BTreeSet::new(),
                read: 0,
                looked: 0,
                woken: BTreeSet::new(),
                knows_holders: true,
            },
            time: 1_000_000,
            number: 0,
            held: vec![Vec::new(); ACTORS],
            waits: vec![None; ACTORS],
            cases: REQUIRED.iter().map(|case| (*case, 0)).collect(),
        }
    }

    fn is_dead(&self, actor: usize) -> bool {
        self.store.dead.contains(&name(actor))
    }

    fn count(&mut self, case: &'static str, occurred: bool) {
        *self.cases.entry(case).or_default() += u32::from(occurred);
    }

    fn pass(&mut self, millis: u64) {
        self.time += millis;
        self.store.now.ticks = Duration::from_millis(self.time);
    }

    fn claims(&self, actor: usize, wait: &Wait, patient: bool) -> Vec<Claim> {
        let binding = Binding::LivenessLock {
            lock: LivenessId(actor.to_string()),
            process: Process {
                pid: 1,
                started: 1,
                boot: epoch(),
                namespace: "pid".into(),
                host: "here".into(),
            },
        };
        let within = self.held[actor].iter().map(|(.., grant)| grant.token);
        let within: Vec<Token> = within.collect();
        wait.keys
            .iter()
            .map(|at| Claim {
                key: key(*at),
                mode: wait.mode.clone(),
                holder: Holder {
                    id: name(actor),
                    host: "here".into(),
                    command: None,
                    binding: binding.clone(),
                },
                asker: binding.clone(),
                named: actor.is_multiple_of(2),
                ttl: Duration::from_secs(1_000_000),
                priority: Priority::new(wait.priority).unwrap(),
                patience: if patient {
                    Patience::Queue
                } else {
                    Patience::Try
                },
                within: within.clone(),
            })
            .collect()
    }

    fn play(&mut self, script: &[Action]) -> Checked {
        for action in script {
            self.act(action)
                .map_err(|how| format!("{action:?}: {how}"))?;
            self.audit().map_err(|how| format!("{action:?}: {how}"))?;
        }
        self.serve_everyone()
    }

    fn act(&mut self, action: &Action) -> Checked {
        match action {
            Action::Ask {
                actor,
                keys,
                shared,
                patient,
                priority,
            } => {
                if self.is_dead(*actor) || self.waits[*actor].is_some() {
                    return Ok(());
                }
                self.number += 1;
                let wait = Wait {
                    keys: keys.clone(),
                    mode: if *shared {
                        Mode::Shared
                    } else {
                        Mode::Exclusive
                    },
                    priority: *priority,
                    arrived: self.time,
                    number: self.number,
                };
                self.ask(*actor, &wait, *patient)
            }
            Action::Again(actor) => self.again(*actor),
            Action::GiveUp(actor) => {
                if let Some(wait) = self.waits[*actor].take().filter(|_| !self.is_dead(*actor)) {
                    let claims = self.claims(*actor, &wait, true);
                    let Ok(()) = engine::withdraw(&mut self.store, &claims, Withdrawal::Leave);
                }
                Ok(())
            }
            Action::ReleaseAll(actor) => self.release(*actor),
            Action::Die(actor) => {
                self.store.dead.insert(name(*actor));
                self.held[*actor].clear();
                self.waits[*actor] = None;
                Ok(())
            }
            Action::Pass => {
                self.pass(10);
                Ok(())
            }
        }
    }

    fn again(&mut self, actor: usize) -> Checked {
        match self.waits[actor].clone() {
            Some(wait) if !self.is_dead(actor) => self.ask(actor, &wait, true),
            _ => Ok(()),
        }
    }

    fn release(&mut self, actor: usize) -> Checked {
        if self.is_dead(actor) || self.waits[actor].is_some() {
            return Ok(());
        }
        let held = std::mem::take(&mut self.held[actor]);
        let grants: Vec<Grant> = held.into_iter().map(|(.., grant)| grant).collect();
        let Ok(released) = engine::release(&mut self.store, &grants);
        let freed = |released: &Released| matches!(released, Released::Freed(_));
        if released.iter().all(freed) {
            Ok(())
        } else {
            Err(format!("actor {actor} lost one of {grants:?}"))
        }
    }

    /// The leases of others, on these keys, that conflict with a mode.
    fn conflicts(&self, actor: usize, wait: &Wait) -> Vec<usize> {
        let conflict = |held: &(usize, Mode, Grant)| {
            let together = held.1 == Mode::Shared && wait.mode == Mode::Shared;
            wait.keys.contains(&held.0) && !together
        };
        (0..ACTORS)
            .filter(|other| *other != actor && self.held[*other].iter().any(conflict))
            .collect()
    }

    /// The present waiters ahead that share a key and conflict.
    fn ahead(&self, actor: usize, wait: &Wait) -> Vec<usize> {
        let is_ahead = |other: &Wait| {
            let together = other.mode == Mode::Shared && wait.mode == Mode::Shared;
            other.rank() < wait.rank() && !together && !other.keys.is_disjoint(&wait.keys)
        };
        (0..ACTORS)
            .filter(|other| *other != actor && self.waits[*other].as_ref().is_some_and(is_ahead))
            .collect()
    }

    /// Whether a waiter waits for an actor, through holders and waiters.
    fn waits_for(&self, waiter: usize, actor: usize) -> bool {
        let mut seen = BTreeSet::new();
        let mut open = vec![waiter];
        while let Some(at) = open.pop() {
            let Some(wait) = self.waits[at].as_ref().filter(|_| seen.insert(at)) else {
                continue;
            };
            let next = self.conflicts(at, wait);
            if next.contains(&actor) {
                return true;
            }
            open.extend(next);
            open.extend(self.ahead(at, wait));
        }
        false
    }

    /// Whether an actor that waits is served although nobody gives up: every actor releases all it has once it does not
    /// wait, and is served once nothing is in its way.
    fn is_served_in_the_end(&self, actor: usize) -> bool {
        let mut later = Self::new(decide::Rules::STANDARD);
        later.held.clone_from(&self.held);
        later.waits.clone_from(&self.waits);
        loop {
            for at in 0..ACTORS {
                if later.waits[at].is_none() {
                    later.held[at].clear();
                }
            }
            let can_proceed = |at: &usize| {
                later.waits[*at].as_ref().is_some_and(|wait| {
                    let mut ahead = later.ahead(*at, wait).into_iter();
                    later.conflicts(*at, wait).is_empty()
                        && ahead.all(|other| later.waits_for(other, *at))
                })
            };
            let Some(served) = (0..ACTORS).find(can_proceed) else {
                return later.waits[actor].is_none();
            };
            later.waits[served] = None;
        }
    }

    fn ask(&mut self, actor: usize, wait: &Wait, patient: bool) -> Checked {
        let claims = self.claims(actor, wait, patient);
        let conflicts = self.conflicts(actor, wait);
        let ahead = self.ahead(actor, wait);
        let unblocked: Vec<usize> = ahead
            .iter()
            .copied()
            .filter(|other| !self.waits_for(*other, actor))
            .collect();
        let waited = self.waits[actor].is_some();
        let had = self.held[actor].len();
        let Ok(answer) = engine::acquire(&mut self.store, &claims);
        let Ok(answer) = answer else {
            return Err("there are no slots to contradict".into());
        };
        self.waits[actor] = None;
        match answer {
            Acquired::Granted(granted) => {
                if granted.len() != claims.len() {
                    return Err(format!("granted {} of {}", granted.len(), claims.len()));
                }
                if !conflicts.is_empty() {
                    return Err(format!("granted beside {conflicts:?}"));
                }
                if !unblocked.is_empty() {
                    return Err(format!("{actor} passed {unblocked:?}"));
                }
                let several = claims.len() > 1;
                self.count("several keys are granted together", several);
                self.count("several keys are waited for and granted", several && waited);
                self.count(
                    "a holder passes a waiter that waits for it",
                    !ahead.is_empty(),
                );
                let passed_dead = self.store.records.iter().any(|(key, record)| {
                    let ours = claims.iter().any(|claim| claim.key == *key);
                    ours && record
                        .queue
                        .iter()
                        .any(|waiter| self.store.dead.contains(&waiter.holder.id))
                });
                self.count("a dead waiter is passed", passed_dead);
                for granted in granted {
                    let at = (0..KEYS).find(|at| key(*at) == granted.lease.key).unwrap();
                    let grant = granted.lease.grant();
                    let mode = granted.lease.mode;
                    self.held[actor].retain(|held| held.2 != grant);
                    self.held[actor].push((at, mode, grant));
                }
                Ok(())
            }
            Acquired::Busy(_) => {
                let itself = self.waits_for_itself(actor, wait);
                if conflicts.is_empty() && unblocked.is_empty() && !itself {
                    return Err(format!("nothing conflicts with {actor}'s {wait:?}"));
                }
                if self.held[actor].len() != had {
                    return Err("a claim that waits was granted something".into());
                }
                let free = conflicts.is_empty() && !unblocked.is_empty();
                self.count("a free key waits for a waiter of several", free);
                if patient {
                    self.waits[actor] = Some(wait.clone());
                    if !self.is_served_in_the_end(actor) {
                        return Err(format!("{actor} waits for ever: {wait:?}"));
                    }
                }
                Ok(())
            }
            Acquired::Deadlock(cycle) => {
                self.count("a wait that would never end is refused", true);
                self.waits[actor] = Some(wait.clone());
                let itself = self.waits_for_itself(actor, wait);
                let cyclic = conflicts
                    .iter()
                    .any(|holder| *holder == actor || self.waits_for(*holder, actor));
                self.waits[actor] = None;
                if itself || cyclic {
                    Ok(())
                } else {
                    Err(format!("{cycle} is no cycle"))
                }
            }
            Acquired::Cancelled => Err("a store cancels nothing".into()),
        }
    }

    /// Whether an actor asks for a key that it holds itself.
    fn waits_for_itself(&self, actor: usize, wait: &Wait) -> bool {
        let mut held = self.held[actor].iter();
        held.any(|(at, ..)| wait.keys.contains(at))
    }

    /// No two leases conflict, and each waiter has one ticket for each of its keys, or none.
    fn audit(&self) -> Checked {
        for (key, record) in &self.store.records {
            let live = |lease: &&Lease| !self.store.dead.contains(&lease.holder.id);
            let live: Vec<&Lease> = record.leases.iter().filter(live).collect();
            if live.len() > 1 && live.iter().any(|lease| lease.mode != Mode::Shared) {
                return Err(format!("{key} has {} holders", live.len()));
            }
        }
        for (actor, wait) in self.waits.iter().enumerate() {
            let tickets: BTreeSet<usize> = (0..KEYS)
                .filter(|at| {
                    self.store.records.get(&key(*at)).is_some_and(|record| {
                        let mut queue = record.queue.iter();
                        queue.any(|waiter| waiter.holder.id == name(actor))
                    })
                })
                .collect();
            let wanted = wait.as_ref().map(|wait| wait.keys.clone());
            if !self.is_dead(actor) && tickets != wanted.clone().unwrap_or_default() {
                return Err(format!("{actor} waits for {wanted:?} with {tickets:?}"));
            }
        }
        Ok(())
    }

    /// Every actor goes on as soon as it can: one that waits asks again, and one that does not wait releases.
    fn serve_everyone(&mut self) -> Checked {
        for _round in 0..=ACTORS * 2 {
            for actor in 0..ACTORS {
                self.release(actor)?;
                self.again(actor)?;
                self.audit()?;
                self.pass(10);
            }
        }
        let left: Vec<_> = self.waits.iter().flatten().collect();
        if left.is_empty() {
            Ok(())
        } else {
            Err(format!("never served: {left:?}"))
        }
    }
}

#[test]
fn no_simulation_of_several_keys_violates_a_guarantee() {
    let cases = std::cell::RefCell::new(BTreeMap::<&str, u32>::new());
    TestRunner::new_with_rng(config(16), fixed_rng())
        .run(&scripts(), |script| {
            let mut simulation = Simulation::new(decide::Rules::STANDARD);
            simulation.play(&script).map_err(TestCaseError::fail)?;
            for (case, times) in simulation.cases {
                *cases.borrow_mut().entry(case).or_default() += times;
            }
            Ok(())
        })
        .unwrap_or_else(|error| panic!("{error}"));
    for (case, times) in cases.into_inner() {
        assert!(times > 0, "never: {case}");
    }
}

/// The actor asks for these keys, and waits if it has to.
fn ask(actor: usize, keys: &[usize], mode: &Mode) -> Action {
    Action::Ask {
        actor,
        keys: keys.iter().copied().collect(),
        shared: *mode == Mode::Shared,
        patient: true,
        priority: 5,
    }
}

/// The same, with a priority that puts it before the others.
fn ask_urgently(actor: usize, keys: &[usize], mode: &Mode) -> Action {
    match ask(actor, keys, mode) {
        Action::Ask {
            actor,
            keys,
            shared,
            patient,
            ..
        } => Action::Ask {
            actor,
            keys,
            shared,
            patient,
            priority: 7,
        },
        other => other,
    }
}

#[track_caller]
fn assert_sound(script: &[Action]) {
    if let Err(how) = Simulation::new(decide::Rules::STANDARD).play(script) {
        panic!("{how}");
    }
}

/// The shared waiter counted as waiting for the shared holder, with which it does not conflict.
#[test]
fn a_shared_waiter_behind_a_dead_one_waits_for_nothing() {
    assert_sound(&[
        ask(2, &[2], &Mode::Shared),
        ask(1, &[0], &Mode::Exclusive),
        ask(0, &[2], &Mode::Exclusive),
        ask(1, &[2], &Mode::Shared),
        Action::Die(0),
        ask(2, &[0], &Mode::Exclusive),
    ]);
}

/// Only the first of the waiters ahead was probed. It was passed, and the dead one behind it held up the claimant.
#[test]
fn a_dead_waiter_behind_one_that_is_passed_holds_nobody_up() {
    assert_sound(&[
        ask(1, &[3], &Mode::Exclusive),
        ask(0, &[0, 3], &Mode::Shared),
        ask(2, &[0], &Mode::Exclusive),
        Action::Die(0),
        ask(1, &[0], &Mode::Exclusive),
        ask_urgently(3, &[0, 3], &Mode::Shared),
    ]);
}

/// A dead waiter stands between the one that is passed and another, which waits for neither of them.
#[test]
fn a_waiter_behind_a_dead_one_is_not_passed_with_the_waiter_before() {
    assert_sound(&[
        ask(3, &[0], &Mode::Exclusive),
        ask(0, &[0, 3], &Mode::Exclusive),
        ask(1, &[0, 3], &Mode::Shared),
        ask(4, &[3], &Mode::Exclusive),
        Action::Die(4),
        Action::ReleaseAll(3),
        ask(2, &[3], &Mode::Shared),
        Action::GiveUp(0),
        ask_urgently(0, &[0], &Mode::Exclusive),
        ask(0, &[3], &Mode::Exclusive),
    ]);
}

#[track_caller]
fn assert_caught(rules: several::Rules, as_one_of: &[&str]) {
    let rules = decide::Rules {
        several: rules,
        ..decide::Rules::STANDARD
    };
    let caught = Cell::new(None);
    let mut settings = config(8);
    settings.max_shrink_iters = 0;
    let _ = TestRunner::new_with_rng(settings, fixed_rng()).run(&scripts(), |script| {
        Simulation::new(rules).play(&script).map_err(|how| {
            caught.set(Some(how.clone()));
            TestCaseError::fail(how)
        })
    });
    let how = caught
        .take()
        .unwrap_or_else(|| panic!("no simulation caught it"));
    assert!(as_one_of.iter().any(|words| how.contains(words)), "{how}");
}

#[test]
fn granting_only_some_of_several_keys_is_caught() {
    let rules = several::Rules {
        is_granted: |decisions| decisions.iter().any(|decision| several::grants(decision)),
        ..several::Rules::STANDARD
    };
    assert_caught(rules, &["granted 1 of", "granted 2 of", "beside", "passed"]);
}

/// The broken rule orders each queue by itself, so that two waiters can be before each other.
#[test]
fn tickets_of_one_claim_with_different_arrival_times_are_caught() {
    let rules = several::Rules {
        arrivals: |each| {
            let later = |(at, arrived): (usize, &Duration)| {
                let turned = u64::try_from(each.len() - at).unwrap();
                *arrived + Duration::from_millis(50 * turned)
            };
            each.iter().enumerate().map(later).collect()
        },
        ..several::Rules::STANDARD
    };
    assert_caught(rules, &["passed", "nothing conflicts", "never served"]);
}

#[test]
fn a_holder_that_waits_behind_a_waiter_for_its_own_key_is_caught() {
    let rules = several::Rules {
        passes_blocked: false,
        ..several::Rules::STANDARD
    };
    assert_caught(rules, &["nothing conflicts", "never served"]);
}

/// The first actor holds two keys, and so many named ones wait for them in these modes, in turns.
fn crowd(many: usize, modes: &[Mode]) -> Simulation {
    let mut crowd = Simulation::new(decide::Rules::STANDARD);
    crowd.held = vec![Vec::new(); 2 * many + 6];
    let granted = claim(&mut crowd, 0, &[0, 1], &Mode::Exclusive);
    assert!(matches!(granted, Acquired::Granted(_)));
    for (number, mode) in (1..=many).zip(modes.iter().cycle()) {
        crowd.pass(1);
        let waits = claim(&mut crowd, 2 * number, &[0, 1], mode);
        assert!(matches!(waits, Acquired::Busy(_)));
    }
    crowd
}

fn wait_for(crowd: &Simulation, keys: &[usize], mode: &Mode) -> Wait {
    Wait {
        keys: keys.iter().copied().collect(),
        mode: mode.clone(),
        priority: 5,
        arrived: crowd.time,
        number: 0,
    }
}

fn claim(
    crowd: &mut Simulation,
    actor: usize,
    keys: &[usize],
    mode: &Mode,
) -> Acquired<Vec<Granted>> {
    let claims = crowd.claims(actor, &wait_for(crowd, keys, mode), true);
    let Ok(answer) = engine::acquire(&mut crowd.store, &claims);
    answer.unwrap()
}

/// How many tickets are read when one more actor asks for the keys of a crowd, and when it has its turn.
fn tickets_read(many: usize, modes: &[Mode]) -> (usize, usize) {
    let mut crowd = crowd(many, modes);
    let (last, first) = (2 * many + 2, 2);
    crowd.pass(1);
    crowd.store.read = 0;
    let waits = claim(&mut crowd, last, &[0, 1], &modes[0]);
    assert!(matches!(waits, Acquired::Busy(_)));
    let by_claim = crowd.store.read;
    crowd.store.read = 0;
    for index in [0, 1] {
        let lease = crowd.store.record(&key(index)).leases[0].clone();
        let grant = Grant {
            key: lease.key,
            holder: lease.holder.id,
            token: lease.token,
        };
        let Ok(freed) = engine::release(&mut crowd.store, &[grant]);
        assert!(matches!(freed[..], [Released::Freed(_)]));
    }
    let granted = claim(&mut crowd, first, &[0, 1], &modes[0]);
    assert!(matches!(granted, Acquired::Granted(_)));
    (by_claim, crowd.store.read)
}

#[test]
fn a_claim_and_a_turn_read_no_more_of_a_long_queue_than_of_a_short_one() {
    let slots = Mode::Slots(3.try_into().unwrap());
    let crowds: [&[Mode]; 4] = [
        &[Mode::Exclusive],
        &[Mode::Shared],
        &[slots],
        &[Mode::Shared, Mode::Exclusive],
    ];
    for modes in crowds {
        assert_eq!(
            tickets_read(30, modes),
            tickets_read(300, modes),
            "{modes:?}"
        );
    }
}

#[test]
fn a_waiter_that_gave_up_its_turn_is_not_counted_wherever_it_is_in_a_long_queue() {
    for parked in 0..20 {
        let mut crowd = crowd(20, &[Mode::Exclusive]);
        crowd.store.record(&key(0)).queue[parked].presence = Presence::Away;
        let Acquired::Busy(busy) = claim(&mut crowd, 42, &[0], &Mode::Exclusive) else {
            panic!("the key is held");
        };
        let place = busy.position.map(|position| position.ahead);
        assert_eq!((busy.waiting, place), (19, Some(19)), "{parked}");
    }
}

#[test]
fn what_a_claimant_with_a_lease_reads_grows_with_the_queue_and_not_with_its_square() {
    for knows_holders in [true, false] {
        let read = |many: usize| {
            let mut crowd = crowd(many, &[Mode::Exclusive]);
            crowd.store.knows_holders = knows_holders;
            let last = 2 * many + 2;
            let third = claim(&mut crowd, last, &[2], &Mode::Exclusive);
            assert!(matches!(third, Acquired::Granted(_)));
            crowd.store.read = 0;
            let waits = claim(&mut crowd, last, &[0], &Mode::Exclusive);
            assert!(matches!(waits, Acquired::Busy(_)));
            crowd.store.read
        };
        let (few, many) = (read(30), read(300));
        assert!(many <= 10 * few, "{few} and {many}");
    }
}

/// Two actors have the slots of the first key, and wait for the third one. A waiter for a slot and the second key waits for
/// any of them, so it waits for the holder of the third key.
#[test]
fn a_holder_passes_a_waiter_for_a_slot_if_every_holder_of_one_waits_for_it() {
    let slots = Mode::Slots(2.try_into().unwrap());
    for both_wait in [true, false] {
        let mut crowd = Simulation::new(decide::Rules::STANDARD);
        crowd.held = vec![Vec::new(); 8];
        for (actor, at) in [(0, 0), (2, 0), (4, 2)] {
            let granted = claim(&mut crowd, actor, &[at], &slots);
            assert!(matches!(granted, Acquired::Granted(_)), "{actor}");
        }
        let waits: [(usize, &[usize], &Mode); 3] = [
            (6, &[0, 1], &slots),
            (0, &[2], &Mode::Exclusive),
            (2, &[2], &Mode::Exclusive),
        ];
        for (actor, keys, mode) in waits.into_iter().take(if both_wait { 3 } else { 2 }) {
            crowd.pass(1);
            let busy = claim(&mut crowd, actor, keys, mode);
            assert!(matches!(busy, Acquired::Busy(_)), "{actor}");
        }
        crowd.pass(1);
        let answer = claim(&mut crowd, 4, &[1], &Mode::Exclusive);
        assert_eq!(matches!(answer, Acquired::Granted(_)), both_wait);
    }
}

/// So many actors that hold one key in the modes that `mode` tells.
fn holders(many: usize, mode: impl Fn(usize) -> Mode) -> Simulation {
    let mut crowd = Simulation::new(decide::Rules::STANDARD);
    crowd.held = vec![Vec::new(); many + 6];
    for number in 0..many {
        crowd.pass(1);
        let granted = claim(&mut crowd, number, &[0], &mode(number));
        assert!(matches!(granted, Acquired::Granted(_)), "{number}");
    }
    crowd
}

fn release(crowd: &mut Simulation, number: usize) {
    let lease = crowd.store.record(&key(0)).leases[number].clone();
    let grant = Grant {
        key: lease.key,
        holder: lease.holder.id,
        token: lease.token,
    };
    let Ok(freed) = engine::release(&mut crowd.store, &[grant]);
    assert!(matches!(freed[..], [Released::Freed(_)]));
}

/// How many leases are read when one of so many holders releases the key, when one more asks for it, and when one releases
/// it while another actor waits to have the key alone, and some more wait behind it.
fn leases_read(many: usize, mode: impl Fn(usize) -> Mode) -> [usize; 3] {
    let mut crowd = holders(many, &mode);
    let looked = |crowd: &mut Simulation| std::mem::take(&mut crowd.store.looked);
    looked(&mut crowd);
    release(&mut crowd, many / 2);
    let by_release = looked(&mut crowd);
    let granted = claim(&mut crowd, many, &[0], &mode(many));
    assert!(matches!(granted, Acquired::Granted(_)));
    let by_claim = looked(&mut crowd);
    let waits = claim(&mut crowd, many + 1, &[0], &Mode::Exclusive);
    assert!(matches!(waits, Acquired::Busy(_)));
    for number in many + 2..many + 5 {
        let waits = claim(&mut crowd, number, &[0], &mode(number));
        assert!(matches!(waits, Acquired::Busy(_)));
    }
    looked(&mut crowd);
    release(&mut crowd, many / 3);
    assert!(crowd.store.woken.is_empty(), "{:?}", crowd.store.woken);
    [by_release, by_claim, looked(&mut crowd)]
}

#[test]
fn a_claim_and_a_release_read_no_more_of_many_leases_than_of_few() {
    let slots = Mode::Slots(400.try_into().unwrap());
    for mode in [Mode::Shared, slots] {
        let (few, many) = (
            leases_read(30, |_| mode.clone()),
            leases_read(300, |_| mode.clone()),
        );
        assert_eq!(few, many, "{mode}");
    }
    let file = |number| format!("paths:src/m{number}/a.rs").parse().unwrap();
    let [released, claimed, _] = leases_read(300, file);
    assert_eq!([released, claimed], [1, 0]);
}

fn path_mode() -> impl Strategy<Value = Mode> {
    let paths = prop::sample::select(vec![
        "src",
        "src/a",
        "src/b",
        "src/a/x",
        "src/*/x",
        "docs/*.md",
        "docs/a.md",
        "**",
        "src/a b/**",
    ]);
    let shared = prop::bool::weighted(0.2);
    (paths, shared).prop_map(|(paths, shared)| {
        let kind = if shared { "shared-paths" } else { "paths" };
        format!("{kind}:{paths}").parse().unwrap()
    })
}

#[test]
fn expired_leases_beside_a_granted_key_end_also_if_several_keys_are_granted() {
    for keys in [&[0][..], &[0, 1]] {
        let mut crowd = holders(12, |_| Mode::Shared);
        let end = crowd.store.now.deadline(Duration::ZERO);
        for lease in &mut crowd.store.record(&key(0)).leases {
            lease.expires = Some(end.clone());
        }
        crowd.pass(1);
        let granted = claim(&mut crowd, 12, keys, &Mode::Shared);
        assert!(matches!(granted, Acquired::Granted(_)), "{keys:?}");
        // Eight of the twelve ended.
        assert_eq!(crowd.store.record(&key(0)).leases.len(), 5, "{keys:?}");
    }
}

/// The waiters that would be granted what they wait for now, each by itself.
fn served(crowd: &Simulation, waits: &[(usize, Mode)]) -> BTreeSet<HolderId> {
    let is_served = |(actor, mode): &&(usize, Mode)| {
        let mut again = Simulation::new(decide::Rules::STANDARD);
        again.held.clone_from(&crowd.held);
        again.time = crowd.time;
        again.store = crowd.store.clone();
        matches!(claim(&mut again, *actor, &[0], mode), Acquired::Granted(_))
    };
    let alive = |(actor, _): &&(usize, Mode)| !crowd.is_dead(*actor);
    let served = waits.iter().filter(alive).filter(is_served);
    served.map(|(actor, _)| name(*actor)).collect()
}

#[test]
fn the_end_of_a_reservation_or_a_wait_wakes_exactly_the_waiters_that_can_proceed() {
    let actors = vec((0..12_usize, path_mode()), 2..14);
    let stories = (actors, 0..20_usize, 0..12_usize, prop::bool::ANY);
    let woke = Cell::new(0);
    let mut runner = TestRunner::new_with_rng(config(12), fixed_rng());
    let ran = runner.run(&stories, |(claims, ends, dead, leaves)| {
        let mut crowd = Simulation::new(decide::Rules::STANDARD);
        crowd.held = vec![Vec::new(); 12];
        let mut waits: Vec<(usize, Mode)> = Vec::new();
        for (actor, mode) in claims {
            if waits.iter().any(|(waiter, _)| *waiter == actor) {
                continue;
            }
            crowd.pass(1);
            if let Acquired::Busy(_) = claim(&mut crowd, actor, &[0], &mode) {
                waits.push((actor, mode));
            }
        }
        crowd.store.dead.insert(name(dead));
        let before = served(&crowd, &waits);
        crowd.store.woken.clear();
        if leaves && !waits.is_empty() {
            let (gone, mode) = waits.remove(ends % waits.len());
            let claims = crowd.claims(gone, &wait_for(&crowd, &[0], &mode), true);
            let Ok(()) = engine::withdraw(&mut crowd.store, &claims, Withdrawal::Leave);
        } else {
            let leases = crowd.store.record(&key(0)).leases.len();
            release(&mut crowd, ends % leases);
        }
        let now = served(&crowd, &waits);
        let woken = &crowd.store.woken;
        let missed: Vec<_> = now
            .difference(&before)
            .filter(|it| !woken.contains(it))
            .collect();
        prop_assert!(missed.is_empty(), "{missed:?} were not woken: {waits:?}");
        // A waiter that watched one that left has another to watch.
        let idle: Vec<_> = woken.difference(&now).filter(|_| !leaves).collect();
        prop_assert!(idle.is_empty(), "{idle:?} were woken: {waits:?}");
        woke.set(woke.get() + woken.len());
        Ok(())
    });
    assert!(ran.is_ok(), "{}", ran.unwrap_err());
    assert!(woke.get() > 1000, "{}", woke.get());
}
