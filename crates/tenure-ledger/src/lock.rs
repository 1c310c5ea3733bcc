//! The ledger lock `ledger.lock`, which tenure takes for other programs' sake.
//!
//! ```json
//! {"agent_id":"tenure","acquired_at":"2026-11-15T18:49:40.407123456Z","pid":12345,"hostname":"dev-machine","tenure":{"started":1611857,"boot":"4bc46893-…","namespace":"pid:[4026531836]"}}
//! ```
//!
//! Tenure's own processes have their turns ([`crate::writer_lock`]); whoever has the turn takes the lock.
//!
//! | what stands there | what is done |
//! |---|---|
//! | nothing | the lock is linked there, whole: it is never empty |
//! | a lock of tenure's (another name of a file in the side folder) | whoever wrote it has no turn any more, so it is dead: taken over |
//! | one that names a process of tenure's which is proven gone | the same, by a swap ([`tenure_host::files::takeover`]) |
//! | a file of another program, an empty one, a folder | waited for: its removal wakes us; reported after [`TIMEOUT`] |
//!
//! # Invariants
//!
//! 1. The lock's place never stands free while it is taken over (G5).
//! 2. What is not proven dead is left alone (G4), but for [`LedgerLock::break_it`].
//! 3. A lock that is not ours is not removed when we let go.
//!
//! The lock file of one user is one inode that is written in place and linked: to make and unlink a
//! file for every append would cost more than the rest of it. After a power cut it may be empty, and
//! is still known by its inode.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use tenure_core::{
    Binding, Clock, Deadline, Holder, HolderId, Key, Lease, Liveness, Moment, Process, StoreError,
    Token,
};
use tenure_host::{LivenessFolder, identity, liveness};

use crate::standing::{Standing, What};
use tenure_host::files::atomic::{self, Put};
use tenure_host::files::fault::explain;
use tenure_host::files::lock_watch::{Listen, LockWatch};
use tenure_host::files::protocol::{Fingerprint, FoundLock, HolderProof, LockProtocol, digest};
use tenure_host::files::sidecar::Sidecar;
use tenure_host::files::takeover::{self, Taken};

/// The lock's name in the ledger's folder.
pub(super) const FILE: &str = "ledger.lock";

/// How long to wait for another program that keeps the lock.
pub const TIMEOUT: Duration = Duration::from_secs(5);

/// How often to look, should the kernel not tell: what the protocol says.
const POLL: Duration = Duration::from_millis(10);

/// How often to look when it does.
const SAFETY_NET: Duration = Duration::from_millis(500);

/// What the lock file says.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Record {
    agent_id: String,
    #[serde(default)]
    acquired_at: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pid: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hostname: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    tenure: Option<Extra>,
}

/// What tells a process from every other that ever had its pid.
#[derive(Debug, Clone, Serialize, Deserialize)]
struct Extra {
    started: u64,
    boot: tenure_core::Epoch,
    namespace: String,
}

impl Record {
    /// The process that wrote it, if tenure did.
    fn process(&self) -> Option<Process> {
        let extra = self.tenure.clone()?;
        Some(Process {
            pid: self.pid?,
            started: extra.started,
            boot: extra.boot,
            namespace: extra.namespace,
            host: self.hostname.clone()?,
        })
    }
}

/// The lock of one ledger.
#[derive(Debug)]
pub(super) struct LedgerLock {
    place: PathBuf,
    side: Sidecar,
    key: Key,
    /// Hears when the lock goes. `None` if the kernel can't tell.
    watch: OnceLock<Option<LockWatch>>,
}

/// What came of asking for it.
#[derive(Debug)]
#[must_use]
pub(super) enum Asked<'a> {
    Taken(Held<'a>),
    /// Something stands there that can't be proven dead.
    Busy(Standing),
}

/// The lock, while we have it. It is given back when this is dropped.
#[derive(Debug)]
#[must_use]
pub(super) struct Held<'a> {
    lock: &'a LedgerLock,
    inode: (u64, u64),
}

impl Drop for Held<'_> {
    fn drop(&mut self) {
        // Invariant 3.
        if inode(&self.lock.place) == Some(self.inode) {
            let _ = fs::remove_file(&self.lock.place);
        }
    }
}

/// What came of breaking it.
#[derive(Debug, Clone)]
#[must_use]
pub enum Broken {
    /// Nothing stood there.
    NotHeld,
    /// It is gone.
    Removed(Standing),
    /// It is younger than that, or nobody used force: it stands.
    Refused(Standing),
}

impl LedgerLock {
    pub(super) fn new(ledger: &Path, side: &Sidecar) -> Result<Self, StoreError> {
        let key = Key::parse("ledger").map_err(|error| {
            StoreError::new(tenure_core::ErrorKind::Io, "the lock has no name").because(error)
        })?;
        Ok(Self {
            place: ledger.join(FILE),
            side: side.clone(),
            key,
            watch: OnceLock::new(),
        })
    }

    /// Our own name for the lock. One for each user: it may be read and written by nobody else.
    fn mine(&self) -> PathBuf {
        let user = rustix::process::getuid().as_raw();
        self.side.path().join(format!("lock.{user}"))
    }

    /// Takes the lock, in our turn. Waits for other programs.
    pub(super) fn take(&self, clock: &dyn Clock, agent: &str) -> Result<Asked<'_>, StoreError> {
        let mut since = clock.now().ticks;
        let mut seen = None;
        loop {
            let now = clock.now();
            if let Some(inode) = self.try_take(&now, agent)? {
                return Ok(Asked::Taken(Held { lock: self, inode }));
            }
            let Some(standing) = self.standing(&now) else {
                continue;
            };
            // Another lock than before: others get on, and so shall we.
            if seen.as_ref() != Some(&standing.mark) {
                since = now.ticks;
                seen = Some(standing.mark.clone());
            }
            let left = TIMEOUT.saturating_sub(now.ticks.saturating_sub(since));
            if left.is_zero() {
                return Ok(Asked::Busy(standing));
            }
            self.wait(left);
        }
    }

    /// Tries once; which inode the lock is then.
    fn try_take(&self, now: &Moment, agent: &str) -> Result<Option<(u64, u64)>, StoreError> {
        let (mine, at) = (self.mine(), &self.place);
        let fault = |error| explain("written", at, error);
        let record = record(now, agent);
        let file = open_mine(&mine).map_err(|error| explain("written", &mine, error))?;
        let ours = file.metadata().map_err(fault)?;
        let inode_of_ours = (ours.dev(), ours.ino());
        if ours.nlink() > 1 {
            if inode(at) == Some(inode_of_ours) {
                // Ours, and it is our turn: whoever put it there is gone. It says so from now on.
                overwrite(&file, &record).map_err(fault)?;
                return Ok(Some(inode_of_ours));
            }
            // Somebody gave it another name: leave them that.
            atomic::unlink(&mine).map_err(fault)?;
            return Ok(None);
        }
        overwrite(&file, &record).map_err(|error| explain("written", &mine, error))?;
        match atomic::put(&mine, at).map_err(fault)? {
            Put::Done => return Ok(Some(inode_of_ours)),
            Put::Occupied => {}
        }
        let Some(judged) = self.proven_dead() else {
            return Ok(None);
        };
        // Another user's, or its own side folder is gone. Our name then is what came out.
        match takeover::swap(self, &mine, &judged).map_err(fault)? {
            Taken::Done => {
                atomic::unlink(&mine).map_err(fault)?;
                let (Put::Done | Put::Occupied) = atomic::put(at, &mine).map_err(fault)?;
                Ok(Some(inode_of_ours))
            }
            Taken::Different | Taken::Missing => Ok(None),
        }
    }

    /// The lock that stands there, if whoever wrote it is proven dead: it is tenure's and has not
    /// the turn, which is ours.
    fn proven_dead(&self) -> Option<Fingerprint> {
        let found = self.read(&self.place)?;
        let ours = self.is_of_tenure(found.fingerprint.file);
        let HolderProof::Protocol(judged) = &found.proof else {
            return None;
        };
        (ours || matches!(judged, Liveness::Gone(_))).then_some(found.fingerprint)
    }

    /// Whether some name in the side folder leads to the same file.
    fn is_of_tenure(&self, file: (u64, u64)) -> bool {
        let names = fs::read_dir(self.side.path())
            .into_iter()
            .flatten()
            .flatten();
        names
            .filter(|entry| entry.file_name().to_string_lossy().starts_with("lock."))
            .any(|entry| inode(&entry.path()) == Some(file))
    }

    /// What stands there, in words. `None` if nothing does.
    pub(super) fn standing(&self, now: &Moment) -> Option<Standing> {
        let at = self.place.symlink_metadata().ok()?;
        let found = self.read(&self.place)?;
        let bytes = fs::read(&self.place).unwrap_or_default();
        let record = serde_json::from_slice::<Record>(&bytes).ok();
        let what = match &record {
            _ if at.is_dir() => What::Folder,
            _ if !at.is_file() => What::Strange,
            _ if bytes.is_empty() => What::Empty,
            None => What::Malformed,
            Some(_) => What::Record,
        };
        let written = record
            .as_ref()
            .and_then(|record| tenure_host::files::rfc3339::parse(record.acquired_at.as_deref()?));
        let nanos = i32::try_from(at.mtime_nsec()).unwrap_or(0);
        let changed = Timestamp::new(at.mtime(), nanos).unwrap_or(Timestamp::UNIX_EPOCH);
        let since = written.unwrap_or(changed);
        Some(Standing {
            place: self.place.clone(),
            what,
            agent: record.as_ref().map(|record| record.agent_id.clone()),
            process: record.as_ref().and_then(Record::process),
            since,
            age: Duration::try_from(now.wall.duration_since(since)).unwrap_or_default(),
            dead: self.proven_dead().is_some(),
            mark: found.fingerprint,
        })
    }

    /// Sleeps until the lock goes, but not for longer than this.
    fn wait(&self, limit: Duration) {
        let listen = || LockWatch::on(&self.place, Listen::Everything).ok();
        // LeaseRecord: the kernel takes ten milliseconds to close one.
        let watch = self.watch.get_or_init(listen);
        let Some(watch) = watch else {
            std::thread::sleep(POLL.min(limit));
            return;
        };
        // It may have gone before we listened; whatever was heard before is from then.
        if !watch.take().is_ok_and(|heard| heard.is_empty()) || !self.place.exists() {
            return;
        }
        let _ = watch.wait(limit.min(SAFETY_NET));
    }

    /// Removes a lock that can't be proven dead, for somebody who knows better. In our turn.
    pub(super) fn break_it(
        &self,
        now: &Moment,
        older_than: Option<Duration>,
        force: bool,
    ) -> Result<Broken, StoreError> {
        let Some(standing) = self.standing(now) else {
            return Ok(Broken::NotHeld);
        };
        let old_enough = older_than.is_none_or(|limit| standing.age >= limit);
        if !(standing.dead || force && old_enough) {
            return Ok(Broken::Refused(standing));
        }
        if standing.what == What::Folder
            && fs::read_dir(&self.place).is_ok_and(|mut inside| inside.next().is_some())
        {
            let what = format!("{} is a folder with something in it", self.place.display());
            return Err(StoreError::new(tenure_core::ErrorKind::NotAStore, what)
                .fix("look what is in it, and move it away by hand"));
        }
        let aside = self.side.aside();
        let fault = |error| explain("removed", &self.place, error);
        match takeover::remove(self, &aside, &standing.mark).map_err(fault)? {
            Taken::Done => Ok(Broken::Removed(standing)),
            Taken::Missing => Ok(Broken::NotHeld),
            Taken::Different => Ok(self.standing(now).map_or(Broken::NotHeld, Broken::Refused)),
        }
    }

    /// Puts back what was on its way out when somebody was killed: it may be a live one.
    pub(super) fn put_back_what_was_aside(&self) -> Result<(), StoreError> {
        let aside = self.side.aside();
        if aside.symlink_metadata().is_err() {
            return Ok(());
        }
        let put = if aside.is_dir() {
            atomic::take_aside(&aside, &self.place).map(|_| ())
        } else {
            self.put(&aside).map(|_| ())
        };
        // Something newer stands there: that counts.
        let occupied = |error: &io::Error| error.kind() == io::ErrorKind::AlreadyExists;
        match put {
            Err(error) if !occupied(&error) => Err(explain("changed", &self.place, error)),
            _ => self
                .discard(&aside)
                .map_err(|error| explain("removed", &aside, error)),
        }
    }
}

/// So that it can be taken over and removed as every other lock.
impl LockProtocol for LedgerLock {
    fn key(&self) -> &Key {
        &self.key
    }

    fn path(&self) -> &Path {
        &self.place
    }

    fn read(&self, path: &Path) -> Option<FoundLock> {
        let at = path.symlink_metadata().ok()?;
        let bytes = if at.is_file() {
            fs::read(path).unwrap_or_default()
        } else {
            Vec::new()
        };
        let record = serde_json::from_slice::<Record>(&bytes).ok();
        let process = record.as_ref().and_then(Record::process);
        let judged = match &process {
            Some(process) => {
                let binding = Binding::Process {
                    process: process.clone(),
                };
                liveness::probe(&LivenessFolder::new(self.side.path()), &binding)
            }
            None => Liveness::Unverifiable(tenure_core::Doubt::Unreadable),
        };
        let agent = record.as_ref().map(|record| record.agent_id.clone());
        let holder = Holder {
            id: agent
                .and_then(|agent| HolderId::parse(agent).ok())
                .unwrap_or_else(HolderId::unreadable),
            host: process.map_or_else(|| "?".into(), |process| process.host),
            command: None,
            binding: Binding::Detached,
        };
        let never = Deadline {
            wall: Timestamp::MAX,
            ticks: Duration::ZERO,
            epoch: tenure_core::Epoch::unknown(),
        };
        Some(FoundLock {
            fingerprint: Fingerprint {
                file: (at.dev(), at.ino()),
                digest: digest(&bytes),
            },
            lease: Lease {
                key: self.key.clone(),
                holder,
                token: Token::NONE,
                acquired_at: Timestamp::UNIX_EPOCH,
                expires: never,
                heartbeat_at: Timestamp::UNIX_EPOCH,
                ttl: Duration::ZERO,
            },
            proof: HolderProof::Protocol(judged),
            flaw: None,
        })
    }

    /// Nobody asks for this: the lock is written in place.
    fn prepare(&self, _lease: &Lease, _path: &Path) -> io::Result<()> {
        Err(io::ErrorKind::Unsupported.into())
    }

    fn put(&self, from: &Path) -> io::Result<Put> {
        atomic::put(from, &self.place)
    }

    fn may_discard(&self, _path: &Path) -> bool {
        true
    }

    fn discard(&self, path: &Path) -> io::Result<()> {
        // A script's folder is empty; one that is not holds what somebody may want.
        match path.symlink_metadata() {
            Ok(at) if at.is_dir() => fs::remove_dir(path),
            Ok(_) => fs::remove_file(path),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }
}

/// What the lock says while we have it.
fn record(now: &Moment, agent: &str) -> Vec<u8> {
    let process = identity::this_process();
    let record = Record {
        agent_id: agent.to_owned(),
        acquired_at: Some(now.wall.to_string()),
        pid: Some(process.pid),
        hostname: Some(process.host),
        tenure: Some(Extra {
            started: process.started,
            boot: process.boot,
            namespace: process.namespace,
        }),
    };
    let mut bytes = serde_json::to_vec(&record).unwrap_or_default();
    bytes.push(b'\n');
    bytes
}

fn open_mine(path: &Path) -> io::Result<File> {
    File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .mode(0o600)
        .open(path)
}

fn overwrite(file: &File, bytes: &[u8]) -> io::Result<()> {
    file.write_all_at(bytes, 0)?;
    let length = u64::try_from(bytes.len()).unwrap_or(u64::MAX);
    if file.metadata()?.len() != length {
        file.set_len(length)?;
    }
    Ok(())
}

fn inode(path: &Path) -> Option<(u64, u64)> {
    let at = path.symlink_metadata().ok()?;
    Some((at.dev(), at.ino()))
}
