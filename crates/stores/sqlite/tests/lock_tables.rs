//! `task_locks` and `section_locks`, which other programs read and write too.

use std::time::Duration;

use rusqlite::Connection;
use tempfile::TempDir;
use tenure_core::{
    Acquired, ErrorKind, EventKind, Evidence, Fenced, Grant, HistoryQuery, HolderId, Key, Lease,
    Reap, Reason, Records, Released, Renewed, Store, Token, Verdict, Waited,
};
use tenure_sqlite::{SqliteOptions, SqliteStore};
use tenure_testkit::limit::LIMIT;
use tenure_testkit::soon;
use tenure_testkit::{Ask, history, waiting};

/// A project with one section and two tasks in it, and another program's connection.
struct Project {
    dir: TempDir,
    store: SqliteStore,
    foreign: Connection,
}

impl Project {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tenure.db");
        let store = SqliteStore::open(&path, SqliteOptions::default()).unwrap();
        let foreign = Connection::open(&path).unwrap();
        foreign
            .execute_batch(
                "PRAGMA foreign_keys = ON;
                 INSERT INTO sections (id, name) VALUES ('s1', 'Backend');
                 INSERT INTO tasks (id, title, section_id) VALUES ('t1', 'One', 's1'), ('t2', 'Two', 's1');",
            )
            .unwrap();
        Self {
            dir,
            store,
            foreign,
        }
    }

    /// Another process's view of the same database.
    fn other(&self) -> SqliteStore {
        SqliteStore::open(&self.dir.path().join("tenure.db"), SqliteOptions::default()).unwrap()
    }

    fn sql(&self, text: &str) {
        self.foreign.execute_batch(text).unwrap();
    }

    fn ask<T: rusqlite::types::FromSql>(&self, text: &str) -> T {
        self.foreign.query_row(text, [], |row| row.get(0)).unwrap()
    }

    /// Every row of a lock table, its columns joined.
    fn rows(&self, table: &str) -> Vec<String> {
        let columns = match table {
            "task_locks" => "task_id, runner_id, acquired_at, expires_at, heartbeat_at",
            _ => "section_id, runner_id, acquired_at, expires_at",
        };
        let sql = format!("SELECT concat_ws('|', {columns}) FROM {table}");
        let mut statement = self.foreign.prepare(&sql).unwrap();
        let rows = statement.query_map([], |row| row.get(0)).unwrap();
        rows.map(Result::unwrap).collect()
    }

    fn is_free(&self, key: &Key) -> bool {
        self.store.inspect(key, soon()).unwrap().lease().is_none()
    }
}

fn task() -> Key {
    Key::parse("task:t1").unwrap()
}

fn section() -> Key {
    Key::parse("section:s1").unwrap()
}

/// `2026-11-15T18:49:40.407Z`
fn shown(at: jiff::Timestamp) -> String {
    let text = format!("{at:.3}");
    assert_eq!(text.len(), 24, "{text}");
    text
}

fn wanted(table: &str, lease: &Lease) -> String {
    let columns = [
        lease.key.id().to_owned(),
        lease.holder.id.to_string(),
        shown(lease.acquired_at),
        shown(lease.expires.as_ref().unwrap().wall),
        shown(lease.heartbeat_at),
    ];
    let width = if table == "task_locks" { 5 } else { 4 };
    columns.get(..width).unwrap().join("|")
}

#[test]
fn the_two_lock_tables_are_the_documented_ones_to_the_letter() {
    let project = Project::new();
    let ddl = |table: &str| -> String {
        project.ask(&format!(
            "SELECT sql FROM sqlite_schema WHERE type = 'table' AND name = '{table}'"
        ))
    };
    assert_eq!(
        ddl("task_locks"),
        "CREATE TABLE task_locks (
    task_id TEXT PRIMARY KEY REFERENCES tasks(id),
    runner_id TEXT NOT NULL,
    acquired_at TEXT NOT NULL DEFAULT (datetime('now')),
    expires_at TEXT NOT NULL,
    heartbeat_at TEXT NOT NULL DEFAULT (datetime('now'))
)"
    );
    assert_eq!(
        ddl("section_locks"),
        "CREATE TABLE section_locks (
    section_id TEXT PRIMARY KEY REFERENCES sections(id),
    runner_id TEXT NOT NULL,
    acquired_at TEXT NOT NULL DEFAULT (datetime('now')),
    expires_at TEXT NOT NULL
)"
    );
}

#[test]
fn a_lease_is_exactly_one_row_while_it_lasts() {
    let project = Project::new();
    for (key, table) in [(task(), "task_locks"), (section(), "section_locks")] {
        let lease = Ask::new(&key, "runner-1").granted(&project.store);
        assert_eq!(project.rows(table), [wanted(table, &lease)]);
        let good = format!(
            "SELECT count(*) FROM {table} WHERE expires_at > strftime('%Y-%m-%dT%H:%M:%fZ','now')
             AND expires_at < strftime('%Y-%m-%dT%H:%M:%fZ','now','+61 minutes')"
        );
        assert_eq!(project.ask::<i32>(&good), 1, "the documented comparison");
        std::thread::sleep(Duration::from_millis(5));
        let renewed = project
            .store
            .renew(&lease.grant(), lease.ttl, soon())
            .unwrap();
        let Renewed::Extended(later) = renewed else {
            panic!("{renewed:?}");
        };
        assert!(later.expires.as_ref().unwrap().wall > lease.expires.as_ref().unwrap().wall);
        assert_eq!(shown(later.acquired_at), shown(lease.acquired_at));
        assert_eq!(project.rows(table), [wanted(table, &later)]);
        let _ = project.store.release(&lease.grant(), soon()).unwrap();
        assert_eq!(project.rows(table), Vec::<String>::new());
    }
}

#[test]
fn a_task_or_section_that_does_not_exist_can_not_be_held() {
    let project = Project::new();
    let first = Ask::new(&task(), "runner-1").granted(&project.store);
    for name in ["task:nowhere", "section:nowhere"] {
        let key = Key::parse(name).unwrap();
        for ask in [Ask::new(&key, "runner-1"), Ask::new(&key, "r").waiting()] {
            let error = project
                .store
                .acquire(&ask.claim(&project.store), soon())
                .unwrap_err();
            assert_eq!(error.kind, ErrorKind::NotFound, "{error}");
            assert!(error.to_string().contains("nowhere"), "{error}");
        }
        assert!(project.is_free(&key));
    }
    assert_eq!(project.store.list(soon()).unwrap().len(), 1);
    let events = project
        .store
        .history(&HistoryQuery::default(), soon())
        .unwrap();
    assert_eq!(events.len(), 1, "only the first grant: {events:?}");
    let _ = project.store.release(&first.grant(), soon()).unwrap();
    let next = Ask::new(&task(), "runner-1").granted(&project.store);
    assert_eq!(
        next.token,
        first.token.next().unwrap(),
        "no number was used up"
    );
}

#[test]
fn a_row_of_another_program_is_honoured_until_it_expires() {
    let iso = |modifier: &str| format!("strftime('%Y-%m-%dT%H:%M:%fZ','now','{modifier}')");
    let plain = |modifier: &str| format!("datetime('now','{modifier}')");
    for (later, before) in [
        (iso("+1 hour"), iso("-1 second")),
        (plain("+1 hour"), plain("-2 seconds")),
    ] {
        let project = Project::new();
        project.sql(&format!(
            "INSERT INTO task_locks (task_id, runner_id, expires_at) VALUES ('t1', 'foreign', {later});
             INSERT INTO section_locks (section_id, runner_id, expires_at) VALUES ('s1', 'foreign', {later});"
        ));
        for key in [task(), section()] {
            let asked = Ask::new(&key, "runner-1").once(&project.store);
            let Acquired::Busy(busy) = &asked else {
                panic!("{later}: {asked:?}");
            };
            let (lease, verdict) = busy.lease().unwrap();
            assert_eq!(lease.holder.id.as_str(), "foreign");
            assert!(matches!(verdict, Verdict::Unknown(_)), "{verdict:?}");
        }
        assert!(project.store.reap(Reap::Free, soon()).unwrap().is_empty());
        project.sql(&format!(
            "UPDATE task_locks SET acquired_at = datetime('now','-1 hour'), expires_at = {before};
             UPDATE section_locks SET acquired_at = datetime('now','-1 hour'), expires_at = {before};"
        ));
        for (key, table) in [(task(), "task_locks"), (section(), "section_locks")] {
            let (lease, reason) = Ask::new(&key, "runner-1").granted_for(&project.store);
            assert_eq!(reason, Reason::ClaimedExpired, "{before}");
            assert_eq!(project.rows(table), [wanted(table, &lease)]);
        }
    }
}

#[test]
fn a_waiter_gets_what_another_program_lets_expire() {
    let project = Project::new();
    project.sql(
        "INSERT INTO task_locks (task_id, runner_id, expires_at)
         VALUES ('t1', 'foreign', strftime('%Y-%m-%dT%H:%M:%fZ','now','+0.3 seconds'));",
    );
    let ask = Ask::new(&task(), "runner-1").waiting_at_most(LIMIT);
    let lease = waiting::acquire(&project.store, &ask, |_| ()).lease();
    assert_eq!(project.rows("task_locks"), [wanted("task_locks", &lease)]);
}

#[test]
fn a_row_that_another_program_deletes_frees_the_key() {
    let project = Project::new();
    for (key, delete) in [
        (task(), "DELETE FROM task_locks"),
        (section(), "DELETE FROM section_locks"),
    ] {
        let lease = Ask::new(&key, "runner-1").granted(&project.store);
        project.sql(delete);
        assert!(project.is_free(&key));
        let fenced = project.store.fence(&key, lease.token, soon()).unwrap();
        assert!(
            matches!(&fenced, Fenced::Stale(now) if now.is_empty()),
            "{fenced:?}"
        );
        let renewed = project
            .store
            .renew(&lease.grant(), lease.ttl, soon())
            .unwrap();
        assert!(
            matches!(&renewed, Renewed::Lost(now) if now.is_empty()),
            "{renewed:?}"
        );
        let released = project.store.release(&lease.grant(), soon()).unwrap();
        assert!(
            matches!(&released, Released::AlreadyGone(now) if now.is_empty()),
            "{released:?}"
        );
        let next = Ask::new(&key, "runner-2").granted(&project.other());
        assert!(next.token > lease.token);
    }
    let events = project
        .store
        .history(&HistoryQuery::default(), soon())
        .unwrap();
    assert_eq!(
        history::contradictions(&events),
        [],
        "and each end is on record once"
    );
    let ends: Vec<_> = events
        .iter()
        .filter(|event| event.kind == EventKind::Forced)
        .collect();
    assert_eq!(ends.len(), 2);
    assert!(
        ends.iter()
            .all(|event| matches!(event.evidence, Some(Evidence::Forced { .. })))
    );
}

#[test]
fn the_process_that_notices_a_deleted_row_wakes_the_next_waiter() {
    let project = Project::new();
    let waiter = project.other();
    let lease = Ask::new(&task(), "runner-1").granted(&project.store);
    let Acquired::Busy(busy) = Ask::new(&task(), "runner-2").waiting().once(&waiter) else {
        panic!("the second one need not wait");
    };
    std::thread::scope(|scope| {
        let wait = scope.spawn(|| waiter.wait(&busy.watched(), Duration::from_secs(5)));
        // Until it sleeps: before that, it would notice by itself.
        std::thread::sleep(Duration::from_millis(60));
        project.sql("DELETE FROM task_locks");
        let renewed = project
            .store
            .renew(&lease.grant(), lease.ttl, soon())
            .unwrap();
        assert!(
            matches!(&renewed, Renewed::Lost(now) if now.is_empty()),
            "{renewed:?}"
        );
        assert_eq!(wait.join().unwrap().unwrap(), Waited::Changed);
    });
}

#[test]
fn a_row_that_another_program_takes_over_is_lost() {
    let project = Project::new();
    let lease = Ask::new(&task(), "runner-1").granted(&project.store);
    project.sql(
        "UPDATE task_locks SET runner_id = 'foreign', acquired_at = datetime('now'),
         expires_at = datetime('now', '+1 hour'), heartbeat_at = datetime('now') WHERE task_id = 't1'",
    );
    let renewed = project
        .store
        .renew(&lease.grant(), lease.ttl, soon())
        .unwrap();
    let Renewed::Lost(now) = renewed else {
        panic!("{renewed:?}");
    };
    assert_eq!(now[0].holder.id.as_str(), "foreign");
    let released = project.store.release(&lease.grant(), soon()).unwrap();
    assert!(
        matches!(&released, Released::AlreadyGone(now) if now.len() == 1),
        "{released:?}"
    );
    assert_eq!(project.rows("task_locks").len(), 1, "it was left alone");
    let fenced = project.store.fence(&task(), lease.token, soon()).unwrap();
    assert!(
        matches!(&fenced, Fenced::Stale(now) if now.len() == 1),
        "{fenced:?}"
    );
}

#[test]
fn the_same_runner_may_renew_its_row_with_another_program() {
    let project = Project::new();
    let lease = Ask::new(&task(), "runner-1").granted(&project.store);
    project.sql("UPDATE task_locks SET expires_at = '2099-01-01T00:00:00.000Z'");
    let (found, verdict) = project
        .store
        .inspect(&task(), soon())
        .unwrap()
        .lease()
        .cloned()
        .unwrap();
    assert_eq!(found.grant(), lease.grant(), "it is the same lease");
    assert_eq!(
        shown(found.expires.as_ref().unwrap().wall),
        "2099-01-01T00:00:00.000Z"
    );
    assert_eq!(verdict, Verdict::Alive);
    project
        .sql("UPDATE task_locks SET expires_at = strftime('%Y-%m-%dT%H:%M:%fZ','now','-1 minute')");
    let (_, reason) = Ask::new(&task(), "runner-2").granted_for(&project.other());
    assert_eq!(reason, Reason::ClaimedExpired);
    let renewed = project
        .store
        .renew(&lease.grant(), lease.ttl, soon())
        .unwrap();
    assert!(
        matches!(&renewed, Renewed::Lost(now) if now.len() == 1),
        "{renewed:?}"
    );
}

#[test]
fn a_local_time_west_of_utc_does_not_look_like_the_past() {
    // A program in New York holds it for another hour: its end says so in local time, without a zone.
    let local = "datetime('now', '-5 hours', '+1 hour')";
    for (key, table) in [(task(), "task_locks"), (section(), "section_locks")] {
        let project = Project::new();
        let (kind, id) = key.as_str().split_once(':').unwrap();
        project.sql(&format!(
            "INSERT INTO {table} ({kind}_id, runner_id, expires_at) VALUES ('{id}', 'coder', {local})"
        ));
        assert!(project.store.reap(Reap::Free, soon()).unwrap().is_empty());
        let snapshot = project.store.inspect(&key, soon()).unwrap();
        assert_eq!(snapshot.lease().unwrap().1, Verdict::Malformed);
        let problems = snapshot.problems.join("; ");
        assert!(problems.contains("is before acquired_at"), "{problems}");
        let refused = Ask::new(&key, "runner-1").once(&project.store);
        assert!(matches!(refused, Acquired::Busy(_)), "{refused:?}");
        // With its zone, the same end has passed, whatever the beginning says.
        project.sql(&format!(
            "UPDATE {table} SET expires_at = replace({local}, ' ', 'T') || 'Z'"
        ));
        assert_eq!(project.store.reap(Reap::Free, soon()).unwrap().len(), 1);
    }
}

#[test]
fn a_row_whose_end_can_not_be_read_is_never_taken_over() {
    for end in ["tomorrow", "", "2026-13-45 99:00:00", "0", "1700000000"] {
        let project = Project::new();
        project.sql(&format!(
            "INSERT INTO task_locks (task_id, runner_id, acquired_at, expires_at)
             VALUES ('t1', 'foreign', '2020-01-01 00:00:00', '{end}')"
        ));
        let asked = Ask::new(&task(), "runner-1").once(&project.store);
        let Acquired::Busy(busy) = &asked else {
            panic!("{end:?}: {asked:?}");
        };
        let (lease, verdict) = busy.lease().unwrap();
        assert_eq!(lease.holder.id.as_str(), "foreign");
        assert_eq!(*verdict, Verdict::Malformed, "{end:?}");
        assert!(
            project.store.reap(Reap::Free, soon()).unwrap().is_empty(),
            "{end:?}"
        );
        assert_eq!(project.rows("task_locks").len(), 1);
        let admin = HolderId::parse("admin").unwrap();
        let _ = project
            .store
            .force(&task(), None, &admin, None, soon())
            .unwrap();
        assert!(project.is_free(&task()), "{end:?}: force is the way out");
    }
}

#[test]
fn a_row_of_tenure_whose_end_was_made_unreadable_is_never_taken_over() {
    let project = Project::new();
    let lease = Ask::new(&task(), "runner-1").granted(&project.store);
    project.sql("UPDATE task_locks SET expires_at = 'soon'");
    let asked = Ask::new(&task(), "runner-2").once(&project.other());
    assert!(matches!(asked, Acquired::Busy(_)), "{asked:?}");
    assert!(project.store.reap(Reap::Free, soon()).unwrap().is_empty());
    let fenced = project
        .store
        .fence(&task(), lease.token.next().unwrap(), soon())
        .unwrap();
    assert!(matches!(fenced, Fenced::Stale(_)), "{fenced:?}");
    assert_eq!(project.rows("task_locks").len(), 1);
}

#[test]
fn a_row_of_tenure_whose_end_was_made_unreadable_is_repaired_by_its_holder() {
    let project = Project::new();
    let lease = Ask::new(&task(), "runner-1").granted(&project.store);
    project.sql("UPDATE task_locks SET expires_at = 'soon'");
    let renewed = project
        .store
        .renew(&lease.grant(), lease.ttl, soon())
        .unwrap();
    assert!(matches!(renewed, Renewed::Extended(_)), "{renewed:?}");
    project.sql("UPDATE task_locks SET expires_at = 'soon'");
    let released = project.store.release(&lease.grant(), soon()).unwrap();
    assert!(matches!(released, Released::Freed(_)), "{released:?}");
    assert!(project.is_free(&task()));
}

#[test]
fn a_row_of_another_program_has_no_usable_token() {
    let project = Project::new();
    let lease = Ask::new(&task(), "runner-1").granted(&project.store);
    let _ = project.store.release(&lease.grant(), soon()).unwrap();
    project.sql(
        "INSERT INTO task_locks (task_id, runner_id, expires_at)
         VALUES ('t1', 'foreign', datetime('now', '+1 hour'))",
    );
    let fenced = project.store.fence(&task(), Token(0), soon()).unwrap();
    assert!(
        matches!(fenced, Fenced::Stale(_)),
        "0 is older than the newest grant: {fenced:?}"
    );
    let guessed = Grant {
        key: task(),
        holder: HolderId::parse("foreign").unwrap(),
        token: Token(0),
    };
    let released = project.store.release(&guessed, soon()).unwrap();
    assert!(
        matches!(&released, Released::AlreadyGone(now) if now.len() == 1),
        "that was never granted: {released:?}"
    );
    assert_eq!(project.rows("task_locks").len(), 1);
}

#[test]
fn a_row_that_another_program_wrote_for_a_runner_gets_a_token_when_the_runner_claims_it() {
    let project = Project::new();
    project.sql(
        "INSERT INTO task_locks (task_id, runner_id, expires_at)
         VALUES ('t1', 'runner-1', datetime('now', '+1 hour'))",
    );
    let ask = Ask::new(&task(), "runner-1").detached();
    let (lease, reason) = ask.granted_for(&project.store);
    assert_eq!(reason, Reason::AlreadyOwned);
    assert_ne!(lease.token, Token::NONE);
    let released = project.store.release(&lease.grant(), soon()).unwrap();
    assert!(matches!(released, Released::Freed(_)), "{released:?}");
}
