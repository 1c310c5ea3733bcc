//! Tasks: begin, end and list beside a million of them, and beside a hundred.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, params};
use tenure::ask::Tie;
use tenure::store::HolderId;
use tenure::tasks::{Change, Status, TaskQuery};
use tenure::{Acquired, Tenure};

use crate::Line;
use crate::pairs::open;
use crate::stopwatch::{percentile, ratio, time};

const EACH: usize = 200;
const ROUNDS: usize = 7;

/// A project of so many tasks.
pub(crate) struct Size {
    pub(crate) pending: u32,
    pub(crate) completed: u32,
    pub(crate) sections: u32,
}

pub(crate) fn measure() -> Vec<Line> {
    let dir = tempfile::tempdir().unwrap();
    let (few_db, many_db) = (dir.path().join("few.db"), dir.path().join("many.db"));
    let few = prepare(
        &few_db,
        &Size {
            pending: 10_000,
            completed: 100,
            sections: 20,
        },
    );
    // Ten days of 100,000 completed each are behind it, and the rest ahead.
    let many = prepare(
        &many_db,
        &Size {
            pending: 500_000,
            completed: 500_000,
            sections: 20,
        },
    );
    let mut lines = Vec::new();
    for (what, act) in [
        (
            "tasks next, then completed: 1M tasks / 10k",
            (|tenure, _| (0..EACH).for_each(|_| next_and_complete(tenure))) as fn(&Tenure, &Path),
        ),
        ("tasks update by id: 1M tasks / 10k", |tenure, _| {
            start_and_complete(tenure);
        }),
        ("tasks list --status pending --limit 50", |tenure, _| {
            list(tenure);
        }),
        (
            "tasks next beside a locked section of 25,000 / 500",
            next_beside,
        ),
    ] {
        let (mut small, mut large) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            small.push(time(|| act(&few, &few_db)));
            large.push(time(|| act(&many, &many_db)));
        }
        let (small, large) = (percentile(&mut small, 50), percentile(&mut large, 50));
        let each = |all: Duration| format!("{:.1} us", all.as_secs_f64() * 1e6 / EACH as f64);
        lines.push(Line {
            what,
            ours: each(large),
            theirs: each(small),
            ratio: ratio(large, small),
            aim: "about 1x",
        });
    }
    lines
}

pub(crate) fn prepare(path: &Path, size: &Size) -> Tenure {
    let tenure = open(path);
    let mut db = Connection::open(path).unwrap();
    let tx = db.transaction().unwrap();
    for number in 0..size.sections {
        tx.execute(
            "INSERT INTO sections (id, name, created_at) VALUES (?1, ?1, '2026-01-01T00:00:00.000Z')",
            [format!("s{number:04}")],
        )
        .unwrap();
    }
    {
        let mut task = tx
            .prepare(
                "INSERT INTO tasks (id, title, section_id, status, created_at, updated_at)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?5)",
            )
            .unwrap();
        for number in 0..size.pending + size.completed {
            let status = if number < size.completed {
                "completed"
            } else {
                "pending"
            };
            // Spread as those of UUIDs are.
            let id = format!("{:08x}-{number}", number.wrapping_mul(2_654_435_761));
            let section = format!("s{:04}", number % size.sections);
            let at = format!("2026-01-01T00:00:00.{number:09}Z");
            task.execute(params![id, format!("Task {number}"), section, status, at])
                .unwrap();
        }
    }
    tx.commit().unwrap();
    db.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
    tenure
}

fn begin(tenure: &Tenure, id: Option<&str>) -> tenure::tasks::TaskGuard {
    let ask = tenure
        .ask_for_task()
        .unwrap()
        .called(HolderId::parse("runner").unwrap())
        .tied_to(Tie::ThisProcess);
    let outcome = match id {
        Some(id) => ask.start(id),
        None => ask.next(),
    };
    match outcome.unwrap() {
        Acquired::Granted(task_guard) => task_guard,
        _ => panic!("there is a task"),
    }
}

fn next_and_complete_each(tenure: &Tenure) {
    (0..EACH).for_each(|_| next_and_complete(tenure));
}

pub(crate) fn next_and_complete(tenure: &Tenure) {
    begin(tenure, None)
        .finish(&Change::To(Status::Completed))
        .unwrap();
}

fn start_and_complete(tenure: &Tenure) {
    for task in some(tenure, EACH) {
        begin(tenure, Some(&task))
            .finish(&Change::To(Status::Completed))
            .unwrap();
    }
}

fn some(tenure: &Tenure, count: usize) -> Vec<String> {
    let query = TaskQuery {
        status: Some(Status::Pending),
        limit: Some(count),
        ..TaskQuery::default()
    };
    let tasks = tenure
        .tasks()
        .unwrap()
        .tasks(&query, tenure::store::call_deadline())
        .unwrap();
    tasks.into_iter().map(|task| task.id).collect()
}

fn list(tenure: &Tenure) {
    for _ in 0..EACH {
        assert_eq!(some(tenure, 50).len(), 50);
    }
}

/// The most urgent tasks are all in a section that another runner holds.
fn next_beside(tenure: &Tenure, path: &Path) {
    let db = Connection::open(path).unwrap();
    db.execute_batch(
        "UPDATE tasks SET priority = 9 WHERE section_id = 's0001' AND status = 'pending' AND priority = 5",
    )
    .unwrap();
    // The runner of the rounds before keeps the sections it was in.
    let key = tenure::store::Key::parse("section:s0001").unwrap();
    let by = HolderId::parse("bench").unwrap();
    let _freed = tenure
        .store()
        .force(&key, None, &by, None, tenure::store::call_deadline())
        .unwrap();
    let held = tenure
        .ask("section:s0001")
        .unwrap()
        .named("another runner")
        .unwrap()
        .acquire()
        .unwrap();
    let Acquired::Granted(held) = held else {
        panic!("the section is free")
    };
    next_and_complete_each(tenure);
    let _freed = held.release().unwrap();
}
