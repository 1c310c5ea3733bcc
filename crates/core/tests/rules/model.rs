//! The true state of every key, independent of the store: which leases were granted, and who waits.
//!
//! The model reads the [`World`] directly. It never uses a verdict, a deadline or a rank of `tenure-core`,
//! because those are under test.

use tenure_core::{Evidence, Grant, Lease, Mode, Reason};

use crate::world::{self, ModelBinding, ProcessState, Run, World};

/// How much waiting one level of priority is worth, as documented.
const AGEING: i64 = 60_000;

/// How long a waiter may be silent before the others may pass it.
const LAPSE: i64 = 15_000;

/// How long the ticket of an absent waiter is kept.
const GRACE: i64 = 600_000;

/// Reservations, and which of four files each covers. Two that cover the same files name the same patterns. The path of a
/// file ends with `/.`.
pub(crate) const RESERVATIONS: [(&str, u8); 9] = [
    ("paths:a", 0b0011),
    ("shared-paths:a", 0b0011),
    ("paths:a/1", 0b0001),
    ("paths:a/1/.", 0b0001),
    ("paths:*/2", 0b1010),
    ("paths:b/[0-9]", 0b1100),
    ("paths:a/2 b/1", 0b0110),
    ("shared-paths:**", 0b1111),
    ("shared-paths:b/1", 0b0100),
];

/// The files of a reservation, and whether they are only read.
fn files(mode: &Mode) -> Option<(u8, bool)> {
    let text = mode.to_string();
    let (_, files) = RESERVATIONS.iter().find(|(known, _)| *known == text)?;
    Some((*files, text.starts_with("shared")))
}

/// A holder, a waiter or a claimant, and how it has the key or wants it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Party<'a> {
    mode: &'a Mode,
    name: &'a str,
    named: bool,
}

impl<'a> Party<'a> {
    /// The claimant can't tell whether the name of a holder was chosen.
    pub(crate) fn of(lease: &'a ModelLease) -> Self {
        Self {
            mode: &lease.mode,
            name: &lease.name,
            named: true,
        }
    }

    pub(crate) fn claiming(claim: &'a ModelClaim) -> Self {
        Self {
            mode: &claim.mode,
            name: &claim.name,
            named: claim.named,
        }
    }

    pub(crate) fn waiting(entry: &'a ModelTicket) -> Self {
        Self {
            mode: &entry.mode,
            name: &entry.name,
            named: entry.named,
        }
    }

    /// Whether both can have the key at once.
    pub(crate) fn fits(self, other: Party<'_>) -> bool {
        if let (Some((ours, we_read)), Some((theirs, they_read))) =
            (files(self.mode), files(other.mode))
        {
            let same = self.named && other.named && self.name == other.name;
            return same || ours & theirs == 0 || we_read && they_read;
        }
        match (self.mode, other.mode) {
            (Mode::Shared, Mode::Shared) => true,
            (Mode::Slots(one), Mode::Slots(other)) => one == other && one.get() > 1,
            _ => false,
        }
    }

    /// Whether this one holds or wants files.
    pub(crate) fn has_files(self) -> bool {
        files(self.mode).is_some()
    }
}

/// Whether a holder can have both as two leases: they are about different files.
pub(crate) fn is_another_reservation(one: &Mode, other: &Mode) -> bool {
    match (files(one), files(other)) {
        (Some((ours, _)), Some((theirs, _))) => ours != theirs,
        _ => false,
    }
}

/// Whether two claims disagree on what the key is: slots of different numbers, or slots and shared holders.
pub(crate) fn disagree(one: &Mode, other: &Mode) -> bool {
    let reserve = files(one).is_some() && files(other).is_some();
    one != other && *one != Mode::Exclusive && *other != Mode::Exclusive && !reserve
}

/// A claim.
#[derive(Debug, Clone)]
pub(crate) struct ModelClaim {
    pub(crate) key: usize,
    /// The claiming process.
    pub(crate) by: Run,
    pub(crate) name: String,
    pub(crate) named: bool,
    /// What the lease would be tied to.
    pub(crate) binding: ModelBinding,
    pub(crate) patient: bool,
    pub(crate) priority: u8,
    pub(crate) ttl: i64,
    pub(crate) mode: Mode,
    /// The tokens of the grants it runs under.
    pub(crate) within: Vec<u64>,
}

impl ModelClaim {
    /// Whether the claim shows which process makes it. A claim that does not wait, for a lease that is not
    /// tied to the claiming process, needs no liveness lock and has no ticket.
    pub(crate) fn identifies_process(&self) -> bool {
        self.patient || matches!(self.binding, ModelBinding::LivenessLock(_))
    }
}

/// A lease that was granted.
#[derive(Debug, Clone)]
pub(crate) struct ModelLease {
    pub(crate) token: u64,
    pub(crate) name: String,
    pub(crate) named: bool,
    pub(crate) binding: ModelBinding,
    pub(crate) mode: Mode,
    pub(crate) slot: Option<u32>,
    /// When it ends, in true time and by the wall clock, and in which boot that was promised.
    pub(crate) until: i64,
    pub(crate) until_wall: i64,
    pub(crate) boot: u32,
    /// Whether the store's record of it was made unreadable.
    pub(crate) garbled: bool,
    pub(crate) ended: bool,
}

/// Whether a claim comes from the holder of the lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HolderMatch {
    Same,
    /// The guarantees allow either answer.
    Either,
    Other,
}

impl ModelLease {
    /// The lease of a claim that is granted with this token.
    pub(crate) fn new(world: &World, claim: &ModelClaim, lease: &Lease) -> Self {
        Self {
            token: lease.token.0,
            mode: claim.mode.clone(),
            slot: lease.slot,
            name: claim.name.clone(),
            named: claim.named,
            binding: claim.binding,
            until: world.now + claim.ttl,
            until_wall: world.wall() + claim.ttl,
            boot: world.boot,
            garbled: false,
            ended: false,
        }
    }

    pub(crate) fn extend(&mut self, world: &World, ttl: i64) {
        self.until = world.now + ttl;
        self.until_wall = world.wall() + ttl;
        self.boot = world.boot;
        self.garbled = false;
    }

    pub(crate) fn has_expired(&self, world: &World) -> bool {
        if self.boot == world.boot {
            world.now >= self.until
        } else {
            self.has_expired_by_wall(world)
        }
    }

    pub(crate) fn has_expired_by_wall(&self, world: &World) -> bool {
        world.wall() >= self.until_wall
    }

    pub(crate) fn is_orphaned(&self, world: &World) -> bool {
        matches!(self.binding, ModelBinding::LivenessLock(run) if world.boot_of(run) == world.boot && world.state(run) == ProcessState::Orphaned)
    }

    pub(crate) fn is_dead(&self, world: &World) -> bool {
        let Some(run) = self.binding.run() else {
            return false;
        };
        match world.state(run) {
            ProcessState::Remote => false,
            ProcessState::Gone => true,
            ProcessState::Orphaned => {
                matches!(self.binding, ModelBinding::Process(_)) || world.boot_of(run) != world.boot
            }
            ProcessState::Running | ProcessState::Hidden => world.boot_of(run) != world.boot,
        }
    }

    /// Whether its holder can be proven neither alive nor dead.
    pub(crate) fn is_unverifiable(&self, world: &World) -> bool {
        let hidden = |run| {
            matches!(
                world.state(run),
                ProcessState::Hidden | ProcessState::Remote
            )
        };
        self.garbled || (!self.is_dead(world) && self.binding.run().is_none_or(hidden))
    }

    /// Whether it has expired or its holder is dead, and that can be proven.
    pub(crate) fn is_stale(&self, world: &World) -> bool {
        !self.garbled
            && (self.is_dead(world) || (self.has_expired(world) && !self.is_orphaned(world)))
    }

    pub(crate) fn is_live(&self, world: &World) -> bool {
        !self.ended && !self.is_stale(world)
    }

    /// Whether this evidence of its end is true.
    pub(crate) fn is_proven_by(&self, world: &World, evidence: &Evidence) -> bool {
        let boots = |run| {
            (
                world::boot_name(world.boot_of(run)),
                world::boot_name(world.boot),
            )
        };
        let tied = |pid: u32| self.binding.run().is_some_and(|run| world::pid(run) == pid);
        let this_boot = self.binding.run().map(|run| world.boot_of(run)) == Some(world.boot);
        !self.garbled
            && match evidence {
                Evidence::TimeRanOut { expired_at } => {
                    let on_the_wall = if self.boot == world.boot {
                        world.wall() - (world.now - self.until)
                    } else {
                        self.until_wall
                    };
                    self.has_expired(world)
                        && !self.is_orphaned(world)
                        && expired_at.as_millisecond() == on_the_wall
                }
                Evidence::LivenessLockFree { pid } => {
                    matches!(self.binding, ModelBinding::LivenessLock(_))
                        && this_boot
                        && tied(*pid)
                        && self.is_dead(world)
                }
                Evidence::ProcessGone { pid } => {
                    matches!(self.binding, ModelBinding::Process(_))
                        && this_boot
                        && tied(*pid)
                        && self.is_dead(world)
                }
                Evidence::PidReused {
                    pid,
                    recorded,
                    found,
                } => {
                    matches!(self.binding, ModelBinding::Process(run) if world.process(run).started == *recorded)
                        && this_boot
                        && tied(*pid)
                        && recorded != found
                        && self.is_dead(world)
                }
                Evidence::Rebooted { recorded, found } => self.binding.run().is_some_and(|run| {
                    boots(run) == (recorded.clone(), found.clone())
                        && recorded != found
                        && world.state(run) != ProcessState::Remote
                }),
                _ => false,
            }
    }

    /// Whether a claim comes from the holder of this lease. A lease with a liveness lock belongs to one
    /// claim, a lease tied to a process belongs to that process, and a detached lease to the name.
    pub(crate) fn holder_match(&self, claim: &ModelClaim) -> HolderMatch {
        if !claim.named || claim.name != self.name {
            return HolderMatch::Other;
        }
        match (self.binding, claim.binding) {
            (ModelBinding::Process(ours), ModelBinding::Process(theirs)) if ours == theirs => {
                HolderMatch::Same
            }
            // The holder's generated name equals a name that the claimant chose.
            (ModelBinding::Detached, ModelBinding::Detached) if !self.named => HolderMatch::Either,
            (ModelBinding::Detached, ModelBinding::Detached) => HolderMatch::Same,
            (ModelBinding::Detached, ModelBinding::Process(_)) => HolderMatch::Either,
            _ => HolderMatch::Other,
        }
    }

    /// Whether only the claimant itself could end the lease that it would wait for.
    pub(crate) fn would_wait_for_itself(&self, claim: &ModelClaim) -> bool {
        let own = claim.named && claim.name == self.name && self.binding == ModelBinding::Detached;
        own || claim.within.contains(&self.token)
    }
}

/// The reason of a grant after such an end.
pub(crate) fn reason_for(evidence: &Evidence) -> Reason {
    match evidence {
        Evidence::TimeRanOut { .. } => Reason::ClaimedExpired,
        _ => Reason::ClaimedDead,
    }
}

/// A ticket in the queue.
#[derive(Debug, Clone)]
pub(crate) struct ModelTicket {
    pub(crate) ticket: u64,
    pub(crate) by: Run,
    pub(crate) name: String,
    pub(crate) named: bool,
    pub(crate) mode: Mode,
    pub(crate) priority: u8,
    pub(crate) arrived: i64,
    pub(crate) last_asked: i64,
    /// The boot in which the waiter last asked.
    pub(crate) boot: u32,
    /// The tokens of the grants that the waiter runs under.
    pub(crate) within: Vec<u64>,
}

impl ModelTicket {
    /// Whether its waiter is present to take its turn.
    pub(crate) fn is_present(&self, world: &World) -> bool {
        !self.is_silent(world) && self.may_wait(world)
    }

    /// Whether its waiter may still be waiting, although it was not heard.
    pub(crate) fn may_wait(&self, world: &World) -> bool {
        let cut_off = matches!(
            world.state(self.by),
            ProcessState::Gone | ProcessState::Orphaned
        );
        self.boot == world.boot && !cut_off
    }

    /// Keeps the ticket, and lets the other waiters pass.
    pub(crate) fn park(&mut self, world: &World) {
        self.last_asked = world.now - LAPSE;
    }

    /// Whether it is served before another.
    pub(crate) fn ranks_before(&self, other: &Self) -> bool {
        self.ticket != other.ticket && self.rank().may_pass(other)
    }

    pub(crate) fn rank(&self) -> QueueRank {
        QueueRank {
            arrived: self.arrived,
            priority: self.priority,
            ticket: Some(self.ticket),
        }
    }

    fn is_silent(&self, world: &World) -> bool {
        self.boot != world.boot || world.now - self.last_asked >= LAPSE
    }

    /// Whether the store may drop it.
    pub(crate) fn may_be_dropped(&self, world: &World) -> bool {
        let never_resumed = !self.named && !self.is_present(world);
        never_resumed || self.boot != world.boot || world.now - self.last_asked >= GRACE
    }
}

/// The rank of a claim among the waiters.
#[derive(Debug, Clone, Copy)]
pub(crate) struct QueueRank {
    pub(crate) arrived: i64,
    pub(crate) priority: u8,
    /// `None` ranks after every ticket.
    pub(crate) ticket: Option<u64>,
}

impl QueueRank {
    /// Whether it may be served before a ticket. A more urgent claim may, if it arrived later by less than
    /// the ageing of the difference in priority. Among equals, the first to arrive is served.
    pub(crate) fn may_pass(self, entry: &ModelTicket) -> bool {
        let head_start = (i64::from(self.priority) - i64::from(entry.priority)) * AGEING;
        let later = self.arrived - entry.arrived;
        later < head_start
            || later == head_start && self.ticket.is_some_and(|ticket| ticket < entry.ticket)
    }
}

/// What a wait is for.
#[derive(Debug)]
pub(crate) struct ModelWait<'a> {
    /// All of these leases have to end.
    pub(crate) each: Vec<&'a ModelLease>,
    /// One of these has to, if there are any.
    pub(crate) one_of: Vec<&'a ModelLease>,
}

impl ModelWait<'_> {
    /// Whether it does not end before one of the leases for which `is_stuck` does.
    pub(crate) fn is_held_up(&self, is_stuck: impl Fn(&ModelLease) -> bool) -> bool {
        self.each.iter().any(|it| is_stuck(it))
            || !self.one_of.is_empty() && self.one_of.iter().all(|it| is_stuck(it))
    }
}

/// The true state of one key.
#[derive(Debug, Default)]
pub(crate) struct KeyModel {
    pub(crate) leases: Vec<ModelLease>,
    pub(crate) queue: Vec<ModelTicket>,
}

impl KeyModel {
    /// The leases that have not been ended.
    pub(crate) fn on_record(&self) -> impl Iterator<Item = &ModelLease> {
        self.leases.iter().filter(|lease| !lease.ended)
    }

    pub(crate) fn live(&self, world: &World) -> Vec<&ModelLease> {
        self.on_record().filter(|it| it.is_live(world)).collect()
    }

    pub(crate) fn lease(&self, token: u64) -> Option<&ModelLease> {
        self.on_record().find(|lease| lease.token == token)
    }

    pub(crate) fn lease_mut(&mut self, token: u64) -> Option<&mut ModelLease> {
        let mut leases = self.leases.iter_mut();
        leases.find(|lease| lease.token == token && !lease.ended)
    }

    pub(crate) fn end(&mut self, token: u64) {
        if let Some(lease) = self.lease_mut(token) {
            lease.ended = true;
        }
    }

    pub(crate) fn ticket(&self, ticket: u64) -> Option<&ModelTicket> {
        self.queue.iter().find(|entry| entry.ticket == ticket)
    }

    pub(crate) fn held_by(&self, grant: &Grant) -> Option<&ModelLease> {
        self.lease(grant.token.0)
            .filter(|lease| lease.name == grant.holder.as_str())
    }

    /// The other tickets whose waiters are present and that this rank may not pass.
    pub(crate) fn ahead(&self, world: &World, rank: QueueRank) -> Vec<&ModelTicket> {
        let ahead = self.queue.iter().filter(|entry| {
            Some(entry.ticket) != rank.ticket && entry.is_present(world) && !rank.may_pass(entry)
        });
        ahead.collect()
    }

    /// Whether a claim with this rank would take the key from a waiter ahead of it.
    pub(crate) fn passes(&self, world: &World, claim: &ModelClaim, rank: QueueRank) -> bool {
        let ahead = self.ahead(world, rank);
        let claimant = Party::claiming(claim);
        let live = self.live(world);
        let goes_first = |entry: &&ModelTicket| self.goes_first(world, entry, claimant);
        if ahead.iter().any(goes_first) {
            return true;
        }
        let held = live
            .iter()
            .filter(|it| claimant.fits(Party::of(it)))
            .count();
        match claim.mode {
            Mode::Slots(slots) => held + ahead.len() >= slots.get() as usize,
            _ => false,
        }
    }

    /// Whether a waiter that is ahead of a claimant would lose the key to it. A waiter for files that the claimant has
    /// already would not.
    pub(crate) fn goes_first(
        &self,
        world: &World,
        entry: &ModelTicket,
        claimant: Party<'_>,
    ) -> bool {
        let waiter = Party::waiting(entry);
        let waits_for_claimant = claimant.has_files()
            && claimant.named
            && self
                .live(world)
                .iter()
                .any(|it| it.name == claimant.name && !Party::of(it).fits(waiter));
        !claimant.fits(waiter) && !waits_for_claimant
    }

    /// What a claimant or waiter of this rank waits for. Whatever its mode, a waiter that goes first has to be served first.
    /// So it waits for the leases of others that are in the way of one of them. The end of any of these would not do.
    ///
    /// An earlier version said that a shared waiter waits for every lease of the key, because there is an exclusive waiter
    /// ahead of it. But that one may have died since. It also said that a waiter for a slot waits for any holder of one,
    /// even if it is behind an exclusive waiter, which needs all of them, or if a slot is free.
    pub(crate) fn wanted<'a>(
        &'a self,
        world: &World,
        claimant: Party<'a>,
        rank: QueueRank,
        waits: fn(&ModelTicket, &World) -> bool,
    ) -> ModelWait<'a> {
        let live = self.live(world);
        let mut first = vec![(claimant, rank)];
        let mut at = 0;
        while at < first.len() {
            let (party, rank) = first[at];
            at += 1;
            for entry in &self.queue {
                let known = first.iter().any(|(_, it)| it.ticket == Some(entry.ticket));
                if !known
                    && waits(entry, world)
                    && !rank.may_pass(entry)
                    && self.goes_first(world, entry, party)
                {
                    first.push((Party::waiting(entry), entry.rank()));
                }
            }
        }
        let in_the_way =
            |it: &&ModelLease| first.iter().any(|(party, _)| !party.fits(Party::of(it)));
        let (each, beside): (Vec<_>, Vec<_>) = live.into_iter().partition(in_the_way);
        let full = match claimant.mode {
            Mode::Slots(slots) => beside.len() >= slots.get() as usize,
            _ => false,
        };
        ModelWait {
            each,
            one_of: if full { beside } else { Vec::new() },
        }
    }

    /// Whether every waiter ahead of a claim waits for a lease of the claimant: it would hold the key beside it.
    pub(crate) fn is_held_already(&self, world: &World, claim: &ModelClaim) -> bool {
        let ours = |it: &&ModelLease| it.mode == Mode::Shared && it.would_wait_for_itself(claim);
        claim.mode == Mode::Shared && self.live(world).iter().any(ours)
    }

    /// The first ticket that the claimant lost contact with and must get back.
    pub(crate) fn resumable_ticket(
        &self,
        world: &World,
        claim: &ModelClaim,
    ) -> Option<&ModelTicket> {
        let mut resumable = self.queue.iter().filter(|entry| {
            claim.named
                && entry.named
                && entry.name == claim.name
                && entry.mode == claim.mode
                && !entry.is_present(world)
                && !entry.may_be_dropped(world)
        });
        let first = resumable.next()?;
        Some(resumable.fold(first, |first, entry| {
            if entry.ranks_before(first) {
                entry
            } else {
                first
            }
        }))
    }
}
