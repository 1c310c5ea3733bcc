//! Every lock in a project: `locks list --all`, `doctor`, `status`, `why`, `timeline`, with each local store, each verdict, and
//! the locks of other tools, made by those tools.

use crate::project;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use project::daemon::{NOBODY, lock_text, put};
use project::{Project, Running, process, until};
use rusqlite::Connection;
use serde_json::Value;

/// Two tasks and a section of the sample database of steroids.
const TASK: &str = "8f3842e9-1e5a-4520-9de2-a766262ea768";
const LOCKED_TASK: &str = "89b48375-3e92-4062-a254-b993b66fd67b";
const STEROIDS: &str = "steroids:.steroids/steroids.db";

/// A binding to a process of another machine.
const FAR: &str = r#"{"kind":"process","process":{"pid":4711,"started":1,"boot":"another","namespace":"x","host":"far"}}"#;

/// A project with every local store.
fn with_every_store() -> Project {
    let project = Project::new();
    for folder in [".beads", ".bilu/board/tasks", ".bilu/storage", ".steroids"] {
        fs::create_dir_all(project.path(folder)).unwrap();
    }
    let sample =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../stores/sqlite/tests/fixtures/steroids.db");
    fs::copy(sample, project.path(".steroids/steroids.db")).unwrap();
    project.tenure("ledger init").exits(0);
    for node in ["1", "1.1", "1.2"] {
        let event = format!(r#"{{"type":"node_created","node_id":"{node}"}}"#);
        let call = project.call("ledger append").arg(event);
        call.end().exits(0);
    }
    project
}

/// Holds a key of a store and is killed, with its command.
pub(crate) fn die(project: &Project, words: &str) {
    let holder = project.hold(words);
    let command = holder.command();
    holder.killed();
    until("the command is dead", || !process::alive(command));
}

/// Every lock by its store's role and its key, with its verdict; foreign ones by their tool and path.
fn verdicts(project: &Project) -> BTreeMap<String, String> {
    let said = project.tenure("locks list --all --json").exits(0).json();
    let mut found = BTreeMap::new();
    for store in said["data"]["stores"].as_array().unwrap() {
        assert_eq!(store["error"], Value::Null, "{store}");
        let role = store["role"].as_str().unwrap();
        for lock in store["locks"].as_array().unwrap() {
            for lease in lock["leases"].as_array().unwrap() {
                let name = format!("{role} {}", lock["key"].as_str().unwrap());
                found.insert(name, lease["verdict"].as_str().unwrap().to_owned());
            }
        }
    }
    for lock in said["data"]["foreign"].as_array().unwrap() {
        let path = Path::new(lock["path"].as_str().unwrap());
        let name = path.file_name().unwrap().to_str().unwrap();
        let name = format!("{} {name}", lock["tool"].as_str().unwrap());
        found.insert(name, lock["verdict"].as_str().unwrap().to_owned());
    }
    found
}

/// Names, inodes, sizes and times of everything in a folder.
fn listing(folder: &Path, all: &mut BTreeMap<PathBuf, String>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let at = fs::symlink_metadata(&path).unwrap();
        let line = format!(
            "{} {} {}.{}",
            at.ino(),
            at.size(),
            at.mtime(),
            at.mtime_nsec()
        );
        if at.is_dir() {
            listing(&path, all);
        }
        all.insert(path, line);
    }
}

/// Makes a live, a dead, a remote, an expired and a malformed lock in the stores that hold many keys.
fn fill(project: &Project) -> Vec<Running> {
    let mut live = vec![
        project.hold("run live --as a"),
        project.hold(&format!("--store {STEROIDS} run task:{TASK} --as a")),
        project.hold("--store ledger:. run node:1 --as a"),
    ];
    die(project, "run dead --as b");
    die(project, "--store ledger:. run node:1.1 --as b");
    project.acquire("far --as c");
    project.acquire("over --as d --ttl 1s");
    let own = Connection::open(project.database()).unwrap();
    let sql = "UPDATE leases SET host = 'far', binding = ?1 WHERE key = 'far'";
    assert_eq!(own.execute(sql, [FAR]).unwrap(), 1);
    let task = project.tenure("tasks add Broken --quiet").exits(0);
    let task = task.out.trim();
    let sql = "INSERT INTO task_locks (task_id, runner_id, expires_at) VALUES (?1, 'x', 'soon')";
    assert_eq!(own.execute(sql, [task]).unwrap(), 1);
    let other = Connection::open(project.path(".steroids/steroids.db")).unwrap();
    let sql = "UPDATE task_locks SET expires_at = '2024-01-15T11:30:00.000Z' WHERE task_id = ?1";
    assert_eq!(other.execute(sql, [LOCKED_TASK]).unwrap(), 1);
    let sql = "UPDATE section_locks SET expires_at = 'never'";
    assert_eq!(other.execute(sql, []).unwrap(), 1);
    until("the lease has expired", || {
        project.verdict("over") == "expired"
    });
    live.push(project.queue("live", "run live --as e -- true"));
    live
}

#[test]
fn every_lock_of_every_store_is_listed_with_its_verdict_and_nothing_changes() {
    let project = with_every_store();
    let live = fill(&project);
    put(&project.lock_file(".beads"), lock_text("nightly", NOBODY));
    fs::create_dir(project.path(".bilu/storage/lock")).unwrap();
    let mut before = BTreeMap::new();
    listing(&project.root(), &mut before);

    let found = verdicts(&project);
    let verdict = |name: &str| {
        if let Some(exactly) = found.get(name) {
            return exactly.as_str();
        }
        let of = |(key, _): &(&String, &String)| key.starts_with(name);
        let mut all = found.iter().filter(of).map(|(_, verdict)| verdict.as_str());
        let first = all.next();
        assert_eq!(all.next(), None, "{name} is not one: {found:?}");
        first.unwrap_or_else(|| panic!("no {name} in {found:?}"))
    };
    assert_eq!(verdict("own live"), "alive");
    assert_eq!(verdict("own dead"), "dead");
    assert_eq!(verdict("own far"), "unknown");
    assert_eq!(verdict("own over"), "expired");
    assert_eq!(verdict("own task:"), "malformed");
    assert_eq!(verdict(&format!("other_program task:{TASK}")), "alive");
    assert_eq!(
        verdict(&format!("other_program task:{LOCKED_TASK}")),
        "expired"
    );
    assert_eq!(verdict("other_program section:"), "malformed");
    assert_eq!(verdict("ledger node:1"), "alive");
    assert_eq!(verdict("ledger node:1.1"), "dead");
    assert_eq!(verdict("exclusive_lock database"), "dead");
    assert_eq!(verdict("board_lock board"), "unknown");

    let text = project.tenure("locks list --all").exits(0).out;
    for words in [
        "sqlite:.tenure/tenure.db (locks of this project)",
        "live",
        "cat",
        "(exited)",
    ] {
        assert!(text.contains(words), "no {words:?} in {text}");
    }
    let mut after = BTreeMap::new();
    listing(&project.root(), &mut after);
    assert_eq!(after, before);
    // Modes have a column, where there are others than exclusive.
    assert!(!text.contains("MODE"), "{text}");
    let _slot = project.hold("run pool --slots 2 --as f");
    let text = project.tenure("locks list --all").exits(0).out;
    let row = text.lines().find(|line| line.starts_with("pool ")).unwrap();
    assert!(text.contains("MODE") && row.contains("slot 0/2"), "{text}");
    drop(live);
}

/// A repository with a commit and a change, in the project's root.
pub(crate) fn repository(project: &Project) {
    let script = "git init -q . && git config user.email a@b && git config user.name a && \
                  git config gc.auto 0 && echo 1 > file && git add file && git commit -qm one && echo 2 > file";
    project.shell(script).end().exits(0);
}

/// Starts a git command with a hook that waits until its input ends.
fn stopped_git(project: &Project, command: &str) -> Running {
    let hook = project.path(".git/hooks/pre-commit");
    fs::create_dir_all(hook.parent().unwrap()).unwrap();
    project::write_program(&hook, b"#!/bin/sh\necho in > ../in\ncat <&3\n");
    let running = project
        .shell(&format!("exec 3<&0; exec git {command}"))
        .input()
        .start();
    let came = project.root().parent().unwrap().join("in");
    until("the hook runs", || came.exists());
    running
}

/// The foreign locks whose paths end so.
fn foreign(project: &Project, end: &str) -> Vec<Value> {
    let said = project.tenure("locks list --all --json").exits(0).json();
    let all = said["data"]["foreign"].as_array().unwrap().clone();
    let ends = |lock: &Value| lock["path"].as_str().unwrap().ends_with(end);
    all.into_iter().filter(ends).collect()
}

#[test]
fn a_lock_of_a_git_that_waits_for_its_hook_is_shown_with_its_process() {
    let project = Project::new();
    repository(&project);
    let mut git = stopped_git(&project, "commit -qam two");
    let found = foreign(&project, ".git/index.lock");
    assert_eq!(found.len(), 1);
    let lock = &found[0];
    assert_eq!(lock["tool"], "git");
    assert_ne!(lock["verdict"], "dead", "{lock}");
    let pids: Vec<u64> = lock["processes"]
        .as_array()
        .unwrap()
        .iter()
        .map(|by| by["pid"].as_u64().unwrap())
        .collect();
    assert!(pids.contains(&u64::from(git.pid())), "{lock}");
    // It is no problem: it is in use.
    let said = project.tenure("doctor --json").json();
    assert!(!said["data"].to_string().contains("index.lock"), "{said}");
    git.let_go();
    git.ended().exits(0);
    assert!(foreign(&project, ".lock").is_empty());
}

#[test]
fn a_lock_that_a_killed_git_left_is_reported_and_never_removed() {
    let project = Project::new();
    repository(&project);
    let git = stopped_git(&project, "commit -qam two");
    git.killed();
    let lock = project.path(".git/index.lock");
    // In a container, processes outside of it can't be seen.
    let first = fs::read_link("/proc/self/ns/pid").unwrap() == Path::new("pid:[4026531836]");
    let expected = if first { "dead" } else { "unknown" };
    // Processes of this user that another test put into a namespace can't be examined while they run.
    until("git is gone, and every process can be examined", || {
        let found = &foreign(&project, ".git/index.lock")[0];
        found["processes"].as_array().unwrap().is_empty() && found["verdict"] == expected
    });
    let mut said = project.tenure("doctor --fix");
    until("every process can be examined by doctor", || {
        said = project.tenure("doctor --fix");
        said.code == i32::from(first)
    });
    assert!(said.out.contains("rm -- "), "{said:?}");
    assert!(lock.exists(), "{said:?}");
}

#[test]
fn locks_of_refs_worktrees_and_submodules_and_pid_files_are_found() {
    let project = Project::new();
    repository(&project);
    project.shell("git worktree add -q ../linked && mkdir -p .git/modules/a/b/refs tmp/pids && echo x > .git/modules/a/b/HEAD").end().exits(0);
    // Links that lead back, and a submodule that keeps its git folder.
    project
        .shell("ln -s . .git/modules/loop && ln -s .. .git/refs/heads/loop && mkdir -p sub/.git && printf '[submodule \"s\"]\\n\\tpath = sub\\n' > .gitmodules")
        .end()
        .exits(0);
    for lock in [
        ".git/HEAD.lock",
        ".git/shallow.lock",
        ".git/refs/heads/deep/er.lock",
        ".git/worktrees/linked/index.lock",
        ".git/modules/a/b/index.lock",
        ".git/objects/pack/multi-pack-index.lock",
        ".git/reftable/tables.list.lock",
        "sub/.git/index.lock",
    ] {
        fs::create_dir_all(project.path(lock).parent().unwrap()).unwrap();
        project.write(lock, "");
        assert_eq!(foreign(&project, lock).len(), 1, "{lock}");
    }
    project.write("server.pid", &std::process::id().to_string());
    project.write("tmp/pids/dead.pid", &NOBODY.to_string());
    project.write("tmp/pids/odd.pid", "12x");
    let verdict = |end: &str| {
        foreign(&project, end)[0]["verdict"]
            .as_str()
            .unwrap()
            .to_owned()
    };
    assert_eq!(verdict("server.pid"), "alive");
    assert!(["dead", "unknown"].contains(&&*verdict("dead.pid")));
    assert_eq!(verdict("odd.pid"), "malformed");
    // The file of cargo's lock stays; it is a lock while a process has it locked.
    fs::create_dir_all(project.path("target/debug")).unwrap();
    let file = fs::File::create(project.path("target/debug/.cargo-lock")).unwrap();
    assert!(foreign(&project, ".cargo-lock").is_empty());
    file.lock().unwrap();
    let locked = foreign(&project, ".cargo-lock");
    assert_eq!(locked[0]["verdict"], "alive", "{locked:?}");
    assert_eq!(locked[0]["processes"][0]["pid"], std::process::id());
    // Nothing of this is a lock of tenure.
    assert_eq!(
        project.tenure("locks list").exits(0).out.trim(),
        "No locks."
    );
}

/// The codes of what the doctor found, with the keys.
fn codes(said: &Value, kind: &str) -> Vec<String> {
    let found = said["data"][kind].as_array().unwrap().iter();
    let mut codes: Vec<String> = found
        .map(|one| {
            let key = one["key"].as_str().unwrap_or_default();
            let key = key.split_once(':').map_or(key, |(kind, _)| kind);
            format!("{} {key}", one["code"].as_str().unwrap())
        })
        .collect();
    codes.sort();
    codes
}

#[test]
fn the_doctor_names_every_problem_and_fixes_exactly_what_is_proven() {
    let project = with_every_store();
    let live = fill(&project);
    put(&project.lock_file(".beads"), lock_text("nightly", NOBODY));
    put(
        &project.lock_file(".tenure"),
        "{\"holder\": \"x\",\n \"pid\": ",
    );
    let before = verdicts(&project);

    let said = project.tenure("doctor --json").exits(1).json();
    let problems = [
        "dead_holder database",
        "dead_holder dead",
        "dead_holder node",
        "expired over",
        "expired task",
        "malformed database",
        "malformed section",
        "malformed task",
    ];
    assert_eq!(codes(&said, "problems"), problems, "{said}");
    assert_eq!(said["data"]["healthy"], false);
    let text = said.to_string();
    assert!(text.contains("breaks at byte"), "{text}");
    assert!(
        text.contains("force database --store exclusive:.tenure"),
        "{text}"
    );
    let planned = project.tenure("doctor --fix --dry-run").exits(1);
    assert!(
        planned.out.starts_with("Would run: tenure locks cleanup"),
        "{planned:?}"
    );
    assert_eq!(verdicts(&project), before);

    let said = project.tenure("doctor --fix --json").exits(1).json();
    let left = ["malformed database", "malformed section", "malformed task"];
    assert_eq!(codes(&said, "problems"), left, "{said}");
    let ended: usize = said["data"]["fixed"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["ended"].as_array().unwrap().len())
        .sum();
    assert_eq!(ended, 5, "{said}");
    let proven = |verdict: &String| verdict == "dead" || verdict == "expired";
    let mut rest = before;
    rest.retain(|_, verdict| !proven(verdict));
    // Both exclusive locks have the same key; the malformed one is listed first and stays.
    rest.insert("exclusive_lock database".into(), "malformed".into());
    assert_eq!(verdicts(&project), rest);
    assert!(project.story("dead").contains(", dead "));
    drop(live);
}

#[test]
fn single_locks_are_judged_in_each_state_and_the_doctor_fixes_only_the_dead_one() {
    let project = with_every_store();
    let lock = project.lock_file(".beads");
    let far = lock_text("far", 1).replace(
        rustix::system::uname().nodename().to_str().unwrap(),
        "another-host",
    );
    for (text, verdict, stays) in [
        (lock_text("live", std::process::id()), "alive", true),
        (far, "unknown", true),
        ("{".to_owned(), "malformed", true),
        (lock_text("dead", NOBODY), "dead", false),
    ] {
        put(&lock, text);
        assert_eq!(verdicts(&project)["exclusive_lock database"], verdict);
        project.tenure("doctor --fix --quiet");
        assert_eq!(lock.exists(), stays, "{verdict}");
    }
    // Tenure was never used in the other program's database: it stays as it is.
    let said = project.tenure("doctor --fix").exits(1);
    let command = "fix:   tenure locks cleanup --store steroids:.steroids/steroids.db";
    assert!(said.out.contains(command), "{said:?}");
    assert!(!project.path(".steroids/steroids.db-tenure").exists());
    fs::remove_dir_all(project.path(".steroids")).unwrap();
    fs::create_dir(&lock).unwrap();
    let said = project.tenure("doctor").exits(1);
    assert!(said.out.contains("is a folder, not a file"), "{said:?}");
    // The command that is printed puts it right.
    let command = "mv -n -- .beads/.exclusive-lock .beads/.exclusive-lock.aside";
    assert!(
        said.out.contains(&format!("fix:   {command}\n")),
        "{said:?}"
    );
    project.shell(command).end().exits(0);
    project.write(".bilu/storage/lock", "");
    let said = project.tenure("doctor").exits(1);
    assert!(
        said.out.contains("lock is a file, not a folder"),
        "{said:?}"
    );
    fs::remove_file(project.path(".bilu/storage/lock")).unwrap();
    // The lock folder of a board: held by a process, then by a dead one.
    let holder = project.hold("--store mkdir:.bilu/storage/lock run board --as a");
    assert_eq!(verdicts(&project)["board_lock board"], "alive");
    project.tenure("doctor --fix").exits(0);
    let command = holder.command();
    holder.killed();
    until("the command is dead", || !process::alive(command));
    assert_eq!(verdicts(&project)["board_lock board"], "dead");
    project.tenure("doctor --fix").exits(0);
    assert!(!project.path(".bilu/storage/lock").exists());
}

#[test]
fn the_doctor_finds_a_cycle_a_namesake_a_wrong_clock_a_gap_and_damage() {
    let project = with_every_store();
    let _x = project.hold("run x --as a");
    let _y = project.hold("run y --as b");
    let _waits = project.queue("x", "run x --as b -- true");
    die(&project, "run dead --as d");
    project.acquire("twin --as c");
    let db = Connection::open(project.database()).unwrap();
    // The engine refuses such a wait, so another program has to write it.
    let columns: Vec<String> = db
        .prepare("SELECT name FROM pragma_table_info('tickets')")
        .unwrap()
        .query_map([], |row| row.get(0))
        .unwrap()
        .map(Result::unwrap)
        .collect();
    let values: Vec<&str> = columns
        .iter()
        .map(|name| match name.as_str() {
            "ticket" => "NULL",
            "key" => "'y'",
            "holder" => "'a'",
            other => other,
        })
        .collect();
    let sql = format!(
        "INSERT INTO tickets SELECT {} FROM tickets",
        values.join(", ")
    );
    assert_eq!(db.execute(&sql, []).unwrap(), 1);
    let host = rustix::system::uname();
    let twin = FAR.replace("far", host.nodename().to_str().unwrap());
    let sql = "UPDATE leases SET binding = ?1, acquired_at = '2099-01-01T00:00:00.000Z' WHERE key = 'twin'";
    assert_eq!(db.execute(sql, [twin]).unwrap(), 1);
    let second = fs::read_dir(project.path("ledger"))
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut events: Vec<PathBuf> = second
        .filter(|path| path.extension().is_some_and(|end| end == "json"))
        .collect();
    events.sort();
    fs::remove_file(&events[1]).unwrap();
    let said = project.tenure("doctor --json").exits(1).json();
    let found = codes(&said, "problems");
    for code in ["clock twin", "deadlock x", "gap ", "same_host_name twin"] {
        assert!(
            found.iter().any(|one| one == code),
            "no {code:?} in {found:?}: {said}"
        );
    }
    // Its holder is on another machine, and may be alive.
    project.tenure("doctor --fix --quiet").exits(1);
    project.tenure("locks cleanup").exits(0);
    project.tenure("acquire twin --as b --no-wait").exits(6);
    assert_eq!(project.verdict("twin"), "unknown");
    // One that is older than this boot ended with the machine.
    let sql = "UPDATE leases SET acquired_at = '2001-01-01T00:00:00.000Z', heartbeat_at = '2001-01-01T00:00:00.000Z' WHERE key = 'twin'";
    assert_eq!(db.execute(sql, []).unwrap(), 1);
    assert_eq!(project.verdict("twin"), "dead");

    let broken = Project::new();
    broken.acquire("k --as a");
    Connection::open(broken.database())
        .unwrap()
        .execute_batch("PRAGMA wal_checkpoint(TRUNCATE)")
        .unwrap();
    let mut bytes = fs::read(broken.database()).unwrap();
    let length = bytes.len();
    bytes[2048..length].fill(0xa5);
    fs::write(broken.database(), bytes).unwrap();
    let said = broken.tenure("doctor --json").exits(1).json();
    let found = codes(&said, "problems");
    assert!(
        found
            .iter()
            .any(|one| one == "damaged_database " || one == "unreadable_store "),
        "{said}"
    );
}

#[test]
fn the_doctor_finds_what_is_wrong_around_the_locks() {
    let project = Project::new();
    repository(&project);
    fs::create_dir(project.path(".beads")).unwrap();
    put(
        &project.lock_file(".beads"),
        lock_text("long", std::process::id()),
    );
    let _daemon = project.daemon("");
    until("the daemon stands aside", || {
        project.daemon_status()["skipped"].is_object()
    });
    // As if it had begun long ago, with an older version.
    let state = project.path(".git/tenure/daemon.json");
    let mut json: Value = serde_json::from_slice(&fs::read(&state).unwrap()).unwrap();
    json["skipped"]["since"] = "2024-01-01T00:00:00Z".into();
    json["version"] = "0.0.1".into();
    put(&state, json.to_string());
    project.acquire("k --as a");
    let mode = |name: &str, mode: u32| {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(mode);
        fs::set_permissions(project.path(name), mode).unwrap();
    };
    mode(".git/tenure/tenure.db", 0o660);
    mode(".git/tenure/tenure.db-wal", 0o600);
    mode(".git/tenure/tenure.db-shm", 0o660);
    project
        .shell("git config core.hooksPath nowhere")
        .end()
        .exits(0);
    project.write(&format!(".tenure/.gitignore.{NOBODY}"), "");
    fs::create_dir_all(project.path(".bilu/board/tasks")).unwrap();
    project.write(
        &format!(".bilu/board/tasks/.01-a.md.{NOBODY}-0.tenure-tmp"),
        "",
    );
    let said = project.tenure("doctor --json").exits(1).json();
    let expected = ["daemon_stands_aside ", "hooks ", "permissions ", "version "];
    assert_eq!(codes(&said, "problems"), expected, "{said}");
    assert_eq!(codes(&said, "notes"), ["leftover ", "leftover "], "{said}");
    let text = said.to_string();
    let (database, log) = (".git/tenure/tenure.db", ".git/tenure/tenure.db-wal");
    let command =
        format!("chgrp --reference={database} {log} && chmod --reference={database} {log}");
    assert!(text.contains(&command), "{text}");
    project.shell(&command).end().exits(0);
    project
        .shell("git config --unset core.hooksPath")
        .end()
        .exits(0);
    // Settings that stop every other command are a problem among the others.
    project.write(".tenure/config.yaml", "locking: [");
    project.tenure("locks list").exits(2);
    let said = project.tenure("doctor --json").exits(1).json();
    let expected = ["daemon_stands_aside ", "settings ", "version "];
    assert_eq!(codes(&said, "problems"), expected, "{said}");
    assert!(said.to_string().contains("config.yaml:1:10"), "{said}");
    let status = project.tenure("status").exits(0).out;
    assert!(
        status.contains("Problems:  3: tenure doctor\n           the daemon (pid "),
        "{status}"
    );
}

#[test]
fn the_doctor_finds_a_log_that_has_grown_and_who_reads_it() {
    let project = Project::new();
    project.acquire("k --as a");
    // A reader that does not end keeps the log from being emptied. Nothing in it counts from where it ended before.
    let reader = Connection::open(project.database()).unwrap();
    reader
        .execute_batch("BEGIN; SELECT count(*) FROM leases")
        .unwrap();
    let log = project.path(".tenure/tenure.db-wal");
    let log = fs::File::options().write(true).open(log).unwrap();
    log.set_len(80 << 20).unwrap();
    drop(log);
    let said = project.tenure("doctor --json").exits(1).json();
    assert_eq!(codes(&said, "problems"), ["long_log "], "{said}");
    let evidence = said.to_string();
    let us = format!("pid {} has it open", std::process::id());
    assert!(evidence.contains(&us), "{evidence}");
    assert_eq!(project.verdict("k"), "unknown");
}

#[test]
fn no_live_lock_is_touched_while_processes_acquire_and_release_at_full_speed() {
    let project = with_every_store();
    let long = project.hold("run long --as keeper");
    let steroids = format!("--store {STEROIDS} run task:{TASK}");
    let locks = [
        "run k",
        "--store exclusive:.beads run database",
        "--store mkdir:.bilu/storage/lock run board",
        "--store ledger:. run node:1",
        &steroids,
    ];
    // Of each lock, two loops. A second holder would find the folder, and leave a witness. Every other holder is killed, so
    // that there is something to fix all the time. The shell that a lease is tied to exits at once.
    let mut loops: Vec<Running> = (0..2 * locks.len())
        .map(|number| {
            let (lock, run) = (number / 2, locks[number / 2]);
            let script = format!(
                "i=0; while [ $i -lt 6 ]; do i=$((i+1)); \
                 \"$TENURE\" {run} --as w{number} -q -- sh -c 'mkdir w{lock} && rmdir w{lock} || echo two >> broken' || echo {run} $? >> broken; \
                 \"$TENURE\" {run} --as d{number} -q -- sh -c 'kill -9 $PPID' > /dev/null 2>&1; \
                 sh -c '\"$TENURE\" acquire t{number} --as w{number} --pid $$ -q > /dev/null 2>&1; true'; done; true"
            );
            project.shell(&script).start()
        })
        .collect();
    let (mut rounds, mut ended) = (0, 0);
    while loops.iter_mut().any(Running::runs) {
        let said = project.tenure("doctor --fix --json");
        assert!(said.code == 0 || said.code == 1, "{said:?}");
        for one in said.json()["data"]["fixed"].as_array().unwrap() {
            assert_eq!(one["error"], Value::Null, "{one}");
            ended += one["ended"].as_array().unwrap().len();
        }
        rounds += 1;
    }
    for one in loops {
        one.ended().exits(0);
    }
    assert!(rounds > 0 && ended > 0, "{rounds} rounds, {ended} ended");
    let broken = fs::read_to_string(project.path("broken")).unwrap_or_default();
    assert_eq!(broken, "", "two held one key, or a holder lost it");
    assert_eq!(project.verdict("long"), "alive");
    assert_eq!(project.story("long"), "granted 1");
    drop(long);
}

/// Makes so many leases: `first`, and `k1` and so on.
pub(crate) fn many_locks(project: &Project, many: usize) {
    project.acquire("first --as a --ttl 9h");
    let mut db = Connection::open(project.database()).unwrap();
    let tx = db.transaction().unwrap();
    let columns = "token, holder, host, command, binding, acquired_at, expires_at, heartbeat_at, ttl_ms, boot, expires_boot";
    for number in 1..many {
        let sql = format!(
            "INSERT INTO leases (key, {columns}) SELECT 'k{number}', {columns} FROM leases WHERE key = 'first'"
        );
        tx.execute(&sql, []).unwrap();
    }
    tx.commit().unwrap();
}

#[test]
fn ten_thousand_locks_are_listed() {
    let project = Project::new();
    many_locks(&project, 10_000);
    assert_eq!(verdicts(&project).len(), 10_000);
    let text = project.tenure("locks list --all").exits(0).out;
    assert_eq!(text.lines().count(), 10_003);
}

#[test]
fn status_lists_ten_leases_and_paths_with_their_waiters() {
    let project = Project::new();
    for number in 0..9 {
        project.acquire(&format!("k{number} --as me"));
    }
    project.acquire("shared --as me --shared");
    project.tenure("reserve src/** --as writer").exits(0);
    project.tenure("reserve docs --as writer").exits(0);
    let _first = project.queue("k7", "run k7 --as one -- true");
    let _second = project.queue("k7", "run k7 --as two -- true");
    let _third = project.queue("paths", "reserve src/a.rs --as three");
    let said = project.tenure("status --as me").exits(0).out;
    let rows: Vec<Vec<&str>> = said
        .lines()
        .take(11)
        .map(|line| line.split_whitespace().collect())
        .collect();
    assert_eq!(rows[0], ["KEY", "HOLDER", "SINCE", "WAITING"]);
    assert_eq!((rows[1][0], rows[1][3]), ("k7", "2"), "{said}");
    assert_eq!(rows[2][..2], ["src/**", "writer"], "{said}");
    assert_eq!(rows[2][3], "1", "{said}");
    assert!(
        said.contains("\nand 2 more: tenure locks\n\nProject:"),
        "{said}"
    );
    assert!(said.contains("12 held, 3 waiting"), "{said}");

    // The other lists leave reservations to their own.
    let hint = "2 reservations, 1 waiting: tenure reservations\n";
    for list in ["locks list", "locks list --all"] {
        let text = project.tenure(list).exits(0).out;
        assert!(text.ends_with(hint) && !text.contains("src/"), "{text}");
        assert!(text.contains("k7"), "{text}");
    }
    let json = project.tenure("locks list --json").exits(0).json();
    let locks = json["data"]["locks"].as_array().unwrap();
    assert!(locks.iter().any(|lock| lock["key"] == "paths"), "{json}");
}

#[test]
fn status_is_shown_also_by_tenure_alone_in_a_project() {
    let project = Project::new();
    project.acquire("mine --as me");
    let _other = project.hold("run build --as agent");
    let said = project.tenure("status --as me").exits(0);
    for words in [
        "Project:",
        "2 held, 0 waiting",
        "not running",
        "mine (",
        "as me",
        "Problems:  none",
    ] {
        assert!(said.out.contains(words), "no {words:?} in {said:?}");
    }
    assert!(
        said.out.starts_with("KEY    HOLDER  SINCE  WAITING\n"),
        "{said:?}"
    );
    let alone = project.tenure("--as me").exits(0);
    assert_eq!(
        alone.out.lines().count(),
        said.out.lines().count(),
        "{alone:?}"
    );
    let json = project.tenure("status --as me --json").exits(0).json();
    assert_eq!(json["data"]["held"][0]["key"], "mine", "{json}");
    assert_eq!(json["data"]["problems"], 0, "{json}");
    // A word that is wrong is still wrong, and without a project there is only help.
    project.tenure("--frobnicate").exits(2);
    let nowhere = Project::uninitialised();
    assert!(nowhere.tenure("").exits(2).err.contains("Usage"));
    nowhere.tenure("status").exits(3);
    let root = project.root();
    let there = nowhere.call("-C").arg(root).end().exits(0);
    assert!(there.out.contains("Project:"), "{there:?}");
}

#[test]
fn a_history_is_proven_and_a_history_that_was_changed_is_not() {
    let project = with_every_store();
    for holder in ["a", "b"] {
        project.acquire(&format!("k --as {holder}"));
        project.tenure(&format!("release k --as {holder}")).exits(0);
    }
    let said = project.tenure("locks verify").exits(0);
    assert!(
        said.out
            .contains("Sound: sqlite:.tenure/tenure.db: 4 events, 2 grants"),
        "{said:?}"
    );
    assert!(
        said.out
            .contains("not proven: what other programs did, which keep no history"),
        "{said:?}"
    );
    let db = Connection::open(project.database()).unwrap();
    db.execute(
        "DELETE FROM history WHERE kind = 'released' AND holder = 'a'",
        [],
    )
    .unwrap();
    let said = project.tenure("locks verify").exits(1);
    assert!(
        said.err.contains("while token 1 of a has not ended"),
        "{said:?}"
    );
    let json = project.tenure("locks verify --json").exits(1);
    assert_eq!(json.error(), "HISTORY_NOT_SOUND");
    // Without its grant, an end proves nothing; events that are gone are said.
    db.execute(
        "DELETE FROM history WHERE kind = 'granted' AND holder = 'a'",
        [],
    )
    .unwrap();
    let said = project.tenure("locks verify").exits(0).out;
    assert!(said.contains("events 1 to 2 are no longer kept"), "{said}");
    db.execute(
        "UPDATE history SET holder = 'c', id = 1 WHERE kind = 'granted'",
        [],
    )
    .unwrap();
    db.execute(
        "UPDATE history SET token = 9, id = 2 WHERE kind = 'released'",
        [],
    )
    .unwrap();
    let said = project.tenure("locks verify").exits(0).out;
    let none = "1 of the leases that ended or are held now have no grant in the history";
    assert!(said.contains(none), "{said}");
    // A history that can't be read is not sound.
    let said = project
        .tenure("locks verify --store etcd://127.0.0.1:1/x")
        .exits(1);
    assert!(
        said.err.contains("Not read: etcd://127.0.0.1:1/x: "),
        "{said:?}"
    );
    assert!(said.err.contains("Sound: sqlite:"), "{said:?}");
}

#[test]
fn holders_at_the_same_time_have_lanes_of_their_own() {
    let project = Project::new();
    let _two = [
        project.hold("run docs --shared --as r1"),
        project.hold("run docs --shared --as r2"),
    ];
    let _waits = project.queue("docs", "run docs --as w -- true");
    let said = project.tenure("timeline").exits(0).out;
    let lanes = said.lines().filter(|line| line.ends_with('█')).count();
    assert_eq!(lanes, 2, "{said}");
    assert!(said.contains("docs: r1 (token 1, shared) from"), "{said}");
    project.tenure("timeline --svg out.svg").exits(0);
    let svg = project.read("out.svg");
    let bars = svg.lines().filter(|line| line.contains("<title>docs: r"));
    let mut places: Vec<&str> = bars
        .map(|bar| bar.split("y=\"").nth(1).unwrap().split('"').next().unwrap())
        .collect();
    places.dedup();
    assert_eq!(places.len(), 2, "{svg}");
    // Both bars name their holders.
    assert!(
        svg.contains(">r1</text>") && svg.contains(">r2</text>"),
        "{svg}"
    );
}

#[test]
fn the_timeline_shows_each_grant_and_how_it_ended() {
    let project = Project::new();
    project.acquire("k --as a");
    project.tenure("release k --as a").exits(0);
    die(&project, "run k --as b<&>");
    project.acquire("k --as c");
    die(&project, "run unseen --as d");
    let said = project.tenure("timeline").exits(0);
    for words in [
        "█",
        "✗",
        "k: c (token 3)",
        "held until now",
        "dead at an unknown time",
    ] {
        assert!(said.out.contains(words), "no {words:?} in {said:?}");
    }
    for line in said.out.lines() {
        assert!(line.chars().count() <= 80, "{line}");
    }
    let json = project.tenure("timeline k --json").exits(0).json();
    let ends: Vec<&Value> = json["data"]["spans"]
        .as_array()
        .unwrap()
        .iter()
        .map(|span| &span["end"])
        .collect();
    assert_eq!(
        ends,
        [&Value::from("released"), &Value::from("dead"), &Value::Null],
        "{json}"
    );
    assert_eq!(json["data"]["spans"][2]["takenOver"], true, "{json}");
    let waiter = project.queue("k", "run k --as patient --wait 1h -- true");
    let said = project.tenure("timeline k").exits(0);
    assert!(
        said.out.contains(" patient") && said.out.contains('░'),
        "{said:?}"
    );
    let json = project.tenure("timeline k --json").exits(0).json();
    assert_eq!(json["data"]["waits"][0]["holder"], "patient", "{json}");
    project.tenure("timeline k --svg waits.svg").exits(0);
    assert!(project.read("waits.svg").contains("k: patient waits since"));
    waiter.killed();
    project.tenure("locks cleanup").exits(0);
    project.tenure("timeline k --svg out.svg").exits(0);
    let svg = project.read("out.svg");
    assert_eq!(svg.matches("<title>").count(), 3, "{svg}");
    assert_eq!(svg.matches("</rect>").count(), 3, "{svg}");
    assert!(svg.contains("b&lt;&amp;&gt;"), "{svg}");
    project
        .tenure("timeline --svg no/such/out.svg")
        .fails(1, &["can't be written"]);
    assert!(
        project
            .tenure("timeline other")
            .exits(0)
            .out
            .contains("Nothing was held")
    );
}
