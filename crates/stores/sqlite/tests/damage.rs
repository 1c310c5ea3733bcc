//! Rows of tenure's own tables that can't be understood.

use std::path::PathBuf;
use std::time::Duration;

use rusqlite::Connection;
use tenure_core::{
    Acquired, EventKind, Forced, HistoryQuery, HolderId, Key, Lease, Mode, PathSet, Reap,
    Records as _, Released, Renewed, Snapshot, Store, Verdict,
};
use tenure_sqlite::{SqliteOptions, SqliteStore};
use tenure_testkit::{Ask, soon};

const LONG: Duration = Duration::from_secs(600);

struct Place {
    store: SqliteStore,
    db: Connection,
    _folder: tempfile::TempDir,
}

impl Place {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path: PathBuf = folder.path().join("tenure.db");
        Self {
            store: SqliteStore::open(&path, SqliteOptions::default()).unwrap(),
            db: Connection::open(&path).unwrap(),
            _folder: folder,
        }
    }

    /// Changes one row.
    fn sql(&self, sql: &str) {
        let changed = self.db.execute(sql, []).unwrap();
        assert_eq!(changed, 1, "{sql}");
    }

    fn held(&self, key: &str, holder: &str) -> Lease {
        Ask::new(&self::key(key), holder)
            .ttl(LONG)
            .granted(&self.store)
    }

    fn known(&self, key: &str) -> Snapshot {
        self.store.inspect(&self::key(key), soon()).unwrap()
    }

    fn is_busy(&self, key: &str) -> bool {
        let claim = Ask::new(&self::key(key), "bob").ttl(LONG);
        matches!(claim.once(&self.store), Acquired::Busy(_))
    }

    fn force(&self, key: &str, of: Option<&HolderId>) -> usize {
        let by = HolderId::parse("me").unwrap();
        let forced = self.store.force(&self::key(key), of, &by, None, soon());
        match forced.unwrap() {
            Forced::Freed(leases) => leases.len(),
            Forced::NotHeld => 0,
        }
    }
}

fn key(name: &str) -> Key {
    Key::parse(name).unwrap()
}

/// Every way to damage a lease, and a word of the sentence that names it.
const DAMAGE: [(&str, &str); 12] = [
    ("mode = 'garbage'", "mode is \"garbage\""),
    ("holder = ''", "holder is \"\""),
    ("holder = x'ff'", "holder is x'FF'"),
    ("host = x'ff'", "host is x'FF'"),
    ("binding = '{'", "binding is \"{\""),
    ("token = -7", "token is -7"),
    ("token = 'many'", "token is \"many\""),
    ("expires_at = 'never'", "expires_at is \"never\""),
    ("expires_boot = 'x'", "expires_boot is \"x\""),
    ("acquired_at = '?'", "acquired_at is \"?\""),
    ("ttl_ms = 1.5", "ttl_ms is 1.5"),
    ("slot = 'first'", "slot is \"first\""),
];

#[test]
fn a_damaged_lease_is_named_and_hides_no_other() {
    for (damage, says) in DAMAGE {
        let place = Place::new();
        let (held, whole) = (place.held("build", "alice"), place.held("other", "carol"));
        place.sql(&format!("UPDATE leases SET {damage} WHERE key = 'build'"));
        let all = place.store.list(soon()).unwrap();
        let [damaged, listed] = all.as_slice() else {
            panic!("{damage}: two keys are held: {all:?}")
        };
        assert_eq!(listed.leases[0].0.token, whole.token, "{damage}");
        assert!(listed.problems.is_empty(), "{damage}: {listed:?}");
        assert_eq!(damaged.leases[0].1, Verdict::Malformed, "{damage}");
        let known = place.known("build");
        assert_eq!(damaged.problems, known.problems);
        let [problem] = known.problems.as_slice() else {
            panic!("{damage}: {known:?}")
        };
        let row = "row 1 of leases (key \"build\") can't be understood: ";
        assert!(
            problem.starts_with(row) && problem.contains(says),
            "{problem}"
        );
        // Its holder may be at work, so nobody else gets the key; and it learns that its lease is not what it was.
        assert!(place.is_busy("build"), "{damage}");
        let renewed = place.store.renew(&held.grant(), LONG, soon()).unwrap();
        assert!(matches!(renewed, Renewed::Lost(_)), "{damage}: {renewed:?}");
        // Cleaning up goes on with the others, and leaves it alone.
        place.sql("UPDATE leases SET expires_at = '2020-01-01T00:00:00.000Z', boot = '' WHERE key = 'other'");
        let reaped = place.store.reap(Reap::Free, soon()).unwrap();
        assert_eq!(reaped.len(), 1, "{damage}: {reaped:?}");
        assert!(place.is_busy("build"), "{damage}");
        assert_eq!(place.force("build", None), 1, "{damage}");
        let next = Ask::new(&key("build"), "bob").granted(&place.store);
        assert!(next.token > held.token, "{damage}");
        assert!(place.known("build").problems.is_empty(), "{damage}");
    }
}

#[test]
fn a_damaged_lease_ends_with_the_end_on_record() {
    for damage in ["mode = 'garbage'", "binding = ''", "token = 'x'"] {
        let place = Place::new();
        place.held("build", "alice");
        place.sql(&format!(
            "UPDATE leases SET {damage}, boot = '', expires_at = '2020-01-01T00:00:00.000Z'"
        ));
        let known = place.known("build");
        assert!(known.leases[0].1.ended().is_some(), "{damage}: {known:?}");
        assert_eq!(known.problems.len(), 1, "{damage}: {known:?}");
        let _granted = Ask::new(&key("build"), "bob").granted(&place.store);
        assert!(place.known("build").problems.is_empty(), "{damage}");
    }
}

#[test]
fn a_key_with_several_holders_is_closed_by_one_that_is_in_no_mode() {
    for (mode, damage) in [
        (Mode::Shared, "mode = 'garbage'"),
        ("slots:4".parse().unwrap(), "slot = 'first'"),
        ("slots:4".parse().unwrap(), "slot = -1"),
        ("slots:4".parse().unwrap(), "mode = x'00'"),
    ] {
        let place = Place::new();
        let ask = |name: &str| Ask::new(&key("build"), name).mode(mode.clone()).ttl(LONG);
        let _leases: Vec<Lease> = (0..4)
            .take(3)
            .map(|n| ask(&format!("r{n}")).granted(&place.store))
            .collect();
        // The last to expire, so that it is not read by chance.
        place.sql(&format!(
            "UPDATE leases SET {damage}, expires_at = '2999-01-01T00:00:00Z' WHERE holder = 'r2'"
        ));
        let refused = ask("bob").once(&place.store);
        assert!(
            matches!(refused, Acquired::Busy(_)),
            "{damage}: {refused:?}"
        );
        assert_eq!(place.known("build").leases.len(), 3, "{damage}");
        // Only that one is ended.
        assert_eq!(
            place.force("build", Some(&HolderId::unreadable())),
            1,
            "{damage}"
        );
        ask("bob").granted(&place.store);
    }
}

#[test]
fn a_damaged_reservation_is_met_where_it_was() {
    for damage in [
        "mode = 'paths:'",
        "mode = x'00'",
        "holder = ''",
        "token = 'x'",
        "token = -token",
        "token = token + 0.5",
    ] {
        let place = Place::new();
        let ask = |name: &str, paths: &str| {
            let paths = PathSet::parse([paths]).unwrap();
            Ask::new(&Key::paths(), name).mode(paths.into()).ttl(LONG)
        };
        ask("alice", "src/a.rs").granted(&place.store);
        ask("carol", "docs/**").granted(&place.store);
        place.sql(&format!(
            "UPDATE leases SET {damage} WHERE holder = 'alice'"
        ));
        let refused = ask("bob", "src/**").once(&place.store);
        assert!(
            matches!(refused, Acquired::Busy(_)),
            "{damage}: {refused:?}"
        );
        assert_eq!(
            place.force("paths", Some(&HolderId::unreadable())),
            1,
            "{damage}"
        );
        ask("bob", "src/**").granted(&place.store);
        let left: i64 = place
            .db
            .query_row(
                "SELECT count(*) FROM reserved WHERE token NOT IN (SELECT token FROM leases)",
                [],
                |row| row.get(0),
            )
            .unwrap();
        assert_eq!(left, 0, "{damage}");
    }
}

#[test]
fn a_damaged_ticket_is_named_and_keeps_nobody_from_the_key() {
    for damage in [
        "mode = 'garbage'",
        "binding = 'null'",
        "holder = ' '",
        "priority = 70",
        "arrived = 'then'",
        "within = x'ff'",
        "named = 'yes'",
    ] {
        let place = Place::new();
        let held = place.held("build", "alice");
        let wait = |name: &str| Ask::new(&key("build"), name).ttl(LONG).waiting();
        for name in ["first", "bob"] {
            let queued = wait(name).once(&place.store);
            assert!(matches!(queued, Acquired::Busy(_)), "{queued:?}");
        }
        place.sql(&format!(
            "UPDATE tickets SET {damage} WHERE holder = 'first'"
        ));
        let known = place.known("build");
        assert_eq!(known.queue.len(), 1, "{damage}: {known:?}");
        let row = "row 1 of tickets (key \"build\") can't be understood: ";
        assert!(known.problems[0].starts_with(row), "{known:?}");
        assert_eq!(
            place.store.list(soon()).unwrap()[0].problems,
            known.problems
        );
        let released = place.store.release(&held.grant(), soon()).unwrap();
        assert!(matches!(released, Released::Freed(_)), "{released:?}");
        let bob = wait("bob").granted(&place.store);
        // What is left is still named, and removed by a repair.
        assert_eq!(place.known("build").problems.len(), 1, "{damage}");
        let repaired = place.store.repair(Some(&key("build")), soon()).unwrap();
        assert!(
            repaired.done[0].contains("removed: row 1 of tickets"),
            "{repaired:?}"
        );
        assert!(place.known("build").problems.is_empty(), "{damage}");
        assert_eq!(place.known("build").leases[0].0.token, bob.token);
    }
}

#[test]
fn a_row_whose_key_no_name_can_be_is_named_by_its_number() {
    for bad in ["''", "'a' || char(10)", "x'ff'"] {
        let place = Place::new();
        let other = place.held("other", "carol");
        place.held("build", "alice");
        let queued = Ask::new(&key("other"), "bob")
            .ttl(LONG)
            .waiting()
            .once(&place.store);
        assert!(matches!(queued, Acquired::Busy(_)), "{queued:?}");
        place.sql(&format!(
            "UPDATE leases SET key = {bad} WHERE holder = 'alice'"
        ));
        place.sql(&format!("UPDATE tickets SET key = {bad}"));
        let all = place.store.list(soon()).unwrap();
        let names: Vec<&str> = all.iter().map(|one| one.key.as_str()).collect();
        assert_eq!(
            names,
            ["leases:rowid=2", "other", "tickets:rowid=1"],
            "{bad}"
        );
        assert!(all[0].problems[0].contains("row 2 of leases"), "{all:?}");
        assert!(place.store.reap(Reap::Free, soon()).unwrap().is_empty());
        let repaired = place.store.repair(None, soon()).unwrap();
        assert_eq!(
            (repaired.done.len(), repaired.left.len()),
            (2, 0),
            "{repaired:?}"
        );
        assert_eq!(place.store.list(soon()).unwrap().len(), 1, "{bad}");
        assert_eq!(place.known("other").leases[0].0.token, other.token);
    }
}

#[test]
fn a_damaged_event_is_left_out_named_and_removed_by_a_repair() {
    for damage in [
        "at = 'then'",
        "at = ''",
        "key = ''",
        "kind = 'lost'",
        "token = -1",
        "holder = ''",
        "times = 'often'",
        "evidence = '{'",
        "mode = 'garbage'",
    ] {
        let place = Place::new();
        for name in ["alice", "bob"] {
            let held = place.held("build", name);
            let freed = place.store.release(&held.grant(), soon()).unwrap();
            assert!(matches!(freed, Released::Freed(_)), "{freed:?}");
        }
        place.sql(&format!("UPDATE history SET {damage} WHERE id = 2"));
        let newest = |limit| HistoryQuery {
            limit: Some(limit),
            ..HistoryQuery::default()
        };
        let all = newest(100);
        let told = |query: &HistoryQuery| place.store.history(query, soon()).unwrap();
        let damaged = |query: &HistoryQuery| place.store.damaged_events(query, soon()).unwrap();
        assert_eq!(told(&all).len(), 3, "{damage}");
        // The limit counts what can be told.
        let last: Vec<EventKind> = told(&newest(3)).iter().map(|event| event.kind).collect();
        assert_eq!(
            last,
            [EventKind::Granted, EventKind::Granted, EventKind::Released]
        );
        assert!(damaged(&newest(2)).is_empty(), "{damage}");
        let since = HistoryQuery {
            key: Some(key("other")),
            since: told(&all).first().map(|event| event.at),
            ..HistoryQuery::default()
        };
        let row = "row 2 of history (key ";
        assert!(
            damaged(&since)[0].starts_with(row),
            "{damage}: {:?}",
            damaged(&since)
        );
        let repaired = place.store.repair(None, soon()).unwrap();
        let [done] = repaired.done.as_slice() else {
            panic!("{damage}: {repaired:?}")
        };
        assert!(done.contains(row) && done.contains("holder "), "{done}");
        assert!(damaged(&all).is_empty(), "{damage}");
        assert_eq!(told(&all).len(), 3, "{damage}");
    }
}

#[test]
fn a_repair_leaves_a_damaged_lease_that_may_be_in_use() {
    let place = Place::new();
    place.held("build", "alice");
    place.sql("UPDATE leases SET mode = 'garbage'");
    let repaired = place.store.repair(None, soon()).unwrap();
    assert!(repaired.done.is_empty(), "{repaired:?}");
    let left = &repaired.left[0];
    assert!(
        left.contains("It ends by itself") && left.contains("--holder '?'"),
        "{left}"
    );
    place.sql("UPDATE leases SET expires_at = 'never'");
    let left = place.store.repair(None, soon()).unwrap().left;
    assert!(left[0].contains("It ends only with"), "{left:?}");
    assert!(place.is_busy("build"));
    place.sql("UPDATE leases SET expires_at = '2020-01-01T00:00:00.000Z', boot = ''");
    let repaired = place.store.repair(Some(&key("build")), soon()).unwrap();
    assert!(
        repaired.left.is_empty() && repaired.done.len() == 1,
        "{repaired:?}"
    );
    assert!(!place.known("build").is_on_record());
}

#[test]
fn damaged_tickets_hide_no_waiter_behind_them() {
    let place = Place::new();
    let held = place.held("build", "alice");
    for name in ["first", "second", "third", "dave"] {
        let queued = Ask::new(&key("build"), name).waiting().once(&place.store);
        assert!(matches!(queued, Acquired::Busy(_)), "{queued:?}");
    }
    for name in ["first", "second", "third"] {
        place.sql(&format!(
            "UPDATE tickets SET mode = 'garbage' WHERE holder = '{name}'"
        ));
    }
    let released = place.store.release(&held.grant(), soon()).unwrap();
    assert!(matches!(released, Released::Freed(_)), "{released:?}");
    assert!(place.is_busy("build"), "dave was there first");
    let _granted = Ask::new(&key("build"), "dave").granted(&place.store);
}
