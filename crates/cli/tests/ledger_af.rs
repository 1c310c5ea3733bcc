//! `tenure ledger` in a folder of the `af` tool: it appends only what the tool can read, and reads what the
//! tool reads.

use crate::project;

use std::io::Write;
use std::os::unix::fs::symlink;

use project::{Project, Said};
use serde_json::Value;

const LARGEST: usize = 1 << 20;

/// An `af` ledger with the nodes 1 and 1.1.
fn proof() -> Project {
    let project = Project::uninitialised();
    project.tenure("ledger init --dialect af").exits(0);
    for (seq, node) in [(1, "1"), (2, "1.1")] {
        raw(&project, seq, &created(node));
    }
    project
}

fn created(node: &str) -> String {
    format!(
        r#"{{"type":"node_created","timestamp":"2026-01-01T00:00:00Z","node":{{"id":"{node}","type":"claim","statement":"x","workflow_state":"available","epistemic_state":"pending"}}}}"#
    )
}

/// Writes an event as the tool does.
fn raw(project: &Project, seq: u64, event: &str) {
    project.write(&format!("ledger/{seq:06}.json"), event);
}

fn append(project: &Project, event: &str) -> Said {
    project.call("ledger append").arg(event).end()
}

fn read(project: &Project, seq: u64) -> String {
    project.read(&format!("ledger/{seq:06}.json"))
}

/// The severity and code of every finding about an event.
fn findings(project: &Project) -> Vec<(String, String, u64)> {
    let said = project.tenure("ledger verify --json").json();
    let details = match &said["data"] {
        Value::Null => &said["error"]["details"],
        data => data,
    };
    let found = details["findings"].as_array().unwrap();
    let text = |found: &Value, name: &str| found[name].as_str().unwrap().to_owned();
    let all = found.iter().map(|found| {
        let event = found["event"].as_u64().unwrap_or_default();
        (text(found, "severity"), text(found, "code"), event)
    });
    all.collect()
}

#[test]
fn the_size_limit_counts_the_timestamp_that_is_filled_in() {
    for (dialect, name) in [("documented", "event-000001.json"), ("af", "000001.json")] {
        let project = Project::uninitialised();
        project
            .tenure(&format!("ledger init --dialect {dialect}"))
            .exits(0);
        let frame = r#"{"type":"def_added","x":"","timestamp":"2026-11-15T18:49:40.123456789Z"}"#;
        let event = |size: usize| {
            let fill = "x".repeat(size - frame.len());
            format!(r#"{{"type":"def_added","x":"{fill}"}}"#)
        };
        let append = |size: usize| {
            let mut call = project.call("ledger append -").input().start();
            let mut input = call.stdin.take().unwrap();
            input.write_all(event(size).as_bytes()).unwrap();
            drop(input);
            call.ended()
        };
        append(LARGEST + 1).fails(2, &["1 MiB", "timestamp"]);
        append(LARGEST).exits(0);
        let written = project.read(&format!("ledger/{name}")).len();
        // A timestamp has fewer digits if they are zeros.
        assert!((LARGEST - 10..=LARGEST).contains(&written), "{written}");
        project.tenure("ledger verify").exits(0);
    }
}

#[test]
fn an_event_is_appended_in_the_order_of_the_tool() {
    let project = proof();
    let sorted = r#"{"node":{"type":"claim","statement":"a","id":"1.2","workflow_state":"available"},"timestamp":"2026-01-01T00:00:00Z","\u0074ype":"node_created","Extra":1e999}"#;
    append(&project, sorted).exits(0);
    assert_eq!(
        read(&project, 3),
        r#"{"type":"node_created","timestamp":"2026-01-01T00:00:00Z","node":{"id":"1.2","type":"claim","statement":"a","workflow_state":"available"},"Extra":1e999}"#
    );
    append(
        &project,
        r#"{"owner":"a","type":"nodes_claimed","timeout":"2026-01-01T00:05:00Z","node_ids":["1.2"]}"#,
    )
    .exits(0);
    let event = read(&project, 4);
    assert!(
        event.starts_with(r#"{"type":"nodes_claimed","timestamp":""#)
            && event.ends_with(
                r#"Z","node_ids":["1.2"],"owner":"a","timeout":"2026-01-01T00:05:00Z"}"#
            ),
        "{event}"
    );
    assert_eq!(findings(&project), []);
}

#[test]
fn what_the_replay_of_the_tool_would_refuse_is_not_appended() {
    let project = proof();
    let claim =
        r#"{"type":"nodes_claimed","node_ids":["1"],"owner":"a","timeout":"2026-01-01T00:05:00Z"}"#;
    append(&project, claim).exits(0);
    for (event, words) in [
        // Parsed otherwise, or not at all.
        (r#"{"type":"def_added","type":"def_added"}"#, "twice"),
        (r#"{"type":"def_added","Type":"x"}"#, "twice"),
        (
            r#"{"type":"def_added","timestamp":"2026-01-01T23:59:60Z"}"#,
            "RFC 3339",
        ),
        (
            r#"{"type":"nodes_claimed","node_ids":"1.1","owner":"a"}"#,
            "not a list",
        ),
        (
            r#"{"type":"nodes_claimed","node_ids":["1.1"],"timeout":"soon"}"#,
            "timeout",
        ),
        (
            r#"{"type":"nodes_claimed","node_ids":["1.1"],"timeout":"2026-01-01T23:59:60Z"}"#,
            "timeout",
        ),
        // Types that no version applies, and that old ones do not.
        (r#"{"type":"note"}"#, "does not know"),
        (
            r#"{"type":"node_submitted","node_id":"1"}"#,
            "before version 0.1.1",
        ),
        (
            r#"{"type":"lock_reaped","node_id":"1","owner":"a"}"#,
            "before version",
        ),
        // Not in the state of the proof.
        (claim, "node 1 is claimed"),
        (
            r#"{"type":"nodes_claimed","node_ids":["1.7"],"owner":"a"}"#,
            "no node 1.7",
        ),
        (
            r#"{"type":"nodes_released","node_ids":["1.1"]}"#,
            "not claimed",
        ),
        (
            r#"{"type":"claim_refreshed","node_id":"1","owner":"b"}"#,
            "claimed by",
        ),
        (
            r#"{"type":"challenge_resolved","challenge_id":"c"}"#,
            "no challenge",
        ),
        (
            r#"{"type":"refinement_requested","node_id":"1"}"#,
            "can't become",
        ),
    ] {
        append(&project, event).fails(2, &[words]);
        assert!(!project.path("ledger/000004.json").exists(), "{event}");
    }
    // A batch is judged as a whole, each event after those before it.
    let both = |second: &str| {
        let first = r#"{"type":"nodes_claimed","node_ids":["1.1"],"owner":"a","timeout":"2026-01-01T00:05:00Z"}"#;
        project.call("ledger append").args([first, second]).end()
    };
    both(r#"{"type":"nodes_released","node_ids":["1.7"]}"#).fails(2, &["event 2 of 2", "1.7"]);
    assert!(!project.path("ledger/000004.json").exists());
    both(r#"{"type":"nodes_released","node_ids":["1.1"]}"#).exits(0);
    // A wrong --expect is a mismatch, whatever the event is.
    let call = project.call("ledger append --expect 1").arg(claim);
    call.end().fails(8, &["newest event is 5"]);
    assert_eq!(findings(&project), []);
}

#[test]
fn of_many_writers_that_claim_a_node_in_events_of_their_own_one_succeeds() {
    let project = proof();
    let claim = |owner: usize| {
        format!(
            r#"{{"type":"nodes_claimed","node_ids":["1"],"owner":"a{owner}","timeout":"2126-01-01T00:05:00Z"}}"#
        )
    };
    let calls: Vec<_> = (0..8)
        .map(|owner| project.call("ledger append").arg(claim(owner)).start())
        .collect();
    let said: Vec<Said> = calls.into_iter().map(project::Running::ended).collect();
    let done = said.iter().filter(|said| said.code == 0).count();
    assert_eq!(done, 1, "{said:?}");
    assert_eq!(findings(&project), []);
}

#[test]
fn verify_calls_sound_what_the_tool_reads() {
    let project = proof();
    let deep = format!(
        r#"{{"type":"def_added","timestamp":"2026-01-01T00:00:00Z","x":{}{}}}"#,
        "[".repeat(300),
        "]".repeat(300)
    );
    raw(&project, 3, &deep);
    raw(
        &project,
        4,
        r#"{"type":"def_added","timestamp":"2026-01-01T00:00:00Z","x":1e999,"y":"\ud800"}"#,
    );
    let path = project.path("ledger/000005.json");
    let bytes = b"{\"type\":\"def_added\",\"timestamp\":\"2026-01-01T00:00:00Z\",\"x\":\"\xff\"}";
    std::fs::write(path, bytes).unwrap();
    // Twice the same key; the last one counts.
    raw(
        &project,
        6,
        r#"{"type":"nodes_claimed","timestamp":"2026-01-01T00:00:00Z","node_ids":["1.7"],"owner":"a","node_ids":["1"],"timeout":"2126-01-01T00:00:00Z"}"#,
    );
    for (seq, kind) in (7..).zip(["scope_opened", "scope_closed"]) {
        let event = format!(
            r#"{{"type":"{kind}","timestamp":"2026-01-01T00:00:00Z","node_id":"1","statement":"x"}}"#
        );
        raw(&project, seq, &event);
    }
    assert_eq!(findings(&project), []);
    project
        .tenure("ledger claim 1 --as b --no-wait")
        .fails(6, &["locked by a"]);
    project.tenure("ledger claim 1.1 --as b").exits(0);
    let log = project.tenure("ledger log --json").exits(0).out;
    let lines: Vec<&str> = log.lines().collect();
    assert_eq!(lines.len(), 9);
    assert!(lines[2].contains(&"[".repeat(300)), "{}", lines[2]);
    assert!(
        lines[3].contains(r#""x":1e999,"y":"\ufffd""#),
        "{}",
        lines[3]
    );
    assert!(lines[4].contains("\u{fffd}"), "{}", lines[4]);
    assert!(!log.contains("flaw"), "{log}");
    // A claim without times is one that has expired, as the tool reads it.
    raw(
        &project,
        10,
        r#"{"type":"nodes_released","node_ids":["1"]}"#,
    );
    raw(
        &project,
        11,
        r#"{"type":"nodes_claimed","node_ids":["1"],"owner":"c"}"#,
    );
    let warned = |seq| ("warning".to_owned(), "no_time".to_owned(), seq);
    assert_eq!(findings(&project), [warned(10), warned(11)]);
    project.tenure("ledger claim 1 --as b --no-wait").exits(0);
}

#[test]
fn verify_names_the_versions_that_know_a_type() {
    let project = proof();
    let at = r#""timestamp":"2026-01-01T00:00:00Z""#;
    raw(
        &project,
        3,
        &format!(r#"{{"type":"hint_added",{at},"node_id":"1"}}"#),
    );
    let said = project.tenure("ledger verify").exits(0).out;
    assert!(said.contains("before version 0.1.1"), "{said}");
    assert_eq!(
        findings(&project),
        [("warning".into(), "newer_type".into(), 3)]
    );
    // One line for all events of a type.
    let hint = format!(r#"{{"type":"hint_added",{at},"node_id":"1"}}"#);
    raw(&project, 4, &hint);
    raw(&project, 5, &format!(r#"{{"type":"pattern_added",{at}}}"#));
    raw(&project, 6, &hint);
    let said = project.tenure("ledger verify").exits(0).out;
    assert!(said.contains("2 more up to event 6"), "{said}");
    assert_eq!(said.matches("warning").count(), 2, "{said}");
    raw(&project, 7, &format!(r#"{{"type":"made_up",{at}}}"#));
    let said = project.tenure("ledger verify").exits(1).err;
    assert!(said.contains("up to version 0.1.9"), "{said}");
    // It is known who holds what.
    project.tenure("ledger claim 1 --as a").exits(0);
}

#[test]
fn verify_calls_nothing_sound_that_stops_a_claim_or_the_tool() {
    let at = r#""timestamp":"2026-01-01T00:00:00Z""#;
    let claim = |more: &str| format!(r#"{{"type":"nodes_claimed",{at},{more}}}"#);
    // The event, the finding, and whether it also stops a claim.
    let cases = [
        ("{".to_owned(), "unreadable", true),
        (
            claim(r#""node_ids":["1"],"timeout":"soon""#),
            "unreadable",
            true,
        ),
        (claim(r#""node_ids":"1""#), "unreadable", true),
        (claim(r#""node_ids":["1.7"]"#), "refused", false),
        (claim(r#""node_ids":["1","1"]"#), "refused", false),
        (
            format!(r#"{{"type":"nodes_released",{at},"node_ids":["1"]}}"#),
            "refused",
            false,
        ),
        (
            format!(r#"{{"type":"claim_refreshed",{at},"node_id":"1"}}"#),
            "refused",
            false,
        ),
        (
            format!(r#"{{"type":"def_added",{at},"definition":7}}"#),
            "refused",
            false,
        ),
        (
            format!(r#"{{"claim":{{"type":"x"}},{at},"type":"def_added"}}"#),
            "unknown_type",
            false,
        ),
        (
            format!(r#"{{"\u0074ype":"def_added",{at}}}"#),
            "refused",
            false,
        ),
    ];
    for (event, code, stops) in cases {
        let project = proof();
        raw(&project, 3, &event);
        let found = findings(&project);
        let wanted = ("error".to_owned(), code.to_owned(), 3);
        assert!(found.contains(&wanted), "{event}: {found:?}");
        project.tenure("ledger verify").exits(1);
        let said = project.tenure("ledger claim 1.1 --as a --no-wait");
        assert_eq!(said.code, i32::from(stops), "{event}: {said:?}");
        let log = project.tenure("ledger log --json").exits(0).out;
        assert_eq!(log.contains("flaw"), stops, "{event}: {log}");
    }
    // Names that the tool takes for events.
    for (name, code, event) in [
        ("0.json", "misnamed", 0),
        ("000000.json", "misnamed", 0),
        ("3.json", "misnamed", 3),
        ("20261115183000.json", "stray", 20_261_115_183_000),
    ] {
        let project = proof();
        project.write(&format!("ledger/{name}"), "{}");
        let wanted = ("error".to_owned(), code.to_owned(), event);
        assert_eq!(findings(&project), [wanted], "{name}");
    }
    let project = proof();
    symlink("nowhere", project.path("ledger/000003.json")).unwrap();
    let wanted = ("error".to_owned(), "not_a_file".to_owned(), 3);
    assert_eq!(findings(&project), [wanted]);
    project
        .tenure("ledger claim 1 --as a")
        .fails(1, &["000003.json", "link to nothing"]);
}

#[test]
fn documented_claims_that_can_not_be_read_stop_claim_and_verify_alike() {
    let project = Project::uninitialised();
    project.tenure("ledger init").exits(0);
    for (event, words) in [
        (
            r#"{"type":"lock_acquired","timestamp":"2026-01-01T00:00:00Z","node_id":"1","owner":"a"}"#,
            "no expires_at",
        ),
        (
            r#"{"type":"lock_acquired","node_id":"1","owner":"a","expires_at":"2026-01-01T00:00:00Z"}"#,
            "no timestamp",
        ),
        (
            r#"{"type":"lock_acquired","timestamp":"2026-01-01T00:00:00Z","node_id":"1","owner":"a","expires_at":"soon"}"#,
            "soon",
        ),
    ] {
        project.write("ledger/event-000001.json", event);
        project.tenure("ledger verify").fails(1, &[words]);
        project.tenure("ledger claim 2 --as a").fails(1, &[words]);
        let log = project.tenure("ledger log").exits(0).out;
        assert!(log.contains(words), "{log}");
    }
    append(
        &project,
        r#"{"type":"lock_acquired","node_id":"1","owner":"a"}"#,
    )
    .fails(2, &["expires_at"]);
    // The last of two equal keys counts, as for every other reader.
    project.write(
        "ledger/event-000001.json",
        r#"{"type":"lock_acquired","timestamp":"2026-01-01T00:00:00Z","node_id":"1","owner":"x","owner":"a","expires_at":"2126-01-01T00:00:00Z"}"#,
    );
    project.tenure("ledger verify").exits(0);
    project
        .tenure("ledger claim 1 --as b --no-wait")
        .fails(6, &["locked by a"]);
}

#[test]
fn stray_numbers_delay_no_reader_and_stop_no_append() {
    for (dialect, prefix) in [("documented", "event-"), ("af", "")] {
        let project = Project::uninitialised();
        project
            .tenure(&format!("ledger init --dialect {dialect}"))
            .exits(0);
        let strays = [
            "20261115183000",
            "9223372036854775807",
            "18446744073709551615",
        ];
        let write = || {
            for stray in strays {
                project.write(&format!("ledger/{prefix}{stray}.json"), "{}");
            }
        };
        // In an empty ledger, and in one with events.
        for first in [1, 2] {
            write();
            let event = r#"{"type":"def_added"}"#;
            let said = append(&project, event).exits(0);
            assert_eq!(said.out, format!("{first}\n"));
            project
                .tenure("ledger verify")
                .fails(1, &["20261115183000.json"]);
            let log = project.tenure("ledger log --json").exits(0).out;
            assert_eq!(log.lines().count(), first);
            let follow = project.call("ledger log -f --json").start();
            project::until("the events to be printed", || {
                follow.out().lines().count() == first
            });
        }
        let node = created("1");
        append(&project, &node).exits(0);
        project.tenure("ledger claim 1 --as a --no-wait").exits(0);
        // A hint of an earlier version that led to a stray number.
        let hint = project.path("ledger/.ledger-tenure/last");
        std::fs::write(hint, "00000020261115183000\n").unwrap();
        let said = append(&project, r#"{"type":"def_added"}"#).exits(0);
        assert_eq!(said.out, "5\n");
        for stray in strays {
            std::fs::remove_file(project.path(&format!("ledger/{prefix}{stray}.json"))).unwrap();
        }
        project.tenure("ledger verify").exits(0);
    }
}

#[test]
fn a_folder_or_pipe_under_the_name_of_an_event_is_reported() {
    let project = proof();
    std::fs::create_dir(project.path("ledger/000003.json")).unwrap();
    project
        .tenure("ledger verify")
        .fails(1, &["000003.json", "is a folder"]);
    append(&project, r#"{"type":"def_added"}"#).fails(1, &["000003.json", "folder"]);
    assert!(!project.path("ledger/000004.json").exists(), "no gap");
    std::fs::remove_dir(project.path("ledger/000003.json")).unwrap();
    let pipe = project.path("ledger/000003.json");
    let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU);
    rustix::fs::mknodat(rustix::fs::CWD, &pipe, kind, mode, 0).unwrap();
    project
        .tenure("ledger verify")
        .fails(1, &["000003.json", "not a file"]);
    project
        .tenure("ledger claim 1 --as a")
        .fails(1, &["000003.json", "not a file"]);
}

#[test]
fn claims_of_the_lock_library_are_honoured_and_ended_in_its_own_form() {
    let project = proof();
    let locked = |seq: u64, node: &str, owner: &str, until: &str| {
        let event = format!(
            r#"{{"type":"lock_acquired","timestamp":"2026-01-01T00:00:00Z","node_id":"{node}","owner":"{owner}","expires_at":"{until}"}}"#
        );
        raw(&project, seq, &event);
    };
    locked(3, "1", "library", "2126-01-01T00:00:00Z");
    locked(4, "1.1", "library", "2026-01-01T00:05:00Z");
    project
        .tenure("ledger claim 1 --as a --no-wait")
        .fails(6, &["library"]);
    let claims = project.tenure("ledger claims --json").exits(0).json();
    assert_eq!(claims["data"]["claims"][0]["holder"], "library");
    // The library reads only its own form, so an expired claim is taken over in that form.
    project.tenure("ledger claim 1.1 --as a").exits(0);
    let kind = |seq: u64| {
        let event: Value = serde_json::from_str(&read(&project, seq)).unwrap();
        event["type"].as_str().unwrap().to_owned()
    };
    assert_eq!([kind(5), kind(6)], ["lock_reaped", "lock_acquired"]);
    project.tenure("ledger release 1.1 --as a").exits(0);
    assert_eq!(kind(7), "lock_released");
    raw(
        &project,
        8,
        r#"{"type":"lock_released","timestamp":"2026-01-01T00:00:00Z","node_id":"1","owner":"library"}"#,
    );
    project.tenure("ledger claim 1 --as a").exits(0);
    // The tool itself can't read such a ledger, and verify says so.
    project
        .tenure("ledger verify")
        .fails(1, &["event 3", "lock_acquired", "can't read the ledger"]);

    // And the other way round: claims of the tool in a documented ledger.
    let project = Project::uninitialised();
    project.tenure("ledger init").exits(0);
    project.write(
        "ledger/event-000001.json",
        r#"{"type":"nodes_claimed","timestamp":"2026-01-01T00:00:00Z","node_ids":["1","2"],"owner":"tool","timeout":"2126-01-01T00:00:00Z"}"#,
    );
    project
        .tenure("ledger claim 2 --as a --no-wait")
        .fails(6, &["tool"]);
    project.tenure("ledger verify").exits(0);
    project.tenure("ledger release 2 --as tool").exits(0);
    let event = project.read("ledger/event-000002.json");
    assert!(event.contains("nodes_released"), "{event}");
    project.tenure("ledger claim 2 --as a").exits(0);
}

#[test]
fn one_line_tells_of_many_times_that_went_back() {
    let project = Project::uninitialised();
    project.tenure("ledger init").exits(0);
    for (seq, minute) in (1..).zip([5, 1, 2, 3, 6]) {
        let event = format!(r#"{{"type":"note","timestamp":"2026-01-01T00:0{minute}:00Z"}}"#);
        project.write(&format!("ledger/event-{seq:06}.json"), &event);
    }
    let said = project.tenure("ledger verify").exits(0).out;
    assert_eq!(said.matches("warning").count(), 1, "{said}");
    assert!(
        said.contains("event 2") && said.contains("2 more up to event 4"),
        "{said}"
    );
}
