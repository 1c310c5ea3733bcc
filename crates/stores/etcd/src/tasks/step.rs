//! What the verbs of `tenure-core` on tasks need of a step.

use std::cmp::Reverse;

use jiff::Timestamp;
use tenure_core::{Evidence, HolderId, Key, KeyKind, Lease, StoreError};
use tenure_tasks::follow::lost_after_grant;
use tenure_tasks::lines::{ImportStep, as_stored};
use tenure_tasks::step::{Candidate, ReadyPart, any_task, task_key};
use tenure_tasks::{Status, Task, TaskError, TaskStep};

use super::entries::ALL;
use super::records::Ready;
use crate::layout::Layout;
use crate::proto::RangeRequest;
use crate::step::EtcdStep;

/// How many tasks whose pause has ended are made ready at once. The next step does the others.
const PAUSES: usize = 64;

impl EtcdStep<'_> {
    /// Reads what `next` usually needs, with one request.
    pub(super) fn read_for_next(&mut self) -> Result<(), StoreError> {
        self.has_tasks()?;
        let (any, layout) = (any_task()?, &self.store.layout);
        let mut ranges = vec![
            RangeRequest::below(layout.key(&any)),
            RangeRequest::below(layout.section_keys()),
        ];
        let lists = [(layout.all('p'), PAUSES), (layout.all('r'), FIRST)];
        let firsts = lists.map(|(prefix, limit)| {
            let range = self.first_range(&prefix, limit);
            (prefix, limit, range)
        });
        ranges.extend(firsts.iter().map(|(_, _, range)| range.request.clone()));
        if self.seen.keys.contains_key(&any) {
            return Ok(());
        }
        let mut found = self.read(ranges)?.into_iter();
        let records =
            crate::records::KeyRecords::read(&self.store.layout, &found.next().unwrap_or_default());
        self.seen.keys.insert(any, records);
        self.note_section_locks(found.next().unwrap_or_default());
        for ((prefix, limit, range), kvs) in firsts.into_iter().zip(found) {
            if let Ok(enough) = self.first_found(&prefix, limit, &range, kvs) {
                self.seen.tasks.lists.insert((prefix, limit), enough);
            }
        }
        Ok(())
    }
}

/// How many ready tasks are read with it.
const FIRST: usize = 4;

impl TaskStep for EtcdStep<'_> {
    /// A verb that may write a task fails at one that can't be understood.
    fn task(&mut self, id: &str) -> Result<Option<Task>, TaskError> {
        self.task_record(id)?;
        Ok(self.task_with_id(id)?)
    }

    /// A task whose record can't be understood keeps no runner from the others.
    fn candidate(&mut self, id: &str) -> Result<Option<Task>, TaskError> {
        let task = self.task_with_id(id)?;
        Ok(task.filter(|task| task.problem.is_none()))
    }

    fn blockers(&mut self, id: &str) -> Result<Vec<Task>, TaskError> {
        let on = self.task_record(id)?.map(|task| task.depends_on);
        let on: Vec<String> = on.unwrap_or_default().into_iter().collect();
        let mut tasks = self.tasks_with_ids(&on)?;
        tasks.retain(|task| !task.status.is_done());
        tasks.sort_by_key(|task| (task.created_at, task.id.clone()));
        tasks.truncate(10);
        Ok(tasks)
    }

    fn set_progress(&mut self, task: &Task) -> Result<(), TaskError> {
        self.modify(&task.id, |record| {
            record.status = task.status;
            record.attempts = task.attempts;
            record.last_error.clone_from(&task.last_error);
            record.not_before = task.not_before.map(as_stored);
            record.updated_at = as_stored(task.updated_at);
        })?;
        Ok(())
    }

    fn lost(&mut self, id: &str) -> Result<Vec<HolderId>, TaskError> {
        let record = self.task_record(id)?;
        Ok(record.map(|record| record.lost).unwrap_or_default())
    }

    fn set_lost(&mut self, id: &str, lost: &[HolderId]) -> Result<(), TaskError> {
        Ok(self.modify(id, |record| record.lost = lost.to_vec())?)
    }

    fn set_granted(&mut self, id: &str, lease: &Lease) -> Result<(), TaskError> {
        let token = self.token();
        Ok(self.modify(id, |task| {
            let is_begun = task.status == Status::InProgress;
            let unfinished = task.runner.take().filter(|_| is_begun);
            let lost = std::mem::take(&mut task.lost);
            task.lost = lost_after_grant(unfinished.as_ref(), lost, &lease.holder.id);
            task.runner = Some(lease.holder.id.clone());
            task.token = Some(token);
            task.ended = None;
        })?)
    }

    fn set_last_end(&mut self, id: &str, end: Option<&Evidence>) -> Result<(), TaskError> {
        Ok(self.modify(id, |task| task.ended = end.cloned())?)
    }

    fn in_progress(&mut self, section: &str, runner: &HolderId) -> Result<Vec<String>, TaskError> {
        let prefix = self.store.layout.entry('c', &[section, "w"]) + "/";
        let ids = self.names(&prefix)?;
        let names: Vec<String> = ids.iter().map(|id| self.task_name(id)).collect();
        self.fetch(names)?;
        let mut own = Vec::new();
        for id in ids {
            let is_own = match self.understood(&id)? {
                Some(Ok(record)) => record.runner.as_ref() == Some(runner),
                // Its lock says it.
                Some(Err(_)) => {
                    let leases = &self.records(&task_key(&id)?)?.leases;
                    leases.iter().any(|one| one.record.holder.id == *runner)
                }
                None => false,
            };
            if is_own {
                own.push(id);
            }
        }
        Ok(own)
    }

    fn has_open(&mut self, section: &str) -> Result<bool, TaskError> {
        for kind in ["w", "o"] {
            let prefix = self.store.layout.entry('c', &[section, kind]) + "/";
            if !self.list(&prefix, 1)?.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }

    fn last_end(&mut self, key: &Key) -> Result<Option<Evidence>, TaskError> {
        match key.kind() {
            KeyKind::Task(id) => Ok(self.task_record(id)?.and_then(|task| task.ended)),
            _ => Ok(None),
        }
    }

    fn held_sections(&mut self) -> Result<Vec<(Key, HolderId)>, TaskError> {
        let mut held = Vec::new();
        for key in self.read_section_locks()? {
            for lease in &self.records(&key)?.leases {
                held.push((key.clone(), lease.record.holder.id.clone()));
            }
        }
        Ok(held)
    }

    fn end_pauses(&mut self, now: Timestamp, horizon: Timestamp) -> Result<(), TaskError> {
        let prefix = self.store.layout.all('p');
        for name in self.list(&prefix, PAUSES)?.into_keys() {
            let Some((until, id)) = pause(&prefix, &name) else {
                continue;
            };
            if (until <= now || until > horizon) && !matches!(self.understood(&id)?, Some(Err(_))) {
                self.modify(&id, |record| record.not_before = None)?;
            }
        }
        Ok(())
    }

    fn first_pause(&mut self) -> Result<Option<Timestamp>, TaskError> {
        let prefix = self.store.layout.all('p');
        for name in self.list(&prefix, PAUSES)?.into_keys() {
            if let Some((at, id)) = pause(&prefix, &name)
                && !matches!(self.understood(&id)?, Some(Err(_)))
            {
                return Ok(Some(at));
            }
        }
        Ok(None)
    }

    fn ready(&mut self, part: ReadyPart<'_>) -> Result<Vec<Candidate>, TaskError> {
        let layout = &self.store.layout;
        let prefix = match part.section {
            None => layout.all('r'),
            Some(section) => layout.entry('q', &[section.unwrap_or_default()]) + "/",
        };
        let list = self.list(&prefix, part.skip.saturating_add(part.limit))?;
        let mut candidates = Vec::new();
        for (name, value) in list.into_iter().skip(part.skip) {
            candidates.extend(candidate(&prefix, &name, &value));
        }
        // The search looks at each of them.
        let ids: Vec<String> = candidates.iter().map(|one| one.id.clone()).collect();
        let keys: Vec<Key> = ids.iter().filter_map(|id| task_key(id).ok()).collect();
        self.read_keys(&keys)?;
        Ok(candidates)
    }

    fn best_of_each_section(&mut self) -> Result<Vec<Candidate>, TaskError> {
        let mut best = Vec::new();
        for (section, _) in self.readable_sections()? {
            let prefix = self.store.layout.entry('q', &[&section]) + "/";
            for (name, value) in self.list(&prefix, 1)? {
                best.extend(candidate(&prefix, &name, &value));
            }
        }
        Ok(best)
    }

    fn any_open(&mut self) -> Result<bool, TaskError> {
        for kind in ['r', 'p', 'b'] {
            let prefix = self.store.layout.all(kind);
            if !self.list(&prefix, 1)?.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

/// When the pause of a task ends, and its id.
pub(super) fn pause(prefix: &str, name: &str) -> Option<(Timestamp, String)> {
    let rest = Layout::rest(prefix, name)?;
    let (until, id) = rest.split_once('-')?;
    let until = Timestamp::from_millisecond(until.parse().ok()?).ok()?;
    Some((until, id.to_owned()))
}

/// A ready task, from its place in the index.
fn candidate(prefix: &str, name: &str, value: &[u8]) -> Option<Candidate> {
    let order = Layout::rest(prefix, name)?;
    let (rank, created_at) = order.split_once('-')?;
    let Ready { id, section } = serde_json::from_slice(value).ok()?;
    Some(Candidate {
        priority: 9 - rank.parse::<i64>().ok()?,
        created_at: Reverse(created_at.to_owned()),
        id,
        section,
    })
}

impl ImportStep for EtcdStep<'_> {
    fn new_id(&mut self) -> String {
        let id = tenure_host::random_uuid().to_string();
        // Nothing has this id, so nothing has to be read.
        for kind in ['t', 'x', 's'] {
            let name = self.store.layout.entry(kind, &[&id]);
            self.seen.tasks.entries.insert(name, None);
        }
        id
    }

    fn expect(&mut self, ids: &[&str]) -> Result<(), TaskError> {
        self.all_sections()?;
        let layout = &self.store.layout;
        let names = ids
            .iter()
            .flat_map(|id| [layout.entry('t', &[id]), layout.entry('x', &[id])]);
        let names: Vec<String> = names.collect();
        self.fetch(names)?;
        let mut known = Vec::new();
        for id in ids {
            if self.task_record(id)?.is_some() {
                known.push((*id).to_owned());
            }
        }
        self.fetch_with_dependencies(&known)?;
        let keys: Vec<Key> = known.iter().filter_map(|id| task_key(id).ok()).collect();
        Ok(self.read_keys(&keys)?)
    }

    fn dependencies(&mut self) -> Result<Vec<(String, String)>, TaskError> {
        let prefix = self.store.layout.all('d');
        let list = self.list(&prefix, ALL)?;
        let edge = |name: &String| {
            let (on, id) = name.strip_prefix(&prefix)?.split_once('/')?;
            Some((Layout::rest("", id)?, Layout::rest("", on)?))
        };
        Ok(list.keys().filter_map(edge).collect())
    }

    fn was_deleted(&mut self, id: &str) -> Result<bool, TaskError> {
        let name = self.store.layout.entry('x', &[id]);
        Ok(self.has(&name)?)
    }

    fn task_error(error: TaskError) -> Result<TaskError, TaskError> {
        match error {
            TaskError::Store(_) => Err(error),
            other => Ok(other),
        }
    }
}
