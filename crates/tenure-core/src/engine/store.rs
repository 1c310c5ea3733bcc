//! A store that runs the engine: [`EngineStore`], and with it every verb of [`Store`].

use std::collections::HashSet;
use std::time::{Duration, Instant};

use crate::claim::Claim;
use crate::error::{ErrorKind, StoreError};
use crate::event::Event;
use crate::holder::{Binding, Holder, HolderId, LivenessId};
use crate::key::{Key, KeyKind};
use crate::lease::{Grant, Lease, Token};
use crate::mode::Mode;
use crate::path_pattern::PathPattern;
use crate::queue::Ticket;
use crate::store::{
    Acquired, Capabilities, Fenced, Forced, Granted, HistoryQuery, Reap, Reaped, Released, Renewed,
    Revision, Snapshot, Store, Waited, Watched, Withdrawn,
};
use crate::verdict::Verdict;

use super::{
    LeasePart, Look, Refused, Step, acquire, acquire_all, ask, fence, force, force_one, inspect,
    leave, park, reap, release, release_all, release_paths, renew, renew_all, some_leases,
    withdraw_all,
};

/// How many liveness locks [`EngineStore::dead_locks`] tests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sweep {
    /// All.
    Whole,
    /// A limited number, and only in a few of all processes.
    InPassing,
}

/// How a step of a store begins, commits and is retried, and how the store waits. Every verb of [`Store`]
/// follows from this.
pub trait EngineStore: Send + Sync {
    /// Why a read fails.
    type LookError;
    /// Why a step fails.
    type StepError;
    /// A consistent view of one key.
    type Looking<'a>: Look<Error = Self::LookError>
    where
        Self: 'a;
    /// A step under way.
    type Stepping<'a>: Step<Error = Self::StepError>
    where
        Self: 'a;

    /// The result of [`Store::capabilities`].
    fn features(&self) -> Capabilities;

    /// The result of [`Store::this_process`].
    fn binding(&self) -> Result<Binding, StoreError>;

    /// Refuses every verb that writes, if this store was opened read-only; see
    /// [`StoreError::opened_read_only`]. A wait counts as a write: a process that can be woken has a
    /// liveness lock.
    fn admit_change(&self) -> Result<(), StoreError> {
        Ok(())
    }

    /// Refuses a key that this store does not hold.
    fn admit(&self, _key: &Key) -> Result<(), StoreError> {
        Ok(())
    }

    /// Refuses a claim that this store can't hold.
    fn admit_claim(&self, claim: &Claim) -> Result<(), StoreError> {
        self.admit(&claim.key)
    }

    /// Runs a verb that only reads this key, on a consistent view.
    fn look<T>(
        &self,
        key: &Key,
        by: Instant,
        verb: impl FnMut(&mut Self::Looking<'_>) -> Result<T, Self::LookError>,
    ) -> Result<(T, Revision), StoreError>;

    /// Runs a verb about this key as one atomic step, again if another program was faster, and
    /// delivers its wake-ups after the commit.
    fn step<T>(
        &self,
        key: &Key,
        by: Instant,
        verb: impl FnMut(&mut Self::Stepping<'_>) -> Result<T, Self::StepError>,
    ) -> Result<(T, Revision), StoreError>;

    /// The same for a verb about several keys.
    fn step_all<T>(
        &self,
        keys: &[Key],
        by: Instant,
        verb: impl FnMut(&mut Self::Stepping<'_>) -> Result<T, Self::StepError>,
    ) -> Result<(T, Revision), StoreError> {
        match keys {
            [key, ..] => self.step(key, by, verb),
            [] => Err(StoreError::new(ErrorKind::Unsupported, "no key is named")),
        }
    }

    /// Every key that has a lease or a ticket, by name; see [`Snapshot::is_on_record`].
    fn snapshots(&self, by: Instant) -> Result<Vec<Snapshot>, StoreError>;

    /// The result of [`Store::list_names`]; `None` if names can't be read without the records.
    fn names(&self, _beginnings: &[&str], _by: Instant) -> Result<Option<Vec<Key>>, StoreError> {
        Ok(None)
    }

    /// The result of [`Store::list_with`].
    fn some_snapshots(&self, _keys: &[Key], by: Instant) -> Result<Vec<Snapshot>, StoreError> {
        self.snapshots(by)
    }

    /// The result of [`Store::history`].
    fn events(&self, query: &HistoryQuery, by: Instant) -> Result<Vec<Event>, StoreError>;

    /// The result of [`Store::damaged_events`].
    fn unreadable_events(
        &self,
        _query: &HistoryQuery,
        _by: Instant,
    ) -> Result<Vec<String>, StoreError> {
        Ok(Vec::new())
    }

    /// What [`Store::wait`] does.
    fn block(&self, watched: &Watched<'_>, timeout: Duration) -> Result<Waited, StoreError>;

    /// What [`Store::wake`] does.
    fn interrupt(&self);

    /// Ends expired leases and those of dead holders, key by key. A key that fails does not stop the next one; what was
    /// wrong with it is the answer.
    fn reap_ended(&self, by: Instant) -> Result<Vec<Reaped>, StoreError> {
        let dead = self.dead_locks(Sweep::Whole);
        let (mut reaped, mut needed) = (Vec::new(), HashSet::new());
        let mut failed = None;
        for snapshot in self.snapshots(by)? {
            if !self.may_have_ended(&snapshot) {
                let holders = snapshot.leases.iter().map(|(lease, _)| &lease.holder);
                needed.extend(holders.filter_map(Holder::liveness_lock).cloned());
                continue;
            }
            let one = self.reap_parts(&snapshot.key, by);
            reaped.extend(one.reaped);
            needed.extend(one.needed);
            if let Err(error) = one.outcome {
                failed.get_or_insert((snapshot.key, error));
            }
        }
        let Some((key, mut error)) = failed else {
            self.remove_locks(&dead, &needed);
            return Ok(reaped);
        };
        error.what = match reaped.len() {
            0 => format!("{key} can't be cleaned up: {}", error.what),
            ended => format!(
                "{key} can't be cleaned up: {} ({ended} leases were ended)",
                error.what
            ),
        };
        Err(error)
    }

    /// Whether a key is worth a step that ends its leases. A store for which a step is expensive looks first.
    fn may_have_ended(&self, _snapshot: &Snapshot) -> bool {
        true
    }

    /// Ends the expired leases of a key and those of dead holders, in as many steps as that takes.
    fn reap_parts(&self, key: &Key, by: Instant) -> ReapedParts {
        let (mut reaped, mut needed) = (Vec::new(), Vec::new());
        let outcome = loop {
            match self.step(key, by, |step| reap(step, key)) {
                Ok((one, _)) => {
                    reaped.extend(one.reaped);
                    needed.extend(one.needed);
                    if !one.left {
                        break Ok(());
                    }
                }
                Err(error) => break Err(error),
            }
        };
        ReapedParts {
            reaped,
            needed,
            outcome,
        }
    }

    /// The liveness locks that are left of processes that have exited. Call it before reading which locks
    /// are needed: a process that has exited can't publish its lock any more.
    fn dead_locks(&self, _sweep: Sweep) -> Vec<LivenessId> {
        Vec::new()
    }

    /// Removes liveness locks of processes that have exited, except those that are needed.
    fn remove_locks(&self, _dead: &[LivenessId], _needed: &HashSet<LivenessId>) {}

    /// The keys of these grants, each of which this store must hold.
    fn admit_grants(&self, grants: &[Grant]) -> Result<Vec<Key>, StoreError> {
        let admit = |grant: &Grant| self.admit(&grant.key).map(|()| grant.key.clone());
        grants.iter().map(admit).collect()
    }

    /// Removes what killed processes left, if it is this process's turn. Best effort: another process
    /// has its turn later.
    fn sweep_in_passing(&self, by: Instant) {
        let dead = self.dead_locks(Sweep::InPassing);
        if dead.is_empty() {
            return;
        }
        if let Ok(snapshots) = self.snapshots(by) {
            let leases = snapshots.iter().flat_map(|snapshot| &snapshot.leases);
            let waiters = snapshots.iter().flat_map(|snapshot| &snapshot.queue);
            let holders = leases.map(|(lease, _)| &lease.holder);
            let holders = holders.chain(waiters.map(|waiter| &waiter.holder));
            let needed = holders.filter_map(Holder::liveness_lock).cloned();
            self.remove_locks(&dead, &needed.collect());
        }
    }
}

/// What was ended of one key, before an error if there was one.
#[derive(Debug)]
pub struct ReapedParts {
    /// The leases that were ended.
    pub reaped: Vec<Reaped>,
    /// The liveness locks that are still needed.
    pub needed: Vec<LivenessId>,
    /// Whether that is all.
    pub outcome: Result<(), StoreError>,
}

impl<S: EngineStore> Store for S {
    fn capabilities(&self) -> Capabilities {
        self.features()
    }

    fn this_process(&self) -> Result<Binding, StoreError> {
        self.admit_change()?;
        self.binding()
    }

    fn acquire(&self, claim: &Claim, by: Instant) -> Result<Acquired, StoreError> {
        self.admit_change()?;
        self.admit_claim(claim)?;
        if !claim.mode.is_exclusive() && !self.features().modes {
            return Err(StoreError::one_holder_only(&claim.key, &claim.mode));
        }
        let (answer, revision) = self.step(&claim.key, by, |step| acquire(step, claim))?;
        let answer = answer.map_err(|refused| match refused {
            Refused::OtherMode(mode) => StoreError::other_mode(&claim.key, &claim.mode, &mode),
            Refused::TooComplex => StoreError::too_complex(&claim.mode),
        })?;
        Ok(answer.seen_at(revision))
    }

    fn renew(&self, grant: &Grant, ttl: Duration, by: Instant) -> Result<Renewed, StoreError> {
        self.admit_change()?;
        self.admit(&grant.key)?;
        Ok(self.step(&grant.key, by, |step| renew(step, grant, ttl))?.0)
    }

    fn release(&self, grant: &Grant, by: Instant) -> Result<Released, StoreError> {
        self.admit_change()?;
        self.admit(&grant.key)?;
        let (released, _) = self.step(&grant.key, by, |step| release(step, grant))?;
        // Not before: a waiter may have the key by now.
        self.sweep_in_passing(by);
        Ok(released)
    }

    fn acquire_all(
        &self,
        claims: &[Claim],
        by: Instant,
    ) -> Result<Acquired<Vec<Granted>>, StoreError> {
        if let [claim] = claims {
            let answer = self.acquire(claim, by)?;
            return Ok(answer.map(|granted| vec![granted]));
        }
        self.admit_change()?;
        for claim in claims {
            self.admit_claim(claim)?;
            let alone = matches!(claim.key.kind(), KeyKind::Task(_) | KeyKind::Section(_))
                || claim.key == Key::paths();
            if alone || !self.features().several {
                return Err(StoreError::one_key_at_a_time(&claim.key));
            }
        }
        let keys: Vec<Key> = claims.iter().map(|claim| claim.key.clone()).collect();
        let (answer, revision) = self.step_all(&keys, by, |step| acquire_all(step, claims))?;
        let answer = answer.map_err(|(key, found)| {
            let asked = claims.iter().find(|claim| claim.key == key);
            let asked = asked.map_or(&Mode::Exclusive, |claim| &claim.mode);
            StoreError::other_mode(&key, asked, &found)
        })?;
        Ok(answer.seen_at(revision))
    }

    fn renew_all(
        &self,
        grants: &[Grant],
        ttl: Duration,
        by: Instant,
    ) -> Result<Vec<Renewed>, StoreError> {
        self.admit_change()?;
        let keys = self.admit_grants(grants)?;
        Ok(self
            .step_all(&keys, by, |step| renew_all(step, grants, ttl))?
            .0)
    }

    fn release_all(&self, grants: &[Grant], by: Instant) -> Result<Vec<Released>, StoreError> {
        self.admit_change()?;
        let keys = self.admit_grants(grants)?;
        let (released, _) = self.step_all(&keys, by, |step| release_all(step, grants))?;
        self.sweep_in_passing(by);
        Ok(released)
    }

    fn release_paths(
        &self,
        parts: &[(Grant, Vec<PathPattern>)],
        by: Instant,
    ) -> Result<Vec<Released>, StoreError> {
        self.admit_change()?;
        let mut keys = Vec::new();
        for (grant, _) in parts {
            self.admit(&grant.key)?;
            if !keys.contains(&grant.key) {
                keys.push(grant.key.clone());
            }
        }
        let mut released = Vec::new();
        while let Some(left @ [_, ..]) = parts.get(released.len()..) {
            match self.step_all(&keys, by, |step| release_paths(step, left)) {
                Ok((some, _)) => released.extend(some),
                Err(error) if released.is_empty() => return Err(error),
                Err(mut error) => {
                    let (some, all) = (released.len(), parts.len());
                    error.kind = ErrorKind::OutcomeUnknown;
                    error.what = format!(
                        "{some} of {all} reservations were given back before this: {}",
                        error.what
                    );
                    return Err(error);
                }
            }
        }
        Ok(released)
    }

    fn withdraw_all(
        &self,
        claims: &[Claim],
        then: Withdrawn,
        by: Instant,
    ) -> Result<(), StoreError> {
        self.admit_change()?;
        let keys: Vec<Key> = claims.iter().map(|claim| claim.key.clone()).collect();
        self.step_all(&keys, by, |step| withdraw_all(step, claims, then))?;
        Ok(())
    }

    fn leave(&self, key: &Key, ticket: Ticket, by: Instant) -> Result<(), StoreError> {
        self.admit_change()?;
        self.admit(key)?;
        self.step(key, by, |step| leave(step, key, ticket))?;
        Ok(())
    }

    fn park(&self, key: &Key, ticket: Ticket, by: Instant) -> Result<(), StoreError> {
        self.admit_change()?;
        self.admit(key)?;
        self.step(key, by, |step| park(step, key, ticket))?;
        Ok(())
    }

    fn force(
        &self,
        key: &Key,
        of: Option<&HolderId>,
        forced_by: &HolderId,
        reason: Option<&str>,
        by: Instant,
    ) -> Result<Forced, StoreError> {
        self.admit_change()?;
        self.admit(key)?;
        let mut freed = Vec::new();
        loop {
            let ((forced, left), _) =
                self.step(key, by, |step| force(step, key, of, forced_by, reason))?;
            match forced {
                Forced::Freed(some) => freed.extend(some),
                Forced::NotHeld if freed.is_empty() => return Ok(Forced::NotHeld),
                Forced::NotHeld => {}
            }
            if !left {
                return Ok(Forced::Freed(freed));
            }
        }
    }

    fn force_one(
        &self,
        grant: &Grant,
        forced_by: &HolderId,
        reason: Option<&str>,
        by: Instant,
    ) -> Result<Forced, StoreError> {
        self.admit_change()?;
        self.admit(&grant.key)?;
        let (forced, _) = self.step(&grant.key, by, |step| {
            force_one(step, grant, forced_by, reason)
        })?;
        Ok(forced)
    }

    fn ask(
        &self,
        key: &Key,
        only: Option<&[Token]>,
        asker: &HolderId,
        note: Option<&str>,
        by: Instant,
    ) -> Result<Vec<Lease>, StoreError> {
        self.admit_change()?;
        self.admit(key)?;
        let (asked, _) = self.step(key, by, |step| ask(step, key, only, asker, note))?;
        asked.ok_or_else(|| {
            let what =
                "this store can't keep a request for its holder: other programs use its locks, too";
            StoreError::new(ErrorKind::Unsupported, what).fix("wait for the key instead")
        })
    }

    fn fence(&self, key: &Key, token: Token, by: Instant) -> Result<Fenced, StoreError> {
        self.admit(key)?;
        Ok(self.look(key, by, |look| fence(look, key, token))?.0)
    }

    fn inspect(&self, key: &Key, by: Instant) -> Result<Snapshot, StoreError> {
        self.admit(key)?;
        let (snapshot, revision) = self.look(key, by, |look| inspect(look, key))?;
        Ok(Snapshot {
            revision,
            ..snapshot
        })
    }

    fn some_leases(
        &self,
        key: &Key,
        part: LeasePart<'_>,
        by: Instant,
    ) -> Result<Vec<(Lease, Verdict)>, StoreError> {
        self.admit(key)?;
        Ok(self.look(key, by, |look| some_leases(look, key, part))?.0)
    }

    fn list(&self, by: Instant) -> Result<Vec<Snapshot>, StoreError> {
        let mut snapshots = self.snapshots(by)?;
        snapshots.retain(|snapshot| !snapshot.is_idle() || !snapshot.problems.is_empty());
        Ok(snapshots)
    }

    fn list_names(&self, beginnings: &[&str], by: Instant) -> Result<Vec<Key>, StoreError> {
        match self.names(beginnings, by)? {
            Some(names) => Ok(names),
            None => Ok(crate::store::names(self.list(by)?, beginnings)),
        }
    }

    fn list_with(&self, keys: &[Key], by: Instant) -> Result<Vec<Snapshot>, StoreError> {
        self.some_snapshots(keys, by)
    }

    fn reap(&self, reap: Reap, by: Instant) -> Result<Vec<Reaped>, StoreError> {
        match reap {
            Reap::Free => {
                self.admit_change()?;
                self.reap_ended(by)
            }
            Reap::DryRun => Ok(self
                .snapshots(by)?
                .iter()
                .flat_map(Snapshot::ended)
                .collect()),
        }
    }

    fn reap_key(&self, key: &Key, by: Instant) -> Result<Vec<Reaped>, StoreError> {
        self.admit_change()?;
        let ReapedParts {
            reaped, outcome, ..
        } = self.reap_parts(key, by);
        outcome.map(|()| reaped)
    }

    fn history(&self, query: &HistoryQuery, by: Instant) -> Result<Vec<Event>, StoreError> {
        self.events(query, by)
    }

    fn damaged_events(&self, query: &HistoryQuery, by: Instant) -> Result<Vec<String>, StoreError> {
        self.unreadable_events(query, by)
    }

    fn wait(&self, watched: &Watched<'_>, timeout: Duration) -> Result<Waited, StoreError> {
        self.admit_change()?;
        self.block(watched, timeout)
    }

    fn wake(&self) {
        self.interrupt();
    }
}
