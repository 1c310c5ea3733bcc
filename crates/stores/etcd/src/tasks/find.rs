//! Finding a task or section by id, name or prefix, and lists of them.

use std::collections::BTreeMap;

use tenure_core::StoreError;
use tenure_tasks::find::{CANDIDATES, DeletedName, SectionNames, TaskNames, find_section};
use tenure_tasks::lines::ExchangeLine;
use tenure_tasks::{Section, SectionSummary, Status, Task, TaskError, TaskQuery};

use super::edit::count;
use super::entries::ALL;
use super::records::DeletedRecord;
use crate::layout::{Layout, encoded};
use crate::records::parsed;
use crate::step::EtcdStep;

impl TaskNames for EtcdStep<'_> {
    type Error = TaskError;

    fn with_id(&mut self, id: &str) -> Result<Option<Task>, TaskError> {
        Ok(self.task_with_id(id)?)
    }

    fn titled(&mut self, title: &str) -> Result<Vec<Task>, TaskError> {
        let mut titled = self.tasks_titled(title, CANDIDATES)?;
        titled.sort_by_key(|task| task.created_at);
        Ok(titled)
    }

    fn beginning(&mut self, prefix: &str) -> Result<Vec<Task>, TaskError> {
        let all = self.store.layout.all('t');
        let begun = self.list(&(all.clone() + &encoded(prefix)), CANDIDATES)?;
        let ids = begun.keys().filter_map(|name| Layout::rest(&all, name));
        let ids: Vec<String> = ids.collect();
        Ok(self.tasks_with_ids(&ids)?)
    }

    fn deleted(&mut self, id: &str, title: &str) -> Result<Option<DeletedName>, TaskError> {
        let all = self.store.layout.all('x');
        // Deletions are rare, so there is no index of their titles.
        for (name, value) in self.list(&all, ALL)? {
            let record: DeletedRecord = parsed(&name, &value)?;
            let was = Layout::rest(&all, &name).unwrap_or_default();
            if was.starts_with(id) || record.title.eq_ignore_ascii_case(title) {
                let title = record.title;
                return Ok(Some(DeletedName { id: was, title }));
            }
        }
        Ok(None)
    }
}

/// All sections of a store that can be understood.
struct Sections(Vec<Section>);

impl Sections {
    fn matching(&self, is: impl Fn(&&Section) -> bool) -> Vec<Section> {
        let found = self.0.iter().filter(is).take(CANDIDATES);
        found.cloned().collect()
    }
}

impl SectionNames for Sections {
    type Error = TaskError;

    fn with_id(&mut self, id: &str) -> Result<Option<Section>, TaskError> {
        Ok(self.matching(|section| section.id == id).pop())
    }

    fn named(&mut self, name: &str) -> Result<Vec<Section>, TaskError> {
        Ok(self.matching(|section| section.name.eq_ignore_ascii_case(name)))
    }

    fn beginning(&mut self, prefix: &str) -> Result<Vec<Section>, TaskError> {
        Ok(self.matching(|section| section.id.starts_with(prefix)))
    }
}

impl EtcdStep<'_> {
    /// The section with this id, this name, or this unique prefix of its id.
    pub(super) fn find_section(&mut self, given: &str) -> Result<Section, TaskError> {
        let (mut sections, mut damaged) = (Vec::new(), None);
        for (_, section) in self.readable_sections()? {
            match section {
                Ok((section, _)) => sections.push(section),
                Err(error) => damaged = Some(error),
            }
        }
        find_section(&mut Sections(sections), given).map_err(|error| match (error, damaged) {
            // The one that can't be understood may be meant.
            (TaskError::NoSection(_), Some(damaged)) => damaged.into(),
            (error, _) => error,
        })
    }

    /// Every section with the number of its tasks and of its open tasks, by name.
    pub(super) fn section_summaries(&mut self) -> Result<Vec<SectionSummary>, TaskError> {
        let mut counts: BTreeMap<String, (usize, usize)> = BTreeMap::new();
        let prefix = self.store.layout.all('c');
        for name in self.list(&prefix, ALL)?.keys() {
            let mut parts = name.strip_prefix(&prefix).unwrap_or_default().split('/');
            let section = parts.next().and_then(|part| Layout::rest("", part));
            let (tasks, open) = counts.entry(section.unwrap_or_default()).or_default();
            *tasks += 1;
            *open += usize::from(parts.next() != Some("d"));
        }
        let sections = self.all_sections()?.into_iter().map(|(section, _)| {
            let (tasks, open) = counts.get(&section.id).copied().unwrap_or_default();
            SectionSummary {
                section,
                tasks: count(tasks),
                open: count(open),
            }
        });
        let mut sections: Vec<SectionSummary> = sections.collect();
        sections.sort_by(|one, other| one.section.name.cmp(&other.section.name));
        Ok(sections)
    }

    /// Lists tasks, status by status, the most urgent first, then the oldest.
    pub(super) fn list_tasks(&mut self, query: &TaskQuery) -> Result<Vec<Task>, TaskError> {
        let now = self.now.wall;
        let text = query.search.as_ref().map(|text| text.to_ascii_lowercase());
        let mut tasks = self.all_tasks()?;
        tasks.retain(|task| {
            let status = match query.status {
                Some(status) => task.status == status,
                None => !query.ready || task.status == Status::Pending,
            };
            let section = query.section.as_ref().is_none_or(|id| {
                let section = task.section.as_ref();
                section.is_some_and(|section| section.id == *id)
            });
            let title = || task.title.to_ascii_lowercase();
            let search = text.as_ref().is_none_or(|text| title().contains(text));
            let ready =
                !query.ready || task.blockers == 0 && task.not_before.is_none_or(|at| at <= now);
            status && section && search && ready
        });
        let place = |status: Status| Status::ALL.iter().position(|one| *one == status);
        // A stable sort: they are in the order in which they were added.
        tasks.sort_by_key(|task| {
            let urgency = std::cmp::Reverse(task.priority.level());
            (place(task.status), urgency, task.created_at)
        });
        tasks.truncate(query.limit.unwrap_or(usize::MAX));
        Ok(tasks)
    }

    /// Every section and task, as lines.
    pub(super) fn export_lines(&mut self) -> Result<Vec<String>, StoreError> {
        let mut lines = Vec::new();
        for (section, _) in self.all_sections()? {
            lines.push(ExchangeLine::of_section(&section));
        }
        lines.extend(self.all_tasks()?.into_iter().map(ExchangeLine::of_task));
        let text = |line: &ExchangeLine| serde_json::to_string(line).unwrap_or_default();
        Ok(lines.iter().map(text).collect())
    }
}
