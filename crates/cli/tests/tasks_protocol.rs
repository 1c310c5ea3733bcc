//! The scenarios, texts, JSON and SQL of the task lock protocol, with real processes.

use crate::project;

use std::io::Write;

use project::{Project, Running, Said, process, until};
use rustix::process::Signal;
use serde_json::{Value, json};

/// The id that a command printed.
fn id(said: Said) -> String {
    said.exits(0).out.trim().to_owned()
}

/// A task's status.
#[track_caller]
fn status(project: &Project, task: &str) -> String {
    let said = project.call("tasks show --json").arg(task).end().exits(0);
    said.json()["data"]["status"].as_str().unwrap().to_owned()
}

/// The project of the first scenario: the section's key and the keys of its two tasks.
fn backend(project: &Project) -> (String, String, String) {
    let section = id(project.tenure("sections add Backend --quiet"));
    let add = |title: &str| {
        let call = project.call("tasks add --section Backend --quiet");
        id(call.arg(title).end())
    };
    let (one, two) = (add("Task 1"), add("Task 2"));
    (
        format!("section:{section}"),
        format!("task:{one}"),
        format!("task:{two}"),
    )
}

/// `tenure tasks update TITLE` with these words.
fn update(project: &Project, title: &str, words: &str) -> project::Call {
    project.call(&format!("tasks update {words}")).arg(title)
}

/// Plays "Two Runners, Same Section" up to its last three lines. `wants` is the command with which B
/// waits for the section or one of its tasks, `queue` the key that it queues for.
fn two_runners(
    project: &Project,
    keys: &(String, String, String),
    wants: project::Call,
    queue: &str,
) -> Running {
    let (section, one, two) = keys;

    // [Runner A] Starting "Task 1" in Backend section
    let said = update(
        project,
        "Task 1",
        "--status in_progress --as runner-a --json",
    )
    .end()
    .exits(0);
    // [Runner A] Acquired lock on Task 1
    assert_eq!(said.json()["data"]["reason"], "acquired_new");
    let held = project
        .tenure(&format!("locks show {one} --json"))
        .exits(0)
        .json();
    assert_eq!(held["data"]["leases"][0]["holder"], "runner-a", "{held}");
    // [Runner A] Working on Task 1...
    assert_eq!(status(project, "Task 1"), "in_progress");

    // [Runner B] Wants to start "Task 2" in Backend section
    // [Runner B] Task 2 has no lock, but checking section...
    project
        .tenure(&format!("locks show {two}"))
        .fails(4, &["no lock"]);
    // [Runner B] Section Backend is locked by Runner A
    let said = update(
        project,
        "Task 2",
        "--status in_progress --as runner-b --no-wait --json",
    );
    let said = said.end().exits(6);
    assert_eq!(said.error(), "SECTION_LOCKED");
    assert_eq!(said.json()["error"]["details"]["lockedBy"], "runner-a");
    // [Runner B] Waiting for section lock...
    let mut b = wants.start();
    project.until_waiting(queue, 1);

    // [Runner A] Completed Task 1
    let said = update(project, "Task 1", "--status completed --as runner-a --json");
    let said = said.end().exits(0).json();
    assert_eq!(said["data"]["status"], "completed");
    // [Runner A] Released task lock
    assert_eq!(said["data"]["freed"], json!([one]), "and nothing else");
    // [Runner A] Checking for next task in Backend...
    let said = project
        .tenure("tasks next --as runner-a --json")
        .exits(0)
        .json();
    // [Runner A] Found Task 2, acquiring lock...
    assert_eq!(said["data"]["title"], "Task 2");
    assert_eq!(said["data"]["status"], "in_progress");

    // [Runner B] Section still locked (Runner A got Task 2)
    let held = project
        .tenure(&format!("locks show {section} --json"))
        .exits(0)
        .json();
    assert_eq!(held["data"]["leases"][0]["holder"], "runner-a", "{held}");
    // [Runner B] Waiting...
    assert_eq!(project.waiting(queue), ["runner-b"]);
    assert!(b.runs());

    // [Runner A] Completed Task 2
    let said = update(project, "Task 2", "--status completed --as runner-a --json");
    let said = said.end().exits(0).json();
    // [Runner A] Released task lock
    // [Runner A] No more tasks in Backend, releasing section lock
    assert_eq!(said["data"]["freed"], json!([two, section]));
    b
}

#[test]
fn two_runners_in_one_section_where_the_second_waits_for_the_section() {
    let project = Project::new();
    let keys = backend(&project);
    let wants = project.call(&format!("acquire {} --as runner-b --wait 10m", keys.0));
    let b = two_runners(&project, &keys, wants, &keys.0);
    // [Runner B] Section lock released!
    b.ended().exits(0);
    // [Runner B] Looking for tasks... none pending
    let said = project.tenure("tasks next --as runner-b --json").exits(4);
    assert_eq!(said.error(), "NO_TASK_LEFT");
    // [Runner B] Going idle
    assert_eq!(project.tenure("locks list").out, "No locks.\n");
    assert_eq!(status(&project, "Task 2"), "completed");
}

#[test]
fn two_runners_in_one_section_where_the_second_waits_for_any_task() {
    let project = Project::new();
    let keys = backend(&project);
    let wants = project.call("tasks work --as runner-b -- touch ran");
    let b = two_runners(&project, &keys, wants, "task:*");
    // [Runner B] Section lock released!
    // [Runner B] Looking for tasks... none pending
    // [Runner B] Going idle
    let said = b.ended().exits(0);
    assert!(said.err.contains("0 completed"), "{said:?}");
    assert!(!project.path("ran").exists());
    project
        .tenure("tasks next --as runner-b")
        .fails(4, &["no task is left"]);
    assert_eq!(project.tenure("locks list").out, "No locks.\n");
}

#[test]
fn two_runners_in_one_section_where_the_second_waits_with_next() {
    let project = Project::new();
    let keys = backend(&project);
    let wants = project.call("tasks next --as runner-b --wait 10m --quiet");
    let b = two_runners(&project, &keys, wants, "task:*");
    // [Runner B] Section lock released!
    // [Runner B] Looking for tasks... none pending
    project
        .tenure("tasks next --as runner-c")
        .fails(4, &["no task is left"]);
    // [Runner B] Going idle: until there is a task again.
    let more = project.tenure("tasks add Three --section Backend --quiet");
    assert_eq!(b.ended().exits(0).out.trim(), id(more));
}

#[test]
fn a_task_that_was_completed_during_the_wait_is_not_started_again() {
    let project = Project::new();
    let keys = backend(&project);
    let words = "--status in_progress --as runner-b --wait 10m";
    let wants = update(&project, "Task 2", words);
    let b = two_runners(&project, &keys, wants, &keys.0);
    // [Runner B] Section lock released!
    // [Runner B] Looking for tasks... none pending
    let said = b.ended();
    assert_eq!(
        status(&project, "Task 2"),
        "completed",
        "it was started again: {said:?}"
    );
    assert_ne!(said.code, 0, "{said:?}");
    // [Runner B] Going idle
    assert_eq!(project.tenure("locks list").out, "No locks.\n");
}

#[test]
fn waiting_for_a_task_that_gets_completed_ends_with_that_news() {
    for ends in ["review", "completed", "skipped"] {
        let project = Project::new();
        let task = id(project.call("tasks add --quiet").arg("Fix bug").end());
        update(&project, "Fix bug", "--status in_progress --as runner-a")
            .end()
            .exits(0);
        // It is in progress when the second runner begins to wait for it.
        let b = update(&project, "Fix bug", "--status in_progress --as runner-b").start();
        project.until_waiting(&format!("task:{task}"), 1);
        update(
            &project,
            "Fix bug",
            &format!("--status {ends} --as runner-a"),
        )
        .end()
        .exits(0);
        b.ended().fails(
            4,
            &["Fix bug", &format!("was set to {ends}"), "not started"],
        );
        let shown = project
            .tenure(&format!("tasks show {task} --json"))
            .exits(0)
            .json();
        assert_eq!(shown["data"]["status"], ends, "{shown}");
        // Not even for a moment: each status that it had is in its history.
        let past = shown["data"]["history"].as_array().unwrap();
        let statuses = past.iter().filter(|past| past["field"] == "status").count();
        assert_eq!(statuses, 2, "pending and in_progress: {shown}");
        assert_eq!(project.tenure("locks list").out, "No locks.\n");
        // Repeated, the command means it.
        update(&project, "Fix bug", "--status in_progress --as runner-b")
            .end()
            .exits(0);
    }
}

#[test]
fn a_task_that_failed_during_the_wait_is_started() {
    let project = Project::new();
    let task = id(project.call("tasks add --quiet").arg("Fix bug").end());
    update(&project, "Fix bug", "--status in_progress --as runner-a")
        .end()
        .exits(0);
    let b = update(&project, "Fix bug", "--status in_progress --as runner-b").start();
    project.until_waiting(&format!("task:{task}"), 1);
    update(&project, "Fix bug", "--status failed --as runner-a")
        .end()
        .exits(0);
    b.ended().exits(0);
    assert_eq!(status(&project, "Fix bug"), "in_progress");
}

#[test]
fn a_wait_for_a_task_says_how_long_it_lasts_and_an_option_limits_it() {
    let project = Project::new();
    project.tenure("tasks add one").exits(0);
    project.tenure("tasks next --as other").exits(0);
    for words in [
        "tasks update one --status in_progress --as me",
        "tasks next --wait --as me",
        "tasks work --as me -- true",
    ] {
        let waiting = project.start(words);
        until("it says so", || waiting.err().contains("up to 30m"));
        drop(waiting);
        // The same with a limit of its own, which ends the wait.
        let limited = words
            .replace("--wait ", "")
            .replace("--as me", "--as me --wait 1s");
        let said = project.tenure(&limited);
        said.fails(6, &["up to 1s", "the wait timed out"]);
    }
}

#[test]
fn an_expired_lock_is_claimed_as_documented() {
    let project = Project::new();
    let task = id(project.tenure("tasks add --quiet One"));
    // [Runner A] Started Task 1 at 10:00
    project
        .tenure("tasks update One --status in_progress --as runner-a --ttl 300ms")
        .exits(0);
    // [Runner A] Crashed at 10:15 (lock expires at 11:00)
    // [Runner B] Checking Task 1 at 11:05
    // [Runner B] Lock exists but expired (11:00 < now)
    let key = format!("task:{task}");
    until("it has expired", || project.verdict(&key) == "expired");
    assert_eq!(status(&project, "One"), "in_progress");
    // [Runner B] Claiming expired lock
    let said = project
        .tenure("tasks update One --status in_progress --as runner-b --no-wait --json")
        .exits(0)
        .json();
    assert_eq!(said["data"]["reason"], "claimed_expired");
    // [Runner B] Resuming/restarting Task 1
    assert_eq!(said["data"]["holder"], "runner-b");
    assert_eq!(project.story(&key), "granted 1, expired 1, granted 2");
    let (_, _, expired) = &project.history(&key)[1];
    assert_eq!(expired["holder"], "runner-a");
    let text = project.tenure(&format!("locks history {key}")).exits(0).out;
    assert!(text.contains("expired"), "{text}");
}

#[test]
fn an_expired_lock_is_claimed_by_next_with_its_section() {
    let project = Project::new();
    let (section, one, _) = backend(&project);
    project
        .tenure("tasks next --as runner-a --ttl 300ms")
        .exits(0);
    until("it has expired", || project.verdict(&one) == "expired");
    // The section's lease is A's and lasts longer, but A works on no task of it any more.
    assert_ne!(project.verdict(&section), "expired");
    let said = project
        .tenure("tasks next --as runner-b --json")
        .exits(0)
        .json();
    assert_eq!(said["data"]["title"], "Task 1");
    assert_eq!(said["data"]["reason"], "claimed_expired");
}

#[test]
fn the_lock_of_a_killed_process_is_claimed_at_once() {
    let project = Project::new();
    let task = id(project.tenure("tasks add --quiet One"));
    let key = format!("task:{task}");
    // [Runner A] Started Task 1 at 10:00
    let mut agent = project.program("sleep").arg("300").spawn().unwrap();
    project
        .call("tasks update One --status in_progress --as runner-a --ttl 1h --pid")
        .arg(agent.id().to_string())
        .end()
        .exits(0);
    project
        .tenure("tasks update One --status in_progress --as runner-b --no-wait")
        .exits(6);
    // [Runner A] Crashed at 10:15 (lock expires at 11:00)
    process::signal(agent.id(), Signal::KILL);
    agent.wait().unwrap();
    // [Runner B] Claiming the lock of a dead process
    let said = project
        .tenure("tasks update One --status in_progress --as runner-b --no-wait --json")
        .exits(0)
        .json();
    assert_eq!(said["data"]["reason"], "claimed_dead");
    assert_eq!(project.story(&key), "granted 1, dead 1, granted 2");
    let (_, _, dead) = &project.history(&key)[1];
    assert_eq!(dead["holder"], "runner-a");
    assert_eq!(dead["evidence"]["pid"], agent.id());
}

const CTRL_C: &str = "\x03";

/// `tenure` on a new terminal, made by script(1).
struct Terminal(Running);

impl Terminal {
    fn run(project: &Project, line: &str) -> Self {
        let mut script = project.program("script");
        script
            .args(["--quiet", "--return", "--command", line, "/dev/null"])
            .env("SHELL", "/bin/sh")
            .env("TERM", "xterm");
        Self(project.prepare(script).input().start())
    }

    fn types(&mut self, text: &str) {
        let stdin = self.0.stdin.as_mut().unwrap();
        stdin.write_all(text.as_bytes()).unwrap();
    }

    #[track_caller]
    fn shows(&self, text: &str) {
        until(&format!("{text:?} is shown"), || {
            self.0.out().contains(text)
        });
    }
}

#[test]
fn a_wait_on_a_terminal_prints_the_documented_lines() {
    let project = Project::new();
    let task = id(project.call("tasks add --quiet").arg("Fix bug").end());
    update(&project, "Fix bug", "--status in_progress --as runner-a")
        .end()
        .exits(0);
    let line = "exec $TENURE tasks update 'Fix bug' --status in_progress --as runner-b";
    let terminal = Terminal::run(&project, line);
    terminal.shows("Task \"Fix bug\" is locked by another runner.\r\n");
    terminal.shows("Waiting for lock... (Ctrl+C to cancel)\r\n");
    terminal.shows("[>");
    terminal.shows("s elapsed");
    terminal.shows("1st in the queue");
    project.until_waiting(&format!("task:{task}"), 1);
    update(&project, "Fix bug", "--status pending --as runner-a")
        .end()
        .exits(0);
    let said = terminal.0.ended().exits(0);
    let lines = [
        "Task \"Fix bug\" is locked by another runner.\r\n",
        "Waiting for lock... (Ctrl+C to cancel)\r\n",
        "elapsed",
        "Lock released!\r\n",
        "Task \"Fix bug\" status updated to in_progress.\r\n",
    ];
    let mut rest = said.out.as_str();
    for line in lines {
        let (_, after) = rest
            .split_once(line)
            .unwrap_or_else(|| panic!("{line:?} is not next: {said:?}"));
        rest = after;
    }
    assert_eq!(rest, "", "{said:?}");
}

#[test]
fn ctrl_c_removes_every_trace_of_a_wait_for_a_task() {
    let project = Project::new();
    let (section, one, two) = backend(&project);
    update(&project, "Task 1", "--status in_progress --as runner-a")
        .end()
        .exits(0);
    let before = project.tenure("locks list --json").exits(0).json();
    // The task itself, and another one of its section.
    for (title, key) in [("Task 1", &section), ("Task 2", &section)] {
        let line =
            format!("exec $TENURE tasks update '{title}' --status in_progress --as runner-b");
        let mut terminal = Terminal::run(&project, &line);
        terminal.shows("elapsed");
        project.until_waiting(key, 1);
        terminal.types(CTRL_C);
        let said = terminal.0.ended().exits(130);
        assert!(said.out.contains("left the queue"), "{said:?}");
        assert!(!said.out.contains("Lock released!"), "{said:?}");
    }
    let tickets = |json: &Value| -> Vec<Value> {
        let locks = json["data"]["locks"].as_array().unwrap().iter();
        locks
            .map(|lock| {
                json!([
                    lock["key"],
                    lock["leases"][0]["holder"],
                    lock["leases"][0]["token"],
                    lock["queue"]
                ])
            })
            .collect()
    };
    let after = project.tenure("locks list --json").exits(0).json();
    assert_eq!(tickets(&after), tickets(&before));
    for key in [&section, &one, &two] {
        assert!(project.waiting(key).is_empty());
    }
    assert_eq!(status(&project, "Task 1"), "in_progress");
    assert_eq!(status(&project, "Task 2"), "pending");
}

#[test]
fn no_wait_prints_the_documented_lines() {
    let project = Project::new();
    let task = id(project.call("tasks add --quiet").arg("Fix bug").end());
    let runner = "f47ac10b-58cc-4372-a567-0e02b2c3d479";
    let words = format!("--status in_progress --json --as {runner}");
    let held = update(&project, "Fix bug", &words).end().exits(0).json();
    let until = held["data"]["expiresAt"].as_str().unwrap();
    assert!(until.ends_with('Z'), "{until}");
    let said = update(
        &project,
        "Fix bug",
        "--status in_progress --as other --no-wait",
    )
    .end()
    .exits(6);
    assert_eq!(
        said.err,
        format!("Error: Task \"Fix bug\" is locked by runner {runner}\nLock expires at: {until}\n")
    );
    assert_eq!(said.out, "");
    let words = "--status in_progress --as other --no-wait --json";
    let said = update(&project, "Fix bug", words).end().exits(6);
    assert_eq!(said.err, "");
    assert_eq!(
        said.json(),
        json!({
            "success": false,
            "command": "tasks",
            "subcommand": "update",
            "data": null,
            "error": {
                "code": "TASK_LOCKED",
                "message": "Task is locked by another runner",
                "details": { "taskId": task, "lockedBy": runner, "expiresAt": until }
            }
        })
    );
    assert!(
        said.out
            .starts_with("{\n  \"success\": false,\n  \"command\": \"tasks\",\n"),
        "{said:?}"
    );
}

#[test]
fn no_wait_says_which_section_is_locked() {
    let project = Project::new();
    let (section, _, two) = backend(&project);
    let words = "--status in_progress --as runner-a --json";
    update(&project, "Task 1", words).end().exits(0);
    let words = "--status in_progress --as runner-b --no-wait";
    let said = update(&project, "Task 2", words).end().exits(6);
    let shown = project
        .tenure(&format!("locks show {section} --json"))
        .json();
    let until = shown["data"]["leases"][0]["expiresAt"].as_str().unwrap();
    assert_eq!(
        said.err,
        format!(
            "Error: Section \"Backend\" of task \"Task 2\" is locked by runner runner-a\nLock expires at: {until}\n"
        )
    );
    let words = format!("{words} --json");
    let said = update(&project, "Task 2", &words).end().exits(6);
    assert_eq!(
        said.json()["error"],
        json!({
            "code": "SECTION_LOCKED",
            "message": "Section is locked by another runner",
            "details": {
                "taskId": two.strip_prefix("task:"),
                "sectionId": section.strip_prefix("section:"),
                "lockedBy": "runner-a",
                "expiresAt": until,
            }
        })
    );
}

/// Runs a statement with the `sqlite3` command.
#[track_caller]
fn sqlite3(project: &Project, statement: &str) -> Vec<Value> {
    let mut command = project.program("sqlite3");
    command
        .args(["-json", "-cmd", ".timeout 5000"])
        .arg(project.database())
        .arg(statement);
    let said = project.prepare(command).end().exits(0);
    if said.out.trim().is_empty() {
        return Vec::new();
    }
    said.json().as_array().unwrap().clone()
}

#[test]
fn the_documented_query_finds_the_lock() {
    let project = Project::new();
    let (section, one, _) = backend(&project);
    let (section, one) = (&section["section:".len()..], &one["task:".len()..]);
    let query = format!("SELECT * FROM task_locks WHERE task_id = '{one}'");
    assert!(sqlite3(&project, &query).is_empty());
    update(&project, "Task 1", "--status in_progress --as runner-a")
        .end()
        .exits(0);
    let rows = sqlite3(&project, &query);
    assert_eq!(rows.len(), 1);
    let row = rows[0].as_object().unwrap();
    let fields: Vec<&str> = row.keys().map(String::as_str).collect();
    for field in [
        "task_id",
        "runner_id",
        "acquired_at",
        "expires_at",
        "heartbeat_at",
    ] {
        assert!(fields.contains(&field), "{field} is missing: {fields:?}");
    }
    assert_eq!(fields.len(), 5, "{fields:?}");
    assert_eq!(row["task_id"], one);
    assert_eq!(row["runner_id"], "runner-a");
    for field in ["acquired_at", "expires_at", "heartbeat_at"] {
        let time = row[field].as_str().unwrap();
        assert!(time.ends_with('Z') && time.contains('T'), "{time}");
    }
    let query = format!("SELECT * FROM section_locks WHERE section_id = '{section}'");
    let rows = sqlite3(&project, &query);
    assert_eq!(rows[0]["runner_id"], "runner-a");
    // Not expired, as the real tool asks.
    let query = "SELECT count(*) AS n FROM task_locks
                 WHERE expires_at < strftime('%Y-%m-%dT%H:%M:%fZ', 'now')";
    assert_eq!(sqlite3(&project, query)[0]["n"], 0);
    update(&project, "Task 1", "--status review --as runner-a")
        .end()
        .exits(0);
    assert_eq!(
        sqlite3(&project, "SELECT count(*) AS n FROM task_locks")[0]["n"],
        0
    );
}

#[test]
fn a_row_that_another_program_wrote_is_a_lock() {
    let project = Project::new();
    let task = id(project.tenure("tasks add --quiet One"));
    // As documented: two times are defaults, one is given.
    let insert = format!(
        "INSERT INTO task_locks (task_id, runner_id, expires_at)
         VALUES ('{task}', 'foreign', strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '+1 hour'))"
    );
    sqlite3(&project, &insert);
    let said = project
        .tenure("tasks update One --status in_progress --as me --no-wait --json")
        .exits(6);
    assert_eq!(said.json()["error"]["details"]["lockedBy"], "foreign");
    let said = project.tenure("tasks next --as me --json").exits(6);
    assert_eq!(said.error(), "TASKS_LOCKED");
    project
        .tenure("tasks update One --status completed --as me")
        .exits(6);
    assert_eq!(status(&project, "One"), "pending");

    sqlite3(
        &project,
        "UPDATE task_locks SET acquired_at = datetime('now', '-1 hour'), expires_at = datetime('now', '-1 second')",
    );
    let said = project.tenure("tasks next --as me --json").exits(0).json();
    assert_eq!(said["data"]["reason"], "claimed_expired");
    let rows = sqlite3(&project, "SELECT runner_id FROM task_locks");
    assert_eq!(rows, [json!({ "runner_id": "me" })]);
}

#[test]
fn a_section_that_another_program_locked_is_locked() {
    let project = Project::new();
    let (section, _, _) = backend(&project);
    let section = &section["section:".len()..];
    let insert = format!(
        "INSERT INTO section_locks (section_id, runner_id, expires_at)
         VALUES ('{section}', 'foreign', strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '+1 hour'))"
    );
    sqlite3(&project, &insert);
    let words = "--status in_progress --as me --no-wait --json";
    let said = update(&project, "Task 1", words).end().exits(6);
    assert_eq!(said.error(), "SECTION_LOCKED");
    assert_eq!(said.json()["error"]["details"]["lockedBy"], "foreign");
    project.tenure("tasks next --as me").exits(6);
    sqlite3(&project, "DELETE FROM section_locks");
    project.tenure("tasks next --as me").exits(0);
}
