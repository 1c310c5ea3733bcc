//! Acquire and release in one process, against the least that SQLite could do.

use std::path::Path;
use std::time::Duration;

use rusqlite::Connection;
use tenure::{Acquired, Config, StoreUrl, Tenure};

use crate::Line;
use crate::stopwatch::{percentile, time};

const PAIRS: usize = 2_000;
const ROUNDS: usize = 9;

pub(crate) fn measure() -> Vec<Line> {
    let dir = tempfile::tempdir().unwrap();
    let tenure = open(&dir.path().join("tenure.db"));
    let bare = bare(&dir.path().join("bare.db"));
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        ours.push(time(|| acquire_release(&tenure, PAIRS)));
        theirs.push(time(|| insert_delete(&bare, PAIRS)));
    }
    let (ours, theirs) = (percentile(&mut ours, 50), percentile(&mut theirs, 50));
    vec![Line {
        what: "acquire+release / bare INSERT+DELETE, pairs/s",
        ours: per_second(ours),
        theirs: per_second(theirs),
        ratio: theirs.as_secs_f64() / ours.as_secs_f64(),
        aim: "at least 0.4x",
    }]
}

pub(crate) fn open(path: &Path) -> Tenure {
    let url = StoreUrl::parse(&format!("sqlite:{}", path.display())).unwrap();
    // So many that nothing is pruned: that would be a measure of something else.
    let keep_all = [("TENURE_HISTORY_MAX_EVENTS".into(), "100000000".into())];
    Tenure::open_with(&url, Config::load_with(None, None, keep_all).unwrap()).unwrap()
}

pub(crate) fn acquire_release(tenure: &Tenure, pairs: usize) {
    for _ in 0..pairs {
        let Acquired::Granted(held) = tenure.ask("build").unwrap().acquire().unwrap() else {
            panic!("nobody else is here");
        };
        let _freed = held.release().unwrap();
    }
}

fn bare(path: &Path) -> Connection {
    let db = Connection::open(path).unwrap();
    db.execute_batch(
        "PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL; PRAGMA foreign_keys = ON;
         PRAGMA wal_autocheckpoint = 100;
         CREATE TABLE locks (key TEXT PRIMARY KEY, holder TEXT NOT NULL, expires_at TEXT NOT NULL);",
    )
    .unwrap();
    db
}

fn insert_delete(db: &Connection, pairs: usize) {
    for _ in 0..pairs {
        let insert =
            "INSERT INTO locks VALUES ('build', 'another holder', '2026-11-15T18:49:40.407Z')";
        db.prepare_cached(insert).unwrap().execute([]).unwrap();
        db.prepare_cached("DELETE FROM locks WHERE key = 'build'")
            .unwrap()
            .execute([])
            .unwrap();
    }
}

fn per_second(all: Duration) -> String {
    format!("{:.0} /s", PAIRS as f64 / all.as_secs_f64())
}
