//! [`FileStore`]: one lock as a store, and how its steps begin and end.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

use tenure_core::{ErrorKind, Key, Revision, StoreError};
use tenure_host::exit_helper::ExitHelper;
use tenure_host::files::lock_watch::{Listen, Listener, LockWatch};
use tenure_host::files::protocol::{FoundLock, LockProtocol};
use tenure_host::files::step_lock::{ObservedStepLock, StepLock};
use tenure_host::files::{Access, Options, Sidecar};
use tenure_host::time_limit::TimeLimit;
use tenure_host::{LocalPresence, lock};

use crate::state::StateFile;
use crate::step::FileStep;
use crate::view::Picture;

/// One lock with a queue, tokens and a history in its sidecar.
pub struct FileStore<P> {
    protocol: P,
    pub(crate) state_file: StateFile,
    pub(crate) presence: LocalPresence,
    /// One step of this object at a time.
    stepping: Mutex<()>,
    /// Wakes waiters when other programs change the lock; `None` if the kernel can't tell.
    for_waiters: OnceLock<Option<Listener>>,
    /// Wakes holders on every change of the lock.
    for_holders: OnceLock<Option<Listener>>,
    /// Clears up this process's lock when this process is killed.
    exit_helper: Mutex<Option<ExitHelper>>,
    /// Tokens continue above the ceiling, in a boot whose name is not known.
    pub(crate) has_raised_tokens: AtomicBool,
    pub(crate) options: Options,
}

impl<P: LockProtocol> FileStore<P> {
    /// The store of a lock, with its sidecar at this path. Writes nothing.
    pub fn new(protocol: P, sidecar: impl Into<PathBuf>, options: Options) -> Self {
        Self::with_sidecar(protocol, Sidecar::new(sidecar), options)
    }

    /// The store of a lock, with this sidecar. Writes nothing.
    pub fn with_sidecar(protocol: P, sidecar: Sidecar, options: Options) -> Self {
        Self {
            protocol,
            presence: LocalPresence::new(sidecar.liveness_folder(), Arc::clone(&options.clock)),
            state_file: StateFile::new(sidecar),
            stepping: Mutex::new(()),
            for_waiters: OnceLock::new(),
            for_holders: OnceLock::new(),
            exit_helper: Mutex::new(None),
            has_raised_tokens: AtomicBool::new(false),
            options,
        }
    }

    /// The only key.
    pub fn key(&self) -> &Key {
        self.protocol.key()
    }

    /// The protocol of the lock.
    pub fn protocol(&self) -> &P {
        &self.protocol
    }

    /// The sidecar of the lock.
    pub fn sidecar(&self) -> &Sidecar {
        self.state_file.sidecar()
    }

    /// The lock at its path, without what the state adds to it.
    pub fn found(&self) -> Option<FoundLock> {
        self.protocol.read(self.protocol.path())
    }

    /// Starts to wake this process when the lock changes: for a waiter, when another program changes
    /// it; for a holder, whenever it changes.
    pub(crate) fn listen(&self, holds: bool) -> io::Result<()> {
        let (listener, listen) = if holds {
            (&self.for_holders, Listen::Everything)
        } else {
            (&self.for_waiters, self.protocol.listen_for())
        };
        let ring = self.presence.ringer()?;
        listener.get_or_init(|| {
            let watch = LockWatch::on(self.protocol.path(), listen);
            watch.and_then(|watch| watch.listen(ring)).ok()
        });
        Ok(())
    }

    /// Changes whenever a process changes the lock, and when this process is woken. Taken before the lock is read: a
    /// program that knows nothing of the step lock may change it right after that.
    pub(crate) fn stamp(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        let lock = self.protocol.path().symlink_metadata().ok();
        let lock = lock.map(|lock| {
            let times = (
                lock.mtime(),
                lock.mtime_nsec(),
                lock.ctime(),
                lock.ctime_nsec(),
            );
            (lock.dev(), lock.ino(), lock.size(), times)
        });
        (lock, self.presence.generation()).hash(&mut hasher);
        hasher.finish()
    }

    /// Changes with the state, and with the stamp of the lock.
    pub(crate) fn revision(state: u64, stamp: u64) -> Revision {
        let mut hasher = DefaultHasher::new();
        (state, stamp).hash(&mut hasher);
        Revision(hasher.finish())
    }

    /// Whether a process was killed just before it recorded its step, or just after: its prepared lock
    /// is left. Under the step lock only.
    pub(crate) fn has_leftover(&self) -> bool {
        self.sidecar().next().symlink_metadata().is_ok()
    }

    /// The current revision.
    pub(crate) fn revision_now(&self) -> Revision {
        Self::revision(self.state_file.revision(), self.stamp())
    }

    /// Refuses to write if the store was opened read-only.
    pub(crate) fn check_access(&self) -> Result<(), StoreError> {
        match self.options.access {
            Access::ReadWrite => Ok(()),
            Access::ReadOnly => Err(StoreError::opened_read_only(self.protocol.path().display())),
        }
    }

    fn step_lock(&self, by: Instant) -> Result<(MutexGuard<'_, ()>, StepLock), StoreError> {
        let one = lock(&self.stepping);
        let step = StepLock::take(&self.sidecar().step_lock(), remaining(by))?;
        Ok((one, step))
    }

    /// Runs a verb as one step, and wakes processes after it.
    pub(crate) fn write<T>(
        &self,
        by: Instant,
        verb: impl FnMut(&mut FileStep<'_, P>) -> Result<T, StoreError>,
    ) -> Result<(T, Revision), StoreError> {
        self.check_access()?;
        self.sidecar().make()?;
        let locked = self.step_lock(by)?;
        let mut step = FileStep::begin(self)?;
        let answer = step.run(by, verb);
        if let Some(helper) = step.exit_helper.take() {
            // That of a lock which names another process ends by itself.
            *lock(&self.exit_helper) = Some(helper).filter(|_| step.holds_grant());
        } else if !step.holds_grant()
            && let Some(helper) = lock(&self.exit_helper).take()
        {
            helper.end();
        }
        let revision = step.picture.revision();
        drop(locked);
        self.presence.ring(step.wakes);
        Ok((answer?, revision))
    }

    /// Looks at a consistent picture. Writes nothing, unless something has to be repaired first.
    pub(crate) fn read<T>(
        &self,
        by: Instant,
        mut verb: impl FnMut(&mut Picture<'_, P>) -> Result<T, StoreError>,
    ) -> Result<(T, Revision), StoreError> {
        if self.options.access == Access::ReadOnly {
            let _no_step = ObservedStepLock::observe(&self.sidecar().step_lock(), remaining(by))?;
            let mut picture = Picture::load(self)?;
            picture.read_lock();
            // An interrupted step stays as it is: repairing it would write.
            let answer = verb(&mut picture)?;
            return Ok((answer, picture.revision()));
        }
        // Without a sidecar no tenure process has used this lock yet.
        let lock = if self.sidecar().path().is_dir() {
            Some(self.step_lock(by)?)
        } else {
            None
        };
        let mut picture = Picture::load(self)?;
        picture.read_lock();
        let mut look = |picture: &mut Picture<'_, P>| {
            let answer = verb(picture)?;
            Ok((answer, picture.revision()))
        };
        if !picture.needs_repair() {
            return look(&mut picture);
        }
        drop(lock);
        match self.write(by, |step| look(&mut step.picture)) {
            // Without permission to repair it, show it as it is.
            Err(error) if error.kind == ErrorKind::ReadOnly => look(&mut picture),
            repaired => Ok(repaired?.0),
        }
    }
}

/// How much time is left for a call.
fn remaining(by: Instant) -> Duration {
    TimeLimit::until(by).remaining()
}
