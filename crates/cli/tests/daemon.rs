//! The daemon: one per project, started, stopped, killed, and what its status reports.

use crate::project;

use std::fs;
use std::io::Write;

use project::daemon::{Detached, lock_text, put};
use project::{Project, process, until};
use rustix::fs::inotify;
use rustix::process::Signal;

#[test]
fn a_daemon_is_started_shown_and_stopped() {
    let project = Project::new();
    let none = project.tenure("daemon status").exits(3);
    assert!(none.out.contains("Not running"), "{none:?}");
    assert_eq!(project.daemon_status()["running"], false);
    let none = project.tenure("daemon stop").exits(0);
    assert_eq!(none.out, "No daemon is running for this project\n");
    let none = project.tenure("daemon stop --json").exits(0).json();
    assert_eq!(none["data"]["stopped"], false);
    assert!(none["data"]["pid"].is_null(), "{none}");

    let said = project.tenure("daemon start --interval 30s").exits(0);
    assert!(said.out.starts_with("Daemon started (pid "), "{said:?}");
    assert!(said.out.contains(", every 30s)\n"), "{said:?}");
    assert!(said.out.contains("not a git repository"), "{said:?}");
    let status = project.daemon_status();
    let daemon = Detached::of(u32::try_from(status["pid"].as_u64().unwrap()).unwrap());
    assert!(
        said.out.contains(&format!("pid {}", daemon.pid)),
        "{said:?}"
    );
    assert_eq!(status["running"], true);
    assert_eq!(status["intervalSeconds"], 30);
    project.until_logged("Cycle done: no leases to end.", 0);
    until("the cycle is on record", || {
        project.daemon_status()["lastCycle"]["outcome"] == "done"
    });
    let shown = project.tenure("daemon status").exits(0).out;
    for words in [
        "Running: pid",
        "Last cycle: ",
        "Next cycle: in ",
        "(every 30s)",
        "daemon.log",
    ] {
        assert!(shown.contains(words), "{words}: {shown}");
    }

    let stopped = project.tenure("daemon stop").exits(0);
    assert!(!daemon.runs());
    assert_eq!(
        stopped.out,
        format!("Daemon stopped (pid {})\n", daemon.pid)
    );
    let after = project.daemon_status();
    assert_eq!(after["running"], false);
    assert_eq!(after["last"]["ended"]["why"], "received SIGTERM");
    let shown = project.tenure("daemon status").exits(3).out;
    assert!(shown.contains("received SIGTERM"), "{shown}");
    assert_eq!(project.tenure("daemon status --quiet").exits(3).out, "");
    assert_eq!(
        project.logged().last().unwrap(),
        "Stopped: received SIGTERM."
    );
}

#[test]
fn a_second_daemon_says_which_one_runs() {
    let project = Project::new();
    let daemon = project.daemon("");
    let pid = format!("pid {} since 2", daemon.pid);
    for words in ["daemon run", "daemon start --foreground"] {
        let said = project.tenure(words);
        said.fails(6, &["a daemon is already running for this project", &pid]);
    }
    let said = project.tenure("daemon run --json").exits(6);
    assert_eq!(said.error(), "DAEMON_RUNNING");
    assert_eq!(said.json()["error"]["details"]["pid"], daemon.pid);
    // There is nothing to do for `start`.
    let said = project.tenure("daemon start").exits(0);
    let words = format!("Daemon already running (pid {}, every 1m)", daemon.pid);
    assert!(said.out.starts_with(&words), "{said:?}");
    let said = project.tenure("daemon start --json").exits(0).json();
    assert_eq!(said["data"]["started"], false);
    assert_eq!(said["data"]["pid"], daemon.pid);
    assert!(daemon.runs());
}

#[test]
fn start_says_what_it_shares_and_where() {
    let project = Project::new();
    let git = |words: &str| project.shell(&format!("git {words}")).end().exits(0);
    git("init --quiet");
    let said = project.tenure("daemon start").exits(0);
    assert!(
        said.out.contains("records the tasks in this repository"),
        "{said:?}"
    );
    let daemon =
        Detached::of(u32::try_from(project.daemon_status()["pid"].as_u64().unwrap()).unwrap());
    git("remote add origin nowhere");
    let said = project.tenure("daemon start").exits(0);
    assert!(
        said.out
            .contains("shares the tasks with origin (refs/tenure/tasks)"),
        "{said:?}"
    );
    let said = project.tenure("daemon start --json").exits(0).json();
    assert_eq!(said["data"]["remotes"][0], "origin");
    assert_eq!(said["data"]["ref"], "refs/tenure/tasks");
    project.write(".tenure/config.yaml", "sync:\n  enabled: false\n");
    let said = project.tenure("daemon start").exits(0);
    assert!(
        said.out
            .contains("does not share the tasks: sync.enabled is false"),
        "{said:?}"
    );
    assert!(daemon.runs());
}

#[test]
fn of_eight_started_at_once_one_runs_and_the_others_name_it() {
    let project = Project::new();
    for round in 0..5 {
        let calls: Vec<_> = (0..8)
            .map(|number| {
                // Half of them do not look for a running daemon first.
                let words = if number % 2 == 0 {
                    "daemon start --json"
                } else {
                    "--json daemon run --detached"
                };
                project.start(words)
            })
            .collect();
        until("one runs", || project.daemon_status()["running"] == true);
        let pid = project.daemon_status()["pid"].as_u64().unwrap();
        let daemon = Detached::of(u32::try_from(pid).unwrap());
        // For `daemon run`, the daemon is the call itself, which does not end.
        let (own, calls): (Vec<_>, Vec<_>) =
            calls.into_iter().partition(|call| call.pid() == daemon.pid);
        let mut started = own.len();
        for call in calls {
            let said = call.ended();
            if said.code == 0 {
                started += usize::from(said.json()["data"]["started"] == true);
                assert_eq!(said.json()["data"]["pid"], pid, "round {round}");
            } else {
                assert_eq!(said.code, 6, "{said:?}");
                assert!(said.out.contains(&format!("pid {pid} since")), "{said:?}");
            }
        }
        assert_eq!(started, 1, "round {round}");
        // Checked with /proc alone: no other daemon works in this folder.
        let root = project.root().canonicalize().unwrap();
        let others = daemons_of(&root);
        assert!(
            others.iter().all(|other| *other == daemon.pid),
            "{others:?}"
        );
        // Wait for the end of the process, which releases the lock.
        daemon.signal(Signal::KILL);
        until("it is gone", || !daemon.runs());
    }
}

/// The pids of all daemons that work in this folder, found without any code of tenure.
fn daemons_of(root: &std::path::Path) -> Vec<u32> {
    let pids = fs::read_dir("/proc").unwrap();
    pids.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok())
        .filter(|pid| {
            let words = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let words = String::from_utf8_lossy(&words).into_owned();
            let cwd = fs::read_link(format!("/proc/{pid}/cwd"));
            words.contains("daemon\0run")
                && cwd.is_ok_and(|cwd| cwd == root)
                && process::alive(*pid)
        })
        .collect()
}

#[test]
fn a_killed_daemon_is_not_believed_and_does_not_block_the_next_one() {
    let project = Project::new();
    let first = project.daemon("");
    project.until_logged("Cycle done", 0);
    first.signal(Signal::KILL);
    until("it is gone", || !first.runs());
    let status = project.daemon_status();
    assert_eq!(status["running"], false);
    assert_eq!(status["last"]["pid"], first.pid);
    let shown = project.tenure("daemon status").exits(3).out;
    let words = format!(
        "Not running; the last daemon, pid {}, started at",
        first.pid
    );
    assert!(shown.contains(&words), "{shown}");
    let log = format!("Its log: {}", status["last"]["log"].as_str().unwrap());
    assert!(shown.contains(&log), "{shown}");
    assert!(
        project
            .tenure("daemon stop")
            .exits(0)
            .out
            .starts_with("No daemon")
    );
    let second = project.daemon("");
    assert_ne!(first.pid, second.pid);
    let words = format!("The previous daemon, pid {}, was killed", first.pid);
    project.until_logged(&words, 0);
}

#[test]
fn a_daemon_starts_right_after_the_last_one_was_killed() {
    let project = Project::new();
    let mut daemon = project.daemon("");
    for round in 0..8 {
        // At any moment after the signal the process may still be there, with the lock.
        daemon.signal(Signal::KILL);
        let said = project.tenure("daemon start --json").exits(0).json();
        assert_eq!(said["data"]["started"], true, "round {round}: {said}");
        let pid = u32::try_from(said["data"]["pid"].as_u64().unwrap()).unwrap();
        assert_ne!(pid, daemon.pid);
        daemon = Detached::of(pid);
        assert_eq!(project.daemon_status()["running"], true, "round {round}");
    }
}

#[test]
fn a_wrong_state_file_never_ends_another_process() {
    let project = Project::new();
    let mut sleep = project.program("sleep");
    sleep.arg("60");
    let child = project.prepare(sleep).start();
    let bystander = Detached::of(child.pid());
    let started = |pid: u32| -> u64 {
        let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
        let (_, rest) = text.rsplit_once(')').unwrap();
        rest.split_ascii_whitespace()
            .nth(19)
            .unwrap()
            .parse()
            .unwrap()
    };
    let daemon = project.daemon("");
    project.until_logged("Cycle done", 0);
    let lie = |started: u64| {
        let mut state: serde_json::Value =
            serde_json::from_str(&project.read(".tenure/daemon.json")).unwrap();
        state["pid"] = bystander.pid.into();
        state["started"] = started.into();
        project.write(".tenure/daemon.json", &state.to_string());
    };
    // The pid was reused by another process, whose start time differs.
    lie(started(bystander.pid) - 1);
    let said = project.tenure("daemon stop");
    assert_ne!(said.code, 0, "{said:?}");
    assert!(bystander.runs() && daemon.runs());
    // No daemon runs: however right the state looks, no process is stopped.
    lie(started(bystander.pid));
    daemon.signal(Signal::KILL);
    until("it is gone", || !daemon.runs());
    assert!(
        project
            .tenure("daemon stop")
            .exits(0)
            .out
            .starts_with("No daemon")
    );
    assert!(bystander.runs());
}

#[test]
fn a_daemon_that_does_not_stop_in_time_is_reported() {
    let project = Project::new();
    let daemon = project.daemon("");
    daemon.signal(Signal::STOP);
    let pid = daemon.pid.to_string();
    let said = project.tenure("daemon stop --wait 700ms");
    said.fails(
        1,
        &[
            "still running after 700ms",
            &pid,
            "kill -KILL",
            "waiting for pid",
        ],
    );
    let said = project.tenure("daemon stop --wait 0s --json").exits(1);
    assert_eq!(said.error(), "DAEMON_STILL_RUNNING");
    daemon.signal(Signal::CONT);
    until("it handles the signal", || !daemon.runs());
    assert_eq!(
        project.daemon_status()["last"]["ended"]["why"],
        "received SIGTERM"
    );
}

#[test]
fn it_stops_at_once_between_cycles() {
    let project = Project::new();
    for signal in [Signal::TERM, Signal::INT] {
        let running = project.start("daemon run --interval 1d");
        project.until_logged("Cycle done", 0);
        running.signal(signal);
        let said = running.ended().exits(0);
        assert!(said.out.contains("Stopped: received SIG"), "{said:?}");
        fs::remove_file(project.path(".tenure/daemon.log")).unwrap();
    }
}

#[test]
fn in_the_foreground_it_prints_its_log() {
    let project = Project::new();
    let running = project.start("daemon start --foreground --interval 1d");
    until("it has done a cycle", || {
        running.out().contains("Cycle done: no leases to end.")
    });
    assert!(
        running.out().contains(" Started: pid "),
        "{}",
        running.out()
    );
    assert!(
        !running.out().contains('\x1b'),
        "no colour without a terminal"
    );
    put(
        &project.lock_file(".tenure"),
        lock_text("tool", std::process::id()),
    );
    until("it prints that it skips the cycle", || {
        running.out().contains("Skipping database (locked by tool)")
    });
    // The terminal was closed.
    running.signal(Signal::HUP);
    running.ended().exits(0);
    assert_eq!(
        project.logged().last().unwrap(),
        "Stopped: received SIGHUP."
    );

    let quiet = project.start("daemon run --json --interval 1d");
    let pid = quiet.pid();
    until("it runs", || project.daemon_status()["pid"] == pid);
    quiet.signal(Signal::TERM);
    let said = quiet.ended().exits(0).json();
    assert_eq!(said["data"]["pid"], pid);
    assert_eq!(said["subcommand"], "run");
}

#[test]
fn it_survives_the_terminal_that_started_it() {
    let project = Project::new();
    let mut script = project.program("script");
    let line = "exec $TENURE daemon start --interval 1s";
    script
        .args(["--quiet", "--return", "--command", line, "/dev/null"])
        .env("SHELL", "/bin/sh");
    // When script ends, its terminal is closed, and every process on it gets SIGHUP.
    project.prepare(script).input().end().exits(0);
    let pid = project.daemon_status()["pid"].as_u64().unwrap();
    let daemon = Detached::of(u32::try_from(pid).unwrap());
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let (_, rest) = text.rsplit_once(')').unwrap();
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    // state ppid pgrp session tty
    assert_eq!(fields[2], pid.to_string(), "it leads a group of its own");
    assert_eq!(fields[3], pid.to_string(), "it leads a session of its own");
    assert_eq!(fields[4], "0", "it has no terminal");
    for fd in 0..=2 {
        let to = fs::read_link(format!("/proc/{pid}/fd/{fd}")).unwrap();
        assert_eq!(to.to_str().unwrap(), "/dev/null");
    }
    let cwd = fs::read_link(format!("/proc/{pid}/cwd")).unwrap();
    assert_eq!(cwd, project.root().canonicalize().unwrap());
    // A detached daemon takes SIGHUP as a request to reopen the log.
    fs::rename(project.path(".tenure/daemon.log"), project.path("old.log")).unwrap();
    daemon.signal(Signal::HUP);
    project.until_logged("Reopened the log (SIGHUP).", 0);
    assert!(daemon.runs());
}

#[test]
fn a_daemon_inherits_nothing_from_its_starter() {
    let project = Project::new();
    let said = project
        .call("run build --as me --no-wait")
        .sh("exec 7<. 8<.; exec $TENURE daemon start --quiet")
        .end()
        .exits(0);
    let daemon = Detached::of(said.out.trim().parse().unwrap());
    // Neither the liveness lock of the command, which would hold its key for ever, nor files of the shell. The daemon
    // itself opens the folder of the liveness locks, in which it queues to write.
    let open: Vec<_> = fs::read_dir(format!("/proc/{}/fd", daemon.pid))
        .unwrap()
        .filter_map(|fd| fs::read_link(fd.ok()?.path()).ok())
        .collect();
    let root = project.root().canonicalize().unwrap();
    let inherited =
        |to: &&std::path::PathBuf| **to == root || to.to_string_lossy().contains("tenure.db-live/");
    assert_eq!(open.iter().find(inherited), None, "{open:?}");
    let environment = fs::read(format!("/proc/{}/environ", daemon.pid)).unwrap();
    let environment = String::from_utf8_lossy(&environment).into_owned();
    for name in [
        "TENURE_HOLDER",
        "TENURE_TOKEN",
        "TENURE_KEY",
        "TENURE_PARENT_LEASES",
    ] {
        assert!(!environment.contains(&format!("{name}=")), "{name}");
    }
}

#[test]
fn it_stops_when_the_projects_folder_is_gone() {
    let project = Project::new();
    let running = project.start("daemon run --interval 1d");
    until("its cycle has ended", || {
        project.daemon_status()["lastCycle"].is_object()
    });
    fs::rename(project.path(".tenure"), project.path("moved")).unwrap();
    let said = running.ended().exits(0);
    assert!(
        said.out.contains("Stopped: the project's folder is gone."),
        "{said:?}"
    );
    assert!(
        !project.path(".tenure").exists(),
        "nothing is created again"
    );

    fs::rename(project.path("moved"), project.path(".tenure")).unwrap();
    let running = project.start("daemon run --interval 1d");
    let pid = running.pid();
    until("its cycle has ended", || {
        let status = project.daemon_status();
        status["pid"] == pid && status["lastCycle"].is_object()
    });
    fs::remove_dir_all(project.path(".tenure")).unwrap();
    running.ended().exits(0);
    assert!(
        !project.path(".tenure").exists(),
        "nothing is created again"
    );
}

#[test]
fn a_daemon_whose_lock_file_was_removed_locks_it_again_or_stops() {
    let project = Project::new();
    let first = project.daemon("--interval 1d");
    project.until_logged("Cycle done", 0);
    // It notices at once.
    fs::remove_file(project.path(".tenure/daemon.lock")).unwrap();
    project.until_logged(
        "The daemon's lock file was removed or replaced; locked it again.",
        0,
    );
    assert!(
        project
            .tenure("daemon start")
            .exits(0)
            .out
            .contains("already running")
    );
    assert!(first.runs());
    // Another daemon is faster.
    first.signal(Signal::STOP);
    fs::remove_file(project.path(".tenure/daemon.lock")).unwrap();
    let second = project.daemon("--interval 1d");
    first.signal(Signal::CONT);
    until("the first stops", || !first.runs());
    assert!(second.runs());
    assert_eq!(project.daemon_status()["pid"], second.pid);
}

/// Counts how often a file is opened.
struct Opens(std::os::fd::OwnedFd);

impl Opens {
    fn of(path: &std::path::Path) -> Self {
        let inotify = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
        inotify::add_watch(&inotify, path, inotify::WatchFlags::OPEN).unwrap();
        Self(inotify)
    }

    /// Since the last call. Opens that follow each other closely may count as one.
    fn count(&self) -> usize {
        let mut buffer = [std::mem::MaybeUninit::<u8>::uninit(); 1024];
        let mut reader = inotify::Reader::new(&self.0, &mut buffer);
        std::iter::from_fn(|| reader.next().ok().map(drop)).count()
    }
}

#[test]
fn an_observer_of_its_lock_is_not_mistaken_for_another_daemon() {
    let project = Project::new();
    let daemon = project.daemon("--interval 1d");
    project.until_logged("Cycle done", 0);
    // Another file takes the place of the lock, and an observer is looking at it: `daemon status` takes a
    // shared lock for a moment, this one for longer.
    let observer = fs::File::create(project.path("new.lock")).unwrap();
    observer.lock_shared().unwrap();
    let opens = Opens::of(&project.path("new.lock"));
    let lock = project.path(".tenure/daemon.lock");
    fs::rename(project.path("new.lock"), &lock).unwrap();
    let mut attempts = 0;
    until("it has tried several times to lock the new file", || {
        attempts += opens.count();
        attempts >= 3 || !daemon.runs()
    });
    assert!(daemon.runs(), "{:?}", project.logged());
    drop(observer);
    project.until_logged("locked it again", 0);
    assert!(daemon.runs());
    assert_eq!(project.daemon_status()["pid"], daemon.pid);
    assert!(
        project
            .tenure("daemon start")
            .exits(0)
            .out
            .contains("already running")
    );
}

#[test]
fn expired_and_dead_leases_are_ended_with_evidence() {
    let project = Project::new();
    project.acquire("build --as late --ttl 100ms");
    let mut child = std::process::Command::new("sleep")
        .arg("60")
        .spawn()
        .unwrap();
    project.acquire(&format!("deploy --as gone --pid {}", child.id()));
    project.acquire("schema --as holds --ttl 1h");
    child.kill().unwrap();
    child.wait().unwrap();
    until("its time runs out", || {
        project.verdict("build") == "expired"
    });
    let daemon = project.daemon("");
    project.until_logged("Ended the lease of late on build: it expired at ", 0);
    let words = format!(
        "Ended the lease of gone on deploy: pid {} has exited",
        child.id()
    );
    project.until_logged(&words, 0);
    project.until_logged("Cycle done: 2 leases ended.", 0);
    assert_eq!(project.verdict("schema"), "unknown");
    drop(daemon);
}

#[test]
fn an_unusable_store_or_invalid_settings_do_not_stop_it() {
    let project = Project::new();
    let daemon = project.daemon("--interval 1s");
    project.until_logged("Cycle done", 0);
    let config = project.path(".tenure/config.yaml");
    fs::write(&config, "daemon: {interval: soon}\n").unwrap();
    let at = project.until_logged("Invalid settings, keeping the previous ones: ", 0);
    fs::write(&config, "sync: {enabled: false}\n").unwrap();
    project.until_logged(
        "Cycle done: no leases to end. Sync is off (sync.enabled).",
        at,
    );
    // Logged once, not in every cycle.
    let logged = project
        .logged()
        .iter()
        .filter(|line| line.contains("Invalid settings"))
        .count();
    assert_eq!(logged, 1);

    for name in ["tenure.db", "tenure.db-wal", "tenure.db-shm"] {
        let _ = fs::rename(project.path(&format!(".tenure/{name}")), project.path(name));
    }
    fs::File::create(project.database())
        .unwrap()
        .write_all(&[7; 4096])
        .unwrap();
    let at = project.until_logged("Cycle failed: ", at);
    let _ = fs::remove_file(project.path(".tenure/tenure.db-wal"));
    let _ = fs::remove_file(project.path(".tenure/tenure.db-shm"));
    for name in ["tenure.db", "tenure.db-wal", "tenure.db-shm"] {
        let _ = fs::rename(project.path(name), project.path(&format!(".tenure/{name}")));
    }
    project.until_logged("Cycle done: ", at);
    assert!(daemon.runs());
}

#[test]
fn commands_that_change_tasks_start_it_with_autostart() {
    let project = Project::new();
    project.write(".tenure/config.yaml", "daemon: {autostart: true}\n");
    let none_runs = || project.daemon_status()["running"] == false;
    project.tenure("tasks list").exits(0);
    project.tenure("--no-daemon tasks add one").exits(0);
    project
        .call("tasks add two")
        .env("TENURE_NO_DAEMON", "1")
        .end()
        .exits(0);
    assert!(none_runs());
    assert!(
        !project.path(".tenure/daemon.lock").exists(),
        "none was started"
    );
    let said = project.tenure("tasks add three").exits(0);
    assert_eq!(said.err, "");
    until("it runs", || !none_runs());
    let pid = project.daemon_status()["pid"].as_u64().unwrap();
    let daemon = Detached::of(u32::try_from(pid).unwrap());
    project.tenure("sections add Backend").exits(0);
    project.tenure("tasks update one --priority 9").exits(0);
    assert_eq!(project.daemon_status()["pid"], pid, "the same one");
    drop(daemon);
}

#[test]
fn invalid_arguments_and_settings_are_refused() {
    let project = Project::new();
    project
        .tenure("daemon start --interval 1ms")
        .fails(2, &["from 1s to 1d"]);
    project
        .tenure("daemon run --interval 2d")
        .fails(2, &["from 1s to 1d"]);
    project
        .tenure("daemon start --log nowhere/at/all.log")
        .fails(1, &["the log ", "can't be opened", "--log"]);
    project
        .tenure("--store sqlite:x.db daemon start")
        .fails(2, &["the project's own store"]);
    project.tenure("daemon logs").fails(4, &["there is no log"]);
    project.write(".tenure/config.yaml", "daemon: {logMaxSize: big}\n");
    project
        .tenure("daemon start")
        .fails(2, &["daemon.logMaxSize", "\"big\" is not a size"]);
    assert_eq!(
        project.tenure("daemon start --json").exits(2).error(),
        "BAD_CONFIG"
    );
    let nowhere = Project::uninitialised();
    for words in ["run", "start", "stop", "status", "logs"] {
        nowhere
            .tenure(&format!("daemon {words}"))
            .fails(3, &["tenure init"]);
    }
}
