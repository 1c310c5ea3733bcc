//! One step of the engine as one optimistic transaction: [`EtcdStep`].
//!
//! A step reads a key's records at one revision, runs the verb, and collects what it writes. The
//! transaction writes all of it if the key's guard has not changed since; otherwise the step runs again on what is
//! there now, which the failed transaction has read.
//!
//! A step often begins with a *guess* (`guess`): that the key is as this process left it. The transaction compares everything
//! that the guess relies on. If it is right, the step costs one round trip; if not, no more than a read.
//!
//! # Invariants
//!
//! 1. Every step that adds or removes a record of a key writes the key's guard, and compares it. A renewal
//!    changes one lease in place and compares that lease instead. Of a key without a guard it compares that the key has no
//!    record, or none that was written since. A ticket for a key that is held alone is added while
//!    that lease is there, and if the guard has changed, the verb runs again: it has its ticket then.
//! 2. A ticket is written only while the session of its process is there.
//! 3. An expired lease is taken over only while it has not been renewed.
//! 4. Of two claims that would close a cycle, each compares that the holders which it looked at do not wait for more
//!    than it saw. So the second one runs again, and sees the first.
//! 5. A guess is never an answer: a verb that writes nothing runs on what was read.
//! 6. A step probes each process once. The token of a lease and the number of a ticket are the revision of the
//!    transaction, which is known only afterwards, so a verb that needs one runs a second time for its answer, on the
//!    same records. If a holder died in between, the answer would be a grant, although a ticket was written.

mod changes;
mod writes;

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use tenure_core::engine::Look;
use tenure_core::queue::TURN_LAPSE;
use tenure_core::{
    Binding, Doubt, Evidence, Holder, HolderId, Key, KeyKind, Lease, Liveness, Moment, Presence,
    SessionId, StoreError, Token, Waiter,
};
use tenure_host::clock::since_boot;
use tenure_host::liveness_lock::LockState;
use tenure_host::{identity, liveness};
use tenure_tasks::TaskError;

use crate::client::Client;
use crate::cluster::CallFailure;
use crate::guess::Assumed;
use crate::layout::Layout;
use crate::proto::{Compare, KeyValue, RangeRequest};
use crate::records::{KeyRecords, number};
use crate::store::EtcdStore;
use crate::tasks::SeenTasks;
use tenure_host::lock;

pub(crate) use writes::{MOST_OPERATIONS, Write, Writes};

/// How many sessions are read at once: a transaction has at most 128 operations.
const AT_ONCE: usize = 100;

/// At most so many comparisons.
pub(crate) const MOST_COMPARES: usize = 120;

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
    /// More leases have ended than one transaction can remove.
    Crowded,
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
    /// What is assumed because the transaction compares it.
    pub(crate) assumed: Assumed,
    /// What was found out about processes of this machine.
    probed: Vec<(Binding, Liveness)>,
    /// The name of the turn that this step has among steps on tasks, if it asked for one.
    pub(crate) turn: Option<String>,
    /// How many earlier attempts were overtaken.
    pub(crate) attempts: u32,
    /// Whether it waits for the turns of others.
    pub(crate) gives_way: bool,
    /// How many tasks and sections it has added.
    pub(crate) added: u64,
    /// What a token of it is larger than the revision of its transaction, if it grants a key.
    pub(crate) raised: Option<u64>,
    /// When it began, on the boot clock.
    pub(crate) began: Duration,
    /// Whether its transaction only decides on a change of tasks that is carried out by more.
    pub(crate) is_large: bool,
}

impl std::fmt::Debug for EtcdStep<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EtcdStep").finish_non_exhaustive()
    }
}

impl Drop for EtcdStep<'_> {
    /// What was begun in vain can be used by the next step.
    fn drop(&mut self) {
        if !self.writes.may_be_made {
            let begun = self.writes.begun.drain(..).map(|(_, one)| one);
            lock(&self.store.etcd_leases).unused.extend(begun);
        }
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
            assumed: Assumed::default(),
            probed: Vec::new(),
            turn: None,
            attempts: 0,
            gives_way: false,
            added: 0,
            raised: None,
            began: since_boot(),
            is_large: false,
        }
    }

    /// The same step once more, for its answer: what was written is known to have this revision.
    pub(crate) fn answer_at(&mut self, revision: i64) {
        self.committed = Some(number(revision));
        self.writes = Writes::default();
        self.added = 0;
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

    /// Reads records, at the revision of the step. The first read checks the version of the layout, too.
    pub(crate) fn read(
        &mut self,
        mut ranges: Vec<RangeRequest>,
    ) -> Result<Vec<Vec<KeyValue>>, StoreError> {
        self.refuse_guess()?;
        let revision = self.seen.revision;
        if revision == 0 {
            ranges.insert(0, RangeRequest::one(self.store.layout.version()));
        }
        let ranges = ranges.into_iter();
        let ranges = ranges.map(|range| RangeRequest { revision, ..range });
        let ranges: Vec<_> = ranges.collect();
        let read = self.store.cluster.ask(self.by, &ranges, Client::read);
        if matches!(read, Err(CallFailure::Compacted)) {
            self.again = Some(Again::Compacted);
        }
        let (found, at) = read.map_err(CallFailure::into_error)?;
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
        if !self.may_assume(0) {
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
                !self.seen.tasks.all_sections || !matches!(key.kind(), KeyKind::Section(_))
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
        if self.assume_session(name) {
            return false;
        }
        if self.read_sessions([name.to_owned()]).is_err() {
            return false;
        }
        let ended = self.seen.sessions.get(name) == Some(&false);
        let session = self.store.layout.session(name);
        self.compare_guess(if ended {
            Compare::missing(session)
        } else {
            Compare::present(session)
        });
        ended
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
        if !self.store.can_prove(binding) {
            return Liveness::Unverifiable(Doubt::Unreadable);
        }
        liveness::probe(self.store.presence.folder(), binding)
    }

    /// The revision of this step's transaction.
    fn revision(&self) -> u64 {
        self.committed.unwrap_or(NOT_YET)
    }

    /// What the token of what this step grants is larger than the revision of its transaction.
    pub(crate) fn raised(&self) -> u64 {
        self.raised.unwrap_or_default()
    }

    /// The token of what this step grants.
    pub(crate) fn token(&self) -> Token {
        Token(match self.committed {
            Some(revision) => revision.saturating_add(self.raised()),
            None => NOT_YET,
        })
    }

    /// The records of a key that was read, with what this step has written.
    fn known(&self, key: &Key) -> Option<&KeyRecords> {
        let written = self.writes.after.get(key);
        written.or_else(|| self.seen.keys.get(key))
    }
}

impl EtcdStore {
    /// Whether the death of a process can be proven here. It is one of this boot, and its liveness lock is not another user's:
    /// such a process may have left a command behind that still runs.
    pub(crate) fn can_prove(&self, binding: &Binding) -> bool {
        let process = binding.process();
        let folder = self.presence.folder();
        let is_there =
            |lock| matches!(folder.state_of(lock), Ok(state) if state != LockState::Missing);
        process.is_some_and(|process| process.boot.same(identity::boot()))
            && binding.liveness_lock().is_none_or(is_there)
    }
}

/// Whether a step is about tasks: it is not about one key, or about that of a task or a section.
pub(crate) fn is_of_tasks(key: Option<&Key>) -> bool {
    key.is_none_or(|key| matches!(key.kind(), KeyKind::Task(_) | KeyKind::Section(_)))
}

impl Look for EtcdStep<'_> {
    type Error = TaskError;

    fn now(&self) -> &Moment {
        &self.now
    }

    fn leases(&mut self, key: &Key) -> Result<Vec<(Lease, Liveness)>, TaskError> {
        let records = self.records(key)?;
        let (stored, alive) = (records.leases.clone(), records.alive.clone());
        Ok(stored
            .iter()
            .map(|one| {
                let ended = !alive.contains_key(&one.name);
                let lease = one.lease(key, &self.now, ended);
                if !ended && !self.is_own(&lease.holder.binding) {
                    // It may have expired since, which changes no guard.
                    let life = self.store.layout.life(key, &one.name);
                    self.compare_guess(Compare::present(life));
                }
                let liveness = if one.is_damaged && !ended {
                    Liveness::Unverifiable(Doubt::Malformed)
                } else {
                    self.liveness_here(&lease.holder.binding)
                };
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

    fn grace(&self) -> Duration {
        self.store.options.queue_grace
    }

    /// A waiter whose session is there is heard: its process keeps the session alive.
    fn heard(&mut self, waiter: &Waiter) -> Duration {
        let here = waiter.presence == Presence::Here
            && waiter.holder.liveness_lock().is_some_and(|lock| {
                self.is_own(&waiter.holder.binding) || !self.has_ended(&lock.0)
            });
        if !here {
            waiter.seen
        } else if self.lets_pass(waiter) {
            self.now.ticks.saturating_sub(TURN_LAPSE)
        } else {
            self.now.ticks
        }
    }
}
