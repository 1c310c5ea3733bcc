//! What is kept of the past, and for how long.

use std::sync::Arc;
use std::time::Duration;

use tempfile::TempDir;
use tenure_core::{Event, EventKind, HistoryQuery, Key, Records, Renewed, Store};
use tenure_sqlite::{SqliteOptions, SqliteStore};
use tenure_testkit::soon;
use tenure_testkit::{Ask, FakeClock, history};

const HOUR: Duration = Duration::from_secs(3600);

/// More than this beyond what is to be kept is too much.
const SLACK: usize = 600;

fn new(change: impl FnOnce(&mut SqliteOptions)) -> (TempDir, SqliteStore) {
    let dir = tempfile::tempdir().unwrap();
    let mut options = SqliteOptions::default();
    change(&mut options);
    let store = SqliteStore::open(&dir.path().join("tenure.db"), options).unwrap();
    (dir, store)
}

fn key(name: &str) -> Key {
    Key::parse(name).unwrap()
}

fn events(store: &SqliteStore) -> Vec<Event> {
    store.history(&HistoryQuery::default(), soon()).unwrap()
}

/// Two events: a grant and a release.
fn use_once(store: &SqliteStore, key: &Key) {
    let lease = Ask::new(key, "holder").granted(store);
    let _ = store.release(&lease.grant(), soon()).unwrap();
}

#[test]
fn renewals_are_counted_in_one_event() {
    let (_dir, store) = new(|_| ());
    let (build, docs) = (key("build"), key("docs"));
    let lease = Ask::new(&build, "holder").granted(&store);
    for _ in 0..10 {
        let renewed = store.renew(&lease.grant(), HOUR, soon()).unwrap();
        assert!(matches!(renewed, Renewed::Extended(_)));
        // What happens to other keys meanwhile begins no new count.
        use_once(&store, &docs);
    }
    let _ = store.release(&lease.grant(), soon()).unwrap();
    let told = store
        .history(
            &HistoryQuery {
                key: Some(build),
                ..HistoryQuery::default()
            },
            soon(),
        )
        .unwrap();
    let kinds: Vec<_> = told.iter().map(|event| (event.kind, event.times)).collect();
    assert_eq!(
        kinds,
        [
            (EventKind::Granted, 1),
            (EventKind::Renewed, 10),
            (EventKind::Released, 1)
        ]
    );
    assert_eq!(history::contradictions(&events(&store)), []);
}

#[test]
fn a_history_is_listed_by_key_by_time_and_by_number_oldest_first() {
    let clock = Arc::new(FakeClock::booted("a boot"));
    let (_dir, store) = new(|options| options.clock = clock.clone());
    for name in ["build", "docs", "build"] {
        clock.pass(HOUR);
        use_once(&store, &key(name));
    }
    let all = events(&store);
    assert_eq!(all.len(), 6);
    assert!(all.is_sorted_by_key(|event| event.id));
    let ask = |query: HistoryQuery| store.history(&query, soon()).unwrap();
    let of_build = ask(HistoryQuery {
        key: Some(key("build")),
        ..HistoryQuery::default()
    });
    assert_eq!(of_build, [&all[..2], &all[4..]].concat());
    let newest = ask(HistoryQuery {
        limit: Some(3),
        ..HistoryQuery::default()
    });
    assert_eq!(newest, all[3..]);
    let since = ask(HistoryQuery {
        since: Some(all[2].at),
        limit: Some(100),
        ..HistoryQuery::default()
    });
    assert_eq!(since, all[2..]);
    let after = ask(HistoryQuery {
        after: all[2].id,
        ..HistoryQuery::default()
    });
    assert_eq!(after, all[3..]);
}

#[test]
fn too_many_events_are_pruned_from_the_oldest_on() {
    let (_dir, store) = new(|options| options.history_events = 100);
    let mut largest = 0;
    for round in 0..2000 {
        use_once(&store, &key("build"));
        if round % 100 == 0 {
            largest = largest.max(events(&store).len());
        }
    }
    let left = events(&store);
    largest = largest.max(left.len());
    assert!(largest <= 100 + SLACK, "{largest} events were kept");
    assert!(left.len() >= 100, "only {} events were kept", left.len());
    let ids: Vec<u64> = left.iter().map(|event| event.id).collect();
    let newest = *ids.last().unwrap();
    assert_eq!(newest, 4000, "the newest is always kept");
    let first = newest + 1 - u64::try_from(ids.len()).unwrap();
    assert_eq!(ids, (first..=newest).collect::<Vec<_>>(), "without gaps");
}

#[test]
fn events_that_are_too_old_are_pruned() {
    let clock = Arc::new(FakeClock::booted("a boot"));
    let (_dir, store) = new(|options| {
        options.clock = clock.clone();
        options.history_age = HOUR;
    });
    for _ in 0..1000 {
        use_once(&store, &key("build"));
    }
    assert_eq!(events(&store).len(), 2000, "all of them are young");
    clock.pass(2 * HOUR);
    for _ in 0..1000 {
        use_once(&store, &key("docs"));
    }
    let left = events(&store);
    assert!(
        left.iter().all(|event| event.key == key("docs")),
        "as many were removed as came"
    );
    assert_eq!(left.len(), 2000, "and none of the young ones");
}

#[test]
fn the_newest_event_stays_however_old_it_is() {
    let clock = Arc::new(FakeClock::booted("a boot"));
    let (_dir, store) = new(|options| {
        options.clock = clock.clone();
        options.history_age = Duration::ZERO;
        options.history_events = 0;
    });
    let mut last = 0;
    for _ in 0..600 {
        use_once(&store, &key("build"));
        clock.pass(HOUR);
        let id = events(&store).last().unwrap().id;
        assert!(id > last, "numbers are never given twice");
        last = id;
    }
    assert!(events(&store).len() <= SLACK);
}
