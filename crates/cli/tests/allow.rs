//! `tenure allow`: a person allows a command of an agent that was refused.

use crate::project;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use project::{Project, Said, TENURE};
use serde_json::json;
use tenure::store::HolderId;
use tenure_files::danger::{Permissions, Request};

const LINE: &str = "git stash && echo \x1b[2J";

fn permissions(project: &Project) -> Permissions {
    let found = tenure::Project::find(&project.root(), None).unwrap();
    Permissions::of(&found.unwrap())
}

/// A command that was refused, and its code.
fn refused(project: &Project) -> String {
    let why = "git stash was not run: it would put changes away";
    let request = Request::new(
        session(),
        "7f3a (fix the login)",
        Path::new("/work"),
        LINE,
        why,
    );
    permissions(project).ask(request).unwrap()
}

fn session() -> HolderId {
    HolderId::parse("claude-code-7f3a").unwrap()
}

fn runs(project: &Project) -> bool {
    permissions(project)
        .take(&session(), Path::new("/work"), LINE)
        .unwrap()
}

/// Runs a line on a terminal.
fn on_terminal(project: &Project, line: &str) -> Said {
    let mut script = project.program("script");
    script
        .args(["--quiet", "--return", "--command", line, "/dev/null"])
        .env("SHELL", "/bin/sh");
    project.prepare(script).end()
}

#[test]
fn a_person_allows_a_command_once() {
    let project = Project::new();
    project.tenure("allow").exits(0);
    let code = refused(&project);
    let listed = project.tenure("allow").exits(0);
    for text in [
        &code,
        "7f3a (fix the login)",
        "/work",
        "git stash && echo \\u{1b}[2J",
        "it would put changes away",
    ] {
        assert!(listed.out.contains(text), "{text}: {listed:?}");
    }
    assert_eq!(project.tenure("allow --list").exits(0).out, listed.out);
    assert!(!runs(&project));
    let said = on_terminal(&project, &format!("exec $TENURE allow {code}")).exits(0);
    for text in ["may run this once in /work", "10m", "git stash"] {
        assert!(said.out.contains(text), "{text}: {said:?}");
    }
    assert!(
        project
            .tenure("allow")
            .exits(0)
            .out
            .contains("No command waits")
    );
    assert!(runs(&project));
    assert!(!runs(&project), "it was allowed once");
    let again = on_terminal(&project, &format!("exec $TENURE allow {code}")).exits(4);
    assert!(again.out.contains(&code), "{again:?}");
}

#[test]
fn what_waits_and_what_was_allowed_is_printed_as_json() {
    let project = Project::new();
    assert_eq!(
        project.tenure("allow --json").exits(0).json()["data"]["waiting"],
        json!([])
    );
    let code = refused(&project);
    let waiting = project.tenure("allow --json").exits(0).json();
    let first = &waiting["data"]["waiting"][0];
    assert_eq!(first["code"], *code);
    assert_eq!(first["holder"], "claude-code-7f3a");
    assert_eq!(first["session"], "7f3a (fix the login)");
    assert_eq!(first["folder"], "/work");
    assert_eq!(first["command"], LINE);
    assert!(
        first["refusedAt"].is_string() && first["allowedUntil"].is_null(),
        "{waiting}"
    );
    let allowed = project
        .tenure(&format!("allow {code} --yes --for 1h --json"))
        .exits(0)
        .json();
    assert_eq!(allowed["data"]["code"], *code);
    assert!(allowed["data"]["allowedUntil"].is_string(), "{allowed}");
    assert_eq!(
        project
            .tenure(&format!("allow {code}x --yes --json"))
            .exits(4)
            .error(),
        "NOT_FOUND"
    );
    assert!(runs(&project));
}

#[test]
fn without_a_terminal_only_yes_allows_it() {
    let project = Project::new();
    let code = refused(&project);
    project
        .tenure(&format!("allow {code}"))
        .fails(5, &["no terminal", "--yes"]);
    assert!(!runs(&project));
    // The code as a person may type it.
    let typed = code.to_uppercase().replace('-', "");
    project.tenure(&format!("allow {typed} --yes")).exits(0);
    assert!(runs(&project));
    project.tenure("allow --yes").exits(2);
    project.tenure(&format!("allow {code} --for 5x")).exits(2);
}

#[test]
fn an_agent_can_not_allow_its_own_commands() {
    let project = Project::new();
    let code = refused(&project);
    for (name, value) in [
        ("CLAUDE_CODE_SESSION_ID", "7f3a"),
        ("CODEX_THREAD_ID", "7f3a"),
    ] {
        for words in [
            format!("allow {code} --yes"),
            format!("--as person allow {code} --yes"),
        ] {
            let said = project
                .call(&words)
                .env(name, value)
                .env("TENURE_HOLDER", "person")
                .end();
            said.fails(5, &["session", "a person has to run this", &code]);
        }
        // It may look.
        project.call("allow").env(name, value).end().exits(0);
    }
    assert!(!runs(&project));
}

#[test]
fn an_agent_that_is_found_by_its_process_can_not_either() {
    let project = Project::new();
    let code = refused(&project);
    let event = json!({
        "session_id": "s1", "hook_event_name": "BeforeTool", "cwd": project.root(),
        "tool_name": "replace", "tool_input": { "file_path": "a" },
    });
    project.write("event", &event.to_string());
    // An agent runs each hook and each command with a shell of its own.
    let script = format!(
        "sh -c '{TENURE} hook gemini < event; exit $?' || exit\nsh -c '{TENURE} allow {code} --yes; exit $?'\n"
    );
    project.write("agent", &script);
    let mut agent: Command = project.program("bash");
    agent.arg("agent");
    let said = project.prepare(agent).end();
    said.fails(5, &["gemini-s1", "a person has to run this"]);
    assert!(!runs(&project));
    project.tenure(&format!("allow {code} --yes")).exits(0);
}

#[test]
fn the_requests_are_private_to_the_user() {
    let project = Project::new();
    let code = refused(&project);
    let folders = fs::read_dir(project.state())
        .unwrap()
        .map(|it| it.unwrap().path());
    let folder = folders
        .into_iter()
        .find(|path| {
            path.file_name()
                .unwrap()
                .to_string_lossy()
                .starts_with("allow-")
        })
        .unwrap();
    let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(&folder), 0o700);
    assert_eq!(mode(&folder.join(format!("{code}.json"))), 0o600);
    // What another user could have changed is no request.
    fs::set_permissions(
        folder.join(format!("{code}.json")),
        fs::Permissions::from_mode(0o666),
    )
    .unwrap();
    project.tenure(&format!("allow {code} --yes")).exits(4);
}
