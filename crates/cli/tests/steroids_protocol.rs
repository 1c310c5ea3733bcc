//! The texts, JSON and settings that the protocol of the task locks prescribes, on the database that is another
//! program's (`--store steroids:PATH`).

use crate::project;
use crate::steroids::{FREE, Folder, LOCKED, RUNNER, TASKS_SECTION};

use std::fs;

use project::{Project, until};
use serde_json::{Value, json};

/// When the other program's lock of a task ends.
fn end(folder: &Folder, task: &str) -> String {
    let sql = "SELECT expires_at FROM task_locks WHERE task_id = ?1";
    folder.db.query_row(sql, [task], |row| row.get(0)).unwrap()
}

/// Another runner takes the section of both tasks.
fn lock_section(folder: &Folder) {
    let sql = "UPDATE section_locks SET runner_id = 'them', acquired_at = datetime('now'),
               expires_at = '2999-01-15T11:30:00.000Z'";
    assert_eq!(folder.db.execute(sql, []).unwrap(), 1);
}

fn error(folder: &Folder, words: &str) -> Value {
    let said = folder.tenure(&format!("{words} --json")).exits(6);
    said.json()["error"].clone()
}

#[test]
fn a_refusal_has_the_documented_lines_and_exit_code() {
    let folder = Folder::new();
    folder.lock(FREE);
    let end = end(&folder, FREE);
    for words in ["acquire task:{} --no-wait", "run task:{} --no-wait -- true"] {
        let said = folder.tenure(&words.replace("{}", FREE)).exits(6);
        assert_eq!(
            said.err,
            format!(
                "Error: Task \"Fix the login bug\" is locked by runner {RUNNER}\nLock expires at: {end}\n"
            )
        );
        assert_eq!(said.out, "");
    }
    lock_section(&folder);
    let said = folder
        .tenure(&format!("acquire task:{LOCKED} --no-wait"))
        .exits(6);
    assert_eq!(
        said.err,
        "Error: Section \"Backend\" of task \"Write the migration\" is locked by runner them\n\
         Lock expires at: 2999-01-15T11:30:00.000Z\n"
    );
    let said = folder
        .tenure(&format!("acquire section:{TASKS_SECTION} --no-wait"))
        .exits(6);
    assert!(
        said.err
            .starts_with("Error: Section \"Backend\" is locked by runner them\n"),
        "{said:?}"
    );
    // A caller that asked for another exit code gets it.
    let said = folder.tenure(&format!("run task:{FREE} --no-wait -E 33 -- true"));
    said.exits(33);
}

#[test]
fn a_refusal_has_the_documented_json() {
    let folder = Folder::new();
    folder.lock(FREE);
    let said = folder
        .tenure(&format!("acquire task:{FREE} --no-wait --json"))
        .exits(6);
    assert_eq!(said.err, "");
    assert_eq!(
        said.json(),
        json!({
            "success": false,
            "command": "acquire",
            "subcommand": null,
            "data": null,
            "error": {
                "code": "TASK_LOCKED",
                "message": "Task is locked by another runner",
                "details": { "taskId": FREE, "lockedBy": RUNNER, "expiresAt": end(&folder, FREE) }
            }
        })
    );
    let locked = |details| {
        json!({
            "code": "SECTION_LOCKED",
            "message": "Section is locked by another runner",
            "details": details
        })
    };
    lock_section(&folder);
    let until = "2999-01-15T11:30:00.000Z";
    assert_eq!(
        error(&folder, &format!("acquire task:{LOCKED} --no-wait")),
        locked(json!({
            "taskId": LOCKED, "sectionId": TASKS_SECTION, "lockedBy": "them", "expiresAt": until
        }))
    );
    assert_eq!(
        error(
            &folder,
            &format!("acquire section:{TASKS_SECTION} --no-wait")
        ),
        locked(json!({ "sectionId": TASKS_SECTION, "lockedBy": "them", "expiresAt": until }))
    );
}

#[test]
fn a_title_is_one_line_and_a_task_without_one_is_named_by_its_id() {
    let folder = Folder::new();
    folder.lock(FREE);
    for (title, shown) in [
        ("'two' || char(10) || 'lines'", "two lines"),
        ("'   '", FREE),
        ("x'00ff'", FREE),
        ("'\u{1b}[31mred'", r"\u{1b}[31mred"),
    ] {
        let sql = format!("UPDATE tasks SET title = {title} WHERE id = '{FREE}'");
        folder.db.execute(&sql, []).unwrap();
        let said = folder
            .tenure(&format!("acquire task:{FREE} --no-wait"))
            .exits(6);
        let first = said.err.lines().next().unwrap();
        assert_eq!(
            first,
            format!("Error: Task \"{shown}\" is locked by runner {RUNNER}")
        );
        assert_eq!(said.err.lines().count(), 2, "{said:?}");
    }
}

#[test]
fn a_wait_has_the_documented_lines_and_ends_with_lock_released() {
    let folder = Folder::new();
    folder.lock(FREE);
    let words = Folder::words(&format!("run task:{FREE} --as me --wait 10m"));
    let waiting = folder.project.call(&words).sh("echo ran").start();
    until("it waits", || waiting.err().lines().count() >= 3);
    let sql = "DELETE FROM task_locks WHERE task_id = ?1";
    assert_eq!(folder.db.execute(sql, [FREE]).unwrap(), 1);
    let said = waiting.ended().exits(0);
    let lines: Vec<&str> = said.err.lines().collect();
    assert_eq!(
        lines[0],
        "Task \"Fix the login bug\" is locked by another runner."
    );
    assert_eq!(lines[1], "Waiting for lock... (Ctrl+C to cancel)");
    assert!(
        lines[2].contains("up to 10m") && lines[2].contains(RUNNER),
        "{said:?}"
    );
    assert_eq!(lines[3..], ["Lock released!"], "{said:?}");
    // The same for a section, and without a grant.
    lock_section(&folder);
    let said = folder
        .tenure(&format!("acquire task:{FREE} --wait 50ms"))
        .exits(6);
    assert!(
        said.err
            .starts_with("Section \"Backend\" is locked by another runner.\n"),
        "{said:?}"
    );
    assert!(!said.err.contains("released!"), "{said:?}");
    assert!(
        said.err
            .contains("the wait timed out; this command was 1st in the queue"),
        "{said:?}"
    );
}

#[test]
fn a_row_that_makes_no_sense_has_the_documented_json_and_nobody_is_told_to_wait() {
    let folder = Folder::new();
    folder.lock(FREE);
    let sql = "UPDATE task_locks SET expires_at = 'soon' WHERE task_id = ?1";
    folder.db.execute(sql, [FREE]).unwrap();
    let words = format!("acquire task:{FREE} --no-wait");
    let refusal = error(&folder, &words);
    assert_eq!(refusal["code"], "TASK_LOCKED");
    assert_eq!(
        refusal["details"],
        json!({ "taskId": FREE, "lockedBy": RUNNER, "expiresAt": null })
    );
    let said = folder
        .tenure(&words)
        .fails(6, &["has a malformed lock", "waiting does not end it"]);
    assert!(!said.err.contains("--wait"), "{said:?}");
    // The command that it names says what is wrong.
    let look = "to see what is wrong with it: tenure ";
    let look = said
        .err
        .lines()
        .find_map(|line| line.trim().strip_prefix(look))
        .unwrap();
    let seen = folder.project.tenure(look);
    assert!(seen.out.contains("soon"), "{seen:?}");
}

#[test]
fn a_shell_that_holds_the_task_itself_is_told_so() {
    let folder = Folder::new();
    let script = format!(
        "$TENURE --store steroids:.steroids/steroids.db acquire task:{FREE} --quiet >&2
         $TENURE --store steroids:.steroids/steroids.db run task:{FREE} --no-wait -- true"
    );
    folder
        .project
        .shell(&script)
        .end()
        .fails(6, &["you hold task:", "yourself", "--token 1"]);
}

/// The other program's settings, as its document writes them.
const SETTINGS: &str = "\
ai:
  provider: claude
  models: [a, b]
locking:
  _description: \"Task locking settings\"

  taskTimeout:
    _description: \"Default task lock expiry\"
    _default: \"60m\"
    value: \"20m\"

  sectionTimeout:
    _default: \"120m\"
    value: \"90m\"

  waitTimeout: 50ms
";

fn write_settings(project: &Project, text: &str) -> String {
    let folder = project.home().join(".steroids");
    fs::create_dir_all(&folder).unwrap();
    let file = folder.join("config.yaml");
    fs::write(&file, text).unwrap();
    file.display().to_string()
}

/// The value of a setting, and where it comes from.
fn setting(project: &Project, words: &str, key: &str) -> (String, String) {
    let shown = project
        .tenure(&format!("{words} config show --json"))
        .exits(0)
        .json();
    let settings = shown["data"]["settings"].as_array().unwrap();
    let found = settings
        .iter()
        .find(|setting| setting["key"] == key)
        .unwrap();
    let text = |name: &str| found[name].as_str().unwrap().to_owned();
    (text("value"), text("source"))
}

const STORE: &str = "--store steroids:.steroids/steroids.db";

#[test]
fn the_other_programs_settings_are_a_layer_below_ours() {
    let folder = Folder::new();
    let project = &folder.project;
    let file = write_settings(project, SETTINGS);
    let task = "locking.taskTimeout";
    assert_eq!(
        setting(project, STORE, task),
        ("20m".to_owned(), file.clone())
    );
    let section = setting(project, STORE, "locking.sectionTimeout");
    assert_eq!(section, ("90m".to_owned(), file.clone()));
    let poll = setting(project, STORE, "locking.pollInterval");
    assert_eq!(poll, ("5s".to_owned(), "default".to_owned()));
    // For that store only.
    assert_eq!(
        setting(project, "", task),
        ("60m".to_owned(), "default".to_owned())
    );
    let paths = project.tenure(&format!("{STORE} config path")).exits(0).out;
    assert_eq!(paths.lines().next(), Some(file.as_str()));
    assert!(!project.tenure("config path").out.contains(".steroids"));

    // They count: the lease, and the wait that nobody limited.
    let said = folder
        .tenure(&format!("acquire task:{FREE} --as a --json"))
        .exits(0)
        .json();
    let left = said["data"]["remainingSeconds"].as_u64().unwrap();
    assert!((1100..=1200).contains(&left), "{said}");
    let said = folder
        .tenure(&format!("acquire task:{FREE} --as b"))
        .exits(6);
    assert!(said.err.contains("up to 50ms"), "{said:?}");

    // Each layer of ours replaces them.
    fs::create_dir_all(project.home().join(".tenure")).unwrap();
    let own = project.home().join(".tenure/config.yaml");
    fs::write(&own, "locking:\n  taskTimeout: 7m\n").unwrap();
    let own = own.display().to_string();
    assert_eq!(setting(project, STORE, task), ("7m".to_owned(), own));
    let call = project.call(&Folder::words("config show --json"));
    let said = call.env("TENURE_LOCKING_TASK_TIMEOUT", "8m").end().exits(0);
    assert!(said.out.contains("\"value\": \"8m\""), "{said:?}");
}

#[test]
fn a_mistake_in_the_other_programs_settings_names_the_file_and_the_line() {
    let folder = Folder::new();
    let acquire = format!("acquire task:{FREE} --as me");
    for (text, place) in [
        (
            SETTINGS.replace("20m", "20 fortnights"),
            ":10:12: locking.taskTimeout:",
        ),
        (
            SETTINGS.replace("20m", "31d"),
            ":10:12: locking.taskTimeout:",
        ),
        (
            SETTINGS.replace("50ms", "[1]"),
            ":16:16: locking.waitTimeout must be",
        ),
        (
            "locking: a: b\n".to_owned(),
            ":1:11: this is not valid YAML",
        ),
    ] {
        let file = write_settings(&folder.project, &text);
        folder
            .tenure(&acquire)
            .fails(2, &[&format!("{file}{place}")]);
        let said = folder.tenure(&format!("{acquire} --json")).exits(2);
        assert_eq!(said.error(), "BAD_CONFIG");
        // A layer above does not hide it.
        let call = folder.project.call(&Folder::words(&acquire));
        let call = call.env("TENURE_LOCKING_TASK_TIMEOUT", "8m");
        let call = call.env("TENURE_LOCKING_WAIT_TIMEOUT", "8m");
        call.end().exits(2);
    }
    // What is that program's own is not ours to judge.
    write_settings(
        &folder.project,
        "locking:\n  retries: many\n  runTimeout: soon\nguard: 5\n",
    );
    folder.tenure(&acquire).exits(0);
}

#[test]
fn no_pipe_link_or_endless_file_in_the_place_of_those_settings_stops_a_command() {
    let folder = Folder::new();
    let acquire = format!("acquire task:{FREE} --as me");
    let file = write_settings(&folder.project, "");
    let small = fs::metadata(&file).unwrap().len();
    assert_eq!(small, 0);
    fs::write(&file, "#".repeat(64 * 1024 + 1)).unwrap();
    folder
        .tenure(&acquire)
        .fails(2, &[&file, "larger than 64 KiB"]);
    fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink("/dev/zero", &file).unwrap();
    folder
        .tenure(&acquire)
        .fails(2, &[&file, "a pipe, socket or device"]);
    fs::remove_file(&file).unwrap();
    let made = folder
        .project
        .program("mkfifo")
        .arg(&file)
        .status()
        .unwrap();
    assert!(made.success());
    folder
        .tenure(&acquire)
        .fails(2, &[&file, "a pipe, socket or device"]);
}
