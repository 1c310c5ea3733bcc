//! The names that a store uses in the cluster. Until it is compacted, a cluster walks through every name that a range has
//! ever had: 100,000 names cost each read 9 ms.

use std::collections::BTreeSet;

use tenure_core::{Acquired, Fenced, Key, Mode, Records as _, Released, Store, Withdrawal};
use tenure_testkit::{Ask, Etcd, soon, waiting};

use super::{TTL, key, open};

/// The names below the prefix that have to do with the key, now.
fn names(prefix: &str) -> BTreeSet<String> {
    let below = format!("{prefix}/k/");
    let found = Etcd::shared().etcdctl(&["get", &below, "--prefix", "--keys-only"]);
    let found = String::from_utf8(found.stdout).unwrap();
    let names = found.lines().filter(|line| !line.is_empty());
    names.map(str::to_owned).collect()
}

#[test]
fn a_key_that_is_used_often_has_few_names() {
    let place = tempfile::tempdir().unwrap();
    let address = Etcd::shared().address("names");
    let [here, there] = ["here", "there"].map(|folder| open(&address, &place.path().join(folder)));
    let mut used = BTreeSet::new();
    let mut tokens = Vec::new();
    for _ in 0..40 {
        let held = Ask::new(&key(), "holder").ttl(TTL).granted(&here);
        tokens.push(held.token);
        let waiter = Ask::new(&key(), "waiter").ttl(TTL).waiting();
        let Acquired::Busy(_) = waiter.once(&there) else {
            panic!("it is held")
        };
        used.extend(names("names"));
        waiter.withdraw(&there, Withdrawal::Leave);
        let released = here.release(&held.grant(), soon()).unwrap();
        assert!(matches!(released, Released::Freed(_)), "{released:?}");
        assert_eq!(names("names"), BTreeSet::new());
    }
    assert!(tokens.is_sorted_by(|one, next| one < next), "{tokens:?}");
    let (tickets, others): (Vec<_>, Vec<_>) = used.iter().partition(|name| name.contains("/t/"));
    // Guard, lease and life.
    assert_eq!(others.len(), 3, "{others:?}");
    // One of 32 free names, or of 33 if one is taken.
    assert!(tickets.len() <= 33, "{tickets:?}");
}

#[test]
fn keys_are_found_by_the_beginnings_of_their_names() {
    let place = tempfile::tempdir().unwrap();
    let address = Etcd::shared().address("beginnings");
    let [here, there] = ["here", "there"].map(|folder| open(&address, &place.path().join(folder)));
    for name in ["deploy to prod", "deploy", "größe", "node:1.2", "other"] {
        Ask::new(&Key::parse(name).unwrap(), "me")
            .ttl(TTL)
            .granted(&here);
    }
    let waits = Ask::new(&Key::parse("other").unwrap(), "you").waiting();
    assert!(matches!(waits.once(&there), Acquired::Busy(_)));
    let found = |beginnings: &[&str]| {
        let names = there.list_names(beginnings, soon()).unwrap();
        let names: Vec<String> = names.iter().map(Key::to_string).collect();
        names.join(", ")
    };
    assert_eq!(found(&["deploy"]), "deploy, deploy to prod");
    assert_eq!(
        found(&["deploy ", "node:", "grö"]),
        "deploy to prod, größe, node:1.2"
    );
    assert_eq!(found(&["deploy%20"]), "");
    assert_eq!(found(&[]), "");
    let all = there.list(soon()).unwrap();
    let all: Vec<String> = all.iter().map(|one| one.key.to_string()).collect();
    assert_eq!(found(&[""]), all.join(", "));
}

#[test]
fn a_lease_that_takes_the_place_of_another_has_a_token_of_its_own() {
    let place = tempfile::tempdir().unwrap();
    let address = Etcd::shared().address("places");
    let [here, there] = ["here", "there"].map(|folder| open(&address, &place.path().join(folder)));
    // Its life ends with its etcd lease, and its record stays: the next holder removes it, and puts its own.
    let mut last = Ask::new(&key(), "holder")
        .ttl(TTL)
        .detached()
        .granted(&here);
    for name in ["second", "third"] {
        let ask = Ask::new(&key(), name).ttl(TTL).detached().waiting();
        let next = waiting::acquire(&there, &ask, |_| ()).lease().clone();
        assert!(next.token > last.token, "{next:?} after {last:?}");
        let fence = |token| here.fence(&key(), token, soon()).unwrap();
        assert!(matches!(fence(next.token), Fenced::Current(_)));
        assert!(!matches!(fence(last.token), Fenced::Current(_)));
        last = next;
    }
}

#[test]
fn many_holders_have_different_names() {
    let place = tempfile::tempdir().unwrap();
    let address = Etcd::shared().address("many");
    let store = open(&address, &place.path().join("here"));
    let ask = |number: usize| {
        let ask = Ask::new(&key(), &format!("holder-{number}"));
        ask.ttl(TTL * 100).mode(Mode::Shared).granted(&store)
    };
    let mut leases: Vec<_> = (0..12).map(ask).collect();
    for round in 0..5 {
        // The lowest free name is in the middle.
        let ended = leases.remove(3);
        let released = store.release(&ended.grant(), soon()).unwrap();
        assert!(matches!(released, Released::Freed(_)), "{released:?}");
        leases.push(ask(100 + round));
        let held = store.inspect(&key(), soon()).unwrap().leases;
        let mut found: Vec<_> = held.iter().map(|(lease, _)| lease.token).collect();
        found.sort();
        let mut expected: Vec<_> = leases.iter().map(|lease| lease.token).collect();
        expected.sort();
        assert_eq!(found, expected);
    }
    // The guard, and a record and a life for each.
    assert_eq!(names("many").len(), 1 + 2 * leases.len());
}

#[test]
fn a_claim_waits_for_more_holders_than_a_transaction_can_compare() {
    let place = tempfile::tempdir().unwrap();
    let address = Etcd::shared().address("crowd");
    let [here, there] = ["here", "there"].map(|folder| open(&address, &place.path().join(folder)));
    for number in 0..80 {
        let ask = Ask::new(&key(), &format!("holder-{number}"));
        ask.ttl(TTL * 100).mode(Mode::Shared).granted(&here);
    }
    // The second one begins with what the first one has read.
    let ask = Ask::new(&key(), "waiter").ttl(TTL);
    assert!(matches!(ask.once(&there), Acquired::Busy(_)));
    let Acquired::Busy(busy) = ask.waiting().once(&there) else {
        panic!("it is held")
    };
    assert!(busy.position.is_some(), "{busy:?}");
    assert_eq!(there.inspect(&key(), soon()).unwrap().queue.len(), 1);
}
