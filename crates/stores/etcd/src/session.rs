//! The session of a process that waits: [`ProcessSession`].
//!
//! A session is a key that is tied to an etcd lease, and named like the liveness lock of its process. While it
//! is there, the process counts as present on every machine, and its turn is not passed over. One task
//! keeps it alive. Leases do not depend on it: each has a life of its own.
//!
//! # Invariant
//!
//! A session that has ended is begun again under the same name. So a wait that was cut off from the cluster goes on in
//! its old place, if its ticket is still there.

use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant};

use tenure_core::{Binding, StoreError};
use tenure_host::clock::since_boot;

use crate::client::{Client, LEASE_NOT_FOUND};
use crate::cluster::{CallFailure, Cluster, no_thread};
use crate::layout::Layout;
use crate::proto::{RangeRequest, RequestOp, TxnRequest};
use crate::records::{SessionRecord, json};
use tenure_host::lock;

/// How long one keep-alive of the task may take.
const ATTEMPT: Duration = Duration::from_secs(1);

/// The session of this process at one store.
#[derive(Debug)]
pub(crate) struct ProcessSession {
    cluster: Arc<Cluster>,
    key: String,
    record: Vec<u8>,
    ttl: Duration,
    confirmation: Mutex<Confirmation>,
}

/// The etcd lease of a session, and what is known of it.
#[derive(Debug, Clone, Copy, Default)]
struct Confirmation {
    etcd_lease: i64,
    /// When the last confirmation was asked for, on the boot clock; `None` if something says that it has ended.
    at: Option<Duration>,
}

impl ProcessSession {
    /// Begins a session, and a task that keeps it alive until the session is dropped.
    pub(crate) fn begin(
        cluster: &Arc<Cluster>,
        layout: &Layout,
        binding: &Binding,
        ttl: Duration,
        by: Instant,
    ) -> Result<Arc<Self>, StoreError> {
        let name = binding.liveness_lock().map_or("", |lock| &lock.0);
        let session = Arc::new(Self {
            cluster: Arc::clone(cluster),
            key: layout.session(name),
            record: json(&SessionRecord {
                binding: binding.clone(),
            }),
            ttl,
            confirmation: Mutex::default(),
        });
        session.begin_again(by)?;
        let keep = keep(Arc::downgrade(&session), ttl);
        cluster.driver.spawn(keep).map_err(no_thread)?;
        Ok(session)
    }

    /// Its key in etcd.
    pub(crate) fn key(&self) -> &str {
        &self.key
    }

    fn confirmation(&self) -> MutexGuard<'_, Confirmation> {
        lock(&self.confirmation)
    }

    /// Whether the cluster may have ended it: no confirmation came for most of its time.
    pub(crate) fn may_have_ended(&self) -> bool {
        let confirmed = self.confirmation().at;
        confirmed.is_none_or(|at| since_boot().saturating_sub(at) > self.ttl / 2)
    }

    /// It may be gone although it was confirmed: a leader that is about to be deposed confirms what it can't keep.
    pub(crate) fn doubt(&self) {
        self.confirmation().at = None;
    }

    /// Shows the cluster that this process is alive; begins the session again if it has ended.
    pub(crate) fn confirm(&self, by: Instant) -> Result<(), StoreError> {
        let asked = since_boot();
        let kept = (self.key.clone(), self.etcd_lease());
        let keep = |client, (key, lease)| keep_alive(client, key, lease);
        match self.cluster.ask(by, &kept, keep) {
            Ok(()) => {
                self.confirmation().at = Some(asked);
                Ok(())
            }
            Err(CallFailure::LeaseEnded) => self.begin_again(by),
            Err(other) => Err(other.into_error()),
        }
    }

    /// Ties the session's key to a new etcd lease.
    fn begin_again(&self, by: Instant) -> Result<(), StoreError> {
        let (named, ttl) = ((self.key.clone(), self.record.clone()), self.ttl);
        let begin = |client, (key, record)| begin(client, key, record, ttl);
        let begun = self.cluster.ask(by, &named, begin);
        *self.confirmation() = begun.map_err(CallFailure::into_error)?;
        Ok(())
    }

    /// The etcd lease that its key is tied to.
    pub(crate) fn etcd_lease(&self) -> i64 {
        self.confirmation().etcd_lease
    }
}

/// Whole seconds, as etcd counts them, and never less than was asked for.
pub(crate) fn seconds(ttl: Duration) -> i64 {
    let up = ttl.as_secs() + u64::from(ttl.subsec_nanos() > 0);
    i64::try_from(up.max(1)).unwrap_or(i64::MAX)
}

async fn begin(
    client: Client,
    key: String,
    record: Vec<u8>,
    ttl: Duration,
) -> Result<Confirmation, tonic::Status> {
    let at = Some(since_boot());
    let etcd_lease = client.clone().grant(seconds(ttl)).await?.id;
    let put = RequestOp::put_tied(key, record, etcd_lease);
    client.txn(TxnRequest::always([put])).await?;
    Ok(Confirmation { etcd_lease, at })
}

/// Keeps an etcd lease alive, and makes sure that it is the session's: an attempt to begin the session that got no
/// answer can be carried out late, and tie the session to its own etcd lease.
async fn keep_alive(client: Client, key: String, lease: i64) -> Result<(), tonic::Status> {
    client.keep_alive(lease).await?;
    let found = client.range(RangeRequest::one(key)).await?;
    if found.kvs.first().is_some_and(|kv| kv.lease == lease) {
        Ok(())
    } else {
        Err(tonic::Status::not_found(LEASE_NOT_FOUND))
    }
}

/// Keeps a session alive for as long as it is not dropped.
async fn keep(session: Weak<ProcessSession>, ttl: Duration) {
    let mut pause = ttl / 3;
    loop {
        tokio::time::sleep(pause).await;
        let Some(session) = session.upgrade() else {
            return;
        };
        let asked = since_boot();
        let lease = session.etcd_lease();
        let member = session.cluster.current();
        let kept = tokio::time::timeout(ATTEMPT, session.keep_once(lease)).await;
        if kept.is_err() {
            // Its connection looks open, but it does not answer.
            session.cluster.give_up_on(member);
        }
        pause = match kept {
            Ok(Ok(())) => {
                let mut confirmation = session.confirmation();
                if confirmation.etcd_lease == lease {
                    confirmation.at = Some(asked);
                }
                ttl / 3
            }
            // Soon again: the time to live is running.
            Ok(Err(_)) | Err(_) => (ttl / 10).min(ATTEMPT),
        };
    }
}

impl ProcessSession {
    /// One keep-alive, or a new beginning if the session has ended: a waiter that sleeps must not lose its place.
    async fn keep_once(&self, lease: i64) -> Result<(), CallFailure> {
        let explain = |status| self.cluster.explain(&status);
        let (member, client) = self.cluster.client().await.map_err(explain)?;
        let kept = keep_alive(client.clone(), self.key.clone(), lease).await;
        match kept.map_err(explain) {
            Err(CallFailure::LeaseEnded) => {
                let begun = begin(client, self.key.clone(), self.record.clone(), self.ttl).await;
                *self.confirmation() = begun.map_err(explain)?;
                Ok(())
            }
            Err(other) => {
                self.cluster.give_up_on(member);
                Err(other)
            }
            Ok(()) => Ok(()),
        }
    }
}
