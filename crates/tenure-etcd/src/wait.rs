//! Waits for what lets a waiter go on.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::{ErrorKind, Holder, Presence, StoreError, Waited, Watched};
use tenure_host::identity;

use crate::cluster::Cluster;
use crate::proto::{NO_PUT, WatchCreateRequest, after};
use crate::store::{EtcdStore, WAKE_UP_BITS, lock};

impl EtcdStore {
    /// Blocks until something that is watched has changed, or the time has passed.
    pub(crate) fn sleep(
        &self,
        watched: &Watched<'_>,
        timeout: Duration,
    ) -> Result<Waited, StoreError> {
        let generation = self.presence.generation();
        let seen_wake_ups = watched.seen.0 & ((1 << WAKE_UP_BITS) - 1);
        if u64::from(generation) & ((1 << WAKE_UP_BITS) - 1) != seen_wake_ups {
            return Ok(Waited::Changed);
        }
        let no_wait = |error| {
            StoreError::new(ErrorKind::Io, "this process can't wait to be woken").because(error)
        };
        let seen = i64::try_from(watched.seen.0 >> WAKE_UP_BITS).unwrap_or(i64::MAX);
        let ring = self.presence.ringer().map_err(no_wait)?;
        let keys = self.watched_keys(watched, seen.saturating_add(1));
        let cluster = Arc::clone(&self.cluster);
        let holds = watched.ahead.is_empty();
        let watching = self.cluster.handle().spawn(async move {
            if holds {
                tokio::time::sleep(SHORT_HOLD).await;
            }
            watch(&cluster, keys).await;
            ring();
        });
        let here = |holder: &&Holder| {
            let process = holder.binding.process();
            process.is_some_and(|process| process.boot.same(identity::boot()))
        };
        let ahead = watched.ahead.iter().copied().filter(here);
        self.presence.watch(ahead).map_err(no_wait)?;
        let woken = self.presence.wait(generation, timeout);
        watching.abort();
        Ok(if woken.map_err(no_wait)? {
            Waited::Changed
        } else {
            Waited::TimedOut
        })
    }

    /// What to watch in etcd, so that a wait does not miss what lets it go on.
    fn watched_keys(&self, watched: &Watched<'_>, from: i64) -> Vec<WatchCreateRequest> {
        let key = watched.key;
        let request = |key: String| WatchCreateRequest {
            key: key.into_bytes(),
            start_revision: from,
            ..WatchCreateRequest::default()
        };
        let removal = |key: String| WatchCreateRequest {
            filters: vec![NO_PUT],
            ..request(key)
        };
        let known = lock(&self.known);
        let records = known.get(key).map(|known| &known.records);
        let tickets = records.into_iter().flat_map(|records| &records.tickets);
        let mut keys: Vec<WatchCreateRequest> = tickets
            .filter(|one| {
                one.waiter.presence == Presence::Here && self.presence.is_us(&one.waiter.holder)
            })
            .map(|one| request(self.layout.ticket(key, &one.name)))
            .collect();
        for holder in &watched.ahead {
            let leases = records.into_iter().flat_map(|records| &records.leases);
            let held = leases.filter(|one| one.record.holder == **holder);
            keys.extend(held.map(|one| removal(self.layout.life(key, &one.name))));
            if let Some(lock) = holder.liveness_lock() {
                keys.push(removal(self.layout.session(&lock.0)));
            }
        }
        if watched.ahead.is_empty() {
            // The holder of a lease waits for its end.
            let leases = self.layout.key(key) + "l/";
            keys.push(WatchCreateRequest {
                range_end: after(&leases),
                ..removal(leases)
            });
        }
        keys
    }
}

/// A holder that is done so soon does not watch its lease: most of the cost of a short hold would be the watch. It
/// begins at the revision that was seen, so nothing is missed.
const SHORT_HOLD: Duration = Duration::from_millis(50);

/// How long a member that can't be watched is left alone.
const WATCH_AGAIN: Duration = Duration::from_secs(1);

/// Returns when one of these keys has changed. If the connection breaks it returns, too: the caller asks again.
async fn watch(cluster: &Cluster, keys: Vec<WatchCreateRequest>) {
    let Ok((member, client)) = cluster.client().await else {
        return tokio::time::sleep(WATCH_AGAIN).await;
    };
    let Ok(mut stream) = client.watch(keys).await else {
        cluster.give_up_on(member);
        return tokio::time::sleep(WATCH_AGAIN).await;
    };
    while let Ok(Some(answer)) = stream.message().await {
        if !answer.events.is_empty() || answer.canceled {
            return;
        }
    }
    cluster.give_up_on(member);
}
