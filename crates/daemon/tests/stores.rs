//! A cycle ends expired and dead leases in every store of the project.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "test code fails by panicking"
)]

use std::process::Command;

use tenure::{Config, Project};
use tenure_daemon::{CycleOutcome, run_once};
use tenure_ledger::{Dialect, Ledger, NewEvent};

/// A pid that no process has.
fn unused_pid() -> u32 {
    let mut child = Command::new("true").spawn().unwrap();
    child.wait().unwrap();
    child.id()
}

#[test]
fn a_dead_lock_of_the_board_and_an_expired_claim_are_ended() {
    let dir = tempfile::tempdir().unwrap();
    let (project, _) = Project::init(dir.path()).unwrap();
    std::fs::create_dir_all(dir.path().join(".bilu/board")).unwrap();
    let lock = dir.path().join(".bilu/storage/lock");
    std::fs::create_dir_all(&lock).unwrap();
    std::fs::write(lock.join("pid"), format!("{}\n", unused_pid())).unwrap();
    let ledger = Ledger::init(
        dir.path(),
        Dialect::Documented,
        tenure_lockfile::Options::default(),
    )
    .unwrap();
    let claim = r#"{"type":"lock_acquired","timestamp":"2026-01-01T00:00:00Z","node_id":"1.2","owner":"gone","expires_at":"2026-01-01T00:05:00Z"}"#;
    let _ = ledger.append(&NewEvent::parse(claim).unwrap()).unwrap();
    let mut lines = Vec::new();
    let result = run_once(&project, &Config::default(), &|| false, &mut |event| {
        lines.push(event.to_string());
    });
    assert_eq!(result.outcome(), CycleOutcome::Done, "{result}");
    assert!(!lock.exists());
    assert_eq!(ledger.last().unwrap(), 2, "the end is an event");
    assert!(
        lines
            .iter()
            .any(|line| line.starts_with("Ended the lease of gone on node:1.2:")),
        "{lines:?}"
    );
    assert!(
        lines
            .iter()
            .any(|line| line.starts_with("Ended the lease of ") && line.contains(" on board: ")),
        "{lines:?}"
    );
    let summary = result.to_string();
    assert!(summary.contains("2 leases ended"), "{summary}");
    // The next cycle finds nothing to do.
    let again = run_once(&project, &Config::default(), &|| false, &mut |_| {});
    let summary = again.to_string();
    assert!(summary.contains("no leases to end"), "{summary}");
    assert_eq!(ledger.last().unwrap(), 2);
}
