//! The verbs of the store: each is one transaction in which the engine runs. Hops three and five of an
//! acquisition.

use std::collections::HashSet;
use std::os::fd::BorrowedFd;
use std::time::{Duration, Instant};

use tenure_core::{
    Acquired, Binding, Capabilities, Claim, ErrorKind, Event, Fenced, Forced, Grant, HistoryQuery,
    HolderId, Key, Reap, Reaped, Released, Renewed, Snapshot, Store, StoreError, Ticket, Token,
    Waited, Watched, engine,
};
use tenure_host::LocalStore;

use crate::history;
use crate::store::SqliteStore;

impl Store for SqliteStore {
    fn capabilities(&self) -> Capabilities {
        if self.foreign.is_some() {
            Capabilities::ALL.only_some_keys()
        } else {
            Capabilities::ALL
        }
    }

    fn this_process(&self) -> Result<Binding, StoreError> {
        self.presence
            .binding()
            .map_err(|error| self.no_liveness_lock(error))
    }

    fn acquire(&self, claim: &Claim, by: Instant) -> Result<Acquired, StoreError> {
        self.admit(&claim.key)?;
        let (answer, revision) = self.write(by, |write| engine::acquire(write, claim))?;
        Ok(answer.seen_at(revision))
    }

    fn renew(&self, grant: &Grant, ttl: Duration, by: Instant) -> Result<Renewed, StoreError> {
        self.admit(&grant.key)?;
        Ok(self.write(by, |write| engine::renew(write, grant, ttl))?.0)
    }

    fn release(&self, grant: &Grant, by: Instant) -> Result<Released, StoreError> {
        self.admit(&grant.key)?;
        Ok(self.write(by, |write| engine::release(write, grant))?.0)
    }

    fn leave(&self, key: &Key, ticket: Ticket, by: Instant) -> Result<(), StoreError> {
        Ok(self.write(by, |write| write.leave_queue(key, ticket))?.0)
    }

    fn park(&self, key: &Key, ticket: Ticket, by: Instant) -> Result<(), StoreError> {
        Ok(self.write(by, |write| write.park_in_queue(key, ticket))?.0)
    }

    fn force(
        &self,
        key: &Key,
        forced_by: &HolderId,
        reason: Option<&str>,
        by: Instant,
    ) -> Result<Forced, StoreError> {
        self.admit(key)?;
        Ok(self
            .write(by, |write| engine::force(write, key, forced_by, reason))?
            .0)
    }

    fn fence(&self, key: &Key, token: Token, by: Instant) -> Result<Fenced, StoreError> {
        self.admit(key)?;
        Ok(self
            .read(by, |mut reader| engine::fence(&mut reader, key, token))?
            .0)
    }

    fn inspect(&self, key: &Key, by: Instant) -> Result<Snapshot, StoreError> {
        self.admit(key)?;
        let (mut snapshot, revision) =
            self.read(by, |mut reader| engine::inspect(&mut reader, key))?;
        snapshot.revision = revision;
        Ok(snapshot)
    }

    fn list(&self, by: Instant) -> Result<Vec<Snapshot>, StoreError> {
        let (mut snapshots, revision) = self.read(by, |reader| reader.all())?;
        for snapshot in &mut snapshots {
            snapshot.revision = revision;
        }
        Ok(snapshots)
    }

    fn reap(&self, reap: Reap, by: Instant) -> Result<Vec<Reaped>, StoreError> {
        if reap == Reap::DryRun {
            let snapshots = self.list(by)?;
            return Ok(snapshots.iter().flat_map(Snapshot::ended).collect());
        }
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
        self.presence.sweep(|lock| needed.contains(lock));
        Ok(reaped)
    }

    fn history(&self, query: &HistoryQuery, by: Instant) -> Result<Vec<Event>, StoreError> {
        Ok(self.read(by, |reader| history::tell(reader.db, query))?.0)
    }

    fn wait(&self, watched: &Watched<'_>, timeout: Duration) -> Result<Waited, StoreError> {
        // In this order: whatever happens after `seen` either changes the revision or rings.
        let generation = self.presence.generation();
        let lookout = self.lookout(watched.key)?;
        if self.revision_now()? != watched.seen {
            return Ok(Waited::Changed);
        }
        self.presence
            .watch(watched.ahead.iter().copied())
            .map_err(|error| self.no_liveness_lock(error))?;
        Ok(if self.listen(generation, lookout, timeout)? {
            Waited::Changed
        } else {
            Waited::TimedOut
        })
    }

    fn wake(&self) {
        self.presence.wake();
    }
}

impl LocalStore for SqliteStore {
    fn inherited_fd(&self) -> Option<BorrowedFd<'_>> {
        self.presence.inherited_fd()
    }
}

impl SqliteStore {
    fn no_liveness_lock(&self, error: std::io::Error) -> StoreError {
        let kind = match error.kind() {
            std::io::ErrorKind::StorageFull => ErrorKind::Full,
            std::io::ErrorKind::ReadOnlyFilesystem | std::io::ErrorKind::PermissionDenied => {
                ErrorKind::ReadOnly
            }
            _ => ErrorKind::Io,
        };
        let folder = self.presence.folder().path().display();
        let what = format!("the liveness lock of this process can't be made in {folder}");
        StoreError::new(kind, what)
            .because(error)
            .fix("check that the folder may be written and has space")
    }
}
