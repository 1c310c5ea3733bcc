//! What `doctor` and `status` look at, and what they do not: a long history, large folders.

use crate::project;

use project::Project;
use rusqlite::Connection;

/// Makes an index of the database wrong: it is said to be of another column than the one it was made from.
fn damage(project: &Project, index: &str, table: &str) {
    let db = Connection::open(project.database()).unwrap();
    let sql = format!(
        "PRAGMA writable_schema = ON;
         UPDATE sqlite_schema SET sql = 'CREATE INDEX {index} ON {table} (host)' WHERE name = '{index}';"
    );
    let sql = match table {
        "history" => sql.replace("(host)", "(holder, id)"),
        _ => sql,
    };
    db.execute_batch(&sql).unwrap();
}

fn problems(project: &Project, words: &str) -> usize {
    let said = project.tenure(words);
    let problems = &said.json()["data"]["problems"];
    let listed = problems.as_array().map(Vec::len);
    let counted = problems
        .as_u64()
        .map(|count| usize::try_from(count).unwrap());
    listed.or(counted).unwrap()
}

/// The damage is the witness: what is damaged and not reported was not read.
#[test]
fn status_checks_what_is_held_and_leaves_the_history_to_the_doctor() {
    let project = Project::new();
    let mut held = project.hold("run k --as a");
    let waiter = project.queue("k", "run k --as b -- true");
    assert_eq!(problems(&project, "status --json"), 0);
    damage(&project, "history_by_key", "history");
    assert_eq!(
        problems(&project, "status --json"),
        0,
        "it read the history"
    );
    assert_eq!(problems(&project, "doctor --json"), 1);
    damage(&project, "tickets_by_holder", "tickets");
    assert_eq!(problems(&project, "status --json"), 1, "it read no ticket");
    held.let_go();
    let _ = (held.ended(), waiter.ended());
}

#[test]
fn a_folder_that_is_too_large_to_be_looked_at_as_a_whole_is_named() {
    let project = Project::new();
    let words = "has more than 4096 entries: ";
    let listed = project.tenure("locks list --all").out;
    assert!(!listed.contains(words), "{listed}");
    for number in 0..4096 {
        project.write(&format!("file-{number}"), "");
    }
    let listed = project.tenure("locks list --all").exits(0).out;
    let doctor = project.tenure("doctor --json").exits(0).out;
    for what in ["pid files", "ledgers"] {
        let words = format!("/work {words}{what} beyond them were not looked for");
        assert!(listed.contains(&words), "{listed}");
        assert!(doctor.contains(&words), "{doctor}");
    }
}
