//! Daemons under attack: killed at any moment, and beside a tool that replaces stale locks with live ones.

use crate::project;

use std::fs;
use std::time::Duration;

use project::daemon::{Detached, NOBODY, lock_text, put};
use project::{Project, Running, until};

/// Pseudo-random numbers, the same in every run.
struct Chance(u64);

impl Chance {
    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}

#[test]
fn no_live_lock_is_ever_removed_by_daemons_that_remove_stale_ones() {
    // A daemon looks at most ten times a second, so four projects share the folder of the lock. The tool
    // never pauses: whenever a daemon looks, a live lock is about to replace a stale one.
    let projects: Vec<Project> = (0..4).map(|_| Project::new()).collect();
    // In memory if possible, where the tool is fast.
    let shared = tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir());
    let shared = shared.unwrap();
    let place = shared.path().join(".exclusive-lock");
    for project in &projects {
        std::os::unix::fs::symlink(shared.path(), project.path(".beads")).unwrap();
    }
    let _daemons: Vec<Running> = projects
        .iter()
        .map(|project| {
            let running = project.start("daemon run --quiet --interval 1s");
            project.until_logged("Cycle done", 0);
            running
        })
        .collect();
    let mut chance = Chance(0x9e37_79b9_7f4a_7c15);
    let live = lock_text("live", std::process::id());
    let stale = lock_text("stale", NOBODY);
    let logged = |words: &str| -> usize {
        let lines = projects.iter().flat_map(Project::logged);
        lines.filter(|line| line == words).count()
    };
    let removed = || logged("Removed stale lock (stale), proceeding with sync");
    let mut rounds = 0;
    // At least 5,000 rounds, and until the daemons have removed enough locks.
    while rounds < 5_000 || (rounds < 500_000 && (rounds % 1_000 != 0 || removed() < 60)) {
        rounds += 1;
        put(&place, &stale);
        for _ in 0..chance.below(4_000) {
            std::hint::spin_loop();
        }
        put(&place, &live);
        for _ in 0..chance.below(8_000) {
            std::hint::spin_loop();
        }
        // It may be moved away for microseconds, but never removed.
        until("the live lock is in its place", || {
            fs::read_to_string(&place).is_ok_and(|text| text == live)
        });
    }
    let (removed, skipped) = (removed(), logged("Skipping database (locked by live)"));
    println!("{rounds} rounds: {removed} stale locks were removed, {skipped} live ones seen");
    assert!(
        removed >= 60,
        "the daemons removed too few locks to prove anything: {removed}"
    );
    assert!(
        skipped >= 20,
        "the daemons saw too few live locks to prove anything: {skipped}"
    );
}

#[test]
fn after_200_kills_at_any_moment_the_next_daemon_finishes_the_work() {
    let project = Project::new();
    fs::create_dir(project.path(".beads")).unwrap();
    // Something to do in every step, so that kills hit all of them: log rotation, stale locks, leases.
    project.write(".tenure/config.yaml", "daemon: {logMaxSize: 1KB}\n");
    let mut chance = Chance(0x2545_f491_4f6c_dd1d);
    for round in 0..200 {
        let folder = if round % 2 == 0 { ".beads" } else { ".tenure" };
        put(
            &project.lock_file(folder),
            lock_text(&format!("tool-{round}"), NOBODY),
        );
        if round % 4 == 0 {
            project.acquire(&format!("key-{round} --as late --ttl 100ms"));
        }
        let running = project.start("daemon run --quiet --interval 1s");
        std::thread::sleep(Duration::from_micros(chance.below(30_000)));
        let said = running.killed();
        assert_eq!((said.code, said.err.as_str()), (137, ""), "round {round}");
        check_files(&project, round);
        if round % 25 == 24 {
            finishes_the_work(&project, round);
        }
    }
    finishes_the_work(&project, 200);
}

/// Checks that the files a killed daemon leaves are whole.
fn check_files(project: &Project, round: usize) {
    let state = project.read(".tenure/daemon.json");
    if !state.is_empty() {
        let state: Result<serde_json::Value, _> = serde_json::from_str(&state);
        assert!(state.is_ok(), "round {round}: {state:?}");
    }
    for name in ["daemon.log.3", "daemon.log.2", "daemon.log.1", "daemon.log"] {
        let text = project.read(&format!(".tenure/{name}"));
        assert!(text.len() <= 1000, "round {round}: {name} is too large");
        assert!(
            text.is_empty() || text.ends_with('\n'),
            "round {round}: {name}: {text}"
        );
        for line in text.lines() {
            let (at, words) = line.split_once(' ').unwrap();
            let at: Result<jiff::Timestamp, _> = at.parse();
            assert!(at.is_ok() && !words.is_empty(), "round {round}: {line}");
        }
    }
    assert!(!project.path(".tenure/daemon.log.4").exists());
}

/// Checks that the next daemon finishes all the work.
#[track_caller]
fn finishes_the_work(project: &Project, round: usize) {
    let daemon: Detached = project.daemon("--interval 1s");
    until("all work is done", || {
        let status = project.daemon_status();
        let done = status["lastCycle"]["outcome"] == "done";
        let list = project.tenure("locks list --json").exits(0).json();
        let free = list["data"]["locks"].as_array().unwrap().is_empty();
        let gone = |folder| !project.lock_file(folder).exists();
        done && free && gone(".beads") && gone(".tenure")
    });
    project.tenure("daemon stop").exits(0);
    assert!(!daemon.runs(), "round {round}");
    check_files(project, round);
}
