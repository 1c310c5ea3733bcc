//! The same pair beside very many other locks and events.

use std::path::Path;

use rusqlite::{Connection, params};

use crate::Line;
use crate::pairs::{acquire_release, open};
use crate::stopwatch::{percentile, ratio, time};

const PAIRS: usize = 500;
const ROUNDS: usize = 9;

pub(crate) fn measure() -> Vec<Line> {
    let dir = tempfile::tempdir().unwrap();
    let (small, large) = (dir.path().join("small.db"), dir.path().join("large.db"));
    fill(&small, 10, 100);
    fill(&large, 100_000, 1_000_000);
    let (small, large) = (open(&small), open(&large));
    let (mut few, mut many) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        few.push(time(|| acquire_release(&small, PAIRS)));
        many.push(time(|| acquire_release(&large, PAIRS)));
    }
    let (few, many) = (percentile(&mut few, 50), percentile(&mut many, 50));
    let each =
        |all: std::time::Duration| format!("{:.1} us", all.as_secs_f64() * 1e6 / PAIRS as f64);
    vec![Line {
        what: "pair beside 100,000 locks, 1M events / beside 10",
        ours: each(many),
        theirs: each(few),
        ratio: ratio(many, few),
        aim: "about 1x",
    }]
}

/// Puts rows there as the store itself would have written them.
fn fill(path: &Path, locks: u32, events: u32) {
    acquire_release(&open(path), 1);
    let mut db = Connection::open(path).unwrap();
    let tx = db.transaction().unwrap();
    {
        let mut lock = tx
            .prepare(
                "INSERT INTO leases (key, token, holder, host, command, binding, acquired_at, expires_at,
                                     heartbeat_at, ttl_ms, boot, expires_boot)
                 VALUES (?1, ?2, 'holder', 'host', NULL, '{\"kind\":\"detached\"}',
                 '2026-11-15T18:49:40.407Z', '2126-11-15T18:49:40.407Z', '2026-11-15T18:49:40.407Z', 60000, '', 0)",
            )
            .unwrap();
        for number in 0..locks {
            lock.execute(params![format!("lock-{number}"), number])
                .unwrap();
        }
        let mut event = tx
            .prepare(
                "INSERT INTO history (at, key, kind, token, holder, reason)
                 VALUES ('2126-11-15T18:49:40.407Z', ?1, 'granted', ?2, 'holder', 'acquired_new')",
            )
            .unwrap();
        for number in 0..events {
            event
                .execute(params![format!("lock-{}", number % 1000), number])
                .unwrap();
        }
    }
    tx.commit().unwrap();
    db.execute_batch("PRAGMA wal_checkpoint(TRUNCATE)").unwrap();
}
