//! The lives of leases: [`Lives`].
//!
//! A lease lives as long as a key of its own that is tied to an etcd lease. A renewal gives it a new one: that is
//! one write of the cluster, which a member that has lost its leadership can't acknowledge, unlike a keep-alive.

use std::collections::HashMap;
use std::time::Duration;

use tenure_host::clock::since_boot;

use crate::session::seconds;

/// An etcd lease that a lease lives by.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Life {
    pub(crate) etcd_lease: i64,
    pub(crate) seconds: i64,
    /// When it was asked for, on the boot clock.
    pub(crate) asked: Duration,
}

impl Life {
    /// Whether it is so young that a lease with this time to live may begin with it: its holder trusts it from the
    /// beginning of the call, less a tenth or five seconds.
    fn is_fresh(&self, ttl: Duration) -> bool {
        let age = since_boot().saturating_sub(self.asked);
        self.seconds == seconds(ttl) && age <= (ttl / 20).min(Duration::from_secs(2))
    }
}

/// The lives of this process's leases.
///
/// # Invariant
///
/// A life that a lease may live by is never a spare one: a spare one is used again, or revoked. The life of a transaction
/// whose outcome is unknown is neither; it ends by itself.
#[derive(Debug, Default)]
pub(crate) struct Lives {
    /// Those that no lease lives by.
    spare: Vec<Life>,
    /// By the name of the lease.
    held: HashMap<String, Life>,
}

impl Lives {
    /// A spare one that is as good as new.
    pub(crate) fn take_spare(&mut self, ttl: Duration) -> Option<Life> {
        let fresh = self.spare.iter().position(|life| life.is_fresh(ttl))?;
        Some(self.spare.swap_remove(fresh))
    }

    /// No lease lives by it any more, or yet.
    pub(crate) fn put_back(&mut self, life: Life) {
        self.spare.push(life);
    }

    /// A lease lives by it.
    pub(crate) fn begin(&mut self, name: String, life: Life) {
        self.held.insert(name, life);
    }

    /// A lease has ended.
    pub(crate) fn end(&mut self, name: &str) {
        if let Some(life) = self.held.remove(name) {
            self.put_back(life);
        }
    }

    /// Those that are too old to be used again, to be revoked.
    pub(crate) fn take_stale(&mut self) -> Vec<i64> {
        let fresh =
            |life: &mut Life| !life.is_fresh(Duration::from_secs(life.seconds.unsigned_abs()));
        let stale = self.spare.extract_if(.., fresh);
        stale.map(|life| life.etcd_lease).collect()
    }

    /// All that no lease lives by, at the end.
    pub(crate) fn take_all(&mut self) -> Vec<i64> {
        self.spare.drain(..).map(|life| life.etcd_lease).collect()
    }
}
