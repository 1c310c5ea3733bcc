//! Sync where it is hard: hooks, remotes that hang or ask, values of other programs, and a user at work in the
//! same clone.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "test code fails by panicking"
)]

mod hub;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use tenure_sync::{Direction, SyncOutcome};
use tenure_testkit::scaled;

use hub::{Clone, Hub, git};

/// Far longer than anything takes.
const LIMIT: Duration = Duration::from_secs(60);

fn script(path: &Path, text: &str) {
    fs::write(path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

/// Syncs that end with a sync that has nothing to do, in all of them.
fn settle(clones: &[&Clone]) {
    for clone in clones.iter().chain(clones) {
        clone.synced();
    }
    for clone in clones {
        assert_eq!(
            clone.sync(),
            SyncOutcome::UpToDate,
            "{}",
            clone.root.display()
        );
        assert_eq!(clone.tree(), clones[0].tree());
    }
}

/// Syncs in a thread, and asks it to stop as soon as `when` is true.
fn stopped(clone: Clone, when: impl Fn() -> bool + Send + 'static) -> (SyncOutcome, Clone) {
    let (send, ended) = channel();
    std::thread::spawn(move || {
        let outcome = tenure_sync::sync(
            &clone.project,
            &clone.tenure,
            Direction::Both,
            &when,
            &mut |_| {},
        );
        send.send((outcome, clone)).unwrap();
    });
    ended.recv_timeout(LIMIT).expect("it did not stop")
}

fn is_gone(pid: &str) -> bool {
    let state = fs::read_to_string(format!("/proc/{}/stat", pid.trim()));
    state.is_err() || state.is_ok_and(|text| text.contains(") Z "))
}

// The repository belongs to the user.

#[test]
fn a_sync_publishes_no_tag_and_signs_nothing_whatever_the_settings() {
    let hub = Hub::new();
    let a = hub.clone("a");
    a.git(&["tag", "-a", "not-yet", "-m", "Not yet published"]);
    for (key, value) in [
        ("push.followTags", "true"),
        ("push.gpgSign", "true"),
        ("commit.gpgSign", "true"),
        ("tag.gpgSign", "true"),
        ("user.signingKey", "none-of-mine"),
        ("push.recurseSubmodules", "on-demand"),
        ("push.default", "matching"),
    ] {
        a.git(&["config", key, value]);
    }
    a.git(&["branch", "private"]);
    a.add("One");
    a.synced();
    assert_eq!(
        hub.git(&["for-each-ref", "--format=%(refname)"]),
        "refs/heads/main\nrefs/tenure/tasks"
    );
}

#[test]
fn no_hook_of_the_user_runs_or_blocks_the_sync() {
    let hub = Hub::new();
    let a = hub.clone("a");
    let ran = hub.dir.path().join("ran");
    for name in [
        "pre-commit",
        "commit-msg",
        "post-commit",
        "pre-push",
        "reference-transaction",
        "post-index-change",
        "post-checkout",
        "post-merge",
    ] {
        let hook = a.root.join(".git/hooks").join(name);
        script(&hook, &format!("echo {name} >> {}; exit 1", ran.display()));
    }
    a.add("One");
    a.synced();
    a.add("Two");
    a.synced();
    assert_eq!(fs::read_to_string(&ran).unwrap_or_default(), "");
}

// What the remote does.

#[test]
fn a_remote_that_asks_for_a_password_is_put_off_without_a_question() {
    let hub = Hub::new();
    let a = hub.clone("a");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let _ = stream.read(&mut [0; 4096]);
            let _ = stream.write_all(
                b"HTTP/1.1 401 Unauthorized\r\nWWW-Authenticate: Basic realm=\"x\"\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
            );
        }
    });
    a.git(&[
        "remote",
        "set-url",
        "origin",
        &format!("http://{address}/x.git"),
    ]);
    a.add("One");
    let (outcome, a) = stopped(a, || false);
    match outcome {
        SyncOutcome::PutOff(why) => assert!(why.contains("can't be reached"), "{why}"),
        other => panic!("{other:?}"),
    }
    assert!(
        a.git(&["log", "-1", "--format=%s", "refs/tenure/tasks"])
            .starts_with("Sync tasks")
    );
}

#[test]
fn a_sync_that_is_asked_to_stop_ends_a_hanging_git_and_everything_it_started() {
    for (case, text) in [
        ("it waits", "exec sleep 1000"),
        (
            "it does not listen",
            "trap '' TERM; sleep 1000 & wait; sleep 1000",
        ),
        // As one that asks on a terminal that it does not have.
        ("it stands still", "kill -STOP 0; exec sleep 1000"),
    ] {
        println!("{case}");
        let hub = Hub::new();
        let a = hub.clone("a");
        let (mark, ssh) = (hub.dir.path().join("mark"), hub.dir.path().join("ssh"));
        script(&ssh, &format!("echo $$ > {}\n{text}", mark.display()));
        a.git(&["remote", "set-url", "origin", "ssh://127.0.0.1/x"]);
        a.git(&["config", "core.sshCommand", ssh.to_str().unwrap()]);
        a.git(&["config", "ssh.variant", "ssh"]);
        a.add("One");
        let begun = mark.clone();
        let (outcome, a) = stopped(a, move || {
            fs::read_to_string(&begun).is_ok_and(|pid| pid.ends_with('\n'))
        });
        match outcome {
            SyncOutcome::PutOff(why) => assert!(why.contains("stopped"), "{case}: {why}"),
            other => panic!("{case}: {other:?}"),
        }
        let pid = fs::read_to_string(&mark).unwrap();
        for _ in 0..200 {
            if is_gone(&pid) {
                break;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        assert!(is_gone(&pid), "{case}: {pid} goes on");
        // And the project is free for the next sync.
        a.git(&["remote", "set-url", "origin", "../hub.git"]);
        a.synced();
    }
}

#[test]
fn six_clones_that_push_at_once_come_together() {
    let hub = Hub::new();
    let clones: Vec<Clone> = (0..6).map(|n| hub.clone(&format!("c{n}"))).collect();
    for (n, clone) in clones.iter().enumerate() {
        clone.add(&format!("Of {n}"));
    }
    // A clone may lose the race eight times in a row; it reports that, and the next sync succeeds.
    for _ in 0..3 {
        std::thread::scope(|scope| {
            for clone in &clones {
                scope.spawn(|| match clone.sync() {
                    SyncOutcome::Synced(_) | SyncOutcome::UpToDate => {}
                    SyncOutcome::PutOff(why) => assert!(why.contains("at the same time"), "{why}"),
                    other => panic!("{other:?}"),
                });
            }
        });
    }
    let all: Vec<&Clone> = clones.iter().collect();
    settle(&all);
    for clone in &clones {
        assert_eq!(clone.titles().len(), 6);
        assert_eq!(clone.tip(), hub.git(&["rev-parse", "refs/tenure/tasks"]));
        assert_eq!(clone.status(), "");
    }
}

// What other programs write.

#[test]
fn a_task_that_no_clone_could_read_is_not_published() {
    let hub = Hub::new();
    let (a, b) = (hub.clone("a"), hub.clone("b"));
    let database = a.root.join(".git/tenure/tenure.db");
    let sql = |text: &str| {
        let done = Command::new("sqlite3").arg(&database).arg(text).status();
        assert!(done.unwrap().success());
    };
    a.add("One");
    sql("INSERT INTO tasks (id, title) VALUES (' x', 'Odd')");
    b.add("Two");
    settle(&[&a, &b]);
    assert_eq!(b.titles(), ["One", "Two"]);
    sql("UPDATE tasks SET id = 'x' WHERE id = ' x'");
    settle(&[&a, &b]);
    assert_eq!(b.titles(), ["Odd", "One", "Two"]);
}

#[test]
fn the_last_of_all_times_can_still_be_followed_by_a_change() {
    let hub = Hub::new();
    let (a, b) = (hub.clone("a"), hub.clone("b"));
    let id = a.add("One");
    settle(&[&a, &b]);
    for last in ["9999-12-30T22:00:00.999Z", "9999-12-30T22:00:00.999999999Z"] {
        let line = format!(
            "{{\"kind\":\"task\",\"id\":\"{id}\",\"title\":\"From the end\",\"status\":\"pending\",\"priority\":5,\"createdAt\":\"2026-01-01T00:00:00Z\",\"changed\":{{\"title\":\"{last}\"}}}}\n"
        );
        fs::write(a.root.join(".tenure/tasks.jsonl"), line).unwrap();
        a.synced();
        a.retitle(&id, "After it");
        settle(&[&a, &b]);
        assert_eq!(b.titles(), ["After it"]);
        b.retitle(&id, "And after that");
        settle(&[&a, &b]);
        assert_eq!(a.titles(), ["And after that"]);
    }
}

// What it costs.

/// A repository without a remote, with so many tasks on the ref.
fn with_tasks(count: usize) -> (tempfile::TempDir, Clone) {
    let dir = tempfile::tempdir().unwrap();
    git(dir.path(), &["init", "-q"]);
    let lone = Clone::at(dir.path().to_owned());
    let lines: Vec<String> = (0..count)
        .map(|n| format!("{{\"id\":\"task-{n}\",\"title\":\"Task {n}\"}}"))
        .collect();
    let lines = lines.join("\n");
    lone.tasks()
        .import(&lines, tenure::store::call_deadline())
        .unwrap();
    lone.synced();
    (dir, lone)
}

/// A number of `git count-objects -v`.
fn objects(clone: &Clone, what: &str) -> usize {
    let counts = clone.git(&["count-objects", "-v"]);
    let line = counts.lines().find_map(|line| line.strip_prefix(what));
    line.unwrap().trim_start_matches(": ").parse().unwrap()
}

#[test]
fn a_change_writes_one_file_and_two_folders_however_many_tasks_there_are() {
    let (_dir, lone) = with_tasks(3000);
    assert!(lone.tree().lines().count() > 3000);
    let before = objects(&lone, "count");
    lone.retitle("task-7", "Changed");
    lone.synced();
    // And the commit.
    assert_eq!(objects(&lone, "count"), before + 4);
    assert_eq!(
        lone.git(&[
            "diff-tree",
            "-r",
            "--name-only",
            "refs/tenure/tasks~",
            "refs/tenure/tasks"
        ])
        .lines()
        .count(),
        1
    );
    lone.add("New");
    lone.synced();
    assert_eq!(objects(&lone, "count"), before + 8);
    assert_eq!(lone.sync(), SyncOutcome::UpToDate);
}

#[test]
fn many_syncs_keep_the_repository_small_once_git_has_packed_it() {
    let (_dir, lone) = with_tasks(1000);
    lone.git(&["gc", "-q", "--prune=now"]);
    let before = objects(&lone, "size-pack");
    let syncs = scaled(30);
    for n in 0..syncs {
        lone.retitle(&format!("task-{}", n % 1000), &format!("Round {n}"));
        lone.synced();
    }
    let loose = objects(&lone, "size");
    lone.git(&["gc", "-q", "--prune=now"]);
    let after = objects(&lone, "size-pack");
    println!("{syncs} syncs: {loose} KiB of loose objects, packed from {before} to {after} KiB");
    assert!(after < before + 100 + syncs, "{after} KiB");
}

// A user at work.

/// Works like a user in a hurry until the test ends. Returns how many commands were run, and those that
/// failed.
fn user(clone: &Clone, over: &AtomicBool) -> (usize, Vec<String>) {
    let (mut count, mut failed) = (0, Vec::new());
    let mut run = |args: &[&str]| {
        let output = Command::new("git")
            .args(["-c", "user.name=User", "-c", "user.email=user@example.org"])
            .args(args)
            .current_dir(&clone.root)
            .env("LC_ALL", "C")
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_EDITOR", "true")
            .output()
            .unwrap();
        count += 1;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            failed.push(format!("git {args:?}: {said}"));
        }
    };
    let mut round = 0;
    while !over.load(Ordering::Relaxed) {
        let name = format!("user-{round}");
        fs::write(clone.root.join(&name), &name).unwrap();
        run(&["add", &name]);
        run(&["commit", "-q", "-m", &name]);
        run(&["commit", "-q", "--amend", "--no-edit", "--allow-empty"]);
        run(&["pull", "-q", "--rebase"]);
        fs::write(clone.root.join("code.txt"), &name).unwrap();
        run(&["stash", "-q"]);
        run(&["switch", "-q", "-C", "side", "HEAD~1"]);
        run(&["commit", "-q", "--allow-empty", "-m", "side"]);
        run(&["rebase", "-q", "main"]);
        run(&["switch", "-q", "main"]);
        run(&["stash", "pop", "-q"]);
        run(&["commit", "-q", "-am", "popped"]);
        run(&["push", "-q", "origin", "main"]);
        run(&["fetch", "-q", "--all", "--prune"]);
        match round % 4 {
            0 => run(&["gc", "-q"]),
            1 => run(&["pack-refs", "--all"]),
            2 => run(&["repack", "-q", "-d"]),
            _ => run(&["reflog", "expire", "--expire=now", "--all"]),
        }
        round += 1;
    }
    (count, failed)
}

/// Stops the user.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

#[test]
fn no_command_of_a_user_at_work_fails_beside_syncs() {
    let hub = Hub::new();
    let (a, b) = (hub.clone("a"), hub.clone("b"));
    let over = AtomicBool::new(false);
    let rounds = scaled(12);
    let (mut worked, mut failed) = (0, Vec::new());
    std::thread::scope(|scope| {
        let at_work = scope.spawn(|| user(&a, &over));
        // Also if a sync fails.
        let _stop = StopAtEnd(&over);
        for round in 0..rounds {
            let id = a.add(&format!("a {round}"));
            b.add(&format!("b {round}"));
            if round % 3 == 0 {
                a.retitle(&id, &format!("a {round}, changed"));
            }
            a.synced();
            b.synced();
        }
        over.store(true, Ordering::Relaxed);
        (worked, failed) = at_work.join().unwrap();
    });
    println!("{rounds} rounds of syncs, {worked} commands of the user");
    assert!(failed.is_empty(), "{failed:#?}");
    settle(&[&a, &b]);
    assert_eq!(a.titles().len(), 2 * rounds);
    for clone in [&a, &b] {
        assert_eq!(clone.status(), "");
        clone.git(&["fsck", "--no-progress"]);
    }
    // Not one commit of the user's branches is of a sync.
    let subjects = hub.git(&["log", "--branches", "--format=%s"]);
    assert!(!subjects.contains("Sync tasks"), "{subjects}");
}
