//! Coding agents: `tenure setup`, and `tenure hook` as the agents call it.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod project;

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use project::Project;
use serde_json::Value;

fn git(project: &Project, folder: &Path, words: &str) -> String {
    let mut git: Command = project.program("git");
    git.current_dir(folder)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .args(["-c", "user.name=t", "-c", "user.email=t@t"])
        .args(words.split_whitespace());
    project.prepare(git).end().exits(0).out
}

/// A project in a git repository with one commit.
fn repository() -> Project {
    let project = Project::uninitialised();
    git(&project, &project.root(), "init -q -b main");
    git(&project, &project.root(), "commit -q --allow-empty -m c");
    project.tenure("init -q").exits(0);
    project
}

const AGENTS: [(&str, &str); 4] = [
    ("claude-code", ".claude/settings.json"),
    ("cursor", ".cursor/hooks.json"),
    ("codex", ".codex/hooks.json"),
    ("gemini", ".gemini/settings.json"),
];

#[test]
fn setup_adds_the_hooks_once_and_takes_exactly_them_away() {
    let project = repository();
    fs::create_dir_all(project.path("sub/folder")).unwrap();
    for (agent, file) in AGENTS {
        let path = project.path(file);
        let made = project
            .call(&format!("setup {agent} --yes"))
            .within(project.path("sub/folder"))
            .end()
            .exits(0);
        assert!(
            made.out.contains(&format!("tenure hook {agent}")),
            "{made:?}"
        );
        let text = fs::read_to_string(&path).unwrap();
        let value: Value = serde_json::from_str(&text).unwrap();
        assert!(value["hooks"].is_object(), "{text}");
        let again = project.tenure(&format!("setup {agent}")).exits(0);
        assert!(again.out.contains("nothing was changed"), "{again:?}");
        assert_eq!(fs::read_to_string(&path).unwrap(), text);
        project
            .tenure(&format!("setup {agent} --remove --yes"))
            .exits(0);
        assert!(!path.exists() && !path.parent().unwrap().exists(), "{file}");
        let nothing = project.tenure(&format!("setup {agent} --remove")).exits(0);
        assert!(nothing.out.contains("nothing to remove"), "{nothing:?}");

        // A file with comments, which other settings are in already, behind a link.
        let before = "{\n\t// mine\n\t\"version\": 1,\n\t\"hooks\": {\n\t\t\"Stop\": [ ] // empty\n\t}, /* z */ \"a\": [1]\n}";
        fs::create_dir(path.parent().unwrap()).unwrap();
        let real = project.path("real.json");
        fs::write(&real, before).unwrap();
        fs::set_permissions(&real, fs::Permissions::from_mode(0o640)).unwrap();
        symlink(&real, &path).unwrap();
        project.tenure(&format!("setup {agent} --yes")).exits(0);
        let after = fs::read_to_string(&real).unwrap();
        assert!(after.contains(&format!("tenure hook {agent}")), "{after}");
        assert!(
            after.contains("// mine\n\t\"version\": 1,") && after.contains("/* z */ \"a\": [1]"),
            "{after}"
        );
        project
            .tenure(&format!("setup {agent} --remove --yes"))
            .exits(0);
        assert_eq!(fs::read_to_string(&real).unwrap(), before, "{agent}");
        assert!(path.symlink_metadata().unwrap().is_symlink());
        assert_eq!(real.metadata().unwrap().permissions().mode() & 0o777, 0o640);
        fs::remove_dir_all(path.parent().unwrap()).unwrap();
    }
    let left: Vec<_> = fs::read_dir(project.root())
        .unwrap()
        .map(|entry| entry.unwrap().file_name())
        .collect();
    assert!(
        left.iter()
            .all(|name| !name.to_string_lossy().contains("tmp")),
        "{left:?}"
    );
}

#[test]
fn setup_shows_the_change_and_writes_nothing_without_consent() {
    let project = repository();
    let said = project
        .tenure("setup claude-code")
        .fails(5, &["+++ .claude/settings.json", "setup claude-code --yes"]);
    assert!(said.err.contains("+  \"hooks\": {"), "{said:?}");
    assert!(!project.path(".claude").exists());
    let said = project.tenure("setup claude-code --json").exits(5).json();
    assert_eq!(said["error"]["code"], "PERMISSION_DENIED");
    assert_eq!(said["error"]["details"]["created"], true);
    assert!(!project.path(".claude").exists());
    let said = project
        .tenure("setup claude-code --json --yes")
        .exits(0)
        .json();
    assert_eq!(said["data"]["changed"], true);
    assert!(
        said["data"]["file"]
            .as_str()
            .unwrap()
            .ends_with("/.claude/settings.json")
    );
    // The user's own, wherever the agent has it.
    project.tenure("setup codex --user --yes").exits(0);
    assert!(project.home().join(".codex/hooks.json").is_file());
    let other = project.path("elsewhere");
    project
        .call("setup codex --user --yes")
        .env("CODEX_HOME", &other)
        .end()
        .exits(0);
    assert!(other.join("hooks.json").is_file());
    project
        .tenure("setup agents-md --user --yes")
        .fails(2, &["leave --user out"]);
}

#[test]
fn setup_leaves_a_file_alone_that_it_does_not_understand() {
    let project = repository();
    fs::create_dir(project.path(".gemini")).unwrap();
    let file = project.path(".gemini/settings.json");
    for (bytes, why) in [
        (&b"{\n  \"hooks\": [\n"[..], "line 3"),
        (b"{\"hooks\": []}", "\"hooks\" is a list, not an object"),
        (b"{\"a\": \"\xff\"}", "not UTF-8"),
        (b"", "the end of the file"),
    ] {
        fs::write(&file, bytes).unwrap();
        for words in ["setup gemini --yes", "setup gemini --remove --yes"] {
            project
                .tenure(words)
                .fails(2, &[".gemini/settings.json", why, "left alone"]);
            assert_eq!(fs::read(&file).unwrap(), bytes);
        }
    }
    fs::remove_file(&file).unwrap();
    symlink("nowhere", &file).unwrap();
    project
        .tenure("setup gemini --yes")
        .fails(1, &["leads nowhere"]);
    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    project
        .tenure("setup gemini --yes")
        .fails(2, &["no regular file"]);
    let outside = Project::uninitialised();
    outside
        .tenure("setup gemini --yes")
        .fails(3, &["no git repository", "--user"]);
}

#[test]
fn setup_tells_agents_in_the_file_that_they_read() {
    let project = repository();
    project.write("CLAUDE.md", "# Rules\n\nBe kind.");
    project.tenure("setup agents-md --yes").exits(0);
    let text = project.read("CLAUDE.md");
    assert!(
        text.starts_with("# Rules\n\nBe kind.\n\n<!-- tenure:begin"),
        "{text}"
    );
    assert!(text.contains("tenure check PATH"), "{text}");
    project.tenure("setup agents-md").exits(0);
    project.tenure("setup agents-md --remove --yes").exits(0);
    assert_eq!(project.read("CLAUDE.md"), "# Rules\n\nBe kind.");
    fs::remove_file(project.path("CLAUDE.md")).unwrap();
    project.tenure("setup agents-md --yes").exits(0);
    assert!(project.read("AGENTS.md").starts_with("<!-- tenure:begin"));
    // AGENTS.md is the one that most agents read.
    project.write("CLAUDE.md", "@AGENTS.md\n");
    project.tenure("setup agents-md --remove --yes").exits(0);
    assert!(!project.path("AGENTS.md").exists());
    assert_eq!(project.read("CLAUDE.md"), "@AGENTS.md\n");
}
