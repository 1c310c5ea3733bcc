//! A ledger whose folder is reached in several ways, or is on a file system of its own.
//!
//! These tests mount, in a namespace of their own. Where that is not allowed they say so and pass.

use crate::project;

use project::Project;

/// Appends through two roots at once, and takes over a claim through the other one.
const TWO_ROOTS: &str = "
    for dir in . other . other; do
        ( for n in $(seq 20); do
              $TENURE ledger append --dir $dir '{\"type\":\"note\"}' > /dev/null || exit 1
          done ) &
    done
    wait
    $TENURE ledger verify || exit 97
    $TENURE --store ledger:. run node:1 --as killed --ttl 1h -- sh -c 'kill -9 $PPID'
    $TENURE --store ledger:other run node:1 --as next --wait 25s -- echo taken over; echo run $?
    ls -d .ledger-tenure other/.ledger-tenure 2> /dev/null
    $TENURE ledger verify --dir other";

#[test]
fn through_a_bind_mount_writers_queue_and_claims_know_their_processes() {
    let mounted = "mkdir -p other/ledger && $TENURE ledger init -q || exit 99
        mount --bind ledger other/ledger || exit 98";
    let Some(said) = Project::uninitialised().with_mounts(&format!("{mounted}{TWO_ROOTS}")) else {
        return;
    };
    assert_eq!(
        said.exits(0).out,
        "Sound: 80 events, 0 claims; no two holders overlapped.\n\
         taken over\nrun 0\n\
         Sound: 84 events, 2 claims; no two holders overlapped.\n"
    );
}

#[test]
fn through_a_link_writers_queue_and_claims_know_their_processes() {
    let project = Project::uninitialised();
    let linked = "$TENURE ledger init -q && mkdir other && ln -s ../ledger other/ledger || exit 99";
    let mut command = project.program("sh");
    command.args(["-c", &format!("{linked}{TWO_ROOTS}")]);
    let said = project.prepare(command).end();
    assert!(said.out.contains("taken over\nrun 0\n"), "{said:?}");
    assert!(said.out.contains("Sound: 84 events, 2 claims"), "{said:?}");
}

#[test]
fn a_ledger_on_another_file_system_than_its_root_works() {
    let script = "mkdir ledger && mount -t tmpfs none ledger && $TENURE ledger init -q || exit 99
        $TENURE ledger append '{\"type\":\"note\"}' '{\"type\":\"note\"}' || exit 98
        $TENURE --store ledger:. run node:1 -- echo held || exit 97
        $TENURE ledger verify";
    let Some(said) = Project::uninitialised().with_mounts(script) else {
        return;
    };
    assert_eq!(
        said.exits(0).out,
        "1\n2\nheld\nSound: 4 events, 1 claim; no two holders overlapped.\n"
    );
}

/// On tmpfs every link takes an inode, so a batch can run out of them between its events.
#[test]
fn a_batch_on_a_full_disk_is_appended_whole_or_not_at_all() {
    let script = "mkdir ledger && for free in $(seq 20); do
        mount -t tmpfs -o nr_inodes=100 none ledger && $TENURE ledger init -q || exit 99
        $TENURE ledger append '{\"type\":\"note\"}' > /dev/null || exit 98
        n=0; while touch ledger/fill-$n 2> /dev/null; do n=$((n + 1)); done
        for i in $(seq $free); do rm ledger/fill-$i; done
        $TENURE ledger append '{\"type\":\"a\"}' '{\"type\":\"b\"}' '{\"type\":\"c\"}' '{\"type\":\"d\"}' > /dev/null
        rc=$?
        there=$(ls ledger/event-*.json | wc -l)
        rm ledger/fill-*
        $TENURE ledger verify > /dev/null || exit 97
        $TENURE ledger append '{\"type\":\"note\"}' > /dev/null || exit 96
        echo $rc $there $(ls ledger/event-*.json | wc -l)
        umount ledger || exit 95
    done";
    let Some(said) = Project::uninitialised().with_mounts(script) else {
        return;
    };
    let said = said.exits(0);
    let lines: Vec<&str> = said.out.lines().collect();
    assert_eq!(lines.len(), 20, "{said:?}");
    for line in &lines {
        assert!(["1 1 2", "0 5 6"].contains(line), "{line}: {said:?}");
    }
    assert!(
        lines.contains(&"1 1 2") && lines.contains(&"0 5 6"),
        "{said:?}"
    );
}
