//! What clones share of their tasks is merged without loss, in any order.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::Duration;

use clones::{CloneDb, at, begin, check_blockers, copy_at, name, new_task, open, runner};
use jiff::Timestamp;
use tenure_core::{Acquired, Priority};
use tenure_tasks::{Change, Edit, NewTask, Replica, SectionCopy, Stamped, Status, TaskStore as _};
use tenure_testkit::soon;
use tenure_testkit::{Chance, Process, process};

use crate::clones;

#[test]
fn what_no_clone_could_read_is_not_shared_and_keeps_nothing_else_from_it() {
    for sql in [
        "INSERT INTO sections (id, name) VALUES ('s', '')",
        "INSERT INTO sections (id, name) VALUES ('s', 'two' || char(10) || 'lines')",
        "INSERT INTO sections (id, name) VALUES ('s', x'ff')",
        "INSERT INTO tasks (id, title) VALUES (' x', 'Odd')",
        "INSERT INTO tasks (id, title) VALUES ('*', 'Any')",
        "INSERT INTO tasks (id, title) VALUES (x'ff', 'Bytes')",
        "INSERT INTO tasks (id, title) VALUES ('', 'Gone'); DELETE FROM tasks WHERE id = ''",
        "INSERT INTO tasks (id, title) VALUES ('', 'Odd'); INSERT INTO task_dependencies SELECT id, '' FROM tasks WHERE id <> ''",
    ] {
        let here = CloneDb::new();
        let fine = here.add("Fine");
        here.sql(sql);
        let whole = here.store.replica(soon()).unwrap();
        let (shared, _) = here.store.merge(&Replica::default(), soon()).unwrap();
        for replica in [&whole, &shared] {
            assert_eq!(
                replica.tasks.keys().collect::<Vec<_>>(),
                [&fine],
                "{sql}: {replica:?}"
            );
            assert!(replica.tasks[&fine].depends_on.is_empty(), "{sql}");
        }
        // Another clone can read all of it.
        let there = CloneDb::new();
        there.store.merge(&whole, soon()).unwrap();
        assert_eq!(there.store.replica(soon()).unwrap(), whole, "{sql}");
        assert_eq!(here.count("SELECT merging FROM exchange"), 0);
    }
}

#[test]
fn the_id_of_a_deleted_task_cannot_be_imported() {
    let here = CloneDb::new();
    let id = here.add("One");
    here.store
        .delete_tasks(std::slice::from_ref(&id), soon())
        .unwrap();
    let line = format!("{{\"kind\":\"task\",\"id\":\"{id}\",\"title\":\"Again\"}}");
    let error = here.store.import(&line, soon()).unwrap_err().to_string();
    assert!(
        error.contains("was deleted") && error.contains(&id),
        "{error}"
    );
    assert_eq!(here.count("SELECT count(*) FROM tasks"), 0);
}

// A merge is all or nothing.

#[test]
fn after_a_merge_that_failed_the_triggers_are_back() {
    let here = CloneDb::new();
    let id = here.add("One");
    here.sql(
        "CREATE TRIGGER bad AFTER UPDATE OF title ON tasks WHEN new.title = 'boom'
         BEGIN SELECT RAISE(ABORT, 'no'); END;",
    );
    let before = here.store.replica(soon()).unwrap();
    let mut theirs = before.clone();
    let later = at("2098-01-01T00:00:00Z");
    theirs.tasks.insert("a".into(), copy_at("Fine", later));
    theirs.tasks.get_mut(&id).unwrap().title = Stamped::new("boom".into(), later);
    here.store.merge(&theirs, soon()).unwrap_err();
    assert_eq!(here.store.replica(soon()).unwrap(), before);
    assert_eq!(here.count("SELECT merging FROM exchange"), 0);
    here.sql("UPDATE tasks SET title = 'By hand'");
    assert!(here.copy(&id).title.at > before.tasks[&id].title.at);
    assert_eq!(here.store.task_history(&id, soon()).unwrap().len(), 1);
}

/// Not a test: merges a batch of tasks after the other, and says which is in.
#[test]
fn worker() {
    let Some(path) = process::job() else { return };
    let store = open(Path::new(&path));
    for batch in 0.. {
        store.merge(&batch_of(batch), soon()).unwrap();
        process::report(&batch.to_string());
    }
}

const BATCH: i64 = 60;

/// Tasks that wait for one another, and change of those before.
fn batch_of(batch: i64) -> Replica {
    let when = Timestamp::from_second(2_000_000_000 + batch).unwrap();
    let mut replica = Replica::default();
    for number in 0..BATCH {
        let mut copy = copy_at(&format!("{batch}"), when);
        if number > 0 {
            copy.depends_on
                .insert(format!("{batch}-{}", number - 1), Stamped::new(true, when));
        }
        replica.tasks.insert(format!("{batch}-{number}"), copy);
        let mut all = copy_at(&format!("as of {batch}"), Timestamp::UNIX_EPOCH);
        all.title.at = when;
        replica.tasks.insert(format!("all-{number}"), all);
    }
    replica
}

#[test]
fn a_process_that_is_killed_in_a_merge_leaves_all_of_it_or_nothing() {
    let seed = Chance::seed();
    println!("seed {seed}");
    let mut chance = Chance::from_seed(seed);
    let here = CloneDb::new();
    for _ in 0..25 {
        let mut process = Process::start("tasks_merge::worker", here.path().to_str().unwrap());
        assert_eq!(process.report(), "0");
        std::thread::sleep(chance.time(Duration::from_millis(60)));
        process.kill();
        let told: i64 = std::iter::from_fn(|| process.try_report())
            .last()
            .map_or(0, |last| last.parse().unwrap());
        assert_eq!(here.count("SELECT merging FROM exchange"), 0);
        assert_eq!(here.text("PRAGMA integrity_check"), "ok");
        let newest = "(SELECT max(cast(title AS INTEGER)) FROM tasks WHERE id NOT LIKE 'all%')";
        let batches = here.count(&format!("SELECT {newest}"));
        assert!(batches >= told, "{told} was told, {batches} is there");
        assert_eq!(
            here.count("SELECT count(*) FROM tasks"),
            (batches + 2) * BATCH
        );
        assert_eq!(
            here.count(&format!(
                "SELECT count(*) FROM tasks WHERE title = 'as of ' || {newest}"
            )),
            BATCH
        );
        assert_eq!(
            here.count("SELECT count(*) FROM task_dependencies"),
            (batches + 1) * (BATCH - 1)
        );
        here.sql("DELETE FROM tasks; DELETE FROM deleted_tasks; DELETE FROM task_history;");
    }
}

/// How much the log of a database grew by what is done.
fn written(here: &CloneDb, work: impl FnOnce()) -> u64 {
    let db = here.db();
    let folded: i64 = db
        .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))
        .unwrap();
    assert_eq!(folded, 0);
    work();
    let log = PathBuf::from(format!("{}-wal", here.path().display()));
    std::fs::metadata(log).map_or(0, |log| log.len())
}

#[test]
fn a_merge_without_news_writes_nothing_and_one_change_writes_little() {
    let here = CloneDb::new();
    here.sql(
        "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 10000)
         INSERT INTO tasks (id, title) SELECT 'x' || i, 'Task ' || i FROM n;",
    );
    let mut theirs = here.store.replica(soon()).unwrap();
    let changes = here.store.sync_state(soon()).unwrap().changes;
    let nothing = written(&here, || {
        let (both, merged) = here.store.merge(&theirs, soon()).unwrap();
        assert!(merged.is_nothing());
        assert_eq!(both, theirs);
    });
    assert_eq!(nothing, 0);
    assert_eq!(here.store.sync_state(soon()).unwrap().changes, changes);
    let later = at("2098-01-01T00:00:00Z");
    theirs.tasks.get_mut("x5000").unwrap().title = Stamped::new("New".into(), later);
    let one = written(&here, || {
        let (_, merged) = here.store.merge(&theirs, soon()).unwrap();
        assert_eq!(merged.changed, 1);
    });
    assert!((1..60_000).contains(&one), "{one} bytes");
    assert_eq!(
        here.text("SELECT title FROM tasks WHERE id = 'x5000'"),
        "New"
    );
}

// Tasks that a runner works on, here and in another clone.

#[test]
fn a_merge_changes_all_but_status_and_section_of_a_task_that_a_runner_works_on() {
    let (here, there) = (CloneDb::new(), CloneDb::new());
    let (one, two) = (here.add("One"), here.add("Two"));
    here.exchange(&there);
    begin(&here.store, &one, "me");
    begin(&here.store, &two, "me");
    // Of two changes in one millisecond the larger value would stand.
    std::thread::sleep(std::time::Duration::from_millis(2));
    let section = there.store.add_section("Backend", soon()).unwrap();
    let edit = Edit {
        title: Some("Uno".into()),
        description: Some("In hand".into()),
        priority: Priority::new(9),
        section: Some(section.id),
        ..Edit::default()
    };
    there
        .store
        .change(
            &one,
            &name("them"),
            &Change::To(Status::Completed),
            &edit,
            soon(),
        )
        .unwrap();
    there
        .store
        .delete_tasks(std::slice::from_ref(&two), soon())
        .unwrap();
    let theirs = there.store.replica(soon()).unwrap();
    for _ in 0..2 {
        let (both, merged) = here.store.merge(&theirs, soon()).unwrap();
        assert_eq!(merged.held, 2);
        let task = here.store.find_task(&one, soon()).unwrap();
        assert_eq!(task.status, Status::InProgress);
        assert!(task.section.is_none());
        assert_eq!((task.title.as_str(), task.priority.level()), ("Uno", 9));
        assert_eq!(task.description.as_deref(), Some("In hand"));
        assert_eq!(here.store.find_task(&two, soon()).unwrap().title, "Two");
        // What is handed on holds the others' word.
        assert_eq!(both.tasks[&one].progress.value.status(), Status::Completed);
        assert!(both.deleted.contains_key(&two) && !both.tasks.contains_key(&two));
    }
    // The one is given back, the other is done: what they say now applies, or comes too late.
    here.store
        .change(
            &two,
            &name("me"),
            &Change::To(Status::Completed),
            &Edit::default(),
            soon(),
        )
        .unwrap();
    here.store
        .change(
            &one,
            &name("me"),
            &Change::To(Status::Review),
            &Edit::default(),
            soon(),
        )
        .unwrap();
    let (both, merged) = here.store.merge(&theirs, soon()).unwrap();
    assert_eq!((merged.held, merged.deleted), (0, 1));
    let task = here.store.find_task(&one, soon()).unwrap();
    assert_eq!(task.status, Status::Review, "that was later");
    assert_eq!(task.section.unwrap().name, "Backend");
    assert!(here.store.find_task(&two, soon()).is_err());
    assert_eq!(both, here.store.replica(soon()).unwrap());
    let past = here.store.task_history(&one, soon()).unwrap();
    let lost = past.iter().find(|past| past.value == "completed").unwrap();
    assert_eq!(lost.field, "status");
}

#[test]
fn a_task_in_progress_in_another_clone_is_given_out_once_its_status_is_changed_here() {
    let (here, there) = (CloneDb::new(), CloneDb::new());
    let id = there.add("One");
    begin(&there.store, &id, "them");
    here.exchange(&there);
    let offered = || match here.store.next(&runner("me"), soon()).unwrap() {
        Acquired::Granted(started) => Some(started.task.id.clone()),
        _ => None,
    };
    assert_eq!(offered(), None);
    // Their own clone hands it out as ever.
    assert_eq!(there.count("SELECT elsewhere FROM tasks"), 0);
    here.exchange(&there);
    assert_eq!(there.count("SELECT elsewhere FROM tasks"), 0);
    assert_eq!(offered(), None);
    here.store
        .change(
            &id,
            &name("me"),
            &Change::To(Status::Pending),
            &Edit::default(),
            soon(),
        )
        .unwrap();
    assert_eq!(offered(), Some(id));
}

// Sections.

#[test]
fn a_section_name_ignores_capitals_and_the_older_spelling_wins() {
    let (here, there) = (CloneDb::new(), CloneDb::new());
    let old = "INSERT INTO sections (id, name, created_at) VALUES ('o', 'BACKEND', '2020-01-01T00:00:00.000Z');
               INSERT INTO tasks (id, title, section_id) VALUES ('t0', 'Old', 'o');";
    there.sql(old);
    // Two of them, as another program may add them.
    here.sql(
        "INSERT INTO sections (id, name) VALUES ('s1', 'Backend'), ('s2', 'backend');
         INSERT INTO tasks (id, title, section_id) VALUES ('t1', 'One', 's1'), ('t2', 'Two', 's2');",
    );
    for _ in 0..2 {
        here.exchange(&there);
        there.exchange(&here);
    }
    assert_eq!(
        here.store.replica(soon()).unwrap(),
        there.store.replica(soon()).unwrap()
    );
    for clone in [&here, &there] {
        for id in ["t0", "t1", "t2"] {
            let section = clone.store.find_task(id, soon()).unwrap().section.unwrap();
            assert_eq!(section.name, "BACKEND", "{id}");
        }
    }
    assert_eq!(there.rows("SELECT name FROM sections"), ["BACKEND"]);
    let nothing = here
        .store
        .merge(&there.store.replica(soon()).unwrap(), soon())
        .unwrap()
        .1;
    assert!(nothing.is_nothing(), "{nothing:?}");
}

#[test]
fn sections_added_apart_under_one_name_are_one() {
    let (here, there) = (CloneDb::new(), CloneDb::new());
    for clone in [&here, &there] {
        let section = clone.store.add_section("Backend", soon()).unwrap();
        let new = NewTask {
            section: Some(section.id),
            ..new_task("In it")
        };
        clone.store.add_task(&new, soon()).unwrap();
    }
    here.exchange(&there);
    for clone in [&here, &there] {
        assert_eq!(clone.count("SELECT count(*) FROM sections"), 1);
        assert_eq!(
            clone.count("SELECT count(*) FROM tasks WHERE section_id = (SELECT id FROM sections)"),
            2
        );
    }
    let mut theirs = Replica::default();
    theirs.add_section(SectionCopy::added(
        "backEND".into(),
        at("2001-01-01T00:00:00Z"),
    ));
    here.store.merge(&theirs, soon()).unwrap();
    assert_eq!(here.rows("SELECT name FROM sections"), ["backEND"]);
}

#[test]
fn a_section_that_another_program_deletes_or_renames_does_not_come_back() {
    let (here, there) = (CloneDb::new(), CloneDb::new());
    for name in ["Docs", "Server", "Both"] {
        here.store.add_section(name, soon()).unwrap();
    }
    here.exchange(&there);
    // Two that differ in capitals are one section for clones: it is there while one of them is.
    here.sql("INSERT INTO sections (id, name) VALUES ('twin', 'BOTH')");
    here.sql("DELETE FROM sections WHERE name IN ('Docs', 'BOTH')");
    here.sql("UPDATE sections SET name = 'Backend' WHERE name = 'Server'");
    here.exchange(&there);
    there.exchange(&here);
    for clone in [&here, &there] {
        let names = clone.rows("SELECT name FROM sections ORDER BY name");
        assert_eq!(names, ["Backend", "Both"]);
    }
    // Added again, and deleted again by a program whose clock is behind: the later event counts.
    here.sql("UPDATE section_times SET at = '2998-01-01T00:00:00.000Z' WHERE name = 'Docs'");
    there.exchange(&here);
    there.sql("INSERT OR REPLACE INTO sections (id, name) VALUES ('new', 'Docs')");
    here.exchange(&there);
    assert_eq!(
        here.count("SELECT count(*) FROM sections WHERE name = 'Docs'"),
        1
    );
    here.sql("DELETE FROM sections WHERE name = 'Docs'");
    here.exchange(&there);
    for clone in [&here, &there] {
        assert_eq!(
            clone.count("SELECT count(*) FROM sections WHERE name = 'Docs'"),
            0
        );
        assert_eq!(clone.count("SELECT merging FROM exchange"), 0);
    }
}

// Cycles.

#[test]
fn clones_that_close_a_cycle_together_drop_the_same_dependency() {
    let clones = [CloneDb::new(), CloneDb::new(), CloneDb::new()];
    let ids: Vec<String> = (0..3).map(|n| clones[0].add(&format!("{n}"))).collect();
    clones[0].exchange(&clones[1]);
    clones[0].exchange(&clones[2]);
    for (n, clone) in clones.iter().enumerate() {
        std::thread::sleep(Duration::from_millis(3));
        let edit = Edit {
            add_dependencies: vec![ids[(n + 1) % 3].clone()],
            ..Edit::default()
        };
        clone.store.edit_task(&ids[n], &edit, soon()).unwrap();
    }
    for (one, other) in [(2, 0), (0, 1), (1, 2), (2, 0), (0, 1)] {
        clones[one].exchange(&clones[other]);
    }
    let edges = |clone: &CloneDb| {
        clone.rows("SELECT task_id || ' ' || depends_on FROM task_dependencies ORDER BY 1")
    };
    let mut kept = vec![
        format!("{} {}", ids[0], ids[1]),
        format!("{} {}", ids[1], ids[2]),
    ];
    kept.sort();
    for clone in &clones {
        assert_eq!(edges(clone), kept, "the last one goes");
        check_blockers(clone);
    }
}

// A model: what was done, in the order in which it was done, and nothing else.

#[derive(Default)]
struct Model {
    /// The value that was set last, of each field.
    fields: BTreeMap<(String, &'static str), String>,
    /// Whether a dependency was last added.
    edges: BTreeMap<(String, String), bool>,
    /// All titles that a task ever had.
    titles: BTreeMap<String, BTreeSet<String>>,
    deleted: BTreeSet<String>,
    circles: u64,
}

/// Does something in one of the clones. Every one is in a millisecond of its own.
fn act(clone: &CloneDb, model: &mut Model, chance: &mut Chance, step: usize) {
    std::thread::sleep(Duration::from_millis(2));
    let known = clone.rows("SELECT id FROM tasks ORDER BY id");
    if known.len() < 3 || chance.one_in(8) {
        let title = format!("Added in {step}");
        let id = clone.add(&title);
        model
            .titles
            .entry(id.clone())
            .or_default()
            .insert(title.clone());
        for (field, value) in [
            ("title", title),
            ("priority", "5".into()),
            ("status", "pending".into()),
        ] {
            model.fields.insert((id.clone(), field), value);
        }
        return;
    }
    let id = known[chance.index(known.len())].clone();
    let by_sql = chance.one_in(2);
    let mut set = |field: &'static str, value: String| {
        model.fields.insert((id.clone(), field), value);
    };
    match chance.below(11) {
        0..=2 => {
            let title = format!("Changed in {step}");
            if by_sql {
                clone.sql(&format!(
                    "UPDATE tasks SET title = '{title}' WHERE id = '{id}'"
                ));
            } else {
                let edit = Edit {
                    title: Some(title.clone()),
                    ..Edit::default()
                };
                clone.store.edit_task(&id, &edit, soon()).unwrap();
            }
            set("title", title.clone());
            model.titles.entry(id).or_default().insert(title);
        }
        3 => {
            let level = chance.below(10);
            let before = clone.text(&format!(
                "SELECT priority || '' FROM tasks WHERE id = '{id}'"
            ));
            clone.sql(&format!(
                "UPDATE tasks SET priority = {level} WHERE id = '{id}'"
            ));
            // An equal value is no change: another clone's may be later.
            if before != level.to_string() {
                set("priority", level.to_string());
            }
        }
        4..=6 => {
            let word =
                ["pending", "in_progress", "review", "completed", "skipped"][chance.index(5)];
            let before = clone.text(&format!("SELECT status FROM tasks WHERE id = '{id}'"));
            if by_sql || word == "in_progress" {
                clone.sql(&format!(
                    "UPDATE tasks SET status = '{word}' WHERE id = '{id}'"
                ));
            } else {
                let status: Status = word.parse().unwrap();
                clone
                    .store
                    .change(
                        &id,
                        &name("me"),
                        &Change::To(status),
                        &Edit::default(),
                        soon(),
                    )
                    .unwrap();
            }
            if before != word {
                set("status", word.into());
            }
        }
        7 => {
            if by_sql {
                clone.sql(&format!("DELETE FROM tasks WHERE id = '{id}'"));
            } else {
                clone
                    .store
                    .delete_tasks(std::slice::from_ref(&id), soon())
                    .unwrap();
            }
            model.deleted.insert(id);
        }
        8 | 9 => {
            let on = known[chance.index(known.len())].clone();
            let edge = (id.clone(), on.clone());
            let there = clone.count(&format!(
                "SELECT count(*) FROM task_dependencies WHERE task_id = '{id}' AND depends_on = '{on}'"
            ));
            let edit = Edit {
                add_dependencies: vec![on],
                ..Edit::default()
            };
            // It may close a circle.
            if id != edge.1 && clone.store.edit_task(&id, &edit, soon()).is_ok() && there == 0 {
                model.edges.insert(edge, true);
            }
        }
        _ => {
            let on = clone.rows(&format!(
                "SELECT depends_on FROM task_dependencies WHERE task_id = '{id}' LIMIT 1"
            ));
            if let Some(on) = on.into_iter().next() {
                clone.sql(&format!(
                    "DELETE FROM task_dependencies WHERE task_id = '{id}' AND depends_on = '{on}'"
                ));
                model.edges.insert((id, on), false);
            }
        }
    }
}

#[test]
fn three_clones_that_merge_at_random_match_a_simple_model() {
    let seed = Chance::seed();
    println!("seed {seed}");
    let mut with_circles = 0;
    for story in 0..12 {
        let mut chance = Chance::apart(seed, &format!("story {story}"));
        let clones = [CloneDb::new(), CloneDb::new(), CloneDb::new()];
        let mut model = Model::default();
        for step in 0..120 {
            let (one, other) = (chance.index(3), chance.index(3));
            if one == other || !chance.one_in(4) {
                act(&clones[one], &mut model, &mut chance, step);
            } else {
                let theirs = clones[other].store.replica(soon()).unwrap();
                let (_, merged) = clones[one].store.merge(&theirs, soon()).unwrap();
                model.circles += merged.circles;
                check_blockers(&clones[one]);
            }
        }
        for (one, other) in [(0, 1), (1, 2), (2, 0), (0, 1), (1, 2)] {
            let (both, merged) = clones[one]
                .store
                .merge(&clones[other].store.replica(soon()).unwrap(), soon())
                .unwrap();
            model.circles += merged.circles;
            clones[other].store.merge(&both, soon()).unwrap();
        }
        with_circles += u64::from(model.circles > 0);
        agree(&clones, &model, &format!("seed {seed}, story {story}"));
    }
    println!("{with_circles} of 12 stories closed a circle");
}

/// Shares a clone as a sync does: it reads of the hub only what changed since it was last `seen`, or here.
fn share(clone: &CloneDb, seen: &mut Replica, hub: &mut Replica) -> u64 {
    let state = clone.store.sync_state(soon()).unwrap();
    let mut ids: BTreeSet<String> = state.unshared.iter().cloned().collect();
    let differs = |id: &&String| {
        hub.tasks.get(*id) != seen.tasks.get(*id) || hub.deleted.get(*id) != seen.deleted.get(*id)
    };
    let all = hub.tasks.keys().chain(hub.deleted.keys());
    ids.extend(all.filter(differs).cloned());
    let mut incoming = hub.clone();
    incoming.tasks.retain(|id, _| ids.contains(id));
    incoming.deleted.retain(|id, _| ids.contains(id));
    incoming.tidy();
    let (shared, merged) = clone.store.merge(&incoming, soon()).unwrap();
    hub.sections.extend(shared.sections);
    for (id, copy) in shared.tasks {
        hub.tasks.insert(id, copy);
    }
    for (id, at) in shared.deleted {
        hub.tasks.remove(&id);
        hub.deleted.insert(id, at);
    }
    clone.store.settle("note", state.changes, soon()).unwrap();
    *seen = hub.clone();
    merged.circles
}

#[test]
fn three_clones_that_share_only_what_changed_match_the_same_model() {
    let seed = Chance::seed();
    println!("seed {seed}");
    for story in 0..12 {
        let mut chance = Chance::apart(seed, &format!("story {story}"));
        let clones = [CloneDb::new(), CloneDb::new(), CloneDb::new()];
        let (mut model, mut hub) = (Model::default(), Replica::default());
        let mut seen = [Replica::default(), Replica::default(), Replica::default()];
        for step in 0..120 {
            let one = chance.index(3);
            if chance.one_in(4) {
                model.circles += share(&clones[one], &mut seen[one], &mut hub);
                check_blockers(&clones[one]);
            } else {
                act(&clones[one], &mut model, &mut chance, step);
            }
        }
        for one in [0, 1, 2, 0, 1, 2, 0, 1] {
            model.circles += share(&clones[one], &mut seen[one], &mut hub);
        }
        for clone in &clones {
            assert!(clone.store.sync_state(soon()).unwrap().unshared.is_empty());
        }
        hub.tidy();
        let first = clones[0].store.replica(soon()).unwrap();
        assert_eq!(first, hub, "seed {seed}, story {story}");
        agree(&clones, &model, &format!("seed {seed}, story {story}"));
    }
}

/// All clones have what the model has, and nothing that was ever written is nowhere.
fn agree(clones: &[CloneDb; 3], model: &Model, story: &str) {
    let first = clones[0].store.replica(soon()).unwrap();
    for clone in clones {
        assert_eq!(clone.store.replica(soon()).unwrap(), first, "{story}");
        assert_eq!(clone.count("SELECT merging FROM exchange"), 0);
        check_blockers(clone);
        let wanted: BTreeSet<&String> = model
            .titles
            .keys()
            .filter(|id| !model.deleted.contains(*id))
            .collect();
        let there = clone.rows("SELECT id FROM tasks");
        assert_eq!(there.iter().collect::<BTreeSet<_>>(), wanted, "{story}");
        for ((id, field), value) in &model.fields {
            if !model.deleted.contains(id) {
                let sql = format!("SELECT {field} || '' FROM tasks WHERE id = '{id}'");
                assert_eq!(clone.text(&sql), *value, "{story}: {field} of {id}");
            }
        }
        let edges: BTreeSet<String> = clone
            .rows("SELECT task_id || ' ' || depends_on FROM task_dependencies")
            .into_iter()
            .collect();
        let added: BTreeSet<String> = model
            .edges
            .iter()
            .filter(|((id, on), added)| {
                **added && !model.deleted.contains(id) && !model.deleted.contains(on)
            })
            .map(|((id, on), _)| format!("{id} {on}"))
            .collect();
        assert!(edges.is_subset(&added), "{story}");
        if model.circles == 0 {
            assert_eq!(edges, added, "{story}");
        }
        // Whatever is in progress elsewhere is not handed out, the rest is.
        let theirs: BTreeSet<String> = clone
            .rows("SELECT id FROM tasks WHERE elsewhere")
            .into_iter()
            .collect();
        let mut offered = BTreeSet::new();
        while let Acquired::Granted(started) = clone.store.next(&runner("me"), soon()).unwrap() {
            assert!(offered.insert(started.task.id.clone()), "{story}");
        }
        assert!(offered.is_disjoint(&theirs), "{story}");
        let ready = clone.count(
            "SELECT count(*) FROM tasks WHERE status IN ('pending', 'in_progress') AND blockers = 0 AND NOT elsewhere",
        );
        assert_eq!(i64::try_from(offered.len()).unwrap(), ready, "{story}");
    }
    for (id, titles) in &model.titles {
        if model.deleted.contains(id) {
            continue;
        }
        for title in titles {
            let known = clones.iter().any(|clone| {
                clone.count(&format!(
                    "SELECT (SELECT count(*) FROM tasks WHERE id = '{id}' AND title = '{title}') +
                     (SELECT count(*) FROM task_history WHERE task_id = '{id}' AND value = '{title}')"
                )) > 0
            });
            assert!(known, "{story}: {title:?} of {id} is nowhere");
        }
    }
}
