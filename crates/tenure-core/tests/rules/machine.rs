//! A store in memory that does what the rules say, and nothing else.
//!
//! It reads, asks and writes as `tenure-sqlite` does (`store.rs`, `write.rs`, and `view.rs` for
//! who is there), for two keys that share one row of tokens. Left out, because no rule is asked:
//! events, bells, and the search for cycles. A ticket is marked as heard each time its owner asks,
//! not once a second at most: the oracle then knows to the millisecond who is there.

use std::time::Duration;

use tenure_core::decide::{self, ClaimTicket, Decision, View};
use tenure_core::queue::TURN_LAPSE;
use tenure_core::{
    Claim, Doubt, Epoch, Evidence, Grant, Holder, HolderId, Lease, Liveness, LivenessId, Moment,
    Patience, Presence, Reason, Ticket, Token, Waiter,
};

use crate::world::World;

/// How long the place of a waiter that was cut off is kept.
const GRACE: Duration = Duration::from_secs(600);

/// How far tokens jump with each boot.
const JUMP: u64 = 1 << 20;

/// The rules a machine follows. A field for each, so that a broken one can be put in.
#[derive(Clone, Copy)]
pub(crate) struct Rules {
    pub(crate) acquire: fn(&Moment, &View, &Claim) -> Decision,
    pub(crate) arrival: fn(&Moment, &[Waiter]) -> Duration,
    pub(crate) renew: fn(&View, &Grant) -> bool,
    pub(crate) release: fn(&View, &Grant) -> bool,
    pub(crate) fence: fn(&Moment, &View, Token) -> bool,
    pub(crate) reap: fn(&Moment, &View) -> Option<Evidence>,
}

impl Rules {
    /// Those of `tenure_core::decide`.
    pub(crate) const OURS: Self = Self {
        acquire: decide::acquire,
        arrival: decide::arrival,
        renew: decide::renew,
        release: decide::release,
        fence: decide::fence,
        reap: decide::reap,
    };
}

/// What a claim was answered with.
#[derive(Debug)]
pub(crate) enum Answer {
    Granted {
        lease: Lease,
        reason: Reason,
        ended: Option<(Lease, Evidence)>,
        claim_ticket: ClaimTicket,
    },
    Extended {
        lease: Lease,
        /// The token as the decision has it.
        token: Token,
        claim_ticket: ClaimTicket,
    },
    /// Busy, and it tried only.
    Refused { claim_ticket: ClaimTicket },
    /// Busy, with a ticket.
    Queued {
        ticket: Ticket,
        claim_ticket: ClaimTicket,
        ahead: usize,
    },
    /// Busy, and waiting would never end.
    WouldWaitForItself,
    /// The rules spoke of a lease that is not there.
    Nonsense,
}

/// What the store holds of one key.
#[derive(Debug, Default)]
struct Record {
    lease: Option<Lease>,
    /// Somebody wrote over the lease so that it can't be understood.
    garbled: bool,
    queue: Vec<Waiter>,
}

pub(crate) struct Machine {
    rules: Rules,
    records: [Record; 2],
    newest: Token,
    newest_in: Epoch,
    tickets: u64,
}

impl Machine {
    pub(crate) fn new(rules: Rules) -> Self {
        Self {
            rules,
            records: Default::default(),
            newest: Token(0),
            newest_in: Epoch::unknown(),
            tickets: 0,
        }
    }

    pub(crate) fn lease(&self, key: usize) -> Option<&Lease> {
        self.records[key].lease.as_ref()
    }

    pub(crate) fn queue(&self, key: usize) -> &[Waiter] {
        &self.records[key].queue
    }

    fn view(&self, world: &World, key: usize, asker: &Asker<'_>) -> View {
        let record = &self.records[key];
        let now = world.moment();
        let lease = record.lease.clone().map(|lease| {
            let liveness = if record.garbled {
                Liveness::Unverifiable(Doubt::Malformed)
            } else if asker.is(&lease.holder) {
                Liveness::Running
            } else {
                world.probe(&lease.holder.binding)
            };
            (lease, liveness)
        });
        let mut queue = record.queue.clone();
        settle(world, &now, &mut queue, asker);
        let newest = if self.newest_in.differs(&now.epoch) {
            Token(self.newest.0 + JUMP)
        } else {
            self.newest
        };
        View {
            lease,
            queue,
            newest,
        }
    }

    /// Asks for a key; `us` is the life of the asking process, if it has begun one.
    pub(crate) fn acquire(
        &mut self,
        world: &World,
        key: usize,
        claim: &Claim,
        us: Option<&LivenessId>,
    ) -> Answer {
        let now = world.moment();
        let asker = Asker {
            life: us,
            name: Some(&claim.holder.id),
        };
        let view = self.view(world, key, &asker);
        match (self.rules.acquire)(&now, &view, claim) {
            Decision::Grant {
                token,
                reason,
                ended,
                claim_ticket,
            } => {
                self.drop_ticket(key, claim_ticket);
                let lease = Lease {
                    key: claim.key.clone(),
                    holder: claim.holder.clone(),
                    token,
                    acquired_at: now.wall,
                    expires: now.deadline(claim.ttl),
                    heartbeat_at: now.wall,
                    ttl: claim.ttl,
                };
                self.newest = token;
                self.newest_in = now.epoch;
                self.put(key, lease.clone());
                Answer::Granted {
                    lease,
                    reason,
                    ended,
                    claim_ticket,
                }
            }
            Decision::Extend {
                token,
                claim_ticket,
            } => {
                self.drop_ticket(key, claim_ticket);
                match self.extend(&now, key, Some(&claim.holder), claim.ttl) {
                    Some(lease) => Answer::Extended {
                        lease,
                        token,
                        claim_ticket,
                    },
                    None => Answer::Nonsense,
                }
            }
            Decision::WaitForSelf => Answer::WouldWaitForItself,
            Decision::Wait { claim_ticket, .. } if claim.patience == Patience::Try => {
                Answer::Refused { claim_ticket }
            }
            Decision::Wait {
                claim_ticket,
                ahead,
            } => Answer::Queued {
                ticket: self.take_ticket(&now, key, claim, &view, claim_ticket),
                claim_ticket,
                ahead,
            },
        }
    }

    fn put(&mut self, key: usize, lease: Lease) {
        self.records[key].lease = Some(lease);
        self.records[key].garbled = false;
    }

    fn extend(
        &mut self,
        now: &Moment,
        key: usize,
        holder: Option<&Holder>,
        ttl: Duration,
    ) -> Option<Lease> {
        let lease = self.records[key].lease.clone()?;
        let lease = Lease {
            holder: holder.cloned().unwrap_or(lease.holder),
            expires: now.deadline(ttl),
            heartbeat_at: now.wall,
            ttl,
            ..lease
        };
        self.put(key, lease.clone());
        Some(lease)
    }

    fn drop_ticket(&mut self, key: usize, claim_ticket: ClaimTicket) {
        self.records[key]
            .queue
            .retain(|waiter| Some(waiter.ticket) != claim_ticket.ticket());
    }

    fn take_ticket(
        &mut self,
        now: &Moment,
        key: usize,
        claim: &Claim,
        view: &View,
        claim_ticket: ClaimTicket,
    ) -> Ticket {
        let holder = Holder {
            binding: claim.asker.clone(),
            ..claim.holder.clone()
        };
        let queue = &mut self.records[key].queue;
        if let Some(ticket) = claim_ticket.ticket() {
            for waiter in queue.iter_mut().filter(|waiter| waiter.ticket == ticket) {
                waiter.seen = now.ticks;
                if matches!(claim_ticket, ClaimTicket::Resumed(_)) {
                    waiter.holder = holder.clone();
                    waiter.priority = claim.priority;
                }
            }
            return ticket;
        }
        queue.retain(|waiter| !waiter.forgotten(now, GRACE));
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        queue.push(Waiter {
            ticket,
            holder,
            named: claim.named,
            priority: claim.priority,
            arrived: (self.rules.arrival)(now, &view.queue),
            seen: now.ticks,
            epoch: now.epoch.clone(),
            presence: Presence::Away,
        });
        ticket
    }

    pub(crate) fn renew(
        &mut self,
        world: &World,
        key: usize,
        grant: &Grant,
        ttl: Duration,
    ) -> bool {
        let may = (self.rules.renew)(&self.view(world, key, &Asker::default()), grant);
        may && self.extend(&world.moment(), key, None, ttl).is_some()
    }

    pub(crate) fn release(&mut self, world: &World, key: usize, grant: &Grant) -> bool {
        let may = (self.rules.release)(&self.view(world, key, &Asker::default()), grant);
        may && self.remove(key).is_some()
    }

    /// Takes whatever lease there is off the record.
    pub(crate) fn remove(&mut self, key: usize) -> Option<Lease> {
        self.records[key].garbled = false;
        self.records[key].lease.take()
    }

    pub(crate) fn leave(&mut self, key: usize, ticket: Ticket) {
        self.drop_ticket(key, ClaimTicket::Own(ticket));
    }

    /// Makes a waiter one that was not heard for too long.
    pub(crate) fn park(&mut self, world: &World, key: usize, ticket: Ticket) {
        let queue = &mut self.records[key].queue;
        for waiter in queue.iter_mut().filter(|waiter| waiter.ticket == ticket) {
            waiter.seen = world.uptime().saturating_sub(TURN_LAPSE);
        }
    }

    pub(crate) fn fence(&self, world: &World, key: usize, token: Token) -> bool {
        // A store does not read the queue for this, nor the newest token.
        let view = View {
            queue: Vec::new(),
            newest: token,
            ..self.view(world, key, &Asker::default())
        };
        (self.rules.fence)(&world.moment(), &view, token)
    }

    /// Ends the lease if it is over, with the proof, and drops the places kept long enough.
    pub(crate) fn reap(&mut self, world: &World, key: usize) -> Option<Evidence> {
        let now = world.moment();
        let view = self.view(world, key, &Asker::default());
        let over = (self.rules.reap)(&now, &view);
        if over.is_some() {
            self.remove(key);
        }
        for waiter in &view.queue {
            if waiter.presence == Presence::Away && waiter.forgotten(&now, GRACE) {
                self.leave(key, waiter.ticket);
            }
        }
        over
    }

    pub(crate) fn garble(&mut self, key: usize) {
        self.records[key].garbled = self.records[key].lease.is_some();
    }
}

/// Who looks at the record.
#[derive(Default)]
struct Asker<'a> {
    /// Its own life needs no probing.
    life: Option<&'a LivenessId>,
    /// A place of that name may have been left behind.
    name: Option<&'a HolderId>,
}

impl Asker<'_> {
    fn is(&self, holder: &Holder) -> bool {
        self.life.is_some() && holder.liveness_lock() == self.life
    }
}

/// Puts waiters in order and finds out who is there. Only as many are probed as it takes to know
/// whose turn it is, and those of the asker's own name.
fn settle(world: &World, now: &Moment, queue: &mut [Waiter], asker: &Asker<'_>) {
    let lives = |holder: &Holder| {
        !matches!(
            world.probe(&holder.binding),
            Liveness::Gone(_) | Liveness::Orphaned
        )
    };
    queue.sort_by_key(Waiter::rank);
    let mut turn_known = false;
    for waiter in queue {
        let probed = !turn_known || asker.name == Some(&waiter.holder.id);
        let here = waiter.heard_lately(now)
            && (asker.is(&waiter.holder) || !probed || lives(&waiter.holder));
        waiter.presence = if here { Presence::Here } else { Presence::Away };
        turn_known |= here;
    }
}
