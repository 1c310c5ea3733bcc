//! One holder at a time (G1), judged by a witness that knows nothing of tenure.

use crate::project;

use project::{Project, Running};

/// Enters a room that has place for one, and says so if it is not empty. The shell makes the file
/// with `O_EXCL`.
const ROOM: &str = "set -C
if ! : > room; then echo \"$TENURE_TOKEN found another holder\" >> crowded; exit 99; fi
echo $TENURE_TOKEN >> tokens
sleep 0.002
rm room
";

#[test]
fn eight_runners_with_25_rounds_each_are_never_two() {
    let project = Project::new();
    project.write("room.sh", ROOM);
    let script = "round=0; while [ $round -lt 25 ]; do
        $TENURE run build --quiet -- sh room.sh || exit; round=$((round + 1)); done";
    let runners: Vec<Running> = (0..8).map(|_| project.shell(script).start()).collect();
    for runner in runners {
        runner.ended().exits(0);
    }
    assert_eq!(project.read("crowded"), "");
    let tokens: Vec<u64> = project
        .read("tokens")
        .lines()
        .map(|line| line.parse().unwrap())
        .collect();
    assert_eq!(
        tokens,
        (1..=200).collect::<Vec<_>>(),
        "every grant has the next token"
    );
    assert_eq!(project.tenure("locks list").out, "No locks.\n");
}

#[test]
fn runners_and_detached_holders_exclude_one_another() {
    let project = Project::new();
    project.write("room.sh", ROOM);
    let run = "round=0; while [ $round -lt 10 ]; do
        $TENURE run build --quiet -- sh room.sh || exit; round=$((round + 1)); done";
    let detached = "round=0; while [ $round -lt 10 ]; do
        export TENURE_TOKEN=$($TENURE acquire build --quiet) && sh room.sh || exit
        $TENURE fence build --quiet --token $TENURE_TOKEN || exit
        $TENURE release build --quiet --token $TENURE_TOKEN || exit; round=$((round + 1)); done";
    let runners: Vec<Running> = [run, detached, run, detached, run, detached]
        .map(|script| project.shell(script).start())
        .into();
    for runner in runners {
        runner.ended().exits(0);
    }
    assert_eq!(project.read("crowded"), "");
    assert_eq!(project.read("tokens").lines().count(), 60);
}

#[test]
fn different_keys_do_not_wait_for_one_another() {
    let project = Project::new();
    let _one = project.hold("run one --ttl 1h");
    let _two = project.hold("run two --ttl 1h");
    project.tenure("run three --no-wait -- true").exits(0);
    project.tenure("run one --no-wait -- true").exits(6);
}

#[test]
fn two_projects_do_not_know_one_another() {
    let (one, two) = (Project::new(), Project::new());
    let _held = one.hold("run build --ttl 1h");
    two.tenure("run build --no-wait -- true").exits(0);
    let store = format!(
        "run build --no-wait --store sqlite:{} -- true",
        one.database().display()
    );
    two.tenure(&store).exits(6);
}
