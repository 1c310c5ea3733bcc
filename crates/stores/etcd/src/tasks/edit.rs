//! What adding, changing and deleting need of a step: [`EditStep`].

use std::collections::BTreeSet;

use tenure_core::{Event, Key};
use tenure_tasks::edit::EditStep;
use tenure_tasks::lines::as_stored;
use tenure_tasks::step::task_key;
use tenure_tasks::{Edit, Section, Task, TaskError};

use super::entries::ALL;
use super::records::{DeletedRecord, SectionRecord, TaskRecord};
use crate::layout::Layout;
use crate::records::json;
use crate::step::EtcdStep;

impl EtcdStep<'_> {
    /// Tasks with this title, in any case of letters.
    pub(super) fn tasks_titled(
        &mut self,
        title: &str,
        limit: usize,
    ) -> Result<Vec<Task>, TaskError> {
        let prefix = self.store.layout.entry('l', &[&title.to_ascii_lowercase()]) + "/";
        let list = self.list(&prefix, limit)?;
        let ids = list.keys().filter_map(|name| Layout::rest(&prefix, name));
        let ids: Vec<String> = ids.collect();
        Ok(self.tasks_with_ids(&ids)?)
    }

    /// The ids of the tasks of a section, of these kinds: "w" in progress, "o" open, "d" done.
    fn tasks_of(&mut self, section: &str, kinds: &[&str]) -> Result<Vec<String>, TaskError> {
        let mut ids = Vec::new();
        for kind in kinds {
            let prefix = self.store.layout.entry('c', &[section, kind]) + "/";
            ids.extend(self.names(&prefix)?);
        }
        Ok(ids)
    }

    /// The names of a section's entries: its record, and the index of its name.
    fn section_names(&self, section: &Section) -> [String; 2] {
        let layout = &self.store.layout;
        let by_name = layout.entry('n', &[&section.name.to_ascii_lowercase()]);
        [layout.entry('s', &[&section.id]), by_name]
    }
}

impl EditStep for EtcdStep<'_> {
    fn expect_locks(&mut self, ids: &[String]) -> Result<(), TaskError> {
        self.fetch_with_dependencies(ids)?;
        let keys: Vec<Key> = ids.iter().filter_map(|id| task_key(id).ok()).collect();
        Ok(self.read_keys(&keys)?)
    }

    fn section(&mut self, id: &str) -> Result<Option<Section>, TaskError> {
        Ok(self.section_with_id(id)?)
    }

    fn section_named(&mut self, name: &str) -> Result<Option<Section>, TaskError> {
        let by_name = self.store.layout.entry('n', &[&name.to_ascii_lowercase()]);
        match self.get::<String>(&by_name)? {
            Some(id) => Ok(self.section_with_id(&id)?),
            None => Ok(None),
        }
    }

    fn insert_section(&mut self, section: &Section) -> Result<(), TaskError> {
        let record = SectionRecord {
            name: section.name.clone(),
            created_at: as_stored(self.now.wall),
            order: self.next_order(),
        };
        let [name, by_name] = self.section_names(section);
        self.put(name, json(&record), 0);
        self.put(by_name, json(&section.id), 0);
        Ok(())
    }

    fn erase_section(&mut self, section: &Section) -> Result<(), TaskError> {
        for name in self.section_names(section) {
            self.delete(name);
        }
        Ok(())
    }

    fn count_tasks(&mut self, section: &str) -> Result<(u64, u64), TaskError> {
        let open = count(self.tasks_of(section, &["w", "o"])?.len());
        Ok((open + count(self.tasks_of(section, &["d"])?.len()), open))
    }

    fn maybe_locked(&mut self, section: &str) -> Result<Vec<String>, TaskError> {
        let ids = self.tasks_of(section, &["w", "o", "d"])?;
        self.expect_locks(&ids)?;
        Ok(ids)
    }

    fn move_tasks(&mut self, from: &Section, to: Option<&Section>) -> Result<(), TaskError> {
        let now = as_stored(self.now.wall);
        for id in self.tasks_of(&from.id, &["w", "o", "d"])? {
            self.modify(&id, |record| {
                record.section = to.map(|section| section.id.clone());
                record.updated_at = now;
            })?;
        }
        Ok(())
    }

    fn put_task(&mut self, task: &Task, _before: Option<&Task>) -> Result<(), TaskError> {
        let before = self.task_record(&task.id)?;
        let after = match &before {
            None => TaskRecord::new(task, self.next_order()),
            Some(before) => TaskRecord {
                runner: before.runner.clone(),
                token: before.token,
                lost: before.lost.clone(),
                ended: before.ended.clone(),
                changed: before.changed.clone(),
                ..TaskRecord::new(task, before.order)
            },
        };
        self.write_task(&task.id, before.as_ref(), Some(after))?;
        Ok(())
    }

    fn titled(&mut self, title: &str) -> Result<Option<Task>, TaskError> {
        let mut found = self.tasks_titled(title, ALL)?;
        found.retain(|task| task.title == title);
        let age = |task: &Task| (task.created_at, task.id.clone());
        Ok(found.into_iter().min_by_key(age))
    }

    fn set_fields(&mut self, id: &str, edit: &Edit) -> Result<(), TaskError> {
        let now = as_stored(self.now.wall);
        let filled = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
        Ok(self.modify(id, |record| {
            if let Some(title) = &edit.title {
                record.title.clone_from(title);
            }
            if let Some(description) = &edit.description {
                record.description = filled(description);
            }
            if let Some(priority) = edit.priority {
                record.priority = priority.level();
            }
            if let Some(section) = &edit.section {
                record.section = filled(section);
            }
            for on in &edit.drop_dependencies {
                record.depends_on.remove(on);
            }
            record.updated_at = now;
        })?)
    }

    fn add_dependency(&mut self, id: &str, on: &str) -> Result<(), TaskError> {
        Ok(self.modify(id, |record| {
            record.depends_on.insert(on.to_owned());
        })?)
    }

    fn reaches(&mut self, id: &str, on: &str) -> Result<bool, TaskError> {
        let mut seen = BTreeSet::new();
        let mut open = vec![id.to_owned()];
        while !open.is_empty() {
            if open.iter().any(|id| id == on) {
                return Ok(true);
            }
            let names: Vec<String> = open.iter().map(|id| self.task_name(id)).collect();
            self.fetch(names)?;
            let mut further = BTreeSet::new();
            for id in std::mem::take(&mut open) {
                if let Some(record) = self.task_record(&id)? {
                    further.extend(record.depends_on);
                }
                seen.insert(id);
            }
            open.extend(further.into_iter().filter(|id| !seen.contains(id)));
        }
        Ok(false)
    }

    fn erase_task(&mut self, task: &Task) -> Result<usize, TaskError> {
        let id = &task.id;
        let dependents = self.dependents_of(id)?;
        let before = self.task_record(id)?;
        self.write_task(id, before.as_ref(), None)?;
        let record = DeletedRecord {
            at: as_stored(self.now.wall),
            title: task.title.clone(),
        };
        let name = self.store.layout.entry('x', &[id]);
        self.put(name, json(&record), 0);
        for dependent in &dependents {
            self.modify(dependent, |record| {
                record.depends_on.remove(id);
            })?;
        }
        Ok(dependents.len())
    }

    fn record_event(&mut self, event: &Event) -> Result<(), TaskError> {
        self.record(event.clone(), false);
        Ok(())
    }
}

pub(super) fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}
