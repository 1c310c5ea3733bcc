//! What a step writes, and the transaction that it becomes: [`Writes`].

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::Serialize;
use tenure_core::{ErrorKind, Event, Key, StoreError};

use super::{Again, EtcdStep, NOT_YET, is_of_tasks, sessions};
use crate::etcd_leases::EtcdLease;
use crate::layout::{Layout, VERSION};
use crate::proto::{Compare, KeyValue, RangeRequest, RequestOp, TxnRequest, TxnResponse};
use crate::records::{EventRecord, KeyGuard, KeyRecords, json, number};
use crate::tasks::all_parts;

/// So many operations, or comparisons, a transaction of etcd may have.
pub(crate) const MOST_OPERATIONS: usize = 128;

/// What is put under a name, and the etcd lease that it is tied to; `None` deletes it.
pub(crate) type Write = Option<(Vec<u8>, i64)>;

/// What a step writes.
#[derive(Debug, Default)]
pub(crate) struct Writes {
    pub(crate) request: String,
    pub(crate) records: BTreeMap<String, Write>,
    pub(crate) compares: Vec<Compare>,
    /// The records of the keys that it has written, as they are after it.
    pub(super) after: HashMap<Key, KeyRecords>,
    /// The keys whose records are added or removed.
    pub(crate) guarded: BTreeSet<Key>,
    pub(super) events: Vec<String>,
    /// The key and the name of a new ticket of a claim that wants one key alone, and that only.
    pub(super) queued: Option<(Key, String)>,
    /// A guard that is written and not compared, and the revision at which it was written last as far as the step knows.
    pub(super) unguarded: Option<(String, i64)>,
    /// Whether a token or a ticket number was needed.
    pub(crate) numbered: bool,
    /// The lives that begin in this step, and the etcd lease of each.
    pub(crate) begun: Vec<(String, EtcdLease)>,
    /// Whether the transaction may have been made although no answer said so: then leases may live by what it begins.
    pub(crate) may_be_made: bool,
    /// The lives that it ends.
    pub(crate) ended: Vec<String>,
    /// How many leases it removes.
    pub(super) ends: usize,
    /// Whether it removes the parts of large changes that are not valid.
    pub(crate) removes_parts: bool,
}

impl EtcdStep<'_> {
    /// The transaction. If a comparison fails, it reads the version of the layout, where tokens come from, the guard of the tasks if the step is
    /// about them, all records of `key`, and the sessions of its first waiters.
    pub(crate) fn transaction(
        &mut self,
        key: Option<&Key>,
    ) -> Result<Option<TxnRequest>, StoreError> {
        if self.writes.records.is_empty() {
            return Ok(None);
        }
        let layout = &self.store.layout;
        let guard = json(&KeyGuard {
            request: self.writes.request.clone(),
        });
        for key in &self.writes.guarded.clone() {
            let name = layout.guard(key);
            let seen = self.seen.keys.get(key);
            let before = seen.map_or(0, |records| records.guard);
            if let Some(compares) = self.only_queues(key) {
                self.writes.compares.extend(compares);
                self.writes.unguarded = Some((name.clone(), before));
            } else {
                let unchanged = match seen {
                    Some(records) if before == 0 => self.no_guard(key, records),
                    _ => Compare::unchanged(name.clone(), before),
                };
                self.writes.compares.push(unchanged);
            }
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
        let guard_before = self
            .writes
            .unguarded
            .iter()
            .map(|(name, _)| RequestOp::read(RangeRequest::one(name.clone()).keys_only()));
        let removed = self.writes.removes_parts.then(|| all_parts(layout));
        let waiters = self.waiters(key);
        let failure = [layout.version(), layout.origin()]
            .into_iter()
            .map(RangeRequest::one)
            .chain(is_of_tasks(key).then(|| RangeRequest::one(layout.task_guard())))
            .chain(key.map(|key| RangeRequest::below(layout.key(key))))
            .chain(sessions(layout, &waiters))
            .map(RequestOp::read)
            .collect();
        let transaction = TxnRequest {
            compare: std::iter::once(version)
                .chain(self.writes.compares.iter().cloned())
                .collect(),
            success: guard_before.chain(operations).chain(removed).collect(),
            failure,
        };
        let operations = transaction.compare.len().max(transaction.success.len());
        if operations > MOST_OPERATIONS {
            if self.seen.guessed {
                // What is read need not be compared one by one.
                self.again = Some(Again::Guessed);
            } else if self.writes.ends > 0 {
                self.again = Some(Again::Crowded);
            }
            let keys = self.writes.guarded.len();
            let what = format!(
                "this changes {keys} keys in {operations} operations: etcd allows {MOST_OPERATIONS} operations in one \
                 transaction, enough for about 32 keys"
            );
            let fix = "name fewer keys in one command";
            return Err(StoreError::new(ErrorKind::Unsupported, what).fix(fix));
        }
        if let Some(chunks) = staged {
            self.store.stage(&chunks, self.guard_revision(), self.by)?;
        }
        Ok(Some(transaction))
    }

    /// What to compare if a key has no guard, as far as the step knows: that the key has no record at all, or that none was
    /// written since. A guard that was removed by hand must not make a key look free.
    fn no_guard(&self, key: &Key, records: &KeyRecords) -> Compare {
        let all = self.store.layout.key(key);
        if records.is_empty() {
            Compare::none_below(all)
        } else {
            Compare::nothing_new_below(all, self.seen.revision)
        }
    }

    /// What to compare instead of the guard, if all that this step does is to queue for a key that one process holds alone: that
    /// this lease is there, and that no other step has used the name of the ticket. Others may queue at the same time. The
    /// transaction reads the guard before it writes it, so the step learns whether they did.
    fn only_queues(&self, key: &Key) -> Option<[Compare; 2]> {
        let layout = &self.store.layout;
        let (queued_for, name) = self.writes.queued.as_ref()?;
        let [held] = self.seen.keys.get(key)?.leases.as_slice() else {
            return None;
        };
        let prefix = layout.key(key);
        let written = self.writes.records.keys();
        let alone = self.writes.guarded.len() == 1
            && self.writes.events.is_empty()
            && queued_for == key
            && held.record.mode.is_exclusive()
            && written.filter(|name| name.starts_with(&prefix)).count() == 1;
        let created = i64::try_from(held.created()).ok()?;
        alone.then(|| {
            [
                Compare::created_at(layout.lease(key, &held.name), created),
                Compare::missing(layout.ticket(key, name)),
            ]
        })
    }

    /// Whether another step was made between what this one has read and its transaction, which had this answer; without one,
    /// it may have been.
    pub(crate) fn was_overtaken(&self, answer: Option<TxnResponse>) -> bool {
        self.writes.unguarded.as_ref().is_some_and(|(_, before)| {
            let found = answer.and_then(|answer| answer.found().next());
            let revision = |kvs: Vec<KeyValue>| kvs.first().map_or(0, |kv| kv.mod_revision);
            found.map(revision) != Some(*before)
        })
    }

    /// The first event that this step writes: proof that it was carried out.
    pub(crate) fn proof(&self) -> Option<&str> {
        self.writes.events.first().map(String::as_str)
    }

    pub(crate) fn put(&mut self, name: String, value: Vec<u8>, etcd_lease: i64) {
        self.writes.records.insert(name, Some((value, etcd_lease)));
    }

    pub(crate) fn delete(&mut self, name: String) {
        self.writes.records.insert(name, None);
    }

    /// Puts a record that no step reads back by its name: a verb that runs again for its answer need not write it.
    pub(super) fn put_record(&mut self, name: String, record: &impl Serialize) {
        if self.committed.is_none() {
            self.put(name, json(record), 0);
        }
    }

    /// What this step writes of a key is what it reads from here on.
    pub(super) fn written(&mut self, key: &Key) -> &mut KeyRecords {
        let seen = self.seen.keys.get(key);
        let after = self.writes.after.entry(key.clone());
        after.or_insert_with(|| seen.cloned().unwrap_or_default())
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
            raised: if own_token { self.raised() } else { 0 },
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
}

/// One write, as an operation of a transaction.
fn operation((name, value): (&String, &Write)) -> RequestOp {
    match value {
        Some((value, etcd_lease)) => RequestOp::put_tied(name.clone(), value.clone(), *etcd_lease),
        None => RequestOp::delete(name.clone()),
    }
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
