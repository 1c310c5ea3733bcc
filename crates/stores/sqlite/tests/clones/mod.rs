//! A clone's database, and what its tests do to it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::Duration;

use jiff::Timestamp;
use rusqlite::Connection;
use tempfile::TempDir;
use tenure_core::{Acquired, Binding, Holder, HolderId, Lease, Patience, Priority};
use tenure_sqlite::{SqliteOptions, SqliteStore};
use tenure_tasks::{NewTask, Progress, Proof, Runner, Stamped, Status, TaskCopy, TaskStore as _};
use tenure_testkit::soon;

pub(crate) const HOUR: Duration = Duration::from_secs(3600);

/// One clone: a database in a folder of its own.
pub(crate) struct CloneDb {
    pub(crate) dir: TempDir,
    pub(crate) store: SqliteStore,
}

impl CloneDb {
    pub(crate) fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = open(&dir.path().join("tenure.db"));
        Self { dir, store }
    }

    pub(crate) fn path(&self) -> PathBuf {
        self.dir.path().join("tenure.db")
    }

    pub(crate) fn db(&self) -> Connection {
        let db = Connection::open(self.path()).unwrap();
        db.busy_timeout(HOUR).unwrap();
        db
    }

    pub(crate) fn sql(&self, text: &str) {
        self.db().execute_batch(text).unwrap();
    }

    pub(crate) fn count(&self, text: &str) -> i64 {
        self.db().query_row(text, [], |row| row.get(0)).unwrap()
    }

    pub(crate) fn text(&self, text: &str) -> String {
        self.db().query_row(text, [], |row| row.get(0)).unwrap()
    }

    pub(crate) fn rows(&self, text: &str) -> Vec<String> {
        let db = self.db();
        let mut statement = db.prepare(text).unwrap();
        let rows = statement.query_map([], |row| row.get(0)).unwrap();
        rows.map(Result::unwrap).collect()
    }

    pub(crate) fn add(&self, title: &str) -> String {
        self.store.add_task(&new_task(title), soon()).unwrap().id
    }

    pub(crate) fn copy(&self, id: &str) -> TaskCopy {
        self.store.replica(soon()).unwrap().tasks[id].clone()
    }

    /// Merges both ways: afterwards both have the same.
    pub(crate) fn exchange(&self, other: &Self) {
        let (both, _) = self
            .store
            .merge(&other.store.replica(soon()).unwrap(), soon())
            .unwrap();
        other.store.merge(&both, soon()).unwrap();
    }
}

pub(crate) fn open(path: &Path) -> SqliteStore {
    SqliteStore::open(path, SqliteOptions::default()).unwrap()
}

pub(crate) fn new_task(title: &str) -> NewTask {
    NewTask {
        title: title.into(),
        description: None,
        section: None,
        priority: Priority::default(),
        depends_on: vec![],
    }
}

pub(crate) fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

/// A task that was added at some time and never changed.
pub(crate) fn copy_at(title: &str, when: Timestamp) -> TaskCopy {
    TaskCopy {
        created_at: when,
        title: Stamped::new(title.into(), when),
        description: Stamped::new(None, when),
        section: Stamped::new(None, when),
        priority: Stamped::new(5, when),
        progress: Stamped::new(Progress::new(Status::Pending, 0, None), when),
        depends_on: BTreeMap::new(),
    }
}

pub(crate) fn name(text: &str) -> Proof {
    Proof::Name(HolderId::parse(text).unwrap())
}

pub(crate) fn runner(text: &str) -> Runner {
    Runner {
        holder: Holder {
            id: HolderId::parse(text).unwrap(),
            host: "here".into(),
            command: None,
            binding: Binding::Detached,
        },
        asker: Binding::Detached,
        named: true,
        task_ttl: HOUR,
        section_ttl: HOUR,
        priority: Priority::default(),
        patience: Patience::Try,
        within: vec![],
        leaves: Vec::new(),
        reopens: true,
    }
}

/// Begins a task, which has to be free, and returns the lease of it.
pub(crate) fn begin(store: &SqliteStore, id: &str, who: &str) -> Lease {
    match store.start(id, &runner(who), soon()).unwrap() {
        Acquired::Granted(started) => started.lease,
        other => panic!("{other:?}"),
    }
}

/// When each of the five fields was last changed.
pub(crate) fn times(copy: &TaskCopy) -> [Timestamp; 5] {
    [
        copy.title.at,
        copy.description.at,
        copy.section.at,
        copy.priority.at,
        copy.progress.at,
    ]
}

/// What waits is counted as an independent look at the tables counts it, and nothing waits for itself.
pub(crate) fn check_blockers(clone: &CloneDb) {
    let wrong = clone.rows(
        "SELECT t.id || ' says ' || t.blockers FROM tasks t WHERE t.blockers <> (SELECT count(*) FROM task_dependencies d
         JOIN tasks o ON o.id = d.depends_on AND o.status NOT IN ('completed', 'skipped') WHERE d.task_id = t.id)",
    );
    assert!(wrong.is_empty(), "{wrong:?}");
    let circles = clone.rows(
        "WITH RECURSIVE b(id, on_) AS (SELECT task_id, depends_on FROM task_dependencies
         UNION SELECT b.id, d.depends_on FROM b JOIN task_dependencies d ON d.task_id = b.on_)
         SELECT id FROM b WHERE id = on_",
    );
    assert!(circles.is_empty(), "{circles:?}");
}
