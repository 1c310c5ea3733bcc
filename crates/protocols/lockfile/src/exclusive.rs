//! The exclusive lock: the file `.exclusive-lock` in a database's folder, as a [`LockProtocol`].
//!
//! `exclusive:DIR` is the store of the one key `database`. Its sidecar is
//! `DIR/.exclusive-lock-tenure/`.
//!
//! | the lock file | its holder |
//! |---|---|
//! | modified by tenure | judged by tenure's own keys: liveness lock, or pid with start time, boot and namespace |
//! | modified by another program on this host (letter case ignored) | dead if no process has the pid (`ESRCH`); otherwise alive, even if it may not be signalled (`EPERM`) |
//! | modified by another program on another host | unknown |
//! | a directory, unreadable, or not a valid lock file | malformed; never taken over |

mod api;
mod record;

use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use rustix::fs::{Mode, OFlags};
use tenure_core::{
    Binding, Doubt, ErrorKind, Holder, HolderId, Key, Lease, Liveness, StoreError, Token,
};
use tenure_host::exit_helper::{Duty, ExitHelper};
use tenure_host::exit_watch::ExitWatch;
use tenure_host::identity;

use crate::foreign_holder::{self, holder_id, lease, modified, seen};
use crate::{FileStore, Options};
use tenure_host::files::atomic::{self, Durability, PutResult};
use tenure_host::files::beneath::{self, Refused};
use tenure_host::files::fault::explain;
use tenure_host::files::protocol::{
    Fingerprint, FoundLock, HolderProof, LockAtPath, LockProtocol, digest,
};

pub use api::{Check, check, is_process_alive, should_skip_database};
pub use record::{ExclusiveLock, LockError, LockFlaw, TenureFields};

/// The name of the lock file.
pub const FILE: &str = ".exclusive-lock";

/// The name of the sidecar folder.
pub const SIDECAR: &str = ".exclusive-lock-tenure";

/// The only key.
pub const KEY: &str = "database";

/// The largest lock file that is read, in bytes.
const MAX_LENGTH: u64 = 1 << 20;

/// The exclusive lock of one folder, as a store.
///
/// ```
/// use std::time::{Duration, Instant};
/// use tenure_core::{Key, Store};
/// use tenure_lockfile::{ExclusiveStore, Options};
///
/// let dir = tempfile::tempdir().unwrap();
/// let store = ExclusiveStore::open(dir.path(), Options::default()).unwrap();
/// let soon = Instant::now() + Duration::from_secs(1);
/// assert!(store.inspect(&Key::parse("database").unwrap(), soon).unwrap().is_idle());
/// ```
pub type ExclusiveStore = FileStore<Exclusive>;

/// The lock file of one folder.
#[derive(Debug)]
pub struct Exclusive {
    key: Key,
    place: PathBuf,
    version: Option<String>,
    durability: Durability,
}

impl ExclusiveStore {
    /// Opens the lock of a folder, which must exist.
    pub fn open(dir: &Path, options: Options) -> Result<Self, StoreError> {
        let protocol = Exclusive::of(dir, &options)?;
        let sidecar = protocol.place.with_file_name(SIDECAR);
        Ok(Self::new(protocol, sidecar, options))
    }
}

impl Exclusive {
    /// The lock file of a folder, which must exist.
    pub fn of(dir: &Path, options: &Options) -> Result<Self, StoreError> {
        let no_folder = |why: &str| {
            let what = format!("{} is not a folder: {why}", dir.display());
            StoreError::new(ErrorKind::NotAStore, what)
                .fix("name the folder of the database, for example exclusive:.beads")
        };
        // Processes that use different links to the folder must agree on one path.
        let real = match beneath::resolve(dir) {
            Ok(real) if real.is_dir() => real,
            Ok(_) => return Err(no_folder("it is a file")),
            Err(error) if Refused::of(&error).is_some() => {
                return Err(explain("opened", dir, error));
            }
            Err(error) => return Err(no_folder(&error.to_string())),
        };
        Ok(Self {
            key: Key::parse(KEY).map_err(|error| no_folder(&error.to_string()))?,
            place: real.join(FILE),
            version: options.version.clone(),
            durability: options.durability,
        })
    }
}

impl LockAtPath for Exclusive {
    fn path(&self) -> &Path {
        &self.place
    }

    fn fingerprint(&self, path: &Path) -> Option<Fingerprint> {
        Some(self.read(path)?.fingerprint)
    }

    fn put(&self, from: &Path) -> io::Result<PutResult> {
        atomic::put(from, &self.place)
    }

    fn discard(&self, path: &Path) -> io::Result<()> {
        atomic::unlink(path)
    }
}

impl LockProtocol for Exclusive {
    fn key(&self) -> &Key {
        &self.key
    }

    fn read(&self, path: &Path) -> Option<FoundLock> {
        let (bytes, fingerprint, modified) = match read(path) {
            Ok(read) => read,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return None,
            Err(error) => return self.unreadable(path, &error),
        };
        let lock = match ExclusiveLock::parse_unchecked(&bytes) {
            Ok(lock) => lock,
            Err(error) => return Some(self.flawed(fingerprint, modified, None, error.to_string())),
        };
        if let Err(flaw) = lock.validate() {
            let reason = LockError::Invalid(flaw).to_string();
            return Some(self.flawed(fingerprint, modified, Some(&lock.holder), reason));
        }
        Some(self.found(&lock, fingerprint, modified))
    }

    fn prepare(&self, lease: &Lease, path: &Path) -> io::Result<()> {
        let lock = ExclusiveLock::of(lease, self.version.as_deref()).ok_or_else(|| {
            io::Error::new(io::ErrorKind::Unsupported, "a lock file names a process")
        })?;
        atomic::write(path, lock.to_json().as_bytes(), self.durability)
    }

    /// The protocol's own tool never finds a dead holder, so the lock of a killed one would stop it for ever. For a
    /// process that does not use tenure, a missing lock means that it released it: that one stays until it is checked.
    fn clear_up_after_exit(
        &self,
        prepared: &Path,
        holder: &Holder,
        exit: &ExitWatch,
    ) -> io::Result<Option<ExitHelper>> {
        if holder.liveness_lock().is_none() {
            return Ok(None);
        }
        let folder = |path: &Path| {
            let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            rustix::fs::open(path, flags, Mode::empty()).map(std::fs::File::from)
        };
        let sidecar = self.place.with_file_name(SIDECAR);
        let (content, _, _) = read(prepared)?;
        let duty = Duty::Remove {
            folder: &folder(self.place.parent().unwrap_or(&self.place))?,
            file: FILE,
            content: &content,
            sidecar: &folder(&sidecar)?,
        };
        ExitHelper::start(exit, duty).map(Some)
    }

    fn may_discard(&self, path: &Path) -> bool {
        !path.symlink_metadata().is_ok_and(|there| there.is_dir())
    }
}

impl Exclusive {
    /// A valid lock.
    fn found(
        &self,
        lock: &ExclusiveLock,
        fingerprint: Fingerprint,
        modified: Timestamp,
    ) -> FoundLock {
        let (binding, proof) = match lock.binding() {
            Some(binding) => (binding, HolderProof::Binding),
            None => (
                foreign_holder::binding(lock.pid, &lock.hostname, is_this_host(&lock.hostname)),
                HolderProof::Protocol(liveness_by_protocol(lock.pid, &lock.hostname)),
            ),
        };
        let at = lock.started_at.unwrap_or(modified);
        let token = lock.tenure.as_ref().and_then(|fields| fields.token);
        let holder = Holder {
            id: holder_id(&lock.holder),
            host: lock.hostname.clone(),
            command: None,
            binding,
        };
        FoundLock {
            fingerprint,
            lease: lease(&self.key, holder, token.unwrap_or(Token::NONE), at),
            proof,
            flaw: None,
        }
    }

    /// A lock that can't be parsed. It stays until a person removes it.
    fn flawed(
        &self,
        fingerprint: Fingerprint,
        modified: Timestamp,
        holder: Option<&str>,
        flaw: String,
    ) -> FoundLock {
        let holder = Holder {
            id: holder.map_or_else(HolderId::unreadable, holder_id),
            host: Holder::UNKNOWN_HOST.into(),
            command: None,
            binding: Binding::Detached,
        };
        FoundLock {
            fingerprint,
            lease: lease(&self.key, holder, Token::NONE, modified),
            proof: HolderProof::Protocol(Liveness::Unverifiable(Doubt::Malformed)),
            flaw: Some(flaw),
        }
    }

    /// A lock that exists and can't be read.
    fn unreadable(&self, path: &Path, error: &io::Error) -> Option<FoundLock> {
        let (file, modified) = seen(path)?;
        let fingerprint = Fingerprint { file, digest: 0 };
        let reason = LockError::Unreadable(error.to_string()).to_string();
        Some(self.flawed(fingerprint, modified, None, reason))
    }
}

/// Reads a lock file. Does not follow a symbolic link, nor block on a pipe.
fn read(path: &Path) -> io::Result<(Vec<u8>, Fingerprint, Timestamp)> {
    let file = beneath::open(path, OFlags::RDONLY, Mode::empty())?;
    let known = file.metadata()?;
    if known.is_dir() {
        return Err(rustix::io::Errno::ISDIR.into());
    }
    if !known.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    if known.len() > MAX_LENGTH {
        return Err(io::Error::other("it is too long for a lock file"));
    }
    let mut bytes = Vec::new();
    (&file).take(MAX_LENGTH).read_to_end(&mut bytes)?;
    let fingerprint = Fingerprint {
        file: (known.dev(), known.ino()),
        digest: digest(&bytes),
    };
    Ok((bytes, fingerprint, modified(&known)))
}

/// Whether this is the name of this machine.
fn is_this_host(hostname: &str) -> bool {
    hostname.to_lowercase() == identity::host().to_lowercase()
}

/// The protocol's rule for a process that another program recorded.
fn liveness_by_protocol(pid: i64, hostname: &str) -> Liveness {
    if !is_this_host(hostname) {
        return Liveness::Unverifiable(Doubt::OtherHost);
    }
    foreign_holder::liveness(pid)
}
