//! `tenure tasks import` and `export`: all or nothing, and lossless.

use crate::project;

use std::fs;
use std::io::Write;

use project::{Project, Said};
use serde_json::json;

#[track_caller]
fn export(project: &Project) -> String {
    project.tenure("tasks export").exits(0).out
}

#[track_caller]
fn import(project: &Project, lines: impl AsRef<[u8]>) -> Said {
    fs::write(project.path("lines"), lines).unwrap();
    project.tenure("tasks import lines")
}

/// A project with every kind of task and section.
fn populated() -> Project {
    let project = Project::new();
    for section in ["Backend", "Front end", "ünïcode 日本"] {
        project.call("sections add").arg(section).end().exits(0);
    }
    let add = |words: &[&str]| {
        let mut call = project.call("tasks add");
        for word in words {
            call = call.arg(word);
        }
        call.end().exits(0);
    };
    add(&["one", "--section", "Backend", "--priority", "0"]);
    add(&["two \"quoted\" \\ back", "--section", "ünïcode 日本"]);
    add(&["three", "--depends-on", "one", "--description", "a\nb\tc\n"]);
    add(&["four", "--depends-on", "one", "--depends-on", "three"]);
    add(&["same title"]);
    add(&["same title"]);
    project
        .tenure("tasks update one --status completed")
        .exits(0);
    project
        .tenure("tasks update three --status skipped")
        .exits(0);
    project
        .tenure("tasks update four --status failed --error broken")
        .exits(0);
    project
}

#[test]
fn a_round_trip_is_identical_byte_for_byte() {
    let project = populated();
    let first = export(&project);
    assert_eq!(first.lines().count(), 9);
    assert_eq!(export(&project), first, "and again");
    let other = Project::new();
    let said = import(&other, &first).exits(0);
    assert_eq!(
        said.out,
        "Imported: 6 tasks added, 0 changed, 0 unchanged; 3 sections added.\n"
    );
    assert_eq!(export(&other), first);
    let said = import(&other, &first).exits(0);
    assert!(said.out.contains("0 changed, 6 unchanged"), "{said:?}");
    assert_eq!(export(&other), first);
}

#[test]
fn the_last_error_survives_a_round_trip() {
    for error in ["two\nlines\tand a tab", "\x1b[31mred\x1b[0m", "bell \x07"] {
        let project = Project::new();
        project.tenure("tasks add one").exits(0);
        let said = project
            .call("tasks update one --status failed --error")
            .arg(error)
            .end();
        // Refused at once, or written and read again: both are fine.
        if said.code == 2 {
            continue;
        }
        said.exits(0);
        let lines = export(&project);
        let other = Project::new();
        import(&other, &lines).exits(0);
        assert_eq!(export(&other), lines);
    }
}

#[test]
fn the_order_is_that_in_which_they_were_added() {
    let project = Project::new();
    let lines = "{\"id\":\"b\",\"title\":\"second\",\"createdAt\":\"2024-01-02T00:00:00Z\"}\n\
                 {\"id\":\"a\",\"title\":\"third\",\"createdAt\":\"2024-01-03T00:00:00Z\"}\n\
                 {\"id\":\"c\",\"title\":\"first\",\"createdAt\":\"2024-01-01T00:00:00Z\"}\n";
    import(&project, lines).exits(0);
    let exported = export(&project);
    let ids: Vec<&str> = exported
        .lines()
        .map(|line| line.split('"').nth(7).unwrap())
        .collect();
    assert_eq!(ids, ["c", "b", "a"]);
    let next = project.tenure("tasks next --as me --quiet").exits(0);
    assert_eq!(next.out, "c\n");
}

#[test]
fn imported_tasks_are_as_old_as_the_order_of_their_lines() {
    let project = Project::new();
    let lines: Vec<String> = (0..12).map(|n| format!("{{\"title\":\"t{n}\"}}")).collect();
    let lines = lines.join("\n");
    import(&project, &lines).exits(0);
    let order: Vec<String> = (0..12)
        .map(|n| {
            let said = project.tenure(&format!("tasks next --as runner-{n} --json"));
            let title = said.exits(0).json()["data"]["title"].clone();
            title.as_str().unwrap().to_owned()
        })
        .collect();
    let expected: Vec<String> = (0..12).map(|n| format!("t{n}")).collect();
    assert_eq!(order, expected, "the first line is the oldest");
}

#[test]
fn the_command_after_a_large_import_finds_a_short_log() {
    let project = Project::new();
    let lines: Vec<String> = (0..5_000)
        .map(|n| format!("{{\"title\":\"t{n}\"}}"))
        .collect();
    import(&project, lines.join("\n")).exits(0);
    let log = project.path(".tenure/tenure.db-wal");
    let length = fs::metadata(log).map_or(0, |log| log.len());
    let database = fs::metadata(project.database()).unwrap().len();
    assert!(database > 1_000_000 && length < 600_000, "{length}");
}

#[test]
fn sections_keep_their_order_in_a_round_trip() {
    let project = Project::new();
    for n in 0..6 {
        project.tenure(&format!("sections add S{n}")).exits(0);
    }
    let lines = export(&project);
    let other = Project::new();
    import(&other, &lines).exits(0);
    assert_eq!(export(&other), lines);
}

#[test]
fn a_line_may_wait_for_one_that_comes_later() {
    let project = Project::new();
    let lines = "{\"id\":\"a\",\"title\":\"A\",\"dependsOn\":[\"b\",\"b\"]}\n{\"id\":\"b\",\"title\":\"B\"}\n";
    import(&project, lines).exits(0);
    let shown = project.tenure("tasks show A --json").exits(0).json();
    assert_eq!(shown["data"]["dependsOn"], json!(["b"]));
    assert_eq!(shown["data"]["blockers"], 1);
}

#[test]
fn bad_lines_are_reported_with_their_number_and_nothing_is_imported() {
    let project = populated();
    let before = export(&project);
    let long = format!("{{\"title\":\"{}\"}}", "x".repeat(10 * 1024 * 1024));
    let described = format!(
        "{{\"title\":\"x\",\"description\":\"{}\"}}",
        "x".repeat(70_000)
    );
    for (line, words) in [
        ("nonsense", ""),
        ("{\"title\":\"x\"", ""),
        ("[1, 2]", ""),
        ("[]", ""),
        ("\"x\"", ""),
        ("12", ""),
        ("null", ""),
        ("{\"title\":3}", ""),
        ("{\"title\":null}", "title"),
        ("{\"title\":\"x\"} {\"title\":\"y\"}", ""),
        ("{\"title\":\"x\",\"title\":\"y\"}", "title"),
        ("{\"title\":\"x\",\"colour\":\"red\"}", "colour"),
        ("{\"priority\":3}", "title"),
        ("{\"title\":\"\"}", "empty"),
        ("{\"title\":\"  \"}", "empty"),
        ("{\"title\":\"a\\nb\"}", "control character"),
        ("{\"title\":\"a\\u0000b\"}", "control character"),
        ("{\"title\":\"a\0b\"}", "control character"),
        (
            "{\"title\":\"x\",\"description\":\"a\\u0000b\"}",
            "control character",
        ),
        ("{\"title\":\"x\",\"status\":\"done\"}", "done"),
        ("{\"title\":\"x\",\"priority\":10}", "0"),
        ("{\"title\":\"x\",\"priority\":-1}", ""),
        ("{\"title\":\"x\",\"priority\":5.5}", ""),
        ("{\"title\":\"x\",\"priority\":\"high\"}", ""),
        ("{\"title\":\"x\",\"attempts\":-1}", ""),
        ("{\"title\":\"x\",\"createdAt\":\"yesterday\"}", ""),
        ("{\"title\":\"x\",\"id\":\"\"}", "id"),
        ("{\"title\":\"x\",\"id\":\"*\"}", "id"),
        ("{\"title\":\"x\",\"id\":\"a\\nb\"}", "id"),
        (
            "{\"title\":\"x\",\"id\":\"self\",\"dependsOn\":[\"self\"]}",
            "itself",
        ),
        ("{\"title\":\"x\",\"dependsOn\":[\"no-such\"]}", "no-such"),
        ("{\"title\":\"x\",\"dependsOn\":\"good\"}", ""),
        ("{\"title\":\"x\",\"section\":\"\"}", "section"),
        ("{\"title\":\"x\",\"name\":\"y\"}", "name"),
        ("{\"kind\":\"section\"}", "name"),
        ("{\"kind\":\"section\",\"name\":\"\"}", "name"),
        ("{\"kind\":\"thing\",\"title\":\"x\"}", "thing"),
        ("{\"kind\":\"section\",\"name\":\"BACKEND\"}", "Backend"),
        ("{\"title\":\"twice\",\"id\":\"good\"}", "line 1"),
        (long.as_str(), "long"),
        (described.as_str(), "long"),
    ] {
        let shown: String = line.chars().take(70).collect();
        // The second line is empty, which counts.
        let lines = format!("{{\"id\":\"good\",\"title\":\"good\"}}\n\n{line}\n");
        let said = import(&project, &lines);
        assert_eq!(said.code, 2, "{shown}: {said:.500?}");
        let told = said.err.lines().find(|line| line.starts_with("line "));
        let told = told.unwrap_or_else(|| panic!("{shown}: {said:.500?}"));
        assert!(told.starts_with("line 3: "), "{shown}: {told}");
        assert!(told.contains(words), "{shown}: {told}");
        assert!(told.chars().count() < 400, "{shown}: {told:.100}");
        assert_eq!(said.out, "");
        let said = project.tenure("tasks import lines --json").exits(2);
        assert_eq!(said.error(), "BAD_LINE");
        assert_eq!(said.json()["error"]["details"]["lines"][0]["line"], 3);
        assert_eq!(said.err, "");
        assert!(
            export(&project) == before,
            "{shown}: something was imported"
        );
    }
}

#[test]
fn a_json_array_is_not_a_task() {
    // serde also reads the fields of a struct from an array, by position.
    let project = Project::new();
    let said = import(&project, "[\"task\",\"x\",null,\"by its place\"]\n");
    assert_eq!(said.code, 2, "{said:?}");
    assert_eq!(export(&project), "");
}

#[test]
fn a_circle_of_lines_is_refused() {
    let project = populated();
    let before = export(&project);
    let lines = "{\"id\":\"x\",\"title\":\"X\"}\n{\"id\":\"a\",\"title\":\"A\",\"dependsOn\":[\"b\"]}\n\
                 {\"id\":\"b\",\"title\":\"B\",\"dependsOn\":[\"c\"]}\n{\"id\":\"c\",\"title\":\"C\",\"dependsOn\":[\"a\"]}\n";
    let said = import(&project, lines).fails(2, &["before itself"]);
    let told = said.err.lines().nth(1).unwrap();
    let right = ["line 2: ", "line 3: ", "line 4: "];
    assert!(right.iter().any(|line| told.starts_with(line)), "{said:?}");
    assert_eq!(export(&project), before);
    // And one that is closed only by what was there before.
    import(
        &project,
        "{\"id\":\"a\",\"title\":\"A\"}\n{\"id\":\"b\",\"title\":\"B\",\"dependsOn\":[\"a\"]}\n",
    )
    .exits(0);
    import(
        &project,
        "{\"id\":\"a\",\"title\":\"A\",\"dependsOn\":[\"b\"]}\n",
    )
    .fails(2, &["line 1: ", "before itself"]);
}

#[test]
fn a_line_that_only_waits_for_a_circle_is_not_blamed_for_it() {
    let project = Project::new();
    let lines = "{\"id\":\"0\",\"title\":\"Innocent\",\"dependsOn\":[\"a\"]}\n\
                 {\"id\":\"a\",\"title\":\"A\",\"dependsOn\":[\"b\"]}\n{\"id\":\"b\",\"title\":\"B\",\"dependsOn\":[\"a\"]}\n";
    let said = import(&project, lines).exits(2);
    assert!(!said.err.contains("Innocent"), "{said:?}");
}

#[test]
fn many_bad_lines_are_reported_together() {
    let project = Project::new();
    let said = import(&project, "{}\n{\"title\":\"fine\"}\n{}\n\n{}\n").exits(2);
    for line in ["line 1: ", "line 3: ", "line 5: "] {
        assert!(said.err.contains(line), "{said:?}");
    }
    assert!(!said.err.contains("line 2"), "{said:?}");
    let said = import(&project, "{}\n".repeat(100_000)).exits(2);
    assert!(said.err.lines().count() < 30, "{}", said.err.len());
}

#[test]
fn text_that_is_not_utf_8_is_reported_with_its_line() {
    let project = Project::new();
    let said = import(&project, b"{\"title\":\"good\"}\n\n{\"title\":\"\xff\"}\n");
    said.fails(2, &["line 3: ", "UTF-8"]);
    assert_eq!(export(&project), "");
    let said = project.tenure("tasks import lines --json").exits(2);
    assert_eq!(said.error(), "BAD_LINE");
    // A latin-1 letter at the very end.
    import(&project, b"{\"title\":\"good\"}\n\xe9").fails(2, &["line 2: "]);
}

#[test]
fn files_of_other_systems_are_read() {
    let project = Project::new();
    import(
        &project,
        "{\"id\":\"crlf\",\"title\":\"one\"}\r\n\r\n{\"title\":\"two\"}\r\n",
    )
    .exits(0);
    import(&project, "\u{feff}{\"id\":\"bom\",\"title\":\"three\"}\r\n").exits(0);
    import(
        &project,
        "  {\"title\":\"four\"}  \n\t\n{\"title\":\"no newline\"}",
    )
    .exits(0);
    assert_eq!(export(&project).lines().count(), 5);
}

#[test]
fn a_file_without_lines_changes_nothing() {
    let project = populated();
    let before = export(&project);
    for lines in ["", "\n", "\n\n  \n"] {
        let said = import(&project, lines).exits(0);
        assert!(said.out.contains("0 tasks added"), "{said:?}");
    }
    assert_eq!(export(&project), before);
}

#[test]
fn a_file_that_cannot_be_read_is_reported() {
    let project = Project::new();
    let said = project.tenure("tasks import no-such-file");
    said.fails(4, &["no-such-file"]);
    project
        .tenure("tasks import .tenure")
        .fails(1, &[".tenure", "cannot be read"]);
    let said = project.tenure("tasks import no-such-file --json").exits(4);
    assert_eq!(said.json()["error"]["code"], "NOT_FOUND");
    assert_eq!(said.err, "");
    project.tenure("tasks import").fails(2, &["FILE"]);
}

#[test]
fn lines_are_read_from_standard_input() {
    let project = Project::new();
    let mut running = project.call("tasks import -").input().start();
    let mut stdin = running.stdin.take().unwrap();
    stdin.write_all(b"{\"title\":\"piped\"}\n").unwrap();
    drop(stdin);
    running.ended().exits(0);
    assert!(export(&project).contains("piped"));
    project.tenure("tasks import -").exits(0);
    project
        .shell("$TENURE tasks export | $TENURE tasks import - && $TENURE tasks export | head -n 0")
        .end()
        .exits(0);
}

#[test]
fn an_import_finds_a_section_by_its_name_only() {
    let project = Project::new();
    let said = project.tenure("sections add Backend --quiet").exits(0);
    let id = said.out.trim();
    // The name of one is a prefix of the other's id, or equal to it.
    for name in [&id[..4], &id[..8], id] {
        let line = json!({ "title": "x", "section": name });
        import(&project, format!("{line}\n")).exits(0);
        let sections = project.tenure("sections list --json").exits(0).json();
        let names: Vec<&str> = sections["data"]["sections"]
            .as_array()
            .unwrap()
            .iter()
            .map(|section| section["name"].as_str().unwrap())
            .collect();
        assert!(names.contains(&name), "{name} is not among {names:?}");
    }
}

#[test]
fn an_id_that_can_be_imported_can_be_found() {
    let project = Project::new();
    for id in ["task:x", "a b", "-dash", "ünï", "100%", "it's"] {
        let line = json!({ "title": "x", "id": id });
        let said = import(&project, format!("{line}\n"));
        if said.code == 2 {
            continue;
        }
        let said = project.call("tasks show --json --").arg(id).end();
        assert_eq!(said.code, 0, "{id}: {said:?}");
        assert_eq!(said.json()["data"]["id"], id);
    }
}

#[test]
fn a_huge_number_of_attempts_does_no_harm() {
    let project = Project::new();
    for (n, attempts) in [u64::MAX, 9_223_372_036_854_775_807]
        .into_iter()
        .enumerate()
    {
        let id = format!("many-{n}");
        let line = json!({ "title": "x", "id": id, "attempts": attempts });
        let said = import(&project, format!("{line}\n"));
        if said.code == 2 {
            continue;
        }
        let said = project.tenure(&format!("tasks update {id} --status failed"));
        assert_eq!(said.code, 0, "{said:?}");
        project.tenure("tasks list").exits(0);
    }
}

#[test]
fn an_import_does_not_change_a_task_that_a_runner_works_on() {
    let project = Project::new();
    import(&project, "{\"id\":\"a\",\"title\":\"A\"}\n").exits(0);
    project.tenure("tasks next --as me").exits(0);
    let before = export(&project);
    let said = import(
        &project,
        "{\"title\":\"new\"}\n{\"id\":\"a\",\"title\":\"A\",\"status\":\"completed\"}\n",
    );
    let said = said.fails(
        6,
        &["line 2: ", "locked by runner me", "nothing was imported"],
    );
    assert_eq!(export(&project), before);
    drop(said);
    // A line that is wrong is reported first: waiting would not help.
    import(
        &project,
        "{\"id\":\"a\",\"title\":\"A\",\"status\":\"completed\"}\n{\"title\":7}\n",
    )
    .fails(2, &["line 2: "]);
    assert_eq!(export(&project), before);
    project
        .tenure("tasks update a --status completed --as me")
        .exits(0);
}

#[test]
fn an_import_of_an_export_does_not_touch_tasks_in_progress() {
    let project = Project::new();
    import(
        &project,
        "{\"id\":\"a\",\"title\":\"A\"}\n{\"id\":\"b\",\"title\":\"B\"}\n",
    )
    .exits(0);
    project.tenure("tasks next --as me").exits(0);
    let lines = export(&project);
    import(&project, &lines).exits(0);
    assert_eq!(export(&project), lines);
    project
        .tenure("tasks update A --status completed --as me")
        .exits(0);
}

#[test]
fn two_imports_at_once_do_not_mix() {
    let project = Project::new();
    for name in ["a", "b", "c", "d"] {
        let lines: Vec<String> = (0..200)
            .map(|n| {
                format!("{{\"id\":\"{name}-{n}\",\"title\":\"{name} {n}\",\"section\":\"S\"}}")
            })
            .collect();
        project.write(name, &lines.join("\n"));
    }
    let running = ["a", "b", "c", "d"].map(|name| project.start(&format!("tasks import {name}")));
    for running in running {
        running.ended().exits(0);
    }
    let listed = project.tenure("sections list --json").exits(0).json();
    assert_eq!(listed["data"]["sections"].as_array().unwrap().len(), 1);
    assert_eq!(listed["data"]["sections"][0]["tasks"], 800);
}

#[test]
fn json_gives_the_lines_in_an_envelope() {
    let project = populated();
    let said = project.tenure("tasks export --json").exits(0);
    let lines = said.json()["data"]["lines"].as_array().unwrap().clone();
    let text = export(&project);
    let same: Vec<serde_json::Value> = text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines, same);
}

#[test]
fn a_task_is_put_into_a_section_that_comes_later_in_the_file() {
    let project = Project::new();
    let lines = r#"{"id": "t1", "title": "One", "section": "backend"}
{"kind": "section", "id": "s1", "name": "Backend"}"#;
    project.write("tasks.jsonl", lines);
    let said = project.tenure("tasks import tasks.jsonl").exits(0);
    assert!(said.out.contains("1 section added"), "{}", said.out);
    let said = project.tenure("tasks show t1 --json").exits(0).json();
    assert_eq!(said["data"]["sectionId"], "s1", "{said}");
}
