//! Clusters that were restored from a backup.

use std::path::Path;

use tenure_core::{ErrorKind, Fenced, Key, Mode, Records, Store, StoreError, Token};
use tenure_etcd::{Comparison, EtcdOptions, EtcdStore, MemoryFolder, Repair};
use tenure_tasks::TaskStore;
use tenure_testkit::limit::within_limit;
use tenure_testkit::task_battery::new_task;
use tenure_testkit::{Ask, Etcd, soon};

use super::{LONG, key, open_with};

/// The token of clusters that nobody chose another one for.
const SAME: &str = "etcd-cluster";

/// A store on a machine of its own, which remembers what it has seen.
fn machine(cluster: &Etcd, place: &Path, name: &str) -> EtcdStore {
    let folder = MemoryFolder {
        trusted: place.join(name),
        below: "memory".into(),
    };
    let options = EtcdOptions {
        memory: vec![folder],
        ..EtcdOptions::default()
    };
    open_with(
        &cluster.address("team"),
        &place.join(name).join("live"),
        options,
    )
}

fn refused(store: &EtcdStore, key: &Key) -> StoreError {
    let claim = Ask::new(key, "bob").ttl(LONG).claim(store);
    let error = store.acquire(&claim, soon()).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Damaged, "{error}");
    let fix = error.fix.clone().unwrap_or_default();
    assert!(fix.contains("tenure store repair"), "{error}: {fix}");
    error
}

/// A backup, what was granted since, and the cluster after the backup was restored.
fn restored(place: &Path, token: &str) -> (Etcd, Token) {
    let mut cluster = Etcd::start(1);
    let here = machine(&cluster, place, "here");
    Ask::new(&Key::parse("early").unwrap(), "alice")
        .ttl(LONG)
        .granted(&here);
    let backup = place.join("backup");
    cluster.save(&backup);
    let token_since = until_remembered(&here, place);
    drop(here);
    cluster.restore(&backup, token);
    (cluster, token_since)
}

/// Grants until the machine has written down how high the tokens are, which it does not do each time. They are far higher than
/// what a cluster writes when it is started again.
fn until_remembered(store: &EtcdStore, place: &Path) -> Token {
    let mut last = Token::NONE;
    within_limit("the machine to remember its tokens", || {
        let held = Ask::new(&key(), "alice").ttl(LONG).granted(store);
        last = held.token;
        let _ = store.release(&held.grant(), soon()).unwrap();
        let kept = std::fs::read_to_string(place.join("here/memory/tokens.json"));
        last.0 > 200 && kept.is_ok_and(|kept| kept.contains(&format!("\"height\":{last}")))
    });
    last
}

#[test]
fn a_backup_in_a_new_cluster_grants_nothing_until_its_tokens_are_raised() {
    let place = tempfile::tempdir().unwrap();
    let (cluster, before) = restored(place.path(), "another");
    // No machine has to remember anything.
    let there = machine(&cluster, place.path(), "there");
    let error = refused(&there, &key()).to_string();
    assert!(error.contains("restored"), "{error}");
    assert!(there.was_restored(soon()).unwrap().is_some());
    let repaired = there
        .repair(Repair::All { restored: false }, soon())
        .unwrap();
    let above = repaired.raised_above.unwrap();
    assert!(there.was_restored(soon()).unwrap().is_none());
    let held = Ask::new(&key(), "bob").ttl(LONG).granted(&there);
    assert!(held.token.0 > above && held.token > before, "{held:?}");
    // Nothing is wrong any more.
    let repaired = there
        .repair(Repair::All { restored: false }, soon())
        .unwrap();
    assert_eq!(repaired.raised_above, None);
}

#[test]
fn a_backup_in_its_own_cluster_is_noticed_by_those_who_have_seen_more() {
    let place = tempfile::tempdir().unwrap();
    let (cluster, before) = restored(place.path(), SAME);
    let here = machine(&cluster, place.path(), "here");
    let error = refused(&here, &key()).to_string();
    assert!(error.contains(&format!("has seen {before}")), "{error}");
    // It has told the others.
    let there = machine(&cluster, place.path(), "there");
    refused(&there, &key());
    let repaired = here
        .repair(Repair::All { restored: false }, soon())
        .unwrap();
    assert!(repaired.raised_above.unwrap() > before.0);
    for (store, name) in [(&here, "build"), (&there, "other")] {
        let held = Ask::new(&Key::parse(name).unwrap(), "bob")
            .ttl(LONG)
            .granted(store);
        assert!(held.token > before, "{held:?} after {before}");
    }
}

#[test]
fn tokens_that_were_raised_are_the_same_for_every_verb() {
    let place = tempfile::tempdir().unwrap();
    let cluster = Etcd::start(1);
    let here = machine(&cluster, place.path(), "here");
    let old = Ask::new(&key(), "alice")
        .ttl(LONG)
        .mode(Mode::Shared)
        .granted(&here);
    let above = here.repair(Repair::All { restored: true }, soon()).unwrap();
    let above = Token(above.raised_above.unwrap());
    let there = machine(&cluster, place.path(), "there");
    let new = Ask::new(&key(), "bob")
        .ttl(LONG)
        .mode(Mode::Shared)
        .granted(&there);
    assert!(
        old.token < above && above < new.token,
        "{old:?} {above} {new:?}"
    );
    for lease in [&old, &new] {
        let fenced = there.fence(&key(), lease.token, soon()).unwrap();
        assert!(matches!(fenced, Fenced::Current(_)), "{fenced:?}");
        let renewed = here.renew(&lease.grant(), LONG, soon()).unwrap();
        let tenure_core::Renewed::Extended(renewed) = renewed else {
            panic!("{renewed:?}")
        };
        assert_eq!(renewed.token, lease.token);
        let [held, _]: [Comparison; 2] = here
            .comparisons(&key(), lease.token, soon())
            .unwrap()
            .unwrap();
        let created = cluster.etcdctl(&["get", &held.key, "-w", "json"]);
        let created: serde_json::Value = serde_json::from_slice(&created.stdout).unwrap();
        let created = created["kvs"][0]["create_revision"].as_u64();
        assert_eq!(created, Some(held.create_revision));
        let _ = there.release(&lease.grant(), soon()).unwrap();
    }
    let events = here
        .history(&tenure_core::HistoryQuery::default(), soon())
        .unwrap();
    let tokens: Vec<Token> = events.iter().map(|event| event.token).collect();
    assert_eq!(tokens, [old.token, new.token, old.token, new.token]);
}

#[test]
fn an_empty_cluster_goes_on_above_the_tokens_of_the_one_before() {
    let place = tempfile::tempdir().unwrap();
    let mut cluster = Etcd::start(1);
    let empty = place.path().join("empty");
    cluster.save(&empty);
    let here = machine(&cluster, place.path(), "here");
    let last = until_remembered(&here, place.path());
    drop(here);
    cluster.restore(&empty, SAME);
    let here = machine(&cluster, place.path(), "here");
    let held = Ask::new(&key(), "alice").ttl(LONG).granted(&here);
    assert!(held.token > last, "{held:?} after {last}");
}

#[test]
fn every_token_of_a_burst_is_remembered_by_each_process_of_the_machine() {
    let place = tempfile::tempdir().unwrap();
    let mut cluster = Etcd::start(1);
    let waits = machine(&cluster, place.path(), "here");
    Ask::new(&Key::parse("early").unwrap(), "alice")
        .ttl(LONG)
        .granted(&waits);
    let backup = place.path().join("backup");
    cluster.save(&backup);
    let here = machine(&cluster, place.path(), "here");
    let burst = (0..30).map(|_| {
        let held = Ask::new(&key(), "alice").ttl(LONG).granted(&here);
        let _ = here.release(&held.grant(), soon()).unwrap();
        held.token
    });
    let last = burst.last().unwrap();
    cluster.restore(&backup, SAME);
    // One that has seen nothing of the burst itself.
    let error = refused(&waits, &key()).to_string();
    assert!(error.contains(&format!("has seen {last}")), "{error}");
}

#[test]
fn a_change_of_tasks_does_not_hide_that_the_cluster_was_restored() {
    let place = tempfile::tempdir().unwrap();
    let mut cluster = Etcd::start(1);
    let here = machine(&cluster, place.path(), "here");
    let add = |number: u32| {
        let new = new_task(&format!("Task {number}"));
        here.add_task(&new, soon()).unwrap();
    };
    add(0);
    let backup = place.path().join("backup");
    cluster.save(&backup);
    (1..4).for_each(add);
    cluster.restore(&backup, SAME);
    // More than what this machine has seen.
    (4..20).for_each(add);
    refused(&machine(&cluster, place.path(), "there"), &key());
}
