//! Other programs, which do not use tenure, take, replace and remove the same lock file.

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use protocols::{NO_PROCESS, Sleeper, lock_file, options, replace_lock_file};
use tenure_core::{
    Acquired, Binding, Claim, ErrorKind, EventKind, Evidence, Granted, HistoryQuery, Holder,
    HolderId, Key, Reap, Reason, Records, Released, Renewed, Store, Token, Verdict,
};
use tenure_host::identity;
use tenure_lockfile::{Check, ExclusiveLock, ExclusiveStore, Options, should_skip_database};
use tenure_testkit::{Ask, limit, soon};

use crate::protocols;

const TTL: Duration = Duration::from_secs(60);

fn key() -> Key {
    Key::parse("database").unwrap()
}

fn open(dir: &Path) -> ExclusiveStore {
    ExclusiveStore::open(dir, options()).unwrap()
}

fn lock_path(dir: &Path) -> PathBuf {
    dir.join(".exclusive-lock")
}

/// A folder in memory if possible: ext4 writes to disk at every rename over a file.
fn quick_folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| tempfile::tempdir().unwrap())
}

/// Tells another thread to stop, even when this one fails.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// A program replaces a stale lock with a live one while a checker, in a loop, removes stale locks.
/// The live lock must survive.
fn no_live_lock_is_lost(rounds: u32, check: impl Fn(&Path) + Send + Sync) {
    let folder = quick_folder();
    let dir = folder.path();
    let stopped = AtomicBool::new(false);
    let (stale, live) = (
        lock_file("stale", NO_PROCESS),
        lock_file("live", std::process::id()),
    );
    std::thread::scope(|scope| {
        let checker = scope.spawn(|| {
            while !stopped.load(Ordering::SeqCst) {
                check(dir);
            }
        });
        let stop = StopOnDrop(&stopped);
        for round in 0..rounds {
            replace_lock_file(dir, &stale);
            // Vary the moment at which the checker sees it.
            for _ in 0..round % 97 * 40 {
                std::hint::spin_loop();
            }
            replace_lock_file(dir, &live);
            // It may be missing from its path for microseconds, but must come back.
            let is_back = || fs::read_to_string(lock_path(dir)).is_ok_and(|text| text == live);
            limit::within_limit("the live lock to be at its path", is_back);
            if checker.is_finished() {
                break;
            }
        }
        drop(stop);
        checker.join().unwrap();
    });
    assert!(
        open(dir).sidecar().path().is_dir(),
        "the checker never removed anything"
    );
}

#[test]
fn a_checker_never_removes_a_live_lock_that_replaced_a_stale_one() {
    no_live_lock_is_lost(5000, |dir| match should_skip_database(dir) {
        Check::CheckFailed { reason } => panic!("{reason}"),
        Check::Free | Check::Skip { .. } | Check::RemovedStale { .. } => {}
    });
}

#[test]
fn taking_over_never_overwrites_a_live_lock_that_replaced_a_stale_one() {
    no_live_lock_is_lost(1500, |dir| {
        let store = open(dir);
        if let Acquired::Granted(Granted { lease, .. }) = Ask::new(&key(), "us").once(&store) {
            let _ = store.release(&lease.grant(), soon()).unwrap();
        }
    });
}

#[test]
fn tenures_lock_is_never_seen_half_written() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let stopped = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut seen = 0;
            while !stopped.load(Ordering::SeqCst) {
                if let Ok(bytes) = fs::read(lock_path(dir.path())) {
                    ExclusiveLock::parse(&bytes).unwrap();
                    seen += 1;
                }
            }
            seen
        });
        let stop = StopOnDrop(&stopped);
        for _ in 0..400 {
            let lease = Ask::new(&key(), "us").granted(&store);
            let _ = store.release(&lease.grant(), soon()).unwrap();
            replace_lock_file(dir.path(), &lock_file("stale", NO_PROCESS));
            let lease = Ask::new(&key(), "us").granted(&store);
            let _ = store.release(&lease.grant(), soon()).unwrap();
        }
        drop(stop);
        assert!(reader.join().unwrap() > 0);
    });
}

#[test]
fn the_lock_file_has_the_keys_and_the_mode_of_the_protocol() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        version: Some("1.2".into()),
        ..Options::default()
    };
    let store = ExclusiveStore::open(dir.path(), options).unwrap();
    let lease = Ask::new(&key(), "us").granted(&store);
    let mode = fs::metadata(lock_path(dir.path()))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o644);
    let text = fs::read_to_string(lock_path(dir.path())).unwrap();
    let keys: Vec<_> = text
        .lines()
        .filter(|line| line.starts_with("  \""))
        .collect();
    assert_eq!(keys.len(), 6, "{text}");
    assert!(text.ends_with('}'), "{text}");
    let lock = ExclusiveLock::parse(text.as_bytes()).unwrap();
    assert_eq!(lock.pid, i64::from(std::process::id()));
    assert_eq!(lock.version.as_deref(), Some("1.2"));
    assert_eq!(lock.started_at, Some(lease.acquired_at));
    assert_eq!(lock.tenure.unwrap().token, Some(lease.token));
}

#[test]
fn a_lock_that_is_being_written_is_left_alone() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let live = lock_file("cat", std::process::id());
    let (first, second) = live.split_at(30);
    // As `cat > file` writes it.
    let mut file = fs::File::create(lock_path(dir.path())).unwrap();
    for part in [first, second] {
        let check = should_skip_database(dir.path());
        assert!(matches!(check, Check::CheckFailed { .. }), "{check:?}");
        assert!(store.reap(Reap::Free, soon()).unwrap().is_empty());
        file.write_all(part.as_bytes()).unwrap();
    }
    let check = should_skip_database(dir.path());
    assert_eq!(check.holder().unwrap().as_str(), "cat");
    assert!(check.skips());
}

#[test]
fn a_lock_that_was_removed_under_a_running_holder_is_still_held_and_put_back() {
    let dir = tempfile::tempdir().unwrap();
    let (store, other) = (open(dir.path()), open(dir.path()));
    let lease = Ask::new(&key(), "us").granted(&store);
    let text = fs::read(lock_path(dir.path())).unwrap();
    fs::remove_file(lock_path(dir.path())).unwrap();
    let asked = Ask::new(&key(), "other").once(&other);
    assert!(matches!(asked, Acquired::Busy(_)), "{asked:?}");
    assert!(should_skip_database(dir.path()).skips());
    assert!(
        !lock_path(dir.path()).exists(),
        "only the holder puts it back"
    );
    let renewed = store.renew(&lease.grant(), TTL, soon()).unwrap();
    assert!(matches!(renewed, Renewed::Extended(_)), "{renewed:?}");
    assert_eq!(fs::read(lock_path(dir.path())).unwrap(), text);
    // The holder puts it back when it inspects the store, too.
    fs::remove_file(lock_path(dir.path())).unwrap();
    let snapshot = store.inspect(&key(), soon()).unwrap();
    assert!(snapshot.lease().unwrap().0.is(&lease.grant()));
    assert_eq!(fs::read(lock_path(dir.path())).unwrap(), text);
    // So does any process that has the grant.
    fs::remove_file(lock_path(dir.path())).unwrap();
    let renewed = other.renew(&lease.grant(), TTL, soon()).unwrap();
    assert!(matches!(renewed, Renewed::Extended(_)), "{renewed:?}");
    assert_eq!(fs::read(lock_path(dir.path())).unwrap(), text);
    let released = other.release(&lease.grant(), soon()).unwrap();
    assert!(matches!(released, Released::Freed(_)), "{released:?}");
    assert!(!lock_path(dir.path()).exists());
}

#[test]
fn force_removes_a_lock_that_another_program_corrupted() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let lease = Ask::new(&key(), "us").granted(&store);
    fs::write(lock_path(dir.path()), "{").unwrap();
    let admin = HolderId::parse("admin").unwrap();
    let _ = store.force(&key(), None, &admin, None, soon()).unwrap();
    assert!(!lock_path(dir.path()).exists());
    let next = Ask::new(&key(), "next").granted(&store);
    assert!(next.token > lease.token);
}

#[test]
fn a_lock_that_another_program_overwrote_is_lost_and_recorded() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let lease = Ask::new(&key(), "us").granted(&store);
    let other = lock_file("rude", std::process::id());
    replace_lock_file(dir.path(), &other);
    let renewed = store.renew(&lease.grant(), TTL, soon()).unwrap();
    assert!(
        matches!(&renewed, Renewed::Lost(by) if by[0].holder.id.as_str() == "rude"),
        "{renewed:?}"
    );
    let released = store.release(&lease.grant(), soon()).unwrap();
    assert!(
        matches!(&released, Released::AlreadyGone(now) if now.len() == 1),
        "{released:?}"
    );
    assert_eq!(fs::read_to_string(lock_path(dir.path())).unwrap(), other);
    let last = store
        .history(&HistoryQuery::default(), soon())
        .unwrap()
        .pop()
        .unwrap();
    assert_eq!((last.kind, last.token), (EventKind::Forced, lease.token));
    let Some(Evidence::Forced { by, reason }) = last.evidence else {
        panic!("{last:?}");
    };
    assert_eq!(by.as_str(), "rude");
    assert_eq!(reason.unwrap(), "by writing the lock file outside tenure");
}

#[test]
fn a_lock_that_was_truncated_under_its_holder_stays_held_and_is_never_taken_over() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let lease = Ask::new(&key(), "us").granted(&store);
    fs::write(lock_path(dir.path()), "").unwrap();
    let renewed = store.renew(&lease.grant(), TTL, soon()).unwrap();
    assert!(matches!(renewed, Renewed::Extended(_)), "{renewed:?}");
    let released = store.release(&lease.grant(), soon()).unwrap();
    assert!(matches!(released, Released::Freed(_)), "{released:?}");
    assert!(
        lock_path(dir.path()).exists(),
        "another program may be writing it"
    );
    let asked = Ask::new(&key(), "other").once(&store);
    assert!(matches!(asked, Acquired::Busy(_)), "{asked:?}");
}

/// A claim for another process, as `acquire --pid` makes it.
fn claim_for(store: &ExclusiveStore, name: &str, pid: u32) -> Claim {
    let process = identity::process(pid).unwrap().unwrap();
    let claim = Ask::new(&key(), name).claim(store);
    Claim {
        holder: Holder {
            binding: Binding::Process { process },
            ..claim.holder
        },
        ..claim
    }
}

#[test]
fn a_script_that_removes_its_lock_file_releases_it() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let script = Sleeper::start();
    let claim = claim_for(&store, "script", script.id());
    let Acquired::Granted(Granted { lease, .. }) = store.acquire(&claim, soon()).unwrap() else {
        panic!("it is free");
    };
    let text = fs::read(lock_path(dir.path())).unwrap();
    assert_eq!(
        ExclusiveLock::parse(&text).unwrap().pid,
        i64::from(script.id())
    );
    fs::remove_file(lock_path(dir.path())).unwrap();
    let (next, reason) = Ask::new(&key(), "next").granted_for(&store);
    assert_eq!(reason, Reason::AcquiredNew);
    assert!(next.token > lease.token);
    let events = store.history(&HistoryQuery::default(), soon()).unwrap();
    let kinds: Vec<_> = events.iter().map(|event| event.kind).collect();
    let wanted = [EventKind::Granted, EventKind::Released, EventKind::Granted];
    assert_eq!(kinds, wanted);
}

#[test]
fn a_lock_that_was_truncated_before_its_holder_died_is_never_taken_over() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let mut script = Sleeper::start();
    let claim = claim_for(&store, "script", script.id());
    let asked = store.acquire(&claim, soon()).unwrap();
    assert!(matches!(asked, Acquired::Granted(_)), "{asked:?}");
    fs::write(lock_path(dir.path()), "").unwrap();
    script.end();
    let Acquired::Busy(busy) = Ask::new(&key(), "other").once(&store) else {
        panic!("another program may be writing it");
    };
    assert_eq!(busy.lease().cloned().unwrap().1, Verdict::Malformed);
    assert!(store.reap(Reap::Free, soon()).unwrap().is_empty());
}

#[test]
fn a_lock_that_the_same_process_wrote_itself_gets_a_token() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let script = Sleeper::start();
    replace_lock_file(dir.path(), &lock_file("script", script.id()));
    let asked = store
        .acquire(&claim_for(&store, "script", script.id()), soon())
        .unwrap();
    let Acquired::Granted(Granted { lease, .. }) = asked else {
        panic!("{asked:?}");
    };
    assert!(lease.token > Token::NONE);
    let again = store
        .acquire(&claim_for(&store, "script", script.id()), soon())
        .unwrap();
    let Acquired::Granted(Granted {
        lease: same,
        reason,
    }) = again
    else {
        panic!("{again:?}");
    };
    assert_eq!((same.token, reason), (lease.token, Reason::AlreadyOwned));
    let asked = store
        .acquire(&claim_for(&store, "other", script.id()), soon())
        .unwrap();
    assert!(matches!(asked, Acquired::Busy(_)), "{asked:?}");
}

#[test]
fn a_claim_that_the_lock_file_can_not_express_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let detached = Ask::new(&key(), "us").detached().claim(&store);
    let error = store.acquire(&detached, soon()).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unsupported);
    assert!(error.to_string().contains("--pid"), "{error}");
    let build = Key::parse("build").unwrap();
    for error in [
        store
            .acquire(&Ask::new(&build, "us").claim(&store), soon())
            .err(),
        store.inspect(&build, soon()).err(),
    ] {
        let error = error.unwrap();
        assert_eq!(error.kind, ErrorKind::Unsupported);
        assert!(error.to_string().contains("database"), "{error}");
    }
    let error = ExclusiveStore::open(&dir.path().join("nowhere"), Options::default());
    assert_eq!(error.err().unwrap().kind, ErrorKind::NotAStore);
}

#[test]
fn an_absurd_token_in_a_dead_lock_is_not_continued() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let first = Ask::new(&key(), "us").granted(&store);
    let ours = fs::read_to_string(lock_path(dir.path())).unwrap();
    let _ = store.release(&first.grant(), soon()).unwrap();
    let mut last = first.token;
    for absurd in [u64::MAX, u64::MAX - 1, Token::MAX.0 + 1] {
        let mut lock: serde_json::Value = serde_json::from_str(&ours).unwrap();
        lock["pid"] = NO_PROCESS.into();
        lock["tenure"]["token"] = absurd.into();
        replace_lock_file(dir.path(), &lock.to_string());
        let lease = Ask::new(&key(), "us").granted(&store);
        assert_eq!(lease.token, last.next().unwrap(), "after {absurd}");
        last = lease.token;
        let _ = store.release(&lease.grant(), soon()).unwrap();
    }
}

#[test]
fn an_absurd_token_beside_the_lock_is_not_continued_and_the_last_token_is_never_granted_twice() {
    let dir = tempfile::tempdir().unwrap();
    let sidecar = dir.path().join(".exclusive-lock-tenure");
    let state = |newest: u64| {
        let store = open(dir.path());
        let lease = Ask::new(&key(), "us").granted(&store);
        let _ = store.release(&lease.grant(), soon()).unwrap();
        for name in ["state.a", "state.b"] {
            let text = fs::read_to_string(sidecar.join(name)).unwrap();
            let (head, json) = text.split_once('\n').unwrap();
            let mut json: serde_json::Value = serde_json::from_str(json).unwrap();
            json["newest"] = newest.into();
            let json = json.to_string();
            let revision = head.split(' ').next().unwrap();
            let digest = tenure_host::files::digest(json.as_bytes());
            let head = format!("{revision} {digest:016x} {}\n", json.len());
            fs::write(sidecar.join(name), head + &json).unwrap();
        }
        lease.token
    };
    let before = state(u64::MAX);
    let store = open(dir.path());
    let lease = Ask::new(&key(), "us").granted(&store);
    assert!(
        lease.token > before && lease.token <= Token::MAX,
        "{}",
        lease.token
    );
    let _ = store.release(&lease.grant(), soon()).unwrap();
    state(Token::MAX.0 - 1);
    let store = open(dir.path());
    let last = Ask::new(&key(), "us").granted(&store);
    assert_eq!(last.token, Token::MAX);
    let _ = store.release(&last.grant(), soon()).unwrap();
    let refused = store.acquire(&Ask::new(&key(), "us").claim(&store), soon());
    assert_eq!(refused.unwrap_err().kind, ErrorKind::Damaged);
}
