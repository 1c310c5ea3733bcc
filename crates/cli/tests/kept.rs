//! `tenure files`: uncommitted bytes that were kept, listed and restored.

use crate::project;

use std::fs;
use std::os::unix::fs::symlink;
use std::path::PathBuf;

use project::Project;
use tenure::store::{Clock as _, HolderId};
use tenure_files::kept::{Kept, LARGEST};
use tenure_host::HostClock;

/// A project in a repository with the committed files `a` and `src/b`.
fn repository() -> Project {
    let project = Project::uninitialised();
    fs::create_dir(project.path("src")).unwrap();
    project.write("a", "committed\n");
    project.write("src/b", "committed\n");
    let script =
        "git init -q && git add -A && git -c user.name=a -c user.email=a@b commit -qm first";
    project.shell(script).end().exits(0);
    project.tenure("init --quiet").exits(0);
    project
}

/// Keeps files as the hook of an agent does.
#[track_caller]
fn keep(project: &Project, owner: &str, names: &[&str]) {
    let owner = HolderId::parse(owner).unwrap();
    let files = names
        .iter()
        .map(|name| (PathBuf::from(name), owner.clone()));
    let files: Vec<_> = files.collect();
    let kept = Kept::beside(&project.state());
    let now = HostClock::new().now().wall;
    let _ = kept.keep(&project.root(), &files, now).unwrap();
}

#[test]
fn what_a_stranger_wiped_is_listed_and_comes_back() {
    let project = repository();
    let nothing = project.tenure("files").exits(0);
    assert_eq!(nothing.out, "Nothing was kept.\n");
    project.write("a", "mine\n");
    project.write("src/b", "mine, too\n");
    keep(&project, "agent-1", &["a", "src/b"]);
    project.shell("git reset -q --hard").end().exits(0);
    let list = project.tenure("files list").exits(0).out;
    let lines: Vec<&str> = list.lines().collect();
    assert_eq!(lines.len(), 3, "{list}");
    assert!(lines[0].starts_with("WHEN"), "{list}");
    assert!(lines[1].contains("agent-1"), "{list}");
    assert!(lines[1].ends_with("src/b"), "{list}");
    let said = project.tenure("files restore a --as me").exits(0);
    assert_eq!(project.read("a"), "mine\n");
    assert!(
        said.out.contains("Wrote a as agent-1 had it at"),
        "{said:?}"
    );
    assert!(
        said.out.contains("What was there is kept as version "),
        "{said:?}"
    );
    let list = project.tenure("files list a").exits(0).out;
    assert_eq!(list.lines().count(), 3, "{list}");
    assert!(!list.contains("src/b"), "{list}");
    // From a folder, and a file that is gone.
    fs::remove_file(project.path("src/b")).unwrap();
    let said = project.call("files restore b").within(project.path("src"));
    let said = said.end().exits(0);
    assert!(!said.out.contains("is kept"), "{said:?}");
    assert_eq!(project.read("src/b"), "mine, too\n");
    let again = project.tenure("files restore src/b").exits(0);
    assert!(again.out.contains("has these bytes already"), "{again:?}");
}

#[test]
fn the_json_has_whole_ids_and_a_version_is_chosen_by_the_beginning_of_one() {
    let project = repository();
    for text in ["one\n", "two\n"] {
        project.write("a", text);
        keep(&project, "agent-1", &["a"]);
    }
    let json = project.tenure("files list --json").exits(0).json();
    let files = json["data"]["files"].as_array().unwrap().clone();
    assert_eq!(files.len(), 2);
    assert_eq!(files[0]["path"], "a");
    assert_eq!(files[0]["owner"], "agent-1");
    assert_eq!(files[0]["size"], 4);
    assert_eq!(files[0]["link"], false);
    let id = files[1]["id"].as_str().unwrap().to_owned();
    assert_eq!(id.len(), 40);
    let said = project.tenure(&format!("files restore --from {} --json", &id[..10]));
    let said = said.exits(0).json();
    assert_eq!(said["data"]["written"], true);
    assert_eq!(said["data"]["version"]["id"], files[1]["id"]);
    assert_eq!(said["data"]["before"]["id"], files[0]["id"]);
    assert_eq!(project.read("a"), "one\n");
    let to = project.home().join("copy");
    let id = files[0]["id"].as_str().unwrap();
    let call = || {
        project
            .call(&format!("files restore a --from {id} --to"))
            .arg(&to)
    };
    let said = call().end().exits(0);
    assert!(said.out.contains(&*to.to_string_lossy()), "{said:?}");
    assert_eq!(fs::read(&to).unwrap(), b"two\n");
    let refused = call().end().exits(5);
    assert!(refused.err.contains("it exists"), "{refused:?}");
    assert_eq!(project.read("a"), "one\n");
}

#[test]
fn what_names_no_file_of_the_work_tree_or_no_version_is_refused() {
    let project = repository();
    project.write("a", "mine\n");
    keep(&project, "agent-1", &["a"]);
    for path in ["../a", "src/../a", "/etc/passwd", ".git/config"] {
        let said = project.tenure(&format!("files restore {path}")).exits(2);
        assert!(
            said.err.contains("is not a file of the work tree"),
            "{said:?}"
        );
        let json = project.tenure(&format!("files restore {path} --json"));
        assert_eq!(json.exits(2).json()["error"]["code"], "BAD_NAME");
    }
    project.tenure("files list ../a").exits(2);
    let missing = project.tenure("files restore src/b").exits(4);
    assert!(missing.err.contains("see tenure files list"), "{missing:?}");
    let missing = project
        .tenure("files restore --from ffffffff --json")
        .exits(4);
    assert_eq!(missing.json()["error"]["code"], "NOT_FOUND");
    project.tenure("files restore").exits(2);
    project.tenure("files restore a --from").exits(2);
    // A link on the way leads nobody out of the work tree.
    fs::remove_dir_all(project.path("src")).unwrap();
    keep(&project, "agent-1", &["a"]);
    symlink(project.home(), project.path("link")).unwrap();
    fs::write(project.home().join("a"), "hers").unwrap();
    project.tenure("files restore link/a").exits(4);
    assert_eq!(fs::read(project.home().join("a")).unwrap(), b"hers");
}

#[test]
fn a_file_that_was_too_large_is_listed_as_not_kept() {
    let project = repository();
    let file = fs::File::create(project.path("large")).unwrap();
    file.set_len(LARGEST + 1).unwrap();
    keep(&project, "agent-1", &["large"]);
    let said = project.tenure("files").exits(0);
    assert!(said.out.contains("not kept: larger than 20 MB"), "{said:?}");
    let json = project.tenure("files list --json").exits(0).json();
    assert_eq!(json["data"]["files"][0]["id"], serde_json::Value::Null);
    project.tenure("files restore large").exits(4);
}

#[test]
fn names_and_owners_from_others_are_escaped() {
    let project = repository();
    let name = "bad\u{1b}[31m\nname";
    project.write(name, "x");
    keep(&project, "agent-1", &[name]);
    let said = project.tenure("files list").exits(0);
    assert!(!said.out.contains('\u{1b}'), "{said:?}");
    assert_eq!(said.out.lines().count(), 2, "{said:?}");
    fs::remove_file(project.path(name)).unwrap();
    let json = project.tenure("files list --json").exits(0).json();
    let id = json["data"]["files"][0]["id"].as_str().unwrap();
    let said = project
        .tenure(&format!("files restore --from {id}"))
        .exits(0);
    assert!(!said.out.contains('\u{1b}'), "{said:?}");
    assert_eq!(fs::read(project.path(name)).unwrap(), b"x");
}
