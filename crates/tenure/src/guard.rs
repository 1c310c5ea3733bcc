//! A lease that is renewed until it is dropped, or several that were granted together: [`Guard`].
//!
//! A guard of several leases keeps all of them or none: once one of them is lost, it trusts none. They are renewed in
//! one step, and released in one step.
//!
//! # Trust
//!
//! A holder trusts its lease only until its time to live has passed since the attempt that got or
//! renewed it *began*, less a margin, on the clock that also counts sleep (G7). Two threads see to it:
//!
//! - The *keeper* renews the lease every third of its time to live, and watches the store for a change
//!   of hands. A lease that expired while the machine slept goes on if no other holder took it: the
//!   keeper asks the store at once on waking up.
//! - The *watchdog* ends the trust by the clock alone, whatever the store's call is doing. If the keeper
//!   hangs in a call, the loss is reported on time. If the watchdog itself comes late, because the
//!   process was stopped or the machine slept, the keeper gets a moment to ask the store first.
//!
//! Once a lease is lost it stays lost.
//!
//! Most work under a lock takes milliseconds: the two threads and their first look at the store would cost more than the
//! lock itself. So they start when a lease has been held for a moment (`starter`).

mod starter;

use std::os::fd::OwnedFd;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};
use rustix::pipe::{PipeFlags, pipe_with};
use tenure_core::{
    Clock, ErrorKind, Event, Fenced, Grant, Granted, Key, Lease, Moment, Reason, Released, Renewed,
    Store, StoreError, Token, Waited, Watched, requests,
};
use tenure_host::bell::alarm;
use tenure_host::interrupt::Interrupt;

use crate::acquire::{CALL_LIMIT, call_deadline, deadline_in};
use crate::ask::Tie;
use crate::open::Tenure;

/// The stack of the two threads: they make a few calls.
const STACK: usize = 256 * 1024;

/// How long the keeper may take to ask the store after its process was stopped, at least.
const AFTER_A_STOP: Duration = Duration::from_secs(1);

/// How long the release of a lost or expired lease may take: it is no longer needed, and a store that does not answer may be
/// why it was lost.
const AFTER_LOSS: Duration = Duration::from_secs(2);

/// How a lease was lost.
#[derive(Debug)]
#[non_exhaustive]
pub enum Loss {
    /// It is no longer on record; the leases that are there now.
    Taken(Vec<Lease>),
    /// It could not be renewed for as long as it could be trusted; the last error, if the store
    /// answered at all.
    NotRenewed(Option<StoreError>),
}

/// A lease that is ours, or several that were granted together.
///
/// Tied to this process it is renewed by threads of its own, and given back when it is dropped. Tied
/// to anything else it is neither.
#[must_use]
pub struct Guard {
    first: Granted,
    /// The others that were granted together with it.
    others: Vec<Granted>,
    pub(crate) tie: Tie,
    keeping: Arc<Keeping>,
    released: bool,
}

/// What the guard and its threads share.
struct Keeping {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    /// As they were granted.
    leases: Vec<Lease>,
    grants: Vec<Grant>,
    /// The first key, which stands for all of them if none could be renewed.
    key: Key,
    ttl: Duration,
    expires: bool,
    /// Look at least this often, should no wake-up come.
    poll: Duration,
    /// Ends the keeper's calls of the store.
    stopped: Interrupt,
    trust: Mutex<Trust>,
    threads: Mutex<Threads>,
}

#[derive(Default)]
struct Threads {
    /// They must not start any more.
    stopped: bool,
    keeper: Option<JoinHandle<()>>,
    watchdog: Option<(JoinHandle<()>, OwnedFd)>,
}

/// When a guard begins to renew.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Renewal {
    FromTheStart,
    Later,
}

#[derive(Default)]
struct Trust {
    /// In ticks; `None` for a lease that does not expire.
    until: Option<Duration>,
    stop: bool,
    last_error: Option<StoreError>,
    /// The key whose lease was lost first, and how.
    loss: Option<(Key, Arc<Loss>)>,
    on_lost: Vec<Box<dyn FnOnce() + Send>>,
    on_asked: Option<Box<dyn FnMut(Event) + Send>>,
}

impl Guard {
    pub(crate) fn new(
        tenure: &Tenure,
        (first, others): (Granted, Vec<Granted>),
        asked: &Moment,
        tie: Tie,
        renewal: Renewal,
    ) -> Self {
        let granted = std::iter::once(&first).chain(&others);
        let leases: Vec<Lease> = granted.map(|it| it.lease.clone()).collect();
        let lease = &first.lease;
        let keeping = Keeping {
            store: Arc::clone(&tenure.store),
            clock: Arc::clone(&tenure.clock),
            grants: leases.iter().map(Lease::grant).collect(),
            leases,
            key: lease.key.clone(),
            ttl: lease.ttl,
            expires: lease.expires.is_some(),
            poll: tenure.config.locking.poll_interval,
            stopped: Interrupt::default(),
            trust: Mutex::new(Trust {
                until: trusted_until(lease, asked.ticks),
                ..Trust::default()
            }),
            threads: Mutex::default(),
        };
        let guard = Self {
            first,
            others,
            tie,
            keeping: Arc::new(keeping),
            released: false,
        };
        if renewal == Renewal::FromTheStart && tie == Tie::ThisProcess {
            starter::start_soon(&guard.keeping);
        }
        guard
    }

    /// Starts to renew, if [`Ask::renew_later`](crate::Ask::renew_later) put it off. A lease that is tied
    /// to anything but this process is not renewed.
    pub fn start_renewal(&mut self) {
        if self.tie == Tie::ThisProcess {
            Keeping::start(&self.keeping);
        }
    }

    /// Calls `tell` from another thread when the lease is lost, or at once if it was lost already.
    pub fn on_lost(&self, tell: impl FnOnce() + Send + 'static) {
        let mut trust = self.keeping.trust();
        if trust.loss.is_none() {
            trust.on_lost.push(Box::new(tell));
            return;
        }
        drop(trust);
        tell();
    }

    /// Calls `tell` from another thread for each request to release one of the keys, also for those that were made before.
    /// Requests are noticed at once on this machine, and on others at the next renewal.
    pub fn on_asked(&self, tell: impl FnMut(Event) + Send + 'static) {
        self.keeping.trust().on_asked = Some(Box::new(tell));
    }

    /// How long its holder may take to stop once the lease can't be trusted any more: half of what is kept
    /// in reserve until it ends.
    pub(crate) fn time_to_react(&self) -> Duration {
        margin(self.first.lease.ttl) / 2
    }

    /// How the lease was lost, if it was.
    pub fn loss(&self) -> Option<Arc<Loss>> {
        let trust = self.keeping.trust();
        trust.loss.as_ref().map(|(_, how)| how.clone())
    }

    /// The key whose lease was lost, if one was. With several, the first that was lost.
    pub fn lost_key(&self) -> Option<Key> {
        let trust = self.keeping.trust();
        trust.loss.as_ref().map(|(key, _)| key.clone())
    }

    /// The lease as it was granted; of several, the first.
    pub fn lease(&self) -> &Lease {
        &self.first.lease
    }

    /// Every lease that was granted together, in the order in which the keys were named.
    pub fn leases(&self) -> impl Iterator<Item = &Lease> {
        self.granted().map(|(lease, _)| lease)
    }

    /// The same with the reason for which each was granted.
    pub fn granted(&self) -> impl Iterator<Item = (&Lease, Reason)> {
        let granted = std::iter::once(&self.first).chain(&self.others);
        granted.map(|it| (&it.lease, it.reason))
    }

    /// What is held.
    pub fn key(&self) -> &Key {
        &self.first.lease.key
    }

    /// The fencing token: pass it on to whatever is written.
    pub fn token(&self) -> Token {
        self.first.lease.token
    }

    /// Why it was granted.
    pub fn reason(&self) -> Reason {
        self.first.reason
    }

    /// Whether the lease may be trusted right now, without asking the store.
    pub fn is_trusted(&self) -> bool {
        let trust = self.keeping.trust();
        let in_time = trust.until.is_none_or(|until| self.keeping.now() < until);
        trust.loss.is_none() && in_time
    }

    /// Until when the lease may be trusted unless it is renewed, in ticks of the clock that counts from boot; `None` if it
    /// does not expire.
    pub fn trusted_until(&self) -> Option<Duration> {
        self.keeping.trust().until
    }

    /// How the lease was lost, if it was, or if it can't be trusted any more by now. For a holder that has not begun to
    /// renew it, and so has no watchdog.
    pub fn lost_by_now(&self) -> Option<Arc<Loss>> {
        let until = self.trusted_until();
        if let Some(until) = until.filter(|until| self.keeping.now() >= *until) {
            self.keeping.expire(until);
        }
        self.loss()
    }

    /// Asks the store whether this lease has not ended.
    pub fn check(&self) -> Result<bool, StoreError> {
        for lease in self.leases() {
            let store = &self.keeping.store;
            let fenced = store.fence(&lease.key, lease.token, call_deadline())?;
            if !matches!(fenced, Fenced::Current(_)) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// Gives the key back. Of several, the answer is about one whose lease had ended before, if there is one.
    pub fn release(mut self) -> Result<Released, StoreError> {
        let mut released = self.give_back(CALL_LIMIT)?;
        let gone = |released: &Released| matches!(released, Released::AlreadyGone(_));
        let gone = released.iter().position(gone);
        let mut told = released.drain(gone.unwrap_or(0)..);
        Ok(told.next().unwrap_or(Released::AlreadyGone(Vec::new())))
    }

    /// Gives every key back, and reports on each, in the order in which the keys were named: for a caller that has so much
    /// time. A release never takes longer than the lease lasts by this machine's clock: other processes find out by
    /// themselves that it has expired.
    pub fn release_all_within(
        mut self,
        limit: Duration,
    ) -> Result<Vec<(Lease, Released)>, StoreError> {
        let released = self.give_back(limit)?;
        Ok(self.leases().cloned().zip(released).collect())
    }

    /// Drops the guard without giving the key back: for a lease that ends by its time to live or with
    /// another process.
    pub fn leave_standing(mut self) {
        self.disarm();
    }

    /// Stops renewing, and leaves the lease as it is.
    pub(crate) fn disarm(&mut self) {
        self.stop();
        self.released = true;
    }

    /// What became of each lease.
    fn give_back(&mut self, limit: Duration) -> Result<Vec<Released>, StoreError> {
        self.released = true;
        let by = deadline_in(self.worth_releasing().min(limit));
        self.stop();
        let keeping = &self.keeping;
        keeping.store.release_all(&keeping.grants, by)
    }

    /// How long a release is worth waiting for.
    fn worth_releasing(&self) -> Duration {
        let trust = self.keeping.trust();
        let until = trust.until.filter(|_| trust.loss.is_none());
        match until {
            Some(until) => {
                let left = until.saturating_sub(self.keeping.now());
                let left = left.saturating_add(margin(self.first.lease.ttl));
                left.clamp(AFTER_LOSS, CALL_LIMIT)
            }
            None if trust.loss.is_some() => AFTER_LOSS,
            None => CALL_LIMIT,
        }
    }

    /// Ends the threads. A keeper that hangs in a call of the store is left to itself.
    fn stop(&mut self) {
        let lost = {
            let mut trust = self.keeping.trust();
            trust.stop = true;
            trust.loss.is_some()
        };
        let (keeper, watchdog) = {
            let mut threads = self.keeping.threads();
            threads.stopped = true;
            (threads.keeper.take(), threads.watchdog.take())
        };
        // A guard that is released by what `on_lost` or `on_asked` calls is released on one of its own threads.
        let is_another =
            |thread: &JoinHandle<()>| thread.thread().id() != std::thread::current().id();
        if let Some((watchdog, stopper)) = watchdog {
            drop(stopper);
            if is_another(&watchdog) {
                let _ = watchdog.join();
            }
        }
        if let Some(keeper) = keeper {
            // What it asks of the store is not needed any more.
            self.keeping.stopped.request();
            self.keeping.store.wake();
            if is_another(&keeper) && (!lost || keeper.is_finished()) {
                let _ = keeper.join();
            }
        }
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.tie != Tie::ThisProcess {
            return;
        }
        if self.released {
            self.stop();
        } else {
            // Nobody to tell: if it fails, the lease ends with this process.
            let _ = self.give_back(CALL_LIMIT);
        }
    }
}

impl Keeping {
    fn threads(&self) -> MutexGuard<'_, Threads> {
        self.threads.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn trust(&self) -> MutexGuard<'_, Trust> {
        self.trust.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn now(&self) -> Duration {
        self.clock.now().ticks
    }

    /// Starts the keeper and the watchdog, unless they run or are not needed any more.
    fn start(this: &Arc<Self>) {
        let mut threads = this.threads();
        if threads.stopped || threads.keeper.is_some() {
            return;
        }
        if let Err(error) = Self::start_in(this, &mut threads) {
            drop(threads);
            let error = StoreError::new(ErrorKind::Io, "there is no thread to renew the lease")
                .because(error);
            this.lose(&this.key, Loss::NotRenewed(Some(error)));
        }
    }

    fn start_in(this: &Arc<Self>, threads: &mut Threads) -> std::io::Result<()> {
        let thread = |name: &str| {
            std::thread::Builder::new()
                .name(name.into())
                .stack_size(STACK)
        };
        let keeper = Arc::clone(this);
        let keep = move || keeper.stopped.clone().during(|| keeper.keep());
        threads.keeper = Some(thread("keep-lease").spawn(keep)?);
        if this.expires {
            let (stop, stopper) = pipe_with(PipeFlags::CLOEXEC)?;
            let watchdog = Arc::clone(this);
            let watch = move || watchdog.watch(&stop);
            threads.watchdog = Some((thread("watch-lease").spawn(watch)?, stopper));
        }
        Ok(())
    }

    /// Records the loss, if it is the first, and tells those that want to know.
    fn lose(&self, key: &Key, loss: Loss) {
        Self::lose_in(self.trust(), key, loss);
    }

    /// Ends the trust that lasted until `until`, unless the keeper renewed the lease meanwhile.
    fn expire(&self, until: Duration) {
        let mut trust = self.trust();
        if trust.until == Some(until) {
            let last_error = trust.last_error.take();
            Self::lose_in(trust, &self.key, Loss::NotRenewed(last_error));
        }
    }

    fn lose_in(mut trust: MutexGuard<'_, Trust>, key: &Key, loss: Loss) {
        if trust.loss.is_some() || trust.stop {
            return;
        }
        trust.loss = Some((key.clone(), Arc::new(loss)));
        let on_lost = std::mem::take(&mut trust.on_lost);
        drop(trust);
        for tell in on_lost {
            tell();
        }
    }

    /// Whether the threads have nothing more to do.
    fn is_over(&self) -> bool {
        let trust = self.trust();
        trust.stop || trust.loss.is_some()
    }
}

/// What is kept in reserve between the end of trust and the end of a lease.
fn margin(ttl: Duration) -> Duration {
    (ttl / 10).min(Duration::from_secs(5))
}

/// Until when a lease may be trusted that was asked for at `asked`.
fn trusted_until(lease: &Lease, asked: Duration) -> Option<Duration> {
    lease.expires.as_ref()?;
    Some(asked.saturating_add(lease.ttl.saturating_sub(margin(lease.ttl))))
}

/// What came of one round of the keeper.
enum KeeperRound {
    /// The lease goes on.
    Kept,
    /// The lease goes on, and something may have happened to it: it was renewed, or this process was woken.
    Woken,
    /// The lease of this key is lost.
    Lost(Key, Vec<Lease>),
    /// The store failed.
    Failed(StoreError),
}

impl Keeping {
    /// The watchdog: reports the loss when the time of trust has passed, and ends when `stop` closes.
    fn watch(&self, stop: &OwnedFd) {
        let margin = margin(self.ttl);
        let mut extended_until = Duration::ZERO;
        loop {
            if self.is_over() {
                return;
            }
            let Some(until) = self.trust().until else {
                return;
            };
            let (now, end) = (self.now(), until.max(extended_until));
            if now >= end {
                let late = now.saturating_sub(until);
                if extended_until > until || late < margin / 2 {
                    self.expire(until);
                    continue;
                }
                // This process was stopped, or the machine slept: the keeper asks the store first.
                extended_until = now.saturating_add(margin.max(AFTER_A_STOP));
                continue;
            }
            let Ok(timer) = alarm(end.saturating_sub(now)) else {
                std::thread::sleep((end.saturating_sub(now)).min(Duration::from_millis(100)));
                continue;
            };
            let mut fds = [
                PollFd::new(stop, PollFlags::IN),
                PollFd::new(&timer, PollFlags::IN),
            ];
            let polled = poll(&mut fds, None);
            let [stopped, _] = fds;
            if polled.is_ok() && !stopped.revents().is_empty() {
                return;
            }
        }
    }

    /// The keeper: renews until told to stop, or the lease is lost.
    fn keep(&self) {
        let mut renew_at = self.now().saturating_add(self.ttl / 3);
        let mut told = 0;
        while !self.is_over() {
            match self.round(&mut renew_at) {
                KeeperRound::Kept => self.trust().last_error = None,
                KeeperRound::Woken => self.look_for_requests(&mut told),
                KeeperRound::Lost(key, now) => return self.lose(&key, Loss::Taken(now)),
                // What was held in it is lost; a retry would only use up the rest of the trust.
                KeeperRound::Failed(error) if error.kind == ErrorKind::Gone => {
                    return self.lose(&self.key, Loss::NotRenewed(Some(error)));
                }
                KeeperRound::Failed(error) => {
                    self.trust().last_error = Some(error);
                    std::thread::sleep((self.ttl / 30).min(Duration::from_secs(1)));
                }
            }
        }
    }

    /// Renews if it is time, or waits.
    fn round(&self, renew_at: &mut Duration) -> KeeperRound {
        let now = self.now();
        if now >= *renew_at {
            let round = self.renew();
            if matches!(round, KeeperRound::Kept) {
                *renew_at = now.saturating_add(self.ttl / 3);
                return KeeperRound::Woken;
            }
            return round;
        }
        let mut seen = None;
        for grant in &self.grants {
            let snapshot = match self.store.inspect(&grant.key, self.deadline()) {
                Ok(snapshot) => snapshot,
                Err(error) => return KeeperRound::Failed(error),
            };
            let ours = |(lease, _): &(Lease, _)| lease.is(grant);
            if !snapshot.leases.iter().any(ours) {
                // It may only be out of its place: a store that can puts it back.
                return self.renew();
            }
            // The first: what changes after it is noticed.
            seen.get_or_insert(snapshot.revision);
        }
        // After the snapshots: a stop from here on changes their revision.
        if self.is_over() {
            return KeeperRound::Kept;
        }
        let (Some((first, others)), Some(seen)) = (self.grants.split_first(), seen) else {
            return KeeperRound::Kept;
        };
        let watched = Watched {
            key: &first.key,
            seen,
            held: Some(vec![first.token]),
            others: others
                .iter()
                .map(|other| (&other.key, vec![other.token]))
                .collect(),
            ahead: Vec::new(),
        };
        let timeout = renew_at.saturating_sub(now).min(self.poll);
        match self.store.wait(&watched, timeout) {
            Ok(Waited::Changed) => KeeperRound::Woken,
            Ok(Waited::TimedOut) => KeeperRound::Kept,
            Err(error) => KeeperRound::Failed(error),
        }
    }

    /// Reports the requests with a larger number than `told`. Best effort: they are found again at the next renewal.
    fn look_for_requests(&self, told: &mut u64) {
        if self.is_over() || self.trust().on_asked.is_none() {
            return;
        }
        let Ok(requests) = requests(&*self.store, &self.leases, self.deadline()) else {
            return;
        };
        let before = *told;
        for request in requests.into_iter().filter(|request| request.id > before) {
            *told = request.id;
            // Not while the lock is held: the caller may ask the guard something.
            let tell = self.trust().on_asked.take();
            if let Some(mut tell) = tell {
                tell(request);
                self.trust().on_asked.get_or_insert(tell);
            }
        }
    }

    fn renew(&self) -> KeeperRound {
        let asked = self.now();
        let renewed = match self
            .store
            .renew_all(&self.grants, self.ttl, self.deadline())
        {
            Ok(renewed) => renewed,
            Err(error) => return KeeperRound::Failed(error),
        };
        let mut until = self.trust().until;
        for (grant, renewed) in self.grants.iter().zip(renewed) {
            match renewed {
                Renewed::Extended(lease) => until = trusted_until(&lease, asked),
                Renewed::Lost(now) => return KeeperRound::Lost(grant.key.clone(), now),
            }
        }
        self.trust().until = until;
        KeeperRound::Kept
    }

    /// A call that takes longer than the lease can be trusted is of no use.
    fn deadline(&self) -> Instant {
        let until = self.trust().until;
        let left = until.map_or(CALL_LIMIT, |until| {
            until.saturating_sub(self.now()).max(margin(self.ttl))
        });
        deadline_in(left.min(CALL_LIMIT))
    }
}
