//! Beginning and ending work: a task's status and its locks, in one step and by the rules.

use crate::world;
use tenure_core::{
    Acquired, Binding, EventKind, Granted, HistoryQuery, Key, Records, Store, Token,
};
use tenure_tasks::{Change, Edit, Proof, Runner, Status, TaskError, TaskStore as _, Withdrawal};
use tenure_testkit::soon;
use tenure_testkit::{Ask, history};
use world::*;

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
    let refused = world.store.start(&two, &b, soon()).unwrap();
    assert_eq!(busy(refused), format!("section:{section}"));
    assert_eq!(world.holds_task(&two), None);
    assert_eq!(world.status(&two), Status::Pending);

    // The section is free, but the task is not: the section must not be taken.
    finish(&world, &one, "a");
    finish(&world, &two, "a");
    assert_eq!(world.holds_section(&section), None);
    let three = world.task("Three", Some(&section), &[]);
    Ask::new(&Key::parse(format!("task:{three}")).unwrap(), "x").granted(&world.store);
    let refused = world.store.start(&three, &b, soon()).unwrap();
    assert_eq!(busy(refused), format!("task:{three}"));
    assert_eq!(world.holds_section(&section), None);
    assert_eq!(world.status(&three), Status::Pending);
}

#[test]
fn the_holder_of_a_section_takes_its_tasks_one_after_another() {
    let world = World::new();
    let section = world.section("Backend");
    let tasks: Vec<String> = (0..3)
        .map(|number| world.task(&format!("Task {number}"), Some(&section), &[]))
        .collect();
    let process = world.other();
    for (by, runner) in [("a", detached("a")), ("p", living(&process, "p"))] {
        for (index, id) in tasks.iter().enumerate() {
            begin(&world, id, &runner);
            let refused = world
                .store
                .start(&tasks[2], &detached("b"), soon())
                .unwrap();
            assert_eq!(busy(refused), format!("section:{section}"));
            let changed = world
                .store
                .change(
                    id,
                    &name(by),
                    &Change::To(Status::Completed),
                    &Edit::default(),
                    soon(),
                )
                .unwrap();
            let kept = index < 2;
            assert_eq!(changed.freed.len(), if kept { 1 } else { 2 });
            assert_eq!(world.holds_section(&section).is_some(), kept);
            assert_eq!(world.holds_task(id), None);
        }
        for id in &tasks {
            world
                .store
                .change(
                    id,
                    &name("x"),
                    &Change::To(Status::Pending),
                    &Edit::default(),
                    soon(),
                )
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
    let refused = world
        .store
        .start(&two, &living(&second, "a"), soon())
        .unwrap();
    assert_eq!(busy(refused), format!("section:{section}"));
    let refused = world.store.start(&two, &detached("a"), soon()).unwrap();
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
    let refused = world
        .store
        .start(&two, &living(&process, "b"), soon())
        .unwrap();
    assert_eq!(busy(refused), format!("section:{section}"));
    assert_eq!(next(&world, &living(&process, "b")), None);
}

#[test]
fn every_end_of_a_task_but_putting_it_back_keeps_a_section_with_open_tasks() {
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
            world
                .store
                .change(&one, &name("a"), &change, &Edit::default(), soon())
                .unwrap();
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
        .change(
            &one,
            &name("a"),
            &Change::To(Status::Pending),
            &Edit::default(),
            soon(),
        )
        .unwrap();
    assert_eq!(world.holds_section(&section).as_deref(), Some("a"));
    world
        .store
        .change(
            &two,
            &name("a"),
            &Change::GiveBack,
            &Edit::default(),
            soon(),
        )
        .unwrap();
    assert_eq!(world.holds_section(&section), None);
}

#[test]
fn a_runner_that_lost_a_task_is_refused_for_ever() {
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
        .change(
            &one,
            &Proof::Token(new.lease.token),
            &Change::GiveBack,
            &Edit::default(),
            soon(),
        )
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
fn another_runner_that_ends_an_abandoned_task_supersedes_its_runner() {
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
fn the_token_of_a_task_that_another_runner_ended_is_refused_as_its_name_is() {
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
        "another runner ended it since"
    );
}

#[test]
fn a_runner_may_end_its_expired_task_if_no_other_took_it() {
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
        let refused = world.store.start(&two, runner, soon()).unwrap();
        assert_eq!(busy(refused), format!("section:{section}"));
    }
    let leases: i64 = world.ask("SELECT count(*) FROM leases");
    assert_eq!(leases, 2, "those of the holder");
    world
        .store
        .stop_waiting(Some(&two), &a, Withdrawal::Leave, soon())
        .unwrap();
    let tickets: i64 = world.ask("SELECT count(*) FROM tickets");
    assert_eq!(tickets, 1);
    finish(&world, &one, "holder");
    assert_eq!(world.holds_section(&section).as_deref(), Some("holder"));
    // The holder looks for more, and takes what is left before the waiters.
    assert_eq!(
        next(&world, &living(&other, "holder")).as_deref(),
        Some(two.as_str())
    );
    finish(&world, &two, "holder");
    let three = world.task("Three", Some(&section), &[]);
    let refused = world
        .store
        .start(&three, &detached("newcomer"), soon())
        .unwrap();
    assert_eq!(busy(refused), format!("section:{section}"), "b comes first");
    begin(&world, &two, &b);
    let tickets: i64 = world.ask("SELECT count(*) FROM tickets");
    assert_eq!(tickets, 0);
}

#[test]
fn a_waiter_for_a_task_blocks_no_waiter_for_its_section_and_vice_versa() {
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
    let refused = first.start(&one, &a, soon()).unwrap();
    assert_eq!(busy(refused), task.as_str());
    // The section is still free, and another runner takes it.
    begin(&world, &two, &b);
    let refused = first.start(&one, &a, soon()).unwrap();
    assert_eq!(busy(refused), format!("section:{section}"));
    // Now it waits for the section: at the task it must block no other runner.
    let _ = world.store.release(&plain.grant(), soon()).unwrap();
    let asked = Ask::new(&task, "quick").once(&world.store);
    let Acquired::Granted(Granted { lease, .. }) = asked else {
        panic!("{asked:?}");
    };
    let _ = world.store.release(&lease.grant(), soon()).unwrap();
    world
        .store
        .change(
            &two,
            &name("b"),
            &Change::To(Status::Pending),
            &Edit::default(),
            soon(),
        )
        .unwrap();
    started(first.start(&one, &a, soon()).unwrap());
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
    let refused = waiter.start(&two, &a, soon()).unwrap();
    assert_eq!(busy(refused), format!("section:{old}"));
    let moved = tenure_tasks::Edit {
        section: Some(new),
        ..tenure_tasks::Edit::default()
    };
    world.store.edit_task(&two, &moved, soon()).unwrap();
    started(waiter.start(&two, &a, soon()).unwrap());
    let tickets: Vec<String> = world
        .store
        .list(soon())
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
fn a_wait_that_would_close_a_cycle_is_refused() {
    let world = World::new();
    let (left, right) = (world.section("Left"), world.section("Right"));
    let (one, two) = (
        world.task("One", Some(&left), &[]),
        world.task("Two", Some(&right), &[]),
    );
    let (first, second) = (world.other(), world.other());
    let a = waiting(&first, living(&first, "a"));
    let b = waiting(&second, living(&second, "b"));
    started(first.start(&one, &a, soon()).unwrap());
    started(second.start(&two, &b, soon()).unwrap());
    let _ = busy(first.start(&two, &a, soon()).unwrap());
    let answer = second.start(&one, &b, soon()).unwrap();
    assert!(matches!(answer, Acquired::Deadlock(_)), "{answer:?}");
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
        let renewed = world
            .store
            .renew(&begun.lease.grant(), HOUR, soon())
            .unwrap();
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
    let _ = world.store.start(&tasks[1], &tied, soon()).unwrap();
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
    let error = world.store.start(&two, &detached("a"), soon()).unwrap_err();
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
            .change(
                &one,
                &name("x"),
                &Change::To(status),
                &Edit::default(),
                soon(),
            )
            .unwrap();
        let asked = world.store.start(&two, &detached("a"), soon());
        assert_eq!(asked.is_err(), blocked, "{status}");
        if asked.is_ok() {
            world
                .store
                .change(
                    &two,
                    &name("a"),
                    &Change::GiveBack,
                    &Edit::default(),
                    soon(),
                )
                .unwrap();
        }
    }
}

#[test]
fn the_history_has_the_end_of_each_lease_of_a_task() {
    let world = World::new();
    let one = world.task("One", None, &[]);
    let process = world.other();
    begin(&world, &one, &living(&process, "dead"));
    die(&world, process);
    begin(&world, &one, &detached("slow"));
    world.clock.pass(2 * HOUR);
    begin(&world, &one, &detached("good"));
    finish(&world, &one, "good");
    // The end of an abandoned task by another runner says why that was possible.
    let two = world.task("Two", None, &[]);
    begin(&world, &two, &detached("slow"));
    world.clock.pass(2 * HOUR);
    finish(&world, &two, "admin");
    let events = world
        .store
        .history(&HistoryQuery::default(), soon())
        .unwrap();
    assert_eq!(history::contradictions(&events), []);
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
