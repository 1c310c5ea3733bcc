//! The mkdir lock, as a [`LockProtocol`]: a folder that a program creates to take the lock and removes
//! to release it.
//!
//! `mkdir:DIR` is the store of the one key `board`. The lock is the folder `DIR` itself, with the files
//! `pid`, `ts` and `cmd` in it. The sidecar of `storage/lock` is `storage/.lock-tenure/`.
//!
//! | the lock folder | its holder |
//! |---|---|
//! | made by tenure (it has a file `tenure`) | judged by that file: liveness lock, or pid with start time, boot and namespace |
//! | made by another program, with a pid | dead if no process has the pid (`ESRCH`); otherwise alive |
//! | made by another program, without a pid | unknown: it is just being made, or was left by a crash |
//! | a folder with other files in it, or not a folder | malformed; never taken over or removed |
//!
//! # Invariants
//!
//! 1. Tenure prepares its lock under a private name and renames it without replacing anything: no
//!    program ever sees the lock without its pid.
//! 2. While the holder of tenure's lock runs, the folder is read-only (mode 0555). A shell that saw a dead
//!    pid a moment before and "breaks" the lock with `rm -rf` fails, unless it is root. A read-only
//!    folder can be renamed only within its parent, so the private names are in the same folder.
//!    Once the holder has exited, a helper process makes the folder writable again ([`ExitHelper`]), so
//!    that `rm -rf` can remove the lock of a killed holder.
//! 3. If tenure's lock is removed or replaced, the lease is lost ([`Removal::Loss`]): another program
//!    may have held the lock since.
//! 4. A dead lock that a shell is removing file by file is still recognised as the dead one, by its
//!    open descriptor: while that is open, no new folder can get the same inode number.
//! 5. A lock is renamed before it is deleted file by file: no incomplete lock is ever at the path.
//!
//! # Limitations
//!
//! The protocol records a pid but no machine: another program's lock is judged as if it was made on
//! this machine and in this container. A pid that another process has now counts as alive.

mod folder;

use std::ffi::OsString;
use std::fs::{File, Permissions};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use jiff::Timestamp;
use rustix::fs::{AtFlags, Mode, OFlags, fchmod, mkdirat, openat, unlinkat};
use tenure_core::{
    Binding, Doubt, ErrorKind, Holder, HolderId, Key, Lease, Liveness, StoreError, Token,
};
use tenure_host::exit_helper::{Duty, ExitHelper};
use tenure_host::exit_watch::ExitWatch;
use tenure_host::files::permissions::{folder_mode, hand_over};
use tenure_host::{identity, lock};

use self::folder::{
    CMD, FolderContents, ForeignFiles, LockEntry, LockFolder, NAMES, PID, TENURE, TS, TenureFile,
};
use crate::foreign_holder::{self, holder_id, lease, seen};
use crate::{FileStore, Options};
use tenure_host::files::Sidecar;
use tenure_host::files::atomic::{self, Durability, PutResult};
use tenure_host::files::beneath::{self, Place};
use tenure_host::files::lock_watch::Listen;
use tenure_host::files::protocol::{
    Fingerprint, FoundLock, HolderProof, LockAtPath, LockProtocol, Removal, digest,
};

/// The only key.
pub const KEY: &str = "board";

/// The mode of tenure's lock while its holder runs.
const PROTECTED: u32 = 0o555;

/// The mkdir lock, as a store.
///
/// ```
/// use std::time::{Duration, Instant};
/// use tenure_core::{Key, Store};
/// use tenure_lockfile::{MkdirStore, Options};
///
/// let dir = tempfile::tempdir().unwrap();
/// let store = MkdirStore::open(&dir.path().join("lock"), Options::default()).unwrap();
/// let soon = Instant::now() + Duration::from_secs(1);
/// assert!(store.inspect(&Key::parse("board").unwrap(), soon).unwrap().is_idle());
/// ```
pub type MkdirStore = FileStore<Mkdir>;

/// One lock folder.
#[derive(Debug)]
pub struct Mkdir {
    key: Key,
    path: PathBuf,
    durability: Durability,
    /// The dead lock that was last read at the path (invariant 4).
    dead_lock: Mutex<Option<OpenDeadLock>>,
}

/// A dead lock whose folder stays open.
#[derive(Debug)]
struct OpenDeadLock {
    _folder: OwnedFd,
    found: FoundLock,
}

impl MkdirStore {
    /// Opens the lock at this path. Neither the lock nor its parent folder needs to exist.
    pub fn open(path: &Path, options: Options) -> Result<Self, StoreError> {
        let protocol = Mkdir::at(path, &options)?;
        let sidecar = Sidecar::for_folder(protocol.sidecar());
        Ok(Self::with_sidecar(protocol, sidecar, options))
    }
}

impl Mkdir {
    /// The lock folder at this path.
    pub fn at(path: &Path, options: &Options) -> Result<Self, StoreError> {
        let not_a_lock = |why: &str| {
            let what = format!("{} can't be a lock: {why}", path.display());
            StoreError::new(ErrorKind::NotAStore, what)
                .fix("name a folder that need not exist, for example mkdir:.bilu/storage/lock")
        };
        let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
            return Err(not_a_lock("it has no name"));
        };
        let parent = canonical(parent).map_err(|error| not_a_lock(&error.to_string()))?;
        Ok(Self {
            key: Key::parse(KEY).map_err(|error| not_a_lock(&error.to_string()))?,
            path: parent.join(name),
            durability: options.durability,
            dead_lock: Mutex::new(None),
        })
    }

    /// The path of the sidecar.
    pub fn sidecar(&self) -> PathBuf {
        let mut name = OsString::from(".");
        name.push(self.path.file_name().unwrap_or_default());
        name.push("-tenure");
        self.path.with_file_name(name)
    }
}

/// The canonical path of a folder that may not exist yet: processes that use different links to it
/// must agree on one path.
fn canonical(folder: &Path) -> io::Result<PathBuf> {
    let folder = std::path::absolute(folder)?;
    match beneath::resolve(&folder) {
        Ok(found) if found.is_dir() => Ok(found),
        Ok(found) => Err(io::Error::new(
            io::ErrorKind::NotADirectory,
            format!("{} is a file", found.display()),
        )),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            match (folder.parent(), folder.file_name()) {
                (Some(parent), Some(name)) => Ok(canonical(parent)?.join(name)),
                _ => Err(error),
            }
        }
        Err(error) => Err(error),
    }
}

impl LockAtPath for Mkdir {
    fn path(&self) -> &Path {
        &self.path
    }

    fn fingerprint(&self, path: &Path) -> Option<Fingerprint> {
        Some(self.read(path)?.fingerprint)
    }

    fn put(&self, from: &Path) -> io::Result<PutResult> {
        atomic::move_in(from, &self.path)
    }

    fn discard(&self, path: &Path) -> io::Result<()> {
        let metadata = |path: &Path| path.symlink_metadata().ok();
        let mut bin = self.bin(None);
        if metadata(&bin).is_some() {
            // A process was killed while it deleted this.
            delete(&bin);
        }
        let Some(discarded) = metadata(path) else {
            return Ok(());
        };
        if metadata(&bin).is_some() {
            // Another user's folder: it can be renamed here, but not deleted.
            bin = self.bin(Some(discarded.ino()));
        }
        if atomic::take_aside(path, &bin)? {
            delete(&bin);
        }
        Ok(())
    }
}

impl LockProtocol for Mkdir {
    fn key(&self) -> &Key {
        &self.key
    }

    fn read(&self, path: &Path) -> Option<FoundLock> {
        match folder::read(path) {
            Ok(None) => None,
            Ok(Some(LockEntry::Folder(folder))) => Some(self.found(path, folder)),
            Ok(Some(LockEntry::NotAFolder { file, modified })) => {
                let fingerprint = Fingerprint { file, digest: 0 };
                Some(self.unnamed(fingerprint, modified, Doubt::Malformed))
            }
            Err(error) => self.unreadable(path, &error),
        }
    }

    fn prepare(&self, lease: &Lease, path: &Path) -> io::Result<()> {
        let file = TenureFile::of(lease).ok_or_else(|| {
            io::Error::new(io::ErrorKind::Unsupported, "a lock folder names a process")
        })?;
        self.discard(path)?;
        // No other user may look into it while it is incomplete.
        let place = Place::of(path)?;
        mkdirat(&place.folder, place.name, Mode::RWXU)?;
        let folder = beneath::open_folder(path)?;
        let json = serde_json::to_string(&file).map_err(io::Error::other)?;
        for (name, text) in [
            (PID, file.pid.to_string()),
            (TS, file.acquired_at.as_second().to_string()),
            (CMD, file.cmd()),
            (TENURE, json),
        ] {
            let how = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC;
            let mut file = File::from(openat(&folder, name, how, Mode::from_bits_retain(0o444))?);
            file.set_permissions(Permissions::from_mode(0o444))?;
            file.write_all(format!("{text}\n").as_bytes())?;
            // The last file repeats what the others contain.
            if name == TENURE && self.durability == Durability::PowerCut {
                file.sync_all()?;
            }
        }
        hand_over(&folder, path, PROTECTED)
    }

    fn clear_up_after_exit(
        &self,
        prepared: &Path,
        _holder: &Holder,
        exit: &ExitWatch,
    ) -> io::Result<Option<ExitHelper>> {
        let duty = Duty::MakeWritable {
            folder: &beneath::open_folder(prepared)?,
            file: TENURE,
            mode: folder_mode(&self.path)?,
        };
        ExitHelper::start(exit, duty).map(Some)
    }

    fn may_discard(&self, path: &Path) -> bool {
        match folder::read(path) {
            Ok(Some(LockEntry::Folder(folder))) => {
                matches!(folder.contents, FolderContents::Tenure(..))
                    || folder::unexpected_entry(&folder.open).is_ok_and(|name| name.is_none())
            }
            Ok(Some(LockEntry::NotAFolder { .. })) => false,
            Ok(None) | Err(_) => true,
        }
    }

    fn removal(&self) -> Removal {
        Removal::Loss
    }

    fn listen_for(&self) -> Listen {
        Listen::OtherFolders
    }
}

impl Mkdir {
    /// Where a discarded lock is deleted file by file.
    fn bin(&self, number: Option<u64>) -> PathBuf {
        let mut bin = self.sidecar().into_os_string();
        bin.push("-bin");
        if let Some(number) = number {
            bin.push(format!("-{number}"));
        }
        bin.into()
    }

    fn found(&self, path: &Path, folder: LockFolder) -> FoundLock {
        let LockFolder {
            open,
            file,
            modified,
            contents,
        } = folder;
        match contents {
            FolderContents::Tenure(ours, bytes) => {
                let fingerprint = Fingerprint {
                    file,
                    digest: digest(&bytes),
                };
                let (token, at) = (ours.token, ours.acquired_at);
                FoundLock {
                    fingerprint,
                    lease: lease(&self.key, ours.into_holder(), token, at),
                    proof: HolderProof::Binding,
                    flaw: None,
                }
            }
            FolderContents::UnreadableTenure(why, bytes) => {
                let fingerprint = Fingerprint {
                    file,
                    digest: digest(&bytes),
                };
                FoundLock {
                    flaw: Some(format!("its file {TENURE} can't be parsed: {why}")),
                    ..self.unnamed(fingerprint, modified, Doubt::Malformed)
                }
            }
            FolderContents::Foreign(files) => self.foreign(path, open, file, modified, &files),
        }
    }

    fn foreign(
        &self,
        path: &Path,
        open: OwnedFd,
        file: (u64, u64),
        modified: Timestamp,
        files: &ForeignFiles,
    ) -> FoundLock {
        let mut dead_lock = lock(&self.dead_lock);
        if let Some(dead) = dead_lock.as_ref()
            && dead.found.fingerprint.file == file
            && files.pid.is_none()
            && files.unexpected.is_none()
        {
            return dead.found.clone();
        }
        let fingerprint = Fingerprint {
            file,
            digest: digest(&files.bytes()),
        };
        let found = match files.pid() {
            _ if files.unexpected.is_some() => {
                self.unnamed(fingerprint, modified, Doubt::Malformed)
            }
            None => self.unnamed(fingerprint, modified, Doubt::NoProcess),
            Some(pid) => {
                let (host, command) = (identity::host(), files.command());
                let program = command.as_deref().and_then(program).unwrap_or("pid");
                let holder = Holder {
                    id: holder_id(&format!("{program}:{pid}")),
                    host: host.to_owned(),
                    binding: foreign_holder::binding(pid, host, true),
                    command,
                };
                let at = files.since().unwrap_or(modified);
                FoundLock {
                    fingerprint,
                    lease: lease(&self.key, holder, Token::NONE, at),
                    proof: HolderProof::Protocol(foreign_holder::liveness(pid)),
                    flaw: None,
                }
            }
        };
        if path == self.path {
            let is_dead = matches!(found.proof, HolderProof::Protocol(Liveness::Gone(_)));
            *dead_lock = is_dead.then(|| OpenDeadLock {
                _folder: open,
                found: found.clone(),
            });
        }
        found
    }

    /// A lock that names no holder. It has no flaw: another program may be just writing it.
    fn unnamed(&self, fingerprint: Fingerprint, modified: Timestamp, doubt: Doubt) -> FoundLock {
        let holder = Holder {
            id: HolderId::parse("unnamed").unwrap_or_else(|_| HolderId::unreadable()),
            host: identity::host().to_owned(),
            command: None,
            binding: Binding::Detached,
        };
        FoundLock {
            fingerprint,
            lease: lease(&self.key, holder, Token::NONE, modified),
            proof: HolderProof::Protocol(Liveness::Unverifiable(doubt)),
            flaw: None,
        }
    }

    /// A lock that exists and can't be read: it may be tenure's own.
    fn unreadable(&self, path: &Path, error: &io::Error) -> Option<FoundLock> {
        let (file, at) = seen(path)?;
        Some(FoundLock {
            flaw: Some(format!("it can't be read: {error}")),
            ..self.unnamed(Fingerprint { file, digest: 0 }, at, Doubt::Malformed)
        })
    }
}

/// The program name of a command line, without its folder.
fn program(command: &str) -> Option<&str> {
    let first = command.split_whitespace().next()?;
    first.rsplit('/').next().filter(|name| !name.is_empty())
}

/// Deletes a discarded lock file by file, as far as permissions allow.
fn delete(bin: &Path) {
    // By its descriptor: another user may have put a link there.
    if let Ok(folder) = beneath::open_folder(bin) {
        let _ = fchmod(&folder, Mode::RWXU);
        for name in NAMES {
            let _ = unlinkat(&folder, name, AtFlags::empty());
        }
    }
    let _ = atomic::remove_folder(bin);
}
