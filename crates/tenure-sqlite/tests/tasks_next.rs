//! The best task that is ready: which one, for whom, and who is woken when there is one.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "test code fails by panicking"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use rusqlite::Connection;
use tempfile::TempDir;
use tenure_core::task::{
    ANY, Change, Edit, NewTask, Proof, Runner, Shortage, Sought, Starting, TaskQuery, Want, key_of,
};
use tenure_core::{
    Binding, Clock, Holder, HolderId, Key, Patience, Priority, Reap, Status, Store, Waited, Watched,
};
use tenure_host::HostClock;
use tenure_sqlite::{Options, Places, SqliteStore};
use tenure_testkit::limit::{spawn_until_asleep, until_asleep};
use tenure_testkit::{Ask, Chance, FakeClock, Process, process};

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3600);

/// A database with its own time, if it does not have everybody's.
struct World {
    dir: TempDir,
    clock: Arc<dyn Clock>,
    store: SqliteStore,
}

impl World {
    fn new() -> Self {
        Self::with(Arc::new(HostClock::new()))
    }

    fn with(clock: Arc<dyn Clock>) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = open(&dir.path().join("tenure.db"), &clock);
        Self { dir, clock, store }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("tenure.db")
    }

    /// Another process's view of the same database.
    fn other(&self) -> SqliteStore {
        open(&self.path(), &self.clock)
    }

    fn sql(&self, text: &str) {
        Connection::open(self.path())
            .unwrap()
            .execute_batch(text)
            .unwrap();
    }

    fn count(&self, text: &str) -> i64 {
        Connection::open(self.path())
            .unwrap()
            .query_row(text, [], |row| row.get(0))
            .unwrap()
    }

    fn force(&self, key: &str) {
        let admin = HolderId::parse("admin").unwrap();
        let key = Key::parse(key).unwrap();
        let _ = self.store.force(&key, &admin, None).unwrap();
    }

    fn is_held(&self, key: &str) -> bool {
        let found = self.store.inspect(&Key::parse(key).unwrap()).unwrap();
        found
            .lease
            .is_some_and(|(_, verdict)| verdict.over().is_none())
    }
}

fn open(path: &std::path::Path, clock: &Arc<dyn Clock>) -> SqliteStore {
    let options = Options {
        clock: Arc::clone(clock),
        ..Options::default()
    };
    SqliteStore::open(path, options).unwrap()
}

fn runner(name: &str) -> Runner {
    Runner {
        holder: Holder {
            id: HolderId::parse(name).unwrap(),
            host: "here".into(),
            command: None,
            binding: Binding::Detached,
        },
        asker: Binding::Detached,
        named: true,
        task_ttl: HOUR,
        section_ttl: 2 * HOUR,
        priority: Priority::default(),
        patience: Patience::Try,
        within: vec![],
        leaves: Vec::new(),
    }
}

/// A runner that waits in the process which has this store open.
fn waiting(store: &SqliteStore, name: &str) -> Runner {
    Runner {
        asker: store.this_process().unwrap(),
        patience: Patience::Queue,
        ..runner(name)
    }
}

fn name(text: &str) -> Proof {
    Proof::Name(HolderId::parse(text).unwrap())
}

fn new_task(title: &str, section: Option<&str>) -> NewTask {
    NewTask {
        title: title.into(),
        description: None,
        section: section.map(str::to_owned),
        priority: Priority::default(),
        depends_on: vec![],
    }
}

fn found(answer: Sought) -> Option<String> {
    match answer {
        Sought::Found(started) => Some(started.task.id.clone()),
        Sought::None(_) | Sought::Deadlock(_) => None,
    }
}

fn next(store: &SqliteStore, name: &str) -> Option<String> {
    found(store.next(&runner(name)).unwrap())
}

fn want(answer: Sought) -> Box<Want> {
    match answer {
        Sought::None(want) => want,
        Sought::Found(found) => panic!("there should be none: {found:?}"),
        Sought::Deadlock(cycle) => panic!("{cycle}"),
    }
}

fn shortage(store: &SqliteStore, name: &str) -> Shortage {
    want(store.next(&runner(name)).unwrap()).shortage
}

fn start(store: &SqliteStore, id: &str, runner: &Runner) {
    let answer = store.start(id, runner).unwrap();
    assert!(matches!(answer, Starting::Started(_)), "{answer:?}");
}

fn finish(store: &SqliteStore, id: &str, by: &str) {
    store
        .change(id, &name(by), &Change::To(Status::Completed))
        .unwrap();
}

#[test]
fn the_most_urgent_goes_first_then_the_oldest() {
    let world = World::new();
    world.sql(
        "INSERT INTO tasks (id, title, priority, created_at, updated_at) VALUES
         ('old', 'x', 5, '2026-01-01T00:00:00.000Z', ''), ('new', 'x', 5, '2026-01-03T00:00:00.000Z', ''),
         ('urgent', 'x', 9, '2026-01-04T00:00:00.000Z', ''), ('low', 'x', 0, '2025-01-01T00:00:00.000Z', ''),
         ('middle', 'x', 5, '2026-01-02T00:00:00.000Z', ''), ('twin', 'x', 5, '2026-01-03T00:00:00.000Z', '');
         UPDATE tasks SET updated_at = created_at;",
    );
    let each = std::iter::from_fn(|| next(&world.store, "a"));
    let order: Vec<String> = each.take(7).collect();
    assert_eq!(order, ["urgent", "old", "middle", "new", "twin", "low"]);
}

#[test]
fn each_shortage_is_told_apart() {
    let clock = Arc::new(FakeClock::booted("boot"));
    let world = World::with(clock.clone());
    let store = &world.store;
    assert_eq!(shortage(store, "a"), Shortage::NothingLeft);
    let one = store.add_task(&new_task("One", None)).unwrap().id;
    let two = store
        .add_task(&NewTask {
            depends_on: vec![one.clone()],
            ..new_task("Two", None)
        })
        .unwrap()
        .id;
    assert_eq!(next(store, "a"), Some(one.clone()));
    assert_eq!(shortage(store, "b"), Shortage::Locked);
    let retry = Change::Retry { error: "no".into() };
    store.change(&one, &name("a"), &retry).unwrap();
    assert!(matches!(shortage(store, "b"), Shortage::Later { .. }));
    let failed = Change::Failed { error: "no".into() };
    store.change(&one, &name("a"), &failed).unwrap();
    assert_eq!(shortage(store, "b"), Shortage::Blocked);
    finish(store, &one, "a");
    assert_eq!(next(store, "b"), Some(two.clone()));
    store
        .change(&two, &name("b"), &Change::To(Status::Review))
        .unwrap();
    assert_eq!(shortage(store, "b"), Shortage::NothingLeft);
}

#[test]
fn what_was_abandoned_is_ready_again() {
    let clock = Arc::new(FakeClock::booted("boot"));
    let world = World::with(clock.clone());
    let section = world.store.add_section("S").unwrap().id;
    let one = world
        .store
        .add_task(&new_task("One", Some(&section)))
        .unwrap()
        .id;
    assert_eq!(next(&world.store, "a"), Some(one.clone()));
    assert_eq!(next(&world.store, "a"), None, "it has it already");
    assert_eq!(next(&world.store, "b"), None);
    clock.pass(2 * HOUR);
    assert_eq!(
        next(&world.store, "b"),
        Some(one.clone()),
        "its time ran out"
    );
    world.force(&format!("task:{one}"));
    world.force(&format!("section:{section}"));
    assert_eq!(next(&world.store, "c"), Some(one), "it was forced");
}

#[test]
fn a_runner_that_comes_back_gets_its_own_task_whose_time_ran_out() {
    let clock = Arc::new(FakeClock::booted("boot"));
    let world = World::with(clock.clone());
    let one = world.store.add_task(&new_task("One", None)).unwrap().id;
    assert_eq!(next(&world.store, "a"), Some(one.clone()));
    clock.pass(2 * HOUR);
    assert_eq!(next(&world.store, "a"), Some(one));
}

#[test]
fn a_waiter_whose_own_task_ran_out_does_not_keep_it_from_those_behind() {
    let clock = Arc::new(FakeClock::booted("boot"));
    let world = World::with(clock.clone());
    let one = world.store.add_task(&new_task("One", None)).unwrap().id;
    assert_eq!(next(&world.store, "a"), Some(one.clone()));
    let (first, second) = (world.other(), world.other());
    let (a, b) = (waiting(&first, "a"), waiting(&second, "b"));
    clock.pass(HOUR + 3590 * SECOND);
    let mut got = None;
    for _ in 0..20 {
        got = found(first.next(&a).unwrap()).or(found(second.next(&b).unwrap()));
        if got.is_some() {
            break;
        }
        clock.pass(SECOND);
    }
    assert_eq!(got, Some(one));
}

#[test]
fn what_failed_is_tried_again_when_it_is_due_whatever_the_clock_does() {
    let clock = Arc::new(FakeClock::booted("boot"));
    let world = World::with(clock.clone());
    let store = &world.store;
    let one = store.add_task(&new_task("One", None)).unwrap().id;
    for (attempt, pause) in [
        (1, 1),
        (2, 2),
        (3, 4),
        (4, 8),
        (5, 16),
        (6, 32),
        (7, 60),
        (8, 60),
    ] {
        assert_eq!(next(store, "a"), Some(one.clone()), "attempt {attempt}");
        let error = format!("attempt {attempt}");
        store
            .change(&one, &name("a"), &Change::Retry { error })
            .unwrap();
        clock.pass(Duration::from_millis(pause * 1000 - 1));
        let early = want(store.next(&runner("b")).unwrap());
        assert!(
            matches!(early.shortage, Shortage::Later { .. }),
            "{early:?}"
        );
        assert!(
            early.until.unwrap() <= Duration::from_millis(1),
            "{early:?}"
        );
        clock.pass(Duration::from_millis(1));
    }
    assert_eq!(next(store, "a"), Some(one.clone()));
    let retry = Change::Retry { error: "no".into() };
    store.change(&one, &name("a"), &retry).unwrap();
    // A clock that was a year ahead when it failed, and is put right.
    clock.jump_back(365 * 24 * HOUR);
    assert_eq!(next(store, "a"), Some(one.clone()), "not in a year");
    store.change(&one, &name("a"), &retry).unwrap();
    clock.jump_forward(HOUR);
    assert_eq!(next(store, "a"), Some(one.clone()), "it is time");
    let known = store.find_task(&one).unwrap();
    assert_eq!(
        (known.attempts, known.last_error.as_deref()),
        (10, Some("no"))
    );
    // Taken up again by hand, it begins anew.
    store
        .change(&one, &name("a"), &Change::To(Status::Pending))
        .unwrap();
    assert_eq!(store.find_task(&one).unwrap().attempts, 0);
}

#[test]
fn a_jump_of_the_wall_clock_makes_nothing_abandoned() {
    let clock = Arc::new(FakeClock::booted("boot"));
    let world = World::with(clock.clone());
    world.store.add_task(&new_task("One", None)).unwrap();
    assert!(next(&world.store, "a").is_some());
    clock.jump_forward(48 * HOUR);
    assert_eq!(shortage(&world.store, "b"), Shortage::Locked);
    clock.jump_back(96 * HOUR);
    assert_eq!(shortage(&world.store, "b"), Shortage::Locked);
    clock.pass(HOUR);
    assert!(next(&world.store, "b").is_some());
}

#[test]
fn a_completed_task_in_backoff_puts_nobody_off() {
    let clock = Arc::new(FakeClock::booted("boot"));
    let world = World::with(clock.clone());
    let one = world.store.add_task(&new_task("One", None)).unwrap().id;
    assert!(next(&world.store, "a").is_some());
    let retry = Change::Retry { error: "no".into() };
    world.store.change(&one, &name("a"), &retry).unwrap();
    world.sql("UPDATE tasks SET status = 'completed'");
    assert_eq!(shortage(&world.store, "b"), Shortage::NothingLeft);
}

#[test]
fn a_runner_that_finds_nothing_gives_back_what_it_does_not_work_in() {
    let world = World::new();
    let store = &world.store;
    let sections: Vec<String> = ["S", "T"]
        .map(|name| store.add_section(name).unwrap().id)
        .to_vec();
    let ids: Vec<String> = sections
        .iter()
        .map(|section| store.add_task(&new_task("One", Some(section))).unwrap().id)
        .collect();
    let after = NewTask {
        depends_on: vec![store.add_task(&new_task("Other", None)).unwrap().id],
        ..new_task("Later", Some(&sections[0]))
    };
    store.add_task(&after).unwrap();
    start(store, &ids[0], &runner("a"));
    start(store, &ids[1], &runner("a"));
    start(store, &after.depends_on[0], &runner("b"));
    finish(store, &ids[0], "a");
    let held = || -> Vec<bool> {
        let keys = sections.iter().map(|section| format!("section:{section}"));
        keys.map(|key| world.is_held(&key)).collect()
    };
    assert_eq!(held(), [true, true]);
    assert_eq!(next(store, "b"), None);
    assert_eq!(held(), [true, true]);
    assert_eq!(next(store, "a"), None);
    assert_eq!(held(), [false, true]);
}

#[test]
fn a_runner_that_goes_on_elsewhere_gives_back_what_it_does_not_work_in() {
    let world = World::new();
    let store = &world.store;
    let section = store.add_section("S").unwrap().id;
    let one = store.add_task(&new_task("One", Some(&section))).unwrap().id;
    start(store, &one, &runner("a"));
    let after = NewTask {
        depends_on: vec![store.add_task(&new_task("Other", None)).unwrap().id],
        ..new_task("Later", Some(&section))
    };
    store.add_task(&after).unwrap();
    finish(store, &one, "a");
    assert!(world.is_held(&format!("section:{section}")));
    assert_eq!(next(store, "a"), Some(after.depends_on[0].clone()));
    assert!(!world.is_held(&format!("section:{section}")));
}

/// A section that somebody has, with more ready tasks than are walked, all better than the rest.
fn crowded(world: &World) {
    world.sql(
        "INSERT INTO sections (id, name) VALUES ('big', 'Big'), ('s1', 'S1'), ('s2', 'S2'), ('s3', 'S3');
         WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 700)
         INSERT INTO tasks (id, title, section_id, priority, created_at, updated_at)
         SELECT 'big' || i, 'x', 'big', 8, printf('2026-01-01T00:00:00.%03dZ', i), '2026-01-01T00:00:00.000Z' FROM n;",
    );
    start(&world.store, "big1", &runner("holder"));
}

/// Ten seconds later for each.
fn add(world: &World, id: &str, section: &str, priority: u8, second: u8) {
    world.sql(&format!(
        "INSERT INTO tasks (id, title, section_id, priority, created_at, updated_at) VALUES
         ('{id}', 'x', nullif('{section}', ''), {priority}, '2026-02-01T00:00:{second:02}.000Z', '2026-02-01T00:00:00.000Z')"
    ));
}

#[test]
fn a_crowd_of_locked_tasks_hides_nothing_behind_it() {
    let world = World::new();
    crowded(&world);
    let store = &world.store;
    assert_eq!(shortage(store, "b"), Shortage::Locked);
    add(&world, "late", "s1", 4, 40);
    add(&world, "low", "s2", 3, 10);
    add(&world, "early", "s3", 4, 20);
    add(&world, "loose", "", 4, 30);
    add(&world, "worse", "s3", 4, 50);
    let order: Vec<Option<String>> = ["a", "b", "c", "d"].map(|who| next(store, who)).to_vec();
    let wanted = ["early", "loose", "late", "low"].map(|id| Some(id.to_owned()));
    assert_eq!(order, wanted);
    assert_eq!(shortage(store, "e"), Shortage::Locked);
    assert_eq!(next(store, "a").as_deref(), Some("worse"), "a has s3");
    assert_eq!(next(store, "holder").as_deref(), Some("big2"));
    // One that is locked by itself hides nothing either.
    add(&world, "held", "", 7, 1);
    add(&world, "good", "", 6, 1);
    Ask::new(&Key::parse("task:held").unwrap(), "plain").granted(store);
    assert_eq!(next(store, "f").as_deref(), Some("good"));
}

#[test]
fn behind_a_crowd_the_best_are_left_to_those_who_came_before() {
    let world = World::new();
    crowded(&world);
    let stores: Vec<SqliteStore> = (0..3).map(|_| world.other()).collect();
    let runners: Vec<Runner> = stores
        .iter()
        .zip(["w1", "w2", "w3"])
        .map(|(store, name)| waiting(store, name))
        .collect();
    for (place, (store, runner)) in stores.iter().zip(&runners).enumerate() {
        let want = want(store.next(runner).unwrap());
        assert_eq!(want.busy.place.unwrap().ahead, place);
    }
    // Two in one section count once, and one without a section by itself.
    add(&world, "t1", "s1", 5, 1);
    add(&world, "t2", "s1", 5, 2);
    add(&world, "t3", "", 5, 3);
    add(&world, "t4", "", 5, 4);
    assert_eq!(
        next(&world.store, "newcomer"),
        None,
        "three stand before it, and there are three to be had"
    );
    assert_eq!(
        found(stores[2].next(&runners[2]).unwrap()).as_deref(),
        Some("t4")
    );
    assert_eq!(next(&world.store, "newcomer"), None);
    assert_eq!(
        found(stores[1].next(&runners[1]).unwrap()).as_deref(),
        Some("t3")
    );
    assert_eq!(
        found(stores[0].next(&runners[0]).unwrap()).as_deref(),
        Some("t1")
    );
    assert_eq!(world.count("SELECT count(*) FROM tickets"), 0);
    add(&world, "t5", "s2", 5, 5);
    assert_eq!(next(&world.store, "newcomer").as_deref(), Some("t5"));
}

#[test]
fn without_a_crowd_it_is_the_same() {
    let world = World::new();
    world.sql("INSERT INTO sections (id, name) VALUES ('s1', 'S1'), ('s2', 'S2')");
    let (first, second) = (world.other(), world.other());
    let (a, b) = (waiting(&first, "a"), waiting(&second, "b"));
    let _ = want(first.next(&a).unwrap());
    let _ = want(second.next(&b).unwrap());
    add(&world, "t1", "s1", 5, 1);
    add(&world, "t2", "s1", 5, 2);
    add(&world, "t3", "s2", 5, 3);
    add(&world, "t4", "", 5, 4);
    assert_eq!(next(&world.store, "newcomer").as_deref(), Some("t4"));
    assert_eq!(found(second.next(&b).unwrap()).as_deref(), Some("t3"));
    assert_eq!(found(first.next(&a).unwrap()).as_deref(), Some("t1"));
    assert_eq!(next(&world.store, "newcomer"), None, "a has s1");
    assert_eq!(found(first.next(&a).unwrap()).as_deref(), Some("t2"));
}

#[test]
fn an_urgent_runner_overtakes_and_a_parked_one_comes_back() {
    let world = World::new();
    let (first, second, third) = (world.other(), world.other(), world.other());
    let (a, b) = (waiting(&first, "a"), waiting(&second, "b"));
    let urgent = Runner {
        priority: Priority::MAX,
        ..waiting(&third, "urgent")
    };
    let _ = want(first.next(&a).unwrap());
    let _ = want(second.next(&b).unwrap());
    first.stop_waiting(None, &a, Places::Keep).unwrap();
    let place = |want: Box<Want>| want.busy.place.unwrap();
    assert_eq!(place(want(second.next(&b).unwrap())).ahead, 0);
    let again = world.other();
    let back = place(want(again.next(&waiting(&again, "a")).unwrap()));
    assert_eq!((back.ahead, back.resumed), (0, true));
    assert_eq!(place(want(second.next(&b).unwrap())).ahead, 1);
    assert_eq!(place(want(third.next(&urgent).unwrap())).ahead, 0);
    assert_eq!(place(want(second.next(&b).unwrap())).ahead, 2);
    second.stop_waiting(None, &b, Places::Leave).unwrap();
    third.stop_waiting(None, &urgent, Places::Leave).unwrap();
    assert_eq!(world.count("SELECT count(*) FROM tickets"), 1);
}

/// Somebody who waits for any task, and must be woken by a call: it looks again only when it is
/// called, or when it was told that something is due by itself.
struct Seeker {
    store: SqliteStore,
    runner: Runner,
    want: Box<Want>,
}

/// Nobody polls here: far above what a call takes.
const CALL: Duration = Duration::from_secs(10);

impl Seeker {
    fn new(world: &World, name: &str) -> Self {
        let store = world.other();
        let runner = waiting(&store, name);
        let want = want(store.next(&runner).unwrap());
        Self {
            store,
            runner,
            want,
        }
    }

    /// Looks again without being called.
    fn look(&mut self) {
        self.want = want(self.store.next(&self.runner).unwrap());
    }

    /// Sleeps until it is called, and looks; again and again until there is a task.
    fn gets(&mut self, what: &str) -> String {
        self.gets_or_not()
            .unwrap_or_else(|| panic!("not woken by {what}"))
    }

    fn gets_or_not(&mut self) -> Option<String> {
        let key = key_of(ANY).unwrap();
        loop {
            let watched = Watched {
                key: &key,
                seen: self.want.busy.revision,
                ahead: self.want.watch.iter().collect(),
            };
            let due = self.want.until.map(|due| due + Duration::from_millis(1));
            let timeout = due.map_or(CALL, |due| due.min(CALL));
            let waited = self.store.wait(&watched, timeout).unwrap();
            if waited == Waited::TimedOut && timeout == CALL {
                return None;
            }
            match self.store.next(&self.runner).unwrap() {
                Sought::Found(started) => return Some(started.task.id.clone()),
                Sought::None(want) => self.want = want,
                Sought::Deadlock(cycle) => panic!("{cycle}"),
            }
        }
    }

    /// Does something while it sleeps, and expects it to get this task.
    fn gets_it_by(mut self, what: &str, task: &str, act: impl FnOnce()) {
        std::thread::scope(|scope| {
            let sleeper = spawn_until_asleep(scope, || self.gets_or_not());
            act();
            let got = sleeper.join().unwrap();
            assert_eq!(got.as_deref(), Some(task), "woken by {what}");
        });
    }
}

/// A database in which nothing is to be had: one task that somebody holds.
fn nothing_to_be_had() -> (World, String, String) {
    let world = World::new();
    let section = world.store.add_section("S").unwrap().id;
    let held = world
        .store
        .add_task(&new_task("Held", Some(&section)))
        .unwrap()
        .id;
    start(&world.store, &held, &runner("holder"));
    (world, section, held)
}

#[test]
fn a_seeker_is_woken_by_a_task_that_is_added_and_by_one_that_is_imported() {
    let (world, ..) = nothing_to_be_had();
    let seeker = Seeker::new(&world, "w");
    let line = r#"{"id":"t1","title":"One"}"#;
    seeker.gets_it_by("an import", "t1", || {
        world.store.import(line).unwrap();
    });
    let mut seeker = Seeker::new(&world, "w2");
    std::thread::scope(|scope| {
        let sleeper = spawn_until_asleep(scope, || seeker.gets("an added task"));
        let added = world.store.add_task(&new_task("Two", None)).unwrap();
        assert_eq!(sleeper.join().unwrap(), added.id);
    });
}

#[test]
fn a_seeker_is_woken_when_a_dependency_is_done_or_dropped() {
    for drop in [false, true] {
        let (world, _, held) = nothing_to_be_had();
        let after = NewTask {
            depends_on: vec![held.clone()],
            ..new_task("After", None)
        };
        let after = world.store.add_task(&after).unwrap().id;
        let seeker = Seeker::new(&world, "w");
        seeker.gets_it_by("a dependency", &after, || {
            if drop {
                let edit = Edit {
                    drop_dependencies: vec![held.clone()],
                    ..Edit::default()
                };
                world.store.edit_task(&after, &edit).unwrap();
            } else {
                finish(&world.store, &held, "holder");
            }
        });
    }
}

#[test]
fn a_seeker_is_woken_when_a_section_is_given_back_or_forced() {
    for forced in [false, true] {
        let (world, section, held) = nothing_to_be_had();
        let other = world
            .store
            .add_task(&new_task("Other", Some(&section)))
            .unwrap()
            .id;
        let seeker = Seeker::new(&world, "w");
        let got = if forced { &other } else { &held };
        seeker.gets_it_by("a section", got, || {
            if forced {
                world.force(&format!("section:{section}"));
            } else {
                world
                    .store
                    .change(&held, &name("holder"), &Change::GiveBack)
                    .unwrap();
            }
        });
    }
}

#[test]
fn a_seeker_is_woken_when_a_task_is_released_forced_or_reaped() {
    for how in ["release", "force", "reap"] {
        let (world, ..) = nothing_to_be_had();
        let one = world.store.add_task(&new_task("One", None)).unwrap().id;
        let key = Key::parse(format!("task:{one}")).unwrap();
        let lease = Ask::new(&key, "plain").detached().granted(&world.store);
        let mut seeker = Seeker::new(&world, "w");
        if how == "reap" {
            // What is over by the clock of the reaper only.
            seeker.want.until = None;
        }
        seeker.gets_it_by(how, &one, || match how {
            "release" => {
                let _ = world.store.release(&lease.grant()).unwrap();
            }
            "force" => world.force(key.as_str()),
            _ => {
                world.sql("UPDATE task_locks SET expires_at = '2020-01-01T00:00:00.000Z' WHERE runner_id = 'plain'");
                let reaped = world.store.reap(Reap::Free).unwrap();
                assert_eq!(reaped.len(), 1, "{reaped:?}");
            }
        });
    }
}

#[test]
fn a_seeker_wakes_by_itself_when_a_lease_runs_out_or_a_pause_is_over() {
    let world = World::new();
    let one = world.store.add_task(&new_task("One", None)).unwrap().id;
    let brief = Runner {
        task_ttl: Duration::from_millis(400),
        section_ttl: Duration::from_millis(400),
        ..runner("brief")
    };
    start(&world.store, &one, &brief);
    assert_eq!(Seeker::new(&world, "w").gets("expiry"), one);
    let retry = Change::Retry { error: "no".into() };
    world.store.change(&one, &name("w"), &retry).unwrap();
    assert_eq!(Seeker::new(&world, "w2").gets("the end of a pause"), one);
}

#[test]
fn a_seeker_that_has_the_section_is_woken_though_another_stands_before_it() {
    for how in [
        "added",
        "dependency elsewhere",
        "release",
        "force",
        "change",
    ] {
        let (world, section, held) = nothing_to_be_had();
        let elsewhere = world
            .store
            .add_task(&new_task("Elsewhere", None))
            .unwrap()
            .id;
        start(&world.store, &elsewhere, &runner("x"));
        let mut task = new_task("Mine", Some(&section));
        if how == "dependency elsewhere" {
            task.depends_on = vec![elsewhere.clone()];
        }
        let mine = (how != "added").then(|| world.store.add_task(&task).unwrap().id);
        let key = mine
            .as_ref()
            .map(|id| Key::parse(format!("task:{id}")).unwrap());
        let plain = key
            .as_ref()
            .filter(|_| how != "dependency elsewhere")
            .map(|key| Ask::new(key, "plain").detached().granted(&world.store));
        let _first = Seeker::new(&world, "first");
        let mut seeker = Seeker::new(&world, "holder");
        std::thread::scope(|scope| {
            let sleeper = spawn_until_asleep(scope, || seeker.gets_or_not());
            let wanted = match how {
                "added" => world.store.add_task(&task).unwrap().id,
                "dependency elsewhere" => {
                    finish(&world.store, &elsewhere, "x");
                    mine.unwrap()
                }
                "release" => {
                    let _ = world.store.release(&plain.unwrap().grant()).unwrap();
                    mine.unwrap()
                }
                "force" => {
                    world.force(key.unwrap().as_str());
                    mine.unwrap()
                }
                _ => {
                    let id = mine.unwrap();
                    let pending = Change::To(Status::Pending);
                    world.store.change(&id, &name("plain"), &pending).unwrap();
                    id
                }
            };
            assert_eq!(sleeper.join().unwrap(), Some(wanted), "woken by: {how}");
        });
        assert!(world.is_held(&format!("task:{held}")));
    }
}

#[test]
fn a_seeker_behind_one_that_takes_a_task_is_woken_for_the_next() {
    let (world, ..) = nothing_to_be_had();
    let mut seekers: Vec<Seeker> = (0..3)
        .map(|number| Seeker::new(&world, &format!("w{number}")))
        .collect();
    std::thread::scope(|scope| {
        let sleepers: Vec<_> = seekers
            .iter_mut()
            .map(|seeker| spawn_until_asleep(scope, || seeker.gets("the one before")))
            .collect();
        // One call for all three.
        world
            .store
            .import("{\"id\":\"t1\",\"title\":\"A\"}\n{\"id\":\"t2\",\"title\":\"B\"}\n{\"id\":\"t3\",\"title\":\"C\"}")
            .unwrap();
        let mut got: Vec<String> = sleepers
            .into_iter()
            .map(|sleeper| sleeper.join().unwrap())
            .collect();
        got.sort();
        assert_eq!(got, ["t1", "t2", "t3"]);
    });
}

/// One change that makes two ready calls the first, and the first calls the second.
#[test]
fn whoever_takes_a_task_calls_the_next() {
    let (world, _, held) = nothing_to_be_had();
    for title in ["After", "After too"] {
        let after = NewTask {
            depends_on: vec![held.clone()],
            ..new_task(title, None)
        };
        world.store.add_task(&after).unwrap();
    }
    let mut seekers = [Seeker::new(&world, "w1"), Seeker::new(&world, "w2")];
    std::thread::scope(|scope| {
        let sleepers: Vec<_> = seekers
            .iter_mut()
            .map(|seeker| spawn_until_asleep(scope, || seeker.gets("the one before")))
            .collect();
        finish(&world.store, &held, "holder");
        let got: BTreeSet<String> = sleepers
            .into_iter()
            .map(|sleeper| sleeper.join().unwrap())
            .collect();
        assert_eq!(got.len(), 2);
    });
}

#[test]
fn whoever_waits_for_a_certain_task_is_woken_when_its_section_or_itself_is_free() {
    for at_section in [true, false] {
        let (world, section, held) = nothing_to_be_had();
        let other = world
            .store
            .add_task(&new_task("Other", Some(&section)))
            .unwrap()
            .id;
        let wanted = if at_section { &other } else { &held };
        if !at_section {
            world.force(&format!("section:{section}"));
        }
        let store = world.other();
        let a = waiting(&store, "a");
        let Starting::Busy { key, busy } = store.start(wanted, &a).unwrap() else {
            panic!("it is held");
        };
        assert_eq!(key.as_str().starts_with("section:"), at_section);
        std::thread::scope(|scope| {
            let sleeper =
                spawn_until_asleep(scope, || store.wait(&busy.watch(&key), CALL).unwrap());
            let back = Change::GiveBack;
            world.store.change(&held, &name("holder"), &back).unwrap();
            assert_eq!(sleeper.join().unwrap(), Waited::Changed);
        });
        start(&store, wanted, &a);
    }
}

#[test]
fn whoever_waits_behind_one_that_was_called_and_leaves_is_woken() {
    let (world, section, held) = nothing_to_be_had();
    let other = world
        .store
        .add_task(&new_task("Other", Some(&section)))
        .unwrap()
        .id;
    let (first, second) = (world.other(), world.other());
    let (a, b) = (waiting(&first, "a"), waiting(&second, "b"));
    let _ = first.start(&other, &a).unwrap();
    let _ = second.start(&other, &b).unwrap();
    world
        .store
        .change(&held, &name("holder"), &Change::GiveBack)
        .unwrap();
    let Starting::Busy { key, busy } = second.start(&other, &b).unwrap() else {
        panic!("the first comes first");
    };
    std::thread::scope(|scope| {
        let sleeper = spawn_until_asleep(scope, || second.wait(&busy.watch(&key), CALL).unwrap());
        first.stop_waiting(Some(&other), &a, Places::Leave).unwrap();
        assert_eq!(sleeper.join().unwrap(), Waited::Changed);
    });
    start(&second, &other, &b);
}

#[test]
fn a_seeker_is_woken_when_the_one_before_it_leaves_with_something_to_be_had() {
    let (world, ..) = nothing_to_be_had();
    let mut first = Seeker::new(&world, "first");
    let second = Seeker::new(&world, "second");
    first.look();
    second.gets_it_by("the one before, that left", "t1", || {
        world.sql("INSERT INTO tasks (id, title) VALUES ('t1', 'One')");
        first
            .store
            .stop_waiting(None, &first.runner, Places::Leave)
            .unwrap();
    });
}

/// Not a test: a process that begins a task, or waits for one, until it is killed.
#[test]
fn worker() {
    let Some(job) = process::job() else { return };
    let mut words = job.split('\n');
    let (path, verb, id) = (
        words.next().unwrap(),
        words.next().unwrap(),
        words.next().unwrap(),
    );
    let store = SqliteStore::open(path.as_ref(), Options::default()).unwrap();
    let mut runner = waiting(&store, &format!("process {}", std::process::id()));
    runner.holder.binding = store.this_process().unwrap();
    match verb {
        "start" => {
            let _ = store.start(id, &runner).unwrap();
        }
        _ => {
            let _ = store.next(&runner).unwrap();
        }
    }
    process::report("done");
    loop {
        std::thread::park();
    }
}

fn process(world: &World, verb: &str, id: &str) -> Process {
    let job = format!("{}\n{verb}\n{id}", world.path().display());
    let process = Process::start("worker", &job);
    assert_eq!(process.report(), "done");
    process
}

#[test]
fn a_seeker_is_woken_when_the_holder_of_a_task_is_killed() {
    let world = World::new();
    let section = world.store.add_section("S").unwrap().id;
    let one = world
        .store
        .add_task(&new_task("One", Some(&section)))
        .unwrap()
        .id;
    let mut holder = process(&world, "start", &one);
    let seeker = Seeker::new(&world, "w");
    seeker.gets_it_by("a death", &one, || holder.kill_and_leave());
}

#[test]
fn a_seeker_is_woken_when_the_seeker_before_it_is_killed() {
    let (world, ..) = nothing_to_be_had();
    let mut first = process(&world, "next", "");
    let second = Seeker::new(&world, "second");
    second.gets_it_by("the death of the one before", "t1", || {
        world.sql("INSERT INTO tasks (id, title) VALUES ('t1', 'One')");
        first.kill_and_leave();
    });
}

#[test]
fn a_seeker_is_woken_when_somebody_is_killed_who_was_called_to_the_section() {
    let (world, section, held) = nothing_to_be_had();
    let other = world
        .store
        .add_task(&new_task("Other", Some(&section)))
        .unwrap()
        .id;
    let mut called = process(&world, "start", &other);
    let mut seeker = Seeker::new(&world, "w");
    let (tell, thread) = channel();
    std::thread::scope(|scope| {
        let sleeper = spawn_until_asleep(scope, || {
            tell.send(rustix::thread::gettid()).unwrap();
            seeker.gets_or_not()
        });
        world
            .store
            .change(&held, &name("holder"), &Change::GiveBack)
            .unwrap();
        // The seeker was woken too, and saw that another comes first.
        until_asleep(thread.recv().unwrap());
        called.kill_and_leave();
        assert_eq!(sleeper.join().unwrap(), Some(held));
    });
}

#[test]
fn whoever_waits_for_a_task_is_woken_when_it_is_moved_to_a_free_section() {
    let (world, section, _) = nothing_to_be_had();
    let free = world.store.add_section("Free").unwrap().id;
    let other = world
        .store
        .add_task(&new_task("Other", Some(&section)))
        .unwrap()
        .id;
    let store = world.other();
    let a = waiting(&store, "a");
    let Starting::Busy { key, busy } = store.start(&other, &a).unwrap() else {
        panic!("the section is held");
    };
    std::thread::scope(|scope| {
        let sleeper = spawn_until_asleep(scope, || store.wait(&busy.watch(&key), CALL).unwrap());
        let edit = Edit {
            section: Some(free),
            ..Edit::default()
        };
        world.store.edit_task(&other, &edit).unwrap();
        assert_eq!(sleeper.join().unwrap(), Waited::Changed);
    });
}

/// Each task that is worked on has two threads that keep its leases, and all of a process share one
/// bell: whoever wants to wake up after so long must not begin anew when another gives up.
#[test]
fn a_wait_ends_in_time_though_another_thread_waits_beside_it() {
    let world = World::new();
    let (shared, alone) = (world.other(), world.other());
    let key = Key::parse("build").unwrap();
    let (tell, ends) = channel();
    let wait = |store: &SqliteStore, name: &'static str, millis: u64| {
        store.this_process().unwrap();
        let watched = Watched {
            key: &key,
            seen: store.inspect(&key).unwrap().revision,
            ahead: vec![],
        };
        let waited = store.wait(&watched, Duration::from_millis(millis)).unwrap();
        assert_eq!(waited, Waited::TimedOut);
        tell.send(name).unwrap();
    };
    std::thread::scope(|scope| {
        spawn_until_asleep(scope, || wait(&shared, "listens first", 900));
        scope.spawn(|| wait(&shared, "beside it", 1000));
        // By itself, and for much longer.
        scope.spawn(|| wait(&alone, "alone", 1700));
    });
    let order: Vec<&str> = ends.try_iter().collect();
    assert_eq!(order, ["listens first", "beside it", "alone"]);
}

/// Fifty at once: each task is given once, and each is done.
#[test]
fn fifty_runners_share_a_thousand_tasks() {
    let seed = Chance::seed();
    println!("seed {seed}");
    let mut chance = Chance::from_seed(seed);
    let world = World::new();
    let mut lines = String::new();
    for task in 0..1000_usize {
        let before: Vec<String> = (0..chance.below(3))
            .filter(|_| task > 0)
            .map(|_| format!("\"t{}\"", chance.index(task)))
            .collect();
        let line = format!(
            "{{\"id\":\"t{task}\",\"title\":\"Task {task}\",\"section\":\"Section {}\",\"priority\":{},\"dependsOn\":[{}]}}\n",
            task % 20,
            chance.below(10),
            before.join(",")
        );
        lines.push_str(&line);
    }
    world.store.import(&lines).unwrap();
    let threads: Vec<Vec<String>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..50)
            .map(|number| {
                let world = &world;
                scope.spawn(move || {
                    let store = world.other();
                    let runner = waiting(&store, &format!("runner {number}"));
                    work_until_nothing_is_left(&store, &runner)
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .collect()
    });
    let mut given: BTreeMap<String, u32> = BTreeMap::new();
    for id in threads.into_iter().flatten() {
        *given.entry(id).or_default() += 1;
    }
    assert_eq!(given.len(), 1000);
    assert!(given.values().all(|&times| times == 1), "{given:?}");
    let query = TaskQuery {
        status: Some(Status::Completed),
        ..TaskQuery::default()
    };
    assert_eq!(world.store.tasks(&query).unwrap().len(), 1000);
    for table in ["leases", "tickets", "task_locks", "section_locks"] {
        assert_eq!(
            world.count(&format!("SELECT count(*) FROM {table}")),
            0,
            "{table}"
        );
    }
}

/// What the runner was given.
fn work_until_nothing_is_left(store: &SqliteStore, runner: &Runner) -> Vec<String> {
    let key = key_of(ANY).unwrap();
    let mut given = Vec::new();
    loop {
        match store.next(runner).unwrap() {
            Sought::Found(started) => {
                let proof = Proof::Token(started.lease.token);
                let done = Change::To(Status::Completed);
                store.change(&started.task.id, &proof, &done).unwrap();
                given.push(started.task.id);
            }
            Sought::None(want) if want.shortage == Shortage::Locked => {
                let watched = Watched {
                    key: &key,
                    seen: want.busy.revision,
                    ahead: want.watch.iter().collect(),
                };
                let _ = store.wait(&watched, 5 * SECOND).unwrap();
            }
            Sought::Deadlock(cycle) => panic!("{cycle}"),
            Sought::None(want) => {
                assert_eq!(want.shortage, Shortage::NothingLeft);
                store.stop_waiting(None, runner, Places::Leave).unwrap();
                return given;
            }
        }
    }
}

#[test]
fn no_query_about_tasks_looks_at_all_of_them() {
    let world = World::new();
    let ready = "status IN ('pending', 'in_progress') AND blockers = 0 AND not_before IS NULL AND elsewhere = 0";
    let open = "status IN ('pending', 'in_progress') AND elsewhere = 0";
    let joined = "FROM tasks t LEFT JOIN sections s ON s.id = t.section_id";
    let queries = [
        format!("SELECT id, section_id, priority, created_at FROM tasks INDEXED BY tasks_ready WHERE {ready} ORDER BY priority DESC, created_at"),
        format!(
            "WITH RECURSIVE section(id) AS (SELECT (SELECT section_id FROM tasks INDEXED BY tasks_ready_in WHERE {ready}
             AND section_id > '' ORDER BY section_id LIMIT 1) UNION ALL SELECT (SELECT section_id FROM tasks INDEXED BY
             tasks_ready_in WHERE {ready} AND section_id > section.id ORDER BY section_id LIMIT 1) FROM section
             WHERE section.id IS NOT NULL) SELECT id, section_id, priority, created_at FROM tasks WHERE rowid IN (
             SELECT (SELECT rowid FROM tasks INDEXED BY tasks_ready_in WHERE {ready} AND section_id = section.id
             ORDER BY priority DESC, created_at LIMIT 1) FROM section WHERE section.id IS NOT NULL)"
        ),
        format!("SELECT id FROM tasks INDEXED BY tasks_ready_in WHERE {ready} AND section_id IS ?1 ORDER BY priority DESC, created_at"),
        "UPDATE tasks SET not_before = NULL WHERE not_before IS NOT NULL AND (not_before <= ?1 OR not_before > ?2)".into(),
        "SELECT min(not_before) FROM tasks WHERE not_before IS NOT NULL".into(),
        format!("SELECT 1 FROM tasks WHERE {open} LIMIT 1"),
        format!("SELECT 1 FROM tasks WHERE section_id = ?1 AND {open} LIMIT 1"),
        "SELECT 1 FROM tasks WHERE section_id = ?1 AND status = 'in_progress' AND runner = ?2 LIMIT 1".into(),
        format!("SELECT t.id, s.name {joined} WHERE t.status = ?1 ORDER BY t.priority DESC, t.created_at LIMIT 50"),
        format!("SELECT t.id, s.name {joined} WHERE t.status = ?1 AND t.section_id = ?2 ORDER BY t.priority DESC, t.created_at LIMIT 50"),
        format!("SELECT t.id, s.name {joined} WHERE t.title = ?1 COLLATE NOCASE ORDER BY t.created_at LIMIT 20"),
        format!("SELECT t.id, s.name {joined} WHERE t.id >= ?1 AND t.id < ?1 || char(1114111) ORDER BY t.id LIMIT 20"),
        format!("SELECT t.id, s.name {joined} WHERE t.id = ?1"),
        format!("SELECT t.id, s.name {joined} WHERE t.id IN (SELECT task_id FROM task_dependencies WHERE depends_on = ?1) ORDER BY t.created_at, t.id"),
        format!("SELECT t.id, s.name {joined} WHERE t.id IN (SELECT depends_on FROM task_dependencies WHERE task_id = ?1) AND t.status NOT IN ('completed', 'skipped')"),
    ];
    let db = Connection::open(world.path()).unwrap();
    for query in queries {
        let mut statement = db.prepare(&format!("EXPLAIN QUERY PLAN {query}")).unwrap();
        let blanks = vec![rusqlite::types::Null; statement.parameter_count()];
        let plan: Vec<String> = statement
            .query_map(rusqlite::params_from_iter(blanks), |row| row.get(3))
            .unwrap()
            .map(Result::unwrap)
            .collect();
        let small = |step: &str| {
            ["tasks_ready", "tasks_later"]
                .iter()
                .any(|index| step.contains(&format!("INDEX {index}")))
        };
        let scans = |step: &&String| {
            step.starts_with("SCAN tasks") && !small(step) || step.starts_with("SCAN t ")
        };
        assert_eq!(plan.iter().find(scans), None, "{query}: {plan:#?}");
        let in_order = query.contains("LIMIT 50") || query.contains("tasks_ready");
        let sorts = plan.iter().any(|step| step.contains("TEMP B-TREE"));
        assert!(!in_order || !sorts, "{query}: {plan:#?}");
    }
}
