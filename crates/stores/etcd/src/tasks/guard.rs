//! The guard of all tasks, and changes that are too large for one transaction.
//!
//! A step that writes tasks compares that the guard has not changed since it read it, and writes it. So all steps on
//! tasks are in one order, and what one has read is still true when it writes.
//!
//! A transaction of etcd has at most 128 operations. A larger change is written in parts first, where nobody looks.
//! Then one transaction makes it valid: from then on the guard names it, and every process that meets such a
//! guard carries out the parts before it reads or writes anything. So a large import, too, happens whole or not
//! at all, and a process that is killed in the middle leaves nothing undone.
//!
//! Parts are written, and made valid, only while the guard is as the step has read it. So a transaction that writes the
//! guard and names no parts ends every attempt to make some valid, and removes all parts that are there: those of a
//! process that was killed, and those of an attempt that was overtaken.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use tenure_core::{ErrorKind, StoreError};

use super::records::{AllTasksGuard, Redo};
use crate::client::Client;
use crate::cluster::remaining;
use crate::layout::Layout;
use crate::proto::{Compare, KeyValue, RangeRequest, RequestOp, TxnRequest, after};
use crate::records::{REPAIR, json, parsed};
use crate::step::{Again, EtcdStep, MOST_OPERATIONS, Seen, Write, is_of_tasks};
use crate::store::EtcdStore;

/// How many steps a guard remembers.
const REMEMBERED: usize = 32;

/// The size of the values that one transaction writes, and of a part. The limit of etcd is 1.5 MiB for a request.
const LARGEST: usize = 512 * 1024;

/// How many operations a part has.
const PART: usize = 100;

/// How long a process may keep the others from changing tasks.
const TURN: i64 = 5;

/// The pause of a process that lets another one go first.
const PAUSE: Duration = Duration::from_millis(10);

/// What was read of the tasks.
#[derive(Debug, Clone, Default)]
pub(crate) struct SeenTasks {
    guard: Option<SeenGuard>,
    /// Single keys.
    pub(super) entries: HashMap<String, Option<KeyValue>>,
    /// The first keys below a prefix.
    pub(super) lists: HashMap<(String, usize), Vec<KeyValue>>,
    /// Whether the locks of all sections were read.
    pub(crate) all_sections: bool,
}

/// The guard, as it was read.
#[derive(Debug, Clone, Default)]
pub(super) struct SeenGuard {
    /// The revision at which it was written; 0 if there is none.
    pub(super) revision: i64,
    record: AllTasksGuard,
    /// The process that asks the others to wait.
    turn: Option<String>,
}

impl SeenGuard {
    fn of(kv: Option<&KeyValue>) -> Result<Self, StoreError> {
        let Some(kv) = kv else {
            return Ok(Self::default());
        };
        Ok(Self {
            revision: kv.mod_revision,
            record: parsed(kv.name(), &kv.value)?,
            turn: None,
        })
    }

    /// The guard that a step writes.
    fn next(&self, request: &str, redo: Option<Redo>) -> Vec<u8> {
        let last = (self.revision > 0).then(|| (self.record.request.clone(), self.revision));
        let before = last.into_iter().chain(self.record.before.iter().cloned());
        json(&AllTasksGuard {
            request: request.to_owned(),
            before: before.take(REMEMBERED).collect(),
            redo,
        })
    }
}

impl SeenTasks {
    /// What the answer to a transaction says that was not made.
    pub(crate) fn of(guard: Option<&KeyValue>) -> Result<Self, StoreError> {
        let guard = guard.map(|kv| SeenGuard::of(Some(kv))).transpose()?;
        Ok(Self {
            guard,
            ..Self::default()
        })
    }
}

/// The name and the value of a part.
type StagedPart = (String, Vec<u8>);

/// One write of a part: a name, and its value unless it is deleted. The values are JSON.
type PartWrite = (String, Option<String>);

impl EtcdStep<'_> {
    /// Reads the guard. Fails if a large change has to be carried out first.
    pub(super) fn task_guard(&mut self) -> Result<&SeenGuard, StoreError> {
        if self.seen.tasks.guard.is_none() {
            let layout = &self.store.layout;
            let names = [layout.task_guard(), layout.task_turn()];
            let found = self.read(names.map(RangeRequest::one).to_vec())?;
            let mut found = found.iter().map(|kvs| kvs.first());
            let mut guard = SeenGuard::of(found.next().flatten())?;
            let turn = found.next().flatten();
            guard.turn = turn.map(|kv| String::from_utf8_lossy(&kv.value).into_owned());
            if guard.revision == 0 {
                self.refuse_unguarded()?;
            }
            self.seen.tasks.guard = Some(guard);
        }
        let guard = self.seen.tasks.guard.get_or_insert_default();
        let is_refused = |again: &mut Option<Again>, why: Again, what: &str| {
            *again = Some(why);
            Err(StoreError::new(ErrorKind::Contended, what).fix("try again"))
        };
        if guard.record.redo.is_some() {
            let what = "a large change of tasks is being carried out";
            return is_refused(&mut self.again, Again::Unfinished, what);
        }
        if self.gives_way && guard.turn.is_some() && guard.turn != self.turn {
            let what = "another process changes many tasks";
            return is_refused(&mut self.again, Again::NotYet, what);
        }
        Ok(guard)
    }

    /// Without a guard there must be no tasks, or they would not be found, and be changed by two steps at once.
    fn refuse_unguarded(&mut self) -> Result<(), StoreError> {
        let any = RangeRequest::below(self.store.layout.all('t'));
        let any = any.keys_only().limited(1);
        if self.read(vec![any])?.iter().all(Vec::is_empty) {
            return Ok(());
        }
        let what = format!(
            "{} is missing, although there are tasks",
            self.store.layout.task_guard()
        );
        Err(StoreError::new(ErrorKind::Damaged, what).fix(REPAIR))
    }

    /// The revision of the guard; 0 if it was not read.
    pub(crate) fn guard_revision(&self) -> i64 {
        let guard = self.seen.tasks.guard.as_ref();
        guard.map_or(0, |guard| guard.revision)
    }

    /// Whether the store has tasks or sections, or had some.
    pub(super) fn has_tasks(&mut self) -> Result<bool, StoreError> {
        Ok(self.task_guard()?.revision > 0)
    }

    /// Adds the guard to what a step writes, if it writes tasks or locks of tasks and sections. Returns the parts that
    /// have to be staged, if it writes too much.
    pub(crate) fn guard_tasks(&mut self) -> Result<Option<Vec<StagedPart>>, StoreError> {
        let prefix = self.store.layout.tasks();
        let writes = self.writes.records.iter();
        let (count, size) = writes.filter(|(name, _)| name.starts_with(&prefix)).fold(
            (0, 0),
            |(count, size), (name, value)| {
                let value = value.as_ref().map_or(0, |(value, _)| value.len());
                (count + 1, size + name.len() + value)
            },
        );
        let mut locks = self.writes.guarded.iter();
        if count == 0 && !locks.any(|key| is_of_tasks(Some(key))) {
            return Ok(None);
        }
        let request = self.writes.request.clone();
        let guard = self.task_guard()?.clone();
        let name = self.store.layout.task_guard();
        let same = Compare::unchanged(name.clone(), guard.revision);
        self.writes.compares.push(same);
        if count == 0 && guard.revision == 0 {
            return Ok(None);
        }
        // The guard, and the removal of parts.
        let fits = self.writes.records.len() + 2 <= MOST_OPERATIONS && size < LARGEST;
        if fits {
            let value = guard.next(&request, None);
            self.writes.records.insert(name, Some((value, 0)));
            self.writes.removes_parts = true;
            return Ok(None);
        }
        let time = self.now.wall.as_millisecond();
        let redo = format!("{time:015}-{request}");
        let all = std::mem::take(&mut self.writes.records);
        let (large, small) = all
            .into_iter()
            .partition(|(name, _)| name.starts_with(&prefix));
        self.writes.records = small;
        let layout = &self.store.layout;
        let parts = parts(large);
        let parts: Vec<StagedPart> = parts
            .iter()
            .enumerate()
            .map(|(number, part)| {
                (
                    layout.entry('j', &[&redo, &format!("{number:06}")]),
                    json(part),
                )
            })
            .collect();
        let redo = Redo { name: redo };
        let value = guard.next(&request, Some(redo));
        self.writes.records.insert(name, Some((value, 0)));
        self.is_large = true;
        Ok(Some(parts))
    }
}

/// Divides writes into parts that fit into one transaction each.
fn parts(writes: std::collections::BTreeMap<String, Write>) -> Vec<Vec<PartWrite>> {
    let mut parts: Vec<Vec<PartWrite>> = Vec::new();
    let mut size = LARGEST;
    for (name, value) in writes {
        let value = value.map(|(value, _)| String::from_utf8_lossy(&value).into_owned());
        let own = name.len() + value.as_ref().map_or(0, String::len);
        match parts.last_mut() {
            Some(part) if part.len() < PART && size + own < LARGEST => {
                size += own;
                part.push((name, value));
            }
            _ => {
                size = own;
                parts.push(vec![(name, value)]);
            }
        }
    }
    parts
}

/// What a part writes.
fn part_writes(part: &KeyValue) -> Result<Vec<RequestOp>, StoreError> {
    let writes: Vec<PartWrite> = serde_json::from_slice(&part.value).map_err(|error| {
        let what = format!("{} can't be understood", part.name());
        StoreError::new(ErrorKind::Damaged, what).because(error)
    })?;
    let writes = writes.into_iter().map(|(name, value)| match value {
        Some(value) => RequestOp::put(name, value),
        None => RequestOp::delete(name),
    });
    Ok(writes.collect())
}

/// The removal of all parts.
pub(crate) fn all_parts(layout: &Layout) -> RequestOp {
    let prefix = layout.all('j');
    let end = after(&prefix);
    RequestOp::delete_range(prefix, end)
}

impl EtcdStore {
    /// Writes the parts of a large change where nobody looks. `guard` is the revision of the guard that the step has
    /// read; if it changes, the rest is not written, and the step's own transaction fails.
    pub(crate) fn stage(
        &self,
        parts: &[StagedPart],
        guard: i64,
        by: Instant,
    ) -> Result<(), StoreError> {
        // Otherwise the first change of a store would be staged in vain.
        self.write_version(by)?;
        for (name, part) in parts {
            let unchanged = Compare::unchanged(self.layout.task_guard(), guard);
            let put = RequestOp::put(name.clone(), part.clone());
            let request = TxnRequest::only_if([unchanged], [put]);
            if !self.txn(&request, by)?.succeeded {
                break;
            }
        }
        Ok(())
    }

    /// Carries out the large change that the guard names, if it names one.
    pub(crate) fn finish(&self, by: Instant) -> Result<(), StoreError> {
        // A process that may only read can't carry out what another one left.
        if self.options.read_only {
            std::thread::sleep(PAUSE);
            let what = "a large change of tasks is not complete, and this process may only read";
            return Err(StoreError::new(ErrorKind::Contended, what).fix("try again"));
        }
        loop {
            let (found, _) = self.page(&RangeRequest::one(self.layout.task_guard()), by)?;
            let guard = SeenGuard::of(found.first())?;
            let Some(redo) = &guard.record.redo else {
                return Ok(());
            };
            let parts = self.layout.entry('j', &[&redo.name]) + "/";
            let (found, _) = self.page(&RangeRequest::below(parts).limited(1), by)?;
            let success = match found.first() {
                // A part goes with what it says, so that the next process goes on behind it.
                Some(part) => {
                    let mut success = part_writes(part)?;
                    success.push(RequestOp::delete(part.name()));
                    success
                }
                None => vec![
                    RequestOp::put(self.layout.task_guard(), guard.next("", None)),
                    all_parts(&self.layout),
                ],
            };
            let unchanged = Compare::unchanged(self.layout.task_guard(), guard.revision);
            self.txn(&TxnRequest::only_if([unchanged], success), by)?;
        }
    }

    /// Whether an earlier attempt of this step's transaction was carried out although no answer arrived: the guard
    /// remembers it, or an earlier version of the guard does.
    pub(crate) fn was_carried_out_on_tasks(
        &self,
        step: &EtcdStep<'_>,
        seen: &Seen,
        by: Instant,
    ) -> Result<Option<i64>, StoreError> {
        let name = self.layout.task_guard();
        if !step.writes.records.contains_key(&name) {
            return Ok(None);
        }
        let compared = step.guard_revision();
        let mut guard = seen.tasks.guard.clone().unwrap_or_default();
        loop {
            let newest = (guard.record.request.clone(), guard.revision);
            let steps = std::iter::once(&newest).chain(&guard.record.before);
            let mut oldest = guard.revision;
            for (request, revision) in steps {
                if *request == step.writes.request {
                    return Ok(Some(*revision));
                }
                oldest = *revision;
            }
            if oldest <= compared || oldest <= 1 {
                return Ok(None);
            }
            let earlier = RangeRequest {
                revision: oldest - 1,
                ..RangeRequest::one(name.clone())
            };
            let found = self.page(&earlier, by);
            let (found, _) = found.map_err(|error| self.unknown_outcome(&error))?;
            guard = SeenGuard::of(found.first())?;
        }
    }
}

/// The request of one process that the others wait until its step on tasks is made: without it, a step that reads much
/// would never find what it has read unchanged. It protects nothing.
#[derive(Debug)]
pub(crate) struct TaskTurn<'a> {
    store: &'a EtcdStore,
    name: String,
    etcd_lease: i64,
    by: Instant,
}

impl<'a> TaskTurn<'a> {
    /// Asks the others to wait, unless another process does.
    pub(crate) fn take(store: &'a EtcdStore, name: String, by: Instant) -> Option<Self> {
        let etcd_lease = store.cluster.ask(by, &TURN, Client::grant).ok()?.id;
        let turn = Self {
            store,
            name,
            etcd_lease,
            by,
        };
        let key = store.layout.task_turn();
        let put = RequestOp::put_tied(key.clone(), turn.name.as_str(), etcd_lease);
        let request = TxnRequest::only_if([Compare::missing(key)], [put]);
        store.txn(&request, by).ok()?.succeeded.then_some(turn)
    }

    pub(crate) fn name(&self) -> String {
        self.name.clone()
    }

    /// Waits a moment, because another process has its turn.
    pub(crate) fn pause(by: Instant) {
        std::thread::sleep(PAUSE.min(remaining(by)));
    }
}

impl Drop for TaskTurn<'_> {
    fn drop(&mut self) {
        self.store.cluster.revoke(&[self.etcd_lease], self.by);
    }
}
