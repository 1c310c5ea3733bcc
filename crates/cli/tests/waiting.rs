//! A key that is busy: being told by whom, waiting for it, and leaving the queue.

use crate::project;

use std::os::unix::fs::MetadataExt;

use project::{Project, Running, until};
use rustix::process::Signal;

#[test]
fn a_busy_key_names_its_holder_its_pid_since_when_and_what_it_runs() {
    let project = Project::new();
    let held = project.hold("run build --as agent-1");
    let said = project.tenure("run build --no-wait -- touch ran").exits(6);
    let expected = format!(
        "\
error: build is locked by agent-1 (pid {} on [..]) since [..]Z, [..] ago
  it runs: sh -c 'echo $$; exec cat'
  Lock expires at: [..]Z (renewed while its command runs)
  to wait for it: --wait 10m; to look: tenure locks show build
",
        held.pid()
    );
    snapbox::assert_data_eq!(said.err.as_str(), expected.as_str());
    assert!(!project.path("ran").exists());

    let said = project
        .tenure("run build --no-wait --json -- touch ran")
        .exits(6);
    assert_eq!(said.error(), "LOCKED");
    assert_eq!(said.err, "", "with --json everything is in one place");
    let details = said.json()["error"]["details"].clone();
    assert_eq!(details["key"], "build");
    assert_eq!(details["leases"][0]["holder"], "agent-1");
    assert_eq!(details["leases"][0]["pid"], held.pid());
    assert_eq!(details["leases"][0]["token"], 1);
    assert_eq!(details["leases"][0]["verdict"], "alive");
    assert!(
        details["leases"][0]["acquiredAt"]
            .as_str()
            .unwrap()
            .ends_with('Z'),
        "{details}"
    );
    assert!(
        details["leases"][0]["expiresAt"]
            .as_str()
            .unwrap()
            .ends_with('Z'),
        "{details}"
    );
    assert!(!project.path("ran").exists());
}

#[test]
fn a_waiter_says_so_in_one_line_and_has_the_key_when_the_first_one_ends() {
    let project = Project::new();
    let mut first = project.hold("run build --as first --ttl 1h");
    let second = project.queue("build", "run build --as second --wait 10m -- echo mine");
    until("it says that it waits", || second.err().contains('\n'));
    let line = second.err();
    for word in [
        "waiting for build",
        "up to 10m",
        "first",
        "pid",
        "1st in the queue",
        "more: tenure why build",
    ] {
        assert!(line.contains(word), "{word}: {line}");
    }
    assert_eq!(line.lines().count(), 1, "{line}");
    assert_eq!(second.out(), "");

    first.let_go();
    first.ended().exits(0);
    let said = second.ended().exits(0);
    assert_eq!(said.out, "mine\n");
    assert_eq!(said.err.lines().count(), 2, "{said:?}");
    assert!(
        said.err.lines().last().unwrap().contains("got build after"),
        "{said:?}"
    );
    assert_eq!(
        project.story("build"),
        "granted 1, released 1, granted 2, released 2"
    );
}

#[test]
fn a_quiet_wait_says_nothing_and_a_json_wait_says_it_in_lines_beside_the_output() {
    let project = Project::new();
    let wait = |flag: &str| {
        let mut first = project.hold("run build --as first --ttl 1h");
        let second = project.queue(
            "build",
            &format!("run build {flag} --wait 10m -- echo mine"),
        );
        first.let_go();
        first.ended().exits(0);
        second.ended().exits(0)
    };
    let said = wait("--quiet");
    assert_eq!((said.out.as_str(), said.err.as_str()), ("mine\n", ""));
    let said = wait("--json");
    assert_eq!(said.out, "mine\n");
    let events: Vec<serde_json::Value> = said
        .err
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let names: Vec<&str> = events
        .iter()
        .map(|event| event["event"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["waiting", "granted", "released"], "{said:?}");
    assert_eq!(events[0]["busy"]["leases"][0]["holder"], "first");
    assert_eq!(events[0]["busy"]["position"], 1);
    assert_eq!(events[0]["limitSeconds"], 600.0);
    assert_eq!(events[1]["token"], 4);
    assert_eq!(
        (&events[2]["token"], &events[2]["exitCode"]),
        (&4.into(), &0.into())
    );
}

#[test]
fn a_wait_without_a_terminal_is_announced_in_one_short_line_and_why_says_the_rest() {
    let project = Project::new();
    let held = project.hold("run build --as first --ttl 1h");
    for words in [
        "run build --as me --wait 100ms -- true",
        "acquire build --wait 100ms",
        "run build -w 0.1 -- true",
    ] {
        let said = project.tenure(words).fails(6, &["waiting for build"]);
        let kept = said.err.contains("is kept for 10m");
        assert_eq!(kept, words.contains("--as"), "{said:?}");
        let line = said.err.lines().next().unwrap();
        let (before, after) = line.split_once(" for ").unwrap();
        assert_eq!(before, "tenure: waiting", "{line}");
        let pid = held.pid();
        assert!(
            after.starts_with(&format!("build, up to 100ms: held by first (pid {pid} on ")),
            "{line}"
        );
        let end = ", 1st in the queue; more: tenure why build";
        assert!(after.ends_with(end), "{line}");
        assert!(line.len() < 160, "{line}");
    }
    let why = project.tenure("why build").exits(0).out;
    assert!(
        why.contains("With --as NAME, a waiter that is cut off keeps its place."),
        "{why}"
    );
    let why = project.tenure("why build --as me").exits(0).out;
    assert!(!why.contains("--as NAME"), "{why}");
}

#[test]
fn a_kept_place_is_before_later_waiters_and_not_before_a_free_key() {
    let project = Project::new();
    let mut held = project.hold("run build --as first --ttl 1h");
    let said = project.tenure("run build --as early --wait 50ms -- true");
    said.fails(
        6,
        &["is kept for 10m", "if the key frees while you are away"],
    );
    held.let_go();
    held.ended().exits(0);
    project.tenure("run build --no-wait -- true").exits(0);
}

#[test]
fn a_wait_that_runs_out_is_6_and_leaves_the_queue() {
    let project = Project::new();
    let _held = project.hold("run build --as first");
    let said = project.tenure("run build --wait 200ms -- touch ran");
    said.fails(
        6,
        &["the wait timed out", "locked by first", "1st in the queue"],
    );
    assert!(project.waiting("build").is_empty());
    assert!(!project.path("ran").exists());
    let said = project
        .tenure("run build --wait 50ms --json -- touch ran")
        .exits(6);
    assert_eq!(said.error(), "LOCKED");
    assert_eq!(said.json()["error"]["details"]["position"], 1);
}

#[test]
fn a_wait_of_no_time_does_not_wait() {
    let project = Project::new();
    let _held = project.hold("run build");
    project
        .tenure("run build --wait 0s -- true")
        .fails(6, &["is locked by"]);
    project
        .tenure("run build --wait 1s --no-wait -- true")
        .fails(2, &["--no-wait"]);
}

/// A program that writes to the database for so long as this is not dropped.
fn busy_database(project: &Project) -> rusqlite::Connection {
    let db = rusqlite::Connection::open(project.database()).unwrap();
    db.busy_timeout(std::time::Duration::from_secs(30)).unwrap();
    db.execute_batch("BEGIN IMMEDIATE").unwrap();
    db
}

/// Whether a process listens for signals because it waits for a store.
fn listens(process: &Running) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{}/task", process.pid())).unwrap();
    let name = |thread: std::fs::DirEntry| std::fs::read_to_string(thread.path().join("comm"));
    threads
        .flatten()
        .flat_map(name)
        .any(|name| name.trim() == "signals")
}

#[test]
fn a_signal_ends_a_wait_for_a_busy_database_at_once() {
    let project = Project::new();
    let mut holder = project.hold("run build --ttl 1h");
    let waiter = project.queue("build", "run build --as me --wait 10m -- true");
    let db = busy_database(&project);
    let begins = project.start("run other -- touch ran");
    holder.let_go();
    for one in [&begins, &holder] {
        until("it waits for the database", || listens(one));
    }
    // The one can't leave the queue, the next can't ask, the last can't release.
    waiter.signal(Signal::INT);
    waiter.ended().exits(130);
    begins.signal(Signal::TERM);
    begins.ended().fails(143, &["stopped waiting for other"]);
    holder.signal(Signal::TERM);
    let said = holder.ended().exits(143);
    assert!(said.err.contains("build could not be released"), "{said:?}");
    assert!(said.err.contains("when a signal came"), "{said:?}");
    drop(db);
    assert!(!project.path("ran").exists());
    // Neither the ticket nor the lease of a process that has exited holds up another one.
    project
        .tenure("run build --as next --no-wait -- true")
        .exits(0);
}

#[test]
fn a_signal_ends_a_wait_for_a_lock_files_or_a_ledgers_writer_at_once() {
    let project = Project::with_ledger();
    for (store, key, locked) in [
        ("exclusive:.", "database", ".exclusive-lock-tenure/guard"),
        ("ledger:.", "node:1", "ledger/.ledger-tenure/gate"),
        ("ledger:.", "node:1", "ledger/ledger.lock"),
    ] {
        let run = format!("--store {store} run {key} -- touch ran");
        project.tenure(&run).exits(0);
        std::fs::remove_file(project.path("ran")).unwrap();
        let lock = std::fs::File::create(project.path(locked)).unwrap();
        lock.lock().unwrap();
        // The second one of a ledger waits in the queue of writers.
        for signal in [Signal::TERM, Signal::INT] {
            let first = project.start(&run);
            until("it waits", || listens(&first));
            let second = project.start(&run);
            until("the next one waits", || listens(&second));
            for one in [second, first] {
                one.signal(signal);
                one.ended().fails(
                    128 + signal.as_raw(),
                    &[&format!("stopped waiting for {key}")],
                );
            }
        }
        drop(lock);
        if locked.ends_with("ledger.lock") {
            std::fs::remove_file(project.path(locked)).unwrap();
        }
        assert!(!project.path("ran").exists());
        project.tenure(&run).exits(0);
    }
}

#[test]
fn an_interrupt_leaves_the_queue() {
    let project = Project::new();
    let held = project.hold("run build --ttl 1h");
    for words in [
        "run build -- touch ran",
        "run build --as me -- touch ran",
        "acquire build --as me",
    ] {
        let waiter = project.queue("build", words);
        waiter.signal(Signal::INT);
        waiter
            .ended()
            .fails(130, &["stopped waiting for build", "left the queue"]);
        assert!(project.waiting("build").is_empty());
    }
    assert!(!project.path("ran").exists());
    drop(held);
}

#[test]
fn a_named_waiter_that_is_cut_off_keeps_its_place() {
    let project = Project::new();
    let mut held = project.hold("run build --ttl 1h");
    let note = |name: &str| format!("run build --as {name} -- sh note {name}");
    project.write("note", "echo $1 >> order\n");
    let early = project.queue("build", &note("early"));
    let late = project.queue("build", &note("late"));
    early.signal(Signal::TERM);
    early
        .ended()
        .fails(143, &["your place is kept", "same --as"]);
    assert_eq!(project.waiting("build"), ["late"]);

    let again = project.queue("build", &note("early"));
    until("the waiter says so", || {
        again.err().contains("your place in the queue was kept")
    });
    assert_eq!(project.waiting("build"), ["early", "late"]);
    held.let_go();
    again.ended().exits(0);
    late.ended().exits(0);
    assert_eq!(project.read("order"), "early\nlate\n");
}

#[test]
fn a_named_waiter_whose_wait_ran_out_or_that_was_killed_keeps_its_place() {
    let project = Project::new();
    let _held = project.hold("run build --ttl 1h");
    let said = project.tenure("run build --as short --wait 100ms -- true");
    said.fails(6, &["your place is kept"]);
    project
        .queue("build", "run build --as killed -- true")
        .killed()
        .exits(137);
    let _late = project.queue("build", "run build --as late -- true");
    let _killed = project.queue("build", "run build --as killed -- true");
    let _short = project.queue("build", "run build --as short -- true");
    assert_eq!(project.waiting("build"), ["short", "killed", "late"]);
}

#[test]
fn a_waiter_without_a_name_has_no_place_to_keep() {
    let project = Project::new();
    let _held = project.hold("run build --ttl 1h");
    for signal in [Signal::TERM, Signal::HUP] {
        let waiter = project.queue("build", "run build -- true");
        waiter.signal(signal);
        let said = waiter.ended().exits(128 + signal.as_raw());
        assert!(said.err.contains("left the queue"), "{said:?}");
        let json = project.tenure("locks show build --json").json();
        assert_eq!(json["data"]["queue"].as_array().unwrap().len(), 0, "{json}");
    }
}

#[test]
fn a_place_that_is_not_kept_is_not_promised() {
    let project = Project::new();
    project.write(".tenure/config.yaml", "locking:\n  queueGrace: 0s\n");
    let _held = project.hold("run build --ttl 1h");
    let said = project
        .tenure("run build --as me --wait 100ms -- true")
        .exits(6);
    assert!(
        !said.err.contains("is kept"),
        "a promise of nothing: {said:?}"
    );
}

#[test]
fn waiters_are_served_in_the_order_they_came() {
    let project = Project::new();
    project.write("note", "echo $1 >> order\n");
    let mut held = project.hold("run build --ttl 1h");
    let waiters: Vec<_> = (1..=6)
        .map(|n| project.queue("build", &format!("run build -- sh note {n}")))
        .collect();
    held.let_go();
    for waiter in waiters {
        waiter.ended().exits(0);
    }
    assert_eq!(project.read("order"), "1\n2\n3\n4\n5\n6\n");
}

#[test]
fn a_crowd_that_waits_writes_nothing_and_is_served_in_order_after_a_stop() {
    const CROWD: usize = 200;
    let project = Project::new();
    let mut held = project.hold("run build --as holder --ttl 1h");
    let waiters: Vec<_> = (0..CROWD)
        .map(|number| project.start(&format!("run build --as w{number} --wait 1h -q -- true")))
        .collect();
    project.until_waiting("build", CROWD);
    let order = project.waiting("build");

    let db = rusqlite::Connection::open(project.database()).unwrap();
    let commits = || -> u32 {
        db.query_row("PRAGMA data_version", [], |row| row.get(0))
            .unwrap()
    };
    // The access time of a pipe says when its process was last heard.
    let heard = || -> Vec<(String, i64, i64)> {
        let pipes = std::fs::read_dir(project.path(".tenure/tenure.db-live")).unwrap();
        let mut heard: Vec<_> = pipes
            .map(|pipe| {
                let pipe = pipe.unwrap();
                let (name, seen) = (pipe.file_name(), pipe.metadata().unwrap());
                (name.into_string().unwrap(), seen.atime(), seen.atime_nsec())
            })
            .collect();
        heard.sort();
        heard
    };
    let (before, first_heard) = (commits(), heard());
    assert!(first_heard.len() > CROWD, "{}", first_heard.len());
    until("all were heard again", || {
        let now = heard();
        first_heard.iter().all(|pipe| !now.contains(pipe))
    });
    assert_eq!(commits(), before, "nothing was written meanwhile");

    for signal in [Signal::STOP, Signal::CONT] {
        for waiter in &waiters {
            waiter.signal(signal);
        }
    }
    held.let_go();
    for waiter in waiters {
        waiter.ended().exits(0);
    }
    let granted = project
        .history("build --limit 1000")
        .into_iter()
        .filter_map(|(kind, _, event)| {
            (kind == "granted").then(|| event["holder"].as_str().unwrap().to_owned())
        });
    assert_eq!(granted.skip(1).collect::<Vec<_>>(), order);
}

#[test]
fn the_more_urgent_go_first() {
    let project = Project::new();
    project.write("note", "echo $1 >> order\n");
    let mut held = project.hold("run build --ttl 1h");
    let waiters: Vec<_> = [
        ("low", "--priority 0"),
        ("usual", ""),
        ("high", "--priority 9"),
    ]
    .map(|(name, flag)| {
        project.queue(
            "build",
            &format!("run build --as {name} {flag} -- sh note {name}"),
        )
    })
    .into();
    assert_eq!(project.waiting("build"), ["high", "usual", "low"]);
    held.let_go();
    for waiter in waiters {
        waiter.ended().exits(0);
    }
    assert_eq!(project.read("order"), "high\nusual\nlow\n");
}

#[test]
fn a_waiter_that_died_or_left_holds_up_no_other() {
    let project = Project::new();
    let mut held = project.hold("run build --ttl 1h");
    let killed = project.queue("build", "run build -- true");
    let left = project.queue("build", "run build -- true");
    let stays = project.queue("build", "run build --wait 10m -- echo mine");
    killed.killed();
    left.signal(Signal::INT);
    left.ended().exits(130);
    held.let_go();
    assert_eq!(stays.ended().exits(0).out, "mine\n");
}

#[test]
fn a_waiter_is_served_as_soon_as_a_lease_runs_out() {
    let project = Project::new();
    // Much sooner than anybody would look by itself.
    project.write(".tenure/config.yaml", "locking:\n  pollInterval: 60m\n");
    project.acquire("build --as gone --ttl 700ms");
    let waiter = project.start("run build --wait 10m -- echo mine");
    assert_eq!(waiter.ended().exits(0).out, "mine\n");
    assert_eq!(
        project.story("build"),
        "granted 1, expired 1, granted 2, released 2"
    );
}

#[test]
fn a_signal_that_comes_together_with_the_key_is_not_swallowed() {
    // Stopped, the waiter can't help but find both when it goes on: the key is free, and it was
    // told to end. Either it never runs its command, or the command hears of the signal.
    let project = Project::new();
    for round in 0..12 {
        project.acquire("build --as first");
        let waiter = project.queue("build", "run build -- sleep 1");
        waiter.signal(Signal::STOP);
        project.tenure("release build --as first").exits(0);
        waiter.signal(Signal::TERM);
        waiter.signal(Signal::CONT);
        let said = waiter.ended();
        assert_eq!(said.code, 143, "round {round}: {said:?}");
        assert_eq!(project.tenure("locks list").out, "No locks.\n");
    }
}

#[test]
fn acquire_waits_in_the_same_queue() {
    let project = Project::new();
    let mut held = project.hold("run build --ttl 1h");
    let first = project.queue("build", "acquire build --as agent-1");
    let second = project.queue("build", "run build --as agent-2 -- echo mine");
    held.let_go();
    assert_eq!(first.ended().exits(0).out, "2\n");
    assert_eq!(project.waiting("build"), ["agent-2"]);
    project.tenure("release build --as agent-1").exits(0);
    assert_eq!(second.ended().exits(0).out, "mine\n");
}

#[test]
fn a_quit_ends_a_wait_like_any_other_signal() {
    let project = Project::new();
    let _held = project.hold("run build --ttl 1h");
    let waiter = project.queue("build", "run build --wait 3s -- touch ran");
    waiter.signal(Signal::QUIT);
    waiter.ended().exits(131);
    assert!(!project.path("ran").exists());
}

#[test]
fn a_holder_is_asked_to_release_and_sees_it_everywhere() {
    let project = Project::new();
    project.tenure("ask build").fails(4, &["build is free"]);
    project.tenure("acquire build --as ann --ttl 10m").exits(0);
    project
        .tenure("ask build --as ann")
        .fails(5, &["no other holder to ask", "you are ann"]);
    project.tenure("ask build --as bob --note hotfix").exits(0);
    let shown = project.tenure("locks show build").exits(0).out;
    assert!(shown.contains("bob asks for build: hotfix"), "{shown}");
    let renewed = project.tenure("renew build --as ann").exits(0).out;
    assert!(renewed.contains("bob asks for build: hotfix"), "{renewed}");
    let renewed = project
        .tenure("renew build --as ann --json")
        .exits(0)
        .json();
    assert_eq!(renewed["data"]["asked"][0]["by"], "bob");
    assert_eq!(renewed["data"]["asked"][0]["note"], "hotfix");
    // Nothing was taken away, and the request ends with the lease.
    project.tenure("release build --as ann").exits(0);
    project.tenure("acquire build --as ann").exits(0);
    let shown = project.tenure("locks show build").exits(0).out;
    assert!(!shown.contains("asks for"), "{shown}");
    project.tenure("release build --as ann").exits(0);
    project.tenure("locks verify").exits(0);
    project.tenure("timeline").exits(0);
    let kinds: Vec<String> = project
        .history("build")
        .into_iter()
        .map(|(kind, _, _)| kind)
        .collect();
    assert!(kinds.contains(&"asked".to_owned()), "{kinds:?}");
}

#[test]
fn a_running_command_finds_what_it_is_asked_in_a_file() {
    let project = Project::new();
    let script = "until [ -s \"$TENURE_ASKED\" ]; do sleep 0.01; done; cat \"$TENURE_ASKED\"; echo $TENURE_ASKED";
    let running = project.call("run build other --as ann").sh(script).start();
    until("build is held", || {
        project.tenure("locks list").out.contains("other")
    });
    project.tenure("ask other --as bob --note please").exits(0);
    let said = running.ended().exits(0);
    assert!(said.err.contains("bob asks for other: please"), "{said:?}");
    let lines: Vec<&str> = said.out.lines().collect();
    let asked: serde_json::Value = serde_json::from_str(lines[0]).unwrap();
    assert_eq!(
        (&asked["by"], &asked["key"]),
        (&"bob".into(), &"other".into())
    );
    let file = std::path::Path::new(lines[1]);
    assert!(!file.exists(), "it was left behind");
    let beside = project.path(".tenure/tenure.db-live");
    assert_eq!(
        file.parent(),
        Some(beside.as_path()),
        "it is beside the store"
    );
}

#[test]
fn what_a_killed_run_was_asked_is_private_and_removed_with_its_lock() {
    use std::os::unix::fs::MetadataExt;
    let project = Project::new();
    let running = project
        .call("run build --as ann")
        .sh("echo $TENURE_ASKED; exec cat")
        .input()
        .start();
    until("it runs", || running.out().ends_with('\n'));
    let file = std::path::PathBuf::from(running.out().trim_end());
    project.tenure("ask build --as bob").exits(0);
    until("it is asked", || {
        std::fs::metadata(&file).is_ok_and(|file| file.len() > 0)
    });
    assert_eq!(file.metadata().unwrap().mode() & 0o777, 0o600);
    let _ = running.killed();
    project.tenure("locks cleanup").exits(0);
    assert!(!file.exists(), "it was left behind");
}
