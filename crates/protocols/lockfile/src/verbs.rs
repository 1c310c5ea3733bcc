//! The store on the engine: each verb is one step. Hops three and five of an acquisition.

use std::collections::HashSet;
use std::time::{Duration, Instant};

use tenure_core::engine::{self, EngineStore, Sweep};
use tenure_core::{
    Binding, Capabilities, Claim, ErrorKind, Event, HistoryQuery, Key, LivenessId, Records,
    Revision, Snapshot, StoreError, Waited, Watched,
};
use tenure_host::files::fault::explain;
use tenure_host::files::protocol::LockProtocol;
use tenure_host::presence::wait_failed;
use tenure_host::{LocalPresence, LocalStore};

use crate::history;
use crate::step::FileStep;
use crate::store::FileStore;
use crate::view::Picture;

impl<P: LockProtocol> Records for FileStore<P> {
    fn capabilities(&self) -> Capabilities {
        Capabilities::ALL
            .only_some_keys()
            .only_exclusive()
            .without_expiry()
    }

    fn this_process(&self) -> Result<Binding, StoreError> {
        self.check_access()?;
        self.sidecar().make()?;
        self.presence
            .binding()
            .map_err(|error| explain("written", self.presence.folder().path(), error))
    }

    fn on_record(&self, by: Instant) -> Result<Vec<Snapshot>, StoreError> {
        let (only, revision) = self.read(by, |picture| engine::inspect(picture, self.key()))?;
        let only = Snapshot { revision, ..only };
        Ok(Some(only)
            .filter(Snapshot::is_on_record)
            .into_iter()
            .collect())
    }

    fn history(&self, query: &HistoryQuery, by: Instant) -> Result<Vec<Event>, StoreError> {
        let (events, _) = self.read(by, |_| history::query(self.sidecar(), query))?;
        Ok(events)
    }

    fn wait(&self, watched: &Watched<'_>, timeout: Duration) -> Result<Waited, StoreError> {
        self.check_access()?;
        self.sidecar().make()?;
        // A process that waits for no other process holds the lock.
        self.listen(watched.ahead.is_empty()).map_err(wait_failed)?;
        let has_changed = || Ok(self.revision_now() != watched.seen);
        self.presence
            .wait_unless_changed(watched, timeout, has_changed)
    }

    fn wake(&self) {
        self.presence.wake();
    }
}

impl<P: LockProtocol> EngineStore for FileStore<P> {
    type LookError = StoreError;
    type StepError = StoreError;
    type Looking<'a>
        = Picture<'a, P>
    where
        P: 'a;
    type Stepping<'a>
        = FileStep<'a, P>
    where
        P: 'a;

    fn admit_change(&self) -> Result<(), StoreError> {
        self.check_access()
    }

    fn admit(&self, key: &Key) -> Result<(), StoreError> {
        if key == self.key() {
            return Ok(());
        }
        let (path, only) = (self.protocol().path().display(), self.key());
        Err(StoreError::new(
            ErrorKind::Unsupported,
            format!("{path} is the lock of the key {only}, not of {key}"),
        )
        .fix(format!("use the key {only}, or another store")))
    }

    fn admit_claim(&self, claim: &Claim) -> Result<(), StoreError> {
        self.admit(&claim.key)?;
        if claim.holder.process().is_some() {
            return Ok(());
        }
        let path = self.protocol().path().display();
        let what = format!("a lease in {path} needs a process: the lock names one");
        Err(StoreError::new(ErrorKind::Unsupported, what)
            .fix("name the process that uses the lock with acquire --pid PID, or use run"))
    }

    fn look<T>(
        &self,
        _key: &Key,
        by: Instant,
        verb: impl FnMut(&mut Picture<'_, P>) -> Result<T, StoreError>,
    ) -> Result<(T, Revision), StoreError> {
        self.read(by, verb)
    }

    fn step<T>(
        &self,
        _keys: &[Key],
        by: Instant,
        verb: impl FnMut(&mut FileStep<'_, P>) -> Result<T, StoreError>,
    ) -> Result<(T, Revision), StoreError> {
        self.write(by, verb)
    }

    fn dead_locks(&self, sweep: Sweep) -> Vec<LivenessId> {
        self.presence.dead_locks(sweep)
    }

    fn remove_locks(&self, dead: &[LivenessId], needed: &HashSet<LivenessId>) {
        self.presence.remove_locks(dead, needed);
    }
}

impl<P: LockProtocol> LocalStore for FileStore<P> {
    fn presence(&self) -> &LocalPresence {
        &self.presence
    }
}
