//! Tenure beside the other program, on its live database.

use std::fmt::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use rusqlite::Connection;
use tenure_core::{
    Acquired, Busy, ErrorKind, EventKind, Forced, HolderId, Reap, Reason, Records, Released,
    Renewed, Store, Token, Verdict, Waited, Withdrawal,
};
use tenure_testkit::Ask;
use tenure_testkit::ask::HOUR;
use tenure_testkit::limit::{LIMIT, within_limit};
use tenure_testkit::soon;
use tool::{Both, Tool, is_busy, task};

use crate::tool;

const SHORT: Duration = Duration::from_millis(20);

/// Everything in a database but the rows of the two lock tables.
fn all_but_locks(db: &Connection) -> String {
    let mut text = String::new();
    for pragma in [
        "user_version",
        "application_id",
        "page_size",
        "journal_mode",
        "schema_version",
        "auto_vacuum",
        "encoding",
    ] {
        let value = db
            .query_row(&format!("PRAGMA {pragma}"), [], |row| {
                Ok(format!("{:?}", row.get_ref(0)?))
            })
            .unwrap();
        writeln!(text, "{pragma} {value}").unwrap();
    }
    let mut tables = vec!["sqlite_schema".to_owned()];
    let mut names = db
        .prepare(
            "SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT IN ('task_locks', 'section_locks')",
        )
        .unwrap();
    tables.extend(
        names
            .query_map([], |row| row.get::<_, String>(0))
            .unwrap()
            .map(Result::unwrap),
    );
    for table in tables {
        let mut rows = db.prepare(&format!("SELECT * FROM {table}")).unwrap();
        let width = rows.column_count();
        let mut rows = rows.query([]).unwrap();
        while let Some(row) = rows.next().unwrap() {
            write!(text, "{table}").unwrap();
            for column in 0..width {
                write!(text, " {:?}", row.get_ref(column).unwrap()).unwrap();
            }
            text.push('\n');
        }
    }
    text
}

#[test]
fn nothing_but_the_two_lock_tables_is_ever_written() {
    let dir = tempfile::tempdir().unwrap();
    let before = all_but_locks(&Connection::open(tool::database(dir.path())).unwrap());
    assert!(before.lines().count() > 50, "{before}");
    let both = Both::in_folder(dir);
    for round in 0..150 {
        // A new object each time: some things happen only when a database is opened.
        let store = tool::tenure(&both.path);
        for key in ["task:t1", "task:t2", "section:s1"].map(tool::key) {
            let lease = Ask::new(&key, "runner").granted(&store);
            let other = Ask::new(&key, "other").waiting();
            assert!(is_busy(&other.once(&both.store)));
            let _ = store.renew(&lease.grant(), HOUR, soon()).unwrap();
            match round % 3 {
                0 => drop(store.release(&lease.grant(), soon()).unwrap()),
                1 => {
                    let by = HolderId::parse("boss").unwrap();
                    let _ = store.force(&key, None, &by, None, soon()).unwrap();
                }
                _ => {
                    let _ = store.renew(&lease.grant(), Duration::ZERO, soon()).unwrap();
                    assert_eq!(store.reap(Reap::Free, soon()).unwrap().len(), 1);
                }
            }
            other.withdraw(&both.store, Withdrawal::Leave);
        }
        let _ = store.acquire(
            &Ask::new(&tool::key("task:nowhere"), "r").claim(&store),
            soon(),
        );
    }
    drop(both.store);
    let after = Connection::open(&both.path).unwrap();
    assert_eq!(all_but_locks(&after), before);
    let left = "SELECT (SELECT count(*) FROM task_locks) + (SELECT count(*) FROM section_locks)";
    assert_eq!(both.tool.ask::<i64>(left), 0);
    assert_eq!(both.tool.ask::<String>("PRAGMA integrity_check"), "ok");
}

#[test]
fn a_database_without_a_log_is_used_as_it_is() {
    let mut both = Both::with_journal("DELETE");
    let lease = Ask::new(&task(), "runner").granted(&both.store);
    assert!(!both.tool.acquire("t1", HOUR));
    let _ = both.store.release(&lease.grant(), soon()).unwrap();
    assert!(both.tool.acquire("t1", HOUR));
    assert!(is_busy(&Ask::new(&task(), "runner").once(&both.store)));
    drop(both.store);
    assert_eq!(both.tool.ask::<String>("PRAGMA journal_mode"), "delete");
    assert!(!both.dir.path().join("steroids.db-wal").exists());
}

#[test]
fn the_tool_does_not_get_what_tenure_holds_until_it_is_released() {
    let mut both = Both::new();
    let lease = Ask::new(&task(), "runner").granted(&both.store);
    assert!(!both.tool.acquire("t1", HOUR));
    assert!(!both.tool.release("t1"), "it is not the tool's");
    assert!(!both.tool.heartbeat("t1", HOUR));
    assert_eq!(both.tool.cleanup(), 0);
    assert_eq!(both.tool.holder("t1").unwrap(), "runner");
    let times: String = both
        .tool
        .ask("SELECT acquired_at || ' ' || expires_at || ' ' || heartbeat_at FROM task_locks");
    for time in times.split(' ') {
        assert_eq!(time.len(), "2026-11-15T18:49:40.407Z".len(), "{time}");
        assert!(time.contains('T') && time.ends_with('Z'), "{time}");
    }
    let _ = both.store.release(&lease.grant(), soon()).unwrap();
    assert!(both.tool.acquire("t1", HOUR));
}

#[test]
fn tenure_does_not_get_what_the_tool_holds_until_it_is_released() {
    let mut both = Both::new();
    assert!(both.tool.acquire("t1", HOUR));
    for _ in 0..2 {
        let asked = Ask::new(&task(), "runner").once(&both.store);
        let Acquired::Busy(busy) = &asked else {
            panic!("{asked:?}");
        };
        let (lease, verdict) = busy.lease().unwrap();
        assert_eq!(lease.holder.id.as_str(), "coder");
        assert_eq!(lease.token, Token::NONE);
        assert!(matches!(verdict, Verdict::Unknown(_)), "{verdict:?}");
        // After this, its times are of the second form.
        assert!(both.tool.heartbeat("t1", HOUR));
    }
    both.tool
        .sql("UPDATE task_locks SET expires_at = datetime('now', '+1 hour')");
    assert!(is_busy(&Ask::new(&task(), "runner").once(&both.store)));
    assert!(both.store.reap(Reap::Free, soon()).unwrap().is_empty());
    assert!(both.tool.release("t1"));
    let (_, reason) = Ask::new(&task(), "runner").granted_for(&both.store);
    assert_eq!(reason, Reason::AcquiredNew);
}

#[test]
fn the_tool_takes_over_what_has_expired_and_the_late_holder_learns_of_it() {
    let mut both = Both::new();
    let lease = Ask::new(&task(), "runner").ttl(SHORT).granted(&both.store);
    within_limit("the tool to take it over", || both.tool.acquire("t1", HOUR));
    let renewed = both.store.renew(&lease.grant(), HOUR, soon()).unwrap();
    let Renewed::Lost(now) = renewed else {
        panic!("{renewed:?}");
    };
    assert_eq!(now[0].holder.id.as_str(), "coder");
    let released = both.store.release(&lease.grant(), soon()).unwrap();
    assert!(matches!(&released, Released::AlreadyGone(now) if now.len() == 1));
    assert_eq!(both.tool.holder("t1").unwrap(), "coder");
    let last = both.events().pop().unwrap();
    assert_eq!((last.kind, last.token), (EventKind::Expired, lease.token));
}

#[test]
fn the_tool_cleans_up_what_has_expired() {
    let both = Both::new();
    let lease = Ask::new(&task(), "runner").ttl(SHORT).granted(&both.store);
    within_limit("the lease to expire", || both.tool.cleanup() == 1);
    let renewed = both.store.renew(&lease.grant(), HOUR, soon()).unwrap();
    assert!(
        matches!(&renewed, Renewed::Lost(now) if now.is_empty()),
        "{renewed:?}"
    );
    let (_, reason) = Ask::new(&task(), "next").granted_for(&both.store);
    assert_eq!(reason, Reason::AcquiredNew);
}

#[test]
fn tenure_takes_over_what_the_tool_let_expire_in_either_form_of_time() {
    // Trap (a): as text, the second of these is never older than datetime('now') on its day.
    for end in [
        "datetime('now', '-2 seconds')",
        "strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '-1 seconds')",
    ] {
        let both = Both::new();
        both.tool.sql(&format!(
            "INSERT INTO task_locks (task_id, runner_id, acquired_at, expires_at)
             VALUES ('t1', 'coder', datetime('now', '-1 hour'), {end})"
        ));
        assert_eq!(
            both.store.reap(Reap::DryRun, soon()).unwrap().len(),
            1,
            "{end}"
        );
        let (lease, reason) = Ask::new(&task(), "runner").granted_for(&both.store);
        assert_eq!(reason, Reason::ClaimedExpired, "{end}");
        assert_eq!(both.tool.holder("t1").unwrap(), "runner", "{end}");
        let kinds: Vec<_> = both.events().into_iter().map(|event| event.kind).collect();
        assert_eq!(kinds, [EventKind::Expired, EventKind::Granted], "{end}");
        let _ = both.store.release(&lease.grant(), soon()).unwrap();
    }
}

#[test]
fn a_refused_claim_is_a_refusal_however_much_the_connection_has_changed_before() {
    // Trap (b).
    let mut both = Both::new();
    for _ in 0..5 {
        let lease = Ask::new(&tool::key("task:t2"), "runner").granted(&both.store);
        let _ = both.store.release(&lease.grant(), soon()).unwrap();
    }
    assert!(both.tool.acquire("t1", HOUR));
    assert!(is_busy(&Ask::new(&task(), "runner").once(&both.store)));
    assert_eq!(both.tool.holder("t1").unwrap(), "coder");
}

#[test]
fn a_heartbeat_moves_the_end_that_the_tool_sees() {
    // Trap (d).
    let mut both = Both::new();
    let lease = Ask::new(&task(), "runner").ttl(SHORT).granted(&both.store);
    let _ = both.store.renew(&lease.grant(), HOUR, soon()).unwrap();
    std::thread::sleep(SHORT * 2);
    assert!(!both.tool.acquire("t1", HOUR));
    let later = "SELECT count(*) FROM task_locks WHERE expires_at > strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '+50 minutes')";
    assert_eq!(both.tool.ask::<i64>(later), 1);
}

#[test]
fn a_lock_of_the_same_runner_is_extended_even_if_it_has_expired() {
    // Trap (f).
    let mut both = Both::new();
    let ask = Ask::new(&task(), "runner").detached();
    let first = ask.clone().ttl(SHORT).granted(&both.store);
    within_limit("the lease to expire", || both.tool.holder("t1").is_none());
    let (second, reason) = ask.granted_for(&both.store);
    assert_eq!((reason, second.token), (Reason::AlreadyOwned, first.token));
    assert!(!both.tool.acquire("t1", HOUR));
}

#[test]
fn a_lock_that_the_tool_took_for_a_runner_can_be_released_by_the_runner() {
    let mut both = Both::new();
    assert!(both.tool.acquire("t1", HOUR));
    let ask = Ask::new(&task(), "coder").detached();
    let (lease, reason) = ask.granted_for(&both.store);
    assert_eq!(reason, Reason::AlreadyOwned);
    assert_ne!(
        lease.token,
        Token::NONE,
        "no runner could prove that it holds it"
    );
    assert!(
        both.tool.heartbeat("t1", HOUR),
        "and it is still the tool's"
    );
    let (again, _) = ask.granted_for(&both.store);
    assert_eq!(again.token, lease.token);
    let released = both.store.release(&lease.grant(), soon()).unwrap();
    assert!(matches!(released, Released::Freed(_)), "{released:?}");
    assert_eq!(both.rows(), 0);
}

/// Takes a place in the queue behind the tool.
fn queue_up(both: &Both) -> Box<Busy> {
    match Ask::new(&task(), "runner").waiting().once(&both.store) {
        Acquired::Busy(busy) => busy,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_waiter_is_woken_when_the_tool_releases_a_lock() {
    for journal in ["WAL", "DELETE"] {
        let mut both = Both::with_journal(journal);
        assert!(both.tool.acquire("t1", HOUR));
        let (key, busy, store) = (task(), queue_up(&both), &both.store);
        std::thread::scope(|scope| {
            let wait = scope.spawn(|| store.wait(&busy.watched(), LIMIT).unwrap());
            // Until it sleeps: before that, it would notice by itself.
            std::thread::sleep(Duration::from_millis(60));
            assert!(both.tool.heartbeat("t1", HOUR));
            assert!(both.tool.release("t1"));
            assert_eq!(wait.join().unwrap(), Waited::Changed, "{journal}");
        });
        Ask::new(&key, "runner").granted(store);
    }
}

#[test]
fn a_waiter_need_not_be_woken_for_what_happened_before_it_slept() {
    let mut both = Both::new();
    assert!(both.tool.acquire("t1", HOUR));
    let busy = queue_up(&both);
    assert!(both.tool.release("t1"));
    let waited = both.store.wait(&busy.watched(), LIMIT).unwrap();
    assert_eq!(waited, Waited::Changed);
}

#[test]
fn no_reader_sees_one_half_of_a_commit() {
    let both = Both::new();
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let writer = scope.spawn(|| {
            let store = tool::tenure(&both.path);
            while !stop.load(Ordering::Relaxed) {
                let lease = Ask::new(&task(), "runner").granted(&store);
                let _ = store.release(&lease.grant(), soon()).unwrap();
            }
        });
        let mut held = 0;
        let strange = 'look: loop {
            for snapshot in both.store.list(soon()).unwrap() {
                held += usize::from(snapshot.lease().is_some());
                if let Some((lease, _)) = snapshot
                    .lease()
                    .cloned()
                    .filter(|(it, _)| it.token == Token::NONE)
                {
                    break 'look Some(lease);
                }
            }
            if held > 2000 || writer.is_finished() {
                break None;
            }
        };
        stop.store(true, Ordering::Relaxed);
        assert_eq!(strange, None, "there is only tenure here");
    });
}

#[test]
fn a_waiter_sleeps_while_others_write_other_things() {
    let mut both = Both::new();
    assert!(both.tool.acquire("t1", HOUR));
    // On a busy machine the others may write before it sleeps, but not every time.
    let sleeps = |_| {
        let (busy, store) = (queue_up(&both), &both.store);
        std::thread::scope(|scope| {
            let wait = scope.spawn(|| {
                store
                    .wait(&busy.watched(), Duration::from_millis(500))
                    .unwrap()
            });
            std::thread::sleep(Duration::from_millis(60));
            let mut other = Tool::at(&both.path, "other");
            assert!(other.acquire("t2", HOUR));
            assert!(both.tool.heartbeat("t1", HOUR));
            assert!(other.release("t2"));
            wait.join().unwrap() == Waited::TimedOut
        })
    };
    assert!((0..20).any(sleeps));
}

#[test]
fn only_tasks_and_sections_that_exist_can_be_held() {
    let both = Both::new();
    assert!(!both.store.capabilities().any_key);
    for name in ["build", "node:1.2", "tasks:t1"] {
        let key = tool::key(name);
        let claim = Ask::new(&key, "runner").waiting().claim(&both.store);
        let error = both.store.acquire(&claim, soon()).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Unsupported, "{error}");
        assert!(error.to_string().contains(name), "{error}");
        let error = both.store.inspect(&key, soon()).unwrap_err();
        assert_eq!(error.kind, ErrorKind::Unsupported, "{error}");
    }
    for name in ["task:nowhere", "section:nowhere", "task:s1", "section:t1"] {
        let claim = Ask::new(&tool::key(name), "runner").claim(&both.store);
        let error = both.store.acquire(&claim, soon()).unwrap_err();
        assert_eq!(error.kind, ErrorKind::NotFound, "{error}");
    }
    assert!(both.store.list(soon()).unwrap().is_empty());
    assert!(both.events().is_empty());
}

#[test]
fn force_is_recorded_and_frees_what_the_tool_holds() {
    let mut both = Both::new();
    assert!(both.tool.acquire("t1", HOUR));
    let by = HolderId::parse("boss").unwrap();
    let forced = both
        .store
        .force(&task(), None, &by, Some("it hangs"), soon())
        .unwrap();
    assert!(matches!(forced, Forced::Freed(_)), "{forced:?}");
    assert!(!both.tool.heartbeat("t1", HOUR), "it is gone");
    let last = both.events().pop().unwrap();
    assert_eq!(
        (last.kind, last.holder.as_str()),
        (EventKind::Forced, "coder")
    );
}

#[test]
fn both_logs_stay_short_although_every_command_is_alone() {
    let dir = tempfile::tempdir().unwrap();
    let path = tool::database(dir.path());
    let length = |log: &str| {
        let log = dir.path().join(log);
        std::fs::metadata(log).map_or(0, |log| log.len())
    };
    for number in 0..400 {
        let lease = Ask::new(&task(), "runner").granted(&tool::tenure(&path));
        let _ = tool::tenure(&path).release(&lease.grant(), soon()).unwrap();
        // Pages of the tool's database have 4 KiB.
        assert!(length("steroids.db-wal") < 600 * 4120, "after {number}");
        assert!(
            length("steroids.db-tenure-wal") < 600 * 1048,
            "after {number}"
        );
    }
}

/// The next task, as the other program's runners choose it: they leave out the tasks that have a row in
/// `task_locks`, and look at nothing else of the locks.
fn next_under_lock(tool: &tool::Tool) -> Option<String> {
    tool.ask(
        "SELECT (SELECT id FROM tasks WHERE status = 'pending'
           AND id NOT IN (SELECT task_id FROM task_locks) ORDER BY id LIMIT 1)",
    )
}

/// The next task, as its `loop` chooses it: it looks at no lock.
fn next_of_loop(tool: &tool::Tool) -> Option<String> {
    tool.ask("SELECT (SELECT id FROM tasks WHERE status = 'pending' ORDER BY id LIMIT 1)")
}

#[test]
fn its_runners_leave_a_task_alone_whose_row_is_there_and_look_at_no_section() {
    let both = tool::Both::new();
    both.tool.sql(
        "UPDATE tasks SET status = 'completed';
         INSERT OR IGNORE INTO sections (id, name, position) VALUES ('both', 'Both', 1);
         INSERT INTO tasks (id, title, section_id) VALUES ('n1', 'One', 'both'), ('n2', 'Two', 'both')",
    );
    let first = |next: Option<String>| next.unwrap_or_default();
    assert_eq!(first(next_under_lock(&both.tool)), "n1");
    let section = Ask::new(&tool::key("section:both"), "me").granted(&both.store);
    assert_eq!(
        first(next_under_lock(&both.tool)),
        "n1",
        "a section's row keeps nobody away"
    );
    let task = Ask::new(&tool::key("task:n1"), "me").granted(&both.store);
    assert_eq!(first(next_under_lock(&both.tool)), "n2");
    assert_eq!(first(next_of_loop(&both.tool)), "n1", "it reads no lock");
    for lease in [task, section] {
        let _ = both.store.release(&lease.grant(), soon()).unwrap();
    }
    assert_eq!(first(next_under_lock(&both.tool)), "n1");
}
