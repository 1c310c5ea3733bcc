//! `--store mkdir:DIR`: the lock that shells take with mkdir, beside real shells.

use crate::project;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Child, Stdio};

use project::{Project, TENURE, until};
use tenure_testkit::scaled;

const STORE: &str = "--store mkdir:storage/lock";

/// A pid that no process has.
const NOBODY: i32 = i32::MAX;

#[test]
fn a_command_runs_under_the_lock_and_the_lock_tells_of_it() {
    let project = Project::uninitialised();
    let said = project
        .call(&format!("run {STORE} board"))
        .sh("cat storage/lock/pid storage/lock/cmd; echo $PPID")
        .end()
        .exits(0);
    let lines: Vec<_> = said.out.lines().collect();
    assert_eq!(lines[0], lines[2], "the pid is that of tenure");
    assert!(lines[1].starts_with("sh -c 'cat storage"), "{said:?}");
    assert!(!project.path("storage/lock").exists());
    assert_eq!(
        project.story(&format!("board {STORE}")),
        "granted 1, released 1"
    );
}

#[test]
fn the_holder_is_named_and_a_lock_without_a_pid_is_left_alone() {
    let project = Project::uninitialised();
    fs::create_dir_all(project.path("storage/lock")).unwrap();
    let run = format!("run {STORE} board --no-wait -- touch ran");
    project.tenure(&run).fails(
        6,
        &[
            "board is locked by",
            "tenure locks show board --store mkdir:storage/lock",
        ],
    );
    let said = project
        .tenure(&format!("locks show board {STORE}"))
        .exits(0);
    assert!(said.out.contains("it names no process"), "{said:?}");
    project.write("storage/lock/pid", "1\n");
    project.write("storage/lock/cmd", "/bin/bilu board --x\n");
    project
        .tenure(&run)
        .fails(6, &["bilu:1 (pid 1 on", "it runs: /bin/bilu board --x"]);
    assert!(!project.path("ran").exists());
    project.write("storage/lock/pid", &format!("{NOBODY}\n"));
    project.tenure(&run).exits(0);
    assert!(project.path("ran").exists());
}

#[test]
fn a_command_whose_lock_is_removed_is_stopped_with_7_and_that_is_recorded() {
    let project = Project::uninitialised();
    for deed in [
        "chmod u+w storage/lock; rm -rf storage/lock",
        "mv storage/lock storage/x",
        "chmod u+w storage/lock; rm -rf storage/lock; mkdir storage/lock",
    ] {
        let script = format!("sleep 0.1; {deed}; exec sleep 300");
        let said = project
            .call(&format!("run {STORE} board"))
            .sh(&script)
            .end();
        said.fails(
            7,
            &["the lease on board", "was lost", "its command was stopped"],
        );
        let story = project.story(&format!("board {STORE}"));
        assert!(story.contains("forced"), "{story}");
        let _ = fs::remove_dir_all(project.path("storage/lock"));
    }
    // Also when it is over before anybody could look.
    let said = project
        .call(&format!("run {STORE} board"))
        .sh("chmod u+w storage/lock; rm -rf storage/lock")
        .end()
        .exits(7);
    // tenure may also be quick enough to stop it.
    let ends = ["its command had just ended", "its command was stopped"];
    assert!(ends.iter().any(|end| said.err.contains(end)), "{said:?}");
}

#[test]
fn a_command_under_the_lock_does_not_wait_for_itself() {
    let project = Project::uninitialised();
    let inner = format!("$TENURE run {STORE} board -- true");
    let said = project.call(&format!("run {STORE} board")).sh(&inner).end();
    said.fails(6, &["would never end"]);
}

/// What every shell of a contest does with the lock; `$1` is what it does when the lock is held.
const WAITER: &str = r#"
until mkdir storage/lock 2>/dev/null; do
  eval "$1"
done
echo $$ > storage/lock/pid 2>/dev/null
date +%s > storage/lock/ts 2>/dev/null
echo "$0" > storage/lock/cmd 2>/dev/null
who=sh
. ./inside.sh
[ "$(cat storage/lock/pid 2>/dev/null)" = $$ ] || echo $$ >> robbed
rm -f storage/lock/pid storage/lock/ts storage/lock/cmd 2>/dev/null
rmdir storage/lock 2>/dev/null
exit 0
"#;

/// The protocol's minimum: wait.
const WAIT: &str = "sleep 0.01";

/// The protocol's optional step: break a lock whose pid is dead.
const BREAK: &str = r#"
pid=$(cat storage/lock/pid 2>/dev/null)
if [ -n "$pid" ] && ! kill -0 "$pid" 2>/dev/null; then
  echo $$ >> broke
  rm -rf storage/lock 2>/dev/null
else
  sleep 0.01
fi
"#;

/// What every holder does inside. It uses no lock: of two processes that overlap, the one that entered later and
/// the one that left later both notice it.
const INSIDE: &str = r#"
: > "in/$who.$$"
beside() { ls in | grep -v "^$who\.$$\$" | while read -r other; do echo "$who $other" >> overlaps; done; }
beside
sleep 0.002
beside
rm "in/$who.$$"
echo "$who" >> log
"#;

/// A contest of shells and tenures for a lock that a dead process left behind.
struct Contest {
    project: Project,
    /// What to run everything through.
    through: Vec<String>,
    tenure: std::path::PathBuf,
}

impl Contest {
    fn new(unprivileged: bool) -> Self {
        let project = Project::uninitialised();
        project.write("waiter.sh", WAITER);
        project.write("inside.sh", INSIDE);
        for folder in ["in", "storage"] {
            fs::create_dir(project.path(folder)).unwrap();
        }
        let tenure = project.path("tenure");
        project::write_program(&tenure, &fs::read(TENURE).unwrap());
        let mut through = Vec::new();
        if unprivileged && rustix::process::getuid().is_root() {
            // A user who can enter this folder and write to it.
            let whole = project.root().parent().unwrap().to_owned();
            fs::set_permissions(&whole, fs::Permissions::from_mode(0o755)).unwrap();
            for folder in [
                project.root(),
                project.home(),
                project.path("in"),
                project.path("storage"),
            ] {
                std::os::unix::fs::chown(folder, Some(65534), Some(65534)).unwrap();
            }
            let words = "setpriv --reuid=65534 --regid=65534 --clear-groups";
            through.extend(words.split(' ').map(str::to_owned));
        }
        Self {
            project,
            through,
            tenure,
        }
    }

    fn start(&self, words: &[&str]) -> Child {
        let through = self.through.iter().map(String::as_str);
        let all: Vec<&str> = through.chain(words.iter().copied()).collect();
        self.project
            .program(all[0])
            .args(&all[1..])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    }

    /// One round: eight of each. The codes of the tenures.
    fn round(&self, round: usize, when_busy: &str) -> Vec<i32> {
        let mut holder = None;
        let pid = if round.is_multiple_of(2) {
            NOBODY.to_string()
        } else {
            // One that dies when all wait for it.
            let sleeper = self.start(&["sleep", "600"]);
            let pid = sleeper.id().to_string();
            holder = Some(sleeper);
            pid
        };
        let made = format!("mkdir storage/lock && echo {pid} > storage/lock/pid");
        assert!(self.start(&["sh", "-c", &made]).wait().unwrap().success());
        let tenure = self.tenure.to_str().unwrap();
        let mut shells = Vec::new();
        let mut tenures = Vec::new();
        for number in 0..8 {
            let shell = if number % 2 == 0 { "dash" } else { "bash" };
            shells.push(self.start(&[shell, "waiter.sh", when_busy]));
            let inside = "who=tenure; . ./inside.sh";
            let run = [
                "run",
                "--store",
                "mkdir:storage/lock",
                "board",
                "--wait",
                "2m",
            ];
            let words = [&[tenure][..], &run, &["--", "sh", "-c", inside]].concat();
            tenures.push(self.start(&words));
        }
        if let Some(mut holder) = holder {
            self.project.until_waiting(&format!("board {STORE}"), 8);
            holder.kill().unwrap();
            holder.wait().unwrap();
        }
        let codes = tenures
            .iter_mut()
            .map(|tenure| ended(tenure, "a tenure"))
            .collect();
        for shell in &mut shells {
            assert_eq!(ended(shell, "a shell"), 0);
        }
        codes
    }
}

fn ended(child: &mut Child, what: &str) -> i32 {
    let mut status = None;
    until(&format!("{what} has got the lock and ended"), || {
        status = child.try_wait().unwrap();
        status.is_some()
    });
    status.unwrap().code().unwrap_or(-1)
}

#[test]
fn shells_that_never_break_a_lock_and_tenures_are_never_inside_together() {
    let contest = Contest::new(false);
    let rounds = scaled(12);
    for round in 0..rounds {
        let codes = contest.round(round, WAIT);
        assert_eq!(codes, [0; 8], "round {round}");
        assert!(
            !contest.project.path("storage/lock").exists(),
            "round {round}"
        );
    }
    assert_eq!(contest.project.read("overlaps"), "");
    let log = contest.project.read("log");
    let who = |name: &str| log.lines().filter(|line| *line == name).count();
    assert_eq!((who("sh"), who("tenure")), (8 * rounds, 8 * rounds));
}

/// Shells that break locks break one another's: one sees a dead pid, another one is quicker, and the first
/// removes the lock that the second has made since. The second is then inside without a lock, and no other
/// program can know: not the shells, and not a tenure that finds the path free. What tenure guarantees: its own
/// lock is never broken, and it never takes over one whose process is alive.
#[test]
fn shells_that_break_locks_never_break_that_of_a_tenure_nor_does_it_break_a_live_one() {
    let contest = Contest::new(true);
    let rounds = scaled(12);
    // When the holder was dead from the start, and when it died while all waited.
    let mut beside = [0, 0];
    for round in 0..rounds {
        for file in ["overlaps", "broke", "robbed"] {
            let _ = fs::remove_file(contest.project.path(file));
        }
        let codes = contest.round(round, BREAK);
        // None lost its lock while it had it.
        assert_eq!(codes, [0; 8], "round {round}");
        let [overlaps, robbed] = ["overlaps", "robbed"].map(|file| contest.project.read(file));
        if contest.project.read("broke").is_empty() {
            assert_eq!(overlaps, "", "round {round}: no lock was broken");
        }
        let story = contest
            .project
            .tenure(&format!("locks history board {STORE} --limit 100000"));
        for line in overlaps.lines().filter(|line| line.contains("tenure")) {
            beside[round % 2] += 1;
            // `tenure sh.PID`, or `sh tenure.PID` by one that was seen by the other as well, or had been.
            let Some((_, pid)) = line.split_once("sh.") else {
                assert_ne!(robbed, "", "round {round}: {line}");
                continue;
            };
            assert!(
                robbed.lines().any(|robbed| robbed == pid),
                "round {round}: {line}"
            );
            let dead = format!(":{pid} ");
            let taken = story
                .out
                .lines()
                .any(|line| line.contains(&dead) && line.contains("dead"));
            assert!(
                !taken,
                "round {round}: tenure took the lock of {pid}, which lived"
            );
        }
        // What shells leave behind when they broke one another's.
        let _ = fs::remove_dir_all(contest.project.path("storage/lock"));
    }
    let story = contest.project.story(&format!("board {STORE}"));
    assert!(!story.contains("forced"), "{story}");
    println!(
        "{rounds} rounds: {beside:?} times a tenure was beside a shell that others had robbed"
    );
}

/// A command that removes its own lock, as root's `rm -rf` would, and leaves a process behind that keeps
/// working until the file `done` exists. The path is free at once: `rm` alone would be stopped halfway, because tenure
/// ends the command as soon as the first file of its lock is gone.
const ROBBED: &str = r"
setsid sh -c ': > escaped; while [ ! -e done ] && [ -d storage ]; do sleep 0.01; done; echo robbed >> order' &
until [ -e escaped ]; do sleep 0.01; done
chmod 755 storage/lock; mv storage/lock storage/gone; rm -rf storage/gone
exec sleep 300
";

#[test]
fn a_robbed_lease_is_not_granted_again_while_its_command_runs() {
    let project = Project::uninitialised();
    let said = project.call(&format!("run {STORE} board")).sh(ROBBED).end();
    said.fails(7, &["the lease on board", "was lost"]);
    // The path is free, and the robbed command still runs.
    assert!(!project.path("storage/lock").exists());
    let board = format!("board {STORE}");
    assert_eq!(project.story(&board), "granted 1, forced 1");
    let run = format!("run {STORE} board --no-wait -- touch ran");
    project.tenure(&run).fails(6, &["board is locked by"]);
    project.tenure(&format!("fence {board} --token 1")).exits(7);
    assert!(!project.path("ran").exists());
    let waiter = project
        .call(&format!("run {STORE} board --wait 10m"))
        .sh("echo next >> order")
        .start();
    project.until_waiting(&board, 1);
    project.write("done", "");
    waiter.ended().exits(0);
    assert_eq!(project.read("order"), "robbed\nnext\n");
    assert_eq!(
        project.story(&board),
        "granted 1, forced 1, granted 2, released 2"
    );
}

#[test]
fn force_ends_the_wait_for_a_robbed_command() {
    let project = Project::uninitialised();
    project
        .call(&format!("run {STORE} board"))
        .sh(ROBBED)
        .end()
        .exits(7);
    project.tenure(&format!("force board {STORE}")).exits(0);
    project
        .tenure(&format!("run {STORE} board --no-wait -- true"))
        .exits(0);
    project.write("done", "");
}

/// What bilu does with a lock that it finds: it breaks one whose pid is dead, again and again.
const BREAKER: &str = r#"
until mkdir storage/lock 2>/dev/null; do
  [ -d storage ] || exit 1
  pid=$(cat storage/lock/pid 2>/dev/null)
  if [ -n "$pid" ] && ! kill -0 "$pid" 2>/dev/null; then
    rm -rf storage/lock 2>/dev/null || sleep 0.01
    : > tried
  else
    sleep 0.01
  fi
done
rmdir storage/lock
"#;

/// Who is killed with SIGKILL.
#[derive(Debug, Clone, Copy)]
enum Victims {
    Tenure,
    ItsGroup,
    ItsGroupAndItsCommands,
}

impl Contest {
    /// Starts a tenure that holds the lock, in a process group of its own, and waits until its command
    /// runs. Returns the pid of the command.
    fn holder(&self, script: &str) -> (Child, u32) {
        let _ = fs::remove_file(self.project.path("held"));
        let script = format!("echo $$ > held.new; mv held.new held; {script}");
        let tenure = self.tenure.to_str().unwrap();
        let run = ["run", "--store", "mkdir:storage/lock", "board", "--"];
        let words = [&["setsid", tenure][..], &run, &["sh", "-c", &script]].concat();
        let holder = self.start(&words);
        until("the command runs", || self.project.path("held").exists());
        let command = self.project.read("held").trim().parse().unwrap();
        (holder, command)
    }

    fn sh(&self, script: &str) -> Child {
        self.start(&["sh", "-c", script])
    }
}

#[test]
fn a_shell_removes_the_lock_of_a_killed_tenure_without_the_help_of_another() {
    use project::process::signal;
    use rustix::process::{Pid, Signal, kill_process_group};
    let contest = Contest::new(true);
    let group = |leader: u32| {
        let leader = Pid::from_raw(i32::try_from(leader).unwrap()).unwrap();
        kill_process_group(leader, Signal::KILL).unwrap();
    };
    for victims in [
        Victims::Tenure,
        Victims::ItsGroup,
        Victims::ItsGroupAndItsCommands,
    ] {
        let (mut tenure, command) = contest.holder("exec sleep 300");
        match victims {
            Victims::Tenure => signal(tenure.id(), Signal::KILL),
            Victims::ItsGroup => group(tenure.id()),
            Victims::ItsGroupAndItsCommands => {
                group(command);
                group(tenure.id());
            }
        }
        tenure.wait().unwrap();
        let code = ended(&mut contest.sh(BREAKER), &format!("a shell ({victims:?})"));
        assert_eq!(code, 0, "{victims:?}");
    }
}

#[test]
fn a_shell_can_not_remove_the_lock_while_a_command_of_the_killed_tenure_runs() {
    let contest = Contest::new(true);
    let escaped = "setsid sh -c ': > escaped; while [ ! -e done ] && [ -d storage ]; do sleep 0.01; done' & exec sleep 300";
    let (mut tenure, _) = contest.holder(escaped);
    until("a process has left the group", || {
        contest.project.path("escaped").exists()
    });
    tenure.kill().unwrap();
    tenure.wait().unwrap();
    let mut shell = contest.sh(BREAKER);
    until("the shell has tried", || {
        contest.project.path("tried").exists()
    });
    for _ in 0..20 {
        assert!(contest.project.path("storage/lock/tenure").exists());
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    contest.project.write("done", "");
    assert_eq!(ended(&mut shell, "the shell"), 0);
}

#[test]
fn a_shell_removes_the_lock_of_a_process_that_tenure_locked_for() {
    let contest = Contest::new(true);
    let mut process = contest.start(&["sleep", "600"]);
    let tenure = contest.tenure.to_str().unwrap();
    let pid = process.id().to_string();
    let store = ["--store", "mkdir:storage/lock", "--pid", &pid, "-q"];
    let words = [&[tenure, "acquire", "board"][..], &store].concat();
    assert_eq!(ended(&mut contest.start(&words), "acquire"), 0);
    assert!(!contest.sh("rm -rf storage/lock").wait().unwrap().success());
    assert!(contest.project.path("storage/lock/tenure").exists());
    process.kill().unwrap();
    process.wait().unwrap();
    assert_eq!(ended(&mut contest.sh(BREAKER), "the shell"), 0);
}

#[test]
fn the_daemon_removes_the_lock_of_a_tenure_that_was_killed_with_its_helper() {
    let project = Project::new();
    fs::create_dir_all(project.path(".bilu/board/tasks")).unwrap();
    project.write(".bilu/board/config.json", "{}");
    let _daemon = project.daemon("--interval 1h");
    project.until_logged("Cycle done", 0);
    for _ in 0..2 {
        let held = project.hold("run --store mkdir:.bilu/storage/lock board");
        let mut helpers = Vec::new();
        until("its helper runs", || {
            helpers = helpers_of(held.pid());
            !helpers.is_empty()
        });
        for helper in helpers {
            project::process::signal(helper, rustix::process::Signal::KILL);
        }
        held.killed();
        until("the lock is gone", || {
            !project.path(".bilu/storage/lock").exists()
        });
    }
}

/// The helper processes that a process has started.
fn helpers_of(parent: u32) -> Vec<u32> {
    let entries = fs::read_dir("/proc").unwrap();
    let pids = entries.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<u32>().ok());
    let is_helper = |pid: &u32| {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let has = |line: &str| status.lines().any(|found| found == line);
        has("Name:\ttenure-helper") && has(&format!("PPid:\t{parent}"))
    };
    pids.filter(is_helper).collect()
}
