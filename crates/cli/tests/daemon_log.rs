//! The daemon's log: shown, followed, rotated, and on a full disk.

use crate::project;

use std::collections::BTreeSet;
use std::fs;
use std::process::{Command, Stdio};

use project::daemon::{lock_text, put};
use project::{Project, TENURE, until};
use tenure_testkit::default_signals;

/// Makes the daemon log these lines: each lock that appears is a line.
fn log_lines(project: &Project, lines: std::ops::Range<usize>) {
    for number in lines {
        let holder = format!("tool-{number}");
        put(
            &project.lock_file(".tenure"),
            lock_text(&holder, std::process::id()),
        );
        until("it is logged", || {
            project.daemon_status()["skipped"]["holder"] == holder.as_str()
        });
    }
}

#[test]
fn the_end_of_the_log_is_shown_and_followed_across_rotations() {
    let project = Project::new();
    project.write(".tenure/config.yaml", "daemon: {logMaxSize: 1KB}\n");
    let daemon = project.daemon("--interval 1d");
    let follow = project.start("daemon logs -f -n 1000");
    let json = project.start("daemon logs --follow --json");
    log_lines(&project, 0..30);
    assert!(
        project.path(".tenure/daemon.log.1").exists(),
        "it was rotated"
    );
    assert!(!project.path(".tenure/daemon.log.4").exists());
    for name in ["daemon.log.3", "daemon.log.2", "daemon.log.1", "daemon.log"] {
        let size = project.read(&format!(".tenure/{name}")).len();
        assert!(size <= 1000, "{name} has {size} bytes");
    }
    let words = |number: usize| format!("Skipping database (locked by tool-{number})");
    for running in [&follow, &json] {
        until("all of it is shown", || running.out().contains(&words(29)));
        let out = running.out();
        // Each line once and in order, whichever file it was in. On a busy machine, one lock is seen by two cycles.
        let shown: Vec<&str> = out.lines().collect();
        let mut at = 0;
        for number in 0..30 {
            let skips = |line: &&&str| line.contains(&words(number));
            let lines: Vec<&&str> = shown.iter().filter(skips).collect();
            let each: BTreeSet<&&str> = lines.iter().copied().collect();
            assert_eq!(lines.len(), each.len(), "{number}: {out}");
            let found = shown.iter().position(|line| line.contains(&words(number)));
            assert!(found.is_some_and(|found| found >= at), "{number}: {out}");
            at = found.unwrap();
        }
    }
    for line in json.out().lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        assert!(line["at"].is_string() && line["text"].is_string(), "{line}");
    }
    let last = project.tenure("daemon logs -n 3").exits(0).out;
    assert_eq!(last.lines().count(), 3);
    assert!(last.lines().last().unwrap().ends_with(&words(29)), "{last}");
    let many = project.tenure("daemon logs -n 20 --json").exits(0).json();
    let lines = many["data"]["lines"].as_array().unwrap();
    assert_eq!(lines.len(), 20, "more than one log holds");
    let mut texts: Vec<&str> = lines
        .iter()
        .map(|line| line["text"].as_str().unwrap())
        .collect();
    texts.dedup();
    let expected: Vec<String> = (30 - texts.len()..30).map(words).collect();
    assert_eq!(texts, expected);
    drop(daemon);
}

#[test]
fn a_log_elsewhere_is_found_again_by_status_and_logs() {
    let project = Project::new();
    let said = project
        .tenure("daemon start --log ours.log --json")
        .exits(0)
        .json();
    let daemon = project::daemon::Detached::of(
        u32::try_from(said["data"]["pid"].as_u64().unwrap()).unwrap(),
    );
    until("it has said something", || {
        project.read("ours.log").contains("Cycle done")
    });
    assert!(!project.path(".tenure/daemon.log").exists());
    assert!(
        project.daemon_status()["log"]
            .as_str()
            .unwrap()
            .ends_with("/work/ours.log")
    );
    let said = project.tenure("daemon logs").exits(0);
    assert!(said.out.contains("Started: pid "), "{said:?}");
    drop(daemon);
    // Also of a daemon that has stopped.
    let said = project.tenure("daemon logs -n 100").exits(0);
    assert!(said.out.contains("Started: pid "), "{said:?}");
}

#[test]
fn a_log_that_can_not_be_written_does_not_stop_the_daemon() {
    let project = Project::new();
    // Not even root can write a line into a folder.
    let log = project.path(".tenure/daemon.log");
    fs::create_dir(&log).unwrap();
    let said = project.tenure("daemon start --interval 1s").exits(0);
    assert!(said.err.contains("can't be written"), "{said:?}");
    let pid = project.daemon_status()["pid"].as_u64().unwrap();
    let daemon = project::daemon::Detached::of(u32::try_from(pid).unwrap());
    until("it works", || {
        project.daemon_status()["lastCycle"]["outcome"] == "done"
    });
    let shown = project.tenure("daemon status").exits(0).out;
    assert!(shown.contains("The log can't be written: "), "{shown}");
    // Every line is a new attempt.
    fs::remove_dir(&log).unwrap();
    put(
        &project.lock_file(".tenure"),
        lock_text("tool", std::process::id()),
    );
    project.until_logged("earlier lines could not be written", 0);
    project.until_logged("Skipping database (locked by tool)", 0);
    until("all is well", || {
        project.daemon_status()["logError"].is_null()
    });
    project.tenure("daemon stop").exits(0);
    assert!(!daemon.runs());
}

#[test]
fn a_full_disk_does_not_stop_the_daemon() {
    // The whole project is on a small disk: the daemon has to survive and go on.
    let project = Project::new();
    let script = r#"
mount -t tmpfs -o size=1m,mode=0777 small "$1" || exit 77
cd "$1" && "$TENURE" init --quiet || exit 1
"$TENURE" daemon run --quiet --interval 1s & DAEMON=$!
logged() { for i in $(seq 600); do grep -q "$1" .tenure/daemon.log && return; sleep 0.05; done; echo "not logged: $1"; cat .tenure/daemon.log; kill $DAEMON; exit 2; }
logged 'Cycle done'
dd if=/dev/zero of=ballast bs=1k 2>/dev/null
# What is left of the last block of each file, too.
for i in 1 2 3 4 5 6 7 8; do
  cat > .tenure/.exclusive-lock <<EOF
{"holder":"tool-$i","pid":$$,"hostname":"$(hostname)","started_at":"2025-10-25T12:00:00Z"}
EOF
  sleep 0.2
done
kill -0 $DAEMON || { echo "it ended"; exit 3; }
rm ballast .tenure/.exclusive-lock
logged 'Cycle done'
"$TENURE" tasks add 'there is space again' --quiet > /dev/null || exit 4
kill $DAEMON
wait $DAEMON || exit 5
grep -vE '^[0-9TZ:.-]+ .+$' .tenure/daemon.log && { echo 'a torn line'; exit 6; }
tail -n 1 .tenure/daemon.log
"#;
    let mut command = Command::new("unshare");
    default_signals(&mut command);
    let root = rustix::process::geteuid().is_root();
    command.arg(if root { "-m" } else { "-rm" });
    command.args(["sh", "-c", script, "sh"]);
    let place = tempfile::tempdir().unwrap();
    let done = command
        .arg(place.path())
        .env("TENURE", TENURE)
        .env("HOME", project.home())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let (out, err) = (
        String::from_utf8_lossy(&done.stdout),
        String::from_utf8_lossy(&done.stderr),
    );
    if done.status.code() == Some(77) || err.contains("unshare failed") {
        tenure_testkit::left_out("unshare can't mount a small file system here");
        return;
    }
    assert_eq!(done.status.code(), Some(0), "{out}\n{err}");
    assert!(
        out.ends_with("Stopped: received SIGTERM.\n"),
        "{out}\n{err}"
    );
}
