//! What a step takes for granted instead of reading it.
//!
//! Nothing here decides: a step is right without it, only slower. [`EtcdOptions::guesses`](crate::EtcdOptions::guesses)
//! switches it off, and the battery runs both ways.
//!
//! | guess | what becomes of a wrong one |
//! |---|---|
//! | A key is as this process left it. | The transaction compares its guard, its lives and the sessions of its waiters. |
//! | The session of a waiter is there. | The transaction compares it. |
//! | A holder waits for nothing. | The transaction compares that the index of its waits is empty. |
//! | The waiters that this process knows are those of the key. | Their sessions were read for nothing, the others' are read later. |
//! | An etcd lease that no life is tied to has not ended. | The cluster refuses the transaction. |
//! | The first keys of a list end where they ended before. | The list is read on. |
//!
//! # Invariant
//!
//! A guess is never an answer: a verb that writes nothing runs on what was read.

use std::collections::HashMap;
use std::time::Duration;

use tenure_core::{ErrorKind, Holder, Key, StoreError};
use tenure_host::clock::since_boot;

use crate::etcd_leases::{EtcdLease, EtcdLeases};
use crate::proto::{Compare, KeyValue, RangeRequest};
use crate::records::KeyRecords;
use crate::session::seconds;
use crate::step::{Again, EtcdStep, MOST_COMPARES, Seen, first_waiters, is_of_tasks};
use crate::store::{EtcdStore, KnownKey};
use tenure_host::lock;

/// Other processes may use a key all the time: what was known of it longer ago is not worth a guess.
const FRESH: Duration = Duration::from_secs(1);

/// After so many attempts in vain, nothing is assumed any more, but read. Not earlier: an attempt that reads more is
/// overtaken more often.
const SURE: u32 = 10;

/// What a step assumes beside what it has seen.
#[derive(Debug, Default)]
pub(crate) struct Assumed {
    /// Whether it may.
    is_allowed: bool,
    /// The sessions that count as there.
    sessions: Vec<String>,
    /// Whether a holder counts as one that waits for nothing.
    no_waits: bool,
}

impl Assumed {
    /// Nothing yet, in a step after so many attempts in vain.
    pub(crate) fn begin(is_allowed: bool, attempts: u32) -> Self {
        Self {
            is_allowed: is_allowed && attempts < SURE,
            ..Self::default()
        }
    }
}

impl EtcdStore {
    /// That these keys are as this process left them, unless that is too long ago for one of them.
    pub(crate) fn guess(&self, keys: &[Key]) -> Seen {
        // The tasks have to be read in any case.
        if !self.options.guesses || keys.iter().any(|key| is_of_tasks(Some(key))) {
            return Seen::default();
        }
        let known = lock(&self.known);
        let mut seen = Seen {
            guessed: true,
            ..Seen::default()
        };
        for key in keys {
            let records = match known.get(key) {
                None => KeyRecords::default(),
                Some(one) if self.may_be_current(one) => {
                    seen.sessions.extend(one.sessions.clone());
                    one.records.clone()
                }
                Some(_) => return Seen::default(),
            };
            seen.keys.insert(key.clone(), records);
        }
        seen
    }

    /// Whether a key may still be as it was. A process that waits for it is woken because it is not.
    fn may_be_current(&self, known: &KnownKey) -> bool {
        let age = since_boot().saturating_sub(known.since);
        let is_ours = |holder: &Holder| self.presence.is_us(holder);
        let (leases, tickets) = (&known.records.leases, &known.records.tickets);
        let mut waiters = tickets.iter().map(|one| &one.waiter.holder);
        let mut leases = leases.iter().filter(|one| is_ours(&one.record.holder));
        let is_alone = tickets.is_empty() && leases.clone().count() == known.records.leases.len();
        (is_alone || age < FRESH && !waiters.any(is_ours))
            && leases
                .all(|one| known.records.alive.contains_key(&one.name) && age < one.record.ttl / 2)
    }

    /// The sessions of a key's first waiters, as this process saw them last: to read them with the key saves a round trip.
    pub(crate) fn known_waiters(&self, key: &Key) -> Vec<String> {
        let known = lock(&self.known);
        let records = known.get(key).filter(|_| self.options.guesses);
        records.map_or_else(Vec::new, |known| first_waiters(&known.records))
    }
}

impl EtcdStep<'_> {
    /// What the next attempt begins with, if the verb has to run again: it needs more than was guessed, or no transaction
    /// compares what was assumed. Nothing is assumed then.
    pub(crate) fn unproven(&mut self, writes: bool, may_assume: &mut bool) -> Option<Seen> {
        // A probe that could not be made does not fail the verb.
        if self.again == Some(Again::Guessed) || self.seen.guessed && !writes {
            return Some(Seen::default());
        }
        if writes || self.assumed.sessions.is_empty() && !self.assumed.no_waits {
            return None;
        }
        *may_assume = false;
        let mut seen = std::mem::take(&mut self.seen);
        for name in &self.assumed.sessions {
            seen.sessions.remove(name);
        }
        Some(seen)
    }

    /// A guess has no revision at which more could be read.
    pub(crate) fn refuse_guess(&mut self) -> Result<(), StoreError> {
        if !self.seen.guessed {
            return Ok(());
        }
        self.again = Some(Again::Guessed);
        Err(StoreError::new(ErrorKind::Contended, "nothing is known"))
    }

    /// Whether something may be assumed that costs so many comparisons.
    pub(crate) fn may_assume(&self, compares: usize) -> bool {
        self.assumed.is_allowed && self.writes.compares.len() + compares <= MOST_COMPARES
    }

    /// Assumes that a session is there, if nothing is known of it.
    pub(crate) fn assume_session(&mut self, name: &str) -> bool {
        let may = self.may_assume(1) && !self.seen.sessions.contains_key(name);
        if may {
            self.seen.sessions.insert(name.to_owned(), true);
            self.assumed.sessions.push(name.to_owned());
            let session = self.store.layout.session(name);
            self.writes.compares.push(Compare::present(session));
        }
        may
    }

    /// Assumes that a holder waits for nothing, as most do, if it is not known: then there is nothing below these prefixes.
    pub(crate) fn assume_no_waits(&mut self, is_known: bool, prefixes: &[String]) -> bool {
        let may = self.seen.guessed || !is_known && self.may_assume(prefixes.len());
        if may {
            let nothing = prefixes.iter().cloned().map(Compare::none_below);
            self.writes.compares.extend(nothing);
            self.assumed.no_waits = true;
        }
        may
    }

    /// Makes the transaction depend on something that was guessed.
    pub(crate) fn compare_guess(&mut self, compare: Compare) {
        if self.seen.guessed && !self.writes.compares.contains(&compare) {
            self.writes.compares.push(compare);
        }
    }
}

impl EtcdLease {
    /// Whether it is so young that a lease with this time to live may begin with it: its holder trusts it from the
    /// beginning of the call, less a tenth or five seconds.
    fn is_fresh(&self, ttl: Duration) -> bool {
        let age = since_boot().saturating_sub(self.asked);
        self.seconds == seconds(ttl) && age <= (ttl / 20).min(Duration::from_secs(2))
    }
}

impl EtcdLeases {
    /// One that no life is tied to, and that is as good as new.
    pub(crate) fn take_fresh(&mut self, ttl: Duration) -> Option<EtcdLease> {
        let fresh = self.unused.iter().position(|one| one.is_fresh(ttl))?;
        Some(self.unused.swap_remove(fresh))
    }
}

/// For lists of keys by their prefix: a key behind the first ones.
pub(crate) type Near = HashMap<String, Vec<u8>>;

/// How many records are read of a list whose first ones are needed.
pub(crate) const AHEAD: usize = 100;

/// Where the first keys of a list are looked for.
pub(crate) struct FirstRange {
    pub(crate) request: RangeRequest,
    /// A key behind the first ones, where the range ends.
    near: Option<Vec<u8>>,
}

impl EtcdStep<'_> {
    /// The range of the first keys below a prefix. etcd walks through a whole range even if it is asked for one key, so
    /// the range ends where this process found enough before, if that is known.
    pub(crate) fn first_range(&self, prefix: &str, limit: usize) -> FirstRange {
        let near = lock(&self.store.near).get(prefix).cloned();
        let limit = if near.is_some() { limit } else { AHEAD };
        let whole = RangeRequest::below(prefix.to_owned());
        let request = RangeRequest {
            range_end: near.clone().unwrap_or_else(|| whole.range_end.clone()),
            limit: i64::try_from(limit).unwrap_or(i64::MAX),
            ..whole
        };
        FirstRange { request, near }
    }

    /// What a range of the first keys has found, if it is enough.
    pub(crate) fn first_found(
        &self,
        prefix: &str,
        limit: usize,
        range: &FirstRange,
        mut found: Vec<KeyValue>,
    ) -> Result<Vec<KeyValue>, Vec<KeyValue>> {
        if range.near.is_none() {
            self.look_ahead(prefix, &found);
        } else if found.len() < limit {
            return Err(found);
        }
        found.truncate(limit);
        Ok(found)
    }

    /// Remembers where the first keys end, after a read of as many as [`AHEAD`].
    fn look_ahead(&self, prefix: &str, found: &[KeyValue]) {
        let mut near = lock(&self.store.near);
        match found.last() {
            Some(last) if found.len() == AHEAD && self.store.options.guesses => {
                near.insert(prefix.to_owned(), last.key.clone())
            }
            _ => near.remove(prefix),
        };
    }

    /// The first keys below a prefix. What is found does not depend on what is remembered.
    pub(crate) fn read_first(
        &mut self,
        prefix: &str,
        limit: usize,
    ) -> Result<Vec<KeyValue>, StoreError> {
        let range = self.first_range(prefix, limit);
        let found = self.read(vec![range.request.clone()])?;
        let found = found.into_iter().next().unwrap_or_default();
        let mut found = match self.first_found(prefix, limit, &range, found) {
            Ok(enough) => return Ok(enough),
            Err(found) => found,
        };
        let rest = RangeRequest {
            key: range.near.unwrap_or_default(),
            limit: i64::try_from(AHEAD).unwrap_or(i64::MAX),
            ..RangeRequest::below(prefix.to_owned())
        };
        let more = self.read(vec![rest])?.pop().unwrap_or_default();
        self.look_ahead(prefix, &more);
        found.extend(more);
        found.truncate(limit);
        Ok(found)
    }
}
