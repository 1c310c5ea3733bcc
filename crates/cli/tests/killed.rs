//! `kill -9`: what happens to the key, the command and the waiters.

use crate::project;

use project::{Project, Running, process, until};
use rustix::process::Signal;
use tenure::store::Clock;
use tenure_host::HostClock;

/// Takes a kernel lock that ends with the last process of the command, and reports if it is held
/// already: flock(1) is the witness, and shares no code with tenure.
///
/// The kernel closes the files of a dying process one by one, the largest number first, and may be
/// interrupted in between. The witness has a large number, so that it judges whether a process
/// could still run, and not in which order a dead one is cleared away.
const WITNESS: &str = "exec 900> witness
flock -n 900 || { echo \"$TENURE_TOKEN is not alone\" >> crowded; exit 99; }
echo $TENURE_TOKEN >> tokens
sleep 0.05 & sleep 0.03; wait
";

#[test]
fn the_whole_command_dies_with_its_tenure_and_a_waiter_has_the_key() {
    for script in [
        "echo $$; exec sleep 300",
        "echo $$; sleep 300 & sleep 300 & wait",
        "echo $$; sh -c 'trap \"\" TERM HUP INT; sleep 300; sleep 300'; true",
    ] {
        let project = Project::new();
        let first = project
            .call("run build --as first --ttl 1h")
            .sh(script)
            .start();
        until("the command runs", || !first.out().is_empty());
        let group = first.command();
        let waiter = project.queue("build", "run build --as second --wait 10m -- echo mine");
        first.killed().exits(137);
        assert_eq!(waiter.ended().exits(0).out, "mine\n", "{script}");
        let left = process::members(group);
        assert!(left.is_empty(), "granted on while {left:?} of {script} ran");
    }
}

#[test]
fn the_history_says_dead_and_gives_the_proof() {
    let project = Project::new();
    let first = project.hold("run build --as first --ttl 1h");
    let pid = first.pid();
    first.killed();
    until("it is seen to be dead", || {
        project.verdict("build") == "dead"
    });
    let list = project.tenure("locks list").exits(0).out;
    assert!(list.contains("DEAD"), "{list}");
    project
        .tenure("run build --no-wait --as second -- true")
        .exits(0);

    assert_eq!(
        project.story("build"),
        "granted 1, dead 1, granted 2, released 2"
    );
    let (_, _, dead) = &project.history("build")[1];
    assert_eq!(dead["holder"], "first");
    assert_eq!(dead["evidence"]["proof"], "liveness_lock_free");
    assert_eq!(dead["evidence"]["pid"], pid);
    let text = project.tenure("locks history build").exits(0).out;
    assert!(
        text.contains(&format!(
            "pid {pid} and every process it started have exited"
        )),
        "{text}"
    );
}

#[test]
fn a_process_that_left_the_group_keeps_the_key_until_it_is_gone() {
    let project = Project::new();
    let first = project
        .call("run build --as first --ttl 300ms")
        .sh("echo $$; setsid sleep 300 & echo $! > left; wait")
        .start();
    until("it has left", || {
        let left = project.read("left").trim().parse().unwrap_or(0);
        left != 0 && process::group_of(left).is_some_and(|group| group != first.command())
    });
    let left: u32 = project.read("left").trim().parse().unwrap();
    let group = first.command();
    first.killed();
    until("the rest of the command is gone", || {
        process::members(group).is_empty()
    });
    assert!(process::alive(left), "what left the group is out of reach");

    let mut waiter = project.queue("build", "run build --as second --wait 10m -- echo mine");
    until(
        "the time to live is over, which no process renews any more",
        || {
            let shown = project.tenure("locks show build --json").exits(0).json();
            let end: jiff::Timestamp = shown["data"]["leases"][0]["expiresAt"]
                .as_str()
                .unwrap()
                .parse()
                .unwrap();
            end < HostClock::new().now().wall
        },
    );
    project
        .tenure("run build --no-wait -- true")
        .fails(6, &["locked by first"]);
    assert_eq!(project.verdict("build"), "alive");
    let list = project.tenure("locks list").exits(0).out;
    assert!(list.contains("its command still runs"), "{list}");
    project.tenure("locks cleanup").exits(0);
    assert!(waiter.runs(), "granted while a process of the command ran");

    process::signal(left, Signal::KILL);
    assert_eq!(waiter.ended().exits(0).out, "mine\n");
    assert!(
        project.story("build").contains("dead 1, granted 2"),
        "{}",
        project.story("build")
    );
}

#[test]
fn a_killed_command_is_not_a_killed_tenure() {
    let project = Project::new();
    let run = project.hold("run build");
    process::signal(run.command(), Signal::KILL);
    run.ended().exits(137);
    assert_eq!(project.story("build"), "granted 1, released 1");
}

#[test]
fn nested_commands_die_with_the_outermost_tenure() {
    let project = Project::new();
    let outer = project
        .call("run outer --ttl 1h")
        .sh("$TENURE run inner --ttl 1h -- sh -c 'echo $$; exec sleep 300'; true")
        .start();
    until("the inner command runs", || !outer.out().is_empty());
    let inner = outer.command();
    outer.killed();
    project.tenure("run outer --wait 10m -- true").exits(0);
    project.tenure("run inner --wait 10m -- true").exits(0);
    assert!(!process::alive(inner), "it outlived both of its keys");
}

#[test]
fn a_stopped_command_dies_with_its_tenure_too() {
    let project = Project::new();
    let first = project.hold("run build --ttl 1h");
    let command = first.command();
    process::signal(command, Signal::STOP);
    first.killed();
    project.tenure("run build --wait 10m -- true").exits(0);
    assert!(!process::alive(command));
}

#[test]
fn kills_at_random_never_let_two_commands_overlap() {
    let project = Project::new();
    project.write("witness.sh", WITNESS);
    let start = || project.start("run build --quiet --ttl 1h --wait 10m -- bash witness.sh");
    let mut runners: Vec<Running> = (0..6).map(|_| start()).collect();
    // No seed: which instruction a kill hits is up to the scheduler anyway. The pauses only
    // spread the kills over the whole of a round.
    for kill in 0..60u64 {
        std::thread::sleep(std::time::Duration::from_millis(7 * (kill % 8)));
        let victim = runners.remove(usize::try_from(kill % 6).unwrap());
        victim.signal(Signal::KILL);
        let said = victim.ended();
        assert!([0, 137].contains(&said.code), "{said:?}");
        runners.push(start());
    }
    for runner in runners {
        runner.ended().exits(0);
    }
    assert_eq!(project.read("crowded"), "");
    let tokens: Vec<u64> = project
        .read("tokens")
        .lines()
        .map(|line| line.parse().unwrap())
        .collect();
    assert!(
        tokens.is_sorted_by(|earlier, later| earlier < later),
        "{tokens:?}"
    );
    assert!(tokens.len() > 6, "hardly any command ran: {tokens:?}");
    project.tenure("run build --no-wait -- true").exits(0);
}

#[test]
fn a_killed_waiter_leaves_nothing_that_holds_up_the_key() {
    let project = Project::new();
    let mut held = project.hold("run build --ttl 1h");
    for _ in 0..3 {
        project
            .queue("build", "run build -- true")
            .killed()
            .exits(137);
    }
    held.let_go();
    held.ended().exits(0);
    project.tenure("run build --no-wait -- true").exits(0);
}

#[test]
fn a_script_that_uses_a_descriptor_of_its_own_still_proves_its_life() {
    // `exec 9> lock; flock 9` is what the manual of flock(1) shows, and 3 is what everybody takes.
    for number in 3..=9 {
        let project = Project::new();
        let script =
            format!("exec {number}> own; echo $$; setsid sleep 300 & echo $! > left; wait");
        let first = project.call("run build --ttl 1h").sh(&script).start();
        until("it has left the group", || {
            let left = project.read("left").trim().parse().unwrap_or(0);
            left != 0 && process::group_of(left).is_some_and(|group| group != first.command())
        });
        let left: u32 = project.read("left").trim().parse().unwrap();
        let group = first.command();
        first.killed();
        until("the rest of the command is gone", || {
            process::members(group).is_empty()
        });
        let said = project.tenure("run build --no-wait -- true");
        assert!(process::alive(left));
        process::signal(left, Signal::KILL);
        assert_eq!(
            said.code, 6,
            "granted beside {left}, which has a descriptor {number}"
        );
    }
}
