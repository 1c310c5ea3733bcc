//! One story: acts are played against a machine, and the oracle judges every answer.

use std::fmt;
use std::time::Duration;

use tenure_core::{Claim, Grant, Holder, HolderId, Key, Patience, Priority, Ticket, Token};

use crate::ghost::Asked;
use crate::judgement::{Broken, Guarantee};
use crate::machine::{Answer, Machine, Rules};
use crate::oracle::Oracle;
use crate::script::{Act, Forgery, Wish};
use crate::world::{Fate, SLOTS, Tie, World};

pub(crate) const KEYS: [&str; 2] = ["build", "task:7"];

/// Fewer than there are processes, so that there are second ones of one name.
const NAMES: [&str; 3] = ["ann", "bob", "cid"];

/// How a story failed.
#[derive(Debug)]
pub(crate) struct Failed {
    pub(crate) broken: Broken,
    at: String,
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}\n  at {}", self.broken, self.at)
    }
}

pub(crate) struct Story {
    world: World,
    machine: Machine,
    pub(crate) oracle: Oracle,
    /// Every grant that was ever given, to be shown again, rightly or not.
    grants: Vec<Grant>,
    /// What was last asked for by those who wait.
    waits: Vec<Asked>,
}

impl Story {
    pub(crate) fn new(rules: Rules) -> Self {
        Self {
            world: World::new(),
            machine: Machine::new(rules),
            oracle: Oracle::default(),
            grants: Vec::new(),
            waits: Vec::new(),
        }
    }

    /// Plays a script, then lets everybody who still waits have their turn.
    pub(crate) fn play(&mut self, script: &[Act]) -> Result<(), Failed> {
        for (number, act) in script.iter().enumerate() {
            self.act(act)
                .and_then(|()| self.oracle.audit(&self.world, &self.machine))
                .map_err(|broken| Failed {
                    broken,
                    at: format!("act {number}, {act:?}"),
                })?;
        }
        self.serve_everybody().map_err(|broken| Failed {
            broken,
            at: "the end, when all who wait are served".into(),
        })
    }

    fn act(&mut self, act: &Act) -> Result<(), Broken> {
        match *act {
            Act::Ask { .. } => {
                let asked = self.asked(act);
                self.ask(asked).map(|_| ())
            }
            Act::AskAgain { slot, key } => {
                let mut waits = self.waiting(slot, key).into_iter();
                waits.try_for_each(|asked| self.ask(asked).map(|_| ()))
            }
            Act::Leave { slot, key } => {
                if let Some((ticket, name)) = self.ticket_of(slot, key) {
                    self.machine.leave(&self.world, key, Ticket(ticket));
                    self.oracle.left(key, ticket);
                    let by = self.world.latest(slot);
                    self.waits
                        .retain(|it| (Some(it.by), it.key, &it.name) != (by, key, &name));
                }
                Ok(())
            }
            Act::Park { slot, key } => {
                if let Some((ticket, _)) = self.ticket_of(slot, key) {
                    self.machine.park(&self.world, key, Ticket(ticket));
                    self.oracle.parked(&self.world, key, ticket);
                }
                Ok(())
            }
            Act::Renew {
                grant,
                forgery,
                ttl,
            } => {
                let Some((key, grant)) = self.shown(grant, forgery) else {
                    return Ok(());
                };
                let extended = self.machine.renew(&self.world, &grant, millis(ttl));
                self.oracle.renewed(&self.world, key, &grant, ttl, extended)
            }
            Act::Release { grant, forgery } => {
                let Some((key, grant)) = self.shown(grant, forgery) else {
                    return Ok(());
                };
                let freed = self.machine.release(&self.world, &grant);
                self.oracle.released(key, &grant, freed)
            }
            Act::Fence { grant, forgery } => {
                let Some((key, grant)) = self.shown(grant, forgery) else {
                    return Ok(());
                };
                let may = self.machine.fence(&self.world, key, grant.token);
                self.oracle.fenced(&self.world, key, grant.token.0, may)
            }
            Act::Force(key) => self.force(key),
            Act::Reap => (0..KEYS.len()).try_for_each(|key| {
                let proof = self.machine.reap(&self.world, key);
                self.oracle.reaped(&self.world, key, proof.as_ref())
            }),
            Act::Garble(key) => {
                self.machine.garble(key);
                self.oracle.garbled(key);
                Ok(())
            }
            _ => {
                self.happen(act);
                Ok(())
            }
        }
    }

    /// What happens to the world, whatever the store holds.
    fn happen(&mut self, act: &Act) {
        let world = &mut self.world;
        match *act {
            Act::Pass(time) => world.pass(time),
            Act::JumpWall(by) => world.jump_wall(by),
            Act::Die(slot) => world.die(slot),
            Act::Hide(slot) => world.turn(slot, Fate::Running, Fate::Hidden),
            Act::Show(slot) => world.turn(slot, Fate::Hidden, Fate::Running),
            Act::Orphan(slot) => world.turn(slot, Fate::Running, Fate::Orphaned),
            Act::Reboot => world.reboot(),
            _ => {}
        }
    }

    fn force(&mut self, key: usize) -> Result<(), Broken> {
        let freed = self.machine.force(&self.world, key);
        self.oracle.forced(key, freed.as_ref())
    }

    /// What an act asks for, in full.
    fn asked(&mut self, act: &Act) -> Asked {
        let Act::Ask {
            slot,
            key,
            wish,
            name,
            named,
            patient,
            priority,
            ttl,
            within,
        } = *act
        else {
            unreachable!("only an Ask asks");
        };
        let by = self.world.acting(slot);
        let tie = match wish {
            Wish::Nothing => Tie::Nothing,
            Wish::Itself => Tie::LivenessLock(by),
            Wish::Process(of) => Tie::Process(self.world.acting(of)),
        };
        let newest = self.grants.len().saturating_sub(1);
        let under = within.and_then(|back| self.grants.get(newest.saturating_sub(back)));
        Asked {
            key,
            by,
            name: NAMES[name].to_owned(),
            named,
            tie,
            patient,
            priority,
            ttl,
            within: under.map(|grant| grant.token.0).into_iter().collect(),
        }
    }

    /// Puts a question and has the answer judged; the grant, if there is one.
    fn ask(&mut self, asked: Asked) -> Result<Option<Grant>, Broken> {
        if asked.shows_its_life() {
            self.world.begin_life(asked.by);
        }
        let us = self.world.liveness_lock(asked.by);
        let claim = claim(&self.world, &asked);
        let answer = self.machine.acquire(&self.world, &claim, us.as_ref());
        self.oracle.acquired(&self.world, &asked, &answer)?;
        self.oracle.audit(&self.world, &self.machine)?;
        self.waits
            .retain(|wait| (wait.by, wait.key, &wait.name) != (asked.by, asked.key, &asked.name));
        match answer {
            Answer::Granted { lease, .. } | Answer::Extended { lease, .. } => {
                let grant = lease.grant();
                if !self.grants.contains(&grant) {
                    self.grants.push(grant.clone());
                }
                Ok(Some(grant))
            }
            Answer::Queued { .. } => {
                self.waits.push(asked);
                Ok(None)
            }
            Answer::Refused { .. } | Answer::WouldWaitForItself | Answer::Deadlock => Ok(None),
        }
    }

    /// What the process of a slot waits for, if it can: what it last asked for in each name.
    fn waiting(&self, slot: usize, key: usize) -> Vec<Asked> {
        let run = self.world.latest(slot);
        let waits = |wait: &&Asked| Some(wait.by) == run && wait.key == key;
        let can = |wait: &&Asked| self.world.can_act(wait.by);
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

    fn shown(&self, back: usize, forgery: Forgery) -> Option<(usize, Grant)> {
        let newest = self.grants.len().checked_sub(1)?;
        let mut grant = self.grants[newest.saturating_sub(back)].clone();
        match forgery {
            Forgery::None => {}
            Forgery::OtherName => grant.holder = HolderId::parse("eve").unwrap(),
            Forgery::OlderToken => grant.token = Token(grant.token.0.saturating_sub(1)),
            Forgery::NewerToken => grant.token = grant.token.next(),
            Forgery::OtherKey => {
                let other = KEYS.iter().find(|key| **key != grant.key.as_str());
                grant.key = Key::parse(*other.unwrap()).unwrap();
            }
        }
        let key = KEYS.iter().position(|key| *key == grant.key.as_str())?;
        Some((key, grant))
    }

    /// With no lease in the way, each who still waits is served, after those who fell silent have
    /// been waited for: three rounds of five seconds, then one for each.
    fn serve_everybody(&mut self) -> Result<(), Broken> {
        for key in 0..KEYS.len() {
            self.force(key)?;
            for _round in 0..3 + self.waits.len() {
                for slot in 0..SLOTS {
                    for asked in self.waiting(slot, key) {
                        if let Some(grant) = self.ask(asked)? {
                            let freed = self.machine.release(&self.world, &grant);
                            self.oracle.released(key, &grant, freed)?;
                        }
                    }
                }
                self.world.pass(5_000);
            }
            let left: Vec<Asked> = (0..SLOTS)
                .flat_map(|slot| self.waiting(slot, key))
                .collect();
            if !left.is_empty() {
                return Err(Broken {
                    guarantee: Guarantee::Progress,
                    how: format!("{left:?} were never served"),
                });
            }
        }
        Ok(())
    }
}

fn claim(world: &World, asked: &Asked) -> Claim {
    let binding = world.binding(asked.tie);
    let asker = if asked.patient {
        world.binding(Tie::LivenessLock(asked.by))
    } else {
        binding.clone()
    };
    Claim {
        key: Key::parse(KEYS[asked.key]).unwrap(),
        holder: Holder {
            id: HolderId::parse(asked.name.as_str()).unwrap(),
            host: world.process(asked.by).host,
            command: None,
            binding,
        },
        asker,
        named: asked.named,
        ttl: millis(asked.ttl),
        priority: Priority::new(asked.priority).unwrap(),
        patience: if asked.patient {
            Patience::Queue
        } else {
            Patience::Try
        },
        within: asked.within.iter().copied().map(Token).collect(),
    }
}

fn millis(time: i64) -> Duration {
    Duration::from_millis(time.unsigned_abs())
}
