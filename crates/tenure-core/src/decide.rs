//! The rules: from (now, what the store holds, what is asked) to what happens.
//!
//! Every function is pure. A store reads a [`View`] inside a transaction, asks here, and writes
//! what the answer says inside the same transaction; so the guarantees proven here hold there.
//!
//! # The life of a key
//!
//! ```text
//!            acquire: Grant                     acquire by the same holder: Extend
//!   free  ------------------------->  held  ---------------------------------------.
//!    ^                                | ^ \________________________________________|
//!    |   release (Free)               | |  renew: Extend
//!    |<-------------------------------| |
//!    |   reap, force (End)            | |
//!    |<-------------------------------' | acquire: Grant with `ended`
//!                                       '-- (dead or expired: taken over in one step)
//! ```
//!
//! # Invariants
//!
//! 1. A grant is given only when no lease stands: none is there, or [`Verdict::over`] has the
//!    proof (G1, G3, G4).
//! 2. A granted token is larger than `View::newest`, which is at least every token ever given (G2).
//! 3. A grant is given only to the first in the queue of those that are here (G8).
//! 4. Only the very grant on record renews or releases (G6, G7).

use crate::claim::{Claim, Patience};
use crate::holder::Binding;
use crate::lease::{Grant, Lease, Token};
use crate::queue::{self, Presence, Rank, Ticket, Waiter};
use crate::store::Reason;
use crate::time::Moment;
use crate::verdict::{Evidence, Liveness, Verdict};

/// What a store holds of one key.
#[derive(Debug, Clone)]
pub struct View {
    /// The lease on record, and what the host found out about its process.
    pub lease: Option<(Lease, Liveness)>,
    /// Every ticket.
    pub queue: Vec<Waiter>,
    /// At least every token ever given for this key.
    pub newest: Token,
}

/// Which ticket a claim has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimTicket {
    /// None yet.
    New,
    /// Its own, from an earlier attempt of this wait.
    Own(Ticket),
    /// One that the same holder left behind when it was cut off.
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
    /// The key is given.
    Grant {
        /// With this number.
        token: Token,
        /// For this reason.
        reason: Reason,
        /// The lease that was over, and the proof.
        ended: Option<(Lease, Evidence)>,
        /// The ticket that is used up.
        claim_ticket: ClaimTicket,
    },
    /// The holder has it already: the lease goes on under its token.
    Extend {
        /// The token it has.
        token: Token,
        /// The ticket that is used up, if there is one.
        claim_ticket: ClaimTicket,
    },
    /// It is busy.
    Wait {
        /// The ticket to write or keep. A claim that only tries gets [`ClaimTicket::New`] and no ticket.
        claim_ticket: ClaimTicket,
        /// How many go first.
        ahead: usize,
    },
    /// It is busy, and only the asking process itself could free it.
    WaitForSelf,
}

/// Decides on a claim.
pub fn acquire(now: &Moment, view: &View, claim: &Claim) -> Decision {
    decide(now, view, claim, is_same_holding(view, claim))
}

/// The same for a key that one process shares among all that it does, as a runner shares a section
/// among its tasks: what the process has already, it has.
pub fn acquire_shared(now: &Moment, view: &View, claim: &Claim) -> Decision {
    let same = is_same_holding(view, claim) || is_kept_by_asker(view, claim);
    decide(now, view, claim, same)
}

/// The ticket of a claim, and how many go first.
pub fn place(now: &Moment, view: &View, claim: &Claim) -> (ClaimTicket, usize) {
    let claim_ticket = claim_ticket(now, view, claim);
    let ahead = queue::ahead(
        &others(view, claim_ticket),
        rank(now, view, claim, claim_ticket),
    );
    (claim_ticket, ahead)
}

fn decide(now: &Moment, view: &View, claim: &Claim, same_holding: bool) -> Decision {
    let (claim_ticket, ahead) = place(now, view, claim);
    let wait = match claim.patience {
        Patience::Queue => Decision::Wait {
            claim_ticket,
            ahead,
        },
        Patience::Try => Decision::Wait {
            claim_ticket: ClaimTicket::New,
            ahead,
        },
    };
    let (ended, reason) = match &view.lease {
        None => (None, Reason::AcquiredNew),
        Some((lease, liveness)) => {
            let verdict = Verdict::on(now, lease, liveness);
            // One that ran out goes on if nobody comes first; one whose process died does not.
            let goes_on = match verdict {
                Verdict::Alive | Verdict::Unknown(_) => true,
                Verdict::Expired(_) => ahead == 0,
                Verdict::Dead(_) | Verdict::Malformed => false,
            };
            if goes_on && same_holding {
                if lease.token == Token::NONE {
                    // Another program's, in our name: it goes on, with a number from now on.
                    return Decision::Grant {
                        token: view.newest.next(),
                        reason: Reason::AlreadyOwned,
                        ended: None,
                        claim_ticket,
                    };
                }
                return Decision::Extend {
                    token: lease.token,
                    claim_ticket,
                };
            }
            match verdict {
                Verdict::Dead(proof) => (Some((lease.clone(), proof)), Reason::ClaimedDead),
                Verdict::Expired(proof) => (Some((lease.clone(), proof)), Reason::ClaimedExpired),
                Verdict::Alive | Verdict::Unknown(_) | Verdict::Malformed => {
                    return if waits_for_itself(lease, claim) {
                        Decision::WaitForSelf
                    } else {
                        wait
                    };
                }
            }
        }
    };
    if ahead > 0 {
        return wait;
    }
    Decision::Grant {
        token: view.newest.next(),
        reason,
        ended,
        claim_ticket,
    }
}

/// The ticket that belongs to this claim: the one this process took in this name, or one that the
/// same chosen name left behind in this boot.
fn claim_ticket(now: &Moment, view: &View, claim: &Claim) -> ClaimTicket {
    let own = |waiter: &&Waiter| {
        claim.asker.liveness_lock().is_some()
            && waiter.holder.liveness_lock() == claim.asker.liveness_lock()
            && waiter.holder.id == claim.holder.id
    };
    if let Some(own) = view.queue.iter().find(own) {
        return ClaimTicket::Own(own.ticket);
    }
    let left_behind = |waiter: &&Waiter| {
        claim.named
            && waiter.named
            && waiter.holder.id == claim.holder.id
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

/// When a claim that comes now is taken to have come: never before those that are there, so that
/// tickets and times agree whatever the clock does.
pub fn arrival(now: &Moment, queue: &[Waiter]) -> std::time::Duration {
    queue
        .iter()
        .filter(|waiter| waiter.epoch.same(&now.epoch))
        .map(|waiter| waiter.arrived)
        .fold(now.ticks, std::time::Duration::max)
}

/// The place of a claim in the order of waiting. A ticket keeps the time it was taken; its
/// priority changes only when the place is resumed, which is written down.
pub fn rank(now: &Moment, view: &View, claim: &Claim, claim_ticket: ClaimTicket) -> Rank {
    let find = |ticket| view.queue.iter().find(|waiter| waiter.ticket == ticket);
    match claim_ticket {
        ClaimTicket::Own(ticket) => find(ticket).map(Waiter::rank),
        ClaimTicket::Resumed(ticket) => {
            find(ticket).map(|waiter| queue::rank(waiter.arrived, claim.priority, ticket))
        }
        ClaimTicket::New => None,
    }
    .unwrap_or_else(|| queue::rank(arrival(now, &view.queue), claim.priority, Ticket(u64::MAX)))
}

fn others(view: &View, claim_ticket: ClaimTicket) -> Vec<Waiter> {
    view.queue
        .iter()
        .filter(|waiter| Some(waiter.ticket) != claim_ticket.ticket())
        .cloned()
        .collect()
}

/// Whether the claim is by the one who has the lease, so that it is extended (and, if the claim
/// names a process, tied to that).
///
/// The same chosen name is, for leases that live without their holder's process. A lease that is
/// tied to a process belongs to that process and, if it is kept by the process itself, to one
/// asking of it: a second one beside it would be a second holder (G1).
fn is_same_holding(view: &View, claim: &Claim) -> bool {
    let Some((lease, _)) = &view.lease else {
        return false;
    };
    let same_tie = match (&lease.holder.binding, &claim.holder.binding) {
        (Binding::LivenessLock { .. }, _) | (_, Binding::LivenessLock { .. }) => false,
        (Binding::Detached, Binding::Detached | Binding::Process { .. }) => true,
        (ours, theirs) => ours == theirs,
    };
    same_tie && claim.named && lease.holder.id == claim.holder.id
}

/// Whether the claim's own process has the lease, in the same name, or the same chosen name has
/// it without a process that keeps it.
fn is_kept_by_asker(view: &View, claim: &Claim) -> bool {
    view.lease.as_ref().is_some_and(|(lease, _)| {
        lease.holder.id == claim.holder.id
            && lease.holder.liveness_lock() == claim.holder.liveness_lock()
            && (claim.named || lease.holder.liveness_lock().is_some())
    })
}

/// Whether only the asking process could free the key: it runs under that very lease, or its own
/// name holds it detached.
fn waits_for_itself(lease: &Lease, claim: &Claim) -> bool {
    let own_detached = claim.named
        && lease.holder.id == claim.holder.id
        && matches!(lease.holder.binding, Binding::Detached);
    own_detached || claim.within.contains(&lease.token)
}

/// Whether `grant` may be renewed: only while it is the one on record (G6, G7) and its process is
/// not proven dead. Its time may have run out: nobody took it.
pub fn renew(view: &View, grant: &Grant) -> bool {
    let dead = |(_, liveness): &(Lease, Liveness)| matches!(liveness, Liveness::Gone(_));
    on_record(view, grant) && !view.lease.as_ref().is_some_and(dead)
}

/// Whether `grant` may be released: only while it is the one on record (G6).
pub fn release(view: &View, grant: &Grant) -> bool {
    on_record(view, grant)
}

fn on_record(view: &View, grant: &Grant) -> bool {
    view.lease
        .as_ref()
        .is_some_and(|(lease, _)| lease.is(grant))
}

/// Whether a write that carries `token` may happen: only by the newest grant, while it stands (G7).
pub fn fence(now: &Moment, view: &View, token: Token) -> bool {
    view.lease.as_ref().is_some_and(|(lease, liveness)| {
        lease.token == token
            && token != Token::NONE
            && Verdict::on(now, lease, liveness).over().is_none()
    })
}

/// The proof that the lease on record is over, if it is.
pub fn reap(now: &Moment, view: &View) -> Option<Evidence> {
    let (lease, liveness) = view.lease.as_ref()?;
    Verdict::on(now, lease, liveness).over().cloned()
}
