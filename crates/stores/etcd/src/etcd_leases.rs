//! The etcd leases that this process has asked for: [`EtcdLeases`].
//!
//! A lease lives as long as a key of its own, its *life*, which is tied to an etcd lease. A renewal ties it to a new one: that
//! is one write of the cluster, which a member that has lost its leadership can't acknowledge, unlike a keep-alive.

use std::collections::HashMap;
use std::time::Duration;

use tenure_host::clock::since_boot;

use crate::session::seconds;

/// An etcd lease for the life of a lease.
#[derive(Debug, Clone, Copy)]
pub(crate) struct EtcdLease {
    pub(crate) id: i64,
    pub(crate) seconds: i64,
    /// When it was asked for, on the boot clock.
    pub(crate) asked: Duration,
}

impl EtcdLease {
    /// Whether it is so young that a lease with this time to live may begin with it: its holder trusts it from the
    /// beginning of the call, less a tenth or five seconds.
    fn is_fresh(&self, ttl: Duration) -> bool {
        let age = since_boot().saturating_sub(self.asked);
        self.seconds == seconds(ttl) && age <= (ttl / 20).min(Duration::from_secs(2))
    }
}

/// The etcd leases of this process.
///
/// # Invariant
///
/// One that a life may be tied to is never a spare one: a spare one is used again, or revoked. That of a transaction whose
/// outcome is unknown is neither; it ends by itself.
#[derive(Debug, Default)]
pub(crate) struct EtcdLeases {
    /// Those that no life is tied to.
    spare: Vec<EtcdLease>,
    /// By the life that is tied to it.
    held: HashMap<String, EtcdLease>,
}

impl EtcdLeases {
    /// A spare one that is as good as new.
    pub(crate) fn take_spare(&mut self, ttl: Duration) -> Option<EtcdLease> {
        let fresh = self.spare.iter().position(|one| one.is_fresh(ttl))?;
        Some(self.spare.swap_remove(fresh))
    }

    /// No life is tied to it any more, or yet.
    pub(crate) fn put_back(&mut self, one: EtcdLease) {
        self.spare.push(one);
    }

    /// A life is tied to it, and no longer to another one.
    pub(crate) fn begin(&mut self, life: String, one: EtcdLease) {
        let before = self.held.insert(life, one);
        self.spare.extend(before);
    }

    /// A life has ended.
    pub(crate) fn end(&mut self, life: &str) {
        if let Some(one) = self.held.remove(life) {
            self.put_back(one);
        }
    }

    /// Those that are too old to be used again, to be revoked.
    pub(crate) fn take_stale(&mut self) -> Vec<i64> {
        let is_stale =
            |one: &mut EtcdLease| !one.is_fresh(Duration::from_secs(one.seconds.unsigned_abs()));
        let stale = self.spare.extract_if(.., is_stale);
        stale.map(|one| one.id).collect()
    }

    /// All that no life is tied to, at the end.
    pub(crate) fn take_all(&mut self) -> Vec<i64> {
        self.spare.drain(..).map(|one| one.id).collect()
    }
}
