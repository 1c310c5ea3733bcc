//! `tenure init`, and how a project is found.

mod project;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::process::Command;

use project::{Project, Running};

fn git(project: &Project, words: &str) -> String {
    let mut git: Command = project.program("git");
    git.env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .args(words.split_whitespace());
    project.prepare(git).end().exits(0).out
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
    assert!(project.path(".tenure/tenure.db-live").is_dir());

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
        "locks release build --force",
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
    assert!(!project.path(".tenure").exists(), "nothing was made");
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
