//! Adding, changing and deleting tasks and sections.

use std::collections::BTreeSet;

use tenure_core::{Event, EventKind, HolderId, Key, Mode, Token};
use tenure_tasks::flow::{
    existing, may_move, ring_all_seekers, ring_waiters, vacate, wake_seekers,
};
use tenure_tasks::lines::{ImportStep as _, as_stored};
use tenure_tasks::sections::may_delete;
use tenure_tasks::step::{section_key, task_key};
use tenure_tasks::{
    DeletedSection, DeletedTask, Edit, NewTask, Section, Status, Task, TaskError,
    check_description, check_title,
};

use super::entries::ALL;
use super::records::{DeletedRecord, TaskRecord};
use crate::records::json;
use crate::step::EtcdStep;

impl EtcdStep<'_> {
    pub(super) fn add_task(&mut self, id: &str, new: &NewTask) -> Result<Task, TaskError> {
        check_title(&new.title)?;
        new.description
            .as_deref()
            .map_or(Ok(()), check_description)?;
        let section = match &new.section {
            Some(section) => Some(self.existing_section(section)?),
            None => None,
        };
        let now = as_stored(self.now.wall);
        let task = Task {
            id: id.to_owned(),
            title: new.title.clone(),
            description: new.description.clone(),
            section,
            status: Status::Pending,
            priority: new.priority,
            depends_on: Vec::new(),
            blockers: 0,
            created_at: now,
            updated_at: now,
            attempts: 0,
            last_error: None,
            not_before: None,
            runner: None,
            token: Token::NONE,
            elsewhere: false,
            problem: None,
        };
        self.put_task(&task, None)?;
        for on in &new.depends_on {
            self.depend(id, on)?;
        }
        wake_seekers(self)?;
        existing(self, id)
    }

    /// Adds a task, if none has its title.
    pub(super) fn add_task_once(
        &mut self,
        id: &str,
        new: &NewTask,
    ) -> Result<(Task, bool), TaskError> {
        let mut found = self.tasks_titled(&new.title, ALL)?;
        found.retain(|task| task.title == new.title);
        let oldest = found
            .into_iter()
            .min_by_key(|task| (task.created_at, task.id.clone()));
        match oldest {
            Some(task) => Ok((task, false)),
            None => Ok((self.add_task(id, new)?, true)),
        }
    }

    /// Tasks with this title, in any case of letters.
    pub(super) fn tasks_titled(
        &mut self,
        title: &str,
        limit: usize,
    ) -> Result<Vec<Task>, TaskError> {
        let prefix = self.store.layout.entry('l', &[&title.to_ascii_lowercase()]) + "/";
        let list = self.list(&prefix, limit)?;
        let ids = list
            .keys()
            .filter_map(|name| crate::layout::Layout::rest(&prefix, name));
        let ids: Vec<String> = ids.collect();
        Ok(self.tasks_with_ids(&ids)?)
    }

    pub(super) fn edit_task(&mut self, id: &str, edit: &Edit) -> Result<Task, TaskError> {
        let before = existing(self, id)?;
        edit.title.as_deref().map_or(Ok(()), check_title)?;
        edit.description
            .as_deref()
            .map_or(Ok(()), check_description)?;
        if let Some(section) = &edit.section {
            may_move(self, &before)?;
            if !section.is_empty() {
                self.existing_section(section)?;
            }
            ring_waiters(self, &before)?;
        }
        if edit.is_empty() {
            return Ok(before);
        }
        let now = as_stored(self.now.wall);
        let filled = |text: &String| Some(text.clone()).filter(|text| !text.is_empty());
        self.modify(id, |record| {
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
        })?;
        for on in &edit.add_dependencies {
            self.depend(id, on)?;
        }
        wake_seekers(self)?;
        existing(self, id)
    }

    /// Makes a task depend on another.
    fn depend(&mut self, id: &str, on: &str) -> Result<(), TaskError> {
        let (task, on) = (existing(self, id)?, existing(self, on)?);
        let mut seen = BTreeSet::new();
        let mut open = vec![on.id.clone()];
        while !open.is_empty() {
            if open.contains(&task.id) {
                return Err(TaskError::Circle {
                    task: task.title,
                    on: on.title,
                });
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
        self.add_dependency(&task.id, &on.id)
    }

    /// Deletes tasks that no runner works on.
    pub(super) fn delete_tasks(&mut self, ids: &[String]) -> Result<Vec<DeletedTask>, TaskError> {
        self.fetch_with_dependencies(ids)?;
        let keys: Vec<Key> = ids.iter().filter_map(|id| task_key(id).ok()).collect();
        self.read_keys(&keys)?;
        let mut deleted = Vec::new();
        for id in ids {
            let task = existing(self, id)?;
            may_move(self, &task)?;
            vacate(self, &task_key(id)?)?;
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
            let dependents = dependents.len();
            deleted.push(DeletedTask { task, dependents });
        }
        ring_all_seekers(self)?;
        Ok(deleted)
    }

    /// Deletes a section that no other runner holds. Its tasks move to another section first, or (if `move_to` is
    /// empty) to none.
    pub(super) fn delete_section(
        &mut self,
        id: &str,
        move_to: Option<&str>,
        caller: &HolderId,
    ) -> Result<DeletedSection, TaskError> {
        let section = self.existing_section(id)?;
        may_delete(self, &section, caller)?;
        let ids = self.tasks_of(id)?;
        let moved_to = match move_to {
            None if !ids.is_empty() => {
                let tasks = self.tasks_with_ids(&ids)?;
                let open = tasks.iter().filter(|task| task.status.is_open());
                return Err(TaskError::SectionInUse {
                    section,
                    tasks: count(tasks.len()),
                    open: count(open.count()),
                });
            }
            None | Some("") => None,
            Some(other) if other == id => {
                return Err(TaskError::BadText {
                    what: "section to move the tasks to",
                    problem: "is the one to delete: name another one".into(),
                });
            }
            Some(other) => Some(self.existing_section(other)?),
        };
        self.move_all(&ids, moved_to.as_ref())?;
        vacate(self, &section_key(&section)?)?;
        let layout = &self.store.layout;
        let by_name = layout.entry('n', &[&section.name.to_ascii_lowercase()]);
        let name = layout.entry('s', &[id]);
        self.delete(name);
        self.delete(by_name);
        ring_all_seekers(self)?;
        let deleted = DeletedSection {
            section,
            moved: count(ids.len()),
            moved_to,
        };
        let event = Event {
            id: 0,
            at: self.now.wall,
            key: section_key(&deleted.section)?,
            kind: EventKind::Deleted,
            mode: Mode::Exclusive,
            token: Token::NONE,
            holder: caller.clone(),
            times: 1,
            reason: Some(deleted.to_string()),
            evidence: None,
            waited: None,
        };
        self.record(event, false);
        Ok(deleted)
    }

    /// The ids of the tasks of a section.
    fn tasks_of(&mut self, section: &str) -> Result<Vec<String>, TaskError> {
        let mut ids = Vec::new();
        for kind in ["w", "o", "d"] {
            let prefix = self.store.layout.entry('c', &[section, kind]) + "/";
            ids.extend(self.names(&prefix)?);
        }
        Ok(ids)
    }

    /// Moves tasks, none of which a runner works on.
    fn move_all(&mut self, ids: &[String], to: Option<&Section>) -> Result<(), TaskError> {
        self.fetch_with_dependencies(ids)?;
        let keys: Vec<Key> = ids.iter().filter_map(|id| task_key(id).ok()).collect();
        self.read_keys(&keys)?;
        let now = as_stored(self.now.wall);
        for id in ids {
            let task = existing(self, id)?;
            may_move(self, &task)?;
            ring_waiters(self, &task)?;
            self.modify(id, |record: &mut TaskRecord| {
                record.section = to.map(|section| section.id.clone());
                record.updated_at = now;
            })?;
        }
        Ok(())
    }
}

pub(super) fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}
