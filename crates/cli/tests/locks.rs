//! `tenure locks`: list, show, release, cleanup, history.

use crate::project;

use project::{Project, until};

#[test]
fn a_list_shows_holder_token_state_time_left_and_waiters() {
    let project = Project::new();
    assert_eq!(project.tenure("locks list").exits(0).out, "No locks.\n");
    let json = project.tenure("locks list --json").exits(0).json();
    assert_eq!(json["data"]["locks"].as_array().unwrap().len(), 0);

    let held = project.hold("run build --as agent-1 --ttl 1h");
    project.acquire("schema --as agent-7 --ttl 10m");
    let _one = project.queue("build", "run build --as agent-2 -- true");
    let _two = project.queue("build", "run build --as agent-3 -- true");
    let said = project.tenure("locks list").exits(0);
    let expected = format!(
        "\
KEY     HOLDER[..]TOKEN  STATE  SINCE[..]REMAINING  WAITING
build   agent-1 (pid {})  1      held   [..] ago[..]59m[..]2
schema  agent-7  [..]2      held   [..] ago[..]9m 5[..]0
",
        held.pid()
    );
    snapbox::assert_data_eq!(said.out.as_str(), expected.as_str());

    let json = project.tenure("locks list --json").exits(0).json();
    let locks = json["data"]["locks"].as_array().unwrap();
    assert_eq!(locks.len(), 2);
    assert_eq!(locks[0]["key"], "build");
    assert_eq!(locks[0]["leases"][0]["pid"], held.pid());
    assert_eq!(locks[0]["leases"][0]["verdict"], "alive");
    assert_eq!(locks[0]["queue"][0]["holder"], "agent-2");
    assert_eq!(locks[0]["queue"][1]["holder"], "agent-3");
    assert_eq!(locks[1]["leases"][0]["verdict"], "unknown");
}

#[test]
fn expired_and_dead_leases_are_marked() {
    let project = Project::new();
    project.acquire("late --as me --ttl 100ms");
    let dead = project.hold("run crashed --ttl 1h");
    dead.killed();
    until("both are over", || {
        project.verdict("late") == "expired" && project.verdict("crashed") == "dead"
    });
    let list = project.tenure("locks list").exits(0).out;
    let line = |key: &str| {
        list.lines()
            .find(|line| line.starts_with(key))
            .unwrap()
            .to_owned()
    };
    assert!(
        line("late").contains("EXPIRED") && line("late").contains("expired at"),
        "{list}"
    );
    assert!(
        line("crashed").contains("DEAD") && line("crashed").contains("exited"),
        "{list}"
    );
}

#[test]
fn show_prints_every_field_of_a_lock() {
    let project = Project::new();
    let held = project.hold("run build --as agent-1 --ttl 1h");
    let _waiter = project.queue("build", "run build --as agent-2 --priority 7 -- true");
    let said = project.tenure("locks show build").exits(0);
    let expected = format!(
        "\
Key:        build
Holder:     agent-1 (pid {} on [..])
Token:      1
State:      held (the holder is alive)
Acquired:   [..]Z ([..] ago)
Heartbeat:  [..]Z ([..] ago)
Expires:    [..]Z (in [..])
Runs:       sh -c 'echo $$; exec cat'
Waiting:    1. agent-2 (pid [..] on [..]), priority 7
",
        held.pid()
    );
    snapbox::assert_data_eq!(said.out.as_str(), expected.as_str());
    let json = project.tenure("locks show build --json").exits(0).json();
    assert_eq!(json["subcommand"], "show");
    assert_eq!(
        json["data"]["leases"][0]["command"],
        "sh -c 'echo $$; exec cat'"
    );
    assert_eq!(json["data"]["queue"][0]["priority"], 7);
}

#[test]
fn a_lock_is_found_by_its_key_or_a_unique_prefix() {
    let project = Project::new();
    for key in ["build", "build-linux", "build-mac", "deploy"] {
        project.acquire(&format!("{key} --as me"));
    }
    let shown = |id: &str| {
        let json = project
            .tenure(&format!("locks show {id} --json"))
            .exits(0)
            .json();
        json["data"]["key"].as_str().unwrap().to_owned()
    };
    assert_eq!(shown("dep"), "deploy");
    assert_eq!(shown("build-l"), "build-linux");
    assert_eq!(
        shown("build"),
        "build",
        "the key itself wins over what it begins"
    );
    let said = project.tenure("locks show bui");
    said.fails(
        2,
        &["build, build-linux, build-mac", "give a longer prefix"],
    );
    let said = project.tenure("locks show bui --json").exits(2);
    assert_eq!(said.error(), "AMBIGUOUS");
    assert_eq!(
        said.json()["error"]["details"]["candidates"]
            .as_array()
            .unwrap()
            .len(),
        3
    );

    project
        .tenure("locks show nothing")
        .fails(4, &["no lock matches nothing", "locks list"]);
    assert_eq!(
        project.tenure("locks show nothing --json").exits(4).error(),
        "LOCK_NOT_FOUND"
    );
    project.call("locks show").arg("").end().exits(4);
}

#[test]
fn a_lock_is_taken_away_by_its_whole_key_only() {
    let project = Project::new();
    project.acquire("build-docs --as me");
    project.tenure("force build").fails(
        4,
        &["no lock is named build", "the whole key", "build-docs"],
    );
    let json = project.tenure("force build --json").exits(4).json();
    assert_eq!(json["error"]["code"], "LOCK_NOT_FOUND");
    assert_eq!(json["error"]["details"]["candidates"][0], "build-docs");
    assert_eq!(project.story("build-docs"), "granted 1");
    project.tenure("force build-docs").exits(0);
}

#[test]
fn a_task_is_found_by_its_id() {
    let project = Project::new();
    let id = "a3f1c2d4-0000-4000-8000-000000000001";
    project
        .tenure(&format!("acquire task:{id} --as me"))
        .fails(4, &["there is no task", id]);
    // Makes the tables of tasks.
    project.tenure("tasks list").exits(0);
    let db = rusqlite::Connection::open(project.database()).unwrap();
    db.execute("INSERT INTO tasks (id, title) VALUES (?1, 'Try it')", [id])
        .unwrap();
    project.acquire(&format!("task:{id} --as me"));
    for beginning in ["a3f1", &format!("task:{id}"), id, "task:a3"] {
        let said = project.tenure(&format!("locks show {beginning}")).exits(0);
        assert!(said.out.contains(&format!("task:{id}")), "{said:?}");
    }
    let runner: String = db
        .query_row(
            "SELECT runner_id FROM task_locks WHERE task_id = ?1",
            [id],
            |row| row.get(0),
        )
        .unwrap();
    assert_eq!(runner, "me", "other programs see it in their own table");
    let near = format!("task:{id}");
    project
        .tenure("force a3f1")
        .fails(4, &["nothing was released", &near]);
    project.tenure(&format!("force {id}")).exits(0);
    let rows: u32 = db
        .query_row("SELECT count(*) FROM task_locks", [], |row| row.get(0))
        .unwrap();
    assert_eq!(rows, 0);
}

#[test]
fn a_lock_is_taken_away_only_with_force_and_that_is_recorded() {
    let project = Project::new();
    project.acquire("build --as me");
    project
        .tenure("locks release build")
        .fails(2, &["tip: tenure force build\n"]);
    project.tenure("fence build --token 1").exits(0);

    let said = project
        .call("force build --as boss --reason")
        .arg("it hangs")
        .end()
        .exits(0);
    assert_eq!(
        said.out,
        "Took build from me (on [..]); recorded as forced by boss.\n".replace("[..]", &host())
    );
    project.tenure("force build").exits(4);
    assert_eq!(project.story("build"), "granted 1, forced 1");
    let (_, _, forced) = &project.history("build")[1];
    assert_eq!(forced["holder"], "me");
    assert_eq!(forced["evidence"]["by"], "boss");
    assert_eq!(forced["evidence"]["reason"], "it hangs");
    let text = project.tenure("locks history build").exits(0).out;
    assert!(text.contains("forced by boss: it hangs"), "{text}");
}

fn host() -> String {
    rustix::system::uname()
        .nodename()
        .to_str()
        .unwrap()
        .to_owned()
}

#[test]
fn cleanup_ends_expired_and_dead_leases_and_says_why() {
    let project = Project::new();
    assert!(
        project
            .tenure("locks cleanup")
            .exits(0)
            .out
            .contains("No lease has expired")
    );
    let _alive = project.hold("run alive --ttl 1h");
    project.acquire("stands --as me --ttl 1h");
    project.acquire("late --as me --ttl 100ms");
    let dead = project.hold("run crashed --as gone --ttl 1h");
    let pid = dead.pid();
    dead.killed();
    until("both are over", || {
        project.verdict("late") == "expired" && project.verdict("crashed") == "dead"
    });

    let before = project.tenure("locks history --json").exits(0).out;
    let dry = project.tenure("locks cleanup --dry-run").exits(0).out;
    assert!(
        dry.contains("Would end the lease of me on late: it expired at"),
        "{dry}"
    );
    assert!(
        dry.contains(&format!(
            "Would end the lease of gone on crashed: pid {pid}"
        )),
        "{dry}"
    );
    let json = project
        .tenure("locks cleanup --dry-run --json")
        .exits(0)
        .json();
    assert_eq!(json["data"]["dryRun"], true);
    assert_eq!(json["data"]["ended"].as_array().unwrap().len(), 2);
    assert_eq!(
        project.tenure("locks history --json").out,
        before,
        "a dry run changes nothing"
    );
    assert_eq!(project.verdict("crashed"), "dead");

    let json = project.tenure("locks cleanup --json").exits(0).json();
    let ended = json["data"]["ended"].as_array().unwrap();
    assert_eq!(ended[0]["key"], "crashed");
    assert_eq!(ended[0]["evidence"]["proof"], "liveness_lock_free");
    assert_eq!(ended[1]["key"], "late");
    assert_eq!(ended[1]["evidence"]["proof"], "time_ran_out");
    assert_eq!(project.verdict("crashed"), "free");
    assert_eq!(project.verdict("alive"), "alive");
    assert_eq!(project.verdict("stands"), "unknown");
    assert_eq!(project.story("crashed"), "granted 4, dead 4");
    assert_eq!(project.story("late"), "granted 3, expired 3");
    assert!(
        project
            .tenure("locks cleanup")
            .exits(0)
            .out
            .contains("No lease has expired")
    );
}

#[test]
fn cleanup_removes_the_files_of_dead_processes() {
    let project = Project::new();
    let lives = || {
        std::fs::read_dir(project.path(".tenure/tenure.db-live"))
            .unwrap()
            .count()
    };
    for _ in 0..3 {
        project.hold("run build --ttl 1h").killed();
    }
    until("its command is gone", || project.verdict("build") == "dead");
    assert!(lives() > 0, "there is nothing to clean up");
    project.tenure("locks cleanup").exits(0);
    assert_eq!(lives(), 0);
}

#[test]
fn files_of_killed_processes_are_removed_in_passing_unless_they_are_needed() {
    let project = Project::new();
    let lives = || {
        std::fs::read_dir(project.path(".tenure/tenure.db-live"))
            .unwrap()
            .count()
    };
    // One of sixteen commands sweeps.
    let until_left = |count: usize| {
        for _ in 0..1_000 {
            project.tenure("run other -- true").exits(0);
            if lives() == count {
                return;
            }
        }
        panic!("{} files are left", lives());
    };
    for _ in 0..4 {
        project.hold("run build --ttl 1h").killed();
    }
    project.tenure("tasks add one --quiet").exits(0);
    let work = project.call("tasks work").sh("echo $$; exec sleep 300");
    let work = work.start();
    until("it works", || work.out().ends_with('\n'));
    work.killed();
    // The holders of build and of the task are on record as dead, and their files prove it.
    until_left(2);
    let shown = project.tenure("locks show build --json").exits(0).json();
    let lease = &shown["data"]["leases"][0];
    assert_eq!(lease["verdict"], "dead", "{lease}");
    project.tenure("run build -- true").exits(0);
    project.tenure("tasks work -- true").exits(0);
    until_left(0);
}

#[test]
fn the_history_lists_every_event_in_order() {
    let project = Project::new();
    assert!(
        project
            .tenure("locks history")
            .exits(0)
            .out
            .contains("No events yet")
    );
    project.acquire("build --as a");
    project.tenure("renew build --as a").exits(0);
    project.tenure("release build --as a").exits(0);
    project.acquire("build --as b --ttl 100ms");
    until("it has run out", || project.verdict("build") == "expired");
    let dead = project
        .call("run build --as c --ttl 1h")
        .sh("echo $$; exec sleep 300")
        .start();
    until("the command runs", || !dead.out().is_empty());
    dead.killed();
    project.tenure("acquire build --as d --wait 10m").exits(0);
    project.tenure("force build --as e").exits(0);
    assert_eq!(
        project.story("build"),
        "granted 1, renewed 1, released 1, granted 2, expired 2, granted 3, dead 3, granted 4, forced 4"
    );
    let holders: Vec<String> = project
        .history("build")
        .iter()
        .map(|(_, _, event)| event["holder"].as_str().unwrap().to_owned())
        .collect();
    assert_eq!(holders, ["a", "a", "a", "b", "b", "c", "c", "d", "d"]);
    let reasons: Vec<_> = project
        .history("build")
        .into_iter()
        .filter(|(kind, _, _)| kind == "granted")
        .map(|(_, _, event)| event["reason"].clone())
        .collect();
    assert_eq!(
        reasons,
        [
            "acquired_new",
            "acquired_new",
            "claimed_expired",
            "claimed_dead"
        ]
    );

    let text = project.tenure("locks history build").exits(0).out;
    assert_eq!(text.lines().count(), 10, "{text}");
    assert!(text.starts_with("WHEN"), "{text}");
    assert_eq!(
        project
            .tenure("locks history build --limit 2")
            .exits(0)
            .out
            .lines()
            .count(),
        3
    );
    let newest = project
        .tenure("locks history --limit 1 --json")
        .exits(0)
        .json();
    assert_eq!(newest["data"]["events"][0]["event"], "forced");
    let times: Vec<String> = project
        .history("build")
        .iter()
        .map(|(_, _, event)| event["at"].as_str().unwrap().to_owned())
        .collect();
    assert!(times.is_sorted(), "{times:?}");
}

#[test]
fn the_history_of_a_free_key_is_found_by_a_prefix() {
    let project = Project::new();
    project.tenure("run build-linux -- true").exits(0);
    project.tenure("run deploy -- true").exits(0);
    assert_eq!(project.story("build"), "granted 1, released 1");
    assert_eq!(project.history("deploy").len(), 2);
    project
        .tenure("locks history nothing")
        .fails(4, &["has no history"]);
    let all = project.tenure("locks history --json").exits(0).json();
    assert_eq!(all["data"]["events"].as_array().unwrap().len(), 4);
    let lately = project
        .tenure("locks history --since 1h --json")
        .exits(0)
        .json();
    assert_eq!(lately["data"]["events"].as_array().unwrap().len(), 4);
}

#[test]
fn one_event_is_one_line_whatever_the_reason_contains() {
    let project = Project::new();
    project.acquire("build --as me");
    project
        .call("force build --reason")
        .arg("it\nhangs\x1b[2J\tagain")
        .end()
        .exits(0);
    let text = project.tenure("locks history build").exits(0).out;
    assert_eq!(text.lines().count(), 3, "{text:?}");
    assert!(!text.contains('\x1b'), "{text:?}");
}

#[test]
fn a_free_key_with_a_reserved_place_is_shown_as_such() {
    let project = Project::new();
    project.acquire("build --as me");
    project
        .tenure("run build --as later --wait 100ms -- true")
        .exits(6);
    project.tenure("release build --as me").exits(0);
    let list = project.tenure("locks list").exits(0).out;
    let line = list
        .lines()
        .find(|line| line.starts_with("build"))
        .unwrap_or_default();
    assert!(
        line.is_empty() || line.contains("away") || line.contains("kept"),
        "{list}"
    );
}

#[test]
fn a_lease_without_an_end_has_no_end_in_words_and_null_in_json() {
    let project = Project::new();
    let store = "--store mkdir:lock";
    let pid = std::process::id();
    let token = project.acquire(&format!("board --as me --pid {pid} {store}"));
    let no_end = |words: String, expected: &str, end: &str| {
        let said = project.tenure(&words);
        let text = format!("{}{}", said.out, said.err);
        assert!(text.contains(expected), "{words}: {said:?}");
        assert!(!text.contains("9999"), "{words}: {said:?}");
        let json = project.tenure(&format!("{words} --json")).json();
        let found = json.pointer(end);
        assert_eq!(found, Some(&serde_json::Value::Null), "{words}: {json}");
    };
    no_end(
        format!("locks list {store}"),
        "no end",
        "/data/locks/0/leases/0/expiresAt",
    );
    no_end(
        format!("locks show board {store}"),
        "Expires:    no end",
        "/data/leases/0/expiresAt",
    );
    no_end(
        format!("renew board --as me {store}"),
        "board is yours with no end (until its process exits)",
        "/data/expiresAt",
    );
    no_end(
        format!("fence board --token {token} {store}"),
        "is valid with no end (until its process exits)",
        "/data/expiresAt",
    );
    no_end(
        format!("acquire board --as you --no-wait --pid {pid} {store}"),
        "Lock expires at: no end",
        "/error/details/leases/0/expiresAt",
    );
    project
        .tenure(&format!("renew board --as me --ttl 1h {store}"))
        .fails(2, &["does not expire"]);
}

#[test]
fn a_script_can_ask_quietly_whether_a_key_is_held() {
    let project = Project::new();
    project.acquire("build-docs --as me");
    let free = project.tenure("locks show build -q").exits(4);
    assert_eq!((free.out.as_str(), free.err.as_str()), ("", ""));
    let held = project.tenure("locks show build-docs -q").exits(0);
    assert_eq!((held.out.as_str(), held.err.as_str()), ("me\n", ""));
    project.acquire("short --as me --ttl 100ms");
    until("it has expired", || project.verdict("short") == "expired");
    project.tenure("locks show short -q").exits(4);
}
