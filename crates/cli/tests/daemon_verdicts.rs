//! Every row of the protocol's verdict table, as the daemon applies it: no lock, alive, dead, remote, not
//! permitted to signal, malformed in many ways, and a lock that appears during a cycle.

use crate::project;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};

use project::daemon::{NOBODY, lock_text, put};
use project::{Project, Running, TENURE, until};

/// A daemon whose next cycle begins only if a change wakes it.
fn watching(project: &Project) -> Running {
    let running = project.start("daemon run --interval 1d");
    project.until_logged("Cycle done", 0);
    running
}

/// Puts a lock there, and expects these words in the log while it is there.
#[track_caller]
fn is_skipped_with(project: &Project, place: &Path, text: impl AsRef<[u8]>, words: &str) {
    let after = project.logged().len();
    put(place, &text);
    project.until_logged(words, after);
    assert_eq!(
        fs::read(place).unwrap(),
        text.as_ref(),
        "it is left as it is"
    );
    until_last_cycle(project, "skipped");
    let after = project.logged().len();
    fs::remove_file(place).unwrap();
    project.until_logged("Cycle done", after);
    until_last_cycle(project, "done");
}

/// Waits until the daemon's state says how its last cycle ended, which it writes after the log.
fn until_last_cycle(project: &Project, outcome: &str) {
    until("the state tells of the cycle", || {
        project.daemon_status()["lastCycle"]["outcome"] == outcome
    });
}

/// A process that lives for as long as this.
struct Sleeper(Child);

impl Sleeper {
    fn start(command: &mut Command) -> Self {
        Self(command.arg("600").spawn().unwrap())
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_protocols_integration_test_passes() {
    let project = Project::new();
    fs::create_dir(project.path(".beads")).unwrap();
    // 1. Start the daemon.
    let daemon = project.daemon("--interval 1m");
    let at = project.until_logged("Cycle done: no leases to end.", 0);
    // 2. Create a lock: the protocol's own shell example, whose shell goes on.
    let script = r#"
BEADS_DIR=".beads"
LOCK_FILE="$BEADS_DIR/.exclusive-lock"
cat > "$LOCK_FILE" <<EOF
{
  "holder": "my-tool",
  "pid": $$,
  "hostname": "$(hostname)",
  "started_at": "$(date -u +%Y-%m-%dT%H:%M:%SZ)",
  "version": "1.0.0"
}
EOF
echo locked
read go
rm "$LOCK_FILE"
echo released
read go
"#;
    let mut tool = project.shell(script).input().start();
    // 3. Verify that the daemon skips.
    let at = project.until_logged("Skipping database (locked by my-tool)", at);
    let status = project.daemon_status();
    assert_eq!(status["skipped"]["holder"], "my-tool");
    let shown = project.tenure("daemon status").exits(0).out;
    assert!(shown.contains("Skipping cycles since"), "{shown}");
    assert!(shown.contains("locked by my-tool"), "{shown}");
    // 4. Release the lock.
    std::io::Write::write_all(tool.stdin.as_mut().unwrap(), b"go\n").unwrap();
    // 5. Verify that the daemon resumes: a normal cycle, long before the minute is over.
    project.until_logged("Cycle done: no leases to end.", at);
    assert!(project.daemon_status()["skipped"].is_null());
    assert!(tool.out().contains("released"), "{}", tool.out());
    assert!(daemon.runs());
}

#[test]
fn cycles_are_skipped_for_a_live_holder_in_either_folder() {
    let project = Project::new();
    project.acquire("build --as late --ttl 100ms");
    until("the lease expires", || {
        project.verdict("build") == "expired"
    });
    put(
        &project.lock_file(".tenure"),
        lock_text("first", std::process::id()),
    );
    let _daemon = project.start("daemon run --interval 1s");
    // Every cycle logs it, and does nothing else.
    let mut at = 0;
    for _ in 0..3 {
        at = project.until_logged("Skipping database (locked by first)", at + 1);
    }
    assert_eq!(project.verdict("build"), "expired");
    assert!(
        !project
            .logged()
            .iter()
            .any(|line| line.starts_with("Cycle"))
    );

    // The other folder appears while the daemon runs, with a lock in it.
    fs::create_dir(project.path("coming")).unwrap();
    put(
        &project.lock_file("coming"),
        lock_text("second", std::process::id()),
    );
    fs::rename(project.path("coming"), project.path(".beads")).unwrap();
    fs::remove_file(project.lock_file(".tenure")).unwrap();
    let at = project.until_logged("Skipping database (locked by second)", at);
    assert_eq!(project.verdict("build"), "expired");
    fs::remove_file(project.lock_file(".beads")).unwrap();
    project.until_logged("Ended the lease of late on build: it expired", at);
    project.until_logged("Cycle done: 1 lease ended.", at);
}

#[test]
fn the_lock_of_a_dead_holder_is_removed_and_the_cycle_continues() {
    let project = Project::new();
    fs::create_dir(project.path(".beads")).unwrap();
    let _daemon = watching(&project);
    for folder in [".beads", ".tenure"] {
        let after = project.logged().len();
        let place = project.lock_file(folder);
        put(&place, lock_text("vc-executor", NOBODY));
        let words = "Removed stale lock (vc-executor), proceeding with sync";
        let at = project.until_logged(words, after);
        project.until_logged("Cycle done: no leases to end.", at);
        assert!(!place.exists());
    }
}

#[test]
fn the_death_of_a_holder_is_noticed_at_once() {
    let project = Project::new();
    let _daemon = watching(&project);
    let mut holder = Command::new("sleep").arg("600").spawn().unwrap();
    put(
        &project.lock_file(".tenure"),
        lock_text("tool", holder.id()),
    );
    let at = project.until_logged("Skipping database (locked by tool)", 0);
    // The daemon sleeps for a day unless something wakes it.
    holder.kill().unwrap();
    holder.wait().unwrap();
    project.until_logged("Removed stale lock (tool), proceeding with sync", at);
    // The same for a lock of tenure's own.
    let held = project.hold("exclusive run --holder nightly");
    let at = project.until_logged("Skipping database (locked by nightly)", at);
    let _ = held.killed();
    project.until_logged("Removed stale lock (nightly), proceeding with sync", at);
}

#[test]
fn a_holder_on_another_machine_is_never_judged() {
    let project = Project::new();
    let _daemon = watching(&project);
    let place = project.lock_file(".tenure");
    let remote = include_str!("../../protocols/lockfile/tests/fixtures/live-remote.json");
    is_skipped_with(
        &project,
        &place,
        remote,
        "Skipping database (locked by ci-runner)",
    );
    let odd = include_str!("../../protocols/lockfile/tests/fixtures/odd-case-extra-keys.json");
    is_skipped_with(&project, &place, odd, "Skipping database (locked by x)");
}

#[test]
fn a_malformed_lock_skips_the_cycle_and_logs_the_reason() {
    let project = Project::new();
    fs::create_dir(project.path(".beads")).unwrap();
    let _daemon = watching(&project);
    let place = project.lock_file(".beads");
    let good = lock_text("tool", std::process::id());
    let failed = |why: &str| format!("Skipping database (lock check failed: {why}");
    let malformed = failed("malformed lock file: ");
    let invalid = |what: &str| failed(&format!("invalid lock file: {what})"));
    let cases: [(Vec<u8>, String); 11] = [
        (
            include_bytes!("../../protocols/lockfile/tests/fixtures/empty.json").to_vec(),
            malformed.clone(),
        ),
        (
            include_bytes!("../../protocols/lockfile/tests/fixtures/torn.json").to_vec(),
            malformed.clone(),
        ),
        (
            include_bytes!("../../protocols/lockfile/tests/fixtures/no-offset.json").to_vec(),
            malformed.clone(),
        ),
        (
            include_bytes!("../../protocols/lockfile/tests/fixtures/pid-zero.json").to_vec(),
            invalid("pid must be positive (got 0)"),
        ),
        (format!("{good} trailing").into_bytes(), malformed.clone()),
        (b"[1, 2, 3]".to_vec(), malformed.clone()),
        (vec![0; 300], malformed),
        (
            good.replace("\"tool\"", "\"\"").into_bytes(),
            invalid("holder is required"),
        ),
        (
            good.replace("\"hostname\"", "\"host\"").into_bytes(),
            invalid("hostname is required"),
        ),
        (
            good.replace("\"started_at\"", "\"at\"").into_bytes(),
            invalid("started_at is required"),
        ),
        (vec![b' '; 1 << 21], failed("failed to read lock file: ")),
    ];
    for (text, words) in cases {
        is_skipped_with(&project, &place, text, &words);
    }
    // A directory.
    let after = project.logged().len();
    fs::create_dir(&place).unwrap();
    let at = project.until_logged(&failed("failed to read lock file: "), after);
    assert!(place.is_dir());
    fs::remove_dir(&place).unwrap();
    let at = project.until_logged("Cycle done", at);
    // A symbolic link, which is never followed.
    std::os::unix::fs::symlink("/etc/passwd", &place).unwrap();
    project.until_logged(&failed("failed to read lock file: "), at);
}

/// Runs the daemon as a user who is not root, even if the tests are: root may read and signal everything.
fn as_another_user(project: &Project) -> (Running, Command) {
    let mut sleep = Command::new("sleep");
    if !rustix::process::geteuid().is_root() {
        return (watching(project), sleep);
    }
    let (one, other) = (65_533, 65_534);
    sleep.uid(other).gid(other);
    // The other user may not be able to reach the command under test.
    let program = project.path("tenure");
    project::write_program(&program, &fs::read(TENURE).unwrap());
    let above = project.root().parent().unwrap().to_owned();
    fs::set_permissions(&above, fs::Permissions::from_mode(0o755)).unwrap();
    give(&project.root(), one);
    give(&project.home(), one);
    let mut command = project.program(&program);
    command
        .args(["daemon", "run", "--interval", "1d"])
        .uid(one)
        .gid(one);
    let running = project.prepare(command).start();
    until("it runs", || {
        project.read(".tenure/daemon.log").contains("Cycle done")
    });
    (running, sleep)
}

/// Gives a folder and everything in it to a user.
fn give(path: &Path, user: u32) {
    std::os::unix::fs::chown(path, Some(user), Some(user)).unwrap();
    if path.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            give(&entry.unwrap().path(), user);
        }
    }
}

#[test]
fn a_process_that_may_not_be_signalled_is_alive() {
    let project = Project::new();
    let (daemon, mut sleep) = as_another_user(&project);
    // A process of another user: started here if the tests run as root, else pid 1.
    let sleeper = rustix::process::geteuid()
        .is_root()
        .then(|| Sleeper::start(&mut sleep));
    let pid = sleeper.as_ref().map_or(1, |sleeper| sleeper.0.id());
    let owner = |pid: u32| {
        std::os::unix::fs::MetadataExt::uid(&fs::metadata(format!("/proc/{pid}")).unwrap())
    };
    if owner(pid) == owner(daemon.pid()) {
        tenure_testkit::left_out("there is no process of another user here");
        return;
    }
    let place = project.lock_file(".tenure");
    put(&place, lock_text("theirs", pid));
    let at = project.until_logged("Skipping database (locked by theirs)", 0);
    assert!(place.exists());
    // It is told apart from one that has ended.
    put(&place, lock_text("gone", NOBODY));
    project.until_logged("Removed stale lock (gone), proceeding with sync", at);
}

#[test]
fn an_unreadable_lock_skips_the_cycle() {
    let project = Project::new();
    let (_daemon, _) = as_another_user(&project);
    let place = project.lock_file(".tenure");
    let secret = project.path("secret");
    fs::write(&secret, lock_text("secret", NOBODY)).unwrap();
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o000)).unwrap();
    fs::rename(&secret, &place).unwrap();
    let words = "Skipping database (lock check failed: failed to read lock file: ";
    let at = project.until_logged(words, 0);
    assert!(place.exists());
    fs::remove_file(&place).unwrap();
    project.until_logged("Cycle done", at);
}

#[test]
fn a_lock_that_appears_during_a_cycle_lets_that_cycle_finish() {
    let project = Project::new();
    project.acquire("build --as late --ttl 100ms");
    until("the lease expires", || {
        project.verdict("build") == "expired"
    });
    // A writer in the store makes the cycle wait in the middle.
    let database = rusqlite::Connection::open(project.database()).unwrap();
    database.execute_batch("BEGIN IMMEDIATE").unwrap();
    let daemon = project.start("daemon run --interval 1s");
    until("a cycle is under way", || {
        let state = project.read(".tenure/daemon.json");
        serde_json::from_str::<serde_json::Value>(&state)
            .is_ok_and(|state| state["cycle_since"].is_string())
    });
    // The cycle checks for a lock before it opens the store.
    until("it waits for the store", || {
        let fds = fs::read_dir(format!("/proc/{}/fd", daemon.pid())).unwrap();
        fds.filter_map(|fd| fs::read_link(fd.ok()?.path()).ok())
            .any(|to| to.ends_with("tenure.db"))
    });
    put(
        &project.lock_file(".tenure"),
        lock_text("tool", std::process::id()),
    );
    database.execute_batch("COMMIT").unwrap();
    let freed = project.until_logged("Ended the lease of late on build", 0);
    let done = project.until_logged("Cycle done: 1 lease ended.", freed);
    let skipped = project.until_logged("Skipping database (locked by tool)", 0);
    assert!(done < skipped, "{:?}", project.logged());
}
