//! `tenure why`: what keeps a key, a task or a path from the caller; and circles of waits.

use std::fs;

use serde_json::Value;

use crate::project::{Project, Running, until};
use crate::view::{die, repository};

/// What `why` says.
fn why(project: &Project, words: &str) -> String {
    project.tenure(&format!("why {words}")).exits(0).out
}

/// The commands that `why` gives.
fn commands(project: &Project, words: &str) -> Vec<String> {
    let said = project
        .tenure(&format!("why {words} --json"))
        .exits(0)
        .json();
    let commands = said["data"]["commands"].as_array().unwrap().iter();
    commands
        .map(|one| one.as_str().unwrap().to_owned())
        .collect()
}

/// A command as a person copies it, with a command of their own in the place of `CMD`.
fn copied(command: &str) -> String {
    let rest = command
        .replace(" CMD", " true")
        .replace("--wait 30m", "--no-wait");
    rest.replacen("tenure ", "\"$TENURE\" ", 1)
}

#[test]
fn why_follows_the_chain_to_its_end_and_gives_commands() {
    let project = Project::new();
    repository(&project);
    let _b = project.hold("run y --as b");
    let _a = project.hold("run x --as a");
    let _a_waits = project.queue("y", "run y --as a -- true");
    let _c_waits = project.queue("x", "run x --as c -- true");
    let said = project.tenure("why x --as d").exits(0);
    for words in [
        "x is held by a (pid",
        "and waits for y in turn:",
        "y is held by b (pid",
        "1st in the queue: c (pid",
        "tenure run x --wait 30m --as d -- CMD",
        "tenure ask x --note 'WHY' --as d",
        "tenure force x --reason 'WHY'",
    ] {
        assert!(said.out.contains(words), "no {words:?} in {said:?}");
    }
    let json = project.tenure("why x --as d --json").exits(0).json();
    let depths: Vec<&Value> = json["data"]["chain"]
        .as_array()
        .unwrap()
        .iter()
        .map(|link| &link["depth"])
        .collect();
    assert_eq!(depths, [0, 2], "{json}");
    // What the caller holds, what is free, what is dead, a task and a file.
    project.acquire("mine --as d");
    assert!(
        project
            .tenure("why mine --as d")
            .exits(0)
            .out
            .contains("tenure release mine")
    );
    assert!(
        project
            .tenure("why nothing")
            .exits(0)
            .out
            .contains("nothing is free")
    );
    die(&project, "run gone --as e");
    assert!(
        project
            .tenure("why gone")
            .exits(0)
            .out
            .contains("\n  tenure locks cleanup\n")
    );
    project.call("tasks add").arg("Fix bug").end().exits(0);
    let task = project.call("why").arg("Fix bug").end().exits(0);
    assert!(task.out.contains("Task \"Fix bug\""), "{task:?}");
    project.tenure("tasks next --as f").exits(0);
    let task = project.call("why").arg("Fix bug").end().exits(0);
    assert!(task.out.contains("is held by f"), "{task:?}");
    project.write(".git/index.lock", "");
    let file = project.tenure("why .git/index.lock").exits(0);
    assert!(file.out.contains("is a lock of git"), "{file:?}");
    assert!(file.out.contains("rm -- "), "{file:?}");
}

/// Holds `x` and waits for the exclusive lock, and the other way round: no store sees both.
fn circle_of_two_stores(project: &Project) -> [Running; 2] {
    fs::create_dir(project.path(".beads")).unwrap();
    let far = "--store exclusive:.beads run database";
    let start = |outer: &str, inner: &str, name: &str| {
        let script = format!(
            "exec \"$TENURE\" {outer} -- sh -c 'touch {name}; until [ -e a ] && [ -e b ]; do sleep 0.05; done; exec \"$TENURE\" {inner} -- true'"
        );
        project.shell(&script).start()
    };
    let running = [start("run x", far, "a"), start(far, "run x", "b")];
    project.until_waiting("x", 1);
    until("both wait", || {
        let said = project.tenure("locks list --all --json").json();
        let stores = said["data"]["stores"].as_array().unwrap().clone();
        let waits = |store: &Value| {
            let locks = store["locks"].as_array().unwrap();
            locks
                .iter()
                .any(|lock| !lock["queue"].as_array().unwrap().is_empty())
        };
        stores.iter().filter(|store| waits(store)).count() == 2
    });
    running
}

#[test]
fn a_circle_of_waits_in_two_stores_is_found_and_the_command_ends_it() {
    let project = Project::new();
    let running = circle_of_two_stores(&project);
    let said = project.tenure("doctor --json").exits(1).json();
    let problems = said["data"]["problems"].as_array().unwrap();
    assert_eq!(problems.len(), 1, "{said}");
    assert_eq!(problems[0]["code"], "deadlock", "{said}");
    let evidence = problems[0]["evidence"].to_string();
    for words in ["waits for x in sqlite:", "waits for database in exclusive:"] {
        assert!(evidence.contains(words), "no {words:?} in {evidence}");
    }
    let story = why(&project, "x");
    for words in [
        "and waits for database in turn (as ",
        "    database is held by ",
        "x: a circle, see above",
    ] {
        assert!(story.contains(words), "no {words:?} in {story}");
    }
    let command = problems[0]["fix"].as_str().unwrap();
    assert!(command.starts_with("kill "), "{command}");
    project.shell(command).end().exits(0);
    let codes = running.map(|one| one.ended().code);
    assert!(codes.contains(&0), "{codes:?}");
    project.tenure("doctor").exits(0);
}

#[test]
fn waiters_that_can_go_on_are_no_circle() {
    let project = Project::new();
    repository(&project);
    for (path, holder) in [("a", "A"), ("b", "B"), ("c", "C")] {
        project
            .tenure(&format!("reserve {path} --as {holder}"))
            .exits(0);
    }
    // A waits for B and B for C, and all of these are one key.
    let _a = project.queue("paths", "reserve b --as A");
    let _b = project.queue("paths", "reserve c --as B");
    // D waits for one of two slots. E has one and waits for D, but F has the other.
    let _d = project.hold("run d --as D");
    let _e = project.hold("run pool --slots 2 --as E");
    let _f = project.hold("run pool --slots 2 --as F");
    let _e_waits = project.queue("d", "run d --as E -- true");
    let _d_waits = project.queue("pool", "run pool --slots 2 --as D -- true");
    project.tenure("doctor").exits(0);
}

#[test]
fn why_tells_modes_slots_and_claims_on_several_keys() {
    let project = Project::new();
    let _r = project.hold("run docs --shared --as r");
    let said = why(&project, "docs --as me");
    assert!(said.contains("docs is held by r (pid"), "{said}");
    assert!(said.contains("), shared\n"), "{said}");
    let shared = "tenure run docs --shared --as me -- CMD".to_owned();
    let found = commands(&project, "docs --as me");
    assert!(found.contains(&shared), "{found:?}");
    project.shell(&copied(&shared)).end().exits(0);
    // With several holders, one of them can be chosen.
    let _q = project.hold("run docs --shared --as q");
    let found = commands(&project, "docs");
    let force = "tenure force docs --holder r --reason 'WHY'".to_owned();
    assert!(found.contains(&force), "{found:?}");
    // A reader does not pass a writer that waits.
    let _w = project.queue("docs", "run docs --as w -- true");
    let found = commands(&project, "docs");
    assert!(
        !found.iter().any(|one| one.contains("--shared")),
        "{found:?}"
    );

    let _s = project.hold("run pool --slots 3 --as s");
    let said = why(&project, "pool");
    assert!(said.contains("slot 0 of 3\n"), "{said}");
    assert!(said.contains("free slots: 2 of 3"), "{said}");
    let slot = "tenure run pool --slots 3 -- CMD".to_owned();
    let found = commands(&project, "pool");
    assert!(found.contains(&slot), "{found:?}");
    project.shell(&copied(&slot)).end().exits(0);

    // A free key that a claim on several keys waits for, too.
    let _both = project.queue("docs", "run docs free --as both -- true");
    let said = why(&project, "free");
    for words in [
        "free is kept for both (pid",
        "which waits for docs as well",
        "    docs is held by r (pid",
        "1st in the queue: both (pid",
        "together with docs",
    ] {
        assert!(said.contains(words), "no {words:?} in {said}");
    }
}

#[test]
fn why_explains_paths_patterns_folders_and_lock_files() {
    let project = Project::new();
    repository(&project);
    fs::create_dir_all(project.path("src/api")).unwrap();
    project.write("src/api/a.rs", "");
    let reserve = project.call("reserve src/**/*.rs --as agent --why");
    reserve.arg("a new parser").end().exits(0);
    for what in ["src/api/a.rs", "src", "src/**", "src/new.rs", ".", "paths"] {
        let said = why(&project, what);
        assert!(said.contains("is reserved by agent"), "{what}: {said}");
        assert!(said.contains("what for: a new parser"), "{what}: {said}");
        assert!(!said.contains("tenure run"), "{what}: {said}");
    }
    for what in ["file", "docs/**"] {
        let said = why(&project, what);
        assert!(
            said.contains("is free: no holder has reserved it"),
            "{what}: {said}"
        );
    }
    // A name that looks like no path is a key, also while everything is reserved.
    project.tenure("unreserve --as agent").exits(0);
    project.tenure("reserve ** --as agent").exits(0);
    assert!(why(&project, "build").contains("build is free"));
    // From another folder, and with a name: what is copied works there.
    let found = commands(&project, "api/a.rs --as agent -C src");
    assert_eq!(found, ["(cd src && tenure unreserve --as agent)"]);
    project
        .shell(&found[0].replace("tenure ", "\"$TENURE\" "))
        .end()
        .exits(0);
    assert!(why(&project, "src/api/a.rs").contains("is free"));
    // The file that is an exclusive lock.
    let _holder = project.hold("--store exclusive:.tenure run database --as nightly");
    let said = why(&project, ".tenure/.exclusive-lock");
    assert!(said.contains("database is held by nightly"), "{said}");
}

#[test]
fn why_names_the_tasks_that_a_task_waits_for() {
    let project = Project::new();
    project.tenure("tasks add First").exits(0);
    project
        .tenure("tasks add Second --depends-on First")
        .exits(0);
    project.tenure("tasks next --as runner").exits(0);
    let said = why(&project, "Second");
    for words in [
        "It waits for 1 of the tasks that it depends on:",
        "  \"First\" (",
        "is in_progress, runner",
        "  tenure why ",
    ] {
        assert!(said.contains(words), "no {words:?} in {said}");
    }
    let first = commands(&project, "Second");
    let story = project.shell(&copied(&first[0])).end().exits(0);
    assert!(story.out.contains("is held by runner"), "{story:?}");
}

#[test]
fn a_store_without_a_project_is_looked_at() {
    let nowhere = Project::uninitialised();
    let store = "--store sqlite:locks.db";
    nowhere
        .tenure(&format!("{store} acquire k --as a"))
        .exits(0);
    let said = nowhere.tenure(&format!("{store} why k")).exits(0).out;
    assert!(said.contains("k is held by a"), "{said}");
    let command = "tenure force k --reason 'WHY' --store sqlite:locks.db";
    assert!(said.contains(command), "{said}");
    for words in ["locks list --all", "timeline", "locks verify", "doctor"] {
        let said = nowhere.tenure(&format!("{store} {words}")).exits(0);
        assert!(
            said.out.contains("sqlite:locks.db") || words == "doctor",
            "{said:?}"
        );
        nowhere.tenure(words).exits(3);
    }
    assert!(!nowhere.path(".tenure").exists());
}
