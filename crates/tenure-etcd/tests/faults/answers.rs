//! Answers that are lost or late.

use std::time::Duration;

use tenure_core::{Acquired, EventKind, HistoryQuery, Reason, Released, Store};
use tenure_testkit::limit::within_limit;
use tenure_testkit::{Ask, Etcd, Process, Proxy, process, soon};

use super::client::Job;
use super::{key, open};

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
    let Acquired::Busy(busy) = slow.acquire(&claim, soon()).unwrap() else {
        panic!("it is held");
    };
    slow.leave(&key(), busy.position.unwrap().ticket, soon())
        .unwrap();
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
