//! Reservations among many others: the index of the store against a scan of all of them, and what is read.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use rusqlite::Connection;
use tempfile::TempDir;
use tenure_core::engine::LeaseQuery;
use tenure_core::{
    Acquired, ErrorKind, HolderId, Key, Lease, Mode, PathPattern, Places, Released, Store,
};
use tenure_sqlite::{Purpose, SCHEMA_VERSION, SqliteOptions, SqliteStore};
use tenure_testkit::{Ask, Chance, soon};

struct Project {
    _dir: TempDir,
    path: PathBuf,
}

impl Project {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tenure.db");
        Self { _dir: dir, path }
    }

    fn open(&self) -> SqliteStore {
        let options = SqliteOptions {
            purpose: Purpose::Locks,
            ..SqliteOptions::default()
        };
        SqliteStore::open(&self.path, options).unwrap()
    }

    fn sql(&self, sql: &str) {
        Connection::open(&self.path)
            .unwrap()
            .execute_batch(sql)
            .unwrap();
    }
}

fn mode(text: &str) -> Mode {
    text.parse().unwrap()
}

fn reserve(store: &SqliteStore, holder: &str, mode: &Mode) -> Acquired {
    let ask = Ask::new(&Key::paths(), holder).mode(mode.clone());
    ask.detached().once(store)
}

fn near(store: &SqliteStore, places: &Places) -> Vec<Lease> {
    let leases = store.some_leases(&Key::paths(), LeaseQuery::Near(places), soon());
    leases
        .unwrap()
        .into_iter()
        .map(|(lease, _)| lease)
        .collect()
}

fn all(store: &SqliteStore) -> Vec<Lease> {
    let leases = store.inspect(&Key::paths(), soon()).unwrap().leases;
    leases.into_iter().map(|(lease, _)| lease).collect()
}

/// Those of some leases for which this holds.
fn tokens(leases: &[Lease], holds: impl Fn(&Lease) -> bool) -> BTreeSet<u64> {
    let found = leases.iter().filter(|lease| holds(lease));
    found.map(|lease| lease.token.0).collect()
}

/// The rows of the index, and those that the leases should have.
fn rows(path: &Path, leases: &[Lease]) -> [BTreeSet<(String, u64)>; 2] {
    let db = Connection::open(path).unwrap();
    let mut rows = db.prepare("SELECT place, token FROM reserved").unwrap();
    let rows = rows.query_map([], |row| {
        Ok((row.get(0)?, u64::from(row.get::<_, u32>(1)?)))
    });
    let expected = leases.iter().flat_map(|lease| {
        let places = lease.mode.places().map(str::to_owned);
        let places = places.chain([format!("/{}", lease.holder.id)]);
        places.map(|place| (place, lease.token.0))
    });
    [
        rows.unwrap().map(Result::unwrap).collect(),
        expected.collect(),
    ]
}

#[test]
fn the_index_finds_what_a_scan_of_all_reservations_finds() {
    let names = [
        "a", "b", "ab", "a b", "a.c", "é", "*", "**", "a*", "[ab]", "{a,b}", "*.c",
    ];
    let mut chance = Chance::from_seed(20_261_117);
    let project = Project::new();
    let store = project.open();
    let mut pattern = |names: &[&str]| {
        let many = chance.index(4) + 1;
        let parts: Vec<&str> = (0..many)
            .map(|_| names[chance.index(names.len())])
            .collect();
        (parts.join("/"), chance.index(1000))
    };
    for round in 0..1500 {
        let (one, number) = pattern(&names);
        let (two, _) = pattern(&names);
        let (file, _) = pattern(&names[..6]);
        let kind = if number % 5 == 0 {
            "shared-paths"
        } else {
            "paths"
        };
        let text = match number % 4 {
            0 => format!("{kind}:{}/.", file.replace(' ', "\\ ")),
            1 => format!(
                "{kind}:{} {}",
                one.replace(' ', "\\ "),
                two.replace(' ', "\\ ")
            ),
            _ => format!("{kind}:{}", one.replace(' ', "\\ ")),
        };
        let claimed = if number == 7 {
            Mode::Exclusive
        } else {
            mode(&text)
        };
        let leases = all(&store);
        let expected = tokens(&leases, |lease| !lease.mode.admits(&claimed));
        if let Some(places) = Places::of(&claimed) {
            let found = tokens(&near(&store, &places), |lease| !lease.mode.admits(&claimed));
            assert_eq!(found, expected, "{claimed} in round {round}");
        }
        let mut places = Places::default();
        places.add_file(&file);
        let covers = |lease: &Lease| {
            let paths = lease.mode.paths();
            paths.is_none_or(|paths| paths.covers(&file).is_some())
        };
        let found = tokens(&near(&store, &places), covers);
        assert_eq!(found, tokens(&leases, covers), "{file} in round {round}");
        let holder = format!("holder-{}", number % 7);
        let of = HolderId::parse(holder.clone()).unwrap();
        let of = store.some_leases(&Key::paths(), LeaseQuery::Of(&of), soon());
        let of: BTreeSet<u64> = of.unwrap().iter().map(|(lease, _)| lease.token.0).collect();
        assert_eq!(
            of,
            tokens(&leases, |lease| lease.holder.id.as_str() == holder)
        );

        let others = |lease: &Lease| lease.holder.id.as_str() != holder;
        let conflicts = leases.iter().any(|lease| {
            let own = !others(lease) && lease.mode.paths().is_some() && claimed.paths().is_some();
            !own && !lease.mode.admits(&claimed)
        });
        match reserve(&store, &holder, &claimed) {
            Acquired::Granted(_) => assert!(
                !conflicts || leases.iter().all(|lease| !others(lease)),
                "{claimed} was granted"
            ),
            Acquired::Busy(_) => assert!(conflicts, "{claimed} was refused"),
            other => panic!("{other:?}"),
        }
        let leases = all(&store);
        if leases.len() > 12 {
            let ending = &leases[number % leases.len()];
            let freed = store.release(&ending.grant(), soon()).unwrap();
            assert!(matches!(freed, Released::Freed(_)));
        }
        if round % 50 == 0 {
            let [found, expected] = rows(&project.path, &all(&store));
            assert_eq!(found, expected);
        }
    }
}

#[test]
fn a_claim_and_a_check_read_only_the_reservations_at_their_places() {
    let project = Project::new();
    let store = project.open();
    for number in 0..400 {
        let file = mode(&format!("paths:src/m{}/f{number}.rs/.", number % 40));
        let granted = reserve(&store, &format!("h{}", number % 5), &file);
        assert!(matches!(granted, Acquired::Granted(_)));
    }
    let read = |path: &str| {
        let mut places = Places::default();
        places.add_file(path);
        near(&store, &places).len()
    };
    assert_eq!(
        [read("src/m3/f3.rs"), read("src/m3/new.rs"), read("docs/a")],
        [1, 0, 0]
    );
    let folder = Places::of(&mode("paths:src/m3")).unwrap();
    assert_eq!(near(&store, &folder).len(), 10);
    let mut top = Places::default();
    top.add_pattern(&PathPattern::parse("**").unwrap());
    assert_eq!(near(&store, &top).len(), 400);
    // A pattern that begins with a wildcard may cover any path.
    let wide = reserve(&store, "wide", &mode("paths:*/README.md"));
    assert!(matches!(wide, Acquired::Granted(_)));
    assert_eq!([read("src/m3/f3.rs"), read("docs/README.md")], [2, 1]);
}

#[test]
fn a_project_without_reservations_has_no_index() {
    let project = Project::new();
    let store = project.open();
    Ask::new(&Key::parse("build").unwrap(), "a").granted(&store);
    let tables = || {
        let db = Connection::open(&project.path).unwrap();
        let count = "SELECT count(*) FROM sqlite_schema WHERE name = 'reserved'";
        db.query_row(count, [], |row| row.get::<_, u32>(0)).unwrap()
    };
    assert_eq!(tables(), 0);
    let mut places = Places::default();
    places.add_file("a");
    assert!(near(&store, &places).is_empty());
    let Acquired::Granted(granted) = reserve(&store, "a", &mode("paths:a")) else {
        panic!("nobody else is here");
    };
    assert_eq!(tables(), 1);
    let freed = store.release(&granted.lease.grant(), soon()).unwrap();
    assert!(matches!(freed, Released::Freed(_)));
    assert_eq!(rows(&project.path, &[]), [BTreeSet::new(), BTreeSet::new()]);
}

#[test]
fn an_upgrade_keeps_the_reservations_and_indexes_them() {
    let project = Project::new();
    let texts = [
        "paths:src/a.rs/.",
        "paths:docs/*.md x\\ y",
        "shared-paths:lib",
    ];
    let store = project.open();
    for (number, text) in texts.into_iter().enumerate() {
        let granted = reserve(&store, &format!("h{number}"), &mode(text));
        assert!(matches!(granted, Acquired::Granted(_)));
    }
    drop(store);
    project.sql("DROP TABLE reserved; PRAGMA user_version = 7");
    // Without the index, it must not be read as if it had one.
    let read = SqliteStore::open_read_only(&project.path, SqliteOptions::default());
    assert_eq!(read.err().unwrap().kind, ErrorKind::ReadOnly);
    let look = SqliteStore::open_to_look(&project.path, SqliteOptions::default()).unwrap();
    let seen = look.some_leases(&Key::paths(), LeaseQuery::First(1), soon());
    assert_eq!(seen.unwrap_err().kind, ErrorKind::ReadOnly);

    let store = project.open();
    let version: i32 = Connection::open(&project.path)
        .unwrap()
        .query_row("PRAGMA user_version", [], |row| row.get(0))
        .unwrap();
    assert_eq!(version, SCHEMA_VERSION);
    let [found, expected] = rows(&project.path, &all(&store));
    assert_eq!(found, expected);
    assert_eq!(found.len(), 7);
    for refused in [
        "paths:src",
        "paths:docs/a.md/.",
        "paths:lib/x",
        "paths:x\\ y",
    ] {
        let answer = reserve(&store, "other", &mode(refused));
        assert!(matches!(answer, Acquired::Busy(_)), "{refused}");
    }
    let granted = reserve(&store, "other", &mode("paths:src/b.rs/."));
    assert!(matches!(granted, Acquired::Granted(_)));
}

#[test]
fn patterns_that_take_too_long_to_compare_are_refused_and_hold_up_nobody() {
    let project = Project::new();
    let store = project.open();
    // Twelve by twelve comparisons of four million steps each, and no common path.
    let many = |end: char| {
        let pattern = |number| format!("{}{number}{end}", "*a".repeat(200));
        let patterns: Vec<String> = (10..22).map(pattern).collect();
        mode(&format!("paths:{}", patterns.join(" ")))
    };
    let first = Ask::new(&Key::paths(), "first").mode(many('x'));
    let _first = first.granted(&store);
    let second = Ask::new(&Key::paths(), "second").mode(many('y')).waiting();
    let error = store.acquire(&second.claim(&store), soon()).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Unsupported, "{error}");
    assert!(error.to_string().contains("too long to compare"), "{error}");
    let known = store.inspect(&Key::paths(), soon()).unwrap();
    assert_eq!((known.leases.len(), known.queue.len()), (1, 0));
    let other = Ask::new(&Key::paths(), "third").mode(mode("paths:src/** docs/*.md"));
    let _third = other.granted(&store);
}

#[test]
fn parts_of_reservations_are_given_back_in_one_step_or_not_at_all() {
    let project = Project::new();
    let store = project.open();
    let granted = |text: &str| {
        let ask = Ask::new(&Key::paths(), "one").mode(mode(text));
        ask.detached().granted(&store)
    };
    let (lease, second) = (granted("paths:a b c"), granted("paths:d e"));
    let patterns = |all: &[&str]| -> Vec<PathPattern> {
        let parse = |text: &&str| PathPattern::parse(text).unwrap();
        all.iter().map(parse).collect()
    };
    let parts = [
        (lease.grant(), patterns(&["b"])),
        (second.grant(), patterns(&["d"])),
    ];
    let held = || -> Vec<String> {
        let leases = store.inspect(&Key::paths(), soon()).unwrap().leases;
        leases.iter().map(|(it, _)| it.mode.to_string()).collect()
    };
    for at in [
        "INSERT ON leases".to_owned(),
        "DELETE ON leases".to_owned(),
        format!("DELETE ON leases WHEN OLD.token = {}", second.token.0),
    ] {
        project.sql(&format!(
            "CREATE TRIGGER fault BEFORE {at} BEGIN SELECT RAISE(ABORT, 'a fault'); END"
        ));
        let failed = store.release_paths(&parts, soon());
        assert!(failed.is_err(), "{at}: {failed:?}");
        assert_eq!(held(), ["paths:a b c", "paths:d e"], "{at}");
        project.sql("DROP TRIGGER fault");
    }
    let freed = store.release_paths(&parts, soon()).unwrap();
    assert!(
        matches!(freed[..], [Released::Freed(_), Released::Freed(_)]),
        "{freed:?}"
    );
    assert_eq!(held(), ["paths:a c", "paths:e"]);
    let (rest, _) = store
        .inspect(&Key::paths(), soon())
        .unwrap()
        .leases
        .remove(0);
    assert!(lease.token < rest.token);
    let end = |lease: &Lease| lease.expires.as_ref().map(|end| end.ticks);
    assert_eq!(end(&rest), end(&lease));
    let _other = Ask::new(&Key::paths(), "two")
        .mode(mode("paths:b"))
        .granted(&store);
    let parts = [(rest.grant(), patterns(&["a", "c"])), parts[1].clone()];
    let freed = store.release_paths(&parts, soon()).unwrap();
    assert!(
        matches!(freed[..], [Released::Freed(_), Released::AlreadyGone(_)]),
        "{freed:?}"
    );
    assert_eq!(held(), ["paths:e", "paths:b"]);
}
