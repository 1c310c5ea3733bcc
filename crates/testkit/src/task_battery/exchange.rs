//! Export, import and merge.

use tenure_core::HolderId;
use tenure_tasks::{
    Change, Edit, ImportSummary, NewTask, Replica, SectionSummary, Status, TaskError, TaskQuery,
    TaskStore,
};

use super::{TaskRun, TaskSubject, add, by_name, new_task, runner, started};
use crate::limit::soon;

fn export(store: &dyn TaskStore) -> Vec<String> {
    let mut lines = Vec::new();
    store
        .export(&mut |line| lines.push(line.to_owned()), soon())
        .unwrap();
    lines
}

fn set(store: &dyn TaskStore, id: &str, status: Status) {
    let change = Change::To(status);
    store
        .change(id, &by_name("me"), &change, &Edit::default(), soon())
        .unwrap();
}

/// What one store exports another one imports, and exports again to the letter.
pub fn what_is_exported_can_be_imported(subject: &TaskSubject) {
    let run = TaskRun::begin(subject, "what_is_exported_can_be_imported");
    let store = run.open();
    let section = store.add_section("Backend", soon()).unwrap();
    store.add_section("Empty", soon()).unwrap();
    let mut before = add(&*store, "First", Some(&section.id), &[]);
    for (n, status) in Status::ALL.into_iter().enumerate() {
        let task = add(
            &*store,
            &format!("{status} {n} \u{1f512}"),
            None,
            &[&before],
        );
        if status != Status::InProgress {
            set(&*store, &task.id, status);
        }
        before = task;
    }
    let lines = export(&*store);
    assert_eq!(lines.len(), 2 + 1 + Status::ALL.len());
    let other = run.open_another("other");
    let done = other.import(&lines.join("\n"), soon()).unwrap();
    let tasks = u64::try_from(1 + Status::ALL.len()).unwrap();
    let summary = ImportSummary {
        sections: 2,
        added: tasks,
        ..ImportSummary::default()
    };
    assert_eq!(done, summary);
    assert_eq!(export(&*other), lines);
    // Once more: nothing changes. In another order: neither.
    for order in [lines.clone(), lines.iter().rev().cloned().collect()] {
        let done = other.import(&order.join("\n"), soon()).unwrap();
        let summary = ImportSummary {
            unchanged: tasks,
            ..ImportSummary::default()
        };
        assert_eq!(done, summary);
    }
    assert_eq!(export(&*other), lines);
    run.check_soundness(&*other);
}

/// Of an import with a bad line nothing is kept.
pub fn a_bad_line_imports_nothing(subject: &TaskSubject) {
    let run = TaskRun::begin(subject, "a_bad_line_imports_nothing");
    let store = run.open();
    let task = store.add_task(&new_task("One"), soon()).unwrap();
    let before = export(&*store);
    let good = format!("{{\"id\":\"{}\",\"title\":\"Changed\"}}", task.id);
    for bad in [
        "not JSON",
        "{\"title\":\"\"}",
        "{\"title\":\"Two\",\"status\":\"strange\"}",
        "{\"title\":\"Two\",\"dependsOn\":[\"nowhere\"]}",
        "{\"id\":\"x1\",\"title\":\"Two\",\"dependsOn\":[\"x1\"]}",
    ] {
        let answer = store.import(&format!("{good}\n\n{bad}\n"), soon());
        match answer {
            Err(TaskError::BadLines(lines)) => assert_eq!(lines[0].number, 3, "{lines:?}"),
            other => run.fail(&format!("{bad}: {other:?}")),
        }
        assert_eq!(export(&*store), before, "{bad}");
    }
    run.check_soundness(&*store);
}

/// Two clones change the same tasks apart and merge, in either order: both have the same then, with
/// the later change of each field, and a deleted task stays deleted.
pub fn two_clones_that_merge_have_the_same_tasks(subject: &TaskSubject) {
    let run = TaskRun::begin(subject, "two_clones_that_merge_have_the_same_tasks");
    if run.has_no_clones() {
        return;
    }
    let (here, there) = (run.open(), run.open_another("there"));
    let ids: Vec<String> = ["One", "Two", "Three"]
        .map(|title| here.add_task(&new_task(title), soon()).unwrap().id)
        .to_vec();
    let exchange = || {
        let theirs = there.replica(soon()).unwrap();
        let (both, _) = here.merge(&theirs, soon()).unwrap();
        there.merge(&both, soon()).unwrap();
        assert_eq!(here.replica(soon()).unwrap(), both);
        assert_eq!(there.replica(soon()).unwrap(), both);
    };
    exchange();
    let title = |text: &str| Edit {
        title: Some(text.into()),
        ..Edit::default()
    };
    here.edit_task(&ids[0], &title("Uno"), soon()).unwrap();
    there
        .change(
            &ids[0],
            &by_name("me"),
            &Change::To(Status::Skipped),
            &Edit::default(),
            soon(),
        )
        .unwrap();
    // Changed here, deleted there.
    here.edit_task(&ids[1], &title("Dos"), soon()).unwrap();
    there.delete_tasks(&[ids[1].clone()], soon()).unwrap();
    let dependency = Edit {
        add_dependencies: vec![ids[0].clone()],
        ..Edit::default()
    };
    here.edit_task(&ids[2], &dependency, soon()).unwrap();
    there.add_section("Backend", soon()).unwrap();
    exchange();
    for store in [&here, &there] {
        let one = store.find_task(&ids[0], soon()).unwrap();
        assert_eq!((one.title.as_str(), one.status), ("Uno", Status::Skipped));
        let gone = store.find_task(&ids[1], soon());
        assert!(matches!(gone, Err(TaskError::Deleted { .. })), "{gone:?}");
        let three = store.find_task(&ids[2], soon()).unwrap();
        assert_eq!(
            (three.depends_on, three.blockers),
            (vec![ids[0].clone()], 0)
        );
        assert_eq!(store.sections(soon()).unwrap().len(), 1);
        assert_eq!(store.tasks(&TaskQuery::default(), soon()).unwrap().len(), 2);
    }
    // Nothing is new now, and a note for the next sync is kept.
    let before = here.sync_state(soon()).unwrap();
    let (_, merged) = here.merge(&there.replica(soon()).unwrap(), soon()).unwrap();
    assert!(merged.is_nothing(), "{merged:?}");
    assert_eq!(here.sync_state(soon()).unwrap(), before);
    let changed = here.sync_state(soon()).unwrap();
    here.settle("a note", changed.changes, soon()).unwrap();
    let settled = here.sync_state(soon()).unwrap();
    assert_eq!(
        (settled.note.as_str(), settled.unshared.len()),
        ("a note", 0)
    );
    // From now on, only what changed since has to be shared.
    here.edit_task(&ids[0], &title("Eins"), soon()).unwrap();
    let unshared = here.sync_state(soon()).unwrap().unshared;
    assert_eq!(unshared, [ids[0].clone()]);
    let (part, _) = here.merge(&Replica::default(), soon()).unwrap();
    assert_eq!(part.tasks.keys().collect::<Vec<_>>(), [&ids[0]]);
    here.unsettle(soon()).unwrap();
    let all = here.sync_state(soon()).unwrap();
    // Two tasks, a deleted one, and the sections.
    assert_eq!((all.note.as_str(), all.unshared.len()), ("", 4));
    run.check_soundness(&*here);
}

/// A deletion of a section reaches the other clones, but never takes a section from a task or a runner. Of a
/// deletion and an addition, the later one wins.
pub fn a_deleted_section_goes_in_every_clone_once_no_task_is_in_it(subject: &TaskSubject) {
    let run = TaskRun::begin(
        subject,
        "a_deleted_section_goes_in_every_clone_once_no_task_is_in_it",
    );
    if run.has_no_clones() {
        return;
    }
    let (here, there) = (run.open(), run.open_another("there"));
    let exchange = || {
        for _ in 0..2 {
            here.merge(&there.replica(soon()).unwrap(), soon()).unwrap();
            there.merge(&here.replica(soon()).unwrap(), soon()).unwrap();
        }
        let both = [&here, &there].map(|store| {
            let sections = store.sections(soon()).unwrap().into_iter();
            sections
                .map(|summary| (summary.section.name, summary.tasks))
                .collect::<Vec<_>>()
        });
        assert_eq!(both[0], both[1]);
        let both = [&here, &there].map(|store| store.replica(soon()).unwrap());
        assert_eq!(both[0], both[1]);
        here.sections(soon()).unwrap()
    };
    let names = |sections: Vec<SectionSummary>| -> Vec<String> {
        let names = sections.into_iter().map(|summary| summary.section.name);
        names.collect()
    };
    let me = HolderId::parse("me").unwrap();
    let delete = |store: &dyn TaskStore, name: &str| {
        let section = store.find_section(name, soon()).unwrap();
        store
            .delete_section(&section.id, None, &me, soon())
            .unwrap();
    };
    for name in ["Backend", "Docs"] {
        here.add_section(name, soon()).unwrap();
    }
    assert_eq!(names(exchange()), ["Backend", "Docs"]);
    delete(&*here, "Docs");
    assert_eq!(names(exchange()), ["Backend"]);
    // Deleted here, and a task added to it there.
    delete(&*here, "Backend");
    let section = there.find_section("Backend", soon()).unwrap().id;
    let new = NewTask {
        section: Some(section),
        ..new_task("In it")
    };
    let task = there.add_task(&new, soon()).unwrap();
    let kept = exchange();
    assert_eq!((kept.len(), kept[0].tasks), (1, 1));
    // A runner holds it there: it stays until the runner is gone, and then it goes everywhere.
    let begun = started(
        there
            .start(&task.id, &runner(&*there, "me"), soon())
            .unwrap(),
    );
    let out = Edit {
        section: Some(String::new()),
        ..Edit::default()
    };
    here.edit_task(&task.id, &out, soon()).unwrap();
    there.merge(&here.replica(soon()).unwrap(), soon()).unwrap();
    assert_eq!(there.sections(soon()).unwrap().len(), 1);
    there.abandon(&begun.lease, soon()).unwrap();
    assert_eq!(names(exchange()), Vec::<String>::new());
    // Added again here, and deleted there before that.
    here.add_section("Docs", soon()).unwrap();
    assert_eq!(names(exchange()), ["Docs"]);
    delete(&*there, "Docs");
    delete(&*here, "Docs");
    here.add_section("docs", soon()).unwrap();
    assert_eq!(names(exchange()), ["Docs"], "with the older spelling");
    run.check_soundness(&*there);
}

/// Another clone's end of a task waits until the runner that works on it here is done.
pub fn a_merge_leaves_a_task_alone_while_a_runner_works_on_it(subject: &TaskSubject) {
    let run = TaskRun::begin(
        subject,
        "a_merge_leaves_a_task_alone_while_a_runner_works_on_it",
    );
    if run.has_no_clones() {
        return;
    }
    let (here, there) = (run.open(), run.open_another("there"));
    let id = here.add_task(&new_task("One"), soon()).unwrap().id;
    there.merge(&here.replica(soon()).unwrap(), soon()).unwrap();
    let begun = started(here.start(&id, &runner(&*here, "me"), soon()).unwrap());
    there
        .delete_tasks(std::slice::from_ref(&id), soon())
        .unwrap();
    let theirs = there.replica(soon()).unwrap();
    let (_, merged) = here.merge(&theirs, soon()).unwrap();
    assert_eq!((merged.held, merged.deleted), (1, 0));
    assert_eq!(
        here.find_task(&id, soon()).unwrap().status,
        Status::InProgress
    );
    here.abandon(&begun.lease, soon()).unwrap();
    let (_, merged) = here.merge(&theirs, soon()).unwrap();
    assert_eq!((merged.held, merged.deleted), (0, 1));
    run.check_soundness(&*here);
}
