//! The rules: what happens to a claim, given the time, the store's records and the claim.
//!
//! Every function is pure. The [`engine`](crate::engine) reads a [`View`] inside a store's step, calls
//! these functions, and writes the result inside the same step. So the guarantees that hold here hold there.
//!
//! # The states of a key
//!
//! ```text
//!            acquire: Grant                     acquire by the same holder: Extend
//!   free  ------------------------->  held  ---------------------------------------.
//!    ^                                | ^ \________________________________________|
//!    |   release                      | |  renew: Extend
//!    |<-------------------------------| |
//!    |   reap, force                  | |
//!    |<-------------------------------' | acquire: Grant with `ended`
//!                                       '-- (dead or expired: taken over in one step)
//! ```
//!
//! # Invariants
//!
//! 1. A key is granted only when every lease that conflicts with the claim has ended: there is none,
//!    or [`Verdict::ended`] has the proof (G1, G3, G4). Two leases conflict unless both are shared, or both have
//!    a slot and the slots differ, or both reserve paths and have none in common, or only read them, or belong to the
//!    same name.
//! 2. A key is granted only to a claim that takes it from no present waiter ahead (G8): none conflicts with the
//!    claim, and each has a slot left. Three claims go first, because every waiter ahead waits for them: that of
//!    a holder which changes the mode of its own lease, a shared one by a command that runs under a shared lease, and
//!    that for more paths, before waiters for paths that the claimant has already.
//! 3. Only the grant on record renews or releases (G6, G7).
//!
//! Tokens are minted by the store (G2), not here.

use std::time::Duration;

use crate::claim::{Claim, Patience};
use crate::holder::{Binding, HolderId};
use crate::lease::{Grant, Lease, Token};
use crate::mode::Mode;
use crate::queue::{self, Presence, Rank, Ticket, Waiter};
use crate::several;
use crate::store::Reason;
use crate::time::Moment;
use crate::verdict::{Evidence, Liveness, Verdict};

/// The records of a store that a claim depends on.
#[derive(Debug, Clone, Default)]
pub struct View {
    /// Every lease that conflicts with the claim, and whether its holder is alive.
    pub leases: Vec<(Lease, Liveness)>,
    /// The tickets, in order: all of them, or those that the claim depends on.
    pub queue: Vec<Waiter>,
    /// What was only counted.
    pub unread: Unread,
}

/// What a [`View`] counts without reading it. If waiters among these keep the claim from the key, then so do present waiters
/// in the view's queue.
#[derive(Debug, Clone, Default)]
pub struct Unread {
    /// How many waiters are ahead of the claim.
    pub ahead: usize,
    /// How many are behind it.
    pub behind: usize,
    /// The slots of leases in the claim's mode. They count as taken: there are other ones.
    pub slots: Vec<u32>,
}

/// Which ticket a claim has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimTicket {
    /// It has none yet.
    New,
    /// Its own, from an earlier attempt of this wait.
    Own(Ticket),
    /// One of the same holder, whose wait was interrupted.
    Resumed(Ticket),
}

impl ClaimTicket {
    /// The ticket, if there is one.
    pub fn ticket(self) -> Option<Ticket> {
        match self {
            Self::New => None,
            Self::Own(ticket) | Self::Resumed(ticket) => Some(ticket),
        }
    }
}

/// What happens to a claim.
#[derive(Debug, Clone)]
#[must_use]
pub enum Decision {
    /// The key is granted.
    Grant {
        /// The reason.
        reason: Reason,
        /// The leases that are taken over, and the proof that each has ended.
        ended: Vec<(Lease, Evidence)>,
        /// The lease of the claimant that the new one replaces.
        instead_of: Option<Box<Lease>>,
        /// The slot, if the claim is for one.
        slot: Option<u32>,
        /// The ticket that is used up.
        ticket: ClaimTicket,
    },
    /// The claimant holds the key already: its lease is extended and keeps its token.
    Extend {
        /// The lease, in the mode that was asked for.
        lease: Box<Lease>,
        /// The ticket that is used up, if there is one.
        ticket: ClaimTicket,
    },
    /// It is busy.
    Wait {
        /// The ticket to write or keep. A claim that only tries gets [`ClaimTicket::New`] and no
        /// ticket.
        ticket: ClaimTicket,
        /// How many waiters go first.
        ahead: usize,
    },
    /// It is busy, and only the claimant itself could release it.
    WaitForSelf {
        /// The lease that it runs under, or holds in its own name.
        lease: Box<Lease>,
    },
    /// It is held or waited for in a mode that contradicts the claim's.
    OtherMode {
        /// That mode.
        mode: Mode,
    },
}

/// The rules that the engine follows. Each is a field, so that a test can replace one with a broken rule and
/// check that the test suite catches it.
#[derive(Debug, Clone, Copy)]
pub struct Rules {
    /// Decides on a claim.
    pub acquire: fn(&Moment, &View, &Claim) -> Decision,
    /// The arrival time of a claim that is made now.
    pub arrival: fn(&Moment, &[Waiter]) -> Duration,
    /// The lease that a grant may renew.
    pub renew: for<'a> fn(&'a View, &Grant) -> Option<&'a Lease>,
    /// The lease that a grant may release.
    pub release: for<'a> fn(&'a View, &Grant) -> Option<&'a Lease>,
    /// The lease under which a write with this token may happen.
    pub fence: for<'a> fn(&Moment, &'a View, Token) -> Option<&'a Lease>,
    /// The proof that a lease has ended, if it has.
    pub ended: fn(&Moment, &Lease, &Liveness) -> Option<Evidence>,
    /// Whether a claim that has to wait may close a cycle of waits.
    pub may_close_cycle: fn(&Claim, ClaimTicket) -> bool,
    /// The rules for a claim on several keys.
    pub several: several::Rules,
}

impl Rules {
    /// The rules of this module.
    pub const STANDARD: Self = Self {
        acquire,
        arrival,
        renew,
        release,
        fence,
        ended,
        may_close_cycle,
        several: several::Rules::STANDARD,
    };
}

/// Whether a claim that has to wait may close a cycle. One that already waits does so only if its name was granted
/// another key since, to another of its processes.
pub fn may_close_cycle(claim: &Claim, ticket: ClaimTicket) -> bool {
    claim.named || !matches!(ticket, ClaimTicket::Own(_))
}

/// Decides on a claim.
pub fn acquire(now: &Moment, view: &View, claim: &Claim) -> Decision {
    decide(now, view, claim, is_same_holding)
}

/// Decides on a claim for a key that a process needs once for all of its work, as a runner needs a section
/// for all its tasks: the process keeps a lease that it already has.
pub fn acquire_once(now: &Moment, view: &View, claim: &Claim) -> Decision {
    decide(now, view, claim, |lease, claim| {
        is_same_holding(lease, claim) || is_kept_by_asker(lease, claim)
    })
}

/// The ticket of a claim, and how many waiters go first.
pub fn position(now: &Moment, view: &View, claim: &Claim) -> (ClaimTicket, usize) {
    let ticket = ticket(now, view, claim);
    // Its own ticket is not ahead of it: it has this rank, or is that of an absent waiter.
    let ahead = queue::ahead(&view.queue, rank(now, view, claim, ticket));
    (ticket, ahead + view.unread.ahead)
}

fn decide(
    now: &Moment,
    view: &View,
    claim: &Claim,
    is_same_holding: impl Fn(&Lease, &Claim) -> bool,
) -> Decision {
    let (ticket, ahead) = position(now, view, claim);
    let wait = Decision::Wait {
        ticket: match claim.patience {
            Patience::Queue => ticket,
            Patience::Try => ClaimTicket::New,
        },
        ahead,
    };
    let mut judged: Vec<(&Lease, Verdict)> = view
        .leases
        .iter()
        .map(|(lease, liveness)| (lease, Verdict::on(now, lease, liveness)))
        .collect();
    // A claimant with several leases goes on with one that has not ended, if there is one.
    judged.sort_by_key(|(_, verdict)| verdict.ended().is_some());
    let has_turn = has_turn(now, view, claim, ticket, &judged);
    let mut own = None;
    let mut reason = Reason::AcquiredNew;
    let mut ended = Vec::new();
    let mut beside = Beside::default();
    let mut conflicts = Vec::new();
    for (lease, verdict) in judged {
        // An expired lease is extended if no waiter goes first; a lease whose process died is not.
        let goes_on = match verdict {
            Verdict::Alive | Verdict::Unknown(_) => true,
            Verdict::Expired(_) => has_turn,
            Verdict::Dead(_) | Verdict::Malformed => false,
        };
        if goes_on && is_same_holding(lease, claim) {
            if lease.token == Token::NONE {
                // Another program wrote it under this name: extend it, and give it a token.
                return Decision::Grant {
                    reason: Reason::AlreadyOwned,
                    ended: Vec::new(),
                    instead_of: None,
                    slot: None,
                    ticket,
                };
            }
            if lease.mode == claim.mode {
                return Decision::Extend {
                    lease: Box::new(lease.clone()),
                    ticket,
                };
            }
            // One name can have several leases, if it has several processes: the others must end first.
            if own.is_none() && !lease.mode.is_additional(&claim.mode) {
                own = Some(lease);
                continue;
            }
        }
        let together = compatible_with(lease, Claimant::of(claim));
        match verdict {
            Verdict::Dead(proof) => {
                if !together {
                    reason = Reason::ClaimedDead;
                }
                ended.push((lease.clone(), proof));
            }
            // It may still be renewed, so it ends only if it is in the way.
            Verdict::Expired(proof) if together => beside.expired.push((lease, proof)),
            Verdict::Expired(proof) => {
                if reason == Reason::AcquiredNew {
                    reason = Reason::ClaimedExpired;
                }
                ended.push((lease.clone(), proof));
            }
            Verdict::Alive | Verdict::Unknown(_) | Verdict::Malformed if together => {
                beside.standing.push(lease);
            }
            Verdict::Alive | Verdict::Unknown(_) | Verdict::Malformed => conflicts.push(lease),
        }
    }
    let for_itself = |lease: &&&Lease| waits_for_itself(lease, claim);
    if let Some(lease) = conflicts.iter().find(for_itself) {
        return Decision::WaitForSelf {
            lease: Box::new((*lease).clone()),
        };
    }
    let held = |lease: &&&Lease| lease.mode.contradicts(&claim.mode);
    if let Some(lease) = conflicts.iter().find(held) {
        let mode = lease.mode.clone();
        return Decision::OtherMode { mode };
    }
    if let Some(mode) = waited_for_in_other_mode(view, claim, ticket) {
        return Decision::OtherMode { mode };
    }
    if !conflicts.is_empty() {
        return wait;
    }
    // The waiters ahead of a claimant that already holds the key wait for that lease: they can't go first.
    let holds_it = beside.standing.iter().any(|it| waits_for_itself(it, claim));
    let goes_first = own.is_some() || claim.mode == Mode::Shared && holds_it;
    if !has_turn && !goes_first {
        let full = beside.standing.len() >= claim.mode.room();
        let all_its_own = beside.standing.iter().all(|it| waits_for_itself(it, claim));
        return match beside.standing.first() {
            Some(&lease) if full && all_its_own => Decision::WaitForSelf {
                lease: Box::new(lease.clone()),
            },
            _ => wait,
        };
    }
    let slot = beside.take_slot(&claim.mode, &view.unread.slots, &mut reason, &mut ended);
    match own {
        // No other holder has a larger token, so it can keep its own.
        Some(lease) if lease.mode.is_exclusive() => Decision::Extend {
            lease: Box::new(Lease {
                mode: claim.mode.clone(),
                slot,
                ..lease.clone()
            }),
            ticket,
        },
        own => Decision::Grant {
            reason: own.map_or(reason, |_| Reason::Upgraded),
            ended,
            instead_of: own.cloned().map(Box::new),
            slot,
            ticket,
        },
    }
}

/// The leases that a claim can be granted beside.
#[derive(Default)]
struct Beside<'a> {
    standing: Vec<&'a Lease>,
    expired: Vec<(&'a Lease, Evidence)>,
}

impl Beside<'_> {
    /// A slot that no lease has. If there is none, an expired lease ends, whose slot it was.
    fn take_slot(
        mut self,
        mode: &Mode,
        others: &[u32],
        reason: &mut Reason,
        ended: &mut Vec<(Lease, Evidence)>,
    ) -> Option<u32> {
        let Mode::Slots(slots) = mode else {
            return None;
        };
        let expired = self.expired.iter().map(|(lease, _)| *lease);
        let taken: Vec<_> = self
            .standing
            .iter()
            .copied()
            .chain(expired)
            .filter_map(|lease| lease.slot)
            .chain(others.iter().copied())
            .collect();
        (0..slots.get())
            .find(|slot| !taken.contains(slot))
            .or_else(|| {
                // The one that was granted first.
                self.expired.sort_by_key(|(lease, _)| lease.token);
                let (lease, proof) = self.expired.into_iter().next()?;
                *reason = Reason::ClaimedExpired;
                ended.push((lease.clone(), proof));
                lease.slot
            })
    }
}

/// The holder of a claim or a ticket, and how it is to hold the key.
#[derive(Debug, Clone, Copy)]
pub struct Claimant<'a> {
    /// How it is to hold the key.
    pub mode: &'a Mode,
    /// Its name.
    pub holder: &'a HolderId,
    /// Whether the name was chosen.
    pub named: bool,
}

impl<'a> Claimant<'a> {
    /// That of a claim.
    pub fn of(claim: &'a Claim) -> Self {
        Self {
            mode: &claim.mode,
            holder: &claim.holder.id,
            named: claim.named,
        }
    }

    /// That of a ticket.
    pub fn waiting(waiter: &'a Waiter) -> Self {
        Self {
            mode: &waiter.mode,
            holder: &waiter.holder.id,
            named: waiter.named,
        }
    }

    /// Whether both could hold the key together, if there is a slot for each of them.
    pub fn compatible_with(self, other: Self) -> bool {
        let same = self.named && other.named && self.holder == other.holder;
        same && self.mode.paths().is_some() && other.mode.paths().is_some()
            || self.mode.admits(other.mode)
    }
}

/// Whether a claimant could hold the key together with this lease, if there is a slot for it. The reservations of one
/// chosen name do not conflict.
pub fn compatible_with(lease: &Lease, claimant: Claimant<'_>) -> bool {
    // A generated name in a lease equals no chosen one.
    let holder = Claimant {
        mode: &lease.mode,
        holder: &lease.holder.id,
        named: true,
    };
    claimant.compatible_with(holder)
}

/// Whether no waiter goes before a claim: none that is ahead of it conflicts with it, and the others leave it a
/// slot.
fn has_turn(
    now: &Moment,
    view: &View,
    claim: &Claim,
    ticket: ClaimTicket,
    judged: &[(&Lease, Verdict)],
) -> bool {
    let rank = rank(now, view, claim, ticket);
    let claimant = Claimant::of(claim);
    let standing: Vec<&Lease> = judged
        .iter()
        .filter(|(_, verdict)| verdict.ended().is_none())
        .map(|(lease, _)| *lease)
        .collect();
    let is_ahead = |waiter: &&Waiter| waiter.presence == Presence::Here && waiter.rank() < rank;
    let ahead = view.queue.iter().filter(is_ahead).map(Claimant::waiting);
    let (alike, conflicting): (Vec<_>, Vec<_>) =
        ahead.partition(|waiter| claimant.compatible_with(*waiter));
    let beside = standing
        .iter()
        .filter(|lease| compatible_with(lease, claimant));
    let holders = beside.count() + view.unread.slots.len();
    // Waiters that can hold the key together with the claim take a place from it, if places are counted.
    let first = alike.len() + view.unread.ahead;
    let waits = |waiter: &Claimant<'_>| waits_for(*waiter, claimant, &standing);
    conflicting.iter().all(waits) && holders + first < claim.mode.room()
}

/// Whether a waiter waits for paths that the claimant has already, so that it can't go before a claim for more.
pub fn waits_for(waiter: Claimant<'_>, claimant: Claimant<'_>, standing: &[&Lease]) -> bool {
    let is_own = |lease: &&&Lease| claimant.named && lease.holder.id == *claimant.holder;
    claimant.mode.paths().is_some()
        && standing
            .iter()
            .filter(is_own)
            .any(|lease| !compatible_with(lease, waiter))
}

/// The mode of a present waiter that contradicts this claim.
fn waited_for_in_other_mode(view: &View, claim: &Claim, ticket: ClaimTicket) -> Option<Mode> {
    let contradicts = |waiter: &&Waiter| {
        Some(waiter.ticket) != ticket.ticket()
            && waiter.presence == Presence::Here
            && waiter.mode.contradicts(&claim.mode)
    };
    view.queue
        .iter()
        .find(contradicts)
        .map(|waiter| waiter.mode.clone())
}

/// The ticket of this claim: the one that this process took under this name, or one of the same chosen name
/// from an interrupted wait in this epoch. Both for the same mode.
fn ticket(now: &Moment, view: &View, claim: &Claim) -> ClaimTicket {
    let own = |waiter: &&Waiter| {
        waiter.holder.binding.same_proof(&claim.asker)
            && waiter.holder.id == claim.holder.id
            && waiter.mode == claim.mode
    };
    if let Some(own) = view.queue.iter().find(own) {
        return ClaimTicket::Own(own.ticket);
    }
    let left_behind = |waiter: &&Waiter| {
        claim.named
            && waiter.named
            && waiter.holder.id == claim.holder.id
            && waiter.mode == claim.mode
            && waiter.presence == Presence::Away
            && waiter.epoch.same(&now.epoch)
    };
    view.queue
        .iter()
        .filter(left_behind)
        .min_by_key(|waiter| waiter.rank())
        .map_or(ClaimTicket::New, |waiter| {
            ClaimTicket::Resumed(waiter.ticket)
        })
}

/// The arrival time of a claim that is made now. It is never earlier than that of an existing waiter, so
/// that tickets and times agree even if the clock does not.
pub fn arrival(now: &Moment, queue: &[Waiter]) -> Duration {
    queue
        .iter()
        .filter(|waiter| waiter.epoch.same(&now.epoch))
        .map(|waiter| waiter.arrived)
        .fold(now.ticks, Duration::max)
}

/// The rank of a claim in the queue. A ticket keeps its arrival time; its priority changes only when it is
/// resumed, and the store records that.
pub fn rank(now: &Moment, view: &View, claim: &Claim, ticket: ClaimTicket) -> Rank {
    let find = |ticket| view.queue.iter().find(|waiter| waiter.ticket == ticket);
    match ticket {
        ClaimTicket::Own(ticket) => find(ticket).map(Waiter::rank),
        ClaimTicket::Resumed(ticket) => {
            find(ticket).map(|waiter| queue::rank(waiter.arrived, claim.priority, ticket))
        }
        ClaimTicket::New => None,
    }
    .unwrap_or_else(|| queue::rank(arrival(now, &view.queue), claim.priority, Ticket(u64::MAX)))
}

/// How long a claim that is granted has waited: since the ticket was taken that the grant uses up. `None` if it had none.
pub fn waited(now: &Moment, view: &View, decision: &Decision) -> Option<Duration> {
    match decision {
        Decision::Grant { ticket, .. } => since_ticket(now, view, *ticket),
        _ => None,
    }
}

/// How long ago this ticket was taken.
pub fn since_ticket(now: &Moment, view: &View, ticket: ClaimTicket) -> Option<Duration> {
    let ticket = ticket.ticket()?;
    let is_it = |waiter: &&Waiter| waiter.ticket == ticket && waiter.epoch.same(&now.epoch);
    let waiter = view.queue.iter().find(is_it)?;
    Some(now.ticks.saturating_sub(waiter.arrived))
}

/// Whether the claim comes from the holder of the lease, so that the lease is extended (and, if the claim
/// names a process, tied to it).
///
/// For a lease without a process of its own, the same chosen name is the same holder. A lease that is
/// tied to a process belongs to that process; one that the holder itself keeps alive belongs to one
/// claim of that process: a second claim beside it would be a second holder (G1).
fn is_same_holding(lease: &Lease, claim: &Claim) -> bool {
    let same_tie = match (&lease.holder.binding, &claim.holder.binding) {
        (ours, theirs) if ours.is_kept() || theirs.is_kept() => false,
        (Binding::Detached, Binding::Detached | Binding::Process { .. }) => true,
        (ours, theirs) => ours == theirs,
    };
    same_tie && claim.named && lease.holder.id == claim.holder.id
}

/// Whether the claim's own process has the lease, in the same name, or the same chosen name has it
/// without a process that keeps it.
fn is_kept_by_asker(lease: &Lease, claim: &Claim) -> bool {
    let (ours, theirs) = (&lease.holder.binding, &claim.holder.binding);
    let same_proof = ours.same_proof(theirs) || (!ours.is_kept() && !theirs.is_kept());
    lease.holder.id == claim.holder.id && same_proof && (claim.named || ours.is_kept())
}

/// Whether only the claimant could release the key: it runs under that lease, or its own name holds it
/// detached.
fn waits_for_itself(lease: &Lease, claim: &Claim) -> bool {
    let own_detached = claim.named
        && lease.holder.id == claim.holder.id
        && matches!(lease.holder.binding, Binding::Detached);
    own_detached || claim.within.contains(&lease.token)
}

/// The lease that `grant` may renew: the one on record (G6, G7), unless its process is proven dead. An
/// expired lease may be renewed, because no other holder has taken it over.
pub fn renew<'a>(view: &'a View, grant: &Grant) -> Option<&'a Lease> {
    let may = |(lease, liveness): &&(Lease, Liveness)| {
        lease.is(grant) && !matches!(liveness, Liveness::Gone(_))
    };
    view.leases.iter().find(may).map(|(lease, _)| lease)
}

/// The lease that `grant` may release: the one on record (G6).
pub fn release<'a>(view: &'a View, grant: &Grant) -> Option<&'a Lease> {
    let mut leases = view.leases.iter().map(|(lease, _)| lease);
    leases.find(|lease| lease.is(grant))
}

/// The lease under which a write that carries `token` may happen: one that has not ended (G7).
pub fn fence<'a>(now: &Moment, view: &'a View, token: Token) -> Option<&'a Lease> {
    let may = |(lease, liveness): &&(Lease, Liveness)| {
        lease.token == token && token != Token::NONE && ended(now, lease, liveness).is_none()
    };
    view.leases.iter().find(may).map(|(lease, _)| lease)
}

/// The proof that a lease has ended, if it has.
pub fn ended(now: &Moment, lease: &Lease, liveness: &Liveness) -> Option<Evidence> {
    Verdict::on(now, lease, liveness).ended().cloned()
}
