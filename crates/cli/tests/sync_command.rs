//! `tenure sync` and what belongs to it, as a person runs them: words, exit codes, kills.

use crate::project;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::Duration;

use project::{Project, TENURE};
use rustix::process::{Pid, Signal, kill_process_group};
use serde_json::Value;
use tempfile::TempDir;
use tenure_testkit::{default_signals, scaled};

/// A bare repository, a clone of it with a project, and a home.
struct Hub {
    dir: TempDir,
}

impl Hub {
    fn new() -> Self {
        let hub = Self {
            dir: tempfile::tempdir().unwrap(),
        };
        fs::create_dir(hub.path("home")).unwrap();
        hub.git(".", &["init", "-q", "--bare", "-b", "main", "hub.git"]);
        hub.git(".", &["clone", "-q", "hub.git", "a"]);
        hub.name("a");
        fs::write(hub.path("a/code.txt"), "one\n").unwrap();
        hub.git("a", &["add", "."]);
        hub.git("a", &["commit", "-q", "-m", "Begin"]);
        hub.git("a", &["push", "-q"]);
        hub.says("a", &["init"]);
        hub
    }

    fn with_two() -> Self {
        let hub = Self::new();
        hub.git(".", &["clone", "-q", "hub.git", "b"]);
        hub.name("b");
        hub.says("b", &["init"]);
        hub
    }

    fn name(&self, clone: &str) {
        self.git(clone, &["config", "user.name", clone]);
        self.git(clone, &["config", "user.email", "clone@example.org"]);
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A program in a clone, with nothing of the machine's.
    fn program(&self, program: impl AsRef<std::ffi::OsStr>, clone: &str) -> Command {
        let mut command = Command::new(program);
        default_signals(&mut command);
        for (name, _) in std::env::vars_os() {
            if name.as_encoded_bytes().starts_with(b"TENURE_") {
                command.env_remove(name);
            }
        }
        command
            .current_dir(self.path(clone))
            .env("HOME", self.path("home"))
            .env("GIT_CONFIG_GLOBAL", "/dev/null")
            .env("GIT_CONFIG_SYSTEM", "/dev/null")
            .env("LC_ALL", "C")
            .stdin(Stdio::null());
        command
    }

    #[track_caller]
    fn git(&self, clone: &str, args: &[&str]) -> String {
        let output = self.program("git", clone).args(args).output().unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "git {args:?}: {said}");
        text(&output.stdout)
    }

    fn tenure(&self, clone: &str, args: &[&str]) -> Output {
        self.program(TENURE, clone).args(args).output().unwrap()
    }

    /// What it says when all is well.
    #[track_caller]
    fn says(&self, clone: &str, args: &[&str]) -> String {
        let output = self.tenure(clone, args);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(0), "tenure {args:?}: {said}");
        text(&output.stdout)
    }

    /// What it complains of, with which exit code.
    #[track_caller]
    fn fails(&self, clone: &str, args: &[&str]) -> (i32, String) {
        let output = self.tenure(clone, args);
        assert!(
            !output.status.success(),
            "tenure {args:?}: {}",
            text(&output.stdout)
        );
        (output.status.code().unwrap(), text(&output.stderr))
    }

    fn add(&self, clone: &str, title: &str) -> String {
        self.says(clone, &["tasks", "add", title, "-q"])
    }

    fn titles(&self, clone: &str) -> Vec<String> {
        let told = self.says(clone, &["tasks", "list", "--limit", "0", "--json"]);
        let answer: Value = serde_json::from_str(&told).unwrap();
        let tasks = answer["data"]["tasks"].as_array().unwrap();
        let mut titles: Vec<String> = tasks
            .iter()
            .map(|task| task["title"].as_str().unwrap().to_owned())
            .collect();
        titles.sort();
        titles
    }

    /// A git of the test's own in front of the real one. `$REAL` is that, `$D` the hub's folder.
    fn with_git(&self, cases: &str) -> String {
        let bin = self.path("bin");
        fs::create_dir_all(&bin).unwrap();
        let real = Command::new("sh").args(["-c", "command -v git"]).output();
        let real = text(&real.unwrap().stdout);
        let dir = self.dir.path().display();
        script(
            &bin.join("git"),
            &format!("REAL={real}\nD={dir}\ncase \"$*\" in\n{cases}\nesac\nexec $REAL \"$@\""),
        );
        format!("{}:{}", bin.display(), std::env::var("PATH").unwrap())
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim_end().to_owned()
}

fn script(path: &Path, words: &str) {
    project::write_program(path, format!("#!/bin/sh\n{words}\n").as_bytes());
}

// Words and exit codes.

#[test]
fn sync_says_what_it_did_and_what_stands_in_the_way() {
    let hub = Hub::with_two();
    assert_eq!(hub.says("a", &["sync"]), "Nothing to sync.");
    hub.add("a", "One");
    assert_eq!(hub.says("a", &["sync"]), "Synced with origin.");
    assert_eq!(
        hub.says("b", &["sync"]),
        "Merged with origin: 1 task added\nSynced with origin."
    );
    hub.add("a", "Two");
    assert_eq!(hub.says("a", &["sync", "--quiet"]), "");
    let told: Value = serde_json::from_str(&hub.says("b", &["sync", "--json"])).unwrap();
    assert_eq!(told["success"], true);
    assert_eq!(told["command"], "sync");
    assert_eq!(told["data"]["outcome"], "done");
    assert_eq!(told["data"]["message"], "Synced with origin");
    assert_eq!(told["data"]["lines"][0], "Merged with origin: 1 task added");
    // Put off: 1.
    fs::rename(hub.path("hub.git"), hub.path("away.git")).unwrap();
    hub.add("a", "Three");
    let (code, words) = hub.fails("a", &["sync"]);
    assert_eq!(code, 1);
    assert!(
        words.contains("Sync put off: origin can't be reached"),
        "{words}"
    );
    let output = hub.tenure("a", &["sync", "--json"]);
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(told["success"], false);
    assert_eq!(told["error"]["code"], "SYNC_PUT_OFF");
    let told: Value =
        serde_json::from_str(&hub.says("a", &["sync", "--status", "--json"])).unwrap();
    assert_eq!(told["data"]["remotes"][0]["ahead"], 1);
    assert!(
        told["data"]["lastError"]
            .as_str()
            .unwrap()
            .contains("can't be reached")
    );
    let told = hub.says("a", &["sync", "--status"]);
    for words in [
        "Not shared yet: 0 changed tasks",
        "1 commit ahead, 0 commits behind when it was last asked",
        "Last sync: 20",
        "Last error: 20",
    ] {
        assert!(told.contains(words), "{told}");
    }
    fs::rename(hub.path("away.git"), hub.path("hub.git")).unwrap();
    assert_eq!(hub.says("a", &["sync"]), "Synced with origin.");
    let told = hub.says("b", &["sync", "--status"]);
    assert!(
        told.contains("origin (refs/tenure/tasks): 0 commits ahead, 1 commit behind"),
        "{told}"
    );
    // Locked: 6, with the line of the protocol.
    let lock = hub.path("a/.tenure/.exclusive-lock");
    let host = text(&Command::new("hostname").output().unwrap().stdout);
    let pid = std::process::id();
    fs::write(
        &lock,
        format!("{{\"holder\":\"tool\",\"pid\":{pid},\"hostname\":\"{host}\",\"started_at\":\"2026-01-01T00:00:00Z\",\"version\":\"1\"}}"),
    )
    .unwrap();
    let (code, words) = hub.fails("a", &["sync"]);
    assert_eq!(code, 6, "{words}");
    assert!(words.contains("locked by tool"), "{words}");
    fs::remove_file(&lock).unwrap();
    assert_eq!(hub.says("a", &["sync"]), "Nothing to sync.");
    // Off: said, and no error.
    fs::write(
        hub.path("a/.tenure/config.yaml"),
        "sync:\n  enabled: false\n",
    )
    .unwrap();
    let tip = hub.git("a", &["rev-parse", "refs/tenure/tasks"]);
    hub.add("a", "Four");
    assert_eq!(hub.says("a", &["sync"]), "Sync is off (sync.enabled).");
    assert_eq!(hub.git("a", &["rev-parse", "refs/tenure/tasks"]), tip);
    // No project: 3.
    let (code, words) = hub.fails("home", &["sync"]);
    assert_eq!(code, 3);
    assert!(words.contains("tenure init"), "{words}");
}

#[test]
fn the_log_says_who_changed_what_and_a_restore_needs_a_yes() {
    let hub = Hub::with_two();
    let id = hub.add("a", "One");
    hub.says("a", &["sync"]);
    hub.says("b", &["sync"]);
    hub.says(
        "b",
        &["tasks", "update", &id, "--title", "Uno", "--priority", "9"],
    );
    hub.says("b", &["sync"]);
    hub.says("a", &["sync"]);
    let told = hub.says("a", &["sync", "log"]);
    let lines: Vec<&str> = told.lines().collect();
    assert_eq!(lines.len(), 4, "{told}");
    assert!(lines[0].ends_with("  b"), "{told}");
    assert!(lines[1].ends_with("  Uno: title, priority"), "{told}");
    assert!(
        lines[2].ends_with("  a") && lines[3].ends_with("  One: added"),
        "{told}"
    );
    let told: Value =
        serde_json::from_str(&hub.says("a", &["sync", "log", "--json", "-n", "1"])).unwrap();
    assert_eq!(told["subcommand"], "log");
    let commits = told["data"]["commits"].as_array().unwrap();
    assert_eq!(
        (commits.len(), &commits[0]["changes"][0]["what"][0]),
        (1, &Value::from("title"))
    );
    // Without a terminal there is no one to ask.
    let first = lines[2].split(' ').next().unwrap();
    let (code, words) = hub.fails("a", &["sync", "--restore", first]);
    assert_eq!(code, 2, "{words}");
    assert!(
        words.contains("1 task set back") && words.contains("--yes"),
        "{words}"
    );
    assert_eq!(hub.titles("a"), ["Uno"]);
    let told = hub.says("a", &["sync", "--restore", first, "--yes"]);
    assert!(
        told.starts_with(&format!("Restored {first}: 1 task set back")),
        "{told}"
    );
    assert_eq!(hub.titles("a"), ["One"]);
    hub.says("a", &["sync"]);
    hub.says("b", &["sync"]);
    assert_eq!(hub.titles("b"), ["One"]);
    let (code, words) = hub.fails("a", &["sync", "--restore", "main", "--yes"]);
    assert_eq!(code, 4, "{words}");
    let (code, words) = hub.fails("a", &["sync", "--restore", "nonsense", "--yes"]);
    assert_eq!(code, 4);
    assert!(words.contains("tenure sync log lists them"), "{words}");
}

#[test]
fn only_init_and_sync_talk_to_the_remote_of_a_fresh_clone() {
    let hub = Hub::new();
    for n in 0..3 {
        hub.add("a", &n.to_string());
    }
    fs::write(hub.path("a/.tenure/config.yaml"), "run:\n  killGrace: 5s\n").unwrap();
    assert_eq!(
        hub.git("a", &["status", "--porcelain", "-uall"]),
        "?? .tenure/config.yaml"
    );
    hub.says("a", &["sync"]);
    hub.git(".", &["clone", "-q", "hub.git", "b"]);
    // A clone may come from anybody, and its settings name programs.
    fs::write(
        hub.path("ssh"),
        "#!/bin/sh\ntouch ${0%/*}/dialled\nexit 1\n",
    )
    .unwrap();
    fs::set_permissions(hub.path("ssh"), fs::Permissions::from_mode(0o755)).unwrap();
    let ssh = hub.path("ssh").display().to_string();
    hub.git("b", &["config", "core.sshCommand", &ssh]);
    hub.git(
        "b",
        &["remote", "set-url", "origin", "ssh://nowhere/hub.git"],
    );
    for words in [
        &["tasks", "list"][..],
        &["locks"],
        &["run", "build", "--", "true"],
        &["status"],
        &["why", "build"],
    ] {
        let (code, said) = hub.fails("b", words);
        assert_eq!(code, 3, "{words:?}: {said}");
    }
    assert!(!hub.path("dialled").exists());
    hub.git("b", &["remote", "set-url", "origin", "../hub.git"]);
    let told = hub.says("b", &["init"]);
    assert!(told.ends_with("\n3 tasks from origin."), "{told}");
    assert_eq!(hub.titles("b"), ["0", "1", "2"]);
    assert_eq!(hub.git("b", &["status", "--porcelain", "-uall"]), "");
    let again = hub.says("b", &["init"]);
    assert!(again.contains("nothing was changed"), "{again}");
    // With settings that are committed, the project is there already.
    hub.git("a", &["add", ".tenure/config.yaml"]);
    hub.git("a", &["commit", "-q", "-m", "Settings"]);
    hub.git("a", &["push", "-q"]);
    hub.git(".", &["clone", "-q", "hub.git", "c"]);
    hub.git("c", &["config", "core.sshCommand", &ssh]);
    hub.git(
        "c",
        &["remote", "set-url", "origin", "ssh://nowhere/hub.git"],
    );
    hub.says("c", &["tasks", "list"]);
    hub.says("c", &["run", "build", "--", "true"]);
    assert!(!hub.path("dialled").exists());
    hub.git("c", &["remote", "set-url", "origin", "../hub.git"]);
    hub.says("c", &["sync"]);
    assert_eq!(hub.titles("c").len(), 3);
    assert_eq!(hub.git("c", &["status", "--porcelain", "-uall"]), "");
    // A remote that is away is no reason to fail.
    fs::rename(hub.path("hub.git"), hub.path("away.git")).unwrap();
    hub.git(".", &["clone", "-q", "away.git", "d"]);
    hub.git("d", &["remote", "set-url", "origin", "../hub.git"]);
    fs::remove_dir_all(hub.path("d/.tenure")).unwrap();
    let told = hub.says("d", &["init"]);
    assert!(
        told.contains("Sync put off: origin can't be reached"),
        "{told}"
    );
}

#[test]
fn a_user_whose_name_git_does_not_know_can_share_tasks() {
    let hub = Hub::new();
    for key in ["user.name", "user.email"] {
        hub.git("a", &["config", "--unset", key]);
    }
    hub.git("a", &["config", "user.useConfigOnly", "true"]);
    hub.add("a", "One");
    let output = hub
        .program(TENURE, "a")
        .arg("sync")
        .env_remove("GIT_AUTHOR_NAME")
        .env_remove("GIT_AUTHOR_EMAIL")
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert_eq!(
        hub.git("a", &["log", "-1", "--format=%an", "refs/tenure/tasks"]),
        "tenure"
    );
}

#[test]
fn delete_names_what_is_gone_and_refuses_what_is_unknown_or_in_hand() {
    let project = Project::new();
    let add = |title: &str| {
        let said = project.call("tasks add -q").arg(title).end().exits(0);
        said.out.trim().to_owned()
    };
    let (one, two, three) = (add("One"), add("Two"), add("Three"));
    project
        .tenure(&format!("tasks update {two} --depends-on {one}"))
        .exits(0);
    project.tenure("tasks delete nothing-like-it").exits(4);
    // Unknown among others: nothing is deleted.
    project
        .tenure(&format!("tasks delete {one} nothing-like-it"))
        .exits(4);
    project.tenure(&format!("tasks show {one}")).exits(0);
    let said = project
        .tenure(&format!("tasks delete {one} {one} One"))
        .exits(0);
    assert_eq!(
        said.out.trim(),
        format!("Deleted task \"One\" ({one}). 1 task no longer waits for it.")
    );
    project.tenure(&format!("tasks delete {one}")).exits(4);
    project
        .tenure(&format!(
            "tasks update {two} --status in_progress --as agent"
        ))
        .exits(0);
    let said = project.tenure(&format!("tasks delete {two}")).exits(6);
    assert!(said.err.contains("agent"), "{}", said.err);
    let said = project
        .tenure(&format!("tasks delete {three} --json"))
        .exits(0);
    assert_eq!(said.json()["data"]["deleted"][0]["title"], "Three");
}

#[test]
fn a_section_is_removed_once_its_tasks_have_a_place_and_no_runner_holds_it() {
    let project = Project::new();
    for name in ["Backend", "Server"] {
        project.tenure(&format!("sections add {name}")).exits(0);
    }
    let add = "tasks add --section Backend -q";
    let one = project.tenure(&format!("{add} One")).exits(0).out;
    project.tenure(&format!("{add} Two")).exits(0);
    project.tenure("sections rm nothing-like-it").exits(4);
    // Its tasks need a place.
    let said = project.tenure("sections rm backend").exits(5);
    assert_eq!(
        said.err,
        "error: section \"Backend\" has 2 open tasks\n  to move them to another section: --move-to SECTION\n  \
         to leave them without a section: --move-to ''\n"
    );
    let said = project.tenure("sections rm Backend --json").exits(5).json();
    assert_eq!(said["error"]["code"], "SECTION_NOT_EMPTY");
    assert_eq!(said["error"]["details"]["tasks"], 2);
    project
        .tenure("sections rm Backend --move-to Backend")
        .exits(2);
    project
        .tenure("sections rm Backend --move-to Nowhere")
        .exits(4);
    // A runner works in it.
    let begin = format!(
        "tasks update {} --status in_progress --as agent-1",
        one.trim()
    );
    project.tenure(&begin).exits(0);
    let rm = "sections rm Backend --move-to Server --as agent-2";
    let said = project.tenure(rm).exits(6);
    assert!(
        said.err
            .starts_with("Error: Section \"Backend\" is locked by runner agent-1\n"),
        "{}",
        said.err
    );
    let said = project.tenure(&format!("{rm} --json")).exits(6).json();
    let details = &said["error"]["details"];
    assert_eq!(said["error"]["code"], "SECTION_LOCKED");
    assert_eq!(details["lockedBy"], "agent-1");
    assert!(details["expiresAt"].is_string(), "{details}");
    assert!(details.get("taskId").is_none(), "{details}");
    // Nor may the runner itself take it from its own task.
    project
        .tenure("sections rm Backend --move-to Server --as agent-1")
        .exits(6);
    project.tenure("tasks release One --as agent-1").exits(0);
    let said = project.tenure(rm).exits(0);
    assert_eq!(
        said.out,
        "Deleted section \"Backend\"; 2 tasks moved to \"Server\".\n"
    );
    let said = project.tenure("locks history --json").exits(0).json();
    let events = said["data"]["events"].as_array().unwrap();
    let event = events.iter().find(|event| event["event"] == "deleted");
    assert_eq!(event.unwrap()["holder"], "agent-2");
    assert_eq!(
        event.unwrap()["reason"],
        "section \"Backend\"; 2 tasks moved to \"Server\""
    );
    let said = project.tenure("tasks show One").exits(0);
    assert!(said.out.contains("Server"), "{}", said.out);
    let said = project
        .call("sections delete Server --json --move-to")
        .arg("")
        .end()
        .exits(0)
        .json();
    assert_eq!(said["subcommand"], "rm");
    assert_eq!(said["data"]["name"], "Server");
    assert_eq!(said["data"]["moved"], 2);
    assert!(said["data"]["movedTo"].is_null());
    let said = project.tenure("sections list").exits(0);
    assert!(said.out.starts_with("No sections."), "{}", said.out);
    // Its name is free.
    project.tenure("sections add Backend").exits(0);
    project.tenure("sections rm Backend -q").exits(0);
}

#[test]
fn a_section_that_one_clone_removes_stays_only_for_the_tasks_that_another_put_into_it() {
    let hub = Hub::with_two();
    let sections = |clone: &str| -> Vec<String> {
        let told = hub.says(clone, &["sections", "list", "--json"]);
        let answer: Value = serde_json::from_str(&told).unwrap();
        let sections = answer["data"]["sections"].as_array().unwrap();
        let names = sections.iter().map(|section| section["name"].as_str());
        names.map(|name| name.unwrap().to_owned()).collect()
    };
    let sync = |clones: &[&str]| {
        for clone in clones {
            hub.says(clone, &["sync"]);
        }
    };
    for name in ["Backend", "Docs"] {
        hub.says("a", &["sections", "add", name]);
    }
    sync(&["a", "b"]);
    assert_eq!(sections("b"), ["Backend", "Docs"]);
    // Removed in one clone; edited in the other, which does not know.
    hub.says("a", &["sections", "rm", "Docs"]);
    hub.says("a", &["sections", "rm", "Backend"]);
    hub.says("b", &["tasks", "add", "Write it", "--section", "Backend"]);
    sync(&["b", "a", "b"]);
    for clone in ["a", "b"] {
        assert_eq!(sections(clone), ["Backend"], "{clone}");
    }
    let said = hub.says("a", &["tasks", "show", "Write it"]);
    assert!(said.contains("Backend"), "{said}");
    // What an earlier tenure reads of it names every section that there was, so it has nothing to write back.
    let show = |file: &str| hub.git("hub.git", &["show", &format!("refs/tenure/tasks:{file}")]);
    assert_eq!(show("sections.jsonl").lines().count(), 2);
    let changes = show("section_changes.jsonl");
    assert!(
        changes.contains(r#"{"kind":"section_deleted","name":"Docs","at":"#),
        "{changes}"
    );
    // Once its last task has left, it is gone everywhere.
    let said = hub.says("b", &["tasks", "update", "Write it", "--section", ""]);
    assert!(said.contains("updated"), "{said}");
    sync(&["b", "a"]);
    for clone in ["a", "b"] {
        assert_eq!(sections(clone), Vec::<String>::new(), "{clone}");
        assert_eq!(
            hub.says(clone, &["sync"]).trim(),
            "Nothing to sync.",
            "{clone}"
        );
    }
    // Added again, it is there again. A fresh clone gets no section that was removed.
    hub.says("b", &["sections", "add", "Docs"]);
    sync(&["b", "a"]);
    assert_eq!(sections("a"), ["Docs"]);
    hub.git(".", &["clone", "-q", "hub.git", "c"]);
    hub.name("c");
    hub.says("c", &["init"]);
    sync(&["c"]);
    assert_eq!(sections("c"), ["Docs"]);
}

#[test]
fn of_several_tasks_all_are_deleted_or_none() {
    let project = Project::new();
    for title in ["One", "Two"] {
        project.tenure(&format!("tasks add {title}")).exits(0);
    }
    project
        .tenure("tasks update Two --status in_progress --as agent")
        .exits(0);
    project.tenure("tasks delete One Two").exits(6);
    project.tenure("tasks show One").exits(0);
}

#[test]
fn the_history_of_a_task_can_be_read() {
    let hub = Hub::with_two();
    let id = hub.add("a", "One");
    for clone in ["a", "b"] {
        hub.says(clone, &["sync"]);
    }
    hub.says("a", &["tasks", "update", &id, "--title", "By a"]);
    hub.says("b", &["tasks", "update", &id, "--title", "By b"]);
    for clone in ["b", "a", "b"] {
        hub.says(clone, &["sync"]);
    }
    let in_a = hub.says("a", &["tasks", "show", &id]);
    assert!(in_a.contains("Task:        By b"), "{in_a}");
    assert!(in_a.contains("title was \"By a\" until"), "{in_a}");
    assert!(in_a.contains("(changed in another clone)"), "{in_a}");
    assert!(in_a.contains("title was \"One\" until"), "{in_a}");
    let in_b = hub.says("b", &["tasks", "show", &id]);
    assert!(in_b.contains("title was \"One\" until"), "{in_b}");
    let told: Value =
        serde_json::from_str(&hub.says("a", &["tasks", "show", &id, "--json"])).unwrap();
    let history = told["data"]["history"].as_array().unwrap();
    assert_eq!(history.len(), 2, "{history:?}");
    assert_eq!(history[0]["cause"], "merged");
}

// Where it is started.

#[test]
fn what_git_leaves_in_the_environment_leads_nowhere_else() {
    let hub = Hub::new();
    for (number, (name, value)) in [
        ("GIT_DIR", "/nowhere"),
        ("GIT_WORK_TREE", "/nowhere"),
        ("GIT_INDEX_FILE", "/nowhere/index"),
        ("GIT_OBJECT_DIRECTORY", "/nowhere"),
        ("GIT_CONFIG", "/nowhere"),
        ("GIT_QUARANTINE_PATH", "/nowhere"),
        ("GIT_LITERAL_PATHSPECS", "1"),
        ("GIT_GLOB_PATHSPECS", "1"),
        ("GIT_NOGLOB_PATHSPECS", "1"),
        ("GIT_ICASE_PATHSPECS", "1"),
    ]
    .iter()
    .enumerate()
    {
        hub.add("a", &format!("{number}"));
        let output = hub
            .program(TENURE, "a")
            .arg("sync")
            .env(name, value)
            .output()
            .unwrap();
        assert_eq!(
            text(&output.stdout),
            "Synced with origin.",
            "{name}: {}",
            text(&output.stderr)
        );
    }
}

#[test]
fn a_hook_after_a_commit_may_sync() {
    let hub = Hub::new();
    script(
        &hub.path("a/.git/hooks/post-commit"),
        &format!("{TENURE} tasks add Hooked && {TENURE} sync"),
    );
    fs::write(hub.path("a/code.txt"), "two\n").unwrap();
    hub.git("a", &["commit", "-q", "-am", "Mine"]);
    assert_eq!(hub.git("a", &["log", "-1", "--format=%s"]), "Mine");
    assert_eq!(hub.git("a", &["status", "--porcelain"]), "");
    let log = hub.says("a", &["sync", "log"]);
    assert!(log.contains("Hooked: added"), "{log}");
}

#[test]
fn eight_syncs_at_once_in_one_clone_all_end_well() {
    let hub = Hub::with_two();
    for round in 0..3 {
        hub.add("a", &format!("a {round}"));
        hub.add("b", &format!("b {round}"));
        let started: Vec<_> = (0..8)
            .map(|number| {
                let clone = if number < 6 { "a" } else { "b" };
                hub.program(TENURE, clone)
                    .arg("sync")
                    .stdout(Stdio::piped())
                    .stderr(Stdio::piped())
                    .spawn()
                    .unwrap()
            })
            .collect();
        for sync in started {
            let output = sync.wait_with_output().unwrap();
            assert!(output.status.success(), "{}", text(&output.stderr));
        }
    }
    for clone in ["a", "b", "a"] {
        hub.says(clone, &["sync"]);
    }
    assert_eq!(hub.titles("a"), hub.titles("b"));
    assert_eq!(hub.titles("a").len(), 6);
    assert_eq!(
        hub.git("a", &["rev-parse", "refs/tenure/tasks"]),
        hub.git("b", &["rev-parse", "refs/tenure/tasks"])
    );
}

// Killed, and outlived by its git.

#[test]
fn a_fetch_that_another_one_outran_is_tried_again() {
    let hub = Hub::with_two();
    hub.add("b", "Two");
    hub.says("b", &["sync"]);
    // In git's words: the user fetches at the same time, or a git that outlived its sync does.
    let path = hub.with_git(
        "*' fetch '*) if mkdir $D/outrun 2>/dev/null; then
             echo \"error: cannot lock ref 'refs/tenure/remotes/origin/tasks': is at 1 but expected 2\" >&2; exit 1
         fi;;",
    );
    let output = hub
        .program(TENURE, "a")
        .arg("sync")
        .env("PATH", path)
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", text(&output.stderr));
    assert!(hub.path("outrun").exists());
    assert_eq!(hub.titles("a"), ["Two"]);
}

/// Every lock file in a repository.
fn locks(hub: &Hub, place: &str) -> String {
    let found = hub
        .program("find", place)
        .args([".git", "-path", ".git/tenure", "-prune", "-o"])
        .args(["-name", "*.lock", "-print"])
        .output();
    text(&found.unwrap().stdout)
}

#[test]
fn a_sync_that_is_killed_with_its_git_at_any_moment_is_made_good_by_the_next() {
    let hub = Hub::with_two();
    // Something staged, changed, and not published.
    fs::write(hub.path("a/mine.txt"), "mine\n").unwrap();
    hub.git("a", &["add", "mine.txt"]);
    hub.git("a", &["commit", "-q", "-m", "Mine"]);
    fs::write(hub.path("a/staged.txt"), "staged\n").unwrap();
    hub.git("a", &["add", "staged.txt"]);
    fs::write(hub.path("a/code.txt"), "changed\n").unwrap();
    hub.says("a", &["sync"]);
    let mut seed = u64::from(std::process::id());
    println!("seed {seed}");
    let mut below = |end: u64| {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % end
    };
    let kills = scaled(40);
    let mut cut = 0;
    // As long as a sync takes, so that every step of it is reached: some come to their end.
    let mut longest = 200_000;
    for round in 0..kills {
        hub.add("a", &format!("a {round}"));
        if round % 10 == 0 {
            hub.add("b", &format!("b {round}"));
            hub.says("b", &["sync"]);
        }
        let mut sync = hub
            .program(TENURE, "a")
            .arg("sync")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .process_group(0)
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_micros(below(longest)));
        let group = Pid::from_raw(i32::try_from(sync.id()).unwrap()).unwrap();
        let _ = kill_process_group(group, Signal::KILL);
        if sync.wait().unwrap().success() {
            longest = longest * 7 / 8;
        } else {
            cut += 1;
            longest += longest / 24;
        }
        if round % 10 == 9 {
            // By itself.
            hub.says("a", &["sync"]);
            assert_eq!(locks(&hub, "a"), "");
            assert_eq!(
                hub.git("a", &["status", "--porcelain"]),
                " M code.txt\nA  staged.txt",
                "round {round}"
            );
        }
    }
    println!("{cut} of {kills} were cut off");
    assert!(cut > kills / 3);
    for clone in ["b", "a", "b"] {
        hub.says(clone, &["sync"]);
    }
    assert_eq!(hub.titles("a").len(), kills + kills / 10);
    assert_eq!(hub.titles("a"), hub.titles("b"));
    for place in ["a", "b", "hub.git"] {
        hub.git(place, &["fsck", "--no-progress"]);
    }
}

#[test]
fn a_sync_that_is_killed_before_or_after_any_of_its_gits_is_made_good_by_the_next() {
    let hub = Hub::with_two();
    hub.add("b", "First");
    hub.says("b", &["sync"]);
    // The git of this number kills its parent, before it begins or after it ended.
    let path = hub.with_git(
        "*) n=$(cat $D/count 2>/dev/null || echo 0); n=$((n + 1)); echo $n > $D/count
            case $(cat $D/kill) in
            before-$n) kill -9 $PPID; exit 1;;
            after-$n) $REAL \"$@\"; kill -9 $PPID; exit 1;;
            git-$n) $REAL \"$@\" & sleep 0.005; kill -9 $!; wait $!; exit 137;;
            esac;;",
    );
    let (mut added, mut killed) = (1, 0);
    let mut last: Option<String> = None;
    for when in ["before", "after", "git"] {
        for number in 1.. {
            // Both sides changed something, so that a sync has to do everything that it can do.
            hub.add("a", &format!("a {when} {number}"));
            hub.add("b", &format!("b {when} {number}"));
            hub.says("b", &["sync"]);
            hub.says("a", &["sections", "add", &format!("{when} {number}")]);
            if let Some(last) = last.replace(format!("{when} {number}")) {
                hub.says("a", &["sections", "rm", &last]);
            }
            added += 2;
            fs::write(hub.path("kill"), format!("{when}-{number}")).unwrap();
            let _ = fs::remove_file(hub.path("count"));
            let sync = hub
                .program(TENURE, "a")
                .arg("sync")
                .env("PATH", &path)
                .output()
                .unwrap();
            let gits: u32 = fs::read_to_string(hub.path("count"))
                .unwrap()
                .trim()
                .parse()
                .unwrap();
            killed += u32::from(!sync.status.success());
            // The next one is not disturbed.
            hub.says("a", &["sync"]);
            assert_eq!(hub.titles("a").len(), added, "{when} {number}");
            assert_eq!(locks(&hub, "a"), "", "{when} {number}");
            if gits < number {
                break;
            }
        }
    }
    println!("{killed} syncs were killed");
    assert!(killed > 16, "{killed}");
    for clone in ["b", "a"] {
        hub.says(clone, &["sync"]);
    }
    assert_eq!(hub.titles("a"), hub.titles("b"));
    for clone in ["a", "b"] {
        let sections = hub.says(clone, &["sections", "list", "--json"]);
        let sections: Value = serde_json::from_str(&sections).unwrap();
        let sections = sections["data"]["sections"].as_array().unwrap();
        assert_eq!(sections.len(), 1, "{sections:?}");
        assert_eq!(sections[0]["name"].as_str(), last.as_deref());
    }
    for place in ["a", "b", "hub.git"] {
        hub.git(place, &["fsck", "--no-progress"]);
    }
    assert_eq!(hub.git("a", &["status", "--porcelain"]), "");
}

// No space.

#[test]
fn a_full_disk_is_said_and_all_is_well_once_there_is_space() {
    let root = rustix::process::geteuid().is_root();
    let unshare = |script: &str| {
        let mut command = Command::new("unshare");
        default_signals(&mut command)
            .arg(if root { "-m" } else { "-rm" })
            .args(["sh", "-c", script]);
        command
    };
    let dir = tempfile::tempdir().unwrap();
    let mount = format!(
        "mount -t tmpfs -o size=6m,mode=0777 small {}",
        dir.path().display()
    );
    let possible = unshare(&mount).stderr(Stdio::null()).status();
    if !possible.is_ok_and(|status| status.success()) {
        tenure_testkit::left_out("unshare can't mount a small file system here");
        return;
    }
    // With less and less room, so that it ends at one step after the other.
    let story = format!(
        r#"{mount} && cd {dir} || exit 90
        export HOME=$PWD GIT_CONFIG_GLOBAL=/dev/null
        git init -q --bare -b main hub.git && git clone -q hub.git a 2>/dev/null && cd a || exit 91
        git config user.name a; git config user.email a@example.org
        {TENURE} init -q; echo code > code; echo staged > staged; git add code; git commit -qm Mine; git push -q
        git add staged
        {TENURE} tasks add First -q > /dev/null; {TENURE} sync || exit 92
        full=0; done=1
        for room in 0 1 2 3 4 6 8 10 12 14 16 20 24 28 32 40 48 64 96 128; do
            {TENURE} tasks add "With $room" -q > /dev/null || exit 93
            dd if=/dev/zero of=../ballast bs=1k 2>/dev/null
            dd if=/dev/zero of=../ballast bs=1k count=0 seek=$(( $(stat -c %s ../ballast) / 1024 - room )) 2>/dev/null
            {TENURE} sync > ../said 2>&1 && done=$((done+1)) || full=$((full+1))
            rm ../ballast
            {TENURE} sync > ../said 2>&1 || {{ cat ../said; exit 95; }}
            [ ! -e .git/index.lock ] || exit 96
            [ "$(git diff --cached --name-only)" = staged ] || exit 97
            {TENURE} sync log | grep -q "With $room: added" || exit 98
            find .git -path .git/tenure -prune -o \( -name '*.lock' -o -name '*crash*' \) -print | grep -q . && exit 94
        done
        git fsck --no-progress || exit 99
        [ $(git -C ../hub.git ls-tree -r --name-only refs/tenure/tasks | grep -c /) = 21 ] || exit 100
        echo "$full times full, $done times done"
        "#,
        dir = dir.path().display()
    );
    let output = unshare(&story).output().unwrap();
    let said = text(&output.stdout);
    assert_eq!(
        output.status.code(),
        Some(0),
        "{said}\n{}",
        text(&output.stderr)
    );
    println!("{said}");
    assert!(!said.contains("0 times full"), "{said}");
}
