//! Answers that are lost or late.

use std::time::Duration;

use tenure_core::{
    Acquired, ErrorKind, EventKind, Fenced, HistoryQuery, Key, Reason, Records, Released, Renewed,
    Store, Withdrawal,
};
use tenure_etcd::EtcdOptions;
use tenure_testkit::limit::{LIMIT, within_limit};
use tenure_testkit::{Ask, Etcd, Process, Proxy, process, soon};

use super::client::Job;
use super::{LONG, key, metric, open, open_with};

#[test]
fn a_change_whose_answer_was_lost_is_found_out_and_not_made_again() {
    let place = tempfile::tempdir().unwrap();
    let cluster = Etcd::shared();
    let member = cluster.endpoints().next().unwrap();
    let (first, second) = (Proxy::to(member), Proxy::to(member));
    let address = format!("etcd://{},{}/lost", first.address(), second.address());
    let store = open(&address, &place.path().join("here"));
    let ask = Ask::new(&key(), "client").ttl(Duration::from_secs(600));
    // Connected by the first way, and with an etcd lease to spare.
    let warm_up = ask.granted(&store);
    assert!(matches!(
        store.release(&warm_up.grant(), soon()),
        Ok(Released::Freed(_))
    ));
    first.cut_answers();
    let (lease, reason) = ask.granted_for(&store);
    assert_eq!(reason, Reason::AcquiredNew);
    first.mend();
    second.cut_answers();
    let released = store.release(&lease.grant(), soon()).unwrap();
    assert!(matches!(released, Released::Freed(_)), "{released:?}");
    let events = store.history(&HistoryQuery::default(), soon()).unwrap();
    let kinds: Vec<EventKind> = events.iter().map(|event| event.kind).collect();
    let pair = [EventKind::Granted, EventKind::Released];
    assert_eq!(kinds, [pair, pair].concat());
    assert!(
        events
            .iter()
            .skip(2)
            .all(|event| event.token == lease.token)
    );
}

/// How often the record of a lease was written since it was granted.
fn versions(prefix: &str) -> u64 {
    let name = format!("{prefix}/k/build/l/0");
    let said = Etcd::shared().etcdctl(&["get", &name, "-w", "json"]);
    let said: serde_json::Value = serde_json::from_slice(&said.stdout).unwrap();
    said["kvs"][0]["version"].as_u64().unwrap()
}

#[test]
fn a_renewal_whose_answer_was_lost_is_found_out_and_not_made_again() {
    let place = tempfile::tempdir().unwrap();
    let member = Etcd::shared().endpoints().next().unwrap();
    let (first, second) = (Proxy::to(member), Proxy::to(member));
    let address = format!("etcd://{},{}/renewed", first.address(), second.address());
    let store = open(&address, &place.path().join("here"));
    let held = Ask::new(&key(), "client").ttl(LONG).granted(&store);
    // With an etcd lease to spare, the renewal is one request.
    let other = Key::parse("other").unwrap();
    let spare = Ask::new(&other, "client").ttl(LONG).granted(&store);
    let released = store.release(&spare.grant(), soon()).unwrap();
    assert!(matches!(released, Released::Freed(_)), "{released:?}");
    first.cut_answers();
    let renewed = store.renew(&held.grant(), LONG, soon()).unwrap();
    assert!(matches!(renewed, Renewed::Extended(_)), "{renewed:?}");
    assert_eq!(versions("renewed"), 2);
}

/// After an answer that was lost, the renewal fails at different places.
#[test]
fn a_renewal_that_fails_never_ends_the_lease() {
    let place = tempfile::tempdir().unwrap();
    let member = Etcd::shared().endpoints().next().unwrap();
    for (round, limit) in [1000, 2200, 2400, 2600, 3000].into_iter().enumerate() {
        let (first, second) = (Proxy::to(member), Proxy::to(member));
        let prefix = format!("failed-{round}");
        let address = format!("etcd://{},{}/{prefix}", first.address(), second.address());
        let store = open(&address, &place.path().join("here"));
        let held = Ask::new(&key(), "client")
            .ttl(LONG)
            .detached()
            .granted(&store);
        let other = Key::parse("other").unwrap();
        let spare = Ask::new(&other, "client").ttl(LONG).granted(&store);
        let released = store.release(&spare.grant(), soon()).unwrap();
        assert!(matches!(released, Released::Freed(_)), "{released:?}");
        first.cut_answers();
        second.delay_answers(Duration::from_millis(150));
        let early = LIMIT.saturating_sub(Duration::from_millis(limit));
        let by = soon().checked_sub(early).unwrap();
        let renewed = store.renew(&held.grant(), LONG, by);
        println!("{limit} ms: {renewed:?}");
        second.delay_answers(Duration::ZERO);
        // What it has to spare ends with it, if the cluster has answered again.
        let fenced = store.fence(&key(), held.token, soon()).unwrap();
        assert!(matches!(fenced, Fenced::Current(_)), "{fenced:?}");
        drop(store);
        let direct = open(
            &format!("etcd://{member}/{prefix}"),
            &place.path().join("there"),
        );
        let fenced = direct.fence(&key(), held.token, soon()).unwrap();
        assert!(matches!(fenced, Fenced::Current(_)), "{fenced:?}");
    }
}

/// The etcd lease that the life of the key is tied to, as the cluster says.
fn etcd_lease(cluster: &Etcd, prefix: &str) -> i64 {
    let life = format!("{prefix}/k/build/a/0");
    let said = cluster.etcdctl(&["get", &life, "-w", "json"]);
    let said: serde_json::Value = serde_json::from_slice(&said.stdout).unwrap();
    said["kvs"][0]["lease"].as_i64().unwrap()
}

/// How many etcd leases the cluster has.
fn etcd_leases(cluster: &Etcd) -> usize {
    let said = cluster.etcdctl(&["lease", "list"]);
    String::from_utf8(said.stdout).unwrap().lines().count() - 1
}

/// One renewal gets no answer although it was made; many follow, of a lease whose time to live is long.
#[test]
fn renewals_after_one_without_an_answer_keep_the_lease_and_no_etcd_leases_pile_up() {
    let place = tempfile::tempdir().unwrap();
    let cluster = Etcd::start(1);
    let member = cluster.endpoints().next().unwrap();
    let proxy = Proxy::to(member);
    let store = open(
        &format!("etcd://{}/many", proxy.address()),
        &place.path().join("here"),
    );
    let there = open(
        &format!("etcd://{member}/many"),
        &place.path().join("there"),
    );
    let held = Ask::new(&key(), "client")
        .ttl(LONG)
        .detached()
        .granted(&store);
    let before = etcd_lease(&cluster, "many");
    // With an etcd lease to spare, the renewal is one request.
    let other = Key::parse("other").unwrap();
    let use_other = |store| {
        let lease = Ask::new(&other, "other").ttl(LONG).granted(store);
        let released = store.release(&lease.grant(), soon()).unwrap();
        assert!(matches!(released, Released::Freed(_)), "{released:?}");
    };
    use_other(&store);
    proxy.cut_answers();
    let early = LIMIT.saturating_sub(Duration::from_secs(1));
    let by = soon().checked_sub(early).unwrap();
    let unknown = store.renew(&held.grant(), LONG, by).unwrap_err();
    assert_eq!(unknown.kind, ErrorKind::OutcomeUnknown, "{unknown}");
    let made = etcd_lease(&cluster, "many");
    assert_ne!(made, before, "the renewal was made");
    proxy.mend();
    for round in 0..200 {
        let renewed = store.renew(&held.grant(), LONG, soon()).unwrap();
        assert!(matches!(renewed, Renewed::Extended(_)), "{renewed:?}");
        // What the store knows of this key is not true any more: its next step is made twice.
        use_other(&there);
        use_other(&store);
        if round % 50 == 0 {
            let fenced = there.fence(&key(), held.token, soon()).unwrap();
            assert!(matches!(fenced, Fenced::Current(_)), "{fenced:?}");
        }
    }
    // Those of the two keys, one whose renewal got no answer, and what is to be used or revoked with the next request.
    let left = etcd_leases(&cluster);
    assert!(left <= 10, "{left} etcd leases");
    drop(store);
    let fenced = there.fence(&key(), held.token, soon()).unwrap();
    assert!(matches!(fenced, Fenced::Current(_)), "{fenced:?}");
    drop(there);
    // That of the held key, and the one that ends by itself.
    let left = etcd_leases(&cluster);
    assert!(left <= 2, "{left} etcd leases");
}

#[test]
fn a_process_leaves_no_etcd_lease_behind() {
    let place = tempfile::tempdir().unwrap();
    let cluster = Etcd::start(1);
    let address = cluster.address("leases");
    let [here, there] = ["here", "there"].map(|folder| open(&address, &place.path().join(folder)));
    let names = ["a", "b", "c", "d"].map(|name| Key::parse(name).unwrap());
    let claim = |key| Ask::new(key, "client").ttl(LONG).claim(&here);
    let claims: Vec<_> = names.iter().map(claim).collect();
    for _ in 0..3 {
        let Acquired::Granted(granted) = here.acquire_all(&claims, soon()).unwrap() else {
            panic!("they are free")
        };
        let grants: Vec<_> = granted.iter().map(|one| one.lease.grant()).collect();
        let _ = here.release_all(&grants, soon()).unwrap();
        // It is overtaken: what it knows of the last key is not true any more.
        let held = Ask::new(&names[3], "other").ttl(LONG).granted(&there);
        let busy = here.acquire_all(&claims, soon()).unwrap();
        assert!(matches!(busy, Acquired::Busy(_)));
        let _ = there.release(&held.grant(), soon()).unwrap();
    }
    drop((here, there));
    assert_eq!(etcd_leases(&cluster), 0);
}

#[test]
fn what_a_step_guesses_saves_requests_and_a_store_that_guesses_nothing_reads() {
    const PAIRS: u64 = 20;
    let place = tempfile::tempdir().unwrap();
    let cluster = Etcd::start(1);
    let requests = |guesses| {
        let options = EtcdOptions {
            guesses,
            ..EtcdOptions::default()
        };
        let address = cluster.address(if guesses { "with" } else { "without" });
        let store = open_with(&address, &place.path().join("here"), options);
        let before = metric(&cluster, "grpc_server_started_total");
        for _ in 0..PAIRS {
            let lease = Ask::new(&key(), "client").ttl(LONG).granted(&store);
            let _ = store.release(&lease.grant(), soon()).unwrap();
        }
        metric(&cluster, "grpc_server_started_total") - before
    };
    // One transaction each, and on a slow machine an etcd lease now and then. Else a read each, and an etcd lease each time.
    let (with, without) = (requests(true), requests(false));
    assert!((2 * PAIRS..=4 * PAIRS).contains(&with), "{with}");
    assert!(without >= 5 * PAIRS, "{without}");
}

/// Not a test: a process that holds the key until it is killed.
#[test]
fn holder() {
    let Some(job) = process::job() else { return };
    let job: Job = serde_json::from_str(&job).unwrap();
    let store = open(&format!("etcd://{}", job.endpoints), &job.folder);
    let ask = Ask::new(&key(), &job.name).ttl(Duration::from_secs(600));
    process::report(&ask.granted(&store).token.to_string());
    loop {
        std::thread::park();
    }
}

#[test]
fn a_holder_that_dies_while_a_ticket_is_written_does_not_turn_it_into_a_grant() {
    let place = tempfile::tempdir().unwrap();
    let cluster = Etcd::shared();
    let member = cluster.endpoints().next().unwrap();
    let proxy = Proxy::to(member);
    let folder = place.path().join("here");
    let direct = open(&format!("etcd://{member}/ticket"), &folder);
    let slow = open(&format!("etcd://{}/ticket", proxy.address()), &folder);
    let job = Job {
        place: place.path().to_owned(),
        endpoints: format!("{member}/ticket"),
        name: "holder".to_owned(),
        folder,
        seed: 0,
    };
    let job = serde_json::to_string(&job).unwrap();
    let mut holder = Process::start("answers::holder", &job);
    let _ = holder.report();
    let claim = Ask::new(&key(), "waiter").waiting().claim(&slow);
    // Connected, and with a session: what follows is a read and the ticket.
    let Acquired::Busy(_) = slow.acquire(&claim, soon()).unwrap() else {
        panic!("it is held");
    };
    slow.withdraw(&claim, Withdrawal::Leave, soon()).unwrap();
    proxy.delay_answers(Duration::from_millis(200));
    let answer = std::thread::scope(|scope| {
        let claimant = scope.spawn(|| slow.acquire(&claim, soon()).unwrap());
        within_limit("the ticket to be written", || {
            !direct.inspect(&key(), soon()).unwrap().queue.is_empty()
        });
        holder.kill();
        claimant.join().unwrap()
    });
    let granted = match answer {
        Acquired::Granted(granted) => Some(granted.lease.token),
        _ => None,
    };
    let snapshot = direct.inspect(&key(), soon()).unwrap();
    let recorded = snapshot.leases.iter().map(|(lease, _)| lease.token);
    assert!(
        granted.is_none_or(|token| recorded.clone().any(|held| held == token)),
        "{granted:?} was granted: {snapshot:?}"
    );
}
