//! One lock at one place: [`LockProtocol`], what a protocol has to tell of it.
//!
//! A slot knows how its lock is written and read, and how a holder is judged that another program
//! wrote down. It decides nothing: that is for [`tenure_core::decide`], and what is done to the
//! place is for [`crate::files::takeover`].

use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};
use tenure_core::{Key, Lease, Liveness, Token};

use crate::files::atomic::Put;
use crate::files::lock_watch::Listen;

/// Tells one lock apart from every other that ever stood at the place. Moving it changes nothing;
/// writing into it does.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint {
    /// The device and inode.
    pub file: (u64, u64),
    /// A digest of what is in it.
    pub digest: u64,
}

/// How the holder of a lock is to be judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HolderProof {
    /// By what its lease is tied to: tenure wrote it.
    Binding,
    /// As the protocol says, which has been done.
    Protocol(Liveness),
}

/// A lock that stands somewhere.
#[derive(Debug, Clone)]
pub struct FoundLock {
    /// Which one it is.
    pub fingerprint: Fingerprint,
    /// What it says. The token is [`Token::NONE`] if another program wrote it.
    pub lease: Lease,
    /// How to judge its holder.
    pub proof: HolderProof,
    /// Why it can't be understood, if it can't.
    pub flaw: Option<String>,
}

impl FoundLock {
    /// Whether it is the lock of this very lease.
    pub fn is(&self, lease: &Lease) -> bool {
        self.flaw.is_none()
            && self.lease.token != Token::NONE
            && self.lease.token == lease.token
            && self.lease.holder.id == lease.holder.id
            && self.lease.acquired_at == lease.acquired_at
    }
}

/// What it means that somebody removed a lock of ours without asking.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Removal {
    /// A mistaken checker did: whoever runs under the lock puts it back. A script that knows nothing
    /// of tenure meant to release it.
    Mistake,
    /// It was taken away, and somebody else may have held it since: the lease is over.
    Loss,
}

/// One lock at one place.
pub trait LockProtocol: Send + Sync {
    /// The one key that it is the lock of.
    fn key(&self) -> &Key;

    /// Where the lock is.
    fn path(&self) -> &Path;

    /// What stands at `path`: at the place itself, or where it was moved to. What is there and
    /// can't be read or understood is found with its flaw.
    fn read(&self, path: &Path) -> Option<FoundLock>;

    /// Writes the lock of a lease under a private name.
    fn prepare(&self, lease: &Lease, path: &Path) -> io::Result<()>;

    /// Puts what has a private name at the place, if that is free.
    fn put(&self, from: &Path) -> io::Result<Put>;

    /// Whether [`LockProtocol::discard`] could remove what stands at `path`.
    fn may_discard(&self, path: &Path) -> bool;

    /// Removes what has a private name; it need not be there.
    fn discard(&self, path: &Path) -> io::Result<()>;

    /// What it means that somebody removed a lock of ours.
    fn removal(&self) -> Removal {
        Removal::Mistake
    }

    /// What those who wait have to hear: all that other programs do to the place, and as little as
    /// possible of what tenure does.
    fn listen_for(&self) -> Listen {
        Listen::Others
    }
}

/// A digest of some bytes (FNV-1a), the same in every version and on every machine.
pub fn digest(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}
