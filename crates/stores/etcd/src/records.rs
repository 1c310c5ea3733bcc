//! The values of the keys in etcd, as JSON, and what was read of a key: [`KeyRecords`].

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use tenure_core::{
    Binding, Deadline, ErrorKind, Event, EventKind, Evidence, Holder, HolderId, Key, Lease, Mode,
    Moment, StoreError, Ticket, Token, Waiter,
};

use crate::layout::{KeyRecord, Layout};
use crate::origin::is_zero;
use crate::proto::KeyValue;

/// A lease.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct LeaseRecord {
    pub(crate) holder: Holder,
    pub(crate) acquired_at: Timestamp,
    pub(crate) heartbeat_at: Timestamp,
    /// For people. Whether the lease has expired is decided by its life.
    pub(crate) expires_at: Timestamp,
    pub(crate) ttl: Duration,
    #[serde(default)]
    pub(crate) mode: Mode,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) slot: Option<u32>,
    /// What its token is larger than the revision at which it was granted.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) raised: u64,
}

impl LeaseRecord {
    /// Stands for a record that can't be understood.
    fn unreadable() -> Self {
        Self {
            holder: Holder::unreadable(),
            acquired_at: Lease::UNKNOWN_TIME,
            heartbeat_at: Lease::UNKNOWN_TIME,
            expires_at: Lease::UNKNOWN_TIME,
            ttl: Duration::ZERO,
            mode: Mode::Exclusive,
            slot: None,
            raised: 0,
        }
    }
}

/// A session: present as long as its etcd lease.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct SessionRecord {
    /// The process, for people.
    pub(crate) binding: Binding,
}

/// The guard of a key.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct KeyGuard {
    /// The step that wrote it last.
    pub(crate) request: String,
}

/// An event.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct EventRecord {
    pub(crate) at: Timestamp,
    pub(crate) key: Key,
    pub(crate) kind: EventKind,
    /// `None`: the revision at which the event was written, because the same step granted the lease.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) token: Option<Token>,
    /// What that token is larger than the revision.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub(crate) raised: u64,
    pub(crate) holder: HolderId,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) evidence: Option<Evidence>,
    #[serde(default)]
    pub(crate) mode: Mode,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) waited: Option<Duration>,
}

/// How many of the lowest bits of an event's number count the events of one transaction.
const EVENT_BITS: u32 = 8;

impl EventRecord {
    /// The event, or what is wrong with its record.
    pub(crate) fn read(kv: &KeyValue) -> Result<Event, String> {
        let name = kv.name();
        let bad = |error: &dyn std::fmt::Display| {
            format!("the event {name} can't be understood ({error})")
        };
        let record: Self = serde_json::from_slice(&kv.value).map_err(|error| bad(&error))?;
        let revision = number(kv.create_revision);
        // One transaction can write several events: the end of one lease, and the grant of the next.
        let nth = name.rsplit_once('-').map_or("", |(_, nth)| nth);
        let nth = nth.parse::<u64>().map_err(|_| bad(&"its name"))?;
        Ok(Event {
            id: (revision << EVENT_BITS) + nth,
            at: record.at,
            key: record.key,
            kind: record.kind,
            mode: record.mode,
            token: record
                .token
                .unwrap_or(Token(revision.saturating_add(record.raised))),
            holder: record.holder,
            times: 1,
            reason: record.reason,
            evidence: record.evidence,
            waited: record.waited,
        })
    }
}

/// A lease on record.
#[derive(Debug, Clone)]
pub(crate) struct StoredLease {
    pub(crate) name: String,
    pub(crate) token: Token,
    /// When it was last written.
    pub(crate) modified: i64,
    pub(crate) record: LeaseRecord,
    /// Whether its record can't be understood, so that `record` only stands for it.
    pub(crate) is_damaged: bool,
}

impl StoredLease {
    /// The revision at which it was created.
    pub(crate) fn created(&self) -> u64 {
        self.token.0.saturating_sub(self.record.raised)
    }

    /// As a lease, which has expired if its life has `ended`.
    pub(crate) fn lease(&self, key: &Key, now: &Moment, ended: bool) -> Lease {
        let left = self.record.expires_at.duration_since(now.wall);
        let left = Duration::try_from(left).unwrap_or_default();
        let expires = if ended {
            // By the clock of the cluster it has ended, whatever the clock of this machine says. If that is far too early, its
            // life was removed.
            let wall = if left > CLOCKS_DIFFER {
                Lease::UNKNOWN_TIME
            } else {
                self.record.expires_at.min(now.wall)
            };
            let ago = Duration::try_from(now.wall.duration_since(wall)).unwrap_or_default();
            Deadline {
                wall,
                ticks: now.ticks.saturating_sub(ago),
                ..now.deadline(Duration::ZERO)
            }
        } else {
            now.deadline(left.max(NOT_YET))
        };
        Lease {
            mode: self.record.mode.clone(),
            slot: self.record.slot,
            key: key.clone(),
            holder: self.record.holder.clone(),
            token: self.token,
            acquired_at: self.record.acquired_at,
            // When one ends that can't be understood is not known before.
            expires: (ended || !self.is_damaged).then_some(expires),
            heartbeat_at: self.record.heartbeat_at,
            ttl: self.record.ttl,
        }
    }
}

/// How much the clocks of two machines may differ. `tenure store check` reports more.
const CLOCKS_DIFFER: Duration = Duration::from_secs(5);

/// When to look again at a lease that should have ended by the clock of this machine, but has not by the cluster's.
const NOT_YET: Duration = Duration::from_millis(500);

/// A ticket on record.
#[derive(Debug, Clone)]
pub(crate) struct StoredTicket {
    pub(crate) name: String,
    pub(crate) waiter: Waiter,
}

/// What was read of one key.
#[derive(Debug, Clone, Default)]
pub(crate) struct KeyRecords {
    /// The revision at which the guard was written last; 0 without a guard.
    pub(crate) guard: i64,
    /// The step that wrote the guard last.
    pub(crate) request: Option<String>,
    pub(crate) leases: Vec<StoredLease>,
    /// The leases that have not expired, by name, and the etcd lease that each lives by.
    pub(crate) alive: BTreeMap<String, i64>,
    pub(crate) tickets: Vec<StoredTicket>,
    /// The names of tickets that can't be understood.
    pub(crate) damaged_tickets: BTreeSet<String>,
    /// What can't be understood.
    pub(crate) problems: Vec<String>,
}

impl KeyRecords {
    /// Adds one record.
    pub(crate) fn add(&mut self, record: &KeyRecord<'_>, kv: &KeyValue) {
        let understood = match record {
            KeyRecord::Guard => {
                self.guard = kv.mod_revision;
                let guard = serde_json::from_slice::<KeyGuard>(&kv.value);
                guard.map(|guard| self.request = Some(guard.request))
            }
            KeyRecord::Lease(name) => {
                let record = serde_json::from_slice(&kv.value);
                let is_damaged = record.is_err();
                let (record, understood): (LeaseRecord, _) = match record {
                    Ok(record) => (record, Ok(())),
                    // It counts as held: its holder may be alive.
                    Err(error) => (LeaseRecord::unreadable(), Err(error)),
                };
                self.leases.push(StoredLease {
                    name: (*name).to_owned(),
                    token: Token(number(kv.create_revision).saturating_add(record.raised)),
                    modified: kv.mod_revision,
                    record,
                    is_damaged,
                });
                understood
            }
            KeyRecord::Life(name) => {
                self.alive.insert((*name).to_owned(), kv.lease);
                Ok(())
            }
            KeyRecord::Ticket(name) => match serde_json::from_slice::<Waiter>(&kv.value) {
                Ok(waiter) => {
                    self.tickets.push(StoredTicket {
                        name: (*name).to_owned(),
                        waiter: Waiter {
                            ticket: Ticket(number(kv.create_revision)),
                            ..waiter
                        },
                    });
                    Ok(())
                }
                Err(error) => {
                    self.damaged_tickets.insert((*name).to_owned());
                    Err(error)
                }
            },
        };
        if let Err(error) = understood {
            let name = kv.name();
            self.problems
                .push(format!("{name} can't be understood: {error}"));
        }
    }

    /// Whether there is nothing but perhaps a guard.
    pub(crate) fn is_empty(&self) -> bool {
        let (lives, damaged) = (&self.alive, &self.damaged_tickets);
        self.leases.is_empty() && self.tickets.is_empty() && lives.is_empty() && damaged.is_empty()
    }

    /// The lease with this token.
    pub(crate) fn lease(&self, token: Token) -> Option<&StoredLease> {
        self.leases.iter().find(|one| one.token == token)
    }

    /// Whether the process with this session waits.
    pub(crate) fn has_waiter(&self, session: &str) -> bool {
        let mut locks = self
            .tickets
            .iter()
            .map(|one| one.waiter.holder.liveness_lock());
        locks.any(|lock| lock.is_some_and(|lock| lock.0 == session))
    }

    /// Adds a lease, or changes it.
    pub(crate) fn put_lease(&mut self, lease: StoredLease) {
        self.leases.retain(|one| one.name != lease.name);
        self.leases.push(lease);
    }

    /// Removes a lease, with its life.
    pub(crate) fn remove_lease(&mut self, name: &str) {
        self.leases.retain(|one| one.name != name);
        self.alive.remove(name);
    }

    /// Adds a ticket, or changes it.
    pub(crate) fn put_ticket(&mut self, ticket: StoredTicket) {
        self.tickets.retain(|one| one.name != ticket.name);
        self.tickets.push(ticket);
    }

    /// A transaction was made at this revision, for which `stand_in` stood.
    pub(crate) fn set_revision(&mut self, stand_in: u64, revision: u64) {
        let modified = i64::try_from(stand_in).unwrap_or(i64::MAX);
        for one in &mut self.leases {
            if one.token.0 == stand_in {
                one.token = Token(revision.saturating_add(one.record.raised));
            }
            if one.modified == modified {
                one.modified = i64::try_from(revision).unwrap_or(i64::MAX);
            }
        }
        for one in &mut self.tickets {
            if one.waiter.ticket.0 == stand_in {
                one.waiter.ticket = Ticket(revision);
            }
        }
    }

    /// The records of one key, from the answer to a read of all of them.
    pub(crate) fn read(layout: &Layout, kvs: &[KeyValue]) -> Self {
        let mut records = Self::default();
        for kv in kvs {
            let name = kv.name();
            if let Some((_, record)) = layout.parse(name) {
                records.add(&record, kv);
            }
        }
        records
    }
}

/// A revision as the number of a token or a ticket. Revisions are positive.
pub(crate) fn number(revision: i64) -> u64 {
    u64::try_from(revision).unwrap_or_default()
}

/// The JSON form of a record. These types always have one.
pub(crate) fn json(record: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(record).unwrap_or_default()
}

/// Understands a value.
pub(crate) fn parsed<T: DeserializeOwned>(name: &str, value: &[u8]) -> Result<T, StoreError> {
    serde_json::from_slice(value).map_err(|error| {
        let what = format!("{name} can't be understood");
        StoreError::new(ErrorKind::Damaged, what)
            .because(error)
            .fix(REPAIR)
    })
}

/// What every advice about a damaged record says.
pub(crate) const REPAIR: &str = "put it right: tenure store repair";
