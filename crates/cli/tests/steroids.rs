//! `--store steroids:PATH`: the command on a live database of another program, as a person types it.

use crate::project;

use std::fs;
use std::path::Path;

use project::{Project, Said, until};
use rusqlite::Connection;

/// Two tasks of the sample and a section. The second task and the section are locked, long ago, by
/// another runner.
pub(crate) const FREE: &str = "8f3842e9-1e5a-4520-9de2-a766262ea768";
pub(crate) const LOCKED: &str = "89b48375-3e92-4062-a254-b993b66fd67b";
const SECTION: &str = "f46a4444-02c2-4faf-984a-e4ef139daef8";
pub(crate) const RUNNER: &str = "f47ac10b-58cc-4372-a567-0e02b2c3d479";

/// A folder without a project, with the other program's database in it.
pub(crate) struct Folder {
    pub(crate) project: Project,
    pub(crate) db: Connection,
}

impl Folder {
    pub(crate) fn new() -> Self {
        let project = Project::uninitialised();
        let sample = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../stores/sqlite/tests/fixtures/steroids.db");
        fs::create_dir(project.path(".steroids")).unwrap();
        let path = project.path(".steroids/steroids.db");
        fs::copy(sample, &path).unwrap();
        let db = Connection::open(path).unwrap();
        // Relative to this machine's date.
        for table in ["task_locks", "section_locks"] {
            let sql = format!("UPDATE {table} SET expires_at = '2024-01-15T11:30:00.000Z'");
            assert_eq!(db.execute(&sql, []).unwrap(), 1);
        }
        Self { project, db }
    }

    /// The words after `tenure --store ...`.
    pub(crate) fn words(words: &str) -> String {
        format!("--store steroids:.steroids/steroids.db {words}")
    }

    #[track_caller]
    pub(crate) fn tenure(&self, words: &str) -> Said {
        self.project.tenure(&Self::words(words))
    }

    /// The holder of a task, as the other program sees it.
    fn holder(&self, task: &str) -> Option<String> {
        let sql = "SELECT max(runner_id) FROM task_locks
                   WHERE task_id = ?1 AND expires_at > strftime('%Y-%m-%dT%H:%M:%fZ', 'now')";
        self.db.query_row(sql, [task], |row| row.get(0)).unwrap()
    }

    /// The other program takes a task.
    pub(crate) fn lock(&self, task: &str) {
        let sql = "INSERT OR REPLACE INTO task_locks (task_id, runner_id, expires_at)
                   VALUES (?1, ?2, strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '+1 hour'))";
        assert_eq!(self.db.execute(sql, [task, RUNNER]).unwrap(), 1);
    }
}

#[test]
fn a_task_is_acquired_renewed_and_released() {
    let folder = Folder::new();
    let token = folder
        .tenure(&format!("acquire task:{FREE} --as me"))
        .exits(0);
    assert_eq!(token.out.trim(), "1");
    assert_eq!(folder.holder(FREE).unwrap(), "me");
    folder
        .tenure(&format!("acquire task:{FREE} --as other --no-wait"))
        .fails(6, &["me"]);
    folder
        .tenure(&format!("release task:{FREE} --as other"))
        .fails(5, &["not yours"]);
    folder
        .tenure(&format!("renew task:{FREE} --as me"))
        .exits(0);
    folder
        .tenure(&format!("fence task:{FREE} --token 1"))
        .exits(0);
    folder
        .tenure(&format!("release task:{FREE} --as me"))
        .exits(0);
    assert_eq!(folder.holder(FREE), None);
    folder
        .tenure(&format!("release task:{FREE} --as me"))
        .fails(4, &["is free"]);
}

#[test]
fn the_same_in_json() {
    let folder = Folder::new();
    let said = folder
        .tenure(&format!("acquire task:{FREE} --as me --json"))
        .exits(0)
        .json();
    assert_eq!(said["data"]["reason"], "acquired_new", "{said}");
    assert_eq!(said["data"]["token"], 1, "{said}");
    let said = folder
        .tenure(&format!("acquire task:{FREE} --as other --no-wait --json"))
        .exits(6);
    assert_eq!(said.json()["error"]["details"]["lockedBy"], "me");
    let said = folder
        .tenure(&format!("renew task:{FREE} --as me --json"))
        .exits(0);
    assert_eq!(said.json()["success"], true);
    let said = folder.tenure("locks list --json").exits(0).json();
    let locks = said["data"]["locks"].as_array().unwrap();
    assert_eq!(locks.len(), 3, "{said}");
    let said = folder
        .tenure(&format!("release task:{FREE} --as other --json"))
        .exits(5);
    assert_eq!(said.error(), "PERMISSION_DENIED");
    let said = folder
        .tenure(&format!("release task:{FREE} --as me --json"))
        .exits(0);
    assert_eq!(said.json()["data"]["released"], true);
}

#[test]
fn locks_are_listed_shown_and_cleaned_up() {
    let folder = Folder::new();
    let said = folder.tenure("locks list").exits(0);
    for word in [LOCKED, RUNNER, "EXPIRED", "section:"] {
        assert!(said.out.contains(word), "{said:?}");
    }
    let said = folder.tenure(&format!("locks show {LOCKED}")).exits(0);
    assert!(said.out.contains(RUNNER), "{said:?}");
    let said = folder
        .tenure(&format!("locks show {} --json", &LOCKED[..6]))
        .exits(0);
    assert_eq!(said.json()["data"]["leases"][0]["verdict"], "expired");
    let said = folder.tenure("locks show nothing --json").exits(4);
    assert_eq!(said.error(), "LOCK_NOT_FOUND");

    let said = folder
        .tenure("locks cleanup --dry-run --json")
        .exits(0)
        .json();
    assert_eq!(said["data"]["dryRun"], true, "{said}");
    assert_eq!(said["data"]["ended"].as_array().unwrap().len(), 2, "{said}");
    let rows = "SELECT (SELECT count(*) FROM task_locks) + (SELECT count(*) FROM section_locks)";
    let rows = || folder.db.query_row(rows, [], |row| row.get::<_, i64>(0));
    assert_eq!(rows().unwrap(), 2, "a dry run changes nothing");
    let said = folder.tenure("locks cleanup").exits(0);
    assert!(said.out.contains(LOCKED), "{said:?}");
    assert_eq!(rows().unwrap(), 0);
    let said = folder.tenure("locks list").exits(0);
    assert_eq!(said.out.trim(), "No locks.");
}

#[test]
fn a_lock_is_taken_away_only_by_force_and_that_is_recorded() {
    let folder = Folder::new();
    folder.lock(FREE);
    folder
        .tenure(&format!("locks release {FREE}"))
        .fails(2, &[" force "]);
    assert_eq!(folder.holder(FREE).unwrap(), RUNNER);
    folder
        .tenure(&format!("force {FREE} --as boss --reason stuck"))
        .exits(0);
    assert_eq!(folder.holder(FREE), None);
    let said = folder
        .tenure(&format!("locks history task:{FREE} --json"))
        .exits(0)
        .json();
    let event = &said["data"]["events"][0];
    assert_eq!(event["event"], "forced", "{said}");
    assert_eq!(event["evidence"]["by"], "boss", "{said}");
    assert_eq!(event["evidence"]["reason"], "stuck", "{said}");
}

#[test]
fn a_command_runs_while_it_holds_a_task() {
    let folder = Folder::new();
    let said = folder
        .project
        .call(&Folder::words(&format!("run task:{FREE} --as me")))
        .sh("echo $TENURE_KEY $TENURE_TOKEN")
        .end()
        .exits(0);
    assert_eq!(said.out.trim(), format!("task:{FREE} 1"));
    let mut running = folder
        .project
        .hold(&Folder::words(&format!("run task:{FREE} --as me")));
    assert_eq!(folder.holder(FREE).unwrap(), "me");
    folder
        .tenure(&format!("acquire task:{FREE} --as other --no-wait"))
        .fails(6, &["me"]);
    running.let_go();
    running.ended().exits(0);
    assert_eq!(folder.holder(FREE), None);
    // Killed: the next command does not wait for the lease to expire.
    let running = folder
        .project
        .hold(&Folder::words(&format!("run task:{FREE} --as me")));
    running.killed().exits(137);
    let said = folder
        .tenure(&format!("acquire task:{FREE} --as next --wait 30s --json"))
        .exits(0);
    assert_eq!(said.json()["data"]["reason"], "claimed_dead");
}

#[test]
fn a_command_waits_until_the_other_program_releases_the_lock() {
    let folder = Folder::new();
    folder.lock(FREE);
    folder
        .project
        .call(&Folder::words(&format!("run task:{FREE} --no-wait")))
        .sh("echo ran")
        .end()
        .fails(6, &[RUNNER]);
    let waiting = folder
        .project
        .call(&Folder::words(&format!(
            "run task:{FREE} --as me --wait 10m"
        )))
        .sh("echo ran")
        .start();
    until("it waits", || {
        let shown = folder.tenure(&format!("locks show {FREE} --json")).json();
        shown["data"]["queue"][0]["holder"] == "me"
    });
    folder.db.execute("DELETE FROM task_locks", []).unwrap();
    assert_eq!(waiting.ended().exits(0).out.trim(), "ran");
}

#[test]
fn a_lock_that_expired_is_claimed_and_a_section_is_held_like_a_task() {
    let folder = Folder::new();
    let said = folder
        .tenure(&format!("acquire task:{LOCKED} --as me --json"))
        .exits(0);
    assert_eq!(said.json()["data"]["reason"], "claimed_expired");
    let said = folder
        .tenure(&format!("acquire section:{SECTION} --as me --json"))
        .exits(0);
    assert_eq!(said.json()["data"]["reason"], "acquired_new");
    let said = folder
        .tenure(&format!("acquire section:{SECTION} --as me --json"))
        .exits(0);
    assert_eq!(said.json()["data"]["reason"], "already_owned");
    folder
        .tenure(&format!("release section:{SECTION} --as me"))
        .exits(0);
}

#[test]
fn times_are_written_in_utc_in_every_time_zone() {
    for zone in ["Pacific/Auckland", "America/Los_Angeles", "XYZ-9"] {
        let folder = Folder::new();
        folder
            .project
            .call(&Folder::words(&format!("acquire task:{FREE} --ttl 10m")))
            .env("TZ", zone)
            .end()
            .exits(0);
        let now = |offset: &str| format!("strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '{offset}')");
        let sql = format!(
            "SELECT count(*) FROM task_locks WHERE task_id = ?1 AND expires_at BETWEEN {} AND {}
             AND acquired_at BETWEEN {} AND {}",
            now("+5 minutes"),
            now("+10 minutes"),
            now("-5 minutes"),
            now("+0 minutes")
        );
        let right: i64 = folder.db.query_row(&sql, [FREE], |row| row.get(0)).unwrap();
        assert_eq!(right, 1, "{zone}");
    }
}

#[test]
fn an_unknown_task_or_section_is_not_found() {
    let folder = Folder::new();
    for key in ["task:nowhere", "section:nowhere"] {
        folder
            .tenure(&format!("acquire {key}"))
            .fails(4, &["there is no", "nowhere"]);
        let said = folder.tenure(&format!("acquire {key} --json")).exits(4);
        assert_eq!(said.error(), "NOT_FOUND");
        folder
            .project
            .call(&Folder::words(&format!("run {key}")))
            .sh("echo ran")
            .end()
            .fails(4, &["there is no"]);
    }
}

#[test]
fn a_key_that_is_neither_task_nor_section_is_refused() {
    let folder = Folder::new();
    for words in [
        "acquire build",
        "release build",
        "renew build",
        "fence build --token 1",
    ] {
        folder
            .tenure(words)
            .fails(2, &["tasks and sections only", "task:ID"]);
        let said = folder.tenure(&format!("{words} --json")).exits(2);
        assert_eq!(said.error(), "UNSUPPORTED");
    }
    let said = folder
        .project
        .call(&Folder::words("run build"))
        .sh("echo ran")
        .end()
        .fails(2, &["tasks and sections only"]);
    assert_eq!(said.out, "");
}

#[test]
fn another_file_is_refused_and_nothing_is_created() {
    let project = Project::uninitialised();
    project.write("text", "no database");
    Connection::open(project.path("other.db"))
        .unwrap()
        .execute_batch("CREATE TABLE notes (text)")
        .unwrap();
    for (place, words) in [
        ("missing.db", "there is no database"),
        ("text", "is not a database"),
        ("other.db", "has no tables task_locks"),
        (".", "is not a file"),
    ] {
        let call = format!("--store steroids:{place} locks list");
        project.tenure(&call).fails(1, &[words, place]);
        let said = project.tenure(&format!("{call} --json")).exits(1);
        assert_eq!(said.error(), "NOT_A_STORE");
    }
    project
        .tenure("--store steroids: locks list")
        .fails(2, &["steroids:.steroids/steroids.db"]);
    project.tenure("--store steroid:x locks list").fails(
        2,
        &["steroids:.steroids/steroids.db", "sqlite:.tenure/tenure.db"],
    );
    assert_eq!(fs::read_dir(project.root()).unwrap().count(), 2);
}

#[test]
fn the_other_programs_database_opened_as_sqlite_is_refused_with_the_right_url() {
    let folder = Folder::new();
    folder
        .project
        .tenure("--store sqlite:.steroids/steroids.db locks list")
        .fails(1, &["another program", "steroids:", "nothing was changed"]);
}

#[test]
fn tasks_of_the_other_program_are_left_to_it_in_a_clear_sentence() {
    let folder = Folder::new();
    let commands = [
        "tasks list",
        "tasks show x",
        "sections list",
        "sections rm x",
        "tasks next --as me",
        "tasks update x --status completed",
    ];
    for words in commands {
        folder.tenure(words).fails(
            2,
            &[
                "belong to the other program",
                "tenure run task:ID",
                "with that program",
            ],
        );
    }
}

/// The section that both tasks of the sample are in.
pub(crate) const TASKS_SECTION: &str = "0cc02cf5-cfd9-448a-a242-0edca40c972a";

#[test]
fn a_task_is_not_granted_while_another_runner_holds_its_section() {
    let folder = Folder::new();
    let lock = "UPDATE section_locks SET runner_id = 'them', acquired_at = datetime('now'),
                expires_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '+1 hour')";
    assert_eq!(folder.db.execute(lock, []).unwrap(), 1);
    let words = Folder::words(&format!("run task:{FREE} --as me --no-wait"));
    let refused = folder.project.call(&words).sh("echo ran").end();
    refused.fails(6, &["Section \"Backend\" of task", "by runner them"]);
    assert_eq!(folder.holder(FREE), None);
    // The runner that holds the section may take its tasks.
    let words = Folder::words(&format!("run task:{FREE} --as them --no-wait"));
    folder.project.call(&words).sh("true").end().exits(0);
    // A waiter gets the task when the section is released. It is not woken, so it polls.
    let words = Folder::words(&format!("run task:{FREE} --as me --wait 10m"));
    let waiting = folder
        .project
        .call(&words)
        .env("TENURE_LOCKING_POLL_INTERVAL", "1h")
        .sh("echo ran")
        .start();
    until("it waits", || {
        let shown = folder.tenure(&format!("locks show {FREE} --json")).json();
        shown["data"]["queue"][0]["holder"] == "me"
    });
    assert!(
        waiting.err().contains("its section is held by them"),
        "{}",
        waiting.err()
    );
    folder.db.execute("DELETE FROM section_locks", []).unwrap();
    assert_eq!(waiting.ended().exits(0).out.trim(), "ran");
}

#[test]
fn a_tenure_that_holds_the_section_keeps_others_out_of_its_tasks_but_not_its_own_command() {
    let folder = Folder::new();
    let words = Folder::words(&format!("run section:{TASKS_SECTION} --as me"));
    let mut holder = folder.project.hold(&words);
    folder
        .tenure(&format!("acquire task:{FREE} --as other --no-wait"))
        .fails(6, &["me"]);
    holder.let_go();
    holder.ended().exits(0);
    let inner = format!(
        "$TENURE run --store steroids:.steroids/steroids.db task:{FREE} --no-wait -- echo ran"
    );
    let said = folder.project.call(&words).sh(&inner).end().exits(0);
    assert_eq!(said.out.trim(), "ran");
}

/// The other program's cleaner: it deletes the locks of tasks without a running invocation.
const CLEANER: &str = "DELETE FROM task_locks WHERE task_id NOT IN
    (SELECT task_id FROM task_invocations WHERE status = 'running')";

#[test]
fn a_holder_notices_at_once_that_the_other_programs_cleaner_deleted_its_row() {
    let folder = Folder::new();
    // Neither a poll nor a renewal comes in time.
    let words = Folder::words(&format!("run task:{FREE} --as me --ttl 10h"));
    let run = folder
        .project
        .call(&words)
        .env("TENURE_LOCKING_POLL_INTERVAL", "1h")
        .sh("echo $$; exec sleep 300")
        .start();
    until("the command runs", || run.out().ends_with('\n'));
    until("its lease is watched", || {
        project::process::has_thread(run.pid(), "keep-lease")
    });
    folder.tenure("locks list").exits(0);
    assert_eq!(folder.db.execute(CLEANER, []).unwrap(), 2);
    run.ended().fails(7, &["lost", "its command was stopped"]);
    let history = folder.tenure(&format!("locks history {FREE}")).exits(0).out;
    assert!(history.contains("forced"), "{history}");
    assert!(history.contains("outside tenure"), "{history}");
}

#[test]
fn the_cleaner_spares_sections_and_tasks_with_a_running_invocation() {
    let folder = Folder::new();
    let invocation = "INSERT INTO task_invocations (task_id, role, provider, model, prompt, status)
                      VALUES (?1, 'coder', 'p', 'm', '', 'running')";
    folder.db.execute(invocation, [FREE]).unwrap();
    let task = folder
        .project
        .hold(&Folder::words(&format!("run task:{FREE} --as me")));
    let section = folder
        .project
        .hold(&Folder::words(&format!("run section:{SECTION} --as me")));
    folder.db.execute(CLEANER, []).unwrap();
    for (key, mut run) in [(FREE, task), (SECTION, section)] {
        let shown = folder.tenure(&format!("locks show {key} --json")).json();
        assert_eq!(shown["data"]["leases"][0]["verdict"], "alive", "{shown}");
        run.let_go();
        run.ended().exits(0);
    }
}

#[test]
fn the_history_shows_what_the_other_program_ended() {
    let folder = Folder::new();
    folder
        .tenure(&format!("acquire task:{FREE} --as me"))
        .exits(0);
    folder.db.execute("DELETE FROM task_locks", []).unwrap();
    // The first command since then is the one that asks for the history.
    let said = folder.tenure("locks history --json").exits(0).json();
    let events = said["data"]["events"].as_array().unwrap();
    let kinds: Vec<&str> = events
        .iter()
        .map(|event| event["event"].as_str().unwrap())
        .collect();
    assert_eq!(kinds, ["granted", "forced"], "{said}");
}

#[test]
fn a_busy_database_ends_the_command_in_time() {
    let folder = Folder::new();
    let run = folder
        .project
        .hold(&Folder::words(&format!("run task:{FREE} --as me --ttl 2s")));
    let command = run.command();
    folder.db.execute_batch("BEGIN IMMEDIATE").unwrap();
    // The database stays busy until the command has ended.
    until("its command is gone", || !project::process::alive(command));
    folder.db.execute_batch("COMMIT").unwrap();
    run.ended()
        .fails(7, &["could not be renewed", "its command was stopped"]);
}

/// Rows that make no sense, each with its key in output and a part of what is said of it. None of
/// them ends by itself.
const ODD_ROWS: [(&str, &str, &str); 5] = [
    (
        "INSERT INTO task_locks VALUES ('blob', x'00ff', datetime('now'), x'0102', datetime('now'))",
        "task:blob",
        "expires_at is x'0102', not a time",
    ),
    (
        "INSERT INTO task_locks VALUES (NULL, 'r', datetime('now'), '2024-01-15T11:30:00Z', datetime('now'))",
        "task:rowid=",
        "task_id is NULL",
    ),
    (
        "INSERT INTO task_locks VALUES ('two' || char(10) || 'lines', 'r', datetime('now'), datetime('now', '+1 hour'), '')",
        "task:rowid=",
        "task_id is \"two\\nlines\"",
    ),
    (
        "INSERT INTO task_locks VALUES ('west', 'r', datetime('now'), datetime('now', '-4 hours'), datetime('now'))",
        "task:west",
        "is before acquired_at",
    ),
    (
        "INSERT INTO section_locks VALUES (x'0a', 'r', datetime('now'), datetime('now', '+1 hour'))",
        "section:rowid=",
        "section_id is x'0A'",
    ),
];

#[test]
fn a_row_that_makes_no_sense_is_named_and_the_others_are_listed_cleaned_up_and_forced() {
    let folder = Folder::new();
    folder
        .db
        .execute_batch("PRAGMA foreign_keys = OFF")
        .unwrap();
    for (sql, _, _) in ODD_ROWS {
        assert_eq!(folder.db.execute(sql, []).unwrap(), 1);
    }
    folder.lock(FREE);
    let list = folder.tenure("locks list").exits(0).out;
    for (_, key, problem) in ODD_ROWS {
        let line = list.lines().find(|line| line.contains(problem));
        assert!(
            line.is_some_and(|line| line.contains(key)),
            "{problem:?} in {list}"
        );
    }
    assert_eq!(list.matches("MALFORMED").count(), ODD_ROWS.len(), "{list}");
    for invented in ["1970", "9999", "years"] {
        assert!(!list.contains(invented), "{list}");
    }
    let shown = folder.tenure("locks show task:blob").exits(0).out;
    assert!(shown.contains("x'00FF'"), "{shown}");
    assert!(shown.contains("Problem:"), "{shown}");
    folder
        .tenure("acquire task:west --as me --no-wait")
        .fails(6, &["a malformed lock, which names r as its holder"]);
    // The two rows of the sample have expired.
    let cleanup = folder.tenure("locks cleanup").exits(0).out;
    assert_eq!(
        cleanup.matches("it expired at 2024").count(),
        2,
        "{cleanup}"
    );
    folder
        .tenure(&format!("force task:{FREE} --as me"))
        .exits(0);
    // A row without a usable id goes by force, under the name that the list gives it.
    let json = folder.tenure("locks list --json").exits(0).json();
    let locks = json["data"]["locks"].as_array().unwrap().clone();
    assert_eq!(locks.len(), ODD_ROWS.len(), "{json}");
    for lock in locks {
        assert_ne!(lock["problems"], serde_json::Value::Null, "{lock}");
        let key = lock["key"].as_str().unwrap();
        folder
            .project
            .call(&Folder::words("force --as me"))
            .arg(key)
            .end()
            .exits(0);
    }
    assert_eq!(folder.tenure("locks list").exits(0).out, "No locks.\n");
}

#[test]
fn garbage_beside_an_end_that_has_passed_does_not_keep_the_lock() {
    let folder = Folder::new();
    let garbage = "UPDATE task_locks SET acquired_at = 'garbage', heartbeat_at = x'00'";
    assert_eq!(folder.db.execute(garbage, []).unwrap(), 1);
    let shown = folder.tenure(&format!("locks show {LOCKED}")).exits(0).out;
    for word in ["expired", "unknown", "\"garbage\"", "x'00'"] {
        assert!(shown.contains(word), "{word:?} in {shown}");
    }
    assert!(!shown.contains("1970"), "{shown}");
    let json = folder
        .tenure(&format!("locks show {LOCKED} --json"))
        .exits(0)
        .json();
    assert_eq!(
        json["data"]["leases"][0]["acquiredAt"],
        serde_json::Value::Null
    );
    folder.db.execute("DELETE FROM section_locks", []).unwrap();
    let said = folder
        .tenure(&format!("acquire task:{LOCKED} --as me --no-wait --json"))
        .exits(0);
    assert_eq!(said.json()["data"]["reason"], "claimed_expired");
}

#[test]
fn a_database_with_two_names_is_refused() {
    let folder = Folder::new();
    let second = folder.project.path("second.db");
    fs::hard_link(folder.project.path(".steroids/steroids.db"), &second).unwrap();
    let words = format!("acquire task:{FREE} --as me");
    folder
        .tenure(&words)
        .fails(1, &["has 2 names (hard links)"]);
    let by_second = format!("--store steroids:second.db {words}");
    folder.project.tenure(&by_second).fails(1, &["2 names"]);
    fs::remove_file(second).unwrap();
    folder.tenure(&words).exits(0);
}

#[test]
fn a_waiter_behind_an_expired_row_is_told_who_holds_the_section() {
    let folder = Folder::new();
    let sql = "UPDATE section_locks SET runner_id = 'them',
               expires_at = strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '+1 hour')";
    folder.db.execute(sql, []).unwrap();
    let sql = "UPDATE tasks SET section_id = (SELECT section_id FROM section_locks) WHERE id = ?1";
    assert_eq!(folder.db.execute(sql, [LOCKED]).unwrap(), 1);
    // The row of the task itself expired long ago, and its section is held.
    let said = folder.tenure(&format!("acquire task:{LOCKED} --as b --wait 50ms"));
    let said = said.exits(6);
    let words = "its section is held by them";
    assert!(said.err.contains(words), "{}", said.err);
    assert!(!said.err.contains("about to be granted"), "{}", said.err);
}
