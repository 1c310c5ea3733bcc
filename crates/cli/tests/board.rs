//! `tenure board`: the output and the effect of each command.

use crate::board_project;
use crate::project;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;

use board_project::{LOCK, empty, hold_as_shell, litter, release_as_shell, sample, task, text};
use project::Project;

#[test]
fn the_board_is_found_from_everywhere_below_it() {
    let project = sample();
    fs::create_dir_all(project.path("deep/er")).unwrap();
    for folder in [".", "deep/er", ".bilu/board/tasks"] {
        let said = project
            .call("board list --json")
            .within(project.path(folder))
            .end();
        let json = said.exits(0).json();
        assert_eq!(json["data"]["tasks"].as_array().unwrap().len(), 2);
    }
    let nowhere = Project::uninitialised();
    nowhere
        .tenure("board list")
        .fails(3, &["no .bilu/board or src/board", "--dir"]);
    nowhere.tenure("board list --dir x").fails(3, &["--dir x"]);
    nowhere
        .tenure("board list --store sqlite:x")
        .fails(2, &["--dir"]);
}

#[test]
fn the_lock_is_the_same_wherever_the_command_is_started_and_in_both_layouts() {
    for (board, lock) in [
        (".bilu/board", ".bilu/storage/lock"),
        (".bilu/board", ".bilu/board/storage/lock"),
        ("src/board", "src/storage/lock"),
        ("src/board", "src/board/storage/lock"),
    ] {
        let project = Project::uninitialised();
        fs::create_dir_all(project.path(board).join("tasks")).unwrap();
        let config = sample().read(".bilu/board/config.json");
        project.write(&format!("{board}/config.json"), &config);
        project.write(&format!("{board}/tasks/1.md"), &text("T", "TODO", "HIGH"));
        fs::create_dir_all(project.path(lock)).unwrap();
        let path = project.path(lock).canonicalize().unwrap();
        let program = if lock.starts_with(".bilu") {
            "bilu board"
        } else {
            "tenure board"
        };
        let busy = format!("{program}: error: lock busy: {}\n", path.display());
        let writers = [
            "board set-status 1 DONE",
            "board set-priority 1 LOW",
            "board rebuild-index --write",
            "board migrate",
        ];
        project.write(&format!("{board}/default.json"), "[]");
        for folder in [".", board, &format!("{board}/tasks")] {
            for writer in writers {
                let call = project.call(&format!("{writer} --timeout 0"));
                let said = call.within(project.path(folder)).end().exits(1);
                assert!(said.err.starts_with(&busy), "{said:?}");
            }
        }
        for reader in [
            "list",
            "validate",
            "rebuild-index --dry-run",
            "migrate --dry-run",
        ] {
            project.tenure(&format!("board {reader}")).exits(0);
        }
    }
}

/// The bilu tool uses `src/storage` and the protocol names `src/board/storage`.
#[test]
fn a_board_with_two_locks_is_refused_by_every_writer() {
    let project = Project::uninitialised();
    fs::create_dir_all(project.path("src/board/tasks")).unwrap();
    project.write(
        "src/board/config.json",
        &sample().read(".bilu/board/config.json"),
    );
    let file = text("T", "TODO", "HIGH");
    project.write("src/board/tasks/1.md", &file);
    // A board without either uses the folder that the bilu tool would make.
    project.tenure("board rebuild-index --write").exits(0);
    assert!(project.path("src/storage").is_dir());
    assert!(!project.path("src/board/storage").exists());
    fs::create_dir(project.path("src/board/storage")).unwrap();
    for writer in [
        "board set-status 1 DONE",
        "board set-priority 1 LOW",
        "board rebuild-index --write",
        "board migrate",
    ] {
        project
            .tenure(writer)
            .fails(2, &["src/storage", "src/board/storage", "Remove the one"]);
    }
    assert_eq!(project.read("src/board/tasks/1.md"), file);
    project.tenure("board list").exits(0);
    fs::remove_dir(project.path("src/board/storage")).unwrap();
    project.tenure("board set-status 1 DONE").exits(0);
}

/// A board in a folder whose name is not UTF-8, and a task file with such a name.
#[test]
fn names_that_are_not_utf8_are_used_or_refused_and_never_left_out() {
    let project = Project::uninitialised();
    let root = project.root().join(OsStr::from_bytes(b"caf\xe9 \xff"));
    let tasks = root.join(".bilu/board/tasks");
    fs::create_dir_all(&tasks).unwrap();
    let config = sample().read(".bilu/board/config.json");
    fs::write(root.join(".bilu/board/config.json"), config).unwrap();
    fs::write(tasks.join("1.md"), text("T", "TODO", "HIGH")).unwrap();
    let run = |words: &str| project.call(words).within(&root).end();
    for json in ["", " --json"] {
        for words in [
            "set-status 1 DONE",
            "set-priority 1 LOW",
            "rebuild-index --write",
            "migrate",
            "list",
            "list --view tsv",
            "validate",
        ] {
            run(&format!("board {words}{json}")).exits(0);
        }
    }
    assert!(!root.join(".bilu/storage/lock").exists());
    let file = fs::read_to_string(tasks.join("1.md")).unwrap();
    assert_eq!(file, text("T", "DONE", "LOW"));
    // The command that the message names finds the lock again.
    fs::create_dir(root.join(".bilu/storage/lock")).unwrap();
    let said = run("board set-status 1 TODO --timeout 0").exits(1);
    let (_, force) = said.err.rsplit_once("tenure force").unwrap();
    project
        .shell(&format!("$TENURE force{force}"))
        .end()
        .exits(0);
    assert!(!root.join(".bilu/storage/lock").exists());
    run("exclusive status --dir .").exits(0);
    // A task file that has no id.
    let odd = tasks.join(OsStr::from_bytes(b"2-\xff.md"));
    fs::write(&odd, text("Odd", "TODO", "HIGH")).unwrap();
    for words in [
        "list",
        "rebuild-index --write",
        "set-status 2 DONE",
        "migrate",
        "validate",
    ] {
        run(&format!("board {words}")).fails(1, &["the file name is not UTF-8"]);
    }
    run("board set-status 1 TODO").exits(0);
    assert_eq!(
        fs::read_to_string(&odd).unwrap(),
        text("Odd", "TODO", "HIGH")
    );
    let entries = fs::read_dir(project.root()).unwrap().count();
    assert_eq!(entries, 1, "no folder with a name like it was made");
}

#[test]
fn the_spellings_of_the_bilu_tool_work() {
    let project = sample();
    for (theirs, ours) in [
        ("--list", "list"),
        ("--validate", "validate"),
        (
            "--list --filter status --filter-value todo",
            "list --filter status --filter-value todo",
        ),
        (
            "--filter=status --filter-value=todo -l",
            "list -f status --filter-value TODO",
        ),
        ("--rebuild-index --dry-run", "rebuild-index --dry-run"),
    ] {
        let [theirs, ours] =
            [theirs, ours].map(|words| project.tenure(&format!("board {words}")).exits(0));
        assert_eq!(theirs.out, ours.out);
    }
    project.tenure("board --rebuild-index --write").exits(0);
    assert!(project.path(".bilu/board/default.json").exists());
    project
        .tenure("board --rebuild-index")
        .fails(2, &["--write", "--dry-run"]);
    project.tenure("board --list --validate").exits(2);
    project
        .tenure("board --list --filter status")
        .fails(2, &["--filter-value"]);
}

#[test]
fn tasks_are_filtered_by_field() {
    let project = sample();
    project.write(&task("03-x"), &text("Third", "in progress", "low"));
    let ids = |filter: &str| -> Vec<String> {
        let said = project
            .tenure(&format!("board list --json {filter}"))
            .exits(0)
            .json();
        let tasks = said["data"]["tasks"].as_array().unwrap().clone();
        tasks
            .iter()
            .map(|task| task["id"].as_str().unwrap().to_owned())
            .collect()
    };
    assert_eq!(ids("").len(), 3);
    assert_eq!(
        ids("--filter status --filter-value inprogress"),
        ["02-break-a-stale-lock", "03-x"]
    );
    assert_eq!(ids("--filter priority --filter-value LOW"), ["03-x"]);
    assert_eq!(
        ids("--filter kind --filter-value Bug"),
        ["02-break-a-stale-lock"]
    );
    assert_eq!(
        ids("--filter tag --filter-value TESTING"),
        ["01-hold-one-lock"]
    );
    project
        .tenure("board list --filter status --filter-value soon")
        .fails(2, &["soon", "BACKLOG, TODO, INPROGRESS"]);
    let records = project.tenure("board list --view tsv").exits(0).out;
    for record in records.lines() {
        assert_eq!(record.split('\t').count(), 10, "{record}");
    }
}

#[test]
fn an_edit_changes_one_value_and_no_other_byte() {
    let project = empty();
    let file = "# Títle \r\n\r\n## Status\r\nnot this\r\n# Description\r\nx\r\n\r\n# Status \r\n\t todo  \r\nmore words\r\n# Status\r\nnot this either\r\n# Priority\r\nHIGH\n# Kind\r\ntask\r\nno end of line";
    project.write(&task("1"), file);
    let path = project.path(&task("1"));
    fs::set_permissions(&path, fs::Permissions::from_mode(0o604)).unwrap();
    let said = project.tenure("board set-status 1 In-Progress").exits(0);
    assert_eq!(said.out, "1: status todo -> INPROGRESS\n");
    let edited = file.replace("\t todo  ", "INPROGRESS");
    assert_eq!(project.read(&task("1")), edited);
    let said = project
        .tenure("board set-priority 1 low --json")
        .exits(0)
        .json();
    assert_eq!(said["data"]["from"], "HIGH");
    assert_eq!(said["data"]["to"], "LOW");
    assert_eq!(project.read(&task("1")), edited.replace("HIGH\n", "LOW\n"));
    assert_eq!(path.metadata().unwrap().permissions().mode() & 0o777, 0o604);
    assert_eq!(litter(&project), [""; 0]);
    let said = project.tenure("board set-status 1 inprogress").exits(0);
    assert_eq!(said.out, "1: status is already INPROGRESS\n");
    assert!(!project.path(LOCK).exists());
}

#[test]
fn invalid_utf8_is_preserved() {
    let project = empty();
    let file = [
        b"# \xff\xfe\n# Status\nTODO\n\x00\xc3\x28\n".as_slice(),
        &[0x80; 9],
    ]
    .concat();
    fs::write(project.path(&task("1")), &file).unwrap();
    project.tenure("board set-status 1 DONE").exits(0);
    let edited = fs::read(project.path(&task("1"))).unwrap();
    let at = file.windows(4).position(|bytes| bytes == b"TODO").unwrap();
    let wanted = [&file[..at], b"DONE", &file[at + 4..]].concat();
    assert_eq!(edited, wanted);
}

#[test]
fn typing_errors_are_reported_before_the_command_waits() {
    let project = sample();
    fs::create_dir_all(project.path(LOCK)).unwrap();
    for (words, code, told) in [
        ("set-status 09 DONE", 4, "no task \"09\""),
        ("set-status 0 DONE", 2, "several task ids begin with \"0\""),
        ("set-status 01 SOON", 2, "config.json defines BACKLOG, TODO"),
        (
            "set-priority 01 DONE",
            2,
            "config.json defines CRITICAL, HIGH",
        ),
        ("set-status 01", 2, "STATUS"),
        ("set-status 01 DONE --timeout soon", 2, "timeout"),
    ] {
        project
            .tenure(&format!("board {words}"))
            .fails(code, &[told]);
    }
    release_as_shell(&project);
    project.write(&task("01-hold-one-lock"), "# T\nno sections\n");
    project.tenure("board set-status 01 DONE").fails(
        1,
        &["01-hold-one-lock.md", "no section \"# Status\"", "migrate"],
    );
    assert!(!project.path(LOCK).exists());
    project.write(".bilu/board/config.json", "{\n\"statuses\": 1}");
    project
        .tenure("board set-status 01 DONE")
        .fails(1, &["config.json:2:"]);
}

#[test]
fn the_id_of_a_task_that_is_gone_names_no_other_task() {
    let project = empty();
    project.write(&task("10-other"), &text("Other", "TODO", "HIGH"));
    let said = project.tenure("board set-status 1 DONE").exits(4);
    assert!(said.err.contains("no task \"1\""), "{said:?}");
    project.tenure("board set-status 10 DONE").exits(0);
}

#[test]
fn busy_names_the_holder_its_command_its_age_and_the_way_out() {
    let project = sample();
    let us = std::process::id();
    hold_as_shell(&project, us);
    project.write(&format!("{LOCK}/ts"), "1700000000\n");
    let said = project
        .tenure("board set-status 01 DONE --timeout 0")
        .exits(1);
    let path = project.path(LOCK).canonicalize().unwrap();
    let lines: Vec<_> = said.err.lines().collect();
    assert_eq!(
        lines[0],
        format!("bilu board: error: lock busy: {}", path.display())
    );
    assert!(lines[1].contains(&format!("(pid {us} on ")), "{said:?}");
    assert!(lines[1].contains("since 2023-11-14T22:13:20"), "{said:?}");
    assert!(lines[1].ends_with(": alive"), "{said:?}");
    assert_eq!(lines[2], "  it runs: bilu board --edit");
    assert_eq!(
        lines[3],
        "  If you are sure no bilu process is running, remove the lock directory."
    );
    assert!(lines[4].contains("--timeout 60"), "{said:?}");
    let json = project
        .tenure("board set-status 01 DONE --timeout 0 --json")
        .exits(1)
        .json();
    assert_eq!(json["error"]["code"], "LOCK_BUSY");
    let details = &json["error"]["details"];
    assert_eq!(details["leases"][0]["pid"], us);
    assert_eq!(details["leases"][0]["verdict"], "alive");
    assert_eq!(details["path"], path.to_str().unwrap());
    // A lock that names no process.
    fs::remove_file(project.path(&format!("{LOCK}/pid"))).unwrap();
    let said = project
        .tenure("board set-status 01 DONE --timeout 0")
        .exits(1);
    assert!(said.err.contains("it names no process"), "{said:?}");
    let force = said
        .err
        .lines()
        .last()
        .unwrap()
        .split_once("tenure force")
        .unwrap()
        .1;
    assert_eq!(
        project.read(&task("01-hold-one-lock")),
        sample().read(&task("01-hold-one-lock"))
    );
    // The command that the message names works.
    project
        .shell(&format!("$TENURE force{force}"))
        .end()
        .exits(0);
    project
        .tenure("board set-status 01 DONE --timeout 0")
        .exits(0);
}

#[test]
fn the_index_is_derived_from_the_tasks_and_written_only_if_it_differs() {
    let project = sample();
    let index = ".bilu/board/default.json";
    project.tenure("board rebuild-index --dry-run").exits(0);
    assert!(!project.path(index).exists());
    let said = project
        .tenure("board rebuild-index --write --json")
        .exits(0)
        .json();
    assert_eq!(said["data"]["changed"], true);
    assert_eq!(said["data"]["tasks"], 2);
    let json: serde_json::Value = serde_json::from_str(&project.read(index)).unwrap();
    assert_eq!(json[0]["title"], "Hold one lock");
    assert_eq!(json[0]["tags"], serde_json::json!(["backend", "testing"]));
    assert_eq!(
        json[1]["depends_on"],
        serde_json::json!(["01-hold-one-lock"])
    );
    assert_eq!(json[1]["link"], "board/tasks/02-break-a-stale-lock.md");
    let written = project.path(index).metadata().unwrap().modified().unwrap();
    project.tenure("board rebuild-index --write").exits(0);
    assert_eq!(
        project.path(index).metadata().unwrap().modified().unwrap(),
        written
    );
    // Missing and unknown values are reported.
    project.write(&task("03"), "# Third\n# Status\nsoon\n");
    let said = project.tenure("board rebuild-index --write").exits(0);
    for words in [
        "unknown status \"soon\": the index says TODO",
        "no priority: the index says MEDIUM",
    ] {
        assert!(said.err.contains(words), "{said:?}");
    }
    let before = project.read(index);
    project.write(&task("04"), "\n# Status\nTODO\n");
    project
        .tenure("board rebuild-index --write")
        .fails(1, &["04.md:1:", "not a title", "unchanged"]);
    assert_eq!(project.read(index), before);
}

/// Trap (e): an edit that is made while a rebuild waits for the lock is in the index.
#[test]
fn the_index_is_computed_under_the_lock() {
    let project = sample();
    hold_as_shell(&project, std::process::id());
    let rebuild = project.start("board rebuild-index --write --timeout 60");
    project::until("the rebuild waits", || {
        rebuild.err().contains("waiting for board")
    });
    let edited = project
        .read(&task("01-hold-one-lock"))
        .replace("TODO", "DONE");
    project.write(&task("01-hold-one-lock"), &edited);
    release_as_shell(&project);
    rebuild.ended().exits(0);
    let json: serde_json::Value =
        serde_json::from_str(&project.read(".bilu/board/default.json")).unwrap();
    assert_eq!(json[0]["status"], "DONE");
}

/// The index has the bytes that the bilu tool writes for the same files.
#[test]
fn the_index_reads_files_as_the_bilu_tool_does() {
    let project = empty();
    let files = [
        // List items are split at commas; values and titles are taken as they stand.
        (
            "01-lists",
            "# Lists \n# Description\n  In short. \n# Status\nin-progress\n# Priority\nlow\n# Kind\nBug\n# Tags\n- a, b\n-c,,d ,\n# Tags\n  - e\n# depends_on\n- 02-odd, 03-none\n",
        ),
        (
            "02-odd",
            "Odd\n# Status\n- DONE\n# Priority\nHIGH\u{a0}\n# Kind\n task\n",
        ),
        ("03-none", "\u{feff}# None\n# Status\n\n#\tKind\nbug\n"),
        ("04-first", "# Status\nDONE\n"),
        ("1234567", "## Last\n# Status\nTO DO\n"),
    ];
    for (id, file) in files {
        project.write(&task(id), file);
    }
    let said = project.tenure("board rebuild-index --write").exits(0);
    for words in [
        "02-odd.md: the first line has no \"# \"",
        "02-odd.md: unknown status \"- DONE\": the index says TODO",
        "02-odd.md: unknown priority \"HIGH\\u{a0}\": the index says MEDIUM",
    ] {
        assert!(said.err.contains(words), "no {words} in {said:?}");
    }
    let entry = |title: &str, description: &str, values: [&str; 3], lists: [&str; 2], id: &str| {
        let [priority, kind, status] = values;
        let [depends_on, tags] = lists.map(|items| {
            let items: Vec<String> = items
                .split_terminator(' ')
                .map(|item| format!("      \"{item}\""))
                .collect();
            let end = if items.is_empty() { "" } else { "\n" };
            format!("[\n{}{end}    ]", items.join(",\n"))
        });
        format!(
            "  {{\n    \"title\": \"{title}\",\n    \"description\": \"{description}\",\n    \"priority\": \"{priority}\",\n    \"kind\": \"{kind}\",\n    \"status\": \"{status}\",\n    \"depends_on\": {depends_on},\n    \"tags\": {tags},\n    \"link\": \"board/tasks/{id}.md\"\n  }}"
        )
    };
    let entries = [
        entry(
            "Lists ",
            "  In short. ",
            ["LOW", "bug", "INPROGRESS"],
            ["02-odd 03-none", "a b c d e"],
            "01-lists",
        ),
        entry("Odd", "", ["MEDIUM", "task", "TODO"], ["", ""], "02-odd"),
        entry(
            "\u{feff}# None",
            "",
            ["MEDIUM", "bug", "TODO"],
            ["", ""],
            "03-none",
        ),
        entry(
            "Status",
            "",
            ["MEDIUM", "task", "DONE"],
            ["", ""],
            "04-first",
        ),
        entry(
            "## Last",
            "",
            ["MEDIUM", "task", "TODO"],
            ["", ""],
            "1234567",
        ),
    ];
    let wanted = format!("[\n{}\n]\n", entries.join(",\n"));
    assert_eq!(project.read(".bilu/board/default.json"), wanted);
    // Both tools read the value that an edit writes.
    project.tenure("board set-status 02 done").exits(0);
    assert!(project.read(&task("02-odd")).contains("# Status\nDONE\n"));
}

/// A board as the bilu tool wrote it has files without sections: only a warning, as there.
#[test]
fn what_the_bilu_tool_only_warns_about_is_a_warning() {
    let project = sample();
    project.write(
        &task("03-narrative"),
        "# Phase 03\n\n## Goal\n\nWords.\n\n## Checklist\n\n- [x] one\n",
    );
    project.write(
        &task("04-odd"),
        &text("Odd", "- DONE", "UTMOST").replace("# depends_on\n", "# depends_on\n- nobody\n"),
    );
    project.tenure("board rebuild-index --write").exits(0);
    let said = project.tenure("board validate").exits(0);
    for words in [
        "03-narrative.md:9: warning: no section \"# Status\"",
        "04-odd.md:8: warning: unknown status \"- DONE\"",
        "04-odd.md:16: warning: depends on \"nobody\"",
        "No errors, 7 warnings in 4 tasks.",
    ] {
        assert!(said.out.contains(words), "no {words} in {said:?}");
    }
    let json = project.tenure("board validate --json").exits(0).json();
    assert_eq!(json["data"]["problems"][0]["severity"], "warning");
    project
        .tenure("board validate --strict")
        .fails(1, &["7 warnings in 4 tasks"]);
    // First lines that the bilu tool refuses.
    for first in [
        "Title",
        "## Title",
        "---\ntitle: Title\n---",
        "\u{feff}# Title",
        "#  ",
    ] {
        let file = text("Title", "TODO", "HIGH").replacen("# Title", first, 1);
        project.write(&task("04-odd"), &file);
        let said = project.tenure("board validate").exits(1);
        assert!(
            said.err.contains("04-odd.md:1: the f"),
            "{first:?} {said:?}"
        );
        assert!(
            said.err.contains("1 error and 4 warnings in 4 tasks"),
            "{said:?}"
        );
    }
}

#[test]
fn validate_reports_every_problem_with_file_and_line() {
    let project = sample();
    let said = project.tenure("board validate").exits(0);
    assert_eq!(said.out, "No problems in 2 tasks.\n");
    project.write(
        &task("03"),
        &text("Third", "SOON", "HIGH").replace("# depends_on\n", "# depends_on\n- nobody\n- 04\n"),
    );
    project.write(&task("04"), "# Fourth\n# depends_on\n- 03\n");
    let said = project.tenure("board validate").exits(1);
    for line in [
        ".bilu/board/tasks/03.md:8: warning: unknown status \"SOON\"",
        ".bilu/board/tasks/03.md:16: warning: depends on \"nobody\"",
        ".bilu/board/tasks/03.md:17: depends on itself: 03 -> 04 -> 03",
        ".bilu/board/tasks/04.md:3: warning: no section \"# Status\"",
        "tenure board: error: 1 error and 6 warnings in 4 tasks",
    ] {
        assert!(said.err.contains(line), "no {line} in {said:?}");
    }
    let json = project.tenure("board validate --json").exits(1).json();
    assert_eq!(json["error"]["code"], "BOARD_INVALID");
    let problems = json["error"]["details"]["problems"].as_array().unwrap();
    assert_eq!(problems.len(), 7);
    assert_eq!(problems[0]["problem"], "unknown_status");
    assert_eq!(problems[0]["line"], 8);
    assert!(
        !project.path(".bilu/storage").exists(),
        "a reader leaves nothing"
    );
}

#[test]
fn migrate_adds_missing_sections_and_changes_nothing_else() {
    let project = sample();
    project
        .tenure("board migrate")
        .fails(1, &["there is no index"]);
    project.tenure("board rebuild-index --write").exits(0);
    let old = "# Hold one lock\r\n\r\n# Status\r\nBLOCKED\r\nwords\r\n";
    project.write(&task("01-hold-one-lock"), old);
    let said = project.tenure("board migrate --dry-run").exits(0);
    assert!(
        said.out.contains(
            "01-hold-one-lock.md would get Description, Priority, Kind, Tags, depends_on"
        ),
        "{said:?}"
    );
    assert_eq!(project.read(&task("01-hold-one-lock")), old);
    project.tenure("board --migrate").exits(0);
    let new = project.read(&task("01-hold-one-lock"));
    assert!(new.starts_with(old), "{new}");
    assert!(new.contains("\r\n# Priority\r\nHIGH\r\n"), "{new}");
    assert_eq!(
        project.tenure("board migrate").exits(0).out,
        "No task file lacks a section.\n"
    );
    project.tenure("board validate").exits(0);
}

#[test]
fn help_says_which_commands_take_the_lock_where_it_is_and_what_busy_means() {
    let project = Project::uninitialised();
    let said = project.tenure("board --help").exits(0).out;
    for words in [
        "set-status, set-priority, rebuild-index --write and migrate hold it",
        ".bilu/storage/lock (or src/storage/lock)",
        "\"lock busy\" (exit 1) means",
        "force board",
        "--timeout S",
        "SIGHUP under nohup",
    ] {
        assert!(said.contains(words), "no {words:?} in {said}");
    }
}
