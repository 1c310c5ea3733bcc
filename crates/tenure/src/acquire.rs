//! Try, queue, wait, deadline: the second of the five hops of an acquisition.
//!
//! # How a wait goes
//!
//! Each round asks the store once. Busy leaves a ticket and names what to watch; then the store
//! blocks until something happens that could let us go on: the holder ends or releases, the one
//! before us leaves, somebody rings. A lease that runs out wakes nobody, so the round ends at the
//! latest when it does, and after the poll interval in any case (the safety net).

use std::cell::Cell;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::Duration;

use tenure_core::queue::TURN_LAPSE;
use tenure_core::task::Shortage;
use tenure_core::{
    Acquired, Binding, Busy, Claim, Clock, Cycle, Holder, Key, Lease, Moment, Reason, Store,
    StoreError, Ticket, Waited, Watched,
};
use tenure_host::identity;

use crate::Error;

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
    /// Tell the observer at least this often.
    pub tick: Duration,
    /// And then.
    pub on_timeout: OnTimeout,
}

/// What a wait looks like to somebody who watches it.
#[derive(Debug)]
pub struct Progress<'a> {
    /// What is waited for.
    pub key: &'a Key,
    /// Who stands in the way.
    pub busy: &'a Busy,
    /// Why there is no task, for somebody who looks for any.
    pub shortage: Option<Shortage>,
    /// How long it has lasted.
    pub elapsed: Duration,
    /// How long it may last.
    pub limit: Duration,
}

/// Something that is asked for, again and again until it is had.
pub(crate) trait Request {
    /// What is had then.
    type Got;

    /// Asks once.
    fn ask(&self) -> Result<Attempt<Self::Got>, Error>;

    /// Gives up, or keeps for a while, every place that asking took.
    fn withdraw(&self, then: OnTimeout) -> Result<(), Error>;

    /// What a lease is to be tied to.
    fn binding(&self) -> &Binding;
}

/// What came of asking once.
pub(crate) enum Attempt<T> {
    Got(T),
    Missed(Obstacle),
    Deadlock(Cycle),
}

/// What stands in the way, and what to wait for.
#[derive(Debug)]
pub struct Obstacle {
    /// The key that is not to be had.
    pub key: Key,
    /// Who stands in the way.
    pub busy: Box<Busy>,
    /// Why there is no task, for somebody who looks for any.
    pub shortage: Option<Shortage>,
    /// Whose end is worth waking up for.
    pub(crate) watch: Vec<Holder>,
    /// When something is due that wakes nobody.
    pub(crate) until: Option<Duration>,
    /// Whether waiting is no use.
    pub(crate) hopeless: bool,
}

impl Obstacle {
    /// One key that is busy. `asked` is from before the answer: a lease may have run out since.
    pub(crate) fn key(key: Key, busy: Box<Busy>, asked: &Moment) -> Self {
        let watch = busy.watch(&key).ahead.into_iter().cloned().collect();
        let lease = busy.lease.as_ref();
        let until = lease.and_then(|(lease, _)| lease.expires.remaining(asked));
        Self {
            key,
            busy,
            shortage: None,
            watch,
            until,
            hopeless: false,
        }
    }
}

/// What came of asking.
#[derive(Debug)]
pub(crate) enum Answer<T> {
    Got {
        got: T,
        /// When the attempt that succeeded began: trust in a lease counts from here.
        asked: Moment,
    },
    Missed(Obstacle),
    Deadlock(Cycle),
    Cancelled,
    /// The process that the lease was to be tied to ended before it was granted.
    TiedProcessEnded(u32),
}

/// One key.
pub(crate) struct OneKey<'a> {
    pub(crate) store: &'a dyn Store,
    pub(crate) clock: &'a dyn Clock,
    pub(crate) claim: &'a Claim,
    pub(crate) ticket: Cell<Option<Ticket>>,
}

impl Request for OneKey<'_> {
    type Got = (Lease, Reason);

    fn ask(&self) -> Result<Attempt<Self::Got>, Error> {
        let asked = self.clock.now();
        Ok(match self.store.acquire(self.claim)? {
            Acquired::Granted { lease, reason } => Attempt::Got((lease, reason)),
            Acquired::Deadlock(cycle) => Attempt::Deadlock(cycle),
            Acquired::Busy(busy) => {
                self.ticket.set(busy.place.map(|place| place.ticket));
                Attempt::Missed(Obstacle::key(self.claim.key.clone(), busy, &asked))
            }
        })
    }

    fn withdraw(&self, then: OnTimeout) -> Result<(), Error> {
        match (self.ticket.get(), then) {
            (None, _) => {}
            (Some(ticket), OnTimeout::Leave) => self.store.leave(&self.claim.key, ticket)?,
            (Some(ticket), OnTimeout::KeepPlace) => self.store.park(&self.claim.key, ticket)?,
        }
        Ok(())
    }

    fn binding(&self) -> &Binding {
        &self.claim.holder.binding
    }
}

/// Where a wait takes place, and who looks on.
pub(crate) struct WaitContext<'a> {
    pub(crate) store: &'a dyn Store,
    pub(crate) clock: &'a dyn Clock,
    pub(crate) waiting: Option<Waiting>,
    pub(crate) cancel: &'a Cancel,
    pub(crate) observer: &'a mut dyn FnMut(Progress<'_>),
}

/// Asks, and waits if `waiting` says so.
pub(crate) fn acquire<Q: Request>(
    request: &Q,
    around: &mut WaitContext<'_>,
) -> Result<Answer<Q::Got>, Error> {
    let began = around.clock.now();
    let mut resumed = false;
    let mut waited = false;
    loop {
        if let Some(pid) = tied_process_ended(request.binding()) {
            request.withdraw(OnTimeout::Leave)?;
            return Ok(Answer::TiedProcessEnded(pid));
        }
        let asked = around.clock.now();
        let attempt = match request.ask() {
            Ok(attempt) => attempt,
            Err(error) => {
                // The place would hold up the others for a while: give it up, if that still works.
                if waited {
                    let _ = request.withdraw(OnTimeout::Leave);
                }
                return Err(error);
            }
        };
        let mut obstacle = match attempt {
            Attempt::Got(got) => return Ok(Answer::Got { got, asked }),
            Attempt::Deadlock(cycle) => {
                request.withdraw(OnTimeout::Leave)?;
                return Ok(Answer::Deadlock(cycle));
            }
            Attempt::Missed(obstacle) => obstacle,
        };
        let Some(waiting) = around.waiting else {
            return Ok(Answer::Missed(obstacle));
        };
        waited = true;
        if let Some(place) = &mut obstacle.busy.place {
            // Only the first answer knows that the place is an old one; the observer should too.
            resumed |= place.resumed;
            place.resumed = resumed;
        }
        if obstacle.hopeless {
            request.withdraw(OnTimeout::Leave)?;
            return Ok(Answer::Missed(obstacle));
        }
        match round(around, waiting, &obstacle, &asked, &began) {
            Ok(Round::LookAgain) => {}
            Ok(Round::TimeUp) => {
                request.withdraw(waiting.on_timeout)?;
                return Ok(Answer::Missed(obstacle));
            }
            Ok(Round::Cancelled) => {
                let cut_off = around.cancel.0.load(Ordering::SeqCst) == CUT_OFF;
                let then = if cut_off {
                    waiting.on_timeout
                } else {
                    OnTimeout::Leave
                };
                request.withdraw(then)?;
                return Ok(Answer::Cancelled);
            }
            Err(error) => {
                let _ = request.withdraw(OnTimeout::Leave);
                return Err(error.into());
            }
        }
    }
}

/// The process that the lease is to be tied to, if it has ended: a lease that is over when it
/// begins is of no use to anybody.
fn tied_process_ended(binding: &Binding) -> Option<u32> {
    match binding {
        Binding::Process { process } if identity::has_ended(process) => Some(process.pid),
        _ => None,
    }
}

enum Round {
    LookAgain,
    TimeUp,
    Cancelled,
}

/// Blocks until it is worth asking again.
fn round(
    around: &mut WaitContext<'_>,
    waiting: Waiting,
    obstacle: &Obstacle,
    asked: &Moment,
    began: &Moment,
) -> Result<Round, StoreError> {
    // However rarely we are to look, the others must hear of us before our turn lapses.
    let poll = waiting.poll.min(TURN_LAPSE / 3);
    let due = obstacle.until;
    let look_again = due.map_or(poll, |left| left.saturating_add(AFTER_EXPIRY).min(poll));
    loop {
        if around.cancel.is_requested() {
            return Ok(Round::Cancelled);
        }
        let now = around.clock.now();
        let elapsed = now.ticks.saturating_sub(began.ticks);
        (around.observer)(Progress {
            key: &obstacle.key,
            busy: &obstacle.busy,
            shortage: obstacle.shortage,
            elapsed,
            limit: waiting.limit,
        });
        let left = waiting.limit.saturating_sub(elapsed);
        if left.is_zero() {
            return Ok(Round::TimeUp);
        }
        let due = look_again.saturating_sub(now.ticks.saturating_sub(asked.ticks));
        if due.is_zero() {
            return Ok(Round::LookAgain);
        }
        let watched = Watched {
            key: &obstacle.key,
            seen: obstacle.busy.revision,
            ahead: obstacle.watch.iter().collect(),
        };
        let timeout = due.min(left).min(waiting.tick);
        match around.store.wait(&watched, timeout)? {
            Waited::Changed if around.cancel.is_requested() => return Ok(Round::Cancelled),
            Waited::Changed => return Ok(Round::LookAgain),
            Waited::TimedOut => {}
        }
    }
}
