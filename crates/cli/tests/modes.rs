//! Keys with several holders: `--shared`, `--slots`, and a change between them. Several keys with one holder.

use crate::project;

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
    project.tenure("ledger init").exits(0);
    for words in [
        "run --store exclusive:.beads database --shared -- true",
        "run --store mkdir:lock board --shared -- true",
        "run --store ledger:. node:1 --slots 2 -- true",
        "run task:7 --slots 2 -- true",
    ] {
        let said = project.tenure(words).exits(2);
        assert!(said.err.contains("only one holder"), "{}", said.err);
    }
    for store in ["exclusive:.beads", "mkdir:lock", "ledger:."] {
        project
            .tenure(&format!("reserve a --store {store} --no-wait"))
            .fails(2, &["paths"]);
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
fn a_shell_asks_again_without_a_name_and_waits_for_the_others_only() {
    let project = Project::new();
    project.acquire("db --shared --as other");
    let script = "$TENURE acquire db --shared --quiet && $TENURE acquire db --wait 10m";
    let shell = project.shell(&script.replace("$TENURE", env!("CARGO_BIN_EXE_tenure")));
    let shell = shell.start();
    project.until_waiting("db", 1);
    until("it says for whom", || shell.err().contains("held by"));
    assert!(shell.err().contains("held by other"), "{}", shell.err());
    project.tenure("release db --as other").exits(0);
    let said = shell.ended().exits(0);
    let tokens: Vec<u64> = said.out.lines().map(|it| it.parse().unwrap()).collect();
    assert!(tokens.len() == 2 && tokens[0] < tokens[1], "{tokens:?}");
}

#[test]
fn a_holder_that_is_killed_while_it_waits_to_have_the_key_alone_leaves_its_lease() {
    let project = Project::new();
    project.acquire("db --shared --as a");
    project.acquire("db --shared --as b");
    let upgrade = project.queue("db", "acquire db --as a");
    upgrade.killed();
    // Its lease has no process, so it stands; its place in the queue is no obstacle.
    project.tenure("acquire db --as b --no-wait").exits(6);
    project.tenure("release db --as a").exits(0);
    project.tenure("acquire db --as b --no-wait").exits(0);
    project.tenure("locks verify").exits(0);
}

#[test]
fn the_number_of_slots_belongs_to_a_key_that_is_only_waited_for() {
    let project = Project::new();
    let mut alone = project.hold("run gpu --as alone");
    let waits = project.queue("gpu", "run gpu --slots 2 --as waits -- true");
    project
        .tenure("run gpu --slots 3 -- true")
        .fails(2, &["slots:2", "slots:3"]);
    alone.let_go();
    ends_well(waits);
    project.tenure("run gpu --slots 3 -n -- true").exits(0);
}

#[test]
fn why_names_the_holders_and_how_each_has_the_key() {
    let project = Project::new();
    for name in ["a", "b"] {
        project.acquire(&format!("gpu --slots 2 --as {name}"));
    }
    let why = project.tenure("why gpu --as c").exits(0).out;
    for said in [
        "gpu is held by a (on ",
        "slot 1 of 2",
        "tenure run gpu --slots 2 --wait 30m --as c -- CMD",
        "tenure force gpu --holder b",
    ] {
        assert!(why.contains(said), "{said}: {why}");
    }
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
    let said = project.tenure("force db --holder nobody").exits(4);
    assert!(said.err.contains("nothing was released"), "{}", said.err);
    project.tenure("locks release db --holder b").exits(2);
    let said = project.tenure("force db --holder b").exits(0);
    assert!(said.out.contains("from b "), "{}", said.out);
    let said = project.tenure("force db").exits(0);
    assert!(
        said.out.contains("from a ") && said.out.contains("and c "),
        "{}",
        said.out
    );
    project.tenure("force db").exits(4);
}

/// The holder of a key, and the token of its lease.
fn holder(project: &Project, key: &str) -> Option<(String, u64)> {
    let list = project.tenure("locks list --json").exits(0).json();
    let locks = list.pointer("/data/locks")?.as_array()?;
    let lock = locks
        .iter()
        .find(|lock| lock.get("key").is_some_and(|it| it == key))?;
    let lease = lock.pointer("/leases/0")?;
    let token = lease.get("token")?.as_u64()?;
    Some((lease.get("holder")?.as_str()?.to_owned(), token))
}

#[test]
fn several_keys_are_held_together_and_a_wait_for_them_holds_none() {
    let project = Project::new();
    let mut one = project.hold("run db --as one");
    let all = project
        .call("run cache db web cache --as all")
        .sh("echo $TENURE_KEY; echo $TENURE_TOKEN; echo \"$TENURE_KEYS\"; echo \"$TENURE_TOKENS\"")
        .start();
    project.until_waiting("db", 1);
    assert!(
        all.err().contains("waiting for cache, db and web")
            && all.err().contains("db is held by one"),
        "{}",
        all.err()
    );
    for free in ["cache", "web"] {
        assert_eq!(holder(&project, free), None);
        // But it is promised to the waiter.
        project
            .tenure(&format!("run {free} --no-wait -- true"))
            .fails(6, &["about to be granted to all"]);
    }
    let refused = project.tenure("run web db --no-wait -- true");
    let refused = refused.fails(
        6,
        &["web is about to be granted to all", "db is locked by one"],
    );
    assert!(refused.err.contains("--wait 10m"), "{refused:?}");
    one.let_go();
    let said = all.ended().exits(0);
    let lines: Vec<&str> = said.out.lines().collect();
    assert_eq!(lines.len(), 8, "{said:?}");
    assert_eq!(lines[..1], ["cache"]);
    assert_eq!(lines[2..5], ["cache", "db", "web"]);
    assert_eq!(lines[1], lines[5]);
    for (key, token) in ["cache", "db", "web"].iter().zip(&lines[5..]) {
        let granted = project.history(key);
        let granted = granted.iter().rfind(|(kind, _, _)| kind == "granted");
        assert_eq!(granted.unwrap().1.to_string(), *token);
        assert_eq!(holder(&project, key), None);
    }
}

#[test]
fn several_keys_are_acquired_renewed_and_released_in_one_command_each() {
    let project = Project::new();
    let tokens = project
        .tenure("acquire a b --key c --as me --ttl 10m")
        .exits(0);
    let tokens: Vec<u64> = tokens
        .out
        .lines()
        .map(|line| line.parse().unwrap())
        .collect();
    for (key, token) in ["a", "b", "c"].into_iter().zip(&tokens) {
        assert_eq!(holder(&project, key), Some(("me".to_owned(), *token)));
    }
    // Again: the same leases, and one more.
    let again = project.tenure("acquire b d --as me --json").exits(0).json();
    let again = again["data"]["leases"].as_array().unwrap().clone();
    assert_eq!(again[0]["token"].as_u64(), Some(tokens[1]));
    assert_eq!(again[0]["reason"], "already_owned");
    project.tenure("renew a b --as me --ttl 1h").exits(0);
    project
        .tenure("release a elsewhere --as me")
        .fails(4, &["elsewhere is free"]);
    assert!(
        holder(&project, "a").is_some(),
        "only one of two was released"
    );
    project
        .tenure("release a b --token 1")
        .fails(2, &["one key"]);
    project.tenure("release a b c d --as me").exits(0);
    for key in ["a", "b", "c", "d"] {
        assert_eq!(holder(&project, key), None);
    }
    project
        .tenure("run a b --slots 2 -- true")
        .fails(2, &["--slots is for one key"]);
    project
        .tenure("run a task:1 -- true")
        .fails(2, &["task:1 can't be held together"]);
    project
        .tenure("--store exclusive:. run database other -- true")
        .fails(2, &["can't be held together with other keys"]);
}

#[test]
fn a_command_is_stopped_when_one_of_its_keys_is_taken_away() {
    let project = Project::new();
    let running = project.hold("run a b --as me");
    project.tenure("force b").exits(0);
    let said = running.ended().fails(7, &["the lease on b", "was lost"]);
    assert!(!said.err.contains("lease on a"), "{said:?}");
    for key in ["a", "b"] {
        assert_eq!(holder(&project, key), None);
    }
}

#[test]
fn a_run_of_several_keys_that_is_killed_leaves_all_or_none_of_them_to_be_taken_over() {
    let project = Project::new();
    project.tenure("run a b -- true").exits(0);
    let mut newest = [0, 0];
    for kill in 0..40u64 {
        let victim = project.start("run a b --as victim -- true");
        // No seed: which instruction the kill hits is up to the scheduler.
        std::thread::sleep(std::time::Duration::from_micros(700 * (kill % 20)));
        let said = victim.killed();
        assert!([0, 137].contains(&said.code), "{said:?}");
        let held = ["a", "b"].map(|key| holder(&project, key));
        assert_eq!(held[0].is_some(), held[1].is_some(), "{held:?}");
        let next = project.tenure("run a b --wait 10m --json -- true").exits(0);
        let granted = next.err.lines().find(|line| line.contains("granted"));
        let granted: serde_json::Value = serde_json::from_str(granted.unwrap()).unwrap();
        for (at, newest) in newest.iter_mut().enumerate() {
            let token = granted["leases"][at]["token"].as_u64().unwrap();
            let before = held[at].as_ref().map_or(*newest, |(_, token)| *token);
            assert!(token > before, "{granted} after {before}");
            *newest = token;
        }
    }
    project.tenure("locks verify").exits(0);
}

#[test]
fn a_nested_command_passes_a_waiter_that_needs_what_its_outer_command_holds() {
    let project = Project::new();
    let go = project.path("go");
    let script = format!(
        "until [ -e {} ]; do sleep 0.01; done; $TENURE run b --wait 10m -- true",
        go.display()
    );
    let outer = project.call("run a").sh(&script).start();
    until("a is held", || holder(&project, "a").is_some());
    let waits = project.queue("a", "run b a --as waits -- true");
    project.write("go", "");
    ends_well(outer);
    ends_well(waits);
}

/// Each claim once examined every waiter ahead, and for that read the queue again: with fifty, the commands gave up.
#[test]
fn a_crowd_of_named_waiters_for_two_keys_or_in_two_modes_queues_and_is_served() {
    const CROWD: usize = 80;
    let project = Project::new();
    for (keys, every_second) in [("db api", ""), ("cache", "--shared")] {
        let mut held = project.hold(&format!("run {keys} --as holder"));
        let waiters: Vec<Running> = (0..CROWD)
            .map(|number| {
                let mode = if number % 2 == 0 { every_second } else { "" };
                let line = format!("run {keys} {mode} --as w{number} --wait 1h -q -- true");
                project.start(&line)
            })
            .collect();
        let key = keys.split(' ').next().unwrap();
        project.until_waiting(key, CROWD);
        held.let_go();
        waiters.into_iter().for_each(ends_well);
    }
}
