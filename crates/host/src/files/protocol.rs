//! [`LockProtocol`]: how one lock, shared with other programs, is written, read and removed.
//!
//! A protocol reads and writes its lock and applies the protocol's own rule for holders that another
//! program recorded. It makes no decisions: those are [`tenure_core::decide`]'s. The order of
//! changes to the lock is [`crate::files::takeover`]'s.

use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};
use tenure_core::{Holder, Key, Lease, Liveness, Token};

use crate::exit_helper::ExitHelper;
use crate::exit_watch::ExitWatch;
use crate::files::atomic::PutResult;
use crate::files::lock_watch::Listen;

/// Identifies one lock among all that ever had the same path. Renaming a lock keeps its
/// fingerprint; writing into it changes it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint {
    /// The device and inode.
    pub file: (u64, u64),
    /// A digest of the contents.
    pub digest: u64,
}

/// How to tell whether the holder of a lock is alive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HolderProof {
    /// By the lease's binding: tenure wrote the lock.
    Binding,
    /// By the protocol's own rule, with this result: another program wrote the lock.
    Protocol(Liveness),
}

/// A lock that was read from a path.
#[derive(Debug, Clone)]
pub struct FoundLock {
    /// Which lock it is.
    pub fingerprint: Fingerprint,
    /// The lease that it states. The token is [`Token::NONE`] if another program wrote the lock.
    pub lease: Lease,
    /// How to tell whether its holder is alive.
    pub proof: HolderProof,
    /// Why the lock can't be read or parsed, if it can't.
    pub flaw: Option<String>,
}

impl FoundLock {
    /// Whether this is the lock of exactly this lease.
    pub fn is(&self, lease: &Lease) -> bool {
        self.flaw.is_none()
            && self.lease.token != Token::NONE
            && self.lease.token == lease.token
            && self.lease.holder.id == lease.holder.id
            && self.lease.acquired_at == lease.acquired_at
    }
}

/// What it means when another program removes a lock of tenure's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removal {
    /// A mistaken checker removed it: a holder that runs under the lock puts it back. If the lease
    /// belongs to a process that knows nothing of tenure (`acquire --pid`), that process released it.
    Mistake,
    /// The lease is lost: another program may have held the lock since.
    Loss,
}

/// A lock at a path, as far as [`takeover`](crate::files::takeover) needs it.
pub trait LockAtPath {
    /// The path of the lock.
    fn path(&self) -> &Path;

    /// Which lock is at `path`: the lock's own path or a private name. `None` means that nothing exists there.
    fn fingerprint(&self, path: &Path) -> Option<Fingerprint>;

    /// Gives a prepared lock its public path, if that is free.
    fn put(&self, from: &Path) -> io::Result<PutResult>;

    /// Removes a lock that has a private name. A missing one is no error.
    fn discard(&self, path: &Path) -> io::Result<()>;
}

/// One lock at one path, which states a lease.
pub trait LockProtocol: LockAtPath + Send + Sync {
    /// The only key of this lock.
    fn key(&self) -> &Key;

    /// Reads the lock at `path`: the lock's own path or a private name. A lock that can't be read or
    /// parsed is returned with its flaw; `None` means that nothing exists there.
    fn read(&self, path: &Path) -> Option<FoundLock>;

    /// Writes the lock of a lease under a private name.
    fn prepare(&self, lease: &Lease, path: &Path) -> io::Result<()>;

    /// Whether [`LockAtPath::discard`] may remove what is at `path`.
    fn may_discard(&self, path: &Path) -> bool;

    /// For a protocol whose other programs can't remove the lock of a killed holder: starts what clears up a
    /// prepared lock once its holder has exited.
    fn clear_up_after_exit(
        &self,
        _prepared: &Path,
        _holder: &Holder,
        _exit: &ExitWatch,
    ) -> io::Result<Option<ExitHelper>> {
        Ok(None)
    }

    /// What it means when another program removes a lock of tenure's.
    fn removal(&self) -> Removal {
        Removal::Mistake
    }

    /// Which changes wake a waiter: all that other programs make to the lock, and as few of tenure's
    /// own as possible.
    fn listen_for(&self) -> Listen {
        Listen::Others
    }
}

/// What became of a step of a store whose files other programs change, too.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use]
pub enum Committed {
    /// It was made.
    Yes,
    /// Another program was faster. Nothing was changed, or what was is no part of the step.
    Conflict,
}

/// A digest (FNV-1a) that is the same in every version and on every machine.
pub fn digest(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
