//! What clones share of their tasks, and the earlier values of a task's fields.

use std::collections::BTreeMap;

use jiff::Timestamp;
use rusqlite::{Connection, Row};
use tenure_tasks::{
    Cause, Past, Progress, Replica, SectionCopy, Stamped, Status, SyncState, TaskCopy, check,
};

use crate::lock_tables::instant;
use crate::query::Query as _;
use crate::rows::{number, optional_text, text, time, unsigned};
use crate::write::{TransactionError, WriteTransaction};

/// The columns of a shared task.
macro_rules! select_copy {
    ($rest:literal) => {
        concat!(
            "SELECT t.id, t.title, t.description, s.name, t.priority, t.status, t.attempts, t.last_error, t.created_at,
             t.title_at, t.description_at, t.section_at, t.priority_at, t.status_at
             FROM tasks t LEFT JOIN sections s ON s.id = t.section_id ",
            $rest
        )
    };
}

/// The dependencies of tasks, and those that were dropped; `$whose` limits both to some tasks.
macro_rules! select_edges {
    ($whose:literal) => {
        concat!(
            "SELECT d.task_id, d.depends_on, coalesce(c.at, t.created_at), 1 FROM task_dependencies d
             JOIN tasks t ON t.id = d.task_id
             LEFT JOIN dependency_times c ON c.task_id = d.task_id AND c.depends_on = d.depends_on AND c.present
             WHERE ", $whose, "
             UNION ALL SELECT d.task_id, d.depends_on, d.at, 0 FROM dependency_times d WHERE NOT d.present AND NOT EXISTS
                 (SELECT 1 FROM task_dependencies e WHERE e.task_id = d.task_id AND e.depends_on = d.depends_on)
             AND ", $whose
        )
    };
}

/// All that clones share.
pub(super) fn replica(db: &Connection) -> rusqlite::Result<Replica> {
    let mut replica = sections(db)?;
    let mut edges = edges(db)?;
    db.all(select_copy!(""), [], |row| {
        add_task(&mut replica, row, |id| edges.remove(id).unwrap_or_default())
    })?;
    let deleted = "SELECT id, at FROM deleted_tasks";
    db.all(deleted, [], |row| add_deletion(&mut replica, row))?;
    replica.tidy();
    Ok(replica)
}

fn add_task(
    replica: &mut Replica,
    row: &Row<'_>,
    depends_on: impl FnOnce(&str) -> Edges,
) -> rusqlite::Result<()> {
    if let Some(id) = shared_id(row, 0)? {
        let copy = copy(row, depends_on(&id))?;
        replica.tasks.insert(id, copy);
    }
    Ok(())
}

fn add_deletion(replica: &mut Replica, row: &Row<'_>) -> rusqlite::Result<()> {
    if let Some(id) = shared_id(row, 0)? {
        replica.delete(id, moment(row, 1, None)?);
    }
    Ok(())
}

/// A replica without tasks.
pub(super) fn sections(db: &Connection) -> rusqlite::Result<Replica> {
    let mut replica = Replica::default();
    db.all("SELECT name, created_at FROM sections", [], |row| {
        if let Some(name) = shared_name(row, 0)? {
            replica.add_section(SectionCopy::added(name, moment(row, 1, None)?));
        }
        Ok(())
    })?;
    let times = "SELECT name, created_at, at, deleted FROM section_times";
    db.all(times, [], |row| {
        if let Some(name) = shared_name(row, 0)? {
            replica.add_section(SectionCopy {
                name,
                created_at: moment(row, 1, None)?,
                deleted: Stamped::new(row.get(3)?, moment(row, 2, None)?),
            });
        }
        Ok(())
    })?;
    Ok(replica)
}

/// Adds a task to a replica, or its deletion. Call [`Replica::tidy`] after the last one.
pub(super) fn add_to(replica: &mut Replica, db: &Connection, id: &str) -> rusqlite::Result<()> {
    let mut edges: Edges = BTreeMap::new();
    db.all(select_edges!("d.task_id = ?1"), [id], |row| {
        if let Some(other) = shared_id(row, 1)? {
            edges.insert(other, edge(row)?);
        }
        Ok(())
    })?;
    db.first(select_copy!("WHERE t.id = ?1"), [id], |row| {
        add_task(replica, row, |_| edges)
    })?;
    let deleted = "SELECT id, at FROM deleted_tasks WHERE id = ?1";
    db.first(deleted, [id], |row| add_deletion(replica, row))?;
    Ok(())
}

/// The id of a task, unless another program wrote one that no clone could read: such a task stays here.
fn shared_id(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<String>> {
    let id = row.get_ref(column)?.as_str().unwrap_or_default();
    Ok(tenure_tasks::check_id("id", id)
        .is_ok()
        .then(|| id.to_owned()))
}

/// The name of a section; the same.
fn shared_name(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<String>> {
    let name = row.get_ref(column)?.as_str().unwrap_or_default();
    Ok(tenure_tasks::check_title(name)
        .is_ok()
        .then(|| name.to_owned()))
}

type Edges = BTreeMap<String, Stamped<bool>>;

/// The dependencies of each task, and those that were dropped.
fn edges(db: &Connection) -> rusqlite::Result<BTreeMap<String, Edges>> {
    let mut edges: BTreeMap<String, Edges> = BTreeMap::new();
    db.all(select_edges!("true"), [], |row| {
        if let (Some(id), Some(other)) = (shared_id(row, 0)?, shared_id(row, 1)?) {
            edges.entry(id).or_default().insert(other, edge(row)?);
        }
        Ok(())
    })?;
    Ok(edges)
}

fn edge(row: &Row<'_>) -> rusqlite::Result<Stamped<bool>> {
    Ok(Stamped::new(row.get(3)?, moment(row, 2, None)?))
}

/// What clones share of a task. Where another program wrote a value that can't be understood, they share what a task
/// has that was just added, as of then, so that the value of any other clone wins.
fn copy(row: &Row<'_>, depends_on: Edges) -> rusqlite::Result<TaskCopy> {
    let times = (8..=13).map(|column| readable(row, column));
    let times: Vec<Timestamp> = times
        .filter_map(Result::transpose)
        .collect::<Result<_, _>>()?;
    let created_at = times.into_iter().next().unwrap_or_default();
    let at = |column: usize| moment(row, column, Some(created_at));
    let status: Option<Status> = text(row, 5)?.parse().ok();
    let changed_at = match status {
        Some(_) => at(13)?,
        None => created_at,
    };
    let level = row.get::<_, i64>(4).unwrap_or(5).clamp(0, 9);
    let title = text(row, 1)?;
    let description = optional_text(row, 2)?;
    let attempts = unsigned(row, 6).unwrap_or_default();
    let status = status.unwrap_or(Status::Pending);
    let progress = Progress::new(status, attempts, optional_text(row, 7)?);
    Ok(TaskCopy {
        created_at,
        title: Stamped::new(check::fit_title(&title), at(9)?),
        description: Stamped::new(
            description.map(|text| check::fit_description(&text)),
            at(10)?,
        ),
        section: Stamped::new(shared_name(row, 3)?, at(11)?),
        priority: Stamped::new(u8::try_from(level).unwrap_or(5), at(12)?),
        progress: Stamped::new(progress, changed_at),
        depends_on,
    })
}

/// A time, to the millisecond. One that is empty, or that can't be understood, is `usual`, or else the oldest of all.
fn moment(row: &Row<'_>, column: usize, usual: Option<Timestamp>) -> rusqlite::Result<Timestamp> {
    Ok(readable(row, column)?.or(usual).unwrap_or_default())
}

fn readable(row: &Row<'_>, column: usize) -> rusqlite::Result<Option<Timestamp>> {
    let at = instant(&text(row, column)?);
    Ok(at.map(|at| time(at).parse().unwrap_or(at)))
}

/// How far this clone is shared with others.
pub(super) fn sync_state(db: &Connection) -> rusqlite::Result<SyncState> {
    let (changes, note) = db
        .prepare_cached("SELECT changes, settled FROM exchange")?
        .query_row([], |row| Ok((unsigned(row, 0)?, row.get(1)?)))?;
    Ok(SyncState {
        changes,
        note,
        unshared: unshared(db)?,
    })
}

/// The ids of the tasks that have to be shared; an empty one stands for the sections.
pub(super) fn unshared(db: &Connection) -> rusqlite::Result<Vec<String>> {
    let ids = "SELECT id FROM unshared WHERE typeof(id) = 'text'";
    db.all(ids, [], |row| row.get(0))
}

/// The earlier values of a task's fields, the newest first.
pub(super) fn past(db: &Connection, id: &str) -> rusqlite::Result<Vec<Past>> {
    let past = "SELECT field, value, at, until, cause FROM task_history WHERE task_id = ?1
         ORDER BY until DESC, at DESC, field";
    db.all(past, [id], |row| {
        let cause: String = row.get(4)?;
        Ok(Past {
            field: row.get(0)?,
            value: row.get(1)?,
            at: moment(row, 2, None)?,
            until: moment(row, 3, None)?,
            cause: match cause.as_str() {
                "merged" => Cause::Merged,
                "overruled" => Cause::Overruled,
                _ => Cause::Changed,
            },
        })
    })
}

impl WriteTransaction<'_> {
    /// Records what is shared, and the note of a sync.
    pub(super) fn settle(&self, note: &str, changes: u64) -> Result<(), TransactionError> {
        let db = self.reader.db;
        db.run("UPDATE exchange SET settled = ?1", [note])?;
        let shared = "DELETE FROM unshared WHERE change <= ?1";
        db.run(shared, [number(changes)])?;
        Ok(())
    }

    /// Records that nothing is shared yet.
    pub(super) fn unsettle(&self) -> Result<(), TransactionError> {
        self.reader.db.execute_batch(crate::schema::UNSETTLE)?;
        Ok(())
    }

    /// Marks a task as one that the next sync has to look at, too.
    pub(super) fn not_shared_yet(&self, id: &str) -> Result<(), TransactionError> {
        let mark = "INSERT OR REPLACE INTO unshared SELECT ?1, changes + 1 FROM exchange";
        self.reader.db.run(mark, [id])?;
        Ok(())
    }
}
