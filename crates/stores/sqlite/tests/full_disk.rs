//! No space left: said so, nothing torn, and as good as new once there is space again.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::{Command, Stdio};

use rusqlite::Connection;
use tenure_core::{
    Acquired, ErrorKind, Granted, HistoryQuery, Key, Lease, Records, Store, StoreError,
};
use tenure_sqlite::{SqliteOptions, SqliteStore};
use tenure_testkit::soon;
use tenure_testkit::{Ask, Process, history, process};

use crate::tool;

/// Not a test: what runs where there is little space.
#[test]
fn worker() {
    let Some(job) = process::job() else { return };
    let (whose, place) = job.split_once(' ').unwrap();
    let place = Path::new(place);
    let (path, key) = match whose {
        "ours" => (place.join("tenure.db"), "build"),
        _ => (tool::database(place), "task:t1"),
    };
    let open = || match whose {
        "ours" => SqliteStore::open(&path, SqliteOptions::default()).unwrap(),
        _ => tool::tenure(&path),
    };
    let is_full = |error: &StoreError| match whose {
        "ours" => error.kind == ErrorKind::Full,
        // What is written to two files may be in the first of them.
        _ => matches!(error.kind, ErrorKind::Full | ErrorKind::OutcomeUnknown),
    };
    let (store, key) = (open(), Key::parse(key).unwrap());
    // Also for a process that has never written before: its liveness lock, its log, its shared memory.
    let newcomer = open();
    for round in 0..5 {
        fill(&place.join("ballast"));
        let mut last = None;
        let error = loop {
            match acquire_and_release(&store, &key) {
                Ok(lease) => last = Some(lease.token),
                Err(error) => break error,
            }
        };
        assert!(is_full(&error), "round {round}: {error}");
        // It may be busy: what failed may have been a release.
        match newcomer.acquire(&Ask::new(&key, "newcomer").claim(&newcomer), soon()) {
            Ok(Acquired::Granted(Granted { lease, .. })) => {
                let _ = newcomer.release(&lease.grant(), soon());
            }
            Ok(_) => {}
            Err(error) => assert!(is_full(&error), "round {round}: {error}"),
        }
        fs::remove_file(place.join("ballast")).unwrap();
        // Whatever the last verb was, all of it or nothing of it happened.
        let known = store.inspect(&key, soon()).unwrap().lease().cloned();
        if let Some((lease, _)) = known {
            let _ = store.release(&lease.grant(), soon()).unwrap();
        }
        let lease = acquire_and_release(&newcomer, &key).unwrap();
        assert!(Some(lease.token) > last);
    }
    let events = store.history(&HistoryQuery::default(), soon()).unwrap();
    let flaws = history::contradictions(&events);
    assert!(flaws.is_empty(), "{flaws:?}");
    let words: String = Connection::open(&path)
        .unwrap()
        .query_row("PRAGMA integrity_check", [], |row| row.get(0))
        .unwrap();
    process::report(&words);
}

fn acquire_and_release(store: &SqliteStore, key: &Key) -> Result<Lease, StoreError> {
    let claim = Ask::new(key, "holder").claim(store);
    match store.acquire(&claim, soon())? {
        Acquired::Granted(Granted { lease, .. }) => {
            let _ = store.release(&lease.grant(), soon())?;
            Ok(lease)
        }
        other => panic!("{other:?}"),
    }
}

/// Writes until there is no space left.
fn fill(path: &Path) {
    let mut file = File::create(path).unwrap();
    for size in [4096, 512, 1] {
        while file.write_all(&vec![0; size]).is_ok() {}
    }
}

#[test]
fn a_full_disk_is_reported_and_leaves_nothing_torn() {
    on_a_small_disk("ours");
}

#[test]
fn a_full_disk_leaves_nothing_torn_in_the_other_programs_database() {
    on_a_small_disk("theirs");
}

fn on_a_small_disk(whose: &str) {
    let unshare = || {
        let mut command = Command::new("unshare");
        command.arg(if rustix::process::geteuid().is_root() {
            "-m"
        } else {
            "-rm"
        });
        command
    };
    let dir = tempfile::tempdir().unwrap();
    let small = r#"mount -t tmpfs -o size=2m,mode=0777 small "$1" && shift && exec "$@""#;
    let mount = |command: &mut Command| {
        command.args(["sh", "-c", small, "sh"]).arg(dir.path());
    };
    let mut probe = unshare();
    mount(&mut probe);
    let possible = probe
        .arg("true")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if !possible.is_ok_and(|status| status.success()) {
        tenure_testkit::left_out("unshare can't mount a small file system here");
        return;
    }
    let mut through = unshare();
    mount(&mut through);
    let job = format!("{whose} {}", dir.path().display());
    let process = Process::start_through(&mut through, "full_disk::worker", &job);
    assert_eq!(process.report(), "ok");
}
