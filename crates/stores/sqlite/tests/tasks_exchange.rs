//! Import and export: all or nothing, the same there and back.

use std::fmt::Write;
use std::path::PathBuf;

use rusqlite::Connection;
use tempfile::TempDir;
use tenure_core::{HolderId, Key, Priority, Store};
use tenure_sqlite::{SqliteOptions, SqliteStore};
use tenure_tasks::{
    BadLine, Change, Edit, ImportSummary, NewTask, Proof, Status, TaskError, TaskStore as _,
};
use tenure_testkit::soon;
use tenure_testkit::{Ask, Chance};

struct World {
    dir: TempDir,
    store: SqliteStore,
}

impl World {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store =
            SqliteStore::open(&dir.path().join("tenure.db"), SqliteOptions::default()).unwrap();
        Self { dir, store }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("tenure.db")
    }

    fn sql(&self, text: &str) {
        let db = Connection::open(self.path()).unwrap();
        db.execute_batch(text).unwrap();
    }

    fn export(&self) -> String {
        let mut text = String::new();
        let mut line = |line: &str| {
            text.push_str(line);
            text.push('\n');
        };
        self.store.export(&mut line, soon()).unwrap();
        text
    }

    /// Every table but those that only count, in words.
    fn picture(&self) -> String {
        let db = Connection::open(self.path()).unwrap();
        let mut text = String::new();
        for table in [
            "sections",
            "tasks",
            "task_dependencies",
            "leases",
            "task_locks",
        ] {
            let mut statement = db
                .prepare(&format!("SELECT * FROM {table} ORDER BY 1, 2"))
                .unwrap();
            let columns = statement.column_count();
            let mut rows = statement.query([]).unwrap();
            while let Some(row) = rows.next().unwrap() {
                for column in 0..columns {
                    let value: rusqlite::types::Value = row.get(column).unwrap();
                    write!(text, "{value:?}|").unwrap();
                }
                text.push('\n');
            }
        }
        text
    }

    /// What is wrong with these lines; nothing may have changed.
    fn refused(&self, lines: &str) -> Vec<BadLine> {
        let before = self.picture();
        let error = self.store.import(lines, soon()).unwrap_err();
        assert_eq!(self.picture(), before, "{error}");
        match error {
            TaskError::BadLines(lines) => lines,
            other => panic!("{other}"),
        }
    }

    fn refused_line(&self, lines: &str) -> (usize, String) {
        let mut bad = self.refused(lines);
        assert_eq!(bad.len(), 1, "{bad:?}");
        let line = bad.remove(0);
        (line.number, line.what)
    }
}

fn add(world: &World, title: &str, section: Option<&str>, depends_on: &[&str]) -> String {
    let task = NewTask {
        title: title.into(),
        description: None,
        section: section.map(str::to_owned),
        priority: Priority::default(),
        depends_on: depends_on.iter().map(|&id| id.to_owned()).collect(),
    };
    world.store.add_task(&task, soon()).unwrap().id
}

fn name(text: &str) -> Proof {
    Proof::Name(HolderId::parse(text).unwrap())
}

/// Export, import into a new database, export: the same, to the letter.
fn there_and_back(world: &World) -> World {
    let first = world.export();
    let other = World::new();
    other.store.import(&first, soon()).unwrap();
    assert_eq!(other.export(), first);
    own_export_changes_nothing(world);
    own_export_changes_nothing(&other);
    other
}

fn own_export_changes_nothing(world: &World) {
    let (before, lines) = (world.picture(), world.export());
    let done = world.store.import(&lines, soon()).unwrap();
    assert_eq!((done.sections, done.added, done.changed), (0, 0, 0));
    assert_eq!(world.picture(), before);
}

#[test]
fn an_exported_database_is_imported_to_the_letter() {
    let world = World::new();
    assert_eq!(world.export(), "");
    let lines = concat!(
        "{\"kind\":\"section\",\"id\":\"s1\",\"name\":\"Grün \\\"und\\\" so\"}\n",
        "{\"id\":\"t1\",\"title\":\"Ein \\u2028 Ding\",\"section\":\"Grün \\\"und\\\" so\",\"status\":\"failed\",\"priority\":9,",
        "\"description\":\"two\\nlines\\tand a tab\",\"dependsOn\":[\"t3\",\"t2\"],\"createdAt\":\"2026-01-01T00:00:00.5Z\",",
        "\"updatedAt\":\"2026-01-02T00:00:00Z\",\"attempts\":3,\"lastError\":\"boom\"}\n",
        "{\"id\":\"t3\",\"title\":\"Three\",\"status\":\"completed\",\"description\":\"\"}\n",
        "{\"id\":\"t2\",\"title\":\"Two\",\"status\":\"in_progress\",\"priority\":0,\"section\":\"Made on the way\"}\n",
    );
    let done = world.store.import(lines, soon()).unwrap();
    let wanted = ImportSummary {
        sections: 2,
        added: 3,
        changed: 0,
        unchanged: 0,
    };
    assert_eq!(done, wanted);
    let task = world.store.find_task("t1", soon()).unwrap();
    assert_eq!(task.blockers, 1);
    assert_eq!(task.status, Status::Failed);
    let other = there_and_back(&world);
    assert_eq!(other.store.find_task("t1", soon()).unwrap().blockers, 1);
}

#[test]
fn sections_are_imported_in_the_order_in_which_they_were_added() {
    let world = World::new();
    for (id, name) in [("z", "First"), ("m", "Second"), ("a", "Third")] {
        let line = format!("{{\"kind\":\"section\",\"id\":\"{id}\",\"name\":\"{name}\"}}");
        world.store.import(&line, soon()).unwrap();
        std::thread::sleep(std::time::Duration::from_millis(3));
    }
    there_and_back(&world);
}

#[test]
fn a_database_that_was_worked_on_is_imported_to_the_letter() {
    let seed = Chance::seed();
    println!("seed {seed}");
    let mut chance = Chance::from_seed(seed);
    let world = World::new();
    let section = world.store.add_section("Only", soon()).unwrap().id;
    let mut ids: Vec<String> = Vec::new();
    for number in 0..40_usize {
        let before: Vec<&str> = (0..chance.below(3))
            .filter(|_| number > 0)
            .map(|_| ids[chance.index(number)].as_str())
            .collect();
        let inside = chance.one_in(2).then_some(section.as_str());
        let id = add(&world, &format!("Task {number}"), inside, &before);
        ids.push(id);
    }
    for id in &ids {
        let changes = [
            Change::To(Status::Completed),
            Change::To(Status::Skipped),
            Change::To(Status::Review),
            Change::Failed {
                error: "a\nb".into(),
            },
            Change::Retry {
                error: "later".into(),
            },
        ];
        if chance.one_in(2) {
            let change = &changes[chance.index(changes.len())];
            world
                .store
                .change(id, &name("a"), change, &Edit::default(), soon())
                .unwrap();
        }
    }
    let other = there_and_back(&world);
    for id in &ids {
        let (ours, theirs) = (
            world.store.find_task(id, soon()).unwrap(),
            other.store.find_task(id, soon()).unwrap(),
        );
        assert_eq!(ours.blockers, theirs.blockers);
        assert_eq!(ours.updated_at, theirs.updated_at);
    }
}

#[test]
fn the_last_error_of_a_task_is_imported_whatever_is_in_it() {
    let world = World::new();
    let id = add(&world, "One", None, &[]);
    let error = format!("\u{1b}[31mred\u{7}\u{0} {}", "x".repeat(70_000));
    let failed = Change::Failed { error };
    world
        .store
        .change(&id, &name("a"), &failed, &Edit::default(), soon())
        .unwrap();
    there_and_back(&world);
}

#[test]
fn a_section_named_like_the_id_of_another_stays_as_it_is() {
    let world = World::new();
    world.sql(
        "INSERT INTO sections (id, name, created_at) VALUES
         ('alpha', 'Beta', '2026-01-01T00:00:00.000Z'), ('other', 'alpha', '2026-01-01T00:00:00.001Z');
         INSERT INTO tasks (id, title, section_id) VALUES ('t1', 'One', 'other');",
    );
    let other = there_and_back(&world);
    let section = other
        .store
        .find_task("t1", soon())
        .unwrap()
        .section
        .unwrap();
    assert_eq!(section.name, "alpha");
}

#[test]
fn a_line_names_its_section_by_the_whole_name_only() {
    let world = World::new();
    world.sql("INSERT INTO sections (id, name) VALUES ('backend-1', 'Server')");
    let line = "{\"id\":\"t1\",\"title\":\"One\",\"section\":\"back\"}";
    world.store.import(line, soon()).unwrap();
    let section = world
        .store
        .find_task("t1", soon())
        .unwrap()
        .section
        .unwrap();
    assert_eq!(section.name, "back");
}

#[test]
fn rows_of_another_program_are_imported_to_the_letter() {
    let world = World::new();
    world.sql(
        "INSERT INTO sections (id, name) VALUES ('s1', 'Backend');
         INSERT INTO tasks (id, title, section_id, status, priority) VALUES
         ('t1', 'One', 's1', 'pending', 77), ('t2', 'Two', 's1', 'review', -3);",
    );
    there_and_back(&world);
}

#[test]
fn a_title_that_only_another_program_could_write_is_imported_too() {
    let world = World::new();
    world.sql("INSERT INTO tasks (id, title) VALUES ('t1', ' padded ')");
    there_and_back(&world);
}

#[test]
fn tasks_are_exported_in_the_order_in_which_they_were_added() {
    let world = World::new();
    let line = |id: &str, day: u8| {
        format!("{{\"id\":\"{id}\",\"title\":\"X\",\"createdAt\":\"2026-01-0{day}T00:00:00Z\"}}\n")
    };
    let lines = line("b", 3) + &line("c", 1) + &line("a", 2);
    world.store.import(&lines, soon()).unwrap();
    let told: Vec<String> = world
        .export()
        .lines()
        .map(|line| line.split('"').nth(7).unwrap().to_owned())
        .collect();
    assert_eq!(told, ["c", "a", "b"]);
}

#[test]
fn another_time_of_the_last_change_alone_is_no_change() {
    let world = World::new();
    let line = |at: &str| format!("{{\"id\":\"t1\",\"title\":\"One\",\"updatedAt\":\"{at}\"}}");
    world
        .store
        .import(&line("2026-01-01T00:00:00Z"), soon())
        .unwrap();
    let before = world.picture();
    let done = world
        .store
        .import(&line("2026-02-02T00:00:00Z"), soon())
        .unwrap();
    assert_eq!((done.changed, done.unchanged), (0, 1));
    assert_eq!(world.picture(), before);
}

#[test]
fn a_bad_line_is_reported_with_its_number_and_nothing_is_imported() {
    let world = World::new();
    world
        .store
        .import("{\"id\":\"old\",\"title\":\"Old\"}", soon())
        .unwrap();
    let good = "{\"id\":\"g\",\"title\":\"Good\",\"section\":\"New\"}";
    for (bad, words) in [
        ("{\"id\":\"x\"}", "title"),
        ("not json", "expected"),
        ("{\"title\":\"X\",\"colour\":\"red\"}", "colour"),
        ("{\"title\":\"X\",\"status\":\"done\"}", "done"),
        ("{\"title\":\"X\",\"priority\":10}", "priority"),
        ("{\"title\":\"X\",\"priority\":-1}", "invalid value"),
        ("{\"title\":\" \"}", "is empty"),
        ("{\"title\":\"X\",\"id\":\"*\"}", "any task"),
        ("{\"title\":\"X\",\"id\":\"g\"}", "line 2"),
        ("{\"title\":\"X\",\"name\":\"Y\"}", "name"),
        ("{\"kind\":\"section\",\"title\":\"Y\"}", "name"),
        ("{\"title\":\"X\",\"dependsOn\":[\"nowhere\"]}", "nowhere"),
        (
            "{\"id\":\"x\",\"title\":\"X\",\"dependsOn\":[\"x\"]}",
            "before itself",
        ),
        ("{\"title\":\"X\",\"createdAt\":\"yesterday\"}", "year"),
        ("[]", ""),
        ("\"X\"", ""),
    ] {
        let (number, what) = world.refused_line(&format!("\n{good}\n   \n{bad}\n"));
        assert_eq!(number, 4, "{bad}: {what}");
        assert!(what.contains(words), "{bad}: {what}");
    }
    let many = "{}\n".repeat(30);
    assert!(world.refused(&many).len() <= 10);
}

#[test]
fn a_line_is_an_object_and_nothing_else() {
    let world = World::new();
    let (number, _) = world.refused_line("[\"task\",\"x\",null,\"Title\"]");
    assert_eq!(number, 1);
}

#[test]
fn a_cycle_is_reported_at_a_line_of_a_task_in_it() {
    let world = World::new();
    let lines = concat!(
        "{\"id\":\"a\",\"title\":\"Outside\",\"dependsOn\":[\"b\"]}\n",
        "{\"id\":\"b\",\"title\":\"In\",\"dependsOn\":[\"c\"]}\n",
        "{\"id\":\"c\",\"title\":\"It\",\"dependsOn\":[\"b\"]}\n",
    );
    let (number, what) = world.refused_line(lines);
    assert!(number == 2 || number == 3, "line {number}: {what}");
    // Through what is there already.
    world
        .store
        .import(
            "{\"id\":\"a\",\"title\":\"A\"}\n{\"id\":\"b\",\"title\":\"B\",\"dependsOn\":[\"a\"]}",
            soon(),
        )
        .unwrap();
    let (number, what) =
        world.refused_line("\n{\"id\":\"a\",\"title\":\"A\",\"dependsOn\":[\"b\"]}");
    assert_eq!(number, 2, "{what}");
}

#[test]
fn a_cycle_that_another_program_made_does_not_fail_an_import() {
    let world = World::new();
    world.sql(
        "INSERT INTO tasks (id, title) VALUES ('a', 'A'), ('b', 'B');
         INSERT INTO task_dependencies VALUES ('a', 'b'), ('b', 'a');",
    );
    match world.store.import("{\"id\":\"x\",\"title\":\"X\"}", soon()) {
        Ok(done) => assert_eq!(done.added, 1),
        Err(TaskError::BadLines(lines)) => {
            assert!(lines.iter().all(|line| line.number > 0), "{lines:?}");
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_task_that_a_runner_works_on_is_not_changed_by_an_import() {
    let world = World::new();
    let one = add(&world, "One", None, &[]);
    let key = Key::parse(format!("task:{one}")).unwrap();
    let lease = Ask::new(&key, "a").granted(&world.store);
    let line = format!("{{\"id\":\"{one}\",\"title\":\"Otherwise\"}}");
    let refused = world.store.import(&line, soon()).unwrap_err();
    let TaskError::LockedLine {
        number, lease: by, ..
    } = &refused
    else {
        panic!("{refused}");
    };
    assert_eq!((*number, by.token), (1, lease.token));
    own_export_changes_nothing(&world);
    let _ = world.store.release(&lease.grant(), soon()).unwrap();
    assert_eq!(world.store.import(&line, soon()).unwrap().changed, 1);
}

#[test]
fn a_runner_is_late_when_an_import_ended_its_task() {
    let world = World::new();
    let one = add(&world, "One", None, &[]);
    world.sql(&format!(
        "UPDATE tasks SET status = 'in_progress', runner = 'late', token = 1 WHERE id = '{one}'"
    ));
    let line = format!("{{\"id\":\"{one}\",\"title\":\"One\",\"status\":\"skipped\"}}");
    world.store.import(&line, soon()).unwrap();
    let done = Change::To(Status::Completed);
    let error = world
        .store
        .change(&one, &name("late"), &done, &Edit::default(), soon())
        .unwrap_err();
    assert!(matches!(error, TaskError::Superseded { .. }), "{error}");
}

#[test]
fn a_change_of_dependencies_is_counted() {
    let world = World::new();
    let lines = |on: &str| {
        format!(
            "{{\"id\":\"a\",\"title\":\"A\"}}\n{{\"id\":\"b\",\"title\":\"B\",\"status\":\"completed\"}}\n{{\"id\":\"c\",\"title\":\"C\",\"dependsOn\":[{on}]}}\n"
        )
    };
    for (on, blockers) in [
        ("\"a\",\"b\",\"a\"", 1),
        ("\"b\"", 0),
        ("\"a\"", 1),
        ("", 0),
    ] {
        world.store.import(&lines(on), soon()).unwrap();
        assert_eq!(
            world.store.find_task("c", soon()).unwrap().blockers,
            blockers,
            "{on}"
        );
    }
    // And by the status of the other.
    world.store.import(&lines("\"a\""), soon()).unwrap();
    let done = "{\"id\":\"a\",\"title\":\"A\",\"status\":\"completed\"}";
    world.store.import(done, soon()).unwrap();
    assert_eq!(world.store.find_task("c", soon()).unwrap().blockers, 0);
}
