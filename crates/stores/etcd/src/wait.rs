//! Waits for what lets a waiter go on.

use std::sync::Arc;
use std::time::Duration;

use tenure_core::{ErrorKind, Holder, Presence, StoreError, Waited, Watched};
use tenure_host::clock::since_boot;

use crate::client::Client;
use crate::cluster::{Cluster, no_thread};
use crate::proto::{KeyValue, NO_PUT, RangeRequest, WatchCreateRequest, after};
use crate::store::{EtcdStore, WAKE_UP_BITS};
use tenure_host::lock;

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
        let (tickets, keys) = self.watched_keys(watched, seen);
        let cluster = Arc::clone(&self.cluster);
        let driver = &self.cluster.driver;
        let watch = async move {
            watch(&cluster, tickets, keys, seen).await;
            ring();
        };
        let watching = driver.spawn(watch).map_err(no_thread)?;
        let _driven = driver.driven().map_err(no_thread)?;
        // A process whose end proves nothing would wake this one again and again.
        let here = |holder: &&Holder| self.can_prove(&holder.binding);
        let ahead = watched.ahead.iter().copied().filter(here);
        let exits = self.presence.watch(ahead);
        // A waiter ahead may let its turn pass, of which no other process tells.
        let passes = lock(&self.let_pass).next(watched.key, since_boot());
        let until = passes.map_or(timeout, |left| left.min(timeout));
        let woken = self.presence.wait(generation, &exits, until);
        watching.abort();
        Ok(if woken.map_err(no_wait)? || until < timeout {
            Waited::Changed
        } else {
            Waited::TimedOut
        })
    }

    /// What to watch in etcd, so that a wait does not miss what lets it go on: the tickets of this process, and
    /// the rest.
    fn watched_keys(
        &self,
        watched: &Watched<'_>,
        seen: i64,
    ) -> (Vec<String>, Vec<WatchCreateRequest>) {
        let removal = |key: String| WatchCreateRequest {
            key: key.into_bytes(),
            start_revision: seen.saturating_add(1),
            filters: vec![NO_PUT],
            ..WatchCreateRequest::default()
        };
        let known = lock(&self.known);
        let (mut own, mut keys) = (Vec::new(), Vec::new());
        let others = watched.others.iter().map(|(key, _)| *key);
        for key in std::iter::once(watched.key).chain(others) {
            let records = known.get(key).map(|known| &known.records);
            let tickets = records.into_iter().flat_map(|records| &records.tickets);
            let ours = tickets.filter(|one| {
                one.waiter.presence == Presence::Here && self.presence.is_us(&one.waiter.holder)
            });
            own.extend(ours.map(|one| self.layout.ticket(key, &one.name)));
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
        }
        (own, keys)
    }
}

/// How often a ticket is watched. If the cluster writes anything while a member begins to watch from now on, the member takes that
/// for the past, and looks at it up to 100 ms later. On a busy cluster, that happened to every thirtieth watch.
const SURE: usize = 2;

/// How long a member that can't be watched is left alone.
const WATCH_AGAIN: Duration = Duration::from_secs(1);

/// Returns when one of these tickets has changed since this revision, or something else that is watched. If the
/// connection breaks it returns, too: the caller asks again.
async fn watch(
    cluster: &Cluster,
    tickets: Vec<String>,
    mut keys: Vec<WatchCreateRequest>,
    seen: i64,
) {
    let Ok((member, client)) = cluster.client().await else {
        return tokio::time::sleep(WATCH_AGAIN).await;
    };
    // etcd looks only every 100 ms for what happened before a watch began: too late for a ticket. It is watched from now
    // on, and read then.
    for _ in 0..SURE {
        keys.extend(tickets.iter().map(|ticket| WatchCreateRequest {
            key: ticket.clone().into_bytes(),
            ..WatchCreateRequest::default()
        }));
    }
    let mut to_come = keys.len();
    let Ok(mut stream) = client.watch(keys).await else {
        cluster.give_up_on(member);
        return tokio::time::sleep(WATCH_AGAIN).await;
    };
    // It is known then when the wait is over and everything is read.
    let _ = client.reads_one_by_one().await;
    while let Ok(Some(answer)) = stream.message().await {
        if !answer.events.is_empty() || answer.canceled {
            return;
        }
        to_come = to_come.saturating_sub(usize::from(answer.created));
        let is_later = answer.header.is_some_and(|header| header.revision > seen);
        if answer.created
            && to_come == 0
            && is_later
            && !tickets.is_empty()
            && have_changed(&client, &tickets, seen).await
        {
            return;
        }
    }
    cluster.give_up_on(member);
}

/// Whether one of these tickets has changed since this revision.
async fn have_changed(client: &Client, tickets: &[String], seen: i64) -> bool {
    let ranges = tickets.iter().cloned();
    let ranges = ranges.map(|ticket| RangeRequest::one(ticket).keys_only());
    let same = |kvs: &Vec<KeyValue>| kvs.iter().any(|kv| kv.mod_revision <= seen);
    match client.clone().read(ranges.collect()).await {
        Ok((found, _)) => !found.iter().all(same),
        // If it can't be read, it can't be watched, either.
        Err(_) => true,
    }
}
