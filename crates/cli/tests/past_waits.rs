//! Waits that have ended: in `locks history` and `timeline`.

use crate::project;

use std::time::Duration;

use project::Project;
use serde_json::Value;

/// Long enough for a column of the timeline.
const WAIT: Duration = Duration::from_millis(300);

#[test]
fn a_wait_that_ended_with_a_grant_is_in_the_history_and_in_the_timeline() {
    let project = Project::new();
    let mut held = project.hold("run k --as first");
    let waiter = project.queue("k", "run k --as second -- true");
    std::thread::sleep(WAIT);
    held.let_go();
    held.ended().exits(0);
    waiter.ended().exits(0);

    let json = project.tenure("locks history k --json").exits(0).json();
    let events = json["data"]["events"].as_array().unwrap();
    let granted = |holder: &str| {
        let is_it = |event: &&Value| event["event"] == "granted" && event["holder"] == holder;
        events.iter().find(is_it).unwrap().clone()
    };
    assert_eq!(granted("first")["waitedSince"], Value::Null, "{json}");
    let (first, second) = (granted("first"), granted("second"));
    let since = second["waitedSince"].as_str().unwrap();
    // Times of one form are in the order of their text.
    assert!(first["at"].as_str().unwrap() < since, "{json}");
    assert!(since < second["at"].as_str().unwrap(), "{json}");
    let text = project.tenure("locks history k").exits(0).out;
    assert_eq!(text.matches("  after a wait of ").count(), 1, "{text}");

    let text = project.tenure("timeline").exits(0).out;
    let waits = |line: &&str| line.contains("░█") || line.contains("░▒");
    assert_eq!(text.lines().filter(waits).count(), 1, "{text}");
    assert!(text.contains(" after a wait of "), "{text}");
    let json = project.tenure("timeline --json").exits(0).json();
    let spans = &json["data"]["spans"];
    assert_eq!(spans[0]["waitedSince"], Value::Null, "{json}");
    assert_eq!(spans[1]["waitedSince"], since, "{json}");
    project.tenure("timeline --svg out.svg").exits(0);
    let svg = project.read("out.svg");
    assert!(svg.contains("<title>k: second waited "), "{svg}");
    assert_eq!(svg.matches("<title>").count(), 3, "{svg}");
}

#[test]
fn a_database_of_the_schema_before_waits_were_recorded_keeps_its_history() {
    let project = Project::new();
    project.tenure("run k --as a -- true").exits(0);
    let db = rusqlite::Connection::open(project.database()).unwrap();
    db.execute_batch("ALTER TABLE history DROP COLUMN waited; PRAGMA user_version = 7;")
        .unwrap();
    drop(db);
    let mut held = project.hold("run k --as b");
    let waiter = project.queue("k", "run k --as c -- true");
    held.let_go();
    held.ended().exits(0);
    waiter.ended().exits(0);
    let json = project.tenure("locks history k --json").exits(0).json();
    let events = json["data"]["events"].as_array().unwrap().iter();
    let granted = events.filter(|event| event["event"] == "granted");
    let waited: Vec<bool> = granted
        .map(|event| event["waitedSince"].is_string())
        .collect();
    assert_eq!(waited, [false, false, true], "{json}");
}
