//! Runs a script against the store, and has the oracle check every answer.

use std::fmt;
use std::time::Duration;

use tenure_core::{
    Claim, Grant, Holder, HolderId, Key, Patience, Priority, Ticket, Token, Withdrawal,
};

use crate::guarantee::{Guarantee, Violation};
use crate::model::ModelClaim;
use crate::oracle::Oracle;
use crate::script::{Action, Forgery, RequestedBinding};
use crate::store::{Answer, Rules, TestStore};
use crate::world::{ModelBinding, ProcessState, SLOTS, World};

pub(crate) const KEYS: [&str; 3] = ["build", "task:7", "paths"];

/// Fewer names than processes, so that two processes share a name.
const NAMES: [&str; 3] = ["ann", "bob", "cid"];

/// The violation that ended a simulation, and where.
#[derive(Debug)]
pub(crate) struct Failure {
    pub(crate) violation: Violation,
    at: String,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n  at {}", self.violation, self.at)
    }
}

pub(crate) struct Simulation {
    world: World,
    store: TestStore,
    pub(crate) oracle: Oracle,
    /// Every grant that was made, for later actions to use.
    grants: Vec<Grant>,
    /// The latest claims of the waiters.
    waits: Vec<ModelClaim>,
}

impl Simulation {
    pub(crate) fn new(rules: Rules) -> Self {
        Self {
            world: World::new(),
            store: TestStore::new(rules),
            oracle: Oracle::default(),
            grants: Vec::new(),
            waits: Vec::new(),
        }
    }

    /// Runs a script, then serves every waiter that is left.
    pub(crate) fn play(&mut self, script: &[Action]) -> Result<(), Failure> {
        for (number, action) in script.iter().enumerate() {
            self.act(action)
                .and_then(|()| self.oracle.audit(&self.world, &self.store))
                .map_err(|violation| Failure {
                    violation,
                    at: format!("action {number}, {action:?}"),
                })?;
        }
        self.serve_every_waiter().map_err(|violation| Failure {
            violation,
            at: "the end, when every waiter must be served".into(),
        })
    }

    fn act(&mut self, action: &Action) -> Result<(), Violation> {
        match *action {
            Action::Ask { .. } => {
                let claim = self.claim(action);
                self.ask(claim).map(|_| ())
            }
            Action::AskAgain { slot, key } => {
                let mut waits = self.waiting(slot, key).into_iter();
                waits.try_for_each(|claim| self.ask(claim).map(|_| ()))
            }
            Action::Leave { slot, key } => {
                if let Some((ticket, name)) = self.ticket_of(slot, key) {
                    self.store
                        .withdraw(&self.world, key, Ticket(ticket), Withdrawal::Leave);
                    self.oracle.left(key, ticket);
                    let by = self.world.latest(slot);
                    self.waits
                        .retain(|it| (Some(it.by), it.key, &it.name) != (by, key, &name));
                }
                Ok(())
            }
            Action::Park { slot, key } => {
                if let Some((ticket, _)) = self.ticket_of(slot, key) {
                    self.store
                        .withdraw(&self.world, key, Ticket(ticket), Withdrawal::Park);
                    self.oracle.parked(&self.world, key, ticket);
                }
                Ok(())
            }
            Action::Renew {
                grant,
                forgery,
                ttl,
            } => {
                let Some((key, grant)) = self.used_grant(grant, forgery) else {
                    return Ok(());
                };
                let extended = self.store.renew(&self.world, &grant, millis(ttl));
                self.oracle.renewed(&self.world, key, &grant, ttl, extended)
            }
            Action::Release { grant, forgery } => {
                let Some((key, grant)) = self.used_grant(grant, forgery) else {
                    return Ok(());
                };
                let freed = self.store.release(&self.world, &grant);
                self.oracle.released(key, &grant, freed)
            }
            Action::Fence { grant, forgery } => {
                let Some((key, grant)) = self.used_grant(grant, forgery) else {
                    return Ok(());
                };
                let may = self.store.fence(&self.world, key, grant.token);
                self.oracle.fenced(&self.world, key, grant.token.0, may)
            }
            Action::Force { key, of } => self.force(key, of.map(|name| NAMES[name])),
            Action::Reap => (0..KEYS.len()).try_for_each(|key| {
                let proofs = self.store.reap(&self.world, key);
                self.oracle.reaped(&self.world, key, &proofs)
            }),
            Action::Garble(key) => {
                self.store.garble(key);
                self.oracle.garbled(key);
                Ok(())
            }
            _ => {
                self.change_world(action);
                Ok(())
            }
        }
    }

    /// Applies an action that changes the clocks or the processes.
    fn change_world(&mut self, action: &Action) {
        let world = &mut self.world;
        match *action {
            Action::Pass(time) => world.pass(time),
            Action::JumpWall(by) => world.jump_wall(by),
            Action::Die(slot) => world.die(slot),
            Action::Hide(slot) => {
                world.change_state(slot, ProcessState::Running, ProcessState::Hidden);
            }
            Action::Show(slot) => {
                world.change_state(slot, ProcessState::Hidden, ProcessState::Running);
            }
            Action::Orphan(slot) => {
                world.change_state(slot, ProcessState::Running, ProcessState::Orphaned);
            }
            Action::Reboot => world.reboot(),
            _ => {}
        }
    }

    fn force(&mut self, key: usize, of: Option<&str>) -> Result<(), Violation> {
        let freed = self.store.force(&self.world, key, of);
        self.oracle.forced(key, of, &freed)
    }

    /// The claim of an action, in full.
    fn claim(&mut self, action: &Action) -> ModelClaim {
        let Action::Ask {
            slot,
            key,
            binding,
            name,
            named,
            patient,
            priority,
            ttl,
            ref mode,
            within,
        } = *action
        else {
            unreachable!("only an Ask is a claim");
        };
        let by = self.world.acting(slot);
        let binding = match binding {
            RequestedBinding::Detached => ModelBinding::Detached,
            RequestedBinding::LivenessLock => ModelBinding::LivenessLock(by),
            RequestedBinding::Process(of) => ModelBinding::Process(self.world.acting(of)),
        };
        let newest = self.grants.len().saturating_sub(1);
        let under = within.and_then(|back| self.grants.get(newest.saturating_sub(back)));
        ModelClaim {
            key,
            by,
            name: NAMES[name].to_owned(),
            named,
            binding,
            patient,
            priority,
            ttl,
            mode: mode.clone(),
            within: under.map(|grant| grant.token.0).into_iter().collect(),
        }
    }

    /// Makes a claim and checks the answer. Returns the grant, if there is one.
    fn ask(&mut self, claim: ModelClaim) -> Result<Option<Grant>, Violation> {
        if claim.identifies_process() {
            self.world.take_liveness_lock(claim.by);
        }
        let us = self.world.liveness_lock(claim.by);
        let request = to_claim(&self.world, &claim);
        let answer = self.store.acquire(&self.world, &request, us.as_ref());
        self.oracle.acquired(&self.world, &claim, &answer)?;
        self.oracle.audit(&self.world, &self.store)?;
        self.waits
            .retain(|wait| (wait.by, wait.key, &wait.name) != (claim.by, claim.key, &claim.name));
        match answer {
            Answer::Granted { lease, .. } | Answer::Extended { lease, .. } => {
                let grant = lease.grant();
                if !self.grants.contains(&grant) {
                    self.grants.push(grant.clone());
                }
                Ok(Some(grant))
            }
            Answer::Queued { .. } => {
                self.waits.push(claim);
                Ok(None)
            }
            Answer::Refused { .. }
            | Answer::WouldWaitForItself
            | Answer::Deadlock
            | Answer::OtherMode => Ok(None),
        }
    }

    /// The latest claim under each name with which the process of a slot waits, if that process runs.
    fn waiting(&self, slot: usize, key: usize) -> Vec<ModelClaim> {
        let run = self.world.latest(slot);
        let waits = |wait: &&ModelClaim| Some(wait.by) == run && wait.key == key;
        let can = |wait: &&ModelClaim| self.world.can_act(wait.by);
        self.waits
            .iter()
            .filter(waits)
            .filter(can)
            .cloned()
            .collect()
    }

    fn ticket_of(&self, slot: usize, key: usize) -> Option<(u64, String)> {
        self.oracle.ticket_of(key, self.world.latest(slot)?)
    }

    fn used_grant(&self, back: usize, forgery: Forgery) -> Option<(usize, Grant)> {
        let newest = self.grants.len().checked_sub(1)?;
        let mut grant = self.grants[newest.saturating_sub(back)].clone();
        match forgery {
            Forgery::None => {}
            Forgery::OtherName => grant.holder = HolderId::parse("eve").unwrap(),
            Forgery::OlderToken => grant.token = Token(grant.token.0.saturating_sub(1)),
            Forgery::NewerToken => grant.token = grant.token.next().unwrap(),
            Forgery::OtherKey => {
                let other = KEYS.iter().find(|key| **key != grant.key.as_str());
                grant.key = Key::parse(*other.unwrap()).unwrap();
            }
        }
        let key = KEYS.iter().position(|key| *key == grant.key.as_str())?;
        Some((key, grant))
    }

    /// Ends every lease and serves every waiter. Silent waiters lapse during the first three rounds of five
    /// seconds; then each round serves at least one waiter.
    fn serve_every_waiter(&mut self) -> Result<(), Violation> {
        for key in 0..KEYS.len() {
            self.force(key, None)?;
            for _round in 0..3 + self.waits.len() {
                for slot in 0..SLOTS {
                    for claim in self.waiting(slot, key) {
                        if let Some(grant) = self.ask(claim)? {
                            let freed = self.store.release(&self.world, &grant);
                            self.oracle.released(key, &grant, freed)?;
                        }
                    }
                }
                self.world.pass(5_000);
            }
            let left: Vec<ModelClaim> = (0..SLOTS)
                .flat_map(|slot| self.waiting(slot, key))
                .collect();
            if !left.is_empty() {
                return Err(Violation {
                    guarantee: Guarantee::Progress,
                    how: format!("{left:?} were never served"),
                });
            }
        }
        Ok(())
    }
}

fn to_claim(world: &World, claim: &ModelClaim) -> Claim {
    let binding = world.binding(claim.binding);
    let asker = if claim.patient {
        world.binding(ModelBinding::LivenessLock(claim.by))
    } else {
        binding.clone()
    };
    Claim {
        key: Key::parse(KEYS[claim.key]).unwrap(),
        mode: claim.mode.clone(),
        holder: Holder {
            id: HolderId::parse(claim.name.as_str()).unwrap(),
            host: world.process(claim.by).host,
            command: None,
            binding,
        },
        asker,
        named: claim.named,
        ttl: millis(claim.ttl),
        priority: Priority::new(claim.priority).unwrap(),
        patience: if claim.patient {
            Patience::Queue
        } else {
            Patience::Try
        },
        within: claim.within.iter().copied().map(Token).collect(),
    }
}

fn millis(time: i64) -> Duration {
    Duration::from_millis(time.unsigned_abs())
}
