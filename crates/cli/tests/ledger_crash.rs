//! What a ledger's claims survive: killed holders, takeovers that fail, locks that killed processes left.

use crate::project;

use std::fs;
use std::path::Path;

use project::{Project, until};
use tenure_testkit::limit::Stopwatch;

/// A ledger of each dialect in which the holder of node 1 was killed.
fn with_dead_holder() -> [Project; 2] {
    ["documented", "af"].map(|dialect| {
        let project = Project::uninitialised();
        project
            .tenure(&format!("ledger init --dialect {dialect}"))
            .exits(0);
        if dialect == "af" {
            for event in [
                r#"{"type":"proof_initialized","conjecture":"c","author":"a"}"#,
                r#"{"type":"node_created","node":{"id":"1","workflow_state":"available"}}"#,
            ] {
                project.call("ledger append").arg(event).end().exits(0);
            }
        }
        let killed = project.call("--store ledger:. run node:1 --as killed --ttl 1h");
        killed.sh("kill -9 $PPID").end();
        until("the holder is dead", || {
            let shown = project.tenure("--store ledger:. locks show node:1").out;
            shown.contains("dead")
        });
        project
    })
}

#[test]
fn a_takeover_that_fails_leaves_the_proof_that_the_holder_is_dead() {
    for project in with_dead_holder() {
        let lock = project.path("ledger/ledger.lock");
        fs::write(&lock, r#"{"agent_id":"append-operation"}"#).unwrap();
        let run = "--store ledger:. run node:1 --as next --no-wait -- true";
        project.tenure(run).exits(6);
        fs::remove_file(&lock).unwrap();
        let shown = project
            .tenure("--store ledger:. locks show node:1")
            .exits(0);
        assert!(shown.out.contains("dead"), "{shown:?}");
        let reaped = project.tenure("ledger reap").exits(0);
        assert!(
            reaped.out.contains("Ended the claim of killed on node 1"),
            "{reaped:?}"
        );
        project.tenure(run).exits(0);
        project.tenure("ledger verify").exits(0);
    }
}

/// Puts the ledger lock into the state in which a tenure leaves it that is killed while it holds it: the
/// file has its public name, and names the process that took it last.
fn link_lock(project: &Project) {
    link_lock_of(&project.path("ledger"));
}

/// The same for the ledger with its events in this folder.
fn link_lock_of(ledger: &Path) {
    let user = rustix::process::getuid().as_raw();
    let own = ledger.join(format!(".ledger-tenure/lock.{user}"));
    fs::hard_link(own, ledger.join("ledger.lock")).unwrap();
}

#[test]
fn every_command_removes_the_ledger_lock_of_a_killed_tenure() {
    let project = Project::uninitialised();
    project.tenure("ledger init").exits(0);
    project.tenure("ledger claim 1 --as me --ttl 1h").exits(0);
    let lock = project.path("ledger/ledger.lock");
    let commands = [
        ("ledger log", 0),
        ("ledger claims", 0),
        ("ledger verify", 0),
        ("ledger reap", 0),
        ("ledger reap --dry-run", 0),
        ("ledger claim 1 --as other --no-wait", 6),
        ("ledger refresh 1 --as me --ttl 1h", 0),
        ("--store ledger:. locks list", 0),
        ("--store ledger:. locks show node:1", 0),
        ("--store ledger:. locks history", 0),
        ("--store ledger:. locks cleanup", 0),
        ("ledger break-lock", 0),
    ];
    for (words, code) in commands {
        // As it is, and as after a power cut.
        for content in ["the record", ""] {
            link_lock(&project);
            if content.is_empty() {
                fs::write(&lock, "").unwrap();
            }
            project.tenure(words).exits(code);
            assert!(!lock.exists(), "{words} with {content:?}");
            // Writes the record again.
            project
                .call("ledger append")
                .arg(r#"{"type":"note"}"#)
                .end()
                .exits(0);
        }
    }
    link_lock(&project);
    let verified = project.tenure("ledger verify").exits(0);
    assert!(
        verified
            .out
            .contains("removed the ledger lock of tenure (pid "),
        "{verified:?}"
    );
}

#[test]
fn the_daemon_removes_the_ledger_lock_of_a_killed_tenure_at_once_and_no_live_one() {
    let project = Project::new();
    project.tenure("ledger init").exits(0);
    project
        .call("ledger append")
        .arg(r#"{"type":"note"}"#)
        .end()
        .exits(0);
    let lock = project.path("ledger/ledger.lock");
    let daemon = project.daemon("--interval 1h");
    link_lock(&project);
    until("the daemon removed the lock", || !lock.exists());

    let run = project.call("--store ledger:. run node:1 --ttl 1h");
    let holder = run.sh("exec tail --pid=$PPID -f /dev/null").start();
    until("the node is claimed", || {
        project
            .read("ledger/event-000002.json")
            .contains("lock_acquired")
    });
    link_lock(&project);
    project::process::until_idle(daemon.pid);
    assert!(lock.exists(), "its holder is alive");
    holder.killed();
    until("the daemon removed the lock", || !lock.exists());
}

#[test]
fn the_daemon_removes_the_dead_locks_of_ledgers_in_folders_of_the_project() {
    let project = Project::new();
    let ledgers = ["proof", "other"].map(|name| {
        let root = project.path(name);
        fs::create_dir(&root).unwrap();
        let at = format!("-C {name}");
        project.tenure(&format!("{at} ledger init")).exits(0);
        project
            .call(&format!("{at} ledger append"))
            .arg(r#"{"type":"note"}"#)
            .end()
            .exits(0);
        root.join("ledger")
    });
    let _daemon = project.daemon("--interval 1h");
    for ledger in &ledgers {
        link_lock_of(ledger);
        until("the daemon removed the lock", || {
            !ledger.join("ledger.lock").exists()
        });
    }
}

/// A foreign program's lock is exit 6 in every command, and the commands wait for it together.
#[test]
fn commands_that_meet_another_programs_ledger_lock_end_together_with_exit_6() {
    let project = Project::uninitialised();
    project.tenure("ledger init").exits(0);
    project.tenure("ledger claim 1 --as me --ttl 1h").exits(0);
    let killed = project.call("--store ledger:. run node:2 --as killed --ttl 1h");
    killed.sh("kill -9 $PPID").end();
    until("the holder is dead", || {
        project
            .tenure("ledger reap --dry-run")
            .out
            .contains("killed")
    });
    let lock = project.path("ledger/ledger.lock");
    fs::write(&lock, r#"{"agent_id":"append-operation"}"#).unwrap();
    let commands = [
        r#"ledger append {"type":"note"}"#,
        "ledger claim 3 --as x --no-wait",
        "ledger refresh 1 --as me",
        "ledger release 1 --as me",
        "ledger reap",
        "--store ledger:. run node:4 --no-wait -- true",
        "--store ledger:. acquire node:5 --as x",
        "--store ledger:. renew node:1 --as me",
        "--store ledger:. release node:1 --as me",
        "--store ledger:. force node:1",
        "--store ledger:. locks cleanup",
    ];
    let begin = Stopwatch::start();
    let running: Vec<_> = commands
        .iter()
        .map(|words| (words, project.call(&format!("--json {words}")).start()))
        .collect();
    let mut first = None;
    for (words, running) in running {
        let said = running.ended();
        first.get_or_insert(begin.elapsed());
        assert_eq!(said.code, 6, "{words}: {said:?}");
        assert!(said.out.contains("LEDGER_LOCKED"), "{words}: {said:?}");
        assert!(
            said.out
                .contains("break-lock --older-than 30s --force --dir "),
            "{words}: {said:?}"
        );
    }
    // One after another, the last would take eleven times as long as the first.
    let (first, last) = (first.unwrap(), begin.elapsed());
    assert!(last < first * 4, "{first:?}, {last:?}");
    fs::remove_file(&lock).unwrap();
    let verified = project.tenure("ledger verify").exits(0);
    assert!(
        verified.out.contains("Sound: 2 events"),
        "nothing was changed: {verified:?}"
    );
}
