//! A lease that is lost while its command runs: the command is stopped, and tenure exits with 7.

use crate::project;

use std::io::Read;
use std::time::Duration;

use project::{Project, process, until};
use rustix::process::Signal;

#[test]
fn force_ends_the_command_and_tenure_says_so() {
    let project = Project::new();
    let script = "trap 'echo told >> heard; exit 0' TERM; echo $$; while :; do sleep 0.02; done";
    let run = project
        .call("run build --as worker --ttl 1h")
        .sh(script)
        .start();
    until("the command runs", || !run.out().is_empty());
    let said = project.tenure("force build --as boss").exits(0);
    assert!(
        said.out.contains("worker") && said.out.contains("boss"),
        "{said:?}"
    );

    let said = run.ended().exits(7);
    for word in [
        "lease on build",
        "token 1",
        "lost",
        "taken away",
        "locks history build",
        "stopped",
    ] {
        assert!(said.err.contains(word), "{word}: {said:?}");
    }
    assert_eq!(project.read("heard"), "told\n");
    assert_eq!(project.story("build"), "granted 1, forced 1");
}

#[test]
fn a_command_that_does_not_listen_is_killed_after_the_grace_time() {
    let project = Project::new();
    let script = "trap '' TERM; echo $$; sleep 300 & sleep 300; sleep 300";
    let run = project
        .call("run build --json --ttl 1h")
        .env("TENURE_RUN_KILL_GRACE", "300ms")
        .sh(script)
        .start();
    until("the command runs", || {
        !run.out().is_empty() && process::members(run.command()).len() == 3
    });
    let group = run.command();
    project.tenure("force build").exits(0);
    let said = run.ended().exits(7);
    until("the group is gone", || process::members(group).is_empty());
    assert_eq!(said.out.lines().count(), 1, "only the command's: {said:?}");
    let json: serde_json::Value = serde_json::from_str(said.err.lines().last().unwrap()).unwrap();
    assert_eq!(json["event"], "lost");
    assert_eq!(json["error"]["code"], "LEASE_LOST");
    assert_eq!(json["error"]["details"]["token"], 1);
}

#[test]
fn a_code_of_its_own_tells_a_loss_from_a_command_that_exits_with_7() {
    let project = Project::new();
    let run = project.call("run build --lost-exit-code 99 --ttl 1h");
    let run = run.sh("echo runs; exec sleep 300").start();
    until("the command runs", || !run.out().is_empty());
    project.tenure("force build").exits(0);
    run.ended().exits(99);
    let seven = project.call("run build --lost-exit-code 99").sh("exit 7");
    seven.end().exits(7);
}

#[test]
fn what_does_not_listen_in_the_background_is_killed_with_the_rest() {
    let project = Project::new();
    let script =
        "sh -c 'trap \"\" TERM; echo deaf >> deaf; while :; do sleep 0.05; done' & echo $$; wait";
    let run = project.call("run build --ttl 1h").sh(script).start();
    until("both run", || {
        !run.out().is_empty() && project.read("deaf") == "deaf\n"
    });
    let group = run.command();
    project.tenure("force build").exits(0);
    run.ended().exits(7);
    until("the group is gone", || process::members(group).is_empty());
}

#[test]
fn a_stopped_command_is_ended_too() {
    let project = Project::new();
    let run = project.hold("run build --ttl 1h");
    process::signal(run.command(), Signal::STOP);
    project.tenure("force build").exits(0);
    run.ended().exits(7);
}

#[test]
fn a_lease_is_renewed_for_as_long_as_the_command_runs() {
    let project = Project::new();
    let mut run = project.hold("run build --ttl 300ms");
    until("it was renewed three times", || {
        let renewed = project
            .history("build")
            .into_iter()
            .find(|(kind, _, _)| kind == "renewed");
        renewed.is_some_and(|(_, _, event)| event["times"].as_u64().unwrap() >= 3)
    });
    project.tenure("run build --no-wait -- true").exits(6);
    project.tenure("fence build --token 1").exits(0);
    run.let_go();
    run.ended().exits(0);
}

#[test]
fn a_tenure_that_was_stopped_and_overtaken_ends_its_command() {
    let project = Project::new();
    let run = project.hold("run build --as slow --ttl 500ms");
    let command = run.command();
    run.signal(Signal::STOP);
    let said = project
        .tenure("run build --as quick --wait 10m -- sh -c exit")
        .exits(0);
    assert_eq!(said.out, "");
    let quick = project.acquire("build --as other --ttl 1h");
    run.signal(Signal::CONT);
    let said = run.ended().exits(7);
    assert!(
        said.err.contains("other (on") && said.err.contains(&quick.to_string()),
        "{said:?}"
    );
    until("its command is gone", || !process::alive(command));
    assert!(
        project.story("build").contains("expired 1, granted 2"),
        "{}",
        project.story("build")
    );
    project
        .tenure(&format!("fence build --token {quick}"))
        .exits(0);
}

#[test]
fn a_tenure_that_was_stopped_and_not_overtaken_goes_on() {
    let project = Project::new();
    let mut run = project.hold("run build --ttl 400ms");
    run.signal(Signal::STOP);
    until("its lease has run out", || {
        project.verdict("build") == "expired"
    });
    let list = project.tenure("locks list").exits(0).out;
    assert!(list.contains("EXPIRED"), "{list}");
    run.signal(Signal::CONT);
    until("it has renewed its lease", || {
        project.verdict("build") == "alive"
    });
    project.tenure("run build --no-wait -- true").exits(6);
    run.let_go();
    run.ended().exits(0);
    assert!(
        !project.story("build").contains("expired"),
        "{}",
        project.story("build")
    );
}

#[test]
fn a_lease_that_was_cleaned_up_while_its_tenure_was_stopped_is_lost() {
    let project = Project::new();
    let run = project.hold("run build --ttl 300ms");
    run.signal(Signal::STOP);
    until("its lease has run out", || {
        project.verdict("build") == "expired"
    });
    let said = project.tenure("locks cleanup").exits(0);
    assert!(said.out.contains("on build: it expired at "), "{said:?}");
    run.signal(Signal::CONT);
    run.ended().fails(7, &["lost"]);
}

#[test]
fn a_loss_that_is_seen_only_at_the_end_is_said_all_the_same() {
    let project = Project::new();
    // The command takes its own lease away and ends before anybody could notice.
    let script = "$TENURE force build --quiet; exit 0";
    project
        .call("run build")
        .sh(script)
        .end()
        .fails(7, &["lost"]);
}

#[test]
fn a_removed_database_does_not_leave_the_command_running_for_ever() {
    let project = Project::new();
    let run = project.hold("run build --ttl 600ms");
    let command = run.command();
    std::fs::remove_dir_all(project.path(".tenure")).unwrap();
    let said = run.ended().exits(7);
    assert!(said.err.contains("removed or replaced"), "{said:?}");
    until("its command is gone", || !process::alive(command));
}

#[test]
fn a_writer_that_holds_the_database_for_a_moment_does_not_cost_the_lease() {
    let project = Project::new();
    let mut run = project.hold("run build --ttl 2s");
    let db = rusqlite::Connection::open(project.database()).unwrap();
    for _ in 0..3 {
        db.execute_batch("BEGIN EXCLUSIVE").unwrap();
        // The moment that is tested: longer than the pause between two renewals.
        std::thread::sleep(Duration::from_millis(400));
        db.execute_batch("COMMIT").unwrap();
    }
    run.let_go();
    run.ended().exits(0);
    assert!(
        project.story("build").ends_with("released 1"),
        "{}",
        project.story("build")
    );
}

#[test]
fn a_lease_that_can_not_be_renewed_because_the_database_is_busy_ends_its_command_in_time() {
    let project = Project::new();
    project.tenure("tasks add one").exits(0);
    let run = project.hold("run build --ttl 2s");
    let work = project
        .call("tasks work --as me --ttl 2s")
        .sh("echo $$; exec sleep 300")
        .start();
    until("the task is worked on", || work.out().ends_with('\n'));
    let commands = [run.command(), work.command()];
    let db = rusqlite::Connection::open(project.database()).unwrap();
    db.busy_timeout(Duration::from_secs(30)).unwrap();
    db.execute_batch("BEGIN IMMEDIATE").unwrap();
    // The database stays busy until both commands have ended.
    for command in commands {
        until("its command is gone", || !process::alive(command));
    }
    db.execute_batch("ROLLBACK").unwrap();
    let words = ["could not be renewed", "its command was stopped"];
    run.ended().fails(7, &words);
    work.ended().fails(7, &words);
}

#[test]
fn a_key_that_can_not_be_given_back_is_complained_of_and_the_commands_exit_code_passed_on() {
    let project = Project::new();
    for code in [0, 3] {
        let mut run = project
            .call("run build --ttl 1h")
            .input()
            .sh(&format!("echo $$; cat; exit {code}"))
            .start();
        until("the command runs", || run.out().ends_with('\n'));
        let db = rusqlite::Connection::open(project.database()).unwrap();
        db.execute_batch(
            "CREATE TRIGGER refuse BEFORE DELETE ON leases
             BEGIN SELECT RAISE(ABORT, 'not now'); END",
        )
        .unwrap();
        run.let_go();
        run.ended().fails(
            code,
            &[
                "build could not be released",
                "the exit code is the command's",
            ],
        );
        db.execute_batch("DROP TRIGGER refuse").unwrap();
        // The process has exited, so the next one is granted the key.
        project.tenure("run build --no-wait -- true").exits(0);
    }
}

#[test]
fn a_lease_whose_store_is_gone_at_the_end_is_lost() {
    let project = Project::new();
    let mut run = project.hold("run build --ttl 1h");
    process::until_idle(run.pid());
    std::fs::remove_dir_all(project.path(".tenure")).unwrap();
    run.let_go();
    run.ended()
        .fails(7, &["was lost", "removed or replaced", "had just ended"]);
}

#[test]
fn force_is_noticed_by_polling_if_the_holder_can_not_be_woken() {
    // Another user may not write into the holder's pipe, or the folder was removed. The holder polls.
    let project = Project::new();
    let run = project
        .call("run build --ttl 1h")
        .env("TENURE_LOCKING_POLL_INTERVAL", "200ms")
        .sh("echo $$; exec sleep 300")
        .start();
    until("the command runs", || !run.out().is_empty());
    process::until_idle(run.pid());
    std::fs::remove_dir_all(project.path(".tenure/tenure.db-live")).unwrap();
    project.tenure("force build").exits(0);
    run.ended().fails(7, &["lost"]);
}

#[test]
fn a_command_is_not_started_once_its_lease_may_be_over() {
    let project = Project::new();
    // It reports the grant before it starts its command, and is held up there.
    let late = project.call("run build --as late --json --ttl 300ms");
    let (late, mut pipe) = late.sh("echo late >> inside").held_up();
    let late = late.start();
    let shown = || project.tenure("locks show build");
    until("it has the lease", || shown().code == 0);
    let next = project.call("run build --as next");
    let next = next.sh("echo next >> inside; until [ -e go ]; do sleep 0.02; done");
    let next = next.start();
    until("the next holder works", || project.path("inside").exists());
    let reader = std::thread::spawn(move || {
        let mut said = String::new();
        pipe.read_to_string(&mut said).unwrap();
        said
    });
    late.ended().exits(7);
    let said = reader.join().unwrap();
    assert!(said.contains("LEASE_LOST"), "{}", said.trim());
    assert!(said.contains("was not started"), "{}", said.trim());
    assert_eq!(project.read("inside"), "next\n");
    project.write("go", "");
    next.ended().exits(0);
    let story = "granted 1, expired 1, granted 2, released 2";
    assert_eq!(project.story("build"), story);
}

#[test]
fn a_lease_that_expired_is_not_said_to_be_taken_away() {
    let project = Project::new();
    let run = project
        .call("run build --ttl 300ms")
        .sh("echo runs; exec sleep 300");
    let run = run.start();
    until("the command runs", || !run.out().is_empty());
    run.signal(Signal::STOP);
    until("the lease is ended", || {
        project.tenure("locks cleanup").exits(0);
        project.story("build").contains("expired 1")
    });
    run.signal(Signal::CONT);
    let said = run.ended().exits(7);
    assert!(said.err.contains("it expired"), "{said:?}");
    assert!(!said.err.contains("taken away"), "{said:?}");
}
