//! The best task that is ready: which one, for whom, and who is woken when there is one.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rusqlite::Connection;
use tempfile::TempDir;
use tenure_core::{
    Acquired, Binding, Busy, Clock, Holder, HolderId, Key, Patience, Priority, Reap, Records,
    Store, Waited, Watched,
};
use tenure_host::HostClock;
use tenure_sqlite::{SqliteOptions, SqliteStore};
use tenure_tasks::{
    ANY, Change, Edit, NewTask, Proof, Runner, Shortage, Started, Status, TaskQuery,
    TaskStore as _, Withdrawal, key_of,
};
use tenure_testkit::limit::within_limit;
use tenure_testkit::soon;
use tenure_testkit::{Ask, Chance, FakeClock, Process, limit, process};

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
        let _ = self.store.force(&key, None, &admin, None, soon()).unwrap();
    }

    fn is_held(&self, key: &str) -> bool {
        let found = self
            .store
            .inspect(&Key::parse(key).unwrap(), soon())
            .unwrap();
        found
            .lease()
            .is_some_and(|(_, verdict)| verdict.ended().is_none())
    }
}

fn open(path: &std::path::Path, clock: &Arc<dyn Clock>) -> SqliteStore {
    let options = SqliteOptions {
        clock: Arc::clone(clock),
        ..SqliteOptions::default()
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
        reopens: true,
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

fn found(answer: Acquired<Started>) -> Option<String> {
    match answer {
        Acquired::Granted(started) => Some(started.task.id.clone()),
        _ => None,
    }
}

fn next(store: &SqliteStore, name: &str) -> Option<String> {
    found(store.next(&runner(name), soon()).unwrap())
}

fn want(answer: Acquired<Started>) -> Box<Busy> {
    match answer {
        Acquired::Busy(want) => want,
        other => panic!("there should be none: {other:?}"),
    }
}

fn shortage(store: &SqliteStore, name: &str) -> Shortage {
    want(store.next(&runner(name), soon()).unwrap())
        .shortage
        .unwrap()
}

fn start(store: &SqliteStore, id: &str, runner: &Runner) {
    let answer = store.start(id, runner, soon()).unwrap();
    assert!(matches!(answer, Acquired::Granted(_)), "{answer:?}");
}

fn finish(store: &SqliteStore, id: &str, by: &str) {
    store
        .change(
            id,
            &name(by),
            &Change::To(Status::Completed),
            &Edit::default(),
            soon(),
        )
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
fn each_shortage_is_reported() {
    let clock = Arc::new(FakeClock::booted("boot"));
    let world = World::with(clock.clone());
    let store = &world.store;
    assert_eq!(shortage(store, "a"), Shortage::NothingLeft);
    let one = store.add_task(&new_task("One", None), soon()).unwrap().id;
    let two = store
        .add_task(
            &NewTask {
                depends_on: vec![one.clone()],
                ..new_task("Two", None)
            },
            soon(),
        )
        .unwrap()
        .id;
    assert_eq!(next(store, "a"), Some(one.clone()));
    assert_eq!(shortage(store, "b"), Shortage::Locked);
    let retry = Change::Retry { error: "no".into() };
    store
        .change(&one, &name("a"), &retry, &Edit::default(), soon())
        .unwrap();
    assert!(matches!(shortage(store, "b"), Shortage::Later { .. }));
    let failed = Change::Failed { error: "no".into() };
    store
        .change(&one, &name("a"), &failed, &Edit::default(), soon())
        .unwrap();
    assert_eq!(shortage(store, "b"), Shortage::Blocked);
    finish(store, &one, "a");
    assert_eq!(next(store, "b"), Some(two.clone()));
    store
        .change(
            &two,
            &name("b"),
            &Change::To(Status::Review),
            &Edit::default(),
            soon(),
        )
        .unwrap();
    assert_eq!(shortage(store, "b"), Shortage::NothingLeft);
}

#[test]
fn an_abandoned_task_is_ready_again() {
    let clock = Arc::new(FakeClock::booted("boot"));
    let world = World::with(clock.clone());
    let section = world.store.add_section("S", soon()).unwrap().id;
    let one = world
        .store
        .add_task(&new_task("One", Some(&section)), soon())
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
fn a_runner_that_comes_back_gets_its_own_expired_task() {
    let clock = Arc::new(FakeClock::booted("boot"));
    let world = World::with(clock.clone());
    let one = world
        .store
        .add_task(&new_task("One", None), soon())
        .unwrap()
        .id;
    assert_eq!(next(&world.store, "a"), Some(one.clone()));
    clock.pass(2 * HOUR);
    assert_eq!(next(&world.store, "a"), Some(one));
}

#[test]
fn a_waiter_whose_own_task_expired_does_not_keep_it_from_the_waiters_behind() {
    let clock = Arc::new(FakeClock::booted("boot"));
    let world = World::with(clock.clone());
    let one = world
        .store
        .add_task(&new_task("One", None), soon())
        .unwrap()
        .id;
    assert_eq!(next(&world.store, "a"), Some(one.clone()));
    let (first, second) = (world.other(), world.other());
    let (a, b) = (waiting(&first, "a"), waiting(&second, "b"));
    clock.pass(HOUR + 3590 * SECOND);
    let mut got = None;
    for _ in 0..20 {
        got = found(first.next(&a, soon()).unwrap()).or(found(second.next(&b, soon()).unwrap()));
        if got.is_some() {
            break;
        }
        clock.pass(SECOND);
    }
    assert_eq!(got, Some(one));
}

#[test]
fn a_failed_task_is_tried_again_when_its_pause_ends_whatever_the_clock_does() {
    let clock = Arc::new(FakeClock::booted("boot"));
    let world = World::with(clock.clone());
    let store = &world.store;
    let one = store.add_task(&new_task("One", None), soon()).unwrap().id;
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
            .change(
                &one,
                &name("a"),
                &Change::Retry { error },
                &Edit::default(),
                soon(),
            )
            .unwrap();
        clock.pass(Duration::from_millis(pause * 1000 - 1));
        let early = want(store.next(&runner("b"), soon()).unwrap());
        assert!(
            matches!(early.shortage, Some(Shortage::Later { .. })),
            "{early:?}"
        );
        assert!(
            early
                .look_again
                .as_ref()
                .unwrap()
                .remaining(&clock.now())
                .unwrap()
                <= Duration::from_millis(1),
            "{early:?}"
        );
        clock.pass(Duration::from_millis(1));
    }
    assert_eq!(next(store, "a"), Some(one.clone()));
    let retry = Change::Retry { error: "no".into() };
    store
        .change(&one, &name("a"), &retry, &Edit::default(), soon())
        .unwrap();
    // A clock that was a year ahead when it failed, and is put right.
    clock.jump_back(365 * 24 * HOUR);
    assert_eq!(next(store, "a"), Some(one.clone()), "not in a year");
    store
        .change(&one, &name("a"), &retry, &Edit::default(), soon())
        .unwrap();
    clock.jump_forward(HOUR);
    assert_eq!(next(store, "a"), Some(one.clone()), "it is time");
    let known = store.find_task(&one, soon()).unwrap();
    assert_eq!(
        (known.attempts, known.last_error.as_deref()),
        (10, Some("no"))
    );
    // Taken up again by hand, it begins anew.
    store
        .change(
            &one,
            &name("a"),
            &Change::To(Status::Pending),
            &Edit::default(),
            soon(),
        )
        .unwrap();
    assert_eq!(store.find_task(&one, soon()).unwrap().attempts, 0);
}

#[test]
fn a_jump_of_the_wall_clock_abandons_no_task() {
    let clock = Arc::new(FakeClock::booted("boot"));
    let world = World::with(clock.clone());
    world
        .store
        .add_task(&new_task("One", None), soon())
        .unwrap();
    assert!(next(&world.store, "a").is_some());
    clock.jump_forward(48 * HOUR);
    assert_eq!(shortage(&world.store, "b"), Shortage::Locked);
    clock.jump_back(96 * HOUR);
    assert_eq!(shortage(&world.store, "b"), Shortage::Locked);
    clock.pass(HOUR);
    assert!(next(&world.store, "b").is_some());
}

#[test]
fn a_completed_task_in_backoff_delays_no_runner() {
    let clock = Arc::new(FakeClock::booted("boot"));
    let world = World::with(clock.clone());
    let one = world
        .store
        .add_task(&new_task("One", None), soon())
        .unwrap()
        .id;
    assert!(next(&world.store, "a").is_some());
    let retry = Change::Retry { error: "no".into() };
    world
        .store
        .change(&one, &name("a"), &retry, &Edit::default(), soon())
        .unwrap();
    world.sql("UPDATE tasks SET status = 'completed'");
    assert_eq!(shortage(&world.store, "b"), Shortage::NothingLeft);
}

#[test]
fn a_runner_that_finds_no_task_releases_its_idle_sections() {
    let world = World::new();
    let store = &world.store;
    let sections: Vec<String> = ["S", "T"]
        .map(|name| store.add_section(name, soon()).unwrap().id)
        .to_vec();
    let ids: Vec<String> = sections
        .iter()
        .map(|section| {
            store
                .add_task(&new_task("One", Some(section)), soon())
                .unwrap()
                .id
        })
        .collect();
    let after = NewTask {
        depends_on: vec![store.add_task(&new_task("Other", None), soon()).unwrap().id],
        ..new_task("Later", Some(&sections[0]))
    };
    store.add_task(&after, soon()).unwrap();
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
fn a_runner_that_works_elsewhere_releases_its_idle_sections() {
    let world = World::new();
    let store = &world.store;
    let section = store.add_section("S", soon()).unwrap().id;
    let one = store
        .add_task(&new_task("One", Some(&section)), soon())
        .unwrap()
        .id;
    start(store, &one, &runner("a"));
    let after = NewTask {
        depends_on: vec![store.add_task(&new_task("Other", None), soon()).unwrap().id],
        ..new_task("Later", Some(&section))
    };
    store.add_task(&after, soon()).unwrap();
    finish(store, &one, "a");
    assert!(world.is_held(&format!("section:{section}")));
    assert_eq!(next(store, "a"), Some(after.depends_on[0].clone()));
    assert!(!world.is_held(&format!("section:{section}")));
}

/// A section that another runner holds, with more ready tasks than are walked, all better than the rest.
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
fn hundreds_of_locked_tasks_hide_no_ready_task_behind_them() {
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
fn behind_hundreds_of_locked_tasks_the_best_are_left_to_earlier_waiters() {
    let world = World::new();
    crowded(&world);
    let stores: Vec<SqliteStore> = (0..3).map(|_| world.other()).collect();
    let runners: Vec<Runner> = stores
        .iter()
        .zip(["w1", "w2", "w3"])
        .map(|(store, name)| waiting(store, name))
        .collect();
    for (place, (store, runner)) in stores.iter().zip(&runners).enumerate() {
        let want = want(store.next(runner, soon()).unwrap());
        assert_eq!(want.position.unwrap().ahead, place);
    }
    // Two in one section count once, and one without a section by itself.
    add(&world, "t1", "s1", 5, 1);
    add(&world, "t2", "s1", 5, 2);
    add(&world, "t3", "", 5, 3);
    add(&world, "t4", "", 5, 4);
    assert_eq!(
        next(&world.store, "newcomer"),
        None,
        "three waiters are before it, and three tasks are ready"
    );
    assert_eq!(
        found(stores[2].next(&runners[2], soon()).unwrap()).as_deref(),
        Some("t4")
    );
    assert_eq!(next(&world.store, "newcomer"), None);
    assert_eq!(
        found(stores[1].next(&runners[1], soon()).unwrap()).as_deref(),
        Some("t3")
    );
    assert_eq!(
        found(stores[0].next(&runners[0], soon()).unwrap()).as_deref(),
        Some("t1")
    );
    assert_eq!(world.count("SELECT count(*) FROM tickets"), 0);
    add(&world, "t5", "s2", 5, 5);
    assert_eq!(next(&world.store, "newcomer").as_deref(), Some("t5"));
}

#[test]
fn the_best_tasks_are_left_to_earlier_waiters() {
    let world = World::new();
    world.sql("INSERT INTO sections (id, name) VALUES ('s1', 'S1'), ('s2', 'S2')");
    let (first, second) = (world.other(), world.other());
    let (a, b) = (waiting(&first, "a"), waiting(&second, "b"));
    let _ = want(first.next(&a, soon()).unwrap());
    let _ = want(second.next(&b, soon()).unwrap());
    add(&world, "t1", "s1", 5, 1);
    add(&world, "t2", "s1", 5, 2);
    add(&world, "t3", "s2", 5, 3);
    add(&world, "t4", "", 5, 4);
    assert_eq!(next(&world.store, "newcomer").as_deref(), Some("t4"));
    assert_eq!(
        found(second.next(&b, soon()).unwrap()).as_deref(),
        Some("t3")
    );
    assert_eq!(
        found(first.next(&a, soon()).unwrap()).as_deref(),
        Some("t1")
    );
    assert_eq!(next(&world.store, "newcomer"), None, "a has s1");
    assert_eq!(
        found(first.next(&a, soon()).unwrap()).as_deref(),
        Some("t2")
    );
}

/// A runner that waits for any task, and must be woken: it looks again only when it is
/// called, or when it was told that something is due by itself.
struct Seeker {
    store: SqliteStore,
    runner: Runner,
    want: Box<Busy>,
    clock: Arc<dyn Clock>,
}

/// No polling here: far above what a wake-up takes.
const CALL: Duration = Duration::from_secs(10);

impl Seeker {
    fn new(world: &World, name: &str) -> Self {
        let store = world.other();
        let runner = waiting(&store, name);
        let want = want(store.next(&runner, soon()).unwrap());
        Self {
            store,
            runner,
            want,
            clock: Arc::clone(&world.clock),
        }
    }

    /// Looks again without being called.
    fn look(&mut self) {
        self.want = want(self.store.next(&self.runner, soon()).unwrap());
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
                seen: self.want.revision,
                held: None,
                others: Vec::new(),
                ahead: self.want.watch.iter().collect(),
            };
            let now = self.clock.now();
            let left = |due: &tenure_core::Deadline| due.remaining(&now).unwrap_or_default();
            let due = self.want.look_again.as_ref().map(left);
            let due = due.map(|due| due + Duration::from_millis(1));
            let timeout = due.map_or(CALL, |due| due.min(CALL));
            let waited = self.store.wait(&watched, timeout).unwrap();
            if waited == Waited::TimedOut && timeout == CALL {
                return None;
            }
            match self.store.next(&self.runner, soon()).unwrap() {
                Acquired::Granted(started) => return Some(started.task.id.clone()),
                Acquired::Busy(want) => self.want = want,
                other => panic!("{other:?}"),
            }
        }
    }

    /// Does something while it sleeps, and expects it to get this task.
    fn gets_it_by(mut self, what: &str, task: &str, act: impl FnOnce()) {
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| self.gets_or_not());
            // Until it sleeps: before that, it would notice by itself.
            std::thread::sleep(Duration::from_millis(60));
            act();
            let got = sleeper.join().unwrap();
            assert_eq!(got.as_deref(), Some(task), "woken by {what}");
        });
    }
}

/// A database without a ready task: another runner holds the only one.
fn no_task_ready() -> (World, String, String) {
    let world = World::new();
    let section = world.store.add_section("S", soon()).unwrap().id;
    let held = world
        .store
        .add_task(&new_task("Held", Some(&section)), soon())
        .unwrap()
        .id;
    start(&world.store, &held, &runner("holder"));
    (world, section, held)
}

#[test]
fn a_seeker_is_woken_when_a_section_is_given_back_or_forced() {
    for forced in [false, true] {
        let (world, section, held) = no_task_ready();
        let other = world
            .store
            .add_task(&new_task("Other", Some(&section)), soon())
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
                    .change(
                        &held,
                        &name("holder"),
                        &Change::GiveBack,
                        &Edit::default(),
                        soon(),
                    )
                    .unwrap();
            }
        });
    }
}

#[test]
fn a_seeker_is_woken_when_a_task_is_released_forced_or_reaped() {
    for how in ["release", "force", "reap"] {
        let (world, ..) = no_task_ready();
        let one = world
            .store
            .add_task(&new_task("One", None), soon())
            .unwrap()
            .id;
        let key = Key::parse(format!("task:{one}")).unwrap();
        let lease = Ask::new(&key, "plain").detached().granted(&world.store);
        let mut seeker = Seeker::new(&world, "w");
        if how == "reap" {
            // A lease that has expired by the clock of the reaper only.
            seeker.want.look_again = None;
        }
        seeker.gets_it_by(how, &one, || match how {
            "release" => {
                let _ = world.store.release(&lease.grant(), soon()).unwrap();
            }
            "force" => world.force(key.as_str()),
            _ => {
                world.sql("UPDATE task_locks SET expires_at = '2020-01-01T00:00:00.000Z' WHERE runner_id = 'plain'");
                let reaped = world.store.reap(Reap::Free, soon()).unwrap();
                assert_eq!(reaped.len(), 1, "{reaped:?}");
            }
        });
    }
}

#[test]
fn a_seeker_wakes_by_itself_when_a_lease_expires_or_a_pause_ends() {
    let world = World::new();
    let one = world
        .store
        .add_task(&new_task("One", None), soon())
        .unwrap()
        .id;
    let brief = Runner {
        task_ttl: Duration::from_millis(400),
        section_ttl: Duration::from_millis(400),
        ..runner("brief")
    };
    start(&world.store, &one, &brief);
    assert_eq!(Seeker::new(&world, "w").gets("expiry"), one);
    let retry = Change::Retry { error: "no".into() };
    world
        .store
        .change(&one, &name("w"), &retry, &Edit::default(), soon())
        .unwrap();
    assert_eq!(Seeker::new(&world, "w2").gets("the end of a pause"), one);
}

#[test]
fn a_seeker_that_holds_the_section_is_woken_although_another_is_before_it() {
    for how in [
        "added",
        "dependency elsewhere",
        "release",
        "force",
        "change",
    ] {
        let (world, section, held) = no_task_ready();
        let elsewhere = world
            .store
            .add_task(&new_task("Elsewhere", None), soon())
            .unwrap()
            .id;
        start(&world.store, &elsewhere, &runner("x"));
        let mut task = new_task("Mine", Some(&section));
        if how == "dependency elsewhere" {
            task.depends_on = vec![elsewhere.clone()];
        }
        let mine = (how != "added").then(|| world.store.add_task(&task, soon()).unwrap().id);
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
            let sleeper = scope.spawn(|| seeker.gets_or_not());
            std::thread::sleep(Duration::from_millis(60));
            let wanted = match how {
                "added" => world.store.add_task(&task, soon()).unwrap().id,
                "dependency elsewhere" => {
                    finish(&world.store, &elsewhere, "x");
                    mine.unwrap()
                }
                "release" => {
                    let _ = world
                        .store
                        .release(&plain.unwrap().grant(), soon())
                        .unwrap();
                    mine.unwrap()
                }
                "force" => {
                    world.force(key.unwrap().as_str());
                    mine.unwrap()
                }
                _ => {
                    let id = mine.unwrap();
                    let pending = Change::To(Status::Pending);
                    world
                        .store
                        .change(&id, &name("plain"), &pending, &Edit::default(), soon())
                        .unwrap();
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
    let (world, ..) = no_task_ready();
    let mut seekers: Vec<Seeker> = (0..3)
        .map(|number| Seeker::new(&world, &format!("w{number}")))
        .collect();
    std::thread::scope(|scope| {
        let sleepers: Vec<_> = seekers
            .iter_mut()
            .map(|seeker| scope.spawn(|| seeker.gets("the one before")))
            .collect();
        std::thread::sleep(Duration::from_millis(60));
        // One call for all three.
        world
            .store
            .import("{\"id\":\"t1\",\"title\":\"A\"}\n{\"id\":\"t2\",\"title\":\"B\"}\n{\"id\":\"t3\",\"title\":\"C\"}", soon())
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
fn a_runner_that_takes_a_task_wakes_the_next_waiter() {
    let (world, _, held) = no_task_ready();
    for title in ["After", "After too"] {
        let after = NewTask {
            depends_on: vec![held.clone()],
            ..new_task(title, None)
        };
        world.store.add_task(&after, soon()).unwrap();
    }
    let mut seekers = [Seeker::new(&world, "w1"), Seeker::new(&world, "w2")];
    std::thread::scope(|scope| {
        let sleepers: Vec<_> = seekers
            .iter_mut()
            .map(|seeker| scope.spawn(|| seeker.gets("the one before")))
            .collect();
        std::thread::sleep(Duration::from_millis(60));
        finish(&world.store, &held, "holder");
        let got: BTreeSet<String> = sleepers
            .into_iter()
            .map(|sleeper| sleeper.join().unwrap())
            .collect();
        assert_eq!(got.len(), 2);
    });
}

#[test]
fn a_waiter_for_one_task_is_woken_when_the_task_or_its_section_is_free() {
    for at_section in [true, false] {
        let (world, section, held) = no_task_ready();
        let other = world
            .store
            .add_task(&new_task("Other", Some(&section)), soon())
            .unwrap()
            .id;
        let wanted = if at_section { &other } else { &held };
        if !at_section {
            world.force(&format!("section:{section}"));
        }
        let store = world.other();
        let a = waiting(&store, "a");
        let Acquired::Busy(busy) = store.start(wanted, &a, soon()).unwrap() else {
            panic!("it is held");
        };
        assert_eq!(busy.key.as_str().starts_with("section:"), at_section);
        std::thread::scope(|scope| {
            let sleeper = scope.spawn(|| store.wait(&busy.watched(), CALL).unwrap());
            std::thread::sleep(Duration::from_millis(60));
            let back = Change::GiveBack;
            world
                .store
                .change(&held, &name("holder"), &back, &Edit::default(), soon())
                .unwrap();
            assert_eq!(sleeper.join().unwrap(), Waited::Changed);
        });
        start(&store, wanted, &a);
    }
}

#[test]
fn a_waiter_is_woken_when_the_woken_waiter_before_it_leaves() {
    let (world, section, held) = no_task_ready();
    let other = world
        .store
        .add_task(&new_task("Other", Some(&section)), soon())
        .unwrap()
        .id;
    let (first, second) = (world.other(), world.other());
    let (a, b) = (waiting(&first, "a"), waiting(&second, "b"));
    let _ = first.start(&other, &a, soon()).unwrap();
    let _ = second.start(&other, &b, soon()).unwrap();
    world
        .store
        .change(
            &held,
            &name("holder"),
            &Change::GiveBack,
            &Edit::default(),
            soon(),
        )
        .unwrap();
    let Acquired::Busy(busy) = second.start(&other, &b, soon()).unwrap() else {
        panic!("the first comes first");
    };
    std::thread::scope(|scope| {
        let sleeper = scope.spawn(|| second.wait(&busy.watched(), CALL).unwrap());
        std::thread::sleep(Duration::from_millis(60));
        first
            .stop_waiting(Some(&other), &a, Withdrawal::Leave, soon())
            .unwrap();
        assert_eq!(sleeper.join().unwrap(), Waited::Changed);
    });
    start(&second, &other, &b);
}

#[test]
fn a_seeker_is_woken_when_the_one_before_it_leaves_a_ready_task() {
    let (world, ..) = no_task_ready();
    let mut first = Seeker::new(&world, "first");
    let second = Seeker::new(&world, "second");
    first.look();
    second.gets_it_by("the one before, that left", "t1", || {
        world.sql("INSERT INTO tasks (id, title) VALUES ('t1', 'One')");
        first
            .store
            .stop_waiting(None, &first.runner, Withdrawal::Leave, soon())
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
    let store = SqliteStore::open(path.as_ref(), SqliteOptions::default()).unwrap();
    let mut runner = waiting(&store, &format!("process {}", std::process::id()));
    runner.holder.binding = store.this_process().unwrap();
    match verb {
        "start" => {
            let _ = store.start(id, &runner, soon()).unwrap();
        }
        _ => {
            let _ = store.next(&runner, soon()).unwrap();
        }
    }
    process::report("done");
    std::thread::sleep(limit::LIMIT);
}

fn process(world: &World, verb: &str, id: &str) -> Process {
    let job = format!("{}\n{verb}\n{id}", world.path().display());
    let process = Process::start("tasks_next::worker", &job);
    assert_eq!(process.report(), "done");
    process
}

#[test]
fn a_seeker_is_woken_when_the_holder_of_a_task_is_killed() {
    let world = World::new();
    let section = world.store.add_section("S", soon()).unwrap().id;
    let one = world
        .store
        .add_task(&new_task("One", Some(&section)), soon())
        .unwrap()
        .id;
    let mut holder = process(&world, "start", &one);
    let seeker = Seeker::new(&world, "w");
    seeker.gets_it_by("a death", &one, || holder.kill_and_leave());
}

#[test]
fn a_seeker_is_woken_when_the_seeker_before_it_is_killed() {
    let (world, ..) = no_task_ready();
    let mut first = process(&world, "next", "");
    let second = Seeker::new(&world, "second");
    second.gets_it_by("the death of the one before", "t1", || {
        world.sql("INSERT INTO tasks (id, title) VALUES ('t1', 'One')");
        first.kill_and_leave();
    });
}

#[test]
fn a_seeker_is_woken_when_a_waiter_that_was_woken_for_the_section_is_killed() {
    let (world, section, held) = no_task_ready();
    let other = world
        .store
        .add_task(&new_task("Other", Some(&section)), soon())
        .unwrap()
        .id;
    let mut called = process(&world, "start", &other);
    let seeker = Seeker::new(&world, "w");
    seeker.gets_it_by("the death of one that was called", &held, || {
        world
            .store
            .change(
                &held,
                &name("holder"),
                &Change::GiveBack,
                &Edit::default(),
                soon(),
            )
            .unwrap();
        // The seeker has been called too, and has seen that another comes first.
        std::thread::sleep(Duration::from_millis(60));
        called.kill_and_leave();
    });
}

#[test]
fn a_waiter_for_a_task_is_woken_when_it_is_moved_to_a_free_section() {
    let (world, section, _) = no_task_ready();
    let free = world.store.add_section("Free", soon()).unwrap().id;
    let other = world
        .store
        .add_task(&new_task("Other", Some(&section)), soon())
        .unwrap()
        .id;
    let store = world.other();
    let a = waiting(&store, "a");
    let Acquired::Busy(busy) = store.start(&other, &a, soon()).unwrap() else {
        panic!("the section is held");
    };
    std::thread::scope(|scope| {
        let sleeper = scope.spawn(|| store.wait(&busy.watched(), CALL).unwrap());
        std::thread::sleep(Duration::from_millis(60));
        let edit = Edit {
            section: Some(free),
            ..Edit::default()
        };
        world.store.edit_task(&other, &edit, soon()).unwrap();
        assert_eq!(sleeper.join().unwrap(), Waited::Changed);
    });
}

/// Each task that is worked on has two threads that keep its leases, and all of a process share one
/// bell: a wait with a timeout must not start over when another thread gives up.
#[test]
fn a_wait_ends_although_another_thread_gives_up_again_and_again_beside_it() {
    let world = World::new();
    let store = world.other();
    store.this_process().unwrap();
    let key = Key::parse("build").unwrap();
    let wait = |millis: u64| {
        let watched = Watched {
            key: &key,
            seen: store.inspect(&key, soon()).unwrap().revision,
            held: None,
            others: Vec::new(),
            ahead: vec![],
        };
        let waited = store.wait(&watched, Duration::from_millis(millis)).unwrap();
        assert_eq!(waited, Waited::TimedOut);
    };
    let over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            within_limit("the longer wait to end", || {
                wait(20);
                over.load(Ordering::Relaxed)
            });
        });
        wait(300);
        over.store(true, Ordering::Relaxed);
    });
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
    world.store.import(&lines, soon()).unwrap();
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
    assert_eq!(world.store.tasks(&query, soon()).unwrap().len(), 1000);
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
        match store.next(runner, soon()).unwrap() {
            Acquired::Granted(started) => {
                let proof = Proof::Token(started.lease.token);
                let done = Change::To(Status::Completed);
                store
                    .change(&started.task.id, &proof, &done, &Edit::default(), soon())
                    .unwrap();
                given.push(started.task.id);
            }
            Acquired::Busy(want) if want.shortage == Some(Shortage::Locked) => {
                let watched = Watched {
                    key: &key,
                    seen: want.revision,
                    held: None,
                    others: Vec::new(),
                    ahead: want.watch.iter().collect(),
                };
                let _ = store.wait(&watched, 5 * SECOND).unwrap();
            }
            other @ (Acquired::Deadlock(_) | Acquired::Cancelled) => panic!("{other:?}"),
            Acquired::Busy(want) => {
                assert_eq!(want.shortage, Some(Shortage::NothingLeft));
                store
                    .stop_waiting(None, runner, Withdrawal::Leave, soon())
                    .unwrap();
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
