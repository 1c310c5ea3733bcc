//! Beginning and ending work: a task's status and its locks, in one step and by the rules.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "test code fails by panicking"
)]

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use rusqlite::Connection;
use tempfile::TempDir;
use tenure_core::task::{
    Change, NewTask, Proof, Runner, Shortage, Sought, Started, Starting, TaskQuery,
};
use tenure_core::{
    Acquired, Binding, EventKind, HistoryQuery, Holder, HolderId, Key, Patience, Priority, Reap,
    Status, Store, TaskError, Token,
};
use tenure_sqlite::{Options, Places, SqliteStore};
use tenure_testkit::{Ask, Chance, FakeClock, history};

const HOUR: Duration = Duration::from_secs(3600);

/// A database with its own time, and another program's connection to it.
struct World {
    dir: TempDir,
    clock: Arc<FakeClock>,
    store: SqliteStore,
    foreign: Connection,
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(FakeClock::booted("first boot"));
        let path = dir.path().join("tenure.db");
        let options = Options {
            clock: clock.clone(),
            ..Options::default()
        };
        Self {
            store: SqliteStore::open(&path, options).unwrap(),
            foreign: Connection::open(&path).unwrap(),
            clock,
            dir,
        }
    }

    /// Another process's view of the same database: dropped, that process is dead.
    fn other(&self) -> SqliteStore {
        let options = Options {
            clock: self.clock.clone(),
            ..Options::default()
        };
        SqliteStore::open(&self.dir.path().join("tenure.db"), options).unwrap()
    }

    fn sql(&self, text: &str) {
        self.foreign.execute_batch(text).unwrap();
    }

    fn ask<T: rusqlite::types::FromSql>(&self, text: &str) -> T {
        self.foreign.query_row(text, [], |row| row.get(0)).unwrap()
    }

    fn section(&self, name: &str) -> String {
        self.store.add_section(name).unwrap().id
    }

    /// Adds a task, a millisecond after the one before.
    fn task(&self, title: &str, section: Option<&str>, depends_on: &[&str]) -> String {
        self.clock.pass(Duration::from_millis(1));
        let task = NewTask {
            title: title.into(),
            description: None,
            section: section.map(str::to_owned),
            priority: Priority::default(),
            depends_on: depends_on.iter().map(|&id| id.to_owned()).collect(),
        };
        self.store.add_task(&task).unwrap().id
    }

    fn status(&self, id: &str) -> Status {
        self.store.find_task(id).unwrap().status
    }

    /// Who holds a key, if somebody does.
    fn holder(&self, key: &str) -> Option<String> {
        let found = self.store.inspect(&Key::parse(key).unwrap()).unwrap();
        let (lease, verdict) = found.lease?;
        verdict
            .over()
            .is_none()
            .then(|| lease.holder.id.to_string())
    }

    fn holds_section(&self, id: &str) -> Option<String> {
        self.holder(&format!("section:{id}"))
    }

    fn holds_task(&self, id: &str) -> Option<String> {
        self.holder(&format!("task:{id}"))
    }

    fn force(&self, key: &str) {
        let admin = HolderId::parse("admin").unwrap();
        let key = Key::parse(key).unwrap();
        let _ = self.store.force(&key, &admin, None).unwrap();
    }

    /// All that a refusal must leave as it is.
    fn picture(&self) -> String {
        self.ask(
            "SELECT (SELECT group_concat(concat_ws('|', id, status, section_id, blockers, not_before, attempts,
             last_error, runner, token, lost, updated_at), char(10)) FROM tasks) || (SELECT coalesce(group_concat(
             concat_ws('|', key, token, holder, expires_at), char(10)), '') FROM leases) || (SELECT count(*) FROM history)",
        )
    }
}

/// Ends the process that has this store open, as far as others can tell: its life stopped.
fn die(world: &World, store: SqliteStore) {
    let life = store.this_process().unwrap().life().unwrap().0.clone();
    drop(store);
    let left = world.dir.path().join("tenure.db-live").join(life);
    rustix::fs::mknodat(
        rustix::fs::CWD,
        left,
        rustix::fs::FileType::Fifo,
        rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        0,
    )
    .unwrap();
}

fn name(text: &str) -> Proof {
    Proof::Name(HolderId::parse(text).unwrap())
}

/// A runner with a name of its own and leases that live by themselves.
fn detached(name: &str) -> Runner {
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

/// A runner that lives with the process which has this store open.
fn living(store: &SqliteStore, name: &str) -> Runner {
    let binding = store.this_process().unwrap();
    let mut runner = detached(name);
    runner.holder.binding = binding.clone();
    runner.asker = binding;
    runner
}

/// The same, in the queue.
fn waiting(store: &SqliteStore, mut runner: Runner) -> Runner {
    runner.asker = store.this_process().unwrap();
    runner.patience = Patience::Queue;
    runner
}

fn started(answer: Starting) -> Box<Started> {
    match answer {
        Starting::Started(started) => started,
        other => panic!("it should be started: {other:?}"),
    }
}

fn begin(world: &World, id: &str, runner: &Runner) -> Box<Started> {
    started(world.store.start(id, runner).unwrap())
}

/// Which key a start is refused for.
fn busy(answer: Starting) -> String {
    match answer {
        Starting::Busy { key, .. } => key.as_str().to_owned(),
        other => panic!("it should be busy: {other:?}"),
    }
}

fn found(answer: Sought) -> Option<String> {
    match answer {
        Sought::Found(started) => Some(started.task.id.clone()),
        Sought::None(_) | Sought::Deadlock(_) => None,
    }
}

fn next(world: &World, runner: &Runner) -> Option<String> {
    found(world.store.next(runner).unwrap())
}

fn finish(world: &World, id: &str, by: &str) {
    world
        .store
        .change(id, &name(by), &Change::To(Status::Completed))
        .unwrap();
}

#[derive(Debug, PartialEq, Eq, Clone, Copy)]
enum Refusal {
    None,
    Locked,
    Superseded,
}

/// Tries a change, and sees to it that a refused one leaves everything as it was.
fn attempt(world: &World, id: &str, proof: &Proof, change: &Change) -> Refusal {
    let before = world.picture();
    match world.store.change(id, proof, change) {
        Ok(_) => Refusal::None,
        Err(error) => {
            assert_eq!(world.picture(), before, "{error}");
            match error {
                TaskError::Locked { .. } => Refusal::Locked,
                TaskError::Superseded { .. } => Refusal::Superseded,
                other => panic!("{other}"),
            }
        }
    }
}

#[test]
fn a_start_takes_the_section_and_the_task_or_neither() {
    let world = World::new();
    let section = world.section("Backend");
    let (one, two) = (
        world.task("One", Some(&section), &[]),
        world.task("Two", Some(&section), &[]),
    );
    let (a, b) = (detached("a"), detached("b"));
    let begun = begin(&world, &one, &a);
    assert_eq!(begun.task.status, Status::InProgress);
    assert_eq!(
        begun.section.unwrap().key.as_str(),
        format!("section:{section}")
    );
    let refused = world.store.start(&two, &b).unwrap();
    assert_eq!(busy(refused), format!("section:{section}"));
    assert_eq!(world.holds_task(&two), None);
    assert_eq!(world.status(&two), Status::Pending);

    // The section is free, but the task is not: the section must not be taken.
    finish(&world, &one, "a");
    finish(&world, &two, "a");
    assert_eq!(world.holds_section(&section), None);
    let three = world.task("Three", Some(&section), &[]);
    Ask::new(&Key::parse(format!("task:{three}")).unwrap(), "x").granted(&world.store);
    let refused = world.store.start(&three, &b).unwrap();
    assert_eq!(busy(refused), format!("task:{three}"));
    assert_eq!(world.holds_section(&section), None);
    assert_eq!(world.status(&three), Status::Pending);
}

#[test]
fn whoever_has_the_section_takes_its_tasks_one_after_another() {
    let world = World::new();
    let section = world.section("Backend");
    let tasks: Vec<String> = (0..3)
        .map(|number| world.task(&format!("Task {number}"), Some(&section), &[]))
        .collect();
    let process = world.other();
    for (by, runner) in [("a", detached("a")), ("p", living(&process, "p"))] {
        for (index, id) in tasks.iter().enumerate() {
            begin(&world, id, &runner);
            let refused = world.store.start(&tasks[2], &detached("b")).unwrap();
            assert_eq!(busy(refused), format!("section:{section}"));
            let changed = world
                .store
                .change(id, &name(by), &Change::To(Status::Completed))
                .unwrap();
            let kept = index < 2;
            assert_eq!(changed.freed.len(), if kept { 1 } else { 2 });
            assert_eq!(world.holds_section(&section).is_some(), kept);
            assert_eq!(world.holds_task(id), None);
        }
        for id in &tasks {
            world
                .store
                .change(id, &name("x"), &Change::To(Status::Pending))
                .unwrap();
        }
    }
}

#[test]
fn the_same_name_in_another_process_is_another_runner() {
    let world = World::new();
    let section = world.section("Backend");
    let (one, two) = (
        world.task("One", Some(&section), &[]),
        world.task("Two", Some(&section), &[]),
    );
    let (first, second) = (world.other(), world.other());
    begin(&world, &one, &living(&first, "a"));
    let refused = world.store.start(&two, &living(&second, "a")).unwrap();
    assert_eq!(busy(refused), format!("section:{section}"));
    let refused = world.store.start(&two, &detached("a")).unwrap();
    assert_eq!(busy(refused), format!("section:{section}"));
    assert_eq!(next(&world, &living(&second, "a")), None);
    begin(&world, &two, &living(&first, "a"));
    assert_eq!(next(&world, &living(&first, "a")), None, "both are taken");
}

#[test]
fn another_name_in_the_same_process_is_another_runner() {
    let world = World::new();
    let section = world.section("Backend");
    let (one, two) = (
        world.task("One", Some(&section), &[]),
        world.task("Two", Some(&section), &[]),
    );
    let process = world.other();
    begin(&world, &one, &living(&process, "a"));
    let refused = world.store.start(&two, &living(&process, "b")).unwrap();
    assert_eq!(busy(refused), format!("section:{section}"));
    assert_eq!(next(&world, &living(&process, "b")), None);
}

#[test]
fn a_task_that_somebody_works_on_stays_in_its_section() {
    let world = World::new();
    let (section, other) = (world.section("Backend"), world.section("Other"));
    let one = world.task("One", Some(&section), &[]);
    begin(&world, &one, &detached("a"));
    let before = world.picture();
    let moved = tenure_core::task::Edit {
        section: Some(other),
        title: Some("Otherwise".into()),
        ..tenure_core::task::Edit::default()
    };
    let error = world.store.edit_task(&one, &moved).unwrap_err();
    assert!(matches!(error, TaskError::Locked { .. }), "{error}");
    assert_eq!(world.picture(), before);
    assert_eq!(world.store.find_task(&one).unwrap().title, "One");
    finish(&world, &one, "a");
    world.store.edit_task(&one, &moved).unwrap();
}

#[test]
fn every_end_but_by_hand_pending_keeps_the_section_while_something_is_open_in_it() {
    let failed = |error: &str| Change::Failed {
        error: error.into(),
    };
    for (change, kept_with_open) in [
        (Change::To(Status::Review), true),
        (Change::To(Status::Completed), true),
        (Change::To(Status::Failed), true),
        (Change::To(Status::Skipped), true),
        (failed("oh"), true),
        (Change::Retry { error: "oh".into() }, true),
        (Change::To(Status::Pending), false),
        (Change::GiveBack, false),
    ] {
        for open in [false, true] {
            let world = World::new();
            let section = world.section("Backend");
            let one = world.task("One", Some(&section), &[]);
            if open {
                world.task("Two", Some(&section), &[]);
            }
            begin(&world, &one, &detached("a"));
            world.store.change(&one, &name("a"), &change).unwrap();
            assert_eq!(world.status(&one), change.status());
            assert_eq!(world.holds_task(&one), None, "{change:?}");
            let still_open = open || matches!(change, Change::Retry { .. });
            assert_eq!(
                world.holds_section(&section).is_some(),
                still_open && kept_with_open,
                "{change:?} with another open: {open}"
            );
        }
    }
}

#[test]
fn a_task_put_back_leaves_the_section_to_its_runner_while_it_works_on_another() {
    let world = World::new();
    let section = world.section("Backend");
    let (one, two) = (
        world.task("One", Some(&section), &[]),
        world.task("Two", Some(&section), &[]),
    );
    let a = detached("a");
    begin(&world, &one, &a);
    begin(&world, &two, &a);
    world
        .store
        .change(&one, &name("a"), &Change::To(Status::Pending))
        .unwrap();
    assert_eq!(world.holds_section(&section).as_deref(), Some("a"));
    world
        .store
        .change(&two, &name("a"), &Change::GiveBack)
        .unwrap();
    assert_eq!(world.holds_section(&section), None);
}

#[test]
fn whoever_lost_a_task_is_refused_for_good() {
    let world = World::new();
    let section = world.section("Backend");
    let one = world.task("One", Some(&section), &[]);
    let late = begin(&world, &one, &detached("late"));
    world.clock.pass(3 * HOUR);
    let new = begin(&world, &one, &detached("new"));
    let done = Change::To(Status::Completed);
    let refused = |world: &World, when: &str| {
        for change in [
            done.clone(),
            Change::GiveBack,
            Change::To(Status::Pending),
            Change::Retry { error: "x".into() },
        ] {
            let by_name = attempt(world, &one, &name("late"), &change);
            assert_eq!(by_name, Refusal::Superseded, "{when}, by name");
            let by_token = attempt(world, &one, &Proof::Token(late.lease.token), &change);
            assert_eq!(by_token, Refusal::Superseded, "{when}, by token");
        }
    };
    refused(&world, "while the new one works");
    assert_eq!(
        attempt(&world, &one, &name("stranger"), &done),
        Refusal::Locked
    );
    assert_eq!(
        attempt(&world, &one, &Proof::Token(Token::NONE), &done),
        Refusal::Superseded
    );
    let future = Token(new.lease.token.0 + 1);
    assert_eq!(
        attempt(&world, &one, &Proof::Token(future), &done),
        Refusal::Superseded
    );
    world
        .store
        .change(&one, &Proof::Token(new.lease.token), &Change::GiveBack)
        .unwrap();
    refused(&world, "after the new one gave it back");
    begin(&world, &one, &detached("third"));
    finish(&world, &one, "third");
    refused(&world, "after a third one finished it");
    world.clock.reboot("second boot");
    world.clock.pass(HOUR);
    let world = World {
        store: world.other(),
        ..world
    };
    refused(&world, "after a restart");
    // Until it gets the task again, by the rules.
    begin(&world, &one, &detached("late"));
    assert_eq!(attempt(&world, &one, &name("late"), &done), Refusal::None);
}

#[test]
fn somebody_else_who_decides_on_an_abandoned_task_supersedes_its_runner() {
    for end in ["expiry", "force"] {
        let world = World::new();
        let one = world.task("One", None, &[]);
        begin(&world, &one, &detached("late"));
        match end {
            "expiry" => world.clock.pass(2 * HOUR),
            _ => world.force(&format!("task:{one}")),
        }
        let skip = Change::To(Status::Skipped);
        assert_eq!(attempt(&world, &one, &name("admin"), &skip), Refusal::None);
        assert_eq!(
            attempt(&world, &one, &name("late"), &Change::To(Status::Completed)),
            Refusal::Superseded,
            "{end}"
        );
        assert_eq!(world.status(&one), Status::Skipped);
    }
}

#[test]
fn the_token_of_a_grant_that_somebody_else_decided_on_is_refused_as_its_name_is() {
    let world = World::new();
    let one = world.task("One", None, &[]);
    let late = begin(&world, &one, &detached("late"));
    world.clock.pass(2 * HOUR);
    let skip = Change::To(Status::Skipped);
    assert_eq!(attempt(&world, &one, &name("admin"), &skip), Refusal::None);
    let done = Change::To(Status::Completed);
    assert_eq!(
        attempt(&world, &one, &name("late"), &done),
        Refusal::Superseded
    );
    assert_eq!(
        attempt(&world, &one, &Proof::Token(late.lease.token), &done),
        Refusal::Superseded,
        "somebody decided on it since"
    );
}

#[test]
fn a_lease_that_ran_out_and_nobody_wanted_is_still_good_for_an_end() {
    let world = World::new();
    let section = world.section("Backend");
    for proof_by_token in [false, true] {
        let one = world.task("One", Some(&section), &[]);
        let begun = begin(&world, &one, &detached("a"));
        world.clock.pass(3 * HOUR);
        let proof = if proof_by_token {
            Proof::Token(begun.lease.token)
        } else {
            name("a")
        };
        let done = Change::To(Status::Completed);
        assert_eq!(attempt(&world, &one, &proof, &done), Refusal::None);
        assert_eq!(world.holds_section(&section), None);
        let leases: i64 = world.ask("SELECT count(*) FROM leases");
        assert_eq!(leases, 0, "nothing is left on record");
    }
}

#[test]
fn a_wait_holds_nothing_and_leaves_nothing_behind() {
    let world = World::new();
    let section = world.section("Backend");
    let (one, two) = (
        world.task("One", Some(&section), &[]),
        world.task("Two", Some(&section), &[]),
    );
    let (a, b, other) = (world.other(), world.other(), world.other());
    begin(&world, &one, &living(&other, "holder"));
    let (a, b) = (waiting(&a, detached("a")), waiting(&b, detached("b")));
    for runner in [&a, &b] {
        let refused = world.store.start(&two, runner).unwrap();
        assert_eq!(busy(refused), format!("section:{section}"));
    }
    let leases: i64 = world.ask("SELECT count(*) FROM leases");
    assert_eq!(leases, 2, "those of the holder");
    world
        .store
        .stop_waiting(Some(&two), &a, Places::Leave)
        .unwrap();
    let tickets: i64 = world.ask("SELECT count(*) FROM tickets");
    assert_eq!(tickets, 1);
    finish(&world, &one, "holder");
    assert_eq!(world.holds_section(&section).as_deref(), Some("holder"));
    // The holder looks for more, and takes what is left before those who wait.
    assert_eq!(
        next(&world, &living(&other, "holder")).as_deref(),
        Some(two.as_str())
    );
    finish(&world, &two, "holder");
    let three = world.task("Three", Some(&section), &[]);
    let refused = world.store.start(&three, &detached("newcomer")).unwrap();
    assert_eq!(busy(refused), format!("section:{section}"), "b comes first");
    begin(&world, &two, &b);
    let tickets: i64 = world.ask("SELECT count(*) FROM tickets");
    assert_eq!(tickets, 0);
}

#[test]
fn whoever_waits_for_the_task_holds_up_nobody_at_the_section_and_the_other_way_round() {
    let world = World::new();
    let section = world.section("Backend");
    let (one, two) = (
        world.task("One", Some(&section), &[]),
        world.task("Two", Some(&section), &[]),
    );
    let (first, second) = (world.other(), world.other());
    let task = Key::parse(format!("task:{one}")).unwrap();
    let plain = Ask::new(&task, "plain").granted(&world.store);
    let (a, b) = (
        waiting(&first, detached("a")),
        waiting(&second, detached("b")),
    );
    let refused = first.start(&one, &a).unwrap();
    assert_eq!(busy(refused), task.as_str());
    // The section is still anybody's, and is taken.
    begin(&world, &two, &b);
    let refused = first.start(&one, &a).unwrap();
    assert_eq!(busy(refused), format!("section:{section}"));
    // Now it waits for the section: at the task it must be in nobody's way.
    let _ = world.store.release(&plain.grant()).unwrap();
    let asked = Ask::new(&task, "quick").once(&world.store);
    let Acquired::Granted { lease, .. } = asked else {
        panic!("{asked:?}");
    };
    let _ = world.store.release(&lease.grant()).unwrap();
    world
        .store
        .change(&two, &name("b"), &Change::To(Status::Pending))
        .unwrap();
    started(first.start(&one, &a).unwrap());
    let tickets: i64 = world.ask("SELECT count(*) FROM tickets");
    assert_eq!(tickets, 0);
}

#[test]
fn a_task_that_is_moved_leaves_no_ticket_at_the_section_it_was_in() {
    let world = World::new();
    let (old, new) = (world.section("Old"), world.section("New"));
    let (one, two) = (
        world.task("One", Some(&old), &[]),
        world.task("Two", Some(&old), &[]),
    );
    let (holder, waiter) = (world.other(), world.other());
    begin(&world, &one, &living(&holder, "holder"));
    let a = waiting(&waiter, detached("a"));
    let refused = waiter.start(&two, &a).unwrap();
    assert_eq!(busy(refused), format!("section:{old}"));
    let moved = tenure_core::task::Edit {
        section: Some(new),
        ..tenure_core::task::Edit::default()
    };
    world.store.edit_task(&two, &moved).unwrap();
    started(waiter.start(&two, &a).unwrap());
    let tickets: Vec<String> = world
        .store
        .list()
        .unwrap()
        .into_iter()
        .filter(|snapshot| !snapshot.queue.is_empty())
        .map(|snapshot| snapshot.key.as_str().to_owned())
        .collect();
    assert_eq!(tickets, Vec::<String>::new());
    finish(&world, &one, "holder");
    let three = world.task("Three", Some(&old), &[]);
    begin(&world, &three, &detached("b"));
}

#[test]
fn a_wait_in_a_circle_is_refused() {
    let world = World::new();
    let (left, right) = (world.section("Left"), world.section("Right"));
    let (one, two) = (
        world.task("One", Some(&left), &[]),
        world.task("Two", Some(&right), &[]),
    );
    let (first, second) = (world.other(), world.other());
    let a = waiting(&first, living(&first, "a"));
    let b = waiting(&second, living(&second, "b"));
    started(first.start(&one, &a).unwrap());
    started(second.start(&two, &b).unwrap());
    let _ = busy(first.start(&two, &a).unwrap());
    let answer = second.start(&one, &b).unwrap();
    assert!(matches!(answer, Starting::Deadlock(_)), "{answer:?}");
}

#[test]
fn a_start_that_is_shorter_does_not_shorten_the_section_under_another_task() {
    let world = World::new();
    let section = world.section("Backend");
    let tasks: Vec<String> = (0..3)
        .map(|number| world.task(&format!("Task {number}"), Some(&section), &[]))
        .collect();
    let long = Runner {
        task_ttl: 10 * HOUR,
        section_ttl: 10 * HOUR,
        ..detached("a")
    };
    begin(&world, &tasks[0], &long);
    begin(&world, &tasks[1], &detached("a"));
    world.clock.pass(3 * HOUR);
    assert_eq!(world.holds_task(&tasks[0]).as_deref(), Some("a"));
    assert_eq!(
        world.holds_section(&section).as_deref(),
        Some("a"),
        "a live task keeps its section"
    );
    assert_eq!(next(&world, &detached("b")), None);
}

#[test]
fn a_task_that_is_renewed_keeps_its_section_for_as_long() {
    let world = World::new();
    let section = world.section("Backend");
    let (one, _) = (
        world.task("One", Some(&section), &[]),
        world.task("Two", Some(&section), &[]),
    );
    let begun = begin(&world, &one, &detached("a"));
    for _ in 0..10 {
        world.clock.pass(HOUR / 2);
        let renewed = world.store.renew(&begun.lease.grant(), HOUR).unwrap();
        assert!(matches!(renewed, tenure_core::Renewed::Extended(_)));
        assert_eq!(world.holds_section(&section).as_deref(), Some("a"));
    }
    assert_eq!(
        next(&world, &detached("b")),
        None,
        "not in a section at work"
    );
}

#[test]
fn a_start_for_a_process_does_not_tie_the_section_of_another_task_to_it() {
    let world = World::new();
    let section = world.section("Backend");
    let tasks: Vec<String> = (0..3)
        .map(|number| world.task(&format!("Task {number}"), Some(&section), &[]))
        .collect();
    begin(&world, &tasks[0], &detached("a"));
    let mut child = std::process::Command::new("sleep")
        .arg("60")
        .spawn()
        .unwrap();
    let process = tenure_host::identity::process(child.id()).unwrap().unwrap();
    let mut tied = detached("a");
    tied.holder.binding = Binding::Process { process };
    let _ = world.store.start(&tasks[1], &tied).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(world.holds_task(&tasks[0]).as_deref(), Some("a"));
    assert_eq!(
        world.holds_section(&section).as_deref(),
        Some("a"),
        "a live task keeps its section"
    );
}

#[test]
fn a_runner_whose_row_another_program_wrote_is_a_runner_as_any_other() {
    let world = World::new();
    let section = world.section("Backend");
    let (one, two) = (
        world.task("One", Some(&section), &[]),
        world.task("Two", Some(&section), &[]),
    );
    world.sql(&format!(
        "INSERT INTO task_locks (task_id, runner_id, expires_at) VALUES ('{one}', 'a', '2099-01-01T00:00:00.000Z')"
    ));
    let begun = begin(&world, &one, &detached("a"));
    world.sql(&format!("UPDATE tasks SET blockers = 1 WHERE id = '{two}'"));
    assert_eq!(next(&world, &detached("a")), None);
    assert_eq!(
        world.holds_section(&section).as_deref(),
        Some("a"),
        "it works in it"
    );
    let done = Change::To(Status::Completed);
    let proof = Proof::Token(begun.lease.token);
    assert_eq!(attempt(&world, &one, &proof, &done), Refusal::None);
}

#[test]
fn a_start_of_a_blocked_task_says_what_it_waits_for_and_changes_nothing() {
    let world = World::new();
    let one = world.task("One", None, &[]);
    let two = world.task("Two", None, &[&one]);
    let before = world.picture();
    let error = world.store.start(&two, &detached("a")).unwrap_err();
    let TaskError::Blocked { by, .. } = &error else {
        panic!("{error}");
    };
    assert_eq!(by.len(), 1);
    assert_eq!(by[0].id, one);
    assert_eq!(world.picture(), before);
    for (status, blocked) in [
        (Status::Review, true),
        (Status::Failed, true),
        (Status::Skipped, false),
        (Status::Pending, true),
        (Status::Completed, false),
    ] {
        world
            .store
            .change(&one, &name("x"), &Change::To(status))
            .unwrap();
        let asked = world.store.start(&two, &detached("a"));
        assert_eq!(asked.is_err(), blocked, "{status}");
        if asked.is_ok() {
            world
                .store
                .change(&two, &name("a"), &Change::GiveBack)
                .unwrap();
        }
    }
}

#[test]
fn history_tells_how_each_lease_of_a_task_ended() {
    let world = World::new();
    let one = world.task("One", None, &[]);
    let process = world.other();
    begin(&world, &one, &living(&process, "dead"));
    die(&world, process);
    begin(&world, &one, &detached("slow"));
    world.clock.pass(2 * HOUR);
    begin(&world, &one, &detached("good"));
    finish(&world, &one, "good");
    // Somebody else's end of an abandoned one says why that was possible.
    let two = world.task("Two", None, &[]);
    begin(&world, &two, &detached("slow"));
    world.clock.pass(2 * HOUR);
    finish(&world, &two, "admin");
    let events = world.store.history(&HistoryQuery::default()).unwrap();
    assert_eq!(history::flaws(&events), []);
    let kinds: Vec<EventKind> = events.iter().map(|event| event.kind).collect();
    assert_eq!(
        kinds,
        [
            EventKind::Granted,
            EventKind::Dead,
            EventKind::Granted,
            EventKind::Expired,
            EventKind::Granted,
            EventKind::Released,
            EventKind::Granted,
            EventKind::Expired,
        ]
    );
}

const RECOUNT: &str = "SELECT count(*) FROM tasks t WHERE blockers != (SELECT count(*) FROM task_dependencies d
    JOIN tasks o ON o.id = d.depends_on WHERE d.task_id = t.id AND o.status NOT IN ('completed', 'skipped'))";

#[test]
fn blockers_are_right_whatever_plain_sql_does() {
    let world = World::new();
    world.sql(
        "INSERT INTO tasks (id, title) VALUES ('a', 'A'), ('b', 'B'), ('c', 'C'), ('d', 'D');
         INSERT INTO tasks (id, title, status) VALUES ('e', 'E', 'completed');",
    );
    let steps = [
        "INSERT INTO task_dependencies VALUES ('b', 'a'), ('c', 'a'), ('c', 'b'), ('d', 'e')",
        "INSERT OR IGNORE INTO task_dependencies VALUES ('b', 'a')",
        "UPDATE tasks SET status = 'completed' WHERE id = 'a'",
        "UPDATE tasks SET status = 'skipped' WHERE id = 'a'",
        "UPDATE tasks SET status = 'failed' WHERE id IN ('a', 'e')",
        "UPDATE tasks SET status = 'review'",
        "UPDATE tasks SET status = 'completed'",
        "UPDATE tasks SET status = 'pending'",
        "DELETE FROM task_dependencies WHERE task_id = 'c' AND depends_on = 'b'",
        "DELETE FROM tasks WHERE id = 'e'",
        "INSERT INTO tasks (id, title) VALUES ('e', 'E')",
        "UPDATE task_dependencies SET depends_on = 'd' WHERE task_id = 'b'",
        "UPDATE task_dependencies SET task_id = 'e' WHERE task_id = 'b'",
        "INSERT OR REPLACE INTO task_dependencies VALUES ('c', 'a')",
        "REPLACE INTO tasks (id, title, status) VALUES ('a', 'A anew', 'completed')",
        "REPLACE INTO tasks (id, title) VALUES ('c', 'C anew')",
        "DELETE FROM task_dependencies",
    ];
    let mut wrong = Vec::new();
    for step in steps {
        world.sql(step);
        let count: i64 = world.ask(RECOUNT);
        if count > 0 {
            wrong.push(step);
            world.sql(
                "UPDATE tasks AS t SET blockers = (SELECT count(*) FROM task_dependencies d JOIN tasks o ON
                 o.id = d.depends_on WHERE d.task_id = t.id AND o.status NOT IN ('completed', 'skipped'))",
            );
        }
    }
    assert_eq!(wrong, Vec::<&str>::new());
}

/// A lease in the model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Held {
    /// Which runner, and which life of it.
    by: (usize, u32),
    until: Duration,
    token: Token,
}

#[derive(Debug, Clone)]
struct Item {
    id: String,
    section: Option<usize>,
    status: Status,
    priority: u8,
    depends_on: BTreeSet<usize>,
    lease: Option<Held>,
    /// Who was granted it last, and with which token.
    last: Option<(usize, Token)>,
    lost: BTreeSet<usize>,
    /// Whether a reaper ended its last lease.
    reaped: bool,
    not_before: Option<Duration>,
    attempts: u32,
}

/// How a key stands for somebody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum For {
    Mine,
    Free,
    Another,
}

/// Two runners with leases of their own and two that live with a process. The last one is nobody:
/// an admin, who never begins anything.
const RUNNERS: [&str; 5] = ["a", "b", "p", "q", "admin"];
const DETACHED: usize = 2;

/// What should be, told independently of the store.
struct Model {
    now: Duration,
    lives: [u32; 5],
    sections: Vec<(String, Option<Held>)>,
    tasks: Vec<Item>,
}

impl Model {
    fn over(&self, held: &Held) -> bool {
        held.until <= self.now || self.dead(held)
    }

    fn dead(&self, held: &Held) -> bool {
        held.by.0 >= DETACHED && self.lives[held.by.0] != held.by.1
    }

    fn section_for(&self, section: usize, runner: usize) -> For {
        match self.sections[section].1 {
            Some(held) if !self.dead(&held) && held.by.0 == runner => For::Mine,
            Some(held) if !self.over(&held) && !self.outlived(section, held) => For::Another,
            _ => For::Free,
        }
    }

    /// A section that is tied to nothing is over with the tasks that its runner had in it.
    fn outlived(&self, section: usize, held: Held) -> bool {
        let runner = held.by.0;
        let mut tasks = self.tasks.iter().filter(|task| {
            task.section == Some(section)
                && task.status == Status::InProgress
                && task.last.is_some_and(|(last, _)| last == runner)
        });
        let over = |task: &Item| task.lease.map_or(task.reaped, |lease| self.over(&lease));
        let live = |task: &Item| task.lease.is_some_and(|lease| !self.over(&lease));
        runner < DETACHED && !tasks.clone().any(live) && tasks.any(over)
    }

    fn task_for(&self, task: usize, runner: usize) -> For {
        match self.tasks[task].lease {
            Some(held) if self.over(&held) => For::Free,
            None => For::Free,
            Some(held) if held.by.0 == runner && runner < DETACHED => For::Mine,
            Some(_) => For::Another,
        }
    }

    fn blocked(&self, task: usize) -> bool {
        let mut before = self.tasks[task].depends_on.iter();
        before.any(|&on| !self.tasks[on].status.is_done())
    }

    fn works_in(&self, section: usize, runner: usize) -> bool {
        self.tasks.iter().any(|task| {
            task.section == Some(section)
                && task.status == Status::InProgress
                && task.lease.is_some_and(|held| held.by.0 == runner)
        })
    }

    fn open_in(&self, section: usize) -> bool {
        self.tasks
            .iter()
            .any(|task| task.section == Some(section) && task.status.is_open())
    }

    fn is_ready(&self, task: usize) -> bool {
        let item = &self.tasks[task];
        item.status.is_open()
            && !self.blocked(task)
            && item.not_before.is_none_or(|at| at <= self.now)
    }

    /// Whether nothing but a pause keeps it from being ready.
    fn is_put_off(&self, task: usize) -> bool {
        let item = &self.tasks[task];
        item.status.is_open()
            && !self.blocked(task)
            && item.not_before.is_some_and(|at| at > self.now)
    }

    /// What `next` should find.
    fn best(&self, runner: usize) -> Option<usize> {
        let mut ready: Vec<usize> = (0..self.tasks.len())
            .filter(|&task| self.is_ready(task))
            .collect();
        ready.sort_by_key(|&task| (10 - self.tasks[task].priority, task));
        ready.into_iter().find(|&task| {
            let section = self.tasks[task].section;
            section.is_none_or(|section| self.section_for(section, runner) != For::Another)
                && self.task_for(task, runner) == For::Free
        })
    }

    /// Whoever looks for a task keeps only the sections that it works in.
    fn leave_idle_sections(&mut self, runner: usize) {
        for section in 0..self.sections.len() {
            let theirs = |held: &Held| held.by == (runner, self.lives[runner]);
            let has = self.sections[section].1.as_ref().is_some_and(theirs);
            if has && !self.works_in(section, runner) {
                self.sections[section].1 = None;
            }
        }
    }

    fn shortage(&self) -> &'static str {
        if (0..self.tasks.len()).any(|task| self.is_ready(task)) {
            "locked"
        } else if (0..self.tasks.len()).any(|task| self.is_put_off(task)) {
            "later"
        } else if self.tasks.iter().any(|task| task.status.is_open()) {
            "blocked"
        } else {
            "nothing left"
        }
    }

    fn grant(&mut self, task: usize, runner: usize, token: Token) {
        let item = &mut self.tasks[task];
        let before = item.last.map(|(last, _)| last);
        if item.status == Status::InProgress && before != Some(runner) {
            item.lost.extend(before);
        }
        item.lost.remove(&runner);
        item.reaped = false;
        item.last = Some((runner, token));
        item.lease = Some(Held {
            by: (runner, self.lives[runner]),
            until: self.now + HOUR,
            token,
        });
    }

    fn begin(&mut self, task: usize, runner: usize, token: Token) {
        if let Some(section) = self.tasks[task].section {
            self.sections[section].1 = Some(Held {
                by: (runner, self.lives[runner]),
                until: self.now + 2 * HOUR,
                token: Token::NONE,
            });
        }
        self.grant(task, runner, token);
        let item = &mut self.tasks[task];
        if !item.status.is_open() {
            item.attempts = 0;
        }
        item.status = Status::InProgress;
        item.not_before = None;
    }

    fn may_change(&self, task: usize, by: Result<usize, Token>) -> Refusal {
        let item = &self.tasks[task];
        let held = item.lease.filter(|held| !self.over(held));
        match by {
            Ok(runner) if held.is_some_and(|held| held.by.0 == runner) => Refusal::None,
            Ok(runner) if item.lost.contains(&runner) => Refusal::Superseded,
            Ok(_) if held.is_some() => Refusal::Locked,
            Ok(_) => Refusal::None,
            Err(token) => {
                let newest = item.last.is_some_and(|(_, last)| last == token);
                // By whom it was granted last may have been overruled by name since.
                let lost = item.last.is_some_and(|(last, _)| item.lost.contains(&last));
                let overruled = held.is_none() && lost;
                if newest && !overruled && held.is_none_or(|held| held.token == token) {
                    Refusal::None
                } else {
                    Refusal::Superseded
                }
            }
        }
    }

    fn change(&mut self, task: usize, by: Result<usize, Token>, change: &Change) {
        let item = &mut self.tasks[task];
        let last = item.last.map(|(last, _)| last);
        let by = by.unwrap_or_else(|_| last.unwrap());
        if item.status == Status::InProgress && last != Some(by) {
            item.lost.extend(last);
        }
        item.status = change.status();
        if *change != Change::GiveBack {
            item.not_before = None;
        }
        match change {
            Change::Retry { .. } => {
                item.attempts += 1;
                let pause = 1_u64 << (item.attempts - 1).min(20);
                item.not_before = Some(self.now + Duration::from_secs(pause.min(60)));
            }
            Change::To(Status::Failed) | Change::Failed { .. } => item.attempts += 1,
            Change::To(Status::Pending) => item.attempts = 0,
            Change::To(_) | Change::GiveBack => {}
        }
        let lease = item.lease.take();
        let Some(section) = item.section else { return };
        let (whose, life) = lease.map_or((by, None), |held| (held.by.0, Some(held.by.1)));
        let by_hand = matches!(change, Change::To(Status::Pending) | Change::GiveBack);
        let done_here = if by_hand {
            !self.works_in(section, whose)
        } else {
            !self.open_in(section)
        };
        let lease = &mut self.sections[section].1;
        let theirs = lease.is_some_and(|held| {
            held.by.0 == whose && (whose < DETACHED || life == Some(held.by.1))
        });
        if done_here && theirs {
            *lease = None;
        }
    }
}

/// One story: a store, the model, and the processes.
struct Story<'a> {
    world: &'a World,
    stores: Vec<Option<SqliteStore>>,
    model: Model,
    chance: Chance,
    tokens: Vec<(usize, Token)>,
    told: Vec<String>,
}

impl Story<'_> {
    fn runner(&self, runner: usize) -> Runner {
        match &self.stores[runner] {
            Some(store) => living(store, RUNNERS[runner]),
            None => detached(RUNNERS[runner]),
        }
    }

    fn store(&self, runner: usize) -> &SqliteStore {
        self.stores[runner].as_ref().unwrap_or(&self.world.store)
    }

    fn tell(&mut self, what: String) {
        self.told.push(what);
    }

    fn add(&mut self) {
        let chance = &mut self.chance;
        if chance.one_in(4) {
            self.model.now += Duration::from_millis(7);
            self.world.clock.pass(Duration::from_millis(7));
        }
        let section = (!chance.one_in(4)).then(|| chance.index(self.model.sections.len()));
        let priority = u8::try_from(3 + chance.below(3)).unwrap();
        let known = self.model.tasks.len();
        let depends_on: BTreeSet<usize> = (0..chance.below(3))
            .filter(|_| known > 0)
            .map(|_| chance.index(known))
            .collect();
        let task = NewTask {
            title: format!("Task {known}"),
            description: None,
            section: section.map(|section| self.model.sections[section].0.clone()),
            priority: Priority::new(priority).unwrap(),
            depends_on: depends_on
                .iter()
                .map(|&on| self.model.tasks[on].id.clone())
                .collect(),
        };
        let id = self.world.store.add_task(&task).unwrap().id;
        self.tell(format!(
            "add {known} in {section:?} after {depends_on:?}, priority {priority}"
        ));
        self.model.tasks.push(Item {
            id,
            section,
            status: Status::Pending,
            priority,
            depends_on,
            lease: None,
            last: None,
            lost: BTreeSet::new(),
            reaped: false,
            not_before: None,
            attempts: 0,
        });
    }

    fn depend(&mut self) {
        let (task, on) = (
            self.chance.index(self.model.tasks.len()),
            self.chance.index(self.model.tasks.len()),
        );
        let mut before = BTreeSet::from([on]);
        let mut look = vec![on];
        while let Some(at) = look.pop() {
            for &on in &self.model.tasks[at].depends_on {
                if before.insert(on) {
                    look.push(on);
                }
            }
        }
        let drop = self.chance.one_in(2);
        self.tell(format!("{task} depends on {on} (drop: {drop})"));
        let ids = vec![self.model.tasks[on].id.clone()];
        let mut edit = tenure_core::task::Edit::default();
        if drop {
            edit.drop_dependencies = ids;
        } else {
            edit.add_dependencies = ids;
        }
        let done = self
            .world
            .store
            .edit_task(&self.model.tasks[task].id, &edit);
        if drop {
            done.unwrap();
            self.model.tasks[task].depends_on.remove(&on);
        } else if before.contains(&task) {
            assert!(
                matches!(done, Err(TaskError::Circle { .. })),
                "{:#?}",
                self.told
            );
        } else {
            done.unwrap();
            self.model.tasks[task].depends_on.insert(on);
        }
    }

    fn start(&mut self) {
        let (task, runner) = (
            self.chance.index(self.model.tasks.len()),
            self.chance.index(4),
        );
        let id = self.model.tasks[task].id.clone();
        let answer = self.store(runner).start(&id, &self.runner(runner));
        self.tell(format!("{} starts {task}: {answer:?}", RUNNERS[runner]));
        let section = self.model.tasks[task].section;
        let section_busy =
            section.filter(|&section| self.model.section_for(section, runner) == For::Another);
        match answer {
            Err(TaskError::Blocked { .. }) => assert!(self.model.blocked(task), "{:#?}", self.told),
            Err(error) => panic!("{error}: {:#?}", self.told),
            Ok(Starting::Started(begun)) => {
                assert!(!self.model.blocked(task), "{:#?}", self.told);
                assert_eq!(section_busy, None, "{:#?}", self.told);
                assert_ne!(
                    self.model.task_for(task, runner),
                    For::Another,
                    "{:#?}",
                    self.told
                );
                self.model.begin(task, runner, begun.lease.token);
                self.tokens.push((task, begun.lease.token));
            }
            Ok(Starting::Busy { key, .. }) => {
                let wanted = match section_busy {
                    Some(section) => format!("section:{}", self.model.sections[section].0),
                    None => format!("task:{id}"),
                };
                assert_eq!(key.as_str(), wanted, "{:#?}", self.told);
                let task_busy = self.model.task_for(task, runner) == For::Another;
                assert!(section_busy.is_some() || task_busy, "{:#?}", self.told);
            }
            Ok(Starting::Deadlock(_)) => panic!("nobody waits: {:#?}", self.told),
        }
    }

    fn next(&mut self) {
        let runner = self.chance.index(4);
        let answer = self.store(runner).next(&self.runner(runner)).unwrap();
        self.tell(format!("{} takes the next: {answer:?}", RUNNERS[runner]));
        let wanted = self.model.best(runner);
        match answer {
            Sought::Found(begun) => {
                let found = self
                    .model
                    .tasks
                    .iter()
                    .position(|task| task.id == begun.task.id);
                assert_eq!(found, wanted, "{:#?}", self.told);
                self.model.begin(wanted.unwrap(), runner, begun.lease.token);
                self.tokens.push((wanted.unwrap(), begun.lease.token));
                self.model.leave_idle_sections(runner);
            }
            Sought::Deadlock(cycle) => panic!("{cycle}"),
            Sought::None(want) => {
                assert_eq!(None, wanted, "{:#?}", self.told);
                let words = match want.shortage {
                    Shortage::Locked => "locked",
                    Shortage::Later { .. } => "later",
                    Shortage::Blocked => "blocked",
                    Shortage::NothingLeft => "nothing left",
                };
                assert_eq!(words, self.model.shortage(), "{:#?}", self.told);
                self.model.leave_idle_sections(runner);
            }
        }
    }

    fn change(&mut self) {
        let changes = [
            Change::To(Status::Completed),
            Change::To(Status::Completed),
            Change::To(Status::Review),
            Change::To(Status::Skipped),
            Change::To(Status::Failed),
            Change::To(Status::Pending),
            Change::Failed { error: "no".into() },
            Change::Retry { error: "no".into() },
            Change::GiveBack,
        ];
        let change = changes[self.chance.index(changes.len())].clone();
        let (task, by) = if self.chance.one_in(2) && !self.tokens.is_empty() {
            let (task, token) = self.tokens[self.chance.index(self.tokens.len())];
            (task, Err(token))
        } else {
            let task = self.chance.index(self.model.tasks.len());
            (task, Ok(self.chance.index(RUNNERS.len())))
        };
        let proof = match by {
            Ok(runner) => name(RUNNERS[runner]),
            Err(token) => Proof::Token(token),
        };
        let id = self.model.tasks[task].id.clone();
        let refusal = attempt(self.world, &id, &proof, &change);
        self.tell(format!("{proof:?} changes {task}: {change:?}: {refusal:?}"));
        assert_eq!(refusal, self.model.may_change(task, by), "{:#?}", self.told);
        if refusal == Refusal::None {
            self.model.change(task, by, &change);
        }
    }

    /// Ends a lease otherwise, or takes one by hand.
    fn meddle(&mut self) {
        match self.chance.below(5) {
            0 => {
                let task = self.chance.index(self.model.tasks.len());
                self.tell(format!("force task {task}"));
                self.world
                    .force(&format!("task:{}", self.model.tasks[task].id));
                let item = &mut self.model.tasks[task];
                if let Some(held) = item.lease.take() {
                    item.lost.insert(held.by.0);
                    item.reaped = false;
                }
            }
            1 => {
                let section = self.chance.index(self.model.sections.len());
                self.tell(format!("force section {section}"));
                self.world
                    .force(&format!("section:{}", self.model.sections[section].0));
                self.model.sections[section].1 = None;
            }
            2 => {
                let runner = 2 + self.chance.index(2);
                self.tell(format!("{} dies", RUNNERS[runner]));
                die(self.world, self.stores[runner].take().unwrap());
                self.stores[runner] = Some(self.world.other());
                self.model.lives[runner] += 1;
            }
            3 => {
                self.tell("reap".into());
                let _ = self.world.store.reap(Reap::Free).unwrap();
                for task in 0..self.model.tasks.len() {
                    let over = self.model.tasks[task]
                        .lease
                        .filter(|held| self.model.over(held));
                    if over.is_some() {
                        self.model.tasks[task].lease = None;
                        self.model.tasks[task].reaped = true;
                    }
                }
                for section in 0..self.model.sections.len() {
                    let over = self.model.sections[section]
                        .1
                        .filter(|held| self.model.over(held));
                    if over.is_some() {
                        self.model.sections[section].1 = None;
                    }
                }
            }
            _ => {
                let task = self.chance.index(self.model.tasks.len());
                let runner = self.chance.index(DETACHED);
                let key = Key::parse(format!("task:{}", self.model.tasks[task].id)).unwrap();
                let ask = Ask::new(&key, RUNNERS[runner]).detached();
                let answer = ask.once(&self.world.store);
                self.tell(format!("{} acquires {task}: {answer:?}", RUNNERS[runner]));
                match answer {
                    Acquired::Granted { lease, .. } => {
                        assert_ne!(self.model.task_for(task, runner), For::Another);
                        self.model.grant(task, runner, lease.token);
                        self.tokens.push((task, lease.token));
                    }
                    _ => assert_eq!(self.model.task_for(task, runner), For::Another),
                }
            }
        }
    }

    fn pass(&mut self) {
        let times = [1, 4, 30, 90, 20 * 60, 61 * 60, 150 * 60];
        let time = Duration::from_secs(times[self.chance.index(times.len())]);
        self.tell(format!("{time:?} pass"));
        self.world.clock.pass(time);
        self.model.now += time;
    }

    /// Everything that can be seen is as the model says.
    fn compare(&self) {
        let told = &self.told;
        let recount: i64 = self.world.ask(RECOUNT);
        assert_eq!(recount, 0, "blockers: {told:#?}");
        let snapshots = self.world.store.list().unwrap();
        let holder = |key: String| {
            let found = snapshots.iter().find(|known| known.key.as_str() == key);
            let (lease, verdict) = found?.lease.as_ref()?;
            let held = verdict.over().is_none();
            held.then(|| lease.holder.id.to_string())
        };
        let model = &self.model;
        let statuses = self.world.store.tasks(&TaskQuery::default()).unwrap();
        for (number, task) in model.tasks.iter().enumerate() {
            let known = statuses.iter().find(|known| known.id == task.id).unwrap();
            assert_eq!(known.status, task.status, "task {number}: {told:#?}");
            let live = task.lease.filter(|held| !model.over(held));
            let wanted = live.map(|held| RUNNERS[held.by.0].to_owned());
            assert_eq!(
                holder(format!("task:{}", task.id)),
                wanted,
                "task {number}: {told:#?}"
            );
        }
        for (number, (id, lease)) in model.sections.iter().enumerate() {
            let live = lease.filter(|held| !model.over(held));
            let wanted = live.map(|held| RUNNERS[held.by.0].to_owned());
            assert_eq!(
                holder(format!("section:{id}")),
                wanted,
                "section {number}: {told:#?}"
            );
        }
        let both = "SELECT count(*) FROM task_locks t FULL JOIN (SELECT substr(key, 6) id, holder FROM leases
                    WHERE key LIKE 'task:%') l ON l.id = t.task_id AND l.holder = t.runner_id WHERE l.id IS NULL OR t.task_id IS NULL";
        let apart: i64 = self.world.ask(both);
        assert_eq!(apart, 0, "both tables say the same: {told:#?}");
    }
}

/// One task is never two's, status and locks agree, and `next` finds what it should: whatever
/// happens, in whatever order.
#[test]
fn random_stories_go_as_a_simple_model_says() {
    let seed = Chance::seed();
    println!("seed {seed}");
    let world = World::new();
    for number in 0..120 {
        let mut chance = Chance::apart(seed, &format!("story {number}"));
        world.sql(
            "DELETE FROM task_dependencies; DELETE FROM task_locks; DELETE FROM section_locks; DELETE FROM leases;
             DELETE FROM tickets; DELETE FROM tasks; DELETE FROM sections; DELETE FROM history;",
        );
        let sections = (0..=chance.below(3))
            .map(|number| (world.section(&format!("Section {number}")), None))
            .collect();
        let mut story = Story {
            world: &world,
            stores: vec![None, None, Some(world.other()), Some(world.other()), None],
            model: Model {
                now: Duration::ZERO,
                lives: [0; 5],
                sections,
                tasks: vec![],
            },
            chance,
            tokens: vec![],
            told: vec![format!("seed {seed}, story {number}")],
        };
        for _ in 0..3 {
            story.add();
        }
        for _ in 0..45 {
            match story.chance.below(20) {
                0..=1 => story.add(),
                2 => story.depend(),
                3..=6 => story.start(),
                7..=11 => story.next(),
                12..=15 => story.change(),
                16..=17 => story.meddle(),
                _ => story.pass(),
            }
            story.compare();
        }
        let events = world.store.history(&HistoryQuery::default()).unwrap();
        assert_eq!(history::flaws(&events), [], "{:#?}", story.told);
    }
}
