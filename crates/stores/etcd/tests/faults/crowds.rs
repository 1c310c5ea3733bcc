//! More leases of one key than one transaction can remove.

use tenure_core::{
    Acquired, EventKind, Forced, HistoryQuery, HolderId, Key, Mode, Reap, Records, Store,
};
use tenure_etcd::EtcdStore;
use tenure_testkit::{Ask, Etcd, soon};

use super::damage::etcdctl;
use super::{LONG, key, open};

/// More than fit into one transaction.
const CROWD: usize = 70;

/// So many holders share a key.
fn crowd(store: &EtcdStore, key: &Key) {
    for number in 0..CROWD {
        let ask = Ask::new(key, &format!("holder-{number}")).detached();
        ask.ttl(LONG).mode(Mode::Shared).granted(store);
    }
}

/// Ends the lives of all leases of a key, as if their time were up.
fn expire(prefix: &str, key: &str) {
    etcdctl(&["del", "--prefix", &format!("{prefix}/k/{key}/a/")]);
}

#[test]
fn a_key_with_many_expired_holders_is_granted_and_each_end_is_recorded() {
    let place = tempfile::tempdir().unwrap();
    let address = Etcd::shared().address("expired");
    let store = open(&address, &place.path().join("here"));
    crowd(&store, &key());
    expire("expired", "build");
    Ask::new(&key(), "bob").ttl(LONG).granted(&store);
    let events = store.history(&HistoryQuery::default(), soon()).unwrap();
    let expired = events
        .iter()
        .filter(|event| event.kind == EventKind::Expired);
    assert_eq!(expired.count(), CROWD);
}

#[test]
fn the_cleanup_of_a_key_with_many_expired_holders_lists_all() {
    let place = tempfile::tempdir().unwrap();
    let address = Etcd::shared().address("cleanup");
    let store = open(&address, &place.path().join("here"));
    crowd(&store, &key());
    expire("cleanup", "build");
    let reaped = store.reap(Reap::Free, soon()).unwrap();
    assert_eq!(reaped.len(), CROWD);
    assert!(store.list(soon()).unwrap().is_empty());
}

#[test]
fn many_holders_are_ended_by_force() {
    let place = tempfile::tempdir().unwrap();
    let address = Etcd::shared().address("forced");
    let store = open(&address, &place.path().join("here"));
    crowd(&store, &key());
    let me = HolderId::parse("me").unwrap();
    let forced = store.force(&key(), None, &me, None, soon()).unwrap();
    let Forced::Freed(freed) = forced else {
        panic!("it is held")
    };
    assert_eq!(freed.len(), CROWD);
    assert!(store.list(soon()).unwrap().is_empty());
}

#[test]
fn a_key_that_can_not_be_cleaned_up_does_not_stop_the_next() {
    let place = tempfile::tempdir().unwrap();
    let address = Etcd::shared().address("stuck");
    let store = open(&address, &place.path().join("here"));
    let [first, last] = ["task:a", "zone"].map(|name| Key::parse(name).unwrap());
    for (key, name) in [(&first, "task:a"), (&last, "zone")] {
        Ask::new(key, "alice").detached().ttl(LONG).granted(&store);
        expire("stuck", name);
    }
    etcdctl(&["put", "stuck/t/g", "nonsense"]);
    let error = store.reap(Reap::Free, soon()).unwrap_err().to_string();
    assert!(error.contains("task:a"), "{error}");
    let left: Vec<Key> = store
        .list(soon())
        .unwrap()
        .into_iter()
        .map(|one| one.key)
        .collect();
    assert_eq!(left, [first]);
}

#[test]
fn what_a_key_waits_for_is_read_without_the_other_keys() {
    let place = tempfile::tempdir().unwrap();
    let address = Etcd::shared().address("chains");
    let store = open(&address, &place.path().join("here"));
    for number in 0..300 {
        let other = Key::parse(format!("other-{number}")).unwrap();
        Ask::new(&other, "others").ttl(LONG).granted(&store);
    }
    let next = Key::parse("next").unwrap();
    Ask::new(&key(), "alice").ttl(LONG).granted(&store);
    Ask::new(&next, "bob").ttl(LONG).granted(&store);
    let waits = Ask::new(&next, "alice").ttl(LONG).waiting().once(&store);
    assert!(matches!(waits, Acquired::Busy(_)));
    let seen = store.list_with(&[key()], soon()).unwrap();
    let keys: Vec<&str> = seen.iter().map(|one| one.key.as_str()).collect();
    assert_eq!(keys, ["build", "next"]);
    assert_eq!(seen[1].queue.len(), 1);
    assert_eq!(store.list(soon()).unwrap().len(), 302);
}
