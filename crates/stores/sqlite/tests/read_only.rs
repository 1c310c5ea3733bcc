//! A database that is opened read-only: the same answers, and not a byte changes.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::Connection;
use tempfile::TempDir;
use tenure_core::{
    Acquired, ErrorKind, HistoryQuery, HolderId, Key, Priority, Reap, Records, Store, StoreError,
    Watched, Withdrawal,
};
use tenure_sqlite::{SqliteOptions, SqliteStore};
use tenure_tasks::{NewTask, TaskError, TaskQuery, TaskStore as _};
use tenure_testkit::soon;
use tenure_testkit::{Ask, Process, process};

fn key(name: &str) -> Key {
    Key::parse(name).unwrap()
}

fn open(path: &Path) -> SqliteStore {
    SqliteStore::open(path, SqliteOptions::default()).unwrap()
}

fn read_only(path: &Path) -> SqliteStore {
    SqliteStore::open_read_only(path, SqliteOptions::default()).unwrap()
}

fn refused(path: &Path) -> StoreError {
    match SqliteStore::open_read_only(path, SqliteOptions::default()) {
        Ok(_) => panic!("{} should be refused", path.display()),
        Err(error) => error,
    }
}

/// A database with a held key, a waiter, an expired lease, a task and a history.
fn used() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
    let path = dir.path().join("tenure.db");
    let store = open(&path);
    Ask::new(&key("build"), "a").detached().granted(&store);
    let waits = Ask::new(&key("build"), "b").detached().waiting();
    assert!(matches!(waits.once(&store), Acquired::Busy(_)));
    let mut short = Ask::new(&key("over"), "c").detached();
    short.ttl = Duration::from_millis(1);
    short.granted(&store);
    let section = store.add_section("Backend", soon()).unwrap();
    let task = NewTask {
        title: "One".into(),
        section: Some(section.id),
        description: None,
        priority: Priority::default(),
        depends_on: Vec::new(),
    };
    store.add_task(&task, soon()).unwrap();
    std::thread::sleep(Duration::from_millis(5));
    (dir, path)
}

/// Everything in a folder: names, inodes, modes, owners, sizes and times.
fn listing(folder: &Path) -> BTreeMap<PathBuf, String> {
    let mut all = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let at = fs::symlink_metadata(&folder).unwrap();
        all.insert(folder.clone(), described(&at));
        for entry in fs::read_dir(&folder).unwrap() {
            let path = entry.unwrap().path();
            let at = fs::symlink_metadata(&path).unwrap();
            if at.is_dir() {
                folders.push(path);
            } else {
                all.insert(path, described(&at));
            }
        }
    }
    all
}

fn described(at: &fs::Metadata) -> String {
    format!(
        "inode {} mode {:o} owner {} size {} modified {}.{}",
        at.ino(),
        at.mode(),
        at.uid(),
        at.size(),
        at.mtime(),
        at.mtime_nsec()
    )
}

/// What all verbs that look say, without the revision.
fn answers(store: &SqliteStore) -> String {
    let known = |name: &str| {
        let known = store.inspect(&key(name), soon()).unwrap();
        format!("{:?} {:?}", known.leases, known.queue)
    };
    let list = store.list(soon()).unwrap();
    let list: Vec<_> = list
        .iter()
        .map(|known| format!("{} {:?} {:?}", known.key, known.leases, known.queue))
        .collect();
    let lease = store.inspect(&key("build"), soon()).unwrap();
    let token = lease.lease().unwrap().0.token;
    let mut lines = Vec::new();
    store
        .export(&mut |line| lines.push(line.to_owned()), soon())
        .unwrap();
    let all = format!(
        "{}\n{}\n{list:?}\n{:?}\n{:?}\n{:?}\n{:?}\n{lines:?}",
        known("build"),
        known("over"),
        store.fence(&key("build"), token, soon()).unwrap(),
        store.reap(Reap::DryRun, soon()).unwrap(),
        store.history(&HistoryQuery::default(), soon()).unwrap(),
        store.tasks(&TaskQuery::default(), soon()).unwrap(),
    );
    without_ends(&all)
}

/// Without the moment at which a lease expired. It is derived from two clocks, some nanoseconds
/// differently each time.
fn without_ends(text: &str) -> String {
    let mut parts = text.split("expired_at: ");
    let first = parts.next().unwrap().to_owned();
    parts.fold(first, |text, part| {
        text + "expired_at: " + part.split_once('Z').unwrap().1
    })
}

/// Not a test: looks at a database read-only, or holds a key in it.
#[test]
fn worker() {
    let Some(job) = process::job() else { return };
    let (what, path) = job.split_once(' ').unwrap();
    let path = Path::new(path);
    if what == "look" {
        match SqliteStore::open_read_only(path, SqliteOptions::default()) {
            Ok(store) => process::report(&answers(&store).replace('\n', "|")),
            Err(error) => process::report(&format!("{:?}: {error}", error.kind)),
        }
        return;
    }
    let store = open(path);
    Ask::new(&key("live"), "live").granted(&store);
    process::report("held");
    loop {
        std::thread::park();
    }
}

#[test]
fn looking_gives_the_same_answers_and_changes_nothing() {
    let (dir, path) = used();
    let expected = answers(&open(&path));
    assert!(expected.contains("Expired"), "{expected}");
    let before = listing(dir.path());
    assert!(before.contains_key(&dir.path().join("tenure.db-wal")));
    assert_eq!(answers(&read_only(&path)), expected);
    assert_eq!(listing(dir.path()), before);
}

#[test]
fn a_database_without_a_log_is_read_and_gets_none() {
    let (dir, path) = used();
    let expected = answers(&open(&path));
    // Another program that is the last to close the database removes the log.
    drop(open(&path));
    let other = Connection::open(&path).unwrap();
    other
        .query_row("SELECT count(*) FROM leases", [], |_| Ok(()))
        .unwrap();
    other.close().unwrap();
    assert!(!dir.path().join("tenure.db-wal").exists());
    let before = listing(dir.path());
    let store = read_only(&path);
    assert_eq!(answers(&store), expected);
    assert_eq!(listing(dir.path()), before);
    // The same store object sees what is written afterwards, and what is folded into the file again.
    let writer = open(&path);
    Ask::new(&key("later"), "d").detached().granted(&writer);
    let is_held = |name| store.inspect(&key(name), soon()).unwrap().lease().is_some();
    assert!(is_held("later"));
    drop(writer);
    let other = Connection::open(&path).unwrap();
    other
        .execute_batch("DELETE FROM leases WHERE key = 'later'")
        .unwrap();
    other.close().unwrap();
    assert!(!dir.path().join("tenure.db-wal").exists());
    assert!(!is_held("later"));
    assert!(is_held("build"));
}

#[test]
fn a_live_writer_sees_no_difference() {
    let (dir, path) = used();
    let mut holder = Process::start("read_only::worker", &format!("hold {}", path.display()));
    assert_eq!(holder.report(), "held");
    let before = listing(dir.path());
    let store = read_only(&path);
    for _ in 0..20 {
        let live = store.inspect(&key("live"), soon()).unwrap();
        assert_eq!(format!("{:?}", live.lease().unwrap().1), "Alive");
        answers(&store);
    }
    assert_eq!(listing(dir.path()), before);
    holder.kill();
    let dead = store.inspect(&key("live"), soon()).unwrap();
    assert!(dead.lease().unwrap().1.ended().is_some());
    assert_eq!(store.reap(Reap::DryRun, soon()).unwrap().len(), 2);
}

#[test]
fn a_store_that_is_opened_for_writing_beside_it_in_the_same_process_can_write() {
    let (_dir, path) = used();
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                let store = read_only(&path);
                for _ in 0..200 {
                    store.list(soon()).unwrap();
                }
            });
        }
        for writer in 0..2 {
            let path = &path;
            scope.spawn(move || {
                let key = key(&format!("writer-{writer}"));
                for _ in 0..50 {
                    let store = open(path);
                    let lease = Ask::new(&key, "w").granted(&store);
                    let _ = store.release(&lease.grant(), soon()).unwrap();
                }
            });
        }
    });
}

#[test]
fn every_read_beside_busy_writers_succeeds_and_is_whole() {
    let (_dir, path) = used();
    let writer = open(&path);
    let done = std::sync::atomic::AtomicBool::new(false);
    let mut look = Process::start("read_only::worker", &format!("look {}", path.display()));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                let lease = Ask::new(&key("churn"), "w").granted(&writer);
                let _ = writer.release(&lease.grant(), soon()).unwrap();
            }
        });
        for round in 0..10 {
            let words = look.report();
            let granted = words.matches("kind: Granted").count();
            assert!(granted >= 2, "round {round}: {words}");
            look.wait_for_end();
            look = Process::start("read_only::worker", &format!("look {}", path.display()));
        }
        done.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

#[test]
fn every_verb_that_writes_is_refused_and_changes_nothing() {
    let (dir, path) = used();
    let writer = open(&path);
    let claim = Ask::new(&key("new"), "d").detached().claim(&writer);
    let held = writer.inspect(&key("build"), soon()).unwrap();
    let lease = held.lease().unwrap().0.clone();
    drop(writer);
    let before = listing(dir.path());
    let store = read_only(&path);
    let build = key("build");
    let by = HolderId::parse("d").unwrap();
    let watched = Watched {
        key: &build,
        seen: held.revision,
        held: None,
        others: Vec::new(),
        ahead: Vec::new(),
    };
    let refused = [
        store.this_process().map(|_| ()),
        store.acquire(&claim, soon()).map(|_| ()),
        store
            .renew(&lease.grant(), Duration::from_secs(60), soon())
            .map(|_| ()),
        store.release(&lease.grant(), soon()).map(|_| ()),
        store.withdraw(&claim, Withdrawal::Leave, soon()),
        store.withdraw(&claim, Withdrawal::Park, soon()),
        store.force(&build, None, &by, None, soon()).map(|_| ()),
        store.reap(Reap::Free, soon()).map(|_| ()),
        store.wait(&watched, Duration::from_secs(60)).map(|_| ()),
    ];
    for (verb, answer) in refused.into_iter().enumerate() {
        let error = answer.err().unwrap_or_else(|| panic!("verb {verb}"));
        assert_eq!(error.kind, ErrorKind::ReadOnly, "verb {verb}");
        assert_eq!(
            error.to_string(),
            format!(
                "{} was opened read-only: nothing was changed: open it for writing to change it",
                path.display()
            )
        );
    }
    let task = store
        .tasks(&TaskQuery::default(), soon())
        .unwrap()
        .remove(0);
    let tasks = [
        store.add_section("Frontend", soon()).map(|_| ()),
        store.delete_tasks(&[task.id], soon()).map(|_| ()),
        store.import("", soon()).map(|_| ()),
        store.settle("note", 0, soon()),
    ];
    for answer in tasks {
        let Err(TaskError::Store(error)) = answer else {
            panic!("{answer:?}");
        };
        assert_eq!(error.kind, ErrorKind::ReadOnly);
    }
    store.wake();
    assert_eq!(listing(dir.path()), before);
}

#[test]
fn what_is_not_there_is_not_found_and_not_made() {
    let dir = tempfile::tempdir().unwrap();
    let empty = dir.path().join("empty.db");
    fs::write(&empty, "").unwrap();
    let before = listing(dir.path());
    for path in [
        dir.path().join("tenure.db"),
        dir.path().join("no/tenure.db"),
        empty,
    ] {
        let error = refused(&path);
        assert_eq!(error.kind, ErrorKind::NotFound, "{error}");
        assert!(error.to_string().contains("nothing was created"), "{error}");
    }
    assert_eq!(refused(dir.path()).kind, ErrorKind::NotAStore);
    assert_eq!(listing(dir.path()), before);
}

#[test]
fn what_has_to_be_written_first_is_refused_with_the_way_out() {
    // An older schema.
    let dir = tempfile::tempdir().unwrap();
    let old = dir.path().join("old.db");
    let db = Connection::open(&old).unwrap();
    db.query_row("PRAGMA journal_mode = WAL", [], |_| Ok(()))
        .unwrap();
    db.execute_batch(include_str!("fixtures/schema/1.sql"))
        .unwrap();
    db.execute_batch("PRAGMA application_id = 0x74656e72; PRAGMA user_version = 1;")
        .unwrap();
    db.close().unwrap();
    // A log without the index to it.
    let (used, path) = used();
    let copy = dir.path().join("copy.db");
    fs::copy(&path, &copy).unwrap();
    fs::copy(
        used.path().join("tenure.db-wal"),
        dir.path().join("copy.db-wal"),
    )
    .unwrap();
    // A database of another program, and no database at all.
    let other = dir.path().join("other.db");
    Connection::open(&other)
        .unwrap()
        .execute_batch("CREATE TABLE t (a)")
        .unwrap();
    let text = dir.path().join("text.db");
    fs::write(&text, "not a database, but long enough to have a header").unwrap();
    let before = listing(dir.path());
    for path in [&old, &copy] {
        let error = refused(path);
        assert_eq!(error.kind, ErrorKind::ReadOnly, "{error}");
        let words = error.to_string();
        assert!(
            words.contains("first, which writes: open it once with a command that writes"),
            "{words}"
        );
    }
    for path in [&other, &text] {
        assert_eq!(refused(path).kind, ErrorKind::NotAStore);
    }
    assert_eq!(listing(dir.path()), before);
    // That is the way out.
    drop(open(&copy));
    drop(open(&old));
    assert!(!read_only(&copy).list(soon()).unwrap().is_empty());
    assert!(read_only(&old).list(soon()).unwrap().is_empty());
}

#[test]
fn a_user_who_may_only_read_can_look_in_a_folder_that_nobody_may_write() {
    if process::as_another_user().is_none() {
        tenure_testkit::left_out("setpriv can't make another user run this binary");
        return;
    }
    for (log, folder) in [(true, 0o555), (true, 0o777), (false, 0o555), (false, 0o777)] {
        let (dir, path) = used();
        let expected = answers(&open(&path)).replace('\n', "|");
        if !log {
            let other = Connection::open(&path).unwrap();
            other
                .query_row("SELECT count(*) FROM leases", [], |_| Ok(()))
                .unwrap();
            other.close().unwrap();
        }
        assert_eq!(dir.path().join("tenure.db-shm").exists(), log);
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(folder)).unwrap();
        let before = listing(dir.path());
        let job = format!("look {}", path.display());
        let process = Process::start_through(
            &mut process::as_another_user().unwrap(),
            "read_only::worker",
            &job,
        );
        assert_eq!(process.report(), expected, "log {log}, folder {folder:o}");
        assert_eq!(listing(dir.path()), before, "log {log}, folder {folder:o}");
    }
    // Without permission to read, it says so.
    let (_dir, path) = used();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    let job = format!("look {}", path.display());
    let process = Process::start_through(
        &mut process::as_another_user().unwrap(),
        "read_only::worker",
        &job,
    );
    let words = process.report();
    assert!(words.starts_with("Io:"), "{words}");
    assert!(words.contains("can't be read"), "{words}");
}
