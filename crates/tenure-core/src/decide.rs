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
pub enum Seat {
    /// None yet.
    New,
    /// Its own, from an earlier attempt of this wait.
    Own(Ticket),
    /// One that the same holder left behind when it was cut off.
    Resumed(Ticket),
}

impl Seat {
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
        seat: Seat,
    },
    /// The holder has it already: the lease goes on under its token.
    Extend {
        /// The token it has.
        token: Token,
        /// The ticket that is used up, if there is one.
        seat: Seat,
    },
    /// It is busy.
    Wait {
        /// The ticket to write or keep. A claim that only tries gets [`Seat::New`] and no ticket.
        seat: Seat,
        /// How many go first.
        ahead: usize,
    },
    /// It is busy, and only the asking process itself could free it.
    WaitForSelf,
}

/// Decides on a claim.
pub fn acquire(now: &Moment, view: &View, claim: &Claim) -> Decision {
    let seat = seat(view, claim);
    let ahead = queue::ahead(&others(view, seat), rank(now, view, claim, seat));
    let wait = match claim.patience {
        Patience::Queue => Decision::Wait { seat, ahead },
        Patience::Try => Decision::Wait {
            seat: Seat::New,
            ahead,
        },
    };
    let (ended, reason) = match &view.lease {
        None => (None, Reason::AcquiredNew),
        Some((lease, liveness)) => {
            let verdict = Verdict::on(now, lease, liveness);
            if is_same_holding(lease, claim) && (verdict.over().is_none() || ahead == 0) {
                return Decision::Extend {
                    token: lease.token,
                    seat,
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
        seat,
    }
}

/// The ticket that belongs to this claim.
fn seat(view: &View, claim: &Claim) -> Seat {
    let asker = claim.asker.life();
    if let Some(mine) = view
        .queue
        .iter()
        .find(|waiter| asker.is_some() && waiter.holder.life() == asker)
    {
        return Seat::Own(mine.ticket);
    }
    let left_behind = |waiter: &&Waiter| {
        claim.named
            && waiter.named
            && waiter.holder.id == claim.holder.id
            && waiter.presence == Presence::Away
    };
    view.queue
        .iter()
        .filter(left_behind)
        .min_by_key(|waiter| waiter.rank())
        .map_or(Seat::New, |waiter| Seat::Resumed(waiter.ticket))
}

/// When a claim that comes now is taken to have come: never before those that are there, so that
/// tickets and times agree whatever the clock does.
pub fn arrival(now: &Moment, queue: &[Waiter]) -> std::time::Duration {
    queue
        .iter()
        .filter(|waiter| waiter.boot.same(&now.boot))
        .map(|waiter| waiter.arrived)
        .fold(now.since_boot, std::time::Duration::max)
}

/// The place of a claim in the order of waiting.
pub fn rank(now: &Moment, view: &View, claim: &Claim, seat: Seat) -> Rank {
    let mine = seat
        .ticket()
        .and_then(|ticket| view.queue.iter().find(|waiter| waiter.ticket == ticket));
    match mine {
        Some(waiter) => queue::rank(waiter.arrived, claim.priority, waiter.ticket),
        None => queue::rank(arrival(now, &view.queue), claim.priority, Ticket(u64::MAX)),
    }
}

fn others(view: &View, seat: Seat) -> Vec<Waiter> {
    view.queue
        .iter()
        .filter(|waiter| Some(waiter.ticket) != seat.ticket())
        .cloned()
        .collect()
}

/// Whether the claim is by the one who has the lease, so that it is extended.
///
/// The same process is. The same name is only for leases that live without their process: a
/// second process of that name beside a running one would be a second holder (G1).
fn is_same_holding(lease: &Lease, claim: &Claim) -> bool {
    match (lease.holder.life(), claim.holder.life()) {
        (Some(theirs), Some(ours)) => theirs == ours,
        (None, None) => claim.named && lease.holder.id == claim.holder.id,
        (Some(_), None) | (None, Some(_)) => false,
    }
}

/// Whether only the asking process could free the key: it runs under that very lease, or its own
/// name holds it detached.
fn waits_for_itself(lease: &Lease, claim: &Claim) -> bool {
    let own_detached = claim.named
        && lease.holder.id == claim.holder.id
        && matches!(lease.holder.binding, Binding::Detached);
    own_detached || claim.within.contains(&lease.token)
}

/// Whether `grant` may be renewed: only while it is the one on record (G6, G7). Its time may have
/// run out: nobody took it.
pub fn renew(view: &View, grant: &Grant) -> bool {
    on_record(view, grant)
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
        lease.token == token && Verdict::on(now, lease, liveness).over().is_none()
    })
}

/// The proof that the lease on record is over, if it is.
pub fn reap(now: &Moment, view: &View) -> Option<Evidence> {
    let (lease, liveness) = view.lease.as_ref()?;
    Verdict::on(now, lease, liveness).over().cloned()
}
