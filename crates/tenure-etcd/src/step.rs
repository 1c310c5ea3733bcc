//! One step of the engine as one optimistic transaction: [`EtcdStep`].
//!
//! A step reads a key's records at one revision, runs the verb, and collects what it writes. The
//! transaction writes all of it if the key's guard has not changed since; otherwise the step runs again on what is
//! there now, which the failed transaction has read.
//!
//! A step often begins with a *guess*: that the key is as this process left it. The transaction compares everything
//! that the guess relies on. If it is right, the step costs one round trip; if not, no more than a read.
//!
//! # Invariants
//!
//! 1. Every step that adds or removes a record of a key writes the key's guard, and compares it. A renewal
//!    changes one lease in place and compares that lease instead.
//! 2. A ticket is written only while the session of its process is there.
//! 3. An expired lease is taken over only while it has not been renewed.
//! 4. Of two claims that would close a cycle, each compares that the holders which it looked at do not wait for more
//!    than it saw. So the second one runs again, and sees the first.
//! 5. A guess is never an answer: a verb that writes nothing runs on what was read.
//! 6. A step probes each process once. The token of a lease and the number of a ticket are the revision of the
//!    transaction, which is known only afterwards, so a verb that needs one runs a second time for its answer, on the
//!    same records. If a holder died in between, the answer would be a grant, although a ticket was written.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::{Duration, Instant};

use serde::Serialize;
use tenure_core::engine::{Ended, Look, Put, Step, Then};
use tenure_core::task::{flow, sections};
use tenure_core::{
    Binding, Doubt, ErrorKind, Event, EventKind, Evidence, Holder, HolderId, Key, KeyKind, Lease,
    Liveness, Moment, Presence, SessionId, StoreError, TaskError, Ticket, Token, Waiter,
};
use tenure_host::liveness_lock::LockState;
use tenure_host::{identity, liveness};

use crate::client::Client;
use crate::cluster::Failure;
use crate::layout::{Layout, VERSION};
use crate::lives::Life;
use crate::proto::{
    Compare, DeleteRangeRequest, KeyValue, Op, PutRequest, RangeRequest, RequestOp, TxnRequest,
};
use crate::records::{
    EventRecord, Guard, KeyRecords, LeaseRecord, StoredLease, StoredTicket, json, number,
};
use crate::store::EtcdStore;
use crate::tasks::{SeenTasks, all_parts};

/// How many sessions are read at once: a transaction has at most 128 operations.
const AT_ONCE: usize = 100;

/// After so many writes, what can wait for a later step does.
const ENOUGH: usize = 80;

/// So many operations, or comparisons, a transaction of etcd may have.
pub(crate) const MOST_OPERATIONS: usize = 128;

/// At most so many comparisons.
const MOST_COMPARES: usize = 120;

/// The sessions of how many waiters are read with the records of a key: those whose turn it may be.
const FIRST_WAITERS: usize = 8;

/// What a step has read, all of it at one revision.
#[derive(Debug, Clone, Default)]
pub(crate) struct Seen {
    /// 0 before the first read.
    pub(crate) revision: i64,
    /// Whether it was not read, but is what this process left.
    pub(crate) guessed: bool,
    pub(crate) keys: HashMap<Key, KeyRecords>,
    /// Whether a session is there.
    pub(crate) sessions: HashMap<String, bool>,
    pub(crate) waits: HashMap<(HolderId, Token), Vec<Key>>,
    /// What was read of the tasks.
    pub(crate) tasks: SeenTasks,
}

impl Seen {
    /// Adds the answer to a read of these sessions.
    pub(crate) fn add_sessions(
        &mut self,
        names: &[String],
        found: impl IntoIterator<Item = Vec<KeyValue>>,
    ) {
        let found = found.into_iter().map(|kvs| !kvs.is_empty());
        self.sessions.extend(names.iter().cloned().zip(found));
    }
}

/// The reads of these sessions.
fn sessions(layout: &Layout, names: &[String]) -> impl Iterator<Item = RangeRequest> {
    names
        .iter()
        .map(|name| RangeRequest::one(layout.session(name)))
}

/// The names of the sessions of a key's first waiters.
pub(crate) fn first_waiters(records: &KeyRecords) -> Vec<String> {
    let mut first: Vec<&Waiter> = records.tickets.iter().map(|one| &one.waiter).collect();
    first.sort_by_key(|waiter| waiter.rank());
    let locks = first
        .iter()
        .take(FIRST_WAITERS)
        .filter_map(|waiter| waiter.holder.liveness_lock());
    let names: BTreeSet<String> = locks.map(|lock| lock.0.clone()).collect();
    names.into_iter().collect()
}

/// What is put under a name, and the etcd lease that it is tied to; `None` deletes it.
pub(crate) type Write = Option<(Vec<u8>, i64)>;

/// What a step writes.
#[derive(Debug, Default)]
pub(crate) struct Writes {
    pub(crate) request: String,
    pub(crate) records: BTreeMap<String, Write>,
    pub(crate) compares: Vec<Compare>,
    /// The records of the keys that it has written, as they are after it.
    after: HashMap<Key, KeyRecords>,
    /// The keys whose records are added or removed.
    pub(crate) guarded: BTreeSet<Key>,
    events: Vec<String>,
    /// Whether a token or a ticket number was needed.
    pub(crate) numbered: bool,
    /// The leases whose lives begin in this step.
    pub(crate) begun: Vec<(String, Life)>,
    /// The leases whose lives it ends.
    pub(crate) ended: Vec<String>,
    /// Whether it removes the parts of large changes that are not valid.
    pub(crate) removes_parts: bool,
}

/// Why a verb did not come to an end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Again {
    /// It needs to know more than was guessed.
    Guessed,
    /// The revision that it reads at has been compacted.
    Compacted,
    /// A large change of tasks has to be carried out first.
    Unfinished,
    /// Another process has its turn to change tasks.
    NotYet,
}

/// A step under way.
pub struct EtcdStep<'a> {
    pub(crate) store: &'a EtcdStore,
    pub(crate) by: Instant,
    pub(crate) now: Moment,
    pub(crate) seen: Seen,
    pub(crate) writes: Writes,
    /// Why the verb has to run again, if it failed.
    pub(crate) again: Option<Again>,
    /// The revision of the transaction, when the verb runs again for its answer.
    pub(crate) committed: Option<u64>,
    /// Whether sessions that are not known count as there, and holders wait for nothing as far as is known, because the
    /// transaction compares it.
    pub(crate) assumes: bool,
    /// The sessions of which that was assumed.
    pub(crate) assumed: Vec<String>,
    /// Whether it was assumed that a holder does not wait.
    pub(crate) assumes_no_waits: bool,
    /// What was found out about processes of this machine.
    probed: Vec<(Binding, Liveness)>,
    /// The name of the turn that this step has among steps on tasks, if it asked for one.
    pub(crate) turn: Option<String>,
    /// Whether it waits for the turns of others.
    pub(crate) gives_way: bool,
    /// How many tasks and sections it has added.
    pub(crate) added: u64,
    /// Whether its transaction only decides on a change of tasks that is carried out by more.
    pub(crate) is_large: bool,
}

impl std::fmt::Debug for EtcdStep<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EtcdStep").finish_non_exhaustive()
    }
}

/// Stands for the revision of a transaction that has not been made.
pub(crate) const NOT_YET: u64 = u64::MAX >> 1;

impl<'a> EtcdStep<'a> {
    pub(crate) fn new(store: &'a EtcdStore, by: Instant, seen: Seen, request: String) -> Self {
        Self {
            store,
            by,
            now: store.now(),
            seen,
            writes: Writes {
                request,
                ..Writes::default()
            },
            again: None,
            committed: None,
            assumes: false,
            assumed: Vec::new(),
            assumes_no_waits: false,
            probed: Vec::new(),
            turn: None,
            gives_way: false,
            added: 0,
            is_large: false,
        }
    }

    /// The same step once more, for its answer: what was written is known to have this revision.
    pub(crate) fn answer_at(&mut self, revision: i64) {
        self.committed = Some(number(revision));
        self.writes = Writes::default();
        self.added = 0;
    }

    /// The transaction. If a comparison fails, it reads the version of the layout, the guard of the tasks if the step is
    /// about them, all records of `key`, and the sessions of its first waiters.
    pub(crate) fn transaction(
        &mut self,
        key: Option<&Key>,
    ) -> Result<Option<TxnRequest>, StoreError> {
        if self.writes.records.is_empty() {
            return Ok(None);
        }
        let layout = &self.store.layout;
        let guard = json(&Guard {
            request: self.writes.request.clone(),
        });
        for key in &self.writes.guarded {
            let name = layout.guard(key);
            let seen = self.seen.keys.get(key);
            let before = seen.map_or(0, |records| records.guard);
            self.writes
                .compares
                .push(Compare::unchanged(name.clone(), before));
            let value = if is_idle(layout, key, seen, &self.writes.records) {
                None
            } else {
                Some((guard.clone(), 0))
            };
            self.writes.records.insert(name, value);
        }
        let staged = self.guard_tasks()?;
        let layout = &self.store.layout;
        let version = Compare::value(layout.version(), VERSION.to_string().into_bytes());
        let operations = self.writes.records.iter().map(operation);
        let removed = self.writes.removes_parts.then(|| all_parts(layout).into());
        let waiters = self.waiters(key);
        let failure = std::iter::once(RangeRequest::one(layout.version()))
            .chain(is_of_tasks(key).then(|| RangeRequest::one(layout.task_guard())))
            .chain(key.map(|key| RangeRequest::below(layout.key(key))))
            .chain(sessions(layout, &waiters))
            .map(|range| Op::Range(range).into())
            .collect();
        let transaction = TxnRequest {
            compare: std::iter::once(version)
                .chain(self.writes.compares.iter().cloned())
                .collect(),
            success: operations.chain(removed).collect(),
            failure,
        };
        let operations = transaction.compare.len().max(transaction.success.len());
        if operations > MOST_OPERATIONS {
            if self.seen.guessed {
                // What is read need not be compared one by one.
                self.again = Some(Again::Guessed);
            }
            let what = format!(
                "this changes {operations} locks at once: etcd allows {MOST_OPERATIONS} in one transaction"
            );
            return Err(StoreError::new(ErrorKind::Unsupported, what).fix("do it in parts"));
        }
        if let Some(chunks) = staged {
            self.store.stage(&chunks, self.guard_revision(), self.by)?;
        }
        Ok(Some(transaction))
    }

    /// The sessions that the next attempt may depend on: those that this one has met, and those of a key's first
    /// waiters.
    pub(crate) fn waiters(&self, key: Option<&Key>) -> Vec<String> {
        let records = key.and_then(|key| self.seen.keys.get(key));
        let mut names = records.map(first_waiters).unwrap_or_default();
        names.extend(self.seen.sessions.keys().cloned());
        names.sort();
        names.dedup();
        names.truncate(AT_ONCE);
        names
    }

    /// The first event that this step writes: proof that it was carried out.
    pub(crate) fn proof(&self) -> Option<&str> {
        self.writes.events.first().map(String::as_str)
    }

    /// Reads records, at the revision of the step. The first read checks the version of the layout, too.
    pub(crate) fn read(
        &mut self,
        mut ranges: Vec<RangeRequest>,
    ) -> Result<Vec<Vec<KeyValue>>, StoreError> {
        if self.seen.guessed {
            self.again = Some(Again::Guessed);
            return Err(StoreError::new(ErrorKind::Contended, "nothing is known"));
        }
        let revision = self.seen.revision;
        if revision == 0 {
            ranges.insert(0, RangeRequest::one(self.store.layout.version()));
        }
        let ranges = ranges.into_iter();
        let ranges = ranges.map(|range| RangeRequest { revision, ..range });
        let ranges: Vec<_> = ranges.collect();
        let job = move |client: Client| {
            let ranges = ranges.clone();
            async move { client.read(ranges).await }
        };
        let (found, at) = match self.store.cluster.ask(self.by, job) {
            Ok(answer) => answer,
            Err(failure) => {
                if matches!(failure, Failure::Compacted) {
                    self.again = Some(Again::Compacted);
                }
                return Err(failure.into_error());
            }
        };
        let mut found = found.into_iter();
        if revision == 0 {
            self.seen.revision = at;
            let version = found.next().unwrap_or_default();
            self.store.check_version(version.first())?;
        }
        Ok(found.collect())
    }

    /// The records of a key, with what this step has written.
    pub(crate) fn records(&mut self, key: &Key) -> Result<&KeyRecords, StoreError> {
        self.read_keys(std::slice::from_ref(key))?;
        if !self.assumes {
            self.read_sessions(self.waiters(Some(key)))?;
        }
        if self.writes.after.contains_key(key) {
            return Ok(self.writes.after.entry(key.clone()).or_default());
        }
        Ok(self.seen.keys.entry(key.clone()).or_default())
    }

    /// Reads the records of keys that are not known yet.
    pub(crate) fn read_keys(&mut self, keys: &[Key]) -> Result<(), StoreError> {
        let unknown: Vec<&Key> = keys
            .iter()
            .filter(|key| !self.seen.keys.contains_key(*key))
            .filter(|key| {
                !(self.seen.tasks.all_sections && matches!(key.kind(), KeyKind::Section(_)))
            })
            .collect();
        for some in unknown.chunks(AT_ONCE) {
            // The sessions of the waiters that this process knows, too: that saves a round trip.
            let waiters = match some {
                [key] => self.store.known_waiters(key),
                _ => Vec::new(),
            };
            let layout = &self.store.layout;
            let ranges = some.iter().map(|key| RangeRequest::below(layout.key(key)));
            let ranges = ranges.chain(sessions(layout, &waiters));
            let mut found = self.read(ranges.collect())?.into_iter();
            for (key, kvs) in some.iter().zip(&mut found) {
                let records = KeyRecords::read(&self.store.layout, &kvs);
                self.seen.keys.insert((*key).clone(), records);
            }
            self.seen.add_sessions(&waiters, found);
        }
        Ok(())
    }

    /// Reads sessions that are not known yet.
    pub(crate) fn read_sessions(
        &mut self,
        names: impl IntoIterator<Item = String>,
    ) -> Result<(), StoreError> {
        let unknown: BTreeSet<String> = names
            .into_iter()
            .filter(|name| !self.seen.sessions.contains_key(name))
            .collect();
        let unknown: Vec<String> = unknown.into_iter().collect();
        for some in unknown.chunks(AT_ONCE) {
            let found = self.read(sessions(&self.store.layout, some).collect())?;
            self.seen.add_sessions(some, found);
        }
        Ok(())
    }

    /// Whether a session has ended, as far as the cluster knows. One that can't be read has not.
    fn has_ended(&mut self, name: &str) -> bool {
        let session = self.store.layout.session(name);
        if self.may_assume(1) && !self.seen.sessions.contains_key(name) {
            self.seen.sessions.insert(name.to_owned(), true);
            self.assumed.push(name.to_owned());
            self.writes.compares.push(Compare::present(session));
            return false;
        }
        if self.read_sessions([name.to_owned()]).is_err() {
            return false;
        }
        let ended = self.seen.sessions.get(name) == Some(&false);
        self.compare_guess(if ended {
            Compare::missing(session)
        } else {
            Compare::present(session)
        });
        ended
    }

    /// Whether something may be assumed that costs so many comparisons.
    fn may_assume(&self, compares: usize) -> bool {
        self.assumes && self.writes.compares.len() + compares <= MOST_COMPARES
    }

    /// Makes the transaction depend on something that was guessed.
    fn compare_guess(&mut self, compare: Compare) {
        if self.seen.guessed && !self.writes.compares.contains(&compare) {
            self.writes.compares.push(compare);
        }
    }

    fn is_own(&self, binding: &Binding) -> bool {
        self.store.presence.is_ours(binding)
    }

    /// What this machine knows of a process, the same for the whole step.
    fn liveness_here(&mut self, binding: &Binding) -> Liveness {
        if let Some((_, known)) = self.probed.iter().find(|(other, _)| other == binding) {
            return known.clone();
        }
        let found = self.probe_here(binding);
        self.probed.push((binding.clone(), found.clone()));
        found
    }

    /// The proofs of one machine hold on that machine only, and hosts may share a name: only the boot says that it is the
    /// same machine.
    fn probe_here(&self, binding: &Binding) -> Liveness {
        if self.is_own(binding) {
            return Liveness::Running;
        }
        let Some(process) = binding.process() else {
            return Liveness::Unverifiable(Doubt::Detached);
        };
        if !process.boot.same(identity::boot()) {
            return Liveness::Unverifiable(Doubt::OtherHost);
        }
        let folder = self.store.presence.folder();
        let is_missing = binding.liveness_lock().is_some_and(
            |lock| !matches!(folder.state_of(lock), Ok(state) if state != LockState::Missing),
        );
        if is_missing {
            // Another user's lock: its process may have left a command behind that still runs.
            return Liveness::Unverifiable(Doubt::Unreadable);
        }
        liveness::probe(folder, binding)
    }

    pub(crate) fn put(&mut self, name: String, value: Vec<u8>, etcd_lease: i64) {
        self.writes.records.insert(name, Some((value, etcd_lease)));
    }

    pub(crate) fn delete(&mut self, name: String) {
        self.writes.records.insert(name, None);
    }

    /// Puts a record that no step reads back by its name: a verb that runs again for its answer need not write it.
    fn put_record(&mut self, name: impl FnOnce(&Layout) -> String, record: &impl Serialize) {
        if self.committed.is_none() {
            self.put(name(&self.store.layout), json(record), 0);
        }
    }

    /// What this step writes of a key is what it reads from here on.
    fn written(&mut self, key: &Key) -> &mut KeyRecords {
        let seen = self.seen.keys.get(key);
        let after = self.writes.after.entry(key.clone());
        after.or_insert_with(|| seen.cloned().unwrap_or_default())
    }

    /// The revision of this step's transaction.
    fn revision(&self) -> u64 {
        self.committed.unwrap_or(NOT_YET)
    }

    /// The records of a key that was read, as they are after the transaction.
    pub(crate) fn left(&self, key: &Key, revision: i64) -> KeyRecords {
        let mut records = self.known(key).cloned().unwrap_or_default();
        records.set_revision(NOT_YET, number(revision));
        match self.writes.records.get(&self.store.layout.guard(key)) {
            None => {}
            Some(None) => (records.guard, records.request) = (0, None),
            Some(Some(_)) => {
                (records.guard, records.request) = (revision, Some(self.writes.request.clone()));
            }
        }
        records
    }

    pub(crate) fn record(&mut self, event: Event, own_token: bool) {
        if self.committed.is_some() {
            return;
        }
        let record = EventRecord {
            at: event.at,
            key: event.key,
            kind: event.kind,
            token: (!own_token).then_some(event.token),
            holder: event.holder,
            reason: event.reason,
            evidence: event.evidence,
            mode: event.mode,
            waited: event.waited,
        };
        let number = self.writes.events.len();
        let layout = &self.store.layout;
        let name = layout.event(self.now.wall, &self.writes.request, number);
        self.put(name.clone(), json(&record), 0);
        self.writes.events.push(name);
    }

    /// Gives a lease a new life.
    fn begin_life(&mut self, lease: &Lease, name: &str) -> Result<(), StoreError> {
        if self.committed.is_some() {
            return Ok(());
        }
        let life = self.store.new_life(lease.ttl, self.by)?;
        let key = self.store.layout.life(&lease.key, name);
        self.put(key.clone(), Vec::new(), life.etcd_lease);
        self.written(&lease.key).alive.insert(name.to_owned());
        self.writes.begun.push((key, life));
        Ok(())
    }

    fn stored_ticket(&self, key: &Key, ticket: Ticket) -> Option<StoredTicket> {
        let tickets = &self.known(key)?.tickets;
        let found = tickets.iter().find(|one| one.waiter.ticket == ticket);
        found.cloned()
    }

    /// The two indexes of a ticket.
    fn index(&self, key: &Key, waiter: &Waiter, name: &str) -> Vec<String> {
        let layout = &self.store.layout;
        let by_holder = layout.waits_of_holder(&waiter.holder.id);
        let by_grant = waiter
            .within
            .iter()
            .map(|token| layout.waits_of_grant(*token));
        std::iter::once(by_holder)
            .chain(by_grant)
            .map(|prefix| Layout::wait(&prefix, key, name))
            .collect()
    }

    fn put_ticket(&mut self, key: &Key, waiter: &Waiter, name: &str) -> Result<(), StoreError> {
        self.writes.guarded.insert(key.clone());
        let stored = Waiter {
            ticket: Ticket(0),
            ..waiter.clone()
        };
        self.put_record(|layout| layout.ticket(key, name), &stored);
        self.written(key).put_ticket(StoredTicket {
            name: name.to_owned(),
            waiter: waiter.clone(),
        });
        for entry in self.index(key, waiter, name) {
            self.put(entry, Vec::new(), 0);
        }
        if self.is_own(&waiter.holder.binding) && self.committed.is_none() {
            let session = self.store.session(&waiter.holder.binding, self.by)?;
            self.writes.compares.push(Compare::present(session));
        }
        Ok(())
    }

    fn stored(&self, lease: &Lease) -> Option<StoredLease> {
        self.known(&lease.key)?.lease(lease.token).cloned()
    }

    /// The lowest number that is no name of a lease, or of a ticket: neither when the step began nor now. A name that is
    /// removed and put in one step would not be new.
    fn free_name(&self, key: &Key, names: impl Fn(&KeyRecords) -> Vec<&str>) -> String {
        let records = [self.seen.keys.get(key), self.writes.after.get(key)];
        let names = records.into_iter().flatten().flat_map(names);
        let taken: BTreeSet<usize> = names.filter_map(|name| name.parse().ok()).collect();
        let free = (0..taken.len()).find(|number| !taken.contains(number));
        free.unwrap_or(taken.len()).to_string()
    }

    /// The records of a key that was read, with what this step has written.
    fn known(&self, key: &Key) -> Option<&KeyRecords> {
        let written = self.writes.after.get(key);
        written.or_else(|| self.seen.keys.get(key))
    }
}

/// Whether a step is about tasks: it is not about one key, or about that of a task or a section.
pub(crate) fn is_of_tasks(key: Option<&Key>) -> bool {
    key.is_none_or(|key| matches!(key.kind(), KeyKind::Task(_) | KeyKind::Section(_)))
}

/// The id of the task whose key this is.
fn task_of(key: &Key) -> Option<&str> {
    match key.kind() {
        KeyKind::Task(id) if id != tenure_core::task::ANY => Some(id),
        _ => None,
    }
}

/// One write, as an operation of a transaction.
fn operation((name, value): (&String, &Write)) -> RequestOp {
    let key = name.clone().into_bytes();
    match value {
        Some((value, lease)) => Op::Put(PutRequest {
            key,
            value: value.clone(),
            lease: *lease,
        }),
        None => Op::Delete(DeleteRangeRequest {
            key,
            range_end: Vec::new(),
        }),
    }
    .into()
}

/// Whether a key has neither lease nor ticket after these writes: then it needs no guard.
fn is_idle(
    layout: &Layout,
    key: &Key,
    seen: Option<&KeyRecords>,
    writes: &BTreeMap<String, Write>,
) -> bool {
    let prefix = layout.key(key);
    let added = writes
        .iter()
        .any(|(name, value)| name.starts_with(&prefix) && value.is_some());
    let left = seen.is_some_and(|records| {
        let leases = records
            .leases
            .iter()
            .map(|one| layout.lease(key, &one.name));
        let tickets = records
            .tickets
            .iter()
            .map(|one| layout.ticket(key, &one.name));
        leases
            .chain(tickets)
            .any(|name| writes.get(&name) != Some(&None))
    });
    !added && !left
}

impl Look for EtcdStep<'_> {
    type Error = TaskError;

    fn now(&self) -> &Moment {
        &self.now
    }

    fn leases(&mut self, key: &Key) -> Result<Vec<(Lease, Liveness)>, TaskError> {
        let records = self.records(key)?;
        if let Some(problem) = records.problems.first() {
            let what = problem.clone();
            return Err(StoreError::new(ErrorKind::Damaged, what)
                .fix("remove it with etcdctl del, if no newer tenure wrote it")
                .into());
        }
        let (stored, alive) = (records.leases.clone(), records.alive.clone());
        Ok(stored
            .iter()
            .map(|one| {
                let ended = !alive.contains(&one.name);
                let lease = one.lease(key, &self.now, ended);
                if !ended && !self.is_own(&lease.holder.binding) {
                    // It may have expired since, which changes no guard.
                    let life = self.store.layout.life(key, &one.name);
                    self.compare_guess(Compare::present(life));
                }
                let liveness = self.liveness_here(&lease.holder.binding);
                (lease, liveness)
            })
            .collect())
    }

    fn tickets(&mut self, key: &Key) -> Result<Vec<Waiter>, TaskError> {
        let tickets = &self.records(key)?.tickets;
        Ok(tickets.iter().map(|one| one.waiter.clone()).collect())
    }

    fn probe(&mut self, waiter: &Holder) -> Liveness {
        if let Some(lock) = waiter.liveness_lock()
            && !self.is_own(&waiter.binding)
            && self.has_ended(&lock.0)
        {
            return Liveness::Gone(Evidence::SessionEnded {
                session: SessionId(lock.0.clone()),
            });
        }
        match self.liveness_here(&waiter.binding) {
            // Its session says it.
            Liveness::Unverifiable(_) if waiter.binding.is_kept() => Liveness::Running,
            known => known,
        }
    }

    fn problems(&mut self, key: &Key) -> Result<Vec<String>, TaskError> {
        Ok(self.records(key)?.problems.clone())
    }

    /// A waiter whose session is there is heard: its process keeps the session alive.
    fn heard(&mut self, waiter: &Waiter) -> Duration {
        let here = waiter.presence == Presence::Here
            && waiter.holder.liveness_lock().is_some_and(|lock| {
                self.is_own(&waiter.holder.binding) || !self.has_ended(&lock.0)
            });
        if here { self.now.ticks } else { waiter.seen }
    }
}

impl Step for EtcdStep<'_> {
    fn mint(&mut self, _key: &Key) -> Result<Token, TaskError> {
        self.writes.numbered = true;
        Ok(Token(self.revision()))
    }

    fn put_lease(&mut self, lease: &Lease, put: Put) -> Result<(), TaskError> {
        let key = &lease.key;
        let stored = self.stored(lease);
        let name = match &stored {
            Some(stored) => stored.name.clone(),
            None => self.free_name(key, |records| {
                let names = records.leases.iter().map(|one| one.name.as_str());
                names.collect()
            }),
        };
        self.begin_life(lease, &name)?;
        let record = LeaseRecord {
            holder: lease.holder.clone(),
            acquired_at: lease.acquired_at,
            heartbeat_at: lease.heartbeat_at,
            expires_at: self.now.deadline(lease.ttl).wall,
            ttl: lease.ttl,
            mode: lease.mode.clone(),
            slot: lease.slot,
        };
        self.put_record(|layout| layout.lease(key, &name), &record);
        let revision = self.revision();
        self.written(key).put_lease(StoredLease {
            name,
            token: stored
                .as_ref()
                .map_or(Token(revision), |stored| stored.token),
            modified: i64::try_from(revision).unwrap_or(i64::MAX),
            record,
        });
        match (put, stored) {
            (Put::Granted { reason, waited }, _) => {
                self.writes.guarded.insert(key.clone());
                let event = Event::granted(lease, reason, waited, self.now.wall);
                self.record(event, true);
                if let Some(id) = task_of(key) {
                    self.task_granted(id, &lease.holder.id)?;
                }
            }
            (Put::Renewed, Some(stored)) => {
                let name = self.store.layout.lease(key, &stored.name);
                let same = Compare::unchanged(name, stored.modified);
                self.writes.compares.push(same);
                if let Some(id) = task_of(key) {
                    sections::renew_section(self, id, lease)?;
                }
            }
            (Put::Extended | Put::Renewed, stored) => {
                self.writes.guarded.insert(key.clone());
                // Renewals are not recorded, but the history must say that others may hold the key now.
                if stored.is_some_and(|stored| stored.record.mode != lease.mode) {
                    let event = Event::of(lease, EventKind::Renewed, self.now.wall);
                    self.record(event, false);
                }
            }
        }
        Ok(())
    }

    fn end_lease(&mut self, lease: &Lease, how: &Ended, then: Then) -> Result<(), TaskError> {
        let key = &lease.key;
        self.writes.guarded.insert(key.clone());
        let Some(stored) = self.stored(lease) else {
            return Ok(());
        };
        let life = self.store.layout.life(key, &stored.name);
        if matches!(how, Ended::Proven(Evidence::TimeRanOut { .. })) {
            self.writes.compares.push(Compare::missing(life));
        } else {
            self.delete(life.clone());
            self.writes.ended.push(life);
        }
        self.delete(self.store.layout.lease(key, &stored.name));
        self.written(key).remove_lease(&stored.name);
        let (kind, evidence) = match how {
            Ended::Released => (EventKind::Released, None),
            Ended::Proven(evidence) => (EventKind::of(evidence), Some(evidence.clone())),
        };
        let event = Event::of(lease, kind, self.now.wall);
        self.record(Event { evidence, ..event }, false);
        if let Some(id) = task_of(key) {
            self.task_lease_ended(id, &lease.holder.id, how)?;
        }
        if then == Then::Free {
            flow::wake_seekers_of(self, key)?;
        }
        Ok(())
    }

    fn add_ticket(&mut self, key: &Key, waiter: &Waiter) -> Result<Ticket, TaskError> {
        self.writes.numbered = true;
        let name = self.free_name(key, |records| {
            let names = records.tickets.iter().map(|one| one.name.as_str());
            names.collect()
        });
        let ticket = Ticket(self.revision());
        let waiter = Waiter {
            ticket,
            ..waiter.clone()
        };
        self.put_ticket(key, &waiter, &name)?;
        Ok(ticket)
    }

    fn update_ticket(&mut self, key: &Key, waiter: &Waiter) -> Result<(), TaskError> {
        let Some(stored) = self.stored_ticket(key, waiter.ticket) else {
            return Ok(());
        };
        // A wait that is resumed may run under other grants.
        for entry in self.index(key, &stored.waiter, &stored.name) {
            self.delete(entry);
        }
        self.put_ticket(key, waiter, &stored.name)?;
        if waiter.presence == Presence::Away {
            flow::wake_seekers_of(self, key)?;
        }
        Ok(())
    }

    fn remove_ticket(&mut self, key: &Key, ticket: Ticket) -> Result<(), TaskError> {
        let Some(stored) = self.stored_ticket(key, ticket) else {
            return Ok(());
        };
        if self.writes.records.len() > ENOUGH {
            // One of very many forgotten tickets: a later step removes it.
            return Ok(());
        }
        self.writes.guarded.insert(key.clone());
        self.delete(self.store.layout.ticket(key, &stored.name));
        let tickets = &mut self.written(key).tickets;
        tickets.retain(|one| one.name != stored.name);
        for entry in self.index(key, &stored.waiter, &stored.name) {
            self.delete(entry);
        }
        flow::wake_seekers_of(self, key)
    }

    fn waits_of(&mut self, holder: &HolderId, token: Token) -> Result<Vec<Key>, TaskError> {
        let asked = (holder.clone(), token);
        let layout = &self.store.layout;
        let mut prefixes = vec![layout.waits_of_holder(holder)];
        if token != Token::NONE {
            prefixes.push(layout.waits_of_grant(token));
        }
        let is_known = self.seen.waits.contains_key(&asked);
        if self.seen.guessed || !is_known && self.may_assume(prefixes.len()) {
            // Holders rarely wait.
            let nothing = prefixes.into_iter().map(Compare::none_below);
            self.writes.compares.extend(nothing);
            self.assumes_no_waits = true;
            return Ok(Vec::new());
        }
        if !is_known {
            let ranges = prefixes.iter().cloned().map(RangeRequest::below);
            let ranges = ranges.map(|range| RangeRequest {
                keys_only: true,
                ..range
            });
            let found = self.read(ranges.collect())?;
            let mut keys = BTreeSet::new();
            for (prefix, kvs) in prefixes.iter().zip(found) {
                let waited = |kv: &KeyValue| Layout::waited_key(prefix, kv.name());
                keys.extend(kvs.iter().filter_map(waited));
            }
            self.seen
                .waits
                .insert(asked.clone(), keys.into_iter().collect());
        }
        let revision = self.seen.revision;
        for prefix in prefixes {
            let nothing_new = Compare::nothing_new_below(prefix, revision);
            let compares = &mut self.writes.compares;
            // A chain of more than fifty holders is compared in part.
            if compares.len() < MOST_COMPARES && !compares.contains(&nothing_new) {
                compares.push(nothing_new);
            }
        }
        Ok(self.seen.waits.get(&asked).cloned().unwrap_or_default())
    }

    fn record_request(&mut self, event: &Event) -> Result<bool, TaskError> {
        self.record(event.clone(), false);
        Ok(true)
    }

    /// Touches the waiter's tickets: it watches them.
    fn wake(&mut self, holder: &Holder) {
        let Some(lock) = holder.liveness_lock() else {
            return;
        };
        let mut touched = Vec::new();
        for (key, records) in &self.seen.keys {
            for one in &records.tickets {
                let name = self.store.layout.ticket(key, &one.name);
                if one.waiter.holder.liveness_lock() == Some(lock)
                    && !self.writes.records.contains_key(&name)
                {
                    let stored = Waiter {
                        ticket: Ticket(0),
                        ..one.waiter.clone()
                    };
                    touched.push((key.clone(), name, stored));
                }
            }
        }
        for (key, name, stored) in touched {
            // A waiter that is served wakes the next one, if a key has room for many.
            if self.writes.records.len() < ENOUGH {
                self.writes.guarded.insert(key);
                self.put_record(|_| name, &stored);
            }
        }
    }

    fn grace(&self) -> Duration {
        self.store.options.queue_grace
    }

    /// The session says it.
    fn hear(&mut self, _key: &Key, _waiter: &Waiter) -> Result<(), TaskError> {
        Ok(())
    }
}
