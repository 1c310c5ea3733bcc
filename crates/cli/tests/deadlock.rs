//! Waits that would never end are refused at once, with the cycle spelled out.

use crate::project;

use project::{Project, until};

#[test]
fn a_command_does_not_wait_for_the_key_it_runs_under() {
    let project = Project::new();
    let said = project
        .call("run a --as me")
        .sh("$TENURE run a -- touch ran")
        .end();
    said.fails(6, &["would never end", "me waits for a which me holds"]);
    assert!(!project.path("ran").exists());
    // However deep, and under whatever name.
    let script = "$TENURE run b -- $TENURE run c -- $TENURE run a --as other -- touch ran";
    project
        .call("run a --as me")
        .sh(script)
        .end()
        .fails(6, &["would never end"]);
    assert!(!project.path("ran").exists());
    assert_eq!(project.tenure("locks list").out, "No locks.\n");
}

#[test]
fn a_command_does_not_wait_detached_for_the_key_it_runs_under() {
    let project = Project::new();
    let script = "$TENURE acquire a --wait 2s";
    project
        .call("run a")
        .sh(script)
        .end()
        .fails(6, &["would never end"]);
    project
        .call("run a")
        .sh("$TENURE acquire a --as other --wait 2s")
        .end()
        .fails(6, &["would never end"]);
}

#[test]
fn a_claim_never_waits_for_a_detached_lease_of_its_own_name() {
    let project = Project::new();
    project.acquire("a --as me");
    let said = project.tenure("run a --as me --json -- true").exits(6);
    assert_eq!(said.error(), "DEADLOCK");
}

#[test]
fn other_keys_can_be_taken_inside() {
    let project = Project::new();
    let script = "$TENURE run b -- sh -c 'echo $TENURE_KEY $TENURE_TOKEN'";
    assert_eq!(project.call("run a").sh(script).end().exits(0).out, "b 2\n");
}

#[test]
fn two_that_would_wait_for_one_another_are_told_so() {
    let project = Project::new();
    project.acquire("y --as B");
    // A holds x and waits for y ...
    let a = project
        .call("run x --as A --ttl 1h")
        .sh("$TENURE run y --as A --wait 10m -- echo both")
        .start();
    project.until_waiting("y", 1);
    // ... so B, who holds y, must not wait for x.
    let said = project.tenure("run x --as B --wait 10m -- touch ran");
    said.fails(
        6,
        &[
            "would never end",
            "B waits for x which A holds",
            "A waits for y which B holds",
        ],
    );
    let said = project.tenure("run x --as B --json -- touch ran").exits(6);
    assert_eq!(said.error(), "DEADLOCK");
    let cycle = said.json()["error"]["details"]["cycle"].clone();
    assert_eq!(cycle.as_array().unwrap().len(), 2, "{cycle}");
    assert_eq!(cycle[0]["waiter"], "B");
    assert_eq!(cycle[0]["key"], "x");
    assert_eq!(cycle[0]["holder"], "A");

    // Refused, B is no worse off: it lets go, and A has both.
    project.tenure("release y --as B").exits(0);
    assert_eq!(a.ended().exits(0).out, "both\n");
    assert!(!project.path("ran").exists());
}

#[test]
fn a_ring_of_three_is_seen() {
    let project = Project::new();
    for (key, name) in [("x", "A"), ("y", "B"), ("z", "C")] {
        project.acquire(&format!("{key} --as {name}"));
    }
    let _a = project.queue("y", "acquire y --as A --wait 10m");
    let _b = project.queue("z", "acquire z --as B --wait 10m");
    let said = project.tenure("acquire x --as C --wait 10m");
    said.fails(
        6,
        &[
            "C waits for x which A holds",
            "A waits for y which B holds",
            "B waits for z which C holds",
        ],
    );
    // Asking without waiting closes no cycle: it is only busy.
    project
        .tenure("acquire x --as C --no-wait")
        .fails(6, &["is locked by A"]);
}

#[test]
fn a_cycle_that_a_grant_closes_ends_one_of_its_waits() {
    let project = Project::new();
    let mut holder = project.hold("run x --as H --ttl 1h");
    project.acquire("y --as B");
    // A waits for both keys, in two processes. B holds y and waits for x, behind A.
    let a_for_x = project.queue("x", "acquire x --as A --wait 10m --ttl 1h");
    let a_for_y = project.queue("y", "acquire y --as A --wait 10m");
    let b_for_x = project.queue("x", "acquire x --as B --wait 10m");
    holder.let_go();
    holder.ended().exits(0);
    a_for_x.ended().exits(0);
    until("one of the two waits has ended", || {
        project.waiting("x").len() + project.waiting("y").len() == 1
    });
    // A is woken for that. If B polls in the same moment, B may find out first.
    let (refused, waits) = match project.waiting("x").len() {
        1 => (a_for_y, b_for_x),
        _ => (b_for_x, a_for_y),
    };
    refused.ended().fails(
        6,
        &[
            "would never end",
            "A waits for y which B holds",
            "B waits for x which A holds",
        ],
    );
    project.tenure("release x --as A").exits(0);
    project.tenure("release y --as B").exits(0);
    waits.ended().exits(0);
}

#[test]
fn a_nested_command_under_another_name_closes_a_cycle_too() {
    // The outer command holds x for A; inside, A's helper asks for y. The holder of y must not wait
    // for x: A's command ends only when its helper has.
    let project = Project::new();
    project.acquire("y --as B");
    let a = project
        .call("run x --as A --ttl 1h")
        .sh("$TENURE run y --as helper --wait 3s -- true")
        .start();
    project.until_waiting("y", 1);
    project
        .tenure("run x --as B --wait 2s -- true")
        .fails(6, &["would never end"]);
    a.ended().exits(6);
}

#[test]
fn a_token_of_another_store_is_not_taken_for_the_own_one() {
    let (outer, inner) = (Project::new(), Project::new());
    // Both are the first grant of their store: the same number, and nothing else in common.
    assert_eq!(inner.acquire("b --as stranger --ttl 500ms"), 1);
    let script = format!(
        "$TENURE -C {} run b --as me --wait 10m -- echo mine",
        inner.root().display()
    );
    let said = outer.call("run a").sh(&script).end().exits(0);
    assert_eq!(said.out, "mine\n");
}

#[test]
fn two_commands_of_one_run_are_not_taken_for_one() {
    // One of them holds x and waits for nothing, the other waits for y: the holder of y may well
    // wait for x.
    let project = Project::new();
    project.acquire("y --as B");
    let script = "$TENURE run x --ttl 1h -- sh -c 'until [ -e go ]; do sleep 0.02; done' &
        $TENURE run y --wait 10m -- true & wait";
    let outer = project.call("run outer --ttl 1h").sh(script).start();
    project.until_waiting("y", 1);
    until("x is held", || project.verdict("x") == "alive");
    let b = project.start("run x --as B --wait 10m -- echo mine");
    until("B waits or was refused", || !b.err().is_empty());
    project.write("go", "");
    assert_eq!(b.ended().exits(0).out, "mine\n");
    project.tenure("release y --as B").exits(0);
    outer.ended().exits(0);
}
