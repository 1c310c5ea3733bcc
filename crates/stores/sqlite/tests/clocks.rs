//! Jumps of the wall clock, restarts of the machine, and power cuts.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;
use tempfile::TempDir;
use tenure_core::{Acquired, Fenced, Key, Lease, Mode, Reason, Renewed, Store, Token, Verdict};
use tenure_sqlite::{SqliteOptions, SqliteStore};
use tenure_testkit::checks::grace;
use tenure_testkit::soon;
use tenure_testkit::{Ask, FakeClock};

const DAY: Duration = Duration::from_secs(24 * 3600);
const MINUTE: Duration = Duration::from_secs(60);

struct Machine {
    dir: TempDir,
    clock: Arc<FakeClock>,
}

impl Machine {
    fn new() -> Self {
        Self {
            dir: tempfile::tempdir().unwrap(),
            clock: Arc::new(FakeClock::booted("first boot")),
        }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("tenure.db")
    }

    fn open(&self) -> SqliteStore {
        let options = SqliteOptions {
            clock: self.clock.clone(),
            ..SqliteOptions::default()
        };
        SqliteStore::open(&self.path(), options).unwrap()
    }

    /// What a power cut leaves if the kernel had not written anything of the log yet. No process may
    /// have the database open.
    fn lose_the_log(&self) {
        for left in ["-wal", "-shm"] {
            let _ = fs::remove_file(format!("{}{left}", self.path().display()));
        }
    }

    /// Folds the log into the database, as every hundred pages do.
    fn fold(&self) {
        let db = Connection::open(self.path()).unwrap();
        db.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()))
            .unwrap();
    }
}

/// Grants a key, gives it back, and tells the token.
fn token(store: &SqliteStore) -> Token {
    token_of("build", store)
}

/// The same for another key: what was held when the power went may be held still, for this process
/// did not really end with it.
fn token_of(name: &str, store: &SqliteStore) -> Token {
    let lease = Ask::new(&key(name), "holder").granted(store);
    let _ = store.release(&lease.grant(), soon()).unwrap();
    lease.token
}

fn key(name: &str) -> Key {
    Key::parse(name).unwrap()
}

fn add_task(path: &Path) {
    Connection::open(path)
        .unwrap()
        .execute_batch("INSERT INTO tasks (id, title) VALUES ('t1', 'A task')")
        .unwrap();
}

#[test]
fn a_jump_of_the_wall_clock_ends_no_lease() {
    let machine = Machine::new();
    let (store, other) = (machine.open(), machine.open());
    add_task(&machine.path());
    for key in [key("build"), key("task:t1")] {
        for detached in [false, true] {
            let mut ask = Ask::new(&key, "holder").ttl(MINUTE);
            ask.detached = detached;
            let lease = ask.granted(&store);
            let stands = || {
                let asked = Ask::new(&key, "other").once(&other);
                assert!(matches!(asked, Acquired::Busy(_)), "{key}: {asked:?}");
                let fenced = other.fence(&key, lease.token, soon()).unwrap();
                assert!(matches!(fenced, Fenced::Current(_)), "{key}: {fenced:?}");
                assert_eq!(
                    other.reap(tenure_core::Reap::Free, soon()).unwrap().len(),
                    0
                );
            };
            machine.clock.jump_forward(DAY);
            stands();
            machine.clock.jump_back(3 * DAY);
            stands();
            machine.clock.jump_forward(2 * DAY);
            machine.clock.pass(MINUTE);
            let (next, reason) = Ask::new(&key, "other").granted_for(&other);
            assert_eq!(reason, Reason::ClaimedExpired);
            let _ = other.release(&next.grant(), soon()).unwrap();
        }
    }
}

#[test]
fn a_lease_of_an_earlier_boot_lasts_until_its_end_by_the_wall_clock() {
    let machine = Machine::new();
    let store = machine.open();
    let key = key("build");
    let ask = Ask::new(&key, "holder").ttl(60 * MINUTE).detached();
    ask.granted(&store);
    machine.clock.reboot("second boot");
    machine.clock.jump_forward(30 * MINUTE);
    let other = machine.open();
    let asked = Ask::new(&key, "other").once(&other);
    let Acquired::Busy(busy) = &asked else {
        panic!("half an hour early: {asked:?}");
    };
    assert!(matches!(busy.lease(), Some((_, Verdict::Unknown(_)))));
    machine.clock.jump_forward(31 * MINUTE);
    let (_, reason) = Ask::new(&key, "other").granted_for(&other);
    assert_eq!(reason, Reason::ClaimedExpired);
}

#[test]
fn a_ticket_of_an_earlier_boot_blocks_no_waiter() {
    let machine = Machine::new();
    let key = key("build");
    let (store, waiting) = (machine.open(), machine.open());
    let lease = Ask::new(&key, "holder").granted(&store);
    let queued = Ask::new(&key, "waiting").waiting().once(&waiting);
    assert!(matches!(queued, Acquired::Busy(_)));
    machine.clock.reboot("second boot");
    let _ = store.release(&lease.grant(), soon()).unwrap();
    let (_, reason) = Ask::new(&key, "newcomer").granted_for(&machine.open());
    assert_eq!(reason, Reason::AcquiredNew);
}

#[test]
fn reads_leave_out_a_waiter_after_its_grace() {
    let machine = Machine::new();
    let (store, waiter) = (machine.open(), machine.open());
    let (key, clock) = (key("build"), &machine.clock);
    grace::reads_leave_out_a_waiter_after_its_grace(&store, &waiter, &key, clock);
}

#[test]
fn tokens_jump_with_every_boot_and_never_go_back() {
    let machine = Machine::new();
    let store = machine.open();
    let mut last = token(&store);
    for boot in ["second", "third", "first boot", "second", "second"] {
        let before = last;
        machine.clock.reboot(boot);
        for store in [&store, &machine.open()] {
            let token = self::token(store);
            assert!(token > last, "{boot}: {token} after {last}");
            last = token;
        }
        assert!(
            last.0 > before.0 + 1000 || boot == "second",
            "{boot}: from {before} to {last}"
        );
    }
}

#[test]
fn a_power_cut_that_undoes_the_last_grants_brings_no_token_back() {
    let machine = Machine::new();
    let store = machine.open();
    token(&store);
    drop(store);
    machine.fold();
    let store = machine.open();
    let last = (0..5).map(|_| token(&store)).last().unwrap();
    drop(store);
    machine.lose_the_log();
    machine.clock.reboot("second boot");
    let next = token(&machine.open());
    assert!(next > last, "{next} was given after {last}");
}

#[test]
fn a_power_cut_that_undoes_a_whole_boot_brings_no_token_back() {
    let machine = Machine::new();
    let store = machine.open();
    token(&store);
    drop(store);
    machine.fold();
    machine.clock.reboot("second boot");
    let last = token(&machine.open());
    machine.lose_the_log();
    machine.clock.reboot("third boot");
    let next = token_of("deploy", &machine.open());
    assert!(next > last, "{next} was given after {last}");
}

#[test]
fn a_power_cut_that_undoes_the_whole_database_brings_no_token_back() {
    let machine = Machine::new();
    let last = token(&machine.open());
    machine.lose_the_log();
    machine.clock.reboot("second boot");
    let next = token_of("deploy", &machine.open());
    assert!(next > last, "{next} was given after {last}");
}

#[test]
fn without_a_boot_id_every_process_continues_above_what_a_power_cut_can_undo() {
    let machine = Machine::new();
    machine.clock.reboot("");
    let store = machine.open();
    token(&store);
    drop(store);
    machine.fold();
    let store = machine.open();
    let granted: Vec<Token> = (0..5).map(|_| token(&store)).collect();
    let last = *granted.last().unwrap();
    assert_eq!(
        last.0 - granted[0].0,
        4,
        "one jump for a process: {granted:?}"
    );
    drop(store);
    machine.lose_the_log();
    let next = token(&machine.open());
    assert!(next > last, "{next} was given after {last}");
}

#[test]
fn a_counter_without_room_grants_nothing() {
    for newest in [Token::MAX.0, i64::MAX.unsigned_abs()] {
        let machine = Machine::new();
        let store = machine.open();
        Connection::open(machine.path())
            .unwrap()
            .execute(
                "UPDATE tokens SET newest = ?1",
                [i64::try_from(newest).unwrap()],
            )
            .unwrap();
        let claim = Ask::new(&key("build"), "holder").claim(&store);
        for _ in 0..2 {
            let error = store.acquire(&claim, soon()).unwrap_err();
            assert!(error.to_string().contains(&newest.to_string()), "{error}");
        }
        machine.clock.reboot("second boot");
        assert!(machine.open().acquire(&claim, soon()).is_err());
    }
}

#[test]
fn shared_claims_end_expired_leases_so_that_they_do_not_pile_up() {
    let machine = Machine::new();
    let store = machine.open();
    let shared = |name: &str| {
        let ask = Ask::new(&key("build"), name).mode(Mode::Shared);
        ask.detached().ttl(MINUTE).granted(&store)
    };
    let expired = || {
        let leases = store.inspect(&key("build"), soon()).unwrap().leases;
        let ended = leases
            .iter()
            .filter(|(_, verdict)| verdict.ended().is_some());
        ended.count()
    };
    let few: Vec<Lease> = (0..3)
        .map(|number| shared(&format!("few-{number}")))
        .collect();
    machine.clock.pass(2 * MINUTE);
    shared("later");
    // They are in nobody's way.
    assert_eq!(expired(), 3);
    let renewed = store.renew(&few[0].grant(), MINUTE, soon()).unwrap();
    assert!(matches!(renewed, Renewed::Extended(_)), "{renewed:?}");
    for number in 0..70 {
        shared(&format!("many-{number}"));
    }
    machine.clock.pass(2 * MINUTE);
    let before = expired();
    assert!(before > 70, "{before}");
    let mut last = before;
    for number in 0..10 {
        shared(&format!("new-{number}"));
        let now = expired();
        assert!(now == 3 || last - now == 8, "from {last} to {now}");
        last = now;
    }
    assert_eq!(last, 3);
}
