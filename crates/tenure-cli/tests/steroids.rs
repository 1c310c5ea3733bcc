//! `--store steroids:PATH`: the command on a live database of another program, as a person types it.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod project;

use std::fs;
use std::path::Path;

use project::{Project, Said, until};
use rusqlite::Connection;

/// Two tasks of the sample and a section. The second task and the section are locked, long ago, by
/// another runner.
const FREE: &str = "8f3842e9-1e5a-4520-9de2-a766262ea768";
const LOCKED: &str = "89b48375-3e92-4062-a254-b993b66fd67b";
const SECTION: &str = "f46a4444-02c2-4faf-984a-e4ef139daef8";
const RUNNER: &str = "f47ac10b-58cc-4372-a567-0e02b2c3d479";

/// A folder without a project, with the other program's database in it.
struct Folder {
    project: Project,
    db: Connection,
}

impl Folder {
    fn new() -> Self {
        let project = Project::uninitialised();
        let sample = Path::new(env!("CARGO_MANIFEST_DIR"))
            .join("../tenure-sqlite/tests/fixtures/steroids.db");
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
    fn words(words: &str) -> String {
        format!("--store steroids:.steroids/steroids.db {words}")
    }

    #[track_caller]
    fn tenure(&self, words: &str) -> Said {
        self.project.tenure(&Self::words(words))
    }

    /// The holder of a task, as the other program sees it.
    fn holder(&self, task: &str) -> Option<String> {
        let sql = "SELECT max(runner_id) FROM task_locks
                   WHERE task_id = ?1 AND expires_at > strftime('%Y-%m-%dT%H:%M:%fZ', 'now')";
        self.db.query_row(sql, [task], |row| row.get(0)).unwrap()
    }

    /// The other program takes a task.
    fn lock(&self, task: &str) {
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
    assert_eq!(said.json()["error"]["details"]["leases"][0]["holder"], "me");
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
        .fails(5, &["--force"]);
    let said = folder
        .tenure(&format!("locks release {FREE} --json"))
        .exits(5);
    assert_eq!(said.error(), "PERMISSION_DENIED");
    assert_eq!(folder.holder(FREE).unwrap(), RUNNER);
    folder
        .tenure(&format!(
            "locks release {FREE} --force --as boss --reason stuck"
        ))
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
        .fails(2, &["steroids:PATH"]);
    project
        .tenure("--store steroid:x locks list")
        .fails(2, &["steroids:PATH", "sqlite:PATH"]);
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
fn tasks_of_the_other_program_cannot_be_changed() {
    let folder = Folder::new();
    for words in ["tasks list", "sections list", "tasks next --as me"] {
        folder
            .tenure(words)
            .fails(2, &["locks only, no tasks", "sqlite:PATH"]);
    }
}
