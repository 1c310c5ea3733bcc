//! Tasks shared through real git repositories: clones and a bare one on disk.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "test code fails by panicking"
)]

mod hub;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use tenure::store::call_deadline;
use tenure_core::Priority;
use tenure_sync::{SyncEvent, SyncOutcome};
use tenure_tasks::{Cause, Edit};

use hub::{Clone, Hub, git};

fn hook(hub: &Hub, name: &str, script: &str) {
    let hook = hub.dir.path().join("hub.git/hooks").join(name);
    fs::write(&hook, format!("#!/bin/sh\n{script}\n")).unwrap();
    fs::set_permissions(&hook, PermissionsExt::from_mode(0o755)).unwrap();
}

/// Lets git know a name in a repository that is no clone.
fn name(root: &Path) {
    for (key, value) in [("user.name", "me"), ("user.email", "me@example.org")] {
        git(root, &["config", key, value]);
    }
}

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
    let main = hub.git(&["rev-parse", "main"]);
    a.synced();
    b.synced();
    a.synced();
    assert_eq!(a.titles(), ["One", "Two"]);
    assert_eq!(b.titles(), ["One", "Two"]);
    let in_b = b.tasks().find_task(&one, call_deadline()).unwrap();
    assert_eq!(in_b.section.unwrap().name, "Backend");
    let tip = hub.git(&["rev-parse", "refs/tenure/tasks"]);
    assert_eq!((a.tip(), b.tip()), (tip.clone(), tip.clone()));
    // One commit of each clone, and no merge: the second one was made on top of the first.
    assert_eq!(hub.git(&["rev-list", "--count", "refs/tenure/tasks"]), "2");
    assert_eq!(hub.git(&["rev-parse", "main"]), main);
    for clone in [&a, &b] {
        assert_eq!(clone.status(), "", "nothing of ours shows");
        assert_eq!(clone.git(&["rev-parse", "HEAD"]), main);
        assert_eq!(clone.sync(), SyncOutcome::UpToDate);
    }
    assert_eq!(hub.git(&["rev-parse", "refs/tenure/tasks"]), tip);
}

#[test]
fn different_fields_are_both_kept_and_of_one_field_the_later_change_stands() {
    let hub = Hub::new();
    let (a, b) = (hub.clone("a"), hub.clone("b"));
    let id = a.add("One");
    a.synced();
    b.synced();
    a.retitle(&id, "By a");
    // Of two changes in one millisecond, another rule decides.
    std::thread::sleep(std::time::Duration::from_millis(2));
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
    for clone in [&b, &a, &b, &a] {
        clone.synced();
    }
    assert!(a.titles().is_empty());
    assert!(b.titles().is_empty());
    assert_eq!(a.tree(), b.tree());
}

#[test]
fn nothing_of_the_users_is_touched_or_published() {
    let hub = Hub::new();
    let (a, b) = (hub.clone("a"), hub.clone("b"));
    // Something staged, stashed, changed and new, and a commit that is not pushed.
    fs::write(a.root.join("mine.txt"), "mine\n").unwrap();
    a.git(&["add", "mine.txt"]);
    a.git(&["commit", "-q", "-m", "Not yet published"]);
    fs::write(a.root.join("code.txt"), "stashed\n").unwrap();
    a.git(&["stash", "-q"]);
    fs::write(a.root.join("staged.txt"), "staged\n").unwrap();
    a.git(&["add", "staged.txt"]);
    fs::write(a.root.join("code.txt"), "one, changed\n").unwrap();
    let (status, before) = (a.status(), a.of_the_user());
    a.add("One");
    b.add("Two");
    for clone in [&a, &b, &a, &b] {
        clone.synced();
    }
    assert_eq!(a.titles(), ["One", "Two"]);
    assert_eq!(b.titles(), ["One", "Two"]);
    assert_eq!(a.of_the_user(), before);
    assert_eq!(a.status(), status);
    assert_eq!(
        hub.git(&["for-each-ref", "--format=%(refname)"]),
        "refs/heads/main\nrefs/tenure/tasks"
    );
    assert!(
        !hub.git(&["log", "--all", "--format=%s"])
            .contains("Not yet published")
    );
    let files = hub.git(&["ls-tree", "-r", "--name-only", "refs/tenure/tasks"]);
    assert!(!files.contains(".txt"), "{files}");
}

#[test]
fn clones_on_three_branches_share_their_tasks() {
    let hub = Hub::new();
    let clones = [hub.clone("a"), hub.clone("b"), hub.clone("c")];
    for (clone, branch) in clones.iter().zip(["feature", "fix", "main"]) {
        clone.git(&["checkout", "-q", "-B", branch]);
        clone.add(branch);
    }
    for clone in clones.iter().chain(&clones) {
        clone.synced();
    }
    for clone in &clones {
        assert_eq!(clone.titles(), ["feature", "fix", "main"]);
        assert_eq!(clone.tree(), clones[0].tree());
    }
}

/// A state of a repository, and how to get there.
type Situation = (&'static str, fn(&Clone));

fn conflict(clone: &Clone) {
    fs::write(clone.root.join("code.txt"), "ours\n").unwrap();
    clone.git(&["commit", "-q", "-am", "Ours"]);
    clone.git(&["checkout", "-q", "-b", "other", "HEAD~1"]);
    fs::write(clone.root.join("code.txt"), "theirs\n").unwrap();
    clone.git(&["commit", "-q", "-am", "Theirs"]);
}

fn fails(clone: &Clone, args: &[&str]) {
    let status = Command::new("git")
        .args(["-c", "user.name=User", "-c", "user.email=user@example.org"])
        .args(args)
        .current_dir(&clone.root)
        .output();
    assert!(!status.unwrap().status.success());
}

#[test]
fn a_sync_works_in_every_state_that_a_work_tree_can_be_in() {
    let situations: [Situation; 8] = [
        ("detached", |clone| {
            clone.git(&["checkout", "-q", "--detach"]);
        }),
        ("unborn branch", |clone| {
            clone.git(&["checkout", "-q", "--orphan", "new"]);
        }),
        ("in a rebase", |clone| {
            conflict(clone);
            fails(clone, &["rebase", "main"]);
            assert!(clone.root.join(".git/rebase-merge").exists());
        }),
        ("in a merge", |clone| {
            conflict(clone);
            fails(clone, &["merge", "main"]);
            assert!(clone.root.join(".git/MERGE_HEAD").exists());
        }),
        ("in a cherry-pick", |clone| {
            conflict(clone);
            fails(clone, &["cherry-pick", "main"]);
        }),
        ("in a bisect", |clone| {
            clone.git(&["commit", "-q", "--allow-empty", "-m", "More"]);
            clone.git(&["bisect", "start", "HEAD", "HEAD~1"]);
        }),
        ("the index is locked", |clone| {
            fs::write(clone.root.join(".git/index.lock"), "").unwrap();
        }),
        ("the branch and HEAD are locked", |clone| {
            fs::write(clone.root.join(".git/refs/heads/main.lock"), "").unwrap();
            fs::write(clone.root.join(".git/HEAD.lock"), "").unwrap();
        }),
    ];
    let hub = Hub::new();
    let other = hub.clone("other");
    for (number, (what, prepare)) in situations.into_iter().enumerate() {
        let clone = hub.clone(&format!("clone-{number}"));
        prepare(&clone);
        let (before, status) = (clone.of_the_user(), clone.status());
        clone.add(what);
        clone.synced();
        other.synced();
        assert!(other.titles().contains(&what.to_owned()), "{what}");
        other.retitle(
            &other
                .all()
                .iter()
                .find(|task| task.title == what)
                .unwrap()
                .id
                .clone(),
            &format!("{what}!"),
        );
        other.synced();
        clone.synced();
        assert!(clone.titles().contains(&format!("{what}!")), "{what}");
        assert_eq!(clone.of_the_user(), before, "{what}");
        assert_eq!(clone.status(), status, "{what}");
    }
}

#[test]
fn a_sync_works_in_every_kind_of_repository() {
    // With SHA-256.
    let dir = tempfile::tempdir().unwrap();
    let new = [
        "init",
        "-q",
        "--bare",
        "-b",
        "main",
        "--object-format=sha256",
        "hub.git",
    ];
    git(dir.path(), &new);
    let hub = Hub { dir };
    let (a, b) = (hub.clone("a"), hub.clone("b"));
    a.add("One");
    b.add("Two");
    for clone in [&a, &b, &a] {
        clone.synced();
    }
    assert_eq!(b.titles(), ["One", "Two"]);
    assert_eq!(a.tip().len(), 64);
    a.git(&["fsck", "--no-progress"]);
    // Shallow, partial, of one branch, a mirror.
    let hub = Hub::new();
    hub.git(&["config", "uploadpack.allowFilter", "true"]);
    let a = hub.clone("a");
    for n in 0..3 {
        a.git(&["commit", "-q", "--allow-empty", "-m", &n.to_string()]);
        a.add(&format!("Of a {n}"));
        a.synced();
    }
    a.git(&["push", "-q"]);
    let from = format!("file://{}", hub.dir.path().join("hub.git").display());
    for (what, args) in [
        ("shallow", &["--depth=1"] as &[&str]),
        ("no blobs", &["--filter=blob:none"]),
        ("no trees", &["--filter=tree:0", "--no-checkout"]),
        ("one branch", &["--single-branch", "--no-tags"]),
        ("mirror", &["--mirror"]),
        ("bare", &["--bare"]),
    ] {
        let mut all = vec!["clone", "-q"];
        all.extend(args);
        all.extend([from.as_str(), what]);
        git(hub.dir.path(), &all);
        let root = hub.dir.path().join(what);
        name(&root);
        let clone = Clone::at(root);
        clone.add(what);
        clone.synced();
        a.synced();
        assert!(a.titles().contains(&what.to_owned()), "{what}");
        assert_eq!(clone.titles(), a.titles(), "{what}");
        a.add(&format!("After {what}"));
        a.synced();
        clone.synced();
        assert_eq!(clone.titles(), a.titles(), "{what}");
        assert_eq!(clone.sync(), SyncOutcome::UpToDate, "{what}");
    }
    hub.git(&["fsck", "--no-progress"]);
}

#[test]
fn work_trees_of_one_repository_share_the_ref_and_have_their_own_databases() {
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
    let feature = Clone::at(beside);
    feature.synced();
    assert_eq!(feature.titles(), ["One"]);
    // Also without a remote, and both at once.
    a.git(&["remote", "remove", "origin"]);
    std::thread::scope(|scope| {
        for clone in [&a, &feature] {
            scope.spawn(move || {
                for n in 0..10 {
                    clone.add(&format!(
                        "{} {n}",
                        clone.root.file_name().unwrap().display()
                    ));
                    clone.synced();
                }
            });
        }
    });
    a.synced();
    feature.synced();
    assert_eq!(a.titles().len(), 21);
    assert_eq!(a.titles(), feature.titles());
    a.git(&["fsck", "--no-progress"]);
}

#[test]
fn a_project_may_lie_in_a_subfolder_with_any_name_and_two_in_one_repository() {
    let hub = Hub::new();
    git(hub.dir.path(), &["clone", "-q", "hub.git", "mit Umlaut ä"]);
    let top = hub.dir.path().join("mit Umlaut ä");
    name(&top);
    let at = |name: &str| {
        fs::create_dir_all(top.join(name)).unwrap();
        Clone::at(top.join(name))
    };
    let (root, one, other) = (at(""), at("sub ö/[x]*"), at("b"));
    for (clone, title) in [(&root, "Root"), (&one, "One"), (&other, "Other")] {
        clone.add(title);
        clone.synced();
    }
    for (clone, title) in [(&root, "Root"), (&one, "One"), (&other, "Other")] {
        clone.synced();
        assert_eq!(clone.titles(), [title]);
        assert_eq!(clone.sync(), SyncOutcome::UpToDate);
    }
    let folders = root.git(&["ls-tree", "--name-only", "refs/tenure/tasks:projects"]);
    assert_eq!(folders, "b\nsub%20%C3%B6%2F%5Bx%5D%2A");
    // A clone of one of them gets its tasks only.
    let late = hub.clone("late");
    fs::create_dir(late.root.join("b")).unwrap();
    let late = Clone::at(late.root.join("b"));
    late.synced();
    assert_eq!(late.titles(), ["Other"]);
}

#[test]
fn nothing_of_the_repository_is_read() {
    let hub = Hub::new();
    let (a, b) = (hub.clone("a"), hub.clone("b"));
    // As many files as one likes: neither the index nor the tree of the branch can be read.
    fs::write(a.root.join(".git/index"), "not an index").unwrap();
    let tree = a.git(&["rev-parse", "HEAD^{tree}"]);
    for repository in [a.root.join(".git"), hub.dir.path().join("hub.git")] {
        fs::remove_file(repository.join(format!("objects/{}/{}", &tree[..2], &tree[2..]))).unwrap();
    }
    a.add("One");
    a.synced();
    b.synced();
    assert_eq!(b.titles(), ["One"]);
    b.add("Two");
    b.synced();
    a.synced();
    assert_eq!(a.titles(), ["One", "Two"]);
}

#[test]
fn a_remote_that_is_away_is_tried_again() {
    let hub = Hub::new();
    let (a, b) = (hub.clone("a"), hub.clone("b"));
    let (here, away) = (
        hub.dir.path().join("hub.git"),
        hub.dir.path().join("away.git"),
    );
    fs::rename(&here, &away).unwrap();
    a.add("One");
    let why = a.put_off();
    assert!(why.contains("origin can't be reached"), "{why}");
    b.add("Two");
    assert!(b.put_off().contains("origin can't be reached"));
    // What was done meanwhile is in the history of each, and both histories are kept.
    let (in_a, in_b) = (a.tip(), b.tip());
    fs::rename(&away, &here).unwrap();
    a.synced();
    b.synced();
    a.synced();
    assert_eq!(b.titles(), ["One", "Two"]);
    assert_eq!(a.titles(), ["One", "Two"]);
    for old in [in_a, in_b] {
        hub.git(&["merge-base", "--is-ancestor", &old, "refs/tenure/tasks"]);
    }
}

#[test]
fn without_a_remote_the_ref_is_a_local_history() {
    let dir = tempfile::tempdir().unwrap();
    let lone = Clone::at(dir.path().to_owned());
    assert_eq!(lone.sync(), SyncOutcome::UpToDate);
    lone.add("One");
    let why = lone.put_off();
    assert!(why.contains("not a git repository"), "{why}");
    git(dir.path(), &["init", "-q", "-b", "main"]);
    match lone.sync() {
        SyncOutcome::Synced(what) => assert!(what.contains("there is no remote"), "{what}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(lone.sync(), SyncOutcome::UpToDate);
    let first = lone.tip();
    // Something is changed, deleted and added, and then regretted.
    let two = lone.add("Two");
    let add_dependency = Edit {
        add_dependencies: vec![two.clone()],
        ..Edit::default()
    };
    let one = lone
        .all()
        .into_iter()
        .find(|task| task.title == "One")
        .unwrap()
        .id;
    lone.tasks()
        .edit_task(&one, &add_dependency, call_deadline())
        .unwrap();
    lone.synced();
    let second = lone.tip();
    lone.retitle(&one, "Uno");
    lone.tasks().delete_tasks(&[two], call_deadline()).unwrap();
    lone.add("Three");
    lone.synced();
    let plan = tenure_sync::plan_restore(&lone.project, &lone.tenure, &second).unwrap();
    assert_eq!((plan.changed, plan.deleted, plan.newer), (1, 1, 1));
    assert_eq!(lone.titles(), ["Three", "Uno"], "nothing is done yet");
    plan.apply(&lone.tenure).unwrap();
    assert_eq!(lone.titles(), ["One", "Three", "Two"]);
    let restored = lone.tasks().find_task("One", call_deadline()).unwrap();
    let again = lone.tasks().find_task("Two", call_deadline()).unwrap();
    assert_eq!(restored.depends_on, [again.id]);
    lone.synced();
    // What was done can be read.
    let log = tenure_sync::log(&lone.project, &lone.tenure, Some(10)).unwrap();
    assert_eq!(log.len(), 4);
    assert_eq!(log[3].commit, first);
    assert_eq!(log[3].changes[0].what, ["added"]);
    assert_eq!(log[2].changes.len(), 2);
    let mut what: Vec<_> = log[1]
        .changes
        .iter()
        .flat_map(|change| change.what.clone())
        .collect();
    what.sort_unstable();
    assert_eq!(what, ["added", "deleted", "dependencies", "title"]);
    assert!(tenure_sync::plan_restore(&lone.project, &lone.tenure, "HEAD").is_err());
}

#[test]
fn several_remotes_get_the_same_tasks() {
    let hub = Hub::new();
    let second = hub.dir.path().join("second.git");
    git(hub.dir.path(), &["init", "-q", "--bare", "second.git"]);
    let a = hub.clone("a");
    a.git(&["remote", "add", "backup", "../second.git"]);
    // By default, origin is the one.
    a.add("One");
    a.synced();
    assert_eq!(git(&second, &["for-each-ref"]), "");
    let a = a.with_setting("remote", "origin, backup");
    a.synced();
    assert_eq!(git(&second, &["rev-parse", "refs/tenure/tasks"]), a.tip());
    // One of them is away: the other one is served.
    fs::rename(&second, hub.dir.path().join("away")).unwrap();
    a.add("Two");
    let why = a.put_off();
    assert!(why.contains("backup can't be reached"), "{why}");
    assert_eq!(hub.git(&["rev-parse", "refs/tenure/tasks"]), a.tip());
    let status = tenure_sync::status(&a.project, &a.tenure).unwrap();
    assert_eq!((status.remotes[0].ahead, status.remotes[1].ahead), (0, 1));
    assert!(status.remotes[1].error.is_some());
    assert!(status.last_error.unwrap().contains("backup"));
    fs::rename(hub.dir.path().join("away"), &second).unwrap();
    a.synced();
    assert_eq!(git(&second, &["rev-parse", "refs/tenure/tasks"]), a.tip());
    // None, an unknown one, and none that stands out.
    a.add("Three");
    let a = a.with_setting("remote", "none");
    a.synced();
    assert_ne!(hub.git(&["rev-parse", "refs/tenure/tasks"]), a.tip());
    let a = a.with_setting("remote", "nowhere");
    assert!(a.put_off().contains("there is no remote nowhere"));
    a.git(&["remote", "rename", "origin", "hub"]);
    let a = a.with_setting("remote", "auto");
    assert!(a.put_off().contains("several remotes (backup, hub)"));
}

#[test]
fn a_host_may_protect_its_branches_or_refuse_other_refs() {
    let hub = Hub::new();
    let (a, b) = (hub.clone("a"), hub.clone("b"));
    hook(
        &hub,
        "pre-receive",
        "while read o n r; do case $r in refs/heads/main) echo protected >&2; exit 1;; esac; done",
    );
    a.add("One");
    a.synced();
    b.synced();
    assert_eq!(b.titles(), ["One"]);
    hook(
        &hub,
        "pre-receive",
        "while read o n r; do case $r in refs/heads/*) ;; *) echo no such refs here >&2; exit 1;; esac; done",
    );
    a.add("Two");
    let why = a.put_off();
    for words in [
        "no such refs here",
        "remote rejected",
        "set sync.ref to refs/heads/tenure",
    ] {
        assert!(why.contains(words), "{why}");
    }
    let branch = |clone: Clone| clone.with_setting("ref", "refs/heads/tenure");
    let (a, b) = (branch(a), branch(b));
    a.synced();
    b.synced();
    assert_eq!(b.titles(), ["One", "Two"]);
    assert!(hub.git(&["branch", "--list", "tenure"]).contains("tenure"));
    assert_eq!(a.git(&["branch", "--list"]), "* main", "no branch here");
    // A branch with something else is left alone.
    let a = a.with_setting("ref", "refs/heads/main");
    a.add("Three");
    let main = hub.git(&["rev-parse", "main"]);
    assert!(a.put_off().contains("something else than tenure's tasks"));
    assert_eq!(hub.git(&["rev-parse", "main"]), main);
}

#[test]
fn a_ref_that_was_moved_back_or_deleted_is_filled_again() {
    let hub = Hub::new();
    let (a, b) = (hub.clone("a"), hub.clone("b"));
    a.add("One");
    a.synced();
    let old = a.tip();
    a.add("Two");
    a.synced();
    b.synced();
    let undo: [&dyn Fn(); 5] = [
        &|| _ = hub.git(&["update-ref", "refs/tenure/tasks", &old]),
        &|| _ = hub.git(&["update-ref", "-d", "refs/tenure/tasks"]),
        &|| _ = a.git(&["update-ref", "refs/tenure/tasks", &old]),
        &|| _ = a.git(&["update-ref", "-d", "refs/tenure/tasks"]),
        // All of it, and every object as well.
        &|| {
            hub.git(&["update-ref", "-d", "refs/tenure/tasks"]);
            for name in ["refs/tenure/tasks", "refs/tenure/remotes/origin/tasks"] {
                a.git(&["update-ref", "-d", name]);
            }
            a.git(&["gc", "-q", "--prune=now"]);
        },
    ];
    for (number, undo) in undo.into_iter().enumerate() {
        println!("case {number}");
        undo();
        a.synced();
        let late = hub.clone(&format!("late-{number}"));
        late.synced();
        assert_eq!(late.titles(), ["One", "Two"], "case {number}");
        assert_eq!(late.tip(), a.tip());
    }
    b.synced();
    a.synced();
    assert_eq!(a.tree(), b.tree());
}

#[test]
fn a_lock_that_a_killed_git_left_on_our_ref_is_removed() {
    let hub = Hub::new();
    let a = hub.clone("a");
    a.add("One");
    a.synced();
    let (local, remote) = (a.root.join(".git"), hub.dir.path().join("hub.git"));
    for lock in [
        local.join("refs/tenure/tasks.lock"),
        local.join("refs/tenure/remotes/origin/tasks.lock"),
        remote.join("refs/tenure/tasks.lock"),
    ] {
        fs::write(&lock, "").unwrap();
        a.add("Another one");
        a.synced();
        assert!(!lock.exists(), "{}", lock.display());
    }
}

#[test]
fn a_file_that_cannot_be_read_is_named_and_nothing_is_changed() {
    let hub = Hub::new();
    let (a, b) = (hub.clone("a"), hub.clone("b"));
    a.add("One");
    a.synced();
    b.synced();
    let good = a.tip();
    for (path, text, words) in [
        (
            "ab/x.json",
            "{\"kind\":\"task\",\"id\":\"x\",\"tit",
            "line 1",
        ),
        ("ab/x.json", "{\"kind\":\"lock\"}", "unknown variant"),
        (
            "tenure.json",
            "{\"kind\":\"tenure\",\"format\":2}",
            "newer tenure",
        ),
        ("sections.jsonl", "[1, 2]", "line 1"),
    ] {
        let import = format!(
            "commit refs/tenure/tasks\ncommitter x <x@x> 1 +0000\ndata 1\nx\nfrom {good}\nM 100644 inline {path}\ndata {}\n{text}\n",
            text.len()
        );
        let stream = hub.dir.path().join("stream");
        fs::write(&stream, import).unwrap();
        let import = Command::new("git")
            .args(["fast-import", "--quiet", "--force"])
            .current_dir(hub.dir.path().join("hub.git"))
            .stdin(fs::File::open(&stream).unwrap())
            .status();
        assert!(import.unwrap().success());
        b.add("More");
        let why = b.put_off();
        assert!(why.contains(path) && why.contains(words), "{why}");
        assert_eq!(b.tip(), good);
    }
    // A file of another kind is ignored.
    hub.git(&["update-ref", "refs/tenure/tasks", &good]);
    b.synced();
    assert_eq!(b.titles().len(), 5);
}

#[test]
fn the_file_of_earlier_versions_is_read_one_last_time_in_every_clone() {
    let hub = Hub::new();
    let (a, b) = (hub.clone("a"), hub.clone("b"));
    let line = |id: &str, title: &str, changed: &str| {
        format!(
            "{{\"kind\":\"task\",\"id\":\"{id}\",\"title\":\"{title}\",\"status\":\"pending\",\"priority\":5,\"createdAt\":\"2026-01-01T00:00:00Z\",\"changed\":{{\"title\":\"{changed}\"}}}}\n"
        )
    };
    let head = "{\"kind\":\"tenure\",\"format\":1}\n";
    let file = |clone: &Clone| clone.root.join(".tenure/tasks.jsonl");
    fs::write(
        file(&a),
        format!("{head}{}", line("1", "In a", "2026-01-02T00:00:00Z")),
    )
    .unwrap();
    // In b, the first one is older, and there is another one.
    let in_b =
        line("1", "In b", "2026-01-01T12:00:00Z") + &line("2", "Only in b", "2026-01-03T00:00:00Z");
    fs::write(file(&b), format!("{head}{in_b}")).unwrap();
    let (_, events) = a.sync_and_tell();
    let told = events.contains(&SyncEvent::Moved);
    assert!(told, "{events:?}");
    assert!(
        SyncEvent::Moved
            .to_string()
            .contains("git rm .tenure/tasks.jsonl")
    );
    let (_, events) = b.sync_and_tell();
    assert!(events.contains(&SyncEvent::Moved));
    a.synced();
    assert_eq!(a.titles(), ["In a", "Only in b"]);
    assert_eq!(b.titles(), ["In a", "Only in b"]);
    // The .gitignore of that version is replaced, unless it was committed.
    let earlier = "# Written by tenure init: locks are never shared through git.\n*\n!.gitignore\n!config.yaml\n!tasks.jsonl\n";
    for clone in [&a, &b] {
        fs::write(clone.root.join(".tenure/.gitignore"), earlier).unwrap();
    }
    b.git(&["add", ".tenure"]);
    b.git(&["commit", "-q", "-m", "Of an earlier version"]);
    assert_eq!(a.status(), "?? .tenure/.gitignore\n?? .tenure/tasks.jsonl");
    for clone in [&a, &b] {
        clone.synced();
        assert_eq!(clone.status(), "");
    }
    // Once, and again if a clone of an earlier version changed it.
    let (outcome, events) = b.sync_and_tell();
    assert_eq!((outcome, events), (SyncOutcome::UpToDate, Vec::new()));
    fs::write(
        file(&b),
        format!("{head}{}", line("2", "Changed", "2026-01-04T00:00:00Z")),
    )
    .unwrap();
    b.synced();
    assert_eq!(b.titles(), ["Changed", "In a"]);
    fs::write(file(&b), "{").unwrap();
    assert!(
        b.put_off()
            .contains(".tenure/tasks.jsonl can't be read: line 1")
    );
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
    for clone in [&a, &b, &a] {
        clone.synced();
    }
    assert_eq!(a.titles(), ["One", "Two"]);
    assert_eq!(b.titles(), ["One", "Two"]);
    assert_eq!(
        hub.git(&["for-each-ref", "--format=%(refname)"]),
        "refs/tenure/tasks"
    );
}

#[test]
fn a_task_that_is_being_worked_on_keeps_its_status_until_the_work_ends() {
    use tenure_core::HolderId;
    use tenure_tasks::Status;
    use tenure_tasks::{Change, Proof};
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
    let status = |clone: &Clone| {
        clone
            .tasks()
            .find_task(&id, call_deadline())
            .unwrap()
            .status
    };
    for _ in 0..3 {
        let (_, events) = a.sync_and_tell();
        assert!(
            events.contains(&SyncEvent::Deferred { tasks: 1 }),
            "{events:?}"
        );
        assert_eq!(status(&a), Status::InProgress);
    }
    assert_eq!(
        a.tree(),
        b.tree(),
        "the change from the other clone is not lost"
    );
    drop(task_guard);
    a.synced();
    assert_eq!(status(&a), Status::Completed);
    b.synced();
    assert_eq!(status(&b), Status::Completed);
}
