//! Both lock protocols, as another program uses them.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tenure_core::{Key, Lease};
use tenure_host::files::atomic::PutResult;
use tenure_host::files::lock_watch::Listen;
use tenure_host::files::protocol::{FoundLock, Removal};
use tenure_host::files::{Fingerprint, LockAtPath, LockProtocol, Sidecar};
use tenure_host::identity;
use tenure_lockfile::exclusive::{Exclusive, FILE, SIDECAR};
use tenure_lockfile::mkdir::Mkdir;
use tenure_lockfile::{Durability, FileStore, Options};
use tenure_testkit::lock_folder;

/// A pid that no process has.
pub(crate) const NO_PROCESS: u32 = i32::MAX as u32;

pub(crate) fn options() -> Options {
    Options {
        durability: Durability::Crash,
        ..Options::default()
    }
}

/// A lock protocol, and what another program does with its lock.
pub(crate) trait Protocol: LockProtocol + Sized {
    /// The lock in this folder.
    fn of_folder(dir: &Path) -> Self;

    fn sidecar(&self) -> Sidecar;

    /// The path of the lock in this folder.
    fn lock_path(dir: &Path) -> PathBuf;

    /// Another program takes the lock, whatever is at its path.
    fn take_as_other_program(dir: &Path, name: &str, pid: u32);

    /// The holder id of such a lock.
    fn other_holder(name: &str, pid: u32) -> String;

    /// Whether the lock is exactly the one that the other program wrote.
    fn is_other_programs(dir: &Path, name: &str, pid: u32) -> bool;

    /// Whether tenure wrote the lock.
    fn is_tenures(dir: &Path) -> bool;

    /// Another program removes the lock.
    fn remove_as_other_program(dir: &Path);

    /// Whether a step left its private files behind.
    fn has_leftovers(dir: &Path) -> bool;

    fn store(self) -> FileStore<Self> {
        let sidecar = self.sidecar();
        FileStore::with_sidecar(self, sidecar, options())
    }

    fn open(dir: &Path) -> FileStore<Self> {
        Self::of_folder(dir).store()
    }
}

/// A lock file of another program.
pub(crate) fn lock_file(holder: &str, pid: u32) -> String {
    let host = identity::host();
    format!(
        r#"{{"holder":"{holder}","pid":{pid},"hostname":"{host}","started_at":"2025-10-25T12:00:00Z"}}"#
    )
}

/// Replaces the lock file as a careful program does: by a rename.
pub(crate) fn replace_lock_file(dir: &Path, text: &str) {
    fs::write(dir.join("tool.tmp"), text).unwrap();
    fs::rename(dir.join("tool.tmp"), dir.join(FILE)).unwrap();
}

impl Protocol for Exclusive {
    fn of_folder(dir: &Path) -> Self {
        Self::of(dir, &options()).unwrap()
    }

    fn sidecar(&self) -> Sidecar {
        Sidecar::new(self.path().with_file_name(SIDECAR))
    }

    fn lock_path(dir: &Path) -> PathBuf {
        dir.join(FILE)
    }

    fn take_as_other_program(dir: &Path, name: &str, pid: u32) {
        replace_lock_file(dir, &lock_file(name, pid));
    }

    fn other_holder(name: &str, _pid: u32) -> String {
        name.to_owned()
    }

    fn is_other_programs(dir: &Path, name: &str, pid: u32) -> bool {
        fs::read_to_string(dir.join(FILE)).is_ok_and(|text| text == lock_file(name, pid))
    }

    fn is_tenures(dir: &Path) -> bool {
        fs::read_to_string(dir.join(FILE)).is_ok_and(|text| text.contains("tenure"))
    }

    fn remove_as_other_program(dir: &Path) {
        fs::remove_file(dir.join(FILE)).unwrap();
    }

    fn has_leftovers(dir: &Path) -> bool {
        let sidecar = dir.join(SIDECAR);
        ["next", "aside"]
            .iter()
            .any(|name| sidecar.join(name).exists())
    }
}

impl Protocol for Mkdir {
    fn of_folder(dir: &Path) -> Self {
        Self::at(&Self::lock_path(dir), &options()).unwrap()
    }

    fn sidecar(&self) -> Sidecar {
        Sidecar::for_folder(Mkdir::sidecar(self))
    }

    fn lock_path(dir: &Path) -> PathBuf {
        dir.join("lock")
    }

    /// As rude as root can be: it removes any lock, tenure's too.
    fn take_as_other_program(dir: &Path, name: &str, pid: u32) {
        let lock = Self::lock_path(dir);
        while fs::create_dir(&lock).is_err() {
            let _ = lock_folder::remove(&lock);
        }
        fs::write(lock.join("pid"), format!("{pid}\n")).unwrap();
        fs::write(lock.join("cmd"), format!("{name}\n")).unwrap();
    }

    fn other_holder(name: &str, pid: u32) -> String {
        format!("{name}:{pid}")
    }

    fn is_other_programs(dir: &Path, name: &str, pid: u32) -> bool {
        let contains = |file: &str, text: String| {
            fs::read_to_string(Self::lock_path(dir).join(file)).is_ok_and(|found| found == text)
        };
        contains("cmd", format!("{name}\n"))
            && contains("pid", format!("{pid}\n"))
            && !Self::is_tenures(dir)
    }

    fn is_tenures(dir: &Path) -> bool {
        Self::lock_path(dir).join("tenure").exists()
    }

    fn remove_as_other_program(dir: &Path) {
        lock_folder::remove(&Self::lock_path(dir)).unwrap();
    }

    fn has_leftovers(dir: &Path) -> bool {
        fs::read_dir(dir).unwrap().any(|entry| {
            let name = entry.unwrap().file_name();
            name != "lock" && name != ".lock-tenure"
        })
    }
}

/// A protocol that calls `before_touch` with a running number before each access to the lock.
pub(crate) struct Touched<P> {
    protocol: P,
    touches: Arc<AtomicUsize>,
    before_touch: Box<dyn Fn(usize) + Send + Sync>,
}

impl<P: Protocol> Touched<P> {
    /// A store of the lock in `dir`, which counts the accesses in `touches`.
    pub(crate) fn store(
        dir: &Path,
        touches: &Arc<AtomicUsize>,
        before_touch: impl Fn(usize) + Send + Sync + 'static,
    ) -> FileStore<Self> {
        let protocol = P::of_folder(dir);
        let sidecar = protocol.sidecar();
        let touched = Self {
            protocol,
            touches: Arc::clone(touches),
            before_touch: Box::new(before_touch),
        };
        FileStore::with_sidecar(touched, sidecar, options())
    }

    fn touch(&self) {
        (self.before_touch)(self.touches.fetch_add(1, Ordering::SeqCst) + 1);
    }
}

impl<P: Protocol> LockAtPath for Touched<P> {
    fn path(&self) -> &Path {
        self.protocol.path()
    }
    fn fingerprint(&self, path: &Path) -> Option<Fingerprint> {
        Some(self.read(path)?.fingerprint)
    }
    fn put(&self, from: &Path) -> io::Result<PutResult> {
        self.touch();
        self.protocol.put(from)
    }
    fn discard(&self, path: &Path) -> io::Result<()> {
        self.touch();
        self.protocol.discard(path)
    }
}

impl<P: Protocol> LockProtocol for Touched<P> {
    fn key(&self) -> &Key {
        self.protocol.key()
    }
    fn read(&self, path: &Path) -> Option<FoundLock> {
        self.touch();
        let found = self.protocol.read(path);
        // Between the look and the action that follows from it.
        self.touch();
        found
    }
    fn prepare(&self, lease: &Lease, path: &Path) -> io::Result<()> {
        self.touch();
        self.protocol.prepare(lease, path)
    }
    fn may_discard(&self, path: &Path) -> bool {
        self.protocol.may_discard(path)
    }
    fn removal(&self) -> Removal {
        self.protocol.removal()
    }
    fn listen_for(&self) -> Listen {
        self.protocol.listen_for()
    }
}

/// A process that does nothing and ends with the test.
pub(crate) struct Sleeper(Child);

impl Sleeper {
    pub(crate) fn start() -> Self {
        Self(Command::new("sleep").arg("600").spawn().unwrap())
    }

    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    pub(crate) fn end(&mut self) {
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
