//! `tenure ledger`: an append-only log of events, and claims on its nodes.

use crate::project;

use std::io::Write;
use std::process::Command;

use project::{Project, until};
use serde_json::{Value, json};

fn events(project: &Project) -> Vec<Value> {
    (1..)
        .map(|seq| project.path(&format!("ledger/event-{seq:06}.json")))
        .map_while(|path| std::fs::read(path).ok())
        .map(|bytes| serde_json::from_slice(&bytes).unwrap())
        .collect()
}

fn append(project: &Project, event: &str) -> project::Said {
    project.call("ledger append").arg(event).end()
}

#[test]
fn the_documented_script_appends_beside_tenure_and_no_event_is_lost() {
    const SCRIPTS: usize = 4;
    const EACH: usize = 15;
    let project = Project::with_ledger();
    let script = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/fixtures/append-event.sh"
    );
    let dir = project.path(".");
    let scripts: Vec<_> = (0..SCRIPTS)
        .map(|_| {
            let again = format!("for i in $(seq {EACH}); do bash {script} \"$1\" || exit 1; done");
            let mut command = Command::new("bash");
            command.args(["-c", &again, "loop"]).arg(&dir);
            command.spawn().unwrap()
        })
        .collect();
    let mut ours = 0;
    for n in 0..EACH * 3 {
        append(&project, &json!({ "type": "ours", "n": n }).to_string()).exits(0);
        ours += 1;
    }
    for mut script in scripts {
        assert!(script.wait().unwrap().success());
    }
    let events = events(&project);
    let of = |kind: &str| events.iter().filter(|event| event["type"] == kind).count();
    assert_eq!((of("ours"), of("custom_event")), (ours, SCRIPTS * EACH));
    assert_eq!(events.len(), ours + SCRIPTS * EACH, "no gap");
    // The script writes whole seconds, so times may seem to go back. There is no other finding.
    let said = project.tenure("ledger verify --json").exits(0).json();
    assert_eq!(said["data"]["sound"], true);
    for found in said["data"]["findings"].as_array().unwrap() {
        assert_eq!(found["code"], "time_went_back", "{found}");
    }
}

#[test]
fn events_are_arguments_or_standard_input_and_get_numbers() {
    let project = Project::with_ledger();
    let said = append(&project, r#"{"type":"note","text":"a < b"}"#).exits(0);
    assert_eq!(said.out, "1\n");
    let mut call = project.call("ledger append -").input().start();
    let mut input = call.stdin.take().unwrap();
    input
        .write_all(b"{\"type\":\"x\"}\n{ \"type\": \"y\" } {\"type\":\"z\"}\n")
        .unwrap();
    drop(input);
    assert_eq!(call.ended().exits(0).out, "2\n3\n4\n");
    let said = project
        .call("ledger append --json")
        .args([r#"{"type":"p"}"#, r#"{"type":"q"}"#])
        .end();
    let said = said.exits(0).json();
    assert_eq!(said["data"], json!({ "first": 5, "last": 6, "count": 2 }));
    let raw = project.read("ledger/event-000001.json");
    assert!(
        raw.starts_with(r#"{"type":"note","text":"a \u003c b","timestamp":""#),
        "{raw}"
    );
    let kinds: Vec<Value> = events(&project)
        .into_iter()
        .map(|event| event["type"].clone())
        .collect();
    assert_eq!(kinds, ["note", "x", "y", "z", "p", "q"]);
}

#[test]
fn a_text_that_is_no_event_is_refused_and_nothing_is_written() {
    let project = Project::with_ledger();
    for (event, word) in [
        ("", "not valid JSON"),
        ("[]", "not a JSON object"),
        ("{}", "no type"),
        (r#"{"type":"a","timestamp":"now"}"#, "RFC 3339"),
    ] {
        append(&project, event).fails(2, &[word]);
    }
    let mut call = project.call("ledger append -").input().start();
    let mut input = call.stdin.take().unwrap();
    let large = format!(r#"{{"type":"a","x":"{}"}}"#, "x".repeat(1 << 20));
    input.write_all(large.as_bytes()).unwrap();
    drop(input);
    call.ended().fails(2, &["1 MiB"]);
    let half = project
        .call("ledger append")
        .args([r#"{"type":"good"}"#, "bad"])
        .end();
    half.fails(2, &["2nd argument"]);
    assert!(events(&project).is_empty());
}

#[test]
fn an_unexpected_number_is_exit_8_and_the_message_names_both() {
    let project = Project::with_ledger();
    let expect = |n: u64, project: &Project| {
        let call = project.call(&format!("ledger append --expect {n}"));
        call.arg(r#"{"type":"a"}"#).end()
    };
    assert_eq!(expect(0, &project).exits(0).out, "1\n");
    expect(0, &project).fails(8, &["newest event is 1, not 0", "nothing was written"]);
    assert_eq!(expect(1, &project).exits(0).out, "2\n");
    let call = project.call("ledger append --json --expect 7");
    let said = call.arg(r#"{"type":"a"}"#).end().exits(8);
    assert_eq!(said.error(), "SEQUENCE_MISMATCH");
    let details = &said.json()["error"]["details"];
    assert_eq!(details, &json!({ "expected": 7, "found": 2 }));
}

#[test]
fn the_log_is_filtered_and_followed() {
    let project = Project::with_ledger();
    append(&project, r#"{"type":"note","text":"one"}"#).exits(0);
    project.tenure("ledger claim 1.2 --as a --no-wait").exits(0);
    project
        .tenure("ledger claim 1.10 --as b --no-wait")
        .exits(0);
    let lines = |args: &str| {
        let out = project
            .tenure(&format!("ledger log --json {args}"))
            .exits(0)
            .out;
        let seq = |line: &str| {
            serde_json::from_str::<Value>(line).unwrap()["seq"]
                .as_u64()
                .unwrap()
        };
        out.lines().map(seq).collect::<Vec<u64>>()
    };
    assert_eq!(lines(""), [1, 2, 3]);
    assert_eq!(lines("--type note"), [1]);
    assert_eq!(lines("--node 1.10"), [3]);
    assert_eq!(lines("--owner a"), [2]);
    assert_eq!(lines("--from 2 --limit 1"), [3]);
    assert_eq!(lines("--since 1h"), [1, 2, 3]);
    let text = project.tenure("ledger log --limit 1").exits(0).out;
    assert!(
        text.contains("lock_acquired") && text.contains("1.10"),
        "{text}"
    );
    project.tenure("ledger log --node x").fails(2, &["1.2.3"]);

    let follow = project.call("ledger log -f --type note --json").start();
    until("the old event to be printed", || {
        follow.out().lines().count() == 1
    });
    append(&project, r#"{"type":"other"}"#).exits(0);
    append(&project, r#"{"type":"note","text":"two"}"#).exits(0);
    until("the new event to be printed", || {
        follow.out().lines().count() == 2
    });
    let out = follow.out();
    assert!(out.lines().last().unwrap().contains("two"), "{out}");
    drop(follow);
}

#[test]
fn a_node_is_claimed_refreshed_and_released() {
    let project = Project::with_ledger();
    let said = project
        .tenure("ledger claim 1.2.3 --as agent-a --json")
        .exits(0)
        .json();
    assert_eq!(said["data"]["token"], 1);
    assert_eq!(said["data"]["holder"], "agent-a");
    let until = said["data"]["expiresAt"].as_str().unwrap().to_owned();
    project
        .tenure("ledger claim 1.2.3 --as agent-b --no-wait")
        .fails(6, &["node already locked", "agent-a", &until]);
    let busy = project
        .tenure("ledger claim 1.2.3 --as agent-b --no-wait --json")
        .exits(6);
    assert_eq!(busy.error(), "NODE_LOCKED");
    assert_eq!(
        busy.json()["error"]["details"]["leases"][0]["holder"],
        "agent-a"
    );
    project
        .tenure("ledger refresh 1.2.3 --as agent-b")
        .fails(5, &["agent-a"]);
    project
        .tenure("ledger release 1.2.3 --as agent-b")
        .fails(5, &["agent-a", "--store ledger:"]);
    project
        .tenure("ledger refresh 1.2.3 --as agent-a --ttl 10m")
        .exits(0);
    assert_eq!(
        project
            .tenure("ledger claim 1.2.3 --as agent-a")
            .exits(0)
            .out,
        "1\n"
    );
    project.tenure("ledger release 1.2.3 --as agent-a").exits(0);
    project.tenure("ledger release 1.2.3 --as agent-a").exits(4);
    project.tenure("ledger release 1.2.3 --token 1").exits(7);
    let kinds: Vec<Value> = events(&project)
        .into_iter()
        .map(|event| event["type"].clone())
        .collect();
    assert_eq!(
        kinds,
        [
            "lock_acquired",
            "lock_acquired",
            "lock_acquired",
            "lock_released"
        ]
    );
}

#[test]
fn claims_are_listed_by_number_and_reaped_once_expired() {
    let project = Project::with_ledger();
    for node in ["1.10", "1.9", "2", "1"] {
        project
            .tenure(&format!("ledger claim {node} --as a"))
            .exits(0);
    }
    project
        .tenure("ledger claim 3 --as brief --ttl 1s")
        .exits(0);
    let said = project.tenure("ledger claims --json").exits(0).json();
    let claims = said["data"]["claims"].as_array().unwrap();
    let nodes: Vec<&str> = claims
        .iter()
        .map(|claim| claim["node"].as_str().unwrap())
        .collect();
    assert_eq!(nodes, ["1", "1.9", "1.10", "2", "3"]);
    until("it to expire", || {
        let dry = project
            .tenure("ledger reap --dry-run --json")
            .exits(0)
            .json();
        dry["data"]["ended"].as_array().unwrap().len() == 1
    });
    let said = project.tenure("ledger claims").exits(0).out;
    assert!(
        said.contains("1 more expired") && !said.contains("brief"),
        "{said}"
    );
    let reaped = project.tenure("ledger reap").exits(0).out;
    assert!(
        reaped.starts_with("Ended the claim of brief on node 3: "),
        "{reaped}"
    );
    let again = project.tenure("ledger reap").exits(0).out;
    assert!(again.starts_with("No claim has expired"), "{again}");
    assert_eq!(events(&project).last().unwrap()["type"], "lock_reaped");
}

#[test]
fn the_timeout_comes_from_meta_json_and_has_limits_in_every_command() {
    let project = Project::with_ledger();
    let lasts = |project: &Project, node: &str| {
        project
            .tenure(&format!("ledger claim {node} --as a"))
            .exits(0);
        let last = events(project).pop().unwrap();
        let time = |name: &str| {
            last[name]
                .as_str()
                .unwrap()
                .parse::<jiff::Timestamp>()
                .unwrap()
        };
        time("expires_at")
            .duration_since(time("timestamp"))
            .as_secs()
    };
    assert_eq!(lasts(&project, "1"), 300);
    project.write("meta.json", r#"{"lock_timeout":"90s"}"#);
    assert_eq!(lasts(&project, "2"), 90);
    project.write("meta.json", r#"{"lock_timeout":120000000000}"#);
    assert_eq!(lasts(&project, "3"), 120);
    project.write("meta.json", r#"{"lock_timeout":"2h"}"#);
    project
        .tenure("ledger claim 4 --as a")
        .fails(1, &["meta.json", "2h", "1s to 1h"]);
    project.write("meta.json", "{}");
    project
        .tenure("ledger claim 4 --as a --ttl 2h")
        .fails(2, &["1h"]);
    project
        .tenure("ledger claim 4 --as a --ttl 10ms")
        .fails(2, &["10ms"]);
    project
        .tenure("ledger claim 4 --as a --ttl 500ms")
        .fails(2, &["from 1s to 1h"]);
    project
        .tenure("ledger refresh 3 --as a --ttl 2h")
        .fails(2, &["from 1s to 1h"]);
    project
        .tenure("--store ledger:. run node:4 --as a --ttl 24h -- touch ran")
        .fails(2, &["from 1s to 1h"]);
    assert!(!project.path("ran").exists());
    project
        .tenure("--store ledger:. acquire node:4 --as a --ttl 24h")
        .fails(2, &["from 1s to 1h"]);
    project
        .tenure("--store ledger:. renew node:3 --as a --ttl 24h")
        .fails(2, &["from 1s to 1h"]);
    project
        .tenure("ledger claim 1.0 --as a")
        .fails(2, &["1.2.3"]);
}

#[test]
fn a_lock_that_is_not_proven_dead_is_reported_with_the_way_out() {
    let project = Project::with_ledger();
    std::fs::create_dir(project.path("ledger/ledger.lock")).unwrap();
    append(&project, r#"{"type":"a"}"#).fails(
        6,
        &[
            "timeout waiting for lock",
            "ledger.lock",
            "break-lock",
            "nothing was written",
        ],
    );
    project.tenure("ledger log").exits(0);
    project.tenure("ledger break-lock").fails(5, &["--force"]);
    project
        .tenure("ledger break-lock --force --older-than 1h")
        .fails(5, &["less than 1h"]);
    project
        .tenure("ledger break-lock --force --older-than 1s")
        .exits(0);
    let history = project.read("ledger/.ledger-tenure/history");
    assert!(history.contains("broke the ledger lock"), "{history}");
    assert_eq!(append(&project, r#"{"type":"a"}"#).exits(0).out, "1\n");
}

#[test]
fn every_other_command_works_on_the_claims_of_a_ledger() {
    let project = Project::with_ledger();
    let run = project
        .call("--store ledger:. run node:1.2 --as runner")
        .sh("test \"$TENURE_KEY\" = node:1.2 && cat ledger/event-000001.json");
    let said = run.end().exits(0);
    assert!(said.out.contains(r#""owner":"runner""#), "{said:?}");
    assert_eq!(events(&project).len(), 2, "claimed and released");
    let token = project
        .tenure("--store ledger:. acquire node:1.2 --as a")
        .exits(0)
        .out;
    let fence = format!("--store ledger:. fence node:1.2 --token {}", token.trim());
    project.tenure(&fence).exits(0);
    project
        .tenure("--store ledger:. force node:1.2 --as admin")
        .exits(0);
    project.tenure(&fence).exits(7);
    let history = project
        .tenure("--store ledger:. locks history")
        .exits(0)
        .out;
    assert!(history.contains("forced by admin"), "{history}");
    project
        .tenure("--store ledger:. acquire build")
        .fails(2, &["node:1.2.3"]);
    project
        .tenure("--store ledger:nowhere locks list")
        .fails(4, &["no ledger"]);
    project
        .tenure("--store ledger: locks list")
        .fails(2, &["ledger:proof"]);
}

#[test]
fn the_claim_of_a_killed_run_is_taken_over_at_once_with_evidence() {
    let project = Project::with_ledger();
    let mut held = project
        .call("--store ledger:. run node:1 --as first")
        .sh("echo $$; read wait")
        .input()
        .start();
    until("it to run", || held.out().lines().count() == 1);
    let waits = project
        .call("--store ledger:. run node:1 --as second -- true")
        .start();
    until("a ticket to be taken", || {
        project.path("ledger/.ledger-tenure/keys/1.a").exists()
    });
    held.signal(rustix::process::Signal::KILL);
    waits.ended().exits(0);
    assert!(!held.runs());
    let kinds: Vec<Value> = events(&project)
        .into_iter()
        .map(|event| event["type"].clone())
        .collect();
    assert_eq!(
        kinds,
        [
            "lock_acquired",
            "lock_reaped",
            "lock_acquired",
            "lock_released"
        ]
    );
    let proof = &events(&project)[1]["tenure"];
    assert_eq!(proof["grant"], 1);
    assert_eq!(proof["evidence"]["proof"], "life_lock_free", "{proof}");
    project.tenure("ledger verify").exits(0);
}

#[test]
fn what_init_suggests_works_in_both_dialects() {
    for dialect in ["documented", "af"] {
        let project = Project::uninitialised();
        let init = format!("ledger init --dialect {dialect}");
        let said = project.call(&init).arg("a proof").end().exits(0).out;
        let line = said
            .lines()
            .find_map(|line| line.strip_prefix("Try: tenure "));
        let line = line.unwrap_or_else(|| panic!("{said}"));
        let tried = project.shell(&format!("$TENURE {line}")).end().exits(0);
        assert_eq!(tried.out, "1\n", "{dialect}");
        let verify = project.call("ledger verify --dir").arg("a proof");
        verify.end().exits(0);
        let again = project.call(&init).arg("a proof").end().exits(0).out;
        assert!(
            again.contains(&format!("(dialect {dialect}, 1 event)")),
            "{again}"
        );
    }
}

#[test]
fn what_is_said_of_a_bad_lock_timeout_works_in_both_dialects() {
    for (dialect, accepted, first) in [
        ("documented", "\"1s\"", "write a duration"),
        ("af", "1000000000", "write nanoseconds from 1000000000"),
    ] {
        let project = Project::uninitialised();
        project
            .tenure(&format!("ledger init --dialect {dialect}"))
            .exits(0);
        let events = [
            r#"{"type":"proof_initialized","conjecture":"P","author":"me"}"#,
            r#"{"type":"node_created","node":{"id":"1","type":"claim","statement":"P","workflow_state":"available"}}"#,
        ];
        for event in events {
            project.call("ledger append").arg(event).end().exits(0);
        }
        for bad in ["\"5 min\"", "\"2h\"", "-5", "{}", "500000000"] {
            project.write("meta.json", &format!("{{\"lock_timeout\":{bad}}}"));
            let said = project.tenure("ledger claim 1 --as a").exits(1);
            assert!(said.err.contains(first), "{bad}: {said:?}");
            project.write("meta.json", &format!("{{\"lock_timeout\":{accepted}}}"));
            project.tenure("ledger claim 1 --as a").exits(0);
            project.tenure("ledger release 1 --as a").exits(0);
        }
    }
}

#[test]
fn an_af_ledger_is_created_and_found_again() {
    let project = Project::uninitialised();
    project.tenure("ledger init proof --dialect af").exits(0);
    project
        .tenure("ledger init proof")
        .fails(1, &["dialect af"]);
    project.tenure("ledger init proof --dialect af").exits(0);
    let bad = project
        .call("ledger append --dir proof")
        .arg(r#"{"type":"note"}"#)
        .end();
    bad.fails(2, &["note", "can't read"]);
    // The af tool can't read a claim on a node that does not exist.
    project
        .tenure("ledger claim 1 --as a --dir proof")
        .fails(4, &["no node 1", "node_created"]);
    let node = r#"{"type":"node_created","node":{"id":"1","type":"claim","statement":"x","workflow_state":"available"}}"#;
    let created = project.call("ledger append --dir proof").arg(node).end();
    created.exits(0);
    project.tenure("ledger claim 1 --as a --dir proof").exits(0);
    assert!(
        project
            .read("proof/ledger/000002.json")
            .contains("nodes_claimed")
    );
    let call = project.call("ledger claims --json");
    let said = call
        .within(project.path("proof/ledger"))
        .end()
        .exits(0)
        .json();
    assert_eq!(said["data"]["claims"][0]["holder"], "a");
}

#[test]
fn damage_is_reported_event_by_event() {
    let project = Project::with_ledger();
    append(&project, r#"{"type":"a"}"#).exits(0);
    project.write("ledger/event-000003.json", "{");
    let said = project.tenure("ledger verify").exits(1);
    for word in [
        "not sound",
        "event 2: it is missing",
        "event 3: it is not valid JSON",
    ] {
        assert!(said.err.contains(word), "{said:?}");
    }
    let said = project.tenure("ledger verify --json").exits(1);
    assert_eq!(said.error(), "LEDGER_NOT_SOUND");
    project
        .tenure("ledger claim 1 --as a")
        .fails(1, &["event 2", "verify"]);
    project.tenure("ledger log").exits(0);
}

#[test]
fn a_flag_after_the_event_is_a_flag() {
    let project = Project::uninitialised();
    project.tenure("ledger init .").exits(0);
    let append = |rest: &[&str]| {
        let call = project.call("ledger append").arg(r#"{"type":"note"}"#);
        rest.iter().fold(call, |call, arg| call.arg(arg)).end()
    };
    append(&["--expect", "0"]).exits(0);
    append(&["--expect", "0"]).fails(8, &["0", "1"]);
    append(&["--json"]).exits(0).json();
}
