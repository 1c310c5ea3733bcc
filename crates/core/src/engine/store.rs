//! A store that runs the engine: [`EngineStore`], and with it every verb of [`Store`].

use std::collections::HashSet;
use std::slice;
use std::time::{Duration, Instant};

use crate::claim::Claim;
use crate::error::{ErrorKind, StoreError};
use crate::holder::{Holder, HolderId, LivenessId};
use crate::key::{Key, KeyKind};
use crate::lease::{Grant, Lease, Token};
use crate::mode::Mode;
use crate::path_pattern::PathPattern;
use crate::store::{
    Acquired, Fenced, Forced, Granted, Reap, Reaped, Records, Released, Renewed, Revision,
    Snapshot, Store, Withdrawal,
};
use crate::verdict::Verdict;

use super::{
    LeaseQuery, Look, Refused, Step, acquire, ask, fence, force, force_one, inspect, reap, release,
    release_paths, renew, some_leases, withdraw,
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
pub trait EngineStore: Records {
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

    /// Runs a verb about these keys as one atomic step, again if another program was faster, and
    /// delivers its wake-ups after the commit. There is at least one key, and not more without
    /// [`Capabilities::several`](crate::Capabilities::several).
    fn step<T>(
        &self,
        keys: &[Key],
        by: Instant,
        verb: impl FnMut(&mut Self::Stepping<'_>) -> Result<T, Self::StepError>,
    ) -> Result<(T, Revision), StoreError>;

    /// Ends expired leases and those of dead holders, key by key. A key that fails does not stop the next one; what was
    /// wrong with it is the answer.
    fn reap_ended(&self, by: Instant) -> Result<Vec<Reaped>, StoreError> {
        let dead = self.dead_locks(Sweep::Whole);
        let (mut reaped, mut needed) = (Vec::new(), HashSet::new());
        let mut failed = None;
        for snapshot in self.on_record(by)? {
            if !self.may_have_ended(&snapshot) {
                let holders = snapshot.leases.iter().map(|(lease, _)| &lease.holder);
                needed.extend(holders.filter_map(Holder::liveness_lock).cloned());
                continue;
            }
            if let Err(error) = self.reap_into(&snapshot.key, &mut reaped, &mut needed, by) {
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

    /// Ends the expired leases of a key and those of dead holders, in as many steps as that takes, and notes the liveness locks
    /// that are still needed.
    fn reap_into(
        &self,
        key: &Key,
        reaped: &mut Vec<Reaped>,
        needed: &mut HashSet<LivenessId>,
        by: Instant,
    ) -> Result<(), StoreError> {
        loop {
            let (one, _) = self.step(slice::from_ref(key), by, |step| reap(step, key))?;
            reaped.extend(one.reaped);
            needed.extend(one.needed);
            if !one.left {
                return Ok(());
            }
        }
    }

    /// The liveness locks that are left of processes that have exited. Call it before reading which locks
    /// are needed: a process that has exited can't publish its lock any more.
    fn dead_locks(&self, _sweep: Sweep) -> Vec<LivenessId> {
        Vec::new()
    }

    /// Removes liveness locks of processes that have exited, except those that are needed.
    fn remove_locks(&self, _dead: &[LivenessId], _needed: &HashSet<LivenessId>) {}

    /// Each of these keys once, if this store holds all of them and may be changed.
    fn admit_all<'a>(
        &self,
        keys: impl IntoIterator<Item = &'a Key>,
    ) -> Result<Vec<Key>, StoreError> {
        self.admit_change()?;
        let mut each = Vec::new();
        for key in keys {
            self.admit(key)?;
            if !each.contains(key) {
                each.push(key.clone());
            }
        }
        Ok(each)
    }

    /// Runs a verb that changes something of these keys, as one step.
    fn change<'a, T>(
        &self,
        keys: impl IntoIterator<Item = &'a Key>,
        by: Instant,
        verb: impl FnMut(&mut Self::Stepping<'_>) -> Result<T, Self::StepError>,
    ) -> Result<T, StoreError> {
        match self.admit_all(keys)?.as_slice() {
            [] => Err(no_key()),
            keys => Ok(self.step(keys, by, verb)?.0),
        }
    }

    /// Removes what killed processes left, if it is this process's turn. Best effort: another process
    /// has its turn later.
    fn sweep_in_passing(&self, by: Instant) {
        let dead = self.dead_locks(Sweep::InPassing);
        if dead.is_empty() {
            return;
        }
        if let Ok(snapshots) = self.on_record(by) {
            let leases = snapshots.iter().flat_map(|snapshot| &snapshot.leases);
            let waiters = snapshots.iter().flat_map(|snapshot| &snapshot.queue);
            let holders = leases.map(|(lease, _)| &lease.holder);
            let holders = holders.chain(waiters.map(|waiter| &waiter.holder));
            let needed = holders.filter_map(Holder::liveness_lock).cloned();
            self.remove_locks(&dead, &needed.collect());
        }
    }
}

fn no_key() -> StoreError {
    StoreError::new(ErrorKind::Unsupported, "no key is named")
}

impl<S: EngineStore> Store for S {
    fn acquire_all(
        &self,
        claims: &[Claim],
        by: Instant,
    ) -> Result<Acquired<Vec<Granted>>, StoreError> {
        self.admit_change()?;
        let can = self.capabilities();
        for claim in claims {
            self.admit_claim(claim)?;
            let alone = matches!(claim.key.kind(), KeyKind::Task(_) | KeyKind::Section(_))
                || claim.key.is_paths();
            if claims.len() > 1 && (alone || !can.several) {
                return Err(StoreError::one_key_at_a_time(&claim.key));
            }
            if !claim.mode.is_exclusive() && !can.modes {
                return Err(StoreError::one_holder_only(&claim.key, &claim.mode));
            }
        }
        let keys: Vec<Key> = claims.iter().map(|claim| claim.key.clone()).collect();
        if keys.is_empty() {
            return Err(no_key());
        }
        let (answer, revision) = self.step(&keys, by, |step| acquire(step, claims))?;
        let answer = answer.map_err(|refused| match refused {
            Refused::OtherMode(key, found) => {
                let asked = claims.iter().find(|claim| claim.key == key);
                let asked = asked.map_or(&Mode::Exclusive, |claim| &claim.mode);
                StoreError::other_mode(&key, asked, &found)
            }
            Refused::TooComplex => {
                let paths = claims.iter().find(|claim| claim.mode.paths().is_some());
                StoreError::too_complex(paths.map_or(&Mode::Exclusive, |claim| &claim.mode))
            }
        })?;
        Ok(answer.seen_at(revision))
    }

    fn renew_all(
        &self,
        grants: &[Grant],
        ttl: Duration,
        by: Instant,
    ) -> Result<Vec<Renewed>, StoreError> {
        let keys = grants.iter().map(|grant| &grant.key);
        self.change(keys, by, |step| renew(step, grants, ttl))
    }

    fn release_all(&self, grants: &[Grant], by: Instant) -> Result<Vec<Released>, StoreError> {
        let keys = grants.iter().map(|grant| &grant.key);
        let released = self.change(keys, by, |step| release(step, grants))?;
        // Not before: a waiter may have the key by now.
        self.sweep_in_passing(by);
        Ok(released)
    }

    fn release_paths(
        &self,
        parts: &[(Grant, Vec<PathPattern>)],
        by: Instant,
    ) -> Result<Vec<Released>, StoreError> {
        let keys = self.admit_all(parts.iter().map(|(grant, _)| &grant.key))?;
        let mut released = Vec::new();
        while let Some(left @ [_, ..]) = parts.get(released.len()..) {
            match self.step(&keys, by, |step| release_paths(step, left)) {
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
        then: Withdrawal,
        by: Instant,
    ) -> Result<(), StoreError> {
        let keys = claims.iter().map(|claim| &claim.key);
        self.change(keys, by, |step| withdraw(step, claims, then))
    }

    fn force(
        &self,
        key: &Key,
        of: Option<&HolderId>,
        forced_by: &HolderId,
        reason: Option<&str>,
        by: Instant,
    ) -> Result<Forced, StoreError> {
        let mut freed = Vec::new();
        loop {
            let (forced, left) =
                self.change([key], by, |step| force(step, key, of, forced_by, reason))?;
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
        self.change([&grant.key], by, |step| {
            force_one(step, grant, forced_by, reason)
        })
    }

    fn ask(
        &self,
        key: &Key,
        only: Option<&[Token]>,
        asker: &HolderId,
        note: Option<&str>,
        by: Instant,
    ) -> Result<Vec<Lease>, StoreError> {
        let asked = self.change([key], by, |step| ask(step, key, only, asker, note))?;
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
        query: LeaseQuery<'_>,
        by: Instant,
    ) -> Result<Vec<(Lease, Verdict)>, StoreError> {
        self.admit(key)?;
        Ok(self.look(key, by, |look| some_leases(look, key, query))?.0)
    }

    fn reap(&self, reap: Reap, by: Instant) -> Result<Vec<Reaped>, StoreError> {
        match reap {
            Reap::Free => {
                self.admit_change()?;
                self.reap_ended(by)
            }
            Reap::DryRun => Ok(self
                .on_record(by)?
                .iter()
                .flat_map(Snapshot::ended)
                .collect()),
        }
    }

    fn reap_key(&self, key: &Key, by: Instant) -> Result<Vec<Reaped>, StoreError> {
        self.admit_change()?;
        let mut reaped = Vec::new();
        self.reap_into(key, &mut reaped, &mut HashSet::new(), by)?;
        Ok(reaped)
    }
}
