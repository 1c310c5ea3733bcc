//! `tenure init`, and how a project is found.

use crate::project;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::process::Command;

use project::daemon::Detached;
use project::{Project, Running};

fn git(project: &Project, words: &str) -> String {
    let mut git: Command = project.program("git");
    git.env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .args(words.split_whitespace());
    project.prepare(git).end().exits(0).out
}

/// A git repository in `work` with one commit.
fn repository() -> Project {
    let project = Project::uninitialised();
    git(&project, "init -q -b main");
    commit(&project);
    project
}

fn commit(project: &Project) {
    git(
        project,
        "-c user.name=t -c user.email=t@t commit -q --allow-empty -m c",
    );
}

/// Asserts that a key that is held in one folder is busy in the other.
#[track_caller]
fn exclude(project: &Project, here: &Path, there: &Path) {
    let holder = project.call("run k").within(here).input();
    let mut holder = holder.sh("echo held; exec cat").start();
    project::until("the command runs", || !holder.out().is_empty());
    let second = project.call("run k --no-wait").within(there);
    second.sh("true").end().fails(6, &["k is locked by"]);
    holder.let_go();
    holder.ended().exits(0);
}

#[test]
fn all_worktrees_of_a_repository_are_one_project() {
    let project = repository();
    project.tenure("init -q").exits(0);
    // The one file that is tracked: it is in every worktree, and makes none of them a project.
    project.write(".tenure/config.yaml", "locking:\n  waitTimeout: 1m\n");
    git(&project, "add .tenure/config.yaml");
    commit(&project);
    git(&project, "worktree add -q ../linked");
    git(&project, "worktree add -q inside");
    let (main, linked) = (project.root(), project.root().with_file_name("linked"));
    std::fs::create_dir(linked.join("sub")).unwrap();
    assert!(linked.join(".tenure/config.yaml").is_file());

    exclude(&project, &main, &linked);
    exclude(&project, &linked.join("sub"), &main.join("inside"));
    exclude(&project, &main.join("inside"), &main);
    // Tasks, the settings and the daemon are shared, too.
    let add = project.call("tasks add Here").within(&linked);
    add.end().exits(0);
    assert!(project.tenure("tasks list").exits(0).out.contains("Here"));
    project.write(".tenure/config.yaml", "locking:\n  waitTimeout: 2m\n");
    let shown = project.call("config show").within(&linked).end().exits(0);
    assert!(shown.out.contains("2m"), "{shown:?}");
    let started = project.call("daemon start --json").within(&linked);
    started.end().exits(0);
    project.tenure("daemon status").exits(0);
    let stop = project.call("daemon stop").within(main.join("inside"));
    stop.end().exits(0);
    project.call("sync").within(&linked).end().exits(0);

    assert!(!linked.join(".tenure/tenure.db").exists());
    assert!(!main.join("inside/.tenure/tenure.db").exists());
    // Moved by hand: its `.git` still leads to the repository.
    let moved = linked.with_file_name("moved");
    std::fs::rename(&linked, &moved).unwrap();
    exclude(&project, &moved, &main);
    // GIT_DIR of a hook does not lead elsewhere.
    let call = project.call("fence k --token 1").within(&moved);
    call.env("GIT_DIR", "/nowhere").end().exits(7);
}

#[test]
fn the_worktrees_of_a_bare_repository_share_a_project_in_it() {
    let project = repository();
    git(&project, "clone -q --bare . ../around/.bare");
    let around = project.root().with_file_name("around");
    std::fs::write(around.join(".git"), "gitdir: ./.bare\n").unwrap();
    git(&project, "-C ../around worktree add -q one");
    git(&project, "-C ../around worktree add -q two");
    let (one, two) = (around.join("one"), around.join("two"));

    let init = project.call("init").within(&one).end().exits(0);
    assert!(init.out.contains(".bare/.tenure"), "{init:?}");
    assert!(init.out.contains("All worktrees"), "{init:?}");
    exclude(&project, &one, &two);
    exclude(&project, &two, &around);
    project.call("tasks add Here").within(&one).end().exits(0);
    project.call("sync").within(&two).end().exits(0);
    assert!(!one.join(".tenure").exists() && !around.join(".tenure").exists());
    project.call("init").within(&two).end().exits(0);
}

/// Starts a daemon in a folder, waits for a cycle, and asserts that it keeps the tasks to itself.
#[track_caller]
fn keeps_tasks_to_itself(project: &Project, from: &Path, repository: &Path) {
    let started = project.call("daemon start --json").within(from).end();
    let said = started.exits(0).json();
    let daemon = Detached::of(u32::try_from(said["data"]["pid"].as_u64().unwrap()).unwrap());
    assert_eq!(said["data"]["remotes"], serde_json::Value::Null, "{said}");
    project::until("a cycle is done", || {
        let status = project.call("daemon status --json").within(from).end();
        !status.json()["data"]["lastCycle"].is_null()
    });
    let refs = format!("-C {} for-each-ref refs/tenure", repository.display());
    assert_eq!(git(project, &refs), "");
    project.call("daemon stop").within(from).end().exits(0);
    drop(daemon);
}

#[test]
fn the_daemon_shares_nothing_where_the_settings_of_a_worktree_forbid_it() {
    let off = "sync:\n  enabled: false\n";
    let forbid = |worktree: &Path| {
        std::fs::create_dir_all(worktree.join(".tenure")).unwrap();
        std::fs::write(worktree.join(".tenure/config.yaml"), off).unwrap();
    };
    // The branch of a linked worktree has the file, and that of the main one does not.
    let project = repository();
    project.tenure("init").exits(0);
    project.tenure("tasks add One").exits(0);
    git(&project, "worktree add -q ../linked");
    let linked = project.root().with_file_name("linked");
    forbid(&linked);
    keeps_tasks_to_itself(&project, &linked, &project.root());
    // The tasks of all worktrees are the same ones.
    keeps_tasks_to_itself(&project, &project.root(), &project.root());

    // A bare repository has no worktree of its own.
    git(&project, "clone -q --bare . ../around/.bare");
    let around = project.root().with_file_name("around");
    std::fs::write(around.join(".git"), "gitdir: ./.bare\n").unwrap();
    git(&project, "-C ../around worktree add -q one");
    git(&project, "-C ../around worktree add -q two");
    let (one, two) = (around.join("one"), around.join("two"));
    project.call("init").within(&one).end().exits(0);
    project.call("tasks add One").within(&one).end().exits(0);
    forbid(&one);
    keeps_tasks_to_itself(&project, &one, &around);
    keeps_tasks_to_itself(&project, &two, &around);
    keeps_tasks_to_itself(&project, &around, &around);
}

#[test]
fn a_submodule_is_a_repository_of_its_own_and_shares_with_its_own_worktrees() {
    let project = repository();
    git(&project, "clone -q . ../library");
    git(
        &project,
        "-c protocol.file.allow=always submodule --quiet add ../library sub",
    );
    project.tenure("init -q").exits(0);
    let sub = project.path("sub");
    exclude(&project, &sub, &project.root());
    project
        .call("init")
        .within(&sub)
        .end()
        .fails(2, &["--here"]);
    project.call("init --here").within(&sub).end().exits(0);
    assert!(project.path(".git/modules/sub/tenure/tenure.db").is_file());
    git(&project, "-C sub worktree add -q ../../linked");
    exclude(&project, &sub, &project.root().with_file_name("linked"));
    let free = project.call("run k --no-wait").within(&sub).input();
    let mut held = free.sh("echo held; exec cat").start();
    project::until("the command runs", || !held.out().is_empty());
    project.call("run k --no-wait").sh("true").end().exits(0);
    held.let_go();
}

#[test]
fn a_store_that_an_earlier_version_made_in_a_worktree_is_named_and_not_used() {
    let project = repository();
    git(&project, "worktree add -q ../linked");
    let linked = project.root().with_file_name("linked");
    let old = linked.join(".tenure/tenure.db");
    std::fs::create_dir(linked.join(".tenure")).unwrap();
    let url = format!("sqlite:{}", old.display());
    let add = project.call("tasks add Old --store").arg(&url);
    add.end().exits(0);

    // Its folder says that there is a project, so the main worktree gets one.
    let list = project.call("tasks list").within(&linked).end().exits(0);
    assert!(!list.out.contains("Old"), "{list:?}");
    assert!(list.err.contains("is not used any more"), "{list:?}");
    let line = list.err.lines().find(|line| line.contains("| tenure"));
    let (_, command) = line.unwrap().split_once("over: ").unwrap();
    let command = command.replace("tenure ", "$TENURE ");
    project.shell(&command).end().exits(0);
    assert!(project.tenure("tasks list").exits(0).out.contains("Old"));
    std::fs::remove_dir_all(linked.join(".tenure")).unwrap();
    let quiet = project.call("tasks list").within(&linked).end().exits(0);
    assert_eq!(quiet.err, "");
}

#[test]
fn a_worktree_whose_repository_is_gone_gets_no_store_of_its_own() {
    let project = repository();
    project.tenure("init -q").exits(0);
    git(&project, "worktree add -q ../linked");
    let linked = project.root().with_file_name("linked");
    std::fs::create_dir(linked.join(".tenure")).unwrap();
    let away = project.root().with_file_name("away");
    std::fs::rename(project.root(), &away).unwrap();
    std::fs::create_dir(project.root()).unwrap();
    for words in ["acquire k", "init", "tasks list", "config show"] {
        let said = project.call(words).within(&linked).end();
        said.fails(3, &["linked git worktree", "git worktree repair"]);
    }
    assert!(!linked.join(".tenure/tenure.db").exists());
    // Another store can be named, for every command.
    let named = || {
        let call = project.call("acquire k --as me --no-wait").within(&linked);
        call.env("TENURE_STORE", "sqlite:../named.db")
    };
    let token = named().end().exits(0).out;
    assert_eq!(named().end().exits(0).out, token);
    let other = project.call("locks list --store sqlite:../named.db");
    assert!(other.end().exits(0).out.contains("me"));
    std::fs::remove_dir(project.root()).unwrap();
    std::fs::rename(&away, project.root()).unwrap();
    exclude(&project, &linked, &project.root());
}

#[test]
fn a_worktree_of_a_repository_that_does_not_record_its_main_one_names_the_setting() {
    let project = Project::uninitialised();
    git(&project, "init -q -b main --separate-git-dir ../apart.git");
    commit(&project);
    git(&project, "worktree add -q ../linked");
    let linked = project.root().with_file_name("linked");
    project.tenure("init -q").exits(0);
    for words in ["acquire k", "init", "tasks list", "daemon status"] {
        let said = project.call(words).within(&linked).end();
        let setting = "record it with git config core.worktree PATH in the main worktree";
        said.fails(3, &["--separate-git-dir", setting, "--store"]);
    }
    assert!(!linked.join(".tenure").exists());
    let root = project.root();
    let root = root.to_str().unwrap();
    git(&project, &format!("config core.worktree {root}"));
    exclude(&project, &linked, &project.root());
}

#[test]
fn tenure_store_chooses_the_store_of_every_command() {
    let project = Project::new();
    let call = |words: &str| project.call(words).env("TENURE_STORE", "sqlite:other.db");
    call("tasks add There").end().exits(0);
    assert_eq!(project.tenure("tasks list").exits(0).out, "No tasks.\n");
    assert!(call("tasks list").end().exits(0).out.contains("There"));
    // The option wins.
    let own = "tasks list --store sqlite:.tenure/tenure.db";
    assert_eq!(call(own).end().exits(0).out, "No tasks.\n");
    for words in ["daemon start", "sync"] {
        call(words).end().fails(2, &["TENURE_STORE"]);
    }
    let init = call("init").end().exits(0);
    assert!(init.out.contains("TENURE_STORE is set"), "{init:?}");
}

#[test]
fn init_inside_a_project_asks_first_and_refuses_a_store() {
    let project = Project::new();
    let sub = project.path("sub");
    std::fs::create_dir(&sub).unwrap();
    let refused = project.call("init").within(&sub).end();
    refused.fails(2, &["/work/sub is in the project", "--here"]);
    assert!(!sub.join(".tenure").exists());
    project.call("init --here").within(&sub).end().exits(0);
    assert!(sub.join(".tenure/tenure.db").is_file());
    project.call("init").within(&sub).end().exits(0);

    let other = Project::uninitialised();
    other
        .tenure("init --store sqlite:x.db")
        .fails(2, &["leave --store out"]);
    assert_eq!(std::fs::read_dir(other.root()).unwrap().count(), 0);
}

#[test]
fn a_second_init_changes_nothing() {
    let project = Project::uninitialised();
    let first = project.tenure("init").exits(0);
    assert!(first.out.starts_with("Created "), "{first:?}");
    let token = project.acquire("build --as me");
    project.write(".tenure/.gitignore", "mine\n");
    project.write(".tenure/config.yaml", "locking:\n  waitTimeout: 1m\n");

    let again = project.tenure("init").exits(0);
    assert!(again.out.contains("nothing was changed"), "{again:?}");
    let json = project.tenure("init --json").exits(0).json();
    assert_eq!(json["data"]["created"], false);
    assert_eq!(project.read(".tenure/.gitignore"), "mine\n");
    project
        .tenure(&format!("fence build --token {token}"))
        .exits(0);
}

#[test]
fn git_sees_only_what_people_write() {
    let project = Project::new();
    git(&project, "init -q");
    assert_eq!(git(&project, "status --porcelain -uall"), "");
    project.write(".tenure/config.yaml", "locking:\n  waitTimeout: 1m\n");
    project.write(".tenure/something-else", "");
    std::fs::create_dir(project.path(".tenure/folder")).unwrap();
    project.write(".tenure/folder/config.yaml", "");
    // While a lock is held, every file that tenure writes exists.
    let _held: Running = project.hold("run build");
    assert!(project.path(".git/tenure/tenure.db-live").is_dir());

    git(&project, "add --all");
    assert_eq!(git(&project, "ls-files"), ".tenure/config.yaml\n");
    let ignored = git(&project, "status --porcelain --ignored");
    for file in ["tenure.db", "something-else", "folder/"] {
        assert!(
            ignored.contains(&format!("!! .tenure/{file}\n")),
            "{ignored}"
        );
    }
    assert!(!ignored.contains("??"), "{ignored}");
}

#[test]
fn eight_concurrent_inits_make_one_project() {
    let project = Project::uninitialised();
    let calls: Vec<Running> = (0..8)
        .map(|_| {
            project.shell("$TENURE init -q && $TENURE run build -- sh -c 'echo $TENURE_TOKEN'")
        })
        .map(project::Call::start)
        .collect();
    let mut tokens: Vec<u64> = calls
        .into_iter()
        .map(|call| call.ended().exits(0).out.trim().parse().unwrap())
        .collect();
    tokens.sort_unstable();
    assert_eq!(tokens, [1, 2, 3, 4, 5, 6, 7, 8]);
}

#[test]
fn without_a_project_every_command_says_how_to_create_one() {
    let project = Project::uninitialised();
    for words in [
        "acquire build",
        "renew build",
        "release build",
        "fence build --token 1",
        "locks list",
        "locks show build",
        "force build",
        "locks cleanup",
        "locks history",
    ] {
        let said = project
            .tenure(words)
            .fails(3, &["tenure init", "no tenure project"]);
        assert_eq!(said.out, "", "{words}");
        let json = project.tenure(&format!("{words} --json")).exits(3);
        assert_eq!(json.error(), "NOT_INITIALISED", "{words}");
    }
    project.call("run build").sh("touch ran").end().exits(3);
    assert!(!project.path("ran").exists());
    assert!(!project.path(".tenure").exists(), "nothing was created");
}

#[test]
fn a_project_is_found_from_deep_inside_it_and_with_a_flag_from_outside() {
    let project = Project::new();
    std::fs::create_dir_all(project.path("a/b/c")).unwrap();
    let token = project.acquire("build --as me");
    let fence = format!("fence build --token {token}");
    project
        .call(&fence)
        .within(project.path("a/b/c"))
        .end()
        .exits(0);

    let outside = || project.call(&fence).within(project.home());
    outside().end().exits(3);
    outside().arg("-C").arg(project.root()).end().exits(0);
    outside().arg("-C").arg("../work/a/b").end().exits(0);
    outside()
        .arg("-C")
        .arg("nowhere")
        .end()
        .fails(2, &["nowhere", "no such folder"]);
}

#[test]
fn a_file_in_the_way_is_named() {
    let project = Project::uninitialised();
    project.write(".tenure", "");
    project.tenure("init").fails(1, &["/work/.tenure"]);
    let said = project.tenure("init --json").exits(1);
    assert_eq!(said.error(), "IO");
}

#[test]
fn a_folder_whose_name_is_not_utf_8_can_be_a_project() {
    let project = Project::uninitialised();
    let odd = project.root().join(OsStr::from_bytes(b"caf\xe9"));
    std::fs::create_dir(&odd).unwrap();
    project.call("init").within(&odd).end().exits(0);
    project
        .call("run build")
        .within(&odd)
        .sh("true")
        .end()
        .exits(0);
    project.call("config path").within(&odd).end().exits(0);
    project.call("config show").within(&odd).end().exits(0);
    let json = project
        .call("init --json")
        .within(&odd)
        .end()
        .exits(0)
        .json();
    assert_eq!(json["success"], true);
}

#[test]
fn settings_in_the_home_folder_do_not_make_it_a_project() {
    let project = Project::uninitialised();
    let home = project.home();
    std::fs::create_dir_all(home.join(".tenure")).unwrap();
    std::fs::create_dir_all(home.join("code")).unwrap();
    std::fs::write(
        home.join(".tenure/config.yaml"),
        "locking:\n  waitTimeout: 1m\n",
    )
    .unwrap();
    // A home folder is often a symbolic link; the current folder is always resolved.
    let link = project.path("link-to-home");
    std::os::unix::fs::symlink(&home, &link).unwrap();
    for told in [&home, &link] {
        let call = project
            .call("run build")
            .within(home.join("code"))
            .env("HOME", told);
        call.sh("true").end().fails(3, &["tenure init"]);
        assert!(!home.join(".tenure/tenure.db").exists());
    }
}

#[test]
fn an_init_that_fails_leaves_no_folder_that_would_be_a_project() {
    let project = Project::uninitialised();
    let script = "{ (ulimit -f 0; exec $TENURE init); echo code $?; } 2>&1 | cat";
    let said = project.shell(script).end().exits(0).out;
    assert!(said.contains("code 1"), "{said}");
    assert!(!project.path(".tenure").exists(), "{said}");
    project.tenure("locks").exits(3);
    project.tenure("init").exits(0);
}
