//! What is no database of the other program, and what becomes of one while it is in use.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Command, Stdio};

use rusqlite::Connection;
use tenure_core::{ErrorKind, Store, StoreError};
use tenure_sqlite::{SqliteOptions, SqliteStore};
use tenure_testkit::ask::HOUR;
use tenure_testkit::soon;
use tenure_testkit::{Ask, Process, process};
use tool::{Both, Tool, is_busy, task};

use crate::tool;

fn refused(path: &Path) -> StoreError {
    match SqliteStore::open_foreign(path, SqliteOptions::default()) {
        Ok(_) => panic!("{} should be refused", path.display()),
        Err(error) => error,
    }
}

/// The names of all files in a folder.
fn files(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries
        .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

#[test]
fn a_missing_file_is_refused_and_not_created() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["steroids.db", "no/such/folder/steroids.db"] {
        let error = refused(&dir.path().join(name));
        assert_eq!(error.kind, ErrorKind::NotAStore, "{error}");
        assert!(
            error.to_string().contains("there is no database"),
            "{error}"
        );
    }
    let error = refused(dir.path());
    assert_eq!(error.kind, ErrorKind::NotAStore, "{error}");
    assert_eq!(files(dir.path()), Vec::<String>::new());
}

#[test]
fn a_file_that_is_no_database_is_refused_and_left_as_it_was() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("steroids.db");
    for garbage in [String::new(), "{}\n".into(), "no database ".repeat(1000)] {
        fs::write(&path, &garbage).unwrap();
        let error = refused(&path);
        assert_eq!(error.kind, ErrorKind::NotAStore, "{error}");
        assert!(!error.to_string().contains("tenure init"), "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), garbage);
        assert_eq!(files(dir.path()), ["steroids.db"]);
    }
}

#[test]
fn a_database_without_the_two_tables_is_refused_and_left_as_it_was() {
    let sections = "CREATE TABLE section_locks (section_id TEXT PRIMARY KEY, runner_id, acquired_at, expires_at);";
    let columns = "runner_id, acquired_at, expires_at, heartbeat_at";
    for made_by in [
        "CREATE TABLE notes (text)".to_owned(),
        sections.to_owned(),
        format!("{sections} CREATE TABLE task_locks (task_id TEXT PRIMARY KEY, runner_id)"),
        format!("{sections} CREATE TABLE task_locks (task_id, {columns})"),
        format!(
            "{sections} CREATE TABLE task_locks (task_id, {columns}, PRIMARY KEY (task_id, runner_id))"
        ),
        format!(
            "{sections} CREATE TABLE t (task_id PRIMARY KEY, {columns}); CREATE VIEW task_locks AS SELECT * FROM t"
        ),
    ] {
        for journal in ["DELETE", "WAL"] {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("steroids.db");
            let db = Connection::open(&path).unwrap();
            db.query_row(&format!("PRAGMA journal_mode = {journal}"), [], |_| Ok(()))
                .unwrap();
            db.execute_batch(&made_by).unwrap();
            drop(db);
            let before = fs::read(&path).unwrap();
            let error = refused(&path);
            assert_eq!(error.kind, ErrorKind::NotAStore, "{made_by}: {error}");
            assert!(error.to_string().contains("task_locks"), "{error}");
            assert_eq!(fs::read(&path).unwrap(), before, "{made_by}");
            assert_eq!(files(dir.path()), ["steroids.db"], "{made_by}");
        }
    }
}

#[test]
fn neither_kind_of_database_is_opened_as_the_other() {
    let dir = tempfile::tempdir().unwrap();
    let path = tool::database(dir.path());
    let before = fs::read(&path).unwrap();
    let Err(error) = SqliteStore::open(&path, SqliteOptions::default()) else {
        panic!("it is the tool's");
    };
    assert_eq!(error.kind, ErrorKind::NotAStore, "{error}");
    let way_out = format!("write steroids:{}", path.display());
    assert!(error.to_string().contains(&way_out), "{error}");
    assert_eq!(fs::read(&path).unwrap(), before);
    assert_eq!(files(dir.path()), ["steroids.db"]);

    let ours = dir.path().join("tenure.db");
    drop(SqliteStore::open(&ours, SqliteOptions::default()).unwrap());
    let error = refused(&ours);
    assert_eq!(error.kind, ErrorKind::NotAStore, "{error}");
    let way_out = format!("write sqlite:{}", ours.display());
    assert!(error.to_string().contains(&way_out), "{error}");
}

#[test]
fn opening_a_database_does_not_checkpoint_a_log_that_the_tool_left() {
    let dir = tempfile::tempdir().unwrap();
    let path = tool::database(dir.path());
    let tool = Tool::at(&path, "coder");
    tool.sql("DROP TABLE section_locks");
    let before = fs::read(&path).unwrap();
    let log = fs::read(dir.path().join("steroids.db-wal")).unwrap();
    assert!(!log.is_empty());
    assert_eq!(refused(&path).kind, ErrorKind::NotAStore);
    assert_eq!(fs::read(&path).unwrap(), before);
    assert_eq!(fs::read(dir.path().join("steroids.db-wal")).unwrap(), log);
}

#[test]
fn a_database_that_is_removed_or_replaced_while_it_is_in_use_is_noticed() {
    let both = Both::new();
    let claim = Ask::new(&task(), "runner").claim(&both.store);
    fs::rename(&both.path, both.dir.path().join("old.db")).unwrap();
    let error = both.store.acquire(&claim, soon()).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Gone, "{error}");
    assert_eq!(tool::database(both.dir.path()), both.path);
    let error = both.store.acquire(&claim, soon()).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Gone, "{error}");
    assert!(error.to_string().contains("steroids.db was"), "{error}");
}

#[test]
fn a_side_database_that_is_removed_while_it_is_in_use_is_noticed() {
    let both = Both::new();
    let claim = Ask::new(&task(), "runner").claim(&both.store);
    fs::remove_file(both.dir.path().join("steroids.db-tenure")).unwrap();
    let error = both.store.acquire(&claim, soon()).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Gone, "{error}");
    assert!(error.to_string().contains("steroids.db-tenure"), "{error}");
    // A new side database honours what the tool's table still says.
    assert!(Tool::at(&both.path, "coder").acquire("t1", HOUR));
    let anew = tool::tenure(&both.path);
    assert!(is_busy(&Ask::new(&task(), "runner").once(&anew)));
}

#[test]
fn processes_that_open_a_database_by_a_link_share_its_locks() {
    let both = Both::new();
    let elsewhere = tempfile::tempdir().unwrap();
    let link = elsewhere.path().join("link.db");
    std::os::unix::fs::symlink(&both.path, &link).unwrap();
    let by_link = tool::tenure(&link);
    let lease = Ask::new(&task(), "runner").granted(&by_link);
    let (found, _) = both
        .store
        .inspect(&task(), soon())
        .unwrap()
        .lease()
        .cloned()
        .unwrap();
    assert_eq!(found.grant(), lease.grant());
    assert_eq!(files(elsewhere.path()), ["link.db"]);
}

#[test]
fn any_name_of_a_folder_will_do() {
    let dir = tempfile::tempdir().unwrap();
    for name in [
        &b"with space"[..],
        b"100%41?mode=ro&x=y#z",
        "gr\u{f6}\u{df}e".as_bytes(),
        b"not \xff utf-8",
        b"quote's \"and\"",
    ] {
        let folder = dir.path().join(OsStr::from_bytes(name));
        fs::create_dir(&folder).unwrap();
        let path = tool::database(&folder);
        Ask::new(&task(), "runner").granted(&tool::tenure(&path));
        let holder = Tool::at(&path, "coder").holder("t1");
        assert_eq!(holder.as_deref(), Some("runner"), "{}", path.display());
        assert!(files(&folder).contains(&"steroids.db-tenure".to_owned()));
    }
    assert_eq!(files(dir.path()).len(), 5);
}

/// Not a test: a process that may not write opens the database, and reports what came of it.
#[test]
fn worker() {
    let Some(path) = process::job() else { return };
    let words = match SqliteStore::open_foreign(Path::new(&path), SqliteOptions::default()) {
        Ok(_) => "it worked".to_owned(),
        Err(error) => format!("{:?}: {error}", error.kind),
    };
    process::report(&words);
}

/// Whether a command can be run here.
fn runs(command: &mut Command) -> bool {
    command
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status()
        .is_ok_and(|status| status.success())
}

#[test]
fn a_database_that_may_not_be_written_is_refused_as_such() {
    let setpriv = || {
        let mut command = Command::new("setpriv");
        command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
        command
    };
    if !runs(
        setpriv()
            .arg("test")
            .arg("-x")
            .arg(std::env::current_exe().unwrap()),
    ) {
        tenure_testkit::left_out("setpriv can't make another user run this binary");
        return;
    }
    for (folder, file) in [(0o777, 0o644), (0o755, 0o666), (0o755, 0o644)] {
        for journal in ["DELETE", "WAL"] {
            let dir = tempfile::tempdir().unwrap();
            let path = tool::database(dir.path());
            Connection::open(&path)
                .unwrap()
                .query_row(&format!("PRAGMA journal_mode = {journal}"), [], |_| Ok(()))
                .unwrap();
            fs::set_permissions(dir.path(), fs::Permissions::from_mode(folder)).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(file)).unwrap();
            let before = fs::read(&path).unwrap();
            let process = Process::start_through(
                &mut setpriv(),
                "steroids_refusals::worker",
                path.to_str().unwrap(),
            );
            let words = process.report();
            let what = format!("{folder:o} {file:o} {journal}: {words}");
            assert!(words.starts_with("ReadOnly:"), "{what}");
            assert!(words.contains("no permission to write to"), "{what}");
            assert_eq!(fs::read(&path).unwrap(), before, "{what}");
            assert!(
                !files(dir.path()).contains(&"steroids.db-tenure".to_owned()),
                "{what}"
            );
        }
    }
}
