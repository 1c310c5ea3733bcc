//! Shells that know nothing of tenure make, remove and break the same lock folder.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "test code fails by panicking"
)]

use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use tenure_core::{
    Acquired, ErrorKind, EventKind, Evidence, Fenced, HistoryQuery, HolderId, Key, Lease, Reap,
    Reason, Released, Renewed, Store, Verdict, Waited,
};
use tenure_file::mkdir::Mkdir;
use tenure_file::{Disk, FileStore, MkdirStore, Options};
use tenure_host::files::LockProtocol;
use tenure_host::files::atomic::Put;
use tenure_host::files::protocol::{FoundLock, Removal};
use tenure_host::files::sidecar::Sidecar;
use tenure_testkit::Ask;
use tenure_testkit::limit::spawn_until_asleep;

const NOBODY: u32 = i32::MAX as u32;
const TTL: Duration = Duration::from_secs(60);

fn key() -> Key {
    Key::parse("board").unwrap()
}

fn options() -> Options {
    Options {
        disk: Disk::Crash,
        ..Options::default()
    }
}

fn open(dir: &Path) -> MkdirStore {
    MkdirStore::open(&dir.join("storage/lock"), options()).unwrap()
}

fn lock(dir: &Path) -> PathBuf {
    dir.join("storage/lock")
}

/// A lock as a shell makes it.
fn shell_lock(dir: &Path, pid: Option<&str>) {
    fs::create_dir_all(dir.join("storage")).unwrap();
    fs::create_dir(lock(dir)).unwrap();
    if let Some(pid) = pid {
        fs::write(lock(dir).join("pid"), format!("{pid}\n")).unwrap();
        fs::write(lock(dir).join("ts"), "1700000000\n").unwrap();
        fs::write(lock(dir).join("cmd"), "/usr/bin/bilu board --x\n").unwrap();
    }
}

fn verdict(store: &MkdirStore) -> Verdict {
    store.inspect(&key()).unwrap().lease.unwrap().1
}

/// A process that does nothing. It ends with the test, however that ends.
struct Sleeper(Child);

impl Sleeper {
    fn new() -> Self {
        Self(Command::new("sleep").arg("600").spawn().unwrap())
    }

    fn end(&mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Sleeper {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn the_lock_is_a_folder_that_may_not_be_written_with_the_files_of_the_protocol() {
    let dir = tempfile::tempdir().unwrap();
    let store = MkdirStore::open(&lock(dir.path()), Options::default()).unwrap();
    assert!(
        !dir.path().join("storage").exists(),
        "only looked at so far"
    );
    let lease = Ask::new(&key(), "us").granted(&store);
    let read = |name: &str| fs::read_to_string(lock(dir.path()).join(name)).unwrap();
    assert_eq!(read("pid"), format!("{}\n", std::process::id()));
    assert_eq!(read("ts"), format!("{}\n", lease.acquired_at.as_second()));
    assert_eq!(read("cmd"), "us\n");
    assert_eq!(lock(dir.path()).metadata().unwrap().mode() & 0o777, 0o555);
    for entry in fs::read_dir(lock(dir.path())).unwrap() {
        let mode = entry.unwrap().metadata().unwrap().mode();
        assert_eq!(mode & 0o777, 0o444);
    }
    let _ = store.release(&lease.grant()).unwrap();
    let left = fs::read_dir(dir.path().join("storage")).unwrap();
    let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(left, [".lock-tenure"]);
    let again = store.release(&lease.grant()).unwrap();
    assert!(matches!(again, Released::AlreadyGone(None)), "{again:?}");
}

#[test]
fn whoever_comes_by_a_link_meets_the_others() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("storage")).unwrap();
    symlink(dir.path().join("storage"), dir.path().join("link")).unwrap();
    let by_link = MkdirStore::open(&dir.path().join("link/lock"), options()).unwrap();
    let _lease = Ask::new(&key(), "us").granted(&by_link);
    let asked = Ask::new(&key(), "other").once(&open(dir.path()));
    assert!(matches!(asked, Acquired::Busy(_)), "{asked:?}");
}

#[test]
fn nobody_ever_sees_our_lock_without_its_pid() {
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
                // Still at the place, after that: it was there all the while.
                let ours = folder.metadata().unwrap().ino();
                if place.metadata().is_ok_and(|there| there.ino() == ours) {
                    let known = [std::process::id(), NOBODY].map(|pid| format!("{pid}\n"));
                    assert!(known.contains(&pid.unwrap()));
                    seen += 1;
                }
            }
            seen
        });
        for round in 0..600 {
            if round % 2 == 0 {
                // A takeover shows it, too. The dead one comes whole, to be told from ours.
                let dead = dir.path().join("dead");
                fs::create_dir(&dead).unwrap();
                fs::write(dead.join("pid"), format!("{NOBODY}\n")).unwrap();
                fs::create_dir_all(place.parent().unwrap()).unwrap();
                fs::rename(dead, &place).unwrap();
            }
            let lease = Ask::new(&key(), "us").granted(&store);
            let _ = store.release(&lease.grant()).unwrap();
        }
        enough.store(true, Ordering::SeqCst);
        assert!(reader.join().unwrap() > 0);
    });
}

#[test]
fn a_lock_whose_pid_is_dead_is_taken_over_and_a_live_one_is_not() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let mut shell = Sleeper::new();
    shell_lock(dir.path(), Some(&shell.0.id().to_string()));
    let Acquired::Busy(busy) = Ask::new(&key(), "us").once(&store) else {
        panic!("it lives");
    };
    let (theirs, verdict) = busy.lease.unwrap();
    assert_eq!(verdict, Verdict::Alive);
    assert_eq!(theirs.holder.id.as_str(), format!("bilu:{}", shell.0.id()));
    assert_eq!(
        theirs.holder.command.as_deref(),
        Some("/usr/bin/bilu board --x")
    );
    assert_eq!(theirs.acquired_at.as_second(), 1_700_000_000);
    shell.end();
    let (lease, reason) = Ask::new(&key(), "us").granted_for(&store);
    assert_eq!(reason, Reason::ClaimedDead);
    assert!(lock(dir.path()).join("tenure").exists());
    let events = store.history(&HistoryQuery::default()).unwrap();
    let dead = &events[0];
    assert_eq!(dead.kind, EventKind::Dead);
    assert_eq!(
        dead.evidence,
        Some(Evidence::ProcessGone { pid: shell.0.id() })
    );
    assert!(store.release(&lease.grant()).is_ok());
}

#[test]
fn a_lock_that_names_nobody_is_never_taken_over() {
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
        assert!(store.reap(Reap::Free).unwrap().is_empty(), "{pid:?}");
        assert!(lock(dir.path()).is_dir(), "{pid:?}");
        // It was just being made.
        fs::write(lock(dir.path()).join("pid"), format!("{own}\n")).unwrap();
        assert_eq!(verdict(&store), Verdict::Alive, "{pid:?}");
        let admin = HolderId::parse("admin").unwrap();
        let _ = store.force(&key(), &admin, None).unwrap();
        let _lease = Ask::new(&key(), "us").granted(&store);
    }
}

#[test]
fn what_is_no_lock_is_somebodys_work_and_never_touched() {
    let file = |dir: &Path| {
        fs::create_dir_all(dir.join("storage")).unwrap();
        fs::write(lock(dir), "a file").unwrap();
    };
    let work = |dir: &Path| {
        shell_lock(dir, Some(&NOBODY.to_string()));
        fs::write(lock(dir).join("thesis.txt"), "years of work").unwrap();
    };
    let linked = |dir: &Path| {
        fs::create_dir_all(dir.join("storage")).unwrap();
        fs::create_dir(dir.join("elsewhere")).unwrap();
        fs::write(dir.join("elsewhere/pid"), format!("{NOBODY}\n")).unwrap();
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
        assert!(store.reap(Reap::Free).unwrap().is_empty());
        let admin = HolderId::parse("admin").unwrap();
        let error = store.force(&key(), &admin, None).unwrap_err();
        assert_eq!(error.kind, ErrorKind::NotAStore);
        assert!(lock(dir.path()).symlink_metadata().is_ok());
    }
}

/// What a holder finds once somebody else did `deed` to its lock.
fn is_lost_after(deed: impl Fn(&Path), words: &str) {
    let dir = tempfile::tempdir().unwrap();
    let (store, other) = (open(dir.path()), open(dir.path()));
    let lease = Ask::new(&key(), "us").granted(&store);
    deed(dir.path());
    let theirs = lock(dir.path()).metadata().ok().map(|there| there.ino());
    let fenced = store.fence(&key(), lease.token).unwrap();
    assert!(matches!(fenced, Fenced::Stale(_)), "{fenced:?}");
    let renewed = store.renew(&lease.grant(), TTL).unwrap();
    assert!(matches!(renewed, Renewed::Lost(_)), "{renewed:?}");
    let released = other.release(&lease.grant()).unwrap();
    assert!(matches!(released, Released::AlreadyGone(_)), "{released:?}");
    let now = lock(dir.path()).metadata().ok().map(|there| there.ino());
    assert_eq!(theirs, now, "neither put back nor removed");
    let last = store
        .history(&HistoryQuery::default())
        .unwrap()
        .pop()
        .unwrap();
    assert_eq!((last.kind, last.token), (EventKind::Forced, lease.token));
    let Some(Evidence::Forced { reason, .. }) = last.evidence else {
        panic!("{last:?}");
    };
    assert!(reason.unwrap().contains(words));
}

#[test]
fn a_lock_that_was_removed_or_replaced_is_lost_and_that_is_recorded() {
    let remove = |dir: &Path| fs::remove_dir_all(lock(dir)).unwrap();
    is_lost_after(remove, "removing the lock");
    is_lost_after(
        |dir| fs::rename(lock(dir), dir.join("storage/x")).unwrap(),
        "removing",
    );
    let replace = |pid: Option<&'static str>| {
        move |dir: &Path| {
            fs::remove_dir_all(lock(dir)).unwrap();
            shell_lock(dir, pid);
        }
    };
    is_lost_after(replace(Some("1")), "another lock");
    is_lost_after(replace(None), "another lock");
    let file = |dir: &Path| {
        fs::remove_dir_all(lock(dir)).unwrap();
        fs::write(lock(dir), "a file").unwrap();
    };
    is_lost_after(file, "another lock");
}

#[test]
fn what_a_shell_writes_into_our_lock_changes_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    let lease = Ask::new(&key(), "us").granted(&store);
    // As root a shell can: one that was moved aside while it wrote its pid, or releases a lock it lost.
    for name in ["pid", "ts", "cmd"] {
        fs::remove_file(lock(dir.path()).join(name)).unwrap();
    }
    assert!(
        fs::remove_dir(lock(dir.path())).is_err(),
        "ours is still in it"
    );
    fs::write(lock(dir.path()).join("pid"), format!("{NOBODY}\n")).unwrap();
    let asked = Ask::new(&key(), "other").once(&open(dir.path()));
    assert!(matches!(asked, Acquired::Busy(_)), "{asked:?}");
    let released = store.release(&lease.grant()).unwrap();
    assert!(matches!(released, Released::Freed(_)), "{released:?}");
    assert!(!lock(dir.path()).exists());
}

#[test]
fn a_holder_is_told_at_once_when_its_lock_goes() {
    for moved in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path());
        let _lease = Ask::new(&key(), "us").granted(&store);
        let seen = store.inspect(&key()).unwrap().revision;
        let watched = tenure_core::Watched {
            key: &key(),
            seen,
            ahead: vec![],
        };
        // Begin to listen, and nothing happens.
        let waited = store.wait(&watched, Duration::from_millis(50)).unwrap();
        assert_eq!(waited, Waited::TimedOut);
        std::thread::scope(|scope| {
            let wait = spawn_until_asleep(scope, || store.wait(&watched, TTL));
            if moved {
                fs::rename(lock(dir.path()), dir.path().join("storage/x")).unwrap();
            } else {
                fs::remove_dir_all(lock(dir.path())).unwrap();
            }
            assert_eq!(wait.join().unwrap().unwrap(), Waited::Changed);
        });
        assert!(store.inspect(&key()).unwrap().lease.is_none());
    }
}

#[test]
fn a_waiter_is_woken_when_a_shell_releases_or_dies() {
    for dies in [false, true] {
        let dir = tempfile::tempdir().unwrap();
        let store = open(dir.path());
        let mut shell = Sleeper::new();
        shell_lock(dir.path(), Some(&shell.0.id().to_string()));
        let Acquired::Busy(busy) = Ask::new(&key(), "us").waiting().once(&store) else {
            panic!("it lives");
        };
        std::thread::scope(|scope| {
            let wait = spawn_until_asleep(scope, || store.wait(&busy.watch(&key()), TTL));
            if dies {
                shell.end();
            } else {
                fs::remove_dir_all(lock(dir.path())).unwrap();
            }
            assert_eq!(wait.join().unwrap().unwrap(), Waited::Changed);
        });
        let _lease = Ask::new(&key(), "us").granted(&store);
    }
}

#[test]
fn waiters_sleep_through_what_tenure_does() {
    let dir = tempfile::tempdir().unwrap();
    let (store, waiter) = (open(dir.path()), open(dir.path()));
    let first = Ask::new(&key(), "first").granted(&store);
    let Acquired::Busy(busy) = Ask::new(&key(), "waiter").waiting().once(&waiter) else {
        panic!("it is held");
    };
    let place = lock(dir.path());
    let heard =
        tenure_host::files::lock_watch::LockWatch::on(&place, waiter.protocol().listen_for())
            .unwrap();
    let _ = store.release(&first.grant()).unwrap();
    drop(busy);
    assert_eq!(heard.take().unwrap(), [], "a release is a move");
    let lease = Ask::new(&key(), "waiter").granted(&waiter);
    assert_eq!(heard.take().unwrap(), [], "and so is a grant");
    let _ = waiter.release(&lease.grant()).unwrap();
}

/// Somebody does something at a certain touch of the lock.
type Deed = Box<dyn Fn(&Path) + Send + Sync>;

/// A lock that others do something to while it is being taken over.
struct Watched {
    lock: Mkdir,
    touched: AtomicUsize,
    deeds: Vec<(usize, Deed)>,
}

impl Watched {
    fn store(dir: &Path, deeds: Vec<(usize, Deed)>) -> FileStore<Self> {
        let lock = Mkdir::at(&lock(dir), &options()).unwrap();
        let side = Sidecar::for_folder(lock.sidecar());
        let slot = Self {
            lock,
            touched: AtomicUsize::new(0),
            deeds,
        };
        FileStore::with_sidecar(slot, side, options())
    }

    fn touch(&self) {
        let touch = self.touched.fetch_add(1, Ordering::SeqCst) + 1;
        for (_, deed) in self.deeds.iter().filter(|(at, _)| *at == touch) {
            deed(self.lock.path().parent().unwrap());
        }
    }
}

impl LockProtocol for Watched {
    fn key(&self) -> &Key {
        self.lock.key()
    }
    fn path(&self) -> &Path {
        self.lock.path()
    }
    fn read(&self, path: &Path) -> Option<FoundLock> {
        self.touch();
        let found = self.lock.read(path);
        self.touch();
        found
    }
    fn prepare(&self, lease: &Lease, path: &Path) -> io::Result<()> {
        self.lock.prepare(lease, path)
    }
    fn put(&self, from: &Path) -> io::Result<Put> {
        self.lock.put(from)
    }
    fn may_discard(&self, path: &Path) -> bool {
        self.lock.may_discard(path)
    }
    fn discard(&self, path: &Path) -> io::Result<()> {
        self.lock.discard(path)
    }
    fn removal(&self) -> Removal {
        self.lock.removal()
    }
}

#[test]
fn a_dead_lock_that_a_shell_is_taking_apart_is_taken_over_and_not_left_without_a_pid() {
    let mut granted = 0;
    for gone in [&["pid"][..], &["pid", "ts"], &["pid", "ts", "cmd"]] {
        for at in 1..12 {
            let dir = tempfile::tempdir().unwrap();
            shell_lock(dir.path(), Some(&NOBODY.to_string()));
            // Through the folder it has open, wherever that is by now.
            let take_apart: Deed = Box::new(move |storage| {
                for place in [storage.join("lock"), storage.join(".lock-tenure-next")] {
                    if !place.join("tenure").exists() {
                        for name in gone {
                            let _ = fs::remove_file(place.join(name));
                        }
                    }
                }
            });
            let store = Watched::store(dir.path(), vec![(at, take_apart)]);
            match Ask::new(&key(), "us").once(&store) {
                Acquired::Granted { lease, .. } => {
                    granted += 1;
                    let _ = store.release(&lease.grant()).unwrap();
                    assert!(!lock(dir.path()).exists());
                }
                // Before it was ever seen: nobody can know any more.
                Acquired::Busy(_) if at == 1 => {}
                other => panic!("at {at}, {gone:?}: {other:?}"),
            }
        }
    }
    assert!(granted >= 30, "{granted}");
}

/// A shell breaks the dead lock and makes its own in the very moment in which we swap, so that ours is in its
/// place when the shell writes its pid: by path, as shells do.
#[test]
fn a_shell_that_writes_its_pid_into_our_lock_while_its_own_is_swapped_out_gets_that_back() {
    let mut given_back = 0;
    for made in 1..14 {
        for written in made..made + 5 {
            let dir = tempfile::tempdir().unwrap();
            shell_lock(dir.path(), Some(&NOBODY.to_string()));
            let make: Deed = Box::new(|storage| {
                let lock = storage.join("lock");
                if !lock.join("tenure").exists() {
                    let _ = fs::remove_dir_all(&lock);
                    fs::create_dir(lock).unwrap();
                    fs::write(storage.join("made"), "").unwrap();
                }
            });
            let write: Deed = Box::new(|storage| {
                if storage.join("made").exists() {
                    for name in ["pid", "cmd"] {
                        let path = storage.join("lock").join(name);
                        let _ = fs::remove_file(&path);
                        // Another than ours, and alive.
                        let _ = fs::write(path, "1\n");
                    }
                }
            });
            let store = Watched::store(dir.path(), vec![(made, make), (written, write)]);
            let asked = Ask::new(&key(), "us").once(&store);
            if dir.path().join("storage/made").exists() {
                assert!(
                    matches!(asked, Acquired::Busy(_)),
                    "{made}, {written}: {asked:?}"
                );
                given_back += 1;
                assert!(
                    !lock(dir.path()).join("tenure").exists(),
                    "{made}, {written}: ours was left"
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
fn a_new_lock_in_the_place_of_a_dead_one_is_not_taken_for_it_though_it_has_no_pid_yet() {
    // In memory, inode numbers are not used again at once; on ext4 they are.
    let dir = tempfile::tempdir().unwrap();
    let store = open(dir.path());
    for _ in 0..50 {
        shell_lock(dir.path(), Some(&NOBODY.to_string()));
        assert!(matches!(verdict(&store), Verdict::Dead(_)));
        fs::remove_dir_all(lock(dir.path())).unwrap();
        shell_lock(dir.path(), None);
        let asked = Ask::new(&key(), "us").once(&store);
        assert!(matches!(asked, Acquired::Busy(_)), "{asked:?}");
        assert!(matches!(verdict(&store), Verdict::Unknown(_)));
        fs::remove_dir(lock(dir.path())).unwrap();
    }
}
