//! Claims beside other programs: claim files, the documented rule for lock state, reapers, clocks.

use std::collections::BTreeMap;
use std::fs;
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};
use tenure_core::{
    Acquired, Clock, ErrorKind, EventKind, Grant, Granted, HistoryQuery, HolderId, Key, Reap,
    Reason, Records, Released, Renewed, Store, Token, Verdict,
};
use tenure_host::HostClock;
use tenure_ledger::{Dialect, Ledger, LedgerStore};
use tenure_ledger::{Durability, Options};
use tenure_testkit::checks::grace;
use tenure_testkit::soon;
use tenure_testkit::{Ask, Chance, FakeClock, Process, history, process};

fn options() -> Options {
    Options {
        durability: Durability::Crash,
        ..Options::default()
    }
}

fn open(dir: &Path) -> LedgerStore {
    let ledger = Ledger::init(dir, Dialect::Documented, options()).unwrap();
    any_ttl(LedgerStore::of(ledger))
}

/// Without the protocol's limits, so that claims expire soon.
fn any_ttl(store: LedgerStore) -> LedgerStore {
    store.with_ttl_limits(Duration::ZERO..=Duration::MAX)
}

fn key(node: &str) -> Key {
    Key::parse(format!("node:{node}")).unwrap()
}

fn now() -> Timestamp {
    HostClock::new().now().wall
}

fn file_claim(dir: &Path, name: &str, node: &str, owner: &str, expires: Timestamp) {
    fs::create_dir_all(dir.join("locks")).unwrap();
    let text = json!({
        "node_id": node, "owner": owner,
        "acquired_at": "2026-01-01T00:00:00.123456789Z", "expires_at": expires.to_string(),
    });
    fs::write(dir.join("locks").join(name), text.to_string()).unwrap();
}

fn events(dir: &Path) -> Vec<Value> {
    (1..)
        .map_while(|seq| fs::read(dir.join(format!("ledger/event-{seq:06}.json"))).ok())
        .map(|bytes| serde_json::from_slice(&bytes).unwrap())
        .collect()
}

/// The documented pseudocode for lock state, to the letter. It shares no code with tenure.
fn by_the_protocol(dir: &Path, now: Timestamp) -> BTreeMap<String, (String, Timestamp)> {
    let mut locks: BTreeMap<String, (String, Timestamp)> = BTreeMap::new();
    for event in events(dir) {
        let text = |name: &str| event[name].as_str().unwrap().to_owned();
        match event["type"].as_str().unwrap() {
            "lock_acquired" => {
                let expires = text("expires_at").parse().unwrap();
                locks.insert(text("node_id"), (text("owner"), expires));
            }
            "lock_released" | "lock_reaped" => {
                locks.remove(&text("node_id"));
            }
            _ => {}
        }
    }
    locks.retain(|_, (_, expires)| *expires > now);
    locks
}

fn by_tenure(dir: &Path, now: Timestamp) -> BTreeMap<String, (String, Timestamp)> {
    let claims = open(dir).claims().unwrap();
    claims
        .into_iter()
        .map(|claim| {
            let lease = claim.lease;
            let who = lease.holder.id.to_string();
            (claim.node.to_string(), (who, lease.expires.unwrap().wall))
        })
        .filter(|(_, (_, expires))| *expires > now)
        .collect()
}

/// Not a test: runs random verbs on some nodes until it is killed, or reaps on request.
#[test]
fn worker() {
    let Some(job) = process::job() else { return };
    let mut words = job.splitn(4, ' ');
    let (what, seed, times, dir) = (
        words.next().unwrap(),
        words.next().unwrap().parse().unwrap(),
        words.next().unwrap().parse::<u64>().unwrap(),
        words.next().unwrap(),
    );
    let store = open(Path::new(dir));
    let mut chance = Chance::from_seed(seed);
    process::report("ready");
    match what {
        "random" => at_random(&store, &mut chance, times),
        "reap" => {
            for line in std::io::stdin().lines() {
                assert_eq!(line.unwrap(), "go");
                let freed = store.reap(Reap::Free, soon()).unwrap().len();
                process::report(&freed.to_string());
            }
        }
        other => panic!("{other}"),
    }
}

fn at_random(store: &LedgerStore, chance: &mut Chance, times: u64) {
    let nodes = ["1", "1.1", "1.2", "1.10", "2.3.4", "3"];
    let mut held: Vec<Grant> = Vec::new();
    for _ in 0..times {
        let key = key(nodes[chance.index(nodes.len())]);
        let name = format!("agent-{}", chance.below(5));
        match chance.below(10) {
            0..5 => {
                let mut ask = Ask::new(&key, &name);
                if chance.one_in(2) {
                    ask = ask.detached();
                }
                if chance.one_in(3) {
                    ask = ask.ttl(Duration::from_millis(chance.below(30)));
                }
                if let Acquired::Granted(Granted { lease, .. }) = ask.once(store) {
                    held.push(lease.grant());
                }
            }
            5..7 => {
                if let Some(grant) = held.pop() {
                    let _ = store.release(&grant, soon()).unwrap();
                }
            }
            7 => {
                if let Some(grant) = held.last() {
                    let _ = store
                        .renew(grant, Duration::from_millis(50), soon())
                        .unwrap();
                }
            }
            8 => {
                store.reap(Reap::Free, soon()).unwrap();
            }
            _ => {
                let by = HolderId::parse("admin").unwrap();
                let _ = store.force(&key, None, &by, None, soon()).unwrap();
            }
        }
    }
}

#[test]
fn thousands_of_random_verbs_under_sigkill_agree_with_the_documented_rule() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    open(dir);
    let mut chance = Chance::from_seed(Chance::seed());
    let start = |seed: u64, times: u64| {
        let job = format!("random {seed} {times} {}", dir.display());
        Process::start("ledger_claims::worker", &job)
    };
    let mut crew: Vec<Process> = (0..8).map(|_| start(chance.next(), 1_000_000)).collect();
    let mut kills = 0;
    while events(dir).len() < 4000 {
        std::thread::sleep(chance.time(Duration::from_millis(60)));
        let unlucky = chance.index(crew.len());
        crew.swap_remove(unlucky).kill();
        kills += 1;
        crew.push(start(chance.next(), 1_000_000));
    }
    for mut process in crew {
        process.kill();
        kills += 1;
    }
    // The last process may have been killed inside a batch: the next writer completes it.
    let last = Ask::new(&key("9"), "last").detached().granted(&open(dir));
    let then = now();
    assert_eq!(
        by_tenure(dir, then),
        by_the_protocol(dir, then),
        "{kills} kills"
    );
    let verified = open(dir).ledger().verify().unwrap();
    assert!(
        verified.findings.is_empty(),
        "{:?}",
        verified.findings.first()
    );
    assert!(verified.claims > 1000, "only {} claims", verified.claims);
    let events = open(dir).history(&HistoryQuery::default(), soon()).unwrap();
    let flaws = history::contradictions(&events);
    assert!(flaws.is_empty(), "{:?}", flaws.first());
    assert!(kills > 20, "only {kills} kills");
    assert!(last.token > Token(4000));
}

#[test]
fn two_reapers_and_a_renewal_at_once_end_a_claim_at_most_once_and_never_a_renewed_one() {
    const ROUNDS: usize = 200;
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let store = open(dir);
    let mut chance = Chance::from_seed(Chance::seed());
    let start = || {
        Process::start(
            "ledger_claims::worker",
            &format!("reap 1 0 {}", dir.display()),
        )
    };
    let mut reapers = [start(), start()];
    for reaper in &reapers {
        assert_eq!(reaper.report(), "ready");
    }
    let node = key("1.2");
    let (mut refreshed, mut reaped) = (0, 0);
    for round in 0..ROUNDS {
        let ttl = Duration::from_millis(2);
        let ask = Ask::new(&node, &format!("agent-{round}"))
            .detached()
            .ttl(ttl);
        let lease = ask.granted(&store);
        let before = events(dir).len();
        // Around the time when it expires.
        std::thread::sleep(chance.time(ttl * 2));
        for reaper in &mut reapers {
            reaper.tell("go");
        }
        let renewed = store
            .renew(&lease.grant(), Duration::from_secs(60), soon())
            .unwrap();
        let freed: usize = reapers
            .iter()
            .map(|r| r.report().parse::<usize>().unwrap())
            .sum();
        let new = events(dir).split_off(before);
        let ends = new
            .iter()
            .filter(|event| event["type"] == "lock_reaped")
            .count();
        assert_eq!(ends, freed, "round {round}: {new:?}");
        assert!(freed <= 1, "round {round}: {new:?}");
        match renewed {
            Renewed::Extended(_) => {
                refreshed += 1;
                assert_eq!(
                    freed, 0,
                    "round {round}: a renewed claim was reaped: {new:?}"
                );
                let snapshot = store.inspect(&node, soon()).unwrap();
                let (found, _) = snapshot.lease().unwrap();
                assert!(found.is(&lease.grant()));
                let released = store.release(&lease.grant(), soon()).unwrap();
                assert!(matches!(released, Released::Freed(_)));
            }
            Renewed::Lost(_) => {
                reaped += 1;
                assert_eq!(freed, 1, "round {round}: {new:?}");
            }
        }
        assert!(store.inspect(&node, soon()).unwrap().lease().is_none());
    }
    let verified = store.ledger().verify().unwrap();
    assert!(
        verified.findings.is_empty(),
        "{:?}",
        verified.findings.first()
    );
    println!("{refreshed} refreshed, {reaped} reaped");
    assert!(
        refreshed > 5 && reaped > 5,
        "{refreshed} refreshed, {reaped} reaped"
    );
}

#[test]
fn a_claim_in_a_file_is_honoured_until_it_expires() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let store = open(dir);
    let later = now() + Duration::from_secs(60);
    file_claim(dir, "a.lock", "1.2", "filer", later);
    let Acquired::Busy(busy) = Ask::new(&key("1.2"), "other").once(&store) else {
        panic!("the file claims it");
    };
    let (lease, verdict) = busy.lease().unwrap();
    assert_eq!(lease.holder.id.as_str(), "filer");
    assert_eq!(lease.expires.as_ref().unwrap().wall, later);
    assert!(matches!(verdict, Verdict::Unknown(_)));
    assert!(store.reap(Reap::Free, soon()).unwrap().is_empty());
    let _ = Ask::new(&key("1.3"), "other").granted(&store);

    file_claim(
        dir,
        "a.lock",
        "1.2",
        "filer",
        now() - Duration::from_secs(1),
    );
    let (_, reason) = Ask::new(&key("1.2"), "other").granted_for(&store);
    assert_eq!(reason, Reason::ClaimedExpired);
    assert!(!dir.join("locks/a.lock").exists());
    let new: Vec<Value> = events(dir).split_off(1);
    assert_eq!(new[0]["type"], "lock_reaped");
    assert_eq!(
        (&new[0]["node_id"], &new[0]["owner"]),
        (&json!("1.2"), &json!("filer"))
    );
    assert_eq!(new[1]["type"], "lock_acquired");
    assert_eq!(new.len(), 2);
}

#[test]
fn a_malformed_claim_file_claims_the_node_it_is_named_after() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let store = open(dir);
    fs::create_dir(dir.join("locks")).unwrap();
    fs::write(dir.join("locks/1.2.lock"), "{").unwrap();
    fs::write(dir.join("locks/what.lock"), "{").unwrap();
    let asked = Ask::new(&key("1.2"), "a").once(&store);
    assert!(matches!(asked, Acquired::Busy(_)), "{asked:?}");
    assert!(store.reap(Reap::Free, soon()).unwrap().is_empty());
    let by = HolderId::parse("admin").unwrap();
    let _ = store.force(&key("1.2"), None, &by, None, soon()).unwrap();
    assert!(!dir.join("locks/1.2.lock").exists());
    assert!(dir.join("locks/what.lock").exists());
    let _ = Ask::new(&key("1.2"), "a").granted(&store);
}

#[test]
fn an_expired_claim_file_stays_while_the_ledger_has_a_claim_on_its_node() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let store = open(dir);
    let lease = Ask::new(&key("1"), "holder").detached().granted(&store);
    file_claim(dir, "x.lock", "1", "old", now() - Duration::from_secs(1));
    assert!(store.reap(Reap::Free, soon()).unwrap().is_empty());
    let then = now();
    assert_eq!(
        by_the_protocol(dir, then)["1"].0,
        "holder",
        "by the documented rule, too"
    );
    assert_eq!(by_tenure(dir, then)["1"].0, "holder");
    let _ = store.release(&lease.grant(), soon()).unwrap();
    assert_eq!(store.reap(Reap::Free, soon()).unwrap().len(), 1);
    assert!(!dir.join("locks/x.lock").exists());
}

#[test]
fn a_claim_file_beside_an_expired_claim_can_be_forced() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let store = open(dir);
    let brief = Ask::new(&key("1"), "brief").detached();
    let _ = brief.ttl(Duration::from_millis(1)).granted(&store);
    std::thread::sleep(Duration::from_millis(5));
    file_claim(dir, "x.lock", "1", "filer", now() + Duration::from_secs(60));
    let by = HolderId::parse("admin").unwrap();
    let _ = store.force(&key("1"), None, &by, None, soon()).unwrap();
    assert!(!dir.join("locks/x.lock").exists());
    let new: Vec<Value> = events(dir).split_off(1);
    let owners: Vec<&str> = new
        .iter()
        .map(|event| event["owner"].as_str().unwrap())
        .collect();
    assert_eq!(owners, ["brief", "filer"], "each end is recorded");
    let _ = Ask::new(&key("1"), "next").granted(&store);
}

#[test]
fn another_programs_claim_with_the_number_of_a_failed_grant_is_not_tied_to_its_process() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let _ = Ask::new(&key("1"), "dead").granted(&open(dir));
    // As if it had been killed before its event was appended, and another program came next.
    let until = (now() + Duration::from_secs(60)).to_string();
    let theirs = json!({"type":"lock_acquired","timestamp":now().to_string(),"node_id":"1","owner":"theirs","expires_at":until});
    fs::write(dir.join("ledger/event-000001.json"), theirs.to_string()).unwrap();
    let Acquired::Busy(busy) = Ask::new(&key("1"), "other").once(&open(dir)) else {
        panic!("a live claim was taken over");
    };
    let (lease, verdict) = busy.lease().unwrap();
    assert_eq!(lease.holder.id.as_str(), "theirs");
    assert!(matches!(verdict, Verdict::Unknown(_)), "{verdict:?}");
}

#[test]
fn an_interrupted_reap_of_a_claim_file_is_undone_or_completed() {
    for appended in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path();
        let store = open(dir);
        file_claim(dir, "x.lock", "1", "old", now() - Duration::from_secs(1));
        let sidecar = dir.join("ledger/.ledger-tenure");
        fs::create_dir_all(&sidecar).unwrap();
        let event = r#"{"type":"lock_reaped","timestamp":"2026-01-01T00:00:00Z","node_id":"1","owner":"old"}"#;
        let digest = tenure_host::files::digest(event.as_bytes());
        let note = json!({ "place": dir.join("locks/x.lock"), "seq": 1, "digest": digest });
        fs::write(sidecar.join("reaping"), note.to_string()).unwrap();
        fs::rename(dir.join("locks/x.lock"), sidecar.join("reaped")).unwrap();
        if appended {
            fs::write(dir.join("ledger/event-000001.json"), event).unwrap();
        }
        // Readers see the file in its place until its end is reported.
        let seen = store.inspect(&key("1"), soon()).unwrap();
        let holder = seen.lease().map(|(lease, _)| lease.holder.id.to_string());
        let expected = (!appended).then(|| "old".to_owned());
        assert_eq!(holder, expected);
        let _ = Ask::new(&key("7"), "next").granted(&store);
        assert!(!sidecar.join("reaped").exists());
        assert_eq!(dir.join("locks/x.lock").exists(), !appended);
        store.reap(Reap::Free, soon()).unwrap();
        let reaped = events(dir);
        let reaped = reaped.iter().filter(|event| event["type"] == "lock_reaped");
        assert_eq!(reaped.count(), 1, "appended: {appended}");
    }
}

#[test]
fn another_programs_claims_and_releases_count_and_a_late_release_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let store = open(dir);
    let put = |event: Value| {
        let seq = events(dir).len() + 1;
        fs::write(dir.join("t"), event.to_string()).unwrap();
        fs::rename(
            dir.join("t"),
            dir.join(format!("ledger/event-{seq:06}.json")),
        )
        .unwrap();
    };
    let at = now().to_string();
    let until = (now() + Duration::from_secs(60)).to_string();
    put(
        json!({"type":"lock_acquired","timestamp":at,"node_id":"1","owner":"theirs","expires_at":until}),
    );
    let asked = Ask::new(&key("1"), "ours").once(&store);
    assert!(matches!(asked, Acquired::Busy(_)), "{asked:?}");
    // Its owner may continue through tenure.
    let again = Ask::new(&key("1"), "theirs").detached();
    let (lease, reason) = again.granted_for(&store);
    assert_eq!((lease.token, reason), (Token(1), Reason::AlreadyOwned));
    let at = now().to_string();
    put(json!({"type":"lock_released","timestamp":at,"node_id":"1","owner":"theirs"}));
    let lease = Ask::new(&key("1"), "ours").granted(&store);
    put(json!({"type":"lock_reaped","timestamp":now().to_string(),"node_id":"1","owner":"theirs"}));
    let snapshot = open(dir).inspect(&key("1"), soon()).unwrap();
    let (found, _) = snapshot.lease().unwrap();
    assert!(
        found.is(&lease.grant()),
        "the end of an earlier claim changes nothing"
    );
}

#[test]
fn a_waiter_is_woken_by_another_programs_release() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let store = open(dir);
    let until = (now() + Duration::from_secs(3600)).to_string();
    let event = |kind: &str| json!({"type":kind,"timestamp":now().to_string(),"node_id":"1","owner":"theirs","expires_at":until});
    fs::write(
        dir.join("ledger/event-000001.json"),
        event("lock_acquired").to_string(),
    )
    .unwrap();
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| {
            let ask = Ask::new(&key("1"), "ours").waiting();
            tenure_testkit::waiting::acquire(&store, &ask, |_| ()).lease()
        });
        tenure_testkit::limit::within_limit("a ticket to be taken", || {
            !open(dir)
                .inspect(&key("1"), soon())
                .unwrap()
                .queue
                .is_empty()
        });
        fs::write(dir.join("t"), event("lock_released").to_string()).unwrap();
        fs::rename(dir.join("t"), dir.join("ledger/event-000002.json")).unwrap();
        assert_eq!(waits.join().unwrap().token, Token(3));
    });
}

/// Appends events as the documented protocol does, without a pause, until `stop` is set.
fn append_as_another_program(dir: &Path, stop: &AtomicBool) {
    let ledger = dir.join("ledger");
    let lock = ledger.join("ledger.lock");
    let mut take = fs::File::options();
    take.write(true).create_new(true);
    while !stop.load(Ordering::Relaxed) {
        if take.open(&lock).is_err() {
            std::thread::sleep(Duration::from_millis(1));
            continue;
        }
        let next = (1..1_000_000).find(|seq| !ledger.join(format!("event-{seq:06}.json")).exists());
        let temporary = ledger.join(format!(".event-{:?}.tmp", std::thread::current().id()));
        let event = json!({"type":"note","timestamp":now().to_string()});
        fs::write(&temporary, event.to_string()).unwrap();
        let name = format!("event-{:06}.json", next.unwrap());
        fs::rename(&temporary, ledger.join(name)).unwrap();
        fs::remove_file(&lock).unwrap();
    }
}

#[test]
fn claims_and_renewals_do_not_starve_beside_programs_that_append_all_the_time() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    // With syncs, which give the other programs time to append between the look and the append.
    let ledger = Ledger::init(dir, Dialect::Documented, Options::default()).unwrap();
    let store = LedgerStore::of(ledger);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| append_as_another_program(dir, &stop));
        }
        let verbs = std::panic::catch_unwind(AssertUnwindSafe(|| {
            for round in 0..10 {
                let node = key(&format!("1.{}", round + 1));
                let lease = Ask::new(&node, "a").granted(&store);
                for _ in 0..3 {
                    let ttl = Duration::from_secs(60);
                    let renewed = store.renew(&lease.grant(), ttl, soon()).unwrap();
                    assert!(matches!(renewed, Renewed::Extended(_)), "{renewed:?}");
                }
                let released = store.release(&lease.grant(), soon()).unwrap();
                assert!(matches!(released, Released::Freed(_)), "{released:?}");
            }
        }));
        stop.store(true, Ordering::Relaxed);
        verbs.unwrap();
    });
    let verified = store.ledger().verify().unwrap();
    assert!(verified.is_sound(), "{:?}", verified.findings.first());
    assert!(verified.events > 100, "{} events", verified.events);
}

#[test]
fn reads_leave_out_a_waiter_after_its_grace() {
    let dir = tempfile::tempdir().unwrap();
    Ledger::init(dir.path(), Dialect::Documented, options()).unwrap();
    let clock = Arc::new(FakeClock::booted("one"));
    let open = || {
        let options = Options {
            clock: clock.clone(),
            ..options()
        };
        any_ttl(LedgerStore::open(dir.path(), options).unwrap())
    };
    grace::reads_leave_out_a_waiter_after_its_grace(&open(), &open(), &key("1"), &clock);
}

#[test]
fn a_jump_of_the_wall_clock_expires_no_claim_of_this_boot() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    Ledger::init(dir, Dialect::Documented, options()).unwrap();
    let clock = Arc::new(FakeClock::booted("one"));
    let open = || {
        let options = Options {
            clock: clock.clone(),
            ..options()
        };
        any_ttl(LedgerStore::open(dir, options).unwrap())
    };
    let ask = Ask::new(&key("1"), "a")
        .detached()
        .ttl(Duration::from_secs(60));
    let lease = ask.granted(&open());
    clock.jump_forward(Duration::from_secs(3600));
    let asked = Ask::new(&key("1"), "b").detached().once(&open());
    assert!(matches!(asked, Acquired::Busy(_)), "{asked:?}");
    clock.jump_back(Duration::from_secs(7200));
    clock.pass(Duration::from_secs(61));
    let (taken, reason) = Ask::new(&key("1"), "b").detached().granted_for(&open());
    assert_eq!(reason, Reason::ClaimedExpired);
    assert!(taken.token > lease.token);
    let events = open().history(&HistoryQuery::default(), soon()).unwrap();
    let kinds: Vec<EventKind> = events.iter().map(|event| event.kind).collect();
    assert_eq!(
        kinds,
        [EventKind::Granted, EventKind::Expired, EventKind::Granted]
    );
}

#[test]
fn without_its_sidecar_folder_a_claim_lasts_until_it_expires() {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    let lease = Ask::new(&key("1"), "a").granted(&open(dir));
    fs::remove_dir_all(dir.join("ledger/.ledger-tenure")).unwrap();
    let asked = Ask::new(&key("1"), "b").once(&open(dir));
    assert!(matches!(asked, Acquired::Busy(_)), "{asked:?}");
    let released = open(dir).release(&lease.grant(), soon()).unwrap();
    assert!(
        matches!(released, Released::Freed(_)),
        "the ledger has the grant"
    );
    let next = Ask::new(&key("1"), "b").granted(&open(dir));
    assert!(next.token > lease.token);
}

#[test]
fn a_claim_lasts_between_a_second_and_an_hour() {
    let dir = tempfile::tempdir().unwrap();
    let ledger = Ledger::init(dir.path(), Dialect::Documented, options()).unwrap();
    let store = LedgerStore::of(ledger);
    let seconds = Duration::from_secs;
    for ttl in [seconds(0), Duration::from_millis(999), seconds(3601)] {
        let ask = Ask::new(&key("1"), "a").ttl(ttl);
        let error = store.acquire(&ask.claim(&store), soon()).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Unsupported, "{ttl:?}");
        assert!(error.to_string().contains("from 1s to 1h"), "{error}");
    }
    assert!(events(dir.path()).is_empty());
    let lease = Ask::new(&key("1"), "a").ttl(seconds(3600)).granted(&store);
    let error = store
        .renew(&lease.grant(), seconds(3601), soon())
        .unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unsupported);
    let renewed = store.renew(&lease.grant(), seconds(1), soon()).unwrap();
    assert!(matches!(renewed, Renewed::Extended(_)), "{renewed:?}");
}

#[test]
fn only_nodes_can_be_claimed() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    for name in [
        "build",
        "task:1",
        "node:x",
        "node:1..2",
        "node:01",
        "node:1.0",
    ] {
        let ask = Ask::new(&Key::parse(name).unwrap(), "a");
        let error = store
            .acquire(&ask.claim(&store), soon())
            .unwrap_err()
            .to_string();
        assert!(error.contains("node:1.2.3"), "{name}: {error}");
    }
}

/// Appends as another program does, at full speed, until it is stopped: the lock file, the largest number
/// in the folder, a temporary file, a rename.
fn append_until(stop: &AtomicBool, ledger: &Path, name: usize) -> usize {
    let lock = ledger.join("ledger.lock");
    let temp = ledger.join(format!(".event-{name}.tmp"));
    let mut appended = 0;
    while !stop.load(Ordering::Relaxed) {
        if fs::File::create_new(&lock).is_err() {
            std::thread::sleep(Duration::from_millis(1));
            continue;
        }
        let number = |entry: fs::DirEntry| {
            let name = entry.file_name().into_string().ok()?;
            let digits = name.strip_prefix("event-")?.strip_suffix(".json")?;
            digits.parse::<u64>().ok()
        };
        let names = fs::read_dir(ledger).unwrap();
        let last = names.filter_map(|entry| number(entry.unwrap())).max();
        fs::write(
            &temp,
            r#"{"type":"note","timestamp":"2026-01-01T00:00:00Z"}"#,
        )
        .unwrap();
        let next = format!("event-{:06}.json", last.unwrap_or(0) + 1);
        fs::rename(&temp, ledger.join(next)).unwrap();
        fs::remove_file(&lock).unwrap();
        appended += 1;
    }
    appended
}

#[test]
fn claims_are_granted_renewed_and_released_beside_four_appenders_at_full_speed() {
    const NODES: usize = 30;
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let ledger = dir.path().join("ledger");
    let stop = AtomicBool::new(false);
    let appended: usize = std::thread::scope(|scope| {
        let appenders: Vec<_> = (0..4)
            .map(|name| {
                let (stop, ledger) = (&stop, &ledger);
                scope.spawn(move || append_until(stop, ledger, name))
            })
            .collect();
        let verbs = std::panic::catch_unwind(AssertUnwindSafe(|| {
            for node in 1..=NODES {
                let held = Ask::new(&key(&node.to_string()), "a").granted(&store);
                let grant = held.grant();
                let renewed = store.renew(&grant, Duration::from_secs(600), soon());
                assert!(matches!(renewed, Ok(Renewed::Extended(_))), "{renewed:?}");
                let released = store.release(&grant, soon());
                assert!(matches!(released, Ok(Released::Freed(_))), "{released:?}");
            }
        }));
        stop.store(true, Ordering::Relaxed);
        let appended = appenders.into_iter().map(|one| one.join().unwrap()).sum();
        verbs.unwrap();
        appended
    });
    let verified = store.ledger().verify().unwrap();
    assert!(verified.is_sound(), "{:?}", verified.findings);
    assert_eq!(
        verified.events,
        u64::try_from(appended + 3 * NODES).unwrap()
    );
}

/// What watches a ledger has to hear a claim and a waiter.
#[test]
fn every_claim_and_every_waiter_changes_one_of_the_folders_that_are_told() {
    let dir = tempfile::tempdir().unwrap();
    let (store, waiter) = (open(dir.path()), open(dir.path()));
    let all = || {
        let mut files: Vec<(PathBuf, Vec<u8>)> = Vec::new();
        for folder in tenure_ledger::folders_of_claims(dir.path()) {
            for entry in fs::read_dir(folder).into_iter().flatten() {
                let path = entry.unwrap().path();
                if path.is_file() {
                    files.push((path.clone(), fs::read(path).unwrap()));
                }
            }
        }
        files.sort();
        files
    };
    let before = all();
    Ask::new(&key("1"), "holder").granted(&store);
    let held = all();
    assert_ne!(held, before);
    let asked = Ask::new(&key("1"), "waiter").waiting().once(&waiter);
    assert!(matches!(asked, Acquired::Busy(_)), "{asked:?}");
    assert_ne!(all(), held);
}
