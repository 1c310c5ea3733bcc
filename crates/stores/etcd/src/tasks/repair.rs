//! Puts right what was removed or damaged of tasks and sections.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Instant;

use tenure_core::text::flat;
use tenure_core::{Repaired, StoreError};
use tenure_tasks::TaskError;
use tenure_tasks::flow::wake_seekers;
use tenure_tasks::lines::as_stored;

use super::entries::{ALL, task_record};
use super::records::{AllTasksGuard, Ready, SectionRecord, TaskRecord};
use super::step::pause;
use crate::layout::Layout;
use crate::proto::{Compare, RangeRequest, RequestOp, TxnRequest};
use crate::records::json;
use crate::repair::SHOWN;
use crate::step::EtcdStep;
use crate::store::{EtcdStore, only_store, request};

/// The kinds of names under which tasks are found.
const INDEXES: [char; 7] = ['l', 'd', 'c', 'b', 'p', 'r', 'q'];

impl EtcdStore {
    /// Removes records that can't be understood, of the task or section with this id or of all, and writes the names under
    /// which all tasks are found.
    pub(crate) fn repair_tasks(
        &self,
        only: Option<&str>,
        repaired: &mut Repaired,
        by: Instant,
    ) -> Result<(), StoreError> {
        self.repair_task_guard(repaired, by)?;
        let done = self.change_tasks(by, |step| step.repair_entries(only));
        repaired.done.extend(done.map_err(only_store)?);
        Ok(())
    }

    /// Without its guard, no task is found.
    fn repair_task_guard(&self, repaired: &mut Repaired, by: Instant) -> Result<(), StoreError> {
        let name = self.layout.task_guard();
        let (found, _) = self.page(&RangeRequest::one(name.clone()), by)?;
        let guard = found.first();
        let is_whole =
            guard.is_some_and(|kv| serde_json::from_slice::<AllTasksGuard>(&kv.value).is_ok());
        if is_whole || guard.is_none() && !self.has_entries(by)? {
            return Ok(());
        }
        let new = json(&AllTasksGuard {
            request: request(),
            ..AllTasksGuard::default()
        });
        let before = guard.map_or(0, |kv| kv.mod_revision);
        let put = RequestOp::put(name.clone(), new);
        let request = TxnRequest::only_if([Compare::unchanged(name, before)], [put]);
        if self.txn(&request, by)?.succeeded {
            let what = "wrote the guard of the tasks, which was missing or damaged";
            repaired.done.push(what.to_owned());
        }
        Ok(())
    }

    /// Whether there are tasks or sections.
    fn has_entries(&self, by: Instant) -> Result<bool, StoreError> {
        for kind in ['t', 's'] {
            let first = RangeRequest::below(self.layout.all(kind))
                .keys_only()
                .limited(1);
            if !self.page(&first, by)?.0.is_empty() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}

impl EtcdStep<'_> {
    fn repair_entries(&mut self, only: Option<&str>) -> Result<Vec<String>, TaskError> {
        if !self.has_tasks()? {
            return Ok(Vec::new());
        }
        let is_meant = |id: &str| only.is_none_or(|only| only == id);
        let mut done = self.repair_sections(is_meant)?;
        let prefix = self.store.layout.all('t');
        let (mut records, mut damaged) = (BTreeMap::new(), BTreeSet::new());
        for (name, value) in self.list(&prefix, ALL)? {
            let Some(id) = Layout::rest(&prefix, &name) else {
                continue;
            };
            match task_record(&name, &value, 0) {
                Ok(record) => {
                    records.insert(id, record);
                }
                Err(_) if is_meant(&id) => {
                    self.delete(name);
                    let was: String = String::from_utf8_lossy(&value)
                        .chars()
                        .take(SHOWN)
                        .collect();
                    done.push(format!(
                        "removed the task {id}, whose record can't be understood: {}",
                        flat(&was)
                    ));
                }
                Err(_) => {
                    damaged.insert(id);
                }
            }
        }
        let entries = self.repair_indexes(&records, &damaged)?;
        if entries > 0 {
            let what = match entries {
                1 => "put right 1 entry of the index of the tasks".to_owned(),
                more => format!("put right {more} entries of the index of the tasks"),
            };
            done.push(what);
            wake_seekers(self)?;
        }
        Ok(done)
    }

    /// Writes the names under which these tasks are found, and removes the others, except those of damaged tasks. Returns how
    /// many were wrong.
    fn repair_indexes(
        &mut self,
        records: &BTreeMap<String, TaskRecord>,
        damaged: &BTreeSet<String>,
    ) -> Result<usize, StoreError> {
        let is_open = |id: &String| {
            damaged.contains(id) || records.get(id).is_some_and(|it| !it.status.is_done())
        };
        let mut right = BTreeMap::new();
        for (id, record) in records {
            let is_blocked = record.depends_on.iter().any(is_open);
            right.extend(record.index(&self.store.layout, id, is_blocked));
        }
        let mut wrong = 0;
        for kind in INDEXES {
            let prefix = self.store.layout.all(kind);
            for (name, value) in self.list(&prefix, ALL)? {
                match right.remove(&name) {
                    Some(same) if same == value => {}
                    Some(other) => {
                        self.put(name, other, 0);
                        wrong += 1;
                    }
                    None => {
                        let owner = owner(kind, &prefix, &name, &value);
                        if owner.is_none_or(|id| !damaged.contains(&id)) {
                            self.delete(name);
                            wrong += 1;
                        }
                    }
                }
            }
        }
        wrong += right.len();
        for (name, value) in right {
            self.put(name, value, 0);
        }
        Ok(wrong)
    }

    /// The name of a section is in the index, too.
    fn repair_sections(
        &mut self,
        is_meant: impl Fn(&str) -> bool,
    ) -> Result<Vec<String>, StoreError> {
        let (names, sections) = (self.store.layout.all('n'), self.store.layout.all('s'));
        let mut called = BTreeMap::new();
        for (name, value) in self.list(&names, ALL)? {
            if let (Some(name), Ok(id)) = (
                Layout::rest(&names, &name),
                serde_json::from_slice::<String>(&value),
            ) {
                called.insert(id, name);
            }
        }
        let mut done = Vec::new();
        for (entry, value) in self.list(&sections, ALL)? {
            let Some(id) = Layout::rest(&sections, &entry).filter(|id| is_meant(id)) else {
                continue;
            };
            if serde_json::from_slice::<SectionRecord>(&value).is_ok() {
                continue;
            }
            if let Some(name) = called.remove(&id) {
                let record = SectionRecord {
                    name: name.clone(),
                    created_at: as_stored(self.now.wall),
                    order: self.next_order(),
                };
                self.put(entry, json(&record), 0);
                done.push(format!(
                    "wrote the section {name} again, whose record can't be understood"
                ));
            } else {
                self.delete(entry);
                done.push(format!(
                    "removed the section {id}, whose record can't be understood"
                ));
            }
        }
        Ok(done)
    }
}

/// The task that a name in an index stands for.
fn owner(kind: char, prefix: &str, name: &str, value: &[u8]) -> Option<String> {
    match kind {
        'r' | 'q' => serde_json::from_slice::<Ready>(value)
            .ok()
            .map(|ready| ready.id),
        'p' => pause(prefix, name).map(|(_, id)| id),
        _ => Layout::rest("", name.rsplit('/').next()?),
    }
}
