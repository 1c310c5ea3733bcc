//! Sync where it is hard: odd repositories, remotes that hang or ask, files that others spoilt, and a
//! user at work in the same clone.
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
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;
use std::time::Duration;

use tenure_core::task::Edit;
use tenure_sync::SyncOutcome;

use hub::{Clone, Hub, git};

/// Far longer than anything takes.
const LIMIT: Duration = Duration::from_secs(60);

fn script(path: &Path, text: &str) {
    fs::write(path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

fn tasks_file(clone: &Clone) -> PathBuf {
    clone.root.join(".tenure/tasks.jsonl")
}

/// Adds a commit of the user's that touches something else.
fn user_commits(clone: &Clone, name: &str) {
    fs::write(clone.root.join(name), name).unwrap();
    clone.git(&["add", name]);
    clone.git(&["commit", "-q", "-m", name]);
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
        assert_eq!(clone.file(), clones[0].file());
    }
}

/// Syncs in a thread, and asks it to stop as soon as `when` is true.
fn stopped(clone: Clone, when: impl Fn() -> bool + Send + 'static) -> (SyncOutcome, Clone) {
    let (send, ended) = channel();
    std::thread::spawn(move || {
        let outcome = tenure_sync::sync(&clone.project, &clone.tenure, &when, &mut |_| {});
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
        "refs/heads/main"
    );
    assert!(
        hub.git(&["show", "main:.tenure/tasks.jsonl"])
            .contains("One")
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

#[test]
fn a_project_may_lie_in_a_subfolder_with_any_name_and_two_in_one_repository() {
    let hub = Hub::new();
    git(hub.dir.path(), &["clone", "-q", "hub.git", "mit Umlaut ä"]);
    let top = hub.dir.path().join("mit Umlaut ä");
    for (key, value) in [("user.name", "a"), ("user.email", "a@example.org")] {
        git(&top, &["config", key, value]);
    }
    let at = |name: &str| {
        fs::create_dir_all(top.join(name)).unwrap();
        Clone::at(top.join(name))
    };
    let (one, other) = (at("sub ö/[x]*"), at("b"));
    one.add("One");
    other.add("Other");
    settle(&[&one]);
    other.synced();
    assert_eq!(one.titles(), ["One"]);
    assert_eq!(other.titles(), ["Other"]);
    let files = hub.git(&[
        "-c",
        "core.quotePath=false",
        "ls-tree",
        "-r",
        "--name-only",
        "main",
    ]);
    assert_eq!(
        files,
        "b/.tenure/tasks.jsonl\ncode.txt\nsub ö/[x]*/.tenure/tasks.jsonl"
    );
    assert!(!git(&top, &["status", "--porcelain"]).contains("tasks.jsonl"));
}

#[test]
fn a_second_work_tree_has_its_own_branch_and_index() {
    let hub = Hub::new();
    let a = hub.clone("a");
    a.add("One");
    a.synced();
    let beside = hub.dir.path().join("beside");
    a.git(&[
        "worktree",
        "add",
        "-q",
        "-b",
        "feature",
        beside.to_str().unwrap(),
    ]);
    a.git(&["push", "-q", "-u", "origin", "feature"]);
    let feature = Clone::at(beside);
    feature.synced();
    assert_eq!(feature.titles(), ["One"], "what is committed is taken in");
    feature.add("Two");
    let main = a.git(&["rev-parse", "main"]);
    feature.synced();
    assert_eq!(a.git(&["rev-parse", "main"]), main);
    assert!(
        hub.git(&["show", "feature:.tenure/tasks.jsonl"])
            .contains("Two")
    );
    assert!(!feature.status().contains("tasks.jsonl"));
    assert!(!a.status().contains("tasks.jsonl"));
}

#[test]
fn repositories_of_other_kinds_are_synced_too() {
    // Of SHA-256 objects.
    let dir = tempfile::tempdir().unwrap();
    git(
        dir.path(),
        &[
            "init",
            "-q",
            "--bare",
            "-b",
            "main",
            "--object-format=sha256",
            "hub.git",
        ],
    );
    let hub = Hub { dir };
    let (a, b) = (hub.clone("a"), hub.clone("b"));
    a.add("One");
    b.add("Two");
    settle(&[&a, &b]);
    assert_eq!(b.titles(), ["One", "Two"]);
    assert_eq!(a.git(&["rev-parse", "HEAD"]).len(), 64);
    // Without most of its history, and with an index in two parts.
    let hub = Hub::new();
    let a = hub.clone("a");
    for name in ["x", "y", "z"] {
        user_commits(&a, name);
    }
    a.git(&["push", "-q"]);
    let from = format!("file://{}", hub.dir.path().join("hub.git").display());
    git(
        hub.dir.path(),
        &["clone", "-q", "--depth", "1", &from, "shallow"],
    );
    let root = hub.dir.path().join("shallow");
    for (key, value) in [
        ("user.name", "s"),
        ("user.email", "s@example.org"),
        ("core.splitIndex", "true"),
        ("core.untrackedCache", "true"),
    ] {
        git(&root, &["config", key, value]);
    }
    let shallow = Clone::at(root);
    fs::write(shallow.root.join("staged"), "staged").unwrap();
    shallow.git(&["add", "staged"]);
    shallow.add("From the shallow one");
    a.add("From the deep one");
    settle(&[&a, &shallow]);
    assert_eq!(shallow.titles(), a.titles());
    assert_eq!(shallow.titles().len(), 2);
    assert_eq!(shallow.git(&["diff", "--cached", "--name-only"]), "staged");
    hub.git(&["fsck", "--no-progress"]);
}

#[test]
fn a_branch_may_follow_one_of_another_name() {
    let hub = Hub::new();
    let a = hub.clone("a");
    hub.git(&["branch", "team/shared", "main"]);
    a.git(&["fetch", "-q"]);
    a.git(&["checkout", "-q", "-b", "mine", "origin/team/shared"]);
    let main = hub.git(&["rev-parse", "main"]);
    a.add("One");
    a.synced();
    assert_eq!(hub.git(&["rev-parse", "main"]), main);
    assert!(
        hub.git(&["show", "team/shared:.tenure/tasks.jsonl"])
            .contains("One")
    );
    assert!(!hub.git(&["branch"]).contains("mine"));
}

#[test]
fn with_other_line_endings_the_file_does_not_count_as_changed() {
    let hub = Hub::new();
    let (a, b) = (hub.clone("a"), hub.clone("b"));
    a.git(&["config", "core.autocrlf", "true"]);
    a.add("One");
    settle(&[&a, &b]);
    // As git itself writes it there.
    fs::remove_file(tasks_file(&a)).unwrap();
    a.git(&["checkout", "--", ".tenure/tasks.jsonl"]);
    assert!(a.file().contains("\r\n"));
    b.add("Two");
    settle(&[&a, &b]);
    assert_eq!(a.titles(), ["One", "Two"]);
    assert!(!a.status().contains("tasks.jsonl"), "{}", a.status());
    fs::remove_file(tasks_file(&a)).unwrap();
    a.git(&["checkout", "--", ".tenure/tasks.jsonl"]);
    a.synced();
    assert!(!a.status().contains("tasks.jsonl"), "{}", a.status());
    assert!(
        !hub.git(&["show", "main:.tenure/tasks.jsonl"])
            .contains('\r')
    );
}

// What the remote does.

#[test]
fn a_branch_that_was_forced_back_gets_the_tasks_and_nothing_that_was_taken_off_it() {
    let hub = Hub::new();
    let (a, b) = (hub.clone("a"), hub.clone("b"));
    let old = hub.git(&["rev-parse", "main"]);
    a.add("One");
    settle(&[&a, &b]);
    user_commits(&a, "regretted");
    a.git(&["push", "-q"]);
    b.git(&["pull", "-q"]);
    b.add("Two");
    settle(&[&a, &b]);
    hub.git(&["update-ref", "refs/heads/main", &old]);
    let late = hub.clone("late");
    settle(&[&a, &b, &late]);
    assert_eq!(late.titles(), ["One", "Two"]);
    let files = hub.git(&["ls-tree", "-r", "--name-only", "main"]);
    assert!(!files.contains("regretted"), "{files}");
    assert!(a.root.join("regretted").exists() && b.root.join("regretted").exists());
}

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
    assert_eq!(a.git(&["log", "-1", "--format=%s"]), "Sync tasks");
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
        assert_eq!(
            clone.git(&["rev-parse", "HEAD"]),
            hub.git(&["rev-parse", "main"])
        );
        assert_eq!(clone.status(), "?? .tenure/.gitignore");
    }
}

// What others make of the file.

#[test]
fn a_file_in_any_other_shape_is_named_and_never_harmed() {
    let hub = Hub::new();
    let a = hub.clone("a");
    a.add("One");
    a.synced();
    let file = tasks_file(&a);
    let good = fs::read(&file).unwrap();
    let head = a.git(&["rev-parse", "HEAD"]);
    let with = |end: &[u8]| [good.as_slice(), end].concat();
    for (what, bytes, words) in [
        (
            "half a line",
            with(br#"{"kind":"task","id":"x","tit"#),
            "line 3",
        ),
        ("not UTF-8", with(b"\xff\xfe\n"), "not UTF-8"),
        (
            "of a newer format",
            with(b"{\"kind\":\"tenure\",\"format\":2}\n"),
            "newer tenure",
        ),
        ("something else", b"[1, 2]\n".to_vec(), "line 1"),
        ("zeros, as after a power cut", vec![0; 512], "line 1"),
    ] {
        fs::write(&file, &bytes).unwrap();
        a.add("More");
        let why = a.put_off();
        assert!(why.contains(words), "{what}: {why}");
        assert_eq!(fs::read(&file).unwrap(), bytes, "{what}");
        assert_eq!(a.git(&["rev-parse", "HEAD"]), head, "{what}");
    }
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    match a.sync() {
        SyncOutcome::Failed(why) => assert!(why.contains("tasks.jsonl can't be read"), "{why}"),
        other => panic!("{other:?}"),
    }
    fs::remove_dir(&file).unwrap();
    // A link is read, and replaced; what it leads to is not written.
    let elsewhere = hub.dir.path().join("elsewhere");
    fs::write(&elsewhere, &good).unwrap();
    symlink(&elsewhere, &file).unwrap();
    a.synced();
    assert_eq!(fs::read(&elsewhere).unwrap(), good);
    assert!(file.symlink_metadata().unwrap().is_file());
    assert_eq!(a.titles().len(), 6);
}

#[test]
fn both_sides_of_a_conflict_that_was_committed_as_it_was_count() {
    let hub = Hub::new();
    let (a, b) = (hub.clone("a"), hub.clone("b"));
    let id = a.add("One");
    settle(&[&a, &b]);
    a.retitle(&id, "By a");
    b.add("Two");
    b.synced();
    let (ours, theirs) = (a.file(), b.file());
    let text = format!("<<<<<<< HEAD\n{ours}||||||| base\n=======\n{theirs}>>>>>>> origin/main\n");
    fs::write(tasks_file(&a), text.replace('\n', "\r\n")).unwrap();
    a.git(&["add", "-f", ".tenure/tasks.jsonl"]);
    a.git(&["commit", "-q", "-m", "Solved, I think"]);
    settle(&[&a, &b]);
    assert_eq!(b.titles(), ["By a", "Two"]);
    assert!(!b.file().contains("<<<"));
}

#[test]
fn a_file_that_no_clone_could_read_is_not_published() {
    let hub = Hub::new();
    let (a, b) = (hub.clone("a"), hub.clone("b"));
    let database = a.root.join(".tenure/tenure.db");
    let sql = |text: &str| {
        let done = Command::new("sqlite3").arg(&database).arg(text).status();
        assert!(done.unwrap().success());
    };
    a.add("One");
    sql("INSERT INTO tasks (id, title) VALUES (' x', 'Odd')");
    match a.sync() {
        SyncOutcome::Failed(why) => assert!(why.contains("\" x\" can't be shared"), "{why}"),
        other => panic!("{other:?}"),
    }
    b.add("Two");
    b.synced();
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
        fs::write(tasks_file(&a), format!("{}{line}", a.file())).unwrap();
        a.synced();
        a.retitle(&id, "After it");
        settle(&[&a, &b]);
        assert_eq!(b.titles(), ["After it"]);
        b.retitle(&id, "And after that");
        settle(&[&a, &b]);
        assert_eq!(a.titles(), ["And after that"]);
    }
}

#[test]
fn ignored_by_the_user_the_file_is_not_written() {
    let hub = Hub::new();
    let a = hub.clone("a");
    fs::write(a.root.join(".gitignore"), ".tenure/\n").unwrap();
    a.add("One");
    let why = a.put_off();
    assert!(why.contains("is ignored by git"), "{why}");
    assert!(!tasks_file(&a).exists());
}

// A user at work.

/// Whether a user brings in what the others have while syncs run.
#[derive(Clone, Copy)]
enum Pulls {
    Never,
    Often,
}

/// Works like a user, in a loop, until the test ends: each step may be refused, none may be lost.
fn user(clone: &Clone, pulls: Pulls, over: &AtomicBool) -> (u32, Vec<String>) {
    let mut refused = Vec::new();
    let mut count = 0;
    let mut run = |args: &[&str]| {
        let output = Command::new("git")
            .args(args)
            .current_dir(&clone.root)
            .env("LC_ALL", "C")
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_EDITOR", "true")
            .output()
            .unwrap();
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr).into_owned();
            assert!(!said.contains("CONFLICT"), "git {args:?}: {said}");
            refused.push(format!("git {args:?}: {said}"));
        }
        output.status.success()
    };
    while !over.load(Ordering::Relaxed) {
        let name = format!("user-{count}");
        fs::write(clone.root.join(&name), &name).unwrap();
        // As a person does: once more a little later, if it was refused.
        let mut must = |args: &[&str]| {
            let done = (0..600).any(|_| {
                let done = run(args);
                std::thread::sleep(Duration::from_millis(if done { 0 } else { 50 }));
                done
            });
            assert!(
                done,
                "git {args:?} was refused again and again; {}",
                clone.git(&["status"])
            );
        };
        must(&["add", &name]);
        must(&["commit", "-q", "-m", &name]);
        match (count % 5, pulls) {
            (0, Pulls::Often) => must(&["pull", "-q", "--no-rebase", "--no-edit"]),
            (1, Pulls::Often) => must(&["pull", "-q", "--rebase"]),
            (0 | 2, _) => must(&["commit", "-q", "--amend", "--no-edit", "--allow-empty"]),
            (1 | 3, _) => {
                fs::write(clone.root.join("code.txt"), &name).unwrap();
                must(&["stash", "-q"]);
                must(&["stash", "pop", "-q"]);
                must(&["commit", "-q", "-m", "popped", "--", "code.txt"]);
            }
            _ => {
                must(&["checkout", "-q", "-B", "side"]);
                must(&["checkout", "-q", "main"]);
            }
        }
        count += 1;
    }
    (count, refused)
}

#[test]
fn nothing_of_a_user_at_work_is_lost_or_published_or_in_conflict() {
    work_beside_syncs(Pulls::Never);
}

#[test]
fn nothing_of_a_user_who_pulls_is_lost_or_published_or_in_conflict() {
    work_beside_syncs(Pulls::Often);
}

fn work_beside_syncs(pulls: Pulls) {
    let hub = Hub::new();
    let (a, b) = (hub.clone("a"), hub.clone("b"));
    let over = AtomicBool::new(false);
    let published = hub.git(&["rev-parse", "main"]);
    let (mut syncs, mut worked, mut refused) = (0, 0, Vec::new());
    std::thread::scope(|scope| {
        let at_work = scope.spawn(|| user(&a, pulls, &over));
        for round in 0..25 {
            let id = a.add(&format!("a {round}"));
            b.add(&format!("b {round}"));
            if round % 3 == 0 {
                let edit = Edit {
                    title: Some(format!("a {round}, changed")),
                    ..Edit::default()
                };
                a.tasks()
                    .edit_task(&id, &edit, tenure::call_deadline())
                    .unwrap();
            }
            for clone in [&a, &b] {
                match clone.sync() {
                    SyncOutcome::Failed(why) => assert!(
                        why.contains("cannot lock ref") || why.contains(".lock"),
                        "{why}"
                    ),
                    _ => syncs += 1,
                }
            }
        }
        over.store(true, Ordering::Relaxed);
        while !at_work.is_finished() {
            let _ = a.sync();
        }
        (worked, refused) = at_work.join().unwrap();
    });
    println!(
        "{syncs} syncs, {worked} rounds of work, {} times refused",
        refused.len()
    );
    for words in &refused {
        println!("{words}");
    }
    // Nothing but the file is published.
    let names = hub.git(&[
        "log",
        "--format=",
        "--name-only",
        &format!("{published}..main"),
    ]);
    assert!(
        names.lines().all(|name| name == ".tenure/tasks.jsonl"),
        "{names}"
    );
    // Every file of the user's is in a commit of theirs, as it was written.
    for n in 0..worked {
        let name = format!("user-{n}");
        assert_eq!(a.git(&["show", &format!("HEAD:{name}")]), name);
        assert_eq!(fs::read_to_string(a.root.join(&name)).unwrap(), name);
    }
    for round in [&a, &b, &a] {
        round.synced();
    }
    a.git(&["pull", "-q", "--no-rebase", "--no-edit"]);
    a.git(&["push", "-q"]);
    b.git(&["pull", "-q", "--no-rebase", "--no-edit"]);
    settle(&[&a, &b]);
    assert_eq!(a.titles().len(), 50);
    assert_eq!(a.titles(), b.titles());
    for clone in [&a, &b] {
        assert_eq!(clone.status(), "?? .tenure/.gitignore");
        clone.git(&["fsck", "--no-progress"]);
    }
}

#[test]
fn a_commit_whose_message_is_being_written_is_not_disturbed() {
    let hub = Hub::new();
    let a = hub.clone("a");
    a.add("One");
    a.synced();
    let (editor, open, go) = (
        hub.dir.path().join("editor"),
        hub.dir.path().join("open"),
        hub.dir.path().join("go"),
    );
    script(
        &editor,
        &format!(
            "touch {}; while [ ! -e {} ]; do sleep 0.02; done; echo Mine > \"$1\"",
            open.display(),
            go.display()
        ),
    );
    fs::write(a.root.join("mine"), "mine").unwrap();
    a.git(&["add", "mine"]);
    let mut commit = Command::new("git")
        .arg("commit")
        .current_dir(&a.root)
        .env("GIT_EDITOR", &editor)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .spawn()
        .unwrap();
    while !open.exists() {
        std::thread::sleep(Duration::from_millis(10));
    }
    a.add("Two");
    let _ = a.sync();
    fs::write(&go, "").unwrap();
    assert!(
        commit.wait().unwrap().success(),
        "the user's commit was refused"
    );
}

#[test]
fn a_pull_that_still_fetches_is_not_disturbed() {
    let hub = Hub::new();
    let (a, b) = (hub.clone("a"), hub.clone("b"));
    a.add("One");
    settle(&[&a, &b]);
    user_commits(&b, "theirs");
    b.git(&["push", "-q"]);
    let (ssh, open, go) = (
        hub.dir.path().join("ssh"),
        hub.dir.path().join("open"),
        hub.dir.path().join("go"),
    );
    script(
        &ssh,
        &format!(
            "touch {}; while [ ! -e {} ]; do sleep 0.02; done; shift; exec sh -c \"$*\"",
            open.display(),
            go.display()
        ),
    );
    let address = format!("ssh://host{}", hub.dir.path().join("hub.git").display());
    let mut pull = Command::new("git")
        .args(["-c", "ssh.variant=simple", "-c"])
        .arg(format!("remote.slow.url={address}"))
        .args(["pull", "-q", "--no-rebase", "--no-edit", "slow", "main"])
        .current_dir(&a.root)
        .env("GIT_SSH_COMMAND", &ssh)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .spawn()
        .unwrap();
    while !open.exists() {
        std::thread::sleep(Duration::from_millis(10));
    }
    a.add("Two");
    let _ = a.sync();
    fs::write(&go, "").unwrap();
    assert!(
        pull.wait().unwrap().success(),
        "the user's pull was refused"
    );
    assert!(a.root.join("theirs").exists());
}

#[test]
fn a_branch_that_is_merely_behind_can_still_be_pulled() {
    let hub = Hub::new();
    let (a, b) = (hub.clone("a"), hub.clone("b"));
    user_commits(&b, "theirs");
    b.git(&["push", "-q"]);
    a.add("One");
    a.synced();
    a.git(&["pull", "-q"]);
    assert!(a.root.join("theirs").exists());
}
