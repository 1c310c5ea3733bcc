//! What is refused, in which words, and that it stays as it was.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use rusqlite::Connection;
use tempfile::TempDir;
use tenure_core::{ErrorKind, Key, Store, StoreError};
use tenure_sqlite::{SCHEMA_VERSION, SqliteOptions, SqliteStore};
use tenure_testkit::soon;
use tenure_testkit::{Ask, Process, process};

fn key() -> Key {
    Key::parse("build").unwrap()
}

/// Opens and acquires: what a command does at least.
fn open_and_acquire(path: &Path) -> Result<(), StoreError> {
    let store = SqliteStore::open(path, SqliteOptions::default())?;
    let claim = Ask::new(&key(), "holder").claim(&store);
    store.acquire(&claim, soon()).map(|_| ())
}

fn refused(path: &Path) -> StoreError {
    match SqliteStore::open(path, SqliteOptions::default()) {
        Ok(_) => panic!("{} should be refused", path.display()),
        Err(error) => error,
    }
}

/// A folder with a database that was used, and whose log has been folded into it.
fn used() -> (TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tenure.db");
    let store = SqliteStore::open(&path, SqliteOptions::default()).unwrap();
    for _ in 0..20 {
        let lease = Ask::new(&key(), "holder").granted(&store);
        let _ = store.release(&lease.grant(), soon()).unwrap();
    }
    drop(store);
    fold(&path);
    (dir, path)
}

/// Folds the log into the database and removes it.
fn fold(path: &Path) {
    let db = Connection::open(path).unwrap();
    let busy: i32 = db
        .query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |row| row.get(0))
        .unwrap();
    assert_eq!(busy, 0);
}

#[test]
fn a_newer_database_is_refused_and_both_versions_are_named() {
    let (_dir, path) = used();
    let newer = SCHEMA_VERSION + 41;
    Connection::open(&path)
        .unwrap()
        .execute_batch(&format!("PRAGMA user_version = {newer}"))
        .unwrap();
    fold(&path);
    let before = fs::read(&path).unwrap();
    let error = refused(&path);
    assert_eq!(error.kind, ErrorKind::TooNew);
    let words = error.to_string();
    for part in [
        format!("schema {newer}"),
        format!("up to {SCHEMA_VERSION}"),
        path.display().to_string(),
    ] {
        assert!(words.contains(&part), "{part}: {words}");
    }
    assert_eq!(fs::read(&path).unwrap(), before);
}

#[test]
fn a_database_of_another_program_is_refused() {
    for made_by in [
        "CREATE TABLE notes (text)",
        "PRAGMA user_version = 1",
        "PRAGMA application_id = 7; CREATE TABLE task_locks (task_id TEXT PRIMARY KEY)",
    ] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("other.db");
        Connection::open(&path)
            .unwrap()
            .execute_batch(made_by)
            .unwrap();
        let before = fs::read(&path).unwrap();
        let error = refused(&path);
        assert_eq!(error.kind, ErrorKind::NotAStore, "{made_by}: {error}");
        assert_eq!(fs::read(&path).unwrap(), before, "{made_by}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "{made_by}");
    }
}

#[test]
fn a_file_that_is_no_database_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("tenure.db");
    for garbage in ["{}\n".to_owned(), "no database ".repeat(1000)] {
        fs::write(&path, &garbage).unwrap();
        let error = refused(&path);
        assert_eq!(error.kind, ErrorKind::NotAStore, "{error}");
        assert_eq!(fs::read_to_string(&path).unwrap(), garbage);
    }
}

#[test]
fn a_folder_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let error = refused(dir.path());
    assert_eq!(error.kind, ErrorKind::NotAStore, "{error}");
    let error = refused(&dir.path().join("no/such/folder/tenure.db"));
    assert_eq!(error.kind, ErrorKind::Io, "{error}");
}

#[test]
fn a_truncated_database_is_never_taken_for_a_new_one() {
    let (_dir, path) = used();
    let whole = fs::read(&path).unwrap();
    // A single byte is what SQLite itself writes into an empty file on some systems.
    for length in [
        2,
        15,
        16,
        99,
        100,
        511,
        512,
        4095,
        4096,
        6000,
        whole.len() / 2,
    ] {
        for left in ["", "-wal", "-shm"] {
            let _ = fs::remove_file(format!("{}{left}", path.display()));
        }
        fs::write(&path, whole.get(..length).unwrap()).unwrap();
        let Err(error) = open_and_acquire(&path) else {
            panic!("{length} of {} bytes were good enough", whole.len());
        };
        assert!(
            matches!(error.kind, ErrorKind::Damaged | ErrorKind::NotAStore),
            "{length} bytes: {:?} {error}",
            error.kind
        );
    }
}

#[test]
fn a_database_that_was_emptied_is_not_taken_for_a_new_one() {
    let (_dir, path) = used();
    fs::write(&path, "").unwrap();
    let error = refused(&path);
    assert_eq!(error.kind, ErrorKind::Damaged, "{error}");
    assert_eq!(fs::read(&path).unwrap(), b"", "nothing was changed");
}

#[test]
fn a_database_that_was_removed_is_made_anew() {
    let (_dir, path) = used();
    fs::remove_file(&path).unwrap();
    open_and_acquire(&path).unwrap();
}

#[test]
fn a_database_that_is_removed_or_replaced_while_it_is_in_use_is_noticed() {
    let (_dir, path) = used();
    let store = SqliteStore::open(&path, SqliteOptions::default()).unwrap();
    let claim = Ask::new(&key(), "holder").claim(&store);
    fs::remove_file(&path).unwrap();
    let error = store.acquire(&claim, soon()).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Gone, "{error}");
    let (_other_dir, other) = used();
    fs::rename(&other, &path).unwrap();
    let error = store.acquire(&claim, soon()).unwrap_err();
    assert_eq!(error.kind, ErrorKind::Gone, "{error}");
}

/// Not a test: a process that may not write opens and acquires, and reports what came of it.
#[test]
fn worker() {
    let Some(path) = process::job() else { return };
    let words = match open_and_acquire(Path::new(&path)) {
        Ok(()) => "it worked".to_owned(),
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
fn a_database_in_a_folder_that_is_mounted_read_only_is_read_only() {
    let unshare = || {
        let mut command = Command::new("unshare");
        command.arg(if rustix::process::geteuid().is_root() {
            "-m"
        } else {
            "-rm"
        });
        command
    };
    if !runs(unshare().arg("true")) {
        tenure_testkit::left_out("unshare can't make a mount namespace here");
        return;
    }
    let (dir, path) = used();
    let before = fs::read(&path).unwrap();
    let read_only =
        r#"mount --bind "$1" "$1" && mount -o remount,bind,ro "$1" && shift && exec "$@""#;
    let mut through = unshare();
    through.args(["sh", "-c", read_only, "sh"]).arg(dir.path());
    let process = Process::start_through(&mut through, "refusals::worker", path.to_str().unwrap());
    let words = process.report();
    assert!(words.starts_with("ReadOnly:"), "{words}");
    assert_eq!(fs::read(&path).unwrap(), before);
}

#[test]
fn a_database_of_another_user_is_read_only() {
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
    let (dir, path) = used();
    fs::set_permissions(
        dir.path(),
        std::os::unix::fs::PermissionsExt::from_mode(0o755),
    )
    .unwrap();
    let before = fs::read(&path).unwrap();
    let process =
        Process::start_through(&mut setpriv(), "refusals::worker", path.to_str().unwrap());
    let words = process.report();
    assert!(words.starts_with("ReadOnly:"), "{words}");
    assert_eq!(fs::read(&path).unwrap(), before);
}
