//! Tasks shared through real git repositories: two clones and a bare one on disk.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "test code fails by panicking"
)]

mod hub;

use tenure_core::Priority;
use tenure_core::task::{Cause, Edit};
use tenure_sync::SyncOutcome;

use tenure::call_deadline;

use hub::{Clone, Hub, git};

#[test]
fn tasks_of_two_clones_come_together() {
    let hub = Hub::new();
    let (a, b) = (hub.clone("a"), hub.clone("b"));
    let section = a.tasks().add_section("Backend", call_deadline()).unwrap();
    let one = a.add("One");
    let edit = Edit {
        section: Some(section.id),
        ..Edit::default()
    };
    a.tasks().edit_task(&one, &edit, call_deadline()).unwrap();
    b.add("Two");
    a.synced();
    b.synced();
    a.synced();
    assert_eq!(a.titles(), ["One", "Two"]);
    assert_eq!(b.titles(), ["One", "Two"]);
    assert_eq!(
        b.tasks()
            .find_task(&one, call_deadline())
            .unwrap()
            .section
            .unwrap()
            .name,
        "Backend"
    );
    assert_eq!(a.file(), b.file());
    // Both branches are where the remote's is, and nothing but the file was committed.
    let tip = hub.git(&["rev-parse", "main"]);
    assert_eq!(a.git(&["rev-parse", "HEAD"]), tip);
    b.synced();
    assert_eq!(b.git(&["rev-parse", "HEAD"]), tip);
    assert_eq!(
        hub.git(&["log", "--format=", "--name-only", "main~2..main"]),
        ".tenure/tasks.jsonl\n.tenure/tasks.jsonl"
    );
    assert_eq!(a.status(), "?? .tenure/.gitignore");
    assert_eq!(a.sync(), SyncOutcome::UpToDate);
    assert_eq!(b.sync(), SyncOutcome::UpToDate);
    assert_eq!(hub.git(&["rev-parse", "main"]), tip);
}

#[test]
fn different_fields_are_both_kept_and_of_one_field_the_later_change_stands() {
    let hub = Hub::new();
    let (a, b) = (hub.clone("a"), hub.clone("b"));
    let id = a.add("One");
    a.synced();
    b.synced();
    a.retitle(&id, "By a");
    b.retitle(&id, "By b");
    let urgent = Edit {
        priority: Priority::new(9),
        ..Edit::default()
    };
    a.tasks().edit_task(&id, &urgent, call_deadline()).unwrap();
    a.synced();
    b.synced();
    a.synced();
    for clone in [&a, &b] {
        let task = clone.tasks().find_task(&id, call_deadline()).unwrap();
        assert_eq!((task.title.as_str(), task.priority.level()), ("By b", 9));
        let past = clone.tasks().task_history(&id, call_deadline()).unwrap();
        let lost = past.iter().find(|past| past.value == "By a").unwrap();
        assert_eq!(lost.field, "title");
        assert_ne!(lost.cause, Cause::Changed);
    }
}

#[test]
fn a_deleted_task_does_not_come_back() {
    let hub = Hub::new();
    let (a, b) = (hub.clone("a"), hub.clone("b"));
    let id = a.add("One");
    a.synced();
    b.synced();
    a.tasks()
        .delete_tasks(std::slice::from_ref(&id), call_deadline())
        .unwrap();
    b.retitle(&id, "Still here?");
    b.synced();
    a.synced();
    b.synced();
    a.synced();
    assert!(a.titles().is_empty());
    assert!(b.titles().is_empty());
    assert_eq!(a.file(), b.file());
}

#[test]
fn nothing_of_the_users_is_touched_or_published() {
    let hub = Hub::new();
    let (a, b) = (hub.clone("a"), hub.clone("b"));
    // Something staged, something changed, something new, and a commit that is not pushed.
    std::fs::write(a.root.join("mine.txt"), "mine\n").unwrap();
    a.git(&["add", "mine.txt"]);
    a.git(&["commit", "-q", "-m", "Not yet published"]);
    std::fs::write(a.root.join("staged.txt"), "staged\n").unwrap();
    a.git(&["add", "staged.txt"]);
    std::fs::write(a.root.join("code.txt"), "one, changed\n").unwrap();
    // The others have something new.
    std::fs::write(b.root.join("theirs.txt"), "theirs\n").unwrap();
    b.git(&["add", "theirs.txt"]);
    b.git(&["commit", "-q", "-m", "Theirs"]);
    b.git(&["push", "-q"]);
    let before = a.status();
    a.add("One");
    b.add("Two");
    a.synced();
    b.synced();
    a.synced();
    b.synced();
    assert_eq!(a.titles(), ["One", "Two"]);
    assert_eq!(b.titles(), ["One", "Two"]);
    assert_eq!(a.status(), before);
    assert!(!a.root.join("theirs.txt").exists());
    assert!(
        !hub.git(&["ls-tree", "-r", "--name-only", "main"])
            .contains("mine.txt")
    );
    assert!(
        !hub.git(&["log", "--format=%s", "main"])
            .contains("Not yet published")
    );
    // And when the user pulls and pushes, that works.
    a.git(&["commit", "-q", "-am", "All of it"]);
    a.git(&["pull", "-q", "--no-rebase", "--no-edit"]);
    a.git(&["push", "-q"]);
    b.git(&["pull", "-q", "--no-rebase", "--no-edit"]);
    assert!(b.root.join("mine.txt").exists());
    a.synced();
    b.synced();
    assert_eq!(a.file(), b.file());
}

#[test]
fn an_obstacle_is_reported_and_nothing_is_touched() {
    let hub = Hub::new();
    let a = hub.clone("a");
    a.add("One");
    let untouched = |words: &str| {
        let head = a.git(&["rev-parse", "HEAD"]);
        let why = a.put_off();
        assert!(why.contains(words), "{why}");
        assert!(!a.root.join(".tenure/tasks.jsonl").exists(), "{why}");
        assert_eq!(a.git(&["rev-parse", "HEAD"]), head);
    };
    std::fs::write(a.root.join(".git/index.lock"), "").unwrap();
    untouched("the index is locked");
    std::fs::remove_file(a.root.join(".git/index.lock")).unwrap();
    for (name, words) in [
        ("MERGE_HEAD", "a merge"),
        ("rebase-merge", "a rebase"),
        ("CHERRY_PICK_HEAD", "a cherry-pick"),
    ] {
        std::fs::write(
            a.root.join(".git").join(name),
            a.git(&["rev-parse", "HEAD"]),
        )
        .unwrap();
        untouched(words);
        std::fs::remove_file(a.root.join(".git").join(name)).unwrap();
    }
    a.git(&["checkout", "-q", "--detach"]);
    untouched("detached HEAD");
    a.git(&["checkout", "-q", "main"]);
    a.synced();
}

#[test]
fn a_remote_that_is_away_is_tried_again() {
    let hub = Hub::new();
    let (a, b) = (hub.clone("a"), hub.clone("b"));
    let (here, away) = (
        hub.dir.path().join("hub.git"),
        hub.dir.path().join("away.git"),
    );
    std::fs::rename(&here, &away).unwrap();
    a.add("One");
    let why = a.put_off();
    assert!(why.contains("origin can't be reached"), "{why}");
    assert_eq!(a.git(&["log", "-1", "--format=%s"]), "Sync tasks");
    std::fs::rename(&away, &here).unwrap();
    a.synced();
    b.synced();
    assert_eq!(b.titles(), ["One"]);
}

#[test]
fn without_git_or_a_remote_the_tasks_are_in_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let lone = Clone::at(dir.path().to_owned());
    assert_eq!(lone.sync(), SyncOutcome::UpToDate);
    lone.add("One");
    let why = lone.put_off();
    assert!(why.contains("not a git repository"), "{why}");
    assert!(lone.file().contains("\"One\""));
    git(dir.path(), &["init", "-q", "-b", "main"]);
    for (key, value) in [("user.name", "a"), ("user.email", "a@example.org")] {
        git(dir.path(), &["config", key, value]);
    }
    match lone.sync() {
        SyncOutcome::Synced(what) => assert!(what.contains("there is no remote"), "{what}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(
        lone.git(&["ls-tree", "-r", "--name-only", "HEAD"]),
        ".tenure/tasks.jsonl"
    );
    assert_eq!(lone.sync(), SyncOutcome::UpToDate);
}

#[test]
fn an_unreadable_file_is_reported_and_left_alone() {
    let hub = Hub::new();
    let a = hub.clone("a");
    a.add("One");
    a.synced();
    let broken = format!("{}{{\"kind\":\n", a.file());
    std::fs::write(a.root.join(".tenure/tasks.jsonl"), &broken).unwrap();
    let why = a.put_off();
    assert!(
        why.contains(".tenure/tasks.jsonl can't be read: line 3"),
        "{why}"
    );
    assert_eq!(a.file(), broken);
    std::fs::remove_file(a.root.join(".tenure/tasks.jsonl")).unwrap();
    a.synced();
    assert!(a.file().contains("\"One\""));
}

#[test]
fn after_a_crash_only_the_index_lock_of_a_sync_is_removed() {
    let hub = Hub::new();
    let a = hub.clone("a");
    a.add("One");
    let (lock, token) = (
        a.root.join(".git/index.lock"),
        a.root.join(".tenure/sync-index-lock"),
    );
    std::fs::write(&token, "").unwrap();
    std::fs::hard_link(&token, &lock).unwrap();
    a.synced();
    assert!(!lock.exists());
    // One of the same content that is not ours.
    a.add("Two");
    std::fs::write(&token, "").unwrap();
    std::fs::write(&lock, "").unwrap();
    assert!(a.put_off().contains("index is locked"));
    assert!(lock.exists());
}

#[test]
fn a_lock_that_a_killed_git_left_on_the_branch_is_named() {
    let hub = Hub::new();
    let a = hub.clone("a");
    a.add("One");
    let lock = a.root.join(".git/refs/heads/main.lock");
    std::fs::write(&lock, "").unwrap();
    match a.sync() {
        SyncOutcome::Failed(why) => assert!(why.contains("main.lock"), "{why}"),
        other => panic!("{other:?}"),
    }
    std::fs::remove_file(&lock).unwrap();
    a.synced();
}

#[test]
fn clones_of_an_empty_repository_come_together() {
    let dir = tempfile::tempdir().unwrap();
    git(
        dir.path(),
        &["init", "-q", "--bare", "-b", "main", "hub.git"],
    );
    let hub = Hub { dir };
    let (a, b) = (hub.clone("a"), hub.clone("b"));
    a.add("One");
    b.add("Two");
    // Both begin their branch before they know of each other.
    std::fs::rename(hub.dir.path().join("hub.git"), hub.dir.path().join("away")).unwrap();
    assert!(a.put_off().contains("can't be reached"));
    assert!(b.put_off().contains("can't be reached"));
    std::fs::rename(hub.dir.path().join("away"), hub.dir.path().join("hub.git")).unwrap();
    a.synced();
    b.synced();
    a.synced();
    assert_eq!(a.titles(), ["One", "Two"]);
    assert_eq!(b.titles(), ["One", "Two"]);
    let tip = hub.git(&["rev-parse", "main"]);
    assert_eq!(a.git(&["rev-parse", "HEAD"]), tip);
    assert_eq!(b.git(&["rev-parse", "HEAD"]), tip);
}

#[test]
fn a_branch_that_was_never_checked_out_is_left_to_the_user() {
    let hub = Hub::new();
    let dir = hub.dir.path().join("late");
    std::fs::create_dir(&dir).unwrap();
    git(&dir, &["init", "-q", "-b", "main"]);
    git(&dir, &["remote", "add", "origin", "../hub.git"]);
    for (key, value) in [
        ("user.name", "late"),
        ("user.email", "late@example.org"),
        ("branch.main.remote", "origin"),
        ("branch.main.merge", "refs/heads/main"),
    ] {
        git(&dir, &["config", key, value]);
    }
    let late = Clone::at(dir);
    late.add("One");
    assert!(late.put_off().contains("git pull once"));
    late.git(&["pull", "-q"]);
    late.synced();
    assert!(late.root.join("code.txt").exists());
}

#[test]
fn commits_that_were_never_pushed_are_not_published_with_the_first_tasks() {
    let dir = tempfile::tempdir().unwrap();
    git(
        dir.path(),
        &["init", "-q", "--bare", "-b", "main", "hub.git"],
    );
    let hub = Hub { dir };
    let a = hub.clone("a");
    std::fs::write(a.root.join("mine.txt"), "mine").unwrap();
    a.git(&["add", "mine.txt"]);
    a.git(&["commit", "-q", "-m", "Mine"]);
    a.add("One");
    let why = a.put_off();
    assert!(why.contains("has no branch main yet"), "{why}");
    assert_eq!(hub.git(&["for-each-ref"]), "");
    a.git(&["push", "-q"]);
    a.synced();
}

#[test]
fn a_refused_push_is_reported_in_the_words_of_the_remote() {
    let hub = Hub::new();
    let a = hub.clone("a");
    let hook = hub.dir.path().join("hub.git/hooks/pre-receive");
    std::fs::write(&hook, "#!/bin/sh\necho protected >&2\nexit 1\n").unwrap();
    std::fs::set_permissions(&hook, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    a.add("One");
    let why = a.put_off();
    assert!(
        why.contains("remote rejected") && why.contains("hook declined"),
        "{why}"
    );
    std::fs::remove_file(&hook).unwrap();
    a.synced();
}

#[test]
fn a_task_that_is_being_worked_on_keeps_its_status_until_the_work_ends() {
    use tenure_core::task::{Change, Proof};
    use tenure_core::{HolderId, Status};
    let hub = Hub::new();
    let (a, b) = (hub.clone("a"), hub.clone("b"));
    let id = a.add("One");
    a.synced();
    b.synced();
    let ask = a.tenure.ask_for_task().unwrap().named("agent").unwrap();
    let tenure::Acquired::Granted(task_guard) = ask.start(&id).unwrap() else {
        panic!("it is free");
    };
    // Of two changes in one millisecond, another rule decides.
    std::thread::sleep(std::time::Duration::from_millis(2));
    let proof = Proof::Name(HolderId::parse("b").unwrap());
    b.tasks()
        .change(
            &id,
            &proof,
            &Change::To(Status::Completed),
            &Edit::default(),
            call_deadline(),
        )
        .unwrap();
    b.synced();
    a.synced();
    assert_eq!(
        a.tasks().find_task(&id, call_deadline()).unwrap().status,
        Status::InProgress
    );
    assert!(
        a.file().contains("\"completed\""),
        "the change from the other clone is not lost"
    );
    drop(task_guard);
    a.synced();
    assert_eq!(
        a.tasks().find_task(&id, call_deadline()).unwrap().status,
        Status::Completed
    );
}
