//! Every kind of store, opened read-only through the library: the same answers, nothing is written.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    reason = "test code fails by panicking"
)]

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use tempfile::TempDir;
use tenure::store::{ErrorKind, HistoryQuery, HolderId, Key, call_deadline};
use tenure::{Acquired, Config, Error, StoreUrl, Tenure};
use tenure_core::{Claim, Patience, Priority, Reap, Watched, Withdrawal};
use tenure_ledger::{Appended, Dialect, Ledger, NewEvent};
use tenure_testkit::limit::within_limit;
use tenure_testkit::{Process, process};

/// A store in a folder of its own.
struct Place {
    dir: TempDir,
    url: StoreUrl,
    key: Key,
}

impl Place {
    fn new(kind: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).unwrap();
        let (name, key) = match kind {
            "sqlite" => ("tenure.db", "build"),
            "exclusive" => ("", "database"),
            "mkdir" => ("lock", "board"),
            "steroids" => ("steroids.db", "task:8f3842e9-1e5a-4520-9de2-a766262ea768"),
            _ => ("", "node:1.2"),
        };
        if kind == "ledger" {
            let options = tenure_ledger::Options::default();
            let ledger = Ledger::init(dir.path(), Dialect::Documented, options).unwrap();
            let event = NewEvent::parse(r#"{"type":"node_created","node_id":"1.2"}"#).unwrap();
            let appended = ledger.append(&event).unwrap();
            assert!(matches!(appended, Appended::Done { .. }));
        }
        if kind == "steroids" {
            let sample = Path::new(env!("CARGO_MANIFEST_DIR"))
                .join("../stores/sqlite/tests/fixtures/steroids.db");
            fs::copy(sample, dir.path().join(name)).unwrap();
        }
        let url = format!("{kind}:{}", dir.path().join(name).display());
        let url = StoreUrl::parse(&url).unwrap();
        let key = Key::parse(key).unwrap();
        Self { dir, url, key }
    }

    fn open(&self) -> Tenure {
        Tenure::open_with(&self.url, Config::default()).unwrap()
    }

    fn read_only(&self) -> Tenure {
        Tenure::open_read_only(&self.url, Config::default()).unwrap()
    }

    /// Starts a process that holds the key.
    fn held(&self) -> Process {
        let holder = Process::start("worker", &format!("hold {} {}", self.key, self.url));
        assert_eq!(holder.report(), "held");
        holder
    }

    /// Waits until the helper of a killed holder has made its lock folder removable.
    fn settled(&self) {
        let lock = self.dir.path().join("lock");
        if self.url.to_string().starts_with("mkdir:") {
            within_limit("the lock folder is removable", || {
                fs::metadata(&lock).unwrap().mode() & 0o200 != 0
            });
        }
    }

    /// Names, inodes, modes, sizes and times of everything in the folder.
    fn listing(&self) -> BTreeMap<PathBuf, String> {
        let mut all = BTreeMap::new();
        list(self.dir.path(), &mut all);
        all
    }
}

fn list(path: &Path, all: &mut BTreeMap<PathBuf, String>) {
    let at = fs::symlink_metadata(path).unwrap();
    let (inode, mode, size) = (at.ino(), at.mode(), at.size());
    let modified = (at.mtime(), at.mtime_nsec());
    let line = format!("{inode} {mode:o} {size} {modified:?}");
    all.insert(path.to_owned(), line);
    if at.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            list(&entry.unwrap().path(), all);
        }
    }
}

/// What every verb that looks says, without the revision.
fn answers(tenure: &Tenure, key: &Key) -> String {
    let store = tenure.store();
    let known = store.inspect(key, call_deadline()).unwrap();
    let all = store.list(call_deadline()).unwrap();
    let all: Vec<_> = all
        .iter()
        .map(|known| (&known.key, &known.leases, &known.queue))
        .collect();
    let token = known.lease().unwrap().0.token;
    let fenced = store.fence(key, token, call_deadline()).unwrap();
    let reaped = store.reap(Reap::DryRun, call_deadline()).unwrap();
    let history = store
        .history(&HistoryQuery::default(), call_deadline())
        .unwrap();
    let (leases, queue) = (&known.leases, &known.queue);
    format!("{leases:?}|{queue:?}|{all:?}|{fenced:?}|{reaped:?}|{history:?}")
}

/// Not a test: holds a key, or looks at a store.
#[test]
fn worker() {
    let Some(job) = process::job() else { return };
    let mut words = job.splitn(3, ' ');
    let mut word = || words.next().unwrap();
    let (what, key, url) = (word(), Key::parse(word()).unwrap(), word());
    let url = StoreUrl::parse(url).unwrap();
    if what == "look" {
        match Tenure::open_read_only(&url, Config::default()) {
            Ok(tenure) => process::report(&answers(&tenure, &key)),
            Err(error) => process::report(&format!("{:?}: {error}", error.kind)),
        }
        return;
    }
    let tenure = Tenure::open_with(&url, Config::default()).unwrap();
    let ask = tenure.ask(key.as_str()).unwrap().named("holder").unwrap();
    let Acquired::Granted(_guard) = ask.acquire().unwrap() else {
        panic!("it is free");
    };
    process::report("held");
    loop {
        std::thread::park();
    }
}

const KINDS: [&str; 5] = ["sqlite", "steroids", "exclusive", "mkdir", "ledger"];

#[test]
fn looking_gives_the_same_answers_and_changes_nothing() {
    for kind in KINDS {
        let place = Place::new(kind);
        let mut holder = place.held();
        // Alive, then dead.
        for _ in 0..2 {
            let expected = answers(&place.open(), &place.key);
            let before = place.listing();
            let tenure = place.read_only();
            assert_eq!(answers(&tenure, &place.key), expected, "{kind}");
            assert_eq!(answers(&tenure, &place.key), expected, "{kind}");
            assert_eq!(place.listing(), before, "{kind}");
            holder.kill();
            place.settled();
        }
        // A takeover by a writer is seen.
        let tenure = place.read_only();
        let writer = place.open();
        let ask = writer.ask(place.key.as_str()).unwrap();
        let Acquired::Granted(guard) = ask.named("next").unwrap().acquire().unwrap() else {
            panic!("{kind}: the holder is dead");
        };
        let seen = tenure.store().inspect(&place.key, call_deadline()).unwrap();
        assert_eq!(seen.lease().unwrap().0.token, guard.token(), "{kind}");
    }
}

#[test]
fn every_verb_that_writes_is_refused_and_changes_nothing() {
    for kind in KINDS {
        let place = Place::new(kind);
        let _holder = place.held();
        let before = place.listing();
        let tenure = place.read_only();
        let (store, key) = (tenure.store(), &place.key);
        let known = store.inspect(key, call_deadline()).unwrap();
        let lease = &known.lease().unwrap().0;
        let grant = lease.grant();
        let by = HolderId::parse("d").unwrap();
        let watched = Watched {
            key,
            seen: known.revision,
            held: None,
            others: Vec::new(),
            ahead: Vec::new(),
        };
        let claim = Claim {
            key: key.clone(),
            mode: lease.mode.clone(),
            holder: lease.holder.clone(),
            asker: lease.holder.binding.clone(),
            named: true,
            ttl: lease.ttl,
            priority: Priority::default(),
            patience: Patience::Queue,
            within: Vec::new(),
        };
        let answers = [
            store.this_process().map(|_| ()),
            store.renew(&grant, lease.ttl, call_deadline()).map(|_| ()),
            store.release(&grant, call_deadline()).map(|_| ()),
            store.withdraw(&claim, Withdrawal::Leave, call_deadline()),
            store.withdraw(&claim, Withdrawal::Park, call_deadline()),
            store
                .force(key, None, &by, None, call_deadline())
                .map(|_| ()),
            store.reap(Reap::Free, call_deadline()).map(|_| ()),
            store
                .wait(&watched, std::time::Duration::from_secs(60))
                .map(|_| ()),
        ];
        for answer in answers {
            let error = answer.unwrap_err();
            assert_eq!(error.kind, ErrorKind::ReadOnly, "{kind}: {error}");
            let words = error.to_string();
            let refused = "was opened read-only: nothing was changed";
            assert!(words.contains(refused), "{kind}: {words}");
        }
        match tenure.ask(key.as_str()).unwrap().acquire() {
            Err(Error::Store(error)) => assert_eq!(error.kind, ErrorKind::ReadOnly, "{kind}"),
            _ => panic!("{kind}: a claim must be refused"),
        }
        assert_eq!(place.listing(), before, "{kind}");
    }
}

#[test]
fn an_idle_store_stays_as_it_is() {
    for kind in KINDS {
        let place = Place::new(kind);
        // A database has to be there. The sidecar of a lock need not.
        if kind == "sqlite" {
            place.open();
        }
        let before = place.listing();
        let tenure = place.read_only();
        let store = tenure.store();
        let known = store.inspect(&place.key, call_deadline()).unwrap();
        assert!(known.is_idle(), "{kind}");
        // The other program has locked a task and a section of its own.
        let others = if kind == "steroids" { 2 } else { 0 };
        let listed = store.list(call_deadline()).unwrap();
        assert_eq!(listed.len(), others, "{kind}");
        let query = HistoryQuery::default();
        let history = store.history(&query, call_deadline()).unwrap();
        assert!(history.is_empty(), "{kind}");
        let error = store.reap(Reap::Free, call_deadline()).unwrap_err();
        assert_eq!(error.kind, ErrorKind::ReadOnly, "{kind}");
        assert_eq!(place.listing(), before, "{kind}");
    }
}

#[test]
fn without_a_sidecar_the_lock_itself_is_shown() {
    for kind in ["exclusive", "mkdir", "ledger"] {
        let place = Place::new(kind);
        let mut holder = place.held();
        holder.kill_and_leave();
        place.settled();
        for entry in fs::read_dir(place.dir.path()).unwrap() {
            let path = entry.unwrap().path();
            let name = path.file_name().unwrap().to_string_lossy().into_owned();
            if name.contains("tenure") {
                fs::remove_dir_all(&path).unwrap();
            }
        }
        let before = place.listing();
        let tenure = place.read_only();
        let known = tenure.store().inspect(&place.key, call_deadline()).unwrap();
        assert_eq!(known.leases.len(), 1, "{kind}");
        assert_eq!(place.listing(), before, "{kind}");
    }
}

#[test]
fn what_does_not_exist_is_not_found_and_not_made() {
    let dir = tempfile::tempdir().unwrap();
    let before = fs::read_dir(dir.path()).unwrap().count();
    for place in [
        "sqlite:no/tenure.db",
        "sqlite:tenure.db",
        "exclusive:no",
        "mkdir:no/lock",
        "ledger:no",
        "ledger:",
    ] {
        let (kind, name) = place.split_once(':').unwrap();
        let url = format!("{kind}:{}", dir.path().join(name).display());
        let url = StoreUrl::parse(&url).unwrap();
        let error = Tenure::open_read_only(&url, Config::default())
            .err()
            .unwrap();
        assert_eq!(error.kind, ErrorKind::NotFound, "{place}: {error}");
    }
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), before);
    let memory = StoreUrl::parse("memory:").unwrap();
    let error = Tenure::open_read_only(&memory, Config::default())
        .err()
        .unwrap();
    assert_eq!(error.kind, ErrorKind::Unsupported, "{error}");
}

#[test]
fn a_user_who_may_only_read_can_look_in_a_folder_that_nobody_may_write() {
    if process::as_another_user().is_none() {
        tenure_testkit::left_out("setpriv can't make another user run this binary");
        return;
    }
    for kind in KINDS {
        for mode in [0o555, 0o777] {
            let place = Place::new(kind);
            let _holder = place.held();
            let expected = answers(&place.open(), &place.key);
            fs::set_permissions(place.dir.path(), fs::Permissions::from_mode(mode)).unwrap();
            let before = place.listing();
            let job = format!("look {} {}", place.key, place.url);
            let looker =
                Process::start_through(&mut process::as_another_user().unwrap(), "worker", &job);
            assert_eq!(looker.report(), expected, "{kind} {mode:o}");
            assert_eq!(place.listing(), before, "{kind} {mode:o}");
        }
    }
}
