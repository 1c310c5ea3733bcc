//! Odd ledgers: files of other kinds under the ledger's names, long nodes, settings of another program.

use crate::project;

use std::fs;

use project::{Project, until};

fn append(project: &Project) -> project::Said {
    project
        .call("ledger append")
        .arg(r#"{"type":"note"}"#)
        .end()
}

#[test]
fn a_folder_a_pipe_or_a_dangling_link_under_an_events_name_is_named_and_nothing_is_appended() {
    type Make = fn(&std::path::Path);
    let kinds: [(&str, Make); 3] = [
        ("a folder", |path| fs::create_dir(path).unwrap()),
        ("not a file", |path| {
            let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU);
            rustix::fs::mknodat(rustix::fs::CWD, path, kind, mode, 0).unwrap();
        }),
        ("a link to nothing", |path| {
            std::os::unix::fs::symlink("nowhere", path).unwrap();
        }),
    ];
    for (kind, make) in kinds {
        let project = Project::with_ledger();
        append(&project).exits(0);
        make(&project.path("ledger/event-000002.json"));
        let refused = append(&project);
        assert_eq!(refused.code, 1, "{refused:?}");
        let named = format!("event-000002.json has the name of an event and is {kind}");
        assert!(refused.err.contains(&named), "{refused:?}");
        assert!(!project.path("ledger/event-000003.json").exists(), "{kind}");
        let verified = project.tenure("ledger verify").exits(1);
        assert!(verified.err.contains("event 2"), "{kind}: {verified:?}");
        assert_eq!(
            project.tenure("ledger claim 1 --as me --no-wait").code,
            1,
            "{kind}"
        );
    }
}

#[test]
fn a_node_of_399_characters_is_claimed_tied_to_its_process_and_released() {
    let project = Project::with_ledger();
    let node = vec!["1"; 200].join(".");
    assert_eq!(node.len(), 399);
    project
        .tenure(&format!("ledger claim {node} --as me"))
        .exits(0);
    assert!(project.tenure("ledger claims").exits(0).out.contains(&node));
    project
        .tenure(&format!("ledger release {node} --as me"))
        .exits(0);
    let killed = format!("--store ledger:. run node:{node} --as killed --ttl 1h");
    project.call(&killed).sh("kill -9 $PPID").end();
    until("the holder's death is noticed", || {
        project
            .tenure("ledger reap")
            .exits(0)
            .out
            .contains("Ended the claim of killed")
    });
    project.tenure("ledger verify").exits(0);
    let left: Vec<_> = fs::read_dir(project.path("ledger/.ledger-tenure/keys"))
        .unwrap()
        .collect();
    assert!(left.is_empty(), "{left:?}");
}

#[test]
fn malformed_claim_files_are_named() {
    let project = Project::with_ledger();
    fs::create_dir(project.path("locks")).unwrap();
    project.write("locks/7.lock", "torn");
    project.write("locks/whatever.lock", "torn");
    let listed = project.tenure("ledger claims").exits(0);
    assert!(
        listed.out.contains("locks/7.lock can't be read"),
        "{listed:?}"
    );
    assert!(
        listed
            .out
            .contains("node 7 counts as claimed until the file is removed"),
        "{listed:?}"
    );
    assert!(
        listed.out.contains("locks/whatever.lock can't be read"),
        "{listed:?}"
    );
    let json = project.tenure("ledger claims --json").exits(0).json();
    assert_eq!(json["data"]["malformed"][1]["node"], "7", "{json}");
    let verified = project.tenure("ledger verify").exits(0);
    assert_eq!(verified.out.matches("warning: ").count(), 2, "{verified:?}");
}

#[test]
fn many_backward_times_are_one_finding() {
    let project = Project::with_ledger();
    for hour in [20, 12, 13, 14, 15] {
        let event = format!(r#"{{"type":"note","timestamp":"2026-01-01T{hour}:00:00Z"}}"#);
        project.call("ledger append").arg(event).end().exits(0);
    }
    let verified = project.tenure("ledger verify").exits(0);
    assert_eq!(
        verified.out.matches("is before the time of").count(),
        1,
        "{verified:?}"
    );
    assert!(
        verified.out.contains("and 3 more up to event 5"),
        "{verified:?}"
    );
}

/// What the other program's `init` does in an existing folder: it keeps `meta.json`, makes its folders and
/// appends its first two events. Its own settings must be readable: no text as the timeout.
#[test]
fn a_new_ledger_becomes_the_other_programs_and_both_can_read_it() {
    for dialect in ["documented", "af"] {
        let project = Project::uninitialised();
        project
            .tenure(&format!("ledger init --dialect {dialect}"))
            .exits(0);
        for folder in [
            "nodes",
            "defs",
            "assumptions",
            "externals",
            "lemmas",
            "locks",
        ] {
            fs::create_dir(project.path(folder)).unwrap();
        }
        let settings: serde_json::Value = serde_json::from_str(&project.read("meta.json")).unwrap();
        assert_eq!(settings["version"], "1.0");
        assert!(!settings["lock_timeout"].is_string(), "{settings}");
        let events = [
            r#"{"type":"proof_initialized","timestamp":"2026-11-15T18:09:47.618800602Z","conjecture":"c","author":"a"}"#,
            r#"{"type":"node_created","timestamp":"2026-11-15T18:09:47.7Z","node":{"id":"1","type":"claim","statement":"c","inference":"assumption","workflow_state":"available","epistemic_state":"pending","taint_state":"unresolved","created":"2026-11-15T18:09:47Z","content_hash":"x"}}"#,
        ];
        for (event, name) in events.into_iter().zip(["000001.json", "000002.json"]) {
            project.write("ledger/new", event);
            fs::rename(
                project.path("ledger/new"),
                project.path(&format!("ledger/{name}")),
            )
            .unwrap();
        }
        project.tenure("ledger claim 1 --as me").exits(0);
        assert!(
            project.read("ledger/000003.json").contains("nodes_claimed"),
            "{dialect}"
        );
        project.tenure("ledger verify").exits(0);
    }
}

#[test]
fn a_lock_timeout_of_0_is_five_minutes_as_for_the_other_program() {
    let project = Project::with_ledger();
    append(&project).exits(0);
    project.write("meta.json", r#"{"version":"1.0","lock_timeout":0}"#);
    project.tenure("ledger claim 1 --as me").exits(0);
    let listed = project.tenure("ledger claims --json").exits(0).json();
    let left = listed["data"]["claims"][0]["remainingSeconds"].as_u64();
    assert!((60..=300).contains(&left.unwrap()), "{listed}");
}

#[test]
fn hints_name_the_ledger_that_they_are_about() {
    let project = Project::uninitialised();
    project.tenure("ledger init proof").exits(0);
    let claimed = project
        .tenure("ledger claim 1 --as me --dir proof")
        .exits(0);
    assert!(
        claimed
            .err
            .contains("tenure ledger release 1 --as me --dir proof"),
        "{claimed:?}"
    );
    let busy = project
        .tenure("ledger claim 1 --as other --no-wait --dir proof")
        .exits(6);
    assert!(
        busy.err.contains("tenure ledger claims --dir proof"),
        "{busy:?}"
    );
    let mismatch = project
        .call("ledger append --expect 7 --dir proof")
        .arg(r#"{"type":"note"}"#)
        .end();
    assert!(
        mismatch
            .err
            .contains("tenure ledger log --from 2 --dir proof"),
        "{mismatch:?}"
    );
    let shown = project
        .tenure("--store ledger:proof locks show nothing")
        .exits(4);
    assert!(
        shown.err.contains("tenure locks list --store ledger:proof"),
        "{shown:?}"
    );
}
