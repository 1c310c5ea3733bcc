//! Sessions that end, and what is compacted or trimmed under a waiter.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use tenure_core::{
    Acquired, Busy, HistoryQuery, Key, Records, Released, Store, Waited, Watched, Withdrawal,
};
use tenure_etcd::{Address, EtcdOptions, EtcdStore};
use tenure_testkit::checks::grace;
use tenure_testkit::limit::{LIMIT, Stopwatch, spawn_until_asleep, within_limit};
use tenure_testkit::{Ask, Etcd, FakeClock, Process, Proxy, process, soon, waiting};

use super::client::Job;
use super::{LONG, TTL, key, metric, open, open_with};

/// In the job of a waiter: the caller chose its name, or did not. Then its place is not kept for it.
const NAMED: u64 = 1;
const UNNAMED: u64 = 0;

/// Not a test: a process that waits for the key, and never polls.
#[test]
fn waiter() {
    let Some(job) = process::job() else { return };
    let job: Job = serde_json::from_str(&job).unwrap();
    let store = open(&format!("etcd://{}", job.endpoints), &job.folder);
    let mut ask = Ask::new(&key(), &job.name).ttl(LONG).waiting();
    ask.named = job.seed == NAMED;
    let lease = waiting::acquire(&store, &ask, |position| {
        process::report(&format!("{:?}", position.ticket));
    });
    process::report("granted");
    let released = store.release(&lease.lease().grant(), soon()).unwrap();
    assert!(matches!(released, Released::Freed(_)), "{released:?}");
}

/// Starts a waiter on another machine, and returns when it has a ticket.
fn start_waiter(name: &str, endpoints: &str, place: &Path, named: u64) -> (Process, String) {
    let job = Job {
        place: place.to_owned(),
        endpoints: endpoints.to_owned(),
        name: name.to_owned(),
        folder: place.join(name),
        seed: named,
    };
    let process = Process::start("waiters::waiter", &serde_json::to_string(&job).unwrap());
    let ticket = process.report();
    (process, ticket)
}

fn queue(store: &EtcdStore) -> Vec<String> {
    let snapshot = store.inspect(&key(), soon()).unwrap();
    let names = snapshot.queue.iter().map(|one| one.holder.id.to_string());
    names.collect()
}

fn release(store: &EtcdStore, lease: &tenure_core::Lease) {
    let released = store.release(&lease.grant(), soon()).unwrap();
    assert!(matches!(released, Released::Freed(_)), "{released:?}");
}

/// How many sessions there are.
fn sessions(prefix: &str) -> usize {
    let sessions = format!("{prefix}/s/");
    let found = Etcd::shared().etcdctl(&["get", &sessions, "--prefix", "--keys-only"]);
    let found = String::from_utf8(found.stdout).unwrap();
    found.lines().filter(|line| !line.is_empty()).count()
}

#[test]
fn a_waiter_whose_session_expired_goes_on_in_its_old_place() {
    let place = tempfile::tempdir().unwrap();
    let endpoints = format!("{}/session", Etcd::shared().endpoints().next().unwrap());
    let store = open(&format!("etcd://{endpoints}"), &place.path().join("here"));
    let held = Ask::new(&key(), "holder").ttl(LONG).granted(&store);
    let (mut first, _) = start_waiter("first", &endpoints, place.path(), NAMED);
    let (mut second, _) = start_waiter("second", &endpoints, place.path(), NAMED);
    first.stop();
    within_limit("the session to expire", || sessions("session") == 1);
    first.go_on();
    within_limit("the session to begin again", || sessions("session") == 2);
    assert_eq!(queue(&store), ["first", "second"]);
    release(&store, &held);
    assert_eq!(first.report(), "granted");
    first.wait_for_end();
    assert_eq!(second.report(), "granted");
    second.wait_for_end();
}

#[test]
fn reads_leave_out_a_waiter_after_its_grace() {
    let place = tempfile::tempdir().unwrap();
    let clock = Arc::new(FakeClock::booted("grace"));
    let open = |machine: &str| {
        let options = EtcdOptions {
            clock: clock.clone(),
            ..EtcdOptions::default()
        };
        let address = Etcd::shared().address("away");
        open_with(&address, &place.path().join(machine), options)
    };
    let (store, waiter) = (open("here"), open("there"));
    grace::reads_leave_out_a_waiter_after_its_grace(&store, &waiter, &key(), &clock);
}

#[test]
fn a_waiter_whose_place_was_given_up_queues_again() {
    let place = tempfile::tempdir().unwrap();
    let endpoints = format!("{}/grace", Etcd::shared().endpoints().next().unwrap());
    let store = open(&format!("etcd://{endpoints}"), &place.path().join("here"));
    let held = Ask::new(&key(), "holder").ttl(LONG).granted(&store);
    let (mut first, _) = start_waiter("first", &endpoints, place.path(), UNNAMED);
    first.stop();
    within_limit("the session to expire", || sessions("grace") == 0);
    // The next one that asks removes the ticket of a waiter that is gone.
    let (mut second, _) = start_waiter("second", &endpoints, place.path(), UNNAMED);
    assert_eq!(queue(&store), ["second"]);
    first.go_on();
    within_limit("the waiter to queue again", || {
        queue(&store) == ["second", "first"]
    });
    release(&store, &held);
    for waiter in [&mut second, &mut first] {
        assert_eq!(waiter.report(), "granted");
        waiter.wait_for_end();
    }
}

/// The connection stays open, and the member even gets the keep-alives; but no answer says so.
#[test]
fn a_waiter_whose_keep_alives_get_no_answer_keeps_its_place() {
    let place = tempfile::tempdir().unwrap();
    let member = Etcd::shared().endpoints().next().unwrap();
    let (first_way, second_way) = (Proxy::to(member), Proxy::to(member));
    let store = open(&format!("etcd://{member}/open"), &place.path().join("here"));
    let held = Ask::new(&key(), "holder").ttl(LONG).granted(&store);
    let ways = format!("{},{}/open", first_way.address(), second_way.address());
    let (mut first, _) = start_waiter("first", &ways, place.path(), NAMED);
    let (mut second, _) = start_waiter("second", &format!("{member}/open"), place.path(), NAMED);
    first_way.cut();
    // By the other way: the session is tied to its etcd lease at a member that answers.
    within_limit("the waiter to ask by the other way", || {
        second_way.was_used()
    });
    within_limit("both sessions", || sessions("open") == 2);
    assert_eq!(queue(&store), ["first", "second"]);
    release(&store, &held);
    assert_eq!(first.report(), "granted");
    first.wait_for_end();
    assert_eq!(second.report(), "granted");
    second.wait_for_end();
}

#[test]
fn a_session_that_is_gone_although_it_was_confirmed_begins_again() {
    let place = tempfile::tempdir().unwrap();
    let cluster = Etcd::shared();
    let address = Address::parse(&cluster.address("confirmed")).unwrap();
    let options = EtcdOptions {
        // Nothing is confirmed again while this test runs.
        session_ttl: LONG,
        ..EtcdOptions::default()
    };
    let store = EtcdStore::open(address, &place.path().join("here"), options).unwrap();
    let keys = ["first", "second", "third"].map(|name| Key::parse(name).unwrap());
    let _held = keys.each_ref().map(|key| {
        let other = open(&cluster.address("confirmed"), &place.path().join("there"));
        Ask::new(key, "holder").ttl(LONG).granted(&other)
    });
    let wait = |key: &Key| busy(Ask::new(key, "waiter").waiting().once(&store));
    let _ticket = wait(&keys[0]);
    let etcdctl = |words: &[&str]| {
        let said = cluster.etcdctl(words);
        assert!(said.status.success(), "{said:?}");
        String::from_utf8(said.stdout).unwrap()
    };
    let session = etcdctl(&["get", "confirmed/s/", "--prefix", "-w", "json"]);
    let session: serde_json::Value = serde_json::from_str(&session).unwrap();
    let lease = session["kvs"][0]["lease"].as_i64().unwrap();
    etcdctl(&["lease", "revoke", &format!("{lease:x}")]);
    assert_eq!(sessions("confirmed"), 0);
    let _ticket = wait(&keys[1]);
    assert_eq!(sessions("confirmed"), 1);
    // The session was begun twice, because the first answer did not come; and the first attempt was carried out last.
    let name = etcdctl(&["get", "confirmed/s/", "--prefix", "--keys-only"]);
    let lease = etcdctl(&["lease", "grant", "600"]);
    let lease = lease.split(' ').nth(1).unwrap();
    etcdctl(&["put", name.trim(), "{}", &format!("--lease={lease}")]);
    etcdctl(&["lease", "revoke", lease]);
    assert_eq!(sessions("confirmed"), 0);
    let _ticket = wait(&keys[2]);
    assert_eq!(sessions("confirmed"), 1);
}

/// Removes all revisions so far from the cluster's own history.
fn compact(cluster: &Etcd) {
    cluster.etcdctl(&["put", "something", "else"]);
    let found = cluster.etcdctl(&["get", "nothing", "-w", "json"]);
    let found: serde_json::Value = serde_json::from_slice(&found.stdout).unwrap();
    let revision = found["header"]["revision"].to_string();
    // Another compaction may have been faster.
    cluster.etcdctl(&["compact", &revision]);
}

fn busy(answer: Acquired) -> Box<Busy> {
    match answer {
        Acquired::Busy(busy) => busy,
        other => panic!("it is held: {other:?}"),
    }
}

#[test]
fn a_wait_that_begins_before_a_compaction_is_not_lost() {
    let place = tempfile::tempdir().unwrap();
    let cluster = Etcd::shared();
    let address = cluster.address("compacted");
    let (here, there) = (
        open(&address, &place.path().join("here")),
        open(&address, &place.path().join("there")),
    );
    let held = Ask::new(&key(), "holder").ttl(LONG).granted(&here);
    let waiting = Ask::new(&key(), "waiter").ttl(LONG).waiting();
    let seen = busy(waiting.once(&there));
    release(&here, &held);
    compact(cluster);
    // What would wake it is no longer in the history of the cluster, and no process of this machine helps.
    let watched = Watched {
        ahead: Vec::new(),
        ..seen.watched()
    };
    let waited = there.wait(&watched, Duration::from_secs(3600));
    assert_eq!(waited.unwrap(), Waited::Changed);
    let lease = waiting.granted(&there);
    // And one that sleeps when it is compacted is woken by what comes later.
    let seen = busy(Ask::new(&key(), "holder").waiting().once(&here));
    std::thread::scope(|scope| {
        let sleeper = spawn_until_asleep(scope, || {
            here.wait(&seen.watched(), Duration::from_secs(3600))
        });
        compact(cluster);
        release(&there, &lease);
        assert_eq!(sleeper.join().unwrap().unwrap(), Waited::Changed);
    });
}

#[test]
fn a_turn_that_comes_between_the_answer_and_the_wait_is_not_missed() {
    let place = tempfile::tempdir().unwrap();
    let address = Etcd::shared().address("between");
    let machine = |name: &str| open(&address, &place.path().join(name));
    let (holder, first, second) = (machine("holder"), machine("first"), machine("second"));
    let held = Ask::new(&key(), "holder").ttl(LONG).granted(&holder);
    let ahead = Ask::new(&key(), "first").waiting();
    let _ = busy(ahead.once(&first));
    let seen = busy(Ask::new(&key(), "second").waiting().once(&second));
    // The second waiter watches the first one's session, which does not end. Only its own ticket tells.
    ahead.withdraw(&first, Withdrawal::Leave);
    let waited = second.wait(&seen.watched(), LIMIT).unwrap();
    assert_eq!(waited, Waited::Changed);
    release(&holder, &held);
}

#[test]
fn a_long_queue_of_ended_sessions_holds_up_no_claim() {
    let place = tempfile::tempdir().unwrap();
    let address = Etcd::shared().address("ended");
    let machine = |name: &str| open(&address, &place.path().join(name));
    let holder = machine("holder");
    let held = Ask::new(&key(), "holder").ttl(LONG).granted(&holder);
    for number in 0..20 {
        let name = format!("gone-{number}");
        // Its session ends when the store is dropped.
        let gone = machine(&name);
        busy(Ask::new(&key(), &name).waiting().once(&gone));
    }
    release(&holder, &held);
    let late = machine("late");
    let lease = Ask::new(&key(), "late").ttl(LONG).waiting().granted(&late);
    release(&late, &lease);
}

#[test]
fn keys_are_listed_while_the_cluster_is_compacted_all_the_time() {
    let place = tempfile::tempdir().unwrap();
    let cluster = Etcd::shared();
    let member = cluster.endpoints().next().unwrap();
    let slow = Proxy::to(member);
    let store = open(
        &format!("etcd://{member}/listed"),
        &place.path().join("here"),
    );
    let slow_store = format!("etcd://{}/listed", slow.address());
    let slow_store = open(&slow_store, &place.path().join("here"));
    let held = Ask::new(&key(), "holder").ttl(LONG).granted(&store);
    slow_store.list(soon()).unwrap();
    slow.delay_answers(Duration::from_millis(30));
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(Ordering::SeqCst) {
                compact(cluster);
            }
        });
        for _ in 0..10 {
            let listed = slow_store.list(soon());
            let listed = listed.map(|all| all.iter().map(|one| one.leases.len()).sum::<usize>());
            done.store(listed.is_err(), Ordering::SeqCst);
            assert_eq!(listed.unwrap(), 1);
        }
        done.store(true, Ordering::SeqCst);
    });
    release(&store, &held);
}

#[test]
fn a_history_that_is_trimmed_keeps_the_newest_events_and_no_waiter_notices() {
    const MOST: u64 = 100;
    let place = tempfile::tempdir().unwrap();
    let options = EtcdOptions {
        history_events: MOST,
        ..EtcdOptions::default()
    };
    let endpoints = format!("{}/trimmed", Etcd::shared().endpoints().next().unwrap());
    let address = format!("etcd://{endpoints}");
    let store = open_with(&address, &place.path().join("here"), options);
    let held = Ask::new(&key(), "holder").ttl(LONG).granted(&store);
    let (mut waiter, _) = start_waiter("waiter", &endpoints, place.path(), NAMED);
    let other = Ask::new(&Key::parse("other").unwrap(), "other").ttl(TTL);
    let recorded = || store.history(&HistoryQuery::default(), soon()).unwrap();
    let mut last = 0;
    let mut steps = 0;
    within_limit("the history to be trimmed", || {
        for _ in 0..50 {
            let lease = other.granted(&store);
            release(&store, &lease);
            last = lease.token.0;
            steps += 2;
        }
        recorded().len() < steps
    });
    let events = recorded();
    assert!(
        events.len() >= usize::try_from(MOST).unwrap(),
        "{}",
        events.len()
    );
    let tokens: Vec<u64> = events.iter().map(|event| event.token.0).collect();
    assert!(tokens.is_sorted(), "{tokens:?}");
    assert_eq!(tokens.last(), Some(&last));
    release(&store, &held);
    assert_eq!(waiter.report(), "granted");
    waiter.wait_for_end();
}

/// How many keys a cluster of one member watches for its clients.
fn watched(cluster: &Etcd) -> u64 {
    metric(cluster, "etcd_debugging_mvcc_watcher_total ")
}

#[test]
fn a_wait_that_has_ended_leaves_nothing_that_is_watched() {
    let cluster = Etcd::start(1);
    let place = tempfile::tempdir().unwrap();
    let [holder, waiter] = ["holder", "waiter"].map(|folder| {
        let address = cluster.address("left");
        open(&address, &place.path().join(folder))
    });
    let _held = Ask::new(&key(), "holder").ttl(LONG).granted(&holder);
    let ask = Ask::new(&key(), "waiter").waiting();
    let wait = |timeout| {
        let Acquired::Busy(busy) = ask.once(&waiter) else {
            panic!("it is held")
        };
        waiter.wait(&busy.watched(), timeout).unwrap()
    };
    std::thread::scope(|scope| {
        scope.spawn(|| wait(LONG));
        within_limit("the wait to begin", || watched(&cluster) > 0);
        waiter.wake();
    });
    for _ in 0..5 {
        assert_eq!(wait(Duration::from_millis(100)), Waited::TimedOut);
    }
    within_limit("nothing to be watched", || watched(&cluster) == 0);
}

#[test]
fn a_crowd_that_queues_at_once_is_served_and_nobody_is_forgotten() {
    const CROWD: usize = 24;
    const TURNS: usize = 3;
    let place = tempfile::tempdir().unwrap();
    let address = Etcd::shared().address("queue-at-once");
    let (begin, is_held) = (Barrier::new(CROWD), AtomicBool::new(false));
    let one = |number: usize| {
        // Each is as on a machine of its own, and none polls.
        let store = open(&address, &place.path().join(number.to_string()));
        let ask = Ask::new(&key(), &format!("waiter-{number}"));
        let ask = ask.ttl(LONG).waiting();
        begin.wait();
        let mut tokens = Vec::new();
        for _ in 0..TURNS {
            let lease = waiting::acquire(&store, &ask, |_| ()).lease();
            assert!(!is_held.swap(true, Ordering::SeqCst), "two hold it");
            tokens.push(lease.token);
            is_held.store(false, Ordering::SeqCst);
            release(&store, &lease);
        }
        tokens
    };
    let mut tokens: Vec<_> = std::thread::scope(|scope| {
        let all: Vec<_> = (0..CROWD)
            .map(|number| {
                let one = &one;
                scope.spawn(move || one(number))
            })
            .collect();
        all.into_iter()
            .flat_map(|one| one.join().unwrap())
            .collect()
    });
    tokens.sort();
    tokens.dedup();
    assert_eq!(tokens.len(), CROWD * TURNS);
}

#[test]
fn a_claim_that_knows_of_an_earlier_holder_still_finds_a_cycle() {
    let place = tempfile::tempdir().unwrap();
    let address = Etcd::shared().address("earlier-holder");
    let [one, two, three] =
        ["one", "two", "three"].map(|folder| open(&address, &place.path().join(folder)));
    let [x, y] = ["x", "y"].map(|key| Key::parse(key).unwrap());
    let ask = |key: &Key, name: &str| Ask::new(key, name).ttl(LONG);
    ask(&x, "one").granted(&one);
    let earlier = ask(&y, "two").granted(&two);
    assert!(matches!(ask(&y, "one").once(&one), Acquired::Busy(_)));
    // The next lease has the same name in the cluster.
    release(&two, &earlier);
    ask(&y, "three").granted(&three);
    let waits = ask(&x, "three").waiting().once(&three);
    assert!(matches!(waits, Acquired::Busy(_)), "{waits:?}");
    let closes = ask(&y, "one").waiting().once(&one);
    assert!(matches!(closes, Acquired::Deadlock(_)), "{closes:?}");
}

#[test]
fn a_claim_that_others_overtook_watches_the_last_of_them() {
    let place = tempfile::tempdir().unwrap();
    let address = Etcd::shared().address("overtaken");
    let [one, two, three] =
        ["one", "two", "three"].map(|folder| open(&address, &place.path().join(folder)));
    let ask = |name: &str| Ask::new(&key(), name).ttl(LONG);
    let held = ask("one").granted(&one);
    // It knows that the key is held, and of no waiter.
    assert!(matches!(ask("three").once(&three), Acquired::Busy(_)));
    assert!(matches!(ask("two").waiting().once(&two), Acquired::Busy(_)));
    let Acquired::Busy(busy) = ask("three").waiting().once(&three) else {
        panic!("it is held")
    };
    assert_eq!(busy.position.unwrap().ahead, 1);
    let watched: Vec<&str> = busy.watch.iter().map(|one| one.id.as_str()).collect();
    assert_eq!(watched, ["two"]);
    assert_eq!(queue(&one), ["two", "three"]);
    release(&one, &held);
}

/// Not a test: a process that waits for the key, whose session lasts for long.
#[test]
fn waiter_with_a_long_session() {
    let Some(job) = process::job() else { return };
    let job: Job = serde_json::from_str(&job).unwrap();
    let store = with_long_session(&job.endpoints, &job.folder);
    let ask = Ask::new(&key(), &job.name).ttl(LONG).waiting();
    let _ = waiting::acquire(&store, &ask, |_| process::report("waits"));
}

fn with_long_session(endpoints: &str, folder: &Path) -> EtcdStore {
    let options = EtcdOptions {
        session_ttl: LONG,
        ..EtcdOptions::default()
    };
    let address = Address::parse(&format!("etcd://{endpoints}")).unwrap();
    EtcdStore::open(address, folder, options).unwrap()
}

#[test]
fn a_first_waiter_that_died_elsewhere_lets_the_turn_pass_although_its_session_stays() {
    let place = tempfile::tempdir().unwrap();
    let endpoints = format!("{}/passes", Etcd::shared().endpoints().next().unwrap());
    let store = with_long_session(&endpoints, &place.path().join("here"));
    let held = Ask::new(&key(), "holder").ttl(LONG).granted(&store);
    let job = Job {
        place: place.path().to_owned(),
        endpoints: endpoints.clone(),
        name: "first".to_owned(),
        folder: place.path().join("first"),
        seed: 0,
    };
    let job = serde_json::to_string(&job).unwrap();
    let mut first = Process::start("waiters::waiter_with_a_long_session", &job);
    assert_eq!(first.report(), "waits");
    first.kill();
    let second = with_long_session(&endpoints, &place.path().join("second"));
    let ask = Ask::new(&key(), "second").ttl(LONG).waiting();
    let Acquired::Busy(busy) = ask.once(&second) else {
        panic!("it is held")
    };
    assert_eq!(busy.position.unwrap().ahead, 1);
    release(&store, &held);
    let since = Stopwatch::start();
    // Nobody wakes it: it looks again by itself when the turn has passed.
    let mut looks = 0;
    while let Acquired::Busy(busy) = ask.once(&second) {
        let _ = second.wait(&busy.watched(), LONG).unwrap();
        looks += 1;
    }
    assert!(looks < 10, "{looks}");
    assert!(
        since.elapsed() >= Duration::from_secs(10),
        "{:?}",
        since.elapsed()
    );
    assert_eq!(sessions("passes"), 2);
}
