//! Files that another user planted in a project (G10): links, named pipes, second names, folders and files of
//! 40 GB in the place of every file that tenure opens.
//!
//! The folder may be written by everyone, so that the test need not be root: what its own user plants there is
//! refused as if another user had.

use crate::project;

use std::fs::{self, File, Permissions};
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Path, PathBuf};

use project::{Project, Said};

/// What is planted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Planted {
    Link,
    Dangling,
    LinkToFolder,
    SecondName,
    Pipe,
    Folder,
    Sparse,
}

const ALL: [Planted; 7] = [
    Planted::Link,
    Planted::Dangling,
    Planted::LinkToFolder,
    Planted::SecondName,
    Planted::Pipe,
    Planted::Folder,
    Planted::Sparse,
];

/// Longer than any of the commands takes on a loaded machine.
const LIMIT: &str = "timeout --kill-after=5 120";

/// A project that everyone may write, and the private files of its user.
struct Shared {
    project: Project,
    private: PathBuf,
}

impl Shared {
    fn new() -> Self {
        let project = Project::uninitialised();
        fs::set_permissions(project.root(), Permissions::from_mode(0o777)).unwrap();
        let private = project.home().join("private");
        fs::create_dir(&private).unwrap();
        fs::write(private.join("victim"), "mine\n").unwrap();
        fs::create_dir(private.join("folder")).unwrap();
        for name in ["guard", "history", "state.a", "next", "pid", "daemon.json"] {
            fs::write(private.join("folder").join(name), "mine\n").unwrap();
        }
        Self { project, private }
    }

    fn run(&self, words: &str) -> Said {
        self.project
            .shell(&format!("{LIMIT} $TENURE {words}"))
            .end()
    }

    /// What is in the private files, and which there are.
    fn picture(&self) -> Vec<(PathBuf, Vec<u8>, u32)> {
        let mut all = Vec::new();
        let mut folders = vec![self.private.clone()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                let mode = path.symlink_metadata().unwrap().permissions().mode();
                if path.is_dir() {
                    folders.push(path.clone());
                    all.push((path, Vec::new(), mode));
                } else {
                    all.push((path.clone(), fs::read(&path).unwrap(), mode));
                }
            }
        }
        all.sort();
        all
    }

    fn plant(&self, what: Planted, path: &Path) {
        match what {
            Planted::Link => symlink(self.private.join("victim"), path).unwrap(),
            Planted::Dangling => symlink(self.private.join("nothing"), path).unwrap(),
            Planted::LinkToFolder => symlink(self.private.join("folder"), path).unwrap(),
            Planted::SecondName => fs::hard_link(self.private.join("victim"), path).unwrap(),
            Planted::Pipe => {
                let made = self.project.program("mkfifo").arg(path).status();
                assert!(made.unwrap().success());
            }
            Planted::Folder => fs::create_dir(path).unwrap(),
            Planted::Sparse => File::create(path).unwrap().set_len(40 << 30).unwrap(),
        }
    }

    /// Plants everything at each of these names, one after another, and runs the commands. Each ends in time, and
    /// the private files stay as they are. One of them names what is in its way, unless it is not in the way.
    fn attack(&self, names: &[&str], commands: &[&str], must_name: &[Planted]) {
        let before = self.picture();
        for name in names {
            let (path, aside) = (self.project.path(name), self.project.path("moved-aside"));
            for what in ALL {
                let was_there = fs::rename(&path, &aside).is_ok();
                self.plant(what, &path);
                let mut named = false;
                let mut all = Vec::new();
                for words in commands {
                    let said = self.run(words);
                    let context = format!("{what:?} at {name}: {words}: {said:?}");
                    assert!(![124, 137].contains(&said.code), "it hangs: {context}");
                    assert!(!said.err.contains("panicked"), "{context}");
                    assert_eq!(self.picture(), before, "{context}");
                    let file = Path::new(name).file_name().unwrap().to_str().unwrap();
                    named |= said.err.contains(file) || said.out.contains(file);
                    all.push(said);
                }
                if must_name.contains(&what) {
                    assert!(named, "{what:?} at {name} is not named: {all:?}");
                }
                match path.symlink_metadata() {
                    Ok(known) if known.is_dir() => fs::remove_dir_all(&path).unwrap(),
                    Ok(_) => fs::remove_file(&path).unwrap(),
                    Err(_) => {}
                }
                if was_there {
                    fs::rename(&aside, &path).unwrap();
                }
            }
        }
        for words in commands {
            let said = self.run(words);
            assert!(
                ![1, 124, 137].contains(&said.code),
                "afterwards, {words}: {said:?}"
            );
        }
    }
}

const REFUSED: [Planted; 4] = [
    Planted::Link,
    Planted::Dangling,
    Planted::LinkToFolder,
    Planted::Pipe,
];

#[test]
fn nothing_planted_in_the_place_of_the_database_is_followed_or_waited_for() {
    let shared = Shared::new();
    shared.run("init -q").exits(0);
    shared.run("run build -- true").exits(0);
    let commands = [
        "run build --no-wait -- true",
        "status",
        "locks list",
        "doctor",
        "tasks list",
    ];
    let files = [
        "tenure.db",
        "tenure.db-wal",
        "tenure.db-shm",
        "tenure.db-journal",
    ];
    let files = files.map(|name| format!(".tenure/{name}"));
    shared.attack(&files.each_ref().map(String::as_str), &commands, &REFUSED);
    shared.attack(
        &[
            ".tenure/tenure.db-live",
            ".tenure/.gitignore",
            ".tenure/config.yaml",
        ],
        &commands,
        &[],
    );
}

#[test]
fn nothing_planted_in_the_place_of_the_daemons_and_the_syncs_files_is_followed_or_waited_for() {
    let shared = Shared::new();
    shared.run("init -q").exits(0);
    let files = [
        "daemon.json",
        "daemon.lock",
        "daemon.log",
        "daemon.json.new",
    ];
    let files = files.map(|name| format!(".tenure/{name}"));
    let commands = [
        "daemon status",
        "daemon start; $TENURE daemon stop",
        "doctor",
    ];
    shared.attack(&files.each_ref().map(String::as_str), &commands, &[]);
    shared
        .project
        .shell("git init -q && git -c user.name=a -c user.email=a commit -q --allow-empty -m a")
        .end()
        .exits(0);
    let files = ["sync.json", "sync.lock", "sync.json.new", "tasks.jsonl"];
    let files = files.map(|name| format!(".tenure/{name}"));
    shared.attack(
        &files.each_ref().map(String::as_str),
        &["sync", "sync status"],
        &[],
    );
}

#[test]
fn what_is_planted_where_a_lock_is_moved_to_does_not_become_the_lock() {
    let shared = Shared::new();
    let run = "run --store exclusive:. database --no-wait -- true";
    shared.run(run).exits(0);
    let before = shared.picture();
    let all = [
        Planted::Link,
        Planted::SecondName,
        Planted::Folder,
        Planted::Sparse,
    ];
    for what in all {
        let aside = shared.project.path(".exclusive-lock-tenure/aside");
        shared.plant(what, &aside);
        shared.run(run).exits(0);
        assert!(!shared.project.path(".exclusive-lock").exists(), "{what:?}");
        assert!(aside.symlink_metadata().is_err(), "{what:?}");
        assert_eq!(shared.picture(), before, "{what:?}");
        shared.run("exclusive status --dir .").exits(0);
    }
}

#[test]
fn nothing_planted_in_the_place_of_a_lock_files_records_is_followed_or_waited_for() {
    for (store, key, sidecar) in [
        ("exclusive:.", "database", ".exclusive-lock-tenure"),
        ("mkdir:lock", "board", ".lock-tenure"),
    ] {
        let shared = Shared::new();
        let run = format!("run --store {store} {key} --no-wait -- true");
        shared.run(&run).exits(0);
        let list = format!("locks list --store {store}");
        let history = format!("locks history {key} --store {store}");
        let mut commands = vec![run.as_str(), &list, &history];
        if store.starts_with("exclusive") {
            commands.push("exclusive status --dir .");
        }
        let inside = [
            "guard",
            "state.a",
            "state.b",
            "history",
            "ceiling",
            "live",
            ".gitignore",
        ];
        let inside = inside.map(|name| format!("{sidecar}/{name}"));
        let inside: Vec<&str> = inside.iter().map(String::as_str).collect();
        shared.attack(&inside, &commands, &[]);
        let private = ["next", "aside", "ceiling.new", "history.new"];
        let private = private.map(|name| format!("{sidecar}/{name}"));
        let private: Vec<&str> = private.iter().map(String::as_str).collect();
        shared.attack(&private, &commands, &[]);
        shared.attack(
            &[sidecar],
            &commands,
            &[Planted::Link, Planted::LinkToFolder],
        );
        if store.starts_with("mkdir") {
            let beside = [
                ".lock-tenure-next",
                ".lock-tenure-aside",
                ".lock-tenure-bin",
                "lock",
            ];
            shared.attack(&beside, &commands, &[]);
        } else {
            shared.attack(&[".exclusive-lock"], &commands, &[]);
        }
    }
}

#[test]
fn nothing_planted_in_the_place_of_a_ledgers_records_is_followed_or_waited_for() {
    let shared = Shared::new();
    shared.run("ledger init").exits(0);
    let claim = "run --store ledger:. node:1 --no-wait -- true";
    shared.run(claim);
    let commands = [
        claim,
        "ledger verify",
        "ledger log",
        "locks list --store ledger:.",
    ];
    let inside: Vec<String> = fs::read_dir(shared.project.path("ledger/.ledger-tenure"))
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .chain(
            [
                "checkpoint.a",
                "checkpoint.b",
                "batch",
                "aside",
                "endings",
                "reaping",
            ]
            .map(Into::into),
        )
        .map(|name| format!("ledger/.ledger-tenure/{name}"))
        .collect();
    let inside: Vec<&str> = inside.iter().map(String::as_str).collect();
    shared.attack(&inside, &commands, &[]);
    let outside = ["ledger/.ledger-tenure", "ledger/ledger.lock", "meta.json"];
    shared.attack(&outside, &commands, &[]);
}

#[test]
fn nothing_planted_in_the_place_of_the_project_itself_is_followed() {
    let shared = Shared::new();
    let before = shared.picture();
    for name in [".tenure", ".beads"] {
        symlink(shared.private.join("folder"), shared.project.path(name)).unwrap();
        for words in [
            "run build --no-wait -- true",
            "init",
            "exclusive status",
            "daemon start",
            "sync",
        ] {
            let said = shared.run(words);
            assert_ne!(said.code, 124, "{name}: {words}: {said:?}");
            assert_eq!(shared.picture(), before, "{name}: {words}: {said:?}");
        }
        fs::remove_file(shared.project.path(name)).unwrap();
    }
}

#[test]
fn nothing_planted_in_the_place_of_an_agents_settings_is_followed() {
    let shared = Shared::new();
    shared.run("init -q").exits(0);
    fs::create_dir(shared.project.path(".claude")).unwrap();
    fs::set_permissions(
        shared.project.path(".claude"),
        Permissions::from_mode(0o777),
    )
    .unwrap();
    shared.attack(
        &[".claude/settings.json", ".claude", "AGENTS.md"],
        &["setup claude-code --yes", "setup agents-md --yes"],
        &[Planted::Link],
    );
}

#[test]
fn nothing_planted_in_the_place_of_a_boards_files_is_followed_or_waited_for() {
    let shared = Shared::new();
    let text = crate::board_project::text("Good", "TODO", "HIGH");
    fs::write(shared.private.join("folder/good.md"), &text).unwrap();
    fs::write(shared.private.join("folder/.left.tenure-tmp"), "mine\n").unwrap();
    let board = shared.project.path(".bilu/board");
    fs::create_dir_all(board.join("tasks")).unwrap();
    fs::create_dir_all(shared.project.path(".bilu/storage")).unwrap();
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/board/board");
    fs::copy(fixtures.join("config.json"), board.join("config.json")).unwrap();
    fs::write(board.join("tasks/good.md"), &text).unwrap();
    shared.project.shell("chmod -R a+rwX .bilu").end().exits(0);
    let commands = [
        "board list",
        "board set-status good DONE",
        "board set-status good TODO",
        "board validate",
        "board rebuild-index --write",
        "board migrate",
    ];
    shared.attack(
        &[".bilu/board/config.json", ".bilu/board/tasks"],
        &commands,
        &REFUSED,
    );
    // What is no file is no task.
    shared.attack(&[".bilu/board/tasks/good.md"], &commands, &[]);
    shared.attack(
        &[".bilu/board/default.json", ".bilu/board", ".bilu"],
        &commands,
        &[Planted::LinkToFolder],
    );
}

#[test]
fn nothing_planted_in_the_place_of_the_guards_files_is_followed_or_waited_for() {
    let shared = Shared::new();
    let setup =
        "git init -q && git config user.name a && git config user.email a && chmod -R a+rwX .git";
    shared.project.shell(setup).end().exits(0);
    shared.run("init -q").exits(0);
    shared.run("guard install").exits(0);
    let commit =
        format!("guard status > /dev/null; {LIMIT} git commit -q --allow-empty --no-edit -m one");
    shared.run(&commit).exits(0);
    shared.project.shell("chmod -R a+rwX .git").end().exits(0);
    let names = [
        "tenure/guard-commits.jsonl",
        "tenure/guard-commits.1.jsonl",
        "tenure/tenure.db",
        "tenure/tenure.db-journal",
        "tenure/tenure.db-shm",
    ];
    let names = names.map(|name| format!(".git/{name}"));
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    shared.attack(&names, &[&commit], &[]);

    // Another hook is there, so the guard has a folder of its own.
    let hook = "git config core.hooksPath .git/others && mkdir .git/others && chmod -R a+rwX .git";
    shared.project.shell(hook).end().exits(0);
    shared.run("guard install").exits(0);
    for place in ["tenure-guard/hooks", "others"] {
        let path = shared.project.path(".git").join(place).join("pre-commit");
        let _ = fs::remove_file(&path);
        shared.plant(Planted::Pipe, &path);
        for words in ["guard install", "guard status"] {
            let said = shared.run(words);
            assert!(
                ![124, 137].contains(&said.code),
                "{place}: {words}: {said:?}"
            );
        }
    }
}
