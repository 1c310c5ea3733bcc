//! A leader that is deposed, and no cluster at all.

use std::time::Duration;

use tenure_core::{ErrorKind, Released, Store};
use tenure_testkit::limit::{Stopwatch, within_limit};
use tenure_testkit::{Ask, Etcd, Proxy, soon};

use super::{key, open};

/// A leader that the other members do not reach believes for a while that it leads.
#[test]
fn a_leader_that_was_deposed_grants_nothing_and_tells_nothing_outdated() {
    let place = tempfile::tempdir().unwrap();
    let cluster = Etcd::start_divisible(3);
    within_limit("a leader", || cluster.leader().is_some());
    let old = cluster.leader().unwrap();
    let endpoints: Vec<&str> = cluster.endpoints().collect();
    let others = [endpoints[(old + 1) % 3], endpoints[(old + 2) % 3]];
    let folder = |name: &str| place.path().join(name);
    let only_old = open(&format!("etcd://{}/deposed", endpoints[old]), &folder("a"));
    let only_others = open(
        &format!("etcd://{}/deposed", others.join(",")),
        &folder("b"),
    );
    let old_first = format!("etcd://{},{}/deposed", endpoints[old], others.join(","));
    let old_first = open(&old_first, &folder("c"));
    let ask = |name: &str| Ask::new(&key(), name).ttl(Duration::from_secs(600));
    // Connected, and what they know of the key is that it is free.
    for (store, name) in [(&only_old, "a"), (&only_others, "b"), (&old_first, "c")] {
        let lease = ask(name).granted(store);
        let released = store.release(&lease.grant(), soon());
        assert!(matches!(released, Ok(Released::Freed(_))), "{released:?}");
    }
    cluster.cut_off(old);
    let lease = ask("b").granted(&only_others);
    // Whatever it still believes, it can't confirm.
    let soon_enough = tenure_soon(Duration::from_secs(3));
    if let Ok(snapshot) = only_old.inspect(&key(), soon_enough) {
        let (held, _) = snapshot.leases.first().expect("it is held");
        assert_eq!(held.token, lease.token);
    }
    let claim = ask("a").claim(&only_old);
    let refused = only_old.acquire(&claim, tenure_soon(Duration::from_secs(3)));
    let refused = refused.expect_err("the leader was deposed");
    assert!(
        matches!(
            refused.kind,
            ErrorKind::Unreachable | ErrorKind::OutcomeUnknown
        ),
        "{refused:?}"
    );
    // A client that knows the other members goes on with one of them.
    let refused = ask("c").once(&old_first);
    assert!(
        matches!(refused, tenure_core::Acquired::Busy(_)),
        "{refused:?}"
    );
    let released = only_others.release(&lease.grant(), soon());
    assert!(matches!(released, Ok(Released::Freed(_))), "{released:?}");
    let lease = ask("c").granted(&old_first);
    cluster.connect(old);
    within_limit("the old leader to follow the new one", || {
        let seen = only_old.inspect(&key(), soon());
        seen.is_ok_and(|seen| {
            seen.leases
                .iter()
                .any(|(held, _)| held.token == lease.token)
        })
    });
}

#[expect(
    clippy::disallowed_methods,
    reason = "the deadline of a call is an Instant"
)]
fn tenure_soon(limit: Duration) -> std::time::Instant {
    std::time::Instant::now() + limit
}

#[test]
fn without_a_cluster_a_call_fails_long_before_its_deadline() {
    let place = tempfile::tempdir().unwrap();
    let silent = Proxy::to(Etcd::shared().endpoints().next().unwrap());
    silent.cut();
    // One that refuses connections, and one that accepts them and never answers.
    for address in ["127.0.0.1:1", silent.address()] {
        let store = open(&format!("etcd://{address}/nobody"), place.path());
        let watch = Stopwatch::start();
        let claim = Ask::new(&key(), "client").claim(&store);
        let hour = tenure_soon(Duration::from_secs(3600));
        let refused = store.acquire(&claim, hour).expect_err("nobody answers");
        assert_eq!(refused.kind, ErrorKind::Unreachable, "{refused:?}");
        assert!(refused.to_string().contains(address), "{refused}");
        println!("{refused} ({:?})", watch.elapsed());
    }
}
