//! The exclusive lock: the file `.exclusive-lock` in a database's folder, as a [`LockProtocol`].
//!
//! `exclusive:DIR` is the store of the one key `database`. Its sidecar folder is
//! `DIR/.exclusive-lock-tenure/`.
//!
//! | what stands there | who is judged how |
//! |---|---|
//! | written by tenure | by its extra keys: life lock, or pid with start time, boot and namespace |
//! | written by others, this host (letter case ignored) | no process has the pid (`ESRCH`): dead. Otherwise alive, also if it may not be signalled (`EPERM`) |
//! | written by others, another host | unknown |
//! | a directory, unreadable, or not what a lock file is | malformed, never taken over |

mod api;
mod record;

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rustix::fs::{Mode, OFlags};
use tenure_core::{
    Binding, Doubt, ErrorKind, Holder, HolderId, Key, Lease, Liveness, StoreError, Token,
};
use tenure_host::identity;

use crate::outsider::{self, FOR_EVER, name, written};
use crate::state::never;
use crate::{Disk, FileStore, Options};
use tenure_host::files::atomic::{self, Put, Sync};
use tenure_host::files::protocol::{Fingerprint, FoundLock, HolderProof, LockProtocol, digest};

pub use api::{Check, check, is_process_alive, should_skip_database};
pub use record::{ExclusiveLock, Extra, LockError, LockFlaw};

/// The name of the lock file.
pub const FILE: &str = ".exclusive-lock";

/// The name of the folder beside it.
pub const SIDE: &str = ".exclusive-lock-tenure";

/// The one key.
pub const KEY: &str = "database";

/// The longest lock file that is read.
const LONGEST: u64 = 1 << 20;

/// The exclusive lock of one folder as a store.
///
/// ```
/// use tenure_core::{Key, Store};
/// use tenure_file::{ExclusiveStore, Options};
///
/// let dir = tempfile::tempdir().unwrap();
/// let store = ExclusiveStore::open(dir.path(), Options::default()).unwrap();
/// let nothing = store.inspect(&Key::parse("database").unwrap()).unwrap();
/// assert!(nothing.lease.is_none());
/// ```
pub type ExclusiveStore = FileStore<Exclusive>;

/// The lock file of one folder.
#[derive(Debug)]
pub struct Exclusive {
    key: Key,
    place: PathBuf,
    version: Option<String>,
    sync: Sync,
}

impl ExclusiveStore {
    /// Opens the lock of this folder, which must be there.
    pub fn open(dir: &Path, options: Options) -> Result<Self, StoreError> {
        let protocol = Exclusive::of(dir, &options)?;
        let sidecar = protocol.place.with_file_name(SIDE);
        Ok(Self::new(protocol, sidecar, options))
    }
}

impl Exclusive {
    /// The lock file of this folder, which must be there.
    pub fn of(dir: &Path, options: &Options) -> Result<Self, StoreError> {
        let no_folder = |why: &str| {
            let what = format!("{} is no folder: {why}", dir.display());
            StoreError::new(ErrorKind::NotAStore, what)
                .fix("name the folder of the database, for example exclusive:.beads")
        };
        // Whoever comes by a link must meet the others at the same place.
        let real = match dir.canonicalize() {
            Ok(real) if real.is_dir() => real,
            Ok(_) => return Err(no_folder("it is a file")),
            Err(error) => return Err(no_folder(&error.to_string())),
        };
        Ok(Self {
            key: Key::parse(KEY).map_err(|error| no_folder(&error.to_string()))?,
            place: real.join(FILE),
            version: options.version.clone(),
            sync: match options.disk {
                Disk::PowerCut => Sync::ToDisk,
                Disk::Crash => Sync::Later,
            },
        })
    }
}

impl LockProtocol for Exclusive {
    fn key(&self) -> &Key {
        &self.key
    }

    fn path(&self) -> &Path {
        &self.place
    }

    fn read(&self, path: &Path) -> Option<FoundLock> {
        let (bytes, fingerprint, written) = match read(path) {
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => return self.unreadable(path, &error),
        };
        let lock = match ExclusiveLock::parse_unchecked(&bytes) {
            Ok(lock) => lock,
            Err(error) => return Some(self.flawed(fingerprint, written, None, error.to_string())),
        };
        if let Err(flaw) = lock.validate() {
            let words = LockError::Invalid(flaw).to_string();
            return Some(self.flawed(fingerprint, written, Some(&lock.holder), words));
        }
        Some(self.found(&lock, fingerprint, written))
    }

    fn prepare(&self, lease: &Lease, path: &Path) -> io::Result<()> {
        let lock = ExclusiveLock::of(lease, self.version.as_deref()).ok_or_else(|| {
            io::Error::new(io::ErrorKind::Unsupported, "a lock file names a process")
        })?;
        atomic::write(path, lock.to_json().as_bytes(), self.sync)
    }

    fn put(&self, from: &Path) -> io::Result<Put> {
        atomic::put(from, &self.place)
    }

    fn may_discard(&self, path: &Path) -> bool {
        !path.symlink_metadata().is_ok_and(|there| there.is_dir())
    }

    fn discard(&self, path: &Path) -> io::Result<()> {
        atomic::unlink(path)
    }
}

impl Exclusive {
    /// A lock that can be understood.
    fn found(
        &self,
        lock: &ExclusiveLock,
        fingerprint: Fingerprint,
        written: Timestamp,
    ) -> FoundLock {
        let (binding, proof) = match lock.binding() {
            Some(binding) => (binding, HolderProof::Binding),
            None => (
                outsider::binding(lock.pid, &lock.hostname, is_here(&lock.hostname)),
                HolderProof::Protocol(seed_rules(lock.pid, &lock.hostname)),
            ),
        };
        let at = lock.started_at.unwrap_or(written);
        FoundLock {
            fingerprint,
            lease: Lease {
                key: self.key.clone(),
                holder: Holder {
                    id: name(&lock.holder),
                    host: lock.hostname.clone(),
                    command: None,
                    binding,
                },
                token: lock
                    .extra
                    .as_ref()
                    .and_then(|extra| extra.token)
                    .unwrap_or(Token::NONE),
                acquired_at: at,
                expires: never(),
                heartbeat_at: at,
                ttl: FOR_EVER,
            },
            proof,
            flaw: None,
        }
    }

    /// Something that can't be understood. It stands until someone looks.
    fn flawed(
        &self,
        fingerprint: Fingerprint,
        written: Timestamp,
        holder: Option<&str>,
        flaw: String,
    ) -> FoundLock {
        FoundLock {
            fingerprint,
            lease: Lease {
                key: self.key.clone(),
                holder: Holder {
                    id: holder.map_or_else(HolderId::unreadable, name),
                    host: "?".into(),
                    command: None,
                    binding: Binding::Detached,
                },
                token: Token::NONE,
                acquired_at: written,
                expires: never(),
                heartbeat_at: written,
                ttl: FOR_EVER,
            },
            proof: HolderProof::Protocol(Liveness::Unverifiable(Doubt::Malformed)),
            flaw: Some(flaw),
        }
    }

    /// Something that is there and can't be read.
    fn unreadable(&self, path: &Path, error: &io::Error) -> Option<FoundLock> {
        let (file, written) = match path.symlink_metadata() {
            Ok(file) => ((file.dev(), file.ino()), written(&file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(_) => ((0, 0), Timestamp::UNIX_EPOCH),
        };
        let fingerprint = Fingerprint { file, digest: 0 };
        let words = LockError::Unreadable(error.to_string()).to_string();
        Some(self.flawed(fingerprint, written, None, words))
    }
}

/// What is in a file, and which one it is. Neither a link nor a pipe can lead us anywhere else.
fn read(path: &Path) -> io::Result<(Vec<u8>, Fingerprint, Timestamp)> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    let known = file.metadata()?;
    if known.is_dir() {
        return Err(rustix::io::Errno::ISDIR.into());
    }
    if !known.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    if known.len() > LONGEST {
        return Err(io::Error::other("it is too long for a lock file"));
    }
    let mut bytes = Vec::new();
    (&file).take(LONGEST).read_to_end(&mut bytes)?;
    let fingerprint = Fingerprint {
        file: (known.dev(), known.ino()),
        digest: digest(&bytes),
    };
    Ok((bytes, fingerprint, written(&known)))
}

/// Whether a name of a machine is that of this one.
fn is_here(hostname: &str) -> bool {
    hostname.to_lowercase() == identity::host().to_lowercase()
}

/// What the seed's rules say of a process that another program wrote down.
fn seed_rules(pid: i64, hostname: &str) -> Liveness {
    if !is_here(hostname) {
        return Liveness::Unverifiable(Doubt::OtherHost);
    }
    outsider::liveness(pid)
}
