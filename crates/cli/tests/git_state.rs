//! The state of a project in a git repository: what git deletes, it survives; and the database of an earlier version is
//! brought there.

use crate::project;

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::process::Signal;

use project::{Project, Running, process, until};

fn git(project: &Project, words: &str) {
    let mut git = project.program("git");
    git.env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .args(["-c", "user.name=t", "-c", "user.email=t@t"])
        .args(["-c", "protocol.file.allow=always"])
        .args(words.split_whitespace());
    project.prepare(git).end().exits(0);
}

/// A git repository in `work` with one commit.
fn repository() -> Project {
    let project = Project::uninitialised();
    git(&project, "init -q -b main");
    project.write("file", "");
    git(&project, "add file");
    git(&project, "commit -q -m c");
    project
}

/// Holds a key in this folder with a lease that has to be renewed soon.
fn hold(project: &Project, folder: &Path) -> Running {
    let call = project.call("run k --ttl 1s").within(folder).input();
    let held = call.sh("echo held; exec cat").start();
    until("the command runs", || !held.out().is_empty());
    held
}

/// Asserts that the key is held, and by a holder that goes on renewing it, as seen from this folder.
#[track_caller]
fn assert_held(project: &Project, folder: &Path) {
    let second = project.call("run k --no-wait").within(folder);
    second.sh("true").end().fails(6, &["k is locked by"]);
    let expiry = || {
        let shown = project.call("locks show k --json").within(folder).end();
        shown.exits(0).json()["data"]["leases"][0]["expiresAt"].to_string()
    };
    let first = expiry();
    assert!(first.len() > 10, "{first}");
    until("the lease is renewed", || expiry() != first);
}

#[track_caller]
fn assert_reserved(project: &Project, folder: &Path) {
    let shown = project.call("reservations").within(folder).end().exits(0);
    assert!(shown.out.contains("alice"), "{shown:?}");
}

#[test]
fn what_git_cleans_takes_no_lock_and_no_reservation_with_it() {
    let project = repository();
    project.tenure("init -q").exits(0);
    git(&project, "worktree add -q ../linked");
    let (main, linked) = (project.root(), project.root().with_file_name("linked"));
    project.tenure("reserve src --as alice").exits(0);
    for (holder, clean) in [
        (&main, "clean -q -fdx"),
        (&linked, "clean -q -ffdx"),
        (&main, "stash push -q --all"),
        (&linked, "-C ../linked clean -q -ffdx"),
    ] {
        let mut held = hold(&project, holder);
        git(&project, clean);
        assert_held(&project, &main);
        assert_held(&project, &linked);
        assert_reserved(&project, &main);
        held.let_go();
        held.ended().exits(0);
        let next = project.call("run k --no-wait").within(&linked);
        next.sh("true").end().exits(0);
        assert!(project.path(".tenure/.gitignore").is_file(), "{clean}");
    }
    git(&project, "worktree remove --force ../linked");
    assert_reserved(&project, &main);
}

#[test]
fn a_project_in_a_folder_of_a_repository_is_found_after_git_cleaned_it() {
    let project = repository();
    let folder = project.path("a b").join(OsStr::from_bytes(b"caf\xe9"));
    let deep = folder.join("deep");
    fs::create_dir_all(&deep).unwrap();
    fs::write(deep.join("file"), "").unwrap();
    git(&project, "add .");
    git(&project, "commit -q -m d");
    project.call("init").within(&folder).end().exits(0);
    let state = project.path(".git/tenure/at/a b/at");
    let state = state.join(OsStr::from_bytes(b"caf\xe9"));
    assert!(state.join("tenure.db").is_file());
    let reserve = project.call("reserve deep --as alice").within(&folder);
    reserve.end().exits(0);
    let mut held = hold(&project, &folder);
    git(&project, "clean -q -ffdx");
    assert!(!folder.join(".tenure").exists());
    assert_held(&project, &deep);
    assert_reserved(&project, &deep);
    // The folder above is no project.
    project
        .tenure("run k -- true")
        .fails(3, &["no tenure project"]);
    held.let_go();
    held.ended().exits(0);
    // Through a link, it is the same project.
    let link = project.root().with_file_name("link");
    std::os::unix::fs::symlink(&folder, &link).unwrap();
    assert_reserved(&project, &link);
}

#[test]
fn a_git_directory_that_is_somewhere_else_keeps_the_state() {
    let project = Project::uninitialised();
    git(&project, "init -q -b main --separate-git-dir ../apart.git");
    git(&project, "commit -q --allow-empty -m c");
    let library = project.root().with_file_name("library");
    fs::create_dir(&library).unwrap();
    git(&project, "-C ../library init -q -b main");
    git(&project, "-C ../library commit -q --allow-empty -m c");
    git(&project, "submodule --quiet add ../library sub");
    let (main, sub) = (project.root(), project.path("sub"));
    for folder in [&main, &sub] {
        project.call("init --here").within(folder).end().exits(0);
        let reserve = project.call("reserve src --as alice").within(folder);
        reserve.end().exits(0);
    }
    let apart = main.with_file_name("apart.git");
    assert!(apart.join("tenure/tenure.db").is_file());
    assert!(apart.join("modules/sub/tenure/tenure.db").is_file());
    for (folder, clean) in [(&main, "clean -q -ffdx"), (&sub, "-C sub clean -q -ffdx")] {
        let mut held = hold(&project, folder);
        git(&project, clean);
        assert_held(&project, folder);
        assert_reserved(&project, folder);
        held.let_go();
        held.ended().exits(0);
    }
}

/// Makes a project as an earlier version did: with its database in `.tenure`.
fn earlier(project: &Project) -> u64 {
    fs::create_dir(project.path(".tenure")).unwrap();
    project.tenure(&format!("{EARLIER} tasks add One")).exits(0);
    let reserve = format!("{EARLIER} reserve src --as alice");
    project.tenure(&reserve).exits(0);
    project.write(".tenure/guard-commits.jsonl", "");
    project.acquire(&format!("{EARLIER} old --as bob"))
}

const EARLIER: &str = "--store sqlite:.tenure/tenure.db";

/// Asserts that the earlier database was moved, with everything that was in it.
#[track_caller]
fn assert_moved(project: &Project, token: u64) {
    assert!(project.path(".git/tenure/tenure.db").is_file());
    assert_reserved(project, &project.root());
    assert!(project.tenure("tasks list").exits(0).out.contains("One"));
    let fence = format!("fence old --token {token}");
    project.tenure(&fence).exits(0);
    assert!(project.acquire("new --as me") > token);
    assert_eq!(project.history("old").len(), 1);
    let old = project.tenure(&format!("{EARLIER} acquire k"));
    old.fails(1, &["was moved into git's own directory"]);
    assert!(project.path(".git/tenure/guard-commits.jsonl").is_file());
    for name in ["tenure.db-wal", "tenure.db-shm", "tenure.db-live"] {
        assert!(!project.path(".tenure").join(name).exists(), "{name}");
    }
}

#[test]
fn the_database_of_an_earlier_version_is_moved_by_the_next_command_that_writes() {
    let project = repository();
    let token = earlier(&project);
    // A command that reads leaves it where it is.
    assert_reserved(&project, &project.root());
    assert!(!project.path(".git/tenure").exists());
    project.tenure("run k -- true").exits(0);
    assert_moved(&project, token);
}

#[test]
fn eight_commands_at_once_move_it_once_and_lose_nothing() {
    for _ in 0..4 {
        let project = repository();
        let token = earlier(&project);
        let calls: Vec<Running> = (0..8)
            .map(|_| project.call("run k").sh("echo $TENURE_TOKEN").start())
            .collect();
        let mut tokens: Vec<u64> = calls
            .into_iter()
            .map(|call| call.ended().exits(0).out.trim().parse().unwrap())
            .collect();
        tokens.sort_unstable();
        tokens.dedup();
        assert_eq!(tokens.len(), 8, "{tokens:?}");
        assert!(tokens[0] > token, "{tokens:?}");
        project.tenure("run k -- true").exits(0);
        // Eight grants, and the one above.
        let grants = project.history("k");
        let grants = grants.iter().filter(|(kind, ..)| kind == "granted");
        assert_eq!(grants.count(), 9);
        assert_moved(&project, token);
    }
}

#[test]
fn it_stays_where_it_is_while_it_is_held_even_by_the_command_of_a_killed_tenure() {
    let project = repository();
    let token = earlier(&project);
    let held = project
        .call(&format!("{EARLIER} run k"))
        .sh("echo $$; setsid sleep 300 & echo $! > left; wait")
        .start();
    let left = || project.read("left").trim().parse().unwrap_or(0);
    until("it has left", || {
        let group =
            held.out().ends_with('\n') && left() != 0 && process::group_of(left()).is_some();
        group && process::group_of(left()) != Some(held.command())
    });
    let is_moved = || project.path(".git/tenure/tenure.db").exists();
    let second = || project.call("run k --no-wait").sh("true").end();
    second().fails(6, &["k is locked by"]);
    assert!(!is_moved());
    // What left the group goes on, and nobody has the database open.
    held.killed();
    second().fails(6, &["k is locked by"]);
    assert!(!is_moved());
    let pid = i32::try_from(left()).unwrap();
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    rustix::process::kill_process(pid, Signal::KILL).unwrap();
    until("the key is free", || second().code == 0);
    project.tenure("run k -- true").exits(0);
    assert_moved(&project, token);
}

#[test]
fn a_project_that_becomes_a_repository_keeps_its_locks_and_its_daemon() {
    let project = Project::new();
    let token = project.acquire("old --as bob");
    project.tenure("daemon start").exits(0);
    git(&project, "init -q");
    project.tenure("daemon status").exits(0);
    let stopped = project.tenure("daemon stop").exits(0);
    assert!(stopped.out.contains("Daemon stopped"), "{stopped:?}");
    project.tenure("run k -- true").exits(0);
    assert!(project.path(".git/tenure/tenure.db").is_file());
    project
        .tenure(&format!("fence old --token {token}"))
        .exits(0);
    // Without git, the locks are gone with it, and that is said.
    fs::remove_dir_all(project.path(".git")).unwrap();
    let said = project.tenure("run k -- true");
    said.fails(
        1,
        &["was moved into git's own directory", "remove the file"],
    );
    fs::remove_file(project.path(".tenure/tenure.db")).unwrap();
    project.tenure("init").exits(0);
    project.tenure("run k -- true").exits(0);
}

#[test]
fn a_git_directory_that_cannot_be_written_is_named_and_no_second_store_is_made() {
    let project = repository();
    let read_only = "mount --bind .git .git && mount -o remount,ro,bind .git";
    let Some(said) = project.with_mounts(&format!("{read_only}; $TENURE init")) else {
        return;
    };
    let kept = format!("are kept in {}", project.path(".git/tenure").display());
    said.fails(1, &[&kept, "tenure setup says how", "--store"]);
    let placeholder = fs::metadata(project.path(".tenure/tenure.db")).unwrap();
    assert_eq!(placeholder.len(), 512, "no store");
    project.tenure("init -q").exits(0);
    project.tenure("reserve src --as alice").exits(0);
    // What only reads goes on.
    let run = |script: &str| {
        let script = format!("{read_only}; {script}");
        project.with_mounts(&script).unwrap()
    };
    let read = run("$TENURE reservations && $TENURE check file && $TENURE locks").exits(0);
    assert!(read.out.contains("alice"), "{read:?}");
    run("$TENURE run k -- true").fails(1, &["tenure/tenure.db", "tenure setup"]);
    // As a sandbox does that allows the folder.
    let writable = "mount --bind .git/tenure .git/tenure";
    let read_only = read_only.replace("--bind", "--rbind");
    let script = format!("{writable} && {read_only}; $TENURE run k -- true");
    project.with_mounts(&script).unwrap().exits(0);
}
