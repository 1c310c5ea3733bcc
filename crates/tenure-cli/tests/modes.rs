//! Keys with several holders: `--shared`, `--slots`, and a change between them.

mod project;

use project::{Project, Running, until};

#[track_caller]
fn ends_well(running: Running) {
    let said = running.ended();
    assert_eq!(said.code, 0, "{}", said.err);
}

#[test]
fn shared_commands_run_together_and_one_that_wants_the_key_alone_waits_for_all() {
    let project = Project::new();
    let mut one = project.hold("run db --shared --as one");
    let mut two = project.hold("run db -s --as two");
    let list = project.tenure("locks list").exits(0).out;
    assert_eq!(list.matches("shared").count(), 2, "{list}");
    let busy = project.tenure("run db --no-wait -- true").exits(6);
    assert!(
        busy.err.contains("one") && busy.err.contains("two"),
        "{}",
        busy.err
    );
    assert!(busy.err.contains("(shared)"), "{}", busy.err);

    let alone = project.queue("db", "run db --as x -- true");
    // A later shared one waits behind it.
    project.tenure("run db --shared --no-wait -- true").exits(6);
    let late = project.queue("db", "run db --shared --as late -- true");
    one.let_go();
    until("one has left", || {
        !project.tenure("locks show db").out.contains("one (pid")
    });
    assert_eq!(project.waiting("db"), ["x", "late"]);
    two.let_go();
    ends_well(alone);
    ends_well(late);
    let modes: Vec<String> = project
        .history("db")
        .iter()
        .filter(|(kind, _, _)| kind == "granted")
        .map(|(_, _, event)| event["mode"].as_str().unwrap_or("exclusive").to_owned())
        .collect();
    assert_eq!(modes, ["shared", "shared", "exclusive", "shared"]);
}

#[test]
fn a_slot_is_given_to_one_command_at_a_time() {
    let project = Project::new();
    // The witness: a folder for each slot, which only one process can make.
    let script = "mkdir slot-$TENURE_SLOT || echo twice >> wrong; sleep 0.05; \
                  echo $TENURE_SLOT >> slots; rmdir slot-$TENURE_SLOT";
    let running: Vec<Running> = (0..8)
        .map(|_| project.call("run gpu --slots 3").sh(script).start())
        .collect();
    running.into_iter().for_each(ends_well);
    assert_eq!(project.read("wrong"), "");
    let mut slots: Vec<String> = project.read("slots").lines().map(str::to_owned).collect();
    slots.sort_unstable();
    slots.dedup();
    assert!(
        slots
            .iter()
            .all(|slot| ["0", "1", "2"].contains(&slot.as_str())),
        "{slots:?}"
    );
    assert_eq!(project.read("slots").lines().count(), 8);
}

#[test]
fn a_killed_commands_slot_is_given_to_a_waiter() {
    let project = Project::new();
    let killed = project.hold("run gpu --slots 2 --as killed");
    let _kept = project.hold("run gpu --slots 2 --as kept");
    let show = project.tenure("locks show gpu").exits(0).out;
    assert!(
        show.contains("slot 0 of 2") && show.contains("slot 1 of 2"),
        "{show}"
    );
    let waiter = project
        .call("run gpu --slots 2")
        .sh("echo $TENURE_SLOT")
        .start();
    project.until_waiting("gpu", 1);
    killed.killed();
    let said = waiter.ended();
    assert_eq!((said.code, said.out.as_str()), (0, "0\n"), "{}", said.err);
    // A command of its own inside has another key, and no slot.
    let script = "$TENURE run other -- sh -c 'echo \"<$TENURE_SLOT>\"'";
    let nested = project.call("run gpu --slots 2").sh(script).end();
    assert_eq!(nested.out, "<>\n", "{}", nested.err);
}

#[test]
fn what_contradicts_is_refused_and_names_both() {
    let project = Project::new();
    let _held = project.hold("run gpu --slots 4");
    for (words, named) in [
        ("run gpu --slots 2 -- true", "slots:2"),
        ("run gpu --shared -- true", "shared"),
    ] {
        let said = project.tenure(words).exits(2);
        assert!(
            said.err.contains("slots:4") && said.err.contains(named),
            "{}",
            said.err
        );
        let json = project
            .tenure(&words.replace("run gpu", "run gpu --json"))
            .exits(2);
        assert_eq!(json.json()["error"]["code"], "OTHER_MODE", "{}", json.out);
    }
    for words in ["0", "-1", "many", "4294967296"] {
        let said = project
            .tenure(&format!("run x --slots {words} -- true"))
            .exits(2);
        assert!(said.err.contains("1 or more"), "{}", said.err);
    }
    project.tenure("run x --slots 2 --shared -- true").exits(2);
    project.tenure("run x -x -s -- true").exits(2);
    assert!(!project.path(".beads").exists());
    std::fs::create_dir(project.path(".beads")).unwrap();
    for words in [
        "run --store exclusive:.beads database --shared -- true",
        "run task:7 --slots 2 -- true",
    ] {
        let said = project.tenure(words).exits(2);
        assert!(said.err.contains("only one holder"), "{}", said.err);
    }
}

#[test]
fn a_holder_asks_again_to_have_the_key_alone_or_to_admit_others() {
    let project = Project::new();
    let shared = project.acquire("db --shared --as a");
    assert_eq!(
        project.acquire("db --shared --as a"),
        shared,
        "the same lease"
    );
    project.acquire("db --shared --as b");
    project.tenure("acquire db --as a --no-wait").exits(6);
    // Both want it alone: each would wait for the other.
    let first = project.queue("db", "acquire db --as a");
    let second = project.tenure("acquire db --as b").exits(6);
    assert!(
        second.err.contains("b waits for db which a holds"),
        "{}",
        second.err
    );
    project.tenure("release db --as b").exits(0);
    let said = first.ended();
    let alone: u64 = said.out.trim().parse().unwrap();
    assert!(shared < alone);
    project
        .tenure(&format!("fence db --token {shared}"))
        .exits(7);
    project.tenure("run db --shared --no-wait -- true").exits(6);
    assert_eq!(project.acquire("db --shared --as a"), alone);
    project.tenure("run db --shared --no-wait -- true").exits(0);
    let text = project.tenure("release db --as a").exits(0).out;
    assert_eq!(text, "a no longer holds db\n");
}

#[test]
fn a_command_inside_a_shared_one_does_not_wait_for_a_waiter_that_waits_for_it() {
    let project = Project::new();
    let outer = project
        .call("run db --shared --as outer")
        .sh("until [ -e go ]; do sleep 0.01; done; exec $TENURE run db --shared --wait 20s -- echo inside")
        .start();
    until("it runs", || project.verdict("db") == "alive");
    let alone = project.queue("db", "run db --as alone -- true");
    project.write("go", "");
    let said = outer.ended();
    assert_eq!(
        (said.code, said.out.as_str()),
        (0, "inside\n"),
        "{}",
        said.err
    );
    ends_well(alone);
}

#[test]
fn force_ends_the_lease_of_one_holder_or_of_all() {
    let project = Project::new();
    for name in ["a", "b", "c"] {
        project.acquire(&format!("db --shared --as {name}"));
    }
    let said = project
        .tenure("locks release db --holder nobody --force")
        .exits(4);
    assert!(said.err.contains("nothing was released"), "{}", said.err);
    project.tenure("locks release db --holder b").exits(5);
    let said = project
        .tenure("locks release db --holder b --force")
        .exits(0);
    assert!(said.out.contains("from b "), "{}", said.out);
    let said = project.tenure("locks release db --force").exits(0);
    assert!(
        said.out.contains("from a ") && said.out.contains("and c "),
        "{}",
        said.out
    );
    project.tenure("locks release db --force").exits(4);
}
