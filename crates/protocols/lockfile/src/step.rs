//! One atomic step under the step lock: [`FileStep`].
//!
//! ```text
//!   begin     load the state; finish or drop an interrupted step; read the lock; record what another
//!             program ended, and put back a lock of this process that another program removed
//!   verb      the engine decides; what it wants to change is collected
//!   commit    prepare `next`; record what is about to happen (`pending`); touch the lock; append the
//!             events; save the state without `pending`
//! ```
//!
//! # Invariants
//!
//! 1. Nothing is written before the commit, so a verb can be dropped and run again.
//! 2. If another program changed the lock since it was read, the commit changes nothing, and the verb
//!    runs again on what is there now.
//! 3. `pending` covers the ended lease, the granted lease and the used ticket in one record. A process
//!    that is killed anywhere leaves a step that [`FileStep::begin`] finishes or drops.

use std::path::Path;
use std::time::{Duration, Instant};

use tenure_core::engine::{self, Ended, Look, Step, Then, Written};
use tenure_core::{
    Deadline, ErrorKind, EventKind, Evidence, Holder, HolderId, Key, Lease, Liveness, LivenessId,
    Moment, StoreError, Ticket, Token, Waiter,
};
use tenure_host::exit_helper::ExitHelper;
use tenure_host::exit_watch::ExitWatch;
use tenure_host::files::atomic::PutResult;
use tenure_host::files::fault::{explain, unsettled};
use tenure_host::files::protocol::{Committed, Fingerprint, LockProtocol};
use tenure_host::files::takeover::{self, Taken};
use tenure_host::time_limit::TimeLimit;

use crate::history::{self, AppendAttempt, HistoryLine, Retention};
use crate::state::{Ending, GrantRecord, Pending};
use crate::store::FileStore;
use crate::view::{AtPath, Picture};

/// How often a verb is run again while other programs change the lock.
const ATTEMPTS: usize = 64;

/// A step that has begun.
pub struct FileStep<'a, P> {
    pub(crate) picture: Picture<'a, P>,
    /// Whether the state has to be saved.
    pub(super) dirty: bool,
    changes: LockChanges,
    /// The processes to wake after the step.
    pub(crate) wakes: Vec<LivenessId>,
    /// Clears up the lock that this step granted, if its holder is killed.
    pub(crate) exit_helper: Option<ExitHelper>,
}

/// What the engine wants to change.
#[derive(Default)]
struct LockChanges {
    ended: Option<(Lease, Ending)>,
    put: Option<(Lease, Written)>,
    /// All tickets as they will be; `None` if they stay.
    tickets: Option<Vec<Waiter>>,
    /// The last ticket that was removed.
    removed_ticket: Option<Ticket>,
    wakes: Vec<LivenessId>,
}

impl<P: LockProtocol> Look for FileStep<'_, P> {
    type Error = StoreError;

    fn now(&self) -> &Moment {
        self.picture.now()
    }

    fn leases(&mut self, key: &Key) -> Result<Vec<(Lease, Liveness)>, StoreError> {
        self.picture.leases(key)
    }

    fn tickets(&mut self, key: &Key) -> Result<Vec<Waiter>, StoreError> {
        match &self.changes.tickets {
            Some(tickets) => Ok(tickets.clone()),
            None => self.picture.tickets(key),
        }
    }

    fn probe(&mut self, waiter: &Holder) -> Liveness {
        self.picture.probe(waiter)
    }

    fn heard(&mut self, waiter: &Waiter) -> Duration {
        self.picture.heard(waiter)
    }

    fn grace(&self) -> Duration {
        self.picture.grace()
    }
}

impl<P: LockProtocol> Step for FileStep<'_, P> {
    fn mint(&mut self, _key: &Key) -> Result<Token, StoreError> {
        self.picture.newest_token().next()
    }

    /// These locks have no end: the protocols have no room for one.
    fn expiry(&self, _ttl: Duration) -> Option<Deadline> {
        None
    }

    fn write_lease(&mut self, lease: &Lease, put: Written) -> Result<(), StoreError> {
        self.changes.put = Some((lease.clone(), put));
        Ok(())
    }

    fn erase_lease(&mut self, lease: &Lease, how: &Ended, _then: Then) -> Result<(), StoreError> {
        let ending = match how {
            Ended::Released => Ending::Released,
            Ended::Proven(evidence) => Ending::Proven(evidence.clone()),
        };
        let is_robbed = |record: &GrantRecord| {
            lease.token == Token::NONE
                && record.holder == lease.holder
                && record.acquired_at == lease.acquired_at
        };
        let known = self.picture.state.robbed.len();
        self.picture
            .state
            .robbed
            .retain(|record| !is_robbed(record));
        if self.picture.state.robbed.len() < known {
            // Its end is on record already.
            self.dirty = true;
            return Ok(());
        }
        if is_forced(&ending) && !self.protocol().may_discard(self.protocol().path()) {
            let path = self.protocol().path().display();
            return Err(StoreError::new(
                ErrorKind::NotAStore,
                format!("{path} is not a lock: it may be another program's data"),
            )
            .fix("look what it is, and move it away by hand"));
        }
        self.changes.ended = Some((lease.clone(), ending));
        Ok(())
    }

    fn add_ticket(&mut self, _key: &Key, waiter: &Waiter) -> Result<Ticket, StoreError> {
        let last = &mut self.picture.state.last_ticket;
        *last = last.saturating_add(1);
        let ticket = Ticket(*last);
        self.tickets_to_change().push(Waiter {
            ticket,
            ..waiter.clone()
        });
        Ok(ticket)
    }

    fn write_ticket(&mut self, _key: &Key, waiter: &Waiter) -> Result<(), StoreError> {
        let mut tickets = self.tickets_to_change().iter_mut();
        if let Some(found) = tickets.find(|found| found.ticket == waiter.ticket) {
            found.clone_from(waiter);
        }
        Ok(())
    }

    fn erase_ticket(&mut self, _key: &Key, ticket: Ticket) -> Result<(), StoreError> {
        self.tickets_to_change()
            .retain(|waiter| waiter.ticket != ticket);
        self.changes.removed_ticket = Some(ticket);
        Ok(())
    }

    fn waits_of(&mut self, holder: &HolderId, token: Token) -> Result<Vec<Key>, StoreError> {
        let key = self.picture.store.key().clone();
        let waits = self
            .tickets(&key)?
            .iter()
            .any(|waiter| waiter.holder.id == *holder || waiter.within.contains(&token));
        Ok(waits.then_some(key).into_iter().collect())
    }

    fn wake(&mut self, holder: &Holder) {
        self.changes.wakes.extend(holder.liveness_lock().cloned());
    }

    fn hear(&mut self, _key: &Key, _waiter: &Waiter) -> Result<(), StoreError> {
        self.picture.store.presence.beat();
        Ok(())
    }
}

fn is_forced(ending: &Ending) -> bool {
    matches!(ending, Ending::Proven(Evidence::Forced { .. }))
}

impl<'a, P: LockProtocol> FileStep<'a, P> {
    /// Loads the state, finishes or drops an interrupted step, and reads the lock.
    pub(crate) fn begin(store: &'a FileStore<P>) -> Result<Self, StoreError> {
        let mut step = Self {
            picture: Picture::load(store)?,
            dirty: false,
            changes: LockChanges::default(),
            wakes: Vec::new(),
            exit_helper: None,
        };
        if let Some(flaw) = step.picture.state_flaw.take() {
            step.recover_state(&flaw)?;
        }
        step.raise_tokens_after_reboot();
        if let Some(pending) = step.picture.state.pending.clone() {
            step.finish(pending)?;
        }
        if store.has_leftover() {
            let next = store.sidecar().next();
            change(&next, store.protocol().discard(&next))?;
        }
        step.read_lock()?;
        Ok(step)
    }

    /// Runs a verb and commits it, again each time another program changed the lock in between.
    pub(crate) fn run<T>(
        &mut self,
        by: Instant,
        mut verb: impl FnMut(&mut Self) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        for _ in 0..ATTEMPTS {
            let answer = verb(self)?;
            if self.commit()? == Committed::Yes {
                return Ok(answer);
            }
            if TimeLimit::until(by).has_passed() {
                break;
            }
            self.read_lock()?;
        }
        let path = self.protocol().path().display();
        Err(StoreError::new(
            ErrorKind::Contended,
            format!("another program keeps changing {path}"),
        )
        .fix("find out which program it is, and try again; nothing was changed"))
    }

    /// Whether this process holds the lease on record.
    pub(crate) fn holds_grant(&self) -> bool {
        let Picture { store, state, .. } = &self.picture;
        let grant = state.grant.as_ref();
        grant.is_some_and(|grant| store.presence.is_us(&grant.holder))
    }

    pub(super) fn protocol(&self) -> &'a P {
        self.picture.store.protocol()
    }

    fn tickets_to_change(&mut self) -> &mut Vec<Waiter> {
        let stored = &self.picture.state.tickets;
        self.changes.tickets.get_or_insert_with(|| stored.clone())
    }

    /// Reads the lock, records what another program ended, and puts back a lock of this process that
    /// another program removed.
    fn read_lock(&mut self) -> Result<(), StoreError> {
        loop {
            self.picture.read_lock();
            let robbed = self.picture.lock.robbed.iter();
            let robbed: Vec<GrantRecord> = robbed.map(|(record, _)| record.clone()).collect();
            let presence = &self.picture.store.presence;
            if robbed.iter().any(|record| presence.is_us(&record.holder)) {
                // What this process started may outlive it.
                presence.leave_pipe();
            }
            if self.picture.state.robbed != robbed {
                self.picture.state.robbed = robbed;
                self.dirty = true;
            }
            if let Some((record, ending)) = self.picture.lock.ended_outside.take() {
                self.wake(&record.holder);
                let pending = Pending {
                    ended: Some((record, ending)),
                    ..Pending::default()
                };
                self.announce(&pending)?;
                self.complete(pending, AppendAttempt::First)?;
                let key = self.picture.store.key();
                let queue = engine::queue(self, key, None)?;
                engine::wake_next(self, &queue);
                self.wakes.append(&mut self.changes.wakes);
            }
            if !self.picture.own_lock_is_missing() {
                return Ok(());
            }
            let Some(grant) = self.picture.state.grant.clone() else {
                return Ok(());
            };
            if self.put_back(&grant)? == Committed::Yes {
                let heartbeat_at = self.picture.now.wall;
                let pending = Pending {
                    renewed: Some(GrantRecord {
                        heartbeat_at,
                        ..grant
                    }),
                    ..Pending::default()
                };
                self.announce(&pending)?;
                self.complete(pending, AppendAttempt::First)?;
            }
        }
    }

    /// Writes what the engine wants to change.
    fn commit(&mut self) -> Result<Committed, StoreError> {
        let changes = std::mem::take(&mut self.changes);
        let mut wait = None;
        let (granted, renewed) = match changes.put {
            Some((lease, Written::Granted { reason, waited })) => {
                wait = waited;
                (Some((lease, reason)), None)
            }
            Some((lease, Written::Extended)) => (None, Some(lease)),
            Some((lease, Written::Renewed)) if self.picture.lock.lock_is_missing() => {
                (None, Some(lease))
            }
            // A lease without an end has nothing to renew.
            Some((_, Written::Renewed)) | None => (None, None),
        };
        let record = |lease: &Lease| GrantRecord::from(lease);
        let pending = Pending {
            replaced: self.replaced_lock(granted.is_some(), changes.ended.as_ref()),
            ended: changes.ended.map(|(lease, how)| (record(&lease), how)),
            ticket: changes
                .removed_ticket
                .filter(|_| granted.is_some() || renewed.is_some()),
            granted: granted.map(|(lease, reason)| (record(&lease), reason)),
            renewed: renewed.as_ref().map(record),
            waited: wait,
        };
        if pending.is_empty() {
            if let Some(tickets) = changes.tickets {
                self.picture.state.tickets = tickets;
                self.dirty = true;
            }
            if self.dirty {
                self.save()?;
            }
        } else if self.act(pending, changes.tickets)? == Committed::Conflict {
            return Ok(Committed::Conflict);
        }
        self.wakes.extend(changes.wakes);
        Ok(Committed::Yes)
    }

    /// The lock that a grant or an end replaces or removes.
    fn replaced_lock(
        &self,
        is_grant: bool,
        ended: Option<&(Lease, Ending)>,
    ) -> Option<Fingerprint> {
        let is_force = ended.is_some_and(|(_, how)| is_forced(how));
        match &self.picture.lock.current.as_ref()?.at_path {
            AtPath::ItsLock(lock) if is_grant || ended.is_some() => Some(lock.clone()),
            // Force removes whatever is at the path.
            AtPath::Malformed(lock) if is_force => Some(lock.clone()),
            AtPath::ItsLock(_) | AtPath::Malformed(_) | AtPath::Nothing => None,
        }
    }

    /// Does what `pending` says: records it, touches the lock, and completes it.
    fn act(
        &mut self,
        pending: Pending,
        tickets: Option<Vec<Waiter>>,
    ) -> Result<Committed, StoreError> {
        let (store, protocol) = (self.picture.store, self.protocol());
        let (next, aside) = (store.sidecar().next(), store.sidecar().aside());
        if let Some((record, _)) = &pending.granted {
            store.state_file.raise_ceiling(record.token)?;
            change(&next, protocol.prepare(&record.lease(store.key()), &next))?;
            // Before the lock gets its path: from then on this process may be killed while it holds it. Without a helper, the
            // lock of a killed process stays until a tenure or the daemon removes it.
            let exit = ExitWatch::on(store.presence.folder(), &record.holder.binding);
            self.exit_helper = exit.ok().flatten().and_then(|exit| {
                let started = protocol.clear_up_after_exit(&next, &record.holder, &exit);
                started.ok().flatten()
            });
            self.picture.state.newest = record.token.0;
            self.picture.state.boot = Some(self.picture.now.epoch.clone());
        }
        if let Some(record) = &pending.renewed
            && self.picture.lock.lock_is_missing()
            && self.put_back(record)? == Committed::Conflict
        {
            return Ok(Committed::Conflict);
        }
        self.announce(&pending)?;
        let taken = match (&pending.granted, &pending.replaced) {
            (Some(_), Some(stale)) => takeover::swap(protocol, &next, stale),
            (Some(_), None) => protocol.put(&next).map(|put| match put {
                PutResult::Done => Taken::Done,
                PutResult::Occupied => Taken::Different,
            }),
            (None, Some(stale)) => takeover::remove(protocol, &aside, stale),
            (None, None) => Ok(Taken::Done),
        };
        let taken = match change(protocol.path(), taken) {
            Err(error) if error.kind == ErrorKind::ReadOnly && self.is_still_there(&pending) => {
                self.end_exit_helper();
                let _ = protocol.discard(&next);
                self.drop_pending()?;
                return Err(error);
            }
            taken => taken.map_err(unsettled)?,
        };
        let happened = match taken {
            Taken::Done => true,
            // Another program has removed the lock that was to be removed.
            Taken::Missing => pending.granted.is_none(),
            Taken::Different => false,
        };
        if !happened {
            self.end_exit_helper();
            change(&next, protocol.discard(&next))?;
            self.drop_pending()?;
            return Ok(Committed::Conflict);
        }
        if let Some(tickets) = tickets {
            self.picture.state.tickets = tickets;
        }
        let is_grant = pending.granted.is_some();
        self.complete(pending, AppendAttempt::First)
            .map_err(unsettled)?;
        if is_grant {
            // The next step discards what is left.
            let _ = protocol.discard(&next);
        }
        Ok(Committed::Yes)
    }

    /// Whether the lock that a step was to replace or remove is at its path.
    fn is_still_there(&self, pending: &Pending) -> bool {
        let there = self.picture.store.found();
        there.map(|found| found.fingerprint) == pending.replaced
    }

    fn end_exit_helper(&mut self) {
        if let Some(helper) = self.exit_helper.take() {
            helper.end();
        }
    }

    /// Puts the lock of a grant back at its path, if that is free.
    fn put_back(&mut self, grant: &GrantRecord) -> Result<Committed, StoreError> {
        let (store, protocol) = (self.picture.store, self.protocol());
        let next = store.sidecar().next();
        change(&next, protocol.prepare(&grant.lease(store.key()), &next))?;
        let put = change(&next, protocol.put(&next))?;
        let _ = protocol.discard(&next);
        Ok(match put {
            PutResult::Done => Committed::Yes,
            PutResult::Occupied => Committed::Conflict,
        })
    }

    /// Records what is about to happen.
    fn announce(&mut self, pending: &Pending) -> Result<(), StoreError> {
        self.picture.state.pending = Some(pending.clone());
        self.save()
    }

    /// It did not happen.
    pub(super) fn drop_pending(&mut self) -> Result<(), StoreError> {
        self.picture.state.pending = None;
        self.save()
    }

    /// It happened: appends the events and saves the state as it is now.
    pub(super) fn complete(
        &mut self,
        pending: Pending,
        attempt: AppendAttempt,
    ) -> Result<(), StoreError> {
        let Picture {
            store, now, state, ..
        } = &mut self.picture;
        let event = |record: &GrantRecord, kind| {
            HistoryLine::new(now.wall, store.key(), kind, record.token, &record.holder.id)
        };
        let ended = pending.ended.as_ref().map(|(record, how)| match how {
            Ending::Released => event(record, EventKind::Released),
            Ending::Proven(evidence) => HistoryLine {
                evidence: Some(evidence.clone()),
                ..event(record, EventKind::of(evidence))
            },
        });
        let granted = pending
            .granted
            .as_ref()
            .map(|(record, reason)| HistoryLine {
                reason: Some(reason.word().into()),
                waited: pending.waited,
                ..event(record, EventKind::Granted)
            });
        let renewed = pending.renewed.as_ref();
        let renewed = renewed.map(|record| event(record, EventKind::Renewed));
        let events = ended.into_iter().chain(granted).chain(renewed).collect();
        let retention = Retention {
            age: store.options.history_age,
            events: store.options.history_events,
        };
        history::append(store.sidecar(), state, events, attempt, retention)?;
        state.grant = pending
            .granted
            .map(|(record, _)| record)
            .or(pending.renewed);
        state
            .tickets
            .retain(|waiter| Some(waiter.ticket) != pending.ticket);
        state.pending = None;
        self.save()
    }

    pub(super) fn save(&mut self) -> Result<(), StoreError> {
        let Picture { store, state, .. } = &mut self.picture;
        store.state_file.save(state)?;
        self.dirty = false;
        Ok(())
    }
}

pub(super) fn change<T>(path: &Path, result: std::io::Result<T>) -> Result<T, StoreError> {
    result.map_err(|error| explain("changed", path, error))
}
