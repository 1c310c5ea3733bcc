//! [`EtcdStore`]: its parts, its steps, its waits.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use tenure_core::engine::{EngineStore, Sweep, inspect, reap};
use tenure_core::{
    Binding, Capabilities, Claim, Clock, Epoch, ErrorKind, Event, HistoryQuery, Key, KeyKind,
    LivenessId, Moment, Records, Revision, Snapshot, StoreError, Waited, Watched,
};
use tenure_host::clock::since_boot;
use tenure_host::{HostClock, LivenessFolder, LocalPresence, LocalStore, lock};
use tenure_tasks::TaskError;

use crate::address::Address;
use crate::client::Client;
use crate::cluster::{CallFailure, Cluster, now, remaining};
use crate::etcd_leases::{EtcdLease, EtcdLeases};
use crate::guess::{Assumed, Near};
use crate::history::TrimExtent;
use crate::layout::{KeyRecord, Layout, encoded};
use crate::let_pass::LetPass;
use crate::memory::{Memory, MemoryFolder};
use crate::origin::Tokens;
use crate::proto::RangeRequest;
use crate::read::whole;
use crate::records::{EventRecord, KeyRecords};
use crate::session::{ProcessSession, seconds};
use crate::step::{Again, EtcdStep, Seen};
use crate::tasks::TaskTurn;

/// How a store is set up.
#[derive(Clone)]
pub struct EtcdOptions {
    /// Where time comes from.
    pub clock: Arc<dyn Clock>,
    /// How long the cluster waits for a sign of life of a process that waits.
    pub session_ttl: Duration,
    /// How many events are kept.
    pub history_events: u64,
    /// How long events are kept.
    pub history_age: Duration,
    /// How long the ticket of a waiter that was interrupted is kept.
    pub queue_grace: Duration,
    /// Whether every verb that writes is refused.
    pub read_only: bool,
    /// Whether a step takes for granted what its transaction compares: mostly one round trip instead of two.
    pub guesses: bool,
    /// Where this machine may remember the cluster between two commands, in order of preference.
    pub memory: Vec<MemoryFolder>,
}

impl Default for EtcdOptions {
    fn default() -> Self {
        Self {
            clock: Arc::new(HostClock::new()),
            session_ttl: Duration::from_secs(30),
            history_events: 10_000,
            history_age: Duration::from_secs(30 * 24 * 3600),
            queue_grace: Duration::from_secs(600),
            read_only: false,
            guesses: true,
            memory: Vec::new(),
        }
    }
}

/// Leases, queue and history on an etcd cluster.
pub struct EtcdStore {
    pub(crate) cluster: Arc<Cluster>,
    pub(crate) layout: Layout,
    pub(crate) presence: LocalPresence,
    pub(crate) options: EtcdOptions,
    session: Mutex<Option<Arc<ProcessSession>>>,
    pub(crate) etcd_leases: Mutex<EtcdLeases>,
    /// The records of the keys that this process used last, as it left or read them.
    pub(crate) known: Mutex<HashMap<Key, KnownKey>>,
    pub(crate) near: Mutex<Near>,
    pub(crate) tokens: Mutex<Tokens>,
    pub(crate) let_pass: Mutex<LetPass>,
}

/// The records of a key, as this process left or read them.
pub(crate) struct KnownKey {
    pub(crate) records: KeyRecords,
    /// Whether the sessions of waiters were there.
    pub(crate) sessions: HashMap<String, bool>,
    /// When, on the boot clock.
    pub(crate) since: Duration,
}

/// How many keys are remembered.
const MOST_KNOWN: usize = 1000;

/// How long the goodbye to the cluster may take.
const GOODBYE: Duration = Duration::from_secs(1);

/// The low bits of a revision count the wake-ups of this process.
pub(crate) const WAKE_UP_BITS: u32 = 16;

impl EtcdStore {
    /// The store at this address. Nothing is asked yet. The liveness lock of this process is kept in `folder`, which all
    /// processes of this machine that use the store should share: that is how they prove each other dead.
    pub fn open(address: Address, folder: &Path, options: EtcdOptions) -> Result<Self, StoreError> {
        Ok(Self {
            layout: Layout::new(&address.prefix),
            cluster: Arc::new(Cluster::new(address, Memory::new(options.memory.clone()))?),
            presence: LocalPresence::new(LivenessFolder::new(folder), Arc::clone(&options.clock)),
            options,
            session: Mutex::new(None),
            etcd_leases: Mutex::default(),
            known: Mutex::default(),
            near: Mutex::default(),
            tokens: Mutex::default(),
            let_pass: Mutex::default(),
        })
    }

    /// What this machine remembers of the cluster.
    pub(crate) fn memory(&self) -> &Memory {
        &self.cluster.memory
    }

    /// The address, without a password.
    pub fn address(&self) -> &Address {
        self.cluster.address()
    }

    /// The machines of a cluster share no clock that never jumps. Nothing depends on this one but the order of
    /// waiters with different priorities, and what people read.
    pub(crate) fn now(&self) -> Moment {
        let wall = self.options.clock.now().wall;
        let ticks = u64::try_from(wall.as_nanosecond()).unwrap_or_default();
        Moment {
            wall,
            ticks: Duration::from_nanos(ticks),
            epoch: Epoch("etcd".into()),
        }
    }

    /// The key of this process's session. Begins the session if there is none, or if it may have ended.
    pub(crate) fn session(&self, binding: &Binding, by: Instant) -> Result<String, StoreError> {
        let mut session = lock(&self.session);
        if let Some(session) = &*session {
            if session.may_have_ended() {
                session.confirm(by)?;
            }
            return Ok(session.key().to_owned());
        }
        let ttl = self.options.session_ttl;
        let begun = ProcessSession::begin(&self.cluster, &self.layout, binding, ttl, by)?;
        let key = begun.key().to_owned();
        *session = Some(begun);
        Ok(key)
    }

    /// An etcd lease for a lease with this time to live.
    pub(crate) fn new_etcd_lease(
        &self,
        ttl: Duration,
        by: Instant,
    ) -> Result<EtcdLease, StoreError> {
        if self.options.guesses
            && let Some(fresh) = lock(&self.etcd_leases).take_fresh(ttl)
        {
            return Ok(fresh);
        }
        self.recall_tokens();
        let (asked, seconds) = (since_boot(), seconds(ttl));
        let unused = lock(&self.etcd_leases).take_unused();
        let grant = move |client: Client, unused: Vec<i64>| async move {
            if !unused.is_empty() {
                // Beside the request, so that no caller waits for it.
                tokio::spawn(client.clone().revoke(unused));
            }
            client.grant(seconds).await
        };
        let granted = self.cluster.ask(by, &unused, grant);
        let granted = granted.map_err(CallFailure::into_error)?;
        self.answered_with(granted.header.as_ref());
        Ok(EtcdLease {
            id: granted.id,
            seconds,
            asked,
        })
    }

    fn revision(&self, etcd: i64) -> Revision {
        let etcd = u64::try_from(etcd).unwrap_or_default();
        let wake_ups = u64::from(self.presence.generation()) & ((1 << WAKE_UP_BITS) - 1);
        Revision(etcd << WAKE_UP_BITS | wake_ups)
    }

    /// Remembers what a step left of the keys that it has read.
    fn remember(&self, step: &EtcdStep<'_>, revision: i64, since: Duration) {
        let mut known = lock(&self.known);
        if known.len() > MOST_KNOWN {
            known.clear();
        }
        for key in step.seen.keys.keys() {
            let records = step.left(key, revision);
            let mut sessions = step.seen.sessions.clone();
            sessions.retain(|name, _| records.has_waiter(name));
            known.insert(
                key.clone(),
                KnownKey {
                    records,
                    sessions,
                    since,
                },
            );
        }
    }

    /// Runs a verb that only reads, on what is there at one revision.
    pub(crate) fn looked<T>(
        &self,
        by: Instant,
        mut verb: impl FnMut(&mut EtcdStep<'_>) -> Result<T, TaskError>,
    ) -> Result<(T, Revision), TaskError> {
        loop {
            let mut step = EtcdStep::new(self, by, Seen::default(), String::new());
            match verb(&mut step) {
                Ok(answer) => return Ok((answer, self.revision(step.seen.revision))),
                Err(error) => self.prepare_again(&step, error, by)?,
            }
        }
    }

    /// Makes ready for another attempt of a verb, if that may help.
    fn prepare_again(
        &self,
        step: &EtcdStep<'_>,
        error: TaskError,
        by: Instant,
    ) -> Result<(), TaskError> {
        match step.again {
            Some(Again::Guessed) => Ok(()),
            Some(_) if remaining(by).is_zero() => Err(error),
            Some(Again::Compacted) => Ok(()),
            Some(Again::Unfinished) => Ok(self.finish(by)?),
            Some(Again::NotYet) => {
                TaskTurn::pause(by);
                Ok(())
            }
            Some(Again::Crowded) => {
                if self.end_some(&step.writes.guarded, by)? {
                    Ok(())
                } else {
                    Err(error)
                }
            }
            None => Err(error),
        }
    }

    /// Removes the leases of these keys that have ended, in parts. Returns whether there were some.
    pub(crate) fn end_some(&self, keys: &BTreeSet<Key>, by: Instant) -> Result<bool, TaskError> {
        let mut some = false;
        for key in keys {
            loop {
                let verb = |step: &mut EtcdStep<'_>| reap(step, key);
                let (part, _) = self.stepped(Some(key), Seen::default(), by, verb)?;
                some |= !part.reaped.is_empty();
                if !part.left {
                    break;
                }
            }
        }
        Ok(some)
    }

    /// Runs a verb as one transaction, again if something has changed meanwhile. `key` is the one that is read
    /// before another attempt.
    pub(crate) fn stepped<T>(
        &self,
        key: Option<&Key>,
        seen: Seen,
        by: Instant,
        verb: impl FnMut(&mut EtcdStep<'_>) -> Result<T, TaskError>,
    ) -> Result<(T, Revision), TaskError> {
        self.retried(key, seen, by, verb).map_err(|error| {
            // What this process could not take back stays on record: others of this machine still have to see that it has exited.
            if matches!(error, TaskError::Store(_)) {
                self.presence.leave_pipe();
            }
            let no_answer =
                matches!(&error, TaskError::Store(it) if it.kind == ErrorKind::Unreachable);
            // The time is up, but not because the cluster is silent.
            if no_answer && remaining(by).is_zero() && self.cluster.answers() {
                return starved(key).into();
            }
            error
        })
    }

    fn retried<T>(
        &self,
        key: Option<&Key>,
        mut seen: Seen,
        by: Instant,
        mut verb: impl FnMut(&mut EtcdStep<'_>) -> Result<T, TaskError>,
    ) -> Result<(T, Revision), TaskError> {
        let mut turn = None;
        let mut attempts = 0_u32;
        let mut may_assume = self.options.guesses;
        loop {
            let since = since_boot();
            let mut step = EtcdStep::new(self, by, seen, request());
            step.assumed = Assumed::begin(may_assume, attempts);
            step.turn = turn.as_ref().map(TaskTurn::name);
            step.gives_way = key.is_none();
            step.attempts = attempts;
            let tried = verb(&mut step).and_then(|answer| Ok((answer, step.transaction(key)?)));
            let (mut answer, transaction) = match tried {
                Ok(tried) => tried,
                Err(error) => {
                    self.prepare_again(&step, error, by)?;
                    seen = Seen::default();
                    continue;
                }
            };
            if let Some(begin_with) = step.unproven(transaction.is_some(), &mut may_assume) {
                seen = begin_with;
                continue;
            }
            let Some(transaction) = transaction else {
                self.remember(&step, step.seen.revision, since);
                return Ok((answer, self.revision(step.seen.revision)));
            };
            match self.commit(&mut step, key, &transaction, by)? {
                Ok((_, true)) => {
                    // It has its ticket. What it waits for is decided on the queue that is there now.
                    seen = Seen::default();
                }
                Ok((revision, false)) => {
                    if step.is_large {
                        // It is valid already: if this fails, the next process that meets it carries it out.
                        let _ = self.finish(by);
                    }
                    self.remember(&step, revision, since);
                    let mut etcd_leases = lock(&self.etcd_leases);
                    for life in &step.writes.ended {
                        etcd_leases.end(life);
                    }
                    for (life, etcd_lease) in step.writes.begun.drain(..) {
                        etcd_leases.begin(life, etcd_lease);
                    }
                    drop(etcd_leases);
                    if step.proof().is_some()
                        && let Some(extent) = TrimExtent::of(&step.writes.request)
                    {
                        let _ = self.trim_history(extent, by);
                    }
                    if step.raised.is_some() || key.is_none() {
                        self.note_step(revision, step.raised, by);
                    }
                    if step.writes.numbered {
                        step.answer_at(revision);
                        answer = verb(&mut step)?;
                    }
                    return Ok((answer, self.revision(revision)));
                }
                // There is no time for another attempt whose outcome would be known.
                Err(_) if remaining(by) < LAST_CHANCE => return Err(starved(key).into()),
                Err(now) => {
                    attempts += 1;
                    // Another process may have had its turn, or this one had it for too long.
                    let asks = turn.is_none() || attempts.is_multiple_of(OFTEN);
                    if key.is_none() && attempts >= OFTEN && asks {
                        drop(turn.take());
                        turn = TaskTurn::take(self, request(), by);
                    }
                    let guard = |seen: &Seen, key| {
                        seen.keys.get(key).map(|records: &KeyRecords| records.guard)
                    };
                    if key.is_none_or(|key| guard(&step.seen, key) == guard(&now, key)) {
                        // No other step was faster, as far as can be told: so what was assumed is wrong, or the
                        // session is gone.
                        may_assume &= key.is_none();
                        if let Some(session) = &*lock(&self.session) {
                            session.doubt();
                        }
                    }
                    seen = now;
                }
            }
        }
    }

    /// The revision now, if this is a store of this version.
    fn current_revision(&self, by: Instant) -> Result<i64, StoreError> {
        let (version, revision) = self.page(&RangeRequest::one(self.layout.version()), by)?;
        self.check_version(version.first())?;
        Ok(revision)
    }

    /// Every key that is held or waited for.
    fn read_snapshots(&self, by: Instant) -> Result<Vec<Snapshot>, StoreError> {
        let revision = self.current_revision(by)?;
        let (records, _) = self.range(&self.layout.keys(), revision, by)?;
        let mut seen = Seen {
            revision,
            ..Seen::default()
        };
        for kv in &records {
            if let Some((key, record)) = self.layout.parse(kv.name()) {
                seen.keys.entry(key).or_default().add(&record, kv);
            }
        }
        let keys: BTreeSet<Key> = seen.keys.keys().cloned().collect();
        let mut step = EtcdStep::new(self, by, seen, String::new());
        self.inspect_all(&mut step, &keys)
    }

    /// The names that begin with one of these texts.
    fn read_names(&self, beginnings: &[&str], by: Instant) -> Result<BTreeSet<Key>, StoreError> {
        let revision = self.current_revision(by)?;
        let mut names = BTreeSet::new();
        for beginning in beginnings {
            let range = RangeRequest::below(self.layout.keys() + &encoded(beginning));
            for kv in self.pages(range.keys_only(), revision, by)?.0 {
                if let Some((key, KeyRecord::Lease(_) | KeyRecord::Ticket(_))) =
                    self.layout.parse(kv.name())
                {
                    names.insert(key);
                }
            }
        }
        Ok(names)
    }

    /// The same of these keys and of all that are waited for. That depends on how many wait, not on how many keys are held.
    fn read_some_snapshots(&self, keys: &[Key], by: Instant) -> Result<Vec<Snapshot>, StoreError> {
        let revision = self.current_revision(by)?;
        let waits = RangeRequest::below(self.layout.waits()).keys_only();
        let (waits, _) = self.pages(waits, revision, by)?;
        let waited = waits.iter().map(|kv| self.layout.key_of_wait(kv.name()));
        let Some(waited) = waited.collect::<Option<BTreeSet<Key>>>() else {
            // What is waited for can't be told from the names.
            return self.read_snapshots(by);
        };
        let keys: BTreeSet<Key> = waited.into_iter().chain(keys.iter().cloned()).collect();
        let seen = Seen {
            revision,
            ..Seen::default()
        };
        let mut step = EtcdStep::new(self, by, seen, String::new());
        step.read_keys(&keys.iter().cloned().collect::<Vec<_>>())?;
        self.inspect_all(&mut step, &keys)
    }

    /// These keys, which were read, unless there is nothing to say of them.
    fn inspect_all(
        &self,
        step: &mut EtcdStep<'_>,
        keys: &BTreeSet<Key>,
    ) -> Result<Vec<Snapshot>, StoreError> {
        let revision = self.revision(step.seen.revision);
        let tickets = step.seen.keys.values().flat_map(|records| &records.tickets);
        let waiters = tickets.filter_map(|one| one.waiter.holder.liveness_lock());
        let waiters: Vec<String> = waiters.map(|lock| lock.0.clone()).collect();
        step.read_sessions(waiters)?;
        let mut snapshots = Vec::new();
        for key in keys {
            let snapshot = inspect(step, key).map_err(only_store)?;
            if snapshot.is_on_record() || !snapshot.problems.is_empty() {
                snapshots.push(Snapshot {
                    revision,
                    ..snapshot
                });
            }
        }
        Ok(snapshots)
    }
}

/// How much time an attempt needs after one that was in vain.
const LAST_CHANCE: Duration = Duration::from_millis(50);

/// Others were faster until the time was up.
pub(crate) fn starved(key: Option<&Key>) -> StoreError {
    let what = match key {
        Some(key) => format!("other processes change {key} all the time"),
        None => "other processes change the tasks all the time".to_owned(),
    };
    StoreError::new(ErrorKind::Contended, what).fix("try again")
}

/// After so many attempts in vain, a step on tasks asks the others to wait.
const OFTEN: u32 = 8;

/// The error of a verb that is not about tasks.
pub(crate) fn only_store(error: TaskError) -> StoreError {
    match error {
        TaskError::Store(error) => error,
        other => StoreError::new(ErrorKind::Damaged, other.to_string()),
    }
}

pub(crate) fn request() -> String {
    tenure_host::random_uuid().simple().to_string()
}

impl LocalStore for EtcdStore {
    fn presence(&self) -> &LocalPresence {
        &self.presence
    }
}

impl Drop for EtcdStore {
    fn drop(&mut self) {
        // What is left ends by itself.
        if self.cluster.is_away() {
            return;
        }
        let session = lock(&self.session).take().map(|one| one.etcd_lease());
        let mut left = lock(&self.etcd_leases).take_unused();
        left.extend(session);
        if !left.is_empty() {
            self.cluster.revoke(&left, now() + GOODBYE);
        }
    }
}

impl std::fmt::Debug for EtcdStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "EtcdStore({})", self.address())
    }
}

impl Records for EtcdStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities::ALL
    }

    fn this_process(&self) -> Result<Binding, StoreError> {
        self.admit_change()?;
        self.presence.binding().map_err(|error| {
            let folder = self.presence.folder().path().display();
            let what = format!("the liveness lock of this process can't be taken in {folder}");
            StoreError::new(ErrorKind::Io, what).because(error)
        })
    }

    fn on_record(&self, by: Instant) -> Result<Vec<Snapshot>, StoreError> {
        whole(by, || self.read_snapshots(by))
    }

    fn list_names(&self, beginnings: &[&str], by: Instant) -> Result<Vec<Key>, StoreError> {
        let names = whole(by, || self.read_names(beginnings, by))?;
        Ok(names.into_iter().collect())
    }

    fn list_with(&self, keys: &[Key], by: Instant) -> Result<Vec<Snapshot>, StoreError> {
        whole(by, || self.read_some_snapshots(keys, by))
    }

    fn history(&self, query: &HistoryQuery, by: Instant) -> Result<Vec<Event>, StoreError> {
        let found = self.event_records(query, by)?;
        let events = found.iter().map(EventRecord::read);
        let mut events: Vec<Event> = events.filter_map(Result::ok).collect();
        events.sort_by_key(|event| event.id);
        Ok(query.select(events))
    }

    fn damaged_events(&self, query: &HistoryQuery, by: Instant) -> Result<Vec<String>, StoreError> {
        let found = self.event_records(query, by)?;
        let damaged = found.iter().map(EventRecord::read);
        Ok(damaged.filter_map(Result::err).collect())
    }

    fn wait(&self, watched: &Watched<'_>, timeout: Duration) -> Result<Waited, StoreError> {
        self.admit_change()?;
        self.sleep(watched, timeout)
    }

    fn wake(&self) {
        self.presence.wake();
    }
}

impl EngineStore for EtcdStore {
    type LookError = TaskError;
    type StepError = TaskError;
    type Looking<'a> = EtcdStep<'a>;
    type Stepping<'a> = EtcdStep<'a>;

    fn admit_change(&self) -> Result<(), StoreError> {
        if self.options.read_only {
            return Err(StoreError::opened_read_only(self.address()));
        }
        Ok(())
    }

    /// Tasks and sections have one holder.
    fn admit_claim(&self, claim: &Claim) -> Result<(), StoreError> {
        match claim.key.kind() {
            KeyKind::Task(_) | KeyKind::Section(_) if !claim.mode.is_exclusive() => {
                Err(StoreError::one_holder_only(&claim.key, &claim.mode))
            }
            _ => self.admit(&claim.key),
        }
    }

    fn look<T>(
        &self,
        _key: &Key,
        by: Instant,
        mut verb: impl FnMut(&mut EtcdStep<'_>) -> Result<T, TaskError>,
    ) -> Result<(T, Revision), StoreError> {
        self.looked(by, |step| verb(step)).map_err(only_store)
    }

    /// Several keys are read at once, unless each is as this process left it.
    fn step<T>(
        &self,
        keys: &[Key],
        by: Instant,
        mut verb: impl FnMut(&mut EtcdStep<'_>) -> Result<T, TaskError>,
    ) -> Result<(T, Revision), StoreError> {
        self.stepped(keys.first(), self.guess(keys), by, |step| {
            if keys.len() > 1 {
                step.read_keys(keys)?;
            }
            verb(step)
        })
        .map_err(only_store)
    }

    fn may_have_ended(&self, snapshot: &Snapshot) -> bool {
        let waiters = snapshot.queue.len() + snapshot.forgotten.len();
        waiters > 0 || !snapshot.problems.is_empty() || snapshot.ended().next().is_some()
    }

    fn dead_locks(&self, sweep: Sweep) -> Vec<LivenessId> {
        self.presence.dead_locks(sweep)
    }

    fn remove_locks(&self, dead: &[LivenessId], needed: &HashSet<LivenessId>) {
        self.presence.remove_locks(dead, needed);
    }
}
