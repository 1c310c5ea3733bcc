//! G2, G10: the exclusive lock survives kills, torn files, reboots and removed files.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::{Acquired, HistoryQuery, Key, Records, Store, Token};
use tenure_host::identity;
use tenure_lockfile::{Durability, ExclusiveStore, MkdirStore, Options};
use tenure_testkit::checks::grace;
use tenure_testkit::{Ask, Chance, FakeClock, Process, history, process, soon};

const NO_PROCESS: u32 = i32::MAX as u32;
const KILLS: u32 = 160;

fn key() -> Key {
    Key::parse("database").unwrap()
}

fn options() -> Options {
    Options {
        durability: Durability::Crash,
        ..Options::default()
    }
}

fn open(dir: &Path) -> ExclusiveStore {
    ExclusiveStore::open(dir, options()).unwrap()
}

fn stale() -> String {
    let host = identity::host();
    format!(
        r#"{{"holder":"stale","pid":{NO_PROCESS},"hostname":"{host}","started_at":"2025-10-25T12:00:00Z"}}"#
    )
}

fn side(dir: &Path) -> std::path::PathBuf {
    dir.join(".exclusive-lock-tenure")
}

/// Not a test: acquires, takes over and releases until it is killed. It logs each token before it does
/// anything else.
#[test]
fn worker() {
    use std::io::Write;
    let Some(dir) = process::job() else { return };
    let dir = Path::new(&dir);
    let mut log = fs::File::options()
        .append(true)
        .create(true)
        .open(dir.join("tokens"))
        .unwrap();
    process::report("ready");
    let store = open(dir);
    for round in 0_u64.. {
        if round % 2 == 0 {
            fs::write(dir.join("tool.tmp"), stale()).unwrap();
            fs::rename(dir.join("tool.tmp"), dir.join(".exclusive-lock")).unwrap();
        }
        let lease = Ask::new(&key(), "worker").granted(&store);
        log.write_all(format!("{}\n", lease.token).as_bytes())
            .unwrap();
        if round % 5 == 3 {
            fs::remove_file(dir.join(".exclusive-lock")).unwrap();
        }
        let _ = store.release(&lease.grant(), soon()).unwrap();
    }
}

#[test]
fn after_a_kill_at_any_time_the_next_claim_is_granted_with_a_larger_token() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let mut chance = Chance::from_seed(Chance::seed());
    let mut last = Token(0);
    let mut worked = 0;
    // On a slow machine, more kills until enough has happened.
    for kill in 0.. {
        if kill >= KILLS && worked > 100 {
            break;
        }
        assert!(kill < 100 * KILLS, "the workers got it {worked} times only");
        let mut worker = Process::start("survival::worker", dir.to_str().unwrap());
        assert_eq!(worker.report(), "ready");
        std::thread::sleep(chance.time(Duration::from_millis(8)));
        worker.kill();
        let given: Vec<u64> = fs::read_to_string(dir.join("tokens"))
            .unwrap_or_default()
            .lines()
            .map(|line| line.parse().unwrap())
            .collect();
        assert!(given.is_sorted_by(|a, b| a < b), "after kill {kill}");
        worked = given.len();
        last = last.max(Token(given.last().copied().unwrap_or(0)));
        let store = open(dir);
        let lease = Ask::new(&key(), "next").granted(&store);
        assert!(lease.token > last, "after kill {kill}");
        last = lease.token;
        let _ = store.release(&lease.grant(), soon()).unwrap();
        assert!(!dir.join(".exclusive-lock").exists(), "after kill {kill}");
        for left in ["next", "aside"] {
            assert!(!side(dir).join(left).exists(), "after kill {kill}: {left}");
        }
    }
    let ours: Vec<_> = open(dir)
        .history(&HistoryQuery::default(), soon())
        .unwrap()
        .into_iter()
        .filter(|event| event.token != Token::NONE)
        .collect();
    // The event that ended another program's lease was filtered out above.
    let flaws: Vec<_> = history::contradictions(&ours)
        .into_iter()
        .filter(|flaw| !flaw.what.contains("claimed_dead"))
        .collect();
    assert!(flaws.is_empty(), "{flaws:?}");
}

fn tear(dir: &Path) {
    for half in ["state.a", "state.b"] {
        fs::write(side(dir).join(half), "torn").unwrap();
    }
}

#[test]
fn a_torn_state_loses_only_the_queue() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let store = open(dir);
    let lease = Ask::new(&key(), "holder").granted(&store);
    let waiter = open(dir);
    let _ = Ask::new(&key(), "waiter").waiting().once(&waiter);
    tear(dir);
    let known = open(dir).inspect(&key(), soon()).unwrap();
    let (found, _) = known.lease().cloned().unwrap();
    assert!(found.is(&lease.grant()), "the lock file names the holder");
    assert!(known.queue.is_empty());
    let asked = Ask::new(&key(), "other").once(&open(dir));
    assert!(matches!(asked, Acquired::Busy(_)), "{asked:?}");
    let noted = fs::read_to_string(side(dir).join("history")).unwrap();
    assert!(noted.contains("the state could not be read"), "{noted}");
    let released = store.release(&lease.grant(), soon()).unwrap();
    assert!(matches!(released, tenure_core::Released::Freed(_)));
    let next = Ask::new(&key(), "next").granted(&store);
    assert!(next.token > lease.token);
    tear(dir);
    fs::remove_file(side(dir).join("ceiling")).unwrap();
    let _ = store
        .force(&key(), None, &next.holder.id, None, soon())
        .unwrap();
    let after = Ask::new(&key(), "next").granted(&store);
    assert!(after.token > next.token, "the history has the newest token");
}

#[test]
fn tokens_grow_whatever_file_is_removed() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let mut last = Token(0);
    for gone in ["state.a", "state.b", "ceiling", "history", "guard", "live"] {
        for _ in 0..2 {
            let store = open(dir);
            let lease = Ask::new(&key(), "us").granted(&store);
            assert!(lease.token > last, "{gone}: {} after {last}", lease.token);
            last = lease.token;
            let path = side(dir).join(gone);
            let _ = fs::remove_file(&path).or_else(|_| fs::remove_dir_all(&path));
            let _ = fs::remove_file(dir.join(".exclusive-lock"));
            let _ = store.release(&lease.grant(), soon()).unwrap();
        }
    }
}

#[test]
fn reads_leave_out_a_waiter_after_its_grace() {
    let dir = tempfile::tempdir().unwrap();
    let clock = Arc::new(FakeClock::booted("one"));
    let options = || Options {
        clock: clock.clone(),
        ..options()
    };
    let file = || ExclusiveStore::open(dir.path(), options()).unwrap();
    grace::reads_leave_out_a_waiter_after_its_grace(&file(), &file(), &key(), &clock);
    let folder = || MkdirStore::open(&dir.path().join("lock"), options()).unwrap();
    let board = Key::parse("board").unwrap();
    grace::reads_leave_out_a_waiter_after_its_grace(&folder(), &folder(), &board, &clock);
}

#[test]
fn a_power_cut_that_brings_back_an_old_state_repeats_no_token() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let clock = Arc::new(FakeClock::booted("one"));
    let open = || {
        let options = Options {
            clock: clock.clone(),
            ..options()
        };
        ExclusiveStore::open(dir, options).unwrap()
    };
    let pair = || {
        let store = open();
        let lease = Ask::new(&key(), "us").granted(&store);
        let _ = store.release(&lease.grant(), soon()).unwrap();
        lease.token
    };
    let mut last = pair();
    // The kernel may not name the boot.
    for boot in ["two", "three", "", ""] {
        let old = ["state.a", "state.b"].map(|half| fs::read(side(dir).join(half)).unwrap());
        for _ in 0..5 {
            let token = pair();
            assert!(token > last);
            last = token;
        }
        for (half, bytes) in ["state.a", "state.b"].iter().zip(old) {
            fs::write(side(dir).join(half), bytes).unwrap();
        }
        clock.reboot(boot);
        let token = pair();
        assert!(token > last, "{token} after {last}");
        last = token;
    }
}
