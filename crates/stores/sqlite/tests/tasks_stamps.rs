//! Other programs write tasks with plain SQL: the triggers stamp every change, and a clone that merges
//! later sees it.

use std::time::Duration;

use clones::{CloneDb, at, begin, copy_at, name, times};
use tenure_core::{HolderId, Priority, Store};
use tenure_tasks::{Change, Edit, Proof, Replica, Stamped, Status, TaskError, TaskStore as _};
use tenure_testkit::soon;

use crate::clones;

#[test]
fn every_field_is_stamped_when_another_program_changes_it() {
    let here = CloneDb::new();
    here.sql("INSERT INTO sections (id, name) VALUES ('s', 'Backend')");
    let (id, on) = (here.add("One"), here.add("Two"));
    for (field, set) in [
        (0, "title = 'New'"),
        (1, "description = 'Long'"),
        (2, "section_id = 's'"),
        (3, "priority = 9"),
        (4, "status = 'review'"),
        (4, "attempts = attempts + 1"),
        (4, "last_error = 'oops'"),
    ] {
        let (before, count) = (
            here.copy(&id),
            here.store.sync_state(soon()).unwrap().changes,
        );
        here.sql(&format!("UPDATE tasks SET {set} WHERE id = '{id}'"));
        let after = here.copy(&id);
        for (index, (was, is)) in times(&before).into_iter().zip(times(&after)).enumerate() {
            assert_eq!(is > was, index == field, "{set}: field {index}");
        }
        assert!(
            here.store.sync_state(soon()).unwrap().changes > count,
            "{set}"
        );
        // The same value again is no change.
        let again = set.replace("attempts + 1", "attempts");
        here.sql(&format!("UPDATE tasks SET {again} WHERE id = '{id}'"));
        assert_eq!(here.copy(&id), after, "{set}");
    }
    let mut seen = Vec::new();
    for sql in [
        format!("INSERT INTO task_dependencies VALUES ('{id}', '{on}')"),
        "DELETE FROM task_dependencies".to_owned(),
        format!("INSERT INTO task_dependencies VALUES ('{id}', '{on}')"),
    ] {
        here.sql(&sql);
        seen.push(here.copy(&id).depends_on[&on].clone());
    }
    assert!(
        seen[0].at < seen[1].at && seen[1].at < seen[2].at,
        "{seen:?}"
    );
    assert!(seen[0].value && !seen[1].value && seen[2].value);
    here.sql(&format!("DELETE FROM tasks WHERE id = '{on}'"));
    let replica = here.store.replica(soon()).unwrap();
    assert!(replica.deleted.contains_key(&on));
    assert!(replica.tasks[&id].depends_on.is_empty());
    // Each earlier value, once.
    let past = here.store.task_history(&id, soon()).unwrap();
    let was = |field: &str| -> Vec<String> {
        let mut values: Vec<String> = past
            .iter()
            .filter(|past| past.field == field)
            .map(|past| past.value.clone())
            .collect();
        values.sort();
        values
    };
    assert_eq!(was("title"), ["One"]);
    assert_eq!(was("description"), [""]);
    assert_eq!(was("section"), [""]);
    assert_eq!(was("priority"), ["5"]);
    assert_eq!(was("status"), ["pending"]);
}

#[test]
fn a_change_is_later_than_what_it_changes_however_far_ahead_that_was() {
    for far in [
        "2099-06-01T00:00:00Z",
        "9999-01-01T00:00:00Z",
        "2099-12-31T23:59:59.999Z",
    ] {
        let here = CloneDb::new();
        here.sql("INSERT INTO sections (id, name) VALUES ('s', 'Backend')");
        let far = at(far);
        let mut theirs = Replica::default();
        theirs.tasks.insert("b".into(), copy_at("On it", far));
        let mut copy = copy_at("From ahead", far);
        copy.depends_on.insert("b".into(), Stamped::new(true, far));
        theirs.tasks.insert("a".into(), copy);
        here.store.merge(&theirs, soon()).unwrap();
        let edit = Edit {
            title: Some("Mine".into()),
            description: Some("Mine".into()),
            section: Some("s".into()),
            priority: Priority::new(1),
            drop_dependencies: vec!["b".into()],
            ..Edit::default()
        };
        here.store
            .change(
                "a",
                &name("me"),
                &Change::To(Status::Skipped),
                &edit,
                soon(),
            )
            .unwrap();
        let mine = here.copy("a");
        for time in times(&mine) {
            assert!(time > far, "{time}");
        }
        assert!(mine.depends_on["b"].at > far && !mine.depends_on["b"].value);
        // So the change stands against what it changed, wherever they meet.
        here.store.merge(&theirs, soon()).unwrap();
        assert_eq!(here.copy("a"), mine);
    }
}

#[test]
fn a_change_is_later_by_a_millisecond_from_each_millisecond_of_a_second() {
    let here = CloneDb::new();
    let id = here.add("One");
    let db = here.db();
    for milli in 0..1000 {
        let far = format!("2099-01-01T10:20:30.{milli:03}Z");
        db.execute_batch(&format!(
            "UPDATE exchange SET merging = 1; UPDATE tasks SET title_at = '{far}'; UPDATE exchange SET merging = 0;
             UPDATE tasks SET title = 'At {milli}' WHERE id = '{id}';"
        ))
        .unwrap();
        let stamp: String = db
            .query_row("SELECT title_at FROM tasks", [], |row| row.get(0))
            .unwrap();
        let apart = at(&stamp).as_millisecond() - at(&far).as_millisecond();
        assert_eq!(apart, 1, "{far} became {stamp}");
    }
}

#[test]
fn the_history_has_every_value_once_however_often_old_copies_are_merged() {
    let (here, there) = (CloneDb::new(), CloneDb::new());
    let id = here.add("One");
    let mut copies = vec![here.store.replica(soon()).unwrap()];
    for title in ["Two", "Three", "Four"] {
        std::thread::sleep(Duration::from_millis(2));
        let edit = Edit {
            title: Some(title.into()),
            ..Edit::default()
        };
        here.store.edit_task(&id, &edit, soon()).unwrap();
        copies.push(here.store.replica(soon()).unwrap());
    }
    for copy in copies.iter().chain(copies.iter().rev()) {
        here.store.merge(copy, soon()).unwrap();
        there.store.merge(copy, soon()).unwrap();
    }
    for clone in [&here, &there] {
        let past = clone.store.task_history(&id, soon()).unwrap();
        let mut values: Vec<&str> = past.iter().map(|past| past.value.as_str()).collect();
        values.sort_unstable();
        assert_eq!(values, ["One", "Three", "Two"]);
    }
}

#[test]
fn a_row_that_another_program_replaces_is_a_change_of_what_differs() {
    for recursive_triggers in ["OFF", "ON"] {
        let here = CloneDb::new();
        here.sql("INSERT INTO sections (id, name) VALUES ('s', 'Backend')");
        let id = here.add("Zebra");
        let (before, changes) = (
            here.store.replica(soon()).unwrap(),
            here.store.sync_state(soon()).unwrap().changes,
        );
        std::thread::sleep(Duration::from_millis(2));
        here.sql(&format!(
            "PRAGMA recursive_triggers = {recursive_triggers};
             REPLACE INTO tasks (id, title, section_id, status) VALUES ('{id}', 'Aardvark', 's', 'review')"
        ));
        assert!(here.store.sync_state(soon()).unwrap().changes > changes);
        let (was, is) = (before.tasks[&id].clone(), here.copy(&id));
        assert_eq!(is.created_at, was.created_at);
        for (index, (was, is)) in times(&was).into_iter().zip(times(&is)).enumerate() {
            let changed = [0, 2, 4].contains(&index);
            assert_eq!(is > was, changed, "{recursive_triggers}: field {index}");
            assert_eq!(is == was, !changed, "{recursive_triggers}: field {index}");
        }
        let mut past: Vec<(String, String)> = here
            .store
            .task_history(&id, soon())
            .unwrap()
            .into_iter()
            .map(|past| (past.field, past.value))
            .collect();
        past.sort();
        let known = [("section", ""), ("status", "pending"), ("title", "Zebra")];
        assert_eq!(
            past,
            known.map(|(field, value)| (field.to_owned(), value.to_owned()))
        );
        // So it stands against what it replaced, and is no deletion.
        here.store.merge(&before, soon()).unwrap();
        assert_eq!(here.copy(&id), is);
        assert!(here.store.replica(soon()).unwrap().deleted.is_empty());
    }
}

#[test]
fn a_task_that_another_program_replaces_still_refuses_a_late_worker() {
    let here = CloneDb::new();
    let (id, on) = (here.add("One"), here.add("Two"));
    here.sql(&format!(
        "INSERT INTO task_dependencies VALUES ('{on}', '{id}')"
    ));
    let late = begin(&here.store, &id, "late");
    let _ = here
        .store
        .force(
            &late.key,
            None,
            &HolderId::parse("admin").unwrap(),
            None,
            soon(),
        )
        .unwrap();
    let newer = begin(&here.store, &id, "newer");
    here.sql(&format!(
        "REPLACE INTO tasks (id, title, status) VALUES ('{id}', 'One', 'in_progress')"
    ));
    let done = Change::To(Status::Completed);
    for proof in [Proof::Token(late.token), name("late")] {
        let error = here
            .store
            .change(&id, &proof, &done, &Edit::default(), soon())
            .unwrap_err();
        assert!(
            matches!(
                error,
                TaskError::Superseded { .. } | TaskError::Locked { .. }
            ),
            "{error}"
        );
    }
    here.store
        .change(
            &id,
            &Proof::Token(newer.token),
            &done,
            &Edit::default(),
            soon(),
        )
        .unwrap();
    assert_eq!(here.store.find_task(&on, soon()).unwrap().blockers, 0);
}

#[test]
fn an_insert_that_keeps_the_row_changes_no_time() {
    let here = CloneDb::new();
    let id = here.add("One");
    let before = here.copy(&id);
    here.sql(&format!(
        "INSERT OR IGNORE INTO tasks (id, title) VALUES ('{id}', 'Ignored')"
    ));
    assert_eq!(here.copy(&id), before);
    std::thread::sleep(Duration::from_millis(2));
    here.sql(&format!(
        "INSERT INTO tasks (id, title) VALUES ('{id}', 'x') ON CONFLICT (id) DO UPDATE SET priority = 9"
    ));
    let after = here.copy(&id);
    assert_eq!((&after.title, after.priority.value), (&before.title, 9));
    // What those two left behind is not taken for a replaced row.
    here.sql(&format!("DELETE FROM tasks WHERE id = '{id}'"));
    here.sql(&format!(
        "INSERT INTO tasks (id, title) VALUES ('{id}', 'Again')"
    ));
    assert_eq!(here.store.task_history(&id, soon()).unwrap().len(), 1);
    assert_eq!(here.count("SELECT count(*) FROM replaced_tasks"), 0);
    assert_eq!(here.count("SELECT count(*) FROM deleted_tasks"), 1);
}

#[test]
fn a_section_that_another_program_replaces_is_renamed_for_its_tasks() {
    let (here, there) = (CloneDb::new(), CloneDb::new());
    here.sql(
        "INSERT INTO sections (id, name) VALUES ('s', 'Zeta');
         INSERT INTO tasks (id, title, section_id) VALUES ('t', 'One', 's');",
    );
    here.exchange(&there);
    here.sql("REPLACE INTO sections (id, name) VALUES ('s', 'Alpha')");
    here.exchange(&there);
    for clone in [&here, &there] {
        let section = clone.store.find_task("t", soon()).unwrap().section.unwrap();
        assert_eq!(section.name, "Alpha");
    }
}

#[test]
fn a_row_under_the_id_of_a_deleted_task_is_the_same_everywhere() {
    let (here, there) = (CloneDb::new(), CloneDb::new());
    let id = here.add("One");
    here.exchange(&there);
    here.store
        .delete_tasks(std::slice::from_ref(&id), soon())
        .unwrap();
    here.sql(&format!(
        "INSERT INTO tasks (id, title) VALUES ('{id}', 'Again')"
    ));
    here.exchange(&there);
    assert!(here.rows("SELECT title FROM tasks").is_empty());
    assert!(there.rows("SELECT title FROM tasks").is_empty());
}

#[test]
fn a_section_that_another_program_renames_keeps_its_tasks() {
    let (here, there) = (CloneDb::new(), CloneDb::new());
    here.sql(
        "INSERT INTO sections (id, name) VALUES ('s', 'Zeta');
         INSERT INTO tasks (id, title, section_id) VALUES ('t', 'One', 's');",
    );
    here.exchange(&there);
    here.sql("UPDATE sections SET name = 'Alpha'");
    here.exchange(&there);
    for clone in [&here, &there] {
        assert_eq!(
            clone
                .store
                .find_task("t", soon())
                .unwrap()
                .section
                .unwrap()
                .name,
            "Alpha"
        );
    }
}

#[test]
fn a_task_that_comes_with_its_own_time_can_be_listed() {
    let here = CloneDb::new();
    here.sql(
        "INSERT INTO tasks (id, title, created_at) VALUES ('t', 'One', '2026-01-01T00:00:00.000Z')",
    );
    here.store.find_task("t", soon()).unwrap();
}
