//! Status, dependencies, retries, fields and deletion: what one process sees.

use tenure_core::{Acquired, EventKind, HistoryQuery, HolderId, Priority, Token};
use tenure_tasks::{
    Change, Edit, NewTask, Proof, Shortage, Status, Task, TaskError, TaskQuery, TaskStore,
};

use super::{TaskRun, TaskSubject, add, by_name, new_task, runner, started};
use crate::limit::soon;

fn set(store: &dyn TaskStore, id: &str, status: Status) -> Task {
    let change = Change::To(status);
    store
        .change(id, &by_name("someone"), &change, &Edit::default(), soon())
        .unwrap()
        .task
}

/// A dependency blocks until it is completed or skipped, and again when it is reopened.
pub fn a_task_is_begun_only_when_its_dependencies_are_done(subject: &TaskSubject) {
    let run = TaskRun::begin(
        subject,
        "a_task_is_begun_only_when_its_dependencies_are_done",
    );
    let store = run.open();
    let (one, two) = (
        add(&*store, "One", None, &[]),
        add(&*store, "Two", None, &[]),
    );
    let last = add(&*store, "Last", None, &[&one, &two]);
    assert_eq!(last.blockers, 2);
    let me = runner(&*store, "me");
    let blocked = |count: u64| {
        let found = store.find_task(&last.id, soon()).unwrap();
        assert_eq!(found.blockers, count);
        match store.start(&last.id, &me, soon()) {
            Err(TaskError::Blocked { by, .. }) => {
                assert_eq!(u64::try_from(by.len()).unwrap(), count);
            }
            other => run.fail(&format!("{other:?}")),
        }
    };
    blocked(2);
    set(&*store, &one.id, Status::Completed);
    blocked(1);
    for not_done in [Status::Review, Status::Failed, Status::Pending] {
        set(&*store, &two.id, not_done);
        blocked(1);
    }
    set(&*store, &two.id, Status::Skipped);
    let ready = TaskQuery {
        ready: true,
        ..TaskQuery::default()
    };
    let listed = |query: &TaskQuery| -> Vec<String> {
        let tasks = store.tasks(query, soon()).unwrap();
        tasks.into_iter().map(|task| task.title).collect()
    };
    assert_eq!(listed(&ready), ["Last"]);
    let begun = started(store.next(&me, soon()).unwrap());
    assert_eq!(begun.task.id, last.id);
    set_back(&*store, &last.id, begun.lease.token);
    set(&*store, &one.id, Status::Pending);
    blocked(1);
    let edit = Edit {
        drop_dependencies: vec![one.id.clone()],
        ..Edit::default()
    };
    assert_eq!(
        store.edit_task(&last.id, &edit, soon()).unwrap().blockers,
        0
    );
    let dependents = |task: &Task| store.dependents(&task.id, soon()).unwrap();
    assert_eq!(dependents(&one).len(), 0);
    assert_eq!(dependents(&two).len(), 1);
    run.check_soundness(&*store);
}

fn set_back(store: &dyn TaskStore, id: &str, token: Token) {
    let proof = Proof::Token(token);
    store
        .change(id, &proof, &Change::GiveBack, &Edit::default(), soon())
        .unwrap();
}

/// A dependency that would close a cycle is refused, and changes nothing.
pub fn no_task_depends_on_itself(subject: &TaskSubject) {
    let run = TaskRun::begin(subject, "no_task_depends_on_itself");
    let store = run.open();
    let one = add(&*store, "One", None, &[]);
    let two = add(&*store, "Two", None, &[&one]);
    let three = add(&*store, "Three", None, &[&two]);
    for (task, on) in [(&one, &three), (&one, &two), (&one, &one)] {
        let edit = Edit {
            title: Some("Changed".into()),
            add_dependencies: vec![on.id.clone()],
            ..Edit::default()
        };
        let answer = store.edit_task(&task.id, &edit, soon());
        assert!(
            matches!(answer, Err(TaskError::Circle { .. })),
            "{answer:?}"
        );
        let after = store.find_task(&task.id, soon()).unwrap();
        assert_eq!(&after, task);
    }
    run.check_soundness(&*store);
}

/// Begin, give back, fail, complete: the status and the leases always agree.
pub fn the_status_of_a_task_follows_the_work_on_it(subject: &TaskSubject) {
    let run = TaskRun::begin(subject, "the_status_of_a_task_follows_the_work_on_it");
    let store = run.open();
    let task = add(&*store, "One", None, &[]);
    let me = runner(&*store, "me");
    let held = || {
        let known = store.inspect(&task.key().unwrap(), soon()).unwrap();
        !known.leases.is_empty()
    };
    assert_eq!(task.status, Status::Pending);
    for (change, status, attempts) in [
        (Change::GiveBack, Status::Pending, 0),
        (Change::To(Status::Review), Status::Review, 0),
        (Change::To(Status::Completed), Status::Completed, 0),
        (
            Change::Failed {
                error: "broken".into(),
            },
            Status::Failed,
            1,
        ),
        (Change::To(Status::Skipped), Status::Skipped, 0),
    ] {
        let begun = started(store.start(&task.id, &me, soon()).unwrap());
        assert_eq!(begun.task.status, Status::InProgress);
        assert_eq!(begun.task.runner.as_ref(), Some(&me.holder.id));
        assert_eq!(begun.task.token, begun.lease.token);
        assert!(held());
        // In progress is begun, never written.
        let write = Change::To(Status::InProgress);
        let proof = Proof::Token(begun.lease.token);
        let answer = store.change(&task.id, &proof, &write, &Edit::default(), soon());
        assert!(
            matches!(answer, Err(TaskError::BadText { .. })),
            "{answer:?}"
        );
        let edit = Edit {
            description: Some(format!("{change:?}")),
            ..Edit::default()
        };
        let changed = store
            .change(&task.id, &proof, &change, &edit, soon())
            .unwrap();
        assert_eq!(changed.was, Status::InProgress);
        assert_eq!(changed.task.status, status);
        assert_eq!(changed.task.attempts, attempts, "{change:?}");
        assert_eq!(changed.task.description, edit.description);
        assert!(!held());
    }
    // The same, by hand.
    for status in [Status::Pending, Status::Failed, Status::Completed] {
        assert_eq!(set(&*store, &task.id, status).status, status);
    }
    run.check_soundness(&*store);
}

/// A task that failed comes back after a pause, and its attempts are counted.
pub fn a_task_that_failed_is_tried_again_later(subject: &TaskSubject) {
    let run = TaskRun::begin(subject, "a_task_that_failed_is_tried_again_later");
    let store = run.open();
    let task = add(&*store, "One", None, &[]);
    let me = runner(&*store, "me");
    let retry = Change::Retry {
        error: "not yet".into(),
    };
    let mut attempts = 0;
    // On a slow machine a pause may pass before the store is asked. The next one is twice as long.
    let none = loop {
        let begun = match store.next(&me, soon()).unwrap() {
            Acquired::Busy(busy) if attempts > 0 => break busy,
            answer => started(answer),
        };
        let proof = Proof::Token(begun.lease.token);
        let changed = store
            .change(&task.id, &proof, &retry, &Edit::default(), soon())
            .unwrap();
        attempts += 1;
        assert_eq!(changed.task.status, Status::Pending);
        assert_eq!(changed.task.attempts, attempts);
        assert_eq!(changed.task.last_error.as_deref(), Some("not yet"));
        assert!(changed.task.not_before.is_some());
    };
    let due = store.find_task(&task.id, soon()).unwrap().not_before;
    match none.shortage {
        Some(Shortage::Later { at }) => assert_eq!(Some(at), due),
        other => run.fail(&format!("{other:?}")),
    }
    assert!(none.look_again.is_some());
    // By name it can be begun at once, and then it does not wait any longer.
    let begun = started(store.start(&task.id, &me, soon()).unwrap());
    assert_eq!(begun.task.not_before, None);
    assert_eq!(begun.task.attempts, attempts);
    run.check_soundness(&*store);
}

/// A command that is repeated after a deletion must not reach another task.
pub fn the_name_of_a_deleted_task_finds_no_other(subject: &TaskSubject) {
    let run = TaskRun::begin(subject, "the_name_of_a_deleted_task_finds_no_other");
    let store = run.open();
    let lines = r#"{"id": "job-2", "title": "Fix bug"}
{"id": "job-20", "title": "fix bug"}
{"id": "other-1", "title": "Other"}"#;
    store.import(lines, soon()).unwrap();
    let found = |given: &str| store.find_task(given, soon()).map(|task| task.id);
    assert_eq!(found("job-2").unwrap(), "job-2");
    assert_eq!(found("Fix bug").unwrap(), "job-2");
    store.delete_tasks(&["job-2".to_owned()], soon()).unwrap();
    // Its id, its title, a prefix of its id, and its title in other letters.
    for given in ["job-2", "task:job-2", "Fix bug", "job-", "FIX BUG"] {
        let answer = found(given);
        assert!(
            matches!(&answer, Err(TaskError::Deleted { id, .. }) if id == "job-2"),
            "{given}: {answer:?}"
        );
    }
    // What can't mean it is found as before.
    for given in ["job-20", "task:job-20", "fix bug"] {
        assert_eq!(found(given).unwrap(), "job-20", "{given}");
    }
    for given in ["other-1", "other", "other-", "OTHER"] {
        assert_eq!(found(given).unwrap(), "other-1", "{given}");
    }
}

/// Names, prefixes and the order of lists.
pub fn a_task_is_found_by_id_title_and_prefix_and_listed_in_order(subject: &TaskSubject) {
    let run = TaskRun::begin(
        subject,
        "a_task_is_found_by_id_title_and_prefix_and_listed_in_order",
    );
    let store = run.open();
    let section = store.add_section("Backend", soon()).unwrap();
    let again = store.add_section("BACKEND", soon());
    assert!(
        matches!(again, Err(TaskError::SectionExists(_))),
        "{again:?}"
    );
    let urgent = NewTask {
        priority: Priority::new(9).unwrap(),
        ..new_task("Urgent")
    };
    let first = add(&*store, "First", Some(&section.id), &[]);
    let second = add(&*store, "Second", None, &[]);
    let urgent = store.add_task(&urgent, soon()).unwrap();
    for given in [&first.id, "First", "first", &first.id[..8]] {
        assert_eq!(store.find_task(given, soon()).unwrap().id, first.id);
    }
    for given in [&section.id, "Backend", "backend", &section.id[..8]] {
        assert_eq!(store.find_section(given, soon()).unwrap(), section);
    }
    let twin = add(&*store, "First", None, &[]);
    let answer = store.find_task("First", soon());
    assert!(
        matches!(&answer, Err(TaskError::Ambiguous { candidates, .. }) if candidates.len() == 2),
        "{answer:?}"
    );
    store.delete_tasks(&[twin.id], soon()).unwrap();
    let answer = store.find_task("Nothing", soon());
    assert!(matches!(answer, Err(TaskError::NoTask(_))), "{answer:?}");
    started(
        store
            .start(&second.id, &runner(&*store, "me"), soon())
            .unwrap(),
    );
    let ids = |query: TaskQuery| -> Vec<String> {
        let tasks = store.tasks(&query, soon()).unwrap();
        tasks.into_iter().map(|task| task.id).collect()
    };
    let all = [&second.id, &urgent.id, &first.id].map(String::clone);
    assert_eq!(ids(TaskQuery::default()), all);
    assert_eq!(
        ids(TaskQuery {
            limit: Some(2),
            ..TaskQuery::default()
        }),
        all[..2]
    );
    assert_eq!(
        ids(TaskQuery {
            section: Some(section.id.clone()),
            ..TaskQuery::default()
        }),
        [first.id.as_str()]
    );
    assert_eq!(
        ids(TaskQuery {
            search: Some("GENT".into()),
            ..TaskQuery::default()
        }),
        [urgent.id.as_str()]
    );
    let sections = store.sections(soon()).unwrap();
    assert_eq!(sections.len(), 1);
    assert_eq!((sections[0].tasks, sections[0].open), (1, 1));
    run.check_soundness(&*store);
}

/// A section with tasks is deleted only if the caller says where they go, and not while a runner holds it.
pub fn a_section_is_deleted_unless_a_task_or_a_runner_needs_it(subject: &TaskSubject) {
    let run = TaskRun::begin(
        subject,
        "a_section_is_deleted_unless_a_task_or_a_runner_needs_it",
    );
    let store = run.open();
    let me = HolderId::parse("me").unwrap();
    let backend = store.add_section("Backend", soon()).unwrap();
    let server = store.add_section("Server", soon()).unwrap();
    let task = add(&*store, "One", Some(&backend.id), &[]);
    let done = add(&*store, "Two", Some(&backend.id), &[]);
    let delete = |move_to: Option<&str>| store.delete_section(&backend.id, move_to, &me, soon());
    set(&*store, &done.id, Status::Completed);
    let answer = delete(None);
    assert!(
        matches!(
            answer,
            Err(TaskError::SectionInUse {
                tasks: 2,
                open: 1,
                ..
            })
        ),
        "{answer:?}"
    );
    for nowhere in [&backend.id, "nowhere"] {
        assert!(delete(Some(nowhere)).is_err(), "{nowhere}");
    }
    let begun = started(
        store
            .start(&task.id, &runner(&*store, "other"), soon())
            .unwrap(),
    );
    let answer = delete(Some(&server.id));
    assert!(
        matches!(&answer, Err(TaskError::SectionLocked { lease, .. }) if lease.holder.id.as_str() == "other"),
        "{answer:?}"
    );
    store.abandon(&begun.lease, soon()).unwrap();
    let moved = delete(Some(&server.id)).unwrap();
    assert_eq!(
        moved.to_string(),
        "section \"Backend\"; 2 tasks moved to \"Server\""
    );
    for id in [&task.id, &done.id] {
        let section = store.find_task(id, soon()).unwrap().section;
        assert_eq!(section, Some(server.clone()));
    }
    let gone = delete(None);
    assert!(matches!(gone, Err(TaskError::NoSection(_))), "{gone:?}");
    let query = HistoryQuery {
        key: Some(backend.key().unwrap()),
        ..HistoryQuery::default()
    };
    let events = store.history(&query, soon()).unwrap();
    let last = events.iter().max_by_key(|event| event.id).unwrap();
    assert_eq!(
        (last.kind, last.holder.as_str()),
        (EventKind::Deleted, "me")
    );
    let left = store
        .delete_section(&server.id, Some(""), &me, soon())
        .unwrap();
    assert_eq!((left.moved, left.moved_to), (2, None));
    assert_eq!(store.find_task(&task.id, soon()).unwrap().section, None);
    // Nothing can be put into it any more.
    let edit = Edit {
        section: Some(server.id.clone()),
        ..Edit::default()
    };
    let late = NewTask {
        section: Some(server.id.clone()),
        ..new_task("Late")
    };
    for answer in [
        store.edit_task(&task.id, &edit, soon()),
        store.add_task(&late, soon()),
    ] {
        assert!(matches!(answer, Err(TaskError::NoSection(_))), "{answer:?}");
    }
    // Its name is free.
    store.add_section("Server", soon()).unwrap();
    run.check_soundness(&*store);
}

/// A runner that works on a task can rely on its section, and on the task itself.
pub fn a_task_that_a_runner_works_on_is_neither_moved_nor_deleted(subject: &TaskSubject) {
    let run = TaskRun::begin(
        subject,
        "a_task_that_a_runner_works_on_is_neither_moved_nor_deleted",
    );
    let store = run.open();
    let section = store.add_section("Backend", soon()).unwrap();
    let task = add(&*store, "One", None, &[]);
    let free = add(&*store, "Two", None, &[&task]);
    let begun = started(
        store
            .start(&task.id, &runner(&*store, "me"), soon())
            .unwrap(),
    );
    let moved = Edit {
        title: Some("Moved".into()),
        section: Some(section.id.clone()),
        ..Edit::default()
    };
    let answer = store.edit_task(&task.id, &moved, soon());
    assert!(
        matches!(answer, Err(TaskError::Locked { .. })),
        "{answer:?}"
    );
    assert_eq!(store.find_task(&task.id, soon()).unwrap(), begun.task);
    // All or none.
    let answer = store.delete_tasks(&[free.id.clone(), task.id.clone()], soon());
    assert!(
        matches!(answer, Err(TaskError::Locked { .. })),
        "{answer:?}"
    );
    assert_eq!(store.tasks(&TaskQuery::default(), soon()).unwrap().len(), 2);
    // Its other fields may be changed.
    let renamed = Edit {
        title: Some("Uno".into()),
        ..Edit::default()
    };
    assert_eq!(
        store.edit_task(&task.id, &renamed, soon()).unwrap().title,
        "Uno"
    );
    set_back(&*store, &task.id, begun.lease.token);
    let after = store.edit_task(&task.id, &moved, soon()).unwrap();
    assert_eq!(after.section.unwrap().id, section.id);
    let deleted = store
        .delete_tasks(std::slice::from_ref(&task.id), soon())
        .unwrap();
    assert_eq!((deleted.len(), deleted[0].dependents), (1, 1));
    assert_eq!(store.find_task(&free.id, soon()).unwrap().blockers, 0);
    run.check_soundness(&*store);
}

/// No value of a field is lost when it is changed.
pub fn every_earlier_value_of_a_field_is_in_the_history(subject: &TaskSubject) {
    let run = TaskRun::begin(subject, "every_earlier_value_of_a_field_is_in_the_history");
    let store = run.open();
    let task = add(&*store, "One", None, &[]);
    for title in ["Two", "Three"] {
        // A change gets a later time than the one before, even in the same millisecond.
        let edit = Edit {
            title: Some(title.into()),
            priority: Priority::new(if title == "Two" { 7 } else { 8 }),
            ..Edit::default()
        };
        store.edit_task(&task.id, &edit, soon()).unwrap();
    }
    set(&*store, &task.id, Status::Skipped);
    let past = store.task_history(&task.id, soon()).unwrap();
    let values = |field: &str| -> Vec<&str> {
        let of = past.iter().filter(|past| past.field == field);
        of.map(|past| past.value.as_str()).collect()
    };
    assert_eq!(values("title"), ["Two", "One"]);
    assert_eq!(values("priority"), ["7", "5"]);
    assert_eq!(values("status"), ["pending"]);
    for pair in past.windows(2) {
        assert!(pair[0].until >= pair[1].until, "the newest first: {past:?}");
    }
    run.check_soundness(&*store);
}
