//! A cycle frees what is over in every store of the project.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "test code fails by panicking"
)]

use std::process::Command;

use tenure::ledger::{Dialect, Ledger, NewEvent};
use tenure::{Config, Project};
use tenure_daemon::once;
use tenure_daemon::state::Outcome;

/// A pid that no process has.
fn nobody() -> u32 {
    let mut child = Command::new("true").spawn().unwrap();
    child.wait().unwrap();
    child.id()
}

#[test]
fn a_dead_lock_of_the_board_and_an_expired_claim_are_freed() {
    let dir = tempfile::tempdir().unwrap();
    let (project, _) = Project::init(dir.path()).unwrap();
    std::fs::create_dir_all(dir.path().join(".bilu/board")).unwrap();
    let lock = dir.path().join(".bilu/storage/lock");
    std::fs::create_dir_all(&lock).unwrap();
    std::fs::write(lock.join("pid"), format!("{}\n", nobody())).unwrap();
    let ledger = Ledger::init(
        dir.path(),
        Dialect::Documented,
        tenure::file::Options::default(),
    )
    .unwrap();
    let claim = r#"{"type":"lock_acquired","timestamp":"2026-01-01T00:00:00Z","node_id":"1.2","owner":"gone","expires_at":"2026-01-01T00:05:00Z"}"#;
    let _ = ledger.append(&NewEvent::parse(claim).unwrap()).unwrap();
    let mut lines = Vec::new();
    let done = once(&project, &Config::default(), &|| false, &mut |line| {
        lines.push(line.to_owned());
    });
    assert_eq!(done.outcome, Outcome::Done, "{}", done.line);
    assert!(!lock.exists());
    assert_eq!(ledger.last().unwrap(), 2, "an event tells of it");
    assert!(
        lines
            .iter()
            .any(|line| line.starts_with("Freed node:1.2 of gone:")),
        "{lines:?}"
    );
    assert!(
        lines.iter().any(|line| line.starts_with("Freed board of ")),
        "{lines:?}"
    );
    assert!(done.line.contains("2 leases freed"), "{}", done.line);
    // Once is enough.
    let again = once(&project, &Config::default(), &|| false, &mut |_| {});
    assert!(again.line.contains("nothing to free"), "{}", again.line);
    assert_eq!(ledger.last().unwrap(), 2);
}
