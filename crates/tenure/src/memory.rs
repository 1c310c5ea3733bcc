//! A store in memory, for tests and for programs that need locks among their own threads only:
//! [`MemoryStore`], `memory:`.
//!
//! It has the same contract as every other store: the engine runs on a map behind a mutex. Each handle
//! is a session; when the handle is dropped, its session ends, and with it its leases and tickets.
//! Nothing survives the process, and no other process sees it.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::slice;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tenure_core::engine::{Ended, EngineStore, Look, Step, Then, Written};
use tenure_core::{
    Binding, Capabilities, Clock, Event, EventKind, Evidence, HistoryQuery, Holder, HolderId, Key,
    Lease, Liveness, Moment, Records, Revision, SessionId, Snapshot, Store, StoreError, Ticket,
    Token, Waited, Waiter, Watched,
};
use tenure_host::{HostClock, LivenessFolder, liveness};

/// How long the ticket of a waiter that was interrupted is kept.
const GRACE: Duration = Duration::from_secs(600);

/// How many events are kept.
const EVENTS: usize = 10_000;

/// A handle of a store in memory.
///
/// ```
/// use std::time::{Duration, Instant};
/// use tenure::store::MemoryStore;
/// use tenure_core::{Key, Store};
///
/// let store = MemoryStore::default();
/// let soon = Instant::now() + Duration::from_secs(1);
/// assert!(store.inspect(&Key::parse("build").unwrap(), soon).unwrap().is_idle());
/// ```
#[derive(Debug)]
pub struct MemoryStore {
    shared: Arc<Mutex<Contents>>,
    session: SessionId,
    bell: Arc<Doorbell>,
    clock: HostClock,
}

#[derive(Debug, Default)]
struct Contents {
    revision: u64,
    keys: BTreeMap<Key, (Vec<Lease>, Vec<Waiter>)>,
    newest_token: u64,
    newest_ticket: u64,
    newest_session: u64,
    sessions: BTreeMap<SessionId, Arc<Doorbell>>,
    events: Vec<Event>,
}

/// Wakes the waits of one handle.
#[derive(Debug, Default)]
struct Doorbell {
    rings: Mutex<u64>,
    rung: Condvar,
    heard: Mutex<Heard>,
}

/// When a handle was heard. One that waits is heard all the time.
#[derive(Debug, Default)]
struct Heard {
    waits: usize,
    last: Duration,
}

impl Doorbell {
    fn ring(&self) {
        *lock(&self.rings) += 1;
        self.rung.notify_all();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::handle_of(Arc::default())
    }
}

impl MemoryStore {
    /// Another handle of the same store, with a session of its own.
    #[must_use]
    pub fn another_handle(&self) -> Self {
        Self::handle_of(Arc::clone(&self.shared))
    }

    fn handle_of(shared: Arc<Mutex<Contents>>) -> Self {
        let (bell, clock) = (Arc::new(Doorbell::default()), HostClock::new());
        let mut state = lock(&shared);
        state.newest_session += 1;
        let session = SessionId(format!("memory-{}", state.newest_session));
        state.sessions.insert(session.clone(), Arc::clone(&bell));
        drop(state);
        Self {
            shared,
            session,
            bell,
            clock,
        }
    }

    /// Under the mutex: a wake-up that comes later must change it.
    fn revision(&self, state: &Contents) -> Revision {
        Revision(state.revision << 24 | *lock(&self.bell.rings) & 0xff_ffff)
    }
}

impl Drop for MemoryStore {
    fn drop(&mut self) {
        let mut state = lock(&self.shared);
        state.sessions.remove(&self.session);
        state.revision += 1;
        // The end of a session can let any waiter go on.
        state.sessions.values().for_each(|bell| bell.ring());
    }
}

/// One step: the mutex is held.
#[derive(Debug)]
pub struct MemoryStep<'a> {
    state: MutexGuard<'a, Contents>,
    now: Moment,
    woken: BTreeSet<SessionId>,
}

impl MemoryStep<'_> {
    fn entry(&mut self, key: &Key) -> &mut (Vec<Lease>, Vec<Waiter>) {
        self.state.revision += 1;
        self.state.keys.entry(key.clone()).or_default()
    }

    /// Removes the entry of a key that is neither held nor waited for.
    fn forget_idle(&mut self, key: &Key) {
        let idle =
            |(leases, queue): &(Vec<Lease>, Vec<Waiter>)| leases.is_empty() && queue.is_empty();
        if self.state.keys.get(key).is_some_and(idle) {
            self.state.keys.remove(key);
        }
    }

    fn record(&mut self, mut event: Event) {
        event.id = self.state.events.last().map_or(1, |last| last.id + 1);
        self.state.events.push(event);
        let too_many = self.state.events.len().saturating_sub(EVENTS);
        self.state.events.drain(..too_many);
    }
}

impl Look for MemoryStep<'_> {
    type Error = Infallible;

    fn now(&self) -> &Moment {
        &self.now
    }

    fn leases(&mut self, key: &Key) -> Result<Vec<(Lease, Liveness)>, Infallible> {
        let leases = self.state.keys.get(key).map(|(leases, _)| leases.clone());
        let judge = |lease: Lease| {
            let liveness = self.probe(&lease.holder);
            (lease, liveness)
        };
        Ok(leases.unwrap_or_default().into_iter().map(judge).collect())
    }

    fn tickets(&mut self, key: &Key) -> Result<Vec<Waiter>, Infallible> {
        let queue = self.state.keys.get(key).map(|(_, queue)| queue.clone());
        Ok(queue.unwrap_or_default())
    }

    fn probe(&mut self, waiter: &Holder) -> Liveness {
        match &waiter.binding {
            Binding::Session { session } if self.state.sessions.contains_key(session) => {
                Liveness::Running
            }
            Binding::Session { session } => Liveness::Gone(Evidence::SessionEnded {
                session: session.clone(),
            }),
            other => liveness::probe(&LivenessFolder::new(""), other),
        }
    }

    fn heard(&mut self, waiter: &Waiter) -> Duration {
        let bell = match &waiter.holder.binding {
            Binding::Session { session } => self.state.sessions.get(session),
            _ => None,
        };
        let heard = bell.map(|bell| lock(&bell.heard));
        heard.map_or(waiter.seen, |heard| {
            let last = if heard.waits > 0 {
                self.now.ticks
            } else {
                heard.last
            };
            last.max(waiter.seen)
        })
    }

    fn grace(&self) -> Duration {
        GRACE
    }
}

impl Step for MemoryStep<'_> {
    fn mint(&mut self, _key: &Key) -> Result<Token, Infallible> {
        self.state.newest_token += 1;
        Ok(Token(self.state.newest_token))
    }

    fn write_lease(&mut self, lease: &Lease, put: Written) -> Result<(), Infallible> {
        self.record(match put {
            Written::Granted { reason, waited } => {
                Event::granted(lease, reason, waited, self.now.wall)
            }
            Written::Extended | Written::Renewed => {
                Event::of(lease, EventKind::Renewed, self.now.wall)
            }
        });
        let leases = &mut self.entry(&lease.key).0;
        leases.retain(|other| other.token != lease.token);
        leases.push(lease.clone());
        Ok(())
    }

    fn erase_lease(&mut self, lease: &Lease, how: &Ended, _then: Then) -> Result<(), Infallible> {
        let (kind, evidence) = match how {
            Ended::Released => (EventKind::Released, None),
            Ended::Proven(evidence) => (EventKind::of(evidence), Some(evidence.clone())),
        };
        let event = Event::of(lease, kind, self.now.wall);
        self.record(Event { evidence, ..event });
        let leases = &mut self.entry(&lease.key).0;
        leases.retain(|other| other.token != lease.token);
        self.forget_idle(&lease.key);
        Ok(())
    }

    fn add_ticket(&mut self, key: &Key, waiter: &Waiter) -> Result<Ticket, Infallible> {
        self.state.newest_ticket += 1;
        let ticket = Ticket(self.state.newest_ticket);
        let waiter = waiter.clone();
        self.entry(key).1.push(Waiter { ticket, ..waiter });
        Ok(ticket)
    }

    fn write_ticket(&mut self, key: &Key, waiter: &Waiter) -> Result<(), Infallible> {
        self.erase_ticket(key, waiter.ticket)?;
        self.entry(key).1.push(waiter.clone());
        Ok(())
    }

    fn erase_ticket(&mut self, key: &Key, ticket: Ticket) -> Result<(), Infallible> {
        let queue = &mut self.entry(key).1;
        queue.retain(|waiter| waiter.ticket != ticket);
        self.forget_idle(key);
        Ok(())
    }

    fn waits_of(&mut self, holder: &HolderId, token: Token) -> Result<Vec<Key>, Infallible> {
        let waits = |waiter: &Waiter| waiter.holder.id == *holder || waiter.within.contains(&token);
        let keys = self.state.keys.iter();
        let waited = keys.filter(|(_, (_, queue))| queue.iter().any(waits));
        Ok(waited.map(|(key, _)| key.clone()).collect())
    }

    fn record_request(&mut self, event: &Event) -> Result<bool, Infallible> {
        self.state.revision += 1;
        self.record(event.clone());
        Ok(true)
    }

    fn wake(&mut self, holder: &Holder) {
        if let Binding::Session { session } = &holder.binding {
            self.woken.insert(session.clone());
        }
    }
}

impl Records for MemoryStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities::ALL
    }

    fn this_process(&self) -> Result<Binding, StoreError> {
        Ok(Binding::Session {
            session: self.session.clone(),
        })
    }

    fn on_record(&self, by: Instant) -> Result<Vec<Snapshot>, StoreError> {
        let keys: Vec<Key> = lock(&self.shared).keys.keys().cloned().collect();
        let inspect = |key| Store::inspect(self, key, by);
        let mut snapshots = keys.iter().map(inspect).collect::<Result<Vec<_>, _>>()?;
        snapshots.retain(Snapshot::is_on_record);
        Ok(snapshots)
    }

    fn history(&self, query: &HistoryQuery, _by: Instant) -> Result<Vec<Event>, StoreError> {
        Ok(query.select(lock(&self.shared).events.iter().cloned()))
    }

    fn wait(&self, watched: &Watched<'_>, timeout: Duration) -> Result<Waited, StoreError> {
        let before = *lock(&self.bell.rings);
        if self.revision(&lock(&self.shared)) != watched.seen {
            return Ok(Waited::Changed);
        }
        lock(&self.bell.heard).waits += 1;
        let (rings, _) = self
            .bell
            .rung
            .wait_timeout_while(lock(&self.bell.rings), timeout, |rings| *rings == before)
            .unwrap_or_else(PoisonError::into_inner);
        let mut heard = lock(&self.bell.heard);
        heard.waits -= 1;
        heard.last = self.clock.now().ticks;
        Ok(if *rings == before {
            Waited::TimedOut
        } else {
            Waited::Changed
        })
    }

    fn wake(&self) {
        self.bell.ring();
    }
}

impl EngineStore for MemoryStore {
    type LookError = Infallible;
    type StepError = Infallible;
    type Looking<'a> = MemoryStep<'a>;
    type Stepping<'a> = MemoryStep<'a>;

    fn look<T>(
        &self,
        key: &Key,
        by: Instant,
        verb: impl FnMut(&mut MemoryStep<'_>) -> Result<T, Infallible>,
    ) -> Result<(T, Revision), StoreError> {
        self.step(slice::from_ref(key), by, verb)
    }

    fn step<T>(
        &self,
        _keys: &[Key],
        _by: Instant,
        mut verb: impl FnMut(&mut MemoryStep<'_>) -> Result<T, Infallible>,
    ) -> Result<(T, Revision), StoreError> {
        let mut step = MemoryStep {
            now: self.clock.now(),
            state: lock(&self.shared),
            woken: BTreeSet::new(),
        };
        let Ok(answer) = verb(&mut step);
        let revision = self.revision(&step.state);
        let bells = |session| step.state.sessions.get(session);
        step.woken
            .iter()
            .filter_map(bells)
            .for_each(|bell| bell.ring());
        Ok((answer, revision))
    }
}

#[cfg(test)]
mod tests {
    use tenure_testkit::{Ask, soon};

    use super::*;

    #[test]
    fn a_key_that_nobody_holds_or_waits_for_is_forgotten() {
        let store = MemoryStore::default();
        for number in 0..10 {
            let key = Key::parse(format!("build-{number}")).unwrap();
            let lease = Ask::new(&key, "me").granted(&store);
            let _ = store.release(&lease.grant(), soon()).unwrap();
        }
        assert!(lock(&store.shared).keys.is_empty());
    }
}
