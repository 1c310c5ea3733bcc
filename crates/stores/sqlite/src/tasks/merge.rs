//! Merging another clone's tasks into this one.
//!
//! # Invariants
//!
//! 1. A merge is one transaction. It writes the times of the original changes; `exchange.merging`
//!    turns off the triggers that stamp changes of this clone.
//! 2. A task that a runner works on here keeps its status and its section, and is not deleted, until
//!    the runner is done. The same holds for a section that a runner holds here. The merged replica that a merge returns
//!    holds the other clones' change all the same, so it is not lost, and the next merge tries again.
//! 3. Every value that a merge replaces or refuses is in the task's history.
//! 4. A merge of few tasks reads only these, the tasks that they depend on, and the sections.

use std::collections::{BTreeSet, HashSet};

use jiff::Timestamp;
use rusqlite::{Connection, params};
use tenure_core::Key;
use tenure_host::random_uuid;
use tenure_tasks::edit::{remove_section, remove_task};
use tenure_tasks::follow::superseded;
use tenure_tasks::step::{section_key, task_key};
use tenure_tasks::{MergeSummary, Replica, Section, SectionCopy, Status, TaskCopy, flow};

use super::find;
use super::rows::by_id;
use super::share::{add_to, replica, sections, unshared};
use crate::query::Query as _;
use crate::rows::{number, time};
use crate::write::{TransactionError, WriteTransaction};

/// The largest number of tasks that are read one by one; for more, all tasks are read at once.
const MOST_ONE_BY_ONE: usize = 2_000;

impl WriteTransaction<'_> {
    /// Merges another clone's tasks. Returns the merged state of the tasks concerned, which every clone
    /// should have.
    pub(super) fn merge(
        &mut self,
        other: &Replica,
    ) -> Result<(Replica, MergeSummary), TransactionError> {
        let db = self.reader.db;
        let mut concerned: BTreeSet<String> = unshared(db)?.into_iter().collect();
        concerned.extend(other.tasks.keys().chain(other.deleted.keys()).cloned());
        let (here, others) = part(db, &concerned, other)?;
        let mut both = here.clone();
        both.merge(other.clone());
        let dropped = both.untangle_among(&others);
        let mut merged = MergeSummary {
            circles: dropped.len() as u64,
            ..MergeSummary::default()
        };
        for (id, _) in dropped {
            self.not_shared_yet(&id)?;
            concerned.insert(id);
        }
        self.keep_overruled(other, &both)?;
        let added_again = deleted_but_present(db, &concerned)?;
        if both != here || !added_again.is_empty() || !self.deleted_sections()?.is_empty() {
            self.put_all(&here, &both, &added_again, &mut merged)?;
        }
        both.tasks.retain(|id, _| concerned.contains(id));
        both.deleted.retain(|id, _| concerned.contains(id));
        Ok((both, merged))
    }

    /// Writes what a merge changed.
    fn put_all(
        &mut self,
        here: &Replica,
        both: &Replica,
        added_again: &BTreeSet<String>,
        merged: &mut MergeSummary,
    ) -> Result<(), TransactionError> {
        let db = self.reader.db;
        db.execute_batch("UPDATE exchange SET merging = 1")?;
        let before = db.total_changes();
        for (known, section) in &both.sections {
            if here.sections.get(known) != Some(section) {
                merged.sections += u64::from(self.merge_section(section)?);
            }
        }
        for id in both.deleted.keys() {
            let known = here.deleted.contains_key(id) && !added_again.contains(id);
            if !known || here.deleted.get(id) != both.deleted.get(id) {
                self.merge_deletion(id, both, merged)?;
            }
        }
        for (id, copy) in &both.tasks {
            match here.tasks.get(id) {
                Some(before) if before == copy => {}
                before => self.merge_task(id, before, copy, merged)?,
            }
        }
        // After all tasks, because a task may depend on any of them.
        for (id, copy) in &both.tasks {
            let before = here.tasks.get(id).map(|task| &task.depends_on);
            if before.is_none_or(|before| *before != copy.depends_on) {
                self.merge_dependencies(id, copy)?;
            }
        }
        for section in self.deleted_sections()? {
            if self.is_held(&section_key(&section)?)? {
                self.not_shared_yet("")?;
            } else {
                remove_section(self, &section)?;
                merged.deleted_sections += 1;
            }
        }
        let wrote = db.total_changes() > before;
        let merged = "UPDATE exchange SET merging = 0, changes = changes + ?1";
        db.run(merged, [wrote])?;
        if wrote {
            flow::ring_all_seekers(self)?;
        }
        Ok(())
    }

    /// Adds to the history what the other clone says and the merge refused.
    fn keep_overruled(&self, other: &Replica, both: &Replica) -> Result<(), TransactionError> {
        for (id, theirs) in &other.tasks {
            let Some(ours) = both.tasks.get(id) else {
                continue;
            };
            for (lost, winner) in fields(theirs).into_iter().zip(fields(ours)) {
                if (lost.at, &lost.value) < (winner.at, &winner.value) && lost.value != winner.value
                {
                    self.remember(id, &lost, winner.at, "overruled")?;
                }
            }
        }
        Ok(())
    }

    fn remember(
        &self,
        id: &str,
        lost: &StampedField,
        until: Timestamp,
        cause: &str,
    ) -> Result<(), TransactionError> {
        let remember = "INSERT OR IGNORE INTO task_history VALUES (?1, ?2, ?3, ?4, ?5, ?6)";
        let (at, until) = (time(lost.at), time(until));
        let values = params![id, lost.name, at, lost.value, until, cause];
        self.reader.db.run(remember, values)?;
        Ok(())
    }

    /// The sections that were deleted and have no tasks any more.
    fn deleted_sections(&self) -> rusqlite::Result<Vec<Section>> {
        let deleted = "SELECT s.id, s.name FROM section_times t JOIN sections s ON t.name = s.name
             WHERE t.deleted AND NOT EXISTS (SELECT 1 FROM tasks WHERE section_id = s.id)";
        self.reader.db.all(deleted, [], find::to_section)
    }

    /// Merges a section; `true` if it is new.
    fn merge_section(&mut self, section: &SectionCopy) -> Result<bool, TransactionError> {
        let db = self.reader.db;
        let created_at = time(section.created_at);
        if !section.is_unchanged() {
            let times = "INSERT OR REPLACE INTO section_times VALUES (?1, ?2, ?3, ?4)";
            let deleted = &section.deleted;
            let values = params![section.name, created_at, time(deleted.at), deleted.value];
            db.run(times, values)?;
        }
        // Another program may have added two that differ in capitals: rename one of them.
        let known = "UPDATE OR IGNORE sections SET name = ?1, created_at = ?2 WHERE name = ?1 COLLATE NOCASE";
        if db.run(known, [&section.name, &created_at])? > 0 || section.deleted.value {
            return Ok(false);
        }
        self.insert_merged(&section.name, &created_at)?;
        Ok(true)
    }

    fn insert_merged(&self, name: &str, created_at: &str) -> rusqlite::Result<Section> {
        let id = random_uuid().to_string();
        let insert = "INSERT INTO sections (id, name, created_at) VALUES (?1, ?2, ?3)";
        self.reader.db.run(insert, [&id, name, created_at])?;
        let name = name.to_owned();
        Ok(Section { id, name })
    }

    /// The section of a task, which stays or is there again if it was deleted.
    fn section_of_copy(&self, name: &str) -> rusqlite::Result<Option<Section>> {
        let db = self.reader.db;
        if let Some(section) = find::section_named(db, name)? {
            return Ok(Some(section));
        }
        let created_at = "SELECT created_at FROM section_times WHERE name = ?1";
        let created_at: Option<String> = db.first(created_at, [name], |row| row.get(0))?;
        created_at
            .map(|created_at| self.insert_merged(name, &created_at))
            .transpose()
    }

    fn merge_deletion(
        &mut self,
        id: &str,
        both: &Replica,
        merged: &mut MergeSummary,
    ) -> Result<(), TransactionError> {
        let at = both.deleted.get(id).copied().unwrap_or_default();
        let db = self.reader.db;
        let task = by_id(db, id)?;
        if let Some(task) = &task {
            if self.is_worked_on(id)? {
                merged.held += 1;
                return self.not_shared_yet(id);
            }
            remove_task(self, task)?;
            merged.deleted += 1;
        }
        let title = task.map(|task| task.title).unwrap_or_default();
        let deleted =
            "INSERT INTO deleted_tasks VALUES (?1, ?2, ?3) ON CONFLICT DO UPDATE SET at = ?2";
        db.run(deleted, params![id, time(at), title])?;
        let times = "DELETE FROM dependency_times WHERE task_id = ?1 OR depends_on = ?1";
        db.run(times, [id])?;
        Ok(())
    }

    fn merge_task(
        &mut self,
        id: &str,
        before: Option<&TaskCopy>,
        copy: &TaskCopy,
        merged: &mut MergeSummary,
    ) -> Result<(), TransactionError> {
        let db = self.reader.db;
        let mut copy = copy.clone();
        let Some(before) = before else {
            let insert = "INSERT INTO tasks (id, title) VALUES (?1, ?2)";
            db.run(insert, [id, &copy.title.value])?;
            merged.added += 1;
            return self.put_copy(id, &copy, true);
        };
        let moves = copy.section != before.section || copy.progress != before.progress;
        if moves && self.is_worked_on(id)? {
            copy.section = before.section.clone();
            copy.progress = before.progress.clone();
            merged.held += 1;
            self.not_shared_yet(id)?;
        }
        if copy == *before {
            return Ok(());
        }
        for (lost, winner) in fields(before).into_iter().zip(fields(&copy)) {
            if lost.value != winner.value {
                self.remember(id, &lost, winner.at, "merged")?;
            }
        }
        let progressed = copy.progress != before.progress;
        // The other clone decided about a task that its runner did not finish. The runner is late now.
        if progressed
            && before.progress.value.status() == Status::InProgress
            && let Some(runner) = by_id(db, id)?.and_then(|task| task.runner)
        {
            superseded(self, id, &runner)?;
        }
        merged.changed += 1;
        self.put_copy(id, &copy, progressed)
    }

    /// Writes all fields of a task except its dependencies.
    fn put_copy(
        &mut self,
        id: &str,
        copy: &TaskCopy,
        progressed: bool,
    ) -> Result<(), TransactionError> {
        let db = self.reader.db;
        let section: Option<Section> = match &copy.section.value {
            Some(name) => self.section_of_copy(name)?,
            None => None,
        };
        let stamp = |at: Timestamp| {
            if at == copy.created_at {
                String::new()
            } else {
                time(at)
            }
        };
        let fields = "UPDATE tasks SET title = ?2, description = ?3, section_id = ?4, priority = ?5, created_at = ?6,
             updated_at = ?7, title_at = ?8, description_at = ?9, section_at = ?10, priority_at = ?11 WHERE id = ?1";
        let values = params![
            id,
            copy.title.value,
            copy.description.value,
            section.map(|section| section.id),
            copy.priority.value,
            time(copy.created_at),
            time(copy.updated_at()),
            stamp(copy.title.at),
            stamp(copy.description.at),
            stamp(copy.section.at),
            stamp(copy.priority.at),
        ];
        db.run(fields, values)?;
        let progress = &copy.progress;
        if progressed {
            let status = progress.value.status();
            let set = "UPDATE tasks SET status = ?2, attempts = ?3, last_error = ?4, not_before = NULL, elsewhere = ?5
                 WHERE id = ?1";
            let values = params![
                id,
                status.word(),
                number(progress.value.attempts),
                progress.value.last_error,
                status == Status::InProgress,
            ];
            db.run(set, values)?;
        }
        // Always: created_at may have moved, and '' means created_at.
        let stamped = "UPDATE tasks SET status_at = ?2 WHERE id = ?1";
        db.run(stamped, [id, &stamp(progress.at)])?;
        Ok(())
    }

    fn merge_dependencies(&mut self, id: &str, copy: &TaskCopy) -> Result<(), TransactionError> {
        let db = self.reader.db;
        for (on, edge) in &copy.depends_on {
            let change = if edge.value {
                "INSERT OR IGNORE INTO task_dependencies (task_id, depends_on) VALUES (?1, ?2)"
            } else {
                "DELETE FROM task_dependencies WHERE task_id = ?1 AND depends_on = ?2"
            };
            db.run(change, [id, on])?;
            let times = "INSERT OR REPLACE INTO dependency_times VALUES (?1, ?2, ?3, ?4)";
            db.run(times, params![id, on, time(edge.at), edge.value])?;
        }
        Ok(())
    }

    /// Whether a runner holds a task here.
    fn is_worked_on(&mut self, id: &str) -> Result<bool, TransactionError> {
        self.is_held(&task_key(id)?)
    }

    fn is_held(&mut self, key: &Key) -> Result<bool, TransactionError> {
        let lease = self.view(key)?.leases.into_iter().next();
        let verdict = lease.map(|lease| self.reader.verdict(lease).1);
        Ok(verdict.is_some_and(|verdict| verdict.ended().is_none()))
    }
}

/// The part of the replica here that a merge with `other` may change, and the tasks outside of it that
/// it depends on. It holds every task on a cycle that a dependency in `other` closes.
fn part(
    db: &Connection,
    concerned: &BTreeSet<String>,
    other: &Replica,
) -> rusqlite::Result<(Replica, HashSet<String>)> {
    if concerned.len() > MOST_ONE_BY_ONE {
        return Ok((replica(db)?, HashSet::new()));
    }
    let mut here = sections(db)?;
    for id in concerned {
        add_to(&mut here, db, id)?;
    }
    let dependencies = |copy: &TaskCopy| -> Vec<String> {
        let present = copy.depends_on.iter().filter(|(_, edge)| edge.value);
        present.map(|(on, _)| on.clone()).collect()
    };
    let is_new = |id: &String, on: &String| {
        let known = here.tasks.get(id).and_then(|task| task.depends_on.get(on));
        !known.is_some_and(|edge| edge.value)
    };
    // Only a new dependency can close a cycle; all tasks of that cycle are below it.
    let mut below: Vec<String> = Vec::new();
    for (id, copy) in &other.tasks {
        let new = dependencies(copy).into_iter();
        below.extend(new.filter(|on| is_new(id, on)));
    }
    let mut seen: HashSet<String> = HashSet::new();
    while let Some(id) = below.pop() {
        if !seen.insert(id.clone()) {
            continue;
        }
        add_to(&mut here, db, &id)?;
        let copies = [here.tasks.get(&id), other.tasks.get(&id)];
        below.extend(copies.into_iter().flatten().flat_map(dependencies));
    }
    // Whether the other tasks that these depend on exist, or were deleted.
    let mut others = HashSet::new();
    let copies = here.tasks.values().chain(other.tasks.values());
    let on: BTreeSet<String> = copies
        .flat_map(|copy| copy.depends_on.keys().cloned())
        .collect();
    for id in on {
        if here.tasks.contains_key(&id) || here.deleted.contains_key(&id) {
            continue;
        }
        let mut one = Replica::default();
        add_to(&mut one, db, &id)?;
        here.deleted.append(&mut one.deleted);
        others.extend(one.tasks.into_keys());
    }
    here.tidy();
    Ok((here, others))
}

/// Tasks that another program added under the ids of deleted ones. A deletion is final.
fn deleted_but_present(
    db: &Connection,
    concerned: &BTreeSet<String>,
) -> rusqlite::Result<BTreeSet<String>> {
    let both = "SELECT 1 FROM deleted_tasks d JOIN tasks t ON t.id = d.id WHERE d.id = ?1";
    let mut found = BTreeSet::new();
    for id in concerned {
        if db.any(both, [id])? {
            found.insert(id.clone());
        }
    }
    Ok(found)
}

/// A field as the history records it.
struct StampedField {
    name: &'static str,
    value: String,
    at: Timestamp,
}

/// The fields of a task, always in the same order.
fn fields(copy: &TaskCopy) -> [StampedField; 5] {
    let field = |name, value: &str, at| StampedField {
        name,
        value: value.to_owned(),
        at,
    };
    let text = |text: &Option<String>| text.clone().unwrap_or_default();
    [
        field("title", &copy.title.value, copy.title.at),
        field(
            "description",
            &text(&copy.description.value),
            copy.description.at,
        ),
        field("section", &text(&copy.section.value), copy.section.at),
        field(
            "priority",
            &copy.priority.value.to_string(),
            copy.priority.at,
        ),
        field(
            "status",
            copy.progress.value.status().word(),
            copy.progress.at,
        ),
    ]
}
