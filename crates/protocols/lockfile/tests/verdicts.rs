//! Every row of the exclusive lock's verdict table: free, alive, dead, remote, not signallable, malformed.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use jiff::Timestamp;
use tenure_core::{Acquired, Clock, Doubt, Evidence, Forced, HolderId, Key, Reap, Store, Verdict};
use tenure_host::{HostClock, identity};
use tenure_lockfile::{Check, ExclusiveLock, ExclusiveStore, Options, should_skip_database};
use tenure_testkit::{Ask, Process, process, soon};

/// A pid that no process has.
const NO_PROCESS: u32 = i32::MAX as u32;

fn key() -> Key {
    Key::parse("database").unwrap()
}

fn open(dir: &Path) -> ExclusiveStore {
    ExclusiveStore::open(dir, Options::default()).unwrap()
}

fn foreign(pid: u32, host: &str) -> String {
    format!(
        r#"{{"holder":"tool","pid":{pid},"hostname":"{host}","started_at":"2025-10-25T12:00:00Z"}}"#
    )
}

fn fixture(name: &str) -> Vec<u8> {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures");
    fs::read(dir.join(name)).unwrap()
}

fn folder(text: impl AsRef<[u8]>) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let place = dir.path().join(".exclusive-lock");
    fs::write(&place, text).unwrap();
    (dir, place)
}

fn verdict(dir: &Path) -> Verdict {
    open(dir)
        .inspect(&key(), soon())
        .unwrap()
        .lease()
        .unwrap()
        .1
        .clone()
}

/// Nothing takes over or removes the lock, and the check prints `words`.
fn stands(text: impl AsRef<[u8]>, wanted: &Verdict, words: &str) {
    let (dir, place) = folder(&text);
    assert_eq!(&verdict(dir.path()), wanted);
    assert!(
        !dir.path().join(".exclusive-lock-tenure").exists(),
        "looking writes nothing"
    );
    let check = should_skip_database(dir.path());
    assert!(check.skips());
    assert_eq!(check.to_string(), words);
    let store = open(dir.path());
    let asked = Ask::new(&key(), "next").once(&store);
    assert!(matches!(asked, Acquired::Busy(_)), "{asked:?}");
    assert!(store.reap(Reap::Free, soon()).unwrap().is_empty());
    assert_eq!(fs::read(&place).unwrap(), text.as_ref(), "untouched");
}

/// The lock is stale: a daemon removes it and proceeds, and a claim is granted.
fn is_stale(text: &str) {
    let (dir, place) = folder(text);
    assert!(matches!(verdict(dir.path()), Verdict::Dead(_)));
    let check = should_skip_database(dir.path());
    assert!(!check.skips());
    assert_eq!(
        check.to_string(),
        "Removed stale lock (tool), proceeding with sync"
    );
    assert!(!place.exists());
    assert_eq!(should_skip_database(dir.path()), Check::Free);
    let (dir, _) = folder(text);
    Ask::new(&key(), "next").granted(&open(dir.path()));
}

#[test]
fn a_free_lock_lets_the_daemon_proceed() {
    let dir = tempfile::tempdir().unwrap();
    let check = should_skip_database(dir.path());
    assert_eq!((check.to_string().as_str(), check.skips()), ("", false));
    assert_eq!(
        should_skip_database(&dir.path().join("nowhere")),
        Check::Free
    );
}

#[test]
fn a_live_process_is_left_alone() {
    let text = foreign(std::process::id(), identity::host());
    stands(text, &Verdict::Alive, "Skipping database (locked by tool)");
}

#[test]
fn a_lock_of_a_dead_process_is_stale_and_the_host_ignores_letter_case() {
    is_stale(&foreign(NO_PROCESS, identity::host()));
    is_stale(&foreign(NO_PROCESS, &identity::host().to_uppercase()));
    let mut child = Command::new("true").spawn().unwrap();
    child.wait().unwrap();
    is_stale(&foreign(child.id(), identity::host()));
}

#[test]
fn a_zombie_process_counts_as_alive() {
    let mut child = Command::new("true").spawn().unwrap();
    tenure_testkit::limit::within_limit("it to end", || process::state(child.id()).is_none());
    let text = foreign(child.id(), identity::host());
    stands(text, &Verdict::Alive, "Skipping database (locked by tool)");
    child.wait().unwrap();
}

#[test]
fn a_process_on_another_host_is_unknown() {
    let unknown = Verdict::Unknown(Doubt::OtherHost);
    let words = "Skipping database (locked by ci-runner)";
    stands(fixture("live-remote.json"), &unknown, words);
    let words = "Skipping database (locked by tool)";
    stands(foreign(NO_PROCESS, "elsewhere"), &unknown, words);
    let short = foreign(NO_PROCESS, &format!("{}.local", identity::host()));
    stands(short, &unknown, words);
}

#[test]
fn odd_letter_case_and_extra_keys_are_read() {
    let unknown = Verdict::Unknown(Doubt::OtherHost);
    let words = "Skipping database (locked by x)";
    stands(fixture("odd-case-extra-keys.json"), &unknown, words);
}

#[test]
fn a_malformed_lock_is_never_taken_over() {
    let good = foreign(NO_PROCESS, identity::host());
    for (text, reason) in [
        (fixture("empty.json"), "malformed lock file: "),
        (fixture("torn.json"), "malformed lock file: "),
        (fixture("no-offset.json"), "malformed lock file: "),
        (
            fixture("pid-zero.json"),
            "invalid lock file: pid must be positive (got 0)",
        ),
        (format!("{good}x").into_bytes(), "malformed lock file: "),
        (b"[1, 2]".to_vec(), "malformed lock file: "),
        (vec![0; 300], "malformed lock file: "),
        (
            good.replace("tool", "").into_bytes(),
            "invalid lock file: holder is required",
        ),
        (
            good.replace("2025-10-25", "0001-01-01").into_bytes(),
            "invalid lock file: started_at is required",
        ),
        (vec![b' '; 1 << 21], "failed to read lock file: "),
    ] {
        let (dir, _) = folder(&text);
        let check = should_skip_database(dir.path());
        let Check::CheckFailed { reason: found } = &check else {
            panic!("{reason}: {check:?}");
        };
        assert!(found.starts_with(reason), "{found}");
        stands(
            &text,
            &Verdict::Malformed,
            &format!("Skipping database (lock check failed: {found})"),
        );
    }
}

#[test]
fn anything_but_a_file_is_never_taken_over_and_never_blocks() {
    for (name, make) in [
        ("directory", "mkdir"),
        ("pipe", "mkfifo"),
        ("link", "ln -s /dev/zero"),
        ("dangling link", "ln -s nowhere"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let made = Command::new("sh")
            .args(["-c", &format!("{make} .exclusive-lock")])
            .current_dir(dir.path())
            .status();
        assert!(made.unwrap().success());
        let check = should_skip_database(dir.path());
        assert!(
            check.to_string().contains("failed to read lock file: "),
            "{name}: {check}"
        );
        let store = open(dir.path());
        let asked = Ask::new(&key(), "next").once(&store);
        assert!(matches!(asked, Acquired::Busy(_)), "{name}: {asked:?}");
        let admin = HolderId::parse("admin").unwrap();
        let forced = store.force(&key(), None, &admin, None, soon());
        if name == "directory" {
            assert!(forced.unwrap_err().to_string().contains("by hand"));
        } else {
            assert!(matches!(forced.unwrap(), Forced::Freed(_)), "{name}");
            Ask::new(&key(), "next").granted(&store);
        }
    }
}

#[test]
fn force_removes_a_malformed_lock() {
    let (dir, place) = folder("{");
    let store = open(dir.path());
    let admin = HolderId::parse("admin").unwrap();
    let forced = store
        .force(&key(), None, &admin, Some("torn"), soon())
        .unwrap();
    assert!(matches!(forced, Forced::Freed(_)), "{forced:?}");
    assert!(!place.exists());
}

#[test]
fn control_characters_in_a_holder_name_are_replaced() {
    let text = foreign(std::process::id(), identity::host()).replace("tool", r"a\nb\u001b[31m");
    let words = "Skipping database (locked by a\u{fffd}b\u{fffd}[31m)";
    stands(text, &Verdict::Alive, words);
}

/// A lock that tenure wrote for another process.
fn ours(change: impl FnOnce(&mut ExclusiveLock)) -> String {
    let mut lock = ExclusiveLock::for_this_process("tool", None).unwrap();
    change(&mut lock);
    lock.to_json()
}

#[test]
fn a_reused_pid_proves_the_holder_dead() {
    stands(
        ours(|_| ()),
        &Verdict::Alive,
        "Skipping database (locked by tool)",
    );
    let reused = ours(|lock| lock.tenure.as_mut().unwrap().started = 1);
    is_stale(&reused);
    let rebooted = |at: Timestamp| {
        ours(|lock| {
            lock.tenure.as_mut().unwrap().boot.0 = "earlier".into();
            lock.started_at = Some(at);
        })
    };
    is_stale(&rebooted("2001-01-01T00:00:00Z".parse().unwrap()));
    // Taken since this machine was started: another machine has its name.
    stands(
        rebooted(HostClock::new().now().wall),
        &Verdict::Unknown(Doubt::OtherHost),
        "Skipping database (locked by tool)",
    );
    let (dir, _) = folder(&reused);
    let dead = verdict(dir.path());
    assert!(
        matches!(dead, Verdict::Dead(Evidence::PidReused { .. })),
        "{dead:?}"
    );
}

#[test]
fn a_process_in_another_container_is_unknown() {
    let elsewhere = ours(|lock| {
        lock.pid = i64::from(NO_PROCESS);
        lock.tenure.as_mut().unwrap().namespace = "pid:[1]".into();
    });
    stands(
        elsewhere,
        &Verdict::Unknown(Doubt::OtherNamespace),
        "Skipping database (locked by tool)",
    );
}

/// Not a test: checks a folder as another user, and reports.
#[test]
fn worker() {
    let Some(dir) = process::job() else { return };
    process::report(&should_skip_database(Path::new(&dir)).to_string());
}

/// What a user without permissions is told about this folder.
fn as_unprivileged_user(dir: &Path) -> Option<String> {
    if !rustix::process::geteuid().is_root() {
        tenure_testkit::left_out("only root can become another user");
        return None;
    }
    fs::set_permissions(dir, fs::Permissions::from_mode(0o777)).unwrap();
    let mut through = Command::new("setpriv");
    through.args(["--reuid=65534", "--regid=65534", "--clear-groups", "--"]);
    let process = Process::start_through(&mut through, "verdicts::worker", dir.to_str().unwrap());
    Some(process.report())
}

#[test]
fn a_process_that_may_not_be_signalled_is_alive() {
    let (dir, _) = folder(foreign(1, identity::host()));
    if let Some(told) = as_unprivileged_user(dir.path()) {
        assert_eq!(told, "Skipping database (locked by tool)");
    }
}

#[test]
fn a_lock_that_may_not_be_read_is_left_alone() {
    let (dir, place) = folder(foreign(NO_PROCESS, identity::host()));
    fs::set_permissions(&place, fs::Permissions::from_mode(0o000)).unwrap();
    if let Some(told) = as_unprivileged_user(dir.path()) {
        let words = "Skipping database (lock check failed: failed to read lock file: ";
        assert!(told.starts_with(words), "{told}");
        assert!(place.exists());
    }
}
