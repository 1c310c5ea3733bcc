//! What is true, whatever the store says: who was told that they hold a key, and who waits for it.
//!
//! Judged by the truth of the [`World`], never through a verdict, a deadline or a rank of
//! `tenure-core`: those are what is on trial.

use tenure_core::{Evidence, Grant, Reason};

use crate::world::{self, Fate, Run, Tie, World};

/// How much waiting one level of priority is worth, as promised.
const AGEING: i64 = 60_000;

/// How long a waiter may be silent and still keep the others waiting.
const LAPSE: i64 = 15_000;

/// How long a place is kept for one who was cut off.
const GRACE: i64 = 600_000;

/// What somebody asks for.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    pub(crate) key: usize,
    /// The process that asks.
    pub(crate) by: Run,
    pub(crate) name: String,
    pub(crate) named: bool,
    /// What the lease would be tied to.
    pub(crate) tie: Tie,
    pub(crate) patient: bool,
    pub(crate) priority: u8,
    pub(crate) ttl: i64,
    /// The tokens of the grants it runs under.
    pub(crate) within: Vec<u64>,
}

impl Asked {
    /// Whether the claim shows which process asks: one that only tries, for a lease that does not
    /// end with it, needs no life and has no seat.
    pub(crate) fn shows_its_life(&self) -> bool {
        self.patient || matches!(self.tie, Tie::LivenessLock(_))
    }
}

/// One time that somebody was told to hold a key.
#[derive(Debug, Clone)]
pub(crate) struct Tenancy {
    pub(crate) token: u64,
    pub(crate) name: String,
    pub(crate) named: bool,
    pub(crate) tie: Tie,
    /// What they were told: until when, in truth and on the wall, and in which boot.
    pub(crate) until: i64,
    pub(crate) until_wall: i64,
    pub(crate) boot: u32,
    /// Whether the record of it can no longer be understood.
    pub(crate) garbled: bool,
    pub(crate) ended: bool,
}

/// Whether a claim is by the one who holds the key already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kin {
    Same,
    /// The guarantees allow either reading.
    Perhaps,
    Other,
}

impl Tenancy {
    /// What a claim that is granted with this token makes its asker believe.
    pub(crate) fn begin(world: &World, asked: &Asked, token: u64) -> Self {
        Self {
            token,
            name: asked.name.clone(),
            named: asked.named,
            tie: asked.tie,
            until: world.now + asked.ttl,
            until_wall: world.wall() + asked.ttl,
            boot: world.boot,
            garbled: false,
            ended: false,
        }
    }

    pub(crate) fn go_on(&mut self, world: &World, ttl: i64) {
        self.until = world.now + ttl;
        self.until_wall = world.wall() + ttl;
        self.boot = world.boot;
        self.garbled = false;
    }

    pub(crate) fn out_of_time(&self, world: &World) -> bool {
        if self.boot == world.boot {
            world.now >= self.until
        } else {
            self.past_on_the_wall(world)
        }
    }

    pub(crate) fn past_on_the_wall(&self, world: &World) -> bool {
        world.wall() >= self.until_wall
    }

    pub(crate) fn orphaned(&self, world: &World) -> bool {
        matches!(self.tie, Tie::LivenessLock(run) if world.boot_of(run) == world.boot && world.fate(run) == Fate::Orphaned)
    }

    pub(crate) fn dead(&self, world: &World) -> bool {
        let Some(run) = self.tie.run() else {
            return false;
        };
        match world.fate(run) {
            Fate::Remote => false,
            Fate::Gone => true,
            Fate::Orphaned => {
                matches!(self.tie, Tie::Process(_)) || world.boot_of(run) != world.boot
            }
            Fate::Running | Fate::Hidden => world.boot_of(run) != world.boot,
        }
    }

    /// Whether nothing can be said of its holder, one way or the other.
    pub(crate) fn unknown(&self, world: &World) -> bool {
        let hidden = |run| matches!(world.fate(run), Fate::Hidden | Fate::Remote);
        self.garbled || (!self.dead(world) && self.tie.run().is_none_or(hidden))
    }

    /// Whether it can be proven to be over.
    pub(crate) fn over(&self, world: &World) -> bool {
        !self.garbled && (self.dead(world) || (self.out_of_time(world) && !self.orphaned(world)))
    }

    pub(crate) fn stands(&self, world: &World) -> bool {
        !self.ended && !self.over(world)
    }

    /// Whether this evidence of its end tells the truth.
    pub(crate) fn is_true(&self, world: &World, evidence: &Evidence) -> bool {
        let boots = |run| {
            (
                world::boot_name(world.boot_of(run)),
                world::boot_name(world.boot),
            )
        };
        let tied = |pid: u32| self.tie.run().is_some_and(|run| world::pid(run) == pid);
        let this_boot = self.tie.run().map(|run| world.boot_of(run)) == Some(world.boot);
        !self.garbled
            && match evidence {
                Evidence::TimeRanOut { expired_at } => {
                    let on_the_wall = if self.boot == world.boot {
                        world.wall() - (world.now - self.until)
                    } else {
                        self.until_wall
                    };
                    self.out_of_time(world)
                        && !self.orphaned(world)
                        && expired_at.as_millisecond() == on_the_wall
                }
                Evidence::LivenessLockFree { pid } => {
                    matches!(self.tie, Tie::LivenessLock(_))
                        && this_boot
                        && tied(*pid)
                        && self.dead(world)
                }
                Evidence::ProcessGone { pid } => {
                    matches!(self.tie, Tie::Process(_))
                        && this_boot
                        && tied(*pid)
                        && self.dead(world)
                }
                Evidence::PidReused {
                    pid,
                    recorded,
                    found,
                } => {
                    matches!(self.tie, Tie::Process(run) if world.process(run).started == *recorded)
                        && this_boot
                        && tied(*pid)
                        && recorded != found
                        && self.dead(world)
                }
                Evidence::Rebooted { recorded, found } => self.tie.run().is_some_and(|run| {
                    boots(run) == (recorded.clone(), found.clone())
                        && recorded != found
                        && world.fate(run) != Fate::Remote
                }),
                _ => false,
            }
    }

    /// Whether a claim is by the one who holds this. What a process keeps for itself is of one
    /// asking; what is tied to a process is of that process; the rest is of whoever has the name.
    pub(crate) fn kin(&self, asked: &Asked) -> Kin {
        if !asked.named || asked.name != self.name {
            return Kin::Other;
        }
        match (self.tie, asked.tie) {
            (Tie::Process(ours), Tie::Process(theirs)) if ours == theirs => Kin::Same,
            // A made-up name that somebody else chose on purpose.
            (Tie::Nothing, Tie::Nothing) if !self.named => Kin::Perhaps,
            (Tie::Nothing, Tie::Nothing) => Kin::Same,
            (Tie::Nothing, Tie::Process(_)) => Kin::Perhaps,
            _ => Kin::Other,
        }
    }

    /// Whether only the asking process could end it.
    pub(crate) fn waits_for(&self, asked: &Asked) -> bool {
        let own = asked.named && asked.name == self.name && self.tie == Tie::Nothing;
        own || asked.within.contains(&self.token)
    }
}

/// The reason that goes with an end.
pub(crate) fn reason_after(evidence: &Evidence) -> Reason {
    match evidence {
        Evidence::TimeRanOut { .. } => Reason::ClaimedExpired,
        _ => Reason::ClaimedDead,
    }
}

/// One who waits.
#[derive(Debug, Clone)]
pub(crate) struct Place {
    pub(crate) ticket: u64,
    pub(crate) by: Run,
    pub(crate) name: String,
    pub(crate) named: bool,
    pub(crate) priority: u8,
    pub(crate) came: i64,
    pub(crate) heard: i64,
    /// The boot in which it was last heard.
    pub(crate) boot: u32,
}

impl Place {
    /// Whether it is there to take its turn.
    pub(crate) fn present(&self, world: &World) -> bool {
        let cut_off = matches!(world.fate(self.by), Fate::Gone | Fate::Orphaned);
        !self.silent(world) && !cut_off
    }

    /// Keeps the place, and lets the others go first.
    pub(crate) fn park(&mut self, world: &World) {
        self.heard = world.now - LAPSE;
    }

    /// Whether it is served before another.
    pub(crate) fn goes_before(&self, other: &Self) -> bool {
        self.ticket != other.ticket && self.standing().may_pass(other)
    }

    fn standing(&self) -> Standing {
        Standing {
            came: self.came,
            priority: self.priority,
            ticket: Some(self.ticket),
        }
    }

    fn silent(&self, world: &World) -> bool {
        self.boot != world.boot || world.now - self.heard >= LAPSE
    }

    /// Whether it need be kept no longer.
    pub(crate) fn may_be_forgotten(&self, world: &World) -> bool {
        let nobody_returns = !self.named && !self.present(world);
        nobody_returns || self.boot != world.boot || world.now - self.heard >= GRACE
    }
}

/// Where a claim stands: who it has to let go first.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Standing {
    pub(crate) came: i64,
    pub(crate) priority: u8,
    /// `None` comes after every ticket there is.
    pub(crate) ticket: Option<u64>,
}

impl Standing {
    /// Whether it may go before somebody who waits: by more urgent priority if it came less than
    /// the ageing of that difference later, among equals by coming first.
    pub(crate) fn may_pass(self, place: &Place) -> bool {
        let head_start = (i64::from(self.priority) - i64::from(place.priority)) * AGEING;
        let later = self.came - place.came;
        later < head_start
            || later == head_start && self.ticket.is_some_and(|ticket| ticket < place.ticket)
    }
}

/// What is true of one key.
#[derive(Debug, Default)]
pub(crate) struct Account {
    pub(crate) given: Vec<Tenancy>,
    pub(crate) line: Vec<Place>,
}

impl Account {
    pub(crate) fn held(&self) -> Option<&Tenancy> {
        self.given.last().filter(|tenancy| !tenancy.ended)
    }

    pub(crate) fn held_mut(&mut self) -> Option<&mut Tenancy> {
        self.given.last_mut().filter(|tenancy| !tenancy.ended)
    }

    pub(crate) fn end(&mut self) {
        if let Some(tenancy) = self.held_mut() {
            tenancy.ended = true;
        }
    }

    pub(crate) fn place(&self, ticket: u64) -> Option<&Place> {
        self.line.iter().find(|place| place.ticket == ticket)
    }

    pub(crate) fn is_held_by(&self, grant: &Grant) -> bool {
        self.held().is_some_and(|tenancy| {
            tenancy.token == grant.token.0 && tenancy.name == grant.holder.as_str()
        })
    }

    /// Somebody who is there, goes before this standing, and is not the one that stands so.
    pub(crate) fn before(&self, world: &World, standing: Standing) -> Option<&Place> {
        self.line.iter().find(|place| {
            Some(place.ticket) != standing.ticket
                && place.present(world)
                && !standing.may_pass(place)
        })
    }

    /// The first place that the asker was cut off from, and must get back.
    pub(crate) fn left_behind(&self, world: &World, asked: &Asked) -> Option<&Place> {
        let mut left_behind = self.line.iter().filter(|place| {
            asked.named
                && place.named
                && place.name == asked.name
                && !place.present(world)
                && !place.may_be_forgotten(world)
        });
        let first = left_behind.next()?;
        Some(left_behind.fold(first, |first, place| {
            if place.goes_before(first) {
                place
            } else {
                first
            }
        }))
    }
}
