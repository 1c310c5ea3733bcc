//! Killed between two commits: what is left, and who comes next.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tenure_core::{EventKind, Evidence, Reap, Reason, Released, Store, Verdict};
use tenure_sqlite::{SqliteOptions, SqliteStore};
use tenure_testkit::ask::HOUR;
use tenure_testkit::soon;
use tenure_testkit::{Ask, Chance, FakeClock, Process, history, process};
use tool::{Both, Tool, is_busy, task};

use crate::tool;

/// Not a test: a process that holds the task in a name until it is killed, or that takes it and
/// gives it back again and again.
#[test]
fn worker() {
    let Some(job) = process::job() else { return };
    let (name, path) = job.split_once(' ').unwrap();
    let store = tool::tenure(Path::new(path));
    let ask = Ask::new(&task(), name);
    if name != "churn" {
        ask.granted(&store);
        process::report("granted");
        std::io::stdin().read_line(&mut String::new()).unwrap();
        return;
    }
    process::report("ready");
    loop {
        let lease = ask.granted(&store);
        let released = store.release(&lease.grant(), soon()).unwrap();
        assert!(matches!(released, Released::Freed(_)), "{released:?}");
    }
}

/// A process takes the task in this name, and is killed.
fn hold_and_die(both: &Both, name: &str) {
    let mut process = Process::start(
        "steroids_killed::worker",
        &format!("{name} {}", both.path.display()),
    );
    assert_eq!(process.report(), "granted");
    process.kill();
}

/// What a process leaves that is killed between its two commits: ours is written, the tool's is as
/// it was before.
fn with_the_tools_rows_as_before(both: &Both, act: impl FnOnce()) {
    both.tool
        .sql("CREATE TEMP TABLE before AS SELECT * FROM task_locks");
    act();
    both.tool.sql(
        "BEGIN IMMEDIATE;
         DELETE FROM task_locks;
         INSERT INTO task_locks SELECT * FROM before;
         COMMIT;
         DROP TABLE before;",
    );
}

#[test]
fn a_release_that_was_killed_between_its_two_commits_is_a_release() {
    for detached in [true, false] {
        let both = Both::new();
        let mut ask = Ask::new(&task(), "runner");
        ask.detached = detached;
        let lease = ask.granted(&both.store);
        with_the_tools_rows_as_before(&both, || {
            let _ = both.store.release(&lease.grant(), soon()).unwrap();
        });
        assert_eq!(both.rows(), 1, "the tool still sees it");
        let leaving = "SELECT count(*) FROM leaving";
        let count = || {
            both.side()
                .query_row(leaving, [], |row| row.get::<_, i64>(0))
        };
        assert_eq!(count().unwrap(), 1);
        // Looking does not count it.
        assert!(
            both.store
                .inspect(&task(), soon())
                .unwrap()
                .lease()
                .is_none()
        );
        assert!(both.store.list(soon()).unwrap().is_empty());
        assert!(both.store.reap(Reap::DryRun, soon()).unwrap().is_empty());
        // The next that writes, whatever it writes, removes it for the tool as well...
        let other = Ask::new(&tool::key("task:t2"), "other").granted(&both.store);
        assert_eq!(both.tool.holder("t1"), None);
        assert_eq!(count().unwrap(), 1, "...but must not forget it yet");
        let _ = both.store.renew(&other.grant(), HOUR, soon()).unwrap();
        assert_eq!(count().unwrap(), 0, "it is gone for certain");
        let (_, reason) = Ask::new(&task(), "next").granted_for(&both.store);
        assert_eq!(reason, Reason::AcquiredNew);
    }
}

#[test]
fn the_next_holder_is_not_held_up_by_the_row_of_a_release_that_was_killed() {
    let mut both = Both::new();
    let lease = Ask::new(&task(), "runner").granted(&both.store);
    with_the_tools_rows_as_before(&both, || {
        let _ = both.store.release(&lease.grant(), soon()).unwrap();
    });
    // Killed again, in the same place.
    with_the_tools_rows_as_before(&both, || {
        let _ = Ask::new(&task(), "unlucky").detached().granted(&both.store);
    });
    let (next, reason) = Ask::new(&task(), "next").granted_for(&both.store);
    assert_eq!(reason, Reason::AcquiredNew);
    assert!(!both.tool.acquire("t1", HOUR));
    let (found, verdict) = both
        .store
        .inspect(&task(), soon())
        .unwrap()
        .lease()
        .cloned()
        .unwrap();
    assert_eq!((found.grant(), verdict), (next.grant(), Verdict::Alive));
}

#[test]
fn a_lease_that_looks_like_the_row_of_a_killed_release_is_a_lease() {
    let dir = tempfile::tempdir().unwrap();
    let path = tool::database(dir.path());
    let options = SqliteOptions {
        clock: Arc::new(FakeClock::booted("now")),
        ..SqliteOptions::default()
    };
    let both = Both {
        tool: Tool::at(&path, "coder"),
        store: SqliteStore::open_foreign(&path, options).unwrap(),
        path,
        dir,
    };
    let ask = Ask::new(&task(), "runner").detached();
    let lease = ask.granted(&both.store);
    with_the_tools_rows_as_before(&both, || {
        let _ = both.store.release(&lease.grant(), soon()).unwrap();
    });
    // The same runner, the same end, to the letter: time stands still.
    let again = ask.granted(&both.store);
    assert_eq!(again.expires, lease.expires);
    let (found, _) = both
        .store
        .inspect(&task(), soon())
        .unwrap()
        .lease()
        .cloned()
        .unwrap();
    assert_eq!(found.grant(), again.grant());
    assert_eq!(both.rows(), 1);
}

#[test]
fn a_grant_that_was_killed_between_its_two_commits_is_no_grant() {
    let both = Both::new();
    with_the_tools_rows_as_before(&both, || hold_and_die(&both, "runner"));
    assert!(
        both.store
            .inspect(&task(), soon())
            .unwrap()
            .lease()
            .is_none()
    );
    let (_, reason) = Ask::new(&task(), "next").granted_for(&both.store);
    assert_eq!(reason, Reason::AcquiredNew);
    let events = both.events();
    let ended = events.get(1).unwrap();
    assert_eq!(ended.kind, EventKind::Dead, "it was not forced: {ended:?}");
    assert!(matches!(
        ended.evidence,
        Some(Evidence::LivenessLockFree { .. })
    ));
}

#[test]
fn a_takeover_that_was_killed_between_its_two_commits_leaves_the_key_free() {
    let both = Both::new();
    hold_and_die(&both, "first");
    with_the_tools_rows_as_before(&both, || hold_and_die(&both, "second"));
    assert_eq!(both.tool.holder("t1").unwrap(), "first");
    let (third, _) = Ask::new(&task(), "third").granted_for(&both.store);
    assert_eq!(both.tool.holder("t1").unwrap(), "third");
    let _ = both.store.release(&third.grant(), soon()).unwrap();
    assert_eq!(both.rows(), 0);
}

#[test]
fn a_renewal_that_was_killed_between_its_two_commits_changes_nothing() {
    let both = Both::new();
    let lease = Ask::new(&task(), "runner").detached().granted(&both.store);
    with_the_tools_rows_as_before(&both, || {
        let _ = both.store.renew(&lease.grant(), HOUR * 5, soon()).unwrap();
    });
    let (found, _) = both
        .store
        .inspect(&task(), soon())
        .unwrap()
        .lease()
        .cloned()
        .unwrap();
    assert_eq!(found.grant(), lease.grant());
    assert!(found.expires.as_ref().unwrap().wall < lease.acquired_at + HOUR * 2);
}

#[test]
fn a_row_that_the_tool_moved_since_is_the_tools() {
    let both = Both::new();
    let lease = Ask::new(&task(), "coder").granted(&both.store);
    with_the_tools_rows_as_before(&both, || {
        let _ = both.store.release(&lease.grant(), soon()).unwrap();
    });
    // The same runner works with the tool: it saw its lock standing, and keeps it.
    assert!(both.tool.heartbeat("t1", HOUR * 2));
    assert!(is_busy(&Ask::new(&task(), "next").once(&both.store)));
    assert_eq!(both.tool.holder("t1").unwrap(), "coder");
}

/// What a kill left behind, for the record: one of the two commits, or nothing unusual.
fn half_done(both: &Both) -> Option<&'static str> {
    let ours = |sql: &str| -> i64 {
        let side = both.side();
        side.query_row(sql, [], |row| row.get(0)).unwrap()
    };
    match (
        ours("SELECT count(*) FROM leases"),
        both.rows(),
        ours("SELECT count(*) FROM leaving"),
    ) {
        (1, 0, _) => Some("grants"),
        (0, 1, 1) => Some("releases"),
        _ => None,
    }
}

#[test]
fn the_next_claim_after_a_kill_is_granted_at_once() {
    const KILLS: usize = 300;
    let both = Both::new();
    let mut chance = Chance::from_seed(Chance::seed());
    let job = format!("churn {}", both.path.display());
    let mut half = Vec::new();
    for _ in 0..KILLS {
        let mut process = Process::start("steroids_killed::worker", &job);
        assert_eq!(process.report(), "ready");
        std::thread::sleep(chance.time(Duration::from_millis(4)));
        process.kill();
        half.extend(half_done(&both));
        // One attempt, without waiting.
        let store = tool::tenure(&both.path);
        let lease = Ask::new(&task(), "next").granted(&store);
        assert_eq!(both.tool.holder("t1").unwrap(), "next");
        let _ = store.release(&lease.grant(), soon()).unwrap();
        assert_eq!(both.rows(), 0);
    }
    let flaws = history::contradictions(&both.events());
    assert!(flaws.is_empty(), "{flaws:?}");
    let forced = |kind| kind == EventKind::Forced;
    assert!(!both.events().iter().any(|event| forced(event.kind)));
    let count = |what| half.iter().filter(|half| **half == what).count();
    println!(
        "{KILLS} kills, {} grants and {} releases half done",
        count("grants"),
        count("releases")
    );
}
