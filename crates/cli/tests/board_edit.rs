//! Edits of a board under attack: signals, kills, stolen locks, full disks, and many writers at once.

use crate::board_project;
use crate::project;

use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use board_project::{
    LOCK, empty, hold_as_shell, litter, long, release_as_shell, sample, task, text,
};
use project::{Project, until};
use rustix::process::Signal;
use serde_json::Value;
use tenure_testkit::{lock_folder, scaled};

const LINES: usize = 60_000;

/// The file with the other of two statuses, and that status.
fn other(file: &str) -> (String, &'static str) {
    if file.contains("# Status\nTODO\n") {
        (file.replace("# Status\nTODO\n", "# Status\nDONE\n"), "DONE")
    } else {
        (file.replace("# Status\nDONE\n", "# Status\nTODO\n"), "TODO")
    }
}

/// Starts edits of a long file and sends each one a signal, each time a little later; the exit codes.
fn interrupted(project: &Project, many: usize, signals: &[Signal]) -> Vec<i32> {
    let mut file = long(LINES);
    project.write(&task("1"), &file);
    let mut codes = Vec::new();
    for round in 0..many {
        let (new, status) = other(&file);
        let running = project.start(&format!("board set-status 1 {status}"));
        // Spread over the time that an edit takes, from before it begins until after it ends.
        let share = u64::try_from(round * 7919 % many).unwrap();
        std::thread::sleep(Duration::from_micros(
            share * 24_000 / u64::try_from(many).unwrap(),
        ));
        let signal = signals[round % signals.len()];
        running.signal(signal);
        let code = running.ended().code;
        let now = project.read(&task("1"));
        assert!(
            now == file || now == new,
            "round {round}: neither the old nor the new file, but {} bytes",
            now.len()
        );
        if code == 0 {
            assert!(now == new, "round {round}: exit 0, but not the new file");
        }
        codes.push(code);
        file = now;
        if signal != Signal::KILL {
            assert!(
                !project.path(LOCK).exists(),
                "round {round}: the lock is left"
            );
            assert_eq!(litter(project), [""; 0], "round {round}");
        }
    }
    codes
}

#[test]
fn a_signalled_edit_is_complete_or_not_begun_and_the_lock_is_released() {
    let project = empty();
    let codes = interrupted(
        &project,
        scaled(45),
        &[Signal::TERM, Signal::INT, Signal::HUP],
    );
    let with = |code: i32| codes.iter().filter(|given| **given == code).count();
    assert!(
        codes.iter().all(|code| [0, 129, 130, 143].contains(code)),
        "{codes:?}"
    );
    assert!(with(143) > 0 && with(130) > 0 && with(129) > 0, "{codes:?}");
}

#[test]
fn a_killed_edit_leaves_the_old_or_the_new_file_and_the_next_edit_does_not_wait() {
    let project = empty();
    let codes = interrupted(&project, scaled(30), &[Signal::KILL]);
    assert!(codes.contains(&137), "{codes:?}");
    project
        .tenure("board set-status 1 REVIEW --timeout 0")
        .exits(0);
    project
        .tenure("board rebuild-index --write --timeout 0")
        .exits(0);
    assert_eq!(
        litter(&project),
        [""; 0],
        "the temporary files of killed edits are swept"
    );
    project.tenure("board validate").exits(0);
}

/// Stops an edit while it holds the lock, calls `act`, and continues the edit.
fn while_it_is_stopped(act: impl Fn(&Project, u32)) -> (Project, project::Said, String) {
    for _ in 0..20 {
        let project = empty();
        let file = long(20 * LINES);
        project.write(&task("1"), &file);
        let running = project.start("board set-status 1 DONE");
        while !project.path(LOCK).exists() && project.read(&task("1")) == file {
            std::hint::spin_loop();
        }
        running.signal(Signal::STOP);
        until("it has stopped or ended", || {
            !project::process::alive(running.pid()) || project::process::is_stopped(running.pid())
        });
        let is_inside = project.path(LOCK).exists() && project.read(&task("1")) == file;
        if is_inside {
            act(&project, running.pid());
        }
        running.signal(Signal::CONT);
        let said = running.ended();
        if is_inside {
            return (project, said, file);
        }
    }
    panic!("no edit was stopped while it held the lock");
}

#[test]
fn an_edit_that_gets_a_signal_under_the_lock_writes_no_further() {
    for (signal, code) in [(Signal::TERM, 143), (Signal::INT, 130), (Signal::HUP, 129)] {
        let tell = |project: &Project, pid: u32| {
            assert!(project.path(LOCK).exists());
            project::process::signal(pid, signal);
        };
        let (project, said, file) = while_it_is_stopped(tell);
        said.fails(code, &["stopped by", "nothing was changed"]);
        assert!(project.read(&task("1")) == file);
        assert_eq!(litter(&project), [""; 0]);
        assert!(!project.path(LOCK).exists());
    }
}

#[test]
fn an_edit_whose_lock_was_stolen_is_not_renamed_into_place() {
    let (project, said, file) = while_it_is_stopped(|project, _| {
        lock_folder::remove(&project.path(LOCK)).unwrap();
        hold_as_shell(project, std::process::id());
    });
    said.fails(
        7,
        &[
            "was taken away while this command held it",
            "nothing was changed",
        ],
    );
    assert!(project.read(&task("1")) == file);
    assert_eq!(litter(&project), [""; 0]);
    let pid = project.read(&format!("{LOCK}/pid"));
    assert_eq!(
        pid,
        format!("{}\n", std::process::id()),
        "the lock of the new holder is left alone"
    );
    let store = format!("--store mkdir:{}", project.path(LOCK).display());
    assert_eq!(
        project.story(&format!("board {store}")),
        "granted 1, forced 1"
    );
}

#[test]
fn an_edit_whose_lock_was_removed_is_not_renamed_into_place() {
    let (project, said, file) = while_it_is_stopped(|project, _| {
        lock_folder::remove(&project.path(LOCK)).unwrap();
    });
    said.fails(7, &["was taken away while this command held it"]);
    assert!(project.read(&task("1")) == file);
    project
        .tenure("board set-status 1 DONE --timeout 0")
        .exits(0);
}

#[test]
fn a_full_disk_changes_nothing() {
    let project = empty();
    let file = long(LINES);
    project.write(&task("1"), &file);
    // No file may grow beyond a megabyte; with SIGXFSZ ignored, a write that would fails with an error.
    let said = project
        .shell("ulimit -f 2048; trap '' XFSZ; exec $TENURE board set-status 1 DONE")
        .end();
    said.fails(1, &["1.md can't be written", "the file is unchanged"]);
    assert!(project.read(&task("1")) == file);
    assert_eq!(litter(&project), [""; 0]);
    assert!(!project.path(LOCK).exists());
}

/// Editors, and some commands of the other program, save without the lock, by a rename.
#[test]
fn a_save_without_the_lock_is_never_overwritten() {
    let project = empty();
    project.write(&task("1"), &long(2_000));
    let (path, new) = (project.path(&task("1")), project.path("editor.tmp"));
    let rounds = u64::try_from(scaled(60)).unwrap();
    let mut lines = String::new();
    for round in 0..rounds {
        let status = if round % 2 == 0 { "DONE" } else { "TODO" };
        let running = project.start(&format!("board set-status 1 {status} --timeout 60"));
        // Spread over the time that an edit takes.
        std::thread::sleep(Duration::from_micros(round * 7919 % rounds * 400));
        let text = fs::read_to_string(&path).unwrap();
        let line = format!("the editor's line {round}\n");
        fs::write(&new, text + &line).unwrap();
        fs::rename(&new, &path).unwrap();
        lines.push_str(&line);
        running.ended().exits(0);
        assert!(
            project.read(&task("1")).ends_with(&lines),
            "the save of round {round} was overwritten"
        );
    }
    assert_eq!(litter(&project), [""; 0]);
}

/// The three concurrency tests of the protocol, with a real shell.
#[test]
fn a_writer_fails_while_a_shell_holds_the_lock_and_succeeds_afterwards() {
    let project = sample();
    let script = format!(
        "mkdir -p {LOCK} && echo $$ > {LOCK}/pid && read -r line; rm -f {LOCK}/pid; rmdir {LOCK}"
    );
    let mut shell = project.shell(&script).input().start();
    until("the shell has the lock", || {
        project.path(&format!("{LOCK}/pid")).exists()
    });
    let before = project.read(&task("01-hold-one-lock"));
    for writer in ["set-status 01 DONE", "rebuild-index --write"] {
        for timeout in [0, 1] {
            let said = project
                .tenure(&format!("board {writer} --timeout {timeout}"))
                .exits(1);
            assert!(
                said.err.contains("bilu board: error: lock busy: "),
                "{said:?}"
            );
            assert!(said.err.contains(LOCK), "{said:?}");
        }
    }
    assert_eq!(project.read(&task("01-hold-one-lock")), before);
    assert!(!project.path(".bilu/board/default.json").exists());
    // The options of every other command, with their exit code.
    for words in ["--no-wait", "--wait 50ms"] {
        let said = project.tenure(&format!("board set-status 01 DONE {words}"));
        said.fails(6, &["lock busy"]);
    }
    // A waiter gets the lock when the shell releases it.
    let waits = project.start("board set-status 01 DONE --timeout 60");
    until("it waits", || waits.err().contains("waiting for board"));
    shell.let_go();
    shell.ended().exits(0);
    waits.ended().exits(0);
    project
        .tenure("board rebuild-index --write --timeout 0")
        .exits(0);
    assert!(
        project
            .read(".bilu/board/default.json")
            .contains("\"DONE\"")
    );
}

#[test]
fn a_waiter_that_gets_a_signal_leaves_no_trace() {
    let project = sample();
    hold_as_shell(&project, std::process::id());
    for (signal, code) in [(Signal::INT, 130), (Signal::TERM, 143), (Signal::HUP, 129)] {
        let waits = project.start("board set-status 01 DONE --timeout 60");
        until("it waits", || waits.err().contains("waiting for board"));
        waits.signal(signal);
        waits
            .ended()
            .fails(code, &["stopped by", "nothing was changed"]);
    }
    let store = format!("--store mkdir:{}", project.path(LOCK).display());
    assert_eq!(project.waiting(&format!("board {store}")), [""; 0]);
    assert!(project.path(LOCK).exists());
    release_as_shell(&project);
    project
        .tenure("board set-status 01 DONE --timeout 0")
        .exits(0);
}

const TASKS: usize = 50;

/// Edits one section of every second task many times. No other thread edits that section of these tasks, so
/// each edit must find the value of the one before.
fn edit_many_times(
    project: &Project,
    section: &str,
    values: [&str; 3],
    first: usize,
    edits: usize,
) {
    let mut last = vec![values[0]; TASKS];
    for edit in 0..edits {
        let number = first + edit * 2 % TASKS;
        let value = values[(edit / (TASKS / 2) + 1) % 3];
        let words = format!("board set-{section} {number:02}-task {value} --timeout 100 --json");
        let said = project.tenure(&words).exits(0).json();
        assert_eq!(
            said["data"]["from"], last[number],
            "edit {edit} of task {number}: an edit was lost"
        );
        last[number] = value;
        let heading = if section == "status" {
            "# Status\n"
        } else {
            "# Priority\n"
        };
        let file = project.read(&task(&format!("{number:02}-task")));
        assert!(
            file.contains(&format!("{heading}{value}\n")),
            "edit {edit} of task {number}: {file}"
        );
    }
}

#[test]
fn many_editors_and_a_rebuilder_lose_nothing() {
    let project = empty();
    for number in 0..TASKS {
        project.write(
            &task(&format!("{number:02}-task")),
            &text(&format!("Task {number}"), "TODO", "HIGH"),
        );
    }
    let edits = scaled(60);
    let over = AtomicBool::new(false);
    let (statuses, priorities) = (["TODO", "DONE", "REVIEW"], ["HIGH", "LOW", "MEDIUM"]);
    std::thread::scope(|scope| {
        let project = &project;
        let editors: Vec<_> = [
            ("status", statuses, 0),
            ("status", statuses, 1),
            ("priority", priorities, 0),
            ("priority", priorities, 1),
        ]
        .into_iter()
        .map(|(section, values, first)| {
            scope.spawn(move || edit_many_times(project, section, values, first, edits))
        })
        .collect();
        let rebuilder = scope.spawn(|| {
            let mut rebuilt = 0;
            loop {
                let last = over.load(Ordering::SeqCst);
                project
                    .tenure("board rebuild-index --write --timeout 100")
                    .exits(0);
                rebuilt += 1;
                if last {
                    return rebuilt;
                }
            }
        });
        let reader = scope.spawn(|| {
            while !over.load(Ordering::SeqCst) {
                let said = project.tenure("board list --json").exits(0).json();
                let tasks = said["data"]["tasks"].as_array().unwrap();
                assert_eq!(tasks.len(), TASKS, "a reader sees every file whole, always");
                project.tenure("board validate").exits(0);
            }
        });
        let failed = editors
            .into_iter()
            .map(|editor| editor.join())
            .collect::<Vec<_>>();
        over.store(true, Ordering::SeqCst);
        reader.join().unwrap();
        assert!(rebuilder.join().unwrap() > 1);
        for editor in failed {
            editor.unwrap();
        }
    });
    // The index is the one that a rebuild of the same files elsewhere gives.
    let fresh = empty();
    let mut said = Vec::new();
    for number in 0..TASKS {
        let name = task(&format!("{number:02}-task"));
        let file = project.read(&name);
        fresh.write(&name, &file);
        let after = |heading: &str| {
            file.split_once(heading)
                .unwrap()
                .1
                .lines()
                .next()
                .unwrap()
                .to_owned()
        };
        said.push((after("# Status\n"), after("# Priority\n")));
    }
    fresh.tenure("board rebuild-index --write").exits(0);
    let index = project.read(".bilu/board/default.json");
    assert_eq!(index, fresh.read(".bilu/board/default.json"));
    // And it agrees with the files, read by the test itself.
    let index: Value = serde_json::from_str(&index).unwrap();
    for (entry, (status, priority)) in index.as_array().unwrap().iter().zip(said) {
        assert_eq!(
            (entry["status"].as_str(), entry["priority"].as_str()),
            (Some(&*status), Some(&*priority))
        );
    }
    assert!(!project.path(LOCK).exists());
    assert_eq!(litter(&project), [""; 0]);
}
