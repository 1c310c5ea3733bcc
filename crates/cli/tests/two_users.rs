//! Two users in one folder: each user who may write there can use what the other one created, whatever the
//! umask.
//!
//! Both users belong to one group. Only root can act as two users; elsewhere these tests are skipped.

use crate::project;

use std::fs::{self, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use project::{Call, Project, Running, Said, TENURE, until};
use tenure_testkit::process::as_user;

/// The group that both users belong to.
const GROUP: u32 = 64_999;
const ALICE: u32 = 64_001;
const BOB: u32 = 64_002;

/// A folder that both users may write to.
struct Shared(Project);

impl Shared {
    /// `None` if this process can't act as other users.
    fn new(mode: u32) -> Option<Self> {
        if as_user(ALICE, GROUP).is_none() {
            tenure_testkit::left_out("only root can act as two users");
            return None;
        }
        let project = Project::uninitialised();
        let whole = project.root().parent().unwrap().to_owned();
        fs::set_permissions(&whole, Permissions::from_mode(0o755)).unwrap();
        let settings = project.home().join(".tenure");
        fs::create_dir(&settings).unwrap();
        // A wake-up that does not arrive hangs the test.
        fs::write(
            settings.join("config.yaml"),
            "locking:\n  pollInterval: 60m\n",
        )
        .unwrap();
        chown(project.root(), None, Some(GROUP)).unwrap();
        fs::set_permissions(project.root(), Permissions::from_mode(mode)).unwrap();
        Some(Self(project))
    }

    /// A shell script of a user with `umask 077`; `$TENURE` is the command.
    fn script(&self, user: u32, script: &str) -> Call {
        let mut command = as_user(user, GROUP).unwrap();
        command.args(["sh", "-c", &format!("umask 077; {script}")]);
        let through = self.0.program("env");
        for (name, value) in through.get_envs() {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        command.current_dir(self.0.root()).env("TENURE", copy());
        self.0.prepare(command)
    }

    fn tenure(&self, user: u32, words: &str) -> Said {
        self.script(user, &format!("exec $TENURE {words}")).end()
    }

    fn hold(&self, user: u32, words: &str) -> Running {
        let script = format!("exec $TENURE run {words} -- sh -c 'echo $$; exec cat'");
        let running = self.script(user, &script).input().start();
        until("the command runs", || {
            assert_eq!(running.err(), "");
            running.out().ends_with('\n')
        });
        running
    }

    /// Starts a user's wait for a key, and returns when it waits.
    fn wait(&self, user: u32, words: &str) -> Running {
        let script = format!("exec $TENURE run {words} --wait 10m -- true");
        let running = self.script(user, &script).start();
        until("it waits", || {
            let shown = self
                .tenure(user, &format!("locks show {words} --json"))
                .json();
            shown["data"]["queue"][0]["here"] == true
        });
        running
    }

    /// What two users do with one key, each in the role of the other.
    fn share(&self, words: &str, after_a_kill: AfterAKill) {
        for (one, other) in [(ALICE, BOB), (BOB, ALICE)] {
            let run = format!("run {words} --no-wait -- true");
            self.tenure(one, &run).exits(0);
            self.tenure(other, &run).exits(0);
            let mut held = self.hold(one, words);
            self.tenure(other, &run).exits(6);
            let waits = self.wait(other, words);
            held.let_go();
            held.ended().exits(0);
            waits.ended().exits(0);
            let held = self.hold(one, words);
            let waits = self.wait(other, words);
            held.killed();
            match after_a_kill {
                AfterAKill::TakenOver => {
                    waits.ended().exits(0);
                }
                AfterAKill::OnlyItsUserCan(said) => {
                    waits.ended().fails(1, &[said]);
                    self.tenure(one, &run).exits(0);
                }
            }
        }
    }
}

#[derive(Clone, Copy)]
enum AfterAKill {
    TakenOver,
    /// In a folder with the sticky bit.
    OnlyItsUserCan(&'static str),
}

/// A copy of the command that every user can execute.
fn copy() -> &'static Path {
    static COPY: OnceLock<(tempfile::TempDir, PathBuf)> = OnceLock::new();
    let (_, path) = COPY.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), Permissions::from_mode(0o755)).unwrap();
        let path = dir.path().join("tenure");
        project::write_program(&path, &fs::read(TENURE).unwrap());
        (dir, path)
    });
    path
}

/// No name below a folder gives more than the folder around it.
fn check_modes(folder: &Path) {
    let around = folder.metadata().unwrap().mode() & 0o777;
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let known = path.symlink_metadata().unwrap();
        let mode = known.mode() & 0o777;
        assert_eq!(mode & !around, 0, "{} is {mode:o}", path.display());
        if known.is_dir() {
            check_modes(&path);
        }
    }
}

const STICKY: &str = "sticky bit";

#[test]
fn a_projects_database() {
    for mode in [0o2775, 0o775, 0o1777] {
        let Some(shared) = Shared::new(mode) else {
            return;
        };
        shared.tenure(ALICE, "init -q").exits(0);
        shared.share("build", AfterAKill::TakenOver);
        shared.tenure(BOB, "tasks add one").exits(0);
        shared.tenure(ALICE, "tasks list").exits(0);
        check_modes(&shared.0.root());
    }
}

#[test]
fn a_database_beside_other_files() {
    let Some(shared) = Shared::new(0o2775) else {
        return;
    };
    shared.share("--store sqlite:locks.db build", AfterAKill::TakenOver);
    check_modes(&shared.0.root());
}

#[test]
fn another_programs_database() {
    let Some(shared) = Shared::new(0o2775) else {
        return;
    };
    let sample =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../stores/sqlite/tests/fixtures/steroids.db");
    let db = shared.0.path("steroids.db");
    fs::copy(sample, &db).unwrap();
    chown(&db, Some(ALICE), Some(GROUP)).unwrap();
    fs::set_permissions(&db, Permissions::from_mode(0o664)).unwrap();
    let key = "task:8f3842e9-1e5a-4520-9de2-a766262ea768";
    let words = format!("--store steroids:steroids.db {key}");
    shared.share(&words, AfterAKill::TakenOver);
    check_modes(&shared.0.root());
}

#[test]
fn an_exclusive_lock() {
    for (mode, after_a_kill) in [
        (0o2775, AfterAKill::TakenOver),
        (0o1777, AfterAKill::OnlyItsUserCan(STICKY)),
    ] {
        let Some(shared) = Shared::new(mode) else {
            return;
        };
        shared.share("--store exclusive:. database", after_a_kill);
        check_modes(&shared.0.root());
    }
}

#[test]
fn a_mkdir_lock() {
    for (mode, after_a_kill) in [
        (0o2775, AfterAKill::TakenOver),
        (0o1777, AfterAKill::OnlyItsUserCan(STICKY)),
    ] {
        let Some(shared) = Shared::new(mode) else {
            return;
        };
        shared.share("--store mkdir:lock board", after_a_kill);
        check_modes(&shared.0.root());
        let names = fs::read_dir(shared.0.root()).unwrap();
        let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
        let ours = |name: &std::ffi::OsString| name.as_encoded_bytes().starts_with(b".lock-tenure");
        assert!(names.iter().all(ours), "{names:?}");
    }
}

#[test]
fn a_ledger() {
    let Some(shared) = Shared::new(0o2775) else {
        return;
    };
    shared.tenure(ALICE, "ledger init .").exits(0);
    shared.share("--store ledger:. node:1", AfterAKill::TakenOver);
    for user in [ALICE, BOB, ALICE] {
        let event = r#"printf '{"type":"note"}' | $TENURE ledger append -"#;
        shared.script(user, event).end().exits(0);
        shared.tenure(user, "ledger verify").exits(0);
    }
}

#[test]
fn a_daemon_that_another_user_started_before() {
    let Some(shared) = Shared::new(0o2775) else {
        return;
    };
    shared.tenure(ALICE, "init -q").exits(0);
    for user in [ALICE, BOB, ALICE] {
        shared.tenure(user, "daemon start").exits(0);
        shared.tenure(user, "daemon stop").exits(0);
    }
    check_modes(&shared.0.path(".tenure"));
}

#[test]
fn a_user_who_may_not_write_in_the_folder_gets_nothing_more() {
    let Some(shared) = Shared::new(0o2775) else {
        return;
    };
    let root = shared.0.root();
    chown(&root, Some(ALICE), Some(ALICE)).unwrap();
    fs::set_permissions(&root, Permissions::from_mode(0o755)).unwrap();
    shared.tenure(ALICE, "init -q").exits(0);
    shared.tenure(ALICE, "run build -- true").exits(0);
    shared.tenure(BOB, "run build -- true").exits(1);
    shared.tenure(BOB, "locks list").exits(0);
    check_modes(&root);
}

#[test]
fn what_root_creates_belongs_to_the_owner_of_the_folder() {
    let Some(shared) = Shared::new(0o2775) else {
        return;
    };
    let root = shared.0.root();
    chown(&root, Some(ALICE), Some(ALICE)).unwrap();
    fs::set_permissions(&root, Permissions::from_mode(0o755)).unwrap();
    shared.0.tenure("init -q").exits(0);
    for words in [
        "build",
        "--store exclusive:. database",
        "--store mkdir:lock board",
    ] {
        shared.0.tenure(&format!("run {words} -- true")).exits(0);
        shared
            .tenure(ALICE, &format!("run {words} -- true"))
            .exits(0);
    }
}

/// Another user's links in a folder that all may write to.
#[test]
fn a_planted_link_is_neither_followed_nor_changed() {
    let Some(shared) = Shared::new(0o1777) else {
        return;
    };
    let target = shared.0.home().join("target");
    let folder = shared.0.home().join("folder");
    fs::write(&target, "mine\n").unwrap();
    fs::create_dir(&folder).unwrap();
    fs::write(folder.join("pid"), "mine\n").unwrap();
    for path in [&target, &folder] {
        chown(path, Some(ALICE), Some(ALICE)).unwrap();
        fs::set_permissions(path, Permissions::from_mode(0o750)).unwrap();
    }
    for words in ["--store exclusive:. database", "--store mkdir:lock board"] {
        shared
            .tenure(ALICE, &format!("run {words} -- true"))
            .exits(0);
    }
    let plant = |to: &Path, name: &str| {
        let path = shared.0.path(name);
        if path.is_dir() && !path.is_symlink() {
            fs::remove_dir_all(&path).unwrap();
        }
        let _ = fs::remove_file(&path);
        symlink(to, &path).unwrap();
        std::os::unix::fs::lchown(&path, Some(BOB), Some(BOB)).unwrap();
    };
    for (store, names) in [
        (
            "--store exclusive:. database",
            [".exclusive-lock-tenure"].as_slice(),
        ),
        ("--store mkdir:lock board", &[".lock-tenure"]),
    ] {
        for inside in [
            "state.a",
            "state.b",
            "history",
            "guard",
            "ceiling.new",
            "next",
        ] {
            for sidecar in names {
                let name = format!("{sidecar}/{inside}");
                plant(&target, &name);
                shared.tenure(ALICE, &format!("run {store} -- true"));
                let _ = fs::remove_file(shared.0.path(&name));
            }
        }
    }
    shared.tenure(ALICE, "init -q").exits(0);
    shared.tenure(ALICE, "run build -- true").exits(0);
    for end in ["-wal", "-shm", "-journal"] {
        let name = format!(".tenure/tenure.db{end}");
        plant(&target, &name);
        let said = shared.tenure(ALICE, "run build -- true");
        assert!(said.err.contains("is a link"), "{said:?}");
        fs::remove_file(shared.0.path(&name)).unwrap();
    }
    for name in [
        ".lock-tenure-bin",
        ".lock-tenure-next",
        ".lock-tenure-aside",
    ] {
        plant(&folder, name);
        shared.tenure(ALICE, "run --store mkdir:lock board -- true");
        let _ = fs::remove_file(shared.0.path(name));
    }
    assert_eq!(fs::read_to_string(&target).unwrap(), "mine\n");
    assert_eq!(fs::read_to_string(folder.join("pid")).unwrap(), "mine\n");
    for path in [&target, &folder] {
        assert_eq!(path.metadata().unwrap().mode() & 0o7777, 0o750);
    }
}

#[test]
fn a_second_name_is_refused_in_a_folder_that_only_another_user_may_write() {
    let Some(shared) = Shared::new(0o2775) else {
        return;
    };
    let (board, victim) = (shared.0.path(".bilu/board"), shared.0.path("victim"));
    fs::create_dir_all(board.join("tasks")).unwrap();
    let fixtures = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/board/board");
    fs::copy(fixtures.join("config.json"), &victim).unwrap();
    chown(&victim, Some(ALICE), None).unwrap();
    fs::hard_link(&victim, board.join("config.json")).unwrap();
    for folder in [shared.0.path(".bilu"), board.clone(), board.join("tasks")] {
        fs::set_permissions(&folder, Permissions::from_mode(0o755)).unwrap();
        chown(&folder, Some(BOB), None).unwrap();
    }
    shared
        .tenure(ALICE, "board list")
        .fails(1, &["has a second name"]);
}
