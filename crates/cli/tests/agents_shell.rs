//! Shell commands of coding agents, as their hooks see them.

use std::fs;

use serde_json::{Value, json};

use crate::agents::{AgentProcess, claude, edit_of, git, repository, reserved};
use crate::project::Project;

/// A project with some committed files, of which all can be told from git.
fn with_files() -> Project {
    let project = repository();
    for file in ["a.rs", "b.rs", "c.rs", ".gitignore"] {
        project.write(
            file,
            if file == ".gitignore" {
                "*.log\n"
            } else {
                "committed\n"
            },
        );
    }
    git(&project, &project.root(), "add -A");
    git(&project, &project.root(), "commit -q -m files");
    project
}

fn bash(project: &Project, session: &str, name: &str, line: &str) -> Value {
    let more = json!({ "tool_name": "Bash", "tool_use_id": "b", "cwd": project.root(),
        "tool_input": { "command": line } });
    claude(session, name, more)
}

/// A session that has written a file and not committed it.
fn writer(project: &Project, session: &str, file: &str, text: &str) -> AgentProcess {
    let mut agent = AgentProcess::start(project, session);
    agent.allows(&claude(session, "SessionStart", json!({})));
    agent.allows(&edit_of(session, file));
    project.write(file, text);
    let mut done = edit_of(session, file);
    done["hook_event_name"] = json!("PostToolUse");
    agent.allows(&done);
    agent
}

/// A session that has done nothing yet.
fn newcomer(project: &Project, session: &str) -> AgentProcess {
    let mut agent = AgentProcess::start(project, session);
    agent.allows(&claude(session, "SessionStart", json!({})));
    agent
}

/// The texts that an answer has for the model.
fn told(said: &str) -> String {
    let line = said.lines().next().unwrap_or_default();
    let Ok(answer) = serde_json::from_str::<Value>(line) else {
        return String::new();
    };
    let out = &answer["hookSpecificOutput"];
    let texts = ["additionalContext", "permissionDecisionReason"].map(|name| &out[name]);
    texts.into_iter().filter_map(Value::as_str).collect()
}

#[test]
fn a_command_that_destroys_the_work_of_others_is_refused_unless_a_person_allows_it_once() {
    let project = with_files();
    let _one = writer(&project, "one", "a.rs", "uncommitted\n");
    let mut two = newcomer(&project, "two");
    for line in [
        "git stash",
        "cd . && git reset --hard",
        "bash -c 'git checkout -- .'",
    ] {
        let said = two.call(&bash(&project, "two", "PreToolUse", line));
        assert!(said.contains("\"deny\""), "{line}: {said}");
        let reason = told(&said);
        for part in ["was not run", "claude-code-one", "a.rs", "tenure allow "] {
            assert!(reason.contains(part), "{part}: {reason}");
        }
    }
    // What destroys nothing of theirs runs without a word.
    for line in [
        "git status",
        "git stash list",
        "git checkout -- b.rs",
        "git clean -n",
        "rm -f x.log",
    ] {
        two.allows(&bash(&project, "two", "PreToolUse", line));
        two.allows(&bash(&project, "two", "PostToolUse", line));
    }
    let reason = told(&two.call(&bash(&project, "two", "PreToolUse", "git stash")));
    let code = reason.split("tenure allow ").nth(1).unwrap().trim();
    project.tenure(&format!("allow {code} --yes")).exits(0);
    // It counts for this command only, and once.
    let other = two.call(&bash(&project, "two", "PreToolUse", "git reset --hard"));
    assert!(other.contains("\"deny\""), "{other}");
    two.allows(&bash(&project, "two", "PreToolUse", "git stash"));
    let again = two.call(&bash(&project, "two", "PreToolUse", "git stash"));
    assert!(again.contains("\"deny\""), "{again}");
    // The bytes are kept.
    git(&project, &project.root(), "reset -q --hard");
    assert_eq!(project.read("a.rs"), "committed\n");
    project.tenure("files restore a.rs").exits(0);
    assert_eq!(project.read("a.rs"), "uncommitted\n");

    project.write(".tenure/config.yaml", "agents:\n  destructive: warn\n");
    let said = two.call(&bash(&project, "two", "PreToolUse", "git stash"));
    assert!(
        !said.contains("\"deny\"") && told(&said).contains("claude-code-one"),
        "{said}"
    );
    project.write(".tenure/config.yaml", "agents:\n  destructive: \"off\"\n");
    two.allows(&bash(&project, "two", "PreToolUse", "git stash"));
}

#[test]
fn a_session_that_has_ended_or_committed_is_in_nobodys_way() {
    let project = with_files();
    let mut one = writer(&project, "one", "a.rs", "uncommitted\n");
    let three = writer(&project, "three", "b.rs", "uncommitted\n");
    let mut two = newcomer(&project, "two");
    let stash = bash(&project, "two", "PreToolUse", "git stash");
    let both = told(&two.call(&stash));
    assert!(
        both.contains("claude-code-one") && both.contains("claude-code-three"),
        "{both}"
    );
    drop(three);
    let reason = told(&two.call(&stash));
    assert!(!reason.contains("claude-code-three"), "{reason}");
    git(&project, &project.root(), "commit -q -m a a.rs");
    two.allows(&stash);
    one.allows(&claude("one", "Stop", json!({})));
}

#[test]
fn what_a_command_writes_is_reserved_for_its_session() {
    let project = with_files();
    let mut one = newcomer(&project, "one");
    let line = "sed -i s/x/y/ b.rs";
    one.allows(&bash(&project, "one", "PreToolUse", line));
    project.write("b.rs", "by sed\n");
    project.write("new.rs", "new\n");
    project.write("ignored.log", "a log\n");
    one.allows(&bash(&project, "one", "PostToolUse", line));
    let of_one = |file: &str| ("claude-code-one".to_owned(), format!("paths:{file}"));
    assert_eq!(reserved(&project), [of_one("b.rs"), of_one("new.rs")]);
    // Also by a command that failed, and not what git brought.
    git(&project, &project.root(), "checkout -q -b other");
    project.write("c.rs", "on a branch\n");
    git(&project, &project.root(), "commit -q -m c c.rs");
    one.allows(&bash(
        &project,
        "one",
        "PreToolUse",
        "git checkout -q main; false",
    ));
    git(&project, &project.root(), "checkout -q main");
    project.write("a.rs", "by a script\n");
    one.allows(&bash(
        &project,
        "one",
        "PostToolUseFailure",
        "git checkout -q main; false",
    ));
    assert_eq!(
        reserved(&project),
        [of_one("a.rs"), of_one("b.rs"), of_one("new.rs")]
    );
    one.allows(&claude("one", "Stop", json!({})));
    assert_eq!(reserved(&project), []);
}

#[test]
fn a_command_that_changes_the_file_of_another_session_is_told_to_both_once() {
    let project = with_files();
    let mut one = writer(&project, "one", "a.rs", "uncommitted\n");
    let mut two = newcomer(&project, "two");
    let line = "cargo fmt";
    two.allows(&bash(&project, "two", "PreToolUse", line));
    project.write("a.rs", "formatted\n");
    project.write("b.rs", "formatted\n");
    let said = told(&two.call(&bash(&project, "two", "PostToolUse", line)));
    for part in [
        "- a.rs: claude-code-one",
        "Do not commit",
        "tenure files restore a.rs",
        "tenure ask a.rs",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert!(!said.contains("b.rs"), "{said}");
    // The owner hears it with its next call of a tool, once.
    let read = claude(
        "one",
        "PostToolUse",
        json!({ "tool_name": "Read", "tool_use_id": "r" }),
    );
    let said = told(&one.call(&read));
    assert!(
        said.contains("claude-code-two's command \"cargo fmt\" changed your a.rs at "),
        "{said}"
    );
    one.allows(&read);
    // The advice works, and who follows it is not blamed for it.
    let listed = project.tenure("files list a.rs").exits(0);
    assert!(listed.out.contains("a.rs"), "{listed:?}");
    let restore = "tenure files restore a.rs";
    two.allows(&bash(&project, "two", "PreToolUse", restore));
    project.tenure("files restore a.rs").exits(0);
    assert_eq!(project.read("a.rs"), "uncommitted\n");
    two.allows(&bash(&project, "two", "PostToolUse", restore));
    one.allows(&read);
    // Nothing is said twice, and nothing of what was changed between the commands.
    project.write("a.rs", "by a person\n");
    two.allows(&bash(&project, "two", "PreToolUse", line));
    two.allows(&bash(&project, "two", "PostToolUse", line));
    one.allows(&read);
}

#[test]
fn what_a_sessions_own_tools_explain_is_blamed_on_nobody() {
    let project = with_files();
    let mut one = writer(&project, "one", "a.rs", "uncommitted\n");
    let mut two = newcomer(&project, "two");
    two.allows(&bash(&project, "two", "PreToolUse", "make"));
    one.allows(&edit_of("one", "a.rs"));
    project.write("a.rs", "edited again\n");
    let mut done = edit_of("one", "a.rs");
    done["hook_event_name"] = json!("PostToolUse");
    one.allows(&done);
    two.allows(&bash(&project, "two", "PostToolUse", "make"));
    // Also while a command of the owner runs, which may have been it.
    two.allows(&bash(&project, "two", "PreToolUse", "make"));
    one.allows(&bash(&project, "one", "PreToolUse", "make fmt"));
    project.write("a.rs", "formatted\n");
    two.allows(&bash(&project, "two", "PostToolUse", "make"));
    one.allows(&bash(&project, "one", "PostToolUse", "make fmt"));
    let read = claude(
        "one",
        "PostToolUse",
        json!({ "tool_name": "Read", "tool_use_id": "r" }),
    );
    one.allows(&read);
    assert!(
        fs::read_to_string(project.path("a.rs"))
            .unwrap()
            .contains("formatted")
    );
}

#[test]
fn an_edit_of_what_another_session_has_not_committed_is_told_and_can_be_undone() {
    let project = with_files();
    let mut one = writer(&project, "one", "a.rs", "uncommitted\n");
    one.allows(&claude("one", "Stop", json!({})));
    let mut two = newcomer(&project, "two");
    let said = told(&two.call(&edit_of("two", "a.rs")));
    for part in [
        "a.rs has uncommitted changes of claude-code-one",
        "tenure files list a.rs",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    project.write("a.rs", "by two\n");
    let mut done = edit_of("two", "a.rs");
    done["hook_event_name"] = json!("PostToolUse");
    two.allows(&done);
    // Once.
    two.allows(&edit_of("two", "a.rs"));
    project.tenure("files restore a.rs").exits(0);
    assert_eq!(project.read("a.rs"), "uncommitted\n");
}

#[test]
fn what_is_written_while_a_command_of_another_session_runs_is_kept() {
    let project = with_files();
    let mut two = newcomer(&project, "two");
    two.allows(&bash(&project, "two", "PreToolUse", "make"));
    let _one = writer(&project, "one", "a.rs", "uncommitted\n");
    project.write("a.rs", "by make\n");
    let said = told(&two.call(&bash(&project, "two", "PostToolUse", "make")));
    assert!(said.contains("- a.rs: claude-code-one"), "{said}");
    project.tenure("files restore a.rs").exits(0);
    assert_eq!(project.read("a.rs"), "uncommitted\n");
}

#[test]
fn what_an_interrupted_command_changed_is_told_with_the_next_prompt() {
    let project = with_files();
    let mut one = writer(&project, "one", "a.rs", "uncommitted\n");
    let mut two = newcomer(&project, "two");
    two.allows(&bash(&project, "two", "PreToolUse", "make"));
    project.write("a.rs", "by make\n");
    let prompt = claude("two", "UserPromptSubmit", json!({}));
    let said = told(&two.call(&prompt));
    assert!(said.contains("- a.rs: claude-code-one"), "{said}");
    two.allows(&prompt);
    let read = claude(
        "one",
        "PostToolUse",
        json!({ "tool_name": "Read", "tool_use_id": "r" }),
    );
    let said = told(&one.call(&read));
    assert!(said.contains("changed your a.rs"), "{said}");
}

#[test]
fn what_a_command_changed_is_seen_although_its_hook_could_not_finish() {
    let project = with_files();
    let mut one = newcomer(&project, "one");
    one.allows(&bash(&project, "one", "PreToolUse", "make"));
    project.write("b.rs", "made\n");
    // Another program has the database for longer than a hook waits.
    let database = rusqlite::Connection::open(project.database()).unwrap();
    database.execute_batch("BEGIN IMMEDIATE").unwrap();
    let said = one.call(&bash(&project, "one", "PostToolUse", "make"));
    assert!(said.contains("exit code 1"), "{said}");
    database.execute_batch("ROLLBACK").unwrap();
    assert_eq!(reserved(&project), []);
    let read = claude(
        "one",
        "PostToolUse",
        json!({ "tool_name": "Read", "tool_use_id": "r" }),
    );
    one.allows(&read);
    let of_one = ("claude-code-one".to_owned(), "paths:b.rs".to_owned());
    assert_eq!(reserved(&project), [of_one]);
}

#[test]
fn a_record_of_a_session_is_replaced_whole() {
    let project = with_files();
    let mut one = newcomer(&project, "one");
    let folder = project.path(".git/tenure/agents");
    let files = || {
        let files = fs::read_dir(&folder).unwrap();
        files.map(|file| file.unwrap().path())
    };
    let record = files()
        .find(|path| path.extension().is_some_and(|end| end == "json"))
        .unwrap();
    let before = fs::read_to_string(&record).unwrap();
    let mut open = fs::File::open(&record).unwrap();
    one.allows(&bash(&project, "one", "PreToolUse", "make"));
    assert_ne!(fs::read_to_string(&record).unwrap(), before);
    // Who had opened it sees the record as it was.
    let mut seen = String::new();
    std::io::Read::read_to_string(&mut open, &mut seen).unwrap();
    assert_eq!(seen, before);
}
