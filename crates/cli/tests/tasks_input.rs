//! Wrong input to `tenure tasks`: a clear answer, no change, no panic.

use crate::project;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;

use project::daemon::Detached;
use project::{Project, Said, until};
use serde_json::json;

/// Adds a task and returns its id.
#[track_caller]
fn add(project: &Project, words: &[&str]) -> String {
    let mut call = project.call("tasks add --quiet");
    for word in words {
        call = call.arg(word);
    }
    call.end().exits(0).out.trim().to_owned()
}

/// Calls tenure with exactly these arguments.
fn tenure(project: &Project, words: &[&str]) -> Said {
    let mut call = project.call("");
    for word in words {
        call = call.arg(word);
    }
    call.end()
}

/// Everything that a command could change.
fn state(project: &Project) -> (String, String, String, String) {
    let said = |words: &str| project.tenure(words).out;
    (
        said("tasks export"),
        said("sections list"),
        said("locks history --json"),
        said("tasks list --json"),
    )
}

/// Checks that a call fails with this code and these texts, as text and as JSON, and changes nothing.
#[track_caller]
fn refused(project: &Project, words: &[&str], exit: i32, code: &str, texts: &[&str]) {
    let before = state(project);
    let said = tenure(project, words).fails(exit, texts);
    assert_eq!(said.out, "", "{words:?}");
    // The argument parser begins its messages with "error:".
    let start = said.err.to_lowercase();
    assert!(start.starts_with("error: "), "{words:?}: {said:?}");
    let with_json: Vec<&str> = words.iter().copied().chain(["--json"]).collect();
    let first: Vec<&str> = ["--json"]
        .into_iter()
        .chain(words.iter().copied())
        .collect();
    for words in [&with_json, &first] {
        let said = tenure(project, words).exits(exit);
        assert_eq!(said.error(), code, "{words:?}");
        assert_eq!(said.err, "", "{words:?}");
    }
    assert_eq!(state(project), before, "{words:?} changed something");
}

/// A project with tasks that are easily confused.
fn populated() -> Project {
    let project = Project::new();
    project.tenure("sections add Backend").exits(0);
    add(&project, &["one", "--section", "Backend"]);
    add(&project, &["two", "--depends-on", "one"]);
    add(&project, &["three", "--depends-on", "two"]);
    add(&project, &["same"]);
    add(&project, &["same", "--section", "Backend"]);
    add(&project, &["Same"]);
    project
}

#[test]
fn bad_titles_and_names_are_refused() {
    let project = populated();
    let long = "x".repeat(501);
    let huge = "x".repeat(100_000);
    for (title, told) in [
        ("", "empty"),
        ("   ", "empty"),
        ("two\nlines", "control character"),
        ("tab\there", "control character"),
        ("\x1b[31mred", "control character"),
        ("nul\u{85}next", "control character"),
        (long.as_str(), "long"),
        (huge.as_str(), "long"),
    ] {
        refused(&project, &["tasks", "add", title], 2, "BAD_TEXT", &[told]);
        refused(
            &project,
            &["sections", "add", title],
            2,
            "BAD_TEXT",
            &[told],
        );
        refused(
            &project,
            &["tasks", "update", "one", "--title", title],
            2,
            "BAD_TEXT",
            &[told],
        );
    }
    let description = "x".repeat(64 * 1024 + 1);
    for description in [description.as_str(), "\x1b[2J"] {
        let words = ["tasks", "add", "x", "--description", description];
        refused(&project, &words, 2, "BAD_TEXT", &["description"]);
        let words = ["tasks", "update", "one", "--description", description];
        refused(&project, &words, 2, "BAD_TEXT", &["description"]);
    }
}

#[test]
fn titles_at_the_limits_are_accepted() {
    let project = Project::new();
    let long = "é".repeat(250);
    for title in [
        long.as_str(),
        "日本語のタスク",
        "quote \" and ' and \\",
        "-- dashes",
        "task:1",
        "🦀",
        "null",
        "50% done_or not",
    ] {
        let id = {
            let call = project.call("tasks add --quiet --").arg(title);
            call.end().exits(0).out.trim().to_owned()
        };
        let said = project
            .call("tasks show --json --")
            .arg(title)
            .end()
            .exits(0);
        assert_eq!(said.json()["data"]["id"], id.as_str(), "{title}");
        project.call("tasks show --").arg(title).end().exits(0);
    }
    project.tenure("tasks list").exits(0);
}

#[test]
fn text_that_is_not_utf_8_is_refused() {
    let project = populated();
    let before = state(&project);
    let bad = OsStr::from_bytes(b"\xff\xfe");
    for words in [
        "tasks add",
        "tasks show",
        "sections add",
        "tasks update --status completed",
    ] {
        let said = project.call(words).arg(bad).end();
        assert_eq!(said.code, 2, "{words}: {said:?}");
    }
    assert_eq!(state(&project), before);
}

#[test]
fn a_title_of_several_tasks_is_refused_with_the_candidates() {
    let project = Project::new();
    project.tenure("sections add Backend").exits(0);
    let one = add(&project, &["same"]);
    let two = add(&project, &["same", "--section", "Backend"]);
    let other = add(&project, &["SAME"]);
    for words in [
        ["tasks", "show", "same"].as_slice(),
        &["tasks", "update", "same", "--status", "completed"],
        &[
            "tasks",
            "update",
            "same",
            "--status",
            "in_progress",
            "--no-wait",
        ],
        &["tasks", "add", "x", "--depends-on", "same"],
    ] {
        refused(
            &project,
            words,
            2,
            "AMBIGUOUS",
            &["\"same\"", &one, &two, "in Backend"],
        );
        let said = tenure(&project, words);
        assert!(!said.err.contains(&other), "spelled otherwise: {said:?}");
    }
    let said = project.tenure("tasks show same --json").exits(2).json();
    assert_eq!(said["error"]["details"]["candidates"], json!([one, two]));
    // An exact match wins over other spellings, and an id is always unique.
    let said = project.tenure("tasks show SAME --json").exits(0).json();
    assert_eq!(said["data"]["id"], other.as_str());
    project.tenure("tasks show Same").exits(2);
    for id in [&one, &two, &other] {
        let said = project.tenure(&format!("tasks show {id} --json")).exits(0);
        assert_eq!(said.json()["data"]["id"], id.as_str());
    }
}

#[test]
fn a_unique_prefix_of_an_id_is_enough() {
    let project = Project::new();
    project.write(
        "tasks",
        "{\"id\":\"abcd-1\",\"title\":\"one\"}\n{\"id\":\"abcd-2\",\"title\":\"two\"}\n{\"id\":\"abcd\",\"title\":\"three\"}\n\
         {\"id\":\"efgh-1\",\"title\":\"abcd-2\"}\n{\"id\":\"q%_\",\"title\":\"odd\"}\n",
    );
    project.tenure("tasks import tasks").exits(0);
    let found = |given: &str| {
        let said = project.call("tasks show --json --").arg(given).end();
        match said.code {
            0 => said.json()["data"]["title"].as_str().unwrap().to_owned(),
            _ => said.error(),
        }
    };
    assert_eq!(found("abcd-1"), "one");
    assert_eq!(found("task:abcd-1"), "one");
    assert_eq!(found("abcd"), "three", "an id wins over a prefix");
    assert_eq!(found("abcd-"), "AMBIGUOUS");
    assert_eq!(found("abcd-2"), "two", "an id wins over a title");
    assert_eq!(found("efgh"), "abcd-2");
    assert_eq!(found("efg"), "TASK_NOT_FOUND", "too short for a prefix");
    assert_eq!(found("%___"), "TASK_NOT_FOUND");
    assert_eq!(found("ONE"), "one");
    assert_eq!(found(""), "TASK_NOT_FOUND");
    assert_eq!(found("task:"), "TASK_NOT_FOUND");
    assert_eq!(found("*"), "TASK_NOT_FOUND");
}

#[test]
fn unknown_tasks_and_sections_exit_with_4() {
    let project = populated();
    for words in [
        ["tasks", "show", "nothing"].as_slice(),
        &["tasks", "update", "nothing", "--status", "completed"],
        &["tasks", "update", "nothing", "--status", "in_progress"],
        &["tasks", "update", "nothing", "--priority", "3"],
        &["tasks", "update", "one", "--depends-on", "nothing"],
        &["tasks", "update", "one", "--no-depends-on", "nothing"],
        &["tasks", "add", "x", "--depends-on", "nothing"],
    ] {
        refused(
            &project,
            words,
            4,
            "TASK_NOT_FOUND",
            &["\"nothing\"", "tenure tasks list"],
        );
    }
    for words in [
        ["tasks", "add", "x", "--section", "nothing"].as_slice(),
        &["tasks", "update", "one", "--section", "nothing"],
        &["tasks", "list", "--section", "nothing"],
    ] {
        refused(
            &project,
            words,
            4,
            "SECTION_NOT_FOUND",
            &["\"nothing\"", "sections"],
        );
    }
}

#[test]
fn a_section_of_the_same_name_is_refused() {
    let project = populated();
    for name in ["Backend", "backend", "BACKEND"] {
        let words = ["sections", "add", name];
        let said = tenure(&project, &words);
        assert!(matches!(said.code, 1 | 2), "{said:?}");
        refused(&project, &words, said.code, "SECTION_EXISTS", &["Backend"]);
    }
}

#[test]
fn wrong_arguments_exit_with_2() {
    let project = populated();
    for (words, told) in [
        (["tasks", "update", "one"].as_slice(), "nothing to change"),
        (&["tasks", "update", "one", "--status", "gone"], "pending"),
        (
            &["tasks", "update", "one", "--status", "In_Progress"],
            "in_progress",
        ),
        (&["tasks", "update", "one", "--status", ""], "pending"),
        (
            &[
                "tasks",
                "update",
                "one",
                "--status",
                "completed",
                "--error",
                "x",
            ],
            "--status failed",
        ),
        (
            &["tasks", "update", "one", "--error", "x"],
            "--status failed",
        ),
        (
            &[
                "tasks",
                "update",
                "one",
                "--status",
                "in_progress",
                "--title",
                "x",
            ],
            "another command",
        ),
        (
            &[
                "tasks",
                "update",
                "one",
                "--status",
                "in_progress",
                "--priority",
                "1",
            ],
            "another command",
        ),
        (&["tasks", "update", "one", "--priority", "10"], "0"),
        (
            &[
                "tasks",
                "update",
                "one",
                "--wait",
                "1m",
                "--no-wait",
                "--status",
                "in_progress",
            ],
            "--no-wait",
        ),
        (&["tasks", "update"], "ID_OR_TITLE"),
        (&["tasks", "add", "x", "--priority", "high"], "0"),
        (&["tasks", "add", "x", "--priority", "-1"], "-1"),
        (&["tasks", "add", "x", "--priority", "10"], "9"),
        (&["tasks", "add"], "TITLE"),
        (&["tasks", "add", "x", "y"], "y"),
        (&["tasks", "list", "--status", "open"], "pending"),
        (&["tasks", "list", "--limit", "-1"], "-1"),
        (&["tasks", "list", "--limit", "many"], "limit"),
        (
            &["tasks", "list", "--ready", "--status", "failed"],
            "--ready",
        ),
        (&["tasks", "next", "one"], "one"),
        (&["tasks", "work"], "CMD"),
        (&["tasks", "work", "--retries", "-1", "--", "true"], "-1"),
        (
            &["tasks", "work", "--wait", "1m", "--no-wait", "--", "true"],
            "--no-wait",
        ),
        (&["sections", "add"], "NAME"),
        (&["sections", "remove", "x"], "remove"),
        (&["tasks", "remove", "x"], "remove"),
    ] {
        // Arguments after -- belong to the command.
        if words.contains(&"--") {
            let said = tenure(&project, words).fails(2, &[told]);
            assert_eq!(said.out, "");
            continue;
        }
        refused(&project, words, 2, "USAGE", &[told]);
    }
    refused(
        &project,
        &[
            "tasks",
            "update",
            "one",
            "--status",
            "in_progress",
            "--ttl",
            "0s",
        ],
        2,
        "BAD_TTL",
        &["time to live"],
    );
    refused(
        &project,
        &["tasks", "next", "--as", "two words\n"],
        2,
        "BAD_NAME",
        &["holder"],
    );
}

#[test]
fn a_dependency_cycle_is_refused() {
    let project = populated();
    for (task, on) in [("one", "one"), ("one", "two"), ("one", "three")] {
        let words = ["tasks", "update", task, "--depends-on", on];
        refused(&project, &words, 2, "CIRCULAR_DEPENDENCY", &["one"]);
    }
    // Unless the same command removes the dependency that closes the cycle.
    let words = ["tasks", "update", "two", "--no-depends-on", "one"];
    tenure(&project, &words).exits(0);
    let words = ["tasks", "update", "one", "--depends-on", "two"];
    tenure(&project, &words).exits(0);
}

#[test]
fn a_blocked_task_cannot_be_started() {
    let project = populated();
    let words = ["tasks", "update", "three", "--status", "in_progress"];
    refused(
        &project,
        &words,
        5,
        "TASK_BLOCKED",
        &["\"three\"", "waits for \"two\" (pending)"],
    );
    for status in ["review", "failed", "in_progress"] {
        project
            .tenure(&format!("tasks update one --status {status} --as me"))
            .exits(0);
        let words = ["tasks", "update", "two", "--status", "in_progress"];
        refused(&project, &words, 5, "TASK_BLOCKED", &[status]);
    }
    project
        .tenure("tasks update one --status skipped --as me")
        .exits(0);
    project
        .tenure("tasks update two --status in_progress --as me")
        .exits(0);
}

#[test]
fn a_status_is_not_set_if_another_change_is_refused() {
    let project = populated();
    project
        .tenure("tasks update one --status in_progress --as me")
        .exits(0);
    for rest in [
        ["--title", ""],
        ["--title", "two\nlines"],
        ["--description", "\x1b"],
        ["--depends-on", "three"],
    ] {
        let before = state(&project);
        let words = [
            "tasks",
            "update",
            "one",
            "--as",
            "me",
            "--status",
            "completed",
            rest[0],
            rest[1],
        ];
        let said = tenure(&project, &words).exits(2);
        assert_eq!(state(&project), before, "{rest:?}: {said:?}");
    }
}

#[test]
fn a_status_and_other_changes_are_made_together() {
    let project = populated();
    let words = "tasks update one --as me --status review --title uno --priority 9 --section=";
    project.tenure(words).exits(0);
    let shown = project.tenure("tasks show uno --json").exits(0).json();
    assert_eq!(shown["data"]["status"], "review");
    assert_eq!(shown["data"]["priority"], 9);
    assert_eq!(shown["data"]["section"], json!(null));
}

#[test]
fn a_task_in_progress_stays_in_its_section() {
    let project = populated();
    project
        .tenure("tasks update one --status in_progress --as me")
        .exits(0);
    let words = ["tasks", "update", "one", "--section", ""];
    refused(&project, &words, 6, "TASK_LOCKED", &["locked by runner me"]);
}

#[test]
fn without_a_project_every_command_exits_with_3() {
    let project = Project::uninitialised();
    for words in [
        "tasks add x",
        "tasks list",
        "tasks show x",
        "tasks update x --status completed",
        "tasks next",
        "tasks work -- true",
        "tasks import -",
        "tasks export",
        "sections add x",
        "sections list",
        "sections rm x",
    ] {
        project.tenure(words).fails(3, &["tenure init"]);
        let (command, rest) = words.split_once(' ').unwrap();
        let said = project.tenure(&format!("{command} --json {rest}")).exits(3);
        assert_eq!(said.error(), "NOT_INITIALISED", "{words}");
        assert_eq!(said.err, "");
    }
    assert!(!project.path(".tenure").exists());
}

#[test]
fn flags_are_honoured_at_every_position() {
    let project = populated();
    for words in [
        "--json tasks list",
        "tasks --json list",
        "tasks list --json",
        "--json sections list",
        "sections --json list",
        "sections list --json",
        "--json tasks show one",
        "tasks show --json one",
        "tasks show one --json",
        "--json tasks next --as a",
        "tasks --json next --as b",
        "tasks next --as c --json",
        "tasks --json update one --priority 3",
        "--json tasks work --no-wait --as a -- true",
        "tasks --json work --no-wait --as a -- true",
        "--json tasks export",
    ] {
        let said = project.tenure(words);
        assert!(
            said.out.starts_with("{\n  \"success\""),
            "{words}: {said:?}"
        );
        assert_eq!(said.err, "", "{words}");
    }
    for words in [
        "--quiet tasks update three --priority 4",
        "tasks --quiet update three --priority 4",
        "tasks update three --priority 4 -q",
        "-q tasks update three --status skipped",
    ] {
        let said = project.tenure(words).exits(0);
        assert_eq!((said.out.as_str(), said.err.as_str()), ("", ""), "{words}");
    }
    // After -- they belong to the command.
    let project = populated();
    let said = project
        .tenure("tasks work --no-wait --as me -- echo --json --quiet")
        .exits(0);
    assert!(said.out.starts_with("--json --quiet\n"), "{said:?}");
    assert!(said.err.contains("completed"), "{said:?}");
}

#[test]
fn filters_limits_and_order_of_the_list() {
    let project = Project::new();
    project.tenure("sections add A").exits(0);
    project.tenure("sections add B").exits(0);
    for (title, words) in [
        ("a-low", "--section A --priority 1"),
        ("a-high", "--section A --priority 9"),
        ("b-first", "--section B"),
        ("b-second", "--section B"),
        ("loose", ""),
        ("waits", "--depends-on loose"),
        ("100%_sure", ""),
        ("Ünïcode", ""),
    ] {
        project
            .tenure(&format!("tasks add {title} {words}"))
            .exits(0);
    }
    for (title, status) in [
        ("a-low", "completed"),
        ("b-first", "in_progress"),
        ("b-second", "skipped"),
        ("100%_sure", "review"),
        ("Ünïcode", "failed"),
    ] {
        project
            .tenure(&format!("tasks update {title} --status {status} --as me"))
            .exits(0);
    }
    let listed = |words: &str| {
        let said = project
            .tenure(&format!("tasks list --json {words}"))
            .exits(0);
        let json = said.json();
        let titles: Vec<String> = json["data"]["tasks"]
            .as_array()
            .unwrap()
            .iter()
            .map(|task| task["title"].as_str().unwrap().to_owned())
            .collect();
        (titles.join(" "), json["data"]["more"].as_bool().unwrap())
    };
    let all = "b-first a-high loose waits 100%_sure Ünïcode a-low b-second";
    assert_eq!(listed(""), (all.into(), false));
    assert_eq!(listed("--limit 0"), (all.into(), false));
    assert_eq!(listed("--limit 8"), (all.into(), false));
    assert_eq!(listed("--limit 2"), ("b-first a-high".into(), true));
    assert_eq!(listed("--status pending").0, "a-high loose waits");
    assert_eq!(
        listed("--status pending --limit 1"),
        ("a-high".into(), true)
    );
    assert_eq!(listed("--ready").0, "a-high loose");
    assert_eq!(listed("--ready --section A").0, "a-high");
    assert_eq!(listed("--section a").0, "a-high a-low");
    assert_eq!(listed("--section B --status skipped").0, "b-second");
    assert_eq!(listed("--search HIGH").0, "a-high");
    assert_eq!(listed("--search %").0, "100%_sure");
    assert_eq!(listed("--search _").0, "100%_sure");
    assert_eq!(listed("--search nothing").0, "");

    let text = project.tenure("tasks list --limit 2").exits(0).out;
    assert!(text.contains("the first 2; --limit 0 shows all"), "{text}");
    let heads: Vec<&str> = text.lines().next().unwrap().split_whitespace().collect();
    let since = ["SINCE", "UNTIL"];
    let (first, last) = (["ID", "STATUS", "PRI", "SECTION", "HOLDER"], ["TITLE"]);
    assert_eq!(heads, [&first[..], &since[..], &last[..]].concat());
    assert_eq!(text.lines().count(), 4);
    let text = project.tenure("tasks list --search nothing").exits(0).out;
    assert_eq!(text, "No tasks.\n");
    assert!(
        project
            .tenure("tasks list")
            .out
            .contains("pending (waits for 1)")
    );

    let said = project.tenure("sections list --json").exits(0).json();
    let counts: Vec<String> = said["data"]["sections"]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| format!("{} {} {} {}", s["name"], s["tasks"], s["open"], s["holder"]))
        .collect();
    assert_eq!(counts, ["\"A\" 2 1 null", "\"B\" 2 1 \"me\""]);
}

#[test]
fn every_number_is_a_valid_limit() {
    let project = populated();
    for limit in [
        "9223372036854775806",
        "9223372036854775807",
        "18446744073709551615",
    ] {
        let said = project.tenure(&format!("tasks list --limit {limit}"));
        assert_eq!(said.code, 0, "{limit}: {said:?}");
    }
}

#[test]
fn show_prints_every_field_of_a_task() {
    let project = Project::new();
    project.tenure("sections add Backend").exits(0);
    let before = add(&project, &["before"]);
    let one = add(
        &project,
        &[
            "one",
            "--section",
            "Backend",
            "--priority",
            "8",
            "--depends-on",
            "before",
            "--description",
            "first\nsecond",
        ],
    );
    let after = add(&project, &["after", "--depends-on", "one"]);
    project
        .tenure("tasks update before --status completed")
        .exits(0);
    project
        .tenure("tasks update one --status failed --error broken")
        .exits(0);
    let said = project
        .tenure("tasks update one --status in_progress --as me --json")
        .exits(0)
        .json();
    let text = project.tenure("tasks show one").exits(0).out;
    for word in [
        "one",
        &one,
        "in_progress",
        "8",
        "Backend",
        "first",
        "second",
        "\"before\" (completed)",
        "\"after\" (pending)",
        "me",
        "broken",
        "Token",
        "Expires",
    ] {
        assert!(text.contains(word), "{word}: {text}");
    }
    let data = project.tenure("tasks show one --json").exits(0).json()["data"].clone();
    assert_eq!(data["id"], one.as_str());
    assert_eq!(data["dependsOn"], json!([before]));
    assert_eq!(data["dependents"], json!([after]));
    assert_eq!(data["lock"]["leases"][0]["holder"], "me");
    assert_eq!(data["lock"]["leases"][0]["token"], said["data"]["token"]);
    assert_eq!(data["description"], "first\nsecond");
    project
        .tenure("tasks update one --status completed --as me")
        .exits(0);
    let data = project.tenure("tasks show one --json").exits(0).json()["data"].clone();
    assert_eq!(data["lock"], json!(null));
}

#[test]
fn a_runner_without_a_name_is_the_calling_shell() {
    let project = Project::new();
    add(&project, &["one"]);
    let script =
        "$TENURE tasks next -q > id && $TENURE tasks update $(cat id) --status completed -q";
    project.shell(script).end().exits(0);
    add(&project, &["two"]);
    project.shell("$TENURE tasks next -q; true").end().exits(0);
    // Another shell is another runner; the message says how to act for the first one.
    let said = project
        .shell("$TENURE tasks update two --status completed; exit $?")
        .end();
    said.fails(6, &["locked by runner", "--as", "TENURE_HOLDER", "--token"]);
}

#[test]
fn deleting_a_task_starts_the_daemon_if_the_settings_say_so() {
    let project = Project::new();
    add(&project, &["one"]);
    project.write(".tenure/config.yaml", "daemon: {autostart: true}\n");
    assert_eq!(project.daemon_status()["running"], false);
    project.tenure("tasks delete one").exits(0);
    until("the daemon runs", || {
        project.daemon_status()["running"] == true
    });
    let pid = project.daemon_status()["pid"].as_u64().unwrap();
    drop(Detached::of(u32::try_from(pid).unwrap()));
}

#[test]
fn a_status_is_understood_in_other_words() {
    let project = Project::new();
    add(&project, &["Fix bug"]);
    for (word, status) in [
        ("in-progress", "in_progress"),
        ("done", "completed"),
        ("todo", "pending"),
    ] {
        let update = ["tasks", "update", "Fix bug", "--as", "me", "--status", word];
        tenure(&project, &update).exits(0);
        let list = tenure(&project, &["tasks", "list", "--status", word, "--json"]).exits(0);
        assert_eq!(list.json()["data"]["tasks"][0]["status"], status, "{word}");
    }
    tenure(&project, &["tasks", "list", "--status", "gone"]).fails(2, &["completed"]);
}

#[test]
fn a_task_that_is_added_once_is_one_task_however_often_and_at_the_same_time() {
    let project = Project::new();
    let calls: Vec<_> = (0..8)
        .map(|_| {
            project
                .call("tasks add --once --quiet")
                .arg("Fix bug")
                .start()
        })
        .collect();
    let ids: Vec<String> = calls
        .into_iter()
        .map(|call| call.ended().exits(0).out)
        .collect();
    assert!(ids.iter().all(|id| *id == ids[0]), "{ids:?}");
    let id = ids[0].trim();
    tenure(&project, &["tasks", "done", id]).exits(0);
    let again = tenure(&project, &["tasks", "add", "--once", "Fix bug"]).exits(0);
    assert!(
        again.out.contains("exists already") && again.out.contains("completed"),
        "{again:?}"
    );
    let json = tenure(&project, &["tasks", "add", "--once", "Fix bug", "--json"]).exits(0);
    assert_eq!(json.json()["data"]["id"], id);
    assert_ne!(
        add(&project, &["Fix bug"]),
        id,
        "without the option it is another"
    );
    tenure(&project, &["tasks", "add", "--once", ""]).exits(2);
}

#[test]
fn a_repeated_command_never_reaches_another_task() {
    let project = Project::new();
    let lines = r#"{"id": "job-2", "title": "Two"}
{"id": "job-20", "title": "Twenty"}
{"kind": "section", "id": "sec-1", "name": "One"}
{"kind": "section", "id": "sec-10", "name": "Ten"}"#;
    project.write("tasks.jsonl", lines);
    project.tenure("tasks import tasks.jsonl").exits(0);
    project.tenure("tasks delete job-2").exits(0);
    let before = project.tenure("tasks export").out;
    for again in [
        "tasks delete job-2",
        "tasks done job-2",
        "tasks fail job-2",
        "tasks release job-2",
        "tasks update job-2 --priority 9",
        "tasks update job-2 --status in_progress",
        "tasks renew job-2",
        "tasks show job-2",
    ] {
        let said = project.tenure(again).exits(4);
        assert!(
            said.err
                .contains("there is no task \"job-2\": \"Two\" (job-2) was deleted"),
            "{}",
            said.err
        );
    }
    assert_eq!(project.tenure("tasks export").out, before);
    // Sections leave no ids behind, so a prefix is never enough to change one.
    project.tenure("sections rm sec-1").exits(0);
    for again in [
        "sections rm sec-1",
        "tasks add More --section sec-1",
        "tasks update job-20 --section sec-1",
    ] {
        let said = project.tenure(again).exits(4);
        assert!(
            said.err
                .contains("sec-1 is only the beginning of an id: name the section, Ten"),
            "{}",
            said.err
        );
    }
    project.tenure("sections rm sec-10").exits(0);
}

#[test]
fn a_prefix_that_stands_for_a_task_is_named() {
    let project = Project::new();
    project.write("tasks.jsonl", r#"{"id": "job-20", "title": "Twenty"}"#);
    project.tenure("tasks import tasks.jsonl").exits(0);
    let said = project.tenure("tasks update job- --priority 9").exits(0);
    assert!(
        said.err
            .contains("job- stands for task \"Twenty\" (job-20)"),
        "{}",
        said.err
    );
    // The short id is what lists show.
    let id = add(&project, &["More"]);
    let short = &id[..8];
    let said = project.tenure(&format!("tasks done {short}")).exits(0);
    assert_eq!(said.err, "");
}
