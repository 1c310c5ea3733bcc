//! G4, G5, G10 for the mkdir lock: every step is cut off at every point at which it touches the lock,
//! another program puts a live lock in the place at every point, and both. The other program is as rude
//! as root can be: it removes whatever is there, ours too.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code fails by panicking"
)]

use std::fs;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tenure_core::{
    Acquired, EventKind, HistoryQuery, HolderId, Key, Lease, Reap, Store, Token, Verdict,
};
use tenure_file::mkdir::Mkdir;
use tenure_file::{Disk, FileStore, MkdirStore, Options};
use tenure_host::files::LockProtocol;
use tenure_host::files::atomic::Put;
use tenure_host::files::protocol::{FoundLock, Removal};
use tenure_host::files::sidecar::Sidecar;
use tenure_testkit::{Ask, history};

fn options() -> Options {
    Options {
        disk: Disk::Crash,
        ..Options::default()
    }
}

fn open(dir: &Path) -> MkdirStore {
    MkdirStore::open(&dir.join("lock"), options()).unwrap()
}

fn key() -> Key {
    Key::parse("board").unwrap()
}

/// As a shell would that breaks locks: what is there is removed, and another one made.
fn put(dir: &Path, cmd: &str, pid: u32) {
    let lock = dir.join("lock");
    while fs::create_dir(&lock).is_err() {
        let _ = fs::remove_dir_all(&lock);
    }
    fs::write(lock.join("pid"), format!("{pid}\n")).unwrap();
    fs::write(lock.join("cmd"), format!("{cmd}\n")).unwrap();
}

/// A pid that no process has.
const NOBODY: u32 = i32::MAX as u32;

/// At which touch what happens; 0 is never.
#[derive(Debug, Clone, Copy)]
struct Fate {
    dies: usize,
    intruder: usize,
    /// When another intruder replaces the first.
    second: usize,
    /// Somebody removes the lock of ours that was left at the place in the end.
    swept: bool,
}

const UNTOUCHED: Fate = Fate {
    dies: 0,
    intruder: 0,
    second: 0,
    swept: false,
};

/// A lock that counts how often it is touched, and does as fate wants.
struct Fated {
    lock: Mkdir,
    touched: Arc<AtomicUsize>,
    fate: Fate,
    dir: PathBuf,
}

impl Fated {
    fn touch(&self) {
        let touch = self.touched.fetch_add(1, Ordering::SeqCst) + 1;
        if touch == self.fate.intruder {
            put(&self.dir, "intruder", std::process::id());
        }
        if touch == self.fate.second {
            put(&self.dir, "second", std::process::id());
        }
        if touch == self.fate.dies {
            // Nothing is cleaned up by this but the guard, and that the kernel would do as well.
            std::panic::resume_unwind(Box::new("killed"));
        }
    }
}

impl LockProtocol for Fated {
    fn key(&self) -> &Key {
        self.lock.key()
    }
    fn path(&self) -> &Path {
        self.lock.path()
    }
    fn read(&self, path: &Path) -> Option<FoundLock> {
        self.touch();
        let found = self.lock.read(path);
        // Between the look and the deed.
        self.touch();
        found
    }
    fn prepare(&self, lease: &Lease, path: &Path) -> io::Result<()> {
        self.touch();
        self.lock.prepare(lease, path)
    }
    fn put(&self, from: &Path) -> io::Result<Put> {
        self.touch();
        self.lock.put(from)
    }
    fn may_discard(&self, path: &Path) -> bool {
        self.lock.may_discard(path)
    }
    fn discard(&self, path: &Path) -> io::Result<()> {
        self.touch();
        self.lock.discard(path)
    }
    fn removal(&self) -> Removal {
        self.lock.removal()
    }
}

/// Who stands at the place before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Before {
    Nobody,
    /// Another tool's, whose process is gone.
    StaleTool,
    /// Ours, and its process goes with the step.
    Ours,
    /// Ours, whose file another tool removed.
    OursRemoved,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Deed {
    Acquire,
    Release,
    Reap,
    Force,
    Renew,
}

/// Does it under this fate; `false` once it was over before fate struck.
fn play(before: Before, deed: Deed, fate: Fate) -> bool {
    let dir = tempfile::tempdir().unwrap();
    let dir = dir.path();
    if before == Before::StaleTool {
        put(dir, "stale", NOBODY);
    }
    let touched = Arc::new(AtomicUsize::new(0));
    // The first holder is granted under no fate, in the store that then meets it.
    let store = |fate| {
        let lock = Fated {
            lock: Mkdir::at(&dir.join("lock"), &options()).unwrap(),
            touched: Arc::clone(&touched),
            fate,
            dir: dir.canonicalize().unwrap(),
        };
        let side = Sidecar::for_folder(lock.lock.sidecar());
        FileStore::with_sidecar(lock, side, options())
    };
    let first = store(UNTOUCHED);
    let held = matches!(before, Before::Ours | Before::OursRemoved)
        .then(|| Ask::new(&key(), "first").granted(&first));
    let under_fate = store(fate);
    if before == Before::OursRemoved {
        fs::remove_dir_all(dir.join("lock")).unwrap();
    }
    touched.store(0, Ordering::SeqCst);
    let name = HolderId::parse("admin").unwrap();
    let done = catch_unwind(AssertUnwindSafe(|| match deed {
        Deed::Acquire => match Ask::new(&key(), "second").once(&under_fate) {
            Acquired::Granted { lease, .. } => Some(lease.token),
            _ => None,
        },
        Deed::Release => {
            let _ = under_fate.release(&held.as_ref().unwrap().grant()).unwrap();
            None
        }
        Deed::Renew => {
            let grant = held.as_ref().unwrap().grant();
            let _ = under_fate
                .renew(&grant, std::time::Duration::from_secs(1))
                .unwrap();
            None
        }
        Deed::Reap => {
            under_fate.reap(Reap::Free).unwrap();
            None
        }
        Deed::Force => {
            let _ = under_fate.force(&key(), &name, None).unwrap();
            None
        }
    }));
    let touches = touched.load(Ordering::SeqCst);
    let struck = touches >= fate.dies.max(fate.intruder).max(fate.second);
    let came = |at: usize, name: &'static str| (at > 0 && touches >= at).then_some(name);
    let intruder = came(fate.second, "second").or(came(fate.intruder, "intruder"));
    let told = format!("{before:?}, {deed:?}, {fate:?}, {done:?}");
    // Every process of ours is gone: their lives are left behind, and nobody locks them.
    let lives = fs::read_dir(dir.join(".lock-tenure/live"));
    let lives: Vec<_> = lives.map_or(vec![], |lives| {
        lives.map(|life| life.unwrap().path()).collect()
    });
    drop((first, under_fate));
    for life in lives {
        fs::write(life, "").unwrap();
    }
    let place = dir.join("lock");
    if fate.swept && place.join("tenure").exists() {
        fs::remove_dir_all(place).unwrap();
    }
    judge(dir, &told, intruder);
    struck
}

fn judge(dir: &Path, told: &str, intruder: Option<&str>) {
    let store = open(dir);
    let mut newest = Token(0);
    if let Some(intruder) = intruder {
        // It is alive, and whatever came before or after, it is still there, and counts.
        let (lease, verdict) = store.inspect(&key()).unwrap().lease.expect(told);
        let us = std::process::id();
        assert_eq!(
            lease.holder.id.as_str(),
            format!("{intruder}:{us}"),
            "{told}"
        );
        assert_eq!(verdict, Verdict::Alive, "{told}");
        let cmd = fs::read_to_string(dir.join("lock/cmd")).expect(told);
        assert_eq!(cmd, format!("{intruder}\n"), "{told}");
        assert!(!dir.join("lock/tenure").exists(), "{told}");
        let asked = Ask::new(&key(), "next").once(&store);
        assert!(matches!(asked, Acquired::Busy(_)), "{told}: {asked:?}");
        assert!(store.reap(Reap::Free).unwrap().is_empty(), "{told}");
        fs::remove_dir_all(dir.join("lock")).unwrap();
    } else {
        let events = store.history(&HistoryQuery::default()).unwrap();
        // What another tool held was never granted here.
        let ours: Vec<_> = events
            .iter()
            .filter(|event| event.token != Token::NONE)
            .cloned()
            .collect();
        let claimed = |event: &&tenure_core::Event| event.kind == EventKind::Granted;
        newest = ours
            .iter()
            .filter(claimed)
            .map(|event| event.token)
            .max()
            .unwrap_or(newest);
        if ours.len() == events.len() {
            let flaws = history::flaws(&ours);
            assert!(flaws.is_empty(), "{told}: {flaws:?}");
        }
    }
    let lease = Ask::new(&key(), "next").granted(&store);
    assert!(lease.token > newest, "{told}");
    assert!(lease.token > Token::NONE, "{told}");
    let _ = store.release(&lease.grant()).unwrap();
    let names = fs::read_dir(dir).unwrap();
    let names: Vec<_> = names.map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, [".lock-tenure"], "{told}");
}

fn scenes() -> Vec<(Before, Deed)> {
    use Before::{Nobody, Ours, OursRemoved, StaleTool};
    use Deed::{Acquire, Force, Reap, Release, Renew};
    vec![
        (Nobody, Acquire),
        (StaleTool, Acquire),
        (StaleTool, Reap),
        (StaleTool, Force),
        (Ours, Release),
        (Ours, Force),
        (Ours, Renew),
        (OursRemoved, Renew),
        (OursRemoved, Release),
    ]
}

#[test]
fn a_step_that_is_cut_off_at_any_touch_is_finished_or_dropped() {
    let mut played = 0;
    for (before, deed) in scenes() {
        for dies in 1.. {
            played += 1;
            let fate = Fate { dies, ..UNTOUCHED };
            if !play(before, deed, fate) {
                break;
            }
        }
    }
    assert!(played > 40, "only {played}");
}

#[test]
fn a_live_lock_that_appears_at_any_touch_is_left_alone_whoever_is_cut_off_then() {
    let mut played = 0;
    for (before, deed) in scenes() {
        // Force means whatever is there.
        if deed == Deed::Force {
            continue;
        }
        for intruder in 1.. {
            let alone = Fate {
                intruder,
                ..UNTOUCHED
            };
            if !play(before, deed, alone) {
                break;
            }
            for dies in intruder.. {
                played += 1;
                let fate = Fate { dies, ..alone };
                let swept = Fate {
                    swept: true,
                    ..fate
                };
                if !play(before, deed, fate) || !play(before, deed, swept) {
                    break;
                }
            }
            for second in intruder + 1.. {
                played += 1;
                let fate = Fate { second, ..alone };
                if !play(before, deed, fate) {
                    break;
                }
            }
        }
    }
    assert!(played > 100, "only {played}");
}
