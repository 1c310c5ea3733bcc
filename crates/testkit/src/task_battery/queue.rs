//! G8, G9: waiters for any task, and runners that share sections.

use std::time::Duration;

use tenure_core::{Acquired, Busy, EventKind, HistoryQuery, Priority, Waited};
use tenure_tasks::{Change, Edit, Proof, Shortage, Status, TaskStore, Withdrawal};

use super::{
    TTL, TaskRun, TaskSubject, add, busy, by_name, new_task, runner, started, waiting_runner,
};
use crate::limit::{LIMIT, soon};

/// Completes a task in the name of its runner.
fn complete(store: &dyn TaskStore, id: &str, name: &str) {
    let done = Change::To(Status::Completed);
    store
        .change(id, &by_name(name), &done, &Edit::default(), soon())
        .unwrap();
}

/// Each new task goes to the waiter that came first, whichever of them asks first.
pub fn ready_tasks_go_to_the_waiters_in_the_order_in_which_they_came(subject: &TaskSubject) {
    let run = TaskRun::begin(
        subject,
        "ready_tasks_go_to_the_waiters_in_the_order_in_which_they_came",
    );
    let adder = run.open();
    // A handle for each, as if each were a process of its own.
    let names = ["first", "second", "third", "fourth"];
    let stores = names.map(|_| run.open());
    let waiters: Vec<_> = names
        .iter()
        .zip(&stores)
        .map(|(name, store)| (store, waiting_runner(&**store, name)))
        .collect();
    for (position, (store, waiter)) in waiters.iter().enumerate() {
        let busy = busy(store.next(waiter, soon()).unwrap());
        assert_eq!(busy.position.unwrap().ahead, position);
        assert_eq!(busy.shortage, Some(Shortage::NothingLeft));
    }
    for turn in 0..names.len() {
        let task = adder.add_task(&new_task(names[turn]), soon()).unwrap();
        // The last one asks first.
        for (store, waiter) in waiters[turn + 1..].iter().rev() {
            let busy = busy(store.next(waiter, soon()).unwrap());
            assert_eq!(busy.shortage, Some(Shortage::Locked));
        }
        let (store, waiter) = &waiters[turn];
        let got = started(store.next(waiter, soon()).unwrap());
        assert_eq!(got.task.id, task.id);
    }
    let fifth = run.open();
    adder.add_task(&new_task("at once"), soon()).unwrap();
    started(fifth.next(&runner(&*fifth, "fifth"), soon()).unwrap());
    // Each grant says whether its runner waited, although it had its ticket for any task and not for this one.
    let events = adder.history(&HistoryQuery::default(), soon()).unwrap();
    let granted = events.iter().filter(|it| it.kind == EventKind::Granted);
    let waited: Vec<(&str, bool)> = granted
        .map(|event| (event.holder.as_str(), event.waited.is_some()))
        .collect();
    let expected = names.map(|name| (name, true));
    assert_eq!(waited[..names.len()], expected);
    assert_eq!(waited[names.len()..], [("fifth", false)]);
    run.check_soundness(&*adder);
}

/// Priority overtakes; a waiter that parks loses its turn but not its position; one that leaves loses
/// both.
pub fn an_urgent_waiter_overtakes_and_a_parked_one_comes_back(subject: &TaskSubject) {
    let run = TaskRun::begin(
        subject,
        "an_urgent_waiter_overtakes_and_a_parked_one_comes_back",
    );
    let adder = run.open();
    let (first, second, urgent) = (run.open(), run.open(), run.open());
    let a = waiting_runner(&*first, "a");
    let b = waiting_runner(&*second, "b");
    let mut c = waiting_runner(&*urgent, "c");
    c.priority = Priority::new(9).unwrap();
    let ahead = |answer| busy(answer).position.unwrap().ahead;
    assert_eq!(ahead(first.next(&a, soon()).unwrap()), 0);
    assert_eq!(ahead(second.next(&b, soon()).unwrap()), 1);
    assert_eq!(ahead(urgent.next(&c, soon()).unwrap()), 0);
    adder.add_task(&new_task("One"), soon()).unwrap();
    busy(first.next(&a, soon()).unwrap());
    let got = started(urgent.next(&c, soon()).unwrap());
    complete(&*urgent, &got.task.id, "c");
    // Parked, the first waiter lets the second one go first, and then is the first again.
    first
        .stop_waiting(None, &a, Withdrawal::Park, soon())
        .unwrap();
    adder.add_task(&new_task("Two"), soon()).unwrap();
    let got = started(second.next(&b, soon()).unwrap());
    complete(&*second, &got.task.id, "b");
    assert_eq!(ahead(second.next(&b, soon()).unwrap()), 0);
    assert_eq!(ahead(first.next(&a, soon()).unwrap()), 0);
    assert_eq!(ahead(second.next(&b, soon()).unwrap()), 1);
    second
        .stop_waiting(None, &b, Withdrawal::Leave, soon())
        .unwrap();
    assert_eq!(ahead(second.next(&b, soon()).unwrap()), 1);
    // Its name brings the position back to another process, too.
    first
        .stop_waiting(None, &a, Withdrawal::Park, soon())
        .unwrap();
    let again = run.open();
    let back = busy(again.next(&waiting_runner(&*again, "a"), soon()).unwrap());
    let back = back.position.unwrap();
    assert_eq!((back.ahead, back.resumed), (0, true));
    run.check_soundness(&*adder);
}

/// Waits until something changed, at most for as long as the answer says.
fn sleep(store: &dyn TaskStore, busy: &Busy) -> Waited {
    store.wait(&busy.watched(), LIMIT).unwrap()
}

/// A sleeping waiter is woken by everything that makes a task ready for it.
pub fn a_waiter_for_any_task_is_woken_when_one_becomes_ready(subject: &TaskSubject) {
    type Act = fn(&dyn TaskStore, &str, &str);
    let acts: [(&str, Act); 6] = [
        ("a new task", |store, _, _| {
            store.add_task(&new_task("New"), soon()).unwrap();
        }),
        ("the end of a dependency", |store, first, _| {
            complete(store, first, "worker");
        }),
        ("a task that is given back", |store, first, _| {
            let by = by_name("worker");
            store
                .change(first, &by, &Change::GiveBack, &Edit::default(), soon())
                .unwrap();
        }),
        ("a dependency that is dropped", |store, first, second| {
            let edit = Edit {
                drop_dependencies: vec![first.to_owned()],
                ..Edit::default()
            };
            store.edit_task(second, &edit, soon()).unwrap();
        }),
        ("an import", |store, _, _| {
            store.import("{\"title\":\"Imported\"}", soon()).unwrap();
        }),
        ("force", |store, first, _| {
            let key = tenure_tasks::key_of(first).unwrap();
            let admin = tenure_core::HolderId::parse("admin").unwrap();
            let _ = store.force(&key, None, &admin, None, soon()).unwrap();
        }),
    ];
    for (what, act) in acts {
        let run = TaskRun::begin(
            subject,
            "a_waiter_for_any_task_is_woken_when_one_becomes_ready",
        );
        let (holder, sleeper) = (run.open(), run.open());
        let first = add(&*holder, "First", None, &[]);
        let second = add(&*holder, "Second", None, &[&first]);
        started(
            holder
                .start(&first.id, &runner(&*holder, "worker"), soon())
                .unwrap(),
        );
        let waiter = waiting_runner(&*sleeper, "waiter");
        std::thread::scope(|scope| {
            let (asleep, is_asleep) = std::sync::mpsc::channel();
            let waiting = scope.spawn({
                let (sleeper, waiter) = (&sleeper, &waiter);
                move || loop {
                    match sleeper.next(waiter, soon()).unwrap() {
                        Acquired::Granted(started) => return started.task.title,
                        Acquired::Busy(busy) => {
                            let _ = asleep.send(());
                            assert_eq!(sleep(&**sleeper, &busy), Waited::Changed, "{what}");
                        }
                        other => panic!("{other:?}"),
                    }
                }
            });
            is_asleep.recv().unwrap();
            act(&*holder, &first.id, &second.id);
            let got = waiting.join().unwrap();
            assert!(!got.is_empty(), "{what}");
        });
    }
}

/// A runner that waits for one task holds neither its key nor its section's, and has one turn only.
pub fn a_waiter_for_a_task_takes_no_key_while_it_waits(subject: &TaskSubject) {
    let run = TaskRun::begin(subject, "a_waiter_for_a_task_takes_no_key_while_it_waits");
    let (holder, waiter) = (run.open(), run.open());
    let section = holder.add_section("Backend", soon()).unwrap();
    let task = add(&*holder, "One", Some(&section.id), &[]);
    // Another runner holds the task by itself, without its section.
    let key = task.key().unwrap();
    let ask = crate::Ask::new(&key, "holder");
    let claim = ask.claim(&*holder);
    let Acquired::Granted(granted) = holder.acquire(&claim, soon()).unwrap() else {
        run.fail("a free key was not granted");
    };
    let one = waiting_runner(&*waiter, "waiter");
    let refused = busy(waiter.start(&task.id, &one, soon()).unwrap());
    assert_eq!(refused.key, key);
    let section_key = section.key().unwrap();
    let known = holder.inspect(&section_key, soon()).unwrap();
    assert!(known.leases.is_empty(), "{known:?}");
    let other = add(&*holder, "Two", Some(&section.id), &[]);
    let works = runner(&*holder, "other");
    started(holder.start(&other.id, &works, soon()).unwrap());
    let _ = holder.release(&granted.lease.grant(), soon()).unwrap();
    // Now the section is missing, and it waits for that.
    let refused = busy(waiter.start(&task.id, &one, soon()).unwrap());
    assert_eq!(refused.key, section_key);
    complete(&*holder, &other.id, "other");
    holder.leave_idle_sections(&works.holder, soon()).unwrap();
    let got = started(waiter.start(&task.id, &one, soon()).unwrap());
    assert_eq!(got.section.unwrap().key, section_key);
    for key in [key, section_key] {
        assert!(holder.inspect(&key, soon()).unwrap().queue.is_empty());
    }
    run.check_soundness(&*holder);
}

/// One runner at a time works in a section, on one task after the other.
pub fn a_section_is_held_by_one_runner_until_it_works_there_no_more(subject: &TaskSubject) {
    let run = TaskRun::begin(
        subject,
        "a_section_is_held_by_one_runner_until_it_works_there_no_more",
    );
    let (one, two) = (run.open(), run.open());
    let section = one.add_section("Backend", soon()).unwrap();
    let first = add(&*one, "First", Some(&section.id), &[]);
    let second = add(&*one, "Second", Some(&section.id), &[]);
    let third = add(&*one, "Third", Some(&section.id), &[]);
    let (a, b) = (runner(&*one, "a"), runner(&*two, "b"));
    let begun = started(one.start(&first.id, &a, soon()).unwrap());
    let section_lease = begun.section.unwrap();
    let refused = |id: &str| {
        let busy = busy(two.start(id, &b, soon()).unwrap());
        assert_eq!(busy.key, section.key().unwrap());
        let none = self::busy(two.next(&b, soon()).unwrap());
        assert_eq!(none.shortage, Some(Shortage::Locked));
    };
    refused(&second.id);
    // Its own runner may work on a second task there, under the same lease of the section.
    let also = started(one.start(&second.id, &a, soon()).unwrap());
    assert_eq!(also.section.unwrap().token, section_lease.token);
    complete(&*one, &first.id, "a");
    refused(&third.id);
    let proof = Proof::Token(also.lease.token);
    one.change(
        &second.id,
        &proof,
        &Change::To(Status::Completed),
        &Edit::default(),
        soon(),
    )
    .unwrap();
    // Between two tasks the section is still its own.
    refused(&third.id);
    let got = started(one.next(&a, soon()).unwrap());
    assert_eq!(got.task.id, third.id);
    one.change(
        &third.id,
        &by_name("a"),
        &Change::GiveBack,
        &Edit::default(),
        soon(),
    )
    .unwrap();
    let got = started(two.start(&third.id, &b, soon()).unwrap());
    assert!(got.section.unwrap().token > section_lease.token);
    // The last task of a section frees it.
    complete(&*two, &third.id, "b");
    let known = one.inspect(&section.key().unwrap(), soon()).unwrap();
    assert!(known.is_idle(), "{known:?}");
    assert!(TTL > Duration::from_secs(60), "no lease expired meanwhile");
    run.check_soundness(&*one);
}
