//! A database with its own time, and runners who share its tasks.

use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;
use tempfile::TempDir;
use tenure_core::{Acquired, Binding, Holder, HolderId, Key, Patience, Priority, Records, Store};
use tenure_sqlite::{SqliteOptions, SqliteStore};
use tenure_tasks::{
    Change, Edit, NewTask, Proof, Runner, Started, Status, TaskError, TaskStore as _,
};
use tenure_testkit::FakeClock;
use tenure_testkit::soon;

pub(crate) const HOUR: Duration = Duration::from_secs(3600);

/// A database with its own time, and another program's connection to it.
pub(crate) struct World {
    pub(crate) dir: TempDir,
    pub(crate) clock: Arc<FakeClock>,
    pub(crate) store: SqliteStore,
    pub(crate) foreign: Connection,
}

impl World {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(FakeClock::booted("first boot"));
        let path = dir.path().join("tenure.db");
        let options = SqliteOptions {
            clock: clock.clone(),
            ..SqliteOptions::default()
        };
        Self {
            store: SqliteStore::open(&path, options).unwrap(),
            foreign: Connection::open(&path).unwrap(),
            clock,
            dir,
        }
    }

    /// Another process's view of the same database: dropped, that process is dead.
    pub(crate) fn other(&self) -> SqliteStore {
        let options = SqliteOptions {
            clock: self.clock.clone(),
            ..SqliteOptions::default()
        };
        SqliteStore::open(&self.dir.path().join("tenure.db"), options).unwrap()
    }

    pub(crate) fn sql(&self, text: &str) {
        self.foreign.execute_batch(text).unwrap();
    }

    pub(crate) fn ask<T: rusqlite::types::FromSql>(&self, text: &str) -> T {
        self.foreign.query_row(text, [], |row| row.get(0)).unwrap()
    }

    pub(crate) fn section(&self, name: &str) -> String {
        self.store.add_section(name, soon()).unwrap().id
    }

    /// Adds a task, a millisecond after the one before.
    pub(crate) fn task(&self, title: &str, section: Option<&str>, depends_on: &[&str]) -> String {
        self.clock.pass(Duration::from_millis(1));
        let task = NewTask {
            title: title.into(),
            description: None,
            section: section.map(str::to_owned),
            priority: Priority::default(),
            depends_on: depends_on.iter().map(|&id| id.to_owned()).collect(),
        };
        self.store.add_task(&task, soon()).unwrap().id
    }

    pub(crate) fn status(&self, id: &str) -> Status {
        self.store.find_task(id, soon()).unwrap().status
    }

    /// The holder of a key, if it is held.
    pub(crate) fn holder(&self, key: &str) -> Option<String> {
        let found = self
            .store
            .inspect(&Key::parse(key).unwrap(), soon())
            .unwrap();
        let (lease, verdict) = found.lease()?;
        verdict
            .ended()
            .is_none()
            .then(|| lease.holder.id.to_string())
    }

    pub(crate) fn holds_section(&self, id: &str) -> Option<String> {
        self.holder(&format!("section:{id}"))
    }

    pub(crate) fn holds_task(&self, id: &str) -> Option<String> {
        self.holder(&format!("task:{id}"))
    }

    pub(crate) fn force(&self, key: &str) {
        let admin = HolderId::parse("admin").unwrap();
        let key = Key::parse(key).unwrap();
        let _ = self.store.force(&key, None, &admin, None, soon()).unwrap();
    }

    /// All that a refusal must leave as it is.
    pub(crate) fn picture(&self) -> String {
        self.ask(
            "SELECT (SELECT group_concat(concat_ws('|', id, status, section_id, blockers, not_before, attempts,
             last_error, runner, token, lost, updated_at), char(10)) FROM tasks) || (SELECT coalesce(group_concat(
             concat_ws('|', key, token, holder, expires_at), char(10)), '') FROM leases) || (SELECT count(*) FROM history)",
        )
    }
}

/// Ends the process that has this store open, as far as other processes can tell: its liveness lock is
/// free.
pub(crate) fn die(world: &World, store: SqliteStore) {
    let lock = store
        .this_process()
        .unwrap()
        .liveness_lock()
        .unwrap()
        .0
        .clone();
    drop(store);
    let left = world.dir.path().join("tenure.db-live").join(lock);
    rustix::fs::mknodat(
        rustix::fs::CWD,
        left,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .unwrap();
}

pub(crate) fn name(text: &str) -> Proof {
    Proof::Name(HolderId::parse(text).unwrap())
}

/// A runner with a name of its own and leases that live by themselves.
pub(crate) fn detached(name: &str) -> Runner {
    Runner {
        holder: Holder {
            id: HolderId::parse(name).unwrap(),
            host: "here".into(),
            command: None,
            binding: Binding::Detached,
        },
        asker: Binding::Detached,
        named: true,
        task_ttl: HOUR,
        section_ttl: 2 * HOUR,
        priority: Priority::default(),
        patience: Patience::Try,
        within: vec![],
        leaves: Vec::new(),
        reopens: true,
    }
}

/// A runner that lives with the process which has this store open.
pub(crate) fn living(store: &SqliteStore, name: &str) -> Runner {
    let binding = store.this_process().unwrap();
    let mut runner = detached(name);
    runner.holder.binding = binding.clone();
    runner.asker = binding;
    runner
}

/// The same, in the queue.
pub(crate) fn waiting(store: &SqliteStore, mut runner: Runner) -> Runner {
    runner.asker = store.this_process().unwrap();
    runner.patience = Patience::Queue;
    runner
}

pub(crate) fn started(answer: Acquired<Started>) -> Started {
    match answer {
        Acquired::Granted(started) => started,
        other => panic!("it should be started: {other:?}"),
    }
}

pub(crate) fn begin(world: &World, id: &str, runner: &Runner) -> Started {
    started(world.store.start(id, runner, soon()).unwrap())
}

/// Which key a start is refused for.
pub(crate) fn busy(answer: Acquired<Started>) -> String {
    match answer {
        Acquired::Busy(busy) => busy.key.as_str().to_owned(),
        other => panic!("it should be busy: {other:?}"),
    }
}

pub(crate) fn found(answer: Acquired<Started>) -> Option<String> {
    match answer {
        Acquired::Granted(started) => Some(started.task.id.clone()),
        _ => None,
    }
}

pub(crate) fn next(world: &World, runner: &Runner) -> Option<String> {
    found(world.store.next(runner, soon()).unwrap())
}

pub(crate) fn finish(world: &World, id: &str, by: &str) {
    world
        .store
        .change(
            id,
            &name(by),
            &Change::To(Status::Completed),
            &Edit::default(),
            soon(),
        )
        .unwrap();
}

#[derive(Debug, PartialEq, Eq, Clone, Copy)]
pub(crate) enum Refusal {
    None,
    Locked,
    Superseded,
}

/// Tries a change, and sees to it that a refused one leaves everything as it was.
pub(crate) fn attempt(world: &World, id: &str, proof: &Proof, change: &Change) -> Refusal {
    let before = world.picture();
    match world
        .store
        .change(id, proof, change, &Edit::default(), soon())
    {
        Ok(_) => Refusal::None,
        Err(error) => {
            assert_eq!(world.picture(), before, "{error}");
            match error {
                TaskError::Locked { .. } => Refusal::Locked,
                TaskError::Superseded { .. } => Refusal::Superseded,
                other => panic!("{other}"),
            }
        }
    }
}

pub(crate) const RECOUNT: &str = "SELECT count(*) FROM tasks t WHERE blockers != (SELECT count(*) FROM task_dependencies d
    JOIN tasks o ON o.id = d.depends_on WHERE d.task_id = t.id AND o.status NOT IN ('completed', 'skipped'))";
