//! Coding agents: `tenure setup`, and `tenure hook` as the agents call it.

use crate::project;

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use project::{Project, TENURE, until};
use rustix::process::Signal;
use serde_json::{Value, json};
use tenure_testkit::scale::scaled;

pub(crate) fn git(project: &Project, folder: &Path, words: &str) -> String {
    let mut git: Command = project.program("git");
    git.current_dir(folder)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .args(["-c", "user.name=t", "-c", "user.email=t@t"])
        .args(words.split_whitespace());
    project.prepare(git).end().exits(0).out
}

/// A project in a git repository with one commit.
pub(crate) fn repository() -> Project {
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
        (&b"{\n  \"hooks\": [\n"[..], "line 2: Unterminated array"),
        (b"{\"hooks\": []}", "\"hooks\" is a list, not an object"),
        (b"{\"a\": \"\xff\"}", "not UTF-8"),
        (b"// c", "line 1: Unexpected end of the file"),
        (b"{\"a\": \"\x1b\"}", "Control character"),
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

/// What a hook answered.
#[derive(Debug)]
struct Answer {
    code: i32,
    out: String,
    err: String,
}

impl Answer {
    /// Asserts that the agent goes on.
    #[track_caller]
    fn allows(&self) -> &Self {
        assert_eq!(self.code, 0, "{self:?}");
        assert!(!self.out.contains("deny"), "{self:?}");
        self
    }

    /// Asserts that the edit is refused in the way of Claude Code, and returns the reason.
    #[track_caller]
    fn refuses(&self) -> String {
        assert_eq!(self.code, 0, "{self:?}");
        let out: Value = serde_json::from_str(&self.out).unwrap();
        let out = &out["hookSpecificOutput"];
        assert_eq!(out["hookEventName"], "PreToolUse", "{self:?}");
        assert_eq!(out["permissionDecision"], "deny", "{self:?}");
        out["permissionDecisionReason"].as_str().unwrap().to_owned()
    }
}

/// Calls a hook with this input.
fn call(project: &Project, words: &str, input: impl AsRef<[u8]>) -> Answer {
    call_with(project, words, input, |_| {})
}

fn call_with(
    project: &Project,
    words: &str,
    input: impl AsRef<[u8]>,
    change: impl FnOnce(&mut Command),
) -> Answer {
    let mut command = project.program(TENURE);
    command.arg("hook").args(words.split_whitespace());
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    change(&mut command);
    let mut child = command.spawn().unwrap();
    // A hook that has answered already reads no more.
    let _ = child.stdin.take().unwrap().write_all(input.as_ref());
    let output = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    let answer = Answer {
        code: output.status.code().unwrap(),
        out: text(output.stdout),
        err: text(output.stderr),
    };
    assert!(!answer.err.contains("panicked"), "{answer:?}");
    answer
}

/// An event of Claude Code in a folder.
fn event(session: &str, folder: &Path, name: &str, tool: &str, file: &str) -> String {
    json!({
        "session_id": session, "transcript_path": "/t.jsonl", "cwd": folder, "permission_mode": "default",
        "hook_event_name": name, "tool_name": tool, "tool_input": { "file_path": file, "content": "x" },
    })
    .to_string()
}

/// The answer to Claude Code before an edit.
fn edit(project: &Project, session: &str, folder: &Path, file: &str) -> Answer {
    call(
        project,
        "claude-code",
        event(session, folder, "PreToolUse", "Edit", file),
    )
}

fn tell(project: &Project, session: &str, name: &str) {
    let answer = call(
        project,
        "claude-code",
        event(session, &project.root(), name, "Bash", ""),
    );
    assert_eq!((answer.code, answer.out.as_str()), (0, ""), "{answer:?}");
}

/// Who has reserved what.
pub(crate) fn reserved(project: &Project) -> Vec<(String, String)> {
    let said = project.tenure("locks list --json").exits(0).json();
    let locks = said["data"]["locks"].as_array().unwrap().clone();
    let leases = locks.iter().filter(|lock| lock["key"] == "paths");
    let leases = leases.flat_map(|lock| lock["leases"].as_array().unwrap());
    let mut all: Vec<(String, String)> = leases
        .map(|lease| {
            let text = |field: &str| lease[field].as_str().unwrap().to_owned();
            (text("holder"), text("mode"))
        })
        .collect();
    all.sort();
    all
}

#[test]
fn an_edit_reserves_its_file_or_is_refused_with_the_reason() {
    let project = repository();
    let root = project.root();
    edit(&project, "one", &root, "src/a.rs").allows();
    assert_eq!(
        reserved(&project),
        [("claude-code-one".to_owned(), "paths:src/a.rs".to_owned())]
    );
    edit(&project, "one", &root, "src/a.rs").allows();
    edit(&project, "two", &root, "src/b.rs").allows();
    let reason = edit(&project, "two", &root, "src/a.rs").refuses();
    for part in [
        "src/a.rs is reserved by claude-code-one",
        " since ",
        "until ",
        "edited in Claude Code",
        "work on something else",
        "tenure reserve src/a.rs --as claude-code-two --for 10m --wait 10m\n",
    ] {
        assert!(reason.contains(part), "{part}: {reason}");
    }
    // Each agent is told in its own words.
    let codex = json!({ "session_id": "c", "cwd": root, "hook_event_name": "PreToolUse", "tool_name": "apply_patch",
        "tool_input": { "command": "*** Begin Patch\n*** Add File: new.rs\n+x\n*** Update File: src/a.rs\n@@\n*** End Patch" } });
    let answer = call(&project, "codex", codex.to_string()).refuses();
    assert!(answer.contains("claude-code-one"), "{answer}");
    let gemini = json!({ "session_id": "g", "cwd": root, "hook_event_name": "BeforeTool", "tool_name": "replace",
        "tool_input": { "file_path": "src/a.rs" } });
    let answer = call(&project, "gemini", gemini.to_string());
    let out: Value = serde_json::from_str(&answer.out).unwrap();
    assert_eq!((answer.code, &out["decision"]), (0, &json!("deny")));
    assert!(
        out["reason"].as_str().unwrap().contains("claude-code-one"),
        "{answer:?}"
    );
    let cursor = |file: &str| {
        json!({ "conversation_id": "k", "workspace_roots": [root], "hook_event_name": "preToolUse", "tool_name": "Write",
            "tool_input": { "path": file } })
        .to_string()
    };
    let answer = call(&project, "cursor", cursor("src/a.rs"));
    let out: Value = serde_json::from_str(&answer.out).unwrap();
    assert_eq!((answer.code, &out["permission"]), (2, &json!("deny")));
    assert!(
        out["agent_message"]
            .as_str()
            .unwrap()
            .contains("claude-code-one"),
        "{answer:?}"
    );
    let answer = call(&project, "cursor", cursor("src/c.rs"));
    assert_eq!(
        (answer.code, answer.out.as_str()),
        (0, "{\"permission\":\"allow\"}\n")
    );
    // A refused patch leaves nothing reserved.
    let holders: Vec<String> = reserved(&project)
        .into_iter()
        .map(|(holder, _)| holder)
        .collect();
    assert_eq!(holders, ["claude-code-one", "claude-code-two", "cursor-k"]);
    tell(&project, "one", "SessionEnd");
    edit(&project, "two", &root, "src/a.rs").allows();
    project.tenure("locks verify").exits(0);
}

#[test]
fn every_spelling_of_a_file_in_every_worktree_is_the_same_file() {
    let project = repository();
    let root = project.root();
    fs::create_dir_all(root.join("src/deep")).unwrap();
    fs::write(root.join("src/a.rs"), "").unwrap();
    git(&project, &root, "add src");
    git(&project, &root, "commit -q -m a");
    git(&project, &root, "worktree add -q ../linked");
    let linked = root.with_file_name("linked");
    symlink("src", root.join("link")).unwrap();
    edit(&project, "one", &root, "src/a.rs").allows();
    let absolute = |path: PathBuf| path.to_str().unwrap().to_owned();
    for (folder, file) in [
        (&root, "./src/deep/../a.rs".to_owned()),
        (&root, "link/a.rs".to_owned()),
        (&root, absolute(root.join("src/a.rs"))),
        (&root, absolute(linked.join("src/a.rs"))),
        (&linked, "src/a.rs".to_owned()),
        (&linked, absolute(linked.join("src/a.rs"))),
        (&root.join("src/deep"), "../a.rs".to_owned()),
        (&linked.join("src"), "a.rs".to_owned()),
    ] {
        let reason = edit(&project, "two", folder, &file).refuses();
        assert!(reason.contains("claude-code-one"), "{file}: {reason}");
        // The command is one that the agent can run where it is.
        let command = reason
            .lines()
            .find_map(|line| line.split_once("tenure reserve "));
        let words = command.unwrap().1.replace("--wait 10m", "--no-wait");
        let said = project
            .call(&format!("reserve {words}"))
            .within(folder)
            .end();
        said.fails(6, &["claude-code-one"]);
    }
    // An agent that works elsewhere is held to the project of the file.
    let above = root.parent().unwrap();
    let name = root.file_name().unwrap().to_str().unwrap();
    let linked_file = absolute(linked.join("src/a.rs"));
    for file in [format!("{name}/src/a.rs"), linked_file] {
        let reason = edit(&project, "two", above, &file).refuses();
        assert!(reason.contains("claude-code-one"), "{file}: {reason}");
    }
    for file in [
        "/tmp/elsewhere.txt",
        "../outside.txt",
        ".git/info/exclude",
        "src/a.rs.bak",
        "a.rs",
        "src/[a].rs",
    ] {
        edit(&project, "two", &root, file).allows();
    }
    let two: Vec<String> = reserved(&project)
        .into_iter()
        .filter_map(|(holder, mode)| (holder == "claude-code-two").then_some(mode))
        .collect();
    assert_eq!(
        two,
        ["paths:a.rs", "paths:src/\\[a\\].rs", "paths:src/a.rs.bak"]
    );
}

#[test]
fn a_hook_that_fails_does_not_stop_an_agent_unless_the_guard_is_strict() {
    let project = repository();
    let root = project.root();
    for input in [
        "",
        "{",
        "[]",
        "\u{0}",
        "{\"hook_event_name\":\"PreToolUse\"}",
    ] {
        for agent in ["claude-code", "codex", "gemini", "cursor"] {
            let answer = call(&project, agent, input);
            assert!(
                answer.code < 2 && !answer.out.contains("deny"),
                "{agent}: {answer:?}"
            );
            assert!(
                answer.err.contains(&format!("tenure hook {agent}: ")),
                "{answer:?}"
            );
        }
    }
    // No project: there is nothing to guard.
    let outside = Project::uninitialised();
    let answer = edit(&outside, "one", &outside.root(), "a.rs");
    assert_eq!(
        (answer.code, answer.out, answer.err),
        (0, String::new(), String::new())
    );
    // A store that can't be used.
    let holds_no_file = json!({ "session_id": "s", "cwd": root, "hook_event_name": "PreToolUse", "tool_name": "Edit",
        "tool_input": { "target": "a.rs" } })
    .to_string();
    assert_eq!(call(&project, "claude-code", &holds_no_file).code, 1);
    for end in ["-wal", "-shm"] {
        let _ = fs::remove_file(format!("{}{end}", project.database().display()));
    }
    fs::write(project.database(), "this is no database, and never was one").unwrap();
    let answer = edit(&project, "one", &root, "a.rs");
    assert_eq!((answer.code, answer.out.as_str()), (1, ""), "{answer:?}");
    assert!(
        answer.err.contains("tenure hook claude-code: "),
        "{answer:?}"
    );
    project.write(".tenure/config.yaml", "guard:\n  strict: true\n");
    let reason = edit(&project, "one", &root, "a.rs").refuses();
    assert!(
        reason.contains("can't be checked") && reason.contains("guard.strict"),
        "{reason}"
    );
    call(&project, "claude-code", &holds_no_file).refuses();
    // Only an edit can be refused.
    let answer = call(&project, "claude-code", event("one", &root, "Stop", "", ""));
    assert_eq!((answer.code, answer.out.as_str()), (1, ""), "{answer:?}");
}

#[test]
fn a_strict_hook_refuses_when_settings_name_or_folder_are_broken() {
    for strict in [true, false] {
        let project = repository();
        let root = project.root();
        let settings = |more: &str| {
            let text = format!("guard:\n  strict: {strict}\n{more}");
            project.write(".tenure/config.yaml", &text);
        };
        let input = event("one", &root, "PreToolUse", "Edit", "a.rs");
        let judged = |answer: Answer| {
            if strict {
                assert!(answer.refuses().contains("guard.strict"));
            } else {
                assert_eq!((answer.code, answer.out.as_str()), (1, ""), "{answer:?}");
            }
        };
        for mistake in ["sync:\n  enabled: perhaps\n", "x: [\n", "nonsense: true\n"] {
            settings(mistake);
            judged(call(&project, "claude-code", &input));
        }
        settings("");
        for name in [&b"not\xffutf8"[..], b"two\nlines"] {
            let name = OsStr::from_bytes(name);
            judged(call_with(&project, "claude-code", &input, |hook| {
                hook.env("TENURE_HOLDER", name);
            }));
        }
        let gone = event("one", &root.join("gone"), "PreToolUse", "Edit", "a.rs");
        judged(call(&project, "claude-code", &gone));
        judged(call(&project, "-C gone claude-code", &input));
        let odd = event("two\u{7}lines", &root, "PreToolUse", "Edit", "a.rs");
        judged(call(&project, "claude-code", &odd));
    }
}

/// Asserts that an edit is refused in the way of any agent.
#[track_caller]
fn denied(agent: &str, answer: &Answer, what: &str) {
    let code = if agent == "cursor" { 2 } else { 0 };
    assert_eq!(answer.code, code, "{agent} {what}: {answer:?}");
    assert!(
        answer.out.contains("\"deny\"") && answer.out.contains("guard.strict"),
        "{agent} {what}: {answer:?}"
    );
}

#[test]
fn a_strict_hook_refuses_an_input_that_it_does_not_understand() {
    let project = repository();
    let root = project.root();
    let before = |agent: &str| match agent {
        "gemini" => ("BeforeTool", "replace"),
        "cursor" => ("preToolUse", "Write"),
        _ => ("PreToolUse", "Edit"),
    };
    let inputs = |agent: &str, name: &str, tool: &str| {
        let event = |session: Value, cwd: Value| {
            json!({ "session_id": session, "cwd": cwd, "hook_event_name": name, "tool_name": tool,
                "tool_input": { "file_path": "a" } })
            .to_string()
        };
        let mut inputs = vec![
            event(json!(""), json!(root)),
            event(Value::Null, json!(root)),
            event(json!("s"), json!(7)),
        ];
        if agent == "cursor" {
            inputs.push(event(json!(["s"]), json!(root)));
        }
        inputs
    };
    project.write(".tenure/config.yaml", "guard:\n  strict: true\n");
    for (agent, _) in AGENTS {
        let (name, tool) = before(agent);
        for input in inputs(agent, name, tool) {
            denied(agent, &call(&project, agent, &input), &input);
        }
        for input in ["", "{", "[]", "\u{0}", "{}", "nonsense"] {
            denied(agent, &call(&project, agent, input), input);
        }
        // Only an edit can be refused.
        for input in inputs(agent, "Stop", tool)
            .iter()
            .chain(&inputs(agent, name, "Read"))
        {
            let answer = call(&project, agent, input);
            assert!(
                answer.code < 2 && !answer.out.contains("deny"),
                "{agent} {input}: {answer:?}"
            );
        }
    }
}

#[test]
fn a_strict_hook_refuses_if_the_settings_are_no_longer_readable() {
    for strict in [true, false] {
        let project = repository();
        let root = project.root();
        let path = project.path(".tenure/config.yaml");
        let text = format!("guard:\n  strict: {strict}\n");
        project.write(".tenure/config.yaml", &text);
        project.tenure("guard install").exits(0);
        let judged = |what: &str| {
            let answer = edit(&project, "one", &root, "a.rs");
            if strict {
                denied("claude-code", &answer, what);
                assert!(!answer.out.contains("within 5 seconds"), "{answer:?}");
            } else {
                assert_eq!(
                    (answer.code, answer.out.as_str()),
                    (1, ""),
                    "{what}: {answer:?}"
                );
            }
        };
        for bad in ["guard: [", "\u{0}\u{1}\u{2}", "{\"guard\": {"] {
            project.write(".tenure/config.yaml", bad);
            judged(bad);
        }
        fs::write(&path, b"\xff\xfe\x00").unwrap();
        judged("binary");
        fs::remove_file(&path).unwrap();
        fs::create_dir(&path).unwrap();
        judged("a folder");
        fs::remove_dir(&path).unwrap();
        symlink("config.yaml", &path).unwrap();
        judged("a link to itself");
        fs::remove_file(&path).unwrap();
        let fifo = project.shell("mkfifo .tenure/config.yaml").end();
        fifo.exits(0);
        judged("a pipe");
    }
}

#[test]
fn a_patch_over_two_projects_is_judged_in_both() {
    let (here, there) = (repository(), repository());
    let patch = format!(
        "*** Begin Patch\n*** Add File: mine\n+x\n*** Add File: {}\n+x\n*** End Patch",
        there.root().join("theirs").display()
    );
    let input = json!({ "session_id": "s", "cwd": here.root(), "hook_event_name": "PreToolUse",
        "tool_name": "apply_patch", "tool_input": { "command": patch } });
    let input = input.to_string();
    there.tenure("reserve theirs --as other").exits(0);
    let reason = call(&here, "codex", &input).refuses();
    assert!(reason.contains("theirs is reserved by other"), "{reason}");
    // The advice works where the agent is.
    let advice = reason
        .lines()
        .find_map(|line| line.strip_prefix("- wait for it: "));
    let wait = advice.unwrap().replacen("tenure", TENURE, 1);
    let wait = wait.replace("--wait 10m", "--wait 0s");
    let refused = here.shell(&wait).end().exits(6);
    assert!(refused.err.contains("other"), "{refused:?}");
    // All or nothing.
    assert_eq!(reserved(&here), []);
    there.tenure("unreserve --as other").exits(0);
    here.shell(&wait).end().exits(0);
    assert_eq!(
        reserved(&there),
        [("codex-s".to_owned(), "paths:theirs".to_owned())]
    );
    there.tenure("unreserve --as codex-s").exits(0);
    assert_eq!(call(&here, "codex", &input).code, 0);
    let of = |path: &str| [("codex-s".to_owned(), format!("paths:{path}"))];
    assert_eq!(reserved(&here), of("mine"));
    assert_eq!(reserved(&there), of("theirs"));
}

#[test]
fn a_hook_answers_in_time_even_if_the_agent_sends_nothing() {
    let project = repository();
    let mut command = project.program(TENURE);
    command
        .args(["hook", "gemini"])
        .stdin(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    let held_open = child.stdin.take();
    until("the hook gives up", || child.try_wait().unwrap().is_some());
    drop(held_open);
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&output.stderr).contains("no answer within 5 seconds"));
}

#[test]
fn a_session_gives_its_files_back_at_the_end_of_a_turn_and_when_they_are_committed() {
    let project = repository();
    let root = project.root();
    fs::create_dir(root.join("src")).unwrap();
    let write = |name: &str| fs::write(root.join(name), "new\n").unwrap();
    for file in ["src/a.rs", "src/b.rs"] {
        edit(&project, "one", &root, file).allows();
        write(file);
    }
    // Reserved, but not yet written: it is not committed by the commit of another file.
    edit(&project, "one", &root, "src/c.rs").allows();
    tell(&project, "one", "PostToolUse");
    assert_eq!(reserved(&project).len(), 3);
    git(&project, &root, "add src/a.rs");
    git(&project, &root, "commit -q -m a src/a.rs");
    tell(&project, "one", "PostToolUse");
    let modes: Vec<String> = reserved(&project)
        .into_iter()
        .map(|(_, mode)| mode)
        .collect();
    assert_eq!(modes, ["paths:src/b.rs", "paths:src/c.rs"]);
    edit(&project, "two", &root, "src/a.rs").allows();
    tell(&project, "one", "Stop");
    assert_eq!(reserved(&project).len(), 1);
    // With guard.release: session, only the end of the session does.
    project.write(".tenure/config.yaml", "guard:\n  release: session\n");
    edit(&project, "three", &root, "src/d.rs").allows();
    tell(&project, "three", "Stop");
    assert_eq!(reserved(&project).len(), 2);
    tell(&project, "three", "SessionEnd");
    tell(&project, "two", "SessionEnd");
    assert_eq!(reserved(&project), []);
}

#[test]
fn a_file_that_was_committed_just_before_it_was_reserved_is_kept() {
    let project = repository();
    let root = project.root();
    project.write("a.rs", "");
    git(&project, &root, "add a.rs");
    git(&project, &root, "commit -q -m a");
    edit(&project, "one", &root, "a.rs").allows();
    let listed = project.tenure("reservations --json").json();
    let at = listed["data"]["reservations"][0]["reservedAt"].clone();
    let at: jiff::Timestamp = at.as_str().unwrap().parse().unwrap();
    let before = std::time::SystemTime::from(at) - std::time::Duration::from_millis(5);
    for name in ["a.rs", ".git/logs/HEAD"] {
        let file = fs::File::options().write(true).open(root.join(name));
        file.unwrap().set_modified(before).unwrap();
    }
    tell(&project, "one", "PostToolUse");
    assert_eq!(reserved(&project).len(), 1);
}

#[test]
fn a_session_gives_a_file_back_that_it_has_not_written_for_long() {
    let project = repository();
    let root = project.root();
    project.write(".tenure/config.yaml", "guard:\n  release: 1m\n");
    edit(&project, "one", &root, "old.rs").allows();
    edit(&project, "one", &root, "new.rs").allows();
    project.write("old.rs", "");
    project.write("new.rs", "");
    // As if both were reserved two minutes ago, and one was last written then.
    let long_ago =
        std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1_600_000_000);
    fs::File::options()
        .write(true)
        .open(root.join("old.rs"))
        .unwrap()
        .set_modified(long_ago)
        .unwrap();
    let database = rusqlite::Connection::open(project.database()).unwrap();
    let text: String = database
        .query_row("SELECT acquired_at FROM leases LIMIT 1", [], |row| {
            row.get(0)
        })
        .unwrap();
    let earlier = text.replacen(text.get(..4).unwrap(), "2020", 1);
    database
        .execute("UPDATE leases SET acquired_at = ?1", [earlier])
        .unwrap();
    drop(database);
    tell(&project, "one", "PostToolUse");
    let modes: Vec<String> = reserved(&project)
        .into_iter()
        .map(|(_, mode)| mode)
        .collect();
    assert_eq!(modes, ["paths:new.rs"]);
}

#[test]
fn a_session_acts_under_the_name_that_its_environment_gives_it() {
    let project = repository();
    let root = project.root();
    let as_agent = |file: &str| {
        call_with(
            &project,
            "claude-code",
            event("s", &root, "PreToolUse", "Write", file),
            |command| {
                command.env("TENURE_HOLDER", "agent-7");
            },
        )
    };
    as_agent("a.rs").allows();
    assert_eq!(reserved(&project)[0].0, "agent-7");
    // Commands that the agent runs in a shell act for the same session.
    let holder = project
        .call("acquire build --json")
        .env("CLAUDE_CODE_SESSION_ID", "s")
        .end()
        .exits(0)
        .json();
    assert_eq!(holder["data"]["holder"], "claude-code-s");
    project
        .call("release build")
        .env("CLAUDE_CODE_SESSION_ID", "s")
        .end()
        .exits(0);
    // A CI job is no session: several agents may work in one.
    let in_ci = |command: &mut Command| {
        command.env("CI_JOB_ID", "5");
    };
    let answer = call_with(
        &project,
        "claude-code",
        event("t", &root, "PreToolUse", "Write", "b.rs"),
        in_ci,
    );
    answer.allows();
    assert!(
        reserved(&project)
            .iter()
            .any(|(holder, _)| holder == "claude-code-t")
    );
}

/// How long the reservation of a path lasts, in seconds.
fn lasts(project: &Project, path: &str) -> Option<i64> {
    let listed = project.tenure("reservations --json").exits(0).json();
    let all = listed["data"]["reservations"].as_array().unwrap();
    let of_path = |it: &&Value| it["paths"] == json!([path]);
    all.iter().find(of_path)?["remainingSeconds"].as_i64()
}

/// A session of Claude Code in a process of its own, which calls the hook with each line that it reads.
pub(crate) struct AgentProcess {
    process: Child,
    answers: std::io::BufReader<std::process::ChildStdout>,
}

impl AgentProcess {
    pub(crate) fn start(project: &Project, name: &str) -> Self {
        let script = project.root().with_file_name(format!("{name}.sh"));
        let lines = "while read -r line; do printf '%s' \"$line\" | \"$TENURE\" hook; echo \"exit code $?\"; done";
        fs::write(&script, lines).unwrap();
        let mut command = project.program("bash");
        command
            .arg(&script)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        command.env("CLAUDE_PROJECT_DIR", project.root());
        let mut process = command.spawn().unwrap();
        let answers = std::io::BufReader::new(process.stdout.take().unwrap());
        Self { process, answers }
    }

    /// Calls the hook, and returns what it said and its exit code.
    pub(crate) fn call(&mut self, event: &Value) -> String {
        use std::io::BufRead;
        let stdin = self.process.stdin.as_mut().unwrap();
        writeln!(stdin, "{event}").unwrap();
        let mut said = String::new();
        while !said.contains("exit code") {
            assert!(self.answers.read_line(&mut said).unwrap() > 0, "{said}");
        }
        said
    }

    pub(crate) fn allows(&mut self, event: &Value) {
        assert_eq!(self.call(event), "exit code 0\n", "{event}");
    }
}

impl Drop for AgentProcess {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

/// An event as Claude Code sends it.
pub(crate) fn claude(session: &str, name: &str, more: Value) -> Value {
    let mut event = json!({ "session_id": session, "hook_event_name": name });
    let Value::Object(more) = more else {
        panic!("{more} has no fields");
    };
    event.as_object_mut().unwrap().extend(more);
    event
}

pub(crate) fn edit_of(session: &str, file: &str) -> Value {
    let more =
        json!({ "tool_name": "Edit", "tool_use_id": "1", "tool_input": { "file_path": file } });
    claude(session, "PreToolUse", more)
}

#[test]
fn a_hook_that_names_no_agent_tells_it_from_its_input() {
    let project = repository();
    let root = project.root();
    let sent = |extra: Value| {
        let mut event = edit_of("s", "a.rs");
        for (field, value) in extra.as_object().unwrap() {
            event[field] = value.clone();
        }
        event.to_string()
    };
    // The words of Claude Code, and of Codex, which has a turn.
    call(&project, "", sent(json!({}))).allows();
    assert_eq!(reserved(&project)[0].0, "claude-code-s");
    let reason = call(&project, "", sent(json!({ "turn_id": "t" }))).refuses();
    assert!(reason.contains("claude-code-s"), "{reason}");
    let gemini = json!({ "session_id": "g", "cwd": root, "hook_event_name": "BeforeTool", "tool_name": "replace",
        "tool_input": { "file_path": "a.rs" } });
    let answer = call(&project, "", gemini.to_string());
    assert!(answer.out.contains("\"decision\":\"deny\""), "{answer:?}");
    // Cursor runs the hooks of Claude Code, too: both calls are of one session.
    let cursor = json!({ "conversation_id": "k", "session_id": "k", "cursor_version": "2", "workspace_roots": [root],
        "hook_event_name": "preToolUse", "tool_name": "Write", "tool_input": { "path": "b.rs" } });
    for words in ["cursor", "claude-code", ""] {
        let answer = call(&project, words, cursor.to_string());
        assert_eq!(answer.out, "{\"permission\":\"allow\"}\n", "{words}");
    }
    let of_cursor: Vec<_> = reserved(&project)
        .into_iter()
        .filter(|(_, mode)| mode == "paths:b.rs")
        .collect();
    assert_eq!(
        of_cursor,
        [("cursor-k".to_owned(), "paths:b.rs".to_owned())]
    );
    // An agent that is not known speaks as Claude Code does.
    let nothing = call(&project, "", "nonsense");
    assert_eq!(nothing.code, 1, "{nothing:?}");
    assert!(nothing.err.contains("can't be understood"), "{nothing:?}");
}

#[test]
fn what_a_session_has_reserved_ends_with_the_process_of_its_agent() {
    let project = repository();
    let root = project.root();
    let mut agent = AgentProcess::start(&project, "agent");
    // What is heard twice from one process is no script around a hook.
    agent.allows(&claude("one", "SessionStart", json!({})));
    agent.allows(&edit_of("one", "a.rs"));
    edit(&project, "two", &root, "a.rs").refuses();
    drop(agent);
    edit(&project, "two", &root, "a.rs").allows();
    let history = project.tenure("locks history paths --json").exits(0).out;
    assert!(history.contains("\"claimed_dead\""), "{history}");
}

#[test]
fn a_turn_does_not_expire_while_a_tool_runs_or_a_person_is_asked() {
    let project = repository();
    let mut agent = AgentProcess::start(&project, "agent");
    let hours = |project: &Project| lasts(project, "a.rs").unwrap() / 3600;
    agent.allows(&claude("one", "SessionStart", json!({})));
    agent.allows(&edit_of("one", "a.rs"));
    assert_eq!(hours(&project), 11);
    let bash = |name: &str, id: &str| {
        let more =
            json!({ "tool_name": "Bash", "tool_use_id": id, "tool_input": { "command": "make" } });
        claude("one", name, more)
    };
    let done =
        json!({ "tool_name": "Edit", "tool_use_id": "1", "tool_input": { "file_path": "a.rs" } });
    agent.allows(&claude("one", "PostToolUse", done));
    assert_eq!(hours(&project), 0);
    // Two commands at once: the turn goes on until both have ended, however they end.
    agent.allows(&bash("PreToolUse", "2"));
    agent.allows(&bash("PreToolUse", "3"));
    agent.allows(&bash("PostToolUse", "2"));
    assert_eq!(hours(&project), 11);
    agent.allows(&bash("PostToolUseFailure", "3"));
    assert_eq!(hours(&project), 0);
    agent.allows(&claude(
        "one",
        "PermissionRequest",
        json!({ "tool_name": "WebFetch" }),
    ));
    assert_eq!(hours(&project), 11);
    agent.allows(&claude("one", "UserPromptSubmit", json!({})));
    assert_eq!(hours(&project), 0);
    for end in [
        claude("one", "StopFailure", json!({ "error": "rate_limit" })),
        claude("one", "Interrupt", json!({})),
        claude(
            "one",
            "Notification",
            json!({ "notification_type": "idle_prompt" }),
        ),
        claude("one", "Stop", json!({})),
    ] {
        agent.allows(&edit_of("one", "a.rs"));
        agent.allows(&end);
        assert_eq!(lasts(&project, "a.rs"), None, "{end}");
    }
}

#[test]
fn a_turn_that_a_person_interrupts_is_over_although_no_hook_is_run() {
    let project = repository();
    let root = project.root();
    let transcript = root.with_file_name("transcript.jsonl");
    let with = |mut event: Value| {
        event["transcript_path"] = json!(transcript);
        event
    };
    fs::write(&transcript, "{\"type\":\"user\"}\n").unwrap();
    let mut agent = AgentProcess::start(&project, "agent");
    agent.allows(&with(claude("one", "SessionStart", json!({}))));
    agent.allows(&with(edit_of("one", "a.rs")));
    agent.allows(&with(edit_of("one", "b.rs")));
    edit(&project, "two", &root, "a.rs").refuses();
    let line = |text: &str, at: jiff::Timestamp| {
        let line = json!({ "type": "user", "timestamp": at.to_string(),
            "message": { "role": "user", "content": [{ "type": "text", "text": text }] } });
        let mut file = fs::File::options().append(true).open(&transcript).unwrap();
        writeln!(file, "{line}\n{{\"type\":\"last-prompt\"}}").unwrap();
    };
    let now = || tenure::store::Clock::now(&tenure_host::HostClock::new()).wall;
    // Of an earlier turn, and something that a user may write.
    let earlier = now()
        .saturating_sub(jiff::SignedDuration::from_secs(3600))
        .unwrap();
    line("[Request interrupted by user]", earlier);
    edit(&project, "two", &root, "a.rs").refuses();
    line("Why was my [Request interrupted by user]?", now());
    edit(&project, "two", &root, "a.rs").refuses();
    line("[Request interrupted by user for tool use]", now());
    edit(&project, "two", &root, "a.rs").allows();
    project.tenure("reserve b.rs --as three --no-wait").exits(0);
    // The session goes on, and finds out what is not its own any more.
    let said = agent.call(&with(edit_of("one", "a.rs")));
    assert!(said.contains("\"deny\""), "{said}");
}

#[test]
fn sub_agents_of_one_session_exclude_each_other() {
    let project = repository();
    let root = project.root();
    let event = |name: &str, child: &str, file: &str| {
        let mut event = claude(
            "one",
            name,
            json!({ "tool_name": "Edit", "tool_use_id": child, "cwd": root,
            "tool_input": { "file_path": file } }),
        );
        if !child.is_empty() {
            event["agent_id"] = json!(child);
            event["agent_type"] = json!("Explore");
        }
        event.to_string()
    };
    let before = |child: &str, file: &str| call(&project, "", event("PreToolUse", child, file));
    before("x", "a.rs").allows();
    let reason = before("y", "a.rs").refuses();
    assert!(
        reason.contains("another sub-agent of this session (Explore x)"),
        "{reason}"
    );
    // It is one session: the agent that started them may edit what they have, and they what it has.
    before("", "a.rs").allows();
    before("", "b.rs").allows();
    before("y", "b.rs").allows();
    before("x", "b.rs").refuses();
    edit(&project, "two", &root, "a.rs").refuses();
    // What a sub-agent has edited passes to the session, which still has it.
    call(&project, "", event("SubagentStop", "x", "")).allows();
    before("y", "a.rs").allows();
    edit(&project, "two", &root, "a.rs").refuses();
    // A refused file is nobody's.
    project.tenure("reserve c.rs --as other").exits(0);
    before("y", "c.rs").refuses();
    project.tenure("unreserve --as other").exits(0);
    before("z", "c.rs").allows();
    call(&project, "", event("Stop", "", "")).allows();
    edit(&project, "two", &root, "a.rs").allows();
}

#[test]
fn a_command_of_a_session_reserves_for_its_turn() {
    let project = repository();
    let root = project.root();
    let script = root.with_file_name("session.sh");
    // The hook runs beside the commands, as an agent runs both.
    let lines = r#"
hook() { printf '{"session_id":"one","turn_id":"t","hook_event_name":"%s","tool_name":"%s","tool_input":{"file_path":"%s"}}' "$1" "$2" "$3" | "$TENURE" hook codex; }
hook SessionStart; hook UserPromptSubmit
{ "$TENURE" reserve 'src/**'; "$TENURE" reserve docs --as alias; "$TENURE" reserve notes --for 20m; } >"$1/said" 2>&1
hook PreToolUse Edit src/a.rs; hook PreToolUse Edit docs/b.md
"$TENURE" reservations --json >"$1/during"
hook Stop
"$TENURE" reservations --json >"$1/after"
echo ready; read -r line
"#;
    fs::write(&script, lines).unwrap();
    let out = root.with_file_name("out");
    fs::create_dir(&out).unwrap();
    let mut command = project.program("bash");
    command
        .arg(&script)
        .arg(&out)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped());
    let mut agent = command.spawn().unwrap();
    let mut answers = std::io::BufReader::new(agent.stdout.take().unwrap());
    let mut said = String::new();
    std::io::BufRead::read_line(&mut answers, &mut said).unwrap();
    assert_eq!(said, "ready\n");
    let listed = |name: &str| {
        let text = fs::read_to_string(out.join(name)).unwrap();
        let value: Value = serde_json::from_str(&text).unwrap();
        let all = value["data"]["reservations"].as_array().unwrap().clone();
        let text = |it: &Value| {
            format!(
                "{} {}",
                it["holder"].as_str().unwrap(),
                it["paths"][0].as_str().unwrap()
            )
        };
        let mut all: Vec<String> = all.iter().map(text).collect();
        all.sort();
        all
    };
    // What the session edits there is reserved already, also under another name.
    assert_eq!(
        listed("during"),
        ["alias docs", "codex-one notes", "codex-one src/**"]
    );
    assert_eq!(listed("after"), ["codex-one notes"]);
    // All of it ends with the agent.
    agent.kill().unwrap();
    agent.wait().unwrap();
    project
        .tenure("reserve notes docs 'src/**' --as other --no-wait")
        .exits(0);
}

/// An agent: a script that edits files as its hook allows, and commits them, or whatever is there. The lock on the witness
/// file is the kernel's; it tells whether two agents write one file at a time. The log tells when an agent surely had a
/// file, and during which time each commit was made.
const AGENT: &str = r#"
id=$1 tree=$2 rounds=$3 witness=$4
export CLAUDE_CODE_SESSION_ID=$id GIT_AUTHOR_NAME=$id GIT_AUTHOR_EMAIL=$id@t GIT_COMMITTER_NAME=$id GIT_COMMITTER_EMAIL=$id@t
cd "$tree" || exit
call() {
    printf '{"session_id":"%s","cwd":"%s","hook_event_name":"%s","tool_name":"Edit","tool_input":{"file_path":"%s"}}' \
        "$id" "$tree" "$1" "$2" | "$TENURE" hook claude-code --ttl 20s
}
now() { now=${EPOCHREALTIME/[^0-9]/}; }
free() { now; echo "free $id $now" >>"$witness/log"; }
commit() {
    free
    began=$now
    out=$(git commit -m "$id" "$@" 2>>"$witness/commits") || return
    now
    out=${out%%]*}
    echo "commit $id $began $now ${out##* }" >>"$witness/log"
}
# A refused edit is tried again later, as an agent would.
for ((n = 0; n < rounds; n++)); do
    file=f$((RANDOM % 5))
    out=$(call PreToolUse "$tree/src/$file" 2>>"$witness/err") || continue
    case $out in *'"deny"'*)
        echo >>"$witness/refused"
        # All that is changed in this work tree, by any agent.
        if ((RANDOM % 4 == 0)); then commit -a; else sleep 0.05; fi
        ((n -= 1))
        continue
        ;;
    esac
    now
    echo "hold $id $now $file" >>"$witness/log"
    exec 9>"$witness/$file"
    flock -n 9 || echo "$id wrote $file beside another agent" >>"$witness/bad"
    echo "$id $n" >>"$tree/src/$file"
    sleep "0.0$((RANDOM % 9))"
    exec 9>&-
    echo >>"$witness/edits"
    call PostToolUse "$tree/src/$file" >/dev/null 2>&1
    case $((RANDOM % 4)) in
    0) commit -- "src/$file" ;;
    1) commit -a ;;
    2)
        free
        call Stop "" >/dev/null 2>&1
        ;;
    esac
done
free
until call SessionEnd "" 2>>"$witness/err"; do sleep 0.1; done
"#;

/// The commits that changed a file which another agent had during all of the commit: `hold AGENT TIME FILE`, `free AGENT TIME`
/// and `commit AGENT BEGAN ENDED ID` are the lines of the log. Returns the number of commits, too.
fn robbed(log: &str, changed: impl Fn(&str) -> String) -> (usize, Vec<String>) {
    let lines: Vec<Vec<&str>> = log.lines().map(|line| line.split(' ').collect()).collect();
    let time = |word: &str| word.parse::<u64>().unwrap();
    let mut holds = Vec::new();
    for line in &lines {
        let ["hold", agent, from, file] = line.as_slice() else {
            continue;
        };
        let frees = lines.iter().filter_map(|line| match line.as_slice() {
            ["free", it, at] if it == agent && time(at) >= time(from) => Some(time(at)),
            _ => None,
        });
        // The reservation of an agent that was slower may have expired.
        if let Some(until) = frees.min().filter(|until| until - time(from) < 15_000_000) {
            holds.push((*agent, time(from), until, *file));
        }
    }
    let mut found = Vec::new();
    let commits = lines.iter().filter_map(|line| match line.as_slice() {
        ["commit", agent, began, ended, id] => Some((*agent, time(began), time(ended), *id)),
        _ => None,
    });
    let commits: Vec<(&str, u64, u64, &str)> = commits.collect();
    for (agent, began, ended, id) in &commits {
        let files = changed(id);
        for (other, from, until, file) in &holds {
            let is_changed = files.lines().any(|path| path == format!("src/{file}"));
            if other != agent && from < began && until > ended && is_changed {
                found.push(format!("{agent} committed {file} of {other} in {id}"));
            }
        }
    }
    (commits.len(), found)
}

#[test]
fn eight_agents_never_write_or_commit_one_file_at_a_time_and_leave_nothing_reserved() {
    let project = repository();
    let root = project.root();
    fs::create_dir(root.join("src")).unwrap();
    for file in 0..5 {
        project.write(&format!("src/f{file}"), "");
    }
    git(&project, &root, "add src");
    git(&project, &root, "commit -q -m files");
    project.tenure("guard install").exits(0);
    let witness = root.with_file_name("witness");
    fs::create_dir(&witness).unwrap();
    // A file, so that the process of the shell is the agent's.
    let script = witness.join("agent.sh");
    fs::write(&script, AGENT).unwrap();
    let agents: Vec<(String, Child)> = (1..=8)
        .map(|number| {
            // Four share the main work tree; the others have one each.
            let tree = if number <= 4 {
                root.clone()
            } else {
                git(&project, &root, &format!("worktree add -q ../tree{number}"));
                root.with_file_name(format!("tree{number}"))
            };
            let id = format!("agent{number}");
            let mut agent = project.program("bash");
            agent.arg(&script).arg(&id).arg(tree);
            agent.arg(scaled(10).to_string()).arg(&witness);
            agent
                .process_group(0)
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            (id, agent.spawn().unwrap())
        })
        .collect();
    let lines = |name: &str| {
        fs::read_to_string(witness.join(name))
            .unwrap_or_default()
            .lines()
            .count()
    };
    // Two are killed in the middle of their work, with everything that they run.
    for (many, (_, agent)) in [8, 16].into_iter().zip(agents.iter().step_by(5)) {
        until("the agents work", || lines("edits") >= many);
        let _ = rustix::process::kill_process_group(
            rustix::process::Pid::from_raw(i32::try_from(agent.id()).unwrap()).unwrap(),
            Signal::KILL,
        );
    }
    let mut ended = Vec::new();
    for (id, mut agent) in agents {
        // Longer than usual, because a soak has more rounds.
        for _ in 0..scaled(4) {
            let mut looks = 0..3_000;
            while agent.try_wait().unwrap().is_none() && looks.next().is_some() {
                std::thread::sleep(std::time::Duration::from_millis(10));
            }
        }
        assert!(agent.try_wait().unwrap().is_some(), "{id} did not end");
        ended.push((id, agent.wait().unwrap().success()));
    }
    assert!(
        ended.iter().filter(|(_, whole)| *whole).count() >= 6,
        "{ended:?}"
    );
    assert!(
        lines("refused") > 0 && lines("edits") >= 16,
        "{} edits",
        lines("edits")
    );
    let bad = fs::read_to_string(witness.join("bad")).unwrap_or_default();
    assert_eq!(
        bad,
        "",
        "{}",
        project.tenure("locks history paths --limit 1000").out
    );
    let log = fs::read_to_string(witness.join("log")).unwrap();
    let (commits, robbed) = robbed(&log, |id| {
        let words = format!("diff-tree --no-commit-id --name-only -r {id}");
        git(&project, &root, &words)
    });
    assert!(commits > 0, "{log}");
    assert_eq!(robbed, Vec::<String>::new(), "{log}");
    // A session that ended has nothing any more, at once. What a killed one had ends with its time to live.
    let whole: Vec<String> = ended
        .iter()
        .filter(|(_, whole)| *whole)
        .map(|(id, _)| format!("claude-code-{id}"))
        .collect();
    for (holder, mode) in reserved(&project) {
        assert!(!whole.contains(&holder), "{holder} still has {mode}");
    }
    until("the reservations of killed agents end", || {
        project.tenure("locks cleanup -q").exits(0);
        reserved(&project).is_empty()
    });
    project.tenure("locks verify").exits(0);
}
