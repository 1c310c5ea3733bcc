//! Retries a request until it is granted, refused or times out: the second of the five hops of an
//! acquisition.
//!
//! # How a wait works
//!
//! Each round asks the store once. A busy answer leaves a ticket and names what to watch. Then the store
//! blocks until something happens that could let the waiter proceed: the holder exits or releases, the
//! waiter ahead leaves, another process wakes it. A lease that expires wakes no waiter, so the round ends
//! at the latest when the lease does, and in any case after the poll interval (the safety net).
//!
//! A wait that has begun goes on until its own limit although the servers of its store can't be reached: they may come back.
//! The ticket is still there then, or the request queues again.

use std::cell::Cell;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use tenure_core::ErrorKind::{self, Contended, OutcomeUnknown, Unreachable};
use tenure_core::queue::HEARTBEAT;
use tenure_core::{
    Acquired, Binding, Busy, Claim, Clock, Granted, Moment, Store, StoreError, Waited, Withdrawal,
};
use tenure_host::identity;
use tenure_host::interrupt::Interrupt;

use crate::Error;

/// How long one call of a store may take, where its caller has no deadline of its own.
pub const CALL_LIMIT: Duration = Duration::from_secs(60);

/// How long after the expiry of a lease to ask again: slightly later, never earlier.
const AFTER_EXPIRY: Duration = Duration::from_millis(1);

/// The deadline of one call of a store, where the caller has none of its own.
pub fn call_deadline() -> Instant {
    deadline_in(CALL_LIMIT)
}

/// The deadline of a call of a store that may take so long.
#[expect(
    clippy::disallowed_methods,
    reason = "a limit for one call, not the end of a lease: sleep need not count"
)]
pub(crate) fn deadline_in(limit: Duration) -> Instant {
    Instant::now() + limit
}

/// How much longer than its limit a wait may take, if the store does not answer.
const OVERTIME: Duration = Duration::from_secs(10);

/// How long a wait that was cancelled or has failed may take to withdraw its ticket. Other processes can prove that a waiter has
/// exited, so this is not worth more: Ctrl+C ends a command within a second, whatever its store does.
pub const LEAVE_LIMIT: Duration = Duration::from_millis(500);

/// A request to stop waiting, made from another thread.
#[derive(Default)]
pub struct Cancel {
    requested: AtomicU8,
    /// Ends the calls of the store.
    calls: Interrupt,
    waiting: Mutex<Vec<Weak<dyn Store>>>,
}

const LEAVE: u8 = 1;
const INTERRUPT: u8 = 2;

impl Cancel {
    /// Stops the wait and withdraws the ticket.
    pub fn leave(&self) {
        self.request(LEAVE);
    }

    /// Stops the wait, but keeps the ticket if the holder can resume it.
    pub fn interrupt(&self) {
        self.request(INTERRUPT);
    }

    /// Whether either was requested.
    pub fn is_requested(&self) -> bool {
        self.requested.load(Ordering::SeqCst) > 0
    }

    /// Calls `act` once, as soon as there is something to cancel: the request waits for its turn, or for
    /// the store.
    pub fn on_wait(&self, act: impl FnOnce() + Send + 'static) {
        self.calls.on_wait(act);
    }

    /// Makes calls of a store that give up when a stop is requested while the store is busy.
    pub fn during<T>(&self, calls: impl FnOnce() -> T) -> T {
        self.calls.during(calls)
    }

    fn request(&self, what: u8) {
        self.requested.fetch_max(what, Ordering::SeqCst);
        self.calls.request();
        let waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        for store in waiting.iter().filter_map(Weak::upgrade) {
            store.wake();
        }
    }

    /// Wakes this store when a stop is requested.
    fn register(&self, store: &Arc<dyn Store>) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let store = Arc::downgrade(store);
        waiting.retain(|there| there.strong_count() > 0 && !there.ptr_eq(&store));
        waiting.push(store);
    }
}

/// How to wait.
#[derive(Debug, Clone, Copy)]
pub(crate) struct WaitLimits {
    /// At most this long.
    pub limit: Duration,
    /// Poll at least this often.
    pub poll: Duration,
    /// Call the observer at least this often.
    pub tick: Duration,
    /// What happens to the tickets then.
    pub on_timeout: Withdrawal,
}

/// What an observer sees of a wait.
#[derive(Debug)]
pub struct Progress<'a> {
    /// The conflict.
    pub busy: &'a Busy,
    /// How long the wait has lasted.
    pub elapsed: Duration,
    /// How long it may last.
    pub limit: Duration,
    /// Why the store could not be asked just now. The conflict is that of the last answer then.
    pub unreachable: Option<&'a StoreError>,
}

/// A request that is retried until it is granted.
pub(crate) trait Request {
    /// What is granted.
    type Granted;

    /// Asks once.
    fn ask(&self, by: Instant) -> Result<Acquired<Self::Granted>, Error>;

    /// Withdraws or parks every ticket that the request took.
    fn withdraw(&self, then: Withdrawal, by: Instant) -> Result<(), Error>;

    /// What the lease will be tied to.
    fn binding(&self) -> &Binding;

    /// How much longer it is worth waiting after this answer.
    fn patience(&self, _busy: &Busy) -> Duration {
        Duration::MAX
    }
}

/// All of these keys, or none.
pub(crate) struct Keys<'a> {
    pub(crate) store: &'a dyn Store,
    pub(crate) claims: &'a [Claim],
    /// Whether there are tickets.
    pub(crate) queued: Cell<bool>,
}

impl Request for Keys<'_> {
    type Granted = Vec<Granted>;

    fn ask(&self, by: Instant) -> Result<Acquired<Vec<Granted>>, Error> {
        let answer = self.store.acquire_all(self.claims, by)?;
        if let Acquired::Busy(busy) = &answer {
            self.queued.set(busy.position.is_some());
        }
        Ok(answer)
    }

    fn withdraw(&self, then: Withdrawal, by: Instant) -> Result<(), Error> {
        if self.queued.get() {
            self.store.withdraw_all(self.claims, then, by)?;
        }
        Ok(())
    }

    fn binding(&self) -> &Binding {
        let first = self.claims.first();
        first.map_or(&Binding::Detached, |claim| &claim.holder.binding)
    }
}

/// Where a wait takes place, and who observes it.
pub(crate) struct WaitContext<'a> {
    pub(crate) store: &'a Arc<dyn Store>,
    pub(crate) clock: &'a dyn Clock,
    pub(crate) waiting: Option<WaitLimits>,
    pub(crate) cancel: &'a Cancel,
    pub(crate) observer: &'a mut dyn FnMut(Progress<'_>),
}

/// Makes the request, and waits if `waiting` is given. Returns the grant with the moment at which the
/// successful attempt began: the holder trusts its lease from there.
pub(crate) fn acquire<R: Request>(
    request: &R,
    context: &mut WaitContext<'_>,
) -> Result<Acquired<(R::Granted, Moment)>, Error> {
    let began = context.clock.now();
    let mut resumed = false;
    // The last answer, while waiting.
    let mut last: Option<Box<Busy>> = None;
    if context.waiting.is_some() {
        context.cancel.register(context.store);
    }
    loop {
        if let Some(pid) = tied_process_ended(request.binding()) {
            request.withdraw(Withdrawal::Leave, call_deadline())?;
            return Err(Error::NoProcess(pid));
        }
        let asked = context.clock.now();
        let by = match &context.waiting {
            Some(waiting) => {
                let elapsed = asked.ticks.saturating_sub(began.ticks);
                let left = waiting.limit.saturating_sub(elapsed);
                deadline_in(left.saturating_add(OVERTIME).min(CALL_LIMIT))
            }
            None => call_deadline(),
        };
        let answer = match context.cancel.during(|| request.ask(by)) {
            Ok(answer) => answer,
            Err(error)
                // Nothing was changed: the store was busy, or none of its servers could be asked.
                if context.cancel.is_requested()
                    && matches!(store_failure(&error), Some(Contended | Unreachable)) =>
            {
                return cancelled(request, context);
            }
            Err(error) => {
                let elapsed = context.clock.now().ticks.saturating_sub(began.ticks);
                if let (Error::Store(error), Some(busy), Some(waiting)) =
                    (&error, &last, &context.waiting)
                    && error.kind == Unreachable
                    && elapsed < waiting.limit
                {
                    (context.observer)(Progress {
                        busy,
                        elapsed,
                        limit: waiting.limit,
                        unreachable: Some(error),
                    });
                    continue;
                }
                // The ticket would delay other waiters for a while: withdraw it, if the store still works.
                if last.is_some() {
                    let limit = match &error {
                        Error::Store(_) => LEAVE_LIMIT,
                        _ => CALL_LIMIT,
                    };
                    let _ = request.withdraw(Withdrawal::Leave, deadline_in(limit));
                }
                return Err(error);
            }
        };
        let mut busy = match answer {
            Acquired::Busy(busy) => busy,
            other => {
                if matches!(other, Acquired::Deadlock(_)) {
                    request.withdraw(Withdrawal::Leave, call_deadline())?;
                }
                return Ok(other.map(|granted| (granted, asked)));
            }
        };
        let Some(waiting) = context.waiting else {
            return Ok(Acquired::Busy(busy));
        };
        if let Some(position) = &mut busy.position {
            // Only the first answer reports that the ticket was resumed; pass that on to the observer.
            resumed |= position.resumed;
            position.resumed = resumed;
        }
        let patience = request.patience(&busy);
        if patience.is_zero() {
            request.withdraw(Withdrawal::Leave, call_deadline())?;
            return Ok(Acquired::Busy(busy));
        }
        match round(context, waiting, &busy, patience, &asked, &began) {
            Ok(WaitRound::LookAgain) => last = Some(busy),
            Ok(WaitRound::TimeUp) => {
                request.withdraw(waiting.on_timeout, deadline_in(OVERTIME))?;
                return Ok(Acquired::Busy(busy));
            }
            Ok(WaitRound::Cancelled) => return cancelled(request, context),
            Err(error) => {
                let _ = request.withdraw(Withdrawal::Leave, deadline_in(LEAVE_LIMIT));
                return Err(error.into());
            }
        }
    }
}

/// The wait was cancelled: gives the ticket up, or keeps it for a while if it was only interrupted.
fn cancelled<R: Request, T>(request: &R, context: &WaitContext<'_>) -> Result<Acquired<T>, Error> {
    let interrupted = context.cancel.requested.load(Ordering::SeqCst) == INTERRUPT;
    let then = match context.waiting {
        Some(waiting) if interrupted => waiting.on_timeout,
        _ => Withdrawal::Leave,
    };
    match request.withdraw(then, deadline_in(LEAVE_LIMIT)) {
        Ok(()) => Ok(Acquired::Cancelled),
        // A ticket that could not be withdrawn ends with this process.
        Err(error) => match store_failure(&error) {
            Some(Contended | Unreachable | OutcomeUnknown) => Ok(Acquired::Cancelled),
            _ => Err(error),
        },
    }
}

/// How the store failed, if it was the store.
fn store_failure(error: &Error) -> Option<ErrorKind> {
    match error {
        Error::Store(error) => Some(error.kind),
        _ => None,
    }
}

/// The process that the lease would be tied to, if it has exited: such a lease would end at once.
fn tied_process_ended(binding: &Binding) -> Option<u32> {
    match binding {
        Binding::Process { process } if identity::has_ended(process) => Some(process.pid),
        _ => None,
    }
}

/// How often to ask again without a wake-up. Only a waiter near the front can be the one that has to
/// notice that the holder has died and the waiters ahead do not react: a thousand that ask all the time
/// would keep the store from the few. A release wakes the first waiter that is present, however far back
/// it is, and so does every claim that finds the key free.
fn poll_interval(waiting: &WaitLimits, busy: &Busy) -> Duration {
    let poll = waiting.poll.min(HEARTBEAT);
    // A person who watches the wait wants to see it move.
    let longest = if waiting.tick < poll { 2 } else { 60 };
    let ahead = busy.position.map_or(0, |position| position.ahead);
    let factor = u32::try_from(1 + ahead / 2).unwrap_or(u32::MAX);
    poll.saturating_mul(factor.min(longest))
}

enum WaitRound {
    LookAgain,
    TimeUp,
    Cancelled,
}

/// Blocks until it is worth asking again.
fn round(
    context: &mut WaitContext<'_>,
    waiting: WaitLimits,
    busy: &Busy,
    patience: Duration,
    asked: &Moment,
    began: &Moment,
) -> Result<WaitRound, StoreError> {
    let poll = poll_interval(&waiting, busy).min(patience);
    context.cancel.calls.waits();
    loop {
        if context.cancel.is_requested() {
            return Ok(WaitRound::Cancelled);
        }
        let now = context.clock.now();
        let elapsed = now.ticks.saturating_sub(began.ticks);
        (context.observer)(Progress {
            busy,
            elapsed,
            limit: waiting.limit,
            unreachable: None,
        });
        let left = waiting.limit.saturating_sub(elapsed);
        if left.is_zero() {
            return Ok(WaitRound::TimeUp);
        }
        let poll_due = poll.saturating_sub(now.ticks.saturating_sub(asked.ticks));
        let ends_in = busy.look_again.as_ref().map(|end| {
            let left = end.remaining(&now).unwrap_or_default();
            left.saturating_add(AFTER_EXPIRY)
        });
        let overdue = busy.look_again.as_ref().is_some_and(|end| end.passed(&now));
        if poll_due.is_zero() || overdue {
            return Ok(WaitRound::LookAgain);
        }
        let due = ends_in.map_or(poll_due, |ends_in| ends_in.min(poll_due));
        let timeout = due.min(left).min(waiting.tick);
        match context.store.wait(&busy.watched(), timeout)? {
            Waited::Changed if context.cancel.is_requested() => return Ok(WaitRound::Cancelled),
            Waited::Changed => return Ok(WaitRound::LookAgain),
            Waited::TimedOut => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::memory::MemoryStore;

    #[test]
    fn a_cancel_that_is_used_again_remembers_each_store_once() {
        let cancel = Cancel::default();
        let store: Arc<dyn Store> = Arc::new(MemoryStore::default());
        for _ in 0..10 {
            cancel.register(&store);
        }
        assert_eq!(cancel.waiting.lock().unwrap().len(), 1);
    }
}
