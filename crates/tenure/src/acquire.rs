//! Try, queue, wait, deadline: the second of the five hops of an acquisition.
//!
//! # How a wait goes
//!
//! Each round asks the store once. Busy leaves a ticket and names what to watch; then the store
//! blocks until something happens that could let us go on: the holder ends or releases, the one
//! before us leaves, somebody rings. A lease that runs out wakes nobody, so the round ends at the
//! latest when it does, and after the poll interval in any case (the safety net).

use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use tenure_core::queue::TURN_LAPSE;
use tenure_core::{
    Acquired, Binding, Busy, Claim, Clock, Cycle, Lease, Moment, Patience, Place, Reason, Store,
    StoreError, Waited,
};
use tenure_host::identity;

/// How soon to look again after a lease should have run out: a hair after, not before.
const AFTER_EXPIRY: Duration = Duration::from_millis(1);

/// A request to stop waiting, made from another thread. Call [`Store::wake`] after it.
#[derive(Debug, Default)]
pub struct Cancel(AtomicU8);

const LEAVE: u8 = 1;
const CUT_OFF: u8 = 2;

impl Cancel {
    /// Stop and give the place up.
    pub fn leave(&self) {
        self.0.fetch_max(LEAVE, Ordering::SeqCst);
    }

    /// Stop, but keep the place if the holder may come back.
    pub fn cut_off(&self) {
        self.0.fetch_max(CUT_OFF, Ordering::SeqCst);
    }

    /// Whether either was asked for.
    pub fn is_requested(&self) -> bool {
        self.0.load(Ordering::SeqCst) > 0
    }
}

/// What becomes of the place when the wait ends without the key.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OnTimeout {
    /// It is given up.
    Leave,
    /// It is kept for a grace time: the same holder will ask again.
    KeepPlace,
}

/// How to wait.
#[derive(Debug, Clone, Copy)]
pub struct Waiting {
    /// At most this long.
    pub limit: Duration,
    /// Look again at least this often.
    pub poll: Duration,
    /// Tell the onlooker at least this often.
    pub tick: Duration,
    /// And then.
    pub on_timeout: OnTimeout,
}

/// What a wait looks like to somebody who watches it.
#[derive(Debug)]
pub struct Progress<'a> {
    /// Who stands in the way.
    pub busy: &'a Busy,
    /// How long it has lasted.
    pub elapsed: Duration,
    /// How long it may last.
    pub limit: Duration,
}

/// What came of asking.
#[derive(Debug)]
pub(crate) enum Answer {
    Granted {
        lease: Lease,
        reason: Reason,
        /// When the attempt that succeeded began: trust in the lease counts from here.
        asked: Moment,
    },
    Busy(Box<Busy>),
    Deadlock(Cycle),
    Cancelled,
    /// The process that the lease was to be tied to ended before it was granted.
    Bereaved(u32),
}

/// Asks for a key and waits for it if `waiting` says so.
pub(crate) fn acquire(
    store: &dyn Store,
    clock: &dyn Clock,
    claim: &Claim,
    waiting: Option<Waiting>,
    cancel: &Cancel,
    onlooker: &mut dyn FnMut(Progress<'_>),
) -> Result<Answer, StoreError> {
    debug_assert_eq!(waiting.is_some(), claim.patience == Patience::Queue);
    let began = clock.now();
    let mut resumed = false;
    let mut place = None;
    loop {
        if let Some(pid) = bereaved(claim) {
            step_aside(store, claim, place, OnTimeout::Leave)?;
            return Ok(Answer::Bereaved(pid));
        }
        let asked = clock.now();
        let mut busy = match store.acquire(claim)? {
            Acquired::Granted { lease, reason } => {
                return Ok(Answer::Granted {
                    lease,
                    reason,
                    asked,
                });
            }
            Acquired::Deadlock(cycle) => {
                step_aside(store, claim, place, OnTimeout::Leave)?;
                return Ok(Answer::Deadlock(cycle));
            }
            Acquired::Busy(busy) => busy,
        };
        let Some(waiting) = waiting else {
            return Ok(Answer::Busy(busy));
        };
        place = busy.place;
        if let Some(place) = &mut busy.place {
            // Only the first answer knows that the place is an old one; the onlooker should too.
            resumed |= place.resumed;
            place.resumed = resumed;
        }
        match round(
            store, clock, claim, &busy, &asked, &began, waiting, cancel, onlooker,
        ) {
            Ok(Round::LookAgain) => {}
            Ok(Round::TimeUp) => {
                step_aside(store, claim, place, waiting.on_timeout)?;
                return Ok(Answer::Busy(busy));
            }
            Ok(Round::Cancelled) => {
                let cut_off = cancel.0.load(Ordering::SeqCst) == CUT_OFF;
                let then = if cut_off {
                    waiting.on_timeout
                } else {
                    OnTimeout::Leave
                };
                step_aside(store, claim, place, then)?;
                return Ok(Answer::Cancelled);
            }
            Err(error) => {
                // The place would hold up the others for a while: give it up, if that still works.
                let _ = step_aside(store, claim, place, OnTimeout::Leave);
                return Err(error);
            }
        }
    }
}

fn step_aside(
    store: &dyn Store,
    claim: &Claim,
    place: Option<Place>,
    then: OnTimeout,
) -> Result<(), StoreError> {
    match (place, then) {
        (None, _) => Ok(()),
        (Some(place), OnTimeout::Leave) => store.leave(&claim.key, place.ticket),
        (Some(place), OnTimeout::KeepPlace) => store.park(&claim.key, place.ticket),
    }
}

/// The process that the lease is to be tied to, if it has ended: a lease that is over when it
/// begins is of no use to anybody.
fn bereaved(claim: &Claim) -> Option<u32> {
    match &claim.holder.binding {
        Binding::Process { process } if identity::has_ended(process) => Some(process.pid),
        Binding::Process { .. } | Binding::Detached | Binding::Life { .. } => None,
    }
}

enum Round {
    LookAgain,
    TimeUp,
    Cancelled,
}

/// Blocks until it is worth asking again.
#[expect(
    clippy::too_many_arguments,
    reason = "one half of `acquire`, split off to be readable"
)]
fn round(
    store: &dyn Store,
    clock: &dyn Clock,
    claim: &Claim,
    busy: &Busy,
    asked: &Moment,
    began: &Moment,
    waiting: Waiting,
    cancel: &Cancel,
    onlooker: &mut dyn FnMut(Progress<'_>),
) -> Result<Round, StoreError> {
    // From before the answer: a lease may have run out since it was given.
    let runs_out = busy
        .lease
        .as_ref()
        .and_then(|(lease, _)| lease.expires.remaining(asked));
    // However rarely we are to look, the others must hear of us before our turn lapses.
    let poll = waiting.poll.min(TURN_LAPSE / 3);
    let look_again = runs_out.map_or(poll, |left| left.saturating_add(AFTER_EXPIRY).min(poll));
    loop {
        if cancel.is_requested() {
            return Ok(Round::Cancelled);
        }
        let now = clock.now();
        let elapsed = now.since_boot.saturating_sub(began.since_boot);
        onlooker(Progress {
            busy,
            elapsed,
            limit: waiting.limit,
        });
        let left = waiting.limit.saturating_sub(elapsed);
        if left.is_zero() {
            return Ok(Round::TimeUp);
        }
        let due = look_again.saturating_sub(now.since_boot.saturating_sub(asked.since_boot));
        if due.is_zero() {
            return Ok(Round::LookAgain);
        }
        match store.wait(&busy.watch(&claim.key), due.min(left).min(waiting.tick))? {
            Waited::Changed if cancel.is_requested() => return Ok(Round::Cancelled),
            Waited::Changed => return Ok(Round::LookAgain),
            Waited::TimedOut => {}
        }
    }
}
