//! Shells, which do not use tenure, create, remove and break the same lock folder.

use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use protocols::{NO_PROCESS, Protocol, Sleeper, Touched};
use tenure_core::{
    Acquired, ErrorKind, EventKind, Evidence, Fenced, Granted, HistoryQuery, HolderId, Key, Reap,
    Reason, Records, Released, Renewed, Store, Token, Verdict, Waited,
};
use tenure_host::files::LockProtocol as _;
use tenure_lockfile::mkdir::Mkdir;
use tenure_lockfile::{FileStore, MkdirStore, Options};
use tenure_testkit::{Ask, lock_folder, soon};

use crate::protocols;

const TTL: Duration = Duration::from_secs(60);

fn key() -> Key {
    Key::parse("board").unwrap()
}

fn open(dir: &Path) -> MkdirStore {
    <Mkdir as Protocol>::open(dir)
}

fn lock(dir: &Path) -> PathBuf {
    Mkdir::lock_path(dir)
}

/// Creates a lock as a shell does.
fn shell_lock(dir: &Path, pid: Option<&str>) {
    fs::create_dir_all(lock(dir).parent().unwrap()).unwrap();
    fs::create_dir(lock(dir)).unwrap();
    if let Some(pid) = pid {
        fs::write(lock(dir).join("pid"), format!("{pid}\n")).unwrap();
        fs::write(lock(dir).join("ts"), "1700000000\n").unwrap();
        fs::write(lock(dir).join("cmd"), "/usr/bin/bilu board --x\n").unwrap();
    }
}

fn verdict(store: &MkdirStore) -> Verdict {
    store
        .inspect(&key(), soon())
        .unwrap()
        .lease()
        .unwrap()
        .1
        .clone()
}

#[test]
fn the_lock_is_a_read_only_folder_with_the_files_of_the_protocol() {
    let parent = tempfile::tempdir().unwrap();
    let dir = &parent.path().join("storage");
    let store = MkdirStore::open(&lock(dir), Options::default()).unwrap();
    assert!(!dir.exists(), "opening creates nothing");
    let lease = Ask::new(&key(), "us").granted(&store);
    let read = |name: &str| fs::read_to_string(lock(dir).join(name)).unwrap();
    assert_eq!(read("pid"), format!("{}\n", std::process::id()));
    assert_eq!(read("ts"), format!("{}\n", lease.acquired_at.as_second()));
    assert_eq!(read("cmd"), "us\n");
    assert_eq!(lock(dir).metadata().unwrap().mode() & 0o777, 0o555);
    for entry in fs::read_dir(lock(dir)).unwrap() {
        let mode = entry.unwrap().metadata().unwrap().mode();
        assert_eq!(mode & 0o777, 0o444);
    }
    let _ = store.release(&lease.grant(), soon()).unwrap();
    let left = fs::read_dir(dir).unwrap();
    let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, [".lock-tenure"]);
    let again = store.release(&lease.grant(), soon()).unwrap();
    assert!(
        matches!(again, Released::AlreadyGone(ref now) if now.is_empty()),
        "{again:?}"
    );
}

#[test]
fn a_link_to_the_folder_leads_to_the_same_lock() {
    let dir = tempfile::tempdir().unwrap();
    symlink(dir.path(), dir.path().join("link")).unwrap();
    let by_link = <Mkdir as Protocol>::open(&dir.path().join("link"));
    let _lease = Ask::new(&key(), "us").granted(&by_link);
    let asked = Ask::new(&key(), "other").once(&open(dir.path()));
    assert!(matches!(asked, Acquired::Busy(_)), "{asked:?}");
}

#[test]
fn tenures_lock_always_has_its_pid() {
    use std::os::fd::AsRawFd;
    let dir = tempfile::tempdir_in("/dev/shm").unwrap_or_else(|_| tempfile::tempdir().unwrap());
    let store = open(dir.path());
    let enough = AtomicBool::new(false);
    let place = lock(dir.path());
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut seen = 0;
            while !enough.load(Ordering::SeqCst) {
                let Ok(folder) = fs::File::open(&place) else {
                    continue;
                };
                let inside = format!("/proc/self/fd/{}/pid", folder.as_raw_fd());
                let pid = fs::read_to_string(inside);
                // Still at the path: it was there all the time.
                let inode = folder.metadata().unwrap().ino();
                if place.metadata().is_ok_and(|there| there.ino() == inode) {
                    let known = [std::process::id(), NO_PROCESS].map(|pid| format!("{pid}\n"));
                    assert!(known.contains(&pid.unwrap()));
                    seen += 1;
                }
            }
            seen
        });
        for round in 0..600 {
            if round % 2 == 0 {
                // Test a takeover as well. The dead lock appears complete.
                let dead = dir.path().join("dead");
                fs::create_dir(&dead).unwrap();
                fs::write(dead.join("pid"), format!("{NO_PROCESS}\n")).unwrap();
                fs::create_dir_all(place.parent().unwrap()).unwrap();
                fs::rename(dead, &place).unwrap();
            }
            let lease = Ask::new(&key(), "us").granted(&store);
            let _ = store.release(&lease.grant(), soon()).unwrap();
        }
        enough.store(true, Ordering::SeqCst);
        assert!(reader.join().unwrap() > 0);
    });
}

#[test]
fn a_lock_whose_pid_is_dead_is_taken_over_and_a_live_one_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let mut shell = Sleeper::start();
    shell_lock(dir.path(), Some(&shell.id().to_string()));
    let Acquired::Busy(busy) = Ask::new(&key(), "us").once(&store) else {
        panic!("the holder is alive");
    };
    let (lease, verdict) = busy.lease().cloned().unwrap();
    assert_eq!(verdict, Verdict::Alive);
    assert_eq!(lease.holder.id.as_str(), format!("bilu:{}", shell.id()));
    assert_eq!(
        lease.holder.command.as_deref(),
        Some("/usr/bin/bilu board --x")
    );
    assert_eq!(lease.acquired_at.as_second(), 1_700_000_000);
    shell.end();
    let (lease, reason) = Ask::new(&key(), "us").granted_for(&store);
    assert_eq!(reason, Reason::ClaimedDead);
    assert!(lock(dir.path()).join("tenure").exists());
    let events = store.history(&HistoryQuery::default(), soon()).unwrap();
    let dead = &events[0];
    assert_eq!(dead.kind, EventKind::Dead);
    assert_eq!(
        dead.evidence,
        Some(Evidence::ProcessGone { pid: shell.id() })
    );
    assert!(store.release(&lease.grant(), soon()).is_ok());
}

#[test]
fn a_lock_without_a_valid_pid_is_never_taken_over() {
    let own = std::process::id();
    for pid in [
        None,
        Some(""),
        Some("x"),
        Some("0"),
        Some("-1"),
        Some("99999999999999999999"),
        Some("12 34"),
    ] {
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path());
        shell_lock(dir.path(), pid);
        let asked = Ask::new(&key(), "us").once(&store);
        assert!(matches!(asked, Acquired::Busy(_)), "{pid:?}: {asked:?}");
        assert!(matches!(verdict(&store), Verdict::Unknown(_)), "{pid:?}");
        assert!(
            store.reap(Reap::Free, soon()).unwrap().is_empty(),
            "{pid:?}"
        );
        assert!(lock(dir.path()).is_dir(), "{pid:?}");
        // The shell goes on and writes its pid.
        fs::write(lock(dir.path()).join("pid"), format!("{own}\n")).unwrap();
        assert_eq!(verdict(&store), Verdict::Alive, "{pid:?}");
        let admin = HolderId::parse("admin").unwrap();
        let _ = store.force(&key(), None, &admin, None, soon()).unwrap();
        let _lease = Ask::new(&key(), "us").granted(&store);
    }
}

#[test]
fn anything_but_a_lock_is_malformed_and_never_removed() {
    let file = |dir: &Path| {
        fs::write(lock(dir), "a file").unwrap();
    };
    let work = |dir: &Path| {
        shell_lock(dir, Some(&NO_PROCESS.to_string()));
        fs::write(lock(dir).join("thesis.txt"), "years of work").unwrap();
    };
    let linked = |dir: &Path| {
        fs::create_dir(dir.join("elsewhere")).unwrap();
        fs::write(dir.join("elsewhere/pid"), format!("{NO_PROCESS}\n")).unwrap();
        symlink(dir.join("elsewhere"), lock(dir)).unwrap();
    };
    let cases: [&dyn Fn(&Path); 3] = [&file, &work, &linked];
    for make in cases {
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path());
        make(dir.path());
        let asked = Ask::new(&key(), "us").once(&store);
        assert!(matches!(asked, Acquired::Busy(_)), "{asked:?}");
        assert_eq!(verdict(&store), Verdict::Malformed);
        assert!(store.reap(Reap::Free, soon()).unwrap().is_empty());
        let admin = HolderId::parse("admin").unwrap();
        let error = store.force(&key(), None, &admin, None, soon()).unwrap_err();
        assert_eq!(error.kind, ErrorKind::NotAStore);
        assert!(lock(dir.path()).symlink_metadata().is_ok());
    }
}

/// The holder loses its lease after another program did `action` to the lock.
fn is_lost_after(action: impl Fn(&Path), wanted: &str) {
    let dir = tempfile::tempdir().unwrap();
    let (store, other) = (open(dir.path()), open(dir.path()));
    let lease = Ask::new(&key(), "us").granted(&store);
    action(dir.path());
    let before = lock(dir.path()).metadata().ok().map(|there| there.ino());
    let fenced = store.fence(&key(), lease.token, soon()).unwrap();
    assert!(matches!(fenced, Fenced::Stale(_)), "{fenced:?}");
    let renewed = store.renew(&lease.grant(), TTL, soon()).unwrap();
    assert!(matches!(renewed, Renewed::Lost(_)), "{renewed:?}");
    let released = other.release(&lease.grant(), soon()).unwrap();
    assert!(matches!(released, Released::AlreadyGone(_)), "{released:?}");
    let now = lock(dir.path()).metadata().ok().map(|there| there.ino());
    assert_eq!(before, now, "neither put back nor removed");
    let last = store
        .history(&HistoryQuery::default(), soon())
        .unwrap()
        .pop()
        .unwrap();
    assert_eq!((last.kind, last.token), (EventKind::Forced, lease.token));
    let Some(Evidence::Forced { reason, .. }) = last.evidence else {
        panic!("{last:?}");
    };
    assert!(reason.unwrap().contains(wanted));
}

#[test]
fn a_lock_that_was_removed_or_replaced_is_lost_and_recorded() {
    let remove = |dir: &Path| lock_folder::remove(&lock(dir)).unwrap();
    is_lost_after(remove, "removing the lock");
    is_lost_after(
        |dir| fs::rename(lock(dir), dir.join("x")).unwrap(),
        "removing",
    );
    let replace = |pid: Option<&'static str>| {
        move |dir: &Path| {
            lock_folder::remove(&lock(dir)).unwrap();
            shell_lock(dir, pid);
        }
    };
    is_lost_after(replace(Some("1")), "another lock");
    is_lost_after(replace(None), "another lock");
    let file = |dir: &Path| {
        lock_folder::remove(&lock(dir)).unwrap();
        fs::write(lock(dir), "a file").unwrap();
    };
    is_lost_after(file, "another lock");
}

#[test]
fn what_a_shell_writes_into_tenures_lock_has_no_effect() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let lease = Ask::new(&key(), "us").granted(&store);
    // As root can: a shell whose lock was swapped out writes its pid, or releases a lock it has lost.
    lock_folder::unprotect(&lock(dir.path())).unwrap();
    for name in ["pid", "ts", "cmd"] {
        fs::remove_file(lock(dir.path()).join(name)).unwrap();
    }
    assert!(
        fs::remove_dir(lock(dir.path())).is_err(),
        "the file `tenure` is still in it"
    );
    fs::write(lock(dir.path()).join("pid"), format!("{NO_PROCESS}\n")).unwrap();
    let asked = Ask::new(&key(), "other").once(&open(dir.path()));
    assert!(matches!(asked, Acquired::Busy(_)), "{asked:?}");
    let released = store.release(&lease.grant(), soon()).unwrap();
    assert!(matches!(released, Released::Freed(_)), "{released:?}");
    assert!(!lock(dir.path()).exists());
}

#[test]
fn a_holder_is_woken_when_its_lock_is_removed() {
    for moved in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path());
        let _lease = Ask::new(&key(), "us").granted(&store);
        let seen = store.inspect(&key(), soon()).unwrap().revision;
        let watched = tenure_core::Watched {
            key: &key(),
            seen,
            held: None,
            others: Vec::new(),
            ahead: vec![],
        };
        // The first wait starts the listener.
        let waited = store.wait(&watched, Duration::from_millis(50)).unwrap();
        assert_eq!(waited, Waited::TimedOut);
        std::thread::scope(|scope| {
            let wait = scope.spawn(|| store.wait(&watched, TTL));
            std::thread::sleep(Duration::from_millis(20));
            if moved {
                fs::rename(lock(dir.path()), dir.path().join("x")).unwrap();
            } else {
                lock_folder::remove(&lock(dir.path())).unwrap();
            }
            assert_eq!(wait.join().unwrap().unwrap(), Waited::Changed);
        });
        assert!(store.inspect(&key(), soon()).unwrap().lease().is_none());
    }
}

#[test]
fn tenures_own_changes_do_not_wake_waiters() {
    let dir = tempfile::tempdir().unwrap();
    let (store, waiter) = (open(dir.path()), open(dir.path()));
    let first = Ask::new(&key(), "first").granted(&store);
    let Acquired::Busy(busy) = Ask::new(&key(), "waiter").waiting().once(&waiter) else {
        panic!("it is held");
    };
    let place = lock(dir.path());
    let changes =
        tenure_host::files::lock_watch::LockWatch::on(&place, waiter.protocol().listen_for())
            .unwrap();
    let _ = store.release(&first.grant(), soon()).unwrap();
    drop(busy);
    assert_eq!(changes.take().unwrap(), [], "a release is a rename");
    let lease = Ask::new(&key(), "waiter").granted(&waiter);
    assert_eq!(changes.take().unwrap(), [], "so is a grant");
    let _ = waiter.release(&lease.grant(), soon()).unwrap();
}

/// What a shell does, given the folder of the lock.
type Action = Box<dyn Fn(&Path) + Send + Sync>;

/// A store in which a shell acts before certain accesses to the lock.
fn store_with(dir: &Path, actions: Vec<(usize, Action)>) -> FileStore<Touched<Mkdir>> {
    let folder = dir.to_owned();
    Touched::store(dir, &Arc::new(AtomicUsize::new(0)), move |touch| {
        for (_, act) in actions.iter().filter(|(at, _)| *at == touch) {
            act(&folder);
        }
    })
}

#[test]
fn a_dead_lock_that_a_shell_is_deleting_is_taken_over() {
    let mut granted = 0;
    for gone in [&["pid"][..], &["pid", "ts"], &["pid", "ts", "cmd"]] {
        for at in 1..12 {
            let dir = tempfile::tempdir().unwrap();
            shell_lock(dir.path(), Some(&NO_PROCESS.to_string()));
            // The shell has the folder open, wherever it was renamed to.
            let delete: Action = Box::new(move |dir| {
                for lock in [dir.join("lock"), dir.join(".lock-tenure-next")] {
                    if !lock.join("tenure").exists() {
                        for name in gone {
                            let _ = fs::remove_file(lock.join(name));
                        }
                    }
                }
            });
            let store = store_with(dir.path(), vec![(at, delete)]);
            match Ask::new(&key(), "us").once(&store) {
                Acquired::Granted(Granted { lease, .. }) => {
                    granted += 1;
                    let _ = store.release(&lease.grant(), soon()).unwrap();
                    assert!(!lock(dir.path()).exists());
                }
                // Before the store first read it, so nothing shows that it was dead.
                Acquired::Busy(_) if at == 1 => {}
                other => panic!("at {at}, {gone:?}: {other:?}"),
            }
        }
    }
    assert!(granted >= 30, "{granted}");
}

/// A shell breaks the dead lock and creates its own just before the swap. It then writes its pid by
/// path, and so into tenure's lock.
#[test]
fn a_shell_whose_new_lock_was_swapped_out_gets_it_back() {
    let mut given_back = 0;
    for made in 1..14 {
        for written in made..made + 5 {
            let dir = tempfile::tempdir().unwrap();
            shell_lock(dir.path(), Some(&NO_PROCESS.to_string()));
            let make: Action = Box::new(|dir| {
                let lock = dir.join("lock");
                if !lock.join("tenure").exists() {
                    let _ = fs::remove_dir_all(&lock);
                    fs::create_dir(lock).unwrap();
                    fs::write(dir.join("made"), "").unwrap();
                }
            });
            let write: Action = Box::new(|dir| {
                if dir.join("made").exists() {
                    for name in ["pid", "cmd"] {
                        let path = dir.join("lock").join(name);
                        let _ = fs::remove_file(&path);
                        // A live process other than this one.
                        let _ = fs::write(path, "1\n");
                    }
                }
            });
            let store = store_with(dir.path(), vec![(made, make), (written, write)]);
            let asked = Ask::new(&key(), "us").once(&store);
            if dir.path().join("made").exists() {
                assert!(
                    matches!(asked, Acquired::Busy(_)),
                    "{made}, {written}: {asked:?}"
                );
                given_back += 1;
                assert!(
                    !lock(dir.path()).join("tenure").exists(),
                    "{made}, {written}: the lock of tenure was left"
                );
                let state = verdict(&open(dir.path()));
                assert!(
                    matches!(state, Verdict::Alive | Verdict::Unknown(_)),
                    "{made}, {written}: {state}"
                );
            }
        }
    }
    assert!(given_back > 20, "{given_back}");
}

#[test]
fn a_new_lock_without_a_pid_is_not_mistaken_for_the_dead_one_before() {
    // Not in memory: ext4 reuses an inode number at once.
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    for _ in 0..50 {
        shell_lock(dir.path(), Some(&NO_PROCESS.to_string()));
        assert!(matches!(verdict(&store), Verdict::Dead(_)));
        fs::remove_dir_all(lock(dir.path())).unwrap();
        shell_lock(dir.path(), None);
        let asked = Ask::new(&key(), "us").once(&store);
        assert!(matches!(asked, Acquired::Busy(_)), "{asked:?}");
        assert!(matches!(verdict(&store), Verdict::Unknown(_)));
        fs::remove_dir(lock(dir.path())).unwrap();
    }
}

#[test]
fn a_lock_folder_with_an_absurd_token_is_malformed() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let lease = Ask::new(&key(), "us").granted(&store);
    lock_folder::unprotect(&lock(dir.path())).unwrap();
    let file = lock(dir.path()).join("tenure");
    let json = fs::read_to_string(&file).unwrap();
    let absurd = json.replace(
        &format!("\"token\":{}", lease.token),
        &format!("\"token\":{}", u64::MAX),
    );
    assert_ne!(absurd, json);
    fs::remove_file(&file).unwrap();
    fs::write(&file, absurd).unwrap();
    let flaw = store.found().unwrap().flaw.unwrap();
    assert!(flaw.contains("its token is 18446744073709551615"), "{flaw}");
    assert_eq!(store.found().unwrap().lease.token, Token::NONE);
}
