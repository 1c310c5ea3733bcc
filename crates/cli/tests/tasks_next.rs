//! `tenure tasks next`: the best ready task, for exactly one runner.

use crate::project;

use std::collections::HashSet;
use std::fmt::Write;

use project::{Project, Running, Said, process, until};
use rustix::process::Signal;

/// The id that a command printed.
#[track_caller]
fn id(said: Said) -> String {
    said.exits(0).out.trim().to_owned()
}

/// Adds a task with these words and returns its id.
#[track_caller]
fn add(project: &Project, words: &str) -> String {
    id(project.tenure(&format!("tasks add --quiet {words}")))
}

/// The title of the task that a runner gets.
#[track_caller]
fn next(project: &Project, words: &str) -> String {
    let said = project
        .tenure(&format!("tasks next --json {words}"))
        .exits(0);
    said.json()["data"]["title"].as_str().unwrap().to_owned()
}

#[test]
fn fifty_runners_on_a_thousand_tasks_get_each_exactly_once() {
    let project = Project::new();
    let mut lines = String::new();
    for n in 0..1000 {
        let section = match n % 5 {
            0 | 1 => String::new(),
            _ => format!(",\"section\":\"S{}\"", n % 31),
        };
        let priority = n % 10;
        writeln!(
            lines,
            "{{\"id\":\"t-{n}\",\"title\":\"Task {n}\",\"priority\":{priority}{section}}}"
        )
        .unwrap();
    }
    project.write("tasks.jsonl", &lines);
    project.tenure("tasks import tasks.jsonl").exits(0);
    let script = "while id=$($TENURE tasks next --quiet 2> last-$TENURE_HOLDER); do
        echo $id >> given; done; cat last-$TENURE_HOLDER >&2";
    let runners: Vec<Running> = (0..50)
        .map(|n| {
            let call = project.shell(script);
            call.env("TENURE_HOLDER", format!("runner-{n}")).start()
        })
        .collect();
    // Slow on a busy machine, but it makes progress.
    for given in (50..=1000).step_by(50) {
        until("the next fifty are given", || {
            project.read("given").lines().count() >= given
        });
    }
    for runner in runners {
        let said = runner.ended().exits(0);
        let none = ["other runners hold", "you already hold"];
        assert!(
            none.iter().any(|words| said.err.contains(words)),
            "{said:?}"
        );
    }
    let given = project.read("given");
    let given: Vec<&str> = given.lines().collect();
    let different: HashSet<&str> = given.iter().copied().collect();
    assert_eq!((given.len(), different.len()), (1000, 1000));
    // No section has two runners.
    let listed = project
        .tenure("tasks list --limit 0 --json")
        .exits(0)
        .json();
    let mut runners_of = std::collections::HashMap::new();
    for task in listed["data"]["tasks"].as_array().unwrap() {
        assert_eq!(task["status"], "in_progress");
        if let Some(section) = task["section"].as_str() {
            let runner = task["holder"].as_str().unwrap().to_owned();
            let first = runners_of
                .entry(section.to_owned())
                .or_insert_with(|| runner.clone());
            assert_eq!(*first, runner, "{section}");
        }
    }
}

#[test]
fn the_highest_priority_comes_first_then_the_oldest() {
    let project = Project::new();
    add(&project, "old");
    add(&project, "new");
    add(&project, "low --priority 0");
    add(&project, "high --priority 9");
    add(&project, "higher-but-waits --priority 9 --depends-on low");
    let order: Vec<String> = (0..4)
        .map(|n| next(&project, &format!("--as runner-{n}")))
        .collect();
    assert_eq!(order, ["high", "old", "new", "low"]);
    project.tenure("tasks next --as last").exits(6);
    project
        .tenure("tasks update low --status skipped --as runner-3")
        .exits(0);
    assert_eq!(next(&project, "--as last"), "higher-but-waits");
}

#[test]
fn the_commands_that_come_next_are_printed_in_columns() {
    let project = Project::new();
    add(&project, "one");
    let said = project.tenure("tasks next --as agent-1").exits(0).out;
    let ends = ["when it is", "before it", "if it can't", "to leave it"];
    let columns: Vec<Option<usize>> = ends
        .iter()
        .map(|end| said.lines().find_map(|line| line.find(end)))
        .collect();
    assert!(columns[0].is_some(), "{said}");
    assert!(columns.iter().all(|column| *column == columns[0]), "{said}");
}

#[test]
fn a_runner_keeps_its_section_and_avoids_sections_of_other_runners() {
    let project = Project::new();
    project.tenure("sections add S").exits(0);
    add(&project, "s1 --section S --priority 9");
    add(&project, "s2 --section S --priority 8");
    add(&project, "loose --priority 1");
    assert_eq!(next(&project, "--as a"), "s1");
    assert_eq!(next(&project, "--as b"), "loose");
    project
        .tenure("tasks update s1 --status completed --as a")
        .exits(0);
    project.tenure("tasks next --as b").exits(6);
    assert_eq!(next(&project, "--as a"), "s2");
    project
        .tenure("tasks update s2 --status failed --as a")
        .exits(0);
    // Only b's own task is left.
    assert_eq!(
        project.tenure("tasks next --as a --json").exits(6).error(),
        "TASKS_LOCKED"
    );
    project
        .tenure("tasks update loose --status completed --as b")
        .exits(0);
    assert_eq!(project.tenure("locks list").out, "No locks.\n");
}

#[test]
fn each_reason_for_no_task_has_its_own_code() {
    let project = Project::new();
    let none = |exit: i32, code: &str, words: &[&str]| {
        let said = project.tenure("tasks next --as me --json").exits(exit);
        assert_eq!(said.error(), code);
        assert_eq!(said.err, "");
        project.tenure("tasks next --as me").fails(exit, words);
    };
    // No task exists.
    none(4, "NO_TASK_LEFT", &["no task is left", "tenure tasks add"]);

    add(&project, "one");
    add(&project, "two --depends-on one");
    project.tenure("tasks next --as other").exits(0);
    none(6, "TASKS_LOCKED", &["other runners hold", "other", "until"]);
    let said = project.tenure("tasks next --as me --json").exits(6).json();
    assert_eq!(said["error"]["details"]["leases"][0]["holder"], "other");

    project
        .tenure("tasks update one --status review --as other")
        .exits(0);
    none(
        4,
        "TASKS_BLOCKED",
        &["\"two\" waits for \"one\" (review)", "no runner works on"],
    );

    project
        .tenure("tasks update one --status failed --as other")
        .exits(0);
    none(4, "TASKS_BLOCKED", &["\"one\" (failed)"]);

    project
        .tenure("tasks update two --status skipped --as other")
        .exits(0);
    none(4, "NO_TASK_LEFT", &["no task is left"]);

    project
        .tenure("tasks update one --status pending --as other")
        .exits(0);
    // Attempts enough for the pause after the next one to be a minute.
    let db = rusqlite::Connection::open(project.database()).unwrap();
    db.execute("UPDATE tasks SET attempts = 50", []).unwrap();
    let fail = "echo sorry >&2; exit 3";
    let work = project.call("tasks work --as other --retries 100 --no-wait");
    work.sh(fail).end().exits(6);
    none(6, "TASKS_LATER", &["retried at"]);
}

#[test]
fn a_runner_that_holds_every_remaining_task_is_told_so() {
    let project = Project::new();
    add(&project, "one");
    project.tenure("tasks next --as me").exits(0);
    let said = project.tenure("tasks next --as me");
    assert!(
        !said.err.contains("other runners"),
        "there are no others: {said:?}"
    );
}

#[test]
fn quiet_prints_only_the_id_and_json_has_the_token() {
    let project = Project::new();
    let one = add(&project, "one");
    let said = project.tenure("tasks next --as a --quiet").exits(0);
    assert_eq!((said.out, said.err), (format!("{one}\n"), String::new()));
    let two = add(&project, "two");
    let said = project.tenure("tasks next --as a --json").exits(0);
    let json = said.json();
    assert_eq!(json["success"], true);
    assert_eq!(json["command"], "tasks");
    assert_eq!(json["subcommand"], "next");
    let data = &json["data"];
    assert_eq!(data["id"], two);
    assert_eq!(data["holder"], "a");
    assert_eq!(data["reason"], "acquired_new");
    let token = data["token"].as_u64().unwrap();
    let shown = project
        .tenure(&format!("locks show task:{two} --json"))
        .json();
    assert_eq!(shown["data"]["leases"][0]["token"], token);
    assert_eq!(shown["data"]["leases"][0]["expiresAt"], data["expiresAt"]);
    // The token is enough to finish it.
    project
        .tenure(&format!(
            "tasks update two --status completed --token {token}"
        ))
        .exits(0);
}

/// A project whose waiters hardly ever poll, so that only a wake-up ends a wait.
fn with_rare_polls() -> Project {
    let project = Project::new();
    project.write(".tenure/config.yaml", "locking:\n  pollInterval: 60m\n");
    project
}

const WAITS: &str = "tasks next --as waiter --wait 10m --quiet";

#[test]
fn a_wait_is_ended_by_a_task_that_is_added() {
    let project = with_rare_polls();
    let waiter = project.queue("task:*", WAITS);
    let one = add(&project, "one");
    assert_eq!(id(waiter.ended()), one);
}

#[test]
fn a_wait_is_ended_by_an_import() {
    let project = with_rare_polls();
    let waiter = project.queue("task:*", WAITS);
    project.write("tasks.jsonl", "{\"id\":\"imported\",\"title\":\"x\"}\n");
    project.tenure("tasks import tasks.jsonl").exits(0);
    assert_eq!(id(waiter.ended()), "imported");
}

#[test]
fn a_wait_is_ended_by_the_end_of_a_dependency() {
    let project = with_rare_polls();
    add(&project, "one");
    let two = add(&project, "two --depends-on one");
    project.tenure("tasks next --as other").exits(0);
    let waiter = project.queue("task:*", WAITS);
    project
        .tenure("tasks update one --status completed --as other")
        .exits(0);
    assert_eq!(id(waiter.ended()), two);
}

#[test]
fn a_wait_is_ended_by_a_dependency_that_is_removed() {
    let project = with_rare_polls();
    add(&project, "one");
    let two = add(&project, "two --depends-on one");
    project.tenure("tasks next --as other").exits(0);
    let waiter = project.queue("task:*", WAITS);
    project
        .tenure("tasks update two --no-depends-on one")
        .exits(0);
    assert_eq!(id(waiter.ended()), two);
}

/// A section of two tasks; `other` works on the first one.
fn section_in_progress(project: &Project) -> (String, String) {
    let section = id(project.tenure("sections add S --quiet"));
    add(project, "one --section S");
    let two = add(project, "two --section S");
    (section, two)
}

#[test]
fn a_wait_is_ended_by_a_section_that_is_released() {
    let project = with_rare_polls();
    let (section, two) = section_in_progress(&project);
    project.tenure("tasks next --as other").exits(0);
    let waiter = project.queue("task:*", WAITS);
    project
        .tenure("tasks update one --status completed --as other")
        .exits(0);
    project
        .tenure(&format!("release section:{section} --as other"))
        .exits(0);
    assert_eq!(id(waiter.ended()), two);
}

#[test]
fn a_wait_is_ended_by_a_section_that_its_runner_leaves() {
    let project = with_rare_polls();
    let (_, two) = section_in_progress(&project);
    project.tenure("tasks next --as other").exits(0);
    let waiter = project.queue("task:*", WAITS);
    project
        .tenure("tasks update one --status completed --as other")
        .exits(0);
    // Its runner cannot work on the rest of the section.
    project
        .tenure("tasks update two --section= --priority 9")
        .exits(0);
    assert_eq!(id(waiter.ended()), two);
}

#[test]
fn a_wait_is_ended_by_force() {
    let project = with_rare_polls();
    let one = add(&project, "one");
    project.tenure("tasks next --as other").exits(0);
    let waiter = project.queue("task:*", WAITS);
    project.tenure(&format!("force task:{one}")).exits(0);
    assert_eq!(id(waiter.ended()), one);
}

#[test]
fn a_wait_is_ended_by_the_death_of_a_runner() {
    let project = with_rare_polls();
    let (_, two) = section_in_progress(&project);
    let runner = project
        .call("tasks work --as other")
        .sh("echo $$; exec sleep 300")
        .start();
    until("it works", || runner.out().ends_with('\n'));
    let waiter = project.queue("task:*", WAITS);
    runner.killed().exits(137);
    let given = id(waiter.ended());
    assert_ne!(given, two, "the task in progress is the older one");
}

#[test]
fn a_wait_is_ended_by_the_death_of_a_process_that_a_lock_is_tied_to() {
    let project = with_rare_polls();
    let one = add(&project, "one");
    let mut agent = project.program("sleep").arg("300").spawn().unwrap();
    project
        .tenure(&format!("tasks next --as other --pid {}", agent.id()))
        .exits(0);
    let waiter = project.queue("task:*", WAITS);
    process::signal(agent.id(), Signal::KILL);
    agent.wait().unwrap();
    assert_eq!(id(waiter.ended()), one);
    let story = project.story(&format!("task:{one}"));
    assert_eq!(story, "granted 1, dead 1, granted 2");
}

#[test]
fn a_wait_is_ended_by_the_expiry_of_a_lock() {
    let project = with_rare_polls();
    let one = add(&project, "one");
    project.tenure("tasks next --as other --ttl 700ms").exits(0);
    let waiter = project.start(WAITS);
    assert_eq!(id(waiter.ended()), one);
    let story = project.story(&format!("task:{one}"));
    assert_eq!(story, "granted 1, expired 1, granted 2");
}

#[test]
fn a_wait_is_ended_when_a_failed_task_is_retried() {
    let project = with_rare_polls();
    let one = add(&project, "one");
    project
        .tenure("tasks work --as other --retries 1 --no-wait -- false")
        .exits(6);
    assert_eq!(id(project.tenure(WAITS)), one);
}

#[test]
fn a_failed_task_is_ready_again_after_its_delay() {
    let project = Project::new();
    add(&project, "one");
    project
        .tenure("tasks work --as other --retries 1 --no-wait -- false")
        .exits(6);
    until("it is ready again", || {
        let ready = project.tenure("tasks list --ready --json").exits(0).json();
        ready["data"]["tasks"].as_array().unwrap().len() == 1
    });
    let list = project.tenure("tasks list").exits(0).out;
    assert!(!list.contains("retried later"), "{list}");
}

#[test]
fn waiting_runners_are_served_in_order() {
    let project = with_rare_polls();
    let waiters: Vec<Running> = (1..=4)
        .map(|n| {
            project.queue(
                "task:*",
                &format!("tasks next --as waiter-{n} --wait 10m --quiet"),
            )
        })
        .collect();
    for waiter in waiters {
        let added = add(&project, "again");
        assert_eq!(id(waiter.ended()), added);
    }
}

#[test]
fn one_import_serves_many_waiting_runners() {
    let project = with_rare_polls();
    let waiters: Vec<Running> = (1..=6)
        .map(|n| {
            project.queue(
                "task:*",
                &format!("tasks next --as waiter-{n} --wait 10m --quiet"),
            )
        })
        .collect();
    let lines: String = (1..=6).fold(String::new(), |mut lines, n| {
        let _ = writeln!(lines, "{{\"title\":\"task {n}\"}}");
        lines
    });
    project.write("tasks.jsonl", &lines);
    project.tenure("tasks import tasks.jsonl").exits(0);
    let given: HashSet<String> = waiters
        .into_iter()
        .map(|waiter| id(waiter.ended()))
        .collect();
    assert_eq!(given.len(), 6);
}

#[test]
fn a_wait_that_times_out_or_is_interrupted_leaves_no_ticket() {
    let project = Project::new();
    let said = project.tenure("tasks next --wait 50ms").exits(4);
    assert!(said.err.contains("no task is left"), "{said:?}");
    add(&project, "one");
    project.tenure("tasks next --as other").exits(0);
    project.tenure("tasks next --wait 50ms").exits(6);
    let waiter = project.queue("task:*", WAITS);
    waiter.signal(Signal::INT);
    waiter.ended().fails(130, &[]);
    assert!(project.waiting("task:*").is_empty());
    let locks = project.tenure("locks list").exits(0).out;
    assert!(!locks.contains("task:*"), "{locks}");
}

#[test]
fn a_signal_that_arrives_with_the_task_is_not_lost() {
    // While stopped, the waiter misses both events: when it continues, the task is free and the
    // signal is pending.
    let project = Project::new();
    project.tenure("sections add S").exits(0);
    let one = add(&project, "one --section S");
    let section = project.tenure("tasks show one --json").json()["data"]["sectionId"].clone();
    let section = format!("section:{}", section.as_str().unwrap());
    for round in 0..3 {
        for (key, words) in [
            ("task:*", "tasks next --as waiter --wait 10m"),
            (
                section.as_str(),
                "tasks update one --status in_progress --as waiter",
            ),
            ("task:*", "tasks work --as waiter -- touch ran"),
        ] {
            project
                .tenure("tasks update one --status in_progress --as other")
                .exits(0);
            let waiter = project.queue(key, words);
            waiter.signal(Signal::STOP);
            project
                .tenure("tasks update one --status pending --as other")
                .exits(0);
            waiter.signal(Signal::TERM);
            waiter.signal(Signal::CONT);
            let said = waiter.ended();
            assert_eq!(said.code, 143, "round {round}, {words}: {said:?}");
            assert!(!project.path("ran").exists(), "{words}");
            assert_eq!(project.verdict(&format!("task:{one}")), "free", "{words}");
            assert_eq!(project.verdict(&section), "free", "{words}");
            let shown = project.tenure("tasks show one --json").exits(0).json();
            assert_eq!(shown["data"]["status"], "pending", "{words}");
        }
    }
}

#[test]
fn the_progress_bar_fits_one_line_and_is_as_long_as_the_documented_one_where_there_is_room() {
    let project = Project::new();
    project.tenure("sections add S").exits(0);
    add(&project, "one --section S");
    project.tenure("tasks next --as another-runner").exits(0);
    for (command, columns, cells) in [
        ("tasks next --as me --wait 1s", 80, 26),
        (
            "tasks update one --status in_progress --as me --wait 1s",
            80,
            26,
        ),
        ("tasks next --as me --wait 1s", 64, 26),
        ("tasks next --as me --wait 1s", 63, 12),
        ("tasks next --as me --wait 1s", 40, 12),
    ] {
        let line = format!("stty cols {columns} rows 24; exec $TENURE {command}");
        let mut script = project.program("script");
        script
            .args(["--quiet", "--return", "--command", &line, "/dev/null"])
            .env("SHELL", "/bin/sh")
            .env("TERM", "xterm");
        let said = project.prepare(script).input().end().exits(6);
        let bars: Vec<&str> = said
            .out
            .split(['\r', '\n'])
            .filter(|part| part.contains(" elapsed, "))
            .collect();
        assert!(!bars.is_empty(), "{said:?}");
        for bar in bars {
            let bar = bar.trim_start_matches("\x1b[2K");
            let bar = bar.split('\x1b').next().unwrap().trim_end();
            assert!(bar.chars().count() <= columns, "{command}: {bar:?}");
            let inside = bar.trim_start_matches('[').split(']').next().unwrap();
            assert_eq!(inside.chars().count(), cells, "{columns} columns: {bar:?}");
        }
    }
}

#[test]
fn a_task_is_put_back_if_the_answer_cannot_be_written() {
    let project = Project::new();
    add(&project, "one");
    for words in [
        "tasks next --as me",
        "tasks update one --status in_progress --as me",
    ] {
        let said = project
            .shell(&format!("$TENURE {words} > /dev/full"))
            .end()
            .exits(1);
        assert!(said.err.contains("could not be written"), "{said:?}");
        assert_eq!(project.tenure("locks list").out, "No locks.\n", "{words}");
        let shown = project.tenure("tasks show one --json").exits(0).json();
        assert_eq!(shown["data"]["status"], "pending", "{words}");
    }
}

#[test]
fn a_wrong_pid_or_time_to_live_starts_nothing() {
    let project = Project::new();
    add(&project, "one");
    for (words, code) in [
        ("--pid 4194305", 4),
        ("--pid 0", 2),
        ("--ttl 0s", 2),
        ("--ttl never", 2),
        ("--wait soon", 2),
        ("--wait 1s --no-wait", 2),
    ] {
        let said = project.tenure(&format!("tasks next --as me {words}"));
        assert_eq!(said.code, code, "{words}: {said:?}");
        assert!(said.err.contains("rror: "), "{said:?}");
    }
    assert_eq!(project.tenure("locks list").out, "No locks.\n");
    assert_eq!(next(&project, "--as me"), "one");
}

#[test]
fn next_prints_the_commands_that_follow_and_they_work() {
    let project = Project::new();
    for name in ["--as agent-1", ""] {
        for verb in ["done", "renew", "fail", "release"] {
            project.call("tasks add").arg("Fix bug").end().exits(0);
            let script = format!(
                "$TENURE tasks next {name} > next; cat next; sed -n 's/^.*tenure tasks {verb}/$TENURE tasks {verb}/p' next \
                 | sed 's/   .*//' > command; . ./command; exit $?"
            );
            let said = project.shell(&script).end().exits(0);
            let id = said.out.lines().find_map(|line| line.strip_prefix("Id:"));
            let id = id.unwrap().trim();
            let task = project
                .tenure(&format!("tasks show {id} --json"))
                .exits(0)
                .json();
            let status = match verb {
                "done" => "completed",
                "renew" => "in_progress",
                "fail" => "failed",
                _ => "pending",
            };
            assert_eq!(task["data"]["status"], status, "{said:?}");
            assert_eq!(task["data"]["lock"].is_null(), verb != "renew", "{task}");
            // Only one that was renewed is still held.
            let _freed = project.tenure(&format!("force task:{id}"));
            project.tenure(&format!("tasks delete {id}")).exits(0);
        }
    }
}

#[test]
fn a_task_that_is_held_shows_since_when_and_until_when_and_its_lock_shows_its_title() {
    let project = Project::new();
    project.call("tasks add").arg("Fix bug").end().exits(0);
    let list = project.tenure("tasks list").exits(0).out;
    assert!(!list.contains("SINCE"), "{list}");
    project.tenure("tasks next --as me --ttl 10m").exits(0);
    let list = project.tenure("tasks list").exits(0).out;
    let (head, row) = list.split_once('\n').unwrap();
    assert!(
        head.contains("HOLDER  SINCE") && head.contains("UNTIL"),
        "{list}"
    );
    assert!(row.contains(" ago  9m "), "{list}");
    let locks = project.tenure("locks list").exits(0).out;
    assert!(locks.lines().next().unwrap().ends_with("TITLE"), "{locks}");
    assert!(locks.contains("Fix bug"), "{locks}");
}

#[test]
fn a_runner_resumes_the_task_that_it_has() {
    let project = Project::new();
    for title in ["One", "Two", "Three"] {
        project.tenure(&format!("tasks add {title}")).exits(0);
    }
    let next = |words: &str| {
        let said = project
            .tenure(&format!("tasks next --json {words}"))
            .exits(0);
        let data = said.json()["data"].clone();
        (data["title"].clone(), data["token"].clone())
    };
    let (title, token) = next("--as a --resume");
    assert_eq!(title, "One");
    // Without the option it gets another one; with it, the one that it has.
    assert_eq!(next("--as a").0, "Two");
    assert_eq!(next("--as a --resume"), (title, token));
    // What another runner has is not resumed.
    assert_eq!(next("--as b --resume").0, "Three");
    project.tenure("tasks done One --as a").exits(0);
    assert_eq!(next("--as a --resume").0, "Two");
}
