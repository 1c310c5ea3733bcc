//! A board of 5,000 tasks: listing, checking and indexing it, against reading its files once.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::Line;
use crate::stopwatch::{millis, percentile, ratio, time};

const TENURE: &str = env!("CARGO_BIN_EXE_tenure");
const TASKS: usize = 5_000;
const ROUNDS: usize = 15;

pub(crate) fn measure() -> Vec<Line> {
    let dir = tempfile::tempdir().unwrap();
    let tasks = dir.path().join(".bilu/board/tasks");
    fs::create_dir_all(&tasks).unwrap();
    fill(&tasks);
    let call = |words: &str| {
        let status = Command::new(TENURE)
            .args(words.split(' '))
            .current_dir(dir.path())
            .stdout(Stdio::null())
            .status()
            .unwrap();
        assert!(status.success(), "{words}");
    };
    let mut once: Vec<Duration> = Vec::new();
    let commands = [
        ("board list of 5,000 tasks / read them once", "board list"),
        (
            "board list --view kanban, the same",
            "board list --view kanban",
        ),
        ("board validate, the same", "board validate"),
        (
            "board rebuild-index --write, the same",
            "board rebuild-index --write",
        ),
        ("board set-status of one of 5,000, the same", ""),
    ];
    let mut ours = [const { Vec::new() }; 5];
    for round in 0..ROUNDS {
        once.push(time(|| read_once(&tasks)));
        for ((_, words), times) in commands.iter().zip(&mut ours) {
            let status = if round % 2 == 0 { "DONE" } else { "TODO" };
            let edit = format!("board set-status 0042-task {status}");
            let words = if words.is_empty() { &edit } else { *words };
            // So that there is something to write.
            if words.contains("rebuild") {
                let _ = fs::remove_file(dir.path().join(".bilu/board/default.json"));
            }
            times.push(time(|| call(words)));
        }
    }
    let once = percentile(&mut once, 50);
    let lines = commands
        .iter()
        .zip(&mut ours)
        .map(|((what, words), times)| {
            let took = percentile(times, 50);
            Line {
                what,
                ours: millis(took),
                theirs: millis(once),
                ratio: ratio(took, once),
                aim: if words.is_empty() {
                    "as with one task"
                } else {
                    "at most 3x"
                },
            }
        });
    lines.collect()
}

fn fill(tasks: &Path) {
    let config = r#"{ "statuses": { "TODO": 1, "DONE": 4 }, "priorities": { "HIGH": 8, "LOW": 3 },
        "kind": { "task": "Task" }, "tags": {} }"#;
    fs::write(tasks.with_file_name("config.json"), config).unwrap();
    for number in 0..TASKS {
        let text = format!(
            "# Task number {number}\n\n{}\n# Description\nWhat it is about.\n# Status\nTODO\n# Priority\nHIGH\n# Kind\ntask\n# Tags\n- backend\n# depends_on\n{}",
            "Some words of the author.\n".repeat(20),
            if number > 0 {
                format!("- {:04}-task\n", number - 1)
            } else {
                String::new()
            },
        );
        fs::write(tasks.join(format!("{number:04}-task.md")), text).unwrap();
    }
}

fn read_once(tasks: &Path) {
    let mut bytes = 0;
    for entry in fs::read_dir(tasks).unwrap() {
        bytes += fs::read(entry.unwrap().path()).unwrap().len();
    }
    assert!(bytes > 0);
}
