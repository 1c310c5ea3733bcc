//! Reads and writes the keys about tasks in a step, which reads what it has written.

use std::collections::{BTreeMap, BTreeSet};

use serde::de::DeserializeOwned;
use tenure_core::{Key, StoreError, Token};
use tenure_tasks::{Section, Task};

use super::records::{SectionRecord, TaskRecord};
use crate::guess::AHEAD;
use crate::layout::Layout;
use crate::proto::{KeyValue, RangeRequest};
use crate::records::{KeyRecords, json, number, parsed};
use crate::step::{EtcdStep, NOT_YET};

/// How many keys are read at once: a transaction has at most 128 operations.
const AT_ONCE: usize = 100;

/// How many records a page of a long list has.
const PAGE: usize = 500;

/// Without a limit.
pub(super) const ALL: usize = usize::MAX;

impl EtcdStep<'_> {
    /// Reads keys that are not known yet.
    pub(super) fn fetch(
        &mut self,
        names: impl IntoIterator<Item = String>,
    ) -> Result<(), StoreError> {
        if !self.has_tasks()? {
            return Ok(());
        }
        let unknown: BTreeSet<String> = names
            .into_iter()
            .filter(|name| !self.seen.tasks.entries.contains_key(name))
            .collect();
        let unknown: Vec<String> = unknown.into_iter().collect();
        for some in unknown.chunks(AT_ONCE) {
            let found = self.read(some.iter().cloned().map(RangeRequest::one).collect())?;
            for (name, kvs) in some.iter().zip(found) {
                let entry = kvs.into_iter().next();
                self.seen.tasks.entries.insert(name.clone(), entry);
            }
        }
        Ok(())
    }

    /// One value, and the revision at which it was written.
    fn entry(&mut self, name: &str) -> Result<Option<(Vec<u8>, u64)>, StoreError> {
        if let Some(written) = self.writes.records.get(name) {
            let at = self.committed.unwrap_or(NOT_YET);
            return Ok(written.as_ref().map(|(value, _)| (value.clone(), at)));
        }
        self.fetch([name.to_owned()])?;
        let entry = self.seen.tasks.entries.get(name).and_then(Option::as_ref);
        Ok(entry.map(|kv| (kv.value.clone(), number(kv.mod_revision))))
    }

    /// Whether a key exists.
    pub(super) fn has(&mut self, name: &str) -> Result<bool, StoreError> {
        Ok(self.entry(name)?.is_some())
    }

    /// One value, understood.
    pub(super) fn get<T: DeserializeOwned>(&mut self, name: &str) -> Result<Option<T>, StoreError> {
        let entry = self.entry(name)?;
        entry.map(|(value, _)| parsed(name, &value)).transpose()
    }

    /// The first keys below a prefix, by name.
    pub(super) fn list(
        &mut self,
        prefix: &str,
        limit: usize,
    ) -> Result<BTreeMap<String, Vec<u8>>, StoreError> {
        if !self.has_tasks()? {
            return Ok(BTreeMap::new());
        }
        let written = self
            .writes
            .records
            .range(prefix.to_owned()..)
            .take_while(|(name, _)| name.starts_with(prefix));
        let deleted = written.filter(|(_, value)| value.is_none()).count();
        let needed = limit.saturating_add(deleted);
        let asked = (prefix.to_owned(), needed);
        if !self.seen.tasks.lists.contains_key(&asked) {
            let found = self.read_list(prefix, needed)?;
            self.seen.tasks.lists.insert(asked.clone(), found);
        }
        let found = self.seen.tasks.lists.get(&asked).into_iter().flatten();
        let mut list: BTreeMap<String, Vec<u8>> = found
            .map(|kv| (kv.name().to_owned(), kv.value.clone()))
            .collect();
        let is_whole = list.len() < needed;
        let last = list.keys().next_back().cloned();
        for (name, value) in self.writes.records.range(prefix.to_owned()..) {
            if !name.starts_with(prefix) {
                break;
            }
            match value {
                None => {
                    list.remove(name);
                }
                // Behind the last one that was read there may be others.
                Some((value, _)) if is_whole || last.as_ref().is_some_and(|last| name <= last) => {
                    list.insert(name.clone(), value.clone());
                }
                Some(_) => {}
            }
        }
        while list.len() > limit {
            list.pop_last();
        }
        Ok(list)
    }

    fn read_list(&mut self, prefix: &str, limit: usize) -> Result<Vec<KeyValue>, StoreError> {
        if limit <= AHEAD {
            return self.read_first(prefix, limit);
        }
        let mut all: Vec<KeyValue> = Vec::new();
        let mut range = RangeRequest::below(prefix.to_owned());
        loop {
            let page = PAGE.min(limit - all.len());
            range.limit = i64::try_from(page).unwrap_or(i64::MAX);
            let found = self.read(vec![range.clone()])?.pop().unwrap_or_default();
            let is_last = found.len() < page;
            all.extend(found);
            match all.last() {
                Some(last) if !is_last && all.len() < limit => {
                    range.key.clone_from(&last.key);
                    range.key.push(0);
                }
                _ => return Ok(all),
            }
        }
    }

    /// The names below a prefix, without it.
    pub(super) fn names(&mut self, prefix: &str) -> Result<Vec<String>, StoreError> {
        let list = self.list(prefix, ALL)?;
        let rest = |name: &String| Layout::rest(prefix, name);
        Ok(list.keys().filter_map(rest).collect())
    }

    pub(super) fn task_name(&self, id: &str) -> String {
        self.store.layout.entry('t', &[id])
    }

    /// The record of a task. Its token is known.
    pub(super) fn task_record(&mut self, id: &str) -> Result<Option<TaskRecord>, StoreError> {
        self.understood(id)?.transpose()
    }

    /// The same; the inner error says that the record is there but can't be understood.
    pub(super) fn understood(
        &mut self,
        id: &str,
    ) -> Result<Option<Result<TaskRecord, StoreError>>, StoreError> {
        let name = self.task_name(id);
        let entry = self.entry(&name)?;
        Ok(entry.map(|(value, revision)| task_record(&name, &value, revision)))
    }

    /// Writes a task, its indexes, and the values that it replaces. `None` deletes it.
    pub(super) fn write_task(
        &mut self,
        id: &str,
        before: Option<&TaskRecord>,
        after: Option<TaskRecord>,
    ) -> Result<(), StoreError> {
        let layout = &self.store.layout;
        let mut old = BTreeMap::new();
        if let Some(before) = before {
            for blocked in [true, false] {
                old.extend(before.index(layout, id, blocked));
            }
        }
        let name = self.task_name(id);
        let Some(mut after) = after else {
            self.delete(name);
            for name in old.into_keys() {
                self.delete(name);
            }
            return Ok(());
        };
        if let Some(before) = before {
            for mut past in after.stamp(before, self.now.wall) {
                if past.field == "section"
                    && let Some(section) = self.section_with_id(&past.value)?
                {
                    past.value = section.name;
                }
                let until = past.until.as_millisecond();
                let key = format!("{until:015}-{}", past.field);
                let key = self.store.layout.entry('h', &[id, &key]);
                self.put(key, json(&past), 0);
            }
        }
        let is_blocked = self.count_blockers(&after)? > 0;
        let new = after.index(&self.store.layout, id, is_blocked);
        for name in old.into_keys().filter(|name| !new.contains_key(name)) {
            self.delete(name);
        }
        for (name, value) in new {
            self.put(name, value, 0);
        }
        // A token that this very step is given is the revision of the record.
        let fresh = self.token();
        if after.token == Some(fresh) {
            (after.token, after.raised) = (None, self.raised());
        }
        self.put(name, json(&after), 0);
        let done = |record: &TaskRecord| record.status.is_done();
        if before.is_some_and(|before| done(before) != done(&after)) {
            self.index_dependents(id)?;
        }
        Ok(())
    }

    /// Changes a task, if it exists.
    pub(super) fn modify(
        &mut self,
        id: &str,
        change: impl FnOnce(&mut TaskRecord),
    ) -> Result<(), StoreError> {
        let Some(before) = self.task_record(id)? else {
            return Ok(());
        };
        let mut after = before.clone();
        change(&mut after);
        if after == before {
            return Ok(());
        }
        self.write_task(id, Some(&before), Some(after))
    }

    /// Tasks that depend on this one may be ready now, or not any more.
    fn index_dependents(&mut self, id: &str) -> Result<(), StoreError> {
        let dependents = self.dependents_of(id)?;
        self.fetch_with_dependencies(&dependents)?;
        for dependent in dependents {
            // A repair writes the names of one that can't be understood.
            if let Some(Ok(record)) = self.understood(&dependent)? {
                self.write_task(&dependent, Some(&record), Some(record.clone()))?;
            }
        }
        Ok(())
    }

    /// The ids of the tasks that depend on this one.
    pub(super) fn dependents_of(&mut self, id: &str) -> Result<Vec<String>, StoreError> {
        let prefix = self.store.layout.entry('d', &[id]) + "/";
        self.names(&prefix)
    }

    /// Reads tasks, and those that they depend on, with few requests.
    pub(super) fn fetch_with_dependencies(&mut self, ids: &[String]) -> Result<(), StoreError> {
        let names: Vec<String> = ids.iter().map(|id| self.task_name(id)).collect();
        self.fetch(names)?;
        let mut more = BTreeSet::new();
        for id in ids {
            if let Some(Ok(record)) = self.understood(id)? {
                more.extend(record.depends_on.iter().map(|on| self.task_name(on)));
                let section = record.section.as_deref();
                more.extend(section.map(|id| self.store.layout.entry('s', &[id])));
            }
        }
        self.fetch(more)
    }

    /// How many tasks that this one depends on are not done, as far as can be told.
    fn count_blockers(&mut self, record: &TaskRecord) -> Result<u64, StoreError> {
        let names: Vec<String> = record
            .depends_on
            .iter()
            .map(|on| self.task_name(on))
            .collect();
        self.fetch(names)?;
        let mut open = 0;
        for on in &record.depends_on {
            let on = self.understood(on)?;
            open += u64::from(on.is_some_and(|on| on.map_or(true, |on| !on.status.is_done())));
        }
        Ok(open)
    }

    /// The task with this id. One that can't be understood has stand-ins and a problem.
    pub(super) fn task_with_id(&mut self, id: &str) -> Result<Option<Task>, StoreError> {
        let name = self.task_name(id);
        let Some((value, revision)) = self.entry(&name)? else {
            return Ok(None);
        };
        let (record, problem) = shown_record(&name, &value, revision);
        let section = match &record.section {
            Some(id) => {
                let name = self.store.layout.entry('s', &[id]);
                let section = match self.entry(&name)? {
                    Some((value, _)) => parsed::<SectionRecord>(&name, &value).ok(),
                    None => None,
                };
                Some(Section {
                    id: id.clone(),
                    name: section.map_or_else(|| id.clone(), |section| section.name),
                })
            }
            None => None,
        };
        let blockers = self.count_blockers(&record)?;
        let task = record.task(id, section, blockers);
        Ok(Some(Task { problem, ..task }))
    }

    /// These tasks, those that exist.
    pub(super) fn tasks_with_ids(&mut self, ids: &[String]) -> Result<Vec<Task>, StoreError> {
        self.fetch_with_dependencies(ids)?;
        let mut tasks = Vec::new();
        for id in ids {
            tasks.extend(self.task_with_id(id)?);
        }
        Ok(tasks)
    }

    /// Every task, in the order in which they were added. Those that can't be understood have stand-ins and a problem.
    pub(super) fn all_tasks(&mut self) -> Result<Vec<Task>, StoreError> {
        let prefix = self.store.layout.all('t');
        let mut records = Vec::new();
        if !self.has_tasks()? {
            return Ok(Vec::new());
        }
        // Every task, for a verb that writes nothing.
        for kv in self.read_list(&prefix, ALL)? {
            if let Some(id) = Layout::rest(&prefix, kv.name()) {
                let (record, problem) = shown_record(kv.name(), &kv.value, number(kv.mod_revision));
                records.push((id, record, problem));
            }
        }
        let done: BTreeSet<String> = records
            .iter()
            .filter(|(_, record, problem)| problem.is_none() && record.status.is_done())
            .map(|(id, ..)| id.clone())
            .collect();
        let known: BTreeSet<String> = records.iter().map(|(id, ..)| id.clone()).collect();
        let sections = self.readable_sections()?;
        let sections: BTreeMap<&str, &Section> = sections
            .iter()
            .filter_map(|(_, section)| section.as_ref().ok())
            .map(|(section, _)| (section.id.as_str(), section))
            .collect();
        records.sort_by_key(|(_, record, _)| (record.created_at, record.order));
        let tasks = records.iter().map(|(id, record, problem)| {
            let section = record.section.as_ref().map(|id| {
                let found = sections.get(id.as_str()).copied().cloned();
                found.unwrap_or_else(|| Section {
                    id: id.clone(),
                    name: id.clone(),
                })
            });
            let open = record
                .depends_on
                .iter()
                .filter(|on| known.contains(*on) && !done.contains(*on));
            let blockers = u64::try_from(open.count()).unwrap_or(u64::MAX);
            Task {
                problem: problem.clone(),
                ..record.task(id, section, blockers)
            }
        });
        Ok(tasks.collect())
    }

    /// The section with this id.
    pub(super) fn section_with_id(&mut self, id: &str) -> Result<Option<Section>, StoreError> {
        let name = self.store.layout.entry('s', &[id]);
        let record = self.get::<SectionRecord>(&name)?;
        Ok(record.map(|record| Section {
            id: id.to_owned(),
            name: record.name,
        }))
    }

    /// Every section, in the order in which they were added.
    pub(super) fn all_sections(&mut self) -> Result<Vec<(Section, SectionRecord)>, StoreError> {
        let sections = self.readable_sections()?.into_iter();
        let mut sections: Vec<_> = sections
            .map(|(_, section)| section)
            .collect::<Result<_, _>>()?;
        sections.sort_by_key(|(_, record)| (record.created_at, record.order));
        Ok(sections)
    }

    /// The id of every section, and the section if it can be understood.
    pub(super) fn readable_sections(&mut self) -> Result<Vec<ReadSection>, StoreError> {
        let prefix = self.store.layout.all('s');
        let mut sections = Vec::new();
        for (name, value) in self.list(&prefix, ALL)? {
            if let Some(id) = Layout::rest(&prefix, &name) {
                let section = parsed(&name, &value).map(|record: SectionRecord| {
                    let name = record.name.clone();
                    let id = id.clone();
                    (Section { id, name }, record)
                });
                sections.push((id, section));
            }
        }
        Ok(sections)
    }

    /// Reads the locks of all sections.
    pub(super) fn read_section_locks(&mut self) -> Result<Vec<Key>, StoreError> {
        if !self.seen.tasks.all_sections {
            let prefix = self.store.layout.section_keys();
            let found = self.read_list(&prefix, ALL)?;
            self.note_section_locks(found);
        }
        let keys = self.seen.keys.keys();
        let mut keys: Vec<Key> = keys
            .filter(|key| matches!(key.kind(), tenure_core::KeyKind::Section(_)))
            .cloned()
            .collect();
        keys.sort();
        Ok(keys)
    }

    /// What was read of the locks of all sections.
    pub(super) fn note_section_locks(&mut self, found: Vec<KeyValue>) {
        let mut by_key: BTreeMap<Key, Vec<KeyValue>> = BTreeMap::new();
        for kv in found {
            if let Some((key, _)) = self.store.layout.parse(kv.name()) {
                by_key.entry(key).or_default().push(kv);
            }
        }
        for (key, kvs) in by_key {
            let records = KeyRecords::read(&self.store.layout, &kvs);
            self.seen.keys.entry(key).or_insert(records);
        }
        self.seen.tasks.all_sections = true;
    }

    /// The place of something that is added now, among all that were added.
    pub(super) fn next_order(&mut self) -> u64 {
        self.added += 1;
        (number(self.seen.revision) << 20) + self.added
    }
}

/// The id of a section, and the section if it can be understood.
pub(super) type ReadSection = (String, Result<(Section, SectionRecord), StoreError>);

/// The record of a task. One that can't be understood has stand-ins, and a problem that says what to do.
fn shown_record(name: &str, value: &[u8], revision: u64) -> (TaskRecord, Option<String>) {
    match task_record(name, value, revision) {
        Ok(record) => (record, None),
        Err(error) => {
            let (record, wrong) = TaskRecord::salvaged(value);
            let wrong = if wrong.is_empty() {
                error.cause().map(ToString::to_string).unwrap_or_default()
            } else {
                wrong.join("; ")
            };
            let remedy = "tenure store repair removes it and prints what it said";
            (record, Some(format!("{name}: {wrong}; {remedy}")))
        }
    }
}

/// Understands the record of a task.
pub(super) fn task_record(
    name: &str,
    value: &[u8],
    revision: u64,
) -> Result<TaskRecord, StoreError> {
    let mut record: TaskRecord = parsed(name, value)?;
    let raised = std::mem::take(&mut record.raised);
    let token = match revision {
        NOT_YET => NOT_YET,
        revision => revision.saturating_add(raised),
    };
    record.token.get_or_insert(Token(token));
    Ok(record)
}
