//! The changes of the engine's verbs, as records: [`Step`] for [`EtcdStep`].

use std::collections::BTreeSet;

use tenure_core::engine::{Ended, KeyChange, Step, Then, Written};
use tenure_core::{
    Event, EventKind, Evidence, Holder, HolderId, Key, Lease, StoreError, Ticket, Token, Waiter,
};
use tenure_tasks::TaskError;
use tenure_tasks::follow::follow;

use super::{EtcdStep, MOST_COMPARES};
use crate::layout::Layout;
use crate::proto::{Compare, KeyValue, RangeRequest};
use crate::records::{KeyRecords, LeaseRecord, StoredLease, StoredTicket, json};

/// After so many writes, what can wait for a later step does.
const ENOUGH: usize = 80;

/// How many leases one step ends. Each is a record, a life and an event, and with the tickets that are touched then they fit
/// into one transaction.
const MOST_ENDS: usize = 24;

/// Among how many free names a step that was overtaken chooses, at the least.
const SPREAD: usize = 32;

impl EtcdStep<'_> {
    /// Ties the life of a lease to a new etcd lease.
    fn begin_life(&mut self, lease: &Lease, name: &str) -> Result<(), StoreError> {
        if self.committed.is_some() {
            return Ok(());
        }
        let etcd_lease = self.store.new_etcd_lease(lease.ttl, self.by)?;
        let life = self.store.layout.life(&lease.key, name);
        self.put(life.clone(), Vec::new(), etcd_lease.id);
        let alive = &mut self.written(&lease.key).alive;
        alive.insert(name.to_owned(), etcd_lease.id);
        self.writes.begun.push((life, etcd_lease));
        Ok(())
    }

    /// Makes a grant depend on where its token comes from. Its etcd lease has just been asked for, or a moment ago.
    fn compare_origin(&mut self) -> Result<(), StoreError> {
        if self.raised.is_none() {
            let origin = self.store.origin(self.by)?;
            self.raised = Some(origin.raised);
            let same = Compare::value(self.store.layout.origin(), json(&origin));
            self.writes.compares.push(same);
        }
        Ok(())
    }

    fn stored_ticket(&self, key: &Key, ticket: Ticket) -> Option<StoredTicket> {
        let tickets = &self.known(key)?.tickets;
        let found = tickets.iter().find(|one| one.waiter.ticket == ticket);
        found.cloned()
    }

    /// The two indexes of a ticket.
    fn index(&self, key: &Key, waiter: &Waiter, name: &str) -> Vec<String> {
        let layout = &self.store.layout;
        let by_holder = layout.waits_of_holder(&waiter.holder.id);
        let by_grant = waiter
            .within
            .iter()
            .map(|token| layout.waits_of_grant(*token));
        std::iter::once(by_holder)
            .chain(by_grant)
            .map(|prefix| Layout::wait(&prefix, key, name))
            .collect()
    }

    fn put_ticket(&mut self, key: &Key, waiter: &Waiter, name: &str) -> Result<(), StoreError> {
        self.writes.guarded.insert(key.clone());
        self.put_waiter(self.store.layout.ticket(key, name), waiter);
        self.written(key).put_ticket(StoredTicket {
            name: name.to_owned(),
            waiter: waiter.clone(),
        });
        for entry in self.index(key, waiter, name) {
            self.put(entry, Vec::new(), 0);
        }
        if self.is_own(&waiter.holder.binding) && self.committed.is_none() {
            let session = self.store.session(&waiter.holder.binding, self.by)?;
            self.writes.compares.push(Compare::present(session));
        }
        Ok(())
    }

    /// The number of a ticket is the revision at which it was created, so it is no part of the record.
    fn put_waiter(&mut self, name: String, waiter: &Waiter) {
        let stored = Waiter {
            ticket: Ticket(0),
            ..waiter.clone()
        };
        self.put_record(name, &stored);
    }

    fn stored(&self, lease: &Lease) -> Option<StoredLease> {
        self.known(&lease.key)?.lease(lease.token).cloned()
    }

    /// The lowest number that is no name of a lease: neither when the step began nor now. A name that is removed and put in one
    /// step would not be new.
    fn new_lease_name(&self, key: &Key) -> String {
        let names = |records: &KeyRecords| names_of(&records.leases, |one| &one.name);
        let (_, mut free) = self.free_names(key, names);
        free.next().unwrap_or_default().to_string()
    }

    /// The same for a ticket. If another step was faster, any of the lowest: more may queue at the same time.
    fn new_ticket_name(&self, key: &Key) -> String {
        let names = |records: &KeyRecords| {
            let mut names = names_of(&records.tickets, |one| &one.name);
            names.extend(names_of(&records.damaged_tickets, |name| name));
            names
        };
        let (taken, mut free) = self.free_names(key, names);
        let spread = match self.attempts {
            0 => 1,
            _ => taken + SPREAD,
        };
        // The name of a request is random.
        let random = self.writes.request.get(..4);
        let random = random.and_then(|digits| usize::from_str_radix(digits, 16).ok());
        let chosen = free.nth(random.unwrap_or_default() % spread);
        chosen.unwrap_or_default().to_string()
    }

    /// How many numbers are names, and all others.
    fn free_names(
        &self,
        key: &Key,
        names: impl Fn(&KeyRecords) -> Vec<usize>,
    ) -> (usize, impl Iterator<Item = usize>) {
        let records = [self.seen.keys.get(key), self.writes.after.get(key)];
        let taken: BTreeSet<usize> = records.into_iter().flatten().flat_map(names).collect();
        (
            taken.len(),
            (0..).filter(move |number| !taken.contains(number)),
        )
    }
}

/// The names that are numbers.
fn names_of<'a, T: 'a>(
    records: impl IntoIterator<Item = &'a T>,
    name: impl Fn(&T) -> &String,
) -> Vec<usize> {
    let numbers = records.into_iter();
    numbers.filter_map(|one| name(one).parse().ok()).collect()
}

impl Step for EtcdStep<'_> {
    fn mint(&mut self, _key: &Key) -> Result<Token, TaskError> {
        self.writes.numbered = true;
        Ok(self.token())
    }

    fn write_lease(&mut self, lease: &Lease, put: Written) -> Result<(), TaskError> {
        let key = &lease.key;
        let stored = self.stored(lease);
        let name = match &stored {
            Some(stored) => stored.name.clone(),
            None => self.new_lease_name(key),
        };
        self.begin_life(lease, &name)?;
        if matches!(put, Written::Granted { .. }) && self.committed.is_none() {
            self.compare_origin()?;
        }
        let record = LeaseRecord {
            raised: stored
                .as_ref()
                .map_or(self.raised(), |stored| stored.record.raised),
            holder: lease.holder.clone(),
            acquired_at: lease.acquired_at,
            heartbeat_at: lease.heartbeat_at,
            expires_at: self.now.deadline(lease.ttl).wall,
            ttl: lease.ttl,
            mode: lease.mode.clone(),
            slot: lease.slot,
        };
        self.put_record(self.store.layout.lease(key, &name), &record);
        let (revision, token) = (self.revision(), self.token());
        self.written(key).put_lease(StoredLease {
            name,
            token: stored.as_ref().map_or(token, |stored| stored.token),
            modified: i64::try_from(revision).unwrap_or(i64::MAX),
            record,
            is_damaged: false,
        });
        match (put, stored) {
            (Written::Granted { reason, waited }, _) => {
                self.writes.guarded.insert(key.clone());
                let event = Event::granted(lease, reason, waited, self.now.wall);
                self.record(event, true);
            }
            (Written::Renewed, Some(stored)) => {
                let name = self.store.layout.lease(key, &stored.name);
                let same = Compare::unchanged(name, stored.modified);
                self.writes.compares.push(same);
            }
            (Written::Extended | Written::Renewed, stored) => {
                self.writes.guarded.insert(key.clone());
                // Renewals are not recorded, but the history must say that others may hold the key now.
                if stored.is_some_and(|stored| stored.record.mode != lease.mode) {
                    let event = Event::of(lease, EventKind::Renewed, self.now.wall);
                    self.record(event, false);
                }
            }
        }
        Ok(())
    }

    fn most_ends(&self) -> usize {
        MOST_ENDS
    }

    fn erase_lease(&mut self, lease: &Lease, how: &Ended, _then: Then) -> Result<(), TaskError> {
        let key = &lease.key;
        self.writes.guarded.insert(key.clone());
        let Some(stored) = self.stored(lease) else {
            return Ok(());
        };
        self.writes.ends += 1;
        let life = self.store.layout.life(key, &stored.name);
        if matches!(how, Ended::Proven(Evidence::TimeRanOut { .. })) {
            self.writes.compares.push(Compare::missing(life));
        } else {
            self.delete(life.clone());
            self.writes.ended.push(life);
        }
        self.delete(self.store.layout.lease(key, &stored.name));
        self.written(key).remove_lease(&stored.name);
        let (kind, evidence) = match how {
            Ended::Released => (EventKind::Released, None),
            Ended::Proven(evidence) => (EventKind::of(evidence), Some(evidence.clone())),
        };
        let event = Event::of(lease, kind, self.now.wall);
        self.record(Event { evidence, ..event }, false);
        Ok(())
    }

    fn add_ticket(&mut self, key: &Key, waiter: &Waiter) -> Result<Ticket, TaskError> {
        self.writes.numbered = true;
        let name = self.new_ticket_name(key);
        let ticket = Ticket(self.revision());
        let waiter = Waiter {
            ticket,
            ..waiter.clone()
        };
        self.put_ticket(key, &waiter, &name)?;
        if waiter.mode.is_exclusive() && waiter.with.is_empty() {
            self.writes.queued = Some((key.clone(), name));
        }
        Ok(ticket)
    }

    fn write_ticket(&mut self, key: &Key, waiter: &Waiter) -> Result<(), TaskError> {
        let Some(stored) = self.stored_ticket(key, waiter.ticket) else {
            return Ok(());
        };
        // A wait that is resumed may run under other grants.
        for entry in self.index(key, &stored.waiter, &stored.name) {
            self.delete(entry);
        }
        Ok(self.put_ticket(key, waiter, &stored.name)?)
    }

    fn erase_ticket(&mut self, key: &Key, ticket: Ticket) -> Result<(), TaskError> {
        let Some(stored) = self.stored_ticket(key, ticket) else {
            return Ok(());
        };
        if self.writes.records.len() > ENOUGH {
            // One of very many forgotten tickets: a later step removes it.
            return Ok(());
        }
        self.writes.guarded.insert(key.clone());
        self.delete(self.store.layout.ticket(key, &stored.name));
        let tickets = &mut self.written(key).tickets;
        tickets.retain(|one| one.name != stored.name);
        for entry in self.index(key, &stored.waiter, &stored.name) {
            self.delete(entry);
        }
        Ok(())
    }

    fn follow(&mut self, change: KeyChange<'_>) -> Result<(), TaskError> {
        follow(self, change)
    }

    fn waits_of(&mut self, holder: &HolderId, token: Token) -> Result<Vec<Key>, TaskError> {
        let asked = (holder.clone(), token);
        let layout = &self.store.layout;
        let mut prefixes = vec![layout.waits_of_holder(holder)];
        if token != Token::NONE {
            prefixes.push(layout.waits_of_grant(token));
        }
        let is_known = self.seen.waits.contains_key(&asked);
        if self.assume_no_waits(is_known, &prefixes) {
            return Ok(Vec::new());
        }
        if !is_known {
            let ranges = prefixes.iter().cloned();
            let ranges = ranges.map(|prefix| RangeRequest::below(prefix).keys_only());
            let found = self.read(ranges.collect())?;
            let mut keys = BTreeSet::new();
            for (prefix, kvs) in prefixes.iter().zip(found) {
                let waited = |kv: &KeyValue| Layout::waited_key(prefix, kv.name());
                keys.extend(kvs.iter().filter_map(waited));
            }
            self.seen
                .waits
                .insert(asked.clone(), keys.into_iter().collect());
        }
        let revision = self.seen.revision;
        for prefix in prefixes {
            let nothing_new = Compare::nothing_new_below(prefix, revision);
            let compares = &mut self.writes.compares;
            // A chain of more than fifty holders is compared in part.
            if compares.len() < MOST_COMPARES && !compares.contains(&nothing_new) {
                compares.push(nothing_new);
            }
        }
        Ok(self.seen.waits.get(&asked).cloned().unwrap_or_default())
    }

    fn record_request(&mut self, event: &Event) -> Result<bool, TaskError> {
        self.record(event.clone(), false);
        Ok(true)
    }

    /// Touches the waiter's tickets: it watches them.
    fn wake(&mut self, holder: &Holder) {
        let Some(lock) = holder.liveness_lock() else {
            return;
        };
        let mut touched = Vec::new();
        for (key, records) in &self.seen.keys {
            for one in &records.tickets {
                let name = self.store.layout.ticket(key, &one.name);
                if one.waiter.holder.liveness_lock() == Some(lock)
                    && !self.writes.records.contains_key(&name)
                {
                    touched.push((key.clone(), name, one.waiter.clone()));
                }
            }
        }
        for (key, name, waiter) in touched {
            // A waiter that is served wakes the next one, if a key has room for many.
            if self.writes.records.len() < ENOUGH {
                self.writes.guarded.insert(key);
                self.put_waiter(name, &waiter);
            }
        }
    }

    /// The session says it.
    fn hear(&mut self, _key: &Key, _waiter: &Waiter) -> Result<(), TaskError> {
        Ok(())
    }
}
