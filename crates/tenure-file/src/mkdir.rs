//! The mkdir lock: a folder that whoever wants to work on the board makes, and removes when done, as
//! a [`LockProtocol`].
//!
//! `mkdir:DIR` is the store of the one key `board`; the lock is the folder `DIR` itself, with the
//! files `pid`, `ts` and `cmd` in it. Beside it, for `storage/lock`: `storage/.lock-tenure/`.
//!
//! | what stands there | who is judged how |
//! |---|---|
//! | made by tenure (it has a file `tenure`) | by what that says: life lock, or pid with start time, boot and namespace |
//! | made by others, with a pid | no process has it (`ESRCH`): dead. Otherwise alive |
//! | made by others, without one | unknown: it is just being made, or the rest of a crash |
//! | a folder with anything else in it, or no folder | malformed, never taken over or removed |
//!
//! # Invariants
//!
//! 1. A lock of ours is prepared under another name and moved in without replacing: nobody ever sees
//!    it without its pid.
//! 2. From that instant until it is moved out it may not be written into (mode 0555): a shell that
//!    "breaks" it with `rm -rf`, because it saw a dead pid a moment before, can't, unless it is root.
//!    That is why it is moved within one folder only: to move a folder elsewhere, one must be able to
//!    write into it.
//! 3. A lock of ours that is gone, or that is another one now, is lost ([`Removal::Loss`]): somebody
//!    else may have been inside since.
//! 4. A dead lock that a shell is just removing file by file is still the dead one, and is told by its
//!    open descriptor: while we have that, no new folder can get its number.
//! 5. What is thrown away is moved away first, and then taken apart: half of a lock is never found
//!    where a whole one is looked for.
//!
//! # Limitations
//!
//! The protocol names a pid and no machine: locks of other programs are judged as if made on this one,
//! in this container. A pid that another process has by now counts as alive.

mod folder;

use std::fs::{self, DirBuilder, File, Permissions};
use std::io::{self, Write};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use jiff::Timestamp;
use tenure_core::{
    Binding, Doubt, ErrorKind, Holder, HolderId, Key, Lease, Liveness, StoreError, Token,
};
use tenure_host::identity;

use self::folder::{CMD, Contents, Extra, Folder, NAMES, OURS, PID, TS, Theirs, There};
use crate::outsider::{self, FOR_EVER, name, written};
use crate::state::{Sidecar, never};
use crate::{Disk, FileStore, Options};
use tenure_host::files::atomic::{self, Put, Sync};
use tenure_host::files::lock_watch::Listen;
use tenure_host::files::protocol::{
    Fingerprint, FoundLock, HolderProof, LockProtocol, Removal, digest,
};

/// The one key.
pub const KEY: &str = "board";

/// The mkdir lock as a store.
///
/// ```
/// use tenure_core::{Key, Store};
/// use tenure_file::{MkdirStore, Options};
///
/// let dir = tempfile::tempdir().unwrap();
/// let store = MkdirStore::open(&dir.path().join("lock"), Options::default()).unwrap();
/// let nothing = store.inspect(&Key::parse("board").unwrap()).unwrap();
/// assert!(nothing.lease.is_none());
/// ```
pub type MkdirStore = FileStore<Mkdir>;

/// One lock folder.
#[derive(Debug)]
pub struct Mkdir {
    key: Key,
    place: PathBuf,
    sync: Sync,
    /// The dead lock that was last seen at the place (invariant 4).
    pinned: Mutex<Option<Pinned>>,
}

/// A folder that is kept open.
#[derive(Debug)]
struct Pinned {
    _open: OwnedFd,
    found: FoundLock,
}

impl MkdirStore {
    /// Opens the lock at this path. Neither it nor the folder it is in need be there yet.
    pub fn open(place: &Path, options: Options) -> Result<Self, StoreError> {
        let protocol = Mkdir::at(place, &options)?;
        let sidecar = Sidecar::for_folder(protocol.sidecar());
        Ok(Self::with_sidecar(protocol, sidecar, options))
    }
}

impl Mkdir {
    /// The lock folder at this path.
    pub fn at(place: &Path, options: &Options) -> Result<Self, StoreError> {
        let no_lock = |why: &str| {
            let what = format!("{} can't be a lock: {why}", place.display());
            StoreError::new(ErrorKind::NotAStore, what)
                .fix("name a folder that need not exist, for example mkdir:.bilu/storage/lock")
        };
        let (Some(parent), Some(name)) = (place.parent(), place.file_name()) else {
            return Err(no_lock("it has no name of its own"));
        };
        let parent = real(parent).map_err(|error| no_lock(&error.to_string()))?;
        Ok(Self {
            key: Key::parse(KEY).map_err(|error| no_lock(&error.to_string()))?,
            place: parent.join(name),
            sync: match options.disk {
                Disk::PowerCut => Sync::ToDisk,
                Disk::Crash => Sync::Later,
            },
            pinned: Mutex::new(None),
        })
    }

    /// The folder beside the lock, where the rest is kept.
    pub fn sidecar(&self) -> PathBuf {
        let name = self.place.file_name().unwrap_or_default().to_string_lossy();
        self.place.with_file_name(format!(".{name}-tenure"))
    }
}

/// The real path of a folder that may not be there yet: whoever comes by a link must meet the others at
/// the same place.
fn real(folder: &Path) -> io::Result<PathBuf> {
    let folder = std::path::absolute(folder)?;
    match folder.canonicalize() {
        Ok(real) if real.is_dir() => Ok(real),
        Ok(real) => Err(io::Error::new(
            io::ErrorKind::NotADirectory,
            format!("{} is a file", real.display()),
        )),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            match (folder.parent(), folder.file_name()) {
                (Some(parent), Some(name)) => Ok(real(parent)?.join(name)),
                _ => Err(error),
            }
        }
        Err(error) => Err(error),
    }
}

impl LockProtocol for Mkdir {
    fn key(&self) -> &Key {
        &self.key
    }

    fn path(&self) -> &Path {
        &self.place
    }

    fn read(&self, path: &Path) -> Option<FoundLock> {
        match folder::read(path) {
            Ok(None) => None,
            Ok(Some(There::Folder(folder))) => Some(self.found(path, folder)),
            Ok(Some(There::NoFolder { file, written })) => {
                let fingerprint = Fingerprint { file, digest: 0 };
                Some(self.unnamed(fingerprint, written, Doubt::Malformed))
            }
            Err(error) => self.unreadable(path, &error),
        }
    }

    fn prepare(&self, lease: &Lease, path: &Path) -> io::Result<()> {
        let extra = Extra::of(lease).ok_or_else(|| {
            io::Error::new(io::ErrorKind::Unsupported, "a lock folder names a process")
        })?;
        self.discard(path)?;
        // For nobody else to look into while it is half made.
        DirBuilder::new().mode(0o700).create(path)?;
        let ours = serde_json::to_string(&extra).map_err(io::Error::other)?;
        for (name, text) in [
            (PID, extra.pid().to_string()),
            (TS, extra.acquired_at().as_second().to_string()),
            (CMD, extra.cmd()),
            (OURS, ours),
        ] {
            let mut file = File::options()
                .write(true)
                .create_new(true)
                .mode(0o444)
                .open(path.join(name))?;
            file.set_permissions(Permissions::from_mode(0o444))?;
            file.write_all(format!("{text}\n").as_bytes())?;
            // The last one tells all that the others do.
            if name == OURS && self.sync == Sync::ToDisk {
                file.sync_all()?;
            }
        }
        fs::set_permissions(path, Permissions::from_mode(0o555))
    }

    fn put(&self, from: &Path) -> io::Result<Put> {
        atomic::move_in(from, &self.place)
    }

    fn may_discard(&self, path: &Path) -> bool {
        match folder::read(path) {
            Ok(Some(There::Folder(folder))) => {
                matches!(folder.contents, Contents::Ours(..))
                    || folder::stranger(&folder.open).is_ok_and(|stranger| stranger.is_none())
            }
            Ok(Some(There::NoFolder { .. })) => false,
            Ok(None) | Err(_) => true,
        }
    }

    fn discard(&self, path: &Path) -> io::Result<()> {
        let is_there = |path: &Path| path.symlink_metadata().ok();
        let mut bin = self.bin(None);
        if is_there(&bin).is_some() {
            // Somebody was killed over it.
            clear(&bin);
        }
        let Some(thrown) = is_there(path) else {
            return Ok(());
        };
        if is_there(&bin).is_some() {
            // What is there we may move, but not take apart: it is somebody else's.
            bin = self.bin(Some(thrown.ino()));
        }
        match fs::rename(path, &bin) {
            Ok(()) => {
                clear(&bin);
                Ok(())
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
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
    /// Where what is thrown away is taken apart.
    fn bin(&self, number: Option<u64>) -> PathBuf {
        let mut bin = self.sidecar().into_os_string();
        bin.push("-bin");
        if let Some(number) = number {
            bin.push(format!("-{number}"));
        }
        bin.into()
    }

    fn found(&self, path: &Path, folder: Folder) -> FoundLock {
        let Folder {
            open,
            file,
            written,
            contents,
        } = folder;
        match contents {
            Contents::Ours(extra, bytes) => {
                let fingerprint = Fingerprint {
                    file,
                    digest: digest(&bytes),
                };
                let (token, at) = (extra.token(), extra.acquired_at());
                FoundLock {
                    fingerprint,
                    lease: self.lease(extra.into_holder(), token, at),
                    proof: HolderProof::Binding,
                    flaw: None,
                }
            }
            Contents::Unknown(why, bytes) => {
                let fingerprint = Fingerprint {
                    file,
                    digest: digest(&bytes),
                };
                FoundLock {
                    flaw: Some(format!("its file {OURS} can't be understood: {why}")),
                    ..self.unnamed(fingerprint, written, Doubt::Malformed)
                }
            }
            Contents::Theirs(theirs) => self.theirs(path, open, file, written, &theirs),
        }
    }

    fn theirs(
        &self,
        path: &Path,
        open: OwnedFd,
        file: (u64, u64),
        written: Timestamp,
        theirs: &Theirs,
    ) -> FoundLock {
        let mut pinned = self.pinned.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(dead) = pinned.as_ref()
            && dead.found.fingerprint.file == file
            && theirs.pid.is_none()
            && theirs.stranger.is_none()
        {
            return dead.found.clone();
        }
        let fingerprint = Fingerprint {
            file,
            digest: digest(&theirs.bytes()),
        };
        let found = match theirs.pid() {
            _ if theirs.stranger.is_some() => self.unnamed(fingerprint, written, Doubt::Malformed),
            None => self.unnamed(fingerprint, written, Doubt::NoProcess),
            Some(pid) => {
                let (host, command) = (identity::host(), theirs.command());
                let program = command.as_deref().and_then(program).unwrap_or("pid");
                let holder = Holder {
                    id: name(&format!("{program}:{pid}")),
                    host: host.to_owned(),
                    binding: outsider::binding(pid, host, true),
                    command,
                };
                let at = theirs.since().unwrap_or(written);
                FoundLock {
                    fingerprint,
                    lease: self.lease(holder, Token::NONE, at),
                    proof: HolderProof::Protocol(outsider::liveness(pid)),
                    flaw: None,
                }
            }
        };
        if path == self.place {
            let is_dead = matches!(found.proof, HolderProof::Protocol(Liveness::Gone(_)));
            *pinned = is_dead.then(|| Pinned {
                _open: open,
                found: found.clone(),
            });
        }
        found
    }

    fn lease(&self, holder: Holder, token: Token, at: Timestamp) -> Lease {
        Lease {
            key: self.key.clone(),
            holder,
            token,
            acquired_at: at,
            expires: never(),
            heartbeat_at: at,
            ttl: FOR_EVER,
        }
    }

    /// A lock that names nobody. It is not a flaw of ours: it is somebody else's, who may be at work.
    fn unnamed(&self, fingerprint: Fingerprint, written: Timestamp, doubt: Doubt) -> FoundLock {
        let holder = Holder {
            id: HolderId::parse("unnamed").unwrap_or_else(|_| HolderId::unreadable()),
            host: identity::host().to_owned(),
            command: None,
            binding: Binding::Detached,
        };
        FoundLock {
            fingerprint,
            lease: self.lease(holder, Token::NONE, written),
            proof: HolderProof::Protocol(Liveness::Unverifiable(doubt)),
            flaw: None,
        }
    }

    /// Something that is there and can't be read: it may be our own.
    fn unreadable(&self, path: &Path, error: &io::Error) -> Option<FoundLock> {
        let (file, at) = match path.symlink_metadata() {
            Ok(known) => ((known.dev(), known.ino()), written(&known)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(_) => ((0, 0), Timestamp::UNIX_EPOCH),
        };
        Some(FoundLock {
            flaw: Some(format!("it can't be read: {error}")),
            ..self.unnamed(Fingerprint { file, digest: 0 }, at, Doubt::Malformed)
        })
    }
}

/// The program of a command line, without its folder.
fn program(command: &str) -> Option<&str> {
    let first = command.split_whitespace().next()?;
    first.rsplit('/').next().filter(|name| !name.is_empty())
}

/// Takes a folder apart that is out of everybody's way. What may not be removed stays there.
fn clear(bin: &Path) {
    let _ = fs::set_permissions(bin, Permissions::from_mode(0o700));
    for name in NAMES {
        let _ = atomic::unlink(&bin.join(name));
    }
    let _ = fs::remove_dir(bin);
}
