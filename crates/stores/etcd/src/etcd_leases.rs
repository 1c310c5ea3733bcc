//! The etcd leases that this process has asked for: [`EtcdLeases`].
//!
//! A lease lives as long as a key of its own, its *life*, which is tied to an etcd lease. A renewal ties it to a new one: that
//! is one write of the cluster, which a member that has lost its leadership can't acknowledge, unlike a keep-alive.

use std::collections::HashMap;
use std::time::Duration;

/// An etcd lease for the life of a lease.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EtcdLease {
    pub(crate) id: i64,
    pub(crate) seconds: i64,
    /// When it was asked for, on the boot clock.
    pub(crate) asked: Duration,
}

/// The etcd leases of this process.
///
/// # Invariant
///
/// One that a life may be tied to is never unused: an unused one is used again, or revoked. That of a transaction whose
/// outcome is unknown is neither; it ends by itself.
#[derive(Debug, Default)]
pub(crate) struct EtcdLeases {
    /// Those that no life is tied to.
    pub(crate) unused: Vec<EtcdLease>,
    /// By the life that is tied to it.
    used: HashMap<String, EtcdLease>,
}

impl EtcdLeases {
    /// A life is tied to it, and no longer to another one.
    pub(crate) fn begin(&mut self, life: String, one: EtcdLease) {
        let before = self.used.insert(life, one);
        self.unused.extend(before);
    }

    /// A life has ended.
    pub(crate) fn end(&mut self, life: &str) {
        self.unused.extend(self.used.remove(life));
    }

    /// Those that no life is tied to, to be revoked.
    pub(crate) fn take_unused(&mut self) -> Vec<i64> {
        self.unused.drain(..).map(|one| one.id).collect()
    }
}
