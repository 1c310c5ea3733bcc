//! Other programs that know nothing of tenure use the same lock file.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "test code fails by panicking"
)]

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use tenure_core::{
    Acquired, Binding, Busy, Claim, ErrorKind, EventKind, Evidence, HistoryQuery, Holder, HolderId,
    Key, Reap, Reason, Released, Renewed, Store, Token, Verdict, Waited,
};
use tenure_file::{Check, Disk, ExclusiveLock, ExclusiveStore, Options, should_skip_database};
use tenure_host::identity;
use tenure_testkit::{Ask, limit};

const NOBODY: u32 = i32::MAX as u32;
const TTL: Duration = Duration::from_secs(60);

fn key() -> Key {
    Key::parse("database").unwrap()
}

fn open(dir: &Path) -> ExclusiveStore {
    let options = Options {
        disk: Disk::Crash,
        ..Options::default()
    };
    ExclusiveStore::open(dir, options).unwrap()
}

fn foreign(holder: &str, pid: u32) -> String {
    let host = identity::host();
    format!(
        r#"{{"holder":"{holder}","pid":{pid},"hostname":"{host}","started_at":"2025-10-25T12:00:00Z"}}"#
    )
}

fn place(dir: &Path) -> PathBuf {
    dir.join(".exclusive-lock")
}

/// As a careful tool would: written beside, and renamed over whatever is there.
fn replace(dir: &Path, text: &str) {
    fs::write(dir.join("tool.tmp"), text).unwrap();
    fs::rename(dir.join("tool.tmp"), place(dir)).unwrap();
}

/// In memory if there is such a place: ext4 writes to disk at every rename over a file.
fn quick_folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| tempfile::tempdir().unwrap())
}

fn queued(store: &ExclusiveStore, name: &str) -> Box<Busy> {
    match Ask::new(&key(), name).waiting().once(store) {
        Acquired::Busy(busy) => busy,
        other => panic!("{other:?}"),
    }
}

/// Ends what goes on in another thread, also when this one fails.
struct Until<'a>(&'a AtomicBool);

impl Drop for Until<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Trap (a): between a checker's look and its removal a tool replaces the stale lock with a live one.
/// `busy` is what goes on meanwhile, again and again.
fn no_live_lock_is_lost(rounds: u32, busy: impl Fn(&Path) + Send + Sync) {
    let folder = quick_folder();
    let dir = folder.path();
    let enough = AtomicBool::new(false);
    let (stale, live) = (
        foreign("stale", NOBODY),
        foreign("live", std::process::id()),
    );
    std::thread::scope(|scope| {
        let checker = scope.spawn(|| {
            while !enough.load(Ordering::SeqCst) {
                busy(dir);
            }
        });
        let until = Until(&enough);
        for round in 0..rounds {
            replace(dir, &stale);
            // The checker sees it at a moment that is never the same.
            for _ in 0..round % 97 * 40 {
                std::hint::spin_loop();
            }
            replace(dir, &live);
            // Out of its place for microseconds it may be; gone it must not be.
            let there = || fs::read_to_string(place(dir)).is_ok_and(|text| text == live);
            limit::within_limit("the live lock to be in its place", there);
            if checker.is_finished() {
                break;
            }
        }
        drop(until);
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
        if let Acquired::Granted { lease, .. } = Ask::new(&key(), "us").once(&store) {
            let _ = store.release(&lease.grant()).unwrap();
        }
    });
}

#[test]
fn of_many_that_ask_at_once_exactly_one_gets_it() {
    let dir = tempfile::tempdir().unwrap();
    let all = 12;
    let (begin, end) = (Barrier::new(all), Barrier::new(all));
    let granted = std::sync::Mutex::new(vec![]);
    std::thread::scope(|scope| {
        for number in 0..all {
            let (begin, end, granted, dir) = (&begin, &end, &granted, dir.path());
            scope.spawn(move || {
                let store = open(dir);
                for round in 0..60 {
                    begin.wait();
                    let asked = Ask::new(&key(), &format!("tool-{number}")).once(&store);
                    if let Acquired::Granted { lease, .. } = &asked {
                        granted.lock().unwrap().push((round, lease.token));
                    }
                    end.wait();
                    if let Acquired::Granted { lease, .. } = asked {
                        let _ = store.release(&lease.grant()).unwrap();
                    }
                }
            });
        }
    });
    let granted = granted.into_inner().unwrap();
    let rounds: Vec<_> = granted.iter().map(|(round, _)| *round).collect();
    assert_eq!(rounds, (0..60).collect::<Vec<_>>());
    assert!(granted.windows(2).all(|pair| pair[0].1 < pair[1].1));
}

#[test]
fn our_lock_is_never_seen_half_written() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let enough = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut seen = 0;
            while !enough.load(Ordering::SeqCst) {
                if let Ok(bytes) = fs::read(place(dir.path())) {
                    ExclusiveLock::parse(&bytes).unwrap();
                    seen += 1;
                }
            }
            seen
        });
        let until = Until(&enough);
        for _ in 0..400 {
            let lease = Ask::new(&key(), "us").granted(&store);
            let _ = store.release(&lease.grant()).unwrap();
            replace(dir.path(), &foreign("stale", NOBODY));
            let lease = Ask::new(&key(), "us").granted(&store);
            let _ = store.release(&lease.grant()).unwrap();
        }
        drop(until);
        assert!(reader.join().unwrap() > 0);
    });
}

#[test]
fn the_lock_is_a_readable_file_with_the_keys_of_the_protocol() {
    use std::os::unix::fs::PermissionsExt;
    let dir = tempfile::tempdir().unwrap();
    let options = Options {
        version: Some("1.2".into()),
        ..Options::default()
    };
    let store = ExclusiveStore::open(dir.path(), options).unwrap();
    let lease = Ask::new(&key(), "us").granted(&store);
    let mode = fs::metadata(place(dir.path()))
        .unwrap()
        .permissions()
        .mode();
    assert_eq!(mode & 0o777, 0o644);
    let text = fs::read_to_string(place(dir.path())).unwrap();
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
    assert_eq!(lock.extra.unwrap().token, Some(lease.token));
}

#[test]
fn a_lock_that_is_being_written_is_left_alone_until_it_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let live = foreign("cat", std::process::id());
    let (first, second) = live.split_at(30);
    // As `cat > file` does.
    let mut file = fs::File::create(place(dir.path())).unwrap();
    for part in [first, second] {
        let check = should_skip_database(dir.path());
        assert!(matches!(check, Check::CheckFailed { .. }), "{check:?}");
        assert!(store.reap(Reap::Free).unwrap().is_empty());
        file.write_all(part.as_bytes()).unwrap();
    }
    let check = should_skip_database(dir.path());
    assert_eq!(check.holder().unwrap().as_str(), "cat");
    assert!(check.skips());
}

#[test]
fn a_lock_that_was_removed_under_a_running_holder_still_counts_and_is_put_back() {
    let dir = tempfile::tempdir().unwrap();
    let (store, other) = (open(dir.path()), open(dir.path()));
    let lease = Ask::new(&key(), "us").granted(&store);
    let text = fs::read(place(dir.path())).unwrap();
    fs::remove_file(place(dir.path())).unwrap();
    let asked = Ask::new(&key(), "other").once(&other);
    assert!(matches!(asked, Acquired::Busy(_)), "{asked:?}");
    assert!(should_skip_database(dir.path()).skips());
    assert!(!place(dir.path()).exists(), "only its holder puts it back");
    let renewed = store.renew(&lease.grant(), TTL).unwrap();
    assert!(matches!(renewed, Renewed::Extended(_)), "{renewed:?}");
    assert_eq!(fs::read(place(dir.path())).unwrap(), text);
    // The holder's own look is enough.
    fs::remove_file(place(dir.path())).unwrap();
    assert!(
        store
            .inspect(&key())
            .unwrap()
            .lease
            .unwrap()
            .0
            .is(&lease.grant())
    );
    assert_eq!(fs::read(place(dir.path())).unwrap(), text);
    // Whoever can prove the grant may, from anywhere.
    fs::remove_file(place(dir.path())).unwrap();
    let renewed = other.renew(&lease.grant(), TTL).unwrap();
    assert!(matches!(renewed, Renewed::Extended(_)), "{renewed:?}");
    assert_eq!(fs::read(place(dir.path())).unwrap(), text);
    let released = other.release(&lease.grant()).unwrap();
    assert!(matches!(released, Released::Freed(_)), "{released:?}");
    assert!(!place(dir.path()).exists());
}

#[test]
fn force_takes_a_lock_away_whatever_somebody_wrote_into_it() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let lease = Ask::new(&key(), "us").granted(&store);
    fs::write(place(dir.path()), "{").unwrap();
    let admin = HolderId::parse("admin").unwrap();
    let _ = store.force(&key(), &admin, None).unwrap();
    assert!(!place(dir.path()).exists());
    let next = Ask::new(&key(), "next").granted(&store);
    assert!(next.token > lease.token);
}

#[test]
fn a_lock_that_another_tool_overwrote_is_lost_and_that_is_recorded() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let lease = Ask::new(&key(), "us").granted(&store);
    let theirs = foreign("rude", std::process::id());
    replace(dir.path(), &theirs);
    let renewed = store.renew(&lease.grant(), TTL).unwrap();
    assert!(
        matches!(&renewed, Renewed::Lost(Some(by)) if by.holder.id.as_str() == "rude"),
        "{renewed:?}"
    );
    let released = store.release(&lease.grant()).unwrap();
    assert!(
        matches!(released, Released::AlreadyGone(Some(_))),
        "{released:?}"
    );
    assert_eq!(fs::read_to_string(place(dir.path())).unwrap(), theirs);
    let last = store
        .history(&HistoryQuery::default())
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
fn a_lock_that_was_truncated_under_its_holder_is_still_held_and_then_never_taken_over() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let lease = Ask::new(&key(), "us").granted(&store);
    fs::write(place(dir.path()), "").unwrap();
    let renewed = store.renew(&lease.grant(), TTL).unwrap();
    assert!(matches!(renewed, Renewed::Extended(_)), "{renewed:?}");
    let released = store.release(&lease.grant()).unwrap();
    assert!(matches!(released, Released::Freed(_)), "{released:?}");
    assert!(place(dir.path()).exists(), "somebody is writing it");
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

/// A process that does nothing. It ends with the test, however that ends.
struct Sleeper(std::process::Child);

impl Sleeper {
    fn id(&self) -> u32 {
        self.0.id()
    }

    fn end(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn sleeper() -> Sleeper {
    Sleeper(Command::new("sleep").arg("600").spawn().unwrap())
}

#[test]
fn a_script_that_removes_its_lock_file_has_released_it() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let script = sleeper();
    let claim = claim_for(&store, "script", script.id());
    let Acquired::Granted { lease, .. } = store.acquire(&claim).unwrap() else {
        panic!("it is free");
    };
    let text = fs::read(place(dir.path())).unwrap();
    assert_eq!(
        ExclusiveLock::parse(&text).unwrap().pid,
        i64::from(script.id())
    );
    fs::remove_file(place(dir.path())).unwrap();
    let (next, reason) = Ask::new(&key(), "next").granted_for(&store);
    assert_eq!(reason, Reason::AcquiredNew);
    assert!(next.token > lease.token);
    let events = store.history(&HistoryQuery::default()).unwrap();
    let kinds: Vec<_> = events.iter().map(|event| event.kind).collect();
    let wanted = [EventKind::Granted, EventKind::Released, EventKind::Granted];
    assert_eq!(kinds, wanted);
}

#[test]
fn a_lock_that_was_truncated_before_its_holder_died_is_never_taken_over() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let mut script = sleeper();
    let claim = claim_for(&store, "script", script.id());
    let asked = store.acquire(&claim).unwrap();
    assert!(matches!(asked, Acquired::Granted { .. }), "{asked:?}");
    fs::write(place(dir.path()), "").unwrap();
    script.end();
    let Acquired::Busy(busy) = Ask::new(&key(), "other").once(&store) else {
        panic!("nobody knows who writes it");
    };
    assert_eq!(busy.lease.unwrap().1, Verdict::Malformed);
    assert!(store.reap(Reap::Free).unwrap().is_empty());
}

#[test]
fn a_lock_that_the_same_script_wrote_itself_is_adopted() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let script = sleeper();
    replace(dir.path(), &foreign("script", script.id()));
    let asked = store
        .acquire(&claim_for(&store, "script", script.id()))
        .unwrap();
    let Acquired::Granted { lease, .. } = asked else {
        panic!("{asked:?}");
    };
    assert!(lease.token > Token::NONE);
    let again = store
        .acquire(&claim_for(&store, "script", script.id()))
        .unwrap();
    let Acquired::Granted {
        lease: same,
        reason,
    } = again
    else {
        panic!("{again:?}");
    };
    assert_eq!((same.token, reason), (lease.token, Reason::AlreadyOwned));
    let asked = store
        .acquire(&claim_for(&store, "other", script.id()))
        .unwrap();
    assert!(matches!(asked, Acquired::Busy(_)), "{asked:?}");
}

#[test]
fn a_waiter_is_woken_when_another_tool_removes_its_lock() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let tool = sleeper();
    replace(dir.path(), &foreign("tool", tool.id()));
    let busy = queued(&store, "waiter");
    std::thread::scope(|scope| {
        let wait = scope.spawn(|| store.wait(&busy.watch(&key()), TTL));
        fs::remove_file(place(dir.path())).unwrap();
        assert_eq!(wait.join().unwrap().unwrap(), Waited::Changed);
    });
    let (_, reason) = Ask::new(&key(), "waiter").granted_for(&store);
    assert_eq!(reason, Reason::AcquiredNew);
}

#[test]
fn a_waiter_is_woken_when_another_tool_dies_and_takes_its_lock_over() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let mut tool = sleeper();
    replace(dir.path(), &foreign("tool", tool.id()));
    let busy = queued(&store, "waiter");
    std::thread::scope(|scope| {
        let wait = scope.spawn(|| store.wait(&busy.watch(&key()), TTL));
        tool.end();
        assert_eq!(wait.join().unwrap().unwrap(), Waited::Changed);
    });
    let (_, reason) = Ask::new(&key(), "waiter").granted_for(&store);
    assert_eq!(reason, Reason::ClaimedDead);
}

#[test]
fn a_waiter_behind_another_tool_that_lives_sleeps() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    replace(dir.path(), &foreign("tool", std::process::id()));
    let busy = queued(&store, "waiter");
    let waited = store.wait(&busy.watch(&key()), Duration::from_millis(300));
    assert_eq!(waited.unwrap(), Waited::TimedOut);
}

#[test]
fn what_a_lock_file_can_not_say_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let detached = Ask::new(&key(), "us").detached().claim(&store);
    let error = store.acquire(&detached).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unsupported);
    assert!(error.to_string().contains("--pid"), "{error}");
    let build = Key::parse("build").unwrap();
    for error in [
        store.acquire(&Ask::new(&build, "us").claim(&store)).err(),
        store.inspect(&build).err(),
    ] {
        let error = error.unwrap();
        assert_eq!(error.kind, ErrorKind::Unsupported);
        assert!(error.to_string().contains("database"), "{error}");
    }
    let error = ExclusiveStore::open(&dir.path().join("nowhere"), Options::default());
    assert_eq!(error.err().unwrap().kind, ErrorKind::NotAStore);
}
