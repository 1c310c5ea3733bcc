//! The store on the engine: each verb is one transaction. Hops three and five of an acquisition.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use tenure_core::engine::{self, EngineStore, Sweep};
use tenure_core::{
    Binding, Capabilities, Claim, ErrorKind, Event, HistoryQuery, Key, LivenessId, Reaped, Records,
    Revision, Snapshot, StoreError, Waited, Watched,
};
use tenure_host::{LocalPresence, LocalStore};

use crate::call_deadline;
use crate::fault;
use crate::history;
use crate::lock_tables::LockTable;
use crate::store::SqliteStore;
use crate::view::ReadTransaction;
use crate::write::{TransactionError, WriteTransaction};

impl Records for SqliteStore {
    fn capabilities(&self) -> Capabilities {
        if self.is_foreign() {
            Capabilities::ALL.only_some_keys().only_exclusive()
        } else {
            Capabilities::ALL
        }
    }

    fn this_process(&self) -> Result<Binding, StoreError> {
        self.check_access()?;
        self.presence
            .binding()
            .map_err(|error| self.no_liveness_lock(error))
    }

    fn on_record(&self, by: Instant) -> Result<Vec<Snapshot>, StoreError> {
        let (mut snapshots, revision) = self.read(by, |reader| reader.all())?;
        for snapshot in &mut snapshots {
            snapshot.revision = revision;
        }
        Ok(snapshots)
    }

    fn list_names(&self, beginnings: &[&str], by: Instant) -> Result<Vec<Key>, StoreError> {
        let (names, _) = self.read(by, |reader| reader.names(beginnings))?;
        Ok(names.into_iter().collect())
    }

    fn history(&self, query: &HistoryQuery, by: Instant) -> Result<Vec<Event>, StoreError> {
        // A lease that another program ended belongs into the history, although no verb has met it since.
        if self.check_access().is_ok() && self.read(by, |reader| reader.any_overruled())?.0 {
            self.write(by, |write| write.settle_overruled())?;
        }
        Ok(self.read(by, |reader| history::tell(reader.db, query))?.0)
    }

    fn damaged_events(&self, query: &HistoryQuery, by: Instant) -> Result<Vec<String>, StoreError> {
        let (damaged, _) = self.read(by, |reader| history::damaged(reader.db, query))?;
        Ok(damaged)
    }

    fn wait(&self, watched: &Watched<'_>, timeout: Duration) -> Result<Waited, StoreError> {
        self.check_access()?;
        self.still_there()?;
        // In this order: whatever happens after `seen` either changes the revision or rings.
        let generation = self.presence.generation();
        let polled = self.look_once(|db| self.tables.polled(db, watched.key))?;
        if self.was_woken(watched.seen)
            || self.revision_now()? != watched.seen && self.was_released(watched)?
        {
            return Ok(Waited::Changed);
        }
        let exits = self.presence.watch(watched.ahead.iter().copied());
        Ok(if self.listen(generation, &exits, polled, timeout)? {
            Waited::Changed
        } else {
            Waited::TimedOut
        })
    }

    fn wake(&self) {
        self.presence.wake();
    }
}

impl EngineStore for SqliteStore {
    type LookError = rusqlite::Error;
    type StepError = TransactionError;
    type Looking<'a> = ReadTransaction<'a>;
    type Stepping<'a> = WriteTransaction<'a>;

    fn admit_change(&self) -> Result<(), StoreError> {
        self.check_access()
    }

    fn admit(&self, key: &Key) -> Result<(), StoreError> {
        if !self.is_foreign() || LockTable::of(key).is_some() {
            return Ok(());
        }
        let path = self.path().display();
        let what = format!("{path} holds tasks and sections only, not {key}");
        Err(StoreError::new(ErrorKind::Unsupported, what)
            .fix("name task:ID or section:ID, or use the project's own store for other keys"))
    }

    /// Tasks and sections have one holder: other programs read their locks.
    fn admit_claim(&self, claim: &Claim) -> Result<(), StoreError> {
        self.admit(&claim.key)?;
        if !claim.mode.is_exclusive() && LockTable::of(&claim.key).is_some() {
            return Err(StoreError::one_holder_only(&claim.key, &claim.mode));
        }
        Ok(())
    }

    fn look<T>(
        &self,
        _key: &Key,
        by: Instant,
        mut verb: impl FnMut(&mut ReadTransaction<'_>) -> rusqlite::Result<T>,
    ) -> Result<(T, Revision), StoreError> {
        self.read(by, |mut reader| verb(&mut reader))
    }

    fn step<T>(
        &self,
        _keys: &[Key],
        by: Instant,
        verb: impl FnMut(&mut WriteTransaction<'_>) -> Result<T, TransactionError>,
    ) -> Result<(T, Revision), StoreError> {
        self.write(by, verb)
    }

    /// All keys in one transaction.
    fn reap_ended(&self, by: Instant) -> Result<Vec<Reaped>, StoreError> {
        let dead = self.dead_locks(Sweep::Whole);
        let ((reaped, needed), _) = self.write(by, |write| {
            write.settle_overruled()?;
            let (mut reaped, mut needed) = (Vec::new(), HashSet::new());
            for snapshot in write.reader.all()? {
                let one = engine::reap(write, &snapshot.key)?;
                reaped.extend(one.reaped);
                needed.extend(one.needed);
            }
            Ok((reaped, needed))
        })?;
        self.remove_locks(&dead, &needed);
        Ok(reaped)
    }

    fn dead_locks(&self, sweep: Sweep) -> Vec<LivenessId> {
        self.presence.dead_locks(sweep)
    }

    fn remove_locks(&self, dead: &[LivenessId], needed: &HashSet<LivenessId>) {
        self.presence.remove_locks(dead, needed);
    }
}

impl LocalStore for SqliteStore {
    fn presence(&self) -> &LocalPresence {
        &self.presence
    }
}

impl SqliteStore {
    /// Whether one of the leases that a waiter waits for is on record no more, as far as this can be told from
    /// the key alone.
    fn was_released(&self, watched: &Watched<'_>) -> Result<bool, StoreError> {
        let Some(held) = watched.held.as_ref().filter(|_| !self.is_foreign()) else {
            return Ok(true);
        };
        let others = watched.others.iter().map(|(key, held)| (*key, held));
        let keys: Vec<_> = std::iter::once((watched.key, held)).chain(others).collect();
        let look = |reader: ReadTransaction<'_>| {
            for (key, held) in &keys {
                if held.is_empty() || !reader.has_all(key, held)? {
                    return Ok(true);
                }
            }
            Ok(false)
        };
        Ok(self.read(call_deadline::soon(), look)?.0)
    }

    fn no_liveness_lock(&self, error: std::io::Error) -> StoreError {
        use std::io::ErrorKind::{PermissionDenied, ReadOnlyFilesystem, StorageFull};

        let folder = self.presence.folder().path().display();
        let not_made = format!("the liveness lock of this process can't be made in {folder}");
        let (kind, what) = match error.kind() {
            StorageFull => (ErrorKind::Full, not_made),
            ReadOnlyFilesystem => (ErrorKind::ReadOnly, not_made),
            PermissionDenied => {
                let what = format!("no permission to write to {folder}");
                (ErrorKind::ReadOnly, what)
            }
            _ => (ErrorKind::Io, not_made),
        };
        let fix = if kind == ErrorKind::ReadOnly && fault::is_in_git(self.path()) {
            fault::IN_GIT
        } else {
            "check that the folder may be written and has space"
        };
        StoreError::new(kind, what).because(error).fix(fix)
    }
}
