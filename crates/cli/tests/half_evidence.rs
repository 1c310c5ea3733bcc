//! What is damaged, or can't be looked at, is named: no command answers who holds what on the rest of the evidence.
//!
//! The table is of damages and of commands that look. What a command must not say needs no list: it must say what is damaged.

use std::fs::{self, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use serde_json::{Value, json};

use crate::project::{Project, Said, until};

/// The commands that read the project's own store.
const STORE: [&str; 16] = [
    "why .",
    "why src/a",
    "why **",
    "why build",
    "why paths",
    "status",
    "check src/a --as bob",
    "locks",
    "locks list --all",
    "locks show build",
    "reservations",
    "ask src/a --as bob",
    "ask build --as bob",
    "timeline",
    "doctor",
    "guard status",
];

/// The commands that look at everything that is in the project.
const EVERYTHING: [&str; 3] = ["locks list --all", "status", "doctor"];

/// A project with something in every store: `alice` has reserved `src` and holds `build`.
fn project() -> Project {
    let project = Project::uninitialised();
    let script = "git init -q -b main . && git config user.name t && git config user.email t@t && \
         mkdir -p src .bilu/board/tasks .bilu/storage .beads proof && echo 1 > src/a && git add src && \
         git commit -q -m one && echo 2 > src/a && git add src";
    project.shell(script).end().exits(0);
    for words in [
        "init -q",
        "reserve src --as alice --for 1h",
        "acquire build --as alice --ttl 1h",
        "ledger init proof",
        "guard install -q",
    ] {
        project.tenure(words).exits(0);
    }
    project
}

/// Puts a link that leads to itself in the place of something.
fn make_loop(path: &Path) {
    fs::rename(path, path.with_extension("away")).unwrap();
    symlink(path.file_name().unwrap(), path).unwrap();
}

/// What is wrong, what makes it so, and the words of which an answer has to have one.
struct Damage {
    what: &'static str,
    make: fn(&Project),
    named: &'static [&'static str],
}

const fn damage(what: &'static str, make: fn(&Project), named: &'static [&'static str]) -> Damage {
    Damage { what, make, named }
}

/// Answers that don't say what is damaged.
#[derive(Default)]
struct Silent(Vec<String>);

impl Silent {
    fn add(&mut self, damage: &Damage, words: &str, said: &Said) {
        let text = format!("{}{}", said.out, said.err);
        if !damage.named.iter().any(|word| text.contains(word)) {
            self.0.push(format!(
                "{}: tenure {words} (exit {}): {text}",
                damage.what, said.code
            ));
        }
    }

    /// Runs commands that end.
    fn run(&mut self, project: &Project, damage: &Damage, all: &[&str]) {
        for words in all {
            self.add(damage, words, &project.tenure(words));
        }
    }

    /// `watch` goes on until it is killed, unless it can't begin.
    fn watch(&mut self, project: &Project, damage: &Damage) {
        let mut watch = project.start("watch");
        let is_named = |text: &str| damage.named.iter().any(|word| text.contains(word));
        until("watch says what it sees", || {
            let text = watch.out() + &watch.err();
            is_named(&text) || !watch.runs()
        });
        self.add(damage, "watch", &watch.killed());
    }

    /// A hook of an agent, before it edits a file that another holder has reserved. It goes on or refuses, and says why.
    fn agent(&mut self, project: &Project, damage: &Damage) {
        let event = json!({
            "session_id": "s", "cwd": project.root(), "hook_event_name": "PreToolUse", "tool_name": "Edit",
            "tool_input": { "file_path": project.path("src/a"), "content": "x" },
        });
        let hook = project.shell("printf '%s' \"$EVENT\" | \"$TENURE\" hook claude-code");
        let said = hook.env("EVENT", event.to_string()).end();
        self.add(damage, "hook claude-code", &said);
    }

    /// A commit of what another holder has reserved. Git asks the guard.
    fn commit(&mut self, project: &Project, damage: &Damage) {
        let commit = project.shell("git commit -q -m two");
        let said = commit.env("TENURE_HOLDER", "bob").end();
        self.add(damage, "guard hook (git commit)", &said);
    }

    #[track_caller]
    fn is_none(&self) {
        assert!(self.0.is_empty(), "{}", self.0.join("\n\n"));
    }
}

/// The database, and what leads to it.
const OWN: [Damage; 7] = [
    damage(
        "the folder of the state is a loop",
        |project| make_loop(&project.path(".git/tenure")),
        &[".git/tenure"],
    ),
    damage(
        "the folder of the state is a file",
        |project| {
            let state = project.path(".git/tenure");
            fs::rename(&state, state.with_extension("away")).unwrap();
            fs::write(state, "").unwrap();
        },
        &[".git/tenure"],
    ),
    damage(
        "the database is a loop",
        |project| make_loop(&project.path(".git/tenure/tenure.db")),
        &["tenure.db"],
    ),
    damage(
        "the database is a link to a disk that is not there",
        |project| {
            let database = project.path(".git/tenure/tenure.db");
            fs::rename(&database, database.with_extension("away")).unwrap();
            symlink("/nowhere/tenure.db", database).unwrap();
        },
        &["tenure.db"],
    ),
    damage(
        "the database is a folder",
        |project| {
            let database = project.path(".git/tenure/tenure.db");
            fs::rename(&database, database.with_extension("away")).unwrap();
            fs::create_dir(database).unwrap();
        },
        &["tenure.db"],
    ),
    damage(
        "the database is no database",
        |project| {
            for end in ["-wal", "-shm"] {
                let _ = fs::remove_file(project.path(&format!(".git/tenure/tenure.db{end}")));
            }
            fs::write(project.database(), "x".repeat(9000)).unwrap();
        },
        &["tenure.db"],
    ),
    damage(
        "the folder of the state may not be searched",
        |project| lock(&project.path(".git/tenure")),
        &[".git/tenure"],
    ),
];

/// Takes every right away from a folder.
fn lock(path: &Path) {
    fs::set_permissions(path, Permissions::from_mode(0o000)).unwrap();
}

/// Gives rights back, so that the test can remove what it made.
fn unlock(path: &Path) {
    if path.exists() {
        fs::set_permissions(path, Permissions::from_mode(0o755)).unwrap();
    }
}

/// Whether file modes keep this user out of a folder.
fn modes_count() -> bool {
    if rustix::process::geteuid().is_root() {
        tenure_testkit::left_out("no mode keeps root out of a folder");
        return false;
    }
    true
}

#[test]
fn no_command_answers_without_the_store_that_it_reads() {
    let mut silent = Silent::default();
    for damage in &OWN {
        if damage.what.contains("searched") && !modes_count() {
            continue;
        }
        let project = project();
        (damage.make)(&project);
        silent.run(&project, damage, &STORE);
        silent.watch(&project, damage);
        silent.agent(&project, damage);
        silent.commit(&project, damage);
        unlock(&project.path(".git/tenure"));
    }
    silent.is_none();
}

#[test]
fn no_command_takes_a_project_that_cannot_be_found_for_none() {
    let mut silent = Silent::default();
    for damage in [
        damage(
            "the mark of the project is a loop",
            |project| {
                // Nothing in the repository says that there is a project.
                fs::remove_dir_all(project.path(".git/tenure")).unwrap();
                make_loop(&project.path(".tenure"));
            },
            &[".tenure"],
        ),
        damage(
            "git's folder is a loop",
            |project| make_loop(&project.path(".git")),
            &[".git"],
        ),
        damage(
            "git's folder is a link to a repository that is gone",
            |project| {
                fs::rename(project.path(".git"), project.path("away")).unwrap();
                project.write(".git", "gitdir: /nowhere/worktrees/linked\n");
            },
            &["linked git worktree"],
        ),
    ] {
        let project = project();
        (damage.make)(&project);
        silent.run(&project, &damage, &STORE);
        silent.run(&project, &damage, &["daemon status"]);
        silent.watch(&project, &damage);
        silent.agent(&project, &damage);
        // With a store that is named, the settings of the project are missing.
        for words in [
            "why build",
            "check src/a",
            "reservations",
            "locks list --all",
        ] {
            let named = project.call(words).env("TENURE_STORE", "exclusive:.beads");
            silent.add(&damage, &format!("{words} (TENURE_STORE)"), &named.end());
        }
        for words in ["ledger claims --dir proof", "ledger log --dir proof"] {
            silent.run(&project, &damage, &[words]);
        }
    }
    silent.is_none();
}

#[test]
fn a_part_that_cannot_be_looked_at_is_named_beside_the_others() {
    let mut silent = Silent::default();
    for (damage, more) in [
        (
            damage(
                "the folder with the board is a loop",
                |project| make_loop(&project.path(".bilu")),
                &[".bilu"],
            ),
            &["why board", "board list"][..],
        ),
        (
            damage(
                "the folder of the board's lock is a loop",
                |project| make_loop(&project.path(".bilu/storage")),
                &[".bilu/storage"],
            ),
            &["why board"],
        ),
        (
            damage(
                "the folder of the exclusive lock is a loop",
                |project| make_loop(&project.path(".beads")),
                &[".beads"],
            ),
            &["why database"],
        ),
        (
            damage(
                "the events of a ledger are a loop",
                |project| make_loop(&project.path("proof/ledger")),
                &["proof/ledger"],
            ),
            &["why node:1", "ledger claims --dir proof"],
        ),
        (
            damage(
                "the database of another program is a loop",
                |project| {
                    fs::create_dir(project.path(".steroids")).unwrap();
                    fs::write(project.path(".steroids/steroids.db"), "").unwrap();
                    make_loop(&project.path(".steroids/steroids.db"));
                },
                &["steroids.db"],
            ),
            &["why task:1"],
        ),
        (
            damage(
                "the folder of cargo is a loop of links below",
                |project| {
                    fs::create_dir_all(project.path("target/debug")).unwrap();
                    make_loop(&project.path("target"));
                },
                &["target"],
            ),
            &[],
        ),
    ] {
        let project = project();
        (damage.make)(&project);
        silent.run(&project, &damage, &EVERYTHING);
        silent.run(&project, &damage, more);
        silent.watch(&project, &damage);
        // What could be read is still shown.
        let all = project.tenure("locks list --all").exits(0);
        assert!(all.out.contains("build"), "{}: {all:?}", damage.what);
        for words in more.iter().filter(|words| words.starts_with("why")) {
            let said = project.tenure(&format!("{words} --json"));
            let why: Value = said.json();
            assert_eq!(why["data"]["free"], false, "{}: {said:?}", damage.what);
        }
        // And what nothing else could hold is free.
        if damage.what.contains("ledger") {
            let why = project.tenure("why other --json").exits(0).json();
            assert_eq!(why["data"]["free"], true, "{why}");
        }
    }
    silent.is_none();
}

#[test]
fn a_session_that_cannot_be_looked_up_makes_its_agent_no_stranger() {
    let mut silent = Silent::default();
    let project = project();
    let damage = damage(
        "the sessions of agents are a loop",
        |project| {
            fs::create_dir_all(project.path(".git/tenure/sessions")).unwrap();
            make_loop(&project.path(".git/tenure/sessions"));
        },
        &["sessions can't be looked at"],
    );
    (damage.make)(&project);
    silent.run(&project, &damage, &["status", "why build", "check src/a"]);
    let commit = project.shell("git commit -q -m two").end();
    silent.add(&damage, "guard hook (git commit)", &commit.exits(0));
    silent.is_none();
    // A name is the way out.
    project.tenure("why build --as bob").exits(0);
}

#[test]
fn a_record_of_the_guard_that_cannot_be_understood_is_named() {
    let project = project();
    let records = project.path(".git/tenure/guard-commits.jsonl");
    let text = fs::read_to_string(&records).unwrap();
    assert!(text.contains("\"before\""), "{text}");
    fs::write(&records, text.replace("\"before\"", "\"never\"")).unwrap();
    let named = ["guard-commits", "can't be understood"];
    project.tenure("guard status").fails(1, &named);
    let push =
        "git init -q --bare ../there && git remote add there ../there && git push -q there main";
    let said = project.shell(push).end().exits(0);
    assert!(said.err.contains("the guard checked nothing"), "{said:?}");
    assert!(named.iter().all(|word| said.err.contains(word)), "{said:?}");
    // Where the guard is strict, nothing passes that it can't check.
    project.write(".tenure/config.yaml", "guard:\n  strict: true\n");
    let strict = "git init -q --bare ../second && git remote add second ../second && git push -q second main";
    let said = project.shell(strict).end();
    assert!(
        said.code != 0 && said.err.contains("guard-commits"),
        "{said:?}"
    );
}
