//! A lease that is kept alive until it is dropped: [`Held`].
//!
//! # Trust
//!
//! A holder trusts its lease only until its time to live has passed since the attempt that got or
//! renewed it *began*, less a margin, on the clock that also counts sleep. It renews every third
//! of the time to live; if that fails for as long as it may trust the lease, it counts as lost.
//! A lease whose time ran out while the machine slept goes on if nobody took it meanwhile: the
//! store knows, and is asked at once on waking up.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tenure_core::{
    Clock, ErrorKind, Fenced, Grant, Key, Lease, Moment, Reason, Released, Renewed, Store,
    StoreError, Token, Watched,
};

use crate::ask::Tie;
use crate::open::Tenure;

/// How a lease was lost.
#[derive(Debug)]
pub enum Loss {
    /// It is no longer on record; who has the key now, if anybody.
    Taken(Option<Lease>),
    /// It could not be renewed for as long as it could be trusted.
    Unrenewed(StoreError),
}

/// A lease that is ours.
///
/// Tied to this process it is renewed by a thread of its own and given back when it is dropped.
/// Tied to anything else it is neither.
#[must_use]
pub struct Held {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    lease: Lease,
    reason: Reason,
    tie: Tie,
    poll: Duration,
    shared: Arc<Shared>,
    keeper: Option<JoinHandle<()>>,
    released: bool,
}

struct Shared {
    /// Time since boot up to which the lease may be trusted.
    trusted_until: Mutex<Duration>,
    stop: AtomicBool,
    lost: Mutex<Option<Loss>>,
}

impl Held {
    pub(crate) fn new(
        tenure: &Tenure,
        lease: Lease,
        reason: Reason,
        asked: &Moment,
        tie: Tie,
    ) -> Self {
        let shared = Arc::new(Shared {
            trusted_until: Mutex::new(trust(asked, lease.ttl)),
            stop: AtomicBool::new(false),
            lost: Mutex::new(None),
        });
        let (store, clock) = (Arc::clone(&tenure.store), Arc::clone(&tenure.clock));
        Self {
            store,
            clock,
            lease,
            reason,
            tie,
            poll: tenure.config.locking.poll_interval,
            shared,
            keeper: None,
            released: false,
        }
    }

    /// Starts renewing. `on_lost` is called from another thread, once, when the lease is lost.
    pub fn keep_alive(&mut self, on_lost: impl FnOnce() + Send + 'static) {
        if self.keeper.is_some() || self.tie != Tie::ThisProcess {
            return;
        }
        let keeper = Keeper {
            store: Arc::clone(&self.store),
            clock: Arc::clone(&self.clock),
            grant: self.lease.grant(),
            ttl: self.lease.ttl,
            poll: self.poll,
            shared: Arc::clone(&self.shared),
        };
        let on_lost = Arc::new(Mutex::new(Some(on_lost)));
        let lose = {
            let shared = Arc::clone(&self.shared);
            move |loss| {
                *lock(&shared.lost) = Some(loss);
                if let Some(on_lost) = lock(&on_lost).take() {
                    on_lost();
                }
            }
        };
        let kept = std::thread::Builder::new()
            .name("keep-alive".into())
            .spawn({
                let lose = lose.clone();
                move || {
                    if let Some(loss) = keeper.keep() {
                        lose(loss);
                    }
                }
            });
        match kept {
            Ok(keeper) => self.keeper = Some(keeper),
            // Nobody would renew it.
            Err(error) => lose(Loss::Unrenewed(
                StoreError::new(ErrorKind::Io, "there is no thread to renew the lease")
                    .because(error),
            )),
        }
    }

    /// The lease as it was granted.
    pub fn lease(&self) -> &Lease {
        &self.lease
    }

    /// What is held.
    pub fn key(&self) -> &Key {
        &self.lease.key
    }

    /// The fencing number: pass it on to whatever is written.
    pub fn token(&self) -> Token {
        self.lease.token
    }

    /// Why it was granted.
    pub fn reason(&self) -> Reason {
        self.reason
    }

    /// Whether the lease may be trusted right now, without asking the store.
    pub fn is_trusted(&self) -> bool {
        lock(&self.shared.lost).is_none()
            && self.clock.now().ticks < *lock(&self.shared.trusted_until)
    }

    /// Asks the store whether this is still the newest grant of its key and stands.
    pub fn check(&self) -> Result<bool, StoreError> {
        Ok(matches!(
            self.store.fence(&self.lease.key, self.lease.token)?,
            Fenced::Current(_)
        ))
    }

    /// How the lease was lost, if it was. Takes the answer out.
    pub fn take_loss(&self) -> Option<Loss> {
        lock(&self.shared.lost).take()
    }

    /// Gives the key back.
    pub fn release(mut self) -> Result<Released, StoreError> {
        self.give_back()
    }

    /// Lets go of this object without giving the key back: for a lease that lives by itself.
    pub fn leave_standing(mut self) {
        self.stop_keeping();
        self.released = true;
    }

    fn give_back(&mut self) -> Result<Released, StoreError> {
        self.released = true;
        self.stop_keeping();
        self.store.release(&self.lease.grant())
    }

    fn stop_keeping(&mut self) {
        self.shared.stop.store(true, Ordering::SeqCst);
        if let Some(keeper) = self.keeper.take() {
            self.store.wake();
            let _ = keeper.join();
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if !self.released && self.tie == Tie::ThisProcess {
            // Nobody to tell: if it fails, the lease ends with this process.
            let _ = self.give_back();
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Until when a lease may be trusted that was asked for at `asked`.
fn trust(asked: &Moment, ttl: Duration) -> Duration {
    let margin = (ttl / 10).min(Duration::from_secs(5));
    asked.ticks.saturating_add(ttl.saturating_sub(margin))
}

/// What the renewing thread knows.
struct Keeper {
    store: Arc<dyn Store>,
    clock: Arc<dyn Clock>,
    grant: Grant,
    ttl: Duration,
    /// Look at least this often, should nobody be able to ring.
    poll: Duration,
    shared: Arc<Shared>,
}

impl Keeper {
    /// Renews until told to stop; how the lease was lost, if it was.
    fn keep(&self) -> Option<Loss> {
        let mut renew_at = self.clock.now().ticks.saturating_add(self.ttl / 3);
        loop {
            if self.shared.stop.load(Ordering::SeqCst) {
                return None;
            }
            let now = self.clock.now();
            let failed = if now.ticks >= renew_at {
                match self.store.renew(&self.grant, self.ttl) {
                    Ok(Renewed::Extended(_)) => {
                        *lock(&self.shared.trusted_until) = trust(&now, self.ttl);
                        renew_at = now.ticks.saturating_add(self.ttl / 3);
                        None
                    }
                    Ok(Renewed::Lost(by)) => return Some(Loss::Taken(by)),
                    Err(error) => Some(error),
                }
            } else {
                match self.store.inspect(&self.grant.key) {
                    Ok(snapshot) => match snapshot.lease {
                        Some((lease, _)) if lease.is(&self.grant) => {
                            // After the snapshot: a stop from here on changes its revision.
                            if self.shared.stop.load(Ordering::SeqCst) {
                                return None;
                            }
                            let watched = Watched {
                                key: &self.grant.key,
                                seen: snapshot.revision,
                                ahead: Vec::new(),
                            };
                            self.store
                                .wait(&watched, renew_at.saturating_sub(now.ticks).min(self.poll))
                                .err()
                        }
                        // It may only be out of its place: a store that can puts it back.
                        _ => match self.store.renew(&self.grant, self.ttl) {
                            Ok(Renewed::Extended(_)) => {
                                *lock(&self.shared.trusted_until) = trust(&now, self.ttl);
                                None
                            }
                            Ok(Renewed::Lost(by)) => return Some(Loss::Taken(by)),
                            Err(error) => Some(error),
                        },
                    },
                    Err(error) => Some(error),
                }
            };
            if let Some(error) = failed {
                if self.clock.now().ticks >= *lock(&self.shared.trusted_until) {
                    return Some(Loss::Unrenewed(error));
                }
                std::thread::sleep((self.ttl / 30).min(Duration::from_secs(1)));
            }
        }
    }
}
